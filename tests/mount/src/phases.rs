//! Large files of several jobs, written, read, overwritten in place and read again: three phases as they were
//! published for zoned XFS, without their times (`cargo xtask bench "three phases"`).

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};

use crate::posix::expect::{Noise, same_bytes};
use crate::scenario::{Scenario, TestBed};
use crate::volume::{Kind, Volume};

const SIZE: u64 = 1 << 30;
const JOBS: u64 = 8;
const FULL_PERCENT: u64 = 75;
const MIB: u64 = 1 << 20;
/// Sizes of files.
const FILE_MIB: (u64, u64) = (4, 32);
/// Least blocks that lie behind each other on the device, on average: with 256 KiB in a row a command a piece costs
/// little. Some 300 are found; how many depends on how the jobs' writes meet.
const FRAGMENT_BLOCKS_MIN: u64 = 64;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "phases::large_files_of_eight_jobs_are_overwritten_and_stay_in_long_pieces",
    run: large_files_of_eight_jobs_are_overwritten_and_stay_in_long_pieces,
    limit_seconds: 400,
    only_persimmon: false,
}];

struct Large {
    path: PathBuf,
    mib: u64,
    seed: u64,
}

/// The content of a file, a MiB after the other.
fn content(seed: u64, mib: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut dice = Noise(seed);
    (0..mib).map(move |_| {
        let words = (0..MIB / 8).flat_map(|_| dice.next_u64().to_le_bytes());
        words.collect()
    })
}

fn write(file: &Large, generation: u64) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut open = options.write(true).create(true).open(&file.path)?;
    for piece in content(file.seed + generation, file.mib) {
        open.write_all(&piece)?;
    }
    Ok(open.sync_all()?)
}

fn verify(file: &Large, generation: u64) -> Result<()> {
    let mut open = File::open(&file.path)?;
    let mut found = vec![0; MIB as usize];
    for (number, piece) in content(file.seed + generation, file.mib).enumerate() {
        open.read_exact(&mut found)?;
        same_bytes(&found, &piece).with_context(|| format!("MiB {number}"))?;
    }
    ensure!(
        open.read(&mut found)? == 0,
        "it is longer than it was written"
    );
    Ok(())
}

/// Does something to the files of each job, all jobs at the same time.
fn at_once(
    jobs: &[Vec<Large>],
    generation: u64,
    body: impl Fn(&Large, u64) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let body = &body;
        let one = move |file: &Large| {
            body(file, generation).with_context(|| file.path.display().to_string())
        };
        let threads: Vec<_> = jobs
            .iter()
            .map(|files| scope.spawn(move || files.iter().try_for_each(one)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a job panicked"))?)
    })
}

fn plan(dir: &Path) -> Result<Vec<Vec<Large>>> {
    let stat = rustix::fs::statvfs(dir)?;
    let share = stat.f_bavail * stat.f_frsize / 100 * FULL_PERCENT / JOBS / MIB;
    let mut dice = Noise(3);
    let mut jobs = Vec::new();
    for job in 0..JOBS {
        let folder = dir.join(job.to_string());
        std::fs::create_dir(&folder)?;
        let (mut files, mut left) = (Vec::new(), share);
        while left >= FILE_MIB.0 {
            let mib = FILE_MIB.0 + dice.below(FILE_MIB.1 - FILE_MIB.0 + 1);
            let mib = mib.min(left);
            left -= mib;
            files.push(Large {
                path: folder.join(files.len().to_string()),
                mib,
                seed: dice.next_u64() >> 1,
            });
        }
        jobs.push(files);
    }
    Ok(jobs)
}

/// Pieces of a file that lie apart on the device of the unmounted volume.
fn fragments(volume: &Volume, path: &Path) -> Result<u64> {
    let mut command = volume.tool("dump");
    command.arg(&volume.image).arg("extents").arg(path);
    let text = crate::command::output(command.arg("--json"))?;
    let extents: serde_json::Value = serde_json::from_str(&text)?;
    let extents = extents.as_array().context("no list of extents")?;
    let (mut fragments, mut next) = (0, None);
    for extent in extents {
        let addr = extent["addr"].as_str().context("an extent without addr")?;
        let (zone, block) = addr.rsplit_once(':').context("an addr without a block")?;
        let block: u64 = block.parse()?;
        let begin = (zone.to_owned(), block);
        if next.as_ref() != Some(&begin) {
            fragments += 1;
        }
        let blocks = extent["blocks"]
            .as_u64()
            .context("an extent without blocks")?;
        next = Some((begin.0, block + blocks));
    }
    Ok(fragments)
}

/// Blocks in a row on the device, on average.
fn run_blocks(volume: &Volume, jobs: &[Vec<Large>]) -> Result<u64> {
    let (mut blocks, mut pieces) = (0, 0);
    for file in jobs.iter().flatten() {
        let inside = Path::new("/").join(file.path.strip_prefix(&volume.dir)?);
        pieces += fragments(volume, &inside)?;
        blocks += file.mib * MIB / 4096;
    }
    Ok(blocks / pieces.max(1))
}

fn large_files_of_eight_jobs_are_overwritten_and_stay_in_long_pieces(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("phases", SIZE, &[])?;
    volume.mount(&[])?;
    let jobs = plan(&volume.dir)?;
    for generation in 0..2 {
        at_once(&jobs, generation, write)?;
        volume.unmount()?;
        if volume.kind == Kind::Persimmon {
            let blocks = run_blocks(&volume, &jobs)?;
            println!(
                "      {blocks} blocks in a row after writing {} times",
                generation + 1
            );
            ensure!(
                blocks >= FRAGMENT_BLOCKS_MIN,
                "only {blocks} blocks lie in a row, on average"
            );
        }
        volume.mount(&[])?;
        at_once(&jobs, generation, verify)?;
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
