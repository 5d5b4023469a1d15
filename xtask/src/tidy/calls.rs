//! Calls between the files of one folder of the engine, by the names of methods: a few files may call each other in a circle, as long as
//! one can read them together.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::Source;

const ROOT: &str = "crates/engine/src/";
/// Files that may call each other in a circle.
const CYCLE_MAX: usize = 4;
/// Methods of the facade.
const VOLUME_METHODS_MAX: usize = 60;

/// The methods of one type in one file, and the bodies of all of them.
#[derive(Default)]
struct Methods {
    names: BTreeSet<String>,
    bodies: String,
}

/// By type and file.
type Types = BTreeMap<String, BTreeMap<String, Methods>>;

pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut types = Types::new();
    for source in sources {
        let Some(file) = source.path.strip_prefix(ROOT) else {
            continue;
        };
        collect(file, source, &mut types);
    }
    for (name, files) in &types {
        let calls = calls(files);
        for cycle in cycles(&calls) {
            if cycle.len() > CYCLE_MAX {
                let cycle: Vec<&str> = cycle.iter().map(String::as_str).collect();
                findings.push(Finding::error(
                    format!("{ROOT}{}", cycle.first().copied().unwrap_or_default()),
                    format!(
                        "{} files call each other's methods of {name} in a circle, {CYCLE_MAX} may: {}",
                        cycle.len(),
                        cycle.join(" ")
                    ),
                ));
            }
        }
    }
    let volume = types.get("Volume");
    let methods = volume.map_or(0, |files| files.values().map(|m| m.names.len()).sum());
    if methods > VOLUME_METHODS_MAX {
        findings.push(Finding::error(
            format!("{ROOT}volume/mod.rs"),
            format!("Volume has {methods} methods, and {VOLUME_METHODS_MAX} at most"),
        ));
    }
}

/// The methods in the `impl` blocks of a file.
fn collect(file: &str, source: &Source, types: &mut Types) {
    let mut within: Option<(String, i32)> = None;
    let mut offset = 0;
    for line in source.code.split_inclusive('\n') {
        let at = offset;
        offset += line.len();
        let depth = line.matches('{').count() as i32 - line.matches('}').count() as i32;
        match &mut within {
            None => {
                if let Some(name) = implemented(line).filter(|_| !source.is_test(at)) {
                    within = (depth > 0).then_some((name, depth));
                }
            }
            Some((name, open)) => {
                let files = types.entry(name.clone()).or_default();
                let methods = files.entry(file.to_owned()).or_default();
                if *open == 1
                    && let Some(method) = method(line)
                {
                    methods.names.insert(method);
                }
                methods.bodies.push_str(line);
                *open += depth;
                if *open <= 0 {
                    within = None;
                }
            }
        }
    }
}

/// The type of an `impl` block that begins in this line, if it is no trait's.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    (!rest.contains(" for ") && !name.is_empty()).then_some(name)
}

/// The name of a method that begins in this line.
fn method(line: &str) -> Option<String> {
    let line = line.strip_prefix("    ")?;
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.split_once(' ')?.1,
        None => line,
    };
    let line = line.strip_prefix("const ").unwrap_or(line);
    let rest = line.strip_prefix("fn ")?;
    let name = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_');
    Some(name.collect())
}

/// Which file calls methods of which others.
fn calls(files: &BTreeMap<String, Methods>) -> BTreeMap<String, BTreeSet<String>> {
    let mut owner = BTreeMap::new();
    for (file, methods) in files {
        for name in &methods.names {
            owner.insert(name.as_str(), file);
        }
    }
    let called = |(file, methods): (&String, &Methods)| {
        let names = called_on_self(&methods.bodies);
        let others = names.iter().filter_map(|name| owner.get(name.as_str()));
        let others = others.filter(|other| **other != file);
        (file.clone(), others.map(|other| (*other).clone()).collect())
    };
    files.iter().map(called).collect()
}

/// The names of methods that are called on `self`, which may be followed by the end of a line.
fn called_on_self(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, word) in code.match_indices("self") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            continue;
        }
        let Some(rest) = code[at + word.len()..].trim_start().strip_prefix('.') else {
            continue;
        };
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let after = &rest[name.len()..];
        if after.starts_with('(') || after.starts_with("::<") {
            names.insert(name);
        }
    }
    names
}

/// The sets of files of which each reaches all others.
fn cycles(calls: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(file) = next.pop() {
            for called in calls.get(file).into_iter().flatten() {
                if reached.insert(called.clone()) {
                    next.push(called);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        calls.keys().map(|file| (file, reach(file))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (file, others) in &reached {
        if others.contains(*file) {
            let back = |other: &&String| reached.get(*other).is_some_and(|r| r.contains(*file));
            found.insert(others.iter().filter(back).cloned().collect());
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let source =
            |(name, code): &(&str, &str)| Source::new(format!("{ROOT}{name}"), (*code).to_owned());
        let sources: Vec<Source> = files.iter().map(source).collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    fn ring(files: usize) -> Vec<(String, String)> {
        let one = |n: usize| {
            let next = (n + 1) % files;
            let code = format!(
                "impl Part {{\n    fn m{n}(&self) {{\n        self\n            .m{next}();\n    }}\n}}\n"
            );
            (format!("part/f{n}.rs"), code)
        };
        (0..files).map(one).collect()
    }

    #[test]
    fn a_large_circle_is_found_and_a_small_one_is_not() {
        let of = |files: usize| {
            let ring = ring(files);
            let ring: Vec<(&str, &str)> = ring.iter().map(|(a, b)| (&**a, &**b)).collect();
            found(&ring).len()
        };
        assert_eq!((of(CYCLE_MAX), of(CYCLE_MAX + 1)), (0, 1));
    }

    #[test]
    fn calls_are_those_on_self_alone() {
        let code = "self.a(); self.b.c(); myself.d(); other.self_e(); self.f::<u8>(); self.g;";
        let names: Vec<String> = called_on_self(code).into_iter().collect();
        assert_eq!(names, ["a", "f"]);
    }

    #[test]
    fn the_facade_stays_small() {
        let methods: String = (0..=VOLUME_METHODS_MAX)
            .map(|n| format!("    pub fn m{n}(&self) {{}}\n"))
            .collect();
        let code = format!("impl Volume {{\n{methods}}}\n");
        assert_eq!(found(&[("volume/mod.rs", &code)]).len(), 1);
    }
}
