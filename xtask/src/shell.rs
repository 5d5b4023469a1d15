//! Running other programs: as root where needed, with their output passed on or gathered.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A command from its words.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// The same command run by root: as it is for root, through `sudo` for anyone else.
///
/// `PATH` goes along, since sudo's own does not hold cargo.
pub fn as_root(words: &[&str]) -> Command {
    if is_root() {
        return command(words);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut sudo = command(&["sudo", "-E", "env"]);
    sudo.arg(format!("PATH={path}")).args(words);
    sudo
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status
            .lines()
            .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
    })
}

/// Runs a command with its output on ours; true when it succeeded.
pub fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", name(command)))?;
    Ok(status.success())
}

/// Runs a command with its output on ours; an error when it fails.
pub fn check(command: &mut Command) -> Result<()> {
    if !succeeds(command)? {
        bail!("{command:?} failed");
    }
    Ok(())
}

/// Runs a command to its end; its standard output, or an error when it fails.
pub fn output(words: &[&str]) -> Result<String> {
    let output = command(words).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {}", words[0]))?;
    if !output.status.success() {
        bail!("{} failed", words.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// True when the command can be run and succeeds; prints nothing.
pub fn quietly(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command, passes its standard output on line by line and shows each line to `look`.
/// True when it succeeded.
pub fn watch(command: &mut Command, mut look: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", name(command)))?;
    let stdout = child.stdout.take().context("a piped standard output")?;
    let mut out = std::io::stdout();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(out, "{line}")?;
        look(&line);
    }
    Ok(child.wait()?.success())
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
