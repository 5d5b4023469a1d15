//! The log: which zones hold it, and its blocks in order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use persimmon_device::ZoneState;
use persimmon_format::envelope;
use persimmon_format::log::{Body, LogBlock, LogState};
use persimmon_format::page::PAGE_BLOCKS_MAX;
use persimmon_format::table::Role;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, FormatError, Lsn, VolumeKey, ZoneId};

use crate::error::{InspectError, Result};
use crate::media::Media;
use crate::volume::{ZoneHeaderFields, ZoneUse};

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 64;

/// A zone of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogZone {
    pub zone: ZoneId,
    pub sequence: u64,
    pub first_log_sequence: u64,
    pub written: u32,
    /// The zone that holds the same.
    pub partner: Option<ZoneId>,
}

/// A zone that failed was left early: from where the next one took over its numbers, its blocks do
/// not count. One that holds no good block, or only such as an earlier zone has later epochs in the
/// place of, took over nothing: its header is all that is left of it.
fn take_over(media: &Media<'_>, key: &VolumeKey, zones: Vec<LogZone>) -> Vec<LogZone> {
    let mut chain: Vec<LogZone> = Vec::with_capacity(zones.len());
    for zone in zones {
        let first = zone.first_log_sequence;
        if chain.iter().any(|earlier| earlier.end() > first) {
            let Some(newest) = last_good(media, key, &zone) else {
                continue;
            };
            let later = |earlier: &LogZone| {
                last_good(media, key, earlier).is_some_and(|block| {
                    block.sequence >= first && block.state.epoch > newest.state.epoch
                })
            };
            if chain.iter().any(later) {
                continue;
            }
            for earlier in &mut chain {
                earlier.written = earlier.place(first);
            }
        }
        chain.push(zone);
    }
    chain
}

impl LogZone {
    /// The sequence of the block behind its last one.
    fn end(&self) -> u64 {
        let blocks = u64::from(self.written).saturating_sub(1);
        self.first_log_sequence.saturating_add(blocks)
    }

    /// Where the log block with this sequence is, or would be; at most where writing ended.
    fn place(&self, sequence: u64) -> u32 {
        let place = sequence
            .saturating_sub(self.first_log_sequence)
            .saturating_add(1);
        u32::try_from(place).map_or(self.written, |place| place.min(self.written))
    }
}

/// A log block, verified to be the one that belongs at its place.
fn decode<'a>(
    media: &Media<'_>,
    bytes: &'a [u8],
    key: &VolumeKey,
    zone: &LogZone,
    place: u32,
) -> persimmon_format::Result<LogBlock<'a>> {
    let addr = Addr::new(DeviceId(0), zone.zone, place);
    let block = media.decoded(addr, LogBlock::decode(bytes, key, zone.sequence))?;
    let expected = (zone.first_log_sequence).saturating_add(u64::from(place).saturating_sub(1));
    if block.sequence != expected {
        return Err(FormatError::Mismatch {
            what: "log block",
            field: "sequence",
            found: block.sequence,
            expected,
        });
    }
    Ok(block)
}

/// The last good block of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub addr: Addr,
    pub sequence: u64,
    pub state: LogState,
}

/// The log's zones in their order, and its newest block.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub zones: Vec<LogZone>,
    pub newest: Option<Newest>,
}

/// Zones with a header of the volume.
fn zones_with_headers(uses: &[ZoneUse]) -> impl Iterator<Item = (ZoneId, &ZoneHeaderFields)> {
    uses.iter().zip(0..).filter_map(|(used, zone)| match used {
        ZoneUse::Header(fields) => Some((ZoneId(zone), fields)),
        _ => None,
    })
}

impl Log {
    /// Finds the log among its candidates: in each the last good block, searched back from the
    /// write pointer.
    pub(crate) fn find(media: &Media<'_>, key: &VolumeKey, uses: &[ZoneUse]) -> Log {
        let mut zones: Vec<LogZone> = media
            .log_candidates()
            .filter_map(|zone| match uses.get(zone.0 as usize) {
                Some(ZoneUse::Header(fields)) if fields.role == Role::Log => {
                    let partner = media.partner(zone);
                    let other = partner.map_or(0, |partner| media.written(partner));
                    Some(LogZone {
                        zone: media.first(zone),
                        sequence: fields.sequence,
                        first_log_sequence: fields.first_log_sequence,
                        written: media.written(zone).max(other),
                        partner,
                    })
                }
                _ => None,
            })
            .collect();
        zones.sort_by_key(|zone| (zone.sequence, zone.zone));
        zones.dedup_by_key(|zone| (zone.sequence, zone.zone));
        let zones = take_over(media, key, zones);
        let newest = zones
            .iter()
            .filter_map(|zone| last_good(media, key, zone))
            .max_by_key(|newest| (newest.state.epoch, newest.sequence));
        Log { zones, newest }
    }

    /// Whether the log's newest zone is written to its end, so that the log went on elsewhere if it did. Then a
    /// zone that was written to behind a header that is not good now is damaged: where write pointers prove nothing
    /// the device is flushed before the last block of a log zone, and behind each header until the next log zone
    /// is begun. Where that one is there, and not ended as one is that the log left, the log ends here.
    pub(crate) fn may_go_on_elsewhere(
        &self,
        media: &Media<'_>,
        key: &VolumeKey,
        uses: &[ZoneUse],
    ) -> bool {
        let Some(last) = self.zones.last() else {
            return true;
        };
        let begun = zones_with_headers(uses).filter(|(_, fields)| {
            fields.role == Role::Log
                && fields.sequence > last.sequence
                && fields.first_log_sequence <= last.end()
        });
        let mut takes_writes: BTreeMap<u64, bool> = BTreeMap::new();
        for (zone, fields) in begun {
            let state = media.zone(zone).map(|info| info.state);
            *takes_writes.entry(fields.sequence).or_insert(true) &=
                state.is_some_and(ZoneState::is_writable);
        }
        if takes_writes.into_values().any(|all| all) {
            return false;
        }
        let capacity = |zone| media.zone(zone).map_or(0, |info| info.capacity);
        let both = std::iter::once(last.zone).chain(last.partner);
        let end = both.map(capacity).min().unwrap_or(0);
        let is_last = |newest: Newest| newest.addr.block().saturating_add(1) >= end;
        last.written >= end
            && (media.geometry().write_pointer_is_proof
                || last_good(media, key, last).is_some_and(is_last))
    }

    /// Zones that make a pair with one that was taken into use after the newest zone and has a good header: what one of two alone holds was
    /// never acknowledged, so the other tells whether the log goes on there.
    pub(crate) fn partners_taken_since(&self, uses: &[ZoneUse]) -> BTreeSet<ZoneId> {
        let since = self.zones.last().map_or(0, |last| last.sequence);
        let of_pairs = zones_with_headers(uses).filter(|(_, fields)| {
            matches!(fields.role, Role::Log | Role::Metadata) && fields.sequence >= since
        });
        of_pairs.filter_map(|(_, fields)| fields.partner).collect()
    }

    /// The zone that holds, or would hold, the block with this sequence.
    pub(crate) fn zone_of(&self, sequence: u64) -> Option<&LogZone> {
        self.zones
            .iter()
            .rev()
            .find(|zone| zone.first_log_sequence <= sequence)
    }

    /// The sequence of the block at an address, if it is in a zone of the log.
    pub(crate) fn sequence_at(&self, addr: Addr) -> Option<u64> {
        let holds = |zone: &&LogZone| zone.zone == addr.zone() || zone.partner == Some(addr.zone());
        let zone = self.zones.iter().rfind(holds)?;
        let place = u64::from(addr.block()).checked_sub(1)?;
        Some(zone.first_log_sequence.saturating_add(place))
    }

    /// Hands each block with sequence `from` or later `visit`, in the order of the log, up to the
    /// last that counts. An error is a block that cannot be read or fails its checksum.
    pub(crate) fn scan(
        &self,
        media: &Media<'_>,
        key: &VolumeKey,
        from: u64,
        visit: &mut dyn FnMut(Addr, Result<LogBlock<'_>>) -> ControlFlow<()>,
    ) {
        for zone in &self.zones {
            let mut block = zone.place(from);
            while block < zone.written {
                let blocks = (zone.written - block).min(WINDOW_BLOCKS);
                let window = read_window(media, key, zone, block, blocks);
                for (index, bytes) in window.into_iter().enumerate() {
                    let addr = Addr::new(DeviceId(0), zone.zone, block + index as u32);
                    let decoded = bytes.as_deref().map_err(Clone::clone).and_then(|bytes| {
                        decode(media, bytes, key, zone, addr.block())
                            .map_err(|source| InspectError::Block { addr, source })
                    });
                    if visit(addr, decoded).is_break() {
                        return;
                    }
                }
                block += blocks;
            }
        }
    }
}

/// Blocks one by one, so that an unreadable one does not take its neighbours along; each from
/// whichever zone of a pair or stripe set it is good in.
fn read_window(
    media: &Media<'_>,
    key: &VolumeKey,
    zone: &LogZone,
    block: u32,
    blocks: u32,
) -> Vec<Result<Vec<u8>>> {
    let addr = Addr::new(DeviceId(0), zone.zone, block);
    let mut window = read_blocks(media, addr, blocks);
    let good = |bytes: &[u8], place| decode(media, bytes, key, zone, place).is_ok();
    let is_bad = |found: &Result<Vec<u8>>, place| !matches!(found, Ok(bytes) if good(bytes, place));
    if let Some(copy) = media.copy_of(addr) {
        let copies = read_blocks(media, copy, blocks);
        for ((found, copy), place) in window.iter_mut().zip(copies).zip(block..) {
            if is_bad(found, place) && !is_bad(&copy, place) {
                *found = copy;
            }
        }
    }
    if media.is_striped() {
        for (found, place) in window.iter_mut().zip(block..) {
            if is_bad(found, place) {
                let mut others = media.without(addr.offset(place - block), 1).flatten();
                if let Some(other) = others.find(|other| good(other, place)) {
                    *found = Ok(other.to_vec());
                }
            }
        }
    }
    window
}

fn read_blocks(media: &Media<'_>, addr: Addr, blocks: u32) -> Vec<Result<Vec<u8>>> {
    match media.read(addr, blocks) {
        Ok(buffer) => buffer
            .chunks_exact(BLOCK_SIZE)
            .map(|block| Ok(block.to_vec()))
            .collect(),
        Err(_) => (0..blocks)
            .map(|index| media.read(addr.offset(index), 1).map(|b| b.to_vec()))
            .collect(),
    }
}

fn last_good(media: &Media<'_>, key: &VolumeKey, zone: &LogZone) -> Option<Newest> {
    let mut end = zone.written;
    while end > 1 {
        let start = end.saturating_sub(WINDOW_BLOCKS).max(1);
        let window = read_window(media, key, zone, start, end - start);
        for (index, bytes) in window.iter().enumerate().rev() {
            if let Ok(bytes) = bytes
                && let Ok(block) = decode(media, bytes, key, zone, start + index as u32)
            {
                return Some(Newest {
                    addr: Addr::new(DeviceId(0), zone.zone, start + index as u32),
                    sequence: block.sequence,
                    state: block.state,
                });
            }
        }
        end = start;
    }
    None
}

/// What the blocks of a log zone tell whose header is damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headless {
    pub fields: ZoneHeaderFields,
    /// Records in it or later ones have this LSN or a later one.
    pub first_lsn: Lsn,
    /// Records up to this LSN were durable.
    pub durable: Lsn,
}

impl Headless {
    /// Whether a record behind the header was durable. Then the header was too, and went bad; else
    /// a crash may have cut it off.
    pub(crate) fn was_durable(&self) -> bool {
        self.durable >= self.first_lsn
    }
}

/// What a written zone without a good header holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// Nothing: no block was written behind the header.
    Nothing,
    /// The log.
    Log(Headless),
    /// Blocks of this volume that are not the log's.
    Other,
    /// Nothing that can be decoded, or a part cannot be read.
    Undecodable,
}

/// What a block of a zone without a header is.
enum Seen {
    Log(Headless),
    Other,
}

fn look(media: &Media<'_>, key: &VolumeKey, addr: Addr, bytes: &[u8]) -> Option<Seen> {
    let _ = media.decoded(addr, envelope::check_version(bytes, key));
    let envelope = envelope::peek(bytes).ok()?;
    let Ok(block) = LogBlock::decode(bytes, key, envelope.owner) else {
        let blocks = envelope.blocks.clamp(1, PAGE_BLOCKS_MAX as u16);
        let mut ways = media.ways(addr, blocks.into());
        let is_whole = |b: &[u8]| envelope::open(b, key, envelope.kind, None).is_ok();
        return ways.any(|whole| is_whole(&whole)).then_some(Seen::Other);
    };
    let place = u64::from(addr.block()).saturating_sub(1);
    let first_log_sequence = block.sequence.checked_sub(place)?;
    let fields = ZoneHeaderFields {
        role: Role::Log,
        sequence: envelope.owner,
        first_log_sequence,
        partner: None,
    };
    Some(Seen::Log(Headless {
        fields,
        first_lsn: match block.body {
            Body::Journal { first_lsn, .. } => first_lsn,
            Body::Footer { .. } => Lsn(u64::MAX),
        },
        durable: block.state.durable,
    }))
}

/// Searches a zone without a header whole. Of log blocks those of its newest use count.
pub(crate) fn search(media: &Media<'_>, key: &VolumeKey, zone: ZoneId) -> Content {
    let mut found: Option<Headless> = None;
    let mut other = false;
    let written = media.written(zone);
    if written <= 1 {
        return Content::Nothing;
    }
    // A zone that could not be written to may have been finished: what is not written reads as zeros.
    let info = media.zone(zone);
    let mut is_written = info.is_none_or(|info| info.state.is_active());
    let mut start = 1;
    while start < written {
        let blocks = (written - start).min(WINDOW_BLOCKS);
        let addr = Addr::new(DeviceId(0), zone, start);
        let window = read_blocks(media, addr, blocks);
        for (bytes, at) in window.iter().zip(start..) {
            let Ok(bytes) = bytes else {
                continue;
            };
            is_written |= bytes.iter().any(|byte| *byte != 0);
            let addr = Addr::new(DeviceId(0), zone, at);
            let mut others = media.without(addr, 1).flatten();
            let seen = look(media, key, addr, bytes)
                .or_else(|| others.find_map(|block| look(media, key, addr, &block)));
            let headless = match seen {
                Some(Seen::Log(headless)) => headless,
                Some(Seen::Other) => {
                    other = true;
                    continue;
                }
                None => continue,
            };
            let known = found.get_or_insert(headless);
            if known.fields.sequence < headless.fields.sequence {
                *known = headless;
            }
            known.durable = known.durable.max(headless.durable);
            known.first_lsn = known.first_lsn.min(headless.first_lsn);
        }
        start += blocks;
    }
    match found {
        Some(headless) => Content::Log(headless),
        None if other => Content::Other,
        None if !is_written => Content::Nothing,
        None => Content::Undecodable,
    }
}
