//! `persimmon trace`: who writes to which zone of a mounted volume, and which is cleaned why.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown::as_text;
use serde::Serialize;

use crate::control::trace::{Event, Events};
use crate::control::{Command, Name, PATHS_MAX, Paths, ask};
use crate::live::Target;
use crate::output;

/// How often to ask when nothing happens.
const PAUSE: Duration = Duration::from_millis(200);
/// Paths that are remembered.
const KNOWN_MAX: usize = 10_000;

/// Tell what happens to the zones of a mounted volume: what is kept of it, and then what comes.
#[derive(Args)]
pub struct Trace {
    /// A directory of the mount, or its device
    target: OsString,
    /// End when all that is kept was told
    #[arg(long)]
    once: bool,
    /// Name files by path; on a volume with many files this takes its time
    #[arg(long)]
    paths: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Event {
        number: u64,
        #[serde(flatten)]
        event: &'a Event,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        path_bytes: Option<String>,
    },
    Dropped {
        event: &'static str,
        count: u64,
    },
}

impl<'a> Line<'a> {
    fn event(number: u64, event: &'a Event, name: Option<&Name>) -> Line<'a> {
        let text = name.map(|name| as_text(name.bytes()));
        let (path, path_bytes) = text.map_or((None, None), |(text, bytes)| (Some(text), bytes));
        Line::Event {
            number,
            event,
            path,
            path_bytes,
        }
    }
}

impl Trace {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, "")?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut names = HashMap::new();
        let mut from = 0;
        while !stop.load(Ordering::Relaxed) {
            let events: Events = ask(&dir, &Command::Trace { from })?;
            if self.paths {
                name_files(&dir, &events, &mut names)?;
            }
            self.print(from, &events, &names)?;
            from = events.first + events.events.len() as u64;
            if events.events.is_empty() {
                if self.once {
                    break;
                }
                output::pause(PAUSE)?;
            }
        }
        Ok(0)
    }

    fn print(&self, from: u64, events: &Events, names: &HashMap<u64, Option<Name>>) -> Result<()> {
        let mut out = String::new();
        // What was before the first question was missed by nobody.
        if events.dropped > 0 && (from > 0 || self.json) {
            let (event, count) = ("dropped", events.dropped);
            if self.json {
                json_line(&mut out, &Line::Dropped { event, count })?
            } else {
                writeln!(out, "{count} events came too fast to be told")?
            }
        }
        for (number, event) in (events.first..).zip(&events.events) {
            let ino = match event {
                Event::Written { ino, .. } => *ino,
                _ => None,
            };
            let name = ino.and_then(|ino| names.get(&ino)?.as_ref());
            if self.json {
                json_line(&mut out, &Line::event(number, event, name))?
            } else {
                writeln!(out, "{number:>8}  {}", words(event, name))?
            }
        }
        Ok(output::print(out)?)
    }
}

fn json_line(out: &mut String, line: &Line<'_>) -> Result<()> {
    Ok(writeln!(out, "{}", serde_json::to_string(line)?)?)
}

/// Asks for the paths of files that are not known yet. Those without one are remembered as well.
fn name_files(dir: &Path, events: &Events, names: &mut HashMap<u64, Option<Name>>) -> Result<()> {
    let inos = events.events.iter().filter_map(|event| match event {
        Event::Written { ino, .. } => *ino,
        _ => None,
    });
    let mut unknown: Vec<u64> = inos.filter(|ino| !names.contains_key(ino)).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown.truncate(PATHS_MAX);
    if unknown.is_empty() {
        return Ok(());
    }
    if names.len() > KNOWN_MAX {
        names.clear();
    }
    let Paths(paths) = ask(dir, &Command::Paths(unknown.clone()))?;
    names.extend(unknown.into_iter().zip(paths));
    Ok(())
}

fn words(event: &Event, path: Option<&Name>) -> String {
    let kind = |role: &str, lifetime: &str| match (role, lifetime) {
        ("data", lifetime) if lifetime != "none" => format!("data, {lifetime}"),
        ("metadata", "moved") => "metadata, moved".to_owned(),
        (role, _) => role.to_owned(),
    };
    match event {
        Event::Opened {
            zone,
            role,
            lifetime,
            free_zones,
        } => format!(
            "zone {zone:<6} opened   {}; {free_zones} zones left free",
            kind(role, lifetime)
        ),
        Event::Written {
            zone,
            role,
            lifetime,
            block,
            blocks,
            files,
            ino,
        } => {
            let whose = match (path, ino, files.saturating_sub(1)) {
                (Some(path), _, 0) => format!(": {path}"),
                (Some(path), _, more) => format!(": {path} and {more} more"),
                (None, Some(ino), 0) => format!(": inode {ino}"),
                (None, Some(ino), more) => format!(": inode {ino} and {more} more"),
                (None, None, _) => String::new(),
            };
            format!(
                "zone {zone:<6} written  {}, {blocks} blocks from {block} on{whose}",
                kind(role, lifetime)
            )
        }
        Event::Victim {
            zone,
            role,
            lifetime,
            why,
            awaited,
            valid_blocks,
            capacity_blocks,
            age_blocks,
            interval_blocks,
            free_zones,
            reclaimable_zones,
        } => {
            let why = match why.as_str() {
                "failing" => "it has failed",
                "garbage" => "most garbage",
                "metadata" => "most garbage in metadata, which needs no zone to go to",
                _ => "best score",
            };
            let waits = if *awaited { ", somebody waits" } else { "" };
            format!(
                "zone {zone:<6} victim   {}, {why}: {valid_blocks} of {capacity_blocks} blocks valid, \
                 written {age_blocks} blocks ago, thought to live {interval_blocks}; {free_zones} \
                 zones free, {reclaimable_zones} soon{waits}",
                kind(role, lifetime)
            )
        }
        Event::Cleaned {
            zone,
            blocks,
            valid_blocks,
        } => format!("zone {zone:<6} cleaned  {blocks} blocks gone, {valid_blocks} left"),
        Event::Reset { zone } => format!("zone {zone:<6} reset"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_in_words_and_as_objects() {
        let event = Event::Written {
            zone: 17,
            role: "data".into(),
            lifetime: "short".into(),
            block: 120,
            blocks: 32,
            files: 3,
            ino: Some(33),
        };
        let text = words(&event, None);
        assert_eq!(
            text,
            "zone 17     written  data, short, 32 blocks from 120 on: inode 33 and 2 more"
        );
        let name = |bytes: &[u8]| serde_json::to_value(bytes).unwrap();
        let torn: Name = serde_json::from_value(name(b"/a\n\xff")).unwrap();
        assert!(words(&event, Some(&torn)).ends_with(r": /a\n\xff and 2 more"));
        let whole = serde_json::to_value(Line::event(7, &event, Some(&torn))).unwrap();
        assert_eq!(whole["path"], "/a\n\u{fffd}");
        assert_eq!(whole["path_bytes"], "2f610aff");
        let line = Line::event(7, &event, None);
        let mut json = String::new();
        json_line(&mut json, &line).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["event"], "written");
        assert_eq!((&json["number"], &json["zone"]), (&7.into(), &17.into()));
        assert!(json.get("path").is_none());
    }
}
