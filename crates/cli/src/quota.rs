//! `persimmon quota`: what users, groups and projects take and may take, on a mount or on a volume that is not mounted.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use persimmon::{Clock, Filesystem, Owner, OwnerKind, SystemClock};
use persimmon_fuse::size::{parse_bytes, show_bytes};
use serde::Serialize;

use crate::control::quota::{Limits, Own, Question, Row, State, Who};
use crate::control::{self, Command, NotPermitted};
use crate::exit;
use crate::fs::Access;
use crate::live::Target;
use crate::output::{self, say};

/// How often a mount is asked whether it has counted all.
const COUNTING_POLL: Duration = Duration::from_millis(50);

/// Limit how much users, groups and directory trees may take.
#[derive(Args)]
pub struct QuotaCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    On(On),
    Off(Off),
    Report(Report),
    Set(Set),
    Project(Project),
}

impl QuotaCommand {
    pub fn run(&self) -> Result<u8> {
        match &self.verb {
            Verb::On(verb) => verb.run(),
            Verb::Off(verb) => verb.run(),
            Verb::Report(verb) => verb.run(),
            Verb::Set(verb) => verb.run(),
            Verb::Project(verb) => verb.run(),
        }
    }

    pub fn name(&self) -> &'static str {
        match &self.verb {
            Verb::On(_) => "quota on",
            Verb::Off(_) => "quota off",
            Verb::Report(_) => "quota report",
            Verb::Set(_) => "quota set",
            Verb::Project(_) => "quota project",
        }
    }
}

/// Count what owners take, and let limits count. What is there is counted before the command returns.
///
/// A volume whose quota was on once cannot be used by a Persimmon that does not know quota.
#[derive(Args)]
struct On {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Count what is counted already
    #[arg(long)]
    recount: bool,
}

/// Count and limit nothing any more. Limits and projects stay, for when quota is turned on again.
#[derive(Args)]
struct Off {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
}

/// Show what users, groups and projects take, and how much they may. On a mount other users than root see what they and their group take.
#[derive(Args)]
struct Report {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Limit a user, a group or a project, or set for how long soft limits may be exceeded.
#[derive(Args)]
struct Set {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    #[command(flatten)]
    whose: Whose,
    /// Bytes that may be taken for the grace time at most, as in 10G; 0 is no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    soft: Option<u64>,
    /// Bytes that may be taken at all; 0 is no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    hard: Option<u64>,
    /// Inodes that may be taken for the grace time at most; 0 is no limit
    #[arg(long, value_name = "COUNT")]
    inodes_soft: Option<u64>,
    /// Inodes that may be taken at all; 0 is no limit
    #[arg(long, value_name = "COUNT")]
    inodes_hard: Option<u64>,
    /// Seconds that the soft limit of bytes may be exceeded, of all owners of this kind [default: 604800, a week]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u32>,
    /// The same of inodes
    #[arg(long, value_name = "SECONDS")]
    inodes_grace: Option<u32>,
}

/// Whom a command is about.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Whose {
    /// A user, by name or number
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// A group, by name or number
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// A project, by number
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    project: Option<u32>,
}

/// Give a directory and all that is in it a project: what is made in it has it too, and the tree can be limited.
///
/// Nothing of another project can be renamed or linked into it.
#[derive(Args)]
struct Project {
    /// Directory of a live mount; with --of a path in the volume
    directory: PathBuf,
    /// The project; 0 takes it away
    #[arg(long, value_name = "ID")]
    id: u32,
    /// Device or image file of a volume that is not mounted, LABEL= or UUID=
    #[arg(long, value_name = "VOLUME")]
    of: Option<OsString>,
}

/// Where the quota is.
enum Place {
    Live(PathBuf),
    /// Opened by this process.
    Opened(Filesystem),
}

impl Place {
    fn of(target: &OsStr, access: Access) -> Result<Place> {
        Ok(match Target::of(target)? {
            Target::Live(dir) => Place::Live(dir),
            Target::Device(_) => Place::Opened(crate::fs::open(target, access, "")?.filesystem),
        })
    }

    fn end(self) -> Result<()> {
        match self {
            Place::Opened(filesystem) => Ok(filesystem.close()?),
            Place::Live(dir) => crate::sync::have_made_durable(&dir).map(drop),
        }
    }

    fn state(&self) -> Result<State> {
        match self {
            Place::Live(dir) => ask(dir, Question::State),
            Place::Opened(filesystem) => Ok(State::of(filesystem.quota_state().counting)),
        }
    }

    fn all(&self) -> Result<Own> {
        Ok(Own {
            state: self.state()?,
            rows: self.rows()?,
        })
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let dir = match self {
            Place::Opened(filesystem) => {
                return Ok(filesystem.quotas()?.iter().map(Row::new).collect());
            }
            Place::Live(dir) => dir,
        };
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let after = rows.last().map(|row| row.who);
            let more: Vec<Row> = ask(dir, Question::List { after })?;
            if more.is_empty() {
                return Ok(rows);
            }
            rows.extend(more);
        }
    }
}

fn ask<T: serde::de::DeserializeOwned>(dir: &std::path::Path, question: Question) -> Result<T> {
    control::ask(dir, &Command::Quota(question))
}

impl On {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Write)?;
        match &place {
            Place::Opened(filesystem) => filesystem.turn_quota_on(self.recount)?,
            Place::Live(dir) => {
                let anew = self.recount;
                let _: State = ask(dir, Question::On { anew })?;
                while place.state()? == State::Counting {
                    std::thread::sleep(COUNTING_POLL);
                }
            }
        }
        place.end()?;
        Ok(0)
    }
}

impl Off {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Write)?;
        match &place {
            Place::Opened(filesystem) => filesystem.turn_quota_off()?,
            Place::Live(dir) => {
                let _: State = ask(dir, Question::Off)?;
            }
        }
        place.end()?;
        Ok(0)
    }
}

/// Names of users or groups by their numbers, as this machine has them.
fn names(file: &str) -> HashMap<u32, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    });
    lines.collect()
}

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
/// The largest number of a user or group: the one above it, -1, stands for none in system calls.
const ID_MAX: u32 = u32::MAX - 1;

/// The number of a user or group that is given by name or number.
fn number(given: &str, file: &str, what: &str) -> Result<u32> {
    if !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit()) {
        let id = given.parse().ok().filter(|id| *id <= ID_MAX);
        return id.ok_or_else(|| {
            exit::usage(format_args!(
                "no {what} can have the number {given}: the largest is {ID_MAX}"
            ))
        });
    }
    let known = names(file);
    let found = known.iter().find(|(_, name)| *name == given);
    found.map(|(id, _)| *id).ok_or_else(|| {
        exit::usage(format_args!(
            "there is no {what} named '{given}' in {file}; give its number"
        ))
    })
}

impl Whose {
    fn owner(&self) -> Result<Owner> {
        let (kind, id) = match (&self.user, &self.group, self.project) {
            (Some(user), _, _) => (OwnerKind::User, number(user, USERS, "user")?),
            (_, Some(group), _) => (OwnerKind::Group, number(group, GROUPS, "group")?),
            (_, _, Some(project)) => (OwnerKind::Project, project),
            _ => bail!("nobody is named"),
        };
        Ok(Owner { kind, id })
    }
}

/// What a limit counts.
#[derive(Clone, Copy)]
enum What {
    Bytes,
    Inodes,
}

impl What {
    /// Of the options' names.
    fn prefix(self) -> &'static str {
        match self {
            What::Bytes => "",
            What::Inodes => "inodes-",
        }
    }

    fn show(self, limit: u64) -> String {
        match self {
            What::Bytes => show_bytes(limit),
            What::Inodes => format!("{limit} inodes"),
        }
    }
}

/// 0 is no limit.
fn is_above(soft: u64, hard: u64) -> bool {
    hard != 0 && soft > hard
}

impl Set {
    fn run(&self) -> Result<u8> {
        let owner = self.whose.owner()?;
        let limits = Limits {
            bytes_soft: self.soft,
            bytes_hard: self.hard,
            inodes_soft: self.inodes_soft,
            inodes_hard: self.inodes_hard,
        };
        let sets_limits = self.soft.is_some()
            || self.hard.is_some()
            || self.inodes_soft.is_some()
            || self.inodes_hard.is_some();
        let sets_grace = self.grace.is_some() || self.inodes_grace.is_some();
        if !sets_limits && !sets_grace {
            return Err(exit::usage(format_args!(
                "say which limit: --soft, --hard, --inodes-soft, --inodes-hard, --grace or --inodes-grace"
            )));
        }
        self.check_given()?;
        let place = Place::of(&self.target, Access::Write)?;
        if self.sets_one_of_two() {
            self.check_against(&place, owner)?;
        }
        if sets_grace {
            self.set_grace(&place, owner.kind)?;
        }
        let mut row = None;
        if sets_limits {
            row = Some(match &place {
                Place::Opened(filesystem) => {
                    Row::new(&filesystem.set_quota(owner, &limits.to_set())?)
                }
                Place::Live(dir) => {
                    let who = Who::new(owner);
                    ask(dir, Question::Set { who, limits })?
                }
            });
        }
        place.end()?;
        let told = match row.filter(Row::exceeds) {
            Some(row) => say!(
                "{} {} takes {} and {} inodes, more than this; nothing is lost, and nothing more can be written before it is less",
                owner.kind,
                owner.id,
                show_bytes(row.bytes),
                row.inodes
            ),
            None => Ok(()),
        };
        output::done(0, told.map_err(Into::into))
    }

    /// Refuses limits that contradict each other.
    fn check_given(&self) -> Result<()> {
        let given = |what: What, soft: Option<u64>, hard: Option<u64>| match (soft, hard) {
            (Some(soft), Some(hard)) if is_above(soft, hard) => Err(exit::usage(format_args!(
                "--{0}soft {1} is above --{0}hard {2}: a soft limit is exceeded for a while, up to the hard one, so it \
                 must not be above it",
                what.prefix(),
                what.show(soft),
                what.show(hard)
            ))),
            _ => Ok(()),
        };
        given(What::Bytes, self.soft, self.hard)?;
        given(What::Inodes, self.inodes_soft, self.inodes_hard)
    }

    /// One limit is to change, and the other stays as it is.
    fn sets_one_of_two(&self) -> bool {
        self.soft.is_some() != self.hard.is_some()
            || self.inodes_soft.is_some() != self.inodes_hard.is_some()
    }

    /// Refuses a limit that contradicts the other one, which stays.
    fn check_against(&self, place: &Place, owner: Owner) -> Result<()> {
        let rows = place.rows()?;
        let Some(row) = rows.iter().find(|row| row.who == Who::new(owner)) else {
            return Ok(());
        };
        let check = |what: What, given: [Option<u64>; 2], there: [u64; 2]| {
            let (name, is) = match given {
                [Some(_), None] => ("hard", there[1]),
                [None, Some(_)] => ("soft", there[0]),
                _ => return Ok(()),
            };
            let [soft, hard] = [given[0].unwrap_or(there[0]), given[1].unwrap_or(there[1])];
            if is_above(soft, hard) {
                bail!(
                    "the soft limit would be {}, above the hard one, {}: the {name} limit is {} now; give --{}{name} too",
                    what.show(soft),
                    what.show(hard),
                    what.show(is),
                    what.prefix()
                );
            }
            Ok(())
        };
        check(
            What::Bytes,
            [self.soft, self.hard],
            [row.bytes_soft, row.bytes_hard],
        )?;
        check(
            What::Inodes,
            [self.inodes_soft, self.inodes_hard],
            [row.inodes_soft, row.inodes_hard],
        )
    }

    fn set_grace(&self, place: &Place, kind: OwnerKind) -> Result<()> {
        match place {
            Place::Live(dir) => ask(
                dir,
                Question::Grace {
                    kind: kind as u8,
                    bytes: self.grace,
                    inodes: self.inodes_grace,
                },
            ),
            Place::Opened(filesystem) => {
                let mut grace = filesystem.quota_state().grace(kind);
                grace.bytes = self.grace.unwrap_or(grace.bytes);
                grace.inodes = self.inodes_grace.unwrap_or(grace.inodes);
                Ok(filesystem.set_quota_grace(kind, grace)?)
            }
        }
    }
}

impl Project {
    fn run(&self) -> Result<u8> {
        let count: u64 = match &self.of {
            Some(volume) => {
                let opened = crate::fs::open(volume, Access::Write, "leave out --of, or ")?;
                let filesystem = opened.filesystem;
                let count = filesystem.set_project(&self.directory, self.id)?;
                filesystem.close()?;
                count
            }
            None => {
                let told = |error| anyhow!("{}: {error}", self.directory.display());
                let metadata = std::fs::metadata(&self.directory).map_err(told)?;
                if !metadata.is_dir() {
                    bail!("{} is not a directory", self.directory.display());
                }
                let (ino, project) = (metadata.ino(), self.id);
                let count = ask(&self.directory, Question::Project { ino, project })?;
                crate::sync::have_made_durable(&self.directory)?;
                count
            }
        };
        let told = match self.id {
            0 => say!("{count} files and directories have no project"),
            id => say!("{count} files and directories have project {id}"),
        };
        output::done(0, told.map_err(Into::into))
    }
}

/// `--json` of a report.
#[derive(Serialize)]
struct Told {
    state: State,
    owners: Vec<OwnerTold>,
}

#[derive(Serialize)]
struct OwnerTold {
    kind: String,
    id: u32,
    /// As this machine names it.
    name: Option<String>,
    bytes: Used,
    inodes: Used,
}

#[derive(Serialize)]
struct Used {
    used: u64,
    /// Null is no limit.
    soft: Option<u64>,
    hard: Option<u64>,
    /// Until the soft limit becomes a hard one; null where it is not exceeded.
    grace_seconds: Option<i64>,
}

impl Used {
    fn new((used, soft, hard): (u64, u64, u64), grace_end: Option<i64>, now: i64) -> Used {
        let limit = |limit: u64| Some(limit).filter(|limit| *limit != 0);
        Used {
            used,
            soft: limit(soft),
            hard: limit(hard),
            grace_seconds: grace_end.map(|end| end.saturating_sub(now).max(0)),
        }
    }

    fn cells(&self, show: impl Fn(u64) -> String) -> [String; 4] {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), &show);
        let grace = match self.grace_seconds {
            None => "-".to_owned(),
            Some(0) => "over".to_owned(),
            Some(left) => duration(left),
        };
        [show(self.used), limit(self.soft), limit(self.hard), grace]
    }
}

/// As short as it can be understood.
fn duration(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl Report {
    fn run(&self) -> Result<u8> {
        let place = Place::of(&self.target, Access::Read)?;
        let Own { state, rows } = place.all().or_else(|error| match &place {
            // Who may not see what others take sees his own.
            Place::Live(dir) if error.is::<NotPermitted>() => {
                ask(dir, Question::Own).map_err(|_| error)
            }
            _ => Err(error),
        })?;
        let now = SystemClock.now().seconds;
        let (users, groups) = (names(USERS), names(GROUPS));
        let owners = rows.iter().filter_map(|row| {
            let Owner { kind, id } = row.who.owner()?;
            let name = match kind {
                OwnerKind::User => users.get(&id),
                OwnerKind::Group => groups.get(&id),
                OwnerKind::Project => None,
            };
            let bytes = (row.bytes, row.bytes_soft, row.bytes_hard);
            let inodes = (row.inodes, row.inodes_soft, row.inodes_hard);
            Some(OwnerTold {
                kind: kind.to_string(),
                id,
                name: name.cloned(),
                bytes: Used::new(bytes, row.bytes_grace_end, now),
                inodes: Used::new(inodes, row.inodes_grace_end, now),
            })
        });
        let owners: Vec<OwnerTold> = owners.collect();
        if self.json {
            output::json(&Told { state, owners })?;
            return Ok(0);
        }
        match state {
            State::Off => say!("quota is off: nothing is counted, and limits do not count")?,
            State::Counting => say!("what was there is being counted: limits do not count yet")?,
            State::On => {}
        }
        let cells = owners.iter().map(|owner| {
            let name = owner.name.clone().unwrap_or_else(|| owner.id.to_string());
            let mut cells = vec![owner.kind.clone(), name];
            cells.extend(owner.bytes.cells(show_bytes));
            cells.extend(owner.inodes.cells(|count| count.to_string()));
            cells
        });
        output::print(output::table(
            &[
                "kind", "name", "used", "soft", "hard", "grace", "inodes", "soft", "hard", "grace",
            ],
            &[false, false, true, true, true, true, true, true, true, true],
            cells,
        ))?;
        Ok(0)
    }
}
