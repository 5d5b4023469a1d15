//! POSIX access control lists: access, inheritance, and their play with the mode.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::command::{output, run};
use crate::sys::{ALICE, BOB, with_umask};

super::statements!("acl":
    a_named_user_gets_its_rights,
    a_named_group_gets_its_rights,
    the_mask_limits_what_is_named,
    the_group_bits_of_the_mode_are_the_mask,
    chmod_changes_the_mask,
    a_minimal_list_is_only_the_mode,
    a_default_list_is_handed_to_files,
    a_default_list_is_handed_down_through_directories,
    with_a_default_list_the_umask_does_not_count,
    removing_a_list_leaves_the_mode,
    a_default_list_is_for_directories,
    a_broken_list_is_einval,
    only_the_owner_sets_a_list,
    a_list_set_by_an_outsider_takes_setgid,
    setfacl_and_getfacl_agree,
);

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Who an entry is about.
#[derive(Clone, Copy)]
enum Who {
    Owner,
    User(u32),
    Group,
    GroupId(u32),
    Mask,
    Others,
}

/// The list as the kernel takes it (linux/posix_acl_xattr.h).
fn encode(entries: &[(Who, u16)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (who, rights) in entries {
        let (tag, id) = match who {
            Who::Owner => (0x01u16, u32::MAX),
            Who::User(id) => (0x02, *id),
            Who::Group => (0x04, u32::MAX),
            Who::GroupId(id) => (0x08, *id),
            Who::Mask => (0x10, u32::MAX),
            Who::Others => (0x20, u32::MAX),
        };
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn set(path: impl AsRef<Path>, kind: &str, entries: &[(Who, u16)]) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path.as_ref(), kind, &encode(entries), XattrFlags::empty())
}

fn get(path: impl AsRef<Path>, kind: &str) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; 4096];
    let len = rustix::fs::getxattr(path.as_ref(), kind, &mut bytes[..])?;
    bytes.truncate(len);
    Ok(bytes)
}

fn readable(path: impl AsRef<Path>) -> rustix::io::Result<()> {
    open(path, OFlags::RDONLY).map(|_| ())
}

/// Rights 6 for one named user, others none.
fn for_user(uid: u32, rights: u16, mask: u16) -> [(Who, u16); 5] {
    [
        (Who::Owner, 6),
        (Who::User(uid), rights),
        (Who::Group, 0),
        (Who::Mask, mask),
        (Who::Others, 0),
    ]
}

fn a_named_user_gets_its_rights(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    chmod(&path, 0o600)?;
    BOB.run(|| refused(readable(&path), Errno::ACCESS))?;
    set(&path, ACCESS, &for_user(BOB.0, 6, 7))?;
    BOB.run(|| edit(&path).map(|_| ()))?;
    ALICE.run(|| refused(readable(&path), Errno::ACCESS))?;
    set(&path, ACCESS, &for_user(BOB.0, 4, 7))?;
    BOB.run(|| {
        readable(&path)?;
        refused(open(&path, OFlags::WRONLY), Errno::ACCESS)
    })
}

fn a_named_group_gets_its_rights(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    let entries = [
        (Who::Owner, 6),
        (Who::Group, 0),
        (Who::GroupId(7000), 4),
        (Who::Mask, 7),
        (Who::Others, 0),
    ];
    set(&path, ACCESS, &entries)?;
    BOB.run(|| refused(readable(&path), Errno::ACCESS))?;
    BOB.run_in(&[7000], || Ok(readable(&path)?))?;
    BOB.run_in(&[7000], || {
        refused(open(&path, OFlags::WRONLY), Errno::ACCESS)
    })
}

fn the_mask_limits_what_is_named(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    set(&path, ACCESS, &for_user(BOB.0, 6, 4))?;
    BOB.run(|| {
        readable(&path)?;
        refused(open(&path, OFlags::WRONLY), Errno::ACCESS)
    })?;
    set(&path, ACCESS, &for_user(BOB.0, 6, 0))?;
    BOB.run(|| refused(readable(&path), Errno::ACCESS))
}

fn the_group_bits_of_the_mode_are_the_mask(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    set(&path, ACCESS, &for_user(BOB.0, 4, 5))?;
    equal(mode(&path)?, 0o650)
}

fn chmod_changes_the_mask(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    set(&path, ACCESS, &for_user(BOB.0, 6, 6))?;
    chmod(&path, 0o700)?;
    equal(
        get(&path, ACCESS)?,
        encode(&[
            (Who::Owner, 7),
            (Who::User(BOB.0), 6),
            (Who::Group, 0),
            (Who::Mask, 0),
            (Who::Others, 0),
        ]),
    )?;
    BOB.run(|| refused(readable(&path), Errno::ACCESS))?;
    chmod(&path, 0o640)?;
    BOB.run(|| Ok(readable(&path)?))
}

fn a_minimal_list_is_only_the_mode(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    set(
        &path,
        ACCESS,
        &[(Who::Owner, 7), (Who::Group, 5), (Who::Others, 1)],
    )?;
    equal(mode(&path)?, 0o751)?;
    refused(get(&path, ACCESS), Errno::NODATA)
}

const DEFAULTS: [(Who, u16); 5] = [
    (Who::Owner, 7),
    (Who::User(BOB.0), 6),
    (Who::Group, 5),
    (Who::Mask, 7),
    (Who::Others, 0),
];

fn a_default_list_is_handed_to_files(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    set(place.at("d"), DEFAULT, &DEFAULTS)?;
    equal(mode(place.at("d"))?, 0o755)?;
    create(place.at("d/f"), OFlags::CREATE | OFlags::RDWR, 0o664)?;
    // The mode asked for limits owner, mask and others; the named user stays as it was.
    equal(
        get(place.at("d/f"), ACCESS)?,
        encode(&[
            (Who::Owner, 6),
            (Who::User(BOB.0), 6),
            (Who::Group, 5),
            (Who::Mask, 6),
            (Who::Others, 0),
        ]),
    )?;
    equal(mode(place.at("d/f"))?, 0o660)?;
    refused_with(get(place.at("d/f"), DEFAULT), &[Errno::NODATA])?;
    BOB.run(|| edit(place.at("d/f")).map(|_| ()))
}

fn a_default_list_is_handed_down_through_directories(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    set(place.at("d"), DEFAULT, &DEFAULTS)?;
    std::fs::create_dir_all(place.at("d/e/f"))?;
    equal(get(place.at("d/e"), DEFAULT)?, encode(&DEFAULTS))?;
    equal(get(place.at("d/e/f"), DEFAULT)?, encode(&DEFAULTS))?;
    equal(get(place.at("d/e/f"), ACCESS)?, encode(&DEFAULTS))?;
    file(place.at("d/e/f/file"), b"")?;
    anyhow::ensure!(get(place.at("d/e/f/file"), ACCESS)?.len() == 4 + 5 * 8);
    Ok(())
}

fn with_a_default_list_the_umask_does_not_count(place: &Place) -> Result<()> {
    for name in ["with", "without"] {
        dir(place.at(name))?;
    }
    let all = [(Who::Owner, 7), (Who::Group, 7), (Who::Others, 7)];
    set(place.at("with"), DEFAULT, &all)?;
    with_umask(0o077, || {
        for name in ["with/f", "without/f"] {
            create(place.at(name), OFlags::CREATE | OFlags::RDWR, 0o666)?;
        }
        Ok(())
    })?;
    equal(mode(place.at("with/f"))?, 0o666)?;
    equal(mode(place.at("without/f"))?, 0o600)
}

fn removing_a_list_leaves_the_mode(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"x")?;
    set(&path, ACCESS, &for_user(BOB.0, 6, 6))?;
    rustix::fs::removexattr(&path, ACCESS)?;
    refused(get(&path, ACCESS), Errno::NODATA)?;
    equal(mode(&path)?, 0o660)?;
    dir(place.at("d"))?;
    set(place.at("d"), DEFAULT, &DEFAULTS)?;
    rustix::fs::removexattr(place.at("d"), DEFAULT)?;
    file(place.at("d/f"), b"")?;
    refused(get(place.at("d/f"), ACCESS), Errno::NODATA)
}

fn a_default_list_is_for_directories(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    refused(set(place.at("f"), DEFAULT, &DEFAULTS), Errno::ACCESS)
}

fn a_broken_list_is_einval(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    let lists: [&[(Who, u16)]; 4] = [
        &[(Who::Owner, 7)],
        &[(Who::Owner, 7), (Who::Group, 7)],
        &[
            (Who::Owner, 7),
            (Who::User(5), 7),
            (Who::Group, 7),
            (Who::Others, 7),
        ],
        &[(Who::Owner, 9), (Who::Group, 7), (Who::Others, 7)],
    ];
    for list in lists {
        refused(set(place.at("f"), ACCESS, list), Errno::INVAL)?;
    }
    let junk = rustix::fs::setxattr(place.at("f"), ACCESS, b"\x07junk", XattrFlags::empty());
    refused_with(junk, &[Errno::INVAL, Errno::OPNOTSUPP])?;
    equal(mode(place.at("f"))?, 0o644)
}

fn only_the_owner_sets_a_list(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    chown(place.at("f"), Some(ALICE.0), None)?;
    chmod(place.at("f"), 0o666)?;
    BOB.run(|| {
        refused(
            set(place.at("f"), ACCESS, &for_user(BOB.0, 6, 6)),
            Errno::PERM,
        )
    })?;
    ALICE.run(|| Ok(set(place.at("f"), ACCESS, &for_user(BOB.0, 6, 6))?))
}

/// The owner of a setgid program could change its rights by `setfacl` and keep it setgid, though
/// they were not in its group (CVE-2016-7097, xfstests generic/375): `chmod` takes the bit from
/// them. The daemon knows only one group of whoever asks; the kernel tells it what to do in a flag
/// of the request, which had not been asked for.
fn a_list_set_by_an_outsider_takes_setgid(place: &Place) -> Result<()> {
    let path = place.at("p");
    file(&path, b"x")?;
    chown(&path, Some(ALICE.0), Some(7000))?;
    let setfacl = |list: &str| run(Command::new("setfacl").args(["-m", list]).arg(&path));
    let rest = [(Who::Owner, 7), (Who::Group, 7), (Who::Others, 5)];
    let mut named = rest.to_vec();
    named.insert(1, (Who::User(BOB.0), 7));
    named.insert(3, (Who::Mask, 7));
    for list in [&rest[..], &named[..]] {
        chmod(&path, 0o2755)?;
        // A member keeps it, by whichever of their groups.
        ALICE.run_in(&[7000], || Ok(set(&path, ACCESS, list)?))?;
        equal(mode(&path)?, 0o2775)?;
        ALICE.run(|| Ok(set(&path, ACCESS, list)?))?;
        equal(mode(&path)?, 0o775)?;
    }
    // So does root.
    chmod(&path, 0o2755)?;
    setfacl("u::rwx,g::rwx,o::rx")?;
    equal(mode(&path)?, 0o2775)?;
    // A default list changes nothing of the directory itself.
    dir(place.at("d"))?;
    chown(place.at("d"), Some(ALICE.0), Some(7000))?;
    chmod(place.at("d"), 0o2755)?;
    ALICE.run(|| Ok(set(place.at("d"), DEFAULT, &DEFAULTS)?))?;
    equal(mode(place.at("d"))?, 0o2755)
}

fn setfacl_and_getfacl_agree(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    let setfacl = |list: &str| {
        run(Command::new("setfacl")
            .args(["-m", list])
            .arg(place.at("d")))
    };
    setfacl("u:4002:rwx,g:7000:r-x,m::rwx")?;
    setfacl("d:u:4002:rw-,d:g:7000:---")?;
    let text = output(Command::new("getfacl").args(["-cnp"]).arg(place.at("d")))?;
    let mut lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.sort_unstable();
    equal(
        lines,
        vec![
            "default:group:7000:---",
            "default:group::r-x",
            "default:mask::rwx",
            "default:other::r-x",
            "default:user:4002:rw-",
            "default:user::rwx",
            "group:7000:r-x",
            "group::r-x",
            "mask::rwx",
            "other::r-x",
            "user:4002:rwx",
            "user::rwx",
        ],
    )
}
