//! `persimmon fs restore`: what `persimmon fs backup` has written comes back.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use persimmon::internal::format::shown::shown_path;
use persimmon::{FileKind, Filesystem, FilesystemError, Ino};

use super::archive::{self, Between};
use super::cp::close;
use super::tree::{Content, Copied, Copier, CopyError, Entry, PIECE, Sink};
use super::volume::VolumeSink;
use super::{Access, conclude, of_path, open, say_line, stop_on_signals};
use crate::exit::{self, FS_INTERRUPTED};

const NAME: &str = "fs restore";

/// Bring back what `persimmon fs backup` has written, to a volume that is not mounted.
///
/// An archive that is cut off, damaged, or made by something else is refused before anything is written; from a pipe, which
/// can be read only once, when that is found.
#[derive(Args)]
pub struct Restore {
    #[command(flatten)]
    between: Between,
    /// Restore also where there are files; those of the same names are replaced, others stay
    #[arg(long)]
    force: bool,
}

impl Restore {
    pub fn run(&self) -> Result<u8> {
        let stop = stop_on_signals()?;
        let mut source: Box<dyn Read> = if self.between.is_standard() {
            Box::new(io::stdin().lock())
        } else {
            Box::new(
                self.verified(&stop)
                    .with_context(|| self.between.archive.display().to_string())?,
            )
        };
        let opened = open(&self.between.volume, Access::Write, "use tar there, or ")?;
        let top = self.top(&opened.filesystem)?;
        let mut sink = VolumeSink::new(&opened.filesystem, top, &self.between.top());
        let mut copier = Copier::new(&mut sink, &stop, NAME);
        let went = archive::read(&mut *source, &mut copier);
        let tally = copier.tally;
        let went = close(opened, went);
        conclude(
            NAME,
            (went, &tally),
            "restored",
            say_line,
            self.between.json,
        )
    }

    /// The archive, read once already where it is a file.
    fn verified(&self, stop: &Arc<AtomicBool>) -> Result<BufReader<File>> {
        let file = File::open(&self.between.archive)?;
        let is_file = file.metadata()?.is_file();
        let mut reader = BufReader::with_capacity(PIECE, file);
        if is_file {
            let mut nowhere = Nowhere;
            let mut copier = Copier::new(&mut nowhere, stop, NAME);
            match archive::read(&mut reader, &mut copier) {
                Ok(()) => reader.rewind()?,
                Err(CopyError::Interrupted) => {
                    return Err(exit::error(
                        FS_INTERRUPTED,
                        "interrupted; nothing was restored yet",
                    ));
                }
                Err(error) => bail!("{error}; nothing was restored"),
            }
        }
        Ok(reader)
    }

    /// The directory to restore to.
    fn top(&self, filesystem: &Filesystem) -> Result<Ino> {
        let path = self.between.top();
        let attr = match filesystem.metadata(&path) {
            Ok(attr) => attr,
            Err(error) if matches!(error.filesystem(), Some(FilesystemError::NotFound)) => {
                filesystem
                    .create_dir(&path)
                    .and_then(|()| filesystem.metadata(&path))
                    .map_err(|error| of_path(&path, &error))?
            }
            Err(error) => return Err(of_path(&path, &error)),
        };
        if attr.kind() != FileKind::Directory {
            bail!("{} is no directory", shown_path(&path));
        }
        if !self.force && !is_empty(filesystem, &path)? {
            return Err(anyhow!(
                "{} of the volume has files; name a new or an empty directory of it to restore to, or --force, which \
                 replaces files of the same names",
                shown_path(&path)
            ));
        }
        Ok(attr.ino)
    }
}

fn is_empty(filesystem: &Filesystem, path: &Path) -> Result<bool> {
    let listed = filesystem.read_dir(path);
    let mut listed = listed.map_err(|error| of_path(path, &error))?;
    Ok(listed.next().is_none())
}

/// Takes nothing: what is only to be verified.
struct Nowhere;

impl Sink for Nowhere {
    fn enter(&mut self, _: &Entry) -> Copied<()> {
        Ok(())
    }

    fn leave(&mut self, _: &Entry) -> Copied<Vec<String>> {
        Ok(Vec::new())
    }

    fn put(&mut self, _: &Entry, _: &mut dyn Content) -> Copied<Vec<String>> {
        Ok(Vec::new())
    }
}
