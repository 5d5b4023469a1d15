//! Where a daemon's log goes: the terminal in the foreground, else a file or the system log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

const SYSLOG_SOCKET: &str = "/dev/log";
/// Facility "daemon" of syslog(3).
const FACILITY_DAEMON: u8 = 3 << 3;
/// The report would go to standard error, and end a daemon whose standard error is a pipe without a reader.
const REPORT_FAILED_WRITES: bool = false;

/// `RUST_LOG` decides what is logged; without it, everything from `info` up.
fn filter() -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,fuser=warn"))
}

/// Logs to standard error. Who reads it may go away before the daemon does.
pub fn to_terminal() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .log_internal_errors(REPORT_FAILED_WRITES)
        .with_target(false)
        .without_time()
        .with_writer(io::stderr)
        .try_init();
}

/// Logs to a file, or to the system log. Without either, what is logged is lost.
///
/// # Errors
/// When the file cannot be opened.
pub fn to_background(file: Option<&Path>) -> Result<()> {
    if let Some(path) = file {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("log file {}", path.display()))?;
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter())
            .log_internal_errors(REPORT_FAILED_WRITES)
            .with_target(false)
            .with_ansi(false)
            .with_writer(Mutex::<File>::new(file))
            .try_init();
        return Ok(());
    }
    let Ok(socket) = UnixDatagram::unbound() else {
        return Ok(());
    };
    if socket.connect(SYSLOG_SOCKET).is_err() {
        return Ok(());
    }
    // A full system log must not stop the filesystem: what does not fit is dropped.
    let _ = socket.set_nonblocking(true);
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .log_internal_errors(REPORT_FAILED_WRITES)
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        .without_time()
        .with_writer(Syslog { socket })
        .try_init();
    Ok(())
}

/// Sends each event as a datagram to the system log.
struct Syslog {
    socket: UnixDatagram,
}

/// Collects one event; sent when dropped.
struct SyslogLine<'a> {
    socket: &'a UnixDatagram,
    severity: u8,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = SyslogLine<'a>;

    fn make_writer(&'a self) -> SyslogLine<'a> {
        self.line(Level::INFO)
    }

    fn make_writer_for(&'a self, metadata: &tracing::Metadata<'_>) -> SyslogLine<'a> {
        self.line(*metadata.level())
    }
}

impl Syslog {
    fn line(&self, level: Level) -> SyslogLine<'_> {
        let severity = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        SyslogLine {
            socket: &self.socket,
            severity,
            text: Vec::new(),
        }
    }
}

impl Write for SyslogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SyslogLine<'_> {
    fn drop(&mut self) {
        let priority = FACILITY_DAEMON | self.severity;
        let mut message = format!("<{priority}>persimmon[{}]: ", std::process::id()).into_bytes();
        message.extend_from_slice(self.text.trim_ascii_end());
        let _ = self.socket.send(&message);
    }
}
