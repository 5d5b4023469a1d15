//! Small sound volumes with a bit of everything, made once: what the targets damage, and where
//! the seeds come from.

use std::sync::{Arc, OnceLock};

use persimmon_device::{Buffer, BufferMut, ZonedDevice};
use persimmon_engine::{
    CloneRange, CloneWhen, Deltas, FormatOptions, NewLimits, Options, Quotas, Task, Volume,
};
use persimmon_format::delta::is_delta;
use persimmon_format::envelope::{self, Kind};
use persimmon_format::extent::Extent;
use persimmon_format::footer::Footer;
use persimmon_format::inode::Timestamp;
use persimmon_format::log::{Body, LogBlock, LogState};
use persimmon_format::packed::Packed;
use persimmon_format::page::{self, PAGE_SIZE};
use persimmon_format::table::{MatEntry, Role};
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{
    Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind, Lsn, VersionId, VolumeKey, ZoneId,
};
use persimmon_sim::{SimConfig, SimDevice, Snapshot};
use persimmon_vfs::{
    Allocate, Caller, Clock, Handle, OpenFlags, Owner, OwnerKind, ROOT, SetAttr, Vfs, WriteFlags,
    XattrMode,
};

use crate::input::Input;

const UUID: [u8; 16] = *b"a fuzzed volume.";
const SECRET: [u8; 32] = [0x77; 32];
const ZONES: u32 = 24;
const ZONE_BLOCKS: u32 = 96;

/// What a written block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Header,
    Sealed(Kind),
    Data,
}

/// A structure on the device.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub what: What,
    pub addr: Addr,
    pub blocks: u32,
    /// Something needs it: a page, a table, data; of others that is not found out.
    pub live: bool,
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug)]
pub struct LogEnd {
    pub zone: ZoneId,
    pub zone_sequence: u64,
    /// The first block that is not written.
    pub block: u32,
    /// Its number in the log.
    pub sequence: u64,
    pub state: LogState,
    pub next_lsn: Lsn,
}

/// A volume, and what is where in it.
pub struct Sample {
    snapshot: Snapshot,
    pub places: Vec<Place>,
    pub log_end: LogEnd,
    pub inos: Vec<Ino>,
    /// Packed extents and where files have them.
    pub packed: Vec<(Ino, u64, Packed)>,
}

/// What a volume has beside the usual.
#[derive(Clone, Copy, Default)]
struct Features {
    /// Snapshots, shared blocks and dictionaries.
    versions: bool,
    /// Quota.
    owners: bool,
    /// Deltas.
    deltas: bool,
}

/// The volume's key.
pub fn key() -> VolumeKey {
    VolumeKey::new(&UUID, &SECRET)
}

/// A clock that stands still.
pub struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 1,
        }
    }
}

impl Sample {
    /// On a device whose write pointers are proof.
    pub fn proving() -> &'static Sample {
        static SAMPLE: OnceLock<Sample> = OnceLock::new();
        SAMPLE.get_or_init(|| make(SimConfig::new(ZONES, ZONE_BLOCKS), Features::default()))
    }

    /// On an image file of a host, where checksums decide.
    pub fn on_host() -> &'static Sample {
        static SAMPLE: OnceLock<Sample> = OnceLock::new();
        SAMPLE.get_or_init(|| {
            let config = SimConfig::new(ZONES, ZONE_BLOCKS).host_file();
            make(config, Features::default())
        })
    }

    /// With snapshots, one of which is deleted, and blocks that files share.
    pub fn versioned() -> &'static Sample {
        static SAMPLE: OnceLock<Sample> = OnceLock::new();
        SAMPLE.get_or_init(|| {
            let config = SimConfig::new(ZONES, ZONE_BLOCKS).host_file();
            let features = Features {
                versions: true,
                ..Features::default()
            };
            make(config, features)
        })
    }

    /// With snapshots, owners that are counted and limited, and blocks with deltas.
    pub fn counted() -> &'static Sample {
        static SAMPLE: OnceLock<Sample> = OnceLock::new();
        SAMPLE.get_or_init(|| {
            let features = Features {
                versions: true,
                owners: true,
                deltas: true,
            };
            make(SimConfig::new(ZONES, ZONE_BLOCKS), features)
        })
    }

    /// One of them all.
    pub fn any(input: &mut Input<'_>) -> &'static Sample {
        match input.u8() % 4 {
            0 => Sample::proving(),
            1 => Sample::on_host(),
            2 => Sample::versioned(),
            _ => Sample::counted(),
        }
    }

    /// A copy to damage.
    pub fn device(&self) -> SimDevice {
        self.snapshot.intact()
    }

    /// The places that hold one kind of thing.
    pub fn of(&self, what: What) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| place.what == what)
    }

    /// The bytes of a place.
    pub fn bytes(&self, place: &Place) -> Vec<u8> {
        read(&self.device(), place)
    }

    /// The payloads of all structures of a kind.
    pub fn payloads(&self, kind: Kind) -> Vec<Vec<u8>> {
        let device = self.device();
        self.of(What::Sealed(kind))
            .map(|place| {
                let bytes = read(&device, place);
                envelope::open(&bytes, &key(), kind, None)
                    .unwrap()
                    .1
                    .to_vec()
            })
            .collect()
    }

    /// The images of all metadata pages.
    pub fn page_images(&self) -> Vec<Vec<u8>> {
        let payloads = self.payloads(Kind::Page);
        payloads
            .iter()
            .filter_map(|payload| Some(unpack(payload)?.to_vec()))
            .collect()
    }
}

/// The image in the payload of a page.
pub fn unpack(payload: &[u8]) -> Option<[u8; PAGE_SIZE]> {
    let mut image = [0; PAGE_SIZE];
    page::unpack(payload, &mut image).ok()?;
    Some(image)
}

/// The bytes of a place; zeros where the device does not give them.
pub fn read(device: &SimDevice, place: &Place) -> Vec<u8> {
    let (zone, block) = (place.addr.zone(), place.addr.block());
    match device.read(zone, block, place.blocks) {
        Ok(bytes) => bytes.to_vec(),
        Err(_) => vec![0; place.blocks as usize * BLOCK_SIZE],
    }
}

/// A buffer for the device.
pub fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = BufferMut::zeroed(bytes.len() / BLOCK_SIZE);
    buffer.copy_from_slice(bytes);
    buffer.freeze()
}

fn make(config: SimConfig, features: Features) -> Sample {
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        uuid: UUID,
        secret: SECRET,
        label: "fuzzed".into(),
        quota: features.owners,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let options = Options {
        deltas: match features.deltas {
            true => Deltas::Always,
            false => Deltas::None,
        },
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    let vfs = Vfs::new(Arc::new(volume), Arc::new(Still), Default::default());
    populate(&vfs, features);
    assert_eq!(has_deltas(&vfs), features.deltas);
    let inos = inos(&vfs);
    let packed = packed(&vfs);
    // Not closed: the log ends in records.
    drop(vfs);
    let mut places = places(&device);
    mark_live(&device, &mut places);
    Sample {
        log_end: log_end(&device, &places),
        snapshot: device.snapshot(),
        places,
        inos,
        packed,
    }
}

/// Bytes that go by a seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(seed.wrapping_mul(0x9e37_79b9) | 1) >> 7) as u8)
        .collect()
}

fn add(vfs: &Vfs, parent: Ino, name: &str, len: usize) -> Ino {
    let write = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let root = Caller::root();
    let (attr, handle) = vfs
        .create(&root, parent, name.as_bytes(), 0o644, write)
        .unwrap();
    let data = content(attr.ino.0, len);
    vfs.write(attr.ino, handle, 0, &data, WriteFlags::default())
        .unwrap();
    vfs.release(attr.ino, handle).unwrap();
    attr.ino
}

fn sync(vfs: &Vfs, ino: Ino) {
    vfs.fsync(ino, Handle::NONE).unwrap();
}

/// A block that compresses about 4:1, synced: it is inlined in the journal, and packed later.
fn write_quarter(vfs: &Vfs, ino: Ino, block: u64) {
    let noise: Vec<u8> = (0..1024u64)
        .map(|i| ((i + block).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
        .collect();
    let flags = WriteFlags::default();
    vfs.write(ino, Handle::NONE, block * 4096, &noise.repeat(4), flags)
        .unwrap();
    sync(vfs, ino);
}

fn write_text(vfs: &Vfs, ino: Ino, at: u64, len: usize) {
    let text = format!("text at {at}, and {len} bytes of it. ");
    let bytes: Vec<u8> = text.bytes().cycle().take(len).collect();
    vfs.write(ino, Handle::NONE, at, &bytes, WriteFlags::default())
        .unwrap();
}

/// The beginning of a file becomes that of another one, too.
fn clone(vfs: &Vfs, from: Ino, to: Ino) {
    let range = CloneRange {
        from,
        from_offset: 0,
        to,
        to_offset: 0,
        len: 4 * 4096,
        when: CloneWhen::Always,
    };
    vfs.volume().clone_range(&range, Still.now()).unwrap();
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// A file that gets some blocks with deltas each time that it is changed.
fn add_changing(vfs: &Vfs) -> Ino {
    let ino = add(vfs, ROOT, "changing", 0);
    let flags = WriteFlags::default();
    vfs.write(ino, Handle::NONE, 0, &noise(20 * 4096), flags)
        .unwrap();
    sync(vfs, ino);
    change(vfs, ino, 3);
    change(vfs, ino, 12);
    ino
}

/// Changes little of a block of noise.
fn change(vfs: &Vfs, ino: Ino, block: u64) {
    let (at, flags) = (block * 4096 + 1000, WriteFlags::default());
    vfs.write(ino, Handle::NONE, at, b"changed", flags).unwrap();
    sync(vfs, ino);
}

/// Whether a block has a delta.
fn has_deltas(vfs: &Vfs) -> bool {
    let mut found = false;
    vfs.volume()
        .view::<_, persimmon_engine::Error>(|view| {
            found = false;
            view.scan(ALL_KEYS, |key, _| {
                found |= key.kind == KeyKind::EXTENT && is_delta(key.item);
                Ok(std::ops::ControlFlow::Continue(()))
            })
        })
        .unwrap();
    found
}

/// A user, a group and a directory tree are limited, and take something.
fn limit(vfs: &Vfs, file: Ino, tree: Ino) {
    let root = Caller::root();
    give(vfs, file, 1000);
    vfs.set_project_below(&root, tree, 7).unwrap();
    let owners = [
        (OwnerKind::User, 1000),
        (OwnerKind::Group, 1000),
        (OwnerKind::Project, 7),
    ];
    let limits = NewLimits {
        bytes_soft: Some(4096),
        bytes_hard: Some(1 << 20),
        inodes_soft: Some(1),
        inodes_hard: Some(500),
    };
    for (kind, id) in owners {
        let owner = Owner { kind, id };
        let quotas = Quotas::of(vfs.volume());
        quotas.set(owner, &limits, Still.now()).unwrap();
    }
}

/// Gives a file to a user and a group.
fn give(vfs: &Vfs, ino: Ino, id: u32) {
    let set = SetAttr {
        uid: Some(id),
        gid: Some(id),
        ..SetAttr::default()
    };
    vfs.setattr(ino, Handle::NONE, &set).unwrap();
}

/// Two files that differ in a byte: a frame of the second has the first one's blocks as a dictionary.
fn add_near(vfs: &Vfs) {
    let mut bytes = noise(5 * 4096);
    let [one, other] = ["near one", "near other"].map(|name| {
        let ino = add(vfs, ROOT, name, 0);
        vfs.write(ino, Handle::NONE, 0, &bytes, WriteFlags::default())
            .unwrap();
        bytes[9000] ^= 1;
        (ino, Handle::NONE, 0)
    });
    let packed = vfs.pack_near(one, other, 5 * 4096).unwrap();
    assert!(packed.shared > 0);
}

fn populate(vfs: &Vfs, features: Features) {
    let root = Caller::root();
    let dir = vfs.mkdir(&root, ROOT, b"many", 0o755).unwrap().ino;
    // Enough of them for a tree of two levels.
    for number in 0..120 {
        add(vfs, dir, &format!("file number {number}"), number % 3 * 50);
    }
    vfs.volume().step(Task::Checkpoint).unwrap();
    let deep = vfs.mkdir(&root, dir, b"deep", 0o755).unwrap().ino;
    for (number, len) in [100, 4096, 9000, 60_000, 150_000].into_iter().enumerate() {
        let ino = add(vfs, deep, &format!("sized {number}"), len);
        sync(vfs, ino);
        vfs.setxattr(
            &root,
            ino,
            b"user.note",
            &content(7, 20 + len / 100),
            XattrMode::Either,
        )
        .unwrap();
    }
    vfs.symlink(&root, deep, b"link", b"../file number 3")
        .unwrap();
    let sparse = add(vfs, ROOT, "sparse", 5000);
    // In pieces.
    vfs.setxattr(
        &root,
        sparse,
        b"user.long",
        &content(11, 9000),
        XattrMode::Either,
    )
    .unwrap();
    let keep = Allocate::Reserve { keep_size: true };
    vfs.fallocate(sparse, Handle::NONE, 1 << 20, 50_000, keep)
        .unwrap();
    vfs.write(
        sparse,
        Handle::NONE,
        1 << 22,
        &content(5, 3000),
        WriteFlags::default(),
    )
    .unwrap();
    let packed = add(vfs, ROOT, "packed", 0);
    for block in 0..12 {
        write_quarter(vfs, packed, block);
    }
    let frames = [("lz4", 0), ("zstd", 1)].map(|(codec, seed)| {
        let ino = add(vfs, ROOT, codec, 0);
        let name = b"user.persimmon.compression";
        vfs.setxattr(&root, ino, name, codec.as_bytes(), XattrMode::Either)
            .unwrap();
        write_text(vfs, ino, 0, 50_000 + seed);
        ino
    });
    vfs.volume().step(Task::WriteBack).unwrap();
    // Of one frame this leaves two parts.
    write_text(vfs, frames[1], 5 * 4096, 4096);
    vfs.volume().step(Task::WriteBack).unwrap();
    vfs.volume().step(Task::Clean).unwrap();
    if features.owners {
        limit(vfs, sparse, deep);
    }
    let changing = features.deltas.then(|| add_changing(vfs));
    if features.versions {
        vfs.take_snapshot(b"one", true).unwrap();
        write_text(vfs, frames[0], 2 * 4096, 9000);
        vfs.unlink(dir, b"file number 7").unwrap();
        let gone = vfs.take_snapshot(b"gone", true).unwrap();
        write_quarter(vfs, packed, 3);
        vfs.volume().snapshots().delete(gone).unwrap();
        vfs.volume().step(Task::Settle).unwrap();
        clone(vfs, frames[0], sparse);
        add_near(vfs);
    }
    vfs.volume().step(Task::Checkpoint).unwrap();
    // And a journal after it: every kind of operation.
    let late = add(vfs, ROOT, "late", 20_000);
    sync(vfs, late);
    vfs.fallocate(late, Handle::NONE, 4096, 5000, Allocate::Punch)
        .unwrap();
    vfs.write(late, Handle::NONE, 100, b"inline", WriteFlags::default())
        .unwrap();
    sync(vfs, late);
    write_quarter(vfs, packed, 2);
    write_text(vfs, frames[0], 6 * 4096, 4096);
    sync(vfs, frames[0]);
    write_text(vfs, frames[1], 8 * 4096, 30_000);
    sync(vfs, frames[1]);
    vfs.unlink(dir, b"file number 5").unwrap();
    if features.owners {
        give(vfs, late, 1001);
        limit(vfs, packed, deep);
    }
    if let Some(changing) = changing {
        change(vfs, changing, 3);
        change(vfs, changing, 7);
    }
    if features.versions {
        vfs.take_snapshot(b"late", false).unwrap();
        write_text(vfs, frames[1], 3 * 4096, 4096);
        sync(vfs, frames[1]);
        vfs.volume().step(Task::Settle).unwrap();
        clone(vfs, frames[1], sparse);
    }
    let open = add(vfs, ROOT, "orphan", 10_000);
    let handle = vfs.open(open, OpenFlags::default()).unwrap();
    vfs.unlink(ROOT, b"orphan").unwrap();
    sync(vfs, late);
    let _ = handle;
}

/// Of all inodes.
const ALL_KEYS: std::ops::Range<Key> = Key {
    ino: Ino(0),
    kind: KeyKind(0),
    item: 0,
    version: VersionId(0),
}..Key {
    ino: Ino(Ino::END),
    kind: KeyKind(0),
    item: 0,
    version: VersionId(0),
};

fn inos(vfs: &Vfs) -> Vec<Ino> {
    let mut inos = vec![ROOT];
    vfs.volume()
        .view::<_, persimmon_engine::Error>(|view| {
            inos.truncate(1);
            view.scan(ALL_KEYS, |key, _| {
                if key.kind == KeyKind::INODE {
                    inos.push(key.ino);
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })
        })
        .unwrap();
    inos
}

fn packed(vfs: &Vfs) -> Vec<(Ino, u64, Packed)> {
    let mut packed = Vec::new();
    vfs.volume()
        .view::<_, persimmon_engine::Error>(|view| {
            packed.clear();
            view.scan(ALL_KEYS, |key, value| {
                if key.kind == KeyKind::EXTENT
                    && let Ok(Extent::Packed(extent)) = Extent::decode(value)
                {
                    packed.push((key.ino, key.item, extent));
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })
        })
        .unwrap();
    assert!(packed.iter().any(|(.., extent)| !extent.is_whole()));
    packed
}

/// What every written block is.
fn places(device: &SimDevice) -> Vec<Place> {
    let mut places = Vec::new();
    let zones = device.report(0..ZONES).unwrap();
    for (zone, info) in zones.iter().enumerate() {
        let mut block = 0;
        while block < info.write_pointer {
            let addr = Addr::new(DeviceId(0), ZoneId(zone as u32), block);
            let place = identify(device, addr, info.write_pointer);
            block += place.blocks;
            places.push(place);
        }
    }
    places
}

fn identify(device: &SimDevice, addr: Addr, end: u32) -> Place {
    let mut place = Place {
        what: What::Data,
        addr,
        blocks: 1,
        live: true,
    };
    let first = read(device, &place);
    if ZoneHeader::decode(&first).is_ok() {
        place.what = What::Header;
    } else if let Ok(fields) = envelope::peek(&first)
        && addr.block() + u32::from(fields.blocks) <= end
    {
        let sealed = Place {
            what: What::Sealed(fields.kind),
            blocks: fields.blocks.into(),
            ..place
        };
        if envelope::open(&read(device, &sealed), &key(), fields.kind, None).is_ok() {
            return sealed;
        }
    }
    place
}

/// Finds out which pages and chunks the newest checkpoint needs.
fn mark_live(device: &SimDevice, places: &mut [Place]) {
    let sealed = |places: &[Place], kind| -> Vec<(Place, Vec<u8>)> {
        let places = places
            .iter()
            .filter(|place| place.what == What::Sealed(kind));
        places
            .map(|place| {
                let bytes = read(device, place);
                let payload = envelope::open(&bytes, &key(), kind, None)
                    .unwrap()
                    .1
                    .to_vec();
                (*place, payload)
            })
            .collect()
    };
    let footers = sealed(places, Kind::Footer);
    let footers = footers
        .iter()
        .map(|(_, part)| Footer::decode(&part[48..]).unwrap());
    let newest = footers.max_by_key(|footer| footer.checkpoint).unwrap();
    let mut live: Vec<Addr> = [newest.mat, newest.zit].concat();
    for (place, payload) in sealed(places, Kind::MatChunk) {
        if live.contains(&place.addr) {
            let entries = MatEntry::decode_chunk(&payload).unwrap();
            live.extend(entries.iter().filter(|e| e.is_used()).map(|e| e.addr));
        }
    }
    for place in places {
        let found = matches!(
            place.what,
            What::Sealed(Kind::MatChunk | Kind::ZitChunk | Kind::Page)
        );
        place.live = !found || live.contains(&place.addr);
    }
}

fn log_end(device: &SimDevice, places: &[Place]) -> LogEnd {
    let mut end = None;
    for place in places.iter().filter(|place| place.what == What::Header) {
        let header = ZoneHeader::decode(&read(device, place)).unwrap();
        if header.role != Role::Log {
            continue;
        }
        let zone = header.zone;
        for place in places.iter().filter(|place| place.addr.zone() == zone) {
            let bytes = read(device, place);
            let Ok(block) = LogBlock::decode(&bytes, &key(), header.sequence) else {
                continue;
            };
            let next_lsn = match block.body {
                Body::Journal {
                    first_lsn,
                    lead,
                    records,
                } => Lsn(first_lsn.0 + records_starting(&records[lead.into()..])),
                Body::Footer { .. } => end.map_or(Lsn(1), |end: LogEnd| end.next_lsn),
            };
            end = Some(LogEnd {
                zone,
                zone_sequence: header.sequence,
                block: place.addr.block() + 1,
                sequence: block.sequence + 1,
                state: block.state,
                next_lsn,
            });
        }
    }
    end.unwrap()
}

fn records_starting(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(len) = bytes.first_chunk::<4>() {
        count += 1;
        let end = 4 + u32::from_le_bytes(*len) as usize;
        bytes = bytes.get(end..).unwrap_or(&[]);
    }
    count
}
