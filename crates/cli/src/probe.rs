//! `persimmon probe`: what is on a device, in the words of blkid, for udev and scripts.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use persimmon_device::drive;
use persimmon_format::shown;
use serde::Serialize;

use crate::exit;
use crate::output::{self, say};

/// Tell what is on a device without changing or locking it.
#[derive(Args)]
pub struct Probe {
    /// Device or image file
    device: PathBuf,
    /// Print properties for udev (ID_FS_TYPE, ID_FS_UUID, ...)
    #[arg(long, conflicts_with = "json")]
    udev: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A volume, as its superblock tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    #[serde(rename = "type")]
    kind: &'static str,
    /// UUID, in lower case with hyphens.
    pub uuid: String,
    /// Label; may be empty.
    pub label: String,
}

/// Looks at a device. `None`: no volume, or one whose making was interrupted.
///
/// # Errors
/// When the device cannot be read.
pub fn look(path: &Path) -> io::Result<Option<Found>> {
    Ok(drive::identity(path)?.map(|identity| Found {
        kind: "persimmon",
        uuid: identity.uuid.to_string(),
        label: identity.label,
    }))
}

impl Probe {
    pub fn run(&self) -> Result<u8> {
        let found = look(&self.device).with_context(|| self.device.display().to_string())?;
        let Some(found) = found else {
            if self.json {
                say!("null")?;
            } else if !self.udev {
                output::tell(format_args!(
                    "{}: no Persimmon volume",
                    self.device.display()
                ));
            }
            return Ok(exit::PROBE_NOTHING);
        };
        if self.json {
            output::json(&found)?;
        } else if self.udev {
            output::print(udev_properties(&found))?;
        } else {
            say!(
                "{}: LABEL=\"{}\" UUID=\"{}\" TYPE=\"persimmon\"",
                self.device.display(),
                shown(&found.label),
                found.uuid
            )?;
        }
        Ok(0)
    }
}

fn udev_properties(found: &Found) -> String {
    let mut lines = String::from("ID_FS_TYPE=persimmon\nID_FS_USAGE=filesystem\n");
    lines.push_str(&format!("ID_FS_UUID={0}\nID_FS_UUID_ENC={0}\n", found.uuid));
    if !found.label.is_empty() {
        let encoded = udev_encoded(&found.label);
        // As blkid: the safe form has underscores for what is not plain.
        let safe: String = found
            .label
            .chars()
            .map(|c| {
                if c.is_control() || c.is_whitespace() || c == '/' {
                    '_'
                } else {
                    c
                }
            })
            .collect();
        lines.push_str(&format!("ID_FS_LABEL={safe}\nID_FS_LABEL_ENC={encoded}\n"));
    }
    lines
}

/// As udev writes labels into file names: what is not plain becomes `\x20` and the like.
pub fn udev_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii() {
            encoded.push(c);
        } else {
            encoded.push_str(&format!("\\x{:02x}", u32::from(c)));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_for_udev() {
        let mut found = Found {
            kind: "persimmon",
            uuid: "0b0e3c9e-0000-4000-8000-000000000001".into(),
            label: "my data".into(),
        };
        let text = udev_properties(&found);
        assert!(text.contains("ID_FS_LABEL=my_data\nID_FS_LABEL_ENC=my\\x20data\n"));
        assert!(text.contains("ID_FS_UUID=0b0e3c9e-0000-4000-8000-000000000001\n"));
        found.label.clear();
        assert!(!udev_properties(&found).contains("LABEL"));
    }

    #[test]
    fn labels_as_udev_writes_them() {
        assert_eq!(udev_encoded("my/data 1"), "my\\x2fdata\\x201");
        assert_eq!(udev_encoded("äpfel_#1"), "äpfel_#1");
    }

    #[test]
    fn other_files_are_not_volumes() {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in [("empty", 0), ("short", 100), ("zeros", 8192)] {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![0; bytes]).unwrap();
            assert_eq!(look(&path).unwrap(), None, "{name}");
        }
        assert!(look(&directory.path().join("absent")).is_err());
    }
}
