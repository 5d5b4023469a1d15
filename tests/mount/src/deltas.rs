//! Pages of databases, of which some bytes change: they are written as deltas, and read as what they are.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::command::{output, script};
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "deltas::changed_pages_survive_kills",
        run: changed_pages_survive_kills,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "deltas::sqlite_finds_its_rows",
        run: sqlite_finds_its_rows,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

const PAGE: usize = 4096;
const PAGES: usize = 500;

fn deltas_stored(bed: &TestBed, image: &Path) -> Result<u64> {
    let mut command = std::process::Command::new(&bed.persimmon);
    let usage = output(command.arg("usage").arg("--json").arg(image))?;
    let usage: serde_json::Value = serde_json::from_str(&usage)?;
    Ok(usage["by_storage"]["deltas"]["stored_bytes"]
        .as_u64()
        .unwrap_or(0))
}

fn changed_pages_survive_kills(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("deltas", 256 << 20, &[])?;
    let options = ["deltas=always"];
    volume.mount(&options)?;
    let path = volume.dir.join("pages");
    let mut pages = noise(1, PAGES * PAGE);
    std::fs::write(&path, &pages)?;
    File::open(&path)?.sync_all()?;
    for round in 0..3usize {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        for change in 0..200usize {
            let page = (change * 7 + round * 13) % PAGES * PAGE;
            let at = page + (change * 31) % (PAGE - 100);
            pages[at..at + 100].copy_from_slice(&noise((round * 1000 + change) as u64, 100));
            file.write_all_at(&pages[page..page + PAGE], page as u64)?;
            file.sync_data()?;
        }
        drop(file);
        ensure!(std::fs::read(&path)? == pages, "round {round}: other pages");
        volume.kill()?;
        volume.mount(&options)?;
        ensure!(
            std::fs::read(&path)? == pages,
            "round {round}: other pages after a kill"
        );
    }
    volume.unmount()?;
    volume.fsck()?;
    let stored = deltas_stored(bed, &volume.image)?;
    ensure!(stored > 0, "nothing was written as a delta");
    // Without them they are read all the same.
    volume.mount(&["deltas=none"])?;
    ensure!(std::fs::read(&path)? == pages, "other pages without deltas");
    std::fs::remove_file(&path)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn sqlite_finds_its_rows(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("sqlite-deltas", 256 << 20, &[])?;
    volume.mount(&["deltas=always", "compression=none"])?;
    let dir = volume.dir.clone();
    let make = "sqlite3 db 'PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; \
        CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, filler BLOB); \
        WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<4000) \
        INSERT INTO t SELECT i, 0, randomblob(300) FROM c;'";
    script(&dir, &[], make)?;
    let update = "for i in $(seq 1 100); do \
        echo \"UPDATE t SET n=n+1 WHERE id=$(( (i*37) % 4000 + 1 ));\"; done | sqlite3 db";
    for _ in 0..2 {
        script(&dir, &[], update)?;
        volume.kill()?;
        volume.mount(&["deltas=always", "compression=none"])?;
    }
    let check = "test \"$(sqlite3 db 'PRAGMA integrity_check')\" = ok && \
        test \"$(sqlite3 db 'SELECT sum(n) FROM t')\" = 200";
    script(&dir, &[], check)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
