//! Commands that fail on request.

use std::ops::Range;

use persimmon_device::{Buffer, Command, ZoneId, ZoneState};

/// What a failing command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// [`persimmon_device::DeviceError::Io`]; a failed write leaves the write pointer anywhere
    /// inside the command.
    Io,
    /// [`persimmon_device::DeviceError::HostFull`]; nothing was written.
    HostFull,
    /// The zone turns read-only for ever; a write fails as with [`FaultKind::Io`].
    ReadOnly,
    /// The zone goes offline for ever.
    Offline,
}

impl FaultKind {
    /// The state that the zone is in from then on.
    pub(crate) fn state(self) -> Option<ZoneState> {
        match self {
            FaultKind::ReadOnly => Some(ZoneState::ReadOnly),
            FaultKind::Offline => Some(ZoneState::Offline),
            FaultKind::Io | FaultKind::HostFull => None,
        }
    }
}

/// Which commands a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// Reads.
    Read,
    /// Writes and appends.
    Write,
    /// Resets.
    Reset,
    /// Finishes.
    Finish,
    /// Opens and closes.
    OpenClose,
    /// Flushes.
    Flush,
    /// Whatever comes.
    Any,
}

/// A failure to come.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Commands hit.
    pub target: FaultTarget,
    /// Only this zone, if any. Flushes have no zone.
    pub zone: Option<ZoneId>,
    /// Only reads and writes of this block among others, if any.
    pub block: Option<u32>,
    /// Matching commands that pass before the first that fails.
    pub after: u64,
    /// Matching commands that then fail; `None` is for ever.
    pub times: Option<u64>,
    /// What they answer.
    pub kind: FaultKind,
}

impl Fault {
    /// The next command of this kind fails with an I/O error, once.
    #[must_use]
    pub fn once(target: FaultTarget) -> Fault {
        Fault {
            target,
            zone: None,
            block: None,
            after: 0,
            times: Some(1),
            kind: FaultKind::Io,
        }
    }

    /// All commands of this kind fail with an I/O error from now on.
    #[must_use]
    pub fn for_ever(target: FaultTarget) -> Fault {
        Fault {
            times: None,
            ..Fault::once(target)
        }
    }

    /// The zone of the next command of this kind turns read-only or goes offline.
    #[must_use]
    pub fn of_zone(target: FaultTarget, kind: FaultKind) -> Fault {
        Fault {
            kind,
            ..Fault::once(target)
        }
    }

    /// On this zone alone.
    #[must_use]
    pub fn zone(mut self, zone: ZoneId) -> Fault {
        self.zone = Some(zone);
        self
    }

    /// For this block alone: commands fail that would read or write it.
    #[must_use]
    pub fn block(mut self, block: u32) -> Fault {
        self.block = Some(block);
        self
    }

    /// Not before `commands` matching commands have passed.
    #[must_use]
    pub fn after(mut self, commands: u64) -> Fault {
        self.after = commands;
        self
    }

    fn matches(&self, command: &Command) -> bool {
        let (target, zone) = match command {
            Command::Read { zone, .. } => (FaultTarget::Read, Some(*zone)),
            Command::Write { zone, .. } | Command::Append { zone, .. } => {
                (FaultTarget::Write, Some(*zone))
            }
            Command::Reset { zone, .. } => (FaultTarget::Reset, Some(*zone)),
            Command::Finish { zone } => (FaultTarget::Finish, Some(*zone)),
            Command::Open { zone } | Command::Close { zone } => {
                (FaultTarget::OpenClose, Some(*zone))
            }
            Command::Record | Command::Flush => (FaultTarget::Flush, None),
        };
        (self.target == FaultTarget::Any || self.target == target)
            && (self.zone.is_none() || self.zone == zone)
            && self
                .block
                .is_none_or(|block| blocks_of(command).contains(&block))
    }
}

/// The blocks of its zone that a command reads, or writes where it says.
fn blocks_of(command: &Command) -> Range<u32> {
    match command {
        Command::Read { block, blocks, .. } => *block..block.saturating_add(*blocks),
        Command::Write { block, data, .. } => {
            let blocks: u32 = data.iter().map(Buffer::blocks).sum();
            *block..block.saturating_add(blocks)
        }
        _ => 0..0,
    }
}

/// The failures of a device that are still to come.
#[derive(Default)]
pub(crate) struct Faults {
    to_come: Vec<Fault>,
    /// What has come to pass.
    came: Vec<(FaultTarget, FaultKind)>,
    struck: bool,
}

impl Faults {
    pub fn add(&mut self, fault: Fault) {
        self.to_come.push(fault);
    }

    pub fn clear(&mut self) {
        self.to_come.clear();
        self.struck = false;
    }

    /// Whether this command fails, and how. Counts it.
    pub fn strike(&mut self, command: &Command) -> Option<FaultKind> {
        let mut struck = None;
        let came = &mut self.came;
        self.to_come.retain_mut(|fault| {
            if struck.is_some() || !fault.matches(command) {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            struck = Some(fault.kind);
            if !came.contains(&(fault.target, fault.kind)) {
                came.push((fault.target, fault.kind));
            }
            match &mut fault.times {
                None => true,
                Some(times) => {
                    *times = times.saturating_sub(1);
                    *times > 0
                }
            }
        });
        // A zone that fails is no excuse: what it does not hold must go on.
        self.struck |= struck.is_some_and(|kind| kind.state().is_none());
        struck
    }

    pub fn has_come(&self, fault: &Fault) -> bool {
        self.came.contains(&(fault.target, fault.kind))
    }

    pub fn have_struck(&self) -> bool {
        self.struck
    }
}
