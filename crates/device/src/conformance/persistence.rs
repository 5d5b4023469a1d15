//! What is there when the device is opened again.

use super::tools::{Must, check, expect, fails, info, reset as reset_zone, run, some_zone, write};
use crate::{Command, DeviceError, ZoneId, ZoneState, ZonedDevice};

pub(super) fn flushed<D: ZonedDevice>(device: D, reopen: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    let full = ZoneId(0);
    let geometry = device.geometry().clone();
    write(&device, full, 0, info(&device, full).capacity, 2).must();
    run(&device, Command::Open { zone });
    write(&device, zone, 0, 11, 1).must();
    device.flush().must();
    let device = reopen(device);
    assert_eq!(*device.geometry(), geometry);
    // Open zones come back closed.
    expect(&device, zone, ZoneState::Closed, 11);
    expect(&device, full, ZoneState::Full, info(&device, full).capacity);
    check(&device, zone, 0, 11, 1);
    check(&device, full, 0, info(&device, full).capacity, 2);
    write(&device, zone, 11, capacity - 11, 1).must();
    device.flush().must();
    let device = reopen(device);
    expect(&device, zone, ZoneState::Full, capacity);
    check(&device, zone, 0, capacity, 1);
}

pub(super) fn reset<D: ZonedDevice>(device: D, reopen: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    write(&device, zone, 0, capacity, 1).must();
    device.flush().must();
    let device = reopen(device);
    reset_zone(&device, zone);
    device.flush().must();
    let device = reopen(device);
    expect(&device, zone, ZoneState::Empty, 0);
    fails(device.read(zone, 0, 1), |error| {
        matches!(error, DeviceError::ReadPastEnd { limit: 0, .. })
    });
    write(&device, zone, 0, 3, 2).must();
    device.flush().must();
    reset_zone(&device, zone);
    write(&device, zone, 0, 2, 3).must();
    device.flush().must();
    let device = reopen(device);
    expect(&device, zone, ZoneState::Closed, 2);
    check(&device, zone, 0, 2, 3);
}

pub(super) fn finished<D: ZonedDevice>(device: D, reopen: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    write(&device, zone, 0, 4, 1).must();
    run(&device, Command::Finish { zone });
    device.flush().must();
    let device = reopen(device);
    expect(&device, zone, ZoneState::Full, capacity);
    check(&device, zone, 0, 4, 1);
}

pub(super) fn many_sessions<D: ZonedDevice>(device: D, reopen: &mut dyn FnMut(D) -> D) {
    let mut device = device;
    let (zone, _) = some_zone(&device);
    for block in 0..12 {
        write(&device, zone, block, 1, 4).must();
        device.flush().must();
        device = reopen(device);
        expect(&device, zone, ZoneState::Closed, block + 1);
        check(&device, zone, 0, block + 1, 4);
    }
    // Opening again without anything in between changes nothing.
    device = reopen(device);
    device = reopen(device);
    expect(&device, zone, ZoneState::Closed, 12);
    check(&device, zone, 0, 12, 4);
}
