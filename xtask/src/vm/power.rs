//! Cutting the power of the guest while work goes on that is acknowledged by fsync, sync, syncfs or umount, in turns.
//! QEMU lives on, and with it what the drives hold; the guest boots anew. Booting takes most of the time, so each cut
//! goes through the work on several volumes: each is a round.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::guest::{Guest, Machine};
use super::kernel::Kernel;

const LIMIT: Duration = Duration::from_secs(300);
/// How long the load may run before a cut, milliseconds: between these.
const LOAD_MS: std::ops::Range<u64> = 4000..9000;
/// How many times longer it runs at most on a machine that is too busy to acknowledge anything in that time.
const PATIENCE_MAX: u32 = 16;
/// Volumes are checked, and emptied, after so many cuts.
const CUTS_UNTIL_EMPTY: u32 = 5;
/// Names told in one command, which is a line of less than the 4096 bytes that the guest's terminal takes.
const NAMES_AT_ONCE: usize = 120;
/// Cuts, and volumes, that numbers in the names of files tell apart.
const NUMBERS: u64 = 1000;

/// Writes, unmounts and says what was acknowledged by that, without end.
const BY_UMOUNT: &str = "persimmon umount DIR; i=0; while true; do i=$((i+1)); \
    mount -t persimmon -o commit=3600 DRIVE DIR && drive-tests load-once DIR $((FIRST+i)) >/tmp/NUMBER && \
    { umount DIR || { sleep 1; umount DIR; }; } && cat /tmp/NUMBER || break; done";
/// The same, and once `/tmp/cut` is there the power goes in the moment in which umount returns: what it acknowledges is
/// said before.
const CUT_BY_UMOUNT: &str = "persimmon umount DIR; i=0; while true; do i=$((i+1)); \
    mount -t persimmon -o commit=3600 DRIVE DIR && drive-tests load-once DIR $((FIRST+i)) >/tmp/NUMBER && \
    sed 's/$/ once-unmounted/' /tmp/NUMBER && test -e /tmp/cut && sleep 0.2; \
    umount DIR && test -e /tmp/cut && echo b >/proc/sysrq-trigger; cat /tmp/NUMBER || break; done";

/// What acknowledges in the rounds, in turns. Before Linux 6.18 sync and syncfs do not reach the volume.
fn acknowledged_by(kernel: Kernel) -> &'static [&'static str] {
    match kernel {
        Kernel::Sid => &["umount", "sync", "syncfs", "fsync"],
        _ => &["umount", "umount", "umount", "fsync"],
    }
}

/// One drive with a volume.
struct Volume {
    drive: String,
    dir: String,
    number: u64,
    /// What was acknowledged last, by file: a length, or that it is gone.
    acknowledged: HashMap<String, String>,
    /// What is, if the umount that follows returns.
    once_unmounted: Vec<(String, String)>,
    told: u64,
}

impl Volume {
    /// Where numbers in the names of its files begin.
    fn first(&self, cut: u32) -> u64 {
        (self.number * NUMBERS + u64::from(cut)) * NUMBERS
    }

    fn load(&self, by: &str, cut: u32) -> String {
        let command = match by {
            "umount" if self.number == 1 => CUT_BY_UMOUNT.to_owned(),
            "umount" => BY_UMOUNT.to_owned(),
            by => format!("drive-tests load DIR FIRST --by {by}"),
        };
        let command = command
            .replace("DRIVE", &self.drive)
            .replace("DIR", &self.dir)
            .replace("FIRST", &self.first(cut).to_string())
            .replace("NUMBER", &self.number.to_string());
        format!("({command}; echo ended {}) &", self.number)
    }

    /// Takes a line that the load said.
    fn hear(&mut self, file: &str, what: &str) {
        match what.split_once(' ') {
            Some((length, "once-unmounted")) => {
                self.once_unmounted
                    .push((file.to_owned(), length.to_owned()));
            }
            Some(_) => {}
            None => {
                self.once_unmounted.clear();
                self.acknowledge(file.to_owned(), what.to_owned());
            }
        }
    }

    fn acknowledge(&mut self, file: String, length: String) {
        self.acknowledged.insert(file, length);
        self.told += 1;
    }

    fn mount(&self, guest: &mut Guest) -> Result<String> {
        let (drive, dir) = (&self.drive, &self.dir);
        guest.check(
            &format!("mkdir -p {dir}; mount -t persimmon {drive} {dir}"),
            LIMIT,
        )
    }

    fn verify(&self, guest: &mut Guest) -> Result<()> {
        guest.check("rm -f /tmp/told; touch /tmp/told", LIMIT)?;
        let lines: Vec<String> = self
            .acknowledged
            .iter()
            .map(|(file, length)| format!("'{file} {length}'"))
            .collect();
        for part in lines.chunks(NAMES_AT_ONCE) {
            let command = format!("printf '%s\\n' {} >>/tmp/told", part.join(" "));
            guest.check(&command, LIMIT)?;
        }
        let command = format!("drive-tests verify {} </tmp/told", self.dir);
        let code = guest.run(&command, LIMIT, &mut |line| eprintln!("{line}"))?;
        if code != 0 {
            bail!("something acknowledged is lost on {}", self.drive);
        }
        Ok(())
    }

    /// Checks the volume and makes room.
    fn check(&mut self, guest: &mut Guest) -> Result<()> {
        let (drive, dir) = (&self.drive, &self.dir);
        guest.check(&format!("persimmon umount {dir}"), LIMIT)?;
        guest.check(&format!("persimmon fsck --data {drive}"), LIMIT)?;
        self.mount(guest)?;
        guest.check(&format!("rm -f {}/*", self.dir), LIMIT)?;
        self.acknowledged.clear();
        Ok(())
    }
}

/// At least so many rounds on drives of QEMU: load, cut, boot, mount, compare.
pub fn run(machine: &Machine, drives: &[String], rounds: u32) -> Result<()> {
    let mut noise = crate::volume::Noise(1);
    let mut guest = Guest::boot(machine)?;
    let mut volumes: Vec<Volume> = (1..)
        .zip(drives)
        .map(|(number, drive)| Volume {
            drive: drive.clone(),
            dir: format!("/mnt/{number}"),
            number,
            acknowledged: HashMap::new(),
            once_unmounted: Vec::new(),
            told: 0,
        })
        .collect();
    for volume in &volumes {
        guest.check(&format!("mkfs.persimmon {}", volume.drive), LIMIT)?;
        volume.mount(&mut guest)?;
    }
    let kinds = acknowledged_by(machine.kernel);
    let (mut cut, mut done, mut told) = (0, 0, 0);
    let mut by_kind: HashMap<&str, u32> = HashMap::new();
    let mut patience = 1;
    while done < rounds {
        let start = Instant::now();
        let by = kinds[cut as usize % kinds.len()];
        cut += 1;
        let load = Duration::from_millis(LOAD_MS.start + noise.below(LOAD_MS.end - LOAD_MS.start));
        let load = load * patience;
        cut_power(&mut guest, &mut volumes, by, cut, load)?;
        let mut went = 0;
        for volume in &mut volumes {
            volume.mount(&mut guest)?;
            volume.verify(&mut guest)?;
            went += u32::from(volume.told > 0);
            told += std::mem::take(&mut volume.told);
        }
        if went == 0 {
            patience *= 2;
            ensure!(
                patience <= PATIENCE_MAX,
                "nothing was acknowledged in {load:?}"
            );
        }
        if cut % CUTS_UNTIL_EMPTY == 0 {
            for volume in &mut volumes {
                volume.check(&mut guest)?;
            }
        }
        done += went;
        *by_kind.entry(by).or_default() += went;
        println!(
            "cut {cut}, {by}: after {:.1} s, {went} volumes with acknowledgements, {:.0} s; {done} rounds so far ({by_kind:?}), {told} acknowledgements, none lost",
            load.as_secs_f64(),
            start.elapsed().as_secs_f64(),
        );
    }
    for volume in &mut volumes {
        volume.check(&mut guest)?;
    }
    println!("{done} rounds in {cut} power cuts, {told} acknowledgements, none lost; {by_kind:?}");
    Ok(())
}

/// Has all volumes worked on, cuts the power, and keeps what they acknowledged.
fn cut_power(
    guest: &mut Guest,
    volumes: &mut [Volume],
    by: &str,
    cut: u32,
    load: Duration,
) -> Result<()> {
    let loads: Vec<String> = volumes.iter().map(|volume| volume.load(by, cut)).collect();
    let command = format!("{} wait", loads.join(" "));
    let trigger = match by {
        // By the first volume, when its umount has returned.
        "umount" => "touch /tmp/cut",
        _ => "echo b >/proc/sysrq-trigger",
    };
    let (mut ended, mut others) = (None, Vec::new());
    guest.cut_power(&command, trigger, load, &mut |line| {
        let Some((file, what)) = line.trim().split_once(' ') else {
            others.push(line.trim().to_owned());
            return;
        };
        if file == "ended" {
            ended = Some(what.to_owned());
        }
        let number = file.split('-').next().and_then(|n| n.parse::<u64>().ok());
        let volume = number.map(|number| number / NUMBERS / NUMBERS);
        if let Some(volume) = volumes.iter_mut().find(|v| Some(v.number) == volume) {
            volume.hear(file, what);
        } else {
            others.push(line.trim().to_owned());
        }
    })?;
    if let Some(number) = ended {
        bail!(
            "the load on volume {number} ended before the cut: {}",
            others.join("\n")
        );
    }
    if by == "umount" {
        let first = volumes.first_mut().context("a volume")?;
        for (file, length) in std::mem::take(&mut first.once_unmounted) {
            first.acknowledge(file, length);
        }
    }
    Ok(())
}
