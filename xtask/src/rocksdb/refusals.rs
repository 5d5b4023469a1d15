//! Bad URIs, and a plugin that cannot be used: each is told, and nothing crashes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

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
            "a percent sign that begins no escape",
            "persimmon:///100%".to_owned(),
            "% is written as %25",
        ),
        (
            "an empty option",
            format!("persimmon://{missing}?"),
            "not known",
        ),
        (
            "less memory than a mount takes",
            format!("persimmon://{missing}?staging=1"),
            "staging: 1 is less than 4M",
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
    tally.check("a plugin that the loader would leave out", || {
        left_out(plugin, scratch)
    });
    tally.check("programs that take no plugin", || {
        no_program(plugin, scratch)
    });
}

/// The same of a plugin that has to be built for it.
pub fn built(plugin: &Plugin, scratch: &Path, tally: &mut Tally) {
    tally.check("a plugin for another RocksDB", || {
        other_version(plugin, scratch)
    });
}

/// A program was run without the plugin, and nothing said so, where the loader split the path of the plugin, or where that was no plugin
/// at all.
fn left_out(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let library = fs::canonicalize(plugin.folder.join("libpersimmon_rocksdb.so"))?;
    for folder in ["with blank", "with:colon", "with$ORIGIN"] {
        let folder = scratch.join(folder);
        fs::create_dir_all(&folder)?;
        let copy = folder.join("plugin.so");
        fs::copy(&library, &copy)?;
        let mut bench = bench(plugin, "persimmon:///nonexistent");
        bench.env("PERSIMMON_ROCKSDB_PLUGIN", &copy);
        refused(&mut bench, &["has a blank, a colon or a dollar sign"])?;
    }
    let broken = scratch.join("broken.so");
    fs::write(&broken, "no library")?;
    for other in [broken.as_path(), Path::new("/bin/true")] {
        let mut bench = bench(plugin, "persimmon:///nonexistent");
        bench.env("PERSIMMON_ROCKSDB_PLUGIN", other);
        refused(&mut bench, &["is no plugin for RocksDB"])?;
    }
    Ok(())
}

/// A script is none that the loader starts, and one with other rights is given nothing by its caller.
fn no_program(plugin: &Plugin, scratch: &Path) -> Result<()> {
    let script = scratch.join("script");
    fs::write(&script, "#!/bin/sh\nexec ldb \"$@\"\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let mut wrapper = Command::new(plugin.wrapper());
    refused(wrapper.arg(&script), &["is a script"])?;
    let ldb = scratch.join("ldb");
    let found = output(
        Command::new("sh")
            .args(["-c", "command -v -- \"$0\""])
            .arg(plugin.path_of("ldb")),
    )?;
    fs::copy(found.trim(), &ldb)?;
    fs::set_permissions(&ldb, fs::Permissions::from_mode(0o4755))?;
    let mut wrapper = Command::new(plugin.wrapper());
    refused(
        wrapper.arg(&ldb),
        &["with the rights of its owner or group"],
    )?;
    // It is for its rights that it was refused.
    fs::set_permissions(&ldb, fs::Permissions::from_mode(0o755))?;
    let mut wrapper = Command::new(plugin.wrapper());
    wrapper.arg(&ldb).arg("--version");
    if !wrapper.output()?.status.success() {
        bail!("a copy of ldb is refused as well");
    }
    Ok(())
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
    let built = folder.join("built");
    plugin.cmake(&built, &[&folder], false)?;
    let mut bench = bench(plugin, "persimmon:///nonexistent");
    bench.env(
        "PERSIMMON_ROCKSDB_PLUGIN",
        built.join("libpersimmon_rocksdb.so"),
    );
    refused(
        &mut bench,
        &["this plugin is for RocksDB", ".99, the program has"],
    )
}
