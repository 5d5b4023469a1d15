//! Volumes that get more zones and other names between one mount and the next, with the power cut before, after and in the
//! midst of it.

use persimmon_crash::filesystem::Growing;
use persimmon_crash::harness::{Case, Origin, replay};
use persimmon_crash::stripes;
use persimmon_crash::workload::Sequences;
use persimmon_device::{Geometry, MetadataZones};

/// Zones that the volumes lack at first.
const MORE: u32 = 5;
/// The same of those that get a device for metadata.
const FOR_METADATA: u32 = 60;

type Tested = Result<(), Box<dyn std::error::Error>>;

/// Runs the volumes of these seeds, on devices that get zones as `change` says: as many as it answers.
fn grow(seeds: impl Iterator<Item = u64>, change: impl Fn(u64, &mut Geometry) -> u32) -> Tested {
    let sequences = Sequences::new();
    let (mut states, mut crashes_in_recovery) = (0, 0);
    for seed in seeds {
        let mut case = Case::new(Origin::Seed(seed), &sequences).ok_or("no such case")?;
        if case.plan.heavy {
            continue;
        }
        let more = change(seed, &mut case.plan.config.geometry);
        let statistics = replay(&Growing(more), &case).map_err(|failure| failure.to_string())?;
        states += statistics.states;
        crashes_in_recovery += statistics.recovery_crashes;
    }
    assert!(
        states > 200 && crashes_in_recovery > 5,
        "{states} states, {crashes_in_recovery} in recovery"
    );
    Ok(())
}

fn more(geometry: &mut Geometry, zones: u32) -> u32 {
    geometry.zone_count += zones;
    zones
}

#[test]
fn volumes_that_grow_keep_what_they_promised() -> Tested {
    grow(1..60, |_, geometry| more(geometry, MORE))
}

/// Two of the zones are the metadata device's.
#[test]
fn volumes_on_two_devices_that_grow_keep_what_they_promised() -> Tested {
    let seeds = (5_100..5_500).filter(|seed| [5, 10].contains(&(seed % 16)));
    grow(seeds, |_, geometry| {
        let made = geometry.metadata_zones.runs().to_vec();
        let zones = more(geometry, MORE);
        let all = geometry.zone_count;
        geometry.metadata_zones =
            MetadataZones::of(made.into_iter().chain(std::iter::once(all - 2..all)));
        zones
    })
}

#[test]
fn volumes_that_get_a_device_for_metadata_keep_what_they_promised() -> Tested {
    grow(100..140, |_, geometry| {
        let made = geometry.zone_count;
        let zones = more(geometry, FOR_METADATA);
        geometry.metadata_zones = MetadataZones::of(std::iter::once(made..made + zones));
        zones
    })
}

#[test]
fn volumes_in_stripe_sets_that_grow_keep_what_they_promised() -> Tested {
    grow(2_000_000_000..2_000_000_040, |seed, geometry| {
        let columns = stripes::of_seed(seed).map_or(1, |stripes| stripes.columns);
        more(geometry, MORE * (columns + 1));
        MORE
    })
}
