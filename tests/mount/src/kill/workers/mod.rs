//! The writers of the kill tests: each knows what was acknowledged to it, what it had under way, and
//! what the filesystem may show after a crash.

mod append;
mod attributes;
mod blocks;
mod mapped;
mod names;
mod order;
mod remove;
mod replace;
mod stamp;
mod unsynced;

use std::fs::File;
use std::path::Path;

use anyhow::Result;

use append::Appender;
use attributes::Attributes;
use blocks::Blocks;
use mapped::Mapped;
use names::Names;
use order::Order;
use remove::Remover;
use replace::{Replacer, Synced};
use unsynced::Unsynced;

/// One writer, in a directory of its own.
pub trait Worker: Send {
    /// Also the name of its directory.
    fn name(&self) -> &'static str;
    /// One step; when it comes back without error, what it synced is acknowledged.
    fn step(&mut self, dir: &Path) -> Result<()>;
    /// Compares with what is there after a crash, and goes on from that. What a recovered volume
    /// shows counts as acknowledged.
    fn verify(&mut self, dir: &Path) -> Result<()>;
    /// Closes what it holds open from one `verify` to the next crash.
    fn let_go(&mut self) {}
}

/// One of each.
pub fn all() -> Vec<Box<dyn Worker>> {
    vec![
        Box::new(Appender::new("append-fsync", File::sync_all)),
        Box::new(Appender::new("append-fdatasync", File::sync_data)),
        Box::new(Blocks::new("blocks-dsync", libc::O_DSYNC, 1)),
        Box::new(Blocks::new("runs-sync", libc::O_SYNC, 40)),
        Box::new(Mapped::default()),
        Box::new(Replacer::new("replace-synced", Synced::FileAndDirectory)),
        Box::new(Replacer::new("replace-dir-synced", Synced::Directory)),
        Box::new(Replacer::new("replace-unsynced", Synced::Nothing)),
        Box::new(Names::default()),
        Box::new(Order::default()),
        Box::new(Remover::default()),
        Box::new(Attributes::default()),
        Box::new(Unsynced::default()),
    ]
}

fn sync_dir(dir: &Path) -> Result<()> {
    Ok(File::open(dir)?.sync_all()?)
}
