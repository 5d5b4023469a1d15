//! Listing directories, in the order of name hashes.

use std::ops::{ControlFlow, Range};

use persimmon_format::name::{self, ITEM_MIN};
use persimmon_format::{Key, KeyKind};

use crate::named::Target;
use crate::{Attr, Entry, Error, FileKind, Handle, Ino, Listing, Result, Vfs, is_snapshots};

/// Entries taken from the tree at a time, so that a reader holds nothing up.
const BATCH: usize = 256;
/// The same with attributes.
const BATCH_PLUS: usize = 64;
/// Cookie of `.`.
const DOT: u64 = 1;
/// Cookie of `..`.
pub(crate) const DOT_DOT: u64 = 2;

/// Entries copied out of the tree.
#[derive(Default)]
struct Batch {
    names: Vec<u8>,
    entries: Vec<(Ino, FileKind, u64, Range<usize>)>,
    /// Where it goes on, if it does.
    next_item: Option<u64>,
}

impl Batch {
    fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    fn push(&mut self, item: u64, target: Target, name: &[u8]) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let kind = FileKind::from_entry(target.file_type);
        self.entries
            .push((target.ino, kind, item, start..self.names.len()));
    }

    /// Items, and entries as the caller gets them but for their cookies.
    fn iter(&self) -> impl Iterator<Item = (u64, Entry<'_>)> {
        self.entries.iter().map(|(ino, kind, item, range)| {
            let entry = Entry {
                ino: *ino,
                kind: *kind,
                cookie: 0,
                name: self.names.get(range.clone()).unwrap_or_default(),
            };
            (*item, entry)
        })
    }
}

impl Vfs {
    /// Tells the entries after `cookie` (0: from the start, `.` and `..` first) until `each`
    /// answers [`Listing::Full`] or there are no more.
    pub fn readdir(
        &self,
        ino: Ino,
        handle: Handle,
        cookie: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> Listing,
    ) -> Result<()> {
        self.list(ino, handle, cookie, BATCH, |entry| Ok(each(entry)))
    }

    /// As [`Vfs::readdir`], with the attributes of each entry, `None` where they cannot be read:
    /// whoever asks for them is told why. For `.` and `..` the attributes are those of the
    /// directory itself and its parent; a kernel does not count them as lookups.
    pub fn readdirplus(
        &self,
        ino: Ino,
        handle: Handle,
        cookie: u64,
        each: &mut dyn FnMut(&Entry<'_>, Option<&Attr>) -> Listing,
    ) -> Result<()> {
        self.list(ino, handle, cookie, BATCH_PLUS, |entry| {
            match self.getattr(entry.ino) {
                Ok(attr) => Ok(each(entry, Some(&attr))),
                // Removed and freed since the entry was read.
                Err(Error::Stale) => Ok(Listing::More),
                // One page of inodes that is lost does not take the names with it.
                Err(_) => Ok(each(entry, None)),
            }
        })
    }

    fn list(
        &self,
        ino: Ino,
        handle: Handle,
        cookie: u64,
        batch_max: usize,
        mut each: impl FnMut(&Entry<'_>) -> Result<Listing>,
    ) -> Result<()> {
        let open = self.opened(ino, handle)?;
        if open.as_ref().is_some_and(|open| !open.directory) {
            return Err(Error::NotDirectory);
        }
        let mut cookie = cookie;
        if cookie < DOT_DOT {
            let dir = self.inode(ino)?;
            if !dir.is_dir() {
                return Err(Error::NotDirectory);
            }
            self.accessed(ino, open.as_deref());
            if dir.nlink == 0 {
                return Ok(());
            }
            let dots = [
                (DOT, &b"."[..], ino),
                (DOT_DOT, b"..", self.parent_of(ino, &dir)),
            ];
            for (dot, name, ino) in dots {
                if cookie >= dot {
                    continue;
                }
                let entry = Entry {
                    ino,
                    kind: FileKind::Directory,
                    cookie: dot,
                    name,
                };
                if each(&entry)? == Listing::Full {
                    return Ok(());
                }
            }
            cookie = DOT_DOT;
        }
        if is_snapshots(ino) {
            return self.list_snapshots(ino, cookie, each);
        }
        let key = &self.volume.identity().key();
        let mut from = match cookie {
            DOT_DOT => ITEM_MIN,
            after => name::item_of_cookie(key, ino, after).saturating_add(1),
        };
        let mut batch = Batch::default();
        loop {
            self.fill(ino, from, batch_max, &mut batch)?;
            for (item, mut entry) in batch.iter() {
                entry.cookie = name::cookie(key, ino, item);
                if each(&entry)? == Listing::Full {
                    return Ok(());
                }
            }
            match batch.next_item {
                Some(item) => from = item,
                None => return Ok(()),
            }
        }
    }

    /// Copies entries from an item on out of the tree.
    fn fill(&self, dir: Ino, from: u64, batch_max: usize, batch: &mut Batch) -> Result<()> {
        self.view(|view| {
            batch.clear();
            let mut seen = 0;
            batch.next_item = None;
            let first = Key::new(dir, KeyKind::DIR_ENTRY, from);
            let names = first..Key::new(dir, KeyKind::EXTENT, 0);
            let next = view.scan_some(names, |key, bytes| {
                // One that is no name hides no other.
                match Target::decode(dir, bytes) {
                    Ok((entry, target)) if entry.has_possible_name() => {
                        batch.push(key.item, target, entry.name);
                    }
                    Ok((entry, _)) => self
                        .skipped
                        .tell(&key, &persimmon_format::shown(entry.name)),
                    Err(error) => self.skipped.tell(&key, &error),
                }
                seen += 1;
                Ok(if seen < batch_max {
                    ControlFlow::Continue(())
                } else {
                    batch.next_item = key.item.checked_add(1);
                    ControlFlow::Break(())
                })
            })?;
            // Those before it were looked at.
            if let Some(next) = next {
                batch.next_item = Some(next.item);
            }
            Ok(())
        })
    }

    /// Makes all namespace operations so far durable.
    pub fn fsyncdir(&self, ino: Ino, handle: Handle) -> Result<()> {
        self.opened(ino, handle)?;
        if self.is_read_only() {
            return self.synced_read_only();
        }
        self.watch(self.volume.sync_metadata())
    }
}
