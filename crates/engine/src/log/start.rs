//! The checkpoint that a recovery begins with, the log from there on, and the checkpoint that it may
//! call durable.

use persimmon_format::footer::Footer;
use persimmon_format::{Addr, Lsn, VolumeKey};

use super::blocks::{self, Read};
use super::footers;
use super::zone::FoundZone;
use crate::error::{Error, Result};
use crate::media::Media;

/// Where the log of a checkpoint starts: what is written from now on builds upon this checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct LogStart {
    pub(crate) footer: Addr,
    /// Records up to this LSN were durable before it was.
    pub(crate) counted: Lsn,
    pub(crate) replay_sequence: u64,
}

impl LogStart {
    pub(crate) fn of(addr: Addr, footer: &Footer) -> LogStart {
        LogStart {
            footer: addr,
            counted: footer.counted,
            replay_sequence: footer.replay.sequence,
        }
    }
}

/// The newest footer and the log blocks from its replay position on.
pub(crate) struct LogAsRead {
    pub(crate) footer_addr: Addr,
    pub(crate) footer: Footer,
    /// The newest checkpoint that is known to have been durable, in all copies: the log's last
    /// block names it. It may be the one before.
    pub(crate) proven: LogStart,
    /// A newer footer is not whole.
    pub(crate) older_footer: bool,
    pub(crate) blocks: Vec<Read>,
    /// Of a pair of zones one has a block that the other does not have.
    pub(crate) uneven: bool,
}

/// Reads the log from its newest checkpoint on.
pub(crate) fn read(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    copies: u32,
) -> Result<LogAsRead> {
    let unfinished = || {
        Error::NoVolume(
            "there is no checkpoint in it, as in a volume whose making was interrupted".into(),
        )
    };
    let (mut footer_addr, mut footer, mut older_footer) =
        footers::newest_footer(media, key, zones)?.ok_or_else(unfinished)?;
    let (mut blocks, mut uneven) = blocks::read_from(media, key, zones, footer.replay.sequence)?;
    if let Some((addr, newer)) = footers::latest_footer(&blocks)?
        && newer.checkpoint > footer.checkpoint
    {
        (blocks, uneven) = blocks::read_from(media, key, zones, newer.replay.sequence)?;
        (footer_addr, footer, older_footer) = (addr, newer, false);
    }
    let proven = proven(media, key, zones, copies, &blocks)
        .filter(|log_start| log_start.replay_sequence <= footer.replay.sequence)
        .unwrap_or(LogStart::of(footer_addr, &footer));
    Ok(LogAsRead {
        footer_addr,
        footer,
        proven,
        older_footer,
        blocks,
        uneven,
    })
}

/// The checkpoint that the log's last block names, if it can still be gone back to. Where a zone of
/// its part of the log was reset, were it one of two, a later one was durable.
fn proven(
    media: &Media,
    key: &VolumeKey,
    zones: &[FoundZone],
    copies: u32,
    blocks: &[Read],
) -> Option<LogStart> {
    let states = blocks.iter().filter_map(Read::state);
    let addr = states.max_by_key(|state| state.epoch)?.footer;
    let footer = footers::read_footer(media, key, zones, addr).ok()?;
    let replayed = blocks::from(zones, footer.replay.sequence);
    let is_there = replayed.first()?.zone.first_log_sequence <= footer.replay.sequence
        && replayed
            .iter()
            .all(|f| f.copies().count() == copies as usize);
    is_there.then(|| LogStart::of(addr, &footer))
}
