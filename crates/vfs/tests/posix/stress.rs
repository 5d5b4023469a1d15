//! Many threads, little memory, background work all the while: what each thread did to its own
//! directory is there, and the check finds nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_engine::Task;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Error, Ino, Options, ROOT, RenameMode, WriteFlags, XattrMode};

use crate::fixture::{Fixture, READ_WRITE};

const THREADS: u64 = 4;
const OPERATIONS: u64 = 1500;

/// A small generator of its own (xorshift), so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A file made without a name got one, which another thread removed at once: before the first had noted that it has one. Then it
/// was never freed: inode and space came back with the next mount.
#[test]
fn a_name_given_to_a_nameless_file_and_taken_at_once_leaves_nothing() {
    const ROUNDS: u64 = 20_000;
    let fs = Fixture::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = fs.vfs.unlink(ROOT, b"x");
            }
        });
        for _ in 0..ROUNDS {
            let (attr, handle) = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, READ_WRITE).unwrap();
            let _ = fs.vfs.link(attr.ino, ROOT, b"x");
            fs.vfs.release(attr.ino, handle).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let _ = fs.vfs.unlink(ROOT, b"x");
    assert_eq!(fs.vfs.volume().orphans().unwrap(), []);
    assert_eq!(fs.vfs.volume().space().inodes, 1);
}

/// What a thread knows of the files in its directory.
type Files = BTreeMap<String, Vec<u8>>;

fn work(fs: &Fixture, thread: u64) -> Files {
    let mut random = Random(thread + 0x9e37_79b9);
    let dir = fs.ino(&format!("t{thread}"));
    let mut files = Files::new();
    for _ in 0..OPERATIONS {
        let name = format!("f{}", random.below(30));
        step(fs, dir, &name, &mut files, &mut random);
        // A directory that all share: nobody knows what is there, but nothing may break.
        let shared = format!("s{}", random.below(5));
        disturb(fs, &shared, &mut random);
    }
    files
}

fn step(fs: &Fixture, dir: Ino, name: &str, files: &mut Files, random: &mut Random) {
    let bytes = name.as_bytes();
    match random.below(10) {
        0..=4 => {
            let (attr, handle) = fs
                .vfs
                .create(&fs.root, dir, bytes, 0o644, READ_WRITE)
                .unwrap();
            let content = files.entry(name.to_owned()).or_default();
            assert_eq!(attr.size, content.len() as u64);
            let offset = random.below(content.len() as u64 + 5000) as usize;
            let data = vec![random.below(256) as u8; random.below(20_000) as usize];
            fs.vfs
                .write(
                    attr.ino,
                    handle,
                    offset as u64,
                    &data,
                    WriteFlags::default(),
                )
                .unwrap();
            if !data.is_empty() {
                content.resize(content.len().max(offset + data.len()), 0);
                content[offset..offset + data.len()].copy_from_slice(&data);
            }
            if random.below(20) == 0 {
                fs.vfs.fsync(attr.ino, handle).unwrap();
            }
            fs.vfs.release(attr.ino, handle).unwrap();
        }
        5 => {
            let removed = fs.vfs.unlink(dir, bytes);
            assert_eq!(removed.is_ok(), files.remove(name).is_some());
        }
        6 => {
            let to = format!("f{}", random.below(30));
            let renamed = fs
                .vfs
                .rename(dir, bytes, dir, to.as_bytes(), RenameMode::Replace);
            match files.remove(name) {
                Some(content) => {
                    renamed.unwrap();
                    files.insert(to, content);
                }
                None => assert!(matches!(renamed, Err(Error::NotFound))),
            }
        }
        7 => {
            if let Some(content) = files.get_mut(name) {
                let ino = fs.vfs.lookup(dir, bytes).unwrap().ino;
                let size = random.below(content.len() as u64 + 3000);
                fs.truncate(ino, size);
                content.resize(size as usize, 0);
            }
        }
        _ => {
            let found = fs.vfs.lookup(dir, bytes);
            assert_eq!(found.is_ok(), files.contains_key(name), "{name}");
            if let (Ok(found), Some(content)) = (found, files.get(name)) {
                assert!(fs.content(found.ino) == *content, "{name}");
            }
        }
    }
}

fn disturb(fs: &Fixture, name: &str, random: &mut Random) {
    let expected = |error: &Error| {
        use Error::{Exists, NotFound, Stale};
        assert!(matches!(error, Exists | NotFound | Stale), "{error}");
    };
    let name = name.as_bytes();
    let dir = fs.ino("shared");
    match random.below(5) {
        0 => {
            let made = fs.vfs.create(&fs.root, dir, name, 0o644, READ_WRITE);
            let (attr, handle) = made.unwrap();
            fs.write(attr.ino, 0, &[1; 9000]);
            fs.vfs.release(attr.ino, handle).unwrap();
        }
        1 => drop(fs.vfs.unlink(dir, name).inspect_err(expected)),
        2 => {
            let other = format!("s{}", random.below(5));
            let mode = RenameMode::Replace;
            let done = fs.vfs.rename(dir, name, dir, other.as_bytes(), mode);
            drop(done.inspect_err(expected));
        }
        3 => {
            let set = |ino| {
                fs.vfs
                    .setxattr(&fs.root, ino, b"user.a", b"v", XattrMode::Either)
            };
            let found = fs.vfs.lookup(dir, name).and_then(|attr| set(attr.ino));
            drop(found.inspect_err(expected));
        }
        _ => {
            let linked = fs
                .vfs
                .lookup(dir, name)
                .and_then(|attr| fs.vfs.link(attr.ino, dir, b"linked"));
            drop(linked.inspect_err(expected));
            drop(fs.vfs.unlink(dir, b"linked").inspect_err(expected));
        }
    }
}

fn verify(fs: &Fixture, all: &[Files]) {
    for (thread, files) in all.iter().enumerate() {
        let dir = format!("t{thread}");
        let names: Vec<_> = files.keys().cloned().collect();
        assert_eq!(fs.names(&dir), names);
        for (name, content) in files {
            let ino = fs.ino(&format!("{dir}/{name}"));
            assert!(fs.content(ino) == *content, "{dir}/{name}");
        }
    }
}

#[test]
fn threads_with_little_memory_and_work_in_the_background() {
    let device = SimDevice::new(SimConfig::new(48, 512).reordering(7).fast());
    let engine = persimmon_engine::Options {
        cache_bytes_max: 256 << 10,
        staging_bytes_max: 1 << 20,
        dirty_pages_max: 128,
        ..persimmon_engine::Options::default()
    };
    let fs = Fixture::with_engine(Arc::new(device), engine, Options::default());
    for thread in 0..THREADS {
        fs.mkdir(&format!("t{thread}"));
    }
    fs.mkdir("shared");
    let done = AtomicBool::new(false);
    let all: Vec<Files> = std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for task in [
                    Task::WriteBack,
                    Task::CheckpointIfDue,
                    Task::Clean,
                    Task::Reset,
                    Task::Commit,
                ] {
                    fs.vfs.volume().step(task).unwrap();
                }
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || work(fs, thread))
            })
            .collect();
        let all = threads.into_iter().map(|t| t.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        background.join().unwrap();
        all
    });
    verify(&fs, &all);
    let fs = fs.remount();
    verify(&fs, &all);
    let root = fs.vfs.getattr(ROOT).unwrap();
    assert_eq!(u64::from(root.nlink), 2 + THREADS + 1);
}
