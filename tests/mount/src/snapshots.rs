//! Snapshots on a mount: through the directory that lists them, and by the command.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, mkdirat, openat};

use crate::command::{output, script};
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::Snapshot;
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "snapshots::taken_read_renamed_and_deleted_as_directories",
        run: taken_read_renamed_and_deleted_as_directories,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "snapshots::what_walks_all_files_does_not_walk_them",
        run: what_walks_all_files_does_not_walk_them,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "snapshots::the_command_works_on_a_mount",
        run: the_command_works_on_a_mount,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "snapshots::paths_longer_than_the_system_takes_end_no_walk",
        run: paths_longer_than_the_system_takes_end_no_walk,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "snapshots::maps_and_new_names_are_not_taken_for_old_ones",
        run: maps_and_new_names_are_not_taken_for_old_ones,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

const MIB: u64 = 1 << 20;

/// Two copies, with names, links, times and attributes.
const COMPARE: &str = "list() { cd $1; find . -printf '%p %y %m %n %s %T@ %l\\n' | sort; getfattr -Rh -d -m - .; }; \
                       diff <(list back) <(list kept); diff -r --no-dereference --exclude pipe back kept";

/// Files of all kinds.
const TREE: &str = "mkdir -p tree/deep; echo small > tree/small; ln tree/small tree/deep/again; ln -s ../small tree/deep/link; \
                    mkfifo tree/pipe; setfattr -n user.name -v value tree/small; chmod 2750 tree/deep; \
                    truncate -s 10M tree/sparse; echo end >> tree/sparse; \
                    touch -h -d 2001-02-03T04:05:06.789 tree/deep/link tree/small tree/deep tree";

/// What differs on the second look, after everything in the tree was changed.
const CHANGE: &str = "echo other > tree/small; rm tree/deep/again tree/deep/link; mv tree/deep tree/moved; truncate -s 3 tree/sparse; \
                      rm tree/pipe; setfattr -n user.name -v other tree/small; echo new > tree/new";

fn taken_read_renamed_and_deleted_as_directories(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("snapshots", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    script(&dir, &[], TREE)?;
    std::fs::write(dir.join("tree/big"), noise(1, 20 * MIB as usize))?;
    let due = look(&dir.join("tree"))?;
    script(
        &dir,
        &[],
        "test -z \"$(ls -A .snapshots)\"; mkdir .snapshots/one; test \"$(ls .snapshots)\" = one; ! mkdir .snapshots/one 2> /dev/null",
    )?;
    script(&dir, &[], CHANGE)?;
    std::fs::write(dir.join("tree/big"), noise(2, 5 * MIB as usize))?;
    let one = dir.join(".snapshots/one");
    look(&one.join("tree"))?.equals(&due)?;
    script(
        &dir,
        &[],
        "cd .snapshots/one; test \"$(cat tree/deep/link)\" = small; test \"$(stat -c %i tree/small)\" != \"$(stat -c %i ../../tree/small)\"; \
         for change in 'touch tree/small' 'rm tree/small' 'mkdir new' 'mv tree x' 'chmod 700 tree' 'setfattr -n user.a tree' 'ln tree/small x' \
         'truncate -s 0 tree/small'; do ! LC_ALL=C $change 2> ../../told; grep -q 'Read-only file system' ../../told; done; \
         ! LC_ALL=C ln tree/small ../../linked 2> ../../told; grep -q 'Invalid cross-device link' ../../told; rm ../../told",
    )?;
    // Copied out, by sharing what is whole blocks: nothing of the 20 MiB is written.
    let written = |volume: &Volume| -> Result<u64> {
        script(&dir, &[], "sync -f .")?;
        volume.stats()?["data_bytes"].as_u64().context("data_bytes")
    };
    let before = written(&volume)?;
    script(
        &dir,
        &[],
        "cp -a --reflink=auto .snapshots/one/tree back; cmp .snapshots/one/tree/big back/big; cp -a back kept",
    )?;
    let bytes = written(&volume)? - before;
    ensure!(
        bytes < 2 * MIB,
        "copying out of a snapshot wrote {bytes} bytes"
    );
    script(&dir, &[], COMPARE)?;
    // Also after a remount, under another name.
    script(
        &dir,
        &[],
        "mv .snapshots/one .snapshots/first; mkdir .snapshots/two; ! mv -T .snapshots/first .snapshots/two 2> /dev/null; \
         ! mv .snapshots/first . 2> /dev/null; ! touch .snapshots/file 2> /dev/null; ! rmdir .snapshots 2> /dev/null; \
         test \"$(ls .snapshots | xargs)\" = 'first two'; df .snapshots/first > /dev/null",
    )?;
    let changed = look(&dir.join("tree"))?;
    volume.unmount()?;
    volume.fsck()?;
    volume.mount(&[])?;
    look(&dir.join(".snapshots/first/tree"))?.equals(&due)?;
    look(&dir.join(".snapshots/two/tree"))?.equals(&changed)?;
    // Though they are not empty; but not while their directories are somebody's, which is no matter to them.
    script(
        &dir,
        &[],
        "exec 3< .snapshots/first/tree/small; rmdir .snapshots/first; ! cat .snapshots/first/tree/small 2> /dev/null; \
         test \"$(ls .snapshots)\" = two; exec 3<&-; rmdir .snapshots/two; test -z \"$(ls -A .snapshots)\"",
    )?;
    look(&dir.join("tree"))?.equals(&changed)?;
    script(&dir, &[], COMPARE)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn what_walks_all_files_does_not_walk_them(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("walked", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    script(&dir, &[], TREE)?;
    let due = look(&dir.join("tree"))?;
    script(
        &dir,
        &[],
        "find . | sort > /dev/shm/before.$$; mkdir .snapshots/s; find . | sort | cmp - /dev/shm/before.$$; rm /dev/shm/before.$$; \
         test -z \"$(ls -A | grep snapshots)\"; test -z \"$(tar c . | tar t | grep snapshots)\"; shopt -s dotglob; rm -rf -- *; \
         test -z \"$(ls -A)\"; test \"$(ls .snapshots)\" = s",
    )?;
    // What `rm -rf` of the whole directory comes to: what is in it, and then that it is a mount.
    script(&dir, &[], "mkdir -p a/b; cd ..; ! rm -rf \"$OLDPWD\" 2> /dev/null; ls -A \"$OLDPWD\" | wc -l | grep -qx 0")
        .or_else(|_| script(&dir, &[], "rm -rf a"))?;
    look(&dir.join(".snapshots/s/tree"))?.equals(&due)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// A tree but for the numbers of inodes, which say in which snapshot one is.
fn look(dir: &Path) -> Result<Snapshot> {
    Ok(Snapshot::take(dir)?.without_numbers())
}

/// Any user could make such a path, and `diff` and `usage` of the whole volume ended there.
fn paths_longer_than_the_system_takes_end_no_walk(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("deep", 1 << 30, &[])?;
    volume.mount(&[])?;
    let name = "n".repeat(250);
    said(&volume, &["create", "before"])?;
    let mut directory = std::os::fd::OwnedFd::from(File::open(&volume.dir)?);
    for _ in 0..20 {
        mkdirat(&directory, &name, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        directory = openat(&directory, &name, flags, Mode::empty())?;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = openat(&directory, "file", flags, Mode::RUSR)?;
    File::from(file).write_all(&noise(5, 8192))?;
    let diff = said(&volume, &["diff", "before"])?;
    let last = diff.lines().last().unwrap_or_default();
    ensure!(
        last.len() > 4096 && last.ends_with("/file") && diff.lines().count() == 21,
        "{diff}"
    );
    let usage = output(volume.tool("usage").arg(&volume.dir).arg("--json"))?;
    let usage: serde_json::Value = serde_json::from_str(&usage)?;
    ensure!(
        usage["files"] == 1 && usage["content_bytes"] == 8192 && usage["unreadable"] == 0,
        "{usage}"
    );
    drop(directory);
    volume.unmount()
}

/// What the command says.
fn said(volume: &Volume, words: &[&str]) -> Result<String> {
    let (verb, rest) = words.split_first().context("a verb")?;
    let mut command = volume.tool("snapshot");
    output(command.arg(verb).arg(&volume.dir).args(rest))
}

fn the_command_works_on_a_mount(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("commanded", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    script(&dir, &[], TREE)?;
    std::fs::write(dir.join("tree/big"), noise(3, 20 * MIB as usize))?;
    // The kernel remembers that there is none, and what is listed.
    script(
        &dir,
        &[],
        "ls .snapshots; ! ls .snapshots/w 2> /dev/null; cd .snapshots && ls",
    )?;
    said(&volume, &["create", "one"])?;
    said(&volume, &["create", "w", "--writable"])?;
    script(
        &dir,
        &[],
        "test \"$(ls .snapshots | xargs)\" = 'one w'; echo changed > .snapshots/w/tree/small; rm .snapshots/w/tree/big; \
         test \"$(cat tree/small)\" = small; test \"$(cat .snapshots/one/tree/small)\" = small; \
         ! mv .snapshots/w/tree/small . 2> /dev/null || test \"$(cat small)\" = changed; rm -f small",
    )?;
    let list: serde_json::Value = serde_json::from_str(&said(&volume, &["list", "--json"])?)?;
    let rows = list.as_array().context("a list")?;
    let told: Vec<(&str, bool)> = rows
        .iter()
        .filter_map(|row| Some((row["name"].as_str()?, row["writable"].as_bool()?)))
        .collect();
    ensure!(told == [("one", false), ("w", true)], "{list}");

    let diff = said(&volume, &["diff", "one"])?;
    ensure!(diff.is_empty(), "{diff}");
    script(
        &dir,
        &[],
        "sync -f .; echo more >> tree/sparse; rm tree/pipe; mkdir tree/new; echo x > tree/new/file",
    )?;
    let diff = said(&volume, &["diff", "one"])?;
    let due = "+ /tree/new\n+ /tree/new/file\n- /tree/pipe\nM /tree/sparse\n";
    ensure!(diff == due, "{diff}");
    let diff = said(&volume, &["diff", "one", "w"])?;
    ensure!(diff.contains("- /tree/big\n"), "{diff}");
    // What was written to the writable one a moment ago counts: it is synced first.
    script(&dir, &[], "echo more >> .snapshots/w/tree/sparse")?;
    let diff = said(&volume, &["diff", "one", "w"])?;
    ensure!(diff.contains("M /tree/sparse\n"), "{diff}");

    said(&volume, &["rename", "w", "x"])?;
    let refused =
        said(&volume, &["rename", "x", "one"]).map_or_else(|e| e.to_string(), |_| String::new());
    ensure!(
        refused.contains("one: there is a snapshot with this name already"),
        "{refused}"
    );
    let open = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.join(".snapshots/x/tree/sparse"))?;
    let refused = said(&volume, &["delete", "x"]).map_or_else(|e| e.to_string(), |_| String::new());
    ensure!(
        refused.contains("x: a file in it is open for writing"),
        "{refused}"
    );
    drop(open);
    let mut command = volume.tool("snapshot");
    let refused = output(command.arg("rollback").arg(&dir).arg("one"));
    let refused = refused.map_or_else(|e| e.to_string(), |_| String::new());
    ensure!(
        refused.contains("mounted at") && refused.contains("umount"),
        "{refused}"
    );
    // The last close is told to the daemon a moment later.
    let deleted = (0..50).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        said(&volume, &["delete", "x"]).is_ok()
    });
    ensure!(deleted, "a file that was closed still holds its snapshot");
    said(&volume, &["create", "two"])?;
    let pruned = said(&volume, &["prune", "--keep", "yearly:1"])?;
    ensure!(pruned == "deleted one\n", "{pruned}");
    script(&dir, &[], "test \"$(ls .snapshots)\" = two")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// The kernel holds back what maps have stored, and knows files by their numbers.
fn maps_and_new_names_are_not_taken_for_old_ones(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("mapped", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    const MAP: &str = r#"
import mmap, os
with open("file", "wb") as f: f.write(b"a" * 8192)
f = open("file", "r+b"); m = mmap.mmap(f.fileno(), 8192)
for letter in b"bcdef":
    m[0:8192] = bytes([letter]) * 8192
    os.mkdir(".snapshots/s")
    got = open(".snapshots/s/file", "rb").read()
    assert got == bytes([letter]) * 8192, (bytes([letter]), got[:1])
    os.rmdir(".snapshots/s")
"#;
    let program = bed.outside("mapped program")?.join("map.py");
    std::fs::write(&program, MAP)?;
    let variables: [(&str, &Path); 1] = [("PROGRAM", &program)];
    script(&dir, &variables, "python3 \"$PROGRAM\"")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
