//! A filesystem on a simulated device, with a clock of its own.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use persimmon_device::ZonedDevice;
use persimmon_engine::{FormatOptions, Volume};
use persimmon_inspect::CheckOptions;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    Attr, Author, Caller, Clock, Handle, Ino, Listing, OpenFlags, Options, ROOT, Result, SetAttr,
    Timestamp, Vfs, WriteFlags,
};

/// Time that goes on a second each time somebody looks.
#[derive(Default)]
pub struct TestClock {
    seconds: AtomicI64,
    aside: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl TestClock {
    pub fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Has something done, once, by whoever looks next.
    pub fn aside(&self, aside: impl FnOnce() + Send + 'static) {
        *self.aside.lock().unwrap() = Some(Box::new(aside));
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let aside = self.aside.lock().unwrap().take();
        if let Some(aside) = aside {
            aside();
        }
        Timestamp {
            seconds: 1_000_000 + self.seconds.fetch_add(1, Ordering::Relaxed),
            nanoseconds: 123_456_789,
        }
    }
}

/// A fresh filesystem.
pub struct Fixture {
    pub vfs: Vfs,
    pub clock: Arc<TestClock>,
    pub root: Caller,
    pub device: Arc<SimDevice>,
    engine: persimmon_engine::Options,
}

/// What `persimmon fsck --data` says.
fn check(device: &SimDevice) {
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = persimmon_inspect::check(device, &options, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

impl Default for Fixture {
    fn default() -> Fixture {
        Fixture::new(Options::default())
    }
}

impl Fixture {
    pub fn new(options: Options) -> Fixture {
        let device = SimDevice::new(SimConfig::new(64, 1024).fast());
        Fixture::on(Arc::new(device), options)
    }

    /// On a device made for the test.
    pub fn on(device: Arc<SimDevice>, options: Options) -> Fixture {
        Fixture::with_engine(device, persimmon_engine::Options::default(), options)
    }

    pub fn with_engine(
        device: Arc<SimDevice>,
        engine: persimmon_engine::Options,
        options: Options,
    ) -> Fixture {
        let clock = Arc::new(TestClock::default());
        let format = FormatOptions {
            now: clock.now(),
            ..FormatOptions::default()
        };
        Volume::format(Arc::clone(&device) as Arc<dyn ZonedDevice>, &format).unwrap();
        Fixture::mount(device, clock, engine, options)
    }

    /// Opens what a power cut left, as a mount does.
    pub fn after_power_cut(&self, seed: u64) -> Fixture {
        self.device.cut();
        let device = Arc::new(self.device.persisted(seed));
        check(&device);
        let clock = Arc::clone(&self.clock);
        let options = self.vfs.options().clone();
        let fs = Fixture::mount(device, clock, self.engine.clone(), options);
        let orphans = fs.vfs.volume().orphans().unwrap();
        fs.vfs.reclaim_orphans(&orphans).unwrap();
        fs
    }

    /// The same of a volume with damage that the check would find.
    pub fn after_damage(&self, seed: u64) -> Fixture {
        let device = Arc::new(self.device.persisted(seed));
        let options = self.vfs.options().clone();
        Fixture::mount(
            device,
            Arc::clone(&self.clock),
            self.engine.clone(),
            options,
        )
    }

    fn mount(
        device: Arc<SimDevice>,
        clock: Arc<TestClock>,
        engine: persimmon_engine::Options,
        options: Options,
    ) -> Fixture {
        let engine = persimmon_engine::Options {
            read_only: options.read_only,
            ..engine
        };
        let on = Arc::clone(&device) as Arc<dyn ZonedDevice>;
        let (volume, _) = Volume::open(on, engine.clone()).unwrap();
        let vfs = Vfs::new(
            Arc::new(volume),
            Arc::clone(&clock) as Arc<dyn Clock>,
            options,
        );
        Fixture {
            vfs,
            engine,
            device,
            clock,
            root: Caller::root(),
        }
    }

    /// Closes it, checks it, and opens it again.
    pub fn remount(self) -> Fixture {
        let options = self.vfs.options().clone();
        self.remount_with(options)
    }

    /// The same with other options.
    pub fn remount_with(self, options: Options) -> Fixture {
        self.vfs.close().unwrap();
        check(&self.device);
        Fixture::mount(self.device, self.clock, self.engine, options)
    }

    /// The same, and refuses changes from then on.
    pub fn remount_read_only(self) -> Fixture {
        self.vfs.close().unwrap();
        let options = Options {
            read_only: true,
            ..self.vfs.options().clone()
        };
        Fixture::mount(self.device, self.clock, self.engine, options)
    }

    /// Opens one again that is closed.
    pub fn reopen(self) -> Fixture {
        let options = self.vfs.options().clone();
        Fixture::mount(self.device, self.clock, self.engine, options)
    }

    /// Follows a path from the root. No link is followed.
    pub fn at(&self, path: &str) -> Attr {
        self.try_at(path)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn try_at(&self, path: &str) -> Result<Attr> {
        let mut attr = self.vfs.getattr(ROOT)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            attr = self.vfs.lookup(attr.ino, name.as_bytes())?;
        }
        Ok(attr)
    }

    pub fn ino(&self, path: &str) -> Ino {
        self.at(path).ino
    }

    pub fn exists(&self, path: &str) -> bool {
        self.try_at(path).is_ok()
    }

    /// The directory and the name of a path.
    pub fn split<'a>(&self, path: &'a str) -> (Ino, &'a [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.ino(dir), name.as_bytes())
    }

    pub fn mkdir(&self, path: &str) -> Ino {
        let (dir, name) = self.split(path);
        self.vfs.mkdir(&self.root, dir, name, 0o755).unwrap().ino
    }

    /// Makes a file with content.
    pub fn file(&self, path: &str, content: &[u8]) -> Ino {
        let (dir, name) = self.split(path);
        let attr = self
            .vfs
            .mknod(&self.root, dir, name, libc::S_IFREG | 0o644, 0)
            .unwrap();
        self.write(attr.ino, 0, content);
        attr.ino
    }

    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        self.vfs
            .write(ino, Handle::NONE, offset, data, WriteFlags::default())
            .unwrap();
    }

    pub fn content(&self, ino: Ino) -> Vec<u8> {
        let mut buf = vec![0; self.vfs.getattr(ino).unwrap().size as usize + 10];
        let len = self.vfs.read(ino, Handle::NONE, 0, &mut buf).unwrap();
        buf.truncate(len);
        buf
    }

    pub fn open(&self, ino: Ino) -> Handle {
        self.vfs.open(ino, READ_WRITE).unwrap()
    }

    pub fn link(&self, from: &str, to: &str) {
        let (dir, name) = self.split(to);
        self.vfs.link(self.ino(from), dir, name).unwrap();
    }

    pub fn unlink(&self, path: &str) {
        let (dir, name) = self.split(path);
        self.vfs.unlink(dir, name).unwrap();
    }

    pub fn chmod(&self, ino: Ino, mode: u32) -> Attr {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.vfs.setattr(ino, Handle::NONE, &set).unwrap()
    }

    pub fn truncate(&self, ino: Ino, size: u64) -> Attr {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.vfs.setattr(ino, Handle::NONE, &set).unwrap()
    }

    /// Names in a directory, sorted, without the dots.
    pub fn names(&self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.vfs
            .readdir(self.ino(path), Handle::NONE, 2, &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                Listing::More
            })
            .unwrap();
        names.sort();
        names
    }
}

/// For reading and writing.
pub const READ_WRITE: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    door_appends: false,
    truncate: false,
    sync: false,
    data_sync: false,
    write_through: false,
    direct: false,
    exclusive: false,
    no_atime: false,
    author: Author::Privileged,
    is_limited: false,
};

/// For reading alone.
pub const READ_ONLY: OpenFlags = OpenFlags {
    write: false,
    ..READ_WRITE
};

/// Somebody without privileges.
pub fn user(uid: u32, gid: u32) -> Caller {
    Caller {
        uid,
        gid,
        groups: Some(Arc::new([])),
        ..Caller::default()
    }
}
