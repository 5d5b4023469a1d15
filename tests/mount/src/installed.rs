//! Installed as packaging/install.sh does it, the system's own commands find Persimmon.

use anyhow::{Result, ensure};

use crate::command::script;
use crate::programs::workspace;
use crate::scenario::{Scenario, TestBed};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "installed::mount_mkfs_fsck_and_fstab_find_it",
    run: mount_mkfs_fsck_and_fstab_find_it,
    limit_seconds: 120,
    only_persimmon: true,
}];

fn mount_mkfs_fsck_and_fstab_find_it(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("installed")?;
    let root = workspace();
    // In a mount namespace of its own, so that the machine's own programs and fstab stay as they are.
    let out = script(
        &outside,
        &[("BINARY", &bed.persimmon), ("ROOT", &root)],
        r#"
        cat > inside.sh <<'END'
set -euo pipefail
# A daemon that stays would keep this namespace.
trap 'umount -l mnt 2>/dev/null || true' EXIT
mkdir -p root/usr mnt
cp -a /usr/bin /usr/sbin root/usr/
DESTDIR=$PWD/root "$ROOT/packaging/install.sh" "$BINARY" >&2
mount --bind root/usr/sbin /usr/sbin
mount --bind root/usr/bin /usr/bin
mkfs.persimmon vol.img --size 256M --label installed >&2
mount -t persimmon "$PWD/vol.img" mnt
echo by type > mnt/file
umount mnt
fsck.persimmon vol.img >&2
fsck -t persimmon "$PWD/vol.img" >&2
echo "$PWD/vol.img $PWD/mnt persimmon noatime,nosuid 0 2" > fstab
mount --bind fstab /etc/fstab
mount mnt
cat mnt/file
echo by fstab > mnt/file
grep -q noatime <(grep " $PWD/mnt " /proc/self/mountinfo)
umount mnt
persimmon mount LABEL=installed mnt
cat mnt/file
umount mnt
persimmon probe vol.img --udev | grep ID_FS_LABEL=
# umount(8) waits until the volume is closed, of a mount as which the kernel does not by itself too; remounts come to us.
umount /etc/fstab
for options in commit=3600 commit=3600,fuse; do
    mount -t persimmon -o $options "$PWD/vol.img" mnt
    head -c 20M /dev/urandom > mnt/late
    due=$(sha256sum < mnt/late)
    mount -o remount,ro mnt
    if touch mnt/more 2>/dev/null; then exit 1; fi
    mount -o remount,rw mnt
    cp mnt/late mnt/later
    umount mnt
    flock --nonblock vol.img true
    fsck.persimmon vol.img >&2
    if grep -q "$PWD/mnt" /run/mount/utab 2>/dev/null; then exit 1; fi
    mount -t persimmon "$PWD/vol.img" mnt
    for file in late later; do
        [ "$due" = "$(sha256sum < mnt/$file)" ]
    done
    umount mnt
done
# By the words in utab alone, where nothing is installed for the type.
rm root/usr/sbin/umount.fuse.persimmon
mount -t persimmon -o commit=3600,fuse "$PWD/vol.img" mnt
grep -q "TARGET=$PWD/mnt ROOT=/ OPTS=helper=persimmon,uhelper=persimmon" /run/mount/utab
head -c 20M /dev/urandom > mnt/late
umount mnt
flock --nonblock vol.img true
END
        unshare --mount --propagation private bash inside.sh
        "#,
    )?;
    ensure!(out == "by type\nby fstab\nID_FS_LABEL=installed\n", "{out}");
    Ok(())
}
