//! The receiver's own directory, and whether a stream goes on with what it remembers.

use std::io;

use persimmon_format::shown;

use crate::STATE_DIRECTORY;
use crate::error::ReceiveError;
use crate::index::{FILE_BYTES_MAX, decode_journal};
use crate::state::State;
use crate::target::{Node, Target};
use crate::wire::Header;

type Result<T> = std::result::Result<T, ReceiveError>;

pub(crate) const STATE: &[u8] = b"state";
pub(crate) const JOURNAL: &[u8] = b"journal";
pub(crate) const JOURNAL_NEW: &[u8] = b"journal.new";
pub(crate) const ASIDE: &[u8] = b"aside";

/// What was received last, if anything was.
pub fn state_of<T: Target>(target: &mut T) -> Result<Option<State>> {
    match Own::open(target, false)? {
        Some(own) => own.remembered(target),
        None => Ok(None),
    }
}

/// What `persimmon send --resume` goes on with.
///
/// # Errors
/// [`ReceiveError::NothingBegun`].
pub fn resume_token<T: Target>(target: &mut T) -> Result<String> {
    let state = state_of(target)?.ok_or(ReceiveError::NothingBegun)?;
    state.token().ok_or(ReceiveError::NothingBegun)
}

/// Refuses a stream that does not go on with what there is.
pub(crate) fn check_fits(before: Option<&State>, header: &Header) -> Result<()> {
    let origin = &header.origin;
    let Some(before) = before else {
        return Err(match (&header.resumed, &origin.base) {
            (None, Some(base)) => ReceiveError::NoBase { base: base.clone() },
            _ => ReceiveError::NothingBegun,
        });
    };
    if before.origin.volume != origin.volume {
        return Err(ReceiveError::OtherVolume);
    }
    if before.is_complete {
        return match (&header.resumed, &origin.base) {
            (Some(_), _) => Err(ReceiveError::NothingBegun),
            (None, None) => Err(ReceiveError::NotEmpty),
            (None, Some(base)) if base.is_same(&before.origin.snapshot) => Ok(()),
            (None, Some(base)) => Err(ReceiveError::OtherBase {
                base: base.clone(),
                found: before.origin.snapshot.clone(),
            }),
        };
    }
    if !before.origin.is_same(origin) {
        return Err(ReceiveError::Incomplete(before.origin.snapshot.clone()));
    }
    match &header.resumed {
        Some(position) if *position == before.position => Ok(()),
        Some(_) => Err(ReceiveError::OtherPosition),
        None if before.position.sequence == 0 => Ok(()),
        None => Err(ReceiveError::Incomplete(before.origin.snapshot.clone())),
    }
}

pub(crate) fn of_target(what: &'static str, path: &[u8]) -> impl FnOnce(io::Error) -> ReceiveError {
    let path = shown(path).to_string();
    move |source| ReceiveError::Target { what, path, source }
}

pub(crate) fn is(error: &io::Error, code: i32) -> bool {
    error.raw_os_error() == Some(code)
}

/// The receiver's own directory.
pub(crate) struct Own<T: Target> {
    pub(crate) dir: T::Dir,
    /// What has no name at the moment.
    pub(crate) aside: T::Dir,
}

impl<T: Target> Own<T> {
    pub(crate) fn open(target: &mut T, make: bool) -> Result<Option<Own<T>>> {
        let failed = || of_target("opening", STATE_DIRECTORY);
        let root = target.root().map_err(failed())?;
        let dir = match target.open_dir(&root, STATE_DIRECTORY) {
            Ok(dir) => dir,
            Err(error) if is(&error, libc::ENOENT) && !make => return Ok(None),
            Err(error) if is(&error, libc::ENOENT) => {
                let made = target.make(&root, STATE_DIRECTORY, Node::Directory);
                let made = made.and_then(|()| target.strip(&root, STATE_DIRECTORY));
                made.map_err(of_target("making", STATE_DIRECTORY))?;
                target.open_dir(&root, STATE_DIRECTORY).map_err(failed())?
            }
            Err(error) => return Err(failed()(error)),
        };
        let aside = match target.open_dir(&dir, ASIDE) {
            // It is made before anything is remembered.
            Err(error) if is(&error, libc::ENOENT) && !make => return Ok(None),
            Err(error) if is(&error, libc::ENOENT) => {
                let made = target.make(&dir, ASIDE, Node::Directory);
                made.and_then(|()| target.strip(&dir, ASIDE))
                    .and_then(|()| target.open_dir(&dir, ASIDE))
            }
            opened => opened,
        };
        let aside = aside.map_err(failed())?;
        Ok(Some(Own { dir, aside }))
    }

    pub(crate) fn load(&self, target: &mut T, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let read = target.read_whole(&self.dir, name, FILE_BYTES_MAX);
        read.map_err(of_target("reading", STATE_DIRECTORY))
    }

    /// What is remembered, what a crash left in the journal among it. Writes nothing: the target may be open for reading alone.
    fn remembered(&self, target: &mut T) -> Result<Option<State>> {
        let mut state = self.load(target, STATE)?;
        if let Some(journal) = self.load(target, JOURNAL)? {
            let files = decode_journal(&journal)?.into_iter();
            let last = files.rev().find(|(name, _)| name == STATE);
            state = last.map(|(_, content)| content).or(state);
        }
        state.map(|bytes| State::decode(&bytes)).transpose()
    }

    /// The same, to go on with: what a crash left in the journal is brought in.
    pub(crate) fn state(&mut self, target: &mut T) -> Result<Option<State>> {
        if let Some(journal) = self.load(target, JOURNAL)? {
            for (name, content) in decode_journal(&journal)? {
                let written = target.write_whole(&self.dir, &name, &content);
                written.map_err(of_target("writing", STATE_DIRECTORY))?;
            }
        }
        let state = self.load(target, STATE)?;
        state.map(|bytes| State::decode(&bytes)).transpose()
    }
}
