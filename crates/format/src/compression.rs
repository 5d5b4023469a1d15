//! Compression of file data: the codecs that frames are stored with, and the setting that a file has.

use zstd::zstd_safe::{CCtx, CParameter, DCtx};

use crate::BLOCK_SIZE;
use crate::codec::Reader;
use crate::dictionary::Dictionary;
use crate::packed::COMPRESSED_BLOCKS_MAX;

/// How the bytes of a compressed frame are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    /// An LZ4 block, without a frame of its own.
    #[default]
    Lz4,
    /// A Zstandard frame.
    Zstd,
    /// A Zstandard frame with a checksum of its content, for which these blocks come right before it.
    ZstdAfter(Dictionary),
}

impl Codec {
    pub(crate) fn number(self) -> u8 {
        match self {
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
            Codec::ZstdAfter(_) => 3,
        }
    }

    /// That of a number as read; its dictionary is read from behind all else.
    pub(crate) fn read(
        number: u8,
        r: &mut Reader<'_>,
        dictionary: impl FnOnce(&mut Reader<'_>) -> crate::Result<Dictionary>,
    ) -> crate::Result<Codec> {
        match number {
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            3 => dictionary(r).map(Codec::ZstdAfter),
            other => Err(r.bad("codec", other.into())),
        }
    }

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
            Codec::ZstdAfter(_) => "zstd-dictionary",
        }
    }

    /// What has to be read to decompress what was compressed with it.
    #[must_use]
    pub fn dictionary(self) -> Option<Dictionary> {
        match self {
            Codec::Lz4 | Codec::Zstd => None,
            Codec::ZstdAfter(dictionary) => Some(dictionary),
        }
    }

    /// The content of a frame of `blocks` blocks, by the content of its dictionary, which is empty without one. `None` if these bytes are
    /// malformed, give more or less, or were compressed with another dictionary.
    #[must_use]
    pub fn decompress(self, bytes: &[u8], blocks: usize, dictionary: &[u8]) -> Option<Vec<u8>> {
        let mut content = vec![0; blocks * BLOCK_SIZE];
        let len = match self {
            Codec::Lz4 => lz4_flex::block::decompress_into(bytes, &mut content).ok()?,
            Codec::Zstd => zstd::bulk::decompress_to_buffer(bytes, &mut content).ok()?,
            Codec::ZstdAfter(named) => {
                if dictionary.len() != named.bytes() {
                    return None;
                }
                let mut context = DCtx::try_create()?;
                // A prefix is taken as it is, whatever its first bytes are.
                context.ref_prefix(dictionary).ok()?;
                context.decompress(&mut content[..], bytes).ok()?
            }
        };
        (len == content.len()).then_some(content)
    }
}

/// Whole blocks compressed with the content of a dictionary.
#[must_use]
pub fn compress_after(content: &[u8], dictionary: &[u8], level: u8) -> Option<Vec<u8>> {
    debug_assert!(content.len() <= COMPRESSED_BLOCKS_MAX * BLOCK_SIZE);
    let mut context = CCtx::try_create()?;
    for parameter in [
        CParameter::CompressionLevel(level.into()),
        // Another dictionary would give other content, and nothing else would tell.
        CParameter::ChecksumFlag(true),
    ] {
        context.set_parameter(parameter).ok()?;
    }
    context.ref_prefix(dictionary).ok()?;
    let mut bytes = Vec::with_capacity(zstd::zstd_safe::compress_bound(content.len()));
    context.compress2(&mut bytes, content).ok()?;
    Some(bytes)
}

/// Whether what is written to a file is compressed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// It is stored as it is.
    None,
    /// With LZ4.
    Lz4,
    /// With Zstandard of a level from 1 to [`Compression::ZSTD_LEVEL_MAX`].
    Zstd(u8),
}

impl Compression {
    /// The slowest level of Zstandard that may be chosen.
    pub const ZSTD_LEVEL_MAX: u8 = 15;
    /// The level of `zstd` without a number.
    const ZSTD_LEVEL: u8 = 3;

    /// All of them.
    pub fn all() -> impl Iterator<Item = Compression> {
        let levels = (1..=Compression::ZSTD_LEVEL_MAX).map(Compression::Zstd);
        [Compression::None, Compression::Lz4]
            .into_iter()
            .chain(levels)
    }

    /// For what had this codec and is compressed again.
    #[must_use]
    pub fn for_codec(codec: Codec) -> Compression {
        match codec {
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd | Codec::ZstdAfter(_) => Compression::Zstd(Compression::ZSTD_LEVEL),
        }
    }

    /// From `none`, `lz4`, `zstd` or `zstd:LEVEL`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Compression> {
        match text {
            "none" => Some(Compression::None),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd(Compression::ZSTD_LEVEL)),
            _ => {
                let level = text.strip_prefix("zstd:")?;
                let is = |one: &Compression| matches!(one, Compression::Zstd(known) if known.to_string() == level);
                Compression::all().find(is)
            }
        }
    }

    /// As an inode stores it: 1 for none, 2 for LZ4, two more than its level for Zstandard. 0 is an inode that was told
    /// nothing.
    #[must_use]
    pub fn stored(compression: Option<Compression>) -> u8 {
        match compression {
            None => 0,
            Some(Compression::None) => 1,
            Some(Compression::Lz4) => 2,
            Some(Compression::Zstd(level)) => 2 + level,
        }
    }

    /// From an inode. What has no meaning was not told.
    #[must_use]
    pub fn from_stored(stored: u8) -> Option<Compression> {
        Compression::all().find(|one| Compression::stored(Some(*one)) == stored)
    }

    /// A frame of whole blocks compressed, if that takes at most `bytes_max` bytes.
    #[must_use]
    pub fn compress(self, content: &[u8], bytes_max: usize) -> Option<(Codec, Vec<u8>)> {
        debug_assert!(content.len() <= COMPRESSED_BLOCKS_MAX * BLOCK_SIZE);
        let (codec, bytes) = match self {
            Compression::None => return None,
            Compression::Lz4 => (Codec::Lz4, lz4_flex::block::compress(content)),
            Compression::Zstd(level) => (
                Codec::Zstd,
                zstd::bulk::compress(content, level.into()).ok()?,
            ),
        };
        let fits = !bytes.is_empty() && bytes.len() <= bytes_max && bytes.len() < content.len();
        fits.then_some((codec, bytes))
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_stored_bytes_come_back() {
        for compression in Compression::all() {
            assert_eq!(
                Compression::parse(&compression.to_string()),
                Some(compression)
            );
            let stored = Compression::stored(Some(compression));
            assert_eq!(Compression::from_stored(stored), Some(compression));
        }
        assert_eq!(Compression::parse("zstd"), Some(Compression::Zstd(3)));
        for wrong in [
            "", "zstd:", "zstd:0", "zstd:16", "zstd:03", "zstd:-1", "LZ4", "lz4:1",
        ] {
            assert_eq!(Compression::parse(wrong), None, "{wrong}");
        }
        for stored in [0, 18, 255] {
            assert_eq!(Compression::from_stored(stored), None);
        }
    }
}
