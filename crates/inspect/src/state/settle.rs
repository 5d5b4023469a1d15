//! What a settling record removes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::record::Settle;
use persimmon_format::{Key, KeyKind, VersionId};

use super::{Result, State};

impl State<'_, '_> {
    /// Removes what a version owns and nothing shows.
    pub(super) fn settle(&mut self, settle: &Settle) -> Result<()> {
        let scope = self.versions.scope(settle.version);
        let is_gone = !self.is_there(&scope, settle.ino);
        for (place, mut owned) in self.owned_places(settle) {
            let all = scope.is_discarded || is_gone && place.kind != KeyKind::INODE;
            if !all && let Some((newest, value)) = owned.pop() {
                let hides = self.shown_below(&scope, &place).is_some();
                if place.is_whiteout(&value) && !hides {
                    owned.push((newest, value));
                }
            }
            for (number, value) in owned {
                self.overlay.insert(place.at(number), None);
                if place.kind == KeyKind::EXTENT
                    && let Ok(extent) = Extent::decode(&value)
                    && let Some((from, to)) = extent.names()
                    && !self.has_more_of(&place, number, &extent)?
                {
                    self.drop_references(from, to)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a version has other parts of the compressed frame that an extent was of.
    fn has_more_of(&self, place: &Key, version: VersionId, extent: &Extent) -> Result<bool> {
        let Extent::Packed(packed) = extent else {
            return Ok(false);
        };
        let (from, to) = packed.frame_at(place.item).unwrap_or_default();
        let there = self.around(place.ino, from, to)?;
        Ok(there.iter().any(|((_, number), extent)| {
            let is_part = matches!(extent, Extent::Packed(part) if part.shares_frame(packed));
            is_part && *number == version
        }))
    }

    /// The places that a record settles, each with the items that the version owns there, the oldest first.
    fn owned_places(&self, settle: &Settle) -> BTreeMap<Key, Vec<(VersionId, Vec<u8>)>> {
        let scope = self.versions.scope(settle.version);
        let place = |(kind, item)| Key::new(settle.ino, kind, item);
        let (from, to) = (place(settle.from), place(settle.to));
        let mut places: BTreeMap<Key, Vec<(VersionId, Vec<u8>)>> = BTreeMap::new();
        let _ = self.scan(from, &mut |key, value| {
            if key >= to {
                return ControlFlow::Break(());
            }
            if scope.owns(key.version) {
                let here = places.entry(key.at(VersionId(0))).or_default();
                here.push((key.version, value.to_vec()));
            }
            ControlFlow::Continue(())
        });
        places
    }
}
