//! `persimmon receive`: what `persimmon send` wrote, brought into a directory or a volume.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use persimmon::internal::format::shown::{as_text, shown};
use persimmon::stream::{
    Directory, ReceiveError, Received, VolumeTarget, Warning, Watch, receive, resume_token,
};
use persimmon::vfs::{Ino, SNAPSHOTS_NAME, is_snapshots};
use persimmon_fuse::size::show_bytes;
use serde::Serialize;

use crate::exit;
use crate::fs::Access;
use crate::live::Target;
use crate::output::{self, say};
use crate::progress::Progress;
use crate::snapshot::Mounted;

const NAME: &str = "persimmon receive";
/// Bytes that are read from a pipe at a time.
const READ: usize = 256 << 10;
/// Warnings that are told one by one.
const WARNINGS_MAX: u64 = 20;

/// Bring a stream of `persimmon send` from standard input into a directory of any filesystem, or into a volume that is not mounted.
///
/// A full stream needs an empty directory; one that was sent with `--from` needs the directory as it was received last. In the root of a
/// volume it ends with a snapshot of the same name. What it has to remember is in DIR/.persimmon-receive.
#[derive(Args)]
pub struct Receive {
    /// A directory, or a device, image file, LABEL= or UUID= of a volume that is not mounted
    target: OsString,
    /// Print what `persimmon send --resume` needs to go on with a stream that was cut, and receive nothing
    #[arg(long, conflicts_with_all = ["no_snapshot", "json"])]
    resume_token: bool,
    /// Take no snapshot at the end
    #[arg(long)]
    no_snapshot: bool,
    /// Say nothing of how far it is
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Told {
    /// Name of what was received.
    snapshot: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_bytes: Option<String>,
    /// Name of what it was received from, or null.
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_bytes: Option<String>,
    records: u64,
    content_bytes: u64,
    stream_bytes: u64,
    /// What the target cannot have.
    warnings: u64,
    /// A snapshot was taken.
    snapshot_taken: bool,
}

struct Watcher {
    progress: Progress,
    warnings: u64,
}

impl Watch for Watcher {
    fn warn(&mut self, warning: Warning) {
        self.warnings += 1;
        if self.warnings <= WARNINGS_MAX {
            output::tell(format_args!("{NAME}: {}: {}", warning.path, warning.what));
        }
    }

    fn progress(&mut self, stream_bytes: u64, _: u64) {
        self.progress
            .tell(format!("received {}", show_bytes(stream_bytes)));
    }
}

/// Whether a directory is the root of a mounted volume, or of a snapshot in it.
fn is_root(dir: &Path) -> bool {
    let snapshots = dir.join(OsStr::from_bytes(SNAPSHOTS_NAME));
    std::fs::symlink_metadata(snapshots).is_ok_and(|found| is_snapshots(Ino(found.ino())))
}

impl Receive {
    pub fn run(&self) -> Result<u8> {
        if !self.resume_token && io::stdin().is_terminal() {
            return Err(exit::usage(
                "standard input is a terminal; pipe a stream of `persimmon send` to it",
            ));
        }
        match Target::of(&self.target)? {
            Target::Live(dir) => {
                if !self.resume_token && !Path::new(&self.target).is_dir() {
                    output::tell(format_args!(
                        "{NAME}: {0} is mounted at {1}: the stream goes there",
                        shown(self.target.as_bytes()),
                        dir.display()
                    ));
                }
                let open = Directory::open(&dir);
                let mut target = open.with_context(|| dir.display().to_string())?;
                if self.resume_token {
                    return print_token(resume_token(&mut target));
                }
                let (received, warnings) =
                    self.receive(|input, watch| receive(input, &mut target, watch))?;
                let root = (!self.no_snapshot && is_root(&dir)).then_some(dir);
                let taken = root.map(|dir| {
                    let mounted = Mounted::at_root(dir)?;
                    mounted.take(OsStr::from_bytes(&received.origin.snapshot.name))
                });
                self.tell(&received, warnings, taken)
            }
            Target::Device(_) => {
                let access = if self.resume_token {
                    Access::Read
                } else {
                    Access::Write
                };
                let opened = crate::fs::open(&self.target, access, "")?;
                let filesystem = opened.filesystem;
                if self.resume_token {
                    return print_token(resume_token(&mut VolumeTarget::new(&filesystem)));
                }
                let received =
                    self.receive(|input, watch| filesystem.receive_snapshot(input, watch));
                let done = received.map(|(received, warnings)| {
                    let taken = (!self.no_snapshot).then(|| {
                        let name = OsStr::from_bytes(&received.origin.snapshot.name);
                        Ok(filesystem.take_snapshot(name, false)?)
                    });
                    (received, warnings, taken)
                });
                let closed = filesystem.close();
                let (received, warnings, taken) = done?;
                closed?;
                self.tell(&received, warnings, taken)
            }
        }
    }

    fn receive(
        &self,
        f: impl FnOnce(&mut dyn Read, &mut dyn Watch) -> Result<Received, ReceiveError>,
    ) -> Result<(Received, u64)> {
        let mut watch = Watcher {
            progress: Progress::start("receiving", !self.quiet),
            warnings: 0,
        };
        let mut input = BufReader::with_capacity(READ, io::stdin().lock());
        let received = f(&mut input, &mut watch);
        let more = watch.warnings.saturating_sub(WARNINGS_MAX);
        if more > 0 {
            output::tell(format_args!("{NAME}: {more} more things cannot be set"));
        }
        Ok((received?, watch.warnings))
    }

    fn tell(&self, received: &Received, warnings: u64, taken: Option<Result<()>>) -> Result<u8> {
        let name = &received.origin.snapshot.name;
        let mut code = if warnings > 0 {
            exit::RECEIVE_PARTIAL
        } else {
            0
        };
        let snapshot_taken = matches!(taken, Some(Ok(())));
        if let Some(Err(error)) = taken {
            code = exit::RECEIVE_PARTIAL;
            output::tell(format_args!(
                "{NAME}: all was received, but no snapshot could be taken: {}",
                output::Causes(&error)
            ));
        }
        let said = if self.json {
            let (snapshot, snapshot_bytes) = as_text(name);
            let base = received.origin.base.as_ref();
            let (from, from_bytes) = base.map(|base| as_text(&base.name)).unzip();
            output::json(&Told {
                snapshot,
                snapshot_bytes,
                from,
                from_bytes: from_bytes.flatten(),
                records: received.records,
                content_bytes: received.content_bytes,
                stream_bytes: received.stream_bytes,
                warnings,
                snapshot_taken,
            })
        } else {
            let line = || -> Result<()> {
                let bytes = show_bytes(received.content_bytes);
                Ok(say!("received {}, {bytes} of content", shown(name))?)
            };
            line()
        };
        output::done(code, said)
    }
}

fn print_token(token: Result<String, ReceiveError>) -> Result<u8> {
    let token = token.map_err(|error| match error {
        ReceiveError::NothingBegun => anyhow!("nothing was begun here that is not complete"),
        error => error.into(),
    })?;
    say!("{token}")?;
    Ok(0)
}
