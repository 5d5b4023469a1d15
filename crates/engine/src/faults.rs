//! Deliberate mistakes, to show that the crash tests can fail. Without the feature
//! `deliberate-faults` every check here is `false` when it is compiled; with it a thread makes the
//! one mistake that it asked for.

use persimmon_device::faults::LeftOut;

/// One mistake. Each stands at the one place of the code that its name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// fsync sends the record after the data without a flush between them, and recovery takes
    /// every record for granted: the classic way.
    UnsafeClassic,
    /// Recovery does not compare the data of a record with the write pointer.
    NoWritePointerCheck,
    /// Zones that the cut found empty are reset before the footer is durable.
    ResetBeforeCheckpoint,
    /// What was written is acknowledged without a flush.
    AcknowledgedUnflushed,
    /// The flush of a group commit does not wait for the data that is under way.
    FlushedBeforeData,
    /// fsync of a file with nothing staged is no sync of what happened to it before.
    CleanFileNotSynced,
    /// A record whose data failed is acknowledged without the checkpoint that leaves it behind.
    FailedDataAcknowledged,
    /// A log block calls records durable that are only on their way with it.
    DurableLsnTooHigh,
    /// Replay leaves out a record whose data did not arrive, and goes on behind it.
    LostRecordSkipped,
    /// The last record of a batch is put before the others.
    RecordJumpsQueue,
    /// What arrived of the last record is taken for all of it.
    TornRecordAccepted,
    /// Recovery goes on in the epoch whose tail it cut.
    EpochKept,
    /// Replay leaves out sizes and times.
    TouchesNotReplayed,
    /// A checkpoint's cut counts one record too many.
    CutTooHigh,
    /// The footer is written while its pages are still in the device's cache.
    FooterBeforePages,
    /// Zones are reset while the footer is still in the device's cache.
    FooterUnflushed,
    /// The blocks of a new extent are not counted in their zone.
    ExtentNotCounted,
    /// A block that is written anew keeps its delta.
    DeltaKept,
    /// Blocks that are punched out stay counted in their zone.
    PunchNotCounted,
    /// A zone of file data counts a packing unit too little after each extent that becomes invalid in it.
    ValidMiscounted,
    /// Cleaning moves what a summary names, even if the file has something newer there.
    StaleBlocksMoved,
    /// fsync makes the new size durable before it sends the data.
    SizeBeforeData,
    /// The read cache is not told that a file changes.
    ChangeNotCounted,
    /// A shorter file keeps the bytes beyond its end in its last block.
    TailNotZeroed,
    /// A rename over a file does not commit the new file's data first.
    RenameUncommitted,
    /// A file that lost its last name is not remembered as an orphan.
    OrphanForgotten,
    /// The place of a page that was freed stays in the MAT.
    FreedPageKept,
    /// Records behind a bad block of the journal are replayed as if none were missing.
    GapIgnored,
    /// The records that end in one block of the journal are replayed from the last to the first.
    ReplayedBackwards,
    /// A checkpoint of the zones alone counts one record too many.
    CountedTooHigh,
    /// A checkpoint of the zones alone resets zones before its footer is durable.
    ResetBeforeZones,
    /// Replay counts what a checkpoint of the zones alone had counted.
    CountedTwice,
    /// Recovery goes on with the inode number behind the last that is in use.
    NumbersReused,
    /// Inode numbers of a lot are given out before its record is durable.
    LotNotWaitedFor,
    /// A flush acknowledges what was written while it went on.
    FlushTakesMore,
    /// Who finds somebody flushing takes that for done.
    FlushNotWaitedFor,
    /// fsync does not wait for a batch of the file that is under way.
    WriteBackNotWaitedFor,
    /// A zone into which data is on its way counts as one that holds nothing.
    FillingNotSeen,
    /// What an owner takes more with a record is not counted.
    OwnerNotCharged,
    /// Hard limits of what owners may take do not count.
    LimitIgnored,
    /// A hard limit refuses what just fits.
    LimitTooLow,
    /// A soft limit never becomes a hard one.
    GraceNotEnded,
    /// A soft limit that is exceeded anew goes on with the grace time of when it was exceeded before.
    GraceKept,
    /// What is made in a directory does not have its project.
    ProjectNotInherited,
    /// Quota that is turned on goes on with what was counted when it was turned off.
    CountNotAnew,
    /// While owners are counted, what is not counted yet counts where it changes, too.
    CountedAhead,
    /// Blocks that were equal when they were compared are shared whatever has become of them since.
    DuplicateNotLookedUp,
    /// A name or an attribute that a snapshot has is removed without hiding what the snapshot has.
    WhiteoutForgotten,
    /// Blocks that a snapshot has are punched out without hiding what the snapshot has.
    HoleForgotten,
    /// Of what a version has since it absorbed another one, the older is kept, and the newer goes.
    OlderSettled,
    /// What a version has twice since it absorbed another one stays for ever.
    AbsorbedNotSettled,
    /// What was made in a snapshot that was deleted, or in what a roll-back left behind, stays for ever.
    MadeNotSettled,
    /// A snapshot is taken without what is staged.
    SnapshotWithoutStaged,
    /// One more file has shared blocks, or they are one more frame's dictionary, and they count as before.
    ReferenceNotAdded,
    /// A file has shared blocks no more, and they count as before.
    ReferenceNotDropped,
    /// A frame does not count as one that needs its dictionary.
    DictionaryNotCounted,
    /// Cleaning folds a delta into a block to which somebody is making another one. A test of its own has that happen.
    HeldBaseFolded,
    /// A thread panics with the first of the changes of a transaction made, and the others not. Not one to be caught by
    /// a harness: all others have to go on without it.
    PanicHalfWay,
    /// A thread panics with a batch of the log on its way to the device.
    PanicInLog,
}

impl Fault {
    /// Those that take two threads at once to do harm.
    pub const OF_SEVERAL: [Fault; 4] = [
        Fault::FlushTakesMore,
        Fault::FlushNotWaitedFor,
        Fault::WriteBackNotWaitedFor,
        Fault::FillingNotSeen,
    ];

    /// All others.
    pub const ALL: [Fault; 52] = [
        Fault::UnsafeClassic,
        Fault::NoWritePointerCheck,
        Fault::ResetBeforeCheckpoint,
        Fault::AcknowledgedUnflushed,
        Fault::FlushedBeforeData,
        Fault::CleanFileNotSynced,
        Fault::FailedDataAcknowledged,
        Fault::DurableLsnTooHigh,
        Fault::LostRecordSkipped,
        Fault::RecordJumpsQueue,
        Fault::TornRecordAccepted,
        Fault::EpochKept,
        Fault::TouchesNotReplayed,
        Fault::CutTooHigh,
        Fault::FooterBeforePages,
        Fault::FooterUnflushed,
        Fault::ExtentNotCounted,
        Fault::DeltaKept,
        Fault::PunchNotCounted,
        Fault::ValidMiscounted,
        Fault::StaleBlocksMoved,
        Fault::SizeBeforeData,
        Fault::ChangeNotCounted,
        Fault::TailNotZeroed,
        Fault::RenameUncommitted,
        Fault::OrphanForgotten,
        Fault::FreedPageKept,
        Fault::GapIgnored,
        Fault::ReplayedBackwards,
        Fault::CountedTooHigh,
        Fault::ResetBeforeZones,
        Fault::CountedTwice,
        Fault::NumbersReused,
        Fault::LotNotWaitedFor,
        Fault::OwnerNotCharged,
        Fault::LimitIgnored,
        Fault::LimitTooLow,
        Fault::GraceNotEnded,
        Fault::GraceKept,
        Fault::ProjectNotInherited,
        Fault::CountNotAnew,
        Fault::CountedAhead,
        Fault::DuplicateNotLookedUp,
        Fault::WhiteoutForgotten,
        Fault::HoleForgotten,
        Fault::OlderSettled,
        Fault::AbsorbedNotSettled,
        Fault::MadeNotSettled,
        Fault::SnapshotWithoutStaged,
        Fault::ReferenceNotAdded,
        Fault::ReferenceNotDropped,
        Fault::DictionaryNotCounted,
    ];
}

/// What is right, or `wrong` where this mistake is made.
pub fn instead<T>(mistake: Fault, wrong: T, right: T) -> T {
    if fault(mistake) { wrong } else { right }
}

/// Does what is right, but not where the mistake is to leave it out.
pub fn unless<R: LeftOut>(mistake: Fault, right: impl FnOnce() -> R) -> R {
    if fault(mistake) { R::LEFT_OUT } else { right() }
}

/// For [`Fault::RecordJumpsQueue`]: puts the last of the framed records before the others.
pub(crate) fn last_jumps_queue(records: &mut [u8], sizes: &mut [u32]) {
    if let Some(size) = sizes.last().filter(|_| fault(Fault::RecordJumpsQueue)) {
        records.rotate_right(*size as usize);
        sizes.rotate_right(1);
    }
}

/// For [`Fault::ReplayedBackwards`]: leaves the numbers, and reverses what has them.
pub(crate) fn reverse<N: Copy, T>(numbered: &mut [(N, T)]) {
    if fault(Fault::ReplayedBackwards) {
        let numbers: Vec<N> = numbered.iter().map(|(number, _)| *number).collect();
        numbered.reverse();
        for ((number, _), right) in numbered.iter_mut().zip(numbers) {
            *number = right;
        }
    }
}

/// Panics where asked to.
pub(crate) fn panic_if(mistake: Fault) {
    if fault(mistake) {
        // Not by `panic!`, which is for nothing else in this crate either.
        std::panic::resume_unwind(Box::new("a deliberate panic"));
    }
}

#[cfg(feature = "deliberate-faults")]
thread_local! {
    static MADE: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread makes this mistake, and no other.
#[cfg(feature = "deliberate-faults")]
pub fn make(mistake: Option<Fault>) {
    MADE.set(mistake);
}

/// The mistake of threads that nobody asked, as its number and one more.
#[cfg(feature = "deliberate-faults")]
static EVERYWHERE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// From now on every thread of this process makes this mistake, background threads included.
#[cfg(feature = "deliberate-faults")]
pub fn make_everywhere(mistake: Option<Fault>) {
    let mistake = mistake.map_or(0, |mistake| mistake as usize + 1);
    EVERYWHERE.store(mistake, std::sync::atomic::Ordering::Relaxed);
}

/// Whether to make this mistake here.
#[cfg(feature = "deliberate-faults")]
#[must_use]
pub fn fault(mistake: Fault) -> bool {
    let everywhere = EVERYWHERE.load(std::sync::atomic::Ordering::Relaxed);
    MADE.get() == Some(mistake) || everywhere == mistake as usize + 1
}

/// Whether to make this mistake here: never.
#[cfg(not(feature = "deliberate-faults"))]
#[inline(always)]
#[must_use]
pub const fn fault(_: Fault) -> bool {
    false
}
