//! The newest footer: where a recovery begins. The log's newest good block leads to it.

use persimmon_format::footer::Footer;
use persimmon_format::{Addr, DeviceId, FormatError, VolumeKey};

use super::blocks::{Read, Window, from, last_good};
use super::zone::FoundZone;
use crate::error::{Error, Result};
use crate::media::Media;

/// The newest good block of the log leads to the newest footer: it belongs to it, if that is whole,
/// or it names the one that was durable when it was written. (The zones that only the footer
/// before needs may be reset as soon as the newest is durable.) Also answers whether a newer one was
/// begun.
///
/// Where a write pointer proves nothing, blocks that an earlier power cut voided can lie behind
/// newer ones that the last power cut lost, and name a footer whose zone is reset. They are known
/// by an earlier block of a later epoch, which is believed in their place.
pub(crate) fn newest_footer(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
) -> Result<Option<(Addr, Footer, bool)>> {
    let mut failed: Option<Nameless> = None;
    for found in zones.iter().rev() {
        let mut end = found.write_pointer;
        loop {
            let invalidated = failed.as_ref().map_or(0, |failed| failed.invalidated);
            let later = |read: &Read| read.state().is_some_and(|state| state.epoch > invalidated);
            let Some((at, read)) = last_good(media, key, found, end, later)? else {
                break;
            };
            match footer_of(media, key, zones, found, at, &read) {
                Ok(footer) => return Ok(footer),
                Err(error @ Error::Unsupported { .. }) => return Err(error),
                Err(error) => {
                    let state = read.state();
                    failed = Some(Nameless {
                        invalidated: state.map_or(u32::MAX, |state| state.epoch),
                        names: state.map_or(Addr::ZERO, |state| state.footer),
                        sequence: found.sequence_at(at),
                        error: failed.map_or(error, |failed| failed.error),
                    });
                    end = at;
                }
            }
        }
    }
    match failed {
        None => Ok(None),
        Some(believed) => match later_than_named(media, key, zones, &believed)? {
            Some((addr, footer)) => Ok(Some((addr, footer, false))),
            None => Err(believed.error),
        },
    }
}

/// The block that is believed of a log, where the footer that it names cannot be read.
struct Nameless {
    /// The epoch of the block: blocks of this epoch and earlier ones no longer count.
    invalidated: u32,
    names: Addr,
    sequence: u64,
    /// What is wrong with the newest one.
    error: Error,
}

/// The newest whole footer that comes after the one that a block names, where that is gone.
///
/// A recovery that finds a later footer than the one named resets the zones that only the one
/// named needs, and may be interrupted before it has written a block that names the later one. Nothing is gone
/// back to: it must lie behind the one named, and nothing be missing of the log from there on.
fn later_than_named(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    believed: &Nameless,
) -> Result<Option<(Addr, Footer)>> {
    // Of a place behind the block that names it the zone was reset, and has another life.
    let place = zone_of(zones, believed.names).map(|f| f.sequence_at(believed.names.block()));
    let named = place.filter(|at| *at <= believed.sequence);
    for (i, found) in zones.iter().enumerate().rev() {
        let mut end = found.write_pointer;
        let is_footer = |read: &Read| matches!(read, Read::Footer { .. });
        while let Some((at, read)) = last_good(media, key, found, end, is_footer)? {
            let Read::Footer { state, part, .. } = read else {
                return Ok(None);
            };
            // All parts of one are whole or none counts.
            let block = at.saturating_sub(u32::from(part));
            end = block.min(at);
            if named.is_some_and(|named| found.sequence_at(block) <= named) {
                return Ok(None);
            }
            let addr = Addr::new(DeviceId(0), found.zone.zone, block);
            let footer = match read_footer(media, key, zones, addr) {
                Err(error @ (Error::Device(_) | Error::Unsupported { .. })) => return Err(error),
                Err(_) => continue,
                Ok(footer) => footer,
            };
            // One behind a block of a later epoch was voided.
            let before = zones.iter().take(i).map(|f| (f, f.write_pointer));
            let mut voided = false;
            for (found, end) in before.chain([(found, block)]) {
                let later = |read: &Read| read.state().is_some_and(|s| s.epoch > state.epoch);
                voided = last_good(media, key, found, end, later)?.is_some();
                if voided {
                    break;
                }
            }
            if !voided {
                let is_whole = goes_on(from(zones, footer.replay.sequence), &footer);
                return Ok(is_whole.then_some((addr, footer)));
            }
        }
    }
    Ok(None)
}

/// Whether these zones hold the log from where this footer wants it replayed, none missing.
fn goes_on(zones: &[FoundZone], footer: &Footer) -> bool {
    let begins = |found: &FoundZone| found.zone.first_log_sequence <= footer.replay.sequence;
    let follows = |pair: &[FoundZone]| match pair {
        [one, next] => next.zone.first_log_sequence <= one.sequence_at(one.zone.capacity),
        _ => true,
    };
    zones.first().is_some_and(begins) && zones.windows(2).all(follows)
}

/// The footer that a good block belongs to or names, and whether a newer one was begun; none if
/// none was durable when it was written.
fn footer_of(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    found: &FoundZone,
    at: u32,
    read: &Read,
) -> Result<Option<(Addr, Footer, bool)>> {
    if let Read::Footer { part, .. } = read {
        let block = at.saturating_sub(u32::from(*part));
        let addr = Addr::new(DeviceId(0), found.zone.zone, block);
        match read_footer(media, key, zones, addr) {
            Ok(footer) => return Ok(Some((addr, footer, false))),
            // Whether it is whole is not known, or what it says.
            Err(error @ (Error::Device(_) | Error::Unsupported { .. })) => return Err(error),
            Err(_) => {}
        }
    }
    let begun = matches!(read, Read::Footer { .. });
    match read.state().map(|state| state.footer) {
        Some(addr) if addr != Addr::ZERO => {
            read_footer(media, key, zones, addr).map(|footer| Some((addr, footer, begun)))
        }
        _ => Ok(None),
    }
}

/// The log zone that holds a place.
fn zone_of(zones: &[FoundZone], addr: Addr) -> Option<&FoundZone> {
    // The name of a zone that is gone may be that of one in another use by now.
    let is_there = |f: &&FoundZone| f.copies().any(|copy| copy.zone == addr.zone());
    let named = || zones.iter().rfind(|f| f.named == addr.zone());
    zones.iter().rfind(is_there).or_else(named)
}

/// Reads a footer at its first block.
pub(crate) fn read_footer(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    addr: Addr,
) -> Result<Footer> {
    let damaged = |source| Error::damaged(addr)(source);
    let found = zone_of(zones, addr).ok_or_else(|| {
        Error::Inconsistent(format!("the newest footer, {addr}, is in no log zone"))
    })?;
    let what = "checkpoint footer";
    let mut bytes = Vec::new();
    let mut at = addr.block();
    let mut left = 1u16;
    while left > 0 {
        if at == 0 || at >= found.write_pointer {
            return Err(damaged(FormatError::Truncated { what }));
        }
        let window = Window::read(media, found, at, 1);
        match window.decode(key, at)?.0.map_err(damaged)? {
            Read::Footer {
                part,
                parts,
                bytes: body,
                ..
            } if u32::from(part) == at - addr.block() => {
                bytes.extend_from_slice(&body);
                left = parts - part - 1;
            }
            _ => return Err(damaged(FormatError::Magic { what })),
        }
        at += 1;
    }
    Footer::decode(&bytes).map_err(damaged)
}

/// The newest footer that lies whole in these blocks, if any. One behind a block of a later epoch
/// was voided. An error if it asks for more than this program knows.
pub(crate) fn latest_footer(blocks: &[Read]) -> Result<Option<(Addr, Footer)>> {
    let mut epoch = 0;
    let valid = |block: &Read| {
        let own = block.state().map_or(0, |state| state.epoch);
        epoch = epoch.max(own);
        own == epoch
    };
    let valid: Vec<bool> = blocks.iter().map(valid).collect();
    (0..blocks.len())
        .rev()
        .filter(|start| valid.get(*start).copied().unwrap_or(false))
        .find_map(|start| footer_at(blocks.get(start..)?))
        .transpose()
}

fn footer_at(blocks: &[Read]) -> Option<Result<(Addr, Footer)>> {
    let Some(Read::Footer {
        part: 0,
        parts,
        sequence: first,
        addr,
        ..
    }) = blocks.first()
    else {
        return None;
    };
    let mut bytes = Vec::new();
    for i in 0..*parts {
        match blocks.get(usize::from(i))? {
            Read::Footer {
                part,
                sequence,
                bytes: body,
                ..
            } if *part == i && *sequence == first.wrapping_add(u64::from(i)) => {
                bytes.extend_from_slice(body);
            }
            _ => return None,
        }
    }
    match Footer::decode(&bytes) {
        Ok(footer) => Some(Ok((*addr, footer))),
        Err(error) if error.is_unsupported() => Some(Err(Error::damaged(*addr)(error))),
        Err(_) => None,
    }
}
