//! What the cases have in common.

use crate::{
    BLOCK_SIZE, Buffer, BufferMut, Command, Completion, Pending, Result, ZoneId, ZoneInfo,
    ZoneState, ZonedDevice,
};

/// For results that must be good.
pub(super) trait Must<T> {
    /// The value; a panic otherwise.
    fn must(self) -> T;
}

impl<T, E: std::fmt::Display> Must<T> for std::result::Result<T, E> {
    #[track_caller]
    fn must(self) -> T {
        self.unwrap_or_else(|error| panic!("should have succeeded: {error}"))
    }
}

/// Blocks whose bytes tell where they belong and which life of the zone they are from.
pub(super) fn pattern(zone: ZoneId, first: u32, blocks: u32, life: u8) -> Buffer {
    let mut buffer = BufferMut::zeroed(blocks as usize);
    for (index, block) in buffer
        .as_chunks_mut::<BLOCK_SIZE>()
        .0
        .iter_mut()
        .enumerate()
    {
        let number = first + index as u32;
        block.fill((number as u8) ^ life.rotate_left(3) ^ 0x5a);
        for (to, from) in block.iter_mut().zip(stamp(zone, number, life)) {
            *to = from;
        }
    }
    buffer.freeze()
}

fn stamp(zone: ZoneId, block: u32, life: u8) -> impl Iterator<Item = u8> {
    let zone = zone.0.to_le_bytes();
    zone.into_iter().chain(block.to_le_bytes()).chain([life])
}

/// Writes `blocks` blocks of pattern at `block`, split as the device wants it.
pub(super) fn write(
    device: &impl ZonedDevice,
    zone: ZoneId,
    block: u32,
    blocks: u32,
    life: u8,
) -> Result<()> {
    let step = device.geometry().max_transfer_blocks;
    let mut at = block;
    while at < block + blocks {
        let now = step.min(block + blocks - at);
        submit_write(device, zone, at, now, life).wait()?;
        at += now;
    }
    Ok(())
}

/// One write command of pattern.
pub(super) fn submit_write(
    device: &impl ZonedDevice,
    zone: ZoneId,
    block: u32,
    blocks: u32,
    life: u8,
) -> Pending {
    let data = vec![pattern(zone, block, blocks, life)];
    device.submit(Command::Write { zone, block, data })
}

/// One append command.
pub(super) fn submit_append(device: &impl ZonedDevice, zone: ZoneId, data: Buffer) -> Pending {
    let data = vec![data];
    device.submit(Command::Append { zone, data })
}

/// Where an append landed.
pub(super) fn landed(pending: Pending) -> Result<u32> {
    match pending.wait()? {
        Completion::Appended(block) => Ok(block),
        other => panic!("an append completed as {}", other.name()),
    }
}

/// Checks that blocks hold the pattern.
pub(super) fn check(device: &impl ZonedDevice, zone: ZoneId, block: u32, blocks: u32, life: u8) {
    let step = device.geometry().max_transfer_blocks;
    let mut at = block;
    while at < block + blocks {
        let now = step.min(block + blocks - at);
        let found = device.read(zone, at, now);
        let found = found.unwrap_or_else(|error| panic!("read of {zone}:{at}+{now}: {error}"));
        let expected = pattern(zone, at, now, life);
        assert!(*found == *expected, "wrong bytes in {zone}:{at}+{now}");
        let mut there = BufferMut::zeroed(now as usize);
        if let Some(read) = device.read_into(zone, at, &mut there, false) {
            read.unwrap_or_else(|error| panic!("read of {zone}:{at}+{now} in place: {error}"));
            assert!(
                *there == *expected,
                "wrong bytes in {zone}:{at}+{now} in place"
            );
        }
        at += now;
    }
}

/// One zone's report.
pub(super) fn info(device: &impl ZonedDevice, zone: ZoneId) -> ZoneInfo {
    match device.report(zone.0..zone.0 + 1).as_deref() {
        Ok([info]) => *info,
        other => panic!("report of zone {zone}: {other:?}"),
    }
}

/// Checks state and write pointer.
#[track_caller]
pub(super) fn expect(device: &impl ZonedDevice, zone: ZoneId, state: ZoneState, pointer: u32) {
    let info = info(device, zone);
    assert_eq!(
        (info.state, info.write_pointer),
        (state, pointer),
        "zone {zone}"
    );
}

/// Checks that a command fails, and as it should.
#[track_caller]
pub(super) fn fails<T: std::fmt::Debug>(
    result: Result<T>,
    expected: impl FnOnce(&crate::DeviceError) -> bool,
) {
    match result {
        Ok(done) => panic!("should have failed: {done:?}"),
        Err(error) => assert!(expected(&error), "failed otherwise: {error:?}"),
    }
}

/// Runs a command that must succeed.
#[track_caller]
pub(super) fn run(device: &impl ZonedDevice, command: Command) {
    let shown = format!("{command:?}");
    if let Err(error) = device.run(command) {
        panic!("{shown}: {error}");
    }
}

pub(super) fn reset(device: &impl ZonedDevice, zone: ZoneId) {
    let keep_allocated = zone.0.is_multiple_of(2);
    run(
        device,
        Command::Reset {
            zone,
            keep_allocated,
        },
    );
}

/// A zone to work on, and its capacity.
pub(super) fn some_zone(device: &impl ZonedDevice) -> (ZoneId, u32) {
    let zone = ZoneId(device.geometry().zone_count - 2);
    let capacity = info(device, zone).capacity;
    assert!(capacity >= 16, "the suite needs zones of 16 blocks");
    (zone, capacity)
}

pub(super) fn open_zones(device: &impl ZonedDevice) -> u32 {
    count(device, ZoneState::is_open)
}

pub(super) fn active_zones(device: &impl ZonedDevice) -> u32 {
    count(device, ZoneState::is_active)
}

fn count(device: &impl ZonedDevice, which: fn(ZoneState) -> bool) -> u32 {
    let zones = device.report(0..device.geometry().zone_count);
    let zones = zones.unwrap_or_else(|error| panic!("report: {error}"));
    zones.iter().filter(|zone| which(zone.state)).count() as u32
}
