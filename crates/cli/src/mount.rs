//! `persimmon mount` and `mount.persimmon`: starts the daemon and returns when the mount answers.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::device::pair;
use persimmon_fuse::{MountOptions, OptionError, mounts};
use rustix::mount::MountFlags;

use crate::daemon::{Daemon, Role};
use crate::exit::{self, MOUNT_FAILED, MOUNT_SYSTEM, MOUNT_USAGE};
use crate::live::{self, is_abandoned};
use crate::mounted::{abandoned, mounted_at};
use crate::output::{self, say};
use crate::report::Info;
use crate::supervisor::Supervisor;
use crate::umount;

/// `-o meta=DEVICE`: the device for metadata, where SPEC is that for data.
const META: &str = "meta=";

/// What the daemon writes to its parent when the mount answers.
const READY: &str = "ready";

/// Mount a volume.
#[derive(Args)]
#[command(after_help = MountOptions::help())]
pub struct Mount {
    /// Device, zonefs:DIR or image file, pair:METADATA+DATA, LABEL=... or UUID=...; with -o meta=DEVICE,
    /// which names the device for metadata, that for data
    spec: OsString,
    /// Directory to mount at
    dir: PathBuf,
    /// Mount options, comma-separated; may be given several times
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground, log to the terminal, unmount at Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Started by another persimmon, which waits on standard output
    #[arg(long, hide = true)]
    child: bool,
    /// The first daemon of a supervisor, which it hears through standard input
    #[arg(long, hide = true)]
    supervised: bool,
    /// One that comes after another
    #[arg(long, hide = true)]
    resumed: bool,
    /// Skip unknown mount options
    #[arg(short = 's', long, hide = true)]
    sloppy: bool,
    /// Do everything but mount
    #[arg(short = 'f', long, hide = true)]
    fake: bool,
    /// Do not write /etc/mtab (nobody does)
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// Say what is done
    #[arg(short = 'v', long, hide = true)]
    verbose: bool,
    /// Type of the filesystem, as mount(8) passes it on
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    kind: Option<String>,
}

impl Mount {
    pub fn run(&self) -> Result<u8> {
        let options = self.parse_options()?;
        if options.remount {
            return self.remount(&options);
        }
        let (device, dir) = match self.resumed {
            // As the supervisor has them; whoever looks at a directory of the mount waits for this daemon.
            true => (PathBuf::from(&self.spec), self.dir.clone()),
            false => self.places(&options)?,
        };
        if !self.resumed {
            check_log(&options, &dir)?;
        }
        if self.fake {
            return Ok(0);
        }
        let mut daemon = Daemon {
            device,
            dir,
            options,
            given: self.options_of_mount(),
            in_background: self.child,
            ready: None,
            role: self.role(),
        };
        if daemon.options.supervise && daemon.role == Role::Alone && (self.child || self.foreground)
        {
            return self.supervise(&daemon);
        }
        if self.child && !self.resumed {
            daemon.ready = Some(Box::new(leave_parent));
        }
        if self.child || self.foreground {
            return daemon.run();
        }
        let code = self.start(&daemon)?;
        match code {
            // It is mounted: not the code of a mount that failed.
            0 => output::done(0, self.say(&daemon))
                .map_err(|error| exit::error(MOUNT_SYSTEM, output::Causes(&error))),
            code => Ok(code),
        }
    }

    fn role(&self) -> Role {
        match (self.resumed, self.supervised) {
            (true, _) => Role::Next,
            (false, true) => Role::First,
            (false, false) => Role::Alone,
        }
    }

    /// Stays, and starts the daemon.
    fn supervise(&self, daemon: &Daemon) -> Result<u8> {
        daemon.set_up_log()?;
        let kind = if self.child {
            "--child"
        } else {
            "--foreground"
        };
        let mut arguments: Vec<OsString> = vec![kind.into()];
        if self.sloppy {
            arguments.push("--sloppy".into());
        }
        for list in &daemon.given {
            arguments.extend(["-o".into(), list.into()]);
        }
        arguments.extend([(&daemon.device).into(), (&daemon.dir).into()]);
        Supervisor::new(arguments, self.child).run()
    }

    fn say(&self, daemon: &Daemon) -> Result<()> {
        if self.json {
            return output::json_of_mount(&daemon.device, &daemon.dir);
        }
        if self.verbose {
            say!(
                "{} mounted at {}",
                daemon.device.display(),
                daemon.dir.display()
            )?;
        }
        Ok(())
    }

    /// The device, with that for metadata if `-o meta=` names it.
    fn device(&self) -> Result<PathBuf> {
        let spec = crate::spec::resolve(&self.spec)?;
        let named = self.words().filter_map(|word| word.strip_prefix(META));
        let Some(metadata) = named.last() else {
            return Ok(spec);
        };
        if pair::is_uri(&spec) {
            // As the same line of fstab would be, with the pair for the device.
            Ok(spec)
        } else {
            Ok(pair::uri(&crate::spec::resolve(metadata)?, &spec))
        }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.options.iter().flat_map(|list| list.split(','))
    }

    /// The options but for the one that is part of the device's name.
    fn options_of_mount(&self) -> Vec<String> {
        let words = self.words().filter(|word| !word.starts_with(META));
        let list = words.collect::<Vec<_>>().join(",");
        if list.is_empty() {
            Vec::new()
        } else {
            vec![list]
        }
    }

    /// What to mount, and where; both as the kernel will show them.
    fn places(&self, options: &MountOptions) -> Result<(PathBuf, PathBuf)> {
        let device = self
            .device()
            .map_err(|error| exit::error(MOUNT_FAILED, output::Causes(&error)))?;
        let dir = self.dir.canonicalize().map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "the directory does not exist; make it first".into(),
                _ => error.to_string(),
            };
            exit::error(MOUNT_USAGE, format!("{}: {why}", self.dir.display()))
        })?;
        if is_abandoned(&dir) {
            return Err(exit::error(MOUNT_FAILED, abandoned(&dir)));
        }
        if !dir.is_dir() {
            return Err(exit::error(
                MOUNT_USAGE,
                format!(
                    "{} is not a directory; a volume is mounted at one",
                    dir.display()
                ),
            ));
        }
        if let Some(at) = mounted_at(&device).filter(|at| is_abandoned(at)) {
            return Err(exit::error(MOUNT_FAILED, abandoned(&at)));
        }
        if let Some(at) = mounted_at(&device) {
            return Err(exit::error(
                MOUNT_FAILED,
                format!(
                    "{} is already mounted at {}; for a second place, use `mount --bind`",
                    device.display(),
                    at.display()
                ),
            ));
        }
        if !self.child
            && !options.allow_duplicate
            && let Some(twin) = live::mounted_twin(&device)
        {
            let (path, device, source) = (&device, device.display(), twin.source.display());
            let at = twin.mount_point.display();
            return Err(exit::error(
                MOUNT_FAILED,
                if is_one_file(path, &twin.source) {
                    format!(
                        "{device} is another name of {source}, which is mounted at {at}; for a second place, use `mount --bind`"
                    )
                } else {
                    format!(
                        "{device} has the UUID of {source}, which is mounted at {at}: one is a copy of the other; \
                         unmount that one first, or mount both with -o nouuid"
                    )
                },
            ));
        }
        Ok((device, dir))
    }

    fn parse_options(&self) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        for list in &self.options_of_mount() {
            for word in list.split(',') {
                match options.apply(word) {
                    Err(OptionError::Unknown(_)) if self.sloppy => {}
                    result => result.map_err(|error| exit::error(MOUNT_USAGE, error))?,
                }
            }
        }
        let checked = options.check();
        checked.map_err(|error| exit::error(MOUNT_USAGE, error))?;
        Ok(options)
    }

    /// Runs this program again as the daemon and waits until its mount answers. A program with
    /// one thread and a fresh memory is the safe thing to leave behind; a fork of this one is not.
    fn start(&self, daemon: &Daemon) -> Result<u8> {
        let program = std::env::current_exe()
            .map_err(|error| exit::error(MOUNT_SYSTEM, format!("finding this program: {error}")))?;
        let mut command = Command::new(program);
        command
            .arg0("persimmon")
            .args(["mount", "--child"])
            .arg(&daemon.device)
            .arg(&daemon.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .current_dir("/");
        if self.sloppy {
            command.arg("--sloppy");
        }
        for list in &self.options_of_mount() {
            command.arg("-o").arg(list);
        }
        let mut child = command
            .spawn()
            .map_err(|error| exit::error(MOUNT_SYSTEM, format!("starting the daemon: {error}")))?;
        let mut ready = false;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                match line.context("waiting for the daemon")? {
                    line if line == READY => ready = true,
                    message => output::tell(message),
                }
            }
        }
        if ready {
            return Ok(0);
        }
        // It said why on standard error, which it shares with this process.
        let status = child.wait().context("waiting for the daemon")?;
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .filter(|code| *code != 0)
            .unwrap_or(MOUNT_FAILED))
    }

    /// Flags of the mount only: options of the daemon need a new mount.
    fn remount(&self, options: &MountOptions) -> Result<u8> {
        let failed = |error: rustix::io::Errno| {
            exit::error(
                MOUNT_FAILED,
                format!("remounting {}: {error}", self.dir.display()),
            )
        };
        let dir = self.dir.canonicalize().map_err(|error| {
            exit::error(MOUNT_USAGE, format!("{}: {error}", self.dir.display()))
        })?;
        let line = mounts::at(&dir).context("/proc/self/mountinfo")?;
        let Some(line) = line.filter(|line| line.is_persimmon()) else {
            return Err(exit::error(
                MOUNT_FAILED,
                format!("no Persimmon volume is mounted at {}", dir.display()),
            ));
        };
        if is_abandoned(&dir) {
            return Err(exit::error(MOUNT_FAILED, abandoned(&dir)));
        }
        // A daemon that does not answer tells nothing of its options.
        let info = live::ask::<Info>(&dir, "info").ok();
        self.check_remount(&dir, info.as_ref())?;
        // Also where the kernel takes it for writable, as after a remount that did not go through this program.
        if let Some(info) = info.filter(|info| info.read_only && !options.read_only) {
            let given = info.mount_options.unwrap_or_default();
            let why = match given.split(',').any(|option| option == "ro") {
                true => "it was mounted with ro",
                false => "an error ended writing, see the log of its daemon",
            };
            return Err(exit::error(
                MOUNT_FAILED,
                format!(
                    "{0} cannot be made writable: {why}; `umount {0}` and mount it again",
                    dir.display()
                ),
            ));
        }
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, options.read_only);
        flags.set(MountFlags::NOSUID, options.suid == Some(false));
        flags.set(MountFlags::NODEV, options.dev == Some(false));
        flags.set(MountFlags::NOEXEC, !options.exec);
        // The kernel tells the daemon of a remount on some kernels only, and nobody whether that went well.
        if options.read_only {
            umount::write_all(&dir, &line.source, "stays writable")?;
        }
        rustix::mount::mount_remount(&dir, flags, c"").map_err(failed)?;
        if options.read_only
            && !line.read_only
            // What was written in between.
            && let Err(error) = umount::write_all(&dir, &line.source, "is writable again")
        {
            flags.remove(MountFlags::RDONLY);
            rustix::mount::mount_remount(&dir, flags, c"").map_err(failed)?;
            return Err(error);
        }
        let said = if self.json {
            output::json_of_mount(&line.source, &dir)
        } else {
            Ok(())
        };
        output::done(0, said).map_err(|error| exit::error(MOUNT_SYSTEM, output::Causes(&error)))
    }

    /// Refuses options that a remount cannot change, unless they are as they are already: mount(8)
    /// passes along those of the mount and of its line in fstab.
    fn check_remount(&self, dir: &Path, info: Option<&Info>) -> Result<()> {
        let Some(list) = info.and_then(|info| info.mount_options.as_deref()) else {
            return Ok(());
        };
        let mut live = MountOptions::default();
        for word in list.split(',') {
            // It was taken, or passed over, when it was mounted.
            let _ = live.apply(word);
        }
        let options = self.options_of_mount();
        let words: Vec<&str> = options.iter().flat_map(|list| list.split(',')).collect();
        let refused = live.refused_by_remount(&words);
        if refused.is_empty() {
            return Ok(());
        }
        Err(exit::usage(format!(
            "{} cannot be changed by a remount, which changes ro, nosuid, nodev and noexec (and rw, \
             suid, dev and exec); `umount {1}` and mount it again",
            refused.join(", "),
            dir.display()
        )))
    }
}

/// Whether both are names of one file.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

/// A daemon that goes on with a mount opens its log anew: there, it would wait for itself.
fn check_log(options: &MountOptions, dir: &Path) -> Result<()> {
    let Some(log) = options.log.as_deref().filter(|_| options.supervise) else {
        return Ok(());
    };
    let parent = || log.parent()?.canonicalize().ok();
    let place = log.canonicalize().ok().or_else(parent);
    // What is not there cannot be opened either, which is said later.
    match place.is_some_and(|place| place.starts_with(dir)) {
        false => Ok(()),
        true => Err(exit::error(
            MOUNT_USAGE,
            format!(
                "log={}: it would be on the mount at {} itself, whose next daemon could not open it; log to a file elsewhere",
                log.display(),
                dir.display()
            ),
        )),
    }
}

/// Tells the parent that the mount answers, and lets go of its terminal and pipes.
fn leave_parent() -> Result<()> {
    // First what may fail: the parent must not be told of a mount that is given up.
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("/dev/null")?;
    say!("{READY}")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
