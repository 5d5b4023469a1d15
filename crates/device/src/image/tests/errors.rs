//! Bad input: each error names the file and what to do.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use persimmon_format::DeviceId;
use persimmon_format::container::{Superblock, has_magic};
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};

use super::super::open::How;
use super::super::table::Table;

use super::*;
use crate::lock::Opened;
use crate::{Buffer, ZoneState};

fn create(path: &Path) -> Result<ImageDevice> {
    ImageDevice::create(path, &geometry(), &CreateOptions::default())
}

fn no_waiting() -> OpenOptions {
    OpenOptions {
        wait_for_lock: Duration::ZERO,
        ..OpenOptions::default()
    }
}

#[track_caller]
fn says<T>(result: Result<T>, path: &Path, words: &[&str]) {
    let Err(error) = result else {
        panic!("should have failed");
    };
    let message = error.to_string();
    for word in words.iter().chain(&[path.to_str().unwrap()]) {
        assert!(message.contains(word), "`{message}` does not say `{word}`");
    }
}

fn open(path: &Path) -> Result<ImageDevice> {
    ImageDevice::open(path, &OpenOptions::default())
}

#[test]
fn what_cannot_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    says(open(&path), &path, &["does not exist", "mkfs"]);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    says(open(&link), &link, &["link to nowhere, which does not"]);
    says(
        open(dir.path()),
        dir.path(),
        &["neither a regular file nor a block device"],
    );
    let mut ext4 = vec![0; 1 << 20];
    ext4[0x438] = 0x53;
    ext4[0x439] = 0xef;
    ext4[0x460] = 0x40;
    for (contents, words) in [
        (vec![], "nothing known"),
        (vec![0; 8192], "nothing known"),
        (b"PK\x03\x04 and so on".to_vec(), "a zip archive"),
        (ext4, "an ext4 filesystem"),
    ] {
        fs::write(&path, contents).unwrap();
        says(open(&path), &path, &["not a Persimmon image", words]);
    }
}

#[test]
fn truncated_images() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let total = create(&path).unwrap().layout.total;
    let file = File::options().write(true).open(&path).unwrap();
    for length in [total / 2, 4096] {
        file.set_len(length).unwrap();
        says(
            open(&path),
            &path,
            &["truncated", &length.to_string(), &total.to_string()],
        );
    }
    file.set_len(total + 5).unwrap();
    open(&path).unwrap();
    for length in [4095, 100, 8] {
        file.set_len(length).unwrap();
        says(open(&path), &path, &["damaged", "persimmon recover"]);
    }
}

/// Nothing must be advised that would destroy what may still be saved.
#[test]
fn an_image_without_magic_may_have_been_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = create(&path).unwrap().layout;
    let file = File::options().write(true).open(&path).unwrap();
    for copy in 0..3 {
        let place = layout.copy(copy);
        file.write_all_at(&[0xff; 8], place).unwrap();
    }
    says(
        open(&path),
        &path,
        &[
            "nothing known is on it",
            "if it was one, `persimmon recover` looks for what is left",
        ],
    );
}

/// The magic of the first copy gone, "nothing known" was on an image with all its data, and "make one with mkfs".
#[test]
fn nobody_is_told_to_make_an_image_where_something_of_one_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = create(&path).unwrap().layout;
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let volume = VolumeIdentity {
        uuid: [7; 16],
        visible_uuid: [7; 16],
        secret: [8; 32],
        label: "two\nlines".into(),
        incompatible: 0,
        read_only_compatible: 0,
        compatible: 0,
        created_seconds: 0,
        zone_count: 4,
        zone_blocks: 256,
        metadata_zones: Default::default(),
    };
    let header = ZoneHeader {
        volume,
        device: DeviceId(0),
        zone: ZoneId(2),
        role: Role::Data,
        lifetime: 0,
        sequence: 5,
        first_log_sequence: 0,
        partner: None,
    };
    file.write_all_at(&header.encode(), layout.data + 2 * layout.zone_stride)
        .unwrap();
    let mut block = [0; 4096];
    for at in (0..file.metadata().unwrap().len()).step_by(block.len()) {
        file.read_exact_at(&mut block, at).unwrap();
        if has_magic(&block) {
            file.write_all_at(&[0; 4096], at).unwrap();
        }
    }
    let words = [
        "a Persimmon volume (label \"two\\nlines\")",
        "persimmon recover",
        "do not run mkfs",
    ];
    says(open(&path), &path, &words);
    says(create(&path), &path, &["a Persimmon volume", "--force"]);
}

#[test]
fn newer_versions_and_unfinished_images() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let superblock = {
        let device = create(&path).unwrap();
        device.superblock.lock().clone()
    };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut block = superblock.encode(0).unwrap();
    block[8] = 200;
    let checksum = xxhash(&block[..4088]);
    block[4088..].copy_from_slice(&checksum.to_le_bytes());
    file.write_all_at(&block, 0).unwrap();
    says(open(&path), &path, &["version 200", "newer release"]);
    let unfinished = Superblock {
        complete: false,
        generation: 0,
        ..superblock
    };
    let total = file.metadata().unwrap().len();
    file.set_len(0).unwrap();
    file.set_len(total).unwrap();
    file.write_all_at(&unfinished.encode(0).unwrap(), 0)
        .unwrap();
    says(open(&path), &path, &["interrupted", "mkfs"]);
    // Nothing is lost by making it again.
    create(&path).unwrap();
}

/// On a block device an image is made over the one before, whose second copy of the superblock stays until the end. Cut
/// off before that, the new one was opened as the old one, for that copy is of a later generation: with a table
/// that was half cleared.
#[test]
fn an_image_whose_making_was_cut_off_is_not_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let superblock = {
        let device = create(&path).unwrap();
        device.set_identity(uuid::Uuid::nil(), "before").unwrap();
        device.superblock.lock().clone()
    };
    let making = Superblock {
        complete: false,
        generation: 0,
        ..superblock
    };
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&making.encode(0).unwrap(), 0).unwrap();
    says(open(&path), &path, &["interrupted", "mkfs"]);
}

fn xxhash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, 0)
}

#[test]
fn one_writer_or_many_readers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let reading = OpenOptions {
        read_only: true,
        ..no_waiting()
    };
    let busy = |result| matches!(result, Err(DeviceError::Busy { .. }));
    let writer = create(&path).unwrap();
    assert!(busy(ImageDevice::open(&path, &no_waiting())));
    assert!(busy(ImageDevice::open(&path, &reading)));
    let forced = CreateOptions {
        force: true,
        wait_for_lock: Duration::ZERO,
        ..CreateOptions::default()
    };
    assert!(busy(ImageDevice::create(&path, &geometry(), &forced)));
    // Whoever waits gets it when the writer lets go.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let options = OpenOptions {
                wait_for_lock: Duration::from_secs(60),
                ..OpenOptions::default()
            };
            ImageDevice::open(&path, &options).is_ok()
        });
        drop(writer);
        assert!(waiting.join().unwrap());
    });
    let patient = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let first = ImageDevice::open(&path, &patient).unwrap();
    let second = ImageDevice::open(&path, &patient).unwrap();
    assert!(busy(ImageDevice::open(&path, &no_waiting())));
    drop((first, second));
    // Two copies of one image are two devices.
    let copy = dir.path().join("b.img");
    fs::copy(&path, &copy).unwrap();
    let (first, second) = (open(&path).unwrap(), open(&copy).unwrap());
    assert_eq!(first.uuid(), second.uuid());
}

#[test]
fn making_an_image_destroys_nothing_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let forced = CreateOptions {
        force: true,
        ..CreateOptions::default()
    };
    for (contents, words) in [
        (b"dear diary".to_vec(), "data of an unknown kind"),
        (b"SQLite format 3\0...".to_vec(), "an SQLite database"),
    ] {
        fs::write(&path, &contents).unwrap();
        says(create(&path), &path, &[words, "--force"]);
        assert!(fs::read(&path).unwrap() == contents);
    }
    ImageDevice::create(&path, &geometry(), &forced).unwrap();
    says(create(&path), &path, &["a Persimmon image", "--force"]);
    // A blank file is free to take.
    fs::write(&path, vec![0; 3 << 20]).unwrap();
    create(&path).unwrap();
    let missing = dir.path().join("no/a.img");
    says(create(&missing), &missing, &["directory does not exist"]);
    let mut bad = geometry();
    bad.capacity_blocks = bad.zone_blocks + 1;
    let other = dir.path().join("b.img");
    says(
        ImageDevice::create(&other, &bad, &forced),
        &other,
        &["zone capacity"],
    );
    assert!(!other.exists());
}

#[test]
fn identity_survives_and_reset_gives_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let device = create(&path).unwrap();
    let uuid = uuid::Uuid::from_u128(5);
    device.set_identity(uuid, "kaki").unwrap();
    let zone = ZoneId(0);
    let data = vec![filled(300, 1)];
    device.run(Command::Append { zone, data }).unwrap();
    device.flush().unwrap();
    let taken = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&path).unwrap());
    let before = taken();
    let reset = |keep_allocated| {
        device
            .run(Command::Reset {
                zone,
                keep_allocated,
            })
            .unwrap()
    };
    reset(true);
    assert_eq!(taken(), before);
    reset(false);
    assert!(taken() + 300 * 8 <= before);
    drop(device);
    let device = open(&path).unwrap();
    assert_eq!((device.uuid(), device.label().as_str()), (uuid, "kaki"));
}

/// On a block device a punched hole is zeros that the kernel writes: SSDs were never trimmed, and a disk without a command
/// for it was written over with each reset. A device that cannot discard keeps what it has now.
#[test]
fn a_block_device_gets_no_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, [7; 8192]).unwrap();
    let host = |is_block_device| {
        let file = File::options().read(true).write(true).open(&path);
        let file = file.unwrap();
        HostFile::new(Opened {
            file,
            is_block_device,
            locked_by: None,
        })
    };
    // It is none, so that it refuses to discard as a device without that does.
    host(true).punch(0, 8192).unwrap();
    assert!(fs::read(&path).unwrap() == [7; 8192]);
    host(false).punch(0, 8192).unwrap();
    assert!(fs::read(&path).unwrap() == [0; 8192]);
}

#[test]
fn small_images_get_small_zones() {
    let mib = |mib: u64| ImageDevice::zone_bytes_for(mib << 20) >> 20;
    let zones = [64 << 10, 16 << 10, 8 << 10, 1 << 10, 256, 64, 1].map(mib);
    assert_eq!(zones, [64, 64, 32, 4, 1, 1, 1]);
}

#[test]
fn zones_fitting_a_device() {
    let mut geometry = geometry();
    for zone_count in [1, 8, 100, 5000] {
        geometry.zone_count = zone_count;
        let total = geometry.layout().unwrap().total;
        let fitting = |bytes| ImageDevice::zones_fitting(bytes, 512, 300);
        assert_eq!(
            (fitting(total), fitting(total - 1)),
            (zone_count, zone_count - 1)
        );
    }
    assert_eq!(ImageDevice::zones_fitting(0, 512, 300), 0);
}

/// A host that fails on request.
#[derive(Default)]
struct FailingHost {
    memory: Mutex<Vec<u8>>,
    /// Errno of the next data writes, record writes and syncs; 0 for none.
    data: AtomicU32,
    record: AtomicU32,
    sync: AtomicU32,
    /// What was called, in order.
    calls: Mutex<Vec<&'static str>>,
}

impl FailingHost {
    fn put(&self, bytes: &[u8], offset: u64) {
        let end = offset as usize + bytes.len();
        let mut memory = self.memory.lock();
        if memory.len() < end {
            memory.resize(end, 0);
        }
        memory[offset as usize..end].copy_from_slice(bytes);
    }
}

fn outcome(errno: &AtomicU32) -> io::Result<()> {
    match errno.load(Ordering::Relaxed) as i32 {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Host for Arc<FailingHost> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let memory = self.memory.lock();
        for (at, byte) in into.iter_mut().enumerate() {
            *byte = memory.get(offset as usize + at).copied().unwrap_or(0);
        }
        Ok(())
    }
    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        self.calls.lock().push("data");
        outcome(&self.data)?;
        let bytes: Vec<u8> = data.iter().flat_map(|buffer| buffer.to_vec()).collect();
        self.put(&bytes, offset);
        Ok(())
    }
    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.calls.lock().push("record");
        outcome(&self.record)?;
        self.put(bytes, offset);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.calls.lock().push("sync");
        outcome(&self.sync)
    }
    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }
    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        outcome(&self.data)
    }
}

const WRITING: How = How {
    read_only: false,
    search: false,
};
const EIO: u32 = 5;
const ENOSPC: u32 = 28;
const EDQUOT: u32 = 122;

fn on_failing_host() -> (Arc<FailingHost>, ImageDevice) {
    let host = Arc::new(FailingHost::default());
    let superblock = Superblock {
        geometry: geometry(),
        generation: 1,
        uuid: [0; 16],
        volume: [0; 16],
        data: None,
        label: String::new(),
        complete: true,
        table_seed: 3,
    };
    let boxed = Box::new(Arc::clone(&host));
    let layout = geometry().layout().unwrap();
    Table::write_unused(&*boxed, &layout, geometry().zone_count, 3).unwrap();
    host.calls.lock().clear();
    let device = ImageDevice::assemble(Path::new("failing"), boxed, superblock, WRITING).unwrap();
    (host, device)
}

#[test]
fn a_full_host_can_be_cured() {
    let (host, device) = on_failing_host();
    let zone = ZoneId(1);
    let write = |block| {
        let data = vec![filled(2, 9)];
        device.run(Command::Write { zone, block, data })
    };
    write(0).unwrap();
    host.data.store(ENOSPC, Ordering::Relaxed);
    assert!(matches!(write(2), Err(DeviceError::HostFull)));
    assert!(matches!(
        device.run(Command::Open { zone: ZoneId(2) }),
        Err(DeviceError::HostFull)
    ));
    assert_eq!(device.report(2..3).unwrap()[0].state, ZoneState::Empty);
    assert_eq!(device.report(1..2).unwrap()[0].write_pointer, 2);
    device.flush().unwrap();
    host.data.store(0, Ordering::Relaxed);
    write(2).unwrap();
    // A record that could not be written goes out with the next flush.
    host.record.store(ENOSPC, Ordering::Relaxed);
    assert!(matches!(device.flush(), Err(DeviceError::HostFull)));
    host.record.store(0, Ordering::Relaxed);
    device.flush().unwrap();
    assert_eq!(reopened(&host).report(1..2).unwrap()[0].write_pointer, 4);
    // A punch that fails (it always does here) spoils nothing.
    device
        .run(Command::Reset {
            zone,
            keep_allocated: false,
        })
        .unwrap();
    device.flush().unwrap();
    assert_eq!(reopened(&host).report(1..2).unwrap()[0].write_pointer, 0);
}

fn reopened(host: &Arc<FailingHost>) -> ImageDevice {
    let (other, device) = on_failing_host();
    *other.memory.lock() = host.memory.lock().clone();
    let superblock = device.superblock.lock().clone();
    ImageDevice::assemble(Path::new("failing"), Box::new(other), superblock, WRITING).unwrap()
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let (host, device) = on_failing_host();
    let zone = ZoneId(1);
    let write = |block| {
        let data = vec![filled(1, 9)];
        device.run(Command::Write { zone, block, data })
    };
    write(0).unwrap();
    host.sync.store(EIO, Ordering::Relaxed);
    assert!(matches!(device.flush(), Err(DeviceError::Flush { .. })));
    // The host would say yes now, having forgotten the pages it could not write.
    host.sync.store(0, Ordering::Relaxed);
    assert!(matches!(device.flush(), Err(DeviceError::Flush { .. })));
    assert!(matches!(write(1), Err(DeviceError::Flush { .. })));
    assert!(device.read(zone, 0, 1).is_ok());
}

/// A host that finds no room at fdatasync (delayed allocation, a thin disk, a quota) has dropped the data. That was told
/// as a full host, which passes: the mount stayed writable for ever, all that was written to it was refused, and
/// nobody was told to mount it anew.
#[test]
fn a_host_that_has_no_room_for_what_it_took_has_lost_it() {
    for errno in [ENOSPC, EDQUOT] {
        let (host, device) = on_failing_host();
        let append = || {
            let data = vec![filled(1, 9)];
            device.run(Command::Append {
                zone: ZoneId(1),
                data,
            })
        };
        append().unwrap();
        host.sync.store(errno, Ordering::Relaxed);
        let error = device.flush().unwrap_err();
        assert!(matches!(error, DeviceError::Flush { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("free space there, and mount again"));
        host.sync.store(0, Ordering::Relaxed);
        assert!(matches!(append(), Err(DeviceError::Flush { .. })));
    }
}

#[test]
fn a_small_write_and_its_flush_cost_three_calls() {
    let (host, device) = on_failing_host();
    let zone = ZoneId(1);
    for block in 0..4 {
        let data = vec![filled(1, 9)];
        device.run(Command::Write { zone, block, data }).unwrap();
        device.flush().unwrap();
        // The second table hears that the zone is in use, and of nothing else before it is full.
        let first = ["data", "record", "record", "sync"];
        let later = ["data", "record", "sync"];
        let calls = std::mem::take(&mut *host.calls.lock());
        assert_eq!(calls, if block == 0 { &first[..] } else { &later[..] });
    }
    // Nothing new, nothing to do.
    device.flush().unwrap();
    assert!(host.calls.lock().is_empty());
}

/// A record writes what a flush does and does not wait for the disk; the flush after it does only that, and none at
/// all is needed to find it again.
#[test]
fn a_record_is_a_flush_that_leaves_out_the_disk() {
    let (host, device) = on_failing_host();
    let zone = ZoneId(1);
    let data = vec![filled(2, 9)];
    device.run(Command::Append { zone, data }).unwrap();
    device.run(Command::Record).unwrap();
    assert_eq!(*host.calls.lock(), ["data", "record", "record"]);
    assert_eq!(reopened(&host).report(1..2).unwrap()[0].write_pointer, 2);
    device.run(Command::Record).unwrap();
    device.flush().unwrap();
    device.flush().unwrap();
    assert_eq!(*host.calls.lock(), ["data", "record", "record", "sync"]);
    // What a record could not write is still to be written.
    let data = vec![filled(2, 9)];
    device.run(Command::Append { zone, data }).unwrap();
    host.record.store(ENOSPC, Ordering::Relaxed);
    assert!(matches!(
        device.run(Command::Record),
        Err(DeviceError::HostFull)
    ));
    host.record.store(0, Ordering::Relaxed);
    device.run(Command::Record).unwrap();
    assert_eq!(reopened(&host).report(1..2).unwrap()[0].write_pointer, 4);
}

/// The first write after a reset waits until the reset is durable, which no record makes it.
#[test]
fn a_reset_is_not_durable_by_a_record() {
    let (host, device) = on_failing_host();
    let zone = ZoneId(1);
    let append = || {
        let data = vec![filled(1, 9)];
        device.run(Command::Append { zone, data }).unwrap();
    };
    append();
    device.flush().unwrap();
    let keep_allocated = true;
    device
        .run(Command::Reset {
            zone,
            keep_allocated,
        })
        .unwrap();
    device.run(Command::Record).unwrap();
    host.calls.lock().clear();
    append();
    assert_eq!(*host.calls.lock(), ["sync", "data"]);
}
