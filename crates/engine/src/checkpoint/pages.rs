//! Where the pages and chunks of a checkpoint are written.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_device::{Buffer, ZoneId};
use persimmon_format::table::MatEntry;
use persimmon_format::{Addr, PageId};

use super::Checkpoints;
use crate::error::Result;
use crate::invariant::invariant;
use crate::media::wait_all;
use crate::meta::{Page, store};
use crate::space::Work;
use crate::statistics::Class;
use crate::zones::table::{NoWriter, Shortage};
use crate::zones::{DeviceKind, Stream, Tries, ZoneWriter};

/// Blocks of pages written before waiting for them.
const BATCH_BLOCKS: usize = 256;

impl Checkpoints {
    pub(crate) fn write_pages(
        &self,
        pages: &[&(PageId, Arc<Page>)],
        number: u64,
        stream: Stream,
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<Vec<(PageId, MatEntry)>> {
        let class = match stream {
            Stream::ColdMetadata => Class::CleanedMetadata,
            _ => Class::Metadata,
        };
        let mut places = Vec::with_capacity(pages.len());
        for group in pages.chunks(BATCH_BLOCKS / 2) {
            let sealed: Vec<Buffer> = group
                .iter()
                .map(|(_, page)| store::seal(page, &self.store.key, number))
                .collect();
            let addrs = self.write_metadata(stream, class, &sealed, written)?;
            invariant!(
                self.store.media.alarm,
                addrs.len() == sealed.len(),
                "{} pages were written of {}",
                addrs.len(),
                sealed.len()
            );
            for (((id, _), addr), buffer) in group.iter().zip(addrs).zip(&sealed) {
                places.push((
                    *id,
                    MatEntry {
                        addr,
                        blocks: buffer.blocks() as u16,
                    },
                ));
            }
        }
        Ok(places)
    }

    /// A writer for metadata, for which so many zones are left alone. Cold pages have a zone of their own while there are plenty.
    fn metadata_writer(&self, stream: Stream, work: Work) -> Result<ZoneWriter> {
        if stream == Stream::ColdMetadata
            && let Ok(writer) = self.store.zones.checkout(
                &self.store.media,
                stream,
                self.space.leaves(Work::ColdPages),
                Shortage::Share,
            )
        {
            return Ok(writer);
        }
        loop {
            let seen = self.store.zones.resets_ended();
            let writer = self.store.zones.checkout(
                &self.store.media,
                Stream::Metadata,
                // What is left to the log changes as the log takes zones.
                self.space.leaves(work),
                Shortage::Share,
            );
            match writer {
                Ok(writer) => return Ok(writer),
                Err(NoWriter::NeedRoom)
                    if self.store.zones.complete_a_reset(&self.store.media, seen) => {}
                Err(NoWriter::NeedRoom) => return Err(self.store.zones.no_zone()),
                Err(NoWriter::Failed(error)) => return Err(error),
            }
        }
    }

    /// Writes sealed blocks to metadata zones and waits for them. Returns where each went.
    pub(super) fn write_metadata(
        &self,
        stream: Stream,
        class: Class,
        sealed: &[Buffer],
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<Vec<Addr>> {
        let work = match class {
            Class::Checkpoint => Work::Chunks,
            _ => Work::Pages,
        };
        let mut addrs = Vec::with_capacity(sealed.len());
        let mut tries = Tries::default();
        while let Some(next) = sealed.get(addrs.len()) {
            let seen = self.store.zones.resets_ended();
            let mut writer = self.metadata_writer(stream, work)?;
            // Chunks go where pages go that are not cold.
            let reserved = if class != Class::Checkpoint && writer.stream == Stream::Metadata {
                self.blocks_for_chunks()
            } else {
                0
            };
            invariant!(
                self.store.media.alarm,
                writer.write_pointer <= writer.capacity,
                "zone {} of {} blocks is written up to {}",
                writer.zone,
                writer.capacity,
                writer.write_pointer
            );
            let room = writer.capacity - writer.write_pointer;
            if reserved > 0 && next.blocks() + reserved > room {
                self.store.zones.check_in(&self.store.media, writer);
                if self.store.zones.complete_a_reset(&self.store.media, seen) {
                    continue;
                }
                return Err(self.store.zones.no_zone());
            }
            if next.blocks() > room {
                // Too little is left for a page: end the zone.
                writer.is_ending = true;
                self.store.zones.check_in(&self.store.media, writer);
                continue;
            }
            let mut data = Vec::new();
            let mut blocks = 0;
            for buffer in &sealed[addrs.len()..] {
                if blocks + buffer.blocks() + reserved > room {
                    break;
                }
                blocks += buffer.blocks();
                data.push(buffer.clone());
            }
            invariant!(
                self.store.media.alarm,
                !data.is_empty() && blocks <= room,
                "{blocks} blocks of metadata to zone {} with room for {room}",
                writer.zone
            );
            let sizes: Vec<u32> = data.iter().map(Buffer::blocks).collect();
            let is_new = writer.write_pointer == 1;
            let mut pending = Vec::new();
            let mut addr = writer.write_blocks(&self.store.media, class, data, &mut pending);
            let result = wait_all(pending);
            written.insert(writer.zone);
            writer.is_ending = result.is_err();
            let zone = writer.zone;
            match result {
                Ok(()) => {
                    self.store.zones.check_in(&self.store.media, writer);
                    tries.succeeded();
                    for size in sizes {
                        addrs.push(addr);
                        addr = addr.offset(size);
                    }
                }
                Err(error) => {
                    tracing::warn!(zone = zone.0, %error, "metadata zone failed");
                    let error = error.into();
                    let zones = &self.store.zones;
                    match is_new {
                        true => zones.check_in_failed(&self.store.media, writer, &error),
                        false => zones.check_in(&self.store.media, writer),
                    }
                    tries.failed(zones, zone, error)?;
                }
            }
        }
        Ok(addrs)
    }

    /// Blocks that pages leave to the chunks that follow them: where zones are large no zone is reserved for those, and a
    /// checkpoint whose pages are written must not fail, for then those of the zones alone would too.
    fn blocks_for_chunks(&self) -> u32 {
        let budget = &self.store.zones.budget;
        if budget.large.is_none() || self.store.zones.free_zones(DeviceKind::Metadata) > 0 {
            return 0;
        }
        let of_pages = self.store.meta().mat.chunks().len();
        let of_zones = self.store.on_device().zit_chunks.len();
        ((of_pages + of_zones) as u64).min(budget.metadata_zone_blocks / 4) as u32
    }
}
