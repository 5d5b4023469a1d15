//! What `info`, `zones` and `stats` tell, gathered from an open volume: by the daemon for its
//! live mount (`answers.rs`), by the tool for a device that is not mounted. Field names are documented in
//! docs/CLI.md and stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use persimmon::internal::device::{BLOCK_SIZE, Drive, ZonedDevice};
use persimmon::internal::engine::{
    Freezing, RecoveryReport, Statistics, Volume, ZoneFailure, ZoneStatus,
};
use persimmon::internal::format::inode::ROOT;
use persimmon::internal::format::table::Role;
use persimmon::internal::format::zone_header::{self, VolumeIdentity};
use persimmon::vfs::SubvolumeId;
use persimmon_fuse::{Histogram, Latencies};
use serde::{Deserialize, Serialize};

use crate::control::Name;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// `persimmon info`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Device or image file.
    #[serde(serialize_with = "crate::output::path_as_text")]
    pub device: PathBuf,
    /// Where it is mounted; null if it is not.
    #[serde(serialize_with = "crate::output::path_as_text")]
    pub mount_point: Option<PathBuf>,
    /// Process that serves the mount; null if there is none.
    pub daemon_pid: Option<u32>,
    /// What was given after `-o`, and `allow_other` or `noallow_other`; null if it is not mounted.
    #[serde(default)]
    pub mount_options: Option<String>,
    /// The subvolume whose root is the root of the mount, by its name; null for the main one, and if it is not mounted.
    #[serde(default)]
    pub subvolume: Option<Name>,
    /// Its number; 0 is the main one.
    #[serde(default)]
    pub subvolume_id: u16,
    /// UUID.
    pub uuid: String,
    /// Label, may be empty.
    pub label: String,
    /// Version of the on-disk format.
    pub format_version: u32,
    /// Feature flags, in three lists: `incompatible`, `read_only_compatible`, `compatible`; by the names of docs/FORMAT.md in small letters
    /// with hyphens (`shared` is `SHARED_BLOCKS`), unknown ones as bits in hexadecimal.
    #[serde(default)]
    pub features: Features,
    /// The daemon, or this command, writes nothing: it was told not to, or an error ended it.
    pub read_only: bool,
    /// It is frozen: nothing is written to the device, and changes wait.
    #[serde(default)]
    pub frozen: bool,
    /// The volume was closed in order; null for a live mount.
    pub clean: Option<bool>,
    /// Of a volume on two devices, that for metadata; else null.
    #[serde(default)]
    #[serde(serialize_with = "crate::output::path_as_text")]
    pub metadata_device: Option<PathBuf>,
    /// Of a volume on two devices, that for file data; else null.
    #[serde(default)]
    #[serde(serialize_with = "crate::output::path_as_text")]
    pub data_device: Option<PathBuf>,
    /// Zones on the device for metadata, which come first; 0: there is one device.
    #[serde(default)]
    pub metadata_zones: u32,
    /// What metadata may fill on a device of its own; 0: there is one device.
    #[serde(default)]
    pub metadata_total_bytes: u64,
    /// Of that, what can still be filled.
    #[serde(default)]
    pub metadata_available_bytes: u64,
    /// Zones of the device.
    pub zone_count: u32,
    /// From the start of one zone to the start of the next.
    pub zone_size_bytes: u64,
    /// Bytes that can be written in a zone; of the smallest one (on two devices, for data) that has not failed.
    #[serde(default)]
    pub zone_capacity_bytes: u64,
    /// Zones that may be open at once; null is no limit.
    pub max_open: Option<u32>,
    /// Zones that may be active at once; null is no limit.
    pub max_active: Option<u32>,
    /// Space for users, as statfs tells.
    pub total_bytes: u64,
    /// Of that, what is not in use.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Copies of metadata, checkpoints and log; 1 where `data_copies` or `data_parity` has all of these in two zones.
    pub copies: u32,
    /// Zones that each block of a file is in.
    #[serde(default = "one")]
    pub data_copies: u32,
    /// Zones with data that one with their parity belongs to; null where there is none.
    #[serde(default)]
    pub data_parity: Option<u32>,
    /// Zones that have failed or are retired.
    pub failed_zones: u32,
}

fn one() -> u32 {
    1
}

/// What a program must know to use a volume: names, or bits in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// To mount it at all.
    pub incompatible: Vec<String>,
    /// To write to it.
    pub read_only_compatible: Vec<String>,
    /// To make use of it; who does not know it may ignore it.
    pub compatible: Vec<String>,
}

impl Features {
    fn new(identity: &VolumeIdentity) -> Features {
        let incompatible = [
            (zone_header::MIRRORED, "mirrored"),
            (zone_header::SPLIT, "split"),
            (zone_header::PACKED, "packed"),
            (zone_header::COMPACT, "compact"),
            (zone_header::NAMES, "names"),
            (zone_header::LOTS, "lots"),
            (zone_header::FOOTER_FEATURES, "footer-features"),
            (zone_header::FRAMES, "frames"),
            (zone_header::SHARED_BLOCKS, "shared"),
            (zone_header::SNAPSHOTS, "snapshots"),
            (zone_header::PROPERTIES, "properties"),
            (zone_header::QUOTA, "quota"),
            (zone_header::DELTAS, "deltas"),
            (zone_header::STRIPED, "striped"),
            (zone_header::DICTIONARIES, "dictionaries"),
            (zone_header::COMPRESSED_LOG, "compressed-log"),
            (zone_header::LONG_XATTRS, "long-xattrs"),
            (zone_header::SHARED_FRAMES, "shared-frames"),
            (zone_header::COUNTED_XATTRS, "counted-xattrs"),
        ];
        Features {
            incompatible: feature_names(identity.incompatible, &incompatible),
            read_only_compatible: feature_names(identity.read_only_compatible, &[]),
            compatible: feature_names(identity.compatible, &[]),
        }
    }

    /// All of them.
    pub fn names(&self) -> Vec<&str> {
        [
            &self.incompatible,
            &self.read_only_compatible,
            &self.compatible,
        ]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect()
    }
}

fn feature_names(bits: u64, known: &[(u64, &str)]) -> Vec<String> {
    (0..u64::BITS)
        .map(|shift| 1 << shift)
        .filter(|bit| bits & bit != 0)
        .map(|bit| {
            let name = known.iter().find(|(known, _)| *known == bit);
            name.map_or_else(|| format!("{bit:#x}"), |(_, name)| (*name).to_owned())
        })
        .collect()
}

/// One line of `persimmon zones`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneRow {
    /// Number.
    pub zone: u32,
    /// `free`, `log`, `metadata`, `data`, `retired`.
    pub role: String,
    /// `none`, `short`, `medium`, `long`, `extreme`, `inferred` (from what was overwritten), `moved` (by cleaning).
    pub lifetime: String,
    /// `empty`, `open` (being written to), `partial`, `full`; of a zone that has failed `read-only` or `offline`.
    pub state: String,
    /// On a volume with two copies, the zone that holds the same; else null.
    pub partner: Option<u32>,
    /// Blocks of 4096 bytes that are written.
    pub write_pointer_blocks: u32,
    /// Blocks that can be written.
    pub capacity_blocks: u32,
    /// Blocks that something refers to.
    pub valid_blocks: u32,
    /// Resets in its life.
    pub resets: u32,
}

/// The report of `persimmon stats`, with all counters that the engine has.
macro_rules! declare_stats {
    (
        written { $($(#[$written_doc:meta])* $written:ident: $class:ident,)* }
        counted { $($(#[$counted_doc:meta])* $counted:ident,)* }
    ) => {
        /// `persimmon stats`: since the volume was mounted.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub struct Stats {
            /// File data that was flushed, as users wrote it, in whole blocks.
            pub user_bytes: u64,
            /// All bytes sent to the device.
            pub device_bytes: u64,
            /// That divided by `user_bytes`.
            pub write_amplification: f64,
            $($(#[$written_doc])* pub $written: u64,)*
            $($(#[$counted_doc])* pub $counted: u64,)*
            /// The most file data that waited in memory, bytes.
            pub staged_bytes_peak: u64,
            /// Memory that hashes of blocks take for deduplication while writing, bytes.
            pub dedup_table_bytes: u64,
            /// Histogram of read latencies of the mount: a list of `below_us` and `count`, the operations that took less than `below_us`
            /// microseconds, and at least half of it.
            pub read_latency: Vec<LatencyBucket>,
            /// Histogram of write latencies of the mount.
            pub write_latency: Vec<LatencyBucket>,
            /// Histogram of fsync latencies of the mount.
            pub fsync_latency: Vec<LatencyBucket>,
            /// Files of a mount with `supervise` that lost something: the daemon before had answered it, and it could not be written again.
            #[serde(default)]
            pub lost_files: u64,
        }

        impl Stats {
            fn new(s: &Statistics, latencies: &Latencies) -> Stats {
                Stats {
                    user_bytes: s.user_bytes,
                    device_bytes: s.device_bytes(),
                    write_amplification: s.write_amplification(),
                    $($written: s.$written,)*
                    $($counted: s.$counted,)*
                    staged_bytes_peak: s.staged_bytes_peak,
                    dedup_table_bytes: s.dedup_table_bytes,
                    read_latency: buckets(&latencies.read),
                    write_latency: buckets(&latencies.write),
                    fsync_latency: buckets(&latencies.fsync),
                    lost_files: latencies.lost_files.load(Ordering::Relaxed),
                }
            }
        }
    };
}

persimmon::internal::engine::with_statistics!(declare_stats);

/// Operations that took less than a bound, but not less than half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// The bound, microseconds.
    pub below_us: u64,
    /// How many.
    pub count: u64,
}

fn buckets(histogram: &Histogram) -> Vec<LatencyBucket> {
    let counts = histogram.counts().into_iter();
    counts
        .map(|(below_us, count)| LatencyBucket { below_us, count })
        .collect()
}

impl ZoneRow {
    fn new(status: &ZoneStatus) -> ZoneRow {
        let entry = &status.entry;
        let state = match () {
            () if status.failure == Some(ZoneFailure::ReadOnly) => "read-only",
            () if status.failure == Some(ZoneFailure::Offline) => "offline",
            () if status.open => "open",
            () if entry.write_pointer == 0 => "empty",
            () if entry.write_pointer >= status.capacity => "full",
            () => "partial",
        };
        ZoneRow {
            zone: status.zone.0,
            role: entry.role.name().to_owned(),
            lifetime: lifetime_name(entry.role, entry.lifetime).to_owned(),
            state: state.to_owned(),
            partner: status.partner.map(|zone| zone.0),
            write_pointer_blocks: entry.write_pointer,
            capacity_blocks: status.capacity,
            valid_blocks: entry.valid,
            resets: entry.resets,
        }
    }
}

/// What a class of lifetimes is called.
pub fn lifetime_name(role: Role, lifetime: u8) -> &'static str {
    match (role, lifetime) {
        (Role::Free | Role::Retired, _) => "none",
        (_, 1) => "short",
        (_, 2) => "medium",
        (_, 3) => "long",
        (_, 4) => "extreme",
        (_, 8..=15) => "inferred",
        (_, 5 | 16..=23) => "moved",
        _ => "none",
    }
}

/// A volume and what is known about where it came from.
pub struct Source {
    volume: Arc<Volume>,
    latencies: Arc<Latencies>,
    info: Info,
}

impl Source {
    /// Gathers what does not change while the volume is open.
    pub fn new(volume: Arc<Volume>, device: &Drive, read_only: bool) -> Source {
        let geometry = device.geometry();
        let identity = volume.identity();
        let (copies, zone_count) = (identity.copies(), identity.zone_count);
        let metadata_zones = identity.metadata_zones;
        let uuid = uuid::Uuid::from_bytes(identity.visible_uuid).to_string();
        let label = identity.label.clone();
        let features = Features::new(identity);
        // Of two devices that for data.
        let capacity = volume
            .zones()
            .iter()
            .filter(|zone| !geometry.metadata_zones.contains(zone.zone.0))
            .filter(|zone| zone.failure.is_none())
            .map(|zone| zone.capacity)
            .min();
        Source {
            volume,
            latencies: Arc::default(),
            info: Info {
                device: device.path().to_owned(),
                mount_point: None,
                daemon_pid: None,
                mount_options: None,
                subvolume: None,
                subvolume_id: SubvolumeId::MAIN.0,
                uuid,
                label,
                format_version: zone_header::FORMAT_VERSION,
                features,
                read_only,
                frozen: false,
                clean: None,
                metadata_device: device.pair().map(|pair| pair.metadata().path().to_owned()),
                data_device: device.pair().map(|pair| pair.data().path().to_owned()),
                metadata_zones,
                metadata_total_bytes: 0,
                metadata_available_bytes: 0,
                zone_count,
                zone_size_bytes: u64::from(geometry.zone_blocks) * BLOCK,
                zone_capacity_bytes: u64::from(capacity.unwrap_or(geometry.zone_blocks)) * BLOCK,
                max_open: geometry.max_open,
                max_active: geometry.max_active,
                total_bytes: 0,
                available_bytes: 0,
                inodes: 0,
                copies,
                data_copies: match geometry.stripes {
                    Some(stripes) if stripes.columns == 1 => 2,
                    _ => 1,
                },
                data_parity: geometry
                    .stripes
                    .map(|stripes| stripes.columns)
                    .filter(|columns| *columns > 1),
                failed_zones: 0,
            },
        }
    }

    /// Served by this process at `dir`, where operations are timed.
    pub fn mounted_at(mut self, dir: &Path, options: String, latencies: Arc<Latencies>) -> Source {
        self.latencies = latencies;
        self.info.mount_options = Some(options);
        self.info.mount_point = Some(dir.to_owned());
        self.info.daemon_pid = Some(std::process::id());
        self
    }

    /// With this subvolume as the root.
    pub fn of_subvolume(mut self, id: SubvolumeId) -> Source {
        self.info.subvolume_id = id.0;
        self
    }

    /// Not mounted; what opening it found.
    pub fn opened(mut self, recovery: &RecoveryReport) -> Source {
        self.info.clean = Some(recovery.clean);
        self
    }

    /// Now.
    pub fn info(&self) -> Info {
        let space = self.volume.space();
        Info {
            total_bytes: space.total_bytes,
            available_bytes: space.available_bytes,
            metadata_total_bytes: space.metadata_total_bytes,
            metadata_available_bytes: space.metadata_available_bytes,
            inodes: space.inodes,
            failed_zones: self.volume.failed_zones(),
            // It may have got another name.
            subvolume: { self.volume.snapshots() }
                .get(SubvolumeId(self.info.subvolume_id))
                .map(|subvolume| Name::new(&subvolume.name)),
            // An error makes it so too.
            read_only: self.info.read_only || self.volume.is_read_only(),
            frozen: Freezing::of(&self.volume).is_frozen(),
            ..self.info.clone()
        }
    }

    /// Now.
    pub fn stats(&self) -> Stats {
        Stats::new(&self.volume.statistics(), &self.latencies)
    }

    /// Now.
    pub fn zones(&self) -> Vec<ZoneRow> {
        self.zones_from(0, usize::MAX)
    }

    /// Now, of so many zones at most, from this number on.
    pub fn zones_from(&self, from: usize, zones_max: usize) -> Vec<ZoneRow> {
        let zones = self.volume.zones_from(from, zones_max);
        zones.iter().map(ZoneRow::new).collect()
    }
}

/// Which files wait for room ([`persimmon::Filesystem::files_waiting`]), in words.
pub fn waiting_line(device: &Path, files: usize) -> Option<String> {
    (files > 0).then(|| {
        format!(
            "{}: the volume is full, and what was flushed to {files} files before a process died waits for room; until then they cannot \
             be opened: delete other files, then open the volume again",
            device.display()
        )
    })
}

/// Which files have data that an opening for reading does not see ([`persimmon::Filesystem::files_unseen`]), in words.
pub fn unseen_line(device: &Path, files: usize) -> Option<String> {
    (files > 0).then(|| {
        let have = match files {
            1 => "1 file has".to_owned(),
            _ => format!("{files} files have"),
        };
        format!(
            "{}: {have} flushed data that this opening does not see; open the volume once for writing: mount it without `ro`, or change \
             something in it by `persimmon fs`",
            device.display()
        )
    })
}

/// What recovery did, in words; nothing after a clean unmount.
pub fn recovery_lines(device: &Path, recovery: &RecoveryReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !recovery.clean {
        lines.push(format!(
            "{}: was not unmounted; recovered: {} journal records replayed since checkpoint {}",
            device.display(),
            recovery.records_replayed,
            recovery.checkpoint
        ));
    }
    if recovery.tail_cut {
        lines.push(format!(
            "{}: changes that had not been synced when it stopped were given up",
            device.display()
        ));
    }
    if recovery.zones_failed > 0 {
        lines.push(format!(
            "{}: {} zones in use have failed; what is lost with them is in the log",
            device.display(),
            recovery.zones_failed
        ));
    }
    if recovery.log_zones_undecodable > 0 {
        lines.push(format!(
            "{}: {} damaged zones may have held the end of the log, and what was acknowledged may \
             be lost with them: read-only, so that nothing of it is overwritten; `persimmon fsck` \
             tells which, `persimmon recover` copies what is there",
            device.display(),
            recovery.log_zones_undecodable
        ));
    }
    if recovery.mat_chunks_lost > 0 || recovery.zit_chunks_lost > 0 || recovery.changes_lost > 0 {
        lines.push(format!(
            "{}: metadata is damaged, or lost with a zone that failed: read-only; `persimmon fsck` tells what, \
             and what cannot be reached, `persimmon recover` looks for",
            device.display()
        ));
    }
    lines
}

/// What of the metadata is known to be missing as soon as the volume is open; nothing, of a whole one. Who goes on to
/// write to such a volume may make more of it unreachable.
pub fn missing(volume: &Volume, recovery: &RecoveryReport) -> Option<String> {
    if recovery.has_lost_metadata() {
        return Some("metadata is damaged, or lost with a zone that failed".to_owned());
    }
    match volume.view::<_, persimmon::internal::engine::Error>(|view| view.inode(ROOT)) {
        Ok(Some(_)) => {}
        Ok(None) => return Some("the root directory is lost".to_owned()),
        Err(error) => return Some(format!("the root directory cannot be read: {error}")),
    }
    let orphans = volume.orphans().err();
    orphans.map(|error| format!("metadata pages cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_names_or_are_bits() {
        let known = [(1, "mirrored"), (2, "packed")];
        assert_eq!(
            feature_names(2 | 1 << 40, &known),
            ["packed", "0x10000000000"]
        );
        assert!(feature_names(0, &known).is_empty());
    }
}
