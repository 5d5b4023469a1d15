//! What a volume holds until there is no more room, what writing it all again costs, and whether volumes keep their promises
//! between empty and full.

use persimmon_crash::fullness;
use persimmon_engine::Options;
use persimmon_lab::room::{Order, Room};

use crate::point::{Better, Outcome, Point, Run};

pub fn runs() -> Vec<Run> {
    let small = (700, 256, 512);
    let medium = (256, 4096, 4096);
    let large = (32, 1 << 19, 8192);
    let fewer = (16, 1 << 19, 8192);
    vec![
        room("1m-reserve-0", small, Some(0), Order::Files, 2.0),
        room("1m", small, None, Order::Scattered, 0.5),
        room("16m-reserve-0", medium, Some(0), Order::Files, 1.0),
        room("16m", medium, None, Order::Files, 0.0),
        room("2g-reserve-0", large, Some(0), Order::Files, 0.0),
        room("2g", fewer, None, Order::Files, 0.0),
        Run::new("promises", 20, promises),
    ]
}

/// Zones, blocks of each, and pages changed between two checkpoints.
type Drive = (u32, u32, usize);

fn room(
    name: &'static str,
    (zones, zone_blocks, dirty_pages_max): Drive,
    reserve_basis_points: Option<u32>,
    order: Order,
    passes: f64,
) -> Run {
    let seconds = if zone_blocks > 1 << 16 { 60 } else { 5 };
    Run::new(name, seconds, move |seed| {
        let room = Room {
            zones,
            zone_blocks,
            active_max: Some(14),
            reserve_basis_points,
            dirty_pages_max,
            large_zone_blocks: Options::default().large_zone_blocks,
            order,
            passes,
            seed,
        };
        let held = room.run()?;
        let share = 100.0 * held.written_bytes as f64 / held.drive_bytes as f64;
        let mut points = vec![Point::new(
            &format!("usable.{name}"),
            "% of the drive",
            Better::Higher,
            share,
        )];
        if passes > 0.0 {
            let name = match order {
                Order::Files => format!("amplification.full-in-order-{name}"),
                Order::Scattered => format!("amplification.full-at-random-{name}"),
            };
            points.push(Point::cost(
                &name,
                "device/user bytes",
                held.write_amplification,
            ));
        }
        Ok(points)
    })
}

/// Families of shapes; first seed, volumes, and cycles of each.
const PROMISES: [(&str, u64, u64, u64); 5] = [
    ("one-device", 1000, 16, 30),
    ("split", 1_001_000, 12, 30),
    ("many-zones", 10_001_000, 4, 10),
    ("large-zones", 20_001_000, 4, 6),
    ("tree", 30_001_000, 12, 4),
];

/// The seeds are fixed: how often one breaks a promise is no question of chance.
fn promises(_seed: u64) -> Outcome<Vec<Point>> {
    let mut points = Vec::new();
    for (family, first, volumes, cycles) in PROMISES {
        let mut kept = 0;
        for seed in first..first + volumes {
            match fullness::volume(seed, cycles) {
                Ok(_) => kept += 1,
                Err(broken) => eprintln!("{broken}"),
            }
        }
        points.push(Point::new(
            &format!("promises-kept.{family}"),
            "volumes",
            Better::Higher,
            f64::from(kept),
        ));
    }
    Ok(points)
}
