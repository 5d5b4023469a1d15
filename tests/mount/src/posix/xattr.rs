//! Extended attributes of every namespace.

use std::path::Path;

use anyhow::Result;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("xattr":
    a_short_buffer_is_erange,
    user_attributes_follow_the_permissions_of_the_file,
    trusted_attributes_are_for_root,
    long_values_are_told_their_length_and_read,
);

const NONE: XattrFlags = XattrFlags::empty();

fn set(path: impl AsRef<Path>, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::lsetxattr(path.as_ref(), name, value, NONE)
}

fn get(path: impl AsRef<Path>, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0u8; 65_536];
    let len = rustix::fs::lgetxattr(path.as_ref(), name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn remove(path: impl AsRef<Path>, name: &str) -> rustix::io::Result<()> {
    rustix::fs::lremovexattr(path.as_ref(), name)
}

fn a_short_buffer_is_erange(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"")?;
    set(&path, "user.a", b"0123456789")?;
    equal(rustix::fs::getxattr_query(&path, "user.a")?, 10)?;
    refused(
        rustix::fs::getxattr(&path, "user.a", &mut [0u8; 9][..]),
        Errno::RANGE,
    )?;
    anyhow::ensure!(rustix::fs::listxattr_query(&path)? >= 7);
    refused(
        rustix::fs::listxattr(&path, &mut [0u8; 3][..]),
        Errno::RANGE,
    )
}

fn user_attributes_follow_the_permissions_of_the_file(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    chown(place.at("f"), Some(ALICE.0), None)?;
    set(place.at("f"), "user.a", b"x")?;
    BOB.run(|| {
        equal(get(place.at("f"), "user.a")?, b"x".to_vec())?;
        refused(set(place.at("f"), "user.a", b"y"), Errno::ACCESS)?;
        refused(remove(place.at("f"), "user.a"), Errno::ACCESS)
    })?;
    chmod(place.at("f"), 0o600)?;
    BOB.run(|| refused(get(place.at("f"), "user.a"), Errno::ACCESS))?;
    ALICE.run(|| Ok(set(place.at("f"), "user.a", b"y")?))
}

fn trusted_attributes_are_for_root(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    chown(place.at("f"), Some(ALICE.0), None)?;
    set(place.at("f"), "trusted.a", b"x")?;
    ALICE.run(|| {
        refused(set(place.at("f"), "trusted.a", b"y"), Errno::PERM)?;
        refused(get(place.at("f"), "trusted.a"), Errno::NODATA)
    })?;
    equal(get(place.at("f"), "trusted.a")?, b"x".to_vec())
}

/// As `getfattr` does: it asks how long the value is, and reads that much.
fn long_values_are_told_their_length_and_read(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    let names: Vec<String> = (0..8).map(|number| format!("user.long-{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        set(
            place.at("f"),
            name,
            &noise(number, 65_536 - number as usize),
        )?;
    }
    refused(
        set(place.at("f"), "user.long-0", &[1; 65_537]),
        Errno::TOOBIG,
    )?;
    for (number, name) in (0..).zip(&names) {
        let value = noise(number, 65_536 - number as usize);
        let len = rustix::fs::getxattr_query(place.at("f"), name.as_str())?;
        equal(len, value.len())?;
        let mut short = vec![0u8; len - 1];
        refused(
            rustix::fs::getxattr(place.at("f"), name.as_str(), &mut short[..]),
            Errno::RANGE,
        )?;
        same_bytes(&get(place.at("f"), name)?, &value)?;
    }
    set(place.at("f"), "user.long-3", b"short")?;
    remove(place.at("f"), "user.long-4")?;
    equal(get(place.at("f"), "user.long-3")?, b"short".to_vec())?;
    refused(get(place.at("f"), "user.long-4"), Errno::NODATA)?;
    same_bytes(&get(place.at("f"), "user.long-5")?, &noise(5, 65_531))
}
