//! Volumes to look into: made by the engine on a simulated device.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use persimmon_device::ZonedDevice;
use persimmon_engine::{Deltas, FormatOptions, Intent, Options, Task, Volume};
use persimmon_format::inode::{FLAG_XATTRS, Inode, ROOT, Timestamp};
use persimmon_format::name::{DirEntry, first_item, may_have};
use persimmon_format::xattr::{Pieces, XATTR_INLINE_MAX, Xattr, XattrValue, cut, piece_key};
use persimmon_format::{
    Addr, BLOCK_SIZE, Compression, DeviceId, Ino, Key, KeyKind, VolumeKey, ZoneId, envelope,
};
use persimmon_inspect::dump::{Dump, FooterDump, ItemDump, MatRow, Target, dump, item_text};
use persimmon_inspect::{CheckOptions, Inspector, Report, Severity, check};
use persimmon_sim::{SimConfig, SimDevice};
use rand::Rng;
use rand::rngs::StdRng;

pub const DIRECTORY: u32 = 0o040_755;
pub const FILE: u32 = 0o100_644;
pub const SYMLINK: u32 = 0o120_777;

pub fn device() -> SimDevice {
    SimDevice::new(SimConfig::new(24, 256).capacity(250).host_file())
}

/// A device with a fresh volume.
pub fn formatted() -> Arc<SimDevice> {
    formatted_with(1)
}

/// With so many copies of log and metadata.
pub fn formatted_with(copies: u32) -> Arc<SimDevice> {
    formatted_on(device(), copies)
}

/// On this device.
pub fn formatted_on(device: SimDevice, copies: u32) -> Arc<SimDevice> {
    let device = Arc::new(device);
    let options = FormatOptions {
        copies,
        uuid: std::array::from_fn(|i| i as u8),
        secret: [7; 32],
        label: "test".into(),
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    device
}

pub fn open(device: &Arc<SimDevice>) -> Volume {
    let options = Options {
        deltas: Deltas::Always,
        ..Options::default()
    };
    Volume::open(device.clone(), options).unwrap().0
}

pub fn now(seconds: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: 5,
    }
}

/// Content that no two blocks share.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Content that compresses to a bit more than half, and that no two blocks share.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let noise = content(seed, len);
    let twice = noise.chunks_exact(64).flat_map(|some| some.repeat(2));
    twice.take(len).collect()
}

/// Makes a file whose content is compressed.
pub fn add_compressed(volume: &Volume, parent: Ino, name: &str, compression: Compression) -> Ino {
    let ino = add(volume, parent, name, FILE);
    change(volume, |tx| {
        let mut inode = tx.inode(ino)?.unwrap();
        inode.compression = Compression::stored(Some(compression));
        tx.put_inode(ino, &inode);
        Ok(())
    });
    ino
}

/// Makes files, each compressed in a way that is drawn, or not.
pub fn add_some(volume: &Volume, rng: &mut StdRng, count: usize) -> Vec<Ino> {
    let ways = [None, Some(Compression::Lz4), Some(Compression::Zstd(1))];
    let files = (0..count).map(|number| {
        let name = format!("file {number}");
        match ways[rng.random_range(0..ways.len())] {
            None => add(volume, ROOT, &name, FILE),
            Some(compression) => add_compressed(volume, ROOT, &name, compression),
        }
    });
    files.collect()
}

/// A volume with room for much that files share.
pub fn formatted_shared() -> Arc<SimDevice> {
    let config = SimConfig::new(24, 1024).capacity(1000).host_file();
    formatted_on(SimDevice::new(config), 1)
}

/// A check finds nothing, and the inspector has the items that the engine has.
pub fn assert_right(device: &Arc<SimDevice>) {
    assert_sound(&report(device, true));
    assert_same_items(device);
}

/// Makes an inode with a name in `parent`, as the layer above the engine would, in the subvolume of the parent.
pub fn add(volume: &Volume, parent: Ino, name: &str, mode: u32) -> Ino {
    volume
        .update::<Ino, persimmon_engine::Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino().of(parent.subvolume());
            let directory = mode >> 12 == 4;
            let inode = Inode {
                mode,
                nlink: if directory { 2 } else { 1 },
                parent: if directory { parent.plain() } else { Ino(0) },
                mtime: now(1),
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            let entry = DirEntry {
                ino: ino.plain(),
                file_type: inode.file_type(),
                name: name.as_bytes(),
            };
            let first = first_item(tx.key(), name.as_bytes());
            let mut item = first;
            while tx
                .get(&Key::new(parent, KeyKind::DIR_ENTRY, item))?
                .is_some()
            {
                item += 1;
                assert!(may_have(first, item));
            }
            tx.put(Key::new(parent, KeyKind::DIR_ENTRY, item), entry.encode());
            let mut up = tx.inode(parent)?.unwrap();
            up.size += 1;
            up.nlink += u32::from(directory);
            tx.put_inode(parent, &up);
            Ok(ino)
        })
        .unwrap()
}

pub fn add_symlink(volume: &Volume, parent: Ino, name: &str, target: &str) -> Ino {
    let ino = add(volume, parent, name, SYMLINK);
    change(volume, |tx| {
        let mut inode = tx.inode(ino)?.unwrap();
        inode.size = target.len() as u64;
        tx.put_inode(ino, &inode);
        tx.put(
            Key::new(ino, KeyKind::SYMLINK, 0),
            target.as_bytes().to_vec(),
        );
        Ok(())
    });
    ino
}

pub fn add_xattr(volume: &Volume, ino: Ino, name: &str, value: &[u8]) {
    change(volume, |tx| {
        let item = first_item(tx.key(), name.as_bytes());
        let value = if value.len() <= XATTR_INLINE_MAX {
            XattrValue::Inline(value)
        } else {
            let slot = item / 64;
            for (number, piece) in (0..).zip(cut(value)) {
                tx.put(piece_key(ino, slot, number), piece);
            }
            XattrValue::Pieces(Pieces::new(slot, value).unwrap())
        };
        let xattr = Xattr {
            name: name.as_bytes(),
            value,
        };
        tx.put(Key::new(ino, KeyKind::XATTR, item), xattr.encode());
        let mut inode = tx.inode(ino)?.unwrap();
        inode.xattr_names += Xattr::listed_len(name.as_bytes());
        inode.sectors += xattr.sectors();
        inode.flags |= FLAG_XATTRS;
        tx.put_inode(ino, &inode);
        Ok(())
    });
}

/// Takes the last name of a file away and leaves it an orphan.
pub fn unlink(volume: &Volume, parent: Ino, name: &str, ino: Ino) {
    change(volume, |tx| {
        let item = first_item(tx.key(), name.as_bytes());
        tx.delete(Key::new(parent, KeyKind::DIR_ENTRY, item));
        let mut up = tx.inode(parent)?.unwrap();
        up.size -= 1;
        tx.put_inode(parent, &up);
        let mut inode = tx.inode(ino)?.unwrap();
        inode.nlink = 0;
        tx.put_inode(ino, &inode);
        tx.put(Key::orphan(ino), Vec::new());
        Ok(())
    });
}

pub fn change(
    volume: &Volume,
    f: impl FnMut(&mut persimmon_engine::Transaction<'_>) -> persimmon_engine::Result<()>,
) {
    volume
        .update::<(), persimmon_engine::Error>(Intent::Shrink, f)
        .unwrap();
}

/// Fills a volume with a bit of everything.
pub fn populate(volume: &Volume) -> Vec<Ino> {
    let mut files = Vec::new();
    let mut parent = ROOT;
    for depth in 0..4 {
        parent = add(volume, parent, &format!("directory {depth}"), DIRECTORY);
        for n in 0..12u64 {
            let ino = add(volume, parent, &format!("file {n}"), FILE);
            let len = [0, 100, 2000, 4096, 9000, 70_000][n as usize % 6];
            volume.write(ino, 0, &content(n, len), now(2)).unwrap();
            if n % 3 == 0 {
                volume.sync_file(ino).unwrap();
            }
            files.push(ino);
        }
        let packed = add(volume, parent, "packed", FILE);
        for block in 0..4 {
            let quarter = content(block + 1, 1024).repeat(4);
            volume
                .write(packed, block * 4096, &quarter, now(2))
                .unwrap();
            volume.sync_file(packed).unwrap();
        }
        let compression = [Compression::Zstd(3), Compression::Lz4][depth % 2];
        let frames = add_compressed(volume, parent, "frames", compression);
        let write = |at: u64, blocks: usize| {
            let bytes = text(at + 1, blocks * BLOCK_SIZE);
            let at = at * BLOCK_SIZE as u64;
            volume.write(frames, at, &bytes, now(2)).unwrap();
            volume.sync_file(frames).unwrap();
        };
        write(0, 20);
        // One frame is left in two parts, of one there is only the middle, and nothing of another.
        write(5, 1);
        write(8, 1);
        write(11, 5);
        files.push(frames);
        add_symlink(volume, parent, "link", "../somewhere");
        add_xattr(volume, parent, "user.note", b"of a directory");
        add_xattr(volume, files[depth], "user.note", b"of a file");
    }
    let sparse = add(volume, ROOT, "sparse", FILE);
    volume
        .write(sparse, 1 << 20, &content(1, 5000), now(3))
        .unwrap();
    volume.preallocate(sparse, 0, 50_000, true, now(3)).unwrap();
    volume
        .preallocate(sparse, 2 << 20, 50_000, true, now(3))
        .unwrap();
    let shrunk = add(volume, ROOT, "shrunk", FILE);
    volume
        .write(shrunk, 0, &content(2, 100_000), now(4))
        .unwrap();
    volume.commit_file(shrunk).unwrap();
    volume.truncate(shrunk, 50_001, now(5)).unwrap();
    volume.punch(shrunk, 9000, 20_000, now(5)).unwrap();
    let gone = add(volume, ROOT, "gone", FILE);
    volume.write(gone, 0, &content(3, 30_000), now(6)).unwrap();
    volume.commit_file(gone).unwrap();
    unlink(volume, ROOT, "gone", gone);
    files.extend([sparse, shrunk]);
    files
}

pub fn report(device: &SimDevice, data: bool) -> Report {
    let options = CheckOptions {
        data,
        ..CheckOptions::default()
    };
    check(device, &options, &mut |_| {}).unwrap()
}

pub fn numbers(report: &Report) -> Vec<u16> {
    report.findings.iter().map(|f| f.number).collect()
}

/// Nothing worse than a note.
pub fn assert_sound(report: &Report) {
    let bad: Vec<String> = report
        .findings
        .iter()
        .filter(|finding| finding.severity > Severity::Note)
        .map(ToString::to_string)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The volume's key, as [`formatted`] chose it.
pub fn key() -> VolumeKey {
    VolumeKey::new(&std::array::from_fn(|i| i as u8), &[7; 32])
}

pub fn read(device: &SimDevice, addr: Addr, blocks: u32) -> Vec<u8> {
    device
        .read(addr.zone(), addr.block(), blocks)
        .unwrap()
        .to_vec()
}

/// Puts other bytes in place of what is at an address.
pub fn rewrite(device: &SimDevice, addr: Addr, bytes: &[u8]) {
    let old = read(device, addr, (bytes.len() / BLOCK_SIZE) as u32);
    for (at, (old, new)) in old.iter().zip(bytes).enumerate() {
        if old != new {
            let block = addr.block() + (at / BLOCK_SIZE) as u32;
            assert!(device.corrupt(addr.zone(), block, at % BLOCK_SIZE, old ^ new));
        }
    }
}

/// Changes the payload of an enveloped structure and seals it again.
pub fn reseal(device: &SimDevice, addr: Addr, change: impl FnOnce(&mut Vec<u8>)) {
    let first = read(device, addr, 1);
    let fields = envelope::peek(&first).unwrap();
    let mut bytes = read(device, addr, fields.blocks.into());
    let start = envelope::HEADER_LEN;
    let mut payload = bytes[start..start + fields.payload_len as usize].to_vec();
    change(&mut payload);
    bytes[start..].fill(0);
    bytes[start..start + payload.len()].copy_from_slice(&payload);
    let (kind, owner, sequence) = (fields.kind, fields.owner, fields.sequence);
    envelope::seal(&mut bytes, &key(), kind, owner, sequence, payload.len());
    rewrite(device, addr, &bytes);
}

pub fn addr(text: &str) -> Addr {
    let parts: Vec<u32> = text.split(':').map(|part| part.parse().unwrap()).collect();
    Addr::new(DeviceId(0), ZoneId(parts[1]), parts[2])
}

pub fn footer(device: &SimDevice) -> FooterDump {
    let inspector = Inspector::open(device).unwrap();
    match dump(&inspector, &Target::Footer).unwrap() {
        Dump::Footer(footer) => *footer,
        other => panic!("{other:?}"),
    }
}

pub fn pages(device: &SimDevice) -> Vec<MatRow> {
    let inspector = Inspector::open(device).unwrap();
    match dump(&inspector, &Target::Mat).unwrap() {
        Dump::Mat(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// Checks and repairs until a check plans nothing more, as `fsck --repair` does, and returns the
/// last report.
pub fn mend(device: &Arc<SimDevice>) -> Report {
    for _ in 0..10 {
        let report = report(device, true);
        if report.repairs.is_empty() {
            return report;
        }
        let volume = open(device);
        let repairs = &report.repairs;
        volume
            .repair(&repairs.ops, repairs.recount, repairs.partial)
            .unwrap();
        volume.empty_zones(&repairs.zones).unwrap();
        if !repairs.partial {
            volume.reclaim(&volume.orphans().unwrap()).unwrap();
        }
        volume.step(Task::Checkpoint).unwrap();
        volume.close().unwrap();
    }
    panic!(
        "repairing finds no end: {:#?}",
        report(device, true).findings
    );
}

/// The items of all versions, as the engine has them once it has recovered.
pub fn engine_items(device: &Arc<SimDevice>) -> BTreeMap<Key, Vec<u8>> {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    let mut items = BTreeMap::new();
    let keep = |key: Key, value: &[u8]| Some((key, value.to_vec()));
    volume
        .snapshots()
        .walk_stored(keep, |(key, value)| drop(items.insert(key, value)))
        .unwrap();
    items
}

/// All items, as the inspector has them.
pub fn dumped_items(inspector: &Inspector<'_>) -> Vec<ItemDump> {
    let all = Target::Keys {
        from: None,
        to: None,
    };
    match dump(inspector, &all).unwrap() {
        Dump::Keys(found) => found,
        other => panic!("no items: {other:?}"),
    }
}

/// The replay of the inspector leads to the very items that the one of the engine leads to.
pub fn assert_same_items(device: &Arc<SimDevice>) {
    let items = engine_items(device);
    let found = dumped_items(&Inspector::open(&**device).unwrap());
    let mine: Vec<_> = { found.into_iter() }
        .map(|row| (row.ino, row.item, row.version, row.value.0))
        .collect();
    let theirs: Vec<_> = { items.iter() }
        .map(|(key, value)| (key.ino.0, key.item, key.version.0, item_text(key, value)))
        .collect();
    let differs = mine.iter().zip(&theirs).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let around = at.saturating_sub(3)..(at + 4).min(mine.len()).min(theirs.len());
        panic!(
            "mine {:#?}\ntheirs {:#?}",
            &mine[around.clone()],
            &theirs[around]
        );
    }
    assert_eq!(mine.len(), theirs.len());
}
