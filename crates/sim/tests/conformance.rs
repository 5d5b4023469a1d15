//! The simulated device keeps the promises of every back end, in each of its guises.

use persimmon_device::conformance::{self, Shape};
use persimmon_sim::{Sampled, SimConfig, SimDevice};

fn config(shape: &Shape) -> SimConfig {
    SimConfig::new(shape.zone_count, shape.zone_blocks)
        .capacity(shape.capacity_blocks)
        .limits(shape.max_open, shape.max_active)
}

fn check(guise: impl Fn(SimConfig) -> SimConfig) {
    conformance::check(
        |shape| SimDevice::new(guise(config(shape))),
        |device| device.snapshot().intact(),
    );
}

#[test]
fn plain() {
    check(|config| config);
}

#[test]
fn without_history() {
    check(SimConfig::fast);
}

#[test]
fn reordering() {
    for seed in 0..10 {
        check(|config| config.reordering(seed));
    }
}

#[test]
fn with_conventional_zones() {
    check(|config| config.conventional(4));
}

/// What was flushed survives any power cut.
#[test]
fn reopened_by_power_cuts() {
    for seed in 0..20 {
        let survives = |device: SimDevice| device.snapshot().persisted(&mut Sampled::new(seed));
        for guise in [SimConfig::volatile_cache, SimConfig::host_file] {
            let fresh = |shape: &Shape| SimDevice::new(guise(config(shape)).reordering(seed));
            conformance::check(fresh, survives);
        }
    }
}
