//! Running other programs to their end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};

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

/// A script that hangs is ended with all that it started, before its check is given up.
const SCRIPT_SECONDS_MAX: u64 = 570;

/// How many times longer scripts may take.
static PATIENCE: AtomicU64 = AtomicU64::new(1);

/// Lets scripts take so many times longer, as the checks that run them.
pub fn be_patient(times: u64) {
    PATIENCE.store(times.max(1), Ordering::Relaxed);
}

/// Runs a bash script in `dir`, with these variables; it ends at the first command that fails.
/// Returns its standard output.
pub fn script(dir: &Path, variables: &[(&str, &Path)], text: &str) -> Result<String> {
    let limit = SCRIPT_SECONDS_MAX.saturating_mul(PATIENCE.load(Ordering::Relaxed));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &limit.to_string()]);
    command.args(["bash", "-euo", "pipefail", "-c", text]);
    command.current_dir(dir);
    command.envs(variables.iter().copied());
    output(&mut command)
}
