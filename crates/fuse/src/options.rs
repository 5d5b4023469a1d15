//! Mount options: one table, from which they are parsed and their help is made.

mod table;

use std::path::PathBuf;
use std::time::Duration;

use persimmon_vfs::{AccessTimes, Barrier, Compression, Dedup, Deltas, FsyncOrder, OnError};

use table::{IGNORED, OPTIONS, OptionSpec};

/// The options of one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`: nothing is written, not even by recovery.
    pub read_only: bool,
    /// `norecovery`: must be with `ro`, which does what it asks for.
    pub no_recovery: bool,
    /// `subvolume=`: the subvolume whose root is the root of the mount. `None`: the main one.
    pub subvolume: Option<String>,
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
    /// `fsync=`: the order of an fsync's data and record.
    pub fsync: FsyncOrder,
    /// `compression=`: of files for which nothing else says it.
    pub compression: Compression,
    /// Which synced blocks are written as differences.
    pub deltas: Deltas,
    /// `dedup=`: whether content that is stored already is looked for.
    pub dedup: Dedup,
    /// `dedup_memory=`: hashes kept for that, bytes; `None` is the engine's default.
    pub dedup_bytes_max: Option<u64>,
    /// `barrier=`: when the device is flushed.
    pub barrier: Barrier,
    /// `cache=`: metadata kept in memory, bytes; `None` is the engine's default.
    pub cache_bytes_max: Option<u64>,
    /// `staging=`: file data waiting to be written, bytes; `None` is the engine's default.
    pub staging_bytes_max: Option<u64>,
    /// `writeback_cache`: the kernel delays writes.
    pub writeback_cache: bool,
    /// `threads=`: threads that answer the kernel.
    pub threads: usize,
    /// `io_uring=`: whether requests come through rings.
    pub io_uring: Rings,
    /// `log=`: where a daemon in the background writes its log.
    pub log: Option<PathBuf>,
    /// `nouuid`: another volume with the same UUID may be mounted.
    pub allow_duplicate: bool,
    /// `fuse`: as plain FUSE, also where a mount of type `fuseblk` is possible.
    pub plain_fuse: bool,
    /// `supervise`: a daemon that dies, or is replaced, is followed by another one.
    pub supervise: bool,
    /// `remount`: change the flags of a mount that is there.
    pub remount: bool,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rings {
    /// Through rings (io_uring) where the kernel is set to offer them.
    #[default]
    Auto,
    /// Through rings, or not at all.
    On,
    /// By reading `/dev/fuse`.
    Off,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            no_recovery: false,
            subvolume: None,
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
            fsync: FsyncOrder::default(),
            compression: Compression::Lz4,
            deltas: Deltas::InMemory,
            dedup: Dedup::None,
            dedup_bytes_max: None,
            barrier: Barrier::default(),
            cache_bytes_max: None,
            staging_bytes_max: None,
            writeback_cache: false,
            threads: 2,
            io_uring: Rings::default(),
            log: None,
            allow_duplicate: false,
            plain_fuse: false,
            supervise: false,
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
    /// One that has no meaning without another.
    #[error("mount option '{0}' needs '{1}'")]
    Needs(&'static str, &'static str),
    /// A value that is not understood.
    #[error("mount option '{name}': {message}")]
    Value {
        /// The option.
        name: &'static str,
        /// What is wrong, naming the value.
        message: String,
    },
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

    /// Whether they go together.
    ///
    /// # Errors
    /// Names the one that lacks another.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.no_recovery && !self.read_only {
            return Err(OptionError::Needs("norecovery", "ro"));
        }
        Ok(())
    }

    /// Which of `words` ask for what a remount cannot do to a mount with these options: it changes
    /// `ro`, `nosuid`, `nodev` and `noexec`. Words that leave things as they are, as mount(8)
    /// hands back, are none of them; so are words that are not understood.
    #[must_use]
    pub fn refused_by_remount<'w>(&self, words: &[&'w str]) -> Vec<&'w str> {
        let is_same = |options: &MountOptions| {
            let access_times = match (self.access_times, options.access_times) {
                // What the kernel shows of such a mount is relatime.
                (AccessTimes::Always, AccessTimes::Relative) => AccessTimes::Always,
                (_, asked) => asked,
            };
            let asked = MountOptions {
                access_times,
                read_only: self.read_only,
                suid: self.suid,
                dev: self.dev,
                exec: self.exec,
                // Means nothing where nothing is mounted anew.
                allow_duplicate: self.allow_duplicate,
                plain_fuse: self.plain_fuse,
                remount: self.remount,
                ..options.clone()
            };
            asked == *self
        };
        let with = |words: &[&str]| {
            let mut options = self.clone();
            for word in words {
                let _ = options.apply(word);
            }
            options
        };
        if is_same(&with(words)) {
            return Vec::new();
        }
        let changes = |word: &&'w str| !is_same(&with(&[word]));
        words.iter().copied().filter(changes).collect()
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
        let list = "ro,norecovery,rw,noatime,relatime,atime,strictatime,nodiratime,diratime,suid,nosuid,dev,nodev,exec,noexec,\
            sync,async,dirsync,allow_other,noallow_other,default_permissions,errors=continue,\
            subvolume=dev,fsync=strict,compression=zstd:7,deltas=always,dedup=write,dedup_memory=1M,barrier=off,commit=30,cache=16M,staging=8M,writeback_cache,threads=4,io_uring=off,log=/var/log/p,nouuid,fuse,supervise,remount";
        let options = MountOptions::parse(list).unwrap();
        assert_eq!(
            options,
            MountOptions {
                read_only: false,
                no_recovery: true,
                subvolume: Some("dev".to_owned()),
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
                fsync: FsyncOrder::Strict,
                compression: Compression::Zstd(7),
                deltas: Deltas::Always,
                dedup: Dedup::Write,
                dedup_bytes_max: Some(1 << 20),
                barrier: Barrier::Off,
                cache_bytes_max: Some(16 << 20),
                staging_bytes_max: Some(8 << 20),
                writeback_cache: true,
                threads: 4,
                io_uring: Rings::Off,
                log: Some("/var/log/p".into()),
                allow_duplicate: true,
                plain_fuse: true,
                supervise: true,
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
    fn a_remount_changes_flags_only() {
        let live = MountOptions::parse("noatime,commit=30,allow_other,sync").unwrap();
        let same = [
            "rw",
            "nosuid",
            "noatime",
            "sync",
            "dirsync",
            "user_id=0",
            "group_id=0",
            "default_permissions",
            "allow_other",
            "commit=30",
            "remount",
            "ro",
        ];
        assert_eq!(live.refused_by_remount(&same), Vec::<&str>::new());
        assert_eq!(
            live.refused_by_remount(&["ro", "noatime", "commit=9", "relatime", "nouuid"]),
            ["commit=9", "relatime"]
        );
        // The last one counts.
        assert!(
            live.refused_by_remount(&["commit=9", "commit=30"])
                .is_empty()
        );
        let always = MountOptions::parse("strictatime").unwrap();
        assert!(always.refused_by_remount(&["relatime", "ro"]).is_empty());
        assert_eq!(always.refused_by_remount(&["noatime"]), ["noatime"]);
    }

    #[test]
    fn without_recovery_is_read_only() {
        let check = |list| MountOptions::parse(list).unwrap().check();
        assert_eq!(check("ro,norecovery"), Ok(()));
        assert_eq!(
            check("norecovery"),
            Err(OptionError::Needs("norecovery", "ro"))
        );
        assert!(check("ro,norecovery,rw").is_err());
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
        assert!(message("io_uring=yes").contains("'yes'"));
    }
}
