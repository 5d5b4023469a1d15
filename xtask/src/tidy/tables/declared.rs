//! What sources declare, read from rustfmt's layout of them.

use crate::tidy::source::Source;

/// A field of a struct, or a line of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    /// Its documentation, in one line.
    pub doc: String,
    /// What stands in its attributes.
    pub attributes: String,
    /// Its type, or what else follows the name.
    pub of: String,
}

/// The fields of a struct, or the members of an enum; `None` if it is not in this file.
pub fn items(source: &Source, name: &str) -> Option<Vec<Item>> {
    for keyword in ["struct", "enum"] {
        let begin = format!("{keyword} {name}");
        for (at, _) in source.code.match_indices(&begin) {
            let rest = &source.code[at + begin.len()..];
            if rest.starts_with([' ', '<']) {
                return body(source, at).map(listed);
            }
        }
    }
    None
}

/// The items of the list that begins with this text.
pub fn list(source: &Source, begin: &str) -> Option<Vec<Item>> {
    body(source, source.code.find(begin)?).map(listed)
}

/// What is between the first brace from here on and the one that closes it.
pub fn body(source: &Source, from: usize) -> Option<&str> {
    let open = from + source.code[from..].find('{')?;
    let end = source.closing_brace(open);
    source.text.get(open + 1..end - 1)
}

fn listed(body: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut next = Item::default();
    let (mut depth, mut in_attribute) = (0i32, false);
    for line in body.lines().map(str::trim) {
        let opened = |c| line.matches(c).count() as i32;
        if depth == 0 && (in_attribute || line.starts_with("#[")) {
            next.attributes.push_str(line);
            in_attribute = !line.ends_with(']');
            continue;
        }
        if let Some(doc) = line.strip_prefix("///") {
            if depth == 0 {
                next.doc.push_str(doc);
            }
            continue;
        }
        if depth == 0
            && !line.starts_with("//")
            && let Some(item) = item(line)
        {
            next.name = item.0.to_owned();
            next.of = item.1.to_owned();
            next.doc = next.doc.trim().trim_end_matches('.').to_owned();
            items.push(std::mem::take(&mut next));
        }
        depth += opened(['{', '(']) - opened(['}', ')']);
    }
    items
}

/// The name in a line, and what follows it. In a macro a repeated field is told by its variable.
fn item(line: &str) -> Option<(&str, &str)> {
    let line = match line.strip_prefix("$(") {
        Some(repeated) => &repeated[repeated.find("pub ")?..],
        None => line,
    };
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = line.trim_start_matches('$');
    let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let len = line.len() - rest.len() + len;
    let (name, of) = line.split_at(len);
    let is_item = !name.is_empty() && of.starts_with([':', ',', '(', ' ']);
    is_item.then(|| {
        let of = of.trim_start_matches([':', ' ']);
        (name, of.trim_end_matches([',', ')', '*']))
    })
}

/// A threshold.
#[derive(Debug, PartialEq, Eq)]
pub struct Threshold {
    pub key: String,
    pub unit: String,
    pub least: u64,
    pub most: u64,
    pub what: String,
}

/// All `Threshold { key: ..., unit: ..., least: ..., most: ..., what: ... }` with values.
pub fn thresholds(source: &Source) -> Vec<Threshold> {
    let begin = "Threshold {";
    let starts = source.code.match_indices(begin);
    let starts = starts.filter(|(at, _)| !source.is_test(*at));
    starts
        .filter_map(|(at, _)| {
            let body = body(source, at)?;
            let field = |name: &str| {
                let rest = &body[body.find(&format!("{name}: "))? + name.len() + 2..];
                Some(rest.split(",\n").next()?.trim())
            };
            let text = |name: &str| literals(field(name)?).into_iter().next();
            Some(Threshold {
                key: text("key")?,
                unit: field("unit")?.strip_prefix("Unit::")?.to_owned(),
                least: number(source, field("least")?)?,
                most: number(source, field("most")?)?,
                what: text("what")?,
            })
        })
        .collect()
}

/// The value of a number, a shift of two, or a constant of the file.
fn number(source: &Source, text: &str) -> Option<u64> {
    if let Some((left, right)) = text.split_once("<<") {
        return Some(number(source, left.trim())? << number(source, right.trim())?);
    }
    if let Ok(value) = text.replace('_', "").parse() {
        return Some(value);
    }
    let constant = format!("const {text}: u64 = ");
    let rest = &source.code[source.code.find(&constant)? + constant.len()..];
    number(source, rest.split(';').next()?)
}

/// A mount option.
#[derive(Debug, PartialEq, Eq)]
pub struct MountOption {
    pub name: String,
    /// What its value stands for; empty if it has none.
    pub value: String,
    pub help: String,
}

/// Those of the list `OPTIONS`.
pub fn mount_options(source: &Source) -> Vec<MountOption> {
    let Some(at) = source.code.find("const OPTIONS") else {
        return Vec::new();
    };
    let end = source.code[at..].find("\n];").map_or(at, |end| at + end);
    let list = source.text.get(at..end).unwrap_or_default();
    let mut options = Vec::new();
    // Calls stand at the beginning of a line of the list.
    for call in list.split("\n    flag(").skip(1) {
        let mut parts = call.split("\n    valued(");
        options.extend(parts.next().and_then(|call| option(call, false)));
        options.extend(parts.filter_map(|call| option(call, true)));
    }
    options
}

fn option(call: &str, has_value: bool) -> Option<MountOption> {
    let mut words = literals(call).into_iter();
    Some(MountOption {
        name: words.next()?,
        value: if has_value {
            words.next()?
        } else {
            String::new()
        },
        help: words.next()?,
    })
}

/// The string literals in a piece of code, as they are when it runs.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = code.chars();
    while let Some(c) = chars.next() {
        if c != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => match chars.next() {
                    // A line that goes on in the next one.
                    Some('\n') => {
                        let rest = chars.as_str().trim_start();
                        chars = rest.chars();
                    }
                    Some(escaped) => text.push(escaped),
                    None => break,
                },
                c => text.push(c),
            }
        }
        found.push(text);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crates/x/src/lib.rs".into(), text.into())
    }

    #[test]
    fn fields_of_structs_are_read_with_what_stands_above_them() {
        let text = "/// No.\nstruct Row2 { a: u8, }\n#[derive(Serialize)]\npub struct Row<'a> {\n    /// A number,\n    /// of two lines.\n    \
                    pub zone: u32,\n    #[serde(\n        skip\n    )]\n    hidden: Vec<(u8, u8)>,\n    $($(#[$doc])* pub $counted: u64,)*\n}\n";
        let items = items(&source(text), "Row").unwrap_or_default();
        let names: Vec<(&str, &str)> = items.iter().map(|i| (&*i.name, &*i.doc)).collect();
        assert_eq!(
            names,
            [
                ("zone", "A number, of two lines"),
                ("hidden", ""),
                ("$counted", "")
            ]
        );
        assert_eq!(
            (&*items[0].of, &*items[1].attributes),
            ("u32", "#[serde(skip)]")
        );
    }

    #[test]
    fn lists_and_enums_are_read() {
        let text = "then! {\n    written {\n        /// File data.\n        data_bytes: Data,\n    }\n    counted {\n        \
                    /// Reads.\n        reads,\n    }\n}\nenum Command {\n    Mkfs(mkfs::Mkfs),\n    Reset {\n        zone: u32,\n    },\n    Sync(sync::Sync),\n}\n";
        let text = source(text);
        let names = |items: Option<Vec<Item>>| -> Vec<(String, String)> {
            let items = items.unwrap_or_default().into_iter();
            items.map(|item| (item.name, item.of)).collect()
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            names(list(&text, "written {")),
            [pair("data_bytes", "Data")]
        );
        assert_eq!(names(list(&text, "counted {")), [pair("reads", "")]);
        assert_eq!(
            names(items(&text, "Command")),
            [
                pair("Mkfs", "(mkfs::Mkfs"),
                pair("Reset", "{"),
                pair("Sync", "(sync::Sync")
            ]
        );
    }

    #[test]
    fn thresholds_and_options_are_read() {
        let text = "const MOST: u64 = 1 << 40;\nstruct Threshold {\n    key: &'static str,\n}\nconst A: Threshold = Threshold {\n    \
                    key: \"a_bytes_max\",\n    unit: Unit::Bytes,\n    least: 1_000,\n    most: MOST,\n    what: \"a, b\",\n};\n";
        let threshold = Threshold {
            key: "a_bytes_max".into(),
            unit: "Bytes".into(),
            least: 1000,
            most: 1 << 40,
            what: "a, b".into(),
        };
        assert_eq!(thresholds(&source(text)), [threshold]);
        let text = "pub const OPTIONS: &[OptionSpec] = &[\n    flag(\"ro\", \"write nothing\", f),\n    valued(\n        \"cache\",\n        \
                    \"BYTES\",\n        \"memory, \\\n         much\",\n        |o, v| Err(\"no\"),\n    ),\n];\nflag(\"x\", \"y\", f)";
        let option = |name: &str, value: &str, help: &str| MountOption {
            name: name.into(),
            value: value.into(),
            help: help.into(),
        };
        assert_eq!(
            mount_options(&source(text)),
            [
                option("ro", "", "write nothing"),
                option("cache", "BYTES", "memory, much")
            ]
        );
    }
}
