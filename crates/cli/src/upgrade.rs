//! `persimmon upgrade-daemon`: another program goes on with a mount, and whoever uses it notices nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use persimmon::Vfs;
use persimmon_fuse::LEDGER_VERSION;
use persimmon_fuse::live::Asked;
use serde::{Deserialize, Serialize};

use crate::control::{Command, ask, encode};
use crate::live::Target;
use crate::output::{self, say};
use crate::supervisor::channel::{Channel, Message};

/// The first argument of a program that is asked whether it can go on with a mount; the second is the version of what is handed on.
pub const ARGUMENT: &str = "--can-resume-a-mount";

/// Whether this one can.
pub fn can_resume(version: Option<&OsStr>) -> bool {
    version.is_some_and(|version| version == LEDGER_VERSION.to_string().as_str())
}

/// What the kernel calls any FUSE filesystem.
const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// How long a new daemon has to serve before it is said to go on; one that dies sooner is followed by the program before it.
pub const PROVEN: Duration = Duration::from_secs(1);

/// By how much the supervisor may count from later on.
const MARGIN: Duration = Duration::from_millis(200);

/// As long as a new daemon may be about to answer that it goes on.
const YOUNG: Duration = Duration::from_secs(10);

/// How long a daemon waits to be killed by its supervisor.
const PATIENCE: Duration = Duration::from_secs(60);

/// Have this program go on with a mount, in the place of its daemon.
#[derive(Args)]
pub struct UpgradeDaemon {
    /// A directory of the mount, or its device
    target: OsString,
    /// Another program than this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the new daemon answers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Upgraded {
    /// Of the daemon, after `persimmon --version`.
    pub version: String,
    /// Its program.
    pub program: PathBuf,
    /// Its process.
    pub process: u32,
}

impl Upgraded {
    fn own() -> Upgraded {
        Upgraded {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: std::env::current_exe().unwrap_or_default(),
            process: std::process::id(),
        }
    }

    fn say(&self, dir: &Path) -> Result<()> {
        say!(
            "process {} goes on with {}, version {} ({})",
            self.process,
            dir.display(),
            self.version,
            self.program.display()
        )?;
        Ok(())
    }
}

impl UpgradeDaemon {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, "; a daemon is there only while it is")?;
        let program = match &self.program {
            Some(program) => program
                .canonicalize()
                .with_context(|| format!("{}", program.display()))?,
            None => std::env::current_exe().context("finding this program")?,
        };
        let upgraded: Upgraded = ask(&dir, &Command::Upgrade { program })?;
        let said = match self.json {
            true => output::json(&upgraded),
            false => upgraded.say(&dir),
        };
        output::done(0, said)
    }
}

/// By whom a daemon is followed.
pub struct Successor {
    channel: Arc<Channel>,
    /// Why this daemon is not the one that was asked for.
    note: Option<String>,
    /// The program that was asked for, if this daemon is the first of it.
    program: Option<PathBuf>,
    since: Instant,
}

impl Successor {
    /// Through the supervisor.
    pub fn new(channel: Arc<Channel>, note: Option<String>, program: Option<PathBuf>) -> Successor {
        Successor {
            channel,
            note,
            program,
            since: Instant::now(),
        }
    }

    /// Has `program` take over. It gives the answer: the kernel asks again who did not answer. A question that is sent again may be for this one;
    /// or the daemon that it was for died of something else, or by another question.
    pub fn take_over(&self, vfs: &Vfs, program: &Path, asked: Asked) -> Result<Vec<u8>, String> {
        if asked.resent {
            if let Some(note) = &self.note {
                return Err(note.clone());
            }
            if self.program.as_deref() == Some(program) {
                // Were it to die meanwhile, the next one would be asked.
                thread::sleep(PROVEN + MARGIN);
                return encode(&Upgraded::own());
            }
        }
        if self.program.is_some() && self.since.elapsed() < YOUNG {
            // Whoever asked for this one has an answer by then.
            thread::sleep(2 * (PROVEN + MARGIN));
        }
        check_asker(asked.pid)?;
        check_file(program)?;
        check(program)?;
        // There is little to do again then.
        vfs.sync()
            .map_err(|error| format!("what was written cannot be made durable: {error}"))?;
        let replace = Message::Replace {
            program: program.to_owned(),
        };
        let told = self.channel.send(&replace, &[]);
        told.map_err(|error| format!("the supervisor is gone: {error:#}"))?;
        thread::sleep(PATIENCE);
        Err("the supervisor does not answer; see the log".into())
    }
}

/// Root of a container is not root here: who may have a program run as the daemon lives where the daemon does.
fn check_asker(pid: u32) -> Result<(), String> {
    let of = |process: &str, namespace: &str| {
        std::fs::read_link(format!("/proc/{process}/ns/{namespace}")).ok()
    };
    let asker = pid.to_string();
    let is_here = |namespace| {
        let own = of("self", namespace);
        own.is_some() && own == of(&asker, namespace)
    };
    match pid != 0 && is_here("user") && is_here("mnt") {
        true => Ok(()),
        false => Err("it is asked from another namespace than the daemon's: run it where the volume was mounted".into()),
    }
}

/// Nobody else may change the program, and nobody may need this daemon to read it.
fn check_file(program: &Path) -> Result<(), String> {
    let say = |error: std::io::Error| format!("{}: {error}", program.display());
    let file = std::fs::File::open(program).map_err(say)?;
    let found = file.metadata().map_err(say)?;
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != 0 && found.uid() != own || found.mode() & 0o022 != 0 {
        return Err(format!(
            "{}: others than the user of the daemon may change it: install it as root, with mode 755",
            program.display()
        ));
    }
    let filesystem = rustix::fs::fstatfs(&file).map_err(|error| say(error.into()))?;
    if filesystem.f_type == FUSE_SUPER_MAGIC {
        return Err(format!(
            "{}: it is on a FUSE mount, which may be this one: nobody could read it while there is no daemon; copy it to another filesystem",
            program.display()
        ));
    }
    Ok(())
}

/// A program that can go on says so.
fn check(program: &Path) -> Result<(), String> {
    let mut process = Process::new(program);
    process
        .args([ARGUMENT, &LEDGER_VERSION.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match process.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!(
            "{} cannot go on with this mount: it is no persimmon, or one of another time; unmount, and mount with it",
            program.display()
        )),
        Err(error) => Err(format!("{}: {error}", program.display())),
    }
}
