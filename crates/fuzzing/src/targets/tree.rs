//! Trees of pages that are well formed and do not belong together: every operation ends, and what
//! iterates goes forward.

use std::collections::BTreeMap;
use std::sync::Arc;

use persimmon_engine::meta::tree::{
    self, TreeError, ensure_around, ensure_resident, floor, get, insert, range, verify,
};
use persimmon_engine::meta::{Page, PageCache};
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::{Ino, Key, KeyKind, PageId, VersionId};

use crate::input::Input;

const PAGES_MAX: usize = 14;
const ITEMS_MAX: usize = 24;
const STEPS_MAX: usize = 40;

struct World {
    cache: PageCache,
    root: PageId,
    stored: BTreeMap<PageId, [u8; PAGE_SIZE]>,
}

/// Pages made of the input, a root among them, and operations on the tree they form.
pub fn tree(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = make(&mut input);
    let items: usize = world
        .stored
        .values()
        .map(|image| Page::validate(image).map_or(0, |page| page.count()))
        .sum();
    let _ = attempt(&mut world, verify);
    for _ in 0..input.below(STEPS_MAX) {
        step(&mut world, &mut input);
    }
    let added = STEPS_MAX;
    let _ = attempt(&mut world, |cache, root| {
        let mut previous = None;
        let mut seen = 0;
        for item in range(cache, root, ..) {
            let (key, _) = item?;
            assert!(previous < Some(key), "iteration goes backwards");
            previous = Some(key);
            seen += 1;
            assert!(seen <= items + added, "more items than pages hold");
        }
        Ok(())
    });
}

fn any_key(input: &mut Input<'_>) -> Key {
    Key {
        ino: Ino(u64::from(input.u8() % 8)),
        kind: KeyKind(input.u8() % 4),
        item: u64::from(input.u8() % 16) << (input.u8() % 2 * 60),
        version: VersionId(0),
    }
}

fn make(input: &mut Input<'_>) -> World {
    let pages = 1 + input.below(PAGES_MAX);
    let mut cache = PageCache::new();
    let mut stored = BTreeMap::new();
    let ids: Vec<PageId> = (0..pages).map(|_| cache.alloc_id()).collect();
    for id in &ids {
        let level = input.u8() % 4;
        let mut page = Page::new(*id, level);
        let mut keys: Vec<Key> = (0..input.below(ITEMS_MAX))
            .map(|_| any_key(input))
            .collect();
        if input.rarely(3) {
            keys.push(Key::new(Ino(0), KeyKind(0), 0));
        }
        keys.sort_unstable();
        keys.dedup();
        for key in &keys {
            let value = if level > 0 {
                let child = if input.rarely(12) {
                    PageId(input.number())
                } else {
                    *input.pick(&ids)
                };
                child.0.to_le_bytes().to_vec()
            } else {
                vec![1; usize::from(input.u8()) * usize::from(input.u8() % 17)]
            };
            let _ = page.insert(page.count(), key, &value);
        }
        let mut image = [0; PAGE_SIZE];
        page.write_image(1, &mut image);
        if Page::validate(&image).is_ok() {
            stored.insert(*id, image);
        }
    }
    let root = if input.rarely(16) {
        PageId(input.number())
    } else {
        *input.pick(&ids)
    };
    World {
        cache: PageCache::with_ids(pages as u64, |id| stored.contains_key(&id)),
        root,
        stored,
    }
}

/// Fetches what `call` misses until it succeeds or something is found to be wrong. Every fetch
/// brings one page more, so the number of pages bounds them.
fn attempt<T>(
    world: &mut World,
    call: impl Fn(&PageCache, PageId) -> Result<T, TreeError>,
) -> Result<T, TreeError> {
    for _ in 0..=world.stored.len() {
        match call(&world.cache, world.root) {
            Err(TreeError::Missing(id)) => {
                let Some(image) = world.stored.get(&id) else {
                    return Err(TreeError::Missing(id));
                };
                let page = Arc::new(Page::validate_as(image, id).unwrap());
                if !world.cache.insert_clean(id, page) {
                    return Err(TreeError::Missing(id));
                }
            }
            other => return other,
        }
    }
    panic!("more pages missed than there are");
}

fn step(world: &mut World, input: &mut Input<'_>) {
    let key = any_key(input);
    let _ = attempt(world, |cache, root| get(cache, root, &key).map(drop));
    let _ = attempt(world, |cache, root| floor(cache, root, &key).map(drop));
    let removes = input.flag();
    let ready = attempt(world, |cache, root| {
        if removes {
            ensure_around(cache, root, &key)
        } else {
            ensure_resident(cache, root, &key)
        }
    });
    if ready.is_err() {
        return;
    }
    if removes {
        tree::remove(&mut world.cache, &mut world.root, &key);
    } else {
        let len = usize::from(input.u8()) * usize::from(input.u8() % 18);
        insert(&mut world.cache, &mut world.root, &key, &vec![2; len]);
    }
    if world.cache.fault().is_some() {
        return;
    }
    // Like a checkpoint: what was changed is written, and can go.
    if input.rarely(6) {
        let cut = world.cache.take_dirty();
        for (id, page) in &cut {
            let mut image = [0; PAGE_SIZE];
            page.write_image(2, &mut image);
            world.stored.insert(*id, image);
        }
        for id in world.cache.take_freed() {
            world.stored.remove(&id);
        }
        world.cache.finish_writing(cut.iter().map(|(id, _)| *id));
        world.cache.evict(1);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    (0..48u32)
        .map(|n| {
            (0..300u32)
                .map(|i| (i.wrapping_mul(n * 2 + 1).wrapping_mul(0x9e37_79b9) >> 13) as u8)
                .collect()
        })
        .collect()
}
