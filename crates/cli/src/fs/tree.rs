//! Copying trees. Where from and where to are each behind a trait, so the host, the volume and the archive are read
//! and written in one place each, and every copy keeps the same.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon::internal::format::shown::shown;
use persimmon::vfs::{self, Handle, NamedIno};
use persimmon::{FilesystemError, Ino, Timestamp};
use rustix::io::Errno;
use serde::Serialize;

use super::NOT_PERMITTED;
use crate::output;

/// Bytes read and written at a time. A stop is noticed between two of them.
pub const PIECE: usize = 1 << 20;

/// Why something was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It concerns one file: the others can be copied.
    #[error("{0}")]
    One(String),
    /// Nothing more can be copied.
    #[error("{0}")]
    Ends(String),
    /// The user, or the system, wants it to end.
    #[error("interrupted")]
    Interrupted,
}

/// Shorthand.
pub type Copied<T> = Result<T, CopyError>;

impl CopyError {
    /// Of one file.
    pub fn one(what: impl ToString) -> CopyError {
        CopyError::One(what.to_string())
    }

    /// Of everything that would follow.
    pub fn ends(what: impl ToString) -> CopyError {
        CopyError::Ends(what.to_string())
    }
}

impl From<FilesystemError> for CopyError {
    fn from(error: FilesystemError) -> CopyError {
        let ends = matches!(
            error,
            FilesystemError::NoSpace | FilesystemError::HostFull | FilesystemError::ReadOnly
        );
        if matches!(error, FilesystemError::NotPermitted) {
            CopyError::one(NOT_PERMITTED)
        } else if ends || error.is_failure() {
            CopyError::ends(error)
        } else {
            CopyError::one(error)
        }
    }
}

impl From<Errno> for CopyError {
    fn from(error: Errno) -> CopyError {
        let text = io::Error::from(error).to_string();
        match error {
            Errno::NOSPC | Errno::DQUOT | Errno::ROFS => CopyError::Ends(text),
            _ => CopyError::One(text),
        }
    }
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> CopyError {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => CopyError::one(error),
        }
    }
}

/// What a file is beside its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File {
        size: u64,
    },
    Symlink(Vec<u8>),
    /// One more name of what was copied to this path.
    HardLink(Vec<u8>),
    Fifo,
    Socket,
    CharDevice(u32),
    BlockDevice(u32),
}

/// Attributes that are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The lowest twelve bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    /// Extended attributes, access control lists among them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Something to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where to, from the top: names with slashes between. Empty: the top itself.
    pub path: Vec<u8>,
    pub kind: Kind,
    pub meta: Meta,
}

impl Entry {
    /// The last name of its path.
    pub fn name(&self) -> &[u8] {
        let at = self.path.iter().rposition(|byte| *byte == b'/');
        let from = at.map_or(0, |at| at + 1);
        self.path.get(from..).unwrap_or_default()
    }
}

/// The path of `name` in the directory `above`.
pub fn below(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        [] => name.to_vec(),
        above => [above, b"/", name].concat(),
    }
}

/// A file that is being written.
pub enum Target<'a> {
    Host(&'a File),
    /// Of the volume that is copied from, if one is.
    Volume(Ino, Handle),
}

/// The content of a file, read from its start to its end.
pub trait Content {
    /// Has a file take some of a range, from its beginning, without it being read here: both have the blocks then, or where the file is
    /// the content is copied. Tells how many bytes; 0 if it is to be read.
    fn share(&mut self, _range: Range<u64>, _with: &Target<'_>) -> Copied<u64> {
        Ok(0)
    }
    /// The next range with data at or after `at`; what is between is holes.
    fn next_data(&mut self, at: u64) -> Copied<Option<Range<u64>>>;
    /// Reads some bytes at `at`: 0 where the file has become shorter.
    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> Copied<usize>;
}

/// Nothing: of what is no file.
pub struct NoContent;

impl Content for NoContent {
    fn next_data(&mut self, _: u64) -> Copied<Option<Range<u64>>> {
        Ok(None)
    }

    fn read_at(&mut self, _: &mut [u8], _: u64) -> Copied<usize> {
        Ok(0)
    }
}

/// Passes the data of a file to `write`, with its offsets. Tells how many bytes.
pub fn each_piece(
    content: &mut dyn Content,
    write: impl FnMut(&[u8], u64) -> Copied<()>,
) -> Copied<u64> {
    each_piece_not_shared(content, None, write)
}

/// The same of what a file cannot have without it.
pub fn each_piece_not_shared(
    content: &mut dyn Content,
    with: Option<Target<'_>>,
    mut write: impl FnMut(&[u8], u64) -> Copied<()>,
) -> Copied<u64> {
    let mut buffer = Vec::new();
    let (mut at, mut copied) = (0, 0);
    while let Some(data) = content.next_data(at)? {
        at = data.start;
        while let Some(with) = &with
            && at < data.end
        {
            let shared = content.share(at..data.end, with)?;
            if shared == 0 {
                break;
            }
            at += shared;
            copied += shared;
        }
        // Most files are smaller than a piece.
        let longest = data.end.saturating_sub(at).min(PIECE as u64) as usize;
        buffer.resize(longest.max(buffer.len()), 0);
        while at < data.end {
            let want = (data.end - at).min(PIECE as u64) as usize;
            let got = content.read_at(buffer.get_mut(..want).unwrap_or_default(), at)?;
            if got == 0 {
                return Err(CopyError::one("it became shorter while it was read"));
            }
            write(buffer.get(..got).unwrap_or_default(), at)?;
            at += got as u64;
            copied += got as u64;
        }
    }
    Ok(copied)
}

/// Where copies go. A directory is entered, filled, and left.
pub trait Sink {
    /// Makes a directory, or goes into the one that is there.
    fn enter(&mut self, entry: &Entry) -> Copied<()>;
    /// Clones what is in a directory of the same volume after `cookie` (0: from the start) into the directory entered last: some entries of it.
    /// `None`: it is copied entry by entry.
    fn clone_entries(&mut self, _from: Ino, _cookie: u64) -> Copied<Option<ClonedEntries>> {
        Ok(None)
    }
    /// Gives the directory entered last its attributes. Tells what it does not take of them.
    fn leave(&mut self, entry: &Entry) -> Copied<Vec<String>>;
    /// Makes anything else, in the place of what has that name: whole, or not at all. Tells what it does not take of
    /// its attributes.
    fn put(&mut self, entry: &Entry, content: &mut dyn Content) -> Copied<Vec<String>>;
}

/// How far the clones of a directory's entries came.
#[derive(Debug, Default)]
pub struct ClonedEntries {
    /// The cookie to go on after; `None` at the end.
    pub next: Option<u64>,
    /// Regular files that were cloned.
    pub files: u64,
    /// Symbolic links, devices, pipes and sockets that were.
    pub others: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// What is to be copied entry by entry.
    pub left: Vec<NamedIno>,
}

impl ClonedEntries {
    pub fn new(cloned: vfs::ClonedEntries) -> ClonedEntries {
        ClonedEntries {
            next: cloned.next,
            files: cloned.files,
            others: cloned.made.len() as u64 - cloned.files,
            bytes: cloned.bytes,
            left: cloned.left,
        }
    }
}

/// What was copied.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    pub files: u64,
    pub directories: u64,
    /// Names of files that had one already.
    pub hard_links: u64,
    /// Symbolic links, devices, pipes and sockets.
    pub others: u64,
    /// Of data in files, without holes.
    pub bytes: u64,
    /// What could not be copied, each told by name.
    pub failed: u64,
    /// Attributes that the target does not take.
    pub attributes_lost: u64,
}

impl Tally {
    /// For people, without what went wrong.
    pub fn shown(&self) -> String {
        let Tally {
            files,
            directories,
            hard_links,
            others,
            bytes,
            ..
        } = self;
        let mut text = format!(
            "{files} files ({}), {directories} directories, {others} others",
            persimmon_fuse::size::show_bytes(*bytes)
        );
        if *hard_links > 0 {
            text.push_str(&format!(", {hard_links} more hard links"));
        }
        text
    }

    /// Everything is there, with all it had.
    pub fn is_whole(&self) -> bool {
        self.failed == 0 && self.attributes_lost == 0
    }
}

/// Copies to a sink what a source passes it. What fails alone is told at once, and counted.
pub struct Copier<'a> {
    sink: &'a mut dyn Sink,
    stop: Arc<AtomicBool>,
    /// Names the command in messages.
    command: &'static str,
    /// What is copied now, and where to: messages name the source.
    tops: (Vec<u8>, Vec<u8>),
    pub tally: Tally,
}

impl<'a> Copier<'a> {
    pub fn new(
        sink: &'a mut dyn Sink,
        stop: &Arc<AtomicBool>,
        command: &'static str,
    ) -> Copier<'a> {
        Copier {
            sink,
            stop: Arc::clone(stop),
            command,
            tops: (b"/".to_vec(), Vec::new()),
            tally: Tally::default(),
        }
    }

    /// From now on the source `from` is copied to `to`.
    pub fn set_tops(&mut self, from: &[u8], to: &[u8]) {
        self.tops = (from.to_vec(), to.to_vec());
    }

    /// The path of the source that goes to `path`.
    fn source(&self, path: &[u8]) -> Vec<u8> {
        let (from, to) = &self.tops;
        let rest = path.strip_prefix(to.as_slice()).unwrap_or(path);
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        match (from.as_slice(), rest) {
            (from, []) => from.to_vec(),
            (b"/", rest) => [b"/", rest].concat(),
            (from, rest) => below(from.strip_suffix(b"/").unwrap_or(from), rest),
        }
    }

    fn is_stopped(&self) -> Copied<()> {
        if self.stop.load(Ordering::Relaxed) {
            Err(CopyError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// What came out, if anything did. A failure of one file is told and counted.
    pub fn settle<T>(&mut self, path: &[u8], result: Copied<T>) -> Copied<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(CopyError::One(message)) => {
                self.tally.failed += 1;
                self.tell(path, &message);
                Ok(None)
            }
            Err(CopyError::Ends(message)) => Err(CopyError::Ends(format!(
                "{}: {message}",
                shown(&self.source(path))
            ))),
            Err(CopyError::Interrupted) => Err(CopyError::Interrupted),
        }
    }

    fn tell(&self, path: &[u8], message: &str) {
        let command = self.command;
        output::tell(format_args!(
            "persimmon {command}: {}: {message}",
            shown(&self.source(path))
        ));
    }

    fn count_lost(&mut self, path: &[u8], lost: Vec<String>) {
        for what in lost {
            self.tally.attributes_lost += 1;
            self.tell(path, &what);
        }
    }

    /// Tells whether the directory is there to be filled.
    pub fn enter(&mut self, entry: &Entry) -> Copied<bool> {
        self.is_stopped()?;
        let entered = self.sink.enter(entry);
        Ok(self.settle(&entry.path, entered)?.is_some())
    }

    /// Clones what it can of a directory of the volume into the directory entered last. Tells what is left to be copied; `None`: all of it.
    fn clone_entries(&mut self, from: Ino) -> Copied<Option<Vec<NamedIno>>> {
        let mut left = Vec::new();
        let mut cookie = 0;
        loop {
            self.is_stopped()?;
            let Some(cloned) = self.sink.clone_entries(from, cookie)? else {
                return Ok(None);
            };
            self.tally.files += cloned.files;
            self.tally.others += cloned.others;
            self.tally.bytes += cloned.bytes;
            left.extend(cloned.left);
            match cloned.next {
                Some(next) => cookie = next,
                None => return Ok(Some(left)),
            }
        }
    }

    pub fn leave(&mut self, entry: &Entry) -> Copied<()> {
        let left = self.sink.leave(entry);
        if let Some(lost) = self.settle(&entry.path, left)? {
            self.count_lost(&entry.path, lost);
            self.tally.directories += 1;
        }
        Ok(())
    }

    /// Tells whether it is there.
    pub fn put(&mut self, entry: &Entry, content: &mut dyn Content) -> Copied<bool> {
        self.is_stopped()?;
        let mut content = Watched {
            content,
            stop: Arc::clone(&self.stop),
            bytes: 0,
            end: 0,
        };
        let put = self.sink.put(entry, &mut content);
        let bytes = content.bytes;
        let Some(lost) = self.settle(&entry.path, put)? else {
            return Ok(false);
        };
        self.count_lost(&entry.path, lost);
        match &entry.kind {
            Kind::File { .. } => self.tally.files += 1,
            Kind::HardLink(_) => self.tally.hard_links += 1,
            _ => self.tally.others += 1,
        }
        self.tally.bytes += bytes;
        Ok(true)
    }
}

/// Content that ends where it is to stop, and counts what was read of it, though it be read twice.
struct Watched<'a> {
    content: &'a mut dyn Content,
    stop: Arc<AtomicBool>,
    bytes: u64,
    /// Everything before was read.
    end: u64,
}

impl Content for Watched<'_> {
    fn share(&mut self, range: Range<u64>, with: &Target<'_>) -> Copied<u64> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CopyError::Interrupted);
        }
        let shared = self.content.share(range.clone(), with)?;
        self.bytes += shared;
        self.end = self.end.max(range.start + shared);
        Ok(shared)
    }

    fn next_data(&mut self, at: u64) -> Copied<Option<Range<u64>>> {
        self.content.next_data(at)
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> Copied<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CopyError::Interrupted);
        }
        let got = self.content.read_at(buffer, at)?;
        let end = at + got as u64;
        self.bytes += end.saturating_sub(at.max(self.end));
        self.end = self.end.max(end);
        Ok(got)
    }
}

/// What tells one file from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub u64, pub u64);

/// A node of a tree that can be looked at in any order.
pub struct Seen {
    pub identity: Identity,
    /// Names that it has.
    pub links: u64,
    pub kind: Kind,
    pub meta: Meta,
}

/// The children of a directory: names and nodes.
pub type Children<N> = Box<dyn Iterator<Item = Copied<(Vec<u8>, N)>>>;

/// A tree that can be looked at: the host's or a volume's.
pub trait Tree {
    type Node: 'static;
    fn look(&self, node: &Self::Node) -> Copied<Seen>;
    fn children(&self, node: &Self::Node) -> Copied<Children<Self::Node>>;
    /// The number of a directory, if it is one of the volume that is copied to, or may be.
    fn directory_in_volume(&self, _node: &Self::Node) -> Option<Ino> {
        None
    }
    /// Some children of such a directory.
    fn some_children(
        &self,
        node: &Self::Node,
        _wanted: Vec<NamedIno>,
    ) -> Copied<Children<Self::Node>> {
        self.children(node)
    }
    fn content(&self, node: &Self::Node, size: u64) -> Copied<Box<dyn Content>>;
}

/// Copies `top` and what is below it, as `path`. With `into` directories are copied, too.
///
/// # Errors
/// What ends the copy. What fails alone is in the tally.
pub fn copy_tree<T: Tree>(
    tree: &T,
    top: T::Node,
    path: Vec<u8>,
    into: bool,
    copier: &mut Copier<'_>,
) -> Copied<()> {
    let mut walk = Walk {
        tree,
        into,
        names: HashMap::new(),
        entered: HashSet::new(),
        stack: Vec::new(),
    };
    walk.visit(top, path, copier)?;
    while let Some((entry, children)) = walk.stack.last_mut() {
        let directory = entry.path.clone();
        match children.next() {
            Some(Ok((name, node))) => walk.visit(node, below(&directory, &name), copier)?,
            // The rest of a directory that cannot be listed is not known.
            Some(Err(error)) => {
                copier.settle::<()>(&directory, Err(error))?;
                *children = Box::new(std::iter::empty());
            }
            None => {
                if let Some((entry, _)) = walk.stack.pop() {
                    copier.leave(&entry)?;
                }
            }
        }
    }
    Ok(())
}

struct Walk<'a, T: Tree> {
    tree: &'a T,
    into: bool,
    /// Where files with several names went.
    names: HashMap<Identity, Vec<u8>>,
    /// Directories. Each has one name and is no part of itself, but in damaged metadata.
    entered: HashSet<Identity>,
    /// A stack of its own: a tree may be deeper than the thread's stack.
    stack: Vec<(Entry, Children<T::Node>)>,
}

impl<T: Tree> Walk<'_, T> {
    fn visit(&mut self, node: T::Node, path: Vec<u8>, copier: &mut Copier<'_>) -> Copied<()> {
        let looked = self.tree.look(&node);
        let Some(seen) = copier.settle(&path, looked)? else {
            return Ok(());
        };
        let mut entry = Entry {
            path,
            kind: seen.kind,
            meta: seen.meta,
        };
        if entry.kind == Kind::Directory {
            return self.enter(&node, seen.identity, entry, copier);
        }
        let is_linked = seen.links > 1;
        if is_linked && let Some(first) = self.names.get(&seen.identity) {
            entry.kind = Kind::HardLink(first.clone());
            copier.put(&entry, &mut NoContent)?;
            return Ok(());
        }
        let is_put = match entry.kind {
            Kind::File { size } => {
                let opened = self.tree.content(&node, size);
                match copier.settle(&entry.path, opened)? {
                    Some(mut content) => copier.put(&entry, &mut *content)?,
                    None => false,
                }
            }
            _ => copier.put(&entry, &mut NoContent)?,
        };
        if is_linked && is_put {
            self.names.insert(seen.identity, entry.path);
        }
        Ok(())
    }

    fn enter(
        &mut self,
        node: &T::Node,
        identity: Identity,
        entry: Entry,
        copier: &mut Copier<'_>,
    ) -> Copied<()> {
        let allowed = match (self.into, self.entered.insert(identity)) {
            (false, _) => Err(CopyError::one("is a directory; -r copies it")),
            (true, false) => Err(CopyError::one(
                "the directory is in itself, or in two others, which is damage; run `persimmon fsck`",
            )),
            (true, true) => self.tree.children(node),
        };
        if let Some(children) = copier.settle(&entry.path, allowed)?
            && copier.enter(&entry)?
        {
            let children = self.clone_entries(node, children, copier)?;
            self.stack.push((entry, children));
        }
        Ok(())
    }

    /// Has what can be cloned of a directory cloned. What is left of its children is copied one by one.
    fn clone_entries(
        &self,
        node: &T::Node,
        children: Children<T::Node>,
        copier: &mut Copier<'_>,
    ) -> Copied<Children<T::Node>> {
        let Some(from) = self.tree.directory_in_volume(node) else {
            return Ok(children);
        };
        match copier.clone_entries(from)? {
            Some(left) => self.tree.some_children(node, left),
            None => Ok(children),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories by number, each with what is in it.
    struct Damaged(Vec<Vec<(&'static str, usize)>>);

    impl Tree for Damaged {
        type Node = usize;

        fn look(&self, node: &usize) -> Copied<Seen> {
            let meta = Meta {
                mode: 0,
                uid: 0,
                gid: 0,
                atime: Timestamp::default(),
                mtime: Timestamp::default(),
                xattrs: Vec::new(),
            };
            Ok(Seen {
                identity: Identity(0, *node as u64),
                links: 1,
                kind: Kind::Directory,
                meta,
            })
        }

        fn children(&self, node: &usize) -> Copied<Children<usize>> {
            let children = self.0.get(*node).cloned().unwrap_or_default();
            let children = children.into_iter();
            Ok(Box::new(
                children.map(|(name, node)| Ok((name.as_bytes().to_vec(), node))),
            ))
        }

        fn content(&self, _: &usize, _: u64) -> Copied<Box<dyn Content>> {
            Ok(Box::new(NoContent))
        }
    }

    #[derive(Default)]
    struct Paths(Vec<Vec<u8>>);

    impl Sink for Paths {
        fn enter(&mut self, entry: &Entry) -> Copied<()> {
            self.0.push(entry.path.clone());
            Ok(())
        }

        fn leave(&mut self, _: &Entry) -> Copied<Vec<String>> {
            Ok(Vec::new())
        }

        fn put(&mut self, _: &Entry, _: &mut dyn Content) -> Copied<Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_directory_in_itself_ends_no_copy_and_is_an_error() {
        let tree = Damaged(vec![
            vec![("a", 1), ("b", 2)],
            vec![("up", 0), ("self", 1), ("c", 3)],
            vec![("c", 3)],
            vec![],
        ]);
        let mut paths = Paths::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut copier = Copier::new(&mut paths, &stop, "test");
        let copied = copy_tree(&tree, 0, Vec::new(), true, &mut copier);
        assert!(copied.is_ok());
        assert_eq!((copier.tally.directories, copier.tally.failed), (4, 3));
        let due: [&[u8]; 4] = [b"", b"a", b"a/c", b"b"];
        assert_eq!(paths.0, due);
    }

    #[test]
    fn messages_name_the_source() {
        let mut paths = Paths::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut copier = Copier::new(&mut paths, &stop, "test");
        assert_eq!(copier.source(b""), b"/");
        assert_eq!(copier.source(b"a/b"), b"/a/b");
        copier.set_tops(b"/src/x", b"out");
        assert_eq!(copier.source(b"out/c"), b"/src/x/c");
        assert_eq!(copier.source(b"out"), b"/src/x");
        copier.set_tops(b"/", b"out");
        assert_eq!(copier.source(b"out/c"), b"/c");
        copier.set_tops(b"dir/", b"dir");
        assert_eq!(copier.source(b"dir/c"), b"dir/c");
    }
}
