//! Databases on any filesystem: SQLite's and PostgreSQL's own programs, one transaction after the other, each
//! durable before the next. Run where these programs are: in this machine's root, which the guest sees.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Rows of the table that transactions change.
const ROWS: u64 = 50_000;
/// Rows put in by one statement.
const BATCH: u64 = 500;
/// PostgreSQL's rows are 100,000 for each.
const SCALE: &str = "2";

/// Words of notes, so that rows compress as text does.
const WORDS: [&str; 16] = [
    "account", "branch", "cash", "daily", "entry", "fee", "gross", "held", "interest", "joint",
    "ledger", "monthly", "net", "open", "paid", "quarter",
];

/// How SQLite keeps a transaction whole.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Journal {
    /// What changes is appended to a log, and goes to the table every thousand pages
    Wal,
    /// What was there goes to a file of its own, which the commit deletes
    Delete,
}

/// Makes the table of accounts that transactions change.
pub fn sqlite_load(dir: &Path, journal: Journal, draw: &mut dyn FnMut(u64) -> u64) -> Result<()> {
    let mode = match journal {
        Journal::Wal => "WAL",
        Journal::Delete => "DELETE",
    };
    let mut script = format!(
        "PRAGMA journal_mode={mode};\n\
         CREATE TABLE account(id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER, note TEXT);\n\
         CREATE TABLE history(id INTEGER PRIMARY KEY, account INTEGER, delta INTEGER, at TEXT, note TEXT);\n"
    );
    for first in (0..ROWS).step_by(BATCH as usize) {
        script.push_str("INSERT INTO account VALUES");
        for id in first..first + BATCH {
            let comma = if id == first { "" } else { "," };
            let owner = draw(u64::MAX);
            write!(
                script,
                "{comma}({id},'{owner:016x}',{},'{}')",
                draw(100_000),
                note(draw)
            )?;
        }
        script.push_str(";\n");
    }
    sqlite(dir, &script)
}

/// So many transfers, each a transaction of one changed and one new row.
pub fn sqlite_transfer(dir: &Path, count: u64, draw: &mut dyn FnMut(u64) -> u64) -> Result<()> {
    let mut script = String::from("PRAGMA synchronous=FULL;\n");
    for number in 0..count {
        let (id, delta) = (draw(ROWS), draw(10_000));
        writeln!(
            script,
            "BEGIN; UPDATE account SET balance=balance+{delta} WHERE id={id}; \
             INSERT INTO history(account,delta,at,note) VALUES({id},{delta},'2026-11-26 {:08}','{}'); COMMIT;",
            number,
            note(draw)
        )?;
    }
    sqlite(dir, &script)
}

fn note(draw: &mut dyn FnMut(u64) -> u64) -> String {
    let words = (0..8).map(|_| WORDS[draw(WORDS.len() as u64) as usize]);
    words.collect::<Vec<_>>().join(" ")
}

fn sqlite(dir: &Path, script: &str) -> Result<()> {
    let mut program = Command::new("sqlite3")
        .arg("-bail")
        .arg(dir.join("database"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot run sqlite3")?;
    let mut input = program.stdin.take().context("a piped standard input")?;
    input.write_all(script.as_bytes())?;
    drop(input);
    let status = program.wait()?;
    ensure!(status.success(), "sqlite3: {status}");
    Ok(())
}

/// Makes a cluster with pgbench's tables.
pub fn postgres_load(dir: &Path) -> Result<()> {
    let script = format!(
        "initdb -A trust --no-sync >/dev/null\n\
         cat >> $PGDATA/postgresql.conf <<CONF\n\
         listen_addresses = ''\nmax_wal_size = 64MB\ncheckpoint_timeout = 1h\nshared_buffers = 32MB\nCONF\n\
         start\nquietly pgbench -q -i -s {SCALE}"
    );
    postgres(dir, &script)
}

/// So many of pgbench's transactions by one client, then a checkpoint.
pub fn postgres_transfer(dir: &Path, count: u64) -> Result<()> {
    postgres(
        dir,
        &format!("start\nquietly pgbench -n -c 1 -t {count}\npsql -qAt -c CHECKPOINT"),
    )
}

/// Runs a script as the user `postgres`, who alone may run the server, which is stopped at its end.
fn postgres(dir: &Path, script: &str) -> Result<()> {
    let data = dir.join("cluster");
    std::fs::create_dir_all(&data)?;
    let status = Command::new("chown").arg("postgres").arg(&data).status()?;
    ensure!(status.success(), "chown: {status}");
    let whole = format!(
        "set -euo pipefail\n\
         PGHOST=$(mktemp -d /tmp/pg-XXXXXX); export PGHOST\n\
         trap 'pg_ctl stop -w -t 600 -m fast >/dev/null 2>&1 || true; rm -rf $PGHOST' EXIT\n\
         start() {{ pg_ctl start -w -t 600 -o \"-k $PGHOST\" -l $PGHOST/log >/dev/null || {{ cat $PGHOST/log >&2; exit 1; }}; }}\n\
         quietly() {{ \"$@\" >$PGHOST/said 2>&1 || {{ cat $PGHOST/said >&2; exit 1; }}; }}\n\
         {script}\n"
    );
    let path = format!("{}:{}", programs()?.display(), std::env::var("PATH")?);
    let status = Command::new("runuser")
        .args([
            "-u",
            "postgres",
            "--",
            "env",
            "LC_ALL=C",
            "PGDATABASE=postgres",
        ])
        .arg(format!("PATH={path}"))
        .arg(format!("PGDATA={}", data.display()))
        .args(["bash", "-c", &whole])
        .status()
        .context("cannot run runuser")?;
    ensure!(status.success(), "PostgreSQL: {status}");
    Ok(())
}

/// The newest installed version's programs, which Debian keeps off the path.
fn programs() -> Result<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is not installed: cargo xtask setup")?
        .map(|entry| entry.map(|entry| entry.path().join("bin")))
        .collect::<Result<_, _>>()?;
    versions.sort();
    versions.pop().context("no version of PostgreSQL")
}
