//! Items of several versions, written anew as they are stored: each version shows what it showed, but for what is lost.
//!
//! Extents of all versions at one place have the same blocks. So one that is lost is lost as a whole; where something of an older version would be
//! seen in its place, a hole hides that.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use persimmon_format::delta::block_at;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::name::DirEntry;
use persimmon_format::version::WHITEOUT;
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::Mend;
use crate::Result;
use crate::loss::{Lost, NEWER_LEFT};

/// What was put at one place.
#[derive(Default)]
pub(super) struct Here {
    place: Option<Key>,
    /// The versions that show something there.
    shown: Vec<VersionId>,
    /// Inodes of which any version has anything, and the versions that have the inode itself.
    inodes: HashMap<Ino, Vec<VersionId>>,
    /// Versions with a name for an inode that is lost to them.
    lacking: HashMap<Ino, BTreeSet<VersionId>>,
}

impl Mend<'_, '_> {
    /// Finds out which inodes there are, and which are lost, before names are put that lead to them.
    pub(super) fn find_inodes(&mut self) {
        let content = self.content;
        let Here {
            inodes, lacking, ..
        } = &mut self.here;
        content.scan_stored(&mut |(key, value)| {
            if !key.is_unversioned() && key.kind <= KeyKind::EXTENT && !key.is_whiteout(value) {
                let versions = inodes.entry(key.ino).or_default();
                if key.kind == KeyKind::INODE {
                    versions.push(key.version);
                }
            }
            ControlFlow::Continue(())
        });
        content.scan_stored(&mut |(key, value)| {
            if key.kind == KeyKind::DIR_ENTRY
                && let Ok(entry) = DirEntry::decode(value)
                && let Some(versions) = inodes.get(&entry.ino)
                && !versions
                    .iter()
                    .any(|other| *other == key.version || content.is_below(key.version, *other))
            {
                lacking.entry(entry.ino).or_default().insert(key.version);
            }
            ControlFlow::Continue(())
        });
    }

    /// Makes an inode in each version that has a name for it, and lost it; in the one that an item was found in, if it has no name.
    pub(super) fn make_lacking(&mut self, found: &Key) -> Result<()> {
        let mut versions = self.here.lacking.remove(&found.ino).unwrap_or_default();
        let known = self.here.inodes.get(&found.ino);
        if versions.is_empty() && known.is_some_and(Vec::is_empty) {
            versions.insert(found.version);
        }
        for version in versions {
            self.make_inode(found.ino, version)?;
        }
        Ok(())
    }

    /// An item of a version.
    pub(super) fn versioned(&mut self, key: Key, value: &[u8]) -> Result<()> {
        if key.is_unversioned() {
            return self.item(key, value);
        }
        let place = key.at(VersionId(0));
        if self.here.place != Some(place) {
            self.here.place = Some(place);
            self.here.shown.clear();
        }
        if key.is_whiteout(value) {
            return match self.hides_something(key.version) {
                true => self.put(key, value),
                false => Ok(()),
            };
        }
        if key.kind == KeyKind::EXTENT
            && let Ok(extent) = Extent::decode(value)
            && !self.is_whole(&key, &extent)
        {
            return self.lose_extent(key, &extent);
        }
        if key.kind == KeyKind::DIR_ENTRY
            && let Ok(entry) = DirEntry::decode(value)
            && !self.here.inodes.contains_key(&entry.ino)
        {
            return self.lose_name(key, &entry);
        }
        self.here.shown.push(key.version);
        match key.kind {
            KeyKind::EXTENT => self.put(key, value),
            _ => self.item(key, value),
        }
    }

    /// Whether an older version shows something at the place, which a version would show too.
    fn hides_something(&self, version: VersionId) -> bool {
        let mut shown = self.here.shown.iter();
        shown.any(|other| self.content.is_below(version, *other))
    }

    /// Whether all is there that an extent has.
    fn is_whole(&mut self, key: &Key, extent: &Extent) -> bool {
        match extent {
            Extent::Shared { at, blocks, .. } => {
                let end = at.saturating_add((*blocks).into());
                self.store.missing(*at, end).next().is_none()
            }
            // Nobody could read it without.
            Extent::Packed(_) if !self.has_dictionary(extent) => false,
            _ => match extent.addr() {
                Some(addr) if self.is_doubtful(key, addr) => self.take_whole(key, extent),
                _ => true,
            },
        }
    }

    /// Takes all blocks of an extent, if they are intact and nobody's.
    fn take_whole(&mut self, key: &Key, extent: &Extent) -> bool {
        let Extent::Frame { addr, crcs } = extent else {
            return self.take((key.ino, key.item), extent);
        };
        let is_intact = self.content.read(*addr, crcs).iter().all(Option::is_some);
        let mut blocks = (0..crcs.len() as u32).map(|at| addr.offset(at));
        is_intact && blocks.all(|block| self.owned.take(block))
    }

    fn lose_extent(&mut self, key: Key, extent: &Extent) -> Result<()> {
        self.lose_blocks(key.ino, block_at(key.item), extent.blocks());
        let blocks = u32::try_from(extent.blocks()).unwrap_or(u32::MAX);
        match self.hides_something(key.version) {
            true => self.put(key, &Extent::Hole { blocks }.encode()),
            false => Ok(()),
        }
    }

    /// A name that leads to nothing. The ordinary repair removes it from the live files alone.
    fn lose_name(&mut self, key: Key, entry: &DirEntry<'_>) -> Result<()> {
        let mut path = self.path(key.ino);
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(entry.name);
        self.lose(path, entry.ino, Lost::Everything, (0, 0), String::new());
        match self.hides_something(key.version) {
            true => self.put(key, &WHITEOUT),
            false => Ok(()),
        }
    }

    /// Blocks that were written after the checkpoint: nothing tells whose version they are of.
    pub(super) fn leave_newer(&mut self) {
        let content = self.content;
        let mut last = None;
        for ((ino, _), stray) in content.stray_blocks() {
            if *ino == SHARED || !stray.later || last.replace(*ino) == Some(*ino) {
                continue;
            }
            let path = self.path(*ino);
            self.lose(path, *ino, Lost::Newer, (0, 0), NEWER_LEFT.to_owned());
        }
    }
}
