//! What was flushed to a file that was opened to keep it, when the process is killed before anything else is done.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use persimmon::{Filesystem, OpenOptions, Options};

const FILE: &str = "/log";
const RECORD: usize = 100;
const KILLS: u64 = 3;
/// Records that are acknowledged before each kill.
const ACKNOWLEDGED: u64 = 500;
const TAILS: &str = "/dev/shm";

/// Kills writers on a volume, and looks, by another name of it or the same, for what was acknowledged.
pub fn run(drive: &Path, then: &Path) -> Result<()> {
    for _ in 0..KILLS {
        let acknowledged = killed(drive)?;
        // Otherwise each flush went to the drive: safe, and what keeping them is to spare.
        ensure!(tails()? > 0, "no flush is kept in {TAILS}");
        let fs = Filesystem::open(then, &Options::default())?;
        let content = fs.read(FILE)?;
        fs.close()?;
        let records = content.chunks(RECORD);
        let good = (0..)
            .zip(records)
            .take_while(|(number, found)| *found == record(*number));
        let there = good.count() as u64;
        println!("{acknowledged} records were acknowledged, {there} are there");
        ensure!(there >= acknowledged, "flushed records are lost");
        ensure!(content.len() as u64 == there * RECORD as u64, "a torn end");
        ensure!(tails()? == 0, "what was brought in is still in {TAILS}");
    }
    Ok(())
}

/// Runs a writer until it has acknowledged some records, then kills it; how many there have to be.
fn killed(drive: &Path) -> Result<u64> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("kept").arg("--write").arg(drive);
    let mut writer = command.stdout(Stdio::piped()).spawn()?;
    let output = writer.stdout.take().context("a piped standard output")?;
    let mut last = None;
    for (count, line) in (1..).zip(BufReader::new(output).lines()) {
        last = Some(line?.parse()?);
        // What it says meanwhile waits in the pipe, and is read to its end.
        if count == ACKNOWLEDGED {
            writer.kill()?;
        }
    }
    let status = writer.wait()?;
    ensure!(
        status.code().is_none(),
        "the writer ended by itself after {last:?}: {status}"
    );
    last.context("nothing was acknowledged")
}

/// Appends records without end, flushes each and says how many there are.
pub fn write(drive: &Path) -> Result<()> {
    // Nothing is committed by itself.
    let options = Options {
        commit_interval: std::time::Duration::from_secs(3600),
        ..Options::default()
    };
    let fs = Filesystem::open(drive, &options)?;
    let keeping = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .keep_flushed(true);
    let log = fs.open_file(FILE, &keeping)?;
    let first = log.metadata()?.size / RECORD as u64;
    let mut output = std::io::stdout();
    for number in first.. {
        log.append(&record(number))?;
        log.flush_through()?;
        writeln!(output, "{}", number + 1)?;
        output.flush()?;
    }
    Ok(())
}

fn record(number: u64) -> Vec<u8> {
    format!("{number:0width$}", width = RECORD).into_bytes()
}

/// Directories of tails there are. Nobody else in the guest has any.
fn tails() -> Result<usize> {
    let entries = std::fs::read_dir(TAILS).context(TAILS)?;
    let entries = entries.collect::<std::io::Result<Vec<_>>>()?;
    let is_of_tails = |name: &str| name.starts_with("persimmon-");
    let names = entries.iter().map(std::fs::DirEntry::file_name);
    Ok(names
        .filter(|name| is_of_tails(&name.to_string_lossy()))
        .count())
}
