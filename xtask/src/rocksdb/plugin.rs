//! Building the plugin and its test programs, and running programs with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{capi, setup, shell};

pub const FOLDER: &str = "plugin/rocksdb";
/// Built in the same run as the library.
pub const BESIDE: &[&str] = &["persimmon-cli"];
pub const C_TEST: &str = "c_test";
/// Flags of both compilers.
/// RocksDB builds plugins with `-Wshadow`, and takes warnings for errors.
const WARNINGS: &str = "-Wall -Wextra -Wshadow -Werror";

/// The plugin where it was built.
pub struct Plugin {
    pub folder: PathBuf,
    /// The command line tool of the same build.
    persimmon: PathBuf,
    library: PathBuf,
    /// Source and build of a RocksDB that is not the installed one.
    rocksdb: Option<(PathBuf, PathBuf)>,
}

impl Plugin {
    /// Builds the library, the plugin and the test programs.
    pub fn build(release: bool, rocksdb: Option<(&Path, &Path)>) -> Result<Plugin> {
        setup::install(setup::ROCKSDB_PACKAGES)?;
        let library = capi::build(release, BESIDE)?;
        let rocksdb = match rocksdb {
            Some((source, built)) => Some((fs::canonicalize(source)?, fs::canonicalize(built)?)),
            None => None,
        };
        let name = if rocksdb.is_some() {
            "rocksdb-source"
        } else {
            "rocksdb"
        };
        let plugin = Plugin {
            folder: library.join(name),
            persimmon: library.with_file_name("persimmon"),
            library,
            rocksdb,
        };
        plugin.cmake(&plugin.folder, &[], true)?;
        Ok(plugin)
    }

    /// Builds a program that measures.
    pub fn build_bench(&self, name: &str) -> Result<()> {
        build_by_cmake(&self.folder, &[name]).with_context(|| format!("building {name}"))
    }

    /// Builds the plugin in a folder, with the folders of `before` searched for headers first.
    pub fn cmake(&self, folder: &Path, before: &[&Path], tests: bool) -> Result<()> {
        let source = fs::canonicalize(FOLDER)?;
        // CMake refuses what it has built for a folder of another place.
        let cache = folder.join("CMakeCache.txt");
        let told = format!("CMAKE_HOME_DIRECTORY:INTERNAL={}\n", source.display());
        if fs::read_to_string(&cache).is_ok_and(|cache| !cache.contains(&told)) {
            fs::remove_file(&cache)?;
        }
        let mut cmake = shell::command(&["cmake", "--log-level=WARNING"]);
        cmake.arg("-S").arg(&source).arg("-B").arg(folder);
        cmake.env("PKG_CONFIG_PATH", self.pkg_config());
        let tests = if tests { "ON" } else { "OFF" };
        cmake.arg(format!("-DPERSIMMON_TESTS={tests}"));
        cmake.arg(format!("-DCMAKE_C_FLAGS={WARNINGS}"));
        let before = before.iter();
        let before = before.map(|folder| format!("-I{} ", folder.display()));
        let before: String = before.collect();
        cmake.arg(format!("-DCMAKE_CXX_FLAGS={before}{WARNINGS}"));
        if let Some((source, built)) = &self.rocksdb {
            let include = source.join("include");
            cmake.arg(format!("-DROCKSDB_INCLUDE={}", include.display()));
            let library = built.join("librocksdb.so");
            cmake.arg(format!("-DROCKSDB_LIBRARY={}", library.display()));
        }
        shell::check(cmake.stdout(Stdio::null())).context("configuring the plugin")?;
        build_by_cmake(folder, &[]).context("building the plugin")
    }

    /// Where pkg-config finds the library.
    pub fn pkg_config(&self) -> PathBuf {
        self.library.join("lib/pkgconfig")
    }

    /// A program of RocksDB as it is, without the plugin.
    pub fn path_of(&self, program: &str) -> PathBuf {
        match &self.rocksdb {
            // CMake leaves some in a folder of tools.
            Some((_, built)) => {
                let beside = built.join(program);
                if beside.exists() {
                    beside
                } else {
                    built.join("tools").join(program)
                }
            }
            None => PathBuf::from(program),
        }
    }

    /// The program that runs others with the plugin.
    pub fn wrapper(&self) -> PathBuf {
        self.folder.join("persimmon-rocksdb")
    }

    /// A program of RocksDB with the plugin.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.wrapper());
        command.arg(self.path_of(name));
        command
    }

    /// A test program with the plugin.
    pub fn test(&self, name: &str) -> Command {
        let mut command = Command::new(self.wrapper());
        command.arg(self.folder.join(name));
        command
    }

    /// RocksDB's own test of environments, where it was built.
    pub fn env_test(&self) -> Result<PathBuf> {
        match &self.rocksdb {
            Some((_, built)) => Ok(built.join("env_basic_test")),
            None => bail!("it comes with the source of RocksDB: name that by --source and --built"),
        }
    }

    /// What the guest needs to run db_bench and the workloads of YCSB with the plugin and without; the libraries come along.
    pub fn for_guest(&self) -> Result<Vec<PathBuf>> {
        let bench = self.path_of("db_bench");
        let bench = if bench.is_absolute() {
            bench
        } else {
            which(&bench)?
        };
        self.build_bench("ycsb")?;
        let built = [
            "libpersimmon_rocksdb.so",
            "libpersimmon_rocksdb_fs.so",
            "ycsb",
        ]
        .map(|name| self.folder.join(name));
        Ok([bench].into_iter().chain(built).collect())
    }

    /// Which RocksDB it is for.
    pub fn rocksdb_name(&self) -> &'static str {
        match &self.rocksdb {
            Some(_) => "one built from source",
            None => "the installed one",
        }
    }

    /// The folder of libpersimmon, as it is installed from.
    pub fn library(&self) -> &Path {
        &self.library
    }

    pub fn persimmon(&self) -> &Path {
        &self.persimmon
    }

    /// A subcommand of the command line tool.
    pub fn tool(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.persimmon);
        command.arg(subcommand);
        command
    }

    /// Makes a volume, and tells its path.
    pub fn make_volume(&self, scratch: &Path, name: &str, bytes: u64) -> Result<PathBuf> {
        let image = scratch.join(name);
        output(
            self.tool("mkfs")
                .arg("--size")
                .arg(bytes.to_string())
                .arg(&image),
        )?;
        Ok(image)
    }

    /// Checks a volume with all its data.
    pub fn fsck(&self, image: &Path) -> Result<()> {
        output(self.tool("fsck").arg("--data").arg(image)).map(drop)
    }
}

/// Where a program is that the shell would find.
fn which(program: &Path) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("no PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    let mut found = found.filter(|file| file.is_file());
    found
        .next()
        .with_context(|| format!("there is no {}", program.display()))
}

/// Builds what CMake has configured in a folder: all of it, or these targets.
pub fn build_by_cmake(folder: &Path, targets: &[&str]) -> Result<()> {
    let jobs = match std::env::var("CARGO_BUILD_JOBS") {
        Ok(jobs) => jobs,
        Err(_) => std::thread::available_parallelism()?.to_string(),
    };
    let mut cmake = shell::command(&["cmake", "--build"]);
    cmake.arg(folder).args(["--parallel", &jobs]);
    for target in targets {
        cmake.args(["--target", target]);
    }
    shell::check(cmake.stdout(Stdio::null()))
}

/// The URI of an image, with options where there are any.
pub fn uri(image: &Path, options: &str) -> String {
    let query = if options.is_empty() { "" } else { "?" };
    format!("persimmon://{}{query}{options}", image.display())
}

/// What a command prints; its error where it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {}", command.get_program().to_string_lossy()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{}: {} {}", output.status, tail(&said), tail(&error));
    }
    Ok(said)
}

/// Runs a command that has to fail and say something, without a crash.
pub fn refused(command: &mut Command, says: &[&str]) -> Result<()> {
    let output = command.output()?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if output.status.success() {
        bail!("{command:?} is not refused: {}", tail(&said));
    }
    if output.status.code().is_none() {
        bail!("{command:?} crashes: {}: {}", output.status, tail(&said));
    }
    match says.iter().find(|words| !said.contains(**words)) {
        Some(words) => bail!("{command:?} does not say {words:?}: {}", tail(&said)),
        None => Ok(()),
    }
}

/// The end of what was printed: benchmarks draw their progress.
pub fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(600);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
