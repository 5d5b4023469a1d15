//! Showing structures: decoded, for people ([`text`]) and as `serde` values for programs.
//!
//! Structures that belong to a checkpoint (footer, tables, pages) are those of the newest one;
//! items, inodes, directories and extents are as of after the replay of the journal.

mod blocks;
mod content;
mod log;
mod tables;
mod target;
mod text;

use persimmon_format::{Addr, Ino, Key, PageId, ZoneId};
use serde::Serialize;

use crate::error::Result;
use crate::volume::Inspector;

pub use blocks::{
    BlockDump, EnvelopeDump, PackedRow, PageDump, SummaryDump, SummaryRow, ZoneHeaderDump,
};
pub use content::{
    DirectoryRow, ExtentRow, InodeDump, ItemDump, OpDump, SubvolumeRow, ValueDump, item_text,
};
pub use log::{LogBlockDump, LogDump, LogZoneRow, RecordDump};
pub use tables::{CountRow, FooterDump, MatRow, PropertiesDump, ZitRow};
pub use target::FORMS;
pub use text::text;

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The header of a zone.
    Header(ZoneId),
    /// Whatever is at an address.
    Block(Addr),
    /// The log's zones, its blocks and their records from the replay position on.
    Log,
    /// The newest footer.
    Footer,
    /// The metadata allocation table: where each page is.
    Mat,
    /// The zone information table.
    Zit,
    /// A page of the tree.
    Page(PageId),
    /// Items from one key to (not including) another.
    Keys {
        /// The first; nothing is the first of all.
        from: Option<Key>,
        /// One past the last; nothing is the end.
        to: Option<Key>,
    },
    /// An inode, in the subvolume that its number names.
    Inode(Ino),
    /// The entries of a directory, in the same way.
    Directory(Ino),
    /// The extents of a file, in the same way.
    Extents(Ino),
    /// The summary blocks of a data zone.
    Summaries(ZoneId),
    /// The main subvolume and the snapshots.
    Subvolumes,
}

/// A decoded structure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Dump {
    /// Of [`Target::Header`].
    Header(ZoneHeaderDump),
    /// Of [`Target::Block`].
    Block(Box<BlockDump>),
    /// Of [`Target::Log`].
    Log(LogDump),
    /// Of [`Target::Footer`].
    Footer(Box<FooterDump>),
    /// Of [`Target::Mat`].
    Mat(Vec<MatRow>),
    /// Of [`Target::Zit`].
    Zit(Vec<ZitRow>),
    /// Of [`Target::Page`].
    Page(PageDump),
    /// Of [`Target::Keys`].
    Keys(Vec<ItemDump>),
    /// Of [`Target::Inode`].
    Inode(Box<InodeDump>),
    /// Of [`Target::Directory`].
    Directory(Vec<DirectoryRow>),
    /// Of [`Target::Extents`].
    Extents(Vec<ExtentRow>),
    /// Of [`Target::Summaries`].
    Summaries(Vec<SummaryDump>),
    /// Of [`Target::Subvolumes`].
    Subvolumes(Vec<SubvolumeRow>),
}

/// Reads and decodes a structure.
///
/// # Errors
/// It is not there, or damaged.
pub fn dump(inspector: &Inspector<'_>, target: &Target) -> Result<Dump> {
    Ok(match target {
        Target::Header(zone) => Dump::Header(blocks::header(inspector, *zone)?),
        Target::Block(addr) => Dump::Block(Box::new(blocks::block(inspector, *addr)?)),
        Target::Log => Dump::Log(log::log(inspector)?),
        Target::Footer => Dump::Footer(Box::new(tables::footer(inspector)?)),
        Target::Mat => Dump::Mat(tables::mat(inspector)?),
        Target::Zit => Dump::Zit(tables::zit(inspector)?),
        Target::Page(id) => Dump::Page(blocks::page(inspector, *id)?),
        Target::Keys { from, to } => Dump::Keys(content::keys(inspector, *from, *to)?),
        Target::Inode(ino) => Dump::Inode(Box::new(content::inode(inspector, *ino)?)),
        Target::Directory(ino) => Dump::Directory(content::directory(inspector, *ino)?),
        Target::Extents(ino) => Dump::Extents(content::extents(inspector, *ino)?),
        Target::Summaries(zone) => Dump::Summaries(blocks::summaries(inspector, *zone)?),
        Target::Subvolumes => Dump::Subvolumes(content::subvolumes(inspector)?),
    })
}
