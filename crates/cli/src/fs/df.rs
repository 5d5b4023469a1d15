//! `persimmon fs df`.

use anyhow::Result;
use clap::{ArgAction, Args};
use persimmon::internal::format::shown::shown;
use persimmon_fuse::size::show_bytes;
use serde::Serialize;
use std::ffi::OsString;

use super::{Access, open};
use crate::output;

/// Show the space of volumes that are not mounted, as df(1) would if they were.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Df {
    /// Devices or image files, LABEL= or UUID=
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<OsString>,
    /// In KiB, MiB and so on, as it fits
    #[arg(short, long)]
    human_readable: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print help: `-h` is taken, as with df(1)
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Serialize)]
struct Row {
    volume: String,
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    inodes: u64,
    inodes_free: u64,
}

impl Df {
    pub fn run(&self) -> Result<u8> {
        let mut rows = Vec::new();
        for volume in &self.volumes {
            let opened = open(volume, Access::Read, "use df there, or ")?;
            let space = opened.filesystem.statfs()?;
            let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
            rows.push(Row {
                volume: volume.to_string_lossy().into_owned(),
                size_bytes: bytes(space.blocks),
                used_bytes: bytes(space.blocks.saturating_sub(space.blocks_free)),
                available_bytes: bytes(space.blocks_available),
                inodes: space.files,
                inodes_free: space.files_free,
            });
        }
        if self.json {
            output::json(&rows)?
        } else {
            output::print(self.table(&rows))?
        }
        Ok(0)
    }

    fn table(&self, rows: &[Row]) -> String {
        let size = |bytes: u64| {
            if self.human_readable {
                show_bytes(bytes)
            } else {
                bytes.div_ceil(1024).to_string()
            }
        };
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                // As df(1): of what users can have, rounded up.
                let all = row.used_bytes.saturating_add(row.available_bytes);
                let share = match all {
                    0 => "-".to_owned(),
                    all => format!(
                        "{}%",
                        (u128::from(row.used_bytes) * 100).div_ceil(all.into())
                    ),
                };
                vec![
                    shown(&row.volume).to_string(),
                    size(row.size_bytes),
                    size(row.used_bytes),
                    size(row.available_bytes),
                    share,
                    row.inodes_free.to_string(),
                ]
            })
            .collect();
        let (size, used, available) = if self.human_readable {
            ("size", "used", "available")
        } else {
            ("KiB", "used", "available")
        };
        output::table(
            &["volume", size, used, available, "use", "inodes free"],
            &[false, true, true, true, true, true],
            cells.iter().cloned(),
        )
        .to_string()
    }
}
