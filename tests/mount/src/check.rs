//! One check, and running a list of them one after the other.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow};

use crate::posix::door::Mounted;
use crate::scenario::{Scenario, TestBed};
use crate::volume;

/// A named check of a mounted filesystem.
#[derive(Clone, Copy)]
pub struct Check {
    /// `group::subject::behaviour`.
    pub name: &'static str,
    /// An error tells what does not hold.
    pub run: Body,
    /// After this long the filesystem counts as hanging.
    pub limit_seconds: u64,
}

/// What a check does.
#[derive(Clone, Copy)]
pub enum Body {
    /// Something that only a mount can be asked.
    Place(fn(&Place) -> Result<()>),
    /// A statement that holds through every door.
    Statement(fn(&Mounted) -> Result<()>),
}

impl Body {
    pub(crate) fn run(self, place: Place) -> Result<()> {
        match self {
            Body::Place(run) => run(&place),
            Body::Statement(run) => run(&Mounted(place.dir)).context("through system calls"),
        }
    }
}

/// Where a check works.
#[derive(Clone, Debug)]
pub struct Place {
    /// An empty directory on the mount, mode 0777, of this check alone.
    pub dir: PathBuf,
    /// An empty directory elsewhere.
    pub outside: PathBuf,
}

impl Place {
    /// A path on the mount.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }
}

/// How many checks passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Checks that hold.
    pub passed: usize,
    /// Checks that do not.
    pub failed: usize,
}

/// Runs checks, prints a line for each, counts.
#[derive(Default)]
pub struct Runner {
    /// What came out so far.
    pub count: Count,
    /// Names of the failed ones.
    pub failures: Vec<String>,
}

/// What became of one check.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// It did not end: whatever it runs on must be taken away before going on.
    Hangs,
}

impl Runner {
    /// Runs one check in a directory of its own below `mount`, with room outside below `work`.
    ///
    /// `deviates` says that it is known not to hold: it must fail then, so that the list stays true.
    pub fn check(&mut self, check: Check, mount: &Path, work: &Path, deviates: bool) -> Outcome {
        let start = Instant::now();
        let (mount, folder) = (mount.to_owned(), work.to_owned());
        let body =
            move || place(check.name, &mount, &folder).and_then(|place| check.run.run(place));
        let (outcome, result) = limited(check.limit_seconds, work, body);
        let (outcome, result) = match (outcome, deviates) {
            (Outcome::Passed, true) => (
                Outcome::Failed,
                Err(anyhow!("it holds: take it off the list of deviations")),
            ),
            (Outcome::Failed, true) => (Outcome::Passed, Ok(())),
            _ => (outcome, result),
        };
        self.record(check.name, start, result);
        outcome
    }

    /// Runs one scenario.
    pub fn scenario(&mut self, scenario: Scenario, bed: &TestBed) {
        let start = Instant::now();
        let its_bed = bed.clone();
        let body = move || (scenario.run)(&its_bed);
        let (_, result) = limited(scenario.limit_seconds, &bed.work, body);
        self.record(scenario.name, start, result);
    }

    /// Runs something that needs no directory of its own.
    pub fn step(&mut self, name: &str, body: impl FnOnce() -> Result<()>) -> Outcome {
        let start = Instant::now();
        let result = body();
        let outcome = if result.is_ok() {
            Outcome::Passed
        } else {
            Outcome::Failed
        };
        self.record(name, start, result);
        outcome
    }

    /// Counts a check that could not be run at all.
    pub fn not_run(&mut self, name: &str, why: &str) {
        self.record(name, Instant::now(), Err(anyhow!("not run: {why}")));
    }

    fn record(&mut self, name: &str, start: Instant, result: Result<()>) {
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                self.count.passed += 1;
                println!("ok    {name}  {seconds:.2} s");
            }
            Err(error) => {
                self.count.failed += 1;
                self.failures.push(name.to_owned());
                println!("FAIL  {name}  {seconds:.2} s\n{}", explain(&error));
            }
        }
    }
}

/// Runs `body` on a thread of its own. After `seconds` the mounts below `work` are cut off, so that a
/// daemon that does not answer holds nobody.
fn limited(
    seconds: u64,
    work: &Path,
    body: impl FnOnce() -> Result<()> + Send + 'static,
) -> (Outcome, Result<()>) {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Nobody listens any more when the body was given up.
        let _ = send.send(body());
    });
    match receive.recv_timeout(Duration::from_secs(seconds)) {
        Ok(Ok(())) => (Outcome::Passed, Ok(())),
        Ok(Err(error)) => (Outcome::Failed, Err(error)),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let mut error = anyhow!("not done after {seconds} s");
            if let Err(more) = volume::cut_off(work) {
                error = error.context(format!("and cutting it off failed: {more:#}"));
            }
            // Calls on a mount that was cut off return: the thread takes away what it made.
            if receive.recv_timeout(Duration::from_secs(30)).is_ok() {
                let _ = thread.join();
            }
            (Outcome::Hangs, Err(error))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => (Outcome::Failed, Err(anyhow!("it panicked"))),
    }
}

fn place(name: &str, mount: &Path, work: &Path) -> Result<Place> {
    let folder = name.replace(|letter: char| !letter.is_alphanumeric(), "-");
    let place = Place {
        dir: mount.join(&folder),
        outside: work.join("outside").join(&folder),
    };
    for dir in [&place.dir, &place.outside] {
        if dir.exists() {
            std::fs::remove_dir_all(dir).with_context(|| format!("clearing {}", dir.display()))?;
        }
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        rustix::fs::chmod(dir, rustix::fs::Mode::from_raw_mode(0o777))?;
    }
    Ok(place)
}

/// The error's causes, and where in the tests it arose if a backtrace was taken.
fn explain(error: &Error) -> String {
    let mut text = String::new();
    for (depth, cause) in error.chain().enumerate() {
        let lead = if depth == 0 { "      " } else { "      by: " };
        for line in cause.to_string().lines() {
            let _ = writeln!(text, "{lead}{line}");
        }
    }
    let backtrace = error.backtrace().to_string();
    let frames = backtrace
        .lines()
        .filter(|line| line.contains("tests/mount/src/") && !line.contains("/check.rs"));
    for frame in frames.take(4) {
        let _ = writeln!(text, "      {}", frame.trim());
    }
    text.trim_end().to_owned()
}
