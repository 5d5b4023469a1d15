//! Names: how long, of which bytes, and how they are told apart.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::in_directory;

super::statements!("names":
    every_length_up_to_255_bytes,
    every_byte_but_slash_and_zero,
    bytes_that_are_no_text,
    upper_and_lower_case_are_different,
    different_spellings_of_a_character_are_different,
    names_that_start_alike_are_different,
    a_path_of_more_than_4095_bytes_is_refused,
    repeated_slashes_and_dots_mean_nothing,
    a_name_is_free_again_after_removal,
    a_missing_name_is_found_once_made,
    one_name_in_many_directories,
);

fn every_length_up_to_255_bytes(place: &Place) -> Result<()> {
    for len in 1..=255 {
        file(place.at("n".repeat(len)), &[len as u8])?;
    }
    for len in 1..=255 {
        holds(place.at("n".repeat(len)), &[len as u8])?;
    }
    equal(std::fs::read_dir(&place.dir)?.count(), 255)
}

fn every_byte_but_slash_and_zero(place: &Place) -> Result<()> {
    let names: BTreeSet<Vec<u8>> = (1..=255u8)
        .filter(|byte| *byte != b'/')
        .map(|byte| {
            if byte == b'.' {
                vec![byte, byte, byte]
            } else {
                vec![byte]
            }
        })
        .collect();
    for name in &names {
        file(place.at(OsString::from_vec(name.clone())), name)?;
    }
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(&place.dir)? {
        let entry = entry?;
        holds(entry.path(), entry.file_name().as_bytes())?;
        seen.insert(entry.file_name().into_vec());
    }
    equal(seen == names, true)
}

fn bytes_that_are_no_text(place: &Place) -> Result<()> {
    let name = OsString::from_vec(vec![0xff, 0xfe, 0x80, b'\n', b' ', 0xc3]);
    file(place.at(&name), b"x")?;
    let listed: Vec<OsString> = std::fs::read_dir(&place.dir)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    equal(listed, vec![name])
}

fn upper_and_lower_case_are_different(place: &Place) -> Result<()> {
    file(place.at("name"), b"lower")?;
    file(place.at("NAME"), b"upper")?;
    gone(place.at("Name"))?;
    holds(place.at("name"), b"lower")
}

fn different_spellings_of_a_character_are_different(place: &Place) -> Result<()> {
    file(place.at("\u{e9}"), b"one")?;
    file(place.at("e\u{301}"), b"two")?;
    holds(place.at("\u{e9}"), b"one")?;
    holds(place.at("e\u{301}"), b"two")
}

fn names_that_start_alike_are_different(place: &Place) -> Result<()> {
    let long = "x".repeat(254);
    for number in 0..100u8 {
        let name = format!(
            "{long}{}",
            char::from(b' ' + number % 90 + u8::from(number > 14))
        );
        if name.ends_with('/') || place.at(&name).exists() {
            continue;
        }
        file(place.at(&name), &[number])?;
        holds(place.at(&name), &[number])?;
    }
    Ok(())
}

fn a_path_of_more_than_4095_bytes_is_refused(place: &Place) -> Result<()> {
    in_directory(&place.dir, || {
        file(place.at("f"), b"x")?;
        let path = |len: usize| format!("{}f", "./".repeat(len / 2));
        open(path(4094), OFlags::RDONLY)?;
        refused(open(path(4096), OFlags::RDONLY), Errno::NAMETOOLONG)
    })
}

fn repeated_slashes_and_dots_mean_nothing(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    file(place.at("d/f"), b"x")?;
    for path in ["d//f", "./d/./f", "d/../d/f", ".///d//.//f"] {
        holds(place.at(path), b"x")?;
    }
    Ok(())
}

fn a_name_is_free_again_after_removal(place: &Place) -> Result<()> {
    for round in 0..50u8 {
        if round % 2 == 0 {
            file(place.at("n"), &[round])?;
            holds(place.at("n"), &[round])?;
            std::fs::remove_file(place.at("n"))?;
        } else {
            dir(place.at("n"))?;
            equal(meta(place.at("n"))?.is_dir(), true)?;
            std::fs::remove_dir(place.at("n"))?;
        }
        gone(place.at("n"))?;
    }
    Ok(())
}

fn a_missing_name_is_found_once_made(place: &Place) -> Result<()> {
    // The kernel remembers what is missing; making it by every way must end that.
    file(place.at("source"), b"x")?;
    let ways: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("creat", &|| file(place.at("creat"), b"").map(|_| ())),
        ("mkdir", &|| dir(place.at("mkdir"))),
        ("link", &|| {
            Ok(std::fs::hard_link(place.at("source"), place.at("link"))?)
        }),
        ("symlink", &|| {
            Ok(std::os::unix::fs::symlink("x", place.at("symlink"))?)
        }),
        ("rename", &|| {
            Ok(std::fs::rename(place.at("source"), place.at("rename"))?)
        }),
    ];
    for (name, way) in ways {
        gone(place.at(name))?;
        way()?;
        meta(place.at(name))?;
    }
    gone(place.at("source"))
}

fn one_name_in_many_directories(place: &Place) -> Result<()> {
    let mut inodes = BTreeSet::new();
    for number in 0..200u8 {
        dir(place.at(number.to_string()))?;
        let path = place.at(number.to_string()).join("same");
        file(&path, &[number])?;
        inodes.insert(meta(&path)?.ino());
    }
    equal(inodes.len(), 200)?;
    for number in 0..200u8 {
        holds(place.at(number.to_string()).join("same"), &[number])?;
    }
    Ok(())
}
