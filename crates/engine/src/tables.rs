//! The two tables of a checkpoint, read at mount. What is damaged ends the mount; what is lost with
//! a zone that failed is left out, and the volume is read-only then: what does not need it can be
//! read.

use std::collections::HashMap;

use persimmon_device::{ZoneId, ZoneInfo, ZoneState};
use persimmon_format::envelope::{self, Kind};
use persimmon_format::footer::Footer;
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::VolumeIdentity;
use persimmon_format::{Addr, VolumeKey};

use crate::arrival::read_header;
use crate::error::{Error, Result};
use crate::media::Media;
use crate::meta::mat::Mat;

/// MAT and ZIT as a footer leads to them.
pub(crate) struct Tables {
    /// The ZIT as its chunks have it.
    pub(crate) written_zit: Vec<ZitEntry>,
    /// The same with the footer's overrides.
    pub(crate) zit: Vec<ZitEntry>,
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
            let joined = join_by_headers(media, identity, report);
            zit = read_zit(media, &key, report, footer);
            for zone in joined {
                media.pairs.part(zone);
            }
        }
        let (written_zit, zit_lost) = zit?;
        let mut zit = written_zit.clone();
        for (zone, entry) in &footer.overrides {
            if let Some(slot) = zit.get_mut(zone.0 as usize) {
                *slot = *entry;
            }
        }
        if mirrored {
            join(media, &zit);
        }
        let (mat, mat_lost) = read_mat(media, &key, report, footer)?;
        Ok(Tables {
            written_zit,
            zit,
            mat,
            zit_lost,
            mat_lost,
        })
    }
}

/// Metadata zones with the same sequence are pairs, if there is something in them: others may have
/// been reset since, and taken into use again, each on its own.
fn join(media: &Media, zit: &[ZitEntry]) {
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
fn join_by_headers(media: &Media, identity: &VolumeIdentity, report: &[ZoneInfo]) -> Vec<ZoneId> {
    let readable = |info: &ZoneInfo| !matches!(info.state, ZoneState::Empty | ZoneState::Offline);
    let mut headers: Vec<_> = report
        .iter()
        .zip(0..)
        .filter(|(info, _)| readable(info))
        .filter_map(|(_, zone)| read_header(media, identity, ZoneId(zone)).ok()?)
        .filter(|header| header.role == Role::Metadata)
        .collect();
    // A header of a zone's former use is older than that of the pair which the zone is in now.
    headers.sort_by_key(|header| header.sequence);
    for header in &headers {
        if let Some(partner) = header.partner {
            media.pairs.part(header.zone);
            media.pairs.part(partner);
            media.pairs.join(header.zone, partner);
        }
    }
    headers.iter().map(|header| header.zone).collect()
}

fn read_chunk<T>(
    media: &Media,
    key: &VolumeKey,
    kind: Kind,
    chunk: usize,
    addr: Addr,
    parse: impl Fn(&[u8]) -> persimmon_format::Result<T>,
) -> Result<T> {
    media.read_good(addr, 1, |block| {
        let (_, payload) =
            envelope::open(&block, key, kind, Some(chunk as u64)).map_err(Error::damaged(addr))?;
        parse(payload).map_err(Error::damaged(addr))
    })
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
    let mut entries = Vec::new();
    let mut lost = 0;
    for (chunk, addr) in footer.mat.iter().enumerate() {
        if *addr != Addr::ZERO {
            match read_chunk(
                media,
                key,
                Kind::MatChunk,
                chunk,
                *addr,
                MatEntry::decode_chunk,
            ) {
                Ok(read) => entries.extend(read),
                Err(_) if is_gone(report, *addr) => lost += 1,
                Err(error) => return Err(error),
            }
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
    Ok((Mat::new(entries, footer.mat.clone()), lost))
}

fn read_zit(
    media: &Media,
    key: &VolumeKey,
    report: &[ZoneInfo],
    footer: &Footer,
) -> Result<(Vec<ZitEntry>, u32)> {
    let zones = media.geometry().zone_count as usize;
    let mut entries: Vec<ZitEntry> = Vec::new();
    let mut lost = 0;
    for (chunk, addr) in footer.zit.iter().enumerate() {
        let read = read_chunk(
            media,
            key,
            Kind::ZitChunk,
            chunk,
            *addr,
            ZitEntry::decode_chunk,
        );
        match read {
            Ok(read) => entries.extend(read),
            Err(_) if is_gone(report, *addr) => {
                lost += 1;
                let end = ((chunk + 1) * ZitEntry::PER_CHUNK).min(zones);
                entries.resize(end, ZitEntry::default());
            }
            Err(error) => return Err(error),
        }
    }
    if entries.len() != zones {
        return Err(Error::Inconsistent(format!(
            "the zone table has {} entries, the device {zones} zones",
            entries.len()
        )));
    }
    Ok((entries, lost))
}
