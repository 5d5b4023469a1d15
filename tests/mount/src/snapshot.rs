//! Everything that can be seen of a tree, to compare before and after.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What is seen of each path below a directory. Access times are left out: looking moves them.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, String>);

impl Snapshot {
    /// Looks at everything below `dir`.
    pub fn take(dir: &Path) -> Result<Snapshot> {
        let mut seen = BTreeMap::new();
        let mut queue = vec![dir.to_owned()];
        while let Some(path) = queue.pop() {
            let meta = std::fs::symlink_metadata(&path)?;
            let text = describe(&path, &meta).with_context(|| path.display().to_string())?;
            seen.insert(path.strip_prefix(dir)?.to_owned(), text);
            if meta.is_dir() {
                for entry in std::fs::read_dir(&path)? {
                    queue.push(entry?.path());
                }
            }
        }
        Ok(Snapshot(seen))
    }

    /// An error that names the first differences from what it should be.
    pub fn equals(&self, due: &Snapshot) -> Result<()> {
        let mut differences = Vec::new();
        for (path, text) in &due.0 {
            match self.0.get(path) {
                None => differences.push(format!("{} is missing", path.display())),
                Some(found) if found != text => {
                    differences.push(format!(
                        "{}\n  is     {found}\n  should {text}",
                        path.display()
                    ));
                }
                Some(_) => {}
            }
        }
        let extra = self.0.keys().filter(|path| !due.0.contains_key(*path));
        differences.extend(extra.map(|path| format!("{} was not there", path.display())));
        if differences.is_empty() {
            return Ok(());
        }
        bail!(
            "{} differences:\n{}",
            differences.len(),
            differences[..differences.len().min(5)].join("\n")
        )
    }

    /// What is left but for when: of stores through maps and of what it delays itself the kernel has times of its own.
    pub fn without_times(mut self) -> Snapshot {
        for text in self.0.values_mut() {
            if let (Some(from), Some(to)) = (text.find(" mtime "), text.find(" attributes ")) {
                text.replace_range(from..to, "");
            }
        }
        self
    }

    /// What is left but for the numbers of inodes, which are others in a copy.
    pub fn without_numbers(mut self) -> Snapshot {
        for text in self.0.values_mut() {
            if let Some(to) = text.find(" mode ") {
                text.replace_range(..to, "");
            }
        }
        self
    }

    /// What is left but for change times, which nobody can set.
    pub fn without_change_times(mut self) -> Snapshot {
        for text in self.0.values_mut() {
            if let Some(from) = text.find(" ctime ")
                && let Some(to) = text.find(" attributes ")
            {
                text.replace_range(from..to, "");
            }
        }
        self
    }

    /// How many paths.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Syncs every file below `dir`, and `dir`.
pub fn sync_tree(dir: &Path) -> Result<()> {
    let mut queue = vec![dir.to_owned()];
    while let Some(path) = queue.pop() {
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                queue.push(entry.path());
            } else if kind.is_file() {
                File::open(entry.path())?.sync_all()?;
            }
        }
        File::open(&path)?.sync_all()?;
    }
    Ok(())
}

fn describe(path: &Path, meta: &std::fs::Metadata) -> Result<String> {
    let content = if meta.is_file() {
        format!("{:016x}", hash(&std::fs::read(path)?))
    } else if meta.is_symlink() {
        format!("{:?}", std::fs::read_link(path)?)
    } else {
        String::new()
    };
    let device = match meta.file_type() {
        kind if kind.is_char_device() || kind.is_block_device() => meta.rdev(),
        _ => 0,
    };
    Ok(format!(
        "ino {} mode {:o} owner {}:{} links {} size {} device {device} mtime {}.{:09} ctime {}.{:09} attributes {:?} content {content}",
        meta.ino(),
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.nlink(),
        if meta.is_dir() { 0 } else { meta.len() },
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        attributes(path)?,
    ))
}

fn attributes(path: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0u8; 65_536];
    let len = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut attributes = BTreeMap::new();
    for name in names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0u8; 65_536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        attributes.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(attributes)
}

/// FNV-1a: differences need to be seen, not withstood.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
