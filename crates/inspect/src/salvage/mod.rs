//! Reading a volume whose log, tables or pages are lost, as far as what is left describes itself.
//!
//! Pages say which page they are, of which level, and which checkpoint wrote them; chunks of the
//! tables likewise. A scan of the metadata zones finds all that stand. A checkpoint that came as
//! far as its zone table has written all its pages and chunks, and until it was durable nothing
//! that the one before it needs was reset: so the newest whose tree is whole is a state that the
//! volume was in. Where no tree is whole, the one with the fewest gaps is taken, and older
//! versions of pages, leaves without a parent and summaries of data zones stand in for what is
//! missing.
//!
//! Nothing here writes. Memory: about 110 bytes for each version of a page on the device, 70 for
//! each inode and 32 for each name, 40 for each data block that summaries alone know of, and the
//! journal, where there is one; where an older leaf stands in for a lost one, a bit for each block
//! of the data zones, and 4 bytes a zone for each of at most 64 earlier checkpoints.

mod audit;
mod content;
mod forest;
mod liveness;
mod names;
mod older;
mod replayed;
mod scan;
mod shares;
mod summaries;
mod tables;
mod then;

use persimmon_device::ZonedDevice;
use persimmon_format::footer::{Footer, LogPosition};
use persimmon_format::inode::FIRST_INO;
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::{PROPERTIES, VolumeIdentity};
use persimmon_format::{Addr, Lsn, PageId, ZoneId};
use serde::Serialize;

pub use content::{Content, Damage, Item, SharedRun};
pub use names::{Node, Placement};
pub use summaries::StrayBlock;

use crate::checkpoint::{self, Checkpoint};
use crate::error::{InspectError, Result};
use crate::finding::{Finding, Findings, LOG_GAP, LOG_RECORD, LOG_ZONE};
use crate::replay::{self, Journal};
use crate::tree::CheckedTree;
use crate::volume::{Inspector, ZoneHeaderFields, ZoneUse};
use audit::{audit, may_hide_older};
use forest::{Forest, Grower, Instead, LostRange, LostRanges};
use scan::Scan;
use tables::{Mat, Origin, Trust};
use then::Then;

/// Checkpoints tried, the newest first.
const CHECKPOINTS_MAX: usize = 4;
/// Roots tried for each.
const ROOTS_MAX: usize = 16;
/// Findings of the log kept.
const FINDINGS_MAX: usize = 100;

/// What a salvage is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Zone headers; counted in zones.
    Zones,
    /// Metadata zones, block by block; counted in zones.
    Pages,
    /// Items of the tree; counted in leaves.
    Items,
    /// Summaries of data zones; counted in zones.
    Summaries,
}

/// Where the state of the volume was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// In the log: the newest checkpoint, and the journal past it.
    Log,
    /// In pages and table chunks alone. What was changed after the checkpoint is lost.
    Pages,
}

/// The tree of a volume, as whole as it could be made.
pub struct Rebuilt<'d> {
    pub(crate) inspector: Inspector<'d>,
    pub(crate) tree: CheckedTree,
    pub(crate) lost: LostRanges,
    pub(crate) source: Source,
    /// The journal may have ended too early.
    pub(crate) journal_broken: bool,
    /// Pages of which no version is left.
    pub(crate) pages_lost: u64,
    /// Any part of the tree may be as of an earlier checkpoint, and nothing tells which.
    pub(crate) is_uncertain: bool,
    /// What is newer than leaves that stand in for lost ones.
    then: Then,
    zones_lost: Vec<ZoneId>,
    /// The newest checkpoint that wrote anything that is left.
    newest: u64,
    /// The tree had nothing of inodes from this one on, if that is known.
    pub(crate) next_ino: u64,
    notes: Vec<String>,
    findings: Vec<Finding>,
}

/// Numbers from which a volume can go on whose metadata is written anew: all are greater than any
/// that was used, as far as anything tells.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Who the volume is.
    pub identity: VolumeIdentity,
    /// The newest checkpoint that wrote anything.
    pub checkpoint: u64,
    /// The last record that the tree holds.
    pub last_lsn: Lsn,
    /// Epoch of the log.
    pub epoch: u32,
    /// Number of the next log block.
    pub log_sequence: u64,
    /// The footer that was found, or [`Addr::ZERO`].
    pub footer: Addr,
    /// By zone.
    pub zit: Vec<ZitEntry>,
    /// Inode numbers from this one on were never given out, as far as is known.
    pub next_ino: u64,
    /// Changes are lost, and with them perhaps the numbers that they gave out.
    pub changes_lost: bool,
    /// Sequence of the next zone taken into use.
    pub next_zone_sequence: u64,
    /// Blocks written in the volume's life, at least.
    pub write_clock: u64,
    /// Share held back, in 1/100 percent.
    pub reserve_basis_points: u32,
}

/// With every checkpoint numbers of records and log blocks grow by less than this.
const RECORDS_PER_CHECKPOINT: u64 = 1 << 32;
const LOG_BLOCKS_PER_CHECKPOINT: u64 = 1 << 20;
/// The share held back where no footer tells.
const RESERVE_UNKNOWN: u32 = 700;
/// An epoch that no log reached whose own is not known any more.
const EPOCH_UNKNOWN: u32 = 1 << 20;

/// A tree that may be the one.
struct Candidate {
    checkpoint: Checkpoint,
    forest: Forest,
    /// Why the pages found may not be the newest of each: the page table was put together from
    /// what is left.
    uncertain: Option<&'static str>,
}

const TABLES_LOST: &str = "the page table and the zone table are lost";
const PAGES_DAMAGED: &str =
    "a part of the page table is lost, and what is damaged beside it may have been newer pages";

/// Puts together what is left of the volume on `device`.
///
/// # Errors
/// No zone header is left (they hold the secret that everything else is sealed with), the format
/// is newer, the device cannot report its zones, or there is no metadata at all.
pub fn rebuild<'d>(
    device: &'d dyn ZonedDevice,
    progress: &mut dyn FnMut(Stage, u64, u64),
) -> Result<Rebuilt<'d>> {
    let mut findings = Findings::new(FINDINGS_MAX);
    let mut inspector = Inspector::open_bare(device, &mut findings, &mut |done, total| {
        progress(Stage::Zones, done, total);
    })?;
    let scan = Scan::read(&inspector, &mut |done, total| {
        progress(Stage::Pages, done, total);
    });
    inspector.media.check_supported()?;
    let log = from_log(&inspector, &scan, &mut findings);
    inspector.media.check_supported()?;
    let lost_ends = lost_ends(&inspector, log.as_ref());
    let journal_broken = findings.has(&LOG_GAP) || findings.has(&LOG_ZONE) || !lost_ends.is_empty();
    // Where the log is whole its footer is the newest, and the journal leads on from it.
    let pages = if log.is_some() && !journal_broken {
        None
    } else {
        from_pages(&inspector, &scan)
    };
    let newer = |(log, _): &(Candidate, Journal), pages: &Candidate| {
        pages.checkpoint.footer.checkpoint > log.checkpoint.footer.checkpoint
            && pages.forest.faults <= log.forest.faults
    };
    let (best, journal, source) = match (log, pages) {
        (Some(log), Some(pages)) if newer(&log, &pages) => {
            (pages, Journal::default(), Source::Pages)
        }
        (Some((log, journal)), _) => (log, journal, Source::Log),
        (None, Some(pages)) => (pages, Journal::default(), Source::Pages),
        (None, None) => {
            return Err(InspectError::NoCheckpoint {
                reason: "no metadata page is left".into(),
            });
        }
    };
    let Candidate {
        mut checkpoint,
        mut forest,
        uncertain,
    } = best;
    // What was turned on since the volume was opened no zone header tells yet.
    inspector.identity.add_features(checkpoint.footer.features);
    let number = checkpoint.footer.checkpoint;
    let mut notes = Vec::new();
    if let Some(why) = uncertain {
        notes.push(format!(
            "{why}: any part of the tree may be as of an earlier checkpoint"
        ));
    }
    if let Some(newest) = scan.newest_checkpoint().filter(|newest| *newest > number)
        && source == Source::Pages
    {
        notes.push(format!(
            "pages up to checkpoint {newest} are there, but not enough for a tree: checkpoint \
             {number} is taken"
        ));
    }
    if source == Source::Log {
        let unreadable = lost_of_log(&inspector, &checkpoint);
        for zone in lost_ends {
            // One that is offline may be among those, too.
            if !unreadable.contains(&zone) {
                notes.push(format!(
                    "zone {zone} is damaged and nothing of it can be decoded: it may have held the end of the journal"
                ));
            }
        }
        for zone in unreadable {
            notes.push(format!(
                "zone {zone} cannot be read: it may have held the end of the journal"
            ));
        }
    }
    let readable = |(id, entry): (usize, &MatEntry)| {
        let reached = forest.reached.get(id).copied().unwrap_or(false);
        entry.is_used() && !reached && scan.page_at(PageId(id as u64), *entry).is_none()
    };
    let entries = checkpoint.mat.iter().enumerate();
    let pages_lost = entries.filter(|e| readable(*e)).count() as u64;
    if pages_lost == 0 {
        // All leaves under the lost pages were found: nothing is missing.
        let healed = |lost: &LostRange| matches!(lost.instead, Instead::Leaves(n) if n > 0);
        forest.lost.retain(|lost| !healed(lost));
    }
    for (id, entry) in &forest.moved {
        if let Some(slot) = checkpoint.mat.get_mut(id.0 as usize) {
            *slot = *entry;
        }
    }
    let newest = scan.newest_checkpoint().unwrap_or(0).max(number);
    let next_ino = if source == Source::Log && !journal_broken && newest == number {
        checkpoint.footer.next_ino
    } else {
        u64::MAX
    };
    let then = Then::of(&inspector, &scan, &checkpoint, &forest.lost);
    inspector.checkpoint = Some(checkpoint);
    inspector.journal = journal;
    let (findings, _, _) = findings.into_parts();
    Ok(Rebuilt {
        inspector,
        tree: CheckedTree {
            leaves: forest.leaves,
            reached: forest.reached,
            pages: forest.pages,
            height: forest.height,
            lost: !forest.lost.is_empty(),
        },
        lost: LostRanges::new(forest.lost),
        source,
        journal_broken,
        pages_lost,
        is_uncertain: uncertain.is_some(),
        then,
        newest,
        next_ino,
        zones_lost: scan.zones_lost,
        notes,
        findings,
    })
}

impl<'d> Rebuilt<'d> {
    /// Where the state was found.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The checkpoint it is, or follows.
    #[must_use]
    pub fn checkpoint(&self) -> u64 {
        let checkpoint = self.inspector.checkpoint.as_ref();
        checkpoint.map_or(0, |checkpoint| checkpoint.footer.checkpoint)
    }

    /// What was found of the volume, in short.
    #[must_use]
    pub fn inspector(&self) -> &Inspector<'d> {
        &self.inspector
    }

    /// What is wrong with the log.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Zones that cannot be read at all.
    #[must_use]
    pub fn zones_lost(&self) -> &[ZoneId] {
        &self.zones_lost
    }

    /// Where a volume goes on whose metadata is written anew.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let inspector = &self.inspector;
        let footer = inspector.checkpoint.as_ref().map(|c| &c.footer);
        let next = self.newest.saturating_add(1);
        let log = &inspector.log;
        let ends = log.zones.iter().map(|zone| {
            let blocks = inspector.media.geometry().zone_blocks;
            zone.first_log_sequence.saturating_add(blocks.into())
        });
        let from_log = self.source == Source::Log;
        let last = inspector.journal.last(footer.map_or(Lsn(0), |f| f.cut));
        let headers = (0..inspector.zones.len() as u32)
            .filter_map(|zone| Some(inspector.header(ZoneId(zone))?.sequence));
        let entries = inspector.checkpoint.as_ref().map_or(&[][..], |c| &c.zit);
        let known = entries.iter().map(|entry| entry.sequence);
        let sequence = headers.chain(known).max().unwrap_or(0);
        let sequence = sequence.max(footer.map_or(0, |f| f.next_zone_sequence));
        let write_clock = entries.iter().map(|entry| entry.last_write).max();
        Numbers {
            identity: inspector.identity.clone(),
            checkpoint: self.newest,
            last_lsn: if from_log {
                last
            } else {
                Lsn(next.saturating_mul(RECORDS_PER_CHECKPOINT)).max(last)
            },
            epoch: match log.newest {
                Some(newest) => newest.state.epoch.saturating_add(1),
                None => EPOCH_UNKNOWN,
            },
            log_sequence: ends
                .max()
                .unwrap_or_else(|| next.saturating_mul(LOG_BLOCKS_PER_CHECKPOINT)),
            footer: match &inspector.checkpoint {
                Some(checkpoint) if from_log => checkpoint.addr,
                _ => Addr::ZERO,
            },
            zit: entries.to_vec(),
            next_ino: match inspector.lot_end() {
                u64::MAX => FIRST_INO,
                end => end,
            },
            changes_lost: self.next_ino == u64::MAX,
            next_zone_sequence: sequence.saturating_add(1 + inspector.zones.len() as u64),
            write_clock: write_clock
                .unwrap_or(0)
                .max(footer.map_or(0, |f| f.write_clock)),
            reserve_basis_points: footer.map_or(RESERVE_UNKNOWN, |f| f.reserve_basis_points),
        }
    }

    /// Metadata pages of which no version is left.
    #[must_use]
    pub fn pages_lost(&self) -> u64 {
        self.pages_lost
    }

    /// Ranges of the tree that are lost, or older than the rest, and changes that the log held and are
    /// lost with it, for people.
    pub fn gaps(&self) -> impl Iterator<Item = String> {
        let lost = self.lost.iter().map(|lost| {
            let to = lost.high.map_or("the end".to_owned(), |high| {
                format!("inode {} kind {}", high.ino, high.kind.0)
            });
            let range = format!("inode {} kind {} to {to}", lost.low.ino, lost.low.kind.0);
            match lost.instead {
                Instead::Nothing => format!("{range}: a metadata page is lost"),
                Instead::Older(checkpoint) => {
                    format!("{range}: a metadata page is lost, it is taken as of checkpoint {checkpoint}")
                }
                Instead::Leaves(count) => format!(
                    "{range}: an inner metadata page is lost, {count} pages under it were found"
                ),
            }
        });
        let notes = self.notes.iter().cloned();
        notes.chain(self.journal_gaps()).chain(lost)
    }

    /// What was acknowledged and is not in the state that was found, as far as the log tells. One that
    /// is lost tells nothing: then there may be something or not.
    fn journal_gaps(&self) -> Vec<String> {
        if self.source == Source::Pages {
            let number = self.checkpoint();
            return vec![format!(
                "the log leads to no state: what was changed after checkpoint {number}, if anything, \
                 is missing"
            )];
        }
        if let Some((first, last)) = self.inspector.journal.missing {
            return vec![format!(
                "the journal has a gap: records {first} to {last} were durable and are missing"
            )];
        }
        let rules = [&LOG_RECORD, &LOG_ZONE];
        let is_loss = |found: &&Finding| rules.iter().any(|rule| rule.number == found.number);
        let found = self.findings.iter().filter(is_loss);
        let told = found.map(|found| format!("{}: {}", found.place, found.message));
        told.collect()
    }
}

/// Zones of which nothing can be decoded, where the log may have gone on.
fn lost_ends(inspector: &Inspector<'_>, log: Option<&(Candidate, Journal)>) -> Vec<ZoneId> {
    let undecodable = inspector.undecodable.iter().copied();
    match log {
        Some((candidate, journal)) => undecodable
            .filter(|zone| inspector.may_be_lost_end(*zone, &candidate.checkpoint, journal))
            .collect(),
        None => undecodable.collect(),
    }
}

/// Zones that cannot be read and may hold journal that nothing else tells of: those of the log as of the checkpoint,
/// from where replay starts, and those that were free then and could be taken for it.
fn lost_of_log(inspector: &Inspector<'_>, checkpoint: &Checkpoint) -> Vec<ZoneId> {
    let log = &inspector.log;
    let start = log.zone_of(checkpoint.footer.replay.sequence);
    let start = start.map_or(0, |zone| zone.sequence);
    let media = &inspector.media;
    let may_hold = |zone: &ZoneId| {
        let entry = checkpoint.zit.get(zone.0 as usize);
        let entry = entry.copied().unwrap_or_default();
        match entry.role {
            Role::Log => entry.sequence >= start,
            Role::Free => media.is_offline(*zone),
            _ => false,
        }
    };
    let is_lost = |zone: &ZoneId| {
        let used = inspector.zones.get(zone.0 as usize);
        let partner = media.partner(*zone);
        matches!(used, Some(ZoneUse::Damaged(_)))
            && partner.is_none_or(|partner| inspector.header(partner).is_none())
    };
    let candidates = media.log_candidates();
    candidates.filter(is_lost).filter(may_hold).collect()
}

/// What the log leads to. Chunks of the page table that are lost are made again from pages.
fn from_log(
    inspector: &Inspector<'_>,
    scan: &Scan,
    findings: &mut Findings,
) -> Option<(Candidate, Journal)> {
    let (media, key, log) = (&inspector.media, &inspector.key, &inspector.log);
    let checkpoint = match checkpoint::newest(media, key, log, findings).ok()? {
        Some(checkpoint) => checkpoint,
        // The one before leads to the same, if nothing that it needs was reset since.
        None => checkpoint::older(media, key, log, findings)
            .filter(|checkpoint| still_stands(inspector, checkpoint))?,
    };
    let zones = &inspector.zones;
    let journal = replay::read(media, key, log, zones, &checkpoint, findings);
    let number = checkpoint.footer.checkpoint;
    let lost = &checkpoint.mat_chunks_lost;
    let mut mat = Mat {
        origins: vec![Origin::Own; checkpoint.footer.mat.len()],
        chunks: checkpoint.footer.mat.clone(),
        entries: checkpoint.mat.clone(),
        stale: 0,
    };
    // What is lost was written later than what is left of it: pages know better.
    for chunk in lost {
        let (entries, _) = tables::chunk(inspector, scan, *chunk, number, Trust::Pages);
        let at = chunk * MatEntry::PER_CHUNK;
        if let Some(slots) = mat.entries.get_mut(at..at + MatEntry::PER_CHUNK) {
            slots.copy_from_slice(&entries);
        }
        if let Some(origin) = mat.origins.get_mut(*chunk) {
            *origin = Origin::Lost;
        }
    }
    let grower = Grower {
        inspector,
        scan,
        mat: &mat.entries,
        checkpoint: number,
    };
    let mut forest = grower.grow(Some(checkpoint.footer.root));
    let (zit, zit_chunks) = (&checkpoint.zit, &checkpoint.footer.zit);
    let hides = may_hide_older(&mat, zit, zit_chunks, scan, |_| true);
    if !lost.is_empty() && !checkpoint.zit_lost {
        let zit: Vec<_> = checkpoint.zit.iter().copied().map(Some).collect();
        // With the footer all counts are final.
        audit(
            &mut forest,
            &mat,
            &zit,
            &checkpoint.footer.zit,
            scan,
            u64::MAX,
        );
    }
    let checkpoint = Checkpoint {
        mat: mat.entries,
        ..checkpoint
    };
    let candidate = Candidate {
        uncertain: if !checkpoint.mat_chunks_lost.is_empty() && checkpoint.zit_lost {
            Some(TABLES_LOST)
        } else {
            hides.then_some(PAGES_DAMAGED)
        },
        checkpoint,
        forest,
    };
    Some((candidate, journal))
}

/// Whether every zone that a checkpoint's tree and tables lie in is in the use that it knows of. Data
/// zones may be gone: the journal that leads on says where everything is since.
fn still_stands(inspector: &Inspector<'_>, checkpoint: &Checkpoint) -> bool {
    let zones = (0..).map(ZoneId).zip(&checkpoint.zit);
    let mut used = zones.filter(|(_, entry)| entry.role == Role::Metadata && entry.valid > 0);
    used.all(|(zone, entry)| {
        let same = |header: &ZoneHeaderFields| entry.is_of_use(header.sequence);
        inspector.header(zone).is_some_and(same)
    })
}

/// The newest checkpoint whose tree is whole; without one the tree with the fewest faults.
fn from_pages(inspector: &Inspector<'_>, scan: &Scan) -> Option<Candidate> {
    let mut best: Option<(u64, Mat, Option<PageId>, Forest)> = None;
    let mut consider = |number, mat: &Mat, root, forest: Forest| {
        let better = best
            .as_ref()
            .is_none_or(|(_, _, _, known)| forest.faults < known.faults);
        let whole = forest.faults == 0;
        if better {
            best = Some((number, mat.clone(), root, forest));
        }
        whole
    };
    'search: for number in scan.checkpoints().into_iter().take(CHECKPOINTS_MAX) {
        let (zit, zit_chunks) = tables::zit(inspector, scan, number);
        for trust in [Trust::Chunks, Trust::Pages] {
            let mat = Mat::at(inspector, scan, number, trust);
            let grower = Grower {
                inspector,
                scan,
                mat: &mat.entries,
                checkpoint: number,
            };
            let roots = grower.roots().into_iter().take(ROOTS_MAX).map(Some);
            for root in roots.chain([None]) {
                let mut forest = grower.grow(root);
                forest.faults += mat.stale;
                audit(&mut forest, &mat, &zit, &zit_chunks, scan, number);
                if consider(number, &mat, root, forest) {
                    break 'search;
                }
            }
        }
    }
    let (number, mat, root, forest) = best.filter(|(_, _, _, forest)| forest.pages > 0)?;
    let (zit, zit_chunks) = tables::zit(inspector, scan, number);
    let zit_lost = zit.iter().any(Option::is_none);
    let zit: Vec<ZitEntry> = zit.into_iter().map(Option::unwrap_or_default).collect();
    let own = scan.zones_of(number);
    let hides = may_hide_older(&mat, &zit, &zit_chunks, scan, |zone| !own.contains(&zone));
    let footer = Footer {
        features: inspector.identity.features(),
        properties: (inspector.identity.incompatible & PROPERTIES != 0)
            .then(|| inspector.identity.properties()),
        checkpoint: number,
        cut: Lsn(0),
        counted: Lsn(0),
        replay: LogPosition {
            sequence: 1,
            addr: Addr::ZERO,
        },
        root: root.unwrap_or(PageId(u64::MAX)),
        page_limit: mat.entries.len() as u64,
        next_ino: u64::MAX,
        lot_end: u64::MAX,
        inodes: 0,
        reserved_blocks: 0,
        write_clock: 0,
        next_zone_sequence: 0,
        reserve_basis_points: RESERVE_UNKNOWN,
        max_open: 0,
        max_active: 0,
        shared_end: 0,
        deltas: 0,
        versions: 0,
        mat: mat.chunks.clone(),
        zit: zit_chunks,
        overrides: Vec::new(),
        counts: Vec::new(),
    };
    let checkpoint = Checkpoint {
        addr: Addr::ZERO,
        footer,
        mat: mat.entries,
        zit,
        mat_lost: forest.faults > 0,
        mat_chunks_lost: Vec::new(),
        zit_lost,
    };
    Some(Candidate {
        uncertain: if zit_lost && mat.origins.iter().any(|origin| *origin != Origin::Own) {
            Some(TABLES_LOST)
        } else {
            hides.then_some(PAGES_DAMAGED)
        },
        checkpoint,
        forest,
    })
}
