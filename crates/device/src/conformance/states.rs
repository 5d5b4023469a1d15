//! Zone states and the commands that change them.

use super::tools::{Must, check, expect, fails, info, reset as reset_zone, run, some_zone, write};
use crate::{Command, DeviceError, Pending, ZoneId, ZoneState, ZonedDevice};

pub(super) fn fresh_is_empty<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let geometry = device.geometry();
    let zones = device.report(0..geometry.zone_count).unwrap_or_default();
    assert_eq!(zones.len(), geometry.zone_count as usize);
    for (number, zone) in zones.iter().enumerate() {
        assert_eq!(zone.state, ZoneState::Empty, "zone {number}");
        assert_eq!(zone.write_pointer, 0, "zone {number}");
        assert!(
            (1..=geometry.zone_blocks).contains(&zone.capacity),
            "zone {number}"
        );
    }
}

pub(super) fn report<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let count = device.geometry().zone_count;
    let all = device.report(0..count).unwrap_or_default();
    let part = device.report(2..4).unwrap_or_default();
    assert_eq!(all.get(2..4), Some(part.as_slice()));
    assert!(device.report(3..3).is_ok_and(|zones| zones.is_empty()));
    fails(device.report(count - 1..count + 1), |error| {
        matches!(error, DeviceError::NoSuchZone { .. })
    });
}

pub(super) fn written_to_full<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    write(&device, zone, 0, 1, 1).must();
    expect(&device, zone, ZoneState::ImplicitlyOpen, 1);
    write(&device, zone, 1, capacity - 2, 1).must();
    expect(&device, zone, ZoneState::ImplicitlyOpen, capacity - 1);
    write(&device, zone, capacity - 1, 1, 1).must();
    expect(&device, zone, ZoneState::Full, capacity);
    check(&device, zone, 0, capacity, 1);
    let again = write(&device, zone, capacity, 1, 1);
    fails(again, |error| is_bad_state(error, ZoneState::Full));
    for command in [Command::Open { zone }, Command::Close { zone }] {
        fails(device.run(command), |error| {
            is_bad_state(error, ZoneState::Full)
        });
    }
    expect(&device, zone, ZoneState::Full, capacity);
}

pub(super) fn explicit_open_and_close<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, _) = some_zone(&device);
    fails(device.run(Command::Close { zone }), |error| {
        is_bad_state(error, ZoneState::Empty)
    });
    run(&device, Command::Open { zone });
    expect(&device, zone, ZoneState::ExplicitlyOpen, 0);
    run(&device, Command::Open { zone });
    run(&device, Command::Close { zone });
    // ZNS says closed, ZBC and Linux empty.
    assert!(matches!(
        info(&device, zone).state,
        ZoneState::Empty | ZoneState::Closed
    ));
    run(&device, Command::Open { zone });
    write(&device, zone, 0, 3, 1).must();
    expect(&device, zone, ZoneState::ExplicitlyOpen, 3);
    run(&device, Command::Close { zone });
    expect(&device, zone, ZoneState::Closed, 3);
    run(&device, Command::Close { zone });
    expect(&device, zone, ZoneState::Closed, 3);
    write(&device, zone, 3, 2, 1).must();
    expect(&device, zone, ZoneState::ImplicitlyOpen, 5);
    run(&device, Command::Open { zone });
    expect(&device, zone, ZoneState::ExplicitlyOpen, 5);
    run(&device, Command::Close { zone });
    check(&device, zone, 0, 5, 1);
}

pub(super) fn finish<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    // From each state it is allowed in.
    let (zone, capacity) = some_zone(&device);
    run(&device, Command::Finish { zone });
    expect(&device, zone, ZoneState::Full, capacity);
    run(&device, Command::Finish { zone });
    reset_zone(&device, zone);
    for how in 0..3 {
        write(&device, zone, 0, 5, how).must();
        match how {
            0 => {}
            1 => run(&device, Command::Close { zone }),
            _ => run(&device, Command::Open { zone }),
        }
        run(&device, Command::Finish { zone });
        expect(&device, zone, ZoneState::Full, capacity);
        check(&device, zone, 0, 5, how);
        fails(write(&device, zone, 5, 1, how), |error| {
            is_bad_state(error, ZoneState::Full)
        });
        reset_zone(&device, zone);
    }
}

pub(super) fn reset<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    reset_zone(&device, zone);
    expect(&device, zone, ZoneState::Empty, 0);
    for how in 0..5 {
        match how {
            0 => write(&device, zone, 0, 7, how).must(),
            1 => {
                write(&device, zone, 0, 7, how).must();
                run(&device, Command::Close { zone });
            }
            2 => run(&device, Command::Open { zone }),
            3 => write(&device, zone, 0, capacity, how).must(),
            _ => run(&device, Command::Finish { zone }),
        }
        reset_zone(&device, zone);
        expect(&device, zone, ZoneState::Empty, 0);
        fails(device.read(zone, 0, 1), |error| {
            matches!(error, DeviceError::ReadPastEnd { limit: 0, .. })
        });
        // The old life of the zone does not show.
        write(&device, zone, 0, 2, 0x40 + how).must();
        check(&device, zone, 0, 2, 0x40 + how);
        fails(device.read(zone, 2, 1), |error| {
            matches!(error, DeviceError::ReadPastEnd { limit: 2, .. })
        });
        reset_zone(&device, zone);
    }
}

pub(super) fn resets_in_flight<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    assert!(device.resets_at_once() > 0);
    let capacity = |zone| info(&device, zone).capacity;
    let zones: Vec<ZoneId> = (0..5).map(ZoneId).collect();
    for life in 0..2 {
        for zone in &zones {
            write(&device, *zone, 0, capacity(*zone), life).must();
        }
        let start = |zone: &ZoneId| {
            device.submit(Command::Reset {
                zone: *zone,
                keep_allocated: life == 0,
            })
        };
        let (waited_for, others) = zones.split_at(3);
        let under_way: Vec<Pending> = waited_for.iter().map(start).collect();
        // Those that nobody waits for are carried out too.
        for zone in others {
            drop(start(zone));
        }
        // Each can be used when it is over, whatever the others do.
        for (zone, pending) in waited_for.iter().zip(under_way).rev() {
            pending.wait().must();
            expect(&device, *zone, ZoneState::Empty, 0);
            write(&device, *zone, 0, 2, 0x40 + life).must();
            check(&device, *zone, 0, 2, 0x40 + life);
            reset_zone(&device, *zone);
        }
        for zone in others {
            reset_zone(&device, *zone);
            expect(&device, *zone, ZoneState::Empty, 0);
        }
    }
}

pub(super) fn no_such_zone<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    for number in [device.geometry().zone_count, u32::MAX] {
        let zone = ZoneId(number);
        let data = vec![super::tools::pattern(zone, 0, 1, 0)];
        for command in [
            Command::Read {
                zone,
                block: 0,
                blocks: 1,
            },
            Command::Write {
                zone,
                block: 0,
                data: data.clone(),
            },
            Command::Append { zone, data },
            Command::Reset {
                zone,
                keep_allocated: false,
            },
            Command::Finish { zone },
            Command::Open { zone },
            Command::Close { zone },
        ] {
            fails(device.run(command), |error| {
                matches!(error, DeviceError::NoSuchZone { .. })
            });
        }
    }
}

fn is_bad_state(error: &DeviceError, expected: ZoneState) -> bool {
    matches!(error, DeviceError::BadState { state, .. } if *state == expected)
}
