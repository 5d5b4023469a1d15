//! Quota in transactions: what cannot be is refused before anything of it happens, and records keep their bounds.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

mod common;

use common::content::{large_zones, open};
use common::{create, fresh};
use persimmon_engine::{Error, Intent, Quotas};
use persimmon_format::quota::{Counting, QuotaState};
use persimmon_format::{Compression, Key, SubvolumeId};

/// It would have failed half way, after which nothing is written any more.
#[test]
fn items_that_mean_nothing_are_refused_and_change_nothing() {
    let volume = open(&fresh(large_zones()), Compression::None);
    for key in [QuotaState::KEY, Key::subvolume(SubvolumeId(5))] {
        let put = volume.update::<_, Error>(Intent::Shrink, |tx| {
            tx.put(key, vec![0xff; 3]);
            Ok(())
        });
        assert!(put.is_err(), "{key:?}");
        create(&volume).unwrap();
        volume.sync().unwrap();
    }
    assert_eq!(Quotas::of(&volume).state().counting, Counting::Off);
}

#[test]
fn records_have_fewer_operations_while_owners_are_counted() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let before = volume.transaction_ops_max();
    let quotas = Quotas::of(&volume);
    quotas.turn_on(false).unwrap();
    assert_eq!(volume.transaction_ops_max(), before / 4);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device, Compression::None);
    assert_eq!(volume.transaction_ops_max(), before / 4);
    Quotas::of(&volume).turn_off().unwrap();
    assert_eq!(volume.transaction_ops_max(), before);
}
