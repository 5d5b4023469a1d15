//! The tidy check: what the compiler and clippy cannot see of this workspace's own rules.

mod calls;
mod code;
mod dead_files;
mod format_doc;
mod layers;
mod links;
mod sizes;
mod source;
mod tables;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::shell;
use source::Source;

/// One thing that is not as it should be.
pub struct Finding {
    /// Only told, not failed.
    warning: bool,
    place: String,
    message: String,
}

impl Finding {
    fn error(place: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding {
            warning: false,
            place: place.into(),
            message: message.into(),
        }
    }

    fn warning(place: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding {
            warning: true,
            ..Finding::error(place, message)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.warning { "warning" } else { "error" };
        write!(f, "{level}: {}: {}", self.place, self.message)
    }
}

/// Everything the checks find in the workspace at `root`.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let files = files(root)?;
    let sources = Source::read_all(root, &files)?;
    let mut findings = Vec::new();
    sizes::check(&sources, &mut findings);
    code::check(&sources, &mut findings);
    calls::check(&sources, &mut findings);
    layers::check(root, &files, &sources, &mut findings)?;
    format_doc::check(root, &sources, &mut findings)?;
    tables::check(root, &sources, &mut findings)?;
    links::check(root, &files, &mut findings)?;
    dead_files::check(&sources, &mut findings);
    Ok(findings)
}

/// Records the present state of crates/format in docs/FORMAT.md, and writes the tables of docs/CLI.md anew.
pub fn bless(root: &Path) -> Result<()> {
    let sources = Source::read_all(root, &files(root)?)?;
    format_doc::bless(root, &sources)?;
    tables::bless(root, &sources)
}

/// Prints the findings; true when none of them is an error.
pub fn report(findings: &[Finding]) -> bool {
    for finding in findings {
        println!("{finding}");
    }
    let warnings = findings.iter().filter(|finding| finding.warning).count();
    let errors = findings.len() - warnings;
    println!("tidy: {errors} errors, {warnings} warnings");
    errors == 0
}

/// All files that git knows or would add, relative to the root, sorted.
fn files(root: &Path) -> Result<Vec<String>> {
    let output = shell::command(&[
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(root)
    .output()?;
    if !output.status.success() {
        bail!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let mut files: Vec<String> = String::from_utf8(output.stdout)?
        .lines()
        .map(str::to_owned)
        .filter(|file| root.join(file).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
