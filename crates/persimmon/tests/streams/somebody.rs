//! Streams that come in pieces, received into a directory by somebody who is not root, with files and directories that are closed to their owner.

use std::os::unix::fs::chown;

use persimmon::stream::{Directory, ReceiveError, receive, resume_token};
use persimmon::vfs::{Entry, Handle, Ino, Listing, ROOT, SetAttr};
use persimmon::{FileKind, Filesystem};

use crate::history::{Random, step};
use crate::tree::{Tree, compare, of_directory, of_volume};
use crate::{Memory, Warnings, sent, snapshot_root};

const SOMEBODY: u32 = 65_534;

/// Does something in a thread without privileges.
#[allow(unsafe_code)]
fn as_somebody<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let run = || {
        // SAFETY: each changes what this thread alone may do, and takes no memory.
        let given_up = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 0, 0),
                libc::syscall(libc::SYS_setresgid, SOMEBODY, SOMEBODY, SOMEBODY),
                libc::syscall(libc::SYS_setresuid, SOMEBODY, SOMEBODY, SOMEBODY),
            ]
        };
        assert_eq!(given_up, [0; 3]);
        f()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// What somebody can have of a tree: they own all of it, and make no device nodes.
fn allowed(tree: Tree) -> Tree {
    let kinds = [FileKind::Directory, FileKind::Regular, FileKind::Symlink];
    let of_kind = tree
        .into_iter()
        .filter(|(_, file)| kinds.contains(&FileKind::from_mode(file.mode)));
    let mut tree: Tree = of_kind.collect();
    for file in tree.values_mut() {
        file.owner = (SOMEBODY, SOMEBODY);
        // Another owner takes setuid and setgid away.
        file.mode &= !0o6000;
        file.xattrs.retain(|name, _| name.starts_with(b"user."));
    }
    tree
}

fn set_mode(fs: &Filesystem, ino: Ino, mode: u32) {
    let set = SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    fs.vfs().setattr(ino, Handle::NONE, &set).unwrap();
}

/// Closes some of what is in a volume.
fn close_some(fs: &Filesystem, random: &mut Random) {
    let modes = [0o755, 0o700, 0o555, 0o500, 0o311, 0o400, 0o200, 0];
    let mut dirs = vec![ROOT];
    while let Some(dir) = dirs.pop() {
        let mut found = Vec::new();
        let mut each = |entry: &Entry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                found.push((entry.ino, entry.kind));
            }
            Listing::More
        };
        fs.vfs().readdir(dir, Handle::NONE, 0, &mut each).unwrap();
        for (ino, kind) in found {
            if kind == FileKind::Directory {
                dirs.push(ino);
            }
            if kind != FileKind::Symlink && random.one_in(3) {
                set_mode(fs, ino, random.pick(&modes).unwrap());
            }
        }
    }
    // Who receives there has to get in.
    set_mode(fs, ROOT, 0o755);
}

fn history(seed: u64) {
    let mut random = Random(seed ^ 0xabcd);
    let source = Memory::new();
    let plain = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = plain.path();
    chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let (mut open, mut before) = (Vec::new(), None::<String>);
    for number in 0..2 + random.below(4) {
        for _ in 0..random.below(60) {
            step(&source.fs, &mut random, &mut open);
        }
        close_some(&source.fs, &mut random);
        let name = format!("s{number}");
        source.fs.take_snapshot(&name, false).unwrap();
        let what = format!("seed {seed}, snapshot {number}");
        let mut stream = sent(&source.fs, &name, before.as_deref(), None);
        for cuts in (0..=random.below(6)).rev() {
            let end = match cuts {
                0 => stream.len(),
                _ => random.below(stream.len() as u64) as usize,
            };
            let went = as_somebody(|| {
                let mut target = Directory::open(path).unwrap();
                receive(&stream[..end], &mut target, &mut Warnings::default())
            });
            match went {
                Ok(_) => assert_eq!(cuts, 0, "{what}"),
                Err(ReceiveError::Cut | ReceiveError::NoHeader) if cuts > 0 => {}
                Err(error) => panic!("{what}: {error} ({error:?})"),
            }
            let token = as_somebody(|| resume_token(&mut Directory::open(path).unwrap()));
            if let Ok(token) = token {
                stream = sent(&source.fs, &name, before.as_deref(), Some(&token));
            }
        }
        let due = of_volume(&source.fs, snapshot_root(&source.fs, &name));
        compare(&allowed(due), &allowed(of_directory(path)), &what);
        before = Some(name);
    }
    source.fs.abandon();
}

/// `HISTORIES` and `FIRST` as for histories.
#[test]
fn somebody_receives_what_is_closed_to_its_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root becomes somebody else, and reads what is closed");
        return;
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("FIRST").unwrap_or(0);
    let count: u64 = number("HISTORIES").unwrap_or(100);
    (first..first + count).for_each(history);
}
