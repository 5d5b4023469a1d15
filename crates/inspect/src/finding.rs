//! What can be wrong with a volume, by stable number. `docs/FSCK.md` explains each.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Wrong, but no file is affected.
    Warning,
    /// Something is damaged or lost, or would lead to it.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number, for ever.
    pub number: u16,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub title: &'static str,
    /// What can be done.
    pub repair: &'static str,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Number of the rule, see `docs/FSCK.md`.
    pub number: u16,
    /// How bad it is.
    pub severity: Severity,
    /// Where: a zone, address, page, inode.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What can be done.
    pub repair: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}: {}",
            self.severity, self.number, self.place, self.message
        )
    }
}

/// Findings so far: the first ones in full, of the others how many there were and which numbers.
#[derive(Debug)]
pub(crate) struct Findings {
    /// The snapshot in which things are found.
    snapshot: Option<String>,
    list: Vec<Finding>,
    numbers: BTreeSet<u16>,
    total: Totals,
    worst: Option<Severity>,
    max: usize,
}

/// How many findings there were, those not kept included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) all: u64,
    pub(crate) errors: u64,
    pub(crate) notes: u64,
}

impl Findings {
    pub(crate) fn new(max: usize) -> Findings {
        Findings {
            snapshot: None,
            list: Vec::new(),
            numbers: BTreeSet::new(),
            total: Totals::default(),
            worst: None,
            max,
        }
    }

    /// Notes a finding. `detail`, if not empty, follows the rule's title.
    pub(crate) fn add(&mut self, rule: &Rule, place: impl fmt::Display, detail: impl fmt::Display) {
        self.note(rule, place, detail, rule.repair);
    }

    /// The same of what is not mended, because there are several versions.
    pub(crate) fn add_left(&mut self, rule: &Rule, place: String, detail: String) {
        self.note(rule, place, detail, WITH_VERSIONS);
    }

    fn note(
        &mut self,
        rule: &Rule,
        place: impl fmt::Display,
        detail: impl fmt::Display,
        repair: &'static str,
    ) {
        self.total.all += 1;
        self.total.errors += u64::from(rule.severity == Severity::Error);
        self.total.notes += u64::from(rule.severity == Severity::Note);
        self.numbers.insert(rule.number);
        self.worst = self.worst.max(Some(rule.severity));
        if self.list.len() >= self.max {
            return;
        }
        let detail = detail.to_string();
        let message = if detail.is_empty() {
            rule.title.to_owned()
        } else {
            format!("{}: {detail}", rule.title)
        };
        let (place, repair) = match &self.snapshot {
            Some(name) => (format!("snapshot \"{name}\", {place}"), IN_SNAPSHOT),
            None => (place.to_string(), repair),
        };
        self.list.push(Finding {
            number: rule.number,
            severity: rule.severity,
            place,
            message,
            repair,
        });
    }

    /// Says in which snapshot things are found from now on; in none of them is the main subvolume.
    pub(crate) fn within(&mut self, snapshot: Option<String>) {
        self.snapshot = snapshot;
    }

    /// Whether one of the findings has this number, those not kept included.
    pub(crate) fn has(&self, rule: &Rule) -> bool {
        self.numbers.contains(&rule.number)
    }

    /// The numbers of all findings, those not kept included.
    pub(crate) fn numbers(&self) -> BTreeSet<u16> {
        self.numbers.clone()
    }

    /// The findings, how many there were, and the worst severity of all of them.
    pub(crate) fn into_parts(self) -> (Vec<Finding>, Totals, Option<Severity>) {
        (self.list, self.total, self.worst)
    }
}

/// A repair changes what the main subvolume shows, and never what others do.
const IN_SNAPSHOT: &str =
    "fsck --repair leaves snapshots as they are: copy what can be read out of it";
/// Where there are snapshots a repair puts and removes no extents of files: that could show one version what is another's.
const WITH_VERSIONS: &str =
    "fsck --repair leaves it, because there are snapshots: copy what can be read to another volume";
const RECOUNT: &str = "fsck --repair counts again";
const CORRECT: &str = "fsck --repair corrects it";
const BACKUP: &str = "copy what can be read to another volume";
const ANEW: &str = "fsck --repair writes the metadata anew, from what is left of it";
const NOTHING: &str = "nothing to do";
const AGAIN: &str = "fsck --repair, or the next mount, writes it again from the other one";
const MOUNT: &str = "the next mount replays the journal";

macro_rules! rules {
    ($($name:ident $number:literal $severity:ident $title:literal, $repair:expr;)*) => {
        $(
            #[doc = $title]
            pub const $name: Rule = Rule {
                number: $number,
                severity: Severity::$severity,
                title: $title,
                repair: $repair,
            };
        )*
        /// Every rule there is, by number.
        pub const RULES: &[&Rule] = &[$(&$name),*];
    };
}

rules! {
    ZONE_HEADER 101 Error "the header of a zone in use is damaged", "fsck --repair moves everything out of the zone";
    ZONE_HEADER_FOREIGN 102 Warning "a zone's header belongs to another volume", "the zone is reset before it is used";
    ZONE_HEADER_FIELDS 103 Error "a zone's header does not fit the zone or the volume", BACKUP;
    ZONE_STATE 104 Error "a zone in use can no longer be read", BACKUP;
    ZONE_HEADER_UNUSED 105 Note "a zone that is not in use begins with a damaged header", "the zone is reset before it is used";

    ZONE_READ_ONLY 106 Warning "a zone in use takes no more writes", "cleaning empties it while the volume is mounted";
    ZONE_COPY 107 Warning "of a pair of zones in use one can no longer be read or has a damaged header", "cleaning moves what is in the other to a new pair";
    ZONE_ROWS 108 Warning "one zone of a stripe set holds something else than the others say", "fsck --repair moves everything out of the set; the log leaves it by itself";

    LOG_BLOCK 201 Error "a log block that held durable records is damaged", ANEW;
    LOG_GAP 202 Error "durable records are missing from the journal", ANEW;
    LOG_END 203 Note "the journal ends in writes that were cut off", MOUNT;
    LOG_RECORD 204 Error "an intact log block holds a record that makes no sense", ANEW;
    LOG_DATA 205 Note "the journal ends at a record whose data did not arrive", MOUNT;
    LOG_REPLAY 206 Note "the journal holds records past the checkpoint", MOUNT;
    LOG_ZONE 207 Error "a zone of the log is missing", ANEW;
    LOG_LOST 208 Error "a damaged zone may have held the end of the log", ANEW;

    FOOTER_FIELDS 301 Error "the checkpoint's footer contradicts the volume", ANEW;
    MAT_CHUNK 311 Error "a chunk of the metadata allocation table is damaged", ANEW;
    MAT_ENTRY 312 Error "a page's place is not in the written part of a metadata zone", ANEW;
    MAT_LEAK 313 Warning "a page is allocated that the tree does not reach", "none is needed; its space stays in use";
    MAT_SHARED 314 Error "a metadata block belongs to two structures", ANEW;
    ZIT_CHUNK 321 Error "a chunk of the zone information table is damaged", ANEW;
    ZIT_VALID 322 Error "a zone's count of valid blocks is wrong", RECOUNT;
    ZIT_ROLE 323 Error "a zone's entry contradicts its header", BACKUP;
    ZIT_WRITE_POINTER 324 Error "a zone holds less than its entry says", BACKUP;
    COUNT_INODES 331 Error "the checkpoint's count of inodes is wrong", RECOUNT;
    COUNT_RESERVED 332 Error "the checkpoint's count of preallocated blocks is wrong", RECOUNT;
    SHARED_END 333 Error "shared blocks lie past the end that the checkpoint tells", RECOUNT;
    COUNT_DELTAS 334 Error "the checkpoint's count of deltas is wrong", RECOUNT;

    PAGE 401 Error "a metadata page is damaged", ANEW;
    PAGE_IDENTITY 402 Error "a page is not the one the tree expects", ANEW;
    PAGE_SHARED 403 Error "a page is reached on two ways", ANEW;
    PAGE_MISSING 404 Error "the tree leads to a page that does not exist", ANEW;
    PAGE_KEYS 405 Error "a page holds keys outside its range", ANEW;
    TREE_LOST 406 Note "cross-checks were left out because pages are lost", NOTHING;
    PAGE_COPY 407 Warning "one of two copies of a metadata block is damaged", "the other is used; cleaning writes both again";

    ITEM_OWNER 501 Error "items belong to an inode that does not exist", "fsck --repair frees them";
    ITEM_VALUE 502 Error "an item's value cannot be decoded", "fsck --repair removes it, unless it is an inode or an extent";
    ITEM_KEY 503 Error "an item has a key that this format does not have", BACKUP;
    INODE_MODE 511 Error "an inode has no valid type", BACKUP;
    INODE_NUMBER 512 Error "an inode's number was never handed out", BACKUP;
    INODE_SECTORS 513 Error "an inode's space is not that of its extents", CORRECT;
    INODE_ITEMS 514 Error "an inode has items that its type cannot have", BACKUP;
    SYMLINK 515 Error "a symbolic link's target is missing or of another length", "fsck --repair corrects the size; where the target is missing, remove the link";
    XATTR_HASH 516 Error "an extended attribute is not filed under its name", "fsck --repair files it again";
    XATTR_TWICE 517 Error "an extended attribute is there twice", "fsck --repair removes the second";
    XATTR_NAMES 518 Error "an inode's count of its attributes' names is wrong", CORRECT;
    XATTR_PIECES 519 Error "the value of an extended attribute is not whole", "fsck --repair removes the attribute";
    XATTR_PIECE_UNNAMED 520 Error "a piece of a value belongs to no extended attribute", "fsck --repair removes it";
    EXTENT_OVERLAP 521 Error "two extents of a file cover the same block", BACKUP;
    EXTENT_PLACE 522 Error "an extent is not in the written part of a data zone", BACKUP;
    EXTENT_SHARED 523 Error "a block belongs to two extents", BACKUP;
    EXTENT_PAST_END 524 Error "a file has data past its end", "fsck --repair frees it";
    DELTA_BASE 525 Error "a delta is not of what is stored", "fsck --repair removes a delta of nothing; restore the file from a copy";
    DELTA_FLAG 526 Error "a file has deltas, and its inode does not say so", CORRECT;
    XATTR_FLAG 527 Error "an inode has extended attributes, and does not say so", CORRECT;
    SHARED_EXTENT 531 Error "the store of shared blocks has an extent that it cannot have", BACKUP;
    SHARED_MISSING 532 Error "a file names shared blocks that are not there", "fsck --repair leaves a hole there; restore the file from a copy";
    SHARED_UNNAMED 533 Error "no file has some of the shared blocks", "fsck --repair frees them";
    SHARED_COUNT 534 Error "a count of the extents that name shared blocks is wrong", CORRECT;
    SHARED_COUNT_OVERLAP 535 Error "two counts cover the same shared blocks", CORRECT;
    DICTIONARY_MISSING 536 Error "the dictionary of a compressed frame is not there", "restore the file from a copy";
    DICTIONARY_NESTED 537 Error "a frame of the store of shared blocks has a dictionary itself", BACKUP;

    VERSION 541 Error "the table of versions contradicts itself", BACKUP;
    SUBVOLUME 542 Error "a subvolume is not as one can be", BACKUP;
    VERSION_UNKNOWN 543 Error "an item is of a version that does not exist", BACKUP;
    VERSION_OVERLAP 544 Error "extents of several versions overlap in part", BACKUP;
    CHANGES 545 Error "a version changed an older inode and does not tell where", BACKUP;
    WHITEOUT 546 Note "a version hides what is not there", NOTHING;
    UNSETTLED 547 Note "what nothing shows any more waits to be removed", "that happens while the volume is mounted";

    QUOTA_USAGE 551 Error "what an owner takes is counted wrong", RECOUNT;

    ENTRY_NAME 601 Error "a directory entry has an impossible name", "fsck --repair renames it";
    ENTRY_HASH 602 Error "a directory entry is not filed under its name", "fsck --repair files it again";
    ENTRY_TWICE 603 Error "a name is twice in a directory", "fsck --repair renames the second";
    ENTRY_TARGET 604 Error "a directory entry leads to no inode", "fsck --repair removes it";
    ENTRY_TYPE 605 Error "a directory entry has another type than its inode", CORRECT;
    DIR_SIZE 611 Error "a directory's size is not the number of its entries", CORRECT;
    DIR_PARENT 612 Error "a directory's parent is not where its name is", CORRECT;
    DIR_NAMES 613 Error "a directory has several names", "fsck --repair removes the others";
    DIR_LOOP 614 Error "a directory cannot be reached from the root", "fsck --repair moves it to lost+found";
    ROOT 615 Error "the root directory is missing", BACKUP;
    LINK_COUNT 621 Error "an inode's link count is not the number of its names", CORRECT;
    LINK_NONE 622 Error "an inode has neither a name nor an orphan record", "fsck --repair moves it to lost+found";
    ORPHAN 623 Error "an orphan record leads to no orphan", "fsck --repair removes it";
    ORPHANS 624 Note "unlinked files wait to be freed", "the next mount frees them";
    TRUNCATION 625 Error "a truncation record leads to no file", "fsck --repair removes it";
    TRUNCATION_SIZE 626 Error "a truncation record would free what the file has", CORRECT;

    DATA 801 Error "a block of a file is damaged", "restore the file from a copy";
    DATA_SUMMARY 802 Warning "a summary block is damaged", "cleaning looks the blocks up in the tree";
    DATA_LOST 803 Error "a range of a file was in a zone that is offline", "restore the file from a copy";

    IMAGE_SUPERBLOCK 901 Warning "a copy of the image's superblock is damaged", AGAIN;
    IMAGE_RECORD 902 Warning "a copy of the record of a zone of the image is damaged", AGAIN;
    IMAGE_RECORD_LOST 903 Warning "the write pointer of a zone of the image is lost", "the zone counts as full until cleaning empties it";
    IMAGE_TABLE 904 Warning "records of zones are lost in one of the image's two tables", AGAIN;
    IMAGE_SUPERBLOCKS 905 Warning "all copies of the image's superblock are lost", AGAIN;
    IMAGE_TRUNCATED 906 Warning "the image is truncated", "fsck --repair, or the next mount, makes the file as long as it was, where no part of a zone is missing; fsck --repair --scan in any case";
}

#[cfg(test)]
mod tests {
    use super::{Findings, LOG_BLOCK, LOG_GAP, LOG_ZONE, RULES, Severity, ZIT_VALID};

    #[test]
    fn numbers_ascend_and_the_document_lists_each_rule() {
        assert!(RULES.windows(2).all(|pair| pair[0].number < pair[1].number));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FSCK.md");
        let document = std::fs::read_to_string(path).unwrap();
        for rule in RULES {
            let row = format!("| {} | {} | {} |", rule.number, rule.severity, rule.title);
            assert!(document.contains(&row), "docs/FSCK.md lacks: {row}");
        }
    }

    #[test]
    fn findings_past_the_limit_are_counted() {
        let mut findings = Findings::new(2);
        for zone in 0..5 {
            findings.add(&ZIT_VALID, format_args!("zone {zone}"), "");
        }
        let (list, total, worst) = findings.into_parts();
        assert_eq!(
            (list.len(), total.all, worst),
            (2, 5, Some(Severity::Error))
        );
    }
    /// A salvage keeps 100 findings and asked those whether the journal has a gap. The gap is told after the
    /// damaged blocks: with 100 of them the log was taken for whole, and zones with the only copies were reset.
    #[test]
    fn what_was_found_is_known_past_the_limit() {
        let mut findings = Findings::new(2);
        for block in 0..2 {
            findings.add(&LOG_BLOCK, block, "");
        }
        findings.add(&LOG_GAP, "LSN 7", "");
        assert!(findings.has(&LOG_BLOCK) && findings.has(&LOG_GAP));
        assert!(!findings.has(&LOG_ZONE));
        assert_eq!(Vec::from_iter(findings.numbers()), [201, 202]);
    }
}
