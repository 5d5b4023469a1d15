//! The records of a write-back batch: what of it is mapped where, in order of file and offset, with the sizes and times that it causes.

use std::collections::{BTreeSet, VecDeque};

use persimmon_device::BLOCK_SIZE;
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Ino, Lsn};
use persimmon_sync::Arc;

use super::FileData;
use super::dedup::{Duplicate, Outcome};
use super::staged::Times;
use super::write_back::{BatchFile, Mapping, Mode};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::in_flight::InFlight;
use crate::invariant::invariant;
use crate::meta::{Intent, Transaction};
use crate::placement::Places;

/// What of a batch is not journaled yet, in order.
pub(super) struct Pending {
    mappings: VecDeque<Mapping>,
    duplicates: VecDeque<Duplicate>,
}

impl Pending {
    pub(super) fn new(mappings: Vec<Mapping>, duplicates: Vec<Duplicate>) -> Pending {
        Pending {
            mappings: mappings.into(),
            duplicates: duplicates.into(),
        }
    }

    fn next_mapping(&self) -> Option<(Ino, u64)> {
        self.mappings.front().map(|next| (next.ino, next.block))
    }

    fn next_duplicate(&self) -> Option<(Ino, u64)> {
        let next = self.duplicates.front();
        next.map(|next| (next.piece.ino, next.piece.first))
    }

    /// The first block of what comes next.
    fn next(&self) -> Option<(Ino, u64)> {
        let both = [self.next_mapping(), self.next_duplicate()];
        both.into_iter().flatten().min()
    }

    fn next_ino(&self) -> Option<Ino> {
        self.next().map(|(ino, _)| ino)
    }

    /// The next mapping, unless a duplicate comes before it.
    fn pop_mapping(&mut self) -> Option<Mapping> {
        match self.next_mapping() == self.next() {
            true => self.mappings.pop_front(),
            false => None,
        }
    }

    /// The other way round.
    fn pop_duplicate(&mut self) -> Option<Duplicate> {
        match self.next_duplicate() == self.next() {
            true => self.duplicates.pop_front(),
            false => None,
        }
    }

    /// Mappings in place of a duplicate that came before all there is.
    fn put_first(&mut self, mappings: Vec<Mapping>) {
        for mapping in mappings.into_iter().rev() {
            self.mappings.push_front(mapping);
        }
    }
}

impl FileData {
    /// Journals a batch, in records of at most `ops_max` operations and one more. Each record carries the size that its own
    /// blocks cause: it touches a file in the record of the file's last mapping, and in each record that
    /// ends half way through the file. Each file notes at once what is in the history: a later record may fail. Duplicates have a record each, or several.
    pub(super) fn journal(
        &self,
        batch: &[BatchFile],
        mut pending: Pending,
        in_flight: Option<&Arc<InFlight>>,
        (mode, ops_max): (Mode, usize),
    ) -> Result<Lsn> {
        let mut in_flight = in_flight;
        let mut lsn = self.store.log.last_lsn();
        let mut touched = batch.iter().peekable();
        // The zones of what is written after all stay as they are until the tree names them.
        let mut places = Places::default();
        let inos: BTreeSet<Ino> = batch.iter().map(|member| member.ino).collect();
        while pending.next().is_some() || touched.peek().is_some() {
            let next = pending.next_ino();
            if let Some(member) = touched.peek().filter(|member| Some(member.ino) == next)
                && let Some(duplicate) = pending.pop_duplicate()
            {
                let goes_on = pending.next_ino() == next;
                let size = member.size_behind(duplicate.end(), goes_on);
                let touch = touch(member.ino, size, member.times);
                match self.share_duplicate(&duplicate, &touch, &inos)? {
                    Outcome::Shared(shared) => {
                        lsn = shared;
                        member.note_committed(size);
                        touched.next_if(|_| !goes_on);
                    }
                    Outcome::ToWrite => {
                        pending.put_first(self.write_duplicate(duplicate, mode, &mut places)?)
                    }
                    Outcome::ToSplit(blocks) => {
                        let parts = duplicate.split(blocks, &self.store.media.alarm)?;
                        let parts = parts.into_iter().rev();
                        parts.for_each(|part| pending.duplicates.push_front(part));
                    }
                }
                continue;
            }
            let mut ops = Vec::new();
            let mut bases = Vec::new();
            let mut sizes: Vec<(&BatchFile, u64)> = Vec::new();
            let mut last: Option<(Ino, u64)> = None;
            while ops.len() < ops_max {
                let next = pending.next_ino();
                let is_done = |p: &&BatchFile| next.is_none_or(|next| p.ino < next);
                if let Some(member) = touched.next_if(is_done) {
                    sizes.push((member, member.size));
                    ops.push(touch(member.ino, member.size, member.times));
                } else if let Some(mapping) = pending.pop_mapping() {
                    last = Some((mapping.ino, mapping.end));
                    ops.push(mapping.op);
                    bases.extend(mapping.base);
                } else {
                    break;
                }
            }
            if let (Some((ino, end)), Some(member)) = (last, touched.peek())
                && member.ino == ino
            {
                let goes_on = pending.next_ino() == Some(ino);
                let size = member.size_behind(end, goes_on);
                sizes.push((member, size));
                ops.push(touch(ino, size, member.times));
                if !goes_on {
                    touched.next();
                }
            }
            invariant!(
                self.store.media.alarm,
                !ops.is_empty() && (in_flight.is_none() || pending.next().is_none()),
                "data is on its way for one record of several, with {} changes",
                ops.len()
            );
            let data = in_flight.take().map(Arc::clone);
            let data = data.filter(|_| !fault(Fault::FlushedBeforeData));
            let fill = |tx: &mut Transaction<'_>| {
                for op in &ops {
                    let op = with_latest_change(tx, op)?;
                    tx.push(op);
                }
                Ok::<_, Error>(())
            };
            let before = lsn;
            (_, lsn) = match mode {
                Mode::Rewrite => self.store.change(data, fill)?,
                _ => self.history.update_with(Intent::Shrink, data, fill)?,
            };
            // The deltas are in the tree now: a fold that follows sees them.
            drop(bases);
            invariant!(
                self.store.media.alarm,
                lsn > before,
                "record {lsn} follows record {before} of one batch"
            );
            for (member, size) in sizes {
                member.note_committed(size);
            }
        }
        Ok(lsn)
    }
}

impl BatchFile {
    /// The size that its blocks up to this one cause: all that was written, if nothing follows.
    fn size_behind(&self, end: u64, goes_on: bool) -> u64 {
        match goes_on {
            true => {
                let end = end * BLOCK_SIZE as u64;
                self.growth.size_at(end, self.committed_size)
            }
            false => self.size,
        }
    }
}

fn touch(ino: Ino, size: u64, times: Option<Times>) -> Op {
    let set = Touch {
        size: Some(size),
        mtime: times.map(|t| t.mtime),
        ctime: times.map(|t| t.ctime),
        ..Touch::default()
    };
    Op::Touch { ino, set }
}

/// The change time of a write is not taken over where something changed the inode since.
pub(super) fn with_latest_change(tx: &Transaction<'_>, op: &Op) -> Result<Op> {
    let mut op = op.clone();
    if let Op::Touch { ino, set } = &mut op
        && let Some(inode) = tx.inode(*ino)?
    {
        set.ctime = set.ctime.max(Some(inode.ctime));
    }
    Ok(op)
}
