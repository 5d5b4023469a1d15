//! The suite that every back end passes, the simulator included: what [`crate::ZonedDevice`]
//! promises, as tests. A back end calls [`check`] from a test of its own.
//!
//! The cases ask the device for its geometry and go by that, so a back end on hardware may ignore
//! the [`Shape`] it is asked for and reset all zones instead ([`check_one`]). They need 6 zones of
//! 16 blocks.

// Failing is what these are for.
#![allow(clippy::panic)]

mod appends;
mod limits;
mod parallel;
mod persistence;
mod reads;
mod states;
mod tools;
mod writes;

use crate::{Geometry, ZonedDevice};

/// The device that a case would like to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Zones.
    pub zone_count: u32,
    /// Zone size in blocks.
    pub zone_blocks: u32,
    /// Blocks of each zone that can be written.
    pub capacity_blocks: u32,
    /// Open zones allowed.
    pub max_open: Option<u32>,
    /// Active zones allowed.
    pub max_active: Option<u32>,
}

/// The shapes that [`check`] goes through.
#[must_use]
pub fn shapes() -> Vec<Shape> {
    let shape = |zone_blocks, capacity_blocks, max_open, max_active| Shape {
        zone_count: 9,
        zone_blocks,
        capacity_blocks,
        max_open,
        max_active,
    };
    vec![
        shape(256, 256, None, None),
        shape(512, 300, Some(3), Some(5)),
        shape(300, 257, Some(4), Some(4)),
        shape(256, 17, Some(1), Some(2)),
        shape(1024, 1023, Some(2), None),
        shape(256, 64, None, Some(3)),
    ]
}

/// Runs all cases on devices of all [`shapes`]. `fresh` makes a device with all zones empty;
/// `reopen` lets go of one and opens it again, nothing being cut off. Panics at the first promise
/// that is not kept; the output tells the case and the shape.
pub fn check<D: ZonedDevice>(mut fresh: impl FnMut(&Shape) -> D, mut reopen: impl FnMut(D) -> D) {
    for shape in shapes() {
        check_one(|| fresh(&shape), &mut reopen);
    }
}

/// Runs all cases on a device that has the shape it has: as [`check`] otherwise. Returns how many
/// there are.
pub fn check_one<D: ZonedDevice>(
    mut fresh: impl FnMut() -> D,
    mut reopen: impl FnMut(D) -> D,
) -> usize {
    let cases = cases::<D>();
    for (name, case) in &cases {
        let device = fresh();
        let geometry = device.geometry().clone();
        let _running = Running(name, &geometry);
        assert!(geometry.zone_count >= 6, "the suite needs 6 zones");
        case(device, &mut reopen);
    }
    cases.len()
}

/// Names the case that fails.
struct Running<'a>(&'a str, &'a Geometry);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("conformance: `{}` failed on {:?}", self.0, self.1);
        }
    }
}

/// A case gets a fresh device and the means to open it again.
type Case<D> = fn(D, &mut dyn FnMut(D) -> D);

fn cases<D: ZonedDevice>() -> Vec<(&'static str, Case<D>)> {
    vec![
        ("a fresh device is empty", states::fresh_is_empty),
        ("report", states::report),
        ("implicit open, full", states::written_to_full),
        ("explicit open and close", states::explicit_open_and_close),
        ("finish", states::finish),
        ("reset", states::reset),
        ("resets in flight", states::resets_in_flight),
        ("zones that do not exist", states::no_such_zone),
        ("round trip", writes::round_trip),
        ("the sequential-write rule", writes::sequential_rule),
        ("writes end at the capacity", writes::capacity),
        ("transfer limits of writes", writes::transfer_limits),
        ("writes in flight", writes::in_flight),
        ("reads past the write pointer", reads::past_write_pointer),
        ("reads of any part", reads::any_part),
        ("transfer limits of reads", reads::transfer_limits),
        ("appends tell where", appends::tell_where),
        ("appends in flight", appends::in_flight),
        ("append limits", appends::limits),
        ("active limit", limits::active),
        ("open limit", limits::explicit_open),
        ("implicitly open zones give way", limits::implicit_gives_way),
        ("explicitly open zones do not", limits::explicit_does_not),
        ("flushed state survives", persistence::flushed),
        ("reset survives", persistence::reset),
        ("finish survives", persistence::finished),
        ("many sessions", persistence::many_sessions),
        ("threads append to one zone", parallel::one_zone),
        ("threads with a zone each", parallel::zones),
    ]
}
