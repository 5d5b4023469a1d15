//! The zone header: first block of every zone in use. It names the volume, so any zone is enough
//! to recognise it, and holds the secret for the keyed checksums of everything else.
//!
//! Bytes: magic 0..8, version 8..12, reserved 12..16, UUID 16..32, secret 32..64, label 64..128
//! (zero padded), features incompatible 128..136, read-only compatible 136..144, compatible
//! 144..152, device 152, role 153, lifetime 154, reserved 155, zone 156..160, sequence 160..168,
//! zone count 168..172, zone blocks 172..176, first log sequence 176..184, creation time (seconds
//! since 1970) 184..192, partner (one more than the number of the zone that holds the other copy, 0
//! if there is none) 192..196, zones for metadata (with the feature `SPLIT`, else 0) 196..200, the UUID
//! that users see (with the feature `PROPERTIES`, else zeros) 200..216, zeros, XXH3-64 of all that
//! 4088..4096.

use crate::checksum::{self, SECRET_LEN};
use crate::codec::{Put, Reader};
use crate::container;
use crate::gate::{Features, FixedFields};
use crate::table::Role;
use crate::{BLOCK_SIZE, DeviceId, Result, VolumeKey, ZoneId};

/// First eight bytes.
pub const MAGIC: [u8; 8] = *b"PRSMZONE";
/// Version of the whole on-disk format. See the table in `docs/FORMAT.md`.
pub const FORMAT_VERSION: u32 = 1;
/// Longest label, bytes.
pub const LABEL_LEN_MAX: usize = 64;
const _: () = assert!(LABEL_LEN_MAX == container::LABEL_BYTES);
const CHECKSUM_OFFSET: usize = BLOCK_SIZE - 8;
const SECRET_OFFSET: usize = 32;
pub(crate) const WHAT: &str = "zone header";

/// Incompatible feature: zones of the log and of metadata come in pairs with the same content.
pub const MIRRORED: u64 = 1;
/// Incompatible feature: blocks of files may be compressed, and packed several in a block.
pub const PACKED: u64 = 2;
/// Incompatible feature: zones for the log and metadata are on a device of their own: the first ones, and those that it got later.
pub const SPLIT: u64 = 4;
/// Incompatible feature: metadata pages are stored by their columns, summaries have short entries, and footers counts.
pub const COMPACT: u64 = 8;
/// Incompatible feature: names are hashed by SipHash under a key of their own, see [`crate::name`].
pub const NAMES: u64 = 16;
/// Incompatible feature: inode numbers are given out in lots, of which records tell.
pub const LOTS: u64 = 32;
/// Incompatible feature: footers begin with the volume's features.
pub const FOOTER_FEATURES: u64 = 64;
/// Incompatible feature: compressed frames of several blocks, of which extents may have parts; records map packed extents; inodes
/// have a compression.
pub const FRAMES: u64 = 128;
/// Incompatible feature: files may share blocks, which lie in a store of their own.
pub const SHARED_BLOCKS: u64 = 256;
/// Incompatible feature: there may be snapshots: versions of items, and subvolumes that show them.
pub const SNAPSHOTS: u64 = 512;
/// Incompatible feature: footers have the [`Properties`] of the volume; those in zone headers may be older.
pub const PROPERTIES: u64 = 1024;
/// Incompatible feature: what owners take may be counted and limited, and inodes may have a project ([`crate::quota`]).
pub const QUOTA: u64 = 2048;
/// Incompatible feature: blocks of files may be stored as differences to what was stored before, see [`crate::delta`].
pub const DELTAS: u64 = 4096;
/// Incompatible feature: zones are stripe sets of those of a device, see [`crate::stripe_label`].
pub const STRIPED: u64 = 8192;
/// Incompatible feature: compressed frames of files may have blocks of the store of shared blocks as a dictionary, see
/// [`crate::dictionary`].
pub const DICTIONARIES: u64 = 16384;
/// Incompatible feature: records in journal blocks may be compressed, see [`crate::log::Records`].
pub const COMPRESSED_LOG: u64 = 32768;
/// Incompatible feature: values of extended attributes may be in pieces, see [`crate::xattr`].
pub const LONG_XATTRS: u64 = 65536;
/// Incompatible feature: shared blocks of compressed frames count their part of what the frame takes, see [`crate::shared_frame`].
pub const SHARED_FRAMES: u64 = 131_072;
/// Incompatible feature: the sectors of inodes count what their extended attributes take, see [`crate::xattr::Xattr::sectors`].
pub const COUNTED_XATTRS: u64 = 262_144;
/// Features whose bits a reader must know to mount at all.
pub const KNOWN_INCOMPATIBLE: u64 = MIRRORED
    | SPLIT
    | FRAMES
    | SHARED_BLOCKS
    | SNAPSHOTS
    | PROPERTIES
    | QUOTA
    | DELTAS
    | STRIPED
    | DICTIONARIES
    | COMPRESSED_LOG
    | LONG_XATTRS
    | SHARED_FRAMES
    | COUNTED_XATTRS
    | REQUIRED;
/// Features that every volume has which this program reads.
pub const REQUIRED: u64 = PACKED | COMPACT | NAMES | LOTS | FOOTER_FEATURES;
/// Features whose bits a reader must know to write.
pub const KNOWN_READ_ONLY_COMPATIBLE: u64 = 0;

/// What making a volume sets and can be changed later. A changed one is in the footers (feature [`PROPERTIES`]) and in
/// zone headers written since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Zones of the volume.
    pub zone_count: u32,
    /// UUID that users see.
    pub uuid: [u8; 16],
    /// Label, UTF-8, at most [`LABEL_LEN_MAX`] bytes.
    pub label: String,
}

impl Properties {
    /// Bytes they take in a footer.
    pub(crate) const LEN: usize = 4 + 16 + LABEL_LEN_MAX;

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let end = out.len() + Properties::LEN;
        out.put_u32(self.zone_count);
        out.put(&self.uuid);
        out.put(container::cut_label(&self.label).as_bytes());
        out.resize(end, 0);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Properties> {
        Ok(Properties {
            zone_count: r.u32()?,
            uuid: r.array()?,
            label: read_label(r)?,
        })
    }
}

/// A label as stored: padded with zeros.
pub(crate) fn read_label(r: &mut Reader<'_>) -> Result<String> {
    let label = r.bytes(LABEL_LEN_MAX)?;
    let end = label.iter().position(|b| *b == 0).unwrap_or(label.len());
    Ok(String::from_utf8_lossy(label.get(..end).unwrap_or_default()).into_owned())
}

/// The volume's identity. All of its zone headers have the same, but for its [`Properties`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeIdentity {
    /// UUID that the volume was made with: it ties its blocks together, and never changes.
    pub uuid: [u8; 16],
    /// UUID that users see: the same until they change it.
    pub visible_uuid: [u8; 16],
    /// Secret of the keyed checksums.
    pub secret: [u8; SECRET_LEN],
    /// Label, UTF-8, at most [`LABEL_LEN_MAX`] bytes.
    pub label: String,
    /// Features a reader must know to mount.
    pub incompatible: u64,
    /// Features a reader must know to write.
    pub read_only_compatible: u64,
    /// Features a reader may ignore.
    pub compatible: u64,
    /// Seconds since 1970 when the volume was made.
    pub created_seconds: i64,
    /// Zones of the volume. The device may have more, which the volume does not use.
    pub zone_count: u32,
    /// Blocks from zone to zone; on two devices of the larger zones.
    pub zone_blocks: u32,
    /// Zones on a device of their own, for the log and metadata; 0: one device. Which they are its label says, if not the first.
    pub metadata_zones: u32,
}

impl VolumeIdentity {
    /// The key of the volume's checksums.
    #[must_use]
    pub fn key(&self) -> VolumeKey {
        VolumeKey::new(&self.uuid, &self.secret)
    }

    /// Its features.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            incompatible: self.incompatible,
            read_only_compatible: self.read_only_compatible,
            compatible: self.compatible,
        }
    }

    /// The volume has these features as well: they can be set while it is in use, and stand in what was
    /// written since.
    pub fn add_features(&mut self, features: Features) {
        let all = self.features().and(features);
        self.incompatible = all.incompatible;
        self.read_only_compatible = all.read_only_compatible;
        self.compatible = all.compatible;
    }

    /// Its properties.
    #[must_use]
    pub fn properties(&self) -> Properties {
        Properties {
            zone_count: self.zone_count,
            uuid: self.visible_uuid,
            label: self.label.clone(),
        }
    }

    /// The same volume with these properties, which supersede those in zone headers.
    #[must_use]
    pub fn with(self, properties: Properties) -> VolumeIdentity {
        VolumeIdentity {
            visible_uuid: properties.uuid,
            label: properties.label,
            zone_count: properties.zone_count,
            incompatible: self.incompatible | PROPERTIES,
            ..self
        }
    }

    /// The same volume with so many zones for the log and metadata alone: it may have got some since its headers were written.
    #[must_use]
    pub fn with_metadata_zones(self, metadata_zones: u32) -> VolumeIdentity {
        let split = if metadata_zones > 0 { SPLIT } else { 0 };
        VolumeIdentity {
            metadata_zones,
            incompatible: self.incompatible & !SPLIT | split,
            ..self
        }
    }

    /// Zones that hold each block of the log and of metadata.
    #[must_use]
    pub fn copies(&self) -> u32 {
        if self.incompatible & MIRRORED != 0 {
            2
        } else {
            1
        }
    }
}

/// A zone header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneHeader {
    /// The volume.
    pub volume: VolumeIdentity,
    /// Device of the zone.
    pub device: DeviceId,
    /// The zone.
    pub zone: ZoneId,
    /// Its use.
    pub role: Role,
    /// Lifetime class, as in [`crate::table::ZitEntry::lifetime`].
    pub lifetime: u8,
    /// Number of this use, greater than that of any zone taken into use before.
    pub sequence: u64,
    /// Log zones: sequence of the log block that follows the header; others 0.
    pub first_log_sequence: u64,
    /// The zone whose blocks, but for the header, are the same. It has the same sequence, and
    /// addresses name the one of the two with the smaller number.
    pub partner: Option<ZoneId>,
}

impl ZoneHeader {
    /// As stored: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let v = &self.volume;
        let mut out = Vec::with_capacity(BLOCK_SIZE);
        out.put(&MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0);
        out.put(&v.uuid);
        out.put(&v.secret);
        out.put(container::cut_label(&v.label).as_bytes());
        out.resize(128, 0);
        v.features().put(&mut out);
        out.put_u8(self.device.0);
        out.put_u8(self.role as u8);
        out.put_u8(self.lifetime);
        out.put_u8(0);
        out.put_u32(self.zone.0);
        out.put_u64(self.sequence);
        out.put_u32(v.zone_count);
        out.put_u32(v.zone_blocks);
        out.put_u64(self.first_log_sequence);
        out.put_i64(v.created_seconds);
        out.put_u32(self.partner.map_or(0, |zone| zone.0.saturating_add(1)));
        out.put_u32(v.metadata_zones);
        if v.incompatible & PROPERTIES != 0 {
            out.put(&v.visible_uuid);
        }
        out.resize(CHECKSUM_OFFSET, 0);
        let sum = checksum::plain(&out);
        out.put_u64(sum);
        out
    }

    /// As read. A version or an incompatible feature that is not known is an error; the caller looks at
    /// [`VolumeIdentity::read_only_compatible`] before it writes.
    pub fn decode(block: &[u8]) -> Result<ZoneHeader> {
        let FixedFields {
            uuid,
            label,
            features,
            sequence,
            ..
        } = FixedFields::read(block).and_then(|fixed| fixed.check().map(|()| fixed))?;
        let mut r = Reader::new(block, WHAT);
        r.bytes(SECRET_OFFSET)?;
        let secret = r.array()?;
        r.bytes(LABEL_LEN_MAX + Features::LEN)?;
        let device = DeviceId(r.u8()?);
        let role = r.u8()?;
        let role = Role::from_number(role).ok_or_else(|| r.bad("role", role.into()))?;
        let lifetime = r.u8()?;
        r.u8()?;
        let zone = ZoneId(r.u32()?);
        r.u64()?;
        let zone_count = r.u32()?;
        let zone_blocks = r.u32()?;
        let first_log_sequence = r.u64()?;
        let created_seconds = r.i64()?;
        let partner = r.u32()?.checked_sub(1).map(ZoneId);
        if partner == Some(zone) {
            return Err(r.bad("partner", zone.0.into()));
        }
        let metadata_zones = r.u32()?;
        if (metadata_zones > 0) != (features.incompatible & SPLIT != 0) {
            return Err(r.bad("number of zones for metadata", metadata_zones.into()));
        }
        let visible_uuid = match features.incompatible & PROPERTIES {
            0 => uuid,
            _ => r.array()?,
        };
        Ok(ZoneHeader {
            volume: VolumeIdentity {
                uuid,
                visible_uuid,
                secret,
                label,
                incompatible: features.incompatible,
                read_only_compatible: features.read_only_compatible,
                compatible: features.compatible,
                created_seconds,
                zone_count,
                zone_blocks,
                metadata_zones,
            },
            device,
            zone,
            role,
            lifetime,
            sequence,
            first_log_sequence,
            partner,
        })
    }
}
