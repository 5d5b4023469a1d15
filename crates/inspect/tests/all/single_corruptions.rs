//! One flipped bit in one block, for every kind of structure and bit positions all over the block,
//! every byte of its header included: whoever needs the block notices. fsck says that something is
//! wrong, and the engine refuses, reports an error, or reads what was written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::support::{
    FILE, add, add_compressed, addr, content, engine_items, footer, formatted, formatted_on, now,
    open, pages, populate, report, text,
};
use persimmon_engine::{CloneRange, CloneWhen, Error, Options, Quotas, Task, Volume};
use persimmon_format::compression::Codec;
use persimmon_format::delta;
use persimmon_format::envelope::{self, HEADER_LEN, Kind};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{ROOT, SHARED};
use persimmon_format::page::{self, PAGE_SIZE, PageView};
use persimmon_format::{
    Addr, BLOCK_SIZE, Compression, DeviceId, Ino, Key, KeyKind, SubvolumeId, VersionId,
};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::{CheckOptions, Inspector, Report, Severity, check};
use persimmon_sim::{SimConfig, SimDevice};

/// Bits between two that are flipped behind the header: no multiple of anything in the formats.
const STRIDE_BITS: usize = 331;

/// A volume with a tree of several levels, and a journal after its checkpoint.
fn volume() -> Arc<SimDevice> {
    let device = formatted();
    let volume = open(&device);
    let files = populate(&volume);
    for n in 0..150u64 {
        let ino = add(&volume, ROOT, &format!("one of many {n}"), FILE);
        volume.write(ino, 0, &content(n, 600), now(2)).unwrap();
    }
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    for n in 0..4 {
        let ino = files[n as usize];
        volume.write(ino, 0, &content(n, 5000), now(7)).unwrap();
        volume.sync_file(ino).unwrap();
    }
    volume.close().unwrap();
    device
}

/// One block that is needed, of each kind. A page of several blocks counts by its blocks.
fn one_of_each(device: &SimDevice) -> BTreeMap<String, Addr> {
    let mut blocks = BTreeMap::new();
    let footer = footer(device);
    let footer_addr = addr(&footer.addr);
    blocks.insert("footer".to_owned(), footer_addr);
    blocks.insert("MAT chunk".into(), addr(&footer.mat_chunks[0]));
    blocks.insert("ZIT chunk".into(), addr(&footer.zit_chunks[0]));
    let header = |zone| Addr::new(DeviceId(0), zone, 0);
    blocks.insert("header of a log zone".into(), header(footer_addr.zone()));
    for row in pages(device) {
        let first = addr(&row.addr);
        let bytes = crate::support::read(device, first, row.blocks.into());
        let level = level(&bytes);
        blocks.insert("header of a metadata zone".into(), header(first.zone()));
        for block in 0..u32::from(row.blocks) {
            let name = format!("block {block} of a page of level {level}");
            blocks.insert(name, first.offset(block));
        }
    }
    let inspector = Inspector::open(device).unwrap();
    let Dump::Log(log) = dump(&inspector, &Target::Log).unwrap() else {
        panic!("no log")
    };
    let journal = log.blocks.iter().find(|block| {
        block.kind == "journal" && block.used_bytes > 0 && addr(&block.addr) > footer_addr
    });
    let journal = journal.expect("a journal");
    blocks.insert("journal block".into(), addr(&journal.addr));
    let data = a_frame(device);
    blocks.insert("data block".into(), data);
    blocks.insert("header of a data zone".into(), header(data.zone()));
    let Ok(Dump::Summaries(list)) = dump(&inspector, &Target::Summaries(data.zone())) else {
        panic!("no summaries")
    };
    blocks.insert("summary".into(), addr(&list[0].addr));
    blocks
}

fn level(bytes: &[u8]) -> u8 {
    let (_, payload) = envelope::open(bytes, &crate::support::key(), Kind::Page, None).unwrap();
    let mut image = [0; PAGE_SIZE];
    page::unpack(payload, &mut image).unwrap();
    PageView::new(&image).unwrap().level()
}

/// A block of file data.
fn a_frame(device: &SimDevice) -> Addr {
    let inspector = Inspector::open(device).unwrap();
    let all = Target::Keys {
        from: None,
        to: None,
    };
    let Dump::Keys(items) = dump(&inspector, &all).unwrap() else {
        panic!("no items")
    };
    let mut frames = items
        .iter()
        .filter_map(|item| item.value.0.split_once(" blocks at "));
    let (_, at) = frames.next_back().expect("a frame");
    addr(at)
}

type Files = BTreeMap<Ino, Option<Vec<u8>>>;

/// Every file with its content, or `None` where the engine reports an error.
fn read_all(volume: &Volume) -> Result<Files, Error> {
    let mut inos = Vec::new();
    volume.view::<_, Error>(|view| {
        inos.clear();
        view.scan(
            Key::new(Ino(0), KeyKind(0), 0)..Key::inode(Ino(Ino::END)),
            |key, _| {
                if key.kind == KeyKind::INODE {
                    inos.push(key.ino);
                }
                Ok(ControlFlow::Continue(()))
            },
        )
    })?;
    Ok(inos
        .into_iter()
        .map(|ino| (ino, read(volume, ino).ok()))
        .collect())
}

fn read(volume: &Volume, ino: Ino) -> Result<Vec<u8>, Error> {
    let Some(inode) = volume.attr(ino)?.filter(|inode| inode.is_file()) else {
        return Ok(Vec::new());
    };
    let mut bytes = vec![0; inode.size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match volume.read(ino, done as u64, &mut bytes[done..])? {
            0 => break,
            read => done += read,
        }
    }
    Ok(bytes)
}

/// What fsck makes of the volume: the worst finding; an error where it cannot even begin.
fn worst(device: &SimDevice) -> Option<Severity> {
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    match check(device, &options, &mut |_| {}) {
        Ok(report) => report.worst(),
        Err(_) => Some(Severity::Error),
    }
}

/// What the engine makes of it.
fn opened(device: &SimDevice, truth: &Files) -> &'static str {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let copy = Arc::new(device.snapshot().intact());
    let Ok((volume, _)) = Volume::open(copy, options) else {
        return "refused";
    };
    let Ok(files) = read_all(&volume) else {
        return "an error";
    };
    assert_eq!(files.len(), truth.len(), "files are missing without a word");
    let mut answer = "nothing";
    for (ino, found) in &files {
        match found {
            Some(bytes) => assert!(truth[ino].as_ref() == Some(bytes), "inode {ino} is wrong"),
            None => answer = "an error",
        }
    }
    answer
}

/// Flips these bits of a block one at a time: fsck finds each, and the engine does not read on where the block is needed.
fn flip_each(
    device: &Arc<SimDevice>,
    truth: &Files,
    (kind, at): (&str, Addr),
    bits: impl Iterator<Item = usize>,
    is_needed: bool,
) {
    let mut silent = Vec::new();
    for bit in bits {
        let flip = || {
            let mask = 1 << (bit % 8);
            assert!(device.corrupt(at.zone(), at.block(), bit / 8, mask));
        };
        flip();
        if worst(device) < Some(Severity::Warning) {
            silent.push(bit);
        }
        let answer = opened(device, truth);
        assert!(
            !is_needed || answer != "nothing",
            "{kind} at {at}, bit {bit}: it reads on"
        );
        flip();
    }
    assert!(
        silent.is_empty(),
        "{kind} at {at}: fsck is content with bits {silent:?}"
    );
}

/// What a check says of a sound volume, which is no more than notes, and what is on it.
fn sound(device: &Arc<SimDevice>) -> (Report, Files) {
    let report = report(device, true);
    assert!(
        report.worst() < Some(Severity::Warning),
        "{:#?}",
        report.findings
    );
    let files = read_all(&open(&Arc::new(device.snapshot().intact()))).unwrap();
    (report, files)
}

#[test]
fn every_kind_of_structure_at_bits_all_over_it() {
    let device = volume();
    let (before, truth) = sound(&device);
    let blocks = one_of_each(&device);
    assert!(blocks.len() >= 12, "{blocks:#?}");
    for (kind, at) in &blocks {
        let head = (0..HEADER_LEN).map(|byte| byte * 8 + byte % 8);
        let body = (HEADER_LEN * 8..BLOCK_SIZE * 8).step_by(STRIDE_BITS);
        let is_needed = !kind.starts_with("header") && kind != "summary";
        flip_each(&device, &truth, (kind, *at), head.chain(body), is_needed);
    }
    assert_eq!(report(&device, true), before);
}

/// Blocks of a frame.
const FRAME: usize = 16;

/// A volume with frames, deltas, clones, near duplicates, a snapshot and limits, and compressed records in its journal.
fn volume_of_features() -> Arc<SimDevice> {
    let config = SimConfig::new(24, 1024).capacity(1000).host_file();
    let device = formatted_on(SimDevice::new(config), 1);
    let volume = open(&device);
    let write = |ino, block: usize, bytes: &[u8]| {
        let at = (block * BLOCK_SIZE) as u64;
        volume.write(ino, at, bytes, now(2)).unwrap();
        volume.commit_file(ino).unwrap();
    };
    let compressed = add_compressed(&volume, ROOT, "compressed", Compression::Zstd(3));
    write(compressed, 0, &text(1, 3 * FRAME * BLOCK_SIZE));
    let mut bytes = content(5, FRAME * BLOCK_SIZE);
    let [one, near, copy] = ["one", "near", "copy"].map(|name| add(&volume, ROOT, name, FILE));
    write(one, 0, &bytes);
    bytes[30_000] ^= 1;
    write(near, 0, &bytes);
    for (to, when) in [(near, CloneWhen::Near), (copy, CloneWhen::Always)] {
        let range = CloneRange {
            from: one,
            from_offset: 0,
            to,
            to_offset: 0,
            len: bytes.len() as u64,
            when,
        };
        assert!(volume.clone_range(&range, now(3)).unwrap().shared > 0);
    }
    Quotas::of(&volume).turn_on(false).unwrap();
    Quotas::of(&volume).count().unwrap();
    // Synced pages, of which little changes, until their deltas are packed.
    let pages = add(&volume, ROOT, "pages", FILE);
    let pages_bytes = content(6, 300 * BLOCK_SIZE);
    write(pages, 0, &pages_bytes);
    volume.step(Task::Checkpoint).unwrap();
    let packed_delta = |(place, extent): &(u64, Extent)| {
        delta::is_delta(*place) && matches!(extent, Extent::Packed(_))
    };
    for block in 0..300 {
        if extents(&volume, pages).iter().any(packed_delta) {
            break;
        }
        let at = block * BLOCK_SIZE;
        let changed: Vec<u8> = pages_bytes[at..at + 700].iter().map(|b| b ^ 1).collect();
        volume.write(pages, at as u64, &changed, now(4)).unwrap();
        volume.sync_file(pages).unwrap();
        let _ = volume.step(Task::WriteBack).unwrap();
    }
    let main = SubvolumeId::MAIN;
    volume
        .snapshots()
        .take(main, b"taken", true, now(5))
        .unwrap();
    write(compressed, 0, &text(2, FRAME * BLOCK_SIZE));
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    volume.close().unwrap();
    let compressing = Options {
        compression: Compression::Lz4,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), compressing).unwrap();
    for n in 0..150 {
        add(
            &volume,
            ROOT,
            &format!("one of many names in the journal {n}"),
            FILE,
        );
    }
    volume.sync().unwrap();
    // What follows says that the journal up to here is on the device: otherwise damage in it looks like a power cut.
    add(&volume, ROOT, "the last", FILE);
    volume.sync().unwrap();
    device
}

fn extents(volume: &Volume, ino: Ino) -> Vec<(u64, Extent)> {
    let mut all = Vec::new();
    let scanned = volume.view::<_, Error>(|view| {
        all.clear();
        let keys = Key::extent(ino, 0)..Key::extent(ino, u64::MAX);
        view.scan(keys, |key, value| {
            all.push((key.item, Extent::decode(value).unwrap()));
            Ok(ControlFlow::Continue(()))
        })
    });
    scanned.unwrap();
    all
}

/// The bits of one of each that a feature stores beside the tree.
fn stored_by_features(device: &Arc<SimDevice>) -> BTreeMap<&'static str, (Addr, Range<usize>)> {
    let mut found = BTreeMap::new();
    for (key, value) in engine_items(device) {
        if key.kind != KeyKind::EXTENT {
            continue;
        }
        let (at, bytes, kind) = match Extent::decode(&value).unwrap() {
            Extent::Packed(packed) => {
                let kind = match packed.frame.codec {
                    _ if delta::is_delta(key.item) => "packed delta",
                    Codec::ZstdAfter(_) => "frame with a dictionary",
                    _ if key.version != VersionId(0) => "frame of one version",
                    _ => "compressed frame",
                };
                let start = packed.start();
                let end = BLOCK_SIZE.min(start + packed.frame.len as usize);
                (packed.addr, start..end, kind)
            }
            Extent::Frame { addr, .. } if key.ino == SHARED => {
                (addr, 0..BLOCK_SIZE, "shared blocks")
            }
            _ => continue,
        };
        found.insert(kind, (at, bytes.start * 8..bytes.end * 8));
    }
    let inspector = Inspector::open(&**device).unwrap();
    let Dump::Log(log) = dump(&inspector, &Target::Log).unwrap() else {
        panic!("no log")
    };
    let blocks = log.blocks.iter();
    let compressed = { blocks }.find(|block| block.stored_bytes < block.used_bytes);
    let at = addr(&compressed.expect("compressed records").addr);
    found.insert("compressed records", (at, 0..BLOCK_SIZE * 8));
    found
}

#[test]
fn what_the_features_store_at_bits_all_over_it() {
    let device = volume_of_features();
    let (before, truth) = sound(&device);
    let stored = stored_by_features(&device);
    let kinds: Vec<&str> = stored.keys().copied().collect();
    assert_eq!(
        kinds,
        [
            "compressed frame",
            "compressed records",
            "frame of one version",
            "frame with a dictionary",
            "packed delta",
            "shared blocks",
        ]
    );
    for (kind, (at, bits)) in stored {
        let stride = (bits.len() / 100).max(1) | 1;
        flip_each(&device, &truth, (kind, at), bits.step_by(stride), true);
    }
    assert_eq!(report(&device, true), before);
}
