//! Versions: which items of the tree a subvolume shows, and which are its own.
//!
//! From above, a key has its inode's subvolume in the inode's number, and no version: it says a place. Here it is found out which item of
//! those at the place in the tree, one for each version that changed it, the subvolume shows. The table follows the items that tell of
//! subvolumes and versions. While there are none, a place has one item, and nothing is looked for.

mod lineage;
mod soles;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use persimmon_format::inode::Timestamp;
use persimmon_format::version::{ABSORBED_RANGES_MAX, NumberRange, Subvolume, Version};
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId};

pub(crate) use lineage::{Lineage, Lone};

use super::{Meta, tree};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};

/// Numbers of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers(Vec<NumberRange>);

impl Numbers {
    fn contains(&self, number: VersionId) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= number.0);
        let range = behind.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|(_, last)| number.0 <= *last)
    }

    /// Of ranges in any order; neighbours become one.
    fn of(mut ranges: Vec<NumberRange>) -> Numbers {
        ranges.sort_unstable();
        let mut joined: Vec<NumberRange> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        Numbers(joined)
    }
}

/// What a version shows and owns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// New items have this number: no other that it shows is greater.
    pub(crate) number: VersionId,
    shows: Numbers,
    owns: Numbers,
    /// There is something that it shows and does not own.
    pub(crate) has_parent: bool,
    pub(crate) is_read_only: bool,
    pub(crate) is_discarded: bool,
    /// Older inodes than this one were not made in it.
    pub(crate) first_ino: u64,
}

impl Scope {
    /// Of items without a version, and of a volume with one.
    fn only(number: VersionId) -> Scope {
        let numbers = Numbers(vec![(number.0, number.0)]);
        Scope {
            number,
            shows: numbers.clone(),
            owns: numbers,
            ..Scope::default()
        }
    }

    pub(crate) fn shows(&self, number: VersionId) -> bool {
        self.shows.contains(number)
    }

    pub(crate) fn owns(&self, number: VersionId) -> bool {
        self.owns.contains(number)
    }

    /// Whether its parent shows items of this version.
    pub(crate) fn shows_below(&self, number: VersionId) -> bool {
        self.shows(number) && !self.owns(number)
    }

    /// All versions that it owns.
    pub(crate) fn owned(&self) -> &[NumberRange] {
        &self.owns.0
    }
}

/// A place in the tree, looked at in a subvolume, or in a version.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// Without a subvolume.
    pub(crate) ino: Ino,
    pub(crate) scope: Arc<Scope>,
}

/// The table of subvolumes and versions.
#[derive(Debug)]
pub(crate) struct Versions {
    /// How often the table was changed.
    edition: u64,
    subvolumes: BTreeMap<SubvolumeId, Subvolume>,
    versions: BTreeMap<VersionId, Version>,
    /// Found when they are asked for.
    scopes: BTreeMap<SubvolumeId, OnceLock<Arc<Scope>>>,
    /// Versions that one subvolume alone shows, which can be changed. Found when they are asked for.
    soles: OnceLock<BTreeMap<VersionId, SubvolumeId>>,
    /// What a subvolume showed before it got a version below that: the way up from there need not be looked for again.
    former: Option<Arc<Scope>>,
    unversioned: Arc<Scope>,
}

impl Default for Versions {
    fn default() -> Versions {
        let unversioned = Arc::new(Scope::only(VersionId(0)));
        Versions {
            edition: 0,
            subvolumes: BTreeMap::new(),
            versions: BTreeMap::new(),
            scopes: BTreeMap::from([(SubvolumeId::MAIN, OnceLock::new())]),
            soles: OnceLock::new(),
            former: None,
            unversioned,
        }
    }
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::Inconsistent(format!("the table of snapshots: {what}"))
}

/// What an item of the table says; without a value it goes.
enum Told {
    Subvolume(SubvolumeId, Option<Subvolume>),
    Version(VersionId, Option<Version>),
}

impl Told {
    fn decode(key: &Key, value: Option<&[u8]>) -> Result<Told> {
        if key.kind == KeyKind::SUBVOLUME {
            let id = u16::try_from(key.item).map(SubvolumeId);
            let id = id.ok().filter(|id| *id != SubvolumeId::NONE);
            let id = id.ok_or_else(|| damaged(format_args!("subvolume {}", key.item)))?;
            let subvolume = value.map(Subvolume::decode).transpose();
            return Ok(Told::Subvolume(id, subvolume.map_err(damaged)?));
        }
        let number = u32::try_from(key.item).map(VersionId);
        let number = number.map_err(|_| damaged(format_args!("version {}", key.item)))?;
        let version = value.map(|value| Version::decode(number, value));
        let version = version.transpose().map_err(damaged)?;
        Ok(Told::Version(number, version))
    }
}

impl Versions {
    /// There is one version, and always was: every place has one item.
    pub(crate) fn is_plain(&self) -> bool {
        self.subvolumes.is_empty() && self.versions.is_empty()
    }

    /// Changes with each change of the table.
    pub(crate) fn edition(&self) -> u64 {
        self.edition
    }

    /// Items of the table.
    pub(crate) fn items(&self) -> u32 {
        (self.subvolumes.len() + self.versions.len()) as u32
    }

    /// Whether an item belongs to the table.
    pub(crate) fn is_told_by(key: &Key) -> bool {
        key.ino == Key::GLOBAL && matches!(key.kind, KeyKind::SUBVOLUME | KeyKind::VERSION)
    }

    /// An item of the table is put or, without a value, removed.
    pub(crate) fn change(&mut self, key: &Key, value: Option<&[u8]>) -> Result<()> {
        self.take(key, value)?;
        self.edition += 1;
        Ok(())
    }

    /// Makes sure that [`Versions::change`] finds what it can take.
    pub(crate) fn ensure(key: &Key, value: Option<&[u8]>) -> Result<()> {
        Told::decode(key, value).map(drop)
    }

    fn take(&mut self, key: &Key, value: Option<&[u8]>) -> Result<()> {
        self.soles = OnceLock::new();
        match Told::decode(key, value)? {
            Told::Subvolume(id, Some(subvolume)) => {
                self.subvolumes.insert(id, subvolume);
                let before = self.scopes.insert(id, OnceLock::new());
                let before = before.and_then(OnceLock::into_inner);
                self.former = before.or_else(|| self.former.take());
            }
            Told::Subvolume(id, None) => {
                self.subvolumes.remove(&id);
                self.scopes.remove(&id);
                self.scopes.entry(SubvolumeId::MAIN).or_default();
            }
            Told::Version(number, Some(version)) => {
                // A new one is below others, and above none.
                if self.versions.insert(number, version).is_some() {
                    self.forget_scopes();
                }
            }
            Told::Version(number, None) => {
                self.versions.remove(&number);
                self.forget_scopes();
            }
        }
        Ok(())
    }

    /// What subvolumes show has to be found again.
    fn forget_scopes(&mut self) {
        self.former = None;
        self.scopes
            .values_mut()
            .for_each(|scope| *scope = OnceLock::new());
    }

    /// The version of the main subvolume.
    fn main(&self) -> VersionId {
        let main = self.subvolumes.get(&SubvolumeId::MAIN);
        main.map_or(VersionId(0), |main| main.version)
    }

    /// A version; the first has no item before anything is said of it.
    pub(crate) fn version(&self, number: VersionId) -> Option<Version> {
        let first = number == VersionId(0) && self.versions.is_empty();
        let first = first.then(Version::default);
        self.versions.get(&number).cloned().or(first)
    }

    /// What a version shows and owns; `None` if it, or one above it, is not in the table. A parent's number is smaller: the way up ends.
    fn scope_of(&self, number: VersionId) -> Option<Scope> {
        let owned = |number: VersionId, version: &Version| {
            let mut owned = version.absorbed.clone();
            owned.push((number.0, number.0));
            owned
        };
        let version = self.version(number)?;
        let known = |number| self.former.as_ref().filter(|known| known.number == number);
        let owns = owned(number, &version);
        let mut below = Vec::new();
        let mut above = version.parent;
        // What shows the same as a snapshot that was taken of it: all of that, and this one itself.
        if let Some(known) = known(number) {
            below.extend(&known.shows.0);
            above = None;
        }
        while let Some(number) = above {
            if let Some(known) = known(number) {
                below.extend(&known.shows.0);
                break;
            }
            let version = self.version(number)?;
            below.extend(owned(number, &version));
            above = version.parent;
        }
        let shows = owns.iter().chain(&below).copied().collect();
        Some(Scope {
            number,
            shows: Numbers::of(shows),
            owns: Numbers::of(owns),
            has_parent: version.parent.is_some(),
            is_read_only: false,
            is_discarded: version.is_discarded,
            first_ino: version.first_ino,
        })
    }

    /// What a subvolume shows.
    pub(crate) fn scope(&self, subvolume: SubvolumeId) -> Result<&Arc<Scope>> {
        let kept = self.scopes.get(&subvolume).ok_or(Error::NoSuchSnapshot)?;
        if let Some(scope) = kept.get() {
            return Ok(scope);
        }
        let stored = self.subvolumes.get(&subvolume);
        let version = stored.map_or(VersionId(0), |stored| stored.version);
        let mut scope = self.known_scope(version)?;
        scope.is_read_only = stored.is_some_and(|stored| stored.is_read_only);
        Ok(kept.get_or_init(|| Arc::new(scope)))
    }

    fn known_scope(&self, number: VersionId) -> Result<Scope> {
        let scope = self.scope_of(number);
        scope.ok_or_else(|| {
            damaged(format_args!(
                "version {number}, or one above it, is missing"
            ))
        })
    }

    pub(crate) fn is_read_only(&self, subvolume: SubvolumeId) -> bool {
        let stored = self.subvolumes.get(&subvolume);
        stored.is_some_and(|stored| stored.is_read_only)
    }

    /// Where an inode is looked at.
    pub(crate) fn at(&self, ino: Ino) -> Result<At> {
        if Key::new(ino, KeyKind::EXTENT, 0).is_unversioned() {
            return Ok(self.unversioned(ino));
        }
        Ok(At {
            ino: ino.plain(),
            scope: Arc::clone(self.scope(ino.subvolume())?),
        })
    }

    fn unversioned(&self, ino: Ino) -> At {
        At {
            ino,
            scope: Arc::clone(&self.unversioned),
        }
    }

    /// An inode in all that a version shows.
    pub(crate) fn at_version(&self, ino: Ino, number: VersionId) -> Result<At> {
        let scope = Arc::new(self.known_scope(number)?);
        Ok(At { ino, scope })
    }

    /// An inode in one version alone.
    pub(crate) fn exactly(&self, ino: Ino, number: VersionId) -> At {
        if number == VersionId(0) {
            return self.unversioned(ino);
        }
        At {
            ino,
            scope: Arc::new(Scope::only(number)),
        }
    }

    pub(crate) fn subvolumes(&self) -> &BTreeMap<SubvolumeId, Subvolume> {
        &self.subvolumes
    }

    /// All subvolumes, the main one first.
    pub(crate) fn all(&self) -> Vec<SubvolumeId> {
        self.scopes.keys().copied().collect()
    }

    /// Subvolumes that can be changed.
    pub(crate) fn writable(&self) -> Vec<SubvolumeId> {
        let all = self.scopes.keys();
        all.copied().filter(|id| !self.is_read_only(*id)).collect()
    }

    /// Versions of which something is to be removed: the discarded ones, and the unsettled.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = (VersionId, &Version)> {
        let versions = self.versions.iter();
        let unsettled =
            versions.filter(|(_, version)| version.is_discarded || version.is_unsettled);
        unsettled.map(|(number, version)| (*number, version))
    }

    /// The main subvolume of a volume that says nothing of it yet.
    fn first_main(&self) -> Subvolume {
        Subvolume {
            version: self.main(),
            is_read_only: false,
            origin: SubvolumeId::MAIN,
            created: Timestamp::default(),
            name: Vec::new(),
        }
    }

    /// The items of a new snapshot, which shows what its origin does: itself, and the versions below that which get what is changed from now
    /// on. The rest of the table, which may be long, is not looked at.
    pub(crate) fn with_snapshot(
        &self,
        id: SubvolumeId,
        mut snapshot: Subvolume,
        first_ino: u64,
    ) -> Result<Vec<(Key, Vec<u8>)>> {
        let mut items = Vec::new();
        if self.versions.is_empty() {
            items.push((Key::version(VersionId(0)), Version::default().encode()));
        }
        let origin = self.subvolumes.get(&snapshot.origin).cloned();
        let first = || (snapshot.origin == SubvolumeId::MAIN).then(|| self.first_main());
        let mut origin = origin.or_else(first).ok_or(Error::NoSuchSnapshot)?;
        let taken = origin.version;
        let mut newest = self
            .versions
            .keys()
            .next_back()
            .map_or(0, |newest| newest.0);
        let mut below = || {
            newest = newest
                .checked_add(1)
                .ok_or(Error::TooManySnapshots(self.subvolumes.len()))?;
            let version = Version {
                parent: Some(taken),
                first_ino,
                ..Version::default()
            };
            items.push((Key::version(VersionId(newest)), version.encode()));
            Ok::<_, Error>(VersionId(newest))
        };
        let is_origin_read_only = origin.is_read_only;
        if !is_origin_read_only {
            origin.version = below()?;
        }
        snapshot.version = match snapshot.is_read_only {
            true => taken,
            false => below()?,
        };
        if !is_origin_read_only {
            items.push((Key::subvolume(snapshot.origin), origin.encode()));
        }
        items.push((Key::subvolume(id), snapshot.encode()));
        Ok(items)
    }

    /// The changes that a change of the table makes.
    pub(crate) fn edit(&self) -> Edit {
        let mut subvolumes = self.subvolumes.clone();
        subvolumes
            .entry(SubvolumeId::MAIN)
            .or_insert_with(|| self.first_main());
        let mut versions = self.versions.clone();
        if versions.is_empty() {
            versions.insert(VersionId(0), Version::default());
        }
        Edit {
            subvolumes,
            versions,
            main_differs: false,
        }
    }

    /// The items of the table that an edited one has others of, with what they are there.
    pub(crate) fn differences(&self, edit: &Edit) -> Vec<(Key, Option<Vec<u8>>)> {
        let mut changed = Vec::new();
        for (id, subvolume) in &edit.subvolumes {
            if self.subvolumes.get(id) != Some(subvolume) {
                changed.push((Key::subvolume(*id), Some(subvolume.encode())));
            }
        }
        for (number, version) in &edit.versions {
            if self.versions.get(number) != Some(version) {
                changed.push((Key::version(*number), Some(version.encode())));
            }
        }
        let gone = self.subvolumes.keys();
        let gone = gone.filter(|id| !edit.subvolumes.contains_key(id));
        changed.extend(gone.map(|id| (Key::subvolume(*id), None)));
        let gone = self.versions.keys();
        let gone = gone.filter(|number| !edit.versions.contains_key(number));
        changed.extend(gone.map(|number| (Key::version(*number), None)));
        changed
    }

    /// Versions between one and the first that both have above them, each with all it owns: what the two subvolumes do not have in common.
    pub(crate) fn apart(&self, one: SubvolumeId, other: SubvolumeId) -> Result<Vec<VersionId>> {
        let chain = |id: SubvolumeId| -> Result<Vec<VersionId>> {
            let mut chain = Vec::new();
            let mut next = Some(self.scope(id)?.number);
            while let Some(number) = next {
                chain.push(number);
                next = self.version(number).and_then(|version| version.parent);
            }
            Ok(chain)
        };
        let (one, other) = (chain(one)?, chain(other)?);
        let mut apart: Vec<VersionId> = Vec::new();
        apart.extend(one.iter().filter(|number| !other.contains(number)));
        apart.extend(other.iter().filter(|number| !one.contains(number)));
        Ok(apart)
    }
}

/// The table as a change of it is to leave it.
pub(crate) struct Edit {
    pub(crate) subvolumes: BTreeMap<SubvolumeId, Subvolume>,
    pub(crate) versions: BTreeMap<VersionId, Version>,
    /// The main subvolume shows something else than before.
    pub(crate) main_differs: bool,
}

impl Edit {
    /// A new version below one. Its number was never used for anything that is left.
    pub(crate) fn add_below(&mut self, parent: VersionId, first_ino: u64) -> Result<VersionId> {
        let newest = self.versions.keys().next_back().copied();
        let number = newest.map_or(Some(1), |newest| newest.0.checked_add(1));
        let number = VersionId(number.ok_or(Error::TooManySnapshots(self.subvolumes.len()))?);
        let version = Version {
            parent: Some(parent),
            first_ino,
            ..Version::default()
        };
        self.versions.insert(number, version);
        Ok(number)
    }

    /// Versions that no subvolume has any more are discarded, or absorbed by the one that alone is below them.
    pub(crate) fn tidy(&mut self) {
        while self.tidy_one() {}
    }

    fn tidy_one(&mut self) -> bool {
        let shown: BTreeSet<VersionId> = self.subvolumes.values().map(|s| s.version).collect();
        let mut below: BTreeMap<VersionId, (VersionId, usize)> = BTreeMap::new();
        for (number, version) in &self.versions {
            if let Some(parent) = version.parent {
                below.entry(parent).or_insert((*number, 0)).1 += 1;
            }
        }
        let free = self.versions.iter();
        let free =
            free.filter(|(number, version)| !version.is_discarded && !shown.contains(number));
        let free: Vec<VersionId> = free.map(|(number, _)| *number).collect();
        for number in free {
            match below.get(&number) {
                None => {
                    if let Some(version) = self.versions.get_mut(&number) {
                        version.parent = None;
                        version.is_discarded = true;
                        version.is_unsettled = false;
                        return true;
                    }
                }
                Some((child, 1)) if self.absorb(number, *child) => return true,
                Some(_) => {}
            }
        }
        false
    }

    /// Joins ranges with nothing between them that is left of any version: no key has such a number.
    fn joined_over_gaps(&self, ranges: Vec<NumberRange>, own: [VersionId; 2]) -> Vec<NumberRange> {
        let others = self
            .versions
            .iter()
            .filter(|(number, _)| !own.contains(number));
        let left = others.flat_map(|(number, version)| {
            let absorbed = version.absorbed.iter().copied();
            absorbed.chain([(number.0, number.0)])
        });
        let left = Numbers::of(left.collect()).0;
        let mut joined: Vec<NumberRange> = Vec::with_capacity(ranges.len());
        for (first, last) in Numbers::of(ranges).0 {
            match joined.last_mut() {
                Some((_, end)) if !left.iter().any(|(from, to)| *from < first && *to > *end) => {
                    *end = last;
                }
                _ => joined.push((first, last)),
            }
        }
        joined
    }

    fn absorb(&mut self, number: VersionId, child: VersionId) -> bool {
        let (Some(gone), Some(version)) = (self.versions.get(&number), self.versions.get(&child))
        else {
            return false;
        };
        let mut absorbed = version.absorbed.clone();
        absorbed.extend(&gone.absorbed);
        absorbed.push((number.0, number.0));
        let absorbed = self.joined_over_gaps(absorbed, [number, child]);
        if absorbed.len() > ABSORBED_RANGES_MAX {
            return false;
        }
        let merged = Version {
            parent: gone.parent,
            is_discarded: false,
            is_unsettled: !fault(Fault::AbsorbedNotSettled),
            first_ino: gone.first_ino,
            absorbed,
        };
        self.versions.remove(&number);
        self.versions.insert(child, merged);
        true
    }
}

impl Meta {
    /// Reads the table off the tree.
    pub(crate) fn read_versions(&mut self) -> Result<()> {
        let first = Key::new(Key::GLOBAL, KeyKind::SUBVOLUME, 0);
        let end = Key::new(Key::GLOBAL, KeyKind::CHANGES, 0);
        let mut versions = Versions::default();
        for item in tree::range(&self.cache, self.root, first..end) {
            let (key, value) = item?;
            versions.take(&key, Some(value))?;
        }
        self.versions = versions;
        Ok(())
    }

    /// The item that is shown at a place, with its version; it may be a whiteout.
    pub(crate) fn shown(&self, at: &At, place: &Key) -> Result<Option<(VersionId, &[u8])>> {
        self.newest(place, at.scope.number, |number| at.scope.shows(number))
    }

    /// The newest item at a place, up to a version, of those that count.
    fn newest(
        &self,
        place: &Key,
        up_to: VersionId,
        counts: impl Fn(VersionId) -> bool,
    ) -> Result<Option<(VersionId, &[u8])>> {
        let mut key = place.at(up_to);
        loop {
            let Some((found, value)) = tree::floor(&self.cache, self.root, &key)? else {
                return Ok(None);
            };
            if found.at(VersionId(0)) != place.at(VersionId(0)) {
                return Ok(None);
            }
            if counts(found.version) {
                return Ok(Some((found.version, value)));
            }
            let Some(before) = found.version.0.checked_sub(1) else {
                return Ok(None);
            };
            key = key.at(VersionId(before));
        }
    }

    /// Versions of all items at a place.
    pub(crate) fn versions_at(&self, place: &Key) -> Result<Vec<VersionId>> {
        let range = place.at(VersionId(0))..=place.at(VersionId(u32::MAX));
        tree::range(&self.cache, self.root, range)
            .map(|item| Ok(item?.0.version))
            .collect()
    }

    /// Versions that have an item at a place and are owned. The look takes as long as there are absorbed ones that are not settled, however many
    /// others there are.
    fn owned_at(&self, at: &At, place: &Key) -> Result<Vec<VersionId>> {
        let mut owned = Vec::new();
        for (first, last) in at.scope.owned() {
            let range = place.at(VersionId(*first))..=place.at(VersionId(*last));
            for item in tree::range(&self.cache, self.root, range) {
                owned.push(item?.0.version);
            }
        }
        Ok(owned)
    }

    /// What a subvolume shows under a key.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<&[u8]>> {
        if self.versions.is_plain() || key.is_unversioned() {
            return Ok(tree::get(&self.cache, self.root, key)?);
        }
        let at = self.versions.at(key.ino)?;
        self.get_at(&at, &at.key(key))
    }

    /// The same of a place, which has no subvolume.
    pub(crate) fn get_at(&self, at: &At, place: &Key) -> Result<Option<&[u8]>> {
        let shown = self.shown(at, place)?;
        Ok(shown
            .map(|(_, value)| value)
            .filter(|value| !place.is_whiteout(value)))
    }

    /// Whether an inode is there; what belongs to no inode is.
    pub(crate) fn is_there(&self, at: &At) -> Result<bool> {
        let is_there = at.ino == Key::GLOBAL
            || Key::new(at.ino, KeyKind::EXTENT, 0).is_unversioned()
            || self.get_at(at, &Key::inode(at.ino))?.is_some();
        Ok(is_there)
    }

    /// Whether the parent of a version shows something at a place.
    pub(crate) fn is_shown_below(&self, at: &At, place: &Key) -> Result<bool> {
        if !at.scope.has_parent {
            return Ok(false);
        }
        let below = self.newest(place, at.scope.number, |n| at.scope.shows_below(n))?;
        Ok(below.is_some_and(|(_, value)| !place.is_whiteout(value)))
    }

    /// Whether something at a key is the parent's version's as well.
    pub(crate) fn is_below(&self, key: &Key) -> Result<bool> {
        if self.versions.is_plain() {
            return Ok(false);
        }
        let at = self.versions.at(key.ino)?;
        self.is_shown_below(&at, &at.key(key))
    }

    /// Puts an item that the subvolume owns, in the place of what it owns there. Returns by how many items that are no whiteouts there
    /// are more.
    pub(crate) fn put(&mut self, key: &Key, value: &[u8]) -> Result<i64> {
        if self.versions.is_plain() || key.is_unversioned() {
            let replaced = self.insert_stored(key, value);
            return Ok(i64::from(!replaced));
        }
        let at = self.versions.at(key.ino)?;
        let place = at.key(key);
        let gone = self.take_owned(&at, &place)?;
        self.insert_stored(&place.at(at.scope.number), value);
        Ok(1 - gone)
    }

    /// Removes what the subvolume owns under a key, and hides what it does not. Returns as [`Meta::put`] does.
    pub(crate) fn delete(&mut self, key: &Key) -> Result<i64> {
        if self.versions.is_plain() || key.is_unversioned() {
            return Ok(-i64::from(self.remove_stored(key)));
        }
        let at = self.versions.at(key.ino)?;
        let place = at.key(key);
        let gone = self.take_owned(&at, &place)?;
        let hides = key.kind == KeyKind::INODE || self.is_there(&at)?;
        if hides && self.is_shown_below(&at, &place)? && !fault(Fault::WhiteoutForgotten) {
            let whiteout = &persimmon_format::version::WHITEOUT;
            self.insert_stored(&place.at(at.scope.number), whiteout);
        }
        Ok(-gone)
    }

    /// Removes the items at a place that are owned, none of them an extent. Returns how many were no whiteouts.
    fn take_owned(&mut self, at: &At, place: &Key) -> Result<i64> {
        let mut gone = 0;
        for number in self.owned_at(at, place)? {
            let key = place.at(number);
            let value = tree::get(&self.cache, self.root, &key)?;
            gone += i64::from(value.is_some_and(|value| !key.is_whiteout(value)));
            self.remove_stored(&key);
        }
        Ok(gone)
    }

    /// Makes sure that [`Meta::put`], [`Meta::delete`] and [`Meta::get`] find all they need in memory.
    pub(crate) fn ensure(&self, key: &Key) -> Result<()> {
        if self.versions.is_plain() || key.is_unversioned() {
            return Ok(tree::ensure_resident(&self.cache, self.root, key)?);
        }
        let at = self.versions.at(key.ino)?;
        self.ensure_place(&at, &at.key(key))?;
        if key.kind != KeyKind::INODE {
            self.ensure_place(&at, &Key::inode(at.ino))?;
        }
        Ok(())
    }

    /// [`Meta::ensure`], and that what is beside the items is in memory.
    pub(crate) fn ensure_around(&self, key: &Key) -> Result<()> {
        if self.versions.is_plain() || key.is_unversioned() {
            return Ok(tree::ensure_around(&self.cache, self.root, key)?);
        }
        self.ensure(key)
    }

    fn ensure_place(&self, at: &At, place: &Key) -> Result<()> {
        self.ensure_stored(&place.at(at.scope.number))?;
        for number in self.owned_at(at, place)? {
            self.ensure_stored(&place.at(number))?;
        }
        // What is found when these are gone.
        self.shown(at, place)?;
        self.is_shown_below(at, place)?;
        Ok(())
    }

    /// That an item of one version can be put or removed, and what is beside it found.
    pub(crate) fn ensure_stored(&self, key: &Key) -> Result<()> {
        Ok(tree::ensure_around(&self.cache, self.root, key)?)
    }
}

impl At {
    /// The place of a key in the tree.
    pub(crate) fn key(&self, key: &Key) -> Key {
        Key {
            ino: self.ino,
            version: VersionId(0),
            ..*key
        }
    }
}
