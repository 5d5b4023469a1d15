//! fsx: a million random operations on files, each read compared with memory.

use std::path::Path;

use anyhow::{Context, Result};

use super::workspace;
use crate::check::Place;
use crate::command::script;

super::programs!("fsx": a_million_operations);

/// Every operation that fsx has, few that wait for the device. No operation of no bytes: to
/// `posix_fallocate` that is EINVAL by POSIX, which fsx takes for a failure.
const CONFIG: &str = "flen = 262144\nnomsyncafterwrite = true\n[opsize]\nmin = 1\nmax = 16384\n[weights]\n\
    close_open = 1\nread = 30\nwrite = 30\nmapread = 10\nmapwrite = 10\ntruncate = 8\ninvalidate = 0.5\n\
    fsync = 0.05\nfdatasync = 0.05\nposix_fallocate = 2\npunch_hole = 4\nsendfile = 2\nposix_fadvise = 2\n\
    copy_file_range = 4\n";

/// The same with a wait for the device after each store through a map.
const CONFIG_SYNCED: &str = "flen = 1048576\n[opsize]\nmin = 1\nmax = 65536\n[weights]\n\
    close_open = 1\nread = 10\nwrite = 10\nmapread = 5\nmapwrite = 2\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
    punch_hole = 2\nposix_fallocate = 1\ncopy_file_range = 2\n";

fn a_million_operations(place: &Place) -> Result<()> {
    let fsx = workspace().join(".cache/bin/fsx");
    fsx.metadata()
        .context("fsx is not installed: cargo xtask setup")?;
    std::fs::write(place.outside.join("fsx.toml"), CONFIG)?;
    std::fs::write(place.outside.join("synced.toml"), CONFIG_SYNCED)?;
    let variables: [(&str, &Path); 2] = [("FSX", &fsx), ("OUTSIDE", &place.outside)];
    // Many runs, not one: fsx slows down with the number of its operations, on any filesystem.
    script(
        &place.dir,
        &variables,
        r#"
        run() {
            for seed in $(seq "$1" "$2"); do
                "$FSX" -q -f "$OUTSIDE/fsx.toml" -P "$OUTSIDE" -N 50000 -S "$seed" "file$1"
            done
        }
        run 1 10 & one=$!
        run 11 20 & two=$!
        "$FSX" -q -f "$OUTSIDE/synced.toml" -P "$OUTSIDE" -N 10000 -S 21 synced & three=$!
        wait $one; wait $two; wait $three
        "#,
    )
    .map(|_| ())
}
