//! Zones that fail under a mounted volume, on a device of any kind: nothing is lost but what was in a data
//! zone that is offline, which answers EIO and is listed; all else goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_device::{ZoneId, ZonedDevice};
use persimmon_engine::{Options, Progress, Task, Volume, ZoneFailure};
use persimmon_format::table::Role;
use persimmon_inspect::finding::{DATA_SUMMARY, PAGE_COPY, ZONE_READ_ONLY, ZONE_STATE};

use super::{Mounted, format_volume, inspect, mount_volume};
use crate::harness::Subject;
use crate::model::{Kind, Observed};
use crate::workload::{Durability, Op};

/// Files that are made at a time, and their size: whole blocks, for a lost block cannot be overwritten in part.
const FILES: usize = 12;
const FILE_BYTES: u32 = 22 * 4096;
/// What zones are for that fail one after the other.
const ROLES: [Role; 4] = [Role::Data, Role::Metadata, Role::Log, Role::Free];
/// Time between two operations.
const TICK_NANOSECONDS: u64 = 1_000_000;

/// Has a zone of each role turn read-only, then a data zone and a free one go offline, on a volume made on a
/// device that is empty. `open` opens the device, and is called again when the last one is let go of; `fail` makes
/// a zone of it fail. Returns how many files were lost with the data zone.
///
/// Errors: what is not as it should be.
pub fn failing_zones_test(
    open: &mut dyn FnMut() -> Arc<dyn ZonedDevice>,
    fail: &mut dyn FnMut(ZoneId, ZoneFailure) -> Result<(), String>,
) -> Result<usize, String> {
    let mut used = Used::made(open)?;
    for role in ROLES {
        let zone = used.zone(role)?;
        let expected = used.mounted.observe()?;
        fail(zone, ZoneFailure::ReadOnly)?;
        // Found out by writing there, or by asking.
        used.fill()?;
        used.retire(zone)?;
        let lost = used.compare(&expected)?;
        if !lost.is_empty() {
            return Err(format!("zone {zone}, {role:?}, read-only: {lost:?} lost"));
        }
    }

    let expected = used.mounted.observe()?;
    let data = used.zone(Role::Data)?;
    for zone in [used.zone(Role::Free)?, data] {
        fail(zone, ZoneFailure::Offline)?;
    }
    used.step(Task::Examine)?;
    let lost = used.compare(&expected)?;
    if lost.is_empty() {
        return Err(format!("data zone {data} is offline, and nothing lost"));
    }
    used.fill()?;
    used.expect_lost(&expected, &lost)?;
    let files = used.files;
    used.mounted.close()?;

    let mut used = Used {
        files,
        ..Used::mount(open())?
    };
    used.expect_lost(&expected, &lost)?;
    used.fill()?;
    // Written anew, all of it is there again.
    for path in &lost {
        used.write(path)?;
    }
    let whole = used.mounted.observe()?;
    used.expect_lost(&whole, &BTreeSet::new())?;
    used.mounted.close()?;
    let excused = [&ZONE_STATE, &ZONE_READ_ONLY, &PAGE_COPY, &DATA_SUMMARY];
    inspect(&*open(), &excused)?;
    Ok(lost.len())
}

/// Has one zone of a stripe set of each role go offline, on a volume made on a device in stripe sets that is empty. `open` opens it,
/// and is called again when the last one is let go of; `lose` makes a zone of this set go offline. Nothing may be lost.
///
/// # Errors
/// What is not as it should be.
pub fn lost_zones_test(
    open: &mut dyn FnMut() -> Arc<dyn ZonedDevice>,
    lose: &mut dyn FnMut(ZoneId) -> Result<(), String>,
) -> Result<(), String> {
    let mut used = Used::made(open)?;
    for role in ROLES {
        let set = used.zone(role)?;
        lose(set)?;
        let expected = used.mounted.observe()?;
        used.expect_lost(&expected, &BTreeSet::new())?;
        used.fill()?;
        used.retire(set)?;
        used.expect_lost(&expected, &BTreeSet::new())?;
        // One more is lost while nobody looks.
        let set = used.zone(role)?;
        let expected = used.mounted.observe()?;
        let files = used.files;
        used.mounted.close()?;
        lose(set)?;
        used = Used {
            files,
            ..Used::mount(open())?
        };
        used.expect_lost(&expected, &BTreeSet::new())?;
        used.fill()?;
        used.retire(set)?;
    }
    let expected = used.mounted.observe()?;
    used.mounted.close()?;
    let excused = [&ZONE_STATE, &ZONE_READ_ONLY, &PAGE_COPY, &DATA_SUMMARY];
    inspect(&*open(), &excused)?;
    Used::mount(open())?.expect_lost(&expected, &BTreeSet::new())
}

/// A mounted volume that is worked with.
struct Used {
    mounted: Mounted,
    files: usize,
    now: u64,
}

impl Used {
    /// A volume made anew, with some files in a checkpoint and some behind it.
    fn made(open: &mut dyn FnMut() -> Arc<dyn ZonedDevice>) -> Result<Used, String> {
        format_volume(open(), 1, false)?;
        let mut used = Used::mount(open())?;
        used.fill()?;
        used.step(Task::Checkpoint)?;
        used.fill()?;
        Ok(used)
    }

    fn mount(device: Arc<dyn ZonedDevice>) -> Result<Used, String> {
        let mounted = mount_volume(device, Options::default(), false)?;
        Ok(Used {
            mounted,
            files: 0,
            now: 0,
        })
    }

    fn volume(&self) -> &Volume {
        self.mounted.vfs.volume()
    }

    fn step(&self, task: Task) -> Result<Progress, String> {
        let done = self.volume().step(task);
        done.map_err(|error| format!("{task:?}: {error}"))
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        self.now += TICK_NANOSECONDS;
        let done = self.mounted.apply(op, self.now);
        done.map_err(|refusal| format!("{op}: {}", refusal.message))?;
        Ok(())
    }

    fn write(&mut self, path: &str) -> Result<(), String> {
        let fill = self.now;
        self.apply(&Op::Write {
            path: path.to_owned(),
            offset: 0,
            length: FILE_BYTES,
            fill,
            durability: Durability::Sync,
        })
    }

    fn fill(&mut self) -> Result<(), String> {
        for _ in 0..FILES {
            let path = format!("/{}", self.files);
            self.apply(&Op::Create {
                path: path.clone(),
                mode: 0o644,
            })?;
            self.write(&path)?;
            self.files += 1;
        }
        Ok(())
    }

    /// A zone of this role with something in it, or a free one; if there is one, a zone that nobody writes to.
    fn zone(&self, role: Role) -> Result<ZoneId, String> {
        let zones = self.volume().zones();
        let fitting = zones.iter().filter(|zone| {
            let is_used = zone.entry.valid > 0 || matches!(role, Role::Log | Role::Free);
            zone.entry.role == role && zone.failure.is_none() && is_used
        });
        let found = fitting.min_by_key(|zone| zone.open);
        Ok(found.ok_or_else(|| format!("no zone is {role:?}"))?.zone)
    }

    /// Empties a zone that turned read-only, and takes it out of use.
    fn retire(&self, zone: ZoneId) -> Result<(), String> {
        self.step(Task::Examine)?;
        while self.step(Task::CleanIfDue)? == Progress::Worked {}
        self.step(Task::Checkpoint)?;
        while self.step(Task::Reset)? == Progress::Worked {}
        let zones = self.volume().zones();
        let status = zones.get(zone.0 as usize);
        let is_retired = status.is_some_and(|status| {
            status.entry.role == Role::Retired && status.failure == Some(ZoneFailure::ReadOnly)
        });
        if is_retired {
            Ok(())
        } else {
            Err(format!(
                "zone {zone} is read-only and not retired: {status:?}"
            ))
        }
    }

    /// Paths of files that are not whole any more. What is there must be as it was.
    fn compare(&mut self, expected: &Observed) -> Result<BTreeSet<String>, String> {
        let found = self.mounted.observe()?;
        let mut lost = BTreeSet::new();
        for (path, node) in &expected.nodes {
            match found.nodes.get(path) {
                Some(now) if !now.lost.is_empty() => drop(lost.insert(path.clone())),
                Some(now) if now == node || matches!(node.kind, Kind::Directory) => {}
                Some(_) => return Err(format!("{path} has another content")),
                None => return Err(format!("{path} is gone")),
            }
        }
        Ok(lost)
    }

    fn expect_lost(&mut self, files: &Observed, lost: &BTreeSet<String>) -> Result<(), String> {
        let now = self.compare(files)?;
        if now == *lost {
            Ok(())
        } else {
            Err(format!("{now:?} are lost, and it was {lost:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use persimmon_device::{Stripes, striped};
    use persimmon_sim::{SimConfig, SimDevice};

    use super::*;
    use crate::stripes;

    #[test]
    fn zones_of_the_simulator_fail() {
        let device = Arc::new(SimDevice::new(SimConfig::new(40, 256)));
        let failing = Arc::clone(&device);
        let lost = failing_zones_test(&mut || Arc::clone(&device) as _, &mut |zone, failure| {
            match failure {
                ZoneFailure::ReadOnly => failing.set_read_only(zone),
                ZoneFailure::Offline => failing.set_offline(zone),
            }
            Ok(())
        });
        let lost = lost.unwrap();
        assert!(lost > 0, "{lost}");
    }

    #[test]
    fn zones_of_stripe_sets_are_lost() {
        let parity = Stripes {
            columns: 3,
            metadata_sets: 30,
        };
        for stripes in [Stripes::MIRROR, parity] {
            let device = Arc::new(SimDevice::new(SimConfig::new(200, 256)));
            let lost = lost_zones_test(
                &mut || stripes::used(&device, Some(stripes), true).unwrap(),
                &mut |set| {
                    let zones = striped::zones_of(device.geometry(), stripes, set);
                    let zone = zones.ok_or("no such set")?.start + u32::from(set.0 % 2 == 1);
                    device.set_offline(ZoneId(zone));
                    Ok(())
                },
            );
            lost.unwrap();
        }
    }
}
