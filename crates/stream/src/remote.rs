//! A source in another process: the daemon of a mount. [`Remote`] asks, [`answer`] answers for the source that is there. How questions and
//! answers travel is not said here.
//!
//! A question: version (u8), what is asked (u8), then its fields. An answer: 0 and what was asked for, or 1 and why not: 0 for a snapshot that
//! is gone, 1 for a text.

use std::io;

use crate::codec::{Put, Reader};
use crate::error::DecodeError;
use crate::record::{codec_of, number_of};
use crate::source::{
    Batch, Candidate, Content, Entry, Piece, PieceContent, Side, Source, SourceError, Xattrs,
};
use crate::wire::{Attributes, Kind, Origin};

/// Version of questions and answers.
const VERSION: u8 = 1;
/// Things in one answer at most: more is no answer of this version.
const COUNT_MAX: u32 = 1 << 20;

const CHECK: u8 = 0;
const INODES: u8 = 1;
const ENTRIES: u8 = 2;
const LOOKUP: u8 = 3;
const LIST: u8 = 4;
const XATTRS: u8 = 5;
const CONTENT: u8 = 6;

type Decoded<T> = Result<T, DecodeError>;

fn put_side(out: &mut Vec<u8>, side: Side) {
    out.put_flag(side == Side::Snapshot);
}

fn side(r: &mut Reader<'_>) -> Decoded<Side> {
    Ok(match r.flag()? {
        true => Side::Snapshot,
        false => Side::Base,
    })
}

fn put_optional<T>(out: &mut Vec<u8>, value: &Option<T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.put_flag(value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

fn optional<T>(
    r: &mut Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>) -> Decoded<T>,
) -> Decoded<Option<T>> {
    Ok(match r.flag()? {
        true => Some(read(r)?),
        false => None,
    })
}

fn put_all<T>(out: &mut Vec<u8>, all: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    out.put_u32(all.len() as u32);
    all.iter().for_each(|one| put(out, one));
}

fn all<T>(
    r: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Decoded<T>,
) -> Decoded<Vec<T>> {
    let count = r.u32()?;
    if count > COUNT_MAX {
        return Err(r.bad("count"));
    }
    (0..count).map(|_| read(r)).collect()
}

fn put_batch<T>(out: &mut Vec<u8>, batch: &Batch<T>, put: impl FnMut(&mut Vec<u8>, &T)) {
    put_all(out, &batch.items, put);
    put_optional(out, &batch.next, |out, next| out.put_u64(*next));
}

fn batch<T>(
    r: &mut Reader<'_>,
    read: impl FnMut(&mut Reader<'_>) -> Decoded<T>,
) -> Decoded<Batch<T>> {
    Ok(Batch {
        items: all(r, read)?,
        next: optional(r, |r| r.u64())?,
    })
}

fn put_found(out: &mut Vec<u8>, (ino, is_directory): &(u64, bool)) {
    out.put_u64(*ino);
    out.put_flag(*is_directory);
}

fn found(r: &mut Reader<'_>) -> Decoded<(u64, bool)> {
    Ok((r.u64()?, r.flag()?))
}

fn put_candidate(out: &mut Vec<u8>, candidate: &Candidate) {
    out.put_u64(candidate.ino);
    put_optional(out, &candidate.base, |out, it| it.put(out));
    put_optional(out, &candidate.snapshot, |out, it| it.put(out));
}

fn candidate(r: &mut Reader<'_>) -> Decoded<Candidate> {
    Ok(Candidate {
        ino: r.u64()?,
        base: optional(r, Attributes::read)?,
        snapshot: optional(r, Attributes::read)?,
    })
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.put_u64(entry.item);
    out.put_u64(entry.ino);
    out.put_u8(entry.kind.number());
    out.put_flag(entry.is_alone);
    out.put_u32(entry.rdev);
    out.put_short(&entry.name);
    out.put_long(&entry.target);
}

fn entry(r: &mut Reader<'_>) -> Decoded<Entry> {
    Ok(Entry {
        item: r.u64()?,
        ino: r.u64()?,
        kind: Kind::read(r)?,
        is_alone: r.flag()?,
        rdev: r.u32()?,
        name: r.short()?.to_vec(),
        target: r.long()?.to_vec(),
    })
}

fn put_piece(out: &mut Vec<u8>, piece: &Piece) {
    out.put_u64(piece.block);
    out.put_u64(piece.blocks);
    match &piece.content {
        PieceContent::Hole => out.put_u8(0),
        PieceContent::Plain(bytes) => {
            out.put_u8(1);
            out.put_long(bytes);
        }
        PieceContent::Frame {
            codec,
            frame_blocks,
            skip,
            bytes,
        } => {
            out.put(&[2, number_of(*codec), *frame_blocks, *skip]);
            out.put_long(bytes);
        }
    }
}

fn piece(r: &mut Reader<'_>) -> Decoded<Piece> {
    Ok(Piece {
        block: r.u64()?,
        blocks: r.u64()?,
        content: match r.u8()? {
            0 => PieceContent::Hole,
            1 => PieceContent::Plain(r.long()?.to_vec()),
            2 => PieceContent::Frame {
                codec: codec_of(r)?,
                frame_blocks: r.u8()?,
                skip: r.u8()?,
                bytes: r.long()?.to_vec(),
            },
            _ => return Err(r.bad("content")),
        },
    })
}

/// The answer to a question.
#[must_use]
pub fn answer<S: Source>(source: &mut S, question: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    match try_answer(source, question, &mut out) {
        Ok(()) => out,
        Err(SourceError::Gone) => vec![1, 0],
        Err(error) => {
            let mut out = vec![1, 1];
            out.put_long(error.to_string().as_bytes());
            out
        }
    }
}

fn try_answer<S: Source>(
    source: &mut S,
    question: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), SourceError> {
    let mut r = Reader::new(question, "a question");
    if r.u8()? != VERSION {
        return Err(r.bad("version").into());
    }
    match r.u8()? {
        CHECK => source.check()?,
        INODES => {
            let (from, only_directories) = (r.u64()?, r.flag()?);
            put_batch(out, &source.inodes(from, only_directories)?, put_candidate);
        }
        ENTRIES => {
            let (side, dir, from) = (side(&mut r)?, r.u64()?, r.u64()?);
            put_batch(out, &source.entries(side, dir, from)?, put_entry);
        }
        LOOKUP => {
            let (side, dir) = (side(&mut r)?, r.u64()?);
            let answer = source.lookup(side, dir, r.rest())?;
            put_optional(out, &answer, put_found);
        }
        LIST => {
            let (side, dir, from) = (side(&mut r)?, r.u64()?, r.u64()?);
            put_batch(out, &source.list(side, dir, from)?, put_found);
        }
        XATTRS => {
            let (side, ino) = (side(&mut r)?, r.u64()?);
            put_all(out, &source.xattrs(side, ino)?, |out, (name, value)| {
                out.put_short(name);
                out.put_long(value);
            });
        }
        CONTENT => {
            let (ino, from) = (r.u64()?, r.u64()?);
            put_batch(out, &source.content(ino, from)?, put_piece);
        }
        _ => return Err(r.bad("question").into()),
    }
    Ok(())
}

/// A source that somebody else reads; `ask` takes questions there and brings answers.
pub struct Remote<F> {
    origin: Origin,
    ask: F,
}

impl<F: FnMut(&[u8]) -> io::Result<Vec<u8>>> Remote<F> {
    /// That of these snapshots.
    pub fn new(origin: Origin, ask: F) -> Remote<F> {
        Remote { origin, ask }
    }

    fn ask<T>(
        &mut self,
        what: u8,
        fields: impl FnOnce(&mut Vec<u8>),
        read: impl FnOnce(&mut Reader<'_>) -> Decoded<T>,
    ) -> Result<T, SourceError> {
        let mut question = vec![VERSION, what];
        fields(&mut question);
        let answer = (self.ask)(&question)?;
        let mut r = Reader::new(&answer, "an answer");
        if r.flag()? {
            return Err(match r.flag()? {
                false => SourceError::Gone,
                true => SourceError::Volume(String::from_utf8_lossy(r.long()?).into_owned()),
            });
        }
        let answer = read(&mut r)?;
        r.end()?;
        Ok(answer)
    }
}

impl<F: FnMut(&[u8]) -> io::Result<Vec<u8>>> Source for Remote<F> {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn check(&mut self) -> Result<(), SourceError> {
        self.ask(CHECK, |_| {}, |_| Ok(()))
    }

    fn inodes(
        &mut self,
        from: u64,
        only_directories: bool,
    ) -> Result<Batch<Candidate>, SourceError> {
        let fields = |out: &mut Vec<u8>| {
            out.put_u64(from);
            out.put_flag(only_directories);
        };
        self.ask(INODES, fields, |r| batch(r, candidate))
    }

    fn entries(&mut self, side: Side, dir: u64, from: u64) -> Result<Batch<Entry>, SourceError> {
        let fields = |out: &mut Vec<u8>| {
            put_side(out, side);
            out.put_u64(dir);
            out.put_u64(from);
        };
        self.ask(ENTRIES, fields, |r| batch(r, entry))
    }

    fn lookup(
        &mut self,
        side: Side,
        dir: u64,
        name: &[u8],
    ) -> Result<Option<(u64, bool)>, SourceError> {
        let fields = |out: &mut Vec<u8>| {
            put_side(out, side);
            out.put_u64(dir);
            out.put(name);
        };
        self.ask(LOOKUP, fields, |r| optional(r, found))
    }

    fn list(&mut self, side: Side, dir: u64, from: u64) -> Result<Batch<(u64, bool)>, SourceError> {
        let fields = |out: &mut Vec<u8>| {
            put_side(out, side);
            out.put_u64(dir);
            out.put_u64(from);
        };
        self.ask(LIST, fields, |r| batch(r, found))
    }

    fn xattrs(&mut self, side: Side, ino: u64) -> Result<Xattrs, SourceError> {
        let fields = |out: &mut Vec<u8>| {
            put_side(out, side);
            out.put_u64(ino);
        };
        self.ask(XATTRS, fields, |r| {
            all(r, |r| Ok((r.short()?.to_vec(), r.long()?.to_vec())))
        })
    }

    fn content(&mut self, ino: u64, from: u64) -> Result<Content, SourceError> {
        let fields = |out: &mut Vec<u8>| {
            out.put_u64(ino);
            out.put_u64(from);
        };
        self.ask(CONTENT, fields, |r| batch(r, piece))
    }
}
