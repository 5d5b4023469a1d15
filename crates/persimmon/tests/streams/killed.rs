//! A receiver that is killed between any two things that it does.

use std::io;

use persimmon::stream::{Kind, Node, Target, Time, VolumeTarget, receive, state_of};
use persimmon::vfs::{Caller, Ino, ROOT};
use persimmon::{Filesystem, XattrMode};

use crate::history::{Random, acl, step};
use crate::tree::{compare, of_volume};
use crate::{Memory, Warnings, sent, snapshot_root};

/// A volume whose receiver has so many calls left.
struct Killed {
    target: VolumeTarget,
    left: u64,
    /// It dies when it has made so many things.
    makes: u64,
}

impl Killed {
    fn call(&mut self) -> io::Result<&mut VolumeTarget> {
        self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        Ok(&mut self.target)
    }
}

impl Target for Killed {
    type Dir = Ino;
    type File = Ino;

    fn root(&mut self) -> io::Result<Ino> {
        self.call()?.root()
    }

    fn is_privileged(&self) -> bool {
        true
    }

    fn open_dir(&mut self, at: &Ino, name: &[u8]) -> io::Result<Ino> {
        self.call()?.open_dir(at, name)
    }

    fn kind(&mut self, at: &Ino, name: &[u8]) -> io::Result<Kind> {
        self.call()?.kind(at, name)
    }

    fn list(&mut self, at: &Ino, max: usize) -> io::Result<Vec<Vec<u8>>> {
        self.call()?.list(at, max)
    }

    fn make(&mut self, at: &Ino, name: &[u8], node: Node<'_>) -> io::Result<()> {
        self.makes = self.makes.saturating_sub(1);
        let made = self.call()?.make(at, name, node);
        if self.makes == 0 {
            self.left = 0;
        }
        made
    }

    fn strip(&mut self, at: &Ino, name: &[u8]) -> io::Result<()> {
        self.call()?.strip(at, name)
    }

    fn link(&mut self, from: (&Ino, &[u8]), to: (&Ino, &[u8])) -> io::Result<()> {
        self.call()?.link(from, to)
    }

    fn rename(&mut self, from: (&Ino, &[u8]), to: (&Ino, &[u8])) -> io::Result<()> {
        self.call()?.rename(from, to)
    }

    fn unlink(&mut self, at: &Ino, name: &[u8]) -> io::Result<()> {
        self.call()?.unlink(at, name)
    }

    fn remove_dir(&mut self, at: &Ino, name: &[u8]) -> io::Result<()> {
        self.call()?.remove_dir(at, name)
    }

    fn open_file(&mut self, at: &Ino, name: &[u8]) -> io::Result<Ino> {
        self.call()?.open_file(at, name)
    }

    fn write(&mut self, file: &Ino, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.call()?.write(file, offset, bytes)
    }

    fn punch(&mut self, file: &Ino, offset: u64, len: u64) -> io::Result<()> {
        self.call()?.punch(file, offset, len)
    }

    fn set_size(&mut self, file: &Ino, size: u64) -> io::Result<()> {
        self.call()?.set_size(file, size)
    }

    fn set_owner(&mut self, at: &Ino, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        self.call()?.set_owner(at, name, uid, gid)
    }

    fn set_xattr(&mut self, at: &Ino, name: &[u8], xattr: &[u8], value: &[u8]) -> io::Result<()> {
        self.call()?.set_xattr(at, name, xattr, value)
    }

    fn remove_xattr(&mut self, at: &Ino, name: &[u8], xattr: &[u8]) -> io::Result<()> {
        self.call()?.remove_xattr(at, name, xattr)
    }

    fn set_mode(&mut self, at: &Ino, name: &[u8], mode: u32) -> io::Result<()> {
        self.call()?.set_mode(at, name, mode)
    }

    fn set_times(&mut self, at: &Ino, name: &[u8], atime: Time, mtime: Time) -> io::Result<()> {
        self.call()?.set_times(at, name, atime, mtime)
    }

    fn read_whole(&mut self, at: &Ino, name: &[u8], max: usize) -> io::Result<Option<Vec<u8>>> {
        self.call()?.read_whole(at, name, max)
    }

    fn write_whole(&mut self, at: &Ino, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.call()?.write_whole(at, name, bytes)
    }

    fn replace(&mut self, at: &Ino, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.call()?.replace(at, from, to)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.call()?.sync()
    }
}

/// Receives a stream with a receiver that is killed and started again, and volumes that crash.
fn received_killed(
    source: &Filesystem,
    mut target: Memory,
    (name, from): (&str, Option<&str>),
    random: &mut Random,
) -> Memory {
    let mut stream = sent(source, name, from, None);
    let mut kills = 1 + random.below(6);
    loop {
        let mut to = Killed {
            target: VolumeTarget::new(&target.fs),
            left: match kills {
                0 => u64::MAX,
                _ if random.one_in(3) => random.below(1000),
                _ => random.below(100),
            },
            makes: match kills {
                0 => u64::MAX,
                _ => 1 + random.below(60),
            },
        };
        let mut warnings = Warnings::default();
        let went = receive(&stream[..], &mut to, &mut warnings);
        assert_eq!(warnings.0, []);
        match went {
            Ok(_) => return target,
            Err(error) => assert_eq!(to.left, 0, "{error} ({error:?})"),
        }
        kills = kills.saturating_sub(1);
        if random.one_in(3) {
            target = target.crash();
        }
        let state = state_of(&mut VolumeTarget::new(&target.fs)).unwrap();
        stream = match state {
            // It was killed behind the end.
            Some(state) if state.is_complete && state.origin.snapshot.name == name.as_bytes() => {
                return target;
            }
            Some(state) if !state.is_complete => sent(source, name, from, state.token().as_deref()),
            _ => sent(source, name, from, None),
        };
    }
}

fn history(seed: u64) {
    let mut random = Random(seed ^ 0x5eed);
    let source = Memory::new();
    let mut target = Memory::new();
    let mut open = Vec::new();
    let mut before: Option<String> = None;
    let root = Caller::root();
    let passed_on = b"system.posix_acl_default";
    for number in 0..2 + random.below(3) {
        for _ in 0..random.below(60) {
            step(&source.fs, &mut random, &mut open);
        }
        let name = format!("s{number}");
        // What is made in the source does not get it, and what is received must not.
        let vfs = source.fs.vfs();
        vfs.setxattr(&root, ROOT, passed_on, &acl(), XattrMode::Either)
            .unwrap();
        source.fs.take_snapshot(&name, false).unwrap();
        vfs.removexattr(ROOT, passed_on).unwrap();
        let due = of_volume(&source.fs, snapshot_root(&source.fs, &name));
        let pair = (name.as_str(), before.as_deref());
        target = received_killed(&source.fs, target, pair, &mut random);
        let what = format!("seed {seed}, snapshot {number}");
        compare(&due, &of_volume(&target.fs, ROOT), &what);
        before = Some(name);
    }
    source.fs.abandon();
    target.fs.abandon();
}

/// `HISTORIES` and `FIRST` as for histories.
#[test]
fn a_receiver_may_be_killed_at_any_time() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("FIRST").unwrap_or(0);
    let count: u64 = number("HISTORIES").unwrap_or(100);
    (first..first + count).for_each(history);
}
