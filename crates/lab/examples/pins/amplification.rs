//! What the device is sent for each byte that users write, by load and by how full the volume is; and who waited.

use persimmon_engine::Options;
use persimmon_lab::lsm;
use persimmon_lab::measure::{Plan, Report, run};

use crate::point::{Outcome, Point, Run};

pub fn runs() -> Vec<Run> {
    vec![
        overwritten("uniform-70", "uniform", MANY, 0.70, 15),
        overwritten("uniform-85", "uniform", MANY, 0.85, 25),
        overwritten("zipf-85", "zipf", MANY, 0.85, 20),
        overwritten("hotcold-85", "hotcold", MANY, 0.85, 20),
        overwritten("few-zones-uniform-75", "uniform", FEW, 0.75, 25),
        overwritten("few-zones-hotcold-75", "hotcold", FEW, 0.75, 25),
        overwritten("few-zones-pieces-75", "pieces", FEW_OF_ZNS, 0.762, 15),
        overwritten("few-zones-pieces-85", "pieces", FEW_OF_ZNS, 0.864, 25),
        Run::new("files", 25, files),
        database("lsm-4m", 256, 1024, None),
        database("lsm-16m", 64, 4096, None),
        database("lsm-16m-active-6", 64, 4096, Some(6)),
    ]
}

/// Zones, and blocks of each.
type Drive = (u32, u32);

/// Many zones of 1 MiB, and few of 4 MiB.
const MANY: Drive = (400, 256);
const FEW: Drive = (128, 1024);
/// Few of 12 MiB; 75 and 85 % of them are 76.2 and 86.4 % of those that have data or are free.
const FEW_OF_ZNS: Drive = (128, 3072);
/// The bounds of memory, for drives so much smaller than usual.
const DIRTY_PAGES: usize = 512;
const JOURNAL_BYTES: u64 = 2 << 20;
/// Volumes written while it is measured, of single blocks and of files.
const VOLUMES: f64 = 2.0;
const VOLUMES_OF_FILES: f64 = 12.0;
/// A database's figures depend on the order of its keys: so many orders are averaged.
const ORDERS: u64 = 3;

fn report(
    load: &str,
    (zones, zone_blocks): Drive,
    (fill, volumes): (f64, f64),
    seed: u64,
) -> Outcome<Report> {
    let defaults = Plan::default();
    let plan = Plan {
        load: load.parse()?,
        zones,
        zone_blocks,
        fill,
        warm_up_volumes: 2.0,
        volumes,
        seed,
        options: Options {
            dirty_pages_max: DIRTY_PAGES,
            journal_bytes_max: JOURNAL_BYTES,
            ..defaults.options
        },
        ..defaults
    };
    Ok(run(&plan, &mut |_| {})?)
}

fn amplification(name: &str, value: f64) -> Point {
    let name = format!("amplification.{name}");
    Point::cost(&name, "device/user bytes", value)
}

fn overwritten(
    name: &'static str,
    load: &'static str,
    drive: Drive,
    fill: f64,
    seconds: u32,
) -> Run {
    Run::new(name, seconds, move |seed| {
        let report = report(load, drive, (fill, VOLUMES), seed)?;
        Ok(vec![amplification(name, report.write_amplification)])
    })
}

/// Files made and deleted. Some operations wait for cleaning there: each load has too few of them to compare.
fn files(seed: u64) -> Outcome<Vec<Point>> {
    let (mut points, mut stalls) = (Vec::new(), 0);
    for (name, load, fill) in [
        ("small-files-80", "churn", 0.80),
        ("archives-75", "untar", 0.75),
        ("compaction-80", "compaction:unhinted", 0.80),
        ("compaction-hints-80", "compaction", 0.80),
    ] {
        let report = report(load, MANY, (fill, VOLUMES_OF_FILES), seed)?;
        points.push(amplification(name, report.write_amplification));
        stalls += report.stalls;
    }
    points.push(Point::cost("stalls.files", "stalls", stalls as f64));
    Ok(points)
}

/// As RocksDB writes one.
fn database(name: &'static str, zones: u32, zone_blocks: u32, active_max: Option<u32>) -> Run {
    Run::new(name, 12, move |seed| -> Outcome<Vec<Point>> {
        let (mut share, mut stalls) = (0.0, 0);
        for order in 0..ORDERS {
            let outcome = lsm::run(&lsm::Plan {
                zones,
                zone_blocks,
                active_max,
                seed: seed * ORDERS + order,
                ..lsm::Plan::default()
            })?;
            share += outcome.device_share() / ORDERS as f64;
            stalls += outcome.stalls;
        }
        Ok(vec![
            amplification(name, share),
            Point::cost(&format!("stalls.{name}"), "stalls", stalls as f64),
        ])
    })
}
