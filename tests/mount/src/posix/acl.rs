//! POSIX access control lists: access, inheritance, and their play with the mode.

use std::process::Command;

use anyhow::Result;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::command::{output, run};
use crate::sys::{ALICE, BOB};

super::statements!("acl":
    only_the_owner_sets_a_list,
    setfacl_and_getfacl_agree,
);

/// Owner, group and others may read and write.
const LIST: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x06\0\xff\xff\xff\xff\x20\0\x06\0\xff\xff\xff\xff";

fn only_the_owner_sets_a_list(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"")?;
    chown(&path, Some(ALICE.0), None)?;
    chmod(&path, 0o666)?;
    let set = || rustix::fs::setxattr(&path, "system.posix_acl_access", LIST, XattrFlags::empty());
    BOB.run(|| refused(set(), Errno::PERM))?;
    ALICE.run(|| Ok(set()?))
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
