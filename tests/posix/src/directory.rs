//! mkdir and rmdir.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::door::{ALICE, Door};
use crate::expect::*;

crate::table!("directory":
    mkdir_makes_an_empty_directory_of_the_caller,
    mkdir_takes_the_umask_from_the_mode,
    links_to_a_directory_count_its_subdirectories,
    dot_and_dotdot_lead_where_they_should,
    making_and_removing_move_the_times_of_the_parent,
    a_hundred_levels_can_be_made_and_removed,
);

fn mkdir_makes_an_empty_directory_of_the_caller(d: &impl Door) -> Result<()> {
    d.as_user(ALICE, |d| Ok(d.mkdir("d", 0o750)?))?;
    let meta = d.stat("d")?;
    equal(meta.mode, 0o040_750)?;
    equal((meta.uid, meta.gid), (ALICE.id, ALICE.id))?;
    equal(meta.nlink, 2)?;
    equal(d.list("d")?.len(), 0)
}

fn mkdir_takes_the_umask_from_the_mode(d: &impl Door) -> Result<()> {
    d.with_umask(0o027, |d| Ok(d.mkdir("masked", 0o777)?))?;
    equal(d.mode("masked")?, 0o750)?;
    d.with_umask(0, |d| Ok(d.mkdir("sticky", 0o1777)?))?;
    equal(d.mode("sticky")?, 0o1777)
}

fn links_to_a_directory_count_its_subdirectories(d: &impl Door) -> Result<()> {
    let links = || -> Result<u64> { Ok(d.stat(".")?.nlink) };
    equal(links()?, 2)?;
    for number in 1..=20 {
        d.dir(number.to_string())?;
        equal(links()?, 2 + number)?;
    }
    d.file("file", b"")?;
    equal(links()?, 22)?;
    d.rmdir("7")?;
    equal(links()?, 21)
}

fn dot_and_dotdot_lead_where_they_should(d: &impl Door) -> Result<()> {
    d.dir("a")?;
    d.dir("a/b")?;
    equal(d.ino("a/b/.")?, d.ino("a/b")?)?;
    equal(d.ino("a/b/..")?, d.ino("a")?)?;
    equal(d.ino("a/b/../../a/./b")?, d.ino("a/b")?)?;
    equal(d.ino("a/../..")?, d.ino("..")?)
}

fn making_and_removing_move_the_times_of_the_parent(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    let steps: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("mkdir", &|| d.dir("d/sub")),
        ("rmdir", &|| Ok(d.rmdir("d/sub")?)),
        ("creat", &|| d.file("d/file", b"").map(drop)),
        ("link", &|| Ok(d.link("d/file", "d/more")?)),
        ("symlink", &|| Ok(d.symlink("x", "d/link")?)),
        ("unlink", &|| Ok(d.unlink("d/file")?)),
    ];
    for (name, step) in steps {
        let moved = d.moved("d", step)?;
        ensure!(moved == BOTH, "{name}: {moved:?}");
    }
    Ok(())
}

fn a_hundred_levels_can_be_made_and_removed(d: &impl Door) -> Result<()> {
    let mut path = PathBuf::new();
    for level in 0..100 {
        path.push(format!("level-{level}"));
        d.mkdir(&path, 0o755)?;
    }
    d.file(path.join("bottom"), b"deep")?;
    d.holds(path.join("bottom"), b"deep")?;
    d.remove_all("level-0".as_ref())?;
    d.gone("level-0")
}
