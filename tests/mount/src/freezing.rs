//! `persimmon freeze` and `thaw`: the device is not written, reading goes on, changes wait, and no freeze lasts for ever.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::run;
use crate::durable::transports;
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "freezing::a_frozen_mount_is_read_and_its_device_is_not_written",
        run: a_frozen_mount_is_read_and_its_device_is_not_written,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "freezing::no_freeze_lasts_for_ever",
        run: no_freeze_lasts_for_ever,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "freezing::a_frozen_mount_ends_like_any_other",
        run: a_frozen_mount_ends_like_any_other,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

fn freeze(volume: &Volume, arguments: &[&str]) -> Result<Output> {
    let mut command = volume.tool("freeze");
    Ok(command.arg(&volume.dir).args(arguments).output()?)
}

fn thaw(volume: &Volume) -> Result<Output> {
    Ok(volume.tool("thaw").arg(&volume.dir).output()?)
}

fn succeeds(output: Output) -> Result<Output> {
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

/// Changes of each kind, which wait while it is frozen.
fn changes(dir: &Path) -> Vec<Box<dyn FnOnce() -> std::io::Result<()> + Send>> {
    let at = |name: &str| dir.join(name);
    let (written, cut, moved, gone) = (at("written"), at("cut"), at("moved"), at("gone"));
    let (made, to, new) = (at("made"), at("to"), at("new"));
    let (plain, linked) = (at("plain"), at("linked"));
    vec![
        Box::new(move || {
            File::options()
                .write(true)
                .open(written)?
                .write_all_at(b"late", 0)
        }),
        Box::new(move || File::options().write(true).open(cut)?.set_len(1)),
        Box::new(move || fs::rename(moved, to)),
        Box::new(move || fs::remove_file(gone)),
        Box::new(move || fs::create_dir(made)),
        Box::new(move || fs::write(new, b"late")),
        Box::new(move || fs::hard_link(plain, linked)),
    ]
}

fn a_frozen_mount_is_read_and_its_device_is_not_written(bed: &TestBed) -> Result<()> {
    for (number, transport) in transports().iter().enumerate() {
        let mut volume = bed.volume(&format!("freeze-{number}"), 128 << 20, &[])?;
        volume.mount(&[transport, "commit=1", "strictatime"])?;
        let due = noise(1, 3 << 20);
        for name in ["written", "cut", "moved", "gone", "plain", "read"] {
            fs::write(volume.dir.join(name), &due)?;
        }
        succeeds(freeze(&volume, &["--seconds", "100"])?)?;
        let again = freeze(&volume, &[])?;
        ensure!(again.status.code() == Some(1), "{again:?}");
        let mut stranger = volume.tool("thaw");
        let refused = stranger.arg(&volume.dir).uid(65_534).output()?;
        ensure!(refused.status.code() == Some(1), "{refused:?}");

        let told = succeeds(volume.tool("info").arg(&volume.dir).output()?)?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        ensure!(told.contains(", frozen"), "{told}");

        let before = fs::read(&volume.image)?;
        let changes = changes(&volume.dir);
        let count = changes.len();
        let done = AtomicUsize::new(0);
        let copy = volume.image.with_extension("copy");
        thread::scope(|scope| {
            let done = &done;
            let threads: Vec<_> = changes
                .into_iter()
                .map(|change| {
                    scope.spawn(move || {
                        let result = change();
                        done.fetch_add(1, Ordering::SeqCst);
                        result
                    })
                })
                .collect();
            // Longer than a commit.
            thread::sleep(Duration::from_millis(2500));
            ensure!(fs::read(volume.dir.join("read"))? == due, "reading");
            ensure!(done.load(Ordering::SeqCst) == 0, "changes did not wait");
            run(std::process::Command::new("sync")
                .arg("-f")
                .arg(&volume.dir))?;
            ensure!(fs::read(&volume.image)? == before, "the device was written");
            fs::copy(&volume.image, &copy)?;
            succeeds(thaw(&volume)?)?;
            for thread in threads {
                let result = thread.join();
                result.map_err(|_| anyhow::anyhow!("a change panicked"))??;
            }
            Ok(())
        })?;
        ensure!(done.load(Ordering::SeqCst) == count, "changes");
        let mut later = due.clone();
        later[..4].copy_from_slice(b"late");
        let names = |dir: &Path| -> Result<Vec<String>> {
            let all = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
            let mut all: Vec<_> = all.collect::<std::io::Result<_>>()?;
            all.sort();
            Ok(all
                .iter()
                .map(|n| n.to_string_lossy().into_owned())
                .collect())
        };
        let after = [
            "cut", "linked", "made", "new", "plain", "read", "to", "written",
        ];
        ensure!(names(&volume.dir)? == after, "{:?}", names(&volume.dir)?);
        ensure!(fs::read(volume.dir.join("written"))? == later, "written");
        ensure!(fs::read(volume.dir.join("new"))? == b"late", "new");
        volume.unmount()?;
        volume.fsck()?;

        fs::copy(&copy, &volume.image)?;
        fs::remove_file(&copy)?;
        volume.fsck()?;
        volume.mount(&[])?;
        let frozen = ["cut", "gone", "moved", "plain", "read", "written"];
        ensure!(names(&volume.dir)? == frozen, "{:?}", names(&volume.dir)?);
        for name in frozen {
            ensure!(
                fs::read(volume.dir.join(name))? == due,
                "{name} of the copy"
            );
        }
        volume.unmount()?;
        volume.destroy()?;
    }
    Ok(())
}

fn no_freeze_lasts_for_ever(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("freeze-ends", 128 << 20, &[])?;
    volume.mount(&[])?;
    let file = volume.dir.join("file");
    let waits = |at_most: Duration| -> Result<()> {
        let begun = Instant::now();
        fs::write(&file, b"content")?;
        ensure!(begun.elapsed() < at_most, "{:?}", begun.elapsed());
        Ok(())
    };
    let says = |output: &Output, words: &str| {
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(told.contains(words), "{told}");
        Ok(())
    };
    says(&thaw(&volume)?, "is not frozen")?;
    succeeds(freeze(&volume, &["--seconds", "1"])?)?;
    waits(Duration::from_secs(8))?;
    says(&thaw(&volume)?, "its time was over")?;

    // While a command runs, however long, and no longer.
    let code = freeze(&volume, &["--", "sh", "-c", "exit 5"])?;
    ensure!(code.status.code() == Some(5), "{code:?}");
    waits(Duration::from_secs(8))?;
    let persimmon = volume.tool("thaw").get_program().to_owned();
    let persimmon = persimmon.to_str().context("its path")?.to_owned();
    let dir = volume.dir.to_str().context("its path")?.to_owned();
    let ended = freeze(&volume, &["--", &persimmon, "thaw", &dir])?;
    says(&ended, "was not frozen to the end")?;
    says(
        &freeze(&volume, &["--", "/nothing/is/there"])?,
        "/nothing/is/there",
    )?;
    waits(Duration::from_secs(8))?;

    // Who holds it is killed.
    let mut holder = volume.tool("freeze");
    let frozen = bed.outside("freeze-ends")?.join("frozen");
    let holds = format!("touch '{}'; sleep 100", frozen.display());
    let mut holder = holder
        .arg(&volume.dir)
        .args(["--", "sh", "-c", &holds])
        .process_group(0)
        .spawn()?;
    let group = rustix::process::Pid::from_child(&holder);
    let begun = Instant::now();
    while !frozen.exists() {
        ensure!(begun.elapsed() < Duration::from_secs(30), "never frozen");
        thread::sleep(Duration::from_millis(20));
    }
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
    holder.wait()?;
    waits(Duration::from_secs(30))?;
    says(&thaw(&volume)?, "its time was over")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn a_frozen_mount_ends_like_any_other(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("freeze-stop", 128 << 20, &[])?;
    // Told to stop.
    volume.mount_foreground(&[])?;
    fs::write(volume.dir.join("file"), b"content")?;
    succeeds(freeze(&volume, &["--seconds", "600"])?)?;
    volume.terminate()?;
    volume.fsck()?;
    // Unmounted; read-only.
    for options in [&[][..], &["ro"][..]] {
        volume.mount(options)?;
        succeeds(freeze(&volume, &["--seconds", "600"])?)?;
        ensure!(fs::read(volume.dir.join("file"))? == b"content", "read");
        volume.unmount()?;
        volume.let_go()?;
        volume.fsck()?;
    }
    // Killed.
    volume.mount_foreground(&[])?;
    fs::write(volume.dir.join("acknowledged"), b"content")?;
    succeeds(freeze(&volume, &["--seconds", "600"])?)?;
    volume.kill()?;
    volume.mount(&[])?;
    ensure!(
        fs::read(volume.dir.join("acknowledged"))? == b"content",
        "lost"
    );
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
