//! link: several names of one file.

use anyhow::Result;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("link":
    both_names_are_one_file,
    the_file_lives_until_its_last_name_goes,
    link_of_a_symlink_names_the_symlink_itself,
    link_moves_only_the_inode_time_of_the_file,
    fifos_and_devices_can_have_several_names,
    two_thousand_names_of_one_file,
);

fn both_names_are_one_file(d: &impl Door) -> Result<()> {
    d.file("a", b"content")?;
    d.link("a", "b")?;
    let (a, b) = (d.stat("a")?, d.stat("b")?);
    equal((a.ino, a.nlink), (b.ino, 2))?;
    d.edit("b")?.write_all_at(b"changed", 0)?;
    d.holds("a", b"changed")?;
    d.chmod("a", 0o600)?;
    equal(d.mode("b")?, 0o600)
}

fn the_file_lives_until_its_last_name_goes(d: &impl Door) -> Result<()> {
    d.file("a", b"content")?;
    d.dir("d")?;
    d.link("a", "d/b")?;
    d.unlink("a")?;
    d.holds("d/b", b"content")?;
    equal(d.stat("d/b")?.nlink, 1)
}

fn link_of_a_symlink_names_the_symlink_itself(d: &impl Door) -> Result<()> {
    d.symlink("nowhere", "s")?;
    d.link("s", "t")?;
    equal(d.ino("t")?, d.ino("s")?)?;
    equal(d.readlink("t")?, "nowhere".into())
}

fn link_moves_only_the_inode_time_of_the_file(d: &impl Door) -> Result<()> {
    d.file("a", b"")?;
    equal(d.moved("a", || Ok(d.link("a", "b")?))?, CTIME)?;
    let remove = || Ok(d.unlink("b")?);
    equal(d.moved("a", remove)?, CTIME)
}

fn fifos_and_devices_can_have_several_names(d: &impl Door) -> Result<()> {
    d.mknod("fifo", 0o010_644, (0, 0))?;
    d.link("fifo", "again")?;
    equal(d.stat("again")?.nlink, 2)
}

fn two_thousand_names_of_one_file(d: &impl Door) -> Result<()> {
    d.file("0", b"content")?;
    for number in 1..2000 {
        d.link("0", number.to_string())?;
    }
    equal(d.stat("1234")?.nlink, 2000)?;
    for number in 0..1999 {
        d.unlink(number.to_string())?;
    }
    equal(d.stat("1999")?.nlink, 1)?;
    d.holds("1999", b"content")
}
