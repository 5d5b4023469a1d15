//! A frozen mount: changes that the kernel asks for are put aside, so that the threads that answer it go on answering what only reads, and
//! the request to thaw. Once thawed they are carried out, in their order.
//!
//! A freeze has an end whatever becomes of who asked for it: its time is over sooner or later. It ends, too, where so many changes wait that
//! the kernel would send nothing else any more.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use persimmon_sync::{Condvar, Mutex};
use tracing::{info, warn};

use super::pages::HeldBack;
use crate::answer::Door;
use crate::freeze::{Answer, Asked, Ended};
use crate::protocol::{Call, Errno, Header, opcode};
use crate::transport::{Later, Outcome, Serve, Transport};

/// Changes that wait at most, and their bytes.
const PARKED_MAX: usize = 4096;
const PARKED_BYTES_MAX: usize = 64 << 20;
/// Of those, writes from the kernel's cache: as reading ahead does, they take places of which the kernel has a few.
const PARKED_CACHE_WRITES_MAX: usize = 16;
/// How long what is under way may take to end.
const REST_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
/// Room for an answer in the place of what was sent.
const ANSWER_BYTES: usize = 4096;

/// Whether a mount is frozen, and what waits.
pub struct Freezer {
    door: Door,
    pages: Arc<HeldBack>,
    /// Changes are put aside. Set before it is waited for those under way, which look at it after they have counted themselves.
    parks: AtomicBool,
    under_way: Arc<Counts>,
    state: Mutex<State>,
    changed: Condvar,
    /// Who carries out what waited.
    server: OnceLock<Weak<dyn Serve>>,
}

#[derive(Default)]
struct State {
    /// The freeze that is there or comes.
    freeze: Option<Freeze>,
    /// The thread of the last one has not ended.
    is_at_work: bool,
    /// The number of the last one.
    last: u64,
    ended: Ended,
    parked: Vec<Parked>,
    parked_bytes: usize,
    parked_cache_writes: usize,
}

struct Freeze {
    since: Instant,
    until: Instant,
}

/// A change that waits.
struct Parked {
    header: Header,
    fixed: Vec<u8>,
    body: Vec<u8>,
    sent: usize,
    later: Box<dyn Later>,
}

/// Changes under way.
#[derive(Default)]
struct Counts {
    all: AtomicUsize,
    /// Of those, carried out by threads of their own, which wait for pages that the kernel sends as other changes.
    apart: AtomicUsize,
}

/// A change under way, until dropped.
pub struct UnderWay {
    counts: Arc<Counts>,
    is_apart: bool,
}

impl UnderWay {
    fn new(counts: &Arc<Counts>, is_apart: bool) -> UnderWay {
        counts.all.fetch_add(1, Ordering::SeqCst);
        counts
            .apart
            .fetch_add(usize::from(is_apart), Ordering::SeqCst);
        UnderWay {
            counts: Arc::clone(counts),
            is_apart,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let apart = usize::from(self.is_apart);
        self.counts.apart.fetch_sub(apart, Ordering::SeqCst);
        self.counts.all.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Freezer {
    pub fn new(door: Door, pages: Arc<HeldBack>) -> Freezer {
        Freezer {
            door,
            pages,
            parks: AtomicBool::new(false),
            under_way: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::default(),
            server: OnceLock::new(),
        }
    }

    /// Who is to carry out what waited, once.
    pub fn served_by(&self, server: Weak<dyn Serve>) {
        let _ = self.server.set(server);
    }

    /// To be asked before a request is carried out. `Err`: it was put aside.
    pub fn admit(
        &self,
        call: &Call<'_>,
        transport: &dyn Transport,
    ) -> Result<Option<UnderWay>, Outcome> {
        if !is_change(call) {
            return Ok(None);
        }
        loop {
            let under_way = UnderWay::new(&self.under_way, false);
            let parks = self.parks.load(Ordering::SeqCst);
            // Some wait for pages: the freeze waits for those, and they for what holds the pages, of which no more begin.
            let is_awaited = self.under_way.apart.load(Ordering::SeqCst) > 0 && !may_be_apart(call);
            if !parks || is_awaited {
                return Ok(Some(under_way));
            }
            drop(under_way);
            if self.park(call, transport) {
                return Err(match call.header.opcode {
                    opcode::FORGET | opcode::BATCH_FORGET => Outcome::Never,
                    _ => Outcome::Later,
                });
            }
        }
    }

    /// A change goes on being under way on a thread of its own, which has the kernel write pages. To be asked for before the request that it
    /// came with is done.
    pub fn goes_on_apart(&self) -> UnderWay {
        UnderWay::new(&self.under_way, true)
    }

    /// Puts a change aside; false where changes are not put aside any more.
    fn park(&self, call: &Call<'_>, transport: &dyn Transport) -> bool {
        let mut state = self.state.lock();
        if !self.parks.load(Ordering::SeqCst) {
            return false;
        }
        let is_cache_write = is_cache_write(call);
        let has_room = state.parked.len() < PARKED_MAX
            && state.parked_bytes + call.data().len() <= PARKED_BYTES_MAX
            && (!is_cache_write || state.parked_cache_writes < PARKED_CACHE_WRITES_MAX);
        let Some(later) = has_room.then(|| transport.later_with_pages()).flatten() else {
            drop(state);
            self.end(Ended::Crowded);
            return false;
        };
        let sent = call.data().len();
        let mut body = call.data().to_vec();
        body.resize(sent.max(ANSWER_BYTES), 0);
        state.parked_bytes += sent;
        state.parked_cache_writes += usize::from(is_cache_write);
        state.parked.push(Parked {
            header: call.header,
            fixed: call.fields().0.to_vec(),
            body,
            sent,
            later,
        });
        true
    }

    /// Freezes, and whatever else is asked.
    pub fn ask(
        self: &Arc<Self>,
        asked: Asked,
        transport: &dyn Transport,
    ) -> Result<Answer, Outcome> {
        let mut state = self.state.lock();
        let number = state.last;
        let is_at_work = state.is_at_work;
        match (asked, &mut state.freeze) {
            (Asked::Freeze(_), _) if is_at_work => Err(Outcome::Now(Err(Errno(libc::EBUSY)))),
            (Asked::Freeze(time), _) => {
                let Some(later) = transport.later_with_pages() else {
                    return Err(Outcome::Now(Err(Errno(libc::EAGAIN))));
                };
                let now = Instant::now();
                state.freeze = Some(Freeze {
                    since: now,
                    until: now + time + REST_MAX,
                });
                state.last += 1;
                state.is_at_work = true;
                drop(state);
                let freezer = Arc::clone(self);
                let started = thread::Builder::new()
                    .name("freeze".into())
                    .spawn(move || freezer.freeze(time, later));
                Err(match started {
                    Ok(_) => Outcome::Later,
                    Err(error) => {
                        warn!("cannot start a thread to freeze: {error}");
                        self.end(Ended::Asked);
                        self.state.lock().is_at_work = false;
                        Outcome::Now(Err(Errno(libc::EAGAIN)))
                    }
                })
            }
            (Asked::Prolong(of, time), Some(freeze)) if of == number => {
                freeze.until = freeze.until.max(Instant::now() + time);
                Ok(Answer::Frozen(number))
            }
            (Asked::Thaw(of), Some(freeze)) if of == number || of == 0 => {
                let time = freeze.since.elapsed();
                drop(state);
                self.end(Ended::Asked);
                Ok(Answer::Thawed(time))
            }
            (Asked::Prolong(..) | Asked::Thaw(_), _) => Ok(Answer::NotFrozen(state.ended)),
        }
    }

    /// Ends a freeze, if there is one. Waits for nothing.
    pub fn end(&self, why: Ended) {
        let mut state = self.state.lock();
        if state.freeze.take().is_some() {
            state.ended = why;
            self.door.vfs.thaw();
            self.parks.store(false, Ordering::SeqCst);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Freezes, answers, waits for the end, and has carried out what waited.
    fn freeze(&self, time: Duration, later: Box<dyn Later>) {
        // What the kernel holds back comes before.
        for ino in self.pages.all() {
            later.write_back(ino.0);
        }
        let number = self.park_from_now_on();
        let frozen = match number {
            Some(_) => self.come_to_rest(),
            // Somebody was faster to end it.
            None => Err(Errno(libc::EINTR)),
        };
        match (frozen, number) {
            (Ok(()), Some(number)) => {
                if let Some(freeze) = &mut self.state.lock().freeze {
                    (freeze.since, freeze.until) = (Instant::now(), Instant::now() + time);
                }
                info!("frozen");
                let answer = crate::freeze::encode(Answer::Frozen(number));
                later.answer(Ok(super::attributes::whole(&answer)));
                self.wait_for_end();
            }
            (Ok(()), None) => later.answer(Err(Errno(libc::EINTR))),
            (Err(error), _) => later.answer(Err(error)),
        }
        self.go_on();
    }

    /// Puts changes aside from now on, unless the freeze is over. Tells its number.
    fn park_from_now_on(&self) -> Option<u64> {
        let state = self.state.lock();
        state.freeze.is_some().then(|| {
            self.parks.store(true, Ordering::SeqCst);
            state.last
        })
    }

    /// Has carried out what waits, whatever has ended the freeze, and lets another one begin.
    fn go_on(&self) {
        self.end(Ended::Asked);
        let parked = {
            let mut state = self.state.lock();
            // It may have ended before the volume began to freeze.
            self.door.vfs.thaw();
            self.parks.store(false, Ordering::SeqCst);
            (state.parked_bytes, state.parked_cache_writes) = (0, 0);
            std::mem::take(&mut state.parked)
        };
        let server = self.server.get().and_then(Weak::upgrade);
        if let Some(server) = server {
            for parked in parked {
                parked.serve(&*server);
            }
            while server.serve_waiting() {}
        }
        self.state.lock().is_at_work = false;
    }

    /// Makes everything durable, and waits until nothing is written any more.
    fn come_to_rest(&self) -> Result<(), Errno> {
        let begun = Instant::now();
        let rests = |is_over: &dyn Fn() -> bool| {
            loop {
                if begun.elapsed() > REST_MAX {
                    warn!("not frozen: changes that were under way have not ended");
                    return Err(Errno(libc::EBUSY));
                }
                if is_over() {
                    return Ok(());
                }
                thread::sleep(LOOK);
            }
        };
        rests(&|| self.under_way.all.load(Ordering::SeqCst) == 0)?;
        let vfs = &self.door.vfs;
        loop {
            self.door.run("freeze", |vfs| vfs.begin_freezing())?;
            rests(&|| vfs.comes_to_rest())?;
            // Background work may have ended with a record that is not durable: a sync would wait for it until the thaw.
            if vfs.is_read_only() || vfs.volume().is_settled() {
                break;
            }
            vfs.thaw();
            rests(&|| true)?;
        }
        self.door.run("freeze", |vfs| vfs.flush_frozen())
    }

    fn wait_for_end(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(freeze) = &state.freeze else {
                info!("thawed");
                return;
            };
            let left = freeze.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                warn!("thawed, because nobody has done so in the time of the freeze");
                return self.end(Ended::Time);
            }
            state = self
                .changed
                .wait_timeout_while(state, left, |state| state.freeze.is_some());
        }
    }
}

impl Parked {
    fn serve(mut self, server: &dyn Serve) {
        let transport = self.later.transport();
        let mut call = Call::new(self.header, &self.fixed, &mut self.body, self.sent);
        if let Outcome::Now(answer) = server.serve(&mut call, &*transport) {
            let body = answer.map(|len| self.body.get(..len).unwrap_or_default().to_vec());
            transport.later().answer(body);
        }
    }
}

/// Whether a request may be carried out by another thread, which has the kernel write pages.
fn may_be_apart(call: &Call<'_>) -> bool {
    matches!(
        call.header.opcode,
        opcode::RENAME | opcode::RENAME2 | opcode::MKDIR | opcode::RMDIR | opcode::IOCTL
    )
}

/// Whether a request changes something, or has it freed. Commands to the daemon, and trimming, are none: nobody else waits for those.
fn is_change(call: &Call<'_>) -> bool {
    match call.header.opcode {
        opcode::SETATTR
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::WRITE
        | opcode::SETXATTR
        | opcode::REMOVEXATTR
        | opcode::FALLOCATE
        | opcode::COPY_FILE_RANGE
        | opcode::FORGET
        | opcode::BATCH_FORGET => true,
        opcode::OPEN => {
            let flags = call.fields().u32().unwrap_or(0);
            flags.cast_signed() & libc::O_TRUNC != 0
        }
        opcode::IOCTL => super::attributes::is_changing_ioctl(call),
        _ => false,
    }
}

fn is_cache_write(call: &Call<'_>) -> bool {
    let mut fields = call.fields();
    // Handle, offset and size come before.
    let flags = fields.skip_u64().and_then(|()| fields.skip_u64());
    let flags = flags.and_then(|()| fields.skip_u32());
    call.header.opcode == opcode::WRITE
        && flags
            .and_then(|()| fields.u32())
            .is_ok_and(|flags| flags & super::files::WRITE_CACHE != 0)
}

#[cfg(test)]
mod tests;
