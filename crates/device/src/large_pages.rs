//! Memory for much data, in large pages where the kernel has them: who looks at places far apart waits less for their addresses.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Zeroed memory that goes back to the kernel when it is dropped.
#[derive(Debug)]
pub struct LargePages(MmapMut);

impl LargePages {
    /// Asks the kernel for memory. Multiples of 2 MiB use it best.
    pub fn new(len: usize) -> io::Result<LargePages> {
        let memory = MmapMut::map_anon(len)?;
        // Ordinary pages serve as well, only more slowly.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(LargePages(memory))
    }
}

impl Deref for LargePages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for LargePages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
