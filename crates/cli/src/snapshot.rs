//! `persimmon snapshot`: taken, listed, compared, deleted; on a mount through its directory `.snapshots`, and, for what that does not show,
//! by its daemon.

mod diff;
mod prune;
mod retention;
mod sides;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use persimmon::internal::engine::HeldSpace;
use persimmon::internal::format::shown::{as_text, shown};
use persimmon::internal::format::{Ino, is_snapshot_name};
use persimmon::vfs::{ROOT, SNAPSHOTS_NAME, SubvolumeId, is_snapshots};
use persimmon::{Filesystem, FilesystemError, Options, Timestamp};
use persimmon_fuse::size::show_bytes;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;

use crate::control::snapshots::{Changes, Held, Question, Row};
use crate::control::{self, Command, Name};
use crate::exit;
use crate::fs::{Access, date, instant};
use crate::live::{self, Target};
use crate::output::{self, say};
use crate::report::Info;
use diff::Change;
use retention::Retention;
use sides::{MountSide, VolumeSide};

/// Answers with changed inodes that are asked for. Where more have changed, all are looked at.
const CHANGES_ANSWERS_MAX: usize = 100;

/// Take, list, compare and delete snapshots, and go back to one.
#[derive(Args)]
pub struct SnapshotCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(Create),
    List(List),
    Delete(Delete),
    Rename(Rename),
    Diff(Diff),
    Prune(Prune),
    Rollback(Rollback),
}

impl SnapshotCommand {
    pub fn run(&self) -> Result<u8> {
        match &self.verb {
            Verb::Create(verb) => verb.run(),
            Verb::List(verb) => verb.run(),
            Verb::Delete(verb) => verb.run(),
            Verb::Rename(verb) => verb.run(),
            Verb::Diff(verb) => verb.run(),
            Verb::Prune(verb) => verb.run(),
            Verb::Rollback(verb) => verb.run(),
        }
    }

    pub fn name(&self) -> &'static str {
        match &self.verb {
            Verb::Create(_) => "snapshot create",
            Verb::List(_) => "snapshot list",
            Verb::Delete(_) => "snapshot delete",
            Verb::Rename(_) => "snapshot rename",
            Verb::Diff(_) => "snapshot diff",
            Verb::Prune(_) => "snapshot prune",
            Verb::Rollback(_) => "snapshot rollback",
        }
    }
}

/// Take a snapshot of all files, as they are now, or of those of a snapshot that can be written to.
///
/// Takes no room until something is changed. It is durable when the command returns.
#[derive(Args)]
struct Create {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Its name
    name: OsString,
    /// Let files in it be changed, without a change of the others
    #[arg(long)]
    writable: bool,
    /// Take it of this snapshot [default: of the volume, or of what is mounted]
    #[arg(long, value_name = "SUBVOLUME")]
    of: Option<OsString>,
}

/// List snapshots, and what each of them alone, and all of them together, hold that the files do not.
#[derive(Args)]
struct List {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Delete snapshots. What they alone hold is freed while the volume is mounted.
#[derive(Args)]
struct Delete {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Their names
    #[arg(required = true)]
    names: Vec<OsString>,
}

/// Give a snapshot another name.
#[derive(Args)]
struct Rename {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Its name
    old: OsString,
    /// The new one, which no other has
    new: OsString,
}

/// Show which paths differ between two snapshots, or a snapshot and the files as they are: + added, - removed, M modified.
///
/// What was renamed is removed at one path and added at another.
#[derive(Args)]
struct Diff {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// The earlier snapshot
    from: OsString,
    /// The later one [default: the files as they are]
    to: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Delete read-only snapshots, but the newest of each of the last so many hours, days, weeks, months or years that have any.
///
/// Without --prefix every read-only snapshot of the subvolume counts: those too that were taken by hand, by another timer, or as the base
/// of `persimmon send`. See with --dry-run what would go.
#[derive(Args)]
struct Prune {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// How many of each are kept, by UTC, as in hourly:24,daily:7,weekly:4,monthly:12
    #[arg(long, value_name = "PERIOD:COUNT,...")]
    keep: Retention,
    /// Look only at those whose names begin so [default: at all that were taken of the subvolume, by whatever means]
    #[arg(long, default_value = "")]
    prefix: OsString,
    /// Look only at those that were taken of this snapshot [default: of the files that TARGET shows]
    #[arg(long, value_name = "SUBVOLUME")]
    of: Option<OsString>,
    /// Show what would be deleted, with what each holds alone, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Have a volume that is not mounted be as a snapshot is. What was changed since is gone, unless it is kept as a snapshot.
#[derive(Args)]
struct Rollback {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// The snapshot, which stays
    name: OsString,
    /// Name of a snapshot of what there was until now [default: it is deleted]
    #[arg(long, value_name = "NAME")]
    keep: Option<OsString>,
}

/// Where the snapshots are.
enum Place {
    Live(Mounted),
    /// Opened by this process.
    Opened(Filesystem),
}

/// A mount with a directory of snapshots.
pub struct Mounted {
    root: PathBuf,
    directory: PathBuf,
    /// Number of the subvolume that it is a mount of.
    subvolume: u16,
}

impl Mounted {
    /// The mount that a directory is in. Where it is bound elsewhere the root may not be seen; then where it was mounted first serves, if
    /// nothing else is mounted there by now.
    pub fn of(dir: PathBuf) -> Result<Mounted> {
        let info: Info = live::ask(&dir, "info")?;
        let name = OsStr::from_bytes(SNAPSHOTS_NAME);
        let device = std::fs::metadata(&dir)
            .with_context(|| dir.display().to_string())?
            .dev();
        let is_same =
            |root: &PathBuf| std::fs::metadata(root).is_ok_and(|metadata| metadata.dev() == device);
        let first = info.mount_point.filter(is_same);
        for root in first.into_iter().chain([dir.clone()]) {
            let directory = root.join(name);
            match std::fs::symlink_metadata(&directory) {
                Ok(metadata) if is_snapshots(Ino(metadata.ino())) => {
                    let subvolume = info.subvolume_id;
                    return Ok(Mounted {
                        root,
                        directory,
                        subvolume,
                    });
                }
                Ok(_) => {
                    return Err(anyhow!(
                        "{} is a file of yours, and hides the snapshots; rename it",
                        directory.display()
                    ));
                }
                Err(_) => {}
            }
        }
        Err(anyhow!(
            "{} has no snapshots: the volume was made by an earlier Persimmon, or its daemon is one; copy it to a new volume",
            dir.display()
        ))
    }

    /// Below the root of the mount, or of a snapshot in it, which is `root`: to take a snapshot of that.
    pub fn at_root(root: PathBuf) -> Result<Mounted> {
        let info: Info = live::ask(&root, "info")?;
        Ok(Mounted {
            directory: root.join(OsStr::from_bytes(SNAPSHOTS_NAME)),
            root,
            subvolume: info.subvolume_id,
        })
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, question: Question) -> Result<T> {
        control::ask(&self.root, &Command::Snapshots(question))
    }

    /// All snapshots of the volume.
    fn rows(&self) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let after = rows.last().map_or(0, |row| row.id);
            let more: Vec<Row> = self.ask(Question::List { after })?;
            if more.is_empty() {
                return Ok(rows);
            }
            rows.extend(more);
        }
    }

    /// What they hold.
    pub fn held(&self) -> Result<HeldSpace> {
        let mut held = HeldSpace::default();
        let mut after = SubvolumeId::MAIN.0;
        loop {
            let more: Held = self.ask(Question::Held { after })?;
            held.together = more.together;
            for (id, bytes) in more.alone {
                held.alone.insert(SubvolumeId(id), bytes);
                after = id;
            }
            if !more.goes_on {
                return Ok(held);
            }
        }
    }

    /// Where a snapshot is: the root of the main subvolume lists all of them, that of another one what was taken of it.
    fn path(&self, name: &OsStr) -> Result<PathBuf> {
        if self.subvolume == SubvolumeId::MAIN.0 {
            return Ok(self.directory.join(name));
        }
        self.path_among(&self.rows()?, name).ok_or_else(|| {
            told(
                name,
                &"it was not taken of what is mounted here; unmount it, and name the device",
            )
        })
    }

    /// The same, by all snapshots that there are. What is not among them is nowhere.
    fn path_among(&self, rows: &[Row], name: &OsStr) -> Option<PathBuf> {
        let row_of = |id: u16| rows.iter().find(|row| row.id == id);
        let Ok(mut row) = named(rows, name) else {
            return Some(self.directory.join(name));
        };
        let mut names = vec![name];
        for _ in rows {
            if row.origin == self.subvolume {
                let between = OsStr::from_bytes(SNAPSHOTS_NAME);
                let below = names.iter().rev().flat_map(|name| [*name, between]);
                // But for the last directory.
                let below = below.take(2 * names.len() - 1);
                return Some(below.fold(self.directory.clone(), |path, name| path.join(name)));
            }
            row = row_of(row.origin)?;
            names.push(OsStr::from_bytes(row.name.bytes()));
        }
        None
    }

    /// Inodes that may differ; none where that would be too many to tell.
    fn changes(&self, from: u16, to: u16) -> Result<Option<HashSet<Ino>>> {
        let mut inos = HashSet::new();
        let mut after = 0;
        for _ in 0..CHANGES_ANSWERS_MAX {
            let told: Changes = self.ask(Question::Changes { from, to, after })?;
            for (first, more) in &told.ranges {
                inos.extend((*first..=first.saturating_add(*more)).map(Ino));
                after = first.saturating_add(*more);
            }
            if !told.goes_on {
                return Ok(Some(inos));
            }
        }
        Ok(None)
    }
}

/// The snapshot with this name.
fn named<'a>(rows: &'a [Row], name: &OsStr) -> Result<&'a Row> {
    let found = rows.iter().find(|row| row.name.bytes() == name.as_bytes());
    found.ok_or_else(|| told(name, &"there is no such snapshot"))
}

/// A path of a snapshot in messages.
fn told(name: &OsStr, error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("{}: {error}", shown(name.as_bytes()))
}

/// An error of the library, without the path, which is that of the name.
fn of_library(name: &OsStr, error: persimmon::Error) -> anyhow::Error {
    match error.filesystem() {
        Some(FilesystemError::NotFound) => told(name, &"there is no such snapshot"),
        Some(FilesystemError::Exists) => told(name, &"there is a snapshot with this name already"),
        Some(error) => told(name, error),
        None => error.into(),
    }
}

/// The same of the system.
fn of_system(name: &OsStr, error: std::io::Error) -> anyhow::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => told(name, &"there is no such snapshot"),
        Some(Errno::EXIST) => told(name, &"there is a snapshot with this name already"),
        Some(Errno::BUSY) => told(name, &"a file in it is open for writing"),
        Some(Errno::ACCESS | Errno::PERM) => told(
            name,
            &"only root and the owner of the volume's root directory may do that",
        ),
        _ => told(name, &error),
    }
}

/// Refuses what no snapshot can have, before it becomes a path.
fn check_name(name: &OsStr) -> Result<()> {
    if is_snapshot_name(name.as_bytes()) {
        return Ok(());
    }
    Err(exit::usage(format_args!(
        "'{}' is no name for a snapshot: it has 1 to 255 bytes, no slash, and is neither . nor ..",
        shown(name.as_bytes())
    )))
}

impl Place {
    fn of(target: &OsStr, access: Access) -> Result<Place> {
        Ok(match Target::of(target)? {
            Target::Live(dir) => Place::Live(Mounted::of(dir)?),
            Target::Device(_) => Place::Opened(crate::fs::open(target, access, "")?.filesystem),
        })
    }

    /// Number of the subvolume whose files are those that are not in a snapshot.
    fn subvolume(&self) -> u16 {
        match self {
            Place::Opened(_) => SubvolumeId::MAIN.0,
            Place::Live(mounted) => mounted.subvolume,
        }
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let mounted = match self {
            Place::Opened(filesystem) => {
                return Ok(filesystem.snapshots().iter().map(Row::new).collect());
            }
            Place::Live(mounted) => mounted,
        };
        mounted.rows()
    }

    /// What the snapshots hold.
    fn held(&self) -> Result<HeldSpace> {
        match self {
            Place::Live(mounted) => mounted.held(),
            Place::Opened(filesystem) => Ok(filesystem.vfs().volume().snapshots().held()?),
        }
    }

    fn take(&self, name: &OsStr, writable: bool) -> Result<()> {
        check_name(name)?;
        match self {
            Place::Opened(filesystem) => {
                let taken = filesystem.take_snapshot(name, writable);
                taken.map_err(|error| of_library(name, error))
            }
            Place::Live(mounted) if writable => {
                // The kernel may hold back what was written to files that are mapped.
                crate::sync::make_durable(&mounted.root)?.check()?;
                let name = Name::new(name.as_bytes());
                let _: u16 = mounted.ask(Question::TakeWritable { name })?;
                Ok(mounted.sync()?)
            }
            Place::Live(mounted) => {
                let made = std::fs::create_dir(mounted.directory.join(name));
                let made = made.and_then(|()| mounted.sync());
                made.map_err(|error| match Errno::from_io_error(&error) {
                    Some(Errno::NOSPC) => told(name, &crate::sync::why_no_space(&mounted.root)),
                    _ => of_system(name, error),
                })
            }
        }
    }

    /// Takes one of a snapshot.
    fn take_of(&self, of: &OsStr, name: &OsStr, writable: bool) -> Result<()> {
        check_name(of)?;
        check_name(name)?;
        match self {
            Place::Opened(filesystem) => {
                named(&self.rows()?, of)?;
                let taken = filesystem.take_snapshot_of(of, name, writable);
                taken.map_err(|error| of_library(name, error))
            }
            Place::Live(mounted) => {
                // As with one of all files.
                crate::sync::make_durable(&mounted.root)?.check()?;
                let [of, name] = [of, name].map(|name| Name::new(name.as_bytes()));
                let _: u16 = mounted.ask(Question::TakeOf { of, name, writable })?;
                Ok(mounted.sync()?)
            }
        }
    }

    fn delete(&self, name: &OsStr) -> Result<()> {
        check_name(name)?;
        match self {
            Place::Opened(filesystem) => {
                let deleted = filesystem.delete_snapshot(name);
                deleted.map_err(|error| of_library(name, error))
            }
            Place::Live(mounted) => {
                if mounted.is_root(name) {
                    let why = "it is mounted here, and cannot be deleted while it is";
                    return Err(told(name, &why));
                }
                let removed = std::fs::remove_dir(mounted.path(name)?);
                removed.map_err(|error| of_system(name, error))
            }
        }
    }

    fn rename(&self, old: &OsStr, new: &OsStr) -> Result<()> {
        check_name(old)?;
        check_name(new)?;
        // An error is that of the new name only if it is taken.
        match self {
            Place::Opened(filesystem) => {
                let renamed = filesystem.rename_snapshot(old, new);
                renamed.map_err(|error| match error.filesystem() {
                    Some(FilesystemError::Exists) => of_library(new, error),
                    _ => of_library(old, error),
                })
            }
            Place::Live(mounted) => {
                let from = mounted.path(old)?;
                let to = from.with_file_name(new);
                let renamed = renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
                renamed.map_err(|error| match error {
                    Errno::EXIST => of_system(new, error.into()),
                    _ => of_system(old, error.into()),
                })
            }
        }
    }

    /// Everything done is durable.
    fn end(self) -> Result<()> {
        match self {
            Place::Opened(filesystem) => Ok(filesystem.close()?),
            Place::Live(mounted) => Ok(mounted.sync()?),
        }
    }
}

impl Mounted {
    /// Its root, or a directory of it.
    pub fn root(&self) -> &std::path::Path {
        &self.root
    }

    /// Takes a read-only snapshot.
    pub fn take(self, name: &OsStr) -> Result<()> {
        let place = Place::Live(self);
        place.take(name, false)
    }

    /// Whether that is the name of the subvolume that it is a mount of.
    fn is_root(&self, name: &OsStr) -> bool {
        if self.subvolume == SubvolumeId::MAIN.0 {
            return false;
        }
        let info = live::ask::<Info>(&self.root, "info");
        let of = info.ok().and_then(|info| info.subvolume);
        of.is_some_and(|of| of.bytes() == name.as_bytes())
    }

    fn sync(&self) -> std::io::Result<()> {
        let directory = std::fs::File::open(&self.directory)?;
        directory.sync_all()
    }
}

impl Create {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Write)?;
        match &self.of {
            Some(of) => place.take_of(of, &self.name, self.writable)?,
            None => place.take(&self.name, self.writable)?,
        }
        place.end()?;
        Ok(0)
    }
}

/// `--json` of a list.
#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    /// When it was taken, by UTC.
    taken: String,
    writable: bool,
    /// The snapshot that it was taken of; null if of the main subvolume.
    of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_bytes: Option<String>,
    /// Bytes that are freed when it alone is deleted.
    own_bytes: u64,
    /// Bytes that are freed when all snapshots are deleted: the same in each row.
    together_bytes: u64,
}

impl Row {
    fn time(&self) -> Timestamp {
        Timestamp {
            seconds: self.seconds,
            nanoseconds: self.nanoseconds,
        }
    }
}

impl List {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Read)?;
        // What is deleted in between is not listed, and what is taken holds nothing yet.
        let held = place.held()?;
        let mut rows = place.rows()?;
        rows.sort_by(|a, b| (a.time(), a.name.bytes()).cmp(&(b.time(), b.name.bytes())));
        let names: HashMap<u16, &Name> = rows.iter().map(|row| (row.id, &row.name)).collect();
        let mut listed = Vec::new();
        for row in &rows {
            let (name, name_bytes) = row.name.as_text();
            let of = names.get(&row.origin).map(|of| of.as_text());
            let (of, of_bytes) = of.unzip();
            let one = Listed {
                name,
                name_bytes,
                taken: instant(row.time()),
                writable: row.writable,
                of,
                of_bytes: of_bytes.flatten(),
                own_bytes: own_bytes(&held, row),
                together_bytes: held.together,
            };
            listed.push((row, one));
        }
        if self.json {
            let listed: Vec<&Listed> = listed.iter().map(|(_, listed)| listed).collect();
            output::json(&listed)?;
        } else {
            let cells = listed.iter().map(|(row, listed)| {
                vec![
                    row.name.to_string(),
                    date(row.time()),
                    if row.writable {
                        "writable"
                    } else {
                        "read-only"
                    }
                    .to_owned(),
                    names
                        .get(&row.origin)
                        .map_or_else(String::new, |of| of.to_string()),
                    show_bytes(listed.own_bytes),
                ]
            });
            let headings = ["name", "taken (UTC)", "", "of", "holds alone"];
            output::print(output::table(
                &headings,
                &[false, false, false, false, true],
                cells,
            ))?;
            if !listed.is_empty() {
                say!("all together hold {}", show_bytes(held.together))?;
            }
        }
        Ok(0)
    }
}

/// What a snapshot holds alone.
fn own_bytes(held: &HeldSpace, row: &Row) -> u64 {
    let own = held.alone.get(&SubvolumeId(row.id));
    own.copied().unwrap_or(0)
}

impl Delete {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Write)?;
        let mut failed = 0;
        for name in &self.names {
            if let Err(error) = place.delete(name) {
                failed += 1;
                output::tell(format_args!(
                    "persimmon snapshot delete: {}",
                    output::Causes(&error)
                ));
            }
        }
        place.end()?;
        Ok(if failed > 0 { exit::FAILED } else { 0 })
    }
}

impl Rename {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Write)?;
        place.rename(&self.old, &self.new)?;
        place.end()?;
        Ok(0)
    }
}

/// `--json` of a comparison.
#[derive(Serialize)]
struct Difference {
    change: Change,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl Diff {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Read)?;
        let rows = place.rows()?;
        let numbered = |name: &OsStr| named(&rows, name).map(|row| row.id);
        let from = numbered(&self.from)?;
        let to = self.to.as_deref().map(numbered).transpose()?;
        let to = to.unwrap_or_else(|| place.subvolume());
        let mut differences = Vec::new();
        let mut tell = |change: Change, path: &[u8]| {
            let path = if path.is_empty() { b"/" } else { path };
            if self.json {
                let (path, path_bytes) = as_text(path);
                differences.push(Difference {
                    change,
                    path,
                    path_bytes,
                });
            } else {
                say!("{} {}", change.mark(), shown(path))?;
            }
            Ok(())
        };
        match &place {
            Place::Live(mounted) => {
                let is_written_to =
                    |id| id == 0 || rows.iter().any(|row| row.id == id && row.writable);
                if is_written_to(from) || is_written_to(to) {
                    // What is staged is not told among the changes.
                    crate::sync::make_durable(&mounted.root)?.check()?;
                }
                let changed = mounted.changes(from, to)?;
                let top = self.to.as_ref().map(|to| mounted.path(to)).transpose()?;
                let from = MountSide::new(mounted.path(&self.from)?)?;
                let to = MountSide::new(top.unwrap_or_else(|| mounted.root.clone()))?;
                diff::compare(&from, &to, changed.as_ref(), &mut tell)?;
            }
            Place::Opened(filesystem) => {
                let (from, to) = (SubvolumeId(from), SubvolumeId(to));
                let vfs = filesystem.vfs();
                let changed = vfs.volume().snapshots().changes(from, to)?;
                let changed = changed.into_iter().collect();
                let side = |id| VolumeSide::new(Arc::clone(vfs), ROOT.of(id));
                diff::compare(&side(from), &side(to), Some(&changed), &mut tell)?;
            }
        }
        if self.json {
            output::json(&differences)?;
        }
        Ok(0)
    }
}

impl Rollback {
    fn run(&self) -> Result<u8> {
        let path = match Target::of(&self.volume)? {
            Target::Device(path) => path,
            Target::Live(dir) => return Err(crate::mounted::refusal(&dir, "")?),
        };
        if let Some(keep) = &self.keep {
            check_name(keep)?;
        }
        let options = Options::default();
        let rolled_back = Filesystem::roll_back(&path, &self.name, self.keep.as_deref(), &options);
        rolled_back.map_err(|error| match error.volume() {
            Some(persimmon::VolumeError::SnapshotExists) => {
                let keep = self.keep.as_deref().unwrap_or_default();
                told(keep, &"there is a snapshot with this name already")
            }
            Some(persimmon::VolumeError::NoSuchSnapshot) => {
                told(&self.name, &"there is no such snapshot")
            }
            _ => error.into(),
        })?;
        Ok(0)
    }
}
