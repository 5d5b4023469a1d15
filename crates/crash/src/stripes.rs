//! Runs on stripe sets: which seeds have them, and the device that the volume of such a seed sees. A zone that is lost there takes
//! nothing along.

use std::ops::Range;
use std::sync::Arc;

use persimmon_device::{Striped, Stripes, ZonedDevice};
use persimmon_sim::device::SimDevice;

/// Seeds of runs on stripe sets.
const SEEDS: Range<u64> = 2_000_000_000..3_000_000_000;
/// Mirrors for the log and metadata where data has parity.
const METADATA_SETS: u32 = 28;

/// How the zones of a seed's device are used.
#[must_use]
pub fn of_seed(seed: u64) -> Option<Stripes> {
    // Above these bits is how the volume is mounted.
    let seed = seed & ((1 << 56) - 1);
    SEEDS.contains(&seed).then_some(match seed % 4 {
        number @ 2.. => Stripes {
            columns: number as u32,
            metadata_sets: METADATA_SETS,
        },
        _ => Stripes::MIRROR,
    })
}

/// The device that a volume on this one sees.
///
/// # Errors
/// A set cannot be evened after a crash.
pub fn on(sim: &Arc<SimDevice>, for_writing: bool) -> Result<Arc<dyn ZonedDevice>, String> {
    used(sim, of_seed(sim.config().seed), for_writing)
}

/// A device whose zones are used so.
///
/// # Errors
/// As of [`on`].
pub fn used(
    sim: &Arc<SimDevice>,
    stripes: Option<Stripes>,
    for_writing: bool,
) -> Result<Arc<dyn ZonedDevice>, String> {
    match stripes {
        None => Ok(Arc::clone(sim) as _),
        Some(stripes) => match Striped::new(Arc::clone(sim), stripes, for_writing) {
            Ok(device) => Ok(Arc::new(device)),
            Err(error) => Err(format!("stripe sets: {error}")),
        },
    }
}
