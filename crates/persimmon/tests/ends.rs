//! What has to come to an end whatever happens: reads that are submitted, closing, copies between volumes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use persimmon::{Create, Error, Filesystem, OpenOptions, Options, PendingRead};
use persimmon_device::image::{ImageDevice, ImageGeometry};
use persimmon_device::{
    Command, CreateOptions, DeviceError, Geometry, Pending, Result, ZoneInfo, ZonedDevice,
};

/// What a device does with commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Serve,
    /// Panics when it is asked to read.
    Panic,
    /// Keeps writes and flushes waiting.
    Hold,
    /// Keeps reads waiting.
    HoldReads,
    /// Fails them.
    Fail,
}

struct Device {
    image: ImageDevice,
    /// And the commands that wait.
    mode: Mutex<(Mode, u32)>,
    changed: Condvar,
}

impl Device {
    fn set(&self, mode: Mode) {
        self.mode.lock().unwrap().0 = mode;
        self.changed.notify_all();
    }

    fn wait_until_held(&self) {
        let mode = self.mode.lock().unwrap();
        drop(self.changed.wait_while(mode, |m| m.1 == 0).unwrap());
    }
}

impl ZonedDevice for Device {
    fn geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.image.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let reads = matches!(command, Command::Read { .. });
        let mut mode = self.mode.lock().unwrap();
        if reads && mode.0 == Mode::Panic {
            drop(mode);
            panic!("the device panics, as it was told to");
        }
        if reads && mode.0 == Mode::HoldReads {
            mode.1 += 1;
            self.changed.notify_all();
            mode = self
                .changed
                .wait_while(mode, |m| m.0 == Mode::HoldReads)
                .unwrap();
            mode.1 -= 1;
        }
        if matches!(
            command,
            Command::Write { .. } | Command::Append { .. } | Command::Flush
        ) {
            mode.1 += 1;
            self.changed.notify_all();
            mode = self
                .changed
                .wait_while(mode, |m| m.0 == Mode::Hold)
                .unwrap();
            mode.1 -= 1;
            if mode.0 == Mode::Fail {
                return Pending::ready(Err(DeviceError::Flush {
                    message: "as it was told to".into(),
                }));
            }
        }
        drop(mode);
        self.image.submit(command)
    }
}

fn filesystem() -> (Arc<Device>, Filesystem) {
    let shape = ImageGeometry {
        zone_count: 32,
        zone_blocks: 512,
        capacity_blocks: 512,
        max_open: None,
        max_active: None,
    };
    let device = Arc::new(Device {
        image: ImageDevice::in_memory(&shape, &CreateOptions::default()).unwrap(),
        mode: Mutex::new((Mode::Serve, 0)),
        changed: Condvar::new(),
    });
    Filesystem::create_on(device.clone(), &Create::sized(64 << 20)).unwrap();
    // Nothing happens by itself.
    let options = Options {
        commit_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let fs = Filesystem::open_on(device.clone(), &options).unwrap();
    (device, fs)
}

fn reader() -> OpenOptions {
    OpenOptions::new().read(true)
}

/// Waits as a program does that polls; a read that is never done fails the test instead of stopping it.
fn polled(read: PendingRead) -> persimmon::Result<Vec<u8>> {
    for _ in 0..60_000 {
        if read.is_done() {
            return read.wait();
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("a read is never done");
}

/// A panic in a read ended the thread that did it. After four of them no read was ever done again, and one that was polled never said so.
#[test]
fn a_read_that_panics_fails_alone_and_reading_goes_on() {
    let (device, fs) = filesystem();
    let content: Vec<u8> = (0..1_000_000u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    fs.write("/f", &content).unwrap();
    fs.sync().unwrap();
    let file = fs.open_file("/f", &reader()).unwrap();
    device.set(Mode::Panic);
    // More than may wait: the rest is done by who submits them, and must not panic there.
    let reads: Vec<_> = (0..400u64)
        .map(|at| file.submit_read(2000, at * 2000).unwrap())
        .collect();
    for read in reads {
        assert!(matches!(polled(read), Err(Error::ReadLost)));
    }
    device.set(Mode::Serve);
    for at in 0..16usize {
        let read = file.submit_read(2000, at as u64 * 2000).unwrap();
        assert_eq!(polled(read).unwrap(), &content[at * 2000..(at + 1) * 2000]);
    }
}

/// Who gave reads up and closed the volume was told that it is in use when it opened it again: a thread that was still reading had the
/// file, and with it the volume.
#[test]
fn reads_that_are_given_up_let_go_of_the_volume() {
    let (device, fs) = filesystem();
    fs.write("/f", vec![1; 1_000_000]).unwrap();
    fs.sync().unwrap();
    let file = fs.open_file("/f", &reader()).unwrap();
    device.set(Mode::HoldReads);
    // More than there are threads: some run, the others wait.
    let reads: Vec<_> = (0..20u64)
        .map(|at| file.submit_read(2000, at * 20_000).unwrap())
        .collect();
    device.wait_until_held();
    let of_it = Arc::downgrade(&device);
    let gives_up = thread::spawn(move || {
        drop(reads);
        drop(file);
        drop(fs);
        of_it.strong_count()
    });
    // Time for it to go past reads that it does not wait for.
    thread::sleep(Duration::from_millis(200));
    device.set(Mode::Serve);
    assert_eq!(gives_up.join().unwrap(), 1, "the device is in use");
}

/// Any length was taken as it came: one of `usize::MAX` ended the process.
#[test]
fn a_read_takes_no_more_memory_than_the_file_has_bytes() {
    let fs = Filesystem::in_memory(64 << 20).unwrap();
    fs.write("/f", b"short").unwrap();
    let file = fs.open_file("/f", &reader()).unwrap();
    assert_eq!(
        file.submit_read(usize::MAX, 1).unwrap().wait().unwrap(),
        b"hort"
    );
    assert_eq!(
        file.submit_read(usize::MAX, u64::MAX)
            .unwrap()
            .wait()
            .unwrap(),
        b""
    );
    assert_eq!(file.read_up_to(2, 1).unwrap(), b"ho");
    // A file of holes may be longer than any memory.
    let huge = fs
        .open_file(
            "/huge",
            &OpenOptions::new().read(true).write(true).create(true),
        )
        .unwrap();
    huge.set_len(1 << 60).unwrap();
    for refused in [
        huge.submit_read(usize::MAX, 0).unwrap().wait(),
        fs.read("/huge"),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::OutOfMemory { bytes, .. } if bytes == 1 << 60));
        assert_eq!(
            refused.to_string(),
            "/huge: no memory for 1152921504606846976 bytes"
        );
    }
}

/// The second of two calls answered that all was well while the first was under way, and before it failed.
#[test]
fn who_closes_second_waits_for_the_first_and_is_told_the_same() {
    let (device, fs) = filesystem();
    fs.write("/f", vec![1; 300_000]).unwrap();
    device.set(Mode::Hold);
    let (first, second) = (fs.clone(), fs.clone());
    let first = thread::spawn(move || first.close());
    device.wait_until_held();
    let second = thread::spawn(move || second.close());
    device.set(Mode::Fail);
    let first = first.join().unwrap().unwrap_err();
    let second = second.join().unwrap().unwrap_err();
    assert!(matches!(first, Error::Closing(_)));
    assert_eq!(first.to_string(), second.to_string());
    assert_eq!(fs.close().unwrap_err().to_string(), first.to_string());
}

#[test]
fn what_was_abandoned_is_not_closed() {
    let (_device, fs) = filesystem();
    let clone = fs.clone();
    fs.abandon();
    assert!(matches!(clone.close(), Err(Error::Abandoned)));
    let (_device, fs) = filesystem();
    let clone = fs.clone();
    fs.close().unwrap();
    clone.clone().abandon();
    clone.close().unwrap();
}

/// The inode number of the target was looked for in the volume of the source: what has the same number there was overwritten.
#[test]
fn a_copy_to_another_volume_goes_there() {
    let volumes = [(); 2].map(|()| Filesystem::in_memory(64 << 20).unwrap());
    let [here, there] = &volumes;
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i >> 9) as u8).collect();
    here.write("/source", &content).unwrap();
    here.write("/bystander", b"untouched").unwrap();
    there.write("/first", b"first").unwrap();
    there.write("/target", b"..").unwrap();
    let source = here.open_file("/source", &reader()).unwrap();
    let writer = OpenOptions::new().write(true);
    let target = there.open_file("/target", &writer).unwrap();
    assert_eq!(target.ino(), here.metadata("/bystander").unwrap().ino);
    let copied = source.copy_to(1000, &target, 2, u64::MAX).unwrap();
    assert_eq!(copied, 2_999_000);
    let found = there.read("/target").unwrap();
    assert_eq!(&found[..2], b"..");
    assert!(found[2..] == content[1000..]);
    assert_eq!(here.read("/bystander").unwrap(), b"untouched");
    assert_eq!(there.read("/first").unwrap(), b"first");
}

/// What is written and not sent yet takes part, and the last blocks of both files too.
#[test]
fn equal_files_share_their_blocks() {
    let fs = Filesystem::in_memory(64 << 20).unwrap();
    let other = Filesystem::in_memory(64 << 20).unwrap();
    let content: Vec<u8> = (0..3_000_000u64).map(|i| ((i * i) >> 11) as u8).collect();
    let options = OpenOptions::new().read(true).write(true).create(true);
    let [one, two] = ["/one", "/two"].map(|path| fs.open_file(path, &options).unwrap());
    let elsewhere = other.open_file("/two", &options).unwrap();
    for file in [&one, &two, &elsewhere] {
        file.write_at(&content, 0).unwrap();
    }
    let before = two.metadata().unwrap();
    assert_eq!(one.share_equal(0, &elsewhere, 0, u64::MAX).unwrap(), (0, 0));
    let (equal, shared) = one.share_equal(0, &two, 0, u64::MAX).unwrap();
    assert_eq!(equal, 3_000_000);
    assert!(shared >= equal - 4096, "{shared}");
    assert_eq!(one.share_equal(0, &two, 0, equal).unwrap(), (equal, 0));
    let after = two.metadata().unwrap();
    assert_eq!(
        (after.size, after.mtime, after.ctime),
        (before.size, before.mtime, before.ctime)
    );
    two.write_at(b"!", 2_000_000).unwrap();
    let before_it = 2_000_000 / 4096 * 4096;
    let found = one.share_equal(4096, &two, 4096, u64::MAX / 2).unwrap();
    assert_eq!(found, (before_it - 4096, 0));
    assert!(one.share_equal(1, &two, 0, 4096).is_err());
    drop(two);
    assert!(fs.read("/one").unwrap() == content);
}
