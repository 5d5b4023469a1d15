//! Zeros ahead of the write pointer: reads and reports of the image show nothing of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::host::Host;
use super::power::LossyHost;
use std::io;
use std::path::Path;

use super::*;
use crate::{BLOCK_SIZE, Buffer};

/// A host that counts the bytes that its filesystem would have to find space for.
struct Counting {
    host: LossyHost,
    written_until: Arc<AtomicU64>,
    /// No write of more blocks than this finds room.
    room_blocks: u32,
}

impl Host for Counting {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.host.read_at(into, offset)
    }
    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        let blocks = Command::data_blocks(data);
        if blocks > self.room_blocks {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let end = offset + u64::from(blocks) * BLOCK_SIZE as u64;
        self.written_until.fetch_max(end, Ordering::Relaxed);
        self.host.write_at(data, offset)
    }
    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.host.write_bytes_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.host.sync()
    }
    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.host.punch(offset, length)
    }
    fn overwrites_in_place(&self) -> bool {
        true
    }
    fn written_until(&self, _: u64) -> u64 {
        self.written_until.load(Ordering::Relaxed)
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `blocks` blocks one by one with a flush behind each. Answers how often the filesystem had to find space.
fn extensions(room_blocks: u32, blocks: u32) -> u32 {
    let (host, written_until) = (LossyHost::default(), Arc::new(AtomicU64::new(0)));
    let counting = Counting {
        host: host.clone(),
        written_until: Arc::clone(&written_until),
        room_blocks,
    };
    // A zone can hold fewer blocks than its numbering has, and the next one lies right behind them.
    let geometry = ImageGeometry {
        zone_blocks: 2048,
        capacity_blocks: CAPACITY,
        ..geometry()
    };
    let length = geometry.layout().unwrap().total;
    let path = Path::new("a host of a test");
    let options = CreateOptions::default();
    let image = ImageDevice::create_on(path, Box::new(counting), length, &geometry, &options);
    let image = image.unwrap();
    let next = vec![filled(1, 0xEE)];
    let write_next = Command::Append {
        zone: ZoneId(1),
        data: next,
    };
    image.submit(write_next).wait().unwrap();
    written_until.store(0, Ordering::Relaxed);
    let (mut found, mut until) = (0, 0);
    for at in 0..blocks {
        let (zone, data) = (ZoneId(0), vec![filled(1, at as u8 + 1)]);
        image.submit(Command::Append { zone, data }).wait().unwrap();
        image.submit(Command::Flush).wait().unwrap();
        let now = written_until.load(Ordering::Relaxed);
        found += u32::from(now > std::mem::replace(&mut until, now));
    }
    drop(image);
    // The same after the power went, also where the search for lost records looks at what zones hold.
    for read_only in [true, false] {
        let host = Box::new(host.clone());
        let image = ImageDevice::open_on(path, host, length, read_only);
        let image = image.unwrap().unwrap();
        assert_eq!(image.report(0..1).unwrap()[0].write_pointer, blocks);
        let read = |block| image.read_blocks(ZoneId(0), block, 1);
        for at in 0..blocks {
            assert!(read(at).unwrap().iter().all(|byte| *byte == at as u8 + 1));
        }
        assert!(matches!(read(blocks), Err(DeviceError::ReadPastEnd { .. })));
        let next = image.read_blocks(ZoneId(1), 0, 1).unwrap();
        assert!(next.iter().all(|byte| *byte == 0xEE));
    }
    found
}

/// Blocks of a zone: more than some steps, and no multiple of any.
const CAPACITY: u32 = 250;

#[test]
fn most_flushed_writes_find_their_space_there() {
    assert_eq!(extensions(u32::MAX, 200), 10);
    assert_eq!(extensions(u32::MAX, CAPACITY), 10);
}

#[test]
fn where_there_is_no_room_for_them_writes_go_on_without() {
    assert_eq!(extensions(1, 200), 200);
}
