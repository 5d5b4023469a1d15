//! Snapshots through the library, on an image.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use persimmon::{Create, Filesystem, OpenOptions, Options};
use persimmon_inspect::CheckOptions;

struct Image {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    fn new() -> Image {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        let path = dir.path().join("volume.img");
        Filesystem::create(&path, &Create::sized(256 << 20)).unwrap();
        Image { _dir: dir, path }
    }

    fn open(&self) -> Filesystem {
        Filesystem::open(&self.path, &Options::default()).unwrap()
    }

    fn check(&self) {
        let device = persimmon::device::Drive::open(
            &self.path,
            &persimmon::device::OpenOptions {
                read_only: true,
                ..Default::default()
            },
        );
        let options = CheckOptions {
            data: true,
            ..CheckOptions::default()
        };
        let report = persimmon_inspect::check(&device.unwrap(), &options, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
    }

    fn roll_back(&self, name: &str, keep: Option<&str>) -> persimmon::Result<()> {
        let keep = keep.map(OsStr::new);
        Filesystem::roll_back(&self.path, name, keep, &Options::default())
    }
}

fn names(fs: &Filesystem) -> Vec<String> {
    let all = fs.snapshots().into_iter();
    let mut names: Vec<String> = all
        .map(|snapshot| String::from_utf8(snapshot.name).unwrap())
        .collect();
    names.sort();
    names
}

fn errno<T>(result: persimmon::Result<T>) -> i32 {
    result.err().unwrap().errno()
}

#[test]
fn snapshots_are_read_by_paths() {
    let image = Image::new();
    let fs = image.open();
    fs.create_dir("/dir").unwrap();
    fs.write("/dir/file", b"as it was").unwrap();
    fs.symlink("file", "/dir/link").unwrap();
    fs.take_snapshot("first", false).unwrap();
    fs.write("/dir/file", b"changed").unwrap();
    fs.take_snapshot("second", true).unwrap();
    assert_eq!(fs.read("/.snapshots/first/dir/link").unwrap(), b"as it was");
    assert_eq!(fs.read("/.snapshots/second/dir/file").unwrap(), b"changed");
    assert_eq!(
        fs.read("/.snapshots/second/dir/../../first/dir/file")
            .unwrap(),
        b"as it was"
    );
    let listed = fs.read_dir("/.snapshots").unwrap();
    assert_eq!(listed.count(), 2);
    assert_eq!(fs.read_dir("/").unwrap().count(), 1);

    assert_eq!(
        errno(fs.write("/.snapshots/first/dir/file", b"x")),
        libc::EROFS
    );
    assert_eq!(errno(fs.take_snapshot("first", false)), libc::EEXIST);
    assert_eq!(errno(fs.take_snapshot("a/b", false)), libc::EINVAL);
    assert_eq!(errno(fs.delete_snapshot("gone")), libc::ENOENT);
    fs.write("/.snapshots/second/dir/file", b"its own").unwrap();
    assert_eq!(fs.read("/dir/file").unwrap(), b"changed");
    let reads_and_writes = OpenOptions::new().read(true).write(true);
    let file = fs
        .open_file("/.snapshots/second/dir/file", &reads_and_writes)
        .unwrap();
    assert_eq!(errno(fs.delete_snapshot("second")), libc::EBUSY);
    drop(file);
    assert_eq!(errno(fs.rename_snapshot("second", "first")), libc::EEXIST);
    fs.rename_snapshot("second", "renamed").unwrap();
    fs.close().unwrap();
    image.check();

    let fs = image.open();
    assert_eq!(names(&fs), ["first", "renamed"]);
    assert_eq!(fs.read("/.snapshots/renamed/dir/file").unwrap(), b"its own");
    fs.delete_snapshot("first").unwrap();
    assert_eq!(errno(fs.read("/.snapshots/first/dir/file")), libc::ENOENT);
    fs.close().unwrap();
    image.check();
}

#[test]
fn snapshots_are_taken_of_snapshots() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/file", b"main").unwrap();
    fs.take_snapshot("dev", true).unwrap();
    fs.write("/.snapshots/dev/file", b"dev").unwrap();
    fs.take_snapshot_of("dev", "one", false).unwrap();
    fs.write("/.snapshots/dev/file", b"later").unwrap();
    assert_eq!(
        fs.read("/.snapshots/dev/.snapshots/one/file").unwrap(),
        b"dev"
    );
    // By the directory, too.
    fs.create_dir("/.snapshots/dev/.snapshots/two").unwrap();
    assert_eq!(fs.read("/.snapshots/two/file").unwrap(), b"later");
    assert_eq!(
        fs.read_dir("/.snapshots/dev/.snapshots").unwrap().count(),
        2
    );
    assert_eq!(fs.read_dir("/.snapshots").unwrap().count(), 3);
    assert_eq!(errno(fs.take_snapshot_of("none", "x", false)), libc::ENOENT);
    assert_eq!(
        errno(fs.take_snapshot_of("dev", "one", false)),
        libc::EEXIST
    );
    fs.remove_dir("/.snapshots/dev/.snapshots/two").unwrap();
    fs.delete_snapshot("dev").unwrap();
    assert_eq!(names(&fs), ["one"]);
    assert_eq!(fs.snapshots()[0].origin, persimmon::vfs::SubvolumeId::MAIN);
    fs.close().unwrap();
    image.check();
}

/// Without anybody's asking, and to the last block.
#[test]
fn what_a_deleted_snapshot_held_is_freed() {
    let image = Image::new();
    let fs = image.open();
    let free = |fs: &Filesystem| {
        fs.checkpoint().unwrap();
        fs.statfs().unwrap().blocks_free
    };
    let content: Vec<u8> = (0..32 << 20)
        .map(|at: u32| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    fs.write("/file", &content).unwrap();
    fs.take_snapshot("s", false).unwrap();
    let before = free(&fs);
    assert_eq!(fs.snapshot_space("s").unwrap(), 0);
    fs.write("/file", b"short").unwrap();
    fs.sync().unwrap();
    let held = fs.snapshot_space("s").unwrap();
    assert!((32 << 20..33 << 20).contains(&held), "{held}");
    assert!(free(&fs) <= before);
    fs.delete_snapshot("s").unwrap();
    let begin = Instant::now();
    while free(&fs) < before + 30 * 256 {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{} of {before}",
            free(&fs)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    fs.close().unwrap();
    image.check();
}

#[test]
fn a_volume_is_set_back_to_a_snapshot() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/file", b"as it was").unwrap();
    fs.take_snapshot("good", false).unwrap();
    fs.write("/file", b"broken").unwrap();
    fs.write("/new", b"made since").unwrap();
    fs.close().unwrap();

    let missing = image.roll_back("gone", None).unwrap_err();
    assert!(
        missing.to_string().contains("no such snapshot"),
        "{missing}"
    );
    let taken = image.roll_back("good", Some("good")).unwrap_err();
    assert!(taken.to_string().contains("with this name"), "{taken}");
    image.roll_back("good", Some("before")).unwrap();
    image.check();
    let fs = image.open();
    assert_eq!(names(&fs), ["before", "good"]);
    assert_eq!(fs.read("/file").unwrap(), b"as it was");
    assert!(!fs.exists("/new"));
    assert_eq!(fs.read("/.snapshots/before/file").unwrap(), b"broken");
    fs.write("/file", b"goes on").unwrap();
    assert_eq!(fs.read("/.snapshots/good/file").unwrap(), b"as it was");
    fs.close().unwrap();

    image.roll_back("before", None).unwrap();
    image.check();
    let fs = image.open();
    assert_eq!(fs.read("/file").unwrap(), b"broken");
    assert_eq!(fs.read("/new").unwrap(), b"made since");
    assert_eq!(names(&fs), ["before", "good"]);
    fs.close().unwrap();
    image.check();
}

/// What was appended and only flushed is in a snapshot that is taken then, and is not brought into one that a volume is set back to.
#[test]
fn what_was_flushed_belongs_to_the_time_when_it_was() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/log", b"").unwrap();
    let appends = OpenOptions::new().append(true).keep_flushed(true);
    let log = fs.open_file("/log", &appends).unwrap();
    log.write_at(b"one,", 0).unwrap();
    log.flush_through().unwrap();
    fs.take_snapshot("s", false).unwrap();
    log.write_at(b"two,", 0).unwrap();
    log.flush_through().unwrap();
    assert_eq!(fs.read("/.snapshots/s/log").unwrap(), b"one,");
    fs.sync().unwrap();
    log.write_at(b"three,", 0).unwrap();
    log.flush_through().unwrap();
    fs.abandon();
    drop(log);

    image.roll_back("s", Some("before")).unwrap();
    let fs = image.open();
    assert_eq!(fs.read("/log").unwrap(), b"one,");
    assert_eq!(fs.read("/.snapshots/s/log").unwrap(), b"one,");
    assert_eq!(
        fs.read("/.snapshots/before/log").unwrap(),
        b"one,two,three,"
    );
    fs.close().unwrap();
    image.check();
}
