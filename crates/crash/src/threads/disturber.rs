//! A client that changes what others change at the same time. Nobody knows what it has to find, but that no operation may
//! fail but for what the others did.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::client::is_of_fault;
use crate::filesystem::Mounted;
use crate::harness::Subject;
use crate::model::{Kind, Model, Observed};
use crate::workload::{Generator, Op};
use persimmon_sim::device::SimDevice;

/// What others did can make an operation fail so: names that are gone, or there, or of another kind by now.
const MAY_FAIL: [i32; 12] = [
    libc::ENXIO,
    libc::EPERM,
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTEMPTY,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::EINVAL,
    libc::ENODATA,
    libc::ESTALE,
    libc::ELOOP,
    // Of a slot in which nothing could be opened.
    libc::EBADF,
];

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
                Op::Read { path } => self.mounted.read_all(path).err().map(|error| error.errno()),
                _ => self
                    .mounted
                    .apply(&op, 0)
                    .err()
                    .map(|refusal| refusal.errno),
            };
            match errno {
                None => drop(self.model.apply(&op, 0)),
                Some(errno) if is_of_fault(&*self.device, errno) => return Ok(()),
                Some(errno) if MAY_FAIL.contains(&errno) => {}
                Some(libc::ENOSPC) if op.needs_room() => {}
                Some(_) => return Err(format!("{op}: {errno:?}")),
            }
            if number % LOOK_AFTER == 0
                && let Ok(mut found) = self.mounted.observe()
            {
                count_links(&mut found);
                self.model = Model::new(found.to_tree());
            }
        }
        Ok(())
    }
}

/// Links of what was found, which changed while it was looked at: as many as there are names.
fn count_links(found: &mut Observed) {
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    for (path, node) in &found.nodes {
        let is_directory = node.kind == Kind::Directory;
        *links.entry(node.ino).or_default() += if is_directory { 2 } else { 1 };
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let parent = if parent.is_empty() { "/" } else { parent };
        if is_directory
            && path != "/"
            && let Some(parent) = found.nodes.get(parent)
        {
            *links.entry(parent.ino).or_default() += 1;
        }
    }
    for node in found.nodes.values_mut() {
        node.links = links.get(&node.ino).copied().unwrap_or(1);
    }
}
