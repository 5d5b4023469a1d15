//! Names that come and go in a fixed order, seldom synced: what is there after a crash is a prefix.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Worker, sync_dir};

/// Names there are at once.
const WINDOW: u64 = 60;

/// Makes a name, takes away the oldest, and so on; of each kind of thing some.
#[derive(Default)]
pub(super) struct Order {
    /// Operations that were acknowledged, and that were begun.
    acknowledged: u64,
    begun: u64,
}

/// What is there after so many operations: an even one makes a name, an odd one takes one away.
fn after(operations: u64) -> BTreeSet<u64> {
    let made = operations.div_ceil(2);
    let gone = (operations / 2).saturating_sub(WINDOW);
    (gone..made).collect()
}

impl Order {
    fn one(&mut self, dir: &Path) -> Result<()> {
        let number = self.begun / 2;
        let makes = self.begun.is_multiple_of(2);
        self.begun += 1;
        let path = |number: u64| dir.join(number.to_string());
        if makes {
            let path = path(number);
            match number % 4 {
                0 => std::fs::create_dir(path)?,
                1 => std::os::unix::fs::symlink("nowhere", path)?,
                2 => drop(File::create_new(path)?),
                // The empty file before it gets another name.
                _ => std::fs::hard_link(dir.join((number - 1).to_string()), path)?,
            }
        } else if let Some(old) = number.checked_sub(WINDOW) {
            match old % 4 {
                0 => std::fs::remove_dir(path(old))?,
                _ => std::fs::remove_file(path(old))?,
            }
        }
        Ok(())
    }
}

impl Worker for Order {
    fn name(&self) -> &'static str {
        "in-order"
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        for _ in 0..10 {
            self.one(dir)?;
        }
        if self.begun.is_multiple_of(50) {
            sync_dir(dir)?;
            self.acknowledged = self.begun;
        }
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name().into_string();
            let number = name.ok().and_then(|name| name.parse::<u64>().ok());
            found.insert(number.context("a name that nobody gave")?);
        }
        // Taking away a name that is not there yet is nothing: the newest state with these names.
        let state = (self.acknowledged..=self.begun)
            .rev()
            .find(|operations| after(*operations) == found);
        let state = state.with_context(|| {
            format!(
                "{found:?} is not there after any of the operations {} to {}",
                self.acknowledged, self.begun
            )
        })?;
        // One operation or the next may have been the last: go on with a new name.
        let next = state.next_multiple_of(2);
        if next > state {
            self.begun = state;
            self.one(dir)?;
        }
        self.begun = next;
        sync_dir(dir)?;
        self.acknowledged = next;
        Ok(())
    }
}
