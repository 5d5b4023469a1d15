//! Quota and projects come back as they were stored, and nothing else is taken for them.

#![allow(clippy::unwrap_used)]

mod samples;

use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, Owner, Quota, QuotaState};

/// A project that there is not has one form: no bytes.
#[test]
fn an_inode_tells_a_project_or_has_no_bytes_for_it() {
    let mut bytes = samples::inode().encode();
    bytes.extend([0; 4]);
    assert!(Inode::decode(&bytes).is_err());
    assert!(Inode::decode(&bytes[..Inode::LEN + 3]).is_err());
    bytes[Inode::LEN] = 7;
    assert_eq!(Inode::decode(&bytes).unwrap().project, 7);
    bytes.push(0);
    assert!(Inode::decode(&bytes).is_err());
}

#[test]
fn quota_comes_back() {
    let quota = samples::quota();
    assert_eq!(Quota::decode(&quota.encode()), Ok(quota));
    let mut reserved = quota.encode();
    reserved[4] = 1;
    assert!(Quota::decode(&reserved).is_err());
    let owner = samples::owner();
    assert_eq!(Owner::of_key(&owner.key()), Some(owner));
    assert_eq!(Owner::of_key(&QuotaState::KEY), None);
    for counting in [Counting::Off, Counting::Below(0), Counting::All] {
        let state = QuotaState {
            counting,
            ..samples::quota_state()
        };
        let mut bytes = state.encode();
        assert_eq!(QuotaState::decode(&bytes), Ok(state));
        bytes[0] = 3;
        assert!(QuotaState::decode(&bytes).is_err());
    }
    let mut off = QuotaState::default().encode();
    off[8] = 1;
    assert!(QuotaState::decode(&off).is_err());
}
