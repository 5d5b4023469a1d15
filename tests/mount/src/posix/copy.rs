//! copy_file_range, sendfile and splice.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Result;
use rustix::fs::{OFlags, copy_file_range};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("copy":
    a_whole_file_is_copied,
    ranges_go_where_they_should,
    a_copy_does_not_follow_later_changes,
    copying_past_the_end_stops_there,
    copying_within_a_file_keeps_to_its_ranges,
    overlapping_ranges_are_einval,
    descriptors_of_the_wrong_kind_are_refused,
    holes_read_as_zeros_in_the_copy,
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

fn a_whole_file_is_copied(place: &Place) -> Result<()> {
    for size in [0usize, 1, 4096, 100_001, 5 << 20] {
        let due = noise(size as u64, size);
        let from = file(place.at(format!("from-{size}")), &due)?;
        let to = file(place.at(format!("to-{size}")), b"")?;
        equal(copy(&from, 0, &to, 0, size)?, size)?;
        holds(place.at(format!("to-{size}")), &due)?;
    }
    Ok(())
}

fn ranges_go_where_they_should(place: &Place) -> Result<()> {
    let source = noise(1, 200_000);
    let from = file(place.at("from"), &source)?;
    from.sync_all()?;
    let mut due = noise(2, 150_000);
    let to = file(place.at("to"), &due)?;
    for (at, to_at, len) in [
        (0, 5, 10),
        (4096, 8192, 65_536),
        (123, 4567, 89_012),
        (190_000, 145_000, 10_000),
    ] {
        equal(copy(&from, at as u64, &to, to_at as u64, len)?, len)?;
        due.resize(due.len().max(to_at + len), 0);
        due[to_at..to_at + len].copy_from_slice(&source[at..at + len]);
    }
    holds(place.at("to"), &due)?;
    holds(place.at("from"), &source)
}

fn a_copy_does_not_follow_later_changes(place: &Place) -> Result<()> {
    let due = noise(1, 100_000);
    let from = file(place.at("from"), &due)?;
    let to = file(place.at("to"), b"")?;
    copy(&from, 0, &to, 0, 100_000)?;
    from.write_all_at(&[0; 100_000], 0)?;
    holds(place.at("to"), &due)
}

fn copying_past_the_end_stops_there(place: &Place) -> Result<()> {
    let from = file(place.at("from"), &noise(1, 10_000))?;
    let to = file(place.at("to"), b"")?;
    equal(copy(&from, 4000, &to, 0, 100_000)?, 6000)?;
    equal(copy(&from, 20_000, &to, 0, 100)?, 0)?;
    holds(place.at("to"), &noise(1, 10_000)[4000..])
}

fn copying_within_a_file_keeps_to_its_ranges(place: &Place) -> Result<()> {
    let mut due = noise(1, 100_000);
    let file = file(place.at("f"), &due)?;
    equal(copy(&file, 0, &file, 50_000, 50_000)?, 50_000)?;
    due.copy_within(0..50_000, 50_000);
    holds(place.at("f"), &due)
}

fn overlapping_ranges_are_einval(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 100_000))?;
    refused(copy(&file, 0, &file, 10_000, 20_000), Errno::INVAL)
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

fn holes_read_as_zeros_in_the_copy(place: &Place) -> Result<()> {
    let from = file(place.at("from"), b"start")?;
    from.write_all_at(b"end", 3_000_000)?;
    let to = file(place.at("to"), &vec![0xff; 3_000_003])?;
    copy(&from, 0, &to, 0, 3_000_003)?;
    let due = std::fs::read(place.at("from"))?;
    holds(place.at("to"), &due)
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
