//! Inode numbers. None is given out twice, though a crash may lose all trace of files that had one: whoever
//! has seen a number (in a file handle, or a database's unique id) would find another file under it.
//!
//! So they are given out in lots. A record takes one and says where it ends; no number of a lot is given out
//! before its record is durable. Then whatever a crash leaves says where the numbers end that anybody may have
//! seen, and those of the next mount begin there.

use persimmon_format::{Ino, Lsn};

use crate::faults::{Fault, fault, instead};

/// Numbers in a lot. While half of one is left the next is taken by a record that is written anyway, so
/// waiting for it is rare. A mount leaves no more than this unused: numbers stay below 2^32, which
/// old 32-bit programs ask for, for some 65,000 mounts.
pub(crate) const LOT: u64 = 1 << 16;

/// More numbers than a journal of the greatest length can have given out.
const LOST: u64 = 1 << 24;

/// The numbers of a volume: `next <= end <= recorded`.
pub(crate) struct Numbers {
    next: u64,
    /// Those below may be given out: every state that a crash may leave has a lot that ends here or later.
    end: u64,
    /// Where the newest lot ends.
    recorded: u64,
    /// The record that took it.
    record: Lsn,
}

impl Numbers {
    /// Those from `first` on were never given out.
    pub(crate) fn from(first: u64) -> Numbers {
        Numbers {
            next: first,
            end: first,
            recorded: first,
            record: Lsn(0),
        }
    }

    /// As a checkpoint has them: those below `next` are given out, and the newest lot ends at `lot_end`.
    pub(crate) fn of_checkpoint(next: u64, lot_end: u64) -> Numbers {
        let mut numbers = Numbers::from(next);
        numbers.take_lot(lot_end);
        numbers
    }

    /// The next to be given out.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Where the newest lot ends. A footer says so too.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// The record that took the newest lot.
    pub(crate) fn record(&self) -> Lsn {
        self.record
    }

    /// What a damaged volume had is not all known: those that follow may have been given out as well.
    pub(crate) fn leave_gap(&mut self) {
        *self = Numbers::from(self.recorded.saturating_add(LOST));
    }

    /// An inode with this number is made.
    pub(crate) fn made(&mut self, ino: Ino) {
        self.next = self.next.max(ino.0.saturating_add(1));
        self.end = self.end.max(self.next);
        self.recorded = self.recorded.max(self.end);
    }

    /// A record takes a lot that ends here. Its LSN is told when it is in the log.
    pub(crate) fn take_lot(&mut self, end: u64) {
        self.recorded = self.recorded.max(end);
        self.record = Lsn(u64::MAX);
    }

    /// The record that took the newest lot is this one.
    pub(crate) fn lot_is_logged(&mut self, record: Lsn) {
        self.record = record;
    }

    /// After replay: what is seen below the end of the newest lot may have been given out, and be lost.
    pub(crate) fn replayed(&mut self) {
        *self = Numbers::from(instead(Fault::NumbersReused, self.next, self.recorded));
    }

    /// Whether all numbers below this may be given out, the log being durable so far.
    pub(crate) fn may_give(&mut self, below: u64, durable: Lsn) -> bool {
        if self.record <= durable || fault(Fault::LotNotWaitedFor) {
            self.end = self.recorded;
        }
        below <= self.end
    }

    /// Where the next lot ends, if it is to be taken once all numbers below this are given out. While the
    /// record of one is not durable there is no other.
    pub(crate) fn lot_due(&self, below: u64) -> Option<u64> {
        let is_pending = self.recorded > self.end;
        let is_due = below.saturating_add(LOT / 2) > self.end;
        (is_due && !is_pending).then(|| below.max(self.recorded).saturating_add(LOT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_out_once_its_lot_is_durable() {
        let mut numbers = Numbers::from(16);
        assert!(!numbers.may_give(17, Lsn(100)), "there is no lot yet");
        let lot = numbers.lot_due(17).unwrap();
        assert_eq!(lot, 17 + LOT);
        numbers.take_lot(lot);
        numbers.lot_is_logged(Lsn(101));
        assert!(!numbers.may_give(17, Lsn(100)), "its record may be lost");
        assert_eq!(numbers.lot_due(17), None, "one at a time");
        assert!(numbers.may_give(17, Lsn(101)));
        assert_eq!(numbers.lot_due(17), None, "more than half is left");
        assert!(!numbers.may_give(lot + 1, Lsn(101)));
    }

    #[test]
    fn the_next_lot_is_taken_when_half_of_one_is_left() {
        let mut numbers = Numbers::from(16);
        numbers.take_lot(16 + LOT);
        numbers.lot_is_logged(Lsn(1));
        assert!(numbers.may_give(16 + LOT / 2, Lsn(1)));
        assert_eq!(numbers.lot_due(16 + LOT / 2), None);
        assert_eq!(numbers.lot_due(17 + LOT / 2), Some(16 + 2 * LOT));
    }

    #[test]
    fn after_a_replay_numbers_go_on_behind_the_newest_lot() {
        let mut numbers = Numbers::from(16);
        numbers.take_lot(16 + LOT);
        numbers.made(Ino(20));
        numbers.replayed();
        assert_eq!(numbers.next(), 16 + LOT);
        assert!(!numbers.may_give(17 + LOT, Lsn(1000)));
    }
}
