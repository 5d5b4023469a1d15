//! Permissions that directories get at the end alone: until then the receiver has to get into them.

use super::{Receiver, Result};
use crate::state::LATE_MAX;
use crate::target::Target;
use crate::wire::{Kind, ROOT};

impl<T: Target> Receiver<'_, T> {
    /// The stream ends early: who goes on with it finds directories that were given permissions, and has to know which they had.
    pub(super) fn keep_own_modes(&mut self) {
        self.note_own_modes();
        if self.noted.is_empty() || self.is_saving {
            return;
        }
        let mut state = self.saved.clone();
        for (ino, mode) in std::mem::take(&mut self.noted) {
            let is_known = state.late.iter().any(|(known, _)| *known == ino);
            if !is_known && state.late.len() < LATE_MAX {
                state.late.push((ino, mode));
            }
        }
        // Why the stream ended is what is told.
        let _ = self.save_files(&[("state".into(), state.encode())]);
    }

    /// The permissions that an inode gets now: a directory that its owner cannot use gets its own at the end.
    pub(super) fn mode_now(&mut self, ino: u64, kind: Kind, mode: u32) -> u32 {
        self.state.late.retain(|(known, _)| *known != ino);
        let is_late = kind == Kind::Directory
            && mode & 0o700 != 0o700
            && !self.target.is_privileged()
            && self.state.late.len() < LATE_MAX;
        if is_late {
            self.state.late.push((ino, mode));
            return mode | 0o700;
        }
        mode
    }

    pub(super) fn set_late_modes(&mut self) -> Result<()> {
        let mut late: Vec<(usize, u64, u32)> = Vec::new();
        for (ino, mode) in std::mem::take(&mut self.state.late) {
            late.push((
                self.path(ino).iter().filter(|b| **b == b'/').count(),
                ino,
                mode,
            ));
        }
        // Those above others last: then there is still a way to these.
        late.sort_by(|a, b| b.cmp(a));
        for (_, ino, mode) in late {
            let (dir, name) = self.place(ino)?;
            let set = self.target.set_mode(&dir, &name, mode);
            self.soften(ino, "permissions", set)?;
        }
        Ok(())
    }

    /// Remembers what directories that are open get back at the end, of those that had to be given permissions.
    pub(super) fn note_own_modes(&mut self) {
        if self.target.is_privileged() {
            return;
        }
        let top = (ROOT, self.top.clone());
        let open = self.directories.iter();
        let open = open.map(|(ino, dir)| (*ino, dir.clone()));
        for (ino, dir) in open.chain([top]).collect::<Vec<_>>() {
            self.note_own_mode(ino, &dir, b"");
        }
    }

    /// The same of one, at its place.
    pub(super) fn note_own_mode(&mut self, ino: u64, dir: &T::Dir, name: &[u8]) {
        let Some(mode) = self.target.own_mode(dir, name) else {
            return;
        };
        if self.state.late.iter().any(|(known, _)| *known == ino) {
            return;
        }
        if self.state.late.len() < LATE_MAX {
            self.state.late.push((ino, mode));
            self.noted.push((ino, mode));
        } else {
            let path = self.path(ino);
            let what =
                format!("its permissions, {mode:o}, were widened and have to be set by hand");
            self.warn(&path, what);
        }
    }
}
