//! Reading the log's blocks, from whichever copy is good.

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::log::{Body, LogBlock, LogState};
use persimmon_format::{Addr, DeviceId, FormatError, Lsn, VolumeKey};

use super::cut::spared;
use super::zone::{FoundZone, LogCopy};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::zones::budget::JOURNAL_BYTES_LIMIT;
use crate::zones::log_zones::LogZone;

/// Blocks read at once when searching and reading.
pub(super) const READ_BLOCKS: u32 = 64;
/// Good log blocks kept in memory for replay: twice the longest journal.
const REPLAY_BLOCKS_MAX: usize = 2 * (JOURNAL_BYTES_LIMIT / BLOCK_SIZE as u64) as usize;

/// A log block as read, or the place of one that is not intact.
pub(crate) enum Read {
    Journal {
        state: LogState,
        first_lsn: Lsn,
        lead: usize,
        bytes: Vec<u8>,
    },
    Footer {
        state: LogState,
        addr: Addr,
        sequence: u64,
        part: u16,
        parts: u16,
        bytes: Vec<u8>,
    },
    Bad {
        addr: Addr,
    },
}

impl Read {
    pub(crate) fn state(&self) -> Option<LogState> {
        match self {
            Read::Journal { state, .. } | Read::Footer { state, .. } => Some(*state),
            Read::Bad { .. } => None,
        }
    }

    /// Blocks that its records took less, being compressed.
    pub(crate) fn spared_blocks(&self) -> u64 {
        match self {
            Read::Journal { bytes, .. } => spared(bytes.len()),
            Read::Footer { .. } | Read::Bad { .. } => 0,
        }
    }
}

fn decode(block: &[u8], key: &VolumeKey, zone: &LogZone, at: u32) -> Result<Read, FormatError> {
    let log_block = LogBlock::decode(block, key, zone.sequence)?;
    let expected = zone
        .first_log_sequence
        .wrapping_add(u64::from(at))
        .wrapping_sub(1);
    if log_block.sequence != expected {
        return Err(FormatError::Mismatch {
            what: "log block",
            field: "sequence",
            found: log_block.sequence,
            expected,
        });
    }
    let (state, sequence) = (log_block.state, log_block.sequence);
    Ok(match log_block.body {
        Body::Journal {
            first_lsn,
            lead,
            records,
        } => Read::Journal {
            state,
            first_lsn,
            lead: lead.into(),
            bytes: records.to_vec(),
        },
        Body::Footer { part, parts, bytes } => {
            let addr = Addr::new(DeviceId(0), zone.zone, at);
            Read::Footer {
                state,
                addr,
                sequence,
                part,
                parts,
                bytes: bytes.to_vec(),
            }
        }
    })
}

/// Some blocks of a log zone, as each zone that holds them has them.
pub(super) struct Window<'a> {
    media: &'a Media,
    found: &'a FoundZone,
    start: u32,
    /// Of each zone the blocks below its write pointer.
    copies: Vec<Vec<Result<Buffer>>>,
}

impl<'a> Window<'a> {
    /// Reads blocks; where that fails one by one, so that a bad one does not take its neighbours
    /// along.
    pub(super) fn read(
        media: &'a Media,
        found: &'a FoundZone,
        start: u32,
        count: u32,
    ) -> Window<'a> {
        let read = |copy: &LogCopy| {
            let count = copy.write_pointer.saturating_sub(start).min(count);
            let addr = Addr::new(DeviceId(0), copy.zone, start);
            let one = |i| media.read_one(addr.offset(i), 1);
            match count {
                0 => Vec::new(),
                1 => vec![one(0)],
                _ => match media.read_one(addr, count) {
                    Ok(bytes) => (0..count as usize)
                        .map(|i| Ok(bytes.slice(i..i + 1)))
                        .collect(),
                    Err(_) => (0..count).map(one).collect(),
                },
            }
        };
        Window {
            media,
            found,
            start,
            copies: found.copies().map(read).collect(),
        }
    }

    /// The block at this place: what is good of it anywhere, of several the one of the latest
    /// epoch. Also answers whether the zones differ in it. An error if it is good nowhere, and could
    /// not be read somewhere: it may be there; and if it is intact, of a version that is not known.
    pub(super) fn decode(
        &self,
        key: &VolumeKey,
        at: u32,
    ) -> Result<(Result<Read, FormatError>, bool)> {
        let place = at.saturating_sub(self.start) as usize;
        let what = "log block";
        let mut good: Option<(&Buffer, Read)> = None;
        let (mut bad, mut unreadable) = (None, None);
        let mut uneven = false;
        for copy in &self.copies {
            let block = match copy.get(place) {
                Some(Ok(block)) => block,
                Some(Err(error)) => {
                    unreadable = Some(error);
                    continue;
                }
                None => {
                    bad = Some(FormatError::Truncated { what });
                    continue;
                }
            };
            match (decode(block, key, &self.found.zone, at), &good) {
                (Err(error), _) if error.is_unsupported() => {
                    let addr = Addr::new(DeviceId(0), self.found.zone.zone, at);
                    return Err(Error::damaged(addr)(error));
                }
                (Err(error), _) => bad = Some(error),
                (Ok(read), None) => good = Some((block, read)),
                (Ok(_), Some((other, _))) if block[..] == other[..] => {}
                (Ok(read), Some((_, other))) => {
                    uneven = true;
                    if read.state().map(|s| s.epoch) > other.state().map(|s| s.epoch) {
                        good = Some((block, read));
                    }
                }
            }
        }
        match (good, unreadable) {
            (Some((_, read)), unreadable) => {
                uneven |= bad.is_some() || unreadable.is_some();
                Ok((Ok(read), uneven))
            }
            (None, unreadable) => {
                let addr = Addr::new(DeviceId(0), self.found.zone.zone, at);
                let mut others = self.media.others(addr, 1).flatten();
                let other = others.find_map(|block| decode(&block, key, &self.found.zone, at).ok());
                match (other, unreadable) {
                    (Some(read), _) => Ok((Ok(read), false)),
                    (None, Some(error)) => Err(error.clone()),
                    (None, None) => {
                        Ok((Err(bad.unwrap_or(FormatError::Truncated { what })), false))
                    }
                }
            }
        }
    }
}

/// The last good block of a zone below `end` for which `wanted` holds, and its place.
pub(super) fn last_good(
    media: &Media,
    key: &VolumeKey,
    found: &FoundZone,
    mut end: u32,
    wanted: impl Fn(&Read) -> bool,
) -> Result<Option<(u32, Read)>> {
    while end > 1 {
        let start = end.saturating_sub(READ_BLOCKS).max(1);
        let window = Window::read(media, found, start, end - start);
        for at in (start..end).rev() {
            match window.decode(key, at)? {
                (Ok(read), _) if wanted(&read) => return Ok(Some((at, read))),
                _ => {}
            }
        }
        end = start;
    }
    Ok(None)
}

/// The zones that hold the log from `sequence` on.
pub(crate) fn from(zones: &[FoundZone], sequence: u64) -> &[FoundZone] {
    let later = zones.iter().skip(1);
    let unneeded = later.take_while(|next| next.zone.first_log_sequence <= sequence);
    zones.get(unneeded.count()..).unwrap_or_default()
}

/// All log blocks from `sequence` on, in order, of bad ones next to each other only the first, and
/// whether of a pair of zones one has a block that the other does not have.
pub(crate) fn read_from(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    sequence: u64,
) -> Result<(Vec<Read>, bool)> {
    read_at_most(media, key, zones, sequence, REPLAY_BLOCKS_MAX)
}

pub(super) fn read_at_most(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    sequence: u64,
    blocks_max: usize,
) -> Result<(Vec<Read>, bool)> {
    let mut blocks: Vec<Read> = Vec::new();
    let mut spared = 0;
    let mut uneven = false;
    for found in zones {
        let end = found.write_pointer;
        let start = found.place(sequence);
        let mut at = start.max(1);
        while at < end {
            let count = READ_BLOCKS.min(end - at);
            let window = Window::read(media, found, at, count);
            let addr = Addr::new(DeviceId(0), found.zone.zone, at);
            // Of a stripe set too one zone may have what another lacks.
            uneven |= !media.rows_agree(addr, count);
            for at in at..at + count {
                let (decoded, differs) = window.decode(key, at)?;
                uneven |= differs;
                match decoded {
                    Ok(_) if blocks.len() as u64 + spared >= blocks_max as u64 => {
                        return Err(Error::Inconsistent(format!(
                            "the log goes on for more than {blocks_max} blocks after the \
                             newest checkpoint"
                        )));
                    }
                    Ok(read) => {
                        spared += read.spared_blocks();
                        blocks.push(read);
                    }
                    Err(_) if matches!(blocks.last(), Some(Read::Bad { .. })) => {}
                    Err(_) => blocks.push(Read::Bad {
                        addr: Addr::new(DeviceId(0), found.zone.zone, at),
                    }),
                }
            }
            at += count;
        }
    }
    Ok((blocks, uneven))
}
