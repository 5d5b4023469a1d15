//! The model test on a device of any kind, or on what else there is to mount: random operations on a volume there, compared with the
//! model step by step, with remounts and inspections in between. The power stays on.

use std::sync::Arc;

use persimmon_device::ZonedDevice;

use super::{Mounted, format_volume, inspect, mount_volume};
use crate::harness::{Subject, compare_exactly};
use crate::model::Model;
use crate::workload::{Generator, Mix, Op};

/// Time between two operations.
const TICK_NANOSECONDS: u64 = 1_000_000;
/// Operations of one mix before the volume is unmounted and inspected.
const OPS_OF_MIX: u32 = 120;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that both carried out.
    pub ops: u32,
    /// Operations that both refused, for the same reason.
    pub refused: u32,
    /// Mounts.
    pub mounts: u32,
}

/// A volume that the model test uses, however it is reached.
pub trait Target {
    /// It mounted.
    type Subject: Subject;

    /// Mounts it.
    fn mount(&mut self) -> Result<Self::Subject, String>;

    /// Checks it while it is not mounted.
    fn check(&mut self) -> Result<(), String>;
}

/// A volume on a device that is opened for each use.
struct OnDevice<F>(F);

impl<D: ZonedDevice + 'static, F: FnMut() -> D> Target for OnDevice<F> {
    type Subject = Mounted;

    fn mount(&mut self) -> Result<Mounted, String> {
        mount((self.0)())
    }

    fn check(&mut self) -> Result<(), String> {
        inspect(&(self.0)(), &[])
    }
}

/// Runs so many operations, of all mixes in turn, on a volume made on a device that is empty, whose
/// files hold no more than `bytes_max` bytes together. `open` opens the device, and is called again
/// when the last one is let go of.
///
/// Errors: what differs between volume and model, or failed.
pub fn model_test<D: ZonedDevice + 'static>(
    mut open: impl FnMut() -> D,
    seed: u64,
    ops: u32,
    bytes_max: u64,
) -> Result<Tally, String> {
    format_volume(Arc::new(open()), 1, false)?;
    model_test_of(&mut OnDevice(open), seed, ops, bytes_max)
}

/// The same on a volume that is made.
///
/// Errors: what differs between volume and model, or failed.
pub fn model_test_of(
    target: &mut impl Target,
    seed: u64,
    ops: u32,
    bytes_max: u64,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut mounted = target.mount()?;
    tally.mounts += 1;
    let mut model = Model::new(mounted.observe()?.to_tree());
    let mut now = TICK_NANOSECONDS;
    let mut generator = Generator::new(seed, Mix::Even, bytes_max);
    for number in 0..ops {
        if number % OPS_OF_MIX == 0 {
            let round = number / OPS_OF_MIX;
            let mix = Mix::ALL.into_iter().cycle().nth(round as usize);
            generator =
                Generator::new(seed + u64::from(round), mix.unwrap_or(Mix::Even), bytes_max);
            mounted.close()?;
            target.check()?;
            mounted = target.mount()?;
            tally.mounts += 1;
            let closed = model.apply(&Op::Remount, now);
            closed.map_err(|errno| format!("the model cannot be remounted: {errno}"))?;
        }
        let op = generator.next_op(&model);
        now += TICK_NANOSECONDS;
        let failed = |why: String| format!("operation {number}, {op}: {why}");
        if op == Op::Remount {
            mounted.close().map_err(failed)?;
            let _ = model.apply(&op, now);
            mounted = target.mount().map_err(failed)?;
            tally.mounts += 1;
        } else {
            step(&mut mounted, &mut model, &op, now, &mut tally).map_err(failed)?;
        }
        if number % 40 == 0 || op == Op::Remount {
            let found = mounted.observe().map_err(failed)?;
            compare_exactly(&found, model.now()).map_err(failed)?;
        }
    }
    let found = mounted.observe()?;
    compare_exactly(&found, model.now())?;
    mounted.close()?;
    target.check()?;
    mounted = target.mount()?;
    tally.mounts += 1;
    let found = mounted.observe()?;
    let _ = model.apply(&Op::Remount, now);
    compare_exactly(&found, model.now())?;
    mounted.close()?;
    Ok(tally)
}

fn mount<D: ZonedDevice + 'static>(device: D) -> Result<Mounted, String> {
    // Bounds so small that checkpoints and cleaning come often.
    let options = persimmon_engine::Options {
        cache_bytes_max: 256 << 10,
        staging_bytes_max: 256 << 10,
        journal_bytes_max: 256 << 10,
        dirty_pages_max: 32,
        ..persimmon_engine::Options::default()
    };
    mount_volume(Arc::new(device), options, false)
}

/// One operation on both.
fn step(
    mounted: &mut impl Subject,
    model: &mut Model,
    op: &Op,
    now: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    if let Op::Read { path } = op {
        let Ok(node) = model.now().lookup(path) else {
            return Ok(());
        };
        tally.ops += 1;
        return mounted.observe_one(path)?.fits(model.now(), node);
    }
    let is = mounted.apply(op, now);
    let (is, op) = match is {
        Ok(Some(part)) => (Ok(()), op.clone().shortened(part)),
        Ok(None) => (Ok(()), op.clone()),
        Err(refusal) => (Err(refusal), op.clone()),
    };
    let should = model.apply(&op, now);
    match (is, should) {
        (Ok(()), Ok(())) => {
            tally.ops += 1;
            if let Op::Allocate { path, .. } = &op {
                model.adopt_mtime(path, mounted.observe_one(path)?.mtime);
            }
            model.acknowledge(&op);
            Ok(())
        }
        // A rename or a link can be wrong in several ways at once.
        (Err(is), Err(should))
            if is.errno == should || matches!(op, Op::Rename { .. } | Op::Link { .. }) =>
        {
            tally.refused += 1;
            Ok(())
        }
        (is, should) => Err(format!("answered {is:?}, should have {should:?}")),
    }
}

#[cfg(test)]
mod tests {
    use persimmon_device::image::ImageGeometry;
    use persimmon_device::{DeviceError, Drive, ImageDevice, OpenOptions, pair};

    use super::*;

    #[test]
    fn an_image_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let geometry = ImageGeometry {
            zone_count: 24,
            zone_blocks: 256,
            capacity_blocks: 200,
            max_open: Some(6),
            max_active: Some(8),
        };
        drop(ImageDevice::create(&path, &geometry, &Default::default()).unwrap());
        let open = || -> Result<ImageDevice, DeviceError> {
            ImageDevice::open(&path, &OpenOptions::default())
        };
        let tally = model_test(|| open().unwrap(), 1, 500, 2 << 20).unwrap();
        assert!(tally.ops > 300 && tally.mounts > 5, "{tally:?}");
    }

    #[test]
    fn a_pair_of_images_passes() {
        let dir = tempfile::tempdir().unwrap();
        let shape = |zone_blocks| ImageGeometry {
            zone_count: 24,
            zone_blocks,
            capacity_blocks: zone_blocks / 4 * 3,
            max_open: None,
            max_active: None,
        };
        let (fast, bulk) = (dir.path().join("fast"), dir.path().join("bulk"));
        let (small, large) = (shape(256), shape(512));
        drop(Drive::create_pair((&fast, &small), (&bulk, &large), &Default::default()).unwrap());
        let uri = pair::uri(&fast, &bulk);
        let open = || Drive::open(&uri, &OpenOptions::default()).unwrap();
        let tally = model_test(open, 2, 500, 2 << 20).unwrap();
        assert!(tally.ops > 300 && tally.mounts > 5, "{tally:?}");
    }
}
