//! What a power cut leaves behind.

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut, Command, ZoneId};

use super::choices::Choices;
use super::config::SimConfig;
use super::state::{State, ZoneCell};
use super::zone::{Change, Zone};
use super::{SimDevice, zone};

/// Bytes that a host or a drive writes whole, whatever happens.
const SECTOR_BYTES: usize = 512;

/// What a power cut did, over all zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerCut {
    /// It hit commands in flight.
    pub in_flight: bool,
    /// Something that was not durable is gone, at least from the write pointer's point of view.
    pub lost: bool,
    /// Something that was not durable is there.
    pub kept: bool,
    /// A command of several blocks is there up to a block inside it.
    pub torn: bool,
    /// A reset that was not durable took effect.
    pub reset: bool,
    /// Blocks survived each on their own, wherever the write pointer is.
    pub scattered: bool,
}

/// A device at one moment, with the commands in flight. Shares its data with the device.
#[derive(Clone)]
pub struct Snapshot {
    config: Arc<SimConfig>,
    zones: Vec<ZoneCell>,
    in_flight: Vec<Command>,
}

impl Snapshot {
    pub(crate) fn new(
        config: Arc<SimConfig>,
        zones: Vec<ZoneCell>,
        in_flight: Vec<Command>,
    ) -> Snapshot {
        Snapshot {
            config,
            zones,
            in_flight,
        }
    }

    /// A device that lost nothing that had completed, and none of the commands in flight took
    /// effect.
    #[must_use]
    pub fn intact(&self) -> SimDevice {
        let zones = self.zones.iter().map(|cell| {
            let mut zone = Arc::clone(&cell.now);
            if zone.state.is_active() {
                Arc::make_mut(&mut zone).power_on();
            }
            zone
        });
        self.device(zones.collect())
    }

    /// One legal state after a power cut at this moment: a device of its own, powered on, with
    /// fresh counters and without faults.
    #[must_use]
    pub fn persisted(&self, choices: &mut dyn Choices) -> SimDevice {
        self.cut(choices).0
    }

    /// The same, and what the power cut did.
    #[must_use]
    pub fn cut(&self, choices: &mut dyn Choices) -> (SimDevice, PowerCut) {
        let mut cut = PowerCut {
            in_flight: !self.in_flight.is_empty(),
            ..PowerCut::default()
        };
        let zones = (0u32..)
            .zip(&self.zones)
            .map(|(zone, cell)| {
                let in_flight = self.in_flight_in(ZoneId(zone), choices);
                self.persisted_zone(cell, in_flight, choices, &mut cut)
            })
            .collect();
        (self.device(zones), cut)
    }

    fn device(&self, zones: Vec<Arc<Zone>>) -> SimDevice {
        let state = State::with_zones(Arc::clone(&self.config), zones);
        SimDevice::from_state(Arc::clone(&self.config), state)
    }

    /// The commands in flight to a zone in the order in which they come to it.
    fn in_flight_in(&self, zone: ZoneId, choices: &mut dyn Choices) -> Vec<&Command> {
        let mut waiting: Vec<&Command> = self
            .in_flight
            .iter()
            .filter(|command| match command {
                Command::Write { zone: z, .. }
                | Command::Append { zone: z, .. }
                | Command::Reset { zone: z, .. }
                | Command::Finish { zone: z } => *z == zone,
                _ => false,
            })
            .collect();
        let mut ordered = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let first_write = waiting
                .iter()
                .position(|command| matches!(command, Command::Write { .. }));
            let runnable: Vec<usize> = (0..waiting.len())
                .filter(|at| {
                    Some(*at) == first_write
                        || !matches!(waiting.get(*at), Some(Command::Write { .. }))
                })
                .collect();
            let pick = choices.choose(runnable.len() as u32) as usize;
            ordered.push(waiting.remove(runnable.get(pick).copied().unwrap_or(0)));
        }
        ordered
    }

    fn persisted_zone(
        &self,
        cell: &ZoneCell,
        in_flight: Vec<&Command>,
        choices: &mut dyn Choices,
        cut: &mut PowerCut,
    ) -> Arc<Zone> {
        let mut zone = Arc::clone(cell.durable());
        let mut changes: Vec<Change> = cell.changes().cloned().collect();
        self.add_in_flight(&cell.now, in_flight, &mut changes);
        if changes.is_empty() {
            if zone.state.is_active() {
                Arc::make_mut(&mut zone).power_on();
            }
            return zone;
        }
        let durable = Arc::clone(&zone);
        let zone_now = Arc::make_mut(&mut zone);
        let steps: u32 = changes.iter().map(Change::steps).sum();
        let mut left = choices.choose(steps + 1);
        cut.lost |= left < steps;
        cut.kept |= left > 0;
        let mut next_block = None;
        for change in &changes {
            if left < change.steps() {
                next_block = block_of(change, left);
            }
            if left == 0 {
                break;
            }
            let survives = left.min(change.steps());
            cut.torn |= survives < change.steps();
            cut.reset |= matches!(change, Change::Reset { .. });
            zone_now.apply(change, survives);
            left -= survives;
        }
        if let Some(next) = next_block
            && self.config.tears_blocks
            && zone::is_proof(&self.config, zone_now.kind)
            && choices.choose(4) == 0
        {
            // Opened again, the drive would have had the rest of it padded.
            let torn_at = SECTOR_BYTES * (1 + choices.choose(7) as usize);
            let mut padded = BufferMut::zeroed(1);
            if let (Some(to), Some(from)) = (padded.get_mut(..torn_at), next.get(..torn_at)) {
                to.copy_from_slice(from);
            }
            let change = Change::Write {
                block: zone_now.write_pointer,
                data: [padded.freeze()].into(),
            };
            zone_now.apply(&change, 1);
            cut.torn = true;
        }
        if !zone::is_proof(&self.config, zone_now.kind) {
            cut.scattered = true;
            zone_now.medium = durable.medium.clone();
            for change in &changes {
                scatter(zone_now, change, choices);
            }
        }
        zone_now.power_on();
        zone
    }

    /// Turns the commands in flight into what they will have changed, each as the zone takes it
    /// after the ones before.
    fn add_in_flight(&self, now: &Zone, in_flight: Vec<&Command>, changes: &mut Vec<Change>) {
        if in_flight.is_empty() {
            return;
        }
        let mut then = now.clone();
        for command in in_flight {
            let change = match command {
                Command::Write { block, data, .. }
                    if then.state.is_writable() && *block == then.write_pointer =>
                {
                    Change::Write {
                        block: *block,
                        data: data.as_slice().into(),
                    }
                }
                Command::Append { data, .. } if then.state.is_writable() => Change::Write {
                    block: then.write_pointer,
                    data: data.as_slice().into(),
                },
                Command::Reset { keep_allocated, .. } if !then.state.is_worn_out() => {
                    zone::reset_of(&self.config, then.kind, *keep_allocated)
                }
                Command::Finish { .. } if then.state.is_writable() => Change::Finish,
                _ => continue,
            };
            if let Change::Write { block, .. } = &change
                && change.steps() > then.capacity.saturating_sub(*block)
            {
                continue;
            }
            then.apply(&change, change.steps());
            changes.push(change);
        }
    }
}

impl std::fmt::Display for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let volatile: usize = self.zones.iter().map(|cell| cell.changes().count()).sum();
        write!(f, "{volatile} changes in the cache and of [")?;
        for (at, command) in self.in_flight.iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            match command {
                Command::Write { zone, block, data } => {
                    let blocks = Command::data_blocks(data);
                    write!(f, "{separator}write {zone}:{block}+{blocks}")?;
                }
                Command::Append { zone, data } => {
                    let blocks = Command::data_blocks(data);
                    write!(f, "{separator}append {zone}+{blocks}")?;
                }
                other => write!(f, "{separator}{other:?}")?,
            }
        }
        write!(f, "]")
    }
}

/// The block that a change writes after its first `done`.
fn block_of(change: &Change, done: u32) -> Option<Buffer> {
    let Change::Write { data, .. } = change else {
        return None;
    };
    let mut left = done;
    for buffer in data.iter() {
        if left < buffer.blocks() {
            return Some(buffer.slice(left as usize..left as usize + 1));
        }
        left -= buffer.blocks();
    }
    None
}

/// Lets any part of a change reach the medium.
fn scatter(zone: &mut Zone, change: &Change, choices: &mut dyn Choices) {
    match change {
        Change::Write { block, data } => match choices.choose(3) {
            0 => {}
            1 => {
                let mut at = *block;
                for buffer in data.iter() {
                    for block in 0..buffer.blocks() {
                        let new = buffer.slice(block as usize..block as usize + 1);
                        scatter_block(zone, at, new, choices);
                        at += 1;
                    }
                }
            }
            _ => zone.apply_to_medium(change),
        },
        Change::Reset { keep_medium: false } => {
            if choices.choose(2) == 1 {
                zone.medium.clear();
            }
        }
        Change::Reset { keep_medium: true } | Change::Finish => {}
    }
}

/// Lets a block reach the medium, or not, or its first sectors.
fn scatter_block(zone: &mut Zone, block: u32, new: Buffer, choices: &mut dyn Choices) {
    let sectors = BLOCK_SIZE / SECTOR_BYTES;
    match choices.choose(3) {
        0 => {}
        1 => {
            let torn_at = SECTOR_BYTES * (1 + choices.choose(sectors as u32 - 1) as usize);
            let mut mixed = zone.medium.block(block);
            if let (Some(target), Some(source)) = (mixed.get_mut(..torn_at), new.get(..torn_at)) {
                target.copy_from_slice(source);
            }
            zone.medium.put(block, mixed.freeze());
        }
        _ => zone.medium.put(block, new),
    }
}
