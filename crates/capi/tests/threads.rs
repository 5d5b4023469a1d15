//! The functions of C from many threads at once, with one handle.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::thread;

use persimmon_capi::*;

const THREADS: usize = 8;
const ROUNDS: usize = 40;

/// Handles that go to other threads, as C passes them.
#[derive(Clone, Copy)]
struct Shared(*mut persimmon_fs, *mut persimmon_file);
// SAFETY: the header allows any number of threads.
unsafe impl Send for Shared {}

fn message() -> String {
    let message = unsafe { CStr::from_ptr(persimmon_error_message()) };
    message.to_str().unwrap().to_owned()
}

fn client(Shared(fs, log): Shared, number: usize) {
    let path = |name: &str| CString::new(format!("/t{number}/{name}")).unwrap();
    unsafe {
        assert_eq!(persimmon_mkdir(fs, path("").as_ptr()), 0, "{}", message());
        for round in 0..ROUNDS {
            let line = format!("{number:02} {round:04}\n");
            let appended = persimmon_append(log, line.as_ptr(), line.len(), null_mut());
            assert_eq!(appended, 0, "{}", message());
            let (old, new) = (path(&format!("old{round}")), path(&format!("new{round}")));
            let (mut file, flags) = (
                null_mut(),
                PERSIMMON_OPEN_READ | PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE_NEW,
            );
            let opened = persimmon_open_file(fs, old.as_ptr(), flags, 0o600, &mut file);
            assert_eq!(opened, 0, "{}", message());
            let data = vec![number as u8; 3000 + round * 100];
            assert_eq!(persimmon_pwrite(file, data.as_ptr(), data.len(), 0), 0);
            if round % 8 == 0 {
                assert_eq!(persimmon_fsync(file), 0);
            }
            let mut read = null_mut();
            assert_eq!(persimmon_read_submit(file, data.len(), 0, &mut read), 0);
            let renamed = persimmon_rename(fs, old.as_ptr(), new.as_ptr(), 0);
            assert_eq!(renamed, 0, "{}", message());
            let (mut buffer, mut done) = (vec![0u8; data.len()], 0);
            let finished = persimmon_read_finish(read, buffer.as_mut_ptr(), data.len(), &mut done);
            assert_eq!((finished, done), (0, data.len()));
            assert_eq!(buffer, data);
            persimmon_file_close(file);
            // Each thread is told of its own failure.
            let missing = path(&format!("missing{round}"));
            assert_eq!(persimmon_unlink(fs, missing.as_ptr()), libc::ENOENT);
            let told = format!("/t{number}/missing{round}: no such file or directory");
            thread::yield_now();
            assert_eq!(message(), told);
        }
    }
}

#[test]
fn many_threads_use_one_volume_and_one_file() {
    let mut fs = null_mut();
    assert_eq!(unsafe { persimmon_open_in_memory(128 << 20, &mut fs) }, 0);
    let mut log = null_mut();
    let flags = PERSIMMON_OPEN_READ | PERSIMMON_OPEN_APPEND | PERSIMMON_OPEN_CREATE;
    let opened = unsafe { persimmon_open_file(fs, c"/log".as_ptr(), flags, 0o644, &mut log) };
    assert_eq!(opened, 0, "{}", message());
    let shared = Shared(fs, log);
    let clients: Vec<_> = (0..THREADS)
        .map(|number| {
            thread::spawn(move || {
                let shared = shared;
                client(shared, number);
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let mut text = vec![0u8; 8 * THREADS * ROUNDS];
    let mut done = 0;
    let read = unsafe { persimmon_pread(log, text.as_mut_ptr(), text.len(), 0, &mut done) };
    assert_eq!((read, done), (0, text.len()));
    // Each line once and whole, those of one thread in their order.
    let mut next = [0; THREADS];
    for line in text.chunks(8) {
        let line = std::str::from_utf8(line).unwrap();
        let number: usize = line[..2].parse().unwrap();
        let round: usize = line[3..7].parse().unwrap();
        assert_eq!(round, next[number]);
        next[number] += 1;
    }
    assert_eq!(next, [ROUNDS; THREADS]);
    unsafe {
        persimmon_file_close(log);
        assert_eq!(persimmon_close(fs), 0);
    }
}
