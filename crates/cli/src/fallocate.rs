//! `persimmon fallocate`: takes ranges out of files of a mount and puts them in, which the kernel does not pass to FUSE filesystems.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use persimmon::internal::device::BLOCK_SIZE;
use persimmon::internal::format::shown::shown_path;
use persimmon_fuse::ranges;
use persimmon_fuse::size::parse_bytes;
use rustix::io::Errno;

/// Take a range out of a file on a mount, or put a hole in: what is behind moves, and no data is copied.
///
/// `fallocate` of util-linux does all else; these two modes Linux does not pass to FUSE filesystems.
#[derive(Args)]
pub struct Fallocate {
    /// Take the range out; it has to end before the file does
    #[arg(
        short,
        long,
        required_unless_present = "insert_range",
        conflicts_with = "insert_range"
    )]
    collapse_range: bool,
    /// Put the range in, as a hole; it has to begin before the file ends
    #[arg(short, long)]
    insert_range: bool,
    /// Where the range begins, a multiple of 4 KiB
    #[arg(short, long, default_value = "0", value_parser = parse_bytes)]
    offset: u64,
    /// Its length, a multiple of 4 KiB
    #[arg(short, long, value_parser = parse_bytes)]
    length: u64,
    /// A file on a mount
    file: OsString,
}

impl Fallocate {
    pub fn run(&self) -> Result<u8> {
        let block = BLOCK_SIZE as u64;
        let is_whole = self.offset.is_multiple_of(block) && self.length.is_multiple_of(block);
        if !is_whole || self.length == 0 {
            return Err(crate::exit::usage(
                "offset and length have to be multiples of 4096, and the length not 0",
            ));
        }
        let path = Path::new(&self.file);
        let shown = shown_path(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("{shown}"))?;
        let changed = ranges::change(&file, self.offset, self.length, self.insert_range);
        let Err(error) = changed else {
            return Ok(0);
        };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOTTY) => bail!(
                "{shown} is not on a mounted Persimmon volume, or on one whose daemon is too old for this command"
            ),
            Some(Errno::OPNOTSUPP) => bail!(
                "{shown}: not on a mount with writeback_cache, where the kernel goes by its own size of the file; mount without it"
            ),
            Some(Errno::INVAL) if self.collapse_range => bail!(
                "{shown}: the range does not end before the end of the file; cut the file there instead, with `truncate`"
            ),
            Some(Errno::INVAL) => bail!(
                "{shown}: the range does not begin before the end of the file; make the file longer instead, with `truncate`"
            ),
            Some(Errno::IO) => bail!(
                "{shown}: {error}; the range may have been moved all the same, if another daemon went on with the mount meanwhile \
                 (supervise): look at the size and the content of the file, and at the log of the mount, before you try again"
            ),
            _ => Err(error).with_context(|| format!("{shown}")),
        }
    }
}
