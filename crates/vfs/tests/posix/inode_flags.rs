//! The flags of `chattr`, which are another view of `user.persimmon.compression`.

use persimmon_engine::Quotas;
use persimmon_vfs::{
    Caller, Error, Handle, Ino, InodeFlags, OpenFlags, ROOT, Result, SetAttr, SetTime, Timestamp,
    WriteFlags, XattrMode,
};

use crate::fixture::{Fixture, READ_WRITE};

const NAME: &[u8] = b"user.persimmon.compression";
const COMPRESS: u32 = 0x4;
const NO_COMPRESS: u32 = 0x400;

fn tell(fs: &Fixture, ino: Ino, value: &str) {
    let mode = XattrMode::Either;
    fs.vfs
        .setxattr(&fs.root, ino, NAME, value.as_bytes(), mode)
        .unwrap();
}

fn told(fs: &Fixture, ino: Ino) -> Option<String> {
    match fs.vfs.getxattr(ino, NAME) {
        Ok(value) => Some(String::from_utf8(value).unwrap()),
        Err(Error::NoAttribute) => None,
        Err(error) => panic!("{error}"),
    }
}

fn shown(fs: &Fixture, ino: Ino) -> u32 {
    fs.vfs.inode_flags(ino).unwrap().to_linux()
}

fn set(fs: &Fixture, ino: Ino, flags: u32) -> Result<()> {
    let flags = InodeFlags::from_linux(flags)?;
    fs.vfs.set_inode_flags(&fs.root, ino, flags)
}

#[test]
fn flags_show_the_attribute() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    assert_eq!(shown(&fs, ino), 0);
    for (value, flags) in [
        ("lz4", COMPRESS),
        ("none", NO_COMPRESS),
        ("zstd:1", COMPRESS),
        ("zstd:15", COMPRESS),
    ] {
        tell(&fs, ino, value);
        assert_eq!(shown(&fs, ino), flags, "{value}");
    }
    fs.vfs.removexattr(ino, NAME).unwrap();
    assert_eq!(shown(&fs, ino), 0);
}

#[test]
fn levels_out_of_range_are_refused() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    tell(&fs, ino, "zstd:15");
    for value in ["zstd:16", "zstd:0", "zstd:", "lz4:1", "gzip", ""] {
        let told = fs
            .vfs
            .setxattr(&fs.root, ino, NAME, value.as_bytes(), XattrMode::Either);
        assert!(matches!(told, Err(Error::Invalid(_))), "{value}: {told:?}");
    }
    assert_eq!(told(&fs, ino).as_deref(), Some("zstd:15"));
}

/// What is written past caches is for who wants its blocks as they are: at once, and at their places.
#[test]
fn direct_writes_are_stored_whole() {
    let fs = Fixture::default();
    let text = b"what is written again and again. ".repeat(4000);
    let stored = |name: &[u8], direct: bool, pieces: &[&[u8]]| {
        let flags = OpenFlags {
            direct,
            ..READ_WRITE
        };
        let (attr, handle) = fs.vfs.create(&fs.root, ROOT, name, 0o644, flags).unwrap();
        tell(&fs, attr.ino, "lz4");
        let mut at = 0;
        for piece in pieces {
            let flags = WriteFlags::default();
            fs.vfs.write(attr.ino, handle, at, piece, flags).unwrap();
            fs.vfs.fsync(attr.ino, handle).unwrap();
            at += piece.len() as u64;
        }
        fs.vfs.release(attr.ino, handle).unwrap();
        fs.vfs.sync().unwrap();
        assert!(fs.content(attr.ino) == pieces.concat());
        fs.vfs.getattr(attr.ino).unwrap().blocks * 512
    };
    // At once, and single blocks that are synced.
    let (long, short) = (&text[..1 << 17], &text[..4096]);
    assert_eq!(stored(b"direct", true, &[long]), 1 << 17);
    assert!(stored(b"ordinary", false, &[long]) < 1 << 13);
    assert_eq!(stored(b"blocks, direct", true, &[short; 3]), 3 << 12);
    assert!(stored(b"blocks", false, &[short; 3]) < 1 << 12);
}

#[test]
fn flags_set_the_attribute() {
    let fs = Fixture::default();
    let (file, dir) = (fs.file("f", b""), fs.mkdir("d"));
    for ino in [file, dir] {
        for (before, flags, after) in [
            (None, COMPRESS, Some("lz4")),
            (None, NO_COMPRESS, Some("none")),
            (None, 0, None),
            (Some("none"), COMPRESS, Some("lz4")),
            (Some("none"), NO_COMPRESS, Some("none")),
            (Some("none"), 0, None),
            (Some("lz4"), COMPRESS, Some("lz4")),
            (Some("lz4"), NO_COMPRESS, Some("none")),
            (Some("lz4"), 0, None),
            (Some("zstd:9"), COMPRESS, Some("zstd:9")),
            (Some("zstd:9"), NO_COMPRESS, Some("none")),
            (Some("zstd:9"), 0, None),
        ] {
            match before {
                Some(value) => tell(&fs, ino, value),
                None => set(&fs, ino, 0).unwrap(),
            }
            set(&fs, ino, flags).unwrap();
            assert_eq!(told(&fs, ino).as_deref(), after, "{before:?}, {flags:x}");
        }
    }
    set(&fs, dir, NO_COMPRESS).unwrap();
    let inherits = fs.file("d/f", b"");
    let fs = fs.remount();
    assert_eq!(shown(&fs, inherits), NO_COMPRESS);
}

#[test]
fn only_changes_change_the_time() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    tell(&fs, ino, "zstd:9");
    let before = fs.at("f").ctime;
    set(&fs, ino, COMPRESS).unwrap();
    assert_eq!(fs.at("f").ctime, before);
    set(&fs, ino, NO_COMPRESS).unwrap();
    assert!(fs.at("f").ctime > before);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    tell(&fs, ino, "zstd:9");
    let both = set(&fs, ino, COMPRESS | NO_COMPRESS);
    assert!(matches!(both, Err(Error::Invalid(_))));
    // No copy on write, others, and of a file its project.
    for other in [0x1, 0x8, 0x80_0000, 0x2000_0000] {
        let refused = set(&fs, ino, COMPRESS | other);
        assert!(matches!(refused, Err(Error::NotSupported)), "{other:x}");
    }
    assert_eq!(told(&fs, ino).as_deref(), Some("zstd:9"));
    let link = fs.vfs.symlink(&fs.root, ROOT, b"l", b"f").unwrap();
    let fifo = fs
        .vfs
        .mknod(&fs.root, ROOT, b"p", libc::S_IFIFO, 0)
        .unwrap();
    for ino in [link.ino, fifo.ino] {
        assert!(matches!(fs.vfs.inode_flags(ino), Err(Error::NotSupported)));
        assert!(matches!(set(&fs, ino, COMPRESS), Err(Error::NotSupported)));
    }
    assert!(matches!(set(&fs, Ino(999), 0), Err(Error::Stale)));
}

#[test]
fn directories_with_a_project_show_that_it_is_inherited() {
    const INHERITS: u32 = 0x2000_0000;
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    // Without a project it changes nothing.
    set(&fs, dir, INHERITS | COMPRESS).unwrap();
    assert_eq!(shown(&fs, dir), COMPRESS);
    Quotas::of(fs.vfs.volume()).turn_on(false).unwrap();
    fs.vfs.set_project(&fs.root, dir, 7).unwrap();
    assert_eq!(shown(&fs, dir), INHERITS | COMPRESS);
    set(&fs, dir, INHERITS).unwrap();
    assert_eq!(shown(&fs, dir), INHERITS);
    // A directory always gives its project to what is made in it.
    assert!(matches!(set(&fs, dir, 0), Err(Error::NotSupported)));
    let file = fs.file("d/f", b"");
    assert_eq!(shown(&fs, file), 0);
    assert_eq!(fs.vfs.project(file).unwrap(), 7);
    set(&fs, file, COMPRESS).unwrap();
}

#[test]
fn only_the_owner_and_the_privileged_set_them() {
    let fs = Fixture::default();
    let owner = Caller {
        uid: 1000,
        ..Caller::root()
    };
    let other = Caller {
        uid: 1001,
        ..Caller::root()
    };
    fs.chmod(ROOT, 0o777);
    let made = fs.vfs.mknod(&owner, ROOT, b"f", libc::S_IFREG | 0o666, 0);
    let ino = made.unwrap().ino;
    let flags = InodeFlags::from_linux(COMPRESS).unwrap();
    let refused = fs.vfs.set_inode_flags(&other, ino, flags);
    assert!(matches!(refused, Err(Error::NotPermitted)));
    assert_eq!(told(&fs, ino), None);
    fs.vfs.set_inode_flags(&owner, ino, flags).unwrap();
    assert_eq!(told(&fs, ino).as_deref(), Some("lz4"));
    set(&fs, ino, NO_COMPRESS).unwrap();
    assert_eq!(told(&fs, ino).as_deref(), Some("none"));
}

/// A kernel that caches writes sends a change time with each change of attributes.
#[test]
fn a_change_time_sent_along_excuses_no_change() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let sent = SetAttr {
        ctime: Some(Timestamp::default()),
        ..SetAttr::default()
    };
    for flag in [0x10, 0x20] {
        set(&fs, ino, flag).unwrap();
        for change in [
            SetAttr {
                size: Some(0),
                ..sent
            },
            SetAttr {
                mode: Some(0o777),
                ..sent
            },
            SetAttr {
                uid: Some(7),
                ..sent
            },
        ] {
            let refused = fs.vfs.setattr(ino, Handle::NONE, &change);
            assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
        }
        // The times of what was written before.
        let written = SetAttr {
            mtime: Some(SetTime::At(Timestamp::default())),
            ..sent
        };
        fs.vfs.setattr(ino, Handle::NONE, &written).unwrap();
        set(&fs, ino, 0).unwrap();
    }
    assert_eq!(fs.content(ino), b"content");
}
