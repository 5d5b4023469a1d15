//! mknod: FIFOs, sockets and devices.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::Result;
use rustix::fs::{CWD, Dev, FileType, OFlags, makedev};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, in_directory};

super::statements!("node":
    a_fifo_carries_bytes,
    a_socket_is_bound_and_reached,
    a_bound_name_is_taken,
    a_character_device_works,
    devices_are_for_root,
    a_fifo_cannot_be_synced,
);

fn mknod(path: impl AsRef<std::path::Path>, kind: FileType, device: Dev) -> rustix::io::Result<()> {
    rustix::fs::mknodat(CWD, path.as_ref(), kind, 0o644.into(), device)
}

fn a_fifo_carries_bytes(place: &Place) -> Result<()> {
    let path = place.at("fifo");
    mknod(&path, FileType::Fifo, 0)?;
    equal(meta(&path)?.file_type().is_fifo(), true)?;
    let due = noise(1, 200_000);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| OpenOptions::new().write(true).open(&path)?.write_all(&due));
        let mut got = Vec::new();
        OpenOptions::new()
            .read(true)
            .open(&path)?
            .read_to_end(&mut got)?;
        writer
            .join()
            .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        same_bytes(&got, &due)
    })
}

fn a_socket_is_bound_and_reached(place: &Place) -> Result<()> {
    in_directory(&place.dir, || {
        let listener = UnixListener::bind("socket")?; // A whole path may be too long for a socket.
        equal(meta(place.at("socket"))?.file_type().is_socket(), true)?;
        let mut client = UnixStream::connect("socket")?;
        let (mut server, _) = listener.accept()?;
        client.write_all(b"hello")?;
        let mut got = [0; 5];
        server.read_exact(&mut got)?;
        equal(got, *b"hello")?;
        drop(listener);
        refused(errno(UnixStream::connect("socket")), Errno::CONNREFUSED)
    })
}

fn a_bound_name_is_taken(place: &Place) -> Result<()> {
    in_directory(&place.dir, || {
        file(place.at("taken"), b"")?;
        refused(errno(UnixListener::bind("taken")), Errno::ADDRINUSE)
    })
}

fn a_character_device_works(place: &Place) -> Result<()> {
    mknod(place.at("zero"), FileType::CharacterDevice, makedev(1, 5))?;
    let mut bytes = [1; 100];
    OpenOptions::new()
        .read(true)
        .open(place.at("zero"))?
        .read_exact(&mut bytes)?;
    equal(bytes, [0; 100])
}

fn devices_are_for_root(place: &Place) -> Result<()> {
    ALICE.run(|| {
        refused(
            mknod(place.at("c"), FileType::CharacterDevice, makedev(1, 3)),
            Errno::PERM,
        )?;
        refused(
            mknod(place.at("b"), FileType::BlockDevice, makedev(8, 0)),
            Errno::PERM,
        )?;
        mknod(place.at("fifo"), FileType::Fifo, 0)?;
        Ok(mknod(place.at("socket"), FileType::Socket, 0)?)
    })
}

fn a_fifo_cannot_be_synced(place: &Place) -> Result<()> {
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    let fifo = open(place.at("fifo"), OFlags::RDWR)?;
    refused(rustix::fs::fsync(&fifo), Errno::INVAL)
}
