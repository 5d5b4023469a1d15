//! `persimmon usage` of a volume that is not mounted; of a mount it is asked in tests/mount.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use persimmon::vfs::Allocate;
use persimmon::{Create, Filesystem, OpenOptions, Options};
use serde_json::{Value, json};

use crate::common::{Place, told};

const NAME: &str = "user.persimmon.compression";
const BLOCK: u64 = 4096;

fn text(len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|line: u64| format!("{line}: a line of text\n").into_bytes());
    lines.take(len).collect()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let byte = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

fn usage(place: &Place) -> Value {
    let output = place.run(&["usage", "img", "--json"]);
    assert!(output.status.success(), "{}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What `stat` says of all files.
fn stored(filesystem: &Filesystem, paths: &[&str]) -> u64 {
    let sectors = |path: &&str| filesystem.metadata(path).unwrap().blocks;
    paths.iter().map(sectors).sum::<u64>() * 512
}

#[test]
fn content_is_counted_by_how_it_is_stored() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let empty = usage(&place);
    assert_eq!(empty["files"], 0);
    assert_eq!(
        (&empty["content_bytes"], &empty["ratio"]),
        (&json!(0), &json!(null))
    );

    let filesystem = Filesystem::open(&image, &Options::default()).unwrap();
    for (dir, value) in [("/none", "none"), ("/lz4", "lz4"), ("/zstd", "zstd:3")] {
        filesystem.create_dir(dir).unwrap();
        filesystem.set_xattr(dir, NAME, value.as_bytes()).unwrap();
    }
    let len = 100 * BLOCK as usize;
    for path in ["/none/text", "/lz4/text", "/zstd/text"] {
        filesystem.write(path, text(len)).unwrap();
    }
    filesystem.write("/noise", noise(len - 1)).unwrap();
    filesystem.write("/small", b"some bytes").unwrap();
    filesystem.write("/empty", b"").unwrap();
    let options = OpenOptions::new().write(true).create(true);
    let file = filesystem.open_file("/holes", &options).unwrap();
    file.write_at(&noise(BLOCK as usize), 1 << 20).unwrap();
    file.allocate(0, 3 * BLOCK, Allocate::Reserve { keep_size: true })
        .unwrap();
    drop(file);
    filesystem.sync().unwrap();
    // A part of a frame, and one that is in two parts.
    let file = filesystem
        .open_file("/lz4/text", &OpenOptions::new().write(true))
        .unwrap();
    file.write_at(&noise(BLOCK as usize), 5 * BLOCK).unwrap();
    drop(file);
    filesystem.hard_link("/noise", "/again").unwrap();
    filesystem.sync().unwrap();
    let paths = [
        "/none/text",
        "/lz4/text",
        "/zstd/text",
        "/noise",
        "/small",
        "/empty",
        "/holes",
    ];
    let due = stored(&filesystem, &paths);
    let of_zstd = stored(&filesystem, &["/zstd/text"]);
    filesystem.close().unwrap();

    let found = usage(&place);
    let by = &found["by_storage"];
    let content = |kind: &str| by[kind]["content_bytes"].as_u64().unwrap() / BLOCK;
    let stored = |kind: &str| by[kind]["stored_bytes"].as_u64().unwrap();
    assert_eq!(found["files"], paths.len() as u64, "{found}");
    assert_eq!(found["unreadable"], 0);
    assert_eq!(found["stored_bytes"], due, "{found}");
    assert_eq!(found["content_bytes"], (4 * 100 + 1 + 1) * BLOCK, "{found}");
    // The block of noise in the midst of a frame.
    assert_eq!(
        (content("whole"), stored("whole")),
        (202, 202 * BLOCK),
        "{found}"
    );
    assert_eq!(content("lz4"), 99, "{found}");
    assert!(stored("lz4") < 99 * BLOCK / 2, "{found}");
    assert_eq!((content("zstd"), stored("zstd")), (100, of_zstd), "{found}");
    assert!(stored("zstd") < stored("lz4"), "{found}");
    assert_eq!((content("inline"), stored("inline")), (1, 512), "{found}");
    assert_eq!(
        (content("reserved"), stored("reserved")),
        (0, 3 * BLOCK),
        "{found}"
    );
    let ratio = due as f64 / (402 * BLOCK) as f64;
    assert!(
        (found["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9,
        "{found}"
    );

    let output = place.run(&["usage", "img"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "7 files",
        "whole blocks",
        "lz4",
        "zstd",
        "inline in the tree",
        "preallocated",
        "1.6 MiB",
    ] {
        assert!(text.contains(words), "no '{words}' in:\n{text}");
    }
}

#[test]
fn what_a_crash_left_in_the_journal_counts() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = Filesystem::open(&image, &Options::default()).unwrap();
    filesystem
        .write("/text", text(50 * BLOCK as usize))
        .unwrap();
    filesystem
        .write("/gone", text(50 * BLOCK as usize))
        .unwrap();
    filesystem.sync().unwrap();
    filesystem.remove_file("/gone").unwrap();
    filesystem.sync().unwrap();
    let due = stored(&filesystem, &["/text"]);
    copy_while_open(&image, &place.dir().join("copy"));
    let output = place.run(&["usage", "copy", "--json"]);
    assert!(output.status.success(), "{}", told(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["files"], &found["stored_bytes"]),
        (&json!(1), &json!(due))
    );
    assert_eq!(found["content_bytes"], 50 * BLOCK);
    filesystem.close().unwrap();
}

fn copy_while_open(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
}

#[test]
fn what_is_no_volume_is_told() {
    let place = Place::new();
    std::fs::write(place.dir().join("other"), vec![0; 1 << 20]).unwrap();
    place.refused(&["usage", "other"], 1, &["persimmon usage", "other"]);
    place.refused(
        &["usage", "."],
        1,
        &["is not on a mounted Persimmon volume"],
    );
    place.refused(&["usage", "nothing"], 1, &["nothing"]);
}
