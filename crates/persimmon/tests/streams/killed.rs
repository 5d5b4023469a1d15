//! A receiver that is killed between any two things that it does.

use std::io;

use persimmon::stream::{Directory, Kind, Node, Target, Time, VolumeTarget, receive, state_of};
use persimmon::vfs::{Caller, ROOT};
use persimmon::{Filesystem, XattrMode};

use crate::history::{Random, acl, step};
use crate::tree::{compare, of_directory, of_volume};
use crate::{Memory, Warnings, sent, snapshot_root};

/// A target that fails after some calls, as if its receiver were killed.
struct Killed<T> {
    target: T,
    left: u64,
    /// The number of creations after which it fails.
    makes: u64,
}

impl<T: Target> Killed<T> {
    fn call(&mut self) -> io::Result<&mut T> {
        self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        Ok(&mut self.target)
    }
}

impl<T: Target> Target for Killed<T> {
    type Dir = T::Dir;
    type File = T::File;

    fn root(&mut self) -> io::Result<T::Dir> {
        self.call()?.root()
    }

    fn is_privileged(&self) -> bool {
        self.target.is_privileged()
    }

    fn open_dir(&mut self, at: &T::Dir, name: &[u8]) -> io::Result<T::Dir> {
        self.call()?.open_dir(at, name)
    }

    fn kind(&mut self, at: &T::Dir, name: &[u8]) -> io::Result<Kind> {
        self.call()?.kind(at, name)
    }

    fn list(&mut self, at: &T::Dir, max: usize) -> io::Result<Vec<Vec<u8>>> {
        self.call()?.list(at, max)
    }

    fn make(&mut self, at: &T::Dir, name: &[u8], node: Node<'_>) -> io::Result<()> {
        self.makes = self.makes.saturating_sub(1);
        let made = self.call()?.make(at, name, node);
        if self.makes == 0 {
            self.left = 0;
        }
        made
    }

    fn strip(&mut self, at: &T::Dir, name: &[u8]) -> io::Result<()> {
        self.call()?.strip(at, name)
    }

    fn link(&mut self, from: (&T::Dir, &[u8]), to: (&T::Dir, &[u8])) -> io::Result<()> {
        self.call()?.link(from, to)
    }

    fn rename(&mut self, from: (&T::Dir, &[u8]), to: (&T::Dir, &[u8])) -> io::Result<()> {
        self.call()?.rename(from, to)
    }

    fn unlink(&mut self, at: &T::Dir, name: &[u8]) -> io::Result<()> {
        self.call()?.unlink(at, name)
    }

    fn remove_dir(&mut self, at: &T::Dir, name: &[u8]) -> io::Result<()> {
        self.call()?.remove_dir(at, name)
    }

    fn open_file(&mut self, at: &T::Dir, name: &[u8]) -> io::Result<T::File> {
        self.call()?.open_file(at, name)
    }

    fn write(&mut self, file: &T::File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.call()?.write(file, offset, bytes)
    }

    fn punch(&mut self, file: &T::File, offset: u64, len: u64) -> io::Result<()> {
        self.call()?.punch(file, offset, len)
    }

    fn set_size(&mut self, file: &T::File, size: u64) -> io::Result<()> {
        self.call()?.set_size(file, size)
    }

    fn set_owner(&mut self, at: &T::Dir, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        self.call()?.set_owner(at, name, uid, gid)
    }

    fn set_xattr(
        &mut self,
        at: &T::Dir,
        name: &[u8],
        xattr: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        self.call()?.set_xattr(at, name, xattr, value)
    }

    fn remove_xattr(&mut self, at: &T::Dir, name: &[u8], xattr: &[u8]) -> io::Result<()> {
        self.call()?.remove_xattr(at, name, xattr)
    }

    fn set_mode(&mut self, at: &T::Dir, name: &[u8], mode: u32) -> io::Result<()> {
        self.call()?.set_mode(at, name, mode)
    }

    fn set_times(&mut self, at: &T::Dir, name: &[u8], atime: Time, mtime: Time) -> io::Result<()> {
        self.call()?.set_times(at, name, atime, mtime)
    }

    fn read_whole(&mut self, at: &T::Dir, name: &[u8], max: usize) -> io::Result<Option<Vec<u8>>> {
        self.call()?.read_whole(at, name, max)
    }

    fn write_whole(&mut self, at: &T::Dir, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.call()?.write_whole(at, name, bytes)
    }

    fn replace(&mut self, at: &T::Dir, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.call()?.replace(at, from, to)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.call()?.sync()
    }
}

/// Receives a stream with a receiver that is killed and started again; a volume crashes meanwhile, too.
fn received_killed<T: Target>(
    source: &Filesystem,
    (name, from): (&str, Option<&str>),
    random: &mut Random,
    mut open: impl FnMut(bool) -> T,
) {
    let mut stream = sent(source, name, from, None);
    let mut kills = 1 + random.below(6);
    loop {
        let mut to = Killed {
            target: open(false),
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
            Ok(_) => return,
            Err(error) => assert_eq!(to.left, 0, "{error} ({error:?})"),
        }
        kills = kills.saturating_sub(1);
        stream = match state_of(&mut open(random.one_in(3))).unwrap() {
            // It was killed behind the end.
            Some(state) if state.is_complete && state.origin.snapshot.name == name.as_bytes() => {
                return;
            }
            Some(state) if !state.is_complete => sent(source, name, from, state.token().as_deref()),
            _ => sent(source, name, from, None),
        };
    }
}

fn history(seed: u64) {
    let mut random = Random(seed ^ 0x5eed);
    let source = Memory::new();
    let mut target = Some(Memory::new());
    let plain = tempfile::tempdir_in("/dev/shm").unwrap();
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
        let what = format!("seed {seed}, snapshot {number}");
        received_killed(&source.fs, pair, &mut random, |crashes| {
            if crashes {
                target = target.take().map(Memory::crash);
            }
            VolumeTarget::new(&target.as_ref().unwrap().fs)
        });
        let found = of_volume(&target.as_ref().unwrap().fs, ROOT);
        compare(&due, &found, &what);
        let open = |_| Directory::open(plain.path()).unwrap();
        received_killed(&source.fs, pair, &mut random, open);
        compare(&due, &of_directory(plain.path()), &format!("{what}, plain"));
        before = Some(name);
    }
    source.fs.abandon();
    target.unwrap().fs.abandon();
}

/// `HISTORIES` and `FIRST` as for histories.
#[test]
fn a_receiver_may_be_killed_at_any_time() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("FIRST").unwrap_or(0);
    let count: u64 = number("HISTORIES").unwrap_or(100);
    (first..first + count).for_each(history);
}
