//! A client that changes what others change at the same time. Nobody knows what it has to find, but that no operation may
//! fail but for what the others did.

use std::sync::Arc;

use super::client::is_of_fault;
use crate::device::SimDevice;
use crate::filesystem::Mounted;
use crate::harness::Subject;
use crate::model::Model;
use crate::workload::{Generator, Op};

/// After so many operations it looks what the others have made of it.
const LOOK_AFTER: usize = 8;

pub(super) struct Disturber {
    pub mounted: Mounted,
    pub device: Arc<SimDevice>,
    pub model: Model,
    pub generator: Generator,
    pub ops: usize,
}

impl Disturber {
    /// Errors: what is wrong.
    pub fn work(&mut self) -> Result<(), String> {
        for number in 1..=self.ops {
            let op = self.generator.next_op(&self.model);
            let errno = match &op {
                Op::Remount => continue,
                // It may be gone meanwhile.
                Op::Read { path } => self.mounted.observe_one(path).err().map(|_| libc::ENOENT),
                _ => self
                    .mounted
                    .apply(&op, 0)
                    .err()
                    .map(|refusal| refusal.errno),
            };
            match errno {
                None => drop(self.model.apply(&op, 0)),
                Some(errno) if is_of_fault(&self.device, errno) => return Ok(()),
                Some(libc::EIO | libc::EROFS | libc::EUCLEAN) => {
                    return Err(format!("{op}: {errno:?}"));
                }
                Some(_) => {}
            }
            if number % LOOK_AFTER == 0
                && let Ok(found) = self.mounted.observe()
            {
                self.model = Model::new(found.to_tree());
            }
        }
        Ok(())
    }
}
