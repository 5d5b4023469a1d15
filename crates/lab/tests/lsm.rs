//! A database as RocksDB writes it, on a drive of few large zones: what the device is sent, and what cleaning moves.

#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use persimmon_lab::lsm::{Plan, run};

/// A database at 0.7 of what a volume of 64 zones holds had a third of what was sent moved by cleaning: all its lifetimes shared the
/// two zones that might be in the middle of being filled, and one zone in seven was kept free for a journal and a pool
/// that nothing had asked for. On 256 zones of the same volume nothing was moved.
#[test]
fn a_database_on_few_zones_is_hardly_moved() {
    let outcome = run(&Plan::default()).unwrap();
    let (device, moved) = (outcome.device_share(), outcome.moved_share());
    assert!(device <= 1.05, "{device}");
    assert!(moved <= 0.03, "{moved}");
    assert_eq!(outcome.stalls, 0);
    for victims in &outcome.victims {
        assert_eq!(victims.mixed, 0, "{victims:?}");
    }
}
