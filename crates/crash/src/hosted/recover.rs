//! From a medium to a volume in use, and the crashes on the way there.

use std::sync::Arc;
use std::time::Duration;

use persimmon::Filesystem;
use persimmon_device::image::testing;
use persimmon_engine::{FormatOptions, Volume};
use persimmon_inspect::finding::{DATA_SUMMARY, ZONE_COPY};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::host::LossyHost;
use super::plan::Plan;
use super::run::{Failure, Tally};
use super::watch::{Moment, Watch};
use crate::filesystem::{Mounted, WorkloadClock, inspect};
use crate::harness::Subject;
use crate::model::Observed;
use crate::threads::client::Shared;
use crate::threads::moment::compare;
use persimmon_sim::medium::{Choice, Medium};

/// Crashes of one recovery after the other, at most.
const CUTS_IN_A_ROW: u32 = 4;
/// A mount whose cut is due later than its last call waits so long for its background threads to make some more.
const CUT_WAIT: Duration = Duration::from_millis(3);

/// A volume in use.
pub(super) struct InUse {
    pub filesystem: Filesystem,
    pub mounted: Mounted,
    pub host: Arc<LossyHost>,
}

/// Makes an empty volume.
pub(super) fn format(plan: &Plan) -> Result<Medium, String> {
    let layout = plan.geometry.layout().map_err(|error| error.to_string())?;
    let host = LossyHost::new(Medium::new(layout.total), plan.host, None);
    let uuid = uuid::Uuid::from_u128(u128::from(plan.seed) << 64 | 0x5e_ed);
    let options = persimmon_device::CreateOptions {
        uuid,
        ..Default::default()
    };
    let made = testing::create(host.for_image(), layout.total, &plan.geometry, &options);
    let options = FormatOptions {
        uuid: uuid.into_bytes(),
        secret: [0x5a; 32],
        copies: plan.copies,
        ..FormatOptions::default()
    };
    let made = made.map_err(|error| error.to_string())?;
    Volume::format(Arc::new(made), &options).map_err(|error| error.to_string())?;
    Ok(host.medium())
}

/// Mounts what is on a host, which may lose power meanwhile.
pub(super) fn mount(plan: &Plan, host: &Arc<LossyHost>) -> Result<InUse, String> {
    persimmon_engine::invariant::panic_on_bugs();
    let device = open(host, false)?;
    let clock = Arc::new(WorkloadClock::default());
    let filesystem = Filesystem::open_by(Arc::new(device), &plan.options, Arc::clone(&clock) as _)
        .map_err(|error| format!("mounting: {error} ({error:?})"))?;
    let vfs = Arc::clone(filesystem.vfs());
    Ok(InUse {
        mounted: Mounted::new(vfs, clock, Vec::new(), Vec::new()),
        filesystem,
        host: Arc::clone(host),
    })
}

fn open(host: &Arc<LossyHost>, read_only: bool) -> Result<persimmon_device::ImageDevice, String> {
    let opened = testing::open(host.for_image(), host.medium().length(), read_only);
    let device = opened.map_err(|error| format!("opening the image: {error}"))?;
    let device = device.ok_or("opening the image: there is none")?;
    match device.notices() {
        [] => Ok(device),
        notices => Err(format!("the image is damaged: {notices:?}")),
    }
}

/// Has the inspector look at what is there, all data included.
pub(super) fn check(plan: &Plan, medium: &Medium) -> Result<(), String> {
    let host = LossyHost::new(medium.clone(), plan.host, None);
    // A power cut can tear a summary, which is a hint, and leave a pair of log zones with one of its two headers.
    inspect(&open(&host, true)?, &[&ZONE_COPY, &DATA_SUMMARY])
        .map_err(|findings| format!("the inspector: {findings}"))
}

/// What a crash left, recovered: the volume to go on with, and what each client finds in it.
pub(super) struct Recovered {
    pub medium: Medium,
    pub found: Vec<Observed>,
}

/// Crashes at the moments of one round.
pub(super) struct Crashes<'a> {
    pub plan: &'a Plan,
    pub homes: &'a [String],
    pub clients: &'a [Arc<Shared>],
    pub rng: ChaCha8Rng,
    pub tally: Tally,
    /// Calls that the last whole recovery took.
    pub calls: u64,
}

impl Crashes<'_> {
    /// Recovers from one of the states that a crash at a moment may leave, and compares.
    pub fn crash(&mut self, moment: &Moment) -> Result<Recovered, Failure> {
        self.tally.states += 1;
        let (mut medium, mut story) = self.left_by(&moment.medium);
        let mut cuts = 0;
        while cuts < CUTS_IN_A_ROW && self.percent(self.plan.recovery_cut_percent) {
            cuts += 1;
            self.tally.recovery_cuts += 1;
            let calls = self.rng.random_range(0..=self.calls + self.calls / 2);
            let fail = |why: String, medium: &Medium| self.failure(moment, &story, &why, medium);
            let after = self.cut_recovery(&medium, calls);
            let after = after.map_err(|why| fail(why, &medium))?;
            let (left, how) = self.left_by(&after);
            medium = left;
            story = format!("{story}; recovery cut at call {calls}, {how}");
        }
        self.recover(moment, &medium)
            .map_err(|why| self.failure(moment, &story, &why, &medium))
    }

    /// What a crash leaves of a medium, and which it was.
    fn left_by(&mut self, medium: &Medium) -> (Medium, String) {
        if self.rng.random_ratio(1, 8) {
            // The process dies alone: all of it is there, and can still be lost.
            return (medium.clone(), "death of the process".to_owned());
        }
        let seed = self.rng.random();
        let (zones, zone_bytes) = match self.plan.geometry.layout() {
            Ok(layout) => {
                let zones = u64::from(self.plan.geometry.zone_count);
                let end = layout.data + zones * layout.zone_stride;
                (layout.data..end, layout.zone_stride)
            }
            Err(_) => (0..medium.length(), medium.length()),
        };
        let mut choice = Choice::new(seed, medium, &zones, zone_bytes);
        let how = format!(
            "power cut {seed} of {} changes ({choice})",
            medium.pending()
        );
        (medium.after_power_cut(&mut choice), how)
    }

    /// Mounts, and the power goes at a call of that, or of the background threads behind it.
    fn cut_recovery(&self, medium: &Medium, calls: u64) -> Result<Medium, String> {
        let host = LossyHost::new(medium.clone(), self.plan.host, None);
        host.cut_after(calls);
        let mounted = mount(self.plan, &host);
        if !host.is_off() {
            // It was not for want of power.
            mounted.as_ref().map_err(Clone::clone)?;
            std::thread::sleep(CUT_WAIT);
            host.cut();
        }
        drop(mounted);
        Ok(host.medium())
    }

    fn recover(&mut self, moment: &Moment, medium: &Medium) -> Result<Recovered, String> {
        if self.percent(self.plan.check_percent) {
            self.tally.checks += 1;
            check(self.plan, medium)?;
        }
        let host = LossyHost::new(medium.clone(), self.plan.host, None);
        let InUse {
            filesystem,
            mut mounted,
            host,
        } = mount(self.plan, &host)?;
        self.calls = host.calls();
        let found = observe(&mounted, self.homes)?;
        compare(&found, self.clients, &moment.clients)?;
        // Left as it is now it has to be found so again.
        let left = host.medium();
        if self.percent(self.plan.check_percent) {
            mounted.observe()?;
            drop(mounted);
            filesystem.close().map_err(|error| error.to_string())?;
            check(self.plan, &host.medium()).map_err(|why| format!("after recovery: {why}"))?;
        }
        Ok(Recovered {
            medium: left,
            found,
        })
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn failure(&self, moment: &Moment, story: &str, why: &str, medium: &Medium) -> Failure {
        let mut told = format!("{story}: {why}");
        let clients = self.clients.iter().zip(&moment.clients);
        for (client, (shared, (ended, begun))) in clients.enumerate() {
            told.push_str(&format!(
                "\n  client {client}, {ended} returned, {begun} begun:"
            ));
            told.push_str(&shared.history().told(*ended, *begun));
        }
        Failure {
            why: told,
            image: medium.bytes(),
        }
    }
}

/// What each client sees.
pub(super) fn observe(mounted: &Mounted, homes: &[String]) -> Result<Vec<Observed>, String> {
    let all = homes.iter().map(|home| mounted.within(home)?.observe());
    all.collect()
}

/// A host for a round, and what watches it.
pub(super) fn watched(
    plan: &Plan,
    medium: Medium,
    clients: &[Arc<Shared>],
    rng: &mut ChaCha8Rng,
) -> (Arc<LossyHost>, Arc<Watch>) {
    let watch = Arc::new(Watch::new(
        clients,
        rng.random(),
        plan.moment_one_in,
        plan.moments_max,
    ));
    let host = LossyHost::new(medium, plan.host, Some(Arc::clone(&watch)));
    (host, watch)
}

/// A generator of its own for every round.
pub(super) fn rng_of(plan: &Plan, round: usize) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(plan.seed.wrapping_mul(64).wrapping_add(round as u64))
}
