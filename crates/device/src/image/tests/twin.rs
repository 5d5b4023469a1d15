//! Random commands on the image and on a naive twin: the same answers, reports and bytes, also
//! after a death without a flush.

use proptest::prelude::*;

use super::*;
use crate::{Completion, ZoneState};

const ZONES: u32 = 6;
const CAPACITY: u32 = 9;

#[derive(Clone, Debug)]
enum Step {
    Write {
        zone: u32,
        off_by: i32,
        blocks: u32,
    },
    Append {
        zone: u32,
        blocks: u32,
    },
    Read {
        zone: u32,
        block: u32,
        blocks: u32,
    },
    Reset {
        zone: u32,
    },
    Finish {
        zone: u32,
    },
    Open {
        zone: u32,
    },
    Close {
        zone: u32,
    },
    Flush,
    /// Dies without a flush, and is opened again.
    Die,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let zone = || 0..ZONES + 1;
    let off_by = prop_oneof![8 => Just(0), 1 => -2..3];
    let step = prop_oneof![
        6 => (zone(), off_by, 0..5u32)
            .prop_map(|(zone, off_by, blocks)| Step::Write { zone, off_by, blocks }),
        4 => (zone(), 0..5u32).prop_map(|(zone, blocks)| Step::Append { zone, blocks }),
        4 => (zone(), 0..CAPACITY + 1, 0..4u32)
            .prop_map(|(zone, block, blocks)| Step::Read { zone, block, blocks }),
        2 => zone().prop_map(|zone| Step::Reset { zone }),
        1 => zone().prop_map(|zone| Step::Finish { zone }),
        1 => zone().prop_map(|zone| Step::Open { zone }),
        1 => zone().prop_map(|zone| Step::Close { zone }),
        1 => Just(Step::Flush),
        1 => Just(Step::Die),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A zone of the twin: a list of bytes, one a block.
#[derive(Clone, Debug)]
struct TwinZone {
    state: ZoneState,
    data: Vec<u8>,
}

struct Twin {
    now: Vec<TwinZone>,
    durable: Vec<TwinZone>,
    /// Implicitly open zones by age.
    order: Vec<usize>,
    max_open: usize,
    max_active: usize,
}

/// What a command answers, as far as it is compared.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    At(u32),
    Bytes(Vec<u8>),
    Failed(&'static str),
}

impl Twin {
    fn new(max_open: u32, max_active: u32) -> Twin {
        let empty = TwinZone {
            state: ZoneState::Empty,
            data: vec![],
        };
        Twin {
            now: vec![empty.clone(); ZONES as usize],
            durable: vec![empty; ZONES as usize],
            order: vec![],
            max_open: max_open as usize,
            max_active: max_active as usize,
        }
    }

    fn set(&mut self, zone: usize, state: ZoneState) {
        self.order.retain(|other| *other != zone);
        if state == ZoneState::ImplicitlyOpen {
            self.order.push(zone);
        }
        self.now[zone].state = state;
    }

    fn open(&mut self, zone: usize, state: ZoneState) -> Result<(), Answer> {
        let from = self.now[zone].state;
        let count =
            |which: fn(ZoneState) -> bool| self.now.iter().filter(|zone| which(zone.state)).count();
        if !from.is_active() && count(ZoneState::is_active) == self.max_active {
            return Err(Answer::Failed("active"));
        }
        if !from.is_open() && count(ZoneState::is_open) == self.max_open {
            let Some(oldest) = self.order.first().copied() else {
                return Err(Answer::Failed("open"));
            };
            self.set(oldest, ZoneState::Closed);
        }
        if !(from.is_open() && state == ZoneState::ImplicitlyOpen) {
            self.set(zone, state);
        }
        Ok(())
    }

    fn write(&mut self, zone: u32, at: Option<i64>, blocks: u32, byte: u8) -> Result<u32, Answer> {
        let zone = zone as usize;
        if blocks == 0 {
            return Err(Answer::Failed("transfer"));
        }
        if zone >= self.now.len() {
            return Err(Answer::Failed("no zone"));
        }
        let pointer = self.now[zone].data.len();
        if self.now[zone].state == ZoneState::Full {
            return Err(Answer::Failed("state"));
        }
        if at.is_some_and(|at| at != pointer as i64) {
            return Err(Answer::Failed("pointer"));
        }
        if pointer + blocks as usize > CAPACITY as usize {
            return Err(Answer::Failed("full"));
        }
        self.open(zone, ZoneState::ImplicitlyOpen)?;
        self.now[zone].data.extend(vec![byte; blocks as usize]);
        if self.now[zone].data.len() == CAPACITY as usize {
            self.set(zone, ZoneState::Full);
        }
        Ok(pointer as u32)
    }

    fn read(&self, zone: u32, block: u32, blocks: u32) -> Answer {
        if blocks == 0 {
            return Answer::Failed("transfer");
        }
        let Some(zone) = self.now.get(zone as usize) else {
            return Answer::Failed("no zone");
        };
        let mut data = zone.data.clone();
        if zone.state == ZoneState::Full {
            data.resize(CAPACITY as usize, 0);
        }
        match data.get(block as usize..(block + blocks) as usize) {
            Some(bytes) => Answer::Bytes(bytes.to_vec()),
            None => Answer::Failed("past end"),
        }
    }

    fn manage(&mut self, step: &Step, zone: u32) -> Answer {
        let index = zone as usize;
        let Some(state) = self.now.get(index).map(|zone| zone.state) else {
            return Answer::Failed("no zone");
        };
        let empty = self.now[index].data.is_empty();
        match step {
            Step::Reset { .. } => {
                self.set(index, ZoneState::Empty);
                self.now[index].data.clear();
                self.durable[index] = self.now[index].clone();
            }
            Step::Finish { .. } => {
                self.set(index, ZoneState::Full);
                self.durable[index] = self.now[index].clone();
            }
            Step::Open { .. } if state == ZoneState::Full => return Answer::Failed("state"),
            Step::Open { .. } => match self.open(index, ZoneState::ExplicitlyOpen) {
                Ok(()) => {}
                Err(failed) => return failed,
            },
            Step::Close { .. } if state.is_open() => self.set(
                index,
                if empty {
                    ZoneState::Empty
                } else {
                    ZoneState::Closed
                },
            ),
            Step::Close { .. } if state == ZoneState::Closed => {}
            _ => return Answer::Failed("state"),
        }
        Answer::Done
    }

    /// Where a write of this step goes.
    fn place(&self, zone: u32, off_by: i32) -> i64 {
        let pointer = self
            .now
            .get(zone as usize)
            .map_or(0, |zone| zone.data.len());
        (pointer as i64 + i64::from(off_by)).max(0)
    }

    /// The device's command for a step; none for dying.
    fn command(&self, step: &Step, byte: u8) -> Option<Command> {
        let data = |blocks: u32| vec![filled(blocks as usize, byte)];
        Some(match *step {
            Step::Write {
                zone,
                off_by,
                blocks,
            } => Command::Write {
                zone: ZoneId(zone),
                block: self.place(zone, off_by) as u32,
                data: data(blocks),
            },
            Step::Append { zone, blocks } => Command::Append {
                zone: ZoneId(zone),
                data: data(blocks),
            },
            Step::Read {
                zone,
                block,
                blocks,
            } => Command::Read {
                zone: ZoneId(zone),
                block,
                blocks,
            },
            Step::Reset { zone } => Command::Reset {
                zone: ZoneId(zone),
                keep_allocated: byte.is_multiple_of(2),
            },
            Step::Finish { zone } => Command::Finish { zone: ZoneId(zone) },
            Step::Open { zone } => Command::Open { zone: ZoneId(zone) },
            Step::Close { zone } => Command::Close { zone: ZoneId(zone) },
            Step::Flush => Command::Flush,
            Step::Die => return None,
        })
    }

    /// What the step does here.
    fn answer(&mut self, step: &Step, byte: u8) -> Answer {
        match *step {
            Step::Write {
                zone,
                off_by,
                blocks,
            } => {
                let at = self.place(zone, off_by);
                let written = self.write(zone, Some(at), blocks, byte);
                written.map_or_else(|failed| failed, |_| Answer::Done)
            }
            Step::Append { zone, blocks } => {
                let written = self.write(zone, None, blocks, byte);
                written.map_or_else(|failed| failed, Answer::At)
            }
            Step::Read {
                zone,
                block,
                blocks,
            } => self.read(zone, block, blocks),
            Step::Reset { zone }
            | Step::Finish { zone }
            | Step::Open { zone }
            | Step::Close { zone } => self.manage(step, zone),
            Step::Flush | Step::Die => {
                self.durable = self.now.clone();
                Answer::Done
            }
        }
    }

    fn die(&mut self) {
        self.now = self.durable.clone();
        self.order.clear();
        for zone in &mut self.now {
            if zone.state.is_active() {
                zone.state = if zone.data.is_empty() {
                    ZoneState::Empty
                } else {
                    ZoneState::Closed
                };
            }
        }
    }
}

fn answer(result: crate::Result<Completion>) -> Answer {
    match result {
        Ok(Completion::Done) => Answer::Done,
        Ok(Completion::Appended(block)) => Answer::At(block),
        Ok(Completion::Read(buffer)) => {
            let blocks = buffer.chunks(crate::BLOCK_SIZE);
            Answer::Bytes(blocks.map(|block| block[0]).collect())
        }
        Err(error) => Answer::Failed(match error {
            DeviceError::NotAtWritePointer { .. } => "pointer",
            DeviceError::ReadPastEnd { .. } => "past end",
            DeviceError::ZoneFull { .. } => "full",
            DeviceError::BadState { .. } => "state",
            DeviceError::TooManyOpen { .. } => "open",
            DeviceError::TooManyActive { .. } => "active",
            DeviceError::NoSuchZone { .. } => "no zone",
            DeviceError::TransferSize { .. } => "transfer",
            other => panic!("{other}"),
        }),
    }
}

fn run(steps: Vec<Step>, max_open: u32, max_active: u32) {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    let geometry = ImageGeometry {
        zone_count: ZONES,
        zone_blocks: 256,
        capacity_blocks: CAPACITY,
        max_open: Some(max_open),
        max_active: Some(max_active),
    };
    let mut device = ImageDevice::create(&path, &geometry, &CreateOptions::default()).unwrap();
    let mut twin = Twin::new(max_open, max_active);
    let mut byte = 0u8;
    for step in steps {
        byte = byte % 255 + 1;
        let before = (twin.now.clone(), device.gate.next_generation());
        let (found, expected) = match twin.command(&step, byte) {
            Some(command) => (answer(device.run(command)), twin.answer(&step, byte)),
            None => {
                drop(device);
                device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
                assert_eq!(device.notices(), &[]);
                twin.die();
                continue;
            }
        };
        assert_eq!(found, expected, "{step:?}");
        if matches!(step, Step::Write { .. } | Step::Append { .. })
            && device.gate.next_generation() > before.1
        {
            // The first write after a reset waited for a flush.
            twin.durable = before.0;
        }
        let report = device.report(0..ZONES).unwrap();
        for (number, (info, zone)) in report.iter().zip(&twin.now).enumerate() {
            let pointer = match zone.state {
                ZoneState::Full => CAPACITY,
                _ => zone.data.len() as u32,
            };
            assert_eq!(
                (info.state, info.write_pointer),
                (zone.state, pointer),
                "zone {number}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]
    #[test]
    fn the_image_does_what_its_naive_twin_does(
        steps in steps(),
        max_open in 1..4u32,
        more_active in 0..3u32,
    ) {
        run(steps, max_open, max_open + more_active);
    }
}
