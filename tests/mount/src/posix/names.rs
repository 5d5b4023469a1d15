//! Names: how long, of which bytes, and how they are told apart.

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::in_directory;

super::statements!("names":
    a_path_of_more_than_4095_bytes_is_refused,
    repeated_slashes_and_dots_mean_nothing,
);

fn a_path_of_more_than_4095_bytes_is_refused(place: &Place) -> Result<()> {
    in_directory(&place.dir, || {
        file(place.at("f"), b"x")?;
        let path = |len: usize| format!("{}f", "./".repeat(len / 2));
        open(path(4094), OFlags::RDONLY)?;
        refused(open(path(4096), OFlags::RDONLY), Errno::NAMETOOLONG)
    })
}

fn repeated_slashes_and_dots_mean_nothing(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    file(place.at("d/f"), b"x")?;
    for path in ["d//f", "./d/./f", "d/../d/f", ".///d//.//f"] {
        holds(place.at(path), b"x")?;
    }
    Ok(())
}
