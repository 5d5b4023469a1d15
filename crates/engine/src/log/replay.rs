//! Records out of log blocks: which are valid, where the log ends, and whether something that was
//! acknowledged is missing. No I/O here.

use std::collections::BTreeMap;

use persimmon_format::log::RECORD_HEADER_LEN;
use persimmon_format::record::Op;
use persimmon_format::{Addr, Lsn};

use super::blocks::Read;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault, reverse};

/// Walks the valid records of a log, in order.
pub(crate) struct Replay<'a> {
    blocks: &'a [Read],
    /// Of each epoch, the last LSN that all later epochs left valid.
    limits: BTreeMap<u32, Lsn>,
    /// Up to here records are known to have been durable: what is missing is damage.
    pub(crate) trusted: Lsn,
    /// The durable LSN that the blocks of the log name.
    pub(crate) durable: Lsn,
    /// Largest epoch seen.
    pub(crate) epoch: u32,
    /// The opening that wrote the last block of that epoch.
    pub(crate) opening: u32,
}

/// A record found by [`Replay::run`].
pub(crate) struct Record {
    pub(crate) lsn: Lsn,
    pub(crate) ops: Vec<Op>,
}

/// What the blocks read say after the history's end, or after that of an earlier epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftOut {
    /// In the newest epoch: it is not invalidated yet.
    pub(crate) of_newest: bool,
    /// In any.
    pub(crate) any: bool,
}

fn record_of(lsn: Lsn, bytes: &[u8]) -> Result<Record> {
    let mut ops =
        Op::decode_all(bytes).map_err(|e| Error::Inconsistent(format!("record {lsn}: {e}")))?;
    leave_out_touches(&mut ops);
    Ok(Record { lsn, ops })
}

struct Walk {
    epoch: u32,
    /// LSN of the record that begins next.
    expect: Lsn,
    /// The bytes of a record so far, if one is cut by a block's end.
    partial: Option<Vec<u8>>,
    /// A block was bad: whether a record was lost with it is not known yet.
    gap: Option<Addr>,
    /// The epoch's records end here.
    ended: bool,
}

impl<'a> Replay<'a> {
    /// Records up to `counted` were durable when the footer was written, whatever the blocks say.
    pub(crate) fn new(blocks: &'a [Read], counted: Lsn) -> Replay<'a> {
        let states = || blocks.iter().filter_map(Read::state);
        let mut limits = BTreeMap::new();
        let epochs: BTreeMap<u32, Lsn> = states()
            .map(|state| (state.epoch, state.resume_after))
            .collect();
        let mut limit = Lsn(u64::MAX);
        for (epoch, resume_after) in epochs.into_iter().rev() {
            limits.insert(epoch, limit);
            limit = limit.min(resume_after);
        }
        let epoch = states().map(|s| s.epoch).max().unwrap_or_default();
        let newest = states().rev().find(|state| state.epoch == epoch);
        let durable = states().map(|s| s.durable).max().unwrap_or_default();
        Replay {
            blocks,
            limits,
            trusted: durable.max(counted),
            durable,
            epoch,
            opening: newest.map_or(0, |state| state.opening),
        }
    }

    /// Calls `visit` with each record after `cut`, until it answers false (the record's data did
    /// not arrive: the history ends before it). Returns the LSN of the last record of the
    /// history, and what was left out.
    pub(crate) fn run(
        &self,
        cut: Lsn,
        mut visit: impl FnMut(Record) -> Result<bool>,
    ) -> Result<(Lsn, LeftOut)> {
        let mut walk = Walk {
            epoch: 0,
            expect: Lsn(0),
            partial: None,
            gap: None,
            ended: false,
        };
        let mut last = cut;
        let mut left_out = LeftOut::default();
        for block in self.blocks {
            let (state, journal) = match block {
                Read::Bad { addr } => {
                    walk.gap = walk.gap.or(Some(*addr));
                    continue;
                }
                Read::Footer { state, .. } => (*state, None),
                Read::Journal {
                    state,
                    first_lsn,
                    lead,
                    bytes,
                } => (*state, Some((*first_lsn, *lead, bytes))),
            };
            if state.epoch != walk.epoch {
                left_out.any |= walk.is_cut_off();
                walk = Walk {
                    epoch: state.epoch,
                    expect: Lsn(0),
                    partial: None,
                    gap: None,
                    ended: false,
                };
            }
            let Some((first_lsn, lead, bytes)) = journal else {
                continue;
            };
            // What earlier epochs left out is invalidated already.
            let newest = state.epoch == self.epoch;
            if walk.ended {
                left_out.of_newest |= newest;
                left_out.any = true;
                continue;
            }
            for (lsn, record) in walk.records(first_lsn, lead, bytes) {
                if lsn <= last {
                    continue;
                }
                let limit = self.limits.get(&state.epoch);
                let invalidated = limit.is_some_and(|limit| lsn > *limit);
                let gap = lsn != last.next() && !fault(Fault::GapIgnored);
                if invalidated || gap || !visit(record_of(lsn, &record)?)? {
                    walk.ended = true;
                    break;
                }
                last = lsn;
            }
            left_out.of_newest |= newest && walk.ended;
            left_out.any |= walk.ended;
        }
        last = take_torn(&mut walk, last, visit)?;
        left_out.of_newest |= walk.is_cut_off();
        left_out.any |= left_out.of_newest;
        if last < self.trusted {
            return Err(self.lost(last));
        }
        Ok((last, left_out))
    }

    fn lost(&self, last: Lsn) -> Error {
        Error::Inconsistent(format!(
            "the journal is damaged: records {} to {} were durable and cannot be read",
            last.next(),
            self.trusted
        ))
    }
}

impl Walk {
    /// Whether the epoch ends in what cannot be read.
    fn is_cut_off(&self) -> bool {
        self.gap.is_some() || self.partial.is_some()
    }

    /// The records that end in this block.
    fn records(&mut self, first: Lsn, lead: usize, bytes: &[u8]) -> Vec<(Lsn, Vec<u8>)> {
        let mut records = Vec::new();
        let (head, mut rest) = bytes.split_at(lead.min(bytes.len()));
        let known = self.expect != Lsn(0);
        match self.partial.take() {
            Some(mut partial) if self.gap.is_none() => {
                partial.extend_from_slice(head);
                if complete(&partial) {
                    records.push((Lsn(self.expect.0), body(partial)));
                    self.expect = self.expect.next();
                } else if rest.is_empty() && lead == bytes.len() {
                    self.partial = Some(partial);
                    return records;
                }
            }
            _ => {}
        }
        // After a bad block the records go on only if none was lost with it.
        if known && first != self.expect && !fault(Fault::GapIgnored) {
            self.ended = true;
            return records;
        }
        self.gap = None;
        self.expect = first;
        while rest.len() >= RECORD_HEADER_LEN {
            let len = record_len(rest);
            match rest.split_at_checked(len) {
                Some((record, after)) => {
                    records.push((self.expect, body(record.to_vec())));
                    self.expect = self.expect.next();
                    rest = after;
                }
                None => break,
            }
        }
        if !rest.is_empty() {
            self.partial = Some(rest.to_vec());
        }
        reverse(&mut records);
        records
    }
}

/// For [`Fault::TouchesNotReplayed`].
fn leave_out_touches(ops: &mut Vec<Op>) {
    if fault(Fault::TouchesNotReplayed) {
        ops.retain(|op| !matches!(op, Op::Touch { .. }));
    }
}

/// For [`Fault::TornRecordAccepted`]: takes what arrived of the last record for all of it. The last record after that.
fn take_torn(
    walk: &mut Walk,
    last: Lsn,
    mut visit: impl FnMut(Record) -> Result<bool>,
) -> Result<Lsn> {
    let torn = walk.partial.take_if(|_| fault(Fault::TornRecordAccepted));
    let Some(torn) = torn else {
        return Ok(last);
    };
    visit(record_of(last.next(), &body(torn))?)?;
    Ok(last.next())
}

/// Length of the framed record that begins here.
fn record_len(bytes: &[u8]) -> usize {
    match bytes.first_chunk::<RECORD_HEADER_LEN>() {
        Some(len) => RECORD_HEADER_LEN + u32::from_le_bytes(*len) as usize,
        None => usize::MAX,
    }
}

fn complete(record: &[u8]) -> bool {
    record.len() == record_len(record)
}

fn body(mut record: Vec<u8>) -> Vec<u8> {
    record.drain(..RECORD_HEADER_LEN.min(record.len()));
    record
}
