//! Transactions of a relational database through mounts: sysbench on MariaDB, `fsync=wp` against `fsync=strict`, beside ext4 and XFS on loop
//! devices. Each of them gets a copy of one prepared database, in each round in a new volume; the median of the ratios of a round counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::places::{BLOCK_BYTES, Device, Place, Way};
use super::plugin::{Plugin, output};
use super::speed::print_head;
use crate::figures::median;
use crate::setup;
use crate::volume::Kind;

const PACKAGES: &[(&str, &str)] = &[
    ("mariadb-server", "the database of the transactions"),
    ("sysbench", "transactions"),
];

/// The first two are compared.
const SUBJECTS: &[(&str, Way)] = &[
    ("fsync=wp", Way::Mount(Kind::Persimmon, &["fsync=wp"])),
    (
        "fsync=strict",
        Way::Mount(Kind::Persimmon, &["fsync=strict"]),
    ),
    ("ext4", Way::Mount(Kind::Ext4, &[])),
    ("xfs", Way::Mount(Kind::Xfs, &[])),
];
/// Scripts of sysbench.
const LOADS: &[&str] = &["oltp_write_only", "oltp_read_write"];

const VOLUME_BYTES: u64 = 1 << 30;
const TABLES: &[&str] = &["--tables=4", "--table-size=50000"];
const THREADS: u32 = 8;
const SECONDS: u32 = 15;
/// Memory for pages, about half of the tables: so pages are written and read again. All else is as MariaDB has it, a log that is synced at
/// each commit and pages written twice among it.
const SERVER: &[&str] = &[
    "--innodb-buffer-pool-size=24M",
    "--innodb-log-file-size=32M",
];
const PATIENCE: Duration = Duration::from_secs(120);

/// What one load did.
struct OltpRun {
    per_second: f64,
    p99_ms: f64,
    /// Bytes that the database wrote: pages, their first copies, and the log.
    written: u64,
    transactions: u64,
    /// Syncs of files.
    syncs: u64,
    device: Device,
}

/// Measures, and prints tables.
pub fn run(plugin: &Plugin, scratch: &Path, rounds: u32) -> Result<()> {
    setup::install(PACKAGES)?;
    for (_, way) in SUBJECTS {
        setup::install(way.packages())?;
    }
    let template = scratch.join("template");
    prepare(scratch, &template)?;
    // By subject, by round, by load.
    let mut all: Vec<Vec<Vec<OltpRun>>> = SUBJECTS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds as usize {
        for turn in 0..SUBJECTS.len() {
            let number = (turn + round) % SUBJECTS.len();
            let (name, way) = SUBJECTS[number];
            eprintln!("round {} of {rounds}: {name}", round + 1);
            all[number].push(measure(plugin, scratch, way, &template).context(name)?);
        }
    }
    for (number, load) in LOADS.iter().enumerate() {
        print(load, number, &all);
    }
    Ok(())
}

/// Makes the database that all get a copy of.
fn prepare(scratch: &Path, template: &Path) -> Result<()> {
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--skip-test-db"]);
    install.arg("--auth-root-authentication-method=normal");
    output(install.arg(format!("--datadir={}", template.display())))?;
    let server = Server::start(scratch, template)?;
    server.query("CREATE DATABASE sbtest")?;
    output(server.sysbench("oltp_write_only").arg("prepare"))?;
    server.stop()
}

fn measure(plugin: &Plugin, scratch: &Path, way: Way, template: &Path) -> Result<Vec<OltpRun>> {
    let place = Place::create(plugin, scratch, "oltp", way, VOLUME_BYTES, &[])?;
    let data = place.dir().context("it is not mounted")?.join("data");
    output(Command::new("cp").arg("-a").arg(template).arg(&data))?;
    place.device()?;
    let server = Server::start(scratch, &data)?;
    let mut runs = Vec::new();
    for load in LOADS {
        let (written, syncs) = (server.written()?, server.counter("Innodb_data_fsyncs")?);
        let before = place.device()?;
        let mut sysbench = server.sysbench(load);
        sysbench.args([format!("--time={SECONDS}"), "--percentile=99".to_owned()]);
        let said = output(sysbench.arg("run"))?;
        let (per_second, transactions) = transactions(&said)?;
        runs.push(OltpRun {
            per_second,
            p99_ms: number_after(&said, "99th percentile:")?,
            written: server.written()? - written,
            transactions,
            syncs: server.counter("Innodb_data_fsyncs")? - syncs,
            device: place.device()?.since(&before),
        });
    }
    server.stop()?;
    place.remove()?;
    Ok(runs)
}

/// The number behind some words.
fn number_after(said: &str, words: &str) -> Result<f64> {
    let rest = said
        .lines()
        .find_map(|line| line.trim().strip_prefix(words));
    let rest = rest.with_context(|| format!("no {words}"))?;
    Ok(rest.trim().parse()?)
}

/// Transactions a second and in all, from a line such as `transactions:     3583   (442.39 per sec.)`.
fn transactions(said: &str) -> Result<(f64, u64)> {
    let mut lines = said.lines().map(str::trim);
    let rest = lines.find_map(|line| line.strip_prefix("transactions:"));
    let rest = rest.context("no transactions")?;
    let (count, speed) = rest.split_once('(').context("no transactions a second")?;
    let speed = speed.split_whitespace().next().unwrap_or_default();
    Ok((speed.parse()?, count.trim().parse()?))
}

/// A MariaDB that ends with it.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(scratch: &Path, data: &Path) -> Result<Server> {
        let socket = scratch.join("mariadb.sock");
        let log = scratch.join("mariadb.log");
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking"]);
        command.args(SERVER);
        command.arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", socket.display()));
        command.arg(format!(
            "--pid-file={}",
            scratch.join("mariadb.pid").display()
        ));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("mariadbd")?;
        let mut server = Server { child, socket };
        let start = Instant::now();
        while server.query("SELECT 1").is_err() {
            let ended = server.child.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                bail!("mariadbd does not serve: {}", fs::read_to_string(&log)?);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    fn query(&self, query: &str) -> Result<String> {
        let mut client = Command::new("mariadb");
        client.args([
            "--no-defaults",
            "--user=root",
            "--batch",
            "--skip-column-names",
        ]);
        client.arg(format!("--socket={}", self.socket.display()));
        output(client.arg(format!("--execute={query}")))
    }

    fn counter(&self, name: &str) -> Result<u64> {
        let said = self.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        let value = said.split_whitespace().nth(1);
        Ok(value.with_context(|| format!("no {name}"))?.parse()?)
    }

    /// Pages and their first copies are one counter, the log another.
    fn written(&self) -> Result<u64> {
        Ok(self.counter("Innodb_data_written")? + self.counter("Innodb_os_log_written")?)
    }

    fn sysbench(&self, load: &str) -> Command {
        let mut sysbench = Command::new("sysbench");
        sysbench.args([
            load,
            "--db-driver=mysql",
            "--mysql-user=root",
            "--mysql-db=sbtest",
        ]);
        sysbench.arg(format!("--mysql-socket={}", self.socket.display()));
        sysbench.arg(format!("--threads={THREADS}")).args(TABLES);
        sysbench
    }

    fn stop(mut self) -> Result<()> {
        self.query("SHUTDOWN")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "mariadbd: {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to do where it was stopped.
        if let Ok(None) = self.child.try_wait() {
            let ended = self.child.kill().and_then(|()| self.child.wait());
            if let Err(error) = ended {
                eprintln!("ending mariadbd: {error}");
            }
        }
    }
}

fn print(load: &str, number: usize, all: &[Vec<Vec<OltpRun>>]) {
    let rounds = all.first().map_or(0, Vec::len);
    println!(
        "\n{load}, {THREADS} threads, medians of {rounds} rounds; bytes and blocks of all rounds:"
    );
    let columns = [
        "transactions/s",
        "p99, ms",
        "syncs a transaction",
        "device / database",
        "blocks moved",
        "zones cleaned",
        "wp / this one, of rounds",
    ];
    print_head(
        "filesystem",
        columns.iter().map(|column| (*column).to_owned()),
    );
    for (subject, (name, way)) in SUBJECTS.iter().enumerate() {
        let runs = || all[subject].iter().map(|round| &round[number]);
        let sum = |count: fn(&OltpRun) -> u64| runs().map(count).sum::<u64>() as f64;
        let device = runs()
            .map(|run| run.device)
            .reduce(|sum, one| sum.and(&one));
        let device = device.unwrap_or_default();
        let cleaning = if way.is_ours() {
            let share = 100.0 * (device.moved * BLOCK_BYTES) as f64 / device.bytes.max(1) as f64;
            let cleaned = device.cleaned.unwrap_or_default();
            format!("{} ({share:.1} %) | {cleaned}", device.moved)
        } else {
            "- | -".to_owned()
        };
        let ratios: Vec<f64> = all[0]
            .iter()
            .zip(&all[subject])
            .map(|(wp, this)| wp[number].per_second / this[number].per_second)
            .collect();
        let (least, most) = ratios
            .iter()
            .fold((f64::INFINITY, 0.0), |(least, most), ratio| {
                (ratio.min(least), ratio.max(most))
            });
        println!(
            "| {name} | {:.0} | {:.1} | {:.2} | {:.3} | {cleaning} | {:.2} ({least:.2} - {most:.2}) |",
            median(runs().map(|run| run.per_second)),
            median(runs().map(|run| run.p99_ms)),
            sum(|run| run.syncs) / sum(|run| run.transactions),
            device.bytes as f64 / sum(|run| run.written),
            median(ratios.clone()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{number_after, transactions};

    #[test]
    fn what_sysbench_says_is_read() {
        let said = "    transactions:                        3583   (442.39 per sec.)\n\
                    \x20        99th percentile:                      186.54\n";
        assert_eq!(transactions(said).unwrap(), (442.39, 3583));
        assert_eq!(number_after(said, "99th percentile:").unwrap(), 186.54);
        assert!(transactions("").is_err());
    }
}
