//! Whatever bytes a device answers, decoders give a typed error or a value, never a panic; and no
//! flipped bit of a sealed structure goes unnoticed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod samples;

use persimmon_format::device_label::DeviceLabel;
use persimmon_format::envelope::{self, Kind};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::footer::Footer;
use persimmon_format::inode::Inode;
use persimmon_format::log::LogBlock;
use persimmon_format::name::{DirEntry, ITEM_END};
use persimmon_format::page::{self, PAGE_SIZE, PageView};
use persimmon_format::record::Op;
use persimmon_format::references::References;
use persimmon_format::stripe_label::{COLUMNS_MAX, StripeLabel};
use persimmon_format::summary::Summary;
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::xattr::{Joined, Piece, Xattr, XattrValue, piece_key};
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{BLOCK_SIZE, FormatError, Ino, Key, KeyKind, Result};
use proptest::prelude::*;

type Decoder = fn(&[u8]) -> Result<()>;

/// Every structure under a checksum, with its decoder.
fn sealed() -> Vec<(&'static str, Vec<u8>, Decoder)> {
    fn chunk(kind: Kind, bytes: &[u8]) -> Result<()> {
        envelope::open(bytes, &samples::key(), kind, Some(0x88)).map(|_| ())
    }
    fn log_block(bytes: &[u8]) -> Result<()> {
        LogBlock::decode(bytes, &samples::key(), samples::ZONE_SEQUENCE).map(|_| ())
    }
    vec![
        ("zone header", samples::zone_header().encode(), |b| {
            ZoneHeader::decode(b).map(|_| ())
        }),
        ("device label", samples::device_label().encode(), |b| {
            DeviceLabel::decode(b).map(|_| ())
        }),
        ("stripe label", samples::stripe_label().encode(), |b| {
            StripeLabel::decode(b).map(|_| ())
        }),
        ("journal block", samples::journal_block(), log_block),
        (
            "compressed journal block",
            samples::compressed_journal_block(),
            log_block,
        ),
        ("footer block", samples::footer_block(), log_block),
        ("MAT chunk", samples::mat_chunk(), |b| {
            chunk(Kind::MatChunk, b)
        }),
        ("ZIT chunk", samples::zit_chunk(), |b| {
            chunk(Kind::ZitChunk, b)
        }),
        ("page", samples::page(), |b| chunk(Kind::Page, b)),
        ("summary", samples::summary(), |b| {
            let (sequence, place) = (samples::ZONE_SEQUENCE, samples::SUMMARY_PLACE);
            Summary::decode(b, &samples::key(), sequence, place).map(|_| ())
        }),
    ]
}

#[test]
fn every_flipped_bit_of_a_sealed_structure_is_noticed() {
    for (name, mut bytes, decode) in sealed() {
        assert_eq!(decode(&bytes), Ok(()), "{name}");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "{name}: bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in (0..bytes.len()).step_by(509) {
            assert!(decode(&bytes[..len]).is_err(), "{name}: {len} bytes");
        }
    }
}

/// A flipped bit in the version of an envelope once passed for a newer program's work, and told
/// people to upgrade instead of that their disk was bad.
#[test]
fn a_damaged_version_is_damage_and_not_a_newer_program() {
    let mut bytes = samples::mat_chunk();
    bytes[5] ^= 0x40;
    let key = samples::key();
    let error = envelope::open(&bytes, &key, Kind::MatChunk, None).unwrap_err();
    assert!(matches!(error, FormatError::Checksum { .. }), "{error}");
}

#[test]
fn a_structure_passes_for_no_other() {
    let key = samples::key();
    let chunk = samples::mat_chunk();
    let open = |kind, owner| envelope::open(&chunk, &key, kind, owner).map(|_| ());
    assert!(open(Kind::MatChunk, Some(0x88)).is_ok());
    assert!(open(Kind::MatChunk, Some(0x89)).is_err());
    assert!(open(Kind::ZitChunk, Some(0x88)).is_err());
    let mut longer = chunk.clone();
    longer.resize(2 * BLOCK_SIZE, 0);
    assert!(envelope::open(&longer, &key, Kind::MatChunk, None).is_err());
    let mut other = samples::identity();
    other.secret[0] ^= 1;
    let error = envelope::open(&chunk, &other.key(), Kind::MatChunk, None);
    assert!(matches!(error, Err(FormatError::Checksum { .. })));
    other = samples::identity();
    other.uuid[0] ^= 1;
    assert!(envelope::open(&chunk, &other.key(), Kind::MatChunk, None).is_err());
}

#[test]
fn a_newer_zone_header_says_so() {
    let reseal = |mut block: Vec<u8>| {
        let sum = persimmon_format::checksum::plain(&block[..4088]);
        block[4088..].copy_from_slice(&sum.to_le_bytes());
        ZoneHeader::decode(&block)
    };
    let mut newer = samples::zone_header().encode();
    newer[8] = 9;
    assert!(matches!(
        reseal(newer),
        Err(FormatError::NewerVersion { found: 9, .. })
    ));
    let mut features = samples::zone_header().encode();
    features[134] = 1;
    assert!(matches!(
        reseal(features),
        Err(FormatError::UnknownFeatures { unknown }) if unknown == 1 << 48
    ));
}

#[test]
fn a_stripe_label_has_as_many_columns_as_a_set_may() {
    let with = |columns| {
        let mut label = samples::stripe_label();
        label.columns = columns;
        StripeLabel::decode(&label.encode())
    };
    assert!(with(1).is_ok() && with(COLUMNS_MAX).is_ok());
    for columns in [0, COLUMNS_MAX + 1, u32::MAX] {
        let error = with(columns).unwrap_err();
        assert!(matches!(error, FormatError::Value { .. }), "{error}");
    }
}

/// Hands bytes to every decoder that takes any.
fn decode_all(bytes: &[u8]) {
    let key = samples::key();
    let _ = ZoneHeader::decode(bytes);
    let _ = DeviceLabel::decode(bytes);
    let _ = StripeLabel::decode(bytes);
    let _ = envelope::peek(bytes);
    let _ = LogBlock::decode(bytes, &key, samples::ZONE_SEQUENCE);
    let _ = Summary::decode(bytes, &key, samples::ZONE_SEQUENCE, samples::SUMMARY_PLACE);
    let _ = Footer::decode(bytes);
    let _ = MatEntry::decode_chunk(bytes);
    let _ = ZitEntry::decode_chunk(bytes);
    let _ = page::split(bytes);
    let _ = page::unpack(bytes, &mut [0; PAGE_SIZE]);
    let _ = Op::decode_all(bytes);
    let _ = Inode::decode(bytes);
    let _ = DirEntry::decode(bytes);
    if let Ok(Xattr { value, .. }) = Xattr::decode(bytes)
        && let XattrValue::Pieces(pieces) = value
    {
        let mut joined = Joined::new(pieces);
        let _ = joined.item(&piece_key(Ino(9), pieces.slot(), 0), bytes);
        let _ = joined.finish();
    }
    for item in [0, ITEM_END, u64::MAX] {
        let _ = Piece::decode(&Key::new(Ino(9), KeyKind::XATTR, item), bytes);
    }
    for item in [0, FILE_BLOCKS_END - 1, u64::MAX] {
        let _ = References::decode(item, bytes);
    }
    let _ = Extent::peek_blocks(bytes);
    if let Ok(extent) = Extent::decode(bytes) {
        for (skip, take) in [(0, u64::MAX), (u64::MAX, 1), (1, 0), (3, u64::MAX)] {
            let part = extent.part(skip, take);
            assert!(part.blocks() <= extent.blocks());
            let _ = part.sectors();
        }
    }
    if let Ok(view) = PageView::new(bytes) {
        assert_eq!(view.items().count(), view.count());
        let _ = view.children().count();
    }
}

proptest! {
    #[test]
    fn decoders_never_panic_on_random_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        tag in 0u8..10,
    ) {
        decode_all(&bytes);
        let mut tagged = vec![tag];
        tagged.extend_from_slice(&bytes);
        decode_all(&tagged);
    }

    /// What a checksum would have caught is handed on as if it had not.
    #[test]
    fn payload_decoders_never_panic_on_flipped_bytes(
        which in 0usize..13,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut record = Vec::new();
        samples::ops().iter().for_each(|op| op.encode(&mut record));
        let [frame, _, _, compressed, packed, part, shared, near, of_frame] = samples::extents();
        let samples = [
            samples::footer().encode(),
            record,
            samples::inode().encode(),
            frame.encode(),
            compressed.encode(),
            packed.encode(),
            part.encode(),
            shared.encode(),
            near.encode(),
            of_frame.encode(),
            samples::references().1.encode(),
            samples::zit_chunk()[48..112].to_vec(),
            samples::summary()[48..].to_vec(),
        ];
        let mut bytes = samples[which].clone();
        for (at, xor) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
        }
        decode_all(&bytes);
    }

    /// Sealed again after the flip, so that the fields behind the checksum are reached.
    #[test]
    fn sealed_nonsense_never_panics(
        which in 0usize..5,
        flips in proptest::collection::vec((48usize..160, any::<u8>()), 1..8),
    ) {
        let key = samples::key();
        let samples = [
            samples::journal_block(),
            samples::compressed_journal_block(),
            samples::footer_block(),
            samples::summary(),
            samples::mat_chunk(),
        ];
        let mut block = samples[which].clone();
        let fields = envelope::peek(&block).unwrap();
        for (at, value) in flips {
            block[at] = value;
        }
        let len = fields.payload_len as usize;
        envelope::seal(&mut block, &key, fields.kind, fields.owner, fields.sequence, len);
        decode_all(&block);
        if let Ok((_, payload)) = envelope::open(&block, &key, fields.kind, None) {
            decode_all(payload);
        }
    }

    #[test]
    fn damaged_page_images_never_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_header in any::<bool>(),
    ) {
        let mut image = samples::leaf_image();
        for (at, xor) in flips {
            let at = at.index(if in_header { 120 } else { PAGE_SIZE });
            image[at] ^= xor;
        }
        decode_all(&image);
    }
}
