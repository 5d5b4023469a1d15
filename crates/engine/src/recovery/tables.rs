//! The two tables of a checkpoint, read at mount. What is damaged ends the mount; what is lost with
//! a zone that failed is left out, and the volume is read-only then: what does not need it can be
//! read.

use std::collections::HashMap;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{BLOCK_SIZE, ZoneId, ZoneInfo, ZoneState};
use persimmon_format::envelope::{self, Kind};
use persimmon_format::footer::Footer;
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::VolumeIdentity;
use persimmon_format::{Addr, VolumeKey};

use crate::error::{Error, Result};
use crate::headers::read_header;
use crate::media::Media;
use crate::meta::mat::Mat;

/// MAT and ZIT as a footer leads to them.
pub(crate) struct Tables {
    /// The ZIT as its chunks have it, with what the footer tells of zones.
    pub(crate) zit: PerZone<ZitEntry>,
    /// What the chunks have of those zones: of many zones that takes less than a second table.
    pub(crate) as_written: Vec<(ZoneId, ZitEntry)>,
    pub(crate) mat: Mat,
    /// Chunks that are lost.
    pub(crate) zit_lost: u32,
    pub(crate) mat_lost: u32,
}

impl Tables {
    /// Reads both, and tells the media which zones are pairs.
    pub(crate) fn read(
        media: &Media,
        identity: &VolumeIdentity,
        report: &[ZoneInfo],
        footer: &Footer,
    ) -> Result<Tables> {
        let key = identity.key();
        let mirrored = identity.copies() > 1;
        let mut zit = read_zit(media, &key, report, footer);
        if mirrored && !matches!(zit, Ok((_, 0))) {
            // Without the table the headers tell which zones are pairs.
            let joined = join_by_headers(media, identity, report)?;
            zit = read_zit(media, &key, report, footer);
            for zone in joined {
                media.pairs.separate(zone);
            }
        }
        let (mut zit, zit_lost) = zit?;
        let named = footer.counts.iter().map(|(zone, _)| *zone);
        let named = named.chain(footer.overrides.iter().map(|(zone, _)| *zone));
        let written = |zone: ZoneId| Some((zone, *zit.get(zone.0 as usize)?));
        let as_written = named.filter_map(written).collect();
        let _ = footer.complete(|zone, change| {
            let entry = zit.get_mut(zone.0 as usize);
            entry.map(|entry| *entry = change(*entry)).is_some()
        });
        if mirrored {
            join(media, &zit);
        }
        let (mat, mat_lost) = read_mat(media, &key, report, footer)?;
        Ok(Tables {
            zit,
            as_written,
            mat,
            zit_lost,
            mat_lost,
        })
    }
}

/// Makes the table what its chunks have again.
pub(crate) fn written(
    mut zit: PerZone<ZitEntry>,
    as_written: &[(ZoneId, ZitEntry)],
) -> PerZone<ZitEntry> {
    for (zone, entry) in as_written {
        zit.set(zone.0 as usize, *entry);
    }
    zit
}

/// Metadata zones with the same sequence are pairs, if there is something in them: others may have
/// been reset since, and taken into use again, each on its own.
fn join(media: &Media, zit: &PerZone<ZitEntry>) {
    let mut firsts: HashMap<u64, (ZoneId, u32)> = HashMap::new();
    let zones = zit
        .iter()
        .zip(0..)
        .map(|(entry, zone)| (entry, ZoneId(zone)));
    for (entry, zone) in zones.filter(|(entry, _)| entry.role == Role::Metadata) {
        if let Some((first, valid)) = firsts.insert(entry.sequence, (zone, entry.valid))
            && valid > 0
        {
            media.pairs.join(first, zone);
        }
    }
}

/// Finds the pairs of metadata zones by their headers: one of the two is enough. Returns them.
fn join_by_headers(
    media: &Media,
    identity: &VolumeIdentity,
    report: &[ZoneInfo],
) -> Result<Vec<ZoneId>> {
    let readable = |info: &ZoneInfo| !matches!(info.state, ZoneState::Empty | ZoneState::Offline);
    let mut headers = Vec::new();
    for (_, zone) in report.iter().zip(0..).filter(|(info, _)| readable(info)) {
        match read_header(media, identity, ZoneId(zone)) {
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Ok(Some(header)) if header.role == Role::Metadata => headers.push(header),
            _ => {}
        }
    }
    // A header of a zone's former use is older than that of the pair which the zone is in now.
    headers.sort_by_key(|header| header.sequence);
    for header in &headers {
        if let Some(partner) = header.partner {
            media.pairs.separate(header.zone);
            media.pairs.separate(partner);
            media.pairs.join(header.zone, partner);
        }
    }
    Ok(headers.iter().map(|header| header.zone).collect())
}

/// Blocks between two chunks that are read along with them, which costs less than one more command.
const GAP_BLOCKS: u32 = 16;
/// Commands under way at the same time.
const READS_AT_ONCE: usize = 32;
/// Blocks of a command: all that are under way take 32 MiB, where the 4 MiB that an image allows took 128 MiB on a volume
/// of millions of zones.
const READ_BLOCKS_MAX: u32 = 256;

/// What one command reads: chunks that lie near each other, each with its distance from the first.
struct ChunkRead {
    start: Addr,
    blocks: u32,
    chunks: Vec<(usize, u32)>,
}

/// The commands that read the chunks at these places.
fn runs(places: &[Addr], blocks_max: u32) -> Vec<ChunkRead> {
    let places = places.iter().zip(0..);
    let mut chunks: Vec<(Addr, usize)> = places
        .filter(|(addr, _)| **addr != Addr::ZERO)
        .map(|(addr, chunk)| (*addr, chunk))
        .collect();
    chunks.sort_unstable();
    let mut runs: Vec<ChunkRead> = Vec::new();
    for (addr, chunk) in chunks {
        if let Some(run) = runs.last_mut() {
            let in_zone = (run.start.device(), run.start.zone()) == (addr.device(), addr.zone());
            let distance = addr.block().saturating_sub(run.start.block());
            if in_zone && distance < blocks_max && distance <= run.blocks + GAP_BLOCKS {
                run.blocks = distance + 1;
                run.chunks.push((chunk, distance));
                continue;
            }
        }
        runs.push(ChunkRead {
            start: addr,
            blocks: 1,
            chunks: vec![(chunk, 0)],
        });
    }
    runs
}

/// Reads the chunks of a table, several at once; `take` is given each, or what is wrong with it, in the order of
/// places.
fn read_chunks<T>(
    media: &Media,
    key: &VolumeKey,
    kind: Kind,
    places: &[Addr],
    parse: impl Fn(&[u8]) -> persimmon_format::Result<T>,
    mut take: impl FnMut(usize, Addr, Result<T>) -> Result<()>,
) -> Result<()> {
    let blocks_max = media.geometry().max_transfer_blocks.min(READ_BLOCKS_MAX);
    let runs = runs(places, blocks_max);
    for some in runs.chunks(READS_AT_ONCE) {
        let commands: Vec<(Addr, u32)> = some.iter().map(|run| (run.start, run.blocks)).collect();
        let read = media.read_all(&commands, READS_AT_ONCE);
        for (run, bytes) in some.iter().zip(read) {
            for (chunk, distance) in &run.chunks {
                let addr = run.start.offset(*distance);
                let open = |block: &[u8]| {
                    let (_, payload) = envelope::open(block, key, kind, Some(*chunk as u64))
                        .map_err(Error::damaged(addr))?;
                    parse(payload).map_err(Error::damaged(addr))
                };
                let at = *distance as usize * BLOCK_SIZE;
                let bytes = bytes.as_ref().ok();
                let block = bytes.and_then(|bytes| bytes.get(at..at + BLOCK_SIZE));
                // Alone it may be read, or from the other copy.
                let chunk_read = match block.map(open) {
                    Some(Ok(read)) => Ok(read),
                    _ => media.read_good(addr, 1, |block| open(&block)),
                };
                take(*chunk, addr, chunk_read)?;
            }
        }
    }
    Ok(())
}

/// Whether a zone cannot be read any more.
fn is_gone(report: &[ZoneInfo], addr: Addr) -> bool {
    report
        .get(addr.zone().0 as usize)
        .is_some_and(|info| info.state == ZoneState::Offline)
}

fn read_mat(
    media: &Media,
    key: &VolumeKey,
    report: &[ZoneInfo],
    footer: &Footer,
) -> Result<(Mat, u32)> {
    let mut entries = vec![MatEntry::NONE; footer.mat.len() * MatEntry::PER_CHUNK];
    let mut lost = 0;
    let parse = MatEntry::decode_chunk;
    read_chunks(
        media,
        key,
        Kind::MatChunk,
        &footer.mat,
        parse,
        |chunk, addr, read| {
            match read {
                Ok(read) => put(&mut entries, chunk * MatEntry::PER_CHUNK, &read),
                Err(_) if is_gone(report, addr) => lost += 1,
                Err(error) => return Err(error),
            }
            Ok(())
        },
    )?;
    let beyond = entries
        .iter()
        .skip(usize::try_from(footer.page_limit).unwrap_or(usize::MAX));
    if beyond.clone().any(MatEntry::is_used) {
        return Err(Error::Inconsistent(format!(
            "the page table has pages past {}, where the checkpoint has none",
            footer.page_limit
        )));
    }
    Ok((Mat::new(entries, footer.mat.clone()), lost))
}

fn read_zit(
    media: &Media,
    key: &VolumeKey,
    report: &[ZoneInfo],
    footer: &Footer,
) -> Result<(PerZone<ZitEntry>, u32)> {
    let zones = media.geometry().zone_count as usize;
    let mut entries = PerZone::filled(zones, ZitEntry::default());
    let (mut lost, mut found) = (0, 0);
    let parse = ZitEntry::decode_chunk;
    read_chunks(
        media,
        key,
        Kind::ZitChunk,
        &footer.zit,
        parse,
        |chunk, addr, read| {
            let start = chunk * ZitEntry::PER_CHUNK;
            match read {
                Ok(read) => {
                    found += read.len();
                    for (zone, entry) in (start..).zip(&read) {
                        entries.set(zone, *entry);
                    }
                }
                Err(_) if is_gone(report, addr) => {
                    lost += 1;
                    found += zones.saturating_sub(start).min(ZitEntry::PER_CHUNK);
                }
                Err(error) => return Err(error),
            }
            Ok(())
        },
    )?;
    if found != zones {
        return Err(Error::Inconsistent(format!(
            "the zone table has {found} entries, the volume {zones} zones"
        )));
    }
    Ok((entries, lost))
}

/// Puts entries where they belong in a table; those beyond its end are left out.
fn put<T: Copy>(table: &mut [T], start: usize, entries: &[T]) {
    let places = table.iter_mut().skip(start);
    for (place, entry) in places.zip(entries) {
        *place = *entry;
    }
}

#[cfg(test)]
mod tests {
    use persimmon_format::DeviceId;

    use super::*;

    #[test]
    fn chunks_near_each_other_are_read_together() {
        let place = |zone, block| Addr::new(DeviceId(0), ZoneId(zone), block);
        let places = [
            place(3, 40),
            place(2, 100),
            Addr::ZERO,
            place(2, 101),
            place(2, 118),
            place(2, 90),
            place(2, 150),
        ];
        let found: Vec<_> = runs(&places, 32)
            .into_iter()
            .map(|run| (run.start, run.blocks, run.chunks))
            .collect();
        assert_eq!(
            found,
            [
                (place(2, 90), 29, vec![(5, 0), (1, 10), (3, 11), (4, 28)]),
                (place(2, 150), 1, vec![(6, 0)]),
                (place(3, 40), 1, vec![(0, 0)]),
            ]
        );
        // Nothing is longer than a command may be.
        assert!(runs(&places, 16).iter().all(|run| run.blocks <= 16));
        assert_eq!(runs(&places, 1).len(), 6);
    }
}
