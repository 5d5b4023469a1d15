//! What happens to drives in use.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use persimmon_device::{
    BufferMut, Command, Completion, DeviceError, Pending, ZoneId, ZoneState, ZonedDevice, nvme,
};

use crate::failing::Settings;
use crate::fresh;

fn write(device: &impl ZonedDevice, zone: u32, block: u32, blocks: usize) -> Pending {
    let mut data = BufferMut::zeroed(blocks);
    data.fill(zone as u8 + 1);
    device.submit(Command::Write {
        zone: ZoneId(zone),
        block,
        data: vec![data.freeze()],
    })
}

fn state(device: &impl ZonedDevice, zone: u32) -> Result<(ZoneState, u32)> {
    let report = device.report(zone..zone + 1)?;
    let info = report.first().context("an empty report")?;
    Ok((info.state, info.write_pointer))
}

fn is_bad_state(answer: Result<Completion, DeviceError>, expected: ZoneState) -> Result<()> {
    match answer {
        Err(DeviceError::BadState { state, .. }) if state == expected => Ok(()),
        other => bail!("instead of a zone that is {expected:?}: {other:?}"),
    }
}

/// Zones turn read-only and offline, sectors fail, on a null_blk.
pub fn zones(path: &Path, settings: &Path) -> Result<()> {
    let device = fresh(path);
    let settings = Settings::new(path, settings, device.geometry().zone_blocks);
    for zone in [1, 2, 3, 5, 6, 7] {
        write(&device, zone, 0, 4).wait()?;
    }
    // Three in a row, the second of which fails.
    let bad = settings.sector(3)? + 6 * 8;
    settings.set("badblocks", format!("+{bad}-{bad}"))?;
    let pending = [(4, 2), (6, 1), (7, 1)].map(|(at, blocks)| write(&device, 3, at, blocks));
    let [first, second, third] = pending.map(Pending::wait);
    // What waits may have been sent together with the one that fails.
    let failed = |answer: &Result<_, DeviceError>| {
        matches!(
            answer,
            Err(DeviceError::Io { .. } | DeviceError::NotAtWritePointer { .. })
        )
    };
    ensure!(
        first.is_ok() || failed(&first),
        "the first write: {first:?}"
    );
    ensure!(
        failed(&second) && failed(&third),
        "bad sectors: {second:?}, {third:?}"
    );
    let (zone_state, written) = state(&device, 3)?;
    ensure!(
        zone_state.is_writable() && (4..=6).contains(&written),
        "{zone_state:?} {written}"
    );
    settings.set("badblocks", format!("-{bad}-{bad}"))?;
    write(&device, 3, written, 4)
        .wait()
        .context("after an error")?;
    let read = device.read(ZoneId(3), 0, written + 4)?;
    ensure!(
        read.iter().all(|byte| *byte == 4),
        "wrong bytes after an error"
    );

    settings.turn_read_only(1)?;
    is_bad_state(write(&device, 1, 4, 1).wait(), ZoneState::ReadOnly)?;
    is_bad_state(write(&device, 1, 4, 1).wait(), ZoneState::ReadOnly)?;
    ensure!(
        state(&device, 1)?.0 == ZoneState::ReadOnly,
        "the report knows nothing of it"
    );
    device
        .read(ZoneId(1), 0, 4)
        .context("reading a read-only zone")?;
    let reset = |zone| {
        device.run(Command::Reset {
            zone: ZoneId(zone),
            keep_allocated: false,
        })
    };
    is_bad_state(reset(1), ZoneState::ReadOnly)?;

    settings.turn_offline(2)?;
    let read = device.run(Command::Read {
        zone: ZoneId(2),
        block: 0,
        blocks: 1,
    });
    is_bad_state(read, ZoneState::Offline)?;
    is_bad_state(write(&device, 2, 4, 1).wait(), ZoneState::Offline)?;
    is_bad_state(reset(2), ZoneState::Offline)?;
    ensure!(
        state(&device, 2)?.0 == ZoneState::Offline,
        "the report knows nothing of it"
    );

    // Whoever touches the zone first: a reset, a finish, or who asks for a report.
    settings.turn_read_only(5)?;
    is_bad_state(reset(5), ZoneState::ReadOnly)?;
    settings.turn_offline(6)?;
    is_bad_state(
        device.run(Command::Finish { zone: ZoneId(6) }),
        ZoneState::Offline,
    )?;
    settings.turn_offline(7)?;
    ensure!(
        state(&device, 7)?.0 == ZoneState::Offline,
        "the report knows nothing of a zone that nobody has touched"
    );
    // All others go on.
    write(&device, 4, 0, 4).wait()?;
    Ok(())
}

/// Everything that is asked of a drive that is not there any more says so.
pub fn pulled(path: &Path) -> Result<()> {
    let device = fresh(path);
    write(&device, 0, 0, 4).wait()?;
    let under_way: Vec<Pending> = (1..5).map(|zone| write(&device, zone, 0, 8)).collect();
    // Pulled is the namespace's drive.
    let block = nvme::block_device(path).unwrap_or(path.to_owned());
    let name = block.file_name().context("a drive without a name")?;
    let sysfs = Path::new("/sys/block").join(name).join("device");
    let remove = ["device/remove", "device/delete", "delete"].map(|how| sysfs.join(how));
    let remove = remove.iter().find(|how| how.exists());
    fs::write(remove.context("no way to remove this drive")?, "1")?;
    for pending in under_way {
        match pending.wait() {
            Ok(_) | Err(DeviceError::Gone) => {}
            Err(other) => bail!("a write under way: {other}"),
        }
    }
    let gone = |what, answer: Result<(), DeviceError>| match answer {
        Err(DeviceError::Gone) => Ok(()),
        other => bail!("{what} of a drive that is gone: {other:?}"),
    };
    gone("a write", write(&device, 0, 4, 1).wait().map(|_| ()))?;
    gone("a read", device.read(ZoneId(0), 0, 1).map(|_| ()))?;
    gone("a report", device.report(0..1).map(|_| ()))?;
    let reset = Command::Reset {
        zone: ZoneId(0),
        keep_allocated: false,
    };
    gone("a reset", device.run(reset).map(|_| ()))?;
    gone("a flush", device.run(Command::Flush).map(|_| ()))
}
