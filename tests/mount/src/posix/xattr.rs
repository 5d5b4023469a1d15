//! Extended attributes of every namespace.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, XattrFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("xattr":
    values_come_back_byte_for_byte,
    an_attribute_is_replaced_and_removed,
    create_and_replace_flags_are_obeyed,
    every_namespace_is_there,
    an_unknown_namespace_is_eopnotsupp,
    a_missing_attribute_is_enodata,
    a_short_buffer_is_erange,
    the_list_holds_every_name_once,
    a_hundred_attributes_on_one_file,
    the_longest_name_and_values_of_3900_bytes,
    values_of_64_kib,
    names_and_values_beyond_the_limits_are_refused,
    user_attributes_follow_the_permissions_of_the_file,
    user_attributes_are_for_files_and_directories,
    trusted_attributes_are_for_root,
    a_symlink_has_attributes_of_its_own,
    they_belong_to_the_file_not_to_the_name,
    a_new_file_of_an_old_name_has_none,
    a_write_clears_file_capabilities,
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

/// The names, each of which must come once; those that the system adds by itself left out.
fn list(path: impl AsRef<Path>) -> Result<BTreeSet<String>> {
    let mut bytes = vec![0u8; 65_536];
    let len = rustix::fs::llistxattr(path.as_ref(), &mut bytes[..])?;
    let mut names = BTreeSet::new();
    for name in bytes[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = String::from_utf8(name.to_vec())?;
        anyhow::ensure!(names.insert(name.clone()), "{name} is listed twice");
    }
    names.remove("security.selinux");
    Ok(names)
}

fn values_come_back_byte_for_byte(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    dir(place.at("d"))?;
    for name in ["f", "d"] {
        for len in [0usize, 1, 100, 255, 1000, 2000] {
            let value = noise(len as u64, len);
            set(place.at(name), "user.value", &value)?;
            same_bytes(&get(place.at(name), "user.value")?, &value)?;
        }
    }
    Ok(())
}

fn an_attribute_is_replaced_and_removed(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    set(place.at("f"), "user.a", b"first and long")?;
    set(place.at("f"), "user.a", b"second")?;
    equal(get(place.at("f"), "user.a")?, b"second".to_vec())?;
    remove(place.at("f"), "user.a")?;
    refused(get(place.at("f"), "user.a"), Errno::NODATA)?;
    equal(list(place.at("f"))?, BTreeSet::new())
}

fn create_and_replace_flags_are_obeyed(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"")?;
    let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.a", value, flags);
    refused(set(b"x", XattrFlags::REPLACE), Errno::NODATA)?;
    set(b"1", XattrFlags::CREATE)?;
    refused(set(b"2", XattrFlags::CREATE), Errno::EXIST)?;
    equal(get(&path, "user.a")?, b"1".to_vec())?;
    set(b"3", XattrFlags::REPLACE)?;
    equal(get(&path, "user.a")?, b"3".to_vec())
}

fn every_namespace_is_there(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    let names = ["user.test", "trusted.test", "security.test"];
    for name in names {
        set(place.at("f"), name, name.as_bytes()).context(name)?;
    }
    for name in names {
        equal(get(place.at("f"), name)?, name.as_bytes().to_vec())?;
    }
    equal(list(place.at("f"))?, names.map(str::to_owned).into())
}

fn an_unknown_namespace_is_eopnotsupp(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    for name in ["nonsense.a", "noprefix", "system.nonsense"] {
        refused(set(place.at("f"), name, b"x"), Errno::OPNOTSUPP).context(name)?;
        refused(get(place.at("f"), name), Errno::OPNOTSUPP).context(name)?;
    }
    refused_with(set(place.at("f"), "user.", b"x"), &[Errno::INVAL])
}

fn a_missing_attribute_is_enodata(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    refused(get(place.at("f"), "user.none"), Errno::NODATA)?;
    refused(remove(place.at("f"), "user.none"), Errno::NODATA)?;
    refused(get(place.at("none"), "user.none"), Errno::NOENT)
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

fn the_list_holds_every_name_once(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    equal(list(place.at("d"))?, BTreeSet::new())?;
    let mut due = BTreeSet::new();
    for number in 0..20 {
        let name = format!("user.name-{number}");
        set(place.at("d"), &name, b"x")?;
        due.insert(name);
    }
    equal(list(place.at("d"))?, due.clone())?;
    remove(place.at("d"), "user.name-7")?;
    due.remove("user.name-7");
    equal(list(place.at("d"))?, due)
}

fn a_hundred_attributes_on_one_file(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    for number in 0..100u64 {
        set(place.at("f"), &format!("user.{number}"), &noise(number, 20))?;
    }
    for number in 0..100u64 {
        same_bytes(
            &get(place.at("f"), &format!("user.{number}"))?,
            &noise(number, 20),
        )?;
    }
    equal(list(place.at("f"))?.len(), 100)
}

fn the_longest_name_and_values_of_3900_bytes(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    let name = format!("user.{}", "n".repeat(250));
    for name in [name.as_str(), "user.other"] {
        let value = noise(1, 3900);
        set(place.at("f"), name, &value).with_context(|| name.to_owned())?;
        same_bytes(&get(place.at("f"), name)?, &value)?;
    }
    set(place.at("f"), &name, b"small")?;
    equal(get(place.at("f"), &name)?, b"small".to_vec())
}

fn values_of_64_kib(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    for len in [4096usize, 5000, 20_000, 65_536] {
        let value = noise(len as u64, len);
        set(place.at("f"), "user.large", &value).with_context(|| format!("{len} bytes"))?;
        same_bytes(&get(place.at("f"), "user.large")?, &value)?;
    }
    Ok(())
}

fn names_and_values_beyond_the_limits_are_refused(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    let name = format!("user.{}", "n".repeat(251));
    refused(set(place.at("f"), &name, b"x"), Errno::RANGE)?;
    refused(
        set(place.at("f"), "user.large", &vec![0; 65_537]),
        Errno::TOOBIG,
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

fn user_attributes_are_for_files_and_directories(place: &Place) -> Result<()> {
    symlink("x", place.at("s"))?;
    rustix::fs::mkfifoat(CWD, place.at("p"), 0o644.into())?;
    for name in ["s", "p"] {
        refused(set(place.at(name), "user.a", b"x"), Errno::PERM).context(name)?;
        refused(get(place.at(name), "user.a"), Errno::NODATA).context(name)?;
    }
    Ok(())
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

fn a_symlink_has_attributes_of_its_own(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    symlink("f", place.at("s"))?;
    set(place.at("s"), "trusted.a", b"link")?;
    set(place.at("f"), "trusted.a", b"file")?;
    equal(get(place.at("s"), "trusted.a")?, b"link".to_vec())?;
    equal(list(place.at("s"))?, ["trusted.a".to_owned()].into())?;
    let mut value = [0u8; 4];
    rustix::fs::getxattr(place.at("s"), "trusted.a", &mut value[..])?;
    equal(value, *b"file")
}

fn they_belong_to_the_file_not_to_the_name(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    set(place.at("a"), "user.a", b"x")?;
    std::fs::hard_link(place.at("a"), place.at("b"))?;
    std::fs::rename(place.at("a"), place.at("c"))?;
    equal(get(place.at("b"), "user.a")?, b"x".to_vec())?;
    equal(get(place.at("c"), "user.a")?, b"x".to_vec())
}

fn a_new_file_of_an_old_name_has_none(place: &Place) -> Result<()> {
    for _ in 0..3 {
        file(place.at("a"), b"")?;
        equal(list(place.at("a"))?, BTreeSet::new())?;
        set(place.at("a"), "user.a", b"x")?;
        std::fs::remove_file(place.at("a"))?;
    }
    Ok(())
}

fn a_write_clears_file_capabilities(place: &Place) -> Result<()> {
    // Version 2 of struct vfs_cap_data: CAP_NET_RAW permitted and effective.
    let mut value = 0x0200_0001u32.to_le_bytes().to_vec();
    value.extend_from_slice(&(1u32 << 13).to_le_bytes());
    value.resize(20, 0);
    file(place.at("f"), b"")?;
    chmod(place.at("f"), 0o666)?;
    set(place.at("f"), "security.capability", &value)?;
    equal(get(place.at("f"), "security.capability")?, value)?;
    BOB.run(|| Ok(std::fs::write(place.at("f"), b"other program")?))?;
    refused(get(place.at("f"), "security.capability"), Errno::NODATA)
}
