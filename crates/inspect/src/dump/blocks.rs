//! Structures as they lie on the device: zone headers, pages, summaries, whatever a block holds.

use persimmon_device::Buffer;
use persimmon_format::envelope::{self, Kind};
use persimmon_format::log::LogBlock;
use persimmon_format::page::PageView;
use persimmon_format::summary::Summary;
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::zone_header::{self, ZoneHeader};
use persimmon_format::{Addr, DeviceId, PageId, ZoneId};
use serde::Serialize;

use super::content::{ItemDump, hex, item, lifetime_name};
use super::log::{LogBlockDump, log_block};
use super::tables::{MatRow, ZitRow, mat_rows, zit_rows};
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
    /// UUID that the volume was made with.
    pub uuid: String,
    /// UUID that it was called by when the zone was taken into use.
    pub visible_uuid: String,
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
    /// What it describes: runs of whole blocks.
    pub runs: Vec<SummaryRow>,
    /// Compressed frames and their owners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packed: Vec<PackedRow>,
}

/// A compressed frame in a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackedRow {
    /// Block in the zone that it begins in.
    pub zone_block: u32,
    /// First byte in that block.
    pub start: usize,
    /// Compressed bytes.
    pub bytes: u32,
    /// How they are compressed.
    pub codec: &'static str,
    /// Blocks of the file that they give.
    pub blocks: u8,
    /// The file it was written for.
    pub ino: u64,
    /// Block of the file.
    pub file_block: u64,
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
        visible_uuid: uuid_text(&volume.visible_uuid),
        label: volume.label.clone(),
        features: flags.map(|bits| format!("{bits:#x}")),
        created_seconds: volume.created_seconds,
        zone_count: volume.zone_count,
        zone_blocks: volume.zone_blocks,
    }
}

pub(super) fn block(inspector: &Inspector<'_>, addr: Addr) -> Result<BlockDump> {
    let read = inspector.media.read(addr, 1)?;
    let whole = |out: &BlockDump| out.trouble.is_none();
    let out = block_as(inspector, addr, &read);
    if whole(&out) {
        return Ok(out);
    }
    // What is wrong in one zone of a stripe set is as the others have it.
    let others = inspector.media.without(addr, 1).flatten();
    let mut others = others.map(|other| block_as(inspector, addr, &other));
    Ok(others.find(whole).unwrap_or(out))
}

fn block_as(inspector: &Inspector<'_>, addr: Addr, first: &[u8]) -> BlockDump {
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
        match ZoneHeader::decode(first) {
            Ok(header) => out.zone_header = Some(header_dump(&header)),
            Err(error) => out.trouble = Some(error.to_string()),
        }
    } else if let Err(error) = enveloped(inspector, addr, first, &mut out) {
        out.trouble = Some(error.to_string());
    }
    if out.trouble.is_some() {
        out.bytes = Some(first.chunks(32).map(hex).collect());
    }
    out
}

fn enveloped(
    inspector: &Inspector<'_>,
    addr: Addr,
    first: &[u8],
    out: &mut BlockDump,
) -> Result<()> {
    let wrong = |source| InspectError::Block { addr, source };
    let fields = envelope::peek(first).map_err(wrong)?;
    let (fields, payload) = inspector
        .media
        .read_good(addr, fields.blocks.into(), |whole| {
            let opened = envelope::open(whole, &inspector.key, fields.kind, None);
            let (fields, payload) = opened.map_err(wrong)?;
            Ok((fields, payload.to_vec()))
        })?;
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
            let entries = MatEntry::decode_chunk(&payload).map_err(wrong)?;
            out.mat = Some(mat_rows(&entries, fields.owner));
        }
        Kind::ZitChunk => {
            let entries = ZitEntry::decode_chunk(&payload).map_err(wrong)?;
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
    let packed = summary.packed.iter().map(|entry| PackedRow {
        zone_block: entry.zone_block,
        start: entry.packed(addr.zone()).start(),
        bytes: entry.frame.len,
        codec: entry.frame.codec.name(),
        blocks: entry.frame.blocks,
        ino: entry.ino.0,
        file_block: entry.file_block,
    });
    Ok(SummaryDump {
        addr: addr.to_string(),
        previous: summary.previous,
        runs: runs.collect(),
        packed: packed.collect(),
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
        let mut ways = inspector.media.ways(addr, 1);
        let is = |bytes: Buffer| summary(inspector, addr, &bytes, header.sequence).ok();
        found.extend(ways.find_map(is));
    }
    Ok(found)
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
