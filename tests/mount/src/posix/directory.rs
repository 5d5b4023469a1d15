//! mkdir and rmdir.

use std::os::unix::fs::{MetadataExt, symlink};

use anyhow::Result;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB, with_umask};

super::statements!("directory":
    mkdir_makes_an_empty_directory_of_the_caller,
    mkdir_takes_the_umask_from_the_mode,
    mkdir_refuses_whatever_exists,
    mkdir_needs_write_permission_on_the_parent,
    mkdir_accepts_a_trailing_slash,
    links_to_a_directory_count_its_subdirectories,
    dot_and_dotdot_lead_where_they_should,
    rmdir_refuses_what_is_not_empty,
    rmdir_refuses_what_is_no_directory,
    rmdir_refuses_dot_and_dotdot,
    rmdir_needs_write_permission_on_the_parent,
    a_removed_directory_that_is_open_is_dead_and_empty,
    making_and_removing_move_the_times_of_the_parent,
    the_root_of_the_mount_stays,
    a_hundred_levels_can_be_made_and_removed,
);

fn mkdir(path: impl AsRef<std::path::Path>, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::mkdir(path.as_ref(), Mode::from_raw_mode(mode))
}

fn rmdir(path: impl AsRef<std::path::Path>) -> rustix::io::Result<()> {
    rustix::fs::rmdir(path.as_ref())
}

fn mkdir_makes_an_empty_directory_of_the_caller(place: &Place) -> Result<()> {
    ALICE.run(|| Ok(mkdir(place.at("d"), 0o750)?))?;
    let meta = meta(place.at("d"))?;
    equal(meta.mode(), 0o040_750)?;
    equal((meta.uid(), meta.gid()), (ALICE.0, ALICE.0))?;
    equal(meta.nlink(), 2)?;
    equal(std::fs::read_dir(place.at("d"))?.count(), 0)
}

fn mkdir_takes_the_umask_from_the_mode(place: &Place) -> Result<()> {
    with_umask(0o027, || Ok(mkdir(place.at("masked"), 0o777)?))?;
    equal(mode(place.at("masked"))?, 0o750)?;
    with_umask(0, || Ok(mkdir(place.at("sticky"), 0o1777)?))?;
    equal(mode(place.at("sticky"))?, 0o1777)
}

fn mkdir_refuses_whatever_exists(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    symlink("nowhere", place.at("dangling"))?;
    for name in ["file", "dir", "dangling", ".", ".."] {
        refused(mkdir(place.at(name), 0o755), Errno::EXIST)?;
    }
    Ok(())
}

fn mkdir_needs_write_permission_on_the_parent(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    BOB.run(|| refused(mkdir(place.at("d/new"), 0o755), Errno::ACCESS))
}

fn mkdir_accepts_a_trailing_slash(place: &Place) -> Result<()> {
    mkdir(place.at("d/"), 0o755)?;
    equal(meta(place.at("d"))?.is_dir(), true)?;
    rmdir(place.at("d/"))?;
    gone(place.at("d"))
}

fn links_to_a_directory_count_its_subdirectories(place: &Place) -> Result<()> {
    let links = || -> Result<u64> { Ok(meta(&place.dir)?.nlink()) };
    equal(links()?, 2)?;
    for number in 1..=20 {
        dir(place.at(number.to_string()))?;
        equal(links()?, 2 + number)?;
    }
    file(place.at("file"), b"")?;
    equal(links()?, 22)?;
    rmdir(place.at("7"))?;
    equal(links()?, 21)
}

fn dot_and_dotdot_lead_where_they_should(place: &Place) -> Result<()> {
    dir(place.at("a"))?;
    dir(place.at("a/b"))?;
    let ino = |name: &str| -> Result<u64> { Ok(meta(place.at(name))?.ino()) };
    equal(ino("a/b/.")?, ino("a/b")?)?;
    equal(ino("a/b/..")?, ino("a")?)?;
    equal(ino("a/b/../../a/./b")?, ino("a/b")?)?;
    equal(ino("a/../..")?, meta(place.dir.join(".."))?.ino())
}

fn rmdir_refuses_what_is_not_empty(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    file(place.at("d/file"), b"")?;
    refused_with(rmdir(place.at("d")), &[Errno::NOTEMPTY, Errno::EXIST])?;
    std::fs::remove_file(place.at("d/file"))?;
    dir(place.at("d/sub"))?;
    refused_with(rmdir(place.at("d")), &[Errno::NOTEMPTY, Errno::EXIST])?;
    rmdir(place.at("d/sub"))?;
    rmdir(place.at("d"))?;
    gone(place.at("d"))
}

fn rmdir_refuses_what_is_no_directory(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("d"))?;
    symlink("d", place.at("link"))?;
    refused(rmdir(place.at("file")), Errno::NOTDIR)?;
    refused(rmdir(place.at("link")), Errno::NOTDIR)?;
    refused(rmdir(place.at("file/x")), Errno::NOTDIR)?;
    refused(rmdir(place.at("none")), Errno::NOENT)
}

fn rmdir_refuses_dot_and_dotdot(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    refused(rmdir(place.at("d/.")), Errno::INVAL)?;
    refused_with(rmdir(place.at("d/..")), &[Errno::NOTEMPTY, Errno::INVAL])
}

fn rmdir_needs_write_permission_on_the_parent(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    dir(place.at("d/sub"))?;
    chown(place.at("d/sub"), Some(BOB.0), Some(BOB.0))?;
    BOB.run(|| refused(rmdir(place.at("d/sub")), Errno::ACCESS))
}

fn a_removed_directory_that_is_open_is_dead_and_empty(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    let opened = open(place.at("d"), OFlags::RDONLY | OFlags::DIRECTORY)?;
    rmdir(place.at("d"))?;
    equal(opened.metadata()?.nlink(), 0)?;
    let flags = OFlags::CREATE | OFlags::RDWR;
    refused(
        rustix::fs::openat(&opened, "new", flags, Mode::RWXU),
        Errno::NOENT,
    )?;
    refused(
        rustix::fs::mkdirat(&opened, "new", Mode::RWXU),
        Errno::NOENT,
    )?;
    refused(rustix::fs::symlinkat("x", &opened, "new"), Errno::NOENT)?;
    refused(
        rustix::fs::statat(&opened, "x", AtFlags::empty()),
        Errno::NOENT,
    )?;
    let names = rustix::fs::Dir::read_from(&opened)?.collect::<Result<Vec<_>, _>>();
    let others = names
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    equal(others.count(), 0)
}

fn making_and_removing_move_the_times_of_the_parent(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    let steps: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("mkdir", &|| dir(place.at("d/sub"))),
        ("rmdir", &|| Ok(rmdir(place.at("d/sub"))?)),
        ("creat", &|| file(place.at("d/file"), b"").map(|_| ())),
        ("link", &|| {
            Ok(std::fs::hard_link(place.at("d/file"), place.at("d/more"))?)
        }),
        ("symlink", &|| Ok(symlink("x", place.at("d/link"))?)),
        ("unlink", &|| Ok(std::fs::remove_file(place.at("d/file"))?)),
    ];
    for (name, step) in steps {
        let moved = moved(place.at("d"), step)?;
        anyhow::ensure!(moved == BOTH, "{name}: {moved:?}");
    }
    Ok(())
}

fn the_root_of_the_mount_stays(place: &Place) -> Result<()> {
    let mut root = place.dir.clone();
    root.pop();
    refused(rmdir(&root), Errno::BUSY)?;
    refused(
        rustix::fs::rename(&root, place.outside.join("moved")),
        Errno::BUSY,
    )?;
    refused(rmdir(root.join(".")), Errno::INVAL)
}

fn a_hundred_levels_can_be_made_and_removed(place: &Place) -> Result<()> {
    let mut path = place.dir.clone();
    for level in 0..100 {
        path.push(format!("level-{level}"));
        mkdir(&path, 0o755)?;
    }
    file(path.join("bottom"), b"deep")?;
    holds(path.join("bottom"), b"deep")?;
    std::fs::remove_dir_all(place.at("level-0"))?;
    gone(place.at("level-0"))
}
