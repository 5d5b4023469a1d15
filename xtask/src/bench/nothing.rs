//! The filesystem that does nothing, mounted: the price of requests and transport.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{shell, volume};

const PATIENCE: Duration = Duration::from_secs(10);

/// Builds it.
pub fn build() -> Result<()> {
    eprintln!("building the filesystem that does nothing");
    shell::check(&mut shell::command(&[
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--package",
        "persimmon-fuse",
        "--example",
        "nothing",
    ]))
}

/// One mount of it; what it holds goes with it.
pub struct Nothing {
    pub dir: PathBuf,
    program: Child,
}

impl Nothing {
    /// Mounts it in a new directory of `work`.
    pub fn mount(work: &Path) -> Result<Nothing> {
        let program = volume::built("examples/nothing")?;
        let dir = work.join("nothing");
        std::fs::create_dir_all(&dir)?;
        let mut command = std::process::Command::new(program);
        let program = command.arg(&dir).stdin(Stdio::null()).spawn();
        let program = program.context("running the filesystem that does nothing")?;
        let mut mounted = Nothing { dir, program };
        mounted.wait_until_mounted()?;
        Ok(mounted)
    }

    /// The process that serves it.
    pub fn process(&self) -> u32 {
        self.program.id()
    }

    fn wait_until_mounted(&mut self) -> Result<()> {
        let start = Instant::now();
        while !volume::is_mounted(&self.dir)? {
            if let Some(status) = self.program.try_wait()? {
                bail!("the filesystem that does nothing ended at once: {status}");
            }
            if start.elapsed() > PATIENCE {
                bail!("the filesystem that does nothing does not appear");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if volume::is_mounted(&self.dir)? {
            volume::detach(&self.dir)?;
        } else {
            self.program.kill()?;
        }
        self.program.wait()?;
        Ok(())
    }
}

impl Drop for Nothing {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("unmounting {}: {error:#}", self.dir.display());
        }
    }
}
