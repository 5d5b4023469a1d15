//! The operations that short sequences are made of.

use super::op::{Allocate, Durability, Op, Rename};
use crate::model::Tree;

const FILES: [&str; 4] = ["/A", "/B", "/d/A", "/d/B"];

/// An operation, but for what depends on the files it meets.
pub(super) enum Wish {
    /// As it is.
    Op(Op),
    /// A write at the end of a file, wherever that is.
    Append { path: &'static str },
}

impl Wish {
    pub(super) fn op(&self, tree: &Tree) -> Op {
        match self {
            Wish::Op(op) => op.clone(),
            Wish::Append { path } => {
                let node = tree.lookup(path).ok().and_then(|id| tree.node(id));
                let size = node.and_then(|n| n.content()).map_or(0, |c| c.size());
                // Compressible.
                write(path, size, 5000, 8)
            }
        }
    }
}

fn write(path: &str, offset: u64, length: u32, fill: u64) -> Op {
    Op::Write {
        path: path.to_owned(),
        offset,
        length,
        fill,
        durability: Durability::Buffered,
    }
}

/// Everything that can be part of a sequence. An operation keeps its place for ever, or the
/// numbers of sequences change their meaning.
pub(super) fn vocabulary() -> Vec<Wish> {
    let mut ops = Vec::new();
    for path in FILES {
        ops.push(Wish::Append { path });
        ops.extend(file_ops(path).into_iter().map(Wish::Op));
    }
    for (at, from) in FILES.iter().enumerate() {
        for (other, to) in FILES.iter().enumerate() {
            if at != other {
                ops.extend(pair_ops(from, to, at < other).into_iter().map(Wish::Op));
            }
        }
    }
    ops.extend(directory_ops().into_iter().map(Wish::Op));
    ops
}

/// What can be done with one name.
fn file_ops(file: &str) -> Vec<Op> {
    let path = || file.to_owned();
    let truncate = |size| Op::Truncate { path: path(), size };
    let allocate = |what, offset, length| Op::Allocate {
        path: path(),
        offset,
        length,
        what,
    };
    vec![
        Op::Create {
            path: path(),
            mode: 0o600,
        },
        Op::Unlink { path: path() },
        Op::Symlink {
            path: path(),
            target: "A".to_owned(),
        },
        // One block at the start, some in the middle, across block boundaries, more than is
        // journaled, past the end.
        write(file, 0, 4096, 5),
        write(file, 4096, 2 * 4096, 6),
        write(file, 3000, 3000, 7),
        write(file, 0, 72 << 10, 9),
        write(file, 40_000, 1000, 10),
        truncate(0),
        truncate(5000),
        truncate(100_000),
        allocate(Allocate::Reserve, 8192, 32 << 10),
        allocate(Allocate::ReserveKeepSize, 8192, 32 << 10),
        allocate(Allocate::Zero, 2000, 6000),
        allocate(Allocate::Punch, 4096, 4096),
        allocate(Allocate::Punch, 1000, 5000),
        Op::Chmod {
            path: path(),
            mode: 0o640,
        },
        Op::Chown {
            path: path(),
            uid: 7,
        },
        Op::SetMtime {
            path: path(),
            mtime: 1_000_000_007,
        },
        xattr(file, 100),
        xattr(file, 3000),
        Op::RemoveXattr {
            path: path(),
            name: "user.ground".to_owned(),
        },
    ]
}

fn xattr(path: &str, length: u32) -> Op {
    Op::SetXattr {
        path: path.to_owned(),
        name: format!("user.{length}"),
        length,
        fill: 11,
    }
}

/// What can be done with two names; what is the same both ways only if `once`.
fn pair_ops(from: &str, to: &str, once: bool) -> Vec<Op> {
    let rename = |mode| Op::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
        mode,
    };
    let mut ops = vec![
        Op::Link {
            from: from.to_owned(),
            to: to.to_owned(),
        },
        rename(Rename::Replace),
        Op::Copy {
            from: from.to_owned(),
            to: to.to_owned(),
            from_offset: 0,
            to_offset: 0,
            length: 9000,
        },
    ];
    if once {
        ops.push(rename(Rename::Exchange));
    }
    ops
}

fn directory_ops() -> Vec<Op> {
    let mut ops = Vec::new();
    for path in ["/d", "/e", "/d/e"] {
        let path = || path.to_owned();
        ops.extend([
            Op::Mkdir {
                path: path(),
                mode: 0o700,
            },
            Op::Rmdir { path: path() },
            Op::Chmod {
                path: path(),
                mode: 0o711,
            },
            xattr(&path(), 100),
        ]);
    }
    for (from, to) in [
        ("/d", "/e"),
        ("/e", "/d"),
        ("/e", "/d/e"),
        ("/d/e", "/e"),
        ("/A", "/e/A"),
        ("/e/A", "/A"),
    ] {
        ops.push(Op::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            mode: Rename::Replace,
        });
    }
    ops
}
