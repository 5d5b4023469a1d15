//! One flipped bit in one block, for every kind of structure and bit positions all over the block,
//! every byte of its header included: whoever needs the block notices. fsck says that something is
//! wrong, and the engine refuses, reports an error, or reads what was written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{Error, Options, Task, Volume};
use persimmon_format::envelope::{self, HEADER_LEN, Kind};
use persimmon_format::inode::ROOT;
use persimmon_format::page::{self, PAGE_SIZE, PageView};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::{CheckOptions, Inspector, Severity, check};
use persimmon_sim::SimDevice;
use support::{FILE, add, addr, content, footer, formatted, now, open, pages, populate, report};

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
        let bytes = support::read(device, first, row.blocks.into());
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
    let (_, payload) = envelope::open(bytes, &support::key(), Kind::Page, None).unwrap();
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

#[test]
fn every_kind_of_structure_at_bits_all_over_it() {
    let device = volume();
    let truth = read_all(&open(&Arc::new(device.snapshot().intact()))).unwrap();
    let before = report(&device, true);
    assert!(
        before.worst() < Some(Severity::Warning),
        "{:#?}",
        before.findings
    );
    let blocks = one_of_each(&device);
    assert!(blocks.len() >= 12, "{blocks:#?}");
    for (kind, at) in &blocks {
        let head = (0..HEADER_LEN).map(|byte| byte * 8 + byte % 8);
        let body = (HEADER_LEN * 8..BLOCK_SIZE * 8).step_by(STRIDE_BITS);
        let mut silent = Vec::new();
        for bit in head.chain(body) {
            let flip = || {
                let mask = 1 << (bit % 8);
                assert!(device.corrupt(at.zone(), at.block(), bit / 8, mask));
            };
            flip();
            if worst(&device) < Some(Severity::Warning) {
                silent.push(bit);
            }
            let answer = opened(&device, &truth);
            let needed = !kind.starts_with("header") && kind != "summary";
            assert!(
                !needed || answer != "nothing",
                "{kind} at {at}, bit {bit}: it reads on"
            );
            flip();
        }
        assert!(
            silent.is_empty(),
            "{kind} at {at}: fsck is content with bits {silent:?}"
        );
    }
    assert_eq!(report(&device, true), before);
}
