//! What is agreed with the kernel when a mount begins.

use fuser::{InitFlags, KernelConfig};
use tracing::warn;

/// Largest request of data, bytes.
pub const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Requests that the kernel may have in the background (read-ahead, write-back).
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// What a mount asks for besides what all do.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The kernel delays writes.
    pub writeback_cache: bool,
    /// Requests come through rings.
    pub rings: bool,
    /// Nobody writes: then the kernel may open files by itself, and what truncates would have to be told apart from that.
    pub read_only: bool,
}

/// What was agreed, as far as requests look and come differently for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreed {
    /// Requests come through rings.
    pub rings: bool,
    /// SETXATTR has flags of the kernel's own: a fixed part of 16 bytes, not 8.
    pub setxattr_ext: bool,
    /// The kernel sends requests again when it is asked to.
    pub resend: bool,
}

/// Asks for what serves a filesystem that nobody but its daemon changes, as far as the kernel has
/// it; for rings where they are wanted.
pub fn negotiate(config: &mut KernelConfig, asked: Wanted) -> Agreed {
    let mut wanted = InitFlags::FUSE_ASYNC_READ
        | InitFlags::FUSE_BIG_WRITES
        | InitFlags::FUSE_MAX_PAGES
        | InitFlags::FUSE_EXPORT_SUPPORT
        | InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_POSIX_ACL
        | InitFlags::FUSE_SETXATTR_EXT
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
    if asked.writeback_cache {
        wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    if !asked.read_only {
        wanted |= InitFlags::FUSE_ATOMIC_O_TRUNC;
    }
    let missing = config.add_capabilities(wanted).err();
    if let Some(missing) = missing {
        warn!("this kernel does not offer {missing:?}");
        let _ = config.add_capabilities(wanted & !missing);
    }
    let missing = missing.unwrap_or(InitFlags::empty());
    let rings = asked.rings
        && config
            .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
            .is_ok();
    let resend = config.add_capabilities(InitFlags::FUSE_HAS_RESEND).is_ok();
    // The bounds are below what the protocol allows, so none of these is refused.
    let _ = config.set_max_write(MAX_WRITE_BYTES);
    let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
    let _ = config.set_congestion_threshold(BACKGROUND_REQUESTS_MAX * 3 / 4);
    Agreed {
        rings,
        resend,
        setxattr_ext: !missing.contains(InitFlags::FUSE_SETXATTR_EXT),
    }
}
