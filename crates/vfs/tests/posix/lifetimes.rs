//! How long content is said to live: `user.persimmon.lifetime`, and what open files are told.

use persimmon_engine::ZoneEvent;
use persimmon_vfs::{Error, Handle, Ino, Lifetime, OpenFlags, ROOT, WriteFlags, XattrMode};

use crate::fixture::{Fixture, READ_WRITE};

const NAME: &[u8] = b"user.persimmon.lifetime";

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

/// The lifetime class of the zone that what is staged of the file goes to.
fn class(fs: &Fixture, ino: Ino) -> u8 {
    let volume = fs.vfs.volume();
    let before = volume.trace(u64::MAX, 0).next();
    volume.commit_file(ino).unwrap();
    let written = |event: &ZoneEvent| match event {
        ZoneEvent::Written {
            ino: Some(of),
            lifetime,
            ..
        } if *of == ino => Some(*lifetime),
        _ => None,
    };
    let events = volume.trace(before, usize::MAX).events;
    events.iter().find_map(written).unwrap()
}

fn data() -> Vec<u8> {
    vec![5; 10 * 4096]
}

#[test]
fn it_is_an_attribute_among_others() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    assert_eq!(told(&fs, ino), None);
    assert_eq!(fs.vfs.listxattr(&fs.root, ino).unwrap(), b"");
    let mode = XattrMode::Replace;
    let set = |mode| fs.vfs.setxattr(&fs.root, ino, NAME, b"short", mode);
    assert!(matches!(set(mode), Err(Error::NoAttribute)));
    let before = fs.at("f").ctime;
    set(XattrMode::Create).unwrap();
    assert!(fs.at("f").ctime > before);
    assert!(matches!(set(XattrMode::Create), Err(Error::Exists)));
    set(XattrMode::Replace).unwrap();
    fs.vfs
        .setxattr(&fs.root, ino, b"user.other", b"1", XattrMode::Either)
        .unwrap();
    let names = fs.vfs.listxattr(&fs.root, ino).unwrap();
    let mut names: Vec<_> = names.split(|byte| *byte == 0).collect();
    names.sort();
    assert_eq!(names, [&b""[..], b"user.other", NAME]);
    fs.vfs.removexattr(ino, NAME).unwrap();
    assert_eq!(told(&fs, ino), None);
    assert!(matches!(
        fs.vfs.removexattr(ino, NAME),
        Err(Error::NoAttribute)
    ));
    assert_eq!(fs.vfs.listxattr(&fs.root, ino).unwrap(), b"user.other\0");
}

#[test]
fn names_and_numbers_are_taken_and_nothing_else() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let values = ["none", "short", "medium", "long", "extreme"];
    for (number, name) in (1..).zip(values) {
        tell(&fs, ino, name);
        assert_eq!(told(&fs, ino).as_deref(), Some(name));
        tell(&fs, ino, &format!("{number}"));
        assert_eq!(told(&fs, ino).as_deref(), Some(name));
    }
    for wrong in [
        &b""[..],
        b"0",
        b"6",
        b"Short",
        b"short\n",
        b"short\0",
        &[b's'; 3000],
    ] {
        let set = fs
            .vfs
            .setxattr(&fs.root, ino, NAME, wrong, XattrMode::Either);
        assert!(matches!(set, Err(Error::Invalid(_))), "{wrong:?}");
        assert_eq!(told(&fs, ino).as_deref(), Some("extreme"));
    }
}

#[test]
fn what_is_made_in_a_directory_inherits() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    let early = fs.file("d/early", b"");
    tell(&fs, dir, "short");
    assert_eq!(told(&fs, early), None);
    let file = fs.file("d/f", b"");
    let below = fs.mkdir("d/below");
    let deep = fs.file("d/below/f", b"");
    let (temporary, _) = fs.vfs.tmpfile(&fs.root, dir, 0o600, READ_WRITE).unwrap();
    for ino in [file, below, deep, temporary.ino] {
        assert_eq!(told(&fs, ino).as_deref(), Some("short"));
    }
    let link = fs.vfs.symlink(&fs.root, dir, b"l", b"t").unwrap();
    let fifo = fs.vfs.mknod(&fs.root, dir, b"p", libc::S_IFIFO, 0).unwrap();
    for ino in [link.ino, fifo.ino] {
        assert_eq!(told(&fs, ino), None);
    }
    // Told to be none is passed on too, and what is moved keeps its own.
    tell(&fs, below, "none");
    let none = fs.file("d/below/none", b"");
    assert_eq!(told(&fs, none).as_deref(), Some("none"));
    fs.vfs.link(file, ROOT, b"f").unwrap();
    let mode = persimmon_vfs::RenameMode::Replace;
    fs.vfs.rename(ROOT, b"f", below, b"g", mode).unwrap();
    assert_eq!(told(&fs, fs.ino("d/below/g")).as_deref(), Some("short"));

    let fs = fs.remount();
    assert_eq!(told(&fs, fs.ino("d/below/f")).as_deref(), Some("short"));
    assert_eq!(told(&fs, fs.ino("d/below/none")).as_deref(), Some("none"));
}

#[test]
fn it_is_as_durable_as_what_else_is_in_the_history() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"x");
    tell(&fs, ino, "long");
    fs.vfs.fsync(ino, Handle::NONE).unwrap();
    let fs = fs.after_power_cut(1);
    assert_eq!(told(&fs, fs.ino("f")).as_deref(), Some("long"));
}

#[test]
fn content_goes_where_it_says() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    tell(&fs, dir, "short");
    let file = fs.file("d/f", &data());
    assert_eq!(class(&fs, file), 1);
    tell(&fs, file, "extreme");
    fs.write(file, 0, &data());
    assert_eq!(class(&fs, file), 4);
}

#[test]
fn open_files_are_told_apart() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    tell(&fs, ino, "long");
    let (a, b) = (fs.open(ino), fs.open(ino));
    fs.vfs.set_lifetime(ino, a, Some(Lifetime::Short)).unwrap();
    assert_eq!(fs.vfs.lifetime(ino, a).unwrap(), Some(Lifetime::Short));
    assert_eq!(fs.vfs.lifetime(ino, b).unwrap(), Some(Lifetime::Long));
    let write = |handle| {
        let flags = WriteFlags::default();
        fs.vfs.write(ino, handle, 0, &data(), flags).unwrap();
        class(&fs, ino)
    };
    assert_eq!(write(a), 1);
    assert_eq!(write(b), 3);
    // From a kernel's cache, that does not know whose write it is.
    assert_eq!(write(Handle::NONE), 1);
    fs.vfs.set_lifetime(ino, a, None).unwrap();
    assert_eq!(write(a), 3);
    assert_eq!(write(Handle::NONE), 3);
    // It ends with the open file.
    fs.vfs.set_lifetime(ino, a, Some(Lifetime::Short)).unwrap();
    fs.vfs.release(ino, a).unwrap();
    fs.vfs.release(ino, b).unwrap();
    assert_eq!(write(Handle::NONE), 3);
    assert_eq!(told(&fs, ino).as_deref(), Some("long"));
}

#[test]
fn only_who_may_write_tells() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let other = fs.file("g", b"");
    let reader = fs
        .vfs
        .open(
            ino,
            OpenFlags {
                write: false,
                ..READ_WRITE
            },
        )
        .unwrap();
    let writer = fs.open(other);
    for handle in [Handle::NONE, reader, writer] {
        let set = fs.vfs.set_lifetime(ino, handle, Some(Lifetime::Short));
        assert!(matches!(set, Err(Error::BadHandle)));
    }
    assert_eq!(fs.vfs.lifetime(ino, reader).unwrap(), None);
}
