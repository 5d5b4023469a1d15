//! mknod: FIFOs, sockets and devices.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::Result;
use rustix::fs::{CWD, Dev, FileType, major, makedev, minor};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, in_directory};

super::statements!("node":
    a_fifo_carries_bytes,
    a_socket_is_bound_and_reached,
    a_bound_name_is_taken,
    a_character_device_works,
    device_numbers_are_kept_whole,
    mknod_makes_a_regular_file,
    devices_are_for_root,
    mknod_refuses_what_exists,
    nodes_have_no_size,
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

fn device_numbers_are_kept_whole(place: &Place) -> Result<()> {
    for (number, (high, low)) in [(1, 3), (259, 1_000_000), (4095, 1_048_575)]
        .into_iter()
        .enumerate()
    {
        for kind in [FileType::CharacterDevice, FileType::BlockDevice] {
            let path = place.at(format!("{number}-{kind:?}"));
            mknod(&path, kind, makedev(high, low))?;
            let device = meta(&path)?.rdev();
            equal((major(device), minor(device)), (high, low))?;
        }
    }
    Ok(())
}

fn mknod_makes_a_regular_file(place: &Place) -> Result<()> {
    mknod(place.at("file"), FileType::RegularFile, 0)?;
    std::fs::write(place.at("file"), b"content")?;
    holds(place.at("file"), b"content")
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

fn mknod_refuses_what_exists(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    refused(mknod(place.at("file"), FileType::Fifo, 0), Errno::EXIST)?;
    refused(mknod(place.at("none/x"), FileType::Fifo, 0), Errno::NOENT)?;
    refused(mknod(place.at("file/x"), FileType::Fifo, 0), Errno::NOTDIR)
}

fn nodes_have_no_size(place: &Place) -> Result<()> {
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
        let path = place.at(format!("{kind:?}"));
        mknod(&path, kind, makedev(1, 3))?;
        let meta = meta(&path)?;
        equal((meta.len(), meta.blocks(), meta.nlink()), (0, 0, 1))?;
        equal(meta.mode() & 0o777, 0o644)?;
    }
    Ok(())
}
