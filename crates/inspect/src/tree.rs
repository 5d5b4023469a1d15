//! The tree as of the checkpoint: every page on the way from the root, checked.

use std::rc::Rc;

use persimmon_format::envelope::{self, Kind};
use persimmon_format::page::{self, PAGE_SIZE, PageView};
use persimmon_format::table::MatEntry;
use persimmon_format::{Addr, FormatError, Key, PageId};

use crate::error::{InspectError, Result};
use crate::finding::{
    Findings, PAGE, PAGE_IDENTITY, PAGE_KEYS, PAGE_MISSING, PAGE_SHARED, TREE_LOST,
};
use crate::volume::Inspector;

/// A page as read: its 16 KiB image and where it lay.
#[derive(Clone)]
pub(crate) struct StoredPage {
    pub addr: Addr,
    pub blocks: u16,
    pub checkpoint: u64,
    pub image: Rc<Vec<u8>>,
}

/// The leaves of a checked tree, in key order.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckedTree {
    pub leaves: Vec<Leaf>,
    /// Pages the tree reaches, by id.
    pub reached: Vec<bool>,
    pub pages: u64,
    pub height: u8,
    /// Some keys are lost with their page: what is missing proves nothing.
    pub lost: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub low: Key,
    /// Keys from here on are another leaf's; `None` for the last one.
    pub high: Option<Key>,
    pub page: PageId,
}

impl Leaf {
    /// The items of the leaf's page that are its own.
    pub(crate) fn items<'v>(
        self,
        view: &PageView<'v>,
    ) -> impl DoubleEndedIterator<Item = (Key, &'v [u8])> + use<'v> {
        view.items()
            .filter(move |(key, _)| *key >= self.low && self.high.is_none_or(|high| *key < high))
    }
}

/// A page that is still to be looked at, and what its parent says about it.
struct Pending {
    page: PageId,
    parent: Option<PageId>,
    low: Key,
    high: Option<Key>,
    level: Option<u8>,
}

impl Inspector<'_> {
    /// Reads and verifies a page.
    pub(crate) fn page(&self, id: PageId) -> Result<StoredPage> {
        let checkpoint = self.checkpoint()?;
        let entry = checkpoint.page(id).ok_or_else(|| InspectError::NotFound {
            what: format!("page {id}"),
        })?;
        self.page_at(entry, Some(id))
    }

    /// Reads and verifies the page at a place.
    pub(crate) fn page_at(&self, entry: MatEntry, id: Option<PageId>) -> Result<StoredPage> {
        let MatEntry { addr, blocks } = entry;
        self.media.read_good(addr, blocks.into(), |bytes| {
            self.decode_page(bytes, entry, id)
        })
    }

    fn decode_page(
        &self,
        bytes: &[u8],
        MatEntry { addr, blocks }: MatEntry,
        id: Option<PageId>,
    ) -> Result<StoredPage> {
        let wrong = |source| InspectError::Block { addr, source };
        let opened = envelope::open(bytes, &self.key, Kind::Page, id.map(|id| id.0));
        let (fields, payload) = self.media.decoded(addr, opened).map_err(wrong)?;
        let image = image(payload, addr)?;
        Ok(StoredPage {
            addr,
            blocks,
            checkpoint: fields.sequence,
            image: Rc::new(image),
        })
    }

    /// Walks the tree in key order, hands each item of a leaf to `visit`, and notes what is wrong.
    pub(crate) fn walk(
        &self,
        findings: &mut Findings,
        visit: &mut dyn FnMut(Key, &[u8]),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckedTree> {
        let checkpoint = self.checkpoint()?;
        let total = checkpoint.mat.iter().filter(|e| e.is_used()).count() as u64;
        let mut tree = CheckedTree {
            reached: vec![false; checkpoint.mat.len()],
            ..CheckedTree::default()
        };
        let root = Pending {
            page: checkpoint.footer.root,
            parent: None,
            low: Key::from_bytes(&[0; Key::LEN]),
            high: None,
            level: None,
        };
        let mut stack = vec![root];
        while let Some(pending) = stack.pop() {
            progress(tree.pages, total);
            self.visit_page(&pending, &mut tree, &mut stack, findings, visit)?;
        }
        if tree.lost {
            findings.add(&TREE_LOST, "tree", "");
        }
        Ok(tree)
    }

    fn visit_page(
        &self,
        pending: &Pending,
        tree: &mut CheckedTree,
        stack: &mut Vec<Pending>,
        findings: &mut Findings,
        visit: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<()> {
        let id = pending.page;
        let place = match pending.parent {
            None => format!("root page {id}"),
            Some(parent) => format!("page {id}, child of page {parent}"),
        };
        let checkpoint = self.checkpoint()?;
        if checkpoint.page(id).is_none() {
            findings.add(&PAGE_MISSING, place, "");
            tree.lost = true;
            return Ok(());
        }
        match tree.reached.get_mut(id.0 as usize) {
            Some(reached) if !*reached => *reached = true,
            _ => {
                findings.add(&PAGE_SHARED, place, "");
                return Ok(());
            }
        }
        let Some(stored) = self.page_or_finding(id, &place, findings) else {
            tree.lost = true;
            return Ok(());
        };
        let view = match PageView::new(&stored.image) {
            Ok(view) => view,
            Err(error) => {
                findings.add(&PAGE, place, error);
                tree.lost = true;
                return Ok(());
            }
        };
        tree.pages += 1;
        let expected = pending.level.unwrap_or(view.level());
        if view.id() != id || view.level() != expected {
            let detail = format!(
                "it is page {} of level {}, expected was level {expected}",
                view.id(),
                view.level()
            );
            findings.add(&PAGE_IDENTITY, place, detail);
            tree.lost = true;
            return Ok(());
        }
        if stored.checkpoint > checkpoint.footer.checkpoint {
            let detail = format!("it was written by checkpoint {}", stored.checkpoint);
            findings.add(&PAGE_IDENTITY, &place, detail);
        }
        tree.height = tree.height.max(view.level());
        if view.level() > 0 {
            push_children(pending, &view, stack, findings, &place);
        } else {
            visit_leaf(pending, &view, tree, findings, visit, &place);
        }
        Ok(())
    }

    /// A page that a checked page leads to; what is wrong with it is noted.
    fn page_or_finding(
        &self,
        id: PageId,
        place: &str,
        findings: &mut Findings,
    ) -> Option<StoredPage> {
        let error = match self.page(id) {
            Ok(stored) => return Some(stored),
            Err(error) => error,
        };
        let intact = matches!(
            &error,
            InspectError::Block {
                source: FormatError::Mismatch { .. },
                ..
            }
        );
        findings.add(if intact { &PAGE_IDENTITY } else { &PAGE }, place, error);
        None
    }
}

/// The image of a page, out of its payload.
pub(crate) fn image(payload: &[u8], addr: Addr) -> Result<Vec<u8>> {
    let mut image = [0; PAGE_SIZE];
    page::unpack(payload, &mut image).map_err(|source| InspectError::Block { addr, source })?;
    Ok(image.to_vec())
}

fn visit_leaf(
    pending: &Pending,
    view: &PageView<'_>,
    tree: &mut CheckedTree,
    findings: &mut Findings,
    visit: &mut dyn FnMut(Key, &[u8]),
    place: &str,
) {
    let mut outside = 0u64;
    for (key, value) in view.items() {
        if key < pending.low || pending.high.is_some_and(|high| key >= high) {
            outside += 1;
        } else {
            visit(key, value);
        }
    }
    if outside > 0 {
        let detail = format!("{outside} of {}", view.count());
        findings.add(&PAGE_KEYS, place, detail);
    }
    tree.leaves.push(Leaf {
        low: pending.low,
        high: pending.high,
        page: pending.page,
    });
}

/// Puts the children of an inner page on the stack, the first on top. The key of the first child
/// is the page's own lower bound, or less.
fn push_children(
    pending: &Pending,
    view: &PageView<'_>,
    stack: &mut Vec<Pending>,
    findings: &mut Findings,
    place: &str,
) {
    let mut high = pending.high;
    let last = view.count().saturating_sub(1);
    for (reverse, (key, child)) in view.children().rev().enumerate() {
        let first = reverse == last;
        let low = if first { pending.low } else { key };
        if low < pending.low || high.is_some_and(|high| low >= high) {
            findings.add(&PAGE_KEYS, place, format_args!("child {child}"));
        }
        stack.push(Pending {
            page: child,
            parent: Some(pending.page),
            low,
            high,
            level: Some(view.level() - 1),
        });
        high = Some(low);
    }
}
