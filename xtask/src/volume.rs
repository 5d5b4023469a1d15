//! A filesystem on an image file for the demo and the benchmark: made, mounted, killed, unmounted,
//! and taken away whatever happens in between.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::shell;

/// Which filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Persimmon,
    /// On a loop device, to compare with.
    Ext4,
    /// The same.
    Xfs,
    /// The same.
    Btrfs,
    /// The same, where the kernel has it.
    F2fs,
}

impl Kind {
    /// As `mount -t` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Persimmon => "persimmon",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::F2fs => "f2fs",
        }
    }

    /// Whether this kernel can mount it; a module that it has is loaded.
    pub fn is_known(self) -> Result<bool> {
        if self == Kind::Persimmon {
            return Ok(true);
        }
        shell::quietly(&mut shell::as_root(&["modprobe", self.name()]));
        let known = std::fs::read_to_string("/proc/filesystems")?;
        Ok(known
            .lines()
            .any(|line| line.split_whitespace().last() == Some(self.name())))
    }
}

/// One filesystem on one image.
pub struct Volume {
    pub kind: Kind,
    pub image: PathBuf,
    pub dir: PathBuf,
    persimmon: PathBuf,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Volume {
    /// Makes `work/NAME.img` of `bytes`, not mounted yet; `mkfs` are further arguments for Persimmon.
    pub fn create(
        kind: Kind,
        persimmon: &Path,
        work: &Path,
        name: &str,
        bytes: u64,
        mkfs: &[&str],
    ) -> Result<Volume> {
        let volume = Volume {
            kind,
            image: work.join(format!("{name}.img")),
            dir: work.join(name),
            persimmon: persimmon.to_owned(),
        };
        std::fs::create_dir_all(&volume.dir)?;
        match kind {
            Kind::Persimmon => {
                let mut command = volume.tool("mkfs");
                command.arg(&volume.image);
                output(command.args(["--size", &bytes.to_string()]).args(mkfs))?;
            }
            Kind::Ext4 | Kind::Xfs | Kind::Btrfs | Kind::F2fs => {
                File::create(&volume.image)?.set_len(bytes)?;
                let mut command = Command::new(format!("mkfs.{}", kind.name()));
                let force = if kind == Kind::Ext4 { "-F" } else { "-f" };
                output(command.args(["-q", force]).arg(&volume.image))?;
            }
        }
        Ok(volume)
    }

    /// A subcommand of the persimmon binary.
    pub fn tool(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.persimmon);
        command.arg(subcommand);
        command
    }

    /// Mounts it; what the command said, recovery among it.
    pub fn mount(&self) -> Result<String> {
        self.mount_with(&[])
    }

    /// The same with further options.
    pub fn mount_with(&self, options: &[&str]) -> Result<String> {
        if self.kind != Kind::Persimmon {
            let mut command = Command::new("mount");
            command.args(["-t", self.kind.name(), "-o", "loop"]);
            command.args(options.iter().flat_map(|option| ["-o", *option]));
            return output(command.arg(&self.image).arg(&self.dir));
        }
        // Files, not pipes: a daemon that kept one open would hold the reader up.
        let said_path = self.image.with_extension("said");
        let said = File::create(&said_path)?;
        let mut command = self.tool("mount");
        command.arg(&self.image).arg(&self.dir);
        command.args(["-o", &format!("log={}", self.log_path().display())]);
        command.args(options.iter().flat_map(|option| ["-o", *option]));
        command.stdin(Stdio::null()).stdout(said.try_clone()?);
        let status = command.stderr(said).status()?;
        let said = std::fs::read_to_string(said_path)?;
        ensure!(status.success(), "persimmon mount: {status}\n{said}");
        Ok(said.trim().to_owned())
    }

    /// Unmounts it cleanly and waits until the image is let go.
    pub fn unmount(&self) -> Result<()> {
        output(Command::new("umount").arg(&self.dir))?;
        match self.kind {
            Kind::Persimmon => self.json("info", &self.image).map(|_| ()),
            Kind::Ext4 | Kind::Xfs | Kind::Btrfs | Kind::F2fs => self.wait_for_loop(),
        }
    }

    /// Ends the daemon with SIGKILL; the dead mount stays.
    pub fn kill_daemon(&self) -> Result<()> {
        let pid = self.json("info", &self.dir)?["daemon_pid"].as_i64();
        let pid = i32::try_from(pid.context("`persimmon info` names no daemon")?)?;
        let pid = Pid::from_raw(pid).context("a daemon with the process number 0")?;
        Ok(kill_process(pid, Signal::KILL)?)
    }

    /// What a subcommand says about a device or directory, as JSON.
    pub fn json(&self, subcommand: &str, about: &Path) -> Result<Value> {
        let text = output(self.tool(subcommand).arg(about).arg("--json"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("reading `persimmon {subcommand} --json`"))
    }

    /// Checks the unmounted image with all its data; the verdict.
    pub fn fsck(&self) -> Result<String> {
        let said = output(self.tool("fsck").arg("--data").arg(&self.image))?;
        let verdict = said.lines().last().unwrap_or_default();
        Ok(verdict.rsplit(": ").next().unwrap_or_default().to_owned())
    }

    /// Takes the mount away, dead or alive.
    pub fn detach(&self) -> Result<()> {
        detach(&self.dir)
    }

    fn log_path(&self) -> PathBuf {
        self.image.with_extension("log")
    }

    /// The kernel lets go of a loop device a little after the unmount.
    fn wait_for_loop(&self) -> Result<()> {
        let start = Instant::now();
        while !output(Command::new("losetup").arg("-j").arg(&self.image))?.is_empty() {
            if start.elapsed() > PATIENCE {
                bail!("the loop device of {} stays busy", self.image.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            eprintln!("unmounting {}: {error:#}", self.dir.display());
        }
        if !self.image.exists() {
            return;
        }
        // The daemon may still be writing: the directory below it must outlive it.
        let waited = match self.kind {
            Kind::Persimmon => self.json("info", &self.image).map(|_| ()),
            Kind::Ext4 | Kind::Xfs | Kind::Btrfs | Kind::F2fs => self.wait_for_loop(),
        };
        if let Err(error) = waited {
            eprintln!("waiting for {}: {error:#}", self.image.display());
        }
    }
}

/// Takes away what is mounted on `dir`, if anything is.
pub fn detach(dir: &Path) -> Result<()> {
    if is_mounted(dir)? {
        output(Command::new("umount").arg("-l").arg(dir))?;
    }
    Ok(())
}

/// True when `dir` is a mount point, also of a dead daemon.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    // As the kernel writes it: what would end a field or a line is told in octal.
    let mut told = dir.to_string_lossy().replace('\\', "\\134");
    for (told_as, byte) in [("\\040", ' '), ("\\011", '\t'), ("\\012", '\n')] {
        told = told.replace(byte, told_as);
    }
    Ok(mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(&told)))
}

/// Runs a command to its end; its standard output, or an error with all it said.
pub fn output(command: &mut Command) -> Result<String> {
    go_on()?;
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = format!("{text}{errors}");
        let lines: Vec<&str> = said.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        bail!("{command:?}: {}\n{tail}", output.status);
    }
    Ok(text)
}

/// The release binary, as an absolute path.
pub fn persimmon() -> Result<PathBuf> {
    built("persimmon")
}

/// What a release build made, as an absolute path.
pub fn built(name: &str) -> Result<PathBuf> {
    built_by("release", name)
}

/// What the build of the tests made, with its assertions, as an absolute path.
pub fn built_for_tests(name: &str) -> Result<PathBuf> {
    built_by("debug", name)
}

fn built_by(profile: &str, name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let path = Path::new(&target).join(profile).join(name);
    path.canonicalize()
        .with_context(|| format!("finding {}", path.display()))
}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C and SIGTERM only make [`go_on`] fail, so that everything is put away.
pub fn watch_for_interrupts() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// An error once somebody asked us to stop.
///
/// Only that once: putting everything away runs commands too.
pub fn go_on() -> Result<()> {
    if INTERRUPTED
        .get()
        .is_some_and(|flag| flag.swap(false, Ordering::SeqCst))
    {
        bail!(Interrupted);
    }
    Ok(())
}

/// Somebody asked us to stop: no failure of what was under way.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Numbers that look random and are the same in every run (splitmix64).
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
