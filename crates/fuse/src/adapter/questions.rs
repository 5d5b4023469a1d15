//! Questions to the daemon, by reading an attribute: none is answered by a thread that serves the kernel, for anybody who may
//! read a file of the mount can ask as often as they like.

use std::sync::Arc;
use std::{io, mem};

use persimmon_sync::{Mutex, MutexGuard};

use persimmon_vfs::Ino;

use super::Adapter;
use super::pages::HeldBack;
use crate::answer::Door;
use crate::control;
use crate::live::{self, Live};
use crate::protocol::{self, Call, Errno, Header};
use crate::transport::{Later, Outcome, Transport};
use crate::workers::Workers;

/// Who may wait for a sync of the volume at once.
const WAITING_MAX: usize = 1024;

/// Where questions are answered.
pub(super) struct Questions {
    /// One thread: answers are short, and those who ask have no claim to more of the machine.
    pub(super) workers: Workers,
    syncs: Arc<Syncs>,
    /// Where the volume is synced, for all who wait.
    syncing: Workers,
}

/// Who waits for a sync of the volume.
#[derive(Default)]
struct Syncs(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Since the sync under way began, if there is one.
    list: Vec<Asked>,
    /// A job takes those who wait, and all who come before it has ended.
    has_job: bool,
}

/// Somebody who waits for an answer.
struct Asked {
    /// Room for it; 0 asks for its length.
    size: u32,
    later: Box<dyn Later>,
}

impl Asked {
    fn answer(self, value: Result<&[u8], Errno>) {
        let size = self.size as usize;
        self.later.answer(match value {
            Err(error) => Err(error),
            Ok(value) if size == 0 => Ok(protocol::length(value.len() as u32).to_vec()),
            Ok(value) if value.len() > size => Err(Errno(libc::ERANGE)),
            Ok(value) => Ok(value.to_vec()),
        });
    }
}

impl Syncs {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock()
    }

    /// Those who wait: one sync that begins now is enough for all of them. Nobody does: the job is over.
    fn take(&self) -> Vec<Asked> {
        let mut waiting = self.lock();
        let list = mem::take(&mut waiting.list);
        waiting.has_job = !list.is_empty();
        list
    }

    fn refuse(&self) {
        loop {
            let list = self.take();
            if list.is_empty() {
                return;
            }
            for asked in list {
                asked.answer(Err(Errno(libc::ENOTCONN)));
            }
        }
    }

    /// `pages` are those that the kernel writes first: by itself it does so only where it tells of `syncfs`, and before
    /// Linux 6.18.
    fn serve(&self, door: &Door, live: &dyn Live, pages: &HeldBack) {
        loop {
            let list = self.take();
            let Some(first) = list.first() else {
                return;
            };
            for ino in pages.all() {
                first.later.write_back(ino.0);
            }
            let answer = door.run("sync", |_| Ok(live.sync()));
            for asked in list {
                asked.answer(answer.as_deref().map_err(|error| *error));
            }
        }
    }
}

impl Questions {
    pub(super) fn start() -> io::Result<Questions> {
        Ok(Questions {
            workers: Workers::start("questions", 1)?,
            syncs: Arc::default(),
            syncing: Workers::start("sync-volume", 1)?,
        })
    }
}

impl Adapter {
    pub(super) fn getxattr(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome {
        let asked = call
            .fields()
            .u32()
            .and_then(|size| Ok((size, call.name()?)));
        let (size, name) = match asked {
            Ok(asked) => asked,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let question = name.strip_prefix(live::PREFIX.as_bytes());
        match question.and_then(|question| std::str::from_utf8(question).ok()) {
            None => Outcome::Now(self.stored_attribute(call, size)),
            Some(question) => match self.ask(&call.header, question, size, transport) {
                Ok(()) => Outcome::Later,
                Err(error) => Outcome::Now(Err(error)),
            },
        }
    }

    fn ask(
        &self,
        asking: &Header,
        question: &str,
        size: u32,
        transport: &dyn Transport,
    ) -> Result<(), Errno> {
        let (door, live) = (self.door.clone(), Arc::clone(&self.live));
        if question == live::SYNC {
            control::may(asking.uid)?;
            return self.ask_for_sync(size, transport);
        }
        let (of, question) = (Ino(asking.node), question.to_owned());
        let later = transport.later();
        let asked = self.questions.workers.try_run(move || {
            let answer = door.run("getxattr", |_| live.answer(of, &question));
            let asked = Asked { size, later };
            asked.answer(answer.as_deref().map_err(|error| *error));
        });
        asked.then_some(()).ok_or(Errno(libc::EAGAIN))
    }

    fn ask_for_sync(&self, size: u32, transport: &dyn Transport) -> Result<(), Errno> {
        // With no place left for what the kernel would write, a sync would be none.
        let later = transport.later_with_pages().ok_or(Errno(libc::EAGAIN))?;
        let asked = Asked { size, later };
        let mut waiting = self.questions.syncs.lock();
        if waiting.list.len() >= WAITING_MAX {
            drop(waiting);
            asked.answer(Err(Errno(libc::EAGAIN)));
            return Ok(());
        }
        waiting.list.push(asked);
        if mem::replace(&mut waiting.has_job, true) {
            return Ok(());
        }
        drop(waiting);
        let (door, live) = (self.door.clone(), Arc::clone(&self.live));
        let (syncs, pages) = (Arc::clone(&self.questions.syncs), Arc::clone(&self.pages));
        let started = self
            .questions
            .syncing
            .try_run(move || syncs.serve(&door, &*live, &pages));
        if !started {
            // There is one job at a time, so the queue has room unless the mount is over.
            self.questions.syncs.refuse();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
