//! A page against a map, its image, and images that are none.

use std::collections::BTreeMap;

use persimmon_format::page::{PAGE_SIZE, VALUE_LEN_MAX};
use persimmon_format::{Ino, Key, KeyKind, PageId, VersionId};
use proptest::prelude::*;

use super::{CAPACITY_BYTES, Expected, Page, PageError, item_bytes, slot_value};

type Items = BTreeMap<Key, Vec<u8>>;

/// Keys that are often near each other in every field, and at the ends of its range.
fn any_key() -> impl Strategy<Value = Key> {
    let edge = |max: u64| prop_oneof![4 => 0..6u64, 1 => (max - 2)..=max, 1 => 0..=max];
    (
        edge(u64::MAX),
        edge(255),
        edge(u64::MAX),
        edge(u32::MAX.into()),
    )
        .prop_map(|(ino, kind, item, snapshot)| Key {
            ino: Ino(ino),
            kind: KeyKind(kind as u8),
            item,
            version: VersionId(snapshot as u32),
        })
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![6 => 0..40usize, 4 => 0..400usize, 1 => 0..=VALUE_LEN_MAX];
    (any::<u8>(), len).prop_map(|(byte, len)| (0..len).map(|at| byte ^ at as u8).collect())
}

fn any_edits(max: usize) -> impl Strategy<Value = Vec<(Key, Option<Vec<u8>>)>> {
    let value = prop_oneof![3 => any_value().prop_map(Some), 1 => Just(None)];
    prop::collection::vec((any_key(), value), 0..max)
}

fn items(page: &Page) -> Items {
    (0..page.count())
        .map(|index| (page.key(index), page.value(index).to_vec()))
        .collect()
}

fn used(items: &Items) -> usize {
    items.values().map(|value| item_bytes(value.len())).sum()
}

fn image(page: &Page, sequence: u64) -> Box<[u8; PAGE_SIZE]> {
    // What was in the buffer must not show.
    let mut image = Box::new([0xA5; PAGE_SIZE]);
    page.write_image(sequence, &mut image);
    image
}

/// Edits page and map alike; checks that the page refuses exactly what does not fit.
fn edit(page: &mut Page, map: &mut Items, key: Key, value: Option<Vec<u8>>) {
    let mut wanted = map.clone();
    let Some(value) = value else {
        assert_eq!(page.search(&key).is_ok(), map.remove(&key).is_some());
        if let Ok(index) = page.search(&key) {
            page.remove(index);
        }
        return;
    };
    wanted.insert(key, value.clone());
    let done = match page.search(&key) {
        Ok(index) => page.replace(index, &value),
        Err(index) => page.insert(index, &key, &value),
    };
    assert_eq!(done, used(&wanted) <= CAPACITY_BYTES);
    if done {
        *map = wanted;
    }
}

fn filled(edits: Vec<(Key, Option<Vec<u8>>)>) -> (Page, Items) {
    let mut page = Page::new(PageId(7), 0);
    let mut map = Items::new();
    for (key, value) in edits {
        edit(&mut page, &mut map, key, value);
    }
    (page, map)
}

/// Touches whatever a page can be asked for.
fn use_all(page: &Page) -> usize {
    let seen: usize = (0..page.count())
        .map(|index| {
            assert_eq!(page.search(&page.key(index)), Ok(index));
            let child = if page.level() > 0 {
                page.child(index).0
            } else {
                0
            };
            page.value(index).len() + child as usize % 2
        })
        .sum();
    seen + page.used_bytes()
}

proptest! {
    #[test]
    fn page_is_a_map(edits in any_edits(400), probe in any_key()) {
        let mut page = Page::new(PageId(7), 0);
        let mut map = Items::new();
        for (key, value) in edits {
            edit(&mut page, &mut map, key, value);
            prop_assert_eq!(page.used_bytes(), used(&map));
        }
        prop_assert_eq!(items(&page), map.clone());
        prop_assert!((0..page.count()).map(|index| page.key(index)).eq(map.keys().copied()));
        let below = map.range(..probe).count();
        let expected = if map.contains_key(&probe) { Ok(below) } else { Err(below) };
        prop_assert_eq!(page.search(&probe), expected);
        let not_above = map.range(..=probe).count();
        prop_assert_eq!(page.child_index(&probe), not_above.saturating_sub(1));
    }

    #[test]
    fn expectations_change_no_answer(
        edits in any_edits(400),
        crowd in prop::collection::vec((0..3u64, 0..1000u64), 0..400),
        probes in prop::collection::vec(any_key(), 20),
        lower in any_key(),
        upper in prop::option::of(any_key()),
        far in 0..800usize,
    ) {
        let (mut page, mut map) = filled(edits);
        for (ino, item) in crowd {
            edit(&mut page, &mut map, Key::new(Ino(ino), KeyKind(3), item), Some(Vec::new()));
        }
        let expected = Expected { count: page.count(), lower, upper };
        for key in probes.iter().chain(map.keys()) {
            let found = page.search(key);
            let (Ok(place) | Err(place)) = found;
            let beside = place.saturating_sub(2)..place + 4;
            for near in beside.chain([far, usize::MAX]) {
                prop_assert_eq!(page.search_expecting(key, &expected, near), found);
            }
            let child = page.child_index_expecting(key, &expected);
            prop_assert_eq!(child, page.child_index(key));
        }
    }

    #[test]
    fn image_depends_on_items_alone(edits in any_edits(300)) {
        let (page, map) = filled(edits);
        let mut ordered = Page::new(PageId(7), 0);
        for (key, value) in &map {
            prop_assert!(ordered.insert(ordered.count(), key, value));
        }
        let image = image(&page, 9);
        prop_assert_eq!(&image[..], &super::tests::image(&ordered, 9)[..]);
        let read = Page::validate_as(&image[..], PageId(7)).unwrap();
        prop_assert_eq!((read.sequence(), items(&read)), (9, map));
        prop_assert_eq!(&image[..], &super::tests::image(&read, 9)[..]);
    }

    #[test]
    fn split_keeps_every_item(edits in any_edits(500), extra in any_edits(60)) {
        let (mut page, mut map) = filled(edits);
        for (key, value) in extra {
            let Some(value) = value else { continue };
            let Err(index) = page.search(&key) else { continue };
            if page.fits(value.len()) {
                edit(&mut page, &mut map, key, Some(value));
                continue;
            }
            let mut right = Page::new(PageId(8), 0);
            let lower = page.split_insert(&mut right, index, &key, &value);
            map.insert(key, value);
            prop_assert!(page.count() > 0 && right.count() > 0);
            prop_assert_eq!(lower, right.key(0));
            prop_assert!(page.key(page.count() - 1) < lower);
            let mut both = items(&page);
            both.extend(items(&right));
            prop_assert_eq!(&both, &map);
            for half in [&page, &right] {
                prop_assert_eq!(half.used_bytes(), used(&items(half)));
                prop_assert!(Page::validate(&image(half, 1)[..]).is_ok());
            }
            if page.used_bytes() + right.used_bytes() <= CAPACITY_BYTES {
                page.append(&right);
                prop_assert_eq!(&items(&page), &map);
            } else {
                map = items(&page);
            }
        }
    }

    #[test]
    fn damaged_image_is_refused_or_harmless(
        edits in any_edits(200),
        level in prop_oneof![Just(0u8), 1..14u8],
        flips in prop::collection::vec((prop_oneof![3 => 0..200usize, 1 => 0..PAGE_SIZE], any::<u8>()), 1..6),
        more in any_edits(30),
    ) {
        let (page, _) = filled(edits);
        let mut image = image(&page, 3);
        image[0] = level;
        for (at, bits) in flips {
            image[at] ^= bits;
        }
        if let Ok(mut page) = Page::validate(&image[..]) {
            use_all(&page);
            let mut map = items(&page);
            prop_assert_eq!(map.len(), page.count());
            for (key, value) in more {
                edit(&mut page, &mut map, key, value);
            }
            prop_assert_eq!(items(&page), map);
        }
    }

    #[test]
    fn random_bytes_do_no_harm(
        header in prop::collection::vec(any::<u8>(), 8),
        body in prop::collection::vec(any::<u8>(), PAGE_SIZE),
    ) {
        let mut image = vec![0; PAGE_SIZE];
        image.copy_from_slice(&body);
        prop_assert!(Page::validate(&image).map(|page| use_all(&page)).is_err());
        // Past the first checks more often.
        image[..8].copy_from_slice(&header);
        image[..2].fill(0);
        image[3] = 0;
        image[24..32].fill(0);
        let _ = Page::validate(&image).map(|page| use_all(&page));
    }
}

#[test]
fn image_bytes() {
    let mut page = Page::new(PageId(0x0102_0304), 0);
    let key = |item| Key {
        item,
        ..Key::new(Ino(0x11), KeyKind(0x22), 0)
    };
    let second = Key {
        version: VersionId(0x44),
        ..key(0x33)
    };
    assert!(page.insert(0, &second, b"second"));
    assert!(page.insert(0, &key(0x32), b"one"));
    let image = image(&page, 0x0506);
    let header = [
        0, 0, 2, 0, 0xF7, 0x3F, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, // level .. id
        6, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // sequence, zeros
    ];
    assert_eq!(image[..32], header);
    let first_slot = [
        0x11, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // key
        0xFD, 0x3F, 3, 0, // offset, length
    ];
    let second_slot = [
        0x11, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x33, 0, 0, 0, 0, 0, 0, 0, 0x44, 0, 0, 0, // key
        0xF7, 0x3F, 6, 0, // offset, length
    ];
    assert_eq!(image[32..57], first_slot);
    assert_eq!(image[57..82], second_slot);
    assert!(image[82..PAGE_SIZE - 9].iter().all(|&byte| byte == 0));
    assert_eq!(&image[PAGE_SIZE - 9..], b"secondone");
}

#[test]
fn each_check_has_its_error() {
    let mut page = Page::new(PageId(5), 0);
    for item in 0..3 {
        assert!(page.insert(page.count(), &Key::new(Ino(1), KeyKind(1), item), &[1; 8]));
    }
    let good = image(&page, 1);
    let error = |changes: &[(usize, u8)]| {
        let mut image = good.clone();
        for &(at, byte) in changes {
            image[at] = byte;
        }
        Page::validate(&image[..]).err()
    };
    assert_eq!(error(&[]), None);
    assert_eq!(error(&[(0, 1)]), None);
    assert_eq!(error(&[(0, 13)]), Some(PageError::Level(13)));
    assert_eq!(error(&[(1, 1)]), Some(PageError::Reserved));
    assert_eq!(error(&[(31, 1)]), Some(PageError::Reserved));
    assert_eq!(error(&[(3, 3)]), Some(PageError::Count(771)));
    assert_eq!(error(&[(2, 0), (0, 1)]), Some(PageError::Count(0)));
    assert_eq!(error(&[(2, 2)]), Some(PageError::Heap));
    assert_eq!(error(&[(4, 0)]), Some(PageError::Heap));
    assert_eq!(error(&[(6, 1)]), Some(PageError::Heap));
    assert_eq!(error(&[(32 + 9, 1)]), Some(PageError::Order(1)));
    assert_eq!(error(&[(32 + 25 + 9, 9)]), Some(PageError::Order(2)));
    assert_eq!(error(&[(32 + 21, 0)]), Some(PageError::Value(0)));
    assert_eq!(error(&[(32 + 24, 255)]), Some(PageError::Value(0)));
    let one_byte_down = [(32 + 23, 9), (32 + 21, 0xF7), (32 + 22, 0x3F)];
    assert_eq!(error(&one_byte_down), Some(PageError::Value(1)));
    let size = Page::validate(&good[1..]).err();
    assert_eq!(size, Some(PageError::Size(PAGE_SIZE - 1)));
    let id = Page::validate_as(&good[..], PageId(6)).err();
    assert_eq!(
        id,
        Some(PageError::Id {
            expected: PageId(6),
            found: PageId(5)
        })
    );
}

#[test]
fn full_page_of_keys_alone() {
    let mut page = Page::new(PageId(1), 0);
    let key = |item: usize| Key::new(Ino(1), KeyKind(1), item as u64);
    let mut count = 0;
    while page.insert(count, &key(count), &[]) {
        count += 1;
    }
    assert_eq!(count, CAPACITY_BYTES / item_bytes(0));
    let read = Page::validate(&image(&page, 1)[..]).unwrap();
    assert_eq!(
        (read.count(), read.search(&key(count - 1))),
        (count, Ok(count - 1))
    );
    assert!(!page.insert(0, &key(0), &vec![0; VALUE_LEN_MAX + 1]));
}

/// Packing orders all values anew, which takes long.
#[test]
fn full_page_whose_values_are_exchanged_is_not_packed() {
    let key = |item: usize| Key::new(Ino(1), KeyKind(3), item as u64);
    let mut page = Page::new(PageId(1), 0);
    let mut map = Items::new();
    // The last first: packed values lie the other way round.
    for item in (0..).take(1000) {
        let key = key(999 - item);
        if !page.insert(0, &key, &[item as u8; 12]) {
            break;
        }
        map.insert(key, vec![item as u8; 12]);
    }
    let places = |page: &Page| -> Vec<_> { page.slots().iter().map(slot_value).collect() };
    let before = places(&page);
    for round in 1..3 {
        for (index, key) in map.clone().keys().enumerate() {
            let value = vec![round; 12];
            page.remove(index);
            assert!(page.insert(index, key, &value));
            map.insert(*key, value);
        }
    }
    assert_eq!((items(&page), page.used_bytes()), (map.clone(), used(&map)));
    assert_eq!(places(&page), before);
    let read = Page::validate(&image(&page, 1)[..]).unwrap();
    assert_eq!(items(&read), map);
}
