//! The timing model: durations computed by hand, and threads that block where the clock cannot
//! see them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use persimmon_device::{
    Buffer, BufferMut, Command, Completion, DeviceError, Pending, ZoneId, ZonedDevice,
};

use persimmon_sim::time::{Client, Cost, Dies, Timing, VirtualClock};
use persimmon_sim::{SimConfig, SimDevice};

const COMMAND: u64 = 10_000;
/// One block of 4 KiB at 0.9 us a KiB.
const BLOCK: u64 = 3_600;
const FLUSH: u64 = 600_000;

fn device(config: SimConfig) -> SimDevice {
    SimDevice::new(config.timed(Timing::default()))
}

fn blocks(count: usize) -> Vec<Buffer> {
    vec![BufferMut::zeroed(count).freeze()]
}

fn append(zone: u32, count: usize) -> Command {
    Command::Append {
        zone: ZoneId(zone),
        data: blocks(count),
    }
}

fn write(zone: u32, block: u32, count: usize) -> Command {
    Command::Write {
        zone: ZoneId(zone),
        block,
        data: blocks(count),
    }
}

fn clock(device: &SimDevice) -> &VirtualClock {
    device.clock().unwrap()
}

fn now(device: &SimDevice) -> u64 {
    u64::try_from(clock(device).now().as_nanos()).unwrap()
}

/// Waits for commands one after the other; the time after each.
fn wait_each(device: &SimDevice, pending: Vec<Pending>) -> Vec<u64> {
    let wait = |pending: Pending| {
        pending.wait().unwrap();
        now(device)
    };
    pending.into_iter().map(wait).collect()
}

#[test]
fn each_command_takes_what_the_model_says() {
    let device = device(SimConfig::new(4, 64).volatile_cache());
    let mut expected = 0;
    let reset = Command::Reset {
        zone: ZoneId(1),
        keep_allocated: false,
    };
    let read = Command::Read {
        zone: ZoneId(0),
        block: 0,
        blocks: 3,
    };
    for (command, takes) in [
        (write(0, 0, 1), COMMAND + BLOCK),
        (append(0, 16), COMMAND + 16 * BLOCK),
        (read, COMMAND + 3 * BLOCK),
        (append(1, 1), COMMAND + BLOCK),
        (Command::Finish { zone: ZoneId(1) }, COMMAND),
        (reset, COMMAND),
        (Command::Open { zone: ZoneId(2) }, COMMAND),
        (Command::Close { zone: ZoneId(2) }, COMMAND),
        (Command::Flush, FLUSH),
    ] {
        device.run(command).unwrap();
        expected += takes;
        assert_eq!(now(&device), expected);
    }
    device.report(0..4).unwrap();
    assert_eq!(now(&device), expected);
}

#[test]
fn other_figures_are_taken_as_told() {
    let timing = Timing {
        read: Cost::from_nanos(70_000, 300),
        reset: Duration::from_millis(2),
        ..Timing::default()
    };
    let device = SimDevice::new(SimConfig::new(2, 64).timed(timing));
    device.run(append(0, 2)).unwrap();
    device.read(ZoneId(0), 0, 2).unwrap();
    let reset = Command::Reset {
        zone: ZoneId(0),
        keep_allocated: true,
    };
    device.run(reset).unwrap();
    assert_eq!(
        now(&device),
        (COMMAND + 2 * BLOCK) + (70_000 + 8 * 300) + 2_000_000
    );
}

#[test]
fn zones_work_in_parallel_and_a_zone_one_command_after_the_other() {
    let device = device(SimConfig::new(3, 64));
    let pending = vec![
        device.submit(write(0, 0, 1)),
        device.submit(append(1, 16)),
        device.submit(write(0, 1, 1)),
        device.submit(append(2, 2)),
    ];
    let (small, large) = (COMMAND + BLOCK, COMMAND + 16 * BLOCK);
    // The last had completed long before it was waited for.
    assert_eq!(
        wait_each(&device, pending),
        [small, large, large.max(2 * small), large]
    );
    // A die that stood idle begins at the submission.
    device.run(write(0, 2, 1)).unwrap();
    assert_eq!(now(&device), large + small);
}

#[test]
fn zones_of_one_die_wait_for_each_other() {
    let timing = Timing {
        dies: Dies::Striped(2),
        ..Timing::default()
    };
    let device = SimDevice::new(SimConfig::new(4, 64).timed(timing));
    let pending = vec![
        device.submit(append(0, 1)),
        device.submit(append(1, 4)),
        device.submit(append(2, 1)),
    ];
    let (small, large) = (COMMAND + BLOCK, COMMAND + 4 * BLOCK);
    assert_eq!(wait_each(&device, pending), [small, large, 2 * small]);
}

#[test]
fn flushes_overlap_with_everything() {
    let device = device(SimConfig::new(2, 64).volatile_cache());
    let pending = vec![
        device.submit(Command::Flush),
        device.submit(append(0, 1)),
        device.submit(Command::Flush),
    ];
    assert_eq!(wait_each(&device, pending), [FLUSH, FLUSH, FLUSH]);
    device.run(append(0, 1)).unwrap();
    assert_eq!(now(&device), FLUSH + COMMAND + BLOCK);
    // Without a cache a flush is no command at all.
    let device = self::device(SimConfig::new(2, 64));
    device.flush().unwrap();
    assert_eq!(now(&device), 0);
}

#[test]
fn a_command_nobody_waits_for_keeps_its_die_busy() {
    let device = device(SimConfig::new(1, 64));
    drop(device.submit(append(0, 4)));
    assert_eq!(now(&device), 0);
    device.run(append(0, 1)).unwrap();
    assert_eq!(now(&device), (COMMAND + 4 * BLOCK) + (COMMAND + BLOCK));
}

#[test]
fn data_and_record_at_once_take_the_longer_of_the_two() {
    // The two ways of an fsync of 16 KiB, by hand: the bars of issue 3 come from these figures.
    let (data, record) = (COMMAND + 4 * BLOCK, COMMAND + BLOCK);
    let at_once = device(SimConfig::new(2, 64));
    let pending = vec![at_once.submit(write(0, 0, 4)), at_once.submit(append(1, 1))];
    wait_each(&at_once, pending);
    assert_eq!(now(&at_once), data);
    let in_order = device(SimConfig::new(2, 64));
    in_order.run(write(0, 0, 4)).unwrap();
    in_order.run(append(1, 1)).unwrap();
    assert_eq!(now(&in_order), data + record);
}

#[test]
fn commands_that_wait_to_take_effect_take_their_time_too() {
    let device = device(SimConfig::new(2, 64).reordering(7));
    let pending = vec![
        device.submit(append(0, 1)),
        device.submit(append(0, 1)),
        device.submit(append(1, 1)),
    ];
    let small = COMMAND + BLOCK;
    assert_eq!(
        wait_each(&device, pending),
        [small, 2 * small, 2 * small],
        "whatever the order in which they take effect"
    );
}

#[test]
fn without_power_nothing_takes_time() {
    let device = device(SimConfig::new(2, 64));
    device.run(append(0, 1)).unwrap();
    device.cut();
    assert!(matches!(device.run(append(0, 1)), Err(DeviceError::Gone)));
    assert_eq!(now(&device), COMMAND + BLOCK);
    // What comes back begins at zero.
    let recovered = device.persisted(1);
    assert_eq!(now(&recovered), 0);
    recovered.read(ZoneId(0), 0, 1).unwrap();
    assert_eq!(now(&recovered), COMMAND + BLOCK);
}

#[test]
fn an_untimed_device_has_no_clock() {
    let device = SimDevice::new(SimConfig::new(1, 8));
    device.run(append(0, 1)).unwrap();
    assert!(device.clock().is_none());
}

#[test]
fn clients_take_turns_in_the_order_of_their_clocks() {
    let device = device(SimConfig::new(3, 4096));
    let order = Mutex::new(Vec::new());
    let client = |name: u32, size: usize, times: usize| -> Client<'_, u64> {
        let (device, order) = (&device, &order);
        Box::new(move || {
            for _ in 0..times {
                order.lock().unwrap().push((now(device), name));
                device.run(append(name, size)).unwrap();
            }
            now(device)
        })
    };
    let ends = clock(&device)
        .run(vec![client(0, 16, 3), client(1, 1, 12), client(2, 1, 12)])
        .unwrap();
    let (small, large) = (COMMAND + BLOCK, COMMAND + 16 * BLOCK);
    assert_eq!(ends, [3 * large, 12 * small, 12 * small]);
    let order = order.into_inner().unwrap();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order.len(), 27);
    assert_eq!(now(&device), 3 * large);
}

#[test]
fn clients_on_one_zone_queue_for_it() {
    let device = device(SimConfig::new(1, 4096));
    let client = || -> Client<'_, Vec<(u32, u64)>> {
        Box::new(|| {
            let append = |_| match device.run(append(0, 1)).unwrap() {
                Completion::Appended(block) => (block, now(&device)),
                other => panic!("{other:?}"),
            };
            (0..50).map(append).collect()
        })
    };
    let all = clock(&device)
        .run(vec![client(), client(), client()])
        .unwrap();
    for (client, appends) in all.iter().enumerate() {
        for (round, (block, time)) in appends.iter().enumerate() {
            let place = (3 * round + client) as u64;
            assert_eq!(u64::from(*block), place);
            assert_eq!(*time, (place + 1) * (COMMAND + BLOCK));
        }
    }
}

#[test]
fn sleeping_passes_the_turn() {
    let clock = VirtualClock::new();
    let trace = Mutex::new(Vec::new());
    let client = |step: u64, times: usize| -> Client<'_, ()> {
        let (clock, trace) = (&clock, &trace);
        Box::new(move || {
            for _ in 0..times {
                clock.sleep(Duration::from_nanos(step));
                trace.lock().unwrap().push(clock.now().as_nanos());
            }
        })
    };
    clock.run(vec![client(7, 3), client(5, 4)]).unwrap();
    assert_eq!(trace.into_inner().unwrap(), [5, 7, 10, 14, 15, 20, 21]);
}

/// A group commit as the engine has it, reduced to its waiting: who finds nobody at work leads
/// for all who have come so far, others wait for the end of the batch.
#[derive(Default)]
struct GroupCommit {
    state: Mutex<Group>,
    wake: Condvar,
}

#[derive(Default)]
struct Group {
    requested: u64,
    done: u64,
    busy: bool,
    batches: Vec<u64>,
}

impl GroupCommit {
    fn commit(&self, device: &SimDevice) {
        let mut state = self.state.lock().unwrap();
        state.requested += 1;
        let mine = state.requested;
        while state.done < mine {
            if state.busy {
                state = self.wake.wait(state).unwrap();
                continue;
            }
            state.busy = true;
            let upto = state.requested;
            drop(state);
            device.run(append(0, 1)).unwrap();
            state = self.state.lock().unwrap();
            let batch = upto - state.done;
            state.batches.push(batch);
            state.done = upto;
            state.busy = false;
            self.wake.notify_all();
        }
    }
}

#[test]
fn followers_of_a_group_commit_are_charged_exactly_what_they_waited() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 40;
    const THINKS: u64 = 1_000;
    let device = device(SimConfig::new(1, 4096));
    let group = GroupCommit::default();
    let client = || -> Client<'_, u64> {
        Box::new(|| {
            for _ in 0..ROUNDS {
                group.commit(&device);
                clock(&device).sleep(Duration::from_nanos(THINKS));
            }
            now(&device)
        })
    };
    let ends = clock(&device)
        .run((0..CLIENTS).map(|_| client()).collect())
        .unwrap();
    // The first leads alone while the others come, one of them leads for all these while the
    // first comes again, and so on.
    let batches = group.state.into_inner().unwrap().batches;
    assert_eq!(batches, [1, CLIENTS - 1].repeat(ROUNDS as usize));
    let all = 2 * ROUNDS * (COMMAND + BLOCK);
    let first = all - (COMMAND + BLOCK);
    assert_eq!(ends[0], first + THINKS);
    assert_eq!(ends[1..], vec![all + THINKS; CLIENTS as usize - 1]);
}

#[test]
fn a_client_that_blocks_in_a_lock_wakes_at_the_time_of_its_release() {
    let device = device(SimConfig::new(2, 64));
    let gate: (Mutex<bool>, Condvar) = Default::default();
    let waiter: Client<'_, u64> = Box::new(|| {
        let opened = gate
            .1
            .wait_while(gate.0.lock().unwrap(), |open| !*open)
            .unwrap();
        drop(opened);
        let woken = now(&device);
        device.run(append(0, 1)).unwrap();
        assert_eq!(now(&device), woken + COMMAND + BLOCK);
        woken
    });
    let opener: Client<'_, u64> = Box::new(|| {
        device.run(append(1, 1)).unwrap();
        clock(&device).sleep(Duration::from_micros(100));
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        let opened = now(&device);
        clock(&device).sleep(Duration::from_secs(1));
        opened
    });
    let times = clock(&device).run(vec![waiter, opener]).unwrap();
    let opened = COMMAND + BLOCK + 100_000;
    assert_eq!(times, [opened, opened]);
    assert_eq!(now(&device), opened + 1_000_000_000);
}

#[test]
fn a_client_that_panics_gives_the_turn_back() {
    let clock = Arc::new(VirtualClock::new());
    let run = {
        let clock = Arc::clone(&clock);
        std::thread::spawn(move || {
            let clients: Vec<Client<'_, ()>> = vec![
                Box::new(|| {
                    clock.sleep(Duration::from_nanos(1));
                    panic!("on purpose");
                }),
                Box::new(|| clock.sleep(Duration::from_nanos(2))),
            ];
            clock.run(clients).unwrap();
        })
    };
    assert!(run.join().is_err());
    assert_eq!(clock.now(), Duration::from_nanos(2));
}
