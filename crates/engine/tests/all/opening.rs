//! The number of an opening: the log tells which was the last to write to the volume.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{NOW, create, fresh, small};
use persimmon_device::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_engine::{Options, RecoveryReport, Task, Volume};
use persimmon_sim::{SimConfig, SimDevice};

/// What the next opening finds when the process dies now, and the volume of that opening.
fn reopened(device: &Arc<SimDevice>) -> (Volume, RecoveryReport) {
    Volume::open(device.clone(), Options::default()).unwrap()
}

fn check(config: SimConfig) {
    let device = fresh(config);
    let (volume, report) = reopened(&device);
    assert_eq!(report.opening, 0, "mkfs has none");
    volume.begin_opening(7);
    drop(volume);
    // It has written nothing, and the opening before counts still.
    let (volume, report) = reopened(&device);
    assert_eq!(report.opening, 0);
    volume.begin_opening(8);
    volume.tell_opening().unwrap();
    let sent = volume.statistics().journal_bytes;
    volume.tell_opening().unwrap();
    assert_eq!(volume.statistics().journal_bytes, sent, "it is there");
    drop(volume);
    // Until an opening begins, what it writes has the number of the one before: what is brought into the volume meanwhile, too.
    let (volume, report) = reopened(&device);
    assert_eq!(report.opening, 8);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 5000], NOW).unwrap();
    volume.sync_file(ino).unwrap();
    let recorded = volume.recorded().unwrap().unwrap();
    assert!(recorded > report.last);
    drop(volume);
    let (volume, report) = reopened(&device);
    assert_eq!(report.opening, 8);
    assert!(report.last >= recorded);
    // Any change says that there was another, without a word more, and so does a checkpoint.
    volume.begin_opening(9);
    volume.write(ino, 0, &[2; 5000], NOW).unwrap();
    volume.record_file(ino).unwrap();
    drop(volume);
    let (volume, report) = reopened(&device);
    assert_eq!(report.opening, 9);
    volume.begin_opening(10);
    volume.step(Task::Checkpoint).unwrap();
    drop(volume);
    let (volume, report) = reopened(&device);
    assert_eq!(report.opening, 10);
    volume.begin_opening(11);
    volume.write(ino, 0, &[3; 5000], NOW).unwrap();
    volume.close().unwrap();
    assert_eq!(reopened(&device).1.opening, 11);
}

#[test]
fn the_last_opening_that_wrote_is_known() {
    check(small());
}

/// There a recovery begins a new epoch each time.
#[test]
fn and_also_where_write_pointers_prove_nothing() {
    check(small().host_file());
}

/// Counts how often it is told to have what has completed outlive the process.
struct Recording {
    device: Arc<SimDevice>,
    times: AtomicUsize,
}

impl ZonedDevice for Recording {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let records = matches!(command, Command::Record);
        self.times
            .fetch_add(usize::from(records), Ordering::Relaxed);
        self.device.submit(command)
    }
}

/// A log block that one thread had written, and not yet recorded, counted as found by the next opening when another asked. After a kill
/// it was not there, and what had been kept for that point of the history was never brought in.
#[test]
fn what_is_said_to_be_found_is_recorded_first() {
    let device = Arc::new(Recording {
        device: fresh(small().host_file()),
        times: AtomicUsize::new(0),
    });
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 5000], NOW).unwrap();
    volume.sync_file(ino).unwrap();
    let before = device.times.load(Ordering::Relaxed);
    assert!(volume.recorded().unwrap().is_some());
    assert_eq!(device.times.load(Ordering::Relaxed), before + 1);
}
