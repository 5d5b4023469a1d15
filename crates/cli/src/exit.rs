//! Exit codes, documented in docs/CLI.md.

use std::fmt;

/// The command failed.
pub const FAILED: u8 = 1;
/// The command line makes no sense (clap's own code too).
pub const USAGE: u8 = 2;

/// Nobody reads standard output any more: what a shell tells of a program that SIGPIPE ended, as `head` does to
/// most others.
pub const READER_GONE: u8 = 128 + 13;

/// mount(8): wrong invocation or permissions.
pub const MOUNT_USAGE: u8 = 1;
/// mount(8): out of memory, cannot fork, no more loop devices.
pub const MOUNT_SYSTEM: u8 = 2;
/// mount(8): the mount failed.
pub const MOUNT_FAILED: u8 = 32;

/// fsck(8): errors were corrected.
pub const FSCK_CORRECTED: u8 = 1;
/// fsck(8): errors are left.
pub const FSCK_UNCORRECTED: u8 = 4;
/// fsck(8): the check could not be made.
pub const FSCK_FAILED: u8 = 8;
/// fsck(8): wrong invocation.
pub const FSCK_USAGE: u8 = 16;

/// Recovered, but not everything.
pub const RECOVER_LOSSES: u8 = 4;

/// A scrub found damage.
pub const SCRUB_DAMAGE: u8 = 4;
/// A scrub was stopped, and had found nothing until then.
pub const SCRUB_INTERRUPTED: u8 = 3;

/// Less could be freed than was asked for.
pub const CLEAN_SHORT: u8 = 4;
/// Cleaning was stopped before its end.
pub const CLEAN_INTERRUPTED: u8 = 3;

/// Some files were not copied or removed, or not with all they had; the others were.
pub const FS_PARTIAL: u8 = 4;
/// Received, but not with all it had, or without the snapshot.
pub const RECEIVE_PARTIAL: u8 = 4;

/// Copying or removing was stopped before its end.
pub const FS_INTERRUPTED: u8 = 3;

/// blkid(8): nothing found.
pub const PROBE_NOTHING: u8 = 2;

/// An error that knows its exit code.
#[derive(Debug)]
struct Coded {
    code: u8,
    message: String,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}

/// An error with an exit code of its own.
pub fn error(code: u8, message: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Coded {
        code,
        message: message.to_string(),
    })
}

/// A command line that makes no sense, found out after it was parsed.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the invocation, whose exit code is the command's own for that.
pub fn usage(message: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(message.to_string()))
}

/// The exit code of an error: the one it carries, or what the command has for failures and for
/// wrong invocations.
pub fn code_of(error: &anyhow::Error, failed: u8, usage: u8) -> u8 {
    match error.downcast_ref::<Coded>() {
        Some(coded) => coded.code,
        None if error.is::<Usage>() => usage,
        None => failed,
    }
}
