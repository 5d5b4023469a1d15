//! Requests that a daemon did and did not answer, sent again to the one that comes after it.

use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Allocate, Caller, ROOT};

use super::*;
use crate::adapter::tests::kernel::{Kernel, Told};
use crate::adapter::tests::{Nothing, open, words, words_of};
use crate::options::MountOptions;
use crate::protocol::RESENT;
use crate::resume;
use crate::transport::{Outcome, Serve};

const PATIENCE: Duration = Duration::from_secs(30);

/// A volume, and what outlives a daemon.
struct Kept {
    device: Arc<SimDevice>,
    ledger: Arc<Ledger>,
}

struct Daemon {
    door: Door,
    adapter: Adapter,
}

impl Kept {
    fn new() -> Kept {
        let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
        Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
        let ledger = Ledger::new([7; 16]).unwrap();
        Kept { device, ledger }
    }

    /// Notes a write that no file takes: it is past the largest one.
    fn note_unwritable(&self, ino: Ino) {
        let written = Written {
            ino,
            offset: u64::MAX >> 1,
            data: b"lost",
            time: now(),
            kills: None,
        };
        self.ledger.written(&written).unwrap();
    }

    /// The next one. That before it has gone as one that is killed does.
    fn daemon(&self) -> Daemon {
        let mut door = open(&self.device);
        let ledger = Ledger::open(self.ledger.memory().unwrap(), [7; 16]).unwrap();
        let mut files = resume::reopen(&door.vfs, &ledger);
        let replayed = resume::replay(&door.vfs, &ledger, &mut files).unwrap();
        door.lost.begin(replayed.lost, &files);
        ledger.forget_writes();
        door.ledger = Some(ledger);
        let (events, _) = sync_channel(1);
        let options = MountOptions::default();
        let adapter = Adapter::new(door.clone(), Arc::new(Nothing), &options, events);
        let mut adapter = adapter.unwrap();
        adapter.reopened(&files);
        Daemon { door, adapter }
    }
}

impl Daemon {
    fn file(&self, name: &[u8]) -> Ino {
        let mode = libc::S_IFREG | 0o644;
        let made = self.door.vfs.mknod(&Caller::root(), ROOT, name, mode, 0);
        let ino = made.unwrap().ino;
        self.door.vfs.sync().unwrap();
        ino
    }

    fn ask(
        &self,
        (opcode, unique): (u32, u64),
        node: Ino,
        fixed: &[u8],
        sent: &[u8],
    ) -> std::result::Result<Vec<u8>, i32> {
        let header = Header {
            opcode,
            unique,
            node: node.0,
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let mut body = sent.to_vec();
        body.resize(8192, 0);
        let mut call = Call::new(header, fixed, &mut body, sent.len());
        let (sender, answers) = channel();
        let kernel = Kernel::telling(move |told| {
            if let Told::Answer(answer) = told {
                sender.send(answer).unwrap();
            }
        });
        match self.adapter.serve(&mut call, &kernel) {
            Outcome::Now(Ok(len)) => Ok(body[..len].to_vec()),
            Outcome::Now(Err(errno)) => Err(errno.0),
            Outcome::Later | Outcome::Never => {
                while self.adapter.serve_waiting() {}
                let answer = answers.recv_timeout(PATIENCE).unwrap();
                answer.map_err(|errno| errno.0)
            }
        }
    }

    fn fsync(&self, unique: u64, node: Ino, file: Handle) -> std::result::Result<(), i32> {
        let fixed = words_of(&[file.0, 0]);
        let answer = self.ask((opcode::FSYNC, unique), node, &fixed, b"");
        answer.map(drop)
    }

    fn flush(&self, unique: u64, node: Ino, file: Handle) -> std::result::Result<(), i32> {
        let fixed = words_of(&[file.0, 0, 0]);
        let answer = self.ask((opcode::FLUSH, unique), node, &fixed, b"");
        answer.map(drop)
    }

    fn sync_everything(&self, unique: u64) -> std::result::Result<(), i32> {
        let answer = self.ask((opcode::SYNCFS, unique), ROOT, &[0; 8], b"");
        answer.map(drop)
    }

    fn open(&self, unique: u64, node: Ino) -> Handle {
        let fixed = words(&[libc::O_RDWR as u32, 0]);
        let answer = self.ask((opcode::OPEN, unique), node, &fixed, b"");
        Handle(u64::from_le_bytes(answer.unwrap()[..8].try_into().unwrap()))
    }

    fn release(&self, unique: u64, node: Ino, file: Handle) -> std::result::Result<(), i32> {
        let fixed = words_of(&[file.0, 0, 0]);
        let answer = self.ask((opcode::RELEASE, unique), node, &fixed, b"");
        answer.map(drop)
    }

    fn write(&self, unique: u64, node: Ino, file: Handle, data: &[u8]) {
        self.write_at(unique, node, (file, 0), data);
    }

    fn write_at(&self, unique: u64, node: Ino, (file, offset): (Handle, u64), data: &[u8]) {
        let fixed = words_of(&[file.0, offset, data.len() as u64, 0, 0]);
        self.ask((opcode::WRITE, unique), node, &fixed, data)
            .unwrap();
    }
}

/// A daemon dies between a release and its answer, and another file has the place by then: the release that is sent again closed that one, and
/// took it from the ledger.
#[test]
fn a_release_that_is_sent_again_closes_nothing_else() {
    let kept = Kept::new();
    let daemon = kept.daemon();
    let file = daemon.file(b"file");
    let old = daemon.open(2, file);
    daemon.release(4, file, old).unwrap();
    let mut unique = 6;
    // Until one gets the place of the first.
    let new = loop {
        let new = daemon.open(unique, file);
        if new.place() == old.place() {
            break new;
        }
        daemon.release(unique + 2, file, new).unwrap();
        unique += 4;
        assert!(unique < 10_000);
    };
    assert_ne!(new, old);
    drop(daemon);
    let daemon = kept.daemon();
    assert_eq!(daemon.release(4 | RESENT, file, old), Err(libc::EBADF));
    let files = kept.ledger.files();
    let open: Vec<Handle> = files.iter().map(|file| file.handle).collect();
    assert_eq!(open, [new]);
    daemon.write(unique + 10, file, new, b"written");
    daemon.release(unique + 12, file, new).unwrap();
    assert!(kept.ledger.files().is_empty());
}

/// The count of what was opened goes on with the next daemon, though nothing is open.
#[test]
fn no_daemon_gives_a_handle_again() {
    let kept = Kept::new();
    let file = kept.daemon().file(b"file");
    let mut given = Vec::new();
    for round in 0..5 {
        let daemon = kept.daemon();
        for number in 0..100 {
            let unique = 1000 * (round + 1) + 4 * number;
            let handle = daemon.open(unique, file);
            given.push(handle);
            daemon.release(unique + 2, file, handle).unwrap();
        }
    }
    let count = given.len();
    given.sort_by_key(|handle| handle.0);
    given.dedup();
    assert_eq!(given.len(), count);
}

/// What a write is noted at was later than what the file had of it: programs that look at times took the file for changed.
#[test]
fn times_are_the_same_after_a_write_is_done_again() {
    let kept = Kept::new();
    let daemon = kept.daemon();
    let file = daemon.file(b"file");
    let handle = daemon.open(2, file);
    daemon.write(4, file, handle, b"written");
    let before = daemon.door.vfs.getattr(file).unwrap();
    assert_ne!(before.mtime.nanoseconds, 0);
    drop(daemon);
    let after = kept.daemon().door.vfs.getattr(file).unwrap();
    assert_eq!(after.size, 7);
    assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
}

/// What a file does not take when it is written again was logged, and the fsync of the program that had written it succeeded.
#[test]
fn what_cannot_be_written_again_is_told_once_by_each_open_file() {
    let kept = Kept::new();
    let daemon = kept.daemon();
    let [broken, whole] = [&b"broken"[..], b"whole"].map(|name| daemon.file(name));
    let [first, second] = [2, 4].map(|unique| daemon.open(unique, broken));
    let other = daemon.open(6, whole);
    daemon.write(8, whole, other, b"written");
    kept.note_unwritable(broken);
    drop(daemon);
    let daemon = kept.daemon();
    assert_eq!(daemon.fsync(10, whole, other), Ok(()));
    assert_eq!(daemon.flush(12, whole, other), Ok(()));
    assert_eq!(daemon.flush(14, broken, first), Err(libc::EIO));
    assert_eq!(daemon.fsync(16, broken, first), Err(libc::EIO));
    assert_eq!(daemon.fsync(18, broken, first), Ok(()));
    assert_eq!(daemon.flush(20, broken, first), Ok(()));
    let later = daemon.open(22, broken);
    assert_eq!(daemon.fsync(24, broken, later), Ok(()), "somebody knows");
    drop(daemon);
    // It dies before the other has heard of it.
    let daemon = kept.daemon();
    assert_eq!(daemon.fsync(26, broken, first), Ok(()));
    assert_eq!(daemon.fsync(28, broken, second), Err(libc::EIO));
    assert_eq!(daemon.fsync(30, broken, second), Ok(()));
    assert!(kept.ledger.files().iter().all(|file| !file.lost));
}

/// Nobody has the file open by then: whoever opens it next hears of it.
#[test]
fn what_is_lost_of_a_file_that_is_closed_is_told_to_the_next_who_opens_it() {
    let kept = Kept::new();
    let file = kept.daemon().file(b"file");
    kept.note_unwritable(file);
    let daemon = kept.daemon();
    let first = daemon.open(2, file);
    daemon.release(4, file, first).unwrap();
    let second = daemon.open(6, file);
    assert_eq!(daemon.sync_everything(8), Err(libc::EIO));
    assert_eq!(daemon.sync_everything(10), Ok(()));
    assert_eq!(daemon.fsync(12, file, second), Err(libc::EIO));
    assert_eq!(daemon.fsync(14, file, second), Ok(()));
    let third = daemon.open(16, file);
    assert_eq!(daemon.fsync(18, file, third), Ok(()));
}

/// Nothing of a file is done again that somebody has synced: the power may go meanwhile.
#[test]
fn what_is_synced_is_not_done_again() {
    let kept = Kept::new();
    let daemon = kept.daemon();
    let [synced, other] = [&b"synced"[..], b"other"].map(|name| daemon.file(name));
    let handles = [(2, synced), (4, other)].map(|(unique, file)| daemon.open(unique, file));
    daemon.write(6, synced, handles[0], b"before");
    daemon.write(8, other, handles[1], b"other");
    let fixed = words_of(&[handles[0].0, 0]);
    daemon
        .ask((opcode::FSYNC, 10), synced, &fixed, b"")
        .unwrap();
    // Another thread may have taken it.
    let is_noted = || kept.ledger.replay(&open(&kept.device).vfs).unwrap().writes == 1;
    for _ in 0..1000 {
        if is_noted() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(is_noted());
}

/// A daemon dies when blocks of a file have moved. What was written before came again, to where it had been: the file was neither what it was
/// before nor what it was after. Nor does what is written meanwhile come again.
#[test]
fn what_was_written_before_blocks_are_moved_is_not_done_again() {
    let kept = Kept::new();
    let daemon = kept.daemon();
    let file = daemon.file(b"file");
    let handle = daemon.open(2, file);
    let block = |byte: u8| [byte; 4096];
    for (at, byte) in [1, 2, 3].into_iter().enumerate() {
        daemon.write_at(
            4 + 2 * at as u64,
            file,
            (handle, 4096 * at as u64),
            &block(byte),
        );
    }
    let shifted = daemon.door.shift(file, || {
        daemon.write_at(12, file, (handle, 8192), &block(4));
        daemon.door.run("ioctl", |vfs| {
            vfs.fallocate(file, handle, 0, 4096, Allocate::Collapse)
        })?;
        daemon.write_at(14, file, (handle, 8192), &block(5));
        // It is killed.
        Err(Errno(libc::EIO))
    });
    assert_eq!(shifted, Err(Errno(libc::EIO)));
    drop(daemon);
    let daemon = kept.daemon();
    let handle = daemon.open(20, file);
    let mut found = vec![0; 4 * 4096];
    let read = daemon.door.vfs.read(file, handle, 0, &mut found).unwrap();
    let first: Vec<u8> = found[..read].chunks(4096).map(|block| block[0]).collect();
    assert_eq!(first, [2, 4, 5]);
}
