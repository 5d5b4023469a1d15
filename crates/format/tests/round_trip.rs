//! What is encoded is decoded to the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod samples;

use persimmon_format::compression::Codec;
use persimmon_format::delta::DELTAS_END;
use persimmon_format::dictionary::{DICTIONARY_BLOCKS_MAX, Dictionary};
use persimmon_format::envelope::{self, BLOCK_PAYLOAD, Kind};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END, FRAME_BLOCKS_MAX, RESERVED_BLOCKS_MAX};
use persimmon_format::footer::{Footer, LogPosition, Valid};
use persimmon_format::gate::Features;
use persimmon_format::inode::{Inode, SIZE_MAX, Timestamp};
use persimmon_format::log::{BODY_LEN, Body, LogBlock, LogState, Records, compress};
use persimmon_format::name::{self, DirEntry, ITEM_END, ITEM_MIN, PROBE_ITEMS, first_item};
use persimmon_format::packed::{self, CompressedFrame, FrameTally, PackUnits, Packed};
use persimmon_format::page::{self, Compression, PageView, VALUE_LEN_MAX};
use persimmon_format::record::{Op, Share, Touch};
use persimmon_format::references::References;
use persimmon_format::summary::{PackedEntry, Summary, SummaryBuilder, SummaryEntry};
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::xattr::{Xattr, XattrValue};
use persimmon_format::zone_header::{
    DELTAS, KNOWN_INCOMPATIBLE, PROPERTIES, Properties, REQUIRED, SHARED_BLOCKS, SNAPSHOTS, SPLIT,
    ZoneHeader,
};
use persimmon_format::{
    Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind, Lsn, PageId, VersionId, ZoneId,
};
use proptest::prelude::*;

prop_compose! {
    fn addr()(raw in any::<u64>()) -> Addr {
        Addr::from_raw(raw)
    }
}

prop_compose! {
    fn key()(ino in any::<u64>(), kind in any::<u8>(), item in any::<u64>(), snapshot in any::<u32>())
        -> Key {
        Key { ino: Ino(ino), kind: KeyKind(kind), item, version: VersionId(snapshot) }
    }
}

prop_compose! {
    fn properties()(
        zone_count in any::<u32>(),
        uuid in any::<[u8; 16]>(),
        label in "\\PC{0,16}",
    ) -> Properties {
        Properties { zone_count, uuid, label }
    }
}

prop_compose! {
    fn time()(seconds in any::<i64>(), nanoseconds in 0u32..1_000_000_000) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }
}

prop_compose! {
    fn inode()(
        ids in any::<[u32; 7]>(),
        project in prop_oneof![Just(0), any::<u32>()],
        (size, sectors, parent) in (0..=SIZE_MAX, any::<u64>(), any::<u64>()),
        (atime, mtime, ctime, btime) in (time(), time(), time(), time()),
        (lifetime, compression) in any::<(u8, u8)>(),
    ) -> Inode {
        let [mode, uid, gid, nlink, rdev, flags, xattr_names] = ids;
        let parent = Ino(parent);
        Inode {
            mode, uid, gid, nlink, size, sectors, rdev, flags, atime, mtime, ctime, btime, parent,
            lifetime, compression, xattr_names, project,
        }
    }
}

fn extent() -> impl Strategy<Value = Extent> {
    prop_oneof![
        (
            addr(),
            prop::collection::vec(any::<u32>(), 1..=FRAME_BLOCKS_MAX)
        )
            .prop_map(|(addr, crcs)| Extent::Frame { addr, crcs }),
        prop::collection::vec(any::<u8>(), 0..=BLOCK_SIZE).prop_map(Extent::Inline),
        (1..=RESERVED_BLOCKS_MAX).prop_map(|blocks| Extent::Reserved { blocks }),
        prop::collection::vec(any::<u8>(), 1..BLOCK_SIZE).prop_map(Extent::Compressed),
        packed().prop_map(Extent::Packed),
        (
            0..FILE_BLOCKS_END - FRAME_BLOCKS_MAX as u64,
            1..=FRAME_BLOCKS_MAX as u16
        )
            .prop_map(|(at, blocks)| Extent::Shared {
                at,
                blocks,
                frame: None
            }),
        (0..FILE_BLOCKS_END - FRAME_BLOCKS_MAX as u64, packed())
            .prop_map(|(at, packed)| { Extent::Packed(packed).shared_at(at, true) }),
    ]
}

fn frame() -> impl Strategy<Value = CompressedFrame> {
    let blocks = DICTIONARY_BLOCKS_MAX as u8;
    let dictionary = (0..=FILE_BLOCKS_END - u64::from(blocks), 1..=blocks)
        .prop_map(|(at, blocks)| Codec::ZstdAfter(Dictionary { at, blocks }));
    let codec = prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd), dictionary];
    let blocks = 1..=packed::COMPRESSED_BLOCKS_MAX as u8;
    (codec, blocks, any::<prop::sample::Index>(), any::<u32>()).prop_map(
        |(codec, blocks, len, crc)| CompressedFrame {
            codec,
            blocks,
            len: 1 + len.index(usize::from(blocks) * BLOCK_SIZE - 1) as u32,
            crc,
        },
    )
}

fn packed() -> impl Strategy<Value = Packed> {
    let part = any::<(prop::sample::Index, prop::sample::Index)>();
    (addr(), any::<u8>(), frame(), part).prop_map(|(addr, unit, frame, (skip, blocks))| {
        let skip = skip.index(frame.blocks.into()) as u8;
        Packed {
            addr,
            unit,
            frame,
            skip,
            blocks: 1 + blocks.index((frame.blocks - skip).into()) as u8,
        }
    })
}

fn touch() -> impl Strategy<Value = Touch> {
    let size = proptest::option::of(0..=SIZE_MAX);
    let times = prop::array::uniform3(proptest::option::of(time()));
    (size, times, proptest::option::of(any::<u32>())).prop_map(|(size, times, mode)| {
        let [mtime, ctime, atime] = times;
        Touch {
            size,
            mtime,
            ctime,
            atime,
            mode,
        }
    })
}

fn share() -> impl Strategy<Value = Op> {
    let blocks = 0..FILE_BLOCKS_END;
    let (from, to, place) = (blocks.clone(), blocks.clone(), blocks.clone());
    (3..u64::MAX, 3..u64::MAX, from, to, blocks, place).prop_map(
        |(from, to, from_block, to_block, blocks, at)| {
            let most = FILE_BLOCKS_END - from_block.max(to_block).max(at);
            Op::Share(Share {
                from: Ino(from),
                from_block,
                to: Ino(if from == to { to - 1 } else { to }),
                to_block,
                blocks: 1 + blocks % most,
                at,
            })
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (key(), prop::collection::vec(any::<u8>(), 0..=VALUE_LEN_MAX))
            .prop_map(|(key, value)| Op::Put { key, value }),
        (any::<u64>(), inode(), 0u8..8).prop_map(|(ino, mut inode, same)| {
            for (at, time) in [&mut inode.mtime, &mut inode.ctime, &mut inode.btime]
                .into_iter()
                .enumerate()
            {
                if same & 1 << at != 0 {
                    *time = inode.atime;
                }
            }
            Op::Put {
                key: Key::inode(Ino(ino)),
                value: inode.encode(),
            }
        }),
        key().prop_map(|key| Op::Delete { key }),
        (
            any::<u64>(),
            prop_oneof![
                0..FILE_BLOCKS_END - u64::from(RESERVED_BLOCKS_MAX),
                FILE_BLOCKS_END..DELTAS_END,
            ],
            extent()
        )
            .prop_filter(
                "it fits there, and a record may map it",
                |(_, block, extent)| {
                    extent.fits_at(*block) && !matches!(extent, Extent::Shared { .. })
                }
            )
            .prop_map(|(ino, block, extent)| Op::Map {
                ino: Ino(ino),
                block,
                extent
            }),
        any::<(u64, u64, u64)>().prop_map(|(ino, a, b)| Op::Punch {
            ino: Ino(ino),
            from: a.min(b),
            to: a.max(b),
        }),
        (
            any::<u64>(),
            0..FILE_BLOCKS_END,
            0..=4096usize,
            prop::collection::vec(any::<u8>(), 0..=4096)
        )
            .prop_map(|(ino, block, at, mut bytes)| {
                bytes.truncate(4096 - at);
                let (ino, at) = (Ino(ino), at as u16);
                Op::Splice {
                    ino,
                    block,
                    at,
                    bytes,
                }
            }),
        any::<u64>().prop_map(|end| Op::Lot { end }),
        share(),
        (any::<u64>(), touch()).prop_map(|(ino, set)| Op::Touch { ino: Ino(ino), set }),
    ]
}

fn zit_entry() -> impl Strategy<Value = ZitEntry> {
    let bytes = (any::<u8>(), any::<u8>());
    (0u8..5, bytes, any::<[u32; 3]>(), any::<[u64; 2]>()).prop_map(
        |(role, (lifetime, short), [valid, write_pointer, resets], [sequence, last_write])| {
            ZitEntry {
                role: Role::from_number(role).unwrap(),
                lifetime,
                valid,
                short: if valid == 0 { 0 } else { short },
                write_pointer,
                resets,
                sequence,
                last_write,
            }
        },
    )
}

fn footer() -> impl Strategy<Value = Footer> {
    let chunks = || prop::collection::vec(addr(), 0..40);
    let overrides = prop::collection::vec((any::<u32>().prop_map(ZoneId), zit_entry()), 0..20);
    (
        any::<[u64; 10]>(),
        addr(),
        any::<[u32; 3]>(),
        chunks(),
        chunks(),
        overrides,
        counts(),
        properties(),
    )
        .prop_map(
            |(
                n,
                replay,
                [reserve_basis_points, max_open, max_active],
                mat,
                zit,
                overrides,
                counts,
                properties,
            )| {
                let incompatible = REQUIRED | (n[4] & KNOWN_INCOMPATIBLE);
                let shared_end = match incompatible & SHARED_BLOCKS {
                    0 => 0,
                    _ => n[9] % (FILE_BLOCKS_END + 1),
                };
                Footer {
                    properties: (n[4] & PROPERTIES != 0).then_some(properties),
                    features: Features {
                        incompatible,
                        read_only_compatible: n[5],
                        compatible: n[6],
                    },
                    checkpoint: n[0],
                    cut: Lsn(n[1]),
                    counted: Lsn(n[1] | n[3]),
                    replay: LogPosition {
                        sequence: n[2],
                        addr: replay,
                    },
                    root: PageId(n[3]),
                    page_limit: n[4],
                    next_ino: n[5],
                    lot_end: n[5] | n[6],
                    inodes: n[6],
                    reserved_blocks: n[7],
                    write_clock: n[8],
                    next_zone_sequence: n[9],
                    reserve_basis_points,
                    max_open,
                    max_active,
                    shared_end,
                    versions: if incompatible & SNAPSHOTS == 0 {
                        0
                    } else {
                        n[9] as u32
                    },
                    deltas: if incompatible & DELTAS == 0 { 0 } else { n[8] },
                    mat,
                    zit,
                    overrides,
                    counts: if n[1] | n[3] > n[1] {
                        counts
                    } else {
                        Vec::new()
                    },
                }
            },
        )
}

fn counts() -> impl Strategy<Value = Vec<(ZoneId, Valid)>> {
    let valid = (any::<u32>(), any::<u8>()).prop_map(|(blocks, short)| Valid {
        blocks,
        short: if blocks == 0 { 0 } else { short },
    });
    prop::collection::btree_map(any::<u32>().prop_map(ZoneId), valid, 0..20)
        .prop_map(|counts| counts.into_iter().collect())
}

proptest! {
    #[test]
    fn addresses(device in any::<u8>(), zone in 0u32..1 << 28, block in 0u32..1 << 28) {
        let addr = Addr::new(DeviceId(device), ZoneId(zone), block);
        prop_assert_eq!((addr.device().0, addr.zone().0, addr.block()), (device, zone, block));
        prop_assert_eq!(Addr::from_raw(addr.to_raw()), addr);
    }

    #[test]
    fn keys(a in key(), b in key()) {
        prop_assert_eq!(Key::from_bytes(&a.to_bytes()), a);
        let fields = |key: Key| (key.ino, key.kind, key.item, key.version);
        prop_assert_eq!(a.cmp(&b), fields(a).cmp(&fields(b)));
    }

    #[test]
    fn inodes(inode in inode()) {
        let bytes = inode.encode();
        let project = if inode.project == 0 { 0 } else { 4 };
        prop_assert_eq!(bytes.len(), Inode::LEN + project);
        prop_assert_eq!(Inode::decode(&bytes), Ok(inode));
    }

    #[test]
    fn extents(extent in extent()) {
        let bytes = extent.encode();
        prop_assert!(bytes.len() <= VALUE_LEN_MAX);
        prop_assert_eq!(Extent::peek_blocks(&bytes), Ok(extent.blocks()));
        prop_assert_eq!(Extent::decode(&bytes), Ok(extent));
    }

    #[test]
    fn a_frame_cut_anywhere_covers_the_same_blocks(
        crcs in prop::collection::vec(any::<u32>(), 1..=FRAME_BLOCKS_MAX),
        at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(crcs.len()) as u64;
        let addr = Addr::new(DeviceId(0), ZoneId(5), 9);
        let whole = Extent::Frame { addr, crcs };
        let (left, right) = (whole.part(0, at), whole.part(at, whole.blocks() - at));
        prop_assert_eq!(left.blocks() + right.blocks(), whole.blocks());
        match (&whole, &left, &right) {
            (
                Extent::Frame { crcs, .. },
                Extent::Frame { crcs: l, .. },
                Extent::Frame { addr: second, crcs: r },
            ) => {
                prop_assert_eq!([l.as_slice(), r.as_slice()].concat(), crcs.clone());
                prop_assert_eq!(*second, addr.offset(at as u32));
            }
            _ => prop_assert!(false, "a part of a frame is a frame"),
        }
    }

    #[test]
    fn a_shared_extent_cut_anywhere_is_its_blocks(
        at in 0..FILE_BLOCKS_END - FRAME_BLOCKS_MAX as u64,
        blocks in 1..=FRAME_BLOCKS_MAX as u16,
        cut in any::<u64>(),
    ) {
        let whole = Extent::Shared { at, blocks, frame: None };
        let cut = cut % (u64::from(blocks) + 1);
        let (left, right) = (whole.part(0, cut), whole.part(cut, u64::MAX));
        prop_assert_eq!((left.blocks(), left.blocks() + right.blocks()), (cut, blocks.into()));
        let Extent::Shared { at: second, .. } = right else {
            return Err(TestCaseError::fail("a part of a shared extent is one"));
        };
        prop_assert_eq!(second, at + cut);
        prop_assert_eq!(whole.sectors(), 8 * u64::from(blocks));
        prop_assert_eq!(whole.addr(), None);
    }

    /// What a file has of a frame counts the same by itself and shared, however it is cut and whatever is gone of it.
    #[test]
    fn a_shared_frame_counts_as_a_packed_one(
        packed in packed(),
        at in 32..FILE_BLOCKS_END - FRAME_BLOCKS_MAX as u64,
        block in 32..1u64 << 40,
        first in any::<u8>(),
        second in any::<u8>(),
        kept in 0u8..8,
    ) {
        let packed = packed.whole();
        let all = u64::from(packed.blocks);
        let whole = Extent::Packed(packed).shared_at(at, true);
        let (first, second) = (u64::from(first) % (all + 1), u64::from(second) % (all + 1));
        let (first, second) = (first.min(second), first.max(second));
        let cuts = [(0, first), (first, second), (second, all)];
        let (mut by_itself, mut shared) = (FrameTally::default(), FrameTally::default());
        let mut counted = (0, 0);
        for (number, (from, to)) in cuts.into_iter().enumerate() {
            if from == to || kept & 1 << number == 0 {
                continue;
            }
            let own = Extent::Packed(packed.part(from, to - from));
            let part = whole.part(from, to - from);
            prop_assert_eq!(&own.shared_at(at + from, true), &part);
            prop_assert_eq!(Extent::decode(&part.encode()), Ok(part.clone()));
            let count = |tally: &mut FrameTally, extent| tally.extent(Ino(20), block + from, extent);
            counted.0 += count(&mut by_itself, &own).sectors;
            let stored = count(&mut shared, &part);
            prop_assert_eq!(stored.units, PackUnits::ZERO);
            counted.1 += stored.sectors;
        }
        prop_assert_eq!(counted.0, counted.1);
    }

    #[test]
    fn references(item in 0..FILE_BLOCKS_END, blocks in 1u32.., count in 2u32..) {
        let references = References { blocks, count };
        let fits = item + u64::from(blocks) <= FILE_BLOCKS_END;
        let read = References::decode(item, &references.encode());
        prop_assert_eq!(read.ok(), fits.then_some(references));
    }

    #[test]
    fn a_packed_extent_cut_anywhere_is_parts_of_its_frame(
        packed in packed(),
        at in any::<prop::sample::Index>(),
        block in 100u64..1000,
    ) {
        let at = at.index(packed.blocks.into()) as u64;
        let whole = Extent::Packed(packed);
        let (left, right) = (whole.part(0, at), whole.part(at, u64::MAX));
        prop_assert_eq!(left.blocks() + right.blocks(), whole.blocks());
        let (Extent::Packed(left), Extent::Packed(right)) = (left, right) else {
            return Err(TestCaseError::fail("a part of a packed extent is one"));
        };
        prop_assert!(left.shares_frame(&packed) && right.shares_frame(&packed));
        prop_assert_eq!(left.frame_at(block), packed.frame_at(block));
        prop_assert_eq!(right.frame_at(block + at), packed.frame_at(block));
        prop_assert_eq!(right.is_whole(), packed.is_whole() && at == 0);
    }

    #[test]
    fn records(ops in prop::collection::vec(op(), 0..12)) {
        let mut bytes = Vec::new();
        ops.iter().for_each(|op| op.encode(&mut bytes));
        prop_assert_eq!(Op::decode_all(&bytes), Ok(ops));
    }

    #[test]
    fn footers(footer in footer()) {
        prop_assert_eq!(Footer::decode(&footer.encode()), Ok(footer));
    }

    #[test]
    fn tables(
        mat in prop::collection::vec((addr(), 0u16..=5), 0..=MatEntry::PER_CHUNK),
        zit in prop::collection::vec(zit_entry(), 0..=ZitEntry::PER_CHUNK),
    ) {
        let mat: Vec<MatEntry> =
            mat.into_iter().map(|(addr, blocks)| MatEntry { addr, blocks }).collect();
        let mut bytes = Vec::new();
        mat.iter().for_each(|entry| entry.encode(&mut bytes));
        prop_assert!(bytes.len() <= BLOCK_PAYLOAD);
        prop_assert_eq!(MatEntry::decode_chunk(&bytes), Ok(mat));
        bytes.clear();
        zit.iter().for_each(|entry| entry.encode(&mut bytes));
        prop_assert!(bytes.len() <= BLOCK_PAYLOAD);
        prop_assert_eq!(ZitEntry::decode_chunk(&bytes), Ok(zit));
    }

    #[test]
    fn log_blocks(
        sequences in any::<[u64; 5]>(),
        (epoch, opening) in any::<(u32, u32)>(),
        bytes in prop::collection::vec(any::<u8>(), 0..=BODY_LEN),
        repeated in 1..5_usize,
        lead in any::<prop::sample::Index>(),
        parts in (any::<u16>(), 1u16..).prop_filter("a part", |(part, parts)| part < parts),
        journal in any::<bool>(),
    ) {
        let [sequence, resume_after, durable, footer, first] = sequences;
        let longer = bytes.repeat(repeated);
        let compressed = compress(&longer);
        let body = if journal {
            let records = match compressed.len() <= BODY_LEN.min(longer.len().saturating_sub(1)) {
                true => Records::compressed(&longer, &compressed),
                false => Records::plain(&bytes),
            };
            let lead = lead.index(records.len() + 1) as u16;
            Body::Journal { first_lsn: Lsn(first), lead, records }
        } else {
            Body::Footer { part: parts.0, parts: parts.1, bytes: &bytes }
        };
        let state = LogState {
            epoch,
            opening,
            resume_after: Lsn(resume_after),
            durable: Lsn(durable),
            footer: Addr::from_raw(footer),
        };
        let block = LogBlock { sequence, state, body };
        let mut stored = vec![0; BLOCK_SIZE];
        block.encode_into(&mut stored, &samples::key(), 7);
        prop_assert_eq!(LogBlock::decode(&stored, &samples::key(), 7), Ok(block));
        prop_assert!(LogBlock::decode(&stored, &samples::key(), 8).is_err());
    }

    #[test]
    fn envelopes(
        payload in prop::collection::vec(any::<u8>(), 0..3 * BLOCK_SIZE),
        (owner, sequence) in any::<(u64, u64)>(),
    ) {
        let blocks = envelope::blocks_for(payload.len());
        let mut buffer = vec![0; blocks * BLOCK_SIZE];
        buffer[envelope::HEADER_LEN..][..payload.len()].copy_from_slice(&payload);
        let key = samples::key();
        envelope::seal(&mut buffer, &key, Kind::Page, owner, sequence, payload.len());
        let (fields, read) = envelope::open(&buffer, &key, Kind::Page, Some(owner)).unwrap();
        prop_assert_eq!(read, &payload[..]);
        prop_assert_eq!((fields.sequence, usize::from(fields.blocks)), (sequence, blocks));
    }

    #[test]
    fn zone_headers(
        label in "\\PC{0,16}",
        role in 0u8..5,
        (zone, sequence, first_log_sequence) in any::<(u32, u64, u64)>(),
        partner in prop::option::of(0..u32::MAX),
        metadata_zones in prop_oneof![Just(0), any::<u32>()],
        properties in prop::option::of(properties()),
    ) {
        prop_assume!(partner != Some(zone));
        let mut header = samples::zone_header();
        header.volume.label = label;
        if let Some(properties) = properties {
            header.volume = header.volume.with(properties);
        }
        header.partner = partner.map(ZoneId);
        header.volume.metadata_zones = metadata_zones;
        header.volume.incompatible |= if metadata_zones > 0 { SPLIT } else { 0 };
        header.role = Role::from_number(role).unwrap();
        header.zone = ZoneId(zone);
        header.sequence = sequence;
        header.first_log_sequence = first_log_sequence;
        prop_assert_eq!(ZoneHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn summaries(
        runs in prop::collection::vec((any::<u64>(), any::<u64>(), 1usize..300), 0..20),
        packed in prop::collection::vec((any::<u64>(), any::<u64>(), packed()), 0..200),
        previous in 0u32..1000,
        gap in 0u32..3,
    ) {
        let mut builder = SummaryBuilder::default();
        let mut entries = Vec::new();
        let mut zone_block = 1;
        for (ino, file_block, blocks) in runs {
            let blocks = blocks.min(FRAME_BLOCKS_MAX);
            if !builder.fits(blocks) {
                break;
            }
            let crcs = (0..blocks as u32).collect();
            let entry = SummaryEntry { zone_block, ino: Ino(ino), file_block, crcs };
            zone_block += blocks as u32 + gap;
            builder.push(&entry);
            entries.push(entry);
        }
        let packed: Vec<PackedEntry> = packed
            .into_iter()
            .map(|(ino, file_block, extent)| PackedEntry {
                zone_block: zone_block - 1,
                unit: extent.unit,
                frame: extent.frame,
                ino: Ino(ino),
                file_block,
            })
            .take_while(|entry| {
                let fits = builder.fits_packed(std::iter::once(*entry));
                if fits {
                    builder.push_packed(entry);
                }
                fits
            })
            .collect();
        // The longest frame, begun at the end of a block, reaches into 33.
        let place = (zone_block + 32).max(previous + 1);
        let mut block = vec![0; BLOCK_SIZE];
        builder.finish_into(&mut block, &samples::key(), 7, place, previous);
        prop_assert!(builder.is_empty());
        let read = Summary::decode(&block, &samples::key(), 7, place);
        prop_assert_eq!(read, Ok(Summary { previous, entries, packed }));
    }

    #[test]
    fn names(
        ino in any::<u64>(),
        file_type in 0u8..16,
        name in prop::collection::vec(any::<u8>(), 1..=255),
        value in prop::collection::vec(any::<u8>(), 0..3900),
    ) {
        let entry = DirEntry { ino: Ino(ino), file_type, name: &name };
        let bytes = entry.encode();
        prop_assert_eq!(DirEntry::decode(&bytes), Ok(entry));
        let xattr = Xattr { name: &name, value: XattrValue::Inline(&value) };
        let bytes = xattr.encode();
        prop_assert!(bytes.len() <= VALUE_LEN_MAX);
        prop_assert_eq!(Xattr::decode(&bytes), Ok(xattr));
        let item = first_item(&samples::key(), &name);
        prop_assert!(item >= ITEM_MIN && item + PROBE_ITEMS <= ITEM_END);
    }

    #[test]
    fn readdir_cookies(directory in any::<u64>(), item in ITEM_MIN..ITEM_END) {
        let (key, directory) = (samples::key(), Ino(directory));
        let cookie = name::cookie(&key, directory, item);
        prop_assert!(cookie >= ITEM_MIN && i64::try_from(cookie).is_ok());
        prop_assert_eq!(name::item_of_cookie(&key, directory, cookie), item);
        // Whatever a program seeks to is some place.
        let place = name::item_of_cookie(&key, directory, item);
        prop_assert_eq!(name::cookie(&key, directory, place), item);
    }

    #[test]
    fn page_images(
        items in prop::collection::btree_map(
            key(),
            prop::collection::vec(any::<u8>(), 0..400),
            0..30,
        ),
        children in prop::collection::btree_map(key(), any::<u64>(), 1..300),
    ) {
        let items: Vec<(Key, Vec<u8>)> = items.into_iter().collect();
        let image = samples::page_image(0, 5, &items);
        let view = PageView::new(&image).unwrap();
        prop_assert_eq!((view.id(), view.level(), view.count()), (PageId(5), 0, items.len()));
        let read: Vec<(Key, Vec<u8>)> =
            view.items().map(|(key, value)| (key, value.to_vec())).collect();
        prop_assert_eq!(read, items);
        prop_assert_eq!(view.children().count(), 0);

        let values: Vec<(Key, Vec<u8>)> =
            children.iter().map(|(key, id)| (*key, id.to_le_bytes().to_vec())).collect();
        let image = samples::page_image(1, 6, &values);
        let view = PageView::new(&image).unwrap();
        let read: Vec<(Key, u64)> = view.children().map(|(key, id)| (key, id.0)).collect();
        prop_assert_eq!(read, children.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn pages_are_unpacked_as_they_were(
        items in prop::collection::btree_map(
            key(),
            prop::collection::vec(any::<u8>(), 0..40),
            0..200,
        ),
        broken in prop::option::of(0..page::PAGE_SIZE),
    ) {
        let items: Vec<(Key, Vec<u8>)> = items.into_iter().collect();
        let mut image: [u8; page::PAGE_SIZE] =
            samples::page_image(0, 5, &items).try_into().unwrap();
        // What is no page is stored all the same.
        if let Some(at) = broken {
            image[at] ^= 0x80;
        }
        let payload = page::pack(&image);
        let (compression, _) = page::split(&payload).unwrap();
        let is_page = PageView::new(&image).is_ok();
        prop_assert_eq!(compression == Compression::Columns, is_page);
        let mut unpacked = [1; page::PAGE_SIZE];
        page::unpack(&payload, &mut unpacked).unwrap();
        prop_assert!(unpacked == image);
    }
}

/// A label cut inside a character came back with another character in its place.
#[test]
fn a_label_is_cut_between_characters() {
    let mut header = samples::zone_header();
    header.volume.label = format!("{}ü", "x".repeat(63));
    let read = ZoneHeader::decode(&header.encode()).unwrap();
    assert_eq!(read.volume.label, "x".repeat(63));
}

#[test]
fn no_zone_is_its_own_partner() {
    let mut header = samples::zone_header();
    header.partner = Some(header.zone);
    assert!(ZoneHeader::decode(&header.encode()).is_err());
}

/// A compression that was not told has one form: no byte.
#[test]
fn a_short_inode_tells_a_compression_or_has_no_byte_for_it() {
    let record = |compression| {
        let inode = Inode {
            compression,
            ..samples::inode()
        };
        let mut bytes = Vec::new();
        Op::Put {
            key: Key::inode(Ino(300)),
            value: inode.encode(),
        }
        .encode(&mut bytes);
        bytes
    };
    let (without, with) = (record(0), record(5));
    assert_eq!(without.len() + 1, with.len());
    let mask = without.iter().zip(&with).position(|(a, b)| a != b).unwrap();
    assert_eq!(with[mask..mask + 2], [8, 5]);
    let refused = |at: usize, value: u8| {
        let mut bytes = with.clone();
        bytes[at] = value;
        Op::decode_all(&bytes).is_err()
    };
    assert!(refused(mask + 1, 0));
    assert!(refused(mask, 32) && refused(mask, 40));
    // What has no meaning stays as it is, and is taken for not told.
    let unknown = record(200);
    let mut again = Vec::new();
    let ops = Op::decode_all(&unknown).unwrap();
    ops.iter().for_each(|op| op.encode(&mut again));
    assert_eq!(again, unknown);
}
