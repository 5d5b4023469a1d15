//! Snapshots sent from a mount and received: into a directory and into another mount, cut and gone on with.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::command::script;
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::Snapshot;
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "streams::snapshots_are_sent_from_a_mount_and_received",
        run: snapshots_are_sent_from_a_mount_and_received,
        limit_seconds: 240,
        only_persimmon: true,
    },
    Scenario {
        name: "streams::a_cut_stream_goes_on",
        run: a_cut_stream_goes_on,
        limit_seconds: 240,
        only_persimmon: true,
    },
];

const MIB: usize = 1 << 20;

/// Files of all kinds.
const TREE: &str = "mkdir -p tree/deep tree/below/it; echo small > tree/small; ln tree/small tree/deep/again; ln -s ../small tree/deep/link; \
                    mkfifo tree/pipe; mknod tree/null c 1 3; setfattr -n user.name -v value tree/small; setfacl -m u:1000:rx tree/deep; \
                    chmod 2750 tree/deep; chmod 4755 tree/small; chown 1:2 tree/pipe; truncate -s 10M tree/sparse; echo end >> tree/sparse; \
                    seq 1 200000 > tree/text; for i in $(seq 300); do echo $i > tree/below/it/$i; done; \
                    touch -h -d 2001-02-03T04:05:06.789012345 tree/deep/link tree/small tree/deep tree";

/// Renames in a circle, a directory in its own former child, another kind under an old name, and content in the midst.
const CHANGE: &str = "mv tree/small t; mv tree/text tree/small; mv t tree/text; mv tree/below/it tree/it; mv tree/below tree/it/below; \
                      rm tree/pipe; mkdir tree/pipe; rm tree/null; echo file > tree/null; fallocate -p -o 40960 -l 81920 tree/small; \
                      printf changed | dd of=tree/big bs=1 seek=5000000 conv=notrunc status=none; truncate -s 3M tree/sparse; \
                      rm tree/it/7 tree/deep/link; setfattr -x user.name tree/text; echo new > tree/it/below/new";

/// The trees of two directories.
fn equal(due: &Path, found: &Path) -> Result<()> {
    let look = |dir: &Path| {
        Ok::<_, anyhow::Error>(
            Snapshot::take(dir)?
                .without_numbers()
                .without_change_times(),
        )
    };
    look(&found.join("tree"))?.equals(&look(&due.join("tree"))?)
}

fn snapshots_are_sent_from_a_mount_and_received(bed: &TestBed) -> Result<()> {
    let mut source = bed.volume("sent", 1 << 30, &[])?;
    let mut target = bed.volume("received", 1 << 30, &[])?;
    source.mount(&[])?;
    target.mount(&[])?;
    let plain = bed.outside("received plain")?;
    let dir = source.dir.clone();
    script(&dir, &[], TREE)?;
    std::fs::write(dir.join("tree/big"), noise(1, 20 * MIB))?;
    let tool = source.tool("send").get_program().to_owned();
    let variables: [(&str, &Path); 3] = [
        ("P", Path::new(&tool)),
        ("TO", &target.dir),
        ("PLAIN", &plain),
    ];
    // Beside somebody who writes.
    script(
        &dir,
        &variables,
        "mkdir .snapshots/one; (for i in $(seq 200); do echo $i > tree/busy; done) & \
         \"$P\" send .snapshots/one | \"$P\" receive \"$TO\" > /dev/null; \
         \"$P\" send . one | \"$P\" receive \"$PLAIN\" > /dev/null; wait; rm tree/busy",
    )?;
    equal(
        &dir.join(".snapshots/one"),
        &target.dir.join(".snapshots/one"),
    )?;
    equal(&dir.join(".snapshots/one"), &plain)?;
    script(&dir, &variables, CHANGE)?;
    script(
        &dir,
        &variables,
        "mkdir .snapshots/two; \"$P\" send .snapshots/two --from one > ../two.stream; \
         test \"$(stat -c %s ../two.stream)\" -lt 2000000; \
         \"$P\" receive \"$TO\" < ../two.stream > /dev/null; \"$P\" receive \"$PLAIN\" < ../two.stream > /dev/null; \
         ! \"$P\" receive \"$PLAIN\" < ../two.stream 2> ../told; grep -q 'begins with snapshot one' ../told; \
         test \"$(ls \"$TO\"/.snapshots | xargs)\" = 'one two'; rm ../two.stream ../told",
    )?;
    let two = dir.join(".snapshots/two");
    equal(&two, &target.dir.join(".snapshots/two"))?;
    equal(&two, &plain)?;
    // Holes are holes there, too.
    script(&plain, &[], "test \"$(stat -c %b tree/sparse)\" -lt 100")?;
    target.unmount()?;
    target.fsck()?;
    source.unmount()?;
    source.fsck()?;
    // And from and into what is not mounted.
    let third = bed.volume("unmounted", 1 << 30, &[])?;
    let images: [(&str, &Path); 3] = [
        ("P", Path::new(&tool)),
        ("FROM", Path::new(&source.image)),
        ("TO", Path::new(&third.image)),
    ];
    script(
        &plain,
        &images,
        "\"$P\" send \"$FROM\" one | \"$P\" receive \"$TO\" > /dev/null; \
         \"$P\" send \"$FROM\" two --from one | \"$P\" receive \"$TO\" > /dev/null; \
         test \"$(\"$P\" snapshot list \"$TO\" | grep -c read-only)\" = 2",
    )?;
    let mut third = third;
    third.fsck()?;
    third.mount(&[])?;
    equal(&plain, &third.dir.join(".snapshots/two"))?;
    third.unmount()?;
    third.destroy()?;
    target.destroy()?;
    source.destroy()
}

fn a_cut_stream_goes_on(bed: &TestBed) -> Result<()> {
    let mut source = bed.volume("cut", 1 << 30, &[])?;
    source.mount(&[])?;
    let plain = bed.outside("cut plain")?;
    let dir = source.dir.clone();
    script(&dir, &[], TREE)?;
    std::fs::write(dir.join("tree/big"), noise(2, 200 * MIB))?;
    let tool = source.tool("send").get_program().to_owned();
    let variables: [(&str, &Path); 2] = [("P", Path::new(&tool)), ("PLAIN", &plain)];
    let left = |volume: &Volume| -> Result<u64> {
        let bytes = script(
            &volume.dir,
            &variables,
            "\"$P\" send .snapshots/one --resume $(\"$P\" receive --resume-token \"$PLAIN\") | wc -c",
        )?;
        Ok(bytes.trim().parse()?)
    };
    script(
        &dir,
        &variables,
        "mkdir .snapshots/one; \
         ! (\"$P\" send .snapshots/one | head -c 150000000 | \"$P\" receive \"$PLAIN\") 2> ../told; \
         grep -q 'ended before its end' ../told; \
         ! \"$P\" send .snapshots/one | \"$P\" receive \"$PLAIN\" 2> ../told; grep -q 'is not done here' ../told",
    )?;
    let bytes = left(&source)?;
    ensure!(bytes < 160_000_000, "{bytes} bytes are sent again");
    // A receiver that is killed, and one that gets to the end.
    script(
        &dir,
        &variables,
        "T=$(\"$P\" receive --resume-token \"$PLAIN\"); \
         rm -f ../pipe; mkfifo ../pipe; \"$P\" receive \"$PLAIN\" < ../pipe 2> /dev/null & R=$!; \
         exec 3> ../pipe; (\"$P\" send .snapshots/one --resume $T 2> /dev/null || true) | head -c 30000000 >&3 || true; \
         sleep 0.3; kill -9 $R; exec 3>&-; wait $R || true; rm ../pipe; \
         T=$(\"$P\" receive --resume-token \"$PLAIN\"); \
         \"$P\" send .snapshots/one --resume $T | \"$P\" receive \"$PLAIN\" > /dev/null; \
         ! \"$P\" receive --resume-token \"$PLAIN\" 2> ../told; rm ../told",
    )?;
    equal(&dir.join(".snapshots/one"), &plain)?;
    // Deleted while it is sent.
    script(
        &dir,
        &variables,
        "mkdir ../other; ! (\"$P\" send .snapshots/one 2> ../told | (head -c 20000000; rmdir .snapshots/one; cat) | \
         \"$P\" receive ../other 2> /dev/null); grep -q 'was deleted meanwhile' ../told; rm -r ../other ../told",
    )?;
    source.unmount()?;
    source.fsck()?;
    source.destroy()
}
