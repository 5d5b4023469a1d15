//! Any structure as text: fields one a line, lists of alike structures as tables.

use persimmon_format::shown;
use serde::Serialize;
use serde_json::{Map, Value};

/// Draws a structure for people.
#[must_use]
pub fn text(dump: &impl Serialize) -> String {
    let mut out = String::new();
    match serde_json::to_value(dump) {
        Ok(value) => draw(&value, 0, &mut out),
        Err(error) => out.push_str(&error.to_string()),
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn draw(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) => draw_fields(fields, indent, out),
        Value::Array(list) if list.is_empty() => line(indent, "none", out),
        Value::Array(list) => match columns(list) {
            Some(columns) => draw_table(list, &columns, indent, out),
            None => draw_list(list, indent, out),
        },
        scalar => line(indent, &scalar_text(scalar), out),
    }
}

fn line(indent: usize, words: &str, out: &mut String) {
    out.push_str(&" ".repeat(indent));
    out.push_str(words.trim_end());
    out.push('\n');
}

/// Fields whose text somebody else chose: it is shown escaped.
const CHOSEN: [&str; 3] = ["label", "name", "target"];
/// What is behind the name of one in the name of the field with its bytes, where they are no text.
const BYTES: &str = "_bytes";

/// Whether a field has the bytes of a chosen text, which is shown in its place.
fn is_bytes(name: &str) -> bool {
    name.strip_suffix(BYTES)
        .is_some_and(|name| CHOSEN.contains(&name))
}

/// A field that fits a line.
fn field_text(fields: &Map<String, Value>, name: &str, value: &Value) -> String {
    let Some(text) = value.as_str().filter(|_| CHOSEN.contains(&name)) else {
        return scalar_text(value);
    };
    let bytes = fields
        .get(&format!("{name}{BYTES}"))
        .and_then(Value::as_str);
    match bytes.and_then(from_hexadecimal) {
        Some(bytes) => shown(&bytes).to_string(),
        None => shown(text).to_string(),
    }
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

fn draw_fields(fields: &Map<String, Value>, indent: usize, out: &mut String) {
    let width = fields.keys().map(String::len).max().unwrap_or(0) + 1;
    let is_drawn = |name: &str, value: &Value| !value.is_null() && !is_bytes(name);
    for (name, value) in fields.iter().filter(|(name, value)| is_drawn(name, value)) {
        let label = format!("{}:", name.replace('_', " "));
        match value {
            Value::Object(_) | Value::Array(_) if !is_short(value) => {
                line(indent, &label, out);
                draw(value, indent + 2, out);
            }
            short => line(
                indent,
                &format!("{label:width$} {}", field_text(fields, name, short)),
                out,
            ),
        }
    }
}

fn draw_list(list: &[Value], indent: usize, out: &mut String) {
    for (index, value) in list.iter().enumerate() {
        if index > 0 && value.is_object() {
            out.push('\n');
        }
        draw(value, indent, out);
    }
}

/// The columns of a list of structures that have only short fields.
fn columns(list: &[Value]) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for value in list {
        for (name, field) in value.as_object()? {
            if !is_short(field) {
                return None;
            }
            if !names.contains(name) && !is_bytes(name) {
                names.push(name.clone());
            }
        }
    }
    Some(names)
}

fn draw_table(list: &[Value], columns: &[String], indent: usize, out: &mut String) {
    let heads = columns.iter().map(|name| name.replace('_', " ")).collect();
    let mut rows: Vec<Vec<String>> = vec![heads];
    for value in list {
        let cell = |name: &String| {
            let fields = value.as_object()?;
            Some(field_text(fields, name, fields.get(name)?))
        };
        let cells = columns.iter().map(|name| cell(name).unwrap_or_default());
        rows.push(cells.collect());
    }
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        line(indent, &cells.join("  "), out);
    }
}

/// Fits a line: a scalar, or a list of a few of them.
fn is_short(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(list) => {
            list.len() <= 8 && list.iter().all(|v| !v.is_object() && !v.is_array())
        }
        _ => true,
    }
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(list) if list.is_empty() => "none".into(),
        Value::Array(list) => list.iter().map(scalar_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::text;
    use serde_json::json;

    /// A name that is no UTF-8, or that a terminal would obey, is shown escaped, and told whole in JSON.
    #[test]
    fn names_are_shown_escaped() {
        let value = json!({
            "label": "two\nlines",
            "rows": [{"ino": 7, "name": "a\u{fffd}", "name_bytes": "61ff"}, {"ino": 8, "name": "\u{1b}c"}],
        });
        let expected = "\
label: two\\nlines
rows:
  ino  name
  7    a\\xff
  8    \\u{1b}c
";
        assert_eq!(text(&value), expected);
    }

    #[test]
    fn fields_are_lines_and_alike_structures_a_table() {
        let value = json!({
            "page_id": 3,
            "rows": [{"zone": 1, "role": "data"}, {"zone": 12, "role": "log"}],
            "next": null,
        });
        let expected = "\
page id: 3
rows:
  zone  role
  1     data
  12    log
";
        assert_eq!(text(&value), expected);
    }
}
