//! A volume, filled.

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut, ZoneId, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Intent, Rebuild, RebuildStart, Volume};
use persimmon_format::checksum::data_block;
use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::{FIRST_INO, Inode, ROOT, Timestamp};
use persimmon_format::name::{self, DirEntry};
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, Ino, Key, KeyKind, Lsn};

use super::{Making, Plan};
use crate::chores::background;
use crate::measure::MeasureError;
use persimmon_sim::device::pattern;
use persimmon_sim::{SimConfig, SimDevice};

const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;
/// The block that fills a made volume.
const MADE_PATTERN: u64 = 1;
/// Numbers of a made volume's log, zones and so on are greater than those of the empty one before.
const FAR: u32 = 1 << 20;

/// A drive, and the files on it.
pub(super) struct Subject {
    pub device: Arc<SimDevice>,
    pub files: Vec<Ino>,
    pub file_blocks: u64,
    making: Making,
}

pub(super) fn fill(
    plan: &Plan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Subject, MeasureError> {
    let config = SimConfig::new(plan.zones, plan.zone_blocks)
        .capacity(plan.zone_capacity)
        .conventional(plan.conventional_zones)
        .limits(plan.active_max, plan.active_max)
        .patterns()
        .timed(plan.timing);
    let device = Arc::new(SimDevice::new(config));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
    let volume = Volume::open(Arc::clone(&device) as _, plan.options.clone())?.0;
    let blocks = (volume.space().total_bytes as f64 * plan.fill) as u64 / BLOCK_SIZE as u64;
    let files = (blocks / plan.file_blocks.max(1)).max(1);
    let files = match plan.making {
        Making::Written => write(&volume, plan, files, progress)?,
        Making::Made => {
            let identity = volume.identity().clone();
            volume.close()?;
            drop(volume);
            make(&device, plan, &identity, files, progress)?
        }
    };
    Ok(Subject {
        device,
        files,
        file_blocks: plan.file_blocks,
        making: plan.making,
    })
}

impl Subject {
    /// What a block of a file was filled with.
    pub fn content(&self, file: usize, block: u64) -> Buffer {
        pattern_of(match self.making {
            Making::Made => MADE_PATTERN,
            Making::Written => first_pattern(file, self.file_blocks) + block,
        })
    }
}

fn first_pattern(file: usize, file_blocks: u64) -> u64 {
    1 + file as u64 * file_blocks
}

fn pattern_of(number: u64) -> Buffer {
    let mut block = BufferMut::zeroed(1);
    pattern::fill(&mut block, number);
    block.freeze()
}

fn write(
    volume: &Volume,
    plan: &Plan,
    files: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Ino>, MeasureError> {
    let mut bytes = vec![0; FRAME_BLOCKS_MAX * BLOCK_SIZE];
    let mut inos = Vec::new();
    for file in 0..files {
        let ino = make_file(volume, file)?;
        let first = first_pattern(inos.len(), plan.file_blocks);
        for block in (0..plan.file_blocks).step_by(FRAME_BLOCKS_MAX) {
            let count = (plan.file_blocks - block).min(FRAME_BLOCKS_MAX as u64) as usize;
            let piece = &mut bytes[..count * BLOCK_SIZE];
            pattern::fill(piece, first + block);
            volume.write(ino, block * BLOCK_SIZE as u64, piece, Timestamp::default())?;
            background(volume)?;
        }
        inos.push(ino);
        progress(file, files);
    }
    volume.close()?;
    Ok(inos)
}

fn file_name(file: u64) -> String {
    format!("file-{file}")
}

fn make_file(volume: &Volume, file: u64) -> Result<Ino, Error> {
    let key = volume.identity().key();
    volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: FILE,
            nlink: 1,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        let name = file_name(file);
        let entry = DirEntry {
            ino,
            file_type: inode.file_type(),
            name: name.as_bytes(),
        };
        let item = name::first_item(&key, name.as_bytes());
        tx.put(Key::new(ROOT, KeyKind::DIR_ENTRY, item), entry.encode());
        Ok(ino)
    })
}

/// Data zones filled one after the other, and frames in them.
struct Places<'d> {
    device: &'d SimDevice,
    identity: &'d VolumeIdentity,
    zones: u32,
    capacity: u32,
    next_zone: u32,
    zone: u32,
    /// The next block in it.
    block: u32,
}

impl Places<'_> {
    /// The next run of at most so many blocks.
    fn next(&mut self, blocks_max: u32) -> Result<(Addr, u32), MeasureError> {
        if self.block >= self.capacity {
            // What is there of the empty volume's metadata stays.
            while !self.fill(ZoneId(self.next_zone)) {
                self.next_zone += 1;
                if self.next_zone >= self.zones {
                    let why = "a made volume has no zone left for data";
                    return Err(MeasureError::Plan(why.to_owned()));
                }
            }
            (self.zone, self.block) = (self.next_zone, 1);
            self.next_zone += 1;
        }
        let blocks = blocks_max.min(self.capacity - self.block);
        let addr = Addr::new(DeviceId(0), ZoneId(self.zone), self.block);
        self.block += blocks;
        Ok((addr, blocks))
    }

    fn fill(&self, zone: ZoneId) -> bool {
        let header = ZoneHeader {
            volume: self.identity.clone(),
            device: DeviceId(0),
            zone,
            role: Role::Data,
            lifetime: 0,
            sequence: u64::from(FAR) + u64::from(zone.0),
            first_log_sequence: 0,
            partner: None,
        };
        let mut block = BufferMut::zeroed(1);
        block.copy_from_slice(&header.encode());
        self.device.fill(zone, block.freeze(), MADE_PATTERN)
    }
}

fn make(
    device: &Arc<SimDevice>,
    plan: &Plan,
    identity: &VolumeIdentity,
    files: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Ino>, MeasureError> {
    let crc = data_block(&pattern_of(MADE_PATTERN));
    let mut places = Places {
        device,
        identity,
        zones: plan.zones,
        capacity: plan.zone_capacity,
        // Behind the candidates for the log.
        next_zone: plan.conventional_zones + 64,
        zone: 0,
        block: u32::MAX,
    };
    // Zones must be there before the volume is looked at.
    let mut extents: Vec<(Addr, u32)> = Vec::new();
    for _ in 0..files {
        let mut block = 0;
        while block < plan.file_blocks {
            let most = (plan.file_blocks - block).min(FRAME_BLOCKS_MAX as u64) as u32;
            let place = places.next(most)?;
            block += u64::from(place.1);
            extents.push(place);
        }
    }
    let start = RebuildStart {
        identity: identity.clone(),
        checkpoint: FAR.into(),
        last_lsn: Lsn(FAR.into()),
        epoch: FAR,
        log_sequence: FAR.into(),
        footer: Addr::ZERO,
        zit: Vec::new(),
        next_ino: FIRST_INO,
        changes_lost: false,
        next_zone_sequence: u64::from(FAR) + u64::from(plan.zones),
        write_clock: files * plan.file_blocks,
        reserve_basis_points: FormatOptions::default().reserve_on(device.geometry()),
    };
    let rebuild = Rebuild::begin(Arc::clone(device) as _, start, plan.options.clone())?;
    let root = Inode {
        mode: DIRECTORY,
        nlink: 2,
        parent: ROOT,
        ..Inode::default()
    };
    rebuild.put(Key::inode(ROOT), &root.encode())?;
    let inos: Vec<Ino> = (FIRST_INO..FIRST_INO + files).map(Ino).collect();
    let key = identity.key();
    for (ino, file) in inos.iter().zip(0..) {
        let name = file_name(file);
        let entry = DirEntry {
            ino: *ino,
            file_type: (FILE >> 12) as u8,
            name: name.as_bytes(),
        };
        let item = name::first_item(&key, name.as_bytes());
        rebuild.put(Key::new(ROOT, KeyKind::DIR_ENTRY, item), &entry.encode())?;
    }
    let mut extents = extents.into_iter();
    for (ino, file) in inos.iter().zip(0..) {
        let inode = Inode {
            mode: FILE,
            nlink: 1,
            size: plan.file_blocks * BLOCK_SIZE as u64,
            sectors: plan.file_blocks * (BLOCK_SIZE as u64 / 512),
            ..Inode::default()
        };
        rebuild.put(Key::inode(*ino), &inode.encode())?;
        let mut block = 0;
        while block < plan.file_blocks
            && let Some((addr, blocks)) = extents.next()
        {
            let crcs = vec![crc; blocks as usize];
            rebuild.put(
                Key::extent(*ino, block),
                &Extent::Frame { addr, crcs }.encode(),
            )?;
            block += u64::from(blocks);
        }
        progress(file, files);
    }
    rebuild.finish()?;
    Ok(inos)
}
