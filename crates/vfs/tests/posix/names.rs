//! Making, looking up, linking.

use persimmon_vfs::ROOT;

use crate::fixture::Fixture;

#[test]
fn a_directory_counts_its_subdirectories_and_entries() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    assert_eq!(fs.at("d").nlink, 2);
    assert_eq!(fs.at("").nlink, 3);
    fs.mkdir("d/a");
    fs.mkdir("d/b");
    fs.file("d/f", b"");
    assert_eq!((fs.at("d").nlink, fs.at("d").size), (4, 3));
    fs.vfs.rmdir(dir, b"a").unwrap();
    fs.unlink("d/f");
    assert_eq!((fs.at("d").nlink, fs.at("d").size), (3, 1));
}

#[test]
fn inode_numbers_are_not_used_again() {
    let fs = Fixture::default();
    let first = fs.file("f", b"");
    fs.unlink("f");
    let second = fs.file("f", b"");
    assert!(second > first);
    assert!(fs.vfs.getattr(first).is_err());
}

#[test]
fn many_names_in_one_directory() {
    let fs = Fixture::default();
    for i in 0..3000 {
        let name = format!("file-{i}");
        fs.vfs
            .mknod(&fs.root, ROOT, name.as_bytes(), 0o644, 0)
            .unwrap();
    }
    assert_eq!(fs.names("").len(), 3000);
    for i in (0..3000).step_by(2) {
        fs.unlink(&format!("file-{i}"));
    }
    let names = fs.names("");
    assert_eq!(names.len(), 1500);
    assert_eq!(fs.at("").size, 1500);
    assert!(!fs.exists("file-0") && fs.exists("file-1"));
}

#[test]
fn statfs_tells_inodes_and_space() {
    let fs = Fixture::default();
    let stat = fs.vfs.statfs().unwrap();
    assert_eq!((stat.block_size, stat.name_len_max), (4096, 255));
    assert!(stat.blocks >= stat.blocks_free && stat.blocks_free >= stat.blocks_available);
    assert!(stat.files > stat.files_free);
}
