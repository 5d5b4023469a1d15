//! `persimmon quota` of volumes that are not mounted; of mounts it is asked in tests/mount.

#![allow(clippy::unwrap_used)]

use persimmon::{Create, Filesystem};

use crate::common::Place;

/// Limits that contradict each other, and a number that stands for nobody, were accepted without a word; of a larger number it was said that no
/// such name was known.
#[test]
fn limits_and_owners_that_cannot_be_are_refused() {
    let place = Place::in_memory();
    Filesystem::create(place.path("img"), &Create::sized(64 << 20)).unwrap();
    place.does(&["quota", "on", "img"]);
    let set = |rest: &[&'static str]| [&["quota", "set", "img"], rest].concat();
    for (number, due) in [
        ("4294967295", "the largest is 4294967294"),
        ("4294967296", "the largest is 4294967294"),
        ("nobody such", "no user named"),
    ] {
        place.refused(&set(&["--user", number, "--hard", "1M"]), 2, &[due]);
    }
    place.does(&set(&["--user", "4294967294", "--hard", "1M"]));
    let both = set(&["--user", "7", "--soft", "2M", "--hard", "1M"]);
    let inodes = set(&["--user", "7", "--inodes-soft", "9", "--inodes-hard", "8"]);
    place.refused(&both, 2, &["--soft 2.0 MiB is above --hard 1.0 MiB"]);
    place.refused(&inodes, 2, &["--inodes-soft 9 inodes is above"]);
    place.does(&set(&["--user", "7", "--soft", "1M", "--hard", "2M"]));
    let words = ["the soft limit would be 3.0 MiB", "give --hard too"];
    place.refused(&set(&["--user", "7", "--soft", "3M"]), 1, &words);
    place.refused(&set(&["--user", "7", "--hard", "512K"]), 1, &["--soft too"]);
    // No limit is above all.
    place.does(&set(&["--user", "7", "--hard", "0"]));
    place.does(&set(&["--user", "7", "--soft", "3M"]));
    place.does(&set(&["--user", "7", "--soft", "0", "--hard", "1M"]));
}
