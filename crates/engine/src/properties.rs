//! What a volume was made with and can be changed later: how many zones of its device it has, its label, and the UUID that
//! users see. A checkpoint tells of a change; until its footer is durable the volume is what it was.
//!
//! Zones that a volume gets follow those that it has, in the zone table as well. Nothing is written to them, nor to what
//! holds them, before the footer that names them is durable: opening the volume again is what puts them to use. So a
//! footer with fewer zones never leads to a log or a page in one that it does not know.

use std::ops::Range;
use std::sync::Arc;

use persimmon_device::label::LABEL_ZONES;
use persimmon_device::{Geometry, ZoneId, ZoneState};
use persimmon_format::Addr;
use persimmon_format::table::Role;
use persimmon_format::zone_header::Properties;

use crate::error::{Error, Result};
use crate::media::Media;
use crate::options::check_label;
use crate::store::Store;
use crate::volume::Volume;
use crate::zones::Budget;
use crate::zones::budget::ZoneCapacities;

/// Checkpoints after which all has moved that can.
const ROUNDS_MAX: u32 = 16;

/// What a volume gains by more zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Zones that it has.
    pub zones_before: u32,
    /// Zones that it would have, no fewer.
    pub zones: u32,
    /// Blocks that users may fill in what it has.
    pub user_blocks_before: u64,
    /// The same with all zones.
    pub user_blocks: u64,
}

impl Growth {
    /// There is nothing to gain.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.zones == self.zones_before
    }
}

/// Changes what a volume was made with. Who does has opened it, and nobody uses it; what it is from then on it is when it is
/// opened again, and it should not be used before.
pub struct Alteration<'v>(&'v Volume);

impl<'v> Alteration<'v> {
    /// Of an open volume.
    #[must_use]
    pub fn of(volume: &'v Volume) -> Alteration<'v> {
        Alteration(volume)
    }

    /// What the volume would gain by the zones that its device has more; an error if it cannot have them. Nothing is
    /// changed.
    pub fn growth(&self) -> Result<Growth> {
        let media = self.whole();
        let capacities = ZoneCapacities::of(media.geometry(), &media.report_all()?);
        worth(self.store(), media.geometry(), capacities)
    }

    /// The same with a device of so many zones, all of them like those it has.
    pub fn growth_to(&self, zone_count: u32) -> Result<Growth> {
        let geometry = Geometry {
            zone_count,
            ..self.whole().geometry().clone()
        };
        self.growth_on(&geometry, None)
    }

    /// The same with a device of this shape, whose first zones are those it has. `metadata_capacity`: blocks that can be written of zones
    /// for metadata, where it gets the first of these.
    pub fn growth_on(&self, geometry: &Geometry, metadata_capacity: Option<u32>) -> Result<Growth> {
        let mut capacities = ZoneCapacities::of(geometry, &self.whole().report_all()?);
        capacities.metadata = metadata_capacity.unwrap_or(capacities.metadata);
        worth(self.store(), geometry, capacities)
    }

    /// Gives the volume the zones that its device has more. `overwrite`: whatever they hold.
    ///
    /// # Errors
    /// As of [`Alteration::growth`]; no room for the checkpoint. The volume is what it was, or grown: the next opening
    /// tells.
    pub fn grow(&self, overwrite: bool) -> Result<Growth> {
        let growth = self.growth()?;
        if growth.is_none() {
            return Ok(growth);
        }
        self.store().check_writable()?;
        empty_zones(&self.whole(), growth, overwrite)?;
        self.change(|properties| properties.zone_count = growth.zones)?;
        Ok(growth)
    }

    /// Whether zones hold what belongs elsewhere: metadata, or the log, that was on the one device before the volume got another one for
    /// these. `given_up`: nothing is to be in these zones.
    #[must_use]
    pub fn has_to_move(&self, given_up: &Range<u32>) -> bool {
        let zones = &self.store().zones;
        zones.status().iter().any(|status| {
            let is_given_up = given_up.contains(&status.zone.0);
            let role = status.entry.role;
            (is_given_up && role != Role::Retired) || !zones.budget.layout.suits(status.zone, role)
        })
    }

    /// Moves it there, and has checkpoints tell.
    ///
    /// # Errors
    /// There is no room for it; [`Error::Unmovable`] if it cannot be read. What else can move has moved.
    pub fn move_all(&self, given_up: &Range<u32>) -> Result<()> {
        let (engine, store) = (&self.0.engine, self.store());
        store.check_writable()?;
        for _ in 0..ROUNDS_MAX {
            if !self.has_to_move(given_up) {
                // Is the newest footer damaged, the one before it leads to the same.
                engine.checkpoints.write()?;
                return engine.close();
            }
            engine.reclaimer.empty_failing()?;
            // What is empty is free, or retired, from a checkpoint on, and the log leaves a zone with one.
            engine.checkpoints.write()?;
            store.zones.complete_resets(&store.media);
        }
        if let Some(zone) = engine.reclaimer.unmovable() {
            return Err(Error::Unmovable { zone });
        }
        Err(Error::Geometry(
            "there is not enough free space to move what is in zones that the volume has to give up: remove something first".into(),
        ))
    }

    /// Gives the volume another label, another UUID for users to see, or both.
    ///
    /// # Errors
    /// The label does not fit, or the checkpoint cannot be written that tells them.
    pub fn rename(&self, label: Option<&str>, uuid: Option<[u8; 16]>) -> Result<()> {
        if let Some(label) = label {
            check_label(label)?;
        }
        self.change(|properties| {
            if let Some(label) = label {
                label.clone_into(&mut properties.label);
            }
            if let Some(uuid) = uuid {
                properties.uuid = uuid;
            }
        })
    }

    fn store(&self) -> &Store {
        &self.0.engine.store
    }

    /// The device with the zones that the volume does not have.
    fn whole(&self) -> Media {
        Media::new(Arc::clone(&self.0.device), self.store().options.barrier)
    }

    fn change(&self, to: impl FnOnce(&mut Properties)) -> Result<()> {
        let (engine, store) = (&self.0.engine, self.store());
        store.check_writable()?;
        {
            let mut state = store.on_device();
            let known = state.properties.clone();
            let mut properties = known.unwrap_or_else(|| store.identity.properties());
            to(&mut properties);
            state.set_properties(properties);
        }
        engine.checkpoints.write()?;
        // Is the newest footer damaged, the one before it leads to the same.
        engine.checkpoints.write()?;
        engine.close()
    }
}

/// What a volume gains by a device like this.
fn worth(store: &Store, geometry: &Geometry, capacities: ZoneCapacities) -> Result<Growth> {
    let budget = &store.zones.budget;
    let zones_before = store.identity.zone_count;
    let before = Growth {
        zones_before,
        zones: zones_before,
        user_blocks_before: budget.user_blocks,
        user_blocks: budget.user_blocks,
    };
    if geometry.zone_count <= zones_before {
        return Ok(before);
    }
    let zones = geometry.zone_count;
    if u64::from(zones) > Addr::FIELD_LIMIT {
        return Err(Error::Geometry(format!(
            "{zones} zones are more than the {} that a volume can have",
            Addr::FIELD_LIMIT
        )));
    }
    let (reserve, copies) = (store.reserve_basis_points, store.identity.copies());
    let grown = Budget::new(geometry, capacities, reserve, copies, &store.options)?;
    grown.check_zones(capacities)?;
    // What was promised to users stays so, but for the zones that are given up for the label of two devices: where the reserve is more than
    // the volume needs for itself, nothing else makes up for them.
    let gets_metadata = grown.layout.is_split() && !budget.layout.is_split();
    let given_up = u64::from(gets_metadata) * u64::from(LABEL_ZONES) * budget.data_zone_blocks;
    if grown.user_blocks + given_up < budget.user_blocks {
        return Err(Error::Geometry(format!(
            "with {zones} zones instead of {zones_before} the volume would need more for itself than it gains: give it more"
        )));
    }
    Ok(Growth {
        zones,
        user_blocks: grown.user_blocks,
        ..before
    })
}

/// Sees that nothing is in the zones that the volume gets: what is left of another one could be taken for something of this.
fn empty_zones(media: &Media, growth: Growth, overwrite: bool) -> Result<()> {
    let is_new = |zone: &ZoneId| (growth.zones_before..growth.zones).contains(&zone.0);
    let report = media.report_all()?;
    let zones = (0..).map(ZoneId).zip(&report);
    for (zone, info) in zones.filter(|(zone, _)| is_new(zone)) {
        if info.state == ZoneState::Empty || info.state.is_worn_out() {
            continue;
        }
        if !overwrite {
            return Err(Error::Geometry(format!(
                "zone {zone}, which the volume would get, is not empty: say --force if what is in it is not needed"
            )));
        }
        media.reset(zone, false)?;
    }
    media.flush()
}
