//! The kernel's protocol: requests taken apart, answers put together. After `linux/fuse.h`,
//! version 7.31 and later; the handshake, which agrees on that, is fuser's.
//!
//! A request is a header, the fixed part of its operation, and what follows that: names, data. An
//! answer is a header and a body. All numbers are in the host's order.

mod encode;

use bytemuck::{AnyBitPattern, bytes_of, pod_read_unaligned};

pub use encode::{
    Entries, attributes, created, entry, flags, forget_attributes, forget_name, ioctl_done, length,
    negative, offset, opened, resend, space, statx, write_back,
};

/// Bytes of a request's header.
pub const HEADER_LEN: usize = 40;
/// Bytes of an answer's header.
pub const ANSWER_HEADER_LEN: usize = 16;

/// What a request asks for.
pub mod opcode {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const READDIR: u32 = 28;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Bytes of the fixed part of an operation. Those not named here have none, or are not taken.
/// `setxattr_ext`: the kernel agreed to a longer one of SETXATTR.
pub fn fixed_len(operation: u32, setxattr_ext: bool) -> usize {
    match operation {
        opcode::SETXATTR if setxattr_ext => 16,
        opcode::FORGET | opcode::MKDIR | opcode::RENAME | opcode::LINK | opcode::SYNCFS => 8,
        opcode::OPEN | opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR => 8,
        opcode::ACCESS | opcode::INTERRUPT | opcode::BATCH_FORGET => 8,
        opcode::GETATTR | opcode::MKNOD | opcode::CREATE | opcode::TMPFILE => 16,
        opcode::RENAME2 | opcode::FSYNC | opcode::FSYNCDIR => 16,
        opcode::RELEASE | opcode::FLUSH | opcode::LSEEK | opcode::STATX => 24,
        opcode::FALLOCATE | opcode::IOCTL => 32,
        opcode::READ | opcode::WRITE | opcode::READDIR | opcode::READDIRPLUS => 40,
        opcode::COPY_FILE_RANGE => 56,
        opcode::SETATTR => 88,
        _ => 0,
    }
}

/// A number of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// A request that is not as its operation should be.
pub const MALFORMED: Errno = Errno(libc::EINVAL);

/// Is set in the number of a request that the kernel sends again.
pub const RESENT: u64 = 1 << 63;

/// Who asks for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// See [`opcode`].
    pub opcode: u32,
    /// The request's number, which its answer repeats.
    pub unique: u64,
    /// The inode it is about.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// Their process; 0 where it is of no concern of this namespace.
    pub pid: u32,
}

impl Header {
    /// Takes the first [`HEADER_LEN`] bytes of a request apart.
    pub fn parse(bytes: &[u8]) -> Result<Header, Errno> {
        let mut fields = Fields(bytes);
        let _len = fields.u32()?;
        Ok(Header {
            opcode: fields.u32()?,
            unique: fields.u64()?,
            node: fields.u64()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
        })
    }

    /// The kernel has sent it before, to a daemon that did not answer it: that one may have done what it asks for.
    pub fn is_resent(&self) -> bool {
        self.unique & RESENT != 0
    }

    /// The number that it has however often it is sent.
    pub fn request(&self) -> u64 {
        self.unique & !RESENT
    }

    /// The header of an answer with a body of `len` bytes; `error` is 0 or a positive number.
    pub fn answer(unique: u64, error: i32, len: usize) -> [u8; ANSWER_HEADER_LEN] {
        let mut header = [0; ANSWER_HEADER_LEN];
        let len = (ANSWER_HEADER_LEN + len) as u32;
        let error = error.wrapping_neg();
        let parts = bytes_of(&len).iter().chain(bytes_of(&error));
        let parts = parts.chain(bytes_of(&unique));
        for (to, from) in header.iter_mut().zip(parts) {
            *to = *from;
        }
        header
    }
}

/// Reads numbers, one after the other.
#[derive(Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take<T: AnyBitPattern>(&mut self) -> Result<T, Errno> {
        let taken = self.0.split_at_checked(size_of::<T>());
        let (taken, rest) = taken.ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(pod_read_unaligned(taken))
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.take()
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.take()
    }

    /// Leaves four bytes out.
    pub fn skip_u32(&mut self) -> Result<(), Errno> {
        self.u32().map(|_| ())
    }

    /// Leaves eight bytes out.
    pub fn skip_u64(&mut self) -> Result<(), Errno> {
        self.u64().map(|_| ())
    }
}

/// A request in memory, and room for the body of its answer: both have the same place, so what
/// was sent is gone once an answer is written.
pub struct Call<'a> {
    pub header: Header,
    fixed: &'a [u8],
    body: &'a mut [u8],
    sent: usize,
}

/// How a request was answered: a body of so many bytes, or an error.
pub type Answer = Result<usize, Errno>;

impl<'a> Call<'a> {
    /// `fixed` is the operation's fixed part, perhaps with bytes that mean nothing behind it; the
    /// first `sent` bytes of `body` are what follows it.
    pub fn new(header: Header, fixed: &'a [u8], body: &'a mut [u8], sent: usize) -> Call<'a> {
        Call {
            header,
            fixed,
            body,
            sent,
        }
    }

    /// The numbers of the fixed part.
    pub fn fields(&self) -> Fields<'a> {
        Fields(self.fixed)
    }

    /// What follows the fixed part.
    pub fn data(&self) -> &[u8] {
        self.body.get(..self.sent).unwrap_or_default()
    }

    /// The first of the names that follow the fixed part.
    pub fn name(&self) -> Result<&[u8], Errno> {
        first_name(self.data()).map(|(name, _)| name)
    }

    /// The first two of them.
    pub fn two_names(&self) -> Result<(&[u8], &[u8]), Errno> {
        let (first, rest) = first_name(self.data())?;
        Ok((first, first_name(rest)?.0))
    }

    /// A name, and what follows it.
    pub fn name_and_data(&self) -> Result<(&[u8], &[u8]), Errno> {
        first_name(self.data())
    }

    /// Room for a body of at most `len` bytes.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.body.len());
        self.body.get_mut(..len).unwrap_or_default()
    }

    /// Answers with these bytes.
    pub fn answer(&mut self, bytes: &[u8]) -> Answer {
        let room = self.body.get_mut(..bytes.len());
        room.ok_or(Errno(libc::EIO))?.copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

/// Names end with a zero byte.
fn first_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(MALFORMED)?;
    let (name, rest) = bytes.split_at(end);
    Ok((name, rest.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(bytes_of(&50u32));
        bytes.extend_from_slice(bytes_of(&opcode::LINK));
        bytes.extend_from_slice(bytes_of(&7u64));
        bytes.extend_from_slice(bytes_of(&9u64));
        for number in [1000u32, 100, 4321, 0] {
            bytes.extend_from_slice(bytes_of(&number));
        }
        bytes
    }

    #[test]
    fn headers() {
        let bytes = header();
        assert_eq!(bytes.len(), HEADER_LEN);
        let expected = Header {
            opcode: opcode::LINK,
            unique: 7,
            node: 9,
            uid: 1000,
            gid: 100,
            pid: 4321,
        };
        assert_eq!(Header::parse(&bytes), Ok(expected));
        assert_eq!(Header::parse(&bytes[..30]), Err(MALFORMED));
        let answer = Header::answer(7, libc::ENOENT, 0);
        assert_eq!(answer[..4], *bytes_of(&16u32));
        assert_eq!(answer[4..8], *bytes_of(&-libc::ENOENT));
        assert_eq!(answer[8..], *bytes_of(&7u64));
    }

    #[test]
    fn what_follows_the_fixed_part_gives_way_to_the_answer() {
        let header = Header::parse(&header()).unwrap();
        let fixed = bytes_of(&5u64);
        let mut body = *b"old\0new\0......";
        let mut call = Call::new(header, fixed, &mut body, 8);
        assert_eq!(call.fields().u64(), Ok(5));
        assert_eq!(call.two_names(), Ok((&b"old"[..], &b"new"[..])));
        assert_eq!(call.answer(b"0123456789"), Ok(10));
        assert_eq!(call.answer(&[0; 15]), Err(Errno(libc::EIO)));
        assert_eq!(call.room(100).len(), 14);

        let mut body = *b"endless";
        let call = Call::new(header, &fixed[..3], &mut body, 7);
        assert_eq!(call.name(), Err(MALFORMED));
        assert_eq!(call.fields().u32(), Err(MALFORMED));
    }
}
