//! What becomes of commands when a thread of the device panics: all that wait are refused, and all that come. What the
//! kernel has is waited for, since it reads and writes that memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Port;
use super::queue::{Job, Shared};
use crate::{Completer, DeviceError};

impl<P: Port> Shared<P> {
    /// Does what completed transfers ask for, until the device is closed.
    pub fn collect(&self) {
        let collected = catch_unwind(AssertUnwindSafe(|| self.collect_until_stopped()));
        let mut is_stopped = collected.is_ok();
        if collected.is_err() {
            self.give_up();
        }
        while !(is_stopped && self.ring.is_idle()) {
            for job in self.ring.abandon() {
                is_stopped |= matches!(job, Job::Stop);
                self.refuse(job.into_completers());
            }
        }
    }

    /// Does what is to be done to zones, until the device is closed.
    pub fn manage_all(&self) {
        if catch_unwind(AssertUnwindSafe(|| self.manage_until_stopped())).is_err() {
            self.give_up();
        }
    }

    /// Takes nothing any more, and refuses all that wait. The command that the thread was at has been answered by the end
    /// of its completer.
    fn give_up(&self) {
        tracing::error!("a thread of the drive panicked; the drive takes no more commands");
        let (queues, to_manage) = {
            let mut state = self.lock();
            state.has_panicked = true;
            (
                std::mem::take(&mut state.queues),
                std::mem::take(&mut state.to_manage),
            )
        };
        self.wake_all();
        self.refuse(to_manage.into_iter().map(|managed| managed.completer));
        for queue in queues.into_values() {
            let (completers, holds) = queue.into_waiting();
            drop(holds);
            self.refuse(completers);
        }
    }

    fn refuse(&self, completers: impl IntoIterator<Item = Completer>) {
        let refused = completers.into_iter();
        self.answer(
            refused
                .map(|completer| (completer, Err(DeviceError::Stopped)))
                .collect(),
        );
    }
}
