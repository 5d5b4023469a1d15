//! What was written by a newer program is told from what is damaged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod samples;

use persimmon_format::envelope::{self, Kind};
use persimmon_format::footer::Footer;
use persimmon_format::gate::{Features, FixedFields, volume_of};
use persimmon_format::log::LogBlock;
use persimmon_format::summary::Summary;
use persimmon_format::zone_header::{FORMAT_VERSION, PROPERTIES, REQUIRED, ZoneHeader};
use persimmon_format::{BLOCK_SIZE, FormatError, checksum};

const NEWER: u32 = FORMAT_VERSION + 1;

/// Changes a header as a newer program would have written it.
fn newer_header(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = samples::zone_header().encode();
    change(&mut block[..BLOCK_SIZE - 8]);
    let sum = checksum::plain(&block[..BLOCK_SIZE - 8]);
    block[BLOCK_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
    block
}

#[test]
fn fixed_fields_are_read_of_any_version() {
    let sample = samples::zone_header();
    let fields = FixedFields::read(&sample.encode()).unwrap();
    assert_eq!(fields.check(), Ok(()));
    // Whatever else a newer version has in it.
    let block = newer_header(|block| {
        block[8..12].copy_from_slice(&NEWER.to_le_bytes());
        block[12..16].fill(0xff);
        block[32..64].fill(0xff);
        block[152..160].fill(0xff);
        block[168..].fill(0xff);
    });
    let newer = FixedFields::read(&block).unwrap();
    let expected = FixedFields {
        version: NEWER,
        ..fields
    };
    assert_eq!(newer, expected);
    assert_eq!(newer.uuid, sample.volume.uuid);
    assert_eq!(newer.sequence, sample.sequence);
    assert!(matches!(
        ZoneHeader::decode(&block),
        Err(FormatError::NewerVersion { found: NEWER, .. })
    ));
    assert_eq!(newer.check(), ZoneHeader::decode(&block).map(drop));
}

#[test]
fn unknown_and_missing_features_are_told_from_damage() {
    for bit in 0..u64::BITS {
        let flag = 1u64 << bit;
        let features = Features {
            incompatible: REQUIRED | flag,
            read_only_compatible: flag,
            compatible: flag,
        };
        let known = features.incompatible & !persimmon_format::zone_header::KNOWN_INCOMPATIBLE == 0;
        assert_eq!(features.check().is_ok(), known, "bit {bit}");
        assert_eq!(features.unknown_to_write(), flag);
        let has_properties = features.incompatible & PROPERTIES != 0;
        let footer = Footer {
            features,
            properties: has_properties.then(|| samples::identity().properties()),
            ..samples::footer()
        };
        assert_eq!(Footer::decode(&footer.encode()).is_ok(), known, "bit {bit}");
        let block = newer_header(|block| {
            block[128..136].copy_from_slice(&features.incompatible.to_le_bytes());
        });
        match ZoneHeader::decode(&block) {
            Err(FormatError::UnknownFeatures { unknown }) => {
                assert_eq!((unknown, known), (flag, false))
            }
            // Another field may have to go with it.
            _ => assert!(known),
        }
    }
    let without = newer_header(|block| block[128..136].fill(0));
    let error = ZoneHeader::decode(&without).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert!(matches!(error, FormatError::MissingFeatures { missing } if missing == REQUIRED));
}

/// A block of a newer version whose checksum is right was taken for a torn one by whoever looked at its kind
/// first.
#[test]
fn envelopes_of_a_newer_version_are_not_torn() {
    let key = samples::key();
    let newer = |mut block: Vec<u8>, kind: u8| {
        block[4] = kind;
        block[5] = envelope::VERSION + 1;
        samples::reseal(&mut block);
        block
    };
    let is_newer = |error: Option<FormatError>| {
        matches!(error, Some(FormatError::NewerVersion { found: 2, .. }))
    };
    for kind in [1, 2, 5, 6, 77] {
        let block = newer(samples::journal_block(), kind);
        assert!(
            is_newer(envelope::check_version(&block, &key).err()),
            "kind {kind}"
        );
        assert!(
            is_newer(LogBlock::decode(&block, &key, 1).err()),
            "kind {kind}"
        );
        assert!(is_newer(
            envelope::open(&block, &key, Kind::Page, None).err()
        ));
        assert!(is_newer(Summary::decode(&block, &key, 1, 2).err()));
        // Damaged, or of another volume, it is nothing.
        let mut damaged = block.clone();
        damaged[3000] ^= 1;
        assert_eq!(envelope::check_version(&damaged, &key), Ok(()));
        assert!(
            !LogBlock::decode(&damaged, &key, 1)
                .unwrap_err()
                .is_unsupported()
        );
        let mut other = block;
        other[8] ^= 1;
        samples::reseal(&mut other);
        assert_eq!(envelope::check_version(&other, &key), Ok(()));
    }
}

#[test]
fn the_volume_is_the_one_that_most_zones_name() {
    let header = |uuid: u8, sequence: u64| FixedFields {
        version: 7,
        uuid: [uuid; 16],
        label: String::new(),
        features: Features::default(),
        sequence,
    };
    let volume = |headers: &[(u8, u64, bool)]| {
        let fields: Vec<_> = headers
            .iter()
            .map(|(u, s, live)| (header(*u, *s), *live))
            .collect();
        volume_of(fields.iter().map(|(fields, live)| (fields, *live))).map(|uuid| uuid[0])
    };
    assert_eq!(volume(&[]), None);
    assert_eq!(volume(&[(1, 9, true), (2, 3, true), (2, 4, true)]), Some(2));
    assert_eq!(volume(&[(1, 9, true), (2, 3, true)]), Some(1));
    // Zones that take no reset keep what an earlier volume left.
    assert_eq!(
        volume(&[(1, 9, false), (1, 8, false), (2, 3, true)]),
        Some(2)
    );
    assert_eq!(volume(&[(1, 9, false), (2, 3, false)]), Some(1));
}
