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

/// 100 TiB of zones of 1 MiB were made as 4 TiB, zones of 1 MiB and a byte were rounded, and 272 TB fitted into memory.
#[test]
fn a_shape_that_no_image_can_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let of = |size_bytes, zone_bytes| Create {
        zone_bytes,
        ..Create::sized(size_bytes)
    };
    let refused = |create: &Create, why: &str| {
        let error = Filesystem::create(&path, create).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
        let told = error.to_string();
        assert!(told.starts_with(path.to_str().unwrap()), "{told}");
        assert!(told.contains(why), "{told}");
    };
    refused(
        &of(100 << 40, Some(1 << 20)),
        "make it of zones of 32 MiB, or smaller",
    );
    refused(
        &of(64 << 20, Some((1 << 20) + 1)),
        "1048577 is not a multiple of 4096 bytes",
    );
    refused(&of(64 << 20, Some(512 << 10)), "it is 1 MiB to 4 GiB");
    refused(&of(1 << 40, Some(8 << 30)), "it is 1 MiB to 4 GiB");
    refused(&of(1 << 40, Some(1 << 50)), "are too many");
    refused(&of(u64::MAX, None), "4194304 zones");
    refused(&of(1, None), "cannot carry a volume");
    refused(&of(0, None), "is new or empty: tell its size");
    let error = Filesystem::in_memory(u64::MAX).map(drop).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    let pair = persimmon::device::uri(&dir.path().join("meta"), &path);
    let wide = Create {
        metadata_size_bytes: u64::MAX,
        ..Create::sized(1 << 30)
    };
    let error = Filesystem::create(&pair, &wide).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL, "{error}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}

fn size(path: &Path) -> u64 {
    let fs = Filesystem::open(path, &Options::read_only()).unwrap();
    fs.statfs().unwrap().blocks
}

/// A file or block device that is there has a size.
#[test]
fn all_of_what_is_there_is_used_where_no_size_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = (dir.path().join("file"), dir.path().join("volume.img"));
    std::fs::File::create(&file)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    Filesystem::create(&path, &Create::sized(64 << 20)).unwrap();
    Filesystem::create(&file, &Create::sized(0)).unwrap();
    assert_eq!(size(&file), size(&path));

    let backing = dir.path().join("backing");
    std::fs::File::create(&backing)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let Some(device) = Loop::of(&backing) else {
        return;
    };
    Filesystem::create(&device.0, &Create::sized(0)).unwrap();
    assert_eq!(size(&device.0), size(&path));
}

/// A loop device, where the user may make one.
struct Loop(std::path::PathBuf);

impl Loop {
    fn of(file: &Path) -> Option<Loop> {
        let made = std::process::Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        let name = String::from_utf8(made.stdout).ok()?;
        made.status.success().then(|| Loop(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// What names no volume was told as the failure of a device.
#[test]
fn what_is_no_volume_is_an_argument_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let mut ext4 = vec![0; 1 << 20];
    ext4[0x438] = 0x53;
    ext4[0x439] = 0xef;
    let mut noise = vec![0; 1 << 20];
    let mut state = 1_u64;
    for byte in &mut noise {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    let paths = [
        file("zeros", &[0; 1 << 20]),
        file("noise", &noise),
        file("ext4", &ext4),
        file("empty", b""),
        ".".into(),
        "/dev/null".into(),
        "pair:".into(),
    ];
    for path in &paths {
        for options in [Options::default(), Options::read_only()] {
            let error = Filesystem::open(path, &options).map(drop).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL, "{error}");
        }
    }
    for path in [".", "/dev/null", "pair:"] {
        let error = Filesystem::create(path, &Create::sized(64 << 20)).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
    }
    // What is damaged is not that.
    let image = dir.path().join("image");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let whole = std::fs::read(&image).unwrap();
    let cut = file("cut", &whole[..whole.len() / 2]);
    let error = Filesystem::open(&cut, &Options::default())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.errno(), libc::EIO, "{error}");
}
