//! What fuzzers found, one hostile thing at a time: correctly keyed, so that it is believed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::sync::Arc;

use persimmon_engine::{Error, Options};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Addr, Ino, Key, Lsn};
use persimmon_fuzzing::hostile::{open, sound, with_footer, with_records};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, check};
use persimmon_salvage::mend;
use persimmon_sim::SimDevice;

fn refused(device: SimDevice, what: &str) {
    match open(device) {
        Err(Error::Inconsistent(message)) => assert!(message.contains(what), "{message}"),
        Err(error) => panic!("{error}"),
        Ok((_, report)) => panic!("opened: {report:?}"),
    }
}

#[test]
fn what_the_others_are_made_from_is_sound() {
    open(sound()).unwrap();
    open(with_footer(|_| {})).unwrap();
    for on_host in [false, true] {
        let (_, report) = open(with_records(on_host, &[Vec::new()], |_| {})).unwrap();
        assert!(!report.tail_cut);
    }
}

/// A share held back of more than all there is made the space for users overflow.
#[test]
fn more_held_back_than_there_is() {
    let (volume, _) = open(with_footer(|footer| footer.reserve_basis_points = u32::MAX)).unwrap();
    assert_eq!(volume.space().available_bytes, 0);
}

/// Pages past the limit of page numbers were read, not taken in, and read again for ever.
#[test]
fn pages_past_the_limit_of_pages() {
    refused(with_footer(|footer| footer.page_limit = 1), "pages past 1");
}

/// A page table of any length was filled up in memory, 5 KiB for each 8 bytes of the footer.
#[test]
fn a_page_table_larger_than_the_device() {
    refused(
        with_footer(|footer| footer.mat = vec![Addr::ZERO; 400]),
        "400 chunks",
    );
}

/// Counters at their ends overflowed, or let a commit wait for a record that no number was left
/// for.
#[test]
fn counters_at_their_ends() {
    refused(
        with_footer(|footer| footer.checkpoint = u64::MAX),
        "checkpoint",
    );
    refused(with_footer(|footer| footer.cut = Lsn(u64::MAX)), "record");
    refused(with_footer(|footer| footer.next_ino = u64::MAX), "inode");
    refused(with_footer(|footer| footer.lot_end = u64::MAX), "inode");
    refused(with_footer(|footer| footer.lot_end = 1), "inode");
    refused(
        with_footer(|footer| footer.next_zone_sequence = u64::MAX),
        "zone",
    );
    refused(
        with_footer(|footer| footer.reserved_blocks = u64::MAX),
        "reserved",
    );
    let last_epoch = with_records(true, &[Vec::new()], |state| {
        state.epoch = u32::MAX;
        state.resume_after = state.durable;
    });
    refused(last_epoch, "epoch");
}

/// Writing the metadata anew went on from a checkpoint's number that was the last there is, and overflowed. A mount
/// refuses such a number, and so does a repair, before it changes anything.
#[test]
fn a_repair_goes_on_from_no_counter_at_its_end() {
    let device = Arc::new(with_footer(|footer| footer.checkpoint = u64::MAX));
    let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
    let mended = mend(
        &rebuilt,
        Arc::clone(&device) as _,
        (Timestamp::default(), Options::default()),
        &mut |_| {},
        &mut |_, _, _| {},
    );
    let message = mended.unwrap_err().to_string();
    assert!(message.contains("which no volume reaches"), "{message}");
}

/// The check overflowed where it looks for a free inode number.
#[test]
fn the_last_inode_number() {
    let inode = Inode {
        mode: 0o100_644,
        nlink: 1,
        ..Inode::default()
    };
    let put = Op::Put {
        key: Key::inode(Ino(u64::MAX)),
        value: inode.encode(),
    };
    let device = with_records(false, &[vec![put.clone()]], |_| {});
    let report = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(!report.is_clean());
    refused(with_records(false, &[vec![put]], |_| {}), "inode");
}

/// A size that no offset reaches: arithmetic on offsets in the file overflowed.
#[test]
fn a_size_past_the_largest_file() {
    let set = Touch {
        size: Some(u64::MAX),
        ..Touch::default()
    };
    let touch = Op::Touch { ino: Ino(1), set };
    refused(with_records(false, &[vec![touch]], |_| {}), "size");
}
