//! Memory has bounds.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use persimmon_device::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Intent, Options, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_sim::{SimConfig, SimDevice};

const NOW: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 0,
};

/// A device that takes its time over writing.
struct Slow(SimDevice);

impl ZonedDevice for Slow {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.0.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        if !matches!(command, Command::Read { .. }) {
            thread::sleep(Duration::from_millis(3));
        }
        self.0.submit(command)
    }
}

/// One big file, written by two threads faster than the device took it, filled the memory: while
/// it was being flushed there was nothing else to flush, and the writers went on.
#[test]
fn staging_keeps_its_bound_below_one_file() {
    const STAGING: usize = 2 << 20;
    const PIECE: usize = 256 << 10;
    const WRITERS: u64 = 3;
    let device = Arc::new(Slow(SimDevice::new(SimConfig::new(64, 512))));
    Volume::format(device.clone(), &FormatOptions::default()).unwrap();
    let options = Options {
        staging_bytes_max: STAGING,
        ..Options::default()
    };
    let volume = Volume::open(device, options).unwrap().0;
    let ino: Ino = volume
        .update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino();
            let inode = Inode {
                mode: 0o100_644,
                nlink: 1,
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            Ok(ino)
        })
        .unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let volume = &volume;
            scope.spawn(move || {
                for piece in 0..64 {
                    let offset = (piece * WRITERS + writer) * PIECE as u64;
                    volume.write(ino, offset, &vec![7; PIECE], NOW).unwrap();
                }
            });
        }
    });
    let peak = volume.statistics().staged_bytes_peak;
    // Each writer may go past the bound by what it is writing.
    let bound = STAGING as u64 + WRITERS * PIECE as u64;
    assert!(
        peak <= bound,
        "{peak} bytes were staged, {bound} are allowed"
    );
}
