//! Quota.

use std::ffi::{c_char, c_int};
use std::path::Path;

use persimmon::{NewLimits, Owner, OwnerKind, OwnerQuota};

use crate::call::{Failure, Result, answer, call, object, path, structure};
use crate::persimmon_fs;

/// Kind of an owner: a user.
pub const PERSIMMON_QUOTA_USER: u32 = 1;
/// A group.
pub const PERSIMMON_QUOTA_GROUP: u32 = 2;
/// A project: of a directory tree.
pub const PERSIMMON_QUOTA_PROJECT: u32 = 3;

/// What somebody takes, and may take.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_quota {
    /// Bytes taken; not read where limits are set.
    pub bytes: u64,
    /// Bytes that may be taken for the grace time at most; 0 is no limit.
    pub bytes_soft: u64,
    /// Bytes that may be taken at all; 0 is no limit.
    pub bytes_hard: u64,
    /// When the soft limit becomes a hard one, seconds since 1970; 0 where it is not exceeded. Not read where limits are set.
    pub bytes_grace_end: i64,
    /// Inodes taken; not read where limits are set.
    pub inodes: u64,
    /// Inodes that may be taken for the grace time at most; 0 is no limit.
    pub inodes_soft: u64,
    /// Inodes that may be taken at all; 0 is no limit.
    pub inodes_hard: u64,
    /// As of bytes.
    pub inodes_grace_end: i64,
}

/// Told what each owner takes: `kind`, `id`, and `data` as it was given.
pub type persimmon_quota_visit = Option<
    unsafe extern "C" fn(
        data: *mut std::ffi::c_void,
        kind: u32,
        id: u32,
        quota: *const persimmon_quota,
    ),
>;

impl persimmon_quota {
    fn new(quota: &OwnerQuota) -> persimmon_quota {
        persimmon_quota {
            bytes: quota.bytes_used(),
            bytes_soft: quota.bytes.soft,
            bytes_hard: quota.bytes.hard,
            bytes_grace_end: quota.bytes_grace_end.unwrap_or(0),
            inodes: quota.usage.inodes,
            inodes_soft: quota.inodes.soft,
            inodes_hard: quota.inodes.hard,
            inodes_grace_end: quota.inodes_grace_end.unwrap_or(0),
        }
    }
}

fn owner(kind: u32, id: u32) -> Result<Owner> {
    let kind = match kind {
        PERSIMMON_QUOTA_USER => OwnerKind::User,
        PERSIMMON_QUOTA_GROUP => OwnerKind::Group,
        PERSIMMON_QUOTA_PROJECT => OwnerKind::Project,
        kind => {
            return Err(Failure::invalid(format!(
                "there is no owner of kind {kind}"
            )));
        }
    };
    Ok(Owner { kind, id })
}

/// Turns quota on, or off where `is_on` is 0. What is there is counted before this returns. Limits stay while it is off.
///
/// # Safety
/// `fs` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_turn_quota(fs: *const persimmon_fs, is_on: c_int) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let fs = unsafe { object(fs) }?;
        match is_on {
            0 => fs.0.turn_quota_off()?,
            _ => fs.0.turn_quota_on(false)?,
        }
        Ok(())
    })
}

/// What somebody takes, and may take.
///
/// # Safety
/// `fs` is a handle; `quota` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_get_quota(
    fs: *const persimmon_fs,
    kind: u32,
    id: u32,
    quota: *mut persimmon_quota,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, quota) = unsafe { (object(fs)?, answer(quota)?) };
        quota.write(persimmon_quota::new(&fs.0.quota(owner(kind, id)?)?));
        Ok(())
    })
}

/// Limits somebody: sets all four limits. They may take more than that already; then they may take no more before it is less. `EOPNOTSUPP`:
/// quota is off.
///
/// # Safety
/// `fs` is a handle; `limits` what they are to be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_set_quota(
    fs: *const persimmon_fs,
    kind: u32,
    id: u32,
    limits: *const persimmon_quota,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, limits) = unsafe { (object(fs)?, structure(limits, "the quota")?) };
        let limits = NewLimits {
            bytes_soft: Some(limits.bytes_soft),
            bytes_hard: Some(limits.bytes_hard),
            inodes_soft: Some(limits.inodes_soft),
            inodes_hard: Some(limits.inodes_hard),
        };
        fs.0.set_quota(owner(kind, id)?, &limits)?;
        Ok(())
    })
}

/// Calls `visit` with each owner who takes anything, or is limited.
///
/// # Safety
/// `fs` is a handle; `visit` may be called with `data`, and does not keep what it is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_list_quota(
    fs: *const persimmon_fs,
    visit: persimmon_quota_visit,
    data: *mut std::ffi::c_void,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let fs = unsafe { object(fs) }?;
        let visit = visit.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        for known in fs.0.quotas()? {
            let quota = persimmon_quota::new(&known);
            // SAFETY: as the caller promises.
            unsafe {
                visit(
                    data,
                    known.owner.kind as u32,
                    known.owner.id,
                    &raw const quota,
                )
            };
        }
        Ok(())
    })
}

/// Gives a directory and all that is in it a project, or none (0): what is made in it has it too. `EOPNOTSUPP`: quota was never on.
///
/// # Safety
/// `fs` is a handle; `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_set_project(
    fs: *const persimmon_fs,
    name: *const c_char,
    project: u32,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, name): (_, &Path) = unsafe { (object(fs)?, path(name)?) };
        fs.0.set_project(name, project)?;
        Ok(())
    })
}
