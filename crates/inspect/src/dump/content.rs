//! Content of the tree after replay: items, inodes, directories, extents; operations of records.

use std::ops::ControlFlow;

use persimmon_format::delta::{block_at, is_delta};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED, Timestamp};
use persimmon_format::name::DirEntry;
use persimmon_format::packed::Packed;
use persimmon_format::quota::{Counting, Owner, OwnerKind, Quota, QuotaState};
use persimmon_format::record::{Op, Settle, Share, Touch};
use persimmon_format::references::References;
use persimmon_format::shared_frame::SharedFrame;
use persimmon_format::shown::as_text;
use persimmon_format::version::{Changes, Subvolume, Version};
use persimmon_format::xattr::{Piece, Xattr, XattrValue, slot_of};
use persimmon_format::{Ino, Key, KeyKind, Lifetime, SubvolumeId, VersionId, shown};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::state::{At, State};
use crate::volume::Inspector;

/// An inode and what belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InodeDump {
    /// Its number.
    pub ino: u64,
    /// `file`, `directory` and so on.
    pub file_type: &'static str,
    /// Permissions, octal.
    pub permissions: String,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u32,
    /// Bytes, or entries of a directory.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub sectors: u64,
    /// Device number of a device node.
    pub rdev: u32,
    /// Last access.
    pub atime: String,
    /// Last change of the content.
    pub mtime: String,
    /// Last change.
    pub ctime: String,
    /// Creation.
    pub btime: String,
    /// A directory's parent.
    pub parent: u64,
    /// Write lifetime hint; null if none was told.
    pub lifetime: Option<&'static str>,
    /// How what is written to it is compressed; null if that was not told.
    pub compression: Option<String>,
    /// Whether it is waiting to be freed.
    pub orphan: bool,
    /// A symbolic link's target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The target where it is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<String>,
    /// Extended attributes.
    pub xattrs: Vec<ItemDump>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectoryRow {
    /// Key's item.
    pub item: u64,
    /// The inode it leads to.
    pub ino: u64,
    /// Its type.
    pub file_type: &'static str,
    /// Its name; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// The name where it is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<String>,
}

/// An extent of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtentRow {
    /// First block in the file.
    pub file_block: u64,
    /// Blocks.
    pub blocks: u64,
    /// `frame`, `inline`, `reserved`, `compressed` (inline), `packed` or `shared`.
    pub kind: &'static str,
    /// Where, for a frame and what is packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// First byte in that block, if packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<usize>,
    /// CRC-32C of each block of a frame, or of the compressed bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crcs: Option<String>,
    /// Bytes, if inline or compressed: of a packed extent those of its whole frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// How the frame of a packed extent is compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<&'static str>,
    /// Blocks of the frame of a packed extent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_blocks: Option<u8>,
    /// Blocks of that frame before those that the file has here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_skip: Option<u8>,
    /// What the frame took when it became shared, in units of 512 bytes, if shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_sectors: Option<u16>,
    /// First block in the store of shared blocks, if shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<u64>,
    /// It is the delta of the block.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_delta: bool,
}

/// An item of the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ItemDump {
    /// Key: inode.
    pub ino: u64,
    /// Key: kind, by name.
    pub kind: String,
    /// Key: item.
    pub item: u64,
    /// Key: version.
    pub version: u32,
    /// Value.
    pub value: ValueDump,
}

/// A subvolume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubvolumeRow {
    /// Its number; the main one has 0.
    pub subvolume: u16,
    /// The version that it shows.
    pub version: u32,
    /// The versions above that, the nearest first.
    pub parents: Vec<u32>,
    /// Nothing in it is ever changed.
    pub read_only: bool,
    /// Of which subvolume it is a snapshot.
    pub origin: u16,
    /// When it was made.
    pub created: String,
    /// Its name; bytes that are no UTF-8 are replaced. The main one has none.
    pub name: String,
    /// The name where it is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<String>,
}

/// The value of an item, in a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ValueDump(pub String);

/// An operation of a record, in a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct OpDump(pub String);

impl<'d> Inspector<'d> {
    /// The content after replay.
    pub(crate) fn state(&self) -> Result<State<'_, 'd>> {
        let mut ignored = crate::finding::Findings::new(0);
        let tree = self.walk(&mut ignored, &mut |_, _| {}, &mut |_, _| {})?;
        let mut state = State::new(self, tree);
        for record in &self.journal.records {
            state.apply(&record.ops)?;
        }
        Ok(state)
    }
}

pub(super) fn keys(
    inspector: &Inspector<'_>,
    from: Option<Key>,
    to: Option<Key>,
) -> Result<Vec<ItemDump>> {
    let mut items = Vec::new();
    let first = from.unwrap_or(Key::from_bytes(&[0; Key::LEN]));
    let _ = inspector.state()?.scan(first, &mut |key, value| {
        if to.is_some_and(|to| key >= to) {
            return ControlFlow::Break(());
        }
        items.push(item(&key, value));
        ControlFlow::Continue(())
    });
    Ok(items)
}

pub(super) fn subvolumes(inspector: &Inspector<'_>) -> Result<Vec<SubvolumeRow>> {
    let state = inspector.state()?;
    let versions = state.versions();
    let mut rows = Vec::new();
    let implied = Subvolume {
        version: versions.of(SubvolumeId::MAIN).unwrap_or_default(),
        is_read_only: false,
        origin: SubvolumeId::MAIN,
        created: Timestamp::default(),
        name: Vec::new(),
    };
    let mut all = versions.subvolumes.clone();
    all.entry(SubvolumeId::MAIN).or_insert(implied);
    for (id, subvolume) in all {
        let (name, name_bytes) = as_text(&subvolume.name);
        let parent = |number: &VersionId| versions.version(*number)?.parent;
        let parents = std::iter::successors(parent(&subvolume.version), parent);
        rows.push(SubvolumeRow {
            subvolume: id.0,
            version: subvolume.version.0,
            parents: parents.map(|number| number.0).collect(),
            read_only: subvolume.is_read_only,
            origin: subvolume.origin.0,
            created: time_text(subvolume.created),
            name,
            name_bytes,
        });
    }
    Ok(rows)
}

pub(super) fn item(key: &Key, value: &[u8]) -> ItemDump {
    ItemDump {
        ino: key.ino.0,
        kind: kind_name(key.kind),
        item: key.item,
        version: key.version.0,
        value: ValueDump(item_text(key, value)),
    }
}

fn kind_name(kind: KeyKind) -> String {
    match kind {
        KeyKind::INODE => "inode",
        KeyKind::XATTR => "xattr",
        KeyKind::SYMLINK => "symlink",
        KeyKind::DIR_ENTRY => "entry",
        KeyKind::EXTENT => "extent",
        KeyKind::ORPHAN => "orphan",
        KeyKind::TRUNCATION => "truncation",
        KeyKind::REFERENCES => "references",
        KeyKind::SUBVOLUME => "subvolume",
        KeyKind::VERSION => "version",
        KeyKind::CHANGES => "changes",
        KeyKind::QUOTA => "quota",
        KeyKind(other) => return format!("kind {other}"),
    }
    .to_owned()
}

/// An extended attribute, or a piece of the value of one.
fn xattr_text(key: &Key, value: &[u8]) -> persimmon_format::Result<String> {
    if let Some(slot) = slot_of(key) {
        let Piece { number, bytes } = Piece::decode(key, value)?;
        return Ok(format!(
            "piece {number} in slot {slot:#x}, {} bytes",
            bytes.len()
        ));
    }
    let xattr = Xattr::decode(value)?;
    let name = shown(xattr.name);
    Ok(match xattr.value {
        XattrValue::Inline(value) => format!("{name} = \"{}\"", shown(value)),
        XattrValue::Pieces(pieces) => format!(
            "{name} = {} bytes, {} pieces in slot {:#x}",
            pieces.value_len(),
            pieces.count(),
            pieces.slot()
        ),
    })
}

/// A value in a line, decoded if it can be.
#[must_use]
pub fn item_text(key: &Key, value: &[u8]) -> String {
    let decoded = match key.kind {
        _ if !key.is_unversioned() && key.is_whiteout(value) => {
            let blocks = Extent::decode(value).map_or(0, |extent| extent.blocks());
            Ok(match key.kind {
                KeyKind::EXTENT => format!("nothing, {blocks} blocks"),
                _ => "nothing".to_owned(),
            })
        }
        KeyKind::INODE => Inode::decode(value).map(|inode| {
            let project = match inode.project {
                0 => String::new(),
                project => format!(", project {project}"),
            };
            format!(
                "{} {:o}, {}:{}{project}, {} links, {} bytes, {} sectors",
                type_name(inode.file_type()),
                inode.mode & 0o7777,
                inode.uid,
                inode.gid,
                inode.nlink,
                inode.size,
                inode.sectors
            )
        }),
        KeyKind::XATTR => xattr_text(key, value),
        KeyKind::DIR_ENTRY => DirEntry::decode(value).map(|entry| {
            let name = shown(entry.name);
            format!(
                "\"{name}\" {} inode {}",
                type_name(entry.file_type),
                entry.ino
            )
        }),
        KeyKind::EXTENT => Extent::decode(value).map(|extent| extent_text(&extent)),
        KeyKind::REFERENCES => References::decode(key.item, value)
            .map(|References { blocks, count }| format!("{blocks} blocks, {count} times")),
        KeyKind::SYMLINK => Ok(format!("\"{}\"", shown(value))),
        KeyKind::SUBVOLUME => Subvolume::decode(value).map(|subvolume| subvolume_text(&subvolume)),
        KeyKind::VERSION => {
            let number = VersionId(u32::try_from(key.item).unwrap_or(u32::MAX));
            Version::decode(number, value).map(|version| version_text(&version))
        }
        KeyKind::CHANGES => Changes::decode(value).map(|changes| changes_text(&changes)),
        KeyKind::QUOTA if *key == QuotaState::KEY => {
            QuotaState::decode(value).map(|state| quota_state_text(&state))
        }
        KeyKind::QUOTA => Quota::decode(value).map(|quota| quota_text(key, &quota)),
        _ => Ok(hex(value)),
    };
    decoded.unwrap_or_else(|error| format!("{error}: {}", hex(value)))
}

fn quota_state_text(state: &QuotaState) -> String {
    let counting = match state.counting {
        Counting::Off => "off".to_owned(),
        Counting::Below(end) => format!("inodes below {end} are counted"),
        Counting::All => "on".to_owned(),
    };
    let graces = OwnerKind::ALL.into_iter().map(|kind| {
        let grace = state.grace(kind);
        format!(", {kind}s {} s and {} s", grace.bytes, grace.inodes)
    });
    let graces: String = graces.collect();
    format!("{counting}, round {}, grace times{graces}", state.round)
}

fn quota_text(key: &Key, quota: &Quota) -> String {
    let owner = Owner::of_key(key).map_or_else(
        || "nobody".to_owned(),
        |owner| format!("{} {}", owner.kind, owner.id),
    );
    let (usage, bytes, inodes) = (quota.usage, quota.bytes, quota.inodes);
    format!(
        "{owner}, round {}: {} sectors, soft limit {} bytes, hard {}, grace until {}; {} inodes, soft limit {}, hard {}, grace until {}",
        quota.round,
        usage.sectors,
        bytes.soft,
        bytes.hard,
        quota.bytes_grace_end,
        usage.inodes,
        inodes.soft,
        inodes.hard,
        quota.inodes_grace_end
    )
}

fn extent_text(extent: &Extent) -> String {
    match extent {
        Extent::Frame { addr, crcs } => format!("{} blocks at {addr}", crcs.len()),
        Extent::Inline(bytes) => format!("inline, {} bytes", bytes.len()),
        Extent::Reserved { blocks } => format!("{blocks} blocks reserved"),
        Extent::Hole { blocks } => format!("nothing, {blocks} blocks"),
        Extent::Compressed(bytes) => format!("compressed, {} bytes", bytes.len()),
        Extent::Shared { at, blocks, frame } => {
            let end = at.saturating_add((*blocks).into());
            let place = format!("shared blocks {at}..{end}");
            match frame {
                None => place,
                Some(SharedFrame {
                    blocks,
                    skip,
                    sectors,
                }) => format!(
                    "{place}, from {skip} of a frame of {blocks} that took {sectors} sectors"
                ),
            }
        }
        Extent::Packed(packed) => {
            let Packed { addr, frame, .. } = packed;
            let (len, start) = (frame.len, packed.start());
            let place = format!("packed, {len} bytes at {addr}, byte {start}");
            if packed.is_short() {
                return place;
            }
            let (codec, end) = (
                frame.codec.name(),
                packed.skip.saturating_add(packed.blocks),
            );
            let named = packed.dictionary().map_or(String::new(), |dictionary| {
                let (at, end) = (dictionary.at, dictionary.end());
                format!(", after shared blocks {at}..{end}")
            });
            format!(
                "{place}, {codec}, blocks {}..{end} of {}{named}",
                packed.skip, frame.blocks
            )
        }
    }
}

fn subvolume_text(subvolume: &Subvolume) -> String {
    let kind = match (subvolume.name.as_slice(), subvolume.is_read_only) {
        ([], _) => "the main one".to_owned(),
        (name, true) => format!(
            "\"{}\", read-only, of subvolume {}",
            shown(name),
            subvolume.origin
        ),
        (name, false) => format!("\"{}\", of subvolume {}", shown(name), subvolume.origin),
    };
    let created = time_text(subvolume.created);
    format!("version {}, {kind}, made {created}", subvolume.version)
}

fn version_text(version: &Version) -> String {
    let mut text = match version.parent {
        Some(parent) => format!("parent {parent}"),
        None => "no parent".to_owned(),
    };
    text.push_str(&format!(
        ", inodes from {} on are its own",
        version.first_ino
    ));
    for (first, last) in &version.absorbed {
        text.push_str(&format!(", absorbed {first}..={last}"));
    }
    for (is, word) in [
        (version.is_discarded, ", discarded"),
        (version.is_unsettled, ", unsettled"),
    ] {
        if is {
            text.push_str(word);
        }
    }
    text
}

fn changes_text(changes: &Changes) -> String {
    let ranges = changes.ranges().iter().map(|range| {
        let kind = kind_name(range.kind);
        format!("{kind} {:#x}..={:#x}", range.first, range.last)
    });
    match changes.ranges() {
        [] => "the inode alone".to_owned(),
        _ => ranges.collect::<Vec<_>>().join(", "),
    }
}

/// An inode, and its subvolume where that is not the main one.
fn ino_text(ino: Ino) -> String {
    match ino.subvolume() {
        SubvolumeId::MAIN => format!("inode {ino}"),
        subvolume => format!("inode {} of subvolume {subvolume}", ino.plain()),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn type_name(file_type: u8) -> &'static str {
    match file_type {
        1 => "fifo",
        2 => "character device",
        4 => "directory",
        6 => "block device",
        8 => "file",
        10 => "symlink",
        12 => "socket",
        _ => "unknown",
    }
}

pub(super) fn lifetime_name(lifetime: u8) -> &'static str {
    match lifetime {
        0 => "none",
        1 => "short",
        2 => "medium",
        3 => "long",
        4 => "extreme",
        8..=15 => "inferred",
        5 | 16..=23 => "moved",
        _ => "unknown",
    }
}

fn time_text(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

fn inode_of(state: &State<'_, '_>, ino: Ino) -> Result<Inode> {
    let value = state
        .visible(&Key::inode(ino))
        .ok_or_else(|| InspectError::NotFound {
            what: ino_text(ino),
        })?;
    Ok(Inode::decode(&value)?)
}

pub(super) fn inode(inspector: &Inspector<'_>, ino: Ino) -> Result<InodeDump> {
    let state = inspector.state()?;
    let inode = inode_of(&state, ino)?;
    let target = state
        .visible(&Key::new(ino, KeyKind::SYMLINK, 0))
        .map(|target| as_text(&target));
    let (target, target_bytes) = target.map_or((None, None), |(text, bytes)| (Some(text), bytes));
    let mut xattrs = Vec::new();
    scan_kind(&state, ino, KeyKind::XATTR, &mut |key, value| {
        xattrs.push(item(key, value));
    });
    Ok(InodeDump {
        ino: ino.plain().0,
        file_type: type_name(inode.file_type()),
        permissions: format!("{:04o}", inode.mode & 0o7777),
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        size: inode.size,
        sectors: inode.sectors,
        rdev: inode.rdev,
        atime: time_text(inode.atime),
        mtime: time_text(inode.mtime),
        ctime: time_text(inode.ctime),
        btime: time_text(inode.btime),
        parent: inode.parent.0,
        lifetime: inode.lifetime_hint().map(Lifetime::name),
        compression: inode
            .compression()
            .map(|compression| compression.to_string()),
        orphan: state.visible(&Key::orphan(ino)).is_some(),
        target,
        target_bytes,
        xattrs,
    })
}

fn scan_kind(state: &State<'_, '_>, ino: Ino, kind: KeyKind, visit: &mut dyn FnMut(&Key, &[u8])) {
    let Ok(At { ino, scope }) = state.at(ino) else {
        return;
    };
    let _ = state.scan_shown(&scope, Key::new(ino, kind, 0), &mut |key, value| {
        if key.ino != ino || key.kind != kind {
            return ControlFlow::Break(());
        }
        visit(&key, value);
        ControlFlow::Continue(())
    });
}

pub(super) fn directory(inspector: &Inspector<'_>, ino: Ino) -> Result<Vec<DirectoryRow>> {
    let state = inspector.state()?;
    if !inode_of(&state, ino)?.is_dir() {
        return Err(InspectError::Request(format!(
            "inode {ino} is not a directory"
        )));
    }
    let mut rows = Vec::new();
    scan_kind(&state, ino, KeyKind::DIR_ENTRY, &mut |key, value| {
        rows.push(match DirEntry::decode(value) {
            Ok(entry) => {
                let (name, name_bytes) = as_text(entry.name);
                DirectoryRow {
                    item: key.item,
                    ino: entry.ino.0,
                    file_type: type_name(entry.file_type),
                    name,
                    name_bytes,
                }
            }
            Err(error) => DirectoryRow {
                item: key.item,
                ino: 0,
                file_type: "unknown",
                name: error.to_string(),
                name_bytes: None,
            },
        });
    });
    Ok(rows)
}

pub(super) fn extents(inspector: &Inspector<'_>, ino: Ino) -> Result<Vec<ExtentRow>> {
    let state = inspector.state()?;
    if ino != SHARED {
        inode_of(&state, ino)?;
    }
    let mut rows = Vec::new();
    scan_kind(&state, ino, KeyKind::EXTENT, &mut |key, value| {
        let mut row = ExtentRow {
            file_block: block_at(key.item),
            blocks: 0,
            kind: "damaged",
            addr: None,
            start: None,
            crcs: None,
            bytes: None,
            codec: None,
            frame_blocks: None,
            frame_skip: None,
            frame_sectors: None,
            shared: None,
            is_delta: false,
        };
        if let Ok(extent) = Extent::decode(value) {
            row.blocks = extent.blocks();
            row.is_delta = is_delta(key.item);
            match extent {
                Extent::Frame { addr, crcs } => {
                    let crcs: Vec<String> = crcs.iter().map(|crc| format!("{crc:08x}")).collect();
                    row.kind = "frame";
                    row.addr = Some(addr.to_string());
                    row.crcs = Some(crcs.join(" "));
                }
                Extent::Inline(bytes) => {
                    row.kind = "inline";
                    row.bytes = Some(bytes.len());
                }
                Extent::Reserved { .. } => row.kind = "reserved",
                Extent::Hole { .. } => row.kind = "hole",
                Extent::Shared { at, frame, .. } => {
                    row.kind = "shared";
                    row.shared = Some(at);
                    row.frame_blocks = frame.map(|frame| frame.blocks);
                    row.frame_skip = frame.map(|frame| frame.skip);
                    row.frame_sectors = frame.map(|frame| frame.sectors);
                }
                Extent::Compressed(bytes) => {
                    row.kind = "compressed";
                    row.bytes = Some(bytes.len());
                }
                Extent::Packed(packed) => {
                    row.kind = "packed";
                    row.addr = Some(packed.addr.to_string());
                    row.start = Some(packed.start());
                    row.bytes = Some(packed.frame.len as usize);
                    row.crcs = Some(format!("{:08x}", packed.frame.crc));
                    row.codec = Some(packed.frame.codec.name());
                    row.frame_blocks = Some(packed.frame.blocks);
                    row.frame_skip = Some(packed.skip);
                }
            }
        }
        rows.push(row);
    });
    Ok(rows)
}

pub(super) fn op(op: &Op) -> OpDump {
    OpDump(match op {
        Op::Put { key, value } => {
            let kind = kind_name(key.kind);
            let value = item_text(key, value);
            let owner = owner_text(key);
            format!("put {kind} of {owner}, item {:#x}: {value}", key.item)
        }
        Op::Delete { key } => {
            let kind = kind_name(key.kind);
            format!("delete {kind} of {}, item {:#x}", owner_text(key), key.item)
        }
        Op::Map { ino, block, extent } => {
            let (ino, extent) = (ino_text(*ino), extent_text(extent));
            match is_delta(*block) {
                true => format!("map {ino}, delta of block {}: {extent}", block_at(*block)),
                false => format!("map {ino}, block {block}: {extent}"),
            }
        }
        Op::Punch { ino, from, to } => format!("punch {}, blocks {from}..{to}", ino_text(*ino)),
        Op::Splice {
            ino,
            block,
            at,
            bytes,
        } => format!(
            "splice {}, block {block}: {} bytes at {at}",
            ino_text(*ino),
            bytes.len()
        ),
        Op::Touch { ino, set } => format!("touch {}{}", ino_text(*ino), touch_text(set)),
        Op::Share(share) => {
            let Share {
                from,
                from_block,
                to,
                to_block,
                blocks,
                at,
            } = share;
            let (end, store_end) = (share.source_end(), at.saturating_add(*blocks));
            let (from, to) = (ino_text(*from), ino_text(*to));
            format!(
                "share {from}, blocks {from_block}..{end}, with {to}, block {to_block}: \
                 shared blocks {at}..{store_end}"
            )
        }
        Op::Move {
            version,
            ino,
            block,
            extent,
        } => format!(
            "move inode {ino}, {} {}, of version {version}: {}",
            if is_delta(*block) {
                "delta of block"
            } else {
                "block"
            },
            block_at(*block),
            extent_text(extent)
        ),
        Op::Settle(settle) => {
            let Settle {
                version,
                ino,
                from,
                to,
            } = settle;
            let place = |(kind, item): (KeyKind, u64)| format!("{} {item:#x}", kind_name(kind));
            let (from, to) = (place(*from), place(*to));
            format!("settle inode {ino} of version {version}, {from} to {to}")
        }
        Op::Lot { end } => format!("take inode numbers up to {end}"),
    })
}

/// Whose an item is.
fn owner_text(key: &Key) -> String {
    match key.kind {
        KeyKind::CHANGES => format!("version {}", key.ino.plain()),
        _ => ino_text(key.ino),
    }
}

fn touch_text(set: &Touch) -> String {
    let mut out = String::new();
    if let Some(size) = set.size {
        out.push_str(&format!(", size {size}"));
    }
    let times = [
        ("mtime", set.mtime),
        ("ctime", set.ctime),
        ("atime", set.atime),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            out.push_str(&format!(", {name} {}", time_text(time)));
        }
    }
    if let Some(mode) = set.mode {
        out.push_str(&format!(", mode {mode:o}"));
    }
    out
}
