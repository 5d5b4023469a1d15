//! Trees of pages that are well formed but do not belong together: every call ends, with an
//! error at worst.

use super::*;

#[derive(Clone, Debug)]
enum Harm {
    /// A child becomes another page.
    Child(usize, usize, usize),
    /// A key becomes another one, if the page stays in order.
    Key(usize, usize, Key),
    /// A page is put in another's place.
    Copy(usize, usize),
    /// A page gets another level.
    Level(usize, u8),
    /// A leaf loses all items.
    Empty(usize),
}

fn any_harm() -> impl Strategy<Value = Harm> {
    let n = any::<usize>;
    prop_oneof![
        (n(), n(), n()).prop_map(|(page, slot, child)| Harm::Child(page, slot, child)),
        (n(), n(), any_key()).prop_map(|(page, slot, key)| Harm::Key(page, slot, key)),
        (n(), n()).prop_map(|(from, to)| Harm::Copy(from, to)),
        (n(), 0..=LEVEL_MAX).prop_map(|(page, level)| Harm::Level(page, level)),
        n().prop_map(Harm::Empty),
    ]
}

/// Does the harm to the stored images, as far as each page stays valid in itself.
fn harm(world: &mut World, harm: Harm) {
    let ids: Vec<PageId> = (0..world.cache.id_limit())
        .map(PageId)
        .filter(|id| world.stored.contains_key(id))
        .collect();
    let pick = |n: usize| ids[n % ids.len()];
    let load = |id: PageId| Page::validate(&world.stored[&id][..]).unwrap();
    let (id, page) = match harm {
        Harm::Child(id, slot, child) => {
            let inner: Vec<PageId> = ids
                .iter()
                .copied()
                .filter(|&id| load(id).level() > 0)
                .collect();
            let Some(&id) = inner.get(id % inner.len().max(1)) else {
                return;
            };
            let mut page = load(id);
            assert!(page.replace(slot % page.count(), &pick(child).0.to_le_bytes()));
            (id, page)
        }
        Harm::Key(id, slot, key) => {
            let mut page = load(pick(id));
            if page.count() == 0 {
                return;
            }
            page.set_key(slot % page.count(), &key);
            (pick(id), page)
        }
        Harm::Copy(from, to) => {
            let (from, mut page) = (
                load(pick(from)),
                Page::new(pick(to), load(pick(from)).level()),
            );
            page.append(&from);
            (pick(to), page)
        }
        Harm::Level(id, level) => {
            let mut image = image(&load(pick(id)), 1);
            image[0] = level;
            let Ok(page) = Page::validate(&image[..]) else {
                return;
            };
            (pick(id), page)
        }
        Harm::Empty(id) => match load(pick(id)).level() {
            0 => (pick(id), Page::new(pick(id), 0)),
            _ => return,
        },
    };
    let image = image(&page, 1);
    if Page::validate(&image[..]).is_ok() {
        world.stored.insert(id, image);
    }
}

/// Fetches what `call` misses until it succeeds, or something is found to be wrong.
fn attempt<T>(
    world: &mut World,
    call: impl Fn(&PageCache, PageId) -> Result<T, TreeError>,
) -> Result<T, TreeError> {
    loop {
        match call(&world.cache, world.root) {
            Err(TreeError::Missing(id))
                if world.cache.is_allocated(id) && world.stored.contains_key(&id) =>
            {
                world.fetch(id);
            }
            other => return other,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_trees_do_no_harm(
        items in prop::collection::vec((any_key(), any_value()), 1..400),
        harms in prop::collection::vec(any_harm(), 1..8),
        after in prop::collection::vec((any_key(), prop::option::of(any_value())), 1..400),
    ) {
        let mut world = World::new();
        let items: Vec<_> = items.into_iter().map(|(key, value)| (key, Some(value))).collect();
        world.change(&items);
        world.check();
        harms.into_iter().for_each(|one| harm(&mut world, one));
        let _ = attempt(&mut world, verify);
        for (key, value) in &after {
            let _ = attempt(&mut world, |cache, root| get(cache, root, key).map(drop));
            let _ = attempt(&mut world, |cache, root| floor(cache, root, key).map(drop));
            if attempt(&mut world, |cache, root| ensure_resident(cache, root, key)).is_ok() {
                match value {
                    Some(value) => insert(&mut world.cache, &mut world.root, key, value),
                    None => remove(&mut world.cache, &mut world.root, key),
                };
            }
        }
        let read = attempt(&mut world, |cache, root| {
            let mut previous = None;
            for item in range(cache, root, ..) {
                let (key, _) = item?;
                assert!(previous < Some(key));
                previous = Some(key);
            }
            Ok(())
        });
        // Whoever passes the whole check reads all items.
        if verify(&world.cache, world.root).is_ok() {
            prop_assert_eq!(read, Ok(()));
        }
    }
}

#[test]
fn page_that_is_its_own_child() {
    let mut world = World::new();
    let batch: Vec<_> = (0..500)
        .map(|item| (Key::new(Ino(1), KeyKind(1), item), Some(vec![1; 100])))
        .collect();
    world.change(&batch);
    let root = world.root;
    let to_itself = |page: &mut Page| page.replace(0, &root.0.to_le_bytes());
    assert_eq!(world.cache.edit(root, to_itself), Ok(true));
    let error = Err(damaged(root, TreeDamage::Level(1)));
    let key = KEY_MIN;
    assert_eq!(get(&world.cache, root, &key).map(drop), error);
    assert_eq!(floor(&world.cache, root, &key).map(drop), error);
    assert_eq!(ensure_resident(&world.cache, root, &key), error);
    assert_eq!(
        range(&world.cache, root, ..).next().unwrap().map(drop),
        error
    );
    assert_eq!(verify(&world.cache, root).map(drop), error);
}

/// Random damage once made iteration go backwards: a leaf was joined with a neighbour that held
/// keys of another range, which put a page out of order in memory.
#[test]
fn neighbour_with_keys_out_of_range_is_not_joined() {
    let mut world = World::new();
    let key = |item| Key::new(Ino(1), KeyKind(1), item);
    let batch: Vec<_> = (0..500)
        .map(|item| (key(item), Some(vec![1; 100])))
        .collect();
    world.change(&batch);
    let root = world.root;
    let (left, right) = {
        let page = world.cache.get(root).unwrap();
        (page.child(1), page.child(2))
    };
    let other = |page: &mut Page| {
        *page = Page::new(right, 0);
        page.insert(0, &key(0), &[2])
    };
    assert_eq!(world.cache.edit(right, other), Ok(true));
    let count = world.cache.get(left).unwrap().count();
    let keys: Vec<Key> = (0..count)
        .map(|at| world.cache.get(left).unwrap().key(at))
        .collect();
    keys[1..]
        .iter()
        .for_each(|key| assert!(remove(&mut world.cache, &mut world.root, key)));
    assert_eq!(
        verify(&world.cache, root).map(drop),
        Err(damaged(right, TreeDamage::Range))
    );
    assert_eq!(
        range(&world.cache, root, ..).filter(Result::is_err).count(),
        1
    );
}

#[test]
fn leaf_with_keys_of_another_branch_ends_an_iteration() {
    let key = |item| Key { item, ..KEY_MIN };
    let mut cache = PageCache::new();
    let mut page = |level, items: &[(u64, PageId)]| {
        let id = cache.alloc_id();
        let mut page = Page::new(id, level);
        for (at, (item, child)) in items.iter().enumerate() {
            assert!(page.insert(at, &key(*item), &child.0.to_le_bytes()));
        }
        cache.put_new(Arc::new(page));
        id
    };
    let none = PageId(0);
    let (first, stray) = (page(0, &[(10, none)]), page(0, &[(60, none), (150, none)]));
    let last = page(0, &[(100, none), (200, none)]);
    let (left, right) = (page(1, &[(0, first), (50, stray)]), page(1, &[(100, last)]));
    let root = page(2, &[(0, left), (100, right)]);
    let error = Err(damaged(stray, TreeDamage::Range));
    assert_eq!(verify(&cache, root).map(drop), error);
    let forward: Vec<_> = range(&cache, root, ..).map(|item| item.map(drop)).collect();
    assert_eq!(forward, [Ok(()), error]);
    assert_eq!(floor(&cache, root, &key(99)).map(drop), error);
    // Backwards from the leaf after it.
    assert!(remove(&mut cache, &mut root.clone(), &key(100)));
    assert_eq!(floor(&cache, root, &key(150)).map(drop), error);
}

/// Every inner page refers to one page in all its slots: 600^12 ways down. A walk must not try.
#[test]
fn walk_over_empty_leaves_that_are_one_ends() {
    let mut cache = PageCache::new();
    let mut below = create(&mut cache);
    for level in 1..=LEVEL_MAX {
        let id = cache.alloc_id();
        let mut page = Page::new(id, level);
        let mut item = 0;
        while page.insert(
            item as usize,
            &Key { item, ..KEY_MIN },
            &below.0.to_le_bytes(),
        ) {
            item += 1;
        }
        cache.put_new(Arc::new(page));
        below = id;
    }
    let last = Key {
        item: u64::MAX,
        ..KEY_MIN
    };
    assert!(matches!(
        floor(&cache, below, &last),
        Err(TreeError::Damaged { .. })
    ));
    let mut items = range(&cache, below, ..);
    assert!(matches!(items.next(), Some(Err(TreeError::Damaged { .. }))));
    assert!(verify(&cache, below).is_err());
}
