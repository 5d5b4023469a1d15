//! A log that several threads append to: what is there after the process has died, and what a reader asks for together.
//!
//!     cargo run --example log -- volume.img

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use persimmon::{Create, Filesystem, Lifetime, OpenOptions, Options};

const LINE: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(image) => log(image.as_ref()),
        None => Err("usage: log IMAGE".into()),
    }
}

fn line(thread: usize, number: usize) -> Vec<u8> {
    let mut line = format!("thread {thread} line {number}").into_bytes();
    line.resize(LINE - 1, b' ');
    line.push(b'\n');
    line
}

/// Makes the volume in a new image, and lets the process die, or nearly so.
pub fn log(image: &Path) -> Result<(), Box<dyn Error>> {
    Filesystem::create(image, &Create::sized(64 << 20))?;
    let options = Options {
        // Nothing becomes durable by itself while this runs.
        commit_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let fs = Filesystem::open(image, &options)?;
    // What it holds is soon replaced: it lies beside what goes as soon.
    let append = OpenOptions::new()
        .append(true)
        .create(true)
        .lifetime(Lifetime::Short);
    let through = fs.open_file("/through", &append.write_through(true))?;
    let buffered = fs.open_file("/buffered", &append)?;
    std::thread::scope(|threads| {
        let through = &through;
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                threads.spawn(move || {
                    (0..25).try_for_each(|number| through.append(&line(thread, number)).map(drop))
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| {
            writer
                .join()
                .map_err(|_| "a writer panicked")?
                .map_err(|error| error.to_string())
        })
    })?;
    buffered.append(&line(9, 0))?;
    // All until here, and no flush of the device; `sync_all` is what the power cannot take back.
    buffered.flush_through()?;
    buffered.append(&line(9, 1))?;
    drop((through, buffered));
    // As if the process had been killed here.
    fs.abandon();

    let fs = Filesystem::open(image, &options)?;
    assert_eq!(fs.metadata("/through")?.size, 100 * LINE as u64);
    assert_eq!(fs.read("/buffered")?, line(9, 0));

    // Two lines asked for together, and one for later.
    let file = fs.open_file("/through", &OpenOptions::new().read(true))?;
    let later = file.submit_read(LINE, 50 * LINE as u64)?;
    let (mut first, mut last) = ([0; LINE], [0; LINE]);
    let mut ranges = [(0, &mut first[..]), (99 * LINE as u64, &mut last[..])];
    for read in file.read_batch(&mut ranges)? {
        assert_eq!(read?, LINE);
    }
    while !later.is_done() {
        std::thread::yield_now();
    }
    std::io::stdout().write_all(&later.wait()?)?;
    drop(file);
    Ok(fs.close()?)
}
