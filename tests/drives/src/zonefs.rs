//! Zonefs: making one, and what only it does.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use persimmon_device::{
    BufferMut, Command, Completion, Drive, OpenOptions, ZoneId, ZoneState, ZonedDevice, zonefs,
};

use crate::{fresh, fresh_zbd};

/// A user without any rights.
const NOBODY: u32 = 65534;

/// Makes a zonefs: its superblock is the first block of the drive, and its first zone is only for
/// that.
pub fn make(path: &Path) -> Result<()> {
    let device = fresh_zbd(path);
    let block = superblock();
    if device.conventional_zones() > 0 {
        drop(device);
        let file = File::options().write(true).open(path)?;
        file.write_all_at(&block, 0)?;
        return Ok(file.sync_all()?);
    }
    let mut data = BufferMut::zeroed(1);
    data.copy_from_slice(&block);
    let zone = ZoneId(0);
    device.run(Command::Append {
        zone,
        data: vec![data.freeze()],
    })?;
    // So that it takes no place of an active zone.
    device.run(Command::Finish { zone })?;
    Ok(())
}

/// `struct zonefs_super`, as of zonefs-format(5): magic, checksum, label, UUID, features, owner, group,
/// permissions.
fn superblock() -> Vec<u8> {
    let mut block = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = block.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, &0x5a4f_4653u32.to_le_bytes());
    put(8, b"persimmon-test");
    put(72, b"zonefs of a test");
    let crc = crc32(&block);
    if let Some(place) = block.get_mut(4..8) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    block
}

fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// What only zonefs does, on one that is mounted with explicit-open.
pub fn run(uri: &Path) -> Result<()> {
    reads_beside_finishes(uri)?;
    by_nobody(uri)
}

/// Reads of zones that are being finished go past the file, which is locked.
fn reads_beside_finishes(uri: &Path) -> Result<()> {
    let Drive::Zonefs(device) = fresh(uri) else {
        bail!("{} is no zonefs", uri.display());
    };
    ensure!(
        device.reads_block_device(),
        "root may read the block device, so reads go there"
    );
    read_and_finish(&device)
}

fn read_and_finish(device: &impl ZonedDevice) -> Result<()> {
    let zone = ZoneId(1);
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    thread::scope(|scope| -> Result<()> {
        for round in 0..20 {
            write(device, zone, 0, 4)?;
            done.store(false, Ordering::Release);
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let read = device.read(zone, 0, 4);
                    let data = read.with_context(|| "a read beside a finish")?;
                    ensure!(data.iter().all(|byte| *byte == 0x5c), "wrong bytes");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            device.run(Command::Finish { zone })?;
            done.store(true, Ordering::Release);
            match reader.join() {
                Ok(read) => read?,
                Err(_) => bail!("the reader panicked in round {round}"),
            }
            device.run(Command::Reset {
                zone,
                keep_allocated: false,
            })?;
        }
        Ok(())
    })?;
    println!("{} reads beside 20 finishes", reads.into_inner());
    Ok(())
}

/// Permission to the files is all that is needed.
fn by_nobody(uri: &Path) -> Result<()> {
    let dir = zonefs::directory(uri).context("a URI")?;
    let own = |dir: &Path, uid: u32| -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            chown(&path, Some(uid), Some(uid))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    };
    let seq = dir.join("seq");
    let before = fs::metadata(seq.join("0"))?.uid();
    own(&seq, NOBODY)?;
    let denied = in_a_child(|| {
        become_nobody()?;
        let Drive::Zonefs(device) = Drive::open(uri, &OpenOptions::default())? else {
            bail!("{} is no zonefs", uri.display());
        };
        ensure!(!device.reads_block_device(), "nobody may read the drive");
        read_and_finish(&device)?;
        // More zones than files may be open at once.
        let zones = device.geometry().zone_count.min(80);
        let active = device.geometry().max_active.unwrap_or(zones);
        for zone in (0..zones).map(ZoneId) {
            write(&device, zone, 0, 2)?;
            if zone.0 + 1 >= active {
                device.run(Command::Finish { zone })?;
            }
        }
        for zone in (0..zones).map(ZoneId) {
            let data = device.read(zone, 0, 2)?;
            ensure!(data.iter().all(|byte| *byte == 0x5c), "wrong bytes");
        }
        device.flush()?;
        device.run(Command::Flush)?;
        for zone in (0..zones).map(ZoneId) {
            device.run(Command::Reset {
                zone,
                keep_allocated: false,
            })?;
        }
        let report = device.report(0..zones)?;
        ensure!(
            report.iter().all(|zone| zone.state == ZoneState::Empty),
            "not all zones are empty: {report:?}"
        );
        Ok(())
    });
    own(&seq, before)?;
    denied.context("as nobody")
}

fn write(device: &impl ZonedDevice, zone: ZoneId, block: u32, blocks: usize) -> Result<Completion> {
    let mut data = BufferMut::zeroed(blocks);
    data.fill(0x5c);
    let data = vec![data.freeze()];
    Ok(device.run(Command::Write { zone, block, data })?)
}

/// Runs on a thread whose rights end with it.
fn in_a_child(run: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    thread::scope(|scope| match scope.spawn(run).join() {
        Ok(done) => done,
        Err(_) => bail!("it panicked"),
    })
}

/// This thread, and those it starts, are nobody from here.
fn become_nobody() -> Result<()> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}
