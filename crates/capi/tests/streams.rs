//! Snapshots sent and received through the functions of C.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null, null_mut};

use persimmon_capi::*;
use support::{file, made, message, noise, opened, size};

fn write(fs: *mut persimmon_fs, path: &CStr, data: &[u8], at: u64) {
    let writer = file(fs, path, PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
    unsafe {
        assert_eq!(persimmon_pwrite(writer, data.as_ptr(), data.len(), at), 0);
        persimmon_file_close(writer);
    }
}

fn read(fs: *mut persimmon_fs, path: &CStr) -> Vec<u8> {
    let reader = file(fs, path, PERSIMMON_OPEN_READ);
    let mut data = vec![0; size(fs, path) as usize];
    let mut got = 0;
    unsafe {
        let read = persimmon_pread(reader, data.as_mut_ptr(), data.len(), 0, &raw mut got);
        assert_eq!((read, got), (0, data.len()), "{}", message());
        persimmon_file_close(reader);
    }
    data
}

fn send(fs: *mut persimmon_fs, name: &CStr, from: Option<&CStr>, token: Option<&CStr>) -> File {
    let mut out = tempfile::tempfile().unwrap();
    let pointer = |text: Option<&CStr>| text.map_or(null(), CStr::as_ptr);
    let (from, token) = (pointer(from), pointer(token));
    let sent = unsafe { persimmon_send_snapshot(fs, name.as_ptr(), from, token, out.as_raw_fd()) };
    assert_eq!(sent, 0, "{}", message());
    out.seek(SeekFrom::Start(0)).unwrap();
    out
}

unsafe extern "C" fn count(data: *mut c_void, _: *const c_char, _: *const c_char) {
    // SAFETY: it is of this test.
    unsafe { *data.cast::<u32>() += 1 };
}

fn receive(fs: *mut persimmon_fs, stream: &File) -> i32 {
    let mut warnings = 0u32;
    let data = (&raw mut warnings).cast();
    let received = unsafe { persimmon_receive_snapshot(fs, stream.as_raw_fd(), Some(count), data) };
    assert_eq!(warnings, 0);
    received
}

fn token(fs: *mut persimmon_fs) -> Result<CString, i32> {
    let (mut buffer, mut length) = (vec![0u8; 4], 0);
    let mut ask = |buffer: &mut Vec<u8>| unsafe {
        persimmon_resume_token(fs, buffer.as_mut_ptr(), buffer.len(), &raw mut length)
    };
    match ask(&mut buffer) {
        libc::ERANGE => {}
        errno => return Err(errno),
    }
    buffer.resize(4096, 0);
    assert_eq!(ask(&mut buffer), 0, "{}", message());
    buffer.truncate(length);
    Ok(CString::new(buffer).unwrap())
}

fn volume(dir: &Path, name: &str) -> *mut persimmon_fs {
    opened(&made(&dir.join(name)))
}

#[test]
fn a_snapshot_and_what_changed_since_reach_another_volume() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (volume(dir.path(), "from.img"), volume(dir.path(), "to.img"));
    let data = noise(3 << 20);
    write(from, c"/a", &data, 0);
    let take = |name: &CStr| unsafe { persimmon_take_snapshot(from, name.as_ptr(), 0) };
    assert_eq!(take(c"one"), 0);
    write(from, c"/a", &data[..5000], 1 << 20);
    write(from, c"/b", b"new", 0);
    assert_eq!(take(c"two"), 0);

    // Cut, and gone on with.
    let whole = send(from, c"one", None, None);
    whole.set_len(2 << 20).unwrap();
    assert_eq!(token(to).unwrap_err(), libc::ENOENT);
    assert_eq!(receive(to, &whole), libc::ENODATA);
    let begun = token(to).unwrap();
    let rest = send(from, c"one", None, Some(&begun));
    assert_eq!(receive(to, &rest), 0, "{}", message());
    assert!(read(to, c"/a") == data);

    let changes = send(from, c"two", Some(c"one"), None);
    assert!(changes.metadata().unwrap().len() < 100_000);
    assert_eq!(receive(to, &changes), 0, "{}", message());
    for path in [c"/a", c"/b"] {
        assert!(read(to, path) == read(from, path));
    }
    unsafe {
        assert_eq!(persimmon_close(from), 0);
        assert_eq!(persimmon_close(to), 0);
    }
}

#[test]
fn what_cannot_be_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let fs = volume(dir.path(), "volume.img");
    let send = |name: *const c_char, token: *const c_char, fd| unsafe {
        persimmon_send_snapshot(fs, name, null(), token, fd)
    };
    assert_eq!(send(c"none".as_ptr(), null(), 1), libc::ENOENT);
    assert_eq!(send(null(), null(), 1), libc::EINVAL);
    assert_eq!(send(c"none".as_ptr(), null(), -1), libc::EBADF);
    assert_eq!(send(c"none".as_ptr(), c"x".as_ptr(), 1), libc::EINVAL);
    assert_eq!(
        unsafe { persimmon_take_snapshot(fs, c"own".as_ptr(), 1) },
        0
    );
    assert_eq!(send(c"own".as_ptr(), null(), 1), libc::EINVAL);
    let take_of = |of: &CStr, name: &CStr| unsafe {
        persimmon_take_snapshot_of(fs, of.as_ptr(), name.as_ptr(), 0)
    };
    assert_eq!(take_of(c"own", c"below"), 0);
    assert_eq!(take_of(c"none", c"x"), libc::ENOENT);
    assert_eq!(take_of(c"own", c"below"), libc::EEXIST);
    let receive = |fd| unsafe { persimmon_receive_snapshot(fs, fd, None, null_mut()) };
    assert_eq!(receive(-1), libc::EBADF);
    let nothing = tempfile::tempfile().unwrap();
    assert_ne!(receive(nothing.as_raw_fd()), 0);
    unsafe { assert_eq!(persimmon_close(fs), 0) };
}
