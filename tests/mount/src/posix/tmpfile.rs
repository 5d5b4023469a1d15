//! O_TMPFILE: files that never had a name.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{BOB, proc_path};

super::statements!("tmpfile":
    it_has_no_name_and_works,
    it_can_get_a_name,
    with_excl_it_cannot_get_a_name,
    it_needs_a_directory_that_may_be_written,
);

const TMP: OFlags = OFlags::TMPFILE.union(OFlags::RDWR);

fn it_has_no_name_and_works(place: &Place) -> Result<()> {
    let mut file = create(&place.dir, TMP, 0o640)?;
    file.write_all(b"content")?;
    equal(content(&file)?, b"content".to_vec())?;
    let meta = file.metadata()?;
    equal((meta.nlink(), meta.mode()), (0, 0o100_640))?;
    equal(std::fs::read_dir(&place.dir)?.count(), 0)
}

fn it_can_get_a_name(place: &Place) -> Result<()> {
    let mut file = create(&place.dir, TMP, 0o644)?;
    file.write_all(&noise(1, 50_000))?;
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, proc_path(&file), CWD, place.at("named"), flags)?;
    equal(meta(place.at("named"))?.nlink(), 1)?;
    drop(file);
    holds(place.at("named"), &noise(1, 50_000))
}

fn with_excl_it_cannot_get_a_name(place: &Place) -> Result<()> {
    let file = create(&place.dir, TMP | OFlags::EXCL, 0o644)?;
    let flags = AtFlags::SYMLINK_FOLLOW;
    let link = rustix::fs::linkat(CWD, proc_path(&file), CWD, place.at("named"), flags);
    refused(link, Errno::NOENT)
}

fn it_needs_a_directory_that_may_be_written(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    dir(place.at("d"))?;
    refused(create(place.at("f"), TMP, 0o644), Errno::NOTDIR)?;
    refused(create(place.at("none"), TMP, 0o644), Errno::NOENT)?;
    refused(
        create(&place.dir, OFlags::TMPFILE | OFlags::RDONLY, 0o644),
        Errno::INVAL,
    )?;
    BOB.run(|| refused(create(place.at("d"), TMP, 0o644), Errno::ACCESS))
}
