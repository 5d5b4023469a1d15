//! What each of the two devices of a volume says of itself: which of them it is, and of which volume. It
//! is the first block of each of the device's last two zones, which hold nothing else.
//!
//! Bytes: magic 0..8, version 8..12, kind (0 metadata, 1 data) 12, reserved 13..16, UUID of the volume
//! 16..32, label 32..96 (zero padded), zones for metadata 96..100, blocks from zone to zone of those
//! 100..104, zones for data 104..108, blocks from zone to zone of those 108..112, and in version 2: zones that the device had
//! before it grew 112..116, number of runs 116..120, and the runs, eight bytes each: the number in the volume of the first zone of the
//! run, and how many there are; zeros, XXH3-64 of all that 4088..4096.
//!
//! A device that has not grown has version 1. Its zones are one run: those for metadata come first, those for data follow.

use crate::checksum;
use crate::codec::{Put, Reader};
use crate::container;
use crate::zone_header::LABEL_LEN_MAX;
use crate::{BLOCK_SIZE, Result};

/// First eight bytes.
pub const MAGIC: [u8; 8] = *b"PRSMPART";
/// Version of this block, of a device that has grown.
pub const VERSION: u32 = 2;
/// That of a device that has not.
const VERSION_AS_MADE: u32 = 1;
/// Most runs of a device.
pub const RUNS_MAX: usize = 256;
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

/// Zones of a device that follow each other in the volume too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRun {
    /// Number of the first one in the volume.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl ZoneRun {
    /// Number in the volume past the last one.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.first.saturating_add(self.count)
    }
}

/// Of a device that grew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Zones that it had before it did last: its label was in those behind them.
    pub before: u32,
    /// Its zones in their order, as they are numbered in the volume. At most [`RUNS_MAX`].
    pub runs: Vec<ZoneRun>,
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
    /// How its zones are numbered, if not as those of a volume that has not grown. What the label says of zones of the other
    /// device may be older then: they are those and more.
    pub grown: Option<Grown>,
}

impl DeviceLabel {
    /// As stored: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_SIZE);
        out.put(&MAGIC);
        out.put_u32(match self.grown {
            None => VERSION_AS_MADE,
            Some(_) => VERSION,
        });
        out.put_u8(self.kind as u8);
        out.resize(16, 0);
        out.put(&self.uuid);
        out.put(container::cut_label(&self.label).as_bytes());
        out.resize(96, 0);
        for zones in [self.metadata, self.data] {
            out.put_u32(zones.count);
            out.put_u32(zones.blocks);
        }
        if let Some(grown) = &self.grown {
            let runs = grown.runs.get(..RUNS_MAX).unwrap_or(&grown.runs);
            out.put_u32(grown.before);
            out.put_u32(runs.len() as u32);
            for run in runs {
                out.put_u32(run.first);
                out.put_u32(run.count);
            }
        }
        out.resize(CHECKSUM_OFFSET, 0);
        let sum = checksum::plain(&out);
        out.put_u64(sum);
        out
    }

    /// As read.
    pub fn decode(block: &[u8]) -> Result<DeviceLabel> {
        let (mut r, version) = Reader::of_versions(block, MAGIC, VERSION, WHAT)?;
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
        let (metadata, data) = (zones()?, zones()?);
        let grown = (version > VERSION_AS_MADE).then(|| Grown::read(&mut r));
        let label = DeviceLabel {
            kind,
            uuid,
            label,
            metadata,
            data,
            grown: grown.transpose()?,
        };
        let runs = label.runs();
        let count = runs
            .iter()
            .fold(0u64, |sum, run| sum + u64::from(run.count));
        if label.grown.is_some() && count != u64::from(label.own().count) {
            return Err(r.bad("zones in runs", count));
        }
        Ok(label)
    }

    /// Zones of the device that it is of.
    #[must_use]
    pub fn own(&self) -> DeviceZones {
        match self.kind {
            DeviceKind::Metadata => self.metadata,
            DeviceKind::Data => self.data,
        }
    }

    /// The same zones by their numbers in the volume.
    #[must_use]
    pub fn runs(&self) -> Vec<ZoneRun> {
        match (&self.grown, self.kind) {
            (Some(grown), _) => grown.runs.clone(),
            (None, DeviceKind::Metadata) => vec![ZoneRun {
                first: 0,
                count: self.metadata.count,
            }],
            (None, DeviceKind::Data) => vec![ZoneRun {
                first: self.metadata.count,
                count: self.data.count,
            }],
        }
    }
}

impl Grown {
    fn read(r: &mut Reader<'_>) -> Result<Grown> {
        let before = r.u32()?;
        let count = r.u32()?;
        if count == 0 || count as usize > RUNS_MAX {
            return Err(r.bad("number of runs", count.into()));
        }
        let mut runs: Vec<ZoneRun> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (first, count) = (r.u32()?, r.u32()?);
            let after = runs.last().map_or(0, ZoneRun::end);
            if count == 0 || first < after || first.checked_add(count).is_none() {
                return Err(r.bad("first zone of a run", first.into()));
            }
            runs.push(ZoneRun { first, count });
        }
        Ok(Grown { before, runs })
    }
}
