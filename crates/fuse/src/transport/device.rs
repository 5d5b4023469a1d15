//! Requests read from `/dev/fuse`, answers written to it.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as SystemErrno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use tracing::{debug, warn};

use super::memory::Room;
use super::{Connection, Later, Outcome, Transport};
use crate::capabilities::MAX_WRITE_BYTES;
use crate::protocol::{self, Call, Errno, HEADER_LEN, Header, MALFORMED, fixed_len};
use crate::write_back::WriteBack;

/// The largest request, and more.
const REQUEST_BYTES: usize = MAX_WRITE_BYTES as usize + (64 << 10);

const PAGE: usize = 4096;
/// Bytes of a request to write, or to read, before what is written, or where the answer goes.
const BEFORE_DATA: usize = HEADER_LEN + 40;
/// The largest request, and what is before it to have it begin where it is to.
const BUFFER_BYTES: usize = REQUEST_BYTES + PAGE;

/// How long what the kernel forgets may pile up where nothing else comes from the device: it is
/// then told in one request, and freed in few transactions.
const FORGETTING: Duration = Duration::from_millis(5);

const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// One more descriptor of a connection.
#[allow(unsafe_code)]
pub fn clone(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let new = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let number = device.as_raw_fd().cast_unsigned();
    // SAFETY: the kernel reads the number of a descriptor, four bytes, through the pointer; the
    // descriptor is borrowed until it has done so.
    unsafe { ioctl(&new, Setter::<CLONE, u32>::new(number)) }?;
    Ok(new)
}

/// Descriptors of the connection of `device` for so many threads. Requests are handed out to whoever reads; a descriptor each spares
/// them a lock. What was read from one is answered through it, and given up when it is closed by all.
pub fn descriptors(device: BorrowedFd<'_>, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut all = vec![device.try_clone_to_owned()?];
    for _ in 1..count {
        all.push(clone(device)?);
    }
    Ok(all)
}

/// Has the kernel send again what was read before through any descriptor of the connection and not answered. Nobody reads from it
/// meanwhile.
pub fn resend(device: BorrowedFd<'_>) -> io::Result<()> {
    rustix::io::write(device, &protocol::resend())?;
    Ok(())
}

/// Whether the kernel refers to inode `node`. By having it forget the attributes, which finds the inode or says that there is none. One
/// that it is about to let go of it waits for.
pub fn knows(device: BorrowedFd<'_>, node: u64) -> bool {
    let message = protocol::forget_attributes(node);
    let told = rustix::io::write(device, &message);
    told != Err(SystemErrno::NOENT)
}

struct Device {
    device: Arc<OwnedFd>,
    write_back: Arc<WriteBack>,
    unique: u64,
}

impl Transport for Device {
    fn later(&self) -> Box<dyn Later> {
        Box::new(Device {
            device: Arc::clone(&self.device),
            write_back: Arc::clone(&self.write_back),
            unique: self.unique,
        })
    }

    fn forget_attributes(&self, node: u64) {
        knows(self.device.as_fd(), node);
    }

    fn knows(&self, node: u64) -> bool {
        knows(self.device.as_fd(), node)
    }
}

/// Has the kernel write back the content of an inode.
pub fn write_back(device: BorrowedFd<'_>, node: u64) {
    match rustix::io::write(device, &protocol::write_back(node)) {
        // It does not refer to the inode: then it holds nothing back.
        Ok(_) | Err(SystemErrno::NOENT) => {}
        Err(error) => warn!("having inode {node} written back: {error}"),
    }
}

/// Has the kernel forget a name.
pub fn forget_name(device: BorrowedFd<'_>, directory: u64, name: &[u8]) {
    match rustix::io::write(device, &protocol::forget_name(directory, name)) {
        // It remembers nothing of it.
        Ok(_) | Err(SystemErrno::NOENT) => {}
        Err(error) => warn!("having a name in inode {directory} forgotten: {error}"),
    }
}

impl Later for Device {
    fn write_back(&self, node: u64) {
        self.write_back.write_back(&self.device, node);
    }

    fn forget_name(&self, directory: u64, name: &[u8]) {
        forget_name(self.device.as_fd(), directory, name);
    }

    fn forget_attributes(&self, node: u64) {
        knows(self.device.as_fd(), node);
    }

    fn transport(self: Box<Self>) -> Box<dyn Transport> {
        self
    }

    fn answer(self: Box<Self>, result: Result<Vec<u8>, Errno>) {
        match result {
            Ok(body) => send(self.device.as_fd(), self.unique, 0, &body),
            Err(error) => send(self.device.as_fd(), self.unique, error.0, &[]),
        }
    }
}

/// The memory in which one thread that calls [`run`] receives requests.
pub fn room(connection: &Connection) -> io::Result<Room> {
    let mut buffer = Room::new(BUFFER_BYTES)?;
    if connection.write_back.is_supervised() {
        lock(&mut buffer);
    }
    Ok(buffer)
}

/// Has all of it be in memory: the kernel copies a request there without waiting for a page. Otherwise it would end the request of a daemon
/// that is killed at that moment with an error.
#[allow(unsafe_code)]
fn lock(buffer: &mut Room) {
    buffer.fill(1);
    // SAFETY: it changes nothing of the memory but that it is not taken away; where the system refuses that, it mostly is not
    // either.
    unsafe { libc::mlock(buffer.as_ptr().cast(), buffer.len()) };
}

/// Where a request is read to, so that what is written begins at a page. The kernel copies pages: so it copies each by itself, where it
/// would copy two parts of each, and so does who stages them.
fn request(buffer: &mut Room) -> &mut [u8] {
    buffer.get_mut(PAGE - BEFORE_DATA..).unwrap_or_default()
}

/// Serves until the connection ends. `lazily` is for a device from which only those requests come
/// that nobody waits for.
pub fn run(
    device: OwnedFd,
    mut room: Room,
    connection: &Connection,
    lazily: bool,
) -> io::Result<()> {
    let server = &*connection.server;
    let device = Arc::new(device);
    let buffer = request(&mut room);
    loop {
        let len = match rustix::io::read(&device, &mut *buffer) {
            Ok(len) => len,
            // One that was broken off before it was read.
            Err(SystemErrno::NOENT | SystemErrno::INTR | SystemErrno::AGAIN) => continue,
            Err(SystemErrno::NODEV) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let answered = serve(&device, connection, buffer, len);
        while server.serve_waiting() {}
        if lazily && !answered && server.may_forget_late() {
            thread::sleep(FORGETTING);
        }
    }
}

/// Serves the request in the first `len` bytes. True if somebody waited for it.
fn serve(device: &Arc<OwnedFd>, connection: &Connection, buffer: &mut [u8], len: usize) -> bool {
    let Some((header, rest)) = buffer.split_at_mut_checked(HEADER_LEN) else {
        return false;
    };
    let Ok(header) = Header::parse(header) else {
        return false;
    };
    let fixed = fixed_len(header.opcode, connection.agreed.setxattr_ext);
    let sent = len.checked_sub(HEADER_LEN + fixed);
    let (Some(sent), Some((fixed, body))) = (sent, rest.split_at_mut_checked(fixed)) else {
        send(device.as_fd(), header.unique, MALFORMED.0, &[]);
        return true;
    };
    let transport = Device {
        device: Arc::clone(device),
        write_back: Arc::clone(&connection.write_back),
        unique: header.unique,
    };
    let outcome = connection
        .server
        .serve(&mut Call::new(header, fixed, body, sent), &transport);
    match outcome {
        Outcome::Now(Ok(len)) => {
            let body = body.get(..len).unwrap_or_default();
            send(device.as_fd(), header.unique, 0, body);
        }
        Outcome::Now(Err(error)) => send(device.as_fd(), header.unique, error.0, &[]),
        Outcome::Later => {}
        Outcome::Never => return false,
    }
    true
}

fn send(device: BorrowedFd<'_>, unique: u64, error: i32, body: &[u8]) {
    let header = Header::answer(unique, error, body.len());
    let parts = [IoSlice::new(&header), IoSlice::new(body)];
    // Who asked may be gone by now.
    if let Err(error) = rustix::io::writev(device, &parts) {
        debug!("answering request {unique}: {error}");
    }
}
