//! `persimmon clone`: a file or a tree once more, which shares the blocks of what it is a clone of.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::format::shown::shown_path;
use persimmon::{FileKind, Filesystem, FilesystemError, Ino};
use persimmon_fuse::mounts::{self, MountLine};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat, syncfs};
use rustix::io::Errno;

use super::cp::{check_apart, close, last_name};
use super::host::{HostNode, HostSink, HostTree, open_directory};
use super::tree::{Copied, Copier, CopyError, Sink, Tree, copy_tree};
use super::volume::{VolumeSink, VolumeTree};
use super::{Access, conclude, of_path, open, rooted, say_line, stop_on_signals};
use crate::exit;
use crate::live;
use crate::report::Info;

const NAME: &str = "clone";

/// Clone a file, or a directory with all that is in it: no data is copied, and what is written to one is its own.
///
/// On a live mount: `persimmon clone /mnt/db /mnt/db.copy`. In a volume that is not mounted: `persimmon clone volume.img
/// :/db :/db.copy`. The target must not exist. Kept is what `persimmon fs cp` keeps: permissions, times, owners (by root
/// alone on a mount), extended attributes and access control lists, hard links among what is cloned, symbolic links, holes,
/// pipes, sockets and devices.
#[derive(Args)]
pub struct CloneCommand {
    /// What is cloned, and the name of the clone; before them the volume (device, image file, LABEL= or UUID=) if it is not
    /// mounted: then paths are in it, with or without a colon
    #[arg(required = true, num_args = 2..=3, value_name = "[SPEC] SOURCE TARGET")]
    operands: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why nothing was cloned.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}: is there already; name a clone that is not, or remove it first")]
    Exists(String),
    #[error("{0}: is no name that a clone could have")]
    Nameless(String),
    #[error(
        "{target} is not on the mount that {source_path} is on, and volumes share no blocks; copy it, with `cp -a`"
    )]
    OtherVolume { source_path: String, target: String },
    #[error(
        "{0} is not on a mounted Persimmon volume; of one that is not mounted name the volume too, as in `persimmon clone \
         volume.img :/a :/b`"
    )]
    NotMounted(String),
    #[error("{0}: a directory cannot be cloned into itself")]
    IntoItself(String),
}

fn told(path: &Path) -> String {
    shown_path(path).to_string()
}

impl CloneCommand {
    pub fn run(&self) -> Result<u8> {
        match &*self.operands {
            [source, target] => {
                if [source, target]
                    .map(|path| is_in_volume(path))
                    .contains(&true)
                {
                    return Err(exit::usage(
                        "a path with a colon is in a volume, which comes first: clone SPEC :SOURCE :TARGET",
                    ));
                }
                self.on_mount(Path::new(source), Path::new(target))
            }
            [volume, source, target] => {
                self.in_volume(volume, &path_in_volume(source), &path_in_volume(target))
            }
            _ => Err(exit::usage("name what to clone, and the clone")),
        }
    }

    fn in_volume(&self, volume: &OsStr, source: &Path, target: &Path) -> Result<u8> {
        let instead = "name SOURCE and TARGET there, without SPEC, or ";
        let opened = open(volume, Access::Write, instead)?;
        let filesystem = &opened.filesystem;
        let (name, directory, ino) = places_in(filesystem, source, target)?;
        let tree = VolumeTree(filesystem.clone());
        let mut sink = VolumeSink::new(
            filesystem,
            directory,
            target.parent().unwrap_or(Path::new("/")),
        );
        let (went, tally) = self.clone_tree((&tree, ino), &mut sink, (source, &name))?;
        drop(sink);
        drop(tree);
        let went = close(opened, went);
        conclude(NAME, (went, &tally), "cloned", say_line, self.json)
    }

    fn on_mount(&self, source: &Path, target: &Path) -> Result<u8> {
        let node = HostNode::of(source).with_context(|| told(source))?;
        let seen = node.stat().with_context(|| told(source))?;
        let is_link = FileType::from_raw_mode(seen.st_mode) == FileType::Symlink;
        let asked = match source.parent() {
            Some(above) if is_link => if_empty_here(above),
            _ => source,
        };
        if let Err(error) = live::ask::<Info>(asked, "info") {
            // A daemon that does not answer is one all the same.
            return Err(if live::may_be_mounted(&error) {
                error
            } else {
                Refusal::NotMounted(told(source)).into()
            });
        }
        let name = last_name(target.as_os_str().as_bytes());
        let name = name
            .ok_or_else(|| Refusal::Nameless(told(target)))?
            .to_vec();
        let above = if_empty_here(target.parent().unwrap_or(target));
        let directory = open_directory(above).with_context(|| told(above))?;
        match statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(Refusal::Exists(told(target)).into()),
            Err(error) => return Err(error).with_context(|| told(target)),
        }
        let device = seen.st_dev;
        if fstat(&directory)?.st_dev != device {
            let (source_path, target) = (told(source), told(target));
            return Err(Refusal::OtherVolume {
                source_path,
                target,
            }
            .into());
        }
        if is_within(&directory, (device, seen.st_ino))? {
            return Err(Refusal::IntoItself(told(source)).into());
        }
        let by_daemon = may_ask_daemon(source, &directory);
        let tree = HostTree::below(&node, device).by_daemon(by_daemon);
        let mut sink = HostSink::beside_all(directory).by_daemon(by_daemon);
        let (went, tally) = self.clone_tree((&tree, node), &mut sink, (source, &name))?;
        conclude(NAME, (went, &tally), "cloned", say_line, self.json)
    }

    fn clone_tree<T: Tree>(
        &self,
        (tree, node): (&T, T::Node),
        sink: &mut dyn Sink,
        (source, name): (&Path, &[u8]),
    ) -> Result<(Copied<()>, super::tree::Tally)> {
        let stop = stop_on_signals()?;
        let mut copier = Copier::new(sink, &stop, NAME);
        copier.set_tops(source.as_os_str().as_bytes(), name);
        let went = copy_tree(tree, node, name.to_vec(), true, &mut copier);
        Ok((went, copier.tally))
    }
}

/// Whether the daemon clones what is in directories. It looks at no permission, and sees nothing that is mounted in the volume. What the kernel
/// holds back of files is written first.
fn may_ask_daemon(source: &Path, directory: &OwnedFd) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let (Ok(source), Ok(mounts)) = (source.canonicalize(), mounts::list()) else {
        return false;
    };
    let is_below =
        |line: &MountLine| line.mount_point != source && line.mount_point.starts_with(&source);
    !mounts.iter().any(is_below) && syncfs(directory).is_ok()
}

fn is_in_volume(path: &OsStr) -> bool {
    path.as_bytes().starts_with(b":")
}

fn path_in_volume(path: &OsStr) -> PathBuf {
    let bytes = path.as_bytes();
    rooted(OsStr::from_bytes(bytes.strip_prefix(b":").unwrap_or(bytes)))
}

fn if_empty_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

/// The name of the clone, the directory that it is to be in, and what is cloned.
fn places_in(filesystem: &Filesystem, source: &Path, target: &Path) -> Result<(Vec<u8>, Ino, Ino)> {
    let attr = filesystem.symlink_metadata(source);
    let attr = attr.map_err(|error| of_path(source, &error))?;
    let name = last_name(target.as_os_str().as_bytes());
    let name = name
        .ok_or_else(|| Refusal::Nameless(told(target)))?
        .to_vec();
    match filesystem.symlink_metadata(target) {
        Ok(_) => return Err(Refusal::Exists(told(target)).into()),
        Err(error) if matches!(error.filesystem(), Some(FilesystemError::NotFound)) => {}
        Err(error) => return Err(of_path(target, &error)),
    }
    let above = target.parent().unwrap_or(Path::new("/"));
    let directory = filesystem.metadata(above);
    let directory = directory.map_err(|error| of_path(above, &error))?;
    if directory.kind() != FileKind::Directory {
        anyhow::bail!("{} is not a directory", shown_path(above));
    }
    match check_apart(filesystem, attr.ino, directory.ino, &name) {
        Ok(()) => Ok((name, directory.ino, attr.ino)),
        Err(CopyError::One(_)) => Err(Refusal::IntoItself(told(source)).into()),
        Err(error) => Err(error.into()),
    }
}

/// Whether an open directory is the one of this device and number, or below it.
fn is_within(directory: &OwnedFd, identity: (u64, u64)) -> Result<bool> {
    let mut at = directory.try_clone()?;
    loop {
        let here = fstat(&at)?;
        if (here.st_dev, here.st_ino) == identity {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = openat(at.as_fd(), "..", flags, Mode::empty())?;
        let there = fstat(&above)?;
        // The root is above itself; what is above the mount is another filesystem.
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) || there.st_dev != identity.0
        {
            return Ok(false);
        }
        at = above;
    }
}
