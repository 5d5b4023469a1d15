//! Bugs that were, each with its story. Without its fix each of these fails.

use std::sync::Arc;

use persimmon_device::{BufferMut, Command, ZonedDevice};
use persimmon_engine::{CleanState, Error, Intent, Options, Task, Volume, ZoneStatus};
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{DeviceId, Ino, Key, KeyKind};
use persimmon_sim::{Fault, FaultTarget, SimConfig};

use crate::common::{NOW, create, fresh, noise, old_log_block, open_staging as open, small};

/// A log zone with a damaged header was passed over as long as any other header was good: the
/// volume went back to an older checkpoint, and what had been acknowledged since was gone.
#[test]
fn a_log_zone_with_a_damaged_header_is_not_passed_over() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    for i in 0..150u64 {
        volume.write(ino, i * 4096, &[7; 4096], NOW).unwrap();
        volume.sync_file(ino).unwrap();
    }
    drop(volume);
    let logs: Vec<_> = {
        let volume = open(&device, 1 << 20).unwrap();
        let zones = volume.zones();
        let logs = zones.iter().filter(|z| z.entry.role.name() == "log");
        logs.map(|z| z.zone).collect()
    };
    assert!(!logs.is_empty());
    for zone in logs {
        let device = Arc::new(device.snapshot().intact());
        assert!(device.corrupt(zone, 0, 200, 1));
        // The first mount leaves the zone behind; the second finds all of it elsewhere.
        for _ in 0..2 {
            let volume = open(&device, 1 << 20).unwrap();
            let mut buf = vec![0; 150 * 4096];
            assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), buf.len());
            assert!(buf.iter().all(|byte| *byte == 7));
        }
        let volume = open(&device, 1 << 20).unwrap();
        let zones = volume.zones();
        let status = zones.iter().find(|z| z.zone == zone).unwrap();
        assert_ne!(status.entry.role.name(), "log");
    }
}

/// A block of synced data that could not be read while recovering counted as not arrived: its
/// record, though acknowledged, was cut off with all that followed. Neither was a log zone noticed
/// whose blocks could not be read, though the log went on there.
#[test]
fn a_failing_read_in_recovery_cuts_nothing_off() {
    let small = || SimConfig::new(40, 128).capacity(120);
    for config in [small(), small().volatile_cache(), small().host_file()] {
        for at in 0..60 {
            let device = fresh(config.clone());
            let volume = open(&device, 1 << 20).unwrap();
            let ino = create(&volume).unwrap();
            // More than a log zone holds.
            for block in 0..130u64 {
                let bytes = noise(block, 4096);
                volume.write(ino, block * 8192, &bytes, NOW).unwrap();
                volume.sync_file(ino).unwrap();
            }
            drop(volume);
            device.inject(Fault::once(FaultTarget::Read).after(at));
            if let Err(error) = open(&device, 1 << 20) {
                assert!(matches!(error, Error::Device(_)), "read {at}: {error}");
            }
            device.heal();
            let volume = open(&device, 1 << 20).unwrap();
            let mut buf = [0; 4096];
            assert_eq!(volume.read(ino, 129 * 8192, &mut buf).unwrap(), 4096);
            assert_eq!(buf[..], noise(129, 4096), "after a failing read {at}");
        }
    }
}

/// A zone whose header could not be read once, and in which a log block of its former use had
/// survived a power cut, was taken for a log zone that nothing needs any more, and reset, with the
/// data that it really held.
#[test]
fn what_a_zone_once_was_does_not_reset_it() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let inos = [create(&volume).unwrap(), create(&volume).unwrap()];
    for ino in inos {
        volume.write(ino, 0, &[7; 4096], NOW).unwrap();
        volume.sync().unwrap();
    }
    let zones = volume.zones();
    let is_data = |z: &&ZoneStatus| z.entry.role.name() == "data" && z.entry.valid > 0;
    let zone = zones.iter().find(is_data).unwrap().zone;
    // The first block of data is garbage, and replaced.
    volume.truncate(inos[0], 0, NOW).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let mut block = BufferMut::zeroed(1);
    old_log_block(&mut block, &volume.identity().key(), 1, 1);
    drop(volume);
    assert!(device.replace(zone, 1, block.freeze()));
    for damage in [false, true] {
        let device = Arc::new(device.snapshot().intact());
        if damage {
            assert!(device.corrupt(zone, 0, 200, 1));
        } else {
            device.inject(Fault::once(FaultTarget::Read).zone(zone));
        }
        for _ in 0..2 {
            let volume = open(&device, 1 << 20).unwrap();
            let mut buf = [0; 4096];
            assert_eq!(volume.read(inos[1], 0, &mut buf).unwrap(), 4096);
            assert_eq!(buf, [7; 4096]);
            volume.step(Task::Checkpoint).unwrap();
        }
    }
}

/// A power cut took the header of a zone that was just taken into use, and left the write pointer; on
/// a host file what showed was the header of an earlier use. The zone was gone on with under that:
/// what was synced into it was not believed by the next recovery, and lost.
#[test]
fn a_zone_with_an_older_header_is_not_gone_on_with() {
    let device = fresh(SimConfig::new(40, 128).capacity(120).host_file());
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    volume.write(ino, 0, &noise(1, 16384), NOW).unwrap();
    volume.step(Task::WriteBack).unwrap();
    let zones = volume.zones();
    let is_data = |z: &&ZoneStatus| z.entry.role == Role::Data;
    let status = zones.iter().find(is_data).unwrap();
    let older = ZoneHeader {
        volume: volume.identity().clone(),
        device: DeviceId(0),
        zone: status.zone,
        role: Role::Data,
        lifetime: 0,
        sequence: 1,
        first_log_sequence: 0,
        partner: None,
    };
    assert!(status.entry.sequence > older.sequence);
    drop(volume);
    let mut block = BufferMut::zeroed(1);
    block.copy_from_slice(&older.encode());
    assert!(device.replace(status.zone, 0, block.freeze()));
    let volume = open(&device, 1 << 20).unwrap();
    volume.write(ino, 0, &noise(2, 16384), NOW).unwrap();
    volume.sync_file(ino).unwrap();
    drop(volume);
    let volume = open(&device, 1 << 20).unwrap();
    let mut bytes = vec![0; 16384];
    assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    assert_eq!(bytes, noise(2, 16384));
}

/// A file with staged blocks, all within its size, was made longer: the history got the times of
/// that and not the size, which came with the blocks. A crash in between left a state that never
/// was.
#[test]
fn growing_a_file_does_not_wait_for_what_is_staged_within_it() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 8192], NOW).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 0, &[2; 4096], NOW).unwrap();
    volume.truncate(ino, 100_000, NOW).unwrap();
    volume.sync_metadata().unwrap();
    drop(volume);
    let volume = open(&device, 1 << 20).unwrap();
    assert_eq!(volume.attr(ino).unwrap().unwrap().size, 100_000);
    let mut buf = vec![9; 100_001];
    assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), 100_000);
    assert!(buf[..8192].iter().all(|byte| *byte == 1));
    assert!(buf[8192..100_000].iter().all(|byte| *byte == 0));
}

/// A staged write had made a file longer, and a truncation then made it longer still. The history got neither size before the content was written.
#[test]
fn growing_a_file_does_not_wait_for_what_made_it_grow() {
    for (before, sizes) in [(0, &[1 << 20][..]), (5000, &[100_000, 200_000])] {
        let device = fresh(SimConfig::new(40, 128).capacity(120));
        let volume = open(&device, 1 << 20).unwrap();
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &noise(1, before), NOW).unwrap();
        volume.sync().unwrap();
        volume.write(ino, before as u64, &[2; 9000], NOW).unwrap();
        for size in sizes {
            volume.truncate(ino, *size, NOW).unwrap();
        }
        volume.sync_metadata().unwrap();
        drop(volume);
        let volume = open(&device, 1 << 20).unwrap();
        let size = *sizes.last().unwrap();
        assert_eq!(volume.attr(ino).unwrap().unwrap().size, size);
        let mut found = vec![9; size as usize];
        assert_eq!(volume.read(ino, 0, &mut found).unwrap(), found.len());
        let mut expected = noise(1, before);
        expected.resize(before + 9000, 2);
        expected.resize(size as usize, 0);
        assert!(found == expected);
    }
}

/// A file was cut to a size between the one in the history and the one that a staged write had made,
/// and that write went with it. The history got the times of that and not the size, though nothing
/// was left that would bring it.
#[test]
fn cutting_off_what_made_a_file_grow_brings_the_size() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 16_385], NOW).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 8192, &[2; 4096], NOW).unwrap();
    volume.write(ino, 31_051, &[3; 106], NOW).unwrap();
    volume.truncate(ino, 28_672, NOW).unwrap();
    volume.sync_metadata().unwrap();
    drop(volume);
    let volume = open(&device, 1 << 20).unwrap();
    assert_eq!(volume.attr(ino).unwrap().unwrap().size, 28_672);
}

/// A hole was punched over a file's end, and the staged write that had made the file longer went
/// with it. The history got the hole and not the size: a crash left a file of the size before that
/// write with the hole after it. The times of the write came later than those of the hole.
#[test]
fn punching_what_made_a_file_grow_brings_the_size() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 12_000], NOW).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 12_000, &[2; 100], NOW).unwrap();
    let later = Timestamp {
        seconds: NOW.seconds + 1,
        ..NOW
    };
    volume.punch(ino, 8192, 100_000, later).unwrap();
    assert_eq!(volume.attr(ino).unwrap().unwrap().mtime, later);
    volume.sync_metadata().unwrap();
    drop(volume);
    let volume = open(&device, 1 << 20).unwrap();
    let attr = volume.attr(ino).unwrap().unwrap();
    assert_eq!((attr.size, attr.mtime), (12_100, later));
    let mut buf = vec![9; 12_101];
    assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), 12_100);
    assert!(buf[..8192].iter().all(|byte| *byte == 1));
    assert!(buf[8192..12_100].iter().all(|byte| *byte == 0));
}

/// Dirty pages counted among those that the cache may hold. Where they alone were more, each page
/// that was fetched drove out all clean ones, and a look at two of them never ended.
#[test]
fn many_dirty_pages_leave_room_for_clean_ones() {
    let device = fresh(SimConfig::new(200, 256));
    let inos: Vec<_> = {
        let volume = open(&device, 1 << 20).unwrap();
        let inos = (0..25_000).map(|_| create(&volume).unwrap()).collect();
        volume.step(Task::Checkpoint).unwrap();
        inos
    };
    let options = Options {
        cache_bytes_max: 64 << 10,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device, options).unwrap();
    for ino in inos.iter().step_by(100) {
        let inode = volume.attr(*ino).unwrap().unwrap();
        let put = volume.update::<_, Error>(Intent::Grow, |tx| {
            tx.put_inode(*ino, &inode);
            Ok(())
        });
        put.unwrap();
    }
    for ino in &inos {
        assert!(volume.attr(*ino).unwrap().is_some());
    }
}

/// Where write pointers are no proof a power cut can leave a header of a log zone that nothing was
/// written behind, or nothing that the log did not go on without. Its zone was believed to have taken
/// over the numbers of an earlier one: that ended in the middle, before the newest footer.
#[test]
fn a_zone_that_the_log_went_on_without_takes_nothing_over() {
    let device = fresh(SimConfig::new(40, 128).capacity(120).host_file());
    let mut inos = Vec::new();
    // Each time the epoch is a new one.
    for number in 0..3 {
        let volume = open(&device, 1 << 20).unwrap();
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &noise(number, 8192), NOW).unwrap();
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        inos.push((ino, noise(number, 8192)));
    }
    let volume = open(&device, 1 << 20).unwrap();
    let identity = volume.identity().clone();
    let zones = volume.zones();
    drop(volume);
    let unused = |z: &&ZoneStatus| z.entry.role.name() == "free";
    let zone = zones.iter().find(unused).unwrap().zone;
    let log = zones.iter().find(|z| z.entry.role.name() == "log").unwrap();
    for (sequence, first) in [1, 2, 3, 5].map(|first| (log.entry.sequence + 40, first)) {
        for block_too in [false, true] {
            let device = Arc::new(device.snapshot().intact());
            let header = ZoneHeader {
                volume: identity.clone(),
                device: DeviceId(0),
                zone,
                role: Role::Log,
                lifetime: 0,
                sequence,
                first_log_sequence: first,
                partner: None,
            };
            let mut data = BufferMut::zeroed(1 + usize::from(block_too));
            data[..4096].copy_from_slice(&header.encode());
            if block_too {
                old_log_block(&mut data[4096..], &identity.key(), sequence, first);
            }
            let data = vec![data.freeze()];
            let block = 0;
            device.run(Command::Write { zone, block, data }).unwrap();
            for _ in 0..2 {
                let volume = open(&device, 1 << 20).unwrap();
                for (ino, bytes) in &inos {
                    let mut buf = vec![0; bytes.len()];
                    assert_eq!(volume.read(*ino, 0, &mut buf).unwrap(), bytes.len());
                    assert_eq!(&buf, bytes);
                }
            }
        }
    }
}

/// A zone taken into use after the checkpoint, of which no more could not be read than its header, made
/// the mount fail, a read-only one too.
#[test]
fn a_header_that_cannot_be_read_fails_no_mount() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &noise(1, 1 << 17), NOW).unwrap();
    volume.sync_file(ino).unwrap();
    let zones = volume.zones();
    let data = |z: &&ZoneStatus| z.entry.role.name() == "data";
    let zone = zones.iter().find(data).unwrap().zone;
    drop(volume);
    for read_only in [true, false] {
        let device = Arc::new(device.snapshot().intact());
        device.inject(Fault::for_ever(FaultTarget::Read).zone(zone).block(0));
        let options = Options {
            read_only,
            ..Options::default()
        };
        let (volume, _) = Volume::open(device.clone(), options).unwrap();
        let mut buf = vec![0; 1 << 17];
        assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, noise(1, 1 << 17));
        if read_only {
            continue;
        }
        // Nothing more goes into it.
        let end = device.report(zone.0..zone.0 + 1).unwrap()[0].state;
        assert!(!end.is_active());
        volume.step(Task::Checkpoint).unwrap();
        drop(volume);
        let volume = open(&device, 1 << 20).unwrap();
        assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, noise(1, 1 << 17));
    }
}

/// A zone that replay found in use while its header could not be read was written to the zone table with
/// the sequence 0, or that of its use before, and kept it: its summaries were of no use any more, and
/// nothing told that from damage.
#[test]
fn a_header_that_could_not_be_read_is_known_when_it_can_be() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &noise(1, 1 << 17), NOW).unwrap();
    volume.sync_file(ino).unwrap();
    let zones = volume.zones();
    let data = |z: &&ZoneStatus| z.entry.role == Role::Data;
    let status = *zones.iter().find(data).unwrap();
    drop(volume);
    let sequence = |volume: &Volume| {
        let now = volume.zones()[status.zone.0 as usize].entry;
        (now.role, now.sequence, now.lifetime)
    };
    let known = (Role::Data, status.entry.sequence, status.entry.lifetime);
    assert!(known.1 > 0);
    // Once, past the search for the log: in the mount itself. For ever: in the first mount that can.
    for times in [Some(1), None] {
        let device = Arc::new(device.snapshot().intact());
        let mut fault = Fault::for_ever(FaultTarget::Read)
            .zone(status.zone)
            .block(0)
            .after(1);
        fault.times = times;
        device.inject(fault);
        let volume = open(&device, 1 << 20).unwrap();
        let unknown = (Role::Data, 0, 0);
        assert_eq!(
            sequence(&volume),
            if times.is_some() { known } else { unknown }
        );
        volume.step(Task::Checkpoint).unwrap();
        drop(volume);
        let device = Arc::new(device.snapshot().intact());
        let volume = open(&device, 1 << 20).unwrap();
        assert_eq!(sequence(&volume), known);
        let mut buf = vec![0; 1 << 17];
        assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, noise(1, 1 << 17));
    }
}

/// Cleaning journaled a damaged block like any other. Where checksums tell what arrived, a recovery took it for data that
/// never did, and ended the history there: what was acknowledged since was gone.
#[test]
fn a_damaged_block_that_is_moved_cuts_nothing_off() {
    for config in [small().host_file(), small().volatile_cache(), small()] {
        let device = fresh(config);
        let volume = open(&device, 1 << 20).unwrap();
        let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
        let before = noise(1, 400 * 4096);
        volume.write(ino, 0, &before, NOW).unwrap();
        volume.sync().unwrap();
        // Every other block of what was written goes.
        for block in (0..400).step_by(2) {
            volume
                .write(ino, block * 4096, &noise(9, 4096), NOW)
                .unwrap();
        }
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        let zones = volume.zones();
        let data = zones.iter().filter(|z| z.entry.role.name() == "data");
        for zone in data {
            for block in (4..100).step_by(9) {
                device.corrupt(zone.zone, block, 99, 1);
            }
        }
        let moved = volume.clean_step(None).unwrap().blocks_moved;
        assert!(moved > 0);
        volume.write(other, 0, b"acknowledged", NOW).unwrap();
        volume.sync_file(other).unwrap();
        let device = Arc::new(device.persisted(1));
        drop(volume);
        let volume = open(&device, 1 << 20).unwrap();
        let mut found = [0; 12];
        assert_eq!(volume.read(other, 0, &mut found).unwrap(), 12);
        assert_eq!(&found, b"acknowledged");
        // What is damaged is told, wherever it is moved, and the rest is what it was.
        while volume.clean_step(None).unwrap().state == CleanState::GoesOn {}
        volume.close().unwrap();
        drop(volume);
        let volume = open(&device, 1 << 20).unwrap();
        let mut damaged = 0;
        for block in 0..400 {
            let mut found = vec![0; 4096];
            match volume.read(ino, block * 4096, &mut found) {
                Ok(_) if block % 2 == 0 => assert!(found == noise(9, 4096)),
                Ok(_) => assert!(found[..] == before[block as usize * 4096..][..4096]),
                Err(Error::DataDamaged { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((10..100).contains(&damaged), "{damaged}");
    }
}

/// A look that needs more pages at once than the cache holds fetched and evicted them in turn for ever.
#[test]
fn what_one_look_needs_is_not_evicted_under_it() {
    let device = fresh(SimConfig::new(60, 512));
    let volume = open(&device, 1 << 20).unwrap();
    let name = |n: u64| Key::new(Ino(100 + n), KeyKind(12), 0);
    for round in 0..40 {
        volume
            .update::<_, Error>(Intent::Grow, |tx| {
                (0..100).for_each(|n| tx.put(name(round * 100 + n), noise(n, 1000)));
                Ok(())
            })
            .unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let options = Options {
        cache_bytes_max: 1 << 20,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device, options).unwrap();
    let seen = volume.view::<_, Error>(|view| {
        let mut seen = 0;
        view.scan(name(0)..name(u64::from(u32::MAX)), |_, _| {
            seen += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(seen)
    });
    assert!(seen.unwrap() >= 4000);
}

/// A few bytes written to a block that was preallocated came to lie in the tree, and the block's space was gone.
#[test]
fn a_small_file_keeps_the_block_it_was_given() {
    let device = fresh(small());
    let volume = open(&device, 1 << 20).unwrap();
    let ino = create(&volume).unwrap();
    volume.preallocate(ino, 0, 4096, true, NOW).unwrap();
    volume.write(ino, 0, &noise(1, 100), NOW).unwrap();
    volume.sync().unwrap();
    let filler = create(&volume).unwrap();
    let mut end = 0;
    while volume.write(filler, end, &noise(end, 4096), NOW).is_ok() {
        end += 4096;
    }
    volume.write(ino, 0, &noise(2, 4096), NOW).unwrap();
    volume.sync().unwrap();
    let mut found = vec![0; 4096];
    volume.read(ino, 0, &mut found).unwrap();
    assert!(found == noise(2, 4096));
}
