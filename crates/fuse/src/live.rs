//! Questions to the daemon of a live mount, asked through an extended attribute that any file of
//! the mount answers: works over bind mounts, without privileges, and without a socket to find.

/// Attributes that begin so are answered by the daemon and stored nowhere.
pub const PREFIX: &str = "system.persimmon.";

/// Answers questions about the volume as a whole.
pub trait Live: Send + Sync + 'static {
    /// The answer to `question` (what follows [`PREFIX`]), or `None` where there is no such
    /// question. Answers longer than 64 KiB do not pass the kernel.
    fn answer(&self, question: &str) -> Option<Vec<u8>>;

    /// Does what a command asks ([`crate::control`]), and answers with at most
    /// [`crate::control::TEXT_BYTES_MAX`] bytes, or says why not.
    ///
    /// # Errors
    /// Words for whoever asked.
    fn control(&self, command: &[u8]) -> Result<Vec<u8>, String>;
}
