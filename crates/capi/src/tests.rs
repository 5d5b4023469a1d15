//! Panics on purpose, below functions of C.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon::device::{
    Command, CreateOptions, Geometry, ImageDevice, ImageGeometry, Pending, Result, ZoneInfo,
    ZonedDevice,
};
use persimmon::{Create, Filesystem, Options};

use crate::*;

/// Panics when it is asked to read, or to write, once it is told to.
struct Device {
    image: ImageDevice,
    on_read: AtomicBool,
    on_write: AtomicBool,
}

impl ZonedDevice for Device {
    fn geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.image.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let panics = match &command {
            Command::Read { .. } => &self.on_read,
            Command::Write { .. } | Command::Append { .. } => &self.on_write,
            _ => return self.image.submit(command),
        };
        if panics.load(Ordering::SeqCst) {
            panic!("on purpose");
        }
        self.image.submit(command)
    }
}

fn filesystem() -> (Arc<Device>, *mut persimmon_fs) {
    let shape = ImageGeometry {
        zone_count: 32,
        zone_blocks: 512,
        capacity_blocks: 512,
        max_open: None,
        max_active: None,
    };
    let device = Arc::new(Device {
        image: ImageDevice::in_memory(&shape, &CreateOptions::default()).unwrap(),
        on_read: AtomicBool::new(false),
        on_write: AtomicBool::new(false),
    });
    Filesystem::create_on(device.clone(), &Create::sized(0)).unwrap();
    let fs = Filesystem::open_on(device.clone(), &Options::default()).unwrap();
    (device, call::give(persimmon_fs::new(fs)))
}

fn message() -> String {
    let message = unsafe { CStr::from_ptr(persimmon_error_message()) };
    message.to_str().unwrap().to_owned()
}

fn made(fs: *mut persimmon_fs) -> *mut persimmon_file {
    let mut file = null_mut();
    let flags = PERSIMMON_OPEN_READ | PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE;
    let data = [7u8; 40_000];
    unsafe {
        let opened = persimmon_open_file(fs, c"/f".as_ptr(), flags, 0o644, &mut file);
        assert_eq!(opened, 0, "{}", message());
        assert_eq!(persimmon_pwrite(file, data.as_ptr(), data.len(), 0), 0);
        assert_eq!(persimmon_sync(fs), 0);
    }
    file
}

/// What a thread of C's runs: it knows nothing of Rust, and a panic that came through would end the process.
extern "C" fn read(file: *mut c_void) -> *mut c_void {
    let (mut buffer, mut done) = ([0u8; 5000], 0usize);
    let file = file.cast::<persimmon_file>();
    let errno = unsafe { persimmon_pread(file, buffer.as_mut_ptr(), buffer.len(), 3, &mut done) };
    let told = message();
    assert!(errno == 0 || told.contains("on purpose"), "{told}");
    std::ptr::without_provenance_mut(errno as usize)
}

fn in_a_thread_of_c(file: *mut persimmon_file) -> c_int {
    let mut thread: libc::pthread_t = 0;
    let mut errno = null_mut();
    unsafe {
        let attr = std::ptr::null();
        assert_eq!(
            libc::pthread_create(&mut thread, attr, read, file.cast()),
            0
        );
        assert_eq!(libc::pthread_join(thread, &mut errno), 0);
    }
    errno.addr() as c_int
}

#[test]
fn a_panic_becomes_an_error_and_the_next_call_goes_on() {
    let (device, fs) = filesystem();
    let file = made(fs);
    device.on_read.store(true, Ordering::SeqCst);
    assert_eq!(in_a_thread_of_c(file), libc::EIO);
    let (mut buffer, mut done) = ([0u8; 5000], 0usize);
    let errno = unsafe { persimmon_pread(file, buffer.as_mut_ptr(), buffer.len(), 3, &mut done) };
    assert_eq!(errno, libc::EIO);
    assert_eq!(
        message(),
        "a bug in libpersimmon, please report it: on purpose"
    );
    let mut batch = [persimmon_read_request {
        offset: 0,
        buffer: buffer.as_mut_ptr(),
        len: buffer.len(),
        done: buffer.len(),
        error: 0,
    }];
    let errno = unsafe { persimmon_read_batch(file, batch.as_mut_ptr(), 1) };
    assert_eq!(
        (errno, batch[0].error, batch[0].done),
        (libc::EIO, libc::EIO, 0)
    );
    device.on_read.store(false, Ordering::SeqCst);
    assert_eq!(in_a_thread_of_c(file), 0);
    unsafe {
        persimmon_file_close(file);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// What a change left half done in memory never reaches the device: nothing is changed any more, what was synced can be read.
#[test]
fn after_a_panic_in_the_midst_of_a_change_nothing_is_changed() {
    let (device, fs) = filesystem();
    let file = made(fs);
    device.on_write.store(true, Ordering::SeqCst);
    let data = [8u8; 10_000];
    unsafe {
        assert_eq!(persimmon_pwrite(file, data.as_ptr(), data.len(), 0), 0);
        assert_ne!(persimmon_fsync(file), 0);
        device.on_write.store(false, Ordering::SeqCst);
        assert_ne!(persimmon_fsync(file), 0);
        assert_eq!(
            persimmon_mkdir(fs, c"/d".as_ptr()),
            libc::EROFS,
            "{}",
            message()
        );
        persimmon_file_close(file);
        assert_ne!(persimmon_close(fs), 0);
    }
    let fs = Filesystem::open_on(device, &Options::default()).unwrap();
    let content = fs.read("/f").unwrap();
    assert!(content.iter().all(|byte| *byte == 7) && content.len() == 40_000);
}
