use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bytemuck::bytes_of;
use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, OpenFlags, ROOT};

use super::*;
use crate::adapter::tests::kernel::{Kernel, Told};
use crate::adapter::tests::open;
use crate::protocol::Header;

/// Nobody waits so long but for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which request was answered, and by whom.
type Answered = (u64, ThreadId, Result<Vec<u8>, Errno>);

struct Mount {
    door: Door,
    fsyncs: Fsyncs,
    sender: Sender<Answered>,
    answers: Receiver<Answered>,
}

fn mount() -> Mount {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let door = open(&device);
    let fsyncs = Fsyncs::start(door.clone()).unwrap();
    let (sender, answers) = channel();
    Mount {
        door,
        fsyncs,
        sender,
        answers,
    }
}

impl Mount {
    fn file(&self, name: &str) -> (Ino, Handle) {
        let caller = Caller::default();
        let flags = OpenFlags {
            read: true,
            write: true,
            ..OpenFlags::default()
        };
        let vfs = &self.door.vfs;
        let made = vfs.create(&caller, ROOT, name.as_bytes(), 0o644, flags);
        let (attr, handle) = made.unwrap();
        (attr.ino, handle)
    }

    fn write(&self, (ino, handle): (Ino, Handle)) {
        let vfs = &self.door.vfs;
        let written = vfs.write(ino, handle, 0, &[7; 5000], Default::default());
        written.unwrap();
    }

    fn ask(&self, unique: u64, opcode: u32, (ino, handle): (Ino, Handle)) {
        let mut header = [0; 40];
        header[4..8].copy_from_slice(bytes_of(&opcode));
        header[16..24].copy_from_slice(bytes_of(&ino.0));
        let header = Header::parse(&header).unwrap();
        let fixed = bytemuck::cast::<[u64; 2], [u8; 16]>([handle.0, 0]);
        let call = Call::new(header, &fixed, &mut [], 0);
        let sender = self.sender.clone();
        let kernel = Kernel::telling(move |told| {
            if let Told::Answer(result) = told {
                let told = (unique, thread::current().id(), result);
                sender.send(told).unwrap();
            }
        });
        self.fsyncs.ask(&call, &kernel).unwrap();
    }

    /// Who answered what, in the order of requests.
    fn answers(&self, count: usize) -> Vec<Answered> {
        let next = |_| self.answers.recv_timeout(PATIENCE).unwrap();
        let mut answers: Vec<Answered> = (0..count).map(next).collect();
        answers.sort_by_key(|(unique, ..)| *unique);
        answers
    }
}

#[test]
fn all_who_wait_share_one_sync_and_get_their_own_answers() {
    let mount = mount();
    let files: Vec<_> = (0..16).map(|n| mount.file(&format!("f{n}"))).collect();
    files.iter().for_each(|file| mount.write(*file));
    for (unique, file) in (0..).zip(&files) {
        mount.ask(unique, opcode::FSYNC, *file);
    }
    // A handle that is none, a file twice, a directory.
    mount.ask(16, opcode::FSYNC, (files[0].0, Handle(u64::MAX)));
    mount.ask(17, opcode::FSYNC, files[0]);
    mount.ask(18, opcode::FSYNCDIR, (ROOT, Handle::NONE));
    let written = || mount.door.vfs.volume().statistics().journal_bytes;
    let before = written();
    while mount.fsyncs.serve() {}
    for (unique, _, result) in mount.answers(19) {
        let expected = match unique {
            16 => Err(Errno(libc::EBADF)),
            _ => Ok(Vec::new()),
        };
        assert_eq!(result, expected, "request {unique}");
    }
    // Each sync by itself would take a block of the log.
    let blocks = (written() - before) / 4096;
    assert!(blocks <= 8, "{blocks} blocks of log for one sync");
}

#[test]
fn the_thread_that_serves_waits_for_a_fast_device_only() {
    let mount = mount();
    let file = mount.file("f");
    let own = thread::current().id();
    let sync = |took: u64| {
        mount.fsyncs.shared.took.store(took, Ordering::Relaxed);
        mount.write(file);
        mount.ask(0, opcode::FSYNC, file);
        while mount.fsyncs.serve() {}
        let answers = mount.answers(1);
        assert_eq!(answers[0].2, Ok(Vec::new()));
        answers[0].1
    };
    assert_ne!(sync(COUNTED_MAX), own);
    assert_eq!(sync(FAST_MAX - 1), own);
    assert_ne!(sync(FAST_MAX), own);
}

/// One that comes while another thread syncs is not taken by a second, and not forgotten by the first.
#[test]
fn who_comes_during_a_sync_is_in_the_next() {
    let mount = mount();
    let file = mount.file("f");
    mount.fsyncs.shared.took.store(0, Ordering::Relaxed);
    mount.fsyncs.shared.waiting.lock().is_served = true;
    mount.ask(0, opcode::FSYNC, file);
    assert!(!mount.fsyncs.serve());
    assert!(mount.answers.try_recv().is_err());
    mount.fsyncs.shared.waiting.lock().is_served = false;
    while mount.fsyncs.serve() {}
    assert_eq!(mount.answers(1)[0].2, Ok(Vec::new()));
}
