//! What goes wrong is told by name, with a remedy and the documented exit code, and changes
//! nothing. No mount is needed for any of this.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::common::{Place, told};

impl Place {
    fn labelled(&self, name: &str, label: &str) {
        self.json(&["mkfs", name, "--size", "32M", "--label", label]);
    }
}

fn unchanged(path: &Path, work: impl FnOnce()) {
    let before = fs::read(path).unwrap();
    work();
    assert!(
        fs::read(path).unwrap() == before,
        "{} was changed",
        path.display()
    );
}

#[test]
fn mkfs_says_how_many_zones_are_needed_and_leaves_nothing() {
    let place = Place::new();
    place.refused(&["mkfs", "a", "--size", "3M"], 1, &["zones", "at least"]);
    for (more, too_few) in [
        (["--data-parity", "3"], "59 zones of 1.0 MiB are too few"),
        (["--data-parity", "2"], "59 zones of 1.0 MiB are too few"),
        (
            ["--zone-size", "64M"],
            "there is no room for a zone of 64.0 MiB",
        ),
        (["--zone-size", "8M"], "7 zones of 8.0 MiB are too few"),
    ] {
        // Of stripe sets it told their number and size, which nobody has asked for.
        let mkfs = |size: &[&str]| {
            let arguments = [&["mkfs", "a", "--dry-run"], more.as_slice(), size].concat();
            place.run(&arguments)
        };
        let refused = told(&mkfs(&["--size", "64M"]));
        assert!(refused.contains(too_few), "{refused}");
        let (_, advice) = refused.split_once(" (--size ").unwrap();
        let (mib, _) = advice.split_once('M').unwrap();
        let mib: u32 = mib.parse().unwrap();
        let made = |mib: u32| mkfs(&["--size", &format!("{mib}M")]).status.success();
        assert!(made(mib) && !made(mib - 1), "{refused}");
    }
    let huge = ["mkfs", "a", "--size", "100T", "--zone-size", "1M"];
    place.refused(&huge, 2, &["4194304 zones of 1.0 MiB", "--zone-size 32M"]);
    let huge = ["mkfs", "a", "--size", "300T", "--dry-run"];
    place.refused(&huge, 2, &["4194304 zones of 64.0 MiB", "--zone-size 128M"]);
    place.refused(&["mkfs", "a"], 2, &["--size"]);
    place.refused(&["mkfs", "a", "--size", "lots"], 2, &["'lots'", "64M"]);
    place.refused(
        &["mkfs", "a", "--size", "64M", "--zone-size", "5000"],
        2,
        &["4096"],
    );
    place.refused(
        &["mkfs", "a", "--size", "64M", "--max-active", "2"],
        2,
        &["at least 3"],
    );
    place.refused(
        &["mkfs", "no/a", "--size", "64M"],
        1,
        &["directory does not exist"],
    );
    for share in ["99.99%", "100%"] {
        place.refused(
            &["mkfs", "a", "--size", "64M", "--reserve", share],
            1,
            &["no room", "98.30 %"],
        );
    }
    let made = place.json(&["mkfs", "a", "--size", "64M", "--dry-run"]);
    assert_eq!(made["dry_run"], true);
    assert_eq!(made["zone_count"], 59);
    assert!(fs::read_dir(place.dir()).unwrap().next().is_none());
}

#[test]
fn wrong_invocations_have_a_code_of_their_own() {
    let place = Place::new();
    let label = "x".repeat(65);
    let cases: [(&[&str], &str); 8] = [
        (&["--zone-size", "512K"], "1 MiB"),
        (&["--zone-size", "8G"], "4 GiB"),
        (&["--zone-size", "1M", "--zone-capacity", "2M"], "capacity"),
        (&["--zone-capacity", "5000"], "4096"),
        (&["--label", &label], "65 bytes"),
        (&["--compression", "zstd:16"], "zstd:1 to zstd:15"),
        (&["--compression", "zstd:0"], "zstd:1 to zstd:15"),
        (&["--uuid", "00000000-0000-0000-0000-000000000000"], "zeros"),
    ];
    for (options, word) in cases {
        let mut words = vec!["mkfs", "a", "--size", "64M"];
        words.extend(options);
        place.refused(&words, 2, &[word]);
        assert!(!place.path("a").exists());
    }
    place.labelled("a", "");
    place.refused(&["dump", "a", "everything"], 2, &["footer", "zit"]);
    place.refused(&["dump", "a", "block", "x"], 2, &["x"]);
    place.refused(&["dump", "a", "page", "-1"], 2, &["-1"]);
    // Understood, and not there.
    place.refused(&["dump", "a", "inode", "/none"], 1, &["none"]);
}

#[test]
fn mkfs_refuses_what_holds_something() {
    let place = Place::new();
    fs::write(place.path("notes"), vec![b'x'; 40 << 20]).unwrap();
    unchanged(&place.path("notes"), || {
        place.refused(&["mkfs", "notes"], 1, &["notes", "--force"]);
    });
    place.labelled("a", "first");
    unchanged(&place.path("a"), || {
        place.refused(&["mkfs", "a"], 1, &["Persimmon", "--force"]);
    });
    let made = place.json(&["mkfs", "a", "--force", "--label", "second"]);
    assert_eq!(place.json(&["probe", "a"])["uuid"], made["uuid"]);
    assert_eq!(place.json(&["info", "a"])["label"], "second");
}

#[test]
fn mount_names_what_it_does_not_understand() {
    let place = Place::new();
    place.labelled("a", "");
    fs::create_dir(place.path("dir")).unwrap();
    fs::write(place.path("empty"), "").unwrap();
    unchanged(&place.path("a"), || {
        place.refused(&["mount", "a", "dir", "-o", "compress"], 1, &["'compress'"]);
        place.refused(&["mount", "a", "dir", "-o", "commit=soon"], 1, &["'soon'"]);
        let level = "compression=zstd:16";
        place.refused(&["mount", "a", "dir", "-o", level], 1, &["zstd:15"]);
        place.refused(&["mount", "a", "a"], 1, &["not a directory"]);
        place.refused(&["mount", "a"], 1, &["<DIR>"]);
        place.refused(&["mount", "absent", "dir"], 32, &["absent"]);
        place.refused(&["mount", "empty", "dir"], 32, &["empty", "mkfs"]);
        place.refused(&["mount", "LABEL=absent", "dir"], 32, &["LABEL=absent"]);
    });
}

#[test]
fn damaged_and_foreign_images_are_told_apart() {
    let place = Place::new();
    place.labelled("a", "");
    let image = fs::read(place.path("a")).unwrap();
    fs::write(place.path("short"), &image[..image.len() / 2]).unwrap();
    fs::write(place.path("noise"), vec![0xa5; 4 << 20]).unwrap();
    fs::create_dir(place.path("dir")).unwrap();
    for (code, command) in [(1, "info"), (8, "fsck"), (1, "dump"), (1, "zones")] {
        place.refused(&[command, "short"], code, &["truncated"]);
        place.refused(&[command, "noise"], code, &["not a Persimmon image"]);
    }
    place.refused(&["mount", "short", "dir"], 32, &["truncated"]);
    place.refused(&["info", "dir"], 1, &["not on a mounted"]);
    place.refused(
        &["dump", "dir"],
        1,
        &["dir is a directory", "no Persimmon volume"],
    );
    // Not even the superblock is left whole, or nothing tells that there was one.
    fs::write(place.path("short"), &image[..4000]).unwrap();
    place.refused(&["info", "short"], 1, &["damaged", "recover"]);
    place.refused(
        &["info", "noise"],
        1,
        &["if it was one, `persimmon recover`"],
    );
    assert_eq!(place.run(&["probe", "noise"]).status.code(), Some(2));
}

#[test]
fn volumes_are_found_by_label_and_uuid() {
    let place = Place::new();
    place.labelled("a", "apple");
    place.labelled("b", "pear");
    let uuid = place.json(&["probe", "b"])["uuid"].clone();
    let info = place.json(&["info", &format!("UUID={}", uuid.as_str().unwrap())]);
    assert_eq!(info["label"], "pear");
    assert_eq!(info["clean"], true);
    fs::copy(place.path("b"), place.path("c")).unwrap();
    place.refused(&["info", "LABEL=pear"], 1, &["/b", "/c"]);
}

#[test]
fn looking_changes_nothing() {
    let place = Place::new();
    place.labelled("a", "");
    unchanged(&place.path("a"), || {
        let zones = place.json(&["zones", "a"]);
        assert!(
            zones
                .as_array()
                .unwrap()
                .iter()
                .any(|zone| zone["role"] == "log")
        );
        assert!(place.json(&["stats", "a"])["user_bytes"].is_u64());
        assert_eq!(place.json(&["fsck", "a", "--data"])["clean"], true);
        assert!(place.run(&["dump", "a", "footer"]).status.success());
        let overview = place.run(&["dump", "a"]);
        let overview = String::from_utf8(overview.stdout).unwrap();
        assert!(overview.starts_with("uuid:"), "{overview}");
        assert_eq!(place.json(&["dump", "a"])["zone_count"], 29);
        let info = place.json(&["info", "a"]);
        assert_eq!(
            info["features"]["incompatible"],
            json!([
                "packed",
                "compact",
                "names",
                "lots",
                "footer-features",
                "frames",
                "shared",
                "snapshots",
                "deltas",
                "dictionaries",
                "compressed-log",
                "long-xattrs",
                "shared-frames",
                "counted-xattrs"
            ])
        );
        assert_eq!(info["zone_capacity_bytes"], 1 << 20);
        let info = String::from_utf8(place.run(&["info", "a"]).stdout).unwrap();
        assert!(
            info.contains("packed") && info.contains("1.0 MiB writable"),
            "{info}"
        );
        place.refused(&["sync", "a"], 1, &["not mounted"]);
        place.refused(&["umount", "a"], 1, &["not mounted"]);
    });
}

/// Where a byte of the image itself is flipped: the finding, by the byte's place.
#[test]
fn damage_of_the_image_is_told_by_number_and_repaired() {
    for (places, number) in [
        (&[100][..], 901),
        // Zone 0 has the first cell of the table.
        (&[65536 + 16], 902),
        (&[65536 + 16, 65536 + 16 + 32], 903),
        (&[65536 + 16, 65536 + 16 + 32], 904),
        (&[32768 + 100], 901),
    ] {
        let place = Place::new();
        place.labelled("a", "");
        let mut image = fs::read(place.path("a")).unwrap();
        for at in places {
            image[*at] ^= 0x20;
        }
        fs::write(place.path("a"), image).unwrap();
        let told = |report: &Value| {
            let findings = report["report"]["findings"].as_array().unwrap();
            findings.iter().any(|finding| finding["number"] == number)
        };
        unchanged(&place.path("a"), || {
            let report = place.json(&["fsck", "a"]);
            assert!(told(&report), "{number}: {report}");
        });
        let repaired = place.run(&["fsck", "a", "--repair", "--yes"]);
        assert_eq!(repaired.status.code(), Some(1), "{number}");
        let report = place.json(&["fsck", "a"]);
        assert!(!told(&report) && report["clean"] == true, "{report}");
    }
}

#[test]
fn who_is_waited_for_is_told() {
    let place = Place::new();
    place.labelled("a", "");
    let file = fs::File::open(place.path("a")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["info", "a", "--json"])
        .current_dir(place.dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(
        line.contains(&format!("process {}", std::process::id())) && line.contains("waiting"),
        "{line}"
    );
    flock(&file, FlockOperation::Unlock).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let _: Value = serde_json::from_slice(&output.stdout).unwrap();
}
