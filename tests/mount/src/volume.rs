//! A filesystem on an image file that can be made, mounted, killed, mounted again and checked.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use persimmon_fuse::mounts::{self, MountLine};

use crate::command::{output, run};

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
    /// The image file, or the drive.
    pub image: PathBuf,
    /// Where it is mounted.
    pub dir: PathBuf,
    log: PathBuf,
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
        let image = work.join(format!("{name}.img"));
        if image.exists() {
            std::fs::remove_file(&image)?;
        }
        let volume = Volume::unmade(kind, persimmon, work, name, image)?;
        match kind {
            Kind::Persimmon => {
                let size = bytes.to_string();
                let mut command = volume.tool("mkfs");
                command.arg(&volume.image).args(["--size", &size]);
                run(command.args(mkfs))?;
            }
            Kind::Ext4 => {
                File::create(&volume.image)?.set_len(bytes)?;
                run(Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-O", "ea_inode"])
                    .arg(&volume.image))?;
            }
        }
        Ok(volume)
    }

    /// The same with Persimmon on a drive, whatever is on it.
    pub fn create_on(persimmon: &Path, work: &Path, name: &str, drive: &Path) -> Result<Volume> {
        let drive = drive.to_owned();
        let volume = Volume::unmade(Kind::Persimmon, persimmon, work, name, drive)?;
        run(volume.tool("mkfs").arg(&volume.image).arg("--force"))?;
        Ok(volume)
    }

    fn unmade(
        kind: Kind,
        persimmon: &Path,
        work: &Path,
        name: &str,
        image: PathBuf,
    ) -> Result<Volume> {
        let volume = Volume {
            kind,
            image,
            dir: work.join(name),
            log: work.join(format!("{name}.log")),
            persimmon: persimmon.to_owned(),
            daemon: None,
        };
        std::fs::create_dir_all(&volume.dir)?;
        if is_mounted(&volume.dir)? {
            bail!("{} is still mounted", volume.dir.display());
        }
        if volume.log.exists() {
            std::fs::remove_file(&volume.log)?;
        }
        Ok(volume)
    }

    /// A subcommand of the persimmon binary.
    pub fn tool(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.persimmon);
        command.arg(subcommand);
        command
    }

    /// Where the daemon's words go.
    fn log(&self) -> Result<File> {
        let mut options = File::options();
        Ok(options.append(true).create(true).open(&self.log)?)
    }

    /// The daemon's last words.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Waits until the daemon has let go of the image after an unmount, as every command does.
    pub fn let_go(&self) -> Result<()> {
        match self.kind {
            Kind::Persimmon => run(self.tool("info").arg(&self.image)),
            Kind::Ext4 => Ok(()),
        }
    }

    /// Mounts it the way users do; returns when it answers.
    pub fn mount(&mut self, options: &[&str]) -> Result<()> {
        match self.kind {
            Kind::Persimmon => {
                let mut command = self.tool("mount");
                command.arg(&self.image).arg(&self.dir);
                // The daemon lives on: it must not hold the pipes that `run` reads to their end.
                command.stdout(Stdio::null()).stderr(self.log()?);
                for option in std::iter::once(&"allow_other").chain(options) {
                    command.args(["-o", option]);
                }
                let log = format!("log={}", self.log.display());
                command.args(["-o", &log]);
                let status = command.status().context("running persimmon mount")?;
                if !status.success() {
                    bail!("persimmon mount: {status}\n{}", self.log_tail());
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
        let mut child = command.stdout(Stdio::null()).stderr(self.log()?).spawn()?;
        let start = Instant::now();
        while !(is_mounted(&self.dir)? && std::fs::metadata(&self.dir).is_ok()) {
            if let Some(status) = child.try_wait()? {
                bail!(
                    "persimmon mount --foreground ended: {status}\n{}",
                    self.log_tail()
                );
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
        self.kill_daemon()?;
        self.detach()
    }

    /// Ends the daemon with SIGKILL; the dead mount stays.
    pub fn kill_daemon(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        Ok(())
    }

    /// The same; an error if it is not gone by then.
    pub fn kill_daemon_within(&mut self, patience: Duration) -> Result<()> {
        let daemon = self.daemon.as_mut().context("a daemon in the foreground")?;
        daemon.kill()?;
        let start = Instant::now();
        while daemon.try_wait()?.is_none() {
            if start.elapsed() > patience {
                bail!("the killed daemon is still there after {patience:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.daemon = None;
        Ok(())
    }

    /// Ends the daemon with SIGTERM and waits until it is gone, and with it the mount.
    pub fn terminate(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("a daemon in the foreground")?;
        let pid = i32::try_from(daemon.id())?;
        let pid = rustix::process::Pid::from_raw(pid).context("its process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.ended(daemon)?;
        if is_mounted(&self.dir)? {
            bail!("it is still mounted");
        }
        Ok(())
    }

    fn ended(&self, mut daemon: Child) -> Result<()> {
        let start = Instant::now();
        while daemon.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                daemon.kill()?;
                bail!("the daemon still runs after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = daemon.wait()?;
        if !status.success() {
            bail!("the daemon ended with {status}");
        }
        Ok(())
    }

    /// Takes the mount away whatever state it is in.
    pub fn detach(&mut self) -> Result<()> {
        if is_mounted(&self.dir)? {
            run(Command::new("umount").arg("-l").arg(&self.dir))?;
        }
        self.kill_daemon()?;
        self.wait_for_loop()
    }

    /// Unmounts it cleanly and waits until the image is let go.
    pub fn unmount(&mut self) -> Result<()> {
        if !is_mounted(&self.dir)? {
            return Ok(());
        }
        run(Command::new("umount").arg(&self.dir))?;
        if let Some(daemon) = self.daemon.take() {
            self.ended(daemon)?;
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

    /// What `persimmon usage` says of a file or directory of the mount, or of the image.
    pub fn usage(&self, of: &Path) -> Result<serde_json::Value> {
        let said = output(self.tool("usage").arg("--json").arg(of))?;
        Ok(serde_json::from_str(&said)?)
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

    /// Unmounts and deletes the image; a drive stays as it is.
    pub fn destroy(mut self) -> Result<()> {
        self.detach()?;
        if self.image.is_file() {
            std::fs::remove_file(&self.image)?;
        }
        std::fs::remove_dir(&self.dir)?;
        if self.log.exists() {
            std::fs::remove_file(&self.log)?;
        }
        Ok(())
    }
}

impl Drop for Volume {
    /// A test that failed half-way leaves nothing mounted behind.
    fn drop(&mut self) {
        let _ = self.detach();
    }
}

/// True when `dir` is a mount point, also of a dead daemon.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    Ok(mounts::at(&std::path::absolute(dir)?)?.is_some())
}

/// What is mounted at a directory or below it, in the order in which it was.
pub fn mounts_below(dir: &Path) -> Result<Vec<MountLine>> {
    let mut mounts = mounts::list()?;
    mounts.retain(|mount| mount.mount_point.starts_with(dir));
    Ok(mounts)
}

/// Makes every call on the FUSE mounts below `work` return, whatever their daemons do.
pub fn cut_off(work: &Path) -> Result<()> {
    let mut mounts = mounts_below(work)?;
    mounts.retain(|mount| mount.fs_type.starts_with("fuse"));
    for mount in mounts {
        abort_file(&mount)
            .and_then(|mut abort| Ok(abort.write_all(b"1")?))
            .with_context(|| format!("cutting off {}", mount.mount_point.display()))?;
    }
    Ok(())
}

/// Makes every call on a mount return when it is written to.
pub fn abort_file(mount: &MountLine) -> Result<File> {
    const CONTROL: &str = "/sys/fs/fuse/connections";
    let control = Path::new(CONTROL);
    // With one connection at least it is empty only where nobody has mounted it.
    if std::fs::read_dir(control)?.next().is_none() {
        run(Command::new("mount").args(["-t", "fusectl", "fusectl", CONTROL]))?;
    }
    let (major, minor) = mount.device.split_once(':').context("a device")?;
    // The kernel's own number of the device: with a block device there is a major one.
    let number = major.parse::<u32>()? << 20 | minor.parse::<u32>()?;
    let path = control.join(number.to_string()).join("abort");
    Ok(File::options().write(true).open(path)?)
}
