//! Finding the log. Only zones whose header says so are log zones; in each, the
//! last good block is searched back from the write pointer.

use persimmon_device::{BLOCK_SIZE, ZoneId, ZoneInfo, ZoneState};
use persimmon_format::envelope;
use persimmon_format::log::LogBlock;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, FormatError, VolumeKey};

use super::blocks::READ_BLOCKS;
use super::chain;
use super::zone::{FoundZone, LogCopy};
use crate::error::{Error, Result};
use crate::media::Media;

/// The volume as its zone headers tell, and its log zones, oldest first.
pub(crate) struct FoundLog {
    pub(crate) identity: VolumeIdentity,
    pub(crate) zones: Vec<FoundZone>,
}

/// What the headers of the log candidates are like.
#[derive(Default)]
struct Headers {
    good: Vec<(ZoneHeader, ZoneInfo)>,
    /// Written zones without a good header.
    suspect: Vec<(ZoneId, ZoneInfo)>,
    problem: Option<Error>,
}

/// Reads the headers of the log candidates.
fn read_headers(media: &Media, report: &[ZoneInfo]) -> Headers {
    let candidates = media.geometry().log_candidates();
    let mut headers = Headers::default();
    for (i, info) in candidates.filter_map(|i| Some((i, report.get(i as usize)?))) {
        let readable = !matches!(info.state, ZoneState::Offline | ZoneState::Empty);
        if !readable || readable_blocks(info) == 0 {
            continue;
        }
        let zone = ZoneId(i);
        let addr = Addr::new(DeviceId(0), zone, 0);
        let header = media
            .read(addr, 1)
            .and_then(|block| ZoneHeader::decode(&block).map_err(Error::damaged(addr)));
        match header {
            Ok(header) if header.zone == zone => headers.good.push((header, *info)),
            Ok(_) => headers.suspect.push((zone, *info)),
            Err(error) => {
                headers.suspect.push((zone, *info));
                headers.problem = headers.problem.or(Some(error));
            }
        }
    }
    headers.good.sort_by_key(|(header, _)| header.sequence);
    headers
}

/// Finds the volume and its log.
pub(crate) fn find(media: &Media, report: &[ZoneInfo]) -> Result<FoundLog> {
    let headers = read_headers(media, report);
    let Some((newest, _)) = headers.good.last() else {
        return Err(no_volume(headers.problem));
    };
    let identity = newest.volume.clone();
    let key = identity.key();
    let mut zones: Vec<FoundZone> = headers
        .good
        .iter()
        .filter(|(header, _)| header.role == Role::Log && header.volume.uuid == identity.uuid)
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
    let mut unreadable = None;
    for (zone, info) in &headers.suspect {
        match rescue(media, &key, *zone, info) {
            Ok(Some(found)) => {
                tracing::warn!(
                    zone = zone.0,
                    "the header of a log zone is damaged; its blocks are used"
                );
                zones.push(found);
            }
            Ok(None) => {}
            Err(error) => unreadable = unreadable.or(Some(error)),
        }
    }
    zones.sort_by_key(|found| found.zone.sequence);
    if identity.copies() > 1 {
        zones = join_pairs(zones);
    }
    // What cannot be read may be where the log goes on, unless it ends before the end of a zone.
    let goes_on = zones
        .last()
        .is_none_or(|newest| newest.write_pointer >= newest.zone.capacity);
    if goes_on && let Some(error) = unreadable {
        return Err(error);
    }
    let zones = chain::of(media, &key, zones, identity.copies())?;
    for found in &zones {
        if let [Some(one), Some(other)] = found.copies {
            media.pairs.join(one.zone, other.zone);
        }
    }
    Ok(FoundLog { identity, zones })
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

/// A log zone known by the first good block in it, if there is one.
fn rescue(
    media: &Media,
    key: &VolumeKey,
    zone: ZoneId,
    info: &ZoneInfo,
) -> Result<Option<FoundZone>> {
    let write_pointer = readable_blocks(info);
    let count = write_pointer.saturating_sub(1).min(READ_BLOCKS);
    if count == 0 {
        return Ok(None);
    }
    let bytes = media.read(Addr::new(DeviceId(0), zone, 1), count)?;
    let found = bytes
        .chunks_exact(BLOCK_SIZE)
        .enumerate()
        .find_map(|(i, block)| {
            let sequence = envelope::peek(block).ok()?.owner;
            let decoded = LogBlock::decode(block, key, sequence).ok()?;
            let copy = LogCopy {
                zone,
                write_pointer,
                state: info.state,
                headless: true,
            };
            let first = decoded.sequence.checked_sub(i as u64)?;
            Some(FoundZone::new(copy, None, sequence, first, info.capacity))
        });
    Ok(found)
}

fn no_volume(problem: Option<Error>) -> Error {
    match problem {
        Some(Error::Damaged {
            source: source @ FormatError::NewerVersion { .. },
            ..
        })
        | Some(Error::Damaged {
            source: source @ FormatError::UnknownFeatures { .. },
            ..
        }) => Error::NoVolume(source.to_string()),
        Some(Error::Device(error)) => Error::Device(error),
        _ => Error::NoVolume(
            "no Persimmon volume on this device: no zone of the log has a header".into(),
        ),
    }
}
