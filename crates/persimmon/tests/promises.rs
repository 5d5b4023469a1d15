//! What a sync promises, and what it does not (docs/POSIX.md, "What a crash leaves"); what a write through outlives.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use persimmon::{Compression, Create, Filesystem, OpenOptions, Options, SetAttr};
use persimmon_device::{Command, Geometry, ImageDevice, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};

/// What of the device's cache a power cut leaves is drawn so often.
const CUTS: u64 = 40;
const LINE: usize = 100;

/// Nothing happens by itself, and everything takes the space that it seems to.
fn options() -> Options {
    let mut options = Options {
        commit_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    options.engine.compression = Compression::None;
    options
}

fn simulated() -> (Arc<SimDevice>, Filesystem) {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).volatile_cache()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let fs = Filesystem::open_on(Arc::clone(&device) as _, &options()).unwrap();
    (device, fs)
}

/// Asked for, write-back begins at once, and promises nothing.
#[test]
fn write_back_that_was_asked_for_begins_without_a_sync() {
    let (_, fs) = simulated();
    let options = OpenOptions::new().write(true).create(true);
    let file = fs.open_file("/table", &options).unwrap();
    file.write_at(&[3; 256 << 10], 0).unwrap();
    let written = || fs.stats().data_bytes;
    assert_eq!(written(), 0);
    file.start_write_back();
    let begun = std::time::Instant::now();
    while written() < 256 << 10 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    fs.close().unwrap();
}

/// Shows what power cuts leave.
fn after_power_cuts(device: &SimDevice, mut look: impl FnMut(&Filesystem)) {
    for seed in 0..CUTS {
        let left = Arc::new(device.persisted(seed));
        look(&Filesystem::open_on(left as _, &options()).unwrap());
    }
}

fn writer() -> OpenOptions {
    OpenOptions::new().write(true).create(true)
}

/// The library's page said that a sync of one file makes everything before it durable, of all files. It does not: what is written
/// to others stays where it is.
#[test]
fn sync_of_a_file_covers_its_content_and_the_names_and_attributes_of_all() {
    let (device, fs) = simulated();
    fs.write("/old", b"old").unwrap();
    fs.write("/long", vec![7; 50_000]).unwrap();
    fs.write("/gone", b"").unwrap();
    fs.sync().unwrap();

    fs.create_dir("/d").unwrap();
    fs.rename("/old", "/d/new").unwrap();
    fs.remove_file("/gone").unwrap();
    fs.set_xattr("/d", "user.k", b"v").unwrap();
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    fs.set_attributes("/d/new", &mode).unwrap();
    fs.open_file("/long", &writer())
        .unwrap()
        .set_len(5_000)
        .unwrap();
    let other = fs.open_file("/other", &writer()).unwrap();
    other.write_at(&[2; 30_000], 0).unwrap();
    let synced = fs.open_file("/synced", &writer()).unwrap();
    synced.write_at(&[1; 30_000], 0).unwrap();
    synced.sync_all().unwrap();

    let mut without_content = 0;
    after_power_cuts(&device, |fs| {
        assert_eq!(fs.read("/synced").unwrap(), [1; 30_000]);
        assert_eq!(fs.read("/d/new").unwrap(), b"old");
        assert_eq!(fs.metadata("/d/new").unwrap().mode & 0o777, 0o600);
        assert_eq!(fs.xattr("/d", "user.k").unwrap(), b"v");
        assert!(!fs.exists("/old") && !fs.exists("/gone"));
        assert_eq!(fs.read("/long").unwrap(), [7; 5_000]);
        // Its name is there. What it holds is not promised, and is not there.
        without_content += u64::from(fs.read("/other").unwrap().is_empty());
    });
    assert_eq!(without_content, CUTS);
}

#[test]
fn sync_of_everything_covers_the_content_of_all() {
    let (device, fs) = simulated();
    for number in 0..20 {
        let file = fs.open_file(format!("/{number}"), &writer()).unwrap();
        file.write_at(&[number; 30_000], 0).unwrap();
    }
    fs.sync().unwrap();
    after_power_cuts(&device, |fs| {
        for number in 0..20 {
            assert_eq!(fs.read(format!("/{number}")).unwrap(), [number; 30_000]);
        }
    });
}

fn line(number: u64) -> [u8; LINE] {
    let mut line = [b'.'; LINE];
    line[..8].copy_from_slice(&number.to_le_bytes());
    line
}

/// Part of the test below, in a process of its own: tells of each line that a write through has answered.
#[test]
fn child_that_writes_through() {
    let Some(image) = std::env::var_os("PERSIMMON_TEST_IMAGE") else {
        return;
    };
    let fs = Filesystem::open(Path::new(&image), &options()).unwrap();
    let through = OpenOptions::new()
        .append(true)
        .create(true)
        .write_through(true);
    let (log, blocks) = (
        fs.open_file("/log", &through).unwrap(),
        fs.open_file("/blocks", &writer().write_through(true))
            .unwrap(),
    );
    let mut flushed = fs
        .open_file("/flushed", &OpenOptions::new().append(true).create(true))
        .unwrap();
    let mut out = std::io::stdout();
    for number in 0.. {
        log.write_at(&line(number), 0).unwrap();
        if number % 8 == 0 {
            let block = vec![number as u8; 4096 << (number / 8 % 6)];
            blocks.write_at(&block, number % 64 * 200_000).unwrap();
            fs.create_dir(format!("/d{number}")).unwrap();
        }
        for _ in 0..3 {
            flushed.write_all(&line(number)).unwrap();
        }
        flushed.flush().unwrap();
        writeln!(out, "answered {number}").unwrap();
        out.flush().unwrap();
    }
}

/// What a write had answered was in the memory of the process alone, and gone with it: a log could not be told from one that was
/// never written without an fdatasync for each line.
#[test]
fn what_was_written_through_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.img");
    for round in 0..12 {
        Filesystem::create(
            &image,
            &Create {
                force: true,
                ..Create::sized(128 << 20)
            },
        )
        .unwrap();
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_through", "--nocapture"])
            .env("PERSIMMON_TEST_IMAGE", &image)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut last = None;
        for told in BufReader::new(child.stdout.take().unwrap()).lines() {
            let told = told.unwrap();
            let Some(number) = told.strip_prefix("answered ") else {
                continue;
            };
            last = Some(number.parse::<u64>().unwrap());
            if last == Some(5 + 23 * round) {
                // SIGKILL. What it has answered until then is still in the pipe.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let last = last.unwrap();

        let fs = Filesystem::open(&image, &options()).unwrap();
        let log = fs.read("/log").unwrap();
        let lines = log.len() / LINE;
        assert!(lines as u64 > last, "{lines} lines, {last} was answered");
        for (number, found) in (0..).zip(log.chunks_exact(LINE)) {
            assert_eq!(found, line(number));
        }
        let flushed = fs.read("/flushed").unwrap();
        assert!(flushed.len() >= 3 * LINE * (last as usize + 1));
        let blocks = fs
            .open_file("/blocks", &OpenOptions::new().read(true))
            .unwrap();
        for number in (0..=last).rev().filter(|n| n % 8 == 0).take(8) {
            let mut found = vec![0; 4096 << (number / 8 % 6)];
            blocks.read_at(&mut found, number % 64 * 200_000).unwrap();
            let is_it = |byte: &u8| *byte == number as u8;
            // The one behind the last that was answered may be there as well.
            let newer = |byte: &u8| *byte == (number + 64) as u8;
            assert!(
                found.iter().all(|b| is_it(b) || newer(b)),
                "block of {number}"
            );
            assert!(fs.exists(format!("/d{number}")));
        }
        fs.close().unwrap();
    }
}

/// Counts what it is asked for.
struct Counted {
    image: ImageDevice,
    writes: AtomicU64,
    blocks: AtomicU64,
    records: AtomicU64,
    flushes: AtomicU64,
    others: AtomicU64,
}

impl ZonedDevice for Counted {
    fn geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.image.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let count = match &command {
            Command::Write { data, .. } | Command::Append { data, .. } => {
                let blocks = u64::from(Command::data_blocks(data));
                self.blocks.fetch_add(blocks, Ordering::SeqCst);
                &self.writes
            }
            Command::Record => &self.records,
            Command::Flush => &self.flushes,
            _ => &self.others,
        };
        count.fetch_add(1, Ordering::SeqCst);
        self.image.submit(command)
    }
}

/// The figures are those of docs/POSIX.md.
#[test]
fn a_line_written_through_costs_a_block_and_no_flush() {
    const LINES: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    Filesystem::create(&path, &Create::sized(128 << 20)).unwrap();
    let device = Arc::new(Counted {
        image: ImageDevice::open(&path, &persimmon_device::OpenOptions::default()).unwrap(),
        writes: AtomicU64::new(0),
        blocks: AtomicU64::new(0),
        records: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
        others: AtomicU64::new(0),
    });
    let fs = Filesystem::open_on(Arc::clone(&device) as _, &options()).unwrap();
    let append = OpenOptions::new().append(true).create(true);
    let cost = |path: &str, options: OpenOptions| {
        let file = fs.open_file(path, &options).unwrap();
        file.write_at(&line(0), 0).unwrap();
        fs.sync().unwrap();
        let counts = [
            &device.writes,
            &device.blocks,
            &device.records,
            &device.flushes,
        ];
        let before = counts.map(|count| count.load(Ordering::SeqCst));
        for number in 0..LINES {
            file.write_at(&line(number), 0).unwrap();
        }
        let after = counts.map(|count| count.load(Ordering::SeqCst));
        let mut cost = [0; 4];
        for ((cost, after), before) in cost.iter_mut().zip(after).zip(before) {
            *cost = after - before;
        }
        println!("{path}: {cost:?} writes, blocks, records, flushes for {LINES} lines");
        cost
    };
    let buffered = cost("/buffered", append);
    let through = cost("/through", append.write_through(true));
    let synced = cost("/synced", append.sync(true));
    assert_eq!(buffered, [0; 4]);
    // A write and a record a line. Now and then a full block of the file is packed.
    assert_eq!((through[2], through[3]), (LINES, 0));
    assert!(through[0] <= LINES + LINES / 10, "{through:?}");
    assert!(through[1] <= LINES + LINES / 10, "{through:?}");
    assert!(synced[3] >= LINES, "{synced:?}");
}
