//! `cargo xtask large`: large files read and written one piece after the other, beside ext4 on a loop device and beside
//! the FUSE filesystem that does nothing, with the processor time that the daemon takes for each MiB.
//!
//! Images lie in memory, so that copies, faults and waits decide and no disk. Each round makes all filesystems afresh and
//! takes each row on one after the other, in the next round the other way round; the medians count. Content is noise,
//! which does not compress, and text, which does: ext4 neither compresses nor has checksums of data.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::OFlags;

use crate::bench::nothing::{self, Nothing};
use crate::bench::rings::TurnedOn;
use crate::figures::median;
use crate::requests::Taken;
use crate::volume::{self, Kind, Noise, Volume};
use crate::{demo, setup};

/// What to measure.
#[derive(Args)]
pub struct Options {
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Bytes of each file, MiB
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Where the images go: eight times these bytes for each filesystem
    #[arg(long, default_value = "/dev/shm")]
    work: PathBuf,
    /// Have requests come through rings, where the kernel has them; otherwise it is left as it is set
    #[arg(long)]
    rings: bool,
    /// Install and build nothing
    #[arg(long)]
    no_setup: bool,
    /// Only filesystems and rows with one of these in their name: `nothing`, `ext4`, `noise`, `direct`, `write`
    filters: Vec<String>,
}

/// Bars: the least share of ext4, and the most processor time of the daemon for a MiB.
const SHARE_MIN: f64 = 0.7;
const WRITING_US_MAX: f64 = 350.0;
const READING_US_MAX: f64 = 180.0;

/// What is still on its way to the device after an answer is written by then.
const SETTLING: Duration = Duration::from_millis(100);

/// Who is measured.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// With what mounts as a matter of course.
    Persimmon(Content),
    /// With noise and without compression.
    Uncompressed,
    Ext4,
    Nothing,
}

const WAYS: [Way; 5] = [
    Way::Persimmon(Content::Noise),
    Way::Persimmon(Content::Text),
    Way::Uncompressed,
    Way::Ext4,
    Way::Nothing,
];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Persimmon(Content::Noise) => "persimmon, noise",
            Way::Persimmon(Content::Text) => "persimmon, text",
            Way::Uncompressed => "persimmon, no compression",
            Way::Ext4 => "ext4",
            Way::Nothing => "nothing",
        }
    }

    fn content(self) -> Content {
        match self {
            Way::Persimmon(content) => content,
            Way::Uncompressed | Way::Ext4 | Way::Nothing => Content::Noise,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Content {
    Noise,
    Text,
}

/// What is done to one file from its beginning to its end.
#[derive(Clone, Copy)]
struct Row {
    direct: bool,
    writes: bool,
    piece: usize,
}

const KIB: usize = 1 << 10;
/// A row that reads takes the file of the one before it.
const ROWS: [Row; 9] = [
    row(true, true, 128 * KIB),
    row(true, false, 128 * KIB),
    row(true, true, 1024 * KIB),
    row(true, false, 1024 * KIB),
    row(false, true, 4 * KIB),
    row(false, true, 128 * KIB),
    row(false, false, 128 * KIB),
    row(false, true, 1024 * KIB),
    row(false, false, 1024 * KIB),
];

const fn row(direct: bool, writes: bool, piece: usize) -> Row {
    Row {
        direct,
        writes,
        piece,
    }
}

impl Row {
    fn name(self) -> String {
        let way = if self.direct { "direct" } else { "buffered" };
        let what = if self.writes { "write" } else { "read" };
        format!("{way} {what}, {} KiB", self.piece / KIB)
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}-{}", self.direct, self.piece))
    }
}

/// What one row took on one filesystem.
#[derive(Clone, Copy)]
struct Measured {
    mib_per_second: f64,
    /// Of the daemon, for a MiB.
    micros: f64,
}

/// Measures and prints the table, as root; true.
pub fn run(options: &Options) -> Result<bool> {
    volume::watch_for_interrupts()?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "mounting loop devices is for root: sudo -E cargo xtask large"
    );
    if !options.no_setup {
        setup::packages()?;
        demo::build()?;
        nothing::build()?;
    }
    let _rings = options.rings.then(TurnedOn::new).transpose()?;
    let temporary = tempfile::Builder::new()
        .prefix("persimmon-large-")
        .tempdir_in(options.work.canonicalize()?)?;
    let ways: Vec<Way> = chosen(&WAYS, &options.filters, |way| way.name().to_owned());
    let rows: Vec<Row> = chosen(&ROWS, &options.filters, |row| row.name());
    let mut all: Vec<Vec<Vec<Measured>>> = vec![vec![Vec::new(); ways.len()]; rows.len()];
    for round in 0..options.rounds {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let bytes = options.mib << 20;
        take(temporary.path(), bytes, (&ways, &order), &rows, &mut all)?;
    }
    print(&ways, &rows, &all);
    Ok(true)
}

/// All, or those named by one of the filters; where a filter names none of these, it is about others.
fn chosen<T: Copy>(all: &[T], filters: &[String], name: impl Fn(&T) -> String) -> Vec<T> {
    let is_named = |one: &&T| {
        filters
            .iter()
            .any(|filter| name(one).contains(filter.as_str()))
    };
    let named: Vec<T> = all.iter().filter(is_named).copied().collect();
    match named.is_empty() {
        true => all.to_vec(),
        false => named,
    }
}

/// A mounted filesystem.
enum Mounted {
    Volume(Volume, Option<u32>),
    Nothing(Nothing),
}

impl Mounted {
    fn new(way: Way, work: &Path, bytes: u64) -> Result<Mounted> {
        let (kind, mount): (_, &[&str]) = match way {
            Way::Nothing => return Ok(Mounted::Nothing(Nothing::mount(work)?)),
            Way::Ext4 => (Kind::Ext4, &[]),
            Way::Persimmon(_) => (Kind::Persimmon, &[]),
            Way::Uncompressed => (Kind::Persimmon, &["compression=none"]),
        };
        let persimmon = volume::persimmon()?;
        let name = way.name().replace(", ", "-").replace(' ', "-");
        let volume = Volume::create(kind, &persimmon, work, &name, bytes * 8, &[])?;
        volume.mount_with(mount)?;
        let daemon = match kind {
            Kind::Persimmon => {
                let daemon = volume.json("info", &volume.dir)?["daemon_pid"].as_u64();
                Some(daemon.context("`persimmon info` names no daemon")? as u32)
            }
            _ => None,
        };
        Ok(Mounted::Volume(volume, daemon))
    }

    fn dir(&self) -> &Path {
        match self {
            Mounted::Volume(volume, _) => &volume.dir,
            Mounted::Nothing(nothing) => &nothing.dir,
        }
    }

    fn daemon(&self) -> Option<u32> {
        match self {
            Mounted::Volume(_, daemon) => *daemon,
            Mounted::Nothing(nothing) => Some(nothing.process()),
        }
    }

    fn end(self) -> Result<()> {
        if let Mounted::Volume(volume, _) = self {
            volume.unmount()?;
            std::fs::remove_file(&volume.image)?;
        }
        Ok(())
    }
}

/// One round: every row on all.
fn take(
    work: &Path,
    bytes: u64,
    (ways, order): (&[Way], &[usize]),
    rows: &[Row],
    all: &mut [Vec<Vec<Measured>>],
) -> Result<()> {
    let mut mounted: Vec<(usize, Mounted)> = Vec::new();
    for index in order {
        mounted.push((*index, Mounted::new(ways[*index], work, bytes)?));
    }
    for (row, measured) in rows.iter().zip(all) {
        for (index, filesystem) in &mounted {
            let one = measure(*row, filesystem, ways[*index].content(), bytes);
            let why = || format!("{} on {}", row.name(), ways[*index].name());
            measured[*index].push(one.with_context(why)?);
        }
    }
    mounted.into_iter().try_for_each(|(_, one)| one.end())
}

fn measure(row: Row, filesystem: &Mounted, content: Content, bytes: u64) -> Result<Measured> {
    volume::go_on()?;
    let path = row.file(filesystem.dir());
    if !row.writes && !path.exists() {
        write(row, &path, content, bytes)?;
    }
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    std::thread::sleep(SETTLING);
    let taken = || filesystem.daemon().map(Taken::by).transpose();
    let before = taken()?;
    let start = Instant::now();
    match row.writes {
        true => write(row, &path, content, bytes)?,
        false => read(row, &path, bytes)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    std::thread::sleep(SETTLING);
    let micros = match before.zip(taken()?) {
        Some((before, after)) => (after.micros - before.micros) as f64,
        None => f64::NAN,
    };
    let mib = (bytes >> 20) as f64;
    Ok(Measured {
        mib_per_second: mib / seconds,
        micros: micros / mib,
    })
}

fn open(row: Row, path: &Path) -> Result<File> {
    let flags = if row.direct {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    let mut options = OpenOptions::new();
    options
        .read(!row.writes)
        .write(row.writes)
        .create(row.writes);
    options.custom_flags(flags.bits().cast_signed());
    options
        .open(path)
        .with_context(|| format!("{}", path.display()))
}

/// Up to the answer of fsync: what is only in memory is not written.
fn write(row: Row, path: &Path, content: Content, bytes: u64) -> Result<()> {
    let mut file = open(
        Row {
            writes: true,
            ..row
        },
        path,
    )?;
    // More than a processor's caches hold, and nothing twice in a row.
    let mut source = Aligned::new(SOURCE_BYTES);
    content.fill(source.bytes());
    let pieces = source.bytes().chunks_exact(row.piece).cycle();
    for piece in pieces.take((bytes / row.piece as u64) as usize) {
        file.write_all(piece)?;
    }
    Ok(file.sync_all()?)
}

fn read(row: Row, path: &Path, bytes: u64) -> Result<()> {
    let mut file = open(row, path)?;
    let mut piece = Aligned::new(row.piece);
    let mut seen = 0;
    loop {
        match file.read(piece.bytes())? {
            0 => break,
            len => seen += len as u64,
        }
    }
    ensure!(seen == bytes, "{seen} bytes read of {bytes}");
    Ok(())
}

/// Memory that direct I/O takes.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        const PAGE: usize = 4096;
        let memory = vec![0; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Aligned { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// What is written again and again.
const SOURCE_BYTES: usize = 8 << 20;

impl Content {
    fn fill(self, bytes: &mut [u8]) {
        let mut noise = Noise(3);
        if self == Content::Noise {
            return noise.fill(bytes);
        }
        let mut at = 0;
        while at < bytes.len() {
            let line = format!(
                "10.0.{}.{} - - \"GET /api/v2/orders?id={} HTTP/1.1\" 200 {} \"-\" \"curl/8.11.0\"\n",
                noise.below(16),
                noise.below(256),
                noise.below(100_000),
                noise.below(60_000)
            );
            let len = line.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&line.as_bytes()[..len]);
            at += len;
        }
    }
}

fn print(ways: &[Way], rows: &[Row], all: &[Vec<Vec<Measured>>]) {
    let ext4 = ways.iter().position(|way| *way == Way::Ext4);
    for (row, measured) in rows.iter().zip(all) {
        println!("{}", row.name());
        for (way, of_rounds) in ways.iter().zip(measured) {
            let rate = median(of_rounds.iter().map(|one| one.mib_per_second));
            let micros = median(of_rounds.iter().map(|one| one.micros));
            let ratio = ext4.and_then(|ext4| measured.get(ext4)).map(|ext4| {
                let rounds = of_rounds.iter().zip(ext4);
                median(rounds.map(|(ours, theirs)| ours.mib_per_second / theirs.mib_per_second))
            });
            print!("  {:<26} {rate:>7.0} MiB/s", way.name());
            if *way == Way::Ext4 {
                println!();
                continue;
            }
            let us_max = if row.writes {
                WRITING_US_MAX
            } else {
                READING_US_MAX
            };
            let of_ext4 = ratio.unwrap_or(f64::NAN);
            let ratio_met = if of_ext4 >= SHARE_MIN {
                "met"
            } else {
                "missed"
            };
            let micros_met = if micros <= us_max { "met" } else { "missed" };
            println!(
                "  {of_ext4:>5.2} of ext4 (bar {SHARE_MIN}, {ratio_met})  {micros:>5.0} us a MiB (bar {us_max}, {micros_met})"
            );
        }
    }
}
