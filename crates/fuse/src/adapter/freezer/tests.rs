use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Ino, ROOT};

use super::*;
use crate::adapter::Adapter;
use crate::adapter::tests::kernel::{Kernel, Told};
use crate::adapter::tests::{Nothing, open, words, words_of};
use crate::options::MountOptions;

const PATIENCE: Duration = Duration::from_secs(30);

struct Mount {
    adapter: Arc<Adapter>,
    door: Door,
    sender: Sender<(u64, Result<Vec<u8>, Errno>)>,
    answers: Receiver<(u64, Result<Vec<u8>, Errno>)>,
}

impl Mount {
    fn new() -> Mount {
        let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
        Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
        let door = open(&device);
        let (events, _) = sync_channel(1);
        let options = MountOptions::default();
        let adapter = Adapter::new(door.clone(), Arc::new(Nothing), &options, events).unwrap();
        let (sender, answers) = channel();
        Mount {
            adapter: adapter.shared(),
            door,
            sender,
            answers,
        }
    }

    fn kernel(&self, unique: u64) -> Kernel {
        let sender = self.sender.clone();
        Kernel::telling(move |told| {
            if let Told::Answer(result) = told {
                // At the end nobody listens.
                let _ = sender.send((unique, result));
            }
        })
    }

    fn ask(&self, asked: Asked) -> Result<Answer, Outcome> {
        self.adapter.freezer.ask(asked, &self.kernel(0))
    }

    fn freeze(&self, time: Duration) {
        assert!(matches!(self.ask(Asked::Freeze(time)), Err(Outcome::Later)));
        let (request, answer) = self.answers.recv_timeout(PATIENCE).unwrap();
        assert_eq!(request, 0);
        answer.unwrap();
        assert!(self.door.vfs.is_frozen());
    }

    fn send(&self, unique: u64, operation: u32, fixed: &[u8], sent: &[u8]) -> Outcome {
        let request = (operation, unique, ROOT);
        self.send_by(&self.kernel(unique), request, fixed, sent)
    }

    fn send_by(
        &self,
        kernel: &Kernel,
        (operation, unique, node): (u32, u64, Ino),
        fixed: &[u8],
        sent: &[u8],
    ) -> Outcome {
        let header = Header {
            opcode: operation,
            unique,
            node: node.0,
            uid: 0,
            gid: 0,
            pid: 1,
        };
        let mut body = sent.to_vec();
        body.resize(sent.len() + 4096, 0);
        let mut call = Call::new(header, fixed, &mut body, sent.len());
        self.adapter.serve(&mut call, kernel)
    }

    fn mkdir(&self, unique: u64) -> Outcome {
        let name = format!("d{unique}\0");
        self.send(unique, opcode::MKDIR, &[0; 8], name.as_bytes())
    }
}

#[test]
fn changes_wait_in_their_order_and_reading_does_not() {
    let mount = Mount::new();
    mount.freeze(PATIENCE);
    for unique in 1..=20 {
        assert!(matches!(mount.mkdir(unique), Outcome::Later));
    }
    let looked = mount.send(100, opcode::LOOKUP, &[], b"d1\0");
    assert!(matches!(looked, Outcome::Now(_)));
    assert!(mount.answers.try_recv().is_err());
    assert!(mount.door.vfs.lookup(ROOT, b"d1").is_err());
    assert!(matches!(
        mount.ask(Asked::Freeze(PATIENCE)),
        Err(Outcome::Now(Err(Errno(libc::EBUSY))))
    ));
    assert_eq!(
        mount.ask(Asked::Thaw(9)).ok(),
        Some(Answer::NotFrozen(Ended::Asked))
    );
    assert!(matches!(mount.ask(Asked::Thaw(1)), Ok(Answer::Thawed(_))));
    for unique in 1..=20 {
        let (request, answer) = mount.answers.recv_timeout(PATIENCE).unwrap();
        assert_eq!(request, unique);
        answer.unwrap();
    }
    mount.door.vfs.lookup(ROOT, b"d20").unwrap();
    assert!(matches!(mount.mkdir(21), Outcome::Now(Ok(_))));
}

#[test]
fn it_ends_in_time_unless_it_is_prolonged() {
    let mount = Mount::new();
    mount.freeze(Duration::from_millis(200));
    assert!(matches!(mount.mkdir(1), Outcome::Later));
    let prolonged = mount.ask(Asked::Prolong(1, Duration::from_millis(600)));
    assert_eq!(prolonged.ok(), Some(Answer::Frozen(1)));
    let begun = Instant::now();
    let (request, answer) = mount.answers.recv_timeout(PATIENCE).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(request, 1);
    answer.unwrap();
    for asked in [Asked::Thaw(0), Asked::Prolong(1, PATIENCE)] {
        let ended = mount.ask(asked).ok();
        assert_eq!(ended, Some(Answer::NotFrozen(Ended::Time)));
    }
}

/// A kernel that has sent so many that it has no place for others, the request to thaw among them.
#[test]
fn it_ends_when_too_many_wait() {
    let mount = Mount::new();
    mount.freeze(PATIENCE);
    // A write from the cache: handle, offset, size, flags, and so on.
    let mut fixed = [0; 40];
    fixed[20] = 1;
    for unique in 0..PARKED_CACHE_WRITES_MAX as u64 {
        let written = mount.send(unique, opcode::WRITE, &fixed, &[]);
        assert!(matches!(written, Outcome::Later));
    }
    assert!(matches!(
        mount.send(99, opcode::WRITE, &fixed, &[]),
        Outcome::Now(_)
    ));
    for _ in 0..PARKED_CACHE_WRITES_MAX {
        let (_, _answer) = mount.answers.recv_timeout(PATIENCE).unwrap();
    }
    let ended = mount.ask(Asked::Thaw(0)).ok();
    assert_eq!(ended, Some(Answer::NotFrozen(Ended::Crowded)));
    assert!(!mount.door.vfs.is_frozen());
}

/// A sync of what waits for the thaw held up the thread that serves the kernel, where syncs are quick: nobody could thaw.
#[test]
fn a_sync_that_has_to_wait_holds_up_nobody_else() {
    let mount = Mount::new();
    let made = |name: &[u8]| {
        let root = persimmon_vfs::Caller::root();
        mount.door.vfs.mkdir(&root, ROOT, name, 0o755).unwrap();
    };
    let sync = |unique| {
        let sent = mount.send(unique, opcode::FSYNCDIR, &[0; 16], b"");
        assert!(matches!(sent, Outcome::Later));
        while mount.adapter.serve_waiting() {}
    };
    made(b"before");
    for unique in 1..40 {
        sync(unique);
        mount.answers.recv_timeout(PATIENCE).unwrap().1.unwrap();
    }
    mount.freeze(PATIENCE);
    // By a command, which is not held up.
    made(b"meanwhile");
    sync(50);
    assert!(matches!(mount.ask(Asked::Thaw(1)), Ok(Answer::Thawed(_))));
    let (request, answer) = mount.answers.recv_timeout(PATIENCE).unwrap();
    assert_eq!(request, 50);
    answer.unwrap();
}

/// A rename that waited for pages on a thread of its own was not counted: the mount froze, and the rename was done, and answered, in the frozen
/// mount. A freeze that waits for it must take the pages that it waits for.
#[test]
fn a_rename_that_waits_for_pages_is_under_way() {
    let mount = Mount::new();
    let made = |name: &[u8]| {
        let root = persimmon_vfs::Caller::root();
        let mode = libc::S_IFREG | 0o644;
        mount
            .door
            .vfs
            .mknod(&root, ROOT, name, mode, 0)
            .unwrap()
            .ino
    };
    let [new, old] = [&b"new"[..], b"old"].map(made);
    let opened = words(&[libc::O_RDWR as u32, 0]);
    let opened = mount.send_by(&mount.kernel(1), (opcode::OPEN, 1, new), &opened, b"");
    assert!(matches!(opened, Outcome::Now(Ok(_))));
    let (asks, asked) = channel();
    let (writes, written) = channel::<()>();
    let (answers, answered) = channel();
    let written = Mutex::new(written);
    let kernel = Kernel::telling(move |told| match told {
        Told::Answer(answer) => answers.send(answer).unwrap(),
        Told::WriteBack(node) => {
            asks.send(node).unwrap();
            written.lock().recv_timeout(PATIENCE).unwrap();
        }
    });
    let rename = (opcode::RENAME, 2, ROOT);
    let sent = mount.send_by(&kernel, rename, &words_of(&[ROOT.0]), b"new\0old\0");
    assert!(matches!(sent, Outcome::Later));
    assert_eq!(asked.recv_timeout(PATIENCE), Ok(new.0));
    let freeze = mount.ask(Asked::Freeze(PATIENCE));
    assert!(matches!(freeze, Err(Outcome::Later)));
    while !mount.adapter.freezer.parks.load(Ordering::SeqCst) {
        thread::sleep(LOOK);
    }
    // Another one waits for the thaw.
    let sent = mount.send(3, opcode::RENAME, &words_of(&[ROOT.0]), b"none\0other\0");
    assert!(matches!(sent, Outcome::Later));
    // The pages come, from the cache.
    // Handle, offset, size, flags, and so on.
    let page = words(&[0, 0, 0, 0, 4, 1, 0, 0, 0, 0]);
    let sent = mount.send_by(&mount.kernel(4), (opcode::WRITE, 4, new), &page, b"page");
    assert!(matches!(sent, Outcome::Now(Ok(_))));
    thread::sleep(Duration::from_millis(200));
    assert!(!mount.door.vfs.is_frozen(), "the rename is under way");
    assert!(mount.answers.try_recv().is_err());
    writes.send(()).unwrap();
    let (request, answer) = mount.answers.recv_timeout(PATIENCE).unwrap();
    assert_eq!(request, 0);
    answer.unwrap();
    assert!(mount.door.vfs.is_frozen());
    answered.try_recv().unwrap().unwrap();
    assert_eq!(mount.door.vfs.lookup(ROOT, b"old").unwrap().ino, new);
    assert_ne!(new, old);
    // From now on all changes wait.
    let sent = mount.send_by(&mount.kernel(5), (opcode::WRITE, 5, new), &page, b"page");
    assert!(matches!(sent, Outcome::Later));
    assert!(matches!(mount.ask(Asked::Thaw(1)), Ok(Answer::Thawed(_))));
    for due in [3, 5] {
        let (request, _) = mount.answers.recv_timeout(PATIENCE).unwrap();
        assert_eq!(request, due);
    }
}
