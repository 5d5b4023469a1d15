//! What a stream is made of beside its records: its header, and where it can go on. All integers are little endian.

use std::fmt;

use persimmon_format::{checksum, shown};

use crate::codec::{Put, Reader};
use crate::error::DecodeError;

type Result<T> = std::result::Result<T, DecodeError>;

/// How a stream begins.
pub const MAGIC: [u8; 8] = *b"persstrm";
/// The version of streams.
pub const VERSION: u16 = 1;
/// Flag: it holds what differs from a base.
pub(crate) const FLAG_INCREMENTAL: u32 = 1;
/// Flag: it begins in the midst of a stream.
pub(crate) const FLAG_RESUMED: u32 = 2;
/// The flags that this version knows. A stream with others is refused.
pub(crate) const FLAGS_KNOWN: u32 = FLAG_INCREMENTAL | FLAG_RESUMED;
/// Bytes of a header before its fields.
pub(crate) const HEAD_BYTES: usize = 24;
/// Bytes that the fields of a header have at most.
const FIELDS_BYTES_MAX: u32 = 1024;

/// The root directory.
pub const ROOT: u64 = 1;

/// A time: seconds (i64) and nanoseconds (u32) since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

impl Time {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_i64(self.seconds);
        out.put_u32(self.nanoseconds);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Time> {
        let (seconds, nanoseconds) = (r.i64()?, r.u32()?);
        if nanoseconds >= 1_000_000_000 {
            return Err(r.bad("nanoseconds"));
        }
        Ok(Time {
            seconds,
            nanoseconds,
        })
    }
}

/// Which snapshot of a volume: number (u16), time when it was taken, and the name it had. A number is used again, but not with the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub id: u16,
    /// When it was taken.
    pub taken: Time,
    /// Its name, which may change.
    pub name: Vec<u8>,
}

impl Identity {
    /// Whether both are of one snapshot, whatever it is called.
    #[must_use]
    pub fn is_same(&self, other: &Identity) -> bool {
        (self.id, self.taken) == (other.id, other.taken)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.id);
        self.taken.put(out);
        out.put_short(&self.name);
    }

    fn read(r: &mut Reader<'_>) -> Result<Identity> {
        Ok(Identity {
            id: r.u16()?,
            taken: Time::read(r)?,
            name: r.short()?.to_vec(),
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&self.name).fmt(f)
    }
}

/// What a stream is of: volume (16 bytes), snapshot, whether there is a base (u8), base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// What is sent.
    pub snapshot: Identity,
    /// From where on, in an incremental stream.
    pub base: Option<Identity>,
}

impl Origin {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put(&self.volume);
        self.snapshot.put(out);
        out.put_flag(self.base.is_some());
        if let Some(base) = &self.base {
            base.put(out);
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Origin> {
        let (volume, snapshot) = (r.array()?, Identity::read(r)?);
        let base = match r.flag()? {
            true => Some(Identity::read(r)?),
            false => None,
        };
        Ok(Origin {
            volume,
            snapshot,
            base,
        })
    }

    /// As in a header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Origin> {
        let mut r = Reader::new(bytes, "the origin");
        let origin = Origin::read(&mut r)?;
        r.end()?;
        Ok(origin)
    }

    /// Whether both are of the same snapshots.
    #[must_use]
    pub fn is_same(&self, other: &Origin) -> bool {
        let bases = match (&self.base, &other.base) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.volume == other.volume && self.snapshot.is_same(&other.snapshot) && bases
    }

    /// What makes a stream itself, names left out: what checksums begin with.
    pub(crate) fn identifying(&self) -> Vec<u8> {
        let nameless = |identity: &Identity| Identity {
            name: Vec::new(),
            ..identity.clone()
        };
        let mut out = Vec::new();
        let origin = Origin {
            snapshot: nameless(&self.snapshot),
            base: self.base.as_ref().map(nameless),
            ..*self
        };
        origin.put(&mut out);
        out
    }
}

/// What the records between two barriers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Names are taken away.
    #[default]
    Remove,
    /// Directories that are gone are removed.
    RemoveDirectories,
    /// New directories are made, without names.
    MakeDirectories,
    /// Directories get names.
    DirectoryNames,
    /// All else gets names.
    FileNames,
    /// Content and attributes of all but directories.
    Files,
    /// Attributes of directories.
    Directories,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 7] = [
        Stage::Remove,
        Stage::RemoveDirectories,
        Stage::MakeDirectories,
        Stage::DirectoryNames,
        Stage::FileNames,
        Stage::Files,
        Stage::Directories,
    ];

    fn number(self) -> u8 {
        self as u8
    }

    fn read(r: &mut Reader<'_>) -> Result<Stage> {
        let number = r.u8()?;
        let stage = Stage::ALL.get(usize::from(number)).copied();
        stage.ok_or_else(|| r.bad("stage"))
    }
}

/// How far a sender has come: stage (u8), inode (u64), where in that (u64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The stage.
    pub stage: Stage,
    /// The inode that is next.
    pub ino: u64,
    /// The item of a directory, or the block of a file, that is next.
    pub at: u64,
}

impl Cursor {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_u8(self.stage.number());
        out.put_u64(self.ino);
        out.put_u64(self.at);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Cursor> {
        Ok(Cursor {
            stage: Stage::read(r)?,
            ino: r.u64()?,
            at: r.u64()?,
        })
    }
}

/// A place in a stream where it can go on: number of the next record (u64), bytes of content before it (u64), digest of all records before it
/// (16 bytes), cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Number of the next record.
    pub sequence: u64,
    /// Bytes of file content before it.
    pub content_bytes: u64,
    /// Digest of the records before it.
    pub digest: [u8; 16],
    /// How far the sender is.
    pub cursor: Cursor,
}

impl Position {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.sequence);
        out.put_u64(self.content_bytes);
        out.put(&self.digest);
        self.cursor.put(out);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Position> {
        Ok(Position {
            sequence: r.u64()?,
            content_bytes: r.u64()?,
            digest: r.array()?,
            cursor: Cursor::read(r)?,
        })
    }
}

/// The beginning of a stream. Bytes: magic 0..8, version 8..10 (u16), zeros 10..12, flags 12..16 (u32) of which unknown ones are refused, flags
/// 16..20 (u32) that may be ignored, bytes of the fields 20..24 (u32), fields, CRC-32C of all before it (u32). Fields: origin; in a resumed
/// stream position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is of.
    pub origin: Origin,
    /// Where it begins, if not at the beginning.
    pub resumed: Option<Position>,
}

impl Header {
    /// As sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        self.origin.put(&mut fields);
        let mut flags = 0;
        if self.origin.base.is_some() {
            flags |= FLAG_INCREMENTAL;
        }
        if let Some(position) = &self.resumed {
            flags |= FLAG_RESUMED;
            position.put(&mut fields);
        }
        let mut out = Vec::new();
        out.put(&MAGIC);
        out.put_u16(VERSION);
        out.put_u16(0);
        out.put_u32(flags);
        out.put_u32(0);
        out.put_long(&fields);
        out.put_u32(checksum::crc_of_more(0, &out));
        out
    }

    /// Bytes that follow the first [`HEAD_BYTES`].
    pub(crate) fn rest_bytes(head: &[u8]) -> Result<usize> {
        let mut r = Reader::new(head, "the header");
        if r.array().ok() != Some(MAGIC) {
            return Err(DecodeError::NoStream);
        }
        let version = r.u16()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        r.u16()?;
        let flags = r.u32()?;
        r.u32()?;
        let len = r.u32()?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(DecodeError::Flags(flags));
        }
        if len > FIELDS_BYTES_MAX {
            return Err(r.bad("length"));
        }
        Ok(len as usize + 4)
    }

    /// As received.
    pub fn decode(bytes: &[u8]) -> Result<Header> {
        let short = DecodeError::Short("the header");
        let (body, crc) = bytes.split_last_chunk().ok_or(short.clone())?;
        let head = body.get(..HEAD_BYTES).ok_or(short)?;
        Header::rest_bytes(head)?;
        if u32::from_le_bytes(*crc) != checksum::crc_of_more(0, body) {
            return Err(DecodeError::Altered("the header"));
        }
        let mut r = Reader::new(body, "the header");
        r.bytes(12)?;
        let flags = r.u32()?;
        r.u32()?;
        let mut r = Reader::new(r.long()?, "the header");
        let origin = Origin::read(&mut r)?;
        if origin.base.is_some() != (flags & FLAG_INCREMENTAL != 0) {
            return Err(r.bad("base"));
        }
        let resumed = match flags & FLAG_RESUMED {
            0 => None,
            _ => Some(Position::read(&mut r)?),
        };
        r.end()?;
        Ok(Header { origin, resumed })
    }
}

/// What goes on with a stream: origin, position, CRC-32C, as hexadecimal digits.
pub(crate) fn token(origin: &Origin, position: &Position) -> String {
    let mut bytes = vec![VERSION as u8];
    origin.put(&mut bytes);
    position.put(&mut bytes);
    bytes.put_u32(checksum::crc_of_more(0, &bytes));
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Position {
    /// Reads a token.
    pub fn of_token(token: &str) -> Result<(Origin, Position)> {
        let digits = token.trim().as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else {
            return Err(DecodeError::Token);
        };
        let byte = |pair: &[u8; 2]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let bytes = bytes.ok_or(DecodeError::Token)?;
        let (body, crc) = bytes.split_last_chunk().ok_or(DecodeError::Token)?;
        if u32::from_le_bytes(*crc) != checksum::crc_of_more(0, body) {
            return Err(DecodeError::Token);
        }
        let mut r = Reader::new(body, "the token");
        if r.u8()? != VERSION as u8 {
            return Err(DecodeError::Token);
        }
        let found = (Origin::read(&mut r)?, Position::read(&mut r)?);
        r.end()?;
        Ok(found)
    }
}

/// What a file is; stored as the type bits of `st_mode`, shifted right by 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl Kind {
    const ALL: [(Kind, u8); 7] = [
        (Kind::Fifo, 1),
        (Kind::CharDevice, 2),
        (Kind::Directory, 4),
        (Kind::BlockDevice, 6),
        (Kind::Regular, 8),
        (Kind::Symlink, 10),
        (Kind::Socket, 12),
    ];

    /// By the type bits of a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Kind::of_number((mode >> 12 & 0xf) as u8)
    }

    /// The type bits of a mode.
    #[must_use]
    pub fn mode(self) -> u32 {
        u32::from(self.number()) << 12
    }

    pub(crate) fn of_number(number: u8) -> Option<Kind> {
        let found = Kind::ALL.iter().find(|(_, known)| *known == number);
        found.map(|(kind, _)| *kind)
    }

    pub(crate) fn number(self) -> u8 {
        let found = Kind::ALL.iter().find(|(kind, _)| *kind == self);
        found.map_or(0, |(_, number)| *number)
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Kind> {
        let number = r.u8()?;
        Kind::of_number(number).ok_or_else(|| r.bad("kind"))
    }
}

/// What `stat` tells of an inode and a receiver gives it: mode (u32), owner and group (u32), device (u32), size (u64), access and
/// modification time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Bytes of a regular file; of others what they make of it.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
}

impl Attributes {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for value in [self.mode, self.uid, self.gid, self.rdev] {
            out.put_u32(value);
        }
        out.put_u64(self.size);
        self.atime.put(out);
        self.mtime.put(out);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Attributes> {
        Ok(Attributes {
            mode: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            rdev: r.u32()?,
            size: r.u64()?,
            atime: Time::read(r)?,
            mtime: Time::read(r)?,
        })
    }
}
