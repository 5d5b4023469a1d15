//! What a mount reads and keeps, on drives with many zones. `--example scale` measures large ones.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

#[path = "../examples/scale/heap.rs"]
mod heap;

use std::time::Duration;

use persimmon_engine::Options;
use persimmon_lab::scale::{Making, Meter, Plan, Report, run};
use persimmon_sim::Timing;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Only the heap is looked at.
struct Heap;

impl Meter for Heap {
    fn worked(&self) -> Duration {
        Duration::ZERO
    }

    fn heap_bytes(&self) -> u64 {
        heap::bytes()
    }
}

fn measured(zones: u32, making: Making) -> Report {
    let plan = Plan {
        zones,
        zone_blocks: 256,
        zone_capacity: 256,
        conventional_zones: 0,
        active_max: Some(14),
        fill: 0.5,
        file_blocks: 4096,
        making,
        changes: 100,
        timing: Timing::default(),
        options: Options::default(),
    };
    run(&plan, &Heap, &mut |_, _| {}).unwrap()
}

/// Tables were read a chunk at a time, each waited for: 3,700 commands at 28 TB.
#[test]
fn a_mount_costs_little_for_each_zone() {
    // The counters of the heap are everybody's: one after the other.
    for (zones, making) in [
        (400, Making::Written),
        (400, Making::Made),
        (20_000, Making::Made),
    ] {
        let told = measured(zones, making);
        let mount = &told.mount;
        let chunks = u64::from(told.zit_chunks + told.mat_chunks);
        // The candidates for the log, its end and its footer; tables in long reads.
        assert!(mount.reads < 80 + chunks / 8, "{told:?}");
        assert!(mount.read_bytes < (2 << 20) + chunks * 5000, "{told:?}");
        // What a zone takes, a page, and a volume with nothing in it.
        let pages = told.metadata_bytes / 4096;
        let bound = 600 * u64::from(zones) + 80 * pages + (4 << 20);
        assert!(mount.heap_bytes < bound as i64, "{told:?}");
        assert!(told.unmount.written_bytes < 4 << 20, "{told:?}");
        assert!(told.mount_again.reads < 120 + chunks / 8, "{told:?}");
        assert!(told.records_replayed > 0, "{told:?}");
    }
}
