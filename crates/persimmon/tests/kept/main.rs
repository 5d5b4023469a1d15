//! What was flushed to a file that was opened to keep it outlives the process. RocksDB flushes its log for each record: by a block of
//! the journal for each it wrote an eighth as fast as on a filesystem of the kernel, and without it lost seconds with a killed process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

mod history;
mod limits;
mod not_taken;
mod pending;
mod races;
mod room;
mod unseen;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use persimmon::{Compression, Create, Error, File, Filesystem, OpenOptions, Options, SetAttr};

const KILLS: u64 = 50;
/// Bytes of a file after which a writer begins another of its name.
const FILE_MAX: u64 = 8 << 20;
/// Bytes of the volumes of writers that are killed, one of which each run draws.
const SIZES: [u64; 4] = [48 << 20, 64 << 20, 256 << 20, 1 << 30];
const LINE: usize = 100;
const LONG: usize = 3000;

struct Image {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    fn new() -> Image {
        Image::sized(1 << 30)
    }

    fn sized(bytes: u64) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        Filesystem::create(&path, &Create::sized(bytes)).unwrap();
        Image { dir, path }
    }

    fn open(&self) -> Filesystem {
        open(&self.path)
    }

    /// Opens it after a crash of the process that `fs` was of, and tells what is in the file.
    fn after(&self, fs: Filesystem, files: Vec<File>, path: &str) -> Vec<u8> {
        fs.abandon();
        drop(files);
        let fs = self.open();
        let content = fs.read(path).unwrap();
        fs.close().unwrap();
        content
    }
}

/// Nothing is written back by itself, and everything takes the space that it seems to.
fn options() -> Options {
    let mut options = Options {
        commit_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    options.engine.compression = Compression::None;
    options
}

fn open(image: &Path) -> Filesystem {
    Filesystem::open(image, &options()).unwrap()
}

fn keeping() -> OpenOptions {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .keep_flushed(true)
}

fn add(file: &File, content: &[u8]) {
    file.append(content).unwrap();
    file.flush_through().unwrap();
}

/// The directory of a volume's tails, if there is one.
fn tails(fs: &Filesystem) -> Vec<PathBuf> {
    let uuid = uuid::Uuid::from_bytes(fs.vfs().volume().identity().uuid);
    let start = format!("persimmon-{uuid}-");
    let entries = fs::read_dir("/dev/shm").unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(&start))
        .flat_map(|dir| fs::read_dir(dir).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn line(number: u64, len: usize) -> Vec<u8> {
    let mut line = vec![number as u8; len];
    line[..8].copy_from_slice(&number.to_le_bytes());
    line
}

fn child(image: &Path, test: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("PERSIMMON_TEST_IMAGE", image)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// `None` in the process of the tests.
fn image_of_child() -> Option<PathBuf> {
    Some(std::env::var_os("PERSIMMON_TEST_IMAGE")?.into())
}

/// Part of a test below, in a process of its own.
/// The tail is kept for the volume's first device, which is another one afterwards.
#[test]
fn what_was_flushed_is_there_after_a_device_for_metadata_is_added() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    let file = fs.open_file("/log", &keeping()).unwrap();
    add(&file, &line(1, LINE));
    fs.abandon();
    drop(file);
    let metadata = image.dir.path().join("metadata.img");
    let add = persimmon::AddMetadata::default();
    Filesystem::add_metadata(&image.path, &metadata, &add).unwrap();
    let fs = open(&persimmon::device::uri(&metadata, &image.path));
    assert_eq!(fs.read("/log").unwrap(), line(1, LINE));
    fs.close().unwrap();
}

#[test]
fn child_that_appends() {
    let Some(image) = image_of_child() else {
        return;
    };
    let commits = Options {
        commit_interval: Duration::from_millis(15),
        ..Options::default()
    };
    let fs = Filesystem::open(image, &commits).unwrap();
    // Logs that are never removed once filled a small volume: a writer then ended before it had answered anything.
    for path in ["/short", "/long"] {
        if fs.metadata(path).is_ok_and(|found| found.size > FILE_MAX) {
            fs.remove_file(path).unwrap();
        }
    }
    let short = fs.open_file("/short", &keeping()).unwrap();
    let long = fs.open_file("/long", &keeping()).unwrap();
    let mut out = std::io::stdout();
    let first = short.metadata().unwrap().size / LINE as u64;
    let mut first_long = long.metadata().unwrap().size / LONG as u64;
    for number in first.. {
        // As the plugin does, and by two calls.
        match number % 2 {
            0 => short.write_flushed_at(&line(number, LINE), 0).unwrap(),
            _ => add(&short, &line(number, LINE)),
        }
        if number % 4 == 0 {
            add(&long, &line(first_long, LONG));
            first_long += 1;
        }
        writeln!(out, "answered {} {first_long}", number + 1).unwrap();
        out.flush().unwrap();
    }
}

/// Part of a test below, in a process of its own.
#[test]
fn child_that_opens() {
    let Some(image) = image_of_child() else {
        return;
    };
    println!("answered 0 0");
    Filesystem::open(image, &Options::default()).unwrap();
}

/// Some number up to `most`, from the addresses and times that differ from run to run.
fn some(most: u64) -> u64 {
    u64::from(uuid::Uuid::new_v4().as_fields().0) % most
}

/// Runs a child for a while, and tells what it answered last.
fn killed_after(mut child: Child, micros: u64) -> Option<(u64, u64)> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = None;
    let mut told = |line: String| {
        if let Some(numbers) = line.strip_prefix("answered ") {
            let (short, long) = numbers.split_once(' ').unwrap();
            last = Some((short.parse().unwrap(), long.parse().unwrap()));
        }
        line.starts_with("answered")
    };
    while lines.next().is_some_and(|line| !told(line.unwrap())) {}
    // What it answers meanwhile waits in the pipe.
    std::thread::sleep(Duration::from_micros(micros));
    child.kill().unwrap();
    for line in lines {
        told(line.unwrap());
    }
    child.wait().unwrap();
    last
}

#[test]
fn what_was_flushed_outlives_kills() {
    // Small volumes checkpoint and clean all the time.
    let bytes = SIZES[some(SIZES.len() as u64) as usize];
    println!("a volume of {bytes} bytes");
    let image = Image::sized(bytes);
    let mut written = (0, 0);
    for round in 0..KILLS {
        let micros = some(60_000);
        let last = killed_after(child(&image.path, "child_that_appends"), micros).unwrap();
        if round % 2 == 0 {
            // What brings it in is killed, too.
            killed_after(child(&image.path, "child_that_opens"), some(8_000));
        }
        let fs = image.open();
        for (path, len, answered) in [("/short", LINE, last.0), ("/long", LONG, last.1)] {
            let content = fs.read(path).unwrap();
            let there = (content.len() / len) as u64;
            assert!(
                there >= answered,
                "{path}: {there} of {answered}, round {round}"
            );
            assert_eq!(content.len() % len, 0, "{path}: a torn end, round {round}");
            for (number, found) in (0..).zip(content.chunks_exact(len)) {
                assert_eq!(found, line(number, len), "{path}: line {number}");
            }
        }
        assert!(tails(&fs).is_empty());
        fs.close().unwrap();
        written = last;
    }
    println!("{KILLS} kills, {written:?} lines");
}

#[test]
fn a_flush_is_kept_and_costs_no_journal() {
    let image = Image::new();
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"first ");
    fs.sync().unwrap();
    let before = fs.vfs().volume().statistics().device_bytes();
    for _ in 0..1000 {
        add(&log, b"more ");
    }
    log.append(b"unflushed").unwrap();
    assert_eq!(fs.vfs().volume().statistics().device_bytes(), before);
    assert_eq!(tails(&fs).len(), 1);
    let found = image.after(fs, vec![log], "/log");
    assert_eq!(found, [b"first ".to_vec(), b"more ".repeat(1000)].concat());
}

#[test]
fn a_tail_that_is_full_begins_anew() {
    let image = Image::new();
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    let mut all = Vec::new();
    for number in 0..60 {
        let content = line(number, 100_000);
        add(&log, &content);
        all.extend(content);
    }
    // More than a tail holds, at once and bit by bit.
    let much = line(7, 3 << 20);
    add(&log, &much);
    all.extend(much);
    for number in 0..15 {
        let content = line(number, 100_000);
        log.append(&content).unwrap();
        all.extend(content);
    }
    log.flush_through().unwrap();
    add(&log, b"end");
    all.extend(b"end");
    let size = fs::metadata(&tails(&fs)[0]).unwrap().len();
    assert!(size <= 1 << 20, "{size}");
    assert!(image.after(fs, vec![log], "/log") == all);
}

/// A truncation that was synced would be undone by a tail that knows nothing of it.
#[test]
fn other_changes_are_not_undone() {
    type Change = fn(&Filesystem, &File);
    let changes: &[(&[u8], Change)] = &[
        (b"0123", |_, log| log.set_len(4).unwrap()),
        (b"0123", |fs, _| {
            let set = SetAttr {
                size: Some(4),
                ..SetAttr::default()
            };
            fs.set_attributes("/log", &set).unwrap();
        }),
        (b"0123", |fs, _| {
            let other = fs.open_file("/log", &OpenOptions::new().write(true));
            other.unwrap().set_len(4).unwrap();
        }),
        (b"", |fs, _| {
            let options = OpenOptions::new().write(true).truncate(true);
            fs.open_file("/log", &options).unwrap();
        }),
        (b"01x3456789abcdef", |fs, _| {
            let other = fs.open_file("/log", &OpenOptions::new().write(true));
            other.unwrap().write_at(b"x", 2).unwrap();
        }),
        (b"0123456789abcdefother", |fs, _| {
            let other = fs.open_file("/log", &OpenOptions::new().append(true));
            other.unwrap().append(b"other").unwrap();
        }),
        (b"0123456789source", |fs, _| {
            fs.write("/source", b"source").unwrap();
            let source = fs.open_file("/source", &OpenOptions::new().read(true));
            let other = fs.open_file("/log", &OpenOptions::new().write(true));
            source.unwrap().copy_to(0, &other.unwrap(), 10, 6).unwrap();
        }),
    ];
    for (number, (left, change)) in changes.iter().enumerate() {
        for then in [&b""[..], b"then"] {
            let image = Image::new();
            let fs = image.open();
            let log = fs.open_file("/log", &keeping()).unwrap();
            add(&log, b"0123");
            add(&log, b"456789");
            add(&log, b"abcdef");
            change(&fs, &log);
            log.sync_all().unwrap();
            if !then.is_empty() {
                add(&log, then);
                add(&log, then);
            }
            let found = image.after(fs, vec![log], "/log");
            assert_eq!(found, [left, then, then].concat(), "change {number}");
        }
    }
}

/// What was flushed before another change must be there although that change was not.
#[test]
fn what_was_flushed_before_another_change_is_there() {
    let image = Image::new();
    let fs = image.open();
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .keep_flushed(true);
    let log = fs.open_file("/log", &options).unwrap();
    for at in 0..10 {
        log.write_at(b"0123456789", at * 10).unwrap();
        log.flush_through().unwrap();
    }
    log.write_at(b"x", 55).unwrap();
    assert!(tails(&fs).is_empty());
    let found = image.after(fs, vec![log], "/log");
    assert_eq!(found, b"0123456789".repeat(10));
}

/// RocksDB begins a log while the one before is open. The first flush of the new one went to the device, and the end of the old one
/// was in memory alone: with the power it was lost, and the database went on after a hole.
#[test]
fn a_loss_of_power_leaves_no_hole_between_logs() {
    let image = Image::new();
    let fs = image.open();
    let old = fs.open_file("/1.log", &keeping()).unwrap();
    add(&old, b"first ");
    add(&old, b"second");
    assert_eq!(tails(&fs).len(), 1);
    let new = fs.open_file("/2.log", &keeping()).unwrap();
    add(&new, b"third");
    // The kernel loses its memory.
    for tail in tails(&fs) {
        fs::remove_file(tail).unwrap();
    }
    fs.abandon();
    drop((old, new));
    let fs = image.open();
    assert_eq!(fs.read("/2.log").unwrap(), b"third");
    assert_eq!(fs.read("/1.log").unwrap(), b"first second");
    fs.close().unwrap();
    // The same where the younger one is closed first.
    let fs = image.open();
    let (old, new) = ["/1.log", "/2.log"]
        .map(|path| fs.open_file(path, &keeping()).unwrap())
        .into();
    add(&old, b"");
    add(&new, b"");
    add(&old, b" fourth");
    add(&new, b" fifth");
    drop(new);
    for tail in tails(&fs) {
        fs::remove_file(tail).unwrap();
    }
    fs.abandon();
    drop(old);
    let fs = image.open();
    assert_eq!(fs.read("/2.log").unwrap(), b"third fifth");
    assert_eq!(fs.read("/1.log").unwrap(), b"first second fourth");
}

/// The same where the younger one is changed in another way than by appending to it: it was given to the device alone.
#[test]
fn a_change_of_a_log_comes_after_what_others_were_flushed() {
    type Change<'a> = &'a dyn Fn(&Filesystem, &File);
    let begin = |fs: &Filesystem, options: OpenOptions| {
        let file = fs.open_file("/2.log", &options.write(true)).unwrap();
        file.write_at(b"B", 0).unwrap();
    };
    let changes: [Change<'_>; 3] = [
        &|_, file| file.set_len(1 << 20).unwrap(),
        &|fs, _| begin(fs, OpenOptions::new()),
        &|fs, _| begin(fs, OpenOptions::new().keep_flushed(true)),
    ];
    for change in changes {
        let image = Image::new();
        let fs = image.open();
        let logs = ["/1.log", "/2.log"].map(|path| fs.open_file(path, &keeping()).unwrap());
        for log in &logs {
            add(log, b"begun ");
        }
        for log in &logs {
            add(log, b"more");
        }
        change(&fs, &logs[1]);
        for tail in tails(&fs) {
            fs::remove_file(tail).unwrap();
        }
        fs.abandon();
        drop(logs);
        let fs = image.open();
        assert_eq!(fs.read("/1.log").unwrap(), b"begun more");
        assert!(fs.read("/2.log").unwrap().ends_with(b"egun more"));
    }
}

#[test]
fn names_may_change_meanwhile() {
    let image = Image::new();
    let fs = image.open();
    let files = ["/a", "/b", "/c"].map(|path| fs.open_file(path, &keeping()).unwrap());
    for file in &files {
        add(file, b"first");
    }
    fs.rename("/a", "/renamed").unwrap();
    fs.hard_link("/b", "/linked").unwrap();
    fs.remove_file("/c").unwrap();
    fs.write("/c", b"another").unwrap();
    fs.sync().unwrap();
    for file in &files {
        add(file, b"second");
    }
    assert_eq!(tails(&fs).len(), 3);
    fs.abandon();
    drop(files);
    let fs = image.open();
    assert_eq!(fs.read("/renamed").unwrap(), b"firstsecond");
    assert_eq!(fs.read("/b").unwrap(), b"firstsecond");
    assert_eq!(fs.read("/linked").unwrap(), b"firstsecond");
    assert_eq!(fs.read("/c").unwrap(), b"another");
    assert!(tails(&fs).is_empty());
}

#[test]
fn closing_leaves_nothing_behind() {
    let image = Image::new();
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"first");
    add(&log, b"second");
    assert_eq!(tails(&fs).len(), 1);
    drop(log);
    assert!(tails(&fs).is_empty());
    // Without its tail it is there all the same.
    assert_eq!(image.after(fs, Vec::new(), "/log"), b"firstsecond");
    // Open at the end: the volume has everything, and the next opening finds that.
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"third");
    add(&log, b"fourth");
    let left = tails(&fs);
    fs.close().unwrap();
    drop(log);
    assert!(left.iter().all(|tail| !tail.exists()));
    let fs = image.open();
    assert_eq!(fs.read("/log").unwrap(), b"firstsecondthirdfourth");
    assert!(tails(&fs).is_empty());
}

#[test]
fn a_copy_of_the_image_is_another_volume() {
    let image = Image::new();
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"first");
    let older = image.dir.path().join("older.img");
    fs::copy(&image.path, &older).unwrap();
    add(&log, b"second");
    fs.abandon();
    drop(log);
    let fs = open(&older);
    assert_eq!(fs.read("/log").unwrap(), b"first");
    assert_eq!(tails(&fs).len(), 1);
    fs.close().unwrap();
    // Opened to read, nothing is brought in, and nothing is removed.
    let mut reading = options();
    reading.engine.read_only = true;
    let fs = Filesystem::open(&image.path, &reading).unwrap();
    assert_eq!(fs.read("/log").unwrap(), b"first");
    assert_eq!(tails(&fs).len(), 1);
    fs.close().unwrap();
    let fs = image.open();
    assert_eq!(fs.read("/log").unwrap(), b"firstsecond");
    assert!(tails(&fs).is_empty());
}

#[test]
fn a_tail_of_somebody_else_changes_nothing() {
    type Put = fn(&Path, &[u8]);
    let puts: &[(bool, Put)] = &[
        (true, |path, right| {
            let mut bytes = right.to_vec();
            bytes[8] = 2;
            fs::write(path, bytes).unwrap();
        }),
        (false, |path, _| fs::write(path, [0xAB; 5000]).unwrap()),
        (false, |path, right| fs::write(path, &right[..96]).unwrap()),
        (false, |path, right| {
            fs::write(path, [right, &vec![0; 2 << 20]].concat()).unwrap();
        }),
        (false, |path, right| {
            let elsewhere = tempfile::NamedTempFile::new().unwrap();
            fs::write(&elsewhere, right).unwrap();
            symlink(elsewhere.path(), path).unwrap();
            std::mem::forget(elsewhere);
        }),
        (false, |path, _| fs::create_dir(path).unwrap()),
        (false, |path, _| {
            let made = Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        }),
        // The directory is one that others can write to.
        (false, |path, right| {
            fs::write(path, right).unwrap();
            let dir = path.parent().unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(dir, mode).unwrap();
        }),
    ];
    for (number, (refused, put)) in puts.iter().enumerate() {
        let image = Image::new();
        let fs = image.open();
        let log = fs.open_file("/log", &keeping()).unwrap();
        add(&log, b"first");
        add(&log, b"second");
        let path = tails(&fs).remove(0);
        fs.abandon();
        drop(log);
        let right = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        put(&path, &right);
        if *refused {
            let opened = Filesystem::open(&image.path, &options()).map(drop);
            assert!(matches!(opened, Err(Error::Kept { .. })), "{opened:?}");
            fs::remove_file(&path).unwrap();
        }
        let fs = image.open();
        assert_eq!(fs.read("/log").unwrap(), b"first", "number {number}");
        fs.close().unwrap();
        let _ = fs::remove_dir_all(path.parent().unwrap());
    }
}

/// Part of a test below, in a process of its own.
#[test]
fn child_without_room() {
    let Some(image) = image_of_child() else {
        return;
    };
    let fs = open(&image);
    let log = fs.open_file("/log", &keeping()).unwrap();
    for number in 0..300 {
        add(&log, &line(number, 1000));
    }
    println!("answered 300 0");
    fs.abandon();
}

/// Where the kernel cannot keep it, the device has it.
#[test]
fn without_room_in_memory_a_flush_goes_to_the_device() {
    let script = "if [ -n \"$SIZE\" ]; then mount -t tmpfs -o size=$SIZE none \"$PERSIMMON_KEPT_DIR\" || exit 0; fi; \
                  exec \"$0\" --exact child_without_room --nocapture";
    for size in ["", "4k", "64k"] {
        let image = Image::new();
        let (program, words): (_, &[&str]) = match size {
            "" => ("sh", &["-c", script]),
            _ => (
                "unshare",
                &["--mount", "--map-root-user", "sh", "-c", script],
            ),
        };
        let kept = match size {
            "" => image.dir.path().join("missing"),
            _ => image.dir.path().join("small"),
        };
        if !size.is_empty() {
            fs::create_dir(&kept).unwrap();
        }
        let ran = Command::new(program)
            .args(words)
            .arg(std::env::current_exe().unwrap())
            .env("SIZE", size)
            .env("PERSIMMON_KEPT_DIR", &kept)
            .env("PERSIMMON_TEST_IMAGE", &image.path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        if !size.is_empty() && !said.contains("answered") && ran.status.code() != Some(101) {
            println!("no tmpfs can be mounted here: {ran:?}");
            continue;
        }
        assert!(said.contains("answered 300"), "{size}: {ran:?}");
        // The tails are gone with the namespace, or were never there.
        let fs = image.open();
        let content = fs.read("/log").unwrap();
        match size {
            "" => assert_eq!(content.len(), 300_000),
            // As much as the small directory could not take.
            _ => assert!(content.len() >= 200_000, "{}", content.len()),
        }
    }
}
