//! A log that goes on with blocks of any content, each of them believable: right key, right place,
//! mostly the right numbers. The volume is opened on it, which replays them.

use std::ops::Range;

use persimmon_device::{Command, ZonedDevice};
use persimmon_format::compression::Codec;
use persimmon_format::dictionary::{DICTIONARY_BLOCKS_MAX, Dictionary};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::log::{BODY_LEN, Body, LogState, Records, compress};
use persimmon_format::packed::{self, Packed};
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind, Lsn, VersionId, ZoneId};

use crate::edit::overwrite;
use crate::hostile::seal;
use crate::input::Input;
use crate::sample::{LogEnd, Sample, What, buffer};
use crate::usage::use_volume;

const RECORDS_MAX: usize = 8;
const OPS_MAX: usize = 6;
const BLOCKS_MAX: usize = 6;

pub fn journal(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sample = Sample::any(&mut input);
    let device = sample.device();
    let mut end = sample.log_end;
    for _ in 0..1 + input.below(3) {
        let batch = batch(sample, &mut end, &mut input);
        let blocks = batch.len() / BLOCK_SIZE;
        let command = Command::Write {
            zone: end.zone,
            block: end.block,
            data: vec![buffer(&batch)],
        };
        if blocks == 0 || device.run(command).is_err() {
            break;
        }
        end.block += blocks as u32;
        end.sequence += blocks as u64;
    }
    use_volume(device, &mut input);
}

/// Sealed blocks that follow the end of the log: records, or a footer.
fn batch(sample: &Sample, end: &mut LogEnd, input: &mut Input<'_>) -> Vec<u8> {
    change_state(&mut end.state, input);
    if input.rarely(4) {
        return footer(sample, end, input);
    }
    let mut stream = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..1 + input.below(RECORDS_MAX) {
        starts.push(stream.len());
        let mut record = Vec::new();
        for _ in 0..input.below(OPS_MAX) {
            op(sample, input).encode(&mut record);
        }
        if input.rarely(12) {
            overwrite(&mut record, input);
        }
        let len = if input.rarely(16) {
            input.near(record.len() as u64)
        } else {
            record.len() as u64
        };
        stream.extend_from_slice(&(len as u32).to_le_bytes());
        stream.extend_from_slice(&record);
    }
    let mut sealed = Vec::new();
    let blocks = stream.len().div_ceil(BODY_LEN).min(BLOCKS_MAX);
    for block in 0..blocks {
        let range = block * BODY_LEN..((block + 1) * BODY_LEN).min(stream.len());
        let first = starts.partition_point(|start| *start < range.start);
        let lead = starts
            .get(first)
            .map_or(range.len(), |start| (start - range.start).min(range.len()));
        let odd = input.rarely(16);
        let records = &stream[range.clone()];
        let compressed = Some(compress(records)).filter(|c| c.len() < records.len());
        let compressed = compressed.filter(|_| input.flag());
        let first_lsn = Lsn(end.next_lsn.0.wrapping_add(first as u64));
        let body = Body::Journal {
            first_lsn: if odd {
                Lsn(input.near(first_lsn.0))
            } else {
                first_lsn
            },
            lead: if odd {
                input.below(range.len() + 1) as u16
            } else {
                lead as u16
            },
            records: match &compressed {
                None => Records::plain(records),
                Some(lz4) => Records::compressed(records, lz4),
            },
        };
        sealed.extend(seal(end, sealed.len() / BLOCK_SIZE, body));
    }
    end.next_lsn.0 = end.next_lsn.0.wrapping_add(starts.len() as u64);
    sealed
}

/// A footer like the newest one, with other numbers in it.
fn footer(sample: &Sample, end: &LogEnd, input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = sample.footer().encode();
    // It counts only if its number is larger.
    if let Some(number) = bytes.first_mut() {
        *number = number.wrapping_add(1);
    }
    if !input.rarely(4) {
        // One field; the first 112 bytes are numbers.
        let fields: Range<usize> = if input.flag() { 0..112 } else { 0..bytes.len() };
        let at = input.below(fields.len()) & !7;
        let usual = bytes[at..]
            .first_chunk()
            .map_or(0, |field| u64::from_le_bytes(*field));
        let number = input.near(usual).to_le_bytes();
        bytes[at..]
            .iter_mut()
            .zip(number)
            .for_each(|(to, from)| *to = from);
    } else {
        overwrite(&mut bytes, input);
    }
    let parts = bytes.chunks(BODY_LEN).count() as u16;
    let mut sealed = Vec::new();
    for (part, bytes) in bytes.chunks(BODY_LEN).enumerate() {
        let odd = input.rarely(16);
        let body = Body::Footer {
            part: if odd { input.u16() } else { part as u16 },
            parts: if odd { input.u16() } else { parts },
            bytes,
        };
        sealed.extend(seal(end, sealed.len() / BLOCK_SIZE, body));
    }
    sealed
}

fn change_state(state: &mut LogState, input: &mut Input<'_>) {
    match input.u8() % 12 {
        0 => state.epoch = input.near(state.epoch.into()) as u32,
        1 => state.resume_after = Lsn(input.near(state.resume_after.0)),
        2 => state.durable = Lsn(input.near(state.durable.0)),
        3 => state.footer = Addr::from_raw(input.near(state.footer.to_raw())),
        4 => {
            state.epoch = state.epoch.wrapping_add(1);
            state.resume_after = state.durable;
        }
        _ => {}
    }
}

fn ino(sample: &Sample, input: &mut Input<'_>) -> Ino {
    if input.rarely(8) {
        Ino(input.number())
    } else {
        *input.pick(&sample.inos)
    }
}

fn item_key(sample: &Sample, input: &mut Input<'_>) -> Key {
    let global = input.rarely(4);
    let item = ino(sample, input).0;
    Key {
        ino: if global {
            Key::GLOBAL
        } else {
            ino(sample, input)
        },
        kind: KeyKind(if input.rarely(12) {
            input.u8()
        } else {
            1 + input.u8() % 9
        }),
        item: if global { item } else { input.number() },
        version: VersionId(if input.rarely(20) { input.u32() } else { 0 }),
    }
}

fn time(input: &mut Input<'_>) -> Timestamp {
    Timestamp {
        seconds: input.number() as i64,
        nanoseconds: input.u32() % 1_000_000_000,
    }
}

fn inode(sample: &Sample, input: &mut Input<'_>) -> Inode {
    let mode = *input.pick(&[0o100_644, 0o040_755, 0o120_777, 0o010_644, 0]);
    Inode {
        mode,
        nlink: input.near(1) as u32,
        size: input.near(5000) >> u8::from(!input.rarely(16)),
        sectors: input.near(16),
        flags: input.near(0) as u32,
        atime: time(input),
        mtime: time(input),
        parent: ino(sample, input),
        lifetime: input.u8(),
        compression: input.u8(),
        xattr_names: input.near(0) as u32,
        ..Inode::default()
    }
}

fn extent(sample: &Sample, input: &mut Input<'_>) -> Extent {
    match input.u8() % 8 {
        0 | 1 => Extent::Inline(vec![3; input.below(4097)]),
        2 => {
            let content = [input.u8(); BLOCK_SIZE];
            let mut bytes = packed::compress(&content, BLOCK_SIZE).unwrap_or_else(|| vec![3]);
            if input.rarely(2) {
                let at = input.below(bytes.len());
                bytes.truncate(at.max(1));
            }
            Extent::Compressed(bytes)
        }
        3 => Extent::Packed(packed_extent(sample, input)),
        4 => Extent::Reserved {
            blocks: (input.number() as u32).clamp(1, 1 << 30),
        },
        _ => {
            let addr = data_addr(sample, input);
            let blocks = if input.rarely(4) {
                1 + input.below(256)
            } else {
                1 + input.below(4)
            };
            Extent::Frame {
                addr,
                crcs: vec![input.u32(); blocks],
            }
        }
    }
}

fn data_addr(sample: &Sample, input: &mut Input<'_>) -> Addr {
    let data: Vec<Addr> = sample.of(What::Data).map(|place| place.addr).collect();
    match input.u8() % 4 {
        0 => Addr::from_raw(input.number()),
        1 => Addr::new(
            DeviceId(0),
            ZoneId(input.below(25) as u32),
            input.below(97) as u32,
        ),
        _ => *input.pick(&data),
    }
}

/// A part of a frame that a file has, or of one that is like none.
fn packed_extent(sample: &Sample, input: &mut Input<'_>) -> Packed {
    let (.., known) = *input.pick(&sample.packed);
    let mut whole = known.whole();
    if input.rarely(3) {
        let frame = &mut whole.frame;
        frame.blocks = 1 + input.below(packed::COMPRESSED_BLOCKS_MAX) as u8;
        frame.len = 1 + input.below(usize::from(frame.blocks) * BLOCK_SIZE - 1) as u32;
        if input.flag() {
            frame.codec = match input.below(3) {
                0 => Codec::Lz4,
                1 => Codec::Zstd,
                _ => Codec::ZstdAfter(Dictionary {
                    at: 256 + input.below(1024) as u64,
                    blocks: 1 + input.below(DICTIONARY_BLOCKS_MAX) as u8,
                }),
            };
            frame.crc = input.u32();
            whole.addr = data_addr(sample, input);
            whole.unit = input.u8();
        }
        whole.blocks = frame.blocks;
    }
    let skip = input.below(whole.blocks.into()) as u64;
    whole.part(skip, 1 + input.below(usize::from(whole.blocks)) as u64)
}

/// A part of a frame that a file has, where the file may have it.
fn map_part(sample: &Sample, input: &mut Input<'_>) -> Op {
    let (owner, block, known) = *input.pick(&sample.packed);
    let (first, _) = known.frame_at(block).unwrap_or_default();
    let part = known.whole().part(
        input.below(known.frame.blocks.into()) as u64,
        1 + input.below(known.frame.blocks.into()) as u64,
    );
    Op::Map {
        ino: if input.rarely(8) {
            ino(sample, input)
        } else {
            owner
        },
        block: first + u64::from(part.skip),
        extent: Extent::Packed(part),
    }
}

fn op(sample: &Sample, input: &mut Input<'_>) -> Op {
    match input.u8() % 12 {
        0 | 1 => {
            let ino = ino(sample, input);
            let value = inode(sample, input).encode();
            Op::Put {
                key: Key::inode(ino),
                value,
            }
        }
        2 => {
            let key = item_key(sample, input);
            let len = if input.rarely(8) {
                input.below(4201)
            } else {
                input.below(40)
            };
            let mut value = vec![0; len];
            value
                .iter_mut()
                .zip(input.bytes(24))
                .for_each(|(to, from)| *to = *from);
            Op::Put { key, value }
        }
        3 => {
            // An unfinished truncation, or an inode to be freed.
            let ino = ino(sample, input);
            let key = if input.flag() {
                Key::truncation(ino)
            } else {
                Key::orphan(ino)
            };
            let value = if input.rarely(4) {
                Vec::new()
            } else {
                input.number().to_le_bytes().to_vec()
            };
            Op::Put { key, value }
        }
        4 => Op::Delete {
            key: item_key(sample, input),
        },
        5..=7 => {
            let extent = extent(sample, input);
            let block = input.near(0);
            let end = if input.rarely(16) {
                u64::MAX
            } else {
                FILE_BLOCKS_END
            };
            Op::Map {
                ino: ino(sample, input),
                block: block.min(end - extent.blocks()),
                extent,
            }
        }
        8 => {
            let (a, b) = (input.near(0), input.number());
            Op::Punch {
                ino: ino(sample, input),
                from: a.min(b),
                to: a.max(b),
            }
        }
        9 => Op::Lot {
            end: input.number(),
        },
        10 => map_part(sample, input),
        _ => Op::Touch {
            ino: ino(sample, input),
            set: Touch {
                size: input.flag().then(|| input.number() >> 1),
                mtime: input.flag().then(|| time(input)),
                mode: input.rarely(4).then(|| input.u32()),
                ..Touch::default()
            },
        },
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    (0..32u32)
        .map(|n| {
            (0..200u32)
                .map(|i| (i.wrapping_mul(n * 2 + 1).wrapping_mul(0x85eb_ca6b) >> 11) as u8)
                .collect()
        })
        .collect()
}
