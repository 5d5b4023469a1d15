//! The mix of a mail server, as filebench's varmail has it: each thread, over and over, deletes a
//! mail; creates one, writes it and syncs it; opens one, reads it, appends to it and syncs it; opens
//! one and reads it. 1,000 mails in one directory, each thread has its share of them; mails of up to
//! 32 KiB at first, 16 KiB on average; appended are up to 16 KiB.
//!
//! In one variant whole-file reads are served by a page cache, as on a mount, and cost nothing; in
//! the other all of them go to the device. What the engine reads for itself always costs.

use std::sync::Arc;
use std::time::Duration;

use persimmon_engine::FsyncOrder;
use persimmon_sim::time::{Client, VirtualClock};
use persimmon_vfs::{
    AccessTimes, Author, Caller, Clock, Handle, OpenFlags, Options, ROOT, Timestamp, Vfs,
    WriteFlags,
};

use crate::setup::{Noise, Outcome, Sample, Setup, micros, verdict};

const MAILS: u64 = 1000;
const SIZE_MAX: u64 = 32 << 10;
const APPEND_MAX: u64 = 16 << 10;
/// Times round the loop, of all threads together.
const LOOPS: u64 = 1600;
/// Calls of one time round, closing left out: delete, create, write, fsync; open, read, write,
/// fsync; open, read.
const CALLS: u64 = 10;
const FSYNCS: u64 = 2;
/// What computing costs a call.
const THINKS: Duration = Duration::from_micros(1);
const BAR: f64 = 1.3;
/// Mails longer than this are read in part.
const READ_MAX: usize = 1 << 20;

pub fn measure(threads: &[u64], seed: u64) -> Outcome<u32> {
    println!("## varmail: {MAILS} mails in one directory\n");
    println!(
        "| threads | PLP | reads | wp calls/s | strict calls/s | wp / strict | bar | holds | us per \
         loop, wp | fsyncs per commit, wp | strict | device writes and blocks per fsync, wp |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for (plp, cached) in [(true, true), (true, false), (false, true)] {
        let mut slower = 0.0;
        for &threads in threads {
            let run = |order| run(Setup::new(plp, order), threads, cached, seed);
            let wp = run(FsyncOrder::WritePointer)?;
            let strict = run(FsyncOrder::Strict)?;
            let speed = |sample: &Sample| (LOOPS * CALLS) as f64 / sample.time.as_secs_f64();
            let ratio = speed(&wp) / speed(&strict);
            let (holds, no) = verdict(ratio >= BAR && speed(&wp) > slower);
            missed += no;
            slower = speed(&wp);
            let group =
                |sample: &Sample| (LOOPS * FSYNCS) as f64 / sample.statistics.commits as f64;
            let per = |count: u64| count as f64 / (LOOPS * FSYNCS) as f64;
            println!(
                "| {threads} | {} | {} | {:.0} | {:.0} | {ratio:.3} | {BAR} | {holds} | {:.1} | {:.2} | {:.2} | {:.2}, {:.2} |",
                if plp { "yes" } else { "no" },
                if cached { "cached" } else { "device" },
                speed(&wp),
                speed(&strict),
                micros(wp.time) / LOOPS as f64,
                group(&wp),
                group(&strict),
                per(wp.counters.writes + wp.counters.appends),
                per(wp.counters.written_blocks()),
            );
        }
    }
    println!();
    Ok(missed)
}

/// Tells the same time for ever.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

fn run(setup: Setup, threads: u64, cached: bool, seed: u64) -> Outcome<Sample> {
    let timed = setup.volume()?;
    let options = Options {
        access_times: AccessTimes::Never,
        ..Options::default()
    };
    let vfs = Vfs::new(Arc::clone(&timed.volume), Arc::new(Still), options);
    let mut noise = Noise::new(seed);
    for mail in 0..MAILS {
        let size = 1 + noise.below(SIZE_MAX);
        deliver(&vfs, mail, noise.bytes(size as usize), false)?;
    }
    vfs.sync()?;
    let share = MAILS / threads;
    let clients = (0..threads)
        .map(|thread| -> Outcome<Client<'_, Outcome<()>>> {
            let mut server = Server {
                vfs: &vfs,
                clock: timed.clock()?,
                noise: Noise::new(seed + 1 + thread),
                first: thread * share,
                share,
                cached,
            };
            Ok(Box::new(move || {
                (0..LOOPS / threads).try_for_each(|_| server.once_round())
            }))
        })
        .collect::<Outcome<_>>()?;
    timed.run(clients)
}

fn name(mail: u64) -> Vec<u8> {
    format!("mail{mail:05}").into_bytes()
}

const READ_WRITE: OpenFlags = OpenFlags {
    door_appends: false,
    read: true,
    write: true,
    append: false,
    truncate: false,
    sync: false,
    data_sync: false,
    write_through: false,
    direct: false,
    exclusive: false,
    no_atime: false,
    author: Author::Privileged,
    is_limited: false,
};

/// Creates and writes a mail.
fn deliver(vfs: &Vfs, mail: u64, bytes: &[u8], sync: bool) -> Outcome<()> {
    let (attr, handle) = vfs.create(&Caller::root(), ROOT, &name(mail), 0o644, READ_WRITE)?;
    vfs.write(attr.ino, handle, 0, bytes, WriteFlags::default())?;
    if sync {
        vfs.fsync(attr.ino, handle)?;
    }
    vfs.release(attr.ino, handle)?;
    vfs.forget(attr.ino);
    Ok(())
}

/// One thread of the mail server.
struct Server<'a> {
    vfs: &'a Vfs,
    clock: &'a VirtualClock,
    noise: Noise,
    first: u64,
    share: u64,
    cached: bool,
}

impl Server<'_> {
    fn once_round(&mut self) -> Outcome<()> {
        let mail = self.any_mail();
        self.calls(1);
        self.vfs.unlink(ROOT, &name(mail))?;
        self.calls(3);
        let size = 1 + self.noise.below(APPEND_MAX);
        deliver(self.vfs, mail, self.noise.bytes(size as usize), true)?;
        self.open_and_read(true)?;
        self.open_and_read(false)
    }

    fn any_mail(&mut self) -> u64 {
        self.first + self.noise.below(self.share)
    }

    fn calls(&self, calls: u32) {
        self.clock.sleep(THINKS * calls);
    }

    fn open_and_read(&mut self, append: bool) -> Outcome<()> {
        let mail = self.any_mail();
        self.calls(2);
        let attr = self.vfs.lookup(ROOT, &name(mail))?;
        let handle = self.vfs.open(attr.ino, READ_WRITE)?;
        if !self.cached {
            let mut mail = vec![0; READ_MAX.min(attr.size as usize)];
            self.vfs.read(attr.ino, handle, 0, &mut mail)?;
        }
        if append {
            self.calls(2);
            self.append(attr.ino, handle, attr.size)?;
        }
        self.vfs.release(attr.ino, handle)?;
        self.vfs.forget(attr.ino);
        Ok(())
    }

    fn append(&mut self, ino: persimmon_vfs::Ino, handle: Handle, size: u64) -> Outcome<()> {
        let len = 1 + self.noise.below(APPEND_MAX);
        let bytes = self.noise.bytes(len as usize);
        self.vfs
            .write(ino, handle, size, bytes, WriteFlags::default())?;
        self.vfs.fsync(ino, handle)?;
        Ok(())
    }
}
