//! The rules for udev in `packaging/`: which devices are probed.

#![allow(clippy::unwrap_used)]

use std::fs;

const END: &str = "GOTO=\"persimmon_end\"";

/// The conditions, a pair of key and value each, under which the rules end before a device is probed.
fn left_alone() -> Vec<(String, String)> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/udev/65-persimmon.rules"
    );
    let rules = fs::read_to_string(path).unwrap();
    let (before, _) = rules.split_once("IMPORT{program}").unwrap();
    let ends = before.lines().filter(|line| line.ends_with(END));
    ends.filter_map(|line| {
        let (condition, _) = line.split_once(", ")?;
        let (key, value) = condition.split_once("==")?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    })
    .collect()
}

/// As udev matches: alternatives stand between bars, a star is anything.
fn matches(patterns: &str, name: &str) -> bool {
    let one = |pattern: &str| {
        let (start, end) = pattern.split_once('*').unwrap();
        let middle = name.strip_prefix(start);
        middle.is_some_and(|rest| match end.split_once('*') {
            Some((inner, "")) => rest.contains(inner),
            _ => rest.ends_with(end),
        })
    };
    patterns.split('|').any(one)
}

/// Every block device was opened at each of its events: the tray of a drive for discs closed as soon as it was opened,
/// and whoever waited for a suspended device of the device mapper waited for udev too.
#[test]
fn devices_that_must_not_be_opened_are_not_probed() {
    let conditions = left_alone();
    let kernel: Vec<_> = conditions
        .iter()
        .filter(|(key, _)| key == "KERNEL")
        .collect();
    let is_left = |name: &str| kernel.iter().any(|(_, patterns)| matches(patterns, name));
    for name in [
        "fd0",
        "sr0",
        "nbd3",
        "nbd3p1",
        "zram0",
        "mtdblock1",
        "mmcblk0rpmb",
        "mmcblk0boot0",
        "mmcblk12boot1",
    ] {
        assert!(is_left(name), "{name}");
    }
    for name in [
        "sda",
        "sdf",
        "sdfd",
        "sda1",
        "nvme0n1",
        "nvme0n1p2",
        "loop0",
        "dm-0",
        "md0",
        "vda",
        "mmcblk0",
        "mmcblk0p1",
    ] {
        assert!(!is_left(name), "{name}");
    }
    for (key, value) in [
        ("ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}", "1"),
        ("ENV{DM_SUSPENDED}", "1"),
        ("ENV{SYSTEMD_READY}", "0"),
        ("ENV{ID_FS_TYPE}", "?*"),
        ("ACTION", "remove"),
    ] {
        let condition = (key.to_owned(), value.to_owned());
        assert!(conditions.contains(&condition), "{key}");
    }
}
