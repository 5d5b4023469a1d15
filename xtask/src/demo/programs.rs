//! Ordinary programs on the mount: a source tree, git, SQLite, and all of it again after a remount.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Page;
use super::counters::Counters;
use crate::volume::{Volume, output};
use crate::workspace_root;

/// How much is copied at most.
const TREE_BYTES_MAX: u64 = 64 << 20;

/// What a build or a cache leaves in a checkout, and git's own.
const NOT_SOURCE: [&str; 3] = ["target", ".cache", ".git"];

pub fn show(page: &mut Page, volume: &Volume, counters: &mut Counters) -> Result<()> {
    let sources = sources()?;
    page.step("copy a source tree", || copy(&sources, &volume.dir))?;
    page.step("git", || git(&volume.dir))?;
    page.step("SQLite", || sqlite(&volume.dir))?;
    page.step("unmount, mount again", || {
        counters.add(volume)?;
        volume.unmount()?;
        volume.mount()?;
        compare(&sources, &volume.dir)?;
        script(
            &volume.dir,
            &format!("{GIT} git -C clone fsck --full --strict"),
        )?;
        let rows = script(
            &volume.dir,
            "sqlite3 db 'PRAGMA integrity_check; SELECT count(*) FROM t'",
        )?;
        ensure!(rows == format!("ok\n{ROWS}\n"), "SQLite says {rows}");
        counters.add(volume)?;
        Ok("tree, clone and database read back from the device: all the same".into())
    })
}

/// One thing to copy: from where, to which name on the mount, and its size.
struct Source {
    path: PathBuf,
    name: String,
    files: u64,
    bytes: u64,
}

/// This checkout, and as many of the crates it is built with as fit.
fn sources() -> Result<Vec<Source>> {
    let mut sources = vec![source(&workspace_root(), "project")?];
    let mut bytes = sources[0].bytes;
    let mut crates = Vec::new();
    for registry in read_dir(&cargo_home().join("registry/src")) {
        crates.extend(read_dir(&registry));
    }
    crates.sort();
    for path in crates {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let next = source(&path, &format!("crates-{name}"))?;
        if bytes + next.bytes <= TREE_BYTES_MAX {
            bytes += next.bytes;
            sources.push(next);
        }
    }
    Ok(sources)
}

/// cargo's own place; under sudo that of the user who called.
fn cargo_home() -> PathBuf {
    let home = || std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    std::env::var_os("CARGO_HOME").map_or_else(|| Path::new(&home()).join(".cargo"), PathBuf::from)
}

/// What is in a directory; nothing when there is none.
fn read_dir(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

fn source(path: &Path, name: &str) -> Result<Source> {
    let mut source = Source {
        path: path.to_owned(),
        name: name.to_owned(),
        files: 0,
        bytes: 0,
    };
    let mut dirs: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in
            std::fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?
        {
            let entry = entry?;
            let kind = entry.file_type()?;
            if dir == path && NOT_SOURCE.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                source.files += 1;
                source.bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(source)
}

/// rsync between a source and its copy, without what is not source.
fn rsync(source: &Source, dir: &Path, options: &[&str]) -> Result<String> {
    let mut command = Command::new("rsync");
    command.args(["-aH", "--delete"]).args(options);
    command.args(NOT_SOURCE.map(|name| format!("--exclude=/{name}")));
    command.arg(format!("{}/", source.path.display()));
    output(command.arg(format!("{}/", dir.join(&source.name).display())))
}

fn copy(sources: &[Source], dir: &Path) -> Result<String> {
    for source in sources {
        rsync(source, dir, &["--whole-file"])?;
    }
    compare(sources, dir)?;
    let files: u64 = sources.iter().map(|source| source.files).sum();
    let bytes: u64 = sources.iter().map(|source| source.bytes).sum();
    Ok(format!(
        "this project and {} crates: {files} files, {} MiB; content and attributes compared",
        sources.len() - 1,
        bytes >> 20
    ))
}

/// Every byte, mode, owner and time is the same.
fn compare(sources: &[Source], dir: &Path) -> Result<()> {
    for source in sources {
        let differences = rsync(source, dir, &["-c", "--dry-run", "--itemize-changes"])?;
        ensure!(
            differences.is_empty(),
            "the copy differs from {}:\n{differences}",
            source.path.display()
        );
    }
    Ok(())
}

/// Neither the user's settings nor the owner of the directory shall matter.
const GIT: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_COUNT=3 \
    GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_CONFIG_KEY_1=user.name \
    GIT_CONFIG_VALUE_1=Demo GIT_CONFIG_KEY_2=user.email GIT_CONFIG_VALUE_2=demo@localhost;";

fn git(dir: &Path) -> Result<String> {
    let text = "
        cp -a project repository
        cd repository
        find . -type d -empty -delete
        git init -q -b main
        git add -A -f
        git commit -q -m 'The tree'
        git fsck --full --strict
        cd ..
        git clone -q --no-local repository clone
        git -C clone gc -q --prune=now
        git -C clone fsck --full --strict
        git -C clone status --porcelain
        diff -r --no-dereference --exclude=.git repository clone
        git -C clone ls-files | wc -l";
    let said = script(dir, &format!("{GIT}{text}"))?;
    let files = said.trim().lines().last().unwrap_or_default();
    Ok(format!(
        "init, add, commit, clone, gc, fsck; {files} files checked out the same"
    ))
}

const ROWS: u32 = 40_000;

fn sqlite(dir: &Path) -> Result<String> {
    let said = script(
        dir,
        "
        sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, writer, body);
            CREATE INDEX by_body ON t(body)'
        writer() {
            for batch in $(seq 20); do
                sqlite3 -cmd '.timeout 30000' db \"INSERT INTO t(writer, body) WITH RECURSIVE n(x) AS
                    (SELECT 1 UNION ALL SELECT x+1 FROM n LIMIT 1000) SELECT $1, hex(randomblob(60)) FROM n;
                    UPDATE t SET body = hex(randomblob(20)) WHERE writer = $1 AND id % 7 = 0\"
            done
        }
        writer 1 & first=$!
        writer 2
        wait $first
        sqlite3 db 'PRAGMA integrity_check; SELECT count(*) FROM t'",
    )?;
    ensure!(said == format!("wal\nok\n{ROWS}\n"), "SQLite says {said}");
    Ok(format!(
        "WAL, two writers at once, 80 transactions, {ROWS} rows: integrity_check ok"
    ))
}

fn script(dir: &Path, text: &str) -> Result<String> {
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        "100",
        "bash",
        "-euo",
        "pipefail",
        "-c",
        text,
    ]);
    output(command.current_dir(dir))
}
