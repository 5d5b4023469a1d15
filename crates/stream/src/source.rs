//! What a sender reads: a snapshot, and the base that the receiver has.

use std::io;

use persimmon_format::compression::Codec;

use crate::error::DecodeError;
use crate::wire::{Attributes, Kind, Origin};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the receiver has.
    Base,
    /// What is sent.
    Snapshot,
}

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A snapshot is not there any more.
    #[error(
        "the snapshot that is sent, or the one it is sent from, was deleted meanwhile: the stream is not complete"
    )]
    Gone,
    /// It could change while it is sent.
    #[error("snapshot {0} can be written to: take a read-only one of it, and send that")]
    Writable(String),
    /// There is none with this name.
    #[error("there is no snapshot {0}; `persimmon snapshot list` shows those there are")]
    NoSnapshot(String),
    /// Both are one, or the base is no base.
    #[error("a snapshot cannot be sent from itself")]
    SameSnapshot,
    /// Something is wrong with the volume.
    #[error("{0}")]
    Volume(String),
    /// Whoever reads it for this process does not answer.
    #[error("the daemon of the mount does not answer: {0}")]
    Transport(#[from] io::Error),
    /// Or makes no sense.
    #[error("the daemon of the mount speaks another version: {0}")]
    Protocol(#[from] DecodeError),
}

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Some of many, and where the others begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<T> {
    /// Some, in order.
    pub items: Vec<T>,
    /// Where to go on, if there are more.
    pub next: Option<u64>,
}

/// An inode that may have to be sent: one of the snapshot, or, if there is a base, one that may differ between the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub ino: u64,
    /// What it is in the base, if it has a name there.
    pub base: Option<Attributes>,
    /// What it is in the snapshot, if it has a name there.
    pub snapshot: Option<Attributes>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is in the directory: entries are told in this order.
    pub item: u64,
    /// The inode it leads to.
    pub ino: u64,
    /// What that is.
    pub kind: Kind,
    /// The inode is not on the other side.
    pub is_alone: bool,
    /// Device number of a device node.
    pub rdev: u32,
    /// The name.
    pub name: Vec<u8>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first file block.
    pub block: u64,
    /// File blocks.
    pub blocks: u64,
    /// What they hold.
    pub content: PieceContent,
}

/// What a piece of a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceContent {
    /// Nothing.
    Hole,
    /// Bytes; fewer than whole blocks where the file ends.
    Plain(Vec<u8>),
    /// Blocks of a compressed frame.
    Frame {
        /// How it is compressed.
        codec: Codec,
        /// Blocks that it gives.
        frame_blocks: u8,
        /// Blocks of it before the piece.
        skip: u8,
        /// Compressed.
        bytes: Vec<u8>,
    },
}

/// Pieces of a file, in order, and the block where the next ones begin.
pub type Content = Batch<Piece>;

/// A snapshot that is sent, and what of it may differ from the base. Every answer is bounded; a snapshot does not change, so the same question
/// gets the same answer, but for how content is stored.
pub trait Source {
    /// What is sent.
    fn origin(&self) -> &Origin;

    /// Refuses once one of the snapshots is gone.
    fn check(&mut self) -> Result<(), SourceError>;

    /// Inodes that may have to be sent, from a number on, in their order.
    fn inodes(
        &mut self,
        from: u64,
        only_directories: bool,
    ) -> Result<Batch<Candidate>, SourceError>;

    /// Entries of a directory from an item on; where both sides have it, those that may differ.
    fn entries(&mut self, side: Side, dir: u64, from: u64) -> Result<Batch<Entry>, SourceError>;

    /// The inode that a name leads to, and whether it is a directory.
    fn lookup(
        &mut self,
        side: Side,
        dir: u64,
        name: &[u8],
    ) -> Result<Option<(u64, bool)>, SourceError>;

    /// All entries of a directory, from an item on, whether they differ or not: their inodes and whether they are directories.
    fn list(&mut self, side: Side, dir: u64, from: u64) -> Result<Batch<(u64, bool)>, SourceError>;

    /// Extended attributes of an inode, in the order of their names.
    fn xattrs(&mut self, side: Side, ino: u64) -> Result<Xattrs, SourceError>;

    /// What a file has from a block on; beside a base, where that has the file, what may differ.
    fn content(&mut self, ino: u64, from: u64) -> Result<Content, SourceError>;
}
