//! The zones as a picture: one cell a zone, coloured by role, filled by the share of valid blocks.

use crate::report::ZoneRow;

/// Columns for the number of a row's first zone.
const MARGIN: usize = 8;
const FILLS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const RESET: &str = "\x1b[0m";

/// Role, letter where there is no colour, colour.
const ROLES: [(&str, char, &str); 5] = [
    ("free", '.', "\x1b[2m"),
    ("log", 'L', "\x1b[33m"),
    ("metadata", 'M', "\x1b[36m"),
    ("data", 'D', "\x1b[32m"),
    ("retired", 'x', "\x1b[31m"),
];

fn style(role: &str) -> (char, &'static str) {
    ROLES
        .iter()
        .find(|(name, ..)| *name == role)
        .map_or(('?', ""), |(_, letter, colour)| (*letter, *colour))
}

/// Draws the zones in rows that fit `width` columns. Without colours, a line of letters above
/// each row tells the roles.
pub fn draw(zones: &[ZoneRow], width: usize, colours: bool) -> String {
    // Rows of tens are easier to count along.
    let fit = width.saturating_sub(MARGIN).max(10);
    let columns = if fit >= 20 { fit / 10 * 10 } else { fit };
    let mut text = String::new();
    for row in zones.chunks(columns) {
        let first = row.first().map_or(0, |zone| zone.zone);
        if colours {
            text.push_str(&format!("{first:>6}  "));
            for zone in row {
                let (_, colour) = style(&zone.role);
                text.push_str(&format!("{colour}{}{RESET}", fill(zone)));
            }
        } else {
            text.push_str(&format!("{first:>6}  "));
            text.extend(row.iter().map(|zone| style(&zone.role).0));
            text.push_str(&format!("\n{:MARGIN$}", ""));
            text.extend(row.iter().map(fill));
            text.truncate(text.trim_end().len());
        }
        text.push('\n');
    }
    text.push_str(&format!("{:MARGIN$}", ""));
    for (role, letter, colour) in ROLES {
        let count = zones.iter().filter(|zone| zone.role == role).count();
        if count == 0 {
            continue;
        }
        if colours {
            text.push_str(&format!("{colour}█{RESET} {role} {count}   "));
        } else {
            text.push_str(&format!("{letter} {role} {count}   "));
        }
    }
    text.truncate(text.trim_end().len());
    text.push_str("   (height: valid blocks)\n");
    text
}

/// Free zones are a dot; a zone in use is a bar, however little of it is valid.
fn fill(zone: &ZoneRow) -> char {
    match zone.role.as_str() {
        "free" => '·',
        "retired" => 'x',
        _ if zone.valid_blocks == 0 && zone.role == "data" => '_',
        // The log keeps no count of valid blocks: what is written is what it holds.
        role => {
            let filled = if role == "log" {
                zone.write_pointer_blocks
            } else {
                zone.valid_blocks
            };
            let eighths = u64::from(filled) * 8 / u64::from(zone.capacity_blocks.max(1));
            FILLS.get((eighths as usize).min(7)).copied().unwrap_or('█')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(zone: u32, role: &str, valid: u32) -> ZoneRow {
        ZoneRow {
            zone,
            role: role.into(),
            lifetime: "none".into(),
            partner: None,
            state: "open".into(),
            write_pointer_blocks: valid,
            capacity_blocks: 100,
            valid_blocks: valid,
            resets: 0,
        }
    }

    #[test]
    fn roles_and_fills_without_colour() {
        let zones = [
            zone(0, "log", 50),
            zone(1, "metadata", 1),
            zone(2, "data", 100),
            zone(3, "data", 0),
            zone(4, "free", 0),
        ];
        let text = draw(&zones, 80, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "     0  LMDD.");
        assert_eq!(lines[1], "        ▅▁█_·");
        assert!(lines[2].contains("D data 2"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn rows_fit_the_terminal() {
        let zones: Vec<ZoneRow> = (0..1000).map(|i| zone(i, "data", 3)).collect();
        for width in [20, 40, 77, 200] {
            for line in draw(&zones, width, false)
                .lines()
                .filter(|line| !line.contains("data"))
            {
                assert!(line.chars().count() <= width.max(18), "{width}: {line}");
            }
        }
        assert!(draw(&zones, 80, true).contains("\x1b[32m"));
    }
}
