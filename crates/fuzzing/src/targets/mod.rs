//! The targets. Each takes any bytes; `seeds` are inputs that lead somewhere.

mod container;
mod journal;
mod pages;
mod stream;
mod striped;
mod structures;
mod tree;
mod volume;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which its libFuzzer binary has too.
    pub name: &'static str,
    /// Does with an input what the target is about; panics if that fails.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Runs under the test command.
    pub runs: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "zone_header",
        run: structures::zone_header,
        seeds: structures::zone_header_seeds,
        runs: 20_000,
    },
    Target {
        name: "log_block",
        run: structures::log_block,
        seeds: structures::log_block_seeds,
        runs: 20_000,
    },
    Target {
        name: "footer",
        run: structures::footer,
        seeds: structures::footer_seeds,
        runs: 20_000,
    },
    Target {
        name: "table",
        run: structures::table,
        seeds: structures::table_seeds,
        runs: 20_000,
    },
    Target {
        name: "summary",
        run: structures::summary,
        seeds: structures::summary_seeds,
        runs: 20_000,
    },
    Target {
        name: "value",
        run: structures::value,
        seeds: structures::value_seeds,
        runs: 40_000,
    },
    Target {
        name: "record",
        run: structures::record,
        seeds: structures::record_seeds,
        runs: 20_000,
    },
    Target {
        name: "page",
        run: pages::page,
        seeds: pages::seeds,
        runs: 5_000,
    },
    Target {
        name: "tree",
        run: tree::tree,
        seeds: tree::seeds,
        runs: 3_000,
    },
    Target {
        name: "container",
        run: container::container,
        seeds: container::seeds,
        runs: 1_000,
    },
    Target {
        name: "journal",
        run: journal::journal,
        seeds: journal::seeds,
        runs: 600,
    },
    Target {
        name: "volume",
        run: volume::volume,
        seeds: volume::seeds,
        runs: 1_000,
    },
    Target {
        name: "stream",
        run: stream::stream,
        seeds: stream::seeds,
        runs: 600,
    },
    Target {
        name: "mirrored",
        run: striped::mirrored,
        seeds: striped::seeds,
        runs: 300,
    },
    Target {
        name: "with_parity",
        run: striped::with_parity,
        seeds: striped::seeds,
        runs: 300,
    },
];

/// The target of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
