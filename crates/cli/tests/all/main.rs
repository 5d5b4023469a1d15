//! Tests of the program `persimmon`.

mod accidents;
mod bad_input;
mod common;
mod dedup;
mod foreground;
mod fs;
mod fs_trouble;
mod fsck;
mod grow;
mod limits;
mod newer;
mod output;
mod quota;
mod recover;
mod simulate;
mod snapshots;
mod streams;
mod two_devices;
mod udev_rules;
mod usage;
mod words;
