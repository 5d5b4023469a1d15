//! Appends: the device says where they landed.

use super::tools::{
    Must, check, expect, fails, info, landed, pattern, some_zone, submit_append, write,
};
use crate::{Command, DeviceError, ZoneId, ZoneState, ZonedDevice};

pub(super) fn tell_where<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    if !device.geometry().takes_appends() {
        return;
    }
    let (zone, _) = some_zone(&device);
    assert_eq!(
        landed(submit_append(&device, zone, pattern(zone, 0, 2, 1))).must(),
        0
    );
    expect(&device, zone, ZoneState::ImplicitlyOpen, 2);
    write(&device, zone, 2, 1, 1).must();
    assert_eq!(
        landed(submit_append(&device, zone, pattern(zone, 3, 4, 1))).must(),
        3
    );
    expect(&device, zone, ZoneState::ImplicitlyOpen, 7);
    check(&device, zone, 0, 7, 1);
}

pub(super) fn in_flight<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    if !device.geometry().takes_appends() {
        return;
    }
    // Two zones at once where the limits allow it, filled to the last block.
    let geometry = device.geometry();
    let zones = match (geometry.max_open, geometry.max_active) {
        (Some(1), _) | (_, Some(1)) => vec![ZoneId(1)],
        _ => vec![ZoneId(1), ZoneId(4)],
    };
    let mut pending = Vec::new();
    for zone in &zones {
        let capacity = info(&device, *zone).capacity;
        let (mut left, mut tag) = (capacity, 0);
        while left > 0 {
            let blocks = (tag % 3 + 1).min(left).min(geometry.max_append_blocks);
            // What is written tells which append it was, not where it is.
            let data = pattern(*zone, 1000 * tag, blocks, 5);
            pending.push((
                *zone,
                blocks,
                data.clone(),
                submit_append(&device, *zone, data),
            ));
            left -= blocks;
            tag += 1;
        }
    }
    let mut places = Vec::new();
    for (zone, blocks, data, pending) in pending.into_iter().rev() {
        let block = landed(pending).must();
        let found = device.read(zone, block, blocks).must();
        assert!(
            *found == *data,
            "append at {zone}:{block} holds something else"
        );
        places.push((zone, block, blocks));
    }
    places.sort_unstable();
    for zone in zones {
        let mut next = 0;
        for (_, block, blocks) in places.iter().filter(|(of, ..)| *of == zone) {
            assert_eq!(
                *block, next,
                "appends to zone {zone} overlap or leave a gap"
            );
            next += blocks;
        }
        expect(&device, zone, ZoneState::Full, next);
    }
}

pub(super) fn limits<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    if !device.geometry().takes_appends() {
        return;
    }
    let (zone, capacity) = some_zone(&device);
    let limit = device.geometry().max_append_blocks;
    assert!((1..=device.geometry().max_transfer_blocks).contains(&limit));
    let append = |blocks| landed(submit_append(&device, zone, pattern(zone, 0, blocks, 1)));
    let is_transfer_size = |error: &DeviceError| matches!(error, DeviceError::TransferSize { .. });
    fails(append(limit + 1), is_transfer_size);
    let nothing = Command::Append { zone, data: vec![] };
    fails(device.run(nothing), is_transfer_size);
    expect(&device, zone, ZoneState::Empty, 0);
    write(&device, zone, 0, capacity - 1, 1).must();
    if limit >= 2 {
        fails(append(2), |error| {
            matches!(error, DeviceError::ZoneFull { .. })
        });
    }
    expect(&device, zone, ZoneState::ImplicitlyOpen, capacity - 1);
    assert_eq!(append(1).must(), capacity - 1);
    fails(append(1), |error| {
        matches!(
            error,
            DeviceError::BadState {
                state: ZoneState::Full,
                ..
            }
        )
    });
    expect(&device, zone, ZoneState::Full, capacity);
}
