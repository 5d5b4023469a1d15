//! Which of the zones found are the log. A header alone proves nothing: a zone may have been taken
//! for the log and never written to, and where write pointers are no proof a power cut can bring
//! back the header of a former life.

use persimmon_format::VolumeKey;

use super::blocks::last_good;
use super::zone::FoundZone;
use crate::error::Result;
use crate::media::Media;

/// Of the zones found, oldest first, those that hold the log, each as far as it counts.
///
/// A zone that failed was left early, and the next one took over its numbers: what arrived of the
/// failed command does not count. But numbers are only taken over by a good block, and of no
/// earlier epoch than what is there: otherwise nothing was ever built upon that zone, the log went
/// on without it, or can.
pub(super) fn of(
    media: &Media,
    key: &VolumeKey,
    zones: Vec<FoundZone>,
    copies: u32,
) -> Result<Vec<FoundZone>> {
    let mut chain: Vec<FoundZone> = Vec::with_capacity(zones.len());
    for found in zones {
        let first = found.zone.first_log_sequence;
        let overlaps = |earlier: &FoundZone| earlier.end() > first;
        if chain.iter().any(overlaps) {
            let Some(epoch) = newest_epoch(media, key, &found)? else {
                leave_out(&found, "it holds nothing");
                continue;
            };
            if goes_on_later(media, key, &chain, first, epoch)? {
                leave_out(&found, "the log went on without it");
                continue;
            }
            chain.iter_mut().for_each(|earlier| earlier.end_at(first));
            chain.retain(|earlier| earlier.write_pointer > 1);
        }
        chain.push(found);
    }
    // Nor is one that holds nothing and cannot be written to.
    while let [_, .., newest] = chain.as_slice()
        && !newest.is_writable(copies)
        && newest_epoch(media, key, newest)?.is_none()
    {
        leave_out(newest, "it holds nothing");
        chain.pop();
    }
    Ok(chain)
}

fn leave_out(found: &FoundZone, why: &str) {
    tracing::debug!(zone = found.zone.zone.0, why, "a zone is not of the log");
}

/// The epoch of the last good block.
fn newest_epoch(media: &Media, key: &VolumeKey, found: &FoundZone) -> Result<Option<u32>> {
    let newest = last_good(media, key, found, found.write_pointer, |_| true)?;
    Ok(newest
        .and_then(|(_, read)| read.state())
        .map(|state| state.epoch))
}

/// Whether these zones have a block of a later epoch with this number or a later one.
fn goes_on_later(
    media: &Media,
    key: &VolumeKey,
    chain: &[FoundZone],
    sequence: u64,
    epoch: u32,
) -> Result<bool> {
    for found in chain.iter().filter(|found| found.end() > sequence) {
        let later = last_good(media, key, found, found.write_pointer, |read| {
            read.state().is_some_and(|state| state.epoch > epoch)
        })?;
        if later.is_some_and(|(at, _)| at >= found.place(sequence)) {
            return Ok(true);
        }
    }
    Ok(false)
}
