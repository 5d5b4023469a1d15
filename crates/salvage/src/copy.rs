//! The items of the broken volume, one inode after the other, into the new one.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use persimmon_engine::{Intent, Transaction, Volume};
use persimmon_format::inode::{
    FLAG_XATTRS, FLAGS_OF_USERS, Inode, ROOT, SHARED, TYPE_MASK, Timestamp,
};
use persimmon_format::name::{DirEntry, first_item, may_have};
use persimmon_format::xattr::{Xattr, XattrValue, cut, piece_key, slot_of};
use persimmon_format::{Ino, Key, KeyKind, shown};
use persimmon_inspect::salvage::{Content, Placement, Rebuilt};

use crate::file::File;
use crate::loss::{Loss, Lost};
use crate::quota::QuotaCopy;
use crate::{Doing, Error, Recovered, Result};

/// Items of one transaction.
const ITEMS_MAX: usize = 64;
const DIRECTORY: u32 = 0o040_000;

/// An item of the new volume.
enum New {
    Put(Key, Vec<u8>),
    /// Filed under its name: inode, kind, name, value.
    Named(Ino, KeyKind, Vec<u8>, Vec<u8>),
}

/// A copy under way.
pub(crate) struct Copy<'a, 'd> {
    pub content: &'a Content<'a, 'd>,
    pub placement: Placement,
    pub to: &'a Volume,
    now: Timestamp,
    on_loss: &'a mut dyn FnMut(&Loss),
    pub recovered: Recovered,
    items: Vec<New>,
    quota: QuotaCopy,
}

/// The inode whose items come by.
struct Current {
    ino: Ino,
    inode: Inode,
    has_inode: bool,
    has_target: bool,
    losses_before: u64,
    file: Option<File>,
    /// Bytes of the names of the attributes that were copied.
    xattr_names: u32,
    xattr_sectors: u64,
    /// Slots that their values are in.
    slots: BTreeSet<u64>,
}

impl<'a, 'd> Copy<'a, 'd> {
    pub(crate) fn new(
        rebuilt: &'a Rebuilt<'d>,
        content: &'a Content<'a, 'd>,
        to: &'a Volume,
        now: Timestamp,
        on_loss: &'a mut dyn FnMut(&Loss),
    ) -> Copy<'a, 'd> {
        Copy {
            content,
            placement: content.placement(),
            to,
            now,
            on_loss,
            recovered: Recovered {
                source: rebuilt.source(),
                checkpoint: rebuilt.checkpoint(),
                files: 0,
                files_intact: 0,
                directories: 0,
                others: 0,
                data_bytes: 0,
                strays: 0,
                unlinked: 0,
                losses: 0,
                snapshots_left: content.others(),
            },
            items: Vec::new(),
            quota: QuotaCopy::default(),
        }
    }

    pub(crate) fn finish(self) -> Result<Recovered> {
        self.quota.finish(self.to, self.now)?;
        Ok(self.recovered)
    }

    pub(crate) fn run(&mut self, progress: &mut dyn FnMut(Doing, u64, u64)) -> Result<()> {
        for gap in self.content.gaps().collect::<Vec<_>>() {
            self.lose_at(Vec::new(), Ino(0), Lost::Metadata, (0, 0), gap);
        }
        self.make_shelter()?;
        let total = self.content.nodes_total();
        let mut done = 0;
        let mut current: Option<Current> = None;
        let mut result = Ok(());
        let content = self.content;
        content.scan(&mut |(key, value)| {
            if current.as_ref().is_none_or(|now| now.ino != key.ino) {
                done += 1;
                progress(Doing::Copying, done.min(total), total);
            }
            result = self.take(&mut current, key, value);
            match result {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        result?;
        self.end(current)?;
        self.copy_strays()?;
        self.copy_newer()?;
        self.flush()?;
        for (directory, item, ino) in self.placement.dangling().to_vec() {
            let name = content.entry_name(directory, item).unwrap_or_default();
            let mut path = content.path(&self.placement, directory);
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            self.lose_at(path, ino, Lost::Everything, (0, 0), String::new());
        }
        Ok(())
    }

    /// The next item of the tree.
    fn take(&mut self, current: &mut Option<Current>, key: Key, value: &[u8]) -> Result<()> {
        match self.quota.take(&key, value) {
            None => {}
            Some(Ok(())) => return Ok(()),
            Some(Err(detail)) => {
                self.lose_at(Vec::new(), Ino(0), Lost::Metadata, (0, 0), detail);
                return Ok(());
            }
        }
        if current.as_ref().is_none_or(|now| now.ino != key.ino) {
            self.end(current.take())?;
            *current = self.begin(key, value)?;
        }
        match current {
            Some(current) => self.item(current, key, value),
            None => Ok(()),
        }
    }

    /// The first item of an inode. Nothing for what is not copied.
    fn begin(&mut self, key: Key, value: &[u8]) -> Result<Option<Current>> {
        let ino = key.ino;
        // What is shared is copied with each file that has it.
        if ino == Key::GLOBAL || ino == SHARED {
            return Ok(None);
        }
        if self.placement.is_orphan(ino) {
            self.recovered.unlinked += 1;
            return Ok(None);
        }
        let found = Inode::decode(value).ok();
        let inode = found.filter(|_| key.kind == KeyKind::INODE);
        self.begin_with(ino, inode).map(Some)
    }

    fn begin_with(&mut self, ino: Ino, found: Option<Inode>) -> Result<Current> {
        let losses_before = self.recovered.losses;
        let size = found.map(|inode| self.content.size_shown(ino, &inode));
        if let (Some(found), Some(size)) = (found, size)
            && size != found.size
        {
            let detail = "its size is as of an earlier checkpoint".to_owned();
            let path = self.path(ino);
            self.lose_at(path, ino, Lost::Older, (found.size, size), detail);
        }
        let found = found.zip(size).map(|(inode, size)| Inode { size, ..inode });
        let mut inode = found.unwrap_or(Inode {
            mode: self.content.mode_without_inode(ino),
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            ..Inode::default()
        });
        if found.is_none() {
            self.lose(ino, Lost::Attributes);
        }
        let stray = self.placement.strays().binary_search(&ino).is_ok();
        if stray {
            self.recovered.strays += 1;
            self.lose(ino, Lost::Name);
            let name = format!("#{ino}").into_bytes();
            self.name(self.placement.shelter(), name, ino, inode.file_type())?;
        }
        let size = inode.size;
        if ino == ROOT && inode.compression().is_none() {
            inode.compression = self.root_compression()?;
        }
        inode.sectors = 0;
        inode.flags &= FLAG_XATTRS | FLAGS_OF_USERS;
        if inode.project != 0 {
            self.quota.begin(self.to)?;
        }
        inode.nlink = self.placement.names(ino);
        if inode.is_dir() {
            self.as_directory(ino, &mut inode);
            self.recovered.directories += 1;
            let names = Key::new(ino, KeyKind::DIR_ENTRY, 0);
            self.note_lost(ino, names, Key::extent(ino, 0), Lost::Names);
        } else if inode.is_file() {
            inode.size = 0;
        } else {
            self.recovered.others += 1;
        }
        if inode.flags & FLAG_XATTRS != 0 {
            let xattrs = Key::new(ino, KeyKind::XATTR, 0);
            let behind = Key::new(ino, KeyKind::SYMLINK, 0);
            self.note_lost(ino, xattrs, behind, Lost::Xattrs);
        }
        // Of a file this is told with its content.
        if !inode.is_file() {
            self.note_older(ino);
        }
        self.put(Key::inode(ino), inode.encode())?;
        let file = inode
            .is_file()
            .then(|| File::new(ino, found.as_ref(), inode.mtime));
        Ok(Current {
            ino,
            inode: Inode { size, ..inode },
            has_inode: found.is_some(),
            has_target: false,
            losses_before,
            file,
            xattr_names: 0,
            xattr_sectors: 0,
            slots: BTreeSet::new(),
        })
    }

    /// What the new volume was made to compress its files with.
    fn root_compression(&self) -> Result<u8> {
        let root = self.to.view(|tree| tree.inode(ROOT))?;
        Ok(root.map_or(0, |inode| inode.compression))
    }

    fn as_directory(&self, ino: Ino, inode: &mut Inode) {
        let (entries, subdirectories) = self.placement.directory(ino);
        inode.size = entries;
        inode.nlink = subdirectories.saturating_add(2);
        inode.parent = self.placement.parent(ino);
    }

    fn item(&mut self, current: &mut Current, key: Key, value: &[u8]) -> Result<()> {
        let ino = key.ino;
        match key.kind {
            KeyKind::INODE => Ok(()),
            // It went with the attribute that it belongs to.
            KeyKind::XATTR if slot_of(&key).is_some() => Ok(()),
            KeyKind::XATTR => self.xattr(current, value),
            KeyKind::SYMLINK if current.inode.is_symlink() => {
                current.has_target = true;
                if current.inode.size != value.len() as u64 {
                    let inode = Inode {
                        size: value.len() as u64,
                        ..current.inode
                    };
                    self.put(Key::inode(ino), inode.encode())?;
                }
                self.put(key, value.to_vec())
            }
            KeyKind::DIR_ENTRY if current.inode.is_dir() => self.entry(key, value),
            KeyKind::EXTENT => match &mut current.file {
                Some(file) => {
                    self.flush()?;
                    file.extent(self, key.item, value)
                }
                None => {
                    self.lose(ino, Lost::Item);
                    Ok(())
                }
            },
            _ => {
                self.lose(ino, Lost::Item);
                Ok(())
            }
        }
    }

    /// An extended attribute, with the pieces of its value. They keep their slot, which no other attribute of the inode has.
    fn xattr(&mut self, current: &mut Current, value: &[u8]) -> Result<()> {
        let ino = current.ino;
        let Ok(xattr) = Xattr::decode(value) else {
            self.lose(ino, Lost::Xattrs);
            return Ok(());
        };
        if let XattrValue::Pieces(pieces) = xattr.value {
            let slot = pieces.slot();
            let whole = self.content.xattr_value(ino, pieces);
            let Some(whole) = whole.filter(|_| current.slots.insert(slot)) else {
                self.lose(ino, Lost::Xattrs);
                return Ok(());
            };
            for (number, piece) in (0..).zip(cut(&whole)) {
                self.put(piece_key(ino, slot, number), piece)?;
            }
        }
        let listed = Xattr::listed_len(xattr.name);
        current.xattr_names = current.xattr_names.saturating_add(listed);
        current.xattr_sectors = current.xattr_sectors.saturating_add(xattr.sectors());
        let name = xattr.name.to_vec();
        self.add(New::Named(ino, KeyKind::XATTR, name, value.to_vec()))
    }

    fn entry(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let Ok(entry) = DirEntry::decode(value) else {
            self.lose(key.ino, Lost::Names);
            return Ok(());
        };
        if !self.placement.keeps(key.ino, key.item) {
            let told =
                self.placement.is_orphan(entry.ino) || self.content.node(entry.ino).is_none();
            if !told {
                let name = shown(entry.name).to_string();
                let path = self.path(key.ino);
                self.lose_at(path, key.ino, Lost::Names, (0, 0), name);
            }
            return Ok(());
        }
        let node = self.content.node(entry.ino);
        let file_type = node.map_or(entry.file_type, |node| node.file_type);
        self.name(key.ino, entry.name.to_vec(), entry.ino, file_type)
    }

    /// Gives something a name.
    fn name(&mut self, directory: Ino, name: Vec<u8>, ino: Ino, file_type: u8) -> Result<()> {
        let entry = DirEntry {
            ino,
            file_type,
            name: &name,
        };
        let value = entry.encode();
        self.add(New::Named(directory, KeyKind::DIR_ENTRY, name, value))
    }

    fn end(&mut self, current: Option<Current>) -> Result<()> {
        let Some(mut current) = current else {
            return Ok(());
        };
        let ino = current.ino;
        self.count_names(&mut current)?;
        if current.inode.is_symlink() && !current.has_target {
            self.lose(ino, Lost::Target);
            let inode = Inode {
                size: 0,
                ..current.inode
            };
            self.put(Key::inode(ino), inode.encode())?;
            // Without one the new volume would never be sound.
            return self.put(Key::new(ino, KeyKind::SYMLINK, 0), Vec::new());
        }
        let Some(file) = &mut current.file else {
            return Ok(());
        };
        self.flush()?;
        file.strays(self)?;
        file.finish(self, &current.inode)?;
        self.recovered.files += 1;
        let whole = current.has_inode
            && self.recovered.losses == current.losses_before
            && !self.content.may_all_be_older();
        self.recovered.files_intact += u64::from(whole);
        Ok(())
    }

    /// The inode counts what its attributes take, and the names of those that are left where some are lost.
    fn count_names(&mut self, current: &mut Current) -> Result<()> {
        let (names, sectors) = (current.xattr_names, current.xattr_sectors);
        // Without it nobody looks for them: the inode may be older than they are, or lost.
        let flag = if names > 0 { FLAG_XATTRS } else { 0 };
        let is_right = current.inode.xattr_names == names && current.inode.flags & flag == flag;
        if is_right && sectors == 0 {
            return Ok(());
        }
        current.inode.xattr_names = names;
        current.inode.flags |= flag;
        self.flush()?;
        self.to
            .update::<(), persimmon_engine::Error>(Intent::Grow, |tx| {
                if let Some(there) = tx.inode(current.ino)? {
                    let inode = Inode {
                        xattr_names: names,
                        sectors: there.sectors.saturating_add(sectors),
                        flags: there.flags | flag,
                        ..there
                    };
                    tx.put_inode(current.ino, &inode);
                }
                Ok(())
            })?;
        Ok(())
    }

    /// Files of which there is data alone.
    fn copy_strays(&mut self) -> Result<()> {
        let mut last = None;
        let blocks = self.content.stray_blocks();
        for (ino, _) in blocks.keys().filter(|(ino, _)| *ino != SHARED) {
            if last.replace(*ino) == Some(*ino) || self.content.is_in_tree(*ino) {
                continue;
            }
            let current = self.begin_with(*ino, None)?;
            self.end(Some(current))?;
        }
        Ok(())
    }

    /// Blocks that were written after the checkpoint, of files that the tree has as they were.
    fn copy_newer(&mut self) -> Result<()> {
        let newer: Vec<(Ino, Ino)> = self.placement.newer().collect();
        for (of, ino) in newer {
            let detail = format!("it is in lost+found/#{of}.newer");
            self.lose_at(self.path(of), of, Lost::Newer, (0, 0), detail);
            let inode = Inode {
                mode: 0o100_600,
                nlink: 1,
                atime: self.now,
                mtime: self.now,
                ctime: self.now,
                btime: self.now,
                ..Inode::default()
            };
            self.put(Key::inode(ino), inode.encode())?;
            let name = format!("#{of}.newer").into_bytes();
            self.name(self.placement.shelter(), name, ino, inode.file_type())?;
            self.flush()?;
            let mut file = File::new(ino, None, self.now);
            file.newer(self, of)?;
            file.finish(self, &inode)?;
            self.recovered.strays += 1;
        }
        Ok(())
    }

    fn make_shelter(&mut self) -> Result<()> {
        if !self.placement.makes_shelter() {
            return Ok(());
        }
        let shelter = self.placement.shelter();
        let mut inode = Inode {
            mode: DIRECTORY & TYPE_MASK | 0o700,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            ..Inode::default()
        };
        self.as_directory(shelter, &mut inode);
        self.put(Key::inode(shelter), inode.encode())?;
        self.name(ROOT, b"lost+found".to_vec(), shelter, inode.file_type())?;
        if self.content.is_in_tree(ROOT) {
            return Ok(());
        }
        // Of the root nothing is left: it is there, with the shelter in it.
        let current = self.begin_with(ROOT, None)?;
        self.end(Some(current))
    }

    /// Notes what is lost of a range of keys that belong to an inode.
    fn note_lost(&mut self, ino: Ino, from: Key, to: Key, lost: Lost) {
        let damage = self.content.damage(from, to);
        for _ in 0..damage.filter(|part| part.older.is_none()).count() {
            self.lose(ino, lost);
        }
    }

    /// Notes what of an inode is as of an earlier checkpoint: its mode, owner and times, attributes and names.
    fn note_older(&mut self, ino: Ino) {
        let damage = self.content.damage(Key::inode(ino), Key::extent(ino, 0));
        for checkpoint in damage.filter_map(|part| part.older).collect::<Vec<_>>() {
            let detail = format!("as of checkpoint {checkpoint}");
            let path = self.path(ino);
            self.lose_at(path, ino, Lost::Older, (0, 0), detail);
        }
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<()> {
        self.add(New::Put(key, value))
    }

    fn add(&mut self, item: New) -> Result<()> {
        self.items.push(item);
        if self.items.len() >= ITEMS_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the items collected, in one transaction.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let items = std::mem::take(&mut self.items);
        let put = |tx: &mut Transaction<'_>| {
            for item in &items {
                match item {
                    New::Put(key, value) => tx.put(*key, value.clone()),
                    New::Named(ino, kind, name, value) => {
                        let first = first_item(tx.key(), name);
                        let mut key = Key::new(*ino, *kind, first);
                        while may_have(first, key.item) && tx.get(&key)?.is_some() {
                            key.item += 1;
                        }
                        tx.put(key, value.clone());
                    }
                }
            }
            Ok(())
        };
        self.to
            .update::<(), persimmon_engine::Error>(Intent::Grow, put)
            .map_err(Error::New)
    }

    pub(crate) fn path(&self, ino: Ino) -> Vec<u8> {
        self.content.path(&self.placement, ino)
    }

    fn lose(&mut self, ino: Ino, lost: Lost) {
        self.lose_at(self.path(ino), ino, lost, (0, 0), String::new());
    }

    pub(crate) fn lose_at(
        &mut self,
        path: Vec<u8>,
        ino: Ino,
        lost: Lost,
        range: (u64, u64),
        detail: String,
    ) {
        self.recovered.losses += 1;
        (self.on_loss)(&Loss::new(path, ino, lost, range, detail));
    }
}
