//! Virtual time: how long the commands of a simulated device take, and how several threads that
//! use it share one clock.
//!
//! **What is modelled.** A drive of *dies*. Each zone belongs to one ([`Dies`]); the commands of one
//! die run one after the other in the order of submission, dies run in parallel. A command takes a
//! fixed time and a time for each KiB it moves ([`Cost`]), from the moment when it is submitted and
//! its die is free. Reads may have dies of their own, over which zones are spread ([`Reads`]). A flush takes its time from its submission: it waits for no die and delays
//! none, and several flushes overlap, which favours who flushes often. A device without a volatile
//! cache is never sent one.
//! Zone reports take no time, nor do commands that find no power.
//!
//! Whoever waits for a command ([`persimmon_device::Pending::wait`]) finds its clock at the
//! completion of that command; a command nobody waits for keeps its die busy all the same. Nothing
//! but waiting moves a clock: computing takes no time, locks take no time, memory takes no time.
//! So a figure in virtual time tells what the *order and number of device commands* cost, and
//! nothing else.
//!
//! Timing changes no state. What a command does, and what a power cut may leave of it, is as
//! [`crate::device`] says; with [`crate::Completions::AtSubmit`] its effect is there when it is
//! submitted, though its caller is held until the virtual completion.
//!
//! **Several threads** ([`VirtualClock::run`]) are simulated clients, each with a clock of its own.
//! One of them has the turn: the one with the smallest clock, and of several such the first of the
//! list. It keeps the turn until it waits for the device or sleeps ([`VirtualClock::sleep`]). A
//! command is only submitted by the client that has the turn. So commands reach the device in the
//! order of virtual time, whatever the machine does.
//!
//! A client can also block where the simulator does not see it, in a condition variable of the code
//! under test: a follower of a group commit does. The turn goes on only when every client is
//! either parked in the clock or asleep in a futex *for certain*: the kernel tells the state of each
//! thread and how often it ran (`/proc/self/task`), and what did not run between two looks slept
//! all the time. A sleeper that is woken runs at once, beside the client that woke it, and carries
//! on at that client's virtual time, which cannot move before the woken one is parked or asleep
//! again. This is exact: no wait is guessed, no look at the real clock shows in a virtual one. It
//! asks for Linux, and that clients share no locks with threads that are no clients.
//!
//! **What is not reproducible to the last digit.** With one client at a time everything is. With
//! several, those that are woken at one virtual instant run side by side with who woke them, and
//! which of them, say, leads the next group commit is up to the kernel. A client that begins its
//! next operation in the very instant in which the last one ended may or may not be in time for
//! that commit. So let operations take a little time ([`VirtualClock::sleep`]), as a processor
//! does: then only whose thread does a piece of work is open, not which commands are sent when.
//!
//! **Several clients without threads** ([`VirtualClock::play`]) are reproducible to the last digit. One thread carries out a
//! whole turn of a client, then one of the client whose clock is behind all others. Commands wait for what their
//! die was given before, by whichever client. What clients do not do is wait for each other's locks, or share a commit; and a
//! command can wait for one of a turn that began earlier in virtual time, though that one is submitted later. So a figure
//! is an upper bound of what the device makes clients wait, and holds nothing of locks.

mod blocked;
mod clients;
mod clock;
mod timing;
mod turns;

pub(crate) use timing::Schedule;

pub use clients::Client;
pub use clock::VirtualClock;
pub use timing::{Cost, Dies, Reads, Timing};
pub use turns::{Player, Turn};
