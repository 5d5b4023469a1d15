//! The guest's kernel and modules, out of Debian's packages: downloaded, unpacked, never installed.
//! The newest one comes with the tools that make other filesystems, to compare with.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::archive::Archive;
use crate::{setup, shell};

/// A kernel that Debian has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 6.1: the block layer orders writes by its scheduler, if at all.
    Bookworm,
    /// 6.12: the block layer holds writes to a zone back while one is under way (zone write plugging).
    Backport,
    /// Debian's newest, whatever it is today, from its unstable suite.
    Sid,
}

/// Modules wanted, where they are not built in. What they depend on comes along.
const MODULES: &[&str] = &[
    "9p",
    "9pnet_virtio",
    "configfs",
    "crc32c_generic",
    "crc32c_intel",
    "crct10dif_generic",
    "crct10dif_pclmul",
    "fuse",
    "loop",
    "null_blk",
    "nvme",
    "scsi_debug",
    "sd_mod",
    "virtio_pci",
    "zonefs",
];

/// Other filesystems and what they check their blocks with, in the newest kernel.
const PEER_MODULES: &[&str] = &["btrfs", "crc32_cryptoapi", "ext4", "f2fs", "xfs"];
/// Packages of the newest kernel and of the tools that make other filesystems.
const SID_PACKAGES: &str = "linux-image-amd64,btrfs-progs,e2fsprogs,f2fs-tools,xfsprogs";
/// The tools, below `usr/sbin` or `usr/bin` there.
const PEER_TOOLS: &[&str] = &["mkfs.btrfs", "mkfs.ext4", "mkfs.f2fs", "mkfs.xfs"];
/// Where Debian keeps libraries, and the program that finds them.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Grows with what the base holds, so that none of another time is used.
const BASE: u32 = 2;

/// What booting needs.
pub struct Files {
    /// The kernel.
    pub image: PathBuf,
    /// Busybox and modules, as the beginning of an initramfs.
    pub base: PathBuf,
}

impl Kernel {
    /// `6.1`, `6.12` or `sid`.
    pub fn parse(text: &str) -> Result<Kernel> {
        match text {
            "6.1" => Ok(Kernel::Bookworm),
            "6.12" => Ok(Kernel::Backport),
            "sid" => Ok(Kernel::Sid),
            _ => bail!("kernels are 6.1, 6.12 and sid"),
        }
    }

    /// As [`Kernel::parse`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Bookworm => "6.1",
            Kernel::Backport => "6.12",
            Kernel::Sid => "sid",
        }
    }

    /// The kernel and the beginning of an initramfs, made now unless they are there.
    pub fn files(self) -> Result<Files> {
        let dir = cache()?.join(format!("{}-{BASE}", self.name()));
        if !dir.exists() {
            let making = dir.with_extension("making");
            if making.exists() {
                fs::remove_dir_all(&making)?;
            }
            fs::create_dir_all(&making)?;
            self.make(&making)
                .with_context(|| format!("making a guest with Linux {}", self.name()))?;
            fs::rename(&making, &dir)?;
        }
        Ok(Files {
            image: dir.join("vmlinuz"),
            base: dir.join("base.cpio"),
        })
    }

    fn make(self, dir: &Path) -> Result<()> {
        ensure!(
            Path::new("/usr/bin/apt-get").exists(),
            "this is not Debian: its package archive is where the guest's kernel comes from"
        );
        let unpacked = dir.join("unpacked");
        fs::create_dir_all(&unpacked)?;
        download("busybox-static", &unpacked)?;
        let root = dir.join("root");
        fs::create_dir_all(root.join("bin"))?;
        fs::copy(unpacked.join("bin/busybox"), root.join("bin/busybox"))?;
        let image = match self {
            Kernel::Bookworm => of_apt("linux-image-amd64", &unpacked, &root)?,
            Kernel::Backport => of_apt("linux-image-6.12-amd64", &unpacked, &root)?,
            Kernel::Sid => of_sid(&dir.join("sid"), &root)?,
        };
        fs::rename(&image, dir.join("vmlinuz")).context("finding the kernel in its package")?;
        let mut archive = Archive::create(&dir.join("base.cpio"))?;
        archive.tree(&root)?;
        archive.finish()?;
        for done in [unpacked, root, dir.join("sid")] {
            if done.exists() {
                fs::remove_dir_all(done)?;
            }
        }
        Ok(())
    }
}

/// Downloads a package of this machine's Debian and unpacks it.
fn download(package: &str, unpacked: &Path) -> Result<()> {
    eprintln!("downloading {package} for the guest");
    let mut download = shell::command(&["apt-get", "download", "-qq", package]);
    // As root, apt says that it cannot become another user in this directory.
    shell::check(
        download
            .current_dir(unpacked)
            .stderr(std::process::Stdio::null()),
    )
    .with_context(|| format!("downloading {package}; try `apt-get update`"))?;
    for deb in files_in(unpacked)?.filter(|path| path.extension().is_some_and(|e| e == "deb")) {
        let mut unpack = shell::command(&["dpkg-deb", "-x"]);
        shell::check(unpack.arg(&deb).arg(unpacked))?;
        fs::remove_file(&deb)?;
    }
    Ok(())
}

/// The kernel that this package depends on, with its modules in `root`.
fn of_apt(metapackage: &str, unpacked: &Path, root: &Path) -> Result<PathBuf> {
    let package = newest(metapackage)?;
    download(&package, unpacked)?;
    let version = package.trim_start_matches("linux-image-");
    modules(unpacked, root, version, &[MODULES])?;
    Ok(unpacked.join(format!("boot/vmlinuz-{version}")))
}

/// The package of the kernel itself; its name holds the version.
fn newest(metapackage: &str) -> Result<String> {
    let show = || shell::output(&["apt-cache", "show", "--no-all-versions", metapackage]);
    let found = match show() {
        Ok(found) => found,
        Err(_) => {
            shell::check(&mut shell::as_root(&["apt-get", "update", "-qq"]))?;
            show()
                .with_context(|| format!("{metapackage}: no such package in the sources of apt"))?
        }
    };
    let depends = found
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "));
    let package = depends.and_then(|depends| depends.split([' ', ',']).next());
    Ok(package
        .context("a kernel package without a kernel")?
        .to_owned())
}

/// The newest kernel, with its modules and the tools of other filesystems in `root`.
fn of_sid(unpacked: &Path, root: &Path) -> Result<PathBuf> {
    setup::install(&[(
        "mmdebstrap",
        "the newest kernel and tools of other filesystems",
    )])?;
    eprintln!("downloading Debian's newest kernel and the tools of other filesystems");
    let mut fetch = shell::command(&["mmdebstrap", "--quiet", "--variant=extract"]);
    // Mirrors that are copied seldom say that they are too old.
    fetch.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    fetch.arg(format!("--include={SID_PACKAGES}"));
    shell::check(fetch.arg("sid").arg(unpacked))?;
    tools(unpacked, root)?;
    // Where the other kernels have them.
    std::os::unix::fs::symlink("usr/lib", unpacked.join("lib"))?;
    let mut versions = files_in(&unpacked.join("lib/modules"))?;
    let modules_dir = versions.next().context("a kernel without modules")?;
    let version = modules_dir
        .file_name()
        .context("a directory without a name")?;
    let version = text(Path::new(version))?;
    modules(unpacked, root, version, &[MODULES, PEER_MODULES])?;
    Ok(modules_dir.join("vmlinuz"))
}

/// Copies the tools of other filesystems with their own libraries, which are newer than those of
/// this machine's programs.
fn tools(unpacked: &Path, root: &Path) -> Result<()> {
    let libraries = unpacked.join(LIBRARIES);
    for dir in ["sid/bin", "sid/lib"] {
        fs::create_dir_all(root.join(dir))?;
    }
    fs::copy(libraries.join(LOADER), root.join("sid/lib").join(LOADER))?;
    for tool in PEER_TOOLS {
        let places = ["usr/sbin", "usr/bin"].map(|dir| unpacked.join(dir).join(tool));
        let place = places.iter().find(|place| place.exists());
        let place = place.with_context(|| format!("there is no {tool} in Debian's packages"))?;
        fs::copy(place, root.join("sid/bin").join(tool))?;
        let loader = libraries.join(LOADER);
        let needed = shell::output(&[
            text(&loader)?,
            "--library-path",
            text(&libraries)?,
            "--list",
            text(place)?,
        ])?;
        let below = text(&libraries)?;
        for library in needed.split_whitespace().filter(|w| w.starts_with(below)) {
            let name = Path::new(library).file_name();
            let name = name.context("a library without a name")?;
            fs::copy(library, root.join("sid/lib").join(name))?;
        }
        let started = format!(
            "#!/bin/sh\nexec /sid/lib/{LOADER} --library-path /sid/lib /sid/bin/{tool} \"$@\"\n"
        );
        let script = root.join("bin").join(tool);
        fs::write(&script, started)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Copies the wanted modules and what they need, uncompressed, and their index.
fn modules(from: &Path, to: &Path, version: &str, lists: &[&[&str]]) -> Result<()> {
    let below = format!("lib/modules/{version}");
    let from_text = text(from)?;
    shell::check(&mut shell::command(&["depmod", "-b", from_text, version]))?;
    let index = fs::read_to_string(from.join(&below).join("modules.dep"))?;
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let name = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or_default();
        let name = file.split('.').next().unwrap_or_default();
        name.replace('-', "_")
    };
    // Each line names a module and then all that it needs, however far.
    for (module, needs) in index.lines().filter_map(|line| line.split_once(':')) {
        let name = name(module);
        if lists.iter().any(|list| list.contains(&name.as_str())) {
            wanted.insert(module);
            wanted.extend(needs.split_whitespace());
        }
    }
    for module in wanted {
        let source = from.join(&below).join(module);
        let target = to.join(&below).join(module);
        fs::create_dir_all(target.parent().context("a module without a directory")?)?;
        fs::copy(&source, &target)?;
        if module.ends_with(".xz") {
            shell::check(&mut shell::command(&["xz", "-d", text(&target)?]))?;
        }
    }
    for list in [
        "modules.order",
        "modules.builtin",
        "modules.builtin.modinfo",
    ] {
        fs::copy(from.join(&below).join(list), to.join(&below).join(list))?;
    }
    shell::check(&mut shell::command(&["depmod", "-b", text(to)?, version]))
}

/// Where guests are kept, as an absolute path.
pub fn cache() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let dir = Path::new(&target).join("vm");
    fs::create_dir_all(&dir)?;
    Ok(dir.canonicalize()?)
}

fn files_in(dir: &Path) -> Result<impl Iterator<Item = PathBuf> + use<>> {
    Ok(fs::read_dir(dir)?.flatten().map(|entry| entry.path()))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
