//! The C library: linked with versioned symbols, and used from C and Python.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::shell;

/// What the command is to do.
#[derive(Args)]
pub struct Options {
    /// Build without debug assertions, for use and measurements
    #[arg(long)]
    release: bool,
    /// Compile and run the examples against it as well
    #[arg(long)]
    check: bool,
}

const CRATE: &str = "crates/capi";

/// What the library needs of the system, in the order in which a linker takes it.
const SYSTEM: [&str; 5] = ["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"];

/// Version of the interface, as the header says it: major and minor.
fn version() -> Result<(u32, u32)> {
    let header = fs::read_to_string(format!("{CRATE}/include/persimmon.h"))?;
    let number = |name: &str| {
        let define = format!("#define {name} ");
        let line = header.lines().find_map(|line| line.strip_prefix(&define));
        line.and_then(|number| number.parse().ok())
            .with_context(|| format!("the header says no {name}"))
    };
    Ok((
        number("PERSIMMON_VERSION_MAJOR")?,
        number("PERSIMMON_VERSION_MINOR")?,
    ))
}

/// Builds the library, and says where it is; true when the checks asked for hold.
pub fn run(options: &Options) -> Result<bool> {
    let library = build(options.release, &[])?;
    println!("{}", library.display());
    if options.check {
        let (passed, failed) = check(&library)?;
        println!("{passed} passed, {failed} failed");
        return Ok(failed == 0);
    }
    Ok(true)
}

/// Makes a folder as it would be installed, which may be copied anywhere: `lib/libpersimmon.so`, `lib/libpersimmon.a`, `include/persimmon.h`,
/// `lib/pkgconfig/persimmon.pc`. Packages of `with` are built in the same run, which compiles what they share once.
pub fn build(release: bool, with: &[&str]) -> Result<PathBuf> {
    let mut cargo = shell::command(&["cargo", "build", "--quiet", "--package", "persimmon-capi"]);
    for package in with {
        cargo.args(["--package", package]);
    }
    if release {
        cargo.arg("--release");
    }
    shell::check(&mut cargo)?;
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let profile = Path::new(&target).join(if release { "release" } else { "debug" });
    let prefix = fs::canonicalize(&profile)?.join("capi");
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    fs::create_dir_all(lib.join("pkgconfig"))?;
    fs::create_dir_all(&include)?;
    fs::copy(
        profile.join("libpersimmon_capi.a"),
        lib.join("libpersimmon.a"),
    )
    .context("the static library that cargo made")?;
    fs::copy(
        format!("{CRATE}/include/persimmon.h"),
        include.join("persimmon.h"),
    )?;
    let (major, minor) = version()?;
    link(&lib, major, minor)?;
    fs::write(
        lib.join("pkgconfig/persimmon.pc"),
        format!(
            "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: persimmon\n\
             Description: A filesystem for zoned storage, as a library\nVersion: {major}.{minor}\n\
             Libs: -L${{libdir}} -lpersimmon\nLibs.private: {}\nCflags: -I${{includedir}}\n",
            SYSTEM.join(" ")
        ),
    )?;
    Ok(prefix)
}

/// The shared library under its three names: the file, what programs look for when they start, and what a linker looks for.
fn link(lib: &Path, major: u32, minor: u32) -> Result<()> {
    let soname = format!("libpersimmon.so.{major}");
    let file = format!("{soname}.{minor}");
    let mut cc = shell::command(&["cc", "-shared", "-o"]);
    cc.arg(lib.join(&file))
        .arg(format!("-Wl,-soname,{soname}"))
        .arg(format!("-Wl,--version-script={CRATE}/persimmon.map"))
        .args(["-Wl,--gc-sections", "-Wl,--whole-archive"])
        .arg(lib.join("libpersimmon.a"))
        .arg("-Wl,--no-whole-archive")
        .args(SYSTEM);
    shell::check(&mut cc).context("linking libpersimmon.so")?;
    for (name, to) in [(soname.as_str(), &file), ("libpersimmon.so", &soname)] {
        let name = lib.join(name);
        if name.symlink_metadata().is_ok() {
            fs::remove_file(&name)?;
        }
        symlink(to, &name)?;
    }
    Ok(())
}

/// What a program finds when it is built and when it is started, and the examples in C (linked both ways) and in Python: how many hold, and
/// how many do not.
pub fn check(prefix: &Path) -> Result<(usize, usize)> {
    let scratch = tempfile::tempdir()?;
    let checks: [(&str, &dyn Fn() -> Result<()>); 7] = [
        ("symbols and versions are those of the map", &|| {
            symbols(prefix)
        }),
        ("soname", &|| soname(prefix)),
        ("pkg-config", &|| {
            let (major, minor) = version()?;
            let told = pkg_config(prefix, &["--modversion"])?;
            if told == [format!("{major}.{minor}")] {
                Ok(())
            } else {
                bail!("it tells version {told:?}")
            }
        }),
        ("header in C++", &|| in_cpp(prefix)),
        ("example in C, shared", &|| {
            in_c(prefix, scratch.path(), false)
        }),
        ("example in C, static", &|| {
            in_c(prefix, scratch.path(), true)
        }),
        ("example in Python", &|| in_python(prefix, scratch.path())),
    ];
    let (mut passed, mut failed) = (0, 0);
    for (name, check) in checks {
        match check() {
            Ok(()) => passed += 1,
            Err(error) => {
                failed += 1;
                println!("C library: {name}: {error:#}");
            }
        }
    }
    Ok((passed, failed))
}

/// Functions of a linker's map, each as `name@@VERSION`: it has one a line, below the version that it came with.
fn mapped(map: &str) -> BTreeSet<String> {
    let mut version = "";
    let mut found = BTreeSet::new();
    for line in map.lines().map(str::trim) {
        if let Some(begun) = line.strip_suffix(" {") {
            version = begun;
        } else if let Some(name) = line.strip_suffix(';')
            && name.starts_with("persimmon_")
        {
            found.insert(format!("{name}@@{version}"));
        }
    }
    found
}

/// What the library shows, and under which version. That the map has what the header has is seen to by a test of the crate.
fn symbols(prefix: &Path) -> Result<()> {
    let mut nm = shell::command(&["nm", "--dynamic", "--defined-only", "--format=posix"]);
    let shown = output(nm.arg(prefix.join("lib/libpersimmon.so")))?;
    let names = shown.lines().filter_map(|line| line.split(' ').next());
    // The versions are symbols, too.
    let exported: BTreeSet<String> = names
        .filter(|name| !name.starts_with("PERSIMMON_"))
        .map(str::to_owned)
        .collect();
    let listed = mapped(&fs::read_to_string(format!("{CRATE}/persimmon.map"))?);
    if listed.is_empty() || exported != listed {
        let odd: Vec<_> = exported.symmetric_difference(&listed).collect();
        bail!("only in the map, or only in the library: {odd:?}");
    }
    Ok(())
}

fn soname(prefix: &Path) -> Result<()> {
    let (major, _) = version()?;
    let mut readelf = shell::command(&["readelf", "--dynamic"]);
    let told = output(readelf.arg(prefix.join("lib/libpersimmon.so")))?;
    let wanted = format!("[libpersimmon.so.{major}]");
    let line = told.lines().find(|line| line.contains("(SONAME)"));
    if line.is_some_and(|line| line.contains(&wanted)) {
        Ok(())
    } else {
        bail!("it is {line:?}, not {wanted}")
    }
}

/// What pkg-config tells of the library, word by word.
fn pkg_config(prefix: &Path, question: &[&str]) -> Result<Vec<String>> {
    let mut pkg_config = shell::command(&["pkg-config"]);
    pkg_config.args(question).arg("persimmon");
    pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let told = output(&mut pkg_config)?;
    Ok(told.split_whitespace().map(str::to_owned).collect())
}

fn in_cpp(prefix: &Path) -> Result<()> {
    let mut cpp = shell::command(&[
        "c++",
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    ]);
    cpp.args([
        "-fsyntax-only",
        "-include",
        "persimmon.h",
        "-x",
        "c++",
        "/dev/null",
    ]);
    cpp.args(pkg_config(prefix, &["--cflags"])?);
    output(&mut cpp).map(drop)
}

/// The example as docs/LIBRARY.md says how to build it.
fn in_c(prefix: &Path, scratch: &Path, statically: bool) -> Result<()> {
    let name = if statically { "static" } else { "shared" };
    let program = scratch.join(name);
    let mut cc = shell::command(&["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    cc.arg(format!("{CRATE}/examples/notes.c"))
        .arg("-o")
        .arg(&program);
    if statically {
        let words = pkg_config(prefix, &["--static", "--cflags", "--libs"])?;
        cc.args(words.iter().map(|word| match word.as_str() {
            "-lpersimmon" => "-l:libpersimmon.a",
            word => word,
        }));
    } else {
        cc.args(pkg_config(prefix, &["--cflags", "--libs"])?);
        cc.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    }
    output(&mut cc)?;
    let said = output(Command::new(program).arg(scratch.join(format!("{name}.img"))))?;
    if !said.contains("pick persimmons\ndry them\n") || !said.contains("again: /notes: ") {
        bail!("it printed: {said}");
    }
    Ok(())
}

fn in_python(prefix: &Path, scratch: &Path) -> Result<()> {
    let mut python = shell::command(&["python3"]);
    python.arg(format!("{CRATE}/examples/notes.py"));
    python.arg(prefix.join("lib/libpersimmon.so"));
    output(python.arg(scratch.join("python.img"))).map(drop)
}

/// What a command prints; its error where it fails.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("running it")?;
    if !output.status.success() {
        bail!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn each_function_of_a_map_has_the_version_that_it_stands_below() {
        let map = "/* persimmon_none; */\nPERSIMMON_0.1 {\n  global:\n    persimmon_a;\n  local:\n    *;\n};\n\
                   PERSIMMON_0.2 {\n  global:\n    persimmon_b;\n} PERSIMMON_0.1;\n";
        let found: Vec<String> = mapped(map).into_iter().collect();
        assert_eq!(
            found,
            ["persimmon_a@@PERSIMMON_0.1", "persimmon_b@@PERSIMMON_0.2"]
        );
    }
}
