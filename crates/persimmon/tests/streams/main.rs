//! Snapshots sent and received: random histories, with streams that are cut and go on, crashes of the receiver, and streams that were altered.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

mod altered;
mod history;
mod killed;
mod refused;
mod somebody;
mod tree;

use std::ffi::OsStr;
use std::sync::Arc;

use history::{Random, step};
use persimmon::device::{CreateOptions, ImageDevice, ImageGeometry, ZonedDevice};
use persimmon::stream::{
    Directory, Position, ReceiveError, Received, SendOptions, Target, VolumeTarget, Warning, Watch,
    receive, resume_token,
};
use persimmon::vfs::ROOT;
use persimmon::{Create, Deltas, Filesystem, Ino, Options};
use tree::{compare, of_directory, of_volume};

/// A volume in memory that can be opened again.
struct Memory {
    device: Arc<dyn ZonedDevice>,
    fs: Filesystem,
}

impl Memory {
    fn new() -> Memory {
        let shape = ImageGeometry {
            zone_count: 64,
            zone_blocks: 512,
            capacity_blocks: 512,
            max_open: None,
            max_active: None,
        };
        let device = ImageDevice::in_memory(&shape, &CreateOptions::default()).unwrap();
        let device: Arc<dyn ZonedDevice> = Arc::new(device);
        Filesystem::create_on(Arc::clone(&device), &Create::sized(128 << 20)).unwrap();
        let fs = Filesystem::open_on(Arc::clone(&device), &options()).unwrap();
        Memory { device, fs }
    }

    /// As after a crash of the process.
    fn crash(self) -> Memory {
        self.fs.abandon();
        let fs = Filesystem::open_on(Arc::clone(&self.device), &options()).unwrap();
        Memory { fs, ..self }
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.engine.deltas = Deltas::Always;
    options
}

fn snapshot_root(fs: &Filesystem, name: &str) -> Ino {
    ROOT.of(fs.vfs().snapshot_named(name.as_bytes()).unwrap().id)
}

fn sent(fs: &Filesystem, name: &str, from: Option<&str>, token: Option<&str>) -> Vec<u8> {
    let token = token.map(|token| Position::of_token(token).unwrap());
    let options = SendOptions {
        resume: token.as_ref(),
        plain: false,
    };
    let mut out = Vec::new();
    fs.send_snapshot(name, from.map(OsStr::new), &mut out, &options, |_| {})
        .unwrap();
    out
}

/// Warnings that came.
#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Watch for Warnings {
    fn warn(&mut self, warning: Warning) {
        self.0.push(warning);
    }

    fn progress(&mut self, _: u64, _: u64) {}
}

fn received<T: Target>(target: &mut T, stream: &[u8]) -> Received {
    let mut warnings = Warnings::default();
    let received = receive(stream, target, &mut warnings);
    let received = received.unwrap_or_else(|error| panic!("{error} ({error:?})"));
    assert_eq!(warnings.0, []);
    received
}

/// Receives a stream that is cut and goes on, again and again.
fn received_in_pieces(
    source: &Filesystem,
    mut target: Memory,
    (name, from): (&str, Option<&str>),
    random: &mut Random,
) -> Memory {
    let mut stream = sent(source, name, from, None);
    let mut cuts = random.below(5);
    loop {
        if cuts == 0 {
            received(&mut VolumeTarget::new(&target.fs), &stream);
            return target;
        }
        cuts -= 1;
        let end = random.below(stream.len() as u64) as usize;
        let cut = receive(
            &stream[..end],
            &mut VolumeTarget::new(&target.fs),
            &mut Warnings::default(),
        );
        let is_cut = matches!(cut, Err(ReceiveError::Cut | ReceiveError::NoHeader));
        assert!(is_cut, "{cut:?}");
        if random.one_in(2) {
            target = target.crash();
        }
        match resume_token(&mut VolumeTarget::new(&target.fs)) {
            Ok(token) => stream = sent(source, name, from, Some(&token)),
            // Nothing but the header came: the last stream was received, or none.
            Err(error) => assert!(matches!(error, ReceiveError::NothingBegun), "{error:?}"),
        }
    }
}

/// A history with snapshots, and each of them received from the one before. Tells how many were.
fn history(seed: u64) -> usize {
    let mut random = Random(seed);
    let source = Memory::new();
    let mut target = Memory::new();
    let plain = seed
        .is_multiple_of(4)
        .then(|| tempfile::tempdir_in("/dev/shm").unwrap());
    let mut open = Vec::new();
    let mut before: Option<String> = None;
    let count = 2 + random.below(4);
    for number in 0..count {
        for _ in 0..random.below(60) {
            step(&source.fs, &mut random, &mut open);
            if random.one_in(40) {
                // One between that is gone when the next is sent.
                let _ = source.fs.take_snapshot("between", false);
            }
        }
        let name = format!("s{number}");
        source.fs.take_snapshot(&name, false).unwrap();
        if random.one_in(2) {
            let _ = source.fs.delete_snapshot("between");
        }
        let due = of_volume(&source.fs, snapshot_root(&source.fs, &name));
        let pair = (name.as_str(), before.as_deref());
        target = received_in_pieces(&source.fs, target, pair, &mut random);
        let what = format!("seed {seed}, snapshot {number}");
        compare(&due, &of_volume(&target.fs, ROOT), &what);
        if let Some(plain) = &plain {
            let stream = sent(&source.fs, pair.0, pair.1, None);
            received(&mut Directory::open(plain.path()).unwrap(), &stream);
            compare(&due, &of_directory(plain.path()), &format!("{what}, plain"));
        }
        if let Some(before) = before
            && random.one_in(2)
        {
            source.fs.delete_snapshot(before).unwrap();
        }
        before = Some(name);
    }
    source.fs.abandon();
    target.fs.abandon();
    count as usize
}

/// `HISTORIES=10000 FIRST=1000 cargo test -p persimmon --test streams histories` runs more of them, and others.
#[test]
fn random_histories_are_received_as_they_were_sent() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("FIRST").unwrap_or(0);
    let count: u64 = number("HISTORIES").unwrap_or(200);
    let mut snapshots = 0;
    for seed in first..first + count {
        snapshots += history(seed);
        if (seed - first) % 500 == 499 {
            eprintln!("{} histories, {snapshots} snapshots", seed - first + 1);
        }
    }
    eprintln!("{count} histories, {snapshots} snapshots received");
}
