//! `cargo xtask test --quick`: the tests that find most in a minute and a half, each with its time by the clock.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Count, failed_test, parse_result};
use crate::shell;

/// Seconds that all parts together may take on two cores, without the build.
const SECONDS_MAX: f64 = 90.0;
/// Parts that run at the same time.
const JOBS: usize = 2;

/// Examples of `persimmon-crash` that try seeds, with the options that keep them short.
const SEEDS: &[(&str, &str)] = &[
    ("simulate", "--states 600 --seed 5000 --shrink 0"),
    ("threads", "--runs 12"),
    ("hosted", "--runs 8"),
    ("fullness", "--cycles 60 --per-volume 10"),
    ("fullness", "--cycles 60 --per-volume 10 --seed 1000000"),
];

/// Integration tests that run beside the unit tests: crate, program, and which of its tests (empty: all). Those that try many seeds are left
/// to the whole test run.
const TESTS: &[(&str, &str, &str)] = &[
    ("crash", "harness", ""),
    ("engine", "all", "regressions::"),
    ("engine", "all", "two_copies::"),
    ("inspect", "all", "sound_volumes::"),
    ("persimmon", "promises", ""),
    ("sim", "conformance", ""),
    ("vfs", "posix", ""),
];

/// Tests that take longest, by crate, as `cargo test` names them: they are left to the whole test run, and what is beside
/// them in their program is run.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "device",
        &[
            "image::tests::damage::any_flipped_byte_of_superblocks_and_table_is_harmless_or_told",
            "pair::tests::a_pair_keeps_the_promises_of_one",
        ],
    ),
    (
        "inspect",
        &["zones_are_used_again_between_whole_checkpoints"],
    ),
    (
        "vfs",
        &[
            "damaged_items::a_zone_with_blocks_of_a_damaged_file_keeps_no_other_from_being_cleaned",
            "full::small_files_that_fill_a_volume_go_in_any_order",
            "full::what_was_accepted_is_kept",
        ],
    ),
];

/// Crates whose unit tests take longest, and begin first.
const LONGEST: &[&str] = &["device", "engine", "crash", "fuse"];

/// Builds all tests and examples and runs the short ones; true when nothing failed.
pub fn run(seed: u64) -> Result<bool> {
    let start = Instant::now();
    let built = build()?;
    show("build", None, start.elapsed().as_secs_f64());
    let (start, before) = (Instant::now(), processor_seconds());
    let parts = Mutex::new(parts(&built, seed)?);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(mut part) = next(&parts) {
                    let (count, seconds) = part.run();
                    show(&part.name, Some(&count), seconds);
                    lock(&done).push((part.name, count));
                }
            });
        }
    });
    let processor = processor_seconds() - before;
    Ok(close(
        &lock(&done),
        start.elapsed().as_secs_f64(),
        processor,
    ))
}

/// Time of processors that programs have taken that this one has waited for: other than the time by the clock, it is the same
/// whatever else the machine does. 0 where the kernel does not say.
fn processor_seconds() -> f64 {
    /// Of a second, in `/proc`.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything: the 14th and 15th field from there, user and system time of children.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// Prints the sum of all parts; true when none failed.
fn close(done: &[(String, Count)], seconds: f64, processor: f64) -> bool {
    let mut total = Count::default();
    for (_, count) in done {
        total.passed += count.passed;
        total.failed += count.failed;
    }
    let failing = done.iter().filter(|(_, count)| count.failed > 0);
    let failing: Vec<&str> = failing.map(|(name, _)| name.as_str()).collect();
    if !failing.is_empty() {
        println!("failing: {}", failing.join(", "));
    }
    println!(
        "{} passed, {} failed, {seconds:.1} s after the build, {processor:.1} s of processors",
        total.passed, total.failed
    );
    if seconds > SECONDS_MAX {
        println!(
            "more than {SECONDS_MAX:.0} s: shorten what takes longest, or leave it to the whole test run"
        );
    }
    total.failed == 0
}

fn show(name: &str, count: Option<&Count>, seconds: f64) {
    let count = count.map_or(String::new(), |Count { passed, failed, .. }| {
        format!("{passed:>5} passed {failed:>3} failed")
    });
    println!("{name:<44} {count:>24} {seconds:>7.1} s");
}

/// A program that cargo built.
#[derive(Debug, PartialEq)]
struct Built {
    package: String,
    /// `lib`, `bin`, `test` or `example`.
    kind: String,
    name: String,
    executable: String,
    manifest: String,
    /// Tests of its own are compiled in.
    is_test: bool,
}

/// Builds all tests and examples of the workspace, with one set of features for all, so that none is built twice.
fn build() -> Result<Vec<Built>> {
    let mut cargo = shell::command(&["cargo", "test", "--workspace", "--no-run", "--quiet"]);
    cargo.arg("--message-format=json-render-diagnostics");
    let Output { status, stdout, .. } = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the tests do not compile");
    let lines = String::from_utf8_lossy(&stdout);
    Ok(lines.lines().filter_map(parse_artifact).collect())
}

/// Reads one message of cargo: a program, or something else.
fn parse_artifact(line: &str) -> Option<Built> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let executable = text(&message["executable"])?;
    let manifest = text(&message["manifest_path"])?;
    let target = &message["target"];
    let kind = match target["kind"][0].as_str()? {
        "bin" => "bin",
        "test" => "test",
        "example" => "example",
        // Libraries have several kinds, which are no matter here.
        _ => "lib",
    };
    Some(Built {
        package: Path::new(&manifest)
            .parent()?
            .file_name()?
            .to_str()?
            .to_owned(),
        kind: kind.to_owned(),
        name: text(&target["name"])?,
        executable,
        manifest,
        is_test: message["profile"]["test"].as_bool()?,
    })
}

/// Something that runs by itself.
struct Part {
    name: String,
    command: Command,
}

/// What is to be run, the longest parts first.
fn parts(built: &[Built], seed: u64) -> Result<VecDeque<Part>> {
    let mut parts = VecDeque::new();
    for (name, options) in SEEDS {
        let example = built
            .iter()
            .find(|built| {
                built.package == "crash" && built.kind == "example" && built.name == *name
            })
            .with_context(|| format!("there is no example {name} of the crash tests"))?;
        let mut command = Command::new(&example.executable);
        command.args(options.split(' '));
        parts.push_back(Part {
            name: format!("{name} {options}"),
            command,
        });
    }
    for (package, name, filter) in TESTS {
        let mut tests = built.iter().filter(|built| built.kind == "test");
        let test = tests
            .find(|test| test.package == *package && test.name == *name)
            .with_context(|| format!("{package} has no test {name}"))?;
        let mut part = test.part(seed);
        if !filter.is_empty() {
            part.command.arg(filter);
            part.name = format!("{} {filter}", part.name);
        }
        parts.push_back(part);
    }
    let mut units: Vec<&Built> = built
        .iter()
        .filter(|built| built.has_unit_tests())
        .collect();
    let place = |unit: &&Built| LONGEST.iter().position(|package| *package == unit.package);
    units.sort_by_key(|unit| place(unit).unwrap_or(LONGEST.len()));
    parts.extend(units.into_iter().map(|unit| unit.part(seed)));
    for words in [
        &["cargo", "fmt", "--all", "--check"][..],
        &["cargo", "xtask", "tidy"],
    ] {
        parts.push_back(Part {
            name: words[1..].join(" "),
            command: shell::command(words),
        });
    }
    Ok(parts)
}

impl Built {
    /// Whether these are the tests inside a library or a program.
    fn has_unit_tests(&self) -> bool {
        self.is_test && matches!(self.kind.as_str(), "lib" | "bin")
    }

    /// The test as `cargo test` runs it.
    fn part(&self, seed: u64) -> Part {
        let folder = Path::new(&self.manifest).parent();
        let folder = folder.unwrap_or(Path::new("."));
        let mut command = Command::new(&self.executable);
        command
            .arg("--quiet")
            .current_dir(folder)
            .env("CARGO_MANIFEST_DIR", folder)
            .env("PROPTEST_RNG_SEED", seed.to_string());
        let left_out = LEFT_OUT
            .iter()
            .filter(|(package, _)| *package == self.package);
        for name in left_out.flat_map(|(_, names)| *names) {
            command.args(["--skip", name]);
        }
        Part {
            name: format!("{} {} {}", self.package, self.kind, self.name),
            command,
        }
    }
}

impl Part {
    /// Runs it; what passed and failed, and the seconds it took. Its output is shown if it fails.
    fn run(&mut self) -> (Count, f64) {
        let start = Instant::now();
        let output = self.command.stdin(Stdio::null()).output();
        let seconds = start.elapsed().as_secs_f64();
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                println!("{}: {error}", self.name);
                return (Count::one(false), seconds);
            }
        };
        let count = count(&output);
        if count.failed > 0 {
            println!(
                "== {}\n{}{}",
                self.name,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        (count, seconds)
    }
}

/// The tests that it ran, or the program itself as one. An ignored test counts as failed: nothing is skipped silently.
fn count(output: &Output) -> Count {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut results = text.lines().filter_map(parse_result);
    match results.next() {
        Some((passed, failed, ignored)) => {
            // A failure that libtest did not count, such as an abort, is one all the same.
            let failed = (failed + ignored).max(usize::from(!output.status.success()));
            Count {
                passed,
                failed,
                names: text.lines().filter_map(failed_test).collect(),
            }
        }
        None => Count::one(output.status.success()),
    }
}

fn next(parts: &Mutex<VecDeque<Part>>) -> Option<Part> {
    lock(parts).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Built, parse_artifact};

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/crash/Cargo.toml",
            "target":{"kind":["test"],"name":"threads"},"profile":{"test":true},"executable":"/p/target/threads-0"}"#;
        let built = Built {
            package: "crash".to_owned(),
            kind: "test".to_owned(),
            name: "threads".to_owned(),
            executable: "/p/target/threads-0".to_owned(),
            manifest: "/p/crates/crash/Cargo.toml".to_owned(),
            is_test: true,
        };
        assert!(!built.has_unit_tests());
        assert_eq!(parse_artifact(line), Some(built));
        assert_eq!(
            parse_artifact(&line.replace(r#""/p/target/threads-0""#, "null")),
            None
        );
        assert_eq!(parse_artifact("not json"), None);
    }
}
