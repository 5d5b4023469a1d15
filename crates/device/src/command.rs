//! Commands, their completions, and the handle in between.

use persimmon_sync::{Arc, Condvar, Mutex};

use crate::{Buffer, DeviceError, Result, ZoneId};

/// A command to a zoned device. Blocks are counted from the start of the zone.
#[derive(Clone, Debug)]
pub enum Command {
    /// Read `blocks` blocks.
    Read {
        /// Zone.
        zone: ZoneId,
        /// First block.
        block: u32,
        /// How many.
        blocks: u32,
    },
    /// Write at the write pointer, which must be `block`. The buffers are written one after the
    /// other; each is a whole number of blocks.
    Write {
        /// Zone.
        zone: ZoneId,
        /// First block: the write pointer once all earlier submitted writes have taken effect.
        block: u32,
        /// What to write.
        data: Vec<Buffer>,
    },
    /// Write at the write pointer, wherever that is when the command runs; the completion tells.
    Append {
        /// Zone.
        zone: ZoneId,
        /// What to write.
        data: Vec<Buffer>,
    },
    /// Empty the zone.
    Reset {
        /// Zone.
        zone: ZoneId,
        /// A hint to devices that live in a host file: the zone will be written again soon, keep
        /// its space allocated.
        keep_allocated: bool,
    },
    /// Make the zone full.
    Finish {
        /// Zone.
        zone: ZoneId,
    },
    /// Open the zone explicitly.
    Open {
        /// Zone.
        zone: ZoneId,
    },
    /// Close an open zone.
    Close {
        /// Zone.
        zone: ZoneId,
    },
    /// Have all that has completed outlive this process, though not the power: of back ends that keep write pointers in
    /// memory until a flush. To others there is nothing to do.
    Record,
    /// Make durable all that has completed.
    Flush,
}

impl Command {
    /// The zone it is for; none of a flush or record.
    pub fn zone_mut(&mut self) -> Option<&mut ZoneId> {
        match self {
            Command::Read { zone, .. }
            | Command::Write { zone, .. }
            | Command::Append { zone, .. }
            | Command::Reset { zone, .. }
            | Command::Finish { zone }
            | Command::Open { zone }
            | Command::Close { zone } => Some(zone),
            Command::Record | Command::Flush => None,
        }
    }

    /// Total blocks of `data`, for writes and appends.
    #[must_use]
    pub fn data_blocks(data: &[Buffer]) -> u32 {
        data.iter().map(Buffer::blocks).sum()
    }
}

/// What a command answers.
#[derive(Clone, Debug)]
pub enum Completion {
    /// The blocks read.
    Read(Buffer),
    /// Where an append landed: its first block in the zone.
    Appended(u32),
    /// Done; nothing to tell.
    Done,
}

impl Completion {
    /// For messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Completion::Read(_) => "read",
            Completion::Appended(_) => "append",
            Completion::Done => "done",
        }
    }
}

/// A command under way. Dropping it does not cancel the command.
#[derive(Debug)]
pub struct Pending(PendingState);

enum PendingState {
    Ready(Result<Completion>),
    Waiting(Arc<Slot>),
    Deferred(Box<dyn FnOnce() -> Result<Completion> + Send>),
    /// It is over when the other is, whose error is changed.
    Mapped(Box<Pending>, ErrorMap),
    /// It is over when the other is, and something is dropped then.
    Held(Box<Pending>, Box<dyn Send>),
}

type ErrorMap = Box<dyn FnOnce(DeviceError) -> DeviceError + Send>;

impl std::fmt::Debug for PendingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PendingState::Ready(result) => write!(f, "Ready({result:?})"),
            PendingState::Waiting(_) => write!(f, "Waiting"),
            PendingState::Deferred(_) => write!(f, "Deferred"),
            PendingState::Mapped(pending, _) => write!(f, "Mapped({pending:?})"),
            PendingState::Held(pending, _) => write!(f, "Held({pending:?})"),
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    result: Mutex<Option<Result<Completion>>>,
    done: Condvar,
}

/// The back end's end of a [`Pending`]. Dropped unanswered, it answers [`DeviceError::Gone`].
#[derive(Debug)]
pub struct Completer(Option<Arc<Slot>>);

impl Pending {
    /// A command that is over already.
    #[must_use]
    pub fn ready(result: Result<Completion>) -> Pending {
        Pending(PendingState::Ready(result))
    }

    /// A command that a back end will answer later.
    #[must_use]
    pub fn channel() -> (Completer, Pending) {
        let slot = Arc::new(Slot::default());
        (
            Completer(Some(Arc::clone(&slot))),
            Pending(PendingState::Waiting(slot)),
        )
    }

    /// A command that ends when its caller waits for it, by calling `finish`. For back ends that
    /// have no thread of their own.
    #[must_use]
    pub fn deferred(finish: impl FnOnce() -> Result<Completion> + Send + 'static) -> Pending {
        Pending(PendingState::Deferred(Box::new(finish)))
    }

    /// The same command, its error as `change` has it.
    #[must_use]
    pub(crate) fn map_err(
        self,
        change: impl FnOnce(DeviceError) -> DeviceError + Send + 'static,
    ) -> Pending {
        match self.0 {
            PendingState::Ready(result) => Pending::ready(result.map_err(change)),
            waiting => Pending(PendingState::Mapped(
                Box::new(Pending(waiting)),
                Box::new(change),
            )),
        }
    }

    /// The same command; `held` is dropped when its end is known, or with it.
    #[must_use]
    pub fn holding(self, held: impl Send + 'static) -> Pending {
        match self.0 {
            PendingState::Ready(result) => Pending::ready(result),
            waiting => Pending(PendingState::Held(
                Box::new(Pending(waiting)),
                Box::new(held),
            )),
        }
    }

    /// The result of a command that is known to be over; else the command, as it is. It does not wait, and of a
    /// command that ends when its caller waits for it nothing is known before.
    pub fn try_wait(self) -> std::result::Result<Result<Completion>, Pending> {
        match self.0 {
            PendingState::Ready(result) => Ok(result),
            PendingState::Deferred(finish) => Err(Pending(PendingState::Deferred(finish))),
            PendingState::Waiting(slot) => {
                let result = slot.result.lock().take();
                result.ok_or(Pending(PendingState::Waiting(slot)))
            }
            PendingState::Mapped(pending, change) => match pending.try_wait() {
                Ok(result) => Ok(result.map_err(change)),
                Err(pending) => Err(Pending(PendingState::Mapped(Box::new(pending), change))),
            },
            PendingState::Held(pending, held) => match pending.try_wait() {
                Ok(result) => Ok(result),
                Err(pending) => Err(Pending(PendingState::Held(Box::new(pending), held))),
            },
        }
    }

    /// Waits for the command to end.
    pub fn wait(self) -> Result<Completion> {
        match self.0 {
            PendingState::Ready(result) => result,
            PendingState::Deferred(finish) => finish(),
            PendingState::Mapped(pending, change) => pending.wait().map_err(change),
            PendingState::Held(pending, held) => {
                let result = pending.wait();
                drop(held);
                result
            }
            PendingState::Waiting(slot) => {
                let mut result = slot.result.lock();
                loop {
                    if let Some(result) = result.take() {
                        return result;
                    }
                    result = slot.done.wait(result);
                }
            }
        }
    }
}

impl Completer {
    /// Answers the command.
    pub fn complete(mut self, result: Result<Completion>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<Completion>) {
        if let Some(slot) = self.0.take() {
            *slot.result.lock() = Some(result);
            slot.done.notify_all();
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.answer(Err(DeviceError::Gone));
    }
}
