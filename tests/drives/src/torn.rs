//! Blocks of which a power cut left some sectors.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use persimmon_device::image::ImageGeometry;
use persimmon_device::{
    BufferMut, Command, CreateOptions, Drive, OpenOptions, ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};

use crate::fresh_zbd;

const SECTOR: usize = 512;

/// On a drive of 512-byte sectors: three of them written into zone 2, five into its last block.
pub fn run(path: &Path) -> Result<()> {
    let device = fresh_zbd(path);
    let geometry = device.geometry().clone();
    let capacity = device
        .report(2..3)?
        .first()
        .context("an empty report")?
        .capacity;
    let mut at = 0;
    while at < capacity - 1 {
        let blocks = (capacity - 1 - at).min(geometry.max_transfer_blocks);
        device.run(Command::Write {
            zone: ZoneId(3),
            block: at,
            data: vec![BufferMut::zeroed(blocks as usize).freeze()],
        })?;
        at += blocks;
    }
    let first = u64::from(device.conventional_zones());
    drop(device);
    let zone_bytes = u64::from(geometry.zone_blocks) * 4096;
    write(path, (first + 2) * zone_bytes, 3)?;
    write(
        path,
        (first + 3) * zone_bytes + u64::from(capacity - 1) * 4096,
        5,
    )?;

    let report = Drive::open(path, &reading())?.report(2..4)?;
    let pointers: Vec<u32> = report.iter().map(|zone| zone.write_pointer).collect();
    ensure!(
        pointers == [0, capacity - 1],
        "opened for reading, half blocks count: {pointers:?}"
    );

    stays(path, &report)?;

    let device = crate::open(path);
    let report = device.report(2..4)?;
    let states: Vec<_> = report
        .iter()
        .map(|zone| (zone.state, zone.write_pointer))
        .collect();
    let expected = [(ZoneState::Closed, 1), (ZoneState::Full, capacity)];
    ensure!(states == expected, "not padded: {states:?}");
    let block = device.read(ZoneId(2), 0, 1)?;
    let (written, padding) = block.split_at(3 * SECTOR);
    ensure!(
        written.iter().all(|byte| *byte == 0x77),
        "what was written is gone"
    );
    ensure!(
        padding.iter().all(|byte| *byte == 0),
        "padded with something"
    );
    Ok(())
}

/// What is nobody's volume stays as it is when somebody looks for one on it, or makes one without force, which is
/// refused. Zones were closed and padded first, and it was asked after that whose they are.
fn stays(path: &Path, report: &[ZoneInfo]) -> Result<()> {
    drop(Drive::open(path, &Default::default())?);
    let shape = ImageGeometry {
        zone_count: 1,
        zone_blocks: 256,
        capacity_blocks: 256,
        max_open: None,
        max_active: None,
    };
    let made = Drive::create(path, &shape, &CreateOptions::default());
    ensure!(made.is_err(), "what was on it is gone");
    let now = Drive::open(path, &reading())?.report(2..4)?;
    ensure!(now == report, "{report:?} became {now:?}");
    Ok(())
}

fn reading() -> OpenOptions {
    OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    }
}

fn write(path: &Path, offset: u64, sectors: usize) -> Result<()> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options()
        .write(true)
        .custom_flags(direct)
        .open(path)?;
    let mut block = BufferMut::zeroed(1);
    block.fill(0x77);
    let bytes = block.get(..sectors * SECTOR).context("more than a block")?;
    Ok(file.write_all_at(bytes, offset)?)
}
