//! Uniform random overwriting of a full volume on the simulated device: write amplification and
//! what it is made of. Arguments: zones, blocks per zone, percent full, times the volume.

use std::sync::Arc;

use persimmon_engine::{Error, FormatOptions, Intent, Options, Statistics, Volume};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_sim::{SimConfig, SimDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCK: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .map(|a| a.parse())
        .collect::<Result<_, _>>()?;
    let [zones, zone_blocks, percent, times] = arguments[..] else {
        return Err("arguments: zones, blocks per zone, percent full, times the volume".into());
    };
    let config = SimConfig::new(zones as u32, zone_blocks as u32).fast();
    let device = Arc::new(SimDevice::new(config));
    Volume::format(device.clone(), &FormatOptions::default())?;
    let options = Options {
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device, options)?;
    let now = Timestamp::default();
    let ino = volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: 0o100_644,
            nlink: 1,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        Ok(ino)
    })?;
    let total = volume.space().total_bytes / BLOCK;
    let blocks = total * percent / 100;
    let content = vec![1; 256 * BLOCK as usize];
    for at in (0..blocks).step_by(256) {
        volume.write(ino, at * BLOCK, &content, now)?;
    }
    volume.sync()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..times {
        let before = volume.statistics();
        for _ in 0..total {
            let block = rng.random_range(0..blocks);
            volume.write(ino, block * BLOCK, &content[..BLOCK as usize], now)?;
        }
        print(round, &before, &volume.statistics());
    }
    Ok(())
}

fn print(round: u64, before: &Statistics, after: &Statistics) {
    let user = (after.user_bytes - before.user_bytes) as f64;
    let share = |f: fn(&Statistics) -> u64| (f(after) - f(before)) as f64 / user;
    println!(
        "round {round}: WA {:.3} = data {:.3} + cleaned {:.3} + summaries {:.3} + metadata {:.3} \
         + cleaned metadata {:.3} + journal {:.3} + checkpoints {:.3}; {} checkpoints, {} victims",
        share(Statistics::device_bytes),
        share(|s| s.data_bytes),
        share(|s| s.cleaned_data_bytes),
        share(|s| s.summary_bytes),
        share(|s| s.metadata_bytes),
        share(|s| s.cleaned_metadata_bytes),
        share(|s| s.journal_bytes),
        share(|s| s.checkpoint_bytes),
        after.checkpoints - before.checkpoints,
        after.cleaning_foreground - before.cleaning_foreground,
    );
}
