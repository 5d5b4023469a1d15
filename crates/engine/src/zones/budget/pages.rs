//! What pages take on the device: those that checkpoints are to write, and those that are there.

use persimmon_format::page::PAGE_BLOCKS_MAX;
use persimmon_format::table::MatEntry;

/// Blocks that a page takes that does not compress: only one that is larger by that takes another.
pub(super) const PAGE_BLOCKS_USUAL: u64 = PAGE_BLOCKS_MAX as u64 - 1;
/// Pages that tell what others take.
const PAGES_TO_TELL: u64 = 64;

/// What the pages of the tree take on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Pages that were ever written.
    pub(crate) pages: u64,
    /// Blocks that they take, in one copy.
    pub(crate) blocks: u64,
}

impl Written {
    pub(crate) fn count(&mut self, entry: &MatEntry) {
        self.pages += u64::from(entry.is_used());
        self.blocks += u64::from(entry.blocks);
    }

    /// Blocks written for so many changes of different leaves: the leaves, and a quarter for the pages above them and
    /// the chunks that tell where they are.
    pub(crate) fn for_leaves(&self, leaves: u64) -> u64 {
        let blocks = u128::from(leaves) * u128::from(self.blocks) / u128::from(self.pages.max(1));
        u64::try_from(blocks + blocks / 4).unwrap_or(u64::MAX)
    }

    /// For how many such changes there is room in so many blocks.
    pub(in crate::zones) fn leaves_in(&self, room: u64) -> u64 {
        let leaves = u128::from(room) * 4 / 5 * u128::from(self.pages);
        u64::try_from(leaves / u128::from(self.blocks.max(1))).unwrap_or(u64::MAX)
    }
}

/// Pages that checkpoints may have to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// How many, for the next one.
    pub(crate) count: u64,
    /// How many one under way has, whether they are written yet or not.
    pub(crate) writing: u64,
    /// How many the tree has.
    pub(crate) all: u64,
    /// What those take that the tree has on the device.
    pub(crate) written: Written,
}

impl Pages {
    /// Blocks that they may take when they are written: as much as a page may take, but no more than all that the
    /// tree has. For those it is an eighth of a block each more than they took on average, since pages change; where
    /// there are too few to tell, as much as a page may take. Of some pages the average says nothing: leaves with
    /// checksums take twice what names do.
    ///
    /// A tree whose pages stop being compressible all at once takes more than that. The zones that
    /// the log may grow into are there for it too, which needs none once the checkpoint is durable; and one whose
    /// pages find no room all the same has left some for one of the zones alone, which frees what it wrote.
    pub(crate) fn blocks(self) -> u64 {
        let most = self.count * PAGE_BLOCKS_USUAL;
        let Written { pages, blocks } = self.written;
        if pages < PAGES_TO_TELL {
            most
        } else {
            most.min((self.all * (8 * blocks + pages)).div_ceil(8 * pages))
        }
    }
}
