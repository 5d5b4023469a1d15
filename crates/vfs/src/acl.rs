//! POSIX access control lists, as the kernel passes them: a version and entries of tag,
//! permissions and id. The rules are those of POSIX 1003.1e, draft 17.

use persimmon_engine::{Transaction, View};
use persimmon_format::Ino;
use persimmon_format::inode::{FLAG_XATTRS, Inode};
use persimmon_format::name::first_item;
use persimmon_format::xattr::{Xattr, sectors};

use crate::named::{Found, find_xattr, xattr_value};
use crate::{Caller, Error, Result, Vfs, xattrs};

/// The list that governs access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that new entries of a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";
/// File capabilities, which any change of content or owner voids.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const VERSION: u32 = 2;
const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 8;
/// Longest list, bytes, which has 511 entries. Linux asks a FUSE filesystem for a page of it at most: with a longer list nobody but
/// root could use the file on a mount.
const LIST_LEN_MAX: usize = 4096;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const UNDEFINED_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// An access control list that is whole and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// The list that says what `mode` says.
    pub(crate) fn from_mode(mode: u32) -> Acl {
        let entry = |tag, shift: u32| AclEntry {
            tag,
            permissions: (mode >> shift & 7) as u16,
            id: UNDEFINED_ID,
        };
        Acl {
            entries: vec![entry(USER_OBJ, 6), entry(GROUP_OBJ, 3), entry(OTHER, 0)],
        }
    }

    /// From the value of the attribute; `None` is a list without entries. `EINVAL` where it is
    /// not whole or not in order.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Acl>> {
        let bad = || Error::Invalid("access control list");
        let (version, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or_else(bad)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::NotSupported);
        }
        let (chunks, tail) = rest.as_chunks::<ENTRY_LEN>();
        if !tail.is_empty() {
            return Err(bad());
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let entries = chunks
            .iter()
            .map(|[a, b, c, d, e, f, g, h]| AclEntry {
                tag: u16::from_le_bytes([*a, *b]),
                permissions: u16::from_le_bytes([*c, *d]),
                id: u32::from_le_bytes([*e, *f, *g, *h]),
            })
            .collect();
        let list = Acl { entries };
        if list.is_valid() {
            Ok(Some(list))
        } else {
            Err(bad())
        }
    }

    /// The value of the attribute.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + ENTRY_LEN * self.entries.len());
        out.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.permissions.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// Tags ascend; owner, group and other are there once; named entries have a mask and are
    /// named once.
    fn is_valid(&self) -> bool {
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        let named = |tag: u16| tag == USER || tag == GROUP;
        let ordered = self.entries.windows(2).all(|pair| match pair {
            [a, b] if a.tag == b.tag => named(a.tag) && a.id != b.id,
            [a, b] => a.tag < b.tag,
            _ => true,
        });
        let sound = |e: &AclEntry| {
            known.contains(&e.tag) && e.permissions <= 7 && (!named(e.tag) || e.id != UNDEFINED_ID)
        };
        let mut ids: Vec<_> = self.entries.iter().filter(|e| named(e.tag)).collect();
        ids.sort_by_key(|e| (e.tag, e.id));
        let twice = ids
            .windows(2)
            .any(|p| matches!(p, [a, b] if (a.tag, a.id) == (b.tag, b.id)));
        let has = |tag| self.entries.iter().any(|e| e.tag == tag);
        let named_without_mask = !has(MASK) && (has(USER) || has(GROUP));
        ordered
            && self.entries.iter().all(sound)
            && !twice
            && has(USER_OBJ)
            && has(GROUP_OBJ)
            && has(OTHER)
            && !named_without_mask
    }

    /// Says more than a mode can.
    fn is_extended(&self) -> bool {
        self.entries.len() > 3
    }

    /// The nine permission bits it amounts to.
    fn mode(&self) -> u32 {
        let of = |tag| {
            self.entries
                .iter()
                .find(|e| e.tag == tag)
                .map(|e| u32::from(e.permissions))
        };
        let group = of(MASK).or(of(GROUP_OBJ)).unwrap_or(0);
        of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    /// Which three mode bits an entry stands beside: those of the group are the mask's, if there
    /// is one.
    fn mode_shift(&self, tag: u16) -> Option<u32> {
        let masked = self.entries.iter().any(|e| e.tag == MASK);
        match tag {
            USER_OBJ => Some(6),
            MASK => Some(3),
            GROUP_OBJ if !masked => Some(3),
            OTHER => Some(0),
            _ => None,
        }
    }

    /// Takes over the permissions of `mode` (`chmod`).
    fn set_mode(&mut self, mode: u32) {
        let shifts: Vec<_> = self
            .entries
            .iter()
            .map(|e| self.mode_shift(e.tag))
            .collect();
        for (entry, shift) in self.entries.iter_mut().zip(shifts) {
            if let Some(shift) = shift {
                entry.permissions = (mode >> shift & 7) as u16;
            }
        }
    }

    /// What a new file gets of a default list, made with `mode`: the list cut down to the mode,
    /// and the mode cut down to the list.
    fn inherit(&self, mode: u32) -> (Acl, u32) {
        let mut list = self.clone();
        let cut = mode & (self.mode() | !0o777);
        list.set_mode(cut);
        (list, cut)
    }

    /// Whether it lets `caller` do all of `mask`, on a file of `uid` and `gid`.
    pub(crate) fn permits(&self, caller: &Caller, uid: u32, gid: u32, mask: u32) -> bool {
        let want = (mask & 7) as u16;
        let group_mask = self.entries.iter().find(|e| e.tag == MASK);
        let limit = group_mask.map_or(7, |e| e.permissions);
        let mut in_group = false;
        for entry in &self.entries {
            match entry.tag {
                USER_OBJ if caller.uid == uid => return entry.permissions & want == want,
                USER if caller.uid == entry.id => {
                    return entry.permissions & limit & want == want;
                }
                GROUP_OBJ | GROUP => {
                    let id = if entry.tag == GROUP { entry.id } else { gid };
                    let member =
                        caller.gid == id || caller.groups.as_ref().is_some_and(|g| g.contains(&id));
                    in_group |= member;
                    if member && entry.permissions & limit & want == want {
                        return true;
                    }
                }
                OTHER => return !in_group && entry.permissions & want == want,
                _ => {}
            }
        }
        false
    }
}

/// What a new inode inherits.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl Inherited {
    /// Mode and lists of something made with `mode` (unmasked) in `dir`.
    pub(crate) fn new(
        view: &View<'_>,
        parent: Ino,
        dir: &Inode,
        mode: u32,
        umask: u32,
    ) -> Result<(u32, Inherited)> {
        let none = Inherited::default();
        if mode & libc::S_IFMT == libc::S_IFLNK {
            return Ok((mode, none));
        }
        let default = match load(view, parent, dir, DEFAULT)? {
            Some(list) => list,
            None => return Ok((mode & !(umask & 0o777), none)),
        };
        let (access, mode) = default.inherit(mode);
        let is_dir = mode & libc::S_IFMT == libc::S_IFDIR;
        let inherited = Inherited {
            access: access.is_extended().then(|| access.encode()),
            default: is_dir.then(|| default.encode()),
        };
        Ok((mode, inherited))
    }

    /// Gives a new inode its lists.
    pub(crate) fn put(self, tx: &mut Transaction<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
        let mut taken = None;
        for (name, value) in [(ACCESS, self.access), (DEFAULT, self.default)] {
            let Some(value) = value else { continue };
            let mut item = first_item(tx.key(), name);
            if taken == Some(item) {
                item += 1;
            }
            taken = Some(item);
            inode.flags |= FLAG_XATTRS;
            inode.xattr_names += Xattr::listed_len(name);
            xattrs::count(tx, inode, 0, sectors(name, value.len()));
            xattrs::store(tx, (ino, item), (name, &value), None)?;
        }
        Ok(())
    }
}

/// The list under `name`, if there is one.
fn load(view: &View<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Acl>> {
    if inode.flags & FLAG_XATTRS == 0 {
        return Ok(None);
    }
    match xattr_value(view, ino, name)? {
        Some(value) => Acl::decode(&value),
        None => Ok(None),
    }
}

/// After `chmod`: the access list says the same as the new mode.
pub(crate) fn follow_mode(tx: &mut Transaction<'_>, ino: Ino, inode: &Inode) -> Result<()> {
    if inode.flags & FLAG_XATTRS == 0 {
        return Ok(());
    }
    let Some((item, stored)) = find_xattr(tx, ino, ACCESS)?.present() else {
        return Ok(());
    };
    let before = stored.pieces();
    if let Some(mut list) = Acl::decode(&stored.read(tx, ino)?)? {
        // It stays as long as it is.
        list.set_mode(inode.mode);
        xattrs::store(tx, (ino, item), (ACCESS, &list.encode()), before)?;
    }
    Ok(())
}

/// File capabilities do not outlive a change of content or owner.
pub(crate) fn remove_capability(
    tx: &mut Transaction<'_>,
    ino: Ino,
    inode: &mut Inode,
) -> Result<()> {
    xattrs::delete(tx, ino, inode, CAPABILITY).map(drop)
}

/// What storing a list comes to.
pub(crate) enum Stored {
    /// The list is kept as an attribute.
    Kept(Vec<u8>),
    /// It says nothing beyond the mode, or nothing at all: no attribute.
    Dropped,
}

/// Prepares setting the list `name` on an inode of a volume that takes values of `value_max` bytes: the mode follows an access list.
pub(crate) fn prepare(
    (name, value): (&[u8], &[u8]),
    caller: &Caller,
    inode: &mut Inode,
    value_max: usize,
) -> Result<Stored> {
    if inode.is_symlink() {
        return Err(Error::NotSupported);
    }
    let list = Acl::decode(value)?;
    if value.len() > LIST_LEN_MAX.min(value_max) {
        return Err(Error::ValueTooLong);
    }
    if name == DEFAULT {
        return match (list, inode.is_dir()) {
            (Some(list), true) => Ok(Stored::Kept(list.encode())),
            (None, _) => Ok(Stored::Dropped),
            (Some(_), false) => Err(Error::AccessDenied),
        };
    }
    let Some(list) = list else {
        return Ok(Stored::Dropped);
    };
    inode.mode = inode.mode & !0o777 | list.mode();
    let outsider = !caller.is_privileged() && !caller.in_group(inode.gid);
    if outsider || caller.loses_setgid {
        inode.mode &= !libc::S_ISGID;
    }
    if list.is_extended() {
        Ok(Stored::Kept(list.encode()))
    } else {
        Ok(Stored::Dropped)
    }
}

impl Vfs {
    /// The list `name` of an inode.
    pub(crate) fn get_acl(&self, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Acl>> {
        if inode.flags & FLAG_XATTRS == 0 {
            return Ok(None);
        }
        self.view(|view| load(view, ino, inode, name))
    }

    /// Has file capabilities.
    pub(crate) fn has_capability(&self, ino: Ino, inode: &Inode) -> Result<bool> {
        if inode.flags & FLAG_XATTRS == 0 {
            return Ok(false);
        }
        self.view(|view| {
            Ok(matches!(
                find_xattr(view, ino, CAPABILITY)?,
                Found::Present { .. }
            ))
        })
    }
}
