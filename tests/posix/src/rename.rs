//! rename, with NOREPLACE and EXCHANGE.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FileType, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("rename":
    a_file_moves_with_its_inode,
    a_file_replaces_a_file,
    a_replaced_file_that_is_open_lives_on,
    a_directory_replaces_an_empty_one,
    names_of_one_file_stay_both,
    a_name_onto_itself_changes_nothing,
    a_moved_directory_has_a_new_parent,
    a_symlink_is_moved_not_followed,
    the_times_of_both_parents_move,
    the_inode_time_of_the_moved_file_moves,
    the_longest_name_can_be_given,
    noreplace_refuses_what_exists,
    a_whiteout_is_left_where_that_is_asked_for,
    exchange_swaps_files,
    exchange_swaps_a_file_and_a_directory,
    readers_find_the_old_or_the_new_never_neither,
    crossing_moves_of_directories_leave_a_tree,
);

fn a_file_moves_with_its_inode(d: &impl Door) -> Result<()> {
    d.file("a", b"content")?;
    d.dir("d")?;
    let before = d.ino("a")?;
    d.rename("a", "b")?;
    d.gone("a")?;
    d.rename("b", "d/c")?;
    d.gone("b")?;
    equal(d.ino("d/c")?, before)?;
    d.holds("d/c", b"content")
}

fn a_file_replaces_a_file(d: &impl Door) -> Result<()> {
    d.file("a", b"new")?;
    d.file("b", b"old")?;
    d.link("b", "other")?;
    let before = d.ino("a")?;
    d.rename("a", "b")?;
    d.gone("a")?;
    equal(d.ino("b")?, before)?;
    d.holds("b", b"new")?;
    d.holds("other", b"old")?;
    equal(d.stat("other")?.nlink, 1)
}

fn a_replaced_file_that_is_open_lives_on(d: &impl Door) -> Result<()> {
    let old = d.file("b", b"old")?;
    d.file("a", b"new")?;
    d.rename("a", "b")?;
    equal(old.stat()?.nlink, 0)?;
    old.write_all_at(b" and more", 3)?;
    equal(old.content()?, b"old and more".to_vec())?;
    d.holds("b", b"new")
}

fn a_directory_replaces_an_empty_one(d: &impl Door) -> Result<()> {
    d.dir("a")?;
    d.file("a/file", b"x")?;
    d.dir("b")?;
    let links = d.stat(".")?.nlink;
    d.rename("a", "b")?;
    d.gone("a")?;
    d.holds("b/file", b"x")?;
    equal(d.stat(".")?.nlink, links - 1)?;
    d.dirs("c/deep")?;
    d.dir("e")?;
    d.rename("c/deep", "e")?;
    equal((d.stat("c")?.nlink, d.stat("e")?.nlink), (2, 2))
}

fn names_of_one_file_stay_both(d: &impl Door) -> Result<()> {
    d.file("a", b"x")?;
    d.link("a", "b")?;
    d.rename("a", "b")?;
    equal(d.stat("a")?.nlink, 2)?;
    equal(d.ino("a")?, d.ino("b")?)
}

fn a_name_onto_itself_changes_nothing(d: &impl Door) -> Result<()> {
    d.file("a", b"x")?;
    d.dir("d")?;
    d.rename("a", "a")?;
    d.rename("d", "d")?;
    d.holds("a", b"x")
}

fn a_moved_directory_has_a_new_parent(d: &impl Door) -> Result<()> {
    d.dirs("from/moved/sub")?;
    d.dir("to")?;
    d.rename("from/moved", "to/moved")?;
    equal(d.ino("to/moved/..")?, d.ino("to")?)?;
    equal(d.stat("from")?.nlink, 2)?;
    equal(d.stat("to")?.nlink, 3)?;
    equal(d.stat("to/moved")?.nlink, 3)?;
    // Back and one deeper is no loop.
    d.rename("to/moved", "from/back")?;
    equal(d.ino("from/back/..")?, d.ino("from")?)
}

fn a_symlink_is_moved_not_followed(d: &impl Door) -> Result<()> {
    d.file("file", b"x")?;
    d.symlink("file", "s")?;
    d.rename("s", "t")?;
    equal(d.readlink("t")?, "file".into())?;
    d.symlink("nowhere", "u")?;
    d.rename("file", "u")?;
    d.holds("u", b"x")
}

fn the_times_of_both_parents_move(d: &impl Door) -> Result<()> {
    d.dir("from")?;
    d.dir("to")?;
    d.file("from/a", b"")?;
    let step = || Ok(d.rename("from/a", "to/a")?);
    let mut to = NEITHER;
    let from = d.moved("from", || {
        to = d.moved("to", step)?;
        Ok(())
    })?;
    equal((from, to), (BOTH, BOTH))
}

fn the_inode_time_of_the_moved_file_moves(d: &impl Door) -> Result<()> {
    let before = d.file("a", b"")?.stat()?;
    d.tick();
    d.rename("a", "b")?;
    let after = d.stat("b")?;
    equal(after.mtime, before.mtime)?;
    ensure!(after.ctime > before.ctime);
    Ok(())
}

fn the_longest_name_can_be_given(d: &impl Door) -> Result<()> {
    d.file("a", b"x")?;
    d.rename("a", "n".repeat(255))?;
    d.holds("n".repeat(255), b"x")?;
    refused(
        d.rename("n".repeat(255), "n".repeat(256)),
        Errno::NAMETOOLONG,
    )
}

fn noreplace_refuses_what_exists(d: &impl Door) -> Result<()> {
    d.file("a", b"a")?;
    d.file("b", b"b")?;
    d.dir("d")?;
    d.symlink("nowhere", "s")?;
    for name in ["b", "d", "s", "a"] {
        let result = d.rename_with("a", name, RenameFlags::NOREPLACE);
        refused(result, Errno::EXIST).with_context(|| name.to_owned())?;
    }
    d.rename_with("a", "c", RenameFlags::NOREPLACE)?;
    d.holds("c", b"a")?;
    d.holds("b", b"b")
}

/// As overlayfs wants it: a character device 0:0.
fn a_whiteout_is_left_where_that_is_asked_for(d: &impl Door) -> Result<()> {
    let is_whiteout = |path: &str| {
        let stat = d.stat(path)?;
        equal(
            FileType::from_raw_mode(stat.mode),
            FileType::CharacterDevice,
        )?;
        equal((stat.rdev, stat.nlink), ((0, 0), 1))
    };
    d.file("a", b"content")?;
    d.file("d", b"old")?;
    d.dirs("one/sub")?;
    d.dir("two")?;
    let (file, directory) = (d.ino("a")?, d.ino("one/sub")?);
    d.rename_with("a", "b", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE)?;
    is_whiteout("a")?;
    d.rename_with("b", "d", RenameFlags::WHITEOUT)?;
    is_whiteout("b")?;
    equal(d.ino("d")?, file)?;
    d.holds("d", b"content")?;
    d.rename_with("one/sub", "two/sub", RenameFlags::WHITEOUT)?;
    is_whiteout("one/sub")?;
    equal(d.ino("two/sub")?, directory)?;
    equal((d.stat("one")?.nlink, d.stat("two")?.nlink), (2, 3))
}

fn exchange_swaps_files(d: &impl Door) -> Result<()> {
    d.file("a", b"a")?;
    d.dir("d")?;
    d.file("d/b", b"b")?;
    let (a, b) = (d.ino("a")?, d.ino("d/b")?);
    d.rename_with("a", "d/b", RenameFlags::EXCHANGE)?;
    equal((d.ino("a")?, d.ino("d/b")?), (b, a))?;
    d.holds("a", b"b")?;
    d.holds("d/b", b"a")
}

fn exchange_swaps_a_file_and_a_directory(d: &impl Door) -> Result<()> {
    d.dirs("one/dir/sub")?;
    d.dir("two")?;
    d.file("two/file", b"x")?;
    d.rename_with("one/dir", "two/file", RenameFlags::EXCHANGE)?;
    d.holds("one/dir", b"x")?;
    equal(d.ino("two/file/..")?, d.ino("two")?)?;
    equal(d.stat("one")?.nlink, 2)?;
    equal(d.stat("two")?.nlink, 3)
}

fn readers_find_the_old_or_the_new_never_neither(d: &impl Door) -> Result<()> {
    d.file("file", &[0; 1000])?;
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    in_threads(3, |thread| {
        if thread == 0 {
            for round in 0..300u32 {
                let byte = round as u8;
                d.file("next", &[byte; 1000])?;
                d.rename("next", "file")?;
            }
            done.store(true, order);
        }
        while !done.load(order) {
            let file = d.open("file", OFlags::RDONLY, 0);
            let bytes = file.inspect_err(|_| done.store(true, order))?.content()?;
            same_bytes(&bytes, &[bytes.first().copied().unwrap_or(0); 1000])?;
        }
        Ok(())
    })
}

fn crossing_moves_of_directories_leave_a_tree(d: &impl Door) -> Result<()> {
    d.dirs("left/x")?;
    d.dirs("right/y")?;
    in_threads(2, |thread| {
        for _ in 0..300 {
            // Were both to succeed at once, each would be below the other and neither reachable.
            let _ = if thread == 0 {
                d.rename("left", "right/y/left")
            } else {
                d.rename("right", "left/x/right")
            };
            let _ = d.rename("right/y/left", "left");
            let _ = d.rename("left/x/right", "right");
        }
        Ok(())
    })?;
    let mut seen = 0;
    let mut queue = vec![PathBuf::from(".")];
    while let Some(path) = queue.pop() {
        for entry in d.list(&path)? {
            seen += 1;
            queue.push(path.join(entry.name));
        }
    }
    equal(seen, 4)
}
