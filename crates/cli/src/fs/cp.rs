//! `persimmon fs cp`: copies between the host and a volume, and inside it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use persimmon::internal::format::shown::shown_path;
use persimmon::vfs::ROOT;
use persimmon::{FileKind, Filesystem, FilesystemError, Ino};

use super::host::{HostNode, HostSink, HostTree, open_directory};
use super::tree::{Copied, Copier, CopyError, Sink, copy_tree};
use super::volume::{VolumeSink, VolumeTree};
use super::{Access, Opened, conclude, open, rooted, say_line, stop_on_signals};
use crate::exit;

const NAME: &str = "fs cp";

/// Copy between the host and a volume that is not mounted, or inside the volume.
///
/// A path that begins with a colon is in the volume: `:/etc/hosts`. Any other is one of the host; of a file of the host
/// whose name begins with a colon write `./:name`. Kept are permissions, times, owners, extended attributes and access
/// control lists, hard links among what is copied, symbolic links, holes, pipes, sockets and devices; on the host, owners,
/// devices and the attributes `trusted.` and `security.` by root alone. A file is replaced as a whole, once the new one is
/// complete.
#[derive(Args)]
pub struct Cp {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// What is copied, and where to: the last one
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Directories with all that is in them; a symbolic link is copied as one, also where it is named
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A path, and whose it is.
enum Operand {
    Host(PathBuf),
    Volume(PathBuf),
}

impl Operand {
    fn of(text: &OsStr) -> Operand {
        match text.as_bytes().strip_prefix(b":") {
            Some(path) => Operand::Volume(rooted(OsStr::from_bytes(path))),
            None => Operand::Host(PathBuf::from(text)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Operand::Host(path) | Operand::Volume(path) => path,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.path().as_os_str().as_bytes()
    }
}

/// The last name of a path. A root and a path that ends in dots have none: then the directory itself is meant.
pub fn last_name(path: &[u8]) -> Option<&[u8]> {
    let mut names = path.rsplit(|byte| *byte == b'/');
    let name = names.find(|name| !name.is_empty())?;
    (name != b"." && name != b"..").then_some(name)
}

/// Where copies go.
struct Place {
    sink: Box<dyn Sink>,
    /// The directory of the volume, if it is one of it.
    directory: Option<Ino>,
    /// The name of the copy. `None`: each keeps its own.
    name: Option<Vec<u8>>,
}

impl Cp {
    pub fn run(&self) -> Result<u8> {
        let operands: Vec<Operand> = self.paths.iter().map(|path| Operand::of(path)).collect();
        let Some((target, sources)) = operands.split_last() else {
            return Err(exit::usage("name what to copy, and where to"));
        };
        let is_in_volume = |operand: &Operand| matches!(operand, Operand::Volume(_));
        if !operands.iter().any(is_in_volume) {
            return Err(exit::usage(
                "no path is in the volume; one in it begins with a colon, as in :/dir/file",
            ));
        }
        let access = if is_in_volume(target) {
            Access::Write
        } else {
            Access::Read
        };
        if !is_in_volume(target) && !sources.iter().all(is_in_volume) {
            return Err(exit::usage(
                "a source and the target are both of the host; use cp",
            ));
        }
        let opened = open(&self.volume, access, "use cp there, or ")?;
        let stop = stop_on_signals()?;
        let mut place = match target {
            Operand::Host(path) => in_host(path),
            Operand::Volume(path) => in_volume(&opened.filesystem, path),
        }
        .with_context(|| shown_path(target.path()).to_string())?;
        if place.name.is_some() && !self.recursive && target.bytes().ends_with(b"/") {
            bail!("{}: no such directory", shown_path(target.path()));
        }
        if place.name.is_some() && sources.len() > 1 {
            return Err(exit::usage(format_args!(
                "{} is no directory, which several sources need",
                shown_path(target.path())
            )));
        }
        let Place {
            sink,
            directory,
            name,
        } = &mut place;
        let mut copier = Copier::new(&mut **sink, &stop, NAME);
        let mut went = Ok(());
        for source in sources {
            let path = match (&*name, last_name(source.bytes())) {
                (Some(name), _) => name.clone(),
                (None, Some(name)) => name.to_vec(),
                (None, None) => Vec::new(),
            };
            went = self.copy(source, path, *directory, &opened, &mut copier);
            if went.is_err() {
                break;
            }
        }
        let tally = copier.tally;
        drop(place);
        let went = close(opened, went);
        conclude(NAME, (went, &tally), "copied", say_line, self.json)
    }

    fn copy(
        &self,
        source: &Operand,
        path: Vec<u8>,
        directory: Option<Ino>,
        opened: &Opened,
        copier: &mut Copier<'_>,
    ) -> Copied<()> {
        let into = self.recursive;
        copier.set_tops(source.bytes(), &path);
        match source {
            Operand::Host(from) => {
                let found = if into {
                    HostNode::of(from).map_err(CopyError::from)
                } else {
                    fs::canonicalize(from)
                        .map_err(CopyError::from)
                        .and_then(|from| Ok(HostNode::of(&from)?))
                };
                match copier.settle(&path, found)? {
                    Some(node) => {
                        copy_tree(&HostTree::beside(&opened.devices), node, path, into, copier)
                    }
                    None => Ok(()),
                }
            }
            Operand::Volume(from) => {
                let filesystem = &opened.filesystem;
                let found = if into {
                    filesystem.symlink_metadata(from)
                } else {
                    filesystem.metadata(from)
                };
                let found = found
                    .map_err(|error| match error.filesystem() {
                        Some(error) => CopyError::one(error),
                        None => CopyError::ends(error),
                    })
                    .and_then(|attr| {
                        match directory {
                            Some(directory) => check_apart(filesystem, attr.ino, directory, &path),
                            None => Ok(()),
                        }
                        .map(|()| attr.ino)
                    });
                match copier.settle(&path, found)? {
                    Some(ino) => {
                        let tree = VolumeTree(filesystem.clone());
                        copy_tree(&tree, ino, path, into, copier)
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// Refuses a copy of something onto itself, and of a directory into itself, which would never end.
pub fn check_apart(filesystem: &Filesystem, from: Ino, directory: Ino, path: &[u8]) -> Copied<()> {
    let vfs = filesystem.vfs();
    if !path.is_empty()
        && vfs
            .lookup(directory, path)
            .is_ok_and(|there| there.ino == from)
    {
        return Err(CopyError::one("is the same file as its copy would be"));
    }
    let mut at = directory;
    // A tree of damaged directories may be a ring.
    for _ in 0..1 << 16 {
        if at == from {
            return Err(CopyError::one("cannot be copied into itself"));
        }
        if at == ROOT {
            return Ok(());
        }
        at = vfs.lookup(at, b"..")?.ino;
    }
    Err(CopyError::one("the target is too deep"))
}

/// A directory takes copies with their names; anything else is the name of the one copy.
fn in_volume(filesystem: &Filesystem, path: &Path) -> Result<Place> {
    let told = |error: &persimmon::Error| match error.filesystem() {
        Some(error) => anyhow::anyhow!("{error}"),
        None => anyhow::anyhow!("{error}"),
    };
    let into = |directory: Ino, at: &Path, name: Option<Vec<u8>>| Place {
        sink: Box::new(VolumeSink::new(filesystem, directory, at)),
        directory: Some(directory),
        name,
    };
    match filesystem.metadata(path) {
        Ok(attr) if attr.kind() == FileKind::Directory => Ok(into(attr.ino, path, None)),
        Err(error) if !matches!(error.filesystem(), Some(FilesystemError::NotFound)) => {
            Err(told(&error))
        }
        _ => {
            let name = last_name(path.as_os_str().as_bytes());
            let name = name.context("no such directory")?.to_vec();
            let above = path.parent().unwrap_or(Path::new("/"));
            let directory = filesystem.metadata(above).map_err(|error| told(&error))?;
            if directory.kind() != FileKind::Directory {
                bail!("{} is not a directory", shown_path(above));
            }
            Ok(into(directory.ino, above, Some(name)))
        }
    }
}

fn in_host(path: &Path) -> Result<Place> {
    // What is there is meant where a link leads, so that no link to a device is taken away.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (directory, name) = if path.is_dir() {
        (path, None)
    } else {
        let name = last_name(path.as_os_str().as_bytes()).context("no such directory")?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        (
            above.unwrap_or(Path::new(".")).to_owned(),
            Some(name.to_vec()),
        )
    };
    Ok(Place {
        sink: Box::new(HostSink::new(open_directory(&directory)?)),
        directory: None,
        name,
    })
}

/// Closes the volume, which makes everything durable.
pub fn close(opened: Opened, went: Copied<()>) -> Copied<()> {
    match (opened.filesystem.close(), went) {
        (Ok(()), went) => went,
        (Err(error), Ok(())) => Err(CopyError::Ends(format!(
            "{error}; what was done last may be lost"
        ))),
        (Err(error), Err(before)) => Err(CopyError::Ends(format!(
            "{before}; {error}; what was done last may be lost"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_tells_the_volume_from_the_host() {
        let is = |text: &str| match Operand::of(OsStr::new(text)) {
            Operand::Host(path) => ("host", path),
            Operand::Volume(path) => ("volume", path),
        };
        assert_eq!(is(":/a/b"), ("volume", PathBuf::from("/a/b")));
        assert_eq!(is(":a"), ("volume", PathBuf::from("/a")));
        assert_eq!(is(":"), ("volume", PathBuf::from("/")));
        assert_eq!(is("a:/b"), ("host", PathBuf::from("a:/b")));
        assert_eq!(is("./:a"), ("host", PathBuf::from("./:a")));
    }

    #[test]
    fn a_path_ends_in_a_name_or_means_a_directory() {
        for (path, name) in [
            ("/a/b", Some("b")),
            ("b//", Some("b")),
            ("/", None),
            ("", None),
            ("a/.", None),
            ("..", None),
        ] {
            assert_eq!(
                last_name(path.as_bytes()),
                name.map(str::as_bytes),
                "{path}"
            );
        }
    }
}
