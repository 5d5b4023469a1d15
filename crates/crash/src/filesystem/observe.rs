//! Reads a mounted volume back, every way there is: names by listing and by lookup, data by
//! reading what `SEEK_DATA` finds.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Loss, OwnerQuota, Quotas};
use persimmon_format::Ino;
use persimmon_format::quota::{self, Usage};
use persimmon_vfs::{Attr, Caller, Error, FileKind, Handle, Listing, ROOT, SeekTo};

use super::mounted::{Mounted, account_of};
use super::nanoseconds;
use crate::model::{Counting, Kind, Limits, Observed, ObservedNode, Quota, owners};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Bytes of one read.
const READ_BYTES: usize = 128 << 10;

impl Mounted {
    pub(super) fn observe_tree(&self) -> Result<Observed, String> {
        let mut found = self.observe_below(self.root)?;
        if self.root == ROOT {
            let quotas = Quotas::of(self.vfs.volume()).list();
            let quotas = quotas.map_err(|error| error.to_string())?;
            found.quota = self.quota();
            if self.has_limits && found.quota.counting == Counting::All {
                self.check_usage(&found, &quotas)?;
            }
            let accounts = quotas.iter().map(|known| (known.owner, account_of(known)));
            let limited = accounts.filter(|(_, account)| account.limits != Limits::default());
            found.accounts = limited.collect();
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

    /// What is counted, and grace times.
    pub(super) fn quota(&self) -> Quota {
        let quotas = Quotas::of(self.vfs.volume());
        let state = quotas.state();
        Quota {
            has_projects: quotas.has_projects(),
            counting: match state.counting {
                quota::Counting::Off => Counting::Off,
                quota::Counting::Below(_) => Counting::Begun,
                quota::Counting::All => Counting::All,
            },
            graces: state.graces,
        }
    }

    /// What is counted for each owner is what their files take, where nothing else counts: what is staged, or has no name any more.
    fn check_usage(&self, found: &Observed, quotas: &[OwnerQuota]) -> Result<(), String> {
        let is_staged = quotas.iter().any(|known| known.staged_bytes > 0);
        if is_staged || !self.slots.is_empty() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        let mut taken: BTreeMap<_, Usage> = BTreeMap::new();
        for node in found.nodes.values().filter(|node| seen.insert(node.ino)) {
            let attr = self.vfs.getattr(Ino(node.ino));
            let attr = attr.map_err(|error| error.to_string())?;
            for owner in owners(node.uid, node.gid, node.project) {
                let usage = taken.entry(owner).or_default();
                usage.sectors += attr.blocks;
                usage.inodes += 1;
            }
        }
        for known in quotas {
            let should = taken.remove(&known.owner).unwrap_or_default();
            if known.usage != should {
                let (owner, is) = (known.owner, known.usage);
                return Err(format!("{owner:?} takes {should:?}, counted are {is:?}"));
            }
        }
        match taken.first_key_value() {
            None => Ok(()),
            Some((owner, taken)) => Err(format!("{owner:?} takes {taken:?}, nothing is counted")),
        }
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

    /// Names in a directory and in those below it.
    pub(super) fn names_below(&self, top: Ino) -> Result<u64, Error> {
        let mut names = 0;
        let mut directories = vec![top];
        while let Some(directory) = directories.pop() {
            if self.vfs.getattr(directory)?.kind() != FileKind::Directory {
                continue;
            }
            for (_, ino, kind) in self.list(directory)? {
                names += 1;
                directories.extend(Some(ino).filter(|_| kind == FileKind::Directory));
            }
        }
        Ok(names)
    }

    pub(super) fn observe_node(&self, path: &str, ino: Ino) -> Result<ObservedNode, String> {
        self.node(ino).map_err(|error| format!("{path}: {error}"))
    }

    pub(super) fn node(&self, ino: Ino) -> Result<ObservedNode, Error> {
        self.node_through(ino, Handle::NONE)
    }

    /// What is open in a slot, read through that.
    pub(super) fn node_in(&self, slot: u8) -> Result<ObservedNode, Error> {
        let (ino, handle) = *self.slots.get(&slot).ok_or(Error::BadHandle)?;
        self.vfs.read(ino, handle, 0, &mut [0])?;
        self.node_through(ino, handle)
    }

    fn node_through(&self, ino: Ino, handle: Handle) -> Result<ObservedNode, Error> {
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
                blocks: self.blocks(&attr, handle, &mut lost)?,
            },
            _ => Kind::Other,
        };
        Ok(ObservedNode {
            ino: ino.0,
            kind,
            mode: attr.mode & 0o7777,
            links: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            project: self.vfs.project(ino)?,
            mtime: nanoseconds(attr.mtime),
            xattrs: self.xattrs(ino)?,
            lost,
        })
    }

    fn blocks(
        &self,
        attr: &Attr,
        handle: Handle,
        lost: &mut BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
        let mut blocks = BTreeMap::new();
        let mut at = 0;
        while at < attr.size {
            let data = match self.vfs.seek(attr.ino, handle, at, SeekTo::Data) {
                Err(Error::NoSuchOffset) => break,
                found => found?,
            };
            let hole = self.vfs.seek(attr.ino, handle, data, SeekTo::Hole)?;
            at = data / BLOCK * BLOCK;
            while at < hole {
                at += match self.blocks_at((attr.ino, handle), at, READ_BYTES, &mut blocks) {
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
        (ino, handle): (Ino, Handle),
        at: u64,
        bytes: usize,
        blocks: &mut BTreeMap<u64, Vec<u8>>,
    ) -> Result<u64, Error> {
        let mut buffer = vec![0; bytes];
        let length = self.vfs.read(ino, handle, at, &mut buffer)?;
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
            match self.blocks_at((ino, Handle::NONE), at, BLOCK_SIZE, blocks) {
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
