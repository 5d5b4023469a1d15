//! `persimmon label` and `persimmon uuid`: what a volume is called.

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown;
use persimmon::{Filesystem, Rename};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use uuid::Uuid;

use crate::grow::{unmounted, used_alone};
use crate::mkfs::{parse_label, parse_uuid};
use crate::open::Subject;
use crate::output::{self, say};

/// Show the label of a volume, or change it
#[derive(Args)]
pub struct LabelCommand {
    /// Device, image file, LABEL=, UUID=; to show it, also a directory of a live mount
    target: OsString,
    /// Another label, at most 64 bytes; '' is none. The volume must not be mounted
    #[arg(value_parser = parse_label)]
    label: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show the UUID of a volume, or change it
#[derive(Args)]
pub struct UuidCommand {
    /// Device, image file, LABEL=, UUID=; to show it, also a directory of a live mount
    target: OsString,
    /// Another UUID, or new for a random one. The volume must not be mounted
    #[arg(value_parser = parse_new_uuid)]
    uuid: Option<Uuid>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`, of both.
#[derive(Serialize)]
struct Names {
    uuid: String,
    label: String,
}

fn parse_new_uuid(text: &str) -> Result<Uuid, String> {
    match text {
        "new" => Ok(Uuid::new_v4()),
        text => parse_uuid(text),
    }
}

impl LabelCommand {
    pub fn run(&self) -> Result<u8> {
        let change = self.label.as_ref().map(|label| Rename {
            label: Some(label.clone()),
            ..Rename::default()
        });
        let names = names(&self.target, change)?;
        let shown = shown(&names.label).to_string();
        tell(&names, &shown, self.label.is_some(), self.json)
    }
}

impl UuidCommand {
    pub fn run(&self) -> Result<u8> {
        let change = self.uuid.map(|uuid| Rename {
            uuid: Some(uuid),
            ..Rename::default()
        });
        let names = names(&self.target, change)?;
        tell(&names, &names.uuid, self.uuid.is_some(), self.json)
    }
}

/// What a volume is called, once it is changed if it is to be.
fn names(target: &OsStr, change: Option<Rename>) -> Result<Names> {
    let info = match change {
        None => Subject::of(target)?.info()?,
        Some(rename) => {
            let path = unmounted(target)?;
            used_alone(|wait_for_lock| {
                let rename = Rename {
                    wait_for_lock,
                    ..rename.clone()
                };
                Filesystem::rename_volume(&path, &rename)
            })?;
            Subject::of(&path)?.info()?
        }
    };
    Ok(Names {
        uuid: info.uuid,
        label: info.label,
    })
}

fn tell(names: &Names, text: &str, changed: bool, json: bool) -> Result<u8> {
    let said = if json {
        output::json(names)
    } else {
        say!("{text}").map_err(Into::into)
    };
    if changed {
        output::done(0, said)
    } else {
        said.map(|()| 0)
    }
}
