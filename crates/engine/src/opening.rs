//! Which opening of the volume the log is written by. What an opening keeps outside of the volume belongs to the volume only as long
//! as no other opening has changed it: the numbers tell. They come with the calls, for the engine has no randomness.

use persimmon_format::Lsn;

use crate::Volume;
use crate::error::Result;

impl Volume {
    /// Everything that the opening before this one has kept outside of the volume is in it, or is given up. All that is written from now
    /// on has this opening's number: drawn at random, so that two histories that part never have the same.
    ///
    /// Nothing else may go on in the volume meanwhile.
    pub fn begin_opening(&self, number: u32) {
        self.log.begin_opening(number);
    }

    /// Has the number outlive this process, as it must before anything is kept outside of the volume. Later calls cost nothing.
    pub fn tell_opening(&self) -> Result<()> {
        self.check_writable()?;
        self.log.tell_opening(&self.media, &self.zones)
    }

    /// A record that the next opening will find if this process dies: the last one written so far. `None` where data could not be
    /// written: the history might end before it then, until the next checkpoint.
    pub fn recorded(&self) -> Result<Option<Lsn>> {
        let written = self.log.recorded();
        // Another thread's write may have completed without outliving the process yet.
        self.media.record()?;
        Ok(written)
    }
}
