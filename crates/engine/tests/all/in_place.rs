//! Large reads of a device that reads to where blocks are wanted, and when somebody is told that it is time to write back.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::common::{NOW, create, fresh, noise};
use persimmon_device::{
    BLOCK_SIZE, Command, Geometry, Pending, Result, ZoneId, ZoneInfo, ZonedDevice,
};
use persimmon_engine::{Error, Options, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino};
use persimmon_sim::{SimConfig, SimDevice};

/// A simulated device that reads to where blocks are wanted.
struct Direct {
    device: Arc<SimDevice>,
    /// Blocks that were read so.
    blocks: AtomicU64,
    /// Reads that give other bytes than the device has.
    wrong: AtomicUsize,
    /// It does not read so what others are read beside.
    serves_several: bool,
    /// Reads of any kind.
    commands: AtomicU64,
}

impl ZonedDevice for Direct {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        if matches!(command, Command::Read { .. }) {
            self.commands.fetch_add(1, Ordering::Relaxed);
        }
        self.device.submit(command)
    }

    fn read_into(
        &self,
        zone: ZoneId,
        block: u32,
        into: &mut [u8],
        beside_others: bool,
    ) -> Option<Result<()>> {
        if beside_others && self.serves_several {
            return None;
        }
        self.commands.fetch_add(1, Ordering::Relaxed);
        let blocks = (into.len() / BLOCK_SIZE) as u32;
        let read = self.device.read(zone, block, blocks);
        let is_wrong = self.wrong.load(Ordering::Relaxed) > 0;
        Some(read.map(|data| {
            into.copy_from_slice(&data);
            if is_wrong {
                self.wrong.fetch_sub(1, Ordering::Relaxed);
                into[7] ^= 1;
            }
            self.blocks.fetch_add(blocks.into(), Ordering::Relaxed);
        }))
    }
}

const STAGING: usize = 1 << 20;

fn open() -> (Arc<Direct>, Volume, Ino) {
    open_on(false)
}

fn open_on(serves_several: bool) -> (Arc<Direct>, Volume, Ino) {
    let device = Arc::new(Direct {
        device: fresh(SimConfig::new(64, 512)),
        blocks: AtomicU64::new(0),
        wrong: AtomicUsize::new(0),
        serves_several,
        commands: AtomicU64::new(0),
    });
    let options = Options {
        compression: Compression::None,
        tails_bytes_max: 0,
        staging_bytes_max: STAGING,
        ..Options::default()
    };
    let volume = Volume::open(Arc::clone(&device) as _, options).unwrap().0;
    let ino = create(&volume).unwrap();
    (device, volume, ino)
}

/// Not of whole blocks.
const BYTES: usize = 700 * BLOCK_SIZE + 100;

#[test]
fn whole_blocks_are_read_to_where_they_are_wanted() {
    let (device, volume, ino) = open();
    let content = noise(1, BYTES);
    volume.write(ino, 0, &content, NOW).unwrap();
    volume.sync().unwrap();
    let read = |offset: usize, len: usize| {
        let mut buf = vec![1; len];
        let read = volume.read(ino, offset as u64, &mut buf).unwrap();
        assert_eq!(read, len.min(BYTES - offset));
        assert!(
            buf[..read] == content[offset..offset + read],
            "{offset} {len}"
        );
    };
    let read_in_place = || device.blocks.swap(0, Ordering::Relaxed);
    read(256 * BLOCK_SIZE, 256 * BLOCK_SIZE);
    assert_eq!(read_in_place(), 256);
    for (offset, len) in [
        (0, BYTES),
        (5, BYTES),
        (4097, 300_000),
        (BYTES - 5, 5),
        (8192, 4096),
    ] {
        read(offset, len);
    }
    assert!(read_in_place() > 256);
}

/// A read that reaches over the end of a frame took two commands, though the blocks are neighbours on the device.
#[test]
fn frames_that_follow_each_other_are_read_by_one_command() {
    for serves_several in [false, true] {
        let (device, volume, ino) = open_on(serves_several);
        let content = noise(4, 600 * BLOCK_SIZE);
        volume.write(ino, 0, &content, NOW).unwrap();
        volume.sync().unwrap();
        // Also the pages of the tree are in memory then.
        let mut buf = vec![0; content.len()];
        volume.read_direct(ino, 0, &mut buf).unwrap();
        // Those of one zone.
        for block in (0..480).step_by(2) {
            device.blocks.store(0, Ordering::Relaxed);
            device.commands.store(0, Ordering::Relaxed);
            let (start, len) = (block * BLOCK_SIZE + BLOCK_SIZE, 10 * BLOCK_SIZE);
            let buf = &mut buf[..len];
            buf.fill(1);
            volume.read_direct(ino, start as u64, buf).unwrap();
            assert!(buf == &content[start..start + len], "{block}");
            assert_eq!(device.blocks.load(Ordering::Relaxed), 10, "{block}");
            assert_eq!(device.commands.load(Ordering::Relaxed), 1, "{block}");
        }
    }
}

/// Large reads are many commands, which a drive serves side by side.
#[test]
fn what_takes_several_commands_is_asked_for_together() {
    let (device, volume, ino) = open_on(true);
    let content = noise(5, 200 * BLOCK_SIZE);
    volume.write(ino, 0, &content, NOW).unwrap();
    volume.sync().unwrap();
    let mut buf = vec![0; content.len()];
    volume.read_direct(ino, 0, &mut buf).unwrap();
    assert!(buf == content);
    assert_eq!(device.blocks.load(Ordering::Relaxed), 0);
}

/// What another look finds is what counts, and nothing that is wrong is left to the reader.
#[test]
fn what_was_read_wrong_is_read_again() {
    let (device, volume, ino) = open();
    let content = noise(2, 600 * BLOCK_SIZE);
    volume.write(ino, 0, &content, NOW).unwrap();
    volume.sync().unwrap();
    device.wrong.store(1, Ordering::Relaxed);
    let mut buf = vec![0; content.len()];
    volume.read(ino, 0, &mut buf).unwrap();
    assert!(buf == content);
    assert_eq!(device.wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn damage_is_told_and_not_handed_out() {
    let (device, volume, ino) = open();
    let content = noise(3, 256 * BLOCK_SIZE);
    volume.write(ino, 0, &content, NOW).unwrap();
    volume.sync().unwrap();
    let zones = volume.zones();
    let data = zones.iter().zip(0..);
    for (_, number) in data.filter(|(zone, _)| zone.entry.role == Role::Data) {
        for block in 1..512 {
            device.device.corrupt(ZoneId(number), block, 9, 1);
        }
    }
    let mut buf = vec![0; content.len()];
    let read = volume.read(ino, 0, &mut buf);
    assert!(matches!(read, Err(Error::DataDamaged { .. })), "{read:?}");
    assert!(device.blocks.load(Ordering::Relaxed) > 0);
    let foreign = content.iter().zip(&buf).filter(|(_, read)| **read != 0);
    assert_eq!(foreign.count(), 0, "bytes that are not the file's");
}

/// The thread that writes back looks twenty times a second: in between a quick writer filled the whole buffer, and wrote it back itself.
#[test]
fn who_writes_tells_when_half_of_the_buffer_is_used() {
    let (_, volume, ino) = open();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    volume.activity().on_write_back_due(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let piece = 16 * BLOCK_SIZE;
    let mut offset = 0;
    let mut write = || {
        volume
            .write(ino, offset, &noise(offset, piece), NOW)
            .unwrap();
        offset += piece as u64;
        offset as usize
    };
    while write() + piece < STAGING / 2 {}
    assert_eq!(told.load(Ordering::Relaxed), 0);
    write();
    assert_eq!(told.load(Ordering::Relaxed), 1);
    write();
    assert_eq!(told.load(Ordering::Relaxed), 1);
}
