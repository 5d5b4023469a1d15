//! `cargo xtask test`: every check there is, in sections, with one count at the end.

mod quick;

use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::{capi, interleave, rocksdb, setup, shell, tidy, vm, workspace_root};

/// What of the test run to leave out.
#[derive(Args)]
pub struct Options {
    /// Run what finds most in a minute and a half after a build: formatting, tidy, unit tests, some crash
    /// states, thread runs and full volumes
    #[arg(long, conflicts_with_all = ["no_mount", "no_vm", "no_setup"])]
    quick: bool,
    /// Run no mount tests (they need root and a few gigabytes)
    #[arg(long)]
    no_mount: bool,
    /// Run no tests in a virtual machine (they need QEMU and a few minutes)
    #[arg(long)]
    no_vm: bool,
    /// Install nothing
    #[arg(long)]
    no_setup: bool,
    /// What the property tests draw their cases from: a run can be repeated
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    /// Of those that failed, as far as their runner tells.
    names: Vec<String>,
}

impl Count {
    fn one(passed: bool) -> Count {
        Count {
            passed: usize::from(passed),
            failed: usize::from(!passed),
            names: Vec::new(),
        }
    }
}

/// Runs all sections, also after failures; true when nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    if options.quick {
        return quick::run(options.seed);
    }
    let mut run = TestRun::default();
    if options.no_setup {
        println!("left out on request: setup");
    } else {
        run.section("setup", || setup::run().map(|()| Count::default()));
    }
    run.section("format", || command(&["cargo", "fmt", "--all", "--check"]));
    run.section("clippy", || {
        command(&[
            "cargo",
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
    });
    run.section("tidy", || {
        let findings = tidy::check(&workspace_root())?;
        Ok(Count::one(tidy::report(&findings)))
    });
    run.section("test build", test_build);
    run.section("documentation", documentation);
    run.section("C library", c_library);
    // Two of a kind do not use all of the machine: some wait for the drive, a guest has one processor.
    let beside: Vec<Section> = vec![
        (
            "unit and property tests",
            Box::new(|| cargo_test(options.seed)),
        ),
        (
            "RocksDB plugin",
            Box::new(|| rocksdb_plugin(options.no_setup)),
        ),
    ];
    run.together(beside);
    let mut beside: Vec<Section> = vec![("interleavings", Box::new(interleavings))];
    if options.no_mount {
        println!("left out on request: mount tests");
    } else {
        beside.push(("mount tests", Box::new(mount_tests)));
    }
    if options.no_vm {
        println!("left out on request: tests in a virtual machine");
    } else if cfg!(target_arch = "x86_64") {
        beside.push(("virtual machine", Box::new(virtual_machine)));
    } else {
        println!(
            "left out: tests in a virtual machine, whose kernel is for x86-64 and runs no other programs"
        );
    }
    run.together(beside);
    Ok(run.close())
}

#[derive(Default)]
struct TestRun {
    total: Count,
    lines: Vec<String>,
    /// Each with what failed in it.
    failed_sections: Vec<String>,
}

/// A name and what it runs.
type Section<'a> = (&'static str, Box<dyn FnOnce() -> Result<Count> + Send + 'a>);

impl TestRun {
    fn section(&mut self, name: &'static str, body: impl FnOnce() -> Result<Count>) {
        self.count(name, timed(name, body));
    }

    /// Runs sections at the same time; their lines mix, and name what they are about.
    fn together(&mut self, sections: Vec<Section>) {
        let done: Vec<_> = std::thread::scope(|scope| {
            let sections = sections.into_iter();
            let threads: Vec<_> = sections
                .map(|(name, body)| (name, scope.spawn(move || timed(name, body))))
                .collect();
            let joined = threads.into_iter();
            joined
                .map(|(name, thread)| (name, thread.join().unwrap_or((Count::one(false), 0.0))))
                .collect()
        });
        for (name, result) in done {
            self.count(name, result);
        }
    }

    fn count(&mut self, name: &'static str, (count, seconds): (Count, f64)) {
        self.lines.push(format!(
            "{name:<26} {:>6} passed {:>4} failed {seconds:>8.1} s",
            count.passed, count.failed
        ));
        if count.failed > 0 {
            let section = [name.to_owned()].into_iter().chain(count.names);
            self.failed_sections
                .push(section.collect::<Vec<_>>().join(" "));
        }
        self.total.passed += count.passed;
        self.total.failed += count.failed;
    }

    fn close(self) -> bool {
        println!("\n{}", self.lines.join("\n"));
        if !self.failed_sections.is_empty() {
            println!("failing: {}", self.failed_sections.join("\nfailing: "));
        }
        println!("{} passed, {} failed", self.total.passed, self.total.failed);
        self.total.failed == 0
    }
}

/// Runs a section and says so; what it counted, and the seconds it took.
fn timed(name: &str, body: impl FnOnce() -> Result<Count>) -> (Count, f64) {
    println!("\n== {name}");
    let start = Instant::now();
    let count = body().unwrap_or_else(|error| {
        println!("error: {error:#}");
        Count::one(false)
    });
    let seconds = start.elapsed().as_secs_f64();
    println!("== {name}: {seconds:.1} s");
    (count, seconds)
}

fn command(words: &[&str]) -> Result<Count> {
    shell::succeeds(&mut shell::command(words)).map(Count::one)
}

/// All that the tests of the crates need, and those on a mount and in the guest, which have no need to be quick. With the tests, because the crates below
/// would be built a second time otherwise, without what only tests use.
fn test_build() -> Result<Count> {
    let of_crates = command(&["cargo", "test", "--workspace", "--no-run", "--quiet"])?;
    let of_mounts = command(vm::BUILD_OF_TESTS)?;
    Ok(Count::one(of_crates.failed + of_mounts.failed == 0))
}

/// The pages of the libraries: no link leads nowhere.
fn documentation() -> Result<Count> {
    let mut cargo = shell::command(&["cargo", "doc", "--quiet", "--no-deps"]);
    cargo.args(["--package", "persimmon", "--package", "persimmon-capi"]);
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    shell::succeeds(&mut cargo).map(Count::one)
}

/// The C library as a program finds it, and its examples.
fn c_library() -> Result<Count> {
    let (passed, failed) = capi::check(&capi::build(false, rocksdb::BESIDE)?)?;
    Ok(Count {
        passed,
        failed,
        ..Count::default()
    })
}

/// The plugin, and the short set of its tests.
fn rocksdb_plugin(no_setup: bool) -> Result<Count> {
    let missing = setup::missing(setup::ROCKSDB_PACKAGES);
    if no_setup && !missing.is_empty() {
        println!(
            "left out: the RocksDB plugin, for which is missing: {}",
            missing.join(" ")
        );
        return Ok(Count::default());
    }
    let (passed, failed) = rocksdb::quick()?;
    Ok(Count {
        passed,
        failed,
        ..Count::default()
    })
}

/// All tests of all crates.
fn cargo_test(seed: u64) -> Result<Count> {
    println!("property tests draw from seed {seed}");
    let mut cargo = shell::command(&["cargo", "test", "--workspace", "--no-fail-fast"]);
    cargo.env("PROPTEST_RNG_SEED", seed.to_string());
    counted(&mut cargo)
}

/// Several threads on a simulated device, in the order of a seed.
fn interleavings() -> Result<Count> {
    counted(interleave::cargo("test").args(["--test", "threads"]))
}

/// Tests that cargo runs. An ignored one counts as failed: nothing is skipped silently.
fn counted(cargo: &mut Command) -> Result<Count> {
    let mut count = Count::default();
    let succeeded = shell::watch(cargo, |line| {
        if let Some((passed, failed, ignored)) = parse_result(line) {
            count.passed += passed;
            count.failed += failed + ignored;
        }
        count.names.extend(failed_test(line));
    })?;
    if !succeeded && count.failed == 0 {
        count.failed = 1; // A crate that does not compile reports no tests.
    }
    Ok(count)
}

/// The tests on a real mount, which need root.
fn mount_tests() -> Result<Count> {
    let mut tests = shell::as_root(&[
        "target/debug/mount-tests",
        "--persimmon",
        "target/debug/persimmon",
    ]);
    let mut count = Count::default();
    let succeeded = shell::watch(&mut tests, |line| {
        if let Some((passed, failed)) = parse_count(line) {
            (count.passed, count.failed) = (passed, failed);
        }
        if let Some(names) = line.strip_prefix("failed: ") {
            count.names = names.split(' ').map(str::to_owned).collect();
        }
    })?;
    if !succeeded && count.failed == 0 {
        count.failed = 1;
    }
    Ok(count)
}

/// Drives through their real drivers, in a guest.
fn virtual_machine() -> Result<Count> {
    let (passed, names) = vm::checks(&[])?;
    Ok(Count {
        passed,
        failed: names.len(),
        names,
    })
}

/// Reads `12 passed, 1 failed`.
fn parse_count(line: &str) -> Option<(usize, usize)> {
    let (passed, failed) = line.split_once(" passed, ")?;
    let failed = failed.strip_suffix(" failed")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn parse_result(line: &str) -> Option<(usize, usize, usize)> {
    let rest = line.strip_prefix("test result: ")?;
    let counts = rest.split_once(". ")?.1;
    let number = |what: &str| {
        counts.split("; ").find_map(|part| {
            let (number, name) = part.trim().split_once(' ')?;
            (name == what).then(|| number.parse().ok())?
        })
    };
    Some((number("passed")?, number("failed")?, number("ignored")?))
}

/// Reads `test tests::a_file_is_written ... FAILED`.
fn failed_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{failed_test, parse_count, parse_result};

    #[test]
    fn the_result_line_of_cargo_test_is_read() {
        let line = "test result: ok. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(parse_result(line), Some((12, 1, 2)));
        assert_eq!(parse_result("running 3 tests"), None);
        assert_eq!(parse_count("120 passed, 3 failed"), Some((120, 3)));
        assert_eq!(failed_test("test a::b ... FAILED").as_deref(), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }
}
