//! What a mount after a power cut reads. Where write pointers are proof they alone decide what had
//! arrived; checksums of the data do where they are not, and where a volatile cache can lose a reset,
//! so that an old write pointer stands over old data.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use std::sync::Arc;

use persimmon_device::ZonedDevice;
use persimmon_engine::{Error, Options, Volume};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_sim::{Fault, FaultTarget, SimConfig, SimDevice};

use common::{NOW, create, fresh, noise, open, small};

/// Blocks that do not compress, so that none of them rides in the journal.
const BLOCKS: usize = 3;
const FILES: u64 = 12;

fn content(file: u64) -> Vec<u8> {
    noise(file, BLOCKS * 4096)
}

/// Synced files that no checkpoint has, when the power went; no block of their data can be read.
fn cut_and_unreadable(config: SimConfig) -> (Arc<SimDevice>, Vec<Ino>) {
    let device = fresh(config);
    let volume = open(&device);
    let inos: Vec<Ino> = (0..FILES).map(|_| create(&volume).unwrap()).collect();
    for (ino, file) in inos.iter().zip(0..) {
        volume.write(*ino, 0, &content(file), NOW).unwrap();
        volume.sync_file(*ino).unwrap();
    }
    let device = Arc::new(device.snapshot().intact());
    let data = volume.zones().into_iter();
    for zone in data.filter(|zone| zone.entry.role == Role::Data) {
        // Block 0 is the zone's header: what a zone is, is not data.
        for block in 1..device.geometry().zone_blocks {
            let fault = Fault::for_ever(FaultTarget::Read);
            device.inject(fault.zone(zone.zone).block(block));
        }
    }
    (device, inos)
}

#[test]
fn a_mount_reads_no_data_where_write_pointers_are_proof() {
    let (device, inos) = cut_and_unreadable(small());
    let (volume, report) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    assert!(report.records_replayed >= FILES, "{report:?}");
    assert!(!report.tail_cut, "{report:?}");
    device.heal();
    for (ino, file) in inos.iter().zip(0..) {
        let mut buf = vec![0; BLOCKS * 4096];
        assert_eq!(volume.read(*ino, 0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, content(file));
    }
}

/// There data that cannot be read is not taken for data that did not arrive: the mount fails.
#[test]
fn a_mount_reads_data_where_write_pointers_prove_nothing() {
    for config in [small().host_file(), small().volatile_cache()] {
        let (device, _) = cut_and_unreadable(config);
        let opened = Volume::open(Arc::clone(&device) as _, Options::default());
        assert!(matches!(opened, Err(Error::Device(_))));
    }
}
