//! The queue on a drive that does as it is told: what real ones seldom do.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;

use super::failure::Failure;
use super::ready::LeftOut;
use super::ring::{Operation, Wire};
use super::status::Status;
use super::{Action, KernelDevice, Port, make};
use crate::{
    BufferMut, Command, Completion, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo,
    ZoneKind, ZoneState, ZonedDevice,
};

const ZONES: usize = 8;
const CAPACITY: u32 = 64;

/// What the drive is, and what it will do.
#[derive(Default)]
struct Script {
    written: [u32; ZONES],
    /// Failures of the next writes and appends; `None`: it is carried out.
    failures: VecDeque<Option<Failure>>,
    /// Of the next flushes.
    flush_failures: VecDeque<Failure>,
    /// Flushes that reached the drive.
    flushes: u32,
    /// How transfers under way end: what does nothing completes in order.
    ends: VecDeque<Result<u64, Failure>>,
    /// Writes and appends that reached the drive.
    sent: u32,
    reports: u32,
    /// What reads fill memory with, in the thread that reads.
    reads_here: VecDeque<Result<u8, Failure>>,
    /// The collector panics at the end of so many more transfers.
    panics_after: Option<u32>,
}

/// Two ends of the script: of transfers and of calls.
#[derive(Clone, Default)]
struct Drive(Arc<Mutex<Script>>);

struct FakePort {
    drive: Drive,
    reads_wait: bool,
    /// A reset says that it has begun, and waits to be let go on.
    gate: Option<(Sender<()>, Mutex<Receiver<()>>)>,
}

impl Drive {
    fn script<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }
}

impl Wire for Drive {
    type Entry = squeue::Entry;
    type Completion = cqueue::Entry;
    type Place = (ZoneId, u32);

    const READS_HERE: bool = true;

    fn read_here(&self, _: &(ZoneId, u32), memory: &mut [u8]) -> Option<Result<u64, Failure>> {
        let read = self.script(|script| script.reads_here.pop_front())?;
        Some(read.map(|byte| {
            memory.fill(byte);
            0
        }))
    }

    fn entry(&self, operation: Operation<'_, (ZoneId, u32)>) -> squeue::Entry {
        self.script(|script| {
            let end = match operation {
                Operation::Write((zone, _), slices) | Operation::Append((zone, _), slices) => {
                    let bytes: usize = slices.iter().map(|slice| slice.iov_len).sum();
                    script.sent += 1;
                    match script.failures.pop_front().flatten() {
                        Some(failure) => Err(failure),
                        None => {
                            let written = &mut script.written[zone.0 as usize];
                            let landed = *written;
                            *written += bytes as u32 / 4096;
                            Ok(u64::from(landed))
                        }
                    }
                }
                Operation::Flush(_) => {
                    script.flushes += 1;
                    script.flush_failures.pop_front().map_or(Ok(0), Err)
                }
                Operation::Read(..) => Ok(0),
            };
            script.ends.push_back(end);
        });
        opcode::Nop::new().build()
    }

    fn ended(&self, _: &cqueue::Entry, _: usize) -> Result<u64, Failure> {
        let panics = self.script(|script| {
            let left = script.panics_after.as_mut()?;
            *left = left.checked_sub(1)?;
            Some(*left)
        });
        assert_ne!(panics, Some(0), "a deliberate panic of the collector");
        self.script(|script| script.ends.pop_front().unwrap_or(Ok(0)))
    }
}

impl Port for FakePort {
    type Wire = Drive;
    type Hold = ();

    const NAME: &'static str = "fake";
    const APPENDS: bool = true;

    fn reading(&self, zone: ZoneId, block: u32) -> Result<(ZoneId, u32), Failure> {
        Ok((zone, block))
    }

    fn reads_wait(&self) -> bool {
        self.reads_wait
    }

    fn writing(&self, zone: ZoneId, block: u32, _: &()) -> (ZoneId, u32) {
        (zone, block)
    }

    fn flushing(&self) -> Result<(ZoneId, u32), Failure> {
        Ok((ZoneId(0), 0))
    }

    fn hold(&self, _: ZoneId, _: &mut dyn FnMut() -> Result<()>) -> Result<Result<(), Failure>> {
        Ok(Ok(()))
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, Failure> {
        self.drive.script(|script| {
            script.reports += 1;
            let infos = zones.map(|zone| info(script.written[zone as usize]));
            Ok(infos.collect())
        })
    }

    fn manage(&self, zone: ZoneId, action: Action) -> Result<(), Failure> {
        if let Some((begun, go_on)) = &self.gate {
            begun.send(()).unwrap();
            go_on.lock().unwrap().recv().unwrap();
        }
        assert_eq!(action, Action::Reset);
        self.drive
            .script(|script| script.written[zone.0 as usize] = 0);
        Ok(())
    }

    fn pad(&self, _: ZoneId) -> Result<(), Failure> {
        unreachable!("no block is written in part")
    }
}

fn info(written: u32) -> ZoneInfo {
    ZoneInfo {
        kind: ZoneKind::Sequential,
        state: match written {
            0 => ZoneState::Empty,
            CAPACITY => ZoneState::Full,
            _ => ZoneState::ImplicitlyOpen,
        },
        capacity: CAPACITY,
        write_pointer: written,
    }
}

/// `None`: io_uring is not allowed here, as in many containers.
fn start(port: FakePort) -> Option<KernelDevice<FakePort>> {
    let geometry = Geometry {
        max_open: Some(4),
        max_active: Some(4),
        ..make::geometry(ZONES, u64::from(CAPACITY) << 12, 0, 0)
    };
    let wire = port.drive.clone();
    let zones = [info(0); ZONES];
    let zones = (&zones[..], LeftOut::default());
    KernelDevice::start(Path::new("fake"), port, wire, geometry, zones, false).ok()
}

fn device(drive: &Drive) -> Option<KernelDevice<FakePort>> {
    start(FakePort {
        drive: drive.clone(),
        reads_wait: false,
        gate: None,
    })
}

fn write(device: &impl ZonedDevice, block: u32) -> Pending {
    device.submit(Command::Write {
        zone: ZoneId(1),
        block,
        data: vec![BufferMut::zeroed(2).freeze()],
    })
}

fn append(device: &impl ZonedDevice) -> Pending {
    device.submit(Command::Append {
        zone: ZoneId(1),
        data: vec![BufferMut::zeroed(2).freeze()],
    })
}

fn fail_next(drive: &Drive, failures: impl IntoIterator<Item = Option<Failure>>) {
    drive.script(|script| script.failures = failures.into_iter().collect());
}

#[test]
fn a_write_that_the_block_layer_refused_is_sent_again() {
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    fail_next(&drive, [Some(Errno::IO.into())]);
    write(&device, 0).wait().unwrap();
    assert_eq!(drive.script(|script| (script.sent, script.reports)), (2, 1));
    // Once, and no other error.
    fail_next(&drive, [Some(Errno::IO.into()), Some(Errno::IO.into())]);
    let failed = write(&device, 2).wait();
    assert!(matches!(failed, Err(DeviceError::Io { block: 2, .. })));
    fail_next(&drive, [Some(Errno::TIMEDOUT.into())]);
    assert!(write(&device, 2).wait().is_err());
    assert_eq!(drive.script(|script| script.sent), 5);
    write(&device, 2).wait().unwrap();
}

#[test]
fn blocks_are_read_to_where_they_are_wanted() {
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    write(&device, 0).wait().unwrap();
    let mut memory = BufferMut::zeroed(2);
    let mut read =
        |block, bytes: Range<usize>, beside_others, does: &mut dyn FnMut(&mut Script)| {
            drive.script(does);
            memory.fill(1);
            let read = device.read_into(ZoneId(1), block, &mut memory[bytes], beside_others);
            (read, memory.to_vec())
        };
    let fills = &mut |script: &mut Script| script.reads_here = [Ok(7)].into();
    let (done, found) = read(0, 0..8192, false, fills);
    done.unwrap().unwrap();
    assert_eq!(found, [7; 8192]);
    assert_eq!(device.shared().lock().commands, 0);
    // Neither what direct I/O does not do, nor what the drive serves sooner beside others.
    for (bytes, beside_others) in [
        (0..8192, true),
        (512..4608, false),
        (0..512, false),
        (0..0, false),
    ] {
        let (done, found) = read(0, bytes, beside_others, fills);
        assert!(done.is_none());
        assert_eq!(found, [1; 8192]);
    }
    let (past, _) = read(1, 0..8192, false, fills);
    assert!(matches!(
        past,
        Some(Err(DeviceError::ReadPastEnd { limit: 2, .. }))
    ));
    let fails = &mut |script: &mut Script| script.reads_here = [Err(Errno::IO.into())].into();
    let (failed, _) = read(1, 0..4096, false, fails);
    assert!(matches!(
        failed,
        Some(Err(DeviceError::Io { block: 1, .. }))
    ));
    // Closing waits for what is under way.
    assert_eq!(device.shared().lock().commands, 0);
}

/// The zone whose file a flush of a zonefs goes through may fail while it is on its way: another file does it then. It
/// was a failed flush, after which nothing more is written.
#[test]
fn a_refused_flush_goes_another_way() {
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    let fail = |failures: &[Errno]| {
        let failures = failures.iter().map(|errno| Failure::from(*errno));
        drive.script(|script| {
            script.flush_failures = failures.collect();
            script.flushes = 0;
        });
        let flushed = device.flush();
        (flushed, drive.script(|script| script.flushes))
    };
    assert!(matches!(fail(&[Errno::PERM, Errno::ACCESS]), (Ok(()), 3)));
    // Not for ever, and not after another error.
    let (failed, sent) = fail(&[Errno::PERM; 100]);
    assert!(matches!(failed, Err(DeviceError::Flush { .. })) && sent < 10);
    let (failed, sent) = fail(&[Errno::IO]);
    assert!(matches!(failed, Err(DeviceError::Flush { .. })) && sent == 1);
}

#[test]
fn after_a_failed_append_the_drive_says_where_it_goes_on() {
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    let broken = Failure::Nvme(Status::of_completion(0x280));
    fail_next(&drive, [None, Some(broken), None]);
    let pending = [append(&device), append(&device), append(&device)];
    let ends = pending.map(Pending::wait);
    let mut landed: Vec<u32> = ends
        .iter()
        .filter_map(|end| match end {
            Ok(Completion::Appended(block)) => Some(*block),
            _ => None,
        })
        .collect();
    landed.sort_unstable();
    assert_eq!(landed, [0, 2]);
    let failed = ends.iter().find_map(|end| end.as_ref().err());
    assert!(matches!(failed, Some(DeviceError::Io { .. })), "{failed:?}");
    // The room of the one that failed is not lost.
    write(&device, 4).wait().unwrap();
    for block in (6..CAPACITY).step_by(2) {
        let appended = append(&device).wait();
        assert!(matches!(appended, Ok(Completion::Appended(at)) if at == block));
    }
    let full = append(&device).wait();
    assert!(matches!(full, Err(DeviceError::BadState { .. })));
}

#[test]
fn writes_wait_for_appends_and_appends_for_writes() {
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    let mut pending = Vec::new();
    for round in 0..6 {
        pending.push(append(&device));
        pending.push(append(&device));
        pending.push(write(&device, 6 * round + 4));
    }
    for pending in pending {
        pending.wait().unwrap();
    }
    assert_eq!(device.report(1..2).unwrap()[0].write_pointer, 36);
}

/// A reset takes 16 ms on some drives, and was done in `submit`: however many were started, one was done after
/// the other, and who started them was kept from all else.
#[test]
fn resets_that_are_started_go_on_together() {
    let drive = Drive::default();
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    let port = FakePort {
        drive: drive.clone(),
        reads_wait: false,
        gate: Some((begun, Mutex::new(may_go_on))),
    };
    let Some(device) = start(port) else {
        return;
    };
    write(&device, 0).wait().unwrap();
    let reset = |zone| {
        device.submit(Command::Reset {
            zone: ZoneId(zone),
            keep_allocated: false,
        })
    };
    let resets = [reset(1), reset(2), reset(3)];
    for _ in 0..resets.len() {
        has_begun.recv().unwrap();
    }
    // What comes after a reset waits for it, and nothing else does.
    let after = write(&device, 0);
    let sent = || drive.script(|script| script.sent);
    assert_eq!(sent(), 1);
    let other = device.submit(Command::Append {
        zone: ZoneId(4),
        data: vec![BufferMut::zeroed(1).freeze()],
    });
    other.wait().unwrap();
    assert_eq!(sent(), 2);
    let resets = resets.map(|reset| reset.try_wait().unwrap_err());
    for _ in 0..resets.len() {
        go_on.send(()).unwrap();
    }
    for reset in resets {
        reset.wait().unwrap();
    }
    after.wait().unwrap();
    assert_eq!(device.report(1..2).unwrap()[0].write_pointer, 2);
}

#[test]
fn what_is_started_is_over_when_the_device_is_closed() {
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    write(&device, 0).wait().unwrap();
    drop(device.submit(Command::Reset {
        zone: ZoneId(1),
        keep_allocated: false,
    }));
    drop(device);
    assert_eq!(drive.script(|script| script.written[1]), 0);
}

#[test]
fn reads_that_would_wait_in_the_kernel_are_held_back() {
    let drive = Drive::default();
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    let port = FakePort {
        drive: drive.clone(),
        reads_wait: true,
        gate: Some((begun, Mutex::new(may_go_on))),
    };
    let Some(device) = start(port) else {
        return;
    };
    write(&device, 0).wait().unwrap();
    let read = |zone| {
        device.submit(Command::Read {
            zone: ZoneId(zone),
            block: 0,
            blocks: 1,
        })
    };
    let ended = || drive.script(|script| script.ends.len());
    std::thread::scope(|scope| {
        let reset = scope.spawn(|| {
            device.run(Command::Reset {
                zone: ZoneId(1),
                keep_allocated: false,
            })
        });
        has_begun.recv().unwrap();
        let held_back = read(1);
        // Nothing of it has reached the ring, and others go on.
        assert_eq!(ended(), 0);
        let other = device.submit(Command::Append {
            zone: ZoneId(2),
            data: vec![BufferMut::zeroed(1).freeze()],
        });
        other.wait().unwrap();
        read(2).wait().unwrap();
        go_on.send(()).unwrap();
        reset.join().unwrap().unwrap();
        held_back.wait().unwrap();
    });
}

/// The thread that collects was gone after a panic, and with it the answer to everything under way and everything later.
#[test]
fn nobody_waits_for_a_collector_that_panicked() {
    const COMMANDS: usize = 40;
    let drive = Drive::default();
    let Some(device) = device(&drive) else {
        return;
    };
    let (over, ended) = channel();
    let worker = std::thread::spawn(move || {
        drive.script(|script| script.panics_after = Some(5));
        // More to zone 1 than its turn allows, and something to be done to a zone behind that.
        let mut pending: Vec<Pending> = (0..COMMANDS as u32)
            .map(|number| match number % 4 {
                0 => append(&device),
                1 => write(&device, 2 * number),
                2 => device.submit(Command::Flush),
                _ => device.submit(Command::Append {
                    zone: ZoneId(2 + number % 5),
                    data: vec![BufferMut::zeroed(1).freeze()],
                }),
            })
            .collect();
        pending.push(device.submit(Command::Reset {
            zone: ZoneId(3),
            keep_allocated: false,
        }));
        let refused = pending
            .into_iter()
            .map(Pending::wait)
            .filter(Result::is_err);
        over.send(format!("{} refused", refused.count())).unwrap();
        let later = [
            write(&device, 0).wait(),
            device.run(Command::Flush),
            device.read(ZoneId(1), 0, 1).map(|_| Completion::Done),
            device.run(Command::Open { zone: ZoneId(6) }),
            device.run(Command::Reset {
                zone: ZoneId(2),
                keep_allocated: false,
            }),
        ];
        for later in later {
            assert!(later.is_err(), "{later:?}");
        }
        let refused = write(&device, 0).wait();
        assert!(matches!(refused, Err(DeviceError::Stopped)), "{refused:?}");
        drop(device);
        over.send("closed".to_owned()).unwrap();
    });
    // Nobody waits so long but for ever.
    for _ in 0..2 {
        let step = ended.recv_timeout(std::time::Duration::from_secs(120));
        println!(
            "{}",
            step.expect("somebody waits for ever, or found an answer")
        );
    }
    worker.join().unwrap();
}
