//! What the tests of a volume share: a small simulated device, and a volume on it.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

pub mod content;
pub mod interrupted;

use std::sync::Arc;

use persimmon_engine::{Error, FormatOptions, Intent, Options, Volume};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::log::{Body, LogBlock, LogState, Records};
use persimmon_format::{Addr, Ino, Key, Lsn, VolumeKey};
use persimmon_sim::{SimConfig, SimDevice};

pub const NOW: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 7,
};

/// 40 zones of 120 blocks.
pub fn small() -> SimConfig {
    SimConfig::new(40, 128).capacity(120)
}

/// A device with a fresh volume on it.
pub fn fresh(config: SimConfig) -> Arc<SimDevice> {
    persimmon_engine::invariant::panic_on_bugs();
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        now: NOW,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    device
}

/// The volume on a device, with so many bytes of staging.
pub fn open_staging(device: &Arc<SimDevice>, staging_bytes_max: usize) -> Result<Volume, Error> {
    let options = Options {
        staging_bytes_max,
        ..Options::default()
    };
    Volume::open(device.clone(), options).map(|(volume, _)| volume)
}

/// The same, with a megabyte.
pub fn open(device: &Arc<SimDevice>) -> Volume {
    open_staging(device, 1 << 20).unwrap()
}

/// An empty regular file.
pub fn create(volume: &Volume) -> Result<Ino, Error> {
    volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: 0o100_644,
            nlink: 1,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        Ok(ino)
    })
}

/// Takes the last name of files, which wait to be reclaimed then.
pub fn unlink(volume: &Volume, inos: &[Ino]) {
    volume
        .update::<_, Error>(Intent::Shrink, |tx| {
            for ino in inos {
                let mut inode = tx.inode(*ino)?.unwrap();
                inode.nlink = 0;
                tx.put_inode(*ino, &inode);
                tx.put(Key::orphan(*ino), Vec::new());
            }
            Ok(())
        })
        .unwrap();
}

/// Bytes that do not compress, told by a number; its lowest byte begins each block.
pub fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |at: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        match at % 4096 {
            0 => number as u8,
            _ => (state >> 56) as u8,
        }
    };
    (0..len).map(&mut next).collect()
}

/// A good log block of the first epoch with this number, with no records in it.
pub fn old_log_block(block: &mut [u8], key: &VolumeKey, zone_sequence: u64, sequence: u64) {
    let old = LogBlock {
        sequence,
        state: LogState {
            epoch: 1,
            opening: 0,
            resume_after: Lsn(0),
            durable: Lsn(0),
            footer: Addr::ZERO,
        },
        body: Body::Journal {
            first_lsn: Lsn(1),
            lead: 0,
            records: Records::plain(&[]),
        },
    };
    old.encode_into(block, key, zone_sequence);
}
