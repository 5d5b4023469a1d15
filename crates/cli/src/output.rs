//! Printing for people and for programs.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

/// Prints one JSON document.
///
/// # Errors
/// When standard output does not take it.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Tells a line on standard error, if anybody still reads that: a daemon must outlive its readers, and
/// `eprintln!` panics without one.
pub fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Colours are for terminals, and for those who did not ask to be spared them.
pub fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::stdout().is_terminal()
}

/// Columns of the terminal, or 80.
pub fn width_columns() -> usize {
    if let Some(columns) = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        return usize::clamp(columns, 20, 500);
    }
    rustix::termios::tcgetwinsize(std::io::stdout())
        .map_or(80, |size| usize::from(size.ws_col))
        .clamp(20, 500)
}

/// Prints rows in columns: numbers are right-aligned where `right` says so.
pub fn table(headings: &[&str], right: &[bool], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut row = String::new();
        for (i, (cell, width)) in cells.zip(&widths).enumerate() {
            if i > 0 {
                row.push_str("  ");
            }
            if right.get(i).copied().unwrap_or(false) {
                row.push_str(&format!("{cell:>width$}"));
            } else {
                row.push_str(&format!("{cell:<width$}"));
            }
        }
        text.push_str(row.trim_end());
        text.push('\n');
    };
    line(&mut headings.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["1".into(), "log".into()],
            vec!["12".into(), "metadata".into()],
        ];
        let text = super::table(&["zone", "role"], &[true, false], &rows);
        assert_eq!(text, "zone  role\n   1  log\n  12  metadata\n");
    }
}
