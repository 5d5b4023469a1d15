//! Several fsyncs at once: what they do side by side, and what they wait for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure ends the test"
)]

use std::ops::Range;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use persimmon_device::{
    Command, Completer, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo, ZonedDevice,
};
use persimmon_engine::{Error, Options, Task, Volume};
use persimmon_format::envelope::{self, Kind};
use persimmon_format::{Ino, SubvolumeId};
use persimmon_sim::{Fault, FaultTarget, SimConfig, SimDevice};

use crate::common::{NOW, create, fresh, noise, small};

const BLOCK: usize = 4096;

/// A device that holds back writes of blocks of some contents, and counts journal writes.
struct Holding {
    device: Arc<SimDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holds: Vec<u8>,
    held: Vec<(u8, Command, Completer)>,
    journal_writes: usize,
    data_zones: Vec<ZoneId>,
}

impl Holding {
    fn new(device: &Arc<SimDevice>) -> Arc<Holding> {
        Arc::new(Holding {
            device: Arc::clone(device),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn hold(&self, byte: u8) {
        self.state.lock().unwrap().holds.push(byte);
    }

    fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |s| !condition(s)).unwrap());
    }

    fn take_held(&self, byte: u8) -> Vec<(u8, Command, Completer)> {
        let mut state = self.state.lock().unwrap();
        state.held.extract_if(.., |held| held.0 == byte).collect()
    }

    /// Does what was held back of this content, and holds no more of it.
    fn release(&self, byte: u8) {
        self.state
            .lock()
            .unwrap()
            .holds
            .retain(|held| *held != byte);
        for (_, command, completer) in self.take_held(byte) {
            completer.complete(self.device.submit(command).wait());
        }
    }

    /// Answers what was held back of this content with errors, without having done it.
    fn fail(&self, byte: u8) {
        for (_, command, completer) in self.take_held(byte) {
            let (zone, block) = match command {
                Command::Write { zone, block, .. } => (zone, block),
                Command::Append { zone, .. } => (zone, 0),
                command => panic!("{command:?}"),
            };
            completer.complete(Err(DeviceError::Io {
                operation: "write",
                zone,
                block,
                message: "held back, and failed".into(),
            }));
        }
    }
}

impl ZonedDevice for Holding {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let mut state = self.state.lock().unwrap();
        if let Command::Write { data, zone, .. } | Command::Append { data, zone } = &command {
            let first = data.first().map_or(&[][..], |data| &data[..]);
            match envelope::peek(first).map(|envelope| envelope.kind) {
                Ok(Kind::Journal) => state.journal_writes += 1,
                Err(_) => state.data_zones.push(*zone),
                Ok(_) => {}
            }
            if let Some(byte) = first.first().filter(|byte| state.holds.contains(byte)) {
                let (byte, (completer, pending)) = (*byte, Pending::channel());
                state.held.push((byte, command, completer));
                self.changed.notify_all();
                return pending;
            }
        }
        drop(state);
        let pending = self.device.submit(command);
        self.changed.notify_all();
        pending
    }
}

fn open(device: &Arc<Holding>) -> Arc<Volume> {
    let (volume, _) = Volume::open(Arc::clone(device) as _, Options::default()).unwrap();
    Arc::new(volume)
}

/// Writes two blocks of a byte to a file and syncs it, in a thread.
fn sync_aside(
    volume: &Arc<Volume>,
    ino: Ino,
    byte: u8,
) -> Receiver<std::result::Result<(), Error>> {
    let (tell, told) = mpsc::channel();
    let volume = Arc::clone(volume);
    std::thread::spawn(move || {
        let bytes = noise(byte.into(), 2 * BLOCK);
        volume.write(ino, 0, &bytes, NOW).unwrap();
        tell.send(volume.sync_file(ino)).unwrap();
    });
    told
}

/// [`sync_aside`] of a byte that the device holds back. Returns when the record is sent.
fn sync_held(
    device: &Holding,
    volume: &Arc<Volume>,
    ino: Ino,
    byte: u8,
) -> Receiver<std::result::Result<(), Error>> {
    device.hold(byte);
    let sent = device.state.lock().unwrap().journal_writes;
    let told = sync_aside(volume, ino, byte);
    device.wait_until(|s| s.journal_writes == sent + 1);
    told
}

/// Whether something comes in a while: what must not come is given the time to.
fn is_told<T>(told: &Receiver<T>) -> bool {
    (0..10_000).any(|_| {
        std::thread::yield_now();
        told.try_recv().is_ok()
    })
}

fn check(volume: &Volume, ino: Ino, byte: u8) {
    let mut buf = [0; 2 * BLOCK];
    assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), 2 * BLOCK);
    assert_eq!(buf[..], noise(byte.into(), 2 * BLOCK));
}

/// While the data of one fsync is on its way the record of another is sent, and its data goes to
/// another zone. But it is not acknowledged: a power cut would take it along with the first. If
/// the first one's data fails both are acknowledged once it is elsewhere.
#[test]
fn the_next_fsync_is_sent_but_not_acknowledged_before_the_first() {
    for (config, fail) in [
        (small(), false),
        (small(), true),
        (small().volatile_cache(), false),
        (small().volatile_cache(), true),
    ] {
        let sim = fresh(config);
        let device = Holding::new(&sim);
        let volume = open(&device);
        let [first, second] = [0; 2].map(|_| create(&volume).unwrap());
        volume.sync_metadata().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        device.state.lock().unwrap().data_zones.clear();
        device.hold(0xa1);
        let before = device.state.lock().unwrap().journal_writes;
        let a = sync_aside(&volume, first, 0xa1);
        device.wait_until(|s| s.journal_writes == before + 1);
        let b = sync_aside(&volume, second, 0xb2);
        device.wait_until(|s| s.journal_writes == before + 2);
        // Headers of zones taken into use are among them.
        let mut zones = device.state.lock().unwrap().data_zones.clone();
        zones.dedup();
        assert_eq!(zones.len(), 2, "{zones:?}");
        assert!(!is_told(&b));
        if fail {
            device.fail(0xa1);
            device.wait_until(|s| !s.held.is_empty());
            assert!(!is_told(&b));
        }
        device.release(0xa1);
        a.recv().unwrap().unwrap();
        b.recv().unwrap().unwrap();
        drop(volume);
        let volume = open(&Holding::new(&sim));
        check(&volume, first, 0xa1);
        check(&volume, second, 0xb2);
    }
}

/// The data of two fsyncs is under way, and that of the first arrives: this acknowledges the first
/// alone, also to somebody who comes later and asks for everything.
#[test]
fn only_what_has_arrived_is_acknowledged() {
    for config in [small(), small().volatile_cache()] {
        let sim = fresh(config);
        let device = Holding::new(&sim);
        let volume = open(&device);
        let [first, second] = [0; 2].map(|_| create(&volume).unwrap());
        volume.sync_metadata().unwrap();
        let a = sync_held(&device, &volume, first, 0xa1);
        let b = sync_held(&device, &volume, second, 0xb2);
        device.release(0xa1);
        a.recv().unwrap().unwrap();
        let (tell, all) = mpsc::channel();
        let later = Arc::clone(&volume);
        std::thread::spawn(move || tell.send(later.sync_metadata()).unwrap());
        assert!(!is_told(&all));
        device.release(0xb2);
        b.recv().unwrap().unwrap();
        all.recv().unwrap().unwrap();
    }
}

/// Two batches under way at once, and the device fails the data of both.
#[test]
fn data_of_two_batches_fails() {
    let sim = fresh(small());
    let device = Holding::new(&sim);
    let volume = open(&device);
    let inos = [0; 2].map(|_| create(&volume).unwrap());
    volume.sync_metadata().unwrap();
    let before = device.state.lock().unwrap().journal_writes;
    let told = inos.map(|ino| sync_held(&device, &volume, ino, 0xa1));
    assert_eq!(device.state.lock().unwrap().journal_writes, before + 2);
    device.fail(0xa1);
    device.release(0xa1);
    for told in told {
        told.recv().unwrap().unwrap();
    }
    drop(volume);
    let volume = open(&Holding::new(&sim));
    for ino in inos {
        check(&volume, ino, 0xa1);
    }
}

/// A snapshot was taken while the data of an fsync was in flight. That data failed and was rewritten elsewhere for the file alone: the snapshot had
/// lost it.
#[test]
fn a_snapshot_has_what_an_fsync_beside_it_had_to_write_elsewhere() {
    for fail in [false, true] {
        let sim = fresh(small());
        let device = Holding::new(&sim);
        let volume = open(&device);
        let [first, second] = [0; 2].map(|_| create(&volume).unwrap());
        volume.sync_metadata().unwrap();
        let b = sync_held(&device, &volume, second, 0xb2);
        // The snapshot has looked at the first file, and waits for the second.
        let (tell, taken) = mpsc::channel();
        let aside = Arc::clone(&volume);
        std::thread::spawn(move || {
            let snapshots = aside.snapshots();
            let taken = snapshots.take(SubvolumeId::MAIN, b"beside", true, NOW);
            tell.send(taken).unwrap();
        });
        assert!(taken.recv_timeout(Duration::from_millis(200)).is_err());
        device.hold(0xa1);
        let sent = device.state.lock().unwrap().journal_writes;
        let a = sync_aside(&volume, first, 0xa1);
        device.wait_until(|s| s.held.iter().any(|held| held.0 == 0xa1));
        // The record of the first file may be sent at once.
        for _ in 0..100 {
            if device.state.lock().unwrap().journal_writes > sent {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        device.release(0xb2);
        b.recv().unwrap().unwrap();
        let early = taken.recv_timeout(Duration::from_millis(200)).ok();
        if fail {
            device.fail(0xa1);
            device.wait_until(|s| !s.held.is_empty());
        }
        device.release(0xa1);
        a.recv().unwrap().unwrap();
        let id = early.unwrap_or_else(|| taken.recv().unwrap()).unwrap();
        check(&volume, first, 0xa1);
        // The snapshot has the content that the file had when it was taken.
        let mut found = [0; 2 * BLOCK];
        if volume.read(first.of(id), 0, &mut found).unwrap() > 0 {
            assert_eq!(found[..], noise(0xa1, 2 * BLOCK));
        }
        check(&volume, second.of(id), 0xb2);
    }
}

/// A large fsync wrote to two zones, and its data failed in one. The other, in which the data of
/// another fsync was still on its way, was finished too, because it held less than had been sent to
/// it: the second fsync failed as well, finished zones in its turn, and so on.
#[test]
fn a_failure_in_one_zone_leaves_others_alone() {
    // Two data zones at a time, and a batch that does not fit the summary of one.
    let sim = fresh(SimConfig::new(40, 2048).limits(Some(5), None));
    let device = Holding::new(&sim);
    let volume = open(&device);
    let [first, second] = [0; 2].map(|_| create(&volume).unwrap());
    volume.sync_metadata().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    device.hold(0xa1);
    device.hold(0xb2);
    // The last sync was of this file: the record of the next goes beside its data, however large.
    volume.sync_file(first).unwrap();
    let sent = device.state.lock().unwrap().journal_writes;
    let (tell, a) = mpsc::channel();
    let writer = Arc::clone(&volume);
    std::thread::spawn(move || {
        let mut bytes = vec![0xa1; 1000 * BLOCK];
        bytes[900 * BLOCK..].fill(0xa2);
        writer.write(first, 0, &bytes, NOW).unwrap();
        tell.send(writer.sync_file(first)).unwrap();
    });
    device.wait_until(|s| s.journal_writes == sent + 1);
    let b = sync_aside(&volume, second, 0xb2);
    device.wait_until(|s| s.held.iter().any(|held| held.0 == 0xb2));
    device.fail(0xa1);
    // It is written elsewhere.
    device.wait_until(|s| s.held.iter().any(|held| held.0 == 0xa1));
    assert_eq!(sim.counters().finishes, 1);
    device.release(0xb2);
    device.release(0xa1);
    a.recv().unwrap().unwrap();
    b.recv().unwrap().unwrap();
    assert_eq!(sim.counters().finishes, 1);
    assert!(!volume.is_read_only());
    drop(volume);
    let volume = open(&Holding::new(&sim));
    let mut found = [0; 2 * BLOCK];
    volume.read(first, 0, &mut found).unwrap();
    assert_eq!(found, [0xa1; 2 * BLOCK]);
    check(&volume, second, 0xb2);
}

/// The record of a large fsync is sent after its data where others sync as well: meanwhile they are acknowledged. If that data fails
/// it is written elsewhere, and nobody else learns of it.
#[test]
fn a_large_fsync_holds_nobody_up() {
    for (config, fail) in [
        (SimConfig::new(40, 2048), false),
        (SimConfig::new(40, 2048), true),
        (SimConfig::new(40, 2048).volatile_cache(), false),
        (SimConfig::new(40, 2048).volatile_cache(), true),
    ] {
        let sim = fresh(config);
        let device = Holding::new(&sim);
        let volume = open(&device);
        let [first, second] = [0; 2].map(|_| create(&volume).unwrap());
        volume.sync_metadata().unwrap();
        device.hold(0xa1);
        let sent = device.state.lock().unwrap().journal_writes;
        let (tell, a) = mpsc::channel();
        let writer = Arc::clone(&volume);
        std::thread::spawn(move || {
            let bytes = noise(0xa1, 100 * BLOCK);
            writer.write(first, 0, &bytes, NOW).unwrap();
            tell.send(writer.sync_file(first)).unwrap();
        });
        device.wait_until(|s| !s.held.is_empty());
        let b = sync_aside(&volume, second, 0xb2);
        b.recv().unwrap().unwrap();
        assert_eq!(device.state.lock().unwrap().journal_writes, sent + 1);
        if fail {
            device.fail(0xa1);
            device.wait_until(|s| !s.held.is_empty());
            sync_aside(&volume, second, 0xc3).recv().unwrap().unwrap();
        }
        device.release(0xa1);
        a.recv().unwrap().unwrap();
        assert!(!volume.is_read_only());
        drop(volume);
        let volume = open(&Holding::new(&sim));
        let mut found = vec![0; 100 * BLOCK];
        volume.read(first, 0, &mut found).unwrap();
        assert_eq!(found, noise(0xa1, 100 * BLOCK));
        check(&volume, second, if fail { 0xc3 } else { 0xb2 });
    }
}

/// Who appends to a file that was written lately finds the block that it ends in in memory.
#[test]
fn an_append_reads_nothing() {
    let sim = fresh(small());
    let volume = open(&Holding::new(&sim));
    let ino = create(&volume).unwrap();
    let mut size = 0;
    let before = sim.counters().reads;
    for i in 0..40 {
        let bytes = [i; 3 * BLOCK / 2 + 100];
        volume.write(ino, size, &bytes, NOW).unwrap();
        size += bytes.len() as u64;
        volume.sync_file(ino).unwrap();
    }
    assert_eq!(sim.counters().reads, before);
    // Content that comes after it takes its place.
    volume.write(ino, size - 10, &[99; 20], NOW).unwrap();
    volume.sync_file(ino).unwrap();
    let mut buf = [0; 30];
    volume.read(ino, size - 20, &mut buf).unwrap();
    assert_eq!(buf[..10], [39; 10]);
    assert_eq!(buf[10..], [99; 20]);
}

/// One thread's file: both blocks are those of the last version written to it.
struct Versions {
    ino: Ino,
    acknowledged: u32,
    written: u32,
}

fn version(number: u32, blocks: usize) -> Vec<u8> {
    let mut block = match number {
        0 => vec![0; BLOCK],
        _ => noise(number.into(), BLOCK),
    };
    block[..4].copy_from_slice(&number.to_le_bytes());
    block.repeat(blocks)
}

/// Writes and syncs versions of a file until the power is gone. Every third changes a part of a
/// block beyond them.
fn rewrite(volume: &Volume, ino: Ino) -> Versions {
    let mut versions = Versions {
        ino,
        acknowledged: 0,
        written: 0,
    };
    for number in 1.. {
        let written = match number % 3 {
            0 => volume.write(ino, 2 * BLOCK as u64, &version(number, 1)[..200], NOW),
            _ => volume.write(ino, 0, &version(number, 2), NOW),
        };
        if written.is_err() {
            break;
        }
        if number % 3 != 0 {
            versions.written = number;
        }
        if volume.sync_file(ino).is_err() {
            break;
        }
        versions.acknowledged = versions.written;
    }
    versions
}

/// Threads that sync files of their own, a power cut at some command, now and then a write that
/// fails before: what was acknowledged to any of them is there.
#[test]
fn what_threads_were_told_is_durable_survives() {
    for seed in 0..120 {
        let config = match seed % 4 {
            0 => small(),
            1 => small().reordering(seed),
            2 => small().volatile_cache().reordering(seed),
            _ => small().host_file(),
        };
        let sim = fresh(config);
        let (volume, _) = Volume::open(Arc::clone(&sim) as _, Options::default()).unwrap();
        let inos = [0; 4].map(|_| create(&volume).unwrap());
        volume.sync().unwrap();
        sim.cut_after(20 + seed * 37 % 500);
        if seed % 3 == 0 {
            sim.inject(Fault::once(FaultTarget::Write).after(seed % 50));
        }
        let files = std::thread::scope(|scope| {
            let volume = &volume;
            let threads = inos.map(|ino| scope.spawn(move || rewrite(volume, ino)));
            threads.map(|thread| thread.join().unwrap())
        });
        drop(volume);
        sim.heal();
        let left = Arc::new(sim.persisted(seed));
        let (volume, _) = Volume::open(left, Options::default()).unwrap();
        for file in files {
            let mut found = [0; 2 * BLOCK];
            volume.read(file.ino, 0, &mut found).unwrap();
            for block in found.chunks(BLOCK) {
                let number = u32::from_le_bytes(block[..4].try_into().unwrap());
                assert_eq!(block, version(number, 1), "seed {seed}");
                assert!(
                    (file.acknowledged..=file.written).contains(&number),
                    "seed {seed}: {number} of {} to {}",
                    file.acknowledged,
                    file.written
                );
            }
        }
    }
}

/// A sync of a volume gone read-only left the file on its way for ever, and the next one waited for it.
#[test]
fn a_sync_of_a_read_only_volume_ends() {
    let volume = Arc::new(crate::common::open(&fresh(small())));
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 9000], NOW).unwrap();
    volume.make_read_only();
    assert!(volume.sync_file(ino).is_err());
    let (ended, waiting) = mpsc::channel();
    std::thread::spawn(move || ended.send(volume.sync_file(ino).is_err()));
    let refused = waiting.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(refused, Ok(true));
}

/// Whoever found a file's data on its way for somebody else's sync took it for durable.
#[test]
fn two_threads_syncing_one_file_lose_nothing() {
    let device = fresh(SimConfig::new(60, 512).capacity(500).volatile_cache());
    let volume = crate::common::open_staging(&device, 8 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.sync().unwrap();
    let writes = &|offset: u64| {
        for number in 1..400u64 {
            volume
                .write(ino, offset, &number.to_le_bytes(), NOW)
                .unwrap();
            volume.sync_file(ino).unwrap();
            if number % 4 == 0 {
                let left = crate::common::open(&Arc::new(device.persisted(number)));
                let mut found = [0; 8];
                left.read(ino, offset, &mut found).unwrap();
                assert!(u64::from_le_bytes(found) >= number, "{found:?} of {number}");
            }
        }
    };
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                volume.step(Task::WriteBack).unwrap();
            }
        });
        let writers = [0, 4096].map(|offset| scope.spawn(move || writes(offset)));
        let ended = writers.map(|writer| writer.join());
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
}
