//! The RocksDB plugin: built against the RocksDB that is installed, and RocksDB's own programs run through it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{capi, setup, shell};

/// What the command is to do.
#[derive(Args)]
pub struct Options {
    /// Only build the plugin, and say where it is
    #[arg(long)]
    build: bool,
    /// Build with debug assertions: slow, and what the test command runs
    #[arg(long)]
    debug: bool,
}

/// Debian packages, each with what uses it.
const PACKAGES: &[(&str, &str)] = &[
    ("g++", "the RocksDB plugin"),
    ("librocksdb-dev", "headers of RocksDB"),
    ("rocksdb-tools", "db_bench, ldb and sst_dump"),
];

const FOLDER: &str = "plugin/rocksdb";
const SOURCES: &[&str] = &["volume.cc", "files.cc", "filesystem.cc", "register.cc"];
/// Bytes of the volume that the checks use.
const VOLUME_BYTES: u64 = 1 << 30;

/// What db_bench is run with, each on a database of its own.
const BENCHES: &[(&str, &[&str])] = &[
    ("buffered", &[]),
    (
        "direct",
        &[
            "--use_direct_reads",
            "--use_direct_io_for_flush_and_compaction",
        ],
    ),
    ("blob files", &["--enable_blob_files", "--min_blob_size=64"]),
];
const BENCHMARKS: &str = "fillseq,fillrandom,overwrite,readrandom,readwhilewriting,fillsync,seekrandom,\
                          multireadrandom,deleterandom,compact,verifychecksum";

/// Builds the plugin and runs the checks; true when all hold.
pub fn run(options: &Options) -> Result<bool> {
    let plugin = Plugin::build(!options.debug)?;
    println!("{}", plugin.folder.display());
    if options.build {
        return Ok(true);
    }
    let (passed, failed) = plugin.check()?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// The plugin where it was built.
pub struct Plugin {
    folder: PathBuf,
}

impl Plugin {
    /// Builds the plugin, and the library below it.
    pub fn build(release: bool) -> Result<Plugin> {
        setup::install(PACKAGES)?;
        let library = capi::build(release)?;
        let folder = library.join("rocksdb");
        fs::create_dir_all(&folder)?;
        let mut cxx = shell::command(&["c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]);
        // RocksDB is built without run-time type information.
        cxx.args([
            "-fPIC",
            "-shared",
            "-fno-rtti",
            "-fvisibility=hidden",
            "-fvisibility-inlines-hidden",
        ]);
        cxx.arg("-I").arg(library.join("include"));
        cxx.args(SOURCES.iter().map(|file| format!("{FOLDER}/{file}")));
        cxx.arg(format!("-Wl,--version-script={FOLDER}/plugin.map"));
        cxx.arg("-L").arg(library.join("lib")).arg("-lpersimmon");
        cxx.arg(format!("-Wl,-rpath,{}", library.join("lib").display()));
        cxx.arg("-lrocksdb")
            .arg("-o")
            .arg(folder.join("libpersimmon_rocksdb.so"));
        shell::check(&mut cxx).context("building the plugin")?;
        fs::copy(
            format!("{FOLDER}/persimmon-rocksdb"),
            folder.join("persimmon-rocksdb"),
        )?;
        Ok(Plugin { folder })
    }

    /// RocksDB's own programs on a volume: how many checks hold, and how many do not.
    pub fn check(&self) -> Result<(usize, usize)> {
        let scratch = tempfile::tempdir_in("/var/tmp")?;
        let image = scratch.path().join("rocksdb.img");
        let mut persimmon = shell::command(&["target/debug/persimmon", "mkfs", "--size"]);
        shell::check(persimmon.arg(VOLUME_BYTES.to_string()).arg(&image))?;
        let uri = format!("persimmon://{}", image.display());
        let mut tally = Tally::default();
        for (name, options) in BENCHES {
            tally.check(name, || self.bench(&uri, &name.replace(' ', "-"), options));
        }
        tally.check("checkpoint, backup, restore, consistency, tables", || {
            self.tools(&uri)
        });
        tally.check("fsck afterwards", || {
            let mut fsck = shell::command(&["target/debug/persimmon", "fsck", "--data"]);
            output(fsck.arg(&image)).map(drop)
        });
        tally.check("a volume that is mounted is refused", || {
            refused(self, scratch.path())
        });
        tally.check("what is wrong with a URI is told", || {
            self.bad_uris(scratch.path())
        });
        Ok((tally.passed, tally.failed))
    }

    fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("persimmon-rocksdb"));
        command.args(words);
        command
    }

    fn bench(&self, uri: &str, database: &str, options: &[&str]) -> Result<()> {
        let mut bench = self.program(&["db_bench", "--num=20000", "--reads=2000", "--duration=1"]);
        bench.args(["--multiread_batched", "--batch_size=16", "--open_files=100"]);
        bench
            .arg(format!("--fs_uri={uri}"))
            .arg(format!("--db=/{database}"));
        bench
            .arg(format!("--benchmarks={BENCHMARKS}"))
            .args(options);
        let said = output(&mut bench)?;
        let missing: Vec<&str> = BENCHMARKS
            .split(',')
            .filter(|name| !said.contains(name))
            .collect();
        if !missing.is_empty() {
            bail!("without a result: {}: {said}", missing.join(", "));
        }
        Ok(())
    }

    fn tools(&self, uri: &str) -> Result<()> {
        let at = format!("--fs_uri={uri}");
        let backup = format!("--backup_fs_uri={uri}");
        let steps: [&[&str]; 5] = [
            &[
                "ldb",
                "checkpoint",
                "--db=/buffered",
                "--checkpoint_dir=/checkpoint",
            ],
            &[
                "ldb",
                "backup",
                "--db=/buffered",
                &backup,
                "--backup_dir=/backup",
            ],
            &[
                "ldb",
                "restore",
                "--db=/restored",
                &backup,
                "--backup_dir=/backup",
            ],
            &["ldb", "checkconsistency", "--db=/restored"],
            &["ldb", "checkconsistency", "--db=/checkpoint"],
        ];
        for step in steps {
            let said = output(self.program(step).arg(&at)).with_context(|| step.join(" "))?;
            if !said.contains("OK") {
                bail!("{}: {said}", step.join(" "));
            }
        }
        let mut dump = self.program(&["sst_dump", "--file=/restored", "--command=check"]);
        output(dump.arg(&at)).map(drop)
    }

    fn bad_uris(&self, scratch: &Path) -> Result<()> {
        let missing = scratch.join("missing.img");
        let cases = [
            (format!("persimmon://{}", missing.display()), "missing.img"),
            ("persimmon://".to_owned(), "names no device"),
            (
                format!("persimmon://{}?speed=11", missing.display()),
                "speed=11",
            ),
        ];
        for (uri, says) in cases {
            let mut bench = self.program(&["db_bench", "--benchmarks=fillseq", "--num=1"]);
            let ran = bench.arg(format!("--fs_uri={uri}")).output()?;
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            if ran.status.success() || !said.contains(says) {
                bail!("{uri}: {}: {said}", ran.status);
            }
        }
        Ok(())
    }
}

/// Two that want one volume: the second is told.
fn refused(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let (image, dir) = (scratch.join("rocksdb.img"), scratch.join("mounted"));
    fs::create_dir_all(&dir)?;
    shell::check(
        shell::command(&["target/debug/persimmon", "mount"])
            .arg(&image)
            .arg(&dir),
    )?;
    let mut bench = plugin.program(&["db_bench", "--benchmarks=fillseq", "--num=1"]);
    let ran = bench
        .arg(format!("--fs_uri=persimmon://{}", image.display()))
        .output();
    let listed = fs::read_dir(dir.join("buffered")).map(Iterator::count);
    shell::check(shell::command(&["target/debug/persimmon", "umount"]).arg(&dir))?;
    let ran = ran?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if ran.status.success() || !said.contains("mounted") && !said.contains("in use") {
        bail!("{}: {said}", ran.status);
    }
    if listed? == 0 {
        bail!("the mount shows no database");
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        match check() {
            Ok(()) => self.passed += 1,
            Err(error) => {
                self.failed += 1;
                println!("RocksDB: {name}: {error:#}");
            }
        }
    }
}

/// What a command prints; its error where it fails.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("running it")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{}: {} {}", output.status, tail(&said), tail(&error));
    }
    Ok(said)
}

/// The end of what was printed: benchmarks draw their progress.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(600);
    text.get(from..).unwrap_or(text)
}
