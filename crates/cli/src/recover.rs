//! `persimmon recover`: copies what is left of a broken volume to a new one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use persimmon::SystemClock;
use persimmon_device::image::ImageGeometry;
use persimmon_device::{DeviceError, Drive, ZonedDevice, drive, pair};
use persimmon_engine::{Options, Volume};
use persimmon_fuse::size::show_bytes;
use persimmon_inspect::salvage::{Source, Stage, rebuild};
use persimmon_salvage::{Doing, Loss, Recovered, recover};
use persimmon_vfs::Clock;

use crate::exit::RECOVER_LOSSES;
use crate::mkfs::Shape;
use crate::mounted::mounted_at;
use crate::progress::Progress;

/// Copy what is left of a broken volume to a new one.
///
/// Reads the broken volume and never writes to it, also where its log, its tables or parts of its
/// metadata are lost. The new volume is made; what is not told of its size, zones, limits, reserve, copies and
/// label is as in the broken one, not as the defaults below say. Its UUID is a new one.
#[derive(Args)]
pub struct Recover {
    /// Device or image file of the broken volume, LABEL= or UUID=
    broken: String,
    /// Device or image file of the new one; an image file is made if it does not exist
    new: PathBuf,
    #[command(flatten)]
    shape: Shape,
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
    out: io::BufWriter<io::Stdout>,
    json: bool,
    first: bool,
    failed: Option<io::Error>,
}

impl Losses {
    fn tell(&mut self, loss: &Loss) {
        if self.failed.is_none()
            && let Err(error) = self.write(loss)
        {
            self.failed = Some(error);
        }
    }

    fn write(&mut self, loss: &Loss) -> io::Result<()> {
        if !self.json {
            return writeln!(self.out, "{loss}");
        }
        let separator = if self.first { "\n" } else { ",\n" };
        self.first = false;
        self.out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut self.out, loss)?;
        Ok(())
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
        let parts = match pair::is_uri(&self.new) {
            true => Parts::Two,
            false => Parts::One,
        };
        let like = geometry(&device, parts)?;
        let shape = self.shape.or_as_in(&rebuilt.numbers());
        let plan = shape.plan(&self.new, Some(&like))?;
        plan.make()?;
        let (volume, _) = open(&self.new)?;
        let mut losses = Losses {
            out: io::BufWriter::new(io::stdout()),
            json: self.json,
            first: true,
            failed: None,
        };
        if self.json {
            write!(losses.out, "{{\"losses\": [")?;
        }
        let now = SystemClock.now();
        let mut tell = |loss: &Loss| losses.tell(loss);
        let recovered = recover(
            &rebuilt,
            &volume,
            now,
            &mut tell,
            &mut |doing, done, total| {
                show(doing, done, total);
            },
        );
        drop(bar);
        let recovered = recovered.with_context(|| self.new.display().to_string())?;
        volume.close()?;
        if let Some(error) = losses.failed {
            return Err(error).context("losses could not be told; the new volume is complete");
        }
        let mut out = losses.out;
        if self.json {
            write!(out, "],\n\"recovered\": ")?;
            serde_json::to_writer_pretty(&mut out, &recovered)?;
            writeln!(out, "}}")?;
        }
        out.flush()?;
        if !self.json {
            self.say(&recovered);
        }
        Ok(if recovered.losses == 0 {
            0
        } else {
            RECOVER_LOSSES
        })
    }

    fn say(&self, recovered: &Recovered) {
        let Recovered {
            checkpoint, files, ..
        } = recovered;
        match recovered.source {
            Source::Log => println!("found by its log, checkpoint {checkpoint}"),
            Source::Pages => println!(
                "found by its metadata pages, as of checkpoint {checkpoint}; what was changed \
                 after it is lost with the log"
            ),
        }
        println!(
            "{}: {files} files, {} of them whole, {} directories, {} others; {} of data; {} in \
             lost+found; {} losses",
            self.new.display(),
            recovered.files_intact,
            recovered.directories,
            recovered.others,
            show_bytes(recovered.data_bytes),
            recovered.strays,
            recovered.losses,
        );
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
    let (metadata_zones, data_zones) = zones
        .split_at_checked(whole.metadata_zones as usize)
        .unwrap_or((&[], &zones));
    let capacities = data_zones.iter().map(|zone| zone.capacity);
    let capacity = capacities.filter(|capacity| *capacity > 0).min();
    let capacity_blocks = capacity.unwrap_or(data.zone_blocks);
    let more = match parts {
        Parts::One => metadata_zones
            .iter()
            .map(|zone| u64::from(zone.capacity))
            .sum(),
        Parts::Two => 0u64,
    };
    let more = more.div_ceil(capacity_blocks.into());
    let zone_count = u64::from(whole.zone_count - whole.metadata_zones) + more;
    Ok(ImageGeometry {
        zone_count: u32::try_from(zone_count).unwrap_or(u32::MAX),
        zone_blocks: data.zone_blocks,
        capacity_blocks,
        max_open: data.max_open,
        max_active: data.max_active,
    })
}

fn open(path: &Path) -> Result<(Volume, persimmon_engine::RecoveryReport)> {
    let device = crate::device::open(path, false)?;
    Volume::open(Arc::new(device), Options::default())
        .map_err(|error| anyhow!("{}: {error}", path.display()))
}
