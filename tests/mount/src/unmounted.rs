//! `persimmon fs` beside a mount: what the one shows and makes is what the other does.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use serde_json::Value;

use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "unmounted::files_are_the_same_with_and_without_a_mount",
    run: files_are_the_same_with_and_without_a_mount,
    limit_seconds: 120,
    only_persimmon: true,
}];

/// Everything of a tree that a copy keeps, in words.
fn facts(top: &Path) -> Result<BTreeMap<Vec<u8>, String>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let seen = std::fs::symlink_metadata(&path)?;
        let content = if seen.is_file() {
            std::fs::read(&path)?
        } else if seen.is_symlink() {
            std::fs::read_link(&path)?.as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        if seen.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        }
        let mut names = vec![0; 4096];
        let len = llistxattr(&path, &mut names)?;
        let mut attributes = BTreeMap::new();
        for name in names[..len]
            .split(|byte| *byte == 0)
            .filter(|it| !it.is_empty())
        {
            let mut value = vec![0; 4096];
            let len = lgetxattr(&path, name, &mut value)?;
            attributes.insert(name.to_vec(), value[..len].to_vec());
        }
        let links = if seen.is_dir() { 0 } else { seen.nlink() };
        let checksum = xxhash_rust::xxh3::xxh3_64(&content);
        let text = format!(
            "{:o} {}:{} {links} {}.{} {} {checksum:x} {attributes:?}",
            seen.mode(),
            seen.uid(),
            seen.gid(),
            seen.mtime(),
            seen.mtime_nsec(),
            seen.rdev(),
        );
        let path = path.strip_prefix(top)?;
        found.insert(path.as_os_str().as_bytes().to_vec(), text);
    }
    Ok(found)
}

fn fs(volume: &Volume, arguments: &[&str]) -> Result<Output> {
    let mut command = volume.tool("fs");
    let image = volume.image.to_str().context("a path that is no text")?;
    let words = arguments.iter().map(|word| match *word {
        "IMG" => image,
        word => word,
    });
    Ok(command.args(words).output()?)
}

fn done(volume: &Volume, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = fs(volume, arguments)?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {told}");
    Ok(output.stdout)
}

fn make(top: &Path) -> Result<()> {
    std::fs::create_dir_all(top.join("dir/deep"))?;
    std::fs::write(top.join("dir/file"), noise(1, 500_000))?;
    std::fs::hard_link(top.join("dir/file"), top.join("dir/deep/name"))?;
    std::os::unix::fs::symlink("dir/file", top.join("link"))?;
    let sparse = std::fs::File::create(top.join("sparse"))?;
    sparse.write_all_at(&noise(2, 5000), 3 << 20)?;
    sparse.set_len(8 << 20)?;
    lsetxattr(top.join("dir"), "user.a", b"\n\xff", XattrFlags::empty())?;
    std::os::unix::fs::chown(top.join("sparse"), Some(12), Some(34))?;
    let status = std::process::Command::new("mkfifo")
        .arg(top.join("pipe"))
        .status()?;
    ensure!(status.success());
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 7);
    std::fs::File::open(top.join("dir"))?.set_modified(old)?;
    Ok(())
}

fn files_are_the_same_with_and_without_a_mount(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("unmounted", 64 << 20, &[])?;
    volume.mount(&[])?;
    make(&volume.dir)?;
    let due = facts(&volume.dir)?;
    for arguments in [
        ["fs", "ls", "IMG"].as_slice(),
        &["fs", "rm", "-r", "IMG", "/dir"],
        &["fs", "backup", "IMG", "/dev/null"],
    ] {
        let output = fs(&volume, &arguments[1..])?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{arguments:?}: {told}");
        let dir = volume.dir.display().to_string();
        let advice = [
            &format!("mounted at {dir}; use "),
            &format!("`umount {dir}` first"),
        ];
        ensure!(advice.iter().all(|it| told.contains(it.as_str())), "{told}");
    }
    volume.unmount()?;
    volume.let_go()?;

    // What was made through the mount, read without one.
    let work = volume.dir.parent().context("no directory to work in")?;
    let work = work.to_owned();
    let place = |name: &str| work.join(name).display().to_string();
    for name in ["unmounted.out", "unmounted.tar"] {
        let path = work.join(name);
        let _ = std::fs::remove_dir_all(&path);
        let _ = std::fs::remove_file(&path);
    }
    let (out, archive) = (place("unmounted.out"), place("unmounted.tar"));
    done(&volume, &["cp", "-r", "IMG", ":/", &out])?;
    ensure!(facts(Path::new(&out))? == due, "copied without a mount");
    let space: Value = serde_json::from_slice(&done(&volume, &["df", "--json", "IMG"])?)?;
    done(&volume, &["backup", "IMG", &archive])?;

    // What is made without a mount, read through one.
    done(&volume, &["cp", "-r", "IMG", &out, ":/in"])?;
    done(&volume, &["restore", "IMG", &archive, "/back"])?;
    done(&volume, &["cp", "-r", "IMG", ":/in", ":/again"])?;
    volume.fsck()?;
    volume.mount(&["ro"])?;
    for name in ["in", "back", "again"] {
        ensure!(
            facts(&volume.dir.join(name))? == due,
            "{name} through the mount"
        );
    }
    let mounted = rustix::fs::statvfs(&volume.dir)?;
    let size = mounted.f_blocks * mounted.f_frsize;
    ensure!(space[0]["size_bytes"] == size, "{space} is not {size}");
    volume.unmount()?;
    volume.let_go()?;
    done(&volume, &["rm", "-r", "IMG", "/in", "/again", "/back"])?;
    done(&volume, &["cp", "-r", "IMG", ":/", &place("unmounted.out")])?;
    // Removing has changed the root itself.
    let below = |mut facts: BTreeMap<Vec<u8>, String>| {
        facts.remove(b"".as_slice());
        facts
    };
    ensure!(
        below(facts(Path::new(&out))?) == below(due),
        "after removing"
    );
    std::fs::remove_dir_all(&out)?;
    std::fs::remove_file(&archive)?;
    volume.destroy()
}
