//! Writing cpio archives of the kind the kernel unpacks (`newc`). Several behind each other are
//! one initramfs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

/// An archive being written.
pub struct Archive {
    out: BufWriter<File>,
    entries: u32,
}

impl Archive {
    /// Begins a new file.
    pub fn create(path: &Path) -> Result<Archive> {
        Ok(Archive {
            out: BufWriter::new(File::create(path)?),
            entries: 0,
        })
    }

    /// Begins a file with the content of another.
    pub fn create_from(path: &Path, base: &Path) -> Result<Archive> {
        fs::copy(base, path)?;
        let out = File::options().append(true).open(path)?;
        Ok(Archive {
            out: BufWriter::new(out),
            entries: 0,
        })
    }

    /// A directory.
    pub fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, DIRECTORY, &[])
    }

    /// A file; `mode` are its permissions.
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entry(name, FILE | mode & 0o777, content)
    }

    /// A symbolic link.
    pub fn link(&mut self, name: &str, target: &str) -> Result<()> {
        self.entry(name, LINK, target.as_bytes())
    }

    /// Directories and files below `root`, in order of their names.
    pub fn tree(&mut self, root: &Path) -> Result<()> {
        self.below(root, "")
    }

    fn below(&mut self, dir: &Path, prefix: &str) -> Result<()> {
        let mut entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.directory(&name)?;
                self.below(&entry.path(), &format!("{name}/"))?;
            } else {
                let mode = entry.metadata()?.permissions().mode();
                self.file(&name, mode, &fs::read(entry.path())?)?;
            }
        }
        Ok(())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // Magic; inode, mode, uid, gid, links, time, size, device, special device, name, check.
        write!(
            self.out,
            "070701{:08x}{mode:08x}{z:08x}{z:08x}{links:08x}{z:08x}{:08x}{z:08x}{z:08x}{z:08x}{z:08x}{:08x}{z:08x}",
            self.entries,
            content.len(),
            name.len() + 1,
            z = 0,
        )?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        // Header and name end on a multiple of four, and so does the content.
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> Result<()> {
        let missing = length.next_multiple_of(4) - length;
        Ok(self.out.write_all(&[0; 4][..missing])?)
    }
}
