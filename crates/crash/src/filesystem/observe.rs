//! Reads a mounted volume back, every way there is: names by listing and by lookup, data by
//! reading what `SEEK_DATA` finds.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Loss, Quotas};
use persimmon_format::Ino;
use persimmon_vfs::{Attr, Caller, Error, FileKind, Handle, Listing, OwnerKind, ROOT, SeekTo};

use super::mounted::Mounted;
use super::nanoseconds;
use crate::model::{Kind, Limits, Observed, ObservedNode};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Bytes of one read.
const READ_BYTES: usize = 128 << 10;

impl Mounted {
    pub(super) fn observe_tree(&self) -> Result<Observed, String> {
        let mut found = self.observe_below(self.root)?;
        if self.root == ROOT {
            found.limits = self.limits().map_err(|error| error.to_string())?;
            for snapshot in self.vfs.volume().snapshots().list() {
                let name = String::from_utf8_lossy(&snapshot.name).into_owned();
                let inside = self.observe_below(ROOT.of(snapshot.id));
                let mut inside = inside.map_err(|error| format!("in snapshot {name}: {error}"))?;
                inside.is_writable = !snapshot.is_read_only;
                found.snapshots.insert(name, inside);
            }
        }
        Ok(found)
    }

    fn limits(&self) -> Result<BTreeMap<u32, Limits>, Error> {
        let limited = Quotas::of(self.vfs.volume()).list()?.into_iter();
        let users = limited.filter(|known| known.owner.kind == OwnerKind::User);
        let limits = users.map(|known| {
            let (bytes, inodes) = (known.bytes.hard, known.inodes.hard);
            (known.owner.id, Limits { bytes, inodes })
        });
        Ok(limits.filter(|(_, l)| *l != Limits::default()).collect())
    }

    fn observe_below(&self, root: Ino) -> Result<Observed, String> {
        let mut nodes = BTreeMap::from([("/".to_owned(), self.observe_node("/", root)?)]);
        let mut directories = vec![(String::new(), root)];
        while let Some((prefix, directory)) = directories.pop() {
            for (name, ino, kind) in self
                .list(directory)
                .map_err(|e| format!("{prefix}/: {e}"))?
            {
                let path = format!("{prefix}/{name}");
                let attr = self.vfs.lookup(directory, name.as_bytes());
                let attr = attr.map_err(|error| format!("looking up {path}: {error}"))?;
                if attr.ino != ino || attr.kind() != kind {
                    return Err(format!(
                        "{path} is listed as {kind:?} {ino}, found as {attr:?}"
                    ));
                }
                if kind == FileKind::Directory {
                    directories.push((path.clone(), ino));
                }
                let node = self.observe_node(&path, ino)?;
                nodes.insert(path, node);
            }
        }
        Ok(Observed {
            nodes,
            ..Observed::default()
        })
    }

    fn list(&self, directory: Ino) -> Result<Vec<(String, Ino, FileKind)>, Error> {
        let handle = self.vfs.opendir(directory)?;
        let mut entries = Vec::new();
        let listed = self.vfs.readdir(directory, handle, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let name = String::from_utf8_lossy(entry.name).into_owned();
                entries.push((name, entry.ino, entry.kind));
            }
            Listing::More
        });
        self.vfs.releasedir(directory, handle)?;
        listed.map(|()| entries)
    }

    pub(super) fn observe_node(&self, path: &str, ino: Ino) -> Result<ObservedNode, String> {
        self.node(ino).map_err(|error| format!("{path}: {error}"))
    }

    pub(super) fn node(&self, ino: Ino) -> Result<ObservedNode, Error> {
        let attr = self.vfs.getattr(ino)?;
        let mut lost = BTreeSet::new();
        let kind = match attr.kind() {
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => {
                let target = self.vfs.readlink(ino)?;
                Kind::Symlink(String::from_utf8_lossy(&target).into_owned())
            }
            FileKind::Fifo => Kind::Fifo,
            FileKind::Regular => Kind::File {
                size: attr.size,
                blocks: self.blocks(&attr, &mut lost)?,
            },
            _ => Kind::Other,
        };
        Ok(ObservedNode {
            ino: ino.0,
            kind,
            mode: attr.mode & 0o7777,
            links: attr.nlink,
            uid: attr.uid,
            mtime: nanoseconds(attr.mtime),
            xattrs: self.xattrs(ino)?,
            lost,
        })
    }

    fn blocks(
        &self,
        attr: &Attr,
        lost: &mut BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
        let mut blocks = BTreeMap::new();
        let mut at = 0;
        while at < attr.size {
            let data = match self.vfs.seek(attr.ino, Handle::NONE, at, SeekTo::Data) {
                Err(Error::NoSuchOffset) => break,
                found => found?,
            };
            let hole = self.vfs.seek(attr.ino, Handle::NONE, data, SeekTo::Hole)?;
            at = data / BLOCK * BLOCK;
            while at < hole {
                at += match self.blocks_at(attr.ino, at, READ_BYTES, &mut blocks) {
                    Err(error) if is_lost(&error) => {
                        self.blocks_one_by_one(attr.ino, at, &mut blocks, lost)?
                    }
                    read => read?,
                };
            }
        }
        Ok(blocks)
    }

    /// Reads some blocks at `at`, and tells how many bytes they stand for.
    fn blocks_at(
        &self,
        ino: Ino,
        at: u64,
        bytes: usize,
        blocks: &mut BTreeMap<u64, Vec<u8>>,
    ) -> Result<u64, Error> {
        let mut buffer = vec![0; bytes];
        let length = self.vfs.read(ino, Handle::NONE, at, &mut buffer)?;
        buffer.truncate(length);
        for (block, bytes) in (at / BLOCK..).zip(buffer.chunks(BLOCK_SIZE)) {
            if bytes.iter().any(|byte| *byte != 0) {
                blocks.insert(block, bytes.to_vec());
            }
        }
        Ok(bytes as u64)
    }

    /// Reads blocks where some are lost with the zone they were in. The volume has to list these.
    fn blocks_one_by_one(
        &self,
        ino: Ino,
        at: u64,
        blocks: &mut BTreeMap<u64, Vec<u8>>,
        lost: &mut BTreeSet<u64>,
    ) -> Result<u64, Error> {
        let losses = self.vfs.volume().losses(usize::MAX)?;
        for at in (at..at + READ_BYTES as u64).step_by(BLOCK_SIZE) {
            match self.blocks_at(ino, at, BLOCK_SIZE, blocks) {
                Err(error) if is_lost(&error) => {
                    let has = |loss: &Loss| {
                        loss.ino == ino && (loss.offset..loss.offset + loss.bytes).contains(&at)
                    };
                    if !losses.ranges.iter().any(has) {
                        return Err(error);
                    }
                    lost.insert(at / BLOCK);
                }
                read => drop(read?),
            }
        }
        Ok(READ_BYTES as u64)
    }

    fn xattrs(&self, ino: Ino) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let names = self.vfs.listxattr(&Caller::root(), ino)?;
        names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| {
                let value = self.vfs.getxattr(ino, name)?;
                Ok((String::from_utf8_lossy(name).into_owned(), value))
            })
            .collect()
    }
}

/// Whether data is lost with the zone it was in.
fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Storage(error) if matches!(**error, persimmon_engine::Error::DataLost { .. }))
}
