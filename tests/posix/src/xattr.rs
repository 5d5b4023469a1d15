//! Extended attributes.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::door::{BOB, Door, OpenFile};
use crate::expect::*;

crate::table!("xattr":
    values_come_back_byte_for_byte,
    an_attribute_is_replaced_and_removed,
    create_and_replace_flags_are_obeyed,
    every_namespace_is_there,
    the_list_holds_every_name_once,
    a_hundred_attributes_on_one_file,
    the_longest_name_and_values_of_3900_bytes,
    values_of_64_kib,
    user_attributes_are_for_files_and_directories,
    a_symlink_has_attributes_of_its_own,
    they_belong_to_the_file_not_to_the_name,
    a_new_file_of_an_old_name_has_none,
    a_write_clears_file_capabilities,
);

/// The names, each of which must come once; those that the system adds by itself left out.
fn list(d: &impl Door, path: &str) -> Result<BTreeSet<String>> {
    let listed = d.listxattr(path)?;
    let mut names: BTreeSet<String> = listed.iter().cloned().collect();
    equal(names.len(), listed.len()).context("a name is listed twice")?;
    names.remove("security.selinux");
    Ok(names)
}

fn values_come_back_byte_for_byte(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.dir("d")?;
    for name in ["f", "d"] {
        for len in [0usize, 1, 100, 255, 1000, 2000] {
            let value = noise(len as u64, len);
            d.setxattr(name, "user.value", &value)?;
            same_bytes(&d.getxattr(name, "user.value")?, &value)?;
        }
    }
    Ok(())
}

fn an_attribute_is_replaced_and_removed(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.setxattr("f", "user.a", b"first and long")?;
    d.setxattr("f", "user.a", b"second")?;
    equal(d.getxattr("f", "user.a")?, b"second".to_vec())?;
    d.removexattr("f", "user.a")?;
    refused(d.getxattr("f", "user.a"), Errno::NODATA)?;
    equal(list(d, "f")?, BTreeSet::new())
}

fn create_and_replace_flags_are_obeyed(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let set = |value: &[u8], flags| d.setxattr_with("f", "user.a", value, flags);
    refused(set(b"x", XattrFlags::REPLACE), Errno::NODATA)?;
    set(b"1", XattrFlags::CREATE)?;
    refused(set(b"2", XattrFlags::CREATE), Errno::EXIST)?;
    equal(d.getxattr("f", "user.a")?, b"1".to_vec())?;
    set(b"3", XattrFlags::REPLACE)?;
    equal(d.getxattr("f", "user.a")?, b"3".to_vec())
}

fn every_namespace_is_there(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let names = ["user.test", "trusted.test", "security.test"];
    for name in names {
        d.setxattr("f", name, name.as_bytes()).context(name)?;
    }
    for name in names {
        equal(d.getxattr("f", name)?, name.as_bytes().to_vec())?;
    }
    equal(list(d, "f")?, names.map(str::to_owned).into())
}

fn the_list_holds_every_name_once(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    equal(list(d, "d")?, BTreeSet::new())?;
    let mut due = BTreeSet::new();
    for number in 0..20 {
        let name = format!("user.name-{number}");
        d.setxattr("d", &name, b"x")?;
        due.insert(name);
    }
    equal(list(d, "d")?, due.clone())?;
    d.removexattr("d", "user.name-7")?;
    due.remove("user.name-7");
    equal(list(d, "d")?, due)
}

fn a_hundred_attributes_on_one_file(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    for number in 0..100u64 {
        d.setxattr("f", &format!("user.{number}"), &noise(number, 20))?;
    }
    for number in 0..100u64 {
        same_bytes(
            &d.getxattr("f", &format!("user.{number}"))?,
            &noise(number, 20),
        )?;
    }
    equal(list(d, "f")?.len(), 100)
}

fn the_longest_name_and_values_of_3900_bytes(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let name = format!("user.{}", "n".repeat(250));
    for name in [name.as_str(), "user.other"] {
        let value = noise(1, 3900);
        d.setxattr("f", name, &value)
            .with_context(|| name.to_owned())?;
        same_bytes(&d.getxattr("f", name)?, &value)?;
    }
    d.setxattr("f", &name, b"small")?;
    equal(d.getxattr("f", &name)?, b"small".to_vec())
}

fn values_of_64_kib(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    for len in [4096usize, 5000, 20_000, 65_536] {
        let value = noise(len as u64, len);
        d.setxattr("f", "user.large", &value)
            .with_context(|| format!("{len} bytes"))?;
        same_bytes(&d.getxattr("f", "user.large")?, &value)?;
    }
    Ok(())
}

fn user_attributes_are_for_files_and_directories(d: &impl Door) -> Result<()> {
    d.symlink("x", "s")?;
    d.mknod("p", 0o010_644, (0, 0))?;
    for name in ["s", "p"] {
        refused(d.setxattr(name, "user.a", b"x"), Errno::PERM).context(name)?;
        refused(d.getxattr(name, "user.a"), Errno::NODATA).context(name)?;
    }
    Ok(())
}

fn a_symlink_has_attributes_of_its_own(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.symlink("f", "s")?;
    d.setxattr("s", "trusted.a", b"link")?;
    d.setxattr("f", "trusted.a", b"file")?;
    equal(d.getxattr("s", "trusted.a")?, b"link".to_vec())?;
    equal(list(d, "s")?, ["trusted.a".to_owned()].into())?;
    equal(d.getxattr("f", "trusted.a")?, b"file".to_vec())
}

fn they_belong_to_the_file_not_to_the_name(d: &impl Door) -> Result<()> {
    d.file("a", b"")?;
    d.setxattr("a", "user.a", b"x")?;
    d.link("a", "b")?;
    d.rename("a", "c")?;
    equal(d.getxattr("b", "user.a")?, b"x".to_vec())?;
    equal(d.getxattr("c", "user.a")?, b"x".to_vec())
}

fn a_new_file_of_an_old_name_has_none(d: &impl Door) -> Result<()> {
    for _ in 0..3 {
        d.file("a", b"")?;
        equal(list(d, "a")?, BTreeSet::new())?;
        d.setxattr("a", "user.a", b"x")?;
        d.unlink("a")?;
    }
    Ok(())
}

fn a_write_clears_file_capabilities(d: &impl Door) -> Result<()> {
    // Version 2 of struct vfs_cap_data: CAP_NET_RAW permitted and effective.
    let mut value = 0x0200_0001u32.to_le_bytes().to_vec();
    value.extend_from_slice(&(1u32 << 13).to_le_bytes());
    value.resize(20, 0);
    d.file("f", b"")?;
    d.chmod("f", 0o666)?;
    d.setxattr("f", "security.capability", &value)?;
    equal(d.getxattr("f", "security.capability")?, value)?;
    d.as_user(BOB, |d| {
        Ok(d.edit("f")?.write_all_at(b"other program", 0)?)
    })?;
    refused(d.getxattr("f", "security.capability"), Errno::NODATA)
}
