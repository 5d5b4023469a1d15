//! The table of the reference: write amplification by placement alone, no filesystem.
//! Arguments: volumes to warm up (6 if not given).

use persimmon_lab::load::{Popularity, THETA_DEFAULT};
use persimmon_lab::placement::{Plan, Policy, uniform_bound, write_amplification};

const FILLS: [f64; 4] = [0.70, 0.80, 0.85, 0.90];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let warm_up_volumes = match std::env::args().nth(1) {
        Some(volumes) => volumes.parse()?,
        None => 6.0,
    };
    let zipf = Popularity::Zipf {
        theta: THETA_DEFAULT,
    };
    println!("| load | policy | .70 | .80 | .85 | .90 |\n|---|---|---|---|---|---|");
    let bounds = FILLS.map(|fill| format!("{:.2}", uniform_bound(fill)));
    println!("| uniform | 1/(1-x) | {} |", bounds.join(" | "));
    let rows = [
        ("uniform", Popularity::Uniform, Policy::Greedy),
        ("uniform", Popularity::Uniform, Policy::Interval),
        ("zipf 0.99", zipf, Policy::Greedy),
        ("zipf 0.99", zipf, Policy::CostBenefit),
        ("zipf 0.99", zipf, Policy::SepBit),
        ("zipf 0.99", zipf, Policy::Interval),
    ];
    for (load, popularity, policy) in rows {
        let measured = FILLS.map(|fill| {
            let plan = Plan {
                fill,
                popularity,
                policy,
                warm_up_volumes,
                ..Plan::default()
            };
            format!("{:.2}", write_amplification(&plan))
        });
        println!("| {load} | {policy:?} | {} |", measured.join(" | "));
    }
    Ok(())
}
