//! Arrows point down only: between the crates by their manifests, inside the engine by its paths.

use std::path::Path;

use anyhow::Result;

use super::Finding;
use super::source::Source;

/// Each crate folder and the workspace crates its ordinary dependencies may name.
const CRATES: &[(&str, &[&str])] = &[
    ("sync", &[]),
    ("format", &[]),
    ("device", &["sync", "format"]),
    ("engine", &["sync", "format", "device"]),
    ("vfs", &["sync", "format", "device", "engine"]),
    // Streams of snapshots: what is sent and received is behind traits, which the library has for volumes.
    ("stream", &["format"]),
    (
        "persimmon",
        &["sync", "format", "device", "engine", "vfs", "stream"],
    ),
    ("capi", &["sync", "persimmon"]),
    ("inspect", &["format", "device"]),
    ("salvage", &["format", "device", "engine", "inspect"]),
    // A door beside the library, on the same layer: requests name inodes and handles, not paths.
    ("fuse", &["sync", "vfs"]),
    // What opens a volume for use goes over the library. What looks at one that is not open (fsck, dump, recover) has crates of its own,
    // and `simulate` has the lab.
    ("cli", &["persimmon", "fuse", "inspect", "salvage", "lab"]),
    // The simulated device is below the engine, whose tests run on it. No program names the crash tests.
    ("sim", &["sync", "device"]),
    (
        "crash",
        &[
            "sync",
            "format",
            "device",
            "sim",
            "engine",
            "vfs",
            "persimmon",
            "inspect",
        ],
    ),
    ("lab", &["sync", "format", "device", "sim", "engine", "vfs"]),
    (
        "fuzzing",
        &[
            "format",
            "device",
            "engine",
            "vfs",
            "persimmon",
            "inspect",
            "salvage",
            "sim",
        ],
    ),
];

/// The modules of the engine, folders or files, from the lowest to the highest: each may name itself and those before it. What is called
/// belongs to a module that is named, so calls go down too.
const ENGINE: &[&str] = &[
    "options",
    "error",
    "statistics",
    "faults",
    "pairs",
    "invariant",
    "gate",
    "media",
    "redundancy",
    "fair_lock",
    "in_flight",
    "headers",
    // Mechanism: what each zone is used for, the log, the tree.
    "zones",
    "log",
    "meta",
    // What every job works on; what is promised and reserved; which zone runs go to.
    "store",
    "space",
    "placement",
    // The two jobs that free zones, and their only caller.
    "checkpoint",
    "cleaning",
    "reclaim",
    // Changes in their order, and the content of files.
    "history",
    // What deleted snapshots held: who needs room removes it.
    "settling",
    "data",
    // Subvolumes: what changes which versions they show.
    "snapshots",
    // Who may take how much.
    "quota",
    // All of it put together; how that begins, and what is done to the whole.
    "engine",
    "empty",
    "mkfs",
    "recovery",
    "rebuild",
    "paths",
    "losses",
    "scrub",
    "repair",
    "tuning",
    "volume",
    "properties",
];

/// Modules beside each other of which neither may name the other, though one is before the other in the list.
const ENGINE_APART: &[(&str, &str)] = &[
    ("checkpoint", "cleaning"),
    ("checkpoint", "data"),
    ("cleaning", "data"),
];

/// Only these name the checkpoints: everybody else asks the reclaimer. Those after it work on a volume that nobody uses yet.
const CHECKPOINT_CALLERS: &[&str] = &[
    "reclaim",
    "engine",
    "mkfs",
    "recovery",
    "rebuild",
    "repair",
    "volume",
    "properties",
];

/// The part of the library that is for the command alone, and whose it is.
const INTERNAL: &str = "persimmon::internal";
const INTERNAL_USERS: &[&str] = &["crates/cli/", "xtask/src/tidy/"];

const ENGINE_ROOT: &str = "crates/engine/src/lib.rs";

pub fn check(
    root: &Path,
    files: &[String],
    sources: &[Source],
    findings: &mut Vec<Finding>,
) -> Result<()> {
    for manifest in files.iter().filter(|file| is_manifest(file)) {
        let folder = manifest.split('/').nth(1).unwrap_or_default();
        let text = std::fs::read_to_string(root.join(manifest))?;
        match CRATES.iter().find(|(name, _)| *name == folder) {
            None => findings.push(Finding::error(
                manifest,
                format!("crate {folder} has no layer: add it to xtask/src/tidy/layers.rs"),
            )),
            Some((_, allowed)) => check_manifest(manifest, &text, allowed, findings),
        }
    }
    let root = sources.iter().find(|source| source.path == ENGINE_ROOT);
    let reexported = root.map_or_else(Vec::new, |root| reexports(&root.code));
    for source in sources {
        check_engine(source, &reexported, findings);
        check_internal(source, findings);
    }
    Ok(())
}

/// What the library has for the command is nobody else's.
fn check_internal(source: &Source, findings: &mut Vec<Finding>) {
    if INTERNAL_USERS
        .iter()
        .any(|folder| source.path.starts_with(folder))
    {
        return;
    }
    for (offset, _) in source.code.match_indices(INTERNAL) {
        findings.push(Finding::error(
            format!("{}:{}", source.path, source.line(offset)),
            format!("uses {INTERNAL}, which is for the command alone"),
        ));
    }
}

fn is_manifest(file: &str) -> bool {
    file.starts_with("crates/") && file.ends_with("/Cargo.toml") && file.matches('/').count() == 2
}

fn check_manifest(manifest: &str, text: &str, allowed: &[&str], findings: &mut Vec<Finding>) {
    let mut section = "";
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
            continue;
        }
        if !(section.ends_with("dependencies]")
            && !section.contains("dev-dependencies")
            && line.starts_with("persimmon"))
        {
            continue;
        }
        let name: &str = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let folder = name.strip_prefix("persimmon-").unwrap_or(name);
        if !allowed.contains(&folder) {
            findings.push(Finding::error(
                manifest,
                format!("depends on {name}, which is not below it"),
            ));
        }
    }
    if !text.contains("[lints]\nworkspace = true") {
        findings.push(Finding::error(
            manifest,
            "takes no part in the workspace's lints",
        ));
    }
}

fn check_engine(source: &Source, reexported: &[(String, String)], findings: &mut Vec<Finding>) {
    let Some(inside) = source.path.strip_prefix("crates/engine/src/") else {
        return;
    };
    let folder = inside.split(['/', '.']).next().unwrap_or_default();
    if folder == "lib" {
        return;
    }
    let layer = |name: &str| ENGINE.iter().position(|module| *module == name);
    let Some(own) = layer(folder) else {
        findings.push(Finding::error(
            source.path.clone(),
            format!("{folder} has no layer: add it to xtask/src/tidy/layers.rs"),
        ));
        return;
    };
    for (offset, name) in crate_paths(&source.code) {
        let module = match reexported.iter().find(|(item, _)| *item == name) {
            Some((_, module)) => module,
            None => &name,
        };
        let are_apart = ENGINE_APART
            .iter()
            .any(|pair| *pair == (folder, module) || *pair == (module, folder));
        let is_below = layer(module).is_some_and(|layer| layer <= own) && !are_apart;
        if !is_below && !source.is_test(offset) {
            findings.push(Finding::error(
                format!("{}:{}", source.path, source.line(offset)),
                format!("{folder} uses crate::{name} of {module}, which is not below it"),
            ));
        }
    }
    let may_checkpoint = CHECKPOINT_CALLERS.contains(&folder) || folder == "checkpoint";
    for (offset, _) in source.code.match_indices("checkpoints.") {
        if !may_checkpoint && !source.is_test(offset) {
            findings.push(Finding::error(
                format!("{}:{}", source.path, source.line(offset)),
                format!("{folder} calls a checkpoint past the reclaimer"),
            ));
        }
    }
    if let Some(offset) = source.code.find("impl Volume")
        && folder != "volume"
    {
        findings.push(Finding::error(
            format!("{}:{}", source.path, source.line(offset)),
            "methods of Volume stand in crates/engine/src/volume only",
        ));
    }
}

/// What a crate's root passes on of its modules: names, and the module that each is of.
fn reexports(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (start, begin) in code.match_indices("pub use ") {
        let path = code[start + begin.len()..].split(';').next();
        let Some((module, items)) = path.and_then(|path| path.split_once("::")) else {
            continue;
        };
        for item in items.split(['{', '}', ',']) {
            // The last part of a path, or the name that it is given.
            let name = item.split([':', ' ', '\n']).rfind(|word| !word.is_empty());
            if let Some(name) = name {
                found.push((name.to_owned(), module.trim().to_owned()));
            }
        }
    }
    found
}

/// The first path part after each `crate::`, with those in braces told apart.
fn crate_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (offset, found) in code.match_indices("crate::") {
        let rest = &code[offset + found.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0usize;
            let mut start = true;
            let mut word = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        paths.push((offset, std::mem::take(&mut word)));
                        start = true;
                        continue;
                    }
                    _ => {}
                }
                if c.is_alphanumeric() || c == '_' {
                    if start && depth == 0 {
                        word.push(c);
                    }
                } else if !word.is_empty() {
                    start = false;
                }
            }
            paths.push((offset, word));
        } else {
            let word = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_');
            paths.push((offset, word.collect()));
        }
    }
    paths.retain(|(_, word)| !word.is_empty());
    paths
}

#[cfg(test)]
mod tests {
    use super::{CRATES, check_engine, check_internal, check_manifest, crate_paths, reexports};
    use crate::tidy::source::Source;

    #[test]
    fn paths_are_found_plain_and_in_braces() {
        let paths =
            crate_paths("use crate::zones::{A, B};\nuse crate::{log::{x, y}, data, error::E};");
        let names: Vec<&str> = paths.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["zones", "log", "data", "error"]);
    }

    #[test]
    fn an_upward_path_and_an_upward_dependency_are_found() {
        let mut findings = Vec::new();
        let text = "use crate::meta::Tree; use crate::error::Error; use crate::zones::Zone;";
        check_engine(
            &Source::new("crates/engine/src/log/writer.rs".into(), text.into()),
            &[],
            &mut findings,
        );
        assert_eq!(findings.len(), 1);
        let manifest = "[dependencies]\npersimmon-vfs.workspace = true\n[dev-dependencies]\npersimmon-sim.workspace = true\n[lints]\nworkspace = true";
        check_manifest(
            "crates/engine/Cargo.toml",
            manifest,
            &["format"],
            &mut findings,
        );
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn what_is_for_the_command_is_used_by_nobody_else() {
        let found = |path: &str| {
            let mut findings = Vec::new();
            let text = "use persimmon::internal::engine::Volume;";
            check_internal(&Source::new(path.into(), text.into()), &mut findings);
            findings.len()
        };
        assert_eq!(found("crates/cli/src/fsck.rs"), 0);
        assert_eq!(found("crates/capi/src/file.rs"), 1);
        assert_eq!(found("tests/mount/src/main.rs"), 1);
    }

    /// The command opened volumes by the engine, beside the library that says it does.
    #[test]
    fn the_doors_name_nothing_below_the_library() {
        let below = |folder: &str, name: &str| {
            let (_, allowed) = CRATES.iter().find(|(crate_, _)| *crate_ == folder).unwrap();
            let manifest =
                format!("[dependencies]\n{name}.workspace = true\n[lints]\nworkspace = true");
            let mut findings = Vec::new();
            check_manifest("Cargo.toml", &manifest, allowed, &mut findings);
            findings.len()
        };
        for name in ["engine", "vfs", "device", "format"] {
            assert_eq!(below("cli", &format!("persimmon-{name}")), 1, "{name}");
            assert_eq!(below("capi", &format!("persimmon-{name}")), 1, "{name}");
        }
        assert_eq!(below("cli", "persimmon"), 0);
        assert_eq!(below("fuse", "persimmon-vfs"), 0);
        assert_eq!(below("fuse", "persimmon-engine"), 1);
    }

    /// `use crate::Volume` names no module, so it was seen by nobody.
    #[test]
    fn an_upward_path_by_way_of_the_root_is_found() {
        let root = "pub use data::{Seek, space::Report};\npub use error::Error;\npub use volume::Volume;\n\
                    pub use zones::budget::Budget as Limits;";
        let reexported = reexports(root);
        let names: Vec<&str> = reexported.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Seek", "Report", "Error", "Volume", "Limits"]);
        let text = "use crate::Volume; use crate::{Error, Limits}; use crate::Seek; use crate::reserves::A;";
        let found = |path: &str| {
            let mut findings = Vec::new();
            let source = Source::new(path.into(), text.into());
            check_engine(&source, &reexported, &mut findings);
            findings.len()
        };
        assert_eq!(found("crates/engine/src/log/writer.rs"), 3);
        assert_eq!(found("crates/engine/src/data/read.rs"), 2);
        assert_eq!(found("crates/engine/src/volume/mod.rs"), 1);
        assert_eq!(found("crates/engine/src/elsewhere.rs"), 1);
    }

    #[test]
    fn cleaning_and_checkpoints_do_not_know_each_other() {
        let found = |path: &str, text: &str| {
            let mut findings = Vec::new();
            let source = Source::new(path.into(), text.into());
            check_engine(&source, &[], &mut findings);
            findings.len()
        };
        let (cleaning, data) = (
            "crates/engine/src/cleaning/moving.rs",
            "crates/engine/src/data/read.rs",
        );
        assert_eq!(found(cleaning, "use crate::checkpoint::Checkpoints;"), 1);
        assert_eq!(found(cleaning, "use crate::store::Store;"), 0);
        assert_eq!(found(data, "self.engine.checkpoints.write()"), 1);
        assert_eq!(found(data, "impl Volume {"), 1);
    }
}
