//! Every Rust file is reached by a `mod`, or is a target of its crate.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Source;

pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut reached = BTreeSet::new();
    for source in sources {
        reached.extend(modules(source));
    }
    for source in sources {
        if !is_target(&source.path) && !reached.contains(&source.path) {
            findings.push(Finding::error(&source.path, "no `mod` leads to this file"));
        }
    }
}

/// Files that Cargo finds by itself.
fn is_target(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let file = parts.next().unwrap_or_default();
    let folder = parts.next().unwrap_or_default();
    matches!(file, "main.rs" | "lib.rs" | "build.rs")
        || matches!(
            folder,
            "bin" | "tests" | "benches" | "examples" | "fuzz_targets"
        )
}

/// The files that the `mod name;` lines of one file may mean.
fn modules(source: &Source) -> Vec<String> {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let base = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ if is_target(&source.path) => folder.to_owned(),
        _ => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    let mut files = Vec::new();
    for line in source.code.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "mod") else {
            continue;
        };
        if let Some(name) = words.get(at + 1).and_then(|word| word.strip_suffix(';')) {
            files.push(format!("{base}/{name}.rs"));
            files.push(format!("{base}/{name}/mod.rs"));
        }
    }
    for (offset, _) in source.text.match_indices("#[path = \"") {
        let rest = &source.text[offset + 10..];
        if let Some(name) = rest.split('"').next() {
            files.push(format!("{folder}/{name}"));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::Source;

    #[test]
    fn a_file_without_a_mod_is_dead() {
        let source = |path: &str, text: &str| Source::new(path.into(), text.into());
        let sources = [
            source("crates/x/src/lib.rs", "mod a;\npub(crate) mod b;"),
            source("crates/x/src/a.rs", "mod inner;"),
            source("crates/x/src/a/inner.rs", ""),
            source("crates/x/src/b/mod.rs", ""),
            source("crates/x/src/lost.rs", ""),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        let places: Vec<&str> = findings
            .iter()
            .map(|finding| finding.place.as_str())
            .collect();
        assert_eq!(places, ["crates/x/src/lost.rs"]);
    }
}
