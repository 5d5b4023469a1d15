//! What can go wrong at either end.

use std::io;

use crate::source::SourceError;
use crate::wire::{FLAGS_KNOWN, Identity, VERSION};

/// Bytes that are no part of a stream of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It does not begin as a stream does.
    #[error("this is no stream of `persimmon send`")]
    NoStream,
    /// Made by another version.
    #[error(
        "the stream has version {0}, and this persimmon knows {VERSION}: use a newer persimmon here, or send it with this one"
    )]
    Version(u16),
    /// It uses what this version does not know.
    #[error("the stream uses features {:#x} that this persimmon does not know: use a newer one here", .0 & !FLAGS_KNOWN)]
    Flags(u32),
    /// A checksum does not match.
    #[error("{0} was altered on its way: its checksum does not match")]
    Altered(&'static str),
    /// Records are missing or out of order.
    #[error("record {found} came where record {due} was due: part of the stream is missing")]
    Sequence {
        /// What was due.
        due: u64,
        /// What came.
        found: u64,
    },
    /// A record is larger than one can be.
    #[error("a record of {0} bytes is longer than any is")]
    Long(u32),
    /// A record of a kind that this version does not know.
    #[error(
        "the stream has records of kind {0}, which this persimmon does not know: use a newer one here"
    )]
    Kind(u8),
    /// A structure ends before its last field.
    #[error("{0} is cut short")]
    Short(&'static str),
    /// A field has a value that it cannot have.
    #[error("{what} has a wrong value ({field})")]
    Value {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A token that is none.
    #[error("this is no token of `persimmon receive --resume-token`, or not all of it")]
    Token,
}

/// Why a snapshot was not sent to the end.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// What is sent cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The stream cannot be written.
    #[error("the stream cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The token is of another stream.
    #[error(
        "the token is of another stream: give the snapshot that was sent, and the base it was sent from; if one of them is gone, \
         that stream cannot go on: remove all that is in the receiver's directory, .persimmon-receive too, and send a full stream"
    )]
    OtherToken,
}

/// Why a stream was not received to the end.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is no good.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The stream cannot be read.
    #[error("the stream cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It ends before its header does.
    #[error(
        "the stream ended before it began: the sender failed, and says why; nothing was changed here"
    )]
    NoHeader,
    /// It ends before its end record.
    #[error(
        "the stream ended before its end: the sender failed or the connection broke; `persimmon receive --resume-token` tells how to go on"
    )]
    Cut,
    /// The target says no.
    #[error("{what} {path}: {source}")]
    Target {
        /// What was to be done.
        what: &'static str,
        /// Where.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A record contradicts what was received before.
    #[error(
        "record {sequence} does not fit what was received before ({what}): the stream was not made by `persimmon send`, or for another directory"
    )]
    Inconsistent {
        /// Its number.
        sequence: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The directory is not as the last receive left it.
    #[error(
        "{path} is not as the last receive left it ({what}): undo what was changed there, or receive a full stream into an empty directory"
    )]
    Changed {
        /// Where.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A full stream is for an empty directory.
    #[error(
        "the directory is not empty: a full stream is received into an empty one, and what follows with `persimmon send --from`"
    )]
    NotEmpty,
    /// An incremental stream, and nothing was received there.
    #[error("nothing was received here yet: a stream from {} needs a directory that has it; receive a full stream first", .base)]
    NoBase {
        /// What it needs.
        base: Identity,
    },
    /// Another snapshot was received last.
    #[error("{}", other_base(.base, .found))]
    OtherBase {
        /// What the stream needs.
        base: Identity,
        /// What there is.
        found: Identity,
    },
    /// What was received is of another volume.
    #[error("the directory was received from another volume: receive into another directory")]
    OtherVolume,
    /// Something else was begun there.
    #[error(
        "receiving snapshot {0} is not done here: go on with `persimmon send --resume` and the token of `persimmon receive --resume-token`; \
         if the sender does not have that snapshot any more, remove all that is in the directory, .persimmon-receive too, and receive a \
         full stream"
    )]
    Incomplete(Identity),
    /// The stream goes on elsewhere.
    #[error(
        "the stream goes on where this directory is not: get the token anew with `persimmon receive --resume-token`"
    )]
    OtherPosition,
    /// The directory holds nothing to go on with.
    #[error("nothing that was begun here is left to go on with")]
    NothingBegun,
    /// What the receiver keeps there is damaged.
    #[error(
        "what `persimmon receive` keeps in .persimmon-receive is damaged ({0}): receive a full stream into an empty directory"
    )]
    State(&'static str),
    /// A name that the receiver needs.
    #[error(
        "the snapshot has a file with the name of the receiver's own directory, .persimmon-receive"
    )]
    Reserved,
    /// What the target cannot do at all.
    #[error(
        "more links, or changes between two marks of the stream, than a receiver keeps in memory"
    )]
    TooMuch,
}

/// A base was deleted, and made again under its name: then the name tells nobody what to do.
fn other_base(base: &Identity, found: &Identity) -> String {
    if base.name == found.name {
        return format!(
            "the stream begins with a snapshot {base}, and the directory has an older or newer one that was called {found} too: send \
             it from that one with `--from`, if it is still there under another name; otherwise receive a full stream into an empty directory"
        );
    }
    format!(
        "the stream begins with snapshot {base}, and the directory has {found}: send it with `--from {found}`; if the sender does not \
         have that any more, receive a full stream into an empty directory"
    )
}
