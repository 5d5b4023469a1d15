//! `persimmon fs cat`.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown::shown_path;
use persimmon::{Filesystem, OpenOptions};

use super::tree::PIECE;
use super::{Access, open, rooted, told_of_path};
use crate::exit::FS_PARTIAL;
use crate::output;

/// Write files of a volume that is not mounted to standard output.
#[derive(Args)]
pub struct Cat {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// The files; links are followed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

impl Cat {
    pub fn run(&self) -> Result<u8> {
        let opened = open(&self.volume, Access::Read, "use cat there, or ")?;
        let mut code = 0;
        for path in &self.paths {
            let path = rooted(path);
            if let Err(message) = show(&opened.filesystem, &path)? {
                output::tell(format_args!("persimmon fs cat: {message}"));
                code = FS_PARTIAL;
            }
        }
        Ok(code)
    }
}

/// Why the file cannot be read is told, and others are shown; an output that takes no more is the end.
fn show(filesystem: &Filesystem, path: &Path) -> Result<Result<(), String>> {
    let mut file = match filesystem.open_file(path, &OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) => return Ok(Err(told_of_path(path, &error))),
    };
    let mut buffer = vec![0; PIECE];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Ok(())),
            Ok(len) => output::bytes(buffer.get(..len).unwrap_or_default())?,
            Err(error) => return Ok(Err(format!("{}: {}", shown_path(path), because(&error)))),
        }
    }
}

/// Without the path, which the library names unescaped.
fn because(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner.and_then(persimmon::Error::filesystem) {
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}
