//! Questions to the daemon of a live mount, asked through an extended attribute that any file of
//! the mount answers: works over bind mounts and without a socket to find. Whoever may read an attribute of some file
//! may ask, so each answer takes a bounded look at the volume, and all are given by a thread for questions: those that serve
//! the kernel do not wait for them. Having everything written is for those who may give commands.

use persimmon_vfs::{Ino, Result as VfsResult};

/// Attributes that begin so are answered by the daemon and stored nowhere.
pub const PREFIX: &str = "system.persimmon.";

/// Asks to make everything durable: for root and the user who runs the daemon alone.
pub const SYNC: &str = "sync";

/// Answers questions about the volume as a whole, and about the file that is asked.
pub trait Live: Send + Sync + 'static {
    /// The answer to `question` (what follows [`PREFIX`]; not [`SYNC`]), asked of the file `of`. Takes a bounded time, however large the
    /// volume or the file is. Answers longer than 64 KiB do not pass the kernel.
    ///
    /// # Errors
    /// [`NoAttribute`](persimmon_vfs::Error::NoAttribute) where there is no such question, or why the file cannot be looked at.
    fn answer(&self, of: Ino, question: &str) -> VfsResult<Vec<u8>>;

    /// Makes everything durable, and answers whether it could.
    fn sync(&self) -> Vec<u8>;

    /// Does what a command asks ([`crate::control`]), and answers with at most
    /// [`crate::control::TEXT_BYTES_MAX`] bytes, or says why not.
    ///
    /// # Errors
    /// Words for whoever asked.
    fn control(&self, command: &[u8], asked: Asked) -> Result<Answered, String>;

    /// Whether anybody who may open a file of the mount may give this command, and not only root and the user who runs the daemon. It changes
    /// nothing, and takes a bounded look at the volume.
    fn is_for_anybody(&self, _command: &[u8]) -> bool {
        false
    }
}

/// How a command came.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// A daemon before this one was asked, too, and may have done it.
    pub resent: bool,
    /// By this process; 0 where it is of no concern of this namespace.
    pub pid: u32,
    /// By this user.
    pub uid: u32,
    /// Of this group.
    pub gid: u32,
}

/// What came of a command.
#[derive(Debug, Default)]
pub struct Answered {
    /// The answer.
    pub text: Vec<u8>,
    /// Names that it made. The kernel may remember that they were not there.
    pub made: Option<Made>,
    /// Files that may take other space since, which the kernel would go on telling as it was.
    pub resized: Vec<Ino>,
}

impl From<Vec<u8>> for Answered {
    fn from(text: Vec<u8>) -> Answered {
        Answered {
            text,
            ..Answered::default()
        }
    }
}

/// Names in a directory that are there since a moment ago.
#[derive(Debug)]
pub struct Made {
    /// Its inode.
    pub directory: Ino,
    /// The names.
    pub names: Vec<Vec<u8>>,
}
