//! An image that a newer program wrote to: what each command says, and its exit code.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use persimmon::Filesystem;
use persimmon_format::zone_header::MAGIC;
use persimmon_format::{BLOCK_SIZE, checksum};
use serde_json::Value;

use crate::common::{Place, told};

/// Sets a bit that no version has yet in the feature set at this byte of each zone header, or of the last one.
fn set_flag(place: &Place, byte: usize, all: bool) {
    let image = place.dir().join("img");
    let bytes = fs::read(&image).unwrap();
    let blocks = bytes.chunks_exact(BLOCK_SIZE).enumerate();
    let mut headers: Vec<(usize, Vec<u8>)> = blocks
        .filter(|(_, block)| block.starts_with(&MAGIC))
        .map(|(at, block)| (at, block.to_vec()))
        .collect();
    headers.sort_by_key(|(_, block)| block[160..168].iter().rev().copied().collect::<Vec<_>>());
    let file = OpenOptions::new().write(true).open(image).unwrap();
    let from = if all { 0 } else { headers.len() - 1 };
    for (at, block) in &mut headers[from..] {
        block[byte + 7] |= 0x80;
        let sum = checksum::plain(&block[..BLOCK_SIZE - 8]);
        block[BLOCK_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(block, (*at * BLOCK_SIZE) as u64).unwrap();
    }
}

fn made() -> Place {
    let place = Place::new();
    let made = place.run(&["mkfs", "img", "--size", "64M", "--label", "mine"]);
    assert!(made.status.success(), "{}", told(&made));
    let filesystem = Filesystem::open(place.dir().join("img"), &Default::default()).unwrap();
    filesystem.write("/file", vec![7; 3 << 20]).unwrap();
    filesystem.close().unwrap();
    place
}

#[test]
fn an_unknown_incompatible_feature_is_an_error_of_every_command() {
    for all in [false, true] {
        let place = made();
        set_flag(&place, 128, all);
        let before = fs::read(place.dir().join("img")).unwrap();
        let words = ["features 0x8000000000000000", "use a newer persimmon"];
        for (arguments, code) in [
            (&["probe", "img"][..], 1),
            (&["probe", "img", "--udev"], 1),
            (&["info", "img"], 1),
            (&["zones", "img"], 1),
            (&["fsck", "img"], 8),
            (&["fsck", "-a", "img"], 8),
            (&["fsck", "img", "--repair", "--yes"], 8),
            (&["recover", "img", "new"], 1),
        ] {
            place.refused(arguments, code, &words);
        }
        // It is told for what it is, so that nobody takes it for blank.
        let probed = place.run(&["probe", "img", "--json"]);
        let probed: Value = serde_json::from_slice(&probed.stdout).unwrap();
        assert_eq!(probed["label"], "mine");
        assert!(
            probed["unsupported"]
                .as_str()
                .unwrap()
                .contains("newer persimmon")
        );
        assert!(fs::read(place.dir().join("img")).unwrap() == before);
    }
}

#[test]
fn features_that_need_not_be_known_to_read_are_told() {
    for (byte, set) in [(136, "read_only_compatible"), (144, "compatible")] {
        let place = made();
        set_flag(&place, byte, false);
        for command in ["probe", "info", "fsck"] {
            let output = place.run(&[command, "img"]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{command}: {}",
                told(&output)
            );
        }
        let info = place.run(&["info", "img", "--json"]);
        let info: Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!(
            info["features"][set],
            Value::from(vec!["0x8000000000000000"])
        );
        let opened = Filesystem::open(place.dir().join("img"), &Default::default());
        match (opened, set) {
            (Ok(filesystem), "compatible") => {
                assert!(filesystem.read("/file").unwrap() == vec![7; 3 << 20]);
                filesystem.close().unwrap();
            }
            (Err(error), "read_only_compatible") => {
                let text = error.to_string();
                assert!(text.contains("mount it read-only (-o ro)"), "{text}");
            }
            _ => panic!("{set}"),
        }
    }
}
