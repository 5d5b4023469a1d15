//! How file data outlives zones that are lost.

use persimmon_device::{Geometry, Stripes, striped};
use persimmon_engine::ZoneCapacities;
use persimmon_format::stripe_label::COLUMNS_MAX;

/// Where data has parity, one zone in this many is kept for log and metadata, each of which is written twice.
const METADATA_SHARE: u32 = 16;

/// What of file data is left when a zone of the device is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataRedundancy {
    /// What lay in other zones.
    #[default]
    None,
    /// All of it: each block is in two zones, and so are the log and metadata.
    Copies,
    /// All of it: to each `zones` zones with data belongs one with their parity. The log and metadata have zones of their own, a
    /// sixteenth of all, and are in two each.
    Parity {
        /// 2 to 15.
        zones: u32,
    },
}

/// A device as a volume will see it.
pub struct Divided {
    /// How its zones are used in stripe sets.
    pub stripes: Option<Stripes>,
    /// What they look like.
    pub geometry: Geometry,
    /// Blocks that can be written of each.
    pub capacities: ZoneCapacities,
}

impl DataRedundancy {
    /// Why two devices are refused.
    pub const NOT_ON_TWO: &str =
        "copies and parity of data are those of one device: name one, or leave them out";

    /// By the number of copies of each block, and of zones that parity belongs to, 0 where there is none.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn of(copies: u32, parity: u32) -> Result<DataRedundancy, String> {
        let data = match (copies, parity) {
            (1, 0) => DataRedundancy::None,
            (2, 0) => DataRedundancy::Copies,
            (1, zones) => DataRedundancy::Parity { zones },
            (2, _) => return Err("file data has two copies or parity, not both".to_owned()),
            _ => return Err(format!("file data has 1 copy or 2, not {copies}")),
        };
        data.check().map(|()| data)
    }

    /// Whether it is possible at all.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn check(self) -> Result<(), String> {
        match self {
            DataRedundancy::Parity { zones } if !(2..=COLUMNS_MAX).contains(&zones) => {
                Err(format!(
                    "parity belongs to 2 to {COLUMNS_MAX} zones, not to {zones}; of one it is a copy"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Divides a device whose zones have this capacity. `fits` says whether a volume can be made on what it is given.
    ///
    /// # Errors
    /// Those of `fits`.
    pub fn divide<E>(
        self,
        below: &Geometry,
        capacity: u32,
        fits: impl Fn(&Geometry, ZoneCapacities) -> Result<(), E>,
    ) -> Result<Divided, E> {
        let divided = |stripes: Stripes| Divided {
            geometry: striped::geometry_of(below, stripes),
            capacities: ZoneCapacities {
                // Those sets are mirrors.
                metadata: capacity,
                data: striped::capacity_of(capacity, stripes),
            },
            stripes: Some(stripes),
        };
        let checked = |divided: Divided| {
            fits(&divided.geometry, divided.capacities)?;
            Ok(divided)
        };
        match self {
            DataRedundancy::None => checked(Divided {
                stripes: None,
                geometry: below.clone(),
                capacities: ZoneCapacities::all(capacity),
            }),
            DataRedundancy::Copies => checked(divided(Stripes::MIRROR)),
            DataRedundancy::Parity { zones } => {
                let with = |metadata_sets| {
                    checked(divided(Stripes {
                        columns: zones,
                        metadata_sets,
                    }))
                };
                let share = (below.zone_count / (2 * METADATA_SHARE)).max(1);
                // What a volume needs of them at least is of no use to files: half of that more is.
                let most = (below.zone_count / 4).max(share);
                let least = (1..=most).find(|sets| with(*sets).is_ok());
                with(least.map_or(share, |least| share.max(least + least.div_ceil(2))))
            }
        }
    }
}
