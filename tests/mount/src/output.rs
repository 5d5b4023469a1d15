//! What is said of a live mount: into what takes no more, to nobody, and of names that a terminal obeys.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "output::nothing_panics_and_a_trace_ends_with_its_reader",
        run: nothing_panics_and_a_trace_ends_with_its_reader,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "output::a_broken_mount_is_not_called_unmounted",
        run: a_broken_mount_is_not_called_unmounted,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

/// A name that a terminal would obey, and what it is shown as.
const HOSTILE: &[u8] = b"a\n\x1b[2J\"\xe2\x80\xae\xff";
const SHOWN: &str = "a\\n\\u{1b}[2J\\\"\\u{202e}\\xff";

/// Commands for mounts, and whether what they do is done before they say so.
const COMMANDS: &[(&str, &[&str], bool)] = &[
    ("info", &[], false),
    ("zones", &[], false),
    ("stats", &["--json"], false),
    ("trace", &["--once"], false),
    ("trace", &["--once", "--json"], false),
    ("zones", &["--watch", "--frames", "2"], false),
    ("tune", &["commit_interval_seconds=2s"], true),
    ("scrub", &[], true),
    ("clean", &[], true),
    ("sync", &["--json"], true),
];

fn tool(volume: &Volume, name: &str, arguments: &[&str]) -> Command {
    let mut command = volume.tool(name);
    command.arg(&volume.dir).args(arguments);
    command
}

fn nothing_panics_and_a_trace_ends_with_its_reader(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("output", 256 << 20, &[])?;
    volume.mount(&[])?;
    let name = std::ffi::OsStr::from_bytes(HOSTILE);
    let path = volume.dir.join(name);
    std::fs::write(&path, vec![7; 100_000])?;
    File::open(&path)?.sync_all()?;

    for (name, arguments, works) in COMMANDS {
        let full = File::options().write(true).open("/dev/full")?;
        let output = tool(&volume, name, arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{name}: {output:?}");
        ensure!(told.contains("No space left"), "{name}: {told}");

        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let output = tool(&volume, name, arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()?;
        let expected = if *works { 0 } else { 141 };
        ensure!(
            output.status.code() == Some(expected) && output.stderr.is_empty(),
            "{name}: {output:?}"
        );
    }

    let output = tool(&volume, "trace", &["--once", "--paths"]).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(told.contains(SHOWN), "{told}");
    ensure!(
        !told.chars().any(|c| c.is_control() && c != '\n'),
        "{told:?}"
    );
    let output = tool(&volume, "trace", &["--once", "--paths", "--json"]).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(
        told.contains("\"path_bytes\":\"2f610a1b5b324a22e280aeff\""),
        "{told}"
    );

    // It waited for the next event to notice. The volume is left alone meanwhile.
    let mut trace = tool(&volume, "trace", &[]).stdout(Stdio::piped()).spawn()?;
    let stdout = trace.stdout.take();
    let mut first = [0; 1];
    if let Some(mut stdout) = stdout {
        std::io::Read::read_exact(&mut stdout, &mut first)?;
    }
    let status = trace.wait()?;
    ensure!(status.code() == Some(141), "{status}");
    volume.unmount()
}

/// "Not mounted: nothing waits to be written" was told of what a daemon had that was killed.
fn a_broken_mount_is_not_called_unmounted(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("broken", 64 << 20, &[])?;
    volume.mount_foreground(&[])?;
    volume.kill_daemon()?;
    for target in [volume.dir.clone(), volume.image.clone()] {
        for name in ["sync", "info", "trace", "tune", "scrub", "clean"] {
            let output = volume.tool(name).arg(&target).output()?;
            let told = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(1), "{name}: {output:?}");
            ensure!(told.contains("its daemon is gone"), "{name}: {told}");
            ensure!(
                !told.contains("not mounted") && !told.contains("nothing waits"),
                "{name}: {told}"
            );
        }
    }
    volume.detach()
}
