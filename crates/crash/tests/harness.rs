//! The harness itself: it passes a small filesystem that is right, and catches it when it is not.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::{Arc, Mutex};

use persimmon_crash::harness::{Campaign, Origin, Phase, Refusal, Selection, Subject, System};
use persimmon_crash::model::{Model, Observed, ObservedNode, Tree};
use persimmon_crash::workload::{Durability, Op, Sequences, Step};
use persimmon_device::{BufferMut, Command, DeviceError, ZoneId, ZoneState, ZonedDevice};
use persimmon_sim::SimDevice;

const MAGIC: u64 = 0x544f_595f_4c4f_4721;

/// What is wrong with a toy.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Synchronous operations do not flush.
    NoFlush,
    /// Recovery goes on behind a block that it cannot read.
    SkipsHoles,
    /// The log goes on at the write pointer, where a host file may still hold an entry that was cut
    /// off; a power cut that loses the new entry brings the old one back.
    GoesOnInPlace,
    /// Unlinking does nothing.
    NoUnlink,
}

/// A log of operations, one block each, that is replayed at mount. The blocks hold numbers of
/// operations; what they mean is remembered outside of the device.
struct Toy {
    flaw: Flaw,
    ops: Arc<Mutex<Vec<(Op, u64)>>>,
}

struct Mounted {
    flaw: Flaw,
    ops: Arc<Mutex<Vec<(Op, u64)>>>,
    device: Arc<SimDevice>,
    model: Model,
    /// Entries in the log.
    sequence: u64,
    zone: u32,
}

fn text(error: DeviceError) -> String {
    error.to_string()
}

fn block(sequence: u64, op: u64) -> BufferMut {
    let mut block = BufferMut::zeroed(1);
    // Every sector tells, so that a torn block is found out.
    for sector in block.chunks_mut(512) {
        for (word, value) in sector.chunks_mut(8).zip([MAGIC, sequence, op]) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
    block
}

/// The operation of entry `sequence`, if that is what the block holds.
fn decode(bytes: &[u8], sequence: u64) -> Option<usize> {
    let op = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    (bytes == &block(sequence, op)[..]).then_some(op as usize)
}

impl System for Toy {
    type Subject = Mounted;

    fn format(&self, _: &Arc<SimDevice>, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn mount(&self, device: &Arc<SimDevice>) -> Result<Mounted, String> {
        let mut model = Model::new(Tree::new(0o755, 0));
        let (mut sequence, mut zone) = (0, 0);
        let zones = device.report(0..device.geometry().zone_count).unwrap();
        for (number, info) in (0..).zip(&zones) {
            let before = sequence;
            for at in 0..info.write_pointer {
                let bytes = device.read(ZoneId(number), at, 1).map_err(text)?;
                match decode(&bytes, sequence) {
                    Some(op) => {
                        let (op, now) = self.ops.lock().unwrap()[op].clone();
                        if let Op::Open { slot, .. } = op {
                            // Still open when the power failed.
                            let _ = model.apply(&Op::Close { slot }, now);
                        }
                        model.apply(&op, now).unwrap();
                        sequence += 1;
                    }
                    None if self.flaw == Flaw::SkipsHoles => sequence += 1,
                    None => break,
                }
            }
            if sequence > before {
                zone = number;
            }
        }
        // Behind the last entry nothing may be found later: the log goes on in an empty zone.
        let usable = zones[zone as usize].state != ZoneState::Full;
        if self.flaw != Flaw::GoesOnInPlace || !usable {
            zone += 1;
            for number in zone..zones.len() as u32 {
                let reset = Command::Reset {
                    zone: ZoneId(number),
                    keep_allocated: false,
                };
                device.run(reset).map_err(text)?;
            }
        }
        device.flush().map_err(text)?;
        model.apply(&Op::Remount, 0).unwrap();
        Ok(Mounted {
            flaw: self.flaw,
            ops: Arc::clone(&self.ops),
            device: Arc::clone(device),
            model,
            sequence,
            zone,
        })
    }

    fn check(&self, _: &Arc<SimDevice>) -> Result<(), String> {
        Ok(())
    }
}

impl Subject for Mounted {
    fn apply(&mut self, op: &Op, now: u64) -> Result<Option<u64>, Refusal> {
        self.model.apply(op, now)?;
        let logged = match op {
            Op::Unlink { .. } if self.flaw == Flaw::NoUnlink => false,
            Op::Fsync { .. } | Op::FsyncDir { .. } | Op::Sync | Op::Step(_) => false,
            _ => true,
        };
        if logged {
            let mut ops = self.ops.lock().unwrap();
            ops.push((op.clone(), now));
            let append = Command::Append {
                zone: ZoneId(self.zone),
                data: vec![block(self.sequence, ops.len() as u64 - 1).freeze()],
            };
            self.device.run(append).map_err(|_| libc::EIO)?;
            self.sequence += 1;
            let info = self.device.report(self.zone..self.zone + 1).unwrap()[0];
            if info.state == ZoneState::Full {
                self.zone += 1;
            }
        }
        let durable = matches!(
            op,
            Op::Fsync { .. }
                | Op::FsyncDir { .. }
                | Op::Sync
                | Op::Step(Step::Checkpoint)
                | Op::Write {
                    durability: Durability::DataSync | Durability::Sync,
                    ..
                }
        );
        if durable && self.flaw != Flaw::NoFlush {
            self.device.flush().map_err(|_| libc::EIO)?;
        }
        Ok(None)
    }

    fn observe_one(&mut self, path: &str) -> Result<ObservedNode, String> {
        let found = self.observe()?.nodes.remove(path);
        found.ok_or_else(|| "not there".to_owned())
    }

    fn observe(&mut self) -> Result<Observed, String> {
        Ok(Observed::of(self.model.now()))
    }

    fn close(self) -> Result<(), String> {
        self.device.flush().map_err(|error| error.to_string())
    }
}

fn first_failure(flaw: Flaw) -> Option<(Phase, usize)> {
    let toy = Toy {
        flaw,
        ops: Arc::default(),
    };
    let mut campaign = Campaign::new(1, 6_000);
    campaign.shrink_tries = 30;
    let report = campaign.run(&toy, |_| {});
    let failure = report.failures.first();
    if flaw == Flaw::None {
        assert!(failure.is_none(), "{}", failure.unwrap());
        assert!(report.statistics.shortened > 100);
        assert!(report.statistics.recovery_crashes > 100);
        assert!(report.statistics.continued > 100);
    }
    failure.map(|failure| (failure.phase, failure.case.ops.len()))
}

#[test]
fn a_right_filesystem_passes() {
    assert_eq!(first_failure(Flaw::None), None);
}

#[test]
fn short_sequences_catch_what_is_wrong() {
    for flaw in [Flaw::None, Flaw::NoFlush, Flaw::NoUnlink] {
        let toy = Toy {
            flaw,
            ops: Arc::default(),
        };
        let ones = Selection {
            first: 0,
            end: Sequences::new().ones(),
            step: 7,
        };
        let campaign = Campaign {
            sequences: vec![ones],
            ..Campaign::new(1, 0)
        };
        let report = campaign.run(&toy, |_| {});
        let failure = report.failures.first();
        assert_eq!(failure.is_some(), flaw != Flaw::None, "{failure:?}");
        if let Some(failure) = failure {
            assert!(matches!(failure.case.plan.origin, Origin::Sequence(_)));
        }
    }
}

#[test]
fn a_missing_flush_is_caught_and_shrunk() {
    let (phase, ops) = first_failure(Flaw::NoFlush).unwrap();
    assert_eq!(phase, Phase::Comparison);
    assert!(ops <= 3, "{ops} operations");
}

#[test]
fn history_with_holes_is_caught() {
    let (phase, _) = first_failure(Flaw::SkipsHoles).unwrap();
    assert!(
        matches!(phase, Phase::Comparison | Phase::Panic),
        "{phase:?}"
    );
}

#[test]
fn an_entry_that_comes_back_is_caught() {
    let (phase, _) = first_failure(Flaw::GoesOnInPlace).unwrap();
    // It may also come back in the workload after a recovery.
    assert!(
        matches!(phase, Phase::Comparison | Phase::Panic | Phase::Live),
        "{phase:?}"
    );
}

#[test]
fn a_lost_operation_is_caught_without_a_crash() {
    let (phase, _) = first_failure(Flaw::NoUnlink).unwrap();
    // The toy panics over a creation of what should be gone.
    assert!(
        matches!(phase, Phase::Live | Phase::Comparison | Phase::Panic),
        "{phase:?}"
    );
}
