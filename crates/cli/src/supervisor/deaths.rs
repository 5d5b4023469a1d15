//! When no other daemon is started any more: one that dies at once, again and again, would do so for ever.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;

/// Daemons in a row that may die without having answered one request.
const IN_A_ROW_MAX: u32 = 5;
/// Daemons that may die of themselves within [`WINDOW`]: the same request may end each of them, while others are answered.
const CRASHES_MAX: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Before another one is started after one that answered nothing.
pub const PAUSE: Duration = Duration::from_secs(1);
/// The same after one that did, for each that died of itself lately, but the first.
const PAUSE_OF_CRASH: Duration = Duration::from_millis(200);

/// What follows a death.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another one, after a pause.
    Another(Duration),
    /// None, and why.
    GiveUp(String),
}

/// The deaths so far.
#[derive(Default)]
pub struct Deaths {
    in_a_row: u32,
    /// When daemons died of themselves, lately.
    crashes: VecDeque<Instant>,
}

impl Deaths {
    /// One more. Killed by somebody else it has done nothing wrong.
    pub fn another(&mut self, status: ExitStatus, has_answered: bool, now: Instant) -> Verdict {
        self.in_a_row = if has_answered { 0 } else { self.in_a_row + 1 };
        let is_recent = |then: &Instant| now.saturating_duration_since(*then) < WINDOW;
        self.crashes.retain(is_recent);
        if status.signal() != Some(Signal::KILL.as_raw()) {
            self.crashes.push_back(now);
        }
        if self.in_a_row >= IN_A_ROW_MAX {
            let count = self.in_a_row;
            return Verdict::GiveUp(format!(
                "{count} daemons died in a row and answered nothing, the last of them: {status}"
            ));
        }
        if self.crashes.len() > CRASHES_MAX {
            let (count, seconds) = (self.crashes.len(), WINDOW.as_secs());
            return Verdict::GiveUp(format!(
                "{count} daemons died within {seconds} seconds, the last of them: {status}"
            ));
        }
        if !has_answered {
            return Verdict::Another(PAUSE);
        }
        let earlier = self.crashes.len().saturating_sub(1) as u32;
        Verdict::Another((PAUSE_OF_CRASH * earlier).min(PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGV: i32 = 11;
    const KILL: i32 = 9;

    fn gives_up_at(signal: i32, answers: bool, every: Duration) -> Option<u32> {
        let mut deaths = Deaths::default();
        let status = ExitStatus::from_raw(signal);
        let start = Instant::now();
        (1..=1000).find(|number| {
            let verdict = deaths.another(status, answers, start + every * *number);
            matches!(verdict, Verdict::GiveUp(_))
        })
    }

    /// One request was answered between two deaths, and daemons were started for ever, as fast as they died.
    #[test]
    fn a_daemon_that_dies_again_and_again_is_given_up() {
        let soon = Duration::from_millis(100);
        assert_eq!(gives_up_at(SEGV, true, soon), Some(11));
        assert_eq!(gives_up_at(SEGV, false, soon), Some(5));
        assert_eq!(gives_up_at(KILL, false, soon), Some(5));
        // Now and then.
        assert_eq!(gives_up_at(SEGV, true, Duration::from_secs(7)), None);
        // By somebody else.
        assert_eq!(gives_up_at(KILL, true, soon), None);
    }

    #[test]
    fn pauses_grow() {
        let mut deaths = Deaths::default();
        let now = Instant::now();
        let mut next = |signal| match deaths.another(ExitStatus::from_raw(signal), true, now) {
            Verdict::Another(pause) => pause,
            Verdict::GiveUp(why) => panic!("{why}"),
        };
        assert_eq!(next(KILL), Duration::ZERO);
        assert_eq!(next(SEGV), Duration::ZERO);
        assert_eq!(next(SEGV), PAUSE_OF_CRASH);
        assert_eq!(next(SEGV), PAUSE_OF_CRASH * 2);
        let longest = (0..7).map(|_| next(SEGV)).max();
        assert_eq!(longest, Some(PAUSE));
    }
}
