//! The library on an image file.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use persimmon::{
    Create, Error, FileKind, Filesystem, Lifetime, OpenOptions, Options, RenameMode, SeekTo,
    SetAttr,
};
use persimmon_engine::ZoneEvent;
use persimmon_vfs::Error as VfsError;

struct Image {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    fn new() -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        Filesystem::create(&path, &Create::sized(256 << 20)).unwrap();
        Image { _dir: dir, path }
    }

    fn open(&self) -> Filesystem {
        Filesystem::open(&self.path, &Options::default()).unwrap()
    }
}

fn fails(result: persimmon::Result<impl Sized>) -> VfsError {
    match result {
        Err(Error::At { source, .. } | Error::Filesystem(source)) => source,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn what_was_written_is_there_the_next_time() {
    let image = Image::new();
    let fs = image.open();
    fs.create_dir_all("/a/b/c").unwrap();
    fs.write("/a/b/c/small", b"text").unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs.write("/a/large", &large).unwrap();
    fs.symlink("b/c", "/a/link").unwrap();
    fs.hard_link("/a/large", "/a/b/same").unwrap();
    fs.set_xattr("/a", "user.k", b"v").unwrap();
    fs.close().unwrap();

    let fs = image.open();
    assert_eq!(fs.read("/a/link/small").unwrap(), b"text");
    assert_eq!(fs.read("a/b/same").unwrap(), large);
    assert_eq!(fs.metadata("/a/large").unwrap().nlink, 2);
    assert_eq!(fs.xattr("/a", "user.k").unwrap(), b"v");
    assert_eq!(fs.read_link("/a/link").unwrap(), b"b/c");
    let entries = fs.read_dir("/a").unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|e| (e.file_name().to_owned(), e.kind()))
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        names,
        [
            ("b".into(), FileKind::Directory),
            ("large".into(), FileKind::Regular),
            ("link".into(), FileKind::Symlink)
        ]
    );
    fs.close().unwrap();
}

/// An abandoned volume is as after the end of the process.
#[test]
fn what_was_synced_survives_without_a_close() {
    let image = Image::new();
    {
        let fs = image.open();
        fs.write("/f", vec![9; 100_000]).unwrap();
        let file = fs.open_file("/f", &OpenOptions::new().write(true)).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs.abandon();
    }
    let fs = image.open();
    assert_eq!(fs.read("/f").unwrap(), vec![9; 100_000]);
    fs.close().unwrap();
}

#[test]
fn a_file_reads_writes_and_seeks() {
    let image = Image::new();
    let fs = image.open();
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let mut file = fs.open_file("/f", &options).unwrap();
    file.write_all(b"hello world").unwrap();
    file.seek(SeekFrom::Start(6)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "world");
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 6);
    file.set_len(5).unwrap();
    assert_eq!(fs.read("/f").unwrap(), b"hello");
    assert_eq!(file.seek_to(0, SeekTo::Hole).unwrap(), Some(5));
    assert_eq!(file.seek_to(5, SeekTo::Data).unwrap(), None);
    let mut end = fs
        .open_file("/f", &OpenOptions::new().append(true))
        .unwrap();
    end.write_all(b"!").unwrap();
    end.write_all(b"?").unwrap();
    assert_eq!(fs.read("/f").unwrap(), b"hello!?");
    assert!(matches!(
        fails(fs.open_file("/f", &options)),
        VfsError::Exists
    ));
    drop((file, end));
    fs.close().unwrap();
}

#[test]
fn lifetimes_are_told_of_files_and_open_files() {
    let image = Image::new();
    let fs = image.open();
    fs.create_dir("/wal").unwrap();
    fs.set_xattr("/wal", "user.persimmon.lifetime", b"short")
        .unwrap();
    let options = OpenOptions::new().write(true).create(true);
    let file = fs.open_file("/wal/1", &options).unwrap();
    assert_eq!(file.lifetime().unwrap(), Some(Lifetime::Short));
    let long = options.lifetime(Lifetime::Long);
    let other = fs.open_file("/wal/1", &long).unwrap();
    assert_eq!(other.lifetime().unwrap(), Some(Lifetime::Long));
    assert_eq!(file.lifetime().unwrap(), Some(Lifetime::Short));
    other.set_lifetime(None).unwrap();
    assert_eq!(other.lifetime().unwrap(), Some(Lifetime::Short));
    let class = |file: &persimmon::File| {
        let volume = fs.vfs().volume();
        let before = volume.trace(u64::MAX, 0).next();
        file.write_at(&[7; 100_000], 0).unwrap();
        volume.commit_file(file.ino()).unwrap();
        let events = volume.trace(before, usize::MAX).events;
        let written = |event: &ZoneEvent| match event {
            ZoneEvent::Written { ino, lifetime, .. } if *ino == Some(file.ino()) => Some(*lifetime),
            _ => None,
        };
        events.iter().find_map(written).unwrap()
    };
    assert_eq!(class(&file), 1);
    other.set_lifetime(Some(Lifetime::Extreme)).unwrap();
    assert_eq!(class(&other), 4);
    let reads = OpenOptions::new().read(true).lifetime(Lifetime::Long);
    assert!(matches!(
        fails(fs.open_file("/wal/1", &reads)),
        VfsError::BadHandle
    ));
    drop((file, other));
    fs.close().unwrap();
}

#[test]
fn paths_follow_links_and_say_what_is_wrong() {
    let image = Image::new();
    let fs = image.open();
    fs.create_dir("/d").unwrap();
    fs.write("/d/f", b"x").unwrap();
    fs.symlink("/d/f", "/absolute").unwrap();
    fs.symlink("../d", "/d/up").unwrap();
    fs.symlink("loop", "/loop").unwrap();
    assert_eq!(fs.read("/absolute").unwrap(), b"x");
    assert_eq!(fs.read("/d/up/up/../d/./f").unwrap(), b"x");
    assert_eq!(
        fs.symlink_metadata("/d/up").unwrap().kind(),
        FileKind::Symlink
    );
    assert_eq!(
        fs.symlink_metadata("/d/up/").unwrap().kind(),
        FileKind::Directory
    );
    assert!(matches!(fails(fs.read("/loop")), VfsError::SymlinkLoop));
    assert!(matches!(fails(fs.read("/none/f")), VfsError::NotFound));
    assert!(matches!(fails(fs.read("/d/f/g")), VfsError::NotDirectory));
    assert!(matches!(
        fails(fs.metadata("/d/f/")),
        VfsError::NotDirectory
    ));
    assert!(matches!(fails(fs.metadata("")), VfsError::NotFound));
    assert!(matches!(fails(fs.read_dir("/d/f")), VfsError::NotDirectory));
    // As of mkdir(2): a database in the root could not be made.
    for root in ["/", "//"] {
        assert!(matches!(fails(fs.create_dir(root)), VfsError::Exists));
        assert!(matches!(fails(fs.symlink("d", root)), VfsError::Exists));
        assert!(matches!(
            fails(fs.hard_link("/d/f", root)),
            VfsError::Exists
        ));
        assert!(matches!(fails(fs.remove_dir(root)), VfsError::Invalid(_)));
    }
    assert!(matches!(fails(fs.create_dir("")), VfsError::NotFound));
    let error = fs.read("/none").unwrap_err();
    assert_eq!(error.to_string(), "/none: no such file or directory");
    let error = std::io::Error::from(error);
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    fs.close().unwrap();
}

/// Each level took a call of its own: a long path overflowed the stack.
#[test]
fn many_levels_of_directories_are_made_on_a_small_stack() {
    let image = Image::new();
    let fs = image.open();
    let path = "/d".repeat(3000);
    let make = std::thread::Builder::new().stack_size(128 << 10);
    let (clone, deep) = (fs.clone(), path.clone());
    make.spawn(move || clone.create_dir_all(deep).unwrap())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(fs.metadata(&path).unwrap().nlink, 2);
    // What is there already, links and dots are followed.
    fs.symlink("/d/d", "/link").unwrap();
    fs.create_dir_all("link/./new/../other/").unwrap();
    fs.create_dir_all("/d/d/other").unwrap();
    fs.create_dir_all("/").unwrap();
    assert!(fs.exists("/d/d/new"));
    fs.write("/file", b"").unwrap();
    fs.symlink("/nowhere", "/loose").unwrap();
    for taken in ["/file", "/file/below", "/loose/below"] {
        let error = fails(fs.create_dir_all(taken));
        assert!(matches!(error, VfsError::Exists), "{taken}: {error}");
    }
    fs.create_dir_all("").unwrap_err();
    fs.close().unwrap();
}

#[test]
fn names_move_and_go() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/a", b"a").unwrap();
    fs.write("/b", b"b").unwrap();
    fs.rename_with("/a", "/b", RenameMode::Exchange).unwrap();
    assert_eq!(fs.read("/a").unwrap(), b"b");
    fs.rename("/a", "/b").unwrap();
    assert!(!fs.exists("/a"));
    fs.create_dir("/d").unwrap();
    fs.remove_dir("/d/").unwrap();
    fs.remove_file("/b").unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 0);
    let set = SetAttr {
        mode: Some(0o700),
        ..SetAttr::default()
    };
    assert_eq!(fs.set_attributes("/", &set).unwrap().mode & 0o777, 0o700);
    assert!(fs.statfs().unwrap().blocks > 0);
    fs.sync().unwrap();
    fs.close().unwrap();
}

#[test]
fn a_read_only_volume_is_read_and_never_written() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/f", b"content").unwrap();
    fs.close().unwrap();
    let before = std::fs::read(&image.path).unwrap();
    let fs = Filesystem::open(&image.path, &Options::read_only()).unwrap();
    assert_eq!(fs.read("/f").unwrap(), b"content");
    assert!(matches!(fails(fs.write("/g", b"")), VfsError::ReadOnly));
    fs.close().unwrap();
    assert!(before == std::fs::read(&image.path).unwrap());
}

#[test]
fn on_two_devices_each_has_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let [fast, bulk] = ["fast", "bulk"].map(|name| dir.path().join(name));
    let pair = persimmon_device::pair::uri(&fast, &bulk);
    let create = Create {
        metadata_size_bytes: 24 << 20,
        ..Create::sized(64 << 20)
    };
    Filesystem::create(&pair, &create).unwrap();
    let size = |path| std::fs::metadata(path).unwrap().len();
    assert!(
        (20 << 20..=24 << 20).contains(&size(&fast)),
        "{}",
        size(&fast)
    );
    assert!(
        (60 << 20..=64 << 20).contains(&size(&bulk)),
        "{}",
        size(&bulk)
    );
    let fs = Filesystem::open(&pair, &Options::default()).unwrap();
    fs.write("/a", vec![7; 5 << 20]).unwrap();
    fs.close().unwrap();
    let fs = Filesystem::open(&pair, &Options::read_only()).unwrap();
    assert_eq!(fs.read("/a").unwrap(), vec![7; 5 << 20]);
}

/// Attributes could be set and read by name, but neither listed nor removed.
#[test]
fn attributes_are_listed_and_removed() {
    let image = Image::new();
    let fs = image.open();
    fs.write("/file", b"x").unwrap();
    fs.set_xattr("/file", "user.one", b"1").unwrap();
    fs.set_xattr("/file", "user.two", b"2").unwrap();
    let names = || {
        let mut names = fs.list_xattrs("/file").unwrap();
        names.sort();
        names
    };
    assert_eq!(names(), [b"user.one", b"user.two"]);
    fs.remove_xattr("/file", "user.one").unwrap();
    assert_eq!(names(), [b"user.two"]);
    assert!(matches!(
        fails(fs.remove_xattr("/file", "user.one")),
        VfsError::NoAttribute
    ));
    fs.close().unwrap();
}
