//! Persimmon as a library: an append-only filesystem for zoned storage, without a mount.
//!
//! ```no_run
//! use persimmon::{Create, Filesystem, Options};
//!
//! # fn main() -> persimmon::Result<()> {
//! Filesystem::create("volume.img", &Create::sized(1 << 30))?;
//! let fs = Filesystem::open("volume.img", &Options::default())?;
//! fs.create_dir("/notes")?;
//! fs.write("/notes/today", b"pick persimmons")?;
//! fs.sync()?;
//! for entry in fs.read_dir("/notes")? {
//!     println!("{}", String::from_utf8_lossy(&entry.name));
//! }
//! fs.close()
//! # }
//! ```
//!
//! [`Filesystem`] works by path, [`File`] is an open file. Programs that keep inode numbers use
//! [`Vfs`] below ([`Filesystem::vfs`]); it has every operation. No permissions are checked: whoever
//! opens the volume may do everything.

mod background;
mod clock;
mod error;
mod file;
mod filesystem;
mod path;
mod volume;

pub use background::{Background, CommitInterval};
pub use clock::SystemClock;
pub use error::{Error, Result};
pub use file::{File, OpenOptions};
pub use filesystem::{DirEntry, Filesystem};
pub use persimmon_engine::RecoveryReport;
pub use persimmon_vfs::{
    Allocate, Attr, FileKind, Ino, Lifetime, RenameMode, SeekTo, SetAttr, SetTime, StatFs,
    Timestamp, Vfs, XattrMode,
};
pub use volume::{Create, Options};
