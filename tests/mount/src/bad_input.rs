//! What cannot work: each refusal names the thing and the remedy, has its documented exit code
//! (docs/CLI.md), and loses nothing.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::command::run;
use crate::posix::expect::{Noise, noise, same_bytes};
use crate::scenario::{Scenario, TestBed};
use crate::volume::{Volume, is_mounted};

const SIZE: u64 = 256 << 20;
const MOUNT_USAGE: i32 = 1;
const MOUNT_FAILED: i32 = 32;
const MKFS_FAILED: i32 = 1;
const USAGE: i32 = 2;
const FSCK_LEFT: i32 = 4;
const FSCK_FAILED: i32 = 8;
const FSCK_USAGE: i32 = 16;

macro_rules! scenarios {
    ($($function:ident),+ $(,)?) => {
        /// The scenarios.
        pub const SCENARIOS: &[Scenario] = &[
            $(Scenario {
                name: concat!("bad_input::", stringify!($function)),
                run: $function,
                limit_seconds: 120,
                only_persimmon: true,
            }),+
        ];
    };
}

scenarios!(
    a_truncated_image,
    a_foreign_filesystem,
    something_that_is_no_volume,
    a_newer_format,
    an_image_in_use,
    a_geometry_that_cannot_work,
    a_full_host_below_a_sparse_image,
    a_daemon_killed_while_mounted,
    a_mount_with_few_descriptors,
    a_crash_in_the_middle_of_mkfs,
    two_copies_of_one_image,
    options_that_do_not_exist,
    values_that_make_no_sense,
    what_a_remount_cannot_change,
);

/// How a command ended and what it said, on both outputs.
struct Said {
    command: String,
    code: Option<i32>,
    text: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Said {
            command,
            code,
            text,
        } = self;
        write!(f, "{command} ended with {code:?} and said:\n{text}")
    }
}

impl Said {
    fn of(command: &mut Command) -> Result<Said> {
        // A daemon that stays behind would hold a pipe open: what is said goes to a file.
        let mut file = tempfile()?;
        command.stdin(Stdio::null());
        command.stdout(file.try_clone()?).stderr(file.try_clone()?);
        let status = command.status()?;
        file.flush()?;
        Ok(Said {
            command: format!("{command:?}"),
            code: status.code(),
            text: String::from_utf8_lossy(&crate::posix::expect::content(&file)?).into_owned(),
        })
    }

    /// It must have failed with this code and said each of these words, in any case of letters.
    fn refuses(&self, code: i32, words: &[&str]) -> Result<()> {
        ensure!(self.code == Some(code), "exit code {code} was due: {self}");
        ensure!(!self.text.contains("panicked"), "it panicked: {self}");
        self.says(words)
    }

    /// It must have said each of these words; `a|b` is either.
    fn says(&self, words: &[&str]) -> Result<()> {
        let text = self.text.to_lowercase();
        for word in words {
            let found = word
                .split('|')
                .any(|word| text.contains(&word.to_lowercase()));
            ensure!(found, "it does not say {word:?}: {self}");
        }
        Ok(())
    }

    fn succeeds(&self) -> Result<()> {
        ensure!(self.code == Some(0), "it failed: {self}");
        Ok(())
    }
}

fn tempfile() -> Result<File> {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    Ok(rustix::fs::open(std::env::temp_dir(), flags, 0o600.into())?.into())
}

fn tool(bed: &TestBed, subcommand: &str, words: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<Said> {
    let mut command = Command::new(&bed.persimmon);
    command
        .arg(subcommand)
        .args(words.iter().map(|word| word.as_ref()));
    Said::of(&mut command)
}

fn hash(path: &Path) -> Result<u64> {
    Ok(xxh3_64(&std::fs::read(path)?))
}

/// A volume with a file of noise in it, unmounted.
fn filled(bed: &TestBed, name: &str) -> Result<Volume> {
    let mut volume = bed.volume(name, SIZE, &[])?;
    volume.mount(&[])?;
    std::fs::write(volume.dir.join("file"), noise(1, 5_000_000))?;
    volume.unmount()?;
    volume.let_go()?;
    Ok(volume)
}

fn still_good(volume: &mut Volume) -> Result<()> {
    volume.fsck()?;
    volume.mount(&[])?;
    same_bytes(
        &std::fs::read(volume.dir.join("file"))?,
        &noise(1, 5_000_000),
    )?;
    volume.unmount()
}

/// Every command must refuse the file, saying these words, and leave it as it is.
fn all_refuse(bed: &TestBed, path: &Path, dir: &Path, words: &[&str]) -> Result<()> {
    let before = hash(path)?;
    tool(bed, "mount", &[&path, &dir])?.refuses(MOUNT_FAILED, words)?;
    ensure!(!is_mounted(dir)?, "it is mounted all the same");
    tool(bed, "fsck", &[&path])?.refuses(FSCK_FAILED, words)?;
    for subcommand in ["info", "zones", "stats", "dump"] {
        tool(bed, subcommand, &[&path])?.refuses(1, words)?;
    }
    ensure!(hash(path)? == before, "a refusal has changed the file");
    Ok(())
}

fn a_truncated_image(bed: &TestBed) -> Result<()> {
    let volume = filled(bed, "truncated")?;
    let path = volume.image.clone();
    let full = std::fs::metadata(&path)?.len();
    // What is behind the zones has its like at the start: it is mounted, and whole again afterwards.
    OpenOptions::new()
        .write(true)
        .open(&path)?
        .set_len(full - 1)?;
    tool(bed, "mount", &[&path, &volume.dir])?.succeeds()?;
    tool(bed, "umount", &[&volume.dir])?.succeeds()?;
    tool(bed, "fsck", &[&path])?.succeeds()?;
    ensure!(std::fs::metadata(&path)?.len() == full, "it stays short");
    for len in [full / 2, 100_000, 4096, 4095, 100] {
        OpenOptions::new().write(true).open(&path)?.set_len(len)?;
        let before = hash(&path)?;
        let said = tool(bed, "mount", &[&path, &volume.dir])?;
        said.refuses(MOUNT_FAILED, &["truncated", "short|truncated|bytes"])
            .with_context(|| format!("cut to {len} bytes of {full}"))?;
        let said = tool(bed, "fsck", &[&path])?;
        ensure!(
            matches!(said.code, Some(FSCK_FAILED | FSCK_LEFT)),
            "fsck of a truncated image: {said}"
        );
        ensure!(hash(&path)? == before, "a refusal has changed the image");
    }
    volume.destroy()
}

fn a_foreign_filesystem(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("foreign")?;
    let (path, dir) = (outside.join("ext4.img"), outside.join("mnt"));
    std::fs::create_dir(&dir)?;
    File::create(&path)?.set_len(SIZE)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path))?;
    let name = path.to_string_lossy().into_owned();
    all_refuse(bed, &path, &dir, &[&name, "ext4|not a persimmon"])?;
    let before = hash(&path)?;
    tool(bed, "mkfs", &[&path])?.refuses(MKFS_FAILED, &[&name, "ext4", "--force"])?;
    ensure!(hash(&path)? == before, "mkfs has changed what it refused");
    tool(bed, "mkfs", &[&path, &"--force"])?.succeeds()?;
    tool(bed, "fsck", &[&path])?.succeeds()
}

fn something_that_is_no_volume(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("no-volume")?;
    let (path, dir) = (outside.join("file"), outside.join("mnt"));
    std::fs::create_dir(&dir)?;
    let name = path.to_string_lossy().into_owned();
    let contents = [
        Vec::new(),
        b"text".to_vec(),
        vec![0; 1 << 20],
        noise(1, 1 << 20),
    ];
    for content in contents {
        std::fs::write(&path, content)?;
        all_refuse(bed, &path, &dir, &[&name])?;
    }
    std::fs::remove_file(&path)?;
    tool(bed, "mount", &[&path, &dir])?.refuses(MOUNT_FAILED, &[&name, "no such file"])?;
    tool(bed, "mount", &[&outside, &dir])?
        .refuses(MOUNT_FAILED, &["regular file", "block device"])?;
    tool(bed, "mount", &[&path, &outside.join("none")])?;
    tool(bed, "fsck", &[&path])?.refuses(FSCK_FAILED, &[&name, "no such file"])
}

fn a_newer_format(bed: &TestBed) -> Result<()> {
    // Offsets of docs/format/container.md: version at 8, second copy's place at 152, checksum at the end.
    let volume = filled(bed, "newer")?;
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&volume.image)?;
    let mut block = [0u8; 4096];
    image.read_exact_at(&mut block, 0)?;
    let second: [u8; 8] = block[152..160].try_into()?;
    for at in [0, u64::from_le_bytes(second)] {
        image.read_exact_at(&mut block, at)?;
        block[8..12].copy_from_slice(&77u32.to_le_bytes());
        let checksum = xxh3_64_with_seed(&block[..4088], 0);
        block[4088..].copy_from_slice(&checksum.to_le_bytes());
        image.write_all_at(&block, at)?;
    }
    drop(image);
    let name = volume.image.to_string_lossy().into_owned();
    all_refuse(bed, &volume.image, &volume.dir, &[&name, "77", "version"])?;
    volume.destroy()
}

fn an_image_in_use(bed: &TestBed) -> Result<()> {
    let mut volume = filled(bed, "in-use")?;
    volume.mount(&[])?;
    let name = volume.image.to_string_lossy().into_owned();
    let outside = bed.outside("in-use")?;
    let place = volume.dir.to_string_lossy().into_owned();
    tool(bed, "mount", &[&volume.image, &outside])?
        .refuses(MOUNT_FAILED, &[&name, &place, "mounted"])?;
    tool(bed, "fsck", &[&volume.image])?
        .refuses(FSCK_FAILED, &[&name, "mounted", "umount|unmount"])?;
    for force in [false, true] {
        let mut words: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&volume.image];
        if force {
            words.push(&"--force");
        }
        tool(bed, "mkfs", &words)?.refuses(MKFS_FAILED, &[&name, "mounted|in use"])?;
    }
    same_bytes(
        &std::fs::read(volume.dir.join("file"))?,
        &noise(1, 5_000_000),
    )?;
    volume.unmount()?;
    still_good(&mut volume)?;
    volume.destroy()
}

fn a_geometry_that_cannot_work(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("geometry")?;
    let path = outside.join("new.img");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--size", "2M", "--zone-size", "1M"], &["zones"]),
        (&["--size", "1G", "--zone-size", "512M"], &["zones"]),
        (
            &["--size", "1G", "--zone-size", "512K"],
            &["zone size", "1 MiB"],
        ),
        (
            &[
                "--size",
                "1G",
                "--zone-size",
                "16M",
                "--zone-capacity",
                "32M",
            ],
            &["capacity"],
        ),
        (&["--size", "1G", "--max-active", "1"], &["active"]),
    ];
    for (options, words) in cases {
        let mut command = Command::new(&bed.persimmon);
        command.arg("mkfs").arg(&path).args(options);
        let said = Said::of(&mut command)?;
        ensure!(matches!(said.code, Some(MKFS_FAILED | USAGE)), "{said}");
        said.says(words)?;
        // What is needed is a number.
        ensure!(said.text.chars().any(|c| c.is_ascii_digit()), "{said}");
        ensure!(!path.exists(), "a refused mkfs left a file: {said}");
    }
    Ok(())
}

fn a_full_host_below_a_sparse_image(bed: &TestBed) -> Result<()> {
    let host = bed.outside("full-host")?;
    let small = ["-t", "tmpfs", "-o", "size=48m", "tmpfs"];
    run(Command::new("mount").args(small).arg(&host))?;
    let result = on_a_full_host(bed, &host);
    run(Command::new("umount").arg("-l").arg(&host))?;
    result
}

fn on_a_full_host(bed: &TestBed, host: &Path) -> Result<()> {
    let inner = TestBed {
        work: host.to_owned(),
        ..bed.clone()
    };
    std::fs::write(host.join("ballast"), vec![1; 24 << 20])?;
    let mut volume = inner.volume("volume", SIZE, &[])?;
    volume.mount_foreground(&[])?;
    let mut synced = 0;
    for number in 0..200u64 {
        let path = volume.dir.join(number.to_string());
        let write = || -> std::io::Result<()> {
            let mut file = File::create(path)?;
            file.write_all(&noise(number, 500_000))?;
            file.sync_all()
        };
        if write().is_err() {
            break;
        }
        synced = number + 1;
    }
    ensure!(
        (1..200).contains(&synced),
        "{synced} files on a host with room for some"
    );
    // What was synced can still be read, and is there again when the host has room.
    let verify = |dir: &Path| -> Result<()> {
        for number in 0..synced {
            let found = std::fs::read(dir.join(number.to_string()))?;
            same_bytes(&found, &noise(number, 500_000))
                .with_context(|| format!("file {number}"))?;
        }
        Ok(())
    };
    verify(&volume.dir).context("while the host is full")?;
    std::fs::remove_file(host.join("ballast"))?;
    volume.kill()?;
    volume.mount(&[])?;
    verify(&volume.dir).context("when the host has room again")?;
    std::fs::write(volume.dir.join("more"), noise(5, 1_000_000))?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn a_daemon_killed_while_mounted(bed: &TestBed) -> Result<()> {
    let mut volume = filled(bed, "killed-daemon")?;
    volume.mount_foreground(&[])?;
    let mut file = File::create(volume.dir.join("synced"))?;
    file.write_all(b"synced")?;
    file.sync_all()?;
    drop(file);
    volume.kill()?;
    let said = tool(bed, "mount", &[&volume.image, &volume.dir])?;
    said.succeeds()?;
    said.says(&["recovered|recovery"])?;
    ensure!(std::fs::read(volume.dir.join("synced"))? == b"synced");
    volume.unmount()?;
    let said = tool(bed, "mount", &[&volume.image, &volume.dir])?;
    said.succeeds()?;
    ensure!(
        said.text.is_empty(),
        "nothing to tell after a clean unmount: {said}"
    );
    volume.unmount()?;
    still_good(&mut volume)?;
    volume.destroy()
}

/// At every number of descriptors either it mounts, and answers, or nothing is mounted.
fn a_mount_with_few_descriptors(bed: &TestBed) -> Result<()> {
    let mut volume = filled(bed, "few-descriptors")?;
    for limit in 6..20 {
        let line = format!("ulimit -n {limit}; exec \"$0\" mount \"$1\" \"$2\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).arg(&bed.persimmon);
        command.arg(&volume.image).arg(&volume.dir);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            std::fs::read_dir(&volume.dir).with_context(|| format!("{limit}: {text}"))?;
            volume.unmount()?;
        } else {
            ensure!(!is_mounted(&volume.dir)?, "{limit}: {text}");
        }
    }
    still_good(&mut volume)?;
    volume.destroy()
}

fn a_crash_in_the_middle_of_mkfs(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("mkfs-crash")?;
    let (path, dir) = (outside.join("new.img"), outside.join("mnt"));
    std::fs::create_dir(&dir)?;
    let name = path.to_string_lossy().into_owned();
    let mut dice = Noise(8);
    for round in 0..25 {
        let mut command = Command::new(&bed.persimmon);
        command.args(["mkfs", "--force", "--size", "1G"]).arg(&path);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_micros(dice.below(30_000)));
        child.kill()?;
        let status = child.wait()?;
        if !path.exists() {
            continue;
        }
        let said = tool(bed, "mount", &[&path, &dir])?;
        if said.code == Some(0) {
            run(Command::new("umount").arg(&dir))?;
            continue;
        }
        ensure!(
            !status.success(),
            "round {round}: a finished mkfs cannot be mounted: {said}"
        );
        said.refuses(MOUNT_FAILED, &[&name])
            .with_context(|| format!("round {round}"))?;
    }
    tool(bed, "mkfs", &[&path, &"--force", &"--size", &"1G"])?.succeeds()?;
    tool(bed, "fsck", &[&path])?.succeeds()
}

fn two_copies_of_one_image(bed: &TestBed) -> Result<()> {
    let mut volume = filled(bed, "copied")?;
    let outside = bed.outside("copied")?;
    let (copy, dir) = (outside.join("copy.img"), outside.join("mnt"));
    std::fs::create_dir(&dir)?;
    std::fs::copy(&volume.image, &copy)?;
    volume.mount(&[])?;
    let (name, place) = (copy.to_string_lossy(), volume.dir.to_string_lossy());
    let said = tool(bed, "mount", &[&copy, &dir])?;
    said.refuses(MOUNT_FAILED, &[&name, &place, "uuid", "copy"])?;
    volume.unmount()?;
    still_good(&mut volume)?;
    tool(bed, "mount", &[&copy, &dir])?.succeeds()?;
    run(Command::new("umount").arg(&dir))?;
    tool(bed, "fsck", &[&copy])?.succeeds()?;
    volume.destroy()
}

fn options_that_do_not_exist(bed: &TestBed) -> Result<()> {
    let volume = filled(bed, "options-unknown")?;
    let (image, dir) = (&volume.image, &volume.dir);
    tool(bed, "mount", &[image, dir, &"-o", &"nonsense"])?.refuses(MOUNT_USAGE, &["nonsense"])?;
    tool(bed, "mount", &[image, dir, &"-o", &"ro,nonsense=5"])?
        .refuses(MOUNT_USAGE, &["nonsense"])?;
    tool(bed, "mount", &[image, dir, &"--nonsense"])?.refuses(MOUNT_USAGE, &["--nonsense"])?;
    tool(bed, "fsck", &[image, &"--nonsense"])?.refuses(FSCK_USAGE, &["--nonsense"])?;
    for subcommand in ["mkfs", "info", "zones", "stats", "dump"] {
        tool(bed, subcommand, &[image, &"--nonsense"])?.refuses(USAGE, &["--nonsense"])?;
    }
    tool(bed, "nonsense", &[])?.refuses(USAGE, &["nonsense"])?;
    ensure!(!is_mounted(dir)?);
    volume.destroy()
}

fn values_that_make_no_sense(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("values")?;
    let path = outside.join("new.img");
    let cases: [(&[&str], &str); 7] = [
        (&["--size", "banana"], "banana"),
        (&["--size", "-5G"], "-5"),
        (&["--size", "99999999P"], "99999999P"),
        (&["--size", "1G", "--zone-size", "0"], "zone"),
        (&["--size", "1G", "--reserve", "200%"], "200%"),
        (&["--size", "1G", "--uuid", "not-a-uuid"], "not-a-uuid"),
        (&["--size", "1G", "--max-open", "0"], "open"),
    ];
    for (options, word) in cases {
        let mut command = Command::new(&bed.persimmon);
        let said = Said::of(command.arg("mkfs").arg(&path).args(options))?;
        ensure!(matches!(said.code, Some(MKFS_FAILED | USAGE)), "{said}");
        said.says(&[word])?;
        ensure!(!said.text.contains("panicked"), "{said}");
        ensure!(!path.exists(), "a refused mkfs left a file: {said}");
    }
    Ok(())
}

/// As `mount -o remount` runs it, with the options of the mount as the kernel shows them.
fn what_a_remount_cannot_change(bed: &TestBed) -> Result<()> {
    let mut volume = filled(bed, "remount-options")?;
    volume.mount(&["commit=30", "noatime", "nosuid"])?;
    let dir = volume.dir.clone();
    let remount = |options: &str| {
        let shown = "rw,nosuid,noatime,user_id=0,group_id=0,default_permissions,allow_other";
        let list = format!("{shown},remount,{options}");
        tool(bed, "mount", &[&volume.image, &dir, &"-o", &list])
    };
    for options in ["commit=9", "relatime", "errors=continue,ro"] {
        let word = options.split(',').next().unwrap_or_default();
        remount(options)?.refuses(MOUNT_USAGE, &[word, "nosuid, nodev and noexec", "umount"])?;
    }
    std::fs::write(dir.join("writable"), b"still")?;
    // What is as it is may be said again.
    remount("commit=30,ro")?.succeeds()?;
    ensure!(std::fs::write(dir.join("refused"), b"").is_err());
    let words: [&dyn AsRef<std::ffi::OsStr>; 5] =
        [&volume.image, &dir, &"-o", &"remount,rw,nosuid", &"--json"];
    let said = tool(bed, "mount", &words)?;
    said.succeeds()?;
    said.says(&["mount_point"])?;
    std::fs::write(dir.join("writable"), b"again")?;
    volume.unmount()?;
    still_good(&mut volume)?;
    volume.destroy()
}
