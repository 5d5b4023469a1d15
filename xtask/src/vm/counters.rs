//! What the kernel's block layer sent to the emulated drives of a guest.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::guest::Guest;

const LIMIT: Duration = Duration::from_secs(60);
/// Counts requests of the block layer by kind; zone resets among them.
const SET_UP: &str = "mount -t tracefs none /sys/kernel/tracing && \
    echo hist:keys=rwbs >/sys/kernel/tracing/events/block/block_rq_issue/trigger";
/// Sectors written so far, of each drive, and zone requests of all.
const READ: &str = "for d in ns1 ns2; do test -e /dev/$d || continue; \
    set -- $(cat /sys/block/$(basename $(realpath /dev/$d))/stat); echo sent $7; done; \
    sed -n 's/.*rwbs: *ZR[A-Z]* .*hitcount: *\\([0-9]*\\).*/resets \\1/p' \
    /sys/kernel/tracing/events/block/block_rq_issue/hist";

/// What the drives `/dev/ns1` and `/dev/ns2` got since the guest booted.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    pub bytes: u64,
    pub resets: u64,
}

impl Counters {
    /// Begins to count, once in a guest.
    pub fn set_up(guest: &mut Guest) -> Result<()> {
        guest.check(SET_UP, LIMIT).map(drop)
    }

    /// Up to now.
    pub fn read(guest: &mut Guest) -> Result<Counters> {
        let said = guest.check(READ, LIMIT)?;
        let mut counters = Counters::default();
        for line in said.lines() {
            match line.split_once(' ') {
                Some(("sent", sectors)) => counters.bytes += sectors.parse::<u64>()? * 512,
                Some(("resets", count)) => counters.resets += count.parse::<u64>()?,
                _ => {}
            }
        }
        ensure!(said.contains("sent "), "no counters: {said}");
        Ok(counters)
    }

    /// What came after `earlier`.
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            bytes: self.bytes - earlier.bytes,
            resets: self.resets - earlier.resets,
        }
    }
}
