//! What is refused, and that it changes nothing.

use std::ffi::OsStr;
use std::io::{self, Write};

use persimmon::stream::{
    Directory, Position, ReceiveError, STATE_DIRECTORY, SendError, SendOptions, SourceError,
    VolumeTarget, receive, resume_token,
};
use persimmon::vfs::ROOT;

use crate::history::Random;
use crate::tree::{compare, of_directory, of_volume};
use crate::{Memory, Warnings, received, sent, snapshot_root};

fn noise(len: usize) -> Vec<u8> {
    let mut random = Random(9);
    (0..len).map(|_| random.next() as u8).collect()
}

fn refusal(target: &Memory, stream: &[u8]) -> ReceiveError {
    let before = of_volume(&target.fs, ROOT);
    let mut to = VolumeTarget::new(&target.fs);
    let went = receive(stream, &mut to, &mut Warnings::default());
    compare(&before, &of_volume(&target.fs, ROOT), "refused");
    went.unwrap_err()
}

fn volume() -> Memory {
    let source = Memory::new();
    for name in ["one", "two", "three"] {
        source
            .fs
            .write(format!("/{name}"), name.as_bytes())
            .unwrap();
        source.fs.take_snapshot(name, false).unwrap();
    }
    source
}

#[test]
fn what_does_not_follow_what_is_there_is_refused() {
    let (source, other, target) = (volume(), volume(), Memory::new());
    let of = |from: Option<&str>, name: &str| sent(&source.fs, name, from, None);
    let error = refusal(&target, &of(Some("one"), "two"));
    assert!(matches!(error, ReceiveError::NoBase { .. }), "{error}");
    assert!(!target.fs.exists("/.persimmon-receive"));
    received(&mut VolumeTarget::new(&target.fs), &of(None, "one"));
    let error = refusal(&target, &of(None, "two"));
    assert!(matches!(error, ReceiveError::NotEmpty), "{error}");
    let error = refusal(&target, &of(Some("two"), "three"));
    assert!(matches!(error, ReceiveError::OtherBase { .. }), "{error}");
    assert!(error.to_string().contains("--from one"), "{error}");
    let error = refusal(&target, &sent(&other.fs, "two", Some("one"), None));
    assert!(matches!(error, ReceiveError::OtherVolume), "{error}");
    // Also backwards, as long as it begins with what is there.
    received(
        &mut VolumeTarget::new(&target.fs),
        &of(Some("one"), "three"),
    );
    received(
        &mut VolumeTarget::new(&target.fs),
        &of(Some("three"), "two"),
    );
    let due = of_volume(&source.fs, snapshot_root(&source.fs, "two"));
    compare(&due, &of_volume(&target.fs, ROOT), "backwards");
    // A base made again under its name: the advice was to do what had been done.
    source.fs.delete_snapshot("two").unwrap();
    source.fs.take_snapshot("two", false).unwrap();
    let error = refusal(&target, &of(Some("two"), "three"));
    assert!(matches!(error, ReceiveError::OtherBase { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("called two too") && !text.contains("--from two"),
        "{text}"
    );
    // A full one into what somebody has files in.
    let used = Memory::new();
    used.fs.write("/file", b"somebody's").unwrap();
    let error = refusal(&used, &of(None, "one"));
    assert!(matches!(error, ReceiveError::NotEmpty), "{error}");
}

#[test]
fn what_is_not_complete_is_not_taken_for_it() {
    let (source, target) = (volume(), Memory::new());
    let one = sent(&source.fs, "one", None, None);
    received(&mut VolumeTarget::new(&target.fs), &one);
    let two = sent(&source.fs, "two", Some("one"), None);
    let cut = receive(
        &two[..two.len() - 1],
        &mut VolumeTarget::new(&target.fs),
        &mut Warnings::default(),
    );
    assert!(matches!(cut, Err(ReceiveError::Cut)), "{cut:?}");
    for (name, from) in [("three", "two"), ("three", "one"), ("two", "one")] {
        let error = refusal(&target, &sent(&source.fs, name, Some(from), None));
        assert!(
            matches!(error, ReceiveError::Incomplete(_)),
            "{name}: {error}"
        );
    }
    let token = resume_token(&mut VolumeTarget::new(&target.fs)).unwrap();
    // Of another stream.
    let parsed = Position::of_token(&token).unwrap();
    let options = SendOptions {
        resume: Some(&parsed),
        plain: false,
    };
    let (fs, from) = (&source.fs, Some(OsStr::new("two")));
    let went = fs.send_snapshot("three", from, io::sink(), &options, |_| {});
    assert!(matches!(went, Err(SendError::OtherToken)), "{went:?}");
    let rest = sent(&source.fs, "two", Some("one"), Some(&token));
    assert!(rest.len() < two.len());
    received(&mut VolumeTarget::new(&target.fs), &rest);
    let error = refusal(&target, &rest);
    assert!(matches!(error, ReceiveError::NothingBegun), "{error}");
    for at in 0..token.len() {
        let damaged = [&token[..at], &token[at + 1..]].concat();
        assert!(Position::of_token(&damaged).is_err());
    }
}

/// Deletes a snapshot once something was written.
struct Deleting<'m>(&'m Memory, Vec<u8>);

impl Write for Deleting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        if self.1.len() > 3 << 20 {
            let _ = self.0.fs.delete_snapshot("one");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_snapshot_that_is_deleted_meanwhile_gives_no_whole_stream() {
    let source = Memory::new();
    let noise = noise(8 << 20);
    source.fs.write("/big", &noise).unwrap();
    source.fs.take_snapshot("one", false).unwrap();
    let mut out = Deleting(&source, Vec::new());
    let options = SendOptions::default();
    let went = source
        .fs
        .send_snapshot("one", None, &mut out, &options, |_| {});
    let gone = matches!(went, Err(SendError::Source(SourceError::Gone)));
    assert!(gone, "{went:?}");
    let target = Memory::new();
    let mut to = VolumeTarget::new(&target.fs);
    let cut = receive(out.1.as_slice(), &mut to, &mut Warnings::default());
    assert!(matches!(cut, Err(ReceiveError::Cut)), "{cut:?}");
}

#[test]
fn what_can_change_is_not_sent() {
    let source = Memory::new();
    source.fs.take_snapshot("w", true).unwrap();
    source.fs.take_snapshot("r", false).unwrap();
    let options = SendOptions::default();
    let send = |name: &str, from: Option<&str>| {
        let from = from.map(OsStr::new);
        let went = source
            .fs
            .send_snapshot(name, from, io::sink(), &options, |_| {});
        went.unwrap_err().to_string()
    };
    assert!(send("w", None).contains("can be written to"));
    assert!(send("r", Some("w")).contains("can be written to"));
    assert!(send("none", None).contains("no snapshot none"));
    assert!(send("r", Some("r")).contains("from itself"));
}

/// What was received is sent on, without what the receiver keeps beside it.
#[test]
fn what_was_received_is_sent_on() {
    let (source, middle) = (volume(), Memory::new());
    let end = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut from: Option<&str> = None;
    for name in ["one", "two", "three"] {
        let stream = sent(&source.fs, name, from, None);
        received(&mut VolumeTarget::new(&middle.fs), &stream);
        middle.fs.take_snapshot(name, false).unwrap();
        let stream = sent(&middle.fs, name, from, None);
        received(&mut Directory::open(end.path()).unwrap(), &stream);
        let due = of_volume(&source.fs, snapshot_root(&source.fs, name));
        compare(&due, &of_directory(end.path()), name);
        from = Some(name);
    }
    // But a file of that name that is not in the root is a file.
    source.fs.create_dir("/below").unwrap();
    let path = format!("/below/{}", std::str::from_utf8(STATE_DIRECTORY).unwrap());
    source.fs.write(path, b"mine").unwrap();
    source.fs.take_snapshot("four", false).unwrap();
    let stream = sent(&source.fs, "four", Some("three"), None);
    received(&mut VolumeTarget::new(&middle.fs), &stream);
    let due = of_volume(&source.fs, snapshot_root(&source.fs, "four"));
    compare(&due, &of_volume(&middle.fs, ROOT), "four");
}

/// Values of attributes in pieces, which become short and long.
#[test]
fn long_values_of_attributes_are_sent() {
    let (source, target) = (Memory::new(), Memory::new());
    let set = |name: &str, value: &[u8]| source.fs.set_xattr("/file", name, value).unwrap();
    source.fs.write("/file", b"content").unwrap();
    let mut from: Option<&str> = None;
    for (at, snapshot) in ["one", "two", "three"].into_iter().enumerate() {
        set("user.a", &noise([65_536, 10, 65_535][at]));
        set("user.b", &noise([3900, 3901, 3900][at]));
        set(&format!("user.new {at}"), &noise(20_000 + at));
        if at == 2 {
            source.fs.remove_xattr("/file", "user.new 0").unwrap();
        }
        source.fs.take_snapshot(snapshot, false).unwrap();
        let stream = sent(&source.fs, snapshot, from, None);
        received(&mut VolumeTarget::new(&target.fs), &stream);
        let due = of_volume(&source.fs, snapshot_root(&source.fs, snapshot));
        compare(&due, &of_volume(&target.fs, ROOT), snapshot);
        from = Some(snapshot);
    }
    assert_eq!(target.fs.xattr("/file", "user.a").unwrap(), noise(65_535));
    assert_eq!(target.fs.list_xattrs("/file").unwrap().len(), 4);
}

/// An attribute for which there is no room was left out with a warning, and the stream went on to its end. The system's own word for a full
/// disk ends it; with room it goes on.
#[test]
fn attributes_that_find_no_room_end_a_stream() {
    let (source, target) = (Memory::new(), Memory::new());
    for file in 0..40 {
        let path = format!("/{file}");
        source.fs.write(&path, b"").unwrap();
        for at in 0..8 {
            let value = noise(60_000 + file);
            source
                .fs
                .set_xattr(&path, &format!("user.{at}"), &value)
                .unwrap();
        }
    }
    source.fs.take_snapshot("one", false).unwrap();
    // A snapshot holds nearly all of the target.
    let filler = noise(1 << 20);
    target.fs.create_dir("/filler").unwrap();
    let filled = (0..).take_while(|at| {
        let written = target.fs.write(format!("/filler/{at}"), &filler);
        written.is_ok()
    });
    assert!(filled.count() > 20);
    for at in 0..5 {
        target.fs.remove_file(format!("/filler/{at}")).unwrap();
    }
    target.fs.take_snapshot("held", false).unwrap();
    target.fs.remove_dir_all("/filler").unwrap();
    let stream = sent(&source.fs, "one", None, None);
    let mut warnings = Warnings::default();
    let went = receive(
        &stream[..],
        &mut VolumeTarget::new(&target.fs),
        &mut warnings,
    );
    assert_eq!(warnings.0, []);
    let ReceiveError::Target { source: error, .. } = went.unwrap_err() else {
        panic!("it ended for another reason");
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    target.fs.delete_snapshot("held").unwrap();
    let token = resume_token(&mut VolumeTarget::new(&target.fs)).unwrap();
    let rest = sent(&source.fs, "one", None, Some(&token));
    received(&mut VolumeTarget::new(&target.fs), &rest);
    let due = of_volume(&source.fs, snapshot_root(&source.fs, "one"));
    compare(&due, &of_volume(&target.fs, ROOT), "one");
}

/// What is as it was costs nothing, and what changed costs what it is.
#[test]
fn a_stream_is_as_long_as_what_changed() {
    let source = Memory::new();
    let noise = noise(16 << 20);
    source.fs.write("/big", &noise).unwrap();
    for at in 0..500 {
        source.fs.write(format!("/small{at}"), b"small").unwrap();
    }
    source.fs.take_snapshot("one", false).unwrap();
    let file = source
        .fs
        .open_file("/big", &persimmon::OpenOptions::new().write(true))
        .unwrap();
    file.write_at(b"x", 5 << 20).unwrap();
    drop(file);
    source.fs.rename("/small7", "/renamed").unwrap();
    source.fs.take_snapshot("two", false).unwrap();
    let stream = sent(&source.fs, "two", Some("one"), None);
    assert!(stream.len() < 6000, "{} bytes", stream.len());
    source.fs.take_snapshot("three", false).unwrap();
    let stream = sent(&source.fs, "three", Some("two"), None);
    assert!(stream.len() < 1000, "{} bytes", stream.len());
}
