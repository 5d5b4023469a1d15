//! Labels that move to the end of a device that has become larger, and are interrupted at every command of that.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use persimmon_format::stripe_label::StripeLabel;

use super::*;
use crate::image::{ImageDevice, ImageGeometry};
use crate::{Completion, CreateOptions, FirstZones, Pending};

fn label(zones: u32, before: Option<u32>) -> StripeLabel {
    StripeLabel {
        uuid: [7; 16],
        columns: 1,
        metadata_sets: 0,
        zone_count: zones,
        zone_blocks: 256,
        before,
    }
}

fn device(zones: u32) -> Arc<ImageDevice> {
    let geometry = ImageGeometry {
        zone_count: zones,
        zone_blocks: 256,
        capacity_blocks: 256,
        max_open: None,
        max_active: None,
    };
    Arc::new(ImageDevice::in_memory(&geometry, &CreateOptions::default()).unwrap())
}

/// A device of which the first `zones` zones were all, with a label.
fn labelled(all: u32, zones: u32) -> Arc<ImageDevice> {
    let whole = device(all);
    let first = FirstZones::of(whole.clone(), zones);
    write(&first, &label(zones - LABEL_ZONES, None), Path::new("a")).unwrap();
    whole
}

/// What becomes of the command at which the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    NotDone,
    Done,
    /// A write has moved the write pointer, and its block is not there.
    Torn,
}

/// A device whose power is cut after some commands that change it.
struct Cut {
    device: Arc<ImageDevice>,
    left: AtomicI64,
    last: Last,
}

impl ZonedDevice for Cut {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, mut command: Command) -> Pending {
        if matches!(command, Command::Read { .. } | Command::Flush) {
            return self.device.submit(command);
        }
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        if left > 0 {
            return self.device.submit(command);
        }
        if let Command::Write { data, .. } = &mut command
            && self.last == Last::Torn
        {
            *data = vec![BufferMut::zeroed(1).freeze()];
        }
        if left == 0 && self.last != Last::NotDone {
            let _: Result<Completion> = self.device.run(command);
        }
        Pending::ready(Err(DeviceError::Stopped))
    }
}

fn found(device: &dyn ZonedDevice) -> StripeLabel {
    let found = find::<StripeLabel>(device).unwrap().unwrap();
    assert!(found.is_in_place);
    found.label
}

fn check_moved(device: &ImageDevice, new: &StripeLabel) {
    assert_eq!(found(device), *new);
    let zones = device.geometry().zone_count;
    let report = device.report(0..zones).unwrap();
    for (zone, info) in (0..).zip(&report) {
        assert_eq!(
            is_written(info),
            new.places().contains(&zone),
            "zone {zone}"
        );
    }
    for zone in new.places().map(ZoneId) {
        assert_eq!(read_in(device, zone).unwrap().as_ref(), Some(new));
    }
}

#[test]
fn a_label_is_found_where_the_device_ended() {
    for all in [7, 8, 9, 10, 30] {
        let device = labelled(all, 7);
        assert_eq!(found(&*device), label(5, None));
        // One of its zones is enough.
        for zone in [5, 6] {
            let device = labelled(all, 7);
            reset(&*device, ZoneId(zone)).unwrap();
            assert_eq!(found(&*device), label(5, None));
        }
    }
    assert!(read::<StripeLabel>(&*device(9)).unwrap().is_none());
}

#[test]
fn a_label_that_is_not_where_it_says_is_told_apart() {
    let device = device(9);
    let first = FirstZones::of(device.clone(), 7);
    write(&first, &label(4, None), Path::new("a")).unwrap();
    // In the second of its zones.
    assert_eq!(found(&*device), label(4, None));
    reset(&*device, ZoneId(5)).unwrap();
    let found = find::<StripeLabel>(&*device).unwrap().unwrap();
    assert!(!found.is_in_place);
}

#[test]
fn a_label_moves_whatever_happens_on_the_way() {
    for (all, last) in [8, 9, 10, 14]
        .into_iter()
        .flat_map(|all| [Last::NotDone, Last::Done, Last::Torn].map(|last| (all, last)))
    {
        let (old, new) = (label(5, None), label(all - LABEL_ZONES, Some(5)));
        let mut seen = [0, 0];
        for commands in 0.. {
            let device = labelled(all, 7);
            let cut = Cut {
                device: device.clone(),
                left: commands.into(),
                last,
            };
            let moved = move_to_end(&cut, (&old, &new), false, Path::new("a"));
            let there = found(&*device);
            assert!(there == old || there == new, "{all} {last:?} {commands}");
            seen[usize::from(there == new)] += 1;
            move_to_end(&*device, (&there, &new), false, Path::new("a")).unwrap();
            check_moved(&device, &new);
            if moved.is_ok() {
                break;
            }
        }
        // The first command that is done at all may be the one that writes the new label.
        let is_old_seen = seen[0] > 0 || matches!(last, Last::Done);
        assert!(is_old_seen && seen[1] > 0, "{all} {last:?} {seen:?}");
    }
}

/// The device became larger once more before the move was done again.
#[test]
fn an_interrupted_move_is_followed_by_another_one() {
    let all = 14;
    for (between, last) in [9, 10, 11]
        .into_iter()
        .flat_map(|all| [Last::NotDone, Last::Done, Last::Torn].map(|last| (all, last)))
    {
        for commands in 0..7 {
            let device = labelled(all, 7);
            let (old, new) = (label(5, None), label(between - LABEL_ZONES, Some(5)));
            let part = FirstZones::of(
                Arc::new(Cut {
                    device: device.clone(),
                    left: commands.into(),
                    last,
                }),
                between,
            );
            let _ = move_to_end(&part, (&old, &new), false, Path::new("a"));
            let there = found(&*device);
            let newest = label(all - LABEL_ZONES, Some(there.zone_count));
            move_to_end(&*device, (&there, &newest), false, Path::new("a")).unwrap();
            check_moved(&device, &newest);
        }
    }
}

#[test]
fn what_is_in_new_zones_is_not_lost_by_mistake() {
    let device = labelled(12, 7);
    let (old, new) = (label(5, None), label(10, Some(5)));
    let data = vec![BufferMut::zeroed(2).freeze()];
    let (zone, block) = (ZoneId(9), 0);
    device.run(Command::Write { zone, block, data }).unwrap();
    let refused = move_to_end(&*device, (&old, &new), false, Path::new("a")).unwrap_err();
    assert!(refused.to_string().contains("zone 9"), "{refused}");
    assert_eq!(found(&*device), old);
    move_to_end(&*device, (&old, &new), true, Path::new("a")).unwrap();
    check_moved(&device, &new);
}
