//! Synced work for power cuts, and the search for what was acknowledged.
//!
//! Each line that the load prints was true when it was printed: `FILE LENGTH` means that the first
//! so many bytes of the file were acknowledged. Content follows from name and offset, so a file
//! tells by itself whether it holds what it should.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Writers at the same time.
const WRITERS: u32 = 4;
/// Appends to one file before the next one.
const APPENDS: u64 = 40;

/// Files that [`once`] writes in each thread.
const FILES_ONCE: u64 = 5;

/// What acknowledges that something is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// fsync, fdatasync, and fsync of the directory.
    Fsync,
    /// The file is not synced itself.
    Sync,
    /// The same of the filesystem.
    Syncfs,
}

/// Appends to files and syncs, in several threads, until something fails.
pub fn run(dir: &Path, round: u32, by: By) -> Result<()> {
    in_threads(|writer| match by {
        By::Fsync => write(dir, round, writer),
        By::Sync | By::Syncfs => write_unsynced(dir, round, writer, u64::MAX, || {
            match by {
                By::Syncfs => rustix::fs::syncfs(File::open(dir)?)?,
                _ => rustix::fs::sync(),
            }
            Ok(())
        }),
    })
}

/// Writes some files and syncs nothing.
pub fn once(dir: &Path, round: u32) -> Result<()> {
    in_threads(|writer| write_unsynced(dir, round, writer, FILES_ONCE, || Ok(())))
}

/// Every other file is written through a shared map that stays; all get their names by a rename.
fn write_unsynced(
    dir: &Path,
    round: u32,
    writer: u32,
    files: u64,
    acknowledge: impl Fn() -> Result<()>,
) -> Result<()> {
    for number in 0..files {
        let name = format!("{round}-{writer}-{number}");
        let length = 100 + content(&name, 0) % 10 * 7000;
        let path = dir.join(format!("new-{name}"));
        let mut options = OpenOptions::new();
        let file = options.create(true).read(true).write(true).open(&path)?;
        let data = piece(&name, 0, length);
        let _map = match number % 2 {
            0 => {
                file.write_all_at(&data, 0)?;
                None
            }
            _ => {
                file.set_len(length)?;
                Some(Stored::new(&file, &data)?)
            }
        };
        fs::rename(&path, dir.join(&name))?;
        acknowledge()?;
        let mut out = io::stdout().lock();
        writeln!(out, "{name} {length}")?;
        if number >= 40 {
            // Room for others.
            let old = format!("{round}-{writer}-{}", number - 40);
            writeln!(out, "{old} gone")?;
            fs::remove_file(dir.join(&old))?;
        }
        out.flush()?;
    }
    Ok(())
}

/// A shared map, stored through.
struct Stored {
    at: *mut std::ffi::c_void,
    len: usize,
}

impl Stored {
    #[allow(unsafe_code)]
    fn new(file: &File, data: &[u8]) -> Result<Stored> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of a file that is as long; nobody else refers to it until it is unmapped.
        let at = unsafe {
            let hint = std::ptr::null_mut();
            let at = mmap(hint, data.len(), protection, MapFlags::SHARED, file, 0)?;
            at.cast::<u8>().copy_from(data.as_ptr(), data.len());
            at
        };
        Ok(Stored {
            at,
            len: data.len(),
        })
    }
}

impl Drop for Stored {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

fn in_threads(write: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    let failed = std::thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        let results = writers.into_iter().map(|writer| writer.join());
        results
            .filter_map(|result| result.ok().and_then(Result::err))
            .last()
    });
    failed.map_or(Ok(()), Err)
}

fn write(dir: &Path, round: u32, writer: u32) -> Result<()> {
    for number in 0.. {
        let name = format!("{round}-{writer}-{number}");
        let path = dir.join(&name);
        let file = File::create(&path)?;
        let mut length = 0;
        for append in 0..APPENDS {
            // From within a block to many blocks.
            let bytes = 100 + (content(&name, append) % 5) * 7000;
            file.write_all_at(&piece(&name, length, bytes), length)?;
            length += bytes;
            match append % 3 {
                0 => file.sync_all()?,
                1 => file.sync_data()?,
                // A new name, and all that is in it.
                _ if append == 2 => {
                    file.sync_all()?;
                    File::open(dir)?.sync_all()?;
                }
                _ => file.sync_all()?,
            }
            let mut out = io::stdout().lock();
            writeln!(out, "{name} {length}")?;
            out.flush()?;
        }
        if number >= 3 {
            // Room for others, and work for cleaning: what was acknowledged of it is void from here.
            let old = format!("{round}-{writer}-{}", number - 3);
            writeln!(io::stdout().lock(), "{old} gone")?;
            fs::remove_file(dir.join(&old))?;
        }
    }
    Ok(())
}

/// Reads what was acknowledged from standard input, and looks for it.
pub fn verify(dir: &Path) -> Result<()> {
    let mut acknowledged: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let Some((name, length)) = line.trim().split_once(' ') else {
            continue;
        };
        match (length.parse(), length) {
            (Ok(length), _) => acknowledged.insert(name.to_owned(), Some(length)),
            (Err(_), "gone") => acknowledged.insert(name.to_owned(), None),
            // The line that the cut went through.
            (Err(_), _) => continue,
        };
    }
    let mut bytes = 0;
    for (name, length) in &acknowledged {
        let Some(length) = length else {
            continue;
        };
        let file = OpenOptions::new().read(true).open(dir.join(name));
        let file = file.with_context(|| format!("{name} was acknowledged"))?;
        let found = file.metadata()?.len();
        ensure!(
            found >= *length,
            "{name}: {found} bytes; {length} were acknowledged"
        );
        let mut content = vec![0; usize::try_from(*length)?];
        file.read_exact_at(&mut content, 0)?;
        ensure!(
            content == piece(name, 0, *length),
            "{name} holds something else"
        );
        bytes += length;
    }
    println!("verified {} files, {bytes} bytes", acknowledged.len());
    Ok(())
}

fn content(name: &str, number: u64) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), number)
}

/// Bytes of a file, from an offset on.
fn piece(name: &str, offset: u64, bytes: u64) -> Vec<u8> {
    (offset..offset + bytes)
        .map(|at| (content(name, at / 8) >> (at % 8 * 8)) as u8)
        .collect()
}
