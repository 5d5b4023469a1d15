//! Loads of whole files: which one is made next, and which one goes.

use std::collections::{HashMap, VecDeque};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// How files come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Small files in directories, as an archive unpacked: one directory after the other is filled,
    /// files deleted are any.
    Churn,
    /// Archives of such files unpacked, one after the other, each a third of what may be live; after each, and
    /// when there is no room for more of it, a third of all files goes, so that as many blocks stay live.
    Untar {
        /// Files go by whole directories; else any go, one in three everywhere.
        directories: bool,
    },
    /// As the compactions of an LSM tree: files of a sixteenth to a quarter of a zone, as tables of
    /// 64 MiB are to zones of 1 GiB. Half of the bytes written have a short life: their files are
    /// deleted in the order they came. The others live nine times as long: compactions take one key
    /// range after the other, so one of the oldest goes, but not always the oldest. They carry
    /// hints, or, to compare with, do not.
    Compaction {
        /// Each file says which kind it is.
        hints: bool,
    },
}

/// How long a file is said to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLife {
    /// Nothing is said.
    Unknown,
    /// Hint: short.
    Short,
    /// Hint: long.
    Long,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// A file appears.
    Make {
        /// Its number; none is used twice.
        file: u64,
        /// Directory to make it in.
        directory: u64,
        /// Length.
        blocks: u64,
        /// Hint.
        life: FileLife,
    },
    /// A file goes.
    Delete {
        /// Its number.
        file: u64,
        /// Its directory.
        directory: u64,
    },
}

/// Files of one directory, with [`Shape::Churn`].
const DIRECTORY_FILES: u64 = 100;
/// Archives that fit, with [`Shape::Untar`]; one in so many files goes when one was unpacked.
const ARCHIVES: u64 = 3;
/// Share of the live bytes that have a short life, with [`Shape::Compaction`].
const SHORT_SHARE: f64 = 0.1;
/// Of the files with a long life any of the oldest goes: of one in so many of them all.
const OLDEST_SHARE: usize = 8;

#[derive(Clone, Copy, Debug)]
struct File {
    file: u64,
    directory: u64,
    blocks: u64,
}

#[derive(Clone, Debug, Default)]
struct Kind {
    files: VecDeque<File>,
    blocks: u64,
    /// A file had to wait for another to go.
    full: bool,
}

/// Makes and deletes files so that about as many blocks are live as asked for.
#[derive(Clone, Debug)]
pub struct Files {
    shape: Shape,
    blocks_max: u64,
    zone_blocks: u64,
    next: u64,
    /// Long or unknown, and short.
    kinds: [Kind; 2],
    /// Made next, once there is room.
    waiting: Option<(usize, File)>,
    /// With [`Shape::Untar`]: blocks of the archive that are unpacked, and files about to go.
    unpacked: u64,
    going: Vec<File>,
    rng: ChaCha8Rng,
}

impl Files {
    /// None yet; at most `blocks_max` blocks will be live, on zones of `zone_blocks`.
    #[must_use]
    pub fn new(shape: Shape, blocks_max: u64, zone_blocks: u64, rng: ChaCha8Rng) -> Files {
        Files {
            shape,
            blocks_max,
            zone_blocks,
            next: 0,
            kinds: Default::default(),
            waiting: None,
            unpacked: 0,
            going: Vec::new(),
            rng,
        }
    }

    /// Blocks of all files that are there.
    #[must_use]
    pub fn live_blocks(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.blocks).sum()
    }

    /// At most so many blocks will be live from now on.
    pub fn bound(&mut self, blocks_max: u64) {
        self.blocks_max = blocks_max;
        for kind in &mut self.kinds {
            kind.full = false;
        }
    }

    /// Whether files of all kinds have had to wait for others to go since the bound was set.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let kinds = match self.shape {
            Shape::Churn | Shape::Untar { .. } => 1,
            Shape::Compaction { .. } => 2,
        };
        self.kinds.iter().take(kinds).all(|kind| kind.full)
    }

    /// What happens next.
    pub fn draw(&mut self) -> FileChange {
        if let Shape::Untar { directories } = self.shape {
            if self.going.is_empty() {
                let next = self.waiting.take().unwrap_or_else(|| self.invent());
                let is_over = self.live_blocks() + next.1.blocks > self.blocks_max;
                self.waiting = Some(next);
                if is_over || self.unpacked >= self.blocks_max / ARCHIVES {
                    self.unpacked = 0;
                    self.choose_going(directories);
                }
            }
            if let Some(gone) = self.going.pop() {
                return FileChange::Delete {
                    file: gone.file,
                    directory: gone.directory,
                };
            }
        }
        // Of an archive each does: it is full when something is chosen to go.
        let is_archive = matches!(self.shape, Shape::Untar { .. });
        let waited = self.waiting.is_some() && !is_archive;
        let (kind, file) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => self.invent(),
        };
        let bound = self.share(kind);
        if let Some(kind_now) = self.kinds.get_mut(kind)
            && kind_now.blocks + file.blocks > bound
            && let Some(gone) = take(kind_now, self.shape, kind, &mut self.rng)
        {
            self.waiting = Some((kind, file));
            return FileChange::Delete {
                file: gone.file,
                directory: gone.directory,
            };
        }
        self.unpacked += file.blocks;
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.blocks += file.blocks;
            kind.full |= waited;
            kind.files.push_back(file);
        }
        FileChange::Make {
            file: file.file,
            directory: file.directory,
            blocks: file.blocks,
            life: match (self.shape, kind) {
                (Shape::Churn | Shape::Untar { .. } | Shape::Compaction { hints: false }, _) => {
                    FileLife::Unknown
                }
                (Shape::Compaction { .. }, 0) => FileLife::Long,
                (Shape::Compaction { .. }, _) => FileLife::Short,
            },
        }
    }

    /// One in three files, or directories, is to go.
    fn choose_going(&mut self, directories: bool) {
        let Some(kind) = self.kinds.first_mut() else {
            return;
        };
        kind.full = true;
        let mut of_directories: HashMap<u64, bool> = HashMap::new();
        let rng = &mut self.rng;
        let mut draw = || rng.random_range(0..ARCHIVES) == 0;
        let (going, staying): (Vec<File>, Vec<File>) = kind.files.drain(..).partition(|file| {
            if directories {
                *of_directories
                    .entry(file.directory)
                    .or_insert_with(&mut draw)
            } else {
                draw()
            }
        });
        kind.files = staying.into();
        kind.blocks -= going.iter().map(|file| file.blocks).sum::<u64>();
        self.going = going;
    }

    fn share(&self, kind: usize) -> u64 {
        let short = (self.blocks_max as f64 * SHORT_SHARE) as u64;
        match (self.shape, kind) {
            (Shape::Churn | Shape::Untar { .. }, _) => self.blocks_max,
            (Shape::Compaction { .. }, 0) => self.blocks_max - short,
            (Shape::Compaction { .. }, _) => short,
        }
    }

    fn invent(&mut self) -> (usize, File) {
        let (kind, directory, blocks) = match self.shape {
            Shape::Churn | Shape::Untar { .. } => {
                // Sizes of source files: most small, some large.
                let magnitude = self.rng.random_range(0.0..8.0f64);
                let blocks = magnitude.exp2() as u64;
                (0, self.next / DIRECTORY_FILES, blocks.max(1))
            }
            Shape::Compaction { .. } => {
                let kind = self.rng.random_range(0..2);
                let blocks = self.zone_blocks / 16..=self.zone_blocks / 4;
                (kind, 0, self.rng.random_range(blocks).max(1))
            }
        };
        let file = self.next;
        self.next += 1;
        let file = File {
            file,
            directory,
            blocks: blocks.min(self.share(kind).max(1)),
        };
        (kind, file)
    }
}

fn take(kind: &mut Kind, shape: Shape, number: usize, rng: &mut ChaCha8Rng) -> Option<File> {
    if kind.files.is_empty() {
        return None;
    }
    let gone = match (shape, number) {
        (Shape::Compaction { .. }, 1) => kind.files.pop_front(),
        (Shape::Compaction { .. }, _) => {
            let oldest = kind.files.len().div_ceil(OLDEST_SHARE);
            kind.files.remove(rng.random_range(0..oldest))
        }
        _ => kind
            .files
            .swap_remove_back(rng.random_range(0..kind.files.len())),
    }?;
    kind.blocks -= gone.blocks;
    Some(gone)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn live_blocks_stay_within_the_bound_and_files_go_once() {
        for shape in [
            Shape::Churn,
            Shape::Untar { directories: false },
            Shape::Untar { directories: true },
            Shape::Compaction { hints: true },
        ] {
            let mut files = Files::new(shape, 50_000, 512, ChaCha8Rng::seed_from_u64(1));
            let mut there = HashMap::new();
            let mut most = 0;
            for _ in 0..20_000 {
                match files.draw() {
                    FileChange::Make {
                        file,
                        blocks,
                        directory,
                        ..
                    } => assert_eq!(there.insert(file, (directory, blocks)), None),
                    FileChange::Delete { file, directory } => {
                        assert_eq!(there.remove(&file).map(|f| f.0), Some(directory));
                    }
                }
                let live: u64 = there.values().map(|f| f.1).sum();
                let going: u64 = files.going.iter().map(|f| f.blocks).sum();
                assert_eq!(live - going, files.live_blocks());
                most = most.max(live);
            }
            assert!((45_000..=50_000).contains(&most), "{shape:?}: {most}");
        }
    }

    /// Single files went when an archive found no room, and the directories of which some had gone were no longer
    /// taken for one: parts of them stayed. What was measured was not directories that go.
    #[test]
    fn of_a_directory_all_files_go_or_none() {
        let shape = Shape::Untar { directories: true };
        let mut files = Files::new(shape, 50_000, 512, ChaCha8Rng::seed_from_u64(2));
        let mut there: HashMap<u64, u64> = HashMap::new();
        let (mut going, mut rounds) = (HashMap::new(), 0);
        for _ in 0..30_000 {
            match files.draw() {
                FileChange::Make { directory, .. } => {
                    rounds += u64::from(!going.is_empty());
                    for (directory, gone) in going.drain() {
                        assert_eq!(
                            there.remove(&directory),
                            Some(gone),
                            "directory {directory}"
                        );
                    }
                    *there.entry(directory).or_default() += 1;
                }
                FileChange::Delete { directory, .. } => *going.entry(directory).or_default() += 1,
            }
        }
        assert!(rounds > 20, "{rounds}");
    }
}
