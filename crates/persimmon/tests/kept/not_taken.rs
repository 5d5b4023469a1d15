//! A device that did not take what was flushed when the file was closed. The tail was forgotten then: nothing removed it before later
//! changes, and the next opening undid them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon::FilesystemError;
use persimmon_device::{
    Command, DeviceError, DeviceIdentity, Geometry, ImageDevice, Pending, Result as DeviceResult,
    ZoneInfo, ZonedDevice,
};

use super::*;

/// An image on a filesystem that is full for some time.
struct Hosted {
    image: ImageDevice,
    is_full: AtomicBool,
}

impl Hosted {
    fn open(image: &Image) -> (Arc<Hosted>, Filesystem) {
        let options = persimmon_device::OpenOptions::default();
        let device = Arc::new(Hosted {
            image: ImageDevice::open(&image.path, &options).unwrap(),
            is_full: AtomicBool::new(false),
        });
        let fs = Filesystem::open_on(Arc::clone(&device) as _, &super::options()).unwrap();
        (device, fs)
    }

    fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }
}

impl ZonedDevice for Hosted {
    fn geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    fn report(&self, zones: Range<u32>) -> DeviceResult<Vec<ZoneInfo>> {
        self.image.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        match &command {
            Command::Write { .. } | Command::Append { .. } | Command::Open { .. }
                if self.is_full.load(Ordering::SeqCst) =>
            {
                Pending::ready(Err(DeviceError::HostFull))
            }
            _ => self.image.submit(command),
        }
    }

    fn identity(&self) -> Option<DeviceIdentity> {
        self.image.identity()
    }

    fn space_is_hosts(&self) -> bool {
        true
    }
}

/// A file that was closed while the device took nothing, so that its tail is still there.
fn closed_with_a_tail(image: &Image) -> (Arc<Hosted>, Filesystem) {
    let (device, fs) = Hosted::open(image);
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"0123");
    add(&log, b"456789");
    add(&log, b"abcdef");
    device.set_full(true);
    drop(log);
    assert_eq!(tails(&fs).len(), 1);
    (device, fs)
}

#[test]
fn what_is_cut_off_after_a_close_that_failed_stays_off() {
    let image = Image::new();
    let (device, fs) = closed_with_a_tail(&image);
    // As long as the device has nothing of it, nothing is to take its place.
    let other = fs.open_file("/log", &OpenOptions::new().write(true));
    let other = other.unwrap();
    let refused = other.set_len(4).unwrap_err();
    let why = refused.filesystem();
    assert!(
        matches!(why, Some(FilesystemError::HostFull)),
        "{refused:?}"
    );
    assert_eq!(fs.read("/log").unwrap(), b"0123456789abcdef");
    device.set_full(false);
    other.set_len(4).unwrap();
    other.sync_all().unwrap();
    assert!(tails(&fs).is_empty());
    fs.close().unwrap();
    drop((other, device));
    let fs = image.open();
    assert_eq!(fs.read("/log").unwrap(), b"0123");
}

#[test]
fn a_file_that_was_closed_so_has_its_tail_when_it_is_opened_again() {
    let image = Image::new();
    let (device, fs) = closed_with_a_tail(&image);
    device.set_full(false);
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b" and");
    let before = fs.vfs().volume().statistics().device_bytes();
    add(&log, b" more");
    assert_eq!(fs.vfs().volume().statistics().device_bytes(), before);
    assert_eq!(tails(&fs).len(), 1);
    drop(device);
    assert_eq!(
        image.after(fs, vec![log], "/log"),
        b"0123456789abcdef and more"
    );
}

#[test]
fn a_tail_that_was_left_goes_once_the_device_has_what_it_holds() {
    type Later = fn(Filesystem);
    let laters: [Later; 3] = [
        |fs| {
            std::thread::sleep(Duration::from_millis(1100));
            fs.metadata("/log").unwrap();
            assert!(tails(&fs).is_empty());
        },
        |fs| {
            let tail = tails(&fs).remove(0);
            fs.close().unwrap();
            assert!(!tail.exists());
        },
        |fs| {
            fs.remove_file("/log").unwrap();
            std::thread::sleep(Duration::from_millis(1100));
            fs.metadata("/").unwrap();
            assert!(tails(&fs).is_empty());
        },
    ];
    for later in laters {
        let image = Image::new();
        let (device, fs) = closed_with_a_tail(&image);
        device.set_full(false);
        later(fs);
    }
}
