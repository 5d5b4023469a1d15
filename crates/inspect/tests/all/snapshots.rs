//! Volumes with snapshots: the inspector's replay has the items of all versions that the engine has, and a check finds nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{
    DIRECTORY, FILE, add, add_xattr, assert_same_items, assert_sound, change, content,
    formatted_on, now, numbers, open, report, text, unlink,
};
use persimmon_engine::{CloneRange, CloneWhen, Error, Progress, Task, Volume};
use persimmon_format::inode::{ROOT, SHARED};
use persimmon_format::name::{DirEntry, first_item};
use persimmon_format::record::Op;
use persimmon_format::{BLOCK_SIZE, Compression, Ino, Key, KeyKind, SubvolumeId};
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_sim::{SimConfig, SimDevice};

const MAIN: SubvolumeId = SubvolumeId::MAIN;
const BLOCK: u64 = BLOCK_SIZE as u64;

fn fresh() -> Arc<SimDevice> {
    formatted_on(SimDevice::new(SimConfig::new(48, 512).host_file()), 1)
}

fn settle(volume: &Volume) {
    while volume.step(Task::Settle).unwrap() == Progress::Worked {}
}

/// Numbers that do not repeat soon.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// A volume on which everything happens that versions have to do with.
struct World {
    volume: Volume,
    dice: Dice,
    /// Files, and the directory and the name of each, in the subvolumes that can be written to.
    files: Vec<(Ino, Ino, String)>,
    directories: Vec<Ino>,
    snapshots: Vec<(SubvolumeId, bool)>,
    made: u64,
}

impl World {
    fn new(volume: Volume, seed: u64) -> World {
        let mut world = World {
            volume,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            files: Vec::new(),
            directories: vec![ROOT],
            snapshots: Vec::new(),
            made: 0,
        };
        for _ in 0..6 {
            world.make();
        }
        world
    }

    fn make(&mut self) {
        self.made += 1;
        let directory = self.directories[self.dice.roll(self.directories.len() as u64) as usize];
        let name = format!("file {}", self.made);
        let ino = add(&self.volume, directory, &name, FILE);
        if self.dice.roll(2) == 0 {
            let compression = [Compression::Lz4, Compression::Zstd(3)][self.dice.roll(2) as usize];
            change(&self.volume, |tx| {
                let mut inode = tx.inode(ino)?.unwrap();
                inode.compression = Compression::stored(Some(compression));
                tx.put_inode(ino, &inode);
                Ok(())
            });
        }
        self.files.push((ino, directory, name));
    }

    fn write(&mut self) {
        let (ino, ..) = self.any();
        let at = self.dice.roll(120) * BLOCK + [0, 0, 0, 100][self.dice.roll(4) as usize];
        let len = match self.dice.roll(4) {
            0 => self.dice.roll(3000) as usize + 1,
            _ => (self.dice.roll(48) + 1) as usize * BLOCK_SIZE,
        };
        let seed = self.dice.roll(1 << 40);
        let bytes = match self.dice.roll(2) {
            0 => content(seed, len),
            _ => text(seed, len),
        };
        self.volume.write(ino, at, &bytes, now(3)).unwrap();
        if self.dice.roll(2) == 0 {
            self.volume.sync_file(ino).unwrap();
        }
    }

    /// Changes a few bytes of blocks, which get deltas.
    fn edit(&mut self) {
        let (ino, ..) = self.any();
        for _ in 0..=self.dice.roll(2) {
            let at = self.dice.roll(100) * BLOCK + self.dice.roll(4000);
            let size = self.volume.attr(ino).unwrap().unwrap().size;
            if at + 50 < size {
                let bytes = [self.dice.roll(250) as u8; 50];
                self.volume.write(ino, at, &bytes, now(3)).unwrap();
            }
        }
        self.volume.sync_file(ino).unwrap();
    }

    fn any(&mut self) -> (Ino, Ino, String) {
        self.files[self.dice.roll(self.files.len() as u64) as usize].clone()
    }

    fn clone(&mut self) {
        let (from, ..) = self.any();
        let (to, ..) = self.any();
        let range = CloneRange {
            from,
            from_offset: self.dice.roll(100) * BLOCK,
            to,
            to_offset: self.dice.roll(100) * BLOCK,
            len: (self.dice.roll(40) + 1) * BLOCK,
            when: CloneWhen::Always,
        };
        let overlaps = range.from_offset.abs_diff(range.to_offset) < range.len;
        if from.plain() == to.plain() && overlaps {
            return;
        }
        match self.volume.clone_range(&range, now(5)) {
            Ok(_) | Err(Error::ReadOnlySnapshot) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Equal content in two files, also of a snapshot, becomes shared; nobody sees that.
    fn dedupe(&mut self) {
        let ((from, ..), (to, ..)) = (self.any(), self.any());
        let (seed, blocks) = (self.dice.roll(1 << 40), self.dice.roll(40) + 1);
        let bytes = content(seed, blocks as usize * BLOCK_SIZE);
        let from_offset = self.dice.roll(100) * BLOCK;
        let to_offset = match self.dice.roll(3) {
            0 => from_offset,
            _ => self.dice.roll(100) * BLOCK,
        };
        for (ino, at) in [(from, from_offset), (to, to_offset)] {
            self.volume.write(ino, at, &bytes, now(3)).unwrap();
        }
        let range = CloneRange {
            from,
            from_offset,
            to,
            to_offset,
            len: blocks * BLOCK,
            when: CloneWhen::Equal { least: 0 },
        };
        let subvolumes: Vec<_> = self.snapshots.iter().map(|(id, _)| *id).collect();
        let read = |world: &World| -> Vec<Vec<u8>> {
            let inos = [from, to].into_iter();
            let others = subvolumes.iter().map(|id| from.of(*id));
            inos.chain(others)
                .map(|ino| {
                    let mut all = vec![0; 160 * BLOCK_SIZE];
                    let read = world.volume.read(ino, 0, &mut all);
                    all.truncate(read.unwrap_or(0));
                    all
                })
                .collect()
        };
        let before = read(self);
        let cloned = self.volume.clone_range(&range, now(5)).unwrap();
        let apart = from_offset.abs_diff(to_offset);
        let is_whole = from.plain() != to.plain() || apart >= range.len;
        assert!(
            cloned.bytes == range.len || !is_whole,
            "{range:?} {cloned:?}"
        );
        assert!(read(self) == before, "{range:?}");
        let again = self.volume.clone_range(&range, now(5)).unwrap();
        assert_eq!((again.bytes, again.shared), (cloned.bytes, 0), "{range:?}");
    }

    fn remove(&mut self) {
        let at = self.dice.roll(self.files.len() as u64) as usize;
        if self.files.len() > 4 {
            let (ino, directory, name) = self.files.swap_remove(at);
            unlink(&self.volume, directory, &name, ino);
            if self.dice.roll(3) > 0 {
                self.volume.reclaim(&[ino]).unwrap();
            }
        }
    }

    fn take(&mut self) {
        if self.snapshots.len() > 5 {
            return;
        }
        self.made += 1;
        let writable = self.snapshots.iter().filter(|(_, writable)| *writable);
        let mut origins: Vec<_> = writable.map(|(id, _)| *id).collect();
        origins.extend([MAIN, MAIN]);
        let origin = origins[self.dice.roll(origins.len() as u64) as usize];
        let is_writable = self.dice.roll(3) == 0;
        let name = format!("snapshot {}", self.made);
        let taken = self
            .volume
            .snapshots()
            .take(origin, name.as_bytes(), !is_writable, now(6));
        let id = taken.unwrap();
        self.snapshots.push((id, is_writable));
        if is_writable {
            let of_origin = self.files.clone().into_iter();
            let of_origin = of_origin.filter(|(ino, ..)| ino.subvolume() == origin);
            self.files.extend(
                of_origin.map(|(ino, directory, name)| (ino.of(id), directory.of(id), name)),
            );
            let directories = self.directories.clone().into_iter();
            let directories = directories.filter(|ino| ino.subvolume() == origin);
            self.directories.extend(directories.map(|ino| ino.of(id)));
        }
    }

    fn delete(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.dice.roll(self.snapshots.len() as u64) as usize;
        let (id, _) = self.snapshots.swap_remove(at);
        self.volume.snapshots().delete(id).unwrap();
        self.files.retain(|(ino, ..)| ino.subvolume() != id);
        self.directories.retain(|ino| ino.subvolume() != id);
    }

    /// Has the main subvolume be as a snapshot was, and keeps what it was as another one.
    fn roll_back(mut self, device: &Arc<SimDevice>) -> World {
        let Some((id, _)) = self.snapshots.first().copied() else {
            return self;
        };
        self.volume.close().unwrap();
        drop(self.volume);
        self.volume = open(device);
        self.made += 1;
        let keep = format!("kept {}", self.made);
        let keep = (self.dice.roll(2) == 0).then_some(keep.as_bytes());
        self.volume.snapshots().roll_back(id, keep, now(7)).unwrap();
        let known: Vec<_> = self.snapshots.iter().map(|(id, _)| *id).collect();
        let kept = self.volume.snapshots().list();
        let kept = kept.iter().filter(|kept| !known.contains(&kept.id));
        self.snapshots.extend(kept.map(|kept| (kept.id, false)));
        self.files.retain(|(ino, ..)| ino.subvolume() != MAIN);
        self.directories.retain(|ino| ino.subvolume() != MAIN);
        self.directories.insert(0, ROOT);
        let mut entries = Vec::new();
        let scanned = self.volume.view::<_, Error>(|view| {
            entries.clear();
            view.scan(Key::inode(ROOT)..Key::inode(Ino(Ino::END)), |key, value| {
                if key.kind == KeyKind::DIR_ENTRY {
                    let entry = DirEntry::decode(value).unwrap();
                    let name = String::from_utf8(entry.name.to_vec()).unwrap();
                    entries.push((entry.ino, key.ino, name, entry.file_type));
                }
                Ok(ControlFlow::Continue(()))
            })
        });
        scanned.unwrap();
        for (ino, directory, name, file_type) in entries {
            match file_type {
                4 => self.directories.push(ino),
                _ => self.files.push((ino, directory, name)),
            }
        }
        for _ in 0..3 {
            self.make();
        }
        self
    }

    fn step(&mut self) {
        match self.dice.roll(45) {
            37..=44 => self.edit(),
            0..=11 => self.write(),
            12..=13 => {
                let (ino, ..) = self.any();
                let (at, len) = (self.dice.roll(100) * BLOCK, self.dice.roll(30) * BLOCK + 5);
                self.volume.punch(ino, at, len, now(4)).unwrap();
            }
            14..=15 => {
                let (ino, ..) = self.any();
                let size = self.dice.roll(100 * BLOCK);
                self.volume.truncate(ino, size, now(4)).unwrap();
            }
            16 => {
                let (ino, ..) = self.any();
                let at = self.dice.roll(150) * BLOCK;
                let done = self.volume.preallocate(ino, at, 9 * BLOCK, true, now(4));
                done.unwrap();
            }
            17..=19 => self.clone(),
            34..=36 => self.dedupe(),
            20..=21 => self.make(),
            22 => {
                self.made += 1;
                let (name, parent) = (format!("directory {}", self.made), self.directories[0]);
                let directory = add(&self.volume, parent, &name, DIRECTORY);
                self.directories.push(directory);
            }
            23 => self.remove(),
            24 => {
                self.made += 1;
                let (ino, ..) = self.any();
                add_xattr(&self.volume, ino, &format!("user.{}", self.made), b"value");
            }
            25..=26 => self.take(),
            27 => self.delete(),
            28..=30 => drop(self.volume.step(Task::Settle).unwrap()),
            31 => drop(self.volume.step(Task::Clean).unwrap()),
            32 => drop(self.volume.step(Task::Checkpoint).unwrap()),
            _ => self.volume.sync().unwrap(),
        }
    }
}

#[test]
fn both_have_the_same_items_of_all_versions() {
    for seed in 0..12 {
        let device = fresh();
        let mut world = World::new(open(&device), seed);
        for round in 0..6 {
            for _ in 0..40 {
                world.step();
            }
            if round % 3 == 2 {
                world = world.roll_back(&device);
            }
            let crashed = Arc::new(device.persisted(seed * 100 + round));
            assert_same_items(&crashed);
            // A crash may have torn a summary that was on its way: that is a warning.
            let found = report(&crashed, true);
            assert!(found.is_clean(), "{:#?}", found.findings);
        }
        settle(&world.volume);
        world.volume.close().unwrap();
        assert_same_items(&device);
        assert_sound(&report(&device, true));
        // What is told of the volume is as of a checkpoint too.
        let volume = open(&device);
        volume.step(Task::Checkpoint).unwrap();
        volume.close().unwrap();
        assert_sound(&report(&device, true));
    }
}

#[test]
fn nothing_is_left_of_snapshots_that_are_gone() {
    let device = fresh();
    let mut world = World::new(open(&device), 77);
    for _ in 0..300 {
        world.step();
    }
    while !world.snapshots.is_empty() {
        world.delete();
        world.step();
    }
    settle(&world.volume);
    world.volume.sync().unwrap();
    world.volume.step(Task::Checkpoint).unwrap();
    let found = report(&device, true);
    assert_sound(&found);
    assert_eq!(found.counts.snapshots, 0);
    assert!(!numbers(&found).contains(&547), "{:#?}", found.findings);
}

/// What is cloned has holes, and ends inside an extent that the snapshot has of the target: there it is cut.
#[test]
fn clones_into_what_a_snapshot_has() {
    for lens in [[4, 0, 6], [3, 4, 3], [0, 5, 5]] {
        let device = fresh();
        let volume = open(&device);
        let [source, target, between] =
            ["source", "target", "between"].map(|name| add(&volume, ROOT, name, FILE));
        volume
            .write(target, 0, &content(1, 20 * BLOCK_SIZE), now(1))
            .unwrap();
        volume.sync_file(target).unwrap();
        let mut at = 0;
        for (turn, len) in lens.into_iter().enumerate() {
            // The middle part is a hole, or what is not in one run with the first.
            if turn != 1 || lens[0] == 4 {
                let bytes = content(turn as u64 + 7, len as usize * BLOCK_SIZE);
                volume.write(source, at * BLOCK, &bytes, now(2)).unwrap();
                volume.sync_file(source).unwrap();
                volume.write(between, at * BLOCK, &bytes, now(2)).unwrap();
                volume.sync_file(between).unwrap();
            }
            at += len;
        }
        volume.snapshots().take(MAIN, b"one", true, now(3)).unwrap();
        let range = CloneRange {
            from: source,
            from_offset: 0,
            to: target,
            to_offset: 5 * BLOCK,
            len: 10 * BLOCK,
            when: CloneWhen::Always,
        };
        volume.clone_range(&range, now(4)).unwrap();
        volume.sync().unwrap();
        let image = Arc::new(device.snapshot().intact());
        assert_same_items(&image);
        assert_sound(&report(&image, true));
    }
}

/// A repair changes what the main subvolume shows, and the snapshot stays as it was, wrong or not.
#[test]
fn a_repair_leaves_snapshots_alone() {
    let device = fresh();
    let volume = open(&device);
    let file = add(&volume, ROOT, "file", FILE);
    add(&volume, ROOT, "other", FILE);
    add_xattr(&volume, file, "user.a", b"value");
    volume.write(file, 0, &content(1, 9000), now(1)).unwrap();
    volume
        .snapshots()
        .take(MAIN, b"before", true, now(2))
        .unwrap();
    let of_snapshot = |volume: &Volume| {
        let mut items = Vec::new();
        let scanned = volume.view::<_, Error>(|view| {
            items.clear();
            let first = Key::inode(ROOT.of(SubvolumeId(1)));
            view.scan(first..Key::inode(ROOT.of(SubvolumeId(2))), |key, value| {
                // Extents may be cut: what is read is compared.
                if key.kind != KeyKind::EXTENT {
                    items.push((key, value.to_vec()));
                }
                Ok(ControlFlow::Continue(()))
            })
        });
        scanned.unwrap();
        let mut bytes = vec![0; 10_000];
        let len = volume.read(file.of(SubvolumeId(1)), 0, &mut bytes);
        bytes.truncate(len.unwrap());
        (items, bytes)
    };
    let before = of_snapshot(&volume);
    assert!(before.0.len() > 5 && before.1 == content(1, 9000));
    change(&volume, |tx| {
        // A wrong count, an entry with another type, an attribute under another name's hash, and data past the end.
        let mut inode = tx.inode(file)?.unwrap();
        (inode.nlink, inode.size) = (7, 4000);
        tx.put_inode(file, &inode);
        let name = |name: &[u8]| first_item(tx.key(), name);
        let entry = Key::new(ROOT, KeyKind::DIR_ENTRY, name(b"other"));
        let xattr = Key::new(file, KeyKind::XATTR, name(b"user.a"));
        let mut value = tx.get(&entry)?.unwrap().to_vec();
        value[8] = 10;
        tx.put(entry, value);
        let value = tx.get(&xattr)?.unwrap().to_vec();
        tx.delete(xattr);
        tx.put(Key::new(file, KeyKind::XATTR, 77), value);
        Ok(())
    });
    volume.step(Task::Checkpoint).unwrap();
    volume.close().unwrap();
    drop(volume);
    let mut found = numbers(&report(&device, true));
    found.sort_unstable();
    assert_eq!(found, [516, 524, 605, 621]);
    let mended = crate::support::mend(&device);
    assert_eq!(mended.findings, []);
    let volume = open(&device);
    assert!(of_snapshot(&volume) == before);
    assert_eq!(volume.attr(file).unwrap().unwrap().nlink, 1);
}

/// What is lost of shared blocks stays so: a repair that put parts of extents would have other versions show something else.
#[test]
fn a_repair_puts_no_extents_of_files() {
    let device = fresh();
    let volume = open(&device);
    let [one, other] = ["one", "other"].map(|name| add(&volume, ROOT, name, FILE));
    let bytes = content(3, 30 * BLOCK_SIZE);
    volume.write(one, 0, &bytes, now(1)).unwrap();
    volume.sync_file(one).unwrap();
    let range = CloneRange {
        from: one,
        from_offset: 0,
        to: other,
        to_offset: 0,
        len: 20 * BLOCK,
        when: CloneWhen::Always,
    };
    volume.clone_range(&range, now(2)).unwrap();
    volume
        .snapshots()
        .take(MAIN, b"before", true, now(3))
        .unwrap();
    change(&volume, |tx| {
        let mut first = None;
        tx.scan(Key::extent(SHARED, 0)..Key::references(0), |key, _| {
            first = Some(key);
            Ok(ControlFlow::Break(()))
        })?;
        tx.delete(first.unwrap());
        Ok(())
    });
    volume.step(Task::Checkpoint).unwrap();
    volume.close().unwrap();
    drop(volume);
    let found = report(&device, true);
    let missing: Vec<_> = { found.findings.iter() }
        .filter(|f| f.number == 532)
        .collect();
    assert_eq!(missing.len(), 2, "{:#?}", found.findings);
    assert!(missing.iter().all(|f| f.repair.contains("snapshots")));
    let is_extent = |op: &Op| match op {
        Op::Put { key, .. } | Op::Delete { key } => {
            key.kind == KeyKind::EXTENT && key.ino != SHARED
        }
        _ => true,
    };
    assert!(!found.repairs.ops.iter().any(is_extent));
    let mended = crate::support::mend(&device);
    assert_eq!(numbers(&mended), [532, 532]);
}

/// What subvolumes there are, and an inode as each of them has it.
#[test]
fn dumps_tell_of_snapshots() {
    let device = fresh();
    let volume = open(&device);
    let file = add(&volume, ROOT, "file", FILE);
    let main_alone = Inspector::open(&*device).unwrap();
    let subvolumes = |inspector: &Inspector<'_>| {
        let words = ["subvolumes"];
        let target = Target::parse(inspector, &words).unwrap();
        match dump(inspector, &target).unwrap() {
            Dump::Subvolumes(rows) => rows,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(subvolumes(&main_alone).len(), 1);
    volume.write(file, 0, &content(1, 5000), now(1)).unwrap();
    volume.snapshots().take(MAIN, b"one", true, now(2)).unwrap();
    volume.truncate(file, 0, now(3)).unwrap();
    volume
        .snapshots()
        .take(MAIN, b"two", false, now(4))
        .unwrap();
    volume.sync().unwrap();
    let inspector = Inspector::open(&*device).unwrap();
    let rows = subvolumes(&inspector);
    let told: Vec<_> = { rows.iter() }
        .map(|row| {
            (
                row.subvolume,
                row.name.as_str(),
                row.read_only,
                &row.parents[..],
            )
        })
        .collect();
    assert_eq!(told[0], (0, "", false, &[1, 0][..]));
    assert_eq!(told[1], (1, "one", true, &[][..]));
    assert_eq!(told[2], (2, "two", false, &[1, 0][..]));
    for (words, size) in [("/file", 0), ("16@1", 5000), ("16@2", 0), ("16@0", 0)] {
        let target = Target::parse(&inspector, &["inode", words]).unwrap();
        let Dump::Inode(inode) = dump(&inspector, &target).unwrap() else {
            panic!("no inode")
        };
        assert_eq!((inode.ino, inode.size), (file.0, size), "{words}");
    }
    let target = Target::parse(&inspector, &["inode", "16@9"]).unwrap();
    assert!(dump(&inspector, &target).is_err());
}
