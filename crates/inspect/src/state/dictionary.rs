//! Dictionaries: which blocks of the store of shared blocks compressed frames name, and what is in them.

use std::collections::HashSet;
use std::rc::Rc;

use persimmon_format::VersionId;
use persimmon_format::dictionary::Dictionary;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::Packed;

use super::State;
use super::extents::Extents;

/// The dictionary that was read last.
pub(super) type Last = Option<(Dictionary, Option<Rc<[u8]>>)>;

/// What the frames name that the first have and the second do not. Each frame is counted once, however many extents are of it.
pub(super) fn named_more(these: &Extents, than: &Extents) -> Vec<(u64, u64)> {
    let mut known = frames(than);
    let mut more = Vec::new();
    for ((_, number), extent) in these {
        if let Extent::Packed(packed) = extent
            && let Some(range) = extent.names()
            && known.insert((*number, packed.whole()))
        {
            more.push(range);
        }
    }
    more
}

fn frames(extents: &Extents) -> HashSet<(VersionId, Packed)> {
    let frames = extents.iter().filter_map(|((_, number), extent)| {
        let Extent::Packed(packed) = extent else {
            return None;
        };
        Some((*number, packed.whole()))
    });
    frames.collect()
}

impl State<'_, '_> {
    /// What has to be known beside the bytes of a frame, which is nothing if it has no dictionary; `None` if that cannot be read.
    pub(crate) fn dictionary_of(&self, packed: &Packed) -> Option<Rc<[u8]>> {
        let Some(dictionary) = packed.dictionary() else {
            return Some(Rc::default());
        };
        if let Some((last, content)) = &*self.last_dictionary.borrow()
            && *last == dictionary
        {
            return content.clone();
        }
        let content: Option<Rc<[u8]>> = self.read_dictionary(dictionary).map(Rc::from);
        self.last_dictionary
            .replace(Some((dictionary, content.clone())));
        content
    }

    fn read_dictionary(&self, dictionary: Dictionary) -> Option<Vec<u8>> {
        let (from, to) = (dictionary.at, dictionary.end());
        let store = self.at(SHARED).ok()?;
        let mut content = Vec::with_capacity(dictionary.bytes());
        let mut done = from;
        for (block, (_, extent)) in self.shown_extents(&store, from, to).ok()? {
            let (start, end) = (
                block.max(from),
                block.saturating_add(extent.blocks()).min(to),
            );
            if start != done {
                return None;
            }
            content.extend(self.stored_content(&extent.part(start - block, end - start))?);
            done = end;
        }
        (done == to && content.len() == dictionary.bytes()).then_some(content)
    }

    /// What is in blocks of the device that need no dictionary.
    pub(super) fn stored_content(&self, extent: &Extent) -> Option<Vec<u8>> {
        let media = &self.inspector.media;
        match extent {
            Extent::Frame { addr, crcs } => {
                let blocks = media.read_frame(*addr, crcs);
                let blocks: Option<Vec<_>> = blocks.into_iter().collect();
                Some(
                    blocks?
                        .iter()
                        .flat_map(|block| block.iter().copied())
                        .collect(),
                )
            }
            Extent::Packed(packed) if packed.dictionary().is_none() => {
                media.read_packed(packed, |blocks| packed.content(blocks, &[]))
            }
            _ => None,
        }
    }
}
