//! Zones: which is used for what, who writes where, what is free.
//!
//! The Zone Information Table and the free zones (the Zone Bitmap) are in memory; allocation
//! never asks the device.

mod allocation;
pub(crate) mod budget;
mod checkout;
mod counts;
mod cut;
mod entries;
pub(crate) mod failure;
mod free;
mod large;
mod layout;
pub(crate) mod lifetime;
pub(crate) mod locked;
mod log_candidates;
pub(crate) mod log_zones;
mod open_zones;
mod padding;
pub(crate) mod pin;
mod resets;
mod retry;
mod start;
mod stream;
mod survival;
pub(crate) mod table;
pub(crate) mod trace;
mod under_way;
mod victim_index;
pub(crate) mod victims;
pub(crate) mod writer;
mod zone_counts;

pub(crate) use allocation::Reserve;
pub(crate) use budget::{Budget, Pages, Written};
pub(crate) use large::{EvacuationRoom, LastSpare};
pub(crate) use layout::{DeviceKind, Layout, PerDevice};
pub(crate) use lifetime::{Life, Lives};
pub(crate) use log_candidates::Candidates;
pub(crate) use pin::Pin;
pub(crate) use resets::Keeping;
pub(crate) use retry::Tries;
pub(crate) use stream::Stream;
pub(crate) use table::{ZoneCut, Zones};
pub(crate) use victims::VictimPolicy;
pub(crate) use writer::{MovedFrom, PackedFrame, Placed, Run, ZoneWriter};
pub(crate) use zone_counts::ZoneCounts;
