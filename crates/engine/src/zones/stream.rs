//! Streams: what is written together, into zones of its own.

use persimmon_format::table::Role;

use super::budget::Budget;
use super::lifetime::{CLASS_UNKNOWN, CLASSES};

/// Moved blocks of a class below this go to the zones that users fill with blocks that live as long: they are few, and a drive
/// with 14 active zones has not enough for all classes of both. Those that live longer are most of what is moved, and
/// old: together with new ones, of which less is known, they cost 5 % with zipf.
const MOVED_APART_FROM: u8 = CLASS_UNKNOWN;

/// What kind of data an open zone takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// File data with a lifetime that its user told (1 to 4).
    Hinted(u8),
    /// Other file data, by the class of its estimated [`Interval`].
    Data(u8),
    /// File data that cleaning moved, by class.
    Moved(u8),
    /// The same out of zones of a lifetime that its user told, and that lifetime.
    HintedMoved(u8, u8),
    /// Fresh pages and table chunks.
    Metadata,
    /// Pages that cleaning moved.
    ColdMetadata,
}

/// Lifetime class in ZIT and header of metadata zones that hold blocks that cleaning moved; of data zones too, in volumes made
/// before those had classes.
pub(crate) const MOVED: u8 = 5;
/// The same of data zones by estimated interval: this and the class. With an interval of which
/// nothing is known it is 0.
const INFERRED: u8 = 8;
/// The first lifetime class of moved blocks in data zones.
const MOVED_INFERRED: u8 = 16;

impl Stream {
    pub(super) fn role(self) -> Role {
        match self {
            Stream::Hinted(_) | Stream::Data(_) | Stream::Moved(_) | Stream::HintedMoved(..) => {
                Role::Data
            }
            Stream::Metadata | Stream::ColdMetadata => Role::Metadata,
        }
    }

    pub(super) fn lifetime(self) -> u8 {
        match self {
            Stream::Hinted(lifetime) => lifetime,
            Stream::Data(CLASS_UNKNOWN) | Stream::Metadata => 0,
            Stream::Data(class) => INFERRED + class,
            Stream::Moved(class) | Stream::HintedMoved(class, _) => MOVED_INFERRED + class,
            Stream::ColdMetadata => MOVED,
        }
    }

    /// The class of estimated intervals that it takes.
    pub(super) fn class(self) -> u8 {
        match self {
            Stream::Hinted(1) => 1,
            Stream::Hinted(2) => 3,
            Stream::Hinted(4) => CLASSES - 1,
            Stream::Data(class) | Stream::Moved(class) | Stream::HintedMoved(class, _) => class,
            _ => CLASS_UNKNOWN,
        }
    }

    /// The lifetime hint of what is in a zone of data with this lifetime class.
    pub(super) fn hint_of(lifetime: u8) -> Option<u8> {
        (1..=4).contains(&lifetime).then_some(lifetime)
    }

    /// Whether it is what cleaning moves.
    pub(super) fn is_moved(self) -> bool {
        matches!(self, Stream::Moved(_) | Stream::HintedMoved(..))
    }

    /// The stream that a partly written zone belongs to.
    pub(crate) fn of(role: Role, lifetime: u8) -> Option<Stream> {
        match (role, lifetime) {
            (Role::Data, MOVED) => Some(Stream::Moved(CLASS_UNKNOWN)),
            (Role::Data, 1..=4) => Some(Stream::Hinted(lifetime)),
            (Role::Data, INFERRED..MOVED_INFERRED) => Some(Stream::Data(lifetime - INFERRED)),
            (Role::Data, MOVED_INFERRED..) => {
                let class = lifetime - MOVED_INFERRED;
                Some(Stream::Moved(class.min(CLASSES - 1)))
            }
            (Role::Data, _) => Some(Stream::Data(CLASS_UNKNOWN)),
            (Role::Metadata, MOVED) => Some(Stream::ColdMetadata),
            (Role::Metadata, _) => Some(Stream::Metadata),
            _ => None,
        }
    }
}

impl Budget {
    /// Whether moved blocks of some classes go with users' blocks though they have a slot. With few slots users'
    /// classes have no zones of their own either. On two devices nearly all free zones are there for new data: it would fill
    /// the last one, which cleaning has opened, and needs.
    fn shares_classes(&self) -> bool {
        self.data_slots >= usize::from(CLASSES) && !self.layout.is_split()
    }

    /// The stream that is used in its place where there are too few slots.
    pub(super) fn shared(&self, stream: Stream) -> Stream {
        match stream {
            Stream::HintedMoved(_, lifetime) if self.has_few_zones && self.shares_classes() => {
                Stream::Hinted(lifetime)
            }
            Stream::HintedMoved(class, _) => self.shared(Stream::Moved(class)),
            Stream::Moved(class) if !self.moved_apart => Stream::Data(class),
            Stream::Moved(class) if class < MOVED_APART_FROM && self.shares_classes() => {
                Stream::Data(class)
            }
            Stream::ColdMetadata if !self.cold_metadata_apart => Stream::Metadata,
            other => other,
        }
    }
}
