//! Tests of inspection.

mod against_engine;
mod broken_items;
mod broken_tables;
mod broken_versions;
mod damaged_blocks;
mod deltas;
mod dumps;
mod frames;
mod lost_log_end;
mod missing_features;
mod near;
mod newer;
mod older_leaves;
mod quota;
mod scrub;
mod shared_blocks;
mod single_corruptions;
mod snapshots;
mod sound_volumes;
mod striped;
mod support;
