//! Measured points of the engine's behaviour, the same each time: `cargo xtask pins` compares them with those that are
//! committed. Without names all runs are carried out, each in a process of its own, since some need a gigabyte. A point is a line: name, unit, which way is
//! better, value.

mod amplification;
mod latency;
mod point;
mod room;
mod synced;

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use persimmon_sync::Mutex;

use point::Run;

/// Measures points of the engine's behaviour.
#[derive(Parser)]
struct Arguments {
    /// Runs to carry out; everything if nothing is named
    names: Vec<String>,
    /// Runs at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Of the loads: points that depend much on it are not worth pinning
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tell how long each run took
    #[arg(long)]
    times: bool,
}

/// In the order of the table.
fn all() -> Vec<Run> {
    let mut all = amplification::runs();
    all.extend(latency::runs());
    all.extend(room::runs());
    all.extend(synced::runs());
    all
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    let all = all();
    if let [name] = arguments.names.as_slice() {
        let run = all.iter().find(|run| run.name == name);
        let run = run.with_context(|| format!("there is no run {name}"))?;
        for point in (run.body)(arguments.seed).map_err(|error| anyhow::anyhow!("{error}"))? {
            println!("{point}");
        }
        return Ok(());
    }
    let wanted = |run: &&Run| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| name == run.name)
    };
    let runs: Vec<&Run> = all.iter().filter(wanted).collect();
    for output in in_processes(&runs, arguments)? {
        print!("{output}");
    }
    Ok(())
}

/// Carries out runs, the longest first, and answers what each printed.
fn in_processes(runs: &[&Run], arguments: &Arguments) -> Result<Vec<String>> {
    let mut waiting: Vec<usize> = (0..runs.len()).collect();
    waiting.sort_by_key(|run| runs.get(*run).map(|run| run.seconds));
    let (waiting, outputs) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().pop();
            let Some((place, run)) = next.and_then(|next| Some((next, runs.get(next)?))) else {
                return Ok(());
            };
            let began = Instant::now();
            let output = in_process(run.name, arguments.seed)?;
            if arguments.times {
                eprintln!("{}: {:.1} s", run.name, began.elapsed().as_secs_f64());
            }
            outputs.lock().push((place, output));
        }
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        jobs.into_iter().try_for_each(|job| match job.join() {
            Ok(done) => done,
            Err(_) => bail!("a run panicked"),
        })
    })?;
    let mut outputs = outputs.into_inner();
    outputs.sort();
    Ok(outputs.into_iter().map(|(_, output)| output).collect())
}

fn in_process(name: &str, seed: u64) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([name, "--seed", &seed.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{name} failed");
    }
    Ok(String::from_utf8(output.stdout)?)
}
