//! Quota on a mount: users who are not root are told EDQUOT by what programs do, and by nothing else.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::command::script;
use crate::scenario::{Scenario, TestBed};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "quota::users_groups_and_trees_are_limited",
        run: users_groups_and_trees_are_limited,
        limit_seconds: 180,
        only_persimmon: true,
    },
    Scenario {
        name: "quota::what_a_map_does_not_find_room_for_is_told",
        run: what_a_map_does_not_find_room_for_is_told,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "quota::soft_limits_have_a_grace_time",
        run: soft_limits_have_a_grace_time,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

/// Functions of the scripts: `as` runs a command as a user of a group; `full` expects that it is refused for the quota.
const FUNCTIONS: &str = "as() { local who=$1; shift; setpriv --reuid ${who%:*} --regid ${who#*:} --clear-groups \"$@\"; }; \
     full() { if LC_ALL=C \"$@\" 2> /tmp/persimmon-quota-told; then echo \"not refused: $*\" >&2; return 1; fi; \
     grep -q 'Disk quota exceeded' /tmp/persimmon-quota-told || { cat /tmp/persimmon-quota-told >&2; return 1; }; }; \
     write() { dd if=/dev/urandom of=$1 bs=64k count=$(($2 / 64)) conv=fsync,notrunc status=none; }; export -f write; ";

/// Runs scripts in a directory of a mount, with the functions.
fn shell<'a>(bed: &'a TestBed, dir: &'a Path) -> impl Fn(&str) -> Result<String> + 'a {
    move |text| {
        let program = [("P", bed.persimmon.as_path()), ("D", dir)];
        script(dir, &program, &format!("{FUNCTIONS}{text}"))
    }
}

fn users_groups_and_trees_are_limited(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("quota", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    let run = shell(bed, &dir);
    // What is there before is counted when it is turned on.
    run(
        "mkdir home tree; chmod 1777 home tree; as 61001:62001 bash -c 'write home/before 1024'; \
         ! $P quota set $D --user 61001 --hard 4M 2> /dev/null; $P quota on $D; $P quota report $D | grep -q '61001 .*1.0 MiB'",
    )?;
    // A user: no more than the limit, and root is not stopped.
    run(
        "$P quota set $D --user 61001 --hard 4M; as 61001:62001 bash -c 'write home/a 2048'; full as 61001:62001 bash -c 'write home/b 4096'; \
         full as 61001:62001 bash -c 'write home/c 64'; as 61002:2002 bash -c 'write home/other 8192'; write home/a 4096; \
         test $(stat -c %s home/a) = 4194304; rm home/b home/before home/c; truncate -s 0 home/a; as 61001:62001 bash -c 'write home/a 3072'",
    )?;
    // What is overwritten takes nothing.
    run(
        "as 61001:62001 bash -c 'write home/fill 1024' || true; as 61001:62001 bash -c 'write home/a 3072'",
    )?;
    // Inodes, and files that are given away.
    run(
        "$P quota set $D --user 61001 --hard 0 --inodes-hard 4; as 61001:62001 touch home/i1 home/i2; full as 61001:62001 touch home/i3; \
         full as 61001:62001 mkdir home/d; full as 61001:62001 ln -s x home/l; as 61001:62001 ln home/i1 home/i1-again; \
         $P quota set $D --user 61001 --inodes-hard 0; as 61001:62001 touch home/i3",
    )?;
    // Extended attributes. A kernel that is asked for blocks alone takes those that it knows, for some seconds: a change time it asks for.
    run(
        "set_to() { setfattr -n user.$1 -v $(printf %0$2d 0) home/x; }; blocks() { stat -c '%b %z' home/x | cut -d ' ' -f 1; }; export -f set_to; \
         $P quota set $D --user 61008 --hard 100K; as 61008:2008 touch home/x; as 61008:2008 bash -c 'set_to a 65000'; test $(blocks) = 127; \
         full as 61008:2008 bash -c 'set_to b 60000'; full as 61008:2008 bash -c 'write home/x 64'; truncate -s 0 home/x; as 61008:2008 bash -c 'set_to a 100; set_to b 60000'; \
         test $(blocks) = 119; set_to c 60000; rm home/x",
    )?;
    // A group.
    run(
        "$P quota set $D --group 62001 --hard 5M; full as 1003:62001 bash -c 'write home/g 8192'; as 1003:2003 bash -c 'write home/h 8192'",
    )?;
    // A tree: files of anybody in it, and nothing of outside gets in.
    run(
        "$P quota project tree --id 7; $P quota set $D --project 7 --hard 4M; \
         as 1004:2004 bash -c 'mkdir tree/sub; write tree/sub/a 2048'; full as 1005:2005 bash -c 'write tree/b 4096'; \
         test $(($(stat -f -c %b tree/sub) * 4096)) = 4194304; test $(($(stat -f -c %a tree) * 4096)) -lt 65536; \
         ! LC_ALL=C ln home/h tree/linked 2> /tmp/persimmon-quota-told; \
         grep -q 'Invalid cross-device link' /tmp/persimmon-quota-told",
    )?;
    if script(&dir, &[], "command -v lsattr").is_ok() {
        run(
            "lsattr -pd tree | grep -q '^ *7 .*P'; touch plain; chattr -p 9 plain; lsattr -p plain | grep -q '^ *9 '; \
             chattr +P tree; ! chattr -P tree 2> /dev/null; chattr +Pc tree; lsattr -pd tree | grep -q '^ *7 .*c.*P'; chattr -c tree; \
             mkdir given; chattr +P -p 9 given; touch given/f; lsattr -p given/f | grep -q '^ *9 '",
        )?;
    }
    run(
        "sync -f .; $P quota report $D --json | grep -q '\"state\": \"on\"'; $P quota report $D | grep -q 'project *7 '",
    )?;
    // What others take is for root alone.
    run(
        "as 61001:62001 $P quota report $D > told; grep -q 'user *61001 ' told; grep -q 'group *62001 .*5.0 MiB' told; \
         test $(wc -l < told) = 3; ! as 61001:62001 $P quota set $D --user 61001 --hard 1G 2> /dev/null; \
         as 61009:62009 $P quota report $D | grep -q 'user *61009 *0 B'; rm told",
    )?;
    let free = |run: &dyn Fn(&str) -> Result<String>| run("stat -f -c %f .");
    let before = free(&run)?;
    volume.unmount()?;
    volume.fsck()?;
    // Without a mount, by another process; and limits are there again.
    let image = volume.image.clone();
    let run_on = |text: &str| {
        let program = [("P", bed.persimmon.as_path()), ("V", image.as_path())];
        script(&bed.work, &program, text)
    };
    run_on(
        "$P quota report $V | grep -q 'project *7 .*4.0 MiB'; $P quota set $V --project 7 --hard 1M | grep -q 'more than this; nothing is lost'; \
         $P quota set $V --project 7 --hard 5M; $P quota off $V; $P quota on $V",
    )?;
    volume.fsck()?;
    volume.mount(&[])?;
    run(
        "full as 1004:2004 bash -c 'write tree/c 4096'; rm -r tree/sub tree/b tree/c; as 1004:2004 bash -c 'write tree/c 4096'",
    )?;
    ensure!(free(&run)? != before, "nothing was freed");
    volume.unmount()?;
    volume.fsck()
}

fn soft_limits_have_a_grace_time(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("quota-soft", 1 << 30, &["--quota"])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    let run = shell(bed, &dir);
    run(
        "chmod 1777 .; $P quota set $D --user 61001 --soft 1M --hard 8M --grace 4; as 61001:62001 bash -c 'write a 512'; \
         $P quota report $D --json | grep -q '\"grace_seconds\": null'; as 61001:62001 bash -c 'write b 2048'; \
         $P quota report $D --json | grep -q '\"grace_seconds\": [0-4]'; as 61001:62001 bash -c 'write c 512'; sleep 6; \
         full as 61001:62001 bash -c 'write d 512'; $P quota report $D | grep -q over; \
         rm b c; as 61001:62001 bash -c 'write c 256'; as 61001:62001 bash -c 'write d 1024'; full as 61001:62001 bash -c 'write e 16384'",
    )?;
    volume.unmount()?;
    volume.fsck()
}

/// A kernel takes a short answer to a write from its cache for a whole one: what is beyond the limit was gone, and msync said that all was well.
fn what_a_map_does_not_find_room_for_is_told(bed: &TestBed) -> Result<()> {
    const STORE: &str = r#"
import errno, mmap, os
fd = os.open("mapped", os.O_RDWR)
m = mmap.mmap(fd, 1 << 20)
for page in range(256):
    m[page << 12] = 1 + page % 255
try:
    m.flush()
    os.fsync(fd)
    print("told nothing")
except OSError as error:
    print(errno.errorcode[error.errno])
"#;
    let mut volume = bed.volume("quota-map", 1 << 30, &[])?;
    volume.mount(&["compression=none"])?;
    let dir = volume.dir.clone();
    let run = shell(bed, &dir);
    run(
        "$P quota on $D; $P quota set $D --user 61001 --hard 256K; truncate -s 1M mapped; chown 61001:62001 mapped",
    )?;
    std::fs::write(dir.join("store.py"), STORE)?;
    let told = run("python3 store.py")?;
    ensure!(told.trim() == "EDQUOT", "{told}");
    run("$P quota set $D --user 61001 --hard 4M")?;
    let told = run("python3 store.py")?;
    ensure!(told.trim() == "told nothing", "{told}");
    // Nothing of the volume is wrong for that: who makes all of it durable is not told.
    run("$P quota set $D --user 61001 --hard 256K; sed '/^try/,$d' store.py > leave.py")?;
    for work in [
        "$P sync $D",
        "$P snapshot create $D s --writable",
        "$P freeze $D; $P thaw $D",
    ] {
        run(&format!(
            "rm -f mapped; truncate -s 1M mapped; chown 61001:62001 mapped; python3 leave.py; {work}"
        ))?;
    }
    run("rm -f mapped; truncate -s 1M mapped; chown 61001:62001 mapped; python3 leave.py")?;
    // From outside: who is in it keeps it busy.
    let variables = [("P", bed.persimmon.as_path()), ("D", &dir)];
    script(Path::new("/"), &variables, "$P umount $D")?;
    volume.mount(&[])?;
    volume.unmount()?;
    volume.fsck()
}
