//! Packed extents: where they lie, what they take, what of them can be wrong.

use persimmon_format::compression::{Codec, Compression, compress_after};
use persimmon_format::dictionary::{DICTIONARY_BLOCKS_MAX, Dictionary};
use persimmon_format::envelope;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::packed::{
    self, BLOCK_PACK_UNITS, COMPRESSED_BLOCKS_MAX, CompressedFrame, FrameTally, PACK_UNIT,
    PackUnits, Packed, Stored,
};
use persimmon_format::record::Op;
use persimmon_format::summary::{
    PACKED_ENTRIES_MIN, PackedEntry, Summary, SummaryBuilder, SummaryEntry,
};
use persimmon_format::table::ZitEntry;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, FormatError, Ino, ZoneId};
use proptest::prelude::*;
use std::collections::BTreeMap;

mod samples;

fn addr() -> Addr {
    Addr::new(DeviceId(0), ZoneId(3), 7)
}

/// A block that compresses to about `noise` bytes.
fn block(noise: &[u8]) -> [u8; BLOCK_SIZE] {
    let mut block = [0; BLOCK_SIZE];
    block[..noise.len()].copy_from_slice(noise);
    block
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(
        noise in prop::collection::vec(any::<u8>(), 0..BLOCK_SIZE),
        unit in any::<u8>(),
    ) {
        let content = block(&noise);
        let Some(bytes) = packed::compress(&content, BLOCK_SIZE / 2) else {
            return Ok(());
        };
        prop_assert!(bytes.len() <= BLOCK_SIZE / 2);
        prop_assert_eq!(packed::decompress(&bytes), Some(content));
        let at = 5 * BLOCK_SIZE + usize::from(unit) * PACK_UNIT;
        let packed = Packed::at(addr(), at, CompressedFrame::of_block(&bytes));
        prop_assert_eq!(packed.addr, addr().offset(5));
        prop_assert_eq!(packed.start(), at % BLOCK_SIZE);
        let mut blocks = vec![0x77; packed.span() as usize * BLOCK_SIZE];
        blocks[packed.start()..][..bytes.len()].copy_from_slice(&bytes);
        prop_assert_eq!(packed.content(&blocks, &[]), Some(content.to_vec()));
        prop_assert_eq!(packed.content(&blocks[..packed.start()], &[]), None);
        blocks[packed.start() + bytes.len() / 2] ^= 1;
        prop_assert_eq!(packed.content(&blocks, &[]), None);
        prop_assert!(packed.bytes(&blocks).is_some());
    }

    #[test]
    fn each_part_of_a_frame_comes_back(
        noise in prop::collection::vec(any::<u8>(), 0..2 * BLOCK_SIZE),
        blocks in 2..=COMPRESSED_BLOCKS_MAX,
        compression in compression(),
        unit in any::<u8>(),
    ) {
        let mut content = noise;
        content.resize(blocks * BLOCK_SIZE, 0);
        for (at, block) in content.chunks_mut(BLOCK_SIZE).enumerate() {
            block[0] = at as u8;
        }
        let Some((codec, bytes)) = compression.compress(&content, usize::MAX) else {
            return Ok(());
        };
        let frame = CompressedFrame::of(codec, blocks as u8, &bytes);
        prop_assert_eq!(frame.decompress(&bytes, &[]), Some(content.clone()));
        let whole = Packed::at(addr(), usize::from(unit) * PACK_UNIT, frame);
        let mut stored = vec![0x77; whole.span() as usize * BLOCK_SIZE];
        stored[whole.start()..][..bytes.len()].copy_from_slice(&bytes);
        prop_assert_eq!(whole.content(&stored, &[]), Some(content.clone()));
        for (skip, take) in [(0, 1), (1, 1), (1, blocks - 1), (blocks - 1, 1)] {
            let part = whole.part(skip as u64, take as u64);
            let expected = &content[skip * BLOCK_SIZE..][..take * BLOCK_SIZE];
            prop_assert_eq!(part.content(&stored, &[]), Some(expected.to_vec()));
        }
        stored[whole.start() + bytes.len() - 1] ^= 1;
        prop_assert_eq!(whole.part(0, 1).content(&stored, &[]), None);
    }

    /// Counted as extents come by, each frame is counted once, as what the file has of it in all.
    #[test]
    fn a_tally_counts_as_a_recount_does(extents in extents_of_files()) {
        let mut tally = FrameTally::default();
        let mut counted = Stored::default();
        for (ino, block, packed) in &extents {
            let more = tally.extent(*ino, *block, &Extent::Packed(*packed));
            counted.units += more.units;
            counted.sectors += more.sectors;
        }
        let mut frames: BTreeMap<(Ino, u64, u64, u8), (Packed, u64)> = BTreeMap::new();
        for (ino, block, packed) in &extents {
            let (start, _) = packed.frame_at(*block).unwrap();
            let frame = (*ino, start, packed.addr.to_raw(), packed.unit);
            frames.entry(frame).or_insert((*packed, 0)).1 += u64::from(packed.blocks);
        }
        let mut expected = Stored::default();
        for (packed, live) in frames.values() {
            let bytes = u64::from(packed.frame.len).min(live * BLOCK_SIZE as u64);
            expected.units += PackUnits(bytes.div_ceil(PACK_UNIT as u64));
            expected.sectors += bytes.div_ceil(512);
        }
        prop_assert_eq!(counted, expected);
    }

    #[test]
    fn pack_units_of_a_zone_come_back(units in 0..u64::from(u32::MAX) * BLOCK_PACK_UNITS) {
        let entry = ZitEntry::default().with_pack_units(PackUnits(units));
        prop_assert_eq!(entry.pack_units(), PackUnits(units));
        prop_assert_eq!(u64::from(entry.valid), units.div_ceil(BLOCK_PACK_UNITS));
        prop_assert_eq!(entry.valid > 0, units > 0);
    }

    #[test]
    fn decompressing_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        blocks in 1..=COMPRESSED_BLOCKS_MAX,
    ) {
        let _ = packed::decompress(&bytes);
        for codec in [Codec::Lz4, Codec::Zstd] {
            let _ = codec.decompress(&bytes, blocks, &[]);
        }
    }

    /// Of damaged bytes comes what there should be, if not as it was, or nothing.
    #[test]
    fn flipped_bytes_give_a_frame_or_nothing(
        noise in prop::collection::vec(any::<u8>(), 0..BLOCK_SIZE),
        blocks in 1..=COMPRESSED_BLOCKS_MAX,
        compression in compression(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut content = noise;
        content.resize(blocks * BLOCK_SIZE, 0);
        let Some((codec, mut bytes)) = compression.compress(&content, usize::MAX) else {
            return Ok(());
        };
        for (at, xor) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
        }
        let read = codec.decompress(&bytes, blocks, &[]);
        prop_assert!(read.is_none_or(|read| read.len() == content.len()));
    }
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::Lz4),
        (1..=Compression::ZSTD_LEVEL_MAX).prop_map(Compression::Zstd),
    ]
}

/// What files have of frames, in the order of the keys: frames may have been written over each other, and cut out of each
/// other, but of each block of a file there is one.
fn extents_of_files() -> impl Strategy<Value = Vec<(Ino, u64, Packed)>> {
    let write = (
        1u64..3,
        0u64..200,
        1..=COMPRESSED_BLOCKS_MAX as u8,
        1u32..140_000,
    );
    prop::collection::vec(write, 0..60).prop_map(|writes| {
        let mut blocks: BTreeMap<(u64, u64), Packed> = BTreeMap::new();
        for (n, (ino, start, frame_blocks, len)) in (0..).zip(writes) {
            let frame = CompressedFrame {
                codec: Codec::Zstd,
                blocks: frame_blocks,
                len: len.min(u32::from(frame_blocks) * BLOCK_SIZE as u32 - 1),
                crc: 7,
            };
            let whole = Packed::at(addr().offset(40 * n), 0, frame);
            for at in 0..u64::from(frame_blocks) {
                blocks.insert((ino, start + at), whole.part(at, 1));
            }
        }
        let mut extents: Vec<(Ino, u64, Packed)> = Vec::new();
        for ((ino, block), one) in blocks {
            if let Some((last_ino, first, last)) = extents.last_mut()
                && *last_ino == Ino(ino)
                && *first + u64::from(last.blocks) == block
                && last.shares_frame(&one)
            {
                last.blocks += 1;
            } else {
                extents.push((Ino(ino), block, one));
            }
        }
        extents
    })
}

/// A packed extent says how much it holds: what gives more, or less, is none.
#[test]
fn a_bomb_is_no_packed_extent() {
    for len in [BLOCK_SIZE - 1, BLOCK_SIZE + 1, 1 << 20] {
        let bytes = lz4_flex::block::compress(&vec![0; len]);
        assert_eq!(packed::decompress(&bytes), None, "{len}");
    }
    assert_eq!(packed::decompress(&[]), None);
    for blocks in [1, 2, COMPRESSED_BLOCKS_MAX] {
        let right = blocks * BLOCK_SIZE;
        for compression in [Compression::Lz4, Compression::Zstd(3)] {
            for len in [right - 1, right + 1, right + BLOCK_SIZE, 16 << 20] {
                let content = vec![0; len];
                let (codec, bytes) = match compression {
                    Compression::Zstd(level) => {
                        let bytes = zstd::bulk::compress(&content, level.into());
                        (Codec::Zstd, bytes.unwrap())
                    }
                    _ => (Codec::Lz4, lz4_flex::block::compress(&content)),
                };
                assert_eq!(
                    codec.decompress(&bytes, blocks, &[]),
                    None,
                    "{blocks}, {len}"
                );
            }
            let (codec, mut bytes) = compression.compress(&vec![0; right], right).unwrap();
            assert_eq!(codec.decompress(&bytes, blocks, &[]), Some(vec![0; right]));
            assert_eq!(
                codec.decompress(&bytes[..bytes.len() - 1], blocks, &[]),
                None
            );
            bytes.push(0);
            assert_eq!(codec.decompress(&bytes, blocks, &[]), None);
        }
    }
    for codec in [Codec::Lz4, Codec::Zstd] {
        assert_eq!(codec.decompress(&[], 1, &[]), None);
    }
}

#[test]
fn what_does_not_compress_is_none() {
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(BLOCK_SIZE)
    .collect();
    assert_eq!(packed::compress(&block(&noise), BLOCK_SIZE), None);
    assert_eq!(packed::compress(&block(&noise[..1024]), 1024), None);
    assert!(packed::compress(&block(&noise[..1024]), 1100).is_some());
}

#[test]
fn values_that_no_packed_extent_has_are_refused() {
    let good = samples::extents()[4].encode();
    assert!(Extent::decode(&good).is_ok());
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    // File blocks 0 and 2, a length of 0 and of a block and more.
    for bytes in [with(10, 0), with(10, 2), with(12, 0x10), with(14, 1)] {
        assert!(Extent::decode(&bytes).is_err(), "{bytes:?}");
    }
    let mut none = with(11, 0);
    none[12] = 0;
    assert!(Extent::decode(&none).is_err());
    assert!(Extent::decode(&good[..good.len() - 1]).is_err());
    assert!(Extent::decode(&[4]).is_err());
    assert!(Extent::decode(&[4; BLOCK_SIZE + 1]).is_err());
    let mut zit = Vec::new();
    ZitEntry {
        short: 1,
        ..ZitEntry::default()
    }
    .encode(&mut zit);
    assert!(ZitEntry::decode_chunk(&zit).is_err());
}

#[test]
fn values_that_no_part_of_a_frame_has_are_refused() {
    let good = samples::extents()[5].encode();
    assert!(Extent::decode(&good).is_ok());
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        for (at, value) in changes {
            bytes[*at] = *value;
        }
        bytes
    };
    // After the tag: codec 9, blocks of the frame 10, skip 11, blocks 12, length 13..17; each a byte further on.
    let refused: &[&[(usize, u8)]] = &[
        &[(10, 0)],
        &[(10, 3)],
        &[(11, 0)],
        &[(11, 33)],
        &[(12, 29)],
        &[(12, 255)],
        &[(13, 0)],
        &[(13, 30)],
        &[(13, 255)],
        // Of a length of 0x10abc: none, and just what it gives.
        &[(14, 0), (15, 0), (16, 0)],
        &[(14, 0), (15, 0), (16, 2)],
        &[(17, 1)],
        // One block of LZ4, which has the short form.
        &[(10, 1), (11, 1), (12, 0), (13, 1), (15, 1), (16, 0)],
    ];
    for changes in refused {
        let bytes = with(changes);
        assert!(Extent::decode(&bytes).is_err(), "{changes:?}");
        let peeked = Extent::peek_blocks(&bytes);
        assert!(peeked.is_err(), "{changes:?}");
    }
    let taken: &[&[(usize, u8)]] = &[
        &[(12, 28)],
        &[(12, 0), (13, 32)],
        &[(14, 0xff), (15, 0xff), (16, 1)],
        &[(10, 1)],
        // One block of Zstandard.
        &[(11, 1), (12, 0), (13, 1), (15, 1), (16, 0)],
    ];
    for changes in taken {
        let bytes = with(changes);
        let extent = Extent::decode(&bytes).unwrap();
        assert_eq!(extent.encode(), bytes);
    }
    assert!(Extent::decode(&good[..good.len() - 1]).is_err());
    let mut longer = good.clone();
    longer.push(0);
    assert!(Extent::decode(&longer).is_err());
}

/// Its frame was written for blocks of the file, all of them.
#[test]
fn a_record_maps_a_part_only_where_its_frame_can_be() {
    let part = samples::extents()[5].clone();
    let Extent::Packed(packed) = part else {
        panic!("it is a packed extent")
    };
    let (skip, behind) = (
        u64::from(packed.skip),
        u64::from(packed.frame.blocks - packed.skip),
    );
    let decoded = |block: u64| {
        let extent = Extent::Packed(packed);
        assert_eq!(extent.fits_at(block), {
            block >= skip && block + behind <= FILE_BLOCKS_END
        });
        let mut bytes = Vec::new();
        let ino = Ino(5);
        Op::Map { ino, block, extent }.encode(&mut bytes);
        Op::decode_all(&bytes)
    };
    assert!(decoded(skip - 1).is_err());
    assert!(decoded(skip).is_ok());
    assert!(decoded(FILE_BLOCKS_END - behind).is_ok());
    assert!(decoded(FILE_BLOCKS_END - behind + 1).is_err());
    assert!(!Extent::Packed(packed).fits_at(u64::MAX));
}

#[test]
fn what_a_frame_counts_as_follows_what_is_live() {
    let frame = |len| CompressedFrame {
        codec: Codec::Zstd,
        blocks: 32,
        len,
        crc: 0,
    };
    let stored = |len, live| {
        let Stored { units, sectors } = Packed::at(addr(), 0, frame(len)).stored(live);
        (units.0, sectors)
    };
    assert_eq!(stored(20_000, 32), (1250, 40));
    assert_eq!(stored(20_000, 5), (1250, 40));
    assert_eq!(stored(20_000, 4), (1024, 32));
    assert_eq!(stored(20_000, 1), (256, 8));
    assert_eq!(stored(20_000, 0), (0, 0));
    assert_eq!(stored(17, 1), (2, 1));
}

#[test]
fn a_summary_holds_as_many_packed_extents_as_promised() {
    let entry = PackedEntry {
        zone_block: (1 << 28) - 40,
        unit: 0,
        frame: CompressedFrame {
            codec: Codec::ZstdAfter(Dictionary {
                at: FILE_BLOCKS_END - 32,
                blocks: 32,
            }),
            blocks: 32,
            len: (32 * BLOCK_SIZE - 1) as u32,
            crc: u32::MAX,
        },
        ino: Ino(u64::MAX),
        file_block: FILE_BLOCKS_END - 32,
    };
    // Each of another inode, far from the one before in the file, and behind it in the zone.
    let packed: Vec<PackedEntry> = (0..PACKED_ENTRIES_MIN)
        .map(|n| PackedEntry {
            ino: Ino(u64::MAX - n as u64),
            file_block: entry.file_block * (n as u64 % 2),
            zone_block: entry.zone_block - PACKED_ENTRIES_MIN as u32 + n as u32,
            ..entry
        })
        .collect();
    let mut builder = SummaryBuilder::default();
    assert!(builder.fits_packed(packed.iter().copied()));
    packed.iter().for_each(|entry| builder.push_packed(entry));
    let mut block = vec![0; BLOCK_SIZE];
    let place = (1 << 28) - 1;
    builder.finish_into(&mut block, &samples::key(), 7, place, 0);
    let read = Summary::decode(&block, &samples::key(), 7, place).unwrap();
    assert_eq!(read.packed, packed);
}

/// Blocks overwritten in no order take eight bytes each.
#[test]
fn a_summary_holds_nearly_five_hundred_single_blocks() {
    let mut builder = SummaryBuilder::default();
    let entries: Vec<SummaryEntry> = (0..495)
        .map(|n| SummaryEntry {
            zone_block: 1 + n,
            ino: Ino(300),
            file_block: u64::from(n) * 7_654_321 % (1 << 20),
            crcs: vec![n],
        })
        .collect();
    for entry in &entries {
        assert!(builder.fits(1), "after {} blocks", entry.zone_block);
        builder.push(entry);
    }
    let mut block = vec![0; BLOCK_SIZE];
    builder.finish_into(&mut block, &samples::key(), 7, 600, 0);
    let read = Summary::decode(&block, &samples::key(), 7, 600).unwrap();
    assert_eq!(read.entries, entries);
}

/// Without the mark its entries would be of another form, which nobody writes.
#[test]
fn a_summary_without_the_mark_of_its_entries_is_refused() {
    let (sequence, place) = (samples::ZONE_SEQUENCE, samples::SUMMARY_PLACE);
    let decode = |block: &[u8]| Summary::decode(block, &samples::key(), sequence, place);
    let mut block = samples::summary();
    assert!(decode(&block).is_ok());
    // The highest bit of the number of entries.
    block[envelope::HEADER_LEN + 7] &= 0x7f;
    samples::reseal(&mut block);
    assert!(matches!(
        decode(&block),
        Err(FormatError::Value {
            field: "entries",
            ..
        })
    ));
}

#[test]
fn a_packed_extent_of_a_summary_lies_below_it() {
    let mut builder = SummaryBuilder::default();
    let entry = PackedEntry {
        zone_block: 8,
        unit: 255,
        frame: CompressedFrame::of_block(&[0; 17]),
        ino: Ino(1),
        file_block: 1,
    };
    builder.push_packed(&entry);
    let mut block = vec![0; BLOCK_SIZE];
    builder.finish_into(&mut block, &samples::key(), 7, 9, 0);
    assert!(Summary::decode(&block, &samples::key(), 7, 9).is_err());
}

fn dictionary(blocks: u8) -> Dictionary {
    Dictionary { at: 300, blocks }
}

/// Bytes that do not compress.
fn noise(blocks: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..blocks * BLOCK_SIZE).map(|_| next()).collect()
}

#[test]
fn a_frame_is_what_it_was_with_its_dictionary_alone() {
    let near = noise(32);
    let mut content = near.clone();
    content[70_000] ^= 1;
    let bytes = compress_after(&content, &near, 9).unwrap();
    assert!(bytes.len() < 100, "{} bytes", bytes.len());
    let codec = Codec::ZstdAfter(dictionary(32));
    assert_eq!(codec.decompress(&bytes, 32, &near), Some(content));
    let mut other = near.clone();
    other[100_000] ^= 1;
    assert_eq!(codec.decompress(&bytes, 32, &other), None);
    for dictionary in [&near[..31 * BLOCK_SIZE], &[]] {
        assert_eq!(codec.decompress(&bytes, 32, dictionary), None);
    }
    for blocks in [1, 31, 33] {
        assert_eq!(codec.decompress(&bytes, blocks, &near), None);
    }
    assert_eq!(codec.decompress(&bytes[..bytes.len() - 1], 32, &near), None);
    assert_eq!(Codec::Zstd.decompress(&bytes, 32, &[]), None);
}

/// A file may hold what Zstandard takes for a dictionary of its own form. It is content like any other.
#[test]
fn a_dictionary_is_taken_as_it_is() {
    let mut near = noise(1);
    near[..4].copy_from_slice(&0xec30_a437_u32.to_le_bytes());
    let mut content = near.clone();
    content[2000] ^= 1;
    let bytes = compress_after(&content, &near, 9).unwrap();
    let codec = Codec::ZstdAfter(dictionary(1));
    assert_eq!(codec.decompress(&bytes, 1, &near), Some(content));
}

#[test]
fn dictionaries_that_cannot_be_are_refused() {
    let good = samples::extents()[7].encode();
    assert!(Extent::decode(&good).is_ok());
    let with = |at: u64, blocks: u8| {
        let mut bytes = good.clone();
        bytes[22..30].copy_from_slice(&at.to_le_bytes());
        bytes[30] = blocks;
        Extent::decode(&bytes)
    };
    let most = DICTIONARY_BLOCKS_MAX as u8;
    assert!(with(FILE_BLOCKS_END - u64::from(most), most).is_ok());
    assert!(with(0, 1).is_ok());
    for (at, blocks) in [
        (300, 0),
        (300, most + 1),
        (FILE_BLOCKS_END - 1, 2),
        (FILE_BLOCKS_END, 1),
        (u64::MAX, 1),
    ] {
        assert!(with(at, blocks).is_err(), "{at} {blocks}");
    }
    assert!(Extent::decode(&good[..good.len() - 1]).is_err());
    let extent = Extent::decode(&good).unwrap();
    assert_eq!(extent.encoded_len(), good.len());
    assert_eq!(
        extent.names(),
        Some((0x0002_0304_0506_0708, 0x0002_0304_0506_0727))
    );
}
