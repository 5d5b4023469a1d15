//! What the tests, the demo and the benchmarks need from the machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Debian packages, each with what uses it.
const PACKAGES: &[(&str, &str)] = &[
    ("acl", "setfacl and getfacl on the mount"),
    ("attr", "setfattr and getfattr on the mount"),
    ("ca-certificates", "cargo's downloads"),
    ("e2fsprogs", "ext4, to compare with, chattr and lsattr"),
    ("fio", "verified input and output"),
    ("fuse3", "fusermount3"),
    ("g++", "the C library's header, in C++"),
    ("gcc", "cargo's linker, the C library's example"),
    ("git", "clone, checkout, gc and fsck on the mount"),
    ("kmod", "loading the fuse and loop modules"),
    ("mount", "mount and umount"),
    ("pkgconf", "building programs with the C library"),
    ("postgresql", "initdb, pgbench"),
    ("postgresql-contrib", "amcheck"),
    ("procps", "process listings in failure reports"),
    ("python3", "the C library's example in Python"),
    ("python3-venv", "a virtual environment on the mount"),
    ("qemu-system-x86", "the virtual machine with zoned drives"),
    ("qemu-utils", "a disk image converted by cloning"),
    ("rsync", "a tree copied with all its attributes"),
    ("sqlite3", "WAL and DELETE journals"),
    ("util-linux", "losetup, flock"),
    ("xz-utils", "the kernel modules of the virtual machine"),
];

/// What the plugin for RocksDB is built and tested with.
pub const ROCKSDB_PACKAGES: &[(&str, &str)] = &[
    ("cmake", "building the RocksDB plugin"),
    ("g++", "the RocksDB plugin"),
    ("librocksdb-dev", "headers of RocksDB"),
    ("make", "building the RocksDB plugin"),
    ("pkgconf", "building the RocksDB plugin"),
    ("rocksdb-tools", "db_bench, ldb and sst_dump"),
];

/// The fsx of crates.io, built once into `.cache`.
const FSX_VERSION: &str = "0.3.2";

/// Installs what is missing and says what it installs.
pub fn run() -> Result<()> {
    packages()?;
    rust_components()?;
    crates()?;
    fsx()?;
    kernel_modules()
}

/// Downloads what all crates are built with: a test on the mount builds one of them without a network.
fn crates() -> Result<()> {
    shell::check(&mut shell::command(&[
        "cargo", "fetch", "--locked", "--quiet",
    ]))
}

/// Where [`run`] leaves fsx, from the workspace root.
pub fn fsx_path() -> PathBuf {
    PathBuf::from(".cache/bin/fsx")
}

/// Installs the Debian packages that are missing.
pub fn packages() -> Result<()> {
    let all = [PACKAGES, ROCKSDB_PACKAGES].concat();
    if install(&all)? == 0 {
        println!("packages: all {} there", all.len());
    }
    Ok(())
}

/// Installs those of these packages that are missing, each told with what uses it; how many they were.
pub fn install(packages: &[(&str, &str)]) -> Result<usize> {
    let missing: Vec<&(&str, &str)> = packages
        .iter()
        .filter(|(package, _)| !installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(0);
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        let names: Vec<&str> = missing.iter().map(|(package, _)| *package).collect();
        bail!(
            "this is not Debian: install these by hand first: {}",
            names.join(" ")
        );
    }
    for (package, purpose) in &missing {
        println!("installing {package}: {purpose}");
    }
    // apt-get refuses everything where an earlier installation was cut off, by a power cut as by `kill`.
    shell::check(&mut shell::as_root(&[
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "dpkg",
        "--configure",
        "-a",
    ]))
    .context("finishing what an earlier installation of packages left half done")?;
    shell::check(&mut shell::as_root(&["apt-get", "update", "-qq"]))?;
    let mut words = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "-o",
        "Dpkg::Use-Pty=0",
        // A fresh machine may be installing its own updates just now.
        "-o",
        "DPkg::Lock::Timeout=300",
    ];
    words.extend(missing.iter().map(|(package, _)| *package));
    shell::check(&mut shell::as_root(&words)).context("installing packages")?;
    Ok(missing.len())
}

/// Those of these packages that are missing.
pub fn missing(packages: &[(&'static str, &str)]) -> Vec<&'static str> {
    let packages = packages.iter().map(|(package, _)| *package);
    packages.filter(|package| !installed(package)).collect()
}

fn installed(package: &str) -> bool {
    let output = shell::command(&["dpkg-query", "-W", "-f=${db:Status-Status}", package]).output();
    output.is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

fn rust_components() -> Result<()> {
    for (probe, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !shell::quietly(&mut shell::command(&["cargo", probe, "--version"])) {
            println!("installing {component} by rustup");
            shell::check(&mut shell::command(&[
                "rustup",
                "component",
                "add",
                component,
            ]))?;
        }
    }
    Ok(())
}

fn fsx() -> Result<()> {
    if fsx_path().exists() {
        return Ok(());
    }
    println!("installing fsx {FSX_VERSION} into .cache");
    shell::check(&mut shell::command(&[
        "cargo",
        "install",
        "fsx",
        "--quiet",
        "--locked",
        "--version",
        FSX_VERSION,
        "--root",
        ".cache",
    ]))
}

/// A machine without systemd may have loaded neither module.
fn kernel_modules() -> Result<()> {
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if Path::new(device).exists() {
            continue;
        }
        println!("loading the kernel module {module}");
        shell::quietly(&mut shell::as_root(&["modprobe", module]));
        if !Path::new(device).exists() {
            bail!("{device} is missing and `modprobe {module}` did not bring it");
        }
    }
    Ok(())
}
