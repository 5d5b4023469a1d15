//! This machine's root in the guest, read-only at `/host`, with room of its own for what programs write. What is
//! mounted below `/mnt` in the guest is seen there too.

use std::time::Duration;

use anyhow::Result;

use super::guest::Guest;

const LIMIT: Duration = Duration::from_secs(120);

const SET_UP: &str = "set -e; modprobe virtio_pci; modprobe 9pnet_virtio; modprobe 9p; mkdir -p /host; \
    mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 host /host; \
    for dir in tmp run var/tmp; do mount -t tmpfs -o mode=1777 tmpfs /host/$dir; done; \
    for dir in proc sys dev; do mount -o bind /$dir /host/$dir; done; \
    mount -t tmpfs -o mode=1777 tmpfs /host/dev/shm; mkdir /host/tmp/zonefs; ip link set lo up; \
    mount -o bind /mnt /mnt; mount --make-rshared /mnt; mount --rbind /mnt /host/mnt";

/// Mounts it, in a guest whose machine `sees_host`.
pub fn set_up(guest: &mut Guest) -> Result<()> {
    guest.check(SET_UP, LIMIT).map(drop)
}

/// The guest's command that runs this command there.
pub fn command(command: &str) -> Result<String> {
    let path = std::env::var("PATH")?;
    let home = std::env::var("HOME")?;
    Ok(format!(
        "chroot /host /usr/bin/env -i PATH={path} HOME={home} LANG=C.UTF-8 {command}"
    ))
}
