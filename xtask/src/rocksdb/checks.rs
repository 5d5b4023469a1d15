//! Checks that pass or fail: RocksDB's programs and our own test programs on a volume.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::Tally;
use super::plugin::{C_TEST, FOLDER, Plugin, output, uri};
use super::sustained::{counted, counters};

/// Bytes of the volumes.
const VOLUME_BYTES: u64 = 1 << 30;
/// Bytes of the one that becomes full.
const FULL_BYTES: u64 = 256 << 20;
/// Bytes that a project is limited to.
const PROJECT_BYTES: &str = "67108864";

/// A RocksDB built from source has none of the libraries that db_bench compresses with otherwise.
const NO_COMPRESSION: &str = "--compression_type=none";
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
    ("blob-files", &["--enable_blob_files", "--min_blob_size=64"]),
];
const BENCHMARKS: &str = "fillseq,fillrandom,overwrite,readrandom,readwhilewriting,seekrandom,multireadrandom,\
                          deleterandom,compact,verifychecksum";

/// The methods of the file system, one by one.
pub fn methods(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    tally.check("methods of the file system", || {
        let image = plugin.make_volume(scratch, "methods.img", VOLUME_BYTES)?;
        output(plugin.test("filesystem_test").arg(uri(&image, "")))?;
        let mut reads = plugin.test("filesystem_test");
        output(reads.args([&uri(&image, "read_only=1"), "read_only"]))?;
        plugin.fsck(&image)
    });
    tally.check("a volume is opened while another one is opening", || {
        let images = [("slow.img"), ("other.img")];
        let images = images.map(|name| plugin.make_volume(scratch, name, VOLUME_BYTES));
        let mut test = plugin.test("opening_test");
        for image in images {
            test.arg(uri(&image?, ""));
        }
        output(&mut test).map(drop)
    });
    tally.check("a forked child leaves the volume alone", || {
        let image = plugin.make_volume(scratch, "forked.img", VOLUME_BYTES)?;
        let other = plugin.make_volume(scratch, "own.img", VOLUME_BYTES)?;
        let mut forks = plugin.test("fork_test");
        output(forks.args([&uri(&image, ""), &uri(&other, "")]))?;
        output(plugin.test("fork_test").arg(uri(&image, "")))?;
        plugin.fsck(&image)
    });
    tally.check("a path with a question mark", || {
        let image = plugin.make_volume(scratch, "100% what?.img", VOLUME_BYTES)?;
        let escaped = image.display().to_string().replace('%', "%25");
        let uri = format!("persimmon://{}?commit=1", escaped.replace('?', "%3f"));
        output(plugin.test("filesystem_test").arg(uri))?;
        plugin.fsck(&image)
    });
    tally.check("the plugin as it is installed", || {
        installed(plugin, scratch)
    });
    tally.check("hints and names become lifetimes of zones", || {
        let image = plugin.make_volume(scratch, "lifetimes.img", VOLUME_BYTES)?;
        let mut writes = plugin.test("filesystem_test");
        output(writes.args([&uri(&image, ""), "lifetimes"]))?;
        lifetimes(plugin, &image)
    });
    tally.check("a project that is limited", || {
        let image = plugin.make_volume(scratch, "limited.img", VOLUME_BYTES)?;
        with_projects(plugin, &image, &[("1", "/limited")])?;
        let mut limits = plugin.tool("quota");
        limits.arg("set").arg(&image);
        output(limits.args(["--project", "1", "--hard", PROJECT_BYTES]))?;
        let mut test = plugin.test("project_test");
        output(test.args([&uri(&image, ""), PROJECT_BYTES]))?;
        plugin.fsck(&image)
    });
    tally.check("what cannot be linked between projects is copied", || {
        let image = plugin.make_volume(scratch, "projects.img", VOLUME_BYTES)?;
        with_projects(plugin, &image, &[("1", "/one"), ("2", "/two")])?;
        output(
            plugin
                .test("filesystem_test")
                .args([&uri(&image, ""), "projects"]),
        )?;
        plugin.fsck(&image)
    });
    tally.check("a database over RocksDB's C interface", || {
        let image = plugin.make_volume(scratch, "c.img", VOLUME_BYTES)?;
        let mut test = std::process::Command::new(plugin.folder.join(C_TEST));
        output(test.arg(uri(&image, "")))?;
        plugin.fsck(&image)
    });
    tally.check("a younger log waits for the one before it", || {
        let image = plugin.make_volume(scratch, "logs.img", VOLUME_BYTES)?;
        let uri = uri(&image, "flush=memory");
        dies(plugin, &uri, "logs")?;
        let mut check = plugin.test("filesystem_test");
        output(check.args([uri.as_str(), "logged"])).map(drop)
    });
    for mode in ["kernel", "through", "memory"] {
        tally.check(&format!("what outlives a kill with flush={mode}"), || {
            let image = plugin.make_volume(scratch, &format!("{mode}.img"), VOLUME_BYTES)?;
            let uri = uri(&image, &format!("flush={mode}"));
            dies(plugin, &uri, "die")?;
            let mut check = plugin.test("filesystem_test");
            output(check.args([&uri, "died", mode])).map(drop)
        });
    }
}

/// Runs a part of the test that kills itself.
fn dies(plugin: &Plugin, uri: &str, part: &str) -> Result<()> {
    let mut test = plugin.test("filesystem_test");
    let died = test.args([uri, part]).output()?;
    if died.status.code().is_some() {
        let said = String::from_utf8_lossy(&died.stderr).into_owned();
        bail!("it was not killed: {}: {said}", died.status);
    }
    Ok(())
}

/// Makes directories of projects.
fn with_projects(plugin: &Plugin, image: &Path, projects: &[(&str, &str)]) -> Result<()> {
    output(plugin.tool("quota").arg("on").arg(image))?;
    for (id, dir) in projects {
        output(plugin.tool("fs").arg("mkdir").arg(image).arg(dir))?;
        let mut project = plugin.tool("quota");
        output(
            project
                .args(["project", dir, "--id", id, "--of"])
                .arg(image),
        )?;
    }
    Ok(())
}

/// Runs a program with the plugin that packaging/install.sh has installed.
fn installed(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let root = scratch.join("root");
    let mut install = std::process::Command::new("packaging/install.sh");
    install.arg(plugin.persimmon()).arg(plugin.library());
    output(install.arg(&plugin.folder).env("DESTDIR", &root))?;
    let image = plugin.make_volume(scratch, "installed.img", VOLUME_BYTES)?;
    let usr = root.join("usr");
    let mut bench = std::process::Command::new(usr.join("bin/persimmon-rocksdb"));
    bench.arg(plugin.path_of("db_bench"));
    bench.args(["--benchmarks=fillseq", "--num=100", "--db=/db"]);
    bench.arg(NO_COMPRESSION);
    bench.arg(format!("--fs_uri={}", uri(&image, "")));
    // The one place where it would look is below the root of the system.
    let library = usr.join("lib/persimmon/libpersimmon_rocksdb.so");
    bench.env("PERSIMMON_ROCKSDB_PLUGIN", library);
    bench.env("LD_LIBRARY_PATH", usr.join("lib"));
    output(&mut bench)?;
    let ldb = plugin
        .tool("fs")
        .arg("ls")
        .arg(&image)
        .arg("/db")
        .output()?;
    if !String::from_utf8_lossy(&ldb.stdout).contains("CURRENT") {
        bail!("there is no database on the volume");
    }
    Ok(())
}

/// Blocks of each lifetime that `filesystem_test lifetimes` has written, each file another power of two: of the tables in the order of their
/// numbers by hints; then a log and a temporary file; a second log with a hint; MANIFEST, OPTIONS, IDENTITY and CURRENT.
const LIFETIMES: &[(&str, u64)] = &[
    ("short", 16 + 256 + 512),
    ("medium", 32 + 4096),
    ("long", 64 + 1024 + 2048 + 8 + 4),
    ("extreme", 128),
];

fn lifetimes(plugin: &Plugin, image: &Path) -> Result<()> {
    let zones = output(plugin.tool("zones").arg(image).arg("--json"))?;
    let zones: Vec<serde_json::Value> = serde_json::from_str(&zones)?;
    for (lifetime, blocks) in LIFETIMES {
        let of_it = zones
            .iter()
            .filter(|zone| zone["role"] == "data" && zone["lifetime"] == *lifetime);
        let live: u64 = of_it.filter_map(|zone| zone["valid_blocks"].as_u64()).sum();
        ensure!(
            live == *blocks,
            "{live} blocks are in zones of lifetime {lifetime}, and {blocks} were written with it"
        );
    }
    Ok(())
}

/// What RocksDB's Makefile reads of the plugin: CMake, which builds it here, has its list of sources from there.
pub fn makefile(plugin: &Plugin, tally: &mut Tally) {
    tally.check("persimmon.mk as RocksDB's Makefile reads it", || {
        let script = format!(
            "include {FOLDER}/persimmon.mk\nall:\n\
             \t@echo $(persimmon_SOURCES)\n\t@echo $(persimmon_HEADERS)\n\
             \t@echo $(persimmon_CXXFLAGS)\n\t@echo $(persimmon_LDFLAGS)\n"
        );
        let mut make = std::process::Command::new("make");
        make.args(["--silent", "--eval", &script, "all"]);
        make.arg("--file=/dev/null");
        make.env("PKG_CONFIG_PATH", plugin.pkg_config());
        let said = output(&mut make)?;
        let lines: Vec<Vec<&str>> = said
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let [sources, headers, cxx, ld] = lines.as_slice() else {
            bail!("it says {said}");
        };
        let mut there = Vec::new();
        for entry in std::fs::read_dir(FOLDER)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".cc") {
                there.push(name);
            }
        }
        there.sort();
        let mut listed: Vec<&str> = sources.clone();
        listed.sort_unstable();
        ensure!(there == listed, "it lists {listed:?}, there are {there:?}");
        for header in headers {
            ensure!(Path::new(FOLDER).join(header).exists(), "{header}");
        }
        ensure!(
            cxx.iter().any(|flag| flag.starts_with("-I")) && ld.contains(&"-lpersimmon"),
            "flags: {said}"
        );
        Ok(())
    });
}

/// RocksDB 7.8 leaves reading ahead in compactions to a page cache, which the plugin does not have: it read each block of a table alone, and
/// most bytes of the device twice.
fn reads_ahead(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let image = plugin.make_volume(scratch, "ahead.img", VOLUME_BYTES)?;
    let statistics = scratch.join("ahead.statistics");
    let mut bench = plugin.program("db_bench");
    bench.args([
        "--benchmarks=fillrandom,compact",
        "--num=30000",
        "--value_size=1000",
    ]);
    bench.args([
        NO_COMPRESSION,
        "--write_buffer_size=4194304",
        "--statistics",
        "--db=/db",
    ]);
    let options = format!("statistics={}", statistics.display());
    let said = output(bench.arg(format!("--fs_uri={}", uri(&image, &options))))?;
    let asked = counted(&said, "compact.read.bytes")?;
    let read = counters(&statistics)?["read_bytes"];
    ensure!(asked > 0, "nothing was compacted");
    ensure!(
        read * 2 < asked * 3,
        "{read} bytes were read of the device for {asked} in compactions"
    );
    Ok(())
}

/// All workloads of db_bench.
pub fn benches(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    tally.check("compactions read ahead", || reads_ahead(plugin, scratch));
    for (name, options) in BENCHES {
        tally.check(&format!("db_bench, {name}"), || {
            let image = plugin.make_volume(scratch, &format!("{name}.img"), VOLUME_BYTES)?;
            let uri = uri(&image, "");
            bench(plugin, &uri, name, BENCHMARKS, 20_000, options)?;
            bench(plugin, &uri, name, "fillsync", 2_000, options)?;
            plugin.fsck(&image)
        });
    }
}

fn bench(
    plugin: &Plugin,
    uri: &str,
    database: &str,
    benchmarks: &str,
    entries: u64,
    options: &[&str],
) -> Result<()> {
    let mut bench = plugin.program("db_bench");
    bench.arg(format!("--num={entries}")).arg("--reads=2000");
    bench.args(["--multiread_batched", "--batch_size=16", "--open_files=100"]);
    bench
        .arg(format!("--fs_uri={uri}"))
        .arg(format!("--db=/{database}"))
        .arg(format!("--benchmarks={benchmarks}"))
        .args(options);
    let said = output(&mut bench)?;
    let missing: Vec<&str> = benchmarks
        .split(',')
        .filter(|name| !said.contains(name))
        .collect();
    if !missing.is_empty() {
        bail!("without a result: {}: {said}", missing.join(", "));
    }
    Ok(())
}

/// Checkpoint, backup, restore, and checks of all of them, of a database with so many entries.
pub fn tools(plugin: &Plugin, scratch: &Path, entries: u32, tally: &mut Tally) {
    tally.check("checkpoint, backup, restore, consistency, tables", || {
        let image = plugin.make_volume(scratch, "tools.img", VOLUME_BYTES)?;
        let uri = uri(&image, "");
        let mut fill = plugin.program("db_bench");
        fill.arg(format!("--num={entries}"));
        fill.args(["--benchmarks=fillrandom,overwrite,compact", "--db=/db"]);
        fill.arg(NO_COMPRESSION);
        output(fill.arg(format!("--fs_uri={uri}")))?;
        tools_on(plugin, &uri)?;
        plugin.fsck(&image)
    });
}

fn tools_on(plugin: &Plugin, uri: &str) -> Result<()> {
    let at = format!("--fs_uri={uri}");
    let backup = format!("--backup_fs_uri={uri}");
    let steps: [&[&str]; 6] = [
        &["checkpoint", "--db=/db", "--checkpoint_dir=/checkpoint"],
        &["backup", "--db=/db", &backup, "--backup_dir=/backup"],
        &["restore", "--db=/restored", &backup, "--backup_dir=/backup"],
        &["checkconsistency", "--db=/db"],
        &["checkconsistency", "--db=/restored"],
        &["checkconsistency", "--db=/checkpoint"],
    ];
    for step in steps {
        let said = output(plugin.program("ldb").args(step).arg(&at))?;
        if !said.contains("OK") {
            bail!("ldb {}: {said}", step.join(" "));
        }
    }
    for database in ["/db", "/restored", "/checkpoint"] {
        let mut dump = plugin.program("sst_dump");
        dump.arg(format!("--file={database}"))
            .arg("--command=check");
        let said = output(dump.arg(&at))?;
        if said.to_lowercase().contains("corruption") || !said.contains(".sst") {
            bail!("sst_dump of {database}: {said}");
        }
    }
    let mut keys = Vec::new();
    for database in ["/db", "/restored", "/checkpoint"] {
        let mut scan = plugin.program("ldb");
        scan.args(["scan", "--hex", "--no_value"]);
        keys.push(output(scan.arg(format!("--db={database}")).arg(&at))?);
    }
    if keys[0].lines().count() < 1000 || keys.iter().any(|one| *one != keys[0]) {
        bail!("the copies have other keys than the database");
    }
    Ok(())
}

/// A volume that becomes full below a database.
pub fn full(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    tally.check("a full volume, and room again", || {
        let image = plugin.make_volume(scratch, "full.img", FULL_BYTES)?;
        let said = output(plugin.test("full_test").arg(uri(&image, "")))?;
        print!("{said}");
        output(plugin.test("full_test").arg(uri(&image, "")).arg("reopen"))?;
        plugin.fsck(&image)
    });
}

/// A device that is gone in the midst of writing.
pub fn pulled(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    for error in ["EIO", "ENODEV"] {
        tally.check(&format!("a device that is pulled: {error}"), || {
            let image = plugin.make_volume(scratch, &format!("{error}.img"), VOLUME_BYTES)?;
            let state = scratch.join("pulled.state");
            let test = |what| {
                let mut test = plugin.test("pulled_test");
                output(test.arg(uri(&image, "")).arg(&state).arg(what))
            };
            print!("{}", test(error)?);
            test("reopen")?;
            plugin.fsck(&image)
        });
    }
}

/// RocksDB's own test of environments, by both kinds of URI.
pub fn env(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    for variable in ["TEST_ENV_URI", "TEST_FS_URI"] {
        tally.check(&format!("env_basic_test with {variable}"), || {
            let image = plugin.make_volume(scratch, &format!("{variable}.img"), VOLUME_BYTES)?;
            let mut test = std::process::Command::new(plugin.wrapper());
            test.arg(plugin.env_test()?).env(variable, uri(&image, ""));
            // One of the tests makes its directory on the host as well.
            test.env("TEST_TMPDIR", scratch);
            let said = output(test.arg("--gtest_filter=*Custom*"))?;
            let passed = gtest_passed(&said).context("it does not say how many tests passed")?;
            println!("{passed} tests passed");
            ensure!(passed > 0, "no test of it ran: {said}");
            plugin.fsck(&image)
        });
    }
}

/// How many tests passed: googletest ends well where a filter finds none.
fn gtest_passed(said: &str) -> Option<u64> {
    let count = |line: &str| line.split_whitespace().next()?.parse().ok();
    said.lines()
        .find_map(|line| count(line.strip_prefix("[  PASSED  ]")?))
}

#[cfg(test)]
mod tests {
    use super::gtest_passed;

    #[test]
    fn tests_that_ran_are_counted() {
        let said = "[==========] 14 tests from 2 test suites ran.\n[  PASSED  ] 14 tests.\n";
        assert_eq!(gtest_passed(said), Some(14));
        assert_eq!(gtest_passed("[  PASSED  ] 0 tests.\n"), Some(0));
        assert_eq!(gtest_passed("it says nothing"), None);
    }
}
