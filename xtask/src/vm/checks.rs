//! The short set of checks in the guest, part of `cargo xtask test`: each kernel boots once, with
//! all drives.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::drive::Drive;
use super::guest::{Clock, Guest, LIFE_LIMIT, Machine};
use super::kernel::Kernel;
use super::programs_of_tests;

/// Drives of the guest, in order, by the names that the commands below use.
const DRIVES: &[&str] = &[
    // /dev/ns1: as a ZNS SSD, the usual limits. ns2: tighter ones. ns3: none.
    "nvme:size=24M,zone=1M,capacity=768K,open=14,active=14",
    "nvme:size=24M,zone=1M,capacity=512K,open=6,active=6",
    "nvme:size=24M,zone=1M,capacity=1M,open=0,active=0",
    // /dev/ns4 carries a filesystem; ns5 is an ordinary disk that carries an image.
    "nvme:size=256M,zone=2M,capacity=1536K,open=6,active=8",
    "disk:size=128M",
    // /dev/nullb0, with conventional zones. /dev/nullb1, whose zones fail.
    "null:size=32M,zone=1M,capacity=1M,open=4,active=8,conventional=5",
    "null:size=24M,zone=1M,capacity=1M,open=4,active=8",
    // /dev/nullb2: the shape of a 28 TB SMR disk; of what is not written nothing takes memory.
    "null:size=28000G,zone=256M,capacity=256M,open=128,active=0,conventional=1000",
    // /dev/nullb3, by zonefs: zones fail. /dev/nullb4, and nullb5 by zonefs: they do so under a volume.
    "null:size=24M,zone=1M,capacity=1M,open=4,active=8",
    "null:size=40M,zone=1M,capacity=1M,open=6,active=8",
    "null:size=40M,zone=1M,capacity=1M,open=6,active=8",
    // /dev/nullb6, in stripe sets: zones are lost.
    "null:size=220M,zone=1M,capacity=1M,open=14,active=14",
    // /dev/sda: 512-byte sectors, conventional zones.
    "scsi:size=32M,zone=1M,capacity=1M,open=8,block=512,conventional=3",
];

/// Name and command. A check that pulls a drive comes after all others of it.
const CHECKS: &[(&str, &str)] = &[
    ("exclusive", "drive-tests exclusive /dev/ns1"),
    ("conformance-zns-14", "drive-tests conformance /dev/ns1"),
    ("conformance-zns-6", "drive-tests conformance /dev/ns2"),
    (
        "conformance-zns-unlimited",
        "drive-tests conformance /dev/ns3",
    ),
    ("conformance-null", "drive-tests conformance /dev/nullb0"),
    ("conformance-scsi", "drive-tests conformance /dev/sda"),
    ("torn-block", "drive-tests torn /dev/sda"),
    ("model-zns", "drive-tests model /dev/ns1 1"),
    ("model-null", "drive-tests model /dev/nullb0 2"),
    ("model-scsi", "drive-tests model /dev/sda 3"),
    ("nvme-exclusive", NVME_EXCLUSIVE),
    (
        "nvme-conformance-14",
        "drive-tests conformance /dev/generic1",
    ),
    (
        "nvme-conformance-6",
        "drive-tests conformance /dev/generic2",
    ),
    (
        "nvme-conformance-unlimited",
        "drive-tests conformance /dev/generic3",
    ),
    ("nvme-appends", "drive-tests appends /dev/generic1"),
    ("nvme-model", "drive-tests model /dev/generic2 7"),
    ("zonefs-conformance-zns-14", ZONEFS_CONFORMANCE_14),
    ("zonefs-conformance-zns-6", ZONEFS_CONFORMANCE_6),
    ("zonefs-conformance-null", ZONEFS_CONFORMANCE_NULL),
    ("zonefs-model-zns", ZONEFS_MODEL_ZNS),
    ("zonefs-model-null", ZONEFS_MODEL_NULL),
    ("zonefs-own", ZONEFS_OWN),
    ("zonefs-filesystem-null", ZONEFS_FILESYSTEM_NULL),
    ("filesystem-zns", FILESYSTEM_ZNS),
    ("filesystem-scsi", FILESYSTEM_SCSI),
    ("counters", COUNTERS),
    ("smr-28-tb", SMR),
    ("filesystem-disk", FILESYSTEM_DISK),
    (
        "disk",
        "drive-tests conformance /dev/ns5 && drive-tests model /dev/ns5 4",
    ),
    ("refusals", REFUSALS),
    ("nvme-filesystem", NVME_FILESYSTEM),
    ("zonefs-filesystem-zns", ZONEFS_FILESYSTEM_ZNS),
    (
        "pair-conformance",
        "drive-tests conformance pair:/dev/ns5+/dev/ns2",
    ),
    (
        "pair-model",
        "drive-tests model pair:/dev/ns5+/dev/generic3 8",
    ),
    ("pair-filesystem", PAIR_FILESYSTEM),
    ("kept-flushes", KEPT_FLUSHES),
    ("zonefs-kept-flushes", ZONEFS_KEPT_FLUSHES),
    ("unmounted", UNMOUNTED),
    ("zonefs-unmounted", ZONEFS_UNMOUNTED),
    ("pulled", "drive-tests pulled /dev/sda"),
    (
        "nvme-pulled",
        "drive-tests pulled $(realpath /dev/generic3)",
    ),
];

/// Linux 6.1's null_blk cannot make zones fail.
const CHECKS_6_12: &[(&str, &str)] = &[
    (
        "zones-that-fail",
        "drive-tests zones /dev/nullb1 /sys/kernel/config/nullb/nullb1",
    ),
    ("zonefs-zones-that-fail", ZONEFS_ZONES_THAT_FAIL),
    (
        "volume-zones-that-fail",
        "drive-tests failing /dev/nullb4 /sys/kernel/config/nullb/nullb4",
    ),
    (
        "parity-zones-that-are-lost",
        "drive-tests losing-zones /dev/nullb6 /sys/kernel/config/nullb/nullb6",
    ),
    (
        "zonefs-volume-zones-that-fail",
        ZONEFS_VOLUME_ZONES_THAT_FAIL,
    ),
];

const FILESYSTEM_ZNS: &str = "set -e; d=/dev/ns4; mkdir -p /mnt/z; \
    mkfs.persimmon -L zns $d; mount -t persimmon $d /mnt/z; \
    cp -r /bin /lib /mnt/z/; (cd /; find bin lib -type f | xargs md5sum >/tmp/sums); \
    persimmon sync /mnt/z; i=0; while test $i -lt 6; do rm -rf /mnt/z/lib; cp -r /lib /mnt/z/; i=$((i+1)); done; \
    persimmon umount /mnt/z; fsck.persimmon $d; mount -t persimmon LABEL=zns /mnt/z; \
    (cd /mnt/z; md5sum -c /tmp/sums >/tmp/compared) || { grep -v OK /tmp/compared; exit 1; }; \
    persimmon devices | grep -q 'mounted at /mnt/z'; persimmon umount /mnt/z; persimmon fsck --data $d";

/// What Persimmon says it sent to the drive is what the kernel did, within 1 %.
const COUNTERS: &str = "set -e; d=/dev/ns4; mkdir -p /mnt/z; mkfs.persimmon --force $d; \
    sectors() { set -- $(cat /sys/block/$(basename $(realpath $d))/stat); echo $7; }; before=$(sectors); \
    mount -t persimmon $d /mnt/z; for i in 1 2 3; do rm -rf /mnt/z/*; cp -r /bin /lib /mnt/z/; persimmon sync /mnt/z; done; \
    sleep 2; persimmon stats --json /mnt/z >/tmp/stats; kernel=$((($(sectors) - before) * 512)); \
    ours=$(sed -n 's/.*\"device_bytes\": *\\([0-9]*\\).*/\\1/p' /tmp/stats); echo $ours of $kernel bytes; \
    test $ours -gt 10000000; off=$(((kernel - ours) * 100)); test $off -le $kernel; test $((0 - off)) -le $kernel; \
    persimmon umount /mnt/z";

const FILESYSTEM_SCSI: &str = "set -e; d=/dev/sda; mkdir -p /mnt/s; mkfs.persimmon --force $d; \
    mount -t persimmon $d /mnt/s; cp /bin/busybox /mnt/s/; persimmon umount /mnt/s; \
    mount -t persimmon $d /mnt/s; cmp /bin/busybox /mnt/s/busybox; persimmon umount /mnt/s; persimmon fsck --data $d";

/// Large zones, and a hundred thousand of them.
const SMR: &str = "set -e; d=/dev/nullb2; mkdir -p /mnt/z; mkfs.persimmon $d; mount -t persimmon $d /mnt/z; \
    cp -r /bin /mnt/z/; persimmon umount /mnt/z; mount -t persimmon $d /mnt/z; \
    cmp /bin/busybox /mnt/z/bin/busybox; persimmon umount /mnt/z; persimmon fsck --data $d";

/// An ordinary disk goes on being used as an image.
const FILESYSTEM_DISK: &str = "set -e; d=/dev/ns5; mkdir -p /mnt/d; mkfs.persimmon $d; \
    mount -t persimmon $d /mnt/d; cp /bin/busybox /mnt/d/; persimmon umount /mnt/d; persimmon fsck --data $d; \
    persimmon probe $d; ! persimmon devices | grep -q $(realpath $d)";

/// An ordinary disk for metadata, a zoned drive for data.
const PAIR_FILESYSTEM: &str = "set -e; f=/dev/ns5; d=/dev/ns4; p=pair:$f+$d; mkdir -p /mnt/p; \
    no() { ! \"$@\" >/tmp/said 2>&1; cat /tmp/said; }; \
    mkfs.persimmon --force --meta $f $d -L two; mount -t persimmon $p /mnt/p; \
    cp -r /bin /lib /mnt/p/; (cd /; find bin lib -type f | xargs md5sum >/tmp/sums); \
    persimmon sync /mnt/p; i=0; while test $i -lt 4; do rm -rf /mnt/p/lib; cp -r /lib /mnt/p/; i=$((i+1)); done; \
    persimmon info /mnt/p; persimmon umount $d; fsck.persimmon $p; \
    no mount -t persimmon $d /mnt/p; grep -q 'name both' /tmp/said; \
    no mount -t persimmon $f /mnt/p; grep -q 'name both' /tmp/said; \
    no mount -t persimmon pair:$d+$f /mnt/p; grep -q 'in that order' /tmp/said; \
    mount -t persimmon $d /mnt/p -o meta=$f; \
    (cd /mnt/p; md5sum -c /tmp/sums >/tmp/compared) || { grep -v OK /tmp/compared; exit 1; }; \
    persimmon umount /mnt/p; persimmon fsck --data $p";

const REFUSALS: &str = "set -e; d=/dev/ns4; mkdir -p /mnt/z; no() { ! \"$@\" >/tmp/said 2>&1; cat /tmp/said; }; \
    no mkfs.persimmon $d; grep -q 'holds a Persimmon volume' /tmp/said; \
    no mkfs.persimmon --force --zone-size 4M $d; grep -q 'leave out --zone-size' /tmp/said; \
    mount -t persimmon $d /mnt/z; no mkfs.persimmon --force $d; grep -q 'is mounted at' /tmp/said; \
    no drive-tests conformance $d; grep -q 'in use by another process' /tmp/said; persimmon umount /mnt/z; \
    no persimmon fsck /dev/nullb1; grep -qi 'volume' /tmp/said";

const NVME_EXCLUSIVE: &str = "set -e; drive-tests exclusive /dev/generic1; \
    mkfs.persimmon --force /dev/generic1; mkdir -p /mnt/z; mount -t persimmon /dev/generic1 /mnt/z; \
    ! drive-tests conformance /dev/ns1 2>/tmp/said; grep -q 'in use by another process' /tmp/said; \
    persimmon umount /mnt/z; mount -t persimmon /dev/ns1 /mnt/z; \
    ! drive-tests conformance /dev/generic1 2>/tmp/said; grep -q 'in use by another process' /tmp/said; \
    persimmon umount /mnt/z; persimmon devices >/tmp/said; cat /tmp/said; grep -q 'also as /dev/ng' /tmp/said";

/// Also: what was made by one back end is the other's.
const NVME_FILESYSTEM: &str = "set -e; d=/dev/generic4; mkdir -p /mnt/z; \
    mkfs.persimmon --force -L zns $d; mount -t persimmon $d /mnt/z; \
    cp -r /bin /lib /mnt/z/; (cd /; find bin lib -type f | xargs md5sum >/tmp/sums); \
    persimmon sync /mnt/z; i=0; while test $i -lt 6; do rm -rf /mnt/z/lib; cp -r /lib /mnt/z/; i=$((i+1)); done; \
    persimmon umount /mnt/z; fsck.persimmon $d; mount -t persimmon $d /mnt/z; \
    (cd /mnt/z; md5sum -c /tmp/sums >/tmp/compared) || { grep -v OK /tmp/compared; exit 1; }; \
    persimmon umount $d; persimmon probe $d | grep -q zns; mount -t persimmon /dev/ns4 /mnt/z; \
    (cd /mnt/z; md5sum -c /tmp/sums >/tmp/compared); persimmon umount /mnt/z; persimmon fsck --data $d";

/// A command with a new zonefs of the drive at /mnt/zf.
macro_rules! on_zonefs {
    ($drive:literal, $options:literal, $command:expr) => {
        concat!(
            "modprobe zonefs; mkdir -p /mnt/zf; drive-tests zonefs-make ",
            $drive,
            " && mount -t zonefs -o ",
            $options,
            " ",
            $drive,
            " /mnt/zf || exit 1; (",
            $command,
            "); code=$?; umount /mnt/zf; exit $code"
        )
    };
}

const ZONEFS_CONFORMANCE_14: &str = on_zonefs!(
    "/dev/ns1",
    "explicit-open",
    "drive-tests conformance zonefs:/mnt/zf"
);
const ZONEFS_CONFORMANCE_6: &str = on_zonefs!(
    "/dev/ns2",
    "explicit-open",
    "drive-tests conformance zonefs:/mnt/zf"
);
const ZONEFS_CONFORMANCE_NULL: &str = on_zonefs!(
    "/dev/nullb0",
    "explicit-open,errors=repair",
    "drive-tests conformance zonefs:/mnt/zf"
);
const ZONEFS_MODEL_ZNS: &str = on_zonefs!(
    "/dev/ns1",
    "explicit-open",
    "drive-tests model zonefs:/mnt/zf 5"
);
const ZONEFS_MODEL_NULL: &str = on_zonefs!(
    "/dev/nullb0",
    "explicit-open",
    "drive-tests model zonefs:/mnt/zf 6"
);
const ZONEFS_ZONES_THAT_FAIL: &str = on_zonefs!(
    "/dev/nullb3",
    "explicit-open,errors=repair",
    "drive-tests zones zonefs:/mnt/zf /sys/kernel/config/nullb/nullb3"
);
const ZONEFS_VOLUME_ZONES_THAT_FAIL: &str = on_zonefs!(
    "/dev/nullb5",
    "explicit-open,errors=repair",
    "drive-tests failing zonefs:/mnt/zf /sys/kernel/config/nullb/nullb5"
);
const ZONEFS_OWN: &str = on_zonefs!(
    "/dev/ns2",
    "explicit-open",
    "set -e; drive-tests zonefs zonefs:/mnt/zf; drive-tests exclusive zonefs:/mnt/zf; \
     persimmon devices >/tmp/said; cat /tmp/said; grep -q 'zonefs:/mnt/zf  zonefs on /dev/nvme' /tmp/said; \
     grep -q 'used by zonefs: 23 zones' /tmp/said; grep -q 'carries the zonefs at /mnt/zf' /tmp/said; \
     ! drive-tests conformance /dev/ns2 2>/tmp/said; grep -q 'in use by another process' /tmp/said; \
     umount /mnt/zf; ! mkfs.persimmon /dev/ns2 2>/tmp/said; cat /tmp/said; grep -q 'holds a zonefs' /tmp/said; \
     mount -t zonefs /dev/ns2 /mnt/zf"
);
const ZONEFS_FILESYSTEM_NULL: &str = on_zonefs!(
    "/dev/nullb0",
    "explicit-open",
    "set -e; d=zonefs:/mnt/zf; mkdir -p /mnt/s; mkfs.persimmon $d; \
     mount -t persimmon $d /mnt/s; cp /bin/busybox /mnt/s/; persimmon umount /mnt/s; \
     mount -t persimmon $d /mnt/s; cmp /bin/busybox /mnt/s/busybox; persimmon umount /mnt/s; persimmon fsck --data $d"
);
const ZONEFS_FILESYSTEM_ZNS: &str = on_zonefs!(
    "/dev/ns4",
    "explicit-open",
    "set -e; d=zonefs:/mnt/zf; mkdir -p /mnt/z; mkfs.persimmon -L inzonefs $d; mount -t persimmon $d /mnt/z; \
     cp -r /bin /lib /mnt/z/; (cd /; find bin lib -type f | xargs md5sum >/tmp/sums); \
     persimmon sync $d; i=0; while test $i -lt 4; do rm -rf /mnt/z/lib; cp -r /lib /mnt/z/; i=$((i+1)); done; \
     persimmon umount $d; cd /mnt; fsck.persimmon zonefs:zf; mount -t persimmon $d /mnt/z; \
     (cd /mnt/z; md5sum -c /tmp/sums >/tmp/compared) || { grep -v OK /tmp/compared; exit 1; }; \
     persimmon devices | grep -q 'mounted at /mnt/z'; persimmon probe $d | grep inzonefs; \
     persimmon umount /mnt/z; persimmon fsck --data $d"
);

/// Kept flushes of killed writers, through zbd, then through nvme with zbd looking and the other way round.
const KEPT_FLUSHES: &str = "set -e; mkfs.persimmon --force /dev/ns4; drive-tests kept /dev/ns4; \
    drive-tests kept /dev/generic4 --then /dev/ns4; drive-tests kept /dev/ns4 --then /dev/generic4; \
    persimmon fsck --data /dev/ns4";
const ZONEFS_KEPT_FLUSHES: &str = on_zonefs!(
    "/dev/ns4",
    "explicit-open",
    "set -e; mkfs.persimmon zonefs:/mnt/zf; drive-tests kept zonefs:/mnt/zf; persimmon fsck --data zonefs:/mnt/zf"
);

/// All that `persimmon fs` does, on the volume `$d`.
macro_rules! unmounted {
    ($device:literal) => {
        concat!(
            "set -e; d=",
            $device,
            "; mkfs.persimmon --force $d; cd /; persimmon fs mkdir -p $d /a/b; \
             persimmon fs cp -r $d lib :/a/b; persimmon fs mkdir $d /a/b/bin; persimmon fs cp $d bin/busybox :/a/b/bin/; persimmon fs ls -R $d /a/b | grep -q busybox; \
             persimmon fs cat $d /a/b/bin/busybox | cmp - /bin/busybox; \
             persimmon fs mv $d /a/b/bin /a/bin; ! persimmon fs ls $d /a/b/bin 2>/tmp/said; \
             rm -rf /tmp/out /tmp/tar; persimmon fs cp -r $d :/a/b/lib /tmp/out; diff -r lib /tmp/out; \
             persimmon fs backup $d /tmp/tar; persimmon fs rm -r $d /a; test -z \"$(persimmon fs ls $d)\"; \
             persimmon fs restore $d /tmp/tar; persimmon fs cat $d /a/bin/busybox | cmp - /bin/busybox; \
             rm -rf /tmp/out /tmp/tar; \
             persimmon fs df $d; persimmon fsck --data $d"
        )
    };
}

const UNMOUNTED: &str = unmounted!("/dev/ns4");
const ZONEFS_UNMOUNTED: &str =
    on_zonefs!("/dev/ns4", "explicit-open", unmounted!("zonefs:/mnt/zf"));

/// For one check; the whole set takes a few minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs the checks whose names have one of the filters in them, or all; how many passed, and which failed.
pub fn run(filters: &[String]) -> Result<(usize, Vec<String>)> {
    let (mut passed, mut failed) = (0, Vec::new());
    for kernel in [Kernel::Backport, Kernel::Bookworm] {
        let named = |name: &str| format!("vm::linux-{}::{name}", kernel.name());
        let selected = |name: &str| {
            filters.is_empty() || filters.iter().any(|filter| named(name).contains(filter))
        };
        let further = match kernel {
            Kernel::Backport => CHECKS_6_12,
            Kernel::Bookworm | Kernel::Sid => &[],
        };
        let checks: Vec<_> = further
            .iter()
            .chain(CHECKS)
            .filter(|(name, _)| selected(name))
            .collect();
        if checks.is_empty() {
            continue;
        }
        let mut guest = Guest::boot(&machine(kernel)?)?;
        println!(
            "Linux {}: booted in {:.1} s",
            kernel.name(),
            guest.boot_time().as_secs_f64()
        );
        for (name, command) in checks {
            let start = Instant::now();
            let checked = check(&mut guest, command);
            let seconds = start.elapsed().as_secs_f64();
            match checked {
                Ok(()) => {
                    println!("ok      {} ({seconds:.1} s)", named(name));
                    passed += 1;
                }
                Err(error) => {
                    println!("FAILED  {} ({seconds:.1} s): {error:#}", named(name));
                    failed.push(named(name));
                }
            }
        }
    }
    Ok((passed, failed))
}

fn check(guest: &mut Guest, command: &str) -> Result<()> {
    let mut said = Vec::new();
    let code = guest.run(command, LIMIT, &mut |line| said.push(line.to_owned()))?;
    let tail = &said[said.len().saturating_sub(25)..];
    ensure!(code == 0, "exit code {code}\n{}", tail.join("\n"));
    Ok(())
}

fn machine(kernel: Kernel) -> Result<Machine> {
    let drives = DRIVES.iter().map(|drive| Drive::parse(drive));
    Ok(Machine {
        kernel,
        drives: drives.collect::<Result<_>>()?,
        memory_mib: 768,
        cpus: 2,
        programs: programs_of_tests()?,
        clock: Clock::Host,
        sees_host: false,
        life_limit: LIFE_LIMIT,
    })
}
