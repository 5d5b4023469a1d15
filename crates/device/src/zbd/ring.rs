//! The edge to io_uring: transfers are started from any thread and collected by one.
//!
//! Memory of a transfer belongs to the ring from its start to its completion, so that the kernel
//! never reads or writes memory of anybody else.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use crate::{Buffer, BufferMut};

/// Transfers under way at the same time, at most.
pub(super) const TRANSFERS_MAX: usize = 256;

/// How long to wait where the kernel is short of memory.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// What a transfer moves.
pub(super) enum Transfer {
    /// Fill the buffer from this offset on, in bytes.
    Read(BufferMut, u64),
    /// Write the buffers one after the other from this offset on, in bytes.
    Write(Vec<Buffer>, u64),
    /// Make durable what has completed.
    Flush,
    /// Nothing: wakes the thread that collects.
    Nothing,
}

/// A transfer that is over.
pub(super) struct Done<J> {
    pub job: J,
    /// What was read, of a read.
    pub buffer: Option<BufferMut>,
    /// Bytes moved.
    pub result: io::Result<usize>,
}

/// Transfers to one file. `J` is what the owner wants to know again of a transfer.
pub(super) struct Ring<J> {
    ring: IoUring,
    file: File,
    /// The right to put entries into the submission queue.
    submission: Mutex<()>,
    slots: Mutex<Slots<J>>,
}

struct Slots<J> {
    used: Vec<Option<(J, Memory)>>,
    free: Vec<usize>,
}

/// What the kernel reads or writes while a transfer is under way.
enum Memory {
    Read(BufferMut),
    /// The slices name the data.
    Write {
        _data: Vec<Buffer>,
        _slices: Slices,
    },
    None,
}

/// Read by the kernel alone.
struct Slices(#[allow(dead_code)] Vec<libc::iovec>);

// SAFETY: the pointers are to memory that the `Memory` beside them owns, and only the kernel
// follows them.
#[allow(unsafe_code)]
unsafe impl Send for Slices {}

impl<J> Ring<J> {
    pub(super) fn new(file: File) -> io::Result<Ring<J>> {
        Ok(Ring {
            ring: IoUring::new(TRANSFERS_MAX as u32)?,
            file,
            submission: Mutex::new(()),
            slots: Mutex::new(Slots {
                used: (0..TRANSFERS_MAX).map(|_| None).collect(),
                free: (0..TRANSFERS_MAX).collect(),
            }),
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Starts a transfer; gives the job back if more than [`TRANSFERS_MAX`] are under way.
    pub(super) fn start(&self, transfer: Transfer, job: J) -> Result<(), J> {
        let (memory, entry) = self.prepare(transfer);
        let submission = lock(&self.submission);
        let index = {
            let mut slots = lock(&self.slots);
            let Some(index) = slots.free.pop() else {
                return Err(job);
            };
            if let Some(slot) = slots.used.get_mut(index) {
                *slot = Some((job, memory));
            }
            index
        };
        let entry = entry.user_data(index as u64);
        // SAFETY: the lock is held that all must hold who use the submission queue. What the entry
        // points to is owned by the slot until `collect` has seen the completion; it does not move
        // when its owner does.
        #[allow(unsafe_code)]
        let pushed = unsafe { self.ring.submission_shared().push(&entry) };
        if pushed.is_err() {
            // Never: there are as many entries as slots, and none is left behind below.
            return self.free(index).map_or(Ok(()), |(job, _)| Err(job));
        }
        while let Err(error) = self.ring.submit() {
            if error.kind() != io::ErrorKind::Interrupted {
                // Short of memory, or completions wait to be collected.
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
        drop(submission);
        Ok(())
    }

    fn prepare(&self, transfer: Transfer) -> (Memory, squeue::Entry) {
        let fd = types::Fd(self.file.as_raw_fd());
        match transfer {
            Transfer::Read(mut buffer, offset) => {
                let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32);
                (Memory::Read(buffer), entry.offset(offset).build())
            }
            Transfer::Write(data, offset) => {
                let filled = data.iter().filter(|buffer| buffer.blocks() > 0);
                let slices = filled.map(|buffer| libc::iovec {
                    iov_base: buffer.as_ptr().cast_mut().cast(),
                    iov_len: buffer.len(),
                });
                let slices: Vec<_> = slices.collect();
                let entry = opcode::Writev::new(fd, slices.as_ptr(), slices.len() as u32);
                let memory = Memory::Write {
                    _data: data,
                    _slices: Slices(slices),
                };
                (memory, entry.offset(offset).build())
            }
            Transfer::Flush => {
                let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC);
                (Memory::None, entry.build())
            }
            Transfer::Nothing => (Memory::None, opcode::Nop::new().build()),
        }
    }

    /// Waits for transfers to complete, and appends those that have. Called by one thread.
    pub(super) fn collect(&self, done: &mut Vec<Done<J>>) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Short of memory: there is something to collect, or there will be.
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
        // SAFETY: one thread alone collects, so the completion queue is not shared.
        #[allow(unsafe_code)]
        let completions = unsafe { self.ring.completion_shared() };
        for completion in completions {
            let Some((job, memory)) = self.free(completion.user_data() as usize) else {
                continue;
            };
            done.push(Done {
                job,
                buffer: match memory {
                    Memory::Read(buffer) => Some(buffer),
                    Memory::Write { .. } | Memory::None => None,
                },
                result: usize::try_from(completion.result())
                    .map_err(|_| io::Error::from_raw_os_error(-completion.result())),
            });
        }
    }

    fn free(&self, index: usize) -> Option<(J, Memory)> {
        let mut slots = lock(&self.slots);
        let slot = slots.used.get_mut(index).and_then(Option::take)?;
        slots.free.push(index);
        Some(slot)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring knows nothing of zones: a file will do.
    #[test]
    fn transfers_complete_with_their_jobs_and_bytes() {
        let file = tempfile::tempfile().unwrap();
        let Ok(ring) = Ring::new(file) else {
            // Not allowed here, as in many containers; the guest's tests have it.
            return;
        };
        let mut buffer = BufferMut::zeroed(3);
        buffer.fill(7);
        let data = buffer.freeze();
        let halves = vec![data.slice(0..1), data.slice(1..3)];
        assert!(ring.start(Transfer::Write(halves, 4096), 1).is_ok());
        let mut done = Vec::new();
        while done.is_empty() {
            ring.collect(&mut done);
        }
        assert_eq!(
            (done[0].job, done[0].result.as_ref().ok()),
            (1, Some(&12288))
        );
        done.clear();
        let transfers = [
            Transfer::Read(BufferMut::zeroed(3), 4096),
            Transfer::Read(BufferMut::zeroed(2), 12288),
            Transfer::Flush,
            Transfer::Nothing,
        ];
        for (job, transfer) in transfers.into_iter().enumerate() {
            assert!(ring.start(transfer, job).is_ok());
        }
        while done.len() < 4 {
            ring.collect(&mut done);
        }
        done.sort_by_key(|done| done.job);
        assert_eq!(done[0].buffer.as_deref(), Some(&*data));
        // Cut off at the end of the file.
        assert_eq!(done[1].result.as_ref().ok(), Some(&4096));
        assert!(done[2].result.is_ok() && done[3].result.is_ok());
    }

    #[test]
    fn no_more_than_fit_are_under_way() {
        let Ok(ring) = Ring::new(tempfile::tempfile().unwrap()) else {
            return;
        };
        for job in 0..TRANSFERS_MAX {
            assert!(ring.start(Transfer::Nothing, job).is_ok());
        }
        assert!(ring.start(Transfer::Nothing, TRANSFERS_MAX).is_err());
        let mut done = Vec::new();
        while done.len() < TRANSFERS_MAX {
            ring.collect(&mut done);
        }
        assert!(ring.start(Transfer::Nothing, 0).is_ok());
    }
}
