//! The receiver. What it does can be done again: after a crash the tree may be ahead of what is remembered, by some of the records behind the
//! last position that is, in their order. Each stage does things that leave a mark of their own (a name is gone, a directory is put aside under
//! its number), and between stages everything is made durable, so a record that was carried out before is seen to have been.

mod modes;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read};

use persimmon_format::{BLOCK_SIZE, shown};

use crate::STATE_DIRECTORY;
use crate::error::ReceiveError;
use crate::frames::FrameReader;
use crate::index::{Brief, Index, Known, encode_journal};
use crate::own::{ASIDE, JOURNAL, JOURNAL_NEW, Own, check_fits, is, of_target};
use crate::record::Record;
use crate::state::State;
use crate::target::{Node, Target};
use crate::wire::{Cursor, Kind, Origin, Position, ROOT};

type Result<T> = std::result::Result<T, ReceiveError>;

/// What was received is made durable, and remembered, after so many records, bytes of content, or files of the index. A receiver that goes on
/// after a crash counts the same way, and so knows which records may have been carried out before.
const RECORDS_MAX: u64 = 16 << 10;
const BYTES_MAX: u64 = 64 << 20;
const DIRTY_MAX: usize = 1024;
/// Open directories.
const DIRECTORIES_MAX: usize = 128;
/// Deepest directory.
const DEPTH_MAX: usize = 1 << 16;

/// Something that the target cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub path: String,
    /// What, and what the system says.
    pub what: String,
}

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What it is of.
    pub origin: Origin,
    /// Records, those before a resumption among them.
    pub records: u64,
    /// Bytes of file content, those before a resumption among them.
    pub content_bytes: u64,
    /// Bytes of the stream, this time.
    pub stream_bytes: u64,
    /// What the target cannot have.
    pub warnings: u64,
}

/// What a receiver is told on the way, and tells.
pub trait Watch {
    /// Something is not there as it should be.
    fn warn(&mut self, warning: Warning);
    /// So many bytes of the stream, and of content, have come.
    fn progress(&mut self, stream_bytes: u64, content_bytes: u64);
}

/// Nobody looks.
impl Watch for () {
    fn warn(&mut self, _: Warning) {}
    fn progress(&mut self, _: u64, _: u64) {}
}

/// Brings a stream into a target.
///
/// # Errors
/// What the stream says before an error is in the target, and remembered up to some point of it: [`resume_token`](crate::resume_token) tells how to go on. A
/// stream that does not belong there changes nothing.
pub fn receive<T: Target>(
    input: impl Read,
    target: &mut T,
    watch: &mut dyn Watch,
) -> Result<Received> {
    let frames = FrameReader::new(input)?;
    let mut own = Own::open(target, false)?;
    let before = match &mut own {
        Some(own) => own.state(target)?,
        None => None,
    };
    let top = target.root().map_err(of_target("opening", b"."))?;
    let header = frames.header();
    match (&before, &header.origin.base) {
        (None, None) if header.resumed.is_none() => {
            let names = target.list(&top, 2).map_err(of_target("listing", b"."))?;
            if names.iter().any(|name| name != STATE_DIRECTORY) {
                return Err(ReceiveError::NotEmpty);
            }
        }
        _ => check_fits(before.as_ref(), header)?,
    }
    let own = match own {
        Some(own) => own,
        None => Own::open(target, true)?.ok_or(ReceiveError::State("directory"))?,
    };
    // What was carried out before may be carried out again.
    let was_begun = before.as_ref().is_some_and(|state| !state.is_complete);
    let state = match before {
        Some(state) if was_begun => state,
        _ => State {
            is_complete: false,
            origin: header.origin.clone(),
            position: frames.position(Cursor::default()),
            late: Vec::new(),
        },
    };
    let mut receiver = Receiver {
        target,
        own,
        top,
        saved: state.clone(),
        noted: Vec::new(),
        is_saving: false,
        state,
        index: Index::default(),
        directories: HashMap::new(),
        file: None,
        is_repeating: was_begun,
        records: 0,
        bytes: 0,
        sequence: 0,
        warnings: 0,
        watch,
    };
    if !was_begun {
        receiver.save()?;
    }
    let received = receiver.run(frames);
    if received.is_err() {
        receiver.keep_own_modes();
    }
    received
}

struct Receiver<'t, T: Target> {
    target: &'t mut T,
    own: Own<T>,
    top: T::Dir,
    state: State,
    /// The state that was saved last.
    saved: State,
    /// Directories that were given permissions since, and what they had before.
    noted: Vec<(u64, u32)>,
    /// It is not known which state is on the disk.
    is_saving: bool,
    index: Index,
    directories: HashMap<u64, T::Dir>,
    /// The file that is written.
    file: Option<(u64, T::File)>,
    /// A record may have been carried out before.
    is_repeating: bool,
    /// Since everything was durable.
    records: u64,
    bytes: u64,
    sequence: u64,
    warnings: u64,
    watch: &'t mut dyn Watch,
}

impl<T: Target> Receiver<'_, T> {
    fn run<R: Read>(&mut self, mut frames: FrameReader<R>) -> Result<Received> {
        loop {
            self.sequence = frames.position(Cursor::default()).sequence;
            let record = frames.read()?.ok_or(ReceiveError::Cut)?;
            let content_bytes = record.content_bytes();
            match record {
                Record::Mark { is_barrier, cursor } => {
                    let position = frames.position(cursor);
                    self.mark(is_barrier, position)?;
                    self.watch.progress(frames.bytes(), position.content_bytes);
                }
                Record::End { .. } => {
                    self.end(frames.position(Cursor::default()))?;
                    let position = self.state.position;
                    return Ok(Received {
                        origin: self.state.origin.clone(),
                        // The end record does not count itself.
                        records: position.sequence.saturating_sub(1),
                        content_bytes: position.content_bytes,
                        stream_bytes: frames.bytes(),
                        warnings: self.warnings,
                    });
                }
                record => {
                    self.apply(record)?;
                    self.records += 1;
                    self.bytes += content_bytes;
                }
            }
        }
    }

    fn mark(&mut self, is_barrier: bool, position: Position) -> Result<()> {
        let is_due = self.records >= RECORDS_MAX
            || self.bytes >= BYTES_MAX
            || self.index.dirty() >= DIRTY_MAX;
        if self.records > 0 && (is_barrier || is_due) {
            self.state.position = position;
            self.save()?;
            self.is_repeating = false;
        }
        Ok(())
    }

    /// Makes all durable, and then what is remembered of it.
    fn save(&mut self) -> Result<()> {
        self.file = None;
        self.note_own_modes();
        self.target.sync().map_err(of_target("syncing", b"."))?;
        let mut files = self.index.changed();
        files.push(("state".into(), self.state.encode()));
        self.is_saving = true;
        self.save_files(&files)?;
        self.is_saving = false;
        self.saved.clone_from(&self.state);
        self.noted.clear();
        self.index.saved();
        (self.records, self.bytes) = (0, 0);
        Ok(())
    }

    /// All of these files change, or none.
    fn save_files(&mut self, files: &[(String, Vec<u8>)]) -> Result<()> {
        let failed = || of_target("saving the state in", STATE_DIRECTORY);
        let journal = encode_journal(files);
        let (target, dir) = (&mut *self.target, &self.own.dir);
        target
            .write_whole(dir, JOURNAL_NEW, &journal)
            .map_err(failed())?;
        // Its content before its name.
        target.sync().map_err(failed())?;
        target
            .replace(dir, JOURNAL_NEW, JOURNAL)
            .map_err(failed())?;
        target.sync().map_err(failed())?;
        // Until the next journal all of this is in the one that is there.
        for (name, content) in files {
            let written = target.write_whole(dir, name.as_bytes(), content);
            written.map_err(failed())?;
        }
        Ok(())
    }

    fn end(&mut self, position: Position) -> Result<()> {
        let left = self.target.list(&self.own.aside, 1);
        if !left.map_err(of_target("listing", ASIDE))?.is_empty() {
            return Err(self.inconsistent("something was left without a name"));
        }
        self.note_own_modes();
        // Again where something above had to be opened on the way.
        while !self.state.late.is_empty() {
            self.set_late_modes()?;
            self.note_own_modes();
        }
        self.state.position = position;
        self.state.is_complete = true;
        self.save()
    }

    fn inconsistent(&self, what: &'static str) -> ReceiveError {
        ReceiveError::Inconsistent {
            sequence: self.sequence,
            what,
        }
    }

    fn known(&mut self, ino: u64) -> Result<Option<&Known>> {
        let (target, own) = (&mut *self.target, &self.own);
        self.index
            .get(ino, &mut |name| own.load(target, name.as_bytes()))
    }

    fn change_known(
        &mut self,
        ino: u64,
        change: impl FnOnce(Option<Known>) -> Option<Known>,
    ) -> Result<()> {
        let (target, own) = (&mut *self.target, &self.own);
        let load = &mut |name: &str| own.load(target, name.as_bytes());
        self.index.change(ino, load, change)
    }

    /// What must be known of an inode.
    fn need(&mut self, ino: u64) -> Result<Brief> {
        let known = self.known(ino)?.map(Known::brief);
        known.ok_or_else(|| self.inconsistent("an inode that was never sent"))
    }

    /// A path for people.
    fn path(&mut self, ino: u64) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = ino;
        while at != ROOT && parts.len() < DEPTH_MAX {
            let Ok(Some(known)) = self.known(at) else {
                break;
            };
            match known.names.first() {
                Some((dir, name)) => {
                    let (dir, name) = (*dir, name.clone());
                    parts.push(name);
                    at = dir;
                }
                None => break,
            }
        }
        parts.reverse();
        parts.join(&b"/"[..])
    }

    fn path_of_name(&mut self, dir: u64, name: &[u8]) -> Vec<u8> {
        let mut path = self.path(dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    fn changed(&mut self, path: &[u8], what: &'static str) -> ReceiveError {
        ReceiveError::Changed {
            path: shown(path).to_string(),
            what,
        }
    }

    /// An error at a path: what should be there, or should not, is not as it was left.
    fn failed(&mut self, what: &'static str, path: &[u8], error: io::Error) -> ReceiveError {
        match error.raw_os_error() {
            Some(libc::ENOENT) => self.changed(path, "it is missing"),
            Some(libc::EEXIST) => self.changed(path, "something new is there"),
            Some(libc::ENOTEMPTY) => self.changed(path, "something new is in it"),
            Some(libc::ENOTDIR | libc::ELOOP | libc::EISDIR) => {
                self.changed(path, "it is something else")
            }
            _ => of_target(what, path)(error),
        }
    }

    fn failed_at(&mut self, what: &'static str, ino: u64, error: io::Error) -> ReceiveError {
        let path = self.path(ino);
        self.failed(what, &path, error)
    }

    /// Opens a directory: down from the nearest one above that is open, one name at a time.
    fn open_dir(&mut self, ino: u64) -> Result<T::Dir> {
        let mut down = Vec::new();
        let mut at = ino;
        let mut dir = loop {
            if at == ROOT {
                break self.top.clone();
            }
            if let Some(dir) = self.directories.get(&at) {
                break dir.clone();
            }
            let known = self.need(at)?;
            if known.kind != Kind::Directory {
                return Err(self.inconsistent("a name in what is no directory"));
            }
            if down.len() >= DEPTH_MAX {
                return Err(self.inconsistent("a directory in itself"));
            }
            match known.name {
                Some((above, name)) => {
                    down.push((at, name));
                    at = above;
                }
                None => {
                    let name = at.to_string().into_bytes();
                    let opened = self.target.open_dir(&self.own.aside, &name);
                    let dir = opened.map_err(|error| self.failed_at("opening", at, error))?;
                    self.keep(at, dir.clone());
                    break dir;
                }
            }
        };
        while let Some((ino, name)) = down.pop() {
            dir = match self.target.open_dir(&dir, &name) {
                Ok(dir) => dir,
                Err(error) => return Err(self.failed_at("opening", ino, error)),
            };
            self.keep(ino, dir.clone());
        }
        Ok(dir)
    }

    fn keep(&mut self, ino: u64, dir: T::Dir) {
        if self.directories.len() >= DIRECTORIES_MAX {
            self.note_own_modes();
            self.directories.clear();
        }
        self.directories.insert(ino, dir);
    }

    /// Where an inode is.
    fn place(&mut self, ino: u64) -> Result<(T::Dir, Vec<u8>)> {
        if ino == ROOT {
            return Ok((self.top.clone(), Vec::new()));
        }
        let known = self.need(ino)?;
        match known.name {
            Some((dir, name)) => Ok((self.open_dir(dir)?, name)),
            None => Ok((self.own.aside.clone(), ino.to_string().into_bytes())),
        }
    }

    fn apply(&mut self, record: Record) -> Result<()> {
        match record {
            Record::Remove {
                dir,
                ino,
                is_gone,
                name,
            } => self.remove(dir, ino, is_gone, &name),
            Record::RemoveDirectory { ino } => self.remove_directory(ino),
            Record::MakeDirectory { ino } => self.make_directory(ino),
            Record::Name {
                dir,
                ino,
                kind,
                rdev,
                name,
                target,
            } => {
                let node = match kind {
                    Kind::Directory => Node::Directory,
                    Kind::Regular => Node::Regular,
                    Kind::Symlink => Node::Symlink(&target),
                    kind => Node::Special(kind, rdev),
                };
                self.name(dir, ino, kind, node, &name)
            }
            Record::Plain { ino, block, bytes } => self.write(ino, block, &bytes),
            Record::Frame {
                ino,
                block,
                codec,
                frame_blocks,
                skip,
                blocks,
                bytes,
            } => {
                let whole = codec.decompress(&bytes, frame_blocks.into(), &[]);
                let from = usize::from(skip) * BLOCK_SIZE;
                let len = usize::from(blocks) * BLOCK_SIZE;
                let part = whole
                    .as_deref()
                    .and_then(|whole| whole.get(from..from + len));
                let part = part.ok_or_else(|| self.inconsistent("a malformed frame"))?;
                self.write(ino, block, part)
            }
            Record::Hole { ino, block, blocks } => {
                let (offset, len) = (bytes_of(block), bytes_of(blocks));
                self.of_file(ino, "writing", |target, file| {
                    target.punch(file, offset, len)
                })
            }
            Record::Size { ino, size } => {
                self.of_file(ino, "resizing", |target, file| target.set_size(file, size))
            }
            Record::Owner { ino, uid, gid } => self.of_inode(ino, "owner", |target, dir, name| {
                target.set_owner(dir, name, uid, gid)
            }),
            Record::SetXattr { ino, name, value } => {
                self.of_inode(ino, &told(&name), |target, dir, at| {
                    target.set_xattr(dir, at, &name, &value)
                })
            }
            Record::RemoveXattr { ino, name } => {
                self.of_inode(ino, &told(&name), |target, dir, at| {
                    match target.remove_xattr(dir, at, &name) {
                        Err(error) if is(&error, libc::ENODATA) => Ok(()),
                        removed => removed,
                    }
                })
            }
            Record::Permissions {
                ino,
                mode,
                atime,
                mtime,
            } => {
                let kind = match ino {
                    ROOT => Kind::Directory,
                    ino => self.need(ino)?.kind,
                };
                let mode = self.mode_now(ino, kind, mode);
                if kind != Kind::Symlink {
                    self.of_inode(ino, "permissions", |target, dir, name| {
                        target.set_mode(dir, name, mode)
                    })?;
                }
                self.of_inode(ino, "times", |target, dir, name| {
                    target.set_times(dir, name, atime, mtime)
                })
            }
            Record::Mark { .. } | Record::End { .. } => Ok(()),
        }
    }

    fn remove(&mut self, dir: u64, ino: u64, is_gone: bool, name: &[u8]) -> Result<()> {
        let known = self.need(ino)?;
        let place = (dir, name.to_vec());
        let has_name = |known: &Known| known.names.contains(&place);
        if !self.known(ino)?.is_some_and(has_name) {
            return Err(self.inconsistent("a name that was never sent"));
        }
        let is_last = known.names == 1;
        let is_put_aside = known.kind == Kind::Directory || is_last && !is_gone;
        if !known.is_absent {
            let removed = self.take_name(dir, ino, is_put_aside, name);
            match removed {
                // Before a crash.
                Err(ReceiveError::Changed { .. }) if self.is_repeating => {}
                removed => removed?,
            }
        }
        let is_over = is_last && is_gone && known.kind != Kind::Directory;
        self.change_known(ino, |known| {
            let mut known = known.filter(|_| !is_over)?;
            known.names.remove(&place);
            Some(known)
        })
    }

    fn take_name(&mut self, dir: u64, ino: u64, is_put_aside: bool, name: &[u8]) -> Result<()> {
        let at = self.open_dir(dir)?;
        let done = if is_put_aside {
            let aside = ino.to_string().into_bytes();
            let renamed = self.target.rename((&at, name), (&self.own.aside, &aside));
            let dir = self.own.aside.clone();
            self.note_own_mode(ino, &dir, &aside);
            renamed
        } else {
            self.target.unlink(&at, name)
        };
        done.map_err(|error| {
            let path = self.path_of_name(dir, name);
            self.failed("removing", &path, error)
        })
    }

    fn remove_directory(&mut self, ino: u64) -> Result<()> {
        let known = self.need(ino)?;
        if known.kind != Kind::Directory || known.name.is_some() {
            return Err(self.inconsistent("a directory that still has a name"));
        }
        self.directories.remove(&ino);
        let name = ino.to_string().into_bytes();
        // Another directory may get its number on the filesystem.
        let _ = self.target.own_mode(&self.own.aside, &name);
        self.state.late.retain(|(known, _)| *known != ino);
        match self.target.remove_dir(&self.own.aside, &name) {
            Err(error) if self.is_repeating && is(&error, libc::ENOENT) => {}
            Err(error) => return Err(self.failed("removing", &name, error)),
            Ok(()) => {}
        }
        self.change_known(ino, |_| None)
    }

    fn make_directory(&mut self, ino: u64) -> Result<()> {
        if ino == ROOT || self.known(ino)?.is_some() {
            return Err(self.inconsistent("a directory that is there"));
        }
        let name = ino.to_string().into_bytes();
        let aside = self.own.aside.clone();
        self.make(&aside, &name, Kind::Directory, Node::Directory)
            .map_err(|error| self.failed("making", &name, error))?;
        let known = Known {
            kind: Kind::Directory,
            is_absent: false,
            names: BTreeSet::new(),
        };
        self.change_known(ino, |_| Some(known))
    }

    /// Makes something, without what the directory passes on. A receiver that was killed may have made it, and no more.
    fn make(&mut self, at: &T::Dir, name: &[u8], kind: Kind, node: Node<'_>) -> io::Result<()> {
        match self.target.make(at, name, node) {
            Err(error) if self.is_repeating && is(&error, libc::EEXIST) => {
                if self.target.kind(at, name)? != kind {
                    return Err(error);
                }
            }
            made => made?,
        }
        match kind {
            Kind::Symlink => Ok(()),
            _ => self.target.strip(at, name),
        }
    }

    fn name(&mut self, dir: u64, ino: u64, kind: Kind, node: Node<'_>, name: &[u8]) -> Result<()> {
        if dir == ROOT && name == STATE_DIRECTORY {
            return Err(ReceiveError::Reserved);
        }
        let before = self.known(ino)?.map(Known::brief);
        let is_directory = kind == Kind::Directory;
        let fits = match &before {
            None => !is_directory && ino != ROOT,
            Some(known) => known.kind == kind && (!is_directory || known.name.is_none()),
        };
        if !fits {
            return Err(self.inconsistent("a name for what is something else"));
        }
        let mut is_absent = before.as_ref().is_some_and(|known| known.is_absent);
        let at = match self.open_dir(dir) {
            // A directory above was put in its place before a crash, so this one was before.
            Err(ReceiveError::Changed { .. }) if self.is_repeating && is_directory => None,
            at => Some(at?),
        };
        let done = match (&before, &at) {
            _ if is_absent => Ok(()),
            (_, None) => self.check_placed(ino),
            (None, Some(at)) => match self.make(at, name, kind, node) {
                Err(error) if is_refusal(&error) && matches!(node, Node::Special(..)) => {
                    is_absent = true;
                    let path = self.path_of_name(dir, name);
                    self.warn(&path, format!("it cannot be made: {error}"));
                    Ok(())
                }
                made => made,
            },
            (Some(before), Some(at)) => match before.name.clone() {
                None => {
                    let aside = ino.to_string().into_bytes();
                    let aside = (&self.own.aside, aside.as_slice());
                    match self.target.rename(aside, (at, name)) {
                        Err(error) if self.is_repeating && is(&error, libc::ENOENT) => {
                            self.target.kind(at, name).map(|_| ())
                        }
                        placed => placed,
                    }
                }
                Some((above, first)) => {
                    let from = self.open_dir(above)?;
                    self.target.link((&from, &first), (at, name))
                }
            },
        };
        if let Some(at) = &at {
            // Others may have been opened since it was.
            self.note_own_mode(dir, at, b"");
            if is_directory {
                self.note_own_mode(ino, at, name);
            }
        }
        match done {
            Err(error) if self.is_repeating && is(&error, libc::EEXIST) => {
                // Linked or placed before a crash.
                let found = at.map(|at| self.target.kind(&at, name));
                if !matches!(found, Some(Ok(found)) if found == kind) {
                    let path = self.path_of_name(dir, name);
                    return Err(self.changed(&path, "something new is there"));
                }
            }
            Err(error) => {
                let path = self.path_of_name(dir, name);
                return Err(self.failed("naming", &path, error));
            }
            Ok(()) => {}
        }
        self.change_known(ino, |known| {
            let mut known = known.unwrap_or_else(|| Known {
                kind,
                is_absent,
                names: BTreeSet::new(),
            });
            known.names.insert((dir, name.to_vec()));
            Some(known)
        })
    }

    /// Whether a directory is not put aside any more.
    fn check_placed(&mut self, ino: u64) -> io::Result<()> {
        let name = ino.to_string().into_bytes();
        match self.target.kind(&self.own.aside, &name) {
            Err(error) if is(&error, libc::ENOENT) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn write(&mut self, ino: u64, block: u64, bytes: &[u8]) -> Result<()> {
        let offset = bytes_of(block);
        self.of_file(ino, "writing", |target, file| {
            target.write(file, offset, bytes)
        })
    }

    /// Does something with an open file.
    fn of_file(
        &mut self,
        ino: u64,
        what: &'static str,
        f: impl FnOnce(&mut T, &T::File) -> io::Result<()>,
    ) -> Result<()> {
        if self.file.as_ref().is_none_or(|(open, _)| *open != ino) {
            self.file = None;
            if ino == ROOT || self.need(ino)?.kind != Kind::Regular {
                return Err(self.inconsistent("content of what is no file"));
            }
            let (dir, name) = self.place(ino)?;
            let opened = self.target.open_file(&dir, &name);
            let file = opened.map_err(|error| self.failed_at("opening", ino, error))?;
            self.file = Some((ino, file));
        }
        let done = match &self.file {
            Some((_, file)) => f(self.target, file),
            None => Ok(()),
        };
        done.map_err(|error| self.failed_at(what, ino, error))
    }

    /// Does something with an inode that not every system can.
    fn of_inode(
        &mut self,
        ino: u64,
        what: &str,
        f: impl FnOnce(&mut T, &T::Dir, &[u8]) -> io::Result<()>,
    ) -> Result<()> {
        if ino != ROOT && self.need(ino)?.is_absent {
            return Ok(());
        }
        let (dir, name) = self.place(ino)?;
        let done = f(self.target, &dir, &name);
        self.soften(ino, what, done)
    }

    /// What the system cannot do, or does not allow, is a warning.
    fn soften(&mut self, ino: u64, what: &str, done: io::Result<()>) -> Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(error) if is_refusal(&error) => {
                let path = self.path(ino);
                self.warn(&path, format!("{what} cannot be set: {error}"));
                Ok(())
            }
            Err(error) => Err(self.failed_at("setting attributes of", ino, error)),
        }
    }

    fn warn(&mut self, path: &[u8], what: String) {
        self.warnings += 1;
        let path = match path {
            [] => ".".to_owned(),
            path => shown(path).to_string(),
        };
        self.watch.warn(Warning { path, what });
    }
}

fn told(attribute: &[u8]) -> String {
    format!("attribute {}", persimmon_format::shown(attribute))
}

/// A refusal that says something of this system or this user, and nothing of the stream.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [
        libc::EPERM,
        libc::EOPNOTSUPP,
        libc::EINVAL,
        libc::E2BIG,
        libc::ERANGE,
        libc::EOVERFLOW,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| refusals.contains(&code))
}

fn bytes_of(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_SIZE as u64)
}
