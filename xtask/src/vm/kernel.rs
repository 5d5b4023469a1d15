//! The guest's kernel and modules, out of Debian's packages: downloaded, unpacked, never installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::archive::Archive;
use crate::shell;

/// A kernel that Debian has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 6.1: the block layer orders writes by its scheduler, if at all.
    Bookworm,
    /// 6.12: the block layer holds writes to a zone back while one is under way (zone write plugging).
    Backport,
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
    "null_blk",
    "nvme",
    "scsi_debug",
    "sd_mod",
    "virtio_pci",
    "zonefs",
];

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
    /// `6.1` or `6.12`.
    pub fn parse(text: &str) -> Result<Kernel> {
        match text {
            "6.1" => Ok(Kernel::Bookworm),
            "6.12" => Ok(Kernel::Backport),
            _ => bail!("kernels are 6.1 and 6.12"),
        }
    }

    /// As [`Kernel::parse`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Bookworm => "6.1",
            Kernel::Backport => "6.12",
        }
    }

    /// The package that depends on the newest one of this kernel.
    fn metapackage(self) -> &'static str {
        match self {
            Kernel::Bookworm => "linux-image-amd64",
            Kernel::Backport => "linux-image-6.12-amd64",
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
        let package = self.package()?;
        eprintln!("downloading {package} and busybox-static for the guest");
        for name in [package.as_str(), "busybox-static"] {
            let mut download = shell::command(&["apt-get", "download", "-qq", name]);
            // As root, apt says that it cannot become another user in this directory.
            shell::check(
                download
                    .current_dir(dir)
                    .stderr(std::process::Stdio::null()),
            )
            .with_context(|| format!("downloading {name}; try `apt-get update`"))?;
        }
        let unpacked = dir.join("unpacked");
        for deb in files_in(dir)?.filter(|path| path.extension().is_some_and(|e| e == "deb")) {
            let mut unpack = shell::command(&["dpkg-deb", "-x"]);
            shell::check(unpack.arg(&deb).arg(&unpacked))?;
            fs::remove_file(&deb)?;
        }
        let version = package.trim_start_matches("linux-image-");
        let image = unpacked.join(format!("boot/vmlinuz-{version}"));
        fs::rename(&image, dir.join("vmlinuz")).context("finding the kernel in its package")?;
        let root = dir.join("root");
        fs::create_dir_all(root.join("bin"))?;
        fs::copy(unpacked.join("bin/busybox"), root.join("bin/busybox"))?;
        modules(&unpacked, &root, version)?;
        let mut archive = Archive::create(&dir.join("base.cpio"))?;
        archive.tree(&root)?;
        archive.finish()?;
        fs::remove_dir_all(unpacked)?;
        Ok(fs::remove_dir_all(root)?)
    }

    /// The package of the kernel itself; its name holds the version.
    fn package(self) -> Result<String> {
        let meta = self.metapackage();
        let show = || shell::output(&["apt-cache", "show", "--no-all-versions", meta]);
        let found = match show() {
            Ok(found) => found,
            Err(_) => {
                shell::check(&mut shell::as_root(&["apt-get", "update", "-qq"]))?;
                show().with_context(|| format!("{meta}: no such package in the sources of apt"))?
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
}

/// Copies the wanted modules and what they need, uncompressed, and their index.
fn modules(from: &Path, to: &Path, version: &str) -> Result<()> {
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
        if MODULES.contains(&name(module).as_str()) {
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

fn files_in(dir: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    Ok(fs::read_dir(dir)?.flatten().map(|entry| entry.path()))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
