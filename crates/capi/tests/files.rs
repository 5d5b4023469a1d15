//! Files through the functions of C: what a call that failed tells, and what outlives the process.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{null, null_mut};

use persimmon_capi::*;

const BLOCK: usize = 4096;

fn made(image: &Path) -> CString {
    let image = CString::new(image.to_str().unwrap()).unwrap();
    let options = persimmon_create_options {
        struct_size: size_of::<persimmon_create_options>(),
        size_bytes: 64 << 20,
        zone_bytes: 0,
        label: null(),
        reserve_basis_points_plus_one: 0,
        copies: 0,
        force: 0,
    };
    assert_eq!(unsafe { persimmon_create(image.as_ptr(), &options) }, 0);
    image
}

fn opened(image: &CStr) -> *mut persimmon_fs {
    let mut fs = null_mut();
    assert_eq!(
        unsafe { persimmon_open(image.as_ptr(), null(), &mut fs) },
        0
    );
    fs
}

fn file(fs: *mut persimmon_fs, path: &CStr, flags: u32) -> *mut persimmon_file {
    let mut file = null_mut();
    let errno = unsafe { persimmon_open_file(fs, path.as_ptr(), flags, 0o644, &mut file) };
    assert_eq!(errno, 0, "{}", message());
    file
}

fn message() -> String {
    let message = unsafe { CStr::from_ptr(persimmon_error_message()) };
    message.to_str().unwrap().to_owned()
}

fn size(fs: *mut persimmon_fs, path: &CStr) -> u64 {
    let mut stat = std::mem::MaybeUninit::uninit();
    let errno = unsafe { persimmon_stat_path(fs, path.as_ptr(), stat.as_mut_ptr()) };
    assert_eq!(errno, 0, "{}", message());
    unsafe { stat.assume_init() }.size
}

/// Ranges of a block each, told that they went well and read a whole one: what a caller's memory may hold.
fn requests(buffers: &mut [[u8; BLOCK]]) -> Vec<persimmon_read_request> {
    let each = buffers.iter_mut().zip(0u64..);
    each.map(|(buffer, number)| persimmon_read_request {
        offset: number * BLOCK as u64,
        buffer: buffer.as_mut_ptr(),
        len: BLOCK,
        done: BLOCK,
        error: 0,
    })
    .collect()
}

/// A batch that failed as a whole left the requests as they were. A caller that looked at them alone, as the plugin for RocksDB did, took
/// what was in its memory for what was read.
#[test]
fn a_batch_that_fails_as_a_whole_says_so_in_each_request() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    let writer = file(fs, c"/f", PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
    let data = [7; 2 * BLOCK];
    let written = unsafe { persimmon_pwrite(writer, data.as_ptr(), data.len(), 0) };
    assert_eq!(written, 0);
    let mut buffers = [[0; BLOCK]; 2];
    let told = |requests: &[persimmon_read_request]| -> Vec<(usize, i32)> {
        requests.iter().map(|r| (r.done, r.error)).collect()
    };

    // Not open for reading.
    let mut batch = requests(&mut buffers);
    let errno = unsafe { persimmon_read_batch(writer, batch.as_mut_ptr(), 2) };
    assert_eq!(errno, libc::EBADF);
    assert_eq!(told(&batch), [(0, libc::EBADF); 2]);

    // Arguments that cannot be.
    let reader = file(fs, c"/f", PERSIMMON_OPEN_READ);
    let mut batch = requests(&mut buffers);
    batch[1].buffer = null_mut();
    let errno = unsafe { persimmon_read_batch(reader, batch.as_mut_ptr(), 2) };
    assert_eq!(errno, libc::EINVAL);
    assert_eq!(told(&batch), [(0, libc::EINVAL); 2]);
    let mut batch = requests(&mut buffers);
    let errno = unsafe { persimmon_read_batch(null(), batch.as_mut_ptr(), 2) };
    assert_eq!(errno, libc::EINVAL);
    assert_eq!(told(&batch), [(0, libc::EINVAL); 2]);
    let none = unsafe { persimmon_read_batch(reader, null_mut(), 2) };
    assert_eq!(none, libc::EINVAL);
    assert_eq!(message(), "the requests are NULL");

    let mut batch = requests(&mut buffers);
    let errno = unsafe { persimmon_read_batch(reader, batch.as_mut_ptr(), 2) };
    assert_eq!(errno, 0);
    assert_eq!(told(&batch), [(BLOCK, 0); 2]);
    assert_eq!(buffers, [[7; BLOCK]; 2]);
    unsafe {
        persimmon_file_close(writer);
        persimmon_file_close(reader);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// Bytes that are nowhere else and do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(|_| next()).collect()
}

/// One range of several is damaged: it alone fails, and the call says that not all went well.
#[test]
fn a_damaged_range_of_a_batch_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let image = made(&path);
    let fs = opened(&image);
    let (data, spared) = (noise(256 << 10), [9; BLOCK]);
    for (name, content) in [(c"/damaged", &data[..]), (c"/f", &spared[..])] {
        let writer = file(fs, name, PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
        unsafe {
            let (bytes, len) = (content.as_ptr(), content.len());
            assert_eq!(persimmon_pwrite(writer, bytes, len, 0), 0);
            persimmon_file_close(writer);
        }
    }
    assert_eq!(unsafe { persimmon_close(fs) }, 0);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(64)
        .position(|window| window == &data[BLOCK..BLOCK + 64])
        .unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let fs = opened(&image);
    let reader = file(fs, c"/damaged", PERSIMMON_OPEN_READ);
    let mut buffers = [[0; BLOCK]; 3];
    let mut batch = requests(&mut buffers);
    let errno = unsafe { persimmon_read_batch(reader, batch.as_mut_ptr(), 3) };
    assert_eq!(errno, libc::EIO);
    let told: Vec<_> = batch.iter().map(|r| (r.done, r.error)).collect();
    assert_eq!(told, [(BLOCK, 0), (0, libc::EIO), (BLOCK, 0)]);
    assert_eq!(buffers[2][..], data[2 * BLOCK..3 * BLOCK]);
    unsafe {
        persimmon_file_close(reader);
        persimmon_abandon(fs);
    }
}

/// An append has answered: it is there after the process, where the file was opened to write through or was flushed. A volume that is
/// abandoned is as the death of the process leaves it.
#[test]
fn what_is_written_through_or_flushed_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    let append = PERSIMMON_OPEN_APPEND | PERSIMMON_OPEN_CREATE;
    let through = file(fs, c"/through", append | PERSIMMON_OPEN_WRITE_THROUGH);
    let flushed = file(fs, c"/flushed", append);
    let put = |file, times| {
        for _ in 0..times {
            let line = b"a line of the log\n";
            let errno = unsafe { persimmon_append(file, line.as_ptr(), line.len(), null_mut()) };
            assert_eq!(errno, 0, "{}", message());
        }
    };
    put(through, 100);
    put(flushed, 100);
    assert_eq!(unsafe { persimmon_flush(flushed) }, 0);
    // Neither of these.
    put(flushed, 1);
    let neither = file(fs, c"/neither", append);
    put(neither, 100);
    unsafe {
        assert_eq!(persimmon_flush(null()), libc::EINVAL);
        for file in [through, flushed, neither] {
            persimmon_file_close(file);
        }
        persimmon_abandon(fs);
    }
    let fs = opened(&image);
    assert_eq!(size(fs, c"/through"), 1800);
    assert_eq!(size(fs, c"/flushed"), 1800);
    let mut stat = std::mem::MaybeUninit::uninit();
    let errno = unsafe { persimmon_stat_path(fs, c"/neither".as_ptr(), stat.as_mut_ptr()) };
    let neither = (errno == 0).then(|| unsafe { stat.assume_init() }.size);
    assert!(matches!(neither, None | Some(0)), "{neither:?}");
    assert_eq!(unsafe { persimmon_close(fs) }, 0);
}
