//! The program, run in a directory of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test that asked for it"
)]

pub mod files;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use persimmon_format::zone_header::ZoneHeader;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

/// A directory that goes with the test; images are looked for in it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// In memory, for images that are written and read again and again.
    pub fn in_memory() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Place(dir.unwrap())
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_persimmon"))
            .args(arguments)
            .current_dir(self.dir())
            .env("PERSIMMON_IMAGES", self.dir())
            .output()
            .unwrap()
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Runs, and expects success.
    pub fn does(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs with `--json`, expects success, and reads what was told.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.does(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Runs, expects the exit code, and the words on standard error.
    pub fn refused(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.run(arguments);
        let told = told(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        for word in words {
            assert!(told.contains(word), "{arguments:?}: no '{word}' in: {told}");
        }
    }
}

/// What it wrote to standard error.
pub fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A terminal, and the keyboard of it.
pub fn terminal() -> (File, File) {
    let keyboard = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let terminal = File::open(Path::new(name.to_str().unwrap())).unwrap();
    (keyboard, terminal)
}

/// Changes a file as a whole.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Where the zones in use of an image begin, and their headers.
pub fn zone_headers(image: &[u8]) -> Vec<(usize, ZoneHeader)> {
    let places = (0..image.len()).step_by(1 << 20);
    let header = |at: usize| {
        let header = ZoneHeader::decode(image.get(at..at + 4096)?).ok()?;
        Some((at, header))
    };
    places.filter_map(header).collect()
}
