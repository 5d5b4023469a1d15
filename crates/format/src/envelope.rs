//! The envelope of every block that is not file data: what it is, of which volume, whose, and
//! which version of it, under a keyed checksum over all of its blocks, padding included.

use crate::codec::{Put, Reader};
use crate::{BLOCK_SIZE, FormatError, Result, VolumeKey};

/// `PRSM`, the first four bytes of an envelope.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PRSM");
/// Bytes before the payload.
pub const HEADER_LEN: usize = 48;
/// Version of the envelope and of the payloads in it.
pub const VERSION: u8 = 1;
const VERSION_OFFSET: usize = 5;
const VOLUME_OFFSET: usize = 8;
const CHECKSUM_OFFSET: usize = 40;
const _: () = assert!(CHECKSUM_OFFSET + 8 == HEADER_LEN && BLOCK_PAYLOAD == 4048);

/// What an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A journal block ([`crate::log`]).
    Journal = 1,
    /// A part of a checkpoint footer ([`crate::footer`]).
    Footer = 2,
    /// A chunk of the Metadata Allocation Table ([`crate::table`]).
    MatChunk = 3,
    /// A chunk of the Zone Information Table ([`crate::table`]).
    ZitChunk = 4,
    /// A metadata page ([`crate::page`]).
    Page = 5,
    /// A summary of data blocks ([`crate::summary`]).
    Summary = 6,
}

impl Kind {
    /// For messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Journal => "journal block",
            Kind::Footer => "checkpoint footer",
            Kind::MatChunk => "MAT chunk",
            Kind::ZitChunk => "ZIT chunk",
            Kind::Page => "metadata page",
            Kind::Summary => "summary block",
        }
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Journal,
            2 => Kind::Footer,
            3 => Kind::MatChunk,
            4 => Kind::ZitChunk,
            5 => Kind::Page,
            6 => Kind::Summary,
            _ => return None,
        })
    }
}

/// The fields of an envelope. Bytes: magic 0..4, kind 4, version 5, blocks 6..8, volume 8..16,
/// owner 16..24, sequence 24..32, payload length 32..36, flags 36..40, checksum 40..48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// What it holds.
    pub kind: Kind,
    /// Blocks it takes, padding included.
    pub blocks: u16,
    /// Whose: page id, chunk number, or the sequence of the zone it lies in (log and summary).
    pub owner: u64,
    /// Which version: checkpoint number, log sequence, or position.
    pub sequence: u64,
    /// Bytes of payload.
    pub payload_len: u32,
}

/// Blocks needed for a payload of `payload_len` bytes.
#[must_use]
pub fn blocks_for(payload_len: usize) -> usize {
    (HEADER_LEN + payload_len).div_ceil(BLOCK_SIZE)
}

/// Payload bytes that fit one block.
pub const BLOCK_PAYLOAD: usize = BLOCK_SIZE - HEADER_LEN;

/// Writes header and checksum around a payload that already stands at `buffer[48..]`. `buffer` is
/// whole blocks; what follows the payload should be zero.
pub fn seal(
    buffer: &mut [u8],
    key: &VolumeKey,
    kind: Kind,
    owner: u64,
    sequence: u64,
    payload_len: usize,
) {
    let mut header = Vec::with_capacity(HEADER_LEN);
    header.put_u32(MAGIC);
    header.put_u8(kind as u8);
    header.put_u8(VERSION);
    header.put_u16((buffer.len() / BLOCK_SIZE) as u16);
    header.put_u64(key.volume());
    header.put_u64(owner);
    header.put_u64(sequence);
    header.put_u32(payload_len as u32);
    header.put_u32(0);
    let Some((head, body)) = buffer.split_at_mut_checked(HEADER_LEN) else {
        return;
    };
    header.put_u64(checksum(key, &header, body));
    head.copy_from_slice(&header);
}

fn checksum(key: &VolumeKey, header: &[u8], body: &[u8]) -> u64 {
    let mut joined = [0u8; HEADER_LEN];
    let (fields, digest) = joined.split_at_mut(CHECKSUM_OFFSET);
    fields.copy_from_slice(&header[..CHECKSUM_OFFSET]);
    digest.copy_from_slice(&key.checksum(body).to_le_bytes());
    key.checksum(&joined)
}

/// An error if `bytes` begin with an intact envelope of this volume in a later version than this program
/// knows. Magic, version, number of blocks, volume and checksum are where they are in every version.
pub fn check_version(bytes: &[u8], key: &VolumeKey) -> Result<()> {
    let what = "envelope";
    let Some(header) = bytes.get(..HEADER_LEN) else {
        return Ok(());
    };
    let mut r = Reader::new(header, what);
    let (magic, _, version, blocks, volume) = (r.u32()?, r.u8()?, r.u8()?, r.u16()?, r.u64()?);
    if magic != MAGIC || version <= VERSION || volume != key.volume() {
        return Ok(());
    }
    let stored = Reader::new(&header[CHECKSUM_OFFSET..], what).u64()?;
    match bytes.get(HEADER_LEN..usize::from(blocks) * BLOCK_SIZE) {
        Some(body) if stored == checksum(key, header, body) => Err(FormatError::NewerVersion {
            found: version.into(),
            supported: VERSION.into(),
        }),
        _ => Ok(()),
    }
}

/// Reads the header fields without trusting them: enough to know how many blocks to read. The
/// version is left to [`open`]: before the checksum a flipped bit would pass for a newer program.
pub fn peek(bytes: &[u8]) -> Result<Envelope> {
    let mut r = Reader::new(bytes, "envelope");
    if r.u32()? != MAGIC {
        return Err(FormatError::Magic { what: "envelope" });
    }
    let kind = r.u8()?;
    let kind = Kind::from_number(kind).ok_or_else(|| r.bad("kind", u64::from(kind)))?;
    r.u8()?;
    let blocks = r.u16()?;
    r.u64()?;
    Ok(Envelope {
        kind,
        blocks,
        owner: r.u64()?,
        sequence: r.u64()?,
        payload_len: r.u32()?,
    })
}

/// Whether bytes whose checksum fails seem to have been this structure: all but one of magic, kind,
/// volume, owner and sequence are as they would be.
#[must_use]
pub fn resembles(bytes: &[u8], key: &VolumeKey, kind: Kind, owner: u64, sequence: u64) -> bool {
    let mut r = Reader::new(bytes, kind.name());
    let mut fields = || -> Result<[bool; 5]> {
        let magic = r.u32()? == MAGIC;
        let kind = r.u8()? == kind as u8;
        r.bytes(VOLUME_OFFSET - VERSION_OFFSET)?;
        Ok([
            magic,
            kind,
            r.u64()? == key.volume(),
            r.u64()? == owner,
            r.u64()? == sequence,
        ])
    };
    fields().is_ok_and(|fields| fields.iter().filter(|same| !**same).count() <= 1)
}

/// Verifies an envelope of the expected kind and owner, of a known version, that fills `bytes` exactly, and returns
/// its fields and payload.
pub fn open<'a>(
    bytes: &'a [u8],
    key: &VolumeKey,
    kind: Kind,
    owner: Option<u64>,
) -> Result<(Envelope, &'a [u8])> {
    let what = kind.name();
    check_version(bytes, key)?;
    let envelope = peek(bytes).map_err(|e| match e {
        FormatError::Magic { .. } => FormatError::Magic { what },
        other => other,
    })?;
    let (header, body) = bytes
        .split_at_checked(HEADER_LEN)
        .ok_or(FormatError::Truncated { what })?;
    let stored = Reader::new(&header[CHECKSUM_OFFSET..], what).u64()?;
    if stored != checksum(key, header, body) {
        return Err(FormatError::Checksum { what });
    }
    let expect = |field, found: u64, expected: u64| {
        if found == expected {
            Ok(())
        } else {
            Err(FormatError::Mismatch {
                what,
                field,
                found,
                expected,
            })
        }
    };
    expect("kind", envelope.kind as u64, kind as u64)?;
    expect(
        "volume",
        Reader::new(&header[VOLUME_OFFSET..], what).u64()?,
        key.volume(),
    )?;
    expect(
        "length",
        u64::from(envelope.blocks) * BLOCK_SIZE as u64,
        bytes.len() as u64,
    )?;
    if let Some(owner) = owner {
        expect("owner", envelope.owner, owner)?;
    }
    let payload = body
        .get(..envelope.payload_len as usize)
        .ok_or(FormatError::Truncated { what })?;
    Ok((envelope, payload))
}
