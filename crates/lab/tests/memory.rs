//! What a zone and a page of metadata take of the heap, by an allocator that counts. docs/lab/scale.md has the figures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure ends the test"
)]

#[path = "../examples/scale/heap.rs"]
mod heap;

use std::sync::Arc;

use persimmon_device::image::ImageGeometry;
use persimmon_device::{BufferMut, Command, CreateOptions, ImageDevice, ZoneId, ZonedDevice};
use persimmon_engine::{
    Error, FormatOptions, Intent, Options, Rebuild, RebuildStart, Task, Volume,
};
use persimmon_format::inode::{FIRST_INO, Inode, ROOT};
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::table::ZitEntry;
use persimmon_format::{Addr, Ino, Key, Lsn};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_sync::{Mutex, MutexGuard};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// The counters are everybody's: one test after the other.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock()
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
    opened(device)
}

fn opened(device: Arc<dyn ZonedDevice>) -> Taken {
    let (_volume, taken) = taken(|| Volume::open(device, Options::default()).unwrap());
    taken
}

/// The same of a volume whose zones have all been in use, each as often as no other: so no two are alike.
fn mounted_worn(device: Arc<dyn ZonedDevice>) -> Taken {
    let geometry = device.geometry().clone();
    Volume::format(Arc::clone(&device), &FormatOptions::default()).unwrap();
    let identity = {
        let volume = Volume::open(Arc::clone(&device), Options::default())
            .unwrap()
            .0;
        volume.identity().clone()
    };
    const FAR: u32 = 1000;
    let zit = (0..geometry.zone_count).map(|zone| ZitEntry {
        resets: zone,
        ..ZitEntry::default()
    });
    let start = RebuildStart {
        identity,
        checkpoint: FAR.into(),
        last_lsn: Lsn(FAR.into()),
        epoch: FAR,
        log_sequence: FAR.into(),
        footer: Addr::ZERO,
        zit: zit.collect(),
        next_zone_sequence: u64::from(FAR) + u64::from(geometry.zone_count),
        next_ino: FIRST_INO,
        changes_lost: false,
        write_clock: 0,
        reserve_basis_points: FormatOptions::default().reserve_on(&geometry),
    };
    let rebuild = Rebuild::begin(Arc::clone(&device), start, Options::default()).unwrap();
    let root = Inode {
        mode: 0o040_755,
        nlink: 2,
        parent: ROOT,
        ..Inode::default()
    };
    rebuild.put(Key::inode(ROOT), &root.encode()).unwrap();
    rebuild.finish().unwrap();
    opened(device)
}

// Each lock of an image's zones has as many of both.
const FEW: u32 = 102_400;
const MANY: u32 = 409_600;

/// What one more zone takes.
fn of_a_zone(take: impl Fn(u32) -> Taken) -> Taken {
    // What is made once for a process, as its pool of buffers, is there then.
    take(1000);
    let least = |zones| {
        // Threads of the background may have something in hand just then.
        let some: [Taken; 3] = std::array::from_fn(|_| take(zones));
        let of = |what: fn(&Taken) -> i64| some.iter().map(what).min().unwrap();
        Taken {
            resident: of(|taken| taken.resident),
            peak: of(|taken| taken.peak),
        }
    };
    let (few, many) = (least(FEW), least(MANY));
    let each = |few: i64, many: i64| (many - few) / i64::from(MANY - FEW);
    Taken {
        resident: each(few.resident, many.resident),
        peak: each(few.peak, many.peak),
    }
}

/// Four million empty zones took 850 MB: each had a record of its own in a dozen tables, though all were alike. Now only
/// zones in use have one, and those beside them.
#[test]
fn an_empty_zone_takes_next_to_nothing() {
    let _turn = turn();
    let of_image = of_a_zone(|zones| taken(|| image(zones)).1);
    assert!(of_image.resident <= 2, "{of_image:?}");
    assert!(of_image.peak <= 2, "{of_image:?}");
    let devices: [&dyn Fn(u32) -> Arc<dyn ZonedDevice>; 2] =
        [&|zones| Arc::new(image(zones)), &|zones| {
            Arc::new(simulated(zones))
        }];
    for device in devices {
        let of_engine = of_a_zone(|zones| mounted(device(zones)));
        assert!(of_engine.resident <= 6, "{of_engine:?}");
        // The device's report of all zones has 12.
        assert!(of_engine.peak <= 20, "{of_engine:?}");
    }
}

/// Zones in use, or that have been, are bounded too: here each zone of an image begins with a block, and no two in the
/// zone table are alike.
#[test]
fn a_zone_in_use_takes_no_more_than_a_record_in_each_table() {
    let _turn = turn();
    let used = |zones: u32| {
        let device = image(zones);
        let block = vec![BufferMut::zeroed(1).freeze()];
        let write = |zone| Command::Write {
            zone: ZoneId(zone),
            block: 0,
            data: block.clone(),
        };
        let ((), taken) = taken(|| {
            for zone in 0..zones {
                device.run(write(zone)).unwrap();
            }
            device.run(Command::Flush).unwrap();
        });
        taken
    };
    // The image keeps what is written.
    let (few, many) = (used(10_240), used(20_480));
    let each = (many.resident - few.resident) / 10_240;
    assert!(each <= 56, "{each} bytes");
    let of_engine = of_a_zone(|zones| mounted_worn(Arc::new(simulated(zones))));
    assert!(of_engine.resident <= 140, "{of_engine:?}");
    assert!(of_engine.peak <= 200, "{of_engine:?}");
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
