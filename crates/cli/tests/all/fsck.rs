//! `persimmon fsck --repair`: what it repairs, and what it says of that.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use persimmon::Filesystem;
use persimmon_format::inode::{ROOT, SHARED};
use persimmon_format::name::DirEntry;
use persimmon_format::record::Op;
use persimmon_format::{Key, KeyKind};
use serde_json::Value;

use crate::common::{Place, terminal, told};

impl Place {
    fn open(&self) -> Filesystem {
        Filesystem::open(self.dir().join("img"), &Default::default()).unwrap()
    }

    /// Exit code and JSON of fsck.
    fn fsck(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(&[&["fsck", "img", "--json"], arguments].concat());
        let answer = serde_json::from_slice(&output.stdout);
        let answer = answer.unwrap_or_else(|_| panic!("{arguments:?}: {}", told(&output)));
        (output.status.code(), answer)
    }
}

/// A volume with a file whose link count is wrong.
fn with_a_wrong_count() -> Place {
    let place = Place::new();
    let made = place.run(&["mkfs", "img", "--size", "64M"]);
    assert!(made.status.success(), "{}", told(&made));
    let filesystem = place.open();
    filesystem.write("/file", b"before").unwrap();
    filesystem.sync().unwrap();
    let volume = filesystem.vfs().volume();
    let ino = filesystem.metadata("/file").unwrap().ino;
    let inode = volume.view::<_, persimmon_engine::Error>(|v| v.inode(ino));
    let mut inode = inode.unwrap().unwrap();
    inode.nlink = 2;
    let value = inode.encode();
    let key = Key::inode(ino);
    let ops = [Op::Put { key, value }];
    volume.repair(&ops, false, false).unwrap();
    filesystem.close().unwrap();
    place
}

/// fsck let go of the device while it waited for an answer, and then carried out the plan of before. Whoever
/// mounted the volume meanwhile and wrote to the file lost that: the plan put back the inode of then.
#[test]
fn a_volume_that_changes_while_it_asks_is_not_repaired_by_the_old_plan() {
    let place = with_a_wrong_count();
    let (mut keyboard, terminal) = terminal();
    let mut fsck = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["fsck", "img", "--repair"])
        .current_dir(place.dir())
        .stdin(terminal)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = fsck.stderr.take().unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"[y/N] ") {
        let mut byte = [0];
        errors.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    let filesystem = place.open();
    let content = b"after".repeat(10_000);
    filesystem.write("/file", &content).unwrap();
    filesystem.close().unwrap();
    keyboard.write_all(b"y\n").unwrap();
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    let code = fsck.wait().unwrap().code();

    let (_, found) = place.fsck(&[]);
    let numbers = found["report"]["numbers"].as_array().unwrap();
    assert!(numbers.contains(&621.into()), "{found}");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("changed it after it was checked"), "{said}");
    let filesystem = place.open();
    assert!(filesystem.read("/file").unwrap() == content);
    filesystem.close().unwrap();
    // Asked again, it makes a new plan.
    let (code, report) = place.fsck(&["--yes"]);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(
        (&report["clean"], &report["repaired"]),
        (&true.into(), &true.into())
    );
    assert_eq!(place.fsck(&["--data"]).0, Some(0));
    let filesystem = place.open();
    assert!(filesystem.read("/file").unwrap() == content);
    filesystem.close().unwrap();
}

/// Damages the last zone of metadata behind its header: one of two copies of all that is in it.
fn spoil_a_copy(image: &Path) {
    const BLOCK: usize = 4096;
    let bytes = fs::read(image).unwrap();
    // Magic and role of a zone header, as docs/FORMAT.md has them.
    let is_metadata = |block: &[u8]| block.starts_with(b"PRSMZONE") && block[153] == 2;
    let zone = bytes.chunks_exact(BLOCK).rposition(is_metadata).unwrap();
    let file = OpenOptions::new().write(true).open(image).unwrap();
    for block in 1..30 {
        let at = ((zone + block) * BLOCK + 1000) as u64;
        file.write_all_at(&[0x5a; 100], at).unwrap();
    }
}

/// `fsck -a` said that errors were corrected at every boot, as long as there was a warning that stays: of two
/// copies of a page one is damaged.
#[test]
fn a_warning_that_stays_is_nothing_that_was_corrected() {
    let place = Place::new();
    let made = place.run(&["mkfs", "img", "--size", "64M", "--copies", "2"]);
    assert!(made.status.success(), "{}", told(&made));
    let filesystem = place.open();
    for n in 0..500 {
        filesystem.write(format!("/file {n}"), [7; 100]).unwrap();
    }
    filesystem.sync().unwrap();
    let volume = filesystem.vfs().volume();
    volume.step(persimmon_engine::Task::Checkpoint).unwrap();
    filesystem.close().unwrap();
    spoil_a_copy(&place.dir().join("img"));
    // The tables, which a checkpoint writes anyway, are whole again after the first.
    place.fsck(&["-a"]);
    for arguments in [["-a"], ["--yes"], ["-a"]] {
        let (code, answer) = place.fsck(&arguments);
        let numbers = answer["report"]["numbers"].as_array().unwrap();
        assert!(numbers.contains(&407.into()), "{answer}");
        assert_eq!(answer["repaired"], false, "{answer}");
        assert_eq!((code, &answer["clean"]), (Some(0), &true.into()));
    }
}

/// Counts of shared blocks that are too low, and an unlinked file that has such blocks, beside so much that one plan does not put it all
/// right: the file was freed before the counts were right, and took along what another one has.
#[test]
fn what_is_freed_takes_no_blocks_that_another_file_has() {
    const BROKEN: u64 = 25_000;
    let place = Place::new();
    let made = place.run(&["mkfs", "img", "--size", "256M"]);
    assert!(made.status.success(), "{}", told(&made));
    let filesystem = place.open();
    let content: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    filesystem.write("/one", &content).unwrap();
    filesystem.copy("/one", "/other").unwrap();
    filesystem.sync().unwrap();
    let other = filesystem.metadata("/other").unwrap().ino;
    let volume = filesystem.vfs().volume();
    let mut ops = Vec::new();
    let scanned = volume.view::<_, persimmon_engine::Error>(|view| {
        ops.clear();
        view.scan(
            Key::inode(ROOT)..Key::inode(persimmon::internal::format::Ino(1 << 47)),
            |key, value| {
                let is_count = (key.ino, key.kind) == (SHARED, KeyKind::REFERENCES);
                let is_entry = (key.ino, key.kind) == (ROOT, KeyKind::DIR_ENTRY);
                if is_count || is_entry && DirEntry::decode(value).unwrap().ino == other {
                    ops.push(Op::Delete { key });
                }
                Ok(ControlFlow::Continue(()))
            },
        )
    });
    scanned.unwrap();
    assert!(ops.len() > 1, "a count, and the name of the file");
    // Counts that cannot be, before all that the store has, so that their mending comes first.
    ops.extend((0..BROKEN).map(|at| Op::Put {
        key: Key::references(at),
        value: vec![0],
    }));
    let inode = volume.view::<_, persimmon_engine::Error>(|view| view.inode(other));
    let mut inode = inode.unwrap().unwrap();
    inode.nlink = 0;
    ops.push(Op::Put {
        key: Key::inode(other),
        value: inode.encode(),
    });
    ops.push(Op::Put {
        key: Key::orphan(other),
        value: Vec::new(),
    });
    volume.repair(&ops, false, true).unwrap();
    drop(filesystem);
    let (code, report) = place.fsck(&["--yes"]);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(place.fsck(&["--data"]).0, Some(0));
    let filesystem = place.open();
    assert!(filesystem.read("/one").unwrap() == content);
    assert!(filesystem.metadata("/other").is_err());
    filesystem.close().unwrap();
}

/// A data zone was overwritten. The repair moved the damaged blocks to another zone and did not report them. It called the volume clean, and so did
/// every later check.
#[test]
fn what_a_zone_without_a_header_lost_of_files_is_told() {
    for (is_whole, code) in [(false, 1), (true, 4)] {
        let place = Place::new();
        let made = place.run(&["mkfs", "img", "--size", "64M", "--compression", "none"]);
        assert!(made.status.success(), "{}", told(&made));
        let filesystem = place.open();
        let numbers = (0..100_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes());
        let content: Vec<u8> = numbers.collect();
        filesystem.write("/file", &content).unwrap();
        filesystem.close().unwrap();
        let zones = place.run(&["zones", "img", "--json"]);
        let zones: Value = serde_json::from_slice(&zones.stdout).unwrap();
        let zones = zones.as_array().unwrap();
        let data = zones.iter().find(|zone| zone["role"] == "data").unwrap();
        let image = OpenOptions::new()
            .read(true)
            .write(true)
            .open(place.dir().join("img"))
            .unwrap();
        // The superblock has the offset of the first zone, and the distance from one zone to the next.
        let field = |at| {
            let mut bytes = [0; 8];
            image.read_exact_at(&mut bytes, at).unwrap();
            u64::from_le_bytes(bytes)
        };
        let at = field(160) + data["zone"].as_u64().unwrap() * field(168);
        let blocks = data["write_pointer_blocks"].as_u64().unwrap();
        let lost = if is_whole { blocks * 4096 } else { 4096 };
        image.write_all_at(&vec![0; lost as usize], at).unwrap();
        let numbers = |answer: &Value| answer["report"]["numbers"].to_string();
        let (found, answer) = place.fsck(&[]);
        assert_eq!(found, Some(4));
        assert!(numbers(&answer).contains("101"), "{answer}");
        assert_eq!(numbers(&answer).contains("801"), is_whole, "{answer}");
        let (repaired, answer) = place.fsck(&["--repair", "--yes"]);
        assert_eq!(repaired, Some(code), "{answer}");
        assert!(!numbers(&answer).contains("101"), "{answer}");
        assert_eq!(numbers(&answer).contains("801"), is_whole, "{answer}");
    }
}
