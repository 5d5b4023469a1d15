//! Names: directory entries against the inodes they lead to.

use std::collections::HashSet;

use persimmon_format::inode::ROOT;
use persimmon_format::{Ino, Key, KeyKind};

use super::repair::Plan;
use crate::finding::{
    DIR_LOOP, DIR_NAMES, DIR_PARENT, ENTRY_TARGET, ENTRY_TYPE, Findings, LINK_COUNT, LINK_NONE,
    ORPHAN, ROOT as ROOT_MISSING,
};

const TYPE_DIR: u8 = 4;

/// What of an inode is needed to check its names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeRow {
    pub ino: u64,
    pub parent: u64,
    pub nlink: u32,
    pub file_type: u8,
}

/// A directory entry without its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRow {
    pub child: u64,
    pub directory: u64,
    pub item: u64,
    pub file_type: u8,
}

impl EntryRow {
    pub(crate) fn key(&self) -> Key {
        Key::new(Ino(self.directory), KeyKind::DIR_ENTRY, self.item)
    }
}

/// All names of the volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Ascending.
    pub inodes: Vec<InodeRow>,
    pub entries: Vec<EntryRow>,
    /// Ascending.
    pub orphans: Vec<u64>,
}

impl Names {
    fn index(&self, ino: u64) -> Option<usize> {
        self.inodes.binary_search_by_key(&ino, |row| row.ino).ok()
    }
}

/// Checks names; mendings go to the plan.
pub(crate) fn check(
    names: Names,
    lost: bool,
    findings: &mut Findings,
    plan: &mut Plan,
    progress: &mut dyn FnMut(u64, u64),
) {
    let mut names = names;
    names
        .entries
        .sort_unstable_by_key(|entry| (entry.child, entry.directory, entry.item));
    let names = &names;
    let mut subdirectories = vec![0u64; names.inodes.len()];
    let mut rest = names.entries.as_slice();
    let mut named = Vec::with_capacity(names.inodes.len());
    for row in &names.inodes {
        let before = rest.partition_point(|entry| entry.child < row.ino);
        let (dangling, tail) = rest.split_at_checked(before).unwrap_or((rest, &[]));
        report_dangling(dangling, lost, findings, plan);
        let own = tail.partition_point(|entry| entry.child == row.ino);
        let (own, tail) = tail.split_at_checked(own).unwrap_or((tail, &[]));
        rest = tail;
        if row.file_type == TYPE_DIR {
            for entry in own {
                let index = names.index(entry.directory);
                if let Some(count) = index.and_then(|index| subdirectories.get_mut(index)) {
                    *count += 1;
                }
            }
        }
        named.push(own);
    }
    report_dangling(rest, lost, findings, plan);
    let total = names.inodes.len() as u64;
    for (index, (row, own)) in names.inodes.iter().zip(&named).enumerate() {
        progress(index as u64, total);
        let orphan = names.orphans.binary_search(&row.ino).is_ok();
        check_types(row, own, findings, plan);
        if row.file_type == TYPE_DIR {
            check_directory(row, own, findings, plan);
        }
        if !lost {
            let subdirectories = subdirectories.get(index).copied().unwrap_or(0);
            check_count(
                row,
                own.len() as u64,
                subdirectories,
                orphan,
                findings,
                plan,
            );
        }
    }
    for ino in &names.orphans {
        if names.index(*ino).is_none() && !lost {
            let detail = "there is no such inode";
            findings.add(&ORPHAN, format_args!("inode {ino}"), detail);
            plan.delete(Key::orphan(Ino(*ino)));
        }
    }
    check_reachable(names, &named, lost, findings, plan);
}

fn report_dangling(entries: &[EntryRow], lost: bool, findings: &mut Findings, plan: &mut Plan) {
    for entry in entries.iter().filter(|_| !lost) {
        let place = format!("directory {}", entry.directory);
        findings.add(&ENTRY_TARGET, place, format_args!("inode {}", entry.child));
        plan.delete(entry.key());
    }
}

fn check_types(row: &InodeRow, own: &[EntryRow], findings: &mut Findings, plan: &mut Plan) {
    for entry in own.iter().filter(|e| e.file_type != row.file_type) {
        let place = format!("directory {}", entry.directory);
        findings.add(&ENTRY_TYPE, place, format_args!("inode {}", row.ino));
        plan.set_entry_type(entry.key(), row.file_type);
    }
}

fn check_directory(row: &InodeRow, own: &[EntryRow], findings: &mut Findings, plan: &mut Plan) {
    let place = format!("inode {}", row.ino);
    let root = row.ino == ROOT.0;
    // Of several names the one in the parent stays.
    let right = own.iter().position(|entry| entry.directory == row.parent);
    let right = right.or((!own.is_empty()).then_some(0)).filter(|_| !root);
    if own.len() > usize::from(!root) {
        findings.add(&DIR_NAMES, &place, format_args!("{}", own.len()));
        for (index, entry) in own.iter().enumerate() {
            if Some(index) != right {
                plan.delete(entry.key());
            }
        }
    }
    let named = right.and_then(|index| own.get(index));
    let parent = if root {
        Some(ROOT.0)
    } else {
        named.map(|entry| entry.directory)
    };
    if let Some(parent) = parent
        && row.parent != parent
    {
        let detail = format!("it says {}, its name is in {parent}", row.parent);
        findings.add(&DIR_PARENT, &place, detail);
        plan.correct(Ino(row.ino), |c| c.parent = Some(Ino(parent)));
    }
}

fn check_count(
    row: &InodeRow,
    names: u64,
    subdirectories: u64,
    orphan: bool,
    findings: &mut Findings,
    plan: &mut Plan,
) {
    let place = format!("inode {}", row.ino);
    let directory = row.file_type == TYPE_DIR;
    let named = names > 0 || (directory && row.ino == ROOT.0);
    if orphan && named {
        let detail = format!("it has {names} names");
        findings.add(&ORPHAN, &place, detail);
        plan.delete(Key::orphan(Ino(row.ino)));
    }
    if !named && !orphan {
        findings.add(&LINK_NONE, &place, "");
        plan.stray(Ino(row.ino), row.file_type);
        return;
    }
    let expected = match (directory, named) {
        (true, true) => 2 + subdirectories,
        (_, false) => 0,
        (false, true) => names,
    };
    if u64::from(row.nlink) != expected {
        let detail = format!("it says {}, {expected} would be right", row.nlink);
        findings.add(&LINK_COUNT, place, detail);
        plan.correct(Ino(row.ino), |c| c.nlink = u32::try_from(expected).ok());
    }
}

/// Follows the parents of each directory up to the root.
fn check_reachable(
    names: &Names,
    named: &[&[EntryRow]],
    lost: bool,
    findings: &mut Findings,
    plan: &mut Plan,
) {
    let root = names.index(ROOT.0);
    let is_root_dir = root
        .and_then(|index| names.inodes.get(index))
        .is_some_and(|row| row.file_type == TYPE_DIR);
    if !is_root_dir {
        findings.add(&ROOT_MISSING, "inode 1", "");
        return;
    }
    if lost {
        return;
    }
    let mut cut = false;
    let mut reachable: HashSet<u64> = HashSet::from([ROOT.0]);
    let directories = names.inodes.iter().filter(|row| row.file_type == TYPE_DIR);
    for row in directories.filter(|row| names.orphans.binary_search(&row.ino).is_err()) {
        let mut way = Vec::new();
        let mut seen = HashSet::new();
        let mut at = row.ino;
        let ends_at_root = loop {
            if reachable.contains(&at) {
                break true;
            }
            if !seen.insert(at) {
                break false;
            }
            way.push(at);
            match names.index(at).and_then(|index| names.inodes.get(index)) {
                Some(next) if next.file_type == TYPE_DIR => at = next.parent,
                _ => break false,
            }
        };
        if ends_at_root {
            reachable.extend(way);
        } else {
            findings.add(&DIR_LOOP, format_args!("inode {}", row.ino), "");
            // Taken out of its loop it has no name, and the next check puts it where it can be
            // found. One a time: what hangs on it comes along.
            if !std::mem::replace(&mut cut, true) {
                let own = names.index(row.ino).and_then(|index| named.get(index));
                own.into_iter()
                    .copied()
                    .flatten()
                    .for_each(|entry| plan.delete(entry.key()));
            }
        }
    }
}
