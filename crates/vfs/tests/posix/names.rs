//! Making, looking up, linking.

use persimmon_vfs::{FileKind, ROOT};

use crate::fixture::{Fixture, READ_WRITE, user};

#[test]
fn a_new_file_has_the_attributes_it_was_made_with() {
    let fs = Fixture::default();
    let caller = persimmon_vfs::Caller {
        umask: 0o027,
        ..user(1000, 100)
    };
    let made = fs.vfs.mknod(&caller, ROOT, b"f", 0o666, 0).unwrap();
    let found = fs.vfs.lookup(ROOT, b"f").unwrap();
    assert_eq!(made, found);
    assert_eq!(found.mode, libc::S_IFREG | 0o640);
    assert_eq!((found.uid, found.gid), (1000, 100));
    assert_eq!((found.nlink, found.size, found.blocks), (1, 0, 0));
    assert_eq!(found.atime, found.mtime);
    assert_eq!(found.mtime, found.ctime);
    assert_eq!(found.ctime, found.btime);
    assert_eq!(found.blksize, 4096);
}

#[test]
fn every_kind_of_file_can_be_made() {
    let fs = Fixture::default();
    let kinds = [
        (libc::S_IFREG, FileKind::Regular, 0),
        (libc::S_IFIFO, FileKind::Fifo, 0),
        (libc::S_IFSOCK, FileKind::Socket, 0),
        (libc::S_IFCHR, FileKind::CharDevice, 0x0103),
        (libc::S_IFBLK, FileKind::BlockDevice, 0x0801),
    ];
    for (i, (bits, kind, rdev)) in kinds.into_iter().enumerate() {
        let name = format!("n{i}");
        let attr = fs
            .vfs
            .mknod(
                &fs.root,
                ROOT,
                name.as_bytes(),
                bits | 0o600,
                0x0103.max(rdev),
            )
            .unwrap();
        assert_eq!(attr.kind(), kind);
        assert_eq!(attr.rdev, rdev, "only devices have a device number");
    }
}

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
fn dot_and_dot_dot_are_found() {
    let fs = Fixture::default();
    fs.mkdir("d");
    let inner = fs.mkdir("d/e");
    assert_eq!(fs.vfs.lookup(inner, b".").unwrap().ino, inner);
    assert_eq!(fs.vfs.lookup(inner, b"..").unwrap().ino, fs.ino("d"));
    assert_eq!(fs.vfs.lookup(ROOT, b"..").unwrap().ino, ROOT);
}

#[test]
fn names_are_bytes_up_to_255() {
    let fs = Fixture::default();
    let names: [&[u8]; 5] = [
        &[0xff; 255],
        b" ",
        b"\n",
        b"...",
        "Überraschung 🍅".as_bytes(),
    ];
    for name in names {
        fs.vfs.mknod(&fs.root, ROOT, name, 0o644, 0).unwrap();
    }
    for name in names {
        fs.vfs.lookup(ROOT, name).unwrap();
    }
    assert_eq!(fs.at("").size, 5);
}

#[test]
fn hard_links_share_one_inode() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    fs.mkdir("d");
    let before = fs.at("f").ctime;
    fs.link("f", "d/g");
    let attr = fs.at("d/g");
    assert_eq!((attr.ino, attr.nlink), (ino, 2));
    assert!(attr.ctime > before);
    fs.unlink("f");
    assert_eq!(fs.at("d/g").nlink, 1);
    assert_eq!(fs.content(ino), b"content");
}

#[test]
fn special_files_and_links_can_be_linked() {
    let fs = Fixture::default();
    fs.vfs.symlink(&fs.root, ROOT, b"s", b"target").unwrap();
    fs.link("s", "t");
    assert_eq!(fs.vfs.readlink(fs.ino("t")).unwrap(), b"target");
    assert_eq!(fs.at("s").nlink, 2);
}

#[test]
fn a_symbolic_link_keeps_its_target() {
    let fs = Fixture::default();
    for len in [1, 59, 60, 4094, 4095] {
        let target = vec![b't'; len];
        let name = format!("s{len}");
        let attr = fs
            .vfs
            .symlink(&user(7, 8), ROOT, name.as_bytes(), &target)
            .unwrap();
        assert_eq!(attr.size, len as u64);
        assert_eq!(attr.mode, libc::S_IFLNK | 0o777);
        assert_eq!(fs.vfs.readlink(attr.ino).unwrap(), target);
    }
}

#[test]
fn create_opens_what_is_there() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let (attr, handle) = fs
        .vfs
        .create(&fs.root, ROOT, b"f", 0o600, READ_WRITE)
        .unwrap();
    assert_eq!((attr.ino, attr.size), (ino, 7));
    let mut buf = [0; 7];
    assert_eq!(fs.vfs.read(ino, handle, 0, &mut buf).unwrap(), 7);
    fs.vfs.release(ino, handle).unwrap();
    let truncating = persimmon_vfs::OpenFlags {
        truncate: true,
        ..READ_WRITE
    };
    let (attr, _) = fs
        .vfs
        .create(&fs.root, ROOT, b"f", 0o600, truncating)
        .unwrap();
    assert_eq!((attr.ino, attr.size), (ino, 0));
}

#[test]
fn a_new_file_can_be_read_only_and_written_through_its_handle() {
    let fs = Fixture::default();
    let (attr, handle) = fs
        .vfs
        .create(&user(1, 1), ROOT, b"f", 0o400, READ_WRITE)
        .unwrap();
    fs.vfs
        .write(attr.ino, handle, 0, b"abc", Default::default())
        .unwrap();
    assert_eq!(fs.vfs.getattr(attr.ino).unwrap().size, 3);
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
