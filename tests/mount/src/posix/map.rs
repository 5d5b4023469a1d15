//! Memory maps of files.

use std::os::unix::fs::FileExt;

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::Map;

super::statements!("map":
    what_is_stored_through_a_map_is_read,
    what_is_written_is_seen_through_a_map,
    two_maps_of_a_file_are_one,
    a_private_map_changes_nothing,
    a_synced_map_is_in_the_file,
    a_map_outlives_descriptor_and_name,
    bytes_behind_the_end_are_not_kept,
    a_map_over_a_hole_fills_it,
    a_shared_writable_map_needs_write_access,
    random_stores_and_writes_agree,
    a_map_moves_the_content_time,
);

fn what_is_stored_through_a_map_is_read(place: &Place) -> Result<()> {
    let mut due = noise(1, 20_000);
    let file = file(place.at("f"), &due)?;
    let map = Map::new(&file, 20_000, true)?;
    for at in [0, 1, 4095, 4096, 12_345, 19_999] {
        map.set(at, 0xaa);
        due[at] = 0xaa;
        holds(place.at("f"), &due)?;
    }
    map.sync()?;
    drop(map);
    drop(file);
    holds(place.at("f"), &due)
}

fn what_is_written_is_seen_through_a_map(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 10_000))?;
    let map = Map::new(&file, 10_000, true)?;
    equal(map.get(5000), noise(1, 10_000)[5000])?;
    file.write_all_at(b"XYZ", 4999)?;
    equal([map.get(4999), map.get(5000), map.get(5001)], *b"XYZ")
}

fn two_maps_of_a_file_are_one(place: &Place) -> Result<()> {
    let one = file(place.at("f"), &[0; 8192])?;
    let two = edit(place.at("f"))?;
    let (one, two) = (Map::new(&one, 8192, true)?, Map::new(&two, 8192, true)?);
    one.set(5000, 1);
    equal(two.get(5000), 1)?;
    two.set(0, 2);
    equal(one.get(0), 2)
}

fn a_private_map_changes_nothing(place: &Place) -> Result<()> {
    let due = noise(2, 9000);
    let file = file(place.at("f"), &due)?;
    let map = Map::new(&file, 9000, false)?;
    map.set(0, !due[0]);
    map.set(8999, !due[8999]);
    equal(map.get(0), !due[0])?;
    drop(map);
    holds(place.at("f"), &due)
}

fn a_synced_map_is_in_the_file(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &[0; 65_536])?;
    let map = Map::new(&file, 65_536, true)?;
    let due = noise(3, 65_536);
    for (at, byte) in due.iter().enumerate() {
        map.set(at, *byte);
    }
    map.sync()?;
    file.sync_all()?;
    // Direct reading goes past the pages that the map shares with ordinary reading.
    let direct = open(place.at("f"), OFlags::RDONLY | OFlags::DIRECT)?;
    let mut space = vec![0u8; 65_536 + 4096];
    let start = space.as_ptr().align_offset(4096);
    equal(
        rustix::io::pread(&direct, &mut space[start..start + 65_536], 0)?,
        65_536,
    )?;
    same_bytes(&space[start..start + 65_536], &due)
}

fn a_map_outlives_descriptor_and_name(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &[7; 4096])?;
    let again = edit(place.at("f"))?;
    let map = Map::new(&file, 4096, true)?;
    drop(file);
    std::fs::remove_file(place.at("f"))?;
    map.set(10, 1);
    equal((map.get(9), map.get(10)), (7, 1))?;
    equal(content(&again)?[10], 1)
}

fn bytes_behind_the_end_are_not_kept(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"short")?;
    let map = Map::new(&file, 4096, true)?;
    equal(map.get(5), 0)?;
    map.set(100, 0xff);
    map.sync()?;
    drop(map);
    equal(file.metadata()?.len(), 5)?;
    file.set_len(200)?;
    let mut due = b"short".to_vec();
    due.resize(200, 0);
    holds(place.at("f"), &due)
}

fn a_map_over_a_hole_fills_it(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    file.set_len(1 << 20)?;
    let map = Map::new(&file, 1 << 20, true)?;
    equal(map.get(500_000), 0)?;
    map.set(500_000, 9);
    map.sync()?;
    drop(map);
    let mut due = vec![0; 1 << 20];
    due[500_000] = 9;
    holds(place.at("f"), &due)
}

fn a_shared_writable_map_needs_write_access(place: &Place) -> Result<()> {
    file(place.at("f"), &[0; 4096])?;
    let reader = open(place.at("f"), OFlags::RDONLY)?;
    let result = Map::new(&reader, 4096, true);
    let error = result.err().and_then(|error| error.downcast().ok());
    equal(error, Some(Errno::ACCESS))?;
    Map::new(&reader, 4096, false).map(|_| ())
}

fn random_stores_and_writes_agree(place: &Place) -> Result<()> {
    const SIZE: usize = 4 << 20;
    let mut due = noise(4, SIZE);
    let file = file(place.at("f"), &due)?;
    let map = Map::new(&file, SIZE, true)?;
    let mut dice = Noise(5);
    for step in 0..2000u64 {
        let at = dice.below(SIZE as u64 - 10_000) as usize;
        match dice.below(10) {
            0..=4 => {
                for offset in 0..dice.below(300) as usize {
                    map.set(at + offset, step as u8);
                    due[at + offset] = step as u8;
                }
            }
            5..=8 => {
                let bytes = noise(step, dice.below(10_000) as usize);
                file.write_all_at(&bytes, at as u64)?;
                due[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            _ => {
                let mut seen = vec![0; 5000];
                file.read_exact_at(&mut seen, at as u64)?;
                same_bytes(&seen, &due[at..at + 5000])?;
                if step % 200 == 0 {
                    map.sync()?;
                }
            }
        }
    }
    drop(map);
    file.sync_all()?;
    holds(place.at("f"), &due)
}

fn a_map_moves_the_content_time(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &[0; 4096])?;
    file.sync_all()?;
    let map = Map::new(&file, 4096, true)?;
    let moved = moved(place.at("f"), || {
        map.set(0, 1);
        Ok(map.sync()?)
    })?;
    equal(moved, BOTH)
}
