//! What a zone and a page of metadata take of the heap, by an allocator that counts. docs/PERFORMANCE.md has the figures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure ends the test"
)]

#[path = "../examples/scale/heap.rs"]
mod heap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use persimmon_device::image::ImageGeometry;
use persimmon_device::{CreateOptions, ImageDevice, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Intent, Options, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Inode;
use persimmon_format::page::PAGE_SIZE;
use persimmon_sim::{SimConfig, SimDevice};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// The counters are everybody's: one test after the other.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes on the heap.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// After some work and not before.
    resident: i64,
    /// The most while it went on.
    peak: i64,
}

fn taken<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let before = heap::bytes() as i64;
    heap::begin_peak();
    let made = work();
    let taken = Taken {
        resident: heap::bytes() as i64 - before,
        peak: heap::peak() as i64 - before,
    };
    (made, taken)
}

fn image(zone_count: u32) -> ImageDevice {
    let geometry = ImageGeometry {
        zone_count,
        zone_blocks: 256,
        capacity_blocks: 256,
        max_open: None,
        max_active: None,
    };
    ImageDevice::in_memory(&geometry, &CreateOptions::default()).unwrap()
}

fn simulated(zone_count: u32) -> SimDevice {
    SimDevice::new(SimConfig::new(zone_count, 256).fast())
}

/// What the engine takes for an empty volume; the device not counted.
fn mounted(device: Arc<dyn ZonedDevice>) -> Taken {
    Volume::format(Arc::clone(&device), &FormatOptions::default()).unwrap();
    let (_volume, taken) = taken(|| Volume::open(device, Options::default()).unwrap());
    taken
}

/// What one more zone takes.
fn of_a_zone(take: impl Fn(u32) -> Taken) -> Taken {
    // What is made once for a process, as its pool of buffers, is there then.
    take(1000);
    // Each lock of an image's zones has as many of both.
    const FEW: i64 = 102_400;
    const MANY: i64 = 409_600;
    let (few, many) = (take(FEW as u32), take(MANY as u32));
    let each = |few: i64, many: i64| (many - few) / (MANY - FEW);
    Taken {
        resident: each(few.resident, many.resident),
        peak: each(few.peak, many.peak),
    }
}

/// Nothing bounded what a zone takes: an open image had 77 bytes for each, a third of it for locks, and a mount kept
/// a second copy of the zone table on top of all else.
#[test]
fn an_empty_zone_takes_little() {
    let _turn = turn();
    let of_image = of_a_zone(|zones| taken(|| image(zones)).1);
    assert!(of_image.resident <= 56, "{of_image:?}");
    assert!(of_image.peak <= 56, "{of_image:?}");
    let devices: [&dyn Fn(u32) -> Arc<dyn ZonedDevice>; 2] =
        [&|zones| Arc::new(image(zones)), &|zones| {
            Arc::new(simulated(zones))
        }];
    for device in devices {
        let of_engine = of_a_zone(|zones| mounted(device(zones)));
        assert!(of_engine.resident <= 165, "{of_engine:?}");
        assert!(of_engine.peak <= 220, "{of_engine:?}");
    }
}

/// Pages that there may be at most while somebody reads: an eighth and 64 above the bound, so that not every fetch evicts, and
/// the one that was just fetched.
fn pages_max(cache_bytes_max: usize) -> u64 {
    let limit = (cache_bytes_max / PAGE_SIZE) as u64;
    limit + limit / 8 + 64 + 1
}

/// The cache is bounded by the bytes of its pages; what else it takes for one has to be little.
#[test]
fn a_cached_page_takes_little_more_than_its_bytes() {
    const INODES: u64 = 100_000;
    /// Of the bytes of all pages.
    const SMALL: usize = 2 << 20;
    const LARGE: usize = 6 << 20;
    let _turn = turn();
    let device = Arc::new(simulated(1000));
    Volume::format(device.clone(), &FormatOptions::default()).unwrap();
    let inode = Inode {
        mode: 0o100_644,
        nlink: 1,
        ..Inode::default()
    };
    let mut inos: Vec<Ino> = Vec::new();
    {
        let volume = Volume::open(device.clone(), Options::default()).unwrap().0;
        for _ in 0..INODES / 500 {
            let some = volume.update::<_, Error>(Intent::Grow, |tx| {
                let some: Vec<Ino> = (0..500).map(|_| tx.new_ino()).collect();
                some.iter().for_each(|ino| tx.put_inode(*ino, &inode));
                Ok(some)
            });
            inos.extend(some.unwrap());
        }
        volume.step(Task::Checkpoint).unwrap();
    }
    let read_with = |cache_bytes_max| {
        let options = Options {
            cache_bytes_max,
            ..Options::default()
        };
        let volume = Volume::open(device.clone(), options).unwrap().0;
        let ((), taken) = taken(|| {
            for ino in &inos {
                let inode = volume.view::<_, Error>(|view| view.inode(*ino));
                assert!(inode.unwrap().is_some());
            }
        });
        let fetched = volume.statistics().pages_fetched;
        let pages = pages_max(cache_bytes_max);
        assert!(fetched > pages, "{fetched} pages, {pages} may be there");
        taken.peak
    };
    let (small, large) = (read_with(SMALL), read_with(LARGE));
    let more = (pages_max(LARGE) - pages_max(SMALL)) as i64;
    let each = (large - small) / more;
    assert!(each >= PAGE_SIZE as i64, "the cache is not full: {each}");
    assert!(each <= PAGE_SIZE as i64 + 128, "{each} bytes a page");
    for (taken, cache) in [(small, SMALL), (large, LARGE)] {
        let bound = pages_max(cache) as i64 * (PAGE_SIZE as i64 + 128) + (64 << 10);
        assert!(taken <= bound, "{taken} bytes, {bound} are allowed");
    }
}
