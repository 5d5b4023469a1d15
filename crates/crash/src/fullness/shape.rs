//! Volumes of many shapes.

use std::sync::Arc;

use persimmon_device::label::LABEL_ZONES;
use persimmon_device::{MetadataZones, Stripes};
use persimmon_engine::{FormatOptions, Options, Volume};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use persimmon_sim::{SimConfig, SimDevice};

use crate::stripes;

/// A new volume on a new device, and how it is opened.
pub(super) struct Shape {
    pub device: Arc<SimDevice>,
    pub options: Options,
    /// How the device's zones are used.
    pub stripes: Option<Stripes>,
    /// In words.
    pub told: String,
}

fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// Kinds of shapes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// On one device.
    Single,
    /// With a device of its own for metadata.
    Split,
    /// On one device with so many zones, and so small checkpoints, that few zones are held back.
    Many,
    /// On one device with few zones, each of which holds many checkpoints.
    Large,
    /// On one device with few zones of usual size, which are reckoned with as large ones.
    Few,
}

/// Draws shapes until one can carry a volume. Those to be filled by what the tree holds are smaller. Zones are stripe sets if they
/// are to be: with parity where metadata has zones of its own, mirrors else.
pub(super) fn draw(rng: &mut ChaCha8Rng, family: Family, by_tree: bool, striped: bool) -> Shape {
    loop {
        let (zones, zone_blocks) = match family {
            Family::Large if by_tree => (rng.random_range(8..=20), pick(rng, &[1024, 2048])),
            Family::Few => (rng.random_range(12..=120), pick(rng, &[3072, 4096, 6144])),
            _ if by_tree => (rng.random_range(20..=120), pick(rng, &[64, 128, 256])),
            Family::Many => (rng.random_range(300..=900), pick(rng, &[128, 256])),
            Family::Large => (rng.random_range(8..=80), pick(rng, &[8192, 16384])),
            _ => (rng.random_range(20..=120), pick(rng, &[64, 128, 256, 512])),
        };
        let least = if family == Family::Few { 85 } else { 60 };
        let capacity = zone_blocks * rng.random_range(least..=100) / 100;
        let active = pick(rng, &[Some(3), Some(4), Some(6), Some(14), None]);
        let copies = if rng.random_ratio(1, 8) && family != Family::Few {
            2
        } else {
            1
        };
        let reserve_basis_points = pick(rng, &[0, 300, 700, 1000]);
        let mut config = SimConfig::new(zones, zone_blocks)
            .capacity(capacity)
            .limits(active, active)
            .patterns();
        let mut metadata_zones = 0;
        let mut stripes = None;
        if striped {
            if family == Family::Split {
                metadata_zones = rng.random_range(16..=60);
            }
            let columns = if metadata_zones > 0 {
                rng.random_range(2..=5)
            } else {
                1
            };
            config.geometry.zone_count = LABEL_ZONES + 2 * metadata_zones + (columns + 1) * zones;
            let limit = active.map(|active| active * (columns + 1));
            config = config.limits(limit, limit);
            stripes = Some(Stripes {
                columns,
                metadata_sets: metadata_zones,
            });
        } else if family == Family::Split {
            metadata_zones = rng.random_range(16..=60);
            config.geometry.metadata_zones = MetadataZones::first(metadata_zones);
            config.geometry.zone_count += metadata_zones;
            // The other device has zones of a size of its own.
            let smaller = zone_blocks / pick(rng, &[1, 1, 2]);
            config.capacities = vec![smaller; metadata_zones as usize];
            config.capacities.push(capacity);
        }
        let device = Arc::new(SimDevice::new(config));
        let format = FormatOptions {
            reserve_basis_points: Some(reserve_basis_points),
            copies,
            ..FormatOptions::default()
        };
        let Ok(seen) = stripes::used(&device, stripes, true) else {
            continue;
        };
        let made = Volume::format(seen, &format);
        let options = Options {
            staging_bytes_max: pick(rng, &[64 << 10, 1 << 20, 8 << 20, 32 << 20]),
            dirty_pages_max: match family {
                Family::Many => 64,
                Family::Large => pick(rng, &[128, 256]),
                _ => pick(rng, &[64, 512, 4096]),
            },
            journal_bytes_max: match family {
                Family::Many | Family::Large => 256 << 10,
                _ => pick(rng, &[256 << 10, 2 << 20, 32 << 20]),
            },
            large_zone_blocks: match family {
                Family::Large if by_tree => 1024,
                Family::Large => 4096,
                _ => Options::default().large_zone_blocks,
            },
            ..Options::default()
        };
        if made.is_ok() {
            let told = format!(
                "{metadata_zones} zones for metadata, {zones} zones of {zone_blocks} blocks, capacity {capacity}, active {active:?}, \
                 {copies} copies, reserve {reserve_basis_points}, staging {}, dirty pages {}, \
                 journal {}, {stripes:?}",
                options.staging_bytes_max, options.dirty_pages_max, options.journal_bytes_max
            );
            return Shape {
                device,
                options,
                stripes,
                told,
            };
        }
    }
}
