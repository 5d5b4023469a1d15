//! Summaries of data zones, which name the owners of the blocks before them.

use persimmon_device::{BLOCK_SIZE, ZoneId};
use persimmon_format::summary::Summary;
use persimmon_format::{Addr, DeviceId};

use super::Store;
use crate::error::Error;

/// Blocks searched for a summary at once.
const SEARCH_BLOCKS: u32 = 64;

impl Store {
    pub(crate) fn summary_at(&self, zone: ZoneId, at: u32) -> Option<Summary> {
        let sequence = self.zones.entry(zone)?.sequence;
        let addr = Addr::new(DeviceId(0), zone, at);
        let summary = self.media.read_good(addr, 1, |block| {
            Summary::decode(&block, &self.key, sequence, at).map_err(Error::damaged(addr))
        });
        summary.ok()
    }

    /// The last summary below a block of a zone, and its place.
    pub(crate) fn last_summary(&self, zone: ZoneId, below: u32) -> Option<(u32, Summary)> {
        let sequence = self.zones.entry(zone)?.sequence;
        let mut end = below;
        while end > 1 {
            let start = end.saturating_sub(SEARCH_BLOCKS).max(1);
            if let Ok(bytes) = self
                .media
                .read(Addr::new(DeviceId(0), zone, start), end - start)
            {
                for (i, block) in bytes.chunks_exact(BLOCK_SIZE).enumerate().rev() {
                    let at = start + i as u32;
                    if let Ok(summary) = Summary::decode(block, &self.key, sequence, at) {
                        return Some((at, summary));
                    }
                }
            }
            end = start;
        }
        None
    }
}
