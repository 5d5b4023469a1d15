//! The table of mount options.

use std::path::PathBuf;
use std::time::Duration;

use persimmon_vfs::{AccessTimes, Barrier, Compression, Dedup, Deltas, FsyncOrder, OnError};

use super::{MountOptions, Rings};
use crate::size::{parse_bytes, show_bytes};

pub type Set = fn(&mut MountOptions, &str) -> Result<(), String>;

/// One line of the table.
pub struct OptionSpec {
    pub name: &'static str,
    /// What the value stands for; empty when the option takes none.
    pub value: &'static str,
    pub help: &'static str,
    pub set: Set,
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
pub const OPTIONS: &[OptionSpec] = &[
    flag(
        "ro",
        "write nothing; a crashed volume is replayed in memory",
        assign!(read_only, true),
    ),
    flag(
        "norecovery",
        "with ro: write nothing, not even a recovery, which ro alone does not either; nothing is trimmed",
        assign!(no_recovery, true),
    ),
    valued(
        "subvolume",
        "NAME",
        "mount the snapshot with this name, usually a writable one: its root is the root of the mount, and `.snapshots` \
         there has those that were taken of it",
        |options, value| {
            options.subvolume = Some(value.to_owned());
            Ok(())
        },
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
        "fsync",
        "wp|strict",
        "wp: data and its record together, told apart by write pointers after a crash (default); \
         strict: the record after the data",
        |options, value| {
            options.fsync = match value {
                "wp" => FsyncOrder::WritePointer,
                "strict" => FsyncOrder::Strict,
                _ => return Err(format!("'{value}' is neither wp nor strict")),
            };
            Ok(())
        },
    ),
    valued(
        "compression",
        "none|lz4|zstd[:LEVEL]",
        "how files are compressed for which neither mkfs nor the attribute user.persimmon.compression says it \
         (default lz4); levels of zstd from 1 to 15, 3 without one",
        |options, value| {
            let Some(compression) = Compression::parse(value) else {
                return Err(format!(
                    "'{value}' is none of none, lz4, zstd, and zstd:1 to zstd:15"
                ));
            };
            options.compression = compression;
            Ok(())
        },
    ),
    valued(
        "deltas",
        "none|memory|always",
        "which synced blocks are written as differences to what is stored, where little changed: those whose stored \
         content is in memory (default), or all, for which it is read; a database that changes some bytes of a page \
         sends half as much then",
        |options, value| {
            let Some(deltas) = Deltas::parse(value) else {
                return Err(format!("'{value}' is none of none, memory, and always"));
            };
            options.deltas = deltas;
            Ok(())
        },
    ),
    valued(
        "dedup",
        "none|write",
        "whether blocks that some file has already become shared with it while they are written; what was written or \
         read since the mount is remembered (default none)",
        |options, value| {
            let Some(dedup) = Dedup::parse(value) else {
                return Err(format!("'{value}' is neither none nor write"));
            };
            options.dedup = dedup;
            Ok(())
        },
    ),
    valued(
        "dedup_memory",
        "BYTES",
        "memory for hashes of blocks with dedup=write (default 64M), and never more than 1/1000 of the data",
        |options, value| {
            options.dedup_bytes_max = Some(at_least(value, 64 << 10)?);
            Ok(())
        },
    ),
    valued(
        "barrier",
        "auto|on|off",
        "flush the device: if it has a volatile cache (default), always, or only at the unmount; off \
         can lose what was synced with the power",
        |options, value| {
            options.barrier = match value {
                "auto" => Barrier::Auto,
                "on" => Barrier::On,
                "off" => Barrier::Off,
                _ => return Err(format!("'{value}' is none of auto, on and off")),
            };
            Ok(())
        },
    ),
    valued(
        "cache",
        "BYTES",
        "memory for metadata (default 64M)",
        |options, value| {
            options.cache_bytes_max = Some(at_least(value, 1 << 20)?);
            Ok(())
        },
    ),
    valued(
        "staging",
        "BYTES",
        "memory for file data waiting to be written (default a sixteenth of all memory, 32M to 128M)",
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
        "threads that answer the kernel, 1 to 64 (default 2); with io_uring one for each processor",
        |options, value| {
            options.threads = match value.parse::<usize>() {
                Ok(threads @ 1..=64) => threads,
                _ => return Err(format!("'{value}' is not a number from 1 to 64")),
            };
            Ok(())
        },
    ),
    valued(
        "io_uring",
        "auto|on|off",
        "talk to the kernel through rings: if it is set to (default; modprobe fuse enable_uring=1), \
         always, or never",
        |options, value| {
            options.io_uring = match value {
                "auto" => Rings::Auto,
                "on" => Rings::On,
                "off" => Rings::Off,
                _ => return Err(format!("'{value}' is none of auto, on and off")),
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
        "nouuid",
        "mount although a volume with the same UUID, a copy, is mounted already",
        assign!(allow_duplicate, true),
    ),
    flag(
        "fuse",
        "mount as plain FUSE, not as fuseblk: `sync`, `syncfs` and umount(8) do not reach the volume then, only \
         `persimmon sync` and `persimmon umount`",
        assign!(plain_fuse, true),
    ),
    flag(
        "supervise",
        "a daemon that dies is followed by another one, and `persimmon upgrade-daemon` replaces it: programs see no \
         error, and nothing that was answered is lost; needs Linux 6.9, makes changes of names slower, and excludes \
         io_uring",
        assign!(supervise, true),
    ),
    flag(
        "remount",
        "change ro, nosuid, nodev and noexec of a mount that is there",
        assign!(remount, true),
    ),
];

/// Options that mean something to mount(8), systemd or other filesystems and nothing here.
pub const IGNORED: &[&str] = &[
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
    // What the kernel and fusermount3 show of a FUSE mount, and mount(8) hands back.
    "user_id",
    "group_id",
    "rootmode",
    "fsname",
    "subtype",
    "max_read",
    "blksize",
    // What mount(8) keeps of it.
    "helper",
    "uhelper",
];

fn at_least(text: &str, min: u64) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < min {
        return Err(format!("{text} is less than {}", show_bytes(min)));
    }
    Ok(bytes)
}
