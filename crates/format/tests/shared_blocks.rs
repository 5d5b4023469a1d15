//! Shared blocks, as extents, counts and records tell of them.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

mod samples;

use persimmon_format::Ino;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::record::{Op, Share};
use persimmon_format::references::References;
use persimmon_format::shared_frame::SharedFrame;

/// Shared blocks that cannot be are refused, whatever is said of them.
#[test]
fn impossible_shared_blocks_are_refused() {
    let end = FILE_BLOCKS_END;
    let extent = |at, blocks| {
        let extent = Extent::Shared {
            at,
            blocks,
            frame: None,
        };
        let bytes = extent.encode();
        assert_eq!(Extent::peek_blocks(&bytes), Ok(blocks.into()));
        Extent::decode(&bytes).is_ok()
    };
    assert!(extent(0, 1) && extent(end - 256, 256) && extent(end - 1, 1));
    assert!(!extent(0, 0) && !extent(0, 257) && !extent(end - 255, 256) && !extent(end, 1));
    assert!(!extent(u64::MAX, 1));
    let mut bytes = Extent::Shared {
        at: 7,
        blocks: 3,
        frame: None,
    }
    .encode();
    bytes.push(0);
    assert!(Extent::decode(&bytes).is_err() && Extent::decode(&bytes[..10]).is_err());

    let of_frame = |at, blocks, (of, skip, sectors)| {
        let frame = SharedFrame {
            blocks: of,
            skip,
            sectors,
        };
        let frame = Some(frame);
        Extent::decode(&Extent::Shared { at, blocks, frame }.encode()).is_ok()
    };
    assert!(of_frame(0, 32, (32, 0, 256)) && of_frame(end - 1, 1, (32, 31, 1)));
    assert!(
        !of_frame(0, 33, (33, 0, 1)) && !of_frame(0, 0, (1, 0, 1)),
        "blocks"
    );
    assert!(
        !of_frame(0, 1, (0, 0, 1)) && !of_frame(0, 1, (1, 1, 1)),
        "parts"
    );
    assert!(
        !of_frame(0, 1, (1, 0, 9)) && !of_frame(0, 1, (1, 0, 0)),
        "sectors"
    );
    assert!(!of_frame(end - 1, 2, (2, 0, 1)), "out of the store");

    let counts = |item, blocks, count| {
        let bytes = References { blocks, count }.encode();
        References::decode(item, &bytes).is_ok()
    };
    assert!(counts(0, 1, 2) && counts(end - 1, 1, u32::MAX));
    assert!(!counts(0, 0, 2) && !counts(0, 1, 1) && !counts(0, 1, 0));
    assert!(!counts(end - 1, 2, 2) && !counts(end, 1, 2) && !counts(u64::MAX, 1, 2));
    let bytes = samples::references().1.encode();
    assert!(References::decode(0, &bytes[..7]).is_err());
    assert!(References::decode(0, &[&bytes[..], &[0]].concat()).is_err());

    let share = |(from, from_block): (u64, u64), (to, to_block), blocks, at| {
        let op = Op::Share(Share {
            from: Ino(from),
            from_block,
            to: Ino(to),
            to_block,
            blocks,
            at,
        });
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        Op::decode_all(&bytes).is_ok()
    };
    assert!(share((20, 0), (21, 0), 1, 0) && share((20, 5), (20, 0), 5, end - 5));
    assert!(!share((20, 0), (21, 0), 0, 0), "no blocks");
    assert!(!share((20, 5), (20, 1), 5, 0), "ranges overlap");
    assert!(!share((2, 0), (21, 0), 1, 9), "out of the store");
    assert!(!share((20, 0), (2, 0), 1, 9), "into the store");
    assert!(!share((20, end), (21, 0), 1, 0) && !share((20, 0), (21, end - 1), 2, 0));
    assert!(!share((20, 0), (21, 0), 2, end - 1) && !share((20, 0), (21, 0), u64::MAX, 1));

    let mut bytes = Vec::new();
    let shared = Extent::Shared {
        at: 7,
        blocks: 3,
        frame: None,
    };
    let map = Op::Map {
        ino: Ino(20),
        block: 0,
        extent: shared,
    };
    map.encode(&mut bytes);
    assert!(
        Op::decode_all(&bytes).is_err(),
        "a record maps shared blocks"
    );
}
