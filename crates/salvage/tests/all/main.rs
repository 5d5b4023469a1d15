//! Tests of salvage.

mod damage;
mod deltas;
mod grown;
mod log_lost;
mod mend;
mod near;
mod newer_blocks;
mod older;
mod quota;
mod shared_blocks;
mod snapshots;
mod striped;
mod support;
