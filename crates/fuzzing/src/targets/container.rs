//! The container of the image back end: superblocks and the tables, at the start and at the end, alone
//! and in a file that is opened.

use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use persimmon_device::image::{CreateOptions, ImageGeometry, OpenOptions};
use persimmon_device::{ImageDevice, ZonedDevice};
use persimmon_format::BLOCK_SIZE;
use persimmon_format::container::{
    CELL_BYTES, COPIES, Layout, RecordedState, Superblock, ZoneRecord, decode_cell, has_magic,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::edit::overwrite;
use crate::input::Input;

const ZONES: u32 = 6;

/// What a sound image of six zones holds before and behind its zones.
struct Original {
    head: Vec<u8>,
    tail: Vec<u8>,
    table_seed: u64,
    layout: Layout,
}

fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let geometry = ImageGeometry {
            zone_count: ZONES,
            zone_blocks: 256,
            capacity_blocks: 250,
            max_open: Some(4),
            max_active: Some(4),
        };
        drop(ImageDevice::create(&path, &geometry, &CreateOptions::default()).unwrap());
        let layout = geometry.layout().unwrap();
        let mut head = vec![0; layout.data as usize];
        let file = FileOptions::new().read(true).open(&path).unwrap();
        file.read_exact_at(&mut head, 0).unwrap();
        let mut tail = vec![0; (layout.total - layout.end) as usize];
        file.read_exact_at(&mut tail, layout.end).unwrap();
        let block = head.first_chunk().unwrap();
        Original {
            table_seed: Superblock::decode(block).unwrap().table_seed,
            layout,
            head,
            tail,
        }
    })
}

fn seal(block: &mut [u8]) {
    let sum = xxh3_64_with_seed(&block[..BLOCK_SIZE - 8], 0);
    block[BLOCK_SIZE - 8..BLOCK_SIZE].copy_from_slice(&sum.to_le_bytes());
}

fn record(zone: u32, input: &mut Input<'_>) -> ZoneRecord {
    let state = *input.pick(&[
        RecordedState::InUse,
        RecordedState::Empty,
        RecordedState::Closed,
        RecordedState::Full,
        RecordedState::ReadOnly,
        RecordedState::Offline,
    ]);
    ZoneRecord {
        sequence: input.near(2),
        zone: input.near(zone.into()) as u32,
        written: input.near(9) as u32,
        resets: input.near(3) as u32,
        state,
    }
}

pub fn container(bytes: &[u8]) {
    decode(bytes);
    let mut input = Input::new(bytes);
    let original = original();
    let (mut head, mut tail) = (original.head.clone(), original.tail.clone());
    for copy in 0..COPIES {
        if input.rarely(3) {
            let block = match copy {
                2 => &mut tail[..BLOCK_SIZE],
                _ => &mut head[original.layout.copy(copy) as usize..][..BLOCK_SIZE],
            };
            overwrite(&mut block[..184], &mut input);
            if !input.rarely(4) {
                seal(block);
            }
        }
    }
    let tables = [
        &mut head[original.layout.tables[0] as usize..],
        &mut tail[BLOCK_SIZE..],
    ];
    for (cell, zone) in tables.into_iter().flat_map(|table| {
        let cells = table.as_chunks_mut::<CELL_BYTES>().0;
        cells.iter_mut().zip(0..ZONES)
    }) {
        match input.u8() % 4 {
            0 => {
                let record = record(zone, &mut input);
                cell.copy_from_slice(&record.encode_cell(original.table_seed));
            }
            1 => {
                let record = record(zone, &mut input);
                let slot = record.encode_slot(original.table_seed);
                cell[record.slot_offset()..][..slot.len()].copy_from_slice(&slot);
            }
            2 if input.rarely(4) => overwrite(cell, &mut input),
            _ => {}
        }
    }
    // Whole parts of them lost.
    if input.rarely(4) {
        let from = (usize::from(input.u8()) << 12) % head.len();
        let to = from + (usize::from(input.u8()) << 12);
        let to = to.min(head.len());
        head[from..to].fill(0);
    }
    if input.rarely(4) {
        let kept = (usize::from(input.u8()) << 9) % tail.len();
        tail[kept..].fill(0);
    }
    open(&head, &tail, &mut input);
}

/// The decoders alone.
fn decode(bytes: &[u8]) {
    let mut block = [0; BLOCK_SIZE];
    block
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    let _ = has_magic(bytes);
    let _ = Superblock::decode(&block);
    block[..8].copy_from_slice(&persimmon_format::container::MAGIC);
    seal(&mut block);
    if let Ok(superblock) = Superblock::decode(&block) {
        let again = superblock.encode(0).unwrap();
        assert_eq!(Superblock::decode(&again), Ok(superblock));
    }
    if let Some(cell) = bytes.first_chunk::<CELL_BYTES>() {
        let _ = decode_cell(cell, 3, 7);
    }
}

/// Opens a file that begins so, and lets its zones be used.
fn open(head: &[u8], tail: &[u8], input: &mut Input<'_>) {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("image");
    let file = FileOptions::new()
        .create_new(true)
        .write(true)
        .open(&path)
        .unwrap();
    let layout = original().layout;
    let length = match input.u8() % 8 {
        0 => input.near(layout.total).min(1 << 33),
        _ => layout.total,
    };
    file.set_len(length).unwrap();
    let kept = head.len().min(length as usize);
    file.write_all_at(&head[..kept], 0).unwrap();
    let kept = length.saturating_sub(layout.end).min(tail.len() as u64);
    file.write_all_at(&tail[..kept as usize], layout.end)
        .unwrap();
    drop(file);
    let _ = persimmon_device::probe::identify_head(head);
    let options = OpenOptions {
        read_only: input.rarely(3),
        search: input.rarely(3),
        ..OpenOptions::default()
    };
    let Ok(device) = ImageDevice::open(&path, &options) else {
        return;
    };
    device
        .notices()
        .iter()
        .for_each(|notice| drop(notice.to_string()));
    let zones = device.geometry().zone_count;
    let report = device.report(0..zones).unwrap();
    for (zone, info) in report.iter().enumerate().take(8) {
        assert!(info.write_pointer <= info.capacity || !info.state.is_active());
        let zone = persimmon_device::ZoneId(zone as u32);
        let _ = device.read(zone, info.write_pointer.saturating_sub(1), 1);
        let data = vec![persimmon_device::BufferMut::zeroed(1).freeze()];
        let _ = device.run(persimmon_device::Command::Append { zone, data });
        if input.rarely(3) {
            let _ = device.run(persimmon_device::Command::Finish { zone });
        }
    }
    let _ = device.flush();
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..16u32)
        .map(|n| {
            (0..150u32)
                .map(|i| (i.wrapping_mul(n * 2 + 1).wrapping_mul(0xc2b2_ae35) >> 9) as u8)
                .collect()
        })
        .collect();
    let head = &original().head;
    seeds.push(head[..184].to_vec());
    let cell = original().layout.tables[0] as usize;
    seeds.push(head[cell..cell + CELL_BYTES].to_vec());
    seeds
}
