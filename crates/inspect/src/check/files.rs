//! Files, directories and everything else that has an inode, item by item in key order.

use std::ops::ControlFlow;

use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::zone_header;
use persimmon_format::{BLOCK_SIZE, Ino, Key, KeyKind, VersionId};

use super::items::Current;
use super::links::{InodeRow, Names};
use super::losses::Losses;
use super::owners::Owners;
use super::repair::Plan;
use super::sharing::Sharing;
use super::{CheckOptions, Counts};
use crate::finding::{
    DIR_SIZE, Findings, INODE_MODE, INODE_NUMBER, INODE_SECTORS, ITEM_KEY, ITEM_OWNER, ITEM_VALUE,
    ORPHANS, SYMLINK, TRUNCATION, XATTR_NAMES,
};
use crate::state::State;
use crate::volume::Inspector;

/// What the check of an item may need besides the item.
pub(crate) struct Context<'a, 'd> {
    pub inspector: &'a Inspector<'d>,
    pub state: &'a State<'a, 'd>,
    /// Inode numbers in use are below this.
    pub numbers_end: u64,
    pub options: &'a CheckOptions,
    pub lost: bool,
    pub owners: &'a mut Owners,
    pub findings: &'a mut Findings,
    pub counts: &'a mut Counts,
    pub plan: &'a mut Plan,
    pub names: Names,
    pub progress: &'a mut dyn FnMut(u64),
    /// Inodes with a truncation under way.
    pub truncations: Vec<u64>,
    pub losses: &'a mut Losses,
    pub sharing: Sharing,
}

/// Said of shared blocks without the feature.
pub(super) const NO_SHARED_BLOCKS: &str = "the volume has no shared blocks";

/// Checks all items after the replay; what is left to check are the names.
pub(crate) fn check(mut context: Context<'_, '_>) -> Names {
    let mut current: Option<Current> = None;
    let state = context.state;
    let _ = state.scan(Key::from_bytes(&[0; Key::LEN]), &mut |key, value| {
        if key.snapshot != VersionId(0) {
            let detail = format!("snapshot {}", key.snapshot);
            context.findings.add(&ITEM_KEY, item(&key), detail);
            return ControlFlow::Continue(());
        }
        if key.ino == Key::GLOBAL {
            context.global(&key, value);
            return ControlFlow::Continue(());
        }
        if current.as_ref().is_none_or(|c| c.ino != key.ino) {
            if let Some(done) = current.take() {
                context.finish(done);
            }
            current = Some(Current::new(key.ino));
        }
        if let Some(current) = &mut current {
            context.item(current, &key, value);
        }
        ControlFlow::Continue(())
    });
    if let Some(done) = current.take() {
        context.finish(done);
    }
    let sharing = std::mem::take(&mut context.sharing);
    if !context.lost {
        sharing.finish(state, context.findings, context.plan);
    }
    for ino in std::mem::take(&mut context.truncations) {
        let found = context.names.inodes.binary_search_by_key(&ino, |r| r.ino);
        if found.is_err() && !context.lost {
            let place = format!("inode {ino}");
            context.findings.add(&TRUNCATION, place, "");
            context.plan.delete(Key::truncation(Ino(ino)));
        }
    }
    context.counts.orphans = context.names.orphans.len() as u64;
    if context.counts.orphans > 0 {
        let detail = format!("{}", context.counts.orphans);
        context.findings.add(&ORPHANS, "volume", detail);
    }
    context.names
}

/// A key, for a finding's place.
pub(crate) fn item(key: &Key) -> String {
    format!(
        "inode {}, kind {}, item {:#x}",
        key.ino, key.kind.0, key.item
    )
}

impl Context<'_, '_> {
    /// An item that belongs to no inode.
    fn global(&mut self, key: &Key, value: &[u8]) {
        match key.kind {
            KeyKind::ORPHAN => self.names.orphans.push(key.item),
            KeyKind::TRUNCATION if value.len() == 8 => self.truncations.push(key.item),
            KeyKind::TRUNCATION => {
                let detail = format!("{} bytes", value.len());
                self.findings.add(&ITEM_VALUE, item(key), detail);
                self.plan.delete(*key);
            }
            _ => self.findings.add(&ITEM_KEY, item(key), ""),
        }
    }

    fn item(&mut self, current: &mut Current, key: &Key, value: &[u8]) {
        match key.kind {
            KeyKind::EXTENT => current.extent(self, key, value),
            KeyKind::REFERENCES if key.ino == SHARED => {
                self.sharing
                    .references(key, value, self.findings, self.plan);
            }
            _ if key.ino == SHARED => {
                let detail = "the store of shared blocks has no such items";
                self.findings.add(&ITEM_KEY, item(key), detail);
            }
            KeyKind::INODE if key.item == 0 => self.inode(current, key, value),
            KeyKind::XATTR => current.xattr(self, key, value),
            KeyKind::SYMLINK if key.item == 0 => current.symlink_len = Some(value.len() as u64),
            KeyKind::DIR_ENTRY => current.entry(self, key, value),
            _ => self.findings.add(&ITEM_KEY, item(key), ""),
        }
    }

    fn inode(&mut self, current: &mut Current, key: &Key, value: &[u8]) {
        current.seen = true;
        match Inode::decode(value) {
            Ok(inode) => current.inode = Some(inode),
            Err(error) => self.findings.add(&ITEM_VALUE, item(key), error),
        }
    }

    /// All items of an inode have been seen.
    fn finish(&mut self, current: Current) {
        let place = format!("inode {}", current.ino);
        if current.ino == SHARED {
            if !self.has_shared_blocks() {
                self.findings.add(&ITEM_VALUE, place, NO_SHARED_BLOCKS);
            }
            return;
        }
        let Some(inode) = current.inode else {
            if !current.seen && !self.lost {
                self.findings.add(&ITEM_OWNER, place, "");
                let size = current.data_end.saturating_mul(BLOCK_SIZE as u64);
                self.plan.adopt_to_free(current.ino, size, current.sectors);
            }
            return;
        };
        self.counts.inodes += 1;
        if !self.options.data {
            (self.progress)(self.counts.inodes);
        }
        self.names.inodes.push(InodeRow {
            ino: current.ino.0,
            parent: inode.parent.0,
            nlink: inode.nlink,
            file_type: inode.file_type(),
        });
        self.count(&inode);
        self.check_number(current.ino, &place);
        if inode.is_file() && inode.sectors != current.sectors && !self.lost {
            let detail = format!("it says {}, they take {}", inode.sectors, current.sectors);
            self.findings.add(&INODE_SECTORS, &place, detail);
            self.plan
                .correct(current.ino, |c| c.sectors = Some(current.sectors));
        }
        if inode.xattr_names != current.xattr_names && !self.lost {
            let detail = format!(
                "it says {}, they take {}",
                inode.xattr_names, current.xattr_names
            );
            self.findings.add(&XATTR_NAMES, &place, detail);
            self.plan
                .correct(current.ino, |c| c.xattr_names = Some(current.xattr_names));
        }
        if inode.is_dir() && inode.size != current.entries && !self.lost {
            let detail = format!("it says {}, there are {}", inode.size, current.entries);
            self.findings.add(&DIR_SIZE, &place, detail);
            self.plan
                .correct(current.ino, |c| c.size = Some(current.entries));
        }
        if inode.is_symlink() && current.symlink_len != Some(inode.size) && !self.lost {
            let detail = match current.symlink_len {
                None => "there is none".to_owned(),
                Some(len) => format!("{len} bytes, the inode says {}", inode.size),
            };
            self.findings.add(&SYMLINK, &place, detail);
            if let Some(len) = current.symlink_len {
                self.plan.correct(current.ino, |c| c.size = Some(len));
            }
        }
        current.check_items(self, &inode, &place);
    }

    pub(super) fn has_shared_blocks(&self) -> bool {
        self.inspector.identity.incompatible & zone_header::SHARED_BLOCKS != 0
    }

    fn count(&mut self, inode: &Inode) {
        match inode.file_type() {
            4 => self.counts.directories += 1,
            8 => self.counts.files += 1,
            10 => self.counts.symlinks += 1,
            _ => {}
        }
    }

    fn check_number(&mut self, ino: Ino, place: &str) {
        let end = self.numbers_end;
        if ino.0 >= end {
            let detail = format!("numbers end at {end}");
            self.findings.add(&INODE_NUMBER, place, detail);
        }
    }
}

/// Notes a mode that no file type has.
pub(crate) fn check_mode(inode: &Inode, place: &str, findings: &mut Findings) {
    // FIFO, character device, directory, block device, file, symbolic link, socket.
    if !matches!(inode.file_type(), 1 | 2 | 4 | 6 | 8 | 10 | 12) || inode.mode >> 16 != 0 {
        findings.add(&INODE_MODE, place, format_args!("mode {:o}", inode.mode));
    }
}
