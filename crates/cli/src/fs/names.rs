//! `persimmon fs mv`, `rm` and `mkdir`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown::{shown, shown_path};
use persimmon::{Error, FileKind, Filesystem, FilesystemError, Ino};
use serde::Serialize;

use super::cp::{close, last_name};
use super::tree::{Children, Copied, CopyError, Tree, below};
use super::volume::VolumeTree;
use super::{Access, of_path, open, rooted, stop_on_signals};
use crate::exit::{self, FAILED, FS_INTERRUPTED, FS_PARTIAL};
use crate::output::{self, say};

const RM: &str = "fs rm";

/// Rename in a volume that is not mounted.
///
/// A file that has the new name already is replaced. Atomic, also against crashes.
#[derive(Args)]
pub struct Mv {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// What is renamed
    from: OsString,
    /// The new name, or a directory that takes it
    to: OsString,
}

impl Mv {
    pub fn run(&self) -> Result<u8> {
        let opened = open(&self.volume, Access::Write, "use mv there, or ")?;
        let (from, mut to) = (rooted(&self.from), rooted(&self.to));
        let Some(name) = last_name(self.from.as_bytes()) else {
            return Err(exit::usage("the root and dots cannot be renamed"));
        };
        let attr = opened.filesystem.metadata(&to);
        if attr.is_ok_and(|attr| attr.kind() == FileKind::Directory) {
            to.push(super::os(name.to_vec()));
        }
        let renamed = opened.filesystem.rename(&from, &to);
        renamed.map_err(|error| match &error {
            // One of the two alone is to blame.
            Error::At { path, .. } => of_path(path, &error),
            _ => of_path(&from, &error).context(format!("to {}", shown_path(&to))),
        })?;
        opened.filesystem.close()?;
        Ok(0)
    }
}

/// Make directories in a volume that is not mounted.
#[derive(Args)]
pub struct Mkdir {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Those above it, too; one that is there already is none to complain of
    #[arg(short, long)]
    parents: bool,
}

impl Mkdir {
    pub fn run(&self) -> Result<u8> {
        let opened = open(&self.volume, Access::Write, "use mkdir there, or ")?;
        let mut failed = Ok(());
        for path in &self.paths {
            let path = rooted(path);
            let made = if self.parents {
                opened.filesystem.create_dir_all(&path)
            } else {
                opened.filesystem.create_dir(&path)
            };
            if let Err(error) = made {
                failed = Err(of_path(&path, &error));
                break;
            }
        }
        opened.filesystem.close()?;
        failed.map(|()| 0)
    }
}

/// Remove files and directories in a volume that is not mounted.
///
/// A symbolic link is removed itself.
#[derive(Args)]
pub struct Rm {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// What is not there is none to complain of
    #[arg(short, long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Default, Serialize)]
struct Removed {
    complete: bool,
    /// Names of anything but directories.
    files: u64,
    directories: u64,
    failed: u64,
}

impl Rm {
    pub fn run(&self) -> Result<u8> {
        for path in &self.paths {
            if last_name(path.as_bytes()).is_none() {
                return Err(exit::usage(format_args!(
                    "{}: the root cannot be removed, nor what dots mean; name what is in it",
                    shown_path(Path::new(path))
                )));
            }
        }
        let opened = open(&self.volume, Access::Write, "use rm there, or ")?;
        let mut remover = Remover {
            tree: VolumeTree(opened.filesystem.clone()),
            stop: stop_on_signals()?,
            removed: Removed::default(),
        };
        let mut went = Ok(());
        for path in &self.paths {
            went = self.remove(&opened.filesystem, &rooted(path), &mut remover);
            if went.is_err() {
                break;
            }
        }
        let mut removed = remover.removed;
        let went = close(opened, went);
        removed.complete = went.is_ok();
        let said = format!(
            "{} files and {} directories removed",
            removed.files, removed.directories
        );
        let code = match &went {
            Ok(()) if removed.failed == 0 => 0,
            Ok(()) => FS_PARTIAL,
            Err(CopyError::Interrupted) => FS_INTERRUPTED,
            Err(_) => FAILED,
        };
        if let Err(error) = &went {
            output::tell(format_args!("persimmon {RM}: {error}; until then: {said}"));
        }
        let told = match (self.json, went) {
            (true, _) => output::json(&removed),
            (false, Ok(())) => say!("{said}").map_err(Into::into),
            (false, Err(_)) => Ok(()),
        };
        output::done(code, told)
    }

    fn remove(&self, filesystem: &Filesystem, path: &Path, remover: &mut Remover) -> Copied<()> {
        let bytes = path.as_os_str().as_bytes();
        let attr = match filesystem.symlink_metadata(path) {
            Ok(attr) => attr,
            Err(error) => {
                let is_missing = matches!(error.filesystem(), Some(FilesystemError::NotFound));
                return if is_missing && self.force {
                    Ok(())
                } else {
                    remover.settle::<()>(bytes, Err(of(error))).map(drop)
                };
            }
        };
        if attr.kind() != FileKind::Directory {
            let gone = remover.settle(bytes, filesystem.remove_file(path).map_err(of))?;
            remover.removed.files += u64::from(gone.is_some());
            return Ok(());
        }
        if !self.recursive {
            let refused = CopyError::one("is a directory; -r removes it");
            return remover.settle::<()>(bytes, Err(refused)).map(drop);
        }
        remover.empty(attr.ino, bytes)?;
        let gone = remover.settle(bytes, filesystem.remove_dir(path).map_err(of))?;
        remover.removed.directories += u64::from(gone.is_some());
        Ok(())
    }
}

fn of(error: persimmon::Error) -> CopyError {
    match error {
        persimmon::Error::At { source, .. } | persimmon::Error::Filesystem(source) => source.into(),
        error => CopyError::ends(error),
    }
}

struct Remover {
    tree: VolumeTree,
    stop: Arc<AtomicBool>,
    removed: Removed,
}

impl Remover {
    fn settle<T>(&mut self, path: &[u8], result: Copied<T>) -> Copied<Option<T>> {
        match result {
            Err(CopyError::One(message)) => {
                self.removed.failed += 1;
                output::tell(format_args!("persimmon {RM}: {}: {message}", shown(path)));
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Removes everything in a directory. With a stack of its own: a tree may be deeper than the thread's.
    fn empty(&mut self, top: Ino, path: &[u8]) -> Copied<()> {
        let filesystem = self.tree.0.clone();
        let vfs = filesystem.vfs();
        let mut entered = HashSet::from([top]);
        let mut way: Vec<(Ino, Vec<u8>, Children<Ino>)> =
            vec![(top, path.to_vec(), self.tree.children(&top)?)];
        while let Some((directory, path, children)) = way.last_mut() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CopyError::Interrupted);
            }
            let (directory, path) = (*directory, path.clone());
            let Some(child) = children.next() else {
                way.pop();
                if let Some((above, ..)) = way.last() {
                    let name = last_name(&path).unwrap_or_default();
                    let gone = vfs.rmdir(*above, name).map_err(CopyError::from);
                    let gone = self.settle(&path, gone)?;
                    self.removed.directories += u64::from(gone.is_some());
                }
                continue;
            };
            let Some((name, ino)) = self.settle(&path, child)? else {
                continue;
            };
            let path = below(&path, &name);
            match vfs.unlink(directory, &name) {
                // In itself, or in two others, which is damage.
                Err(FilesystemError::IsDirectory) if entered.insert(ino) => {
                    let children = self.tree.children(&ino);
                    if let Some(children) = self.settle(&path, children)? {
                        way.push((ino, path, children));
                    }
                }
                unlinked => {
                    let gone = self.settle(&path, unlinked.map_err(CopyError::from))?;
                    self.removed.files += u64::from(gone.is_some());
                }
            }
        }
        Ok(())
    }
}
