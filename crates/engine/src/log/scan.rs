//! Finding the log. Only zones whose header says so are log zones; in each, the
//! last good block is searched back from the write pointer.

use std::collections::BTreeSet;

use persimmon_device::{Buffer, ZoneId, ZoneInfo, ZoneState};
use persimmon_format::envelope;
use persimmon_format::gate::{FixedFields, Votes};
use persimmon_format::log::LogBlock;
use persimmon_format::page::PAGE_BLOCKS_MAX;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, VolumeKey};

use super::blocks::{READ_BLOCKS, last_good};
use super::chain;
use super::zone::{FoundZone, LogCopy};
use crate::error::{Error, Result};
use crate::headers::header_blocks;
use crate::media::Media;

/// The volume as its zone headers tell, and its log zones, oldest first.
pub(crate) struct FoundLog {
    pub(crate) identity: VolumeIdentity,
    pub(crate) zones: Vec<FoundZone>,
    /// Zones of which nothing can be decoded, where the log may have gone on.
    pub(crate) undecodable: Vec<ZoneId>,
}

/// Zones besides the candidates whose headers are asked where those of the candidates name several volumes alike, or none.
const ZONES_ASKED_MAX: usize = 64;

/// With fewer candidates than this, their copies are read too: the only candidate may hold the header of another volume.
const CANDIDATES_SURE: usize = 2;

/// What the headers of the log candidates are like.
#[derive(Default)]
struct Headers {
    /// The volume that they name.
    uuid: Option<[u8; 16]>,
    /// All of it that are intact, of whatever version.
    intact: Vec<(Addr, FixedFields)>,
    good: Vec<(ZoneHeader, ZoneInfo)>,
    /// The newest one of a zone that is no candidate, if these were asked.
    elsewhere: Option<ZoneHeader>,
    /// Written zones without a good header.
    suspect: Vec<(ZoneId, ZoneInfo)>,
    problem: Option<Error>,
}

/// A written zone that may be one of the log's, and what its first block may be.
struct Candidate {
    zone: ZoneId,
    info: ZoneInfo,
    /// Intact headers, of whatever volume and version.
    blocks: Vec<(FixedFields, Buffer)>,
    problem: Option<Error>,
}

impl Candidate {
    fn read(media: &Media, zone: ZoneId, info: ZoneInfo) -> Candidate {
        let mut candidate = Candidate {
            zone,
            info,
            blocks: Vec::new(),
            problem: None,
        };
        let first = header_blocks(media, zone).take(1);
        first.for_each(|block| candidate.take(block));
        if !candidate.has_header() {
            candidate.read_others(media);
        }
        candidate
    }

    /// Whether one of the headers is that of this zone, of whatever version.
    fn has_header(&self) -> bool {
        let addr = Addr::new(DeviceId(0), self.zone, 0);
        let is_its = |(_, block): &(FixedFields, Buffer)| {
            let header = ZoneHeader::decode(block).map_err(Error::damaged(addr));
            match header {
                Ok(header) => header.zone == self.zone,
                Err(error) => matches!(error, Error::Unsupported { .. }),
            }
        };
        self.blocks.iter().any(is_its)
    }

    /// What its copies and its stripe set have.
    fn read_others(&mut self, media: &Media) {
        for block in header_blocks(media, self.zone).skip(1) {
            self.take(block);
        }
    }

    fn take(&mut self, block: Result<Buffer>) {
        let addr = Addr::new(DeviceId(0), self.zone, 0);
        let read = block.and_then(|block| {
            let fixed = FixedFields::read(&block).map_err(Error::damaged(addr))?;
            Ok((fixed, block))
        });
        match read {
            Ok(read) => self.blocks.push(read),
            Err(error) => self.problem = self.problem.take().or(Some(error)),
        }
    }
}

/// Reads the headers of the log candidates.
fn read_headers(media: &Media, report: &[ZoneInfo]) -> Headers {
    let places = media.geometry().log_places();
    let written = |zone: u32| {
        let info = report.get(zone as usize)?;
        let readable = !matches!(info.state, ZoneState::Offline | ZoneState::Empty);
        (readable && readable_blocks(info) > 0).then_some((ZoneId(zone), *info))
    };
    let mut candidates: Vec<Candidate> = { places.iter().copied().filter_map(written) }
        .map(|(zone, info)| Candidate::read(media, zone, info))
        .collect();
    let mut votes = votes(&candidates);
    if votes.are_of_several() || candidates.len() < CANDIDATES_SURE {
        // One zone may hold anything: what stands for it elsewhere is asked as well.
        for candidate in candidates.iter_mut().filter(|one| one.blocks.len() == 1) {
            candidate.read_others(media);
        }
        votes = self::votes(&candidates);
    }
    let mut others = Vec::new();
    if votes.are_tied() || !candidates.iter().any(Candidate::has_header) {
        let zones = (0..report.len() as u32).filter(|zone| !places.contains(zone));
        for (zone, info) in zones.filter_map(written).take(ZONES_ASKED_MAX) {
            let block = header_blocks(media, zone).next().and_then(Result::ok);
            let fixed = block.and_then(|block| Some((FixedFields::read(&block).ok()?, block)));
            if let Some((fixed, block)) = fixed {
                votes.add(&fixed, !info.state.is_worn_out());
                others.push((zone, fixed, block));
            }
        }
    }
    let mut headers = Headers {
        uuid: votes.winner(),
        ..Headers::default()
    };
    for (zone, fixed, block) in others {
        headers.add_other(zone, fixed, &block);
    }
    for candidate in candidates {
        headers.add(candidate);
    }
    headers.good.sort_by_key(|(header, _)| header.sequence);
    headers
}

fn votes(candidates: &[Candidate]) -> Votes {
    let mut votes = Votes::default();
    for candidate in candidates {
        for (fixed, _) in &candidate.blocks {
            votes.add(fixed, !candidate.info.state.is_worn_out());
        }
    }
    votes
}

impl Headers {
    /// Adds a zone that is no candidate.
    fn add_other(&mut self, zone: ZoneId, fixed: FixedFields, block: &Buffer) {
        if Some(fixed.uuid) != self.uuid {
            return;
        }
        self.intact.push((Addr::new(DeviceId(0), zone, 0), fixed));
        let header = ZoneHeader::decode(block).ok();
        let newest = self.elsewhere.as_ref().map_or(0, |newest| newest.sequence);
        if let Some(header) = header.filter(|it| it.zone == zone && it.sequence > newest) {
            self.elsewhere = Some(header);
        }
    }

    /// Adds a candidate: with the header that it has of the volume.
    fn add(&mut self, candidate: Candidate) {
        let Candidate {
            zone,
            info,
            blocks,
            problem,
        } = candidate;
        let addr = Addr::new(DeviceId(0), zone, 0);
        let (mut good, mut is_unsupported, mut is_of_others) = (None, false, !blocks.is_empty());
        let mut problem = problem;
        for (fixed, block) in blocks {
            if Some(fixed.uuid) != self.uuid {
                continue;
            }
            is_of_others = false;
            self.intact.push((addr, fixed));
            match ZoneHeader::decode(&block).map_err(Error::damaged(addr)) {
                Ok(header) if header.zone == zone => good = good.or(Some(header)),
                Ok(_) => {}
                // It counts: all that are intact do.
                Err(Error::Unsupported { .. }) => is_unsupported = true,
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        match good {
            Some(header) => self.good.push((header, info)),
            None if is_unsupported => {}
            // What an earlier volume left where nothing can be reset.
            None if is_of_others && info.state.is_worn_out() => {}
            None => {
                self.suspect.push((zone, info));
                self.problem = self.problem.take().or(problem);
            }
        }
    }
}

/// Who the volume is: of its headers the newest tells, and all of them what features it has. An error if one
/// of them asks for more than this program knows.
fn identify(headers: &Headers) -> Result<VolumeIdentity> {
    for (addr, fixed) in &headers.intact {
        fixed.check().map_err(Error::damaged(*addr))?;
    }
    let newest = headers.good.last().map(|(header, _)| header);
    // The header of the only zone that the log has may be damaged: its blocks are used all the same.
    let newest = newest.or(headers
        .elsewhere
        .as_ref()
        .filter(|_| !headers.suspect.is_empty()));
    let mut identity = match newest {
        Some(newest) => newest.volume.clone(),
        None => return Err(no_volume(headers.problem.clone())),
    };
    for (_, fixed) in &headers.intact {
        identity.add_features(fixed.features);
    }
    Ok(identity)
}

/// Finds the volume and its log.
pub(crate) fn find(media: &Media, report: &[ZoneInfo]) -> Result<FoundLog> {
    let headers = read_headers(media, report);
    let identity = identify(&headers)?;
    let key = identity.key();
    let mut zones: Vec<FoundZone> = headers
        .good
        .iter()
        .filter(|(header, _)| header.role == Role::Log)
        .map(|(header, info)| {
            let copy = LogCopy {
                zone: header.zone,
                write_pointer: readable_blocks(info),
                state: info.state,
                headless: false,
            };
            let first = header.first_log_sequence;
            FoundZone::new(copy, header.partner, header.sequence, first, info.capacity)
        })
        .collect();
    // A log zone whose header is damaged must not be passed over: what it holds may be newer than
    // the rest. Its blocks tell as much as the header.
    let (mut unreadable, mut undecodable) = (None, Vec::new());
    for (zone, info) in &headers.suspect {
        match search(media, &key, *zone, info) {
            Ok(Content::Log(found)) => {
                tracing::warn!(
                    zone = zone.0,
                    "the header of a log zone is damaged; its blocks are used"
                );
                zones.push(found);
            }
            Ok(Content::Nothing | Content::Other) => {}
            Ok(Content::Undecodable) => undecodable.push(*zone),
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => unreadable = unreadable.or(Some(error)),
        }
    }
    zones.sort_by_key(|found| found.zone.sequence);
    if identity.copies() > 1 {
        zones = join_pairs(zones);
    } else {
        // One that is offline tells nothing either. Of a pair the other does.
        let places = media.geometry().log_places().into_iter();
        undecodable.extend(places.map(ZoneId).filter(|zone| {
            let info = report.get(zone.0 as usize);
            info.is_some_and(|info| info.state == ZoneState::Offline)
        }));
    }
    // What cannot be read may be where the log goes on, unless it ends before the end of a zone.
    let goes_on = zones
        .last()
        .is_none_or(|newest| newest.write_pointer >= newest.zone.capacity);
    if goes_on && let Some(error) = unreadable {
        return Err(error);
    }
    if zones.is_empty()
        && let Some(zone) = undecodable.first()
    {
        return Err(Error::Inconsistent(format!(
            "no zone of the log has a good header, and nothing of zone {zone} can be decoded"
        )));
    }
    if zones.is_empty() && headers.good.is_empty() {
        return Err(no_volume(headers.problem));
    }
    let found = zones.clone();
    let zones = chain::of(media, &key, zones, identity.copies())?;
    if !may_go_on_elsewhere(media, &key, zones.last(), &found)? {
        undecodable.clear();
    }
    let partners = partners(&headers, zones.last());
    undecodable.retain(|zone| !partners.contains(zone));
    for found in &zones {
        if let [Some(one), Some(other)] = found.copies {
            media.pairs.join(one.zone, other.zone);
        }
    }
    Ok(FoundLog {
        identity,
        zones,
        undecodable,
    })
}

/// Zones that make a pair with one that was taken into use after the log's newest zone and has a good header. What one of two alone holds was
/// never acknowledged, so the other tells whether the log goes on there.
fn partners(headers: &Headers, newest: Option<&FoundZone>) -> BTreeSet<ZoneId> {
    let since = newest.map_or(0, |newest| newest.zone.sequence);
    let of_pairs = headers.good.iter().filter(|(header, _)| {
        matches!(header.role, Role::Log | Role::Metadata) && header.sequence >= since
    });
    of_pairs.filter_map(|(header, _)| header.partner).collect()
}

/// Whether the log's newest zone is written to its end, so that the log went on elsewhere if it did. Then a
/// zone that was written to behind its header had a header that was durable: it is damaged, and no
/// power cut left it like that. For where write pointers prove nothing the device is flushed before the last block of
/// a log zone, and until the next log zone is begun behind the header of each zone taken into use. Where that one
/// is among those `found`, and not ended as one is that the log left, the log ends there.
fn may_go_on_elsewhere(
    media: &Media,
    key: &VolumeKey,
    newest: Option<&FoundZone>,
    found: &[FoundZone],
) -> Result<bool> {
    let Some(newest) = newest.filter(|newest| newest.write_pointer >= newest.zone.capacity) else {
        return Ok(newest.is_none());
    };
    if found.iter().any(|next| next.is_begun_behind(newest)) {
        return Ok(false);
    }
    if media.geometry().write_pointer_is_proof {
        return Ok(true);
    }
    let last = last_good(media, key, newest, newest.write_pointer, |_| true)?;
    Ok(last.is_some_and(|(at, _)| at.saturating_add(1) >= newest.zone.capacity))
}

/// Blocks of a zone that can be read. The write pointer of a read-only zone means nothing.
fn readable_blocks(info: &ZoneInfo) -> u32 {
    match info.state {
        ZoneState::ReadOnly => info.capacity,
        _ => info.write_pointer.min(info.capacity),
    }
}

/// Zones with the same sequence hold the same.
fn join_pairs(zones: Vec<FoundZone>) -> Vec<FoundZone> {
    let mut joined: Vec<FoundZone> = Vec::with_capacity(zones.len());
    for found in zones {
        match joined.last_mut() {
            Some(last) if last.zone.sequence == found.zone.sequence && last.copies[1].is_none() => {
                last.join(&found);
            }
            _ => joined.push(found),
        }
    }
    joined
}

const PAGE_BLOCKS: u32 = PAGE_BLOCKS_MAX as u32;

/// What a written zone without a good header holds.
enum Content {
    /// Nothing: no block was written behind the header. A power cut leaves that, as a zone is taken into use.
    Nothing,
    /// The log.
    Log(FoundZone),
    /// Blocks of this volume that are not the log's.
    Other,
    /// Nothing that can be decoded.
    Undecodable,
}

/// Searches a zone whole, piece by piece, for what tells which it is. Of log blocks those of its newest use
/// count: what a power cut lost may have left older ones in its place.
fn search(media: &Media, key: &VolumeKey, zone: ZoneId, info: &ZoneInfo) -> Result<Content> {
    let write_pointer = readable_blocks(info);
    if write_pointer <= 1 {
        return Ok(Content::Nothing);
    }
    let copy = LogCopy {
        zone,
        write_pointer,
        state: info.state,
        headless: true,
    };
    let mut log: Option<FoundZone> = None;
    let (mut other, mut unreadable) = (false, None);
    // A zone that could not be written to may have been finished: what is not written reads as zeros.
    let mut is_written = info.state.is_active();
    for start in (1..write_pointer).step_by(READ_BLOCKS as usize) {
        let count = READ_BLOCKS.min(write_pointer - start);
        for (block, at) in read_singly(media, zone, start, count)
            .into_iter()
            .zip(start..)
        {
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    unreadable = unreadable.or(Some(error));
                    continue;
                }
            };
            is_written |= block.iter().any(|byte| *byte != 0);
            let addr = Addr::new(DeviceId(0), zone, at);
            envelope::check_version(&block, key).map_err(Error::damaged(addr))?;
            let Ok(fields) = envelope::peek(&block) else {
                continue;
            };
            let blocks = u32::from(fields.blocks).min(write_pointer - at);
            let block = match blocks {
                2..=PAGE_BLOCKS => media.read_one(addr, blocks).unwrap_or(block),
                _ => block,
            };
            match LogBlock::decode(&block, key, fields.owner) {
                Ok(decoded) => {
                    let first = decoded.sequence.checked_sub(u64::from(at - 1));
                    let newer = log.is_none_or(|log| log.zone.sequence < fields.owner);
                    if let Some(first) = first.filter(|_| newer) {
                        let capacity = info.capacity;
                        log = Some(FoundZone::new(copy, None, fields.owner, first, capacity));
                    }
                }
                Err(_) => other |= envelope::open(&block, key, fields.kind, None).is_ok(),
            }
        }
    }
    match (log, unreadable) {
        (Some(found), _) => Ok(Content::Log(found)),
        (None, _) if other => Ok(Content::Other),
        (None, Some(error)) => Err(error),
        (None, None) if !is_written => Ok(Content::Nothing),
        (None, None) => Ok(Content::Undecodable),
    }
}

/// Blocks of a zone; where that fails one by one, so that a bad one does not take its neighbours along.
fn read_singly(media: &Media, zone: ZoneId, start: u32, count: u32) -> Vec<Result<Buffer>> {
    let addr = Addr::new(DeviceId(0), zone, start);
    match media.read_one(addr, count) {
        Ok(bytes) => (0..count as usize)
            .map(|i| Ok(bytes.slice(i..i + 1)))
            .collect(),
        Err(_) => (0..count)
            .map(|i| media.read_one(addr.offset(i), 1))
            .collect(),
    }
}

fn no_volume(problem: Option<Error>) -> Error {
    match problem {
        Some(Error::Device(error)) => Error::Device(error),
        _ => Error::NoVolume(
            "no Persimmon volume on this device: no zone of the log has a header".into(),
        ),
    }
}
