//! Files through the functions of C: what a call that failed tells, and what outlives the process.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::ptr::{null, null_mut};

use persimmon_capi::*;
use support::{file, made, message, noise, opened, size};

const BLOCK: usize = 4096;

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

/// An answer that does not fit tells its length, and what fits of it.
#[test]
fn an_answer_that_does_not_fit_tells_its_length() {
    let mut fs = null_mut();
    assert_eq!(unsafe { persimmon_open_in_memory(64 << 20, &mut fs) }, 0);
    let (link, target) = (c"/link", c"a-target-of-some-length");
    let mut buffer = [b'.'; 32];
    let mut length = 0;
    unsafe {
        assert_eq!(persimmon_symlink(fs, target.as_ptr(), link.as_ptr()), 0);
        let mut short = |bytes: usize| {
            let room = buffer.as_mut_ptr();
            let errno = persimmon_readlink(fs, link.as_ptr(), room, bytes, &mut length);
            (errno, length, buffer)
        };
        assert_eq!(short(0), (libc::ERANGE, 23, [b'.'; 32]));
        let (errno, length, held) = short(4);
        assert_eq!(
            (errno, length, &held[..6]),
            (libc::ERANGE, 23, &b"a-ta.."[..])
        );
        assert_eq!(message(), "the buffer is too short: 23 bytes are needed");
        let (errno, length, held) = short(32);
        assert_eq!((errno, &held[..length]), (0, target.to_bytes()));

        persimmon_file_close(file(
            fs,
            c"/f",
            PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE,
        ));
        let mut length = 0;
        for name in [c"user.one", c"user.two"] {
            let set = persimmon_setxattr(fs, c"/f".as_ptr(), name.as_ptr(), b"value".as_ptr(), 5);
            assert_eq!(set, 0, "{}", message());
        }
        let mut buffer = [0; 32];
        let (room, bytes) = (buffer.as_mut_ptr(), buffer.len());
        let got = persimmon_getxattr(
            fs,
            c"/f".as_ptr(),
            c"user.two".as_ptr(),
            room,
            bytes,
            &mut length,
        );
        assert_eq!((got, &buffer[..length]), (0, &b"value"[..]));
        let (room, path) = (buffer.as_mut_ptr(), c"/f".as_ptr());
        let none = persimmon_getxattr(fs, path, c"user.none".as_ptr(), room, 32, &mut length);
        assert_eq!(none, libc::ENODATA);
        assert_eq!(persimmon_listxattr(fs, path, room, 32, &mut length), 0);
        let mut names: Vec<_> = buffer[..length]
            .split_inclusive(|byte| *byte == 0)
            .collect();
        names.sort_unstable();
        assert_eq!(names, [&b"user.one\0"[..], b"user.two\0"]);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// NULL in the place of a read was answered as a read of nothing, and one that polls it never ended.
#[test]
fn a_read_that_is_none_is_refused_at_once() {
    let (mut buffer, mut done) = ([0u8; 4], 7);
    unsafe {
        assert_eq!(persimmon_read_is_done(null()), 1);
        let finished = persimmon_read_finish(null_mut(), buffer.as_mut_ptr(), 4, &mut done);
        assert_eq!(finished, libc::EINVAL);
        persimmon_read_abort(null_mut());
    }
}

/// A length that no memory can have was undefined behavior; for a batch the answers were written far behind its end.
#[test]
fn lengths_that_no_memory_can_have_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fs = opened(&made(&dir.path().join("v.img")));
    let flags = PERSIMMON_OPEN_READ | PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE;
    let file = file(fs, c"/f", flags);
    let (mut byte, mut done) = (7u8, 0usize);
    let huge = isize::MAX as usize + 1;
    unsafe {
        assert_eq!(persimmon_pwrite(file, &byte, huge, 0), libc::EINVAL);
        assert!(message().contains("more than memory can have"));
        let read = persimmon_pread(file, &mut byte, huge, 0, &mut done);
        assert_eq!(read, libc::EINVAL);
        let mut batch = [persimmon_read_request {
            offset: 0,
            buffer: &mut byte,
            len: 1,
            done: 5,
            error: -1,
        }];
        let count = isize::MAX as usize / size_of_val(&batch[0]) + 1;
        for count in [count, usize::MAX] {
            let errno = persimmon_read_batch(file, batch.as_mut_ptr(), count);
            assert_eq!(errno, libc::EINVAL);
            assert_eq!((batch[0].done, batch[0].error), (5, -1));
        }
        batch[0].len = huge;
        let errno = persimmon_read_batch(file, batch.as_mut_ptr(), 1);
        assert_eq!((errno, batch[0].error), (libc::EINVAL, libc::EINVAL));
        assert_eq!(byte, 7);
        persimmon_file_close(file);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// Nothing looked at what becomes of the number that a caller of C gives: a lifetime that reached no zone would have shown as write
/// amplification alone.
#[test]
fn a_lifetime_that_is_told_is_that_of_the_zones() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    // So many blocks of each, that sums tell what went where.
    let told = [
        (c"/short", PERSIMMON_LIFETIME_SHORT, 16),
        (c"/medium", PERSIMMON_LIFETIME_MEDIUM, 32),
        (c"/long", PERSIMMON_LIFETIME_LONG, 64),
        (c"/extreme", PERSIMMON_LIFETIME_EXTREME, 128),
    ];
    for (path, lifetime, blocks) in told {
        let writer = file(fs, path, PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
        let data = noise(blocks * BLOCK);
        unsafe {
            assert_eq!(persimmon_set_lifetime(writer, lifetime), 0);
            assert_eq!(persimmon_pwrite(writer, data.as_ptr(), data.len(), 0), 0);
            assert_eq!(persimmon_fsync(writer), 0);
            assert_eq!(persimmon_set_lifetime(writer, 6), libc::EINVAL);
            persimmon_file_close(writer);
        }
    }
    assert_eq!(unsafe { persimmon_close(fs) }, 0);

    let volume = persimmon::Filesystem::open(
        dir.path().join("volume.img"),
        &persimmon::Options::default(),
    )
    .unwrap();
    let zones = volume.zones();
    for (class, (path, _, blocks)) in (1..).zip(told) {
        let of_class = zones.iter().filter(|zone| zone.entry.lifetime == class);
        let live: u32 = of_class.map(|zone| zone.entry.valid).sum();
        assert_eq!(live as usize, blocks, "{path:?}");
    }
    volume.close().unwrap();
}

/// A billion nanoseconds and more were stored as one less than a billion.
#[test]
fn a_time_has_less_than_a_billion_nanoseconds() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    let made = file(fs, c"/f", PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
    let time = |nanoseconds| persimmon_time {
        seconds: 7,
        nanoseconds,
    };
    let (last, first_beyond) = (time(999_999_999), time(1_000_000_000));
    unsafe {
        let set = |atime, mtime| persimmon_set_times(fs, c"/f".as_ptr(), atime, mtime);
        assert_eq!(set(&last, &last), 0);
        assert_eq!(set(null(), &first_beyond), libc::EINVAL);
        assert!(message().contains("nanoseconds"), "{}", message());
        assert_eq!(set(&time(u32::MAX), null()), libc::EINVAL);
        let mut stat = std::mem::MaybeUninit::uninit();
        assert_eq!(persimmon_fstat(made, stat.as_mut_ptr()), 0);
        let stat = stat.assume_init();
        assert_eq!(
            (stat.mtime.seconds, stat.mtime.nanoseconds),
            (7, 999_999_999)
        );
        assert_eq!(persimmon_allocate(made, 0, 4096, 6), libc::EINVAL);
        assert_eq!(message(), "allocating has the ways 0 to 5");
        persimmon_file_close(made);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// `nope/` was made as the file `nope`.
#[test]
fn a_slash_at_the_end_and_an_empty_path_name_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    let making = PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE;
    let made = file(fs, c"/f", making);
    let mut none = null_mut();
    unsafe {
        let mut open = |path: &std::ffi::CStr| {
            persimmon_open_file(fs, path.as_ptr(), making, 0o644, &mut none)
        };
        assert_eq!(open(c"/nope/"), libc::EISDIR);
        assert_eq!(open(c""), libc::ENOENT);
        assert_eq!(persimmon_unlink(fs, c"/f/".as_ptr()), libc::ENOTDIR);
        assert_eq!(persimmon_unlink(fs, c"".as_ptr()), libc::ENOENT);
        persimmon_file_close(made);
        assert_eq!(persimmon_close(fs), 0);
    }
}

/// It was taken for written, though the file cannot be written.
#[test]
fn nothing_is_not_written_to_a_file_that_is_read() {
    let mut fs = null_mut();
    assert_eq!(unsafe { persimmon_open_in_memory(64 << 20, &mut fs) }, 0);
    let writer = file(fs, c"/f", PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
    let reader = file(fs, c"/f", PERSIMMON_OPEN_READ);
    unsafe {
        assert_eq!(persimmon_pwrite(writer, null(), 0, 0), 0);
        assert_eq!(persimmon_pwrite_flush(writer, null(), 0, 0), 0);
        assert_eq!(persimmon_pwrite(reader, null(), 0, 0), libc::EBADF);
        assert_eq!(persimmon_pwrite_flush(reader, null(), 0, 0), libc::EBADF);
        persimmon_file_close(reader);
        persimmon_file_close(writer);
        assert_eq!(persimmon_close(fs), 0);
    }
}
