//! The footer: root of a checkpoint, in consecutive log blocks. With the footer alone a reader
//! finds every page and every zone of the volume as of its cut.

use crate::codec::{Put, Reader};
use crate::extent::FILE_BLOCKS_END;
use crate::gate::Features;
use crate::table::{Role, ZitEntry};
use crate::zone_header::{DELTAS, PROPERTIES, Properties, SHARED_BLOCKS, SNAPSHOTS};
use crate::{Addr, Lsn, PageId, Result, ZoneId};

const WHAT: &str = "checkpoint footer";
/// Blocks of the log that a footer has at most: who writes one sees to it that the tables do not outgrow it.
pub const FOOTER_BLOCKS_MAX: u32 = 256;

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
    /// The features of the volume. They come first in every version of the format, so that a mount
    /// notices one that was set after the headers it reads were written.
    pub features: Features,
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
    /// Where the newest lot of inode numbers ends: those that a later state handed out, before it took another, are
    /// below this.
    pub lot_end: u64,
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
    /// Blocks of the store of shared blocks ([`crate::inode::SHARED`]) that files name, or ever named, are below this: it only grows.
    /// Encoded where the features have [`SHARED_BLOCKS`], else 0.
    pub shared_end: u64,
    /// Items of the table of versions; 0 if no snapshot was ever taken. Encoded where the features have [`SNAPSHOTS`], else 0.
    pub versions: u32,
    /// Deltas that files have, in all versions. Encoded where the features have [`DELTAS`], else 0.
    pub deltas: u64,
    /// With the feature [`PROPERTIES`]: what users may have changed since the volume was made.
    pub properties: Option<Properties>,
    /// Where each MAT chunk is; [`Addr::ZERO`] for a chunk without a used entry.
    pub mat: Vec<Addr>,
    /// Where each ZIT chunk is.
    pub zit: Vec<Addr>,
    /// Entries that override those in the ZIT: the zones that this checkpoint wrote its own
    /// chunks into; and where it has counts, all that changed otherwise.
    pub overrides: Vec<(ZoneId, ZitEntry)>,
    /// What is valid in zones of which all else is as the ZIT has it, in the order of zones. There are only where
    /// [`Footer::counted`] is past the cut.
    /// Encoded behind that: their number (u32), then for each how many zones it is from the one before (varint; the first
    /// from the one before zone 0), twice its valid blocks (varint), one more if some packing units fall short, then how many (u8).
    pub counts: Vec<(ZoneId, Valid)>,
}

/// What is valid in a zone, as in [`ZitEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Valid {
    /// Blocks.
    pub blocks: u32,
    /// Packing units fewer than they have.
    pub short: u8,
}

impl Valid {
    /// Of an entry.
    #[must_use]
    pub fn of(entry: &ZitEntry) -> Valid {
        Valid {
            blocks: entry.valid,
            short: entry.short,
        }
    }

    /// The entry, with this in its place.
    #[must_use]
    pub fn within(self, entry: ZitEntry) -> ZitEntry {
        ZitEntry {
            valid: self.blocks,
            short: self.short,
            ..entry
        }
    }
}

impl Footer {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.features.put(&mut out);
        out.put_u64(self.checkpoint);
        out.put_u64(self.cut.0);
        out.put_u64(self.replay.sequence);
        out.put_u64(self.replay.addr.to_raw());
        out.put_u64(self.root.0);
        out.put_u64(self.page_limit);
        out.put_u64(self.next_ino);
        out.put_u64(self.lot_end);
        out.put_u64(self.inodes);
        out.put_u64(self.reserved_blocks);
        out.put_u64(self.write_clock);
        out.put_u64(self.next_zone_sequence);
        out.put_u32(self.reserve_basis_points);
        out.put_u32(self.max_open);
        out.put_u32(self.max_active);
        if self.features.incompatible & SHARED_BLOCKS != 0 {
            out.put_u64(self.shared_end);
        }
        if self.features.incompatible & SNAPSHOTS != 0 {
            out.put_u32(self.versions);
        }
        if self.features.incompatible & DELTAS != 0 {
            out.put_u64(self.deltas);
        }
        if let Some(properties) = &self.properties {
            properties.put(&mut out);
        }
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
            self.put_counts(&mut out);
        }
        out
    }

    /// As read. Unknown incompatible features are an error.
    pub fn decode(bytes: &[u8]) -> Result<Footer> {
        let mut r = Reader::new(bytes, WHAT);
        let features = Features::read(&mut r)?;
        features.check()?;
        let checkpoint = r.u64()?;
        let cut = Lsn(r.u64()?);
        let replay = LogPosition {
            sequence: r.u64()?,
            addr: Addr::from_raw(r.u64()?),
        };
        let root = PageId(r.u64()?);
        let page_limit = r.u64()?;
        let next_ino = r.u64()?;
        let lot_end = r.u64()?;
        let inodes = r.u64()?;
        let reserved_blocks = r.u64()?;
        let write_clock = r.u64()?;
        let next_zone_sequence = r.u64()?;
        let reserve_basis_points = r.u32()?;
        let max_open = r.u32()?;
        let max_active = r.u32()?;
        let shared_end = match features.incompatible & SHARED_BLOCKS {
            0 => 0,
            _ => r.u64()?,
        };
        if shared_end > FILE_BLOCKS_END {
            return Err(r.bad("end of the shared blocks", shared_end));
        }
        let versions = match features.incompatible & SNAPSHOTS {
            0 => 0,
            _ => r.u32()?,
        };
        let deltas = match features.incompatible & DELTAS {
            0 => 0,
            _ => r.u64()?,
        };
        let properties = match features.incompatible & PROPERTIES {
            0 => None,
            _ => Some(Properties::read(&mut r)?),
        };
        let mat = chunks(&mut r)?;
        let zit = chunks(&mut r)?;
        let count = r.u32()?;
        let mut overrides = Vec::new();
        for _ in 0..count {
            overrides.push((ZoneId(r.u32()?), ZitEntry::read(&mut r)?));
        }
        let counted = if r.is_empty() { cut } else { Lsn(r.u64()?) };
        if counted < cut {
            return Err(r.bad("last record counted", counted.0));
        }
        let counts = read_counts(&mut r)?;
        if counted == cut && !counts.is_empty() {
            return Err(r.bad("last record counted", counted.0));
        }
        r.end()?;
        Ok(Footer {
            features,
            checkpoint,
            cut,
            counted,
            replay,
            root,
            page_limit,
            next_ino,
            lot_end,
            inodes,
            reserved_blocks,
            write_clock,
            next_zone_sequence,
            reserve_basis_points,
            max_open,
            max_active,
            shared_end,
            versions,
            deltas,
            properties,
            mat,
            zit,
            overrides,
            counts,
        })
    }

    fn put_counts(&self, out: &mut Vec<u8>) {
        if self.counts.is_empty() {
            return;
        }
        out.put_u32(self.counts.len() as u32);
        let mut next = 0;
        for (zone, valid) in &self.counts {
            let at = u64::from(zone.0) + 1;
            out.put_varint(at - next);
            next = at;
            out.put_varint(u64::from(valid.blocks) << 1 | u64::from(valid.short > 0));
            if valid.short > 0 {
                out.put_u8(valid.short);
            }
        }
    }

    /// Puts counts and overrides into the table of its chunks, by `change`, which is given a zone and what becomes of its
    /// entry, and answers whether the table has the zone. Answers the zones that it has not.
    #[must_use]
    pub fn complete(
        &self,
        mut change: impl FnMut(ZoneId, &dyn Fn(ZitEntry) -> ZitEntry) -> bool,
    ) -> Vec<ZoneId> {
        let mut missing = Vec::new();
        let mut put = |zone: ZoneId, becomes: &dyn Fn(ZitEntry) -> ZitEntry| {
            if !change(zone, becomes) {
                missing.push(zone);
            }
        };
        for (zone, valid) in &self.counts {
            // Of a chunk that is lost there is nothing to count.
            put(*zone, &|entry| match entry.role {
                Role::Free => entry,
                _ => valid.within(entry),
            });
        }
        for (zone, entry) in &self.overrides {
            put(*zone, &|_| *entry);
        }
        missing
    }
}

fn read_counts(r: &mut Reader<'_>) -> Result<Vec<(ZoneId, Valid)>> {
    if r.is_empty() {
        return Ok(Vec::new());
    }
    let count = r.u32()?;
    let mut counts = Vec::new();
    let mut next = 0u64;
    for _ in 0..count {
        let distance = r.varint()?;
        next = next.saturating_add(distance);
        let zone = next
            .checked_sub(1)
            .and_then(|zone| u32::try_from(zone).ok());
        let zone = zone
            .filter(|_| distance > 0)
            .ok_or_else(|| r.bad("zone counted", distance))?;
        let blocks = r.varint()?;
        let short = match blocks & 1 {
            0 => 0,
            _ => match r.u8()? {
                0 => return Err(r.bad("packing units", 0)),
                short => short,
            },
        };
        let blocks = u32::try_from(blocks >> 1).map_err(|_| r.bad("blocks counted", blocks))?;
        if short > 0 && blocks == 0 {
            return Err(r.bad("packing units", short.into()));
        }
        counts.push((ZoneId(zone), Valid { blocks, short }));
    }
    Ok(counts)
}

fn chunks(r: &mut Reader<'_>) -> Result<Vec<Addr>> {
    // No more than there are bytes for: the limit is the writer's.
    let count = r.u32()? as usize;
    if count > r.remaining() / size_of::<u64>() {
        return Err(r.bad("chunks", count as u64));
    }
    (0..count).map(|_| r.u64().map(Addr::from_raw)).collect()
}
