//! Open and active limits.

use super::tools::{
    Must, active_zones, check, expect, fails, info, landed, open_zones, pattern, reset, run,
    submit_append, write,
};
use crate::{Command, DeviceError, Geometry, ZoneId, ZoneState, ZonedDevice};

/// A limit that leaves another zone to try it with; `None` without such a limit.
fn below(limit: Option<u32>, device: &impl ZonedDevice) -> Option<u32> {
    let geometry = device.geometry();
    limit.filter(|limit| limit + 1 < geometry.zone_count - unlimited(geometry))
}

/// The first zones, which a device need not count: they are conventional, or on another device.
fn unlimited(geometry: &Geometry) -> u32 {
    geometry
        .conventional_zones
        .max(geometry.metadata_zones.count())
}

/// The others by number.
fn sequential<D: ZonedDevice>(device: &D) -> impl Fn(u32) -> ZoneId + use<D> {
    let first = unlimited(device.geometry());
    move |number| ZoneId(first + number)
}

pub(super) fn active<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let Some(limit) = below(device.geometry().max_active, &device) else {
        return;
    };
    let at = sequential(&device);
    for zone in 0..limit {
        write(&device, at(zone), 0, 1, 1).must();
    }
    assert_eq!(active_zones(&device), limit);
    let zone = at(limit);
    let refused = |error: &DeviceError| matches!(error, DeviceError::TooManyActive { limit: told, .. } if *told == limit);
    fails(write(&device, zone, 0, 1, 1), refused);
    if device.geometry().takes_appends() {
        fails(
            landed(submit_append(&device, zone, pattern(zone, 0, 1, 1))),
            refused,
        );
    }
    fails(device.run(Command::Open { zone }), refused);
    expect(&device, zone, ZoneState::Empty, 0);
    // Closing does not help; what ends a zone's being active does.
    if info(&device, at(0)).state.is_open() {
        run(&device, Command::Close { zone: at(0) });
    }
    fails(write(&device, zone, 0, 1, 1), refused);
    for (how, victim) in (0..limit.min(3)).map(|number| (number, at(number))) {
        match how {
            0 => reset(&device, victim),
            1 => run(&device, Command::Finish { zone: victim }),
            _ => write(&device, victim, 1, info(&device, victim).capacity - 1, 1).must(),
        }
        assert_eq!(active_zones(&device), limit - 1);
        write(&device, zone, 0, 1, 1).must();
        reset(&device, zone);
        write(&device, at(limit + 1), 0, 1, 1).must();
        fails(write(&device, zone, 0, 1, 1), refused);
        reset(&device, at(limit + 1));
        if how == 0 {
            write(&device, victim, 0, 1, 1).must();
        } else {
            reset(&device, victim);
            write(&device, victim, 0, 1, 1).must();
        }
    }
}

pub(super) fn explicit_open<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let Some(limit) = below(device.geometry().max_open, &device) else {
        return;
    };
    if device
        .geometry()
        .max_active
        .is_some_and(|active| active <= limit)
    {
        return;
    }
    let at = sequential(&device);
    for zone in 0..limit {
        run(&device, Command::Open { zone: at(zone) });
    }
    let zone = at(limit);
    let refused = |error: &DeviceError| matches!(error, DeviceError::TooManyOpen { limit: told, .. } if *told == limit);
    fails(write(&device, zone, 0, 1, 1), refused);
    fails(device.run(Command::Open { zone }), refused);
    expect(&device, zone, ZoneState::Empty, 0);
    write(&device, at(0), 0, 1, 1).must();
    run(&device, Command::Close { zone: at(0) });
    run(&device, Command::Open { zone });
    fails(write(&device, at(0), 1, 1, 1), refused);
    expect(&device, at(0), ZoneState::Closed, 1);
    run(&device, Command::Close { zone });
    write(&device, at(0), 1, 1, 1).must();
    check(&device, at(0), 0, 2, 1);
}

pub(super) fn implicit_gives_way<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let geometry = device.geometry().clone();
    let Some(limit) = below(geometry.max_open, &device) else {
        return;
    };
    let at = sequential(&device);
    let zones = geometry
        .max_active
        .unwrap_or(u32::MAX)
        .min(limit + 2)
        .min(geometry.zone_count - unlimited(&geometry));
    for round in 0..4 {
        for zone in 0..zones {
            write(&device, at(zone), round, 1, 1).must();
            assert_eq!(info(&device, at(zone)).state, ZoneState::ImplicitlyOpen);
            assert!(open_zones(&device) <= limit);
        }
    }
    assert_eq!(active_zones(&device), zones);
    for zone in 0..zones {
        check(&device, at(zone), 0, 4, 1);
    }
}

pub(super) fn explicit_does_not<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let geometry = device.geometry().clone();
    let Some(limit) = below(geometry.max_open, &device) else {
        return;
    };
    if limit < 2 || geometry.max_active.is_some_and(|active| active < limit + 1) {
        return;
    }
    let at = sequential(&device);
    // All but one open resource held explicitly; implicitly open zones take turns with the last.
    for zone in 0..limit - 1 {
        run(&device, Command::Open { zone: at(zone) });
    }
    for round in 0..3 {
        for zone in [limit - 1, limit] {
            write(&device, at(zone), round, 1, 1).must();
        }
    }
    for zone in 0..limit - 1 {
        assert_eq!(info(&device, at(zone)).state, ZoneState::ExplicitlyOpen);
    }
    // Opening explicitly makes an implicitly open zone give way as well.
    run(
        &device,
        Command::Open {
            zone: at(limit - 1),
        },
    );
    assert_eq!(open_zones(&device), limit);
    expect(&device, at(limit), ZoneState::Closed, 3);
}
