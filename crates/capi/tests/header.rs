//! The header that C sees is the one that this crate has, and the list of what the shared library shows is that of the header. After a
//! change of the crate: `PERSIMMON_BLESS=1 cargo test -p persimmon-capi --test header`.

#![allow(clippy::unwrap_used, reason = "tests from top to bottom")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn header() -> String {
    std::fs::read_to_string(root().join("include/persimmon.h")).unwrap_or_default()
}

#[test]
fn the_header_is_that_of_the_crate() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root(), config)
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("PERSIMMON_BLESS").is_some() {
        std::fs::write(root().join("include/persimmon.h"), &made).unwrap();
    }
    assert!(
        made == header(),
        "include/persimmon.h is not that of the crate; see the top of this test"
    );
}

/// Functions that a header declares.
fn declared(header: &str) -> BTreeSet<&str> {
    let code = header.lines().filter(|line| !line.starts_with("//"));
    code.filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("persimmon_"))
        .collect()
}

/// Functions that a linker's map lists: one a line, each below the version that it came with.
fn listed(map: &str) -> Vec<&str> {
    let lines = map.lines().map(str::trim);
    lines
        .filter_map(|line| line.strip_suffix(';'))
        .filter(|name| name.starts_with("persimmon_"))
        .collect()
}

/// A pattern would give a function that is added later the version of the first ones, and a program that needs it would start with a
/// library that has it not.
#[test]
fn each_function_has_one_version_in_the_map() {
    let map = std::fs::read_to_string(root().join("persimmon.map")).unwrap();
    let (header, listed) = (header(), listed(&map));
    let once: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(once.len(), listed.len(), "a function is listed twice");
    assert_eq!(once, declared(&header));
}

/// Functions that answer what cannot panic.
const PLAIN: [&str; 2] = ["persimmon_error_message", "persimmon_version"];
/// What catches panics: `call` itself, and the helpers that end in it.
const CATCHES: [&str; 5] = [
    "call(|| {",
    "by_path(fs,",
    "by_two_paths(fs,",
    "set(fs,",
    "fetch(fs,",
];

/// A panic that reaches the edge to C ends the process.
#[test]
fn every_function_catches_panics() {
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split("extern \"C\" fn ").skip(1) {
            let name = part.split('(').next().unwrap().to_owned();
            let body = part.split("\n}\n").next().unwrap();
            let catches = CATCHES.iter().any(|catch| body.contains(catch));
            if name.starts_with("persimmon_") {
                assert!(catches || PLAIN.contains(&name.as_str()), "{name}");
                seen.insert(name);
            }
        }
    }
    let header = header();
    let declared: BTreeSet<String> = declared(&header).into_iter().map(str::to_owned).collect();
    assert_eq!(seen, declared);
}
