//! Transfers as reads and writes of files: of a block device, or of a file a zone.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use io_uring::{cqueue, opcode, squeue, types};

use super::failure::Failure;
use super::ring::{Operation, Wire};

/// Reads and writes of files.
pub struct FileWire;

/// A place in a file.
#[derive(Clone)]
pub struct Spot {
    /// Stays open as long as a transfer to it is under way.
    pub file: Arc<File>,
    /// Bytes from its start.
    pub offset: u64,
}

impl Wire for FileWire {
    type Entry = squeue::Entry;
    type Completion = cqueue::Entry;
    type Place = Spot;

    const READS_HERE: bool = true;

    fn entry(&self, operation: Operation<'_, Spot>) -> squeue::Entry {
        let fd = |spot: &Spot| types::Fd(spot.file.as_raw_fd());
        match operation {
            Operation::Read(spot, memory, bytes) => {
                let read = opcode::Read::new(fd(spot), memory, bytes as u32);
                read.offset(spot.offset).build()
            }
            // What appends the block layer does itself is not for programs.
            Operation::Write(spot, slices) | Operation::Append(spot, slices) => {
                let write = opcode::Writev::new(fd(spot), slices.as_ptr(), slices.len() as u32);
                write.offset(spot.offset).build()
            }
            Operation::Flush(spot) => opcode::Fsync::new(fd(spot))
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        }
    }

    fn read_here(&self, spot: &Spot, memory: &mut [u8]) -> Option<Result<u64, Failure>> {
        let moved = loop {
            match spot.file.read_at(memory, spot.offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                moved => break moved,
            }
        };
        let whole = moved.map_err(Failure::from);
        Some(whole.and_then(|moved| all_of(moved, memory.len())))
    }

    fn ended(&self, completion: &cqueue::Entry, bytes: usize) -> Result<u64, Failure> {
        let moved = usize::try_from(completion.result())
            .map_err(|_| Failure::from(io::Error::from_raw_os_error(-completion.result())))?;
        all_of(moved, bytes)
    }
}

/// Devices move all of a transfer, or fail.
fn all_of(moved: usize, bytes: usize) -> Result<u64, Failure> {
    if moved == bytes {
        return Ok(0);
    }
    let message = format!("{moved} of {bytes} bytes were transferred");
    Err(io::Error::other(message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_reads_what_a_ring_would() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 6000], 0).unwrap();
        let spot = |offset| Spot {
            file: Arc::new(file.try_clone().unwrap()),
            offset,
        };
        let mut memory = [0; 4096];
        assert_eq!(
            FileWire.read_here(&spot(0), &mut memory).unwrap().unwrap(),
            0
        );
        assert_eq!(memory, [7; 4096]);
        let cut_off = FileWire.read_here(&spot(4096), &mut memory).unwrap();
        let cut_off = cut_off.unwrap_err().to_string();
        assert!(cut_off.contains("1904 of 4096 bytes"), "{cut_off}");
    }
}
