//! Random histories of a volume.

use persimmon::vfs::{Handle, Listing, OpenFlags, ROOT, WriteFlags};
use persimmon::{
    Allocate, Caller, FileKind, Filesystem, Ino, RenameMode, SetAttr, SetTime, Timestamp, XattrMode,
};

/// SplitMix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len() as u64) as usize).cloned()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let unit = self.below(3);
        let seed = self.next() as u8;
        (0..len)
            .map(|at| match unit {
                0 => seed.wrapping_add((at / 700) as u8),
                1 => (at / 64) as u8 ^ seed,
                _ => self.next() as u8,
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
struct Found {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
    kind: FileKind,
}

/// All that has a name, breadth first.
fn all(fs: &Filesystem) -> Vec<Found> {
    let (mut found, mut dirs) = (Vec::new(), vec![ROOT]);
    while let Some(dir) = dirs.pop() {
        let mut each = |entry: &persimmon::vfs::Entry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                if entry.kind == FileKind::Directory {
                    dirs.push(entry.ino);
                }
                found.push(Found {
                    dir,
                    name: entry.name.to_vec(),
                    ino: entry.ino,
                    kind: entry.kind,
                });
            }
            Listing::More
        };
        fs.vfs().readdir(dir, Handle::NONE, 0, &mut each).unwrap();
    }
    found.sort_by(|a, b| (a.dir, &a.name).cmp(&(b.dir, &b.name)));
    found
}

const NAMES: [&[u8]; 10] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"\xff\xfe",
    b"a name with spaces and more",
];
const XATTRS: [&[u8]; 6] = [
    b"user.one",
    b"user.two",
    b"user.three",
    b"trusted.four",
    b"security.five",
    b"user.persimmon.compression",
];

/// An access control list: `u::rwx u:1000:r-x g::r-x m::r-x o::---`.
pub fn acl() -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 5, 1000),
        (4, 5, u32::MAX),
        (0x10, 5, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Does something to a volume; what cannot be done is left.
pub fn step(fs: &Filesystem, random: &mut Random, open: &mut Vec<Handle>) {
    let all = all(fs);
    let of = |kind: FileKind| -> Vec<Found> {
        all.iter()
            .filter(|found| found.kind == kind)
            .cloned()
            .collect()
    };
    let mut dirs: Vec<Ino> = of(FileKind::Directory)
        .iter()
        .map(|found| found.ino)
        .collect();
    dirs.push(ROOT);
    let files = of(FileKind::Regular);
    let dir = random.pick(&dirs).unwrap();
    let name = random.pick(&NAMES).unwrap();
    let any = random.pick(&all);
    let file = random.pick(&files);
    let offset = match random.below(4) {
        0 => 0,
        1 => random.below(40) * 4096,
        2 => random.below(10_000),
        _ => random.below(600 << 10),
    };
    let len = match random.below(4) {
        0 => random.below(64) + 1,
        1 => 4096 * (1 + random.below(4)),
        2 => random.below(10_000) + 1,
        _ => random.below(150 << 10) + 1,
    };
    let chosen = Chosen {
        dir,
        name,
        any,
        file,
        files,
        offset,
        len,
    };
    let what = random.below(100);
    match what {
        10..50 => content(fs, random, what, chosen),
        0..97 => names(fs, random, what, chosen, open),
        97 => fs.sync().unwrap(),
        _ => {
            let _ = fs.vfs().volume().sync();
        }
    }
}

/// What a step is about.
struct Chosen {
    dir: Ino,
    name: &'static [u8],
    any: Option<Found>,
    file: Option<Found>,
    files: Vec<Found>,
    offset: u64,
    len: u64,
}

/// Changes the content of a file.
fn content(fs: &Filesystem, random: &mut Random, what: u64, chosen: Chosen) {
    let (vfs, root) = (fs.vfs(), Caller::root());
    let Chosen {
        dir,
        name,
        file,
        files,
        offset,
        len,
        ..
    } = chosen;
    match what {
        10..22 => {
            if let Ok(made) = vfs.mknod(&root, dir, name, libc::S_IFREG | 0o640, 0) {
                let bytes = random.bytes(random.clone().below(100 << 10) as usize + 1);
                let _ = vfs.write(made.ino, Handle::NONE, 0, &bytes, WriteFlags::default());
            }
        }
        // Blocks of which little changes get deltas when they are synced.
        30..36 => {
            if let Some(file) = file {
                let size = vfs.getattr(file.ino).unwrap().size;
                for _ in 0..random.below(4) {
                    let at = random.below(size.max(1));
                    let bytes = random.bytes(random.clone().below(50) as usize + 1);
                    let flags = WriteFlags::default();
                    vfs.write(file.ino, Handle::NONE, at, &bytes, flags)
                        .unwrap();
                }
                vfs.fsync(file.ino, Handle::NONE).unwrap();
            }
        }
        22..30 => {
            if let Some(file) = file {
                let bytes = random.bytes(len as usize);
                let flags = WriteFlags::default();
                vfs.write(file.ino, Handle::NONE, offset, &bytes, flags)
                    .unwrap();
            }
        }
        36..42 => {
            if let Some(file) = file {
                let set = SetAttr {
                    size: Some(offset),
                    ..SetAttr::default()
                };
                vfs.setattr(file.ino, Handle::NONE, &set).unwrap();
            }
        }
        42..47 => {
            if let Some(file) = file {
                let how = match random.below(4) {
                    0 => Allocate::Reserve {
                        keep_size: random.one_in(2),
                    },
                    1 => Allocate::Zero {
                        keep_size: random.one_in(2),
                    },
                    _ => Allocate::Punch,
                };
                vfs.fallocate(file.ino, Handle::NONE, offset, len, how)
                    .unwrap();
            }
        }
        47..50 => {
            if let (Some(from), Some(to)) = (file, random.pick(&files)) {
                let to = (to.ino, Handle::NONE, random.below(40) * 4096);
                let _ =
                    vfs.copy_file_range((from.ino, Handle::NONE, offset / 4096 * 4096), to, len);
            }
        }
        _ => {}
    }
}

/// Changes names and attributes.
fn names(fs: &Filesystem, random: &mut Random, what: u64, chosen: Chosen, open: &mut Vec<Handle>) {
    let (vfs, root) = (fs.vfs(), Caller::root());
    let Chosen {
        dir,
        name,
        any,
        file,
        ..
    } = chosen;
    match what {
        0..10 => {
            let _ = vfs.mkdir(&root, dir, name, 0o750);
        }
        50..53 => {
            let target = random.bytes(1 + random.clone().below(40) as usize);
            let target: Vec<u8> = target.into_iter().map(|byte| byte.max(1)).collect();
            let _ = vfs.symlink(&root, dir, name, &target);
        }
        53..56 => {
            let kinds = [libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFBLK];
            let kind = random.pick(&kinds).unwrap();
            let _ = vfs.mknod(
                &root,
                dir,
                name,
                kind | 0o600,
                0x1_0300 + random.below(9) as u32,
            );
        }
        56..62 => {
            if let Some(any) = any {
                let _ = vfs.link(any.ino, dir, name);
            }
        }
        62..76 => {
            if let Some(any) = any {
                let modes = [
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ];
                let mode = random.pick(&modes).unwrap();
                let _ = vfs.rename(any.dir, &any.name, dir, name, mode);
            }
        }
        76..84 => {
            if let Some(any) = any {
                let _ = match any.kind {
                    FileKind::Directory => vfs.rmdir(any.dir, &any.name),
                    _ => vfs.unlink(any.dir, &any.name),
                };
            }
        }
        84..89 => {
            let ino = any.map_or(ROOT, |any| any.ino);
            let xattr = random.pick(&XATTRS).unwrap();
            let _ = match random.below(4) {
                0 => vfs.removexattr(ino, xattr),
                _ if xattr == b"user.persimmon.compression" => {
                    let value = random.pick(&[&b"zstd:2"[..], b"lz4", b"none"]).unwrap();
                    vfs.setxattr(&root, ino, xattr, value, XattrMode::Either)
                }
                _ => {
                    let value = random.bytes(random.clone().below(300) as usize);
                    vfs.setxattr(&root, ino, xattr, &value, XattrMode::Either)
                }
            };
        }
        89..91 => {
            let acls = [&b"system.posix_acl_access"[..], b"system.posix_acl_default"];
            let name = random.pick(&acls).unwrap();
            if let Some(any) = any.filter(|any| any.kind != FileKind::Symlink) {
                let _ = match random.below(3) {
                    0 => vfs.removexattr(any.ino, name),
                    _ => vfs.setxattr(&root, any.ino, name, &acl(), XattrMode::Either),
                };
            }
        }
        91..95 => {
            let is_link = any
                .as_ref()
                .is_some_and(|any| any.kind == FileKind::Symlink);
            let ino = any.map_or(ROOT, |any| any.ino);
            let set = SetAttr {
                // No system changes those of a symbolic link.
                mode: (!is_link)
                    .then_some(())
                    .and_then(|()| random.one_in(2).then(|| random.below(0o10000) as u32)),
                uid: random.one_in(3).then(|| random.below(3) as u32),
                gid: random.one_in(3).then(|| random.below(3) as u32),
                mtime: random.one_in(2).then(|| {
                    SetTime::At(Timestamp {
                        seconds: random.below(2_000_000_000) as i64,
                        nanoseconds: random.below(1_000_000_000) as u32,
                    })
                }),
                ..SetAttr::default()
            };
            let _ = vfs.setattr(ino, Handle::NONE, &set);
        }
        95..97 => {
            // Open without a name.
            let flags = OpenFlags {
                write: true,
                ..OpenFlags::default()
            };
            if let Ok((_, handle)) = vfs.tmpfile(&root, dir, 0o600, flags) {
                open.push(handle);
            } else if let Some(file) = file
                && let Ok(handle) = vfs.open(file.ino, flags)
            {
                open.push(handle);
                let _ = vfs.unlink(file.dir, &file.name);
            }
        }
        _ => {}
    }
}
