//! One zone: its state, its write pointer, what it holds, and what can happen to it.

use std::sync::Arc;

use persimmon_device::{Buffer, Command, ZoneInfo, ZoneKind, ZoneState};

use super::config::{History, SimConfig};
use super::medium::Medium;

/// A zone at one moment.
#[derive(Clone)]
pub(crate) struct Zone {
    pub kind: ZoneKind,
    pub state: ZoneState,
    pub capacity: u32,
    pub write_pointer: u32,
    /// Blocks that were written since the last reset; behind them a finished zone reads as zeros.
    pub written: u32,
    pub medium: Medium,
    pub resets: u32,
}

impl Zone {
    pub fn new(kind: ZoneKind, capacity: u32, history: History) -> Zone {
        Zone {
            kind,
            state: ZoneState::Empty,
            capacity,
            write_pointer: 0,
            written: 0,
            medium: Medium::new(history == History::Patterns),
            resets: 0,
        }
    }

    pub fn info(&self) -> ZoneInfo {
        ZoneInfo {
            kind: self.kind,
            state: self.state,
            capacity: self.capacity,
            write_pointer: self.write_pointer,
        }
    }

    /// Blocks from the start of the zone that may be read.
    pub fn readable(&self) -> u32 {
        match self.state {
            ZoneState::Full | ZoneState::ReadOnly => self.capacity,
            ZoneState::Offline => 0,
            _ => self.write_pointer,
        }
    }

    /// Moves the write pointer to `block`, all below it being written.
    pub fn advance(&mut self, block: u32) {
        self.write_pointer = block;
        self.written = block;
        if block >= self.capacity {
            self.state = ZoneState::Full;
        } else if !self.state.is_open() {
            self.state = ZoneState::ImplicitlyOpen;
        }
    }

    /// Carries out as much of a change as `blocks` says (of a write; other changes are whole).
    pub fn apply(&mut self, change: &Change, blocks: u32) {
        match change {
            Change::Write { block, data } => {
                self.write_blocks(*block, data, blocks);
                self.advance((block + blocks).min(self.capacity));
            }
            Change::Reset { keep_medium } => {
                if !keep_medium {
                    self.medium.clear();
                }
                self.write_pointer = 0;
                self.written = 0;
                self.state = ZoneState::Empty;
                self.resets += 1;
            }
            Change::Finish => {
                self.write_pointer = self.capacity;
                self.state = ZoneState::Full;
            }
        }
    }

    /// Puts the blocks of a write in place, leaving the write pointer alone.
    pub fn apply_to_medium(&mut self, change: &Change) {
        if let Change::Write { block, data } = change {
            self.write_blocks(*block, data, change.steps());
        }
    }

    fn write_blocks(&mut self, block: u32, data: &[Buffer], blocks: u32) {
        let mut done = 0;
        for buffer in data {
            let take = buffer.blocks().min(blocks - done);
            self.medium
                .put(block + done, buffer.slice(0..take as usize));
            done += take;
            if done == blocks {
                break;
            }
        }
    }

    /// The state a drive reports for this write pointer when power comes back.
    pub fn power_on(&mut self) {
        if self.state.is_open() || self.state == ZoneState::Closed {
            self.state = if self.write_pointer == 0 {
                ZoneState::Empty
            } else {
                ZoneState::Closed
            };
        }
    }
}

/// Something that happened to a zone and outlives power.
#[derive(Clone)]
pub(crate) enum Change {
    Write {
        block: u32,
        data: Arc<[Buffer]>,
    },
    Reset {
        /// The medium keeps the old blocks (unreadable, unless the write pointer passes them
        /// without their being overwritten).
        keep_medium: bool,
    },
    Finish,
}

/// The change a reset makes. A medium whose write pointers are proof never shows old blocks
/// again; one that is a host file may, where its space was kept.
pub(crate) fn reset_of(config: &SimConfig, kind: ZoneKind, keep_allocated: bool) -> Change {
    Change::Reset {
        keep_medium: keep_allocated && !is_proof(config, kind) && config.history == History::Kept,
    }
}

/// Whether the write pointer of such a zone proves the blocks below it.
pub(crate) fn is_proof(config: &SimConfig, kind: ZoneKind) -> bool {
    config.geometry.write_pointer_is_proof && kind == ZoneKind::Sequential
}

impl Change {
    /// Steps a change can be torn into.
    pub fn steps(&self) -> u32 {
        match self {
            Change::Write { data, .. } => Command::data_blocks(data),
            Change::Reset { .. } | Change::Finish => 1,
        }
    }

    /// Of a write, its first `blocks` blocks.
    pub fn first(&self, blocks: u32) -> Change {
        match self {
            Change::Write { block, data } if blocks < self.steps() => {
                let mut left = blocks;
                let data = data
                    .iter()
                    .map(|buffer| {
                        let part = buffer.slice(0..left as usize);
                        left -= part.blocks();
                        part
                    })
                    .filter(|part| part.blocks() > 0)
                    .collect();
                Change::Write {
                    block: *block,
                    data,
                }
            }
            other => other.clone(),
        }
    }
}
