//! The footer: root of a checkpoint, in consecutive log blocks. With the footer alone a reader
//! finds every page and every zone of the volume as of its cut.

use crate::codec::{Put, Reader};
use crate::table::ZitEntry;
use crate::{Addr, Lsn, PageId, Result, ZoneId};

const WHAT: &str = "checkpoint footer";
/// Most chunks of one table (337 pages or 126 zones each).
pub const CHUNKS_MAX: usize = 1 << 15;

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the block in the log.
    pub sequence: u64,
    /// Where it is (or will be, if it is not written yet: the block after the last one).
    pub addr: Addr,
}

/// A checkpoint's root. Encoded in the order of the fields: integers little endian, each list as
/// its length (u32) and its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Number of the checkpoint, from 1.
    pub checkpoint: u64,
    /// Records up to this LSN are in the checkpoint.
    pub cut: Lsn,
    /// Records up to this LSN, which is not before the cut, are in the counts of the ZIT: those
    /// past the cut are durable, and replayed without counting. Encoded last, where it is past the
    /// cut.
    pub counted: Lsn,
    /// The first log block that can hold a record past the cut.
    pub replay: LogPosition,
    /// Root page of the tree.
    pub root: PageId,
    /// Page ids in use or once used are below this.
    pub page_limit: u64,
    /// Inode numbers handed out are below this.
    pub next_ino: u64,
    /// Inodes there are.
    pub inodes: u64,
    /// Blocks set aside by preallocation.
    pub reserved_blocks: u64,
    /// The volume's write clock: blocks written so far.
    pub write_clock: u64,
    /// The next zone taken into use gets this sequence.
    pub next_zone_sequence: u64,
    /// Share of the volume held back for cleaning and metadata, in 1/100 percent.
    pub reserve_basis_points: u32,
    /// Limits the volume was made to respect, 0 for none: open zones.
    pub max_open: u32,
    /// The same for active zones.
    pub max_active: u32,
    /// Where each MAT chunk is; [`Addr::ZERO`] for a chunk without a used entry.
    pub mat: Vec<Addr>,
    /// Where each ZIT chunk is.
    pub zit: Vec<Addr>,
    /// Entries that override those in the ZIT: the zones that this checkpoint wrote its own
    /// chunks into.
    pub overrides: Vec<(ZoneId, ZitEntry)>,
}

impl Footer {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.checkpoint);
        out.put_u64(self.cut.0);
        out.put_u64(self.replay.sequence);
        out.put_u64(self.replay.addr.to_raw());
        out.put_u64(self.root.0);
        out.put_u64(self.page_limit);
        out.put_u64(self.next_ino);
        out.put_u64(self.inodes);
        out.put_u64(self.reserved_blocks);
        out.put_u64(self.write_clock);
        out.put_u64(self.next_zone_sequence);
        out.put_u32(self.reserve_basis_points);
        out.put_u32(self.max_open);
        out.put_u32(self.max_active);
        for chunks in [&self.mat, &self.zit] {
            out.put_u32(chunks.len() as u32);
            for addr in chunks {
                out.put_u64(addr.to_raw());
            }
        }
        out.put_u32(self.overrides.len() as u32);
        for (zone, entry) in &self.overrides {
            out.put_u32(zone.0);
            entry.encode(&mut out);
        }
        if self.counted > self.cut {
            out.put_u64(self.counted.0);
        }
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Footer> {
        let mut r = Reader::new(bytes, WHAT);
        let checkpoint = r.u64()?;
        let cut = Lsn(r.u64()?);
        let replay = LogPosition {
            sequence: r.u64()?,
            addr: Addr::from_raw(r.u64()?),
        };
        let root = PageId(r.u64()?);
        let page_limit = r.u64()?;
        let next_ino = r.u64()?;
        let inodes = r.u64()?;
        let reserved_blocks = r.u64()?;
        let write_clock = r.u64()?;
        let next_zone_sequence = r.u64()?;
        let reserve_basis_points = r.u32()?;
        let max_open = r.u32()?;
        let max_active = r.u32()?;
        let mat = chunks(&mut r)?;
        let zit = chunks(&mut r)?;
        let count = r.u32()?;
        let mut overrides = Vec::new();
        for _ in 0..count {
            overrides.push((ZoneId(r.u32()?), ZitEntry::read(&mut r)?));
        }
        let counted = match r.is_empty() {
            true => cut,
            false => Lsn(r.u64()?),
        };
        if counted < cut {
            return Err(r.bad("last record counted", counted.0));
        }
        r.end()?;
        Ok(Footer {
            checkpoint,
            cut,
            counted,
            replay,
            root,
            page_limit,
            next_ino,
            inodes,
            reserved_blocks,
            write_clock,
            next_zone_sequence,
            reserve_basis_points,
            max_open,
            max_active,
            mat,
            zit,
            overrides,
        })
    }
}

fn chunks(r: &mut Reader<'_>) -> Result<Vec<Addr>> {
    let count = r.u32()? as usize;
    if count > CHUNKS_MAX {
        return Err(r.bad("chunks", count as u64));
    }
    (0..count).map(|_| r.u64().map(Addr::from_raw)).collect()
}
