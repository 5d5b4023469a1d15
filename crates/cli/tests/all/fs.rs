//! `persimmon fs`: what is copied is the same in every way, whatever way it takes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use persimmon::{Caller, FileKind, Filesystem, Options};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, makedev, mknodat, utimensat,
};
use serde_json::Value;

use crate::common::{Place, told};

const HOSTILE: &[u8] = b"a\n\x1b[2J\"\xe2\x80\xae\xff";

/// Everything that a copy keeps of one name, but for times of access.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    rdev: u64,
    links: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Tree = BTreeMap<Vec<u8>, Facts>;

/// A tree of the host, read with the calls of the standard library.
fn of_host(top: &Path) -> Tree {
    let mut found = Tree::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let seen = fs::symlink_metadata(&path).unwrap();
        let content = if seen.is_file() {
            fs::read(&path).unwrap()
        } else if seen.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_vec()
        } else {
            Vec::new()
        };
        if seen.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        }
        let mut names = vec![0; 4096];
        let len = llistxattr(&path, &mut names).unwrap();
        let names = names[..len].split(|byte| *byte == 0);
        let xattrs = names.filter(|name| !name.is_empty()).map(|name| {
            let mut value = vec![0; 4096];
            let len = lgetxattr(&path, name, &mut value).unwrap();
            (name.to_vec(), value[..len].to_vec())
        });
        let facts = Facts {
            mode: seen.mode(),
            owner: (seen.uid(), seen.gid()),
            mtime: (seen.mtime(), seen.mtime_nsec()),
            rdev: seen.rdev(),
            links: if seen.is_dir() { 0 } else { seen.nlink() },
            content,
            xattrs: xattrs.collect(),
        };
        let path = path.strip_prefix(top).unwrap();
        found.insert(path.as_os_str().as_bytes().to_vec(), facts);
    }
    found
}

/// A tree of a volume, read through the library.
fn of_volume(filesystem: &Filesystem, top: &str) -> Tree {
    let mut found = Tree::new();
    let below = filesystem.walk(top).unwrap().map(|entry| entry.unwrap());
    let paths: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
    for path in std::iter::once(PathBuf::from(top)).chain(paths) {
        let attr = filesystem.symlink_metadata(&path).unwrap();
        let content = match attr.kind() {
            FileKind::Regular => filesystem.read(&path).unwrap(),
            FileKind::Symlink => filesystem.read_link(&path).unwrap(),
            _ => Vec::new(),
        };
        let vfs = filesystem.vfs();
        let names = vfs.listxattr(&Caller::root(), attr.ino).unwrap();
        let names = names.split(|byte| *byte == 0);
        let xattrs = names
            .filter(|name| !name.is_empty())
            .map(|name| (name.to_vec(), vfs.getxattr(attr.ino, name).unwrap()));
        let facts = Facts {
            mode: attr.mode,
            owner: (attr.uid, attr.gid),
            mtime: (attr.mtime.seconds, attr.mtime.nanoseconds.into()),
            rdev: attr.rdev.into(),
            links: match attr.kind() {
                FileKind::Directory => 0,
                _ => attr.nlink.into(),
            },
            content,
            xattrs: xattrs.collect(),
        };
        let path = path.strip_prefix(top).unwrap();
        found.insert(path.as_os_str().as_bytes().to_vec(), facts);
    }
    found
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    byte.take(len).collect()
}

fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Something of everything that a tree can hold.
fn make_tree(top: &Path) {
    let path = |name: &str| top.join(name);
    fs::create_dir_all(path("dir/deep/deeper")).unwrap();
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("dir/file"), noise(1, 3_000_000)).unwrap();
    fs::write(path("dir/small"), b"x").unwrap();
    fs::write(path("nothing"), b"").unwrap();
    fs::hard_link(path("dir/file"), path("dir/deep/again")).unwrap();
    fs::hard_link(path("dir/file"), path("also")).unwrap();
    std::os::unix::fs::symlink("dir/file", path("link")).unwrap();
    std::os::unix::fs::symlink("/nowhere\n", path("dir/broken")).unwrap();
    let hostile = std::ffi::OsStr::from_bytes(HOSTILE);
    fs::write(top.join(hostile), b"hostile").unwrap();
    fs::create_dir(path("dir").join(hostile)).unwrap();
    let long = "n".repeat(255);
    fs::create_dir(path(&long)).unwrap();
    fs::write(path(&long).join(&long), b"long").unwrap();
    // Holes before, between and behind data; and nothing but one.
    let sparse = File::create(path("sparse")).unwrap();
    sparse.write_all_at(b"one", 1 << 20).unwrap();
    sparse.write_all_at(&noise(2, 100_000), 5 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    File::create(path("hole"))
        .unwrap()
        .set_len(3 << 20)
        .unwrap();
    let rw = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, path("pipe"), FileType::Fifo, rw, 0).unwrap();
    mknodat(CWD, path("socket"), FileType::Socket, rw, 0).unwrap();
    let put = |name: &str, key: &str, value: &[u8]| {
        lsetxattr(path(name), key, value, XattrFlags::empty()).unwrap();
    };
    put("dir", "user.of.directory", b"");
    put("dir/small", "user.binary", b"\n\0=\xff 12 a=b\n");
    put("dir/small", "user.a=b", b"\0c=d");
    if is_root() {
        let device = makedev(259, 70_000);
        mknodat(CWD, path("char"), FileType::CharacterDevice, rw, device).unwrap();
        mknodat(CWD, path("block"), FileType::BlockDevice, rw, makedev(8, 1)).unwrap();
        put("dir/small", "trusted.secret", b"t");
        let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let owner = std::os::unix::fs::lchown;
        owner(path("dir/small"), Some(70_000), Some(3_000_000)).unwrap();
        owner(path("link"), Some(5), Some(6)).unwrap();
        owner(path("empty"), Some(7), Some(8)).unwrap();
        put("dir/small", "security.capability", capability);
        // user::rw-, user:5:r--, group::r--, mask::r--, other::---; and what new files of a directory get.
        let list = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x05\0\0\0\x04\0\x04\0\xff\xff\xff\xff\x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
        put("nothing", "system.posix_acl_access", list);
        put("dir/deep", "system.posix_acl_default", list);
    }
    let mode = |name: &str, mode| {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("dir/file", 0o4711);
    mode("empty", 0o3505);
    mode("pipe", 0o624);
    set_times(&path("dir/file"), -315_619_200, 500_000_001);
    set_times(&path("link"), 1_000_000_007, 123_456_789);
    set_times(&path("dir/deep/deeper"), 2_147_483_648, 1);
    set_times(&path("dir/deep"), 5, 5);
    set_times(&path("dir"), 6, 6);
    set_times(&path("pipe"), 7, 7);
    set_times(top, 8, 8);
}

fn done(place: &Place, words: &[&str]) -> String {
    let output = place.run(words);
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn volume(name: &str, size: &str, place: &Place) {
    done(place, &["mkfs", name, "--size", size]);
}

fn open(place: &Place, name: &str) -> Filesystem {
    Filesystem::open(place.dir().join(name), &Options::default()).unwrap()
}

fn fsck(place: &Place, name: &str) {
    done(place, &["fsck", name, "--data"]);
}

fn assert_same(found: &Tree, due: &Tree, way: &str) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(due), "{way}");
    for (path, due) in due {
        let (mut found, mut due) = (found[path].clone(), due.clone());
        assert!(
            found.content == due.content,
            "{way}: content of {:?}",
            String::from_utf8_lossy(path)
        );
        found.content.clear();
        due.content.clear();
        assert_eq!(found, due, "{way}: {:?}", String::from_utf8_lossy(path));
    }
}

#[test]
fn a_tree_is_the_same_on_every_way() {
    let place = Place::new();
    let dir = place.dir();
    fs::create_dir(dir.join("tree")).unwrap();
    make_tree(&dir.join("tree"));
    let due = of_host(&dir.join("tree"));
    volume("img", "64M", &place);
    volume("other", "64M", &place);

    // From the host, and back.
    done(&place, &["fs", "cp", "-r", "img", "tree", ":/"]);
    let found = of_volume(&open(&place, "img"), "/tree");
    assert_same(&found, &due, "host to volume");
    done(&place, &["fs", "cp", "img", "-r", ":/tree", "back"]);
    assert_same(&of_host(&dir.join("back")), &due, "volume to host");
    // Inside: under a new name, into a directory, and over what is there.
    for place_of_copy in ["/copy", "/copy/tree", "/copy/tree"] {
        done(&place, &["fs", "cp", "img", "-r", ":/tree", ":/copy"]);
        let found = of_volume(&open(&place, "img"), place_of_copy);
        assert_same(&found, &due, place_of_copy);
    }
    done(&place, &["fs", "rm", "-r", "img", "/copy"]);

    // By an archive, of a directory and of everything.
    done(&place, &["fs", "backup", "img", "tree.tar", "/tree"]);
    done(&place, &["fs", "restore", "other", "tree.tar", "/back"]);
    let found = of_volume(&open(&place, "other"), "/back");
    assert_same(&found, &due, "archive to volume");
    let whole = of_volume(&open(&place, "other"), "/");
    done(&place, &["fs", "backup", "other", "all.tar"]);
    volume("third", "64M", &place);
    done(&place, &["fs", "restore", "third", "all.tar"]);
    assert_same(
        &of_volume(&open(&place, "third"), "/"),
        &whole,
        "everything",
    );
    for name in ["img", "other", "third"] {
        fsck(&place, name);
    }

    // Holes are holes.
    for (name, data) in [("sparse", 300_000), ("hole", 0)] {
        let blocks = fs::metadata(dir.join("back").join(name)).unwrap().blocks();
        assert!(blocks * 512 <= data, "{name}: {blocks} blocks on the host");
        let third = open(&place, "third");
        let attr = third.metadata(Path::new("/back").join(name)).unwrap();
        assert!(attr.blocks * 512 <= data, "{name}: {attr:?}");
    }
    let len = fs::metadata(dir.join("tree.tar")).unwrap().len();
    assert!(len < 4_000_000, "{len} bytes of archive");
}

/// Any tar unpacks it, as root with all there is but sockets.
#[test]
fn other_tars_unpack_a_backup() {
    let place = Place::new();
    let dir = place.dir();
    fs::create_dir(dir.join("tree")).unwrap();
    make_tree(&dir.join("tree"));
    volume("img", "64M", &place);
    done(&place, &["fs", "cp", "-r", "img", "tree", ":/"]);
    done(&place, &["fs", "backup", "img", "tree.tar", "/tree"]);
    fs::create_dir(dir.join("back")).unwrap();
    let tar = std::process::Command::new("tar")
        .args([
            "--extract",
            "--file",
            "tree.tar",
            "--directory",
            "back",
            "--same-owner",
        ])
        .args(["--preserve-permissions", "--xattrs", "--xattrs-include=*"])
        .current_dir(dir)
        .output();
    let Ok(tar) = tar else {
        println!("no tar here");
        return;
    };
    assert!(tar.status.success(), "{}", told(&tar));
    let mut due = of_host(&dir.join("tree"));
    let mut found = of_host(&dir.join("back"));
    due.remove(b"socket".as_slice());
    found.remove(b"socket".as_slice());
    // GNU tar sets the owner after the capability, and so loses that. PAX cannot name an attribute with an equals sign.
    for tree in [&mut due, &mut found] {
        for facts in tree.values_mut() {
            facts.xattrs.retain(|name, _| !name.contains(&b'='));
            facts.xattrs.remove(b"security.capability".as_slice());
        }
    }
    assert_same(&found, &due, "tar");
}

#[test]
fn paths_are_shown_escaped_and_told_whole() {
    let place = Place::new();
    volume("img", "32M", &place);
    let path = Path::new("/").join(std::ffi::OsStr::from_bytes(HOSTILE));
    let filesystem = open(&place, "img");
    filesystem.create_dir(&path).unwrap();
    filesystem.symlink(&path, path.join(".link")).unwrap();
    filesystem.close().unwrap();
    let shown = "a\\n\\u{1b}[2J\\\"\\u{202e}\\xff";
    let text = done(&place, &["fs", "ls", "-alR", "img"]);
    assert!(text.contains(&format!("/{shown}:\n")), "{text}");
    assert!(text.contains(&format!(".link -> /{shown}\n")), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let text = done(&place, &["fs", "ls", "-R", "img"]);
    assert!(!text.contains(".link"), "{text}");
    let json: Value =
        serde_json::from_str(&done(&place, &["fs", "ls", "-aR", "img", "--json"])).unwrap();
    assert_eq!(json[0]["path_bytes"], "2f610a1b5b324a22e280aeff");
    assert_eq!(
        (&json[0]["type"], &json[1]["type"]),
        (&"directory".into(), &"symlink".into())
    );
    assert_eq!(json[1]["target_bytes"], "2f610a1b5b324a22e280aeff");
    // An error names it the same way.
    let words = [
        std::ffi::OsStr::new("fs"),
        "rm".as_ref(),
        "img".as_ref(),
        path.as_os_str(),
    ];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(words)
        .current_dir(place.dir())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(
        told(&output).contains(&format!("/{shown}: is a directory; -r")),
        "{}",
        told(&output)
    );
}

#[test]
fn names_are_made_moved_and_removed() {
    let place = Place::new();
    volume("img", "32M", &place);
    done(&place, &["fs", "mkdir", "-p", "img", "/a/b/c", "/d"]);
    place.refused(&["fs", "mkdir", "img", "/d"], 1, &["/d: file exists"]);
    place.refused(&["fs", "mkdir", "img", "/x/y"], 1, &["/x/y: no such file"]);
    fs::write(place.dir().join("f"), b"content").unwrap();
    done(&place, &["fs", "cp", "img", "f", ":/a/f"]);
    done(&place, &["fs", "mv", "img", "/a/f", "/d"]);
    assert_eq!(done(&place, &["fs", "cat", "img", "/d/f"]), "content");
    place.refused(
        &["fs", "cat", "img", "/a/f", "/d/f"],
        4,
        &["/a/f: no such file"],
    );
    place.refused(
        &["fs", "rm", "img", "/a"],
        4,
        &["/a: is a directory; -r removes it"],
    );
    for path in ["/", "/a/..", "."] {
        place.refused(&["fs", "rm", "-r", "img", path], 2, &["cannot be removed"]);
    }
    place.refused(&["fs", "rm", "img", "/no"], 4, &["/no: no such file"]);
    done(&place, &["fs", "rm", "-f", "img", "/no"]);
    let said = done(&place, &["fs", "rm", "-r", "img", "/a", "/d", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let counts = (&said["files"], &said["directories"], &said["complete"]);
    assert_eq!(counts, (&1.into(), &4.into(), &true.into()));
    assert_eq!(done(&place, &["fs", "ls", "-a", "img"]), "");
    fsck(&place, "img");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    volume("img", "32M", &place);
    fs::write(place.dir().join("f"), b"f").unwrap();
    fs::create_dir(place.dir().join("dir")).unwrap();
    fs::rename(place.dir().join("img"), place.dir().join("dir/a:b")).unwrap();
    // A colon in the name of an image means nothing.
    done(&place, &["fs", "cp", "dir/a:b", "f", ":/f"]);
    fs::rename(place.dir().join("dir/a:b"), place.dir().join("dir/img")).unwrap();
    let img = "dir/img";
    place.refused(&["fs", "cp", img, "f", "g"], 2, &["begins with a colon"]);
    place.refused(
        &["fs", "cp", img, "f", ":/f", "g"],
        2,
        &["both of the host"],
    );
    place.refused(
        &["fs", "cp", img, "f", ":/f", ":/x"],
        2,
        &["is no directory"],
    );
    place.refused(&["fs", "cp", img, "f", ":/no/f"], 1, &["no such file"]);
    for target in [":/no/", "no/"] {
        place.refused(&["fs", "cp", img, ":/f", target], 1, &["no such directory"]);
    }
    place.refused(
        &["fs", "cp", img, "missing", "f", ":/"],
        4,
        &["missing: No such file"],
    );
    place.refused(&["fs", "cp", img, "dir", ":/"], 4, &["-r copies it"]);
    place.refused(&["fs", "cp", img, ":/f", ":/f"], 4, &["same file"]);
    place.refused(
        &["fs", "cp", "-r", img, ":/", ":/self"],
        4,
        &["into itself"],
    );
    // The volume is in the tree: everything else of that is copied.
    fs::write(place.dir().join("dir/g"), b"g").unwrap();
    place.refused(
        &["fs", "cp", "-r", img, "dir", ":/"],
        4,
        &["dir/img: holds the volume"],
    );
    assert_eq!(done(&place, &["fs", "cat", img, "/dir/g"]), "g");
    place.refused(
        &["fs", "ls", "dir"],
        1,
        &["is a directory, and no Persimmon volume"],
    );
    place.refused(
        &["fs", "backup", img, "dir"],
        1,
        &["is a directory; name a file"],
    );
    place.refused(
        &["fs", "backup", img, img, "--force"],
        1,
        &["is the volume itself"],
    );
    place.refused(&["fs", "backup", img, "f"], 1, &["exists; --force"]);
    place.refused(
        &["fs", "backup", img, "-", "--json"],
        2,
        &["no room for JSON"],
    );
    // What is no file of the host is not taken away for one.
    mknodat(CWD, place.dir().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    place.refused(&["fs", "cp", img, ":/f", "pipe"], 4, &["no regular file"]);
    done(&place, &["fs", "cp", "-r", img, "pipe", ":/pipe"]);
    place.refused(&["fs", "cat", img, "/pipe"], 4, &["/pipe: is a pipe"]);
    assert_eq!(fs::read(place.dir().join("f")).unwrap(), b"f");
    fsck(&place, img);
}

#[test]
fn space_is_told_as_of_a_mount() {
    let place = Place::new();
    volume("img", "64M", &place);
    fs::write(place.dir().join("f"), noise(3, 5_000_000)).unwrap();
    done(&place, &["fs", "cp", "img", "f", ":/"]);
    let told: Value = serde_json::from_str(&done(&place, &["fs", "df", "img", "--json"])).unwrap();
    let space = open(&place, "img").statfs().unwrap();
    let block = u64::from(space.block_size);
    assert_eq!(told[0]["size_bytes"], space.blocks * block);
    assert_eq!(told[0]["available_bytes"], space.blocks_available * block);
    assert_eq!(told[0]["inodes_free"], space.files_free);
    assert!(told[0]["used_bytes"].as_u64().unwrap() >= 5_000_000);
    assert!(done(&place, &["fs", "df", "-h", "img"]).contains("MiB"));
}

/// A clone has all that a copy has, and takes no space for content.
#[test]
fn a_tree_is_cloned_in_a_volume() {
    let place = Place::new();
    let dir = place.dir();
    fs::create_dir(dir.join("tree")).unwrap();
    make_tree(&dir.join("tree"));
    // Its last block is not full.
    fs::write(dir.join("tree/large"), noise(3, 10_000_001)).unwrap();
    set_times(&dir.join("tree"), 8, 8);
    let due = of_host(&dir.join("tree"));
    volume("img", "64M", &place);
    done(&place, &["fs", "cp", "-r", "img", "tree", ":/"]);
    let used = || {
        let answer = done(&place, &["usage", "img", "--json"]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let of = |name: &str| answer["by_storage"]["shared"][name].as_u64().unwrap();
        let stored = answer["stored_bytes"].as_u64().unwrap();
        (of("content_bytes"), of("stored_bytes"), stored)
    };
    assert_eq!(used().0, 0);
    let said = done(&place, &["clone", "img", ":/tree", ":/clone", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["complete"], &said["failed"], &said["hard_links"]),
        (&true.into(), &0.into(), &2.into())
    );
    assert!(said["bytes"].as_u64().unwrap() > 13_000_000, "{said}");
    let found = of_volume(&open(&place, "img"), "/clone");
    assert_same(&found, &due, "clone");
    // The files of which nothing lies in the tree: all their blocks, the last one too, are in both and stored once.
    let (content, stored, _) = used();
    let blocks = |len: u64| len.next_multiple_of(4096);
    let large = blocks(3_000_000) + blocks(10_000_001);
    assert!(stored >= large && stored < large + (1 << 20), "{stored}");
    assert!(content >= 2 * large, "{content}");

    // A file, to a name with a colon, and without one before a path.
    done(&place, &["clone", "img", "tree/large", "::one"]);
    done(&place, &["clone", "img", ":/tree/link", ":/x"]);
    let filesystem = open(&place, "img");
    assert!(filesystem.read("/:one").unwrap() == noise(3, 10_000_001));
    assert_eq!(filesystem.read_link("/x").unwrap(), b"dir/file");
    // What is written to one is its own.
    let part = noise(9, 5000);
    let options = persimmon::OpenOptions::new().write(true);
    let file = filesystem.open_file("/:one", &options).unwrap();
    file.write_at(&part, 1_000_000).unwrap();
    drop(file);
    filesystem.close().unwrap();
    let found = of_volume(&open(&place, "img"), "/tree");
    assert_same(&found, &due, "what was cloned");
    fsck(&place, "img");

    for (words, told) in [
        (
            ["clone", "img", ":/tree", ":/clone"],
            "/clone: is there already",
        ),
        (
            ["clone", "img", ":/tree", ":/:one"],
            "/:one: is there already",
        ),
        (
            ["clone", "img", ":/tree", ":/tree/dir/new"],
            "/tree: a directory cannot be cloned into itself",
        ),
        (["clone", "img", ":/no", ":/new"], "/no: no such file"),
        (["clone", "img", ":/tree", ":/no/new"], "/no: no such file"),
        (["clone", "img", ":/tree", ":/"], "/: is no name"),
    ] {
        place.refused(&words, 1, &[told]);
    }
    place.refused(
        &["clone", ":/tree", ":/new"],
        2,
        &["clone SPEC :SOURCE :TARGET"],
    );
    place.refused(
        &["clone", "tree", "new"],
        1,
        &["is not on a mounted Persimmon volume"],
    );
    assert!(!dir.join("new").exists());
    fsck(&place, "img");
}

/// A copy inside the volume shares blocks as well.
#[test]
fn a_copy_inside_a_volume_shares_blocks() {
    let place = Place::new();
    fs::write(place.dir().join("f"), noise(1, 30_000_000)).unwrap();
    volume("img", "64M", &place);
    done(&place, &["fs", "cp", "img", "f", ":/f"]);
    for copy in [":/a", ":/b", ":/c"] {
        done(&place, &["fs", "cp", "img", ":/f", copy]);
    }
    assert!(open(&place, "img").read("/c").unwrap() == noise(1, 30_000_000));
    fsck(&place, "img");
}

/// What is copied to a volume that mkfs gave a compression is compressed so: a file of the host says nothing of it.
#[test]
fn what_is_copied_to_a_volume_has_its_compression() {
    let place = Place::new();
    let content: Vec<u8> = b"one line of text after the other\n".repeat(30_000);
    fs::create_dir(place.dir().join("d")).unwrap();
    fs::write(place.dir().join("d/f"), content).unwrap();
    for compression in ["zstd:3", "none"] {
        done(
            &place,
            &[
                "mkfs",
                "img",
                "--size",
                "64M",
                "--compression",
                compression,
                "--force",
            ],
        );
        done(&place, &["fs", "cp", "-r", "img", "d", ":/"]);
        let told = open(&place, "img").xattr("/d/f", "user.persimmon.compression");
        assert_eq!(told.unwrap(), compression.as_bytes());
        let usage = done(&place, &["usage", "img"]);
        assert!(!usage.contains("lz4"), "{usage}");
    }
}
