//! File handles (`name_to_handle_at`), which outlive the kernel's memory of a file.

use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{handle_of, open_handle};

super::statements!("handle":
    a_handle_leads_to_files_that_the_kernel_has_forgotten,
    the_handle_of_what_is_gone_is_estale,
);

/// Makes the kernel ask the filesystem again about what nobody has open.
fn forget() -> Result<()> {
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "2")?)
}

fn a_handle_leads_to_files_that_the_kernel_has_forgotten(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    std::fs::create_dir(place.at("dir"))?;
    let mode = Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, place.at("fifo"), FileType::Fifo, mode, 0)?;
    let mount = open(&place.dir, OFlags::RDONLY)?;
    for name in ["file", "dir", "fifo"] {
        let handle = handle_of(&place.at(name))?;
        let ino = std::fs::metadata(place.at(name))?.ino();
        forget()?;
        let opened = open_handle(&mount, &handle, OFlags::PATH)?;
        equal(opened.metadata()?.ino(), ino)?;
    }
    let handle = handle_of(&place.at("file"))?;
    forget()?;
    let opened = open_handle(&mount, &handle, OFlags::RDONLY)?;
    equal(std::io::read_to_string(opened)?, "content".to_owned())
}

fn the_handle_of_what_is_gone_is_estale(place: &Place) -> Result<()> {
    file(place.at("f"), b"x")?;
    let handle = handle_of(&place.at("f"))?;
    std::fs::remove_file(place.at("f"))?;
    file(place.at("f"), b"y")?;
    forget()?;
    let mount = open(&place.dir, OFlags::RDONLY)?;
    refused(open_handle(&mount, &handle, OFlags::RDONLY), Errno::STALE)
}
