//! Golden bytes and damage of the container's structures.

use super::*;

fn superblock() -> Superblock {
    Superblock {
        geometry: ContainerGeometry {
            zone_count: 40,
            zone_blocks: 1024,
            capacity_blocks: 1000,
            max_open: Some(6),
            max_active: None,
        },
        generation: 7,
        uuid: *b"0123456789abcdef",
        volume: *b"0123456789abcdef",
        data: None,
        label: "kakī".into(),
        complete: true,
        table_seed: 0x1122_3344_5566_7788,
    }
}

#[test]
fn superblock_golden_bytes() {
    let block = superblock().encode(1).unwrap();
    let mut expected = vec![];
    expected.extend(b"PRSMNIMG");
    expected.extend([2, 0, 0, 0, 1, 0, 0, 0]); // version, copy
    expected.extend([0; 8]); // features
    expected.extend([7, 0, 0, 0, 0, 0, 0, 0]); // generation
    expected.extend(b"0123456789abcdef");
    expected.extend("kakī".as_bytes());
    expected.resize(112, 0);
    expected.extend([0x00, 0x10, 0, 0]); // block size
    expected.extend([40, 0, 0, 0]); // zones
    expected.extend([0x00, 0x04, 0, 0]); // zone size
    expected.extend([0xe8, 0x03, 0, 0]); // capacity
    expected.extend([6, 0, 0, 0, 0, 0, 0, 0]); // open, active
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0]); // complete
    expected.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    expected.extend([0x00, 0x00, 0x40, 0x0a, 0, 0, 0, 0]); // end of the zones: 164 MiB
    expected.extend([0x00, 0x00, 0x40, 0, 0, 0, 0, 0]); // data: 4 MiB
    expected.extend([0x00, 0x00, 0x40, 0, 0, 0, 0, 0]); // stride: 4 MiB
    expected.extend([0x00, 0x00, 0x50, 0x0a, 0, 0, 0, 0]); // total: 165 MiB
    expected.resize(4088, 0);
    expected.extend(GOLDEN_SUPERBLOCK_CHECKSUM.to_le_bytes());
    for (at, (found, expected)) in block.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "byte {at}");
    }
    assert_eq!(block.len(), expected.len());
    assert_eq!(Superblock::decode(&block), Ok(superblock()));
}

/// One that has grown keeps its first zone where it was; a volume whose UUID was changed keeps the one of its zone headers.
#[test]
fn superblock_golden_bytes_of_a_grown_container() {
    let grown = Superblock {
        data: Some(9 << 20),
        volume: *b"made with this 1",
        ..superblock()
    };
    let (before, block) = (superblock().encode(2).unwrap(), grown.encode(2).unwrap());
    let mut expected = before.to_vec();
    expected[16] = 1; // feature: grown
    expected[152..160].copy_from_slice(&(169u64 << 20).to_le_bytes()); // end
    expected[160..168].copy_from_slice(&(9u64 << 20).to_le_bytes()); // data
    expected[176..184].copy_from_slice(&(170u64 << 20).to_le_bytes()); // total
    expected[184..200].copy_from_slice(b"made with this 1");
    assert_eq!(block[..4088], expected[..4088]);
    assert_eq!(Superblock::decode(&block), Ok(grown.clone()));
    assert!(!grown.is_of_same(&superblock()));
    // Its first zone is behind the table, at a whole MiB, and where a container can have it.
    for data in [
        0,
        64 << 10,
        1 << 19,
        (9 << 20) + 4096,
        600 << 20,
        u64::MAX - 4095,
    ] {
        let mut bad = block;
        bad[160..168].copy_from_slice(&data.to_le_bytes());
        let checksum = superblock_checksum(&bad);
        bad[4088..].copy_from_slice(&checksum.to_le_bytes());
        let decoded = Superblock::decode(&bad);
        assert!(
            matches!(decoded, Err(ContainerError::BadGeometry(_))),
            "{data}: {decoded:?}"
        );
    }
}

/// Where the first table has no room in front of the first zone, it is behind the second one.
#[test]
fn a_container_may_have_both_tables_at_its_end() {
    let grown = |zone_count| {
        let geometry = ContainerGeometry {
            zone_count,
            ..superblock().geometry
        };
        geometry.layout_from(Some(1 << 20)).unwrap()
    };
    assert_eq!(grown(7680).tables, [TABLE, grown(7680).end + 4096]);
    let layout = grown(7681);
    let end = layout.end + 4096;
    assert_eq!(layout.tables, [end + layout.table_bytes, end]);
    assert!(layout.tables[0] + layout.table_bytes + TAIL_BYTES <= layout.total);
}

const GOLDEN_SUPERBLOCK_CHECKSUM: u64 = 0x4c7b_f8d1_0043_8728;

#[test]
fn record_golden_bytes() {
    let bytes = record(0x0102).encode(99);
    let mut expected = vec![];
    expected.extend([0x02, 0x01, 0, 0, 0, 0, 0, 0]); // sequence
    expected.extend([17, 0, 0, 0]); // zone
    expected.extend([0x02, 0x01, 0, 0]); // written
    expected.extend([3, 0, 0, 0]); // resets
    expected.extend([2, 0, 0, 0]); // state
    expected.extend(GOLDEN_RECORD_CHECKSUM.to_le_bytes());
    assert_eq!(bytes.as_slice(), expected);
}

const GOLDEN_RECORD_CHECKSUM: u64 = 0x192f_1973_bf3e_f763;

#[test]
fn any_flipped_byte_of_a_superblock_is_noticed() {
    let good = superblock().encode(0).unwrap();
    for at in 0..good.len() {
        let mut bad = good;
        bad[at] ^= 0x41;
        assert!(Superblock::decode(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn newer_versions_and_unknown_features_are_told_apart_from_damage() {
    let reseal = |block: &mut [u8; BLOCK_SIZE]| {
        let checksum = superblock_checksum(block);
        put(block, at::CHECKSUM, &checksum.to_le_bytes());
    };
    let mut newer = superblock().encode(0).unwrap();
    newer[at::VERSION] = 9;
    reseal(&mut newer);
    assert_eq!(
        Superblock::decode(&newer),
        Err(ContainerError::Newer { found: 9, known: 2 })
    );
    // One of before would be misread.
    let mut older = superblock().encode(0).unwrap();
    older[at::VERSION] = 1;
    reseal(&mut older);
    assert_eq!(
        Superblock::decode(&older),
        Err(ContainerError::Older { found: 1, known: 2 })
    );
    let mut unknown = superblock().encode(0).unwrap();
    unknown[at::FEATURES] = 4;
    reseal(&mut unknown);
    assert_eq!(
        Superblock::decode(&unknown),
        Err(ContainerError::UnknownFeatures { features: 4 })
    );
}

#[test]
fn geometries_that_cannot_be_are_refused() {
    let good = superblock().geometry;
    let bad = |change: fn(&mut ContainerGeometry)| {
        let mut geometry = good.clone();
        change(&mut geometry);
        assert!(geometry.layout().is_err(), "{geometry:?}");
    };
    bad(|g| g.zone_count = 0);
    bad(|g| g.zone_count = ZONE_COUNT_MAX + 1);
    bad(|g| g.zone_blocks = 255);
    bad(|g| g.zone_blocks = ZONE_BLOCKS_MAX + 1);
    bad(|g| g.capacity_blocks = 0);
    bad(|g| g.capacity_blocks = 1025);
    bad(|g| g.max_open = Some(0));
    bad(|g| g.max_active = Some(5));
}

#[test]
fn labels_are_cut_between_characters() {
    assert_eq!(cut_label("short"), "short");
    let long = "ī".repeat(40);
    assert_eq!(cut_label(&long).len(), 64);
    assert_eq!(cut_label(&format!("a{long}")).len(), 63);
}

fn record(sequence: u64) -> ZoneRecord {
    ZoneRecord {
        sequence,
        zone: 17,
        written: sequence as u32,
        resets: 3,
        state: RecordedState::Closed,
    }
}

/// A cell after records 2 to `last` were written to it.
fn cell_after(last: u64) -> [u8; CELL_BYTES] {
    let mut cell = record(2).encode_cell(99);
    for sequence in 3..=last {
        let record = record(sequence);
        put(&mut cell, record.slot_offset(), &record.encode_slot(99));
    }
    cell
}

#[test]
fn cells_give_the_newest_record() {
    // Where zeros were written over a table, each zone seemed to be empty.
    assert_eq!(decode_cell(&[0; CELL_BYTES], 17, 99), Cell::Lost(0));
    let unused = ZoneRecord::unused(17);
    assert_eq!(
        decode_cell(&unused.encode_cell(99), 17, 99),
        Cell::Good(unused)
    );
    for last in 2..6 {
        assert_eq!(
            decode_cell(&cell_after(last), 17, 99),
            Cell::Good(record(last))
        );
    }
    assert_eq!(decode_cell(&record(5).encode_cell(99), 17, 99), {
        Cell::Good(record(5))
    });
    // Another zone's or another image's cell is none.
    assert_eq!(decode_cell(&cell_after(3), 18, 99), Cell::Lost(0));
    assert_eq!(decode_cell(&cell_after(3), 17, 98), Cell::Lost(0));
}

#[test]
fn any_flipped_bit_of_a_cell_leaves_the_newest_record_and_is_told() {
    for last in 2..6 {
        let good = cell_after(last);
        for at in 0..CELL_BYTES {
            for bit in 0..8 {
                let mut bad = good;
                bad[at] ^= 1 << bit;
                match decode_cell(&bad, 17, 99) {
                    Cell::Healed(found) => assert_eq!(found, record(last)),
                    other => panic!("record {last}, byte {at}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_slot_gone_bad_is_never_taken_for_an_old_state() {
    // Either slot may have held the newest record.
    for slot in [0, SLOT_BYTES] {
        let mut bad = cell_after(7);
        bad[slot] ^= 1;
        bad[slot + RECORD_BYTES] ^= 1;
        assert!(matches!(decode_cell(&bad, 17, 99), Cell::Lost(_)));
    }
    let mut bad = [0; CELL_BYTES];
    bad[70] = 1;
    assert_eq!(decode_cell(&bad, 17, 99), Cell::Lost(0));
}

#[test]
fn a_torn_slot_never_gives_an_older_record_silently() {
    // The slot of record 7 was being written over record 5 and stopped after some bytes.
    let before = cell_after(6);
    let after = cell_after(7);
    for cut in 0..=SLOT_BYTES {
        let mut torn = before;
        let slot = record(7).slot_offset();
        torn[slot..slot + cut].copy_from_slice(&after[slot..slot + cut]);
        match decode_cell(&torn, 17, 99) {
            Cell::Good(found) | Cell::Healed(found) => {
                assert!(found == record(6) || found == record(7), "cut {cut}");
            }
            other => panic!("cut {cut}: {other:?}"),
        }
    }
}

#[test]
fn copies_are_far_apart_and_foreign_labels_hit_none_at_both_ends() {
    for (zone_count, zone_blocks) in [(1, 256), (15, 256), (59, 256), (40, 1024), (1 << 20, 16384)]
    {
        let geometry = ContainerGeometry {
            zone_count,
            zone_blocks,
            capacity_blocks: zone_blocks,
            max_open: None,
            max_active: None,
        };
        let layout = geometry.layout().unwrap();
        // A GPT of sectors of 4096 bytes, and its backup.
        assert!(layout.copy(1) >= 24 << 10 && layout.tables[0] >= layout.copy(1) + 4096);
        assert!(layout.tables[1] + layout.table_bytes + TAIL_BYTES <= layout.total);
        assert!(layout.tables[0] + layout.table_bytes <= layout.data);
        assert_eq!(layout.copy(2), layout.end);
        let zones = layout.end - layout.data;
        assert_eq!(zones, u64::from(zone_count) * layout.zone_stride);
        let is_large = zones >= 59 << 20;
        assert_eq!(is_large, layout.data >= HEAD_BYTES, "{zone_count} zones");
    }
}
