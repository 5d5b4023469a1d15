//! How a file is opened.

use persimmon_vfs::{Lifetime, OpenFlags};

/// How a file is opened; as `std::fs::OpenOptions`.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct OpenOptions {
    pub(crate) flags: OpenFlags,
    pub(crate) create: bool,
    pub(crate) mode: Option<u32>,
    pub(crate) lifetime: Option<Lifetime>,
    pub(crate) keep_flushed: bool,
}

impl OpenOptions {
    /// Nothing set.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// For reading.
    pub fn read(mut self, read: bool) -> OpenOptions {
        self.flags.read = read;
        self
    }

    /// For writing.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.flags.write = write;
        self
    }

    /// For writing at the end, wherever that is.
    pub fn append(mut self, append: bool) -> OpenOptions {
        self.flags.append = append;
        self.flags.write |= append;
        self
    }

    /// Emptied.
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.flags.truncate = truncate;
        self
    }

    /// Made if it is missing.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Made, and missing before.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create |= create_new;
        self.flags.exclusive = create_new;
        self
    }

    /// Permissions of a file that is made, before the mask 022; 0666 if not set.
    pub fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = Some(mode);
        self
    }

    /// How long what is written through it will live, in the place of what the attribute
    /// `user.persimmon.lifetime` of the file says. Only for one opened for writing.
    pub fn lifetime(mut self, lifetime: Lifetime) -> OpenOptions {
        self.lifetime = Some(lifetime);
        self
    }

    /// Every write outlives the death of this process once it has returned, with every change of names and attributes before:
    /// it is in the hands of the device, or of the kernel where the volume is an image. The power may still take it. For logs
    /// that are synced now and then. A small write costs a block of the journal, and no flush.
    pub fn write_through(mut self, write_through: bool) -> OpenOptions {
        self.flags.write_through = write_through;
        self
    }

    /// What was appended to the file before a [`flush`](std::io::Write::flush) of it outlives the death of this process once that
    /// has returned, for the cost of copying it: the kernel keeps it in a file in `/dev/shm`, up to 1 MiB for each open file, and the next
    /// opening of the volume that writes brings it in. Changes of names and attributes do not go with it, except before the first
    /// flush. A flush after any other change of the file goes to the device, as [`OpenOptions::write_through`]
    /// does, and so does every one where the kernel cannot keep it. docs/LIBRARY.md says the whole of it.
    pub fn keep_flushed(mut self, keep_flushed: bool) -> OpenOptions {
        self.keep_flushed = keep_flushed;
        self
    }

    /// Reads go to the device, past what the volume keeps in memory of those before
    /// ([`EngineOptions::read_cache_bytes_max`](crate::EngineOptions::read_cache_bytes_max)).
    pub fn direct(mut self, direct: bool) -> OpenOptions {
        self.flags.direct = direct;
        self
    }

    /// Every write is durable before it returns.
    pub fn sync(mut self, sync: bool) -> OpenOptions {
        self.flags.sync = sync;
        self
    }
}
