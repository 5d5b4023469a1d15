//! Names: looking up, making, removing, listing.

use std::sync::Arc;

use persimmon_vfs::{Error, Handle, Ino, Listing, RenameMode, Vfs, is_snapshots};

use super::keeping::{self, exchange, is_renamed, removed};
use super::{Adapter, caller, done, node, open_flags, sync_parent};
use crate::capabilities::MAX_WRITE_BYTES;
use crate::ledger::OpenFile;
use crate::nodes;
use crate::protocol::{self, Answer, Call, Entries, Errno, Fields, opcode};
use crate::transport::{Outcome, Transport};

/// The kernel's cache of a file always holds.
const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// A close is not worth a message.
const FOPEN_NOFLUSH: u32 = 1 << 5;

/// A close is worth a message only where the file was emptied first, so that its new content enters
/// the history before `close` returns, or may be mapped, so that the kernel writes what maps have stored. Of one that is
/// emptied later, by `ftruncate`, it enters the history when the file is released, a moment after: all closes would
/// have to wait for an answer otherwise.
pub(super) fn opened(flush: bool) -> u32 {
    if flush {
        FOPEN_KEEP_CACHE
    } else {
        FOPEN_KEEP_CACHE | FOPEN_NOFLUSH
    }
}

impl Adapter {
    pub(super) fn lookup(&self, call: &mut Call<'_>) -> Answer {
        let (parent, name) = (node(call), call.name()?);
        let found = self.door.run("lookup", |vfs| match name {
            // From a file handle, the kernel has but the number, of any kind of file. It asks only
            // for what it does not refer to: without a name, that is about to be freed.
            // Anybody's handle may name what is not in this mount.
            b"." => match vfs.getattr(parent)? {
                found if found.nlink == 0 || !vfs.is_below_root(parent) => Err(Error::Stale),
                // The kernel always has the root, and knows it by another number.
                _ if nodes::number(vfs, parent) != parent.0 => Err(Error::Stale),
                found => Ok(Some(found)),
            },
            name => match vfs.lookup(parent, name) {
                Ok(found) => Ok(Some(found)),
                Err(Error::NotFound) => Ok(None),
                Err(error) => Err(error),
            },
        })?;
        let absent = || protocol::negative(!is_snapshots(parent));
        let entry = |found| protocol::entry(&nodes::shown(&self.door.vfs, found));
        call.answer(&found.map_or_else(absent, entry))
    }

    /// Not counted: the kernel forgets an inode in one go, and one without a name cannot be looked
    /// up again. But it may have been looked up and unlinked since this was sent, for what the kernel
    /// forgets comes late; so it is asked, where something is about to be freed.
    pub(super) fn forget(&self, call: &Call<'_>, transport: &dyn Transport) {
        let mut forgotten = forgotten(call);
        forgotten.retain(|ino| self.door.vfs.is_held(*ino) && !transport.knows(ino.0));
        // An inode that cannot be freed now is freed at the next mount.
        let _ = self.door.run("forget", |vfs| {
            vfs.forget_all(&forgotten);
            Ok(())
        });
    }

    pub(super) fn mknod(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (mode, rdev, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (parent, name, caller) = (node(call), call.name()?, caller(call.header, umask));
        let made = self.door.run("mknod", |vfs| {
            let made = vfs.mknod(&caller, parent, name, mode, rdev);
            let made = keeping::made(&call.header, vfs, (parent, name), made)?;
            self.sync_parent(parent, made)
        })?;
        call.answer(&protocol::entry(&made))
    }

    pub(super) fn mkdir(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome {
        if !is_snapshots(node(call)) {
            return Outcome::Now(self.make_directory(call));
        }
        match self.take_snapshot(call, transport) {
            Ok(()) => Outcome::Later,
            Err(error) => Outcome::Now(Err(error)),
        }
    }

    /// All that was written before is in a snapshot: what the kernel holds back too, for which it is asked first. It sends that as writes,
    /// and all that is staged has to be written, so another thread than those that serve the kernel waits for it.
    fn take_snapshot(&self, call: &Call<'_>, transport: &dyn Transport) -> Result<(), Errno> {
        let (name, caller, dirsync) = (call.name()?.to_vec(), caller(call.header, 0), self.dirsync);
        let later = transport.later_with_pages().ok_or(Errno(libc::EAGAIN))?;
        let (door, pages) = (self.door.clone(), Arc::clone(&self.pages));
        let (header, directory) = (call.header, node(call));
        let others = self.other_listings(directory);
        let under_way = self.freezer.goes_on_apart();
        self.renames.run_elsewhere(move || {
            let _under_way = under_way;
            for ino in pages.all() {
                later.write_back(ino.0);
            }
            let taken = door.run("mkdir", |vfs| {
                let taken = vfs.mkdir(&caller, directory, &name, 0);
                let taken = keeping::made(&header, vfs, (directory, &name), taken)?;
                sync_parent(vfs, dirsync, directory)?;
                Ok(taken)
            });
            let taken = taken.and_then(|taken| door.record().map(|()| taken));
            others.iter().for_each(|other| later.write_back(other.0));
            later.answer(taken.map(|taken| protocol::entry(&taken).to_vec()));
        });
        Ok(())
    }

    /// Of a directory of snapshots: the others, which list snapshots that it lists too. The kernel does not know that, and is to list those
    /// anew when it has had this one changed.
    fn other_listings(&self, directory: Ino) -> Vec<Ino> {
        if !is_snapshots(directory) {
            return Vec::new();
        }
        let mut all = self.door.vfs.snapshot_directories();
        all.remove(&directory);
        all.into_iter().collect()
    }

    /// Changes a directory of snapshots, with such others. The kernel waits for requests about a directory before it forgets what it listed,
    /// so another thread than those that answer them tells it.
    fn change_snapshots(
        &self,
        operation: &'static str,
        others: Vec<Ino>,
        transport: &dyn Transport,
        change: impl FnOnce(&Vfs) -> persimmon_vfs::Result<()> + Send + 'static,
    ) -> Result<Outcome, Errno> {
        let later = transport.later_with_pages().ok_or(Errno(libc::EAGAIN))?;
        let door = self.door.clone();
        let under_way = self.freezer.goes_on_apart();
        self.renames.run_elsewhere(move || {
            let _under_way = under_way;
            let changed = door.run(operation, change);
            let changed = changed.and_then(|()| door.record());
            others.iter().for_each(|other| later.write_back(other.0));
            later.answer(changed.map(|()| Vec::new()));
        });
        Ok(Outcome::Later)
    }

    fn make_directory(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (mode, umask) = (fields.u32()?, fields.u32()?);
        let (parent, name, caller) = (node(call), call.name()?, caller(call.header, umask));
        let made = self.door.run("mkdir", |vfs| {
            let made = vfs.mkdir(&caller, parent, name, mode);
            let made = keeping::made(&call.header, vfs, (parent, name), made)?;
            self.sync_parent(parent, made)
        })?;
        call.answer(&protocol::entry(&made))
    }

    pub(super) fn symlink(&self, call: &mut Call<'_>) -> Answer {
        let (parent, caller) = (node(call), caller(call.header, 0));
        let (name, target) = call.two_names()?;
        let made = self.door.run("symlink", |vfs| {
            let made = vfs.symlink(&caller, parent, name, target);
            let made = keeping::made(&call.header, vfs, (parent, name), made)?;
            self.sync_parent(parent, made)
        })?;
        call.answer(&protocol::entry(&made))
    }

    pub(super) fn readlink(&self, call: &mut Call<'_>) -> Answer {
        let node = node(call);
        let target = self.door.run("readlink", |vfs| vfs.readlink(node))?;
        call.answer(&target)
    }

    pub(super) fn unlink(&self, call: &Call<'_>) -> Answer {
        self.remove("unlink", call, Vfs::unlink)
    }

    pub(super) fn rmdir(&self, call: &Call<'_>, transport: &dyn Transport) -> Outcome {
        let others = self.other_listings(node(call));
        if others.is_empty() {
            return Outcome::Now(self.remove("rmdir", call, Vfs::rmdir));
        }
        match self.delete_snapshot(call, others, transport) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Now(Err(error)),
        }
    }

    fn delete_snapshot(
        &self,
        call: &Call<'_>,
        others: Vec<Ino>,
        transport: &dyn Transport,
    ) -> Result<Outcome, Errno> {
        let (directory, name) = (node(call), call.name()?.to_vec());
        let (header, dirsync) = (call.header, self.dirsync);
        self.change_snapshots("rmdir", others, transport, move |vfs| {
            removed(&header, vfs.rmdir(directory, &name))?;
            sync_parent(vfs, dirsync, directory)
        })
    }

    fn remove(
        &self,
        operation: &'static str,
        call: &Call<'_>,
        remove: impl FnOnce(&Vfs, Ino, &[u8]) -> persimmon_vfs::Result<()>,
    ) -> Answer {
        let (parent, name) = (node(call), call.name()?);
        done(self.door.run(operation, |vfs| {
            removed(&call.header, remove(vfs, parent, name))?;
            self.sync_parent(parent, ())
        }))
    }

    pub(super) fn rename(&self, call: &Call<'_>, transport: &dyn Transport) -> Outcome {
        match self.renaming(call, transport) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Now(Err(error)),
        }
    }

    /// Onto a file that there is, the new one comes whole: the kernel is asked for what it holds back of it first. It
    /// sends that as writes, so another thread than those that serve them has to wait for it.
    fn renaming(&self, call: &Call<'_>, transport: &dyn Transport) -> Result<Outcome, Errno> {
        let mut fields = call.fields();
        let (from, to) = (node(call), nodes::inode(&self.door.vfs, fields.u64()?));
        let flags = match call.header.opcode {
            opcode::RENAME2 => fields.u32()?,
            _ => 0,
        };
        let (old, new) = call.two_names()?;
        let dirsync = self.dirsync;
        let caller = caller(call.header, 0);
        let how = RenameMode::from_linux(flags).ok();
        let (header, ledger) = (call.header, self.door.ledger.clone());
        let rename = move |vfs: &Vfs, old: &[u8], new: &[u8]| {
            match how.ok_or(Error::Invalid("rename flags"))? {
                (RenameMode::Exchange, false) => {
                    exchange(&header, ledger.as_deref(), vfs, (from, old), (to, new))?;
                }
                (_, leaves_whiteout)
                    if header.is_resent()
                        && is_renamed(vfs, (from, old), (to, new), leaves_whiteout)? => {}
                (mode, true) => {
                    vfs.rename_leaving_whiteout(&caller, (from, old), (to, new), mode)?;
                }
                (mode, false) => vfs.rename(from, old, to, new, mode)?,
            }
            sync_parent(vfs, dirsync, to)
        };
        let others = self.other_listings(from);
        if !others.is_empty() {
            let (old, new) = (old.to_vec(), new.to_vec());
            return self.change_snapshots("rename", others, transport, move |vfs| {
                rename(vfs, &old, &new)
            });
        }
        let held_back = match how {
            Some((RenameMode::Replace, _)) => self.held_back_of_source((from, old), (to, new)),
            // Nothing is replaced.
            _ => None,
        };
        let Some(source) = held_back else {
            let renamed = self.door.run("rename", |vfs| rename(vfs, old, new));
            return Ok(Outcome::Now(done(renamed)));
        };
        let later = transport.later_with_pages().ok_or(Errno(libc::EAGAIN))?;
        let (door, old, new) = (self.door.clone(), old.to_vec(), new.to_vec());
        let under_way = self.freezer.goes_on_apart();
        self.renames.run_elsewhere(move || {
            let _under_way = under_way;
            later.write_back(source.0);
            let renamed = door.run("rename", |vfs| rename(vfs, &old, &new));
            let renamed = renamed.and_then(|()| door.record());
            later.answer(renamed.map(|()| Vec::new()));
        });
        Ok(Outcome::Later)
    }

    /// The file that takes the place of another, if the kernel may hold back pages of it. Neither name changes
    /// meanwhile: the kernel holds their directories.
    fn held_back_of_source(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Option<Ino> {
        if self.pages.is_empty() {
            return None;
        }
        let found = |(parent, name): (Ino, &[u8])| self.door.vfs.lookup(parent, name).ok();
        let source = found(from)?.ino;
        (self.pages.may_be_of(source) && found(to).is_some()).then_some(source)
    }

    pub(super) fn link(&self, call: &mut Call<'_>) -> Answer {
        let (ino, parent) = (Ino(call.fields().u64()?), node(call));
        let name = call.name()?;
        let linked = self.door.run("link", |vfs| {
            let linked = vfs.link(ino, parent, name);
            let linked = keeping::made(&call.header, vfs, (parent, name), linked)?;
            self.sync_parent(parent, linked)
        })?;
        call.answer(&protocol::entry(&linked))
    }

    pub(super) fn create(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (linux, mode, umask, kills) =
            (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let flags = open_flags(call.header, linux, kills);
        if let Some(open) = self.opened_before(&call.header) {
            return self.answer_created(call, &open);
        }
        let (parent, name, caller) = (node(call), call.name()?, caller(call.header, umask));
        let (made, file) = self.door.run("create", |vfs| {
            let made = keeping::created(&call.header, vfs, (parent, name), flags, |vfs| {
                vfs.create(&caller, parent, name, mode, flags)
            })?;
            self.sync_parent(parent, made)
        })?;
        self.note_opened(&call.header, made.ino, file, (linux, kills))?;
        self.pages.opened(made.ino, linux);
        let flush = self.pages.may_be_by(linux);
        call.answer(&protocol::created(&made, file.0, opened(flush)))
    }

    /// A daemon before this one has made and opened it.
    fn answer_created(&self, call: &mut Call<'_>, open: &OpenFile) -> Answer {
        let made = self.door.run("create", |vfs| vfs.getattr(open.ino))?;
        call.answer(&protocol::created(&made, open.handle.0, opened(true)))
    }

    pub(super) fn tmpfile(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (linux, mode, umask, kills) =
            (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let flags = open_flags(call.header, linux, kills);
        if let Some(open) = self.opened_before(&call.header) {
            return self.answer_created(call, &open);
        }
        let (parent, caller) = (node(call), caller(call.header, umask));
        let made = |vfs: &Vfs| vfs.tmpfile(&caller, parent, mode, flags);
        let (made, file) = self.door.run("tmpfile", made)?;
        self.note_opened(&call.header, made.ino, file, (linux, kills))
            .inspect_err(|_| {
                // The kernel does not know the inode, and will send no FORGET.
                let forget = |vfs: &Vfs| {
                    vfs.forget(made.ino);
                    Ok(())
                };
                let _ = self.door.run("forget", forget);
            })?;
        self.pages.opened(made.ino, linux);
        let flush = self.pages.may_be_by(linux);
        call.answer(&protocol::created(&made, file.0, opened(flush)))
    }

    pub(super) fn readdir(&self, call: &mut Call<'_>) -> Answer {
        let (directory, cookie, size) = listing(call)?;
        let mut entries = Entries::new(call.room(size));
        self.door.run("readdir", |vfs| {
            vfs.readdir(directory, Handle::NONE, cookie, &mut |entry| {
                more(entries.add(&nodes::shown_entry(vfs, entry)))
            })
        })?;
        Ok(entries.len())
    }

    pub(super) fn readdirplus(&self, call: &mut Call<'_>) -> Answer {
        let (directory, cookie, size) = listing(call)?;
        let mut entries = Entries::new(call.room(size));
        self.door.run("readdirplus", |vfs| {
            vfs.readdirplus(directory, Handle::NONE, cookie, &mut |entry, found| {
                more(entries.add_plus(&nodes::shown_entry(vfs, entry), found))
            })
        })?;
        Ok(entries.len())
    }
}

/// Where to list from, and how many bytes.
fn listing(call: &Call<'_>) -> Result<(Ino, u64, usize), Errno> {
    let mut fields = call.fields();
    fields.skip_u64()?;
    let (cookie, size) = (fields.u64()?, fields.u32()?);
    Ok((node(call), cookie, size.min(MAX_WRITE_BYTES) as usize))
}

fn more(added: bool) -> Listing {
    if added { Listing::More } else { Listing::Full }
}

/// The inodes that the kernel lets go of.
fn forgotten(call: &Call<'_>) -> Vec<Ino> {
    if call.header.opcode == opcode::FORGET {
        return vec![node(call)];
    }
    let each = call.data().chunks_exact(16);
    each.filter_map(|pair| Fields(pair).u64().ok())
        .map(Ino)
        .collect()
}
