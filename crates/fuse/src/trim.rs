//! `FITRIM`, which `fstrim` sends: zones in which nothing is live are freed and reset. Linux passes it on as it is, and looks at no
//! permissions. The range is not looked at: what a volume gives back is whole zones.

use std::fs::File;

use rustix::io;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::protocol;

/// `FITRIM`: `struct fstrim_range`, of start, length and least extent (u64 each).
pub(crate) const TRIM: Opcode = opcode::read_write::<Range>(b'X', 121);

type Range = [u64; 3];

/// Trims the mount that a directory or file is on. Tells how many bytes of zones became free.
///
/// # Errors
/// `EPERM`: neither root nor the user who runs the daemon. `ENOTTY`: a daemon that is too old.
#[allow(unsafe_code)]
pub fn trim(file: &File) -> io::Result<u64> {
    let mut range: Range = [0, u64::MAX, 0];
    // SAFETY: the kernel reads and writes as many bytes as the opcode says, those of the range.
    unsafe { ioctl(file, Updater::<TRIM, Range>::new(&mut range)) }?;
    Ok(range[1])
}

/// What the daemon answers.
pub(crate) fn encode(bytes: u64) -> Vec<u8> {
    [0, bytes, 0]
        .into_iter()
        .flat_map(protocol::offset)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_kernels() {
        // <linux/fs.h>.
        assert_eq!(TRIM, 0xc018_5879);
        assert_eq!(encode(7).len(), 24);
    }
}
