//! Writes at the write pointer.

use super::tools::{Must, check, expect, fails, info, pattern, some_zone, submit_write, write};
use crate::{Command, DeviceError, ZoneId, ZoneState, ZonedDevice};

pub(super) fn round_trip<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    // One zone after the other, each to its end, so that no limit is in the way.
    for number in 0..device.geometry().zone_count {
        let zone = ZoneId(number);
        let capacity = info(&device, zone).capacity;
        let mut at = 0;
        let mut step = 1;
        while at < capacity {
            let blocks = step
                .min(capacity - at)
                .min(device.geometry().max_transfer_blocks);
            // Several buffers of unequal length in one command.
            let middle = blocks / 3;
            let data = vec![
                pattern(zone, at, middle, 9),
                pattern(zone, at + middle, blocks - middle, 9),
            ];
            let data = data
                .into_iter()
                .filter(|buffer| buffer.blocks() > 0)
                .collect();
            device
                .run(Command::Write {
                    zone,
                    block: at,
                    data,
                })
                .must();
            at += blocks;
            step = step * 2 + 1;
            assert_eq!(info(&device, zone).write_pointer, at);
        }
    }
    for number in 0..device.geometry().zone_count {
        let zone = ZoneId(number);
        check(&device, zone, 0, info(&device, zone).capacity, 9);
    }
}

pub(super) fn sequential_rule<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, _) = some_zone(&device);
    let refused = |block, pointer| {
        fails(submit_write(&device, zone, block, 1, 66).wait(), |error| {
            matches!(
                error,
                DeviceError::NotAtWritePointer { block: at, write_pointer, .. }
                    if (*at, *write_pointer) == (block, pointer)
            )
        });
    };
    refused(1, 0);
    expect(&device, zone, ZoneState::Empty, 0);
    write(&device, zone, 0, 4, 1).must();
    for block in [0, 3, 5, u32::MAX] {
        refused(block, 4);
    }
    expect(&device, zone, ZoneState::ImplicitlyOpen, 4);
    write(&device, zone, 4, 1, 1).must();
    check(&device, zone, 0, 5, 1);
}

pub(super) fn capacity<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    write(&device, zone, 0, capacity - 2, 1).must();
    fails(
        submit_write(&device, zone, capacity - 2, 3, 1).wait(),
        |error| matches!(error, DeviceError::ZoneFull { .. }),
    );
    expect(&device, zone, ZoneState::ImplicitlyOpen, capacity - 2);
    write(&device, zone, capacity - 2, 2, 1).must();
    expect(&device, zone, ZoneState::Full, capacity);
    check(&device, zone, 0, capacity, 1);
}

pub(super) fn transfer_limits<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    let limit = device.geometry().max_transfer_blocks;
    assert!(limit > 0);
    let is_transfer_size = |error: &DeviceError| matches!(error, DeviceError::TransferSize { .. });
    let nothing = Command::Write {
        zone,
        block: 0,
        data: vec![],
    };
    fails(device.run(nothing), is_transfer_size);
    fails(
        submit_write(&device, zone, 0, limit + 1, 1).wait(),
        is_transfer_size,
    );
    expect(&device, zone, ZoneState::Empty, 0);
    let most = limit.min(capacity);
    submit_write(&device, zone, 0, most, 1).wait().must();
    check(&device, zone, 0, most, 1);
}

pub(super) fn in_flight<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    let pending: Vec<_> = (0..capacity)
        .step_by(2)
        .map(|block| submit_write(&device, zone, block, 2.min(capacity - block), 3))
        .collect();
    // The last first: completion does not depend on who waits when.
    for pending in pending.into_iter().rev() {
        pending.wait().must();
    }
    expect(&device, zone, ZoneState::Full, capacity);
    check(&device, zone, 0, capacity, 3);
}
