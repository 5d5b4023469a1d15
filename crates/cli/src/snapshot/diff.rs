//! What differs between two snapshots, or a snapshot and the files as they are: both trees are walked together by names, and of files that
//! have the same number on both sides those that may differ are looked at.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use persimmon::Timestamp;
use persimmon::internal::format::Ino;

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is on the second side alone.
    Added,
    /// It is on the first side alone.
    Removed,
    /// It is the same file, with other content or attributes; of a directory, with other attributes than those that follow from its entries.
    Modified,
}

impl Change {
    pub fn mark(self) -> char {
        match self {
            Change::Added => '+',
            Change::Removed => '-',
            Change::Modified => 'M',
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Child<N> {
    /// Its inode's number, which is the same in all snapshots.
    pub ino: Ino,
    pub is_directory: bool,
    pub node: N,
}

/// What of an inode tells whether it changed. Whatever changes content, attributes or extended attributes changes its change time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a directory, whose times change with its entries, none; but all its extended attributes.
    pub size_and_times: Option<(u64, Timestamp, Timestamp)>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One of the two sides.
pub trait Side {
    type Node: Clone;

    fn root(&self) -> Child<Self::Node>;

    /// Entries by name. Of what is gone meanwhile, none.
    fn list(&self, directory: &Self::Node) -> Result<BTreeMap<Vec<u8>, Child<Self::Node>>>;

    fn state(&self, node: &Self::Node) -> Result<State>;
}

/// What is left to be looked at, the next one last.
enum Work<N, M> {
    Both(Vec<u8>, Child<N>, Child<M>),
    From(Vec<u8>, Child<N>),
    To(Vec<u8>, Child<M>),
}

/// Tells of all that differs, in the order of paths. `may_differ` are the inodes that may; without it all are looked at.
pub fn compare<F: Side, T: Side>(
    from: &F,
    to: &T,
    may_differ: Option<&HashSet<Ino>>,
    mut tell: impl FnMut(Change, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut work = vec![Work::Both(Vec::new(), from.root(), to.root())];
    while let Some(next) = work.pop() {
        let mut below: Vec<Work<F::Node, T::Node>> = Vec::new();
        match next {
            Work::From(path, child) => {
                tell(Change::Removed, &path)?;
                if child.is_directory {
                    let list = from.list(&child.node)?.into_iter();
                    below.extend(list.map(|(name, child)| Work::From(join(&path, &name), child)));
                }
            }
            Work::To(path, child) => {
                tell(Change::Added, &path)?;
                if child.is_directory {
                    let list = to.list(&child.node)?.into_iter();
                    below.extend(list.map(|(name, child)| Work::To(join(&path, &name), child)));
                }
            }
            Work::Both(path, one, other) => {
                let looked_at = may_differ.is_none_or(|may_differ| may_differ.contains(&one.ino));
                if looked_at && from.state(&one.node)? != to.state(&other.node)? {
                    tell(Change::Modified, &path)?;
                }
                if one.is_directory {
                    let mut there = to.list(&other.node)?;
                    for (name, one) in from.list(&one.node)? {
                        let path = join(&path, &name);
                        match there.remove(&name) {
                            // A number is never given to another file.
                            Some(other) if other.ino == one.ino => {
                                below.push(Work::Both(path, one, other));
                            }
                            Some(other) => {
                                below.push(Work::From(path.clone(), one));
                                below.push(Work::To(path, other));
                            }
                            None => below.push(Work::From(path, one)),
                        }
                    }
                    let new = there.into_iter();
                    below.extend(new.map(|(name, child)| Work::To(join(&path, &name), child)));
                    // Those of the second side alone came last.
                    below.sort_by(|a, b| path_of(a).cmp(path_of(b)));
                }
            }
        }
        work.extend(below.into_iter().rev());
    }
    Ok(())
}

fn path_of<N, M>(work: &Work<N, M>) -> &[u8] {
    match work {
        Work::Both(path, ..) | Work::From(path, _) | Work::To(path, _) => path,
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    [above, b"/", name].concat()
}
