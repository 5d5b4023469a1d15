//! A running guest: booted, told what to run, ended whatever happens.
//!
//! The first serial port is the kernel's console and goes to a file. The second is ours: the guest
//! reads commands from it, one a line, and writes what they print to it. Lines that are not the
//! command's begin with a word that only this run knows.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::archive::Archive;
use super::drive::{Drive, Kind};
use super::kernel::{self, Kernel};
use crate::{shell, volume};

/// A machine to be booted.
pub struct Machine {
    pub kernel: Kernel,
    pub drives: Vec<Drive>,
    pub memory_mib: u32,
    pub cpus: u32,
    pub clock: Clock,
    /// Host programs that go to /bin, with the libraries they need.
    pub programs: Vec<PathBuf>,
    /// This machine's root can be mounted, for reading: the 9p filesystem `host`.
    pub sees_host: bool,
    /// After so long QEMU is ended even if nobody is there any more to do it.
    pub life_limit: Duration,
}

/// What the guest's time goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host's time: work takes the guest as long as it takes the emulator.
    Host,
    /// Its own instructions, a nanosecond each, and while it waits the host's time. What the emulator is slow at costs no more than on a
    /// processor. It has one processor at a time then.
    Instructions,
}

/// A guest that is up.
pub struct Guest {
    qemu: Child,
    port: ChildStdin,
    lines: Receiver<Vec<u8>>,
    marker: String,
    dir: tempfile::TempDir,
    boot_time: Duration,
}

/// Tries to boot, since an emulated machine's kernel sometimes panics on its way up.
const BOOTS_MAX: u32 = 3;
/// For one boot. Ten seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// Of a guest from which nobody wants more.
pub const LIFE_LIMIT: Duration = Duration::from_secs(7200);
/// In the directory of a guest.
const INITRAMFS: &str = "initramfs";
const CONSOLE: &str = "console";
const COMPLAINTS: &str = "qemu";
/// Lines that wait to be read.
const LINES_MAX: usize = 1024;

/// The guest's first process, and under it the one that runs commands, one after the other. They are
/// two because daemons become children of the first: when one ends, the signal breaks off what the
/// first is reading, and busybox forgets the half of a line that it had.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt /etc /sbin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
for module in fuse nvme configfs; do modprobe $module 2>/dev/null; done
mount -t configfs configfs /sys/kernel/config
# Namespaces get their names in the order they are found in, which is any.
for name in $(ls /sys/block); do
    test -f /sys/block/$name/nsid || continue
    id=$(cat /sys/block/$name/nsid)
    ln -s /dev/$name /dev/ns$id
    ln -s /dev/ng${name#nvme} /dev/generic$id
done
export PATH=/bin HOME=/tmp
marker=$(sed 's/.*persimmon.marker=\([^ ]*\).*/\1/' /proc/cmdline)
stty -F /dev/ttyS1 raw -echo 115200
exec 3<>/dev/ttyS1
printf '\n%s ready\n' "$marker" >&3
(
    while read -r line <&3; do
        sh -c "$line" </dev/null >&3 2>&1 3<&-
        code=$?
        printf '\n%s %s\n' "$marker" $code >&3
    done
)
echo "the command port was closed"
"#;

impl Guest {
    /// Boots the machine and makes the drives that its kernel plays.
    pub fn boot(machine: &Machine) -> Result<Guest> {
        let mut boots = 1;
        loop {
            volume::go_on()?;
            match Guest::boot_once(machine) {
                Err(error) if boots < BOOTS_MAX => eprintln!("booting again: {error:#}"),
                result => return result,
            }
            boots += 1;
        }
    }

    fn boot_once(machine: &Machine) -> Result<Guest> {
        let start = Instant::now();
        let files = machine.kernel.files()?;
        let dir = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(kernel::cache()?)?;
        pack(&dir.path().join(INITRAMFS), &files.base, &machine.programs)?;
        let marker = format!("persimmon-{:016x}", unique(dir.path()));
        let mut qemu = start_qemu(machine, dir.path(), &files.image, &marker)?;
        let port = qemu.stdin.take().context("a piped standard input")?;
        let output = qemu.stdout.take().context("a piped standard output")?;
        let (sender, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n');
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut guest = Guest {
            qemu,
            port,
            lines,
            marker,
            dir,
            boot_time: Duration::ZERO,
        };
        guest.wait_until_ready()?;
        guest.boot_time = start.elapsed();
        guest.make_drives(&machine.drives)?;
        Ok(guest)
    }

    /// From the start of QEMU to the first command.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// Runs a command line by the guest's shell, shows `look` each line it prints, and returns its
    /// exit code.
    ///
    /// Fails when it takes longer than `limit`, or when the guest does not live to see its end.
    pub fn run(
        &mut self,
        command: &str,
        limit: Duration,
        look: &mut dyn FnMut(&str),
    ) -> Result<i32> {
        ensure!(!command.contains('\n'), "a command is one line");
        writeln!(self.port, "{command}")?;
        let end = self
            .wait(limit, look)
            .with_context(|| format!("in the guest: {command}"))?;
        match end.parse() {
            Ok(code) => Ok(code),
            Err(_) => bail!(
                "in the guest: {command}: it booted again\n{}",
                self.console()
            ),
        }
    }

    /// Runs a command that must succeed; what it printed.
    pub fn check(&mut self, command: &str, limit: Duration) -> Result<String> {
        let mut said = String::new();
        let code = self.run(command, limit, &mut |line| {
            said.push_str(line);
            said.push('\n');
        })?;
        ensure!(
            code == 0,
            "in the guest: {command}: exit code {code}\n{said}"
        );
        Ok(said)
    }

    /// Starts a command, and `after` that long the `trigger` that has the power cut, then or soon: the guest forgets all
    /// but what is on the drives of QEMU, and boots again. Shows `look` each line that was printed before; the last one
    /// may be cut off.
    pub fn cut_power(
        &mut self,
        command: &str,
        trigger: &str,
        after: Duration,
        look: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let cut = format!("(sleep {:.3}; {trigger}) & {command}", after.as_secs_f64());
        writeln!(self.port, "{cut}")?;
        let word = self
            .wait(after + BOOT_LIMIT, look)
            .context("cutting the power")?;
        ensure!(
            word == "ready",
            "in the guest: {command}: ended before the cut: {word}"
        );
        Ok(())
    }

    fn make_drives(&mut self, drives: &[Drive]) -> Result<()> {
        for kind in [Kind::Null, Kind::Scsi] {
            for (index, drive) in drives.iter().filter(|drive| drive.kind == kind).enumerate() {
                self.check(&drive.command(index), Duration::from_secs(60))?;
            }
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let word = self
            .wait(BOOT_LIMIT, &mut |_| ())
            .context("booting the guest")?;
        ensure!(
            word == "ready",
            "the guest said `{word}` instead of `ready`"
        );
        Ok(())
    }

    /// Passes lines on until one of ours comes; what that says.
    fn wait(&mut self, limit: Duration, look: &mut dyn FnMut(&str)) -> Result<String> {
        let end = Instant::now() + limit;
        // The line that ends a command begins on a line of its own, so there is one line break
        // more than the command printed.
        let mut held: Option<String> = None;
        loop {
            volume::go_on()?;
            let now = Instant::now();
            if now >= end {
                bail!("not over after {} s\n{}", limit.as_secs(), self.console());
            }
            // In pieces, to hear of an interruption.
            let line = match self
                .lines
                .recv_timeout((end - now).min(Duration::from_secs(1)))
            {
                Ok(line) => shown(&String::from_utf8_lossy(&line)).to_owned(),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => bail!("QEMU ended\n{}", self.console()),
            };
            let ours = line.strip_prefix(self.marker.as_str());
            if let Some(word) = ours.and_then(|rest| rest.strip_prefix(' ')) {
                if let Some(held) = held.filter(|held| !held.is_empty()) {
                    look(&held);
                }
                return Ok(word.to_owned());
            }
            if let Some(held) = held.replace(line) {
                look(&held);
            }
        }
    }

    /// What QEMU complained of and the last lines of the kernel's console, for messages.
    fn console(&self) -> String {
        let text = |name: &str| {
            let bytes = fs::read(self.dir.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let console = text(CONSOLE);
        let lines: Vec<&str> = console.lines().collect();
        let tail = &lines[lines.len().saturating_sub(25)..];
        let complaints = text(COMPLAINTS);
        format!(
            "{complaints}the guest's console ends with:\n{}",
            tail.join("\n")
        )
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It passes the signal on to QEMU.
        if let Some(pid) = i32::try_from(self.qemu.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.qemu.wait();
    }
}

/// Writes the initramfs: kernel modules and busybox, then the programs and what they need.
fn pack(path: &Path, base: &Path, programs: &[PathBuf]) -> Result<()> {
    let mut archive = Archive::create_from(path, base)?;
    archive.file("init", 0o755, INIT.as_bytes())?;
    let mut libraries = BTreeSet::new();
    for program in programs {
        let name = program.file_name().context("a program without a name")?;
        let stripped = path.with_extension("stripped");
        let mut strip = shell::command(&["strip", "-o"]);
        shell::check(strip.arg(&stripped).arg(program))?;
        archive.file(
            &format!("bin/{}", name.display()),
            0o755,
            &fs::read(stripped)?,
        )?;
        let program = program.to_str().context("a path that is no text")?;
        libraries.extend(needs(&shell::output(&["ldd", program])?));
    }
    for helper in ["mkfs", "mount", "fsck", "umount"] {
        archive.link(&format!("bin/{helper}.persimmon"), "persimmon")?;
    }
    let mut made = BTreeSet::new();
    for library in &libraries {
        let relative = library.trim_start_matches('/');
        for (end, _) in relative.match_indices('/') {
            if made.insert(&relative[..end]) {
                archive.directory(&relative[..end])?;
            }
        }
        archive.file(relative, 0o755, &fs::read(library)?)?;
    }
    archive.finish()
}

/// The paths in what ldd prints.
fn needs(said: &str) -> Vec<String> {
    let words = said.split_whitespace();
    words
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect()
}

fn start_qemu(machine: &Machine, dir: &Path, image: &Path, marker: &str) -> Result<Child> {
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        &machine.life_limit.as_secs().to_string(),
        "nice",
        "-n",
        "5",
        "qemu-system-x86_64",
    ]);
    command.args(["-machine", "q35"]);
    match machine.clock {
        // The emulator computes these two's checksums bit by bit; tables are several times as fast there.
        Clock::Host => command.args(["-accel", "tcg", "-cpu", "max,-sse4.2,-pclmulqdq"]),
        Clock::Instructions => command.args([
            "-accel",
            "tcg,thread=single",
            "-icount",
            "shift=0",
            "-cpu",
            "max",
        ]),
    };
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    command.args(["-m", &format!("{}M", machine.memory_mib)]);
    command.args(["-smp", &machine.cpus.to_string()]);
    command.arg("-kernel").arg(image);
    command.arg("-initrd").arg(dir.join(INITRAMFS));
    // The emulated time stamp counter drifts on a busy host. 112, 297 and 580 are the processor's
    // flags for quick `rep movs`, which the emulator is slow at.
    command.arg("-append").arg(format!(
        "console=ttyS0 loglevel=6 panic=-1 clocksource=hpet tsc=unstable mitigations=off \
         clearcpuid=112,297,580 random.trust_cpu=on persimmon.marker={marker}"
    ));
    let console = dir.join(CONSOLE);
    command
        .arg("-serial")
        .arg(format!("file:{}", console.display()));
    command.args([
        "-chardev",
        "stdio,id=port,signal=off",
        "-serial",
        "chardev:port",
    ]);
    command.args(["-device", "nvme,id=nvme,serial=persimmon,mdts=7"]);
    if machine.sees_host {
        let root = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap";
        command.args(["-virtfs", root]);
    }
    let of_qemu = machine.drives.iter().filter(|drive| drive.is_of_qemu());
    for (index, drive) in of_qemu.enumerate() {
        let file = dir.join(format!("drive{index}"));
        File::create(&file)?.set_len(drive.size_bytes)?;
        command.args(drive.qemu(index + 1, &file.display().to_string()));
    }
    command.stderr(File::create(dir.join(COMPLAINTS))?);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    spawned.context("cannot run qemu-system-x86_64; `cargo xtask setup` installs it")
}

/// What a terminal would show of a line: programs in the guest take it for one, and write their
/// progress again and again.
fn shown(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r')
        .next()
        .unwrap_or(line)
        .trim_start_matches("\u{1b}[2K")
}

/// A number that no command of the guest can know.
fn unique(dir: &Path) -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = format!("{}{:?}{}", dir.display(), time, std::process::id());
    xxhash_rust::xxh3::xxh3_64(seed.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_are_found_in_what_ldd_prints() {
        let said = "\tlinux-vdso.so.1 (0x7ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(super::needs(said), expected);
    }
}
