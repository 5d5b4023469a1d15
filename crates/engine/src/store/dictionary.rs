//! Dictionaries of compressed frames: the content of blocks of the store of shared blocks ([`persimmon_format::dictionary`]). Of a place
//! there it never changes, so those that were read last are kept, and nothing ever has to be removed in time.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::dictionary::Dictionary;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::Packed;
use persimmon_format::{Addr, checksum};
use persimmon_sync::{Arc, Mutex};

use super::Store;
use crate::error::{Error, Result};
use crate::meta::extents::{self, MappedExtent};
use crate::zones::Pin;

/// Dictionaries that are kept, 1 MiB at most: neighbouring frames of a file have neighbouring ones, and several readers one each.
const KEPT_MAX: usize = 8;

/// Those that were read last, the newest first.
#[derive(Default)]
pub(crate) struct Dictionaries {
    kept: Mutex<Vec<(Dictionary, Arc<[u8]>)>>,
}

impl Dictionaries {
    fn find(&self, dictionary: Dictionary) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(known, _)| *known == dictionary)?;
        let found = kept.remove(at);
        let content = Arc::clone(&found.1);
        kept.insert(0, found);
        Some(content)
    }

    fn keep(&self, dictionary: Dictionary, content: &Arc<[u8]>) {
        let mut kept = self.kept.lock();
        kept.truncate(KEPT_MAX - 1);
        kept.insert(0, (dictionary, Arc::clone(content)));
    }
}

impl Store {
    /// What has to be known beside the bytes of a frame to know its content; nothing if it has no dictionary.
    ///
    /// # Errors
    /// [`Error::ItemDamaged`]: the store of shared blocks does not have it. [`Error::DataDamaged`]: it is not what it was.
    pub(crate) fn dictionary_of(&self, packed: &Packed) -> Result<Arc<[u8]>> {
        match packed.dictionary() {
            Some(dictionary) => self.dictionary(dictionary),
            None => Ok(Arc::default()),
        }
    }

    /// The content of a dictionary, with the same errors.
    pub(crate) fn dictionary(&self, dictionary: Dictionary) -> Result<Arc<[u8]>> {
        if let Some(known) = self.dictionaries.find(dictionary) {
            return Ok(known);
        }
        let content = Arc::from(self.read_dictionary(dictionary)?);
        self.dictionaries.keep(dictionary, &content);
        Ok(content)
    }

    fn read_dictionary(&self, dictionary: Dictionary) -> Result<Vec<u8>> {
        let (from, to) = (dictionary.at, dictionary.end());
        let stored: Vec<(MappedExtent, Option<Pin>)> = self.view::<_, Error>(|view| {
            let stored =
                view.find(|meta| extents::overlapping(meta, SHARED, from, to, usize::MAX))?;
            let pinned = |mapped: MappedExtent| {
                let addr = mapped.extent.addr();
                let pin = addr.and_then(|addr| self.zones.pin(addr.zone()));
                (mapped, pin)
            };
            Ok(stored.into_iter().map(pinned).collect())
        })?;
        let mut content = Vec::with_capacity(dictionary.bytes());
        let mut done = from;
        for (mapped, _) in &stored {
            let (start, end) = (mapped.block.max(from), mapped.end().min(to));
            if start > done {
                break;
            }
            let part = mapped.extent.part(start - mapped.block, end - start);
            content.extend(self.read_stored(start, &part)?);
            done = end;
        }
        if done < to || content.len() != dictionary.bytes() {
            let lost = format_args!("block {done}, of a dictionary, is lost");
            return Err(Error::item_damaged(SHARED, lost));
        }
        Ok(content)
    }

    /// The content of an extent of the store of shared blocks.
    fn read_stored(&self, block: u64, extent: &Extent) -> Result<Vec<u8>> {
        let damaged = |at: u32, addr: Addr| Error::DataDamaged {
            ino: SHARED,
            block: block + u64::from(at),
            addr,
        };
        match extent {
            Extent::Frame { addr, crcs } => {
                let read = self.media.read(*addr, crcs.len() as u32)?;
                let bad = |bytes: &[u8]| {
                    let blocks = bytes.chunks_exact(BLOCK_SIZE).zip(crcs).zip(0u32..);
                    let mut bad =
                        blocks.filter(|((block, crc), _)| checksum::data_block(block) != **crc);
                    bad.next().map(|(_, at)| at)
                };
                if bad(&read).is_none() {
                    return Ok(read.to_vec());
                }
                let mended = self.media.mended_blocks(*addr, &read, crcs);
                match bad(&mended) {
                    None => Ok(mended.to_vec()),
                    Some(at) => Err(damaged(at, addr.offset(at))),
                }
            }
            Extent::Packed(packed) if packed.dictionary().is_none() => {
                let read = self.media.read(packed.addr, packed.span())?;
                let content = packed.content(&read, &[]).or_else(|| {
                    let mended = self.media.mended_packed(packed)?;
                    packed.content(&mended, &[])
                });
                content.ok_or_else(|| damaged(0, packed.addr))
            }
            _ => Err(Error::item_damaged(
                SHARED,
                format_args!("block {block} cannot be of a dictionary"),
            )),
        }
    }
}
