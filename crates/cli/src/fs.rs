//! `persimmon fs`: the files of a volume that is not mounted, through the library.

mod archive;
mod backup;
mod cat;
mod clone;
mod cp;
pub mod dedup;
mod df;
pub mod host;
mod ls;
mod names;
mod restore;
pub mod tree;
mod volume;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use persimmon::internal::device::pair;
use persimmon::internal::format::shown::shown;
use persimmon::vfs::AccessTimes;
use persimmon::{Error, Filesystem, FilesystemError, Options};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{FAILED, FS_INTERRUPTED, FS_PARTIAL};
use crate::live::Target;
use crate::output::{self, say};
pub use clone::CloneCommand;
pub use dedup::DedupCommand;
pub use ls::{civil, date, instant};
use tree::{Copied, CopyError, Tally};

/// List, copy, remove, back up and restore files of a volume that is not mounted.
#[derive(Args)]
pub struct Fs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Ls(ls::Ls),
    Cat(cat::Cat),
    Cp(cp::Cp),
    Mv(names::Mv),
    Rm(names::Rm),
    Mkdir(names::Mkdir),
    Df(df::Df),
    Backup(backup::Backup),
    Restore(restore::Restore),
}

impl Fs {
    pub fn run(&self) -> Result<u8> {
        match &self.verb {
            Verb::Ls(verb) => verb.run(),
            Verb::Cat(verb) => verb.run(),
            Verb::Cp(verb) => verb.run(),
            Verb::Mv(verb) => verb.run(),
            Verb::Rm(verb) => verb.run(),
            Verb::Mkdir(verb) => verb.run(),
            Verb::Df(verb) => verb.run(),
            Verb::Backup(verb) => verb.run(),
            Verb::Restore(verb) => verb.run(),
        }
    }

    /// As it is called.
    pub fn name(&self) -> &'static str {
        match &self.verb {
            Verb::Ls(_) => "fs ls",
            Verb::Cat(_) => "fs cat",
            Verb::Cp(_) => "fs cp",
            Verb::Mv(_) => "fs mv",
            Verb::Rm(_) => "fs rm",
            Verb::Mkdir(_) => "fs mkdir",
            Verb::Df(_) => "fs df",
            Verb::Backup(_) => "fs backup",
            Verb::Restore(_) => "fs restore",
        }
    }
}

/// How a volume is used.
#[derive(Clone, Copy, PartialEq)]
pub enum Access {
    /// Nothing is written, not even a journal that a crash has left.
    Read,
    Write,
}

/// A volume that this process has opened.
pub struct Opened {
    pub filesystem: Filesystem,
    /// The devices or images that it is on.
    devices: Vec<PathBuf>,
}

/// Opens a volume that is not mounted. `instead` says what does the same on a mounted one.
///
/// # Errors
/// When there is none, or it is mounted.
pub fn open(spec: impl AsRef<OsStr>, access: Access, instead: &str) -> Result<Opened> {
    let path = match Target::of(spec)? {
        Target::Device(path) => path,
        Target::Live(dir) => return Err(crate::mounted::refusal(&dir, instead)?),
    };
    let read_only = access == Access::Read;
    let device = crate::device::open(&path, read_only)?;
    let mut options = match access {
        Access::Read => Options::read_only(),
        Access::Write => Options::default(),
    };
    // Who copies a tree is not one who uses it.
    options.vfs.access_times = AccessTimes::Never;
    let filesystem =
        Filesystem::open_on(Arc::new(device), &options).map_err(|error| match error {
            Error::Volume(error) => crate::open::unopened(&path, &error),
            error => anyhow!("{}: {error}", path.display()),
        })?;
    let waiting = crate::report::waiting_line(&path, filesystem.files_waiting());
    let unseen = crate::report::unseen_line(&path, filesystem.files_unseen());
    for line in waiting.iter().chain(&unseen) {
        crate::output::tell(line);
    }
    let devices = match pair::names(&path) {
        Some((metadata, data)) => vec![metadata, data],
        None => vec![path],
    };
    Ok(Opened {
        filesystem,
        devices,
    })
}

/// Set by the first signal that asks for an end; the second one ends the process, which harms no volume.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A path in a volume begins at its root, with or without a slash.
fn rooted(path: &OsStr) -> PathBuf {
    Path::new("/").join(path)
}

/// An error of a path in the volume: escaped, since names are chosen by others.
fn of_path(path: &Path, error: &Error) -> anyhow::Error {
    anyhow!("{}", told_of_path(path, error))
}

/// Why something is not permitted to whoever may open the device, and so do everything else.
const NOT_PERMITTED: &str = "operation not permitted: .snapshots holds snapshots alone, and what has the flag i or a stays as it is until \
                             the flag is taken away on a mount (`lsattr`, `chattr -i`, `chattr -a`)";

fn told_of_path(path: &Path, error: &Error) -> String {
    let path = shown(path.as_os_str().as_bytes());
    match error.filesystem() {
        Some(FilesystemError::NotPermitted) => format!("{path}: {NOT_PERMITTED}"),
        Some(error) => format!("{path}: {error}"),
        None => format!("{path}: {error}"),
    }
}

/// An attribute that its new place does not take.
fn not_kept(name: &[u8], why: &str) -> String {
    format!("without {}: {why}", shown(name))
}

/// `--json` of what copies.
#[derive(Serialize)]
struct Outcome<'a> {
    /// It came to its end.
    complete: bool,
    #[serde(flatten)]
    tally: &'a Tally,
}

/// Tells how a copy went, and the exit code of it. `done` is the participle of what was done.
fn conclude(
    command: &str,
    (went, tally): (Copied<()>, &Tally),
    done: &str,
    print: impl FnOnce(&str) -> Result<()>,
    json: bool,
) -> Result<u8> {
    let so_far = tally.shown();
    let code = match &went {
        Ok(()) if tally.is_whole() => 0,
        Ok(()) => FS_PARTIAL,
        Err(CopyError::Interrupted) => FS_INTERRUPTED,
        Err(_) => FAILED,
    };
    if let Err(error) = &went {
        output::tell(format_args!(
            "persimmon {command}: {error}; until then: {so_far} {done}"
        ));
    } else if code != 0 {
        let mut missing = Vec::new();
        if tally.failed > 0 {
            missing.push(format!("{} could not be {done}", tally.failed));
        }
        if tally.attributes_lost > 0 {
            missing.push(format!(
                "{} attributes could not be kept",
                tally.attributes_lost
            ));
        }
        let missing = missing.join(", ");
        output::tell(format_args!(
            "persimmon {command}: {missing}; each was named"
        ));
    }
    let said = match (json, &went) {
        (true, _) => output::json(&Outcome {
            complete: went.is_ok(),
            tally,
        }),
        (false, Ok(())) => print(&format!("{so_far} {done}")),
        (false, Err(_)) => Ok(()),
    };
    output::done(code, said)
}

/// On standard output, unless the work itself goes there.
fn say_line(text: &str) -> Result<()> {
    Ok(say!("{text}")?)
}

/// The path as bytes, for names that are no text.
fn os(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}
