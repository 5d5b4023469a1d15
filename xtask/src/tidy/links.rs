//! Links between the documents, and mentions of documents in the code, lead somewhere.

use std::path::Path;

use anyhow::Result;

use super::Finding;

pub fn check(root: &Path, files: &[String], findings: &mut Vec<Finding>) -> Result<()> {
    for file in files {
        let markdown = file.ends_with(".md");
        if !markdown && !file.ends_with(".rs") && !file.ends_with(".toml") {
            continue;
        }
        let text = std::fs::read_to_string(root.join(file))?;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{file}:{}", number + 1);
            for document in mentions(line) {
                if !root.join(document).exists() {
                    findings.push(Finding::error(&place, format!("{document} does not exist")));
                }
            }
            if markdown {
                check_links(root, file, line, &place, findings)?;
            }
        }
    }
    Ok(())
}

fn check_links(
    root: &Path,
    file: &str,
    line: &str,
    place: &str,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    for target in links(line) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let full = if path.is_empty() {
            root.join(file)
        } else {
            root.join(folder).join(path)
        };
        if !full.exists() {
            findings.push(Finding::error(
                place,
                format!("link to {target}: no such file"),
            ));
        } else if !anchor.is_empty() && full.extension().is_some_and(|end| end == "md") {
            let headings = std::fs::read_to_string(&full)?;
            if !headings
                .lines()
                .any(|line| slug(line).as_deref() == Some(anchor))
            {
                findings.push(Finding::error(
                    place,
                    format!("link to {target}: no such heading"),
                ));
            }
        }
    }
    Ok(())
}

/// Targets of `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, found)| {
        let rest = &line[at + found.len()..];
        rest.split(')').next().filter(|target| !target.is_empty())
    })
}

/// Documents named in passing: a path that starts with the folder of the documents.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("docs/").filter_map(|(at, _)| {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "/._-".contains(c)) {
            return None;
        }
        let rest = &line[at..];
        let end = rest.find(".md")? + 3;
        let name = &rest[..end];
        name[5..]
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
            .then_some(name)
    })
}

/// A heading's anchor as GitHub makes it.
fn slug(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    Some(
        title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::{links, mentions, slug};

    #[test]
    fn links_mentions_and_headings_are_read() {
        let line =
            "See [the format](docs/FORMAT.md#pages), docs/POSIX.md and https://x.org/docs/A.md.";
        assert_eq!(links(line).collect::<Vec<_>>(), ["docs/FORMAT.md#pages"]);
        assert_eq!(
            mentions(line).collect::<Vec<_>>(),
            ["docs/FORMAT.md", "docs/POSIX.md"]
        );
        assert_eq!(
            slug("## Log zones, in short").as_deref(),
            Some("log-zones-in-short")
        );
    }
}
