//! Volumes that get more zones and other names between one mount and the next, with the power cut before, after and in the
//! midst of it.

use persimmon_crash::filesystem::Growing;
use persimmon_crash::harness::{Case, Origin, replay};
use persimmon_crash::workload::Sequences;

/// Zones that the volumes lack at first.
const MORE: u32 = 5;

#[test]
fn volumes_that_grow_keep_what_they_promised() -> Result<(), Box<dyn std::error::Error>> {
    let sequences = Sequences::new();
    let (mut states, mut crashes_in_recovery) = (0, 0);
    for seed in 1..60 {
        let mut case = Case::new(Origin::Seed(seed), &sequences).ok_or("no such case")?;
        if case.plan.heavy {
            continue;
        }
        case.plan.config.geometry.zone_count += MORE;
        let statistics = replay(&Growing(MORE), &case).map_err(|failure| failure.to_string())?;
        states += statistics.states;
        crashes_in_recovery += statistics.recovery_crashes;
    }
    assert!(
        states > 500 && crashes_in_recovery > 20,
        "{states} states, {crashes_in_recovery} in recovery"
    );
    Ok(())
}
