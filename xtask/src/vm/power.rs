//! Cutting the power of the guest while work goes on that is acknowledged by fsync, sync, syncfs or umount, in turns. QEMU lives on, and with it what the
//! drive holds; the guest boots anew.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::guest::{Guest, Machine};
use super::kernel::Kernel;

const LIMIT: Duration = Duration::from_secs(300);
/// How long the load may run before a cut, milliseconds: between these.
const LOAD_MS: std::ops::Range<u64> = 3000..9000;

/// Writes, unmounts and says what was acknowledged by that, without end.
const BY_UMOUNT: &str = "persimmon umount /mnt/p; i=0; while true; do i=$((i+1)); \
    mount -t persimmon -o commit=3600 DRIVE /mnt/p && drive-tests load-once /mnt/p $((ROUND*1000+i)) >/tmp/written && \
    umount /mnt/p && cat /tmp/written || break; done";

/// What acknowledges in the rounds, in turns. Before Linux 6.18 sync and syncfs do not reach the volume.
fn acknowledged_by(kernel: Kernel) -> &'static [&'static str] {
    match kernel {
        Kernel::Sid => &["fsync", "sync", "syncfs", "umount"],
        _ => &["fsync", "umount"],
    }
}

/// So many rounds on a drive of QEMU: load, cut, boot, mount, compare, fsck.
pub fn run(machine: &Machine, drive: &str, rounds: u32) -> Result<()> {
    let mut noise = crate::volume::Noise(1);
    let mut guest = Guest::boot(machine)?;
    guest.check(&format!("mkfs.persimmon {drive}"), LIMIT)?;
    // What was acknowledged last, by file.
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    let mut told = 0;
    for round in 1..=rounds {
        let start = Instant::now();
        mount(&mut guest, drive)?;
        let kinds = acknowledged_by(machine.kernel);
        let by = kinds[round as usize % kinds.len()];
        let command = match by {
            "umount" => BY_UMOUNT
                .replace("DRIVE", drive)
                .replace("ROUND", &round.to_string()),
            by => format!("drive-tests load /mnt/p {round} --by {by}"),
        };
        let load = Duration::from_millis(LOAD_MS.start + noise.below(LOAD_MS.end - LOAD_MS.start));
        let before = told;
        guest.cut_power(&command, load, &mut |line| {
            if let Some((file, length)) = line.trim().split_once(' ')
                && !file.contains('/')
            {
                acknowledged.insert(file.to_owned(), length.to_owned());
                told += 1;
            }
        })?;
        ensure!(told > before, "nothing was acknowledged in {load:?}");
        let recovered = mount(&mut guest, drive)?;
        verify(&mut guest, &acknowledged)?;
        guest.check("persimmon umount /mnt/p", LIMIT)?;
        guest.check(&format!("persimmon fsck --data {drive}"), LIMIT)?;
        println!(
            "round {round}, {by}: cut after {:.1} s and {} acknowledgements, {} files compared, {:.0} s; {}",
            load.as_secs_f64(),
            told - before,
            acknowledged.len(),
            start.elapsed().as_secs_f64(),
            recovered.trim().replace('\n', "; ")
        );
        // Room for the next round.
        if round % 5 == 0 {
            mount(&mut guest, drive)?;
            guest.check("rm -f /mnt/p/*", LIMIT)?;
            guest.check("persimmon umount /mnt/p", LIMIT)?;
            acknowledged.clear();
        }
    }
    println!("{rounds} power cuts, {told} acknowledgements, none lost");
    Ok(())
}

fn mount(guest: &mut Guest, drive: &str) -> Result<String> {
    guest.check(
        &format!("mkdir -p /mnt/p; mount -t persimmon {drive} /mnt/p"),
        LIMIT,
    )
}

fn verify(guest: &mut Guest, acknowledged: &HashMap<String, String>) -> Result<()> {
    // A command is one line of less than the 4096 bytes that the guest's terminal takes.
    guest.check("rm -f /tmp/told", LIMIT)?;
    let lines: Vec<String> = acknowledged
        .iter()
        .map(|(file, length)| format!("{file} {length}"))
        .collect();
    for part in lines.chunks(50) {
        let command = format!(
            "printf '%s\\n' {}",
            part.iter()
                .map(|line| format!("'{line}'"))
                .collect::<Vec<_>>()
                .join(" ")
        );
        guest.check(&format!("{command} >>/tmp/told"), LIMIT)?;
    }
    let code = guest.run("drive-tests verify /mnt/p </tmp/told", LIMIT, &mut |line| {
        eprintln!("{line}")
    })?;
    if code != 0 {
        bail!("something acknowledged is lost");
    }
    Ok(())
}
