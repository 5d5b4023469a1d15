//! Files whose names and contents follow from their numbers, on a volume in an image.

use std::path::Path;

use persimmon::{Filesystem, Options};
use persimmon_engine::Task;

use super::Place;

/// So many files, in so many folders, each longer than the one before by so many words.
#[derive(Clone, Copy)]
pub struct Files {
    pub count: u32,
    pub folders: u32,
    pub words: usize,
    /// Files before the checkpoint; the others are in the journal alone.
    pub in_checkpoint: u32,
}

impl Files {
    fn name(&self, n: u32) -> String {
        format!("/folder {}/{n}", n % self.folders)
    }

    fn content(&self, n: u32) -> Vec<u8> {
        n.to_le_bytes().repeat(1 + n as usize * self.words)
    }

    /// Makes a volume in `image` with them.
    pub fn make(&self, place: &Place, image: &str, size: &str, label: &str) {
        let made = place.run(&["mkfs", image, "--size", size, "--label", label]);
        assert!(made.status.success(), "{made:?}");
        let image = place.dir().join(image);
        let filesystem = Filesystem::open(image, &Options::default()).unwrap();
        let checkpoint = || {
            filesystem.sync().unwrap();
            let volume = filesystem.vfs().volume();
            volume.step(Task::Checkpoint).unwrap();
        };
        for n in 0..self.count {
            if n == self.in_checkpoint {
                checkpoint();
            }
            let folder = format!("/folder {}", n % self.folders);
            filesystem.create_dir_all(&folder).unwrap();
            filesystem.write(self.name(n), self.content(n)).unwrap();
        }
        if self.in_checkpoint == self.count {
            checkpoint();
        }
        filesystem.sync().unwrap();
        filesystem.close().unwrap();
    }

    /// All are there, as they were made.
    #[track_caller]
    pub fn check(&self, image: &Path, options: &Options, what: &str) {
        let filesystem = Filesystem::open(image, options);
        let filesystem = filesystem.unwrap_or_else(|error| panic!("{what}: {error}"));
        for n in 0..self.count {
            let read = filesystem.read(self.name(n));
            let read = read.unwrap_or_else(|error| panic!("{what}: file {n}: {error}"));
            assert!(read == self.content(n), "{what}: file {n}");
        }
        filesystem.close().unwrap();
    }
}
