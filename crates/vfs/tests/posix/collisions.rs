//! Names whose hashes collide.
//!
//! Directory cookies showed the hash of a name, and two names of one's own were enough to learn from them what
//! was needed to make as many more of any hash as one liked. 256 of them in a directory, and a chosen
//! name could be made by nobody any more: no space, it said. Here the hash is made weak on purpose.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::name;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Error, Handle, Ino, Listing, Options, ROOT, RenameMode, XattrMode};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::fixture::Fixture;

/// While this is there, hashes of names keep only some bits on this thread.
struct Weak;

impl Weak {
    fn keep(bits: u64) -> Weak {
        name::keep_bits(bits);
        Weak
    }
}

impl Drop for Weak {
    fn drop(&mut self) {
        name::keep_bits(u64::MAX);
    }
}

fn fixture() -> Fixture {
    let device = SimDevice::new(SimConfig::new(64, 1024).fast());
    Fixture::on(device.into(), Options::default())
}

fn make(fs: &Fixture, dir: Ino, name: &str) -> Ino {
    let made = fs.vfs.mknod(&fs.root, dir, name.as_bytes(), 0o644, 0);
    made.unwrap_or_else(|error| panic!("{name}: {error}")).ino
}

/// All names, and each with its cookie, in pages of so many.
fn list(fs: &Fixture, dir: Ino, size: usize) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    loop {
        let after = all.last().map_or(2, |(_, cookie)| *cookie);
        let mut left = size;
        fs.vfs
            .readdir(dir, Handle::NONE, after, &mut |entry| {
                if left == 0 {
                    return Listing::Full;
                }
                left -= 1;
                let name = String::from_utf8_lossy(entry.name).into_owned();
                all.push((name, entry.cookie));
                Listing::More
            })
            .unwrap();
        if left > 0 {
            return all;
        }
    }
}

#[test]
fn names_that_collide_block_no_other() {
    let _weak = Weak::keep(0);
    let mut fs = fixture();
    let dir = fs.mkdir("tmp");
    let mut names: BTreeMap<String, Ino> = BTreeMap::new();
    for i in 0..3000 {
        let name = format!("attacker-{i}");
        names.insert(name.clone(), make(&fs, dir, &name));
    }
    let victim = "org.freedesktop.systemd.lock";
    names.insert(victim.into(), make(&fs, dir, victim));

    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..3 {
        for (name, ino) in &names {
            assert_eq!(fs.vfs.lookup(dir, name.as_bytes()).unwrap().ino, *ino);
        }
        let absent = fs.vfs.lookup(dir, b"absent");
        assert!(matches!(absent, Err(Error::NotFound)));
        let listed: Vec<_> = list(&fs, dir, 7)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(listed.len(), names.len());
        assert!(listed.iter().all(|name| names.contains_key(name)));
        fs = fs.remount();

        // Holes of all sizes, anywhere, hide nothing behind them.
        let mut gone: Vec<String> = names.keys().filter(|n| *n != victim).cloned().collect();
        gone.shuffle(&mut rng);
        for name in gone.into_iter().take(900) {
            fs.vfs.unlink(dir, name.as_bytes()).unwrap();
            names.remove(&name);
        }
        for i in 0..100 {
            let name = format!("later-{round}-{i}");
            let again = fs.vfs.lookup(dir, name.as_bytes());
            assert!(matches!(again, Err(Error::NotFound)));
            names.insert(name.clone(), make(&fs, dir, &name));
        }
        let again = fs.vfs.mkdir(&fs.root, dir, victim.as_bytes(), 0o755);
        assert!(matches!(again, Err(Error::Exists)));
    }
    let names: BTreeSet<String> = names.into_keys().collect();
    fs = fs.after_power_cut(3);
    for name in names
        .iter()
        .filter(|name| fs.exists(&format!("tmp/{name}")))
    {
        fs.vfs.unlink(dir, name.as_bytes()).unwrap();
    }
    fs.vfs.rmdir(ROOT, b"tmp").unwrap();
    fs.remount();
}

/// Against a map, with hashes of which few, some or all bits are left: any change in any order, listings that
/// others come and go in, unmounts. The check of the volume that ends each finds nothing.
#[test]
fn names_that_collide_are_as_any_others() {
    for (seed, bits) in [(1, 0), (2, 0xe), (3, 0x00ff_0000), (4, u64::MAX << 60)] {
        let _weak = Weak::keep(bits);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut fs = fixture();
        let dirs = [fs.mkdir("a"), fs.mkdir("b")];
        let mut twins: [BTreeMap<String, Ino>; 2] = Default::default();
        let name = |rng: &mut ChaCha8Rng| format!("name {}", rng.random_range(0..120));
        for step in 0..4000 {
            let at = rng.random_range(0..2);
            let (one, other) = (name(&mut rng), name(&mut rng));
            let (dir, twin) = (dirs[at], &mut twins[at]);
            match rng.random_range(0..10) {
                0..4 => match fs.vfs.mknod(&fs.root, dir, one.as_bytes(), 0o644, 0) {
                    Ok(attr) => assert_eq!(twin.insert(one, attr.ino), None),
                    Err(error) => {
                        assert!(matches!(error, Error::Exists), "{error}");
                        assert!(twin.contains_key(&one));
                    }
                },
                4..6 => {
                    let removed = fs.vfs.unlink(dir, one.as_bytes());
                    assert_eq!(removed.is_ok(), twin.remove(&one).is_some(), "{one}");
                }
                6 | 7 => {
                    let to = rng.random_range(0..2);
                    let (from, onto) = (one.as_bytes(), other.as_bytes());
                    let moved = fs
                        .vfs
                        .rename(dir, from, dirs[to], onto, RenameMode::Replace);
                    assert_eq!(moved.is_ok(), twin.contains_key(&one));
                    if let Some(ino) = twins[at].remove(&one) {
                        twins[to].insert(other, ino);
                    }
                }
                8 => {
                    let found = fs.vfs.lookup(dir, one.as_bytes()).ok();
                    assert_eq!(found.map(|attr| attr.ino), twin.get(&one).copied());
                }
                _ => {
                    let names = list(&fs, dir, rng.random_range(1..40));
                    let listed: BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
                    assert_eq!(listed.len(), names.len(), "once each");
                    assert!(listed.into_iter().eq(twin.keys()));
                }
            }
            if step % 1000 == 999 {
                fs = fs.remount();
            }
        }
    }
}

/// A listing goes on where it was, whatever came and went meanwhile, after an unmount too.
#[test]
fn listings_resume_among_names_that_collide() {
    let _weak = Weak::keep(0);
    let mut fs = fixture();
    let dir = fs.mkdir("d");
    for i in 0..300 {
        make(&fs, dir, &format!("stays {i}"));
        make(&fs, dir, &format!("goes {i}"));
    }
    let all = list(&fs, dir, 100);
    let (seen, unseen) = all.split_at(250);
    let cookie = seen.last().unwrap().1;
    for (name, _) in all.iter().filter(|(name, _)| name.starts_with("goes")) {
        fs.vfs.unlink(dir, name.as_bytes()).unwrap();
    }
    fs = fs.remount();
    let mut rest = Vec::new();
    fs.vfs
        .readdir(dir, Handle::NONE, cookie, &mut |entry| {
            rest.push((
                String::from_utf8_lossy(entry.name).into_owned(),
                entry.cookie,
            ));
            Listing::More
        })
        .unwrap();
    let stays = unseen.iter().filter(|(name, _)| name.starts_with("stays"));
    assert!(
        rest.iter().eq(stays),
        "the same names with the same cookies"
    );
}

#[test]
fn attributes_whose_names_collide() {
    let _weak = Weak::keep(0);
    let mut fs = fixture();
    let file = fs.file("f", b"");
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let name = |i: u32| format!("user.{i}").into_bytes();
    let set = |fs: &Fixture, i: u32| {
        let value = i.to_le_bytes();
        let set = fs
            .vfs
            .setxattr(&fs.root, file, &name(i), &value, XattrMode::Create);
        set.unwrap();
    };
    (0..400).for_each(|i| set(&fs, i));
    let numbers: Vec<u32> = (0..400).collect();
    let gone: BTreeSet<u32> = numbers.choose_multiple(&mut rng, 150).copied().collect();
    for i in &gone {
        fs.vfs.removexattr(file, &name(*i)).unwrap();
    }
    set(&fs, 400);
    fs = fs.remount();
    for i in (0..401).filter(|i| !gone.contains(i)) {
        assert_eq!(fs.vfs.getxattr(file, &name(i)).unwrap(), i.to_le_bytes());
    }
    for i in &gone {
        assert!(fs.vfs.getxattr(file, &name(*i)).is_err());
    }
}

/// What readdir shows of names that are as near each other as can be tells nothing of that: neither that
/// they are near, nor in which order, nor that a directory has the names of another.
#[test]
fn cookies_tell_nothing_of_hashes() {
    let _weak = Weak::keep(0);
    let fs = fixture();
    let dirs = [fs.mkdir("a"), fs.mkdir("b")];
    let listed = dirs.map(|dir| {
        for i in 0..2000 {
            make(&fs, dir, &format!("{i}"));
        }
        list(&fs, dir, 1000)
    });
    let [a, b] = &listed;
    assert!(a.iter().zip(b).all(|((name, _), (same, _))| name == same));
    let cookies: BTreeSet<u64> = a.iter().chain(b).map(|(_, cookie)| *cookie).collect();
    assert_eq!(cookies.len(), 4000, "none is that of another directory");
    for names in &listed {
        let pairs = || names.windows(2).map(|pair| (pair[0].1, pair[1].1));
        let rising = pairs().filter(|(one, next)| one < next).count();
        assert!((800..1200).contains(&rising), "{rising} of 1999 rise");
        // 63 bits, of which half differ from one to the next.
        let differ: u32 = pairs().map(|(one, next)| (one ^ next).count_ones()).sum();
        let mean = f64::from(differ) / 1999.0;
        assert!((30.0..33.0).contains(&mean), "{mean} bits differ");
        let bits = (0..63).map(|bit| names.iter().filter(|(_, c)| c >> bit & 1 == 1).count());
        for (bit, ones) in bits.enumerate() {
            assert!((800..1200).contains(&ones), "bit {bit} is set in {ones}");
        }
    }
}
