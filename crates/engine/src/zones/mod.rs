//! Zones: which is used for what, who writes where, what is free.
//!
//! The Zone Information Table and the free zones (the Zone Bitmap) are in memory; allocation
//! never asks the device.

mod allocation;
pub(crate) mod budget;
pub(crate) mod failure;
mod pairs;
pub(crate) mod pin;
mod retry;
pub(crate) mod table;
pub(crate) mod writer;

pub(crate) use budget::Budget;
pub(crate) use pairs::Pairs;
pub(crate) use pin::Pin;
pub(crate) use retry::Tries;
pub(crate) use table::{Cut, Stream, Zones};
pub(crate) use writer::{Placed, Run, RunPiece, ZoneWriter};
