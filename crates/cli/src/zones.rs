//! `persimmon zones`: the zone table, and a picture of it.

use anyhow::Result;
use clap::Args;

use crate::open::Subject;
use crate::{output, picture};

/// Tell how the zones are used.
#[derive(Args)]
pub struct ZonesCommand {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: String,
    /// Only the picture
    #[arg(long, conflicts_with_all = ["json", "table"])]
    picture: bool,
    /// Only the table
    #[arg(long, conflicts_with = "json")]
    table: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ZonesCommand {
    pub fn run(&self) -> Result<u8> {
        let zones = Subject::of(&self.target)?.zones()?;
        if self.json {
            output::json(&zones)?;
            return Ok(0);
        }
        if !self.picture {
            let rows: Vec<Vec<String>> = zones
                .iter()
                .map(|zone| {
                    vec![
                        zone.zone.to_string(),
                        zone.role.clone(),
                        zone.lifetime.clone(),
                        zone.state.clone(),
                        zone.write_pointer_blocks.to_string(),
                        zone.capacity_blocks.to_string(),
                        zone.valid_blocks.to_string(),
                        zone.resets.to_string(),
                    ]
                })
                .collect();
            let headings = [
                "zone", "role", "lifetime", "state", "written", "capacity", "valid", "resets",
            ];
            let right = [true, false, false, false, true, true, true, true];
            print!("{}", output::table(&headings, &right, &rows));
        }
        if !self.table {
            if !self.picture {
                println!();
            }
            print!(
                "{}",
                picture::draw(&zones, output::width_columns(), output::colours())
            );
        }
        Ok(0)
    }
}
