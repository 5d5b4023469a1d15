//! Summary blocks of data zones, each from wherever it is good.

use persimmon_device::Buffer;
use persimmon_format::summary::Summary;
use persimmon_format::{Addr, DeviceId, FormatError, ZoneId};

use crate::error::{InspectError, Result};
use crate::volume::Inspector;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 64;

/// A data zone in one of its uses.
#[derive(Clone, Copy)]
pub(crate) struct DataZone<'a, 'd> {
    pub inspector: &'a Inspector<'d>,
    pub zone: ZoneId,
    pub sequence: u64,
}

impl DataZone<'_, '_> {
    fn addr(self, block: u32) -> Addr {
        Addr::new(DeviceId(0), self.zone, block)
    }

    fn decode(self, at: u32, block: &[u8]) -> Result<Summary, FormatError> {
        let summary = Summary::decode(block, &self.inspector.key, self.sequence, at);
        self.inspector.media.decoded(self.addr(at), summary)
    }

    /// The summary at a place.
    pub(crate) fn summary(self, at: u32) -> Result<Summary> {
        let addr = self.addr(at);
        self.inspector.media.read_good(addr, 1, |block| {
            let summary = self.decode(at, block);
            summary.map_err(|source| InspectError::Block { addr, source })
        })
    }

    /// The last summary below a block, and its place. `passed` is told of the blocks behind it, as they were read.
    pub(crate) fn last_below(
        self,
        end: u32,
        passed: &mut dyn FnMut(Addr, &[u8]),
    ) -> Option<(u32, Summary)> {
        let mut end = end;
        while end > 1 {
            let start = end.saturating_sub(WINDOW_BLOCKS).max(1);
            let read = self.singly(start..end);
            let others = self
                .inspector
                .media
                .others(self.addr(start), end - start)
                .flatten();
            let others: Vec<Buffer> = others.collect();
            for (index, block) in read.iter().enumerate().rev() {
                let at = start + index as u32;
                let others = others.iter().map(|other| other.slice(index..index + 1));
                let mut ways = block.iter().cloned().chain(others);
                if let Some(summary) = ways.find_map(|block| self.decode(at, &block).ok()) {
                    return Some((at, summary));
                }
                if let Some(block) = block {
                    passed(self.addr(at), block);
                }
            }
            end = start;
        }
        None
    }

    /// Blocks of the zone; where not all can be read one by one.
    fn singly(self, range: std::ops::Range<u32>) -> Vec<Option<Buffer>> {
        let media = &self.inspector.media;
        let blocks = range.len();
        match media.read(self.addr(range.start), blocks as u32) {
            Ok(buffer) => (0..blocks)
                .map(|at| Some(buffer.slice(at..at + 1)))
                .collect(),
            Err(_) => range.map(|at| media.read(self.addr(at), 1).ok()).collect(),
        }
    }
}
