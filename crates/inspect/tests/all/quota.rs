//! Counts of what owners take, wrong on purpose, are found, and a repair counts anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{
    FILE, add, assert_sound, change, content, formatted, mend, now, numbers, open,
};
use persimmon_engine::{NewLimits, Quotas, Volume};
use persimmon_format::inode::ROOT;
use persimmon_format::quota::{Counting, Owner, OwnerKind, Quota};
use persimmon_format::{Key, KeyKind};

const ROOT_USER: Owner = Owner {
    kind: OwnerKind::User,
    id: 0,
};

/// A volume with quota, two files, and a limit.
fn counted() -> std::sync::Arc<persimmon_sim::SimDevice> {
    let device = formatted();
    let volume = open(&device);
    let file = add(&volume, ROOT, "file", FILE);
    volume.write(file, 0, &content(1, 50_000), now(9)).unwrap();
    Quotas::of(&volume).turn_on(false).unwrap();
    Quotas::of(&volume).count().unwrap();
    let limits = NewLimits {
        bytes_hard: Some(1 << 30),
        ..NewLimits::default()
    };
    Quotas::of(&volume).set(ROOT_USER, &limits, now(9)).unwrap();
    add(&volume, ROOT, "other", FILE);
    volume.close().unwrap();
    device
}

fn quota(volume: &Volume) -> Quota {
    let value = volume
        .view::<_, persimmon_engine::Error>(|view| {
            Ok(view.get(&ROOT_USER.key())?.map(<[u8]>::to_vec))
        })
        .unwrap();
    Quota::decode(&value.unwrap()).unwrap()
}

#[test]
fn a_sound_volume_is_clean() {
    assert_sound(&crate::support::report(&counted(), true));
}

#[test]
fn a_wrong_count_is_found_and_counted_anew() {
    let device = counted();
    let before = quota(&open(&device));
    assert_eq!(before.usage.inodes, 3);
    let volume = open(&device);
    change(&volume, |tx| {
        let mut wrong = before;
        wrong.usage.sectors += 8;
        tx.put(ROOT_USER.key(), wrong.encode());
        let nobody = Owner {
            kind: OwnerKind::Project,
            id: 9,
        };
        tx.put(nobody.key(), wrong.encode());
        Ok(())
    });
    volume.close().unwrap();
    drop(volume);
    let found = numbers(&crate::support::report(&device, false));
    assert_eq!(found.iter().filter(|number| **number == 551).count(), 2);
    assert_sound(&mend(&device));
    let volume = open(&device);
    assert_eq!(Quotas::of(&volume).state().counting, Counting::All);
    let after = quota(&volume);
    assert_eq!((after.usage, after.bytes), (before.usage, before.bytes));
}

#[test]
fn items_that_are_no_quota_are_found() {
    for (key, value, number) in [
        (ROOT_USER.key(), vec![1; 7], 502),
        (
            Key::new(Key::GLOBAL, KeyKind::QUOTA, 7),
            Quota::default().encode(),
            503,
        ),
        (
            Key::new(Key::GLOBAL, KeyKind::QUOTA, 4 << 32),
            Quota::default().encode(),
            503,
        ),
    ] {
        let device = counted();
        let volume = open(&device);
        change(&volume, |tx| {
            tx.put(key, value.clone());
            Ok(())
        });
        volume.close().unwrap();
        assert!(
            numbers(&crate::support::report(&device, false)).contains(&number),
            "{key:?}"
        );
    }
}
