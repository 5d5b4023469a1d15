//! docs/CLI.md says what the sources declare: the tables between its marks are written from them by `--bless`, and
//! what else it names of fields and options has to be there.

mod declared;
mod options;

use std::path::Path;

use anyhow::{Result, bail};

use super::Finding;
use super::source::Source;
use declared::{Item, items, list};

const DOCUMENT: &str = "docs/CLI.md";
const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end of table -->";

const ENGINE: &str = "crates/engine/src/statistics.rs";
const REPORT: &str = "crates/cli/src/report.rs";

/// Tables of the fields of a struct: the name in the mark, the file, the struct, and the head of the table.
const STRUCTS: &[(&str, &str, &str, &str)] = &[
    ("info", REPORT, "Info", "field"),
    ("usage", "crates/cli/src/usage.rs", "Answer", "field"),
    ("zones", REPORT, "ZoneRow", "field"),
    ("dedup", "crates/cli/src/fs/dedup.rs", "Outcome", "field"),
    ("stats", REPORT, "Stats", "field"),
    (
        "fsck volume",
        "crates/inspect/src/volume.rs",
        "VolumeInfo",
        "`report.volume`",
    ),
    (
        "fsck counts",
        "crates/inspect/src/check/mod.rs",
        "Counts",
        "`report.counts`, after the replay of the journal",
    ),
    (
        "simulate",
        "crates/lab/src/measure/report.rs",
        "Report",
        "field",
    ),
    ("devices", "crates/cli/src/devices.rs", "Device", "field"),
];

/// Structs that are printed as JSON, whose fields the section of the command names otherwise.
const NAMED: &[(&str, &str, &[&str])] = &[
    ("mkfs", "crates/cli/src/mkfs.rs", &["Made", "MadeDevice"]),
    ("fsck", "crates/cli/src/fsck.rs", &["Outcome"]),
    ("fsck", "crates/inspect/src/check/mod.rs", &["Report"]),
    ("fsck", "crates/inspect/src/finding.rs", &["Finding"]),
    ("scrub", "crates/cli/src/scrub.rs", &["Outcome", "Row"]),
    ("scrub", "crates/cli/src/control.rs", &["Found"]),
    ("stats", REPORT, &["LatencyBucket"]),
    ("info", REPORT, &["Features"]),
    (
        "usage",
        "crates/inspect/src/usage.rs",
        &["ContentUsage", "UsageByStorage"],
    ),
    ("grow", "crates/cli/src/grow.rs", &["Grown"]),
    ("label, uuid", "crates/cli/src/names.rs", &["Names"]),
    ("clean", "crates/cli/src/clean.rs", &["Outcome"]),
    ("tune", "crates/cli/src/control/tune.rs", &["Setting"]),
    ("sync", "crates/cli/src/sync.rs", &["Synced"]),
    ("probe", "crates/cli/src/probe.rs", &["Found"]),
    ("fs", "crates/cli/src/fs/df.rs", &["Row"]),
    ("fs", "crates/cli/src/fs/ls.rs", &["Row"]),
    ("fs", "crates/cli/src/fs/names.rs", &["Removed"]),
    ("fs", "crates/cli/src/fs/tree.rs", &["Tally"]),
    (
        "dump",
        "crates/inspect/src/dump/content.rs",
        &["InodeDump", "DirectoryRow", "ExtentRow", "ItemDump"],
    ),
    (
        "dump",
        "crates/inspect/src/dump/blocks.rs",
        &[
            "ZoneHeaderDump",
            "EnvelopeDump",
            "BlockDump",
            "PageDump",
            "SummaryDump",
            "PackedRow",
            "SummaryRow",
        ],
    ),
    (
        "dump",
        "crates/inspect/src/dump/log.rs",
        &["LogDump", "LogZoneRow", "LogBlockDump", "RecordDump"],
    ),
    (
        "dump",
        "crates/inspect/src/dump/tables.rs",
        &["FooterDump", "CountRow", "MatRow", "ZitRow"],
    ),
    (
        "simulate",
        "crates/lab/src/measure/report.rs",
        &["Written", "Usage", "Spread"],
    ),
    (
        "simulate",
        "crates/lab/src/measure/latency.rs",
        &["Percentiles"],
    ),
];

/// A table of the document, and what it should be.
struct Table {
    name: String,
    rows: String,
}

pub fn check(root: &Path, sources: &[Source], findings: &mut Vec<Finding>) -> Result<()> {
    let document = std::fs::read_to_string(root.join(DOCUMENT))?;
    let tables = tables(sources)?;
    for table in &tables {
        match between(&document, &table.name) {
            Some(there) if there == table.rows => {}
            Some(_) => findings.push(Finding::error(
                DOCUMENT,
                format!(
                    "the table \"{}\" is not what the sources declare: `cargo xtask tidy --bless`",
                    table.name
                ),
            )),
            None => findings.push(Finding::error(
                DOCUMENT,
                format!(
                    "has no table between `{BEGIN}{} -->` and `{END}`",
                    table.name
                ),
            )),
        }
    }
    for (at, _) in document.match_indices(BEGIN) {
        let name = document[at + BEGIN.len()..].split(" -->").next();
        if !tables.iter().any(|table| Some(&*table.name) == name) {
            findings.push(Finding::error(
                DOCUMENT,
                "has a mark of a table that nothing declares",
            ));
        }
    }
    // What holds for all commands stands before the first of them.
    let general = document.split("\n## ").next().unwrap_or_default();
    for (section, path, names) in NAMED {
        for name in *names {
            let is_missing = |field: &String| {
                let field = format!("`{field}`");
                !general.contains(&field) && !section_of(&document, section).contains(&field)
            };
            let fields = fields(find(sources, path)?, name)?;
            let missing = fields.iter().filter(|field| is_missing(field));
            findings.extend(missing.map(|field| {
                Finding::error(
                    DOCUMENT,
                    format!("section {section} does not name `{field}` ({name} in {path})"),
                )
            }));
        }
    }
    options::check(sources, &document, findings)
}

/// Writes the tables into the document.
pub fn bless(root: &Path, sources: &[Source]) -> Result<()> {
    let path = root.join(DOCUMENT);
    let mut document = std::fs::read_to_string(&path)?;
    for table in tables(sources)? {
        let Some(there) = between(&document, &table.name) else {
            bail!(
                "{DOCUMENT} has no table between `{BEGIN}{} -->` and `{END}`",
                table.name
            );
        };
        let start = there.as_ptr() as usize - document.as_ptr() as usize;
        let end = start + there.len();
        document.replace_range(start..end, &table.rows);
    }
    std::fs::write(path, document)?;
    println!("{DOCUMENT} has the tables that the sources declare");
    Ok(())
}

/// What stands between the marks of a table.
fn between<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("{BEGIN}{name} -->\n");
    let rest = &document[document.find(&begin)? + begin.len()..];
    Some(&rest[..rest.find(END)?])
}

/// The text below the heading of a command.
fn section_of<'a>(document: &'a str, command: &str) -> &'a str {
    let heading = format!("\n## {command}\n");
    let Some(at) = document.find(&heading) else {
        return "";
    };
    let rest = &document[at + heading.len()..];
    rest.find("\n## ").map_or(rest, |end| &rest[..end])
}

fn find<'s>(sources: &'s [Source], path: &str) -> Result<&'s Source> {
    match sources.iter().find(|source| source.path == path) {
        Some(source) => Ok(source),
        None => bail!("there is no {path}, which has tables of {DOCUMENT}"),
    }
}

fn tables(sources: &[Source]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    let mut add = |name: &str, head: &str, rows: Vec<Vec<String>>| {
        let columns = head.matches(" | ").count() + 1;
        let mut text = format!("| {head} |\n|{}\n", "---|".repeat(columns));
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        let name = name.to_owned();
        tables.push(Table { name, rows: text });
    };
    for (name, path, of, head) in STRUCTS {
        let Some(fields) = items(find(sources, path)?, of) else {
            bail!("{path} has no struct {of}");
        };
        let mut rows = Vec::new();
        for field in fields {
            // What the engine counts stands in one list, that declares fields by a macro.
            match field.name.as_str() {
                "$written" => rows.extend(counters(sources, "written {")?),
                "$counted" => rows.extend(counters(sources, "counted {")?),
                _ => rows.extend(json_name(&field).map(|name| row(&name, &field.doc))),
            }
        }
        add(name, &format!("{head} | meaning"), rows);
    }
    let mut thresholds = declared::thresholds(find(sources, "crates/engine/src/tuning.rs")?);
    let of_library = find(sources, "crates/persimmon/src/background.rs")?;
    thresholds.extend(declared::thresholds(of_library));
    let rows = thresholds.into_iter().map(|threshold| {
        let range = format!(
            "{} to {}",
            shown(threshold.least, &threshold.unit),
            shown(threshold.most, &threshold.unit)
        );
        vec![format!("`{}`", threshold.key), range, threshold.what]
    });
    add("thresholds", "threshold | range | meaning", rows.collect());
    let options = declared::mount_options(find(sources, "crates/fuse/src/options/table.rs")?);
    let rows = options.into_iter().map(|option| {
        let equals = if option.value.is_empty() { "" } else { "=" };
        row(
            &format!("{}{equals}{}", option.name, option.value),
            &option.help,
        )
    });
    add("mount options", "option | meaning", rows.collect());
    Ok(tables)
}

/// A sentence about something in the words of a table: it begins with a small letter, unless with a word of capitals.
fn row(name: &str, meaning: &str) -> Vec<String> {
    let mut letters = meaning.chars();
    let meaning = match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            format!("{}{}", first.to_lowercase(), &meaning[first.len_utf8()..])
        }
        _ => meaning.to_owned(),
    };
    vec![format!("`{name}`"), meaning]
}

fn counters(sources: &[Source], begin: &str) -> Result<Vec<Vec<String>>> {
    let Some(counters) = list(find(sources, ENGINE)?, begin) else {
        bail!("{ENGINE} has no list that begins with `{begin}`");
    };
    Ok(counters
        .iter()
        .map(|item| row(&item.name, &item.doc))
        .collect())
}

/// The fields of a struct as its JSON has them.
fn fields(source: &Source, name: &str) -> Result<Vec<String>> {
    match items(source, name) {
        Some(items) => Ok(items.iter().filter_map(json_name).collect()),
        None => bail!("{} has no struct {name}", source.path),
    }
}

/// The name of a field in JSON; none of what is left out, or has members in its place.
fn json_name(field: &Item) -> Option<String> {
    let attributes = &field.attributes;
    if attributes.contains("serde(skip)") || attributes.contains("serde(flatten)") {
        return None;
    }
    let renamed = attributes.split("rename = \"").nth(1);
    let name = renamed.and_then(|rest| rest.split('"').next());
    Some(name.unwrap_or(&field.name).to_owned())
}

/// A bound of a threshold, as its user writes it.
fn shown(value: u64, unit: &str) -> String {
    match unit {
        "Bytes" => {
            let units = ["", "K", "M", "G", "T", "P"];
            let power = (value.trailing_zeros() / 10).min(5) as usize;
            match value {
                0 => "0".to_owned(),
                _ => format!("{}{}", value >> (10 * power), units[power]),
            }
        }
        "BasisPoints" => format!("{}%", value as f64 / 100.0),
        "Percent" => format!("{value}%"),
        "Seconds" => format!("{value} s"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_tables_are_found() {
        let document = "# x\n## a\nA\n<!-- table: t -->\n| h |\n<!-- end of table -->\n\n## b\nB\n";
        assert_eq!(between(document, "t"), Some("| h |\n"));
        assert_eq!(between(document, "u"), None);
        assert_eq!(section_of(document, "b"), "B\n");
        assert!(section_of(document, "a").ends_with("-->\n"));
    }

    #[test]
    fn bounds_are_shown_as_users_write_them() {
        let bounds = [
            (1 << 20, "Bytes"),
            (256 << 10, "Bytes"),
            (0, "Bytes"),
            (5000, "BasisPoints"),
        ];
        let shown: Vec<String> = bounds
            .iter()
            .map(|(value, unit)| shown(*value, unit))
            .collect();
        assert_eq!(shown, ["1M", "256K", "0", "50%"]);
    }

    #[test]
    fn fields_have_their_names_in_json() {
        let item = |attributes: &str| Item {
            name: "kind".into(),
            attributes: attributes.into(),
            ..Item::default()
        };
        assert_eq!(
            json_name(&item("#[serde(rename = \"type\")]")).as_deref(),
            Some("type")
        );
        assert_eq!(
            json_name(&item("#[serde(default)]")).as_deref(),
            Some("kind")
        );
        assert_eq!(json_name(&item("#[serde(flatten)]")), None);
    }
}
