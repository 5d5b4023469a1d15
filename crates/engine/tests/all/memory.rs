//! Memory has bounds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure ends the test"
)]

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use persimmon_device::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Intent, Options, Progress, Task, Volume};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::{Ino, Key};
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

/// Runs work that once waited for ever; the time is there to end the test then.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(120))
        .expect("it does not end, or failed")
}

/// The least cache that a mount allows held fewer pages than one record of a batch changed: they
/// were fetched and evicted in turn, for ever.
#[test]
fn a_small_cache_carries_every_record() {
    ends(|| {
        for cache_bytes_max in [0, 1 << 20] {
            let device = crate::common::fresh(SimConfig::new(100, 2048).fast());
            let options = Options {
                cache_bytes_max,
                ..Options::default()
            };
            let (volume, _) = Volume::open(device, options).unwrap();
            // Eight of them fill a page.
            let inos: Vec<Ino> = (0..2400)
                .map(|_| crate::common::create(&volume).unwrap())
                .collect();
            for ino in &inos {
                volume.write(*ino, 0, &[1; 2000], NOW).unwrap();
            }
            while volume.step(Task::WriteBack).unwrap() == Progress::Worked {}
            volume.step(Task::Checkpoint).unwrap();
            for ino in inos.iter().step_by(8) {
                volume.write(*ino, 0, &[2; 2000], NOW).unwrap();
            }
            while volume.step(Task::WriteBack).unwrap() == Progress::Worked {}
            for (i, ino) in inos.iter().enumerate() {
                let mut found = [0; 2000];
                volume.read(*ino, 0, &mut found).unwrap();
                assert_eq!(found, [if i % 8 == 0 { 2 } else { 1 }; 2000]);
            }
        }
    });
}

/// So did looking for files without a name, after a crash, if there were very many.
#[test]
fn a_small_cache_lists_many_orphans() {
    ends(|| {
        let device = crate::common::fresh(SimConfig::new(100, 2048).fast());
        let options = Options {
            cache_bytes_max: 0,
            ..Options::default()
        };
        let (volume, _) = Volume::open(device, options).unwrap();
        for first in (1..50_000u64).step_by(500) {
            let put = |tx: &mut persimmon_engine::Transaction<'_>| {
                (first..first + 500).for_each(|ino| tx.put(Key::orphan(Ino(ino)), Vec::new()));
                Ok::<_, Error>(())
            };
            volume.update(Intent::Grow, put).unwrap();
        }
        volume.step(Task::Checkpoint).unwrap();
        let orphans = volume.orphans().unwrap();
        assert!(orphans.into_iter().eq((1..=50_000).map(Ino)));
    });
}
