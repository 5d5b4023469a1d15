//! `FITRIM`, which `fstrim` sends: zones in which nothing is live are freed and reset. Linux passes it on as it is, and looks at neither
//! permissions nor the range.

use persimmon_vfs::TrimRange;
use rustix::ioctl::{Opcode, opcode};

use crate::protocol::{self, Errno, Fields};

/// `FITRIM`: `struct fstrim_range`, of start, length and least extent (u64 each).
pub(crate) const TRIM: Opcode = opcode::read_write::<[u64; 3]>(b'X', 121);

/// What is asked for.
pub(crate) fn parse(input: &[u8]) -> Result<TrimRange, Errno> {
    let mut fields = Fields(input);
    Ok(TrimRange {
        start: fields.u64()?,
        len: fields.u64()?,
        extent_min: fields.u64()?,
    })
}

/// What the daemon answers: the range with another length.
pub(crate) fn encode(range: TrimRange, bytes: u64) -> Vec<u8> {
    [range.start, bytes, range.extent_min]
        .into_iter()
        .flat_map(protocol::offset)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MALFORMED;

    #[test]
    fn the_command_is_the_kernels() {
        // <linux/fs.h>.
        assert_eq!(TRIM, 0xc018_5879);
        let range = TrimRange {
            start: 1,
            len: 2,
            extent_min: 3,
        };
        let answer = encode(range, 7);
        assert_eq!(parse(&answer), Ok(TrimRange { len: 7, ..range }));
        assert_eq!(parse(&answer[..20]), Err(MALFORMED));
    }
}
