//! What umount(8) is told of a mount that the kernel does not wait for: that `umount.persimmon` unmounts it, and so
//! waits until the volume is closed. Kept where mount(8) keeps such words, in `/run/mount/utab`, as it does.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use tracing::debug;

const DIRECTORY: &str = "/run/mount";

/// Has umount(8) call `umount.persimmon` for what is mounted at `dir`. Only root may; where that is not possible
/// umount(8) unmounts by itself, as it does without.
pub fn register(source: &Path, dir: &Path) {
    let line = line_of(source, dir);
    told(change(Path::new(DIRECTORY), |text| {
        let mut text = without(text, dir);
        text.extend_from_slice(&line);
        text
    }));
}

/// Takes that back.
pub fn forget(dir: &Path) {
    if Path::new(DIRECTORY).join("utab").exists() {
        told(change(Path::new(DIRECTORY), |text| without(text, dir)));
    }
}

fn told(result: io::Result<()>) {
    if let Err(error) = result {
        debug!("{DIRECTORY}/utab: {error}");
    }
}

fn line_of(source: &Path, dir: &Path) -> Vec<u8> {
    let mut line = b"SRC=".to_vec();
    line.extend(escaped(source.as_os_str()));
    line.extend_from_slice(b" TARGET=");
    line.extend(escaped(dir.as_os_str()));
    line.extend_from_slice(b" ROOT=/ OPTS=helper=persimmon,uhelper=persimmon\n");
    line
}

/// The table without our line for `dir`. Others' lines stay as they are.
fn without(text: &[u8], dir: &Path) -> Vec<u8> {
    let mut target = b"TARGET=".to_vec();
    target.extend(escaped(dir.as_os_str()));
    let is_ours = |line: &[u8]| {
        let mut fields = line.trim_ascii_end().split(|byte| *byte == b' ');
        fields
            .clone()
            .any(|field| field == b"OPTS=helper=persimmon,uhelper=persimmon")
            && fields.any(|field| field == target)
    };
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let others = lines.filter(|line| !is_ours(line));
    others.flatten().copied().collect()
}

/// Space, tab, newline and backslash are written `\ooo` in octal.
fn escaped(text: &OsStr) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in text.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").into_bytes()),
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// Puts a changed table in the place of the one there is, under mount(8)'s lock.
fn change(directory: &Path, edit: impl FnOnce(&[u8]) -> Vec<u8>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(directory.join("utab.lock"))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let table = directory.join("utab");
    let before = match fs::read(&table) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let after = edit(&before);
    if after == before {
        return Ok(());
    }
    let new = directory.join("utab.persimmon");
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&new)?;
    file.write_all(&after)?;
    fs::rename(&new, &table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_line_comes_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let (image, dir) = (Path::new("/a b.img"), Path::new("/mnt/x\\y"));
        let others = b"SRC=/dev/sda TARGET=/mnt/x ROOT=/ OPTS=uhelper=udisks2\n";
        let table = directory.path().join("utab");
        fs::write(&table, others).unwrap();
        let add = |text: &[u8]| [text, line_of(image, dir).as_slice()].concat();
        change(directory.path(), add).unwrap();
        let expected = [
            others.as_slice(),
            br"SRC=/a\040b.img TARGET=/mnt/x\134y ROOT=/ OPTS=helper=persimmon,uhelper=persimmon",
            b"\n",
        ]
        .concat();
        assert_eq!(fs::read(&table).unwrap(), expected);
        assert_eq!(without(&expected, Path::new("/mnt/x")), expected);
        change(directory.path(), |text| without(text, dir)).unwrap();
        assert_eq!(fs::read(&table).unwrap(), others);
    }
}
