//! Extended attributes: `user.`, `trusted.`, `security.` and the two access control lists of
//! `system.`.

use std::ops::ControlFlow;

use persimmon_engine::{Intent, Transaction};
use persimmon_format::inode::{FLAG_XATTRS, Inode};
use persimmon_format::name::ITEM_END;
use persimmon_format::xattr::{
    Pieces, SLOT_END, SLOT_ITEMS, XATTR_INLINE_MAX, XATTR_NAME_MAX, XATTR_NAMES_MAX,
    XATTR_VALUE_MAX, Xattr, XattrValue, cut, piece_key, sectors, slot_keys,
};
use persimmon_format::zone_header::{FRAMES, LONG_XATTRS};
use persimmon_format::{Key, KeyKind};

use crate::acl::{self, Stored};
use crate::inode_attributes::InodeAttribute;
use crate::named::{Found, find_xattr, xattr_value};
use crate::protection::check_names;
use crate::{Caller, Error, Ino, Result, Vfs, XattrMode, is_snapshots};

/// Slots that are looked at for one that no other attribute has. They begin where a hash says: that one of an inode's attributes
/// has the first of them by chance happens once in 2^45 long values.
const SLOTS_TRIED: u64 = 64;

/// Most bytes of the names that are stored of an inode, each with the zero byte that ends it. Room is left for those
/// that are kept in the inode, so that all of them can be listed.
const STORED_NAMES_MAX: u32 = XATTR_NAMES_MAX - InodeAttribute::LISTED_LEN as u32;

/// Who an attribute is for, by the beginning of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    User,
    Trusted,
    Security,
    AccessControl,
}

impl Namespace {
    fn of(name: &[u8]) -> Result<Namespace> {
        let (prefix, namespace) = if name == acl::ACCESS || name == acl::DEFAULT {
            return Ok(Namespace::AccessControl);
        } else if name.starts_with(b"user.") {
            (b"user.".len(), Namespace::User)
        } else if name.starts_with(b"trusted.") {
            (b"trusted.".len(), Namespace::Trusted)
        } else if name.starts_with(b"security.") {
            (b"security.".len(), Namespace::Security)
        } else {
            return Err(Error::NotSupported);
        };
        if name.len() > XATTR_NAME_MAX {
            return Err(Error::NameOutOfRange);
        }
        if name.len() == prefix || name.contains(&0) {
            return Err(Error::Invalid("attribute name"));
        }
        Ok(namespace)
    }
}

impl Vfs {
    /// Value of an attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        Namespace::of(name)?;
        if is_snapshots(ino) {
            return Err(Error::NoAttribute);
        }
        self.view(|view| {
            let inode = view.inode(ino)?.ok_or(Error::Stale)?;
            if let Some(attribute) = InodeAttribute::named(name) {
                return attribute.value(&inode).ok_or(Error::NoAttribute);
            }
            if inode.flags & FLAG_XATTRS == 0 {
                return Err(Error::NoAttribute);
            }
            xattr_value(view, ino, name)?.ok_or(Error::NoAttribute)
        })
    }

    /// Sets an attribute. Setting `system.posix_acl_access` changes the mode with it; `caller`
    /// matters there alone (setgid of a file of another group).
    pub fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let namespace = Namespace::of(name)?;
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::ValueTooLong);
        }
        let value_max = self.xattr_value_max();
        let in_inode = match InodeAttribute::named(name) {
            Some(attribute) => Some((attribute, attribute.parse(ino, value)?)),
            None => None,
        };
        if let Some((InodeAttribute::Compression, _)) = in_inode
            && self.volume.identity().incompatible & FRAMES == 0
        {
            tracing::warn!(%ino, "the volume was made without compressed frames: no compression can be told");
            return Err(Error::NotSupported);
        }
        self.changeable(ino)?;
        let now = self.change_time(ino)?;
        self.change_admitted(Intent::Grow, |tx| {
            let mut inode = tx.inode(ino)?.ok_or(Error::Stale)?;
            if namespace == Namespace::User && !inode.is_file() && !inode.is_dir() {
                return Err(Error::NotPermitted);
            }
            check_names(&inode)?;
            let before = inode;
            inode.ctime = inode.ctime.next(now);
            if let Some((attribute, stored)) = in_inode {
                attribute.put(&mut inode, stored, mode)?;
            } else if namespace == Namespace::AccessControl {
                match acl::prepare((name, value), caller, &mut inode, value_max)? {
                    Stored::Kept(value) => put(tx, ino, &mut inode, (name, &value), mode)?,
                    Stored::Dropped => {
                        delete(tx, ino, &mut inode, name)?;
                    }
                }
            } else if value.len() > value_max {
                return Err(Error::NoSpace);
            } else {
                put(tx, ino, &mut inode, (name, value), mode)?;
            }
            if self.limits(caller) {
                self.admit_inode(tx, ino, (Some(&before), &inode), now)?;
            }
            tx.put_inode(ino, &inode);
            Ok(())
        })?;
        if let Some(node) = self.nodes.get(ino) {
            node.privileges.changed();
        }
        Ok(())
    }

    /// Longest value of an extended attribute on this volume, bytes.
    fn xattr_value_max(&self) -> usize {
        match self.volume.identity().incompatible & LONG_XATTRS {
            0 => XATTR_INLINE_MAX,
            _ => XATTR_VALUE_MAX,
        }
    }

    /// All names, each ended by a zero byte. `trusted.` only for the privileged. `E2BIG` where they are more than can be
    /// set, which an earlier version or a damaged volume may have left: each can still be removed by its name.
    pub fn listxattr(&self, caller: &Caller, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let mut names = Vec::new();
        let in_inode = InodeAttribute::ALL.into_iter();
        for attribute in in_inode.filter(|of| of.value(&inode).is_some()) {
            names.extend_from_slice(attribute.name());
            names.push(0);
        }
        if inode.flags & FLAG_XATTRS == 0 {
            return Ok(names);
        }
        let first = Key::new(ino, KeyKind::XATTR, 0);
        // The pieces of long values come behind all names.
        let end = Key::new(ino, KeyKind::XATTR, ITEM_END);
        let mut is_too_long = false;
        // One that is damaged hides no other.
        let name = |key: Key, bytes: &[u8]| match Xattr::decode(bytes) {
            Ok(xattr) => {
                let shown = caller.is_privileged() || !xattr.name.starts_with(b"trusted.");
                let shown = shown && InodeAttribute::named(xattr.name).is_none();
                shown.then(|| xattr.name.to_vec())
            }
            Err(error) => {
                self.skipped.tell(&key, &error);
                None
            }
        };
        // Not under one hold of the metadata lock: what is set or removed meanwhile may be listed or not.
        self.watch(self.volume.walk_while(first..end, name, |name| {
            if names.len() + name.len() >= XATTR_NAMES_MAX as usize {
                is_too_long = true;
                return ControlFlow::Break(());
            }
            names.extend_from_slice(&name);
            names.push(0);
            ControlFlow::Continue(())
        }))?;
        if is_too_long {
            Err(Error::ListTooLong)
        } else {
            Ok(names)
        }
    }

    /// Removes an attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let namespace = Namespace::of(name)?;
        self.changeable(ino)?;
        let now = self.change_time(ino)?;
        self.change(Intent::Shrink, |tx| {
            let mut inode = tx.inode(ino)?.ok_or(Error::Stale)?;
            check_names(&inode)?;
            let removed = match InodeAttribute::named(name) {
                Some(attribute) => attribute.take(&mut inode),
                None => delete(tx, ino, &mut inode, name)?,
            };
            // An access list that says no more than the mode is there without being stored.
            if !removed && namespace != Namespace::AccessControl {
                return Err(Error::NoAttribute);
            }
            if removed {
                inode.ctime = inode.ctime.next(now);
                tx.put_inode(ino, &inode);
            }
            Ok(())
        })
    }
}

fn put(
    tx: &mut Transaction<'_>,
    ino: Ino,
    inode: &mut Inode,
    (name, value): (&[u8], &[u8]),
    mode: XattrMode,
) -> Result<()> {
    let (item, before, sectors_before) = match (find_xattr(tx, ino, name)?, mode) {
        (Found::Present { .. }, XattrMode::Create) => return Err(Error::Exists),
        (Found::Absent { .. }, XattrMode::Replace) => return Err(Error::NoAttribute),
        (Found::Present { item, value }, _) => (item, value.pieces(), value.sectors(name)),
        (Found::Absent { free }, _) => {
            let names = inode.xattr_names.saturating_add(Xattr::listed_len(name));
            if names > STORED_NAMES_MAX {
                return Err(Error::NoSpace);
            }
            inode.xattr_names = names;
            (free.ok_or(Error::NoSpace)?, None, 0)
        }
    };
    inode.flags |= FLAG_XATTRS;
    count(tx, inode, sectors_before, sectors(name, value.len()));
    store(tx, (ino, item), (name, value), before)
}

/// An attribute that took sectors of its inode takes others from now on.
pub(crate) fn count(tx: &Transaction<'_>, inode: &mut Inode, before: u64, after: u64) {
    if tx.counts_xattrs() {
        // The count comes from the device, and may be less than there are.
        inode.sectors = inode.sectors.saturating_sub(before).saturating_add(after);
    }
}

/// Puts an attribute at an item, and the pieces of its value in the place of those that it had `before`. It is one transaction: a
/// power cut finds the value as it was or as it is.
pub(crate) fn store(
    tx: &mut Transaction<'_>,
    (ino, item): (Ino, u64),
    (name, value): (&[u8], &[u8]),
    before: Option<Pieces>,
) -> Result<()> {
    let slot_before = before.map(|pieces| pieces.slot());
    let stored = if value.len() <= XATTR_INLINE_MAX {
        if let Some(slot) = slot_before {
            replace_pieces(tx, (ino, slot), &[])?;
        }
        XattrValue::Inline(value)
    } else {
        let slot = match slot_before {
            Some(slot) => slot,
            None => free_slot(tx, ino, item)?,
        };
        replace_pieces(tx, (ino, slot), value)?;
        XattrValue::Pieces(Pieces::new(slot, value)?)
    };
    let xattr = Xattr {
        name,
        value: stored,
    };
    tx.put(Key::new(ino, KeyKind::XATTR, item), xattr.encode());
    Ok(())
}

/// A slot in which nothing is.
fn free_slot(tx: &Transaction<'_>, ino: Ino, item: u64) -> Result<u64> {
    for tried in 0..SLOTS_TRIED {
        let slot = item.wrapping_add(tried) % SLOT_END;
        // A transaction sees what it has put itself by the key alone.
        let mut is_free = tx.get(&piece_key(ino, slot, 0))?.is_none();
        tx.scan(slot_keys(ino, slot), |_, _| {
            is_free = false;
            Ok(ControlFlow::Break(()))
        })?;
        if is_free {
            return Ok(slot);
        }
    }
    Err(Error::NoSpace)
}

/// Has the pieces of a value in a slot, and nothing else. What is there already is not put again.
fn replace_pieces(tx: &mut Transaction<'_>, (ino, slot): (Ino, u64), value: &[u8]) -> Result<()> {
    let mut pieces: Vec<Option<Vec<u8>>> = cut(value).map(Some).collect();
    let mut surplus = Vec::new();
    tx.scan(slot_keys(ino, slot), |key, bytes| {
        match pieces.get_mut((key.item % SLOT_ITEMS) as usize) {
            Some(piece) if piece.as_deref() == Some(bytes) => *piece = None,
            Some(_) => {}
            None => surplus.push(key),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (number, piece) in (0..).zip(pieces) {
        if let Some(piece) = piece {
            tx.put(piece_key(ino, slot, number), piece);
        }
    }
    surplus.into_iter().for_each(|key| tx.delete(key));
    Ok(())
}

/// Tells whether it was there.
pub(crate) fn delete(
    tx: &mut Transaction<'_>,
    ino: Ino,
    inode: &mut Inode,
    name: &[u8],
) -> Result<bool> {
    if inode.flags & FLAG_XATTRS == 0 {
        return Ok(false);
    }
    match find_xattr(tx, ino, name)?.present() {
        Some((item, stored)) => {
            tx.delete(Key::new(ino, KeyKind::XATTR, item));
            if let Some(pieces) = stored.pieces() {
                replace_pieces(tx, (ino, pieces.slot()), &[])?;
            }
            count(tx, inode, stored.sectors(name), 0);
            // The count comes from the device, and may be less than there are.
            inode.xattr_names = inode.xattr_names.saturating_sub(Xattr::listed_len(name));
            Ok(true)
        }
        None => Ok(false),
    }
}
