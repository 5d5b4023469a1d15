//! Volumes on drives of unlike geometries, overwritten by 16 writers while nearly full. `--example sweep` has all
//! geometries.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use persimmon_crash::sweep::Sweep;

#[test]
fn nearly_full_volumes_of_all_geometries_are_overwritten() {
    let geometries = [
        (256, 100, Some(3)),
        (256, 60, Some(4)),
        (1024, 75, Some(6)),
        (512, 100, Some(14)),
        (256, 77, Some(128)),
        (256, 91, None),
    ];
    for ((zone_blocks, capacity_percent, active_max), seed) in geometries.into_iter().zip(1..) {
        let sweep = Sweep {
            zones: 40,
            zone_blocks,
            capacity_percent,
            active_max,
            model_ops: 240,
            fill: 0.85,
            volumes: 1.0,
            seed,
        };
        let done = sweep.run();
        let done = done.map_err(|why| format!("{sweep:?}: {why}")).unwrap();
        assert!(done.write_amplification > 1.0, "{sweep:?}: {done:?}");
    }
}
