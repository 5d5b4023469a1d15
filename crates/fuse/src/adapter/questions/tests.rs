//! Who asks the daemon, and who waits for the answer. A user without rights who read `system.persimmon.sync` in a loop had the
//! volume written and flushed again and again by the threads that serve the kernel: everybody else's requests waited.
//! `system.persimmon.zones.N` copied the states of all zones there, once for each 256 of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use std::thread::{self, ThreadId};

use persimmon_sync::Mutex;

use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::Ino;

use super::WAITING_MAX;
use crate::adapter::Adapter;
use crate::adapter::tests::kernel::{Kernel, Told};
use crate::adapter::tests::open;
use crate::live::{Answered, Asked, Live, PREFIX};
use crate::options::MountOptions;
use crate::protocol::{Call, Errno, Header, opcode};
use crate::transport::{Outcome, Serve, Transport};

const STRANGER: u32 = 54_321;

/// Answers once it is let go on, and counts what it did.
struct Slow {
    served_by: ThreadId,
    begun: AtomicUsize,
    go_on: Mutex<Receiver<()>>,
}

impl Slow {
    fn work(&self) -> Vec<u8> {
        assert_ne!(thread::current().id(), self.served_by);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let go_on = self.go_on.lock();
        // Whoever has let go of the other end lets everything go on.
        let _ = go_on.recv();
        vec![7; 10]
    }
}

impl Live for Slow {
    fn answer(&self, _of: Ino, question: &str) -> persimmon_vfs::Result<Vec<u8>> {
        let is_known = question == "info";
        is_known
            .then(|| self.work())
            .ok_or(persimmon_vfs::Error::NoAttribute)
    }

    fn sync(&self) -> Vec<u8> {
        self.work()
    }

    fn control(&self, _command: &[u8], _asked: Asked) -> Result<Answered, String> {
        Err("no".into())
    }
}

fn written_back(node: u64) -> Vec<u8> {
    format!("{node} written back").into_bytes()
}

struct Mount {
    adapter: Adapter,
    live: Arc<Slow>,
    go_on: SyncSender<()>,
    kernel: Kernel,
    answers: Receiver<Result<Vec<u8>, Errno>>,
}

fn mount() -> Mount {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let (go_on, waits) = sync_channel(0);
    let live = Arc::new(Slow {
        served_by: thread::current().id(),
        begun: AtomicUsize::new(0),
        go_on: Mutex::new(waits),
    });
    let (sender, answers) = channel();
    let (events, _) = sync_channel(1);
    let options = MountOptions::default();
    Mount {
        adapter: Adapter::new(open(&device), Arc::clone(&live) as _, &options, events).unwrap(),
        live,
        go_on,
        // What is to be written back is told among the answers, in the order in which it happens.
        kernel: Kernel::telling(move |told| {
            let told = match told {
                Told::Answer(result) => result,
                Told::WriteBack(node) => Ok(written_back(node)),
            };
            sender.send(told).unwrap();
        }),
        answers,
    }
}

impl Mount {
    fn ask(&self, uid: u32, question: &str, size: u32) -> Outcome {
        self.ask_through(&self.kernel, uid, question, size)
    }

    fn syncfs(&self, transport: &dyn Transport) -> Outcome {
        let header = Header {
            opcode: opcode::SYNCFS,
            unique: 1,
            node: 1,
            uid: 0,
            gid: 0,
            pid: 1,
        };
        let mut body = vec![0; 4096];
        let mut call = Call::new(header, &[0; 8], &mut body, 0);
        self.adapter.serve(&mut call, transport)
    }

    fn ask_through(
        &self,
        transport: &dyn Transport,
        uid: u32,
        question: &str,
        size: u32,
    ) -> Outcome {
        let header = Header {
            opcode: opcode::GETXATTR,
            unique: 1,
            node: 1,
            uid,
            gid: uid,
            pid: 1,
        };
        let fixed: Vec<u8> = bytemuck::cast_slice(&[size, 0]).to_vec();
        let mut body = format!("{PREFIX}{question}\0").into_bytes();
        let sent = body.len();
        body.resize(sent + 4096, 0);
        let mut call = Call::new(header, &fixed, &mut body, sent);
        self.adapter.serve(&mut call, transport)
    }
}

#[test]
fn one_sync_serves_all_who_wait_for_it_and_strangers_get_none() {
    let mount = mount();
    for _ in 0..100 {
        let asked = mount.ask(STRANGER, "sync", 100);
        assert!(matches!(asked, Outcome::Now(Err(Errno(libc::EPERM)))));
    }
    assert!(matches!(mount.ask(0, "sync", 100), Outcome::Later));
    while mount.live.begun.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    // What the one under way has not seen needs one more, and that is enough for all.
    for _ in 0..WAITING_MAX {
        assert!(matches!(mount.ask(0, "sync", 100), Outcome::Later));
    }
    assert!(matches!(mount.ask(0, "sync", 100), Outcome::Later));
    assert_eq!(mount.answers.recv().unwrap(), Err(Errno(libc::EAGAIN)));
    drop(mount.go_on);
    for _ in 0..=WAITING_MAX {
        assert_eq!(mount.answers.recv().unwrap(), Ok(vec![7; 10]));
    }
    assert_eq!(mount.live.begun.load(Ordering::SeqCst), 2);
}

/// From Linux 6.18 on the kernel writes nothing of plain FUSE before it asks, so that a sync left out what shared maps
/// had stored. And where many waited in a ring, there was no place left for that: the fifth was told that all was durable,
/// without it.
#[test]
fn what_the_kernel_holds_back_is_written_before_a_sync_or_that_is_refused() {
    let mount = mount();
    mount.adapter.pages.opened(Ino(5), libc::O_RDWR as u32);
    assert!(matches!(mount.ask(0, "sync", 100), Outcome::Later));
    assert_eq!(mount.answers.recv().unwrap(), Ok(written_back(5)));
    // It has no places left for what it writes back.
    let full = Kernel {
        has_room: false,
        ..mount.kernel.clone()
    };
    let asked = mount.ask_through(&full, 0, "sync", 100);
    assert!(matches!(asked, Outcome::Now(Err(Errno(libc::EAGAIN)))));
    drop(mount.go_on);
    assert_eq!(mount.answers.recv().unwrap(), Ok(vec![7; 10]));
    assert_eq!(mount.live.begun.load(Ordering::SeqCst), 1);
}

/// The same of sync(2) and syncfs(2).
#[test]
fn what_the_kernel_holds_back_is_written_before_a_syncfs_or_that_is_refused() {
    let mount = mount();
    mount.adapter.pages.opened(Ino(5), libc::O_RDWR as u32);
    for _ in 0..3 {
        assert!(matches!(mount.syncfs(&mount.kernel), Outcome::Later));
        assert_eq!(mount.answers.recv().unwrap(), Ok(written_back(5)));
        assert_eq!(mount.answers.recv().unwrap(), Ok(Vec::new()));
    }
    // It has no places left for what it writes back.
    let full = Kernel {
        has_room: false,
        ..mount.kernel.clone()
    };
    let asked = mount.syncfs(&full);
    assert!(matches!(asked, Outcome::Now(Err(Errno(libc::EAGAIN)))));
}

#[test]
fn questions_of_strangers_hold_up_no_thread_that_serves_the_kernel() {
    let mount = mount();
    let mut taken = 0;
    let refused = loop {
        match mount.ask(STRANGER, "info", 100) {
            Outcome::Later => taken += 1,
            other => break other,
        }
    };
    assert!(matches!(refused, Outcome::Now(Err(Errno(libc::EAGAIN)))));
    // As many as may wait, and the one that is being answered, unless that had not been taken yet.
    assert!((1024..=1025).contains(&taken), "{taken}");
    drop(mount.go_on);
    for _ in 0..taken {
        assert_eq!(mount.answers.recv().unwrap(), Ok(vec![7; 10]));
    }
}

#[test]
fn answers_have_the_length_that_was_asked_for() {
    let mount = mount();
    let go_on = mount.go_on.clone();
    let answer = |question, size| {
        assert!(matches!(mount.ask(0, question, size), Outcome::Later));
        if question != "nothing" {
            go_on.send(()).unwrap();
        }
        mount.answers.recv().unwrap()
    };
    for question in ["info", "sync"] {
        assert_eq!(answer(question, 10), Ok(vec![7; 10]));
        assert_eq!(answer(question, 9), Err(Errno(libc::ERANGE)));
        let length = answer(question, 0).unwrap();
        assert_eq!(length, [10, 0, 0, 0, 0, 0, 0, 0]);
    }
    assert_eq!(answer("nothing", 10), Err(Errno(libc::ENODATA)));
}
