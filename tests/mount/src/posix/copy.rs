//! copy_file_range, sendfile and splice.

use std::fs::File;

use anyhow::Result;
use rustix::fs::{OFlags, copy_file_range};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("copy":
    descriptors_of_the_wrong_kind_are_refused,
    copying_out_of_and_into_the_mount,
    sendfile_and_splice_carry_the_content,
);

/// Copies until done; the system may do it in parts.
fn copy(from: &File, at: u64, to: &File, to_at: u64, len: usize) -> rustix::io::Result<usize> {
    let (mut from_at, mut to_at, mut done) = (at, to_at, 0);
    while done < len {
        let step = copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), len - done)?;
        if step == 0 {
            break;
        }
        done += step;
    }
    Ok(done)
}

fn descriptors_of_the_wrong_kind_are_refused(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"content")?;
    let reader = open(place.at("f"), OFlags::RDONLY)?;
    let append = open(place.at("f"), OFlags::WRONLY | OFlags::APPEND)?;
    let dir = open(&place.dir, OFlags::RDONLY)?;
    refused(copy(&file, 0, &reader, 100, 5), Errno::BADF)?;
    refused(copy(&append, 0, &file, 100, 5), Errno::BADF)?;
    refused(copy(&file, 0, &append, 100, 5), Errno::BADF)?;
    refused(copy(&dir, 0, &file, 100, 5), Errno::ISDIR)?;
    holds(place.at("f"), b"content")
}

fn copying_out_of_and_into_the_mount(place: &Place) -> Result<()> {
    let due = noise(3, 3_000_000);
    std::fs::write(place.outside.join("from"), &due)?;
    std::fs::copy(place.outside.join("from"), place.at("in"))?;
    holds(place.at("in"), &due)?;
    std::fs::copy(place.at("in"), place.outside.join("back"))?;
    holds(place.outside.join("back"), &due)
}

fn sendfile_and_splice_carry_the_content(place: &Place) -> Result<()> {
    let due = noise(4, 1 << 20);
    let from = file(place.at("from"), &due)?;
    let sent = file(place.at("sent"), b"")?;
    let mut done = 0;
    while done < due.len() {
        done += rustix::fs::sendfile(&sent, &from, Some(&mut (done as u64)), due.len() - done)?;
    }
    holds(place.at("sent"), &due)?;
    let spliced = file(place.at("spliced"), b"")?;
    let (out, into) = rustix::pipe::pipe()?;
    let (mut read_at, mut write_at) = (0, 0);
    while write_at < due.len() as u64 {
        let flags = rustix::pipe::SpliceFlags::empty();
        let step = rustix::pipe::splice(&from, Some(&mut read_at), &into, None, 65_536, flags)?;
        let mut left = step;
        while left > 0 {
            left -= rustix::pipe::splice(&out, None, &spliced, Some(&mut write_at), left, flags)?;
        }
    }
    holds(place.at("spliced"), &due)
}
