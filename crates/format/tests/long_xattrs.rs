//! Values of extended attributes in pieces: what is cut joins again, and nothing else does.

#![allow(clippy::unwrap_used)]

use persimmon_format::page::VALUE_LEN_MAX;
use persimmon_format::xattr::{
    Joined, Piece, Pieces, SLOT_END, XATTR_INLINE_MAX, XATTR_VALUE_MAX, Xattr, XattrValue, cut,
    piece_key, slot_keys, slot_of,
};
use persimmon_format::{Ino, Key};
use proptest::prelude::*;

proptest! {
    /// A value of any length, cut and joined again; and with any of its pieces gone, changed, or of another value it is none.
    #[test]
    fn values_in_pieces(
        name in prop::collection::vec(any::<u8>(), 1..=255),
        slot in prop_oneof![0..SLOT_END, Just(SLOT_END - 1)],
        len in XATTR_INLINE_MAX + 1..=XATTR_VALUE_MAX,
        seed in any::<u8>(),
        which in any::<prop::sample::Index>(),
    ) {
        let value: Vec<u8> = (0..len).map(|at| (at / 7) as u8 ^ seed).collect();
        let pieces = Pieces::new(slot, &value).unwrap();
        let xattr = Xattr { name: &name, value: XattrValue::Pieces(pieces) };
        let bytes = xattr.encode();
        prop_assert!(bytes.len() <= VALUE_LEN_MAX);
        prop_assert_eq!(Xattr::decode(&bytes), Ok(xattr));
        let keys = slot_keys(Ino(5), slot);
        let items: Vec<(Key, Vec<u8>)> = (0..)
            .zip(cut(&value))
            .map(|(number, bytes)| (piece_key(Ino(5), slot, number), bytes))
            .collect();
        prop_assert_eq!(items.len(), pieces.count());
        for (key, bytes) in &items {
            prop_assert!(keys.contains(key) && slot_of(key) == Some(slot));
            prop_assert!(bytes.len() <= VALUE_LEN_MAX && !key.is_whiteout(bytes));
            let piece = Piece::decode(key, bytes).unwrap();
            prop_assert_eq!(&piece.encode(), bytes);
        }
        let join = |items: &[(Key, Vec<u8>)]| -> persimmon_format::Result<Vec<u8>> {
            let mut joined = Joined::new(pieces);
            items.iter().try_for_each(|(key, bytes)| joined.item(key, bytes))?;
            joined.finish()
        };
        prop_assert_eq!(join(&items), Ok(value.clone()));
        let at = which.index(items.len());
        let mut lacking = items.clone();
        lacking.remove(at);
        prop_assert!(join(&lacking).is_err());
        let mut changed = items.clone();
        let last = changed[at].1.len() - 1;
        changed[at].1[last] ^= 1;
        prop_assert!(join(&changed).is_err());
        let mut shorter = items.clone();
        shorter[at].1.pop();
        prop_assert!(join(&shorter).is_err());
        let mut moved = items.clone();
        moved[at].0.item += 1;
        prop_assert!(join(&moved).is_err());
        let mut more = items;
        more.push((piece_key(Ino(5), slot, pieces.count() as u8), vec![pieces.count() as u8, 1]));
        prop_assert!(join(&more).is_err());
    }
}

#[test]
fn lengths_and_slots_that_no_value_in_pieces_has() {
    for len in [0, XATTR_INLINE_MAX, XATTR_VALUE_MAX + 1] {
        assert!(Pieces::new(0, &vec![1; len]).is_err(), "{len}");
    }
    let value = vec![1; XATTR_INLINE_MAX + 1];
    assert!(Pieces::new(SLOT_END, &value).is_err());
    let xattr = Xattr {
        name: b"user.a",
        value: XattrValue::Pieces(Pieces::new(SLOT_END - 1, &value).unwrap()),
    };
    let good = xattr.encode();
    assert_eq!(Xattr::decode(&good), Ok(xattr));
    // Its slot, its length, and something behind it.
    for (at, byte) in [(15, 0xff), (16, 0), (17, 0), (18, 1)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert!(Xattr::decode(&bad).is_err(), "{at}");
    }
    assert!(Xattr::decode(&[&good[..], &[0]].concat()).is_err());
    assert!(Xattr::decode(&good[..good.len() - 1]).is_err());
    assert!(Xattr::decode(&[0]).is_err());
}
