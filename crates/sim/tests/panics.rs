//! A thread that panics in the midst of a change. Nothing half done reaches the device, nobody waits for ever, and all
//! others are told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use persimmon::{Filesystem, OpenOptions, Options};
use persimmon_engine::faults::{Fault, make};
use persimmon_sim::filesystem::Filesystem as Simulated;
use persimmon_sim::harness::System;
use persimmon_sim::{SimConfig, SimDevice};

/// Nobody waits so long but for ever: a test that would hang fails instead.
const FOR_EVER: Duration = Duration::from_secs(120);

fn volume() -> (Arc<SimDevice>, Filesystem) {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).volatile_cache()));
    Simulated.format(&device, 1).unwrap();
    let fs = open(&device);
    (device, fs)
}

fn open(device: &Arc<SimDevice>) -> Filesystem {
    let options = Options {
        commit_interval: Duration::from_millis(5),
        ..Options::default()
    };
    Filesystem::open_on(Arc::clone(device) as _, &options).unwrap()
}

fn errno<T: std::fmt::Debug>(result: persimmon::Result<T>) -> i32 {
    let error = result.unwrap_err();
    error
        .filesystem()
        .unwrap_or_else(|| panic!("{error}"))
        .errno()
}

/// A thread panics with this mistake in it.
fn panics(mistake: Fault, work: impl FnOnce()) {
    make(Some(mistake));
    let panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
    make(None);
    assert!(panicked);
}

/// `PoisonError::into_inner` handed the tree on as it was when the holder of its lock panicked: with a name gone whose inode
/// had not lost the link yet. The next transaction worked on that, its record was logged, and a checkpoint wrote the pages.
#[test]
fn a_change_that_a_panic_cut_short_never_becomes_durable() {
    let (device, fs) = volume();
    fs.create_dir("/d").unwrap();
    fs.write("/d/a", b"a").unwrap();
    fs.write("/d/b", b"b").unwrap();
    fs.sync().unwrap();
    let panicked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (fs, panicked) = (&fs, &panicked);
            scope.spawn(move || {
                // Until it is refused. What began before the panic may have succeeded.
                for turn in 0.. {
                    let after = panicked.load(Ordering::SeqCst);
                    let made = fs.create_dir(format!("/{number}-{turn}"));
                    if after || made.is_err() {
                        assert_eq!(errno(made), libc::EROFS);
                        break;
                    }
                }
            });
        }
        panics(Fault::PanicHalfWay, || fs.rename("/d/a", "/d/b").unwrap());
        panicked.store(true, Ordering::SeqCst);
    });
    let sent = device.counters().changes();
    assert_eq!(errno(fs.write("/d/c", b"c")), libc::EROFS);
    assert_eq!(errno(fs.remove_file("/d/b")), libc::EROFS);
    assert_eq!(errno(fs.set_xattr("/d", "user.k", b"v")), libc::EROFS);
    // What was made before the panic and is not durable cannot become so: that is told, too.
    let _ = fs.sync();
    assert!(
        fs.vfs()
            .volume()
            .step(persimmon_engine::Task::Checkpoint)
            .is_err()
    );
    drop(fs.close());
    let after = device.counters().changes();
    assert_eq!(
        after, sent,
        "something was sent to the device after the panic"
    );

    Simulated.check(&device).unwrap();
    let fs = open(&device);
    assert_eq!(fs.read("/d/a").unwrap(), b"a");
    assert_eq!(fs.read("/d/b").unwrap(), b"b");
    fs.write("/d/c", b"c").unwrap();
    fs.close().unwrap();
    Simulated.check(&device).unwrap();
}

/// Who leads a batch of the log has its turn, not its lock: a panic there left the turn taken, and every sync after it waited
/// for ever.
#[test]
fn nobody_waits_for_a_leader_of_the_log_that_panicked() {
    let (device, fs) = volume();
    fs.write("/a", b"a").unwrap();
    fs.sync().unwrap();
    let fs = Arc::new(fs);
    let (over, ended) = mpsc::channel();
    let options = OpenOptions::new().append(true).create(true);
    let panicked = Arc::new(AtomicBool::new(false));
    for number in 0..3 {
        let (fs, over, panicked) = (Arc::clone(&fs), over.clone(), Arc::clone(&panicked));
        std::thread::spawn(move || {
            let file = fs.open_file(format!("/log-{number}"), &options);
            let file = match file {
                Ok(file) => file,
                Err(error) => return over.send(error.to_string()),
            };
            loop {
                let after = panicked.load(Ordering::SeqCst);
                let synced = file.write_at(b"line", 0).and_then(|()| file.sync_all());
                match synced {
                    Err(error) => break over.send(error.to_string()),
                    Ok(()) if after => break over.send("acknowledged".to_owned()),
                    Ok(()) => {}
                }
            }
        });
    }
    // It has to be the leader itself.
    let leads = AtomicBool::new(false);
    while !leads.load(Ordering::SeqCst) {
        make(Some(Fault::PanicInLog));
        let led = catch_unwind(AssertUnwindSafe(|| {
            let file = fs.open_file("/a", &OpenOptions::new().write(true));
            file.and_then(|file| {
                file.write_at(b"b", 0)?;
                file.sync_all()
            })
        }));
        make(None);
        leads.store(led.is_err(), Ordering::SeqCst);
    }
    panicked.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let why = ended
            .recv_timeout(FOR_EVER)
            .expect("somebody waits for ever");
        assert_ne!(why, "acknowledged");
    }
    drop(fs);
    Simulated.check(&device).unwrap();
    assert!(open(&device).exists("/a"));
}
