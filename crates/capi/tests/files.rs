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

/// Numbers say what is wrong with making or opening a volume: all of these were EIO.
#[test]
fn what_is_wrong_with_a_volume_has_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let text = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let mut fs = null_mut();
    let mut open = |path: &Path| unsafe { persimmon_open(text(path).as_ptr(), null(), &mut fs) };
    assert_eq!(open(&path), libc::ENOENT, "{}", message());
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let foreign = open(&path);
    assert_ne!(foreign, 0);
    assert!(message().contains(path.to_str().unwrap()), "{}", message());
    std::fs::remove_file(&path).unwrap();

    let create = |copies, reserve| {
        let label = CString::new("x".repeat(65)).unwrap();
        let options = persimmon_create_options {
            struct_size: size_of::<persimmon_create_options>(),
            size_bytes: 64 << 20,
            zone_bytes: 0,
            label: if copies == 1 && reserve == 0 {
                label.as_ptr()
            } else {
                null()
            },
            reserve_basis_points_plus_one: reserve,
            copies,
            force: 0,
        };
        let errno = unsafe { persimmon_create(text(&path).as_ptr(), &options) };
        (errno, message())
    };
    let said = |words: &str| (libc::EINVAL, format!("{}: {words}", path.display()));
    assert_eq!(create(1, 0), said("the label is 65 bytes long; 64 fit"));
    assert_eq!(
        create(7, 1),
        said("7 copies of the metadata: there can be 1 or 2")
    );
    assert_eq!(
        create(1, 20_001),
        said("a reserve of 200.00 % is more than the whole volume")
    );
    assert!(!path.exists());

    let image = made(&path);
    let fs = opened(&image);
    let mut again = null_mut();
    let busy = unsafe { persimmon_open(image.as_ptr(), null(), &mut again) };
    assert_eq!(busy, libc::EBUSY);
    let mut more = null_mut();
    unsafe {
        assert_eq!(persimmon_clone(fs, &mut more), 0);
        persimmon_abandon(fs);
        assert_eq!(persimmon_close(more), libc::EROFS);
    }
    assert_eq!(message(), "the volume was abandoned");
}

#[test]
fn zones_are_told_cleaned_and_verified() {
    let mut fs = null_mut();
    assert_eq!(unsafe { persimmon_open_in_memory(64 << 20, &mut fs) }, 0);
    let writer = file(fs, c"/f", PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
    let data = noise(1 << 20);
    unsafe {
        assert_eq!(persimmon_pwrite(writer, data.as_ptr(), data.len(), 0), 0);
        persimmon_file_close(writer);
        assert_eq!(persimmon_checkpoint(fs), 0);
        let mut count = 0;
        assert_eq!(persimmon_zones(fs, null_mut(), 0, &mut count), libc::ERANGE);
        let mut zones = Vec::with_capacity(count);
        let told = persimmon_zones(fs, zones.as_mut_ptr(), count, &mut count);
        assert_eq!(told, 0);
        zones.set_len(count);
        let live = |role| {
            let zones = zones
                .iter()
                .filter(|zone: &&persimmon_zone| zone.role == role);
            zones.map(|zone| zone.valid_blocks).sum::<u32>()
        };
        assert!(live(PERSIMMON_ZONE_DATA) >= 256);
        assert!(live(PERSIMMON_ZONE_METADATA) > 0);
        assert_eq!(live(PERSIMMON_ZONE_FREE), 0);
        assert!(
            zones
                .iter()
                .all(|zone| zone.health == PERSIMMON_ZONE_HEALTHY)
        );
        assert_eq!(persimmon_clean(fs, u32::MAX, null_mut()), 0);
        let mut cleaned = std::mem::MaybeUninit::uninit();
        assert_eq!(persimmon_clean(fs, 1, cleaned.as_mut_ptr()), 0);
        assert_eq!(cleaned.assume_init().reached, 1);
        let mut scrubbed = std::mem::MaybeUninit::uninit();
        assert_eq!(persimmon_scrub(fs, scrubbed.as_mut_ptr()), 0);
        let scrubbed = scrubbed.assume_init();
        assert!(scrubbed.bytes > 1 << 20 && scrubbed.damaged == 0);
        assert_eq!(persimmon_close(fs), 0);
    }
    assert_eq!(persimmon_version() >> 16, PERSIMMON_VERSION_MAJOR);
}

/// Options as programs know them that were built with an older and with a newer header.
#[repr(C)]
struct Newer {
    options: persimmon_options,
    added: u64,
}

/// An option that the library does not know was ignored without a word.
#[test]
fn options_of_a_newer_header_are_refused_where_they_say_anything() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let open = |struct_size, added| {
        let options = Newer {
            options: persimmon_options {
                struct_size,
                read_only: 1,
                cache_bytes: 0,
                staging_bytes: 0,
                commit_milliseconds: 0,
            },
            added,
        };
        let mut fs = null_mut();
        let pointer = (&raw const options).cast();
        let errno = unsafe { persimmon_open(image.as_ptr(), pointer, &mut fs) };
        unsafe { persimmon_release(fs) };
        errno
    };
    assert_eq!(open(size_of::<Newer>(), 0), 0);
    assert_eq!(open(size_of::<Newer>(), 1), libc::EINVAL);
    assert!(message().contains("does not know"), "{}", message());
    // The size and `read_only` are all that this one has.
    assert_eq!(open(size_of::<usize>() + 4, 1), 0);
    assert_eq!(open(3, 0), libc::EINVAL);
}
