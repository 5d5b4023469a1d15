//! A volume in an image file: notes are written, listed, read back, and are there the next time.
//!
//!     cargo run --example notes -- volume.img

use std::error::Error;
use std::path::Path;

use persimmon::{Create, Filesystem, Options};

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(image) => notes(image.as_ref()),
        None => Err("usage: notes IMAGE".into()),
    }
}

/// Makes the volume in a new image, and uses it twice.
pub fn notes(image: &Path) -> Result<(), Box<dyn Error>> {
    let create = Create {
        label: "notes".into(),
        ..Create::sized(64 << 20)
    };
    Filesystem::create(image, &create)?;

    let fs = Filesystem::open(image, &Options::default())?;
    fs.create_dir_all("/2026/autumn")?;
    fs.write("/2026/autumn/monday", "pick persimmons\n")?;
    fs.write("/2026/autumn/tuesday", "dry them\n")?;
    fs.rename("/2026/autumn/tuesday", "/2026/autumn/wednesday")?;
    fs.set_permissions("/2026/autumn/monday", 0o600)?;
    fs.copy("/2026/autumn/monday", "/2026/copy")?;
    // Says whether everything is durable. Dropping it would do the same, and log a failure.
    fs.close()?;

    let fs = Filesystem::open(image, &Options::default())?;
    for entry in fs.walk("/")? {
        let entry = entry?;
        let size = entry.metadata()?.size;
        println!("{} {size}", entry.path().display());
    }
    let monday = fs.read("/2026/autumn/monday")?;
    assert_eq!(monday, b"pick persimmons\n");
    assert_eq!(fs.metadata("/2026/copy")?.mode & 0o7777, 0o600);
    // Errors say which path, and become those of `std::io`.
    match fs.read("/2026/spring") {
        Ok(_) => return Err("there was no spring".into()),
        Err(missing) => {
            println!("{missing}");
            let kind = std::io::Error::from(missing).kind();
            assert_eq!(kind, std::io::ErrorKind::NotFound);
        }
    }
    fs.remove_dir_all("/2026")?;
    Ok(fs.close()?)
}
