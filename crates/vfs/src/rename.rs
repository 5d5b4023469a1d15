//! Renaming.

use persimmon_engine::faults::{Fault, fault};
use persimmon_engine::{Intent, Transaction, View};
use persimmon_format::inode::Inode;
use persimmon_format::{Key, KeyKind};

use crate::named::{Found, Target, check_name, find_entry, is_dot};
use crate::namespace::{check_removable, count, directory, drop_name, put_entry};
use crate::{Error, Ino, ROOT, RenameMode, Result, Timestamp, Vfs};

/// Directories above one another at most, so that damage cannot make a walk endless.
const DEPTH_MAX: u32 = 1 << 20;

/// One of the two names of a rename.
#[derive(Clone, Copy)]
struct Name<'a> {
    parent: Ino,
    name: &'a [u8],
}

/// What a rename attempt came to.
enum Outcome {
    /// Done; this inode may have lost its last name.
    Done(Option<Ino>),
    /// It would replace a file by one whose data is not in the history yet.
    CommitFirst(Ino),
}

impl Vfs {
    /// Gives `name` of `parent` the name `new_name` in `new_parent`. Data of a file that takes the
    /// place of another enters the history first, so that no crash shows it empty or in part.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        if is_dot(name) || is_dot(new_name) {
            return Err(Error::Invalid("renaming \".\" or \"..\""));
        }
        self.writable()?;
        let from = Name { parent, name };
        let to = Name {
            parent: new_parent,
            name: new_name,
        };
        let now = self.now();
        let mut committed = None;
        loop {
            let outcome = self.change(Intent::Shrink, |tx| {
                attempt(tx, from, to, mode, committed, now)
            });
            match outcome? {
                Outcome::Done(gone) => {
                    self.unlinked(gone);
                    return Ok(());
                }
                Outcome::CommitFirst(ino) => {
                    self.watch(self.volume.commit_file(ino))?;
                    committed = Some(ino);
                }
            }
        }
    }
}

fn attempt(
    tx: &mut Transaction<'_>,
    from: Name<'_>,
    to: Name<'_>,
    mode: RenameMode,
    committed: Option<Ino>,
    now: Timestamp,
) -> Result<Outcome> {
    let mut dirs = Dirs::load(tx, from.parent, to.parent)?;
    let (from_item, source) = find_entry(tx, from.parent, from.name)?
        .present()
        .ok_or(Error::NotFound)?;
    let found = find_entry(tx, to.parent, to.name)?;
    if from.parent != to.parent && source.is_dir() {
        check_no_loop(tx, source.ino, to.parent)?;
    }
    let (to_item, target) = match (found, mode) {
        (Found::Present { .. }, RenameMode::NoReplace) => return Err(Error::Exists),
        (Found::Absent { .. }, RenameMode::Exchange) => return Err(Error::NotFound),
        (Found::Present { item, value }, _) => (item, Some(value)),
        (Found::Absent { free }, _) => (free.ok_or(Error::NoSpace)?, None),
    };
    let Some(target) = target else {
        tx.delete(Key::new(from.parent, KeyKind::DIR_ENTRY, from_item));
        put_entry(tx, to.parent, to_item, to.name, source)?;
        dirs.moved(source, now)?;
        dirs.store(tx)?;
        touch(tx, source, to.parent, now)?;
        return Ok(Outcome::Done(None));
    };
    if source.ino == target.ino {
        return Ok(Outcome::Done(None));
    }
    if mode == RenameMode::Exchange {
        if from.parent != to.parent && target.is_dir() {
            check_no_loop(tx, target.ino, from.parent)?;
        }
        put_entry(tx, from.parent, from_item, from.name, target)?;
        put_entry(tx, to.parent, to_item, to.name, source)?;
        dirs.exchanged(source, target, now)?;
        dirs.store(tx)?;
        touch(tx, source, to.parent, now)?;
        touch(tx, target, from.parent, now)?;
        return Ok(Outcome::Done(None));
    }
    check_removable(tx, target, source.is_dir())?;
    if source.is_file() && committed != Some(source.ino) && !fault(Fault::RenameUncommitted) {
        return Ok(Outcome::CommitFirst(source.ino));
    }
    tx.delete(Key::new(from.parent, KeyKind::DIR_ENTRY, from_item));
    put_entry(tx, to.parent, to_item, to.name, source)?;
    dirs.replaced(source, target, now)?;
    dirs.store(tx)?;
    touch(tx, source, to.parent, now)?;
    Ok(Outcome::Done(drop_name(tx, target, now)?))
}

/// A directory must not come to lie under itself: `moved` is not above `parent`, nor is it.
fn check_no_loop(view: &View<'_>, moved: Ino, parent: Ino) -> Result<()> {
    let mut ino = parent;
    for _ in 0..DEPTH_MAX {
        if ino == moved {
            return Err(Error::Invalid("a directory into itself"));
        }
        if ino == ROOT {
            return Ok(());
        }
        let inode = view.inode(ino)?.ok_or(Error::Inconsistent {
            what: "a directory without a parent",
            ino,
        })?;
        ino = inode.parent;
    }
    Err(Error::Inconsistent {
        what: "directories in a circle",
        ino: parent,
    })
}

/// What was moved has a new change time, and a directory perhaps a new parent.
fn touch(tx: &mut Transaction<'_>, moved: Target, parent: Ino, now: Timestamp) -> Result<()> {
    let mut inode = tx.inode(moved.ino)?.ok_or(Error::Inconsistent {
        what: "a name without an inode",
        ino: moved.ino,
    })?;
    inode.ctime = inode.ctime.next(now);
    if inode.is_dir() {
        inode.parent = parent;
    }
    tx.put_inode(moved.ino, &inode);
    Ok(())
}

/// The directories of a rename: one or two.
struct Dirs {
    from: (Ino, Inode),
    /// `None`: the same.
    to: Option<(Ino, Inode)>,
}

impl Dirs {
    fn load(view: &View<'_>, from: Ino, to: Ino) -> Result<Dirs> {
        Ok(Dirs {
            from: (from, directory(view, from)?),
            to: match to == from {
                true => None,
                false => Some((to, directory(view, to)?)),
            },
        })
    }

    /// Changes entry and subdirectory counts: (entries, subdirectories) of each.
    fn count(&mut self, from: (i64, i32), to: (i64, i32), now: Timestamp) -> Result<()> {
        match &mut self.to {
            Some((_, dir)) => {
                count(&mut self.from.1, from.0, from.1, now)?;
                count(dir, to.0, to.1, now)
            }
            None => count(&mut self.from.1, from.0 + to.0, from.1 + to.1, now),
        }
    }

    fn moved(&mut self, source: Target, now: Timestamp) -> Result<()> {
        let subdirectory = i32::from(source.is_dir());
        self.count((-1, -subdirectory), (1, subdirectory), now)
    }

    fn replaced(&mut self, source: Target, target: Target, now: Timestamp) -> Result<()> {
        let (source, target) = (i32::from(source.is_dir()), i32::from(target.is_dir()));
        self.count((-1, -source), (0, source - target), now)
    }

    fn exchanged(&mut self, source: Target, target: Target, now: Timestamp) -> Result<()> {
        let (source, target) = (i32::from(source.is_dir()), i32::from(target.is_dir()));
        self.count((0, target - source), (0, source - target), now)
    }

    fn store(&self, tx: &mut Transaction<'_>) -> Result<()> {
        tx.put_inode(self.from.0, &self.from.1);
        if let Some((ino, dir)) = &self.to {
            tx.put_inode(*ino, dir);
        }
        Ok(())
    }
}
