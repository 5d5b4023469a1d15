//! Mounts a filesystem that does nothing: see `persimmon_fuse::nothing`. `cargo xtask bench` shows it beside the mount.
//! Run by root with the directory to mount on, and perhaps mount options; ends with the unmount.

use std::error::Error;

use persimmon_fuse::{MountOptions, nothing};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let dir = arguments.next().ok_or("name the directory to mount on")?;
    let options = arguments.next().unwrap_or_default();
    let options = MountOptions::parse(options.to_str().ok_or("options are no text")?)?;
    Ok(nothing::serve(dir.as_ref(), &options)?)
}
