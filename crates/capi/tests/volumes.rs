//! Volumes through the functions of C: what is refused and by which number, options that grow, zones.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::ffi::CString;
use std::path::Path;
use std::ptr::{null, null_mut};

use persimmon_capi::*;
use support::{file, made, message, noise, opened};

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
            compression: std::ptr::null(),
            data_copies: 0,
            data_parity: 0,
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
        for at in 0..8 {
            let offset = at * data.len() as u64;
            let done = persimmon_pwrite(writer, data.as_ptr(), data.len(), offset);
            assert_eq!(done, 0);
        }
        assert_eq!(persimmon_checkpoint(fs), 0);
        // Zones that are half garbage.
        for at in (0..8 * data.len() as u64).step_by(8192) {
            assert_eq!(persimmon_pwrite(writer, data.as_ptr(), 4096, at), 0);
        }
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
        let (mut all, mut cleaning) = (
            std::mem::MaybeUninit::uninit(),
            std::mem::MaybeUninit::uninit(),
        );
        assert_eq!(persimmon_statistics(fs, all.as_mut_ptr()), 0);
        let told = persimmon_cleaning_statistics(fs, cleaning.as_mut_ptr());
        assert_eq!(told, 0);
        let (all, cleaning) = (all.assume_init(), cleaning.assume_init());
        assert!(cleaning.zones_waited_for + cleaning.zones_ahead > 0);
        assert!(cleaning.data_bytes > 0);
        let moved = (cleaning.blocks_moved, cleaning.stalls);
        assert_eq!(moved, (all.blocks_moved, all.stalls));
        let bytes = cleaning.data_bytes + cleaning.metadata_bytes;
        assert!(bytes <= cleaning.blocks_moved * 4096);
        let null = persimmon_cleaning_statistics(fs, null_mut());
        assert_eq!(null, libc::EINVAL);
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
                read_cache_bytes: 0,
                compression: std::ptr::null(),
                deltas: std::ptr::null(),
                dedup: std::ptr::null(),
                dedup_bytes: 0,
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

/// Less memory than a mount takes was raised in silence, and a size that nobody had set was read from memory behind the structure.
#[test]
fn options_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("v.img"));
    let open = |struct_size, cache_bytes, staging_bytes| {
        let options = persimmon_options {
            struct_size,
            read_only: 0,
            cache_bytes,
            staging_bytes,
            commit_milliseconds: 0,
            read_cache_bytes: 0,
            compression: std::ptr::null(),
            deltas: std::ptr::null(),
            dedup: std::ptr::null(),
            dedup_bytes: 0,
        };
        let mut fs = null_mut();
        let errno = unsafe { persimmon_open(image.as_ptr(), &options, &mut fs) };
        unsafe { persimmon_release(fs) };
        (errno, message())
    };
    let size = size_of::<persimmon_options>();
    let refused = |message: &str| (libc::EINVAL, message.to_owned());
    assert_eq!(open(size, 1, 0), refused("cache: 1 is less than 1M"));
    assert_eq!(open(size, 0, 1), refused("staging: 1 is less than 4M"));
    assert_eq!(open(size, 1 << 20, 4 << 20).0, 0);
    assert_eq!(open(size, 0, 0).0, 0);
    for size in [4097, usize::MAX] {
        let (errno, message) = open(size, 0, 0);
        assert_eq!(errno, libc::EINVAL);
        assert!(
            message.contains("no version of this library has"),
            "{message}"
        );
    }
}
