//! A stream received into a directory by somebody who is not root: all that they may have is there, and the rest is told.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{Place, told};
use persimmon::vfs::{Handle, ROOT};
use persimmon::{Caller, Create, Filesystem, Options, SetAttr};

/// Somebody without privileges; who runs the tests, if that is somebody else than root.
fn somebody() -> u32 {
    match rustix::process::geteuid() {
        uid if uid.is_root() => 65_534,
        uid => uid.as_raw(),
    }
}

fn receive(place: &Place, stream: &str, dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_persimmon"));
    command.arg("receive").arg(dir).arg("--quiet");
    command.stdin(File::open(place.dir().join(stream)).unwrap());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        command.uid(somebody()).gid(somebody());
    }
    command.output().unwrap()
}

fn send(place: &Place, arguments: &[&str], stream: &str) {
    let sent = place.run(&[&["send", "img"], arguments].concat());
    assert!(sent.status.success(), "{}", told(&sent));
    std::fs::write(place.dir().join(stream), sent.stdout).unwrap();
}

/// Gives what has these names to somebody.
fn give(filesystem: &Filesystem, paths: &[&str]) {
    let id = somebody();
    for path in paths {
        let set = SetAttr {
            uid: Some(id),
            gid: Some(id),
            ..SetAttr::default()
        };
        // A link itself.
        let ino = filesystem.symlink_metadata(path).unwrap().ino;
        filesystem.vfs().setattr(ino, Handle::NONE, &set).unwrap();
    }
}

fn check(filesystem: &Filesystem, snapshot: &str, dir: &Path, paths: &[&str]) {
    // Root looks at it here, and may look everywhere; others looked at what they own.
    for path in paths {
        let there = Path::new("/.snapshots").join(snapshot).join(path);
        let (attr, found) = (
            filesystem.symlink_metadata(&there).unwrap(),
            std::fs::symlink_metadata(dir.join(path)).unwrap(),
        );
        assert_eq!(attr.mode, found.permissions().mode(), "{path}");
        assert_eq!(attr.mtime.seconds, found.mtime(), "{path}");
        if found.is_file() && rustix::process::geteuid().is_root() {
            let content = filesystem.read(&there).unwrap();
            assert!(content == std::fs::read(dir.join(path)).unwrap(), "{path}");
        }
    }
}

#[test]
fn somebody_without_privileges_receives_what_they_may_have() {
    let place = Place::new();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.dir(), everybody).unwrap();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = Filesystem::open(&image, &Options::default()).unwrap();
    // Directories and files that their owner may not write to, nor read.
    for dir in ["/sealed", "/sealed/deep", "/moved"] {
        filesystem.create_dir(dir).unwrap();
    }
    let files = ["/sealed/deep/a", "/sealed/b", "/moved/c", "/hidden"];
    for file in files {
        filesystem.write(file, file.repeat(3000)).unwrap();
    }
    filesystem.symlink("deep/a", "/sealed/link").unwrap();
    filesystem
        .set_xattr("/sealed/b", "user.note", b"noted")
        .unwrap();
    give(
        &filesystem,
        &["/", "/sealed", "/sealed/deep", "/moved", "/sealed/link"],
    );
    give(&filesystem, &files);
    for (path, mode) in [
        ("/sealed/deep", 0o500),
        ("/sealed", 0o500),
        ("/sealed/b", 0o400),
        ("/hidden", 0),
        ("/moved", 0o300),
    ] {
        filesystem.set_permissions(path, mode).unwrap();
    }
    filesystem.take_snapshot("one", false).unwrap();
    // What is in them changes, and they are moved.
    filesystem.write("/sealed/deep/a", b"short").unwrap();
    filesystem.rename("/sealed/b", "/moved/b").unwrap();
    filesystem.remove_file("/moved/c").unwrap();
    filesystem.rename("/moved", "/sealed/deep/moved").unwrap();
    filesystem.write("/sealed/new", b"new").unwrap();
    filesystem.write("/hidden", b"seen").unwrap();
    give(&filesystem, &["/sealed/new"]);
    filesystem.take_snapshot("two", false).unwrap();
    // What only root may have.
    let device = 0o020_600;
    let made = filesystem
        .vfs()
        .mknod(&Caller::root(), ROOT, b"device", device, 0x103);
    made.unwrap();
    filesystem.write("/of-root", b"all the same").unwrap();
    filesystem.take_snapshot("three", false).unwrap();
    filesystem.close().unwrap();

    send(&place, &["one"], "one");
    send(&place, &["two", "--from", "one"], "two");
    send(&place, &["three", "--from", "two"], "three");
    let dir = place.dir().join("received");
    std::fs::create_dir(&dir).unwrap();
    chown(&dir, Some(somebody()), Some(somebody())).unwrap();
    for stream in ["one", "two"] {
        let received = receive(&place, stream, &dir);
        assert_eq!(
            received.status.code(),
            Some(0),
            "{stream}: {}",
            told(&received)
        );
    }
    let filesystem = Filesystem::open(&image, &Options::read_only()).unwrap();
    let two = [
        "sealed",
        "sealed/deep",
        "sealed/deep/a",
        "sealed/deep/moved",
        "sealed/deep/moved/b",
        "sealed/new",
        "hidden",
    ];
    check(&filesystem, "two", &dir, &two);
    let received = receive(&place, "three", &dir);
    let told = told(&received);
    assert_eq!(received.status.code(), Some(4), "{told}");
    assert!(told.contains("device: it cannot be made"), "{told}");
    assert!(told.contains("of-root: owner cannot be set"), "{told}");
    check(&filesystem, "three", &dir, &["of-root", "sealed/deep/a"]);
    assert!(!dir.join("device").exists());
}

/// A directory that the receiver had to open on the way to what changes in it, or that is moved, kept permissions that it never had: no record
/// of the stream is about its own.
#[test]
fn directories_that_had_to_be_opened_get_their_own_permissions_back() {
    let place = Place::new();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.dir(), everybody).unwrap();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = Filesystem::open(&image, &Options::default()).unwrap();
    let dirs = [
        "/above",
        "/above/closed",
        "/above/closed/in",
        "/still",
        "/to",
    ];
    for dir in dirs {
        filesystem.create_dir(dir).unwrap();
    }
    let files = ["/above/closed/in/file", "/still/file"];
    for file in files {
        filesystem.write(file, b"before").unwrap();
    }
    give(&filesystem, &["/"]);
    give(&filesystem, &dirs);
    give(&filesystem, &files);
    for (path, mode) in [
        ("/above/closed/in", 0o000),
        ("/above/closed", 0o400),
        ("/above", 0o600),
        ("/still", 0o500),
    ] {
        filesystem.set_permissions(path, mode).unwrap();
    }
    filesystem.take_snapshot("one", false).unwrap();
    filesystem.write("/above/closed/in/file", b"after").unwrap();
    filesystem.rename("/still", "/to/still").unwrap();
    filesystem.take_snapshot("two", false).unwrap();
    filesystem.close().unwrap();
    send(&place, &["one"], "one");
    send(&place, &["two", "--from", "one"], "two");
    let dir = place.dir().join("received");
    std::fs::create_dir(&dir).unwrap();
    chown(&dir, Some(somebody()), Some(somebody())).unwrap();
    let received = receive(&place, "one", &dir);
    assert_eq!(received.status.code(), Some(0), "{}", told(&received));
    // The second comes in two parts: what the first part opened, the second gives back.
    let whole = std::fs::read(place.dir().join("two")).unwrap();
    std::fs::write(place.dir().join("cut"), &whole[..whole.len() - 1]).unwrap();
    let cut = receive(&place, "cut", &dir);
    assert!(!cut.status.success(), "{}", told(&cut));
    let mode = std::fs::metadata(dir.join("above")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700, "it had to be opened");
    let token = place.run(&["receive", dir.to_str().unwrap(), "--resume-token"]);
    let token = String::from_utf8(token.stdout).unwrap();
    send(
        &place,
        &["two", "--from", "one", "--resume", token.trim()],
        "rest",
    );
    let received = receive(&place, "rest", &dir);
    assert_eq!(received.status.code(), Some(0), "{}", told(&received));
    // Who is not root looks at what is above before that is closed to them.
    if rustix::process::geteuid().is_root() {
        let filesystem = Filesystem::open(&image, &Options::read_only()).unwrap();
        let all = [
            "above",
            "above/closed",
            "above/closed/in",
            "above/closed/in/file",
            "to/still",
            "to/still/file",
        ];
        check(&filesystem, "two", &dir, &all);
    }
}

/// A stream into an image that is cut can go on: asking how wrote to a volume that was open for reading, and failed.
#[test]
fn a_cut_stream_into_an_image_goes_on() {
    let place = Place::new();
    for image in ["img", "to"] {
        let made = place.run(&["mkfs", "--size", "256M", image]);
        assert!(made.status.success(), "{}", told(&made));
    }
    let filesystem = Filesystem::open(place.dir().join("img"), &Options::default()).unwrap();
    let due: Vec<u8> = (0..8_000_000u64)
        .map(|at| (at * at / 77 + at / 5) as u8)
        .collect();
    for name in ["/a", "/b", "/c"] {
        filesystem.write(name, &due).unwrap();
    }
    filesystem.take_snapshot("one", false).unwrap();
    filesystem.close().unwrap();
    send(&place, &["one"], "whole");
    let whole = std::fs::read(place.dir().join("whole")).unwrap();
    std::fs::write(place.dir().join("cut"), &whole[..whole.len() * 3 / 4]).unwrap();
    let receive = |stream: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_persimmon"));
        command
            .current_dir(place.dir())
            .args(["receive", "to", "--quiet"]);
        command.stdin(File::open(place.dir().join(stream)).unwrap());
        command.output().unwrap()
    };
    let cut = receive("cut");
    assert!(!cut.status.success(), "{}", told(&cut));
    let token = place.run(&["receive", "to", "--resume-token"]);
    assert!(token.status.success(), "{}", told(&token));
    let token = String::from_utf8(token.stdout).unwrap();
    send(&place, &["one", "--resume", token.trim()], "rest");
    let rest = receive("rest");
    assert!(rest.status.success(), "{}", told(&rest));
    let filesystem = Filesystem::open(place.dir().join("to"), &Options::read_only()).unwrap();
    for name in ["/a", "/b", "/c"] {
        assert!(filesystem.read(name).unwrap() == due, "{name}");
    }
}
