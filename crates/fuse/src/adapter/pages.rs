//! Pages that the kernel may hold back: what shared mappings have stored, and with `writeback_cache` all that was
//! written. It writes them before it tells of the last close, so only files that are open may have any.

use std::collections::HashMap;

use persimmon_sync::{Mutex, MutexGuard};

use persimmon_vfs::Ino;

/// Files with open descriptors through which pages get dirty in the kernel.
pub struct HeldBack {
    writeback_cache: bool,
    /// How many there are of each.
    open: Mutex<HashMap<Ino, usize>>,
}

impl HeldBack {
    pub fn new(writeback_cache: bool) -> HeldBack {
        HeldBack {
            writeback_cache,
            open: Mutex::default(),
        }
    }

    /// Whether the kernel delays writes, and goes by sizes of its own.
    pub fn writeback_cache(&self) -> bool {
        self.writeback_cache
    }

    /// Whether the kernel may hold back pages of a file that is open with these flags of Linux: a map that may be
    /// stored through needs a descriptor that may read and write.
    pub fn may_be_by(&self, flags: u32) -> bool {
        match flags.cast_signed() & libc::O_ACCMODE {
            libc::O_RDWR => true,
            libc::O_WRONLY => self.writeback_cache,
            _ => false,
        }
    }

    /// A descriptor was opened.
    pub fn opened(&self, ino: Ino, flags: u32) {
        if self.may_be_by(flags) {
            *self.lock().entry(ino).or_default() += 1;
        }
    }

    /// The last use of a descriptor is over, that by maps too.
    pub fn released(&self, ino: Ino, flags: u32) {
        if !self.may_be_by(flags) {
            return;
        }
        let mut open = self.lock();
        if let Some(count) = open.get_mut(&ino) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&ino);
            }
        }
    }

    /// All files of which it may.
    pub fn all(&self) -> Vec<Ino> {
        self.lock().keys().copied().collect()
    }

    /// Whether it holds back no pages at all.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether the kernel may hold back pages of this file.
    pub fn may_be_of(&self, ino: Ino) -> bool {
        self.lock().contains_key(&ino)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, usize>> {
        self.open.lock()
    }
}
