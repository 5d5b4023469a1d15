//! Records in frames. A frame: bytes of the fields 0..4 (u32), number of the record 4..12 (u64), its kind 12, fields, CRC-32C (u32) of what
//! identifies the stream and all before it. So a record that was altered, that is missing, or that is of another stream is found before anything is made of it.
//!
//! The digest goes from record to record: XXH3 (128 bits) of the digest before and the frame. The first one is that of what identifies the
//! stream.

use std::io::{self, Read, Write};

use persimmon_format::checksum::crc_of_more;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::codec::{Put, Reader};
use crate::error::{DecodeError, ReceiveError};
use crate::record::{PLAIN_MAX, Record};
use crate::wire::{Cursor, HEAD_BYTES, Header, MAGIC, Origin, Position};

/// Bytes of the fields of a record at most.
pub const RECORD_BYTES_MAX: usize = PLAIN_MAX + 64;
const FRAME_HEAD: usize = 13;

/// Where both ends are.
struct Chain {
    /// What checksums begin with.
    seed: u32,
    position: Position,
}

impl Chain {
    fn new(origin: &Origin, resumed: Option<&Position>) -> Chain {
        let identifying = origin.identifying();
        let first = Position {
            digest: xxh3_128(&identifying).to_le_bytes(),
            ..Position::default()
        };
        Chain {
            seed: crc_of_more(0, &identifying),
            position: resumed.copied().unwrap_or(first),
        }
    }

    fn passed(&mut self, frame: [&[u8]; 3], content_bytes: u64) {
        let mut hasher = Xxh3::new();
        hasher.update(&self.position.digest);
        frame.into_iter().for_each(|part| hasher.update(part));
        self.position.digest = hasher.digest128().to_le_bytes();
        self.position.sequence += 1;
        self.position.content_bytes = self.position.content_bytes.saturating_add(content_bytes);
    }
}

/// Writes a stream.
pub struct FrameWriter<W> {
    out: W,
    chain: Chain,
    bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a stream, or goes on with one.
    pub fn new(mut out: W, origin: &Origin, resumed: Option<&Position>) -> io::Result<Self> {
        let header = Header {
            origin: origin.clone(),
            resumed: resumed.copied(),
        };
        let header = header.encode();
        out.write_all(&header)?;
        Ok(FrameWriter {
            out,
            chain: Chain::new(origin, resumed),
            bytes: header.len() as u64,
        })
    }

    /// Where the stream is.
    pub fn position(&self) -> &Position {
        &self.chain.position
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a record.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let fields = record.encode();
        let mut head = Vec::with_capacity(FRAME_HEAD);
        head.put_u32(fields.len() as u32);
        head.put_u64(self.chain.position.sequence);
        head.put_u8(record.kind());
        let crc = crc_of_more(crc_of_more(self.chain.seed, &head), &fields).to_le_bytes();
        self.out.write_all(&head)?;
        self.out.write_all(&fields)?;
        self.out.write_all(&crc)?;
        self.bytes += (head.len() + fields.len() + crc.len()) as u64;
        self.chain
            .passed([&head, &fields, &crc], record.content_bytes());
        Ok(())
    }

    /// Writes the end, and lets go of what it was written to.
    pub fn end(mut self) -> io::Result<(W, Position)> {
        let position = self.chain.position;
        self.write(&Record::End {
            records: position.sequence,
            content_bytes: position.content_bytes,
            digest: position.digest,
        })?;
        self.out.flush()?;
        Ok((self.out, position))
    }
}

/// Reads a stream.
pub struct FrameReader<R> {
    input: R,
    header: Header,
    chain: Chain,
    bytes: u64,
    is_over: bool,
}

impl<R: Read> FrameReader<R> {
    /// Reads the header.
    pub fn new(mut input: R) -> Result<Self, ReceiveError> {
        let of_header = |error| match error {
            ReceiveError::Cut => ReceiveError::NoHeader,
            error => error,
        };
        let mut header = Vec::new();
        let mut magic = input.by_ref().take(MAGIC.len() as u64);
        magic.read_to_end(&mut header).map_err(ReceiveError::Read)?;
        if !MAGIC.starts_with(&header) {
            return Err(DecodeError::NoStream.into());
        }
        if header.len() < MAGIC.len() {
            return Err(ReceiveError::NoHeader);
        }
        let rest = HEAD_BYTES - MAGIC.len();
        header.extend(read_exactly(&mut input, rest).map_err(of_header)?);
        let rest = Header::rest_bytes(&header)?;
        header.extend(read_exactly(&mut input, rest).map_err(of_header)?);
        let bytes = header.len() as u64;
        let header = Header::decode(&header)?;
        Ok(FrameReader {
            chain: Chain::new(&header.origin, header.resumed.as_ref()),
            input,
            header,
            bytes,
            is_over: false,
        })
    }

    /// What the stream is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the stream is: past the last record that was read.
    pub fn position(&self, cursor: Cursor) -> Position {
        Position {
            cursor,
            ..self.chain.position
        }
    }

    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next record, checked; none behind the end record, whose totals were compared.
    pub fn read(&mut self) -> Result<Option<Record>, ReceiveError> {
        if self.is_over {
            return Ok(None);
        }
        let head = read_exactly(&mut self.input, FRAME_HEAD)?;
        let mut r = Reader::new(&head, "a record");
        let (len, sequence, kind) = (r.u32()?, r.u64()?, r.u8()?);
        if len as usize > RECORD_BYTES_MAX {
            return Err(DecodeError::Long(len).into());
        }
        let fields = read_exactly(&mut self.input, len as usize)?;
        let crc = read_exactly(&mut self.input, 4)?;
        let due = crc_of_more(crc_of_more(self.chain.seed, &head), &fields).to_le_bytes();
        if crc != due {
            return Err(DecodeError::Altered("a record").into());
        }
        if sequence != self.chain.position.sequence {
            let due = self.chain.position.sequence;
            let found = sequence;
            return Err(DecodeError::Sequence { due, found }.into());
        }
        let record = Record::decode(kind, &fields)?;
        if let Record::End {
            records,
            content_bytes,
            digest,
        } = &record
        {
            let due = &self.chain.position;
            if (*records, *content_bytes, *digest) != (due.sequence, due.content_bytes, due.digest)
            {
                return Err(DecodeError::Altered("the stream").into());
            }
            self.is_over = true;
        }
        self.bytes += (head.len() + fields.len() + crc.len()) as u64;
        self.chain
            .passed([&head, &fields, &crc], record.content_bytes());
        Ok(Some(record))
    }
}

/// So many bytes, which are at most those of a record.
fn read_exactly(input: &mut impl Read, len: usize) -> Result<Vec<u8>, ReceiveError> {
    let mut bytes = vec![0; len];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ReceiveError::Cut),
        Err(error) => Err(ReceiveError::Read(error)),
    }
}
