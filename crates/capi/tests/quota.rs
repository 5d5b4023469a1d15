//! Quota through the functions of C.

#![allow(unsafe_code, reason = "the caller's side of the edge to C")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::ffi::c_void;

use persimmon_capi::*;
use support::{file, made, noise, opened};

unsafe extern "C" fn note(data: *mut c_void, kind: u32, id: u32, quota: *const persimmon_quota) {
    // SAFETY: both are of this test.
    let (seen, quota) = unsafe { (&mut *data.cast::<Vec<(u32, u32, u64)>>(), &*quota) };
    seen.push((kind, id, quota.bytes_hard));
}

#[test]
fn a_tree_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(&dir.path().join("volume.img"));
    let fs = opened(&image);
    let none = persimmon_quota {
        bytes: 0,
        bytes_soft: 0,
        bytes_hard: 0,
        bytes_grace_end: 0,
        inodes: 0,
        inodes_soft: 0,
        inodes_hard: 0,
        inodes_grace_end: 0,
    };
    let limits = persimmon_quota {
        bytes_hard: 1 << 20,
        ..none
    };
    let project = PERSIMMON_QUOTA_PROJECT;
    let set = || unsafe { persimmon_set_quota(fs, project, 7, &raw const limits) };
    assert_eq!(set(), libc::EOPNOTSUPP);
    assert_eq!(unsafe { persimmon_turn_quota(fs, 1) }, 0);
    assert_eq!(set(), 0);
    let unknown = unsafe { persimmon_set_quota(fs, 4, 7, &raw const limits) };
    assert_eq!(unknown, libc::EINVAL);
    assert_eq!(unsafe { persimmon_mkdir(fs, c"/tree".as_ptr()) }, 0);
    let named = unsafe { persimmon_set_project(fs, c"/tree".as_ptr(), 7) };
    assert_eq!(named, 0);
    let writer = file(fs, c"/tree/f", PERSIMMON_OPEN_WRITE | PERSIMMON_OPEN_CREATE);
    let data = noise(1 << 20);
    let write = |at| unsafe { persimmon_pwrite(writer, data.as_ptr(), data.len(), at) };
    assert_eq!(write(0), 0);
    assert_eq!(write(1 << 20), libc::EDQUOT);
    let mut told = none;
    let got = unsafe { persimmon_get_quota(fs, project, 7, &raw mut told) };
    assert_eq!((got, told.bytes, told.inodes), (0, 1 << 20, 2));
    let mut space = std::mem::MaybeUninit::uninit();
    for path in [c"/tree", c"/tree/f"] {
        let told = unsafe { persimmon_statfs_path(fs, path.as_ptr(), space.as_mut_ptr()) };
        let space: persimmon_space = unsafe { space.assume_init() };
        let bytes = (space.total_bytes, space.available_bytes);
        assert_eq!((told, bytes), (0, (1 << 20, 0)), "{path:?}");
    }
    let told = unsafe { persimmon_fstatfs(writer, space.as_mut_ptr()) };
    assert_eq!(
        (told, unsafe { space.assume_init() }.available_bytes),
        (0, 0)
    );
    let told = unsafe { persimmon_statfs_path(fs, c"/".as_ptr(), space.as_mut_ptr()) };
    assert_eq!(told, 0);
    assert!(unsafe { space.assume_init() }.available_bytes > 16 << 20);
    let mut seen: Vec<(u32, u32, u64)> = Vec::new();
    let listed = unsafe { persimmon_list_quota(fs, Some(note), (&raw mut seen).cast()) };
    assert_eq!(listed, 0);
    assert!(seen.contains(&(project, 7, 1 << 20)), "{seen:?}");
    unsafe {
        persimmon_file_close(writer);
        assert_eq!(persimmon_turn_quota(fs, 0), 0);
        assert_eq!(persimmon_close(fs), 0);
    }
}
