//! The chunks of the two tables that a checkpoint writes, and the valid counts that change with where pages and chunks are.

use std::collections::BTreeSet;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{Buffer, BufferMut, ZoneId};
use persimmon_format::Addr;
use persimmon_format::envelope::{self, BLOCK_PAYLOAD, HEADER_LEN, Kind};
use persimmon_format::table::{MatEntry, ZitEntry};

use super::Checkpoints;
use crate::error::Result;
use crate::invariant::{invariant, invariant_holds};
use crate::statistics::Class;
use crate::zones::{self, Stream, Zones};

/// Valid counts, kept in the live table and in the one this checkpoint writes.
pub(super) struct ValidCounts<'a> {
    pub(super) live: &'a Zones,
    pub(super) cut: &'a mut PerZone<ZitEntry>,
}

impl ValidCounts<'_> {
    fn add(&mut self, addr: Addr, blocks: u16) {
        self.live.add_metadata(addr, blocks.into());
        if let Some(entry) = self.cut.get_mut(addr.zone().0 as usize) {
            // A hostile table may count anything.
            entry.valid = entry.valid.saturating_add(blocks.into());
        }
    }

    fn sub(&mut self, addr: Addr, blocks: u16) {
        self.live.sub_metadata(addr, blocks.into());
        if let Some(entry) = self.cut.get_mut(addr.zone().0 as usize) {
            // Where the table counts too little, that has stopped the volume: no footer tells of it.
            entry.valid = entry.valid.saturating_sub(blocks.into());
        }
    }

    /// A chunk or page moved from `old` (if it was anywhere) to `new`.
    pub(super) fn moved(&mut self, old: MatEntry, new: MatEntry) {
        if old.is_used() {
            self.sub(old.addr, old.blocks);
        }
        if new.is_used() {
            self.add(new.addr, new.blocks);
        }
    }
}

fn chunk_at(addr: Addr) -> MatEntry {
    MatEntry {
        addr,
        blocks: u16::from(addr != Addr::ZERO),
    }
}

impl Checkpoints {
    fn seal_chunk(&self, kind: Kind, chunk: usize, number: u64, payload: &[u8]) -> Buffer {
        let fits = invariant_holds!(
            self.store.media.alarm,
            payload.len() <= BLOCK_PAYLOAD,
            "chunk {chunk} of a table has {} bytes",
            payload.len()
        );
        let payload = if fits { payload } else { &[] };
        let mut block = BufferMut::zeroed(1);
        block[HEADER_LEN..HEADER_LEN + payload.len()].copy_from_slice(payload);
        envelope::seal(
            &mut block,
            &self.store.key,
            kind,
            chunk as u64,
            number,
            payload.len(),
        );
        block.freeze()
    }

    pub(super) fn write_mat(
        &self,
        number: u64,
        counts: &mut ValidCounts<'_>,
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<()> {
        let (chunks, sealed): (Vec<usize>, Vec<Buffer>) = {
            let meta = self.store.meta();
            let encode = |chunk| {
                let payload = meta.mat.encode_chunk(chunk);
                (
                    chunk,
                    self.seal_chunk(Kind::MatChunk, chunk, number, &payload),
                )
            };
            meta.mat.changed_chunks().into_iter().map(encode).unzip()
        };
        let addrs = self.write_metadata(Stream::Metadata, Class::Checkpoint, &sealed, written)?;
        invariant!(
            self.store.media.alarm,
            addrs.len() == chunks.len(),
            "{} chunks of the page table were written of {}",
            addrs.len(),
            chunks.len()
        );
        let mut meta = self.store.meta_mut();
        for (chunk, addr) in chunks.into_iter().zip(addrs) {
            let old = meta.mat.moved_chunk(chunk, addr);
            counts.moved(chunk_at(old), chunk_at(addr));
        }
        Ok(())
    }

    /// Writes the changed chunks of the ZIT. A chunk that moves changes the count of the zone it
    /// leaves, which may change another chunk: those are found first. The counts of the zones
    /// written into go to the footer.
    pub(super) fn write_zit(
        &self,
        number: u64,
        counts: &mut ValidCounts<'_>,
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<()> {
        let mut state = self.store.on_device();
        state.complete(&self.store.media.alarm, counts.cut)?;
        let per_chunk = ZitEntry::PER_CHUNK;
        let mut dirty = BTreeSet::new();
        loop {
            let never =
                (0..state.zit_chunks.len()).filter(|chunk| state.zit_chunks[*chunk] == Addr::ZERO);
            let changed = counts.cut.changed(&state.written_zit);
            let found: BTreeSet<usize> = never
                .chain(changed.map(|zone| zone / per_chunk))
                .filter(|chunk| !dirty.contains(chunk))
                .collect();
            if found.is_empty() {
                break;
            }
            for chunk in found {
                dirty.insert(chunk);
                counts.moved(chunk_at(state.zit_chunks[chunk]), MatEntry::NONE);
                state.zit_chunks[chunk] = Addr::ZERO;
            }
        }
        let encoded = counts.cut.clone();
        drop(state);
        let sealed: Vec<Buffer> = dirty
            .iter()
            .map(|chunk| {
                let mut payload = Vec::with_capacity(BLOCK_PAYLOAD);
                let zones = (chunk * per_chunk..).take(per_chunk);
                for entry in zones.map_while(|zone| encoded.get(zone)) {
                    entry.encode(&mut payload);
                }
                self.seal_chunk(Kind::ZitChunk, *chunk, number, &payload)
            })
            .collect();
        let addrs = self.write_metadata(Stream::Metadata, Class::Checkpoint, &sealed, written)?;
        invariant!(
            self.store.media.alarm,
            addrs.len() == dirty.len(),
            "{} chunks of the zone table were written of {}",
            addrs.len(),
            dirty.len()
        );
        let mut state = self.store.on_device();
        for (chunk, addr) in dirty.into_iter().zip(addrs) {
            invariant!(
                self.store.media.alarm,
                addr != Addr::ZERO && state.zit_chunks.get(chunk) == Some(&Addr::ZERO),
                "chunk {chunk} of the zone table was written to {addr}, and is at {:?}",
                state.zit_chunks.get(chunk)
            );
            counts.moved(MatEntry::NONE, chunk_at(addr));
            state.zit_chunks[chunk] = addr;
        }
        state.written_zit = encoded;
        Ok(())
    }

    /// The entries of the zones that a checkpoint wrote into.
    pub(super) fn overrides(
        &self,
        zones: &zones::ZoneCut,
        written: &BTreeSet<ZoneId>,
    ) -> Vec<(ZoneId, ZitEntry)> {
        let written = written.iter();
        written
            .flat_map(|zone| self.store.media.pairs.both(*zone))
            .filter_map(|zone| {
                let now = self.store.zones.entry(zone)?;
                let valid = zones.entries.get(zone.0 as usize)?.valid;
                Some((zone, ZitEntry { valid, ..now }))
            })
            .collect()
    }
}
