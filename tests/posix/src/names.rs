//! Names: how long, of which bytes, and how they are told apart.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::Result;
use rustix::fs::FileType;

use crate::door::Door;
use crate::expect::*;

crate::table!("names":
    every_length_up_to_255_bytes,
    every_byte_but_slash_and_zero,
    bytes_that_are_no_text,
    upper_and_lower_case_are_different,
    different_spellings_of_a_character_are_different,
    names_that_start_alike_are_different,
    a_name_is_free_again_after_removal,
    a_missing_name_is_found_once_made,
    one_name_in_many_directories,
);

fn every_length_up_to_255_bytes(d: &impl Door) -> Result<()> {
    for len in 1..=255 {
        d.file("n".repeat(len), &[len as u8])?;
    }
    for len in 1..=255 {
        d.holds("n".repeat(len), &[len as u8])?;
    }
    equal(d.list(".")?.len(), 255)
}

fn every_byte_but_slash_and_zero(d: &impl Door) -> Result<()> {
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
        d.file(OsString::from_vec(name.clone()), name)?;
    }
    let mut seen = BTreeSet::new();
    for entry in d.list(".")? {
        d.holds(&entry.name, entry.name.as_bytes())?;
        seen.insert(entry.name.into_vec());
    }
    equal(seen == names, true)
}

fn bytes_that_are_no_text(d: &impl Door) -> Result<()> {
    let name = OsString::from_vec(vec![0xff, 0xfe, 0x80, b'\n', b' ', 0xc3]);
    d.file(&name, b"x")?;
    let listed = d.list(".")?.into_iter().map(|entry| entry.name);
    equal(listed.collect(), vec![name])
}

fn upper_and_lower_case_are_different(d: &impl Door) -> Result<()> {
    d.file("name", b"lower")?;
    d.file("NAME", b"upper")?;
    d.gone("Name")?;
    d.holds("name", b"lower")
}

fn different_spellings_of_a_character_are_different(d: &impl Door) -> Result<()> {
    d.file("\u{e9}", b"one")?;
    d.file("e\u{301}", b"two")?;
    d.holds("\u{e9}", b"one")?;
    d.holds("e\u{301}", b"two")
}

fn names_that_start_alike_are_different(d: &impl Door) -> Result<()> {
    let long = "x".repeat(254);
    for number in 0..100u8 {
        let name = format!(
            "{long}{}",
            char::from(b' ' + number % 90 + u8::from(number > 14))
        );
        if name.ends_with('/') || d.stat(&name).is_ok() {
            continue;
        }
        d.file(&name, &[number])?;
        d.holds(&name, &[number])?;
    }
    Ok(())
}

fn a_name_is_free_again_after_removal(d: &impl Door) -> Result<()> {
    for round in 0..50u8 {
        if round % 2 == 0 {
            d.file("n", &[round])?;
            d.holds("n", &[round])?;
            d.unlink("n")?;
        } else {
            d.dir("n")?;
            equal(d.stat("n")?.kind(), FileType::Directory)?;
            d.rmdir("n")?;
        }
        d.gone("n")?;
    }
    Ok(())
}

fn a_missing_name_is_found_once_made(d: &impl Door) -> Result<()> {
    // The kernel remembers what is missing; making it by every way must end that.
    d.file("source", b"x")?;
    let ways: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("creat", &|| d.file("creat", b"").map(drop)),
        ("mkdir", &|| d.dir("mkdir")),
        ("link", &|| Ok(d.link("source", "link")?)),
        ("symlink", &|| Ok(d.symlink("x", "symlink")?)),
        ("rename", &|| Ok(d.rename("source", "rename")?)),
    ];
    for (name, way) in ways {
        d.gone(name)?;
        way()?;
        d.stat(name)?;
    }
    d.gone("source")
}

fn one_name_in_many_directories(d: &impl Door) -> Result<()> {
    let mut inodes = BTreeSet::new();
    for number in 0..200u8 {
        d.dir(number.to_string())?;
        let path = format!("{number}/same");
        d.file(&path, &[number])?;
        inodes.insert(d.ino(&path)?);
    }
    equal(inodes.len(), 200)?;
    for number in 0..200u8 {
        d.holds(format!("{number}/same"), &[number])?;
    }
    Ok(())
}
