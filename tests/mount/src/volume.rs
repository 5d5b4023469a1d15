//! A filesystem on an image file that can be made, mounted, killed, mounted again and checked.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Which filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The filesystem under test.
    Persimmon,
    /// On a loop device, to compare with and to test the tests.
    Ext4,
}

/// One filesystem on one image.
pub struct Volume {
    /// Which filesystem it is.
    pub kind: Kind,
    /// The image file.
    pub image: PathBuf,
    /// Where it is mounted.
    pub dir: PathBuf,
    persimmon: PathBuf,
    /// The daemon, when this process started it in the foreground.
    daemon: Option<Child>,
}

/// How long a mount may take to answer and a daemon to end.
const PATIENCE: Duration = Duration::from_secs(60);

impl Volume {
    /// Makes `work/NAME.img` of `bytes` with a new filesystem, and the directory `work/NAME` to mount it at.
    ///
    /// `persimmon` is the binary; `mkfs` are further arguments of its `mkfs`, not used for ext4.
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
            daemon: None,
        };
        std::fs::create_dir_all(&volume.dir)?;
        if is_mounted(&volume.dir)? {
            bail!("{} is still mounted", volume.dir.display());
        }
        if volume.image.exists() {
            std::fs::remove_file(&volume.image)?;
        }
        match kind {
            Kind::Persimmon => {
                let size = bytes.to_string();
                let mut command = volume.tool("mkfs");
                command.arg(&volume.image).args(["--size", &size]);
                run(command.args(mkfs))?;
            }
            Kind::Ext4 => {
                std::fs::File::create(&volume.image)?.set_len(bytes)?;
                run(Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-O", "ea_inode"])
                    .arg(&volume.image))?;
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

    /// Mounts it the way users do; returns when it answers.
    pub fn mount(&mut self, options: &[&str]) -> Result<()> {
        match self.kind {
            Kind::Persimmon => {
                let mut command = self.tool("mount");
                command.arg(&self.image).arg(&self.dir);
                // The daemon lives on: it must not hold the pipes that `run` reads to their end.
                command.stdout(Stdio::null());
                for option in std::iter::once(&"allow_other").chain(options) {
                    command.args(["-o", option]);
                }
                let status = command.status().context("running persimmon mount")?;
                if !status.success() {
                    bail!("persimmon mount: {status}");
                }
            }
            Kind::Ext4 => {
                let mut list = vec!["loop"];
                list.extend(options);
                let mut command = Command::new("mount");
                command.args(["-t", "ext4", "-o", &list.join(",")]);
                run(command.arg(&self.image).arg(&self.dir))?;
            }
        }
        if !is_mounted(&self.dir)? {
            bail!("mount succeeded, {} is no mount point", self.dir.display());
        }
        Ok(())
    }

    /// Mounts it with the daemon as our child, so that [`Volume::kill`] can end it.
    pub fn mount_foreground(&mut self, options: &[&str]) -> Result<()> {
        if self.kind == Kind::Ext4 {
            return self.mount(options);
        }
        let mut command = self.tool("mount");
        command.arg(&self.image).arg(&self.dir).arg("--foreground");
        for option in std::iter::once(&"allow_other").chain(options) {
            command.args(["-o", option]);
        }
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let start = Instant::now();
        while !(is_mounted(&self.dir)? && std::fs::metadata(&self.dir).is_ok()) {
            if let Some(status) = child.try_wait()? {
                bail!("persimmon mount --foreground ended: {status}");
            }
            if start.elapsed() > PATIENCE {
                child.kill()?;
                bail!("the mount does not answer after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.daemon = Some(child);
        Ok(())
    }

    /// The daemon's process, where [`Volume::mount_foreground`] started it.
    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Ends the daemon with SIGKILL and takes the dead mount away.
    ///
    /// Ext4 has no daemon: there it is a lazy unmount, for testing the tests.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        self.detach()
    }

    /// Takes the mount away whatever state it is in.
    pub fn detach(&mut self) -> Result<()> {
        if is_mounted(&self.dir)? {
            run(Command::new("umount").arg("-l").arg(&self.dir))?;
        }
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        self.wait_for_loop()
    }

    /// Unmounts it cleanly and waits until the image is let go.
    pub fn unmount(&mut self) -> Result<()> {
        if !is_mounted(&self.dir)? {
            return Ok(());
        }
        run(Command::new("umount").arg(&self.dir))?;
        if let Some(mut daemon) = self.daemon.take() {
            let start = Instant::now();
            while daemon.try_wait()?.is_none() {
                if start.elapsed() > PATIENCE {
                    daemon.kill()?;
                    bail!("the daemon still runs {PATIENCE:?} after umount");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let status = daemon.wait()?;
            if !status.success() {
                bail!("the daemon ended with {status} after umount");
            }
        }
        self.wait_for_loop()
    }

    /// A lazy unmount of ext4 ends later.
    fn wait_for_loop(&self) -> Result<()> {
        if self.kind != Kind::Ext4 {
            return Ok(());
        }
        let start = Instant::now();
        loop {
            let mut command = Command::new("losetup");
            let output = command.arg("-j").arg(&self.image).output()?;
            if output.stdout.is_empty() {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("the loop device stays busy");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks the unmounted image; an error with the checker's words unless it is clean.
    pub fn fsck(&self) -> Result<()> {
        match self.kind {
            Kind::Persimmon => run(self.tool("fsck").arg(&self.image).arg("--data")),
            Kind::Ext4 => run(Command::new("e2fsck").args(["-f", "-n"]).arg(&self.image)),
        }
    }

    /// The counters of the volume or of its live mount.
    pub fn stats(&self) -> Result<serde_json::Value> {
        let target = if is_mounted(&self.dir)? {
            &self.dir
        } else {
            &self.image
        };
        let output = self.tool("stats").arg(target).arg("--json").output()?;
        if !output.status.success() {
            bail!(
                "persimmon stats: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout).context("reading `persimmon stats --json`")
    }

    /// Unmounts and deletes the image.
    pub fn destroy(mut self) -> Result<()> {
        self.detach()?;
        std::fs::remove_file(&self.image)?;
        std::fs::remove_dir(&self.dir)?;
        Ok(())
    }
}

/// True when `dir` is a mount point, also of a dead daemon.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    let dir = std::path::absolute(dir)?;
    let wanted = dir.to_string_lossy().replace(' ', "\\040");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(wanted.as_str())))
}

/// Runs a command to its end; an error with its output when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
}

/// Runs a command to its end and returns its standard output; an error with all its output when it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{command:?}: {}\n{}",
            output.status,
            tail(&format!("{text}{errors}"))
        );
    }
    Ok(text)
}

/// The last lines of a long output.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
