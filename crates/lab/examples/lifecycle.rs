//! Small files made, overwritten and removed, each in a mount of its own: KiB sent to the drive for each file,
//! and zones erased. `cargo run -p persimmon-lab --release --example lifecycle [-- --compression zstd --rounds 365 --check]`

use std::process::ExitCode;

use clap::Parser;
use persimmon_format::Compression;
use persimmon_lab::lifecycle::Lifecycle;

const BLOCK: usize = 4096;
const FILES: [u64; 3] = [10, 100, 1000];

/// Measures what small files cost from their making to their removal.
#[derive(Parser)]
struct Arguments {
    /// How the volume is mounted.
    #[arg(long, default_value = "lz4", value_parser = compression)]
    compression: Compression,
    /// Of the files' content.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often all of it is done on the same volume: 365 for a year in which it is done once a day.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Answer failure when a bar is missed.
    #[arg(long)]
    check: bool,
}

fn compression(text: &str) -> Result<Compression, String> {
    let parsed = Compression::parse(text);
    parsed.ok_or_else(|| "none, lz4, zstd, or zstd:1 to zstd:15".to_owned())
}

struct Row {
    name: &'static str,
    bytes: usize,
    random_bytes: usize,
    /// For more than ten files: of fewer, what a mount itself sends is a large part of each one's share.
    bar: f64,
    /// For ten files, where there is one.
    bar_of_few: Option<f64>,
}

const ROWS: [Row; 6] = [
    row("empty", 0, BLOCK, 0.5, Some(3.0)),
    row("64 B", 64, BLOCK, 0.8, None),
    row("16 KiB", 16 << 10, BLOCK, 32.5, None),
    row("100 KiB", 100 << 10, BLOCK, 201.0, None),
    row("16 KiB, compresses 2:1", 16 << 10, BLOCK / 2, 17.0, None),
    row("100 KiB, compresses 2:1", 100 << 10, BLOCK / 2, 105.0, None),
];

const fn row(
    name: &'static str,
    bytes: usize,
    random_bytes: usize,
    bar: f64,
    bar_of_few: Option<f64>,
) -> Row {
    Row {
        name,
        bytes,
        random_bytes,
        bar,
        bar_of_few,
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error + Send + Sync>> {
    let arguments = Arguments::parse();
    println!(
        "| files | content | create | update | delete | KiB a file | bar | holds | GiB | zones erased |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for Row {
        name,
        bytes,
        random_bytes,
        bar,
        bar_of_few,
    } in ROWS
    {
        for files in FILES {
            let lifecycle = Lifecycle {
                files,
                bytes,
                random_bytes,
                compression: arguments.compression,
                seed: arguments.seed,
                rounds: arguments.rounds,
            };
            let sent = lifecycle.run()?;
            let bar = if files > 10 { Some(bar) } else { bar_of_few };
            let holds = match bar {
                None => "-",
                Some(bar) if sent.total() <= bar => "yes",
                Some(_) => {
                    missed += 1;
                    "**no**"
                }
            };
            let bar = bar.map_or("-".to_owned(), |bar| bar.to_string());
            println!(
                "| {files} | {name} | {:.2} | {:.2} | {:.2} | {:.2} | {bar} | {holds} | {:.3} | {} |",
                sent.create,
                sent.update,
                sent.delete,
                sent.total(),
                sent.total() * files as f64 * f64::from(arguments.rounds) / f64::from(1 << 20),
                sent.erased_zones
            );
        }
    }
    println!("\n{missed} bars missed");
    let failed = arguments.check && missed > 0;
    Ok(ExitCode::from(u8::from(failed)))
}
