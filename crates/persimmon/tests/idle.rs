//! An idle volume wakes no processor, and whatever happens on it wakes its threads.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use persimmon::{Create, Filesystem, OpenOptions, Options};

/// Within which an idle volume must have come to rest, on a busy machine too.
const REST_MAX: Duration = Duration::from_secs(60);
/// How long it is watched then.
const WATCHED: Duration = Duration::from_millis(1500);

/// Times that threads of volumes of this process have slept.
fn wakes() -> BTreeMap<String, u64> {
    let count = |task: &Path| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((name.trim().to_owned(), line.trim().parse::<u64>().ok()?))
    };
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| count(&task.unwrap().path()))
        // Threads of the test program are not those of a volume.
        .filter(|(name, _)| !name.starts_with("idle-") && !name.starts_with("an_idle"))
        .collect()
}

/// Waits until no thread has woken for a while.
fn rests() {
    let start = Instant::now();
    loop {
        let before = wakes();
        std::thread::sleep(WATCHED);
        let after = wakes();
        if after == before {
            return;
        }
        assert!(start.elapsed() < REST_MAX, "{before:?}, then {after:?}");
    }
}

#[test]
fn an_idle_volume_sleeps_and_wakes_for_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    Filesystem::create(&path, &Create::sized(256 << 20)).unwrap();
    let options = Options {
        commit_interval: Duration::from_millis(300),
        ..Options::default()
    };
    let fs = Filesystem::open(&path, &options).unwrap();
    rests();
    // A write, a change of names, a kept append and a read each are committed by themselves.
    fs.write("/written", b"written").unwrap();
    rests();
    fs.create_dir("/dir").unwrap();
    rests();
    let keeping = OpenOptions::new()
        .append(true)
        .create(true)
        .keep_flushed(true);
    let log = fs.open_file("/log", &keeping).unwrap();
    log.append(b"first").unwrap();
    log.flush_through().unwrap();
    rests();
    log.append(b", second").unwrap();
    assert_eq!(fs.read("/written").unwrap(), b"written");
    rests();
    // Without a sync or a close, and without what memory keeps: as the power would leave it.
    let uuid = uuid::Uuid::from_bytes(fs.vfs().volume().identity().uuid).to_string();
    fs.abandon();
    drop(log);
    for tail in fs::read_dir("/dev/shm").unwrap() {
        let tail = tail.unwrap().path();
        if tail.to_string_lossy().contains(&uuid) {
            fs::remove_dir_all(tail).unwrap();
        }
    }
    let fs = Filesystem::open(&path, &options).unwrap();
    assert_eq!(fs.read("/written").unwrap(), b"written");
    assert!(fs.metadata("/dir").is_ok());
    assert_eq!(fs.read("/log").unwrap(), b"first, second");
}
