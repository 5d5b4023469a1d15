//! A filesystem that has much of something, and what a request costs there.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use persimmon_device::ZonedDevice;
use persimmon_engine::{FormatOptions, Task, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    Author, Caller, Clock, Handle, Ino, OpenFlags, Options, ROOT, Timestamp, Vfs, WriteFlags,
};

/// Zones of the device, of 1,024 blocks each.
const ZONES: u32 = 512;
/// Pages that a cold cache keeps.
const COLD_PAGES: usize = 64;
/// Pages that no growth is seen in.
const FEW: u64 = 60;

#[derive(Default)]
struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: 1_000_000 + self.0.fetch_add(1, Ordering::Relaxed),
            nanoseconds: 0,
        }
    }
}

/// The filesystem, and who uses it.
pub struct World {
    pub vfs: Vfs,
    pub root: Caller,
    /// What was made, for requests by number.
    pub inos: RefCell<Vec<Ino>>,
    device: Arc<SimDevice>,
}

impl World {
    pub fn new() -> World {
        let device = Arc::new(SimDevice::new(SimConfig::new(ZONES, 1024).fast()));
        let on = Arc::clone(&device) as Arc<dyn ZonedDevice>;
        Volume::format(on, &FormatOptions::default()).unwrap();
        World::open(device, 512 << 20)
    }

    fn open(device: Arc<SimDevice>, cache_bytes_max: usize) -> World {
        let options = persimmon_engine::Options {
            cache_bytes_max,
            ..persimmon_engine::Options::default()
        };
        let on = Arc::clone(&device) as Arc<dyn ZonedDevice>;
        let (volume, _) = Volume::open(on, options).unwrap();
        let options = Options {
            hold_until_forget: true,
            ..Options::default()
        };
        World {
            vfs: Vfs::new(Arc::new(volume), Arc::new(Ticks::default()), options),
            root: Caller::root(),
            inos: RefCell::default(),
            device,
        }
    }

    /// Mounted anew after its process has died, with nothing in memory, and room there for few pages.
    pub fn cold(self) -> World {
        let World {
            vfs, inos, device, ..
        } = self;
        drop(vfs);
        let cold = World::open(device, COLD_PAGES * persimmon_format::page::PAGE_SIZE);
        World { inos, ..cold }
    }

    /// What has changed is on the device, so that it may leave the cache.
    pub fn checkpoint(&self) {
        self.vfs.sync().unwrap();
        self.vfs.volume().step(Task::Checkpoint).unwrap();
    }

    /// Pages that `request` looks at or reads.
    pub fn cost(&self, request: impl FnOnce(&World)) -> u64 {
        let before = self.vfs.volume().statistics();
        request(self);
        let did = self.vfs.volume().statistics().since(&before);
        did.pages_looked_at + did.pages_fetched
    }

    pub fn mkdir(&self, parent: Ino, name: &str) -> Ino {
        let made = self.vfs.mkdir(&self.root, parent, name.as_bytes(), 0o755);
        made.unwrap().ino
    }

    pub fn file(&self, parent: Ino, name: &str) -> Ino {
        let mode = libc::S_IFREG | 0o644;
        let made = self.vfs.mknod(&self.root, parent, name.as_bytes(), mode, 0);
        made.unwrap().ino
    }

    pub fn at(&self, name: &str) -> Ino {
        self.vfs.lookup(ROOT, name.as_bytes()).unwrap().ino
    }

    pub fn open_file(&self, ino: Ino) -> Handle {
        self.vfs.open(ino, READ_WRITE).unwrap()
    }

    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        let flags = WriteFlags::default();
        let written = self.vfs.write(ino, Handle::NONE, offset, data, flags);
        written.unwrap();
    }
}

pub const READ_WRITE: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    door_appends: false,
    truncate: false,
    sync: false,
    data_sync: false,
    exclusive: false,
    no_atime: false,
    write_through: false,
    direct: false,
    author: Author::Privileged,
    is_limited: false,
};

/// How a request's cost may grow with what there is much of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Not at all, but for the height of the tree and pages around.
    Flat,
    /// No more than there is.
    Linear,
    /// The same, in an order of its own: with a cold cache a page may have to be read for each, once there are more than the
    /// cache holds.
    Scattered,
}

/// A request under its name.
pub struct Request {
    pub name: &'static str,
    pub growth: Growth,
    pub run: fn(&World, u64),
}

/// Something that there may be much of.
pub struct Dimension {
    pub name: &'static str,
    pub sizes: &'static [u64],
    pub make: fn(&World, u64),
    /// In this order, each on what the ones before it have left.
    pub requests: &'static [Request],
}

impl Dimension {
    /// Asks each request at each size, with all that is looked at in memory, and with a cold, small cache.
    pub fn measure(&self) {
        let mut failed = Vec::new();
        for cold in [false, true] {
            let costs: Vec<Vec<u64>> = self.sizes.iter().map(|n| self.costs(*n, cold)).collect();
            for (at, request) in self.requests.iter().enumerate() {
                let costs: Vec<u64> = costs.iter().map(|costs| costs[at]).collect();
                let cache = if cold { "cold" } else { "warm" };
                let told = format!("{}, {} ({cache}): {costs:?}", self.name, request.name);
                println!("{told}");
                if !self.is_within(request.growth, cold, &costs) {
                    failed.push(told);
                }
            }
        }
        assert!(
            failed.is_empty(),
            "grew by more than it may:\n{}",
            failed.join("\n")
        );
    }

    fn costs(&self, n: u64, cold: bool) -> Vec<u64> {
        let mut world = World::new();
        (self.make)(&world, n);
        world.checkpoint();
        if cold {
            world = world.cold();
        }
        let each = self.requests.iter();
        each.map(|request| world.cost(|world| (request.run)(world, n)))
            .collect()
    }

    /// Whether ten times as much costs no more than ten times, with a margin for the height of the tree and for the
    /// pages of inner nodes that a cold cache has to read again.
    fn is_within(&self, growth: Growth, cold: bool, costs: &[u64]) -> bool {
        let margin = match (growth, cold) {
            (_, false) => 2,
            (Growth::Scattered, true) => 5,
            (_, true) => 3,
        };
        let pairs = self.sizes.windows(2).zip(costs.windows(2));
        pairs.into_iter().all(|(sizes, costs)| match growth {
            Growth::Flat => costs[1] <= costs[0] * 2 + FEW,
            Growth::Linear | Growth::Scattered => {
                costs[1] <= costs[0].max(FEW) * sizes[1] / sizes[0] * margin
            }
        })
    }
}
