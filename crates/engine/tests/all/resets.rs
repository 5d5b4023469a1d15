//! A reset takes milliseconds on flash. Only who needs the zone waits for it.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{NOW, create, fresh, noise, small};
use persimmon_device::{
    Command, Completer, Geometry, Pending, Result, ZoneId, ZoneInfo, ZonedDevice,
};
use persimmon_engine::{Freezing, Options, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_sim::SimDevice;

const AT_ONCE: usize = 3;

/// Resets of a simulated device end when they are told to.
struct Holding {
    device: Arc<SimDevice>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holds: bool,
    held: Vec<(Command, Completer)>,
    reset: Vec<ZoneId>,
}

impl Holding {
    fn hold(&self, holds: bool) {
        self.state.lock().unwrap().holds = holds;
    }

    fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    /// The one that was sent last ends first.
    fn let_one_go(&self) {
        let (command, completer) = self.state.lock().unwrap().held.pop().unwrap();
        completer.complete(self.device.run(command));
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
        if let Command::Reset { zone, .. } = command {
            let mut state = self.state.lock().unwrap();
            state.reset.push(zone);
            if state.holds {
                let (completer, pending) = Pending::channel();
                state.held.push((command, completer));
                return pending;
            }
        }
        self.device.submit(command)
    }

    fn resets_at_once(&self) -> usize {
        AT_ONCE
    }
}

fn fill(volume: &Volume, ino: Ino, blocks: u64, number: u64) {
    for block in 0..blocks {
        let data = noise(number + block, 4096);
        volume.write(ino, block * 4096, &data, NOW).unwrap();
    }
    volume.sync_file(ino).unwrap();
}

fn free(volume: &Volume) -> usize {
    let zones = volume.zones();
    zones.iter().filter(|z| z.entry.role == Role::Free).count()
}

fn check(volume: &Volume, ino: Ino, blocks: u64, number: u64) {
    let mut bytes = [0; 4096];
    for block in 0..blocks {
        volume.read(ino, block * 4096, &mut bytes).unwrap();
        assert_eq!(bytes[..], noise(number + block, 4096), "block {block}");
    }
}

/// A checkpoint kept its turn until the last of its zones was reset, so that no other could free what had died
/// meanwhile; and all of them were usable when the last was.
#[test]
fn checkpoints_go_on_while_zones_are_reset() {
    let device = Arc::new(Holding {
        device: fresh(small()),
        state: Mutex::default(),
    });
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    let ino = create(&volume).unwrap();
    fill(&volume, ino, 1000, 1);
    volume.step(Task::Checkpoint).unwrap();
    fill(&volume, ino, 1000, 5000);
    device.hold(true);
    device.state.lock().unwrap().reset.clear();
    volume.step(Task::FreeZones).unwrap();
    assert_eq!(device.held(), AT_ONCE);
    // What is on its way is neither reclaimable nor reset again, whoever writes the next ones.
    let before = free(&volume);
    assert_eq!(volume.step(Task::FreeZones).unwrap(), Progress::Idle);
    volume.step(Task::Checkpoint).unwrap();
    fill(&volume, ino, 100, 9000);
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(device.held(), AT_ONCE);
    // Each counts as soon as it is reset, and makes place for another.
    device.let_one_go();
    volume.step(Task::FreeIfDue).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(device.held(), AT_ONCE);
    device.hold(false);
    for _ in 0..AT_ONCE {
        device.let_one_go();
    }
    while volume.step(Task::Reset).unwrap() == Progress::Worked {}
    let after = free(&volume);
    assert!(after > before + 4, "{before} {after}");
    let reset = device.state.lock().unwrap().reset.clone();
    let once: HashSet<ZoneId> = reset.iter().copied().collect();
    assert_eq!(once.len(), reset.len(), "{reset:?}");
    volume.close().unwrap();
    drop(volume);
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    check(&volume, ino, 100, 9000);
}

/// Nobody but those who need room waits for resets here, and none is over before somebody does.
#[test]
fn who_needs_room_waits_for_resets() {
    let device = fresh(small().reordering(7));
    let volume = crate::common::open(&device);
    let ino = create(&volume).unwrap();
    let blocks = volume.space().available_bytes / 4096 * 9 / 10;
    fill(&volume, ino, blocks, 1);
    for round in 1..6 {
        fill(&volume, ino, blocks, round << 20);
        volume.step(Task::FreeIfDue).unwrap();
    }
    check(&volume, ino, blocks, 5 << 20);
}

/// A reset of it is carried out when somebody waits for it.
struct Lazy {
    device: Arc<SimDevice>,
    under_way: Arc<AtomicUsize>,
}

impl ZonedDevice for Lazy {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        if !matches!(command, Command::Reset { .. }) {
            return self.device.submit(command);
        }
        let (device, under_way) = (Arc::clone(&self.device), Arc::clone(&self.under_way));
        under_way.fetch_add(1, Ordering::Relaxed);
        Pending::deferred(move || {
            under_way.fetch_sub(1, Ordering::Relaxed);
            device.run(command)
        })
    }

    fn resets_at_once(&self) -> usize {
        AT_ONCE
    }
}

/// A recovery failed after its checkpoint and left resets under way: the next one went by a report from before,
/// and read what was reset meanwhile. So does whoever opens a volume that was not closed.
#[test]
fn no_reset_outlives_its_volume() {
    let device = Arc::new(Lazy {
        device: fresh(small()),
        under_way: Arc::default(),
    });
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    let ino = create(&volume).unwrap();
    fill(&volume, ino, 1000, 1);
    volume.step(Task::Checkpoint).unwrap();
    fill(&volume, ino, 1000, 5000);
    volume.step(Task::FreeZones).unwrap();
    assert_eq!(device.under_way.load(Ordering::Relaxed), AT_ONCE);
    drop(volume);
    assert_eq!(device.under_way.load(Ordering::Relaxed), 0);
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    check(&volume, ino, 1000, 5000);
}

/// A freeze ends with a checkpoint, which frees zones. Nobody waits for their resets, and so it came to no rest on drives whose commands take
/// their time.
#[test]
fn a_freeze_waits_for_the_resets_of_its_checkpoint() {
    let device = fresh(small().reordering(3));
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    let ino = create(&volume).unwrap();
    for round in 0..2 {
        fill(&volume, ino, 1000, 5000 * round);
    }
    let freezing = Freezing::of(&volume);
    freezing.begin().unwrap();
    assert!(!freezing.is_frozen(), "nothing is reset");
    assert!(freezing.comes_to_rest());
    assert!(freezing.is_frozen());
    freezing.thaw();
    check(&volume, ino, 1000, 5000);
    volume.close().unwrap();
}
