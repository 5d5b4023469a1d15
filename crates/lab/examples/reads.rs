//! What reads of a compressed file ask of the drive: bytes read for each byte asked, and commands for each read, with all metadata in memory
//! and little content. `cargo run -p persimmon-lab --release --example reads [-- --check]`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{FormatOptions, Options, Volume};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::{Compression, Ino, Key};
use persimmon_lab::fsync::Noise;
use persimmon_sim::{SimConfig, SimDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const FILE_BLOCKS: u64 = 65_536;
const FRAME_BLOCKS: usize = 32;
const READS: u64 = 20_000;
/// Sequential reads may ask so much more of the drive than they return, of what does not compress.
const SEQUENTIAL_MAX: f64 = 1.02;

/// Measures reads of a file of 256 MiB.
#[derive(Parser)]
struct Arguments {
    /// Answer failure when a sequential read of the file reads more than 1.02 of it
    #[arg(long)]
    check: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    println!(
        "| stored as | content | random 4 KiB: bytes read / asked | commands a read | the same of 32 frames | sequential 128 KiB: bytes read / asked | commands a read |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut is_too_much = false;
    for compression in [
        Compression::None,
        Compression::Lz4,
        Compression::parse("zstd:3").context("a compression")?,
    ] {
        for random_bytes in [BLOCK_SIZE, BLOCK_SIZE / 2, BLOCK_SIZE / 8] {
            let volume = volume(compression, random_bytes)?;
            let mut random = ChaCha8Rng::seed_from_u64(1);
            let anywhere = of_reads(&volume, 1, READS, &mut |_| {
                random.random_range(0..FILE_BLOCKS)
            })?;
            // Half of what the cache of decompressed frames holds.
            let near = FRAME_BLOCKS as u64 * 32;
            let nearby = of_reads(&volume, 1, READS, &mut |_| random.random_range(0..near))?;
            let frame = FRAME_BLOCKS as u64;
            let sequential = of_reads(&volume, frame, FILE_BLOCKS / frame, &mut |at| at * frame)?;
            is_too_much |= sequential.bytes > SEQUENTIAL_MAX;
            println!(
                "| {compression} | {:.0} % random | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} |",
                random_bytes as f64 * 100.0 / BLOCK_SIZE as f64,
                anywhere.bytes,
                anywhere.commands,
                nearby.bytes,
                sequential.bytes,
                sequential.commands,
            );
            volume.close()?;
        }
    }
    let misses = arguments.check && is_too_much;
    Ok(if misses {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What reads asked of the drive.
struct Asked {
    /// For each byte that they returned.
    bytes: f64,
    /// For each of them.
    commands: f64,
}

const FILE: Ino = Ino(100);

/// A volume with one file, opened anew, with its tree in memory.
fn volume(compression: Compression, random_bytes: usize) -> Result<Volume> {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 4096).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
    let options = Options {
        compression,
        ..Options::default()
    };
    let (volume, _) = Volume::open(Arc::clone(&device) as _, options.clone())?;
    volume.update(persimmon_engine::Intent::Grow, |tx| {
        let inode = Inode {
            mode: 0o100_644,
            nlink: 1,
            ..Inode::default()
        };
        tx.put(Key::inode(FILE), inode.encode());
        Ok::<_, persimmon_engine::Error>(())
    })?;
    let mut noise = Noise::new(7);
    let step = FRAME_BLOCKS as u64;
    for first in (0..FILE_BLOCKS).step_by(FRAME_BLOCKS) {
        let mut content = noise.bytes(FRAME_BLOCKS * BLOCK_SIZE).to_vec();
        for block in content.chunks_mut(BLOCK_SIZE) {
            if let Some(zeros) = block.get_mut(random_bytes..) {
                zeros.fill(0);
            }
        }
        volume.write(
            FILE,
            first * BLOCK_SIZE as u64,
            &content,
            Timestamp::default(),
        )?;
        if (first / step).is_multiple_of(64) {
            volume.sync()?;
        }
    }
    volume.close()?;
    let (volume, _) = Volume::open(device as _, options)?;
    volume.attr(FILE)?.context("the file is gone")?;
    let mut block = vec![0; BLOCK_SIZE];
    for first in (0..FILE_BLOCKS).step_by(FRAME_BLOCKS) {
        volume.read(FILE, first * BLOCK_SIZE as u64, &mut block)?;
    }
    Ok(volume)
}

fn of_reads(
    volume: &Volume,
    blocks: u64,
    reads: u64,
    place: &mut dyn FnMut(u64) -> u64,
) -> Result<Asked> {
    let mut buffer = vec![0; blocks as usize * BLOCK_SIZE];
    let before = volume.statistics();
    for read in 0..reads {
        volume.read(FILE, place(read) * BLOCK_SIZE as u64, &mut buffer)?;
    }
    let done = volume.statistics().since(&before);
    Ok(Asked {
        bytes: done.read_bytes as f64 / (reads * buffer.len() as u64) as f64,
        commands: done.read_commands as f64 / reads as f64,
    })
}
