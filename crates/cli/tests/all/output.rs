//! What standard output does to commands: it is full, closed, or nobody reads it. Twelve commands ended in a
//! panic (101) there, a recovery by the signal half-way.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{Place, told};

/// What a command does when nobody listens.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Ends at once: what it tells is all that it does.
    Tells,
    /// Does its work, and ends as if somebody had listened.
    Works,
}

use Kind::{Tells, Works};

/// A UUID, in place of `new`, which is a file here.
const UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

/// Each command with arguments that make it say something where nothing is mounted. Those that need a mount say
/// their help here, and the rest in tests/mount.
fn invocations() -> BTreeMap<&'static str, Vec<(Kind, Vec<&'static str>)>> {
    let simulate = "simulate uniform --zones 64 --zone-size 1M --warm-up 0 --volumes 0.05";
    let simulate: Vec<&str> = simulate.split(' ').collect();
    let help = |command| vec![(Tells, vec![command, "--help"])];
    BTreeMap::from([
        (
            "mkfs",
            vec![
                (Works, vec!["mkfs", "new", "--size", "32M"]),
                (Works, vec!["mkfs", "new", "--size", "32M", "--json"]),
                (Tells, vec!["mkfs", "new", "--size", "32M", "--dry-run"]),
            ],
        ),
        ("mount", help("mount")),
        ("umount", help("umount")),
        ("upgrade-daemon", help("upgrade-daemon")),
        (
            "fsck",
            vec![
                (Works, vec!["fsck", "img"]),
                (Works, vec!["fsck", "img", "--json"]),
                (Works, vec!["fsck", "img", "--repair", "--yes"]),
            ],
        ),
        (
            "recover",
            vec![
                (Works, vec!["recover", "img", "new"]),
                (Works, vec!["recover", "img", "new", "--json"]),
            ],
        ),
        ("scrub", vec![(Tells, vec!["scrub", "--help"])]),
        ("info", with_json(&["info", "img"])),
        ("usage", with_json(&["usage", "img"])),
        (
            "zones",
            [
                with_json(&["zones", "img"]),
                with_json(&["zones", "img"]),
                vec![
                    (Tells, vec!["zones", "img", "--picture"]),
                    (Tells, vec!["zones", "img", "--table"]),
                ],
            ]
            .concat(),
        ),
        ("stats", with_json(&["stats", "img"])),
        (
            "grow",
            vec![
                (Works, vec!["grow", "img"]),
                (Works, vec!["grow", "img", "--json"]),
            ],
        ),
        (
            "label",
            [
                with_json(&["label", "img"]),
                vec![(Works, vec!["label", "img", "x"])],
            ]
            .concat(),
        ),
        (
            "uuid",
            [
                with_json(&["uuid", "img"]),
                vec![(Works, vec!["uuid", "img", UUID, "--json"])],
            ]
            .concat(),
        ),
        ("clean", vec![(Tells, vec!["clean", "--help"])]),
        ("tune", vec![(Tells, vec!["tune", "--help"])]),
        ("trace", vec![(Tells, vec!["trace", "--help"])]),
        ("sync", vec![(Tells, vec!["sync", "--help"])]),
        ("trim", vec![(Tells, vec!["trim", "--help"])]),
        ("freeze", help("freeze")),
        ("thaw", help("thaw")),
        (
            "dump",
            [
                with_json(&["dump", "img"]),
                with_json(&["dump", "img", "zit"]),
                with_json(&["dump", "img", "log"]),
            ]
            .concat(),
        ),
        ("clone", vec![(Tells, vec!["clone", "--help"])]),
        ("dedup", vec![(Tells, vec!["dedup", "--help"])]),
        ("fallocate", vec![(Tells, vec!["fallocate", "--help"])]),
        ("snapshot", with_json(&["snapshot", "list", "img"])),
        ("quota", with_json(&["quota", "report", "img"])),
        ("send", vec![(Tells, vec!["send", "--help"])]),
        ("receive", vec![(Tells, vec!["receive", "--help"])]),
        (
            "probe",
            [
                with_json(&["probe", "img"]),
                vec![(Tells, vec!["probe", "img", "--udev"])],
            ]
            .concat(),
        ),
        (
            "fs",
            [
                with_json(&["fs", "ls", "-al", "img", "/", "/file"]),
                with_json(&["fs", "df", "img"]),
                vec![
                    (Tells, vec!["fs", "cat", "img", "/file"]),
                    (Tells, vec!["fs", "--help"]),
                    (Works, vec!["fs", "cp", "-r", "img", ":/", "out"]),
                    (Works, vec!["fs", "cp", "img", ":/file", "out", "--json"]),
                    (Works, vec!["fs", "rm", "-f", "img", "/none"]),
                    (Works, vec!["fs", "rm", "-f", "img", "/none", "--json"]),
                    (Works, vec!["fs", "backup", "img", "b.tar", "--force"]),
                    (
                        Works,
                        vec!["fs", "backup", "img", "b.tar", "--force", "--json"],
                    ),
                    (Works, vec!["fs", "restore", "img", "b.tar", "--force"]),
                    (
                        Works,
                        vec!["fs", "restore", "img", "b.tar", "--force", "--json"],
                    ),
                ],
            ]
            .concat(),
        ),
        ("simulate", with_json(&simulate)),
        ("devices", with_json(&["devices"])),
        (
            "help",
            vec![
                (Tells, vec!["help"]),
                (Tells, vec!["--help"]),
                (Tells, vec!["--version"]),
                (Tells, vec!["help", "zones"]),
            ],
        ),
    ])
}

fn with_json(words: &[&'static str]) -> Vec<(Kind, Vec<&'static str>)> {
    let json = [words, &["--json"]].concat();
    vec![(Tells, words.to_vec()), (Tells, json)]
}

/// Runs with standard output as it is given.
fn run_into(place: &Place, words: &[&str], stdout: impl Into<Stdio>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(words)
        .current_dir(place.dir())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

fn place() -> Place {
    let place = Place::new();
    let made = place.run(&["mkfs", "img", "--size", "32M", "--label", "kaki"]);
    assert!(made.status.success(), "{}", told(&made));
    fs::write(place.dir().join("text"), b"text").unwrap();
    let copied = place.run(&["fs", "cp", "img", "text", ":/file"]);
    assert!(copied.status.success(), "{}", told(&copied));
    place
}

/// What was to be made is there, whole.
fn check_made(place: &Place, words: &[&str]) {
    let new = place.dir().join("new");
    if words.contains(&"new") && !words.contains(&"--dry-run") {
        let checked = place.run(&["fsck", "new"]);
        assert_eq!(
            checked.status.code(),
            Some(0),
            "{words:?}: {}",
            told(&checked)
        );
        fs::remove_file(new).unwrap();
    } else {
        assert!(!new.exists());
    }
}

/// The commands that clap knows.
fn commands() -> Vec<String> {
    let place = Place::new();
    let help = String::from_utf8(place.run(&["help"]).stdout).unwrap();
    let lines = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"));
    let lines = lines.skip(1).take_while(|line| line.starts_with(' '));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn no_command_is_forgotten() {
    let mut commands = commands();
    commands.sort();
    let tried: Vec<&str> = invocations().into_keys().collect();
    assert_eq!(commands, tried);
}

#[test]
fn full_is_an_error_and_no_panic() {
    let place = place();
    for (kind, words) in invocations().into_values().flatten() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = run_into(&place, &words, full);
        let told = told(&output);
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| code != 0 && code != 101),
            "{words:?}: {code:?} {told}"
        );
        assert!(
            told.contains("No space left on device"),
            "{words:?}: {told}"
        );
        if kind == Works {
            assert!(told.contains("it is done"), "{words:?}: {told}");
        }
        check_made(&place, &words);
    }
}

#[test]
fn the_end_of_the_reader_is_the_end_and_no_error() {
    let place = place();
    for (kind, words) in invocations().into_values().flatten() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run_into(&place, &words, writer);
        let expected = match kind {
            Tells => 141,
            Works => 0,
        };
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{words:?}: {}",
            told(&output)
        );
        assert_eq!(told(&output), "", "{words:?}");
        check_made(&place, &words);
    }
}

#[test]
fn closed_is_as_if_nobody_wanted_to_know() {
    let place = place();
    for (_, words) in invocations().into_values().flatten() {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "exec \"$0\" \"$@\" >&-",
            env!("CARGO_BIN_EXE_persimmon"),
        ]);
        let output = shell
            .args(&words)
            .current_dir(place.dir())
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            told(&output)
        );
        check_made(&place, &words);
    }
}

/// A repair ended by the signal half-way where nobody read what it told; its exit code is its answer.
#[test]
fn a_repair_is_done_whoever_listens() {
    for nobody in [true, false] {
        let place = place();
        damage_log(&place.dir().join("img"));
        let words = ["fsck", "img", "--repair", "--yes"];
        let (output, expected) = if nobody {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            (run_into(&place, &words, writer), 1)
        } else {
            let full = File::options().write(true).open("/dev/full").unwrap();
            (run_into(&place, &words, full), 1 | 8)
        };
        assert_eq!(output.status.code(), Some(expected), "{}", told(&output));
        assert_eq!(place.run(&["fsck", "img"]).status.code(), Some(0));
    }
}

/// Takes the blocks of the log behind the header of each zone of it.
fn damage_log(image: &Path) {
    crate::common::edit(image, |bytes| {
        for (start, header) in crate::common::zone_headers(bytes) {
            if header.role == persimmon_format::table::Role::Log {
                let end = start + (1 << 20);
                bytes[start + 4096..end.min(start + (1 << 20))].fill(0);
            }
        }
    });
}
