//! What each of the two devices of a volume says of itself: which of them it is, and of which volume. It
//! is the first block of each of the device's last two zones, which hold nothing else.
//!
//! Bytes: magic 0..8, version 8..12, kind (0 metadata, 1 data) 12, reserved 13..16, UUID of the volume
//! 16..32, label 32..96 (zero padded), zones for metadata 96..100, blocks from zone to zone of those
//! 100..104, zones for data 104..108, blocks from zone to zone of those 108..112, zeros, XXH3-64 of all
//! that 4088..4096.

use crate::checksum;
use crate::codec::{Put, Reader};
use crate::container;
use crate::zone_header::LABEL_LEN_MAX;
use crate::{BLOCK_SIZE, Result};

/// First eight bytes.
pub const MAGIC: [u8; 8] = *b"PRSMPART";
/// Version of this block.
pub const VERSION: u32 = 1;
const CHECKSUM_OFFSET: usize = BLOCK_SIZE - 8;
const WHAT: &str = "device label";

/// What a device of two is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The log and metadata.
    Metadata = 0,
    /// File data.
    Data = 1,
}

/// Zones of one of the two devices, without those of the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceZones {
    /// How many.
    pub count: u32,
    /// Blocks from zone to zone.
    pub blocks: u32,
}

/// The label of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLabel {
    /// Which of the two it is.
    pub kind: DeviceKind,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Label of the volume, at most [`LABEL_LEN_MAX`] bytes.
    pub label: String,
    /// Zones of the device for metadata.
    pub metadata: DeviceZones,
    /// Zones of the device for data.
    pub data: DeviceZones,
}

impl DeviceLabel {
    /// As stored: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_SIZE);
        out.put(&MAGIC);
        out.put_u32(VERSION);
        out.put_u8(self.kind as u8);
        out.resize(16, 0);
        out.put(&self.uuid);
        out.put(container::cut_label(&self.label).as_bytes());
        out.resize(96, 0);
        for zones in [self.metadata, self.data] {
            out.put_u32(zones.count);
            out.put_u32(zones.blocks);
        }
        out.resize(CHECKSUM_OFFSET, 0);
        let sum = checksum::plain(&out);
        out.put_u64(sum);
        out
    }

    /// As read.
    pub fn decode(block: &[u8]) -> Result<DeviceLabel> {
        let mut r = Reader::of_sealed_block(block, MAGIC, VERSION, WHAT)?;
        let kind = match r.u8()? {
            0 => DeviceKind::Metadata,
            1 => DeviceKind::Data,
            other => return Err(r.bad("kind", other.into())),
        };
        r.bytes(3)?;
        let uuid = r.array()?;
        let label = r.bytes(LABEL_LEN_MAX)?;
        let end = label.iter().position(|b| *b == 0).unwrap_or(label.len());
        let label = String::from_utf8_lossy(label.get(..end).unwrap_or_default()).into_owned();
        let mut zones = || -> Result<DeviceZones> {
            Ok(DeviceZones {
                count: r.u32()?,
                blocks: r.u32()?,
            })
        };
        Ok(DeviceLabel {
            kind,
            uuid,
            label,
            metadata: zones()?,
            data: zones()?,
        })
    }
}
