//! Log blocks: the common prefix of journal blocks and footer parts, and the journal's framing of
//! records.
//!
//! In the envelope of a log block, owner is the sequence of the zone and sequence the number of
//! the block in the log, counted over the volume's life.
//!
//! Payload: epoch 0..4, opening 4..8, resume after 8..16, durable LSN 16..24, footer address
//! 24..32, then journal: first LSN 32..40, lead 40..42, used 42..44, length 44..46 (of compressed
//! records, else 0), reserved 46..48, record bytes from 48; footer part: part 32..34, parts 34..36, reserved 36..48, footer bytes from 48.

pub use self::records::{RECORDS_LEN_MAX, Records, compress};
use crate::codec::{Put, Reader};
use crate::envelope::{self, BLOCK_PAYLOAD, Kind};
use crate::{Addr, BLOCK_SIZE, FormatError, Lsn, Result, VolumeKey};

mod records;

const PREFIX_LEN: usize = 48;
/// Record or footer bytes that fit a log block.
pub const BODY_LEN: usize = BLOCK_PAYLOAD - PREFIX_LEN;
const _: () = assert!(BODY_LEN == 4000);
/// Bytes before each record in the journal: its length, as u32.
pub const RECORD_HEADER_LEN: usize = 4;
/// Only the first so many sequential zones can be of the log; on two devices of those for metadata.
pub const LOG_CANDIDATES: u32 = 64;
/// Longest record, bytes.
pub const RECORD_LEN_MAX: usize = 4 << 20;

/// What every log block tells of the log when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// Grows with every mount that recovered and wrote.
    pub epoch: u32,
    /// Number, drawn at random, of the opening that wrote the block; 0 of one that drew none.
    pub opening: u32,
    /// The last LSN that is valid of all earlier epochs: later ones are invalidated.
    pub resume_after: Lsn,
    /// Everything up to this LSN is durable.
    pub durable: Lsn,
    /// First block of the last durable footer; [`Addr::ZERO`] before the first.
    pub footer: Addr,
}

/// What a log block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Records.
    Journal {
        /// LSN of the first record that starts in this block (or, if none does, in a later one).
        first_lsn: Lsn,
        /// Bytes at the front that end a record begun in the block before.
        lead: u16,
        /// All record bytes.
        records: Records<'a>,
    },
    /// A part of a footer.
    Footer {
        /// Number of this part, from 0.
        part: u16,
        /// Parts in all; they are consecutive blocks of one zone.
        parts: u16,
        /// Its bytes.
        bytes: &'a [u8],
    },
}

/// A verified log block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock<'a> {
    /// Number of the block in the log.
    pub sequence: u64,
    /// What it tells of the log.
    pub state: LogState,
    /// What it holds.
    pub body: Body<'a>,
}

impl LogBlock<'_> {
    /// Whether it has compressed records, as only blocks of a volume with [`crate::zone_header::COMPRESSED_LOG`] have.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        match &self.body {
            Body::Journal { records, .. } => records.is_compressed(),
            Body::Footer { .. } => false,
        }
    }

    /// Fills `block` (of [`BLOCK_SIZE`] bytes, zero). What it has of the body is at most [`BODY_LEN`] bytes.
    pub fn encode_into(&self, block: &mut [u8], key: &VolumeKey, zone_sequence: u64) {
        let mut prefix = Vec::with_capacity(PREFIX_LEN);
        prefix.put_u32(self.state.epoch);
        prefix.put_u32(self.state.opening);
        prefix.put_u64(self.state.resume_after.0);
        prefix.put_u64(self.state.durable.0);
        prefix.put_u64(self.state.footer.to_raw());
        let (kind, bytes) = match &self.body {
            Body::Journal {
                first_lsn,
                lead,
                records,
            } => {
                let (stored, len) = records.stored();
                prefix.put_u64(first_lsn.0);
                prefix.put_u16(*lead);
                prefix.put_u16(stored.len() as u16);
                prefix.put_u16(len);
                (Kind::Journal, stored)
            }
            Body::Footer { part, parts, bytes } => {
                prefix.put_u16(*part);
                prefix.put_u16(*parts);
                (Kind::Footer, *bytes)
            }
        };
        prefix.resize(PREFIX_LEN, 0);
        let body = envelope::HEADER_LEN + PREFIX_LEN;
        debug_assert!(block.len() == BLOCK_SIZE && bytes.len() <= BODY_LEN);
        block[envelope::HEADER_LEN..body].copy_from_slice(&prefix);
        block[body..body + bytes.len()].copy_from_slice(bytes);
        let payload_len = PREFIX_LEN + bytes.len();
        envelope::seal(block, key, kind, zone_sequence, self.sequence, payload_len);
    }

    /// Verifies a block of the log zone with this sequence.
    pub fn decode<'a>(
        block: &'a [u8],
        key: &VolumeKey,
        zone_sequence: u64,
    ) -> Result<LogBlock<'a>> {
        envelope::check_version(block, key)?;
        let kind = match envelope::peek(block)?.kind {
            kind @ (Kind::Journal | Kind::Footer) => kind,
            _ => return Err(FormatError::Magic { what: "log block" }),
        };
        let (envelope, payload) = envelope::open(block, key, kind, Some(zone_sequence))?;
        let mut r = Reader::new(payload, kind.name());
        let state = LogState {
            epoch: r.u32()?,
            opening: r.u32()?,
            resume_after: Lsn(r.u64()?),
            durable: Lsn(r.u64()?),
            footer: Addr::from_raw(r.u64()?),
        };
        let body = if kind == Kind::Journal {
            let first_lsn = Lsn(r.u64()?);
            let lead = r.u16()?;
            let used = r.u16()?;
            let len = r.u16()?;
            r.u16()?;
            let records = Records::read(r.bytes(used.into())?, len, kind.name())?;
            if usize::from(lead) > records.len() {
                return Err(FormatError::Value {
                    what: kind.name(),
                    field: "lead",
                    value: lead.into(),
                });
            }
            Body::Journal {
                first_lsn,
                lead,
                records,
            }
        } else {
            let part = r.u16()?;
            let parts = r.u16()?;
            r.bytes(12)?;
            if part >= parts {
                return Err(r.bad("part", part.into()));
            }
            Body::Footer {
                part,
                parts,
                bytes: r.rest(),
            }
        };
        Ok(LogBlock {
            sequence: envelope.sequence,
            state,
            body,
        })
    }
}
