//! Checking a whole volume: every structure, every cross-reference, and on request every block of
//! data. It reads, and never writes.
//!
//! The pages of the checkpoint are read once to check the tree and to count what the checkpoint's
//! tables claim, and once more, with the journal's changes over them, to check the files. Memory
//! grows with the number of inodes and names (some 40 bytes each), a bit per block of the zones in
//! use, the journal, and the ranges of shared blocks that equally many extents name; not with the
//! files' sizes.

mod copies;
mod deltas;
mod files;
mod items;
mod links;
mod losses;
mod owners;
mod quota;
mod repair;
mod rows;
mod sharing;
mod stored;
mod summaries;
mod versions;
mod zones;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

use persimmon_device::ZonedDevice;
use persimmon_device::image::Notice;
use persimmon_format::zone_header::SHARED_BLOCKS;
use persimmon_format::{Key, SubvolumeId, VersionId, shown};
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::finding::{
    COUNT_DELTAS, COUNT_INODES, COUNT_RESERVED, Finding, Findings, IMAGE_RECORD, IMAGE_RECORD_LOST,
    IMAGE_SUPERBLOCK, IMAGE_SUPERBLOCKS, IMAGE_TABLE, IMAGE_TRUNCATED, LOG_RECORD, MAT_LEAK,
    SHARED_END, Severity,
};
use crate::state::State;
use crate::tree::CheckedTree;
use crate::volume::{Inspector, VolumeInfo};
use files::Context;
use links::Names;
use losses::Losses;
use owners::{Owners, Usage};
use quota::QuotaCheck;
use repair::Plan;
pub use repair::Repairs;
use rows::Rows;
use sharing::Sharing;
use versions::Table;

/// What to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read every block of every file and verify its checksum.
    pub data: bool,
    /// Findings to keep; the others are only counted.
    pub findings_max: usize,
    /// What was found damaged when the image was opened.
    pub notices: Vec<Notice>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            data: false,
            findings_max: 1000,
            notices: Vec::new(),
        }
    }
}

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Zone headers and the log; counted in zones.
    Zones,
    /// The tree of the checkpoint; counted in pages.
    Tree,
    /// Files, after replay; counted in inodes, with `--data` in blocks.
    Files,
    /// Names and link counts; counted in inodes.
    Links,
    /// Whether the zones of stripe sets agree; counted in sets.
    Rows,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Zones => "reading zone headers and the log",
            Stage::Tree => "checking metadata pages",
            Stage::Files => "checking files",
            Stage::Links => "checking names",
            Stage::Rows => "comparing the zones of stripe sets",
        })
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// How much of that is done.
    pub done: u64,
    /// Of how much; an estimate.
    pub total: u64,
}

/// What there is, as of after the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Metadata pages of the checkpoint.
    pub pages: u64,
    /// Levels of the tree above the leaves.
    pub tree_height: u8,
    /// Records of the journal that a mount replays.
    pub records_replayed: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Names in directories.
    pub entries: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Unlinked files that wait to be freed.
    pub orphans: u64,
    /// Snapshots. What is told above is that of the main subvolume, what is told below that of all of them together.
    pub snapshots: u64,
    /// Extents.
    pub extents: u64,
    /// Blocks of data that extents refer to, those that files share once.
    pub data_blocks: u64,
    /// Of these, those that are compressed and packed with others.
    pub packed_blocks: u64,
    /// Blocks of files that lie in the store of shared blocks: each as often as a file has it.
    pub shared_blocks: u64,
    /// Blocks whose content lies in the tree.
    pub inline_blocks: u64,
    /// Blocks set aside by preallocation.
    pub reserved_blocks: u64,
    /// Blocks of data read and verified, with `--data`.
    pub data_blocks_verified: u64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The volume in short.
    pub volume: VolumeInfo,
    /// What there is.
    pub counts: Counts,
    /// What is wrong, as many as were asked for.
    pub findings: Vec<Finding>,
    /// Findings there were.
    pub findings_total: u64,
    /// Of these, errors.
    #[serde(skip)]
    pub errors_total: u64,
    /// Of these, notes.
    #[serde(skip)]
    pub notes_total: u64,
    /// The numbers of all findings, those not kept included.
    pub numbers: BTreeSet<u16>,
    /// The worst of all findings.
    pub worst: Option<Severity>,
    /// What would put right what can be decided.
    #[serde(skip)]
    pub repairs: Repairs,
}

impl Report {
    /// No errors; notes and warnings may be there.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.worst < Some(Severity::Error)
    }

    /// The worst of all findings, those not kept included.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.worst
    }
}

/// Checks the volume on `device`. `progress` is called often.
///
/// # Errors
/// There is no volume, it needs a newer program, or the device cannot even report its zones. All
/// that is wrong inside a volume is in the report.
pub fn check(
    device: &dyn ZonedDevice,
    options: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let mut findings = Findings::new(options.findings_max);
    let mut counts = Counts::default();
    let mut staged = |stage, done, total| {
        progress(Progress { stage, done, total });
    };
    let inspector = Inspector::open_with(device, &mut findings, &mut |done, total| {
        staged(Stage::Zones, done, total);
    })?;
    for notice in &options.notices {
        tell_notice(*notice, &mut findings);
    }
    let repairs = if inspector.checkpoint.is_some() {
        check_content(&inspector, options, &mut findings, &mut counts, &mut staged)?
    } else {
        Repairs::default()
    };
    inspector.media.check_supported()?;
    let numbers = findings.numbers();
    let (list, total, worst) = findings.into_parts();
    Ok(Report {
        volume: inspector.volume(),
        counts,
        findings: list,
        findings_total: total.all,
        errors_total: total.errors,
        notes_total: total.notes,
        numbers,
        worst,
        repairs,
    })
}

/// What the image itself found when it was opened.
fn tell_notice(notice: Notice, findings: &mut Findings) {
    match notice {
        Notice::SuperblockCopy { copy } => {
            findings.add(&IMAGE_SUPERBLOCK, format_args!("copy {copy}"), "");
        }
        Notice::ZoneRecord { zone } => findings.add(&IMAGE_RECORD, format_args!("zone {zone}"), ""),
        Notice::ZoneRecordLost { zone } => {
            findings.add(&IMAGE_RECORD_LOST, format_args!("zone {zone}"), "");
        }
        Notice::TableRecords { table, zones } => {
            let detail = format!("of {zones} zones");
            findings.add(&IMAGE_TABLE, format_args!("table {table}"), detail);
        }
        Notice::SuperblocksLost => findings.add(&IMAGE_SUPERBLOCKS, "the image", ""),
        Notice::Truncated { total } => {
            let detail = format!("it had {total} bytes");
            findings.add(&IMAGE_TRUNCATED, "the image", detail);
        }
    }
}

fn check_content(
    inspector: &Inspector<'_>,
    options: &CheckOptions,
    findings: &mut Findings,
    counts: &mut Counts,
    staged: &mut dyn FnMut(Stage, u64, u64),
) -> Result<Repairs> {
    let checkpoint = inspector.checkpoint()?;
    let mut plan = Plan::default();
    let mut usage = Usage::new(inspector);
    let tree = inspector.walk(
        findings,
        &mut |key, value| usage.item(&key, value),
        &mut |done, total| staged(Stage::Tree, done, total),
    )?;
    counts.pages = tree.pages;
    counts.tree_height = tree.height;
    let lost = tree.lost || checkpoint.mat_lost;
    let mut owners = Owners::new(inspector);
    owners.claim_metadata(inspector, findings, &mut usage);
    if !lost {
        check_tables(checkpoint, &tree, &usage, findings, &mut plan);
    }
    let mut state = State::new(inspector, tree);
    let counted = checkpoint.footer.counted;
    let mut uncounted = counted > checkpoint.footer.cut;
    let mut recount = |state: &State<'_, '_>| {
        usage.forget_data();
        let _ = state.scan(Key::from_bytes(&[0; Key::LEN]), &mut |key, value| {
            usage.data(&key, value);
            ControlFlow::Continue(())
        });
    };
    for record in &inspector.journal.records {
        if uncounted && record.lsn > counted {
            recount(&state);
            uncounted = false;
        }
        if let Err(error) = state.apply(&record.ops) {
            findings.add(&LOG_RECORD, format_args!("LSN {}", record.lsn), error);
        }
        counts.records_replayed += 1;
    }
    if uncounted {
        recount(&state);
    }
    let total = if options.data {
        usage.data_blocks()
    } else {
        checkpoint.footer.inodes
    };
    let mut losses = Losses::default();
    let table = Table::check(inspector, &state, lost, findings);
    plan.is_versioned = !table.is_plain;
    let names = files::check(Context {
        inspector,
        state: &state,
        numbers_end: inspector.numbers_end(),
        options,
        lost,
        owners: &mut owners,
        findings,
        counts,
        plan: &mut plan,
        names: Names::default(),
        progress: &mut |done| staged(Stage::Files, done, total.max(done)),
        truncations: Vec::new(),
        losses: &mut losses,
        sharing: Sharing::default(),
        quota: QuotaCheck::default(),
        table: &table,
        scope: state.main(),
    });
    losses.tell(&state, &names, findings);
    let ino_limit = names
        .inodes
        .last()
        .map_or(0, |row| row.ino.saturating_add(1));
    links::check(names, lost, findings, &mut plan, &mut |done, total| {
        staged(Stage::Links, done, total);
    });
    let snapshots = Snapshots {
        inspector,
        state: &state,
        options,
        lost,
        table: &table,
    };
    counts.snapshots = snapshots.check(&mut owners, findings);
    copies::check(inspector, findings);
    zones::check(inspector, &usage, &owners, lost, findings, &mut plan);
    let mut rows = Rows::new(inspector);
    let sets = inspector.zones.len() as u64;
    rows.look_at_all(inspector, &owners, options.data, &mut |done| {
        staged(Stage::Rows, done, sets);
    });
    if options.data {
        summaries::check(inspector, &owners, &mut rows, findings);
    }
    rows.tell(&owners, findings, &mut plan);
    if lost {
        // With pages missing, what looks like an error in the rest may be right.
        return Ok(Repairs {
            partial: true,
            ..Repairs::default()
        });
    }
    Ok(plan.finish(inspector, &state, ino_limit))
}

/// What the check of the snapshots needs.
struct Snapshots<'a, 'd> {
    inspector: &'a Inspector<'d>,
    state: &'a State<'a, 'd>,
    options: &'a CheckOptions,
    lost: bool,
    table: &'a Table,
}

impl Snapshots<'_, '_> {
    /// Checks the files and names of each snapshot; those that show the same once. Returns how many there are.
    fn check(&self, owners: &mut Owners, findings: &mut Findings) -> u64 {
        let subvolumes = &self.state.versions().subvolumes;
        let snapshots = subvolumes
            .iter()
            .filter(|(id, _)| **id != SubvolumeId::MAIN);
        let mut checked = BTreeSet::new();
        let mut count = 0;
        for (_, snapshot) in snapshots {
            count += 1;
            if checked.insert(snapshot.version) {
                findings.within(Some(shown(&snapshot.name).to_string()));
                self.check_version(snapshot.version, owners, findings);
                findings.within(None);
            }
        }
        count
    }

    fn check_version(&self, version: VersionId, owners: &mut Owners, findings: &mut Findings) {
        // What is wrong in a snapshot is told and not mended.
        let mut plan = Plan::default();
        let names = files::check_snapshot(Context {
            inspector: self.inspector,
            state: self.state,
            numbers_end: self.inspector.numbers_end(),
            options: self.options,
            lost: self.lost,
            owners,
            findings,
            counts: &mut Counts::default(),
            plan: &mut plan,
            names: Names::default(),
            progress: &mut |_| {},
            truncations: Vec::new(),
            losses: &mut Losses::default(),
            sharing: Sharing::default(),
            quota: QuotaCheck::default(),
            table: self.table,
            scope: self.state.versions().scope(version),
        });
        links::check(names, self.lost, findings, &mut plan, &mut |_, _| {});
    }
}

/// The checkpoint's tables and counts against its tree.
fn check_tables(
    checkpoint: &Checkpoint,
    tree: &CheckedTree,
    usage: &Usage,
    findings: &mut Findings,
    plan: &mut Plan,
) {
    for (id, entry) in checkpoint.mat.iter().enumerate() {
        if entry.is_used() && !tree.reached.get(id).copied().unwrap_or(false) {
            findings.add(&MAT_LEAK, format_args!("page {id}"), "");
        }
    }
    let footer = &checkpoint.footer;
    let claims = [
        (&COUNT_INODES, footer.inodes, usage.inodes),
        (&COUNT_RESERVED, footer.reserved_blocks, usage.reserved),
        (&COUNT_DELTAS, footer.deltas, usage.deltas),
    ];
    for (rule, claimed, counted) in claims {
        if claimed != counted {
            let detail = format!("it says {claimed}, there are {counted}");
            findings.add(rule, "footer", detail);
            plan.recount();
        }
    }
    let (claimed, end) = (footer.shared_end, usage.shared_end);
    let shares = footer.features.incompatible & SHARED_BLOCKS != 0;
    if shares && claimed < end {
        let detail = format!("it says {claimed}, some end at {end}");
        findings.add(&SHARED_END, "footer", detail);
        plan.recount();
    }
}
