//! The published test of fsync on devices without power-loss protection: a file is rewritten with
//! one pattern after another, each followed by fsync; the power fails at a random moment; the file
//! must hold the last pattern acknowledged, or, block by block, the one after it.

use std::sync::Arc;

use persimmon_engine::faults::{self, Fault};
use persimmon_engine::{FormatOptions, FsyncOrder, Volume};
use persimmon_sim::{Sampled, SimConfig, SimDevice, Snapshot};
use persimmon_vfs::{
    Attr, Caller, Clock, Error, Handle, OpenFlags, ROOT, Timestamp, Vfs, WriteFlags,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CRASHES: u64 = 1000;
const BLOCK: usize = 4096;
const BLOCKS: usize = 32;
/// Patterns written after the first, at most.
const REWRITES: u32 = 6;

/// Nothing here depends on times.
struct Midnight;

impl Clock for Midnight {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

fn mount(device: &Arc<SimDevice>, order: FsyncOrder) -> Result<Vfs, Error> {
    let options = persimmon_engine::Options {
        fsync: order,
        ..persimmon_engine::Options::default()
    };
    let (volume, _) = Volume::open(Arc::clone(device) as _, options)?;
    let options = persimmon_vfs::Options::default();
    Ok(Vfs::new(Arc::new(volume), Arc::new(Midnight), options))
}

/// No block holds zeros, and no pattern what another one does.
fn pattern(number: u32) -> Vec<u8> {
    let block = |at: usize| [number as u8 + 1, at as u8, 0xa5, 0x5a].repeat(BLOCK / 4);
    (0..BLOCKS).flat_map(block).collect()
}

fn rewrite(vfs: &Vfs, file: &Attr, handle: Handle, number: u32) -> Result<(), Error> {
    vfs.write(file.ino, handle, 0, &pattern(number), WriteFlags::default())?;
    vfs.fsync(file.ino, handle)
}

/// What the device was like at a random moment while a pattern was written, and the number of that
/// pattern.
fn crash(seed: u64, order: FsyncOrder) -> Result<(Snapshot, u32), Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let config = SimConfig::new(24, 128).volatile_cache().reordering(seed);
    let device = Arc::new(SimDevice::new(config));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
    let vfs = mount(&device, order)?;
    let flags = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let (file, handle) = vfs.create(&Caller::root(), ROOT, b"pattern", 0o644, flags)?;
    let last = rng.random_range(1..=REWRITES);
    for number in 0..last {
        rewrite(&vfs, &file, handle, number)?;
    }
    device.record_snapshots(1);
    rewrite(&vfs, &file, handle, last)?;
    let mut moments = device.take_snapshots();
    let moment = rng.random_range(0..moments.len());
    Ok((moments.swap_remove(moment), last))
}

/// Mounts what is left, and tells what is wrong with the file.
fn look(snapshot: &Snapshot, seed: u64, order: FsyncOrder, last: u32) -> Result<(), String> {
    let device = Arc::new(snapshot.persisted(&mut Sampled::new(seed)));
    let vfs = mount(&device, order).map_err(|error| format!("mounting: {error}"))?;
    let mut found = vec![0; BLOCKS * BLOCK];
    let file = vfs.lookup(ROOT, b"pattern");
    let read = file.and_then(|file| vfs.read(file.ino, Handle::NONE, 0, &mut found));
    match read {
        Ok(length) if length == found.len() => {}
        Ok(length) => return Err(format!("{length} bytes long")),
        Err(error) => return Err(format!("reading: {error}")),
    }
    let (before, after) = (pattern(last - 1), pattern(last));
    let blocks = found
        .chunks(BLOCK)
        .zip(before.chunks(BLOCK))
        .zip(after.chunks(BLOCK));
    for (at, ((found, before), after)) in blocks.enumerate() {
        if found != before && found != after {
            return Err(format!("block {at} holds neither pattern"));
        }
    }
    Ok(())
}

/// How many of so many crashes left a file that is wrong, and what was wrong with the first.
fn failures(order: FsyncOrder, mistake: Option<Fault>) -> (u64, Option<String>) {
    faults::make(mistake);
    let (mut count, mut first) = (0, None);
    for seed in 0..CRASHES {
        let crashed = crash(seed, order).map_err(|error| format!("before the crash: {error}"));
        let looked = crashed.and_then(|(snapshot, last)| look(&snapshot, seed, order, last));
        if let Err(why) = looked {
            count += 1;
            first.get_or_insert(format!("seed {seed}: {why}"));
        }
    }
    faults::make(None);
    println!("{order:?}, {mistake:?}: {count} of {CRASHES} crashes; {first:?}");
    (count, first)
}

#[test]
fn the_unsafe_classic_order_loses_data() {
    let (count, _) = failures(FsyncOrder::WritePointer, Some(Fault::UnsafeClassic));
    assert!(count > 0);
}

#[test]
fn the_strict_order_loses_nothing() {
    assert_eq!(failures(FsyncOrder::Strict, None), (0, None));
}

#[test]
fn the_write_pointer_order_loses_nothing() {
    assert_eq!(failures(FsyncOrder::WritePointer, None), (0, None));
}
