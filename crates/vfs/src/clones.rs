//! Clones of what is in a directory, many files in a record.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use persimmon_engine::{Clones, Given, HeldSources, Quotas, Transaction, WholeClones};
use persimmon_format::inode::{FLAG_NO_DUMP, FLAG_XATTRS, Inode};
use persimmon_format::name::ITEM_END;
use persimmon_format::xattr::Xattr;
use persimmon_format::{Ino, Key, KeyKind};

use crate::named::{Found, Target, check_name, find_entry};
use crate::namespace::{count, directory, put_entry};
use crate::protection::check_gets;
use crate::{Caller, Error, FileKind, Handle, Listing, Result, Timestamp, Vfs, xattrs};

/// Entries that are taken from the source in one call.
const ENTRIES_AT_ONCE: usize = 256;
/// Bytes that an entry counts beside its name.
const ENTRY_BYTES: usize = 8;
/// Files that nobody changes while they are cloned, and that a record makes at most.
const FILES_AT_ONCE: usize = 64;
/// Operations that a file takes beside its content and its extended attributes: its inode, its name, and those of its directory.
const OPS_A_FILE: usize = 4;
/// Extended attributes of a file that is cloned so, and their bytes.
const XATTRS_MAX: usize = 32;
const XATTR_BYTES_MAX: usize = 16 << 10;

/// A name in a directory, and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedIno {
    /// Its name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub ino: Ino,
}

/// How far the clones of a directory's entries came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClonedEntries {
    /// The cookie to go on after; `None` at the end.
    pub next: Option<u64>,
    /// Those that are made.
    pub made: Vec<NamedIno>,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of data that they have.
    pub bytes: u64,
    /// Those that have to be cloned some other way, or cannot be: directories, files with several names or with very much in them, names that are
    /// taken.
    pub left: Vec<NamedIno>,
}

/// Where clones are made, and when.
#[derive(Clone, Copy)]
struct Place {
    to: Ino,
    now: Timestamp,
}

/// What one record came to.
#[derive(Default)]
struct Made {
    /// Of each entry taken: the bytes of its data, or that it is left.
    outcomes: Vec<Outcome>,
}

#[derive(Clone, Copy)]
enum Outcome {
    Made { ino: Ino, file: Option<u64> },
    Left,
}

impl ClonedEntries {
    /// Leaves those of these entries of which nothing is said yet.
    fn leave_others(&mut self, wanted: &[(NamedIno, FileKind)]) {
        let said: BTreeSet<Vec<u8>> = { self.made.iter().chain(&self.left) }
            .map(|named| named.name.clone())
            .collect();
        let others = wanted.iter().map(|(named, _)| named);
        let others = others.filter(|named| !said.contains(&named.name));
        self.left.extend(others.cloned());
    }
}

impl Vfs {
    /// Clones what is in the directory `from` after `cookie` (0: from the start) into the directory `to`: a bounded number of entries, each of
    /// them whole or not at all, several in one record. A clone has the attributes of its source, `chattr` flags that forbid changes apart; its
    /// project is that of its directory. Their names, with eight bytes for each, have `names_max` bytes at most, unless it is one name. For who
    /// may read and make everything: no permission is looked at.
    ///
    /// # Errors
    /// What ends the work; what was made until then stays. What concerns an entry alone leaves that one.
    pub fn clone_entries(
        &self,
        caller: &Caller,
        from: Ino,
        to: Ino,
        (cookie, names_max): (u64, usize),
    ) -> Result<ClonedEntries> {
        self.changeable(to)?;
        let mut done = ClonedEntries::default();
        let mut wanted = Vec::new();
        let (mut names, mut is_whole) = (0, true);
        self.readdir(from, Handle::NONE, cookie, &mut |entry| {
            let entries = wanted.len() + done.left.len();
            names += entry.name.len() + ENTRY_BYTES;
            if entries >= ENTRIES_AT_ONCE || entries > 0 && names > names_max {
                is_whole = false;
                return Listing::Full;
            }
            done.next = Some(entry.cookie);
            let named = NamedIno {
                name: entry.name.to_vec(),
                ino: entry.ino,
            };
            match entry.kind {
                FileKind::Directory if matches!(entry.name, b"." | b"..") => {}
                FileKind::Directory => done.left.push(named),
                kind => wanted.push((named, kind)),
            }
            Listing::More
        })?;
        if is_whole {
            done.next = None;
        }
        // Each file is looked at by itself against a limit.
        if self.limits(caller) && Quotas::of(&self.volume).is_enforced() {
            done.left.extend(wanted.into_iter().map(|(named, _)| named));
            return Ok(done);
        }
        let now = self.now();
        let place = Place { to, now };
        for some in wanted.chunks(FILES_AT_ONCE) {
            let sources: Vec<Ino> = some
                .iter()
                .filter(|(_, kind)| *kind == FileKind::Regular)
                .map(|(named, _)| named.ino)
                .filter(|ino| self.check_whole(*ino).is_ok())
                .collect();
            let cloned = Clones::of(&self.volume).hold(&sources, |held| {
                self.clone_held(held, &place, some, &mut done)
            });
            match cloned {
                // Whoever asked has to hear which names there are now: the error comes with the next one.
                Err(error) if !done.made.is_empty() => {
                    tracing::debug!(%error, "not all files are cloned");
                    done.leave_others(&wanted);
                    return Ok(done);
                }
                cloned => cloned?,
            }
        }
        Ok(done)
    }

    fn clone_held(
        &self,
        held: &HeldSources<'_>,
        place: &Place,
        wanted: &[(NamedIno, FileKind)],
        done: &mut ClonedEntries,
    ) -> Result<()> {
        let mut rest = wanted;
        while !rest.is_empty() {
            self.writable()?;
            let made = held.make(|tx, clones| self.clone_some(tx, clones, place, rest));
            let made = match self.watch(made) {
                Ok(made) => made,
                Err(error @ (Error::NoSpace | Error::HostFull | Error::ReadOnly)) => {
                    return Err(error);
                }
                // Whoever takes them one by one is told of which it is true.
                Err(error) => {
                    tracing::debug!(%error, "files are not cloned together");
                    done.left
                        .extend(rest.iter().map(|(named, _)| named.clone()));
                    return Ok(());
                }
            };
            // A record takes one at least.
            let (taken, others) = rest.split_at(made.outcomes.len().clamp(1, rest.len()));
            for ((named, _), outcome) in taken.iter().zip(&made.outcomes) {
                match *outcome {
                    Outcome::Made { ino, file } => {
                        done.files += u64::from(file.is_some());
                        done.bytes += file.unwrap_or_default();
                        let name = named.name.clone();
                        done.made.push(NamedIno { name, ino });
                    }
                    Outcome::Left => done.left.push(named.clone()),
                }
            }
            rest = others;
        }
        Ok(())
    }

    /// As many as one record takes, from the first on.
    fn clone_some(
        &self,
        tx: &mut Transaction<'_>,
        clones: &mut WholeClones<'_>,
        place: &Place,
        wanted: &[(NamedIno, FileKind)],
    ) -> Result<Made> {
        let mut dir = directory(tx, place.to)?;
        check_gets(&dir)?;
        let mut made = Made::default();
        let mut items = BTreeSet::new();
        for (named, _) in wanted {
            let (is_first, room) = (items.is_empty(), clones.room(tx));
            if !is_first && room < OPS_A_FILE + XATTRS_MAX {
                break;
            }
            let Some(source) = self.clonable(tx, named)? else {
                made.outcomes.push(Outcome::Left);
                continue;
            };
            let Some(item) = self.item_for(tx, place.to, &named.name)? else {
                made.outcomes.push(Outcome::Left);
                continue;
            };
            // Two names of one hash: a search sees what the tree has, and not what this record puts.
            if items.contains(&item) {
                break;
            }
            let Some(outcome) = self.clone_one(tx, clones, (place, &dir), (named.ino, &source))?
            else {
                break;
            };
            if let Outcome::Made { ino, .. } = outcome {
                items.insert(item);
                let file_type = source.file_type();
                put_entry(tx, place.to, item, &named.name, Target { ino, file_type })?;
            }
            made.outcomes.push(outcome);
        }
        if !items.is_empty() {
            count(&mut dir, items.len() as i64, 0, place.now)?;
            tx.put_inode(place.to, &dir);
        }
        Ok(made)
    }

    /// The inode of what can be cloned so.
    fn clonable(&self, tx: &Transaction<'_>, named: &NamedIno) -> Result<Option<Inode>> {
        let inode = tx.inode(named.ino)?;
        Ok(inode.filter(|inode| {
            !inode.is_dir() && inode.nlink == 1 && self.check_whole(named.ino).is_ok()
        }))
    }

    /// Where a name goes; `None` if it cannot.
    fn item_for(&self, tx: &Transaction<'_>, to: Ino, name: &[u8]) -> Result<Option<u64>> {
        if check_name(name).is_err() || self.is_snapshots_name(to.plain(), name) {
            return Ok(None);
        }
        Ok(match find_entry(tx, to, name)? {
            Found::Present { .. } => None,
            Found::Absent { free } => free,
        })
    }

    /// Puts the inode of a clone, with its content and attributes. `None`: there is no room for it in this record.
    fn clone_one(
        &self,
        tx: &mut Transaction<'_>,
        clones: &mut WholeClones<'_>,
        (place, dir): (&Place, &Inode),
        (from, source): (Ino, &Inode),
    ) -> Result<Option<Outcome>> {
        let Some(items) = items_of(tx, from, source)? else {
            return Ok(Some(Outcome::Left));
        };
        let mut inode = self.inode_for(dir, (from, source), place.now);
        for (kind, item, value) in &items {
            if *kind == KeyKind::XATTR
                && *item < ITEM_END
                && let Ok(xattr) = Xattr::decode(value)
            {
                xattrs::count(tx, &mut inode, 0, xattr.sectors());
            }
        }
        let (ino, file) = if source.is_file() {
            match clones.give(tx, (from, source), (place.to, &inode))? {
                Given::All { ino, bytes } => (ino, Some(bytes)),
                Given::NextRecord => return Ok(None),
                Given::ByRange => return Ok(Some(Outcome::Left)),
            }
        } else {
            let ino = tx.new_ino().of(place.to.subvolume());
            tx.put_inode(ino, &inode);
            (ino, None)
        };
        for (kind, item, value) in items {
            tx.put(Key::new(ino, kind, item), value);
        }
        Ok(Some(Outcome::Made { ino, file }))
    }

    fn inode_for(&self, dir: &Inode, (from, source): (Ino, &Inode), now: Timestamp) -> Inode {
        Inode {
            nlink: 1,
            sectors: 0,
            atime: self.access_times.get(from).unwrap_or(source.atime),
            ctime: now,
            btime: now,
            project: dir.project,
            flags: source.flags & (FLAG_XATTRS | FLAG_NO_DUMP),
            ..*source
        }
    }
}

/// What an item of an inode is, and what is in it.
type Item = (KeyKind, u64, Vec<u8>);

/// Extended attributes of an inode, and where it leads if it is a symbolic link, under the items that they have of each inode. `None`: they are
/// more than a record should put for one clone.
fn items_of(tx: &Transaction<'_>, ino: Ino, inode: &Inode) -> Result<Option<Vec<Item>>> {
    let mut items = Vec::new();
    if inode.flags & FLAG_XATTRS == 0 && !inode.is_symlink() {
        return Ok(Some(items));
    }
    let mut bytes = 0;
    let first = Key::new(ino, KeyKind::XATTR, 0);
    let end = Key::new(ino, KeyKind::DIR_ENTRY, 0);
    tx.scan(first..end, |key, value| {
        bytes += value.len();
        items.push((key.kind, key.item, value.to_vec()));
        let is_long = items.len() > XATTRS_MAX || bytes > XATTR_BYTES_MAX;
        Ok(match is_long {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    let is_long = items.len() > XATTRS_MAX || bytes > XATTR_BYTES_MAX;
    Ok((!is_long).then_some(items))
}
