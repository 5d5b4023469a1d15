//! `persimmon fs` where something goes wrong: damage, full disks, signals, backups cut off or made to do harm.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use persimmon::vfs::InodeFlags;
use persimmon::{Caller, Filesystem, OpenOptions, Options, SetAttr, SetTime, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use xxhash_rust::xxh3::xxh3_128;

use crate::common::{Place, edit, told};

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

fn done(place: &Place, words: &[&str]) -> String {
    let output = place.run(words);
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn open(place: &Place, name: &str) -> Filesystem {
    Filesystem::open(place.dir().join(name), &Options::default()).unwrap()
}

fn names(place: &Place, volume: &str) -> Vec<String> {
    let listed = done(place, &["fs", "ls", "-a", volume]);
    listed.lines().map(str::to_owned).collect()
}

/// A volume with files of noise, `a` to whatever.
fn with_files(count: u8, len: usize) -> Place {
    let place = Place::new();
    done(&place, &["mkfs", "img", "--size", "64M"]);
    let filesystem = open(&place, "img");
    for number in 0..count {
        let name = char::from(b'a' + number).to_string();
        filesystem.write(name, noise(number.into(), len)).unwrap();
    }
    filesystem.close().unwrap();
    place
}

/// Nothing of a file that was not finished is left.
fn leftovers(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(".persimmon"))
        .collect()
}

#[test]
fn a_damaged_file_is_named_and_the_others_are_copied() {
    let place = with_files(5, 100_000);
    let wrong = noise(2, 100_000)[50_000..50_064].to_vec();
    edit(&place.dir().join("img"), |bytes| {
        let at = bytes
            .windows(64)
            .position(|window| window == wrong)
            .unwrap();
        bytes[at] ^= 1;
    });
    let others = ["a", "b", "d", "e"];
    place.refused(
        &["fs", "cp", "-r", "img", ":/", "out"],
        4,
        &["fs cp: /c: ", "1 could not be copied"],
    );
    let mut copied: Vec<String> = fs::read_dir(place.dir().join("out"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    copied.sort();
    assert_eq!(copied, others);
    place.refused(&["fs", "cat", "img", "/c"], 4, &["/c: "]);
    // A backup has the others, and is whole without it; into a pipe as well.
    place.refused(&["fs", "backup", "img", "b.tar"], 4, &["fs backup: /c: "]);
    let piped = place.run(&["fs", "backup", "img", "-"]);
    assert_eq!(piped.status.code(), Some(4), "{}", told(&piped));
    assert_eq!(piped.stdout, fs::read(place.dir().join("b.tar")).unwrap());
    done(&place, &["mkfs", "new", "--size", "64M"]);
    done(&place, &["fs", "restore", "new", "b.tar"]);
    assert_eq!(names(&place, "new"), others);
    assert_eq!(open(&place, "new").read("/d").unwrap(), noise(3, 100_000));
    // Inside the volume blocks are shared, and nobody reads them: the copy has the damage too.
    done(&place, &["fs", "cp", "img", ":/c", ":/f"]);
    place.refused(&["fs", "cat", "img", "/f"], 4, &["/f: "]);
}

/// A host gives another time in place of one that it cannot keep, and says nothing of it.
#[test]
fn times_that_the_host_does_not_keep_are_told() {
    let place = with_files(1, 100);
    let filesystem = open(&place, "img");
    let year_60_000 = SetTime::At(Timestamp {
        seconds: 1_831_000_000_000,
        nanoseconds: 0,
    });
    let set = SetAttr {
        mtime: Some(year_60_000),
        ..SetAttr::default()
    };
    filesystem.set_attributes("/a", &set).unwrap();
    filesystem.close().unwrap();
    let copied = place.run(&["fs", "cp", "img", ":/a", "out"]);
    let found = fs::metadata(place.dir().join("out")).unwrap().mtime();
    let is_told = told(&copied).contains("times");
    assert_eq!(is_told, found != 1_831_000_000_000, "{}", told(&copied));
    assert_eq!(copied.status.code(), Some(if is_told { 4 } else { 0 }));
}

#[test]
fn a_full_volume_ends_a_copy_and_keeps_what_is_whole() {
    let place = with_files(6, 6_000_000);
    done(&place, &["fs", "backup", "img", "b.tar"]);
    done(&place, &["fs", "cp", "-r", "img", ":/", "out"]);
    done(&place, &["mkfs", "small", "--size", "24M"]);
    done(&place, &["mkfs", "tiny", "--size", "24M"]);
    let words = ["no space left on the volume", "until then: "];
    place.refused(&["fs", "cp", "-r", "small", "out", ":/"], 1, &words);
    place.refused(&["fs", "restore", "tiny", "b.tar", "/out"], 1, &words);
    for volume in ["small", "tiny"] {
        done(&place, &["fsck", volume, "--data"]);
        let filesystem = open(&place, volume);
        let found: Vec<_> = filesystem
            .read_dir("/out")
            .unwrap()
            .map(|it| it.unwrap())
            .collect();
        assert!((1..6).contains(&found.len()), "{volume}: {found:?}");
        for entry in found {
            assert_eq!(entry.metadata().unwrap().size, 6_000_000, "{entry:?}");
        }
    }
}

#[test]
fn a_full_host_leaves_no_backup() {
    let place = with_files(3, 2_000_000);
    place.refused(
        &["fs", "backup", "img", "/dev/full"],
        1,
        &["No space left on device"],
    );
    // A limit of the file's size stands for a full disk: it is an error, whether the signal of it is ignored or not.
    for trap in ["trap '' XFSZ; ", ""] {
        let script = format!("{trap}ulimit -f 2000; exec \"$0\" fs backup img b.tar");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_persimmon")])
            .current_dir(place.dir())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!place.dir().join("b.tar").exists());
        assert!(
            told(&output).contains("writing the backup"),
            "{}",
            told(&output)
        );
        assert_eq!(leftovers(place.dir()), [""; 0]);
    }
    fs::write(place.dir().join("b.tar"), b"the one of yesterday").unwrap();
    let script = "trap '' XFSZ; ulimit -f 2000; exec \"$0\" fs backup img b.tar --force";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_persimmon")]);
    assert_eq!(
        shell.current_dir(place.dir()).status().unwrap().code(),
        Some(1)
    );
    assert_eq!(
        fs::read(place.dir().join("b.tar")).unwrap(),
        b"the one of yesterday"
    );
    done(&place, &["fs", "backup", "img", "b.tar", "--force"]);
}

#[test]
fn a_signal_ends_a_backup_that_nobody_takes_for_a_whole_one() {
    let place = with_files(6, 4_000_000);
    let mut backup = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["fs", "backup", "img", "-"])
        .current_dir(place.dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = backup.stdout.take().unwrap();
    // The rest waits for a reader.
    let mut archive = vec![0; 1000];
    stdout.read_exact(&mut archive).unwrap();
    kill_process(Pid::from_child(&backup), Signal::INT).unwrap();
    stdout.read_to_end(&mut archive).unwrap();
    let output = backup.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(
        told(&output).contains("interrupted; until then: "),
        "{}",
        told(&output)
    );
    fs::write(place.dir().join("b.tar"), archive).unwrap();
    done(&place, &["mkfs", "new", "--size", "64M"]);
    place.refused(
        &["fs", "restore", "new", "b.tar"],
        1,
        &["cut off", "nothing was restored"],
    );
}

#[test]
fn a_signal_ends_a_restore_and_the_volume_is_sound() {
    let place = with_files(6, 4_000_000);
    done(&place, &["fs", "backup", "img", "b.tar"]);
    done(&place, &["mkfs", "new", "--size", "64M"]);
    let archive = fs::read(place.dir().join("b.tar")).unwrap();
    let mut restore = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["fs", "restore", "new", "-"])
        .current_dir(place.dir())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = restore.stdin.take().unwrap();
    stdin.write_all(&archive[..10_000_000]).unwrap();
    kill_process(Pid::from_child(&restore), Signal::TERM).unwrap();
    // It ends in the midst of that.
    let _ = stdin.write_all(&archive[10_000_000..]);
    drop(stdin);
    let output = restore.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(
        told(&output).contains("interrupted; until then: 2 files"),
        "{}",
        told(&output)
    );
    done(&place, &["fsck", "new", "--data"]);
    let filesystem = open(&place, "new");
    for entry in filesystem.read_dir("/").unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().size, 4_000_000);
    }
}

fn with_backup() -> (Place, Vec<u8>) {
    let place = Place::new();
    done(&place, &["mkfs", "img", "--size", "32M"]);
    done(&place, &["mkfs", "new", "--size", "32M"]);
    let filesystem = open(&place, "img");
    filesystem.create_dir("/dddd").unwrap();
    filesystem.write("/dddd/file", noise(1, 6000)).unwrap();
    filesystem.hard_link("/dddd/file", "/dddd/name").unwrap();
    filesystem.symlink("/elsewhere", "/slnk").unwrap();
    let options = persimmon::OpenOptions::new().write(true).create(true);
    let file = filesystem.open_file("/sparse", &options).unwrap();
    file.write_at(&noise(2, 8192), 1 << 20).unwrap();
    drop(file);
    filesystem.close().unwrap();
    done(&place, &["fs", "backup", "img", "b.tar"]);
    let archive = fs::read(place.dir().join("b.tar")).unwrap();
    (place, archive)
}

fn refuse(place: &Place, archive: &[u8], words: &[&str]) {
    fs::write(place.dir().join("bad.tar"), archive).unwrap();
    let words = [words, &["nothing was restored"]].concat();
    place.refused(&["fs", "restore", "new", "bad.tar"], 1, &words);
}

#[test]
fn a_backup_that_is_not_whole_is_refused_before_anything_is_written() {
    let (place, archive) = with_backup();
    let before = fs::read(place.dir().join("new")).unwrap();
    for len in (0..archive.len()).step_by(512).skip(2) {
        refuse(&place, &archive[..len], &["cut off"]);
    }
    refuse(&place, &archive[..archive.len() - 1], &["cut off"]);
    for at in (1024..archive.len()).step_by(97) {
        let mut wrong = archive.clone();
        wrong[at] ^= 0x10;
        refuse(&place, &wrong, &[]);
    }
    let foreign = "is no backup made by";
    for other in [b"".as_slice(), b"hello", &[0; 2048], &archive[1024..]] {
        refuse(&place, other, &[foreign]);
    }
    assert!(fs::read(place.dir().join("new")).unwrap() == before);
    // From a pipe it is found out at its end.
    let mut restore = Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(["fs", "restore", "new", "-"])
        .current_dir(place.dir())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = restore.stdin.take().unwrap();
    stdin.write_all(&archive[..archive.len() - 1024]).unwrap();
    drop(stdin);
    let output = restore.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told(&output).contains("cut off"), "{}", told(&output));
}

/// Changes a backup, and makes its checksum right again.
fn forge(archive: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut forged = archive.to_vec();
    let at = forged.windows(from.len()).position(|it| it == from);
    let at = at.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(from)));
    forged[at..at + from.len()].copy_from_slice(to);
    let mark = b"persimmon end ";
    let mark = forged
        .windows(mark.len())
        .rposition(|it| it == mark)
        .unwrap();
    // The record is at the start of a block, behind that of its header.
    let hashed = mark / 512 * 512 - 512;
    let checksum = format!("{:032x}", xxh3_128(&forged[..hashed]));
    let end = mark
        + forged[mark..]
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap();
    forged[end - 32..end].copy_from_slice(checksum.as_bytes());
    forged
}

#[test]
fn a_backup_that_somebody_made_to_do_harm_does_none() {
    let (place, archive) = with_backup();
    let before = fs::read(place.dir().join("new")).unwrap();
    // The forger's checksum is right.
    fs::write(
        place.dir().join("same.tar"),
        forge(&archive, b"path=sparse", b"path=sparse"),
    )
    .unwrap();
    assert_eq!(fs::read(place.dir().join("same.tar")).unwrap(), archive);
    let harm = "leads out of it";
    for (from, to, word) in [
        ("path=dddd/file", "path=../../../", harm),
        ("path=dddd/file", "path=dddd/../f", harm),
        ("path=dddd/file", "path=/ddd/file", harm),
        ("path=dddd/file", "path=dddd//fil", harm),
        ("path=dddd/file", "path=dddd/fi\0e", harm),
        ("linkpath=dddd/file", "linkpath=../../../", harm),
        ("linkpath=dddd/name", "linkpath=/etc/xxxx", harm),
        // Through a link: its directory was never entered.
        (
            "path=dddd/file",
            "path=slnk/file",
            "comes without its directory",
        ),
        ("path=dddd/", "path=eeee/", "comes without its directory"),
        ("realsize=1056768", "realsize=1056767", "sparse"),
        ("realsize=1056768", "realsize=99999x9", "size"),
        ("path=./\n", "path=xx\n", "top directory"),
        ("mtime=", "mtime-", "extended header"),
    ] {
        let Some(forged) = possible(&archive, from, to) else {
            // Which of its two names comes first is the directory's order.
            assert!(from.starts_with("linkpath="), "{from}");
            continue;
        };
        refuse(&place, &forged, &[word]);
    }
    assert!(fs::read(place.dir().join("new")).unwrap() == before);
    // A hard link to what is no file, or not there, is that one's trouble.
    let link = ["file", "name"].map(|name| format!("linkpath=dddd/{name}"));
    let forged = link
        .iter()
        .find_map(|link| possible(&archive, link, "linkpath=dddd/gone"));
    fs::write(place.dir().join("link.tar"), forged.unwrap()).unwrap();
    place.refused(&["fs", "restore", "new", "link.tar"], 4, &["no such file"]);
    done(&place, &["fsck", "new", "--data"]);
}

fn possible(archive: &[u8], from: &str, to: &str) -> Option<Vec<u8>> {
    let is_there = archive.windows(from.len()).any(|it| it == from.as_bytes());
    is_there.then(|| forge(archive, from.as_bytes(), to.as_bytes()))
}

#[test]
fn a_volume_with_files_is_restored_to_by_force_or_beside_them() {
    let (place, _) = with_backup();
    fs::write(place.dir().join("f"), b"f").unwrap();
    done(&place, &["fs", "cp", "new", "f", ":/sparse"]);
    done(&place, &["fs", "cp", "new", "f", ":/other"]);
    let words = ["/ of the volume has files", "--force"];
    place.refused(&["fs", "restore", "new", "b.tar"], 1, &words);
    done(&place, &["fs", "restore", "new", "b.tar", "/beside"]);
    place.refused(
        &["fs", "restore", "new", "b.tar", "/beside"],
        1,
        &["/beside of the volume"],
    );
    place.refused(
        &["fs", "restore", "new", "b.tar", "/other"],
        1,
        &["/other is no directory"],
    );
    done(&place, &["fs", "restore", "new", "b.tar", "--force"]);
    assert_eq!(
        names(&place, "new"),
        ["beside", "dddd", "other", "slnk", "sparse"]
    );
    let filesystem = open(&place, "new");
    assert_eq!(filesystem.read("/other").unwrap(), b"f");
    assert_eq!(
        filesystem.metadata("/sparse").unwrap().size,
        (1 << 20) + 8192
    );
    assert_eq!(filesystem.metadata("/dddd/file").unwrap().nlink, 2);
    filesystem.close().unwrap();
    done(&place, &["fsck", "new", "--data"]);
}

/// Nobody is kept from reading by another reader; who writes has the volume alone.
#[test]
fn readers_share_a_volume() {
    let place = with_files(1, 1000);
    let reader = Filesystem::open(place.dir().join("img"), &Options::read_only()).unwrap();
    assert_eq!(names(&place, "img"), ["a"]);
    done(&place, &["fs", "df", "img"]);
    done(&place, &["fs", "cp", "img", ":/a", "a"]);
    done(&place, &["fs", "backup", "img", "b.tar"]);
    drop(reader);
    // What only reads writes nothing, not even to an image that nobody may write.
    let before = fs::read(place.dir().join("img")).unwrap();
    done(&place, &["fs", "ls", "-lR", "img"]);
    assert!(fs::read(place.dir().join("img")).unwrap() == before);
    assert!(File::open(place.dir().join("b.tar")).is_ok());
}

/// The log of the volume says it, and these commands have none.
#[test]
fn files_that_wait_for_room_are_told() {
    let place = with_files(0, 0);
    let options = Options {
        commit_interval: std::time::Duration::from_secs(3600),
        ..Options::default()
    };
    let filesystem = Filesystem::open(place.dir().join("img"), &options).unwrap();
    let appending = OpenOptions::new().append(true).create(true);
    let keeping = appending.keep_flushed(true);
    let log = filesystem.open_file("log", &keeping).unwrap();
    log.append(b"begun").unwrap();
    log.flush_through().unwrap();
    filesystem.write("victim", noise(1, 1 << 20)).unwrap();
    let big = filesystem.open_file("big", &appending).unwrap();
    for len in [1 << 16, 1 << 12] {
        while big.append(&noise(2, len)).is_ok() {}
    }
    filesystem.sync().unwrap();
    // The room that it makes is gone with the process.
    filesystem.remove_file("victim").unwrap();
    log.append(&noise(3, 40_000)).unwrap();
    log.flush_through().unwrap();
    filesystem.abandon();
    drop((log, big));
    let says = ["what was flushed to 1 files", "delete other files"];
    let output = place.run(&["fs", "cp", "img", ":/log", ":/copy"]);
    assert!(!output.status.success());
    for words in says {
        assert!(told(&output).contains(words), "{}", told(&output));
    }
    let output = place.run(&["fs", "rm", "img", "/victim"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(told(&output).contains(says[0]), "{}", told(&output));
    let output = place.run(&["fs", "mkdir", "img", "/dir"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(!told(&output).contains(says[0]), "{}", told(&output));
    let log = open(&place, "img").read("log").unwrap();
    assert!(log == [b"begun".to_vec(), noise(3, 40_000)].concat());
}

/// Of a copy that its target forbids the source was named, and nothing said what forbids it.
#[test]
fn what_forbids_a_copy_is_named_with_the_remedy() {
    let place = Place::in_memory();
    done(&place, &["mkfs", "img", "--size", "64M"]);
    fs::write(place.path("host"), b"content").unwrap();
    let volume = open(&place, "img");
    volume.create_dir("/sealed").unwrap();
    volume.write("/still", b"as it is").unwrap();
    for path in ["/sealed", "/still"] {
        let ino = volume.metadata(path).unwrap().ino;
        let vfs = volume.vfs();
        let flags = InodeFlags {
            immutable: true,
            ..vfs.inode_flags(ino).unwrap()
        };
        vfs.set_inode_flags(&Caller::root(), ino, flags).unwrap();
    }
    volume.close().unwrap();
    for target in ["/.snapshots/x", "/still", "/sealed/host"] {
        let copy = ["fs", "cp", "img", "host", &format!(":{target}")];
        let due = format!("host: to {target}: operation not permitted");
        place.refused(&copy, 4, &[&due, ".snapshots", "chattr -i"]);
    }
    place.refused(&["fs", "rm", "img", "/still"], 4, &["/still", "chattr -i"]);
    let rename = ["fs", "mv", "img", "/still", "/moved"];
    place.refused(&rename, 1, &["/still", "chattr -i"]);
}

/// The archive lacked the end of the log, and its exit code was that of a whole one.
#[test]
fn a_backup_says_that_it_lacks_what_was_flushed_before_a_kill() {
    let place = Place::new();
    done(&place, &["mkfs", "img", "--size", "32M"]);
    let filesystem = open(&place, "img");
    let options = persimmon::OpenOptions::new()
        .append(true)
        .create(true)
        .keep_flushed(true);
    let log = filesystem.open_file("/log", &options).unwrap();
    for record in [&b"first"[..], b"second"] {
        log.append(record).unwrap();
        log.flush_through().unwrap();
    }
    filesystem.abandon();
    drop(log);
    let backup = ["fs", "backup", "img", "b.tar", "--force"];
    let unseen = "img: 1 file has flushed data that this opening does not see";
    place.refused(&backup, 4, &[unseen]);
    assert!(place.dir().join("b.tar").exists());
    let output = place.run(&["fs", "ls", "img", "/"]);
    assert!(output.status.success() && told(&output).contains(unseen));
    done(&place, &["fs", "mkdir", "img", "/brought-in"]);
    done(&place, &backup);
    let output = place.run(&["fs", "cat", "img", "/log"]);
    assert_eq!(output.stdout, b"firstsecond");
}

/// It was said of what is there that it is not.
#[test]
fn a_rename_says_which_of_the_two_is_missing() {
    let place = with_files(1, 10);
    done(&place, &["fs", "mkdir", "img", "/src"]);
    let rename = ["fs", "mv", "img", "/src", "/none/name"];
    place.refused(&rename, 1, &["/none/name: no such file or directory"]);
    let rename = ["fs", "mv", "img", "/none", "/src/name"];
    place.refused(&rename, 1, &["/none: no such file or directory"]);
}
