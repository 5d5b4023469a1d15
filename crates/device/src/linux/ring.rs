//! The edge to io_uring: transfers are started from any thread and collected by one.
//!
//! Memory of a transfer belongs to the ring from its start to its completion, so that the kernel
//! never reads or writes memory of anybody else.

use std::io;

use std::time::Duration;

use persimmon_sync::Mutex;

use io_uring::cqueue::EntryMarker as _;
use io_uring::squeue::EntryMarker as _;
use io_uring::{IoUring, cqueue, squeue};

use super::failure::Failure;
use crate::{Buffer, BufferMut};

/// Transfers under way at the same time, at most.
pub const TRANSFERS_MAX: usize = 256;

/// How long to wait where the kernel is short of memory.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// How transfers are written down for the kernel: as reads and writes of files, or as commands of a
/// drive.
pub trait Wire: Send + Sync {
    /// An entry of the submission queue.
    type Entry: squeue::EntryMarker;
    /// An entry of the completion queue.
    type Completion: cqueue::EntryMarker;
    /// Where a transfer begins. Kept until it is over.
    type Place: Send;

    /// The entry for a transfer. The kernel follows its pointers until the transfer is over.
    fn entry(&self, operation: Operation<'_, Self::Place>) -> Self::Entry;

    /// Whether [`Wire::read_here`] can be.
    const READS_HERE: bool = false;

    /// Fills the memory in the calling thread. `None` if that takes a ring.
    fn read_here(&self, _: &Self::Place, _: &mut [u8]) -> Option<Result<u64, Failure>> {
        None
    }

    /// How a transfer of so many bytes ended; what the drive answered, where it answers anything.
    fn ended(&self, completion: &Self::Completion, bytes: usize) -> Result<u64, Failure>;
}

/// What an entry is to say.
pub enum Operation<'a, P> {
    /// Fill this memory.
    Read(&'a P, *mut u8, usize),
    /// Write these pieces one after the other.
    Write(&'a P, &'a [libc::iovec]),
    /// Append them to the zone that begins there.
    Append(&'a P, &'a [libc::iovec]),
    /// Make durable what has completed.
    Flush(&'a P),
}

/// What a transfer moves.
pub enum Transfer<P> {
    /// Fill the buffer from there on.
    Read(P, BufferMut),
    /// Write the buffers one after the other from there on.
    Write(P, Vec<Buffer>),
    /// Append them to the zone that begins there.
    Append(P, Vec<Buffer>),
    /// Make durable what has completed.
    Flush(P),
    /// Nothing: wakes the thread that collects.
    Nothing,
}

/// A transfer that is over.
pub struct Done<J> {
    /// What the owner wanted to know again.
    pub job: J,
    /// What was read, of a read.
    pub buffer: Option<BufferMut>,
    /// What was to be written, of a write.
    pub data: Vec<Buffer>,
    /// What the drive answered.
    pub result: Result<u64, Failure>,
}

/// Transfers to one drive. `J` is what the owner wants to know again of a transfer.
pub struct Ring<W: Wire, J> {
    ring: IoUring<W::Entry, W::Completion>,
    wire: W,
    /// The right to put entries into the submission queue.
    submission: Mutex<()>,
    slots: Mutex<Slots<Slot<W::Place, J>>>,
}

struct Slots<S> {
    used: Vec<Option<S>>,
    free: Vec<usize>,
}

/// What is kept of a transfer that is under way.
struct Slot<P, J> {
    job: J,
    memory: Memory,
    bytes: usize,
    _place: Option<P>,
}

/// What the kernel reads or writes while a transfer is under way.
enum Memory {
    Read(BufferMut),
    /// The slices name the data.
    Write {
        data: Vec<Buffer>,
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

impl<W: Wire, J> Ring<W, J> {
    /// A ring for what is written down so.
    pub fn new(wire: W) -> io::Result<Ring<W, J>> {
        let entries = TRANSFERS_MAX as u32;
        Ok(Ring {
            ring: IoUring::<W::Entry, W::Completion>::builder().build(entries)?,
            wire,
            submission: Mutex::new(()),
            slots: Mutex::new(Slots {
                used: (0..TRANSFERS_MAX).map(|_| None).collect(),
                free: (0..TRANSFERS_MAX).collect(),
            }),
        })
    }

    /// Starts a transfer; gives the job back if more than [`TRANSFERS_MAX`] are under way.
    pub fn start(&self, transfer: Transfer<W::Place>, job: J) -> Result<(), J> {
        let (mut entry, memory, bytes, place) = self.prepare(transfer);
        let submission = self.submission.lock();
        let index = {
            let mut slots = self.slots.lock();
            let Some(index) = slots.free.pop() else {
                return Err(job);
            };
            if let Some(slot) = slots.used.get_mut(index) {
                *slot = Some(Slot {
                    job,
                    memory,
                    bytes,
                    _place: place,
                });
            }
            index
        };
        entry.set_user_data(index as u64);
        // SAFETY: the lock is held that all must hold who use the submission queue. What the entry
        // points to is owned by the slot until `collect` has seen the completion; it does not move
        // when its owner does.
        #[allow(unsafe_code)]
        let pushed = unsafe { self.ring.submission_shared().push(&entry) };
        if pushed.is_err() {
            // Never: there are as many entries as slots, and none is left behind below.
            return self.free(index).map_or(Ok(()), |slot| Err(slot.job));
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

    /// Fills the memory in the calling thread. `None` if that takes a ring.
    pub fn read_here(&self, place: &W::Place, memory: &mut [u8]) -> Option<Result<u64, Failure>> {
        self.wire.read_here(place, memory)
    }

    fn prepare(&self, transfer: Transfer<W::Place>) -> (W::Entry, Memory, usize, Option<W::Place>) {
        let wire = &self.wire;
        match transfer {
            Transfer::Read(place, mut buffer) => {
                let bytes = buffer.len();
                let entry = wire.entry(Operation::Read(&place, buffer.as_mut_ptr(), bytes));
                (entry, Memory::Read(buffer), bytes, Some(place))
            }
            Transfer::Write(place, data) => {
                let (slices, bytes) = slices(&data);
                let entry = wire.entry(Operation::Write(&place, &slices));
                (entry, written(data, slices), bytes, Some(place))
            }
            Transfer::Append(place, data) => {
                let (slices, bytes) = slices(&data);
                let entry = wire.entry(Operation::Append(&place, &slices));
                (entry, written(data, slices), bytes, Some(place))
            }
            Transfer::Flush(place) => {
                let entry = wire.entry(Operation::Flush(&place));
                (entry, Memory::None, 0, Some(place))
            }
            Transfer::Nothing => {
                let entry = io_uring::opcode::Nop::new().build().into();
                (entry, Memory::None, 0, None)
            }
        }
    }

    /// Waits for transfers to complete, and appends those that have. Called by one thread.
    pub fn collect(&self, done: &mut Vec<Done<J>>) {
        self.wait();
        // SAFETY: one thread alone collects, so the completion queue is not shared.
        #[allow(unsafe_code)]
        let completions = unsafe { self.ring.completion_shared() };
        for completion in completions {
            let Some(slot) = self.free(completion.user_data() as usize) else {
                continue;
            };
            let (buffer, data) = match slot.memory {
                Memory::Read(buffer) => (Some(buffer), Vec::new()),
                Memory::Write { data, .. } => (None, data),
                Memory::None => (None, Vec::new()),
            };
            done.push(Done {
                job: slot.job,
                buffer,
                data,
                result: self.wire.ended(&completion, slot.bytes),
            });
        }
    }

    /// The same, whatever became of them. Called by that thread.
    pub fn abandon(&self) -> Vec<J> {
        self.wait();
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let completions = unsafe { self.ring.completion_shared() };
        let slots = completions.map(|completion| self.free(completion.user_data() as usize));
        slots.flatten().map(|slot| slot.job).collect()
    }

    /// Whether the kernel has nothing.
    pub fn is_idle(&self) -> bool {
        self.slots.lock().used.iter().all(Option::is_none)
    }

    fn wait(&self) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Short of memory: there is something to collect, or there will be.
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
    }

    fn free(&self, index: usize) -> Option<Slot<W::Place, J>> {
        let mut slots = self.slots.lock();
        let slot = slots.used.get_mut(index).and_then(Option::take)?;
        slots.free.push(index);
        Some(slot)
    }
}

/// The pieces of memory that the buffers are, and their bytes together.
fn slices(data: &[Buffer]) -> (Vec<libc::iovec>, usize) {
    let filled = data.iter().filter(|buffer| buffer.blocks() > 0);
    let slices = filled.map(|buffer| libc::iovec {
        iov_base: buffer.as_ptr().cast_mut().cast(),
        iov_len: buffer.len(),
    });
    (
        slices.collect(),
        data.iter().map(|buffer| buffer.len()).sum(),
    )
}

fn written(data: Vec<Buffer>, slices: Vec<libc::iovec>) -> Memory {
    Memory::Write {
        data,
        _slices: Slices(slices),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::super::files::{FileWire, Spot};
    use super::*;

    fn spot(file: &Arc<File>, offset: u64) -> Spot {
        Spot {
            file: Arc::clone(file),
            offset,
        }
    }

    /// The ring knows nothing of zones: a file will do.
    #[test]
    fn transfers_complete_with_their_jobs_and_bytes() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let Ok(ring) = Ring::new(FileWire) else {
            // Not allowed here, as in many containers; the guest's tests have it.
            return;
        };
        let mut buffer = BufferMut::zeroed(3);
        buffer.fill(7);
        let data = buffer.freeze();
        let halves = vec![data.slice(0..1), data.slice(1..3)];
        assert!(
            ring.start(Transfer::Write(spot(&file, 4096), halves), 1)
                .is_ok()
        );
        let mut done = Vec::new();
        while done.is_empty() {
            ring.collect(&mut done);
        }
        assert!(done[0].job == 1 && done[0].result.is_ok());
        done.clear();
        let transfers = [
            Transfer::Read(spot(&file, 4096), BufferMut::zeroed(3)),
            Transfer::Read(spot(&file, 12288), BufferMut::zeroed(2)),
            Transfer::Flush(spot(&file, 0)),
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
        let cut_off = done[1].result.as_ref().unwrap_err();
        assert!(cut_off.to_string().contains("4096 of 8192 bytes"));
        assert!(done[2].result.is_ok() && done[3].result.is_ok());
    }

    #[test]
    fn no_more_than_fit_are_under_way() {
        let Ok(ring) = Ring::new(FileWire) else {
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
