//! The kernel's side of a request.

use std::sync::Arc;

use crate::protocol::Errno;
use crate::transport::{Later, Transport};

/// What it is told after the request was taken.
pub(in crate::adapter) enum Told {
    Answer(Result<Vec<u8>, Errno>),
    /// To write back the content of an inode.
    WriteBack(u64),
}

#[derive(Clone)]
pub(in crate::adapter) struct Kernel {
    pub(in crate::adapter) told: Arc<dyn Fn(Told) + Send + Sync>,
    /// Refers to every inode; else to none.
    pub(in crate::adapter) refers: bool,
    /// Has places left for what it writes back.
    pub(in crate::adapter) has_room: bool,
}

impl Kernel {
    /// Tells `told` what it is told.
    pub(in crate::adapter) fn telling(told: impl Fn(Told) + Send + Sync + 'static) -> Kernel {
        Kernel {
            told: Arc::new(told),
            refers: false,
            has_room: true,
        }
    }

    pub(in crate::adapter) fn deaf() -> Kernel {
        Kernel::telling(|_| {})
    }
}

impl Transport for Kernel {
    fn later(&self) -> Box<dyn Later> {
        Box::new(self.clone())
    }

    fn later_with_pages(&self) -> Option<Box<dyn Later>> {
        self.has_room.then(|| self.later())
    }

    fn forget_attributes(&self, _node: u64) {}

    fn knows(&self, _node: u64) -> bool {
        self.refers
    }
}

impl Later for Kernel {
    fn answer(self: Box<Self>, result: Result<Vec<u8>, Errno>) {
        (self.told)(Told::Answer(result));
    }

    fn write_back(&self, node: u64) {
        (self.told)(Told::WriteBack(node));
    }

    fn forget_name(&self, _directory: u64, _name: &[u8]) {}

    fn forget_attributes(&self, _node: u64) {}

    fn transport(self: Box<Self>) -> Box<dyn Transport> {
        self
    }
}
