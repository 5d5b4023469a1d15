//! Packed extents: where they lie, what they take, what of them can be wrong.

use persimmon_format::envelope;
use persimmon_format::extent::Extent;
use persimmon_format::packed::{self, BLOCK_PACK_UNITS, PACK_UNIT, PackUnits, Packed};
use persimmon_format::record::Op;
use persimmon_format::summary::{
    PACKED_ENTRIES_MIN, PackedEntry, Summary, SummaryBuilder, SummaryEntry,
};
use persimmon_format::table::ZitEntry;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, FormatError, Ino, ZoneId};
use proptest::prelude::*;

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
        let packed = Packed::at(addr(), at, &bytes);
        prop_assert_eq!(packed.addr, addr().offset(5));
        prop_assert_eq!(packed.start(), at % BLOCK_SIZE);
        let mut blocks = vec![0x77; packed.span() as usize * BLOCK_SIZE];
        blocks[packed.start()..][..bytes.len()].copy_from_slice(&bytes);
        prop_assert_eq!(packed.content(&blocks), Some(content));
        prop_assert_eq!(packed.content(&blocks[..packed.start()]), None);
        blocks[packed.start() + bytes.len() / 2] ^= 1;
        prop_assert_eq!(packed.content(&blocks), None);
        prop_assert!(packed.bytes(&blocks).is_some());
    }

    #[test]
    fn pack_units_of_a_zone_come_back(units in 0..u64::from(u32::MAX) * BLOCK_PACK_UNITS) {
        let entry = ZitEntry::default().with_pack_units(PackUnits(units));
        prop_assert_eq!(entry.pack_units(), PackUnits(units));
        prop_assert_eq!(u64::from(entry.valid), units.div_ceil(BLOCK_PACK_UNITS));
        prop_assert_eq!(entry.valid > 0, units > 0);
    }

    #[test]
    fn decompressing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = packed::decompress(&bytes);
    }
}

/// A packed extent says how much it holds: what gives more, or less, is none.
#[test]
fn a_bomb_is_no_packed_extent() {
    for len in [BLOCK_SIZE - 1, BLOCK_SIZE + 1, 1 << 20] {
        let bytes = lz4_flex::block::compress(&vec![0; len]);
        assert_eq!(packed::decompress(&bytes), None, "{len}");
    }
    assert_eq!(packed::decompress(&[]), None);
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

/// Replay could not tell whether it had arrived.
#[test]
fn no_record_maps_a_packed_extent() {
    let mut bytes = Vec::new();
    Op::Map {
        ino: Ino(5),
        block: 1,
        extent: samples::extents()[4].clone(),
    }
    .encode(&mut bytes);
    assert!(Op::decode_all(&bytes).is_err());
}

#[test]
fn a_summary_holds_as_many_packed_extents_as_promised() {
    let entry = PackedEntry {
        zone_block: (1 << 28) - 2,
        unit: 0,
        len: BLOCK_SIZE as u16 - 1,
        crc: u32::MAX,
        ino: Ino(u64::MAX),
        file_block: persimmon_format::extent::FILE_BLOCKS_END - 1,
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
        len: 17,
        crc: 0,
        ino: Ino(1),
        file_block: 1,
    };
    builder.push_packed(&entry);
    let mut block = vec![0; BLOCK_SIZE];
    builder.finish_into(&mut block, &samples::key(), 7, 9, 0);
    assert!(Summary::decode(&block, &samples::key(), 7, 9).is_err());
}
