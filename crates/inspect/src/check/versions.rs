//! Versions: the table of them and of subvolumes, where versions say that they changed older inodes, and whether the items of all
//! versions go together.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use persimmon_format::version::{
    ABSORBED_RANGES_MAX, ChangedRange, Changes, NumberRange, Subvolume, Version,
};
use persimmon_format::zone_header::SNAPSHOTS;
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId, shown};

use super::files::item;
use crate::finding::{
    CHANGES, Findings, ITEM_KEY, ITEM_OWNER, ITEM_VALUE, SUBVOLUME, UNSETTLED, VERSION,
    VERSION_UNKNOWN, WHITEOUT,
};
use crate::state::{Scope, State, changes_of, is_of_table, subvolume_of, version_of};
use crate::volume::Inspector;

/// Said of items that only a volume with snapshots can have.
pub(super) const NO_SNAPSHOTS: &str = "the volume has no snapshots";

/// What the table says, for the check of items.
pub(crate) struct Table {
    /// There is the first version alone.
    pub is_plain: bool,
    pub has_feature: bool,
    /// Which version owns a range of numbers, by its first one: its last, and the version.
    owners: BTreeMap<u32, (u32, VersionId)>,
    /// Where versions may own items of inodes that are older.
    changes: HashMap<(VersionId, Ino), Vec<ChangedRange>>,
}

impl Table {
    /// Checks the table. Where items are lost, what is missing proves nothing.
    pub(crate) fn check(
        inspector: &Inspector<'_>,
        state: &State<'_, '_>,
        lost: bool,
        findings: &mut Findings,
    ) -> Table {
        let versions = state.versions();
        let mut table = Table {
            is_plain: versions.is_plain(),
            has_feature: inspector.identity.incompatible & SNAPSHOTS != 0,
            owners: versions.owners(),
            changes: HashMap::new(),
        };
        table.check_items(state, findings);
        table.read_changes(state, findings);
        if !table.is_plain && !lost {
            let all = versions.all();
            check_subvolumes(&versions.subvolumes, &all, findings);
            check_versions(&versions.subvolumes, &all, findings);
        }
        table
    }

    /// The version that owns items with a number.
    pub(crate) fn owner(&self, number: VersionId) -> Option<VersionId> {
        let (_, (last, owner)) = self.owners.range(..=number.0).next_back()?;
        (number.0 <= *last).then_some(*owner)
    }

    /// Keys and values of the table.
    fn check_items(&self, state: &State<'_, '_>, findings: &mut Findings) {
        let first = Key::subvolume(SubvolumeId(0));
        let _ = state.scan(first, &mut |key, value| {
            if !is_of_table(&key) {
                return ControlFlow::Break(());
            }
            if !self.has_feature {
                findings.add(&ITEM_KEY, item(&key), NO_SNAPSHOTS);
            }
            let subvolume = subvolume_of(&key).map(|_| Subvolume::decode(value).map(drop));
            let version = version_of(&key).map(|number| Version::decode(number, value).map(drop));
            match if key.kind == KeyKind::SUBVOLUME {
                subvolume
            } else {
                version
            } {
                None => findings.add(&ITEM_KEY, item(&key), "it has no such number"),
                Some(Err(error)) => findings.add(&ITEM_VALUE, item(&key), error),
                Some(Ok(())) => {}
            }
            ControlFlow::Continue(())
        });
    }

    /// Reads where versions say that they changed older inodes.
    fn read_changes(&mut self, state: &State<'_, '_>, findings: &mut Findings) {
        let first = Key::inode(Ino(0).of(SubvolumeId::NONE));
        let _ = state.scan(first, &mut |key, value| {
            let Some((number, ino)) = changes_of(&key) else {
                findings.add(&ITEM_KEY, item(&key), "");
                return ControlFlow::Continue(());
            };
            if !self.has_feature {
                findings.add(&ITEM_KEY, item(&key), NO_SNAPSHOTS);
            }
            let Some(owner) = self.owner(number) else {
                findings.add(&VERSION_UNKNOWN, item(&key), format_args!("{number}"));
                return ControlFlow::Continue(());
            };
            match Changes::decode(value) {
                Ok(changes) => {
                    let known = self.changes.entry((owner, ino)).or_default();
                    known.extend(changes.ranges());
                }
                Err(error) => findings.add(&ITEM_VALUE, item(&key), error),
            }
            ControlFlow::Continue(())
        });
    }

    /// Whether a version says that it may own an item.
    fn tells(&self, owner: VersionId, key: &Key) -> bool {
        let Some(ranges) = self.changes.get(&(owner, key.ino)) else {
            return false;
        };
        let is_in = |range: &ChangedRange| {
            range.kind == key.kind && range.first <= key.item && key.item <= range.last
        };
        key.kind == KeyKind::INODE || ranges.iter().any(is_in)
    }
}

type Subvolumes = BTreeMap<SubvolumeId, Subvolume>;
type VersionTable = BTreeMap<VersionId, Version>;

fn main_or(subvolumes: &Subvolumes) -> Vec<(SubvolumeId, VersionId, bool)> {
    let mut all: Vec<_> = subvolumes
        .iter()
        .map(|(id, subvolume)| (*id, subvolume.version, subvolume.is_read_only))
        .collect();
    if !subvolumes.contains_key(&SubvolumeId::MAIN) {
        all.push((SubvolumeId::MAIN, VersionId(0), false));
    }
    all
}

fn check_subvolumes(subvolumes: &Subvolumes, versions: &VersionTable, findings: &mut Findings) {
    let mut names: HashSet<&[u8]> = HashSet::new();
    for (id, subvolume) in subvolumes {
        let place = format!("subvolume {id}");
        let name = subvolume.name.as_slice();
        if name.is_empty() != (*id == SubvolumeId::MAIN) {
            let detail = match name.is_empty() {
                true => "a snapshot without a name".to_owned(),
                false => format!("the main one is named \"{}\"", shown(name)),
            };
            findings.add(&SUBVOLUME, &place, detail);
        }
        if !name.is_empty() && !names.insert(name) {
            let detail = format!("another one is named \"{}\" too", shown(name));
            findings.add(&SUBVOLUME, &place, detail);
        }
    }
    for id in going_round(subvolumes) {
        let detail = "from origin to origin one comes to it again";
        findings.add(&SUBVOLUME, format_args!("subvolume {id}"), detail);
    }
    let all = main_or(subvolumes);
    for (id, version, is_read_only) in &all {
        let place = format!("subvolume {id}");
        match versions.get(version) {
            None => {
                let detail = format!("its version {version} does not exist");
                findings.add(&SUBVOLUME, &place, detail);
            }
            Some(known) if known.is_discarded => {
                let detail = format!("its version {version} is discarded");
                findings.add(&SUBVOLUME, &place, detail);
            }
            Some(_) => {}
        }
        // What one changes, the others would see.
        let is_parent = || {
            versions
                .values()
                .any(|other| other.parent == Some(*version))
        };
        let sharing = all
            .iter()
            .find(|other| other.0 != *id && other.1 == *version);
        if let Some((other, ..)) = sharing
            && !is_read_only
        {
            let detail =
                format!("it can be written to and has version {version}, as subvolume {other}");
            findings.add(&SUBVOLUME, place, detail);
        } else if !is_read_only && is_parent() {
            let detail =
                format!("it can be written to and has version {version}, which is a parent");
            findings.add(&SUBVOLUME, place, detail);
        }
    }
}

/// Subvolumes from which one comes to no end, from origin to origin: that is the main subvolume, or one that is gone, which earlier builds left.
fn going_round(subvolumes: &Subvolumes) -> BTreeSet<SubvolumeId> {
    let mut ending: BTreeSet<SubvolumeId> = BTreeSet::from([SubvolumeId::MAIN]);
    let mut round = BTreeSet::new();
    for id in subvolumes.keys() {
        let (mut at, mut way) = (*id, BTreeSet::new());
        let has_end = loop {
            if ending.contains(&at) {
                break true;
            }
            if round.contains(&at) || !way.insert(at) {
                break false;
            }
            match subvolumes.get(&at) {
                Some(subvolume) => at = subvolume.origin,
                None => break true,
            }
        };
        match has_end {
            true => ending.extend(way),
            false => round.extend(way),
        }
    }
    round
}

fn check_versions(subvolumes: &Subvolumes, versions: &VersionTable, findings: &mut Findings) {
    let shown: HashSet<VersionId> = main_or(subvolumes).iter().map(|all| all.1).collect();
    let mut children: HashMap<VersionId, Vec<&Version>> = HashMap::new();
    for version in versions.values() {
        if let Some(parent) = version.parent {
            children.entry(parent).or_default().push(version);
        }
    }
    for (number, version) in versions {
        let children = children.get(number).map_or(&[][..], Vec::as_slice);
        for wrong in wrongs(version, versions, children, shown.contains(number)) {
            findings.add(&VERSION, format_args!("version {number}"), wrong);
        }
    }
    check_absorbed(versions, findings);
    let live = versions.iter().filter(|(_, version)| !version.is_discarded);
    let roots: Vec<String> = { live }
        .filter(|(_, version)| version.parent.is_none())
        .map(|(number, _)| number.to_string())
        .collect();
    if roots.len() != 1 {
        let detail = match roots.as_slice() {
            [] => "no version is without a parent".to_owned(),
            _ => format!("{} are without a parent", roots.join(", ")),
        };
        findings.add(&VERSION, "versions", detail);
    }
    let waiting = versions.values();
    let waiting = waiting.filter(|version| version.is_discarded || version.is_unsettled);
    match waiting.count() {
        0 => {}
        count => findings.add(&UNSETTLED, "volume", format_args!("{count} versions")),
    }
}

/// What is wrong with a version by its parent, those below it and those that show it.
fn wrongs(
    version: &Version,
    versions: &VersionTable,
    children: &[&Version],
    is_shown: bool,
) -> Vec<String> {
    let mut wrongs = Vec::new();
    if let Some(parent) = version.parent {
        match versions.get(&parent) {
            None => wrongs.push(format!("its parent {parent} does not exist")),
            Some(known) if known.is_discarded => {
                wrongs.push(format!("its parent {parent} is discarded"));
            }
            Some(_) => {}
        }
    }
    if version.is_discarded {
        if version.parent.is_some() {
            wrongs.push("it is discarded and has a parent".to_owned());
        }
        return wrongs;
    }
    match children {
        _ if is_shown => {}
        [] => wrongs.push("no subvolume has it, and it is no parent".to_owned()),
        // There is a limit to what one version can absorb.
        [child] if version.absorbed.len() + child.absorbed.len() < ABSORBED_RANGES_MAX => {
            wrongs.push("no subvolume has it, and it is the parent of one alone".to_owned());
        }
        _ => {}
    }
    wrongs
}

fn check_absorbed(versions: &VersionTable, findings: &mut Findings) {
    let mut ranges: Vec<(NumberRange, VersionId)> = Vec::new();
    for (number, version) in versions {
        ranges.push(((number.0, number.0), *number));
        ranges.extend(version.absorbed.iter().map(|range| (*range, *number)));
    }
    ranges.sort_unstable();
    let mut end: Option<(u32, VersionId)> = None;
    for ((first, last), owner) in ranges {
        if let Some((before, other)) = end
            && first <= before
        {
            let place = format!("version {owner}");
            let detail = format!("number {first} is that of version {other} too");
            findings.add(&VERSION, place, detail);
        }
        end = end.max(Some((last, owner)));
    }
}

/// The items of all versions that one inode has, as they go by.
pub(crate) struct Layers {
    ino: Ino,
    /// The place that is looked at, and the items there so far: of which version, and whether it says that nothing is there.
    place: Key,
    here: Vec<(VersionId, bool)>,
    /// The same of the inode itself.
    inode: Vec<(VersionId, bool)>,
    /// What was told of a version, that it is not told again.
    told: HashSet<(u16, VersionId)>,
}

impl Layers {
    pub(crate) fn new(ino: Ino) -> Layers {
        Layers {
            ino,
            place: Key::inode(ino),
            here: Vec::new(),
            inode: Vec::new(),
            told: HashSet::new(),
        }
    }

    /// Checks an item that its owner has of the inode. Places come in order, and at each the oldest item first.
    pub(crate) fn item(
        &mut self,
        table: &Table,
        (owner, scope): (VersionId, &Scope),
        (key, value): (&Key, &[u8]),
        is_freed: impl FnOnce() -> bool,
        findings: &mut Findings,
    ) {
        let place = key.at(VersionId(0));
        if place != self.place {
            self.place = place;
            self.here.clear();
        }
        let is_whiteout = key.is_whiteout(value);
        // What is to be settled may be there for nothing.
        let is_settled = !scope.is_discarded && !scope.is_unsettled;
        if is_whiteout && is_settled && !shows(&self.here, |number| scope.is_below(number)) {
            findings.add(&WHITEOUT, layer(key), "");
        }
        self.here.push((key.version, is_whiteout));
        if key.kind == KeyKind::INODE {
            self.inode.push((key.version, is_whiteout));
        } else if self.ino != Key::GLOBAL
            && is_settled
            && !is_whiteout
            && !shows(&self.inode, |number| scope.shows(number))
            && !is_freed()
            && self.told.insert((ITEM_OWNER.number, owner))
        {
            let place = format!("inode {}", self.ino);
            findings.add_left(&ITEM_OWNER, place, format!("in version {owner}"));
        }
        let is_older = scope.has_parent && self.ino.0 < scope.first_ino;
        if is_older && !table.tells(owner, key) && self.told.insert((CHANGES.number, owner)) {
            findings.add(&CHANGES, layer(key), "");
        }
    }
}

/// Whether the newest of the items that count says that something is there.
fn shows(items: &[(VersionId, bool)], counts: impl Fn(VersionId) -> bool) -> bool {
    let newest = items.iter().rev().find(|(number, _)| counts(*number));
    newest.is_some_and(|(_, is_whiteout)| !is_whiteout)
}

/// A key and its version, for a finding's place.
pub(super) fn layer(key: &Key) -> String {
    format!("{}, version {}", item(key), key.version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use persimmon_engine::{FormatOptions, Volume};
    use persimmon_format::record::Op;
    use persimmon_sim::{SimConfig, SimDevice};

    use super::*;

    /// What is found where a record puts such an item. The engine would not put it.
    fn found(key: Key, value: Vec<u8>) -> Vec<u16> {
        let device = Arc::new(SimDevice::new(SimConfig::new(24, 256)));
        Volume::format(device.clone(), &FormatOptions::default()).unwrap();
        let inspector = Inspector::open(&*device).unwrap();
        let mut state = inspector.state().unwrap();
        state.apply(&[Op::Put { key, value }]).unwrap();
        let mut findings = Findings::new(10);
        let table = Table::check(&inspector, &state, false, &mut findings);
        assert!(!table.is_plain);
        findings.into_parts().0.iter().map(|f| f.number).collect()
    }

    #[test]
    fn items_of_the_table_that_are_none() {
        let sound = Version::default().encode();
        assert!(found(Key::version(VersionId(0)), sound.clone()).is_empty());
        let number = |kind, item| Key::new(Key::GLOBAL, kind, item);
        let value = found(Key::version(VersionId(7)), vec![9; 13]);
        assert_eq!(value, [ITEM_VALUE.number]);
        let value = found(Key::subvolume(SubvolumeId(7)), vec![1]);
        assert_eq!(value, [ITEM_VALUE.number]);
        for key in [
            number(KeyKind::VERSION, 1 << 32),
            number(KeyKind::SUBVOLUME, u16::MAX.into()),
            Key::version(VersionId(0)).at(VersionId(1)),
        ] {
            assert_eq!(found(key, sound.clone()), [ITEM_KEY.number], "{key:?}");
        }
    }
}
