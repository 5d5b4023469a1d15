//! What `persimmon snapshot prune` has done, as `--json` tells it.

use serde::Serialize;

use crate::control::Name;

/// Names of snapshots by what became of them.
#[derive(Default)]
pub struct Pruned<'a> {
    pub kept: Vec<&'a Name>,
    pub deleted: Vec<&'a Name>,
    /// They could not be deleted.
    pub failed: Vec<&'a Name>,
}

/// `--json`.
#[derive(Serialize)]
pub struct Document {
    kept: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_bytes: Option<Vec<Option<String>>>,
    deleted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_bytes: Option<Vec<Option<String>>>,
    failed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_bytes: Option<Vec<Option<String>>>,
}

impl Pruned<'_> {
    pub fn document(&self) -> Document {
        let (kept, kept_bytes) = as_texts(&self.kept);
        let (deleted, deleted_bytes) = as_texts(&self.deleted);
        let (failed, failed_bytes) = as_texts(&self.failed);
        Document {
            kept,
            kept_bytes,
            deleted,
            deleted_bytes,
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
