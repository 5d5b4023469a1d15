//! The host: what an image asks of its file, until the power goes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use persimmon_device::Buffer;
use persimmon_device::image::testing::Host;
use persimmon_sync::host::{Mutex, MutexGuard};

use super::watch::Watch;
use crate::harness::Failures;
use persimmon_sim::medium::Medium;

/// How long an fdatasync takes at most.
const SYNC_MICROSECONDS: u64 = 400;

/// What a host does wrong, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An fdatasync returns before anything is durable, and makes nothing so.
    SyncLies,
    /// An fdatasync makes durable all but the last change before it.
    SyncForgets,
}

/// What a host is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Character {
    pub is_file: bool,
    /// It gives space back.
    pub punches: bool,
    pub mistake: Option<Mistake>,
}

/// A file on a host that loses power.
pub(super) struct LossyHost {
    medium: Mutex<Medium>,
    character: Character,
    /// Calls that change something or make it durable.
    calls: AtomicU64,
    /// The call at which the power goes.
    off_at: AtomicU64,
    off: AtomicBool,
    watch: Option<Arc<Watch>>,
}

impl LossyHost {
    pub fn new(medium: Medium, character: Character, watch: Option<Arc<Watch>>) -> Arc<LossyHost> {
        Arc::new(LossyHost {
            medium: Mutex::new(medium),
            character,
            calls: AtomicU64::new(0),
            off_at: AtomicU64::new(u64::MAX),
            off: AtomicBool::new(false),
            watch,
        })
    }

    /// As the image wants it.
    pub fn for_image(self: &Arc<LossyHost>) -> Box<dyn Host> {
        Box::new(Calls(Arc::clone(self)))
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The power goes after so many more calls.
    pub fn cut_after(&self, calls: u64) {
        self.off_at.store(self.calls() + calls, Ordering::SeqCst);
    }

    /// The power goes now.
    pub fn cut(&self) {
        let _medium = self.lock();
        self.off.store(true, Ordering::SeqCst);
    }

    pub fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// As it is at this moment.
    pub fn medium(&self) -> Medium {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock()
    }

    /// One of the calls at which the power may go. What it does, it does under the lock, so that the
    /// medium stays as it is once the power is off.
    fn call(&self, change: impl FnOnce(&mut Medium)) -> io::Result<()> {
        if let Some(watch) = &self.watch {
            watch.may_keep_one(self);
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let mut medium = self.lock();
        self.check()?;
        // Cut in its midst, it may have done anything: the change is there, and any of its sectors can be lost.
        change(&mut medium);
        if number >= self.off_at.load(Ordering::SeqCst) {
            self.off.store(true, Ordering::SeqCst);
        }
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        if self.is_off() {
            Err(io::Error::other("the power is off"))
        } else {
            Ok(())
        }
    }
}

impl Failures for LossyHost {
    fn has_failed(&self) -> bool {
        self.is_off()
    }

    fn has_offline_zones(&self) -> bool {
        false
    }

    fn is_off(&self) -> bool {
        LossyHost::is_off(self)
    }
}

/// A host in the hands of an image.
struct Calls(Arc<LossyHost>);

impl Host for Calls {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        if self.0.lock().read(into, offset) {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        self.0.call(|medium| {
            let mut at = offset;
            for buffer in data {
                medium.write(buffer, at);
                at += buffer.len() as u64;
            }
        })
    }

    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.call(|medium| medium.write(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        let mut before = 0;
        self.0.call(|medium| before = medium.changes())?;
        // Others go on meanwhile, and the power may go.
        let spread = before.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if spread % 3 == 0 {
            std::thread::sleep(Duration::from_micros(spread % SYNC_MICROSECONDS));
        }
        if let Some(watch) = &self.0.watch {
            watch.may_keep_one(&self.0);
        }
        let mut medium = self.0.lock();
        self.0.check()?;
        match self.0.character.mistake {
            Some(Mistake::SyncLies) => {}
            Some(Mistake::SyncForgets) => medium.make_durable(before.saturating_sub(1)),
            None => medium.make_durable(before),
        }
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let punches = self.0.character.punches;
        self.0.call(|medium| {
            if punches {
                medium.punch(offset, length);
            }
        })
    }

    fn is_file(&self) -> bool {
        self.0.character.is_file
    }

    fn overwrites_in_place(&self) -> bool {
        self.0.character.is_file
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        self.0.call(|_| {})
    }
}
