//! Quota: what users, groups and projects take is counted as it is, and nobody takes more than they may.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{NewLimits, OwnerQuota, Progress, Quotas, Task, Volume};
use persimmon_format::inode::Inode;
use persimmon_format::quota::Usage;
use persimmon_format::{Key, KeyKind};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    Allocate, Author, Caller, Error, Handle, Ino, OpenFlags, Options, Owner, OwnerKind, ROOT,
    RenameMode, SetAttr, WriteFlags, XattrMode,
};

use crate::fixture::{Fixture, READ_WRITE, user};

mod attributes;
mod grace;

const MIB: u64 = 1 << 20;
const ALICE: u32 = 1001;
const STAFF: u32 = 2001;
/// For a user.
const LIMITED: OpenFlags = OpenFlags {
    is_limited: true,
    ..READ_WRITE
};

fn owner(kind: OwnerKind, id: u32) -> Owner {
    Owner { kind, id }
}

fn quotas(fs: &Fixture) -> Quotas<'_> {
    Quotas::of(fs.vfs.volume())
}

fn turn_on(fs: &Fixture) {
    quotas(fs).turn_on(false).unwrap();
    quotas(fs).count().unwrap();
}

/// A fresh filesystem with quota, whose root everybody may write to.
fn fixture() -> Fixture {
    let fs = Fixture::default();
    fs.chmod(ROOT, 0o777);
    turn_on(&fs);
    fs
}

fn set(fs: &Fixture, of: Owner, limits: NewLimits) -> OwnerQuota {
    let now = persimmon_vfs::Clock::now(&*fs.clock);
    quotas(fs).set(of, &limits, now).unwrap()
}

fn bytes_hard(bytes: u64) -> NewLimits {
    NewLimits {
        bytes_hard: Some(bytes),
        ..NewLimits::default()
    }
}

fn get(fs: &Fixture, of: Owner) -> OwnerQuota {
    quotas(fs).get(of).unwrap()
}

fn create(fs: &Fixture, caller: &Caller, dir: Ino, name: &str) -> Result<(Ino, Handle), Error> {
    let flags = OpenFlags {
        is_limited: caller.uid != 0,
        ..READ_WRITE
    };
    let made = fs.vfs.create(caller, dir, name.as_bytes(), 0o644, flags);
    made.map(|(attr, handle)| (attr.ino, handle))
}

fn write(fs: &Fixture, (ino, handle): (Ino, Handle), at: u64, data: &[u8]) -> Result<usize, Error> {
    let written = fs.vfs.write(ino, handle, at, data, WriteFlags::default());
    written.map(|written| written.len)
}

/// Writes until it is refused. Returns how much.
fn fill(fs: &Fixture, file: (Ino, Handle), piece: usize) -> u64 {
    let mut at = 0;
    loop {
        let data = noise(at + 1, piece);
        match write(fs, file, at, &data) {
            Ok(0) => panic!("nothing was written, and that is no error"),
            Ok(len) => at += len as u64,
            Err(error) => {
                assert_eq!(error.errno(), libc::EDQUOT, "{error}");
                return at;
            }
        }
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn chown(fs: &Fixture, ino: Ino, uid: Option<u32>, gid: Option<u32>, author: Author) -> i32 {
    let set = SetAttr {
        uid,
        gid,
        author,
        ..SetAttr::default()
    };
    match fs.vfs.setattr(ino, Handle::NONE, &set) {
        Ok(_) => 0,
        Err(error) => error.errno(),
    }
}

/// What owners take by the inodes that there are: a look at each.
fn counted(volume: &Volume) -> BTreeMap<Owner, Usage> {
    let mut found: BTreeMap<Owner, Usage> = BTreeMap::new();
    let mut inodes: Vec<Inode> = Vec::new();
    volume
        .walk_while(
            Key::inode(Ino(1))..Key::inode(Ino(1 << 40)),
            |key, value| (key.kind == KeyKind::INODE).then(|| Inode::decode(value).unwrap()),
            |inode| {
                inodes.push(inode);
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    for inode in inodes {
        let ids = [inode.uid, inode.gid, inode.project];
        for (kind, id) in OwnerKind::ALL.into_iter().zip(ids) {
            if kind != OwnerKind::Project || id != 0 {
                let usage = found.entry(owner(kind, id)).or_default();
                usage.sectors += inode.sectors;
                usage.inodes += 1;
            }
        }
    }
    found
}

/// Everything is counted as it is, and nothing is left of what was staged.
fn check_counts(fs: &Fixture) {
    fs.vfs.sync().unwrap();
    let told = quotas(fs).list().unwrap();
    for known in &told {
        assert_eq!(known.staged_bytes, 0, "{known:?}");
    }
    let told: BTreeMap<Owner, Usage> = told
        .into_iter()
        .filter(|known| known.usage != Usage::default())
        .map(|known| (known.owner, known.usage))
        .collect();
    assert_eq!(told, counted(fs.vfs.volume()));
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Does something to one of some files, by many owners.
fn do_something(fs: &Fixture, random: &mut Random) {
    let name = format!("f{}", random.below(12));
    let dir = fs.ino(&format!("d{}", random.below(3)));
    let there = fs.vfs.lookup(dir, name.as_bytes()).ok();
    let caller = user(1000 + random.below(3) as u32, 2000 + random.below(3) as u32);
    let Some(attr) = there else {
        let _ = match random.below(4) {
            0 => fs.vfs.symlink(&caller, dir, name.as_bytes(), b"to"),
            1 => fs.vfs.mkdir(&caller, dir, name.as_bytes(), 0o755),
            _ => fs
                .vfs
                .mknod(&caller, dir, name.as_bytes(), libc::S_IFREG | 0o644, 0),
        };
        return;
    };
    let is_file = attr.mode & libc::S_IFMT == libc::S_IFREG;
    let at = random.below(100_000);
    let len = random.below(40_000) as usize;
    match random.below(13) {
        0 => {
            let (uid, gid) = (1000 + random.below(3) as u32, 2000 + random.below(3) as u32);
            chown(fs, attr.ino, Some(uid), Some(gid), Author::Privileged);
        }
        1 => {
            let _ = fs.vfs.unlink(dir, name.as_bytes());
        }
        2 => {
            let _ = fs.vfs.rmdir(dir, name.as_bytes());
        }
        3 => {
            let to = fs.ino(&format!("d{}", random.below(3)));
            let to_name = format!("f{}", random.below(12));
            let mode = match random.below(2) {
                0 => RenameMode::Replace,
                _ => RenameMode::Exchange,
            };
            let _ = fs
                .vfs
                .rename(dir, name.as_bytes(), to, to_name.as_bytes(), mode);
        }
        4 => {
            let project = random.below(3) as u32;
            fs.vfs.set_project(&fs.root, attr.ino, project).unwrap();
        }
        5 => {
            let project = random.below(3) as u32;
            fs.vfs.set_project_below(&fs.root, dir, project).unwrap();
        }
        6 if is_file => {
            fs.truncate(attr.ino, at);
        }
        7 if is_file => {
            let what = match random.below(3) {
                0 => Allocate::Punch,
                1 => Allocate::Zero { keep_size: false },
                _ => Allocate::Reserve { keep_size: true },
            };
            fs.vfs
                .fallocate(attr.ino, Handle::NONE, at, 1 + len as u64, what)
                .unwrap();
        }
        8 => fs.vfs.sync().unwrap(),
        9 if is_file => {
            let from = fs
                .vfs
                .lookup(dir, format!("f{}", random.below(12)).as_bytes());
            if let Ok(from) = from
                && from.ino != attr.ino
                && from.mode & libc::S_IFMT == libc::S_IFREG
            {
                let (from, to) = ((from.ino, Handle::NONE, 0), (attr.ino, Handle::NONE, 0));
                let _ = fs.vfs.copy_file_range(from, to, 50_000).unwrap();
            }
        }
        10 => {
            let _ = fs
                .vfs
                .link(attr.ino, dir, format!("f{}", random.below(12)).as_bytes());
        }
        _ if is_file => {
            let data = match random.below(2) {
                0 => noise(at + 1, len),
                _ => vec![7; len],
            };
            fs.write(attr.ino, at, &data);
        }
        _ => {}
    }
}

/// Random changes, power cuts among them, against a look at all inodes. Quota is turned on in the midst of it, and counted a bit at a time.
#[test]
fn owners_are_counted_as_they_are() {
    for seed in 1..=6 {
        let mut random = Random(seed * 77 + 1);
        let mut fs = Fixture::default();
        for dir in ["d0", "d1", "d2"] {
            fs.mkdir(dir);
        }
        for _ in 0..100 {
            let before = quotas(&fs).has_projects();
            assert!(!before);
            let name = format!("f{}", random.below(12));
            let dir = fs.ino(&format!("d{}", random.below(3)));
            let (uid, gid) = (1000 + random.below(3) as u32, 2000 + random.below(3) as u32);
            if let Ok((ino, handle)) = create(&fs, &user(uid, gid), dir, &name) {
                let len = random.below(40_000) as usize;
                write(&fs, (ino, handle), 0, &noise(len as u64, len)).unwrap();
                fs.vfs.release(ino, handle).unwrap();
            }
        }
        quotas(&fs).turn_on(false).unwrap();
        for step in 0..600 {
            do_something(&fs, &mut random);
            if random.below(20) == 0 {
                let _ = fs.vfs.volume().step(Task::Count).unwrap();
            }
            if step % 200 == 199 {
                quotas(&fs).count().unwrap();
                check_counts(&fs);
                fs = match random.below(2) {
                    0 => fs.after_power_cut(seed * 1000 + step),
                    _ => fs.remount(),
                };
                check_counts(&fs);
                if random.below(3) == 0 {
                    quotas(&fs).turn_off().unwrap();
                    do_something(&fs, &mut random);
                    quotas(&fs).turn_on(false).unwrap();
                }
            }
        }
        quotas(&fs).count().unwrap();
        check_counts(&fs);
        drop(fs.remount());
    }
}

/// The count is cut by the power in each of its steps: the next mount goes on where it was.
#[test]
fn counting_goes_on_after_a_power_cut() {
    let mut fs = Fixture::default();
    for number in 0..400 {
        fs.file(&format!("f{number}"), b"some");
        chown(
            &fs,
            fs.ino(&format!("f{number}")),
            Some(number % 7),
            None,
            Author::Privileged,
        );
    }
    quotas(&fs).turn_on(false).unwrap();
    let mut steps = 0;
    while fs.vfs.volume().step(Task::Count).unwrap() == Progress::Worked {
        steps += 1;
        fs.file(&format!("g{steps}"), b"more");
        fs.unlink(&format!("f{steps}"));
        fs.vfs.sync().unwrap();
        fs = fs.after_power_cut(steps);
    }
    assert!(steps > 4, "{steps}");
    check_counts(&fs);
}

#[test]
fn a_user_writes_no_more_than_the_hard_limit() {
    let fs = fixture();
    let (alice, of) = (user(ALICE, STAFF), owner(OwnerKind::User, ALICE));
    set(&fs, of, bytes_hard(2 * MIB));
    let file = create(&fs, &alice, ROOT, "a").unwrap();
    let written = fill(&fs, file, 100_000);
    assert!(
        (2 * MIB - 8192..=2 * MIB).contains(&written),
        "{written} bytes"
    );
    // All of it is there, and can be written.
    fs.vfs.sync().unwrap();
    assert!(get(&fs, of).bytes_used() <= 2 * MIB);
    let content = fs.content(file.0);
    assert_eq!(content.len() as u64, written);
    // What is overwritten takes no more.
    for at in [0, 40_960, 4096] {
        assert_eq!(
            write(&fs, file, at, &noise(at + 9, 40_960)).unwrap(),
            40_960
        );
    }
    // Another file neither, but for next to nothing.
    let other = create(&fs, &alice, ROOT, "b").unwrap();
    assert!(fill(&fs, other, 50_000) <= 8192);
    // Others are not limited, and root is not either.
    let bob = create(&fs, &user(ALICE + 1, STAFF), ROOT, "c").unwrap();
    write(&fs, bob, 0, &noise(3, 3 << 20)).unwrap();
    let handle = fs.vfs.open(file.0, READ_WRITE).unwrap();
    write(&fs, (file.0, handle), 3 * MIB, &noise(5, 1 << 20)).unwrap();
    fs.vfs.sync().unwrap();
    assert!(get(&fs, of).exceeds());
    check_counts(&fs);
    // Making room.
    fs.truncate(file.0, MIB);
    write(&fs, file, MIB, &noise(4, 500_000)).unwrap();
    check_counts(&fs);
    drop(fs.remount());
}

/// What is staged counts as whole blocks, and what it takes once it is written is less: a user may use that.
#[test]
fn what_compresses_is_written_back_before_anybody_is_refused() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 1024).fast()));
    let engine = persimmon_engine::Options {
        compression: persimmon_format::Compression::Lz4,
        ..persimmon_engine::Options::default()
    };
    let fs = Fixture::with_engine(device, engine, Options::default());
    fs.chmod(ROOT, 0o777);
    turn_on(&fs);
    let of = owner(OwnerKind::Group, STAFF);
    set(&fs, of, bytes_hard(MIB));
    let file = create(&fs, &user(ALICE, STAFF), ROOT, "a").unwrap();
    let zeros = vec![7; 100_000];
    for piece in 0..40 {
        assert_eq!(write(&fs, file, piece * 100_000, &zeros).unwrap(), 100_000);
    }
    fs.vfs.sync().unwrap();
    assert!(get(&fs, of).bytes_used() <= MIB);
    check_counts(&fs);
}

#[test]
fn a_group_and_a_project_are_limited_too() {
    let fs = fixture();
    let dir = fs.mkdir("tree");
    fs.chmod(dir, 0o777);
    fs.vfs.set_project(&fs.root, dir, 7).unwrap();
    for (of, parent) in [
        (owner(OwnerKind::Group, STAFF), ROOT),
        (owner(OwnerKind::Project, 7), dir),
    ] {
        set(&fs, of, bytes_hard(MIB));
        let file = create(&fs, &user(ALICE, STAFF), parent, "a").unwrap();
        let written = fill(&fs, file, 70_000);
        assert!((MIB - 8192..=MIB).contains(&written), "{of:?}: {written}");
        let error = write(&fs, file, 4 * MIB, b"x").unwrap_err();
        assert!(matches!(error, Error::QuotaExceeded(_)));
        let what = Allocate::Reserve { keep_size: true };
        let reserved = fs.vfs.fallocate(file.0, file.1, 8 * MIB, MIB, what);
        assert_eq!(reserved.unwrap_err().errno(), libc::EDQUOT);
        set(&fs, of, bytes_hard(0));
        write(&fs, file, 4 * MIB, b"x").unwrap();
        fs.vfs
            .fallocate(file.0, file.1, 8 * MIB, MIB, what)
            .unwrap();
    }
    check_counts(&fs);
}

#[test]
fn clones_are_charged() {
    let fs = fixture();
    let of = owner(OwnerKind::User, ALICE);
    let source = fs.file("source", &noise(1, 1 << 20));
    fs.vfs.sync().unwrap();
    let file = create(&fs, &user(ALICE, STAFF), ROOT, "a").unwrap();
    set(&fs, of, bytes_hard(MIB / 2));
    let (from, to) = ((source, Handle::NONE, 0), (file.0, file.1, 0));
    let copied = fs.vfs.copy_file_range(from, to, MIB).unwrap();
    assert!((1..=MIB / 2).contains(&copied), "{copied}");
    let (from, to) = ((source, Handle::NONE, copied), (file.0, file.1, copied));
    let refused = fs.vfs.copy_file_range(from, to, MIB).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    check_counts(&fs);
    assert!(get(&fs, of).bytes_used() <= MIB / 2);
}

/// Whoever may only read a file brings nothing upon its owner by cloning it. What is shared of a compressed file goes on counting what it takes, in
/// each of the files.
#[test]
fn clones_by_others_charge_nobody_else() {
    let fs = fixture();
    let (source, handle) = create(&fs, &user(ALICE, STAFF), ROOT, "a").unwrap();
    let name = b"user.persimmon.compression";
    fs.vfs
        .setxattr(&Caller::root(), source, name, b"lz4", XattrMode::Either)
        .unwrap();
    let content = b"what compresses well. ".repeat(50_000);
    write(&fs, (source, handle), 0, &content).unwrap();
    fs.vfs.sync().unwrap();
    let of = owner(OwnerKind::User, ALICE);
    let before = get(&fs, of);
    assert!(before.bytes_used() < 500_000);
    for (name, by) in [("b", user(1234, 1234)), ("c", Caller::root())] {
        let (copy, handle) = create(&fs, &by, ROOT, name).unwrap();
        let from = (source, Handle::NONE, 0);
        let len = content.len() as u64;
        let copied = fs
            .vfs
            .copy_file_range(from, (copy, handle, 0), len)
            .unwrap();
        assert_eq!(copied, len);
        check_counts(&fs);
        assert_eq!(get(&fs, of).bytes_used(), before.bytes_used(), "{name}");
        let blocks = |ino| fs.vfs.getattr(ino).unwrap().blocks;
        assert_eq!(blocks(copy), blocks(source));
    }
    // For what she clones herself she is charged in both.
    let (copy, handle) = create(&fs, &user(ALICE, STAFF), ROOT, "d").unwrap();
    let (from, to) = ((source, Handle::NONE, 0), (copy, handle, 0));
    let len = content.len() as u64;
    assert_eq!(fs.vfs.copy_file_range(from, to, len).unwrap(), len);
    assert!(fs.content(copy) == content);
    check_counts(&fs);
    assert_eq!(get(&fs, of).bytes_used(), 2 * before.bytes_used());
    let dir = fs.mkdir("clones");
    fs.vfs
        .clone_entries(&Caller::root(), ROOT, dir, (0, usize::MAX))
        .unwrap();
    check_counts(&fs);
}

#[test]
fn inodes_are_limited() {
    let fs = fixture();
    let (alice, of) = (user(ALICE, STAFF), owner(OwnerKind::User, ALICE));
    let limits = NewLimits {
        inodes_hard: Some(3),
        ..NewLimits::default()
    };
    set(&fs, of, limits);
    create(&fs, &alice, ROOT, "a").unwrap();
    fs.vfs.mkdir(&alice, ROOT, b"b", 0o755).unwrap();
    fs.vfs.symlink(&alice, ROOT, b"c", b"to").unwrap();
    let refused = [
        create(&fs, &alice, ROOT, "d").map(drop),
        fs.vfs.mkdir(&alice, ROOT, b"d", 0o755).map(drop),
        fs.vfs.symlink(&alice, ROOT, b"d", b"to").map(drop),
        fs.vfs.tmpfile(&alice, ROOT, 0o600, LIMITED).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().errno(), libc::EDQUOT);
    }
    // One that is there is opened, and another name takes none.
    create(&fs, &alice, ROOT, "a").unwrap();
    fs.link("a", "a2");
    // Nor are files given to who has as many as may be.
    let file = fs.file("e", b"x");
    let of_user = Author::User { pid: 1, gid: STAFF };
    assert_eq!(chown(&fs, file, Some(ALICE), None, of_user), libc::EDQUOT);
    assert_eq!(chown(&fs, file, Some(ALICE), None, Author::Privileged), 0);
    assert!(get(&fs, of).exceeds());
    fs.unlink("e");
    fs.unlink("c");
    create(&fs, &alice, ROOT, "d").unwrap();
    check_counts(&fs);
}

#[test]
fn a_project_keeps_to_its_tree() {
    let fs = fixture();
    let tree = fs.mkdir("tree");
    fs.mkdir("tree/below");
    fs.file("tree/below/file", b"x");
    fs.file("outside", b"x");
    assert_eq!(fs.vfs.set_project_below(&fs.root, tree, 7).unwrap(), 3);
    for path in ["tree", "tree/below", "tree/below/file"] {
        assert_eq!(fs.vfs.project(fs.ino(path)).unwrap(), 7, "{path}");
    }
    fs.mkdir("tree/new");
    fs.file("tree/new/file", b"x");
    assert_eq!(fs.vfs.project(fs.ino("tree/new/file")).unwrap(), 7);
    let rename = |from: &str, to: &str, mode| {
        let (from, to) = (fs.split(from), fs.split(to));
        let renamed = fs.vfs.rename(from.0, from.1, to.0, to.1, mode);
        renamed.map_err(|error| error.errno())
    };
    let replace = RenameMode::Replace;
    assert_eq!(rename("outside", "tree/in", replace), Err(libc::EXDEV));
    let exchange = RenameMode::Exchange;
    let exchanged = rename("outside", "tree/new/file", exchange);
    assert_eq!(exchanged, Err(libc::EXDEV));
    let exchanged = rename("tree/new/file", "outside", exchange);
    assert_eq!(exchanged, Err(libc::EXDEV));
    let linked = fs.vfs.link(fs.ino("outside"), tree, b"in");
    assert_eq!(linked.unwrap_err().errno(), libc::EXDEV);
    // Within it, and out of it.
    rename("tree/new/file", "tree/file", replace).unwrap();
    rename("tree/file", "out", replace).unwrap();
    assert_eq!(fs.vfs.project(fs.ino("out")).unwrap(), 7);
    let refused = fs.vfs.set_project(&user(1, 1), tree, 0).unwrap_err();
    assert_eq!(refused.errno(), libc::EPERM);
    check_counts(&fs);
    drop(fs.remount());
}

#[test]
fn statfs_tells_the_quota_of_a_tree() {
    let fs = fixture();
    let tree = fs.mkdir("tree");
    let of = owner(OwnerKind::Project, 7);
    fs.vfs.set_project(&fs.root, tree, 7).unwrap();
    let whole = fs.vfs.statfs().unwrap();
    assert_eq!(fs.vfs.statfs_at(tree).unwrap(), whole);
    let limits = NewLimits {
        bytes_hard: Some(4 * MIB),
        inodes_hard: Some(10),
        ..NewLimits::default()
    };
    set(&fs, of, limits);
    fs.file("tree/a", &noise(1, 1 << 20));
    for synced in [false, true] {
        if synced {
            fs.vfs.sync().unwrap();
        }
        let space = fs.vfs.statfs_at(fs.ino("tree/a")).unwrap();
        assert_eq!((space.blocks, space.blocks_free), (1024, 768), "{synced}");
        assert_eq!((space.files, space.files_free), (10, 8));
    }
    assert_eq!(fs.vfs.statfs_at(ROOT).unwrap().blocks, whole.blocks);
}

#[test]
fn nothing_is_limited_without_quota() {
    let fs = Fixture::default();
    let quota = quotas(&fs);
    let of = owner(OwnerKind::User, ALICE);
    let now = persimmon_vfs::Timestamp::default();
    let refused = quota.set(of, &bytes_hard(1), now).unwrap_err();
    assert!(matches!(refused, persimmon_engine::Error::QuotaOff));
    let refused = fs.vfs.set_project(&fs.root, ROOT, 1).unwrap_err();
    assert_eq!(refused.errno(), libc::EOPNOTSUPP);
    fs.chmod(ROOT, 0o777);
    turn_on(&fs);
    set(&fs, of, bytes_hard(4096));
    quotas(&fs).turn_off().unwrap();
    let file = create(&fs, &user(ALICE, STAFF), ROOT, "a").unwrap();
    write(&fs, file, 0, &noise(1, 1 << 20)).unwrap();
    // The limit is there again, and so is what was written meanwhile.
    turn_on(&fs);
    let known = get(&fs, of);
    assert!(known.exceeds() && known.bytes_used() >= MIB, "{known:?}");
    write(&fs, file, MIB, &noise(1, 100)).unwrap_err();
    check_counts(&fs);
}

/// Several write at once: all together not more than the limit, and what was accepted is there.
#[test]
fn several_writers_share_one_limit() {
    let fs = fixture();
    let of = owner(OwnerKind::User, ALICE);
    set(&fs, of, bytes_hard(3 * MIB));
    let files: Vec<(Ino, Handle)> = (0..4)
        .map(|n| create(&fs, &user(ALICE, STAFF), ROOT, &format!("f{n}")).unwrap())
        .collect();
    let written: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| fill(&fs, *file, 65_536)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert!((2 * MIB..=3 * MIB).contains(&written), "{written}");
    fs.vfs.sync().unwrap();
    assert!(get(&fs, of).bytes_used() <= 3 * MIB);
    check_counts(&fs);
}

/// Only the main subvolume counts: what is in a snapshot, and written to one, is nobody's.
#[test]
fn snapshots_are_not_charged() {
    let fs = fixture();
    let file = fs.file("a", &noise(1, 100_000));
    chown(&fs, file, Some(ALICE), None, Author::Privileged);
    check_counts(&fs);
    let before = get(&fs, owner(OwnerKind::User, ALICE));
    let id = fs.vfs.take_snapshot(b"s", false).unwrap();
    assert_eq!(get(&fs, owner(OwnerKind::User, ALICE)), before);
    fs.write(file.of(id), 0, &noise(2, 200_000));
    // Not what waits to be written either, which began grace times.
    assert_eq!(get(&fs, owner(OwnerKind::User, ALICE)), before);
    fs.vfs.sync().unwrap();
    assert_eq!(get(&fs, owner(OwnerKind::User, ALICE)), before);
    fs.write(file, 0, &noise(3, 50_000));
    fs.vfs.sync().unwrap();
    assert_eq!(get(&fs, owner(OwnerKind::User, ALICE)), before);
    fs.unlink("a");
    fs.vfs.sync().unwrap();
    assert_eq!(
        get(&fs, owner(OwnerKind::User, ALICE)).usage,
        Usage::default()
    );
    // Going back to it counts all anew.
    let fs = fs.remount();
    let now = persimmon_vfs::Timestamp::default();
    let snapshots = fs.vfs.volume().snapshots();
    snapshots.roll_back(id, None, now).unwrap();
    quotas(&fs).count().unwrap();
    let fs = fs.remount();
    let known = get(&fs, owner(OwnerKind::User, ALICE));
    assert!(known.usage.inodes == 1 && known.bytes_used() >= 200_000);
}

/// A clone of a compressed file of a snapshot makes shared blocks of it, which counted whole, and the main subvolume shows the same inode: its
/// owner was not charged, and was given back too much when the file went.
#[test]
fn clones_of_snapshots_leave_the_counts_as_they_are() {
    let fs = fixture();
    let other = fs.file("other", &noise(1, 300_000));
    let file = fs.file("a", b"");
    let name = b"user.persimmon.compression";
    fs.vfs
        .setxattr(&Caller::root(), file, name, b"lz4", XattrMode::Either)
        .unwrap();
    let content = b"what compresses well. ".repeat(50_000);
    fs.write(file, 0, &content);
    fs.vfs.sync().unwrap();
    assert!(fs.vfs.getattr(file).unwrap().blocks * 512 < 500_000);
    // Of some frames it has a part alone.
    fs.write(file, 7 * 4096, &noise(2, 9 * 4096));
    fs.write(file, 50 * 4096, &noise(3, 40 * 4096));
    fs.vfs.sync().unwrap();
    for ino in [other, file] {
        chown(&fs, ino, Some(ALICE), None, Author::Privileged);
    }
    let id = fs.vfs.take_snapshot(b"s", true).unwrap();
    check_counts(&fs);
    let copy = fs.file("copy", b"");
    let (from, to) = ((file.of(id), Handle::NONE, 0), (copy, Handle::NONE, 0));
    let copied = fs.vfs.copy_file_range(from, to, 1 << 20).unwrap();
    assert_eq!(copied, 1 << 20);
    check_counts(&fs);
    fs.unlink("a");
    check_counts(&fs);
    let used = get(&fs, owner(OwnerKind::User, ALICE)).bytes_used();
    assert!(used >= 300_000, "{used}");
}
