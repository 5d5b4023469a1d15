//! States that only a bug in the engine can bring about.
//!
//! [`invariant!`] checks one where the function can answer an error, [`invariant_holds!`] where it cannot, and
//! [`invariant_sub!`] takes something from a count that has to have it. Builds with debug assertions panic. Others
//! stop the volume: they raise the alarm of the volume, after which nothing is sent to the device that changes it
//! ([`crate::media`]), log what does not hold, once, and answer [`Error::Bug`]. A function that cannot answer goes on
//! with a value that loses nothing.
//!
//! What a damaged or hostile device can say is never checked so. It is a typed error where it is read. One thing
//! cannot be checked there: whether the valid counts of the zone table are those of the tree, which takes a walk of all
//! of it. What contradicts them is [`invariant_or_damage!`]: it stops the volume just the same, as damage, and panics
//! only in tests on devices that nothing damages ([`panic_on_bugs`]).

use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_sync::{Alarm, Cause};

use crate::error::{Error, PANICKED};

/// Why a volume takes no changes any more after an invariant was found broken.
const BUG_FOUND: &str = "a bug in Persimmon was found; see the log, unmount, run `persimmon fsck` and report the line that \
     the log names";

/// Why a volume takes no changes any more after its zone table was found wrong.
const DAMAGE_FOUND: &str =
    "the zone table is wrong; see the log, unmount and run `persimmon fsck --repair`";

/// Returns [`Error::Bug`] from the function unless the condition holds.
macro_rules! invariant {
    ($alarm:expr, $holds:expr, $($what:tt)+) => {
        if $holds {
        } else {
            let what = format!($($what)+);
            return Err($crate::invariant::broken(&$alarm, file!(), line!(), what).into());
        }
    };
}

/// Whether the condition holds; stops the volume if not. The caller goes on with what loses nothing.
macro_rules! invariant_holds {
    ($alarm:expr, $holds:expr, $($what:tt)+) => {
        if $holds {
            true
        } else {
            let what = format!($($what)+);
            $crate::invariant::broken(&$alarm, file!(), line!(), what);
            false
        }
    };
}

/// Takes so much from a count. Stops the volume if the count has less, and leaves it at zero.
macro_rules! invariant_sub {
    ($alarm:expr, $count:expr, $less:expr, $what:literal) => {{
        let (count, less) = ($count, $less);
        match count.checked_sub(less) {
            Some(left) => $count = left,
            None => {
                let what = format!("{} {count}, less {less}", $what);
                $crate::invariant::broken(&$alarm, file!(), line!(), what);
                $count = Default::default();
            }
        }
    }};
}

/// Whether the condition holds, which damage on the device may break as well as a bug: see [`panic_on_bugs`].
macro_rules! invariant_or_damage {
    ($alarm:expr, $holds:expr, $($what:tt)+) => {
        if $holds {
            true
        } else {
            let what = format!($($what)+);
            $crate::invariant::damage(&$alarm, file!(), line!(), what);
            false
        }
    };
}

pub(crate) use {invariant, invariant_holds, invariant_or_damage, invariant_sub};

/// Release builds panic too.
static PANICS: AtomicBool = AtomicBool::new(false);

/// From now on a state that cannot be panics in this process, in release builds too, whether damage may explain it or
/// not. For tests on devices that nothing else damages: there it is a bug.
pub fn panic_on_bugs() {
    PANICS.store(true, Ordering::Relaxed);
}

#[cfg(any(test, feature = "deliberate-faults"))]
thread_local! {
    static STOPS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// From now on this thread does what release builds do, in builds with debug assertions too.
#[cfg(any(test, feature = "deliberate-faults"))]
pub fn stop_on_bugs(stops: bool) {
    STOPS.set(stops);
}

fn stops_only() -> bool {
    #[cfg(any(test, feature = "deliberate-faults"))]
    if STOPS.get() {
        return true;
    }
    // A second panic would end the process.
    std::thread::panicking()
}

/// An invariant does not hold.
#[cold]
#[inline(never)]
pub(crate) fn broken(alarm: &Alarm, file: &'static str, line: u32, what: String) -> Error {
    let panics = cfg!(debug_assertions) || PANICS.load(Ordering::Relaxed);
    let cause = Cause {
        file,
        line,
        what,
        may_be_damage: false,
    };
    stop(alarm, cause, panics)
}

/// What is counted contradicts what was read from the device.
#[cold]
#[inline(never)]
pub(crate) fn damage(alarm: &Alarm, file: &'static str, line: u32, what: String) -> Error {
    let cause = Cause {
        file,
        line,
        what,
        may_be_damage: true,
    };
    stop(alarm, cause, PANICS.load(Ordering::Relaxed))
}

fn stop(alarm: &Alarm, cause: Cause, panics: bool) -> Error {
    let error = of(&cause);
    if !alarm.raise_because(cause) {
        // Whatever follows from the first is not worth telling.
        return why_stopped(alarm);
    }
    tracing::error!("{error}");
    assert!(!panics || stops_only(), "{error}");
    error
}

fn of(cause: &Cause) -> Error {
    if cause.may_be_damage {
        Error::Inconsistent(format!(
            "{} (if the device is sound this is a bug in Persimmon, {}:{}: report it); nothing more is written",
            cause.what, cause.file, cause.line
        ))
    } else {
        Error::Bug {
            file: cause.file,
            line: cause.line,
            what: cause.what.clone(),
        }
    }
}

/// What was found, if something was that cannot be.
pub(crate) fn found(alarm: &Alarm) -> Option<Error> {
    alarm.cause().map(of)
}

/// Why a volume takes no changes any more whose alarm is raised.
pub(crate) fn why_stopped(alarm: &Alarm) -> Error {
    let why = match alarm.cause() {
        None => PANICKED,
        Some(cause) if cause.may_be_damage => DAMAGE_FOUND,
        Some(_) => BUG_FOUND,
    };
    Error::ReadOnly { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    fn checked(alarm: &Alarm, free: u32) -> Result<u32> {
        invariant!(alarm, free < 3, "{free} free zones of 2");
        Ok(free)
    }

    /// As release builds do, and the panic of others.
    fn as_released(test: impl FnOnce()) {
        stop_on_bugs(true);
        test();
        stop_on_bugs(false);
    }

    #[test]
    fn a_bug_stops_the_volume_and_says_what_to_do() {
        as_released(|| {
            let alarm = Alarm::default();
            assert!(matches!(checked(&alarm, 2), Ok(2)));
            assert!(!alarm.is_raised());
            let error = checked(&alarm, 7).unwrap_err();
            assert!(matches!(error, Error::Bug { .. }), "{error:?}");
            let text = error.to_string();
            for part in [
                "bug in Persimmon",
                "invariant.rs:",
                "7 free zones of 2",
                "unmount",
                "`persimmon fsck`",
                "report",
            ] {
                assert!(text.contains(part), "{text}");
            }
            assert!(alarm.is_raised());
            // The first one is kept: what follows from it is not told.
            let error = checked(&alarm, 8).unwrap_err();
            assert!(matches!(error, Error::ReadOnly { why } if why == BUG_FOUND));
            let found = found(&alarm).map(|error| error.to_string());
            assert!(found.is_some_and(|text| text.contains("7 free zones")));
        });
    }

    #[test]
    fn who_cannot_answer_goes_on_with_what_loses_nothing() {
        as_released(|| {
            let alarm = Alarm::default();
            let mut count = 3_u64;
            invariant_sub!(alarm, count, 2, "pins");
            assert_eq!(count, 1);
            assert!(!alarm.is_raised());
            assert!(invariant_holds!(alarm, count == 1, "{count}"));
            invariant_sub!(alarm, count, 2, "pins");
            assert_eq!(count, 0);
            assert!(alarm.is_raised());
            assert!(!invariant_holds!(alarm, count == 1, "{count}"));
        });
    }

    #[test]
    fn damage_stops_the_volume_and_is_no_bug() {
        let alarm = Alarm::default();
        let error = damage(&alarm, file!(), line!(), "zone 7".to_owned());
        assert!(matches!(error, Error::Inconsistent(_)));
        assert!(matches!(why_stopped(&alarm), Error::ReadOnly { why } if why == DAMAGE_FOUND));
    }

    #[test]
    fn what_a_panic_cut_short_is_no_bug() {
        let alarm = Alarm::default();
        alarm.raise();
        let error = checked(&alarm, 7).unwrap_err();
        assert!(matches!(error, Error::ReadOnly { why } if why == PANICKED));
        assert!(found(&alarm).is_none());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "7 free zones of 2")]
    fn builds_with_debug_assertions_panic() {
        let _ = checked(&Alarm::default(), 7);
    }
}
