//! The journal past the checkpoint: which of its records count.
//!
//! A record is invalidated if a later epoch resumed before it. Of the others those count that follow the
//! checkpoint's cut without a gap. A gap at or below the durable LSN is damage; above it the
//! journal simply ends there. So does it at a record above the durable LSN whose data is not on
//! the device as its checksums say.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use persimmon_device::Buffer;
use persimmon_format::extent::Extent;
use persimmon_format::log::{Body, LogBlock, RECORD_HEADER_LEN, RECORD_LEN_MAX};
use persimmon_format::record::{Op, mapped_anew};
use persimmon_format::table::Role;
use persimmon_format::zone_header::COMPRESSED_LOG;
use persimmon_format::{Addr, Lsn, VolumeKey, ZoneId};

use crate::checkpoint::Checkpoint;
use crate::finding::{
    Findings, LOG_BLOCK, LOG_DATA, LOG_END, LOG_GAP, LOG_RECORD, LOG_REPLAY, LOG_ZONE,
};
use crate::log::Log;
use crate::media::Media;
use crate::volume::ZoneUse;

/// The records to apply to the checkpoint, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    pub records: Vec<Record>,
    pub durable: Lsn,
    pub epoch: u32,
    /// The first and the last of the records that were durable and are missing.
    pub missing: Option<(Lsn, Lsn)>,
}

/// A record that counts.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub lsn: Lsn,
    pub ops: Vec<Op>,
}

impl Journal {
    /// The LSN of the state after replay.
    pub(crate) fn last(&self, cut: Lsn) -> Lsn {
        self.records.last().map_or(cut, |record| record.lsn)
    }
}

/// A record found in the log.
struct Found {
    epoch: u32,
    addr: Addr,
    bytes: Vec<u8>,
}

/// Puts records together from blocks.
struct Assembler {
    cut: Lsn,
    found: BTreeMap<Lsn, Found>,
    /// Each epoch's number and the last LSN it took over.
    epochs: Vec<(u32, Lsn)>,
    durable: Lsn,
    bad: Vec<(Addr, String)>,
    partial: Vec<u8>,
    partial_lsn: Lsn,
    partial_addr: Addr,
    last_sequence: u64,
}

pub(crate) fn read(
    media: &Media<'_>,
    key: &VolumeKey,
    log: &Log,
    zones: &[ZoneUse],
    checkpoint: &Checkpoint,
    findings: &mut Findings,
) -> Journal {
    let footer = &checkpoint.footer;
    let mut assembler = Assembler {
        cut: footer.cut,
        found: BTreeMap::new(),
        epochs: Vec::new(),
        durable: footer.counted.max(footer.cut),
        bad: Vec::new(),
        partial: Vec::new(),
        partial_lsn: Lsn(0),
        partial_addr: Addr::ZERO,
        last_sequence: 0,
    };
    let may_compress = footer.features.incompatible & COMPRESSED_LOG != 0;
    let start = footer.replay.sequence;
    if log.zone_of(start).is_none() {
        let place = format!("log block {start}");
        findings.add(&LOG_ZONE, place, "replay would start there");
    }
    log.scan(media, key, start, &mut |addr, block| {
        match block {
            Ok(block) => {
                if block.is_compressed() && !may_compress {
                    findings.add(&LOG_RECORD, addr, "the volume has no compressed log");
                }
                assembler.block(addr, &block);
            }
            Err(error) => {
                assembler.partial.clear();
                assembler.bad.push((addr, error.to_string()));
            }
        }
        ControlFlow::Continue(())
    });
    let evidence = Evidence {
        media,
        zones,
        checkpoint,
    };
    assembler.finish(&evidence, findings)
}

impl Assembler {
    fn block(&mut self, addr: Addr, block: &LogBlock<'_>) {
        if block.sequence != self.last_sequence + 1 {
            self.partial.clear();
        }
        self.last_sequence = block.sequence;
        self.durable = self.durable.max(block.state.durable);
        let epoch = block.state.epoch;
        if self.epochs.last().is_none_or(|(last, _)| *last != epoch) {
            self.partial.clear();
            self.epochs.push((epoch, block.state.resume_after));
        }
        let Body::Journal {
            first_lsn,
            lead,
            records,
        } = &block.body
        else {
            return;
        };
        let (first_lsn, lead) = (*first_lsn, usize::from(*lead));
        let (lead, mut rest) = records.split_at_checked(lead).unwrap_or((records, &[]));
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(lead);
            match record_len(&self.partial) {
                Some(len) if self.partial.len() == len => {
                    let bytes = std::mem::take(&mut self.partial).split_off(RECORD_HEADER_LEN);
                    self.add(self.partial_lsn, epoch, self.partial_addr, bytes);
                }
                // All of the block belongs to a record that goes on in the next.
                _ if rest.is_empty() => {}
                _ => self.partial.clear(),
            }
        }
        let mut lsn = first_lsn;
        while !rest.is_empty() {
            match record_len(rest).and_then(|len| rest.split_at_checked(len)) {
                Some((record, tail)) => {
                    let bytes = record.get(RECORD_HEADER_LEN..).unwrap_or(&[]).to_vec();
                    self.add(lsn, epoch, addr, bytes);
                    lsn = Lsn(lsn.0.saturating_add(1));
                    rest = tail;
                }
                None => {
                    self.partial = rest.to_vec();
                    self.partial_lsn = lsn;
                    self.partial_addr = addr;
                    break;
                }
            }
        }
    }

    fn add(&mut self, lsn: Lsn, epoch: u32, addr: Addr, bytes: Vec<u8>) {
        if lsn <= self.cut {
            return;
        }
        let newer = self.found.get(&lsn).is_none_or(|old| old.epoch <= epoch);
        if newer {
            self.found.insert(lsn, Found { epoch, addr, bytes });
        }
    }

    fn is_invalidated(&self, lsn: Lsn, epoch: u32) -> bool {
        self.epochs
            .iter()
            .any(|(later, resume_after)| *later > epoch && lsn > *resume_after)
    }

    fn finish(mut self, evidence: &Evidence<'_>, findings: &mut Findings) -> Journal {
        let found = std::mem::take(&mut self.found);
        let mut records = Vec::new();
        let mut last = self.cut;
        let mut cut_off = false;
        for (lsn, found) in found {
            if self.is_invalidated(lsn, found.epoch) {
                continue;
            }
            if lsn != last.next() {
                cut_off = true;
                break;
            }
            let ops = match Op::decode_all(&found.bytes) {
                Ok(ops) => ops,
                Err(error) => {
                    findings.add(&LOG_RECORD, found.addr, format_args!("LSN {lsn}: {error}"));
                    break;
                }
            };
            if lsn > self.durable
                && let Some(missing) = evidence.missing_data(&ops)
            {
                findings.add(
                    &LOG_DATA,
                    found.addr,
                    format_args!("LSN {lsn}, data at {missing}"),
                );
                break;
            }
            records.push(Record { lsn, ops });
            last = lsn;
        }
        let missing = (last < self.durable).then(|| (last.next(), self.durable));
        if let Some((first, durable)) = missing {
            tell_bad(&self.bad, findings);
            findings.add(
                &LOG_GAP,
                format_args!("LSN {first}"),
                format_args!("records up to LSN {durable} were durable"),
            );
        } else if cut_off || !self.bad.is_empty() {
            let place = self.bad.first().map_or_else(
                || format!("LSN {}", last.next()),
                |(addr, _)| addr.to_string(),
            );
            findings.add(
                &LOG_END,
                place,
                format_args!("the last record is LSN {last}"),
            );
        }
        if !records.is_empty() {
            findings.add(
                &LOG_REPLAY,
                format_args!("LSN {}", self.cut.next()),
                format_args!("{} up to LSN {last}", records.len()),
            );
        }
        Journal {
            records,
            durable: self.durable,
            epoch: self.epochs.last().map_or(0, |(epoch, _)| *epoch),
            missing,
        }
    }
}

/// Tells damaged blocks, those that lie behind each other as one.
fn tell_bad(bad: &[(Addr, String)], findings: &mut Findings) {
    for run in bad.chunk_by(|(addr, _), (next, _)| addr.offset(1) == *next) {
        let Some(((addr, error), behind)) = run.split_first() else {
            continue;
        };
        match behind.len() {
            0 => findings.add(&LOG_BLOCK, addr, error),
            more => {
                let detail = format_args!("{error}; so are the next {more} blocks");
                findings.add(&LOG_BLOCK, addr, detail);
            }
        }
    }
}

/// Bytes of the record that `bytes` begin with, its header included; nothing if the header is not
/// whole. A length past the limit never fills, so the record is never whole.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let header: &[u8; RECORD_HEADER_LEN] = bytes.first_chunk()?;
    let len = u32::from_le_bytes(*header) as usize;
    Some(if len > RECORD_LEN_MAX {
        usize::MAX
    } else {
        RECORD_HEADER_LEN + len
    })
}

/// What tells whether a record's data has arrived.
struct Evidence<'a> {
    media: &'a Media<'a>,
    zones: &'a [ZoneUse],
    checkpoint: &'a Checkpoint,
}

impl Evidence<'_> {
    /// The first block that a record brings and that did not arrive on the device: past the write
    /// pointer, or, where the write pointer is no proof of what is below it, with another
    /// checksum, or in a zone whose header was lost.
    fn missing_data(&self, ops: &[Op]) -> Option<Addr> {
        mapped_anew(ops).find_map(|(_, _, extent)| match extent {
            Extent::Frame { addr, crcs } => self.missing(*addr, crcs.len() as u64, &|| {
                bad_blocks(self.media, *addr, crcs).next()
            }),
            Extent::Packed(packed) => self.missing(packed.addr, packed.span().into(), &|| {
                let verified = |blocks: &Buffer| packed.verified(blocks).map(drop);
                let good = self.media.read_packed(packed, verified).is_some();
                (!good).then_some(packed.addr)
            }),
            _ => None,
        })
    }

    /// The same of blocks from an address on; `first_bad` says what their checksums do.
    fn missing(
        &self,
        addr: Addr,
        blocks: u64,
        first_bad: &dyn Fn() -> Option<Addr>,
    ) -> Option<Addr> {
        let zone = addr.zone();
        if self.media.is_offline(zone) {
            // Nothing tells; what is lost shall not take later changes along.
            None
        } else if !self.media.is_written(addr, blocks) {
            Some(addr)
        } else if self.media.write_pointer_is_proof(zone) {
            let is_last = self.media.is_last_written(addr, blocks);
            is_last.then(first_bad).flatten()
        } else if !self.header_arrived(zone) {
            // It was lost with the command that brought it, and so is all behind it.
            Some(Addr::new(addr.device(), zone, 0))
        } else {
            first_bad()
        }
    }

    /// Whether the header of a data zone is there, and of its present use.
    fn header_arrived(&self, zone: ZoneId) -> bool {
        let index = zone.0 as usize;
        let entry = self.checkpoint.zit.get(index).copied().unwrap_or_default();
        let least = match entry.role {
            // Not reset since, for there is something in it, or known by its sequence.
            Role::Data if entry.valid > 0 || entry.sequence > 0 => entry.sequence,
            _ => self.checkpoint.footer.next_zone_sequence,
        };
        match self.zones.get(index) {
            Some(ZoneUse::Header(header)) => header.role == Role::Data && header.sequence >= least,
            _ => false,
        }
    }
}

/// The blocks of a frame that cannot be read, or fail their checksums wherever they can be read.
pub(crate) fn bad_blocks(
    media: &Media<'_>,
    addr: Addr,
    crcs: &[u32],
) -> impl Iterator<Item = Addr> {
    let blocks = media.read_frame(addr, crcs).into_iter().zip(0..);
    blocks.filter_map(move |(block, at)| block.is_none().then(|| addr.offset(at)))
}
