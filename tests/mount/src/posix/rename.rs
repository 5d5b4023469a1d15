//! rename, with NOREPLACE and EXCHANGE.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("rename":
    a_file_moves_with_its_inode,
    a_file_replaces_a_file,
    a_replaced_file_that_is_open_lives_on,
    a_directory_replaces_an_empty_one,
    a_directory_does_not_replace_a_full_one,
    kinds_are_not_mixed,
    a_directory_does_not_move_into_itself,
    names_of_one_file_stay_both,
    a_name_onto_itself_changes_nothing,
    missing_names_are_enoent,
    dot_and_dotdot_are_refused,
    another_filesystem_is_exdev,
    a_moved_directory_has_a_new_parent,
    a_symlink_is_moved_not_followed,
    the_directories_must_be_writable,
    a_moved_directory_must_be_writable_itself,
    the_times_of_both_parents_move,
    the_inode_time_of_the_moved_file_moves,
    the_longest_name_can_be_given,
    noreplace_refuses_what_exists,
    exchange_swaps_files,
    exchange_swaps_a_file_and_a_directory,
    exchange_needs_both,
    exchange_refuses_a_directory_and_what_is_in_it,
    flags_that_contradict_are_einval,
    readers_find_the_old_or_the_new_never_neither,
    crossing_moves_of_directories_leave_a_tree,
);

fn rename(old: impl AsRef<Path>, new: impl AsRef<Path>) -> rustix::io::Result<()> {
    rustix::fs::rename(old.as_ref(), new.as_ref())
}

fn rename_with(
    old: impl AsRef<Path>,
    new: impl AsRef<Path>,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, old.as_ref(), CWD, new.as_ref(), flags)
}

fn ino(path: impl AsRef<Path>) -> Result<u64> {
    Ok(meta(path)?.ino())
}

fn a_file_moves_with_its_inode(place: &Place) -> Result<()> {
    file(place.at("a"), b"content")?;
    dir(place.at("d"))?;
    let before = ino(place.at("a"))?;
    rename(place.at("a"), place.at("b"))?;
    gone(place.at("a"))?;
    rename(place.at("b"), place.at("d/c"))?;
    gone(place.at("b"))?;
    equal(ino(place.at("d/c"))?, before)?;
    holds(place.at("d/c"), b"content")
}

fn a_file_replaces_a_file(place: &Place) -> Result<()> {
    file(place.at("a"), b"new")?;
    file(place.at("b"), b"old")?;
    std::fs::hard_link(place.at("b"), place.at("other"))?;
    let before = ino(place.at("a"))?;
    rename(place.at("a"), place.at("b"))?;
    gone(place.at("a"))?;
    equal(ino(place.at("b"))?, before)?;
    holds(place.at("b"), b"new")?;
    holds(place.at("other"), b"old")?;
    equal(meta(place.at("other"))?.nlink(), 1)
}

fn a_replaced_file_that_is_open_lives_on(place: &Place) -> Result<()> {
    let mut old: File = file(place.at("b"), b"old")?;
    file(place.at("a"), b"new")?;
    rename(place.at("a"), place.at("b"))?;
    equal(old.metadata()?.nlink(), 0)?;
    old.write_all(b" and more")?;
    equal(content(&old)?, b"old and more".to_vec())?;
    holds(place.at("b"), b"new")
}

fn a_directory_replaces_an_empty_one(place: &Place) -> Result<()> {
    dir(place.at("a"))?;
    file(place.at("a/file"), b"x")?;
    dir(place.at("b"))?;
    let links = meta(&place.dir)?.nlink();
    rename(place.at("a"), place.at("b"))?;
    gone(place.at("a"))?;
    holds(place.at("b/file"), b"x")?;
    equal(meta(&place.dir)?.nlink(), links - 1)
}

fn a_directory_does_not_replace_a_full_one(place: &Place) -> Result<()> {
    dir(place.at("a"))?;
    dir(place.at("b"))?;
    file(place.at("b/file"), b"x")?;
    refused_with(
        rename(place.at("a"), place.at("b")),
        &[Errno::NOTEMPTY, Errno::EXIST],
    )?;
    holds(place.at("b/file"), b"x")
}

fn kinds_are_not_mixed(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    symlink("dir", place.at("link"))?;
    refused(rename(place.at("file"), place.at("dir")), Errno::ISDIR)?;
    refused(rename(place.at("dir"), place.at("file")), Errno::NOTDIR)?;
    refused(rename(place.at("dir"), place.at("link")), Errno::NOTDIR)?;
    refused(rename(place.at("link"), place.at("dir")), Errno::ISDIR)?;
    refused(rename(place.at("file"), place.at("new/")), Errno::NOTDIR)
}

fn a_directory_does_not_move_into_itself(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.at("a/b/c"))?;
    refused(rename(place.at("a"), place.at("a/x")), Errno::INVAL)?;
    refused(rename(place.at("a"), place.at("a/b/c/x")), Errno::INVAL)?;
    refused_with(
        rename(place.at("a/b/c"), place.at("a")),
        &[Errno::NOTEMPTY, Errno::EXIST],
    )
}

fn names_of_one_file_stay_both(place: &Place) -> Result<()> {
    file(place.at("a"), b"x")?;
    std::fs::hard_link(place.at("a"), place.at("b"))?;
    rename(place.at("a"), place.at("b"))?;
    equal(meta(place.at("a"))?.nlink(), 2)?;
    equal(ino(place.at("a"))?, ino(place.at("b"))?)
}

fn a_name_onto_itself_changes_nothing(place: &Place) -> Result<()> {
    file(place.at("a"), b"x")?;
    dir(place.at("d"))?;
    rename(place.at("a"), place.at("a"))?;
    rename(place.at("d"), place.at("d"))?;
    holds(place.at("a"), b"x")
}

fn missing_names_are_enoent(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    refused(rename(place.at("none"), place.at("b")), Errno::NOENT)?;
    refused(rename(place.at("a"), place.at("none/b")), Errno::NOENT)?;
    refused(rename(place.at("a"), place.at("a/b")), Errno::NOTDIR)?;
    refused(rename(place.at("a"), ""), Errno::NOENT)
}

fn dot_and_dotdot_are_refused(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    for name in ["d/.", "d/.."] {
        refused_with(
            rename(place.at(name), place.at("x")),
            &[Errno::BUSY, Errno::INVAL],
        )?;
        refused_with(
            rename(place.at("d"), place.at(name)),
            &[Errno::BUSY, Errno::INVAL],
        )?;
    }
    Ok(())
}

fn another_filesystem_is_exdev(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    refused(rename(place.at("a"), place.outside.join("a")), Errno::XDEV)
}

fn a_moved_directory_has_a_new_parent(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.at("from/moved/sub"))?;
    dir(place.at("to"))?;
    rename(place.at("from/moved"), place.at("to/moved"))?;
    equal(ino(place.at("to/moved/.."))?, ino(place.at("to"))?)?;
    equal(meta(place.at("from"))?.nlink(), 2)?;
    equal(meta(place.at("to"))?.nlink(), 3)?;
    equal(meta(place.at("to/moved"))?.nlink(), 3)
}

fn a_symlink_is_moved_not_followed(place: &Place) -> Result<()> {
    file(place.at("file"), b"x")?;
    symlink("file", place.at("s"))?;
    rename(place.at("s"), place.at("t"))?;
    equal(std::fs::read_link(place.at("t"))?, "file".into())?;
    symlink("nowhere", place.at("u"))?;
    rename(place.at("file"), place.at("u"))?;
    holds(place.at("u"), b"x")
}

fn the_directories_must_be_writable(place: &Place) -> Result<()> {
    for name in ["closed", "open"] {
        dir(place.at(name))?;
        file(place.at(name).join("file"), b"")?;
        chown(place.at(name).join("file"), Some(BOB.0), None)?;
    }
    chmod(place.at("open"), 0o777)?;
    BOB.run(|| {
        let closed = place.at("closed/file");
        refused(rename(&closed, place.at("open/x")), Errno::ACCESS)?;
        refused(
            rename(place.at("open/file"), place.at("closed/x")),
            Errno::ACCESS,
        )?;
        Ok(rename(place.at("open/file"), place.at("open/x"))?)
    })
}

fn a_moved_directory_must_be_writable_itself(place: &Place) -> Result<()> {
    for name in ["one", "two"] {
        dir(place.at(name))?;
        chmod(place.at(name), 0o777)?;
    }
    dir(place.at("one/locked"))?; // Its own `..` would change, and Bob may not write it.
    BOB.run(|| {
        refused(
            rename(place.at("one/locked"), place.at("two/locked")),
            Errno::ACCESS,
        )?;
        Ok(rename(place.at("one/locked"), place.at("one/renamed"))?)
    })
}

fn the_times_of_both_parents_move(place: &Place) -> Result<()> {
    dir(place.at("from"))?;
    dir(place.at("to"))?;
    file(place.at("from/a"), b"")?;
    let step = || Ok(rename(place.at("from/a"), place.at("to/a"))?);
    let mut to = NEITHER;
    let from = moved(place.at("from"), || {
        to = moved(place.at("to"), step)?;
        Ok(())
    })?;
    equal((from, to), (BOTH, BOTH))
}

fn the_inode_time_of_the_moved_file_moves(place: &Place) -> Result<()> {
    let handle = file(place.at("a"), b"")?;
    let before = handle.metadata()?;
    tick();
    rename(place.at("a"), place.at("b"))?;
    let after = handle.metadata()?;
    equal(
        (after.mtime(), after.mtime_nsec()),
        (before.mtime(), before.mtime_nsec()),
    )?;
    let moved = (after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec());
    equal(moved, true)
}

fn the_longest_name_can_be_given(place: &Place) -> Result<()> {
    file(place.at("a"), b"x")?;
    rename(place.at("a"), place.at("n".repeat(255)))?;
    holds(place.at("n".repeat(255)), b"x")?;
    refused(
        rename(place.at("n".repeat(255)), place.at("n".repeat(256))),
        Errno::NAMETOOLONG,
    )
}

fn noreplace_refuses_what_exists(place: &Place) -> Result<()> {
    file(place.at("a"), b"a")?;
    file(place.at("b"), b"b")?;
    dir(place.at("d"))?;
    symlink("nowhere", place.at("s"))?;
    for name in ["b", "d", "s", "a"] {
        let result = rename_with(place.at("a"), place.at(name), RenameFlags::NOREPLACE);
        refused(result, Errno::EXIST).with_context(|| name.to_owned())?;
    }
    rename_with(place.at("a"), place.at("c"), RenameFlags::NOREPLACE)?;
    holds(place.at("c"), b"a")?;
    holds(place.at("b"), b"b")
}

fn exchange_swaps_files(place: &Place) -> Result<()> {
    file(place.at("a"), b"a")?;
    dir(place.at("d"))?;
    file(place.at("d/b"), b"b")?;
    let (a, b) = (ino(place.at("a"))?, ino(place.at("d/b"))?);
    rename_with(place.at("a"), place.at("d/b"), RenameFlags::EXCHANGE)?;
    equal((ino(place.at("a"))?, ino(place.at("d/b"))?), (b, a))?;
    holds(place.at("a"), b"b")?;
    holds(place.at("d/b"), b"a")
}

fn exchange_swaps_a_file_and_a_directory(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.at("one/dir/sub"))?;
    dir(place.at("two"))?;
    file(place.at("two/file"), b"x")?;
    rename_with(
        place.at("one/dir"),
        place.at("two/file"),
        RenameFlags::EXCHANGE,
    )?;
    holds(place.at("one/dir"), b"x")?;
    equal(ino(place.at("two/file/.."))?, ino(place.at("two"))?)?;
    equal(meta(place.at("one"))?.nlink(), 2)?;
    equal(meta(place.at("two"))?.nlink(), 3)
}

fn exchange_needs_both(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    for (from, to) in [("a", "none"), ("none", "a")] {
        let result = rename_with(place.at(from), place.at(to), RenameFlags::EXCHANGE);
        refused(result, Errno::NOENT)?;
    }
    Ok(())
}

fn exchange_refuses_a_directory_and_what_is_in_it(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.at("a/b/c"))?;
    for (from, to) in [("a", "a/b/c"), ("a/b/c", "a")] {
        let result = rename_with(place.at(from), place.at(to), RenameFlags::EXCHANGE);
        refused(result, Errno::INVAL)?;
    }
    Ok(())
}

fn flags_that_contradict_are_einval(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    file(place.at("b"), b"")?;
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    refused(
        rename_with(place.at("a"), place.at("b"), both),
        Errno::INVAL,
    )
}

fn readers_find_the_old_or_the_new_never_neither(place: &Place) -> Result<()> {
    let path = place.at("file");
    std::fs::write(&path, [0; 1000])?;
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    in_threads(3, |thread| {
        if thread == 0 {
            for round in 0..300u32 {
                let byte = round as u8;
                std::fs::write(place.at("next"), [byte; 1000])?;
                rename(place.at("next"), &path)?;
            }
            done.store(true, order);
        }
        while !done.load(order) {
            let file = open(&path, OFlags::RDONLY).inspect_err(|_| done.store(true, order))?;
            let bytes = content(&file)?;
            same_bytes(&bytes, &[bytes.first().copied().unwrap_or(0); 1000])?;
        }
        Ok(())
    })
}

fn crossing_moves_of_directories_leave_a_tree(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.at("left/x"))?;
    std::fs::create_dir_all(place.at("right/y"))?;
    in_threads(2, |thread| {
        for _ in 0..300 {
            // Were both to succeed at once, each would be below the other and neither reachable.
            let _ = if thread == 0 {
                rename(place.at("left"), place.at("right/y/left"))
            } else {
                rename(place.at("right"), place.at("left/x/right"))
            };
            let _ = rename(place.at("right/y/left"), place.at("left"));
            let _ = rename(place.at("left/x/right"), place.at("right"));
        }
        Ok(())
    })?;
    let mut seen = 0;
    let mut queue = vec![place.dir.clone()];
    while let Some(path) = queue.pop() {
        for entry in std::fs::read_dir(&path)? {
            seen += 1;
            queue.push(entry?.path());
        }
    }
    equal(seen, 4)
}
