//! What a version shows of items that come in the order of their keys.

use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_format::xattr::{Joined, Pieces, slot_keys};
use persimmon_format::{FormatError, Ino, Key, KeyKind, VersionId};

use super::versions::Scope;
use super::{At, State};

/// Whether the inode whose items come by is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    /// No item of the version says so.
    Untold,
    Yes,
    /// A newer item says that it is not.
    No,
}

/// Picks what a version shows. Where there is one version alone, items pass as they are, and what belongs to no inode too.
pub(crate) struct Picker {
    scope: Rc<Scope>,
    is_plain: bool,
    /// Some items are lost: what seems to have no inode may have had one.
    is_lost: bool,
    /// The newest item so far at a place of which more may come.
    held: Option<(Key, Vec<u8>)>,
    ino: Ino,
    there: There,
}

type Visit<'v> = &'v mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>;

impl Picker {
    pub(crate) fn new(state: &State<'_, '_>, scope: Rc<Scope>, is_lost: bool) -> Picker {
        Picker {
            scope,
            is_plain: state.versions.is_plain(),
            is_lost,
            held: None,
            ino: Key::GLOBAL,
            there: There::Yes,
        }
    }

    /// Takes the next item, and hands on what is certain to be shown.
    pub(crate) fn item(&mut self, key: Key, value: &[u8], visit: Visit<'_>) -> ControlFlow<()> {
        let is_next = |(held, _): &(Key, Vec<u8>)| held.at(key.version) != key;
        if self.held.as_ref().is_some_and(is_next) {
            self.end(visit)?;
        }
        if self.is_plain || key.is_unversioned() {
            // An item of a version that does not exist belongs to nothing.
            return match key.version.0 {
                0 => visit(key, value),
                _ => ControlFlow::Continue(()),
            };
        }
        if self.scope.shows(key.version) {
            self.held = Some((key, value.to_vec()));
        }
        ControlFlow::Continue(())
    }

    /// All items of a place have come.
    pub(crate) fn end(&mut self, visit: Visit<'_>) -> ControlFlow<()> {
        let Some((key, value)) = self.held.take() else {
            return ControlFlow::Continue(());
        };
        if self.ino != key.ino {
            self.ino = key.ino;
            self.there = match key.ino {
                Key::GLOBAL => There::Yes,
                _ => There::Untold,
            };
        }
        let is_whiteout = key.is_whiteout(&value);
        if key.kind == KeyKind::INODE {
            self.there = match is_whiteout {
                true => There::No,
                false => There::Yes,
            };
        }
        let is_shown = match self.there {
            There::Yes => true,
            There::No => false,
            There::Untold => self.is_lost,
        };
        match is_shown && !is_whiteout {
            true => visit(key, &value),
            false => ControlFlow::Continue(()),
        }
    }
}

impl State<'_, '_> {
    /// Hands on what a version shows, and what is of no version, from the place `from` on, in key order. The keys have the numbers of the
    /// items.
    pub(crate) fn scan_shown(
        &self,
        scope: &Rc<Scope>,
        from: Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut picker = Picker::new(self, Rc::clone(scope), self.tree.lost);
        // Only its first item tells whether an inode is there.
        if !picker.is_plain && from > Key::inode(from.ino) {
            picker.ino = from.ino;
            picker.there = self.there(scope, from.ino);
        }
        self.scan(from, &mut |key, value| picker.item(key, value, visit))?;
        picker.end(visit)
    }

    /// The value of an extended attribute that an inode has in pieces, as a version shows them.
    pub(crate) fn joined(
        &self,
        scope: &Rc<Scope>,
        ino: Ino,
        pieces: Pieces,
    ) -> Result<Vec<u8>, FormatError> {
        let slot = slot_keys(ino, pieces.slot());
        let mut joined = Joined::new(pieces);
        let _ = self.scan_shown(scope, slot.start, &mut |key, value| match slot
            .contains(&key.at(VersionId(0)))
            && joined.item(&key, value).is_ok()
        {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        joined.finish()
    }

    /// Whether a version shows an inode.
    fn there(&self, scope: &Scope, ino: Ino) -> There {
        let inode = Key::inode(ino);
        let mut newest_first = self.items_at(&inode).into_iter().rev();
        match newest_first.find(|(number, _)| scope.shows(*number)) {
            _ if ino == Key::GLOBAL => There::Yes,
            None => There::Untold,
            Some((_, value)) if inode.is_whiteout(&value) => There::No,
            Some(_) => There::Yes,
        }
    }

    /// The last item that a version shows of an inode and a kind, at an item or before it.
    pub(crate) fn floor_shown(&self, at: &At, kind: KeyKind, item: u64) -> Option<(Key, Vec<u8>)> {
        let mut before = Key::new(at.ino, kind, item);
        loop {
            let last = before.at(VersionId(u32::MAX));
            let (key, _) = self.floor(&last)?;
            if (key.ino, key.kind) != (at.ino, kind) {
                return None;
            }
            let place = key.at(VersionId(0));
            if let Some((number, value)) = self.shown(&at.scope, &place) {
                return Some((place.at(number), value));
            }
            before.item = key.item.checked_sub(1)?;
        }
    }
}
