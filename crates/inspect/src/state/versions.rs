//! The table of subvolumes and versions: which items a version owns, and which it shows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_format::version::{NumberRange, Subvolume, Version};
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId};

use super::State;

/// Numbers of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers(Vec<NumberRange>);

impl Numbers {
    /// Of ranges in any order, which may overlap. Neighbours become one: the versions of snapshots that were taken one after the other
    /// are a single range.
    fn of(mut ranges: Vec<NumberRange>) -> Numbers {
        ranges.sort_unstable();
        let mut apart: Vec<NumberRange> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match apart.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => apart.push((first, last)),
            }
        }
        Numbers(apart)
    }

    fn contains(&self, number: VersionId) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= number.0);
        let range = behind.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|(_, last)| number.0 <= *last)
    }
}

/// What a version owns and shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The version, and the number of the items that it makes.
    pub number: VersionId,
    pub has_parent: bool,
    pub is_discarded: bool,
    pub is_unsettled: bool,
    /// Inodes below this one are older than the version.
    pub first_ino: u64,
    owns: Numbers,
    /// What its parent shows.
    below: Numbers,
}

impl Scope {
    /// One number alone.
    pub(super) fn only(number: VersionId) -> Scope {
        Scope {
            number,
            owns: Numbers(vec![(number.0, number.0)]),
            ..Scope::default()
        }
    }

    pub(crate) fn owns(&self, number: VersionId) -> bool {
        self.owns.contains(number)
    }

    /// Whether items with this number are among those that its parent shows.
    pub(crate) fn is_below(&self, number: VersionId) -> bool {
        self.below.contains(number)
    }

    /// Whether items with this number are among those that it shows.
    pub(crate) fn shows(&self, number: VersionId) -> bool {
        self.owns(number) || self.is_below(number)
    }
}

/// Ranges of the scopes that are kept: 8 MiB. What a version shows has as many ranges as there are versions above it, at most.
const RANGES_KEPT_MAX: usize = 1 << 20;

/// The version that the main subvolume is taken to have where its own is not known.
const NEWEST: VersionId = VersionId(u32::MAX);

/// See the module. Values that cannot be decoded are left out.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub subvolumes: BTreeMap<SubvolumeId, Subvolume>,
    pub versions: BTreeMap<VersionId, Version>,
    /// Items of the table that cannot be decoded, or have numbers that are none.
    broken: BTreeSet<Key>,
    /// The main subvolume shows the newest item of each place, since nothing tells which versions it shows.
    shows_newest: bool,
    scopes: RefCell<Scopes>,
}

/// Scopes that were made before, as long as they do not have too many ranges together.
#[derive(Debug, Default)]
struct Scopes {
    known: HashMap<VersionId, Rc<Scope>>,
    ranges: usize,
    /// Which subvolume is the only one that shows a version, and can be changed.
    soles: Option<Rc<BTreeMap<VersionId, SubvolumeId>>>,
}

impl Scopes {
    fn add(&mut self, scope: &Rc<Scope>) {
        let ranges = scope.owns.0.len() + scope.below.0.len() + 1;
        if self.ranges + ranges > RANGES_KEPT_MAX {
            self.known.clear();
            self.ranges = 0;
        }
        self.ranges += ranges;
        self.known.insert(scope.number, Rc::clone(scope));
    }
}

/// Whether a key is one of the table's.
pub(crate) fn is_of_table(key: &Key) -> bool {
    key.ino == Key::GLOBAL && matches!(key.kind, KeyKind::SUBVOLUME | KeyKind::VERSION)
}

impl Versions {
    pub(super) fn read(state: &State<'_, '_>) -> Versions {
        let mut table = Versions::default();
        let first = Key::subvolume(SubvolumeId(0));
        let _ = state.scan(first, &mut |key, value| {
            if !is_of_table(&key) {
                return ControlFlow::Break(());
            }
            table.change(&key, Some(value));
            ControlFlow::Continue(())
        });
        table
    }

    /// An item of the table is put or, without a value, removed.
    pub(super) fn change(&mut self, key: &Key, value: Option<&[u8]>) {
        *self.scopes.borrow_mut() = Scopes::default();
        self.broken.remove(key);
        let is_known = match key.kind {
            KeyKind::SUBVOLUME => self.change_subvolume(key, value),
            _ => self.change_version(key, value),
        };
        if is_known.is_none() && value.is_some() {
            self.broken.insert(*key);
        }
    }

    fn change_subvolume(&mut self, key: &Key, value: Option<&[u8]>) -> Option<()> {
        let id = subvolume_of(key)?;
        self.subvolumes.remove(&id);
        if let Some(value) = value {
            self.subvolumes.insert(id, Subvolume::decode(value).ok()?);
        }
        Some(())
    }

    fn change_version(&mut self, key: &Key, value: Option<&[u8]>) -> Option<()> {
        let number = version_of(key)?;
        self.versions.remove(&number);
        if let Some(value) = value {
            let version = Version::decode(number, value).ok()?;
            self.versions.insert(number, version);
        }
        Some(())
    }

    /// Nothing says that there is more than the first version.
    pub(crate) fn is_plain(&self) -> bool {
        let is_empty = self.subvolumes.is_empty() && self.versions.is_empty();
        is_empty && self.broken.is_empty() && !self.shows_newest
    }

    pub(super) fn take_newest(&mut self) {
        self.shows_newest = true;
        *self.scopes.borrow_mut() = Scopes::default();
    }

    /// The version that a subvolume has, if there is such a subvolume.
    pub(crate) fn of(&self, subvolume: SubvolumeId) -> Option<VersionId> {
        match self.subvolumes.get(&subvolume) {
            _ if self.shows_newest && subvolume == SubvolumeId::MAIN => Some(NEWEST),
            Some(subvolume) => Some(subvolume.version),
            None => (subvolume == SubvolumeId::MAIN).then_some(VersionId(0)),
        }
    }

    /// The subvolume that owns the items of a version, if no other one shows them and it can be changed.
    fn sole_owner(&self, number: VersionId) -> Option<SubvolumeId> {
        if self.is_plain() {
            return (number == VersionId(0)).then_some(SubvolumeId::MAIN);
        }
        let soles = self.soles();
        if let Some(owner) = soles.get(&number) {
            return Some(*owner);
        }
        if self.versions.contains_key(&number) {
            return None;
        }
        let absorbs = |version: &VersionId| {
            let version = self.versions.get(version);
            version.is_some_and(|version| {
                let mut absorbed = version.absorbed.iter();
                absorbed.any(|(first, last)| (*first..=*last).contains(&number.0))
            })
        };
        let owner = soles.iter().find(|(version, _)| absorbs(version));
        owner.map(|(_, owner)| *owner)
    }

    /// The same, if the subvolume shows all that has this number: not what a version that is still to be settled has absorbed.
    pub(super) fn sole_viewer(&self, number: VersionId) -> Option<SubvolumeId> {
        let owner = self.sole_owner(number)?;
        let version = self.subvolumes.get(&owner).map(|owner| owner.version);
        let is_absorbed = version.is_some_and(|version| version != number);
        let stored = version.and_then(|version| self.versions.get(&version));
        let is_settled = stored.is_none_or(|version| !version.is_unsettled);
        (!is_absorbed || is_settled).then_some(owner)
    }

    fn soles(&self) -> Rc<BTreeMap<VersionId, SubvolumeId>> {
        if let Some(known) = &self.scopes.borrow().soles {
            return Rc::clone(known);
        }
        let mut shown: BTreeMap<VersionId, Vec<(SubvolumeId, bool)>> = BTreeMap::new();
        for (id, subvolume) in &self.subvolumes {
            let by = shown.entry(subvolume.version).or_default();
            by.push((*id, subvolume.is_read_only));
        }
        for parent in self.versions.values().filter_map(|version| version.parent) {
            shown.remove(&parent);
        }
        let soles = shown.into_iter().filter_map(|(version, by)| match by[..] {
            [(id, false)] => Some((version, id)),
            _ => None,
        });
        let soles = Rc::new(soles.collect::<BTreeMap<_, _>>());
        self.scopes.borrow_mut().soles = Some(Rc::clone(&soles));
        soles
    }

    /// A version; the first one needs no item.
    pub(crate) fn version(&self, number: VersionId) -> Option<Version> {
        let is_absorbed = |version: &Version| version.absorbed.iter().any(|(first, _)| *first == 0);
        let implied = || {
            let is_there = number == VersionId(0) && !self.versions.values().any(is_absorbed);
            is_there.then(Version::default)
        };
        self.versions.get(&number).cloned().or_else(implied)
    }

    /// All versions, the first one too where it has no item.
    pub(crate) fn all(&self) -> BTreeMap<VersionId, Version> {
        let mut all = self.versions.clone();
        if let Some(first) = self.version(VersionId(0)) {
            all.insert(VersionId(0), first);
        }
        all
    }

    /// Which version owns each number, by the first number of each range that one owns: its last, and the version.
    pub(crate) fn owners(&self) -> BTreeMap<u32, (u32, VersionId)> {
        let mut owners = BTreeMap::new();
        for (number, version) in self.all() {
            for (first, last) in &version.absorbed {
                owners.insert(*first, (*last, number));
            }
            owners.insert(number.0, (number.0, number));
        }
        owners
    }

    /// What a version owns and shows; of one that does not exist what has its number.
    pub(crate) fn scope(&self, number: VersionId) -> Rc<Scope> {
        if let Some(known) = self.scopes.borrow().known.get(&number) {
            return Rc::clone(known);
        }
        let owned = |number: VersionId, version: &Version| {
            if self.shows_newest && number == NEWEST {
                return vec![(0, u32::MAX)];
            }
            let own = (number.0, number.0);
            let absorbed = version.absorbed.iter().copied();
            absorbed.chain([own]).collect::<Vec<NumberRange>>()
        };
        let version = self.version(number).unwrap_or_default();
        let mut below = Vec::new();
        let mut above = version.parent;
        // The number of a parent is smaller, so this ends.
        while let Some(number) = above {
            let Some(version) = self.version(number) else {
                break;
            };
            below.extend(owned(number, &version));
            above = version.parent;
        }
        let scope = Rc::new(Scope {
            number,
            has_parent: version.parent.is_some(),
            is_discarded: version.is_discarded,
            is_unsettled: version.is_unsettled,
            first_ino: version.first_ino,
            owns: Numbers::of(owned(number, &version)),
            below: Numbers::of(below),
        });
        self.scopes.borrow_mut().add(&scope);
        scope
    }
}

/// The number in the key of a subvolume, if it can be one.
pub(crate) fn subvolume_of(key: &Key) -> Option<SubvolumeId> {
    let id = SubvolumeId(u16::try_from(key.item).ok()?);
    (id != SubvolumeId::NONE && key.version == VersionId(0)).then_some(id)
}

/// The number in the key of a version, if it can be one.
pub(crate) fn version_of(key: &Key) -> Option<VersionId> {
    let number = VersionId(u32::try_from(key.item).ok()?);
    (key.version == VersionId(0)).then_some(number)
}

/// The version that a key of its changes names, and the inode, if they can be ones.
pub(crate) fn changes_of(key: &Key) -> Option<(VersionId, Ino)> {
    let number = VersionId(u32::try_from(key.ino.plain().0).ok()?);
    let ino = Ino(key.item);
    let is_one = key.ino.subvolume() == SubvolumeId::NONE && key.kind == KeyKind::CHANGES;
    (is_one && key.version == VersionId(0) && ino == ino.plain()).then_some((number, ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(versions: &[(u32, Option<u32>, &[NumberRange])]) -> Versions {
        let mut table = Versions::default();
        for (number, parent, absorbed) in versions {
            let version = Version {
                parent: parent.map(VersionId),
                absorbed: absorbed.to_vec(),
                ..Version::default()
            };
            let key = Key::version(VersionId(*number));
            table.change(&key, Some(&version.encode()));
        }
        table
    }

    #[test]
    fn a_version_shows_what_its_parents_do() {
        let table = table(&[
            (2, Some(0), &[]),
            (5, Some(2), &[(3, 4)]),
            (7, Some(2), &[]),
        ]);
        let scope = table.scope(VersionId(5));
        let owned: Vec<u32> = (0..9).filter(|n| scope.owns(VersionId(*n))).collect();
        let shown: Vec<u32> = (0..9).filter(|n| scope.shows(VersionId(*n))).collect();
        assert_eq!((owned, shown), (vec![3, 4, 5], vec![0, 2, 3, 4, 5]));
        let owners = table.owners();
        assert_eq!(owners.get(&3), Some(&(4, VersionId(5))));
        assert_eq!(owners.get(&0), Some(&(0, VersionId(0))));
    }

    #[test]
    fn the_first_version_is_there_until_it_is_absorbed() {
        let plain = Versions::default();
        assert!(plain.is_plain());
        assert_eq!(plain.of(SubvolumeId::MAIN), Some(VersionId(0)));
        assert_eq!(plain.of(SubvolumeId(1)), None);
        assert_eq!(plain.version(VersionId(0)), Some(Version::default()));
        let table = table(&[(1, None, &[(0, 0)])]);
        assert_eq!(table.version(VersionId(0)), None);
        assert!(table.scope(VersionId(1)).owns(VersionId(0)));
        assert_eq!(Vec::from_iter(table.all().into_keys()), [VersionId(1)]);
    }

    #[test]
    fn values_that_are_none_are_left_out() {
        let mut table = table(&[]);
        table.change(&Key::version(VersionId(3)), Some(&[1, 2]));
        table.change(&Key::subvolume(SubvolumeId::NONE), Some(&[0; 20]));
        assert!(!table.is_plain());
        assert!(table.subvolumes.is_empty() && table.versions.is_empty());
        table.change(&Key::version(VersionId(3)), None);
        table.change(&Key::subvolume(SubvolumeId::NONE), None);
        assert!(table.is_plain());
    }
}
