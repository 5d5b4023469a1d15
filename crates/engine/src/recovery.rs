//! Opening a volume: the newest footer, the tables, and the journal past the cut.
//!
//! Only the log is read, and the data of records above the durable LSN where write pointers are
//! no proof. Nothing is written before the history's end is known; the first durable write is a
//! log block of a new epoch, which voids everything later.

use std::cell::RefCell;
use std::sync::Arc;

use persimmon_device::{ZoneId, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_format::envelope::{self, Kind};
use persimmon_format::extent::Extent;
use persimmon_format::footer::Footer;
use persimmon_format::log::LogState;
use persimmon_format::record::Op;
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::{KNOWN_READ_ONLY_COMPATIBLE, VolumeIdentity};
use persimmon_format::{Addr, Lsn, PageId, VolumeKey};

use crate::Volume;
use crate::arrival::{Arrival, read_header};
use crate::checkpoint::CheckpointState;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::log::Head;
use crate::log::replay::Replay;
use crate::log::scan::{self, FoundLog, FoundZone};
use crate::log::writer::LogStart;
use crate::media::Media;
use crate::meta::{Meta, PageCache, apply, mat::Mat, store};
use crate::options::Options;
use crate::volume::Parts;
use crate::zones::table::Found;
use crate::zones::{Budget, Zones};

/// What opening a volume found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The checkpoint it started from.
    pub checkpoint: u64,
    /// Records replayed.
    pub records_replayed: u64,
    /// Records or parts of records left out because they, or their data, had not arrived.
    pub tail_cut: bool,
    /// The volume was closed in order: its last log block says that everything is durable.
    pub clean: bool,
    /// A new epoch begins, which voids everything after the history's end.
    pub new_epoch: bool,
    /// The newest footer was not whole: the one before it was taken.
    pub older_footer: bool,
    /// Places in the log past the cut where it is not intact, each of a block or more.
    pub log_blocks_bad: u32,
    /// Log zones found by their blocks, their headers being damaged.
    pub headers_rescued: u32,
    /// Zones that nothing names any more; they were reset, unless the volume is read-only.
    pub zones_reset: u32,
}

/// Opens the volume on a device.
pub(crate) fn open(
    device: Arc<dyn ZonedDevice>,
    options: Options,
) -> Result<(Volume, RecoveryReport)> {
    let media = Media::new(device, options.barrier);
    let report = media.device().report(0..media.geometry().zone_count)?;
    let FoundLog {
        identity,
        zones: log_zones,
    } = scan::find(&media, &report)?;
    let headers_rescued = log_zones.iter().filter(|f| f.headless).count() as u32;
    check_identity(&identity, &media, &options)?;
    let key = identity.key();

    let Log {
        footer_addr,
        footer,
        older_footer,
        blocks,
    } = read_log(&media, &key, &log_zones)?;
    check_footer(&media, &footer)?;
    let replay = Replay::new(&blocks);
    let mut zit = read_zit(&media, &key, &footer)?;
    let written_zit = zit.clone();
    for (zone, entry) in &footer.overrides {
        if let Some(slot) = zit.get_mut(zone.0 as usize) {
            *slot = *entry;
        }
    }
    let mat = read_mat(&media, &key, &footer)?;
    let (found, next_sequence, log_zones, stale) =
        reconcile(&media, &identity, &report, &zit, log_zones, &footer);

    let budget = budget(&media, &report, &footer, &options)?;
    let conventional = media.geometry().conventional_zones;
    let zones = Zones::new(
        budget,
        identity.clone(),
        conventional,
        &found,
        next_sequence,
        footer.write_clock,
    );
    let in_use = |id| mat.get(id).is_some();
    let mut meta = Meta {
        cache: PageCache::with_ids(footer.page_limit.min(mat.len()), in_use),
        root: footer.root,
        mat,
        next_ino: footer.next_ino,
        inodes: footer.inodes,
        reserved_blocks: footer.reserved_blocks,
    };

    let arrival = Arrival {
        media: &media,
        identity: &identity,
        report: &report,
        zit: &zit,
        next_sequence: footer.next_zone_sequence,
        headers: RefCell::default(),
    };
    let mut records = 0;
    let (last, tail_cut) = replay.run(footer.cut, |record| {
        if record.lsn > replay.trusted && !arrival.of(&record.ops) && !fault(Fault::UnsafeClassic) {
            return Ok(fault(Fault::LostRecordSkipped));
        }
        apply_record(&media, &key, &mut meta, &zones, &record.ops)?;
        records += 1;
        Ok(true)
    })?;

    check_end(last, replay.epoch, log_zones.last(), &meta)?;

    // Where a write pointer proves nothing, blocks of a tail that nobody knows of may lie behind
    // it: they would come back in the place of new ones that a power cut loses.
    let new_epoch = tail_cut || !media.geometry().write_pointer_is_proof;
    let headless = log_zones.iter().any(|f| f.headless);
    let state = LogState {
        epoch: replay.epoch + u32::from(new_epoch && !fault(Fault::EpochKept)),
        resume_after: if new_epoch {
            last
        } else {
            resume_after(&blocks)
        },
        durable: last,
        footer: footer_addr,
    };
    let start = LogStart {
        state,
        next_lsn: last.next(),
        head: log_zones.last().map(|newest| head(newest, &zones)),
        chain: log_zones.iter().map(|f| f.zone).collect(),
        replay_sequence: footer.replay.sequence,
        // The first block of a new epoch tells.
        told: if new_epoch { last } else { replay.trusted },
    };
    let summary = RecoveryReport {
        checkpoint: footer.checkpoint,
        records_replayed: records,
        tail_cut,
        clean: !tail_cut && replay.trusted >= last,
        new_epoch,
        older_footer,
        log_blocks_bad: blocks.iter().filter(|b| b.state().is_none()).count() as u32,
        headers_rescued,
        zones_reset: stale.len() as u32,
    };
    let volume = Volume::assemble(Parts {
        media,
        identity,
        options,
        meta,
        zones,
        start,
        checkpoint: CheckpointState {
            number: footer.checkpoint,
            written_zit,
            zit_chunks: footer.zit.clone(),
            cold: Default::default(),
        },
        reserve_basis_points: footer.reserve_basis_points,
    });
    if !volume.options.read_only {
        resume_writing(&volume, &report, &stale, new_epoch, tail_cut)?;
        volume.find_truncations()?;
        if headless {
            volume.checkpoint()?;
        }
    }
    Ok((volume, summary))
}

/// Where the log goes on: behind its newest zone's last block, or in another zone.
///
/// A power cut can take a zone's header along and leave what is behind it. Such a zone is left as
/// soon as may be: whatever else befalls it, it would be hard to know again.
fn head(newest: &FoundZone, zones: &Zones) -> Head {
    let known = !newest.headless || zones.free_zones() <= zones.budget.log_floor;
    let next_block = if newest.state.is_writable() && known {
        newest.write_pointer.max(1)
    } else {
        newest.zone.capacity
    };
    Head {
        zone: newest.zone,
        next_block,
    }
}

fn budget(
    media: &Media,
    report: &[ZoneInfo],
    footer: &Footer,
    options: &Options,
) -> Result<Budget> {
    let capacity = report
        .iter()
        .map(|z| z.capacity)
        .filter(|c| *c > 0)
        .min()
        .unwrap_or(0);
    let reserve = footer.reserve_basis_points;
    Budget::new(media.geometry(), capacity, reserve, options)
}

fn check_identity(identity: &VolumeIdentity, media: &Media, options: &Options) -> Result<()> {
    let geometry = media.geometry();
    if identity.zone_count != geometry.zone_count || identity.zone_blocks != geometry.zone_blocks {
        return Err(Error::NoVolume(format!(
            "the volume was made on a device of {} zones of {} blocks, this one has {} of {}: it \
             is a truncated or resized copy; restore the whole device",
            identity.zone_count, identity.zone_blocks, geometry.zone_count, geometry.zone_blocks
        )));
    }
    let unknown = identity.read_only_compatible & !KNOWN_READ_ONLY_COMPATIBLE;
    if unknown != 0 && !options.read_only {
        return Err(Error::NoVolume(format!(
            "the volume uses features {unknown:#x} that this program cannot write; mount it \
             read-only, or use a newer persimmon"
        )));
    }
    Ok(())
}

fn resume_after(blocks: &[scan::Read]) -> Lsn {
    blocks
        .iter()
        .filter_map(|b| b.state())
        .map(|s| s.resume_after)
        .max()
        .unwrap_or_default()
}

/// The newest footer and the log blocks from its replay position on.
struct Log {
    footer_addr: Addr,
    footer: Footer,
    /// A newer footer is not whole.
    older_footer: bool,
    blocks: Vec<scan::Read>,
}

fn read_log(media: &Media, key: &VolumeKey, zones: &[FoundZone]) -> Result<Log> {
    let unfinished = || {
        Error::NoVolume(
            "the volume was never finished: `persimmon mkfs` was interrupted; run it again with \
             --force"
                .into(),
        )
    };
    let (footer_addr, footer, older_footer) =
        scan::newest_footer(media, key, zones)?.ok_or_else(unfinished)?;
    let mut log = Log {
        blocks: scan::read_from(media, key, zones, footer.replay.sequence)?,
        footer_addr,
        footer,
        older_footer,
    };
    if let Some((addr, newer)) = scan::latest_footer(&log.blocks)
        && newer.checkpoint > log.footer.checkpoint
    {
        log = Log {
            blocks: scan::read_from(media, key, zones, newer.replay.sequence)?,
            footer_addr: addr,
            footer: newer,
            older_footer: false,
        };
    }
    Ok(log)
}

fn read_chunk(
    media: &Media,
    key: &VolumeKey,
    kind: Kind,
    chunk: usize,
    addr: Addr,
) -> Result<Vec<u8>> {
    let block = media.read(addr, 1)?;
    let (_, payload) =
        envelope::open(&block, key, kind, Some(chunk as u64)).map_err(Error::damaged(addr))?;
    Ok(payload.to_vec())
}

fn read_mat(media: &Media, key: &VolumeKey, footer: &Footer) -> Result<Mat> {
    let mut entries = Vec::new();
    for (chunk, addr) in footer.mat.iter().enumerate() {
        if *addr != Addr::ZERO {
            let payload = read_chunk(media, key, Kind::MatChunk, chunk, *addr)?;
            entries.extend(MatEntry::decode_chunk(&payload).map_err(Error::damaged(*addr))?);
        }
        entries.resize((chunk + 1) * MatEntry::PER_CHUNK, MatEntry::NONE);
    }
    let beyond = entries
        .iter()
        .skip(usize::try_from(footer.page_limit).unwrap_or(usize::MAX));
    if beyond.clone().any(MatEntry::is_used) {
        return Err(Error::Inconsistent(format!(
            "the page table has pages past {}, where the checkpoint has none",
            footer.page_limit
        )));
    }
    Ok(Mat::new(entries, footer.mat.clone()))
}

/// Counters of a volume stay far below this: one million a second for a hundred thousand years.
const COUNTER_LIMIT: u64 = 1 << 62;

/// What is counted up from here on must have room: a number that cannot be is damage.
fn check_counters(counters: &[(&str, u64)]) -> Result<()> {
    match counters.iter().find(|(_, count)| *count >= COUNTER_LIMIT) {
        None => Ok(()),
        Some((what, count)) => Err(Error::Inconsistent(format!(
            "{what} is {count}, which no volume reaches"
        ))),
    }
}

/// What replay found at the end of the history.
fn check_end(last: Lsn, epoch: u32, log_end: Option<&FoundZone>, meta: &Meta) -> Result<()> {
    check_counters(&[
        ("the last record of the log", last.0),
        ("the log's epoch", u64::from(epoch) << 32),
        (
            "the log's last zone",
            log_end.map_or(0, |f| f.zone.first_log_sequence),
        ),
        ("the next inode", meta.next_ino),
    ])
}

fn check_footer(media: &Media, footer: &Footer) -> Result<()> {
    check_counters(&[
        ("the number of the checkpoint", footer.checkpoint),
        ("the last record of the checkpoint", footer.cut.0),
        ("the log block to replay from", footer.replay.sequence),
        ("the next inode", footer.next_ino),
        ("the number of inodes", footer.inodes),
        ("the number of reserved blocks", footer.reserved_blocks),
        ("the write clock", footer.write_clock),
        ("the next zone's sequence", footer.next_zone_sequence),
    ])?;
    // Each page takes a block at least, and ids are dense.
    let geometry = media.geometry();
    let blocks = u64::from(geometry.zone_count) * u64::from(geometry.zone_blocks);
    let chunks_max = blocks / MatEntry::PER_CHUNK as u64 + 1;
    if footer.mat.len() as u64 > chunks_max {
        return Err(Error::Inconsistent(format!(
            "the page table has {} chunks, the device room for {chunks_max}",
            footer.mat.len()
        )));
    }
    Ok(())
}

fn read_zit(media: &Media, key: &VolumeKey, footer: &Footer) -> Result<Vec<ZitEntry>> {
    let zones = media.geometry().zone_count as usize;
    let mut entries = Vec::new();
    for (chunk, addr) in footer.zit.iter().enumerate() {
        let payload = read_chunk(media, key, Kind::ZitChunk, chunk, *addr)?;
        entries.extend(ZitEntry::decode_chunk(&payload).map_err(Error::damaged(*addr))?);
    }
    if entries.len() != zones {
        return Err(Error::Inconsistent(format!(
            "the zone table has {} entries, the device {zones} zones",
            entries.len()
        )));
    }
    Ok(entries)
}

/// Brings what the checkpoint says of the zones together with what the device says. Returns the
/// zones, the next zone sequence, the log zones that are needed, and zones to reset: those that
/// the checkpoint found unused, and that no record can name.
fn reconcile(
    media: &Media,
    identity: &VolumeIdentity,
    report: &[ZoneInfo],
    zit: &[ZitEntry],
    log_zones: Vec<FoundZone>,
    footer: &Footer,
) -> (Vec<Found>, u64, Vec<FoundZone>, Vec<ZoneId>) {
    let needed = |at: usize| {
        log_zones
            .get(at + 1)
            .is_none_or(|next| next.zone.first_log_sequence > footer.replay.sequence)
    };
    let (mut keep, mut stale) = (Vec::new(), Vec::new());
    for (i, found) in log_zones.iter().enumerate() {
        if needed(i) {
            keep.push(*found)
        } else {
            stale.push(found.zone.zone)
        }
    }
    let mut next_sequence = footer.next_zone_sequence;
    let mut zones = Vec::with_capacity(report.len());
    for (i, (info, entry)) in report.iter().zip(zit).enumerate() {
        let zone = ZoneId(i as u32);
        let used = info.state != ZoneState::Empty;
        let mut entry = *entry;
        next_sequence = next_sequence.max(entry.sequence.saturating_add(1));
        entry.write_pointer = if used {
            info.write_pointer.min(info.capacity)
        } else {
            0
        };
        if info.state.is_dead() && entry.valid == 0 {
            entry.role = Role::Retired;
        } else if let Some(log) = keep.iter().find(|f| f.zone.zone == zone) {
            entry.role = Role::Log;
            entry.sequence = log.zone.sequence;
            next_sequence = next_sequence.max(log.zone.sequence.saturating_add(1));
        } else if !used && entry.valid == 0 {
            entry = ZitEntry {
                resets: entry.resets,
                ..ZitEntry::default()
            };
        } else if used && entry.valid == 0 {
            // Whatever the checkpoint knew of it, it may have been reset and taken into use again
            // since: its header tells what it is.
            let known = (entry.role, entry.sequence);
            entry.role = Role::Free;
            if let Some(header) = read_header(media, identity, zone) {
                entry.role = header.role;
                entry.lifetime = header.lifetime;
                entry.sequence = header.sequence;
                next_sequence = next_sequence.max(header.sequence.saturating_add(1));
            }
            match entry.role {
                Role::Metadata if known != (entry.role, entry.sequence) => stale.push(zone),
                Role::Data | Role::Metadata => {}
                _ => entry.role = Role::Free,
            }
        }
        zones.push(Found {
            entry,
            capacity: info.capacity,
            used,
        });
    }
    // A header that a power cut took along may have had a number already.
    let next_sequence = next_sequence.saturating_add(report.len() as u64);
    (zones, next_sequence, keep, stale)
}

fn apply_record(
    media: &Media,
    key: &VolumeKey,
    meta: &mut Meta,
    zones: &Zones,
    ops: &[Op],
) -> Result<()> {
    loop {
        match apply::ensure(meta, ops) {
            Ok(()) => break,
            Err(Error::PageMissing(id)) => fetch(media, key, meta, id)?,
            Err(error) => return Err(error),
        }
    }
    for op in ops {
        if let Op::Map {
            extent: Extent::Frame { addr, .. },
            ..
        } = op
        {
            zones.adopt(addr.zone());
        }
    }
    apply::apply(meta, zones, ops)
}

fn fetch(media: &Media, key: &VolumeKey, meta: &mut Meta, id: PageId) -> Result<()> {
    let entry = meta.mat.get(id).ok_or_else(|| no_such_page(id))?;
    let page = store::fetch(media, key, id, entry)?;
    meta.cache.insert_clean(id, page);
    Ok(())
}

pub(crate) fn no_such_page(id: PageId) -> Error {
    Error::Inconsistent(format!("metadata page {id} does not exist"))
}

/// Makes a recovered volume writable.
fn resume_writing(
    volume: &Volume,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    new_epoch: bool,
    tail_cut: bool,
) -> Result<()> {
    // What was found readable is built upon from here on: it must be durable.
    volume.media.flush()?;
    if new_epoch {
        volume.log.begin_epoch(&volume.media, &volume.zones)?;
    }
    let log_head = volume.log.head_zone();
    for (i, info) in report.iter().enumerate() {
        let zone = ZoneId(i as u32);
        let Some(entry) = volume.zones.entry(zone) else {
            continue;
        };
        if !info.state.is_active() || stale.contains(&zone) {
            continue;
        }
        let goes_on = match entry.role {
            // Zones that voided records may name take no more writes: they are finished. So are
            // those whose header was lost: what is written behind it would not be believed.
            Role::Data | Role::Metadata => {
                let intact = read_header(&volume.media, volume.identity(), zone)
                    .is_some_and(|h| h.role == entry.role && h.sequence == entry.sequence);
                !tail_cut && intact && volume.resume_zone(zone, info)
            }
            Role::Log => log_head == Some(zone),
            Role::Free | Role::Retired => false,
        };
        if !goes_on && let Err(error) = volume.media.finish(zone) {
            tracing::warn!(zone = zone.0, %error, "zone could not be finished");
        }
    }
    for zone in stale {
        volume.reset_zone(*zone, true);
    }
    Ok(())
}
