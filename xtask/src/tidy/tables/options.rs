//! Options of the commands: docs/CLI.md has those that the command has, and its synopsis has no other.

use anyhow::{Result, bail};

use super::declared::items;
use super::{DOCUMENT, find, section_of};
use crate::tidy::Finding;
use crate::tidy::source::Source;

const COMMANDS: &str = "crates/cli/src/main.rs";
const VERBS: &str = "crates/cli/src/fs.rs";

/// An option of a command, as users write it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Opt {
    /// The long one, the short one, or both.
    names: Vec<String>,
    /// It belongs to a part that several commands have, and is told of once.
    is_shared: bool,
}

pub(super) fn check(sources: &[Source], document: &str, findings: &mut Vec<Finding>) -> Result<()> {
    for (command, options) in commands(sources)? {
        let (synopsis, section) = (synopsis(document, &command), section_of(document, &command));
        for option in &options {
            let places = [
                &*synopsis,
                section,
                if option.is_shared { document } else { "" },
            ];
            let is_there = |name: &String| places.iter().any(|text| mentions(text, name));
            if !option.names.iter().any(is_there) {
                findings.push(Finding::error(
                    DOCUMENT,
                    format!(
                        "section {command} does not name the option {}",
                        option.names.join(", ")
                    ),
                ));
            }
        }
        for word in long_options(&synopsis) {
            if !options.iter().any(|option| option.names.contains(&word)) {
                findings.push(Finding::error(
                    DOCUMENT,
                    format!("{command} has no option {word}, which its synopsis names"),
                ));
            }
        }
    }
    Ok(())
}

/// Each command and its options.
fn commands(sources: &[Source]) -> Result<Vec<(String, Vec<Opt>)>> {
    let of_enum = |path: &str, name: &str| match items(find(sources, path)?, name) {
        Some(variants) => Ok(variants),
        None => bail!("{path} has no enum {name}"),
    };
    let mut commands = Vec::new();
    for variant in of_enum(COMMANDS, "Command")? {
        let mut options = Vec::new();
        if variant.name == "Fs" {
            for verb in of_enum(VERBS, "Verb")? {
                options.extend(options_of(sources, type_name(&verb.of), false)?);
            }
        } else {
            options = options_of(sources, type_name(&variant.of), false)?;
        }
        commands.push((written(&variant.name), options));
    }
    Ok(commands)
}

/// The name of a command as users write it: `UpgradeDaemon` is `upgrade-daemon`.
fn written(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The struct in the parentheses of a variant.
fn type_name(of: &str) -> &str {
    let path = of.trim_end_matches('>');
    path.rsplit([':', '<', '(']).next().unwrap_or_default()
}

fn options_of(sources: &[Source], name: &str, is_shared: bool) -> Result<Vec<Opt>> {
    let cli = sources
        .iter()
        .filter(|s| s.path.starts_with("crates/cli/src/"));
    let Some(fields) = cli.filter_map(|source| items(source, name)).next() else {
        bail!("crates/cli/src has no struct {name}");
    };
    let mut options = Vec::new();
    for field in fields {
        if field.attributes.contains("command(flatten)") {
            options.extend(options_of(sources, type_name(&field.of), true)?);
            continue;
        }
        let names = option_names(&field.name, &field.attributes);
        if !names.is_empty() {
            options.push(Opt { names, is_shared });
        }
    }
    Ok(options)
}

/// The names of an option; none of an argument without, and of what `--help` does not show. `--json` is the same everywhere,
/// and told of once.
fn option_names(field: &str, attributes: &str) -> Vec<String> {
    let Some(arg) = attributes.split("#[arg(").nth(1) else {
        return Vec::new();
    };
    if arg.contains("hide = true") || arg.contains("ArgAction::Help") || field == "json" {
        return Vec::new();
    }
    let parts = || arg.trim_end_matches(")]").split(',').map(str::trim);
    let value = |key: &str, otherwise: &str| {
        parts().find_map(|part| match part.split_once(" = ") {
            Some((name, value)) if name == key => Some(value.trim_matches(['"', '\'']).to_owned()),
            None if part == key => Some(otherwise.to_owned()),
            _ => None,
        })
    };
    let long = value("long", &field.replace('_', "-")).map(|long| format!("--{long}"));
    let short = value("short", field.get(..1).unwrap_or_default());
    let short = short.map(|short| format!("-{short}"));
    long.into_iter().chain(short).collect()
}

/// The lines that show how a command is called.
fn synopsis(document: &str, command: &str) -> String {
    let begin = "    persimmon ";
    let is_its = |line: &str| {
        line.strip_prefix(begin)
            .and_then(|rest| rest.split_whitespace().next())
            .map(|word| word == command)
    };
    let mut text = String::new();
    let mut inside = false;
    let first = document.split("\n\n").find(|part| part.starts_with(begin));
    for line in first.unwrap_or_default().lines() {
        inside = is_its(line).unwrap_or(inside);
        if inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '-'
}

fn mentions(text: &str, option: &str) -> bool {
    text.match_indices(option).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + option.len()..].chars().next();
        !before.is_some_and(is_of_word) && !after.is_some_and(is_of_word)
    })
}

fn long_options(text: &str) -> Vec<String> {
    text.split(|c| !is_of_word(c))
        .filter(|word| word.starts_with("--"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_options_are_read_from_their_attributes() {
        let names = |field: &str, attributes: &str| option_names(field, attributes).join(" ");
        assert_eq!(names("dry_run", "#[arg(long)]"), "--dry-run");
        let of = "#[arg(short = 'o', long = \"options\", value_name = \"OPTIONS\")]";
        assert_eq!(names("all", of), "--options -o");
        assert_eq!(names("long", "#[arg(short)]"), "-l");
        let of = "#[arg(short = 'n', conflicts_with_all = [\"a\"])]";
        assert_eq!(names("no", of), "-n");
        assert_eq!(names("v", "#[arg(short, hide = true)]"), "");
        assert_eq!(names("device", "#[arg(value_name = \"DEVICE\")]"), "");
        assert_eq!(names("device", ""), "");
    }

    #[test]
    fn what_a_synopsis_names_is_found() {
        let document = "x\n\n    persimmon a  X [--one]\n                 [--two 8G]\n    persimmon b  [--three-four]\n\ny\n";
        assert_eq!(long_options(&synopsis(document, "a")), ["--one", "--two"]);
        assert_eq!(long_options(&synopsis(document, "b")), ["--three-four"]);
        assert!(mentions("[--one]", "--one") && !mentions("--one-more", "--one"));
        assert!(mentions("`-a` or `-p`", "-a") && !mentions("--all", "-a"));
    }

    #[test]
    fn types_of_variants_are_read() {
        assert_eq!(type_name("(mkfs::Mkfs"), "Mkfs");
        assert_eq!(type_name("(Box<mount::Mount>"), "Mount");
        assert_eq!(type_name("Shape"), "Shape");
    }
}
