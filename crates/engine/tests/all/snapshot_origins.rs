//! Of which subvolume a snapshot was taken, also when that is deleted.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::content::{large_zones, open, open_as};
use crate::common::{NOW, create, fresh};
use persimmon_engine::{Error, Options};
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::{Compression, SubvolumeId};

const MAIN: SubvolumeId = SubvolumeId::MAIN;

/// A later one may have its number. All of them change in one record, for whose pages the cache has room, or the snapshot stays.
#[test]
fn snapshots_of_a_deleted_one_are_of_its_origin() {
    const TAKEN: usize = 200;
    let device = fresh(large_zones());
    let options = Options {
        cache_bytes_max: 64 * PAGE_SIZE,
        ..Options::default()
    };
    let volume = open_as(&device, options);
    let ino = create(&volume).unwrap();
    let snapshots = volume.snapshots();
    let dev = snapshots.take(MAIN, b"dev", false, NOW).unwrap();
    let below = snapshots.take(dev, b"below", false, NOW).unwrap();
    let take = |at: usize| {
        let name = format!("{at:0>255}").into_bytes();
        snapshots
            .take(below, &name, at.is_multiple_of(2), NOW)
            .unwrap()
    };
    let taken: Vec<SubvolumeId> = (0..TAKEN).map(take).collect();
    let written = ino.of(below);
    volume.write(written, 0, b"staged", NOW).unwrap();
    let refused = snapshots.delete(below);
    assert!(
        matches!(refused, Err(Error::OriginOfTooMany(TAKEN))),
        "{refused:?}"
    );
    // Nothing was given up for it.
    let (_, is_staged) = volume.attr_and_staging(written).unwrap().unwrap();
    assert!(is_staged);
    let origins = |of: SubvolumeId| {
        let all = snapshots.list().into_iter();
        all.filter(|snapshot| snapshot.origin == of).count()
    };
    assert_eq!((origins(dev), origins(below)), (1, TAKEN));
    let (gone, kept) = taken.split_at(150);
    gone.iter().for_each(|id| snapshots.delete(*id).unwrap());
    snapshots.delete(below).unwrap();
    assert_eq!((origins(dev), origins(below)), (kept.len(), 0));
    volume.sync().unwrap();
    device.cut();
    let volume = open(&Arc::new(device.persisted(1)), Compression::None);
    let origins: BTreeMap<SubvolumeId, SubvolumeId> = { volume.snapshots().list() }
        .iter()
        .map(|snapshot| (snapshot.id, snapshot.origin))
        .collect();
    let due = kept.iter().map(|id| (*id, dev)).chain([(dev, MAIN)]);
    assert_eq!(origins, due.collect());
}
