//! Tests that make, mount, kill and check volumes of their own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::volume::{Kind, Volume};
use crate::{
    bad_input, clones, compression, damage, dedup, deltas, durable, endurance, freezing, full,
    installed, kill, live_tools, many_files, model, output, phases, quota, redundancy, remount,
    scrub, snapshots, streams, subvolumes, supervised, two_devices, unmounted, unmounting,
    workplace,
};

/// A named test with volumes of its own.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// `group::behaviour`.
    pub name: &'static str,
    /// An error tells what does not hold.
    pub run: fn(&TestBed) -> Result<()>,
    /// After this long the filesystem counts as hanging.
    pub limit_seconds: u64,
    /// It is about something that ext4 does not have.
    pub only_persimmon: bool,
}

/// What every scenario gets: the filesystem under test and where to work.
#[derive(Clone, Debug)]
pub struct TestBed {
    /// The filesystem under test.
    pub kind: Kind,
    /// The persimmon binary.
    pub persimmon: PathBuf,
    /// Where images, mount points and everything else goes.
    pub work: PathBuf,
    /// How many rounds or seeds scenarios have that have some, where the command line says so.
    pub rounds: Option<u32>,
    /// The first seed.
    pub seed: u64,
}

impl TestBed {
    /// A new, unmounted volume.
    pub fn volume(&self, name: &str, bytes: u64, mkfs: &[&str]) -> Result<Volume> {
        Volume::create(self.kind, &self.persimmon, &self.work, name, bytes, mkfs)
            .with_context(|| format!("making the volume for {name}"))
    }

    /// The same on a drive, whatever is on it.
    pub fn volume_on(&self, name: &str, drive: &Path) -> Result<Volume> {
        Volume::create_on(&self.persimmon, &self.work, name, drive)
            .with_context(|| format!("making the volume for {name}"))
    }

    /// An empty directory that is on none of the volumes.
    pub fn outside(&self, name: &str) -> Result<PathBuf> {
        let dir = self.work.join("outside").join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        redundancy::SCENARIOS,
        remount::SCENARIOS,
        compression::SCENARIOS,
        durable::SCENARIOS,
        full::SCENARIOS,
        kill::SCENARIOS,
        many_files::SCENARIOS,
        model::SCENARIOS,
        bad_input::SCENARIOS,
        clones::SCENARIOS,
        dedup::SCENARIOS,
        deltas::SCENARIOS,
        installed::SCENARIOS,
        damage::SCENARIOS,
        scrub::SCENARIOS,
        snapshots::SCENARIOS,
        subvolumes::SCENARIOS,
        streams::SCENARIOS,
        supervised::SCENARIOS,
        supervised::failing::SCENARIOS,
        supervised::sharing::SCENARIOS,
        quota::SCENARIOS,
        freezing::SCENARIOS,
        live_tools::SCENARIOS,
        unmounted::SCENARIOS,
        output::SCENARIOS,
        endurance::SCENARIOS,
        phases::SCENARIOS,
        two_devices::SCENARIOS,
        unmounting::SCENARIOS,
        workplace::SCENARIOS,
    ]
    .concat()
}
