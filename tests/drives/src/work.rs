//! Workloads on any filesystem, to compare what they send to the drive. Each says on one line what
//! it did: bytes that its user wrote, operations, seconds.
//!
//! Content does not compress, and no block is like another.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::databases::{self, Journal};

/// What is written at once where nothing else is said.
const PIECE: usize = 1 << 20;
/// Size of the files that a volume is filled with.
const FILL_FILE: u64 = 16 << 20;
/// A tree: so many directories of so many files.
const TREE_DIRECTORIES: u64 = 40;
const TREE_FILES: u64 = 25;
/// Mails that are there at a time.
const MAILS: u64 = 200;

#[derive(Subcommand)]
pub enum Work {
    /// Files of 16 MiB each, together so many MiB
    Fill {
        dir: PathBuf,
        mib: u64,
        /// So many files of the same size instead
        #[arg(long)]
        files: Option<u64>,
    },
    /// Random overwrites of what `fill` left, of 4 KiB to 1 MiB each, together so many MiB
    Overwrite {
        dir: PathBuf,
        mib: u64,
        /// 4 KiB 30 %, 16 KiB 25 %, 64 KiB 25 %, 256 KiB 13 % and 1 MiB 7 %; all sizes between are as likely without
        #[arg(long)]
        mixed: bool,
        /// Places are drawn as by Zipf's law with exponent 0.99
        #[arg(long)]
        zipf: bool,
    },
    /// So many new files of so many bytes
    Create {
        dir: PathBuf,
        files: u64,
        bytes: usize,
    },
    /// All of that again into the same files; where they are empty, their times
    Update {
        dir: PathBuf,
        files: u64,
        bytes: usize,
    },
    /// Their end
    Delete { dir: PathBuf, files: u64 },
    /// Random overwrites of so many bytes in a file of so many MiB, each with an fsync
    Fsync {
        dir: PathBuf,
        mib: u64,
        bytes: usize,
        count: u64,
    },
    /// Mails delivered, read, answered and deleted, with an fsync for each delivery
    Varmail { dir: PathBuf, count: u64 },
    /// A tree of small files made, synced, a third of it deleted, made again, and so on
    Untar { dir: PathBuf, rounds: u64 },
    /// A table of SQLite's, and so many transactions on it, each durable; none makes the table
    Sqlite {
        dir: PathBuf,
        journal: Journal,
        count: u64,
    },
    /// A cluster of PostgreSQL's, and so many transactions of pgbench; none makes the cluster
    Pgbench { dir: PathBuf, count: u64 },
}

/// What a workload did.
#[derive(Default)]
struct Done {
    bytes: u64,
    operations: u64,
}

impl Done {
    fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.operations += 1;
    }
}

pub fn run(work: &Work) -> Result<()> {
    let begun = Instant::now();
    let mut noise = Noise::new();
    let mut done = Done::default();
    match work {
        Work::Fill { dir, mib, files } => fill(dir, *mib, *files, &mut noise, &mut done),
        Work::Overwrite {
            dir,
            mib,
            mixed,
            zipf,
        } => {
            let sizes = if *mixed {
                Sizes::Mixed
            } else {
                Sizes::AllAlike
            };
            overwrite(dir, *mib, &sizes, *zipf, &mut noise, &mut done)
        }
        Work::Create { dir, files, bytes } => {
            let options = OpenOptions::new().write(true).create_new(true).clone();
            small(dir, *files, *bytes, &options, &mut noise, &mut done)
        }
        Work::Update { dir, files, bytes } => {
            let options = OpenOptions::new().write(true).clone();
            small(dir, *files, *bytes, &options, &mut noise, &mut done)
        }
        Work::Delete { dir, files } => (0..*files).try_for_each(|n| {
            done.operations += 1;
            Ok(fs::remove_file(dir.join(format!("small {n}")))?)
        }),
        Work::Fsync {
            dir,
            mib,
            bytes,
            count,
        } => fsync(dir, *mib, *bytes, *count, &mut noise, &mut done),
        Work::Varmail { dir, count } => varmail(dir, *count, &mut noise, &mut done),
        Work::Untar { dir, rounds } => untar(dir, *rounds, &mut noise, &mut done),
        Work::Sqlite {
            dir,
            journal,
            count,
        } => {
            done.operations = *count;
            let draw = &mut |limit| noise.below(limit);
            match count {
                0 => databases::sqlite_load(dir, *journal, draw),
                count => databases::sqlite_transfer(dir, *count, draw),
            }
        }
        Work::Pgbench { dir, count } => {
            done.operations = *count;
            match count {
                0 => databases::postgres_load(dir),
                count => databases::postgres_transfer(dir, *count),
            }
        }
    }?;
    println!(
        "done {} {} {:.3}",
        done.bytes,
        done.operations,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn fill(
    dir: &Path,
    mib: u64,
    files: Option<u64>,
    noise: &mut Noise,
    done: &mut Done,
) -> Result<()> {
    let mut left = mib << 20;
    let mut number = 0;
    let each = files.map_or(FILL_FILE, |files| mib.div_ceil(files.max(1)) << 20);
    while left > 0 {
        let size = left.min(each);
        let file = File::create_new(dir.join(format!("fill {number}")))?;
        for at in (0..size).step_by(PIECE) {
            let bytes = noise.bytes(PIECE.min((size - at) as usize));
            file.write_all_at(bytes, at)
                .with_context(|| format!("{} MiB of {mib} were written", done.bytes >> 20))?;
            done.wrote(bytes.len());
        }
        left -= size;
        number += 1;
    }
    Ok(())
}

/// Sizes of overwrites are powers of two: as likely each, or by how many of a hundred are that large.
enum Sizes {
    AllAlike,
    Mixed,
}

const MIXED: [(u64, usize); 5] = [(30, 4), (25, 16), (25, 64), (13, 256), (7, 1024)];

impl Sizes {
    fn draw(&self, noise: &mut Noise) -> usize {
        let Sizes::Mixed = self else {
            return 4096 << noise.below(9);
        };
        let mut at = noise.below(100);
        for (percent, kib) in MIXED {
            match at.checked_sub(percent) {
                Some(rest) => at = rest,
                None => return kib << 10,
            }
        }
        4096
    }
}

fn overwrite(
    dir: &Path,
    mib: u64,
    sizes: &Sizes,
    zipf: bool,
    noise: &mut Noise,
    done: &mut Done,
) -> Result<()> {
    let mut files = Vec::new();
    while let Ok(file) = OpenOptions::new()
        .write(true)
        .open(dir.join(format!("fill {}", files.len())))
    {
        let size = file.metadata()?.len();
        files.push((file, size));
    }
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let (_, each) = files.first().context("nothing was filled")?;
    while done.bytes < mib << 20 {
        let size = sizes.draw(noise);
        let units = total / size as u64;
        let unit = if zipf {
            // What is hot lies scattered: a fixed permutation of the ranks.
            (noise.zipf(units).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) % units
        } else {
            noise.below(units)
        };
        let at = unit * size as u64;
        let (file, end) = files
            .get((at / each) as usize)
            .context("a place in no file")?;
        let within = at % each;
        if within + size as u64 > *end {
            continue;
        }
        file.write_all_at(noise.bytes(size), within)
            .with_context(|| format!("{} MiB of {mib} were written", done.bytes >> 20))?;
        done.wrote(size);
    }
    files.iter().try_for_each(|(file, _)| Ok(file.sync_all()?))
}

fn small(
    dir: &Path,
    files: u64,
    bytes: usize,
    options: &OpenOptions,
    noise: &mut Noise,
    done: &mut Done,
) -> Result<()> {
    for number in 0..files {
        let mut file = options.open(dir.join(format!("small {number}")))?;
        file.write_all(noise.bytes(bytes))?;
        if bytes == 0 {
            file.set_modified(std::time::SystemTime::now())?;
        }
        done.wrote(bytes);
    }
    Ok(())
}

/// The file is there and durable when counting begins.
fn fsync(
    dir: &Path,
    mib: u64,
    bytes: usize,
    count: u64,
    noise: &mut Noise,
    done: &mut Done,
) -> Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("synced"))?;
    if count == 0 {
        for at in (0..mib << 20).step_by(PIECE) {
            file.write_all_at(noise.bytes(PIECE), at)?;
        }
        return Ok(file.sync_all()?);
    }
    let units = (mib << 20) / bytes as u64;
    for _ in 0..count {
        let at = noise.below(units) * bytes as u64;
        file.write_all_at(noise.bytes(bytes), at)?;
        file.sync_all()?;
        done.wrote(bytes);
    }
    Ok(())
}

/// As the mix of that name: delete one, deliver one, read and append to one, read one.
fn varmail(dir: &Path, count: u64, noise: &mut Noise, done: &mut Done) -> Result<()> {
    let name = |number: u64| dir.join(format!("mail {number}"));
    let mut first = 0;
    for number in 0..count {
        if number - first >= MAILS {
            fs::remove_file(name(first))?;
            first += 1;
        }
        let bytes = 1000 + noise.below(15_000) as usize;
        let mut mail = File::create_new(name(number))?;
        mail.write_all(noise.bytes(bytes))?;
        mail.sync_all()?;
        done.wrote(bytes);
        let old = first + noise.below(number - first + 1);
        fs::read(name(old))?;
        let bytes = 1000 + noise.below(7_000) as usize;
        let mut mail = OpenOptions::new().append(true).open(name(old))?;
        mail.write_all(noise.bytes(bytes))?;
        mail.sync_all()?;
        done.wrote(bytes);
        fs::read(name(first + noise.below(number - first + 1)))?;
    }
    Ok(())
}

fn untar(dir: &Path, rounds: u64, noise: &mut Noise, done: &mut Done) -> Result<()> {
    for round in 0..rounds {
        for directory in 0..TREE_DIRECTORIES {
            let directory = dir.join(format!("directory {directory}"));
            fs::create_dir_all(&directory)?;
            for number in 0..TREE_FILES {
                let path = directory.join(format!("file {number}"));
                if path.exists() {
                    continue;
                }
                // From a few bytes to 64 KiB, most of them small.
                let bytes = 50 + (noise.below(256) * noise.below(256)) as usize;
                fs::write(path, noise.bytes(bytes))?;
                done.wrote(bytes);
            }
        }
        // What is deleted soon must not be gone before it was ever written.
        rustix::fs::syncfs(File::open(dir)?)?;
        if round + 1 == rounds {
            break;
        }
        for directory in 0..TREE_DIRECTORIES {
            for number in 0..TREE_FILES {
                if noise.below(3) == 0 {
                    let path = format!("directory {directory}/file {number}");
                    fs::remove_file(dir.join(path))?;
                }
            }
        }
    }
    Ok(())
}

/// Numbers and bytes from a fixed seed.
struct Noise {
    state: u64,
    bytes: Vec<u8>,
}

impl Noise {
    fn new() -> Noise {
        // Another content in each process: what was written before is not written again.
        let seed = u64::from(std::process::id()) << 32 | 1;
        let mut noise = Noise {
            state: 0x2545_f491_4f6c_dd1d,
            bytes: vec![0; PIECE + 4096],
        };
        let mut content = seed;
        for word in noise.bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&step(&mut content).to_le_bytes());
        }
        noise
    }

    fn next(&mut self) -> u64 {
        step(&mut self.state)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit.max(1))) >> 64) as u64
    }

    /// A rank from 0 on; the distribution's inverse, with the sum taken for an integral.
    fn zipf(&mut self, ranks: u64) -> u64 {
        const EXPONENT: f64 = 0.99;
        let share = self.next() as f64 / u64::MAX as f64;
        let whole = (ranks as f64 + 1.0).powf(1.0 - EXPONENT) - 1.0;
        let rank = (share * whole + 1.0).powf(1.0 / (1.0 - EXPONENT)) - 1.0;
        (rank as u64).min(ranks.saturating_sub(1))
    }

    /// So many bytes, at most a piece. The first word of each block is new; the rest is at another
    /// offset than the last time.
    fn bytes(&mut self, len: usize) -> &[u8] {
        let from = (self.next() % 512) as usize * 8;
        let number = self.next();
        let bytes = self.bytes.get_mut(from..from + len).unwrap_or_default();
        for (at, block) in (0..).zip(bytes.chunks_mut(4096)) {
            let word = number.wrapping_add(at).to_le_bytes();
            block.iter_mut().zip(word).for_each(|(to, from)| *to = from);
        }
        self.bytes.get(from..from + len).unwrap_or_default()
    }
}

/// xorshift64*.
fn step(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
