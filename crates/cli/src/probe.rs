//! `persimmon probe`: what is on a device, in the words of blkid, for udev and scripts.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::device::drive;
use persimmon::internal::format::shown;
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
    /// Why this program cannot read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
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
        unsupported: identity.unsupported.map(|error| error.to_string()),
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
        // It is a volume all the same, which nobody shall take for a blank device.
        match found.unsupported {
            Some(why) => Err(exit::error(
                exit::FAILED,
                format!("{}: {why}", self.device.display()),
            )),
            None => Ok(0),
        }
    }
}

fn udev_properties(found: &Found) -> String {
    let mut lines = String::from("ID_FS_TYPE=persimmon\nID_FS_USAGE=filesystem\n");
    lines.push_str(&format!("ID_FS_UUID={0}\nID_FS_UUID_ENC={0}\n", found.uuid));
    if !found.label.is_empty() {
        let encoded = udev_encoded(&found.label);
        let safe = udev_safe(&found.label);
        lines.push_str(&format!("ID_FS_LABEL={safe}\nID_FS_LABEL_ENC={encoded}\n"));
    }
    lines
}

/// As libblkid writes labels where they are only read: what is neither plain nor harmless becomes an underscore.
fn udev_safe(text: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii() {
            c.is_ascii_alphanumeric() || "#+-.:=@_/$%?,".contains(c)
        } else {
            is_visible(c)
        }
    };
    let characters = text.chars();
    characters.map(|c| if safe(c) { c } else { '_' }).collect()
}

/// As libblkid and udev write labels into properties and file names: what is not plain becomes `\x20` and the like,
/// byte by byte. Of what is beyond ASCII, letters stay, as there; controls and marks that turn the direction of writing
/// do not, which those two let through.
pub fn udev_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for c in text.chars() {
        let plain = if c.is_ascii() {
            c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c)
        } else {
            is_visible(c)
        };
        if plain {
            encoded.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                encoded.push_str(&format!("\\x{byte:02x}"));
            }
        }
    }
    encoded
}

/// Whether a character shows as itself.
fn is_visible(c: char) -> bool {
    let mut bytes = [0; 4];
    // An accent shows on the letter before it.
    let text = format!("a{}", c.encode_utf8(&mut bytes));
    shown(&text).to_string() == text
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
            unsupported: None,
        };
        let text = udev_properties(&found);
        assert!(text.contains("ID_FS_LABEL=my_data\nID_FS_LABEL_ENC=my\\x20data\n"));
        assert!(text.contains("ID_FS_UUID=0b0e3c9e-0000-4000-8000-000000000001\n"));
        found.label = "a\"b\nID_FS_TYPE=ext4".into();
        let text = udev_properties(&found);
        assert!(text.contains(
            "ID_FS_LABEL=a_b_ID_FS_TYPE=ext4\nID_FS_LABEL_ENC=a\\x22b\\x0aID_FS_TYPE=ext4\n"
        ));
        assert_eq!(text.lines().count(), 6);
        found.label.clear();
        assert!(!udev_properties(&found).contains("LABEL"));
    }

    #[test]
    fn labels_as_udev_writes_them() {
        assert_eq!(udev_encoded("my/data 1"), "my\\x2fdata\\x201");
        assert_eq!(udev_encoded("äpfel_#1"), "äpfel_#1");
        assert_eq!(udev_encoded("a\"b\nc\\"), "a\\x22b\\x0ac\\x5c");
        assert_eq!(udev_encoded("\u{1b}\u{9b}"), "\\x1b\\xc2\\x9b");
        assert_eq!(udev_encoded("\u{202e}x"), "\\xe2\\x80\\xaex");
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
