//! What is left of a volume on a file or block device that does not begin as an image does. Whoever reads "nothing
//! is on it" makes something new there, so it is said only where nothing of a volume can be found.

use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use persimmon_format::container::{self, Superblock};
use persimmon_format::gate::FixedFields;
use persimmon_format::zone_header::{self, ZoneHeader};
use persimmon_format::{BLOCK_SIZE, shown};

/// Blocks at the start that are looked at one by one: copies of an image's superblock are among them.
const HEAD_BLOCKS: u64 = 256;
/// Zones of an image begin at multiples of so many bytes.
const ZONE_ALIGN_BYTES: u64 = 1 << 20;
/// So many such places are looked at from the start on, and as many from the end back: all of 128 GiB, and the first
/// zones of anything.
const PLACES_MAX: u64 = 1 << 16;

/// Something that only a volume has.
pub(crate) struct Trace {
    what: &'static str,
    /// Of the volume, where it can be told.
    label: Option<String>,
    offset: u64,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a Persimmon volume")?;
        if let Some(label) = &self.label {
            write!(f, " (label \"{}\")", shown(label))?;
        }
        write!(
            f,
            " whose image is damaged at its start; {} is left at byte {}",
            self.what, self.offset
        )
    }
}

/// Looks for a volume by its zones' headers, and by the copies of an image's superblock. What cannot be read holds
/// nothing.
pub(crate) fn of_volume(file: &File) -> Option<Trace> {
    let mut end = file;
    let length = end.seek(SeekFrom::End(0)).ok()?;
    let places = length / ZONE_ALIGN_BYTES;
    let head = (0..HEAD_BLOCKS).map(|block| block * BLOCK_SIZE as u64);
    let first = 1..places.min(PLACES_MAX);
    let last = places.saturating_sub(PLACES_MAX).max(first.end)..places + 1;
    let zones = first.chain(last).map(|place| place * ZONE_ALIGN_BYTES);
    head.chain(zones).find_map(|offset| at(file, offset))
}

fn at(file: &File, offset: u64) -> Option<Trace> {
    let mut block = [0; BLOCK_SIZE];
    file.read_exact_at(&mut block, offset).ok()?;
    let trace = |what, label| {
        Some(Trace {
            what,
            label,
            offset,
        })
    };
    if container::has_magic(&block) {
        let superblock = Superblock::decode(&block).ok()?;
        // Nothing is in what was never finished.
        let complete = Some(superblock).filter(|superblock| superblock.complete)?;
        return trace("a copy of its superblock", Some(complete.label));
    }
    if !block.starts_with(&zone_header::MAGIC) {
        return None;
    }
    match ZoneHeader::decode(&block) {
        Ok(header) => trace("a zone's header", Some(header.volume.label)),
        // Its label stands where it does in every version.
        Err(error) if error.is_unsupported() => {
            let fixed = FixedFields::read(&block).ok();
            trace("a zone's header", fixed.map(|fixed| fixed.label))
        }
        Err(_) => None,
    }
}
