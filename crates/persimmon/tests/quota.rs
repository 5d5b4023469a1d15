//! Quota through the library, on an image.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use persimmon::{
    Counting, Create, Filesystem, NewLimits, OpenOptions, Options, Owner, OwnerKind, SetAttr,
};

const USER: Owner = Owner {
    kind: OwnerKind::User,
    id: 1001,
};
const TREE: Owner = Owner {
    kind: OwnerKind::Project,
    id: 7,
};

fn write(fs: &Filesystem, path: &str, bytes: usize) -> persimmon::Result<()> {
    // It does not compress.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    let noise: Vec<u8> = noise.take(bytes).collect();
    let options = OpenOptions::new().write(true).create(true);
    fs.open_file(path, &options)?.write_at(&noise, 0)
}

fn hard(bytes: u64) -> NewLimits {
    NewLimits {
        bytes_hard: Some(bytes),
        ..NewLimits::default()
    }
}

#[test]
fn limits_count_in_the_library_and_stay() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.img");
    Filesystem::create(&image, &Create::sized(256 << 20)).unwrap();
    let fs = Filesystem::open(&image, &Options::default()).unwrap();
    assert_eq!(fs.quota_state().counting, Counting::Off);
    assert!(fs.set_quota(USER, &hard(1)).is_err());
    fs.create_dir("tree").unwrap();
    write(&fs, "tree/before", 100_000).unwrap();
    fs.turn_quota_on(false).unwrap();
    assert_eq!(fs.quota_state().counting, Counting::All);

    assert_eq!(fs.set_project("tree", TREE.id).unwrap(), 2);
    assert_eq!(fs.project("tree/before").unwrap(), TREE.id);
    fs.set_quota(TREE, &hard(1 << 20)).unwrap();
    write(&fs, "tree/more", 500_000).unwrap();
    let refused = write(&fs, "tree/more", 2_000_000).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT, "{refused}");
    write(&fs, "elsewhere", 2_000_000).unwrap();
    fs.close().unwrap();

    let fs = Filesystem::open(&image, &Options::default()).unwrap();
    let known = fs.quota(TREE).unwrap();
    assert_eq!((known.usage.inodes, known.bytes.hard), (3, 1 << 20));
    assert!(!known.exceeds() && known.bytes_used() > 500_000);
    let give = SetAttr {
        uid: Some(USER.id),
        ..SetAttr::default()
    };
    fs.set_attributes("elsewhere", &give).unwrap();
    assert!(fs.set_quota(USER, &hard(4096)).unwrap().exceeds());
    let owners: Vec<Owner> = fs.quotas().unwrap().iter().map(|q| q.owner).collect();
    assert!(owners.contains(&USER) && owners.contains(&TREE));
    assert!(owners.is_sorted());
    fs.turn_quota_off().unwrap();
    write(&fs, "tree/more", 2_000_000).unwrap();
    fs.close().unwrap();
}

/// Space of a path is what its project may take: who asked for it heard of the whole volume.
#[test]
fn a_path_has_the_space_of_its_project() {
    const BLOCK: u64 = 4096;
    let fs = Filesystem::in_memory(256 << 20).unwrap();
    fs.create_dir("tree").unwrap();
    fs.turn_quota_on(false).unwrap();
    fs.set_project("tree", TREE.id).unwrap();
    let whole = fs.statfs().unwrap();
    assert_eq!(fs.statfs_at("tree").unwrap(), whole);
    fs.set_quota(TREE, &hard(1 << 20)).unwrap();
    write(&fs, "tree/f", 512 << 10).unwrap();
    let of_the_tree = fs.statfs_at("tree").unwrap();
    assert_eq!(of_the_tree.blocks, (1 << 20) / BLOCK);
    assert_eq!(of_the_tree.blocks_available, (512 << 10) / BLOCK);
    let file = fs
        .open_file("tree/f", &OpenOptions::new().read(true))
        .unwrap();
    assert_eq!(file.statfs().unwrap(), of_the_tree);
    assert_eq!(fs.statfs_at("/").unwrap().blocks, whole.blocks);
    let error = fs.statfs_at("none").unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
    fs.close().unwrap();
}

/// A quota cut a record in two, and a log that ends so cannot be read to its end.
#[test]
fn a_record_is_whole_where_a_quota_ends() {
    const RECORD: usize = 530;
    let ways: [(&str, bool, bool); 5] = [
        ("write_at", false, false),
        ("append", true, false),
        ("kept", false, true),
        ("kept_append", true, true),
        ("flushed", false, true),
    ];
    for (way, appends, is_kept) in ways {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("volume.img");
        Filesystem::create(&image, &Create::sized(128 << 20)).unwrap();
        let fs = Filesystem::open(&image, &Options::default()).unwrap();
        fs.turn_quota_on(false).unwrap();
        fs.create_dir("tree").unwrap();
        fs.set_project("tree", TREE.id).unwrap();
        fs.set_quota(TREE, &hard(256 << 10)).unwrap();
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .append(appends)
            .keep_flushed(is_kept);
        let log = fs.open_file("tree/log", &options).unwrap();
        let record = [7; RECORD];
        let mut end = 0;
        let refused = loop {
            let written = match way {
                "write_at" => log.write_at(&record, end),
                "append" | "kept_append" => log.append(&record).map(drop),
                "kept" => log
                    .write_at(&record, end)
                    .and_then(|()| log.flush_through()),
                _ => log.write_flushed_at(&record, end),
            };
            match written {
                Ok(()) => end += RECORD as u64,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.errno(), libc::EDQUOT, "{way}: {refused}");
        assert!(end > 128 << 10, "{way}: {end}");
        assert_eq!(log.metadata().unwrap().size, end, "{way}");
        // A shorter one may fit.
        let rest = vec![7; (4096 - end % 4096) as usize];
        log.write_at(&rest, end).unwrap();
        assert_eq!(log.metadata().unwrap().size, end + rest.len() as u64);
        drop(log);
        fs.close().unwrap();
        let fs = Filesystem::open(&image, &Options::read_only()).unwrap();
        let size = fs.metadata("tree/log").unwrap().size;
        assert_eq!(size, end + rest.len() as u64, "{way}");
    }
}
