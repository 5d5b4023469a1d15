//! Bad URIs, and a plugin that cannot be used: each is told, and nothing crashes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::Tally;
use super::plugin::{Plugin, output, refused, uri};

/// All of it.
pub fn all(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    let missing = scratch.join("missing.img").display().to_string();
    let cases = [
        (
            "a volume that does not exist",
            format!("persimmon://{missing}"),
            "missing.img",
        ),
        (
            "a URI that names nothing",
            "persimmon://".to_owned(),
            "names no device",
        ),
        (
            "an option that is not known",
            format!("persimmon://{missing}?speed=11"),
            "speed=11",
        ),
        (
            "a value that is none",
            format!("persimmon://{missing}?commit=soon"),
            "commit=soon",
        ),
        (
            "an empty option",
            format!("persimmon://{missing}?"),
            "not known",
        ),
    ];
    for (name, uri, says) in cases {
        tally.check(name, || {
            refused(&mut bench(plugin, &uri), &["persimmon", says])?;
            let mut ldb = plugin.program("ldb");
            ldb.args(["checkconsistency", "--db=/db"]);
            refused(ldb.arg(format!("--fs_uri={uri}")), &["persimmon", says])
        });
    }
    tally.check("a file that is no volume", || {
        let path = scratch.join("noise.img");
        fs::write(&path, vec![0x5A; 64 << 20])?;
        refused(&mut bench(plugin, &uri(&path, "")), &["noise.img"])
    });
    tally.check("a volume opened read-only", || read_only(plugin, scratch));
    tally.check("a plugin that is missing", || {
        let mut alone = Command::new("env");
        alone.arg("PERSIMMON_ROCKSDB_PLUGIN=/nonexistent/plugin.so");
        alone.arg(plugin.wrapper()).arg(plugin.path_of("ldb"));
        refused(&mut alone, &["/nonexistent/plugin.so is missing"])
    });
    tally.check("a program without RocksDB", || {
        let mut other = Command::new(plugin.wrapper());
        refused(
            other.arg("/bin/true"),
            &["does not link librocksdb dynamically"],
        )
    });
    tally.check("a plugin for another RocksDB", || {
        other_version(plugin, scratch)
    });
}

fn bench(plugin: &Plugin, uri: &str) -> Command {
    let mut bench = plugin.program("db_bench");
    bench.args(["--benchmarks=fillseq", "--num=1", "--db=/db"]);
    bench.arg(format!("--fs_uri={uri}"));
    bench
}

fn read_only(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let image = plugin.make_volume(scratch, "read-only.img", 256 << 20)?;
    output(&mut bench(plugin, &uri(&image, "")))?;
    refused(
        &mut bench(plugin, &uri(&image, "read_only=1")),
        &["read-only"],
    )?;
    plugin.fsck(&image)
}

/// A plugin whose headers said another minor version ends the program, and says why.
fn other_version(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let folder = scratch.join("other");
    fs::create_dir_all(folder.join("rocksdb"))?;
    fs::write(
        folder.join("rocksdb/version.h"),
        "#include_next <rocksdb/version.h>\n#undef ROCKSDB_MINOR\n#define ROCKSDB_MINOR 99\n",
    )?;
    plugin.compile_as_if(&[&folder], "other.so")?;
    let other = plugin.folder.join("other.so");
    let mut bench = bench(plugin, "persimmon:///nonexistent");
    bench.env("PERSIMMON_ROCKSDB_PLUGIN", &other);
    let told = refused(
        &mut bench,
        &["this plugin is for RocksDB", ".99, the program has"],
    );
    fs::remove_file(&other)?;
    told
}
