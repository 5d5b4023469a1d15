//! `persimmon dedup` of a volume that is not mounted; on a mount it is tested in tests/mount.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use persimmon::{Create, Filesystem, OpenOptions, Options};
use serde_json::Value;

use crate::common::Place;

const BLOCK: usize = 4096;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let byte = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    let lines = (seed..).flat_map(|line| format!("{line}: a line of text\n").into_bytes());
    lines.take(len).collect()
}

/// Blocks of file data that zones count.
fn stored_blocks(place: &Place) -> u64 {
    let zones = place.json(&["zones", "img"]);
    let zones = zones.as_array().unwrap().iter();
    let data = zones.filter(|zone| zone["role"] == "data");
    data.map(|zone| zone["valid_blocks"].as_u64().unwrap())
        .sum()
}

fn is_sound(place: &Place) {
    place.does(&["fsck", "--data", "img"]);
}

fn open(place: &Place) -> Filesystem {
    Filesystem::open(place.dir().join("img"), &Options::default()).unwrap()
}

/// A tree of files that are large, small, compressible, sparse, and parts of each other.
fn tree() -> Vec<(&'static str, Vec<u8>)> {
    let mut holes = vec![0; 200 * BLOCK];
    holes[40 * BLOCK..90 * BLOCK].copy_from_slice(&noise(5, 50 * BLOCK));
    vec![
        ("noise", noise(1, 700 * BLOCK + 99)),
        ("text", text(1, 300 * BLOCK + 5)),
        ("deep/small", b"a few bytes".to_vec()),
        ("deep/single", noise(2, BLOCK)),
        ("deep/holes", holes),
        ("empty", Vec::new()),
    ]
}

fn fill(filesystem: &Filesystem, top: &str) {
    filesystem.create_dir(top).unwrap();
    filesystem.create_dir(format!("{top}/deep")).unwrap();
    for (name, content) in tree() {
        let path = format!("{top}/{name}");
        if name != "deep/holes" {
            filesystem.write(&path, content).unwrap();
            continue;
        }
        let options = OpenOptions::new().write(true).create(true);
        let file = filesystem.open_file(&path, &options).unwrap();
        file.set_len(content.len() as u64).unwrap();
        let data = 40 * BLOCK..90 * BLOCK;
        file.write_at(&content[data.clone()], data.start as u64)
            .unwrap();
    }
    filesystem.sync().unwrap();
}

fn check(filesystem: &Filesystem, top: &str) {
    for (name, content) in tree() {
        assert!(
            filesystem.read(format!("{top}/{name}")).unwrap() == content,
            "{name}"
        );
    }
}

fn number(answer: &Value, field: &str) -> u64 {
    answer[field].as_u64().unwrap()
}

#[test]
fn two_copies_of_a_tree_become_one() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = open(&place);
    fill(&filesystem, "/one");
    filesystem.close().unwrap();
    let single = stored_blocks(&place);
    let filesystem = open(&place);
    fill(&filesystem, "/two");
    let times = |filesystem: &Filesystem| {
        let attr = filesystem.metadata("/two/noise").unwrap();
        (attr.mtime, attr.ctime)
    };
    let before = times(&filesystem);
    filesystem.close().unwrap();
    let double = stored_blocks(&place);
    assert!(double >= 2 * single - 2, "{single} {double}");

    let image_before = std::fs::read(&image).unwrap();
    let would = place.json(&["dedup", "img", "--dry-run"]);
    assert!(std::fs::read(&image).unwrap() == image_before);
    assert_eq!(would["dry_run"], true);
    let done = place.json(&["dedup", "img"]);
    let field = |name| number(&done, name);
    assert_eq!((field("files"), field("failed")), (12, 0), "{done}");
    assert_eq!(number(&would, "shared_bytes"), field("shared_bytes"));
    // All but the last blocks, which may lie in the tree, and the file of a block.
    assert!(field("shared_bytes") >= 1050 * BLOCK as u64, "{done}");
    assert_eq!((field("runs"), field("sampling")), (3, 1), "{done}");
    assert_eq!(done["complete"], true);
    let after = stored_blocks(&place);
    assert!(after <= single + 6, "{single} {double} {after}");
    let usage = place.json(&["usage", "img"]);
    let shared = number(&usage["by_storage"]["shared"], "content_bytes");
    assert_eq!(
        shared,
        2 * field("shared_bytes").next_multiple_of(BLOCK as u64)
    );
    is_sound(&place);

    let again = place.json(&["dedup", "img"]);
    assert_eq!(number(&again, "shared_bytes"), 0, "{again}");
    assert_eq!(stored_blocks(&place), after);
    let filesystem = open(&place);
    check(&filesystem, "/one");
    check(&filesystem, "/two");
    assert_eq!(times(&filesystem), before);
    // What one of them writes is its own.
    filesystem.write("/two/text", b"other").unwrap();
    check(&filesystem, "/one");
    filesystem.close().unwrap();
    is_sound(&place);
}

/// Two files that are equal up to their ends, most of which is a hole: nobody compares that. A terabyte took a minute, and 2^63 bytes years.
#[test]
fn long_holes_are_passed_by() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = open(&place);
    let (start, end) = (noise(7, 10 * BLOCK), noise(8, 10 * BLOCK));
    let far = 1 << 37;
    for name in ["/one", "/two"] {
        let options = OpenOptions::new().write(true).create(true);
        let file = filesystem.open_file(name, &options).unwrap();
        file.write_at(&start, 0).unwrap();
        file.write_at(&end, far).unwrap();
        file.set_len(2 * far).unwrap();
    }
    filesystem.close().unwrap();
    let done = place.json(&["dedup", "img"]);
    assert_eq!(done["complete"], true);
    let data = 20 * BLOCK as u64;
    assert!(number(&done, "shared_bytes") >= data, "{done}");
    assert!(number(&done, "bytes") < 1 << 30, "{done}");
    is_sound(&place);
}

/// A copy at another place of a file, and blocks that come again within one; with memory for a sample of the hashes.
#[test]
fn runs_are_found_wherever_they_begin_and_with_little_memory() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = open(&place);
    let content = noise(3, 1500 * BLOCK);
    filesystem.write("/one", &content).unwrap();
    let mut moved = noise(4, 3 * BLOCK);
    moved.extend_from_slice(&content[100 * BLOCK..1400 * BLOCK]);
    filesystem.write("/two", &moved).unwrap();
    filesystem.create_dir("/dir").unwrap();
    let mut twice = noise(6, 64 * BLOCK);
    twice.extend_from_within(..);
    filesystem.write("/dir/twice", &twice).unwrap();
    // Fewer blocks than a run has.
    filesystem.write("/dir/short", noise(7, 3 * BLOCK)).unwrap();
    filesystem.write("/dir/other", noise(7, 3 * BLOCK)).unwrap();
    filesystem.close().unwrap();
    let before = stored_blocks(&place);

    let done = place.json(&["dedup", "img", "dir"]);
    let field = |name| number(&done, name);
    assert_eq!((field("files"), field("runs")), (3, 1), "{done}");
    assert_eq!(field("shared_bytes"), 64 * BLOCK as u64);
    let done = place.json(&["dedup", "img", "--memory", "4K"]);
    let field = |name| number(&done, name);
    assert_eq!(field("memory_bytes"), 4096);
    assert!(field("sampling") >= 4, "{done}");
    // From its first block on, though that one is most likely none of the sample.
    assert_eq!(field("shared_bytes"), 1300 * BLOCK as u64, "{done}");
    assert_eq!(before - stored_blocks(&place), 1364);
    let done = place.json(&["dedup", "img", "/dir", "--min-run", "3"]);
    assert_eq!(number(&done, "shared_bytes"), 3 * BLOCK as u64, "{done}");
    is_sound(&place);
    let filesystem = open(&place);
    for (path, due) in [("/one", &content), ("/two", &moved), ("/dir/twice", &twice)] {
        assert!(filesystem.read(path).unwrap() == *due, "{path}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    place.refused(&["dedup", "img", "nowhere"], 1, &["nowhere"]);
    place.refused(&["dedup", "none"], 1, &["none"]);
    place.refused(&["dedup", "img", "--min-run", "0"], 2, &["--min-run"]);
    place.refused(&["dedup", "img", "--rate", "fast"], 2, &["not a size"]);
    let dir = place.dir().to_str().unwrap();
    place.refused(&["dedup", dir], 1, &["not on a mounted Persimmon volume"]);
    // An empty volume, slowly.
    let done = place.json(&["dedup", "img", "--rate", "1M"]);
    assert_eq!(number(&done, "files"), 0);
    let output = place.run(&["dedup", "img"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("0 files") && text.contains("each block"),
        "{text}"
    );
    assert!(Path::new(&image).exists());
}

/// Files of a read-only snapshot give their blocks, and are passed over where there is nobody to give them to.
#[test]
fn snapshots_share_with_what_was_written_since() {
    let place = Place::in_memory();
    let image = place.dir().join("img");
    Filesystem::create(&image, &Create::sized(64 << 20)).unwrap();
    let filesystem = open(&place);
    let content = noise(3, 300 * BLOCK);
    filesystem.write("/one", &content).unwrap();
    filesystem.write("/twin", &content).unwrap();
    filesystem.take_snapshot("then", false).unwrap();
    filesystem.remove_file("/one").unwrap();
    filesystem.remove_file("/twin").unwrap();
    filesystem.write("/again", &content).unwrap();
    filesystem.close().unwrap();
    assert_eq!(stored_blocks(&place), 900);

    let done = place.json(&["dedup", "img", "/", "/.snapshots/then"]);
    assert_eq!(done["complete"], true, "{done}");
    // Neither of the snapshot's files can get blocks of the other.
    assert_eq!(stored_blocks(&place), 600);
    let filesystem = open(&place);
    for path in ["/again", "/.snapshots/then/one", "/.snapshots/then/twin"] {
        assert!(filesystem.read(path).unwrap() == content, "{path}");
    }
    filesystem.close().unwrap();
    is_sound(&place);
    // Only those of the snapshot.
    let done = place.json(&["dedup", "img", "/.snapshots/then"]);
    assert_eq!(done["complete"], true, "{done}");
}

/// Versions of one file take what they have of their own, after the first is gone too.
#[test]
fn versions_of_files_take_what_they_differ_in() {
    let place = Place::in_memory();
    Filesystem::create(place.dir().join("img"), &Create::sized(64 << 20)).unwrap();
    let filesystem = open(&place);
    let first = noise(8, 900 * BLOCK + 1000);
    let mut second = first.clone();
    for at in (0..second.len()).step_by(10_000) {
        second[at] ^= 1;
    }
    // And what is behind is moved by some bytes.
    let mut third = first.clone();
    third.splice(100_000..100_000, *b"some more");
    let versions = [("/one", &first), ("/two", &second), ("/three", &third)];
    for (path, content) in versions {
        filesystem.write(path, content).unwrap();
    }
    filesystem.close().unwrap();
    let before = stored_blocks(&place);
    let equal = place.json(&["dedup", "img"]);
    assert_eq!(number(&equal, "near_bytes"), 0);
    let done = place.json(&["dedup", "img", "--near"]);
    let spared = number(&done, "near_bytes");
    assert!(spared > 1500 * BLOCK as u64, "{done}");
    let after = stored_blocks(&place);
    assert!(after + 1500 < before, "{before} {after}");
    is_sound(&place);
    let filesystem = open(&place);
    filesystem.remove_file("/one").unwrap();
    for (path, content) in &versions[1..] {
        assert!(filesystem.read(path).unwrap() == **content, "{path}");
    }
    filesystem.close().unwrap();
    is_sound(&place);
    place.refused(&["dedup", "img", "--near", "--dry-run"], 2, &["--dry-run"]);
}
