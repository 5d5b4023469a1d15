//! Two devices used as one: the zones of one come first, those of the other follow. Both may keep
//! zones at their ends that nobody sees.
//!
//! Either they are a drive and what is in its conventional zones ([`Joined::new`]). The first has zones
//! whose write pointers are kept by software: an image over the conventional zones of a drive. The other
//! is the rest of that drive, and its limits are the limits of both: what is open in the first costs no
//! place in the drive, so together they allow at least as much as they say. The second knows when the
//! drive is gone; to the first that looks like a full or failing host.
//!
//! Or they are devices of their own ([`Joined::parts`]), each of which answers for itself. Where one of them grew after the whole was
//! made, its new zones follow all that there were.

use std::ops::Range;
use std::sync::Arc;

use crate::{
    Command, Completion, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo, ZoneKind,
    ZoneState, ZonedDevice,
};

/// Whose a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    First,
    Second,
    /// It is not there, as if it were offline.
    Nobody,
}

/// Zones of one device that follow each other in the whole too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) owner: Owner,
    /// Their numbers in the whole.
    pub(crate) zones: Range<u32>,
    /// Number of the first one on its device. None is greater than that in the whole.
    pub(crate) within: u32,
}

impl Span {
    /// By how much numbers in the whole are greater.
    fn shift(&self) -> u32 {
        self.zones.start - self.within.min(self.zones.start)
    }
}

/// Two devices in the role of one.
#[derive(Debug)]
pub struct Joined<A, B> {
    first: A,
    second: Arc<B>,
    geometry: Geometry,
    /// All zones, in order.
    spans: Vec<Span>,
    /// The first lies on the second, and is conventional.
    is_one_drive: bool,
}

const NOT_THERE: ZoneInfo = ZoneInfo {
    kind: ZoneKind::Sequential,
    state: ZoneState::Offline,
    capacity: 0,
    write_pointer: 0,
};

/// All zones of the first, then all of the second.
pub(crate) fn two_spans(split: u32, zone_count: u32) -> Vec<Span> {
    let span = |owner, zones| Span {
        owner,
        zones,
        within: 0,
    };
    let spans = [
        span(Owner::First, 0..split),
        span(Owner::Second, split..zone_count),
    ];
    spans
        .into_iter()
        .filter(|span| !span.zones.is_empty())
        .collect()
}

impl<A: ZonedDevice, B: ZonedDevice + 'static> Joined<A, B> {
    /// Joins them. Their zones are of one size.
    ///
    /// Errors: [`DeviceError::Open`] if they are not, or too many together.
    pub fn new(first: A, second: B) -> Result<Joined<A, B>> {
        let (one, other) = (first.geometry(), second.geometry());
        let count = one.zone_count.checked_add(other.zone_count);
        let (true, Some(zone_count)) = (one.zone_blocks == other.zone_blocks, count) else {
            return Err(DeviceError::Open {
                path: "the two parts of the device".to_owned(),
                message: "their zones do not fit together".to_owned(),
                os_error: None,
            });
        };
        let geometry = Geometry {
            zone_count,
            zone_blocks: one.zone_blocks,
            conventional_zones: one.zone_count,
            metadata_zones: Default::default(),
            max_open: other.max_open,
            max_active: other.max_active,
            max_transfer_blocks: one.max_transfer_blocks.min(other.max_transfer_blocks),
            max_append_blocks: one.max_append_blocks.min(other.max_append_blocks),
            volatile_cache: one.volatile_cache || other.volatile_cache,
            write_pointer_is_proof: other.write_pointer_is_proof,
            stripes: None,
        };
        let split = geometry.conventional_zones;
        Ok(Joined {
            spans: two_spans(split, zone_count),
            is_one_drive: true,
            first,
            second: Arc::new(second),
            geometry,
        })
    }

    /// Joins zones of each: those of the first are for metadata, those of the second for data. `geometry` is that of the whole.
    pub(crate) fn parts(first: A, second: B, (spans, geometry): (Vec<Span>, Geometry)) -> Self {
        Joined {
            spans,
            is_one_drive: false,
            first,
            second: Arc::new(second),
            geometry,
        }
    }

    /// The one whose zones come first.
    pub fn first(&self) -> &A {
        &self.first
    }

    /// The one whose zones follow.
    pub fn second(&self) -> &B {
        &self.second
    }

    /// Where a zone is.
    fn span(&self, zone: ZoneId) -> Result<&Span> {
        let at = self.spans.partition_point(|span| span.zones.end <= zone.0);
        let count = self.geometry.zone_count;
        self.spans
            .get(at)
            .ok_or(DeviceError::NoSuchZone { zone, count })
    }

    /// A command to the first, which fails as one to a drive that is gone if it is.
    fn of_first(&self, pending: Pending) -> Pending {
        if !self.is_one_drive {
            return pending;
        }
        let second = Arc::clone(&self.second);
        pending.map_err(move |error| match second.report(0..1) {
            Err(DeviceError::Gone) => DeviceError::Gone,
            _ => error,
        })
    }

    /// Gives a command to the one whose zone it is for, or to both.
    fn pass_on(
        &self,
        mut command: Command,
        to_first: impl FnOnce(&A, Command) -> Pending,
        to_second: impl FnOnce(&B, Command) -> Pending,
    ) -> Pending {
        let Some(zone) = command.zone_mut() else {
            return self.to_both(command);
        };
        let span = match self.span(*zone) {
            Ok(span) => span,
            Err(error) => return Pending::ready(Err(error)),
        };
        let shift = span.shift();
        let whole = std::mem::replace(zone, ZoneId(zone.0 - shift));
        let pending = match span.owner {
            Owner::First => self.of_first(to_first(&self.first, command)),
            Owner::Second => to_second(&self.second, command),
            Owner::Nobody => {
                return Pending::ready(Err(DeviceError::BadState {
                    zone: whole,
                    state: ZoneState::Offline,
                    operation: "use",
                }));
            }
        };
        match shift {
            0 => pending,
            shift => pending.map_err(move |error| error.in_zones_after(shift)),
        }
    }

    /// What is told of zones of the first, by its numbers.
    fn report_of_first(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        // It knows by heart what the drive would be asked for.
        if self.is_one_drive
            && let Err(DeviceError::Gone) = self.second.report(0..1)
        {
            return Err(DeviceError::Gone);
        }
        let mut report = self.first.report(zones)?;
        if self.is_one_drive {
            for info in &mut report {
                info.kind = ZoneKind::Conventional;
            }
        }
        Ok(report)
    }

    /// A flush or record of both at once; what both completed is durable when both are. Also of one that says it has no
    /// volatile cache: who sends a flush knows that, and may not believe it.
    fn to_both(&self, command: Command) -> Pending {
        // The second has a queue: it works while the first does.
        let second = self.second.submit(command.clone());
        let first = self.of_first(self.first.submit(command));
        Pending::deferred(move || {
            let (first, second) = (first.wait(), second.wait());
            first.and(second)
        })
    }
}

impl<A: ZonedDevice, B: ZonedDevice + 'static> ZonedDevice for Joined<A, B> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let count = self.geometry.zone_count;
        if zones.end > count && zones.start < zones.end {
            let zone = ZoneId(zones.end - 1);
            return Err(DeviceError::NoSuchZone { zone, count });
        }
        let mut report = Vec::with_capacity(zones.len());
        for span in &self.spans {
            let wanted = zones.start.max(span.zones.start)..zones.end.min(span.zones.end);
            if wanted.is_empty() {
                continue;
            }
            let shift = span.shift();
            let within = wanted.start - shift..wanted.end - shift;
            let told = match span.owner {
                Owner::First => self.report_of_first(within),
                Owner::Second => self.second.report(within),
                Owner::Nobody => Ok(vec![NOT_THERE; wanted.len()]),
            };
            report.extend(told.map_err(|error| error.in_zones_after(shift))?);
        }
        Ok(report)
    }

    fn submit(&self, command: Command) -> Pending {
        self.pass_on(command, A::submit, B::submit)
    }

    fn run(&self, command: Command) -> Result<Completion> {
        self.pass_on(
            command,
            |first, command| Pending::ready(first.run(command)),
            |second, command| Pending::ready(second.run(command)),
        )
        .wait()
    }

    /// Most zones that are reset are of the second.
    fn resets_at_once(&self) -> usize {
        self.second.resets_at_once()
    }

    fn space_is_hosts(&self) -> bool {
        self.first.space_is_hosts() && self.second.space_is_hosts()
    }

    fn identity(&self) -> Option<crate::DeviceIdentity> {
        self.first.identity().or_else(|| self.second.identity())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::conformance::{self, Shape};
    use crate::image::{ImageDevice, ImageGeometry};
    use crate::{BufferMut, Completion, CreateOptions, OpenOptions};

    type Images = Joined<ImageDevice, ImageDevice>;

    fn image(dir: &std::path::Path, name: &str, zone_count: u32, shape: &Shape) -> ImageDevice {
        let geometry = ImageGeometry {
            zone_count,
            zone_blocks: shape.zone_blocks,
            capacity_blocks: shape.capacity_blocks,
            max_open: shape.max_open,
            max_active: shape.max_active,
        };
        ImageDevice::create(dir.join(name), &geometry, &CreateOptions::default()).unwrap()
    }

    /// Where the parts meet is inside what the cases use.
    fn joined(dir: &std::path::Path, shape: &Shape) -> Images {
        let first = ImageGeometry {
            zone_count: 2,
            zone_blocks: shape.zone_blocks,
            capacity_blocks: shape.capacity_blocks,
            max_open: None,
            max_active: None,
        };
        let first = ImageDevice::create(dir.join("a"), &first, &CreateOptions::default()).unwrap();
        Joined::new(first, image(dir, "b", shape.zone_count - 2, shape)).unwrap()
    }

    #[test]
    fn two_images_keep_the_promises_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut number = 0;
        let place = dir.path().join("now");
        conformance::check(
            |shape| {
                number += 1;
                let _ = std::fs::remove_dir_all(&place);
                std::fs::create_dir(&place).unwrap();
                joined(&place, shape)
            },
            |device: Images| {
                drop(device);
                let open = |name| ImageDevice::open(place.join(name), &OpenOptions::default());
                Joined::new(open("a").unwrap(), open("b").unwrap()).unwrap()
            },
        );
        assert!(number > 0);
    }

    /// A drive that can be pulled.
    #[derive(Debug)]
    struct Pulled(ImageDevice, std::sync::atomic::AtomicBool);

    impl ZonedDevice for Pulled {
        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }

        fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
            if self.1.load(std::sync::atomic::Ordering::Relaxed) {
                Err(DeviceError::Gone)
            } else {
                self.0.report(zones)
            }
        }

        fn submit(&self, command: Command) -> Pending {
            match self.report(0..1) {
                Err(error) => Pending::ready(Err(error)),
                Ok(_) => self.0.submit(command),
            }
        }
    }

    #[test]
    fn a_drive_that_is_gone_is_gone_in_all_its_zones() {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape {
            zone_count: 3,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        };
        let pulled = Pulled(image(dir.path(), "b", 3, &shape), false.into());
        let device = Joined::new(image(dir.path(), "a", 3, &shape), pulled).unwrap();
        // What the host says of a drive that is gone is anything.
        let fails = |zone| device.read(ZoneId(zone), 0, 1).unwrap_err();
        for zone in [0, 3] {
            assert!(matches!(fails(zone), DeviceError::ReadPastEnd { .. }));
        }
        let gone = &device.second().1;
        gone.store(true, std::sync::atomic::Ordering::Relaxed);
        for zone in [0, 3] {
            assert!(matches!(fails(zone), DeviceError::Gone));
            let report = device.report(zone..zone + 1);
            assert!(matches!(report, Err(DeviceError::Gone)));
        }
        assert!(matches!(device.flush(), Err(DeviceError::Gone)));
    }

    #[test]
    fn errors_name_the_zone_of_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape {
            zone_count: 6,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        };
        let device = joined(dir.path(), &shape);
        for zone in [1, 2, 5] {
            let data = vec![BufferMut::zeroed(1).freeze()];
            let refused = device.run(Command::Write {
                zone: ZoneId(zone),
                block: 7,
                data,
            });
            assert!(
                matches!(refused, Err(DeviceError::NotAtWritePointer { zone: told, .. }) if told.0 == zone)
            );
        }
        let report = device.report(0..6).unwrap();
        let kinds: Vec<bool> = report
            .iter()
            .map(|info| info.kind == ZoneKind::Conventional)
            .collect();
        assert_eq!(kinds, [true, true, false, false, false, false]);
        assert_eq!(device.report(1..4).unwrap().len(), 3);
        assert!(matches!(
            device.report(5..7),
            Err(DeviceError::NoSuchZone { zone, count: 6 }) if zone.0 == 6
        ));
        assert!(matches!(
            device.read(ZoneId(6), 0, 1),
            Err(DeviceError::NoSuchZone { zone, count: 6 }) if zone.0 == 6
        ));
    }

    /// A device that counts flushes, and says that it needs none.
    #[derive(Debug)]
    struct Steady {
        geometry: Geometry,
        flushes: Arc<AtomicU32>,
    }

    impl ZonedDevice for Steady {
        fn geometry(&self) -> &Geometry {
            &self.geometry
        }

        fn report(&self, _: Range<u32>) -> Result<Vec<ZoneInfo>> {
            Ok(Vec::new())
        }

        fn submit(&self, command: Command) -> Pending {
            let flushes = u32::from(matches!(command, Command::Flush));
            self.flushes.fetch_add(flushes, Ordering::Relaxed);
            Pending::ready(Ok(Completion::Done))
        }
    }

    /// With `barrier=on` drives are flushed that say they have no volatile cache, for some have one all the same. The
    /// parts of a volume on two devices, and of a drive with conventional zones, were left out where they said so.
    #[test]
    fn a_flush_reaches_parts_that_need_none_as_they_say() {
        let flushes = Arc::new(AtomicU32::new(0));
        let steady = || Steady {
            geometry: Geometry {
                zone_count: 4,
                zone_blocks: 256,
                conventional_zones: 0,
                metadata_zones: Default::default(),
                max_open: None,
                max_active: None,
                max_transfer_blocks: 32,
                max_append_blocks: 32,
                volatile_cache: false,
                write_pointer_is_proof: true,
                stripes: None,
            },
            flushes: Arc::clone(&flushes),
        };
        let mixed = Joined::new(steady(), steady()).unwrap();
        mixed.run(Command::Flush).unwrap();
        assert_eq!(flushes.swap(0, Ordering::Relaxed), 2);
        let geometry = crate::pair::geometry_of(&steady().geometry, &steady().geometry).unwrap();
        let pair = Joined::parts(steady(), steady(), (two_spans(2, 4), geometry));
        pair.run(Command::Flush).unwrap();
        assert_eq!(flushes.swap(0, Ordering::Relaxed), 2);
        // Who believes them sends none.
        pair.flush().unwrap();
        assert_eq!(flushes.load(Ordering::Relaxed), 0);
    }
}
