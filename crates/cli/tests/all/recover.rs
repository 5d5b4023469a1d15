//! `persimmon recover` on an image whose log was wiped out.

#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use persimmon::{Create, Filesystem, Options};
use serde_json::Value;

use crate::common::files::Files;
use crate::common::{Place, terminal};

const BLOCK: usize = 4096;

/// All in a checkpoint: nothing is lost with the log.
const FILES: Files = Files {
    count: 300,
    folders: 7,
    words: 20,
    in_checkpoint: 300,
};

/// Overwrites every zone of the log, wherever the image has it.
fn wipe_log(image: &Path) -> usize {
    let bytes = fs::read(image).unwrap();
    let file = OpenOptions::new().write(true).open(image).unwrap();
    let mut wiped = 0;
    for (index, block) in bytes.chunks_exact(BLOCK).enumerate() {
        // Magic, role, and how far it is to the next zone, as docs/FORMAT.md has them.
        if block.starts_with(b"PRSMZONE") && block[153] == 1 {
            let blocks = u32::from_le_bytes(block[172..176].try_into().unwrap());
            let noise = vec![0x5a; blocks as usize * BLOCK];
            file.write_all_at(&noise, (index * BLOCK) as u64).unwrap();
            wiped += 1;
        }
    }
    wiped
}

/// Whether anything was synced after the checkpoint nobody knows any more, and that is told.
fn assert_log_alone_lost(losses: &Value) {
    let list = losses.as_array().unwrap();
    let is_told = |loss: &Value| {
        loss["detail"]
            .as_str()
            .unwrap()
            .contains("the log leads to")
    };
    assert!(list.len() == 1 && list.iter().all(is_told), "{losses}");
}

#[test]
fn a_volume_without_a_log_is_copied_to_a_new_one() {
    let place = Place::new();
    let dir = place.dir();
    FILES.make(&place, "broken", "96M", "old");

    assert!(wipe_log(&dir.join("broken")) > 0);
    fs::copy(dir.join("broken"), dir.join("mended")).unwrap();
    let before = fs::read(dir.join("broken")).unwrap();
    assert_eq!(place.run(&["info", "broken"]).status.code(), Some(1));

    let same = place.run(&["recover", "broken", "broken", "--force"]);
    assert_eq!(same.status.code(), Some(1));
    let output = place.run(&["recover", "broken", "new", "--label", "saved", "--json"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_log_alone_lost(&report["losses"]);
    assert_eq!(report["recovered"]["source"], "pages");
    assert_eq!(report["recovered"]["files_intact"], 300);
    assert!(fs::read(dir.join("broken")).unwrap() == before);

    assert!(place.run(&["fsck", "new", "--data"]).status.success());
    FILES.check(&dir.join("new"), &Options::default(), "copied");
    asked_on_a_terminal(dir);
    mend_in_place(&place);
    FILES.check(&dir.join("mended"), &Options::default(), "mended");
    // There is something now.
    let again = place.run(&["recover", "broken", "new"]);
    assert_eq!(again.status.code(), Some(1));
}

/// Where it asks, and is told no, standard output has the JSON and nothing else.
fn asked_on_a_terminal(dir: &Path) {
    let before = fs::read(dir.join("mended")).unwrap();
    let (mut keyboard, terminal) = terminal();
    keyboard.write_all(b"n\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["fsck", "mended", "--repair", "--json"])
        .current_dir(dir)
        .stdin(terminal)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("repair") && told.contains("[y/N]"), "{told}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["clean"], false);
    assert_eq!(answer["repaired"], false);
    assert_eq!(answer["report"], Value::Null);
    assert!(fs::read(dir.join("mended")).unwrap() == before);
}

/// The same in place.
fn mend_in_place(place: &Place) {
    assert_eq!(place.run(&["fsck", "mended"]).status.code(), Some(8));
    assert_eq!(place.run(&["fsck", "-a", "mended"]).status.code(), Some(8));
    let output = place.run(&["fsck", "mended", "--repair", "--yes", "--json"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["clean"], true);
    assert_log_alone_lost(&report["losses"]);
    let again = place.run(&["fsck", "mended", "--data"]);
    assert_eq!(again.status.code(), Some(0));
}

/// The new volume had no label, so that nothing found it by that any more, one copy where there were two, and the
/// usual reserve.
#[test]
fn the_new_volume_is_as_the_broken_one_was_made() {
    let place = Place::new();
    let made = "mkfs old --size 128M --copies 2 --label kept --reserve 12%";
    let words: Vec<&str> = made.split(' ').collect();
    assert!(place.run(&words).status.success());
    let output = place.run(&["recover", "old", "new"]);
    assert!(output.status.success(), "{output:?}");
    let json = |words: &[&str]| -> Value {
        let output = place.run(words);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let [old, new] = ["old", "new"].map(|image| json(&["info", image, "--json"]));
    assert_eq!(new["label"], "kept");
    assert_eq!(new["copies"], 2);
    assert_ne!(new["uuid"], old["uuid"]);
    let footer = json(&["dump", "new", "footer", "--json"]);
    assert_eq!(footer["reserve_basis_points"], 1200);

    let chosen = ["recover", "old", "other", "--copies", "1", "--label", ""];
    assert!(place.run(&chosen).status.success());
    let other = json(&["info", "other", "--json"]);
    assert_eq!((&other["label"], &other["copies"]), (&"".into(), &1.into()));
}

/// It said "no space left on the volume" twice, and not what to do.
#[test]
fn a_new_volume_that_is_too_small_is_told_with_the_remedy() {
    let place = Place::in_memory();
    place.does(&["mkfs", "broken", "--size", "64M"]);
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(24 << 20).collect();
    fs::write(place.path("host"), noise).unwrap();
    place.does(&["fs", "cp", "broken", "host", ":/a"]);
    for clone in [":/b", ":/c"] {
        place.does(&["clone", "broken", ":/a", clone]);
    }
    let words = ["too small", "copied for each of them", "--size"];
    place.refused(&["recover", "broken", "new"], 1, &words);
    let larger = ["recover", "broken", "new", "--size", "128M", "--force"];
    place.does(&larger);
}

/// It was written without compression, also with `--compression`: what was left of a volume with files that compress did not fit into one of
/// the same size, and blocks that files share were blamed.
#[test]
fn what_compressed_fits_into_a_volume_of_the_same_size() {
    let place = Place::new();
    let (dir, broken) = (place.dir(), place.path("broken"));
    Filesystem::create(&broken, &Create::sized(64 << 20)).unwrap();
    let text = |file: u32| -> Vec<u8> {
        let lines = (0..).flat_map(|line: u64| format!("{file} {line}: a line\n").into_bytes());
        lines.take(8 << 20).collect()
    };
    let filesystem = Filesystem::open(&broken, &Options::default()).unwrap();
    for file in 0..10 {
        filesystem.write(format!("{file}"), text(file)).unwrap();
    }
    filesystem.close().unwrap();
    let ways: [(&str, &[&str], &str); 2] = [
        ("as a mount", &[], "lz4"),
        ("as told", &["--compression", "zstd:1"], "zstd"),
    ];
    for (new, more, how) in ways {
        place.does(&[&["recover", "broken", new], more].concat());
        let usage = place.json(&["usage", new]);
        let content = usage["content_bytes"].as_u64().unwrap();
        assert!(content >= 80 << 20, "{usage:#}");
        assert_eq!(
            usage["by_storage"][how]["content_bytes"], content,
            "{usage:#}"
        );
        let filesystem = Filesystem::open(dir.join(new), &Options::default()).unwrap();
        for file in 0..10 {
            assert!(filesystem.read(format!("{file}")).unwrap() == text(file));
        }
        filesystem.write("later", text(10)).unwrap();
        filesystem.close().unwrap();
        let usage = place.json(&["usage", new]);
        assert_eq!(
            usage["by_storage"][how]["content_bytes"],
            usage["content_bytes"]
        );
    }
}
