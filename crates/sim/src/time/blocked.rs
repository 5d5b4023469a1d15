//! Whether a thread of this process is asleep, for certain.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What the kernel tells about one thread.
#[derive(Debug)]
pub(super) struct Probe {
    /// Ends with the number of times the thread was given a processor.
    runs: File,
    /// The call that it sleeps in, or `running`.
    call: File,
    /// Whether it sleeps (`S`). A thread that is being woken by another processor is still shown
    /// in its call.
    state: File,
}

impl Probe {
    /// Of the calling thread.
    ///
    /// # Errors
    /// Where there is no Linux `/proc`, or it does not count.
    pub fn of_this_thread() -> std::io::Result<Probe> {
        let probe = Probe {
            runs: File::open("/proc/thread-self/schedstat")?,
            call: File::open("/proc/thread-self/syscall")?,
            state: File::open("/proc/thread-self/stat")?,
        };
        match probe.runs() {
            Some(1..) => Ok(probe),
            _ => Err(std::io::Error::other(
                "this kernel does not count how often a thread runs",
            )),
        }
    }

    /// How often the thread had run before it fell asleep on a lock or a condition variable, where
    /// it is now. Two equal answers mean that it slept all the time in between. The last answer
    /// (`seen`) makes the next one cheaper.
    pub fn asleep_since(&self, seen: Option<u64>) -> Option<u64> {
        let before = match seen {
            // It slept with this count. If it sleeps and still has it, it never woke up.
            Some(seen) => seen,
            None => self.runs()?,
        };
        if !self.sleeps_in_futex() {
            return None;
        }
        match self.runs()? {
            after if after == before => Some(after),
            _ if seen.is_some() => self.asleep_since(None),
            _ => None,
        }
    }

    fn sleeps_in_futex(&self) -> bool {
        let mut text = [0; 256];
        read(&self.call, &mut text)
            .and_then(|text| text.split_ascii_whitespace().next())
            .and_then(|number| number.parse::<libc::c_long>().ok())
            .is_some_and(|number| number == libc::SYS_futex)
            && self.sleeps()
    }

    fn sleeps(&self) -> bool {
        let mut text = [0; 512];
        // The name before the state may hold anything.
        read(&self.state, &mut text)
            .and_then(|text| text.rsplit_once(')'))
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
    }

    fn runs(&self) -> Option<u64> {
        let mut text = [0; 128];
        read(&self.runs, &mut text)?
            .split_ascii_whitespace()
            .nth(2)?
            .parse()
            .ok()
    }
}

fn read<'a>(file: &File, text: &'a mut [u8]) -> Option<&'a str> {
    let len = file.read_at(text, 0).ok()?;
    std::str::from_utf8(text.get(..len)?).ok()
}
