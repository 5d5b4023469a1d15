//! What can be asked of the daemon of a live mount by [`persimmon_fuse::control`], as JSON, and
//! the daemon's answers. A new command is a new variant; fields that are added have defaults.

pub mod clean;
pub mod clones;
pub mod quota;
pub mod send;
pub mod snapshots;
pub mod trace;
pub mod tune;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use persimmon::internal::engine::{Damage, ScrubCursor, ScrubFinding, ScrubStage, Volume};
use persimmon::internal::format::shown::as_text;
use persimmon::internal::format::{Ino, shown};
use persimmon::vfs::SubvolumeId;
use persimmon::{CommitInterval, Vfs};
use persimmon_fuse::control::{ControlError, TEXT_BYTES_MAX, call};
use persimmon_fuse::live::{Answered, Asked};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::fs::dedup::{self, Equal, Pair};
use crate::fs::tree::Copied;
use crate::live::is_abandoned;
use crate::mounted::abandoned;
use crate::trim::Trimmed;

/// Longest reason of a finding that is passed on, characters.
const REASON_MAX: usize = 160;
/// Inodes whose paths one command may ask for.
pub const PATHS_MAX: usize = 256;

/// A command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Verify the next piece.
    Scrub(Cursor),
    /// Paths of inodes, at most [`PATHS_MAX`].
    Paths(Vec<u64>),
    /// Empty a zone, or free those that are empty: until so many of the zones are free, in 1/100
    /// percent, or until there is nothing to win.
    Clean {
        /// Of all zones.
        free_basis_points: Option<u32>,
    },
    /// Change thresholds, perhaps none, and tell them all.
    Tune(BTreeMap<String, u64>),
    /// About snapshots.
    Snapshots(snapshots::Question),
    /// About quota.
    Quota(quota::Question),
    /// What happened to zones, from this event on.
    Trace {
        /// Number of the event.
        from: u64,
    },
    /// Read a snapshot that is sent.
    Send(send::Question),
    /// Share blocks of two files as far as they are equal.
    Dedup(Pair),
    /// Clone entries of a directory.
    Clone(clones::Question),
    /// Pack blocks of a file with those of another as a dictionary.
    PackNear(Pair),
    /// Free the zones in which nothing is live.
    Trim,
    /// Have another program go on with the mount.
    Upgrade {
        /// Its path.
        program: PathBuf,
    },
}

/// Where a scrub is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    stage: u8,
    at: u64,
    ino: u64,
    block: u64,
    /// Inode and block count.
    inside: bool,
}

const STAGES: [ScrubStage; 5] = [
    ScrubStage::Headers,
    ScrubStage::Log,
    ScrubStage::Tables,
    ScrubStage::Summaries,
    ScrubStage::Pages,
];

impl Cursor {
    fn new(cursor: ScrubCursor) -> Cursor {
        let stage = STAGES.iter().position(|stage| *stage == cursor.stage);
        let (ino, block) = cursor.key.unwrap_or((Ino(0), 0));
        Cursor {
            stage: stage.unwrap_or(0) as u8,
            at: cursor.at,
            ino: ino.0,
            block,
            inside: cursor.key.is_some(),
        }
    }

    fn engine(self) -> Option<ScrubCursor> {
        Some(ScrubCursor {
            stage: *STAGES.get(usize::from(self.stage))?,
            at: self.at,
            key: self.inside.then_some((Ino(self.ino), self.block)),
        })
    }

    /// What is looked at, for people.
    pub fn stage(self) -> &'static str {
        match STAGES.get(usize::from(self.stage)) {
            Some(ScrubStage::Headers) => "zone headers",
            Some(ScrubStage::Log) => "the log",
            Some(ScrubStage::Tables) => "tables",
            Some(ScrubStage::Summaries) => "summaries",
            _ => "metadata and files",
        }
    }
}

/// A piece was verified.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Where to go on; null at the end.
    pub next: Option<Cursor>,
    /// Bytes of this piece.
    pub bytes: u64,
    /// Bytes of a whole scrub, as of now.
    pub bytes_total: u64,
    /// What is damaged.
    pub findings: Vec<Found>,
}

/// Something damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Number of fsck's finding.
    pub number: u16,
    /// Zone it is in.
    pub zone: u32,
    /// First block in the zone.
    pub block: u32,
    /// Blocks.
    pub blocks: u32,
    /// The file, if it is data.
    pub ino: Option<u64>,
    /// First byte of the damaged range of the file.
    pub offset: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl Found {
    fn new(finding: &ScrubFinding) -> Found {
        Found {
            number: finding.damage.number(),
            zone: finding.addr.zone().0,
            block: finding.addr.block(),
            blocks: finding.blocks,
            ino: finding.file.map(|(ino, _)| ino.0),
            offset: finding.file.map(|(_, block)| block.saturating_mul(4096)),
            message: finding.reason.chars().take(REASON_MAX).collect(),
        }
    }

    /// No file is affected.
    pub fn is_warning(&self) -> bool {
        [Damage::Summary, Damage::Copy]
            .map(Damage::number)
            .contains(&self.number)
    }
}

/// Paths of inodes, in the order of the question; as many as fit.
#[derive(Debug, Serialize, Deserialize)]
pub struct Paths(pub Vec<Option<Name>>);

/// A path or name between a command and the daemon: text where it is UTF-8, else its bytes. What a command prints is [`Name::as_text`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// All but a few.
    Text(String),
    /// What no text can say.
    Bytes(Vec<u8>),
}

impl Name {
    pub fn new(path: &[u8]) -> Name {
        match std::str::from_utf8(path) {
            Ok(text) => Name::Text(text.to_owned()),
            Err(_) => Name::Bytes(path.to_vec()),
        }
    }

    /// As documents for programs have it, whose strings are UTF-8: the text, and all bytes in hexadecimal where it is none.
    pub fn as_text(&self) -> (String, Option<String>) {
        as_text(self.bytes())
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Name::Text(text) => text.as_bytes(),
            Name::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.bytes()).fmt(f)
    }
}

/// Takes a command apart: the daemon's side.
///
/// # Errors
/// Words for whoever asked.
pub fn parse(command: &[u8]) -> Result<Command, String> {
    serde_json::from_slice(command)
        .map_err(|error| format!("this daemon does not know that command: {error}"))
}

/// Carries it out.
///
/// # Errors
/// Words for whoever asked.
pub fn carry_out(
    vfs: &Arc<Vfs>,
    commit: &CommitInterval,
    senders: &send::Senders,
    command: Command,
    asked: Asked,
) -> Result<Answered, String> {
    let volume = vfs.volume();
    let answer = match command {
        Command::Clone(question) => return clones::answer(vfs, &question),
        Command::Scrub(cursor) => scrub(volume, cursor),
        Command::Paths(inos) => paths(vfs, &inos),
        Command::Clean { free_basis_points } => clean::step(volume, free_basis_points),
        Command::Tune(changes) => tune::change(volume, commit, &changes),
        Command::Snapshots(question) => snapshots::answer(vfs, question),
        Command::Send(question) => senders.answer(vfs, question),
        Command::Quota(question) => quota::answer(vfs, question, asked),
        Command::Trace { from } => trace::read(volume, from),
        Command::Trim => {
            let trimmed_bytes = vfs.trim().map_err(|error| error.to_string())?;
            encode(&Trimmed { trimmed_bytes })
        }
        // By whoever can be replaced: `Answers`.
        Command::Upgrade { .. } => Err("this daemon cannot be replaced".into()),
        Command::Dedup(pair) => return told(&pair, dedup::share(vfs, &pair)),
        Command::PackNear(pair) => return told(&pair, dedup::pack_near(vfs, &pair)),
    };
    answer.map(Answered::from)
}

/// How far a pair of files has blocks in common now; both may take other space.
fn told(pair: &Pair, equal: Copied<Equal>) -> Result<Answered, String> {
    Ok(Answered {
        text: encode(&equal.map_err(|error| error.to_string())?)?,
        resized: pair.files().to_vec(),
        ..Answered::default()
    })
}

/// A piece with so many findings that the answer would not fit is made smaller.
fn scrub(volume: &Volume, cursor: Cursor) -> Result<Vec<u8>, String> {
    let at = cursor.engine().ok_or("this daemon knows no such stage")?;
    for blocks_max in [256, 32, 8] {
        let step = volume
            .scrub_step(at, blocks_max)
            .map_err(|error| error.to_string())?;
        let answer = encode(&Scrubbed {
            next: step.next.map(Cursor::new),
            bytes: step.bytes,
            bytes_total: volume.scrub_bytes(),
            findings: step.findings.iter().map(Found::new).collect(),
        })?;
        if answer.len() <= TEXT_BYTES_MAX {
            return Ok(answer);
        }
    }
    Err("too much damage in one place".into())
}

/// Paths in the mount. Where that is one of a subvolume, files of others are told by their numbers: their paths would name something else.
fn paths(vfs: &Vfs, inos: &[u64]) -> Result<Vec<u8>, String> {
    let asked: Vec<Ino> = inos.iter().take(PATHS_MAX).copied().map(Ino).collect();
    let shown = vfs.subvolume();
    let is_shown = |ino: &&Ino| shown == SubvolumeId::MAIN || ino.subvolume() == shown;
    let found = vfs
        .volume()
        .paths(&asked.iter().filter(is_shown).copied().collect());
    let mut above = Vec::new();
    if let Some(snapshot) = vfs.volume().snapshots().get(shown) {
        above = [b"/.snapshots/", snapshot.name.as_slice()].concat();
    }
    let mut paths = Paths(Vec::new());
    let mut answer = encode(&paths)?;
    for ino in asked {
        let path = found.get(&ino).and_then(|path| path.strip_prefix(&*above));
        paths.0.push(path.map(Name::new));
        let longer = encode(&paths)?;
        if longer.len() > TEXT_BYTES_MAX {
            break;
        }
        answer = longer;
    }
    Ok(answer)
}

pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}

/// Asks the daemon behind `dir`: the client's side.
///
/// # Errors
/// There is none, or it says no.
pub fn ask<T: DeserializeOwned>(dir: &Path, command: &Command) -> Result<T> {
    let answer = ask_bytes(dir, command)?;
    serde_json::from_slice(&answer).map_err(|error| {
        anyhow!(
            "the daemon of {} gave an answer this version does not understand: {error}",
            dir.display()
        )
    })
}

/// The same with the bytes of the answer.
///
/// # Errors
/// There is none, or it says no.
pub fn ask_bytes(dir: &Path, command: &Command) -> Result<Vec<u8>> {
    let answer = call(dir, &serde_json::to_vec(command)?);
    answer.map_err(|error| match error {
        ControlError::System(_) if is_abandoned(dir) => anyhow!("{}", abandoned(dir)),
        ControlError::NotMounted => anyhow!(
            "{} is not on a mounted Persimmon volume, or on one whose daemon is too old for this command",
            dir.display()
        ),
        error @ ControlError::NotPermitted => {
            anyhow::Error::new(NotPermitted(format!("{}: {error}", dir.display())))
        }
        error => anyhow!("{}: {error}", dir.display()),
    })
}

/// A command is for root and the user who runs the daemon, and whoever gave it is neither.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotPermitted(String);
