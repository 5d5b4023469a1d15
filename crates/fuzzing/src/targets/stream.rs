//! Streams of snapshots: records with hostile fields, left out, repeated and moved, with checksums that are what they should be, received
//! into a volume.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use persimmon::stream::{
    FrameReader, FrameWriter, Header, Record, SendOptions, VolumeTarget, receive, resume_token,
};
use persimmon::{Filesystem, OpenOptions};

use crate::edit::overwrite;
use crate::input::Input;

const VOLUME_BYTES: u64 = 32 << 20;
/// Changes of one stream at most.
const CHANGES_MAX: usize = 5;

/// A stream, and what it is made of.
struct Stream {
    bytes: Vec<u8>,
    header: Header,
    records: Vec<Record>,
}

impl Stream {
    fn of(fs: &Filesystem, name: &str, from: Option<&str>) -> Stream {
        let mut bytes = Vec::new();
        let from = from.map(OsStr::new);
        fs.send_snapshot(name, from, &mut bytes, &SendOptions::default(), |_| {})
            .unwrap();
        let mut frames = FrameReader::new(bytes.as_slice()).unwrap();
        let header = frames.header().clone();
        let records = std::iter::from_fn(|| frames.read().unwrap()).collect();
        Stream {
            bytes,
            header,
            records,
        }
    }
}

/// All of a snapshot, and what the next one has other than it.
fn streams() -> &'static [Stream; 2] {
    static STREAMS: OnceLock<[Stream; 2]> = OnceLock::new();
    STREAMS.get_or_init(|| {
        let fs = Filesystem::in_memory(VOLUME_BYTES).unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let options = OpenOptions::new().write(true).create(true);
            let file = fs.open_file(path, &options).unwrap();
            file.write_at(bytes, 0).unwrap();
        };
        let text: Vec<u8> = b"some text, "
            .iter()
            .copied()
            .cycle()
            .take(50_000)
            .collect();
        fs.create_dir_all("/a/b/c").unwrap();
        write("/a/text", &text);
        write("/a/b/small", b"small");
        fs.symlink("../text", "/a/b/link").unwrap();
        fs.hard_link("/a/text", "/a/b/c/other").unwrap();
        fs.set_xattr("/a/text", "user.note", b"noted").unwrap();
        fs.take_snapshot("one", false).unwrap();
        fs.rename("/a/b/c", "/c").unwrap();
        fs.rename("/a", "/c/a").unwrap();
        write("/c/other", &text[..5000]);
        fs.remove_file("/c/a/b/small").unwrap();
        fs.create_dir_all("/c/new").unwrap();
        fs.take_snapshot("two", false).unwrap();
        [
            Stream::of(&fs, "one", None),
            Stream::of(&fs, "two", Some("one")),
        ]
    })
}

pub fn stream(bytes: &[u8]) {
    // The decoders alone.
    if let Ok(mut frames) = FrameReader::new(bytes) {
        while let Ok(Some(_)) = frames.read() {}
    }
    let mut input = Input::new(bytes);
    let [whole, changes] = streams();
    let fs = Filesystem::in_memory(VOLUME_BYTES).unwrap();
    let sound = |stream: &Stream| {
        receive(
            stream.bytes.as_slice(),
            &mut VolumeTarget::new(&fs),
            &mut (),
        )
        .unwrap();
    };
    let stream = if input.flag() {
        sound(whole);
        changes
    } else {
        whole
    };
    let mut records = stream.records.clone();
    for _ in 0..=input.below(CHANGES_MAX) {
        change(&mut records, &mut input);
    }
    let altered = sealed(&stream.header, &records);
    let cut = match input.rarely(4) {
        true => input.below(altered.len()),
        false => altered.len(),
    };
    let received = receive(&altered[..cut], &mut VolumeTarget::new(&fs), &mut ());
    if let Err(error) = &received {
        let _ = error.to_string();
    }
    // A stream that was refused can be gone on with, or not; the volume goes on to work.
    let _ = resume_token(&mut VolumeTarget::new(&fs));
    fs.create_dir_all(Path::new("/still/there")).unwrap();
    fs.close().unwrap();
}

/// Does something to a stream.
fn change(records: &mut Vec<Record>, input: &mut Input<'_>) {
    if records.is_empty() {
        return;
    }
    let (at, other) = (input.below(records.len()), input.below(records.len()));
    match input.u8() % 8 {
        0 => drop(records.remove(at)),
        1 => records.insert(at, records[other].clone()),
        2 => records.swap(at, other),
        _ => {
            let mut fields = records[at].encode();
            overwrite(&mut fields, input);
            if let Ok(record) = Record::decode(records[at].kind(), &fields) {
                records[at] = record;
            }
        }
    }
}

/// A stream of records, with an end record that fits.
fn sealed(header: &Header, records: &[Record]) -> Vec<u8> {
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

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..16u32)
        .map(|n| {
            let byte = |i: u32| (i.wrapping_mul(n * 2 + 1).wrapping_mul(0xc2b2_ae35) >> 9) as u8;
            (0..120).map(byte).collect()
        })
        .collect();
    seeds.extend(streams().iter().map(|stream| stream.bytes.clone()));
    seeds
}
