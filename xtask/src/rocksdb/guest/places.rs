//! Where databases are in the guest: volumes that the plugin has, and mounts.

use anyhow::Result;

use crate::peers::filesystem::{DIR, Filesystem};
use crate::vm::drive::Drive;

/// A place for databases. Drives, and what makes and mounts a filesystem on them, are those of `cargo xtask peers`.
pub struct Place {
    pub name: &'static str,
    filesystem: &'static str,
    way: Way,
}

enum Way {
    /// By the plugin: the device as `persimmon` takes it, and what has to be done once in a guest before.
    Plugin {
        device: &'static str,
        once: &'static str,
    },
    /// By RocksDB's own file system, in a mount.
    Mount,
}

const NOTHING: &str = "true";
/// A zonefs of the second drive, or of the only one.
const ZONEFS: &str = "set -e; modprobe zonefs; mkdir -p /mnt/zf; d=/dev/ns2; test -e $d || d=/dev/ns1; \
    drive-tests zonefs-make $d; mount -t zonefs -o explicit-open $d /mnt/zf";

pub const PLUGIN: Place = Place {
    name: "plugin",
    filesystem: "persimmon",
    way: Way::Plugin {
        device: "/dev/ns1",
        once: NOTHING,
    },
};

pub const PLUGIN_ZONEFS: Place = Place {
    name: "plugin-zonefs",
    filesystem: "persimmon",
    way: Way::Plugin {
        device: "zonefs:/mnt/zf",
        once: ZONEFS,
    },
};

const fn mount(name: &'static str, filesystem: &'static str) -> Place {
    Place {
        name,
        filesystem,
        way: Way::Mount,
    }
}

/// The first is what the others are compared with.
pub const PLACES: &[Place] = &[
    PLUGIN,
    PLUGIN_ZONEFS,
    mount("mount", "persimmon"),
    mount("f2fs", "f2fs"),
    mount("xfs", "xfs"),
    mount("btrfs", "btrfs"),
];

impl Place {
    /// Its drives, of `size_mib` together.
    pub fn drives(&self, size_mib: u64, zone_mib: u64) -> Result<Vec<Drive>> {
        Filesystem::named(self.filesystem)?.drives(size_mib, zone_mib)
    }

    /// Whether it is a volume of Persimmon.
    pub fn is_ours(&self) -> bool {
        self.filesystem == "persimmon"
    }

    /// Run once in a guest.
    pub fn once(&self) -> String {
        match self.way {
            Way::Plugin { once, .. } => once.to_owned(),
            Way::Mount => format!("mkdir -p {DIR}"),
        }
    }

    /// Makes it, empty.
    pub fn make(&self) -> Result<String> {
        Ok(match self.way {
            Way::Plugin { device, .. } => format!("mkfs.persimmon --force {device}"),
            Way::Mount => Filesystem::named(self.filesystem)?.mkfs.to_owned(),
        })
    }

    /// Before each workload.
    pub fn before(&self) -> Result<&'static str> {
        match self.way {
            Way::Plugin { .. } => Ok(NOTHING),
            Way::Mount => Ok(Filesystem::named(self.filesystem)?.mount),
        }
    }

    /// After each workload.
    pub fn after(&self) -> Result<&'static str> {
        match self.way {
            Way::Plugin { .. } => Ok(NOTHING),
            Way::Mount => Ok(Filesystem::named(self.filesystem)?.unmount),
        }
    }

    /// A program of RocksDB, which finds the plugin where that is to be used, as the wrapper `persimmon-rocksdb` has it: that wants tools
    /// that the guest does not have.
    pub fn program(&self, name: &str) -> String {
        match self.way {
            Way::Plugin { .. } => format!("LD_PRELOAD=/bin/libpersimmon_rocksdb.so {name}"),
            Way::Mount => name.to_owned(),
        }
    }

    /// Where the database is: a URI for programs that take one, and a directory.
    pub fn database(&self) -> (Option<String>, String) {
        match self.way {
            Way::Plugin { device, .. } => (Some(format!("persimmon://{device}")), "/db".to_owned()),
            Way::Mount => (None, format!("{DIR}/db")),
        }
    }
}
