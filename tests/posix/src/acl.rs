//! POSIX access control lists: access, inheritance, and their play with the mode.

use anyhow::{Result, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::door::{ALICE, BOB, Door, Outcome};
use crate::expect::*;

crate::table!("acl":
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
    a_list_names_nobody_twice,
    a_list_set_by_an_outsider_takes_setgid,
    a_list_of_511_entries,
);

const ACCESS: &str = "system.posix_acl_access";

const DEFAULT: &str = "system.posix_acl_default";

/// Who an entry is about.
#[derive(Clone, Copy, Debug)]
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

/// An access control list with this many entries: the four that every list needs, and named users.
pub fn list_of(entries: u32) -> Vec<u8> {
    let mut list = vec![(Who::Owner, 7)];
    list.extend((4..entries).map(|number| (Who::User(1000 + number), 5)));
    list.extend([(Who::Group, 5), (Who::Mask, 5), (Who::Others, 5)]);
    encode(&list)
}

fn set(d: &impl Door, path: &str, kind: &str, entries: &[(Who, u16)]) -> Outcome<()> {
    d.setxattr(path, kind, &encode(entries))
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

fn a_named_user_gets_its_rights(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    d.chmod("f", 0o600)?;
    d.as_user(BOB, |d| refused(d.access("f", 4), Errno::ACCESS))?;
    set(d, "f", ACCESS, &for_user(BOB.id, 6, 7))?;
    d.as_user(BOB, |d| Ok(d.access("f", 6)?))?;
    d.as_user(ALICE, |d| refused(d.access("f", 4), Errno::ACCESS))?;
    set(d, "f", ACCESS, &for_user(BOB.id, 4, 7))?;
    d.as_user(BOB, |d| {
        d.access("f", 4)?;
        refused(d.access("f", 2), Errno::ACCESS)
    })
}

fn a_named_group_gets_its_rights(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    let entries = [
        (Who::Owner, 6),
        (Who::Group, 0),
        (Who::GroupId(7000), 4),
        (Who::Mask, 7),
        (Who::Others, 0),
    ];
    set(d, "f", ACCESS, &entries)?;
    d.as_user(BOB, |d| refused(d.access("f", 4), Errno::ACCESS))?;
    d.as_user(BOB.in_group(7000), |d| Ok(d.access("f", 4)?))?;
    d.as_user(BOB.in_group(7000), |d| {
        refused(d.access("f", 2), Errno::ACCESS)
    })
}

fn the_mask_limits_what_is_named(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    set(d, "f", ACCESS, &for_user(BOB.id, 6, 4))?;
    d.as_user(BOB, |d| {
        d.access("f", 4)?;
        refused(d.access("f", 2), Errno::ACCESS)
    })?;
    set(d, "f", ACCESS, &for_user(BOB.id, 6, 0))?;
    d.as_user(BOB, |d| refused(d.access("f", 4), Errno::ACCESS))
}

fn the_group_bits_of_the_mode_are_the_mask(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    set(d, "f", ACCESS, &for_user(BOB.id, 4, 5))?;
    equal(d.mode("f")?, 0o650)
}

fn chmod_changes_the_mask(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    set(d, "f", ACCESS, &for_user(BOB.id, 6, 6))?;
    d.chmod("f", 0o700)?;
    equal(
        d.getxattr("f", ACCESS)?,
        encode(&[
            (Who::Owner, 7),
            (Who::User(BOB.id), 6),
            (Who::Group, 0),
            (Who::Mask, 0),
            (Who::Others, 0),
        ]),
    )?;
    d.as_user(BOB, |d| refused(d.access("f", 4), Errno::ACCESS))?;
    d.chmod("f", 0o640)?;
    d.as_user(BOB, |d| Ok(d.access("f", 4)?))
}

fn a_minimal_list_is_only_the_mode(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    set(
        d,
        "f",
        ACCESS,
        &[(Who::Owner, 7), (Who::Group, 5), (Who::Others, 1)],
    )?;
    equal(d.mode("f")?, 0o751)?;
    refused(d.getxattr("f", ACCESS), Errno::NODATA)
}

const DEFAULTS: [(Who, u16); 5] = [
    (Who::Owner, 7),
    (Who::User(BOB.id), 6),
    (Who::Group, 5),
    (Who::Mask, 7),
    (Who::Others, 0),
];

fn a_default_list_is_handed_to_files(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    set(d, "d", DEFAULT, &DEFAULTS)?;
    equal(d.mode("d")?, 0o755)?;
    d.open("d/f", OFlags::CREATE | OFlags::RDWR, 0o664)?;
    // The mode asked for limits owner, mask and others; the named user stays as it was.
    equal(
        d.getxattr("d/f", ACCESS)?,
        encode(&[
            (Who::Owner, 6),
            (Who::User(BOB.id), 6),
            (Who::Group, 5),
            (Who::Mask, 6),
            (Who::Others, 0),
        ]),
    )?;
    equal(d.mode("d/f")?, 0o660)?;
    refused_with(d.getxattr("d/f", DEFAULT), &[Errno::NODATA])?;
    d.as_user(BOB, |d| Ok(d.access("d/f", 6)?))
}

fn a_default_list_is_handed_down_through_directories(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    set(d, "d", DEFAULT, &DEFAULTS)?;
    d.dirs("d/e/f")?;
    equal(d.getxattr("d/e", DEFAULT)?, encode(&DEFAULTS))?;
    equal(d.getxattr("d/e/f", DEFAULT)?, encode(&DEFAULTS))?;
    equal(d.getxattr("d/e/f", ACCESS)?, encode(&DEFAULTS))?;
    d.file("d/e/f/file", b"")?;
    ensure!(d.getxattr("d/e/f/file", ACCESS)?.len() == 4 + 5 * 8);
    Ok(())
}

fn with_a_default_list_the_umask_does_not_count(d: &impl Door) -> Result<()> {
    for name in ["with", "without"] {
        d.dir(name)?;
    }
    let all = [(Who::Owner, 7), (Who::Group, 7), (Who::Others, 7)];
    set(d, "with", DEFAULT, &all)?;
    d.with_umask(0o077, |d| {
        for name in ["with/f", "without/f"] {
            d.open(name, OFlags::CREATE | OFlags::RDWR, 0o666)?;
        }
        Ok(())
    })?;
    equal(d.mode("with/f")?, 0o666)?;
    equal(d.mode("without/f")?, 0o600)
}

fn removing_a_list_leaves_the_mode(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    set(d, "f", ACCESS, &for_user(BOB.id, 6, 6))?;
    d.removexattr("f", ACCESS)?;
    refused(d.getxattr("f", ACCESS), Errno::NODATA)?;
    equal(d.mode("f")?, 0o660)?;
    d.dir("d")?;
    set(d, "d", DEFAULT, &DEFAULTS)?;
    d.removexattr("d", DEFAULT)?;
    d.file("d/f", b"")?;
    refused(d.getxattr("d/f", ACCESS), Errno::NODATA)
}

fn a_default_list_is_for_directories(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    refused(set(d, "f", DEFAULT, &DEFAULTS), Errno::ACCESS)
}

fn a_broken_list_is_einval(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let lists: [&[(Who, u16)]; 8] = [
        &[
            (Who::Owner, 7),
            (Who::Owner, 7),
            (Who::Group, 7),
            (Who::Others, 7),
        ],
        &[(Who::Group, 7), (Who::Owner, 7), (Who::Others, 7)],
        &[
            (Who::Owner, 7),
            (Who::Group, 7),
            (Who::GroupId(1), 8),
            (Who::Mask, 7),
            (Who::Others, 7),
        ],
        &[
            (Who::Owner, 7),
            (Who::User(u32::MAX), 7),
            (Who::Group, 7),
            (Who::Mask, 7),
            (Who::Others, 7),
        ],
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
        refused(set(d, "f", ACCESS, list), Errno::INVAL)?;
    }
    equal(d.mode("f")?, 0o644)
}

fn a_list_names_nobody_twice(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let mut list = for_user(BOB.id, 6, 7).to_vec();
    list.insert(1, (Who::User(BOB.id), 6));
    refused(set(d, "f", ACCESS, &list), Errno::INVAL)
}

/// The owner of a setgid program could change its rights by `setfacl` and keep it setgid, though
/// they were not in its group (CVE-2016-7097, xfstests generic/375): `chmod` takes the bit from
/// them. The daemon knows only one group of whoever asks; the kernel tells it what to do in a flag
/// of the request, which had not been asked for.
fn a_list_set_by_an_outsider_takes_setgid(d: &impl Door) -> Result<()> {
    d.file("p", b"x")?;
    d.chown("p", Some(ALICE.id), Some(7000))?;
    let rest = [(Who::Owner, 7), (Who::Group, 7), (Who::Others, 5)];
    let mut named = rest.to_vec();
    named.insert(1, (Who::User(BOB.id), 7));
    named.insert(3, (Who::Mask, 7));
    for list in [&rest[..], &named[..]] {
        d.chmod("p", 0o2755)?;
        // A member keeps it, by whichever of their groups.
        d.as_user(ALICE.in_group(7000), |d| Ok(set(d, "p", ACCESS, list)?))?;
        equal(d.mode("p")?, 0o2775)?;
        d.as_user(ALICE, |d| Ok(set(d, "p", ACCESS, list)?))?;
        equal(d.mode("p")?, 0o775)?;
    }
    // So does root.
    d.chmod("p", 0o2755)?;
    set(d, "p", ACCESS, &rest)?;
    equal(d.mode("p")?, 0o2775)?;
    // A default list changes nothing of the directory itself.
    d.dir("d")?;
    d.chown("d", Some(ALICE.id), Some(7000))?;
    d.chmod("d", 0o2755)?;
    d.as_user(ALICE, |d| Ok(set(d, "d", DEFAULT, &DEFAULTS)?))?;
    equal(d.mode("d")?, 0o2755)
}

/// As many as Linux asks a FUSE filesystem for.
fn a_list_of_511_entries(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    for name in [ACCESS, DEFAULT] {
        let list = list_of(511);
        d.setxattr("d", name, &list)?;
        same_bytes(&d.getxattr("d", name)?, &list)?;
    }
    d.dir("d/below")?;
    same_bytes(&d.getxattr("d/below", DEFAULT)?, &list_of(511))?;
    d.file("d/below/f", b"")?;
    d.chmod("d/below/f", 0o600)?;
    equal(d.getxattr("d/below/f", ACCESS)?.len(), 4 + 8 * 511)
}
