//! How many zones a volume needs, and how large an image is that has them.

use std::path::Path;

use anyhow::{Result, anyhow};
use persimmon::internal::device::image::{ImageDevice, ImageGeometry};
use persimmon::internal::format::ZONE_COUNT_MAX;
use persimmon::{DataRedundancy, internal};
use persimmon_fuse::size::show_bytes;

use super::{BLOCK, Shape};
use crate::exit;

const MIB: u64 = 1 << 20;
/// With so many zones every volume can be made: where it cannot, it is not for want of zones.
const ZONES_ENOUGH: u32 = 1 << 14;

/// The fewest zones, more than `too_few`, with which it fits; none where that does not help.
fn least(too_few: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut too_few, mut enough) = (too_few, too_few.max(1) * 2);
    while !fits(enough) {
        if enough >= ZONES_ENOUGH {
            return None;
        }
        (too_few, enough) = (enough, enough * 2);
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if fits(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Some(enough)
}

/// What a device has too few zones for.
fn what(shape: &Shape) -> String {
    let with = match shape.data() {
        Ok(DataRedundancy::Copies) => " with --data-copies 2".to_owned(),
        Ok(DataRedundancy::Parity { zones }) => format!(" with --data-parity {zones}"),
        _ if shape.copies() > 1 => format!(" with --copies {}", shape.copies()),
        _ => String::new(),
    };
    format!("a volume{with}")
}

/// Says that a device has too few zones, and what has enough, if that is what is wrong with it. `fits` says whether a volume can be made on
/// a device of so many zones.
pub(super) fn too_few(
    shape: &Shape,
    device: &Path,
    (is_image, geometry): (bool, &ImageGeometry),
    fits: impl Fn(u32) -> bool,
) -> Option<anyhow::Error> {
    let zones = geometry.zone_count;
    if zones >= ZONES_ENOUGH {
        return None;
    }
    let with = |zone_count| ImageGeometry {
        zone_count,
        ..*geometry
    };
    let needed = least(zones, fits)?;
    let zone_bytes = u64::from(geometry.zone_blocks) * BLOCK;
    let zone = show_bytes(zone_bytes);
    let there = match zones {
        0 => format!("there is no room for a zone of {zone}, and {}", what(shape)),
        1 => format!("1 zone of {zone} is too few: {}", what(shape)),
        _ => format!("{zones} zones of {zone} are too few: {}", what(shape)),
    };
    let mut text = format!("{there} needs at least {needed} zones");
    if is_image && let Ok(layout) = with(needed).layout() {
        let mib = layout.total.div_ceil(MIB);
        text += &format!(" (--size {mib}M");
        if ImageDevice::zone_bytes_for(mib * MIB) != zone_bytes {
            text += &format!(" --zone-size {}M", zone_bytes / MIB);
        }
        text += ")";
        let of_default_zones = Shape {
            zone_size: None,
            zone_capacity: None,
            ..shape.clone()
        };
        if shape.zone_size.is_some() && of_default_zones.plan(device, None).is_ok() {
            text += "; or leave out --zone-size, for smaller zones";
        }
    }
    Some(anyhow!("{}: {text}", device.display()))
}

/// Refuses an image of more zones than there can be, and says which option helps.
pub(super) fn check_not_too_many(
    shape: &Shape,
    device: &Path,
    size: u64,
    geometry: &ImageGeometry,
) -> Result<()> {
    let Err(many) = internal::shape::check_not_too_many(size, geometry) else {
        return Ok(());
    };
    let remedy = match many.zone_bytes {
        None => "no zone size lets it be so large".to_owned(),
        Some(zone_bytes) => {
            let and = match shape.zone_capacity {
                Some(_) => ", and leave out --zone-capacity",
                None => "",
            };
            format!("give --zone-size {}M{and}", zone_bytes / MIB)
        }
    };
    Err(exit::usage(format!(
        "{}: {} is more than {ZONE_COUNT_MAX} zones of {}, which is as many as there can be: {remedy}, or a smaller --size",
        device.display(),
        show_bytes(many.size_bytes),
        show_bytes(many.capacity_bytes)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_if_there_is_one() {
        for due in 1..100 {
            for too_few in 0..due {
                assert_eq!(least(too_few, |zones| zones >= due), Some(due));
            }
        }
        assert_eq!(least(5, |_| false), None);
    }
}
