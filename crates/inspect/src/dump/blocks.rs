//! Structures as they lie on the device.

use std::ops::ControlFlow;

use persimmon_format::envelope::{self, Kind};
use persimmon_format::log::{Body, LogBlock};
use persimmon_format::page::PageView;
use persimmon_format::summary::Summary;
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::zone_header::{self, ZoneHeader};
use persimmon_format::{Addr, DeviceId, PageId, ZoneId};
use serde::Serialize;

use super::content::{ItemDump, OpDump, hex, item, lifetime_name, op};
use crate::error::{InspectError, Result};
use crate::volume::{Inspector, read_header, uuid_text};

/// A zone header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneHeaderDump {
    /// The zone.
    pub zone: u32,
    /// Its device.
    pub device: u8,
    /// Its use.
    pub role: &'static str,
    /// Lifetime class.
    pub lifetime: &'static str,
    /// Number of this use.
    pub sequence: u64,
    /// Log zones: sequence of the block after the header.
    pub first_log_sequence: u64,
    /// UUID of the volume.
    pub uuid: String,
    /// Label of the volume.
    pub label: String,
    /// Feature flags: incompatible, read-only compatible, compatible.
    pub features: [String; 3],
    /// When the volume was made, seconds since 1970.
    pub created_seconds: i64,
    /// Zones of the device.
    pub zone_count: u32,
    /// Blocks from zone to zone.
    pub zone_blocks: u32,
}

/// The envelope of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnvelopeDump {
    /// What it holds.
    pub kind: &'static str,
    /// Blocks it takes.
    pub blocks: u16,
    /// Page id, chunk number or zone sequence.
    pub owner: u64,
    /// Checkpoint, log sequence or place.
    pub sequence: u64,
    /// Bytes of payload.
    pub payload_bytes: u32,
}

/// Whatever is at an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockDump {
    /// Where.
    pub addr: String,
    /// Use of its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_role: Option<&'static str>,
    /// Its envelope, if it has an intact one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeDump>,
    /// Decoded as a zone header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_header: Option<ZoneHeaderDump>,
    /// Decoded as a log block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_block: Option<LogBlockDump>,
    /// Decoded as a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<PageDump>,
    /// Decoded as a chunk of the MAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mat: Option<Vec<MatRow>>,
    /// Decoded as a chunk of the ZIT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zit: Option<Vec<ZitRow>>,
    /// Decoded as a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryDump>,
    /// Why it is none of these; data has no envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The bytes, 32 a line, if it is nothing known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<String>>,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogDump {
    /// Its zones, in order.
    pub zones: Vec<ZoneHeaderRow>,
    /// The last good block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// Blocks from the replay position on.
    pub blocks: Vec<LogBlockDump>,
    /// Records that a mount replays.
    pub records: Vec<RecordDump>,
}

/// A zone of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneHeaderRow {
    /// The zone.
    pub zone: u32,
    /// Its sequence.
    pub sequence: u64,
    /// Sequence of its first block.
    pub first_log_sequence: u64,
    /// Blocks written, header included.
    pub written_blocks: u32,
}

/// A log block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogBlockDump {
    /// Where.
    pub addr: String,
    /// `journal`, `footer`, or what is wrong.
    pub kind: String,
    /// Its number in the log.
    pub sequence: u64,
    /// Epoch.
    pub epoch: u32,
    /// Last LSN valid of earlier epochs.
    pub resume_after: u64,
    /// Durable LSN.
    pub durable: u64,
    /// The footer it names.
    pub footer: String,
    /// Journal: first LSN; footer: number of the part.
    pub first: u64,
    /// Journal: bytes that end a record begun before; footer: parts.
    pub lead: u16,
    /// Bytes.
    pub used_bytes: usize,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordDump {
    /// Its LSN.
    pub lsn: u64,
    /// Its operations.
    pub ops: Vec<OpDump>,
}

/// A footer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FooterDump {
    /// Where.
    pub addr: String,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Its cut.
    pub cut_lsn: u64,
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
    /// Inodes.
    pub inodes: u64,
    /// Preallocated blocks.
    pub reserved_blocks: u64,
    /// Blocks written so far.
    pub write_clock: u64,
    /// Sequence of the next zone.
    pub next_zone_sequence: u64,
    /// Reserve, 1/100 percent.
    pub reserve_basis_points: u32,
    /// Open zones, 0 for no limit.
    pub max_open: u32,
    /// Active zones, 0 for no limit.
    pub max_active: u32,
    /// Places of the MAT's chunks.
    pub mat_chunks: Vec<String>,
    /// Places of the ZIT's chunks.
    pub zit_chunks: Vec<String>,
    /// Entries that override the ZIT's.
    pub overrides: Vec<ZitRow>,
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

/// A page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageDump {
    /// Its id.
    pub page: u64,
    /// Where it is.
    pub addr: String,
    /// Blocks it takes there.
    pub blocks: u16,
    /// Level: 0 is a leaf.
    pub level: u8,
    /// The checkpoint that wrote it.
    pub checkpoint: u64,
    /// Its items.
    pub items: Vec<ItemDump>,
}

/// A summary block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SummaryDump {
    /// Where.
    pub addr: String,
    /// Block of the summary before it; 0 is none.
    pub previous: u32,
    /// What it describes.
    pub runs: Vec<SummaryRow>,
}

/// A run of blocks in a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SummaryRow {
    /// First block in the zone.
    pub zone_block: u32,
    /// Blocks.
    pub blocks: usize,
    /// The file it was written for.
    pub ino: u64,
    /// First block in the file.
    pub file_block: u64,
}

pub(super) fn header(inspector: &Inspector<'_>, zone: ZoneId) -> Result<ZoneHeaderDump> {
    Ok(header_dump(&read_header(&inspector.media, zone)?))
}

fn header_dump(header: &ZoneHeader) -> ZoneHeaderDump {
    let volume = &header.volume;
    let flags = [
        volume.incompatible,
        volume.read_only_compatible,
        volume.compatible,
    ];
    ZoneHeaderDump {
        zone: header.zone.0,
        device: header.device.0,
        role: header.role.name(),
        lifetime: lifetime_name(header.lifetime),
        sequence: header.sequence,
        first_log_sequence: header.first_log_sequence,
        uuid: uuid_text(&volume.uuid),
        label: volume.label.clone(),
        features: flags.map(|bits| format!("{bits:#x}")),
        created_seconds: volume.created_seconds,
        zone_count: volume.zone_count,
        zone_blocks: volume.zone_blocks,
    }
}

pub(super) fn block(inspector: &Inspector<'_>, addr: Addr) -> Result<BlockDump> {
    let first = inspector.media.read(addr, 1)?;
    let header = inspector.header(addr.zone());
    let mut out = BlockDump {
        addr: addr.to_string(),
        zone_role: header.map(|header| header.role.name()),
        envelope: None,
        zone_header: None,
        log_block: None,
        page: None,
        mat: None,
        zit: None,
        summary: None,
        trouble: None,
        bytes: None,
    };
    if first.starts_with(&zone_header::MAGIC) {
        match ZoneHeader::decode(&first) {
            Ok(header) => out.zone_header = Some(header_dump(&header)),
            Err(error) => out.trouble = Some(error.to_string()),
        }
    } else if let Err(error) = enveloped(inspector, addr, &first, &mut out) {
        out.trouble = Some(error.to_string());
    }
    if out.trouble.is_some() {
        out.bytes = Some(first.chunks(32).map(hex).collect());
    }
    Ok(out)
}

fn enveloped(
    inspector: &Inspector<'_>,
    addr: Addr,
    first: &[u8],
    out: &mut BlockDump,
) -> Result<()> {
    let wrong = |source| InspectError::Block { addr, source };
    let fields = envelope::peek(first).map_err(wrong)?;
    let whole = inspector.media.read(addr, fields.blocks.into())?;
    let (fields, payload) =
        envelope::open(&whole, &inspector.key, fields.kind, None).map_err(wrong)?;
    out.envelope = Some(EnvelopeDump {
        kind: fields.kind.name(),
        blocks: fields.blocks,
        owner: fields.owner,
        sequence: fields.sequence,
        payload_bytes: fields.payload_len,
    });
    match fields.kind {
        Kind::Journal | Kind::Footer => {
            let decoded = LogBlock::decode(first, &inspector.key, fields.owner).map_err(wrong)?;
            out.log_block = Some(log_block(addr, &decoded));
        }
        Kind::Page => {
            let entry = MatEntry {
                addr,
                blocks: fields.blocks,
            };
            out.page = Some(page_dump(inspector, entry, PageId(fields.owner))?);
        }
        Kind::MatChunk => {
            let entries = MatEntry::decode_chunk(payload).map_err(wrong)?;
            out.mat = Some(mat_rows(&entries, fields.owner));
        }
        Kind::ZitChunk => {
            let entries = ZitEntry::decode_chunk(payload).map_err(wrong)?;
            out.zit = Some(zit_rows(&entries, fields.owner));
        }
        Kind::Summary => {
            out.summary = Some(summary(inspector, addr, first, fields.owner).map_err(wrong)?);
        }
    }
    Ok(())
}

fn summary(
    inspector: &Inspector<'_>,
    addr: Addr,
    block: &[u8],
    zone_sequence: u64,
) -> persimmon_format::Result<SummaryDump> {
    let summary = Summary::decode(block, &inspector.key, zone_sequence, addr.block())?;
    let runs = summary.entries.iter().map(|entry| SummaryRow {
        zone_block: entry.zone_block,
        blocks: entry.crcs.len(),
        ino: entry.ino.0,
        file_block: entry.file_block,
    });
    Ok(SummaryDump {
        addr: addr.to_string(),
        previous: summary.previous,
        runs: runs.collect(),
    })
}

pub(super) fn summaries(inspector: &Inspector<'_>, zone: ZoneId) -> Result<Vec<SummaryDump>> {
    let header = inspector
        .header(zone)
        .ok_or_else(|| InspectError::NotFound {
            what: format!("the header of zone {zone}"),
        })?;
    let mut found = Vec::new();
    for block in 1..inspector.media.written(zone) {
        let addr = Addr::new(DeviceId(0), zone, block);
        let Ok(bytes) = inspector.media.read(addr, 1) else {
            continue;
        };
        if let Ok(summary) = summary(inspector, addr, &bytes, header.sequence) {
            found.push(summary);
        }
    }
    Ok(found)
}

fn log_block(addr: Addr, block: &LogBlock<'_>) -> LogBlockDump {
    let (kind, first, lead, used_bytes) = match block.body {
        Body::Journal {
            first_lsn,
            lead,
            bytes,
        } => ("journal", first_lsn.0, lead, bytes.len()),
        Body::Footer { part, parts, bytes } => ("footer", part.into(), parts, bytes.len()),
    };
    LogBlockDump {
        addr: addr.to_string(),
        kind: kind.into(),
        sequence: block.sequence,
        epoch: block.state.epoch,
        resume_after: block.state.resume_after.0,
        durable: block.state.durable.0,
        footer: block.state.footer.to_string(),
        first,
        lead,
        used_bytes,
    }
}

pub(super) fn log(inspector: &Inspector<'_>) -> Result<LogDump> {
    let log = &inspector.log;
    let from = match &inspector.checkpoint {
        Some(checkpoint) => checkpoint.footer.replay.sequence,
        None => 0,
    };
    let mut blocks = Vec::new();
    log.scan(
        &inspector.media,
        &inspector.key,
        from,
        &mut |addr, block| {
            blocks.push(match block {
                Ok(block) => log_block(addr, &block),
                Err(error) => LogBlockDump {
                    addr: addr.to_string(),
                    kind: error.to_string(),
                    sequence: 0,
                    epoch: 0,
                    resume_after: 0,
                    durable: 0,
                    footer: String::new(),
                    first: 0,
                    lead: 0,
                    used_bytes: 0,
                },
            });
            ControlFlow::Continue(())
        },
    );
    let zones = log.zones.iter().map(|zone| ZoneHeaderRow {
        zone: zone.zone.0,
        sequence: zone.sequence,
        first_log_sequence: zone.first_log_sequence,
        written_blocks: zone.written,
    });
    let records = inspector.journal.records.iter().map(|record| RecordDump {
        lsn: record.lsn.0,
        ops: record.ops.iter().map(op).collect(),
    });
    Ok(LogDump {
        zones: zones.collect(),
        newest: log.newest.map(|newest| newest.addr.to_string()),
        blocks,
        records: records.collect(),
    })
}

pub(super) fn footer(inspector: &Inspector<'_>) -> Result<FooterDump> {
    let checkpoint = inspector.checkpoint()?;
    let footer = &checkpoint.footer;
    let places = |list: &[Addr]| list.iter().map(Addr::to_string).collect();
    Ok(FooterDump {
        addr: checkpoint.addr.to_string(),
        checkpoint: footer.checkpoint,
        cut_lsn: footer.cut.0,
        replay_addr: footer.replay.addr.to_string(),
        replay_sequence: footer.replay.sequence,
        root_page: footer.root.0,
        page_limit: footer.page_limit,
        next_ino: footer.next_ino,
        inodes: footer.inodes,
        reserved_blocks: footer.reserved_blocks,
        write_clock: footer.write_clock,
        next_zone_sequence: footer.next_zone_sequence,
        reserve_basis_points: footer.reserve_basis_points,
        max_open: footer.max_open,
        max_active: footer.max_active,
        mat_chunks: places(&footer.mat),
        zit_chunks: places(&footer.zit),
        overrides: footer
            .overrides
            .iter()
            .map(|(zone, entry)| zit_row(zone.0, entry))
            .collect(),
    })
}

fn mat_rows(entries: &[MatEntry], chunk: u64) -> Vec<MatRow> {
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

fn zit_rows(entries: &[ZitEntry], chunk: u64) -> Vec<ZitRow> {
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

pub(super) fn page(inspector: &Inspector<'_>, id: PageId) -> Result<PageDump> {
    let entry = inspector
        .checkpoint()?
        .page(id)
        .ok_or_else(|| InspectError::NotFound {
            what: format!("page {id}"),
        })?;
    page_dump(inspector, entry, id)
}

fn page_dump(inspector: &Inspector<'_>, entry: MatEntry, id: PageId) -> Result<PageDump> {
    let stored = inspector.page_at(entry, Some(id))?;
    let wrong = |source| InspectError::Block {
        addr: stored.addr,
        source,
    };
    let view = PageView::new(&stored.image).map_err(wrong)?;
    let items = if view.level() == 0 {
        view.items().map(|(key, value)| item(&key, value)).collect()
    } else {
        view.children()
            .map(|(key, child)| {
                let mut row = item(&key, &[]);
                row.value.0 = format!("page {child}");
                row
            })
            .collect()
    };
    Ok(PageDump {
        page: id.0,
        addr: stored.addr.to_string(),
        blocks: stored.blocks,
        level: view.level(),
        checkpoint: stored.checkpoint,
        items,
    })
}
