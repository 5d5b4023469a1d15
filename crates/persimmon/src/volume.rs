//! Making and opening volumes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use persimmon_device::image::{ImageDevice, ImageGeometry};
use persimmon_device::{
    CreateOptions, DeviceError, DeviceIdentity, Drive, Geometry, OpenOptions, Stripes, ZonedDevice,
    drive, pair,
};
use persimmon_engine::{FormatOptions, RecoveryReport, Volume, ZoneCapacities};
use persimmon_vfs::{Clock, Compression, Deltas, Ino, SubvolumeId, Vfs};

use crate::kept::replay::{replay, unseen};
use crate::kept::{Keeper, Place, draw_opening};
use crate::properties::refused_by;
use crate::shape::{Available, available, image};
use crate::{
    AllCores, Background, CommitInterval, DataRedundancy, EngineOptions, Error, Filesystem, Result,
    SystemClock, VfsOptions,
};

/// Size of an image for metadata where none is given, bytes: at least.
pub(crate) const METADATA_BYTES_MIN: u64 = 16 << 20;

/// How to make a volume. A zoned drive has the size and the zones it has.
#[derive(Clone, Debug)]
pub struct Create {
    /// Size of the image, bytes; of two devices, of that for data. 0: all of a block device or file that is there.
    pub size_bytes: u64,
    /// Size of the image for metadata, bytes, where the volume is made on two devices. 0: all of a block device or file that is there, and
    /// 16 MiB where there is none.
    pub metadata_size_bytes: u64,
    /// Size of a zone, bytes: whole blocks of 4 KiB, 1 MiB to 4 GiB. `None`: 64 MiB, less on volumes below 16 GiB. That of an image for
    /// metadata goes by its size alone.
    pub zone_bytes: Option<u64>,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Share held back for metadata and cleaning, in 1/100 percent; `None`: 7 percent, and 3 where there are 1,000 zones
    /// for data.
    pub reserve_basis_points: Option<u32>,
    /// Copies of metadata, checkpoints and log: 1 or 2.
    pub copies: u32,
    /// What of file data is left when a zone of the device is lost. Not on two devices.
    pub data: DataRedundancy,
    /// How its files are compressed, where the attribute `user.persimmon.compression` does not say it; `None`: as whoever opens it
    /// says.
    pub compression: Option<Compression>,
    /// Overwrite what is there.
    pub force: bool,
}

impl Create {
    /// An image of `size_bytes` with everything else as usual. On two devices the image for metadata has a
    /// sixteenth of that, and 16 MiB at least. 0: all of what is there ([`Create::size_bytes`]).
    #[must_use]
    pub fn sized(size_bytes: u64) -> Create {
        Create {
            size_bytes,
            metadata_size_bytes: match size_bytes {
                0 => 0,
                bytes => (bytes / 16).max(METADATA_BYTES_MIN),
            },
            zone_bytes: None,
            label: String::new(),
            reserve_basis_points: None,
            copies: FormatOptions::default().copies,
            data: DataRedundancy::None,
            compression: None,
            force: false,
        }
    }
}

/// A volume that can be made, and on what.
struct Checked {
    /// Of the image; of two, of that for data.
    shape: ImageGeometry,
    /// Of the image for metadata.
    metadata: Option<ImageGeometry>,
    /// How the zones of the device are to be used.
    stripes: Option<Stripes>,
}

/// The shape of an image of `size_bytes` at `path`, or of all there is for one there, or else of `usual`. Of a drive it says nothing.
fn shape_at(
    path: &Path,
    size_bytes: u64,
    zone_bytes: Option<u64>,
    usual: Option<u64>,
) -> Result<ImageGeometry> {
    let impossible =
        |why: String| Error::of_volume_at(path)(persimmon_engine::Error::Geometry(why));
    if drive::Kind::of(path)? != drive::Kind::Image {
        return image(METADATA_BYTES_MIN, None).map_err(impossible);
    }
    let size_bytes = match size_bytes {
        0 => match available(path) {
            Ok(Available::Device(0) | Available::File(0)) => match usual {
                Some(bytes) => bytes,
                None => return Err(impossible("is new or empty: tell its size".to_owned())),
            },
            Ok(Available::Device(bytes) | Available::File(bytes)) => bytes,
            Err((message, os_error)) => {
                return Err(Error::Device(DeviceError::Open {
                    path: path.display().to_string(),
                    message,
                    os_error,
                }));
            }
        },
        bytes => bytes,
    };
    image(size_bytes, zone_bytes).map_err(impossible)
}

impl Create {
    /// Refuses what no volume can be, and what none can be on the devices that are named.
    fn check(&self, path: &Path) -> Result<Checked> {
        let options = FormatOptions {
            label: self.label.clone(),
            reserve_basis_points: self.reserve_basis_points,
            copies: self.copies,
            ..FormatOptions::default()
        };
        // Also where the device cannot be looked at.
        options
            .check()
            .map_err(|why| Error::of_volume_at(path)(why.into()))?;
        let impossible =
            |why: String| Error::of_volume_at(path)(persimmon_engine::Error::Geometry(why));
        self.data.check().map_err(impossible)?;
        let (checked, geometry, capacities) = match pair::names(path) {
            None => {
                let shape = shape_at(path, self.size_bytes, self.zone_bytes, None)?;
                let (geometry, capacity) = made(path, &shape)?;
                let fits = |geometry: &Geometry, capacities| options.check_on(geometry, capacities);
                let divided = self.data.divide(&geometry, capacity, fits);
                let stripes = divided.map_err(Error::of_volume_at(path))?.stripes;
                let metadata = None;
                return Ok(Checked {
                    shape,
                    metadata,
                    stripes,
                });
            }
            Some(_) if self.data != DataRedundancy::None => {
                return Err(impossible(DataRedundancy::NOT_ON_TWO.to_owned()));
            }
            Some((metadata, data)) => {
                let shape = shape_at(&data, self.size_bytes, self.zone_bytes, None)?;
                let usual = Some(METADATA_BYTES_MIN);
                let metadata_shape = shape_at(&metadata, self.metadata_size_bytes, None, usual)?;
                let (of_metadata, metadata_capacity) = made(&metadata, &metadata_shape)?;
                let (of_data, data_capacity) = made(&data, &shape)?;
                let mut capacities = ZoneCapacities::all(data_capacity);
                capacities.metadata = metadata_capacity;
                let checked = Checked {
                    shape,
                    metadata: Some(metadata_shape),
                    stripes: None,
                };
                let geometry = pair::geometry_of(&of_metadata, &of_data)?;
                (checked, geometry, capacities)
            }
        };
        options
            .check_on(&geometry, capacities)
            .map_err(Error::of_volume_at(path))?;
        Ok(checked)
    }
}

/// What a device will be like once it is made anew, and the blocks of a zone that can be written.
pub(crate) fn made(path: &Path, shape: &ImageGeometry) -> Result<(Geometry, u32)> {
    if drive::Kind::of(path)? == drive::Kind::Image {
        return Ok((ImageDevice::device_geometry(shape), shape.capacity_blocks));
    }
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let drive = Drive::open_part(path, &options)?;
    let geometry = Geometry {
        zone_count: drive.zone_count_made()?,
        ..drive.geometry().clone()
    };
    let zones = drive.report(0..drive.geometry().zone_count)?;
    let usable = zones.iter().filter(|zone| !zone.state.is_worn_out());
    let capacity = usable.map(|zone| zone.capacity).min();
    let capacity = capacity.unwrap_or(geometry.zone_blocks);
    Ok((geometry, capacity))
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bounds on memory and the like, and how files are compressed: with LZ4. `read_only` of either holds for both.
    pub engine: EngineOptions,
    /// Semantics.
    pub vfs: VfsOptions,
    /// Longest time until what was written is durable without being asked. Until then it may be in the memory of this
    /// process alone, and is lost with it: who needs it sooner syncs the file, or writes through
    /// ([`OpenOptions::write_through`](crate::OpenOptions::write_through)).
    pub commit_interval: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            engine: EngineOptions {
                compression: Compression::Lz4,
                deltas: Deltas::InMemory,
                parallel: Arc::new(AllCores),
                ..EngineOptions::default()
            },
            vfs: VfsOptions {
                limits_everybody: true,
                ..VfsOptions::default()
            },
            commit_interval: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Nothing is written; journals are replayed in memory.
    #[must_use]
    pub fn read_only() -> Options {
        let mut options = Options::default();
        options.engine.read_only = true;
        options.vfs.read_only = true;
        options
    }
}

/// Writes an empty volume to a device.
fn format(
    device: Arc<dyn ZonedDevice>,
    uuid: uuid::Uuid,
    create: &Create,
) -> std::result::Result<(), persimmon_engine::Error> {
    let mut secret = [0; 32];
    let (head, tail) = secret.split_at_mut(16);
    head.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    tail.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let options = FormatOptions {
        uuid: uuid.into_bytes(),
        secret,
        label: create.label.clone(),
        reserve_basis_points: create.reserve_basis_points,
        copies: create.copies,
        compression: create.compression,
        now: SystemClock.now(),
        ..FormatOptions::default()
    };
    Volume::format(device, &options)
}

impl Filesystem {
    /// Makes a volume in an image file, on a zoned drive or on another block device, or on two of them
    /// ([`device::uri`](crate::device::uri)).
    pub fn create(path: impl AsRef<Path>, create: &Create) -> Result<()> {
        let path = path.as_ref();
        let uuid = uuid::Uuid::new_v4();
        // Before anything is made or overwritten.
        let Checked {
            shape,
            metadata: metadata_shape,
            stripes,
        } = create.check(path)?;
        let options = CreateOptions {
            force: create.force,
            uuid,
            label: create.label.clone(),
            stripes,
            ..CreateOptions::default()
        };
        let device = match pair::names(path).zip(metadata_shape) {
            Some(((metadata, data), of_metadata)) => {
                Drive::create_pair((&metadata, &of_metadata), (&data, &shape), &options)?
            }
            None => Drive::create(path, &shape, &options)?,
        };
        format(Arc::new(device), uuid, create).map_err(Error::of_volume_at(path))
    }

    /// Makes a volume on any device, which has the size and the zones it has. What is on it is lost, whatever
    /// [`Create::force`] says.
    pub fn create_on(device: Arc<dyn ZonedDevice>, create: &Create) -> Result<()> {
        Ok(format(device, uuid::Uuid::new_v4(), create)?)
    }

    /// Makes a volume of `bytes` in memory and opens it. It is gone with the last handle to it: for tests, and for data
    /// that need not last.
    pub fn in_memory(bytes: u64) -> Result<Filesystem> {
        let create = Create::sized(bytes);
        let shape = image(create.size_bytes, create.zone_bytes);
        let shape = shape.map_err(persimmon_engine::Error::Geometry)?;
        let device = Arc::new(ImageDevice::in_memory(&shape, &CreateOptions::default())?);
        Filesystem::create_on(device.clone(), &create)?;
        Filesystem::open_on(device, &Options::default())
    }

    /// Opens the volume in an image file, on a zoned drive or on another block device. Background
    /// work begins.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Filesystem> {
        let path = path.as_ref();
        let device = Drive::open(
            path,
            &OpenOptions {
                read_only: options.engine.read_only || options.vfs.read_only,
                ..OpenOptions::default()
            },
        )?;
        Opened::new(Arc::new(device), options)
            .map_err(Error::of_volume_at(path))?
            .start(Arc::new(SystemClock))
    }

    /// Opens the volume on any device. Background work begins.
    pub fn open_on(device: Arc<dyn ZonedDevice>, options: &Options) -> Result<Filesystem> {
        Filesystem::open_by(device, options, Arc::new(SystemClock))
    }

    /// The same by another clock: for tests that have to know every time.
    #[doc(hidden)]
    pub fn open_by(
        device: Arc<dyn ZonedDevice>,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Filesystem> {
        Opened::new(device, options)?.start(clock)
    }
}

/// A volume that was opened and recovered, and that nobody uses yet: what is wrong with it can be looked at, and it can be let go of as it is.
pub struct Opened {
    volume: Arc<Volume>,
    recovery: RecoveryReport,
    options: Options,
    device: Option<DeviceIdentity>,
}

impl Opened {
    /// Opens the volume on a device and recovers it.
    ///
    /// # Errors
    /// Those of the volume, [`VolumeError`](crate::VolumeError).
    pub fn new(
        device: Arc<dyn ZonedDevice>,
        options: &Options,
    ) -> std::result::Result<Opened, persimmon_engine::Error> {
        let mut options = options.clone();
        let read_only = options.engine.read_only || options.vfs.read_only;
        (options.engine.read_only, options.vfs.read_only) = (read_only, read_only);
        let identity = device.identity();
        let (volume, recovery) = Volume::open(device, options.engine.clone())?;
        Ok(Opened {
            volume: Arc::new(volume),
            recovery,
            options,
            device: identity,
        })
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Has the root of a subvolume be the root.
    #[must_use]
    pub fn with_subvolume(mut self, id: SubvolumeId) -> Opened {
        self.options.vfs.subvolume = id;
        self
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Puts it to use: what was flushed before a process died is brought in, unless the volume is read-only, and background
    /// work begins. Files for whose ends there is no room cannot be opened until there is and the volume is opened again
    /// ([`OpenOptions::keep_flushed`](crate::OpenOptions::keep_flushed)).
    ///
    /// # Errors
    /// When that cannot be brought in, or a thread cannot be started.
    pub fn start(self, clock: Arc<dyn Clock>) -> Result<Filesystem> {
        let orphans = self.orphans();
        self.start_freeing(clock, orphans)
    }

    /// Brings in what programs flushed before they died, and closes the volume.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn bring_in(self, path: &Path) -> Result<()> {
        let fs = self.start(Arc::new(SystemClock))?;
        let waiting = fs.files_waiting();
        fs.close()?;
        match waiting {
            0 => Ok(()),
            _ => Err(refused_by(
                path,
                libc::ENOSPC,
                "there is no room on the volume for what programs flushed before they died: remove something first",
            )),
        }
    }

    /// Like [`Opened::start`], for a kernel that goes on using the volume: unlinked files, which it may have open, are not freed but answered.
    ///
    /// # Errors
    /// As of [`Opened::start`].
    pub fn resume(self, clock: Arc<dyn Clock>) -> Result<(Filesystem, Vec<Ino>)> {
        let orphans = self.orphans();
        Ok((self.start_freeing(clock, Vec::new())?, orphans))
    }

    fn orphans(&self) -> Vec<Ino> {
        // They stay on their list: the next opening frees them.
        self.volume.orphans().unwrap_or_else(|error| {
            tracing::warn!("unlinked files cannot be listed: {error}");
            Vec::new()
        })
    }

    fn start_freeing(self, clock: Arc<dyn Clock>, mut orphans: Vec<Ino>) -> Result<Filesystem> {
        let commit = Arc::new(CommitInterval::new(self.options.commit_interval));
        let place = Place::of(self.volume.identity().uuid, self.device);
        let now = clock.now();
        let vfs = Arc::new(Vfs::new(self.volume, clock, self.options.vfs));
        let mut keeper = Keeper::new(None, 0);
        if let Some(place) = place.as_ref().filter(|_| vfs.is_read_only()) {
            keeper = Keeper::for_reading(unseen(&vfs, place, &self.recovery));
        } else if let Some(place) = place {
            let waiting = replay(&vfs, &place, (&self.recovery, now), &mut orphans)?;
            if waiting.is_empty() {
                let opening = draw_opening();
                vfs.volume().begin_opening(opening);
                keeper = Keeper::new(Some(place), opening);
            } else {
                // It goes on as the opening before, whose tails they are, and makes none of its own.
                vfs.hold_back(waiting);
            }
        }
        let keeper = Arc::new(keeper);
        let background = Background::start(&vfs, &commit, &keeper, orphans);
        let background = background.map_err(Error::Thread)?;
        Ok(Filesystem::new(
            vfs,
            background,
            commit,
            self.recovery,
            keeper,
        ))
    }
}
