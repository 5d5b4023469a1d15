//! Zone append: many commands under way in a zone, which the drive places in any order.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use persimmon_device::{
    Buffer, BufferMut, Command, Completion, DeviceError, Drive, Pending, ZoneId, ZoneState,
    ZonedDevice,
};

use crate::fresh;

/// Zones appended to at the same time.
const ZONES: u32 = 2;
/// Fills zones by appends of unequal length without waiting for any, and looks where they are.
pub fn run(path: &Path) -> Result<()> {
    let Drive::Nvme(device) = fresh(path) else {
        bail!("{} is no generic NVMe device", path.display());
    };
    for _ in 0..3 {
        fill(&device)?;
        for zone in (0..ZONES).map(ZoneId) {
            device.run(Command::Reset {
                zone,
                keep_allocated: false,
            })?;
        }
    }
    let depth = device.append_depth();
    let mean = depth.together as f64 / depth.completed as f64;
    println!("{depth:?}, {mean:.1} under way in a zone on the average");
    // How many more than one depends on how fast the machine is.
    ensure!(
        depth.together > depth.completed && depth.most > 1,
        "the zones' appends went one after the other: {depth:?}"
    );
    refused(&device)
}

fn data(number: u32, blocks: u32) -> Buffer {
    let mut data = BufferMut::zeroed(blocks as usize);
    for (block, bytes) in (0u32..).zip(data.chunks_mut(4096)) {
        bytes.fill((number * 7 + block) as u8);
        for (to, from) in bytes.iter_mut().zip(number.to_le_bytes()) {
            *to = from;
        }
    }
    data.freeze()
}

fn append(device: &impl ZonedDevice, zone: ZoneId, data: Buffer) -> Pending {
    let data = vec![data];
    device.submit(Command::Append { zone, data })
}

fn fill(device: &impl ZonedDevice) -> Result<()> {
    let most = device.geometry().max_append_blocks.min(5);
    let report = device.report(0..ZONES)?;
    let mut left: Vec<u32> = report.iter().map(|zone| zone.capacity).collect();
    let mut pending = Vec::new();
    let mut number = 0;
    while left.iter().any(|left| *left > 0) {
        for (zone, left) in (0..).map(ZoneId).zip(&mut left) {
            let blocks = (number % most + 1).min(*left);
            if blocks == 0 {
                continue;
            }
            let data = data(number, blocks);
            pending.push((zone, data.clone(), append(device, zone, data)));
            *left -= blocks;
            number += 1;
        }
    }
    // Who waits for which first makes no difference.
    let mut places = Vec::new();
    for (zone, data, pending) in pending.into_iter().rev() {
        let Completion::Appended(block) = pending.wait()? else {
            bail!("an append that does not say where");
        };
        let found = device.read(zone, block, data.blocks())?;
        ensure!(
            *found == *data,
            "zone {zone} holds something else at {block}"
        );
        places.push((zone, block, data.blocks()));
    }
    places.sort_unstable();
    for (zone, info) in (0..).map(ZoneId).zip(device.report(0..ZONES)?) {
        ensure!(
            info.state == ZoneState::Full,
            "zone {zone} is {:?}",
            info.state
        );
        let mut next = 0;
        for (_, block, blocks) in places.iter().filter(|(of, ..)| *of == zone) {
            ensure!(
                *block == next,
                "a gap or an overlap in zone {zone} at {next}"
            );
            next += blocks;
        }
    }
    Ok(())
}

/// More appends than fit are under way: those that do not fit are refused, all others land.
fn refused(device: &impl ZonedDevice) -> Result<()> {
    let zone = ZoneId(1);
    let capacity = device.report(1..2)?.first().map_or(0, |zone| zone.capacity);
    let pending: Vec<_> = (0..capacity / 2 + 10)
        .map(|number| append(device, zone, data(number, 2)))
        .collect();
    let (mut landed, mut refused) = (0, 0);
    for pending in pending {
        match pending.wait() {
            Ok(_) => landed += 1,
            Err(DeviceError::ZoneFull { .. } | DeviceError::BadState { .. }) => refused += 1,
            Err(other) => return Err(other.into()),
        }
    }
    ensure!(
        (landed, refused) == (capacity / 2, 10),
        "{landed} appends landed and {refused} were refused"
    );
    Ok(())
}
