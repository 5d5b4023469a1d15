//! fallocate in all its modes.

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags as Mode;
use rustix::io::Errno;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("allocate":
    allocating_grows_the_file_with_zeros,
    allocating_keeps_what_is_there,
    keep_size_takes_blocks_behind_the_end,
    a_punched_hole_reads_as_zeros,
    a_punched_hole_gives_blocks_back,
    punching_behind_the_end_changes_nothing,
    punching_without_keep_size_is_eopnotsupp,
    collapsing_takes_a_range_out,
    inserting_puts_a_hole_in,
    ranges_to_move_are_of_whole_blocks,
    ranges_to_move_lie_before_the_end,
    what_moves_goes_with_no_other_mode,
    what_is_set_aside_moves_too,
    a_zeroed_range_reads_as_zeros,
    zeroing_with_keep_size_keeps_the_size,
    random_calls_equal_those_in_memory,
    it_moves_the_times,
);

const PUNCH: Mode = Mode::PUNCH_HOLE.union(Mode::KEEP_SIZE);

fn allocating_grows_the_file_with_zeros(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"start")?;
    file.allocate(Mode::empty(), 0, 100_000)?;
    let mut due = b"start".to_vec();
    due.resize(100_000, 0);
    d.holds("f", &due)?;
    ensure!(file.stat()?.blocks * 512 >= 98_304, "nothing allocated");
    file.allocate(Mode::empty(), 150_000, 1)?;
    equal(file.stat()?.size, 150_001)
}

fn allocating_keeps_what_is_there(d: &impl Door) -> Result<()> {
    let due = noise(1, 50_000);
    let file = d.file("f", &due)?;
    file.allocate(Mode::empty(), 1000, 30_000)?;
    d.holds("f", &due)?;
    file.sync()?;
    file.allocate(Mode::empty(), 0, 50_000)?;
    d.holds("f", &due)
}

fn keep_size_takes_blocks_behind_the_end(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"x")?;
    file.allocate(Mode::KEEP_SIZE, 0, 1 << 20)?;
    equal(file.stat()?.size, 1)?;
    // The block that holds the byte may be counted by its bytes.
    let blocks = file.stat()?.blocks;
    ensure!(blocks > 255 * 8, "{blocks} blocks");
    file.write_all_at(b"y", 500_000)?;
    let mut due = b"x".to_vec();
    due.resize(500_000, 0);
    due.push(b'y');
    d.holds("f", &due)
}

/// Zeros `offset..offset + len` of a file of noise by `mode`, synced before or not, and compares.
fn zeros(d: &impl Door, mode: Mode) -> Result<()> {
    const SIZE: usize = 100_000;
    for (offset, len) in [
        (0, 1),
        (0, 4096),
        (4096, 8192),
        (1, 4095),
        (5000, 100),
        (4095, 50_002),
        (0, SIZE),
    ] {
        for synced in [false, true] {
            let path = format!("{offset}-{len}-{synced}");
            let mut due = noise(2, SIZE);
            let file = d.file(&path, &due)?;
            if synced {
                file.sync()?;
            }
            file.allocate(mode, offset as u64, len as u64)?;
            due[offset..offset + len].fill(0);
            d.holds(&path, &due)?;
            file.sync()?;
            d.holds(&path, &due)?;
        }
    }
    Ok(())
}

fn a_punched_hole_reads_as_zeros(d: &impl Door) -> Result<()> {
    zeros(d, PUNCH)
}

fn a_punched_hole_gives_blocks_back(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 1 << 20))?;
    file.sync()?;
    let before = file.stat()?.blocks;
    file.allocate(PUNCH, 256 << 10, 512 << 10)?;
    file.sync()?;
    let after = file.stat()?.blocks;
    ensure!(
        before - after >= 1000,
        "{before} blocks before, {after} after"
    );
    equal(file.stat()?.size, 1 << 20)
}

fn punching_behind_the_end_changes_nothing(d: &impl Door) -> Result<()> {
    let due = noise(1, 5000);
    let file = d.file("f", &due)?;
    file.allocate(PUNCH, 10_000, 5000)?;
    d.holds("f", &due)?;
    file.allocate(PUNCH, 4990, 5000)?;
    let mut due = noise(1, 4990);
    due.resize(5000, 0);
    d.holds("f", &due)
}

fn punching_without_keep_size_is_eopnotsupp(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"content")?;
    refused(file.allocate(Mode::PUNCH_HOLE, 0, 1), Errno::OPNOTSUPP)
}

/// Takes ranges of a file of noise out, or puts zeros in, synced before or not, and compares.
fn moves(d: &impl Door, mode: Mode) -> Result<()> {
    const SIZE: usize = 300_001;
    const BLOCK: usize = 4096;
    for (at, blocks) in [(0, 1), (1, 1), (7, 20), (40, 33), (72, 1), (0, 73)] {
        for synced in [false, true] {
            let path = format!("{at}-{blocks}-{synced}");
            let mut due = noise(at as u64, SIZE);
            // Half of it compresses, and there is a hole.
            due[..100 * 1024].fill(b'x');
            let file = d.file(&path, &due)?;
            file.allocate(PUNCH, 20 * 4096, 3 * 4096)?;
            due[20 * BLOCK..23 * BLOCK].fill(0);
            if synced {
                file.sync()?;
            }
            let (start, len) = (at * BLOCK, blocks * BLOCK);
            file.allocate(mode, start as u64, len as u64)?;
            if mode == Mode::COLLAPSE_RANGE {
                due.drain(start..start + len);
            } else {
                due.splice(start..start, vec![0; len]);
            }
            d.holds(&path, &due)?;
            equal(file.stat()?.size, due.len() as u64)?;
            file.sync()?;
            d.holds(&path, &due)?;
        }
    }
    Ok(())
}

fn collapsing_takes_a_range_out(d: &impl Door) -> Result<()> {
    moves(d, Mode::COLLAPSE_RANGE)
}

fn inserting_puts_a_hole_in(d: &impl Door) -> Result<()> {
    moves(d, Mode::INSERT_RANGE)
}

fn ranges_to_move_are_of_whole_blocks(d: &impl Door) -> Result<()> {
    let due = noise(1, 50_000);
    let file = d.file("f", &due)?;
    for mode in [Mode::COLLAPSE_RANGE, Mode::INSERT_RANGE] {
        for (at, len) in [(1, 4096), (4096, 1), (512, 512), (0, 4095)] {
            refused(file.allocate(mode, at, len), Errno::INVAL)?;
        }
    }
    d.holds("f", &due)
}

fn ranges_to_move_lie_before_the_end(d: &impl Door) -> Result<()> {
    let due = noise(1, 8192);
    let file = d.file("f", &due)?;
    for (at, len) in [(4096, 4096), (0, 8192), (0, 12_288), (8192, 4096)] {
        refused(file.allocate(Mode::COLLAPSE_RANGE, at, len), Errno::INVAL)?;
    }
    for (at, len) in [(8192, 4096), (12_288, 4096)] {
        refused(file.allocate(Mode::INSERT_RANGE, at, len), Errno::INVAL)?;
    }
    d.holds("f", &due)
}

fn what_moves_goes_with_no_other_mode(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 8192))?;
    for mode in [Mode::COLLAPSE_RANGE, Mode::INSERT_RANGE] {
        for other in [Mode::KEEP_SIZE, PUNCH] {
            // Linux answers one or the other, by its version.
            let errnos = [Errno::INVAL, Errno::OPNOTSUPP];
            refused_with(file.allocate(mode | other, 0, 4096), &errnos)?;
        }
    }
    Ok(())
}

fn what_is_set_aside_moves_too(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 8192))?;
    file.allocate(Mode::empty(), 0, 1 << 20)?;
    file.sync()?;
    let before = file.stat()?.blocks;
    file.allocate(Mode::INSERT_RANGE, 4096, 40_960)?;
    file.sync()?;
    equal(file.stat()?.blocks, before)?;
    file.allocate(Mode::COLLAPSE_RANGE, 0, 45_056)?;
    let mut due = noise(1, 8192)[4096..].to_vec();
    due.resize((1 << 20) - 4096, 0);
    d.holds("f", &due)
}

fn a_zeroed_range_reads_as_zeros(d: &impl Door) -> Result<()> {
    zeros(d, Mode::ZERO_RANGE)?;
    let file = d.file("grown", b"x")?;
    file.allocate(Mode::ZERO_RANGE, 0, 10_000)?;
    d.holds("grown", &[0; 10_000])
}

fn zeroing_with_keep_size_keeps_the_size(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 5000))?;
    file.allocate(Mode::ZERO_RANGE | Mode::KEEP_SIZE, 4000, 10_000)?;
    let mut due = noise(1, 4000);
    due.resize(5000, 0);
    d.holds("f", &due)
}

fn random_calls_equal_those_in_memory(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(21);
    for step in 0..600u64 {
        let (at, len) = (
            dice.below(300_000) as usize,
            1 + dice.below(60_000) as usize,
        );
        let end = at + len;
        let zero = |due: &mut Vec<u8>| {
            let (at, end) = (at.min(due.len()), end.min(due.len()));
            due[at..end].fill(0);
        };
        match dice.below(8) {
            0 => {
                file.allocate(Mode::empty(), at as u64, len as u64)?;
                due.resize(due.len().max(end), 0);
            }
            1 => file.allocate(Mode::KEEP_SIZE, at as u64, len as u64)?,
            2 => {
                file.allocate(PUNCH, at as u64, len as u64)?;
                zero(&mut due);
            }
            3 => {
                file.allocate(Mode::ZERO_RANGE, at as u64, len as u64)?;
                zero(&mut due);
                due.resize(due.len().max(end), 0);
            }
            4 => {
                file.truncate(at as u64)?;
                due.resize(at, 0);
            }
            5 if due.len() > 2 * 4096 => {
                let at = at % due.len() / 4096 * 4096;
                let len = len.next_multiple_of(4096);
                file.allocate(Mode::INSERT_RANGE, at as u64, len as u64)?;
                due.splice(at..at, vec![0; len]);
            }
            6 if due.len() > 2 * 4096 => {
                let at = at % (due.len() - 4096) / 4096 * 4096;
                let len = len.min(due.len() - at - 1) / 4096 * 4096;
                if len > 0 {
                    file.allocate(Mode::COLLAPSE_RANGE, at as u64, len as u64)?;
                    due.drain(at..at + len);
                }
            }
            _ => {
                let bytes = noise(step, len);
                file.write_all_at(&bytes, at as u64)?;
                due.resize(due.len().max(end), 0);
                due[at..end].copy_from_slice(&bytes);
            }
        }
        if step % 11 == 0 {
            file.sync_data()?;
        }
        if step % 5 == 0 {
            d.holds("f", &due).with_context(|| format!("step {step}"))?;
        }
    }
    d.holds("f", &due)
}

fn it_moves_the_times(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 10_000))?;
    let grow = || Ok(file.allocate(Mode::empty(), 0, 20_000)?);
    equal(d.moved("f", grow)?.ctime, true)?;
    equal(d.moved("f", || Ok(file.allocate(PUNCH, 0, 5000)?))?, BOTH)
}
