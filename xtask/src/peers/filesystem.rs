//! Persimmon and its peers: what drives each wants, how it is made, mounted and unmounted.

use anyhow::{Context, Result, ensure};

use crate::vm::drive::Drive;

/// A filesystem. Its drives are `/dev/ns1` and, where there are two, `/dev/ns2`; it is mounted at [`DIR`].
pub struct Filesystem {
    pub name: &'static str,
    drives: Drives,
    pub mkfs: &'static str,
    pub mount: &'static str,
    pub unmount: &'static str,
    /// Prints its own counters, while it is mounted.
    pub stats: Option<&'static str>,
    /// Measured only where it is asked for.
    pub by_name_only: bool,
}

enum Drives {
    Zoned,
    /// A conventional one of so many MiB takes the metadata; the zoned one is that much smaller.
    ZonedAnd(u64),
    Conventional,
}

/// Where it is mounted in the guest.
pub const DIR: &str = "/mnt/w";

const UNMOUNT: &str = "umount /mnt/w";

const PERSIMMON: Filesystem = Filesystem {
    name: "persimmon",
    drives: Drives::Zoned,
    mkfs: "mkfs.persimmon --force /dev/ns1",
    mount: "mount -t persimmon /dev/ns1 /mnt/w",
    unmount: "persimmon umount /mnt/w",
    stats: Some("persimmon stats /mnt/w"),
    by_name_only: false,
};

const BTRFS: Filesystem = Filesystem {
    name: "btrfs",
    drives: Drives::Zoned,
    mkfs: "mkfs.btrfs -q -f -m single -d single /dev/ns1",
    mount: "modprobe btrfs; mount -t btrfs /dev/ns1 /mnt/w",
    unmount: UNMOUNT,
    stats: None,
    by_name_only: false,
};

pub const ALL: &[Filesystem] = &[
    PERSIMMON,
    Filesystem {
        name: "f2fs",
        drives: Drives::ZonedAnd(64),
        mkfs: "mkfs.f2fs -q -f -m -c /dev/ns1 /dev/ns2",
        mount: "modprobe f2fs; mount -t f2fs /dev/ns2 /mnt/w",
        unmount: UNMOUNT,
        stats: None,
        by_name_only: false,
    },
    BTRFS,
    // mkfs.xfs takes less than 300 MiB only when told that this is a test. On drives as small as these it would
    // otherwise go without a good part of the capacity, and write far more than on real ones.
    Filesystem {
        name: "xfs",
        drives: Drives::ZonedAnd(64),
        mkfs: "mkfs.xfs -q -f --unsupported -r zoned=1,rtdev=/dev/ns1 /dev/ns2",
        mount: "modprobe xfs; mount -t xfs -o rtdev=/dev/ns1 /dev/ns2 /mnt/w",
        unmount: UNMOUNT,
        stats: None,
        by_name_only: false,
    },
    // Overwrites in place, on a drive without zones: what zones cost the others.
    Filesystem {
        name: "ext4",
        drives: Drives::Conventional,
        mkfs: "mkfs.ext4 -q -F /dev/ns1",
        mount: "modprobe ext4; mount -t ext4 /dev/ns1 /mnt/w",
        unmount: UNMOUNT,
        stats: None,
        by_name_only: false,
    },
    Filesystem {
        name: "persimmon-plain",
        mount: "mount -t persimmon -o compression=none,deltas=none /dev/ns1 /mnt/w",
        by_name_only: true,
        ..PERSIMMON
    },
    Filesystem {
        name: "persimmon-zstd",
        mount: "mount -t persimmon -o compression=zstd:1 /dev/ns1 /mnt/w",
        by_name_only: true,
        ..PERSIMMON
    },
    Filesystem {
        name: "btrfs-zstd",
        mount: "modprobe btrfs; mount -t btrfs -o compress=zstd:1 /dev/ns1 /mnt/w",
        by_name_only: true,
        ..BTRFS
    },
];

impl Filesystem {
    /// The one of this name.
    pub fn named(name: &str) -> Result<&'static Filesystem> {
        ALL.iter()
            .find(|filesystem| filesystem.name == name)
            .with_context(|| format!("no filesystem is named {name}"))
    }

    /// Its drives, of `size_mib` together, with zones of `zone_mib`.
    pub fn drives(&self, size_mib: u64, zone_mib: u64) -> Result<Vec<Drive>> {
        let zoned = |mib: u64| {
            Drive::parse(&format!(
                "nvme:size={mib}M,zone={zone_mib}M,capacity={zone_mib}M"
            ))
        };
        let conventional = |mib: u64| Drive::parse(&format!("disk:size={mib}M"));
        match self.drives {
            Drives::Zoned => Ok(vec![zoned(size_mib)?]),
            Drives::Conventional => Ok(vec![conventional(size_mib)?]),
            Drives::ZonedAnd(mib) => {
                let mib = mib.next_multiple_of(zone_mib);
                ensure!(
                    size_mib >= 2 * mib,
                    "{}: its conventional drive alone takes {mib} MiB",
                    self.name
                );
                Ok(vec![zoned(size_mib - mib)?, conventional(mib)?])
            }
        }
    }
}
