//! Volumes full of files on simulated devices, and what is in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use persimmon_device::ZonedDevice;
use persimmon_engine::{
    CloneRange, CloneWhen, Deltas, Error, FormatOptions, Task, Volume, ZoneStatus,
};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, PageId, ZoneId};
use persimmon_inspect::dump::{Dump, PageDump, Target, dump};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, InspectError, Inspector, Report, check};
use persimmon_salvage::{Loss, Lost, Recovered, mend, recover_of};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Clock, Handle, Ino, Listing, Options, ROOT, Vfs, WriteFlags};

#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: 1_000_000 + self.0.fetch_add(1, Ordering::Relaxed),
            nanoseconds: 123_456_789,
        }
    }
}

pub struct Fs {
    pub vfs: Vfs,
    pub device: Arc<SimDevice>,
    random: u64,
    /// Two in three directories that are filled have their files compressed.
    pub compresses: bool,
}

/// Checks and repairs in turn, as `fsck --repair` does, as long as there is something to do.
pub fn settle<D: ZonedDevice + 'static>(device: &Arc<D>) -> Report {
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let mut report = check(&**device, &options, &mut |_| {}).unwrap();
    for _ in 0..10 {
        let repairs = &report.repairs;
        if repairs.is_empty() {
            return report;
        }
        let options_of_volume = persimmon_engine::Options::default();
        let (volume, _) = Volume::open(Arc::clone(device) as _, options_of_volume).unwrap();
        volume
            .repair(&repairs.ops, repairs.recount, repairs.partial)
            .unwrap();
        volume.empty_zones(&repairs.zones).unwrap();
        if !repairs.partial {
            volume.reclaim(&volume.orphans().unwrap()).unwrap();
        }
        volume.step(Task::Checkpoint).unwrap();
        volume.close().unwrap();
        report = check(&**device, &options, &mut |_| {}).unwrap();
    }
    panic!("no end: {:#?}", report.findings);
}

/// One thing in a tree: all its attributes, and what it holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Thing {
    pub inode: Inode,
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub data: Vec<(u64, u64)>,
}

impl std::fmt::Debug for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?}, {} bytes, {:?}, {:?}",
            self.inode,
            self.content.len(),
            self.xattrs,
            self.data
        )
    }
}

/// By path.
pub type Tree = BTreeMap<String, Thing>;

pub fn config() -> SimConfig {
    SimConfig::new(64, 512).fast()
}

pub fn format<D: ZonedDevice + 'static>(device: &Arc<D>, label: &str) {
    format_with(device, label, 1);
}

fn format_with<D: ZonedDevice + 'static>(device: &Arc<D>, label: &str, copies: u32) {
    let seed = label.bytes().next().unwrap_or(0);
    let options = FormatOptions {
        uuid: [seed; 16],
        secret: [seed; 32],
        label: label.into(),
        copies,
        ..FormatOptions::default()
    };
    Volume::format(Arc::clone(device) as _, &options).unwrap();
}

pub fn mount<D: ZonedDevice + 'static>(device: &Arc<D>) -> Vfs {
    let options = persimmon_engine::Options {
        deltas: Deltas::Always,
        ..persimmon_engine::Options::default()
    };
    let (volume, _) = Volume::open(Arc::clone(device) as _, options).unwrap();
    let clock = Arc::new(TestClock::default());
    Vfs::new(Arc::new(volume), clock, Options::default())
}

impl Fs {
    pub fn new(seed: u64) -> Fs {
        Fs::on(SimDevice::new(config()), seed)
    }

    pub fn on(device: SimDevice, seed: u64) -> Fs {
        let device = Arc::new(device);
        format(&device, "broken");
        Fs {
            vfs: mount(&device),
            device,
            random: seed | 1,
            compresses: true,
        }
    }

    /// With two copies of log and metadata.
    pub fn mirrored(seed: u64) -> Fs {
        let device = Arc::new(SimDevice::new(config()));
        format_with(&device, "broken", 2);
        Fs::again(device, seed)
    }

    /// What a crash left, mounted again.
    pub fn again(device: Arc<SimDevice>, seed: u64) -> Fs {
        Fs::over(mount(&device), device, seed)
    }

    /// What is mounted on the device, or on something that is made of it.
    pub fn over(vfs: Vfs, device: Arc<SimDevice>, seed: u64) -> Fs {
        Fs {
            vfs,
            device,
            random: seed | 1,
            compresses: true,
        }
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut state = self.random(u64::MAX >> 12) | 1;
        let noise: Vec<u8> = (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        if self.random(2) == 0 {
            return noise;
        }
        // All of it twice, in short pieces: that compresses.
        let twice = noise.chunks(64).flat_map(|some| [some, some].concat());
        twice.take(len as usize).collect()
    }

    pub fn directory(&self, parent: Ino, name: &str) -> Ino {
        let caller = Caller::root();
        self.vfs
            .mkdir(&caller, parent, name.as_bytes(), 0o751)
            .unwrap()
            .ino
    }

    pub fn file(&mut self, parent: Ino, name: &str, len: u64) -> Ino {
        let attr = self
            .vfs
            .mknod(&Caller::root(), parent, name.as_bytes(), 0o640, 0)
            .unwrap();
        let bytes = self.bytes(len);
        self.write(attr.ino, 0, &bytes);
        attr.ino
    }

    pub fn write(&self, ino: Ino, at: u64, bytes: &[u8]) {
        self.vfs
            .write(ino, Handle::NONE, at, bytes, WriteFlags::default())
            .unwrap();
    }

    /// Changes a few bytes of a file and syncs it, so that it gets a delta.
    pub fn change(&self, ino: Ino, at: u64, byte: u8) {
        self.write(ino, at, &[byte; 20]);
        self.vfs.fsync(ino, Handle::NONE).unwrap();
    }

    /// Clones blocks, as far as that needs no copying.
    pub fn clone_range(&self, from: (Ino, u64), to: (Ino, u64), blocks: u64) {
        let range = CloneRange {
            from: from.0,
            from_offset: from.1 * 4096,
            to: to.0,
            to_offset: to.1 * 4096,
            len: blocks * 4096,
            when: CloneWhen::Always,
        };
        let now = TestClock::default().now();
        self.vfs.volume().clone_range(&range, now).unwrap();
    }

    pub fn checkpoint(&self) {
        self.vfs.sync().unwrap();
        self.vfs.volume().step(Task::Checkpoint).unwrap();
    }

    /// Cleans, and lets go the data zones that are empty then, by checkpoints of the zones alone.
    pub fn clean_without_whole_checkpoints(&self) {
        let volume = self.vfs.volume();
        let before = volume.statistics();
        let is_empty = |zone: &ZoneStatus| zone.entry.role == Role::Data && zone.entry.valid == 0;
        for _ in 0..40 {
            volume.step(Task::Clean).unwrap();
            if volume.zones().iter().any(is_empty) {
                volume.step(Task::FreeZones).unwrap();
            }
        }
        let done = volume.statistics().since(&before);
        assert_eq!(done.checkpoints, 0, "{done:?}");
        assert!(
            done.zone_checkpoints > 0 && done.resets > 3 && done.blocks_moved > 100,
            "{done:?}"
        );
    }

    /// Everything a file system can hold, in `directories` times `files`.
    pub fn fill(&mut self, directories: u64, files: u64) -> Vec<(Ino, String, Ino)> {
        self.fill_at("directory", directories, files)
    }

    pub fn fill_at(&mut self, name: &str, directories: u64, files: u64) -> Vec<(Ino, String, Ino)> {
        let caller = Caller::root();
        let mut made = Vec::new();
        for d in 0..directories {
            let directory = self.directory(ROOT, &format!("{name} {d}"));
            let codecs: [&[u8]; 3] = [b"none", b"lz4", b"zstd"];
            let compression = codecs[if self.compresses { d as usize % 3 } else { 0 }];
            let attribute = b"user.persimmon.compression";
            self.vfs
                .setxattr(
                    &caller,
                    directory,
                    attribute,
                    compression,
                    Default::default(),
                )
                .unwrap();
            for f in 0..files {
                let len = match self.random(20) {
                    0 => 0,
                    1..=8 => self.random(2000),
                    9..=18 => self.random(20_000),
                    _ => self.random(200_000),
                };
                let name = format!("file {f}");
                let ino = self.file(directory, &name, len);
                made.push((directory, name, ino));
            }
            let (_, _, first) = made[made.len() - files as usize];
            let sub = self.directory(directory, "below");
            self.vfs.link(first, sub, b"second name").unwrap();
            self.vfs
                .symlink(&caller, sub, b"link", b"../file 1")
                .unwrap();
            self.vfs.mknod(&caller, sub, b"fifo", 0o010_600, 0).unwrap();
            self.vfs
                .mknod(&caller, sub, b"null", 0o020_666, 0x0103)
                .unwrap();
            self.vfs
                .setxattr(
                    &caller,
                    first,
                    b"user.note",
                    b"of a file",
                    Default::default(),
                )
                .unwrap();
            self.vfs
                .setxattr(
                    &caller,
                    sub,
                    b"user.note",
                    b"of a directory",
                    Default::default(),
                )
                .unwrap();
            // In pieces, of which some are on another page.
            for (ino, len) in [(first, 20_000), (sub, 5000)] {
                let value = noise(d, len);
                self.vfs
                    .setxattr(&caller, ino, b"user.long", &value, Default::default())
                    .unwrap();
            }
            // Two files that have blocks in common, and each some of its own.
            let source = self.file(sub, "source", 90_000);
            let target = self.file(sub, "target", 70_000);
            self.clone_range((source, 0), (target, 2), 20);
            let bytes = self.bytes(9000);
            self.write(target, 30_000, &bytes);
            let sparse = self.file(sub, "sparse", 3000);
            let tail = self.bytes(5000);
            self.write(sparse, 1 << 20, &tail);
        }
        made
    }

    /// Overwrites, extends, removes and makes files, with syncs, checkpoints and cleaning.
    pub fn churn(&mut self, files: &mut [(Ino, String, Ino)], rounds: u64) {
        for round in 0..rounds {
            let at = self.random(files.len() as u64) as usize;
            let (directory, name, ino) = files[at].clone();
            match self.random(10) {
                0 => {
                    self.vfs.unlink(directory, name.as_bytes()).unwrap();
                    let len = self.random(30_000);
                    let name = format!("new {round}");
                    let ino = self.file(directory, &name, len);
                    files[at] = (directory, name, ino);
                }
                1 => {
                    let new = format!("renamed {round}");
                    self.vfs
                        .rename(
                            directory,
                            name.as_bytes(),
                            directory,
                            new.as_bytes(),
                            Default::default(),
                        )
                        .unwrap();
                    files[at].1 = new;
                }
                2 => {
                    let other = self.random(files.len() as u64) as usize;
                    let (block, place) = (self.random(4), self.random(6));
                    if other != at {
                        self.clone_range((files[other].2, block), (ino, place), 12);
                    }
                }
                _ => {
                    let len = self.random(30_000);
                    let bytes = self.bytes(len);
                    let offset = self.random(40_000);
                    self.write(ino, offset, &bytes);
                }
            }
            if round % 50 == 49 {
                self.vfs.sync().unwrap();
            }
            if round % 200 == 199 {
                self.vfs.volume().step(Task::Checkpoint).unwrap();
                self.vfs.volume().step(Task::Clean).unwrap();
            }
        }
    }

    pub fn tree(&self) -> Tree {
        tree(&self.vfs)
    }

    /// Zones with this role.
    pub fn zones(&self, role: Role) -> Vec<ZoneId> {
        let zones = self.vfs.volume().zones();
        let with = zones.into_iter().filter(|zone| zone.entry.role == role);
        with.map(|zone| zone.zone).collect()
    }

    /// The device as it is, without these zones.
    pub fn without(&self, zones: &[ZoneId]) -> SimDevice {
        let device = self.device.snapshot().intact();
        for zone in zones {
            device.set_offline(*zone);
        }
        device
    }
}

pub fn tree(vfs: &Vfs) -> Tree {
    tree_of(vfs, ROOT)
}

/// What is in a directory, and below it.
pub fn tree_of(vfs: &Vfs, top: Ino) -> Tree {
    let mut tree = Tree::new();
    let mut stack = vec![(String::new(), top)];
    tree.insert("/".into(), thing(vfs, top));
    while let Some((prefix, directory)) = stack.pop() {
        let handle = vfs.opendir(directory).unwrap();
        let mut names = Vec::new();
        vfs.readdir(directory, handle, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
            }
            Listing::More
        })
        .unwrap();
        vfs.releasedir(directory, handle).unwrap();
        for (name, ino) in names {
            // In a snapshot a repair may leave a name that leads to nothing.
            let is_there = vfs.volume().view::<_, Error>(|v| v.inode(ino)).unwrap();
            if is_there.is_none() && top != ROOT {
                continue;
            }
            let path = format!("{prefix}/{name}");
            let thing = thing(vfs, ino);
            if thing.inode.is_dir() {
                stack.push((path.clone(), ino));
            }
            tree.insert(path, thing);
        }
    }
    tree
}

fn thing(vfs: &Vfs, ino: Ino) -> Thing {
    let volume = vfs.volume();
    let mut inode = volume.view::<_, Error>(|v| v.inode(ino)).unwrap().unwrap();
    let mut data = Vec::new();
    let content = if inode.is_file() {
        let mut at = 0;
        while let Some(start) = volume.seek(ino, at, persimmon_engine::Seek::Data).unwrap() {
            at = volume
                .seek(ino, start, persimmon_engine::Seek::Hole)
                .unwrap()
                .unwrap();
            data.push((start, at));
        }
        let mut bytes = vec![0; inode.size as usize];
        let mut done = 0;
        while done < bytes.len() {
            match vfs
                .read(ino, Handle::NONE, done as u64, &mut bytes[done..])
                .unwrap()
            {
                0 => break,
                read => done += read,
            }
        }
        assert_eq!(done, bytes.len());
        bytes
    } else if inode.is_symlink() {
        vfs.readlink(ino).unwrap()
    } else {
        Vec::new()
    };
    let names = vfs.listxattr(&Caller::root(), ino).unwrap();
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    // One with lost pieces that a repair in place leaves in a snapshot cannot be read: as one that is gone it has to be told of.
    let xattr = |name: &[u8]| match vfs.getxattr(ino, name) {
        Ok(value) => Some((name.to_vec(), value)),
        Err(persimmon_vfs::Error::Damaged(_)) => None,
        Err(error) => panic!("{error}"),
    };
    let xattrs = names.filter_map(xattr).collect();
    // How a file's blocks are stored is each volume's own affair.
    inode.sectors = 0;
    Thing {
        inode,
        content,
        xattrs,
        data,
    }
}

/// A value that does not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(next).collect()
}

/// Recovers a broken device to a new one; the copy is mounted, and sound.
pub fn recovered(broken: &SimDevice) -> (Vfs, Recovered, Vec<Loss>) {
    recovered_if_any(broken).unwrap()
}

/// The same, if a page of metadata is left.
pub fn recovered_if_any(broken: &SimDevice) -> Option<(Vfs, Recovered, Vec<Loss>)> {
    recovered_of(broken, None)
}

/// The same of the snapshot with this name, if there is a name.
pub fn recovered_of(
    broken: &dyn ZonedDevice,
    snapshot: Option<&str>,
) -> Option<(Vfs, Recovered, Vec<Loss>)> {
    let rebuilt = match rebuild(broken, &mut |_, _, _| {}) {
        Err(InspectError::NoCheckpoint { .. }) => return None,
        rebuilt => rebuilt.unwrap(),
    };
    let device = Arc::new(SimDevice::new(config()));
    format(&device, "new");
    let (volume, _) = Volume::open(
        Arc::clone(&device) as _,
        persimmon_engine::Options::default(),
    )
    .unwrap();
    let mut losses = Vec::new();
    let now = Timestamp {
        seconds: 2_000_000,
        nanoseconds: 0,
    };
    let told = recover_of(
        &rebuilt,
        snapshot.map(str::as_bytes),
        &volume,
        now,
        &mut |loss| losses.push(loss.clone()),
        &mut |_, _, _| {},
    )
    .unwrap();
    volume.close().unwrap();
    drop(volume);
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = check(&*device as &dyn ZonedDevice, &options, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(told.losses, losses.len() as u64);
    Some((mount(&device), told, losses))
}

/// Regular files of `truth` that `copy` has as they were, out of how many.
pub fn intact(truth: &Tree, copy: &Tree) -> (usize, usize) {
    let files = truth.iter().filter(|(_, thing)| thing.inode.is_file());
    let same = files
        .clone()
        .filter(|(path, thing)| copy.get(*path) == Some(thing));
    (same.count(), files.count())
}

/// A loss that says no more than that metadata of something is gone.
fn unnamed(losses: &[Loss]) -> bool {
    let tree = |loss: &&Loss| loss.lost == Lost::Metadata && !is_of_log(loss);
    losses.iter().any(|loss| tree(&loss))
}

/// That changes may be missing which came after what was found.
fn is_of_log(loss: &Loss) -> bool {
    loss.detail.contains("the log leads to no state")
}

/// All that is told is that nothing is known of what the log held.
pub fn assert_log_alone_lost(losses: &[Loss]) {
    assert!(losses.len() == 1 && is_of_log(&losses[0]), "{losses:#?}");
}

/// What differs is told of. A directory's size and links follow from its names, each of which is
/// looked at for itself.
pub fn assert_told(truth: &Tree, copy: &Tree, losses: &[Loss]) {
    let found: BTreeSet<_> = copy.values().map(key).collect();
    for (path, thing) in truth {
        let mut thing = thing.clone();
        let same = copy.get(path).is_some_and(|copied| {
            if thing.inode.is_dir() {
                (thing.inode.size, thing.inode.nlink) = (copied.inode.size, copied.inode.nlink);
            }
            *copied == thing
        });
        // What has several names is told of under one of them, or one that it has in the copy alone, of an older directory.
        let is_of = |loss: &&Loss| {
            let under = [truth.get(&loss.path), copy.get(&loss.path)];
            let mut under = under.into_iter().flatten();
            let is_other = under.any(|other| key(other) == key(&thing));
            loss.path == *path || thing.inode.nlink > 1 && is_other
        };
        let listed = losses.iter().any(|loss| is_of(&loss));
        // Without its name it is told of under another.
        let elsewhere = !copy.contains_key(path) && found.contains(&key(&thing));
        let unnamed = !copy.contains_key(path) && unnamed(losses);
        let older = losses
            .iter()
            .any(|loss| loss.detail.contains("any part of the tree"))
            || losses
                .iter()
                .any(|loss| loss.detail.contains("not enough for a tree"));
        let other = copy
            .get(path)
            .map(|copied| (copied.inode, copied.content == thing.content));
        assert!(
            same || listed || elsewhere || unnamed || older,
            "{path} differs, and nobody says so:\n{losses:#?}\n{thing:?}\n{other:?}"
        );
    }
}

fn key(thing: &Thing) -> (i64, u32) {
    (thing.inode.btime.seconds, thing.inode.mode)
}

/// An address as it is printed.
pub fn addr(text: &str) -> Addr {
    let parts: Vec<u32> = text.split(':').map(|part| part.parse().unwrap()).collect();
    Addr::new(DeviceId(0), ZoneId(parts[1]), parts[2])
}

/// Where those leaves of the tree are that are meant.
pub fn leaves(device: &SimDevice, is_meant: impl Fn(&PageDump) -> bool) -> Vec<Addr> {
    let inspector = Inspector::open(device).unwrap();
    let Dump::Mat(rows) = dump(&inspector, &Target::Mat).unwrap() else {
        panic!("no table")
    };
    let mut leaves = Vec::new();
    for row in rows {
        let page = dump(&inspector, &Target::Page(PageId(row.page))).unwrap();
        let Dump::Page(page) = page else {
            panic!("no page")
        };
        if page.level == 0 && is_meant(&page) {
            leaves.push(addr(&row.addr));
        }
    }
    leaves
}

/// What differs is in a range that is told of, and the files that are whole are.
pub fn assert_ranges_told(truth: &Tree, found: &Tree, losses: &[Loss]) {
    for (path, thing) in truth.iter().filter(|(_, thing)| thing.inode.is_file()) {
        let ranges: Vec<_> = losses.iter().filter(|loss| loss.path == *path).collect();
        if ranges.iter().any(|loss| loss.to == 0) {
            continue;
        }
        let Some(there) = found.get(path) else {
            assert!(!ranges.is_empty(), "{path} is missing");
            continue;
        };
        assert_eq!(thing.content.len(), there.content.len(), "{path}");
        for (at, (byte, now)) in thing.content.iter().zip(&there.content).enumerate() {
            let mut told = ranges.iter().map(|loss| loss.from..loss.to);
            assert!(
                byte == now || told.any(|range| range.contains(&(at as u64))),
                "{path}, byte {at}: {ranges:#?}"
            );
        }
    }
}

/// Mends what is on the device, and tells what a check finds then, and what was lost.
pub fn repair(device: &Arc<SimDevice>) -> (Report, Vec<Loss>) {
    let mut losses = Vec::new();
    {
        let rebuilt = rebuild(&**device, &mut |_, _, _| {}).unwrap();
        let how = (Timestamp::default(), persimmon_engine::Options::default());
        let on_loss = &mut |loss: &Loss| losses.push(loss.clone());
        let device = Arc::clone(device) as _;
        mend(&rebuilt, device, how, on_loss, &mut |_, _, _| {}).unwrap();
    }
    (settle(device), losses)
}

/// Where the leaves are that have items of such inodes alone.
pub fn leaves_of(device: &SimDevice, is_meant: impl Fn(u64) -> bool) -> Vec<Addr> {
    leaves(device, |page| {
        page.items.iter().all(|item| is_meant(item.ino))
    })
}
