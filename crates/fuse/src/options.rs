//! Mount options: one table, from which they are parsed and their help is made.

use std::path::PathBuf;
use std::time::Duration;

use persimmon_vfs::{AccessTimes, OnError};

use crate::size::parse_bytes;

/// The options of one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`: nothing is written, not even by recovery.
    pub read_only: bool,
    /// `noatime`, `relatime`, `strictatime`.
    pub access_times: AccessTimes,
    /// `diratime`, `nodiratime`.
    pub directory_access_times: bool,
    /// `suid`, `nosuid`: whether setuid and setgid bits count. `None`: as root, yes.
    pub suid: Option<bool>,
    /// `dev`, `nodev`: whether device nodes work. `None`: as root, yes.
    pub dev: Option<bool>,
    /// `exec`, `noexec`.
    pub exec: bool,
    /// `sync`: every change is durable when it returns.
    pub sync: bool,
    /// `dirsync`: changes to directories are.
    pub dirsync: bool,
    /// `allow_other`: other users may enter. `None`: when mounted by root, they may.
    pub allow_other: Option<bool>,
    /// `errors=`.
    pub on_error: OnError,
    /// `commit=`: the longest time that a change stays volatile.
    pub commit_interval: Duration,
    /// `cache=`: metadata kept in memory, bytes; `None` is the engine's default.
    pub cache_bytes_max: Option<u64>,
    /// `staging=`: file data waiting to be written, bytes; `None` is the engine's default.
    pub staging_bytes_max: Option<u64>,
    /// `writeback_cache`: the kernel delays writes.
    pub writeback_cache: bool,
    /// `threads=`: threads that answer the kernel.
    pub threads: usize,
    /// `log=`: where a daemon in the background writes its log.
    pub log: Option<PathBuf>,
    /// `remount`: change the flags of a mount that is there.
    pub remount: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            suid: None,
            dev: None,
            exec: true,
            sync: false,
            dirsync: false,
            allow_other: None,
            on_error: OnError::default(),
            commit_interval: Duration::from_secs(5),
            cache_bytes_max: None,
            staging_bytes_max: None,
            writeback_cache: false,
            threads: 2,
            log: None,
            remount: false,
        }
    }
}

/// An option that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Not in the table.
    #[error("unknown mount option '{0}'; `persimmon mount --help` lists those there are")]
    Unknown(String),
    /// `name` without `=value`.
    #[error("mount option '{name}' needs a value: {name}={value}")]
    ValueMissing {
        /// The option.
        name: &'static str,
        /// What the value stands for.
        value: &'static str,
    },
    /// A value where none belongs.
    #[error("mount option '{0}' takes no value")]
    ValueUnexpected(&'static str),
    /// A value that is not understood.
    #[error("mount option '{name}': {message}")]
    Value {
        /// The option.
        name: &'static str,
        /// What is wrong, naming the value.
        message: String,
    },
}

type Set = fn(&mut MountOptions, &str) -> Result<(), String>;

/// One line of the table.
struct OptionSpec {
    name: &'static str,
    /// What the value stands for; empty when the option takes none.
    value: &'static str,
    help: &'static str,
    set: Set,
}

const fn flag(name: &'static str, help: &'static str, set: Set) -> OptionSpec {
    OptionSpec {
        name,
        value: "",
        help,
        set,
    }
}

const fn valued(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    set: Set,
) -> OptionSpec {
    OptionSpec {
        name,
        value,
        help,
        set,
    }
}

macro_rules! assign {
    ($field:ident, $value:expr) => {
        |options, _| {
            options.$field = $value;
            Ok(())
        }
    };
}

/// Every option that does something.
const OPTIONS: &[OptionSpec] = &[
    flag(
        "ro",
        "write nothing; a crashed volume is replayed in memory",
        assign!(read_only, true),
    ),
    flag("rw", "allow writing (default)", assign!(read_only, false)),
    flag(
        "noatime",
        "never update access times",
        assign!(access_times, AccessTimes::Never),
    ),
    flag(
        "relatime",
        "update an access time older than the last change or than a day (default)",
        assign!(access_times, AccessTimes::Relative),
    ),
    flag(
        "atime",
        "the same as relatime",
        assign!(access_times, AccessTimes::Relative),
    ),
    flag(
        "strictatime",
        "update access times at every read",
        assign!(access_times, AccessTimes::Always),
    ),
    flag(
        "diratime",
        "directories have access times too (default)",
        assign!(directory_access_times, true),
    ),
    flag(
        "nodiratime",
        "directories keep their access times",
        assign!(directory_access_times, false),
    ),
    flag(
        "suid",
        "honour setuid and setgid bits (default for root)",
        assign!(suid, Some(true)),
    ),
    flag(
        "nosuid",
        "ignore setuid and setgid bits",
        assign!(suid, Some(false)),
    ),
    flag(
        "dev",
        "device nodes work (default for root)",
        assign!(dev, Some(true)),
    ),
    flag(
        "nodev",
        "device nodes do not work",
        assign!(dev, Some(false)),
    ),
    flag("exec", "programs may be run (default)", assign!(exec, true)),
    flag("noexec", "programs may not be run", assign!(exec, false)),
    flag(
        "sync",
        "every change is durable when it returns",
        |options, _| {
            options.sync = true;
            options.dirsync = true;
            Ok(())
        },
    ),
    flag(
        "async",
        "changes become durable by fsync or in time (default)",
        |options, _| {
            options.sync = false;
            options.dirsync = false;
            Ok(())
        },
    ),
    flag(
        "dirsync",
        "changes to directories are durable when they return",
        assign!(dirsync, true),
    ),
    flag(
        "allow_other",
        "other users may enter; default when root mounts",
        assign!(allow_other, Some(true)),
    ),
    flag(
        "noallow_other",
        "only the mounting user may enter; default when others mount",
        assign!(allow_other, Some(false)),
    ),
    flag(
        "default_permissions",
        "the kernel checks permissions; always so, accepted for fstab's sake",
        |_, _| Ok(()),
    ),
    valued(
        "errors",
        "remount-ro|continue",
        "when the volume proves damaged: take no more changes (default), or go on",
        |options, value| {
            options.on_error = match value {
                "remount-ro" => OnError::ReadOnly,
                "continue" => OnError::Continue,
                _ => return Err(format!("'{value}' is neither remount-ro nor continue")),
            };
            Ok(())
        },
    ),
    valued(
        "commit",
        "SECONDS",
        "longest time that a change may stay volatile (default 5)",
        |options, value| {
            options.commit_interval = match value.parse::<u64>() {
                Ok(seconds @ 1..=3600) => Duration::from_secs(seconds),
                _ => {
                    return Err(format!(
                        "'{value}' is not a number of seconds from 1 to 3600"
                    ));
                }
            };
            Ok(())
        },
    ),
    valued(
        "cache",
        "BYTES",
        "memory for metadata, for example 64M",
        |options, value| {
            options.cache_bytes_max = Some(at_least(value, 1 << 20)?);
            Ok(())
        },
    ),
    valued(
        "staging",
        "BYTES",
        "memory for file data waiting to be written, for example 32M",
        |options, value| {
            options.staging_bytes_max = Some(at_least(value, 4 << 20)?);
            Ok(())
        },
    ),
    flag(
        "writeback_cache",
        "the kernel delays writes too: faster small writes, slower creates",
        assign!(writeback_cache, true),
    ),
    valued(
        "threads",
        "N",
        "threads that answer the kernel, 1 to 64 (default 2)",
        |options, value| {
            options.threads = match value.parse::<usize>() {
                Ok(threads @ 1..=64) => threads,
                _ => return Err(format!("'{value}' is not a number from 1 to 64")),
            };
            Ok(())
        },
    ),
    valued(
        "log",
        "FILE",
        "the daemon's log; without it, the system log",
        |options, value| {
            options.log = Some(PathBuf::from(value));
            Ok(())
        },
    ),
    flag(
        "remount",
        "change ro, nosuid, nodev and noexec of a mount that is there",
        assign!(remount, true),
    ),
];

/// Options that mean something to mount(8), systemd or other filesystems and nothing here.
const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "comment",
    "lazytime",
    "nolazytime",
    "norelatime",
    "nostrictatime",
    "mand",
    "nomand",
    "silent",
    "loud",
    "iversion",
    "noiversion",
];

fn at_least(text: &str, min: u64) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < min {
        return Err(format!(
            "{text} is less than {}",
            crate::size::show_bytes(min)
        ));
    }
    Ok(bytes)
}

impl MountOptions {
    /// Reads a comma-separated list as after `-o`; later options override earlier ones.
    ///
    /// # Errors
    /// Names the first option that is unknown or has a wrong value.
    pub fn parse(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::default();
        options.apply(list)?;
        Ok(options)
    }

    /// Adds the options of another list.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn apply(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .try_for_each(|word| self.apply_one(word))
    }

    fn apply_one(&mut self, word: &str) -> Result<(), OptionError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if name.starts_with("x-") || name.starts_with("X-") || IGNORED.contains(&name) {
            return Ok(());
        }
        let spec = OPTIONS
            .iter()
            .find(|spec| spec.name == name)
            .ok_or_else(|| OptionError::Unknown(name.to_owned()))?;
        let value = match (value, spec.value.is_empty()) {
            (None, true) => "",
            (Some(value), false) if !value.is_empty() => value,
            (Some(_), true) => return Err(OptionError::ValueUnexpected(spec.name)),
            (None | Some(_), false) => {
                return Err(OptionError::ValueMissing {
                    name: spec.name,
                    value: spec.value,
                });
            }
        };
        (spec.set)(self, value).map_err(|message| OptionError::Value {
            name: spec.name,
            message,
        })
    }

    /// The table as text, one option a line.
    #[must_use]
    pub fn help() -> String {
        let left = |spec: &OptionSpec| match spec.value {
            "" => spec.name.to_owned(),
            value => format!("{}={value}", spec.name),
        };
        let width = OPTIONS
            .iter()
            .map(|spec| left(spec).len())
            .max()
            .unwrap_or(0);
        let mut text = String::from("Mount options (-o NAME[=VALUE],...):\n");
        for spec in OPTIONS {
            text.push_str(&format!("  {:width$}  {}\n", left(spec), spec.help));
        }
        text.push_str(&format!(
            "Accepted and without effect: x-*, {}\n",
            IGNORED.join(", ")
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_table_is_taken() {
        let list = "ro,rw,noatime,relatime,atime,strictatime,nodiratime,diratime,suid,nosuid,dev,nodev,exec,noexec,\
            sync,async,dirsync,allow_other,noallow_other,default_permissions,errors=continue,\
            commit=30,cache=16M,staging=8M,writeback_cache,threads=4,log=/var/log/p,remount";
        let options = MountOptions::parse(list).unwrap();
        assert_eq!(
            options,
            MountOptions {
                read_only: false,
                access_times: AccessTimes::Always,
                directory_access_times: true,
                suid: Some(false),
                dev: Some(false),
                exec: false,
                sync: false,
                dirsync: true,
                allow_other: Some(false),
                on_error: OnError::Continue,
                commit_interval: Duration::from_secs(30),
                cache_bytes_max: Some(16 << 20),
                staging_bytes_max: Some(8 << 20),
                writeback_cache: true,
                threads: 4,
                log: Some("/var/log/p".into()),
                remount: true,
            }
        );
        for spec in OPTIONS {
            assert!(list.contains(spec.name), "{} is not in the list", spec.name);
            assert!(MountOptions::help().contains(spec.name));
        }
    }

    #[test]
    fn what_mount_passes_along_is_ignored() {
        let list =
            "defaults,auto,noauto,user=me,_netdev,nofail,x-systemd.automount,X-mount.mkdir,,";
        assert_eq!(MountOptions::parse(list), Ok(MountOptions::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |list| MountOptions::parse(list).unwrap_err().to_string();
        assert!(message("ro,compress").contains("'compress'"));
        assert!(message("commit").contains("commit=SECONDS"));
        assert!(message("ro=1").contains("'ro' takes no value"));
        assert!(message("errors=panic").contains("'panic'"));
        assert!(message("cache=lots").contains("'lots'"));
        assert!(message("threads=0").contains("'0'"));
    }
}
