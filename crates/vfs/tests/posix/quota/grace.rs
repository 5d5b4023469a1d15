//! Soft limits and grace times.

use persimmon_engine::NewLimits;
use persimmon_vfs::{Author, Grace, OwnerKind, ROOT};

use super::*;

/// A filesystem with grace times of 10,000 seconds, and a user.
fn graced() -> (Fixture, Owner) {
    let fs = fixture();
    let grace = Grace {
        bytes: 10_000,
        inodes: 10_000,
    };
    quotas(&fs).set_grace(OwnerKind::User, grace).unwrap();
    (fs, owner(OwnerKind::User, ALICE))
}

#[test]
fn a_soft_limit_may_be_exceeded_for_the_grace_time() {
    let (fs, of) = graced();
    let limits = NewLimits {
        bytes_soft: Some(MIB),
        bytes_hard: Some(4 * MIB),
        ..NewLimits::default()
    };
    set(&fs, of, limits);
    let file = create(&fs, &user(ALICE, STAFF), ROOT, "a").unwrap();
    write(&fs, file, 0, &noise(1, 900_000)).unwrap();
    assert_eq!(get(&fs, of).bytes_grace_end, None);
    write(&fs, file, 900_000, &noise(1, 900_000)).unwrap();
    let end = get(&fs, of).bytes_grace_end.unwrap();
    fs.clock.advance(5000);
    write(&fs, file, 1_800_000, &noise(1, 100_000)).unwrap();
    assert_eq!(get(&fs, of).bytes_grace_end, Some(end));
    // Across a mount.
    let (ino, handle) = file;
    fs.vfs.release(ino, handle).unwrap();
    let fs = fs.remount();
    assert_eq!(get(&fs, of).bytes_grace_end, Some(end));
    fs.clock.advance(6000);
    let file = (ino, fs.vfs.open(ino, LIMITED).unwrap());
    let refused = write(&fs, file, 2 * MIB, &noise(1, 100_000)).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    // Below it, and over it again: another grace time.
    fs.truncate(ino, 500_000);
    write(&fs, file, 500_000, &noise(1, 900_000)).unwrap();
    assert!(get(&fs, of).bytes_grace_end.unwrap() > end);
    // Not beyond the hard limit.
    write(&fs, file, 0, &noise(2, 3 << 20)).unwrap();
    assert_eq!(
        write(&fs, file, 4 * MIB, &noise(1, 2 << 20)).unwrap(),
        1 << 20
    );
    let refused = write(&fs, file, 5 * MIB, b"x").unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    check_counts(&fs);
}

/// The end of a grace time that was over long ago counted for the new limit: who had taken less meanwhile could write nothing any more.
#[test]
fn a_lower_limit_gives_a_grace_time_of_its_own() {
    let (fs, of) = graced();
    let soft = |bytes| NewLimits {
        bytes_soft: Some(bytes),
        ..NewLimits::default()
    };
    set(&fs, of, soft(MIB));
    let file = create(&fs, &user(ALICE, STAFF), ROOT, "a").unwrap();
    write(&fs, file, 0, &noise(1, 1_500_000)).unwrap();
    let first = get(&fs, of).bytes_grace_end.unwrap();
    fs.truncate(file.0, 500_000);
    fs.vfs.volume().sync().unwrap();
    fs.clock.advance(20_000);
    let told = set(&fs, of, soft(100_000)).bytes_grace_end.unwrap();
    assert!(told > first + 5_000, "{told} after {first}");
    write(&fs, file, 500_000, &noise(1, 50_000)).unwrap();
    // One that goes on, at another limit, does not begin anew.
    fs.clock.advance(5_000);
    assert_eq!(set(&fs, of, soft(200_000)).bytes_grace_end, Some(told));
    fs.clock.advance(6_000);
    let refused = write(&fs, file, MIB, &noise(1, 50_000)).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
}

/// Who came back below a soft limit begins another grace time with what exceeds it next, also where a privileged user took them over it: the
/// end of the one before counted, and the next byte was refused.
#[test]
fn a_grace_time_is_over_where_less_is_taken() {
    let (fs, of) = graced();
    let soft = NewLimits {
        bytes_soft: Some(MIB),
        inodes_soft: Some(2),
        ..NewLimits::default()
    };
    set(&fs, of, soft);
    let alice = user(ALICE, STAFF);
    let file = create(&fs, &alice, ROOT, "a").unwrap();
    write(&fs, file, 0, &noise(1, 1_500_000)).unwrap();
    for name in ["b", "c"] {
        let (ino, handle) = create(&fs, &alice, ROOT, name).unwrap();
        fs.vfs.release(ino, handle).unwrap();
    }
    fs.vfs.volume().sync().unwrap();
    assert!(get(&fs, of).bytes_grace_end.is_some() && get(&fs, of).inodes_grace_end.is_some());
    fs.truncate(file.0, 500_000);
    fs.unlink("b");
    fs.clock.advance(20_000);
    let given = fs.file("given", &noise(3, 700_000));
    fs.vfs.volume().sync().unwrap();
    assert_eq!(chown(&fs, given, Some(ALICE), None, Author::Privileged), 0);
    let told = get(&fs, of);
    assert!(told.bytes_used() > MIB && told.usage.inodes > 2);
    assert_eq!((told.bytes_grace_end, told.inodes_grace_end), (None, None));
    write(&fs, file, 500_000, &noise(1, 50_000)).unwrap();
    create(&fs, &alice, ROOT, "d").unwrap();
    fs.clock.advance(11_000);
    let refused = write(&fs, file, MIB, &noise(1, 50_000)).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    check_counts(&fs);
}
