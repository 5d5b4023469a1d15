//! Zone management, reports, and looks at zones in which something failed. Who waits for what is done to a
//! zone does it itself; what is only to be begun is done by threads for that, a few at a time.

use std::ops::Range;

use super::failure::{Attempt, Circumstances, Failure};
use super::queue::{Managed, Shared};
use super::{Action, Port};
use crate::{Completion, DeviceError, Pending, Result, ZoneId, ZoneInfo, ZoneState};

impl<P: Port> Shared<P> {
    /// Does something to a zone, after all that is under way in it.
    pub fn manage(&self, zone: ZoneId, action: Action) -> Result<()> {
        let really = self.begin_managing(zone, action)?;
        self.end_managing(zone, action, really)
    }

    /// The same, but it is left to a thread for it. What is sent to the zone from now on comes after.
    pub fn start_managing(&self, zone: ZoneId, action: Action) -> Result<Pending> {
        let really = self.begin_managing(zone, action)?;
        let (completer, pending) = Pending::channel();
        {
            let mut state = self.room()?;
            state.commands += 1;
            state.to_manage.push_back(Managed {
                zone,
                action,
                really,
                completer,
            });
        }
        self.managers.notify_one();
        Ok(pending)
    }

    /// Does what is to be done to zones, until the device is closed.
    pub(super) fn manage_until_stopped(&self) {
        while let Some(managed) = self.next_managed() {
            let Managed {
                zone,
                action,
                really,
                completer,
            } = managed;
            let done = self.end_managing(zone, action, really);
            self.answer(vec![(completer, done.map(|()| Completion::Done))]);
        }
    }

    fn next_managed(&self) -> Option<Managed> {
        let mut state = self.lock();
        loop {
            if let Some(managed) = state.to_manage.pop_front() {
                return Some(managed);
            }
            if state.is_stopped {
                return None;
            }
            let waited = self.managers.wait(state);
            state = waited;
        }
    }

    /// Waits until nothing is under way in the zone, and lets nothing else begin. Answers what is really to be
    /// done.
    fn begin_managing(&self, zone: ZoneId, action: Action) -> Result<Action> {
        self.check_writable()?;
        {
            let mut state = self.lock();
            state.machine.capacity(zone)?;
            state.check()?;
            while state.queues.contains_key(&zone) {
                state = self.wait(state);
                state.check()?;
            }
            let machine = &mut state.machine;
            let mut really = action;
            match action {
                Action::Reset => machine.check_reset(zone)?,
                Action::Finish => machine.check_finish(zone)?,
                // Before the drive does it, so that no other zone takes the last place.
                Action::Open => machine.open(zone)?,
                Action::Close => {
                    machine.check_close(zone)?;
                    // Empty again, as all other back ends have it: a zone that a ZNS drive closes
                    // stays active.
                    if machine.snapshot(zone)?.written == 0 {
                        really = Action::Reset;
                    }
                }
            }
            state.begin(zone);
            if self.port.reads_wait() {
                state.hold_back_reads(zone);
            }
            Ok(really)
        }
    }

    fn end_managing(&self, zone: ZoneId, action: Action, really: Action) -> Result<()> {
        let managed = self.manage_now(zone, action, really);
        self.finished(zone);
        managed
    }

    fn manage_now(&self, zone: ZoneId, action: Action, really: Action) -> Result<()> {
        let mut done = self.port.manage(zone, really);
        if really == Action::Finish && done.as_ref().is_err_and(Failure::is_too_many_open) {
            self.close_idle();
            done = self.port.manage(zone, really);
        }
        if let Err(failure) = done {
            let attempt = Attempt {
                operation: action.name(),
                zone,
                block: 0,
            };
            return Err(self.failed(attempt, self.examine(zone), &failure));
        }
        if really == Action::Reset {
            // A reset may change a zone's capacity, or wear it out.
            let state = self.examine(zone)?.state;
            if state.is_worn_out() {
                return Err(DeviceError::BadState {
                    zone,
                    state,
                    operation: action.name(),
                });
            }
        }
        let machine = &mut self.lock().machine;
        match action {
            Action::Finish => machine.finish(zone),
            Action::Close if really == Action::Close => machine.close(zone),
            Action::Reset | Action::Open | Action::Close => Ok(()),
        }
    }

    /// Closes all zones that need not be open. Some drives want an open place to finish a closed
    /// zone, and close no other for it.
    fn close_idle(&self) {
        for zone in (0..self.geometry.zone_count).map(ZoneId) {
            {
                let mut state = self.lock();
                // Which ones the drive itself has closed by now, the machine does not know.
                let may_be_open = state.machine.snapshot(zone).is_ok_and(|zone| {
                    matches!(zone.state, ZoneState::ImplicitlyOpen | ZoneState::Closed)
                });
                if !may_be_open || state.queues.contains_key(&zone) {
                    continue;
                }
                state.begin(zone);
            }
            // Where it fails, so will what this is done for.
            if self.port.manage(zone, Action::Close).is_ok() {
                let _ = self.examine(zone);
            }
            self.finished(zone);
        }
    }

    /// State, capacity and write pointer of zones. Of those with something under way, as far as it
    /// has completed.
    pub fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let count = self.geometry.zone_count;
        if zones.end > count && zones.start < zones.end {
            return Err(DeviceError::NoSuchZone {
                zone: ZoneId(zones.end - 1),
                count,
            });
        }
        let range = zones.start as usize..zones.end as usize;
        let before: Vec<u32> = self.lock().begun.get(range).unwrap_or_default().to_vec();
        let found = self.ask(ZoneId(zones.start), before.len() as u32)?;
        let mut state = self.lock();
        let mut report = Vec::with_capacity(found.len());
        for ((zone, info), before) in (zones.start..).map(ZoneId).zip(found).zip(before) {
            let is_current = state.begun.get(zone.0 as usize) == Some(&before)
                && !state.queues.contains_key(&zone);
            if is_current || info.state.is_worn_out() {
                state.machine.observe(zone, &info)?;
                report.push(info);
            } else {
                report.push(state.machine.info(zone, info.kind)?);
            }
        }
        Ok(report)
    }

    /// The error of a command that failed, when the drive was asked what became of the zone.
    ///
    /// To ask is also what kernels with zone write plugging want before they take the next write.
    pub fn failed(
        &self,
        attempt: Attempt,
        zone_now: Result<ZoneInfo>,
        failure: &Failure,
    ) -> DeviceError {
        let known = Circumstances {
            max_open: self.geometry.max_open.unwrap_or(0),
            max_active: self.geometry.max_active.unwrap_or(0),
            write_pointer: zone_now.as_ref().map_or(0, |info| info.write_pointer),
        };
        match zone_now {
            Ok(info) if info.state.is_worn_out() => DeviceError::BadState {
                zone: attempt.zone,
                state: info.state,
                operation: attempt.operation,
            },
            Err(DeviceError::Gone) => DeviceError::Gone,
            _ => failure.device_error(attempt, known),
        }
    }

    /// As [`Shared::report`], of one zone.
    pub fn report_one(&self, zone: ZoneId) -> Result<ZoneInfo> {
        first(&self.report(zone.0..zone.0.saturating_add(1))?)
    }

    /// Whether the drive has no zones to report any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.ask(ZoneId(0), 1), Err(DeviceError::Gone))
    }

    /// Asks the drive about a zone, by whom alone something is under way in it.
    pub fn examine(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let info = first(&self.ask(zone, 1)?)?;
        self.lock().machine.observe(zone, &info)?;
        Ok(info)
    }

    fn ask(&self, zone: ZoneId, zones: u32) -> Result<Vec<ZoneInfo>> {
        if zones == 0 {
            return Ok(Vec::new());
        }
        let end = zone.0.saturating_add(zones);
        match self.port.report(zone.0..end) {
            // A device that was pulled has no zones any more.
            Ok(found) if (found.len() as u32) < zones => Err(DeviceError::Gone),
            Ok(mut found) => {
                for (zone, info) in (zone.0..).map(ZoneId).zip(&mut found) {
                    self.left_out.seen(zone, info);
                }
                Ok(found)
            }
            Err(failure) if failure.is_gone() => Err(DeviceError::Gone),
            Err(failure) => Err(DeviceError::Io {
                operation: "report",
                zone,
                block: 0,
                message: failure.to_string(),
            }),
        }
    }
}

fn first(report: &[ZoneInfo]) -> Result<ZoneInfo> {
    report.first().copied().ok_or(DeviceError::Gone)
}
