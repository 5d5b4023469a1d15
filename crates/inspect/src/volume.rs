//! Opening a volume for inspection: zone headers, the log, the newest checkpoint.

use std::collections::{BTreeMap, HashMap};

use persimmon_device::{ZoneState, ZonedDevice};
use persimmon_format::record::Op;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, FormatError, Lsn, VolumeKey, ZoneId};
use serde::Serialize;

use crate::checkpoint::{self, Checkpoint};
use crate::error::{InspectError, Result};
use crate::finding::{Findings, ZONE_HEADER_FIELDS, ZONE_HEADER_FOREIGN};
use crate::log::{self, Headless, Log};
use crate::media::Media;
use crate::replay::{self, Journal};

/// A volume opened for looking into it.
pub struct Inspector<'d> {
    pub(crate) media: Media<'d>,
    pub(crate) identity: VolumeIdentity,
    pub(crate) key: VolumeKey,
    pub(crate) zones: Vec<ZoneUse>,
    /// Log zones that are known by their blocks, and what is wrong with their headers.
    pub(crate) headless: BTreeMap<ZoneId, (Headless, String)>,
    pub(crate) log: Log,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) journal: Journal,
}

/// What a zone's first block says.
#[derive(Clone, Debug)]
pub(crate) enum ZoneUse {
    /// Nothing is written.
    Unwritten,
    /// A header of this volume.
    Header(ZoneHeaderFields),
    /// A header of another volume.
    Foreign,
    /// Not a header, or a damaged one.
    Damaged(String),
}

/// What differs between the headers of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneHeaderFields {
    pub role: Role,
    pub sequence: u64,
    pub first_log_sequence: u64,
    pub partner: Option<ZoneId>,
}

/// The volume in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeInfo {
    /// UUID, in the usual notation.
    pub uuid: String,
    /// Label.
    pub label: String,
    /// Format version.
    pub format_version: u32,
    /// Seconds since 1970 when it was made.
    pub created_seconds: i64,
    /// Zones of the device.
    pub zone_count: u32,
    /// Blocks from zone to zone.
    pub zone_blocks: u32,
    /// Number of the newest checkpoint, if there is one.
    pub checkpoint: Option<u64>,
    /// Records up to this one are in the checkpoint.
    pub cut_lsn: Option<u64>,
    /// Records up to this one were certainly durable.
    pub durable_lsn: u64,
    /// The last record that a mount replays; the cut, if there is none.
    pub last_lsn: u64,
    /// Epoch of the log: counts the mounts that recovered.
    pub epoch: u32,
    /// Zones that hold each block of the log and of metadata.
    pub copies: u32,
}

impl<'d> Inspector<'d> {
    /// Finds the volume on `device`.
    ///
    /// # Errors
    /// There is none, it needs a newer program, or the device fails. Damage past the zone headers
    /// is left to [`crate::check()`].
    pub fn open(device: &'d dyn ZonedDevice) -> Result<Inspector<'d>> {
        Inspector::open_with(device, &mut Findings::new(0), &mut |_, _| {})
    }

    pub(crate) fn open_with(
        device: &'d dyn ZonedDevice,
        findings: &mut Findings,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Inspector<'d>> {
        let mut this = Inspector::open_bare(device, findings, progress)?;
        let (media, key, log) = (&this.media, &this.key, &this.log);
        if let Some(checkpoint) = checkpoint::newest(media, key, log, findings)? {
            this.journal = replay::read(media, key, log, &this.zones, &checkpoint, findings);
            this.checkpoint = Some(checkpoint);
        }
        Ok(this)
    }

    /// Zone headers and the zones of the log, and no checkpoint yet.
    pub(crate) fn open_bare(
        device: &'d dyn ZonedDevice,
        findings: &mut Findings,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Inspector<'d>> {
        let mut media = Media::new(device)?;
        let headers = read_headers(&media, progress);
        let identity = identity(&media, &headers)?;
        let mut zones = zone_uses(&identity, headers, findings);
        let key = identity.key();
        let headless = believe_headless(&media, &key, &mut zones);
        if identity.copies() > 1 {
            join_pairs(&mut media, &zones);
        }
        let log = Log::find(&media, &key, &zones);
        Ok(Inspector {
            media,
            identity,
            key,
            zones,
            headless,
            log,
            checkpoint: None,
            journal: Journal::default(),
        })
    }

    /// The volume in short.
    #[must_use]
    pub fn volume(&self) -> VolumeInfo {
        let footer = self.checkpoint.as_ref().map(|c| &c.footer);
        let cut = footer.map(|f| f.cut);
        VolumeInfo {
            uuid: uuid_text(&self.identity.uuid),
            label: self.identity.label.clone(),
            format_version: persimmon_format::zone_header::FORMAT_VERSION,
            created_seconds: self.identity.created_seconds,
            zone_count: self.identity.zone_count,
            zone_blocks: self.identity.zone_blocks,
            checkpoint: footer.map(|f| f.checkpoint),
            cut_lsn: cut.map(|cut| cut.0),
            durable_lsn: self.journal.durable.0,
            last_lsn: self.journal.last(cut.unwrap_or(Lsn(0))).0,
            epoch: self.journal.epoch,
            copies: self.identity.copies(),
        }
    }

    pub(crate) fn checkpoint(&self) -> Result<&Checkpoint> {
        self.checkpoint
            .as_ref()
            .ok_or_else(|| InspectError::NoCheckpoint {
                reason: "its footer is damaged, see fsck".into(),
            })
    }

    /// Where the newest lot of inode numbers ends, as of after the replay.
    pub(crate) fn lot_end(&self) -> u64 {
        let footer = self.checkpoint.as_ref().map_or(0, |c| c.footer.lot_end);
        let ops = self.journal.records.iter().flat_map(|record| &record.ops);
        let lots = ops.filter_map(|op| match op {
            Op::Lot { end } => Some(*end),
            _ => None,
        });
        lots.fold(footer, u64::max)
    }

    /// All inode numbers in use are below this.
    pub(crate) fn numbers_end(&self) -> u64 {
        match &self.checkpoint {
            Some(checkpoint) if self.journal.records.is_empty() => checkpoint.footer.next_ino,
            _ => self.lot_end(),
        }
    }

    /// The header of a zone, if it has one of this volume.
    pub(crate) fn header(&self, zone: ZoneId) -> Option<&ZoneHeaderFields> {
        match self.zones.get(zone.0 as usize) {
            Some(ZoneUse::Header(fields)) => Some(fields),
            _ => None,
        }
    }
}

pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

type Header = Option<Result<ZoneHeader>>;

fn read_headers(media: &Media<'_>, progress: &mut dyn FnMut(u64, u64)) -> Vec<Header> {
    let total = u64::from(media.geometry().zone_count);
    media
        .zones()
        .map(|(zone, info)| {
            progress(zone.0.into(), total);
            if info.state != ZoneState::Offline && media.written(zone) == 0 {
                return None;
            }
            Some(read_header(media, zone))
        })
        .collect()
}

/// The header of a zone.
pub(crate) fn read_header(media: &Media<'_>, zone: ZoneId) -> Result<ZoneHeader> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let block = media.read(addr, 1)?;
    ZoneHeader::decode(&block).map_err(|source| InspectError::Block { addr, source })
}

/// A log zone whose header is damaged is known by its blocks: what it holds may be newer than all
/// the rest.
fn believe_headless(
    media: &Media<'_>,
    key: &VolumeKey,
    zones: &mut [ZoneUse],
) -> BTreeMap<ZoneId, (Headless, String)> {
    let mut found = BTreeMap::new();
    for zone in media.log_candidates() {
        if let Some(slot) = zones.get_mut(zone.0 as usize)
            && let ZoneUse::Damaged(error) = slot
            && let Some(headless) = log::headless(media, key, zone)
        {
            found.insert(zone, (headless, std::mem::take(error)));
            *slot = ZoneUse::Header(headless.fields);
        }
    }
    found
}

/// Finds the zones that hold the same: by their sequence, or, if one of the two is gone, by what
/// the other's header says.
fn join_pairs(media: &mut Media<'_>, zones: &[ZoneUse]) {
    let mut known: Vec<(u64, ZoneId, Option<ZoneId>)> = zones
        .iter()
        .zip(0..)
        .filter_map(|(found, zone)| match found {
            ZoneUse::Header(fields) if matches!(fields.role, Role::Log | Role::Metadata) => {
                Some((fields.sequence, ZoneId(zone), fields.partner))
            }
            _ => None,
        })
        .collect();
    // What is left of an older pair does not count against a newer one.
    known.sort_by_key(|(sequence, zone, _)| (std::cmp::Reverse(*sequence), *zone));
    for pair in known.windows(2) {
        if let [(one, first, _), (other, second, _)] = pair
            && one == other
        {
            media.join(*first, *second);
        }
    }
    for (_, zone, partner) in known {
        let gone = |zone: &ZoneId| {
            matches!(zones.get(zone.0 as usize), Some(ZoneUse::Damaged(_)))
                && media.partner(*zone).is_none()
        };
        if media.partner(zone).is_none()
            && let Some(partner) = partner.filter(gone)
        {
            media.join(zone, partner);
        }
    }
}

/// The volume that most headers name; of those that equally many name, the one used last.
fn identity(media: &Media<'_>, headers: &[Header]) -> Result<VolumeIdentity> {
    let mut votes: HashMap<[u8; 16], (usize, u64)> = HashMap::new();
    for header in headers.iter().flatten().flatten() {
        let vote = votes.entry(header.volume.uuid).or_default();
        vote.0 += 1;
        vote.1 = vote.1.max(header.sequence);
    }
    let winner = votes.into_iter().max_by_key(|(_, vote)| *vote);
    let Some((uuid, _)) = winner else {
        return Err(no_volume(media, headers));
    };
    // Of its headers the majority decides, should one differ from the others.
    let mut identity: Option<&VolumeIdentity> = None;
    let mut lead = 0u64;
    let volumes = headers.iter().flatten().flatten().map(|h| &h.volume);
    for volume in volumes.filter(|volume| volume.uuid == uuid) {
        if lead == 0 {
            identity = Some(volume);
        }
        let agrees = identity == Some(volume);
        lead = if agrees { lead + 1 } else { lead - 1 };
    }
    let identity = identity.ok_or_else(|| no_volume(media, headers))?.clone();
    identity.check_required()?;
    let geometry = media.geometry();
    if (identity.zone_count, identity.zone_blocks) != (geometry.zone_count, geometry.zone_blocks) {
        return Err(InspectError::Geometry {
            volume_zones: identity.zone_count,
            volume_blocks: identity.zone_blocks,
            device_zones: geometry.zone_count,
            device_blocks: geometry.zone_blocks,
        });
    }
    Ok(identity)
}

/// Why there is no volume: a newer format says so, else nothing is known.
fn no_volume(media: &Media<'_>, headers: &[Header]) -> InspectError {
    for header in headers.iter().flatten() {
        if let Err(InspectError::Block { source, .. }) = header
            && matches!(
                source,
                FormatError::NewerVersion { .. } | FormatError::UnknownFeatures { .. }
            )
        {
            return InspectError::Format(source.clone());
        }
    }
    InspectError::NotAVolume {
        zones: media.geometry().zone_count,
    }
}

fn zone_uses(
    identity: &VolumeIdentity,
    headers: Vec<Header>,
    findings: &mut Findings,
) -> Vec<ZoneUse> {
    let mut uses = Vec::with_capacity(headers.len());
    for (index, header) in headers.into_iter().enumerate() {
        let zone = ZoneId(index as u32);
        uses.push(match header {
            None => ZoneUse::Unwritten,
            Some(Err(error)) => ZoneUse::Damaged(error.to_string()),
            Some(Ok(header)) if header.volume.uuid != identity.uuid => {
                let other = uuid_text(&header.volume.uuid);
                findings.add(&ZONE_HEADER_FOREIGN, format_args!("zone {zone}"), other);
                ZoneUse::Foreign
            }
            Some(Ok(header)) => {
                if header.zone != zone || header.device != DeviceId(0) {
                    let detail = format!("it is that of zone {}", header.zone);
                    findings.add(&ZONE_HEADER_FIELDS, format_args!("zone {zone}"), detail);
                    uses.push(ZoneUse::Damaged("a header of another zone".into()));
                    continue;
                }
                if header.volume != *identity {
                    let detail = "label, features or geometry differ from other headers";
                    findings.add(&ZONE_HEADER_FIELDS, format_args!("zone {zone}"), detail);
                }
                ZoneUse::Header(ZoneHeaderFields {
                    role: header.role,
                    sequence: header.sequence,
                    first_log_sequence: header.first_log_sequence,
                    partner: header.partner,
                })
            }
        });
    }
    uses
}
