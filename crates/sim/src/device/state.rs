//! The device's state and the carrying out of commands.

use std::ops::Range;
use std::sync::Arc;

use persimmon_device::{
    Buffer, Command, Completion, DeviceError, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::Xxh3;

use super::config::{History, SimConfig};
use super::counters::Counters;
use super::fault::{FaultKind, Faults};
use super::gone;
use super::medium::Gather;
use super::power::Snapshot;
use super::queue::Queue;
use super::zone::{Change, Zone};

/// A zone, what of it is durable, and how it came from there to where it is.
#[derive(Clone)]
pub(crate) struct ZoneCell {
    pub now: Arc<Zone>,
    /// What is durable, if less than all.
    durable: Option<Arc<Zone>>,
    /// Changes since, with the number of the command that made each.
    pub changes: Vec<(u64, Change)>,
}

impl ZoneCell {
    pub fn new(now: Arc<Zone>) -> ZoneCell {
        ZoneCell {
            now,
            durable: None,
            changes: Vec::new(),
        }
    }

    pub fn durable(&self) -> &Arc<Zone> {
        self.durable.as_ref().unwrap_or(&self.now)
    }

    /// What happened since, oldest first.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().map(|(_, change)| change)
    }

    /// Makes everything up to command number `upto` durable.
    pub fn make_durable(&mut self, upto: u64) {
        if self
            .changes
            .last()
            .is_none_or(|(number, _)| *number <= upto)
        {
            self.durable = None;
            self.changes.clear();
            return;
        }
        let durable_changes = self.changes.partition_point(|(number, _)| *number <= upto);
        if let Some(durable) = &mut self.durable {
            let durable = Arc::make_mut(durable);
            for (_, change) in self.changes.drain(..durable_changes) {
                durable.apply(&change, change.steps());
            }
        }
    }
}

/// What a command answers; data is copied together later.
pub(crate) enum Answer {
    Read(Gather),
    Other(Completion),
}

impl Answer {
    pub fn finish(self) -> Result<Completion> {
        Ok(match self {
            Answer::Read(gather) => Completion::Read(gather.finish()),
            Answer::Other(completion) => completion,
        })
    }
}

/// Everything behind the device's lock.
pub(crate) struct State {
    pub(super) config: Arc<SimConfig>,
    pub(super) zones: Vec<ZoneCell>,
    pub(super) queue: Queue,
    pub(super) rng: ChaCha8Rng,
    pub faults: Faults,
    pub counters: Counters,
    pub(super) open: u32,
    pub(super) active: u32,
    /// Commands that took effect: numbers them.
    pub(super) executed: u64,
    /// Commands other than reads until the power fails.
    cut_in: Option<u64>,
    power: bool,
    snapshot_one_in: u32,
    snapshots: Vec<Snapshot>,
}

impl State {
    pub fn new(config: Arc<SimConfig>) -> State {
        let zones = (0..config.geometry.zone_count)
            .map(|zone| {
                let kind = if zone < config.geometry.conventional_zones {
                    ZoneKind::Conventional
                } else {
                    ZoneKind::Sequential
                };
                Arc::new(Zone::new(kind, config.zone_capacity(zone), config.history))
            })
            .collect();
        State::with_zones(config, zones)
    }

    /// A device that was just powered on and finds these zones.
    pub fn with_zones(config: Arc<SimConfig>, zones: Vec<Arc<Zone>>) -> State {
        let active = zones.iter().filter(|zone| zone.state.is_active()).count() as u32;
        State {
            rng: ChaCha8Rng::seed_from_u64(config.seed),
            config,
            zones: zones.into_iter().map(ZoneCell::new).collect(),
            queue: Queue::default(),
            faults: Faults::default(),
            counters: Counters::default(),
            open: 0,
            active,
            executed: 0,
            cut_in: None,
            power: true,
            snapshot_one_in: 0,
            snapshots: Vec::new(),
        }
    }

    pub fn cut_after(&mut self, commands: Option<u64>) {
        self.cut_in = commands;
    }

    pub fn cut(&mut self) {
        self.power = false;
    }

    pub fn is_cut(&self) -> bool {
        !self.power
    }

    pub fn reseed(&mut self, seed: u64) {
        self.rng = ChaCha8Rng::seed_from_u64(seed);
    }

    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_with(None)
    }

    fn snapshot_with(&self, running: Option<&Command>) -> Snapshot {
        let in_flight = self.queue.commands().chain(running).cloned().collect();
        Snapshot::new(Arc::clone(&self.config), self.zones.clone(), in_flight)
    }

    pub fn record_snapshots(&mut self, one_in: u32) {
        self.snapshot_one_in = one_in;
    }

    pub fn take_snapshots(&mut self) -> Vec<Snapshot> {
        std::mem::take(&mut self.snapshots)
    }

    pub fn zone_resets(&self) -> Vec<u32> {
        self.zones.iter().map(|cell| cell.now.resets).collect()
    }

    /// A hash of everything that can be found on the device.
    pub fn image_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for cell in &self.zones {
            let zone = &cell.now;
            let readable = zone.readable().min(zone.written);
            hash.update(&[zone.kind as u8, zone.state as u8]);
            hash.update(&zone.capacity.to_le_bytes());
            hash.update(&zone.write_pointer.to_le_bytes());
            hash.update(&zone.medium.hash(readable).to_le_bytes());
        }
        hash.digest()
    }

    pub fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        if !self.power {
            return gone();
        }
        let count = self.config.geometry.zone_count;
        self.zones
            .get(zones.start as usize..zones.end as usize)
            .map(|cells| cells.iter().map(|cell| cell.now.info()).collect())
            .ok_or(DeviceError::NoSuchZone {
                zone: ZoneId(zones.end.saturating_sub(1)),
                count,
            })
    }

    pub fn corrupt(&mut self, zone: ZoneId, block: u32, byte: usize, mask: u8) -> bool {
        let Some(cell) = self.zones.get_mut(zone.0 as usize) else {
            return false;
        };
        cell.make_durable(u64::MAX);
        if block >= cell.now.written {
            return false;
        }
        let mut content = cell.now.medium.block(block);
        let Some(target) = content.get_mut(byte) else {
            return false;
        };
        *target ^= mask;
        Arc::make_mut(&mut cell.now)
            .medium
            .put(block, content.freeze());
        cell.make_durable(u64::MAX);
        true
    }

    pub fn replace(&mut self, zone: ZoneId, block: u32, content: Buffer) -> bool {
        let Some(cell) = self.zones.get_mut(zone.0 as usize) else {
            return false;
        };
        let end = u64::from(block) + u64::from(content.blocks());
        if end > u64::from(cell.now.written) {
            return false;
        }
        cell.make_durable(u64::MAX);
        Arc::make_mut(&mut cell.now).medium.put(block, content);
        cell.make_durable(u64::MAX);
        true
    }

    pub fn fill(&mut self, zone: ZoneId, header: Buffer, number: u64) -> bool {
        let Some(cell) = self.zones.get_mut(zone.0 as usize) else {
            return false;
        };
        let (capacity, first) = (cell.now.capacity, header.blocks());
        if cell.now.state != ZoneState::Empty || first > capacity {
            return false;
        }
        cell.make_durable(u64::MAX);
        let now = Arc::make_mut(&mut cell.now);
        now.medium.put(0, header);
        now.medium.put_same(first, number, capacity - first);
        now.advance(capacity);
        true
    }

    pub fn wear_out(&mut self, zone: ZoneId, state: ZoneState) {
        if self.zones.get(zone.0 as usize).is_some() {
            self.set_state(zone, state);
            if let Some(cell) = self.zones.get_mut(zone.0 as usize) {
                cell.make_durable(u64::MAX);
            }
        }
    }

    /// Carries out a command that is not queued.
    pub fn run_now(&mut self, command: Command) -> Result<Answer> {
        if !self.power {
            return gone();
        }
        if !self.survives(&command, false) {
            let mark = self.executed;
            self.queue.push(command, mark);
            return gone();
        }
        self.execute(&command, self.executed)
    }

    /// Carries out a queued command, or loses power over it.
    pub(super) fn run_queued(&mut self, id: u64) {
        let Some((command, mark)) = self.queue.get(id) else {
            return;
        };
        if self.survives(&command, true) {
            let answer = self.execute(&command, mark);
            self.queue.answer(id, answer);
        }
    }

    /// Whether there is power for this command. Keeps a snapshot now and then.
    fn survives(&mut self, command: &Command, queued: bool) -> bool {
        if matches!(command, Command::Read { .. }) {
            return self.power;
        }
        if self.snapshot_one_in > 0 && self.rng.random_range(0..self.snapshot_one_in) == 0 {
            let snapshot = self.snapshot_with(Some(command).filter(|_| !queued));
            self.snapshots.push(snapshot);
        }
        match &mut self.cut_in {
            None => {}
            Some(0) => self.power = false,
            Some(left) => *left -= 1,
        }
        self.power
    }

    fn execute(&mut self, command: &Command, mark: u64) -> Result<Answer> {
        self.executed += 1;
        let fault = self.faults.strike(command);
        let result = match fault {
            Some(FaultKind::HostFull) => Err(DeviceError::HostFull),
            Some(FaultKind::Io) => Err(self.fail(command)),
            Some(kind @ (FaultKind::ReadOnly | FaultKind::Offline)) => {
                let error = self.fail(command);
                if let (Some(zone), Some(state)) = (zone_of(command), kind.state()) {
                    self.wear_out(zone, state);
                }
                Err(error)
            }
            None => self.carry_out(command, mark),
        };
        match &result {
            Ok(_) => self.counters.count(command),
            Err(_) => self.counters.errors += 1,
        }
        result
    }

    /// Lets a command fail. Of a write any part arrives.
    fn fail(&mut self, command: &Command) -> DeviceError {
        let (operation, zone, block) = match command {
            Command::Read { zone, block, .. } => ("read", *zone, *block),
            Command::Write { zone, block, data } => {
                let arrives = self.rng.random_range(0..=Command::data_blocks(data));
                if let Err(error) = self.write(*zone, Some(*block), data, Some(arrives)) {
                    return error;
                }
                ("write", *zone, *block)
            }
            Command::Append { zone, data } => {
                let arrives = self.rng.random_range(0..=Command::data_blocks(data));
                match self.write(*zone, None, data, Some(arrives)) {
                    Err(error) => return error,
                    Ok(block) => ("append", *zone, block),
                }
            }
            Command::Reset { zone, .. } | Command::Finish { zone } => {
                // Nobody knows whether it was carried out.
                if self.rng.random_range(0..2) == 0
                    && let Err(error) = self.carry_out(command, self.executed)
                {
                    return error;
                }
                (name_of(command), *zone, 0)
            }
            Command::Open { zone } => ("open", *zone, 0),
            Command::Close { zone } => ("close", *zone, 0),
            Command::Record => ("record", ZoneId(0), 0),
            Command::Flush => ("flush", ZoneId(0), 0),
        };
        DeviceError::Io {
            operation,
            zone,
            block,
            message: "injected fault".to_owned(),
        }
    }

    /// Zones that are read-only or offline, and how many of them are offline.
    pub fn worn_out(&self) -> (u32, u32) {
        let count = |is: fn(ZoneState) -> bool| {
            let zones = self.zones.iter();
            zones.filter(|cell| is(cell.now.state)).count() as u32
        };
        (
            count(ZoneState::is_worn_out),
            count(|state| state == ZoneState::Offline),
        )
    }

    pub(super) fn change(&mut self, zone: ZoneId, change: Change, blocks: u32) {
        let number = self.executed;
        let Some(cell) = self.zones.get_mut(zone.0 as usize) else {
            return;
        };
        let before = cell.now.state;
        if self.config.history == History::Kept && self.config.geometry.volatile_cache {
            if cell.durable.is_none() {
                cell.durable = Some(Arc::clone(&cell.now));
            }
            cell.changes.push((number, change.first(blocks)));
        }
        let now = Arc::make_mut(&mut cell.now);
        now.apply(&change, blocks);
        let after = now.state;
        self.recount(before, after);
    }

    pub(super) fn set_state(&mut self, zone: ZoneId, state: ZoneState) {
        if let Some(cell) = self.zones.get_mut(zone.0 as usize) {
            let before = cell.now.state;
            Arc::make_mut(&mut cell.now).state = state;
            self.recount(before, state);
        }
    }

    fn recount(&mut self, before: ZoneState, after: ZoneState) {
        self.open = self.open + u32::from(after.is_open()) - u32::from(before.is_open());
        self.active = self.active + u32::from(after.is_active()) - u32::from(before.is_active());
    }
}

fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Reset { .. } => "reset",
        _ => "finish",
    }
}

/// The zone that a command is about.
fn zone_of(command: &Command) -> Option<ZoneId> {
    match command {
        Command::Read { zone, .. }
        | Command::Write { zone, .. }
        | Command::Append { zone, .. }
        | Command::Reset { zone, .. }
        | Command::Finish { zone }
        | Command::Open { zone }
        | Command::Close { zone } => Some(*zone),
        Command::Record | Command::Flush => None,
    }
}
