//! What is read of a log, and the footer it begins with.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use persimmon_device::{
    BLOCK_SIZE, BufferMut, Command, Geometry, Pending, ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};
use persimmon_format::footer::{Footer, LogPosition};
use persimmon_format::gate::Features;
use persimmon_format::inode::Inode;
use persimmon_format::log::{Body, LogBlock, LogState, Records};
use persimmon_format::zone_header::REQUIRED;
use persimmon_format::{Addr, DeviceId, Ino, Key, Lsn, PageId, VolumeKey};
use persimmon_sim::{Fault, FaultKind, FaultTarget, SimConfig, SimDevice};

use super::blocks::read_at_most;
use super::footers::newest_footer;
use super::zone::{FoundZone, LogCopy};
use crate::engine::Engine;
use crate::engine::tests::create;
use crate::error::Error;
use crate::media::Media;
use crate::meta::Intent;
use crate::options::{Barrier, FormatOptions, Options};
use crate::zones::log_zones::LogZone;

/// A zone whose log blocks are good where `good` says so, behind a header that nobody reads.
fn log_of(good: &[bool], key: &VolumeKey) -> (Media, FoundZone) {
    let zone = LogZone {
        zone: ZoneId(1),
        sequence: 9,
        first_log_sequence: 100,
        capacity: 64,
    };
    let mut data = BufferMut::zeroed(1 + good.len());
    let blocks = data.chunks_exact_mut(BLOCK_SIZE).skip(1).zip(good);
    for (i, (block, _)) in blocks.enumerate().filter(|(_, (_, good))| **good) {
        let content = LogBlock {
            sequence: zone.first_log_sequence + i as u64,
            state: LogState {
                epoch: 1,
                opening: 0,
                resume_after: Lsn(0),
                durable: Lsn(0),
                footer: Addr::ZERO,
            },
            body: Body::Journal {
                first_lsn: Lsn(1),
                lead: 0,
                records: Records::plain(&[]),
            },
        };
        content.encode_into(block, key, zone.sequence);
    }
    let device = SimDevice::new(SimConfig::new(4, 64));
    let command = Command::Write {
        zone: zone.zone,
        block: 0,
        data: vec![data.freeze()],
    };
    device.run(command).unwrap();
    let copy = LogCopy {
        zone: zone.zone,
        write_pointer: 1 + good.len() as u32,
        state: ZoneState::Closed,
        headless: false,
    };
    let (sequence, first) = (zone.sequence, zone.first_log_sequence);
    let found = FoundZone::new(copy, None, sequence, first, zone.capacity);
    (Media::new(Arc::new(device), Barrier::Auto), found)
}

/// Of a log zone its number, its sequence and that of its first block; of each block the epoch, the footer it
/// names, and the checkpoint whose footer it is, if it is one.
type Content<'a> = ((u32, u64, u64), &'a [(u32, Addr, Option<u64>)]);

/// Puts a log zone on a device.
fn log_zone(
    device: &SimDevice,
    key: &VolumeKey,
    ((zone, sequence, first), blocks): Content<'_>,
) -> FoundZone {
    let mut data = BufferMut::zeroed(1 + blocks.len());
    let places = data.chunks_exact_mut(BLOCK_SIZE).skip(1);
    for (i, (block, (epoch, names, checkpoint))) in places.zip(blocks).enumerate() {
        let footer = checkpoint.map(|checkpoint| footer(checkpoint, first).encode());
        let content = LogBlock {
            sequence: first + i as u64,
            state: LogState {
                epoch: *epoch,
                opening: 0,
                resume_after: Lsn(0),
                durable: Lsn(0),
                footer: *names,
            },
            body: match &footer {
                None => Body::Journal {
                    first_lsn: Lsn(1),
                    lead: 0,
                    records: Records::plain(&[]),
                },
                Some(bytes) => Body::Footer {
                    part: 0,
                    parts: 1,
                    bytes,
                },
            },
        };
        content.encode_into(block, key, sequence);
    }
    let command = Command::Write {
        zone: ZoneId(zone),
        block: 0,
        data: vec![data.freeze()],
    };
    device.run(command).unwrap();
    let copy = LogCopy {
        zone: ZoneId(zone),
        write_pointer: 1 + blocks.len() as u32,
        state: ZoneState::Closed,
        headless: false,
    };
    FoundZone::new(copy, None, sequence, first, 64)
}

fn footer(checkpoint: u64, sequence: u64) -> Footer {
    Footer {
        features: Features {
            incompatible: REQUIRED,
            ..Features::default()
        },
        checkpoint,
        cut: Lsn(0),
        counted: Lsn(0),
        replay: LogPosition {
            sequence,
            addr: Addr::ZERO,
        },
        root: PageId(0),
        page_limit: 0,
        next_ino: 0,
        lot_end: 0,
        inodes: 0,
        reserved_blocks: 0,
        shared_end: 0,
        deltas: 0,
        versions: 0,
        write_clock: 0,
        next_zone_sequence: 0,
        reserve_basis_points: 0,
        max_open: 0,
        max_active: 0,
        properties: None,
        mat: Vec::new(),
        zit: Vec::new(),
        overrides: Vec::new(),
        counts: Vec::new(),
    }
}

/// A recovery reset the zone of the footer that was named, for it knew a later one, and was cut off before it
/// had written a block that names that.
#[test]
fn where_the_footer_named_is_gone_a_later_one_is_taken() {
    let key = VolumeKey::new(&[1; 16], &[2; 32]);
    let gone = Addr::new(DeviceId(0), ZoneId(7), 30);
    let at = |zone, block| Addr::new(DeviceId(0), ZoneId(zone), block);
    let newest = |logs: &[Content<'_>]| {
        let device = SimDevice::new(SimConfig::new(8, 64));
        let mut zones = Vec::new();
        for content in logs {
            zones.push(log_zone(&device, &key, *content));
        }
        let media = Media::new(Arc::new(device), Barrier::Auto);
        let found = newest_footer(&media, &key, &zones);
        found.map(|found| found.map(|(addr, footer, _)| (addr, footer.checkpoint)))
    };
    let first: &[_] = &[(1, gone, None), (1, gone, Some(5)), (1, at(1, 2), None)];
    let named: &[_] = &[(2, gone, None)];
    let next = (2, 9, 100 + 63);
    let logs = [((1, 8, 100), first), (next, named)];
    assert_eq!(newest(&logs).unwrap(), Some((at(1, 2), 5)));
    // A zone between is missing: the footer that was named may have been there.
    assert!(newest(&[((1, 8, 100), first), ((2, 9, 500), named)]).is_err());
    // It was voided by a block of a later epoch.
    let voided: &[_] = &[(2, gone, None), (1, gone, Some(5)), (1, gone, None)];
    assert!(newest(&[((1, 8, 100), voided), ((2, 9, 163), &[(3, gone, None)])]).is_err());
    // The one named is there and damaged: nothing before it is gone back to.
    let damaged: &[_] = &[(1, gone, Some(5)), (1, gone, None), (2, at(1, 2), None)];
    assert!(newest(&[((1, 8, 100), damaged)]).is_err());
}

/// A journal of any length was read into memory, and an entry made for each bad block: a log
/// zone finished early, a gigabyte of zeros, took as much again.
#[test]
fn what_is_kept_of_a_log_has_a_bound() {
    let key = VolumeKey::new(&[1; 16], &[2; 32]);
    let (media, zone) = log_of(&[true, false, false, true, true, false], &key);
    let read = |max| read_at_most(&media, &key, &[zone], 100, max);
    let kept: Vec<bool> = read(5)
        .unwrap()
        .0
        .iter()
        .map(|r| r.state().is_some())
        .collect();
    assert_eq!(kept, [true, false, true, true, false]);
    assert!(matches!(read(3), Err(Error::Inconsistent(_))));
}

/// A device that tells what it is sent.
struct Told {
    device: Arc<SimDevice>,
    of_write: Box<dyn Fn() + Send + Sync>,
}

impl ZonedDevice for Told {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> persimmon_device::Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        if matches!(command, Command::Write { .. }) {
            (self.of_write)();
        }
        self.device.submit(command)
    }
}

/// A batch of records was nowhere while it was written: neither buffered any more, nor behind the head yet. The journal grew beyond its
/// bound by as much. Nor did one count that waited for a full host.
#[test]
fn blocks_on_their_way_count_as_journal() {
    let device = Arc::new(SimDevice::new(SimConfig::new(40, 512)));
    crate::mkfs::format(device.clone(), &FormatOptions::default()).unwrap();
    let engine: Arc<OnceLock<Engine>> = Arc::default();
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let look = {
        let (engine, seen) = (Arc::clone(&engine), Arc::clone(&seen));
        move || {
            if let Some(engine) = engine.get() {
                let blocks = engine.store.log.blocks_to_replay();
                seen.lock().unwrap().push(blocks);
            }
        }
    };
    let told = Arc::new(Told {
        device: Arc::clone(&device),
        of_write: Box::new(look),
    });
    let opened = crate::recovery::open(told, Options::default()).unwrap().0;
    let engine = engine.get_or_init(|| opened);
    let log = &engine.store.log;
    let ino = create(engine);
    for at in 0..2000u32 {
        let name = format!("user.{at}");
        let put = engine.data.update::<_, Error>(Intent::Grow, |tx| {
            tx.put_inode(
                ino,
                &Inode {
                    uid: at,
                    ..Inode::default()
                },
            );
            tx.put(
                Key::truncation(Ino(u64::from(at))),
                name.clone().into_bytes(),
            );
            Ok(())
        });
        put.unwrap();
    }
    let before = log.blocks_to_replay();
    assert!(before > 20, "{before}");
    seen.lock().unwrap().clear();
    device.inject(Fault {
        times: None,
        ..Fault::of_zone(FaultTarget::Write, FaultKind::HostFull)
    });
    engine.data.sync_metadata().unwrap_err();
    assert_eq!(log.blocks_to_replay(), before);
    device.heal();
    engine.data.sync_metadata().unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 1);
    assert!(
        seen.iter().all(|blocks| *blocks >= before),
        "{before}: {seen:?}"
    );
}
