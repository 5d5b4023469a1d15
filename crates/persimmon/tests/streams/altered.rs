//! Streams that were altered, by accident or on purpose: each is an error or does no harm, and nothing outside of the directory is touched.

use std::path::Path;

use persimmon::Filesystem;
use persimmon::stream::{
    Directory, FrameReader, FrameWriter, ReceiveError, Record, STATE_DIRECTORY, VolumeTarget,
    receive,
};

use crate::history::{Random, step};
use crate::tree::{compare, of_directory};
use crate::{Memory, Warnings, received, sent};

/// Two snapshots of a history, as streams: all of the first, and what the second has other than it.
fn streams(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let source = Memory::new();
    let (mut random, mut open) = (Random(seed), Vec::new());
    for name in ["one", "two"] {
        for _ in 0..60 {
            step(&source.fs, &mut random, &mut open);
        }
        source.fs.take_snapshot(name, false).unwrap();
    }
    let streams = (
        sent(&source.fs, "one", None, None),
        sent(&source.fs, "two", Some("one"), None),
    );
    source.fs.abandon();
    streams
}

fn into_memory(first: Option<&[u8]>) -> Memory {
    let target = Memory::new();
    if let Some(first) = first {
        received(&mut VolumeTarget::new(&target.fs), first);
    }
    target
}

fn tried(fs: &Filesystem, stream: &[u8]) -> Result<(), ReceiveError> {
    let target = &mut VolumeTarget::new(fs);
    receive(stream, target, &mut Warnings::default()).map(|_| ())
}

#[test]
fn an_altered_stream_is_never_received_to_the_end() {
    let mut random = Random(1);
    for seed in 0..4 {
        let (one, two) = streams(seed);
        for (stream, first) in [(&one, None), (&two, Some(one.as_slice()))] {
            for _ in 0..60 {
                let target = into_memory(first);
                let mut altered = stream.clone();
                let at = random.below(altered.len() as u64) as usize;
                match random.below(5) {
                    0 => altered.truncate(at),
                    1 => drop(altered.remove(at)),
                    2 => altered.insert(at, random.next() as u8),
                    // A piece of another place.
                    3 => {
                        let from = random.below(altered.len() as u64) as usize;
                        let len = random.below(200) as usize + 1;
                        let end = (at + len).min(altered.len());
                        let piece: Vec<u8> =
                            altered.iter().skip(from).take(end - at).copied().collect();
                        altered[at..at + piece.len()].copy_from_slice(&piece);
                    }
                    _ => altered[at] ^= 1 << random.below(8),
                }
                let is_same = altered.starts_with(stream)
                    // Bits of the header that a reader may ignore are covered by its checksum.
                    || altered == *stream;
                let went = tried(&target.fs, &altered);
                assert!(went.is_err() || is_same, "seed {seed}, byte {at}");
                target.fs.abandon();
            }
        }
    }
}

/// The records of a stream.
fn records(stream: &[u8]) -> (persimmon::stream::Header, Vec<Record>) {
    let mut frames = FrameReader::new(stream).unwrap();
    let header = frames.header().clone();
    let mut records = Vec::new();
    while let Some(record) = frames.read().unwrap() {
        records.push(record);
    }
    (header, records)
}

/// A stream of records whose checksums are what they should be.
fn framed(header: &persimmon::stream::Header, records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut frames = FrameWriter::new(&mut out, &header.origin, header.resumed.as_ref()).unwrap();
    for record in records {
        if !matches!(record, Record::End { .. }) {
            frames.write(record).unwrap();
        }
    }
    frames.end().unwrap();
    out
}

fn inode(random: &mut Random, of: u64) -> u64 {
    match random.below(3) {
        0 => 1,
        1 => 16 + random.below(40),
        _ => of,
    }
}

/// Changes one thing of a record, as somebody may who wants to do harm.
fn twist(record: &mut Record, random: &mut Random) {
    let names: [&[u8]; 5] = [b"a", b"b", b"outside", b"x", STATE_DIRECTORY];
    match record {
        Record::Name {
            dir,
            ino,
            name,
            kind,
            target,
            ..
        } => match random.below(4) {
            0 => *dir = inode(random, *ino),
            1 => *ino = inode(random, *dir),
            2 => *name = random.pick(&names).unwrap().to_vec(),
            _ => {
                *kind = persimmon::stream::Kind::Symlink;
                *target = b"../../outside".to_vec();
            }
        },
        Record::Remove {
            dir,
            ino,
            is_gone,
            name,
        } => match random.below(4) {
            0 => *dir = inode(random, *ino),
            1 => *ino = inode(random, *dir),
            2 => *is_gone = !*is_gone,
            _ => *name = random.pick(&names).unwrap().to_vec(),
        },
        Record::RemoveDirectory { ino }
        | Record::MakeDirectory { ino }
        | Record::Plain { ino, .. }
        | Record::Hole { ino, .. }
        | Record::Size { ino, .. }
        | Record::Owner { ino, .. }
        | Record::SetXattr { ino, .. }
        | Record::RemoveXattr { ino, .. }
        | Record::Permissions { ino, .. } => *ino = inode(random, *ino),
        Record::Frame { bytes, ino, .. } => match random.one_in(2) {
            true => *ino = inode(random, *ino),
            false => bytes
                .iter_mut()
                .for_each(|byte| *byte ^= random.next() as u8 & 3),
        },
        Record::Mark { is_barrier, .. } => *is_barrier = !*is_barrier,
        Record::End { .. } => {}
    }
}

#[test]
fn no_stream_leads_out_of_the_directory() {
    let mut random = Random(2);
    let mut refused = 0;
    for seed in 10..14 {
        let (one, two) = streams(seed);
        for (stream, first) in [(&one, None), (&two, Some(one.as_slice()))] {
            let (header, records) = records(stream);
            for _ in 0..60 {
                let top = tempfile::tempdir_in("/dev/shm").unwrap();
                let outside = top.path().join("outside");
                std::fs::create_dir(&outside).unwrap();
                std::fs::write(outside.join("kept"), "kept").unwrap();
                let due = of_directory(&outside);
                let dir = top.path().join("dir");
                std::fs::create_dir(&dir).unwrap();
                let mut target = Directory::open(&dir).unwrap();
                if let Some(first) = first {
                    received(&mut target, first);
                }
                let mut records = records.clone();
                for _ in 0..1 + random.below(6) {
                    let at = random.below(records.len() as u64) as usize;
                    let other = random.below(records.len() as u64) as usize;
                    match random.below(6) {
                        0 => drop(records.remove(at)),
                        1 => records.insert(other, records[at].clone()),
                        2 => records.swap(at, other),
                        _ => twist(&mut records[at], &mut random),
                    }
                }
                let twisted = framed(&header, &records);
                let went = receive(twisted.as_slice(), &mut target, &mut Warnings::default());
                refused += usize::from(went.is_err());
                check_outside(top.path(), &outside, &due);
            }
        }
    }
    assert!(refused > 100, "{refused} were refused");
}

fn check_outside(top: &Path, outside: &Path, due: &crate::tree::Tree) {
    let names = std::fs::read_dir(top).unwrap().count();
    assert_eq!(names, 2, "something new beside the directory");
    compare(due, &of_directory(outside), "outside");
}

/// What a name leads to may become a link while a stream comes.
#[test]
fn links_in_the_way_are_not_followed() {
    let source = Memory::new();
    source.fs.create_dir("/dir").unwrap();
    source.fs.write("/dir/file", b"one").unwrap();
    source.fs.take_snapshot("one", false).unwrap();
    source.fs.write("/dir/file", b"two").unwrap();
    source.fs.take_snapshot("two", false).unwrap();
    let one = sent(&source.fs, "one", None, None);
    let two = sent(&source.fs, "two", Some("one"), None);
    for replaced in ["dir", "dir/file"] {
        let top = tempfile::tempdir_in("/dev/shm").unwrap();
        let (dir, outside) = (top.path().join("dir"), top.path().join("outside"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), "kept").unwrap();
        received(&mut Directory::open(&dir).unwrap(), &one);
        let at = dir.join(replaced);
        std::fs::rename(&at, top.path().join("aside")).unwrap();
        let to = if replaced == "dir" {
            outside.clone()
        } else {
            outside.join("file")
        };
        std::os::unix::fs::symlink(to, &at).unwrap();
        let went = receive(
            two.as_slice(),
            &mut Directory::open(&dir).unwrap(),
            &mut Warnings::default(),
        );
        assert!(
            matches!(went, Err(ReceiveError::Changed { .. })),
            "{went:?}"
        );
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"kept");
    }
    source.fs.abandon();
}
