//! A child of `fork` that has its parent's volume, and ends as programs do: what it did with it at its end, in a handler of `atexit` or a
//! destructor, went over what its parent had been told is durable.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::ffi::c_int;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use persimmon_capi::*;
use support::{file, message, noise, opened, size};

const IMAGE: &str = "PERSIMMON_TEST_IMAGE";
const BYTES: usize = 256 << 10;
const WRITE: u32 = PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE;
/// A child that waits for a thread or lock of its parent is ended by its alarm.
const PATIENCE_SECONDS: u32 = 60;

static VOLUME: AtomicPtr<persimmon_fs> = AtomicPtr::new(null_mut());

extern "C" fn leave() {
    unsafe {
        let _ = persimmon_sync(VOLUME.load(Ordering::SeqCst));
    }
}

/// What the process has of its volume.
struct Objects {
    file: *mut persimmon_file,
    dir: *mut persimmon_dir,
    read: *mut persimmon_read,
    finish: *mut persimmon_read,
}

/// All that the child may try. The answer is its exit status: 0, or the number of the try that was not as it has to be.
fn tries(fs: *mut persimmon_fs, objects: &Objects) -> c_int {
    let mut failed = 0;
    let mut number = 0;
    let mut check = |holds: bool| {
        number += 1;
        if !holds && failed == 0 {
            failed = number;
            eprintln!("try {number}: {}", message());
        }
    };
    let (mut buffer, mut done) = ([0u8; 4096], 0usize);
    let (place, len) = (buffer.as_mut_ptr(), buffer.len());
    unsafe {
        check(persimmon_sync(fs) == libc::EBADF);
        check(message().contains("before this process was forked"));
        check(persimmon_mkdir(fs, c"/child".as_ptr()) == libc::EBADF);
        let mut clone = null_mut();
        check(persimmon_clone(fs, &mut clone) == libc::EBADF);
        check(persimmon_pwrite(objects.file, place, len, 0) == libc::EBADF);
        check(persimmon_pwrite_flush(objects.file, place, len, 0) == libc::EBADF);
        check(persimmon_fsync(objects.file) == libc::EBADF);
        let mut entry = std::mem::MaybeUninit::uninit();
        check(persimmon_readdir(objects.dir, entry.as_mut_ptr()) == libc::EBADF);
        check(persimmon_read_is_done(objects.read) == 1);
        check(persimmon_read_finish(objects.finish, place, len, &mut done) == libc::EBADF);
        persimmon_read_abort(objects.read);
        persimmon_closedir(objects.dir);
        persimmon_file_close(objects.file);
        check(persimmon_close(fs) == libc::EBADF);
        // A volume of its own it can use.
        let mut own = null_mut();
        check(persimmon_open_in_memory(64 << 20, &mut own) == 0);
        let own_file = file(own, c"/own", WRITE);
        check(persimmon_pwrite(own_file, place, len, 0) == 0);
        check(persimmon_fsync(own_file) == 0);
        persimmon_file_close(own_file);
        check(persimmon_close(own) == 0);
    }
    failed
}

/// Part of the test below, in a process of its own: it forks one that ends, and is then killed.
#[test]
fn parent_of_a_child_that_ends() {
    let Ok(image) = std::env::var(IMAGE) else {
        return;
    };
    let fs = opened(&std::ffi::CString::new(image).unwrap());
    VOLUME.store(fs, Ordering::SeqCst);
    assert_eq!(unsafe { libc::atexit(leave) }, 0);
    let data = noise(BYTES);
    let before = file(fs, c"/before", WRITE | PERSIMMON_OPEN_READ);
    let mut objects = Objects {
        file: before,
        dir: null_mut(),
        read: null_mut(),
        finish: null_mut(),
    };
    let mut pipe = [0; 2];
    unsafe {
        assert_eq!(persimmon_pwrite(before, data.as_ptr(), data.len(), 0), 0);
        assert_eq!(persimmon_opendir(fs, c"/".as_ptr(), &mut objects.dir), 0);
        for read in [&mut objects.read, &mut objects.finish] {
            assert_eq!(persimmon_read_submit(before, 4096, 0, read), 0);
        }
        // No thread is at work in the library while it forks: the child has a volume of its own, and needs what they share.
        while persimmon_read_is_done(objects.read) + persimmon_read_is_done(objects.finish) < 2 {
            std::thread::yield_now();
        }
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            wait_for_parent(pipe[0]);
            libc::exit(tries(fs, &objects));
        }
        let after = file(fs, c"/after", WRITE);
        assert_eq!(persimmon_pwrite(after, data.as_ptr(), data.len(), 0), 0);
        assert_eq!(persimmon_fsync(after), 0);
        assert_eq!(libc::write(pipe[1], b"!".as_ptr().cast(), 1), 1);
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        // It goes on as if there had been no child.
        assert_eq!(persimmon_pwrite(after, data.as_ptr(), 4096, 0), 0);
        assert_eq!(persimmon_fsync(after), 0, "{}", message());
        println!("the child: {status}");
        libc::_exit(c_int::from(status != 0));
    }
}

/// In the child: until the parent writes to the pipe, and not for ever.
fn wait_for_parent(pipe: c_int) {
    let mut word = 0u8;
    unsafe {
        libc::alarm(PATIENCE_SECONDS);
        libc::read(pipe, (&raw mut word).cast(), 1);
    }
}

#[test]
fn a_forked_child_leaves_the_volume_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let image = support::made(&path);
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parent_of_a_child_that_ends", "--nocapture"])
        .env(IMAGE, &path)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let fs = opened(&image);
    assert_eq!(size(fs, c"/after"), BYTES as u64);
    let (mut content, mut done) = (vec![0; BYTES], 0);
    let file = file(fs, c"/after", PERSIMMON_OPEN_READ);
    let read = unsafe { persimmon_pread(file, content.as_mut_ptr(), BYTES, 0, &mut done) };
    assert_eq!((read, done), (0, BYTES), "{}", message());
    assert!(content == noise(BYTES));
    unsafe {
        persimmon_file_close(file);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// The child has the descriptor that the volume is locked by: the volume was busy until the child ended, though it was closed.
#[test]
fn a_closed_volume_is_free_though_a_child_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let image = support::made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    let mut pipe = [0; 2];
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            wait_for_parent(pipe[0]);
            libc::_exit(0);
        }
        let mut again = null_mut();
        let open = |fs| persimmon_open(image.as_ptr(), std::ptr::null(), fs);
        assert_eq!(open(&mut again), libc::EBUSY);
        assert_eq!(persimmon_close(fs), 0);
        assert_eq!(open(&mut again), 0, "{}", message());
        assert_eq!(persimmon_close(again), 0);
        assert_eq!(libc::write(pipe[1], b"!".as_ptr().cast(), 1), 1);
        assert_eq!(libc::waitpid(child, null_mut(), 0), child);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}
