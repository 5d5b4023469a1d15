//! Volumes as earlier builds made them, without one of the features that all have now.

use persimmon_device::{BufferMut, ZoneId, ZonedDevice};
use persimmon_format::VolumeKey;
use persimmon_format::envelope::{self, Kind};
use persimmon_format::zone_header::{COUNTED_XATTRS, SHARED_FRAMES, ZoneHeader};
use persimmon_sim::SimDevice;
use persimmon_vfs::{Handle, ROOT, XattrMode};

use crate::fixture::Fixture;

/// Takes an incompatible feature from a volume that was just made, and is closed.
pub fn take_feature(device: &SimDevice, key: &VolumeKey, feature: u64) {
    for zone in (0..device.geometry().zone_count).map(ZoneId) {
        for at in 0..8 {
            let Ok(read) = device.read(zone, at, 1) else {
                continue;
            };
            let mut block = BufferMut::zeroed(1);
            block.copy_from_slice(&read);
            if let Ok(mut header) = ZoneHeader::decode(&block) {
                header.volume.incompatible &= !feature;
                block.copy_from_slice(&header.encode());
            } else if let Ok(fields) = envelope::peek(&block)
                && fields.kind == Kind::Footer
            {
                // Behind the envelope and the fields of a log block a footer begins with its features.
                let features = &mut block[48 + 48..48 + 48 + 8];
                let bits = u64::from_le_bytes(features.try_into().unwrap()) & !feature;
                features.copy_from_slice(&bits.to_le_bytes());
                let (kind, owner, sequence) = (fields.kind, fields.owner, fields.sequence);
                let len = fields.payload_len as usize;
                envelope::seal(&mut block, key, kind, owner, sequence, len);
            } else {
                continue;
            }
            assert!(device.replace(zone, at, block.freeze()));
        }
    }
}

/// A compressed file, and a clone of it: the blocks of 512 bytes that each of them counts.
fn clone_compressed(fs: &Fixture) -> [u64; 3] {
    let (source, copy) = (fs.file("source", b""), fs.file("copy", b""));
    let name = b"user.persimmon.compression";
    fs.vfs
        .setxattr(&fs.root, source, name, b"lz4", XattrMode::Either)
        .unwrap();
    let content = b"what compresses well. ".repeat(50_000);
    fs.write(source, 0, &content);
    fs.vfs.sync().unwrap();
    let blocks = |ino| fs.vfs.getattr(ino).unwrap().blocks;
    let alone = blocks(source);
    let (from, to) = ((source, Handle::NONE, 0), (copy, Handle::NONE, 0));
    let copied = fs.vfs.copy_file_range(from, to, 1 << 21).unwrap();
    assert_eq!(copied, content.len() as u64);
    fs.vfs.sync().unwrap();
    let counted = [alone, blocks(source), blocks(copy)];
    // A part of each frame goes in one of them, and then the rest.
    for (ino, at) in [(copy, 5), (source, 9), (copy, 40)] {
        fs.write(ino, at * 4096, &content[..3 * 4096]);
    }
    fs.vfs.sync().unwrap();
    assert!(fs.content(copy)[50 * 4096..] == content[50 * 4096..]);
    counted
}

/// A file goes on counting what it takes when its blocks become shared, and the clone counts the same.
#[test]
fn a_clone_of_a_compressed_file_counts_as_the_file() {
    let fs = Fixture::default();
    let [alone, source, copy] = clone_compressed(&fs);
    assert!(alone < 400, "{alone}");
    assert_eq!((source, copy), (alone, alone));
    let fs = fs.remount();
    for name in ["source", "copy"] {
        fs.truncate(fs.ino(name), 0);
        fs.vfs.sync().unwrap();
        assert_eq!(fs.at(name).blocks, 0);
    }
    fs.remount();
}

/// Whoever has one block of a frame counts it as a block, whatever the rest of the frame shrinks to, and no file with something in it counts
/// nothing.
#[test]
fn a_block_of_a_shared_frame_counts() {
    let fs = Fixture::default();
    let source = fs.file("source", b"");
    let name = b"user.persimmon.compression";
    fs.vfs
        .setxattr(&fs.root, source, name, b"lz4", XattrMode::Either)
        .unwrap();
    let mut state = 1u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let mut content: Vec<u8> = noise.take(4096).collect();
    content.resize(32 * 4096, 7);
    fs.write(source, 0, &content);
    fs.vfs.sync().unwrap();
    let blocks = |ino| fs.vfs.getattr(ino).unwrap().blocks;
    let alone = blocks(source);
    assert!((9..=12).contains(&alone), "{alone}");
    let taken = fs.file("taken", b"");
    for place in 0..20 {
        let (from, to) = (
            (source, Handle::NONE, 0),
            (taken, Handle::NONE, place * 4096),
        );
        assert_eq!(fs.vfs.copy_file_range(from, to, 4096).unwrap(), 4096);
        fs.vfs.sync().unwrap();
        assert_eq!(blocks(taken), 8 * (place + 1));
    }
    let cut = fs.file("cut", b"");
    let (from, to) = ((source, Handle::NONE, 0), (cut, Handle::NONE, 0));
    assert_eq!(
        fs.vfs.copy_file_range(from, to, 32 * 4096).unwrap(),
        32 * 4096
    );
    fs.vfs.sync().unwrap();
    assert_eq!((blocks(cut), blocks(source)), (alone, alone));
    // From its end, from its beginning, and in the midst of it.
    fs.truncate(cut, 8 * 4096);
    fs.vfs.sync().unwrap();
    assert!((9..=alone).contains(&blocks(cut)));
    fs.truncate(cut, 4096);
    fs.vfs.sync().unwrap();
    assert_eq!(blocks(cut), 8);
    fs.write(source, 4096, &content[..5 * 4096]);
    fs.vfs.sync().unwrap();
    fs.remount();
}

#[test]
fn a_volume_without_shared_frames_counts_whole_blocks() {
    let fs = Fixture::default();
    let key = fs.vfs.volume().identity().key();
    fs.vfs.close().unwrap();
    take_feature(&fs.device, &key, SHARED_FRAMES);
    let fs = fs.reopen();
    assert_eq!(fs.vfs.volume().identity().incompatible & SHARED_FRAMES, 0);
    let [alone, source, copy] = clone_compressed(&fs);
    assert!(
        alone < 400 && source >= 2100 && copy >= 2100,
        "{alone}, {source}, {copy}"
    );
    let fs = fs.remount();
    assert_eq!(fs.vfs.volume().identity().incompatible & SHARED_FRAMES, 0);
    assert!(fs.vfs.lookup(ROOT, b"copy").is_ok());
    fs.remount();
}

#[test]
fn a_volume_without_counted_attributes_counts_none() {
    let fs = Fixture::default();
    let key = fs.vfs.volume().identity().key();
    fs.vfs.close().unwrap();
    take_feature(&fs.device, &key, COUNTED_XATTRS);
    let fs = fs.reopen();
    let set = |fs: &Fixture, ino, len: usize| {
        let value = vec![7; len];
        fs.vfs
            .setxattr(&fs.root, ino, b"user.a", &value, XattrMode::Either)
            .unwrap();
    };
    let file = fs.file("a", b"");
    for ino in [file, ROOT] {
        set(&fs, ino, 10_000);
        assert_eq!(fs.vfs.getattr(ino).unwrap().blocks, 0);
    }
    let fs = fs.remount();
    set(&fs, file, 100);
    fs.vfs.removexattr(ROOT, b"user.a").unwrap();
    assert_eq!(fs.vfs.getattr(file).unwrap().blocks, 0);
    fs.remount();
}
