//! `persimmon snapshot prune`: which snapshots go, and what became of them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use persimmon::vfs::SubvolumeId;
use persimmon_fuse::size::show_bytes;
use serde::Serialize;

use super::{Place, Prune, named, own_bytes};
use crate::control::Name;
use crate::control::snapshots::Row;
use crate::exit;
use crate::fs::Access;
use crate::output::{self, say};

impl Prune {
    pub(super) fn run(&self) -> Result<u8> {
        let access = if self.dry_run {
            Access::Read
        } else {
            Access::Write
        };
        let place = Place::of(&self.target, access)?;
        let held = self.dry_run.then(|| place.held()).transpose()?;
        let mut rows = place.rows()?;
        // One series at a time: what was taken of something else is newer for no reason of this one.
        let origin = match &self.of {
            Some(of) => named(&rows, of)?.id,
            None => place.subvolume(),
        };
        // Earlier builds left snapshots whose origin is gone: they count as the main one's.
        let ids: HashSet<u16> = rows.iter().map(|row| row.id).collect();
        let origin_of = |row: &Row| match ids.contains(&row.origin) {
            true => row.origin,
            false => SubvolumeId::MAIN.0,
        };
        // What can be written to is in use, or was taken for that.
        rows.retain(|row| {
            let is_of_it = row.name.bytes().starts_with(self.prefix.as_bytes());
            !row.writable && is_of_it && origin_of(row) == origin
        });
        rows.sort_by_key(Row::time);
        let times: Vec<i64> = rows.iter().map(|row| row.seconds).collect();
        let mut pruned = Pruned::default();
        let mut said = output::Said::nothing();
        for (row, keep) in rows.iter().zip(self.keep.keeps(&times)) {
            if keep {
                pruned.kept.push(&row.name);
                continue;
            }
            let name = OsStr::from_bytes(row.name.bytes());
            let deleted = if self.dry_run {
                Ok(())
            } else {
                place.delete(name)
            };
            match deleted {
                Ok(()) => {
                    pruned.deleted.push(&row.name);
                    let own = held.as_ref().map(|held| own_bytes(held, row));
                    pruned.own_bytes.extend(own);
                    if !self.json {
                        said.more(|| match own {
                            Some(own) => {
                                let own = show_bytes(own);
                                Ok(say!("would delete {}, which holds {own} alone", row.name)?)
                            }
                            None => Ok(say!("deleted {}", row.name)?),
                        });
                    }
                }
                Err(error) => {
                    pruned.failed.push(&row.name);
                    output::tell(format_args!(
                        "persimmon snapshot prune: {}",
                        output::Causes(&error)
                    ));
                }
            }
        }
        if !self.dry_run {
            place.end()?;
        }
        if self.json {
            said.more(|| output::json(&pruned.document()));
        }
        said.done(if pruned.failed.is_empty() {
            0
        } else {
            exit::FAILED
        })
    }
}

/// Names of snapshots by what became of them.
#[derive(Default)]
struct Pruned<'a> {
    kept: Vec<&'a Name>,
    deleted: Vec<&'a Name>,
    /// What each of these holds alone, of those that would be deleted.
    own_bytes: Vec<u64>,
    /// They could not be deleted.
    failed: Vec<&'a Name>,
}

/// `--json`.
#[derive(Serialize)]
struct Document {
    kept: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_bytes: Option<Vec<Option<String>>>,
    deleted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_bytes: Option<Vec<Option<String>>>,
    /// With `--dry-run`, what each of `deleted` holds alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    own_bytes: Vec<u64>,
    failed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_bytes: Option<Vec<Option<String>>>,
}

impl Pruned<'_> {
    fn document(&self) -> Document {
        let (kept, kept_bytes) = as_texts(&self.kept);
        let (deleted, deleted_bytes) = as_texts(&self.deleted);
        let (failed, failed_bytes) = as_texts(&self.failed);
        Document {
            kept,
            kept_bytes,
            deleted,
            deleted_bytes,
            own_bytes: self.own_bytes.clone(),
            failed,
            failed_bytes,
        }
    }
}

/// The names as text, and, if one of them is no UTF-8, a list as long with its bytes in hexadecimal.
fn as_texts(names: &[&Name]) -> (Vec<String>, Option<Vec<Option<String>>>) {
    let (texts, bytes): (Vec<String>, Vec<Option<String>>) =
        names.iter().map(|name| name.as_text()).unzip();
    let is_needed = bytes.iter().any(Option::is_some);
    (texts, is_needed.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that is no UTF-8 came out as an array of numbers.
    #[test]
    fn names_are_text_and_their_bytes_are_told_where_they_are_none() {
        let (good, bad) = (Name::new(b"good"), Name::new(b"a\xffb"));
        let pruned = Pruned {
            kept: vec![&good],
            deleted: vec![&good, &bad],
            own_bytes: Vec::new(),
            failed: Vec::new(),
        };
        let json = serde_json::to_value(pruned.document()).unwrap();
        let due = serde_json::json!({
            "kept": ["good"],
            "deleted": ["good", "a\u{fffd}b"],
            "deleted_bytes": [null, "61ff62"],
            "failed": [],
        });
        assert_eq!(json, due);
    }
}
