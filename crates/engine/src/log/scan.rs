//! Finding the log and reading it. Only zones whose header says so are log zones; in each, the
//! last good block is searched back from the write pointer.

use persimmon_device::{BLOCK_SIZE, Buffer, ZoneId, ZoneInfo, ZoneState};
use persimmon_format::envelope;
use persimmon_format::log::{Body, LogBlock, LogState};
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, FormatError, Lsn, VolumeKey};

use super::chain;
use crate::error::{Error, Result};
use crate::media::Media;
use crate::zones::budget::JOURNAL_BYTES_LIMIT;
use crate::zones::log_zones::LogZone;

/// Blocks read at once when searching and reading.
const READ_BLOCKS: u32 = 64;
/// Good log blocks kept in memory for replay: twice the longest journal.
const REPLAY_BLOCKS_MAX: usize = 2 * (JOURNAL_BYTES_LIMIT / BLOCK_SIZE as u64) as usize;

/// One zone of the device that holds a log zone's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCopy {
    pub(crate) zone: ZoneId,
    /// Blocks that can be read.
    pub(crate) write_pointer: u32,
    state: ZoneState,
    /// Its header is damaged; its blocks told what it is.
    headless: bool,
}

/// A log zone as found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundZone {
    pub(crate) zone: LogZone,
    /// The zone that addresses name; of a pair it may be gone.
    pub(super) named: ZoneId,
    /// Blocks that can be read, and count.
    pub(crate) write_pointer: u32,
    /// The zones that hold it, one or two.
    copies: [Option<LogCopy>; 2],
}

impl FoundZone {
    fn new(
        copy: LogCopy,
        partner: Option<ZoneId>,
        sequence: u64,
        first: u64,
        capacity: u32,
    ) -> Self {
        FoundZone {
            zone: LogZone {
                zone: copy.zone,
                sequence,
                first_log_sequence: first,
                capacity,
            },
            named: partner.map_or(copy.zone, |partner| copy.zone.min(partner)),
            write_pointer: copy.write_pointer,
            copies: [Some(copy), None],
        }
    }

    /// Adds the other zone of a pair.
    fn join(&mut self, other: &FoundZone) {
        self.zone.zone = self.zone.zone.min(other.zone.zone);
        self.zone.capacity = self.zone.capacity.min(other.zone.capacity);
        self.named = self.named.min(other.named);
        self.write_pointer = self.write_pointer.max(other.write_pointer);
        self.copies[1] = other.copies[0];
    }

    /// The number of the block behind its last one.
    pub(super) fn end(&self) -> u64 {
        self.sequence_at(self.write_pointer)
    }

    /// The number of the block at this place.
    pub(super) fn sequence_at(&self, at: u32) -> u64 {
        let blocks = u64::from(at).saturating_sub(1);
        self.zone.first_log_sequence.saturating_add(blocks)
    }

    /// Where the block with this number is, or would be; at most where writing ended.
    pub(super) fn place(&self, sequence: u64) -> u32 {
        let blocks = sequence.saturating_sub(self.zone.first_log_sequence);
        let place = blocks.saturating_add(1);
        place.min(u64::from(self.write_pointer)) as u32
    }

    /// What it has from this number on does not count.
    pub(super) fn end_at(&mut self, sequence: u64) {
        self.write_pointer = self.place(sequence);
    }

    /// The zones that hold it.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &LogCopy> {
        self.copies.iter().flatten()
    }

    /// The header of one is damaged; its blocks told what it is.
    pub(crate) fn headless(&self) -> bool {
        self.copies().any(|copy| copy.headless)
    }

    /// Whether it has so many copies, and none holds less than another.
    pub(crate) fn is_whole(&self, copies: u32) -> bool {
        let mut ends = self.copies().map(|copy| copy.write_pointer);
        let first = ends.next();
        ends.all(|end| Some(end) == first) && self.copies().count() == copies as usize
    }

    /// Whether it can be written to where it ends.
    pub(crate) fn is_writable(&self, copies: u32) -> bool {
        self.is_whole(copies) && self.copies().all(|copy| copy.state.is_writable())
    }
}

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
            "no Persimmon volume on this device; make one with `persimmon mkfs`".into(),
        ),
    }
}

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
            bytes,
        } => Read::Journal {
            state,
            first_lsn,
            lead: lead.into(),
            bytes: bytes.to_vec(),
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
    found: &'a FoundZone,
    start: u32,
    /// Of each zone the blocks below its write pointer.
    copies: Vec<Vec<Result<Buffer>>>,
}

impl<'a> Window<'a> {
    /// Reads blocks; where that fails one by one, so that a bad one does not take its neighbours
    /// along.
    pub(super) fn read(media: &Media, found: &'a FoundZone, start: u32, count: u32) -> Window<'a> {
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
            found,
            start,
            copies: found.copies().map(read).collect(),
        }
    }

    /// The block at this place: what is good of it anywhere, of several the one of the latest
    /// epoch. Also answers whether the zones differ in it. An error if it is good nowhere, and could
    /// not be read somewhere: it may be there.
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
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok((Err(bad.unwrap_or(FormatError::Truncated { what })), false)),
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

fn read_at_most(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    sequence: u64,
    blocks_max: usize,
) -> Result<(Vec<Read>, bool)> {
    let mut blocks = Vec::new();
    let mut uneven = false;
    for found in zones {
        let end = found.write_pointer;
        let start = found.place(sequence);
        let mut at = start.max(1);
        while at < end {
            let count = READ_BLOCKS.min(end - at);
            let window = Window::read(media, found, at, count);
            for at in at..at + count {
                let (decoded, differs) = window.decode(key, at)?;
                uneven |= differs;
                match decoded {
                    Ok(_) if blocks.len() >= blocks_max => {
                        return Err(Error::Inconsistent(format!(
                            "the log goes on for more than {blocks_max} blocks after the \
                             newest checkpoint"
                        )));
                    }
                    Ok(read) => blocks.push(read),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use persimmon_device::{BufferMut, Command, ZonedDevice};
    use persimmon_format::PageId;
    use persimmon_format::footer::{Footer, LogPosition};
    use persimmon_sim::{SimConfig, SimDevice};

    use super::super::footers::newest_footer;
    use crate::options::Barrier;

    use super::*;

    /// A zone whose log blocks are good where `good` says so, behind a header that nobody reads.
    fn log_of(good: &[bool], key: &VolumeKey) -> (Media, FoundZone) {
        let zone = LogZone {
            zone: ZoneId(1),
            sequence: 9,
            first_log_sequence: 100,
            capacity: 64,
        };
        let mut data = BufferMut::zeroed(1 + good.len());
        let blocks = data.chunks_exact_mut(BLOCK_SIZE).skip(1).zip(good);
        for (i, (block, _)) in blocks.enumerate().filter(|(_, (_, good))| **good) {
            let content = LogBlock {
                sequence: zone.first_log_sequence + i as u64,
                state: LogState {
                    epoch: 1,
                    resume_after: Lsn(0),
                    durable: Lsn(0),
                    footer: Addr::ZERO,
                },
                body: Body::Journal {
                    first_lsn: Lsn(1),
                    lead: 0,
                    bytes: &[],
                },
            };
            content.encode_into(block, key, zone.sequence);
        }
        let device = SimDevice::new(SimConfig::new(4, 64));
        let command = Command::Write {
            zone: zone.zone,
            block: 0,
            data: vec![data.freeze()],
        };
        device.run(command).unwrap();
        let copy = LogCopy {
            zone: zone.zone,
            write_pointer: 1 + good.len() as u32,
            state: ZoneState::Closed,
            headless: false,
        };
        let (sequence, first) = (zone.sequence, zone.first_log_sequence);
        let found = FoundZone::new(copy, None, sequence, first, zone.capacity);
        (Media::new(Arc::new(device), Barrier::Auto), found)
    }

    /// Of a log zone its number, its sequence and that of its first block; of each block the epoch, the footer it
    /// names, and the checkpoint whose footer it is, if it is one.
    type Content<'a> = ((u32, u64, u64), &'a [(u32, Addr, Option<u64>)]);

    /// Puts a log zone on a device.
    fn log_zone(
        device: &SimDevice,
        key: &VolumeKey,
        ((zone, sequence, first), blocks): Content<'_>,
    ) -> FoundZone {
        let mut data = BufferMut::zeroed(1 + blocks.len());
        let places = data.chunks_exact_mut(BLOCK_SIZE).skip(1);
        for (i, (block, (epoch, names, checkpoint))) in places.zip(blocks).enumerate() {
            let footer = checkpoint.map(|checkpoint| footer(checkpoint, first).encode());
            let content = LogBlock {
                sequence: first + i as u64,
                state: LogState {
                    epoch: *epoch,
                    resume_after: Lsn(0),
                    durable: Lsn(0),
                    footer: *names,
                },
                body: match &footer {
                    None => Body::Journal {
                        first_lsn: Lsn(1),
                        lead: 0,
                        bytes: &[],
                    },
                    Some(bytes) => Body::Footer {
                        part: 0,
                        parts: 1,
                        bytes,
                    },
                },
            };
            content.encode_into(block, key, sequence);
        }
        let command = Command::Write {
            zone: ZoneId(zone),
            block: 0,
            data: vec![data.freeze()],
        };
        device.run(command).unwrap();
        let copy = LogCopy {
            zone: ZoneId(zone),
            write_pointer: 1 + blocks.len() as u32,
            state: ZoneState::Closed,
            headless: false,
        };
        FoundZone::new(copy, None, sequence, first, 64)
    }

    fn footer(checkpoint: u64, sequence: u64) -> Footer {
        Footer {
            checkpoint,
            cut: Lsn(0),
            counted: Lsn(0),
            replay: LogPosition {
                sequence,
                addr: Addr::ZERO,
            },
            root: PageId(0),
            page_limit: 0,
            next_ino: 0,
            inodes: 0,
            reserved_blocks: 0,
            write_clock: 0,
            next_zone_sequence: 0,
            reserve_basis_points: 0,
            max_open: 0,
            max_active: 0,
            mat: Vec::new(),
            zit: Vec::new(),
            overrides: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// A recovery reset the zone of the footer that was named, for it knew a later one, and was cut off before it
    /// had written a block that names that.
    #[test]
    fn where_the_footer_named_is_gone_a_later_one_is_taken() {
        let key = VolumeKey::new(&[1; 16], &[2; 32]);
        let gone = Addr::new(DeviceId(0), ZoneId(7), 30);
        let at = |zone, block| Addr::new(DeviceId(0), ZoneId(zone), block);
        let newest = |logs: &[Content<'_>]| {
            let device = SimDevice::new(SimConfig::new(8, 64));
            let mut zones = Vec::new();
            for content in logs {
                zones.push(log_zone(&device, &key, *content));
            }
            let media = Media::new(Arc::new(device), Barrier::Auto);
            let found = newest_footer(&media, &key, &zones);
            found.map(|found| found.map(|(addr, footer, _)| (addr, footer.checkpoint)))
        };
        let first: &[_] = &[(1, gone, None), (1, gone, Some(5)), (1, at(1, 2), None)];
        let named: &[_] = &[(2, gone, None)];
        let next = (2, 9, 100 + 63);
        let logs = [((1, 8, 100), first), (next, named)];
        assert_eq!(newest(&logs).unwrap(), Some((at(1, 2), 5)));
        // A zone between is missing: the footer that was named may have been there.
        assert!(newest(&[((1, 8, 100), first), ((2, 9, 500), named)]).is_err());
        // It was voided by a block of a later epoch.
        let voided: &[_] = &[(2, gone, None), (1, gone, Some(5)), (1, gone, None)];
        assert!(newest(&[((1, 8, 100), voided), ((2, 9, 163), &[(3, gone, None)])]).is_err());
        // The one named is there and damaged: nothing before it is gone back to.
        let damaged: &[_] = &[(1, gone, Some(5)), (1, gone, None), (2, at(1, 2), None)];
        assert!(newest(&[((1, 8, 100), damaged)]).is_err());
    }

    /// A journal of any length was read into memory, and an entry made for each bad block: a log
    /// zone finished early, a gigabyte of zeros, took as much again.
    #[test]
    fn what_is_kept_of_a_log_has_a_bound() {
        let key = VolumeKey::new(&[1; 16], &[2; 32]);
        let (media, zone) = log_of(&[true, false, false, true, true, false], &key);
        let read = |max| read_at_most(&media, &key, &[zone], 100, max);
        let kept: Vec<bool> = read(5)
            .unwrap()
            .0
            .iter()
            .map(|r| r.state().is_some())
            .collect();
        assert_eq!(kept, [true, false, true, true, false]);
        assert!(matches!(read(3), Err(Error::Inconsistent(_))));
    }
}
