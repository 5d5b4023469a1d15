//! `persimmon recover`: copies what is left of a broken volume to a new one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use persimmon::internal::device::image::ImageGeometry;
use persimmon::internal::device::{DeviceError, Drive, ZonedDevice, drive, pair};
use persimmon::internal::engine::{Error as EngineError, Volume};
use persimmon::vfs::Clock;
use persimmon::{Compression, EngineOptions, Options, SystemClock};
use persimmon_fuse::size::show_bytes;
use persimmon_inspect::salvage::{Source, Stage, rebuild};
use persimmon_salvage::{Doing, Error as SalvageError, Loss, Recovered, recover_of};

use crate::exit::RECOVER_LOSSES;
use crate::mkfs::Shape;
use crate::mounted::mounted_at;
use crate::output::{self, Said, say};
use crate::progress::Progress;

/// Copy what is left of a broken volume to a new one.
///
/// Reads the broken volume and never writes to it, also where its log, its tables or parts of its
/// metadata are lost. The new volume is made; what is not told of its size, zones, limits, reserve, copies and
/// label is as in the broken one, not as the defaults below say. Its UUID is a new one.
#[derive(Args)]
pub struct Recover {
    /// Device or image file of the broken volume, LABEL= or UUID=
    broken: OsString,
    /// Device or image file of the new one; an image file is made if it does not exist
    new: PathBuf,
    #[command(flatten)]
    shape: Shape,
    /// Copy what this snapshot has, not the present state
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// Of an image: look for it everywhere, and read what zones hold beyond their write pointers
    ///
    /// Done anyway where the image is not found at its start or end.
    #[arg(long)]
    scan: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Devices of the new volume.
#[derive(Clone, Copy)]
enum Parts {
    One,
    Two,
}

/// Prints losses as they are found: there may be more than memory should hold.
struct Losses {
    said: Said,
    json: bool,
    first: bool,
}

impl Losses {
    fn tell(&mut self, loss: &Loss) {
        if !self.json {
            return self.said.more(|| Ok(say!("{loss}")?));
        }
        let separator = if self.first { "\n" } else { ",\n" };
        self.first = false;
        self.said.more(|| {
            let loss = serde_json::to_string(loss)?;
            Ok(output::print(format_args!("{separator}{loss}"))?)
        });
    }
}

impl Recover {
    pub fn run(&self) -> Result<u8> {
        let broken = crate::spec::resolve(&self.broken)?;
        if let Some(dir) = mounted_at(&broken) {
            bail!(
                "{} is mounted at {1}; `umount {1}` first",
                broken.display(),
                dir.display()
            );
        }
        if drive::canonical(&self.new).is_ok_and(|new| new == broken) {
            bail!("the new volume cannot be the broken one");
        }
        let device = match crate::device::open_by(&broken, true, self.scan) {
            Err(DeviceError::Open { message, .. }) if !self.scan => {
                crate::output::tell(format_args!(
                    "{}: {message}; looking for an image everywhere on it",
                    broken.display()
                ));
                crate::device::open_by(&broken, true, true)?
            }
            other => other?,
        };
        let bar = Progress::start("looking for what is left", !self.json);
        let show = |doing, done, total| bar.advance(name(doing).to_owned(), done, total);
        let rebuilt = rebuild(&device, &mut |stage, done, total| {
            show(Doing::Reading(stage), done, total);
        })
        .with_context(|| broken.display().to_string())?;
        let parts = if pair::is_uri(&self.new) {
            Parts::Two
        } else {
            Parts::One
        };
        let like = geometry(device.below_stripes(), parts)?;
        let stripes = device.geometry().stripes;
        let shape = self.shape.or_as_in(&rebuilt.numbers(), stripes);
        let plan = shape.plan(&self.new, Some(&like))?;
        plan.make()?;
        let compression = self.shape.compression.unwrap_or(Compression::Lz4);
        let (volume, _) = open(&self.new, compression)?;
        let mut losses = Losses {
            said: Said::nothing(),
            json: self.json,
            first: true,
        };
        if self.json {
            losses.said.more(|| Ok(output::print("{\"losses\": [")?));
        }
        let now = SystemClock.now();
        let mut tell = |loss: &Loss| losses.tell(loss);
        let recovered = recover_of(
            &rebuilt,
            self.snapshot.as_ref().map(String::as_bytes),
            &volume,
            now,
            &mut tell,
            &mut |doing, done, total| {
                show(doing, done, total);
            },
        );
        drop(bar);
        let recovered = recovered.map_err(|error| match error {
            SalvageError::New(EngineError::NoSpace) => anyhow!(
                "{0}: the new volume is too small for all that is left: blocks that files share are copied for each of them. What is there \
                 now is not whole; make it larger: give --size SIZE and --force, or a larger device",
                self.new.display()
            ),
            error => anyhow::Error::new(error).context(self.new.display().to_string()),
        })?;
        volume.close()?;
        let mut said = losses.said;
        said.more(|| self.say(&recovered));
        said.done(match recovered.losses {
            0 => 0,
            _ => RECOVER_LOSSES,
        })
        .context("the new volume is complete")
    }

    fn say(&self, recovered: &Recovered) -> Result<()> {
        if self.json {
            let recovered = serde_json::to_string_pretty(recovered)?;
            return Ok(say!("],\n\"recovered\": {recovered}}}")?);
        }
        let Recovered {
            checkpoint, files, ..
        } = recovered;
        match recovered.source {
            Source::Log => say!("found by its log, checkpoint {checkpoint}")?,
            Source::Pages => say!(
                "found by its metadata pages, as of checkpoint {checkpoint}; what was changed \
                 after it is lost with the log"
            )?,
        }
        say!(
            "{}: {files} files, {} of them whole, {} directories, {} others; {} of data; {} in \
             lost+found; {} losses",
            self.new.display(),
            recovered.files_intact,
            recovered.directories,
            recovered.others,
            show_bytes(recovered.data_bytes),
            recovered.strays,
            recovered.losses,
        )?;
        match recovered.snapshots_left {
            0 => {}
            left => say!("snapshots were not copied: {left}")?,
        }
        Ok(())
    }
}

fn name(doing: Doing) -> &'static str {
    match doing {
        Doing::Reading(Stage::Zones) => "reading zone headers",
        Doing::Reading(Stage::Pages) => "looking for metadata",
        Doing::Reading(Stage::Items) => "reading metadata",
        Doing::Reading(Stage::Summaries) => "reading summaries",
        Doing::Copying => "copying",
    }
}

/// The shape of one device with as much room as the broken one has: of two that of the device for data, with
/// zones more for what was metadata, unless that gets a device of its own again.
fn geometry(device: &Drive, parts: Parts) -> Result<ImageGeometry> {
    let whole = device.geometry();
    let data = device.pair().map_or(whole, |pair| pair.data().geometry());
    let zones = device.report(0..whole.zone_count)?;
    let (metadata_zones, data_zones): (Vec<_>, Vec<_>) = (0..)
        .zip(&zones)
        .partition(|(zone, _)| whole.metadata_zones.contains(*zone));
    let capacities = data_zones.iter().map(|(_, zone)| zone.capacity);
    let capacity = capacities.filter(|capacity| *capacity > 0).min();
    let capacity_blocks = capacity.unwrap_or(data.zone_blocks);
    let more = match parts {
        Parts::One => metadata_zones
            .iter()
            .map(|(_, zone)| u64::from(zone.capacity))
            .sum(),
        Parts::Two => 0u64,
    };
    let more = more.div_ceil(capacity_blocks.into());
    let zone_count = data_zones.len() as u64 + more;
    Ok(ImageGeometry {
        zone_count: u32::try_from(zone_count).unwrap_or(u32::MAX),
        zone_blocks: data.zone_blocks,
        capacity_blocks,
        max_open: data.max_open,
        max_active: data.max_active,
    })
}

/// The new volume, as a mount has it: what took little room in the broken one takes little here.
fn open(
    path: &Path,
    compression: Compression,
) -> Result<(Volume, persimmon::internal::engine::RecoveryReport)> {
    let device = crate::device::open(path, false)?;
    let options = EngineOptions {
        compression,
        ..Options::default().engine
    };
    Volume::open(Arc::new(device), options).map_err(|error| anyhow!("{}: {error}", path.display()))
}
