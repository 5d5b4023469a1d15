//! A daemon in the foreground whose log nobody reads any more.

#![allow(clippy::unwrap_used)]

use std::io::pipe;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Place, told};

/// Detaches what a test that failed left mounted.
struct Detach<'a>(&'a Path);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        umount.arg("-l").arg(self.0).stderr(Stdio::null());
        let _ = umount.status();
    }
}

/// `persimmon mount --foreground ... 2>&1 | head -1` ended in a panic as soon as something was logged after
/// head was gone: the log's own report of a failed write failed as well. What was not synced yet was
/// lost, and a dead mount point stayed behind. It goes on without its log, is unmounted, and ends with 0;
/// where nothing can be mounted, with the code for that.
#[test]
fn the_end_of_who_reads_its_log_is_not_the_end_of_a_daemon() {
    let place = Place::new();
    let made = place.run(&["mkfs", "img", "--size", "64M"]);
    assert!(made.status.success(), "{}", told(&made));
    let dir = place.dir().join("mnt");
    std::fs::create_dir(&dir).unwrap();
    let _detach = Detach(&dir);
    let (reader, log) = pipe().unwrap();
    drop(reader);
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["mount", "img", "mnt", "--foreground"])
        .current_dir(place.dir())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut mounted = false;
    let mut status: Option<ExitStatus> = None;
    for _ in 0..600 {
        mounted = mounted || place.run(&["umount", "mnt"]).status.success();
        status = daemon.try_wait().unwrap();
        if status.is_some() {
            break;
        }
        sleep(Duration::from_millis(50));
    }
    if status.is_none() {
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }
    let code = status.and_then(|status| status.code());
    assert_eq!(code, Some(if mounted { 0 } else { 32 }));
}
