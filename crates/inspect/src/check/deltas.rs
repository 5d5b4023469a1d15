//! Deltas of blocks: each is of something that is stored.

use std::rc::Rc;

use persimmon_format::delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::{FLAG_DELTAS, Inode};
use persimmon_format::zone_header::DELTAS;
use persimmon_format::{Ino, Key};

use super::files::{Context, item};
use crate::finding::{DELTA_BASE, DELTA_FLAG, ITEM_VALUE};
use crate::state::{At, Base};

/// Checks an item at the place of a delta, as it is stored.
pub(super) fn stored(context: &mut Context<'_, '_>, key: &Key, extent: &Extent) {
    if context.inspector.identity.incompatible & DELTAS == 0 {
        let detail = "the volume has no deltas";
        context.findings.add(&ITEM_VALUE, item(key), detail);
    } else if !extent.fits_at(key.item) {
        let detail = "no delta is so";
        context.findings.add(&ITEM_VALUE, item(key), detail);
    }
}

/// Checks a delta that is shown, and the block that it is of.
pub(super) fn shown(context: &mut Context<'_, '_>, key: &Key, extent: &Extent) {
    if matches!(extent, Extent::Hole { .. }) || context.lost {
        return;
    }
    let block = delta::block_at(key.item);
    let place = format!("inode {}, block {block}", key.ino);
    let at = At {
        ino: key.ino,
        scope: Rc::clone(&context.scope),
    };
    let reads = context.options.data;
    match context.state.base_of(&at, block, reads) {
        Base::None => {
            context
                .findings
                .add(&DELTA_BASE, place, "nothing is stored");
            context.plan.delete(*key);
        }
        Base::Content(mut content) if reads => {
            // A delta that cannot be read is told where it is stored.
            let delta = context.state.delta_bytes(extent);
            if delta.is_some_and(|delta| !delta::apply(&delta, &mut content)) {
                let detail = "something else is stored";
                context.findings.add(&DELTA_BASE, place, detail);
            }
        }
        Base::Content(_) | Base::Unreadable => {}
    }
}

/// Checks that an inode with deltas says so: else nobody looks for them.
pub(super) fn check_flag(context: &mut Context<'_, '_>, ino: Ino, inode: &Inode, place: &str) {
    if inode.flags & FLAG_DELTAS == 0 {
        context.findings.add(&DELTA_FLAG, place, "");
        context
            .plan
            .correct(ino, |c| c.set_flag(inode, FLAG_DELTAS));
    }
}
