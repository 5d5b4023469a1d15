//! The kernel's setting that lets FUSE filesystems be served through rings, for the time of a
//! measurement.

use anyhow::{Context, Result};

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether mounts to come are served through rings, where they leave it to the kernel.
pub fn are_on() -> bool {
    let setting = std::fs::read_to_string(SETTING);
    setting.is_ok_and(|setting| setting.starts_with(['Y', '1']))
}

/// Turned on, until this is dropped.
pub struct TurnedOn {
    before: String,
}

impl TurnedOn {
    pub fn new() -> Result<TurnedOn> {
        let why = || format!("{SETTING}: is FUSE over io_uring part of this kernel?");
        let before = std::fs::read_to_string(SETTING).with_context(why)?;
        std::fs::write(SETTING, "Y").with_context(why)?;
        Ok(TurnedOn { before })
    }
}

impl Drop for TurnedOn {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(SETTING, self.before.trim()) {
            eprintln!("{SETTING}: {error}");
        }
    }
}
