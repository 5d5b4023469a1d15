//! Which inode a number of the kernel's means. They are the same but for the root of the mount, which has number 1 there whatever subvolume
//! it is the root of. The main subvolume's, whose number that is, is nowhere in the mount of another one.

use persimmon_vfs::{Attr, Entry, Ino, ROOT, Vfs};

/// The generation that the kernel gives the root.
const ROOT_GENERATION: u64 = 0;

/// The inode that has this number in the mount.
#[must_use]
pub fn inode(vfs: &Vfs, number: u64) -> Ino {
    match Ino(number) {
        ROOT => vfs.root(),
        ino => ino,
    }
}

/// The number of an inode in the mount.
#[must_use]
pub fn number(vfs: &Vfs, ino: Ino) -> u64 {
    match ino == vfs.root() {
        true => ROOT.0,
        false => ino.0,
    }
}

/// Attributes with the number in the mount.
pub(crate) fn shown(vfs: &Vfs, attr: Attr) -> Attr {
    match attr.ino == vfs.root() {
        true => Attr {
            ino: ROOT,
            generation: ROOT_GENERATION,
            ..attr
        },
        false => attr,
    }
}

/// An entry with the number in the mount: `.` and `..` may lead to the root.
pub(crate) fn shown_entry<'a>(vfs: &Vfs, entry: &Entry<'a>) -> Entry<'a> {
    Entry {
        ino: Ino(number(vfs, entry.ino)),
        ..*entry
    }
}
