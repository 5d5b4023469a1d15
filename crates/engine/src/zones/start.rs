//! The zones of a volume as a mount, or its making, found them.

use persimmon_sync::atomic::AtomicBool;
use persimmon_sync::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::VolumeIdentity;

use super::budget::Budget;
use super::counts::ValidCounts;
use super::entries::{Entries, State, Touched, ZoneEntry};
use super::layout::PerDevice;
use super::lifetime::{CLASS_UNKNOWN, Interval, Life, ZoneLives};
use super::padding::Padding;
use super::pin::Pins;
use super::resets::{Resets, SUSPECTED};
use super::stream::Stream;
use super::survival::{Deaths, Survival};
use super::table::{Found, Table, Zones};
use super::trace::Trace;
use super::victim_index::VictimIndex;
use super::zone_counts::{Published, ZoneCounts};
use crate::media::Media;

impl Zones {
    pub(crate) fn new(
        budget: Budget,
        identity: VolumeIdentity,
        media: &Media,
        found: &PerZone<Found>,
        next_sequence: u64,
        write_clock: u64,
    ) -> Zones {
        let volume_blocks = found.iter().map(|f| u64::from(f.capacity)).sum();
        let life = |entry: &ZitEntry| Life {
            born: entry.last_write,
            interval: Interval::of_class(
                Stream::of(entry.role, entry.lifetime).map_or(CLASS_UNKNOWN, Stream::class),
                volume_blocks,
            ),
        };
        // What a volume had on its one device before it got another one for metadata is to be moved there.
        let is_misplaced =
            |zone, role: Role| role == Role::Metadata && !budget.layout.suits(zone, role);
        let entries: PerZone<ZoneEntry> = (0..)
            .map(ZoneId)
            .zip(found.iter())
            .map(|(zone, f)| ZoneEntry {
                role: f.entry.role,
                lifetime: f.entry.lifetime,
                write_pointer: f.entry.write_pointer,
                capacity: f.capacity,
                resets: f.entry.resets,
                sequence: f.entry.sequence,
                last_write: f.entry.last_write,
                life: life(&f.entry),
                state: if f.used { State::Closed } else { State::Empty },
                keeps_space: None,
                failure: f.failure,
                lacks_redundancy: is_misplaced(zone, f.entry.role),
            })
            .collect();
        let some_to_be_emptied = entries.iter().any(|entry| entry.lacks_redundancy);
        let mut free = PerDevice::default();
        for (zone, entry) in (0..).map(ZoneId).zip(entries.iter()) {
            let is_free = entry.role == Role::Free && !entry.is_used();
            let device = budget.layout.device_of(zone);
            *budget.layout.get_mut(&mut free, device) += u32::from(is_free);
        }
        let roles = (0..).map(ZoneId).zip(entries.iter());
        let misplaced = roles.filter(|(zone, e)| budget.layout.is_misplaced(*zone, e.role));
        let misplaced = misplaced.count() as u32;
        let touched = Touched::none(found.len() as u32);
        let counted = found.iter().map(|f| &f.entry);
        let valid = ValidCounts::new(
            found.len(),
            counted,
            budget.copies,
            touched.clone(),
            &media.alarm,
        );
        let (journal_blocks, journal_blocks_secured) = (
            budget.journal_blocks_first(),
            budget.journal_blocks_reserved,
        );
        let lives = ZoneLives::new(found.len());
        for (zone, entry) in (0..).map(ZoneId).zip(entries.iter()) {
            if entry.role == Role::Data {
                lives.set(zone, entry.life);
            }
        }
        let published = Published::default();
        let zones = Zones {
            volume_blocks,
            device_blocks: budget.layout.sums(found.iter().map(|f| f.capacity.into())),
            budget,
            identity,
            pairs: media.pairs.clone(),
            failed: PerDevice::default(),
            log_failing: AtomicBool::new(false),
            lacks_redundancy: AtomicBool::new(some_to_be_emptied),
            log_ends: AtomicBool::new(true),
            failing: Mutex::default(),
            is_failing: AtomicBool::new(false),
            host_is_full: AtomicBool::new(false),
            valid,
            deaths: Deaths::none(found.len()),
            padding: Padding::none(found.len()),
            lives,
            pins: Pins::new(found.len() as u32, touched.clone(), &media.alarm),
            table: Mutex::watched(
                Table {
                    alarm: media.alarm.clone(),
                    counts: ZoneCounts {
                        free,
                        log_zones: entries.iter().filter(|e| e.role == Role::Log).count() as u32,
                        misplaced,
                        journal_blocks,
                        journal_blocks_secured,
                        write_clock,
                        ..ZoneCounts::default()
                    },
                    published: published.clone(),
                    victim_index: VictimIndex::default(),
                    entries: Entries::new(entries, touched.clone()),
                    next_sequence,
                    resets_kept: SUSPECTED,
                    survival: Survival::new(volume_blocks, write_clock),
                    parked: Vec::new(),
                    out: HashMap::new(),
                    wanting: HashSet::new(),
                },
                &media.alarm,
            ),
            published,
            alarm: media.alarm.clone(),
            returned: Condvar::new(),
            touched,
            resets: Resets::new(&media.alarm),
            trace: Trace::default(),
        };
        zones.index_all(&mut zones.lock());
        zones.count_failed(&zones.lock());
        zones
    }
}
