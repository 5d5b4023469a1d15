//! What a device says of itself where it has no other place for that: the last two of its zones hold a label and nothing else,
//! finished once and never written again. One of them is enough to know it.
//!
//! A device can get more zones. Then the label is where the device ended before, and the zones behind it are empty: the last zones that
//! are written are those of the label. To use the new zones, the label moves behind them ([`move_to_end`]).

use std::ops::Range;
use std::path::Path;

use persimmon_format::gate::FixedFields;

use crate::lock::open_error;
use crate::{
    BufferMut, Command, DeviceError, Geometry, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};

/// Zones at the end of a device that hold its label, and are none of the volume's.
pub const LABEL_ZONES: u32 = 2;

/// Written zones, from the last one back, in which a label is looked for: that of the volume, and what an interrupted move left of two
/// others.
const ZONES_SEARCHED: usize = 3 * LABEL_ZONES as usize;

/// A label.
pub(crate) trait Label: PartialEq + Sized {
    /// As read.
    fn decoded(block: &[u8]) -> Option<Self>;
    /// One block.
    fn encoded(&self) -> Vec<u8>;
    /// Zones of the device before the label.
    fn zones(&self) -> u32;
    /// The same before the label moved the last time.
    fn zones_before(&self) -> Option<u32>;
    /// Of which volume.
    fn volume(&self) -> [u8; 16];
    /// The error where a zone holds it that cannot be erased, and should hold another.
    fn marked(&self, path: &Path) -> DeviceError;

    /// The zones that it is in.
    fn places(&self) -> Range<u32> {
        let first = self.zones();
        first..first.saturating_add(LABEL_ZONES)
    }
}

/// The zones that a label at the end of a device is in.
pub(crate) fn zones(geometry: &Geometry) -> Range<u32> {
    let end = geometry.zone_count;
    end.saturating_sub(LABEL_ZONES)..end
}

/// A label as it was found.
pub(crate) struct Found<L> {
    pub(crate) label: L,
    /// It is where it says: the device is the one that it is of, or has more zones.
    pub(crate) is_in_place: bool,
}

/// The label of a device, if it has one. One that is not where it says counts only if there is no other.
pub(crate) fn find<L: Label>(device: &dyn ZonedDevice) -> Result<Option<Found<L>>> {
    let zones = 0..device.geometry().zone_count;
    let report = device.report(zones.clone())?;
    let all = zones.map(ZoneId).zip(&report).rev();
    let written = all.filter(|(_, info)| is_written(info));
    let (mut unread, mut misplaced) = (None, None);
    for (zone, _) in written.take(ZONES_SEARCHED) {
        match read_in::<L>(device, zone) {
            Ok(Some(label)) if label.places().contains(&zone.0) => {
                return Ok(Some(Found {
                    label,
                    is_in_place: true,
                }));
            }
            Ok(label) => misplaced = misplaced.or(label),
            Err(DeviceError::Gone) => return Err(DeviceError::Gone),
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    match (misplaced, unread) {
        (None, Some(error)) => Err(error),
        (label, _) => Ok(label.map(|label| Found {
            label,
            is_in_place: false,
        })),
    }
}

/// The same, wherever it is.
pub(crate) fn read<L: Label>(device: &dyn ZonedDevice) -> Result<Option<L>> {
    Ok(find(device)?.map(|found| found.label))
}

fn is_written(info: &ZoneInfo) -> bool {
    match info.state {
        ZoneState::Empty | ZoneState::Offline => false,
        ZoneState::Full | ZoneState::ReadOnly => true,
        _ => info.write_pointer > 0,
    }
}

fn read_in<L: Label>(device: &dyn ZonedDevice, zone: ZoneId) -> Result<Option<L>> {
    match device.read(zone, 0, 1) {
        Ok(block) => Ok(L::decoded(&block)),
        Err(error @ (DeviceError::Gone | DeviceError::Io { .. })) => Err(error),
        // Nothing is there.
        Err(_) => Ok(None),
    }
}

/// Writes a label to each zone that is for it, on a device whose last zones are empty. A zone that has failed is passed over if there
/// is another, unless it says something else that would be believed.
pub(crate) fn write<L: Label>(device: &dyn ZonedDevice, label: &L, path: &Path) -> Result<()> {
    let zones = zones(device.geometry());
    let report = device.report(zones.clone())?;
    let mut written = 0;
    // The last one first: it is free, where a label moves by one zone.
    for (zone, info) in zones.map(ZoneId).zip(&report).rev() {
        if info.state.is_worn_out() {
            let there = if is_written(info) {
                read_in::<L>(device, zone)?
            } else {
                None
            };
            match there {
                Some(other) if other != *label => return Err(other.marked(path)),
                _ => continue,
            }
        }
        write_in(device, zone, info, label)?;
        written += 1;
    }
    if written == 0 {
        return Err(open_error(
            path,
            "its last zones have failed, which would say whose device it is; use another device",
        ));
    }
    Ok(())
}

/// Has a zone hold a label and nothing else. It is finished when the label is durable: in a zone that is full the label is whole.
fn write_in<L: Label>(
    device: &dyn ZonedDevice,
    zone: ZoneId,
    info: &ZoneInfo,
    label: &L,
) -> Result<()> {
    if info.state == ZoneState::Full && read_in::<L>(device, zone)?.as_ref() == Some(label) {
        return Ok(());
    }
    if info.state != ZoneState::Empty {
        reset(device, zone)?;
    }
    let mut data = BufferMut::zeroed(1);
    data.copy_from_slice(&label.encoded());
    device.run(Command::Write {
        zone,
        block: 0,
        data: vec![data.freeze()],
    })?;
    device.flush()?;
    device.run(Command::Finish { zone })?;
    device.flush()
}

fn reset(device: &dyn ZonedDevice, zone: ZoneId) -> Result<()> {
    device.run(Command::Reset {
        zone,
        keep_allocated: false,
    })?;
    device.flush()
}

/// Moves the label of a device that has more zones now to its end: `new` says how many. Zones that it had and those that it gets are
/// empty then. At each moment one of the two labels is whole, and what was interrupted goes on when it is done again, though `old` is
/// `new` then. `overwrite`: whatever the zones hold that it gets.
///
/// # Errors
/// They hold something; the device fails.
pub(crate) fn move_to_end<L: Label>(
    device: &dyn ZonedDevice,
    (old, new): (&L, &L),
    overwrite: bool,
    path: &Path,
) -> Result<()> {
    // Of an earlier move.
    forget(device, old)?;
    let all = device.report(0..device.geometry().zone_count)?;
    let behind = (0..)
        .map(ZoneId)
        .zip(&all)
        .skip(old.places().end as usize)
        .filter(|(_, info)| is_written(info) && !info.state.is_worn_out());
    for (zone, info) in behind {
        if !overwrite && !is_left_of_a_label(device, zone, info, new)? {
            return Err(open_error(
                path,
                &format!(
                    "its zone {zone}, which the volume would get, is not empty: say --force if what is in it is not needed"
                ),
            ));
        }
        reset(device, zone)?;
    }
    if old.places().end > zones(device.geometry()).start {
        check_overlap(&all, old, path)?;
    }
    write(device, new, path)?;
    forget(device, new)
}

/// A label that moves by a single zone is overwritten where it was: it must be in both zones before and after.
fn check_overlap<L: Label>(report: &[ZoneInfo], old: &L, path: &Path) -> Result<()> {
    let places = old.zones() as usize..;
    let has_failed = report
        .get(places)
        .is_some_and(|zones| zones.iter().any(|info| info.state.is_worn_out()));
    if has_failed && old.zones() != zones_of_count(report.len()) {
        return Err(open_error(
            path,
            "one of its last zones has failed: it can grow by two zones or more",
        ));
    }
    Ok(())
}

fn zones_of_count(zones: usize) -> u32 {
    (zones as u32).saturating_sub(LABEL_ZONES)
}

/// Whether all that is in a zone is what an interrupted move left there: no whole block, or the label. What holds a label alone
/// otherwise begins with it.
fn is_left_of_a_label<L: Label>(
    device: &dyn ZonedDevice,
    zone: ZoneId,
    info: &ZoneInfo,
    label: &L,
) -> Result<bool> {
    let is_torn = info.state != ZoneState::Full && info.write_pointer <= 1;
    let block = match device.read(zone, 0, 1) {
        Ok(block) => block,
        Err(error @ (DeviceError::Gone | DeviceError::Io { .. })) => return Err(error),
        Err(_) => return Ok(is_torn),
    };
    Ok(match L::decoded(&block) {
        Some(there) => there.volume() == label.volume(),
        None => is_torn && FixedFields::read(&block).is_err(),
    })
}

/// Empties the zones that a label was in before it moved, if they still hold it.
fn forget<L: Label>(device: &dyn ZonedDevice, label: &L) -> Result<()> {
    let Some(before) = label.zones_before() else {
        return Ok(());
    };
    let places = before..before.saturating_add(LABEL_ZONES).min(label.zones());
    let report = device.report(places.clone())?;
    for (zone, info) in places.map(ZoneId).zip(&report) {
        if !is_written(info) || info.state.is_worn_out() {
            continue;
        }
        // What is in a zone of the volume begins with its header.
        if is_left_of_a_label(device, zone, info, label)? {
            reset(device, zone)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
