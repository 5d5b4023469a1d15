//! How full pages are, and how many are left.

use super::*;
use crate::meta::page::CAPACITY_BYTES;

fn key(ino: u64, item: u64) -> Key {
    Key::new(Ino(ino), KeyKind(1), item)
}

fn fill(world: &World) -> f64 {
    let shape = verify(&world.cache, world.root).unwrap();
    shape.used_bytes as f64 / (shape.pages * CAPACITY_BYTES) as f64
}

fn put(world: &mut World, key: Key, len: usize) {
    world.change(&[(key, Some(vec![3; len]))]);
}

#[test]
fn keys_in_order_fill_pages() {
    let mut world = World::new();
    (0..100_000).for_each(|item| put(&mut world, key(1, item), 20));
    assert!(fill(&world) > 0.98, "{}", fill(&world));
}

#[test]
fn files_growing_side_by_side_fill_pages() {
    let mut world = World::new();
    for item in 0..2000 {
        (1..=10).for_each(|ino| put(&mut world, key(ino, item), 300));
    }
    assert!(fill(&world) > 0.9, "{}", fill(&world));
}

#[test]
fn keys_in_any_order_fill_pages_two_thirds() {
    let mut world = World::new();
    (0..50_000u64).for_each(|n| {
        put(
            &mut world,
            key(1, n.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            80,
        )
    });
    assert!(fill(&world) > 0.6, "{}", fill(&world));
}

#[test]
fn removing_leaves_no_pages_behind() {
    let scattered = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for order in [|n| n, |n| 49_999 - n, |n| n * 7919 % 50_000] as [fn(u64) -> u64; 3] {
        let mut world = World::new();
        (0..50_000).for_each(|n| put(&mut world, key(1, scattered(n)), 60));
        let mut keys: Vec<Key> = world.map.keys().copied().collect();
        keys = (0..50_000).map(|n| keys[order(n) as usize]).collect();
        for (n, key) in keys.into_iter().enumerate() {
            world.change(&[(key, None)]);
            if n % 10_000 == 0 {
                let shape = verify(&world.cache, world.root).unwrap();
                assert_eq!(
                    (shape.pages, shape.empty_leaves),
                    (world.cache.allocated(), 0)
                );
            }
        }
        let shape = verify(&world.cache, world.root).unwrap();
        assert_eq!((shape.pages, shape.height), (1, 0));
        assert_eq!((world.cache.allocated(), world.cache.resident()), (1, 1));
    }
}

#[test]
fn empty_leaf_stays_until_its_heir_is_in_memory() {
    let mut world = World::new();
    (0..1000).for_each(|item| put(&mut world, key(1, item), 100));
    let remove_leaf = |world: &mut World, slot: usize| {
        let items: Vec<Key> = world.read(|cache, root| {
            let leaf = cache.get(cache.get(root)?.child(slot))?;
            Ok((0..leaf.count()).map(|index| leaf.key(index)).collect())
        });
        items
            .into_iter()
            .for_each(|key| world.change(&[(key, None)]));
    };
    let empty = |world: &mut World| world.read(verify).empty_leaves;
    for (slot, left) in [(3, 1), (4, 2)] {
        world.check();
        remove_leaf(&mut world, slot);
        assert_eq!(empty(&mut world), left);
    }
    // An empty leaf is found and filled.
    put(&mut world, key(1, 450), 10);
    assert_eq!(empty(&mut world), 1);
    // With all in memory, neighbours join as they become underfull, and the last of them goes.
    let pages = world.cache.allocated();
    remove_leaf(&mut world, 5);
    assert_eq!((empty(&mut world), world.cache.allocated()), (0, pages - 2));
    // The first of all has its heir on the right.
    remove_leaf(&mut world, 0);
    assert_eq!((empty(&mut world), world.cache.allocated()), (0, pages - 3));
    world.check();
    world.read(verify);
    (0..1000)
        .rev()
        .for_each(|item| world.change(&[(key(1, item), None)]));
    assert_eq!(world.read(verify).pages, 1);
}

#[test]
fn ids_freed_are_used_again_from_the_smallest() {
    let mut cache = PageCache::new();
    let ids: Vec<PageId> = (0..5).map(|_| create(&mut cache)).collect();
    cache.take_dirty();
    for id in [3, 1, 4] {
        cache.free(ids[id]);
        cache.free(ids[id]);
    }
    assert_eq!(
        (cache.allocated(), cache.resident(), cache.id_limit()),
        (2, 2, 5)
    );
    assert_eq!(create(&mut cache), ids[1]);
    assert_eq!(cache.take_freed(), [ids[3], ids[4]]);
    assert_eq!(cache.take_freed(), []);
    cache.redirty([ids[0], ids[3]], [ids[3], ids[4]]);
    assert_eq!(create(&mut cache), ids[3]);
    assert_eq!(cache.take_freed(), [ids[4]]);
    let dirty: BTreeSet<PageId> = cache.take_dirty().into_iter().map(|(id, _)| id).collect();
    assert_eq!(dirty, BTreeSet::from([ids[0], ids[1], ids[3]]));
}

#[test]
fn stale_pages_are_not_taken_in() {
    let mut cache = PageCache::new();
    let id = create(&mut cache);
    let page = cache.share(id).unwrap();
    assert!(!cache.insert_clean(id, page.clone()), "it is in memory");
    cache.free(id);
    assert!(!cache.insert_clean(id, page.clone()), "it is free");
    assert!(
        !cache.insert_clean(PageId(u64::MAX), page.clone()),
        "no such id"
    );
    let mut cache = PageCache::with_ids(2, |_| true);
    assert!(!cache.insert_clean(PageId(1), page.clone()), "another page");
    assert!(cache.insert_clean(id, page));
    assert_eq!((cache.resident(), cache.dirty()), (1, 0));
}

#[test]
fn pages_in_use_stay_longer() {
    let mut cache = PageCache::new();
    let ids: Vec<PageId> = (0..100).map(|_| create(&mut cache)).collect();
    assert_eq!(cache.evict(0), 0, "dirty pages stay");
    cache.take_dirty();
    assert_eq!(cache.evict(0), 0, "pages being written stay");
    cache.finish_writing(ids.iter().copied());
    assert_eq!(cache.evict(90), 10);
    let kept: Vec<PageId> = ids
        .iter()
        .copied()
        .filter(|&id| cache.share(id).is_ok())
        .collect();
    let used = &kept[..30];
    assert!(used.iter().all(|&id| cache.get(id).is_ok()));
    assert_eq!(cache.evict(50), 40);
    assert!(used.iter().all(|&id| cache.share(id).is_ok()));
}
