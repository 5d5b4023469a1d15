//! O_TMPFILE: files that never had a name.

use anyhow::Result;
use rustix::fs::OFlags;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("tmpfile":
    it_has_no_name_and_works,
    it_can_get_a_name,
);

const TMP: OFlags = OFlags::TMPFILE.union(OFlags::RDWR);

fn it_has_no_name_and_works(d: &impl Door) -> Result<()> {
    let file = d.open(".", TMP, 0o640)?;
    file.write_all_at(b"content", 0)?;
    equal(file.content()?, b"content".to_vec())?;
    let meta = file.stat()?;
    equal((meta.nlink, meta.mode), (0, 0o100_640))?;
    equal(d.list(".")?.len(), 0)
}

fn it_can_get_a_name(d: &impl Door) -> Result<()> {
    let file = d.open(".", TMP, 0o644)?;
    file.write_all_at(&noise(1, 50_000), 0)?;
    d.link_open(&file, "named")?;
    equal(d.stat("named")?.nlink, 1)?;
    drop(file);
    d.holds("named", &noise(1, 50_000))
}
