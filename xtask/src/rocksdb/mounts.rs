//! The same volume by the plugin and mounted: each shows what the other wrote, and while one has it the other is refused.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Tally;
use super::plugin::{Plugin, output, refused, uri};
use crate::volume;

const VOLUME_BYTES: u64 = 1 << 30;

/// All of it.
pub fn all(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    tally.check("a database of the plugin is read through a mount", || {
        plugin_to_mount(plugin, scratch)
    });
    tally.check(
        "a database made through a mount opens through the plugin",
        || mount_to_plugin(plugin, scratch),
    );
    tally.check("while it is mounted the plugin is refused", || {
        mounted_first(plugin, scratch)
    });
    tally.check("while a database runs every mount is refused", || {
        plugin_first(plugin, scratch)
    });
}

/// A mount that ends with it.
struct Mount {
    dir: PathBuf,
}

impl Mount {
    fn new(plugin: &Plugin, image: &Path) -> Result<Mount> {
        let dir = image.with_extension("mounted");
        fs::create_dir_all(&dir)?;
        // The daemon must not inherit a pipe that somebody reads to its end.
        let mut mount = plugin.tool("mount");
        mount.arg(image).arg(&dir).stdout(Stdio::null());
        ensure!(mount.status()?.success(), "mounting {}", image.display());
        Ok(Mount { dir })
    }

    fn unmount(self, plugin: &Plugin) -> Result<()> {
        output(plugin.tool("umount").arg(&self.dir)).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = volume::detach(&self.dir) {
            eprintln!("unmounting {}: {error:#}", self.dir.display());
        }
    }
}

/// Checks a database with a program of RocksDB, and tells all that it holds.
fn content(
    ldb: impl Fn() -> Command,
    sst_dump: impl Fn() -> Command,
    database: &str,
) -> Result<String> {
    let at = format!("--db={database}");
    let said = output(ldb().args(["checkconsistency", &at]))?;
    ensure!(said.contains("OK"), "ldb checkconsistency: {said}");
    let file = format!("--file={database}");
    let said = output(sst_dump().args([&file, "--command=check"]))?;
    ensure!(said.contains(".sst"), "sst_dump: {said}");
    output(ldb().args(["scan", "--hex", &at]))
}

fn by_plugin(plugin: &Plugin, image: &Path, database: &str) -> Result<String> {
    let at = format!("--fs_uri={}", uri(image, ""));
    let program = |name: &str| {
        let mut command = plugin.program(name);
        command.arg(&at);
        command
    };
    content(|| program("ldb"), || program("sst_dump"), database)
}

fn by_mount(plugin: &Plugin, mount: &Mount, database: &str) -> Result<String> {
    let database = format!("{}{database}", mount.dir.display());
    content(
        || Command::new(plugin.path_of("ldb")),
        || Command::new(plugin.path_of("sst_dump")),
        &database,
    )
}

const FILL: &[&str] = &["--num=30000", "--benchmarks=fillrandom,overwrite,compact"];

fn plugin_to_mount(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let image = plugin.make_volume(scratch, "to-mount.img", VOLUME_BYTES)?;
    let mut fill = plugin.program("db_bench");
    fill.args(FILL).arg("--db=/db");
    output(fill.arg(format!("--fs_uri={}", uri(&image, ""))))?;
    let written = by_plugin(plugin, &image, "/db")?;
    let mount = Mount::new(plugin, &image)?;
    let read = by_mount(plugin, &mount, "/db");
    // RocksDB's own files, as files.
    let current = fs::read_to_string(mount.dir.join("db/CURRENT"));
    mount.unmount(plugin)?;
    ensure!(
        current?.starts_with("MANIFEST-"),
        "CURRENT names no MANIFEST"
    );
    ensure!(written.lines().count() > 1000, "the database is empty");
    ensure!(read? == written, "the mount shows another database");
    plugin.fsck(&image)
}

fn mount_to_plugin(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let image = plugin.make_volume(scratch, "to-plugin.img", VOLUME_BYTES)?;
    let mount = Mount::new(plugin, &image)?;
    let mut fill = Command::new(plugin.path_of("db_bench"));
    fill.args(FILL);
    let filled = output(fill.arg(format!("--db={}/db", mount.dir.display())));
    let written = filled.and_then(|_| by_mount(plugin, &mount, "/db"));
    mount.unmount(plugin)?;
    let written = written?;
    ensure!(written.lines().count() > 1000, "the database is empty");
    let read = by_plugin(plugin, &image, "/db")?;
    ensure!(read == written, "the plugin shows another database");
    plugin.fsck(&image)
}

fn mounted_first(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let image = plugin.make_volume(scratch, "mounted-first.img", VOLUME_BYTES)?;
    let mount = Mount::new(plugin, &image)?;
    let mut bench = plugin.program("db_bench");
    bench.args(["--benchmarks=fillseq", "--num=1"]);
    bench.arg(format!("--fs_uri={}", uri(&image, "")));
    let told = refused(&mut bench, &["in use", "mounted-first.img"]);
    mount.unmount(plugin)?;
    told
}

/// Nothing is mounted beside a database that runs: a read-only mount would replay a journal that moves on below it.
fn plugin_first(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let image = plugin.make_volume(scratch, "plugin-first.img", VOLUME_BYTES)?;
    let state = scratch.join("plugin-first.state");
    let mut writer = plugin.test("crash_test");
    writer
        .args([&uri(&image, ""), "/db"])
        .arg(&state)
        .arg("flush");
    let mut writer = writer.stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let stdout = writer.stdout.take().context("a piped standard output")?;
    let read = BufReader::new(stdout).read_line(&mut said);
    let dir = image.with_extension("mounted");
    let told = fs::create_dir_all(&dir).map_err(Into::into).and_then(|()| {
        refused(plugin.tool("mount").arg(&image).arg(&dir), &["in use"])?;
        let mut mount = plugin.tool("mount");
        refused(mount.args(["-o", "ro"]).arg(&image).arg(&dir), &["in use"])?;
        let mut other = plugin.program("ldb");
        other.args(["checkconsistency", "--db=/db"]);
        refused(
            other.arg(format!("--fs_uri={}", uri(&image, ""))),
            &["in use"],
        )
    });
    writer.kill()?;
    writer.wait()?;
    read?;
    ensure!(said.contains("hold"), "the writer said {said:?}");
    told
}
