//! truncate and ftruncate.

use std::path::Path;

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("truncate":
    it_needs_write_permission,
    it_needs_a_descriptor_for_writing,
    a_negative_length_is_einval,
    a_length_beyond_every_file_is_refused,
);

fn truncate(path: impl AsRef<Path>, len: i64) -> rustix::io::Result<()> {
    crate::sys::truncate(path.as_ref(), len)
}

fn it_needs_write_permission(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    BOB.run(|| refused(truncate(place.at("file"), 0), Errno::ACCESS))?;
    holds(place.at("file"), b"content")
}

fn it_needs_a_descriptor_for_writing(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    let reader = open(place.at("file"), OFlags::RDONLY)?;
    refused(rustix::fs::ftruncate(&reader, 0), Errno::INVAL)?;
    holds(place.at("file"), b"content")
}

fn a_negative_length_is_einval(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    refused(truncate(place.at("file"), -1), Errno::INVAL)?;
    holds(place.at("file"), b"content")
}

fn a_length_beyond_every_file_is_refused(place: &Place) -> Result<()> {
    // Either the filesystem's largest file is smaller, or it holds a file of this length.
    file(place.at("file"), b"content")?;
    match truncate(place.at("file"), i64::MAX) {
        Ok(()) => equal(meta(place.at("file"))?.len(), i64::MAX as u64),
        Err(Errno::FBIG | Errno::INVAL) => holds(place.at("file"), b"content"),
        Err(error) => Err(error.into()),
    }
}
