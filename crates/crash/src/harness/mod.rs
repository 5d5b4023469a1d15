//! Runs workloads on simulated devices, cuts the power, lets the system recover and compares what
//! it finds with the model.
//!
//! A run goes by its seed: geometry of the device, workload, moments of the power cuts, what each
//! of them leaves. The workload itself is never interrupted: the device keeps snapshots while it
//! works, and every crash state is made from one of them. A crash state is recovered, compared,
//! checked by the inspector; some crash again while recovering, and
//! some go on working and are compared once more.

mod campaign;
mod case;
mod crash;
mod plan;
mod run;
mod shrink;
mod statistics;
mod system;

pub use campaign::{Campaign, CampaignReport, Selection};
pub use case::{Case, Failure, Phase};
pub(crate) use plan::{
    EDITS, LIMITS_FROM, NEAR, OWNERS_FROM, QUOTAS_FROM, REPEATING, has_long_xattrs,
};
pub use plan::{Origin, Plan};
pub(crate) use run::panic_message;
pub use run::{compare_exactly, replay};
pub use shrink::shrink;
pub use statistics::{Counts, Images, Statistics};
pub use system::{Failures, Refusal, Subject, System};
