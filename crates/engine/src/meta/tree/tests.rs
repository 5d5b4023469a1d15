//! The tree over a cache that evicts, and checkpoints that take their time, against a map.

mod damage;
mod shape;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use persimmon_format::page::{PAGE_SIZE, VALUE_LEN_MAX};
use persimmon_format::{Ino, Key, KeyKind, PageId, VersionId};
use proptest::prelude::*;

use super::*;

/// A checkpoint under way: images as they were at the cut, and the cut's pages.
struct TreeCut {
    pages: Vec<(PageId, Arc<Page>)>,
    images: Vec<Box<[u8; PAGE_SIZE]>>,
    freed: Vec<PageId>,
}

/// A tree, and images of its pages as a device would hold them.
struct World {
    cache: PageCache,
    root: PageId,
    stored: HashMap<PageId, Box<[u8; PAGE_SIZE]>>,
    cut: Option<TreeCut>,
    sequence: u64,
    map: BTreeMap<Key, Vec<u8>>,
}

impl World {
    fn new() -> World {
        let mut cache = PageCache::new();
        let root = create(&mut cache);
        let (stored, map) = (HashMap::new(), BTreeMap::new());
        World {
            cache,
            root,
            stored,
            cut: None,
            sequence: 0,
            map,
        }
    }

    fn fetch(&mut self, id: PageId) {
        let image = self.stored.get(&id).expect("only stored pages are evicted");
        let page = Page::validate_as(&image[..], id).expect("stored pages are valid");
        assert!(self.cache.insert_clean(id, Arc::new(page)));
    }

    /// Runs `read` again and again, fetching what it misses.
    fn read<T>(&mut self, read: impl Fn(&PageCache, PageId) -> Result<T, TreeError>) -> T {
        loop {
            match read(&self.cache, self.root) {
                Ok(answer) => return answer,
                Err(TreeError::Missing(id)) => self.fetch(id),
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Applies changes as the engine does: all paths first, then all changes without a fetch.
    fn change(&mut self, batch: &[(Key, Option<Vec<u8>>)]) {
        for (key, _) in batch {
            self.read(|cache, root| ensure_resident(cache, root, key));
        }
        for (key, value) in batch {
            self.change_one(key, value.as_ref());
        }
        assert_eq!(self.cache.fault(), None);
    }

    /// Applies changes that look for neighbours in between.
    fn change_looking(&mut self, batch: &[(Key, Option<Vec<u8>>)], looks: &[Key]) {
        for key in looks {
            self.read(|cache, root| floor(cache, root, key).map(drop));
            self.read(|cache, root| range(cache, root, key..).next().transpose().map(drop));
        }
        for (key, _) in batch {
            self.read(|cache, root| ensure_around(cache, root, key));
        }
        for (key, value) in batch {
            self.change_one(key, value.as_ref());
            for look in looks {
                let below = floor(&self.cache, self.root, look).unwrap();
                let expected = self.map.range(..=look).next_back();
                assert_eq!(below.map(|(key, _)| key), expected.map(|(key, _)| *key));
                let above = range(&self.cache, self.root, look..)
                    .next()
                    .transpose()
                    .unwrap();
                let expected = self.map.range(look..).next();
                assert_eq!(above.map(|(key, _)| key), expected.map(|(key, _)| *key));
            }
        }
    }

    fn change_one(&mut self, key: &Key, value: Option<&Vec<u8>>) {
        let (cache, root) = (&mut self.cache, &mut self.root);
        match value {
            Some(value) => assert_eq!(
                insert(cache, root, key, value),
                self.map.insert(*key, value.clone()).is_some()
            ),
            None => assert_eq!(remove(cache, root, key), self.map.remove(key).is_some()),
        }
    }

    fn begin_checkpoint(&mut self) {
        if self.cut.is_some() {
            return;
        }
        self.sequence += 1;
        let dirty = self.cache.dirty();
        let pages = self.cache.take_dirty();
        assert_eq!((pages.len(), self.cache.dirty()), (dirty, 0));
        let freed = self.cache.take_freed();
        let images = pages
            .iter()
            .map(|(_, page)| image(page, self.sequence))
            .collect();
        self.cut = Some(TreeCut {
            pages,
            images,
            freed,
        });
    }

    fn end_checkpoint(&mut self, success: bool) {
        let Some(cut) = self.cut.take() else { return };
        let ids = cut.pages.iter().map(|(id, _)| *id);
        if !success {
            self.cache.redirty(ids, cut.freed);
            return;
        }
        for id in &cut.freed {
            self.stored.remove(id);
        }
        for ((id, page), before) in cut.pages.iter().zip(cut.images) {
            assert_eq!(*id, page.id());
            let now = image(page, self.sequence);
            assert!(now == before, "a page of a cut changed");
            self.stored.insert(*id, now);
        }
        self.cache.finish_writing(ids);
    }

    /// Everything agrees with the map, in memory and, after a checkpoint, on the device. Leaves no
    /// page in memory.
    fn check(&mut self) {
        let shape = self.read(verify);
        assert_eq!(
            (shape.items, shape.pages),
            (self.map.len(), self.cache.allocated())
        );
        let items = self.read(|cache, root| {
            range(cache, root, ..)
                .map(|item| item.map(|(key, value)| (key, value.to_vec())))
                .collect::<Result<BTreeMap<_, _>, _>>()
        });
        assert!(items == self.map);
        self.end_checkpoint(true);
        self.begin_checkpoint();
        self.end_checkpoint(true);
        self.evict_all();
        let stored: BTreeSet<_> = self.stored.keys().copied().collect();
        let used = (0..self.cache.id_limit()).map(PageId);
        assert!(
            stored
                .into_iter()
                .eq(used.filter(|&id| self.cache.is_allocated(id)))
        );
        // A mount: a new cache that knows the ids of the allocation table.
        let stored = &self.stored;
        self.cache = PageCache::with_ids(self.cache.id_limit(), |id| stored.contains_key(&id));
        assert_eq!(self.read(verify), shape);
        self.evict_all();
    }

    /// Evicts until nothing is left: one call does bounded work, and entries of pages long gone
    /// count as work too.
    fn evict_all(&mut self) {
        for _ in 0..=self.cache.id_limit() {
            if self.cache.resident() == 0 {
                return;
            }
            self.cache.evict(0);
        }
        assert_eq!(self.cache.resident(), 0);
    }
}

fn image(page: &Page, sequence: u64) -> Box<[u8; PAGE_SIZE]> {
    let mut image = Box::new([0; PAGE_SIZE]);
    page.write_image(sequence, &mut image);
    image
}

#[derive(Clone, Debug)]
enum Step {
    Change(Vec<(Key, Option<Vec<u8>>)>),
    /// Removes so many items from a key on, and inserts, looking for neighbours meanwhile.
    Replace(Key, usize, Vec<(Key, Vec<u8>)>, Vec<Key>),
    /// Inserts up to so many keys in a row, or removes them.
    Run(Key, u16, Option<usize>),
    Get(Key),
    Floor(Key),
    Range(Bound<Key>, Bound<Key>, usize),
    Begin,
    End(bool),
    Evict(usize),
}

/// Few owners and kinds; items near each other, so that removals hit, or anywhere.
fn any_key() -> impl Strategy<Value = Key> {
    let item = prop_oneof![8 => 0..500u64, 1 => any::<u64>()];
    let snapshot = prop_oneof![9 => Just(0u32), 1 => any::<u32>()];
    (0..4u64, 1..4u8, item, snapshot).prop_map(|(ino, kind, item, snapshot)| Key {
        version: VersionId(snapshot),
        ..Key::new(Ino(ino), KeyKind(kind), item)
    })
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![4 => 0..200usize, 4 => 200..2000usize, 2 => 0..=VALUE_LEN_MAX];
    (any::<u8>(), len).prop_map(|(byte, len)| vec![byte; len])
}

fn any_step() -> impl Strategy<Value = Step> {
    let bound = || {
        prop_oneof![
            4 => any_key().prop_map(Bound::Included),
            4 => any_key().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    let value = prop_oneof![3 => any_value().prop_map(Some), 2 => Just(None)];
    let len = prop_oneof![3 => (0..1500usize).prop_map(Some), 2 => Just(None)];
    prop_oneof![
        12 => prop::collection::vec((any_key(), value), 1..12).prop_map(Step::Change),
        6 => (any_key(), 1..200u16, len).prop_map(|(key, count, len)| Step::Run(key, count, len)),
        5 => (
            any_key(),
            0..150usize,
            prop::collection::vec((any_key(), any_value()), 0..4),
            prop::collection::vec(any_key(), 0..6),
        )
            .prop_map(|(from, count, put, looks)| Step::Replace(from, count, put, looks)),
        6 => any_key().prop_map(Step::Get),
        6 => any_key().prop_map(Step::Floor),
        4 => (bound(), bound(), 1..100usize).prop_map(|(from, to, max)| Step::Range(from, to, max)),
        3 => Just(Step::Begin),
        3 => any::<bool>().prop_map(Step::End),
        5 => (0..20usize).prop_map(Step::Evict),
    ]
}

fn apply(world: &mut World, step: Step) {
    match step {
        Step::Change(batch) => world.change(&batch),
        Step::Replace(from, count, put, mut looks) => {
            let gone = world.map.range(from..).take(count).map(|(key, _)| *key);
            looks.extend(gone.clone().step_by(8));
            let gone = gone.map(|key| (key, None));
            let batch: Vec<_> = gone
                .chain(put.into_iter().map(|(key, value)| (key, Some(value))))
                .collect();
            world.change_looking(&batch, &looks);
        }
        Step::Run(key, count, len) => {
            let value = len.map(|len| vec![7; len]);
            let keys = (0..u64::from(count)).map(|n| Key {
                item: key.item.saturating_add(n),
                ..key
            });
            let batch: Vec<_> = keys.map(|key| (key, value.clone())).collect();
            batch.chunks(5).for_each(|chunk| world.change(chunk));
        }
        Step::Get(key) => {
            let found =
                world.read(|cache, root| get(cache, root, &key).map(|v| v.map(<[u8]>::to_vec)));
            assert_eq!(found.as_ref(), world.map.get(&key));
        }
        Step::Floor(key) => {
            let found = world.read(|cache, root| {
                floor(cache, root, &key).map(|item| item.map(|(key, value)| (key, value.to_vec())))
            });
            let expected = world.map.range(..=key).next_back();
            assert_eq!(found, expected.map(|(key, value)| (*key, value.clone())));
        }
        Step::Range(from, to, max) => {
            let found: Vec<_> = world.read(|cache, root| {
                range(cache, root, (from, to))
                    .take(max)
                    .map(|item| item.map(|(key, value)| (key, value.to_vec())))
                    .collect()
            });
            let after = |key: &Key| match from {
                Bound::Included(from) => *key >= from,
                Bound::Excluded(from) => *key > from,
                Bound::Unbounded => true,
            };
            let before = |key: &Key| match to {
                Bound::Included(to) => *key <= to,
                Bound::Excluded(to) => *key < to,
                Bound::Unbounded => true,
            };
            let all = world
                .map
                .iter()
                .filter(|(key, _)| after(key) && before(key));
            let expected: Vec<_> = all.take(max).map(|(k, v)| (*k, v.clone())).collect();
            assert!(found == expected);
        }
        Step::Begin => world.begin_checkpoint(),
        Step::End(success) => world.end_checkpoint(success),
        Step::Evict(limit) => {
            let before = world.cache.resident();
            let evicted = world.cache.evict(limit);
            assert_eq!(world.cache.resident(), before - evicted);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tree_is_a_map(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            apply(&mut world, step);
        }
        world.check();
        // Down to nothing, as rm -rf does: forward, page by page from the device.
        let keys: Vec<Key> = world.map.keys().copied().collect();
        for (n, key) in keys.into_iter().enumerate() {
            if n % 64 == 0 {
                world.begin_checkpoint();
                world.end_checkpoint(true);
                world.cache.evict(2);
            }
            world.change(&[(key, None)]);
        }
        world.check();
    }
}

#[test]
fn missing_pages_are_named_and_change_nothing() {
    let mut world = World::new();
    let batch: Vec<_> = (0..2000)
        .map(|item| (Key::new(Ino(1), KeyKind(1), item), Some(vec![1; 100])))
        .collect();
    world.change(&batch);
    world.check();
    let (cache, root) = (&world.cache, world.root);
    let missing = Err(TreeError::Missing(root));
    let key = Key::new(Ino(1), KeyKind(1), 1000);
    assert_eq!(get(cache, root, &key).map(drop), missing);
    assert_eq!(floor(cache, root, &key).map(drop), missing);
    assert_eq!(ensure_resident(cache, root, &key), missing);
    let items: Vec<_> = range(cache, root, key..)
        .map(|item| item.map(drop))
        .collect();
    assert_eq!(items, [missing]);
    // An iteration gives what it has before it stops at a page that is not there.
    world.fetch(root);
    let first = world.cache.get(root).unwrap().child(0);
    world.fetch(first);
    let items: Vec<_> = range(&world.cache, root, ..)
        .map(|item| item.map(drop))
        .collect();
    let (last, before) = items.split_last().unwrap();
    assert_eq!(before.len(), world.cache.get(first).unwrap().count());
    assert!(before.iter().all(Result::is_ok));
    assert_eq!(
        *last,
        Err(TreeError::Missing(world.cache.get(root).unwrap().child(1)))
    );
}

#[test]
fn change_without_its_pages_is_a_fault() {
    let mut world = World::new();
    let key = Key::new(Ino(1), KeyKind(1), 1);
    world.change(&[(key, Some(vec![1]))]);
    world.check();
    assert!(!insert(&mut world.cache, &mut world.root, &key, &[2]));
    let fault = Some(damaged(world.root, TreeDamage::Gone));
    assert_eq!(world.cache.fault(), fault);
    assert_eq!(ensure_resident(&world.cache, world.root, &key).err(), fault);
    let mut world = World::new();
    let long = vec![0; VALUE_LEN_MAX + 1];
    assert!(!insert(&mut world.cache, &mut world.root, &key, &long));
    assert_eq!(
        world.cache.fault(),
        Some(TreeError::ValueLength(long.len()))
    );
}
