//! docs/FORMAT.md is normative: it names what crates/format declares and changes when that changes.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use xxhash_rust::xxh3::Xxh3;

use super::Finding;
use super::source::Source;

const DOCUMENT: &str = "docs/FORMAT.md";
const MARK: &str = "<!-- crates/format/src at ";
const MARK_END: &str = " -->";

pub fn check(root: &Path, sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    let path = root.join(DOCUMENT);
    if !path.exists() {
        findings.push(Finding::error(DOCUMENT, "missing"));
        return Ok(());
    }
    let document = std::fs::read_to_string(path)?;
    let words: BTreeSet<&str> = document
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    for source in format_sources(sources) {
        for (offset, name) in declared(source) {
            if !words.contains(name.as_str()) {
                findings.push(Finding::error(
                    format!("{}:{}", source.path, source.line(offset)),
                    format!("{DOCUMENT} does not mention {name}"),
                ));
            }
        }
    }
    let present = fingerprint(sources);
    match recorded(&document) {
        Some(hash) if hash == present => {}
        Some(_) => findings.push(Finding::error(
            DOCUMENT,
            "crates/format/src has changed: bring the document up to date, then `cargo xtask tidy --bless`",
        )),
        None => findings.push(Finding::error(
            DOCUMENT,
            "records no state of crates/format/src: `cargo xtask tidy --bless`",
        )),
    }
    Ok(())
}

/// Writes the present hash into the document.
pub fn bless(root: &Path, sources: &[Source]) -> Result<()> {
    let path = root.join(DOCUMENT);
    let document = std::fs::read_to_string(&path).with_context(|| format!("reading {DOCUMENT}"))?;
    let mark = format!("{MARK}{}{MARK_END}", fingerprint(sources));
    let blessed = match recorded(&document) {
        Some(old) => document.replacen(&format!("{MARK}{old}{MARK_END}"), &mark, 1),
        None if document.contains(MARK) => bail!("{DOCUMENT} holds a broken mark `{MARK}`"),
        None => format!("{}\n\n{mark}\n", document.trim_end()),
    };
    std::fs::write(path, blessed)?;
    println!("{DOCUMENT} records crates/format/src as it is now");
    Ok(())
}

fn format_sources(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources
        .iter()
        .filter(|source| source.path.starts_with("crates/format/src/"))
}

fn recorded(document: &str) -> Option<&str> {
    let rest = &document[document.find(MARK)? + MARK.len()..];
    Some(&rest[..rest.find(MARK_END)?])
}

/// A hash of the code alone: neither comments, nor layout, nor tests change the format.
fn fingerprint(sources: &[Source]) -> String {
    let mut hash = Xxh3::new();
    for source in format_sources(sources) {
        hash.update(source.path.as_bytes());
        for (offset, part) in words(&source.code) {
            if !source.is_test(offset) {
                hash.update(part.as_bytes());
                hash.update(b" ");
            }
        }
        for (offset, literal) in byte_strings(source) {
            if !source.is_test(offset) {
                hash.update(literal.as_bytes());
            }
        }
    }
    format!("{:016x}", hash.digest())
}

fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.split_whitespace()
        .map(move |word| (word.as_ptr() as usize - code.as_ptr() as usize, word))
}

/// Magic values: `b"..."`, which the blanked code no longer shows.
fn byte_strings(source: &Source) -> Vec<(usize, &str)> {
    let code = source.code.as_bytes();
    source
        .text
        .match_indices("b\"")
        .filter(|(offset, _)| code[*offset] == b'b')
        .filter_map(|(offset, _)| {
            let rest = &source.text[offset + 2..];
            Some((offset, &rest[..rest.find('"')?]))
        })
        .collect()
}

/// Names of public constants.
fn declared(source: &Source) -> Vec<(usize, String)> {
    source
        .code
        .match_indices("pub const ")
        .filter(|(offset, _)| !source.is_test(*offset))
        .filter_map(|(offset, found)| {
            let rest = &source.code[offset + found.len()..];
            let name: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            (rest[name.len()..].starts_with(':') && name != "_").then_some((offset, name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{declared, fingerprint, recorded};
    use crate::tidy::source::Source;

    fn format(text: &str) -> Source {
        Source::new("crates/format/src/lib.rs".into(), text.into())
    }

    #[test]
    fn the_hash_follows_code_and_magic_but_not_comments_or_tests() {
        let base = fingerprint(&[format("pub const A: &[u8] = b\"ABC\";")]);
        let same =
            "// why\npub const A:  &[u8] =\n  b\"ABC\";\n#[cfg(test)]\nmod tests { fn t() {} }";
        assert_eq!(base, fingerprint(&[format(same)]));
        assert_ne!(
            base,
            fingerprint(&[format("pub const A: &[u8] = b\"ABD\";")])
        );
        assert_ne!(
            base,
            fingerprint(&[format("pub const B: &[u8] = b\"ABC\";")])
        );
    }

    #[test]
    fn constants_and_the_mark_are_read() {
        let names: Vec<String> = declared(&format("pub const BLOCK: u8 = 1; pub const fn f() {}"))
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["BLOCK"]);
        assert_eq!(
            recorded("x <!-- crates/format/src at 00ff --> y"),
            Some("00ff")
        );
    }
}
