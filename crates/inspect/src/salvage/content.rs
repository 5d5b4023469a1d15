//! The items of a rebuilt tree, and the file data that they refer to, verified.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_device::Buffer;
use persimmon_format::delta::{self, block_at, is_delta};
use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::{Inode, ROOT, SHARED};
use persimmon_format::name::DirEntry;
use persimmon_format::packed::Packed;
use persimmon_format::record::Op;
use persimmon_format::xattr::Pieces;
use persimmon_format::{Addr, Ino, Key, KeyKind, Lsn, SubvolumeId, VersionId, ZoneId, shown};

use super::forest::{Instead, LostRange, LostRanges};
use super::liveness::{Fate, Owned};
use super::names::{Entry, Node, Nodes, Placement};
use super::older::cut_older;
use super::replayed::Replayed;
use super::shares::LostShares;
use super::summaries::{self, Beside, StrayBlock};
use super::{Rebuilt, Source, Stage};
use crate::error::{InspectError, Result};
use crate::state::{At, Base, Scope, State, is_of_table};
use crate::volume::ZoneUse;

/// An item of the tree.
pub type Item<'a> = (Key, &'a [u8]);

/// A range of keys of which not all is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First key.
    pub from: Key,
    /// First key behind it.
    pub to: Key,
    /// It is there as this earlier checkpoint had it.
    pub older: Option<u64>,
}

/// Blocks that a file has in the store of shared blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRun {
    /// The first of them, counted from the first of the file's extent.
    pub start: u64,
    /// Their number.
    pub blocks: u64,
    /// Where they are: a frame, a packed extent, or content; nothing if that is lost.
    pub extent: Option<Extent>,
    /// That is as of an earlier checkpoint.
    pub older: Option<u64>,
}

/// What a subvolume of a rebuilt volume holds: the main one, or a snapshot.
pub struct Content<'r, 'd> {
    rebuilt: &'r Rebuilt<'d>,
    state: State<'r, 'd>,
    scope: Rc<Scope>,
    is_snapshot: bool,
    /// There are items of versions that the table, of which something is lost, does not tell of.
    has_strange_items: bool,
    nodes: Nodes,
    strays: BTreeMap<(Ino, u64), StrayBlock>,
    /// Records of the journal that could not be applied.
    records_bad: u64,
    lost_shares: LostShares,
    /// Changes are lost.
    log_lost: bool,
    /// The sequence of a zone that was in use when the tree was written.
    tree_sequence: u64,
    /// The frame of the packed extent read last, and its content: what follows is often more of it.
    last_frame: RefCell<Option<(Packed, Option<Vec<u8>>)>>,
}

impl<'d> Rebuilt<'d> {
    /// Reads all items once, and the summaries where something is missing. What it has is that of the main subvolume.
    ///
    /// # Errors
    /// There is no tree at all.
    pub fn content(&self, progress: &mut dyn FnMut(Stage, u64, u64)) -> Result<Content<'_, 'd>> {
        self.content_of(None, progress)
    }

    /// The same of the snapshot with this name, if there is a name. Summaries tell nothing of versions: so they do not stand in for what
    /// is missing of a snapshot.
    ///
    /// # Errors
    /// There is no tree at all, or no such snapshot.
    pub fn content_of(
        &self,
        snapshot: Option<&[u8]>,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<Content<'_, 'd>> {
        let mut state = State::new(&self.inspector, self.tree.clone());
        cut_older(&mut state, &self.lost);
        let mut records_bad = 0;
        let mut lost_shares = LostShares::default();
        let mut replayed = Replayed::default();
        let log_lost = self.source == Source::Pages || self.journal_broken;
        // Without the whole journal nothing tells where blocks were when the zone table was written.
        let mut is_owned_of_use = snapshot.is_none() && !log_lost && self.has_older();
        let mut owned = None;
        for record in &self.inspector.journal.records {
            if is_owned_of_use && record.lsn > self.counted() {
                is_owned_of_use = false;
                owned = Some(Owned::of(&state, &self.lost, &self.inspector));
            }
            lost_shares.note(&record.ops, &self.lost, Ino(self.next_ino));
            replayed.note(&record.ops);
            records_bad += u64::from(state.apply(&record.ops).is_err());
        }
        if is_owned_of_use {
            owned = Some(Owned::of(&state, &self.lost, &self.inspector));
        }
        let has_strange_items = self.has_lost_table() && has_strange_items(&state);
        if has_strange_items {
            state.take_newest();
        }
        let scope = match snapshot {
            Some(name) => scope_of(&state, name).ok_or_else(|| InspectError::NotFound {
                what: format!("a snapshot named \"{}\"", shown(name)),
            })?,
            None => state.main(),
        };
        let mut content = Content {
            rebuilt: self,
            state,
            scope,
            is_snapshot: snapshot.is_some(),
            has_strange_items,
            nodes: Nodes::default(),
            strays: BTreeMap::new(),
            records_bad,
            lost_shares,
            log_lost,
            tree_sequence: self.tree_sequence(),
            last_frame: RefCell::default(),
        };
        content.read_nodes(progress);
        // With the whole log nothing is known better by summaries, but what the tree has lost.
        if !content.is_snapshot && (log_lost || !self.lost.is_empty()) {
            let beside = Beside {
                log_lost,
                replayed: &replayed,
                owned: owned.as_ref().filter(|_| !content.is_versioned()),
            };
            let found = summaries::read(self, &content, &beside, &mut |done, total| {
                progress(Stage::Summaries, done, total);
            });
            self.inspector.media.check_supported()?;
            content.strays = found.strays;
            content.follow(found.moved);
            if content.take_newer(found.newer, (&found.fates, owned.as_ref())) {
                content.read_nodes(progress);
            }
        }
        let inos = content.strays.keys().map(|(ino, _)| *ino);
        let inos: BTreeSet<Ino> = inos.filter(|ino| *ino != SHARED).collect();
        content.nodes.add_without_inode(inos);
        Ok(content)
    }

    /// Whether some of the table of subvolumes and versions may be lost, or older than the rest.
    fn has_lost_table(&self) -> bool {
        let (from, to) = (Key::subvolume(SubvolumeId::MAIN), Key::inode(ROOT));
        let is_of_it = |lost: &LostRange| lost.low < to && lost.high.is_none_or(|high| from < high);
        self.lost.iter().any(is_of_it)
    }

    /// The last record that the zone table counts.
    fn counted(&self) -> Lsn {
        let checkpoint = self.inspector.checkpoint.as_ref();
        checkpoint.map_or(Lsn(0), |checkpoint| checkpoint.footer.counted)
    }

    /// Whether an older leaf stands in for a lost one.
    fn has_older(&self) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|lost| matches!(lost.instead, Instead::Older(_)))
    }

    /// The newest sequence of the zones that the pages of the tree are in.
    fn tree_sequence(&self) -> u64 {
        let mat = self.inspector.checkpoint.iter().flat_map(|c| &c.mat);
        let zones: BTreeSet<ZoneId> = mat
            .filter(|entry| entry.is_used())
            .map(|entry| entry.addr.zone())
            .collect();
        let headers = zones
            .into_iter()
            .filter_map(|zone| self.inspector.header(zone));
        headers.map(|header| header.sequence).max().unwrap_or(0)
    }
}

impl<'d> Content<'_, 'd> {
    /// Changes the tree to name blocks where they are now.
    fn follow(&mut self, moved: BTreeMap<(Ino, u64), Extent>) {
        let mut runs: Vec<(Ino, u64, Extent)> = Vec::new();
        for ((ino, block), extent) in moved {
            if let Some((last_ino, first, last)) = runs.last_mut()
                && (*last_ino, *first + last.blocks()) == (ino, block)
                && join(last, &extent)
            {
                continue;
            }
            runs.push((ino, block, extent));
        }
        for (ino, block, extent) in runs {
            // The item stays the version's whose it is.
            let op = match self.floor(ino, KeyKind::EXTENT, block) {
                Some((key, _)) if !key.is_unversioned() => Op::Move {
                    version: key.version,
                    ino,
                    block,
                    extent,
                },
                _ => Op::Map { ino, block, extent },
            };
            // Where that cannot be done the tree stays as it is, and the block is told as lost.
            let _ = self.state.apply(&[op]);
        }
    }

    /// Takes blocks that are newer than what the tree has in their places. Those that the file is known to have go there, and what the tree has
    /// gives way; those that are known to be nobody's are left out; all others are kept beside the file. Whether anything of the tree gave way.
    fn take_newer(
        &mut self,
        newer: BTreeMap<(Ino, u64), StrayBlock>,
        (fates, owned): (&[Fate], Option<&Owned>),
    ) -> bool {
        let mut replaced: Vec<(Ino, u64, u64)> = Vec::new();
        for ((ino, block), mut stray) in newer {
            let zone = stray.extent.addr().map(|addr| addr.zone().0 as usize);
            let fate = zone.and_then(|zone| fates.get(zone).copied());
            let is_shared = owned.is_none_or(|owned| owned.has(&stray.extent));
            let is_known = summaries::known(self, (ino, block)).is_some();
            match fate.filter(|_| !is_shared) {
                Some(Fate::Dead) => continue,
                // A delta says itself whether it is one to what the tree has.
                _ if is_delta(block) => stray.later = is_known,
                Some(Fate::Live) => {
                    stray.later = false;
                    match replaced.last_mut() {
                        _ if !is_known => {}
                        Some((last, _, end)) if (*last, *end) == (ino, block) => *end += 1,
                        _ => replaced.push((ino, block, block + 1)),
                    }
                }
                Some(Fate::Unknown) | None => {}
            }
            summaries::put_newest(&mut self.strays, (ino, block), stray);
        }
        for (ino, from, to) in &replaced {
            let (ino, from, to) = (*ino, *from, *to);
            if self.state.apply(&[Op::Punch { ino, from, to }]).is_err() {
                let kept = self.strays.range_mut((ino, from)..(ino, to));
                kept.for_each(|(_, stray)| stray.later = true);
            }
        }
        !replaced.is_empty()
    }

    fn read_nodes(&mut self, progress: &mut dyn FnMut(Stage, u64, u64)) {
        let total = self.rebuilt.tree.leaves.len() as u64;
        let mut nodes = Nodes::default();
        let mut seen = 0u64;
        let _ = self
            .state
            .scan_shown(&self.scope, lowest(), &mut |key, value| {
                seen += 1;
                if seen.is_multiple_of(1024) {
                    progress(Stage::Items, (seen / 100).min(total), total);
                }
                match key.kind {
                    KeyKind::ORPHAN if key.ino == Key::GLOBAL && !self.may_be_named_since(&key) => {
                        nodes.orphans.push(key.item);
                    }
                    // The store of shared blocks has no inode.
                    _ if key.ino == Key::GLOBAL || key.ino == SHARED => {}
                    KeyKind::INODE => match Inode::decode(value) {
                        Ok(inode) => nodes.inode(key.ino, &inode),
                        Err(_) => nodes.item(key.ino, key.kind),
                    },
                    KeyKind::DIR_ENTRY => {
                        nodes.item(key.ino, key.kind);
                        if let Ok(entry) = DirEntry::decode(value) {
                            nodes.entries.push(Entry {
                                child: entry.ino.0,
                                directory: key.ino.0,
                                item: key.item,
                                file_type: entry.file_type,
                                good: is_possible(entry.name),
                            });
                        }
                    }
                    KeyKind::XATTR | KeyKind::SYMLINK | KeyKind::EXTENT => {
                        nodes.item(key.ino, key.kind);
                    }
                    _ => {}
                }
                ControlFlow::Continue(())
            });
        self.nodes = nodes;
    }

    /// The extent that holds a file's block, and the block it begins with.
    pub(crate) fn extent_at(&self, ino: Ino, block: u64) -> Option<(u64, Vec<u8>)> {
        let (key, value) = self.floor(ino, KeyKind::EXTENT, block)?;
        Some((key.item, value))
    }

    fn at(&self, ino: Ino) -> At {
        At {
            ino,
            scope: Rc::clone(&self.scope),
        }
    }

    /// The last item of an inode and a kind, at an item or before it.
    fn floor(&self, ino: Ino, kind: KeyKind, item: u64) -> Option<(Key, Vec<u8>)> {
        self.floor_in(&self.at(ino), kind, item)
    }

    /// The same as a version shows it.
    pub(super) fn floor_in(&self, at: &At, kind: KeyKind, item: u64) -> Option<(Key, Vec<u8>)> {
        match self.state.versions().is_plain() || at.ino == SHARED {
            true => {
                let found = self.state.floor(&Key::new(at.ino, kind, item));
                found.filter(|(key, _)| (key.ino, key.kind) == (at.ino, kind))
            }
            false => self.state.floor_shown(at, kind, item),
        }
    }

    pub(super) fn state(&self) -> &State<'_, 'd> {
        &self.state
    }

    pub(super) fn scope(&self) -> Rc<Scope> {
        Rc::clone(&self.scope)
    }

    /// Ranges of keys that are lost.
    pub(super) fn lost(&self) -> &LostRanges {
        &self.rebuilt.lost
    }

    /// Of the versions that the volume has besides the one that is looked at, the subvolumes: how many are left out.
    #[must_use]
    pub fn others(&self) -> u64 {
        let subvolumes = self.state.versions().subvolumes.keys();
        let snapshots = subvolumes.filter(|id| **id != SubvolumeId::MAIN).count() as u64;
        snapshots.saturating_sub(self.is_snapshot.into())
    }

    /// Whether the volume has, or may have, items of several versions.
    #[must_use]
    pub fn is_versioned(&self) -> bool {
        !self.state.versions().is_plain()
    }

    /// Where the tree has a block of a file: in the store of shared blocks, if the file shares it.
    pub(crate) fn place_of(&self, ino: Ino, block: u64) -> (Ino, u64) {
        let mapped = self.extent_at(ino, block);
        match mapped.map(|(first, value)| (first, Extent::decode(&value))) {
            Some((first, Ok(Extent::Shared { at, blocks, .. })))
                if block.saturating_sub(first) < blocks.into() && ino != SHARED =>
            {
                (SHARED, at.saturating_add(block.saturating_sub(first)))
            }
            _ => (ino, block),
        }
    }

    /// Where the blocks are that a file has by an extent which names `blocks` blocks of the store of shared blocks from `at` on.
    #[must_use]
    pub fn shared(&self, at: u64, blocks: u64) -> Vec<SharedRun> {
        let end = at.saturating_add(blocks);
        let mut stored: BTreeMap<u64, Extent> = BTreeMap::new();
        self.state
            .each_extent(&self.at(SHARED), (at, end), &mut |block, _, extent| {
                if let Ok(extent) = extent
                    && extent.fits_at(block)
                {
                    stored.insert(block, extent);
                }
            });
        let mut runs = Vec::new();
        let mut done = at;
        for (block, extent) in stored {
            let start = block.max(done);
            let stop = block.saturating_add(extent.blocks()).min(end);
            if start >= stop {
                continue;
            }
            self.strays_of_store(at, (done, start), &mut runs);
            let part = extent.part(start - block, stop - start);
            let is_content = !matches!(part, Extent::Shared { .. } | Extent::Reserved { .. });
            let (from, to) = (Key::extent(SHARED, start), Key::extent(SHARED, stop));
            runs.push(SharedRun {
                start: start - at,
                blocks: stop - start,
                extent: is_content.then_some(part),
                older: self.damage(from, to).find_map(|part| part.older),
            });
            done = stop;
        }
        self.strays_of_store(at, (done, end), &mut runs);
        runs
    }

    /// Blocks that the tree does not have in the store.
    fn strays_of_store(&self, at: u64, (from, to): (u64, u64), runs: &mut Vec<SharedRun>) {
        for block in from..to {
            let stray = self.strays.get(&(SHARED, block));
            runs.push(SharedRun {
                start: block - at,
                blocks: 1,
                extent: stray.map(|stray| stray.extent.clone()),
                older: None,
            });
        }
    }

    /// The last extent of a file at or before a key, and its first block.
    #[must_use]
    pub fn extent_before(&self, key: Key) -> Option<(u64, Vec<u8>)> {
        self.extent_at(key.ino, key.item)
    }

    /// An inode, if its attributes are there.
    #[must_use]
    pub fn inode(&self, ino: Ino) -> Option<Inode> {
        let (_, value) = self.state.shown(&self.scope, &Key::inode(ino))?;
        Inode::decode(&value).ok()
    }

    /// The value of an extended attribute that an inode has in pieces, if they are all there and are those of one value.
    #[must_use]
    pub fn xattr_value(&self, ino: Ino, pieces: Pieces) -> Option<Vec<u8>> {
        self.state.joined(&self.scope, ino, pieces).ok()
    }

    /// Who is whose, and where everything goes.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let strays = self.strays.iter();
        // A delta counts with the content of the file itself. Where the log is lost it is told all the same: the file may have changed further.
        let newer = strays
            .filter(|((_, block), stray)| stray.later && (self.log_lost || !is_delta(*block)));
        let newer = newer.map(|((ino, _), _)| *ino);
        let newer: BTreeSet<Ino> = newer.filter(|ino| *ino != SHARED).collect();
        Placement::new(&self.nodes, newer, &|entry| self.name(entry))
    }

    /// The name that a directory's entry holds.
    #[must_use]
    pub fn entry_name(&self, directory: Ino, item: u64) -> Option<Vec<u8>> {
        let key = Key::new(directory, KeyKind::DIR_ENTRY, item);
        let (_, value) = self.state.shown(&self.scope, &key)?;
        Some(DirEntry::decode(&value).ok()?.name.to_vec())
    }

    fn name(&self, entry: &Entry) -> Option<Vec<u8>> {
        self.entry_name(Ino(entry.directory), entry.item)
    }

    /// The path of something, as far as its names are known: of one without a name that in
    /// `lost+found`.
    #[must_use]
    pub fn path(&self, placement: &Placement, ino: Ino) -> Vec<u8> {
        placement.path(ino, &|entry| self.name(entry))
    }

    /// Hands all items on that the subvolume shows, and those of the store of shared blocks, in key order. Their keys have no version.
    pub fn scan(&self, visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>) {
        let _ = self
            .state
            .scan_shown(&self.scope, lowest(), &mut |key, value| {
                if is_of_table(&key) || key.kind == KeyKind::CHANGES {
                    return ControlFlow::Continue(());
                }
                visit((key.at(VersionId(0)), value))
            });
    }

    /// Hands all items of all versions on, as they are stored, in key order: the table of them and what they say that they changed too.
    pub fn scan_stored(&self, visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>) {
        let _ = self
            .state
            .scan(lowest(), &mut |key, value| visit((key, value)));
    }

    /// Whether anything may be as of an earlier checkpoint, and nothing tells what.
    #[must_use]
    pub fn may_all_be_older(&self) -> bool {
        self.rebuilt.is_uncertain
    }

    /// Whether all is there that says which versions there are, and which of them changed what.
    #[must_use]
    pub fn knows_versions(&self) -> bool {
        let behind_inodes = Key::inode(Ino(0).of(SubvolumeId::NONE));
        let is_of_changes = |lost: &LostRange| lost.high.is_none_or(|high| high > behind_inodes);
        !self.rebuilt.has_lost_table() && !self.rebuilt.lost.iter().any(is_of_changes)
    }

    /// Whether a version shows items of another one where it has none itself.
    #[must_use]
    pub fn is_below(&self, version: VersionId, other: VersionId) -> bool {
        self.state.versions().scope(version).is_below(other)
    }

    /// What is lost of a range of keys. Of a file that was made after the checkpoint the tree had nothing:
    /// all of it is in the journal, but for what it shares since with others, of which the tree had something.
    pub fn damage(&self, from: Key, to: Key) -> impl Iterator<Item = Damage> {
        let (to, end) = (to.min(Key::inode(Ino(self.rebuilt.next_ino))), to);
        let lost = self.rebuilt.lost.between(from, to);
        let lost = lost.map(move |lost| lost.damage(from, to));
        let lost = lost.filter(|part| part.from < part.to);
        lost.chain(self.lost_shares.between(from, end))
    }

    /// Blocks of file data that only summaries know: of files that the tree has no trace of, of
    /// ranges that it lost, and what was written after the checkpoint. By file and block; of the store of shared blocks those that
    /// cleaning moved.
    #[must_use]
    pub fn stray_blocks(&self) -> &BTreeMap<(Ino, u64), StrayBlock> {
        &self.strays
    }

    /// What of the volume is lost as a whole, for people: as [`Rebuilt::gaps`], and records of the
    /// journal that could not be applied.
    pub fn gaps(&self) -> impl Iterator<Item = String> {
        let bad = (self.records_bad > 0).then(|| {
            format!(
                "{} records of the journal could not be applied",
                self.records_bad
            )
        });
        let table = self.has_strange_items.then(|| {
            "the table of snapshots is lost: of the versions of each item the newest is taken"
                .to_owned()
        });
        self.rebuilt.gaps().chain(bad).chain(table)
    }

    /// Reads blocks of file data; those that cannot be read or fail their checksum are left out.
    #[must_use]
    pub fn read(&self, addr: Addr, crcs: &[u32]) -> Vec<Option<Buffer>> {
        self.rebuilt.inspector.media.read_frame(addr, crcs)
    }

    /// Whether what the tree has in a zone may not be there any more: changes are lost, and the zone was taken into use after
    /// the tree was written, or is in none.
    #[must_use]
    pub fn may_be_gone(&self, zone: ZoneId) -> bool {
        let is_later = match self.rebuilt.inspector.zones.get(zone.0 as usize) {
            Some(ZoneUse::Header(header)) => header.sequence > self.tree_sequence,
            // It may be there, behind a header that is damaged.
            Some(ZoneUse::Damaged(_)) => false,
            Some(ZoneUse::Unwritten | ZoneUse::Foreign) | None => true,
        };
        self.log_lost && is_later
    }

    /// Reads the blocks of a packed extent; nothing if its frame cannot be read or fails its checksum.
    #[must_use]
    pub fn read_packed(&self, packed: &Packed) -> Option<Vec<u8>> {
        let dictionary = self.dictionary_of(packed)?;
        let mut last = self.last_frame.borrow_mut();
        if last
            .as_ref()
            .is_none_or(|(frame, _)| *frame != packed.whole())
        {
            let media = &self.rebuilt.inspector.media;
            let content =
                media.read_packed(packed, |blocks| packed.frame_content(blocks, &dictionary));
            *last = Some((packed.whole(), content));
        }
        let (_, content) = last.as_ref()?;
        Some(packed.of_frame(content.as_ref()?)?.to_vec())
    }

    /// The content of the dictionary of a frame, from wherever blocks of the store are known; nothing without one.
    fn dictionary_of(&self, packed: &Packed) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        let Some(dictionary) = packed.dictionary() else {
            return Some(content);
        };
        for run in self.shared(dictionary.at, dictionary.blocks.into()) {
            match run.extent? {
                Extent::Frame { addr, crcs } => {
                    for block in self.read(addr, &crcs) {
                        content.extend_from_slice(&block?);
                    }
                }
                // Else a chain of them would have no end.
                Extent::Packed(packed) if packed.dictionary().is_none() => {
                    content.extend(self.read_packed(&packed)?);
                }
                _ => return None,
            }
        }
        Some(content)
    }

    /// The bytes of a delta that is on the device.
    #[must_use]
    pub fn delta_bytes(&self, delta: &Extent) -> Option<Vec<u8>> {
        self.state.delta_bytes(delta)
    }

    /// What a delta at its place makes of what the tree has of the block; `None` if it is not of that.
    #[must_use]
    pub fn with_delta(&self, ino: Ino, place: u64, delta: &Extent) -> Option<Vec<u8>> {
        let base = self.state.base_of(&self.at(ino), block_at(place), true);
        let Base::Content(mut content) = base else {
            return None;
        };
        delta::apply(&self.delta_bytes(delta)?, &mut content).then_some(content)
    }

    /// Whether the tree has the inode or anything that belongs to it.
    #[must_use]
    pub fn is_in_tree(&self, ino: Ino) -> bool {
        self.nodes.find(ino).is_some_and(|node| node.in_tree)
    }

    /// Inode numbers of which anything is known.
    #[must_use]
    pub fn nodes_total(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Of a number: what is known of it.
    #[must_use]
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.find(ino)
    }

    /// Type and permissions for what has lost its own inode. The type is what its name says; the root has no name.
    #[must_use]
    pub fn mode_without_inode(&self, ino: Ino) -> u32 {
        let known = self.node(ino).map_or(8, |node| node.file_type);
        let file_type = if ino == ROOT { 4 } else { known };
        u32::from(file_type) << 12 | if file_type == 4 { 0o700 } else { 0o600 }
    }
}

/// Makes one extent of two where the second has what follows the first; false if it does not.
fn join(first: &mut Extent, second: &Extent) -> bool {
    match (first, second) {
        (
            Extent::Frame { addr, crcs },
            Extent::Frame {
                addr: next,
                crcs: more,
            },
        ) if crcs.len() + more.len() <= FRAME_BLOCKS_MAX
            && addr.offset(crcs.len() as u32) == *next =>
        {
            crcs.extend(more);
            true
        }
        (Extent::Packed(first), Extent::Packed(second)) => first.join(second),
        _ => false,
    }
}

/// Whether there are items of versions that the table does not tell of.
fn has_strange_items(state: &State<'_, '_>) -> bool {
    let owners = state.versions().owners();
    let is_known = |key: &Key| {
        let before = owners.range(..=key.version.0).next_back();
        key.is_unversioned() || before.is_some_and(|(_, (last, _))| key.version.0 <= *last)
    };
    let scanned = state.scan(lowest(), &mut |key, _| match is_known(&key) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    scanned.is_break()
}

/// What the snapshot with this name shows.
fn scope_of(state: &State<'_, '_>, name: &[u8]) -> Option<Rc<Scope>> {
    let versions = state.versions();
    let mut named = versions.subvolumes.values();
    let snapshot = named.find(|snapshot| !name.is_empty() && snapshot.name == name)?;
    Some(versions.scope(snapshot.version))
}

pub(super) fn lowest() -> Key {
    Key::from_bytes(&[0; Key::LEN])
}

fn is_possible(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}
