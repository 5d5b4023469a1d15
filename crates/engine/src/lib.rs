//! The append-only engine of Persimmon.

pub mod meta;
