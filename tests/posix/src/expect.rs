//! What the statements are made of.

use std::fmt::Debug;

use anyhow::{Result, anyhow, bail, ensure};
use rustix::io::Errno;

/// The call must have failed with exactly this error.
pub fn refused<T>(result: rustix::io::Result<T>, errno: Errno) -> Result<()> {
    refused_with(result, &[errno])
}

/// The call must have failed with one of these errors: where POSIX leaves a choice.
pub fn refused_with<T>(result: rustix::io::Result<T>, errnos: &[Errno]) -> Result<()> {
    match result {
        Ok(_) => bail!("it succeeded, {errnos:?} was due"),
        Err(error) if errnos.contains(&error) => Ok(()),
        Err(error) => bail!("it failed with {error:?}, {errnos:?} was due"),
    }
}

/// The two must be equal.
pub fn equal<T: PartialEq + Debug>(got: T, due: T) -> Result<()> {
    ensure!(got == due, "got {got:?}, {due:?} was due");
    Ok(())
}

/// The two must be equal; tells the first difference instead of everything.
pub fn same_bytes(got: &[u8], due: &[u8]) -> Result<()> {
    ensure!(
        got.len() == due.len(),
        "{} bytes, {} were due",
        got.len(),
        due.len()
    );
    if let Some(at) = (0..got.len()).find(|at| got[*at] != due[*at]) {
        bail!("byte {at} is {:#04x}, {:#04x} was due", got[at], due[at]);
    }
    Ok(())
}

/// Bytes that look random and depend on the seed alone.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = Noise(seed);
    (0..len).map(|_| state.next_u64() as u8).collect()
}

/// A small generator of numbers (SplitMix64).
pub struct Noise(pub u64);

impl Noise {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }
}

/// Runs `body` on this many threads at once with their numbers; the first error comes back.
pub fn in_threads(count: u32, body: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || body(number)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(())
    })
}

/// Which times of an inode a call moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The content's time.
    pub mtime: bool,
    /// The inode's time.
    pub ctime: bool,
}

/// Both times moved.
pub const BOTH: Moved = Moved {
    mtime: true,
    ctime: true,
};
/// Only the inode's time moved.
pub const CTIME: Moved = Moved {
    mtime: false,
    ctime: true,
};
/// Neither moved.
pub const NEITHER: Moved = Moved {
    mtime: false,
    ctime: false,
};
