//! The newest checkpoint: its footer and its two tables.

use persimmon_format::Addr;
use persimmon_format::table::{MatEntry, ZitEntry};
use serde::Serialize;

use super::content::lifetime_name;
use crate::error::Result;
use crate::volume::{Inspector, uuid_text};

/// A footer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FooterDump {
    /// Where.
    pub addr: String,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Its cut.
    pub cut_lsn: u64,
    /// Up to here the zone table has counted.
    pub counted_lsn: u64,
    /// Where replay starts.
    pub replay_addr: String,
    /// The sequence of that block.
    pub replay_sequence: u64,
    /// Root page.
    pub root_page: u64,
    /// Page ids are below this.
    pub page_limit: u64,
    /// Inode numbers handed out are below this.
    pub next_ino: u64,
    /// Those handed out since are below this.
    pub lot_end: u64,
    /// Inodes.
    pub inodes: u64,
    /// Preallocated blocks.
    pub reserved_blocks: u64,
    /// Blocks written so far.
    pub write_clock: u64,
    /// Sequence of the next zone.
    pub next_zone_sequence: u64,
    /// Blocks of the store of shared blocks that files ever named are below this.
    pub shared_end: u64,
    /// Items of the table of versions; 0 if no snapshot was ever taken.
    pub versions: u32,
    /// Deltas that files have, in all versions.
    pub deltas: u64,
    /// Reserve, 1/100 percent.
    pub reserve_basis_points: u32,
    /// Open zones, 0 for no limit.
    pub max_open: u32,
    /// Active zones, 0 for no limit.
    pub max_active: u32,
    /// What was changed of the volume since it was made; null if nothing was.
    pub properties: Option<PropertiesDump>,
    /// Places of the MAT's chunks.
    pub mat_chunks: Vec<String>,
    /// Places of the ZIT's chunks.
    pub zit_chunks: Vec<String>,
    /// Entries that override the ZIT's.
    pub overrides: Vec<ZitRow>,
    /// What is valid in zones that are else as in the ZIT.
    pub counts: Vec<CountRow>,
}

/// What can be changed of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PropertiesDump {
    /// Zones.
    pub zone_count: u32,
    /// UUID that users see.
    pub uuid: String,
    /// Label.
    pub label: String,
}

/// What is valid in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CountRow {
    /// Which.
    pub zone: u32,
    /// Blocks.
    pub valid: u32,
    /// Packing units fewer than they have.
    pub short: u8,
}

/// An entry of the MAT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatRow {
    /// Page id (in a chunk shown by address: counted from the chunk's first).
    pub page: u64,
    /// Where it is.
    pub addr: String,
    /// Blocks it takes.
    pub blocks: u16,
}

/// An entry of the ZIT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZitRow {
    /// The zone.
    pub zone: u32,
    /// Its use.
    pub role: &'static str,
    /// Lifetime class.
    pub lifetime: &'static str,
    /// Blocks in use.
    pub valid_blocks: u32,
    /// Blocks written.
    pub write_pointer: u32,
    /// Resets.
    pub resets: u32,
    /// Number of its present use.
    pub sequence: u64,
    /// Write clock when it was last written.
    pub last_write: u64,
}

pub(super) fn footer(inspector: &Inspector<'_>) -> Result<FooterDump> {
    let checkpoint = inspector.checkpoint()?;
    let footer = &checkpoint.footer;
    let places = |list: &[Addr]| list.iter().map(Addr::to_string).collect();
    Ok(FooterDump {
        addr: checkpoint.addr.to_string(),
        checkpoint: footer.checkpoint,
        cut_lsn: footer.cut.0,
        counted_lsn: footer.counted.0,
        replay_addr: footer.replay.addr.to_string(),
        replay_sequence: footer.replay.sequence,
        root_page: footer.root.0,
        page_limit: footer.page_limit,
        next_ino: footer.next_ino,
        lot_end: footer.lot_end,
        inodes: footer.inodes,
        reserved_blocks: footer.reserved_blocks,
        write_clock: footer.write_clock,
        next_zone_sequence: footer.next_zone_sequence,
        shared_end: footer.shared_end,
        versions: footer.versions,
        deltas: footer.deltas,
        reserve_basis_points: footer.reserve_basis_points,
        max_open: footer.max_open,
        max_active: footer.max_active,
        properties: footer.properties.as_ref().map(|properties| PropertiesDump {
            zone_count: properties.zone_count,
            uuid: uuid_text(&properties.uuid),
            label: properties.label.clone(),
        }),
        mat_chunks: places(&footer.mat),
        zit_chunks: places(&footer.zit),
        overrides: footer
            .overrides
            .iter()
            .map(|(zone, entry)| zit_row(zone.0, entry))
            .collect(),
        counts: footer
            .counts
            .iter()
            .map(|(zone, valid)| CountRow {
                zone: zone.0,
                valid: valid.blocks,
                short: valid.short,
            })
            .collect(),
    })
}

pub(super) fn mat_rows(entries: &[MatEntry], chunk: u64) -> Vec<MatRow> {
    let first = chunk.saturating_mul(MatEntry::PER_CHUNK as u64);
    entries
        .iter()
        .zip(first..)
        .filter(|(entry, _)| entry.is_used())
        .map(|(entry, page)| MatRow {
            page,
            addr: entry.addr.to_string(),
            blocks: entry.blocks,
        })
        .collect()
}

pub(super) fn mat(inspector: &Inspector<'_>) -> Result<Vec<MatRow>> {
    Ok(mat_rows(&inspector.checkpoint()?.mat, 0))
}

pub(super) fn zit_rows(entries: &[ZitEntry], chunk: u64) -> Vec<ZitRow> {
    let first = chunk.saturating_mul(ZitEntry::PER_CHUNK as u64) as u32;
    entries
        .iter()
        .zip(first..)
        .map(|(entry, zone)| zit_row(zone, entry))
        .collect()
}

fn zit_row(zone: u32, entry: &ZitEntry) -> ZitRow {
    ZitRow {
        zone,
        role: entry.role.name(),
        lifetime: lifetime_name(entry.lifetime),
        valid_blocks: entry.valid,
        write_pointer: entry.write_pointer,
        resets: entry.resets,
        sequence: entry.sequence,
        last_write: entry.last_write,
    }
}

pub(super) fn zit(inspector: &Inspector<'_>) -> Result<Vec<ZitRow>> {
    Ok(zit_rows(&inspector.checkpoint()?.zit, 0))
}
