//! Deliberate mistakes of the image and of stripe sets, to show that the crash tests can fail. Without the feature `deliberate-faults`
//! every check here is `false` when it is compiled; with it the whole process makes the one mistake that it asked for,
//! because the threads that flush are not those that the test started.

/// One mistake. Each stands at the one place of the code that its name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// A flush makes the file durable without the write pointers.
    TableNotWritten = 1,
    /// A flush makes the file durable before it writes the write pointers.
    TableAfterSync,
    /// Who comes while a flush is under way takes that one for its own.
    FlushSharedTooEarly,
    /// A reset gives back the space of the zone behind it, too, which is not free.
    PunchTooLong,
    /// The parity of a row leaves out its last block.
    ParityLeavesOut,
    /// A write to a stripe set is over when all zones but the last have what is theirs.
    SetNotWaitedFor,
    /// What a crash tore of a stripe set's rows is filled up with zeros, the parity too.
    ParityNotMadeGood,
}

impl Fault {
    /// Those of stripe sets.
    pub const OF_STRIPES: [Fault; 3] = [
        Fault::ParityLeavesOut,
        Fault::SetNotWaitedFor,
        Fault::ParityNotMadeGood,
    ];

    /// Those of the image.
    pub const OF_IMAGE: [Fault; 4] = [
        Fault::TableNotWritten,
        Fault::TableAfterSync,
        Fault::FlushSharedTooEarly,
        Fault::PunchTooLong,
    ];
}

/// What is answered of what was left out.
pub trait LeftOut {
    /// Nothing was wrong with it.
    const LEFT_OUT: Self;
}

impl LeftOut for () {
    const LEFT_OUT: () = ();
}

impl<E> LeftOut for Result<(), E> {
    const LEFT_OUT: Result<(), E> = Ok(());
}

/// Does what is right, but not where the mistake is to leave it out.
pub(crate) fn unless<R: LeftOut>(mistake: Fault, right: impl FnOnce() -> R) -> R {
    if fault(mistake) { R::LEFT_OUT } else { right() }
}

/// Does something where it is this mistake.
pub(crate) fn only_if<R: LeftOut>(mistake: Fault, wrong: impl FnOnce() -> R) -> R {
    if fault(mistake) { wrong() } else { R::LEFT_OUT }
}

#[cfg(feature = "deliberate-faults")]
static MADE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// From now on every device of this process makes this mistake, and no other.
#[cfg(feature = "deliberate-faults")]
pub fn make(mistake: Option<Fault>) {
    let mistake = mistake.map_or(0, |mistake| mistake as u8);
    MADE.store(mistake, std::sync::atomic::Ordering::Relaxed);
}

/// Whether to make this mistake here.
#[cfg(feature = "deliberate-faults")]
pub(crate) fn fault(mistake: Fault) -> bool {
    MADE.load(std::sync::atomic::Ordering::Relaxed) == mistake as u8
}

/// Whether to make this mistake here: never.
#[cfg(not(feature = "deliberate-faults"))]
#[inline(always)]
pub(crate) const fn fault(_: Fault) -> bool {
    false
}
