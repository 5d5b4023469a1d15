//! A volume in stripe sets whose files tell in each block what it is of: so a block that is read can be told from one that was never written
//! there, whatever was damaged before.

use std::collections::BTreeMap;
use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Striped, Stripes, ZonedDevice};
use persimmon_engine::{CloneRange, CloneWhen, Deltas, FormatOptions, Options, Task, Volume};
use persimmon_format::Ino;
use persimmon_sim::{SimConfig, SimDevice, Snapshot};
use persimmon_vfs::{
    Caller, Clock, Error, FileKind, Handle, Listing, OpenFlags, ROOT, Vfs, WriteFlags, XattrMode,
};

use crate::sample::{Still, content};

/// How often a block is written at most before it is damaged. What is written later has numbers from here on.
pub const GENERATIONS: u64 = 4;
/// And until all is done.
pub const GENERATIONS_MAX: u64 = 12;
const ZONE_BLOCKS: u32 = 64;
const MIRRORS: u32 = 24;
const SETS_WITH_PARITY: u32 = 18;
/// Sizes of files: what is in the tree, in a block, in several, in several zones of a row.
const SIZES: [usize; 8] = [0, 100, 3000, 4096, 9000, 40_000, 70_000, 150_000];
const BLOCK: u64 = BLOCK_SIZE as u64;

/// What a file has, or why that cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub ino: Ino,
    pub kind: FileKind,
    /// Bytes of a file.
    pub size: u64,
    /// Block by block; `None` is an error.
    pub blocks: Vec<Option<Vec<u8>>>,
    pub xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// What a mounted volume shows: paths, with the name of a snapshot before those in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub found: BTreeMap<String, Found>,
    /// What could not be looked at at all.
    pub errors: u32,
}

/// A volume, and what it has.
pub struct Stamped {
    pub stripes: Stripes,
    /// As a crash leaves it, and closed.
    devices: [Snapshot; 2],
    pub files: Files,
    /// What the blocks of a file are stamped with.
    pub numbers: BTreeMap<Ino, u64>,
}

/// A block of a file as it was written the `generation`th time. Of three files one is new each time, one changes a little, one compresses.
pub fn stamp(file: u64, block: u64, generation: u64) -> Vec<u8> {
    let seed = file << 40 | block << 8;
    let mut bytes = match file % 3 {
        0 => content(seed | (generation + 1), BLOCK_SIZE),
        1 => content(seed | 0xff, BLOCK_SIZE),
        _ => content(seed | 0xff, 128).repeat(BLOCK_SIZE / 128),
    };
    for (at, number) in [file, block, generation].into_iter().enumerate() {
        bytes[8 * at..][..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Whether bytes read at the beginning of a block were written there once.
fn was_written(file: u64, block: u64, bytes: &[u8]) -> bool {
    (0..GENERATIONS_MAX)
        .any(|generation| stamp(file, block, generation).get(..bytes.len()) == Some(bytes))
}

/// The same where what is lost is a hole: of a block whose newest changes are in the journal these may be all that is left.
fn was_written_or_lost(file: u64, block: u64, bytes: &[u8]) -> bool {
    let all: Vec<_> = (0..GENERATIONS_MAX)
        .map(|generation| stamp(file, block, generation))
        .collect();
    let mut bytes = bytes.iter().enumerate();
    bytes.all(|(at, byte)| *byte == 0 || all.iter().any(|whole| whole[at] == *byte))
}

impl Stamped {
    pub fn make(stripes: Stripes) -> Stamped {
        let zones = match stripes.metadata_sets {
            0 => 2 * (MIRRORS + SETS_WITH_PARITY),
            mirrors => 2 * mirrors + (stripes.columns + 1) * SETS_WITH_PARITY,
        };
        let config = SimConfig::new(zones, ZONE_BLOCKS);
        let below = Arc::new(SimDevice::new(config));
        let device = || Arc::new(Striped::new(below.clone(), stripes, true).unwrap());
        let options = FormatOptions {
            uuid: *b"a stamped volume",
            secret: [0x66; 32],
            ..FormatOptions::default()
        };
        Volume::format(device(), &options).unwrap();
        let (volume, _) = Volume::open(device(), mount_options(false)).unwrap();
        let vfs = Vfs::new(Arc::new(volume), Arc::new(Still), Default::default());
        let numbers = populate(&vfs);
        let crashed = below.snapshot();
        let files = Files::of(&vfs);
        assert_eq!(files.errors, 0);
        vfs.close().unwrap();
        Stamped {
            stripes,
            devices: [crashed, below.snapshot()],
            files,
            numbers,
        }
    }

    /// A copy to damage.
    pub fn device(&self, closed: bool) -> SimDevice {
        self.devices[usize::from(closed)].intact()
    }
}

/// Two copies of everything.
pub fn copies() -> Stripes {
    Stripes::MIRROR
}

/// Parity of two zones in a third.
pub fn parity() -> Stripes {
    Stripes {
        columns: 2,
        metadata_sets: MIRRORS,
    }
}

pub fn mount_options(read_only: bool) -> Options {
    Options {
        read_only,
        deltas: Deltas::Always,
        cache_bytes_max: 64 << 10,
        staging_bytes_max: 256 << 10,
        ..Options::default()
    }
}

/// Opens what is on the device.
pub fn mount(device: Arc<dyn ZonedDevice>, read_only: bool) -> persimmon_engine::Result<Vfs> {
    let (volume, _) = Volume::open(device, mount_options(read_only))?;
    let orphans = volume.orphans().unwrap_or_default();
    let options = persimmon_vfs::Options {
        read_only,
        ..persimmon_vfs::Options::default()
    };
    let vfs = Vfs::new(Arc::new(volume), Arc::new(Still), options);
    let _ = vfs.reclaim_orphans(&orphans);
    Ok(vfs)
}

fn add(vfs: &Vfs, parent: Ino, number: u64, numbers: &mut BTreeMap<Ino, u64>) -> Ino {
    let flags = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let name = format!("f{number}");
    let made = vfs.create(&Caller::root(), parent, name.as_bytes(), 0o644, flags);
    let (attr, handle) = made.unwrap();
    vfs.release(attr.ino, handle).unwrap();
    numbers.insert(attr.ino, number);
    attr.ino
}

/// Writes blocks of a file anew, no more than `size` bytes of it.
pub fn write(
    vfs: &Vfs,
    (ino, number): (Ino, u64),
    blocks: std::ops::Range<u64>,
    (size, generation): (u64, u64),
) -> Result<(), Error> {
    for block in blocks {
        let at = block * BLOCK;
        let bytes = stamp(number, block, generation);
        let len = size.saturating_sub(at).min(BLOCK) as usize;
        let flags = WriteFlags::default();
        let mut done = 0;
        while done < len {
            let rest = &bytes[done..len];
            done += vfs
                .write(ino, Handle::NONE, at + done as u64, rest, flags)?
                .len;
        }
    }
    Ok(())
}

fn populate(vfs: &Vfs) -> BTreeMap<Ino, u64> {
    let root = Caller::root();
    let mut numbers = BTreeMap::new();
    let dir = vfs.mkdir(&root, ROOT, b"dir", 0o755).unwrap().ino;
    let mut files = Vec::new();
    for (number, size) in (0..).zip(SIZES.repeat(4)) {
        let parent = if number % 2 == 0 { ROOT } else { dir };
        let ino = add(vfs, parent, number, &mut numbers);
        if number % 4 == 0 {
            let (name, value) = (b"user.persimmon.compression", b"zstd");
            vfs.setxattr(&root, ino, name, value, XattrMode::Either)
                .unwrap();
        }
        let (size, blocks) = (size as u64, (size as u64).div_ceil(BLOCK));
        write(vfs, (ino, number), 0..blocks, (size, 0)).unwrap();
        if number % 5 == 0 {
            let value = content(number + 1, 6000);
            vfs.setxattr(&root, ino, b"user.note", &value, XattrMode::Either)
                .unwrap();
        }
        files.push((ino, number, size));
    }
    // A file that never got any content, for a clone.
    let clone = add(vfs, ROOT, 6, &mut numbers);
    vfs.sync().unwrap();
    vfs.volume().step(Task::Checkpoint).unwrap();
    let rewrite = |generation: u64, of: u64| {
        for (ino, number, size) in &files {
            let blocks = size.div_ceil(BLOCK);
            if number % 3 == of && blocks > 0 {
                let at = (number + generation) % blocks;
                let range = at..(at + 1 + generation).min(blocks);
                write(vfs, (*ino, *number), range, (*size, generation)).unwrap();
                vfs.fsync(*ino, Handle::NONE).unwrap();
            }
        }
    };
    (0..3).for_each(|of| rewrite(1, of));
    vfs.take_snapshot(b"taken", true).unwrap();
    rewrite(2, 1);
    let range = CloneRange {
        from: files[6].0,
        from_offset: 0,
        to: clone,
        to_offset: 0,
        len: 10 * BLOCK,
        when: CloneWhen::Always,
    };
    vfs.volume().clone_range(&range, Still.now()).unwrap();
    for task in [Task::WriteBack, Task::Clean, Task::Checkpoint, Task::Reset] {
        vfs.volume().step(task).unwrap();
    }
    (0..3).for_each(|of| rewrite(3, of));
    vfs.unlink(ROOT, b"f2").unwrap();
    vfs.sync().unwrap();
    numbers
}

impl Files {
    /// Everything that a mounted volume shows, snapshots too.
    pub fn of(vfs: &Vfs) -> Files {
        let mut files = Files::default();
        files.walk(vfs, "", ROOT);
        for snapshot in vfs.volume().snapshots().list() {
            let name = String::from_utf8_lossy(&snapshot.name).into_owned();
            files.walk(vfs, &format!("{name}:"), ROOT.of(snapshot.id));
        }
        files
    }

    fn walk(&mut self, vfs: &Vfs, before: &str, root: Ino) {
        let mut directories = vec![(before.to_owned(), root)];
        while let Some((prefix, directory)) = directories.pop() {
            let mut names = Vec::new();
            let listed = vfs.readdir(directory, Handle::NONE, 0, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    names.push(entry.name.to_vec());
                }
                Listing::More
            });
            self.errors += u32::from(listed.is_err());
            for name in names {
                let path = format!("{prefix}/{}", String::from_utf8_lossy(&name));
                match vfs.lookup(directory, &name) {
                    Err(_) => self.errors += 1,
                    Ok(attr) => {
                        if attr.kind() == FileKind::Directory {
                            directories.push((path.clone(), attr.ino));
                        }
                        // Of a directory it is how many names it has.
                        let size = match attr.kind() {
                            FileKind::Regular => attr.size,
                            _ => 0,
                        };
                        let found = Found {
                            ino: attr.ino,
                            kind: attr.kind(),
                            size,
                            blocks: blocks(vfs, attr.ino, size),
                            xattrs: self.xattrs(vfs, attr.ino),
                        };
                        self.found.insert(path, found);
                    }
                }
            }
        }
    }

    fn xattrs(&mut self, vfs: &Vfs, ino: Ino) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let Ok(names) = vfs.listxattr(&Caller::root(), ino) else {
            self.errors += 1;
            return BTreeMap::new();
        };
        let names = names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        names
            .map(|name| (name.to_vec(), vfs.getxattr(ino, name).ok()))
            .collect()
    }

    /// Nothing may be missing or different.
    pub fn must_be(&self, should: &Files, when: &str) {
        assert_eq!(self.errors, 0, "{when}: not all can be looked at");
        for (path, should) in &should.found {
            let found = self.found.get(path);
            let found = found.unwrap_or_else(|| panic!("{when}: {path} is missing"));
            let other = { found.blocks.iter().zip(&should.blocks) }.position(|(a, b)| a != b);
            assert!(other.is_none(), "{when}: block {other:?} of {path} differs");
            assert!(
                found == should,
                "{when}: {path} has size {} or attributes that it should not have, or is another file",
                found.size
            );
        }
        let more = self
            .found
            .keys()
            .find(|path| !should.found.contains_key(*path));
        assert!(more.is_none(), "{when}: {more:?} should not be there");
    }

    /// What can be read was written to where it is. `mended`: what was lost is in no file any more.
    pub fn must_be_written(&self, stamped: &Stamped, mended: bool, when: &str) {
        for (path, found) in &self.found {
            let Some(number) = stamped.numbers.get(&found.ino.plain()) else {
                let is_file = found.kind == FileKind::Regular;
                assert!(!is_file, "{when}: nobody made {path}");
                continue;
            };
            for (block, bytes) in (0..).zip(&found.blocks) {
                let Some(bytes) = bytes else { continue };
                let is_right = match mended {
                    true => was_written_or_lost(*number, block, bytes),
                    false => was_written(*number, block, bytes),
                };
                assert!(
                    is_right,
                    "{when}: block {block} of {path} was never written there: {} of {} bytes, {:x?} ...",
                    bytes.len(),
                    found.size,
                    bytes.get(..40).unwrap_or(bytes)
                );
            }
        }
    }
}

fn blocks(vfs: &Vfs, ino: Ino, size: u64) -> Vec<Option<Vec<u8>>> {
    // What is damaged tells any size.
    let blocks = size.div_ceil(BLOCK).min(100);
    let read = |block: u64| {
        let mut bytes = vec![0; BLOCK_SIZE];
        let len = vfs.read(ino, Handle::NONE, block * BLOCK, &mut bytes);
        bytes.truncate(len.ok()?);
        Some(bytes)
    };
    (0..blocks).map(read).collect()
}
