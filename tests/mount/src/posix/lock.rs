//! flock and record locks, between descriptors and between processes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{self, Lock};

super::statements!("lock":
    flock_belongs_to_the_open_file_description,
    flock_goes_with_the_last_close,
    record_locks_exclude_other_processes,
    record_locks_do_not_exclude_their_own_process,
    record_locks_cover_ranges,
    unlocking_the_middle_leaves_both_ends,
    the_holder_of_a_record_lock_is_told,
    closing_any_descriptor_drops_the_record_locks,
    a_waiting_lock_is_granted_when_the_holder_lets_go,
    locks_of_a_killed_process_are_gone,
    a_deadlock_is_refused,
    a_lock_needs_the_right_access,
    locks_do_not_stop_reads_and_writes,
);

const PROBE: &str = "--lock-probe";

/// The second process: takes orders line by line and answers each with a line.
///
/// `None` when the arguments do not ask for it.
pub fn probe(arguments: Vec<OsString>) -> Option<ExitCode> {
    if arguments.get(1).is_none_or(|argument| argument != PROBE) {
        return None;
    }
    let path = PathBuf::from(arguments.get(2)?);
    let served = edit(path).and_then(|file| serve(&file));
    Some(ExitCode::from(u8::from(served.is_err())))
}

fn serve(file: &File) -> Result<()> {
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let (order, start, len) = match words[..] {
            [order, start, len] => (order, start.parse()?, len.parse()?),
            _ => bail!("bad order {line}"),
        };
        let result = match order {
            "read" => sys::lock(file, Lock::Read, start, len),
            "write" => sys::lock(file, Lock::Write, start, len),
            "wait" => sys::lock_wait(file, Lock::Write, start, len),
            "unlock" => sys::lock(file, Lock::Unlock, start, len),
            "flock" => rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive),
            _ => bail!("bad order {line}"),
        };
        let code = result.err().map_or(0, Errno::raw_os_error);
        println!("{code}");
    }
    Ok(())
}

/// Another process with the file open.
struct Other {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn new(path: &Path) -> Result<Other> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command
            .arg(PROBE)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().context("its input")?;
        let answers = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Other {
            child,
            orders,
            answers,
        })
    }

    fn order(&mut self, order: &str) -> Result<()> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    fn answer(&mut self) -> Result<rustix::io::Result<()>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(
            match line.trim().parse().context("the other process's answer")? {
                0 => Ok(()),
                code => Err(Errno::from_raw_os_error(code)),
            },
        )
    }

    /// Does it and tells how it went.
    fn try_to(&mut self, order: &str) -> Result<rustix::io::Result<()>> {
        self.order(order)?;
        self.answer()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BUSY: &[Errno] = &[Errno::AGAIN, Errno::ACCESS];

fn pair(place: &Place) -> Result<(File, File)> {
    Ok((file(place.at("f"), &[0; 1000])?, edit(place.at("f"))?))
}

fn flock_belongs_to_the_open_file_description(place: &Place) -> Result<()> {
    let (one, two) = pair(place)?;
    let twin = one.try_clone()?;
    rustix::fs::flock(&one, FlockOperation::LockExclusive)?;
    rustix::fs::flock(&twin, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::flock(&twin, FlockOperation::Unlock)?;
    Ok(rustix::fs::flock(
        &two,
        FlockOperation::NonBlockingLockExclusive,
    )?)
}

fn flock_goes_with_the_last_close(place: &Place) -> Result<()> {
    let (one, two) = pair(place)?;
    let twin = one.try_clone()?;
    rustix::fs::flock(&one, FlockOperation::LockExclusive)?;
    drop(one);
    let still = rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive);
    refused(still, Errno::WOULDBLOCK)?;
    drop(twin);
    // A filesystem that keeps locks itself may learn of the close a moment later: wait for it.
    Ok(rustix::fs::flock(&two, FlockOperation::LockExclusive)?)
}

fn record_locks_exclude_other_processes(place: &Place) -> Result<()> {
    let (file, _) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    sys::lock(&file, Lock::Write, 0, 0)?;
    refused_with(other.try_to("write 0 0")?, BUSY)?;
    refused_with(other.try_to("read 5 1")?, BUSY)?;
    sys::lock(&file, Lock::Read, 0, 0)?;
    other.try_to("read 0 0")??;
    refused_with(other.try_to("write 0 0")?, BUSY)?;
    refused_with(sys::lock(&file, Lock::Write, 0, 0), BUSY)?;
    sys::lock(&file, Lock::Unlock, 0, 0)?;
    Ok(other.try_to("write 0 0")??)
}

fn record_locks_do_not_exclude_their_own_process(place: &Place) -> Result<()> {
    let (one, two) = pair(place)?;
    sys::lock(&one, Lock::Write, 0, 0)?;
    Ok(sys::lock(&two, Lock::Write, 0, 0)?)
}

fn record_locks_cover_ranges(place: &Place) -> Result<()> {
    let (file, _) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    sys::lock(&file, Lock::Write, 100, 50)?;
    for (order, free) in [
        ("write 0 100", true),
        ("write 150 0", true),
        ("write 99 2", false),
        ("write 149 1", false),
        ("write 0 0", false),
        ("write 120 5", false),
    ] {
        let result = other.try_to(order)?;
        ensure!(result.is_ok() == free, "{order}: {result:?}");
    }
    Ok(())
}

fn unlocking_the_middle_leaves_both_ends(place: &Place) -> Result<()> {
    let (file, _) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    sys::lock(&file, Lock::Write, 0, 100)?;
    sys::lock(&file, Lock::Unlock, 40, 20)?;
    other.try_to("write 40 20")??;
    refused_with(other.try_to("write 39 1")?, BUSY)?;
    refused_with(other.try_to("write 60 1")?, BUSY)
}

fn the_holder_of_a_record_lock_is_told(place: &Place) -> Result<()> {
    let (file, _) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    equal(sys::lock_holder(&file, Lock::Write, 0, 0)?, None)?;
    other.try_to("write 10 20")??;
    let holder = sys::lock_holder(&file, Lock::Write, 0, 0)?;
    equal(holder, Some((other.child.id() as i32, 10, 20)))?;
    equal(sys::lock_holder(&file, Lock::Write, 30, 5)?, None)
}

fn closing_any_descriptor_drops_the_record_locks(place: &Place) -> Result<()> {
    let (one, two) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    sys::lock(&one, Lock::Write, 0, 0)?;
    refused_with(other.try_to("write 0 0")?, BUSY)?;
    drop(two);
    Ok(other.try_to("wait 0 0")??)
}

fn a_waiting_lock_is_granted_when_the_holder_lets_go(place: &Place) -> Result<()> {
    let (file, _) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    sys::lock(&file, Lock::Write, 0, 0)?;
    other.order("wait 0 0")?;
    std::thread::sleep(Duration::from_millis(50));
    sys::lock(&file, Lock::Unlock, 0, 0)?;
    other.answer()??;
    refused_with(sys::lock(&file, Lock::Read, 0, 1), BUSY)
}

fn locks_of_a_killed_process_are_gone(place: &Place) -> Result<()> {
    let (file, again) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    other.try_to("write 0 0")??;
    other.try_to("flock 0 0")??;
    refused_with(sys::lock(&file, Lock::Write, 0, 0), BUSY)?;
    other.child.kill()?;
    equal(other.child.wait()?.signal(), Some(libc::SIGKILL))?;
    sys::lock_wait(&file, Lock::Write, 0, 0)?;
    Ok(rustix::fs::flock(&again, FlockOperation::LockExclusive)?)
}

fn a_deadlock_is_refused(place: &Place) -> Result<()> {
    let (file, _) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    sys::lock(&file, Lock::Write, 0, 1)?;
    other.try_to("write 1 1")??;
    other.order("wait 0 1")?;
    std::thread::sleep(Duration::from_millis(100));
    refused(sys::lock_wait(&file, Lock::Write, 1, 1), Errno::DEADLK)?;
    sys::lock(&file, Lock::Unlock, 0, 0)?;
    Ok(other.answer()??)
}

fn a_lock_needs_the_right_access(place: &Place) -> Result<()> {
    file(place.at("f"), b"x")?;
    let reader = open(place.at("f"), rustix::fs::OFlags::RDONLY)?;
    let writer = open(place.at("f"), rustix::fs::OFlags::WRONLY)?;
    refused(sys::lock(&reader, Lock::Write, 0, 0), Errno::BADF)?;
    refused(sys::lock(&writer, Lock::Read, 0, 0), Errno::BADF)?;
    sys::lock(&reader, Lock::Read, 0, 0)?;
    // flock asks for no particular access.
    Ok(rustix::fs::flock(
        &reader,
        FlockOperation::NonBlockingLockExclusive,
    )?)
}

fn locks_do_not_stop_reads_and_writes(place: &Place) -> Result<()> {
    let (one, mut two) = pair(place)?;
    let mut other = Other::new(&place.at("f"))?;
    other.try_to("write 0 0")??;
    rustix::fs::flock(&one, FlockOperation::LockExclusive)?;
    two.write_all(b"written")?;
    equal(&content(&two)?[..7], b"written")
}
