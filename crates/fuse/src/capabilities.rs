//! What is agreed with the kernel when a mount begins.

use fuser::{InitFlags, KernelConfig};
use tracing::warn;

/// Largest request of data, bytes.
pub const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Requests that the kernel may have in the background (read-ahead, write-back).
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// What was agreed, as far as requests look and come differently for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreed {
    /// Requests come through rings.
    pub rings: bool,
    /// SETXATTR has flags of the kernel's own: a fixed part of 16 bytes, not 8.
    pub setxattr_ext: bool,
}

/// Asks for what serves a filesystem that nobody but its daemon changes, as far as the kernel has
/// it; for rings where they are wanted.
pub fn negotiate(config: &mut KernelConfig, writeback_cache: bool, rings: bool) -> Agreed {
    let mut wanted = InitFlags::FUSE_ASYNC_READ
        | InitFlags::FUSE_BIG_WRITES
        | InitFlags::FUSE_MAX_PAGES
        | InitFlags::FUSE_ATOMIC_O_TRUNC
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
    if writeback_cache {
        wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    let missing = config.add_capabilities(wanted).err();
    if let Some(missing) = missing {
        warn!("this kernel does not offer {missing:?}");
        let _ = config.add_capabilities(wanted & !missing);
    }
    let missing = missing.unwrap_or(InitFlags::empty());
    let rings = rings
        && config
            .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
            .is_ok();
    // The bounds are below what the protocol allows, so none of these is refused.
    let _ = config.set_max_write(MAX_WRITE_BYTES);
    let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
    let _ = config.set_congestion_threshold(BACKGROUND_REQUESTS_MAX * 3 / 4);
    Agreed {
        rings,
        setxattr_ext: !missing.contains(InitFlags::FUSE_SETXATTR_EXT),
    }
}
