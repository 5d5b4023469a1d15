//! The tree against a map.

use std::collections::BTreeMap;

use persimmon_format::{Ino, Key, KeyKind};

use super::*;

#[test]
fn many_items_in_and_out_again() {
    let mut cache = PageCache::new();
    let mut root = create(&mut cache);
    let mut map = BTreeMap::new();
    let mut x = 1u64;
    for round in 0..3 {
        for _ in 0..20_000 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let key = Key::new(Ino(x >> 60), KeyKind(1), (x >> 20) % 30_000);
            if x % 7 < 4 - round {
                let value = vec![x as u8; (x >> 33) as usize % 300];
                assert_eq!(
                    insert(&mut cache, &mut root, &key, &value),
                    map.insert(key, value).is_some()
                );
            } else {
                assert_eq!(
                    remove(&mut cache, &mut root, &key),
                    map.remove(&key).is_some()
                );
            }
        }
        let shape = verify(&cache, root).unwrap();
        assert_eq!(shape.items, map.len());
        assert_eq!(shape.pages, cache.allocated());
        let items: Vec<_> = range(&cache, root, ..).map(|item| item.unwrap()).collect();
        assert!(
            items
                .iter()
                .map(|(k, v)| (k, *v))
                .eq(map.iter().map(|(k, v)| (k, v.as_slice())))
        );
    }
    for key in map.keys() {
        assert!(remove(&mut cache, &mut root, key));
    }
    assert_eq!(verify(&cache, root).unwrap().pages, 1);
    assert_eq!(cache.fault(), None);
}
