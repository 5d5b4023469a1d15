//! Building the plugin and its test programs, and running programs with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{capi, setup, shell};

/// Debian packages, each with what uses it.
const PACKAGES: &[(&str, &str)] = &[
    ("g++", "the RocksDB plugin"),
    ("librocksdb-dev", "headers of RocksDB"),
    ("rocksdb-tools", "db_bench, ldb and sst_dump"),
];

pub const FOLDER: &str = "plugin/rocksdb";
const SOURCES: &[&str] = &[
    "uri.cc",
    "names.cc",
    "volume.cc",
    "files.cc",
    "logger.cc",
    "filesystem.cc",
    "register.cc",
];
const TESTS: &[&str] = &["filesystem_test", "crash_test", "full_test", "pulled_test"];

pub const C_TEST: &str = "c_test";

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
        setup::install(PACKAGES)?;
        let library = capi::build(release, &["persimmon-cli"])?;
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
        fs::create_dir_all(&plugin.folder)?;
        plugin.compile(SOURCES, &[], "libpersimmon_rocksdb.so")?;
        fs::copy(
            format!("{FOLDER}/persimmon-rocksdb"),
            plugin.folder.join("persimmon-rocksdb"),
        )?;
        fs::copy(
            format!("{FOLDER}/persimmon_rocksdb.h"),
            plugin.folder.join("persimmon_rocksdb.h"),
        )?;
        plugin.compile_c_test()?;
        for test in TESTS {
            let mut cxx = plugin.cxx(&[]);
            cxx.arg(format!("{FOLDER}/tests/{test}.cc"));
            plugin.link(&mut cxx, "-lpthread", test)?;
        }
        Ok(plugin)
    }

    /// Builds a program that measures.
    pub fn build_bench(&self, name: &str) -> Result<()> {
        let mut cxx = self.cxx(&[]);
        cxx.arg(format!("{FOLDER}/bench/{name}.cc"));
        self.link(&mut cxx, "-lpthread", name)
    }

    /// The compiler, with the folders of `before` searched for headers first.
    fn cxx(&self, before: &[&Path]) -> Command {
        let mut cxx = shell::command(&["c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]);
        // RocksDB is built without run-time type information.
        cxx.arg("-fno-rtti");
        for folder in before {
            cxx.arg("-I").arg(folder);
        }
        cxx.arg("-I").arg(self.library.join("include"));
        if let Some((source, _)) = &self.rocksdb {
            cxx.arg("-isystem").arg(source.join("include"));
        }
        cxx
    }

    /// The program in C links the plugin itself, as docs say that programs of RocksDB's C interface do.
    fn compile_c_test(&self) -> Result<()> {
        let mut cc = shell::command(&["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]);
        cc.arg("-I").arg(&self.folder);
        if let Some((source, _)) = &self.rocksdb {
            cc.arg("-isystem").arg(source.join("include"));
        }
        cc.arg(format!("{FOLDER}/tests/{C_TEST}.c"));
        cc.arg("-L").arg(&self.folder);
        cc.arg(format!("-Wl,-rpath,{}", self.folder.display()));
        cc.arg(format!(
            "-Wl,-rpath-link,{}",
            self.library.join("lib").display()
        ));
        self.link(&mut cc, "-l:libpersimmon_rocksdb.so", C_TEST)
    }

    /// Links what is compiled with RocksDB and `with` to a file of the folder.
    fn link(&self, cxx: &mut Command, with: &str, name: &str) -> Result<()> {
        if let Some((_, built)) = &self.rocksdb {
            cxx.arg("-L").arg(built);
            cxx.arg(format!("-Wl,-rpath,{}", built.display()));
        }
        cxx.args(["-lrocksdb", with]);
        cxx.arg("-o").arg(self.folder.join(name));
        shell::check(cxx).with_context(|| format!("building {name}"))
    }

    /// Makes a plugin of sources, with the folders of `before` searched for headers first.
    pub fn compile(&self, sources: &[&str], before: &[&Path], name: &str) -> Result<()> {
        let mut cxx = self.cxx(before);
        cxx.args([
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-fvisibility-inlines-hidden",
        ]);
        cxx.args(sources.iter().map(|file| format!("{FOLDER}/{file}")));
        cxx.arg(format!("-Wl,--version-script={FOLDER}/plugin.map"));
        let lib = self.library.join("lib");
        cxx.arg("-L").arg(&lib);
        cxx.arg(format!("-Wl,-rpath,{}", lib.display()));
        self.link(&mut cxx, "-lpersimmon", name)
    }

    /// All sources, for a plugin that is compiled in another way.
    pub fn compile_as_if(&self, before: &[&Path], name: &str) -> Result<()> {
        self.compile(SOURCES, before, name)
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

    /// What the guest needs to run db_bench with the plugin and without; the libraries of both come along.
    pub fn for_guest(&self) -> Result<Vec<PathBuf>> {
        let bench = self.path_of("db_bench");
        let bench = match bench.is_absolute() {
            true => bench,
            false => which(&bench)?,
        };
        Ok(vec![bench, self.folder.join("libpersimmon_rocksdb.so")])
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
