//! Messages of the library: a program in C has no other log.

#![allow(clippy::unwrap_used, unsafe_code, reason = "a test from top to bottom")]

use std::ffi::{CStr, c_char, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use persimmon_capi::*;

type Messages = Mutex<Vec<(u32, String)>>;

unsafe extern "C" fn keep(argument: *mut c_void, level: u32, message: *const c_char) {
    let messages = unsafe { &*argument.cast::<Messages>() };
    let message = unsafe { CStr::from_ptr(message) }.to_str().unwrap();
    messages.lock().unwrap().push((level, message.to_owned()));
}

static FROM_WITHIN: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" fn set_another(_: *mut c_void, _: u32, _: *const c_char) {
    let errno = unsafe { persimmon_set_log(None, null_mut()) };
    FROM_WITHIN.store(errno, Ordering::SeqCst);
    tracing::warn!("said within a callback");
}

const ALONE: &str = "PERSIMMON_LOG_TEST_ALONE";

fn say() {
    tracing::error!(zone = 7, "a zone is lost");
    tracing::warn!("slow");
    tracing::info!("nobody asked for that");
}

/// The library logged, and nothing in it took what it logged: a failure of the background was never seen.
#[test]
fn warnings_and_errors_go_where_they_are_asked_for() {
    if std::env::var_os(ALONE).is_some() {
        // Any call begins it.
        let mut fs = null_mut();
        assert_eq!(unsafe { persimmon_open_in_memory(64 << 20, &mut fs) }, 0);
        say();
        assert_eq!(unsafe { persimmon_close(fs) }, 0);
        return;
    }
    let messages = Messages::default();
    let argument = (&raw const messages).cast_mut().cast::<c_void>();
    assert_eq!(unsafe { persimmon_set_log(Some(keep), argument) }, 0);
    say();
    assert_eq!(unsafe { persimmon_set_log(None, null_mut()) }, 0);
    tracing::warn!("after it was taken back");
    let found = messages.into_inner().unwrap();
    assert_eq!(
        found,
        [
            (PERSIMMON_LOG_ERROR, "a zone is lost zone=7".to_owned()),
            (PERSIMMON_LOG_WARNING, "slow".to_owned()),
        ]
    );
    // A callback that set another waited for itself for ever.
    assert_eq!(
        unsafe { persimmon_set_log(Some(set_another), null_mut()) },
        0
    );
    tracing::warn!("once");
    assert_eq!(FROM_WITHIN.load(Ordering::SeqCst), libc::EDEADLK);
    assert_eq!(unsafe { persimmon_set_log(None, null_mut()) }, 0);
    // By themselves they go to standard error: seen from outside, in a process that sets nothing.
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let output = alone.arg("--nocapture").env(ALONE, "1").output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("persimmon: error: a zone is lost zone=7\npersimmon: warning: slow\n"));
    assert!(!said.contains("nobody asked"));
}
