//! `persimmon send`: a snapshot, or what it has other than another one, as a stream on standard output.

use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::Args;
use persimmon::internal::format::shown::shown;
use persimmon::stream::{
    Origin, Position, SendError, SendOptions, Sent, Source, VolumeSource, send,
};
use persimmon::vfs::SNAPSHOTS_NAME;
use persimmon_fuse::size::show_bytes;

use crate::control;
use crate::fs::Access;
use crate::live::Target;
use crate::progress::Progress;
use crate::snapshot::Mounted;
use crate::{exit, output};

/// Bytes that are written to a pipe at a time.
const WRITTEN: usize = 256 << 10;

/// Write a snapshot, or what it has other than an earlier one, to standard output, for `persimmon receive`.
///
/// Compressed data is sent as it is stored. Works on a mount beside those who use it.
#[derive(Args)]
pub struct Send {
    /// A snapshot of a mount (MOUNT/.snapshots/NAME); or device, image file, LABEL=, UUID=, a directory of a live mount, and then NAME
    target: OsString,
    /// Name of the snapshot
    name: Option<OsString>,
    /// Send only what differs from this earlier snapshot, which the receiver has: its name or its path
    #[arg(long, value_name = "BASE")]
    from: Option<OsString>,
    /// Go on where a receiver is: what `persimmon receive --resume-token` printed
    #[arg(long, value_name = "TOKEN")]
    resume: Option<String>,
    /// Decompress what is compressed
    #[arg(long)]
    plain: bool,
    /// Say nothing of how far it is
    #[arg(long, short)]
    quiet: bool,
}

/// The directory and the name of a snapshot that was given as a path.
fn of_path(path: &OsStr) -> Option<(PathBuf, OsString)> {
    let path = Path::new(path);
    let (name, above) = (path.file_name()?, path.parent()?);
    let is_snapshot = above.file_name()?.as_bytes() == SNAPSHOTS_NAME;
    let root = match above.parent()? {
        root if root.as_os_str().is_empty() => Path::new("."),
        root => root,
    };
    is_snapshot.then(|| (root.to_owned(), name.to_owned()))
}

impl Send {
    pub fn run(&self) -> Result<u8> {
        if output::is_terminal() {
            return Err(exit::usage(
                "a stream is nothing to show on a terminal; pipe it to `persimmon receive`, or into a file",
            ));
        }
        let (target, name) = match (&self.name, of_path(&self.target)) {
            (Some(name), _) => (self.target.clone(), name.clone()),
            (None, Some((root, name))) => (root.into_os_string(), name),
            (None, None) => {
                return Err(exit::usage(format_args!(
                    "'{}' is no snapshot: name one as MOUNT/.snapshots/NAME, or as SPEC|DIR NAME",
                    shown(self.target.as_bytes())
                )));
            }
        };
        let from = self.from.as_deref().map(|from| match of_path(from) {
            Some((_, name)) => name,
            None => from.to_owned(),
        });
        let resume = self.resume.as_deref().map(Position::of_token);
        let resume = resume.transpose().map_err(exit::usage)?;
        // A token says from where a stream goes, too.
        let from = match (
            &from,
            resume.as_ref().and_then(|(origin, _)| origin.base.as_ref()),
        ) {
            (None, Some(base)) => Some(OsStr::from_bytes(&base.name).to_owned()),
            _ => from,
        };
        let (name, from) = (name.as_bytes(), from.as_deref().map(OsStr::as_bytes));
        match Target::of(&target)? {
            Target::Live(dir) => {
                let mounted = Mounted::of(dir)?;
                let mut source = control::send::source(mounted.root(), name, from)?;
                self.send(&mut source, resume)
            }
            Target::Device(_) => {
                let opened = crate::fs::open(&target, Access::Read, "")?;
                let vfs = std::sync::Arc::clone(opened.filesystem.vfs());
                let mut source = VolumeSource::new(vfs, name, from)?;
                self.send(&mut source, resume)
            }
        }
    }

    fn send(&self, source: &mut impl Source, resume: Option<(Origin, Position)>) -> Result<u8> {
        let progress = Progress::start("sending", !self.quiet);
        let mut out = BufWriter::with_capacity(WRITTEN, output::stream()?);
        let options = SendOptions {
            resume: resume.as_ref(),
            plain: self.plain,
        };
        let told = |sent: &Sent| progress.tell(format!("sent {}", show_bytes(sent.stream_bytes)));
        let sent = send(source, &mut out, &options, told)
            .and_then(|_| out.flush().map_err(SendError::Write));
        sent.map(|()| 0).map_err(|error| match error {
            SendError::Write(error) if error.kind() == std::io::ErrorKind::BrokenPipe => anyhow!(
                "nobody reads the stream any more, and it is not complete; `persimmon receive --resume-token` tells how to go on"
            ),
            error => error.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_snapshots_are_told_from_others() {
        let of = |path: &str| of_path(OsStr::new(path));
        let found = |root: &str, name: &str| Some((PathBuf::from(root), OsString::from(name)));
        assert_eq!(of("/mnt/.snapshots/monday"), found("/mnt", "monday"));
        assert_eq!(of("/mnt/.snapshots/monday/"), found("/mnt", "monday"));
        assert_eq!(of(".snapshots/a"), found(".", "a"));
        assert_eq!(of("/mnt/monday"), None);
        assert_eq!(of("monday"), None);
        assert_eq!(of("/"), None);
    }
}
