//! Making the zones of a drive ready for writing, when it is opened: none is left open, and no block is written in part.

use std::collections::BTreeSet;

use super::failure::Failure;
use super::{Action, Port};
use crate::{Geometry, ZoneId, ZoneInfo, ZoneState};

/// Zones that the drive counts as written in part, and that could be neither made ready nor finished. They are
/// read-only until the drive is opened again: their write pointers may be within a block, where nothing can be written.
#[derive(Debug, Default)]
pub struct LeftOut {
    zones: BTreeSet<ZoneId>,
    /// Those of them that are open.
    open: u32,
}

impl LeftOut {
    /// What a zone is taken for, by what the drive says of it.
    pub fn seen(&self, zone: ZoneId, info: &mut ZoneInfo) {
        if info.state.is_active() && self.zones.contains(&zone) {
            info.state = ZoneState::ReadOnly;
        }
    }

    /// The limits for the other zones: the drive counts these too.
    pub fn limits(&self, geometry: Geometry) -> Geometry {
        let less = |limit: Option<u32>, taken: u32| {
            limit.map(|limit| limit.saturating_sub(taken).max(1).min(limit))
        };
        Geometry {
            max_open: less(geometry.max_open, self.open),
            max_active: less(geometry.max_active, self.zones.len() as u32),
            ..geometry
        }
    }
}

/// Closes zones that were left open, so that their places are free, and empties those that hold nothing but are active: a
/// ZNS drive would close them for good. Of `torn` zones, in order of
/// their numbers, the last block is written in part: it is padded.
///
/// A zone with which that fails takes no other along. It is finished, after which nothing is written to it before it is
/// reset, or left out.
///
/// Errors: of the drive as a whole, or of this process.
pub fn settle<P: Port>(
    port: &P,
    zones: &mut [ZoneInfo],
    torn: &[ZoneId],
) -> Result<LeftOut, Failure> {
    let mut left_out = LeftOut::default();
    for (zone, info) in (0..).map(ZoneId).zip(zones.iter_mut()) {
        let is_torn = torn.binary_search(&zone).is_ok();
        let holds_nothing = info.write_pointer == 0 && !is_torn;
        let mut settling = Settling {
            port,
            zone,
            info,
            left_out: &mut left_out,
        };
        settling.put_away(holds_nothing)?;
        // To be padded a zone is opened: the others are closed first.
        if is_torn && settling.info.state.is_active() {
            settling.act("padded", |port| port.pad(zone))?;
            settling.put_away(false)?;
        }
    }
    Ok(left_out)
}

/// One zone that is made ready.
struct Settling<'a, P> {
    port: &'a P,
    zone: ZoneId,
    info: &'a mut ZoneInfo,
    left_out: &'a mut LeftOut,
}

impl<P: Port> Settling<'_, P> {
    /// Empties the zone if it is active and holds nothing, and closes it if it is open.
    fn put_away(&mut self, holds_nothing: bool) -> Result<(), Failure> {
        let zone = self.zone;
        if self.info.state.is_active() && holds_nothing {
            self.act("emptied", |port| port.manage(zone, Action::Reset))
        } else if self.info.state.is_open() {
            self.act("closed", |port| port.manage(zone, Action::Close))
        } else {
            Ok(())
        }
    }

    /// Does something to the zone, or else finishes it, or else leaves it out.
    fn act(
        &mut self,
        what: &str,
        act: impl FnOnce(&P) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let zone = self.zone;
        let Some(failure) = of_zone(act(self.port))? else {
            return self.look();
        };
        tracing::warn!(
            zone = zone.0,
            %failure,
            "a zone of the drive could not be {what}; it is finished, and used again once it is emptied"
        );
        let finish = of_zone(self.port.manage(zone, Action::Finish))?;
        self.look()?;
        if self.info.state.is_active() {
            tracing::warn!(
                zone = zone.0,
                failure = %finish.unwrap_or(failure),
                "a zone of the drive could be neither {what} nor finished; it counts as read-only"
            );
            self.left_out.open += u32::from(self.info.state.is_open());
            self.left_out.zones.insert(zone);
            self.left_out.seen(zone, self.info);
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Failure> {
        let zone = self.zone.0;
        if let Some(now) = self.port.report(zone..zone + 1)?.first() {
            *self.info = *now;
        }
        Ok(())
    }
}

/// The failure of one zone. Another one is an error.
fn of_zone(done: Result<(), Failure>) -> Result<Option<Failure>, Failure> {
    match done {
        Err(failure) if failure.is_of_zone() => Ok(Some(failure)),
        done => done.map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::File;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use rustix::io::Errno;

    use super::*;
    use crate::linux::files::{FileWire, Spot};
    use crate::linux::{KernelDevice, make};
    use crate::{Buffer, BufferMut, Command, DeviceError, Result, ZoneKind, ZonedDevice};

    const CAPACITY: u32 = 64;
    const SECTORS: u32 = 8;

    /// A zone in sectors, and what fails on it.
    #[derive(Clone, Copy, Debug)]
    struct Fake {
        state: ZoneState,
        sectors: u32,
    }

    /// A drive whose zones are told in sectors. What is done to a zone may fail.
    #[derive(Clone)]
    struct FakeDrive {
        zones: Arc<Mutex<Vec<Fake>>>,
        failures: Arc<Mutex<HashMap<(ZoneId, Act), Errno>>>,
        file: Arc<File>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Act {
        Pad,
        Close,
        Finish,
        Reset,
    }

    const OPEN: ZoneState = ZoneState::ImplicitlyOpen;
    const CLOSED: ZoneState = ZoneState::Closed;

    impl FakeDrive {
        fn of(zones: &[(ZoneState, u32)]) -> FakeDrive {
            let zones = zones.iter();
            let zones = zones.map(|(state, sectors)| Fake {
                state: *state,
                sectors: *sectors,
            });
            FakeDrive {
                zones: Arc::new(Mutex::new(zones.collect())),
                failures: Arc::default(),
                file: Arc::new(File::open("/dev/null").unwrap()),
            }
        }

        fn fail(&self, zone: u32, act: Act, errno: Errno) {
            let mut failures = self.failures.lock().unwrap();
            failures.insert((ZoneId(zone), act), errno);
        }

        fn done(&self, zone: ZoneId, act: Act) -> Result<(), Failure> {
            let failures = self.failures.lock().unwrap();
            failures
                .get(&(zone, act))
                .map_or(Ok(()), |errno| Err((*errno).into()))
        }

        fn change(&self, zone: ZoneId, change: impl FnOnce(&mut Fake)) {
            change(&mut self.zones.lock().unwrap()[zone.0 as usize]);
        }

        /// As a back end opens it.
        fn settled(&self) -> Result<(Vec<ZoneInfo>, LeftOut), Failure> {
            let count = self.zones.lock().unwrap().len() as u32;
            let mut infos = self.report(0..count)?;
            let torn: Vec<ZoneId> = {
                let zones = self.zones.lock().unwrap();
                let torn = (0..).map(ZoneId).zip(zones.iter());
                torn.filter(|(_, zone)| zone.sectors % SECTORS != 0)
                    .map(|(zone, _)| zone)
                    .collect()
            };
            let left_out = settle(self, &mut infos, &torn)?;
            Ok((infos, left_out))
        }
    }

    impl Port for FakeDrive {
        type Wire = FileWire;
        type Hold = ();

        const NAME: &'static str = "fake";
        const APPENDS: bool = false;

        fn reading(&self, _: ZoneId, block: u32) -> Result<Spot, Failure> {
            Ok(self.writing(ZoneId(0), block, &()))
        }

        fn writing(&self, _: ZoneId, block: u32, (): &()) -> Spot {
            Spot {
                file: Arc::clone(&self.file),
                offset: u64::from(block) << 12,
            }
        }

        fn flushing(&self) -> Result<Spot, Failure> {
            self.reading(ZoneId(0), 0)
        }

        fn hold(
            &self,
            _: ZoneId,
            _: &mut dyn FnMut() -> Result<()>,
        ) -> Result<Result<(), Failure>> {
            Ok(Ok(()))
        }

        fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, Failure> {
            let all = self.zones.lock().unwrap();
            let zones = &all[zones.start as usize..zones.end as usize];
            let infos = zones.iter().map(|zone| ZoneInfo {
                kind: ZoneKind::Sequential,
                state: zone.state,
                capacity: CAPACITY,
                write_pointer: match zone.state {
                    ZoneState::Full => CAPACITY,
                    _ => zone.sectors / SECTORS,
                },
            });
            Ok(infos.collect())
        }

        fn manage(&self, zone: ZoneId, action: Action) -> Result<(), Failure> {
            let (act, state) = match action {
                Action::Reset => (Act::Reset, ZoneState::Empty),
                Action::Finish => (Act::Finish, ZoneState::Full),
                Action::Close => (Act::Close, CLOSED),
                Action::Open => unreachable!("nobody opens zones to close them"),
            };
            self.done(zone, act)?;
            self.change(zone, |zone| {
                zone.state = state;
                if state == ZoneState::Empty {
                    zone.sectors = 0;
                }
            });
            Ok(())
        }

        fn pad(&self, zone: ZoneId) -> Result<(), Failure> {
            self.done(zone, Act::Pad)?;
            self.change(zone, |zone| {
                zone.state = OPEN;
                zone.sectors = zone.sectors.next_multiple_of(SECTORS);
            });
            Ok(())
        }
    }

    fn states(infos: &[ZoneInfo]) -> Vec<(ZoneState, u32)> {
        infos.iter().map(|i| (i.state, i.write_pointer)).collect()
    }

    #[test]
    fn torn_blocks_are_padded_and_open_zones_closed() {
        let drive = FakeDrive::of(&[
            (OPEN, 19),
            (CLOSED, 3),
            (OPEN, 16),
            (OPEN, 0),
            (CLOSED, 0),
            (ZoneState::Empty, 0),
            (ZoneState::Full, 24),
        ]);
        let (infos, left_out) = drive.settled().unwrap();
        assert_eq!(
            states(&infos),
            [
                (CLOSED, 3),
                (CLOSED, 1),
                (CLOSED, 2),
                (ZoneState::Empty, 0),
                (ZoneState::Empty, 0),
                (ZoneState::Empty, 0),
                (ZoneState::Full, CAPACITY),
            ]
        );
        assert!(left_out.zones.is_empty());
    }

    /// One zone that could not be padded, closed or emptied kept the whole drive from being opened.
    #[test]
    fn a_zone_that_fails_takes_no_other_along() {
        let drive = FakeDrive::of(&[(CLOSED, 19), (OPEN, 16), (OPEN, 0), (CLOSED, 11), (OPEN, 8)]);
        drive.fail(0, Act::Pad, Errno::IO);
        drive.fail(1, Act::Close, Errno::IO);
        drive.fail(2, Act::Reset, Errno::REMOTEIO);
        let (infos, left_out) = drive.settled().unwrap();
        let full = (ZoneState::Full, CAPACITY);
        assert_eq!(states(&infos), [full, full, full, (CLOSED, 2), (CLOSED, 1)]);
        assert!(left_out.zones.is_empty());
    }

    /// Its write pointer is within a block: at the border before that the drive takes nothing.
    #[test]
    fn a_zone_that_cannot_be_finished_either_is_read_only() {
        let drive = FakeDrive::of(&[(CLOSED, 19), (OPEN, 16), (OPEN, 11), (CLOSED, 8)]);
        for zone in [0, 1] {
            drive.fail(zone, Act::Pad, Errno::IO);
            drive.fail(zone, Act::Close, Errno::IO);
            drive.fail(zone, Act::Finish, Errno::IO);
        }
        let (infos, left_out) = drive.settled().unwrap();
        let seen: Vec<ZoneState> = infos.iter().map(|info| info.state).collect();
        let read_only = ZoneState::ReadOnly;
        assert_eq!(seen, [read_only, read_only, CLOSED, CLOSED]);
        let geometry = Geometry {
            max_open: Some(4),
            max_active: Some(5),
            ..make::geometry(infos.len(), u64::from(CAPACITY) << 12, 0, 0)
        };
        let device = KernelDevice::start(
            Path::new("fake"),
            drive,
            FileWire,
            geometry,
            (&infos, left_out),
            false,
        );
        // io_uring is not allowed everywhere.
        let Ok(device) = device else {
            return;
        };
        // The drive counts them all the same.
        let geometry = device.geometry();
        assert_eq!((geometry.max_open, geometry.max_active), (Some(3), Some(3)));
        let reported = device.report(0..4).unwrap();
        let seen: Vec<ZoneState> = reported.iter().map(|info| info.state).collect();
        assert_eq!(seen, [read_only, read_only, CLOSED, CLOSED]);
        let data: Vec<Buffer> = vec![BufferMut::zeroed(1).freeze()];
        let zone = ZoneId(0);
        for command in [
            Command::Write {
                zone,
                block: 2,
                data: data.clone(),
            },
            Command::Append { zone, data },
            Command::Reset {
                zone,
                keep_allocated: false,
            },
        ] {
            let refused = device.run(command);
            let is_read_only = matches!(
                refused,
                Err(DeviceError::BadState {
                    state: ZoneState::ReadOnly,
                    ..
                })
            );
            assert!(is_read_only, "{refused:?}");
        }
    }

    #[test]
    fn what_is_not_a_zones_is_an_error() {
        let all = [Errno::NODEV, Errno::NXIO, Errno::MFILE, Errno::NOMEM];
        for (errno, act) in all
            .into_iter()
            .zip([Act::Pad, Act::Close].into_iter().cycle())
        {
            let drive = FakeDrive::of(&[(CLOSED, 19), (OPEN, 16)]);
            drive.fail(0, act, errno);
            drive.fail(1, act, errno);
            assert!(drive.settled().is_err(), "{errno}");
        }
        // Gone meanwhile.
        let drive = FakeDrive::of(&[(CLOSED, 19)]);
        drive.fail(0, Act::Pad, Errno::IO);
        drive.fail(0, Act::Finish, Errno::NODEV);
        assert!(drive.settled().unwrap_err().is_gone());
    }
}
