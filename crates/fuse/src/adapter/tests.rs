//! Requests as no kernel sends them: whatever is in them, each gets an answer, nothing panics, and
//! the volume stays sound.

pub(super) mod kernel;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use bytemuck::bytes_of;
use persimmon_engine::{FormatOptions, Volume};
use persimmon_inspect::CheckOptions;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Clock, Options, ROOT, Timestamp, Vfs, WriteFlags};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::kernel::Kernel;
use super::*;
use crate::live::{Answered, Asked};
use crate::protocol::{self, HEADER_LEN, fixed_len};
use crate::transport::Serve;
use crate::{control, inode_flags, lifetimes};

const REQUESTS: u32 = 20_000;
const SEEDS: u64 = 40;
/// Bytes behind the fixed part that an answer may take.
const ROOM: usize = 16 << 10;

struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

pub(super) struct Nothing;

impl Live for Nothing {
    fn answer(&self, _of: Ino, question: &str) -> persimmon_vfs::Result<Vec<u8>> {
        let is_known = question == "info";
        is_known
            .then(|| vec![7; 100])
            .ok_or(persimmon_vfs::Error::NoAttribute)
    }

    fn sync(&self) -> Vec<u8> {
        vec![8; 10]
    }

    fn control(&self, command: &[u8], _asked: Asked) -> std::result::Result<Answered, String> {
        Ok(command.to_vec().into())
    }
}

fn number(rng: &mut ChaCha8Rng) -> u64 {
    match rng.random_range(0..8) {
        0..4 => rng.random_range(0..64),
        4 => rng.random_range(0..4) * 4096 + rng.random_range(0..3),
        5 => 1 << rng.random_range(0..64),
        6 => (1u64 << rng.random_range(0..64)).wrapping_sub(1),
        _ => rng.random(),
    }
}

fn fixed(rng: &mut ChaCha8Rng, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        if rng.random() {
            bytes.extend_from_slice(bytes_of(&number(rng)))
        } else {
            bytes.extend_from_slice(bytes_of(&(number(rng) as u32)))
        }
    }
    bytes.truncate(len);
    bytes
}

fn body(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.random_range(0..3) {
        match rng.random_range(0..8) {
            0 => bytes.extend_from_slice(b"."),
            1 => bytes.extend_from_slice(if rng.random() {
                b"user.name"
            } else {
                b"user.persimmon.lifetime\0short"
            }),
            2 => bytes.extend_from_slice(b"system.posix_acl_access"),
            3 => bytes.resize(bytes.len() + rng.random_range(0..400), b'x'),
            4 => {
                let mut noise = vec![0; rng.random_range(0..5000)];
                rng.fill_bytes(&mut noise);
                bytes.extend_from_slice(&noise);
            }
            _ => bytes.push(b'a' + rng.random_range(0..6)),
        }
        if rng.random_ratio(7, 8) {
            bytes.push(0);
        }
    }
    bytes
}

fn header(rng: &mut ChaCha8Rng) -> Header {
    let mut bytes = fixed(rng, HEADER_LEN);
    let opcode: u32 = match rng.random_range(0..16) {
        0 => rng.random(),
        _ => rng.random_range(1..=opcode::STATX),
    };
    bytes[4..8].copy_from_slice(bytes_of(&opcode));
    if rng.random_ratio(3, 4) {
        let node: u64 = rng.random_range(1..40);
        bytes[16..24].copy_from_slice(bytes_of(&node));
    }
    Header::parse(&bytes).unwrap()
}

#[test]
fn requests_of_any_bytes_do_no_harm() {
    for seed in 0..SEEDS {
        requests_do_no_harm(seed);
    }
}

fn requests_do_no_harm(seed: u64) {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let (door, options) = (open(&device), MountOptions::default());
    let adapter = adapter(&door, &options);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut answered = 0;
    for number in 0..REQUESTS {
        let header = header(&mut rng);
        let len = match rng.random_range(0..16) {
            0 => rng.random_range(0..100),
            _ => fixed_len(header.opcode, true),
        };
        let mut fixed = fixed(&mut rng, len);
        if header.opcode == opcode::IOCTL
            && let Some(what) = fixed.get_mut(8..16)
        {
            let known = [
                control::COMMAND,
                lifetimes::SET,
                lifetimes::GET,
                inode_flags::SET,
                inode_flags::GET,
                inode_flags::SET_EXTENDED,
                inode_flags::GET_EXTENDED,
            ];
            what[..4].fill(0);
            what[4..].copy_from_slice(bytes_of(&known[rng.random_range(0..known.len())]));
        }
        let mut room = body(&mut rng);
        let sent = room.len();
        room.resize(sent + rng.random_range(0..ROOM), 0);
        let mut call = Call::new(header, &fixed, &mut room, sent);
        match adapter.serve(&mut call, &Kernel::deaf()) {
            Outcome::Now(Ok(len)) => {
                assert!(
                    len <= room.len(),
                    "seed {seed}, request {number}: an answer past its room"
                );
                answered += 1;
            }
            Outcome::Now(Err(errno)) => assert!(errno.0 > 0, "seed {seed}, request {number}"),
            Outcome::Later | Outcome::Never => {}
        }
        while adapter.serve_waiting() {}
        assert!(
            !door.panicked.load(Ordering::Acquire),
            "seed {seed}, request {number}, operation {}, panicked",
            header.opcode
        );
    }
    assert!(
        answered > REQUESTS / 20,
        "seed {seed}: {answered} had an answer"
    );
    drop(adapter);
    door.vfs.close().unwrap();
    let report = persimmon_inspect::check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Nobody takes the end of the mount from it.
fn adapter(door: &Door, options: &MountOptions) -> Adapter {
    let (events, _) = sync_channel(1);
    Adapter::new(door.clone(), Arc::new(Nothing), options, events).unwrap()
}

pub(super) fn open(device: &Arc<SimDevice>) -> Door {
    let opened = Volume::open(
        Arc::clone(device) as _,
        persimmon_engine::Options::default(),
    );
    let (volume, _) = opened.unwrap();
    let vfs = Vfs::new(Arc::new(volume), Arc::new(NoClock), Options::default());
    Door {
        vfs: Arc::new(vfs),
        latencies: Arc::default(),
        panicked: Arc::default(),
        ledger: None,
        lost: Arc::default(),
    }
}

pub(super) fn words(numbers: &[u32]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

pub(super) fn words_of(numbers: &[u64]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

/// What the kernel sends to set the size, by bit 3 of `which`, or the mode, by bit 0.
fn set(which: u32, size: u32, mode: u32) -> Vec<u8> {
    let mut fixed = [0; 22];
    (fixed[0], fixed[4], fixed[17]) = (which, size, mode);
    words(&fixed)
}

/// An ioctl without an open file, as the kernel sends it.
fn ioctl(command: u32, sent: u32, received: u32) -> Vec<u8> {
    words(&[0, 0, 0, command, 0, 0, sent, received])
}

/// What `chattr` and `lsattr` make the kernel send (`fuse_fileattr_get`, `fuse_fileattr_set`): the answer must have the length that it
/// gives.
#[test]
fn flags_are_shown_and_set() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let door = open(&device);
    let adapter = adapter(&door, &MountOptions::default());
    let mode = libc::S_IFREG | 0o644;
    let made = door.vfs.mknod(&Caller::root(), ROOT, b"f", mode, 0);
    let ask = |node: Ino, uid, command, sent: &[u8], received: usize| {
        let header = Header {
            opcode: opcode::IOCTL,
            unique: 1,
            node: node.0,
            uid,
            gid: 0,
            pid: 0,
        };
        let fixed = ioctl(command, sent.len() as u32, received as u32);
        let mut room = sent.to_vec();
        room.resize(1000, 0);
        let mut call = Call::new(header, &fixed, &mut room, sent.len());
        match adapter.serve(&mut call, &Kernel::deaf()) {
            Outcome::Now(Ok(len)) => {
                assert_eq!(len, 16 + received, "{command:x}");
                assert_eq!(room[..16], [0; 16]);
                Ok(room[16..len].to_vec())
            }
            Outcome::Now(Err(errno)) => Err(errno.0),
            _ => panic!("{command:x} has no answer"),
        }
    };
    for node in [ROOT, made.unwrap().ino] {
        let flags = || ask(node, 1, inode_flags::GET, b"", 4).unwrap();
        let set = |uid, bits: u32| ask(node, uid, inode_flags::SET, bytes_of(&bits), 0);
        assert_eq!(flags(), [0; 4]);
        set(0, 0x4).unwrap();
        assert_eq!(flags(), protocol::flags(0x4));
        assert_eq!(set(1, 0), Err(libc::EPERM));
        assert_eq!(set(0, 0x404), Err(libc::EINVAL));
        assert_eq!(set(0, 0xc), Err(libc::EOPNOTSUPP));
        assert_eq!(flags(), protocol::flags(0x4));
        let extended = ask(node, 1, inode_flags::GET_EXTENDED, b"", 28);
        assert_eq!(extended, Ok(vec![0; 28]));
        let set = |extended: &[u8]| ask(node, 0, inode_flags::SET_EXTENDED, extended, 0);
        assert_eq!(set(&[0; 28]), Ok(Vec::new()));
        assert_eq!(set(&[1; 28]), Err(libc::EOPNOTSUPP));
        // Flags that both ways have: append-only, immutable, left out of backups.
        let extended = |flags: u32| {
            let mut extended = [0; 28];
            extended[..4].copy_from_slice(&protocol::flags(flags));
            extended
        };
        for (bits, told) in [(0x24, 0x10), (0x14, 0x8), (0x44, 0x80), (0x4, 0)] {
            assert_eq!(set(&extended(told)), Ok(Vec::new()));
            assert_eq!(flags(), protocol::flags(bits));
            let found = ask(node, 1, inode_flags::GET_EXTENDED, b"", 28);
            assert_eq!(found, Ok(extended(told).to_vec()));
        }
        let by_another = ask(node, 1, inode_flags::SET_EXTENDED, &extended(0x8), 0);
        assert_eq!(by_another, Err(libc::EPERM));
    }
}

/// The kernel went on with the size that it knew: appended behind the end, and found zeros up to there.
#[test]
fn ranges_do_not_move_where_the_kernel_goes_by_its_own_size() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let door = open(&device);
    let mode = libc::S_IFREG | 0o644;
    let made = door.vfs.mknod(&Caller::root(), ROOT, b"f", mode, 0);
    let ino = made.unwrap().ino;
    let content = vec![7; 12_288];
    let written = |vfs: &Vfs| vfs.write(ino, Handle::NONE, 0, &content, WriteFlags::default());
    written(&door.vfs).unwrap();
    let mut message = [0; 24];
    message[8..16].copy_from_slice(&protocol::offset(4096));
    message[16..20].copy_from_slice(&protocol::flags(libc::FALLOC_FL_COLLAPSE_RANGE as u32));
    for (writeback_cache, size) in [(true, 12_288), (false, 8192)] {
        let options = MountOptions {
            writeback_cache,
            ..MountOptions::default()
        };
        let adapter = adapter(&door, &options);
        let (sender, answers) = std::sync::mpsc::channel();
        let kernel = Kernel::telling(move |told| {
            if let kernel::Told::Answer(answer) = told {
                sender.send(answer).unwrap();
            }
        });
        let header = Header {
            opcode: opcode::IOCTL,
            unique: 1,
            node: ino.0,
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let fixed = ioctl(crate::ranges::CHANGE, message.len() as u32, 0);
        let mut room = message.to_vec();
        room.resize(1000, 0);
        let mut call = Call::new(header, &fixed, &mut room, message.len());
        match adapter.serve(&mut call, &kernel) {
            Outcome::Now(answer) => {
                assert!(writeback_cache);
                assert_eq!(answer, Err(Errno(libc::EOPNOTSUPP)));
            }
            _ => drop(answers.recv().unwrap().unwrap()),
        }
        assert_eq!(door.vfs.getattr(ino).unwrap().size, size);
    }
}

/// The daemon went by the user's number: truncation by one who has `CAP_FSETID` took setuid, by root without it did not.
#[test]
fn who_may_leave_setuid_is_the_kernels_word() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let door = open(&device);
    let adapter = adapter(&door, &MountOptions::default());
    let mode = libc::S_IFREG | 0o6755;
    let made = door.vfs.mknod(&Caller::root(), ROOT, b"f", mode, 0);
    let ino = made.unwrap().ino;
    let truncating = (libc::O_WRONLY | libc::O_TRUNC) as u32;
    let chmod = || {
        let set = persimmon_vfs::SetAttr {
            mode: Some(0o6755),
            ..Default::default()
        };
        door.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    };
    for (uid, kills) in [(0, false), (0, true), (1000, false), (1000, true)] {
        let kill = |bit: u32| if kills { bit } else { 0 };
        let requests = [
            (opcode::SETATTR, set(1 << 3 | kill(1 << 11), 10, 0)),
            (opcode::OPEN, words(&[truncating, kill(1)])),
            (opcode::CREATE, words(&[truncating, 0o644, 0, kill(1)])),
            (
                opcode::WRITE,
                words(&[0, 0, 0, 0, 1, kill(1 << 2), 0, 0, 0, 0]),
            ),
        ];
        for (opcode, fixed) in requests {
            chmod();
            let is_create = opcode == opcode::CREATE;
            let header = Header {
                opcode,
                unique: 1,
                node: if is_create { ROOT } else { ino }.0,
                uid,
                gid: 1,
                pid: 0,
            };
            let mut body = b"f\0".to_vec();
            body.resize(1000, 0);
            let mut call = Call::new(header, &fixed, &mut body, 2);
            let outcome = adapter.serve(&mut call, &Kernel::deaf());
            assert!(matches!(outcome, Outcome::Now(Ok(_))), "{opcode}");
            let left = door.vfs.getattr(ino).unwrap().mode & 0o7777;
            let due = if kills { 0o755 } else { 0o6755 };
            assert_eq!(
                left, due,
                "operation {opcode} of user {uid}, kills: {kills}"
            );
        }
    }
}

/// What the kernel forgets comes late, through rings above all. A directory that had been evicted
/// was looked up again and became somebody's current one, then another process removed it; the old
/// message, read after that, freed it under the one whose current directory it was.
#[test]
fn what_is_forgotten_late_frees_nothing_that_is_in_use() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let mut door = open(&device);
    let held = Options {
        hold_until_forget: true,
        ..Options::default()
    };
    let volume = Arc::clone(door.vfs.volume());
    door.vfs = Arc::new(Vfs::new(volume, Arc::new(NoClock), held));
    let adapter = adapter(&door, &MountOptions::default());
    let made = door.vfs.mkdir(&Caller::root(), ROOT, b"d", 0o755).unwrap();
    let forget = |refers: bool| {
        let header = Header {
            opcode: opcode::FORGET,
            unique: 1,
            node: made.ino.0,
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let mut body = [0; 0];
        let mut call = Call::new(header, &[0; 8], &mut body, 0);
        let kernel = Kernel {
            refers,
            ..Kernel::deaf()
        };
        adapter.serve(&mut call, &kernel);
    };
    door.vfs.rmdir(ROOT, b"d").unwrap();
    forget(true);
    assert_eq!(door.vfs.getattr(made.ino).unwrap().nlink, 0);
    forget(false);
    assert!(door.vfs.getattr(made.ino).is_err());
}

/// With `-o sync` only data and names were durable when a call returned: what `chmod`, `truncate`,
/// `setxattr`, `fallocate` and others did was in memory, though the option says every change.
#[test]
fn with_sync_every_change_is_durable_when_it_is_answered() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let door = open(&device);
    let options = MountOptions {
        sync: true,
        dirsync: true,
        ..MountOptions::default()
    };
    let adapter = adapter(&door, &options);
    let make = |name: &[u8], content: u8| {
        let made = door
            .vfs
            .mknod(&Caller::root(), ROOT, name, libc::S_IFREG | 0o644, 0);
        let ino = made.unwrap().ino;
        let data = [content; 10_000];
        let flags = WriteFlags::default();
        door.vfs.write(ino, Handle::NONE, 0, &data, flags).unwrap();
        ino
    };
    let (file, source) = (make(b"f", 1), make(b"source", 2));
    door.vfs.sync().unwrap();
    // What a power cut leaves.
    let after = |opcode: u32, node: Ino, fixed: Vec<u8>, sent: &[u8]| {
        let header = Header {
            opcode,
            unique: 1,
            node: node.0,
            uid: 0,
            gid: 0,
            pid: 0,
        };
        let mut body = sent.to_vec();
        body.resize(1000, 0);
        let mut call = Call::new(header, &fixed, &mut body, sent.len());
        let outcome = adapter.serve(&mut call, &Kernel::deaf());
        assert!(matches!(outcome, Outcome::Now(Ok(_))), "{opcode}");
        open(&Arc::new(device.persisted(1))).vfs
    };
    for node in [file, ROOT] {
        let left = after(opcode::SETATTR, node, set(1, 0, 0o700), b"");
        assert_eq!(left.getattr(node).unwrap().mode & 0o7777, 0o700);
        let name = b"user.a";
        let fixed = words(&[5, 0, 0, 0]);
        let left = after(opcode::SETXATTR, node, fixed, b"user.a\0value");
        assert_eq!(left.getxattr(node, name).unwrap(), b"value");
        let left = after(opcode::REMOVEXATTR, node, Vec::new(), b"user.a\0");
        assert!(left.getxattr(node, name).is_err());
        let fixed = ioctl(inode_flags::SET, 4, 0);
        let left = after(opcode::IOCTL, node, fixed, bytes_of(&0x400u32));
        assert_eq!(left.inode_flags(node).unwrap().to_linux(), 0x400);
    }
    let left = after(opcode::SETATTR, file, set(1 << 3, 5000, 0), b"");
    assert_eq!(left.getattr(file).unwrap().size, 5000);
    let fixed = words_of(&[0, 0, 30_000, 0]);
    let left = after(opcode::FALLOCATE, file, fixed, b"");
    assert_eq!(left.getattr(file).unwrap().size, 30_000);
    let fixed = words_of(&[0, 0, file.0, 0, 0, 4096, 0]);
    let left = after(opcode::COPY_FILE_RANGE, source, fixed, b"");
    let mut content = [0; 4096];
    left.read(file, Handle::NONE, 0, &mut content).unwrap();
    assert_eq!(content, [2; 4096]);
    let flags = libc::O_WRONLY | libc::O_TRUNC;
    let left = after(opcode::OPEN, file, words(&[flags as u32, 0]), b"");
    assert_eq!(left.getattr(file).unwrap().size, 0);
}
