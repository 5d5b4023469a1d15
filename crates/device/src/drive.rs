//! A device of whatever kind its name says: the path of a file or device node, `zonefs:DIR`, or
//! `pair:FIRST+SECOND`. What is a name of another kind is a path once `./` stands before it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::image::{self, ImageDevice, ImageGeometry, Notice};
use crate::joined::Joined;
use crate::linux::front::Front;
use crate::linux::make;
use crate::lock::{explain, wrong_kind};
use crate::nvme::{self, Nvme, NvmeDevice};
use crate::options::{CreateOptions, OpenOptions};
use crate::pair::{self, Pair};
use crate::probe::{self, Identity};
use crate::striped::{self, Striped};
use crate::zbd::{self, Zbd, ZbdDevice};
use crate::zonefs::{self, ZonefsDevice, ZonefsPort};
use crate::{
    Buffer, Command, Completion, DeviceIdentity, Geometry, Pending, Result, ZoneId, ZoneInfo,
    ZonedDevice,
};

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file or an ordinary block device: an image.
    Image,
    /// A zoned block device.
    Zbd,
    /// A zoned NVMe namespace, by its generic character device.
    Nvme,
    /// A zonefs.
    Zonefs,
    /// Two devices.
    Pair,
}

/// A device of one of the kinds.
#[derive(Debug)]
pub enum Drive {
    /// An image.
    Image(Box<ImageDevice>),
    /// A zoned block device.
    Zbd(ZbdDevice),
    /// A drive, and an image in its conventional zones.
    Mixed(Box<Joined<ImageDevice, Drive>>),
    /// A zoned NVMe namespace, past the block layer.
    Nvme(NvmeDevice),
    /// A zonefs.
    Zonefs(ZonefsDevice),
    /// Two devices, one of them for metadata.
    Pair(Box<Pair>),
    /// One whose zones are used in stripe sets.
    Striped(Box<Striped<Drive>>),
}

/// A device that can be made anew.
pub(crate) enum Claim {
    Image(Box<image::Claim>),
    Zbd(make::Claim<Zbd>),
    Nvme(make::Claim<Nvme>),
    Zonefs(make::Claim<ZonefsPort>),
}

impl Claim {
    /// Makes it anew.
    pub fn made(self, options: &CreateOptions) -> Result<Drive> {
        Ok(match self {
            Claim::Image(claim) => Drive::Image(Box::new(claim.made(options)?)),
            Claim::Zbd(claim) => {
                Drive::Zbd(ZbdDevice::emptied(claim)?).joined(|front| front.create(options))?
            }
            Claim::Nvme(claim) => Drive::Nvme(claim.emptied(false)?),
            Claim::Zonefs(claim) => {
                Drive::Zonefs(claim.emptied(false)?).joined(|front| front.create(options))?
            }
        })
    }
}

impl Kind {
    /// What there is at `path`. What does not exist yet will be an image file.
    ///
    /// Errors: it cannot be looked at.
    pub fn of(path: &Path) -> Result<Kind> {
        if zonefs::directory(path).is_some() {
            return Ok(Kind::Zonefs);
        }
        if pair::is_uri(path) {
            return Ok(Kind::Pair);
        }
        let kind = || -> io::Result<Kind> {
            Ok(match nvme::is_generic(path)? {
                true => Kind::Nvme,
                false if zbd::is_zoned(path)? => Kind::Zbd,
                false => Kind::Image,
            })
        };
        match kind() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Image),
            found => found.map_err(|error| explain(path, &error)),
        }
    }
}

/// The name without symbolic links and `..`, as all who mean the same device would call it.
///
/// Errors: there is no such file.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    if pair::is_uri(path) {
        let names = pair::names_or_error(path);
        let (metadata, data) = names.map_err(|error| io::Error::other(error.to_string()))?;
        return Ok(pair::uri(&canonical(&metadata)?, &canonical(&data)?));
    }
    match zonefs::directory(path) {
        Some(dir) => Ok(zonefs::uri(&fs::canonicalize(dir)?)),
        None => fs::canonicalize(path),
    }
}

/// Bytes of the file or block device at `path`; `None`: there is none.
///
/// Errors: it cannot be looked at.
pub fn length(path: &Path) -> Result<Option<u64>> {
    let length = || -> io::Result<Option<u64>> {
        match probe::open(path) {
            Ok(mut file) => io::Seek::seek(&mut file, io::SeekFrom::End(0)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    length().map_err(|error| explain(path, &error))
}

/// UUID and label of the volume at `path`, without opening or locking it: for finding a volume by
/// either. `None`: there is none.
///
/// Errors: it cannot be read.
pub fn identity(path: &Path) -> io::Result<Option<Identity>> {
    if zonefs::directory(path).is_some() {
        return zonefs::identity(path);
    }
    if let Some((metadata, _)) = pair::names(path) {
        return identity(&metadata);
    }
    if nvme::is_generic(path)? {
        return nvme::identity(path);
    }
    if zbd::is_zoned(path)? {
        zbd::identity(path)
    } else {
        let file = probe::open(path)?;
        match wrong_kind(&file.metadata()?) {
            Some(why) => Err(io::Error::other(why)),
            None => probe::identity(&file),
        }
    }
}

impl Drive {
    /// Opens the device at `path`.
    ///
    /// Errors: as of [`ImageDevice::open`], [`ZbdDevice::open`], [`NvmeDevice::open`],
    /// [`ZonefsDevice::open`] and [`Pair::open`]; [`crate::PairError::Alone`] if it is one of two.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Drive> {
        let path = path.as_ref();
        if pair::is_uri(path) {
            let (metadata, data) = pair::names_or_error(path)?;
            return Ok(Drive::Pair(Box::new(Pair::open(
                &metadata, &data, options,
            )?)));
        }
        let drive = Drive::open_part(path, options)?;
        pair::check_alone(&drive, path)?;
        striped::open(drive, !options.read_only)
    }

    /// Opens one device, though it be one of two.
    ///
    /// Errors: as of [`Drive::open`].
    pub fn open_part(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Drive> {
        let path = path.as_ref();
        Ok(match Kind::of(path)? {
            Kind::Pair => return Err(no_part(path)),
            Kind::Image => Drive::Image(Box::new(ImageDevice::open(path, options)?)),
            Kind::Zbd => Drive::Zbd(ZbdDevice::open(path, options)?).joined(Front::open)?,
            Kind::Nvme => Drive::Nvme(NvmeDevice::open(path, options)?),
            Kind::Zonefs => {
                Drive::Zonefs(ZonefsDevice::open(path, options)?).joined(Front::open)?
            }
        })
    }

    /// Makes an image of this shape at `path`, or empties the zoned device there, whose shape is
    /// its own; of a pair both.
    ///
    /// Errors: as of [`ImageDevice::create`], [`ZbdDevice::create`], [`NvmeDevice::create`] and
    /// [`ZonefsDevice::create`]; [`crate::PairError::Marked`] if it was one of two and cannot be
    /// made to forget that.
    pub fn create(
        path: impl AsRef<Path>,
        geometry: &ImageGeometry,
        options: &CreateOptions,
    ) -> Result<Drive> {
        let path = path.as_ref();
        if pair::is_uri(path) {
            let (metadata, data) = pair::names_or_error(path)?;
            return Drive::create_pair((&metadata, geometry), (&data, geometry), options);
        }
        let drive = Drive::claim(path, geometry, options)?.made(options)?;
        pair::check_unmarked(&drive, path)?;
        match options.stripes {
            Some(stripes) => striped::create(drive, stripes, options.uuid),
            None => striped::check_unmarked(drive),
        }
    }

    /// Refuses what [`Drive::create`] would refuse, and makes nothing: of a pair it asks for both.
    ///
    /// Errors: as of [`Drive::create`], but for those of writing.
    pub fn check_create(
        path: &Path,
        geometry: &ImageGeometry,
        options: &CreateOptions,
    ) -> Result<()> {
        match path.try_exists() {
            // A file that is not there would have to be made to be claimed.
            Ok(false) if Kind::of(path)? == Kind::Image => image::check_new(path, geometry),
            _ => Drive::claim(path, geometry, options).map(drop),
        }
    }

    /// The same of two devices.
    ///
    /// Errors: as of [`Pair::create`], but for those of writing.
    pub fn check_create_pair(
        metadata: (&Path, &ImageGeometry),
        data: (&Path, &ImageGeometry),
        options: &CreateOptions,
    ) -> Result<()> {
        pair::check_two(metadata.0, data.0)?;
        Drive::check_create(metadata.0, metadata.1, options)?;
        Drive::check_create(data.0, data.1, options)
    }

    /// Takes one device for being made anew, which may become one of two. Whatever refuses it does so now,
    /// and nothing on it is overwritten yet.
    pub(crate) fn claim(
        path: &Path,
        geometry: &ImageGeometry,
        options: &CreateOptions,
    ) -> Result<Claim> {
        Ok(match Kind::of(path)? {
            Kind::Pair => return Err(no_part(path)),
            Kind::Image => Claim::Image(Box::new(ImageDevice::claim(path, geometry, options)?)),
            Kind::Zbd => Claim::Zbd(ZbdDevice::claim(path, options)?),
            Kind::Nvme => Claim::Nvme(NvmeDevice::claim(path, options)?),
            Kind::Zonefs => Claim::Zonefs(ZonefsDevice::claim(path, options)?),
        })
    }

    /// Makes the two devices of a volume anew.
    ///
    /// Errors: as of [`Pair::create`].
    pub fn create_pair(
        metadata: (&Path, &ImageGeometry),
        data: (&Path, &ImageGeometry),
        options: &CreateOptions,
    ) -> Result<Drive> {
        let pair = Pair::create(metadata, data, options)?;
        Ok(Drive::Pair(Box::new(pair)))
    }

    /// With the image in its conventional zones, if `image` finds one there.
    fn joined(self, image: impl FnOnce(Front) -> Result<Option<ImageDevice>>) -> Result<Drive> {
        let image = match self.front()? {
            Some(front) => image(front)?,
            None => None,
        };
        Ok(match image {
            Some(image) => Drive::Mixed(Box::new(Joined::new(image, self)?)),
            None => self,
        })
    }

    fn front(&self) -> Result<Option<Front>> {
        match self {
            Drive::Zbd(device) => device.front(),
            Drive::Zonefs(device) => device.front(),
            Drive::Image(_)
            | Drive::Nvme(_)
            | Drive::Mixed(_)
            | Drive::Pair(_)
            | Drive::Striped(_) => Ok(None),
        }
    }

    /// Zones that it has once it is made anew.
    ///
    /// Errors: its conventional zones cannot be looked at.
    pub fn zone_count_made(&self) -> Result<u32> {
        if let Drive::Striped(device) = self {
            return device.below().zone_count_made();
        }
        let front = match self {
            Drive::Mixed(device) => device.second().front()?,
            drive => drive.front()?,
        };
        let own = match self {
            Drive::Mixed(device) => device.second().geometry().zone_count,
            drive => drive.geometry().zone_count,
        };
        Ok(own + front.map_or(0, |front| front.zone_count()))
    }

    /// Changes what those find who look for a volume by UUID or label, where the device has a place for that: an image.
    ///
    /// Errors: as of [`ImageDevice::set_identity`].
    pub fn set_identity(&self, uuid: uuid::Uuid, label: &str) -> Result<()> {
        match self {
            Drive::Image(device) => device.set_identity(uuid, label),
            Drive::Mixed(device) => device.first().set_identity(uuid, label),
            Drive::Pair(pair) => {
                pair.metadata().set_identity(uuid, label)?;
                pair.data().set_identity(uuid, label)
            }
            Drive::Striped(device) => device.below().set_identity(uuid, label),
            Drive::Zbd(_) | Drive::Nvme(_) | Drive::Zonefs(_) => Ok(()),
        }
    }

    /// Whether that is all there is to it. In a drive headers of zones tell UUID and label.
    #[must_use]
    pub fn has_identity(&self) -> bool {
        match self {
            Drive::Image(_) => true,
            Drive::Pair(pair) => pair.metadata().has_identity(),
            Drive::Striped(device) => device.below().has_identity(),
            Drive::Mixed(_) | Drive::Zbd(_) | Drive::Nvme(_) | Drive::Zonefs(_) => false,
        }
    }

    /// Its file, device node or URI.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Drive::Image(device) => device.path(),
            Drive::Zbd(device) => device.path(),
            Drive::Mixed(device) => device.second().path(),
            Drive::Nvme(device) => device.path(),
            Drive::Zonefs(device) => device.path(),
            Drive::Pair(device) => device.path(),
            Drive::Striped(device) => device.below().path(),
        }
    }

    /// What drives it.
    #[must_use]
    pub fn back_end(&self) -> &'static str {
        match self {
            Drive::Image(_) => "image",
            Drive::Zbd(_) => "zbd",
            Drive::Mixed(device) => device.second().back_end(),
            Drive::Nvme(_) => "nvme",
            Drive::Zonefs(_) => "zonefs",
            Drive::Pair(_) => "pair",
            Drive::Striped(device) => device.below().back_end(),
        }
    }

    /// What opening found damaged and could live with.
    #[must_use]
    pub fn notices(&self) -> Vec<&Notice> {
        match self {
            Drive::Image(device) => device.notices().iter().collect(),
            Drive::Mixed(device) => device.first().notices().iter().collect(),
            Drive::Zbd(_) | Drive::Nvme(_) | Drive::Zonefs(_) => Vec::new(),
            Drive::Pair(pair) => {
                let drives = [pair.metadata(), pair.data()];
                drives.into_iter().flat_map(Drive::notices).collect()
            }
            Drive::Striped(device) => device.below().notices(),
        }
    }

    /// The devices of a pair, that for metadata first.
    #[must_use]
    pub fn pair(&self) -> Option<&Pair> {
        match self {
            Drive::Pair(pair) => Some(pair),
            _ => None,
        }
    }

    /// The device itself, where its zones are used in stripe sets.
    #[must_use]
    pub fn below_stripes(&self) -> &Drive {
        match self {
            Drive::Striped(device) => device.below(),
            drive => drive,
        }
    }

    fn device(&self) -> &dyn ZonedDevice {
        match self {
            Drive::Image(device) => &**device,
            Drive::Zbd(device) => device,
            Drive::Mixed(device) => &**device,
            Drive::Nvme(device) => device,
            Drive::Zonefs(device) => device,
            Drive::Pair(device) => &**device,
            Drive::Striped(device) => &**device,
        }
    }
}

/// A pair where one device is needed.
fn no_part(path: &Path) -> crate::DeviceError {
    crate::DeviceError::Open {
        path: path.display().to_string(),
        message: "names two devices where one is meant".to_owned(),
        os_error: None,
    }
}

impl ZonedDevice for Drive {
    fn geometry(&self) -> &Geometry {
        self.device().geometry()
    }

    fn report(&self, zones: std::ops::Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device().report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        self.device().submit(command)
    }

    fn run(&self, command: Command) -> Result<Completion> {
        self.device().run(command)
    }

    fn read_into(
        &self,
        zone: ZoneId,
        block: u32,
        into: &mut [u8],
        beside_others: bool,
    ) -> Option<Result<()>> {
        self.device().read_into(zone, block, into, beside_others)
    }

    fn resets_at_once(&self) -> usize {
        self.device().resets_at_once()
    }

    fn space_is_hosts(&self) -> bool {
        self.device().space_is_hosts()
    }

    fn identity(&self) -> Option<DeviceIdentity> {
        self.device().identity()
    }

    fn read_without(
        &self,
        zone: ZoneId,
        block: u32,
        blocks: u32,
        attempt: u32,
    ) -> Option<Result<Buffer>> {
        self.device().read_without(zone, block, blocks, attempt)
    }

    fn rows_agree(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<bool> {
        self.device().rows_agree(zone, block, blocks)
    }
}
