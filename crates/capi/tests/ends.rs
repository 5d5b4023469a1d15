//! A volume that is closed while the process ends, in a handler of `atexit` or a destructor of C++: what Rust keeps for the thread is gone by
//! then. Closing it asked for that, panicked, and left the volume as a crash does.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use persimmon_capi::*;
use support::{file, message, opened};

const IMAGE: &str = "PERSIMMON_TEST_IMAGE";

static VOLUME: AtomicPtr<persimmon_fs> = AtomicPtr::new(null_mut());

extern "C" fn close() {
    let closed = unsafe { persimmon_close(VOLUME.load(Ordering::SeqCst)) };
    let said: &[u8] = if closed == 0 {
        b"closed\n"
    } else {
        b"failed\n"
    };
    unsafe { libc::write(1, said.as_ptr().cast(), said.len()) };
}

/// Part of a test below, in a process of its own.
#[test]
fn child_that_closes_while_it_ends() {
    let Ok(image) = std::env::var(IMAGE) else {
        return;
    };
    let fs = opened(&std::ffi::CString::new(image).unwrap());
    VOLUME.store(fs, Ordering::SeqCst);
    assert_eq!(unsafe { libc::atexit(close) }, 0);
    let flags = PERSIMMON_OPEN_READ | PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE;
    let file = file(fs, c"/file", flags);
    unsafe {
        assert_eq!(persimmon_pwrite(file, b"content".as_ptr(), 7, 0), 0);
        let (mut read, mut buffer, mut len) = (null_mut(), [0; 7], 0);
        let submitted = persimmon_read_submit(file, 7, 0, &mut read);
        assert_eq!(submitted, 0, "{}", message());
        let finished = persimmon_read_finish(read, buffer.as_mut_ptr(), 7, &mut len);
        assert_eq!((finished, &buffer), (0, b"content"));
        persimmon_file_close(file);
        // As a write-back on all cores does.
        let _ = std::thread::current();
        libc::exit(0);
    }
}

#[test]
fn a_volume_is_closed_while_the_process_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let image = support::made(&path);
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_closes_while_it_ends", "--nocapture"])
        .env(IMAGE, &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("closed"), "{ran:?}");
    let fs = opened(&image);
    assert_eq!(support::size(fs, c"/file"), 7);
    assert_eq!(unsafe { persimmon_close(fs) }, 0);
}
