//! What a device looks like: sizes, limits, and the state of each zone.

use std::ops::Range;

use persimmon_format::log::LOG_CANDIDATES;

/// Sizes and limits of a device. Blocks are of [`crate::BLOCK_SIZE`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Zones on the device, conventional ones included.
    pub zone_count: u32,
    /// Blocks from the start of one zone to the start of the next.
    pub zone_blocks: u32,
    /// The first so many zones are conventional (writable in any order by the medium). Back ends
    /// lay a software write pointer over them, so that they are used like the others.
    pub conventional_zones: u32,
    /// Zones on a device of their own, for the log and metadata; the others are for file data. None: one device for all.
    pub metadata_zones: MetadataZones,
    /// How many zones may be open at once; `None` is no limit.
    pub max_open: Option<u32>,
    /// How many zones may be open or closed (active) at once; `None` is no limit.
    pub max_active: Option<u32>,
    /// Blocks one read or write may transfer.
    pub max_transfer_blocks: u32,
    /// Blocks one append may transfer.
    pub max_append_blocks: u32,
    /// Completed writes may be lost at a power cut until a flush.
    pub volatile_cache: bool,
    /// A write pointer of a zone in state open or closed proves that the blocks below it are
    /// there, but for the last one, which may have been torn and padded. Where it is not set, only checksums decide.
    pub write_pointer_is_proof: bool,
    /// Zones are stripe sets of a device below, so that none of its zones can take anything along.
    pub stripes: Option<Stripes>,
}

/// How the zones of a device are used in stripe sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// Zones of a set for data, beside one of parity: one makes a mirror. A write to such a set ends at a whole row of so
    /// many blocks, the first block of all not counted, which is a row by itself.
    pub columns: u32,
    /// The first so many sets are mirrors, for the log and metadata; 0: the sets for data are for all.
    pub metadata_sets: u32,
}

impl Stripes {
    /// Two zones with the same content, for everything.
    pub const MIRROR: Stripes = Stripes {
        columns: 1,
        metadata_sets: 0,
    };
}

impl Geometry {
    /// Whether the device takes appends.
    #[must_use]
    pub fn takes_appends(&self) -> bool {
        self.stripes.is_none()
    }

    /// Blocks of a row, at whose ends writes of data end; 1 where all blocks are alike.
    #[must_use]
    pub fn row_blocks(&self) -> u32 {
        self.stripes.map_or(1, |stripes| stripes.columns.max(1))
    }

    /// Zones that the log may take: the first so many sequential ones, on two devices of those for
    /// metadata.
    #[must_use]
    pub fn log_candidates(&self) -> Vec<u32> {
        // Where all zones are for all.
        let any = if self.metadata_zones.is_none() {
            self.conventional_zones..self.zone_count
        } else {
            0..0
        };
        let zones = any.chain(self.metadata_zones.runs().iter().cloned().flatten());
        zones
            .filter(|zone| *zone < self.zone_count)
            .take(LOG_CANDIDATES as usize)
            .collect()
    }

    /// Zones that the log may be in: those, and those that it could take while the volume had one device.
    #[must_use]
    pub fn log_places(&self) -> Vec<u32> {
        let mut places = self.log_candidates();
        if self.metadata_zones.are_added() {
            let data = (self.conventional_zones..self.zone_count)
                .filter(|zone| !self.metadata_zones.contains(*zone));
            places.extend(data.take(LOG_CANDIDATES as usize));
        }
        places
    }

    /// The first so many zones of this.
    #[must_use]
    pub fn first(&self, zone_count: u32) -> Geometry {
        let zone_count = zone_count.min(self.zone_count);
        Geometry {
            zone_count,
            conventional_zones: self.conventional_zones.min(zone_count),
            metadata_zones: self.metadata_zones.before(zone_count),
            ..self.clone()
        }
    }
}

/// Which zones are for the log and metadata alone. Those that a volume was made with come first; those that it got later follow
/// all that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataZones {
    /// By their numbers, apart from each other.
    runs: Vec<Range<u32>>,
}

impl MetadataZones {
    /// All zones are for all.
    #[must_use]
    pub fn none() -> MetadataZones {
        MetadataZones::default()
    }

    /// The first so many.
    #[must_use]
    pub fn first(count: u32) -> MetadataZones {
        MetadataZones::of(std::iter::once(0..count))
    }

    /// These, in order of their numbers.
    #[must_use]
    pub fn of(ranges: impl IntoIterator<Item = Range<u32>>) -> MetadataZones {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            match runs.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => runs.push(range),
            }
        }
        MetadataZones { runs }
    }

    /// There is one device for all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.runs.is_empty()
    }

    /// The volume had one device at first, and got that for metadata later.
    #[must_use]
    pub fn are_added(&self) -> bool {
        self.runs.first().is_some_and(|first| first.start > 0)
    }

    /// Whether a zone is one of them.
    #[must_use]
    pub fn contains(&self, zone: u32) -> bool {
        let after = self.runs.partition_point(|run| run.start <= zone);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        run.is_some_and(|run| run.contains(&zone))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Those that follow each other, together.
    #[must_use]
    pub fn runs(&self) -> &[Range<u32>] {
        &self.runs
    }

    /// Those among the first so many zones.
    #[must_use]
    pub fn before(&self, zone_count: u32) -> MetadataZones {
        let runs = self.runs.iter();
        MetadataZones::of(runs.map(|run| run.start..run.end.min(zone_count)))
    }
}

/// Whether the medium enforces the write pointer of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// Writable at the write pointer only.
    Sequential,
    /// Writable anywhere; its write pointer is kept by the back end.
    Conventional,
}

/// Zone states of the NVMe ZNS specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing written since the last reset.
    Empty,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by the open command.
    ExplicitlyOpen,
    /// Written in part, no open resources.
    Closed,
    /// Written to its capacity, or finished.
    Full,
    /// Readable, never writable again.
    ReadOnly,
    /// Neither readable nor writable again.
    Offline,
}

impl ZoneState {
    /// Counts against [`Geometry::max_open`].
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
    }

    /// Counts against [`Geometry::max_active`].
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }

    /// Takes writes (limits permitting).
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.is_active() || self == ZoneState::Empty
    }

    /// Worn out: never takes writes or resets again.
    #[must_use]
    pub fn is_worn_out(self) -> bool {
        matches!(self, ZoneState::ReadOnly | ZoneState::Offline)
    }
}

/// One line of a zone report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Sequential or conventional.
    pub kind: ZoneKind,
    /// State now.
    pub state: ZoneState,
    /// Blocks that can be written, counted from the start of the zone; at most
    /// [`Geometry::zone_blocks`].
    pub capacity: u32,
    /// Next block to be written, counted from the start of the zone. In a full zone it is the
    /// capacity, whatever was written; in a read-only or offline zone it means nothing.
    pub write_pointer: u32,
}
