//! Content of the tree after replay: items, inodes, directories, extents; operations of records.

use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED, Timestamp};
use persimmon_format::name::{DirEntry, Xattr};
use persimmon_format::packed::Packed;
use persimmon_format::record::{Op, Share, Touch};
use persimmon_format::references::References;
use persimmon_format::shown::as_text;
use persimmon_format::{Ino, Key, KeyKind, Lifetime, shown};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::state::State;
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
    /// First block in the store of shared blocks, if shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<u64>,
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
    /// Key: snapshot.
    pub snapshot: u32,
    /// Value.
    pub value: ValueDump,
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

pub(super) fn item(key: &Key, value: &[u8]) -> ItemDump {
    ItemDump {
        ino: key.ino.0,
        kind: kind_name(key.kind),
        item: key.item,
        snapshot: key.snapshot.0,
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
        KeyKind::SNAPSHOT => "snapshot",
        KeyKind(other) => return format!("kind {other}"),
    }
    .to_owned()
}

/// A value in a line, decoded if it can be.
#[must_use]
pub fn item_text(key: &Key, value: &[u8]) -> String {
    let decoded = match key.kind {
        KeyKind::INODE => Inode::decode(value).map(|inode| {
            format!(
                "{} {:o}, {}:{}, {} links, {} bytes, {} sectors",
                type_name(inode.file_type()),
                inode.mode & 0o7777,
                inode.uid,
                inode.gid,
                inode.nlink,
                inode.size,
                inode.sectors
            )
        }),
        KeyKind::XATTR => Xattr::decode(value).map(|xattr| {
            let (name, value) = (shown(xattr.name), shown(xattr.value));
            format!("{name} = \"{value}\"")
        }),
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
        _ => Ok(hex(value)),
    };
    decoded.unwrap_or_else(|error| format!("{error}: {}", hex(value)))
}

fn extent_text(extent: &Extent) -> String {
    match extent {
        Extent::Frame { addr, crcs } => format!("{} blocks at {addr}", crcs.len()),
        Extent::Inline(bytes) => format!("inline, {} bytes", bytes.len()),
        Extent::Reserved { blocks } => format!("{blocks} blocks reserved"),
        Extent::Compressed(bytes) => format!("compressed, {} bytes", bytes.len()),
        Extent::Shared { at, blocks } => {
            let end = at.saturating_add((*blocks).into());
            format!("shared blocks {at}..{end}")
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
            format!(
                "{place}, {codec}, blocks {}..{end} of {}",
                packed.skip, frame.blocks
            )
        }
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
        .get(&Key::inode(ino))
        .ok_or_else(|| InspectError::NotFound {
            what: format!("inode {ino}"),
        })?;
    Ok(Inode::decode(&value)?)
}

pub(super) fn inode(inspector: &Inspector<'_>, ino: Ino) -> Result<InodeDump> {
    let state = inspector.state()?;
    let inode = inode_of(&state, ino)?;
    let target = state
        .get(&Key::new(ino, KeyKind::SYMLINK, 0))
        .map(|target| as_text(&target));
    let (target, target_bytes) = target.map_or((None, None), |(text, bytes)| (Some(text), bytes));
    let mut xattrs = Vec::new();
    scan_kind(&state, ino, KeyKind::XATTR, &mut |key, value| {
        xattrs.push(item(key, value));
    });
    Ok(InodeDump {
        ino: ino.0,
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
        orphan: state.get(&Key::orphan(ino)).is_some(),
        target,
        target_bytes,
        xattrs,
    })
}

fn scan_kind(state: &State<'_, '_>, ino: Ino, kind: KeyKind, visit: &mut dyn FnMut(&Key, &[u8])) {
    let _ = state.scan(Key::new(ino, kind, 0), &mut |key, value| {
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
            file_block: key.item,
            blocks: 0,
            kind: "damaged",
            addr: None,
            start: None,
            crcs: None,
            bytes: None,
            codec: None,
            frame_blocks: None,
            frame_skip: None,
            shared: None,
        };
        if let Ok(extent) = Extent::decode(value) {
            row.blocks = extent.blocks();
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
                Extent::Shared { at, .. } => {
                    row.kind = "shared";
                    row.shared = Some(at);
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
            format!(
                "put {kind} of inode {}, item {:#x}: {value}",
                key.ino, key.item
            )
        }
        Op::Delete { key } => {
            let kind = kind_name(key.kind);
            format!("delete {kind} of inode {}, item {:#x}", key.ino, key.item)
        }
        Op::Map { ino, block, extent } => {
            format!("map inode {ino}, block {block}: {}", extent_text(extent))
        }
        Op::Punch { ino, from, to } => format!("punch inode {ino}, blocks {from}..{to}"),
        Op::Splice {
            ino,
            block,
            at,
            bytes,
        } => format!(
            "splice inode {ino}, block {block}: {} bytes at {at}",
            bytes.len()
        ),
        Op::Touch { ino, set } => format!("touch inode {ino}{}", touch_text(set)),
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
            format!(
                "share inode {from}, blocks {from_block}..{end}, with inode {to}, block {to_block}: \
                 shared blocks {at}..{store_end}"
            )
        }
        Op::Lot { end } => format!("take inode numbers up to {end}"),
    })
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
