//! What a device was asked to do.

use persimmon_device::Command;

/// Commands that took effect, and the blocks they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Blocks read.
    pub read_blocks: u64,
    /// Writes at the write pointer.
    pub writes: u64,
    /// Blocks of such writes.
    pub write_blocks: u64,
    /// Zone appends.
    pub appends: u64,
    /// Blocks appended.
    pub append_blocks: u64,
    /// Zone resets.
    pub resets: u64,
    /// Zone finishes.
    pub finishes: u64,
    /// Explicit opens.
    pub opens: u64,
    /// Closes.
    pub closes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Commands of any kind that were answered with an error, a power cut excepted.
    pub errors: u64,
}

impl Counters {
    /// All commands that took effect.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.reads + self.changes()
    }

    /// All but reads: the moments at which a power cut makes a difference.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.writes
            + self.appends
            + self.resets
            + self.finishes
            + self.opens
            + self.closes
            + self.flushes
    }

    /// Blocks sent to the device.
    #[must_use]
    pub fn written_blocks(&self) -> u64 {
        self.write_blocks + self.append_blocks
    }

    pub(crate) fn count(&mut self, command: &Command) {
        match command {
            Command::Read { blocks, .. } => {
                self.reads += 1;
                self.read_blocks += u64::from(*blocks);
            }
            Command::Write { data, .. } => {
                self.writes += 1;
                self.write_blocks += u64::from(Command::data_blocks(data));
            }
            Command::Append { data, .. } => {
                self.appends += 1;
                self.append_blocks += u64::from(Command::data_blocks(data));
            }
            Command::Reset { .. } => self.resets += 1,
            Command::Finish { .. } => self.finishes += 1,
            Command::Open { .. } => self.opens += 1,
            Command::Close { .. } => self.closes += 1,
            Command::Record => {}
            Command::Flush => self.flushes += 1,
        }
    }
}
