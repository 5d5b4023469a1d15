//! Single bytes of an image flipped: mount, programs and fsck notice what matters, and never return
//! wrong data.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::posix::expect::{Noise, noise};
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "damage::no_flipped_byte_leads_to_wrong_data",
    run: no_flipped_byte_leads_to_wrong_data,
    limit_seconds: 300,
    only_persimmon: true,
}];

/// Flips over the whole image; every structure kind is sampled below the mount, on smaller volumes.
const FLIPS: usize = 120;

/// Every file with its content.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut queue = vec![dir.to_owned()];
    while let Some(path) = queue.pop() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => queue.push(path),
                // What cannot be read is an error that its reader saw: no wrong data.
                _ => {
                    if let (Ok(bytes), Ok(name)) = (std::fs::read(&path), path.strip_prefix(dir)) {
                        found.insert(name.to_owned(), bytes);
                    }
                }
            }
        }
    }
    found
}

fn no_flipped_byte_leads_to_wrong_data(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("damage", 64 << 20, &["--zone-size", "1M"])?;
    volume.mount(&[])?;
    for number in 0..300u64 {
        let dir = volume.dir.join((number % 10).to_string());
        std::fs::create_dir_all(&dir)?;
        let size = [10, 3000, 5000, 60_000][(number % 4) as usize];
        std::fs::write(dir.join(number.to_string()), noise(number, size))?;
    }
    volume.unmount()?;
    volume.mount(&["ro"])?;
    let due = contents(&volume.dir);
    volume.unmount()?;
    volume.let_go()?;
    ensure!(due.len() == 300, "{} files", due.len());
    let good = std::fs::read(&volume.image)?;
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    let mut dice = Noise(77);
    let (mut noticed, mut refused) = (0, 0);
    for flip in 0..FLIPS {
        // Half of them in the first 3 MiB: the container's table and the log.
        let most = if flip % 2 == 0 {
            used.len()
        } else {
            used.len().min(3 << 20)
        };
        let at = used[dice.below(most as u64) as usize];
        let bit = 1u8 << dice.below(8);
        let image = OpenOptions::new().write(true).open(&volume.image)?;
        image.write_all_at(&[good[at] ^ bit], at as u64)?;
        let what = || format!("bit {bit:#04x} of byte {at}");
        let clean = fsck(&volume).with_context(what)?;
        let mounted = mount_read_only(&volume).with_context(what)?;
        noticed += usize::from(!clean);
        if mounted {
            let found = contents(&volume.dir);
            volume.unmount().with_context(what)?;
            // The byte is put back below the daemon's feet otherwise.
            let _ = volume.let_go();
            for (path, bytes) in &found {
                let wrong = due.get(path).is_none_or(|due| due != bytes);
                ensure!(!wrong, "{}: {} has wrong content", what(), path.display());
            }
            ensure!(
                !clean || found.len() == due.len(),
                "{}: fsck is content, {} of {} files can be read",
                what(),
                found.len(),
                due.len()
            );
        } else {
            refused += 1;
            ensure!(
                !clean,
                "{}: it cannot be mounted and fsck is content",
                what()
            );
        }
        image.write_all_at(&[good[at]], at as u64)?;
    }
    println!("      {FLIPS} flips: fsck noticed {noticed}, mount refused {refused}, no wrong data");
    ensure!(
        noticed > FLIPS / 10,
        "fsck noticed only {noticed} of {FLIPS} flips"
    );
    volume.fsck()?;
    volume.destroy()
}

/// True when fsck finds nothing; an error when it ends in any way that is not documented.
fn fsck(volume: &Volume) -> Result<bool> {
    let mut command = volume.tool("fsck");
    let output = command.arg(&volume.image).arg("--data").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!text.contains("panicked"), "fsck panicked: {text}");
    let code = output.status.code();
    ensure!(
        matches!(code, Some(0 | 4 | 8)),
        "fsck: {} {text}",
        output.status
    );
    Ok(code == Some(0))
}

/// True when it is mounted.
fn mount_read_only(volume: &Volume) -> Result<bool> {
    let mut command: Command = volume.tool("mount");
    command
        .arg(&volume.image)
        .arg(&volume.dir)
        .args(["-o", "ro"]);
    let status = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(matches!(status.code(), Some(0 | 32)), "mount: {status}");
    Ok(status.success())
}
