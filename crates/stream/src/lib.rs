//! Snapshots as streams. [`send`] makes one out of a [`Source`], [`receive`] brings it into a [`Target`]. A stream names inodes by their
//! numbers and never by paths, so whatever it holds, it leads nowhere outside of the target. `docs/STREAM.md` says every byte, and why.
//!
//! `wire` holds what a stream is made of, `frames` how its records are framed. `send` and `receive` are the two ends, `index` is what a
//! receiver remembers between streams. `plain` receives into a directory of any filesystem; `remote` asks a source in another process.

mod codec;
mod error;
mod frames;
mod index;
mod own;
mod plain;
mod receive;
mod record;
mod remote;
mod send;
mod source;
mod state;
mod target;
mod wire;

pub use error::{DecodeError, ReceiveError, SendError};
pub use frames::{FrameReader, FrameWriter, RECORD_BYTES_MAX};
pub use own::{resume_token, state_of};
pub use plain::Directory;
pub use receive::{Received, Warning, Watch, receive};
pub use record::Record;
pub use remote::{Remote, answer};
pub use send::{SendOptions, Sent, find, send};
pub use source::{
    Batch, Candidate, Content, Entry, Piece, PieceContent, Side, Source, SourceError, Xattrs,
};
pub use state::State;
pub use target::{Node, Target};
pub use wire::{Attributes, Cursor, Header, Identity, Kind, Origin, Position, Stage, Time};

/// The directory in the root of what was received that holds what a receiver has to remember. It is not part of what was received, and is
/// not sent.
pub const STATE_DIRECTORY: &[u8] = b".persimmon-receive";
