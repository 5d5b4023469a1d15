//! Printing for people and for programs: everything that a command says goes through here. `println!` panics
//! where standard output is full or nobody reads it; here that is an error, which a command passes on when it
//! has done what it was told to.

use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Serialize, Serializer};

/// What was to be said could not be.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Whoever read standard output has seen enough, as `head` does: nothing is wrong.
    #[error("nobody reads standard output any more")]
    ReaderGone,
    /// It takes no more: a full disk, mostly.
    #[error("standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> OutputError {
        match error.kind() {
            ErrorKind::BrokenPipe => OutputError::ReaderGone,
            _ => OutputError::Failed(error),
        }
    }
}

/// Says something on standard output.
///
/// # Errors
/// When standard output does not take it.
pub fn print(text: impl Display) -> Result<(), OutputError> {
    // What is written in pieces is not to be flushed line by line.
    let mut out = io::BufWriter::new(io::stdout().lock());
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Says a line on standard output: as `println!`, but an error is one. The value is a `Result`.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::output::print(format_args!("{}\n", format_args!($($words)*)))
    };
}
pub(crate) use say;

/// Writes bytes to standard output as they are.
///
/// # Errors
/// When standard output does not take them.
pub fn bytes(bytes: &[u8]) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Standard output as a file, for what writes its own bytes there and tells its errors itself.
///
/// # Errors
/// When no descriptor is free.
pub fn stream() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Prints one JSON document.
///
/// # Errors
/// When standard output does not take it.
pub fn json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(print(format_args!("{text}\n"))?)
}

/// The path of a device or a mount in a JSON document, whose strings are UTF-8: what is none is replaced.
pub fn path_as_text<S: Serializer>(
    path: &impl OptionalPath,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.path().map(Path::to_string_lossy).serialize(serializer)
}

/// A path, or none.
pub trait OptionalPath {
    fn path(&self) -> Option<&Path>;
}

impl OptionalPath for PathBuf {
    fn path(&self) -> Option<&Path> {
        Some(self)
    }
}

impl OptionalPath for Option<PathBuf> {
    fn path(&self) -> Option<&Path> {
        self.as_deref()
    }
}

/// What a mount or an unmount tells: the device and where it is or was mounted.
///
/// # Errors
/// When standard output does not take it.
pub fn json_of_mount(device: &Path, mount_point: &Path) -> Result<()> {
    json(&serde_json::json!({
        "device": device.to_string_lossy(),
        "mount_point": mount_point.to_string_lossy(),
    }))
}

/// Says what clap has to say: the help and the version on standard output, errors on standard error.
///
/// # Errors
/// When it is not taken.
pub fn of_clap(error: &clap::Error) -> Result<()> {
    let said = error.print().and_then(|()| io::stdout().flush());
    Ok(said.map_err(OutputError::from)?)
}

/// The end of a command that has changed something and only had to say so. How it went does not depend on
/// whether anybody still listens; what could not be said to somebody who does is an error, after the change.
///
/// # Errors
/// When standard output did not take what was said.
pub fn done(code: u8, said: Result<()>) -> Result<u8> {
    match said {
        Err(error) if is_reader_gone(&error) => Ok(code),
        Err(error) if error.is::<OutputError>() => {
            Err(error.context("it is done, but could not be told"))
        }
        said => said.map(|()| code),
    }
}

/// What is said on the way through work that must not stop half-way: the first error is kept until it is done.
pub struct Said(Result<()>);

impl Said {
    /// Nothing yet.
    pub fn nothing() -> Said {
        Said(Ok(()))
    }

    /// Says something more, unless that has failed already.
    pub fn more(&mut self, say: impl FnOnce() -> Result<()>) {
        if self.0.is_ok() {
            self.0 = say();
        }
    }

    /// The end, as of [`done`].
    ///
    /// # Errors
    /// As of [`done`].
    pub fn done(self, code: u8) -> Result<u8> {
        done(code, self.0)
    }
}

/// Whether nothing is wrong but that nobody listens any more.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OutputError::ReaderGone))
}

/// Waits so long, or until nobody reads standard output any more: who has something to say only now and then
/// would not notice.
///
/// # Errors
/// [`OutputError::ReaderGone`].
pub fn pause(time: Duration) -> Result<(), OutputError> {
    let stdout = io::stdout();
    // Asked for nothing, the kernel tells of errors and of the other end's being closed.
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    let time = time.try_into().ok();
    // A signal ends the wait as well: the caller looks at what it was.
    let is_told = poll(&mut ends, time.as_ref()).is_ok_and(|told| told > 0);
    let ended = PollFlags::ERR | PollFlags::HUP;
    if is_told && ends.iter().any(|end| end.revents().intersects(ended)) {
        Err(OutputError::ReaderGone)
    } else {
        Ok(())
    }
}

/// An error and what caused it, each once: some errors tell their cause themselves, and have it as their source too.
pub struct Causes<'e>(pub &'e anyhow::Error);

impl Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = String::new();
        for cause in self.0.chain().map(ToString::to_string) {
            if told.is_empty() {
                told = cause;
            } else if !told.ends_with(&cause) {
                told = format!("{told}: {cause}");
            }
        }
        f.write_str(&told)
    }
}

/// Says a line on standard error, if anybody still reads that: a daemon must outlive its readers, and
/// `eprintln!` panics without one.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Asks a question on standard error, which leaves standard output to JSON.
pub fn ask(question: impl Display) {
    let _ = write!(io::stderr(), "{question}");
}

/// Whether a terminal shows what is said.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Colours are for terminals, and for those who did not ask to be spared them.
pub fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && is_terminal()
}

/// Columns of the terminal, or 80.
pub fn width_columns() -> usize {
    if let Some(columns) = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        return usize::clamp(columns, 20, 500);
    }
    rustix::termios::tcgetwinsize(io::stdout())
        .map_or(80, |size| usize::from(size.ws_col))
        .clamp(20, 500)
}

/// Rows in columns, put together as they are printed: there may be millions.
pub struct Table<'t, R> {
    headings: &'t [&'t str],
    right: &'t [bool],
    rows: R,
}

/// Rows in columns: numbers are right-aligned where `right` says so.
pub fn table<'t, R>(headings: &'t [&'t str], right: &'t [bool], rows: R) -> Table<'t, R>
where
    R: Iterator<Item = Vec<String>> + Clone,
{
    Table {
        headings,
        right,
        rows,
    }
}

impl<R: Iterator<Item = Vec<String>> + Clone> Display for Table<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.len()).collect();
        for row in self.rows.clone() {
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut row = String::new();
            for (i, (cell, width)) in cells.zip(&widths).enumerate() {
                if i > 0 {
                    row.push_str("  ");
                }
                let _ = match self.right.get(i) {
                    Some(true) => write!(row, "{cell:>width$}"),
                    _ => write!(row, "{cell:<width$}"),
                };
            }
            writeln!(f, "{}", row.trim_end())
        };
        line(&mut self.headings.iter().copied())?;
        for row in self.rows.clone() {
            line(&mut row.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    /// "/nope: no such file or directory: no such file or directory".
    #[test]
    fn a_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("/nope: {source}")]
        struct At {
            source: std::io::Error,
        }
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(At { source }).context("quota");
        assert_eq!(
            super::Causes(&error).to_string(),
            "quota: /nope: entity not found"
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["1".into(), "log".into()],
            vec!["12".into(), "metadata".into()],
        ];
        let text = super::table(&["zone", "role"], &[true, false], rows.into_iter());
        assert_eq!(text.to_string(), "zone  role\n   1  log\n  12  metadata\n");
    }
}
