//! Counters. What the device was sent is counted where it is sent, by class. All are declared in one list: what is added there is counted,
//! told as [`Statistics`], and in what `persimmon stats --json` prints.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_sync::PerThread;

/// Hands the list to a macro: first bytes written, by their class, then everything else that is only ever added to.
#[doc(hidden)]
#[macro_export]
macro_rules! with_statistics {
    ($then:ident) => {
        $then! {
            written {
                /// File data, first time.
                data_bytes: Data,
                /// File data moved by cleaning.
                cleaned_data_bytes: CleanedData,
                /// Summary blocks and zone headers.
                summary_bytes: Summary,
                /// Metadata pages.
                metadata_bytes: Metadata,
                /// Metadata pages moved by cleaning.
                cleaned_metadata_bytes: CleanedMetadata,
                /// Journal blocks.
                journal_bytes: Journal,
                /// Footers and table chunks.
                checkpoint_bytes: Checkpoint,
            }
            counted {
                /// Bytes read.
                read_bytes,
                /// Blocks of files that became shared while they were written, for they were stored already.
                deduplicated_blocks,
                /// Blocks of files that small reads found in memory, in the read cache.
                read_cache_hits,
                /// Blocks of files that they did not.
                read_cache_misses,
                /// Write and append commands.
                write_commands,
                /// Read commands.
                read_commands,
                /// Device flushes.
                flushes,
                /// Zone resets.
                resets,
                /// Checkpoints, those of the zones alone left out.
                checkpoints,
                /// Checkpoints of the zones alone: they free zones, and write no pages.
                zone_checkpoints,
                /// Victims cleaned because somebody waited for room.
                cleaning_foreground,
                /// Victims cleaned ahead.
                cleaning_background,
                /// Blocks moved by cleaning.
                blocks_moved,
                /// Differences of blocks that cleaning made one with what they are of.
                deltas_folded,
                /// Operations that had to wait for a checkpoint or for cleaning.
                stalls,
                /// Journal commits.
                commits,
                /// Redo records.
                records,
                /// Metadata pages that requests looked at, each time counted.
                pages_looked_at,
                /// Metadata pages read into memory for that.
                pages_fetched,
            }
        }
    };
}

macro_rules! declare {
    (
        written { $($(#[$written_doc:meta])* $written:ident: $class:ident,)* }
        counted { $($(#[$counted_doc:meta])* $counted:ident,)* }
    ) => {
        /// Why bytes are written to the device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Class {
            $($(#[$written_doc])* $class,)*
        }

        const CLASSES: usize = [$(Class::$class),*].len();

        /// Live counters of one thread, or of a few.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            written: [AtomicU64; CLASSES],
            pub(crate) user_bytes: AtomicU64,
            $(pub(crate) $counted: AtomicU64,)*
        }

        /// What a volume did since it was opened. Bytes are as sent to the device.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            /// File data that was flushed, as the user wrote it (whole blocks).
            pub user_bytes: u64,
            $($(#[$written_doc])* pub $written: u64,)*
            $($(#[$counted_doc])* pub $counted: u64,)*
            /// The most file data that waited in memory, bytes.
            pub staged_bytes_peak: u64,
            /// Memory that hashes of blocks take for deduplication while writing, bytes.
            pub dedup_table_bytes: u64,
        }

        impl Counters {
            /// As of now; the peak and the table are known elsewhere.
            pub(crate) fn snapshot(&self) -> Statistics {
                let sum = |counter: &dyn Fn(&Counts) -> &AtomicU64| {
                    self.0.iter().map(|counts| counter(counts).load(Ordering::Relaxed)).sum()
                };
                Statistics {
                    user_bytes: sum(&|counts| &counts.user_bytes),
                    $($written: sum(&|counts| &counts.written[Class::$class as usize]),)*
                    $($counted: sum(&|counts| &counts.$counted),)*
                    staged_bytes_peak: 0,
                    dedup_table_bytes: 0,
                }
            }
        }

        impl Statistics {
            /// What was done since `before`, an earlier moment of the same volume; the peak and the table stay as they are.
            #[must_use]
            pub fn since(&self, before: &Statistics) -> Statistics {
                Statistics {
                    user_bytes: self.user_bytes - before.user_bytes,
                    $($written: self.$written - before.$written,)*
                    $($counted: self.$counted - before.$counted,)*
                    staged_bytes_peak: self.staged_bytes_peak,
                    dedup_table_bytes: self.dedup_table_bytes,
                }
            }

            /// All bytes sent to the device.
            #[must_use]
            pub fn device_bytes(&self) -> u64 {
                [$(self.$written),*].iter().sum()
            }
        }
    };
}

with_statistics!(declare);

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Live counters. Readers that meet at nothing else would meet at these.
#[derive(Debug, Default)]
pub(crate) struct Counters(PerThread<Counts>);

/// Those of this thread.
impl Deref for Counters {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        self.0.own()
    }
}

impl Counts {
    pub(crate) fn wrote(&self, class: Class, bytes: u64) {
        add(&self.written[class as usize], bytes);
        add(&self.write_commands, 1);
    }
}

impl Statistics {
    /// Bytes sent to the device per byte the user flushed; 0 before the first.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            0.0
        } else {
            self.device_bytes() as f64 / self.user_bytes as f64
        }
    }
}
