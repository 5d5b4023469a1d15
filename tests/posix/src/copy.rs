//! copy_file_range.

use anyhow::Result;

use crate::door::{Door, OpenFile, Outcome};
use crate::expect::*;

crate::table!("copy":
    a_whole_file_is_copied,
    ranges_go_where_they_should,
    a_copy_does_not_follow_later_changes,
    copying_past_the_end_stops_there,
    copying_within_a_file_keeps_to_its_ranges,
    holes_read_as_zeros_in_the_copy,
);

/// Copies until done; the system may do it in parts.
fn copy<F: OpenFile>(from: &F, at: u64, to: &F, to_at: u64, len: usize) -> Outcome<usize> {
    let mut done = 0;
    while done < len {
        match from.copy_to(at + done as u64, to, to_at + done as u64, len - done)? {
            0 => break,
            step => done += step,
        }
    }
    Ok(done)
}

fn a_whole_file_is_copied(d: &impl Door) -> Result<()> {
    for size in [0usize, 1, 4096, 100_001, 5 << 20] {
        let due = noise(size as u64, size);
        let from = d.file(format!("from-{size}"), &due)?;
        let to = d.file(format!("to-{size}"), b"")?;
        equal(copy(&from, 0, &to, 0, size)?, size)?;
        d.holds(format!("to-{size}"), &due)?;
    }
    Ok(())
}

fn ranges_go_where_they_should(d: &impl Door) -> Result<()> {
    let source = noise(1, 200_000);
    let from = d.file("from", &source)?;
    from.sync()?;
    let mut due = noise(2, 150_000);
    let to = d.file("to", &due)?;
    for (at, to_at, len) in [
        (0, 5, 10),
        (4096, 8192, 65_536),
        (123, 4567, 89_012),
        (190_000, 145_000, 10_000),
    ] {
        equal(copy(&from, at as u64, &to, to_at as u64, len)?, len)?;
        due.resize(due.len().max(to_at + len), 0);
        due[to_at..to_at + len].copy_from_slice(&source[at..at + len]);
    }
    d.holds("to", &due)?;
    d.holds("from", &source)
}

fn a_copy_does_not_follow_later_changes(d: &impl Door) -> Result<()> {
    let due = noise(1, 100_000);
    let from = d.file("from", &due)?;
    let to = d.file("to", b"")?;
    copy(&from, 0, &to, 0, 100_000)?;
    from.write_all_at(&[0; 100_000], 0)?;
    d.holds("to", &due)
}

fn copying_past_the_end_stops_there(d: &impl Door) -> Result<()> {
    let from = d.file("from", &noise(1, 10_000))?;
    let to = d.file("to", b"")?;
    equal(copy(&from, 4000, &to, 0, 100_000)?, 6000)?;
    equal(copy(&from, 20_000, &to, 0, 100)?, 0)?;
    d.holds("to", &noise(1, 10_000)[4000..])
}

fn copying_within_a_file_keeps_to_its_ranges(d: &impl Door) -> Result<()> {
    let mut due = noise(1, 100_000);
    let file = d.file("f", &due)?;
    equal(copy(&file, 0, &file, 50_000, 50_000)?, 50_000)?;
    due.copy_within(0..50_000, 50_000);
    d.holds("f", &due)
}

fn holes_read_as_zeros_in_the_copy(d: &impl Door) -> Result<()> {
    let from = d.file("from", b"start")?;
    from.write_all_at(b"end", 3_000_000)?;
    let to = d.file("to", &vec![0xff; 3_000_003])?;
    copy(&from, 0, &to, 0, 3_000_003)?;
    let due = from.content()?;
    d.holds("to", &due)
}
