//! What the tests of the C library share.

#![allow(dead_code, reason = "each test has its own part of it")]

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{null, null_mut};

use persimmon_capi::*;

/// A volume in an image.
pub fn made(image: &Path) -> CString {
    let image = CString::new(image.to_str().unwrap()).unwrap();
    let options = persimmon_create_options {
        struct_size: size_of::<persimmon_create_options>(),
        size_bytes: 64 << 20,
        zone_bytes: 0,
        label: null(),
        reserve_basis_points_plus_one: 0,
        copies: 0,
        force: 0,
        compression: std::ptr::null(),
        data_copies: 0,
        data_parity: 0,
    };
    assert_eq!(unsafe { persimmon_create(image.as_ptr(), &options) }, 0);
    image
}

/// A handle to it.
pub fn opened(image: &CStr) -> *mut persimmon_fs {
    let mut fs = null_mut();
    assert_eq!(
        unsafe { persimmon_open(image.as_ptr(), null(), &mut fs) },
        0
    );
    fs
}

/// An open file.
pub fn file(fs: *mut persimmon_fs, path: &CStr, flags: u32) -> *mut persimmon_file {
    let mut file = null_mut();
    let errno = unsafe { persimmon_open_file(fs, path.as_ptr(), flags, 0o644, &mut file) };
    assert_eq!(errno, 0, "{}", message());
    file
}

/// Why the last call of this thread failed.
pub fn message() -> String {
    let message = unsafe { CStr::from_ptr(persimmon_error_message()) };
    message.to_str().unwrap().to_owned()
}

/// Of a file.
pub fn size(fs: *mut persimmon_fs, path: &CStr) -> u64 {
    let mut stat = std::mem::MaybeUninit::uninit();
    let errno = unsafe { persimmon_stat_path(fs, path.as_ptr(), stat.as_mut_ptr()) };
    assert_eq!(errno, 0, "{}", message());
    unsafe { stat.assume_init() }.size
}

/// Bytes that are nowhere else and do not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(|_| next()).collect()
}
