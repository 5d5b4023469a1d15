//! `persimmon usage`: how much files have, and what it takes.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::device::ZonedDevice;
use persimmon::internal::format::shown;
use persimmon::vfs::{ROOT, SubvolumeId};
use persimmon::{Filesystem, Options};
use persimmon_fuse::size::show_bytes;
use persimmon_inspect::{ContentUsage, FileUsage, Inspector, UsageByStorage};
use rustix::fs::{FileType, Stat};
use serde::Serialize;

use crate::exit;
use crate::fs::host::{HostNode, raise_descriptors};
use crate::live::{self, Target};
use crate::output::{self, say};
use crate::report::Info;
use crate::snapshot::Mounted;
use crate::storage;

/// Show how much files have, and what it takes on the volume: less where it is compressed
#[derive(Args)]
pub struct UsageCommand {
    /// Device, image file, LABEL=, UUID=, or a directory or file of a live mount
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    /// Regular files; one with several names counts once.
    files: u64,
    /// Bytes of the file blocks that are there: holes do not count, and the last block counts whole.
    content_bytes: u64,
    /// Bytes that they take on the volume: what `st_blocks` says of their content, but what files share counts once.
    stored_bytes: u64,
    /// That divided by `content_bytes`; null where there is no content.
    ratio: Option<f64>,
    /// `content_bytes` and `stored_bytes` by how content is stored: `whole` (in blocks as they are), `lz4` and `zstd` (compressed so),
    /// `inline` (in the metadata tree), `reserved` (preallocated and not written yet, which is no content), `deltas` (differences of
    /// blocks, whose content is told with what they are of), `shared` (the content in each place that has it, and what of it is stored
    /// once), `waiting` (not written yet: it takes no more than this then).
    by_storage: &'a UsageByStorage,
    /// Bytes that snapshots hold together and these files do not, as `snapshot list` tells; null of less than a whole volume, where only
    /// root and the user who runs the daemon may ask, and where metadata is damaged.
    snapshot_bytes: Option<u64>,
    /// Files and directories that this user may not look at, which are not counted.
    unreadable: u64,
}

impl UsageCommand {
    pub fn run(&self) -> Result<u8> {
        let (usage, snapshot_bytes, unreadable) = match self.target()? {
            Target::Live(path) => {
                // That it is one of a mount.
                let info: Info = live::ask(&path, "info")?;
                let mut walk = Walk::default();
                walk.tree(&path)?;
                let held = held_beside(&path, &info);
                (walk.usage, held, Some(walk.unreadable))
            }
            Target::Device(path) => (of_volume(&path)?, held_on(&path), None),
        };
        if self.json {
            output::json(&Answer {
                files: usage.files,
                content_bytes: usage.all.content_bytes,
                stored_bytes: usage.all.stored_bytes,
                ratio: ratio(&usage.all),
                by_storage: &usage.by_storage,
                snapshot_bytes,
                unreadable: unreadable.unwrap_or(0),
            })?;
        } else {
            output::print(text(&usage))?;
            if let Some(bytes) = snapshot_bytes.filter(|bytes| *bytes > 0) {
                say!("snapshots hold {} beside that", show_bytes(bytes))?;
            }
        }
        Ok(match unreadable {
            None | Some(0) => 0,
            Some(_) => exit::FAILED,
        })
    }

    /// A file is one of a mount if it is on one, unless it is the image of a volume itself.
    fn target(&self) -> Result<Target> {
        let target = Target::of(&self.target)?;
        if let Target::Device(path) = &target
            && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
            && !matches!(crate::probe::look(path), Ok(Some(_)))
            && live::ask::<Info>(path, "info").is_ok()
        {
            return Ok(Target::Live(path.clone()));
        }
        Ok(target)
    }
}

fn of_volume(path: &Path) -> Result<FileUsage> {
    let device = crate::device::open(path, true)?;
    let inspector = Inspector::open(&device as &dyn ZonedDevice);
    let usage = inspector.and_then(|inspector| inspector.file_usage());
    usage.with_context(|| path.display().to_string())
}

/// What the snapshots of a mounted volume hold, if this is all of it, and the daemon tells this user.
fn held_beside(path: &Path, info: &Info) -> Option<u64> {
    let is_root = info.subvolume_id == SubvolumeId::MAIN.0
        && std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.ino() == ROOT.0);
    let mounted = is_root.then(|| Mounted::of(path.to_owned()).ok())??;
    Some(mounted.held().ok()?.together)
}

/// What the snapshots of a volume hold that is not mounted.
fn held_on(path: &Path) -> Option<u64> {
    let device = Arc::new(crate::device::open(path, true).ok()?);
    let filesystem = Filesystem::open_on(device, &Options::read_only()).ok()?;
    let held = filesystem.vfs().volume().snapshots().held();
    Some(held.ok()?.together)
}

/// Bytes stored for each byte of content.
fn ratio(of: &ContentUsage) -> Option<f64> {
    (of.content_bytes > 0).then(|| of.stored_bytes as f64 / of.content_bytes as f64)
}

fn text(usage: &FileUsage) -> String {
    let row = |name: &str, of: &ContentUsage| {
        vec![
            name.to_owned(),
            show_bytes(of.content_bytes),
            show_bytes(of.stored_bytes),
            ratio(of).map_or("-".into(), |ratio| format!("{:.1}%", ratio * 100.0)),
        ]
    };
    let files = match usage.files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    let mut rows = vec![row(&files, &usage.all)];
    let by = &usage.by_storage;
    let kinds = [
        ("whole blocks", &by.whole),
        ("lz4", &by.lz4),
        ("zstd", &by.zstd),
        ("inline in the tree", &by.inline),
        ("preallocated", &by.reserved),
        ("deltas", &by.deltas),
        ("shared", &by.shared),
        ("waits to be written", &by.waiting),
    ];
    let there = kinds.iter().filter(|(_, of)| of.stored_bytes > 0);
    rows.extend(there.map(|(name, of)| row(name, of)));
    output::table(
        &["", "content", "stored", "ratio"],
        &[false, true, true, true],
        rows.iter().cloned(),
    )
    .to_string()
}

/// Everything below a directory of a mount, as whoever asks may see it.
#[derive(Default)]
struct Walk {
    usage: FileUsage,
    /// What could not be looked at.
    unreadable: u64,
    /// Files with several names that have been counted.
    counted: HashSet<u64>,
    /// What several of them may share: extents of the store of shared blocks that have been counted.
    shared: HashSet<u64>,
}

impl Walk {
    fn tree(&mut self, top: &Path) -> Result<()> {
        raise_descriptors();
        let named = || top.display().to_string();
        let node = HostNode::of(top).with_context(named)?;
        let device = node.stat().with_context(named)?.st_dev;
        // By open directories: a path may be longer than the system takes.
        let mut queue = vec![(top.to_owned(), node)];
        while let Some((path, node)) = queue.pop() {
            let looked = self.node(&path, &node, device, &mut queue);
            self.note(&path, looked);
        }
        Ok(())
    }

    fn node(
        &mut self,
        path: &Path,
        node: &HostNode,
        device: u64,
        queue: &mut Vec<(PathBuf, HostNode)>,
    ) -> io::Result<()> {
        let stat = node.stat()?;
        // What is mounted below is another filesystem.
        if stat.st_dev != device {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let below = node.entries()?.into_iter().map(|entry| {
                    let name = OsStr::from_bytes(entry.node.name());
                    (path.join(name), entry.node)
                });
                queue.extend(below);
                Ok(())
            }
            FileType::RegularFile => self.file(node, &stat),
            _ => Ok(()),
        }
    }

    fn file(&mut self, node: &HostNode, stat: &Stat) -> io::Result<()> {
        if stat.st_nlink > 1 && !self.counted.insert(stat.st_ino) {
            return Ok(());
        }
        let (mut usage, mut shared) = (FileUsage::default(), Vec::new());
        let mut next = (stat.st_blocks > 0).then_some(0);
        while let Some(from) = next {
            let look = storage::ask(&node.path(), from)?;
            usage.take_in(&look.usage);
            shared.extend(look.shared);
            next = look.next;
        }
        for (place, sectors) in shared {
            if self.shared.insert(place) {
                usage.add_shared(sectors);
            }
        }
        self.usage.take_in(&usage);
        self.usage.files += 1;
        Ok(())
    }

    /// What is removed meanwhile is no longer there to be counted.
    fn note(&mut self, path: &Path, looked: io::Result<()>) {
        match looked {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.unreadable += 1;
                tell(path, &error);
            }
            _ => {}
        }
    }
}

fn tell(path: &Path, error: &dyn Display) {
    let name: &OsStr = path.as_os_str();
    output::tell(format_args!("{}: {error}", shown(name.as_bytes())));
}
