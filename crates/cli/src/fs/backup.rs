//! `persimmon fs backup`: everything of a volume in one tar archive.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use persimmon::FileKind;
use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};

use super::archive::{Archive, Between};
use super::cp::close;
use super::tree::{Copied, Copier, CopyError, copy_tree};
use super::volume::VolumeTree;
use super::{Access, conclude, of_path, open, say_line, stop_on_signals};
use crate::{exit, output};

const NAME: &str = "fs backup";

/// Write everything in a volume that is not mounted to a tar archive.
///
/// The archive keeps permissions, owners, times to the nanosecond, extended attributes and access control lists, hard
/// links, symbolic links, holes, pipes, sockets and devices, and has a checksum at its end. GNU tar and others unpack it,
/// too. It has its name once it is complete and on the disk. A file that is damaged is named and left out (4). So is what
/// programs flushed before they died, if the volume was not opened for writing since.
#[derive(Args)]
pub struct Backup {
    #[command(flatten)]
    between: Between,
    /// Replace an archive that is there, once the new one is complete
    #[arg(long)]
    force: bool,
}

/// Where the archive goes.
enum Destination {
    /// A file that gets its name once it is complete.
    File { temporary: PathBuf },
    /// A pipe, a device, standard output.
    Stream,
}

impl Backup {
    pub fn run(&self) -> Result<u8> {
        if self.between.is_standard() && self.between.json {
            return Err(exit::usage(
                "standard output has the archive, and no room for JSON",
            ));
        }
        if self.between.is_standard() && output::is_terminal() {
            return Err(exit::usage(
                "an archive is nothing to show on a terminal; name a file",
            ));
        }
        let opened = open(&self.between.volume, Access::Read, "use tar there, or ")?;
        let top = self.between.top();
        let attr = opened.filesystem.metadata(&top);
        let attr = attr.map_err(|error| of_path(&top, &error))?;
        if attr.kind() != FileKind::Directory {
            bail!(
                "{} is no directory; `persimmon fs cp` copies a file",
                top.display()
            );
        }
        let stop = stop_on_signals()?;
        let (file, target) = self
            .target(&opened.devices)
            .with_context(|| self.between.archive.display().to_string())?;
        let seekable = matches!(target, Destination::File { .. });
        let mut tally = super::tree::Tally::default();
        let went = Archive::begin(file, seekable).and_then(|mut archive| {
            let mut copier = Copier::new(&mut archive, &stop, NAME);
            let tree = VolumeTree(opened.filesystem.clone());
            let went = copy_tree(&tree, attr.ino, Vec::new(), true, &mut copier);
            tally = copier.tally.clone();
            went.and_then(|()| archive.end())
        });
        let went = match target {
            Destination::Stream => went,
            Destination::File { temporary } => {
                let named = went.and_then(|()| self.name(&temporary));
                if named.is_err() {
                    let _ = fs::remove_file(&temporary);
                }
                named
            }
        };
        let unseen = opened.filesystem.files_unseen();
        let went = close(opened, went);
        let is_standard = self.between.is_standard();
        let print = |text: &str| {
            if is_standard {
                output::tell(text);
                Ok(())
            } else {
                say_line(text)
            }
        };
        let code = conclude(NAME, (went, &tally), "backed up", print, self.between.json)?;
        // It was told when the volume was opened. Who keeps the archive alone would have lost that.
        Ok(match code {
            0 if unseen > 0 => exit::FS_PARTIAL,
            code => code,
        })
    }

    fn target(&self, devices: &[PathBuf]) -> Result<(File, Destination)> {
        if self.between.is_standard() {
            return Ok((output::stream()?, Destination::Stream));
        }
        match fs::metadata(&self.between.archive) {
            Ok(found) if found.is_dir() => bail!(
                "is a directory; name a file, or copy everything there with `persimmon fs cp -r VOLUME :/ DIRECTORY`"
            ),
            Ok(found) => {
                let is_same = |device: &PathBuf| {
                    let device = fs::metadata(device);
                    device.is_ok_and(|it| (it.dev(), it.ino()) == (found.dev(), found.ino()))
                };
                if devices.iter().any(is_same) {
                    bail!("is the volume itself");
                }
                if !found.is_file() {
                    let file = OpenOptions::new().write(true).open(&self.between.archive)?;
                    return Ok((file, Destination::Stream));
                }
                if !self.force {
                    bail!("exists; --force replaces it once the new one is complete");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let name = format!(".persimmon-backup-{}", std::process::id());
        let temporary = directory_of(&self.between.archive).join(name);
        // Everybody's files are in it.
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(&temporary)?;
        Ok((file, Destination::File { temporary }))
    }

    /// Gives a complete archive its name.
    fn name(&self, temporary: &Path) -> Copied<()> {
        let renamed = if self.force {
            renameat(CWD, temporary, CWD, &self.between.archive)
        } else {
            renameat_with(
                CWD,
                temporary,
                CWD,
                &self.between.archive,
                RenameFlags::NOREPLACE,
            )
        };
        renamed
            .map_err(std::io::Error::from)
            .and_then(|()| File::open(directory_of(&self.between.archive))?.sync_all())
            .map_err(|error| CopyError::ends(format!("naming the backup: {error}")))
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    }
}
