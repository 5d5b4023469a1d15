//! The gate: what tells a program, before it believes anything else of a volume, whether it may.
//!
//! Some fields of a zone header are where they are in every version of the format, and are read
//! without knowing it ([`FixedFields`]). Every zone header that is read goes through here: an intact
//! one *of the volume* that asks for more than this program knows is an error, whatever else there
//! is, and never a torn header.

use crate::codec::{Put, Reader};
use crate::zone_header::{FORMAT_VERSION, WHAT, read_label};
use crate::zone_header::{KNOWN_INCOMPATIBLE, KNOWN_READ_ONLY_COMPATIBLE, MAGIC, REQUIRED};
use crate::{FormatError, Result};

/// Three sets of 64 flags: what a reader must know, of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// To mount at all.
    pub incompatible: u64,
    /// To write.
    pub read_only_compatible: u64,
    /// Nothing: these may be ignored.
    pub compatible: u64,
}

impl Features {
    /// Bytes it takes.
    pub const LEN: usize = 24;

    /// Flags of both.
    #[must_use]
    pub fn and(self, other: Features) -> Features {
        Features {
            incompatible: self.incompatible | other.incompatible,
            read_only_compatible: self.read_only_compatible | other.read_only_compatible,
            compatible: self.compatible | other.compatible,
        }
    }

    /// An error if a volume with these cannot be read.
    pub fn check(self) -> Result<()> {
        let unknown = self.incompatible & !KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(FormatError::UnknownFeatures { unknown });
        }
        let missing = REQUIRED & !self.incompatible;
        if missing != 0 {
            return Err(FormatError::MissingFeatures { missing });
        }
        Ok(())
    }

    /// Flags that this program must not write without knowing them.
    #[must_use]
    pub fn unknown_to_write(self) -> u64 {
        self.read_only_compatible & !KNOWN_READ_ONLY_COMPATIBLE
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.incompatible);
        out.put_u64(self.read_only_compatible);
        out.put_u64(self.compatible);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Features> {
        Ok(Features {
            incompatible: r.u64()?,
            read_only_compatible: r.u64()?,
            compatible: r.u64()?,
        })
    }
}

/// The fields of a zone header that are at the same place in every version of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedFields {
    /// Version of the format.
    pub version: u32,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Label of the volume.
    pub label: String,
    /// Features of the volume.
    pub features: Features,
    /// Number of this use of the zone.
    pub sequence: u64,
}

impl FixedFields {
    /// Of a zone header of any version, if it is intact.
    pub fn read(block: &[u8]) -> Result<FixedFields> {
        let mut r = Reader::of_sealed_block(block, MAGIC, u32::MAX, WHAT)?;
        let version = Reader::new(block.get(MAGIC.len()..).unwrap_or_default(), WHAT).u32()?;
        r.u32()?;
        let uuid = r.array()?;
        r.bytes(32)?;
        let label = read_label(&mut r)?;
        let features = Features::read(&mut r)?;
        r.bytes(8)?;
        Ok(FixedFields {
            version,
            uuid,
            label,
            features,
            sequence: r.u64()?,
        })
    }

    /// An error if this program cannot read the volume.
    pub fn check(&self) -> Result<()> {
        if self.version > FORMAT_VERSION {
            return Err(FormatError::NewerVersion {
                found: self.version,
                supported: FORMAT_VERSION,
            });
        }
        self.features.check()
    }
}

/// Which volume a device carries, by the intact headers in its zones, of whatever version: the volume that most of these name, for making
/// one resets all it can. What is left of others counts where there is nothing else. Of those that equally many name, the one used last.
#[derive(Default)]
pub struct Votes(Vec<Vote>);

/// What the headers of one volume come to.
struct Vote {
    uuid: [u8; 16],
    /// Those in zones that can still be reset.
    live: u64,
    newest: u64,
}

impl Votes {
    /// Adds a header, and whether its zone can still be reset.
    pub fn add(&mut self, header: &FixedFields, can_be_reset: bool) {
        let at = self.0.iter().position(|vote| vote.uuid == header.uuid);
        let at = at.unwrap_or_else(|| {
            let uuid = header.uuid;
            let (live, newest) = (0, 0);
            self.0.push(Vote { uuid, live, newest });
            self.0.len() - 1
        });
        if let Some(vote) = self.0.get_mut(at) {
            vote.live += u64::from(can_be_reset);
            vote.newest = header.sequence.max(vote.newest);
        }
    }

    /// Whether several volumes are named.
    #[must_use]
    pub fn are_of_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Whether equally many headers name several volumes.
    #[must_use]
    pub fn are_tied(&self) -> bool {
        let most = self.0.iter().map(|vote| vote.live).max();
        self.0.iter().filter(|vote| Some(vote.live) == most).count() > 1
    }

    /// The UUID of the volume that the device carries.
    #[must_use]
    pub fn winner(&self) -> Option<[u8; 16]> {
        let votes = self.0.iter();
        let winner = votes.max_by_key(|vote| (vote.live, vote.newest));
        winner.map(|vote| vote.uuid)
    }
}

/// The volume that these headers name, each with whether its zone can still be reset.
#[must_use]
pub fn volume_of<'a>(
    headers: impl IntoIterator<Item = (&'a FixedFields, bool)>,
) -> Option<[u8; 16]> {
    let mut votes = Votes::default();
    for (header, can_be_reset) in headers {
        votes.add(header, can_be_reset);
    }
    votes.winner()
}
