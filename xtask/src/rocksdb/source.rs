//! A newer RocksDB than the installed one: the source comes with a crate of crates.io, and CMake builds it once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Tally;
use super::plugin::{FOLDER, Plugin, build_by_cmake, output, refused, uri};
use crate::shell;

/// The crate, and the version of RocksDB in its own.
const CRATE: &str = "librocksdb-sys";
const CRATE_VERSION: &str = "0.17.3+10.4.2";
const VERSION: &str = "10.4.2";
/// What is built of it: what the steps run.
const TARGETS: &[&str] = &[
    "rocksdb-shared",
    "db_bench",
    "ldb",
    "sst_dump",
    "env_basic_test",
];

/// Source and build of RocksDB, made where they are missing.
pub fn rocksdb() -> Result<(PathBuf, PathBuf)> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let folder = Path::new(&target).join(format!("rocksdb-{VERSION}"));
    fs::create_dir_all(&folder)?;
    let folder = fs::canonicalize(folder)?;
    let source = fetch(&folder)?;
    let built = folder.join("build");
    println!(
        "building RocksDB {VERSION} in {}: the first time takes a while",
        built.display()
    );
    // Its tests are in debug builds alone.
    configure(
        &source,
        &built,
        &["-DROCKSDB_BUILD_SHARED=ON", "-DWITH_TESTS=ON"],
    )?;
    build_by_cmake(&built, TARGETS).context("building RocksDB")?;
    Ok((source, built))
}

fn configure(source: &Path, built: &Path, options: &[&str]) -> Result<()> {
    let mut cmake = shell::command(&["cmake", "--log-level=WARNING"]);
    cmake.arg("-S").arg(source).arg("-B").arg(built);
    cmake.args([
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g0",
    ]);
    cmake.args(["-DWITH_GFLAGS=ON", "-DFAIL_ON_WARNINGS=OFF", "-DPORTABLE=1"]);
    cmake.args(options).stdout(std::process::Stdio::null());
    shell::check(&mut cmake).context("configuring RocksDB")
}

/// A copy of the source, with the plugin in the place that RocksDB has for them.
fn fetch(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("source");
    let complete = folder.join("fetched");
    if !complete.exists() {
        let manifest = folder.join("fetch/Cargo.toml");
        fs::create_dir_all(folder.join("fetch"))?;
        fs::write(folder.join("fetch/lib.rs"), "")?;
        fs::write(
            &manifest,
            format!(
                "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\n[workspace]\n\
                 [dependencies]\n{CRATE} = {{ version = \"={CRATE_VERSION}\", default-features = false }}\n"
            ),
        )?;
        let mut metadata = shell::command(&["cargo", "metadata", "--format-version=1"]);
        let told = output(metadata.arg("--manifest-path").arg(&manifest))?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        let packages = told["packages"].as_array().context("packages")?;
        let package = packages.iter().find(|package| package["name"] == CRATE);
        let unpacked = package.and_then(|package| package["manifest_path"].as_str());
        let unpacked = Path::new(unpacked.context("where the crate is")?).with_file_name("rocksdb");
        if source.exists() {
            fs::remove_dir_all(&source)?;
        }
        shell::check(shell::command(&["cp", "-a"]).arg(&unpacked).arg(&source))?;
        fs::write(complete, CRATE_VERSION)?;
    }
    let place = source.join("plugin/persimmon");
    if place.symlink_metadata().is_ok() {
        fs::remove_file(&place)?;
    }
    std::os::unix::fs::symlink(fs::canonicalize(FOLDER)?, &place)?;
    Ok(source)
}

/// What only two RocksDBs, or the source of one, can show.
pub fn all(plugin: &Plugin, installed: &Plugin, source: &Path, scratch: &Path, tally: &mut Tally) {
    tally.check("the plugin within a build of RocksDB", || {
        within(plugin, source)
    });
    for (one, other) in [(plugin, installed), (installed, plugin)] {
        let name = format!(
            "a plugin for another RocksDB: {} into {}",
            one.rocksdb_name(),
            other.rocksdb_name()
        );
        tally.check(&name, || other_version(one, other, scratch));
    }
}

/// CMake of RocksDB takes the plugin along; of all that only the plugin is compiled.
fn within(plugin: &Plugin, source: &Path) -> Result<()> {
    let built = source.with_file_name("with-plugin");
    // pkg-config is asked anew, for the library of this build.
    if built.exists() {
        fs::remove_dir_all(&built)?;
    }
    let mut cmake = shell::command(&["env"]);
    cmake.arg(format!("PKG_CONFIG_PATH={}", plugin.pkg_config().display()));
    cmake
        .args(["cmake", "--log-level=WARNING", "-S"])
        .arg(source);
    cmake.arg("-B").arg(&built);
    cmake.args([
        "-DROCKSDB_PLUGINS=persimmon",
        "-DROCKSDB_BUILD_SHARED=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DWITH_GFLAGS=ON",
        "-DPORTABLE=1",
    ]);
    shell::check(cmake.stdout(std::process::Stdio::null())).context("configuring RocksDB")?;
    let list = fs::read_to_string(format!("{FOLDER}/persimmon.mk"))?;
    let sources = list
        .lines()
        .find_map(|line| line.strip_prefix("persimmon_SOURCES = "))
        .context("the sources of persimmon.mk")?;
    let objects: Vec<String> = sources
        .split_whitespace()
        .map(|source| format!("plugin/persimmon/{source}.o"))
        .collect();
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    build_by_cmake(&built, &objects)
}

/// A plugin built for one RocksDB, in a program of another: the wrapper says so, and so does the plugin where there is no wrapper.
fn other_version(plugin: &Plugin, other: &Plugin, scratch: &Path) -> Result<()> {
    let library = plugin.folder.join("libpersimmon_rocksdb.so");
    let image = uri(&scratch.join("missing.img"), "");
    let arguments = [
        "checkconsistency".to_owned(),
        "--db=/db".to_owned(),
        format!("--fs_uri={image}"),
    ];
    let mut wrapped = other.program("ldb");
    wrapped.args(&arguments);
    wrapped.env("PERSIMMON_ROCKSDB_PLUGIN", &library);
    refused(&mut wrapped, &["the plugin is for librocksdb.so"])?;
    let mut alone = std::process::Command::new(other.path_of("ldb"));
    alone.args(&arguments).env("LD_PRELOAD", &library);
    refused(
        &mut alone,
        &["this plugin is for RocksDB", "build the plugin for that"],
    )?;
    ensure!(!scratch.join("missing.img").exists(), "it was made");
    Ok(())
}
