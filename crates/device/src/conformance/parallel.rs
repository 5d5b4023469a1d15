//! Several threads on one device.

use std::thread;

use persimmon_sync::host::Mutex;

use super::tools::{Must, check, expect, landed, pattern, reset, some_zone, submit_append, write};
use crate::{ZoneId, ZoneState, ZonedDevice};

const THREADS: u32 = 4;

pub(super) fn one_zone<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    if !device.geometry().takes_appends() {
        return;
    }
    let (zone, capacity) = some_zone(&device);
    let each = capacity / THREADS;
    let places = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, places) = (&device, &places);
            scope.spawn(move || {
                for number in 0..each {
                    let data = pattern(zone, 1000 * thread + number, 1, 6);
                    let block = landed(submit_append(device, zone, data.clone())).must();
                    // At once: what has completed can be read.
                    let found = device.read(zone, block, 1).must();
                    assert!(
                        *found == *data,
                        "append at {zone}:{block} holds something else"
                    );
                    if number % 8 == 0 {
                        device.flush().must();
                    }
                    places.lock().push(block);
                }
            });
        }
    });
    let mut places = places.into_inner();
    places.sort_unstable();
    let expected: Vec<u32> = (0..each * THREADS).collect();
    assert_eq!(places, expected);
}

pub(super) fn zones<D: ZonedDevice>(device: D, reopen: &mut dyn FnMut(D) -> D) {
    // Implicitly open zones give way to each other; an active limit bounds the threads.
    let threads = THREADS.min(device.geometry().max_active.unwrap_or(THREADS));
    let (_, capacity) = some_zone(&device);
    let blocks = capacity.min(24);
    thread::scope(|scope| {
        for number in 0..threads {
            let device = &device;
            scope.spawn(move || {
                let zone = ZoneId(number);
                for life in 0..3 {
                    reset(device, zone);
                    for block in 0..blocks - 1 {
                        write(device, zone, block, 1, life).must();
                        check(device, zone, block / 2, 1, life);
                    }
                    device.flush().must();
                }
            });
        }
    });
    let device = reopen(device);
    for number in 0..threads {
        expect(&device, ZoneId(number), ZoneState::Closed, blocks - 1);
        check(&device, ZoneId(number), 0, blocks - 1, 2);
    }
}
