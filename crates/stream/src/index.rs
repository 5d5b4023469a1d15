//! Where each inode of the snapshot is in the directory that it was received into: streams name inodes by number. Kept in files of 256 numbers
//! each, so that a stream with few changes looks at few of them. All that changed goes into one journal first: at any moment all of it or
//! nothing has.
//!
//! File `index-N`: for the inodes from 256 N on (N in hexadecimal), each inode (u64), kind (u8), whether it could not be made here (u8), number of
//! names (u32), each of them directory (u64), length (u8), name; CRC-32C of all before it (u32). File `journal`: each file name behind its
//! length (u8), content behind its length (u32); CRC-32C.
//!
//! In memory are at most [`CACHED_MAX`] files as they were saved, some 100 MiB where all numbers are in use and names are short; those that
//! changed, of which a stream that is marked as it should be changes [`DIRTY_MAX`](crate::receive) and a few, and no stream more than
//! [`CHANGED_MAX`]; and of one inode at most [`NAMES_MAX`] names.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use persimmon_format::checksum::crc_of_more;

use crate::codec::{Put, Reader};
use crate::error::{DecodeError, ReceiveError};
use crate::state::verified;
use crate::wire::Kind;

const SHARD_BITS: u32 = 8;
/// Shards in memory before those that did not change are let go.
const CACHED_MAX: usize = 4096;
/// Shards that change between two marks.
const CHANGED_MAX: usize = 1 << 14;
/// Names of one inode.
const NAMES_MAX: usize = 1 << 20;
/// Bytes of a file of the receiver's own at most.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 30;

/// What is known of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) kind: Kind,
    /// The system refused to make it.
    pub(crate) is_absent: bool,
    /// Directories that it is in, and its names there. None: it is put aside.
    pub(crate) names: BTreeSet<(u64, Vec<u8>)>,
}

impl Known {
    /// Without most of its names, of which there may be many.
    pub(crate) fn brief(&self) -> Brief {
        Brief {
            kind: self.kind,
            is_absent: self.is_absent,
            name: self.names.first().cloned(),
            names: self.names.len(),
        }
    }
}

/// What is known of an inode, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) kind: Kind,
    /// The system refused to make it.
    pub(crate) is_absent: bool,
    /// One of its names, and the directory that has it; none where it is put aside.
    pub(crate) name: Option<(u64, Vec<u8>)>,
    /// How many there are.
    pub(crate) names: usize,
}

#[derive(Default)]
struct Shard {
    known: BTreeMap<u64, Known>,
    is_dirty: bool,
}

/// Reads one of the files, if it is there.
pub(crate) type Load<'l> = &'l mut dyn FnMut(&str) -> Result<Option<Vec<u8>>, ReceiveError>;

/// All of them, as far as they were looked at.
#[derive(Default)]
pub(crate) struct Index {
    shards: HashMap<u64, Shard>,
    dirty: usize,
}

fn file(number: u64) -> String {
    format!("index-{number:x}")
}

impl Index {
    fn shard(&mut self, ino: u64, load: Load<'_>) -> Result<&mut Shard, ReceiveError> {
        let number = ino >> SHARD_BITS;
        if self.shards.len() >= CACHED_MAX && !self.shards.contains_key(&number) {
            self.shards.retain(|_, shard| shard.is_dirty);
        }
        Ok(match self.shards.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(match load(&file(number))? {
                None => Shard::default(),
                Some(bytes) => {
                    let body = verified(&bytes, "index")?;
                    decode(body).map_err(|_| ReceiveError::State("index"))?
                }
            }),
        })
    }

    pub(crate) fn get(&mut self, ino: u64, load: Load<'_>) -> Result<Option<&Known>, ReceiveError> {
        Ok(self.shard(ino, load)?.known.get(&ino))
    }

    /// Changes what is known of an inode. `None`: nothing is.
    pub(crate) fn change(
        &mut self,
        ino: u64,
        load: Load<'_>,
        change: impl FnOnce(Option<Known>) -> Option<Known>,
    ) -> Result<(), ReceiveError> {
        let shard = self.shard(ino, load)?;
        let was_dirty = std::mem::replace(&mut shard.is_dirty, true);
        let known = change(shard.known.remove(&ino));
        let has_too_many = |known: &Known| known.names.len() > NAMES_MAX;
        let is_too_much = known.as_ref().is_some_and(has_too_many);
        shard.known.extend(known.map(|known| (ino, known)));
        self.dirty += usize::from(!was_dirty);
        if is_too_much || self.dirty > CHANGED_MAX {
            return Err(ReceiveError::TooMuch);
        }
        Ok(())
    }

    /// Files that changed since they were saved.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }

    /// What has to be saved: names of files and their content.
    pub(crate) fn changed(&self) -> Vec<(String, Vec<u8>)> {
        let dirty = self.shards.iter().filter(|(_, shard)| shard.is_dirty);
        let mut files: Vec<(String, Vec<u8>)> = dirty
            .map(|(number, shard)| (file(*number), encode(shard)))
            .collect();
        files.sort();
        files
    }

    /// All of that was saved.
    pub(crate) fn saved(&mut self) {
        self.shards
            .values_mut()
            .for_each(|shard| shard.is_dirty = false);
        self.dirty = 0;
    }
}

fn encode(shard: &Shard) -> Vec<u8> {
    let mut out = Vec::new();
    for (ino, known) in &shard.known {
        out.put_u64(*ino);
        out.put_u8(known.kind.number());
        out.put_flag(known.is_absent);
        out.put_u32(known.names.len() as u32);
        for (dir, name) in &known.names {
            out.put_u64(*dir);
            out.put_short(name);
        }
    }
    out.put_u32(crc_of_more(0, &out));
    out
}

fn decode(body: &[u8]) -> Result<Shard, DecodeError> {
    let mut r = Reader::new(body, "the index");
    let mut known = BTreeMap::new();
    while !r.is_empty() {
        let (ino, kind, is_absent, count) = (r.u64()?, Kind::read(&mut r)?, r.flag()?, r.u32()?);
        let mut names = BTreeSet::new();
        for _ in 0..count {
            names.insert((r.u64()?, r.short()?.to_vec()));
        }
        let one = Known {
            kind,
            is_absent,
            names,
        };
        known.insert(ino, one);
    }
    Ok(Shard {
        known,
        is_dirty: false,
    })
}

/// A journal of files.
pub(crate) fn encode_journal(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in files {
        out.put_short(name.as_bytes());
        out.put_long(content);
    }
    out.put_u32(crc_of_more(0, &out));
    out
}

/// Names of files, and their content.
type Files = Vec<(Vec<u8>, Vec<u8>)>;

/// The files of a journal.
pub(crate) fn decode_journal(bytes: &[u8]) -> Result<Files, ReceiveError> {
    let body = verified(bytes, "journal")?;
    let mut r = Reader::new(body, "the journal");
    let mut files = Vec::new();
    let mut read = || -> Result<(), DecodeError> {
        while !r.is_empty() {
            let name = r.short()?;
            let is_own = name == b"state" || name.starts_with(b"index-");
            if !is_own || name.contains(&b'/') {
                return Err(r.bad("name"));
            }
            files.push((name.to_vec(), r.long()?.to_vec()));
        }
        Ok(())
    };
    read().map_err(|_| ReceiveError::State("journal"))?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(dir: u64) -> Known {
        Known {
            kind: Kind::Regular,
            is_absent: false,
            names: BTreeSet::from([(dir, b"name".to_vec()), (1, vec![0xff; 255])]),
        }
    }

    fn known_without_names() -> Known {
        Known {
            names: BTreeSet::new(),
            ..known(1)
        }
    }

    fn nothing(_: &str) -> Result<Option<Vec<u8>>, ReceiveError> {
        Ok(None)
    }

    #[test]
    fn what_was_saved_is_found_again() {
        let mut files: HashMap<String, Vec<u8>> = HashMap::new();
        let mut index = Index::default();
        for ino in [3, 255, 256, 70_000] {
            let set = |_| Some(known(ino));
            index.change(ino, &mut nothing, set).unwrap();
        }
        index.change(3, &mut nothing, |_| None).unwrap();
        assert_eq!(index.dirty(), 3);
        let journal = encode_journal(&index.changed());
        for (name, content) in decode_journal(&journal).unwrap() {
            files.insert(String::from_utf8(name).unwrap(), content);
        }
        index.saved();
        assert_eq!(index.dirty(), 0);
        let mut index = Index::default();
        let mut load = |name: &str| Ok(files.get(name).cloned());
        assert_eq!(index.get(3, &mut load).unwrap(), None);
        for ino in [255, 256, 70_000] {
            assert_eq!(index.get(ino, &mut load).unwrap(), Some(&known(ino)));
        }
        assert_eq!(index.get(257, &mut load).unwrap(), None);
    }

    /// All names of an inode were copied, and looked through, for each that came or went: a file with many links took hours.
    #[test]
    fn many_links_of_a_file_take_no_time_each() {
        const COUNT: u64 = 200_000;
        let begun = std::time::Instant::now();
        let mut index = Index::default();
        let name = |number: u64| (number, b"name".to_vec());
        for number in 0..COUNT {
            let known = index.get(5, &mut nothing).unwrap().map(Known::brief);
            assert_eq!(known.map_or(0, |known| known.names), number as usize);
            let add = |known: Option<Known>| {
                let mut known = known.unwrap_or_else(known_without_names);
                known.names.insert(name(number));
                Some(known)
            };
            index.change(5, &mut nothing, add).unwrap();
        }
        for number in (0..COUNT).rev() {
            let known = index.get(5, &mut nothing).unwrap().unwrap();
            assert!(known.names.contains(&name(number)));
            let remove = |known: Option<Known>| {
                let mut known = known.unwrap();
                known.names.remove(&name(number));
                Some(known)
            };
            index.change(5, &mut nothing, remove).unwrap();
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    }

    /// A stream without marks changes more and more that cannot be let go.
    #[test]
    fn what_changes_between_marks_is_bounded() {
        let mut index = Index::default();
        let mut change = |number: u64| {
            let ino = number << SHARD_BITS;
            index.change(ino, &mut nothing, |_| Some(known(1)))
        };
        for number in 0..CHANGED_MAX as u64 {
            change(number).unwrap();
        }
        let refused = change(CHANGED_MAX as u64);
        assert!(matches!(refused, Err(ReceiveError::TooMuch)));
    }

    #[test]
    fn damage_is_seen() {
        let mut index = Index::default();
        index.change(5, &mut nothing, |_| Some(known(1))).unwrap();
        let journal = encode_journal(&index.changed());
        let (_, shard) = decode_journal(&journal).unwrap().remove(0);
        for at in 0..journal.len() {
            let mut damaged = journal.clone();
            damaged[at] ^= 0x10;
            assert!(decode_journal(&damaged).is_err(), "byte {at}");
        }
        let mut damaged = shard;
        damaged[4] ^= 1;
        let mut index = Index::default();
        assert!(index.get(5, &mut |_| Ok(Some(damaged.clone()))).is_err());
    }
}
