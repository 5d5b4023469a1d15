//! Snapshots of snapshots, and mounts of one: its root is the root.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::check::{Check, Place};
use crate::command::{output, run, script};
use crate::programs;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::Snapshot;
use crate::sys::{Handle, handle_of, open_handle};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "subvolumes::taken_of_snapshots_and_listed_there",
        run: taken_of_snapshots_and_listed_there,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "subvolumes::mounted_as_the_root",
        run: mounted_as_the_root,
        limit_seconds: 240,
        only_persimmon: true,
    },
    Scenario {
        name: "subvolumes::a_mount_of_one_behaves_as_any_other",
        run: a_mount_of_one_behaves_as_any_other,
        limit_seconds: 600,
        only_persimmon: true,
    },
    Scenario {
        name: "subvolumes::handles_lead_to_what_is_in_the_mount",
        run: handles_lead_to_what_is_in_the_mount,
        limit_seconds: 60,
        only_persimmon: true,
    },
];

/// Files of all kinds, below the directory that this runs in.
const TREE: &str = "mkdir -p tree/deep; echo small > tree/small; ln tree/small tree/deep/again; ln -s ../small tree/deep/link; \
                    mkfifo tree/pipe; setfattr -n user.name -v value tree/small; chmod 2750 tree/deep; \
                    head -c 3000000 /dev/urandom > tree/big";

/// A tree but for the numbers of inodes, which say in which snapshot one is.
fn look(dir: &Path) -> Result<Snapshot> {
    Ok(Snapshot::take(dir)?.without_numbers())
}

fn said(volume: &Volume, words: &[&str]) -> Result<String> {
    let (verb, rest) = words.split_first().context("a verb")?;
    let mut command = volume.tool("snapshot");
    output(command.arg(verb).arg(&volume.dir).args(rest))
}

fn refused(result: Result<String>, why: &str) -> Result<()> {
    let told = result.map_or_else(|error| format!("{error:#}"), |said| format!("done: {said}"));
    ensure!(told.contains(why), "{told}");
    Ok(())
}

/// A volume with a snapshot `dev` that can be written to.
fn with_dev(bed: &TestBed, name: &str, gib: u64) -> Result<Volume> {
    let mut volume = bed.volume(name, gib << 30, &[])?;
    volume.mount(&[])?;
    script(&volume.dir, &[], "echo main > main; ls -a . .snapshots")?;
    said(&volume, &["create", "dev", "--writable"])?;
    Ok(volume)
}

fn taken_of_snapshots_and_listed_there(bed: &TestBed) -> Result<()> {
    let mut volume = with_dev(bed, "taken-of", 1)?;
    let dir = volume.dir.clone();
    let dev = dir.join(".snapshots/dev");
    script(&dev, &[], TREE)?;
    let due = look(&dev.join("tree"))?;
    script(
        &dev,
        &[],
        "ls -a .snapshots ../; mkdir .snapshots/one; rm -r tree/deep; mkdir .snapshots/two; test -d .snapshots/one/tree/deep; \
         test ! -e .snapshots/two/tree/deep; ! mkdir .snapshots/two 2> /dev/null; ! ls -d .snapshots/dev 2> /dev/null",
    )?;
    look(&dir.join(".snapshots/one/tree"))?.equals(&due)?;
    look(&dev.join(".snapshots/one/tree"))?.equals(&due)?;
    // What the kernel has listed in one of the directories changes by the other.
    script(
        &dir,
        &[],
        "all() { test \"$(ls .snapshots | xargs)\" = \"$1\" -a \"$(ls .snapshots/dev/.snapshots | xargs)\" = \"$2\"; }; \
         all 'dev one two' 'one two'; mkdir .snapshots/dev/.snapshots/three; all 'dev one three two' 'one three two'; \
         rmdir .snapshots/three; all 'dev one two' 'one two'; mv .snapshots/one .snapshots/first; all 'dev first two' 'first two'; \
         mv .snapshots/dev/.snapshots/first .snapshots/dev/.snapshots/one; all 'dev one two' 'one two'; \
         mkdir .snapshots/main; all 'dev main one two' 'one two'; ! mv .snapshots/main .snapshots/dev/.snapshots/x 2> /dev/null; \
         ! mv .snapshots/dev/.snapshots/one .snapshots/x 2> /dev/null; ! ls .snapshots/dev/.snapshots/main 2> /dev/null; \
         test \"$(ls -A .snapshots/main/.snapshots)\" = ''; \
         test \"$(find . .snapshots/dev -name .snapshots)\" = ''; \
         ! ls .snapshots/dev/.snapshots/one/.snapshots/one 2> /dev/null",
    )?;
    // Two that use both ways at a time get no errors, and what is open stays.
    script(
        &dir,
        &[],
        "exec 3< .snapshots/one/tree/big; for way in .snapshots .snapshots/dev/.snapshots; do \
         (for i in $(seq 200); do ls -lR $way/one > /dev/null; done) & pids=\"${pids:-} $!\"; done; for pid in $pids; do wait $pid; done; \
         cmp <(cat <&3) .snapshots/dev/.snapshots/one/tree/big",
    )?;
    // Root alone takes and deletes them: others may work in what was taken of a tree.
    script(
        &dir,
        &[],
        "chown nobody .snapshots/dev; as() { setpriv --reuid=nobody --clear-groups -- \"$@\"; }; ! as mkdir .snapshots/dev/.snapshots/own 2> /dev/null; \
         ! as mkdir .snapshots/theirs 2> /dev/null; ! as rmdir .snapshots/dev/.snapshots/one 2> /dev/null; \
         ! as mv .snapshots/dev/.snapshots/one .snapshots/dev/.snapshots/x 2> /dev/null; as ls .snapshots/dev/.snapshots/one > /dev/null",
    )?;
    said(&volume, &["create", "four", "--of", "dev"])?;
    said(&volume, &["create", "w", "--writable", "--of", "one"])?;
    refused(
        said(&volume, &["create", "x", "--of", "none"]),
        "none: there is no such snapshot",
    )?;
    refused(
        said(&volume, &["create", "four", "--of", "dev"]),
        "a snapshot with this name",
    )?;
    script(
        &dir,
        &[],
        "test \"$(ls .snapshots/dev/.snapshots | xargs)\" = 'four one two'; test \"$(ls .snapshots/one/.snapshots)\" = w; \
         echo x > .snapshots/one/.snapshots/w/x; test ! -e .snapshots/one/x",
    )?;
    let list: serde_json::Value = serde_json::from_str(&said(&volume, &["list", "--json"])?)?;
    let rows = list.as_array().context("a list")?;
    let of = |name: &str| {
        rows.iter()
            .find(|row| row["name"] == name)
            .map(|row| row["of"].clone())
    };
    ensure!(
        of("four") == Some("dev".into()) && of("w") == Some("one".into()),
        "{list}"
    );
    ensure!(of("dev") == Some(serde_json::Value::Null), "{list}");
    // What was taken of what is deleted is of what that was taken of.
    script(
        &dir,
        &[],
        "rmdir .snapshots/one; test \"$(ls .snapshots/dev/.snapshots | xargs)\" = 'four two w'; rmdir .snapshots/dev; \
         test \"$(ls .snapshots | xargs)\" = 'four main two w'; mkdir .snapshots/next; test \"$(ls .snapshots/next/.snapshots)\" = ''",
    )?;
    volume.unmount()?;
    volume.fsck()?;
    // The same where it is not mounted.
    let mut command = volume.tool("snapshot");
    let image = volume.image.clone();
    run(command
        .arg("create")
        .arg(&image)
        .args(["later", "--of", "w"]))?;
    let mut command = volume.tool("snapshot");
    let none = command
        .arg("create")
        .arg(&image)
        .args(["x", "--of", "none"]);
    refused(output(none), "none: there is no such snapshot")?;
    volume.mount(&[])?;
    script(
        &dir,
        &[],
        "test \"$(ls .snapshots/w/.snapshots)\" = later; test -e .snapshots/later/x",
    )?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn upgrade(volume: &Volume) -> Result<()> {
    run(volume.tool("upgrade-daemon").arg(&volume.dir))
}

/// Its root, from inside and outside.
const ROOT_IS_RIGHT: &str = "test $(stat -c %i .) = 1; test $(stat -c %i ..) != 1 -o $(stat -c %d .) != $(stat -c %d ..); \
                             ls -aif . | awk '$2 == \".\" || $2 == \"..\" { n++; if ($1 != 1) exit 1 } END { exit n != 2 }'; \
                             mkdir -p up; ls -aif up | awk '$2 == \"..\" { n++; if ($1 != 1) exit 1 } END { exit n != 1 }'; \
                             test $(stat -c %i up/..) = 1; rmdir up; touch .; chmod 755 .; setfattr -n user.of -v root .; \
                             test \"$(getfattr --only-values -n user.of .)\" = root; setfattr -x user.of .";

fn mounted_as_the_root(bed: &TestBed) -> Result<()> {
    let mut volume = with_dev(bed, "mounted-subvolume", 1)?;
    let dir = volume.dir.clone();
    script(&dir.join(".snapshots/dev"), &[], TREE)?;
    let due = look(&dir.join(".snapshots/dev/tree"))?;
    script(
        &dir,
        &[],
        "mkdir .snapshots/other .snapshots/dev/.snapshots/one",
    )?;
    volume.unmount()?;

    let unknown = volume.mount(&["subvolume=none"]);
    let told = unknown.map_or_else(|error| format!("{error:#}"), |()| String::new());
    ensure!(
        told.contains("there is no subvolume 'none'") && told.contains("persimmon snapshot list"),
        "{told}"
    );
    volume.mount_foreground(&["subvolume=dev", "supervise"])?;
    script(&dir, &[], ROOT_IS_RIGHT)?;
    look(&dir.join("tree"))?.equals(&due)?;
    script(
        &dir,
        &[],
        "test -e main; test \"$(ls .snapshots)\" = one; echo changed > main; test \"$(cat .snapshots/one/main)\" = main; \
         ! ls .snapshots/other 2> /dev/null; ! ls .snapshots/dev 2> /dev/null; mkdir .snapshots/two; \
         cp -a tree copy; diff -r --no-dereference --exclude pipe tree copy; mv copy/deep .; mv deep copy/; mv main copy/main; mv copy/main .; \
         tar cf tar tree; mkdir out; tar xf tar -C out; diff -r --no-dereference --exclude pipe tree out/tree; find . -xdev | sort > found; \
         grep -qx ./out/tree/small found; git init -q repo; cd repo; echo x > x; git add x; git -c user.name=a -c user.email=a commit -qm x; \
         git fsck --strict; cd ..; rm -rf out; test \"$(ls .snapshots | xargs)\" = 'one two'",
    )?;
    // Other daemons go on with it, under whatever name.
    upgrade(&volume)?;
    script(&dir, &[], ROOT_IS_RIGHT)?;
    script(
        &dir,
        &[],
        "test \"$(cat main)\" = changed; mkdir .snapshots/three; test -e .snapshots/three/copy/small; git -C repo fsck --strict",
    )?;
    let mut command = volume.tool("snapshot");
    let renamed = command.arg("rename").arg(&dir).args(["one", "first"]);
    run(renamed)?;
    let info = output(volume.tool("info").arg(&dir).arg("--json"))?;
    let info: serde_json::Value = serde_json::from_str(&info)?;
    ensure!(info["subvolume"] == "dev", "{info}");
    let shown = output(volume.tool("info").arg(&dir))?;
    ensure!(shown.contains(", subvolume dev"), "{shown}");
    run(volume.tool("usage").arg(&dir))?;
    // A remount leaves it as it is, and mounts no other one.
    let remount = |options: &str| {
        let mut command = volume.tool("mount");
        output(command.arg(&volume.image).arg(&dir).args(["-o", options]))
    };
    remount("remount,ro,subvolume=dev")?;
    script(&dir, &[], "! touch x 2> /dev/null; test -e main")?;
    remount("remount,rw")?;
    refused(
        remount("remount,rw,subvolume=other"),
        "cannot be changed by a remount",
    )?;
    script(&dir, &[], "touch x; rm x")?;
    // The command, by what is mounted.
    said(&volume, &["create", "w", "--writable"])?;
    said(&volume, &["create", "below", "--of", "w"])?;
    script(
        &dir,
        &[],
        "test \"$(ls .snapshots | xargs)\" = 'first three two w'; test \"$(ls .snapshots/w/.snapshots)\" = below",
    )?;
    script(&dir, &[], "sync -f .; echo more >> main")?;
    let diff = said(&volume, &["diff", "below"])?;
    ensure!(diff == "M /main\n", "{diff}");
    said(&volume, &["delete", "below"])?;
    refused(said(&volume, &["delete", "dev"]), "dev: it is mounted here")?;
    refused(
        said(&volume, &["delete", "other"]),
        "other: it was not taken of what is mounted",
    )?;
    let pruned = said(&volume, &["prune", "--keep", "yearly:1", "--dry-run"])?;
    ensure!(
        !pruned.contains("other") && pruned.contains("first"),
        "{pruned}"
    );
    // The power, as far as a daemon is concerned.
    script(&dir, &[], "sync -f .; echo synced > synced; sync -f .")?;
    volume.kill()?;
    volume.mount_foreground(&["subvolume=dev"])?;
    script(&dir, &[], ROOT_IS_RIGHT)?;
    script(
        &dir,
        &[],
        "test \"$(cat synced)\" = synced; git -C repo fsck --strict; diff -r --no-dereference --exclude pipe tree copy",
    )?;
    volume.unmount()?;
    volume.fsck()?;

    // Nothing of it is in the main one; and one that is read-only takes no changes.
    volume.mount(&[])?;
    script(
        &dir,
        &[],
        "test \"$(cat main)\" = main; test ! -e tree; test -e .snapshots/dev/repo; rmdir .snapshots/dev",
    )?;
    script(
        &dir,
        &[],
        "test \"$(ls .snapshots | xargs)\" = 'first other three two w'; test \"$(ls .snapshots/w/.snapshots)\" = ''",
    )?;
    volume.unmount()?;
    volume.mount(&["subvolume=first"])?;
    script(
        &dir,
        &[],
        "for change in 'touch x' 'rm main' 'mkdir x' 'chmod 700 .' 'mv main x'; do ! LC_ALL=C $change 2> /dev/shm/told.$$; \
         grep -q 'Read-only file system' /dev/shm/told.$$; done; rm /dev/shm/told.$$; test \"$(cat main)\" = main; \
         mkdir .snapshots/of-first; test -e .snapshots/of-first/main",
    )?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// All that is checked of a mount, in the root of one of a subvolume.
fn a_mount_of_one_behaves_as_any_other(bed: &TestBed) -> Result<()> {
    let mut volume = with_dev(bed, "behaves-subvolume", 6)?;
    volume.unmount()?;
    volume.mount(&["subvolume=dev", "dev", "suid"])?;
    rustix::fs::chmod(&volume.dir, rustix::fs::Mode::from_raw_mode(0o755))?;
    let checks: Vec<Check> = { crate::posix::checks().into_iter() }
        .filter(|check| !crate::posix::deviates(check.name, bed.kind))
        .chain(programs::git::CHECKS.iter().copied())
        .chain(programs::sqlite::CHECKS.iter().copied())
        .collect();
    let mut failed = Vec::new();
    for (at, check) in checks.iter().enumerate() {
        let name = format!("{at}-{}", check.name.replace("::", "-"));
        let place = Place {
            dir: volume.dir.join(&name),
            outside: bed.outside(&format!("subvolume-{name}"))?,
        };
        std::fs::create_dir(&place.dir)?;
        rustix::fs::chmod(&place.dir, rustix::fs::Mode::from_raw_mode(0o777))?;
        if let Err(error) = check.run.run(place) {
            failed.push(format!("{}: {error:#}", check.name));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    println!("      {} statements hold", checks.len());
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// Handles, as a server of the mount gives to its clients.
fn handles_lead_to_what_is_in_the_mount(bed: &TestBed) -> Result<()> {
    let mut volume = with_dev(bed, "handles-subvolume", 1)?;
    let dir = volume.dir.clone();
    script(
        &dir,
        &[],
        "mkdir -p only/main; echo secret > only/secret; mkdir .snapshots/other",
    )?;
    let outside = [
        dir.join("only/secret"),
        dir.join("only/main"),
        dir.join(".snapshots/other"),
    ];
    let outside: Vec<Handle> = outside
        .iter()
        .map(|path| handle_of(path))
        .collect::<Result<_, _>>()?;
    volume.unmount()?;
    volume.mount(&["subvolume=dev"])?;
    script(
        &dir,
        &[],
        "mkdir -p a/b/c; echo file > a/b/c/file; mkdir .snapshots/s",
    )?;
    let forget = || std::fs::write("/proc/sys/vm/drop_caches", "2");
    let mount = File::open(&dir)?;
    // The kernel finds a directory again by a listing of its parent, in which `.snapshots` is not.
    for path in [".", "a", "a/b/c", "a/b/c/file", ".snapshots/s/a/b/c/file"] {
        let (handle, ino) = (
            handle_of(&dir.join(path))?,
            dir.join(path).metadata()?.ino(),
        );
        forget()?;
        let opened = open_handle(&mount, &handle, OFlags::PATH).with_context(|| path.to_owned())?;
        ensure!(opened.metadata()?.ino() == ino, "{path}");
        if opened.metadata()?.is_dir() {
            // The kernel finds the way up to the root by asking for each parent.
            forget()?;
            let opened = open_handle(&mount, &handle, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let shown = std::fs::read_link(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&opened)
            ))?;
            ensure!(
                shown == dir.join(path).components().collect::<std::path::PathBuf>(),
                "{path}: {}",
                shown.display()
            );
        }
    }
    for handle in &outside {
        let opened = open_handle(&mount, handle, OFlags::PATH).map(drop);
        ensure!(opened == Err(Errno::STALE), "{opened:?}");
    }
    script(&dir, &[], ROOT_IS_RIGHT)?;
    drop(mount);
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
