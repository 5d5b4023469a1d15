//! One instance of each structure, with every field another value.

#![allow(dead_code, reason = "each test uses some of it")]

use persimmon_format::compression::Codec;
use persimmon_format::device_label::{DeviceKind, DeviceLabel, DeviceZones, Grown, ZoneRun};
use persimmon_format::dictionary::Dictionary;
use persimmon_format::extent::Extent;
use persimmon_format::footer::{Footer, LogPosition};
use persimmon_format::gate::Features;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::log::{Body, LogBlock, LogState, Records};
use persimmon_format::packed::{CompressedFrame, Packed};
use persimmon_format::page::{HEADER_LEN, PAGE_SIZE, PREFIX_LEN, SLOT_LEN};
use persimmon_format::quota::{Counting, Grace, Limit, Owner, OwnerKind, Quota, QuotaState, Usage};
use persimmon_format::record::{Op, Share, Touch};
use persimmon_format::references::References;
use persimmon_format::shared_frame::SharedFrame;
use persimmon_format::stripe_label::StripeLabel;
use persimmon_format::summary::{PackedEntry, SummaryBuilder, SummaryEntry};
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::{REQUIRED, VolumeIdentity, ZoneHeader};
use persimmon_format::{
    Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind, Lsn, PageId, VersionId, VolumeKey, ZoneId,
    envelope,
};

pub const ZONE_SEQUENCE: u64 = 0x0a0b;
pub const SUMMARY_PLACE: u32 = 40;

pub fn identity() -> VolumeIdentity {
    VolumeIdentity {
        uuid: std::array::from_fn(|i| 0x10 + i as u8),
        visible_uuid: std::array::from_fn(|i| 0x10 + i as u8),
        secret: std::array::from_fn(|i| 0x80 + i as u8),
        label: "päckchen".into(),
        incompatible: REQUIRED,
        read_only_compatible: 0x0102,
        compatible: 0x0304,
        created_seconds: -5,
        zone_count: 0x1112,
        zone_blocks: 0x2122,
        metadata_zones: 0,
    }
}

pub fn device_label() -> DeviceLabel {
    DeviceLabel {
        kind: DeviceKind::Data,
        uuid: std::array::from_fn(|i| 0x10 + i as u8),
        label: "päckchen".into(),
        metadata: DeviceZones {
            count: 0x1112,
            blocks: 0x2122,
        },
        data: DeviceZones {
            count: 0x3132,
            blocks: 0x4142,
        },
        grown: None,
    }
}

/// The same device, which has grown.
pub fn grown_device_label() -> DeviceLabel {
    let run = |first, count| ZoneRun { first, count };
    DeviceLabel {
        grown: Some(Grown {
            before: 0x5152,
            runs: vec![run(0x1112, 0x3131), run(0x6162, 1)],
        }),
        ..device_label()
    }
}

pub fn stripe_label() -> StripeLabel {
    StripeLabel {
        uuid: std::array::from_fn(|i| 0x10 + i as u8),
        columns: 7,
        metadata_sets: 0x1112,
        zone_count: 0x2122,
        zone_blocks: 0x3132,
        before: None,
    }
}

pub fn key() -> VolumeKey {
    identity().key()
}

pub fn zone_header() -> ZoneHeader {
    ZoneHeader {
        volume: identity(),
        device: DeviceId(0x31),
        zone: ZoneId(0x4142),
        role: Role::Log,
        lifetime: 3,
        sequence: 0x5152,
        first_log_sequence: 0x6162,
        partner: None,
    }
}

pub fn addr(zone: u32, block: u32) -> Addr {
    Addr::new(DeviceId(1), ZoneId(zone), block)
}

pub fn zit_entry() -> ZitEntry {
    ZitEntry {
        role: Role::Data,
        lifetime: 2,
        valid: 0x0a0b_0c0d,
        short: 0x0e,
        write_pointer: 0x1a1b_1c1d,
        resets: 0x2a2b,
        sequence: 0x3a3b,
        last_write: 0x4a4b,
    }
}

pub fn footer() -> Footer {
    Footer {
        features: Features {
            incompatible: REQUIRED,
            read_only_compatible: 0x0101_0000_0000_0000,
            compatible: 0x2000_0000_0000_0002,
        },
        checkpoint: 1,
        cut: Lsn(2),
        counted: Lsn(2),
        replay: LogPosition {
            sequence: 3,
            addr: addr(4, 5),
        },
        root: PageId(6),
        page_limit: 7,
        next_ino: 8,
        lot_end: 0x1_0008,
        inodes: 9,
        reserved_blocks: 10,
        write_clock: 11,
        next_zone_sequence: 12,
        reserve_basis_points: 13,
        max_open: 14,
        max_active: 15,
        shared_end: 0,
        versions: 0,
        deltas: 0,
        properties: None,
        mat: vec![addr(16, 17), Addr::ZERO],
        zit: vec![addr(18, 19)],
        overrides: vec![(ZoneId(20), zit_entry())],
        counts: Vec::new(),
    }
}

fn log_state() -> LogState {
    LogState {
        epoch: 0x11,
        opening: 0x12,
        resume_after: Lsn(0x22),
        durable: Lsn(0x33),
        footer: addr(0x44, 0x55),
    }
}

fn log_block(body: Body<'_>) -> Vec<u8> {
    let mut block = vec![0; BLOCK_SIZE];
    LogBlock {
        sequence: 0x66,
        state: log_state(),
        body,
    }
    .encode_into(&mut block, &key(), ZONE_SEQUENCE);
    block
}

pub fn journal_block() -> Vec<u8> {
    log_block(Body::Journal {
        first_lsn: Lsn(0x77),
        lead: 2,
        records: Records::plain(b"record bytes"),
    })
}

pub fn compressed_journal_block() -> Vec<u8> {
    let records = b"record bytes, ".repeat(20);
    // One literal of 14 bytes, 261 bytes from 14 bytes before, and 5 literal ones as every LZ4 block ends.
    let mut lz4 = vec![0xef];
    lz4.extend_from_slice(b"record bytes, ");
    lz4.extend_from_slice(&[14, 0, 242, 0x50]);
    lz4.extend_from_slice(b"tes, ");
    log_block(Body::Journal {
        first_lsn: Lsn(0x77),
        lead: 2,
        records: Records::compressed(&records, &lz4),
    })
}

pub fn footer_block() -> Vec<u8> {
    log_block(Body::Footer {
        part: 1,
        parts: 3,
        bytes: b"footer bytes",
    })
}

fn sealed(kind: envelope::Kind, owner: u64, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; envelope::blocks_for(payload.len()) * BLOCK_SIZE];
    buffer[envelope::HEADER_LEN..][..payload.len()].copy_from_slice(payload);
    envelope::seal(&mut buffer, &key(), kind, owner, 0x99, payload.len());
    buffer
}

pub fn mat_chunk() -> Vec<u8> {
    let mut payload = Vec::new();
    for (zone, blocks) in [(1, 1), (2, 5)] {
        let entry = MatEntry {
            addr: addr(zone, 7),
            blocks,
        };
        entry.encode(&mut payload);
    }
    MatEntry::NONE.encode(&mut payload);
    sealed(envelope::Kind::MatChunk, 0x88, &payload)
}

pub fn zit_chunk() -> Vec<u8> {
    let mut payload = Vec::new();
    zit_entry().encode(&mut payload);
    ZitEntry::default().encode(&mut payload);
    sealed(envelope::Kind::ZitChunk, 0x88, &payload)
}

pub fn keys() -> [Key; 3] {
    [
        Key::inode(Ino(0x0102_0304_0506_0708)),
        Key::new(Ino(0x0102_0304_0506_0708), KeyKind::DIR_ENTRY, 0x1112),
        Key {
            ino: Ino(0x0102_0304_0506_0709),
            kind: KeyKind::EXTENT,
            item: 0x2122_2324_2526_2728,
            version: VersionId(0x3132_3334),
        },
    ]
}

/// A page's image, put together by the document alone.
pub fn page_image(level: u8, id: u64, items: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut image = vec![0; PAGE_SIZE];
    let mut heap = PAGE_SIZE;
    for (index, (key, value)) in items.iter().enumerate() {
        heap -= value.len();
        image[heap..heap + value.len()].copy_from_slice(value);
        let slot = HEADER_LEN + index * SLOT_LEN;
        image[slot..slot + Key::LEN].copy_from_slice(&key.to_bytes());
        image[slot + 21..slot + 23].copy_from_slice(&(heap as u16).to_le_bytes());
        image[slot + 23..slot + 25].copy_from_slice(&(value.len() as u16).to_le_bytes());
    }
    image[0] = level;
    image[2..4].copy_from_slice(&(items.len() as u16).to_le_bytes());
    image[4..6].copy_from_slice(&(heap as u16).to_le_bytes());
    image[8..16].copy_from_slice(&id.to_le_bytes());
    image[16..24].copy_from_slice(&0x99u64.to_le_bytes());
    image
}

pub fn leaf_image() -> Vec<u8> {
    let values = [b"first".to_vec(), Vec::new(), b"third".to_vec()];
    let items: Vec<_> = keys().into_iter().zip(values).collect();
    page_image(0, 0x88, &items)
}

/// The leaf stored uncompressed, so that the golden bytes do not depend on a compressor.
pub fn page() -> Vec<u8> {
    let mut payload = vec![0; 4];
    payload.extend_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    payload.extend_from_slice(&leaf_image());
    assert_eq!(payload.len(), PREFIX_LEN + PAGE_SIZE);
    sealed(envelope::Kind::Page, 0x88, &payload)
}

pub fn summary_entries() -> Vec<SummaryEntry> {
    vec![
        SummaryEntry {
            zone_block: 1,
            ino: Ino(300),
            file_block: 70_000,
            crcs: vec![0x0102_0304, 0x0506_0708],
        },
        SummaryEntry {
            zone_block: 3,
            ino: Ino(301),
            file_block: 0,
            crcs: vec![0x090a_0b0c],
        },
    ]
}

pub fn packed_entry() -> PackedEntry {
    PackedEntry {
        zone_block: 4,
        unit: 0xfe,
        frame: CompressedFrame {
            codec: Codec::Lz4,
            blocks: 1,
            len: 0x0abc,
            crc: 0x1112_1314,
        },
        ino: Ino(300),
        file_block: 70_002,
    }
}

pub fn frame_entry() -> PackedEntry {
    PackedEntry {
        zone_block: 5,
        unit: 0x80,
        frame: CompressedFrame {
            codec: Codec::Zstd,
            blocks: 0x20,
            len: 0x0001_0abc,
            crc: 0x2122_2324,
        },
        ino: Ino(300),
        file_block: 70_003,
    }
}

pub fn dictionary_entry() -> PackedEntry {
    PackedEntry {
        unit: 0x90,
        frame: CompressedFrame {
            codec: Codec::ZstdAfter(Dictionary {
                at: 70_001,
                blocks: 0x1f,
            }),
            blocks: 0x10,
            len: 0x0abd,
            crc: 0x3132_3334,
        },
        file_block: 70_035,
        ..frame_entry()
    }
}

pub fn summary() -> Vec<u8> {
    let mut builder = SummaryBuilder::default();
    for entry in summary_entries() {
        builder.push(&entry);
    }
    builder.push_packed(&packed_entry());
    builder.push_packed(&frame_entry());
    builder.push_packed(&dictionary_entry());
    let mut block = vec![0; BLOCK_SIZE];
    builder.finish_into(&mut block, &key(), ZONE_SEQUENCE, SUMMARY_PLACE, 7);
    block
}

fn time(n: u8) -> Timestamp {
    Timestamp {
        seconds: -i64::from(n),
        nanoseconds: 0x0102_0300 + u32::from(n),
    }
}

pub fn inode() -> Inode {
    Inode {
        mode: 0o100_644,
        uid: 0x1112,
        gid: 0x2122,
        nlink: 0x3132,
        size: 0x4142_4344_4546,
        sectors: 0x5152_5354_5556,
        rdev: 0x6162,
        flags: 0,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        btime: time(4),
        parent: Ino(0x7172),
        lifetime: 4,
        compression: 5,
        xattr_names: 0x8182,
        project: 0,
    }
}

pub fn extents() -> [Extent; 9] {
    [
        Extent::Frame {
            addr: addr(2, 3),
            crcs: vec![0x0102_0304, 0x0506_0708],
        },
        Extent::Inline(b"inline".to_vec()),
        Extent::Reserved {
            blocks: 0x0102_0304,
        },
        Extent::Compressed(b"compressed".to_vec()),
        Extent::Packed(Packed {
            addr: addr(2, 3),
            unit: 0xfe,
            frame: CompressedFrame {
                codec: Codec::Lz4,
                blocks: 1,
                len: 0x0abc,
                crc: 0x0102_0304,
            },
            skip: 0,
            blocks: 1,
        }),
        Extent::Packed(Packed {
            addr: addr(2, 3),
            unit: 0xfe,
            frame: CompressedFrame {
                codec: Codec::Zstd,
                blocks: 0x20,
                len: 0x0001_0abc,
                crc: 0x0102_0304,
            },
            skip: 3,
            blocks: 4,
        }),
        Extent::Shared {
            at: 0x0102_0304_0506,
            blocks: 0x0100,
            frame: None,
        },
        Extent::Packed(Packed {
            addr: addr(2, 3),
            unit: 0xfe,
            frame: CompressedFrame {
                codec: Codec::ZstdAfter(Dictionary {
                    at: 0x0002_0304_0506_0708,
                    blocks: 0x1f,
                }),
                blocks: 0x20,
                len: 0x0abc,
                crc: 0x0102_0304,
            },
            skip: 3,
            blocks: 4,
        }),
        Extent::Shared {
            at: 0x0102_0304_0506,
            blocks: 4,
            frame: Some(SharedFrame {
                blocks: 0x20,
                skip: 3,
                sectors: 0x86,
            }),
        },
    ]
}

pub fn references() -> (Key, References) {
    let references = References {
        blocks: 0x0102_0304,
        count: 0x1112_1314,
    };
    (Key::references(0x2122_2324), references)
}

pub fn ops() -> Vec<Op> {
    let [first, second, _] = keys();
    let [frame, inline, _, compressed, _, packed, ..] = extents();
    vec![
        Op::Put {
            key: first,
            value: b"value".to_vec(),
        },
        Op::Put {
            key: Key::inode(Ino(300)),
            value: inode().encode(),
        },
        Op::Put {
            key: Key::inode(Ino(301)),
            value: Inode {
                mtime: time(1),
                ctime: time(1),
                compression: 0,
                ..inode()
            }
            .encode(),
        },
        Op::Put {
            key: Key::inode(Ino(302)),
            value: Inode {
                project: 0x9192,
                ..inode()
            }
            .encode(),
        },
        Op::Delete { key: second },
        Op::Map {
            ino: Ino(300),
            block: 70_000,
            extent: frame,
        },
        Op::Map {
            ino: Ino(5),
            block: 0,
            extent: inline,
        },
        Op::Map {
            ino: Ino(5),
            block: 1,
            extent: compressed,
        },
        Op::Map {
            ino: Ino(5),
            block: 6,
            extent: packed,
        },
        Op::Punch {
            ino: Ino(300),
            from: 1,
            to: u64::MAX,
        },
        Op::Splice {
            ino: Ino(300),
            block: 9,
            at: 200,
            bytes: b"appended".to_vec(),
        },
        Op::Share(Share {
            from: Ino(300),
            from_block: 70_000,
            to: Ino(301),
            to_block: 3,
            blocks: 200,
            at: 0x1000,
        }),
        Op::Lot { end: 0x1_0010 },
        Op::Touch {
            ino: Ino(300),
            set: Touch {
                size: Some(500),
                mtime: Some(time(2)),
                ctime: Some(time(3)),
                atime: Some(time(1)),
                mode: Some(0o100_600),
            },
        },
    ]
}

pub fn owner() -> Owner {
    Owner {
        kind: OwnerKind::Project,
        id: 0x0102_0304,
    }
}

pub fn quota() -> Quota {
    Quota {
        round: 0x1112,
        usage: Usage {
            sectors: 0x2122,
            inodes: 0x3132,
        },
        bytes: Limit {
            soft: 0x4142,
            hard: 0x5152,
        },
        inodes: Limit {
            soft: 0x6162,
            hard: 0x7172,
        },
        bytes_grace_end: 0x8182,
        inodes_grace_end: -2,
    }
}

pub fn quota_state() -> QuotaState {
    let grace = |n: u32| Grace {
        bytes: 0x0102_0300 + n,
        inodes: 0x1112_1300 + n,
    };
    QuotaState {
        counting: Counting::Below(0x2122_2324),
        round: 0x3132,
        graces: [grace(1), grace(2), grace(3)],
    }
}

/// Gives an envelope that was changed its right checksum: what a newer program would have written.
pub fn reseal(block: &mut [u8]) {
    let digest = key().checksum(&block[48..]);
    let mut header: [u8; 48] = block[..48].try_into().unwrap_or([0; 48]);
    header[40..].copy_from_slice(&digest.to_le_bytes());
    let sum = key().checksum(&header);
    block[40..48].copy_from_slice(&sum.to_le_bytes());
}
