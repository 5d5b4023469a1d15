//! The state of a campaign in a file, so that it can be broken off and gone on with.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use persimmon_crash::harness::{Campaign, CampaignReport, Images, Statistics};
use serde::{Deserialize, Serialize};

/// Time between two savings.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// What makes two campaigns the same, up to their length.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    seed: u64,
    /// First and last number and step of each selection of short sequences.
    sequences: Vec<(u64, u64, u64)>,
    samples: u64,
}

#[derive(Serialize, Deserialize)]
struct Content {
    campaign: Identity,
    /// Parts that are over.
    parts: u64,
    /// Time spent, all sessions together.
    seconds: u64,
    statistics: Statistics,
    /// As they were printed.
    failures: Vec<String>,
}

/// A state file and what it held.
pub struct Saved {
    content: Content,
    begin: Instant,
    saved: Instant,
}

impl Saved {
    pub fn new(campaign: &Campaign) -> Saved {
        let now = Instant::now();
        let selections = campaign.sequences.iter();
        Saved {
            content: Content {
                campaign: Identity {
                    seed: campaign.seed,
                    sequences: selections.map(|s| (s.first, s.end, s.step)).collect(),
                    samples: campaign.samples,
                },
                parts: 0,
                seconds: 0,
                statistics: Statistics::default(),
                failures: Vec::new(),
            },
            begin: now,
            saved: now,
        }
    }

    /// The state in `file`, or the start if there is none yet.
    pub fn load(file: &Path, campaign: &Campaign) -> Result<Saved> {
        let mut saved = Saved::new(campaign);
        if !file.exists() {
            return Ok(saved);
        }
        let reading = || format!("reading {}", file.display());
        let text = fs::read_to_string(file).with_context(reading)?;
        let mut content: Content = serde_json::from_str(&text).with_context(reading)?;
        if content.campaign != saved.content.campaign {
            bail!(
                "{} is of another campaign: {:?}, not {:?}",
                file.display(),
                content.campaign,
                saved.content.campaign
            );
        }
        let images = fs::read(images_file(file)).with_context(reading)?;
        content.statistics.images = images
            .as_chunks::<8>()
            .0
            .iter()
            .map(|hash| u64::from_le_bytes(*hash))
            .collect::<Images>();
        saved.content = content;
        Ok(saved)
    }

    /// What the campaign came to so far; failures apart.
    pub fn take_report(&mut self) -> CampaignReport {
        CampaignReport {
            parts: self.content.parts,
            statistics: std::mem::take(&mut self.content.statistics),
            failures: Vec::new(),
        }
    }

    /// Failures of earlier sessions.
    pub fn earlier_failures(&self) -> &[String] {
        &self.content.failures
    }

    /// Time spent, all sessions together.
    pub fn seconds(&self) -> u64 {
        self.content.seconds + self.begin.elapsed().as_secs()
    }

    pub fn is_due(&self) -> bool {
        self.saved.elapsed() >= SAVE_EVERY
    }

    /// Writes the state. The images first: they may be of more states than the rest, since those
    /// states will be had again.
    pub fn save(&mut self, file: &Path, report: &CampaignReport) -> Result<()> {
        let images = report.statistics.images.iter();
        let images: Vec<u8> = images.flat_map(|hash| hash.to_le_bytes()).collect();
        replace(&images_file(file), &images)?;
        let new = report.failures.iter().map(ToString::to_string);
        let content = Content {
            campaign: Identity {
                sequences: self.content.campaign.sequences.clone(),
                ..self.content.campaign
            },
            parts: report.parts,
            seconds: self.seconds(),
            statistics: report.statistics.clone(),
            failures: self.content.failures.iter().cloned().chain(new).collect(),
        };
        replace(file, &serde_json::to_vec_pretty(&content)?)?;
        self.saved = Instant::now();
        Ok(())
    }
}

fn images_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".images");
    name.into()
}

/// Writes a file so that there is always a whole one.
fn replace(file: &Path, content: &[u8]) -> Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let write = || {
        let mut out = File::create(&new)?;
        out.write_all(content)?;
        out.sync_all()?;
        fs::rename(&new, file)
    };
    write().with_context(|| format!("writing {}", file.display()))
}
