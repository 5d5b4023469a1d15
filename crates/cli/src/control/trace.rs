//! What happened to zones lately.

use persimmon::internal::engine::{VictimReason, Volume, ZoneEvent};
use persimmon::internal::format::table::Role;
use persimmon_fuse::control::TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::encode;
use crate::report::lifetime_name;

/// Events of one answer, if they fit.
const EVENTS_MAX: usize = 64;

/// An event, as docs/CLI.md tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // See `persimmon::internal::engine::ZoneEvent`.
pub enum Event {
    Opened {
        zone: u32,
        role: String,
        lifetime: String,
        free_zones: u32,
    },
    Written {
        zone: u32,
        role: String,
        lifetime: String,
        block: u32,
        blocks: u32,
        files: u32,
        ino: Option<u64>,
    },
    Victim {
        zone: u32,
        role: String,
        lifetime: String,
        why: String,
        awaited: bool,
        valid_blocks: u32,
        capacity_blocks: u32,
        age_blocks: u64,
        interval_blocks: u64,
        free_zones: u32,
        reclaimable_zones: u32,
    },
    Cleaned {
        zone: u32,
        blocks: u32,
        valid_blocks: u32,
    },
    Reset {
        zone: u32,
    },
}

/// Events with consecutive numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Events {
    /// Number of the first.
    pub first: u64,
    /// Events before it that are kept no longer.
    pub dropped: u64,
    /// The events.
    pub events: Vec<Event>,
}

fn names(role: Role, lifetime: u8) -> (String, String) {
    let lifetime = lifetime_name(role, lifetime);
    (role.name().to_owned(), lifetime.to_owned())
}

impl Event {
    fn new(event: &ZoneEvent) -> Event {
        match *event {
            ZoneEvent::Opened {
                zone,
                role,
                lifetime,
                free_zones,
            } => {
                let (role, lifetime) = names(role, lifetime);
                Event::Opened {
                    zone: zone.0,
                    role,
                    lifetime,
                    free_zones,
                }
            }
            ZoneEvent::Written {
                zone,
                role,
                lifetime,
                block,
                blocks,
                files,
                ino,
            } => {
                let (role, lifetime) = names(role, lifetime);
                Event::Written {
                    zone: zone.0,
                    role,
                    lifetime,
                    block,
                    blocks,
                    files,
                    ino: ino.map(|ino| ino.0),
                }
            }
            ZoneEvent::Victim {
                zone,
                role,
                lifetime,
                why,
                awaited,
                valid_blocks,
                capacity_blocks,
                age_blocks,
                interval_blocks,
                free_zones,
                reclaimable_zones,
            } => {
                let (role, lifetime) = names(role, lifetime);
                Event::Victim {
                    zone: zone.0,
                    role,
                    lifetime,
                    why: reason(why).to_owned(),
                    awaited,
                    valid_blocks,
                    capacity_blocks,
                    age_blocks,
                    interval_blocks,
                    free_zones,
                    reclaimable_zones,
                }
            }
            ZoneEvent::Cleaned {
                zone,
                blocks,
                valid_blocks,
            } => Event::Cleaned {
                zone: zone.0,
                blocks,
                valid_blocks,
            },
            ZoneEvent::Reset { zone } => Event::Reset { zone: zone.0 },
        }
    }
}

fn reason(why: VictimReason) -> &'static str {
    match why {
        VictimReason::Failing => "failing",
        VictimReason::Score => "score",
        VictimReason::Garbage => "garbage",
        VictimReason::Metadata => "metadata",
    }
}

/// The daemon's side: as many as fit.
pub(super) fn read(volume: &Volume, from: u64) -> Result<Vec<u8>, String> {
    let traced = volume.trace(from, EVENTS_MAX);
    let mut events = Events {
        first: traced.first,
        dropped: traced.dropped,
        events: traced.events.iter().map(Event::new).collect(),
    };
    loop {
        let answer = encode(&events)?;
        if answer.len() <= TEXT_BYTES_MAX {
            return Ok(answer);
        }
        events.events.truncate(events.events.len() / 2);
    }
}
