//! The host's cache, which is not the disk.

use persimmon_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags};

use super::super::Host;
use super::super::host::drop_cached;
use super::*;
use crate::{Buffer, ZonedDevice};

const PAGE: u64 = 4096;
/// Of tmpfs, which has no disk.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A host with a page cache as Linux has it: after a failed sync the pages count as written.
#[derive(Clone, Default)]
struct CachingHost(Arc<CachedFile>);

#[derive(Default)]
struct CachedFile {
    fails: AtomicBool,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    cache: BTreeMap<u64, Vec<u8>>,
    dirty: BTreeSet<u64>,
    disk: BTreeMap<u64, Vec<u8>>,
}

impl Pages {
    fn page(&mut self, number: u64) -> &mut Vec<u8> {
        let on_disk = || self.disk.get(&number).cloned();
        let page = self.cache.entry(number);
        page.or_insert_with(|| on_disk().unwrap_or_else(|| vec![0; PAGE as usize]))
    }
}

impl Host for CachingHost {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut pages = self.0.pages.lock();
        for (place, byte) in (offset..).zip(into) {
            *byte = pages.page(place / PAGE)[(place % PAGE) as usize];
        }
        Ok(())
    }

    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = data.iter().flat_map(|buffer| buffer.to_vec()).collect();
        self.write_bytes_at(&bytes, offset)
    }

    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut pages = self.0.pages.lock();
        for (place, byte) in (offset..).zip(bytes) {
            pages.page(place / PAGE)[(place % PAGE) as usize] = *byte;
            pages.dirty.insert(place / PAGE);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut pages = self.0.pages.lock();
        let dirty = std::mem::take(&mut pages.dirty);
        if self.0.fails.load(Ordering::Relaxed) {
            return Err(Errno::IO.into());
        }
        for number in dirty {
            let page = pages.page(number).clone();
            pages.disk.insert(number, page);
        }
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        let mut pages = self.0.pages.lock();
        let Pages { cache, dirty, .. } = &mut *pages;
        cache.retain(|number, _| dirty.contains(number));
        Ok(())
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn open(host: &CachingHost, read_only: bool) -> Result<ImageDevice> {
    let boxed = Box::new(host.clone());
    let device = ImageDevice::open_on(Path::new("cached"), boxed, 1 << 40, read_only);
    Ok(device?.unwrap())
}

fn made(host: &CachingHost) {
    let options = CreateOptions::default();
    let boxed = Box::new(host.clone());
    let path = Path::new("cached");
    ImageDevice::create_on(path, boxed, 1 << 30, &geometry(), &options).unwrap();
}

/// After a failed fdatasync the kernel keeps the pages that it could not write, as clean ones, and tells a new
/// descriptor of no error. An image opened anew took them for the disk's, and the record of the zone with them: the
/// next flush, to which they were nothing new, was acknowledged, and with the cache the data was gone.
#[test]
fn opening_anew_after_a_failed_sync_finds_what_the_disk_has() {
    for read_only in [false, true] {
        let host = CachingHost::default();
        made(&host);
        let zone = ZoneId(2);
        let device = open(&host, false).unwrap();
        let write = |device: &ImageDevice, block, byte| {
            let data = vec![filled(1, byte)];
            device.run(Command::Write { zone, block, data })
        };
        write(&device, 0, 1).unwrap();
        device.flush().unwrap();
        write(&device, 1, 2).unwrap();
        host.0.fails.store(true, Ordering::Relaxed);
        device.flush().unwrap_err();
        host.0.fails.store(false, Ordering::Relaxed);
        drop(device);
        let device = open(&host, read_only).unwrap();
        assert_eq!(device.report(2..3).unwrap()[0].write_pointer, 1);
        if read_only {
            continue;
        }
        write(&device, 1, 3).unwrap();
        device.flush().unwrap();
        drop(device);
        host.0.pages.lock().cache.clear();
        let device = open(&host, false).unwrap();
        assert_eq!(device.read(zone, 1, 1).unwrap()[0], 3);
    }
}

/// What a killed process left in the cache is synced when the image is opened, and goes on being acknowledged: so
/// an image whose host cannot do that is not opened.
#[test]
fn an_image_that_cannot_be_synced_is_not_opened() {
    let host = CachingHost::default();
    made(&host);
    host.0.fails.store(true, Ordering::Relaxed);
    let refused = open(&host, false).unwrap_err().to_string();
    assert!(refused.contains("cannot be made durable"), "{refused}");
    // Who only reads acknowledges nothing.
    open(&host, true).unwrap();
}

/// Of the file: whether its first page is in memory. `None`: nobody can tell.
fn is_cached(file: &File) -> Option<bool> {
    let mut page = [0; 4096];
    let into = &mut [IoSliceMut::new(&mut page)];
    match rustix::io::preadv2(file, into, 0, ReadWriteFlags::NOWAIT) {
        Ok(_) => Some(true),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

#[test]
fn a_file_is_read_from_the_disk_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let mut file = options.open(&path).unwrap();
    file.write_all(&[7; 65536]).unwrap();
    file.sync_data().unwrap();
    let is_tmpfs = rustix::fs::fstatfs(&file).unwrap().f_type as u64 == TMPFS_MAGIC;
    if is_tmpfs || is_cached(&file) != Some(true) {
        return;
    }
    // A page that the kernel has in its hand just then (to move it, or to count how often it is used) stays.
    let goes = || {
        drop_cached(&file).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        is_cached(&file) == Some(false)
    };
    assert!((0..500).any(|_| goes()));
    assert!(fs::read(&path).unwrap() == [7; 65536]);
}
