//! Images of metadata pages: engine and inspector must agree on which are pages, and on what is
//! in them; a page that was accepted can be used in every way.

use persimmon_engine::meta::Page;
use persimmon_engine::meta::page::item_bytes;
use persimmon_format::page::{PAGE_SIZE, PageView, pack, split};
use persimmon_format::{Key, PageId};

use crate::edit::{edit_image, with_columns};
use crate::input::Input;
use crate::sample::{Sample, unpack};

const STEPS_MAX: usize = 24;

/// Whatever stands in columns gives an image or an error; and if that is a page it is stored as it is.
fn columns(bytes: &[u8]) {
    if let Some(image) = unpack(&with_columns(bytes)) {
        assert_eq!(unpack(&pack(&image)), Some(image));
    }
}

/// An image to begin with, changes to it, and then things done to the page.
pub fn page(bytes: &[u8]) {
    let _ = split(bytes);
    let _ = unpack(bytes);
    columns(bytes);
    let mut input = Input::new(bytes);
    let mut image = start(&mut input);
    for _ in 0..input.below(4) {
        edit_image(&mut image, &mut input);
    }
    let view = PageView::new(&image);
    let Ok(mut page) = Page::validate(&image) else {
        assert!(
            view.is_err(),
            "the engine refuses a page that a check accepts"
        );
        return;
    };
    if let Ok(view) = &view {
        same(&page, view);
    }
    for _ in 0..input.below(STEPS_MAX) {
        step(&mut page, &mut input);
    }
    let mut written = [0; PAGE_SIZE];
    page.write_image(3, &mut written);
    assert_eq!(unpack(&pack(&written)), Some(written));
    let Ok(view) = PageView::new(&written) else {
        // An inner page that lost all its children is none, and nobody writes it.
        assert!(
            page.count() == 0 && page.level() > 0,
            "a written page is refused"
        );
        return;
    };
    same(&page, &view);
}

fn start(input: &mut Input<'_>) -> Vec<u8> {
    static IMAGES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    let images = IMAGES.get_or_init(|| Sample::proving().page_images());
    match input.below(images.len() + 1) {
        0 => {
            let mut empty = [0; PAGE_SIZE];
            Page::new(PageId(input.number()), input.u8() % 3).write_image(1, &mut empty);
            empty.to_vec()
        }
        other => images[other - 1].clone(),
    }
}

fn same(page: &Page, view: &PageView<'_>) {
    assert_eq!(
        (page.level(), page.id(), page.count()),
        (view.level(), view.id(), view.count())
    );
    for (index, (key, value)) in view.items().enumerate() {
        assert_eq!((page.key(index), page.value(index)), (key, value));
        assert_eq!(page.search(&key), Ok(index));
    }
    if page.level() > 0 {
        for (index, (_, child)) in view.children().enumerate() {
            assert_eq!(page.child(index), child);
        }
    }
}

fn any_key(page: &Page, input: &mut Input<'_>) -> Key {
    if page.count() > 0 && input.flag() {
        return page.key(input.below(page.count()));
    }
    Key {
        ino: persimmon_format::Ino(input.near(20)),
        kind: persimmon_format::KeyKind(input.u8() % 10),
        item: input.number(),
        version: persimmon_format::VersionId(u32::from(input.rarely(8))),
    }
}

fn step(page: &mut Page, input: &mut Input<'_>) {
    let key = any_key(page, input);
    let len = if page.level() > 0 {
        8
    } else {
        input.below(4201)
    };
    let value = vec![9; len];
    let _ = page.child_index(&key);
    match (page.search(&key), input.u8() % 4) {
        (Ok(at), 0) => page.remove(at),
        (Ok(at), _) => drop(page.replace(at, &value)),
        (Err(at), _) if page.insert(at, &key, &value) => {}
        (Err(at), _) => {
            assert!(page.used_bytes() + item_bytes(len) > PAGE_SIZE - 32);
            let mut right = Page::new(PageId(77), page.level());
            let lower = page.split_insert(&mut right, at, &key, &value);
            assert_eq!(right.key(0), lower);
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    (0..64u8)
        .map(|n| {
            let bytes = (0..60u8).map(|i| i.wrapping_mul(n | 1).wrapping_add(n));
            [n].into_iter().chain(bytes).collect()
        })
        .collect()
}
