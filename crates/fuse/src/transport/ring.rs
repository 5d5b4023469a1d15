//! Requests and answers through io_uring: one ring for each processor, served by a thread that
//! runs on no other. The kernel gives a request to the ring of the processor that the asking
//! thread is on, so no other processor has to be woken, and an answer and the wait for the next
//! request are one system call.
//!
//! Each ring has a few places for requests. A place is registered, then the kernel completes its
//! command with each request that it puts there; the command that commits the answer fetches the
//! next.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, ThreadId};

use persimmon_sync::Mutex;

use bytemuck::bytes_of;
use io_uring::opcode::{PollAdd, UringCmd80};
use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use tracing::{error, warn};

use super::memory::{HEADERS_LEN, Memory};
use super::{Connection, Later, Outcome, Transport, device};
use crate::capabilities::MAX_WRITE_BYTES;
use crate::protocol::{ANSWER_HEADER_LEN, Call, Errno, Fields, HEADER_LEN, Header};

/// Requests a ring holds at once; more wait in the kernel. It takes the place that was free last, so that the memory of
/// most is never touched: they are there for requests that wait for others.
const PLACES: usize = 64;
/// Those whose request may wait for others of the kernel's, which need places to come in.
const PLACES_WITH_PAGES_MAX: usize = PLACES - 4;
/// Requests after which answers go to the kernel, though more have arrived.
const ANSWERS_AT_ONCE: usize = 8;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Where the fixed part of an operation is in a request's headers.
const FIXED_AT: usize = 128;
/// Where it is said how many bytes follow in the payload, and by which number the request is
/// committed.
const REST_AT: usize = 256;
const COMMIT_ID_AT: usize = REST_AT + 8;
const SENT_AT: usize = REST_AT + 16;

/// Stands for "answers have been given by other threads" among the completions.
const WOKEN: u64 = u64::MAX;

/// Whether the kernel is set to offer it (`modprobe fuse enable_uring=1`).
pub fn is_enabled() -> bool {
    let setting = std::fs::read("/sys/module/fuse/parameters/enable_uring");
    setting.is_ok_and(|setting| matches!(setting.first(), Some(b'Y' | b'1')))
}

/// Processors that there may be; each needs a ring, also one that is switched off.
fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next();
    let last = last.and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1)
        .ok_or_else(|| io::Error::other(format!("processors '{text}'")))
}

/// Whether the system gives such rings to this process.
///
/// # Errors
/// Why it does not.
pub fn probe() -> io::Result<usize> {
    build()?;
    processors()
}

type Uring = IoUring<Entry128, cqueue::Entry>;

fn build() -> io::Result<Uring> {
    let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
    builder.setup_single_issuer();
    builder.setup_coop_taskrun();
    builder.setup_defer_taskrun();
    builder.build(2 * PLACES as u32 + 2)
}

/// Starts a thread for each ring, and waits until all are registered.
pub fn start(connection: &Arc<Connection>) -> io::Result<()> {
    let count = processors()?;
    let (sender, ready) = sync_channel(count);
    for queue in 0..count {
        let sender = sender.clone();
        super::start(
            format!("fuse-ring-{queue}"),
            connection,
            move |connection| serve(connection, queue, &sender),
        )?;
    }
    drop(sender);
    for _ in 0..count {
        ready.recv().map_err(io::Error::other)??;
    }
    Ok(())
}

fn serve(
    connection: &Connection,
    queue: usize,
    ready: &SyncSender<io::Result<()>>,
) -> io::Result<()> {
    let ring = Ring::new(connection, queue);
    let mut ring = match ring.and_then(|mut ring| ring.register().map(|()| ring)) {
        Ok(ring) => ring,
        // Who started it takes it from here.
        Err(error) => return ready.send(Err(error)).map_err(io::Error::other),
    };
    ready.send(Ok(())).map_err(io::Error::other)?;
    ring.run(connection)
}

/// A place, and the answer to the request in it.
type Answer = (usize, Result<Vec<u8>, Errno>);

/// Answers that were given later, by other threads for the most part.
struct Answered {
    list: Mutex<Vec<Answer>>,
    /// The ring's own thread, which looks at the list before it waits: it need not be woken.
    owner: ThreadId,
    event: OwnedFd,
    device: OwnedFd,
    /// Places whose request waits for what the kernel writes back.
    with_pages: AtomicUsize,
}

impl Answered {
    fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.list.lock())
    }

    /// Has the ring look at the list, and at what has arrived.
    fn wake(&self) {
        if let Err(error) = rustix::io::write(&self.event, bytes_of(&1u64)) {
            error!("waking a ring: {error}");
        }
    }

    fn is_woken(&self) {
        let mut count = [0; 8];
        // Nothing to read: it was read with an earlier answer.
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

struct Deferred {
    answered: Arc<Answered>,
    place: usize,
    /// What the kernel writes back meanwhile needs places too.
    with_pages: bool,
}

impl Deferred {
    fn waits_no_more(&self) {
        if self.with_pages {
            self.answered.with_pages.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Transport for Deferred {
    fn later(&self) -> Box<dyn Later> {
        Box::new(Deferred {
            answered: Arc::clone(&self.answered),
            place: self.place,
            with_pages: false,
        })
    }

    fn later_with_pages(&self) -> Option<Box<dyn Later>> {
        let waiting = &self.answered.with_pages;
        if waiting.fetch_add(1, Ordering::Relaxed) >= PLACES_WITH_PAGES_MAX {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Box::new(Deferred {
            answered: Arc::clone(&self.answered),
            place: self.place,
            with_pages: true,
        }))
    }

    fn forget_attributes(&self, node: u64) {
        device::knows(self.answered.device.as_fd(), node);
    }

    /// What the kernel forgets does not come through rings.
    fn knows(&self, _node: u64) -> bool {
        true
    }
}

impl Later for Deferred {
    fn write_back(&self, node: u64) {
        device::write_back(self.answered.device.as_fd(), node);
    }

    fn forget_name(&self, directory: u64, name: &[u8]) {
        device::forget_name(self.answered.device.as_fd(), directory, name);
    }

    fn forget_attributes(&self, node: u64) {
        device::knows(self.answered.device.as_fd(), node);
    }

    fn transport(self: Box<Self>) -> Box<dyn Transport> {
        self.waits_no_more();
        let Deferred {
            answered, place, ..
        } = *self;
        Box::new(Deferred {
            answered,
            place,
            with_pages: false,
        })
    }

    fn answer(self: Box<Self>, result: Result<Vec<u8>, Errno>) {
        self.waits_no_more();
        self.answered.list.lock().push((self.place, result));
        if thread::current().id() != self.answered.owner {
            self.answered.wake();
        }
    }
}

struct Ring {
    queue: u16,
    uring: Uring,
    memory: Memory,
    /// Places that the kernel serves, or whose request is being served.
    live: usize,
    answered: Arc<Answered>,
}

impl Ring {
    fn new(connection: &Connection, queue: usize) -> io::Result<Ring> {
        let mut processor = CpuSet::new();
        processor.set(queue);
        // One that is switched off has no requests.
        if let Err(error) = sched_setaffinity(None, &processor) {
            warn!("ring {queue} is not bound to its processor: {error}");
        }
        let uring = build()?;
        let device = connection.device.as_raw_fd();
        uring.submitter().register_files(&[device])?;
        Ok(Ring {
            queue: u16::try_from(queue).map_err(io::Error::other)?,
            uring,
            memory: Memory::new(PLACES, MAX_WRITE_BYTES as usize)?,
            live: 0,
            answered: Arc::new(Answered {
                list: Mutex::default(),
                owner: thread::current().id(),
                event: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
                device: connection.device.try_clone()?,
                with_pages: AtomicUsize::new(0),
            }),
        })
    }

    fn command(&self, operation: u32, commit_id: u64) -> UringCmd80 {
        let mut command = [0; 80];
        // Flags, of which there are none, the request, the queue.
        let parts = [0; 8].iter().chain(bytes_of(&commit_id));
        let parts = parts.chain(bytes_of(&self.queue));
        for (to, from) in command.iter_mut().zip(parts) {
            *to = *from;
        }
        UringCmd80::new(Fixed(0), operation).cmd(command)
    }

    #[allow(unsafe_code)]
    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        // SAFETY: what entries point to are the places' memory, which lives until the kernel has
        // let go of it, and the descriptors of the device and the event, which the ring, the
        // connection and `answered` hold.
        let pushed = unsafe { self.uring.submission().push(entry) };
        // There is room for a command of every place and the poll.
        pushed.map_err(io::Error::other)
    }

    fn watch(&mut self) -> io::Result<()> {
        let event = io_uring::types::Fd(self.answered.event.as_fd().as_raw_fd());
        let poll = PollAdd::new(event, libc::POLLIN as u32).build();
        self.push(&Entry128::from(poll.user_data(WOKEN)))
    }

    /// Offers all places to the kernel.
    fn register(&mut self) -> io::Result<()> {
        self.watch()?;
        for place in 0..PLACES {
            let vectors = self.memory.lend(place).ok_or(io::ErrorKind::Other)?;
            let command = self.command(REGISTER, 0).addr(Some(vectors));
            let mut entry = command.build().user_data(place as u64);
            set_len(&mut entry, 2);
            self.push(&entry)?;
            self.live += 1;
        }
        self.uring.submit()?;
        let refused = self.uring.completion().find(|done| done.result() < 0);
        match refused {
            Some(done) => Err(io::Error::from_raw_os_error(-done.result())),
            None => Ok(()),
        }
    }

    /// Serves until the connection ends.
    fn run(&mut self, connection: &Connection) -> io::Result<()> {
        let mut arrived = Vec::with_capacity(PLACES);
        while self.live > 0 {
            match self.uring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let mut unsubmitted = 0;
            let done = self.uring.completion();
            arrived.extend(done.map(|done| (done.user_data(), done.result())));
            for (what, result) in arrived.drain(..) {
                if what == WOKEN {
                    self.answered.is_woken();
                    self.commit_answered()?;
                    self.watch()?;
                    continue;
                }
                let place = what as usize;
                self.memory.returned(place);
                if result < 0 {
                    check_end(-result)?;
                    self.live = self.live.saturating_sub(1);
                } else if let Outcome::Now(answer) = self.serve(place, connection) {
                    self.commit(place, answer)?;
                    unsubmitted += 1;
                }
                if unsubmitted >= ANSWERS_AT_ONCE {
                    self.uring.submit()?;
                    unsubmitted = 0;
                }
            }
            // Once, for what others put off does not end while they go on: requests of this processor come in between.
            if connection.server.serve_waiting() {
                self.answered.wake();
            }
            self.commit_answered()?;
        }
        Ok(())
    }

    /// Gives the kernel what was answered later.
    fn commit_answered(&mut self) -> io::Result<()> {
        for (place, result) in self.answered.take() {
            let answer = result.and_then(|body| self.fill(place, &body));
            self.commit(place, answer)?;
        }
        Ok(())
    }

    fn serve(&mut self, place: usize, connection: &Connection) -> Outcome {
        let transport = Deferred {
            answered: Arc::clone(&self.answered),
            place,
            with_pages: false,
        };
        let Some((headers, payload)) = self.memory.get(place) else {
            return Outcome::Never;
        };
        let (header, rest) = headers.split_at(HEADER_LEN.min(HEADERS_LEN));
        let fixed = rest.get(FIXED_AT - HEADER_LEN..REST_AT - HEADER_LEN);
        let sent = rest.get(SENT_AT - HEADER_LEN..).map(Fields);
        let sent = sent.and_then(|mut fields| fields.u32().ok());
        let header = match Header::parse(header) {
            Ok(header) => header,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let fixed = fixed.unwrap_or_default();
        let mut call = Call::new(header, fixed, payload, sent.unwrap_or(0) as usize);
        match connection.server.serve(&mut call, &transport) {
            // Nothing comes this way that wants no answer; but the place must go back.
            Outcome::Never => Outcome::Now(Ok(0)),
            outcome => outcome,
        }
    }

    /// Puts the body of an answer where the kernel takes it from.
    fn fill(&mut self, place: usize, body: &[u8]) -> Result<usize, Errno> {
        let payload = self.memory.get(place).map(|(_, payload)| payload);
        let room = payload.and_then(|payload| payload.get_mut(..body.len()));
        room.ok_or(Errno(libc::EIO))?.copy_from_slice(body);
        Ok(body.len())
    }

    /// Gives an answer to the kernel, and the place for the next request.
    fn commit(&mut self, place: usize, answer: Result<usize, Errno>) -> io::Result<()> {
        let Some((headers, _)) = self.memory.get(place) else {
            return Ok(());
        };
        let (error, len) = match answer {
            Ok(len) => (0, len),
            Err(error) => (error.0, 0),
        };
        let unique = Header::parse(headers).map_or(0, |header| header.unique);
        let commit_id = headers.get(COMMIT_ID_AT..).map(Fields);
        let commit_id = commit_id.and_then(|mut fields| fields.u64().ok());
        let answer = Header::answer(unique, error, len);
        if let Some(to) = headers.get_mut(..ANSWER_HEADER_LEN) {
            to.copy_from_slice(&answer);
        }
        if let Some(to) = headers.get_mut(SENT_AT..SENT_AT + 4) {
            to.copy_from_slice(bytes_of(&(len as u32)));
        }
        self.memory.lend(place);
        let command = self.command(COMMIT_AND_FETCH, commit_id.unwrap_or(0));
        self.push(&command.build().user_data(place as u64))
    }
}

/// The crate has no setter for the number of vectors of such a command.
#[allow(unsafe_code)]
fn set_len(entry: &mut Entry128, len: u32) {
    const LEN_AT: usize = 24;
    // SAFETY: an entry is the 128 bytes of the kernel's `struct io_uring_sqe`, in which `len` is
    // the aligned number at this place.
    unsafe {
        let bytes: *mut u8 = std::ptr::from_mut(entry).cast();
        bytes.add(LEN_AT).cast::<u32>().write(len);
    }
}

/// A place that is served no more: with the mount, or because of an error.
fn check_end(error: i32) -> io::Result<()> {
    match error {
        libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
