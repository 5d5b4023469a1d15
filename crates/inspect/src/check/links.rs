//! Names: directory entries against the inodes they lead to.

use std::collections::HashSet;

use persimmon_format::inode::ROOT;

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
    pub file_type: u8,
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

pub(crate) fn check(
    names: &Names,
    lost: bool,
    findings: &mut Findings,
    progress: &mut dyn FnMut(u64, u64),
) {
    let mut entries = names.entries.clone();
    entries.sort_unstable_by_key(|entry| (entry.child, entry.directory));
    let mut subdirectories = vec![0u64; names.inodes.len()];
    let mut rest = entries.as_slice();
    let mut named = Vec::with_capacity(names.inodes.len());
    for row in &names.inodes {
        let before = rest.partition_point(|entry| entry.child < row.ino);
        let (dangling, tail) = rest.split_at_checked(before).unwrap_or((rest, &[]));
        report_dangling(dangling, lost, findings);
        let own = tail.partition_point(|entry| entry.child == row.ino);
        let (own, tail) = tail.split_at_checked(own).unwrap_or((tail, &[]));
        rest = tail;
        for entry in own {
            if entry.file_type != row.file_type {
                let place = format!("directory {}", entry.directory);
                let detail = format!("inode {}", row.ino);
                findings.add(&ENTRY_TYPE, place, detail);
            }
            if row.file_type == TYPE_DIR
                && let Some(count) = names
                    .index(entry.directory)
                    .and_then(|index| subdirectories.get_mut(index))
            {
                *count += 1;
            }
        }
        named.push(own);
    }
    report_dangling(rest, lost, findings);
    let total = names.inodes.len() as u64;
    for ((row, own), (index, subdirectories)) in names
        .inodes
        .iter()
        .zip(&named)
        .zip(subdirectories.iter().enumerate())
    {
        progress(index as u64, total);
        let orphan = names.orphans.binary_search(&row.ino).is_ok();
        check_inode(row, own, *subdirectories, orphan, lost, findings);
    }
    for ino in &names.orphans {
        if names.index(*ino).is_none() && !lost {
            findings.add(
                &ORPHAN,
                format_args!("inode {ino}"),
                "there is no such inode",
            );
        }
    }
    check_reachable(names, lost, findings);
}

fn report_dangling(entries: &[EntryRow], lost: bool, findings: &mut Findings) {
    for entry in entries.iter().filter(|_| !lost) {
        let place = format!("directory {}", entry.directory);
        findings.add(&ENTRY_TARGET, place, format_args!("inode {}", entry.child));
    }
}

fn check_inode(
    row: &InodeRow,
    own: &[EntryRow],
    subdirectories: u64,
    orphan: bool,
    lost: bool,
    findings: &mut Findings,
) {
    let place = format!("inode {}", row.ino);
    if orphan && row.nlink != 0 {
        let detail = format!("its link count is {}", row.nlink);
        findings.add(&ORPHAN, &place, detail);
    }
    let directory = row.file_type == TYPE_DIR;
    let root = row.ino == ROOT.0;
    if directory {
        if own.len() > 1 || (root && !own.is_empty()) {
            findings.add(&DIR_NAMES, &place, format_args!("{}", own.len()));
        }
        let parent = if root {
            Some(ROOT.0)
        } else {
            own.first().map(|entry| entry.directory)
        };
        if let Some(parent) = parent
            && row.parent != parent
        {
            let detail = format!("it says {}, its name is in {parent}", row.parent);
            findings.add(&DIR_PARENT, &place, detail);
        }
    }
    if lost {
        return;
    }
    let named = !own.is_empty() || (root && directory);
    if !named && !orphan {
        findings.add(&LINK_NONE, &place, "");
        return;
    }
    let expected = match (directory, named) {
        (true, true) => 2 + subdirectories,
        (_, false) => 0,
        (false, true) => own.len() as u64,
    };
    if u64::from(row.nlink) != expected {
        let detail = format!("it says {}, {expected} would be right", row.nlink);
        findings.add(&LINK_COUNT, place, detail);
    }
}

/// Follows the parents of each directory up to the root.
fn check_reachable(names: &Names, lost: bool, findings: &mut Findings) {
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
        }
    }
}
