//! Progress of long work, for people at a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error while work goes on; invisible where nobody looks.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins work whose size is not known yet.
    pub fn start(what: &'static str, wanted: bool) -> Progress {
        if !wanted || !std::io::stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(bar)
    }

    /// How far work is whose size nobody knows.
    pub fn tell(&self, what: String) {
        self.0.set_message(what);
    }

    /// `done` of `total` units are through.
    pub fn advance(&self, what: String, done: u64, total: u64) {
        if self.0.length() != Some(total) {
            let style =
                ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} %  {eta:>4}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            self.0.set_style(style);
            self.0.set_length(total);
        }
        self.0.set_message(what);
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
