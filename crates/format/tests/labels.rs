//! Labels of devices are read as they were written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use persimmon_format::device_label::{DeviceKind, DeviceLabel, Grown, RUNS_MAX, ZoneRun};
use persimmon_format::stripe_label::{COLUMNS_MAX, StripeLabel};
use proptest::prelude::*;

mod samples;

proptest! {
    #[test]
    fn device_labels(
        label in "\\PC{0,16}",
        is_data in any::<bool>(),
        zones in any::<[u32; 4]>(),
    ) {
        let mut device = samples::device_label();
        device.label = label;
        device.kind = if is_data { DeviceKind::Data } else { DeviceKind::Metadata };
        (device.metadata.count, device.metadata.blocks) = (zones[0], zones[1]);
        (device.data.count, device.data.blocks) = (zones[2], zones[3]);
        prop_assert_eq!(DeviceLabel::decode(&device.encode()), Ok(device));
    }

    #[test]
    fn labels_of_devices_that_grew(
        before in any::<u32>(),
        steps in prop::collection::vec((0u32..1000, 1u32..1000), 1..RUNS_MAX),
    ) {
        let mut device = samples::device_label();
        let mut end = 0;
        let runs = steps.into_iter().map(|(gap, count)| {
            let first = end + gap;
            end = first + count;
            ZoneRun { first, count }
        });
        let runs: Vec<ZoneRun> = runs.collect();
        device.data.count = runs.iter().map(|run| run.count).sum();
        device.grown = Some(Grown { before, runs });
        prop_assert_eq!(DeviceLabel::decode(&device.encode()), Ok(device.clone()));
        device.data.count += 1;
        prop_assert!(DeviceLabel::decode(&device.encode()).is_err());
    }

    #[test]
    fn stripe_labels(
        columns in 1..=COLUMNS_MAX,
        numbers in any::<[u32; 3]>(),
        before in any::<Option<u32>>(),
        uuid in any::<[u8; 16]>(),
    ) {
        let [metadata_sets, zone_count, zone_blocks] = numbers;
        let label = StripeLabel { uuid, columns, metadata_sets, zone_count, zone_blocks, before };
        prop_assert_eq!(StripeLabel::decode(&label.encode()), Ok(label));
    }
}
