//! `persimmon mkfs` and `mkfs.persimmon`: makes a volume on a device or in an image file.

mod enough;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use persimmon::internal::device::drive::{self, Kind};
use persimmon::internal::device::image::{ImageDevice, ImageGeometry};
use persimmon::internal::device::label::LABEL_ZONES;
use persimmon::internal::device::{
    BLOCK_SIZE, CreateOptions, Drive, Geometry, Stripes, ZonedDevice, pair,
};
use persimmon::internal::engine::{FormatOptions, Volume, ZoneCapacities};
use persimmon::internal::format::{Addr, shown};
use persimmon::internal::shape::{self, Available};
use persimmon::vfs::Clock;
use persimmon::{Compression, DataRedundancy, SystemClock};
use persimmon_fuse::size::{parse_bytes, parse_share, show_bytes};
use persimmon_inspect::salvage::Numbers;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use uuid::Uuid;

use crate::exit;
use crate::mounted::mounted_at;
use crate::output::{self, say};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Make a volume.
#[derive(Args)]
pub struct Mkfs {
    /// Device, zonefs:DIR or image file; an image file is made if it does not exist
    device: PathBuf,
    /// Another device for the log and metadata: an ordinary SSD, an image file, a small zoned namespace. It
    /// belongs to the volume from then on, which is named pair:META+DEVICE
    #[arg(long, value_name = "META")]
    meta: Option<PathBuf>,
    #[command(flatten)]
    shape: Shape,
    /// Say what would be made, and make nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How the volume is to be.
#[derive(Args, Clone)]
pub struct Shape {
    /// Size of the volume [default: the whole device or file]
    #[arg(long, value_parser = parse_bytes, allow_hyphen_values = true)]
    size: Option<u64>,
    /// Size of the part for metadata, where it is an image [default: the whole device or file]
    #[arg(long, value_parser = parse_bytes, allow_hyphen_values = true)]
    meta_size: Option<u64>,
    /// Size of a zone [default: 64M, less on volumes below 16G]
    #[arg(long, value_parser = parse_zone_size)]
    zone_size: Option<u64>,
    /// Writable part of a zone [default: all of it]
    #[arg(long, value_parser = parse_whole_blocks)]
    zone_capacity: Option<u64>,
    /// Zones that may be open at once [default: no limit]
    #[arg(long)]
    max_open: Option<u32>,
    /// Zones that may be active at once [default: no limit]
    #[arg(long)]
    max_active: Option<u32>,
    /// Share held back for metadata and cleaning [default: 7%, and 3% of 1,000 zones and more]
    #[arg(long, value_parser = parse_reserve)]
    reserve: Option<u32>,
    /// Copies of metadata, checkpoints and log: with 2, any one zone can be lost, and nothing is but
    /// the file data in it [default: 1]
    #[arg(long, value_parser = parse_copies)]
    copies: Option<u32>,
    /// Copies of everything: with 2 each block is in two zones, and any one can be lost with no loss [default: 1]
    #[arg(long, value_name = "COPIES", conflicts_with = "data_parity", value_parser = parse_data_copies)]
    data_copies: Option<u32>,
    /// Parity of file data: one zone for each ZONES with data, 2 to 15, and two copies of the log and metadata. Any one zone can
    /// be lost with no loss [default: none]
    #[arg(long, value_name = "ZONES", value_parser = parse_data_parity)]
    data_parity: Option<u32>,
    /// How files are compressed that are not told it: none, lz4, zstd, zstd:1 to zstd:15 [default: as it is mounted]
    #[arg(long, value_parser = parse_compression)]
    pub compression: Option<Compression>,
    /// Count what users, groups and projects take, and let it be limited, from the beginning
    #[arg(long)]
    quota: bool,
    /// Label, at most 64 bytes [default: none]
    #[arg(long, short = 'L', value_parser = parse_label)]
    label: Option<String>,
    /// UUID [default: a random one]
    #[arg(long, short = 'U', value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Overwrite what is on the device
    #[arg(long)]
    force: bool,
}

/// What was made, or would be.
#[derive(Serialize)]
struct Made {
    #[serde(serialize_with = "crate::output::path_as_text")]
    device: PathBuf,
    uuid: String,
    label: String,
    size_bytes: u64,
    zone_count: u32,
    zone_size_bytes: u64,
    zone_capacity_bytes: u64,
    max_open: Option<u32>,
    max_active: Option<u32>,
    reserve_basis_points: u32,
    copies: u32,
    data_copies: u32,
    data_parity: Option<u32>,
    /// Of the device for metadata, if there is one.
    metadata: Option<MadeDevice>,
    dry_run: bool,
}

/// A device for metadata. The zones that say whose it is do not count.
#[derive(Serialize)]
struct MadeDevice {
    #[serde(serialize_with = "crate::output::path_as_text")]
    device: PathBuf,
    size_bytes: u64,
    zone_count: u32,
    zone_size_bytes: u64,
    zone_capacity_bytes: u64,
}

impl Mkfs {
    pub fn run(&self) -> Result<u8> {
        let device = match &self.meta {
            Some(_) if pair::is_uri(&self.device) => {
                return Err(exit::usage(format!(
                    "{} names the device for metadata already: leave out --meta",
                    self.device.display()
                )));
            }
            Some(meta) => pair::uri(meta, &self.device),
            None => self.device.clone(),
        };
        let plan = self.shape.plan(&device, None)?;
        if self.dry_run {
            plan.check()?
        } else {
            plan.make()?
        }
        let part = |(device, geometry): &(PathBuf, ImageGeometry)| {
            let zone_count = geometry.zone_count - LABEL_ZONES;
            MadeDevice {
                device: device.clone(),
                size_bytes: u64::from(zone_count) * u64::from(geometry.capacity_blocks) * BLOCK,
                zone_count,
                zone_size_bytes: u64::from(geometry.zone_blocks) * BLOCK,
                zone_capacity_bytes: u64::from(geometry.capacity_blocks) * BLOCK,
            }
        };
        let metadata = plan.metadata.as_ref().map(part);
        let geometry = &ImageGeometry {
            zone_count: match metadata {
                Some(_) => plan.geometry.zone_count - LABEL_ZONES,
                None => plan.geometry.zone_count,
            },
            ..plan.geometry
        };
        let made = Made {
            metadata,
            device: plan.data.clone(),
            uuid: plan.uuid.to_string(),
            label: self.shape.label(),
            size_bytes: u64::from(geometry.zone_count)
                * u64::from(geometry.capacity_blocks)
                * BLOCK,
            zone_count: geometry.zone_count,
            zone_size_bytes: u64::from(geometry.zone_blocks) * BLOCK,
            zone_capacity_bytes: u64::from(geometry.capacity_blocks) * BLOCK,
            max_open: geometry.max_open,
            max_active: geometry.max_active,
            reserve_basis_points: plan.reserve,
            copies: self.shape.copies(),
            data_copies: self.shape.data_copies.unwrap_or(1),
            data_parity: self.shape.data_parity,
            dry_run: self.dry_run,
        };
        let said = if self.json {
            output::json(&made)
        } else {
            self.say(&made)
        };
        if self.dry_run {
            said.map(|()| 0)
        } else {
            output::done(0, said)
        }
    }

    fn say(&self, made: &Made) -> Result<()> {
        let verb = if made.dry_run { "would make" } else { "made" };
        say!(
            "{verb} {}: {} zones of {}{}, {} in all",
            made.device.display(),
            made.zone_count,
            show_bytes(made.zone_size_bytes),
            if made.zone_capacity_bytes == made.zone_size_bytes {
                String::new()
            } else {
                format!(" ({} writable)", show_bytes(made.zone_capacity_bytes))
            },
            show_bytes(made.size_bytes)
        )?;
        if let Some(part) = &made.metadata {
            say!(
                "metadata on {}: {} zones of {}, {} in all; mount it as {}",
                part.device.display(),
                part.zone_count,
                show_bytes(part.zone_size_bytes),
                show_bytes(part.size_bytes),
                pair::uri(&part.device, &made.device).display()
            )?;
        }
        if !made.dry_run || self.shape.uuid.is_some() {
            say!("UUID {}", made.uuid)?;
        }
        if made.copies > 1 {
            say!("{} copies of metadata, checkpoints and log", made.copies)?;
        }
        if made.data_copies > 1 {
            say!("2 copies of everything: any one zone can be lost")?;
        }
        if let Some(zones) = made.data_parity {
            say!("parity for each {zones} zones of file data: any one zone can be lost")?;
        }
        if !made.label.is_empty() {
            say!("label {}", shown(&made.label))?;
        }
        Ok(())
    }
}

/// A volume that can be made.
pub struct Plan<'a> {
    shape: &'a Shape,
    device: &'a Path,
    /// The device, of two that for data.
    data: PathBuf,
    /// Of the image, or of the zoned drive; of two that for data.
    pub geometry: ImageGeometry,
    /// The other, and what it is like.
    metadata: Option<(PathBuf, ImageGeometry)>,
    /// How its zones are used in stripe sets.
    stripes: Option<Stripes>,
    /// Share held back, in 1/100 percent.
    reserve: u32,
    /// Of the volume.
    pub uuid: Uuid,
}

fn failed(device: &Path, error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{}: {error}", device.display())
}

impl Shape {
    fn label(&self) -> String {
        self.label.clone().unwrap_or_default()
    }

    fn copies(&self) -> u32 {
        self.copies.unwrap_or(1)
    }

    /// What of file data is left when a zone is lost.
    fn data(&self) -> Result<DataRedundancy> {
        let (copies, parity) = (self.data_copies.unwrap_or(1), self.data_parity.unwrap_or(0));
        DataRedundancy::of(copies, parity).map_err(exit::usage)
    }

    /// With what is not asked for as a volume had it, as far as that is known.
    pub fn or_as_in(&self, volume: &Numbers, stripes: Option<Stripes>) -> Shape {
        let data = match stripes.filter(|_| self.data_copies.or(self.data_parity).is_none()) {
            Some(stripes) if stripes.columns == 1 => (Some(2), None),
            Some(stripes) => (None, Some(stripes.columns)),
            None => (self.data_copies, self.data_parity),
        };
        let is_reserve_known = volume.footer != Addr::ZERO;
        let reserve = is_reserve_known.then_some(volume.reserve_basis_points);
        Shape {
            data_copies: data.0,
            data_parity: data.1,
            copies: self.copies.or(Some(volume.identity.copies())),
            label: self.label.clone().or(Some(volume.identity.label.clone())),
            reserve: self.reserve.or(reserve),
            ..self.clone()
        }
    }

    /// What would be made on `device`; what is not asked for is as in `like`.
    ///
    /// # Errors
    /// It is mounted, or cannot carry a volume of this shape. Nothing is written.
    pub fn plan<'a>(&'a self, device: &'a Path, like: Option<&ImageGeometry>) -> Result<Plan<'a>> {
        let (metadata, data) = if pair::is_uri(device) {
            let (metadata, data) = pair::names(device).ok_or_else(|| {
                exit::usage("two devices are named pair:METADATA_DEVICE+DATA_DEVICE".to_owned())
            })?;
            (Some(metadata), data)
        } else {
            (None, device.to_owned())
        };
        for device in metadata.iter().chain([&data]) {
            refuse_mounted(device)?;
        }
        let (geometry, mut of_device) = self.of_part(&data, like)?;
        let mut capacities = ZoneCapacities::all(geometry.capacity_blocks);
        let redundancy = self.data()?;
        let metadata = match metadata {
            Some(_) if redundancy != DataRedundancy::None => {
                return Err(exit::usage(DataRedundancy::NOT_ON_TWO.to_owned()));
            }
            None if self.meta_size.is_some() => {
                return Err(exit::usage(
                    "--meta-size is of the device for metadata: name that with --meta".to_owned(),
                ));
            }
            None => None,
            Some(path) => {
                let (part, of_part) = self.for_metadata().of_part(&path, None)?;
                capacities.metadata = part.capacity_blocks;
                of_device = pair::geometry_of(&of_part, &of_device)?;
                Some((path, part))
            }
        };
        // Before anything is overwritten: can this carry a volume?
        let options = FormatOptions {
            reserve_basis_points: self.reserve,
            copies: self.copies(),
            label: self.label(),
            ..FormatOptions::default()
        };
        let checked = |of_device: &Geometry| match redundancy {
            DataRedundancy::None => options
                .check_on(of_device, capacities)
                .map(|()| (None, options.reserve_on(of_device))),
            redundancy => {
                let fits = |geometry: &Geometry, capacities| options.check_on(geometry, capacities);
                let divided = redundancy.divide(of_device, geometry.capacity_blocks, fits)?;
                Ok((divided.stripes, options.reserve_on(&divided.geometry)))
            }
        };
        let (stripes, reserve) = checked(&of_device).map_err(|error| {
            let without_limits = Geometry {
                max_open: None,
                max_active: None,
                ..of_device.clone()
            };
            let limits_asked_for = self.max_open.is_some() || self.max_active.is_some();
            let by_limits = checked(&without_limits).is_ok();
            if limits_asked_for && by_limits {
                // No device makes them right.
                return exit::usage(failed(device, error));
            }
            let is_image = matches!(Kind::of(&data), Ok(Kind::Image));
            let fits = |zone_count| {
                let geometry = Geometry {
                    zone_count,
                    ..of_device.clone()
                };
                checked(&geometry).is_ok()
            };
            let too_few = match (&metadata, &error) {
                (None, persimmon::VolumeError::Geometry(_)) => {
                    enough::too_few(self, device, (is_image, &geometry), fits)
                }
                _ => None,
            };
            too_few.unwrap_or_else(|| failed(device, error))
        })?;
        Ok(Plan {
            shape: self,
            device,
            data,
            geometry,
            metadata,
            stripes,
            reserve,
            uuid: self.uuid.unwrap_or_else(Uuid::new_v4),
        })
    }

    /// What would be made on one device.
    fn of_part(
        &self,
        device: &Path,
        like: Option<&ImageGeometry>,
    ) -> Result<(ImageGeometry, Geometry)> {
        Ok(match Kind::of(device)? {
            Kind::Image => {
                let geometry = self.geometry(device, like)?;
                let of_device = device_geometry(&geometry);
                (geometry, of_device)
            }
            Kind::Zbd | Kind::Nvme | Kind::Zonefs => self.of_drive(device)?,
            Kind::Pair => bail!("{} names two devices where one is meant", device.display()),
        })
    }

    /// The shape of the part for metadata: as much of the device as is wanted, in zones that fit it.
    fn for_metadata(&self) -> Shape {
        Shape {
            size: self.meta_size,
            meta_size: None,
            zone_size: None,
            zone_capacity: None,
            max_open: None,
            max_active: None,
            reserve: self.reserve,
            copies: self.copies,
            data_copies: None,
            data_parity: None,
            compression: self.compression,
            quota: self.quota,
            label: self.label.clone(),
            uuid: self.uuid,
            force: self.force,
        }
    }

    /// The shape of a zoned drive, which is as it is.
    fn of_drive(&self, device: &Path) -> Result<(ImageGeometry, Geometry)> {
        let given = [
            ("--size", self.size.is_some()),
            ("--zone-size", self.zone_size.is_some()),
            ("--zone-capacity", self.zone_capacity.is_some()),
            ("--max-open", self.max_open.is_some()),
            ("--max-active", self.max_active.is_some()),
        ];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            return Err(exit::usage(format!(
                "{} is a zoned drive, whose zones and limits are its own: leave out {option}",
                device.display()
            )));
        }
        let drive = crate::device::open_part(device)?;
        let geometry = drive.geometry().clone();
        let zones = drive.report(0..geometry.zone_count)?;
        let capacity = zones
            .iter()
            .filter(|zone| !zone.state.is_worn_out())
            .map(|zone| zone.capacity)
            .min();
        let shape = ImageGeometry {
            zone_count: drive.zone_count_made()?,
            zone_blocks: geometry.zone_blocks,
            capacity_blocks: capacity.unwrap_or(geometry.zone_blocks),
            max_open: geometry.max_open,
            max_active: geometry.max_active,
        };
        let geometry = Geometry {
            zone_count: shape.zone_count,
            ..geometry
        };
        Ok((shape, geometry))
    }

    fn geometry(&self, device: &Path, like: Option<&ImageGeometry>) -> Result<ImageGeometry> {
        let available = available(device)?;
        let size = match (self.size, available) {
            (Some(size), Available::Device(bytes)) if size > bytes => bail!(
                "{} has {}, less than --size {}",
                device.display(),
                show_bytes(bytes),
                show_bytes(size)
            ),
            (Some(size), _) => size,
            (None, Available::Device(bytes) | Available::File(bytes)) if bytes > 0 => bytes,
            (None, _) if like.is_some() => 0,
            (None, _) => {
                return Err(exit::usage(format!(
                    "{} is new or empty: tell its size, for example --size 8G (--meta-size \
                     of a device for metadata)",
                    device.display()
                )));
            }
        };
        let like_zone = like.filter(|_| self.zone_size.is_none());
        let zone_bytes = self.zone_size.unwrap_or_else(|| match like {
            Some(like) => u64::from(like.zone_blocks) * BLOCK,
            None => ImageDevice::zone_bytes_for(size),
        });
        let capacity_bytes = self.zone_capacity.unwrap_or_else(|| match like_zone {
            Some(like) => u64::from(like.capacity_blocks) * BLOCK,
            None => zone_bytes,
        });
        if capacity_bytes > zone_bytes {
            return Err(exit::usage(format!(
                "--zone-capacity {} is more than the zone size, {}",
                show_bytes(capacity_bytes),
                show_bytes(zone_bytes)
            )));
        }
        let zone_blocks = blocks("--zone-size", zone_bytes)?;
        let capacity_blocks = blocks("--zone-capacity", capacity_bytes)?;
        let mut geometry = ImageGeometry {
            zone_count: 1,
            zone_blocks,
            capacity_blocks,
            max_open: self.max_open.or(like.and_then(|like| like.max_open)),
            max_active: self.max_active.or(like.and_then(|like| like.max_active)),
        };
        // What no number of zones can cure is told before the number of zones.
        geometry
            .layout()
            .map_err(|error| exit::usage(failed(device, error)))?;
        geometry.zone_count = match like {
            Some(like) if size == 0 => {
                // As much room as there, whatever the size of the zones.
                let blocks = u64::from(like.zone_count) * u64::from(like.capacity_blocks);
                u32::try_from(blocks.div_ceil(capacity_blocks.into())).unwrap_or(u32::MAX)
            }
            _ => ImageDevice::zones_fitting(size, zone_blocks, capacity_blocks),
        };
        enough::check_not_too_many(self, device, size, &geometry)?;
        Ok(geometry)
    }
}

impl Plan<'_> {
    /// Refuses what making it would, and makes nothing.
    ///
    /// # Errors
    /// There is something on the device, or it is in use, or cannot be made.
    fn check(&self) -> Result<()> {
        crate::device::patiently(|wait_for_lock| {
            let options = self.create_options(wait_for_lock);
            let data = (self.data.as_path(), &self.geometry);
            match &self.metadata {
                Some((path, shape)) => Drive::check_create_pair((path, shape), data, &options),
                None => Drive::check_create(data.0, data.1, &options),
            }
        })?;
        Ok(())
    }

    fn create_options(&self, wait_for_lock: Duration) -> CreateOptions {
        CreateOptions {
            force: self.shape.force,
            uuid: self.uuid,
            label: self.shape.label(),
            wait_for_lock,
            stripes: self.stripes,
        }
    }

    /// Makes it. What was made of a new file is removed when that fails.
    ///
    /// # Errors
    /// There is something on the device, or it fails.
    pub fn make(&self) -> Result<()> {
        let paths = self.metadata.iter().map(|(path, _)| path);
        let new: Vec<&PathBuf> = paths
            .chain([&self.data])
            .filter(|path| !path.exists())
            .collect();
        let made = self.make_volume();
        if made.is_err() {
            for path in new {
                let _ = fs::remove_file(path);
            }
        }
        made
    }

    fn make_volume(&self) -> Result<()> {
        let device = crate::device::patiently(|wait_for_lock| {
            let options = self.create_options(wait_for_lock);
            let data = (self.data.as_path(), &self.geometry);
            match &self.metadata {
                Some((path, shape)) => Drive::create_pair((path, shape), data, &options),
                None => Drive::create(data.0, data.1, &options),
            }
        })?;
        let mut secret = [0; 32];
        getrandom(&mut secret, GetRandomFlags::empty()).context("random bytes for the secret")?;
        let options = FormatOptions {
            uuid: self.uuid.into_bytes(),
            secret,
            label: self.shape.label(),
            reserve_basis_points: Some(self.reserve),
            copies: self.shape.copies(),
            compression: self.shape.compression,
            quota: self.shape.quota,
            now: SystemClock.now(),
            root_mode: 0o755,
            root_uid: rustix::process::geteuid().as_raw(),
            root_gid: rustix::process::getegid().as_raw(),
        };
        Volume::format(Arc::new(device), &options).map_err(|error| failed(self.device, error))
    }
}

fn refuse_mounted(device: &Path) -> Result<()> {
    if let Ok(path) = drive::canonical(device)
        && let Some(at) = mounted_at(&path)
    {
        bail!(
            "{0} is mounted at {1}; `umount {1}` first",
            device.display(),
            at.display()
        );
    }
    Ok(())
}

fn available(path: &Path) -> Result<Available> {
    shape::available(path).map_err(|(what, _)| anyhow!("{}: {what}", path.display()))
}

/// The image as a device, as far as a volume's needs go.
fn device_geometry(image: &ImageGeometry) -> Geometry {
    Geometry {
        zone_count: image.zone_count,
        zone_blocks: image.zone_blocks,
        conventional_zones: 0,
        metadata_zones: Default::default(),
        max_open: image.max_open,
        max_active: image.max_active,
        max_transfer_blocks: image.capacity_blocks,
        max_append_blocks: image.capacity_blocks,
        volatile_cache: true,
        write_pointer_is_proof: false,
        stripes: None,
    }
}

pub fn parse_label(text: &str) -> Result<String, String> {
    let options = FormatOptions {
        label: text.to_owned(),
        ..FormatOptions::default()
    };
    options.check().map_err(|error| error.to_string())?;
    Ok(options.label)
}

fn parse_copies(text: &str) -> Result<u32, String> {
    let copies = text.parse();
    let options = FormatOptions {
        copies: copies.map_err(|_| format!("'{text}' is not a number"))?,
        ..FormatOptions::default()
    };
    options.check().map_err(|error| error.to_string())?;
    Ok(options.copies)
}

fn parse_data_copies(text: &str) -> Result<u32, String> {
    let copies = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number"))?;
    DataRedundancy::of(copies, 0).map(|_| copies)
}

fn parse_data_parity(text: &str) -> Result<u32, String> {
    let zones = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number"))?;
    DataRedundancy::Parity { zones }.check().map(|()| zones)
}

fn parse_compression(text: &str) -> Result<Compression, String> {
    Compression::parse(text)
        .ok_or_else(|| "it is none of none, lz4, zstd, and zstd:1 to zstd:15".to_owned())
}

fn parse_reserve(text: &str) -> Result<u32, String> {
    let basis_points = parse_share(text)?;
    let options = FormatOptions {
        reserve_basis_points: Some(basis_points),
        ..FormatOptions::default()
    };
    options.check().map_err(|error| error.to_string())?;
    Ok(basis_points)
}

pub fn parse_uuid(text: &str) -> Result<Uuid, String> {
    let uuid: Uuid = text.parse().map_err(|error| format!("{error}"))?;
    if uuid.is_nil() {
        return Err("a UUID of zeros names no volume; leave it out for a random one".to_owned());
    }
    Ok(uuid)
}

fn parse_whole_blocks(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    shape::whole_blocks(bytes).map(|_| bytes)
}

fn parse_zone_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    shape::check_zone_bytes(bytes).map(|()| bytes)
}

fn blocks(option: &str, bytes: u64) -> Result<u32> {
    shape::whole_blocks(bytes).map_err(|why| anyhow!("{option}: {why}"))
}
