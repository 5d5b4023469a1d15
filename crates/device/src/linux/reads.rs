//! Reads to where blocks are wanted, by the thread that waits for them.

use super::Port;
use super::failure::Attempt;
use super::queue::{QueueState, Shared};
use super::ring::Wire;
use crate::{BLOCK_SIZE, DeviceError, Result, ZoneId};

impl<P: Port> Shared<P> {
    /// Reads whole blocks without memory in between, without a thread that has to be woken, and without a ring. Nothing where that cannot be:
    /// direct I/O goes to whole pages only, and what is done to the zone may have to end before.
    pub(super) fn read_into(
        &self,
        zone: ZoneId,
        block: u32,
        into: &mut [u8],
    ) -> Option<Result<()>> {
        let blocks = into.len() / BLOCK_SIZE;
        let is_whole = into.len().is_multiple_of(BLOCK_SIZE)
            && into.as_ptr().addr().is_multiple_of(BLOCK_SIZE)
            && (1..=self.geometry.max_transfer_blocks as usize).contains(&blocks);
        if !P::Wire::READS_HERE || !is_whole {
            return None;
        }
        match self.admit_read_into(zone, block, blocks as u32) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        // What is not there to be read is told of as ever.
        let place = self.port.reading(zone, block).ok();
        let read = place.and_then(|place| self.ring.read_here(&place, into));
        self.leave(1);
        let failure = match read? {
            Ok(_) => return Some(Ok(())),
            Err(failure) => failure,
        };
        let attempt = Attempt {
            operation: "read",
            zone,
            block,
        };
        Some(Err(self.failed(attempt, self.report_one(zone), &failure)))
    }

    /// Counts a read that may begin now.
    fn admit_read_into(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<bool> {
        let mut state = self.room()?;
        state.check_read(zone, block, blocks)?;
        let may_begin = !state.holds_back_reads(zone);
        state.commands += usize::from(may_begin);
        Ok(may_begin)
    }
}

impl<P: Port> QueueState<P> {
    /// An error where not all of the blocks can be read.
    pub(super) fn check_read(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<()> {
        let limit = self.machine.readable(zone)?;
        let end = block.saturating_add(blocks);
        if end > limit {
            return Err(DeviceError::ReadPastEnd {
                zone,
                block,
                end,
                limit,
            });
        }
        Ok(())
    }
}
