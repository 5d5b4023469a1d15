//! Backups: a tar stream in PAX format (POSIX.1-2001), which any tar unpacks, with what is beyond POSIX written as GNU
//! tar does: sparse files in its format 1.0, extended attributes as `SCHILY.xattr.NAME`. Comments in global headers
//! begin and end it; the one at the end has the checksum of everything before, so a backup that is cut is not taken
//! for a whole one.

mod pax;
mod read;
mod write;

pub use read::read;
pub use write::Archive;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use tar::{EntryType, Header};

use super::rooted;

/// What `backup` and `restore` are told.
#[derive(Args)]
pub struct Between {
    /// Device or image file of the volume, LABEL= or UUID=
    pub volume: OsString,
    /// The archive; `-` is standard output or input
    pub archive: PathBuf,
    /// This directory of the volume instead of all of it; `restore` makes it where it is missing
    directory: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Between {
    /// The archive is no file, but the stream of this process.
    pub fn is_standard(&self) -> bool {
        self.archive.as_os_str() == "-"
    }

    /// The directory in the volume.
    pub fn top(&self) -> PathBuf {
        rooted(self.directory.as_deref().unwrap_or("/".as_ref()))
    }
}

/// Everything in a tar stream begins at a multiple of that.
const BLOCK: usize = 512;
/// The comment that begins a backup.
const BEGIN: &str = "persimmon backup 1";
/// The comment that ends one, before the number of entries and the checksum.
const END: &str = "persimmon end";
/// Ranges of data told of one file, 16 bytes of memory each. Of more the smallest holes between them become zeros.
const RANGES_MAX: usize = 1 << 20;
/// Bytes of what is told of one file beside its content.
const RECORDS_MAX: u64 = 16 << 20;

const XATTR: &str = "SCHILY.xattr.";
/// An extended attribute with an equals sign in its name, at which the key of a PAX record would end. The value is the name, a zero byte, and the
/// value of the attribute.
const NAMED_XATTR: &str = "PERSIMMON.xattr";
const SPARSE_NAME: &str = "GNU.sparse.name";
const SPARSE_SIZE: &str = "GNU.sparse.realsize";
/// What a pipe of the archive really is: tar has no sockets.
const SOCKET: &str = "PERSIMMON.socket";

/// Bytes up to the next multiple of a block.
fn padding(len: u64) -> usize {
    let block = BLOCK as u64;
    ((block - len % block) % block) as usize
}

/// The name for those that read no extended headers: the beginning of it.
fn set_name(header: &mut Header, path: &[u8]) {
    for (to, from) in header.as_old_mut().name.iter_mut().zip(path) {
        *to = *from;
    }
}

/// The header of an extended header of so many bytes.
fn header_of_records(kind: EntryType, len: u64) -> Header {
    let mut header = Header::new_ustar();
    set_name(&mut header, b"persimmon");
    header.set_mode(0o600);
    header.set_entry_type(kind);
    header.set_size(len);
    header.set_cksum();
    header
}
