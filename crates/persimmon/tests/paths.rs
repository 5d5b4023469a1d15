//! Paths as POSIX has them: slashes at their ends, paths of nothing, and names that go while they are walked.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use persimmon::{Create, Filesystem, OpenOptions, Options, RenameMode, Result, SetAttr};

/// Of a call that fails.
fn errno<T>(result: Result<T>) -> i32 {
    result.map_or_else(|error| error.errno(), |_| 0)
}

fn making() -> OpenOptions {
    OpenOptions::new().write(true).create(true)
}

/// They named files: `nope/` was made as `nope`.
#[test]
fn a_path_that_ends_in_a_slash_names_no_file() {
    let fs = Filesystem::in_memory(64 << 20).unwrap();
    fs.write("f", "content").unwrap();
    fs.create_dir("d/").unwrap();
    fs.symlink("d", "l").unwrap();

    assert_eq!(errno(fs.open_file("/nope/", &making())), libc::EISDIR);
    assert_eq!(errno(fs.open_file("/f/", &making())), libc::EISDIR);
    assert_eq!(errno(fs.write("/nope//", "")), libc::EISDIR);
    assert_eq!(errno(fs.copy("/f", "/nope/")), libc::EISDIR);
    assert_eq!(errno(fs.open_file("/", &making())), libc::EISDIR);
    let reading = OpenOptions::new().read(true);
    assert_eq!(errno(fs.open_file("/f/", &reading)), libc::ENOTDIR);

    assert_eq!(errno(fs.remove_file("/f/")), libc::ENOTDIR);
    assert_eq!(errno(fs.remove_file("/d/")), libc::EISDIR);
    assert_eq!(errno(fs.remove_file("/l/")), libc::ENOTDIR);
    assert_eq!(errno(fs.remove_file("/nope/")), libc::ENOENT);
    assert_eq!(errno(fs.remove_dir("/f/")), libc::ENOTDIR);

    assert_eq!(errno(fs.rename("/f", "/g/")), libc::ENOTDIR);
    assert_eq!(errno(fs.rename("/f/", "/g")), libc::ENOTDIR);
    assert_eq!(errno(fs.rename("/l/", "/g")), libc::ENOTDIR);
    assert_eq!(errno(fs.rename("/nope/", "/g")), libc::ENOENT);
    let exchange = RenameMode::Exchange;
    assert_eq!(errno(fs.rename_with("/d", "/f/", exchange)), libc::ENOTDIR);
    fs.rename_with("/f", "/d/", exchange).unwrap();
    fs.rename_with("/f/", "/d", exchange).unwrap();

    assert_eq!(errno(fs.hard_link("/f", "/g/")), libc::ENOENT);
    assert_eq!(errno(fs.hard_link("/f", "/d/")), libc::EEXIST);
    assert_eq!(errno(fs.hard_link("/f/", "/g")), libc::ENOTDIR);
    assert_eq!(errno(fs.symlink("f", "/g/")), libc::ENOENT);
    assert_eq!(errno(fs.create_dir("/f/")), libc::EEXIST);

    assert_eq!(fs.read("/f").unwrap(), b"content");
    let mut names: Vec<_> = fs
        .read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["d", "f", "l"]);

    fs.create_dir_all("/a/b/").unwrap();
    fs.rename("/a/b/", "/a/c/").unwrap();
    fs.remove_dir("/a/c/").unwrap();
}

#[test]
fn an_empty_path_leads_nowhere() {
    let fs = Filesystem::in_memory(64 << 20).unwrap();
    fs.write("f", "content").unwrap();
    for errno in [
        errno(fs.open_file("", &making())),
        errno(fs.open_file("", &OpenOptions::new().read(true))),
        errno(fs.remove_file("")),
        errno(fs.remove_dir("")),
        errno(fs.rename("", "g")),
        errno(fs.rename("f", "")),
        errno(fs.hard_link("", "g")),
        errno(fs.hard_link("f", "")),
        errno(fs.symlink("f", "")),
        errno(fs.create_dir("")),
        errno(fs.metadata("")),
    ] {
        assert_eq!(errno, libc::ENOENT);
    }
}

/// `O_CREAT` of a file that is there was refused on a volume that is read-only.
#[test]
fn what_is_there_need_not_be_made_on_a_read_only_volume() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let fs = Filesystem::open(&image, &Options::default()).unwrap();
    fs.write("f", "content").unwrap();
    fs.symlink("f", "l").unwrap();
    fs.close().unwrap();
    let fs = Filesystem::open(&image, &Options::read_only()).unwrap();
    let reading = OpenOptions::new().read(true).create(true);
    for path in ["f", "l"] {
        let mut content = [0; 7];
        let file = fs.open_file(path, &reading).unwrap();
        assert_eq!(file.read_at(&mut content, 0).unwrap(), 7);
        assert_eq!(&content, b"content");
    }
    assert_eq!(errno(fs.open_file("g", &reading)), libc::EROFS);
    assert_eq!(errno(fs.open_file("f", &making())), libc::EROFS);
    let emptying = reading.truncate(true);
    assert_eq!(errno(fs.open_file("f", &emptying)), libc::EROFS);
    let new = reading.create_new(true);
    assert_eq!(errno(fs.open_file("f", &new)), libc::EEXIST);
    assert_eq!(errno(fs.open_file("g", &new)), libc::EROFS);
    assert_eq!(errno(fs.open_file("none/g", &reading)), libc::ENOENT);
}

/// They answered `ESTALE` where a name went between two steps of a call.
#[test]
fn names_that_go_while_they_are_walked_are_not_there() {
    let fs = Filesystem::in_memory(256 << 20).unwrap();
    let is_over = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(3);
    let stale = |what: &str, result: Result<()>| {
        if let Err(error) = result {
            assert_ne!(error.errno(), libc::ESTALE, "{what}: {error}");
        }
    };
    let size = SetAttr {
        size: Some(3),
        ..SetAttr::default()
    };
    let list = |path: &str| -> Result<()> {
        for entry in fs.read_dir(path)? {
            entry?.metadata()?;
        }
        Ok(())
    };
    type Call<'a> = (&'a str, Box<dyn Fn() -> Result<()> + Sync + 'a>);
    let calls: Vec<Call<'_>> = vec![
        ("stat", Box::new(|| fs.metadata("d/e/f").map(drop))),
        ("chmod", Box::new(|| fs.set_permissions("d/e/f", 0o600))),
        (
            "truncate",
            Box::new(|| fs.set_attributes("d/e/f", &size).map(drop)),
        ),
        ("statfs", Box::new(|| fs.statfs_at("d/e/f").map(drop))),
        (
            "getxattr",
            Box::new(|| fs.xattr("d/e/f", "user.a").map(drop)),
        ),
        ("listxattr", Box::new(|| fs.list_xattrs("d/e/f").map(drop))),
        (
            "setxattr",
            Box::new(|| fs.set_xattr("d/e/f", "user.a", b"v")),
        ),
        ("link", Box::new(|| fs.hard_link("d/e/f", "d/e/g"))),
        ("unlink", Box::new(|| fs.remove_file("d/e/g"))),
        ("rename", Box::new(|| fs.rename("d/e/f", "d/e/h"))),
        ("mkdir", Box::new(|| fs.create_dir("d/e/sub"))),
        ("mkdir_all", Box::new(|| fs.create_dir_all("d/e/sub/deep"))),
        ("rmdir", Box::new(|| fs.remove_dir("d/e/sub"))),
        (
            "create",
            Box::new(|| fs.open_file("d/e/f", &making()).map(drop)),
        ),
        ("symlink", Box::new(|| fs.symlink("f", "d/e/s"))),
        ("readlink", Box::new(|| fs.read_link("d/e/s").map(drop))),
        ("opendir", Box::new(|| list("d/e"))),
    ];
    std::thread::scope(|scope| {
        for (what, call) in &calls {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    stale(what, call());
                }
            });
        }
        let mut gone = 0_u64;
        while Instant::now() < until {
            let made = fs
                .create_dir_all("d/e")
                .and_then(|()| fs.write("d/e/f", "f"));
            stale("make", made);
            let removed = fs.remove_dir_all("d");
            if removed.is_ok() {
                gone += 1;
            }
            stale("remove_dir_all", removed);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(gone > 0);
    });
}
