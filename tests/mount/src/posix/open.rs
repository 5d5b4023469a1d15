//! open and creat: what each flag does and what each error means.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::command::run;
use crate::sys::{ALICE, BOB};

super::statements!("open":
    creat_through_a_dangling_link_makes_its_target,
    a_missing_file_or_parent_is_enoent,
    a_directory_cannot_be_opened_for_writing,
    o_directory_wants_a_directory,
    a_trailing_slash_wants_a_directory,
    permission_bits_decide_for_owner_group_and_others,
    search_permission_is_needed_on_every_directory,
    making_a_file_needs_write_permission_on_the_directory,
    o_path_gives_no_access_to_content,
    noatime_is_for_the_owner,
    direct_io_reads_what_was_written,
    programs_run_and_are_protected_while_they_do,
    tmpfile_needs_a_directory_that_may_be_written,
);

const RW: OFlags = OFlags::RDWR;
const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::RDWR);

fn creat_through_a_dangling_link_makes_its_target(place: &Place) -> Result<()> {
    symlink("target", place.at("link"))?;
    create(place.at("link"), OFlags::CREATE | RW, 0o644)?.write_all(b"x")?;
    holds(place.at("target"), b"x")
}

fn a_missing_file_or_parent_is_enoent(place: &Place) -> Result<()> {
    refused(open(place.at("none"), RW), Errno::NOENT)?;
    refused(create(place.at("none/new"), NEW, 0o644), Errno::NOENT)?;
    refused(open("", RW), Errno::NOENT)
}

fn a_directory_cannot_be_opened_for_writing(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    for flags in [OFlags::WRONLY, RW, OFlags::RDONLY | OFlags::TRUNC] {
        refused(open(place.at("d"), flags), Errno::ISDIR)?;
    }
    refused(
        create(place.at("d"), OFlags::CREATE | OFlags::RDONLY, 0o644),
        Errno::ISDIR,
    )?;
    let opened = open(place.at("d"), OFlags::RDONLY)?;
    refused(errno((&opened).read(&mut [0; 1])), Errno::ISDIR)
}

fn o_directory_wants_a_directory(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    refused(open(place.at("file"), flags), Errno::NOTDIR)?;
    open(place.at("dir"), flags)?;
    Ok(())
}

fn a_trailing_slash_wants_a_directory(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    refused(open(place.at("file/"), RW), Errno::NOTDIR)?;
    refused_with(
        create(place.at("new/"), NEW, 0o644),
        &[Errno::ISDIR, Errno::NOENT],
    )?;
    gone(place.at("new"))
}

fn permission_bits_decide_for_owner_group_and_others(place: &Place) -> Result<()> {
    let path = place.at("file");
    file(&path, b"x")?;
    chown(&path, Some(ALICE.0), Some(7000))?;
    let allowed = |flags| match open(&path, flags) {
        Ok(_) => Ok(true),
        Err(Errno::ACCESS) => Ok(false),
        Err(error) => Err(anyhow::Error::from(error)),
    };
    for bits in 0..8u32 {
        let readable = bits & 4 != 0;
        let writable = bits & 2 != 0;
        let due = (readable, writable, readable && writable);
        let ask = || {
            Ok((
                allowed(OFlags::RDONLY)?,
                allowed(OFlags::WRONLY)?,
                allowed(RW)?,
            ))
        };
        chmod(&path, bits << 6)?;
        equal(ALICE.run(ask)?, due)?;
        chmod(&path, bits << 3)?;
        equal(BOB.run_in(&[7000], ask)?, due)?;
        chmod(&path, bits)?;
        equal(BOB.run(ask)?, due)?;
        // The class is chosen first: an owner without rights gains nothing from those of others.
        equal(ALICE.run(ask)?, (false, false, false))?;
    }
    Ok(())
}

fn search_permission_is_needed_on_every_directory(place: &Place) -> Result<()> {
    dir(place.at("outer"))?;
    dir(place.at("outer/inner"))?;
    file(place.at("outer/inner/file"), b"x")?;
    let read = || open(place.at("outer/inner/file"), OFlags::RDONLY);
    BOB.run(|| Ok(read()?))?;
    chmod(place.at("outer"), 0o744)?;
    BOB.run(|| refused(read(), Errno::ACCESS))?;
    BOB.run(|| {
        refused(
            errno(std::fs::metadata(place.at("outer/inner"))),
            Errno::ACCESS,
        )
    })?;
    // Without read permission names can be used, not listed.
    chmod(place.at("outer"), 0o711)?;
    BOB.run(|| Ok(read()?))?;
    BOB.run(|| refused(errno(std::fs::read_dir(place.at("outer"))), Errno::ACCESS))
}

fn making_a_file_needs_write_permission_on_the_directory(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    BOB.run(|| refused(create(place.at("d/new"), NEW, 0o644), Errno::ACCESS))?;
    gone(place.at("d/new"))?;
    chmod(place.at("d"), 0o777)?;
    BOB.run(|| Ok(create(place.at("d/new"), NEW, 0o644)?))?;
    Ok(())
}

fn o_path_gives_no_access_to_content(place: &Place) -> Result<()> {
    let path = place.at("file");
    file(&path, b"content")?;
    let handle = open(&path, OFlags::PATH)?;
    refused(errno((&handle).read(&mut [0; 4])), Errno::BADF)?;
    refused(rustix::fs::fchmod(&handle, 0o600.into()), Errno::BADF)?;
    equal(rustix::fs::fstat(&handle)?.st_size, 7)
}

fn noatime_is_for_the_owner(place: &Place) -> Result<()> {
    let path = place.at("file");
    file(&path, b"x")?;
    let flags = OFlags::RDONLY | OFlags::NOATIME;
    BOB.run(|| refused(open(&path, flags), Errno::PERM))?;
    open(&path, flags)?;
    Ok(())
}

fn direct_io_reads_what_was_written(place: &Place) -> Result<()> {
    let path = place.at("file");
    file(&path, &noise(2, 65_536))?;
    let direct = open(&path, RW | OFlags::DIRECT)?;
    let mut space = vec![0u8; 3 * 4096];
    let start = space.as_ptr().align_offset(4096);
    let block = &mut space[start..start + 8192];
    block.copy_from_slice(&noise(3, 8192));
    equal(rustix::io::pwrite(&direct, &*block, 4096)?, 8192)?;
    let mut due = noise(2, 65_536);
    due[4096..12_288].copy_from_slice(&noise(3, 8192));
    holds(&path, &due)?;
    equal(rustix::io::pread(&direct, &mut *block, 16_384)?, 8192)?;
    same_bytes(block, &due[16_384..24_576])?;
    equal(rustix::io::pread(&direct, &mut *block, 65_536)?, 0)
}

fn programs_run_and_are_protected_while_they_do(place: &Place) -> Result<()> {
    let path = place.at("sleep");
    std::fs::copy("/bin/sleep", &path)?;
    chmod(&path, 0o755)?;
    run(Command::new(&path).arg("0"))?;
    let mut child = Command::new(&path).arg("30").spawn()?;
    let while_running = refused(open(&path, RW), Errno::TXTBSY);
    child.kill()?;
    child.wait()?;
    while_running?;
    chmod(&path, 0o644)?;
    refused(errno(Command::new(&path).status()), Errno::ACCESS)
}

fn tmpfile_needs_a_directory_that_may_be_written(place: &Place) -> Result<()> {
    let tmp = OFlags::TMPFILE | RW;
    dir(place.at("d"))?;
    refused(create(place.at("none"), tmp, 0o644), Errno::NOENT)?;
    BOB.run(|| refused(create(place.at("d"), tmp, 0o644), Errno::ACCESS))
}
