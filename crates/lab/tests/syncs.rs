//! What the syncs of several clients wait for, in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::sync::Arc;
use std::time::Duration;

use persimmon_engine::{Error, FormatOptions, Intent, Options, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_sim::time::{Client, Timing, VirtualClock};
use persimmon_sim::{SimConfig, SimDevice};

const BLOCK: usize = 4096;
/// Of a large sync: 1 MiB.
const LARGE: usize = 256;

/// A volume on a drive without a volatile cache, and some files that have content already.
struct Setup {
    device: Arc<SimDevice>,
    volume: Volume,
    files: Vec<Ino>,
}

impl Setup {
    fn new(files: usize) -> Setup {
        let config = SimConfig::new(96, 8192)
            .limits(Some(14), Some(14))
            .fast()
            .timed(Timing::default());
        let device = Arc::new(SimDevice::new(config));
        Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
        let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
        let mut setup = Setup {
            device,
            volume,
            files: Vec::new(),
        };
        for _ in 0..files {
            let ino = setup.create();
            setup.files.push(ino);
            setup.write(ino, 0, 2 * LARGE);
            setup.sync(ino);
        }
        setup
    }

    fn clock(&self) -> &VirtualClock {
        self.device.clock().unwrap()
    }

    fn create(&self) -> Ino {
        let made = self.volume.update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino();
            let inode = Inode {
                mode: 0o100_644,
                nlink: 1,
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            Ok(ino)
        });
        made.unwrap()
    }

    /// Bytes that do not compress.
    fn write(&self, ino: Ino, block: usize, blocks: usize) {
        let byte = |at: usize| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let bytes: Vec<u8> = (0..blocks * BLOCK).map(byte).collect();
        let offset = (block * BLOCK) as u64;
        let written = self.volume.write(ino, offset, &bytes, Timestamp::default());
        written.unwrap();
    }

    fn sync(&self, ino: Ino) {
        self.volume.sync_file(ino).unwrap();
    }

    /// How long it takes to make staged data durable.
    fn time_of_sync(&self, ino: Ino) -> Duration {
        let start = self.clock().now();
        self.sync(ino);
        self.clock().now() - start
    }

    /// Two syncs that begin one after the other, and how long they take.
    fn side_by_side(&self, syncs: [(Ino, usize, Duration); 2]) -> [Duration; 2] {
        let client = |(ino, blocks, after): (Ino, usize, Duration)| -> Client<'_, Duration> {
            Box::new(move || {
                self.clock().sleep(after);
                self.write(ino, 0, blocks);
                self.time_of_sync(ino)
            })
        };
        let times = self.clock().run(syncs.map(client).into()).unwrap();
        times.try_into().unwrap()
    }
}

fn takes(blocks: usize) -> Duration {
    Timing::default().write.of_blocks(blocks as u32)
}

/// The shortest of some times: now and then a zone is opened meanwhile, or a summary is written.
fn shortest(time: impl FnMut(usize) -> Duration) -> Duration {
    (0..6).map(time).min().unwrap()
}

/// A database synced its log at each commit, and beside that its page cleaner a batch of pages, a mebibyte at a time. The record of the
/// batch was sent beside its data, and the log's next record lay behind it: each commit meanwhile waited for the whole batch, and
/// `fsync=wp` was slower than `strict`, where that record came after the data.
#[test]
fn a_small_sync_does_not_wait_for_the_data_of_a_large_one() {
    let setup = Setup::new(2);
    let [pages, log] = setup.files[..] else {
        panic!("two files")
    };
    let shortly_after = Duration::from_micros(20);
    let mut times = Vec::new();
    let small = shortest(|_| {
        let both = setup.side_by_side([(pages, LARGE, Duration::ZERO), (log, 1, shortly_after)]);
        times.push(both);
        both[1]
    });
    assert_eq!(small, takes(1), "{times:?}");
    let large = shortest(|at| times[at][0]);
    assert!(large <= takes(LARGE) + takes(1), "{times:?}");
}

/// A record that is sent after its data costs the time to write it. Who syncs one file again and again, and nobody anything
/// else, holds nobody up: record and data go together, however large that is.
#[test]
fn a_large_sync_of_who_is_alone_takes_as_long_as_its_data() {
    let setup = Setup::new(2);
    let [file, other] = setup.files[..] else {
        panic!("two files")
    };
    let large = || {
        setup.write(file, 0, LARGE);
        setup.time_of_sync(file)
    };
    setup.sync(file);
    assert_eq!(shortest(|_| large()), takes(LARGE));
    let after_others = |also: &dyn Fn()| {
        shortest(|_| {
            also();
            large()
        })
    };
    let of_a_file = after_others(&|| setup.sync(other));
    assert_eq!(of_a_file, takes(LARGE) + takes(1));
    let of_names = after_others(&|| {
        setup.create();
        setup.volume.sync_metadata().unwrap();
    });
    assert_eq!(of_names, takes(LARGE) + takes(1));
}

/// The record of a large sync was sent after its data at first by sending it as `strict` does: data of several lifetimes, which goes to
/// several zones, to one zone after the other. A page cleaner that all clients wait for took a fifth longer.
#[test]
fn the_data_of_a_large_sync_goes_to_several_zones_at_once() {
    let setup = Setup::new(2);
    let [file, other] = setup.files[..] else {
        panic!("two files")
    };
    let (lives_long, lives_shortly) = (0, LARGE);
    for _ in 0..100 {
        setup.write(file, lives_shortly, LARGE / 2);
        setup.sync(file);
    }
    let time = shortest(|_| {
        setup.sync(other);
        setup.write(file, lives_long, LARGE / 2);
        setup.write(file, lives_shortly, LARGE / 2);
        setup.time_of_sync(file)
    });
    assert_eq!(time, takes(LARGE / 2) + takes(1));
}
