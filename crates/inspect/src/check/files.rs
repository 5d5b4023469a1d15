//! Files, directories and everything else that has an inode, item by item in key order.

use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::{FLAG_XATTRS, Inode, SHARED};
use persimmon_format::zone_header;
use persimmon_format::{Addr, BLOCK_SIZE, Ino, Key, KeyKind, SubvolumeId, VersionId};

use super::deltas;
use super::items::Current;
use super::links::{InodeRow, Names};
use super::losses::Losses;
use super::owners::Owners;
use super::quota::{NO_QUOTA, QuotaCheck, has_quota};
use super::repair::Plan;
use super::sharing::Sharing;
use super::stored::Stored;
use super::versions::{NO_SNAPSHOTS, Table, layer};
use super::{CheckOptions, Counts};
use crate::finding::{
    DIR_SIZE, Findings, INODE_MODE, INODE_NUMBER, INODE_SECTORS, ITEM_KEY, ITEM_OWNER, ITEM_VALUE,
    ORPHANS, SYMLINK, TRUNCATION, VERSION_UNKNOWN, XATTR_FLAG, XATTR_NAMES,
};
use crate::state::{Picker, Scope, State, is_of_table};
use crate::volume::{Inspector, ZoneUse};

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
    /// Inodes with a truncation under way, and how many of their blocks stay.
    pub truncations: Vec<(u64, u64)>,
    pub losses: &'a mut Losses,
    pub sharing: Sharing,
    pub quota: QuotaCheck,
    /// What versions there are.
    pub table: &'a Table,
    /// What the subvolume shows whose files are checked.
    pub scope: Rc<Scope>,
}

/// Said of shared blocks without the feature.
pub(super) const NO_SHARED_BLOCKS: &str = "the volume has no shared blocks";

/// Checks the items of all versions after the replay, and the files of the main subvolume; what is left to check are the names.
pub(crate) fn check(mut context: Context<'_, '_>) -> Names {
    let state = context.state;
    let mut stored: Option<Stored> = None;
    let mut current: Option<Current> = None;
    let mut picker = Picker::new(state, Rc::clone(&context.scope), context.lost);
    let _ = state.scan(lowest(), &mut |key, value| {
        // They have been checked.
        if is_of_table(&key) || key.ino.subvolume() == SubvolumeId::NONE {
            return ControlFlow::Continue(());
        }
        if stored.as_ref().is_none_or(|s| s.ino != key.ino) {
            context.end_stored(stored.take());
        }
        let now = stored.get_or_insert_with(|| Stored::new(key.ino));
        context.stored(now, &key, value);
        picker.item(key, value, &mut |key, value| {
            let decoded = now.take_decoded(&key);
            context.shown(&mut current, &key, value, decoded);
            ControlFlow::Continue(())
        })
    });
    context.end_stored(stored);
    let _ = picker.end(&mut |key, value| {
        context.shown(&mut current, &key, value, None);
        ControlFlow::Continue(())
    });
    if let Some(done) = current.take() {
        context.finish(done);
    }
    let sharing = std::mem::take(&mut context.sharing);
    if !context.lost {
        sharing.finish(state, context.findings, context.plan);
    }
    let quota = std::mem::take(&mut context.quota);
    if !context.lost {
        quota.finish(state, context.findings, context.plan);
    }
    context.check_truncations();
    context.counts.orphans = context.names.orphans.len() as u64;
    if context.counts.orphans > 0 {
        let detail = format!("{}", context.counts.orphans);
        context.findings.add(&ORPHANS, "volume", detail);
    }
    context.names
}

/// Checks the files of a snapshot. What is stored of them is checked with that of all versions.
pub(crate) fn check_snapshot(mut context: Context<'_, '_>) -> Names {
    let (state, scope) = (context.state, Rc::clone(&context.scope));
    let mut current: Option<Current> = None;
    let _ = state.scan_shown(&scope, lowest(), &mut |key, value| {
        if !key.is_unversioned() {
            context.shown(&mut current, &key, value, None);
        }
        ControlFlow::Continue(())
    });
    if let Some(done) = current.take() {
        context.finish(done);
    }
    context.check_truncations();
    context.names
}

fn lowest() -> Key {
    Key::from_bytes(&[0; Key::LEN])
}

/// A key, for a finding's place.
pub(crate) fn item(key: &Key) -> String {
    format!(
        "inode {}, kind {}, item {:#x}",
        key.ino, key.kind.0, key.item
    )
}

impl Context<'_, '_> {
    /// Checks an item as it is stored, whoever shows it.
    fn stored(&mut self, stored: &mut Stored, key: &Key, value: &[u8]) {
        if !self.has_possible_version(key) {
            return;
        }
        if !self.table.is_plain
            && !key.is_unversioned()
            && !self.lost
            && let Some(owner) = self.table.owner(key.version)
        {
            let scope = self.state.versions().scope(owner);
            let (owner, item) = ((owner, &*scope), (key, value));
            let (state, scope, ino) = (self.state, owner.1, key.ino);
            let is_freed = || {
                let orphan = Key::new(Key::GLOBAL, KeyKind::ORPHAN, ino.0);
                let shown = state.shown(scope, &orphan);
                shown.is_some_and(|(_, value)| !orphan.is_whiteout(&value))
            };
            stored
                .layers
                .item(self.table, owner, item, is_freed, self.findings);
        }
        match key.kind {
            KeyKind::ORPHAN | KeyKind::TRUNCATION if key.ino == Key::GLOBAL => {}
            KeyKind::QUOTA if key.ino == Key::GLOBAL => {
                let whose = (self.inspector, self.state);
                self.quota.item(whose, key, value, self.findings, self.plan);
            }
            _ if key.ino == Key::GLOBAL || key.ino != key.ino.plain() => {
                self.findings.add(&ITEM_KEY, item(key), "");
            }
            KeyKind::EXTENT => stored.extent(self, key, value),
            KeyKind::REFERENCES if key.ino == SHARED => {
                self.sharing
                    .references(key, value, self.findings, self.plan);
            }
            _ if key.ino == SHARED => {
                let detail = "the store of shared blocks has no such items";
                self.findings.add(&ITEM_KEY, item(key), detail);
            }
            KeyKind::INODE | KeyKind::SYMLINK if key.item == 0 => {}
            KeyKind::XATTR | KeyKind::DIR_ENTRY => {}
            _ => self.findings.add(&ITEM_KEY, item(key), ""),
        }
    }

    fn is_freed(&self, ino: Ino) -> bool {
        !self.table.is_plain && self.state.shown(&self.scope, &Key::inode(ino)).is_none()
    }

    /// Whether an item is of a version that it can be of; told if not.
    fn has_possible_version(&mut self, key: &Key) -> bool {
        let number = key.version;
        let is_possible = match key.is_unversioned() {
            true => number == VersionId(0),
            false => self.table.owner(number).is_some(),
        };
        if is_possible {
            return true;
        }
        match self.table.has_feature {
            false => self.findings.add(&ITEM_KEY, layer(key), NO_SNAPSHOTS),
            true => self.findings.add(&VERSION_UNKNOWN, layer(key), ""),
        }
        false
    }

    fn end_stored(&mut self, stored: Option<Stored>) {
        let is_store = stored.is_some_and(|stored| stored.ino == SHARED);
        if is_store && !self.has_shared_blocks() {
            let place = format!("inode {SHARED}");
            self.findings.add(&ITEM_VALUE, place, NO_SHARED_BLOCKS);
        }
    }

    /// Checks an item that the subvolume shows. An extent may be decoded already.
    fn shown(
        &mut self,
        current: &mut Option<Current>,
        key: &Key,
        value: &[u8],
        decoded: Option<Extent>,
    ) {
        if key.ino == Key::GLOBAL {
            return self.global(key, value);
        }
        if key.ino == SHARED || key.ino != key.ino.plain() {
            return;
        }
        if current.as_ref().is_none_or(|c| c.ino != key.ino)
            && let Some(done) = current.take()
        {
            self.finish(done);
        }
        let current = current.get_or_insert_with(|| Current::new(key.ino));
        match key.kind {
            KeyKind::INODE if key.item == 0 => self.inode(current, key, value),
            KeyKind::XATTR => current.xattr(self, key, value),
            KeyKind::SYMLINK if key.item == 0 => current.symlink_len = Some(value.len() as u64),
            KeyKind::DIR_ENTRY => current.entry(self, key, value),
            KeyKind::EXTENT => {
                // What cannot be decoded is told with all that is stored.
                if let Some(extent) = decoded.or_else(|| Extent::decode(value).ok()) {
                    current.extent(key, &extent);
                    if is_delta(key.item) {
                        deltas::shown(self, key, &extent);
                    }
                }
            }
            _ => {}
        }
    }

    /// An item that belongs to no inode.
    fn global(&mut self, key: &Key, value: &[u8]) {
        match key.kind {
            // Of an inode that a snapshot has, or had, the record is what goes last.
            KeyKind::ORPHAN if self.is_freed(Ino(key.item)) => {}
            KeyKind::ORPHAN => self.names.orphans.push(key.item),
            KeyKind::TRUNCATION => match value.try_into() {
                Ok(keep) => self.truncations.push((key.item, u64::from_le_bytes(keep))),
                Err(_) => {
                    let detail = format!("{} bytes", value.len());
                    self.findings.add(&ITEM_VALUE, item(key), detail);
                    self.plan.delete(*key);
                }
            },
            _ => {}
        }
    }

    fn check_truncations(&mut self) {
        for (ino, _) in std::mem::take(&mut self.truncations) {
            let found = self.names.inodes.binary_search_by_key(&ino, |r| r.ino);
            if found.is_err() && !self.lost {
                let place = format!("inode {ino}");
                self.findings.add(&TRUNCATION, place, "");
                self.plan.delete(Key::truncation(Ino(ino)));
            }
        }
    }

    fn inode(&mut self, current: &mut Current, key: &Key, value: &[u8]) {
        current.seen = true;
        match Inode::decode(value) {
            Ok(inode) => {
                if inode.project != 0 && !has_quota(self.inspector) {
                    self.findings.add(&ITEM_VALUE, item(key), NO_QUOTA);
                }
                self.quota.inode(self.state, key.ino, &inode);
                current.inode = Some(inode);
            }
            Err(error) => self.findings.add(&ITEM_VALUE, item(key), error),
        }
    }

    /// Whether a file's data at `addr` is read and verified. In a zone with a damaged header it always is: the zone may hold other content, and a repair
    /// empties it.
    pub(super) fn reads(&self, addr: Addr) -> bool {
        let is_headless = || {
            let found = self.inspector.zones.get(addr.zone().0 as usize);
            let is_damaged = matches!(found, Some(ZoneUse::Damaged(_) | ZoneUse::Foreign));
            is_damaged && !self.inspector.media.is_offline(addr.zone())
        };
        self.options.data || is_headless()
    }

    pub(super) fn tell_verified(&mut self) {
        if self.options.data {
            (self.progress)(self.counts.data_blocks_verified);
        }
    }

    /// All items of an inode have been seen.
    fn finish(&mut self, current: Current) {
        let place = format!("inode {}", current.ino);
        let Some(inode) = current.inode else {
            // With several versions that is told with all that is stored.
            if !current.seen && !self.lost && self.table.is_plain {
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
        // Of a file with several versions a frame may be another's, and be moved or shared without a word in this one's inode.
        let is_counted = !self.lost && (self.table.is_plain || !inode.is_file());
        let sectors = current.sectors.saturating_add(match self.counts_xattrs() {
            true => current.xattr_sectors,
            false => 0,
        });
        if is_counted && inode.sectors != sectors {
            let detail = format!("it says {}, they take {sectors}", inode.sectors);
            self.findings.add(&INODE_SECTORS, &place, detail);
            self.plan
                .correct(current.ino, |c| c.sectors = Some(sectors));
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
        if current.xattr_names > 0 && inode.flags & FLAG_XATTRS == 0 {
            self.findings.add(&XATTR_FLAG, &place, "");
            self.plan
                .correct(current.ino, |c| c.set_flag(&inode, FLAG_XATTRS));
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
        if current.has_deltas {
            deltas::check_flag(self, current.ino, &inode, &place);
        }
        current.check_items(self, &inode, &place);
    }

    pub(super) fn has_shared_blocks(&self) -> bool {
        self.inspector.identity.incompatible & zone_header::SHARED_BLOCKS != 0
    }

    pub(super) fn has_shared_frames(&self) -> bool {
        self.inspector.identity.incompatible & zone_header::SHARED_FRAMES != 0
    }

    fn counts_xattrs(&self) -> bool {
        self.inspector.identity.incompatible & zone_header::COUNTED_XATTRS != 0
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
