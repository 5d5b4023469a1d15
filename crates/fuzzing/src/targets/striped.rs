//! A volume in stripe sets, some of what lies on its zones damaged: bytes anywhere, zones of one set, headers. Whatever comes of it, no file shows
//! what was never written to it; and where one zone alone is damaged nothing is lost.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use persimmon_device::{BLOCK_SIZE, DeviceError, Striped, ZoneId, ZonedDevice, striped};
use persimmon_engine::Task;
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, check};
use persimmon_salvage::{Loss, mend};
use persimmon_sim::SimDevice;
use persimmon_vfs::{Caller, FileKind, Handle, OpenFlags, ROOT, Vfs};

use crate::input::Input;
use crate::metered::Metered;
use crate::sample::{buffer, content};
use crate::stamped::{
    Files, Found, GENERATIONS, GENERATIONS_MAX, Stamped, copies, mount, mount_options, parity,
    stamp, write,
};
use crate::usage;

/// Commands to the zones that one input may cause: the volume is read several times, two or three zones at a time.
const COMMANDS_MAX: u64 = 400_000;
/// Flipped bits.
const FLIPS_MAX: usize = 24;
/// Damaged headers.
const HEADERS_MAX: usize = 8;
/// Things done after the damage.
const WORKS_MAX: usize = 10;
const BLOCK: u64 = BLOCK_SIZE as u64;

/// Two copies of all data.
pub fn mirrored(bytes: &[u8]) {
    static STAMPED: OnceLock<Stamped> = OnceLock::new();
    damage_and_use(STAMPED.get_or_init(|| Stamped::make(copies())), bytes);
}

/// Parity of two zones in a third.
pub fn with_parity(bytes: &[u8]) {
    static STAMPED: OnceLock<Stamped> = OnceLock::new();
    damage_and_use(STAMPED.get_or_init(|| Stamped::make(parity())), bytes);
}

/// One of each way to damage something, at several places.
pub fn seeds() -> Vec<Vec<u8>> {
    let seeds = (0..48u8).map(|n| {
        let mut seed = vec![n % 6, n / 6, n.wrapping_mul(37), n % 7, n.wrapping_mul(11)];
        seed.extend((0..60u8).map(|i| i.wrapping_mul(n.wrapping_mul(2) | 1).rotate_left(3)));
        seed
    });
    seeds.collect()
}

fn damage_and_use(stamped: &Stamped, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let what = input.u8() % 6;
    let device = stamped.device(input.flag());
    let hurt = Hurt {
        stamped,
        device: &device,
    };
    match what {
        0..3 => {
            let zones = hurt.set(&mut input);
            let zone = zones.start + input.below(zones.len()) as u32;
            hurt.zone(ZoneId(zone), &mut input);
            lose_nothing(stamped, device, &mut input);
            return;
        }
        3 => (0..=input.below(FLIPS_MAX)).for_each(|_| hurt.flip_any(&mut input)),
        4 => {
            for _ in 0..=input.below(2) {
                for zone in hurt.set(&mut input) {
                    if !input.rarely(3) {
                        hurt.zone(ZoneId(zone), &mut input);
                    }
                }
            }
        }
        _ => (0..=input.below(HEADERS_MAX)).for_each(|_| hurt.header(&mut input)),
    }
    show_nothing_else(stamped, device, &mut input);
}

/// A device that is being damaged.
struct Hurt<'a> {
    stamped: &'a Stamped,
    device: &'a SimDevice,
}

impl Hurt<'_> {
    /// The zones of one set, mostly one that is in use.
    fn set(&self, input: &mut Input<'_>) -> Range<u32> {
        let sets = (0..).map_while(|set| {
            striped::zones_of(self.device.geometry(), self.stamped.stripes, ZoneId(set))
        });
        let mut sets: Vec<Range<u32>> = sets.collect();
        if !input.rarely(8) {
            sets.retain(|zones| self.written(ZoneId(zones.start)) > 0);
        }
        input.pick(&sets).clone()
    }

    /// Blocks that are written to a zone.
    fn written(&self, zone: ZoneId) -> u32 {
        let found = self.device.report(zone.0..zone.0 + 1);
        found.map_or(0, |zones| zones.first().map_or(0, |z| z.write_pointer))
    }

    /// Damages a zone, in one of many ways.
    fn zone(&self, zone: ZoneId, input: &mut Input<'_>) {
        let written = self.written(zone);
        let noise = |block: u32, seed: u64| content(seed << 8 | u64::from(block), BLOCK_SIZE);
        match input.u8() % 7 {
            0 => self.device.set_offline(zone),
            1 => self.device.set_read_only(zone),
            2 => {
                let seed = input.u8().into();
                self.each(written, |block| {
                    self.put(zone, block, &noise(block, seed));
                });
            }
            3 => self.each(written, |block| self.put(zone, block, &[0; BLOCK_SIZE])),
            4 => {
                // What lies in another zone, which may be sealed as well as this.
                let others = self.set(input);
                let other = ZoneId(others.start + input.below(others.len()) as u32);
                self.each(written, |block| {
                    if let Ok(bytes) = self.device.read(other, block, 1) {
                        self.put(zone, block, &bytes);
                    }
                });
            }
            5 => {
                let (byte, mask) = (input.below(BLOCK_SIZE), input.u8() | 1);
                self.each(written, |block| {
                    self.device.corrupt(zone, block, byte, mask);
                });
            }
            _ => {
                for _ in 0..=input.below(FLIPS_MAX) {
                    self.flip(zone, written, input);
                }
            }
        }
    }

    fn each(&self, written: u32, hurt: impl FnMut(u32)) {
        (0..written).for_each(hurt);
    }

    fn put(&self, zone: ZoneId, block: u32, bytes: &[u8]) {
        self.device.replace(zone, block, buffer(bytes));
    }

    fn flip(&self, zone: ZoneId, written: u32, input: &mut Input<'_>) {
        let block = input.below(written as usize) as u32;
        // The last blocks of the log are those that a mount needs first.
        let block = match input.flag() {
            true => block,
            false => written.saturating_sub(1 + block % 8),
        };
        let (byte, mask) = (input.below(BLOCK_SIZE), input.u8() | 1);
        self.device.corrupt(zone, block, byte, mask);
    }

    fn flip_any(&self, input: &mut Input<'_>) {
        let zones = self.set(input);
        let zone = ZoneId(zones.start + input.below(zones.len()) as u32);
        let written = self.written(zone);
        self.flip(zone, written, input);
        // And what stands for it.
        if input.flag() {
            self.flip(ZoneId(zones.start), written, input);
        }
    }

    /// Damages the header of one zone of a set, or of all of them.
    fn header(&self, input: &mut Input<'_>) {
        let zones = self.set(input);
        let all = input.flag();
        let one = zones.start + input.below(zones.len()) as u32;
        for zone in zones.filter(|zone| all || *zone == one) {
            match input.u8() % 3 {
                0 => self.put(ZoneId(zone), 0, &[0; BLOCK_SIZE]),
                1 => self.put(ZoneId(zone), 0, &content(zone.into(), BLOCK_SIZE)),
                _ => {
                    let (byte, mask) = (input.below(200), input.u8() | 1);
                    self.device.corrupt(ZoneId(zone), 0, byte, mask);
                }
            }
        }
    }
}

type Below = Arc<Metered>;

fn in_sets(
    below: &Below,
    stamped: &Stamped,
    for_writing: bool,
) -> Result<Arc<dyn ZonedDevice>, DeviceError> {
    let device = Striped::new(Arc::clone(below), stamped.stripes, for_writing)?;
    Ok(Arc::new(device))
}

/// One zone is damaged: all is there, whoever looks, and stays there while the volume is worked with, and after a repair.
fn lose_nothing(stamped: &Stamped, device: SimDevice, input: &mut Input<'_>) {
    let below = Metered::with_limit(device, COMMANDS_MAX);
    let read_only = input.rarely(8);
    let device = in_sets(&below, stamped, !read_only).unwrap();
    let vfs = mount(device, read_only).unwrap();
    let mut should = stamped.files.clone();
    Files::of(&vfs).must_be(&should, "after the damage");
    if !read_only {
        for _ in 0..input.below(WORKS_MAX) {
            work(&vfs, stamped, &mut should, input);
        }
        if input.flag() {
            usage::scrub(vfs.volume());
        }
        Files::of(&vfs).must_be(&should, "after work");
        match input.flag() {
            true => vfs.close().unwrap(),
            false => vfs.sync().unwrap(),
        }
    }
    drop(vfs);
    let device = in_sets(&below, stamped, false).unwrap();
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = check(&*device, &options, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    Files::of(&mount(device, true).unwrap()).must_be(&should, "mounted again");
    if !input.rarely(4) {
        return;
    }
    let device = in_sets(&below, stamped, true).unwrap();
    let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
    let how = (Timestamp::default(), mount_options(false));
    let mut lost = Vec::new();
    let mut tell = |loss: &Loss| lost.push(loss.to_string());
    mend(
        &rebuilt,
        Arc::clone(&device),
        how,
        &mut tell,
        &mut |_, _, _| {},
    )
    .unwrap();
    drop(rebuilt);
    assert!(lost.is_empty(), "{lost:#?}");
    Files::of(&mount(device, false).unwrap()).must_be(&should, "after a repair");
}

/// Writes to a file that is there, or makes one, or has something done in the background.
fn work(vfs: &Vfs, stamped: &Stamped, should: &mut Files, input: &mut Input<'_>) {
    let files = should.found.iter();
    let files: Vec<String> = files
        .filter(|(path, found)| {
            !path.contains(':') && found.kind == FileKind::Regular && found.size > 0
        })
        .map(|(path, _)| path.clone())
        .collect();
    let path = input.pick(&files).clone();
    let Some(found) = should.found.get_mut(&path) else {
        return;
    };
    match input.u8() % 8 {
        0..4 => {
            let Some(number) = stamped.numbers.get(&found.ino) else {
                return;
            };
            let blocks = found.size.div_ceil(BLOCK);
            let block = input.below(blocks as usize) as u64;
            let range = block..(block + 1 + u64::from(input.u8() % 4)).min(blocks);
            let more = GENERATIONS_MAX - GENERATIONS;
            let generation = GENERATIONS + u64::from(input.u8()) % more;
            write(
                vfs,
                (found.ino, *number),
                range.clone(),
                (found.size, generation),
            )
            .unwrap();
            for block in range {
                if let Some(Some(bytes)) = found.blocks.get_mut(block as usize) {
                    let len = bytes.len();
                    *bytes = stamp(*number, block, generation);
                    bytes.truncate(len);
                }
            }
            if input.flag() {
                vfs.fsync(found.ino, Handle::NONE).unwrap();
            }
        }
        4 => {
            let (parent, name) = parent_of(should, &path);
            vfs.unlink(parent, name.as_bytes()).unwrap();
            should.found.remove(&path);
        }
        5 => {
            let (parent, _) = parent_of(should, &path);
            let at = path.rsplit_once('/').map_or("", |(before, _)| before);
            let names = (0..).map(|number| format!("new-{number}"));
            let mut vacant =
                names.filter(|name| !should.found.contains_key(&format!("{at}/{name}")));
            let name = vacant.next().unwrap();
            let flags = OpenFlags {
                write: true,
                ..OpenFlags::default()
            };
            let made = vfs.create(&Caller::root(), parent, name.as_bytes(), 0o644, flags);
            let (attr, handle) = made.unwrap();
            vfs.release(attr.ino, handle).unwrap();
            let found = Found {
                ino: attr.ino,
                kind: FileKind::Regular,
                size: 0,
                blocks: Vec::new(),
                xattrs: Default::default(),
            };
            should.found.insert(format!("{at}/{name}"), found);
        }
        _ => {
            let tasks = [
                Task::WriteBack,
                Task::Commit,
                Task::Checkpoint,
                Task::Clean,
                Task::Examine,
                Task::CleanIfDue,
                Task::Reset,
            ];
            vfs.volume().step(*input.pick(&tasks)).unwrap();
        }
    }
}

/// The directory that a path leads through last, and the name there.
fn parent_of<'a>(files: &Files, path: &'a str) -> (Ino, &'a str) {
    let (directory, name) = path.rsplit_once('/').unwrap();
    let directory = files.found.get(directory);
    (directory.map_or(ROOT, |found| found.ino), name)
}

/// More may be damaged than there is another way to read.
fn show_nothing_else(stamped: &Stamped, device: SimDevice, input: &mut Input<'_>) {
    let below = Metered::with_limit(device, COMMANDS_MAX);
    let read_only = input.rarely(4);
    let changes = input.below(WORKS_MAX);
    if let Ok(device) = in_sets(&below, stamped, !read_only)
        && let Ok(vfs) = mount(device, read_only)
    {
        Files::of(&vfs).must_be_written(stamped, false, "after the damage");
        if changes > 5 && !read_only {
            let inos: BTreeSet<_> = stamped.numbers.keys().copied().chain([ROOT]).collect();
            let inos: Vec<_> = inos.into_iter().collect();
            (0..changes).for_each(|_| usage::change(&vfs, &inos, input));
        }
        usage::scrub(vfs.volume());
        let _ = vfs.close();
    }
    let Ok(device) = in_sets(&below, stamped, false) else {
        return;
    };
    usage::inspect(&device);
    if changes > 5 {
        return;
    }
    if let Ok(vfs) = mount(Arc::clone(&device), true) {
        Files::of(&vfs).must_be_written(stamped, false, "mounted again");
    }
    let Ok(device) = in_sets(&below, stamped, true) else {
        return;
    };
    if usage::salvage(&device)
        && let Ok(vfs) = mount(device, true)
    {
        Files::of(&vfs).must_be_written(stamped, true, "after a repair");
    }
}
