//! Opening a volume for inspection: zone headers, the log, the newest checkpoint.

use std::collections::BTreeMap;

use persimmon_device::{Buffer, Geometry, ZoneState, ZonedDevice};
use persimmon_format::gate::{self, Features, FixedFields};
use persimmon_format::record::Op;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{PROPERTIES, QUOTA, STRIPED, VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, Lsn, VolumeKey, ZoneId};
use serde::Serialize;

use crate::checkpoint::{self, Checkpoint};
use crate::error::{InspectError, Result};
use crate::finding::{Findings, ZONE_HEADER_FIELDS, ZONE_HEADER_FOREIGN};
use crate::log::{self, Content, Headless, Log};
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
    /// Damaged zones of which nothing can be decoded, where the log may have gone on.
    pub(crate) undecodable: Vec<ZoneId>,
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
    /// Number of the newest checkpoint; null if there is none.
    pub checkpoint: Option<u64>,
    /// Records up to this one are in the checkpoint; null if there is none.
    pub cut_lsn: Option<u64>,
    /// Records up to this one were certainly durable.
    pub durable_lsn: u64,
    /// The last record that a mount replays; the cut, if there is none.
    pub last_lsn: u64,
    /// Epoch of the log: counts the mounts that recovered.
    pub epoch: u32,
    /// Copies of metadata, checkpoints and log.
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
        let newest = checkpoint::newest(media, key, log, findings);
        media.check_supported()?;
        if let Some(checkpoint) = newest? {
            this.journal = replay::read(media, key, log, &this.zones, &checkpoint, findings);
            this.identity.add_features(checkpoint.footer.features);
            this.checkpoint = Some(checkpoint);
        }
        this.media.check_supported()?;
        Ok(this)
    }

    /// Zone headers and the zones of the log, and no checkpoint yet.
    pub(crate) fn open_bare(
        device: &'d dyn ZonedDevice,
        findings: &mut Findings,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Inspector<'d>> {
        let zones = device.geometry().zone_count;
        let media = Media::new(device, zones)?;
        let mut headers = read_headers(&media, progress);
        let bare = Inspector::of_headers(media, &headers, &mut Findings::new(0))?;
        if bare.identity.zone_count == zones {
            zone_uses(&bare.identity, &headers, findings);
            return Ok(bare);
        }
        // The device has more than the volume, and nothing of it is in these.
        headers.truncate(bare.identity.zone_count as usize);
        let media = Media::new(device, bare.identity.zone_count)?;
        Inspector::of_headers(media, &headers, findings)
    }

    fn of_headers(
        mut media: Media<'d>,
        headers: &[Option<Header>],
        findings: &mut Findings,
    ) -> Result<Inspector<'d>> {
        let (uuid, features) = which_volume(headers, &media)?;
        let mut identity = identity(&media, headers, uuid, features)?;
        let mut zones = zone_uses(&identity, headers, findings);
        let key = identity.key();
        let (headless, mut undecodable) = believe_headless(&media, &key, &mut zones);
        if identity.copies() > 1 {
            join_pairs(&mut media, &zones);
        }
        let log = Log::find(&media, &key, &zones);
        if identity.copies() == 1 {
            // One that is offline tells nothing either. Of a pair the other does.
            let candidates = media.log_candidates();
            undecodable.extend(candidates.filter(|zone| media.is_offline(*zone)));
        }
        if !log.may_go_on_elsewhere(&media, &key, &zones) {
            undecodable.clear();
        }
        let partners = log.partners_taken_since(&zones);
        undecodable.retain(|zone| !partners.contains(zone));
        media.check_supported()?;
        let footer = checkpoint::newest_footer(&media, &key, &log);
        if let Some(properties) = footer.and_then(|footer| footer.properties) {
            identity = on_device(identity.with(properties), media.geometry());
            check_geometry(&identity, media.geometry())?;
        }
        Ok(Inspector {
            media,
            identity,
            key,
            zones,
            headless,
            log,
            undecodable,
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
            uuid: uuid_text(&self.identity.visible_uuid),
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

    /// Whether the log may have gone on in a zone, so that what was acknowledged may be lost with it:
    /// nothing can be decoded of it, and neither the checkpoint nor the journal has anything in it.
    pub(crate) fn may_be_lost_end(
        &self,
        zone: ZoneId,
        checkpoint: &Checkpoint,
        journal: &Journal,
    ) -> bool {
        let first = self.media.first(zone);
        let is_in = |op: &Op| match op {
            Op::Map { extent, .. } | Op::Move { extent, .. } => {
                extent.addr().is_some_and(|addr| addr.zone() == first)
            }
            _ => false,
        };
        let entry = checkpoint.zit.get(first.0 as usize);
        self.undecodable.contains(&zone)
            && entry.is_none_or(|entry| entry.role != Role::Retired && entry.valid == 0)
            && !journal.records.iter().any(|r| r.ops.iter().any(is_in))
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

/// The header of a written zone; of one that is intact, though it be of another version, what it tells in
/// all of them.
struct Header {
    header: Result<ZoneHeader>,
    fixed: Option<(FixedFields, bool)>,
}

impl Header {
    fn of(zone: ZoneId, block: Result<Buffer>, live: bool) -> Header {
        let addr = Addr::new(DeviceId(0), zone, 0);
        let mut fixed = None;
        let header = block.and_then(|block| {
            fixed = FixedFields::read(&block).ok();
            ZoneHeader::decode(&block).map_err(|source| InspectError::Block { addr, source })
        });
        Header {
            header,
            fixed: fixed.map(|fixed| (fixed, live)),
        }
    }

    /// Whether it is this zone's, and of this volume.
    fn is_of(&self, uuid: Option<[u8; 16]>, zone: ZoneId) -> bool {
        let header = self.header.as_ref();
        header.is_ok_and(|header| Some(header.volume.uuid) == uuid && header.zone == zone)
    }
}

fn read_headers(media: &Media<'_>, progress: &mut dyn FnMut(u64, u64)) -> Vec<Option<Header>> {
    let total = u64::from(media.geometry().zone_count);
    let mut headers: Vec<Option<Header>> = media
        .zones()
        .map(|(zone, info)| {
            progress(zone.0.into(), total);
            if info.state != ZoneState::Offline && media.written(zone) == 0 {
                return None;
            }
            let live = !info.state.is_worn_out();
            Some(Header::of(zone, header_block(media, zone), live))
        })
        .collect();
    let fixed = headers.iter().flatten().filter_map(|h| h.fixed.as_ref());
    let uuid = gate::volume_of(fixed.map(|(fixed, live)| (fixed, *live)));
    for (zone, header) in (0..).map(ZoneId).zip(&mut headers) {
        let Some(header) = header.as_mut().filter(|h| !h.is_of(uuid, zone)) else {
            continue;
        };
        // One zone of a stripe set may hold what belongs elsewhere.
        let live = header.fixed.as_ref().is_none_or(|(_, live)| *live);
        let addr = Addr::new(DeviceId(0), zone, 0);
        let others = media.without(addr, 1);
        let mut others = others.map(|block| Header::of(zone, block, live));
        if let Some(found) = others.find(|other| other.is_of(uuid, zone)) {
            *header = found;
        }
    }
    headers
}

/// The first block of a zone, from wherever it is an intact header of whatever volume and version, best one of this zone; else
/// as it was read.
fn header_block(media: &Media<'_>, zone: ZoneId) -> Result<Buffer> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let is_header = |block: &Buffer| FixedFields::read(block).is_ok();
    // Intact, but written to another place: what a drive put here by mistake. The other zones of the set have the right one.
    let strayed = |block: &Buffer| ZoneHeader::decode(block).is_ok_and(|it| it.zone != zone);
    let fits = |block: &Buffer| is_header(block) && !strayed(block);
    let read = media.read(addr, 1);
    if read.as_ref().is_ok_and(fits) {
        return read;
    }
    let others: Vec<Buffer> = media.without(addr, 1).flatten().collect();
    let all = || read.iter().chain(&others);
    let found = all().find(|block| fits(block));
    let found = found.or_else(|| all().find(|block| is_header(block)));
    found.cloned().map_or(read, Ok)
}

/// The header of a zone.
pub(crate) fn read_header(media: &Media<'_>, zone: ZoneId) -> Result<ZoneHeader> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let block = header_block(media, zone)?;
    ZoneHeader::decode(&block).map_err(|source| InspectError::Block { addr, source })
}

/// Which volume it is, and all features that its headers tell of.
///
/// # Errors
/// There is none, or one of its headers is not for this program to read: whatever else there is.
fn which_volume(headers: &[Option<Header>], media: &Media<'_>) -> Result<([u8; 16], Features)> {
    let fixed = || headers.iter().flatten().filter_map(|h| h.fixed.as_ref());
    let zones = media.geometry().zone_count;
    let uuid = gate::volume_of(fixed().map(|(fixed, live)| (fixed, *live)))
        .ok_or(InspectError::NotAVolume { zones })?;
    let mut features = Features::default();
    for (zone, header) in (0..).map(ZoneId).zip(headers) {
        let fixed = header.as_ref().and_then(|header| header.fixed.as_ref());
        if let Some((fixed, _)) = fixed.filter(|(fixed, _)| fixed.uuid == uuid) {
            let addr = Addr::new(DeviceId(0), zone, 0);
            fixed
                .check()
                .map_err(|source| InspectError::Unsupported { addr, source })?;
            features = features.and(fixed.features);
        }
    }
    Ok((uuid, features))
}

/// A log zone whose header is damaged is known by its blocks: what it holds may be newer than all
/// the rest. Also answers the zones of which nothing can be decoded.
fn believe_headless(
    media: &Media<'_>,
    key: &VolumeKey,
    zones: &mut [ZoneUse],
) -> (BTreeMap<ZoneId, (Headless, String)>, Vec<ZoneId>) {
    let mut found = BTreeMap::new();
    let mut undecodable = Vec::new();
    for zone in media.log_candidates() {
        if let Some(slot) = zones.get_mut(zone.0 as usize)
            && let ZoneUse::Damaged(error) = slot
        {
            match log::search(media, key, zone) {
                Content::Log(headless) => {
                    found.insert(zone, (headless, std::mem::take(error)));
                    *slot = ZoneUse::Header(headless.fields);
                }
                Content::Undecodable => undecodable.push(zone),
                Content::Nothing | Content::Other => {}
            }
        }
    }
    (found, undecodable)
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

/// Who a volume is by its headers.
fn identity(
    media: &Media<'_>,
    headers: &[Option<Header>],
    uuid: [u8; 16],
    features: Features,
) -> Result<VolumeIdentity> {
    // Of its headers the majority decides, should one differ from the others.
    let mut identity: Option<&VolumeIdentity> = None;
    let mut lead = 0u64;
    let good = || {
        let good = headers.iter().flatten().flat_map(|h| &h.header);
        good.filter(|header| header.volume.uuid == uuid)
    };
    for ZoneHeader { volume, .. } in good() {
        if lead == 0 {
            identity = Some(volume);
        }
        let agrees = identity.is_some_and(|identity| agree(identity, volume, features));
        lead = if agrees { lead + 1 } else { lead - 1 };
    }
    let zones = media.geometry().zone_count;
    let mut identity = identity
        .cloned()
        .ok_or(InspectError::NotAVolume { zones })?;
    identity.add_features(features);
    // Without a checkpoint the newest one tells what was changed since it was made.
    let newest = good().max_by_key(|header| header.sequence);
    if let Some(newest) = newest.filter(|_| features.incompatible & PROPERTIES != 0) {
        identity = identity.with(newest.volume.properties());
        identity = on_device(identity, media.geometry());
    }
    check_geometry(&identity, media.geometry())?;
    Ok(identity)
}

/// A device with fewer zones than the volume, or others, is no copy of the whole. Of one that is not known to be in
/// stripe sets nothing is where addresses say.
fn check_geometry(identity: &VolumeIdentity, geometry: &Geometry) -> Result<()> {
    if (identity.incompatible & STRIPED != 0) != geometry.stripes.is_some() {
        return Err(InspectError::Stripes);
    }
    if identity.zone_count > geometry.zone_count || identity.zone_blocks != geometry.zone_blocks {
        return Err(InspectError::Geometry {
            volume_zones: identity.zone_count,
            volume_blocks: identity.zone_blocks,
            device_zones: geometry.zone_count,
            device_blocks: geometry.zone_blocks,
        });
    }
    Ok(())
}

/// A volume that may have got zones for metadata since its headers were written: its devices tell.
fn on_device(identity: VolumeIdentity, geometry: &Geometry) -> VolumeIdentity {
    let metadata_zones = geometry.metadata_zones.before(identity.zone_count);
    identity.with_metadata_zones(metadata_zones.count())
}

/// Whether two headers of a volume with these features agree. Features that need not be known can be set while it is in
/// use, and properties be changed.
fn agree(one: &VolumeIdentity, other: &VolumeIdentity, features: Features) -> bool {
    let plain = |volume: &VolumeIdentity| {
        let volume = VolumeIdentity {
            // Turned on while the volume was in use, it is told by footers, and by the headers written since.
            incompatible: volume.incompatible & !QUOTA,
            read_only_compatible: 0,
            compatible: 0,
            ..volume.clone()
        };
        match features.incompatible & PROPERTIES {
            0 => volume,
            // With the zones those may have changed that are for metadata.
            _ => volume.with(one.properties()).with_metadata_zones(0),
        }
    };
    plain(one) == plain(other)
}

fn zone_uses(
    identity: &VolumeIdentity,
    headers: &[Option<Header>],
    findings: &mut Findings,
) -> Vec<ZoneUse> {
    let mut uses = Vec::with_capacity(headers.len());
    for (index, header) in headers.iter().enumerate() {
        let zone = ZoneId(index as u32);
        let other = header.as_ref().and_then(|header| header.fixed.as_ref());
        let other = other.map(|(fixed, _)| fixed.uuid);
        uses.push(
            match (header.as_ref().map(|header| &header.header), other) {
                (None, _) => ZoneUse::Unwritten,
                (_, Some(other)) if other != identity.uuid => {
                    let other = uuid_text(&other);
                    findings.add(&ZONE_HEADER_FOREIGN, format_args!("zone {zone}"), other);
                    ZoneUse::Foreign
                }
                (Some(Err(error)), _) => ZoneUse::Damaged(error.to_string()),
                (Some(Ok(header)), _) => {
                    if header.zone != zone || header.device != DeviceId(0) {
                        let detail = format!("it is that of zone {}", header.zone);
                        findings.add(&ZONE_HEADER_FIELDS, format_args!("zone {zone}"), detail);
                        uses.push(ZoneUse::Damaged("a header of another zone".into()));
                        continue;
                    }
                    if !agree(&header.volume, identity, identity.features()) {
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
            },
        );
    }
    uses
}
