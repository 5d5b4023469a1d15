//! What is refused before anything is made, and what is made.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use persimmon::{Create, Filesystem, FormatOptionsError, Options, VolumeError};

fn refused(path: &Path, create: &Create) -> FormatOptionsError {
    let error = Filesystem::create(path, create).unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with(path.to_str().unwrap()), "{told}");
    assert_eq!(error.errno(), 22, "EINVAL");
    match error.volume() {
        Some(VolumeError::Options(why)) => why.clone(),
        _ => panic!("{error}"),
    }
}

/// A label of 65 bytes was cut without a word, 7 copies were refused when the image was there already, and a reserve of
/// 200 % made a volume of no bytes.
#[test]
fn arguments_are_checked_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let usual = Create::sized(64 << 20);
    let label = Create {
        label: "x".repeat(65),
        ..usual.clone()
    };
    let bytes = 65;
    assert_eq!(refused(&path, &label), FormatOptionsError::Label { bytes });
    let copies = 7;
    let many = Create {
        copies,
        ..usual.clone()
    };
    assert_eq!(refused(&path, &many), FormatOptionsError::Copies { copies });
    let basis_points = 20_000;
    let more = Create {
        reserve_basis_points: Some(basis_points),
        ..usual.clone()
    };
    let why = FormatOptionsError::ReserveOfMore { basis_points };
    assert_eq!(refused(&path, &more), why);
    let all = Create {
        reserve_basis_points: Some(9_999),
        ..usual.clone()
    };
    let why = refused(&path, &all);
    assert!(matches!(why, FormatOptionsError::Reserve { .. }), "{why}");
    let tiny = Create::sized(2 << 20);
    assert!(Filesystem::create(&path, &tiny).is_err());
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());

    // Nor is what is there touched.
    Filesystem::create(&path, &usual).unwrap();
    let before = std::fs::read(&path).unwrap();
    for wrong in [label, many, more, all] {
        let forced = Create {
            force: true,
            ..wrong
        };
        refused(&path, &forced);
    }
    assert!(std::fs::read(&path).unwrap() == before);
}

/// The number was guessed by a look at the path afterwards: of an image that may not be opened, in a folder that may be looked at, it was
/// that of a broken device.
#[test]
fn what_the_system_says_is_told_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    // A name that is no UTF-8.
    let looped = dir.path().join(OsStr::from_bytes(b"\xff"));
    symlink(&looped, &looped).unwrap();
    let below = dir.path().join("missing/volume.img");
    let (create, options) = (Create::sized(64 << 20), Options::default());
    let errno = |result: persimmon::Result<()>| result.unwrap_err().errno();
    assert_eq!(errno(Filesystem::create(&below, &create)), libc::ENOENT);
    assert_eq!(errno(Filesystem::create(&looped, &create)), libc::ELOOP);
    for (path, number) in [(&below, libc::ENOENT), (&looped, libc::ELOOP)] {
        assert_eq!(errno(Filesystem::open(path, &options).map(drop)), number);
    }
    // Root may open everything.
    let image = dir.path().join("image");
    Filesystem::create(&image, &create).unwrap();
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&image).is_err() {
        assert_eq!(
            errno(Filesystem::open(&image, &options).map(drop)),
            libc::EACCES
        );
    }
}

#[test]
fn an_image_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    Filesystem::create(&path, &Create::sized(64 << 20)).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}
