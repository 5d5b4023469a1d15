//! Renaming.
//!
//! A directory must not come to lie under itself, so whoever moves one to another parent walks from there up to the root
//! first. That may be thousands of levels, each in a page that has to be read, so it is done without the metadata lock.
//! What was found stays true because only moves of directories to other parents change who lies above whom, and those take
//! turns: [`Vfs::directory_moves`], as Linux's `s_vfs_rename_mutex`.

use persimmon_engine::faults::{Fault, fault};
use persimmon_engine::{Intent, Transaction, View};
use persimmon_format::inode::Inode;
use persimmon_format::{Key, KeyKind};

use crate::make::{WHITEOUT, make_inode};
use crate::named::{Found, Target, check_name, find_entry, is_dot};
use crate::namespace::{check_removable, count, directory, drop_name, parent_in, put_entry};
use crate::protection::{check_gets, check_loses, check_names};
use crate::quota::check_same_project;
use crate::{Caller, Error, Ino, ROOT, RenameMode, Result, Timestamp, Vfs, is_snapshots};

/// Directories walked up under one hold of the metadata lock.
const LEVELS_AT_ONCE: usize = 64;

/// One of the two names of a rename.
#[derive(Clone, Copy)]
struct Name<'a> {
    parent: Ino,
    name: &'a [u8],
}

/// What is asked of a rename.
#[derive(Clone, Copy)]
struct How<'a> {
    mode: RenameMode,
    /// Who leaves a whiteout where the name was.
    whiteout_of: Option<&'a Caller>,
    now: Timestamp,
    vfs: &'a Vfs,
}

/// What a rename attempt came to.
enum Outcome {
    /// Done; this inode may have lost its last name.
    Done(Option<Ino>),
    /// It would replace a file by one whose data is not in the history yet.
    CommitFirst(Ino),
    /// It would move a directory to another parent, and nobody has looked yet whether that is below it.
    CheckFirst(Move),
}

/// A directory, and the one that is to be its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Move {
    directory: Ino,
    parent: Ino,
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
        let from = Name { parent, name };
        let to = Name {
            parent: new_parent,
            name: new_name,
        };
        self.rename_and_leave(from, to, mode, None)
    }

    /// The same, and leaves a whiteout of the caller's where the name was, in the same step: for overlayfs, which a crash must not have
    /// show what lies below.
    pub fn rename_leaving_whiteout(
        &self,
        caller: &Caller,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid("a whiteout where there is an exchange"));
        }
        let from = Name { parent, name };
        let to = Name {
            parent: new_parent,
            name: new_name,
        };
        self.rename_and_leave(from, to, mode, Some(caller))
    }

    fn rename_and_leave(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
        whiteout_of: Option<&Caller>,
    ) -> Result<()> {
        check_name(from.name)?;
        check_name(to.name)?;
        if is_dot(from.name) || is_dot(to.name) {
            return Err(Error::Invalid("renaming \".\" or \"..\""));
        }
        let is_snapshot = |name: Name<'_>| is_snapshots(name.parent);
        match (is_snapshot(from), is_snapshot(to), whiteout_of) {
            (false, false, _) => {}
            // From one such directory to another it would have another origin.
            (true, true, None) if from.parent == to.parent => {
                self.listed_snapshot(from.parent, from.name)?;
                return self.rename_snapshot(from.name, to.name, mode);
            }
            _ => return Err(Error::NotPermitted),
        }
        self.check_apart_from_snapshots(from.parent, from.name)?;
        self.check_apart_from_snapshots(to.parent, to.name)?;
        self.changeable(from.parent)?;
        self.changeable(to.parent)?;
        if from.parent.subvolume() != to.parent.subvolume() {
            return Err(Error::OtherSubvolume);
        }
        let now = self.now();
        let how = How {
            mode,
            whiteout_of,
            now,
            vfs: self,
        };
        self.with_admission(|| self.try_to_rename(from, to, how))
    }

    fn try_to_rename(&self, from: Name<'_>, to: Name<'_>, how: How<'_>) -> Result<()> {
        let intent = match how.whiteout_of {
            Some(_) => Intent::Grow,
            None => Intent::Shrink,
        };
        let mut committed = None;
        // From before the first check to the end, so that what was found stays true.
        let mut lock = None;
        let mut checked = Vec::new();
        loop {
            let outcome = self.change(intent, |tx| attempt(tx, from, to, how, committed, &checked));
            match outcome? {
                Outcome::Done(gone) => {
                    self.unlinked(gone);
                    return Ok(());
                }
                Outcome::CommitFirst(ino) => {
                    self.watch(self.volume.commit_file(ino))?;
                    committed = Some(ino);
                }
                Outcome::CheckFirst(wanted) => {
                    lock.get_or_insert_with(|| self.directory_moves.lock());
                    self.check_no_loop(wanted)?;
                    checked.push(wanted);
                }
            }
        }
    }

    /// A directory must not come to lie under itself: it is not above its new parent, nor is it that. The caller has the
    /// lock for moving directories.
    fn check_no_loop(&self, wanted: Move) -> Result<()> {
        let mut way = Way::from(wanted.parent);
        loop {
            // A view that misses a page begins again, but the way stays as far as it has got.
            let end = self.view(|view| way.up(view, wanted.directory))?;
            match end {
                None => {}
                Some(End::Root) => return Ok(()),
                Some(End::Circle) => {
                    return Err(Error::Inconsistent {
                        what: "directories in a circle",
                        ino: wanted.parent,
                    });
                }
                Some(End::Nothing) => {
                    // Removed since the way began, as only empty directories can be, or else damage: what is above a
                    // directory that is still there cannot have been removed.
                    self.view(|view| directory(view, wanted.parent))?;
                    return Err(Error::Inconsistent {
                        what: "a directory without a parent",
                        ino: way.at,
                    });
                }
            }
        }
    }
}

/// A way up from a directory.
struct Way {
    at: Ino,
    levels: u64,
    /// Where it was when `levels` was a power of two: come by again, it goes round in a circle, which is damage.
    mark: Ino,
}

/// Where a way up ends.
enum End {
    Root,
    Nothing,
    Circle,
}

impl Way {
    fn from(at: Ino) -> Way {
        Way {
            at,
            levels: 0,
            mark: Ino(0),
        }
    }

    /// Goes on up a bounded number of levels. An error if that leads to `moved`.
    fn up(&mut self, view: &View<'_>, moved: Ino) -> Result<Option<End>> {
        for _ in 0..LEVELS_AT_ONCE {
            if self.at == moved {
                return Err(Error::Invalid("a directory into itself"));
            }
            if self.at.plain() == ROOT {
                return Ok(Some(End::Root));
            }
            if self.at == self.mark {
                return Ok(Some(End::Circle));
            }
            let Some(inode) = view.inode(self.at)? else {
                return Ok(Some(End::Nothing));
            };
            self.levels += 1;
            if self.levels.is_power_of_two() {
                self.mark = self.at;
            }
            self.at = parent_in(self.at, &inode);
        }
        Ok(None)
    }
}

fn attempt(
    tx: &mut Transaction<'_>,
    from: Name<'_>,
    to: Name<'_>,
    how: How<'_>,
    committed: Option<Ino>,
    checked: &[Move],
) -> Result<Outcome> {
    let How { mode, now, .. } = how;
    let must_check = |moved: Target, parent: Ino| {
        let wanted = Move {
            directory: moved.ino,
            parent,
        };
        let moves = from.parent != to.parent && moved.is_dir();
        (moves && !checked.contains(&wanted)).then_some(wanted)
    };
    let mut dirs = Dirs::load(tx, from.parent, to.parent)?;
    let (from_item, source) = find_entry(tx, from.parent, from.name)?
        .present()
        .ok_or(Error::NotFound)?;
    let found = find_entry(tx, to.parent, to.name)?;
    dirs.check_takes(tx, source, to.parent)?;
    dirs.check_flags(tx, source, mode == RenameMode::Exchange)?;
    if let Some(wanted) = must_check(source, to.parent) {
        return Ok(Outcome::CheckFirst(wanted));
    }
    let (to_item, target) = match (found, mode) {
        (Found::Present { .. }, RenameMode::NoReplace) => return Err(Error::Exists),
        (Found::Absent { .. }, RenameMode::Exchange) => return Err(Error::NotFound),
        (Found::Present { item, value }, _) => (item, Some(value)),
        (Found::Absent { free }, _) => (free.ok_or(Error::NoSpace)?, None),
    };
    let Some(target) = target else {
        let left = leave(tx, from, from_item, how, &dirs)?;
        put_entry(tx, to.parent, to_item, to.name, source)?;
        dirs.moved(source, left, now)?;
        dirs.store(tx)?;
        touch(tx, source, to.parent, now)?;
        return Ok(Outcome::Done(None));
    };
    if source.ino == target.ino {
        return Ok(Outcome::Done(None));
    }
    if mode == RenameMode::Exchange {
        dirs.check_takes(tx, target, from.parent)?;
        dirs.check_flags(tx, target, true)?;
        if let Some(wanted) = must_check(target, from.parent) {
            return Ok(Outcome::CheckFirst(wanted));
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
    check_loses(dirs.to.as_ref().map_or(&dirs.from.1, |(_, dir)| dir))?;
    if source.is_file() && committed != Some(source.ino) && !fault(Fault::RenameUncommitted) {
        return Ok(Outcome::CommitFirst(source.ino));
    }
    let left = leave(tx, from, from_item, how, &dirs)?;
    put_entry(tx, to.parent, to_item, to.name, source)?;
    dirs.replaced(source, target, left, now)?;
    dirs.store(tx)?;
    touch(tx, source, to.parent, now)?;
    Ok(Outcome::Done(drop_name(tx, target, now)?))
}

/// Takes the old name away, or leaves a whiteout there. Returns how many entries there are in its place.
fn leave(
    tx: &mut Transaction<'_>,
    from: Name<'_>,
    item: u64,
    how: How<'_>,
    dirs: &Dirs,
) -> Result<i64> {
    let Some(caller) = how.whiteout_of else {
        tx.delete(Key::new(from.parent, KeyKind::DIR_ENTRY, item));
        return Ok(0);
    };
    let dir = (from.parent, &dirs.from.1);
    let (ino, inode) = make_inode(how.vfs, tx, caller, dir, &WHITEOUT, how.now)?;
    tx.put_inode(ino, &inode);
    let file_type = inode.file_type();
    put_entry(tx, from.parent, item, from.name, Target { ino, file_type })?;
    Ok(1)
}

/// What was moved has a new change time, and a directory perhaps a new parent.
fn touch(tx: &mut Transaction<'_>, moved: Target, parent: Ino, now: Timestamp) -> Result<()> {
    let mut inode = tx.inode(moved.ino)?.ok_or(Error::Inconsistent {
        what: "a name without an inode",
        ino: moved.ino,
    })?;
    inode.ctime = inode.ctime.next(now);
    if inode.is_dir() {
        inode.parent = parent.plain();
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
            to: if to == from {
                None
            } else {
                Some((to, directory(view, to)?))
            },
        })
    }

    /// Refuses to move something to one of the directories that is of another project.
    fn check_takes(&self, view: &View<'_>, moved: Target, parent: Ino) -> Result<()> {
        let (Some(to), from) = (&self.to, &self.from) else {
            return Ok(());
        };
        let dir = if to.0 == parent { &to.1 } else { &from.1 };
        if dir.project == 0 {
            return Ok(());
        }
        match view.inode(moved.ino)? {
            Some(inode) => check_same_project(dir, &inode),
            None => Ok(()),
        }
    }

    /// Refuses what flags of the directories, or of what is moved between them, forbid.
    fn check_flags(&self, view: &View<'_>, moved: Target, exchanges: bool) -> Result<()> {
        check_loses(&self.from.1)?;
        if let Some((_, to)) = &self.to {
            check_gets(to)?;
            if exchanges {
                check_loses(to)?;
            }
        }
        match view.inode(moved.ino)? {
            Some(inode) => check_names(&inode),
            None => Ok(()),
        }
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

    /// `left`: entries in the place of the old name.
    fn moved(&mut self, source: Target, left: i64, now: Timestamp) -> Result<()> {
        let subdirectory = i32::from(source.is_dir());
        self.count((left - 1, -subdirectory), (1, subdirectory), now)
    }

    fn replaced(
        &mut self,
        source: Target,
        target: Target,
        left: i64,
        now: Timestamp,
    ) -> Result<()> {
        let (source, target) = (i32::from(source.is_dir()), i32::from(target.is_dir()));
        self.count((left - 1, -source), (0, source - target), now)
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
