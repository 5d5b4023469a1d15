//! The `persimmon` command. Also runs as `mkfs.persimmon`, `mount.persimmon` and
//! `fsck.persimmon`, by the name it is called with.

mod answers;
mod clean;
mod control;
mod daemon;
mod device;
mod devices;
mod dump;
mod exit;
mod fallocate;
mod freeze;
mod fs;
mod fsck;
mod grow;
mod info;
mod live;
mod logging;
mod mkfs;
mod mount;
mod mounted;
mod names;
mod open;
mod output;
mod picture;
mod plot;
mod probe;
mod progress;
mod quota;
mod receive;
mod recover;
mod report;
mod scrub;
mod send;
mod simulate;
mod snapshot;
mod spec;
mod stats;
mod storage;
mod supervisor;
mod sync;
mod trace;
mod trim;
mod tune;
mod umount;
mod upgrade;
mod usage;
mod utab;
mod zones;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::{Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

/// A filesystem for zoned storage.
#[derive(Parser)]
#[command(name = "persimmon", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Mkfs),
    Mount(Box<mount::Mount>),
    Umount(umount::Umount),
    UpgradeDaemon(upgrade::UpgradeDaemon),
    Fsck(fsck::Fsck),
    Recover(recover::Recover),
    Scrub(scrub::Scrub),
    Info(info::InfoCommand),
    Usage(usage::UsageCommand),
    Zones(zones::ZonesCommand),
    Stats(stats::StatsCommand),
    Grow(grow::GrowCommand),
    Label(names::LabelCommand),
    Uuid(names::UuidCommand),
    Clean(clean::Clean),
    Tune(tune::Tune),
    Trace(trace::Trace),
    Sync(sync::Sync),
    Trim(trim::Trim),
    Freeze(freeze::Freeze),
    Thaw(freeze::Thaw),
    Dump(dump::Dump),
    Clone(fs::CloneCommand),
    Dedup(fs::DedupCommand),
    Fallocate(fallocate::Fallocate),
    Snapshot(snapshot::SnapshotCommand),
    Send(send::Send),
    Receive(receive::Receive),
    Quota(quota::QuotaCommand),
    Fs(fs::Fs),
    Probe(probe::Probe),
    Simulate(Box<simulate::Simulate>),
    Devices(devices::Devices),
}

impl Command {
    fn run(&self) -> Result<u8> {
        match self {
            Command::Mkfs(command) => command.run(),
            Command::Mount(command) => command.run(),
            Command::Umount(command) => command.run(),
            Command::UpgradeDaemon(command) => command.run(),
            Command::Fsck(command) => command.run(),
            Command::Recover(command) => command.run(),
            Command::Scrub(command) => command.run(),
            Command::Info(command) => command.run(),
            Command::Usage(command) => command.run(),
            Command::Zones(command) => command.run(),
            Command::Stats(command) => command.run(),
            Command::Grow(command) => command.run(),
            Command::Label(command) => command.run(),
            Command::Uuid(command) => command.run(),
            Command::Clean(command) => command.run(),
            Command::Tune(command) => command.run(),
            Command::Trace(command) => command.run(),
            Command::Sync(command) => command.run(),
            Command::Trim(command) => command.run(),
            Command::Freeze(command) => command.run(),
            Command::Thaw(command) => command.run(),
            Command::Dump(command) => command.run(),
            Command::Clone(command) => command.run(),
            Command::Dedup(command) => command.run(),
            Command::Fallocate(command) => command.run(),
            Command::Snapshot(command) => command.run(),
            Command::Send(command) => command.run(),
            Command::Receive(command) => command.run(),
            Command::Quota(command) => command.run(),
            Command::Fs(command) => command.run(),
            Command::Probe(command) => command.run(),
            Command::Simulate(command) => command.run(),
            Command::Devices(command) => command.run(),
        }
    }

    /// Name, and exit codes of failures that know no better and of wrong invocations.
    fn name_and_codes(&self) -> (&'static str, u8, u8) {
        match self {
            Command::Mkfs(_) => ("mkfs", exit::FAILED, exit::USAGE),
            Command::Mount(_) => ("mount", exit::MOUNT_FAILED, exit::MOUNT_USAGE),
            Command::Umount(_) => ("umount", exit::FAILED, exit::USAGE),
            Command::UpgradeDaemon(_) => ("upgrade-daemon", exit::FAILED, exit::USAGE),
            Command::Fsck(_) => ("fsck", exit::FSCK_FAILED, exit::FSCK_USAGE),
            Command::Recover(_) => ("recover", exit::FAILED, exit::USAGE),
            Command::Scrub(_) => ("scrub", exit::FAILED, exit::USAGE),
            Command::Info(_) => ("info", exit::FAILED, exit::USAGE),
            Command::Usage(_) => ("usage", exit::FAILED, exit::USAGE),
            Command::Zones(_) => ("zones", exit::FAILED, exit::USAGE),
            Command::Stats(_) => ("stats", exit::FAILED, exit::USAGE),
            Command::Grow(_) => ("grow", exit::FAILED, exit::USAGE),
            Command::Label(_) => ("label", exit::FAILED, exit::USAGE),
            Command::Uuid(_) => ("uuid", exit::FAILED, exit::USAGE),
            Command::Clean(_) => ("clean", exit::FAILED, exit::USAGE),
            Command::Tune(_) => ("tune", exit::FAILED, exit::USAGE),
            Command::Trace(_) => ("trace", exit::FAILED, exit::USAGE),
            Command::Sync(_) => ("sync", exit::FAILED, exit::USAGE),
            Command::Trim(_) => ("trim", exit::FAILED, exit::USAGE),
            Command::Freeze(_) => ("freeze", exit::FAILED, exit::USAGE),
            Command::Thaw(_) => ("thaw", exit::FAILED, exit::USAGE),
            Command::Dump(_) => ("dump", exit::FAILED, exit::USAGE),
            Command::Clone(_) => ("clone", exit::FAILED, exit::USAGE),
            Command::Dedup(_) => ("dedup", exit::FAILED, exit::USAGE),
            Command::Fallocate(_) => ("fallocate", exit::FAILED, exit::USAGE),
            Command::Snapshot(command) => (command.name(), exit::FAILED, exit::USAGE),
            Command::Send(_) => ("send", exit::FAILED, exit::USAGE),
            Command::Receive(_) => ("receive", exit::FAILED, exit::USAGE),
            Command::Quota(command) => (command.name(), exit::FAILED, exit::USAGE),
            Command::Fs(command) => (command.name(), exit::FAILED, exit::USAGE),
            Command::Probe(_) => ("probe", exit::FAILED, exit::USAGE),
            Command::Simulate(_) => ("simulate", exit::FAILED, exit::USAGE),
            Command::Devices(_) => ("devices", exit::FAILED, exit::USAGE),
        }
    }
}

fn main() -> ExitCode {
    // What exceeds the limit on the size of files (`ulimit -f`) is an error of that write, and nothing that ends a daemon. A handler, unlike
    // ignoring the signal, is not handed on to other programs.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    if let Some(code) = guard() {
        return code;
    }
    let arguments = with_subcommand(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let said = output::of_clap(&error);
            return if error.use_stderr() {
                ExitCode::from(usage_code(&arguments))
            } else {
                end("", said.map(|()| 0), exit::FAILED, exit::USAGE)
            };
        }
    };
    let (name, failed, usage) = cli.command.name_and_codes();
    end(name, cli.command.run(), failed, usage)
}

/// Runs as the guard of a mount, or as the process that has its pages written back, or tells whether it can go on with one, if that is what was asked for.
fn guard() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let asked = arguments.next()?;
    let went = if asked == upgrade::ARGUMENT {
        let can = upgrade::can_resume(arguments.next().as_deref());
        return Some(ExitCode::from(if can { 0 } else { exit::FAILED }));
    } else if asked == persimmon_fuse::write_back::ARGUMENT {
        persimmon_fuse::write_back::run()
    } else {
        let daemon = arguments.next();
        let daemon = daemon.filter(|_| asked == persimmon_fuse::guard::ARGUMENT)?;
        persimmon_fuse::guard::run(&daemon.to_string_lossy())
    };
    Some(match went {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(exit::FAILED),
    })
}

/// The exit code of how it went, which is told where it went wrong. `persimmon zones | head` ends quietly once head
/// has seen enough; not by the signal, which would end a recovery or a daemon half-way as well.
fn end(name: &str, went: Result<u8>, failed: u8, usage: u8) -> ExitCode {
    match went {
        Ok(code) => ExitCode::from(code),
        Err(error) if output::is_reader_gone(&error) => ExitCode::from(exit::READER_GONE),
        Err(error) => {
            let space = if name.is_empty() { "" } else { " " };
            output::tell(format_args!(
                "persimmon{space}{name}: {}",
                output::Causes(&error)
            ));
            ExitCode::from(exit::code_of(&error, failed, usage))
        }
    }
}

/// Called as `mkfs.persimmon` and the like, the subcommand is in the name.
fn with_subcommand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments
        .first()
        .and_then(|program| Path::new(program).file_name())
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let command = name.strip_suffix(".persimmon").map(|name| {
        // As mount(8) looks for the types that the kernel tells of mounts.
        let plain = name.strip_suffix(".fuse");
        plain.or(name.strip_suffix(".fuseblk")).unwrap_or(name)
    });
    if let Some(command @ ("mkfs" | "mount" | "fsck" | "umount")) = command {
        arguments.insert(1, command.into());
    } else if arguments.get(1).is_some_and(|first| is_spec(first)) {
        arguments.insert(1, "mount".into());
    }
    arguments
}

/// `persimmon SPEC DIR -o OPTIONS` is how mount.fuse3 runs the program for the type
/// `fuse.persimmon`, which is also what `mount -o remount` finds in the table of mounts.
fn is_spec(argument: &OsStr) -> bool {
    let bytes = argument.as_bytes();
    bytes.contains(&b'/') || bytes.starts_with(b"LABEL=") || bytes.starts_with(b"UUID=")
}

fn usage_code(arguments: &[OsString]) -> u8 {
    match arguments.get(1).and_then(|command| command.to_str()) {
        Some("mount") => exit::MOUNT_USAGE,
        Some("fsck") => exit::FSCK_USAGE,
        _ => exit::USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(with_subcommand(words.iter().map(OsString::from).collect()))
    }

    #[test]
    fn helpers_of_mount_fsck_and_mkfs_are_understood() {
        for words in [
            [
                "/sbin/mount.persimmon",
                "LABEL=x",
                "/mnt",
                "-sfnv",
                "-o",
                "rw,noatime",
            ]
            .as_slice(),
            &[
                "/sbin/mount.persimmon",
                "/img",
                "/mnt",
                "-t",
                "persimmon",
                "-o",
                "ro",
            ],
            &["persimmon", "/img", "/mnt", "-o", "rw,remount,ro"],
            &[
                "/sbin/mount.fuseblk.persimmon",
                "/img",
                "/mnt",
                "-o",
                "remount,ro",
            ],
            &["/sbin/umount.fuse.persimmon", "/mnt"],
            &["fsck.persimmon", "-a", "/dev/x"],
            &["persimmon", "fs", "df", "-h", "/img", "LABEL=x"],
            &["persimmon", "fs", "cp", "-r", "LABEL=x", ":/a", "b", ":/c"],
            &["persimmon", "clone", "/mnt/a", "/mnt/b"],
            &["persimmon", "clone", "LABEL=x", ":/a", ":/b"],
            &["fsck.persimmon", "-n", "-C0", "/dev/x"],
            &["mkfs.persimmon", "-L", "data", "/dev/x"],
            &["umount.persimmon", "/mnt", "-l", "-f", "-r", "-n", "-v"],
            &["umount.persimmon", "/mnt", "-flnrv", "-t", "fuse.persimmon"],
            &[
                "persimmon",
                "mkfs",
                "/img",
                "--size",
                "8G",
                "--reserve",
                "7%",
                "--dry-run",
            ],
        ] {
            assert!(parse(words).is_ok(), "{words:?}");
        }
        assert!(parse(&["persimmon", "mkfs", "/img", "--size", "lots"]).is_err());
    }
}
