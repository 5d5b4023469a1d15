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
/// Major version of the interface, as in the header.
const MAJOR: &str = "0";

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

/// Makes a folder as it would be installed: `lib/libpersimmon.so`, `lib/libpersimmon.a`, `include/persimmon.h`, `lib/pkgconfig/persimmon.pc`.
/// Packages of `with` are built in the same run, which compiles what they share once.
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
    let soname = format!("libpersimmon.so.{MAJOR}");
    let mut cc = shell::command(&["cc", "-shared", "-o"]);
    cc.arg(lib.join(&soname))
        .arg(format!("-Wl,-soname,{soname}"))
        .arg(format!("-Wl,--version-script={CRATE}/persimmon.map"))
        .args(["-Wl,--gc-sections", "-Wl,--whole-archive"])
        .arg(lib.join("libpersimmon.a"))
        .args([
            "-Wl,--no-whole-archive",
            "-lpthread",
            "-ldl",
            "-lm",
            "-lgcc_s",
            "-lc",
        ]);
    shell::check(&mut cc).context("linking libpersimmon.so")?;
    let link = lib.join("libpersimmon.so");
    if link.symlink_metadata().is_err() {
        symlink(&soname, &link)?;
    }
    fs::write(
        lib.join("pkgconfig/persimmon.pc"),
        format!(
            "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: persimmon\n\
             Description: A filesystem for zoned storage, as a library\nVersion: {}\n\
             Libs: -L${{libdir}} -lpersimmon\nLibs.private: -lpthread -ldl -lm -lgcc_s -lc\n\
             Cflags: -I${{includedir}}\n",
            prefix.display(),
            env!("CARGO_PKG_VERSION"),
        ),
    )?;
    Ok(prefix)
}

/// The exported symbols, the examples in C (linked both ways) and in Python: how many hold, and how many do not.
pub fn check(prefix: &Path) -> Result<(usize, usize)> {
    let scratch = tempfile::tempdir()?;
    let checks: [(&str, &dyn Fn() -> Result<()>); 4] = [
        ("exported symbols are those of the header", &|| {
            symbols(prefix)
        }),
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

fn symbols(prefix: &Path) -> Result<()> {
    let mut nm = shell::command(&["nm", "--dynamic", "--defined-only", "--format=posix"]);
    let shown = output(nm.arg(prefix.join("lib/libpersimmon.so")))?;
    let names = shown
        .lines()
        .filter_map(|line| line.split([' ', '@']).next());
    let exported: BTreeSet<String> = names
        .filter(|name| !name.starts_with("PERSIMMON_"))
        .map(str::to_owned)
        .collect();
    let header = fs::read_to_string(prefix.join("include/persimmon.h"))?;
    let calls = header.lines().filter(|line| !line.starts_with("//"));
    let declared: BTreeSet<String> = calls
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("persimmon_"))
        .map(str::to_owned)
        .collect();
    if exported != declared {
        let odd: Vec<_> = exported.symmetric_difference(&declared).collect();
        bail!("only in the header, or only in the library: {odd:?}");
    }
    Ok(())
}

fn in_c(prefix: &Path, scratch: &Path, statically: bool) -> Result<()> {
    let name = if statically { "static" } else { "shared" };
    let program = scratch.join(name);
    let mut cc = shell::command(&["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    cc.arg(format!("{CRATE}/examples/notes.c"))
        .arg("-o")
        .arg(&program);
    cc.arg("-I").arg(prefix.join("include"));
    if statically {
        cc.arg(prefix.join("lib/libpersimmon.a"));
        cc.args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"]);
    } else {
        cc.arg("-L").arg(prefix.join("lib")).arg("-lpersimmon");
        cc.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    }
    shell::check(&mut cc)?;
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
