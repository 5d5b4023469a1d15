//! Commands where the host allows them little, or what they are pointed at is something else.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, told};

/// Runs the command in a shell that first lowers a limit.
fn limited(place: &Place, limit: &str, arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_persimmon");
    let line = format!("ulimit {limit}; exec {program} {arguments}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).current_dir(place.dir());
    shell.output().unwrap()
}

/// The limit on the size of files: the system ends programs that do not care with a signal, in the midst of work.
#[test]
fn a_limit_on_the_size_of_files_is_told() {
    let place = Place::new();
    place.does(&["mkfs", "img", "--size", "64M"]);
    let content = place.dir().join("content");
    fs::write(&content, vec![7; 2 << 20]).unwrap();
    place.does(&["fs", "cp", "img", "content", ":/content"]);
    let before = fs::read(place.dir().join("img")).unwrap();

    // Units of 512 bytes.
    let limit = "-f 1000";
    for arguments in ["fs cp img content :/more", "snapshot create img one"] {
        let output = limited(&place, limit, arguments);
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(told(&output).contains("ulimit -f"), "{}", told(&output));
    }
    assert!(fs::read(place.dir().join("img")).unwrap() == before);

    for (arguments, code, word) in [
        ("fs backup img archive", 1, "too large"),
        ("fs cp img :/content copy", 4, "too large"),
        ("mkfs new --size 64M", 1, "takes no file"),
    ] {
        let output = limited(&place, limit, arguments);
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        assert!(told(&output).contains(word), "{}", told(&output));
    }
    assert!(!place.dir().join("new").exists());
    assert!(!place.dir().join("archive").exists());
    assert!(!place.dir().join("copy").exists());
    // Who only reads needs no limit.
    assert!(limited(&place, limit, "fs ls img").status.success());
    assert!(limited(&place, limit, "fsck img --data").status.success());
}

/// A pipe that nobody writes to is not waited for.
#[test]
fn a_pipe_is_no_volume() {
    let place = Place::new();
    let made = Command::new("mkfifo")
        .arg(place.dir().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    for arguments in [
        &["mount", "pipe", "."][..],
        &["umount", "pipe"],
        &["sync", "pipe"],
        &["tune", "pipe"],
        &["scrub", "pipe"],
        &["probe", "pipe"],
        &["info", "pipe"],
        &["info", "zonefs:pipe"],
        &["fsck", "pipe"],
        &["trace", "pipe", "--once"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_persimmon"));
        command.args(arguments).current_dir(place.dir());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if began.elapsed() > Duration::from_secs(20) {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let status = status.unwrap_or_else(|| panic!("{arguments:?} waits for a pipe"));
        assert!(!status.success(), "{arguments:?}");
    }
    let probed = place.run(&["probe", "pipe"]);
    let why = String::from_utf8_lossy(&probed.stderr);
    assert!(why.contains("neither a regular file nor"), "{why}");
}
