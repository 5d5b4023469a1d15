//! Reads.

use super::tools::{Must, check, fails, some_zone, write};
use crate::{BLOCK_SIZE, DeviceError, ZonedDevice};

pub(super) fn past_write_pointer<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    let refused = |block, blocks, written| {
        fails(
            device.read(zone, block, blocks),
            |error| matches!(error, DeviceError::ReadPastEnd { limit, .. } if *limit == written),
        );
        let mut there = vec![0; blocks as usize * BLOCK_SIZE];
        let read = device.read_into(zone, block, &mut there, false);
        assert!(
            !matches!(read, Some(Ok(()))),
            "a read past the end in place"
        );
    };
    refused(0, 1, 0);
    write(&device, zone, 0, 6, 1).must();
    refused(6, 1, 6);
    refused(5, 2, 6);
    refused(0, 7, 6);
    refused(u32::MAX, 1, 6);
    check(&device, zone, 5, 1, 1);
    write(&device, zone, 6, capacity - 6, 1).must();
    refused(capacity, 1, capacity);
    refused(capacity - 1, 2, capacity);
    check(&device, zone, capacity - 1, 1, 1);
}

pub(super) fn any_part<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, capacity) = some_zone(&device);
    let written = capacity.min(40) - 1;
    write(&device, zone, 0, written, 7).must();
    for block in 0..written {
        for blocks in [1, 2, 7, written - block] {
            if block + blocks <= written {
                check(&device, zone, block, blocks, 7);
            }
        }
    }
}

pub(super) fn transfer_limits<D: ZonedDevice>(device: D, _: &mut dyn FnMut(D) -> D) {
    let (zone, _) = some_zone(&device);
    write(&device, zone, 0, 3, 1).must();
    let limit = device.geometry().max_transfer_blocks;
    for blocks in [0, limit + 1, u32::MAX] {
        fails(device.read(zone, 0, blocks), |error| {
            matches!(error, DeviceError::TransferSize { .. })
        });
    }
}
