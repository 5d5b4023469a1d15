//! Words that cost data: a name that a terminal obeys, and advice to make a volume where one can be found.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use persimmon::{Create, Filesystem, Options};
use persimmon_format::table::Role;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::common::{Place, edit, told, zone_headers};

/// Nothing that a terminal or a reader of lines obeys, of whatever a name holds.
const HOSTILE: &[u8] = b"a\n\x1b[2J\"\xe2\x80\xae\xff";
const SHOWN: &str = "a\\n\\u{1b}[2J\\\"\\u{202e}\\xff";

fn said(place: &Place, words: &[&str]) -> String {
    let output = place.run(words);
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn is_harmless(text: &str) -> bool {
    let obeyed = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    !text.chars().any(obeyed)
}

fn path_of(name: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(name))
}

#[test]
fn names_are_shown_escaped_and_told_whole() {
    let place = Place::new();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(32 << 20)).unwrap();
    let volume = Filesystem::open(&image, &Options::default()).unwrap();
    volume.write(path_of(HOSTILE), b"x").unwrap();
    volume.symlink(path_of(HOSTILE), "link").unwrap();
    volume.close().unwrap();

    let text = said(&place, &["dump", "img", "directory", "/"]);
    assert!(text.contains(SHOWN) && is_harmless(&text), "{text}");
    let json: Value =
        serde_json::from_str(&said(&place, &["dump", "img", "directory", "/", "--json"])).unwrap();
    let rows = json.as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] != "link").unwrap();
    assert_eq!(row["name_bytes"], "610a1b5b324a22e280aeff");
    assert_eq!(row["name"], String::from_utf8_lossy(HOSTILE).into_owned());
    let text = said(&place, &["dump", "img", "inode", "/link"]);
    assert!(text.contains(SHOWN) && is_harmless(&text), "{text}");
    let text = said(&place, &["dump", "img", "keys"]);
    assert!(text.contains(SHOWN) && is_harmless(&text), "{text}");
}

#[test]
fn labels_are_shown_escaped() {
    let place = Place::new();
    let label = "a\"b\nUUID=x\u{1b}[2J\u{202e}";
    let made = said(&place, &["mkfs", "img", "--size", "32M", "--label", label]);
    assert!(
        made.contains("label a\\\"b\\nUUID=x\\u{1b}[2J\\u{202e}\n"),
        "{made}"
    );
    for words in [
        ["info", "img"].as_slice(),
        &["probe", "img"],
        &["probe", "img", "--udev"],
        &["dump", "img"],
        &["dump", "img", "header", "0"],
        &["fsck", "img"],
    ] {
        let text = said(&place, words);
        assert!(
            is_harmless(&text) && !text.contains("\nUUID=x"),
            "{words:?}: {text}"
        );
    }
    let udev = said(&place, &["probe", "img", "--udev"]);
    let encoded = "ID_FS_LABEL_ENC=a\\x22b\\x0aUUID=x\\x1b\\x5b2J\\xe2\\x80\\xae\n";
    assert!(udev.contains(encoded), "{udev}");
    let json: Value = serde_json::from_str(&said(&place, &["info", "img", "--json"])).unwrap();
    assert_eq!(json["label"], label);
}

/// Others could read all files of a volume out of its image, whatever their permissions in it: it was made as the
/// umask left it.
#[test]
fn images_are_their_owners_alone() {
    let place = Place::new();
    fs::write(place.dir().join("empty"), b"").unwrap();
    for (umask, name) in [("000", "open"), ("022", "usual"), ("777", "closed")] {
        for words in [
            vec!["mkfs", name, "--size", "32M"],
            vec!["recover", "usual", "copy"],
        ] {
            if words[0] == "recover" && umask == "000" {
                continue;
            }
            let script = format!("umask {umask}; exec \"$0\" \"$@\"");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_persimmon")]);
            let output = shell
                .args(&words)
                .current_dir(place.dir())
                .output()
                .unwrap();
            assert!(output.status.success(), "{words:?}: {}", told(&output));
            let made = place
                .dir()
                .join(if words[0] == "mkfs" { name } else { "copy" });
            let mode = fs::metadata(&made).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{words:?} with umask {umask}");
            let _ = fs::remove_file(place.dir().join("copy"));
        }
    }
}

#[test]
fn a_dry_run_refuses_what_the_real_one_does() {
    let place = Place::new();
    said(&place, &["mkfs", "img", "--size", "32M"]);
    fs::write(place.dir().join("text"), vec![b'x'; 4096]).unwrap();
    fs::write(place.dir().join("file"), b"").unwrap();
    fs::create_dir(place.dir().join("dir")).unwrap();
    for name in ["img", "text", "no/img", "file/img", "dir"] {
        let words = ["mkfs", name, "--size", "32M"];
        let real = place.run(&words);
        let dry = place.run(&[words.as_slice(), &["--dry-run"]].concat());
        assert_eq!(dry.status.code(), real.status.code(), "{name}");
        assert_ne!(dry.status.code(), Some(0), "{name}");
        assert_eq!(told(&dry), told(&real), "{name}");
    }
    let held = fs::File::open(place.dir().join("img")).unwrap();
    flock(&held, FlockOperation::LockShared).unwrap();
    said(&place, &["mkfs", "new", "--size", "32M", "--dry-run"]);
    assert!(!place.dir().join("new").exists());
}

#[test]
fn limits_that_no_device_makes_right_are_wrong_invocations() {
    let place = Place::new();
    for words in [
        ["mkfs", "a", "--size", "64M", "--max-open", "1"].as_slice(),
        &["mkfs", "a", "--size", "64M", "--max-active", "2"],
        &[
            "mkfs",
            "a",
            "--size",
            "64M",
            "--max-open",
            "4",
            "--max-active",
            "3",
        ],
        &["simulate", "uniform", "--active", "1"],
        &["mkfs", "a", "--size", "64M", "--copies", "7"],
        &["mkfs", "a", "--size", "64M", "--reserve", "200%"],
    ] {
        let output = place.run(words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            told(&output)
        );
    }
    assert!(fs::read_dir(place.dir()).unwrap().next().is_none());
}

fn labelled() -> Place {
    let place = Place::new();
    said(&place, &["mkfs", "img", "--size", "32M", "--label", "kaki"]);
    place
}

/// "mkfs was interrupted; run it again with --force" was told of any volume whose log was gone.
#[test]
fn a_damaged_log_is_told_as_one() {
    let place = labelled();
    edit(&place.dir().join("img"), |bytes| {
        for (start, header) in zone_headers(bytes) {
            if header.role == Role::Log {
                bytes[start + 4096..start + (1 << 20)].fill(0);
            }
        }
    });
    let words = [
        "whose log is damaged",
        "fsck --repair",
        "recover",
        "do not run mkfs",
    ];
    place.refused(&["info", "img"], 1, &words);
    place.refused(&["info", "img"], 1, &["label \"kaki\""]);
    place.refused(&["mount", "img", "."], 32, &words);
    place.refused(&["fsck", "img"], 8, &words);
    // The headers of the log's zones too.
    edit(&place.dir().join("img"), |bytes| {
        for (start, header) in zone_headers(bytes) {
            if header.role == Role::Log {
                bytes[start..start + 4096].fill(0);
            }
        }
    });
    place.refused(&["info", "img"], 1, &words);
    place.refused(&["info", "img"], 1, &["label \"kaki\""]);
    assert_eq!(
        place
            .run(&["recover", "img", "new"])
            .status
            .code()
            .map(|c| c & !4),
        Some(0)
    );
}

/// "Nothing known is on it ... make one with mkfs" was told of an image whose first block was gone.
#[test]
fn an_image_without_its_beginning_is_still_a_volume() {
    let place = labelled();
    edit(&place.dir().join("img"), |bytes| {
        for block in bytes.chunks_mut(4096) {
            if block.starts_with(b"PRSMNIMG") {
                block.fill(0);
            }
        }
    });
    let words = [
        "a Persimmon volume (label \"kaki\")",
        "recover",
        "do not run mkfs",
    ];
    for command in ["info", "fsck"] {
        let code = if command == "fsck" { 8 } else { 1 };
        place.refused(&[command, "img"], code, &words);
    }
    place.refused(
        &["mkfs", "img"],
        1,
        &["a Persimmon volume (label \"kaki\")", "--force"],
    );
}

/// It was mounted, and every look at it failed.
#[test]
fn a_volume_without_its_root_is_not_mounted() {
    let place = labelled();
    let json = |words: &[&str]| -> Value { serde_json::from_str(&said(&place, words)).unwrap() };
    let root = json(&["dump", "img", "footer", "--json"])["root_page"].to_string();
    let page = json(&["dump", "img", "page", &root, "--json"]);
    let addr: Vec<usize> = page["addr"]
        .as_str()
        .unwrap()
        .split(':')
        .map(|n| n.parse().unwrap())
        .collect();
    edit(&place.dir().join("img"), |bytes| {
        let mut zones = zone_headers(bytes).into_iter();
        let zone = zones.find(|(_, header)| header.zone.0 as usize == addr[1]);
        let at = zone.unwrap().0 + addr[2] * 4096;
        bytes[at..at + 64].fill(0);
    });
    fs::create_dir(place.dir().join("dir")).unwrap();
    let words = [
        "root directory",
        "-o ro",
        "errors=continue",
        "fsck --repair",
        "do not run mkfs",
    ];
    place.refused(&["mount", "img", "dir"], 32, &words);
}

/// A daemon that is not seen to have it mounted may have something to write all the same.
#[test]
fn what_others_use_is_not_called_unmounted() {
    let place = labelled();
    for words in [["sync", "img"], ["trace", "img"], ["umount", "img"]] {
        place.refused(&words, 1, &["img is not mounted"]);
    }
    let held = fs::File::open(place.dir().join("img")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    for words in [
        ["sync", "img"],
        ["trace", "img"],
        ["tune", "img"],
        ["scrub", "img"],
        ["umount", "img"],
    ] {
        let output = place.run(&words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let told = told(&output);
        assert!(
            told.contains("in use by another process"),
            "{words:?}: {told}"
        );
        assert!(
            !told.contains("is not mounted") && !told.contains("nothing waits"),
            "{words:?}: {told}"
        );
    }
}

/// Nearly all commands refused an image whose name is not UTF-8.
#[test]
fn a_volume_may_have_a_name_that_is_no_utf8() {
    let place = Place::new();
    place.does(&["mkfs", "a", "--size", "32M"]);
    fs::rename(place.path("a"), place.dir().join(path_of(b"a\xff"))).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_persimmon"));
        let mut words = words.iter();
        command.args(words.by_ref().take_while(|word| **word != "SPEC"));
        command.arg(path_of(b"a\xff")).args(words);
        let output = command.current_dir(place.dir()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    for words in [
        ["info", "SPEC"].as_slice(),
        &["usage", "SPEC"],
        &["zones", "SPEC"],
        &["stats", "SPEC"],
        &["fsck", "SPEC"],
        &["dump", "SPEC"],
        &["grow", "SPEC"],
        &["label", "SPEC", "name"],
        &["uuid", "SPEC"],
        &["fs", "mkdir", "SPEC", "/dir"],
        &["fs", "ls", "SPEC"],
        &["fs", "df", "SPEC", "--json"],
        &["clone", "SPEC", "/dir", "/clone"],
        &["dedup", "SPEC"],
        &["snapshot", "create", "SPEC", "one"],
        &["snapshot", "list", "SPEC"],
        &["quota", "on", "SPEC"],
        &["quota", "report", "SPEC"],
        &["mkfs", "SPEC", "--force", "--json"],
    ] {
        run(words);
    }
    let info: Value = serde_json::from_str(&run(&["info", "SPEC", "--json"])).unwrap();
    assert!(info["device"].as_str().unwrap().ends_with("/a\u{fffd}"));
}
