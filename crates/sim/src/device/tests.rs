//! The fault model, enumerated on tiny devices and compared with lists made by hand.

use std::collections::BTreeSet;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut, ZoneState};

use super::*;

/// Blocks filled with one letter each.
fn letters(text: &str) -> Vec<Buffer> {
    let mut buffer = BufferMut::zeroed(text.len());
    for (block, letter) in buffer.chunks_mut(BLOCK_SIZE).zip(text.bytes()) {
        block.fill(letter);
    }
    vec![buffer.freeze()]
}

fn write(zone: u32, block: u32, text: &str) -> Command {
    Command::Write {
        zone: ZoneId(zone),
        block,
        data: letters(text),
    }
}

fn append(zone: u32, text: &str) -> Command {
    Command::Append {
        zone: ZoneId(zone),
        data: letters(text),
    }
}

fn reset(zone: u32) -> Command {
    Command::Reset {
        zone: ZoneId(zone),
        keep_allocated: true,
    }
}

fn finish(zone: u32) -> Command {
    Command::Finish { zone: ZoneId(zone) }
}

/// A zone as text: a letter for each readable block, `.` for zeros, lower case for a block that
/// begins with one letter and ends with another.
fn show(device: &SimDevice, zone: u32) -> String {
    let info = device.report(zone..zone + 1).unwrap()[0];
    let blocks = match info.state {
        ZoneState::Empty => 0,
        ZoneState::Full => info.capacity,
        _ => info.write_pointer,
    };
    (0..blocks)
        .map(|block| {
            let data = device.read(ZoneId(zone), block, 1).unwrap();
            match (data[0], data[BLOCK_SIZE - 1]) {
                (0, 0) => '.',
                (first, last) if first == last => char::from(first),
                (first, _) => char::from(first).to_ascii_lowercase(),
            }
        })
        .collect()
}

fn every_state(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut choices = Exhaustive::new();
    let mut states = BTreeSet::new();
    loop {
        let device = snapshot.persisted(&mut choices);
        let zones = device.geometry().zone_count;
        states.insert(
            (0..zones)
                .map(|z| show(&device, z))
                .collect::<Vec<_>>()
                .join("|"),
        );
        if !choices.next_run() {
            return states;
        }
    }
}

fn set<const N: usize>(states: [&str; N]) -> BTreeSet<String> {
    states.into_iter().map(str::to_owned).collect()
}

fn cut_over(device: &SimDevice, command: Command) {
    device.cut_after(0);
    assert!(matches!(device.run(command), Err(DeviceError::Gone)));
    assert!(device.is_cut());
    assert!(matches!(device.report(0..1), Err(DeviceError::Gone)));
}

#[test]
fn without_a_cache_only_the_command_in_flight_is_open() {
    let device = SimDevice::new(SimConfig::new(2, 4));
    device.run(write(0, 0, "AB")).unwrap();
    device.run(write(1, 0, "X")).unwrap();
    cut_over(&device, write(0, 2, "CD"));
    assert_eq!(
        every_state(&device.snapshot()),
        set(["AB|X", "ABC|X", "ABCD|X"])
    );
}

#[test]
fn resets_and_finishes_in_flight_are_done_or_not() {
    let device = SimDevice::new(SimConfig::new(1, 3));
    device.run(write(0, 0, "AB")).unwrap();
    let before = device.snapshot().intact();
    cut_over(&device, reset(0));
    assert_eq!(every_state(&device.snapshot()), set(["", "AB"]));
    cut_over(&before, finish(0));
    assert_eq!(every_state(&before.snapshot()), set(["AB", "AB."]));
}

#[test]
fn with_a_cache_any_prefix_since_the_flush_survives_in_each_zone() {
    let device = SimDevice::new(SimConfig::new(2, 4).volatile_cache());
    device.run(write(0, 0, "AB")).unwrap();
    device.flush().unwrap();
    device.run(write(0, 2, "C")).unwrap();
    device.run(reset(0)).unwrap();
    device.run(append(0, "DE")).unwrap();
    device.run(append(1, "X")).unwrap();
    let mut expected = BTreeSet::new();
    for zone in ["AB", "ABC", "", "D", "DE"] {
        for other in ["", "X"] {
            expected.insert(format!("{zone}|{other}"));
        }
    }
    assert_eq!(every_state(&device.snapshot()), expected);
    device.flush().unwrap();
    assert_eq!(every_state(&device.snapshot()), set(["DE|X"]));
}

#[test]
fn on_a_host_file_write_pointer_and_blocks_survive_on_their_own() {
    let device = SimDevice::new(SimConfig::new(1, 3).host_file());
    device.run(write(0, 0, "AB")).unwrap();
    device.flush().unwrap();
    device.run(reset(0)).unwrap();
    device.run(write(0, 0, "X")).unwrap();
    // The old life, whole or overwritten (wholly or in part: x); nothing; the new life, there,
    // stale or mixed.
    assert_eq!(
        every_state(&device.snapshot()),
        set(["AB", "XB", "xB", "", "A", "X", "x"])
    );
    // A flushed reset does not take the old blocks off the medium.
    let device = SimDevice::new(SimConfig::new(1, 3).host_file());
    device.run(write(0, 0, "AB")).unwrap();
    device.run(reset(0)).unwrap();
    device.flush().unwrap();
    device.run(write(0, 0, "X")).unwrap();
    assert_eq!(every_state(&device.snapshot()), set(["", "A", "X", "x"]));
}

#[test]
fn a_reset_that_gives_space_back_leaves_zeros() {
    let device = SimDevice::new(SimConfig::new(1, 3).host_file());
    device.run(write(0, 0, "AB")).unwrap();
    device
        .run(Command::Reset {
            zone: ZoneId(0),
            keep_allocated: false,
        })
        .unwrap();
    device.flush().unwrap();
    device.run(write(0, 0, "X")).unwrap();
    assert_eq!(every_state(&device.snapshot()), set(["", ".", "X", "x"]));
}

#[test]
fn commands_in_flight_take_effect_in_any_order_but_writes_keep_theirs() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let device = SimDevice::new(SimConfig::new(2, 8).reordering(seed));
        let writes = [
            device.submit(write(0, 0, "A")),
            device.submit(write(0, 1, "B")),
        ];
        let appends = [device.submit(append(1, "X")), device.submit(append(1, "Y"))];
        for pending in writes.into_iter().chain(appends) {
            pending.wait().unwrap();
        }
        outcomes.insert(format!("{}|{}", show(&device, 0), show(&device, 1)));
    }
    assert_eq!(outcomes, set(["AB|XY", "AB|YX"]));
}

#[test]
fn everything_in_flight_is_open_at_a_cut() {
    let mut states = BTreeSet::new();
    for seed in 0..50 {
        let device = SimDevice::new(SimConfig::new(2, 8).reordering(seed));
        let first = device.submit(write(0, 0, "AB"));
        let second = device.submit(append(1, "X"));
        let third = device.submit(append(1, "Y"));
        device.cut();
        for pending in [first, second, third] {
            drop(pending.wait());
        }
        states.extend(every_state(&device.snapshot()));
    }
    let mut expected = BTreeSet::new();
    for zone in ["", "A", "AB"] {
        for other in ["", "X", "Y", "XY", "YX"] {
            expected.insert(format!("{zone}|{other}"));
        }
    }
    assert_eq!(states, expected);
}

#[test]
fn a_flush_covers_what_had_completed_at_its_submission() {
    for seed in 0..100 {
        let device = SimDevice::new(SimConfig::new(1, 8).volatile_cache().reordering(seed));
        device.run(write(0, 0, "A")).unwrap();
        let flush = device.submit(Command::Flush);
        let write = device.submit(write(0, 1, "B"));
        write.wait().unwrap();
        flush.wait().unwrap();
        assert_eq!(every_state(&device.snapshot()), set(["A", "AB"]));
        device.flush().unwrap();
        assert_eq!(every_state(&device.snapshot()), set(["AB"]));
    }
}

#[test]
fn a_dropped_command_still_runs() {
    let device = SimDevice::new(SimConfig::new(1, 8).reordering(1));
    drop(device.submit(write(0, 0, "A")));
    device.run(write(0, 1, "B")).unwrap();
    assert_eq!(show(&device, 0), "AB");
}

#[test]
fn cuts_count_commands_other_than_reads() {
    let device = SimDevice::new(SimConfig::new(1, 8));
    device.cut_after(2);
    device.run(write(0, 0, "A")).unwrap();
    for _ in 0..5 {
        device.read(ZoneId(0), 0, 1).unwrap();
    }
    device.run(Command::Flush).unwrap();
    assert!(matches!(device.run(reset(0)), Err(DeviceError::Gone)));
    assert_eq!(device.counters().reads, 5);
    assert_eq!(device.counters().changes(), 2);
}

#[test]
fn snapshots_find_the_running_command_in_flight() {
    let device = SimDevice::new(SimConfig::new(1, 8));
    device.record_snapshots(1);
    device.run(write(0, 0, "A")).unwrap();
    device.run(write(0, 1, "BC")).unwrap();
    let states: Vec<_> = device.take_snapshots().iter().map(every_state).collect();
    assert_eq!(states, [set(["", "A"]), set(["A", "AB", "ABC"])]);
    assert!(device.take_snapshots().is_empty());
}

#[test]
fn zones_found_open_are_closed_and_the_copy_is_independent() {
    let device = SimDevice::new(SimConfig::new(3, 2).limits(Some(2), Some(2)));
    device.run(write(0, 0, "A")).unwrap();
    device.run(Command::Open { zone: ZoneId(1) }).unwrap();
    assert!(matches!(
        device.run(write(2, 0, "X")),
        Err(DeviceError::TooManyActive { limit: 2, .. })
    ));
    let copy = device.persisted(7);
    let states: Vec<_> = copy.report(0..3).unwrap().iter().map(|z| z.state).collect();
    assert_eq!(
        states,
        [ZoneState::Closed, ZoneState::Empty, ZoneState::Empty]
    );
    copy.run(write(2, 0, "X")).unwrap();
    assert_eq!(show(&device, 2), "");
    assert_eq!(show(&copy, 2), "X");
}

#[test]
fn faults_strike_by_kind_zone_and_countdown() {
    let device = SimDevice::new(SimConfig::new(2, 64));
    device.run(write(0, 0, "A")).unwrap();
    device.run(write(1, 0, "A")).unwrap();
    device.inject(Fault::once(FaultTarget::Read).zone(ZoneId(0)).after(1));
    device.read(ZoneId(0), 0, 1).unwrap();
    device.read(ZoneId(1), 0, 1).unwrap();
    assert!(matches!(
        device.read(ZoneId(0), 0, 1),
        Err(DeviceError::Io { .. })
    ));
    device.read(ZoneId(0), 0, 1).unwrap();
    device.inject(Fault::for_ever(FaultTarget::Write));
    let mut pointers = BTreeSet::new();
    for _ in 0..12 {
        let at = device.report(0..1).unwrap()[0].write_pointer;
        assert!(device.run(write(0, at, "XYZ")).is_err());
        pointers.insert(device.report(0..1).unwrap()[0].write_pointer - at);
    }
    assert_eq!(pointers, BTreeSet::from([0, 1, 2, 3]));
    device.heal();
    device.run(append(0, "A")).unwrap();
}

#[test]
fn worn_out_zones_and_flipped_bits() {
    let device = SimDevice::new(SimConfig::new(2, 4).volatile_cache());
    device.run(write(0, 0, "AB")).unwrap();
    device.run(write(1, 0, "AB")).unwrap();
    assert!(device.corrupt(ZoneId(0), 1, 9, 0x80));
    assert!(!device.corrupt(ZoneId(0), 2, 9, 0x80));
    assert_eq!(device.read(ZoneId(0), 1, 1).unwrap()[9], b'B' ^ 0x80);
    device.set_read_only(ZoneId(0));
    device.set_offline(ZoneId(1));
    assert_eq!(show(&device, 0).len(), 2);
    for state in [device.snapshot().intact(), device.persisted(3)] {
        assert_eq!(state.read(ZoneId(0), 1, 1).unwrap()[9], b'B' ^ 0x80);
        for command in [write(0, 2, "C"), reset(0), finish(0), reset(1)] {
            assert!(matches!(
                state.run(command),
                Err(DeviceError::BadState { .. })
            ));
        }
        assert!(state.read(ZoneId(1), 0, 1).is_err());
    }
}

#[test]
fn reads_share_the_written_memory() {
    let device = SimDevice::new(SimConfig::new(1, 64).fast());
    let data = letters("ABCDEFGH");
    let memory = data[0].as_ptr();
    device
        .run(Command::Append {
            zone: ZoneId(0),
            data,
        })
        .unwrap();
    let back = device.read(ZoneId(0), 2, 4).unwrap();
    assert_eq!(back.as_ptr() as usize, memory as usize + 2 * BLOCK_SIZE);
}
