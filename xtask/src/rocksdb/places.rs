//! Where a database is measured: in a volume by the plugin, through a mount, or on another filesystem on a loop device. Programs that
//! measure run on it, and what they print and what the device was sent meanwhile is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plugin::{Plugin, output, uri};
use crate::volume::{Kind, Volume};

pub const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// By which way a program comes to the filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The plugin, with options of the URI.
    Plugin(&'static str),
    /// A mount, with mount options where it is Persimmon's.
    Mount(Kind, &'static [&'static str]),
}

impl Way {
    pub fn is_ours(self) -> bool {
        matches!(self, Way::Plugin(_) | Way::Mount(Kind::Persimmon, _))
    }

    /// What has to be installed for it.
    pub fn packages(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Way::Plugin(_) | Way::Mount(Kind::Persimmon, _) => &[],
            Way::Mount(Kind::Ext4, _) => &[("e2fsprogs", "ext4")],
            Way::Mount(Kind::Xfs, _) => &[("xfsprogs", "XFS")],
            Way::Mount(Kind::Btrfs, _) => &[("btrfs-progs", "btrfs")],
            Way::Mount(Kind::F2fs, _) => &[("f2fs-tools", "f2fs")],
        }
    }

    /// Whether this machine has it, told where it does not.
    pub fn is_there(self) -> Result<bool> {
        let Way::Mount(kind, _) = self else {
            return Ok(true);
        };
        let known = kind.is_known()?;
        if !known {
            let name = kind.name();
            println!(
                "{name}: left out, this kernel cannot mount it (no module, not in /proc/filesystems)"
            );
        }
        Ok(known)
    }
}

/// A new filesystem, ready for use.
pub struct Place<'a> {
    plugin: &'a Plugin,
    way: Way,
    image: PathBuf,
    /// Where it is mounted.
    volume: Option<Volume>,
}

impl<'a> Place<'a> {
    /// Makes one of `bytes` in an image, with further arguments for mkfs where it is Persimmon's.
    pub fn create(
        plugin: &'a Plugin,
        scratch: &Path,
        name: &str,
        way: Way,
        bytes: u64,
        mkfs: &[&str],
    ) -> Result<Place<'a>> {
        let image = scratch.join(format!("{name}.img"));
        let volume = match way {
            Way::Plugin(_) => {
                let mut tool = plugin.tool("mkfs");
                tool.args(["--size", &bytes.to_string()]).args(mkfs);
                output(tool.arg(&image))?;
                None
            }
            Way::Mount(kind, options) => {
                let volume = Volume::create(kind, plugin.persimmon(), scratch, name, bytes, mkfs)?;
                volume.mount_with(options)?;
                Some(volume)
            }
        };
        Ok(Place {
            plugin,
            way,
            image,
            volume,
        })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> Option<&Path> {
        self.volume.as_ref().map(|volume| volume.dir.as_path())
    }

    /// Runs a program that measures, which takes `db=` and `fs_uri=`.
    pub fn run(&self, program: &str, words: &[String]) -> Result<Ran> {
        let Some(volume) = &self.volume else {
            return self.run_by_plugin(program, words);
        };
        let before = self.device()?;
        let mut command = Command::new(self.plugin.folder.join(program));
        command.arg(format!("db={}/db", volume.dir.display()));
        let said = output(command.args(words))?;
        Ran::read(&said, self.device()?.since(&before))
    }

    /// The counters are those of the run: the volume is open for as long as its process lives.
    fn run_by_plugin(&self, program: &str, words: &[String]) -> Result<Ran> {
        let Way::Plugin(options) = self.way else {
            anyhow::bail!("a mount that is not mounted");
        };
        let statistics = self.image.with_extension("statistics");
        let options = format!("{options}&statistics={}", statistics.display());
        let mut command = self.plugin.test(program);
        command.arg("db=/db");
        command.arg(format!("fs_uri={}", uri(&self.image, &options)));
        let said = output(command.args(words))?;
        Ran::read(&said, Device::read_counters(&statistics)?)
    }

    /// What the device was sent since it is mounted, with all that waits in memory.
    pub fn device(&self) -> Result<Device> {
        let volume = self.volume.as_ref().context("nothing is mounted")?;
        output(Command::new("sync").arg("-f").arg(&volume.dir))?;
        if self.way.is_ours() {
            output(volume.tool("sync").arg(&volume.dir))?;
            return Device::read_stats(&volume.json("stats", &volume.dir)?);
        }
        let loops = output(
            Command::new("losetup")
                .args(["-n", "-O", "NAME", "-j"])
                .arg(&self.image),
        )?;
        let name = loops.trim().rsplit('/').next().unwrap_or_default();
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat"))
            .with_context(|| format!("the loop device {name:?}"))?;
        let sectors = stat.split_whitespace().nth(6);
        let sectors: u64 = sectors.context("no sectors written")?.parse()?;
        Ok(Device {
            bytes: sectors * SECTOR_BYTES,
            ..Device::default()
        })
    }

    /// Checks it, where it is ours, and takes it away.
    pub fn remove(self) -> Result<()> {
        if let Some(volume) = &self.volume {
            volume.unmount()?;
        }
        if self.way.is_ours() {
            self.plugin.fsck(&self.image)?;
        }
        Ok(fs::remove_file(&self.image)?)
    }
}

/// What the device was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub bytes: u64,
    /// Blocks that cleaning moved.
    pub moved: u64,
    /// Zones that cleaning emptied, where that is counted: the plugin does not tell.
    pub cleaned: Option<u64>,
    /// Operations that waited for a checkpoint or for cleaning.
    pub stalls: u64,
}

impl Device {
    /// The counters of `statistics=FILE`, one a line.
    fn read_counters(path: &Path) -> Result<Device> {
        let mut counters = BTreeMap::new();
        for line in fs::read_to_string(path)?.lines() {
            let (name, value) = line.split_once(' ').context("a counter without a value")?;
            counters.insert(name.to_owned(), value.parse()?);
        }
        let counter = |name: &str| {
            counters
                .get(name)
                .copied()
                .with_context(|| format!("no {name}"))
        };
        Ok(Device {
            bytes: counter("device_bytes")?,
            moved: counter("blocks_moved")?,
            cleaned: None,
            stalls: counter("stalls")?,
        })
    }

    /// Those of `persimmon stats --json`.
    fn read_stats(stats: &serde_json::Value) -> Result<Device> {
        let counter = |name: &str| stats[name].as_u64().with_context(|| format!("no {name}"));
        Ok(Device {
            bytes: counter("device_bytes")?,
            moved: counter("blocks_moved")?,
            cleaned: Some(counter("cleaning_foreground")? + counter("cleaning_background")?),
            stalls: counter("stalls")?,
        })
    }

    pub fn since(self, before: &Device) -> Device {
        Device {
            bytes: self.bytes - before.bytes,
            moved: self.moved - before.moved,
            cleaned: self.cleaned.map(|now| now - before.cleaned.unwrap_or(0)),
            stalls: self.stalls - before.stalls,
        }
    }

    pub fn and(self, other: &Device) -> Device {
        Device {
            bytes: self.bytes + other.bytes,
            moved: self.moved + other.moved,
            cleaned: self
                .cleaned
                .zip(other.cleaned)
                .map(|(one, more)| one + more),
            stalls: self.stalls + other.stalls,
        }
    }
}

/// What a program that measures printed, and what the device was sent meanwhile.
pub struct Ran {
    lines: Vec<BTreeMap<String, String>>,
    pub device: Device,
}

/// Speed and times of one kind of operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub per_second: f64,
    /// Microseconds that 99 % took at most.
    pub p99: f64,
    pub p999: f64,
}

impl Ran {
    /// Lines of words such as `kind=read operations=100`.
    pub fn read(said: &str, device: Device) -> Result<Ran> {
        let lines: Vec<BTreeMap<String, String>> = said
            .lines()
            .map(|line| {
                line.split_whitespace()
                    .filter_map(|word| word.split_once('='))
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect()
            })
            .collect();
        ensure!(!lines.is_empty(), "it printed nothing");
        Ok(Ran { lines, device })
    }

    /// A number that is not of one kind of operations.
    pub fn number(&self, name: &str) -> Result<u64> {
        let value = self.lines.iter().find_map(|line| line.get(name));
        let value = value.with_context(|| format!("it printed no {name}"))?;
        Ok(value.parse()?)
    }

    /// Those of one kind, where there were any.
    pub fn figures(&self, kind: &str) -> Result<Option<Figures>> {
        let is_kind =
            |line: &&BTreeMap<String, String>| line.get("kind").is_some_and(|one| one == kind);
        let Some(line) = self.lines.iter().find(is_kind) else {
            return Ok(None);
        };
        let number = |name: &str| -> Result<f64> {
            let value = line
                .get(name)
                .with_context(|| format!("it printed no {name}"))?;
            Ok(value.parse()?)
        };
        Ok(Some(Figures {
            per_second: number("ops_per_second")?,
            p99: number("p99_us")?,
            p999: number("p999_us")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, Ran};

    #[test]
    fn lines_of_a_driver_are_read() {
        let said = "kind=read operations=9 ops_per_second=4.5 p50_us=1.0 p99_us=2.5 p999_us=7.0 longest_us=8.0\n\
                    records=12 written_bytes=4096 stall_us=0\n";
        let ran = Ran::read(said, Device::default()).unwrap();
        let read = ran.figures("read").unwrap().unwrap();
        assert_eq!((read.per_second, read.p99, read.p999), (4.5, 2.5, 7.0));
        assert!(ran.figures("scan").unwrap().is_none());
        assert_eq!(ran.number("records").unwrap(), 12);
        assert!(ran.number("nothing").is_err());
    }

    #[test]
    fn counters_of_a_run_are_those_since_its_beginning() {
        let device = |bytes, moved, cleaned, stalls| Device {
            bytes,
            moved,
            cleaned,
            stalls,
        };
        let run = device(90, 7, Some(3), 2).since(&device(30, 7, Some(1), 0));
        assert_eq!(run, device(60, 0, Some(2), 2));
        assert_eq!(run.and(&device(1, 1, None, 1)), device(61, 1, None, 3));
    }
}
