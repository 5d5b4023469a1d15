//! Snapshots sent and received: what `persimmon-stream` asks of a volume at either end.

mod source;
mod target;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use persimmon_stream::{ReceiveError, Received, SendError, SendOptions, Sent, Watch};

use crate::Filesystem;

pub use source::VolumeSource;
pub use target::VolumeTarget;

impl Filesystem {
    /// Writes the stream of a read-only snapshot, or of what it has other than another one, `from`, which the receiver has. What is compressed
    /// is sent as it is stored. `progress` is told of what was sent from time to time.
    ///
    /// # Errors
    /// There is no such snapshot, or it is deleted meanwhile; the stream cannot be written. Then it has no end record, and no receiver takes
    /// it for whole.
    pub fn send_snapshot(
        &self,
        name: impl AsRef<OsStr>,
        from: Option<&OsStr>,
        out: impl Write,
        options: &SendOptions<'_>,
        progress: impl FnMut(&Sent),
    ) -> Result<Sent, SendError> {
        let vfs = Arc::clone(self.vfs());
        let from = from.map(OsStr::as_bytes);
        let mut source = VolumeSource::new(vfs, name.as_ref().as_bytes(), from)?;
        persimmon_stream::send(&mut source, out, options, progress)
    }

    /// Brings the stream of a snapshot into the root of the volume: a full one into an empty volume, one of what differs into one that has
    /// what it differs from. What is remembered between streams is in the directory `.persimmon-receive`. No snapshot is taken: one with the name
    /// that is answered keeps what was received, while the next stream comes.
    ///
    /// # Errors
    /// The stream does not belong here, and nothing was changed; or it is cut or altered: then what came before is there, and
    /// [`resume_token`](persimmon_stream::resume_token) tells how to go on.
    pub fn receive_snapshot(
        &self,
        input: impl Read,
        watch: &mut dyn Watch,
    ) -> Result<Received, ReceiveError> {
        persimmon_stream::receive(input, &mut VolumeTarget::new(self), watch)
    }
}
