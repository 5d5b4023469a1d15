//! Finds a shorter way to a failure.

use super::case::{Case, Failure};
use super::run::replay;
use super::system::System;

/// Ways to choose what a crash leaves that are tried before shrinking goes on with the original.
const THOROUGH_TRIES: u64 = 3;
/// Runs spent on a failure whose runs take long.
const HEAVY_TRIES: usize = 12;

/// Drops operations as long as a failure of the same phase remains. `tries_max` bounds the runs;
/// with none the failure stays as it is.
pub fn shrink<S: System>(system: &S, failure: Box<Failure>, tries_max: usize) -> Box<Failure> {
    if tries_max == 0 {
        return failure;
    }
    let tries_max = if failure.case.plan.heavy {
        tries_max.min(HEAVY_TRIES)
    } else {
        tries_max
    };
    let mut best = failure;
    let attempt = |best: &mut Box<Failure>, case: Case| match replay(system, &case) {
        Err(found) if found.phase == best.phase && found.case.ops.len() <= case.ops.len() => {
            *best = found;
            true
        }
        _ => false,
    };
    // Dropping operations moves the moments of crash: try them all, in several ways.
    let mut plan = best.case.plan.clone();
    let cuts = best
        .trail
        .iter()
        .filter(|event| event.starts_with("power cut"))
        .count();
    if cuts > 1 {
        plan.again_percent = 40;
        plan.go_on_percent = 40;
    }
    for crash_seed in 0..THOROUGH_TRIES {
        let case = Case {
            plan: plan.clone().thorough(crash_seed),
            ops: best.case.ops.clone(),
        };
        if attempt(&mut best, case) {
            break;
        }
    }
    let mut chunk = best.case.ops.len().div_ceil(2);
    let mut left = tries_max;
    while chunk > 0 && left > 0 {
        let mut at = 0;
        let mut dropped = false;
        while at < best.case.ops.len() && left > 0 {
            left -= 1;
            let mut case = best.case.clone();
            case.ops.drain(at..(at + chunk).min(case.ops.len()));
            if case.ops.is_empty() || !attempt(&mut best, case) {
                at += chunk;
            } else {
                dropped = true;
            }
        }
        if !dropped || chunk > 1 {
            chunk /= 2;
        }
    }
    best
}
