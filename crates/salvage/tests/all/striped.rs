//! Volumes in stripe sets of which metadata is lost: what one zone of each set has lost or has wrong besides makes no difference.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;
use std::sync::Arc;

use crate::support::{Fs, Tree, format, mount, recovered_of, settle, tree};
use persimmon_device::{Striped, Stripes, ZoneId};
use persimmon_engine::Options;
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{Inspector, Report};
use persimmon_salvage::{Loss, mend};
use persimmon_sim::{SimConfig, SimDevice};

const CAPACITY: u32 = 250;
const PARITY: Stripes = Stripes {
    columns: 3,
    metadata_sets: 20,
};
const KINDS: [Stripes; 2] = [Stripes::MIRROR, PARITY];

struct Set {
    zones: Range<u32>,
    role: Role,
}

/// A volume that was used for a while.
struct Used {
    stripes: Stripes,
    below: Arc<SimDevice>,
    truth: Tree,
    sets: Vec<Set>,
}

/// What is lost of it in all zones of a set.
#[derive(Clone, Copy, Debug)]
enum Wreck {
    Log,
    Page,
    MatChunk,
    ZitChunk,
}

fn striped(below: &Arc<SimDevice>, stripes: Stripes, for_writing: bool) -> Arc<Striped<SimDevice>> {
    Arc::new(Striped::new(below.clone(), stripes, for_writing).unwrap())
}

impl Used {
    fn new(stripes: Stripes) -> Used {
        let config = SimConfig::new(122, 256).capacity(CAPACITY).fast();
        let below = Arc::new(SimDevice::new(config));
        let device = striped(&below, stripes, true);
        format(&device, "broken");
        let mut fs = Fs::over(mount(&device), below.clone(), 7);
        let mut files = fs.fill(4, 30);
        fs.churn(&mut files, 400);
        fs.checkpoint();
        for (_, _, ino) in files.iter().step_by(7) {
            fs.write(*ino, 0, b"after the checkpoint");
            fs.vfs.fsync(*ino, persimmon_vfs::Handle::NONE).unwrap();
        }
        let truth = fs.tree();
        let mut next = 0;
        let sets = fs.vfs.volume().zones().into_iter().map(|zone| {
            let is_mirror = zone.zone.0 < stripes.metadata_sets;
            let zones = if is_mirror { 2 } else { stripes.columns + 1 };
            next += zones;
            Set {
                zones: next - zones..next,
                role: zone.entry.role,
            }
        });
        let sets = sets.collect();
        Used {
            stripes,
            below,
            truth,
            sets,
        }
    }

    /// The device with something lost.
    fn wrecked(&self, wreck: Wreck) -> Arc<SimDevice> {
        let below = Arc::new(self.below.snapshot().intact());
        match wreck {
            Wreck::Log => {
                for set in self.sets.iter().filter(|set| set.role == Role::Log) {
                    for row in 1..CAPACITY {
                        ruin(&below, set, row);
                    }
                }
            }
            _ => {
                let addr = self.place(wreck);
                let set = &self.sets[addr.zone().0 as usize];
                let columns = set.zones.len() as u32 - 1;
                ruin(&below, set, addr.block().div_ceil(columns));
            }
        }
        below
    }

    fn place(&self, wreck: Wreck) -> Addr {
        let device = striped(&self.below, self.stripes, false);
        let inspector = Inspector::open(&*device).unwrap();
        let footer = match dump(&inspector, &Target::Footer).unwrap() {
            Dump::Footer(footer) => *footer,
            other => panic!("{other:?}"),
        };
        let Dump::Mat(pages) = dump(&inspector, &Target::Mat).unwrap() else {
            panic!("no table")
        };
        let place = match wreck {
            Wreck::MatChunk => &footer.mat_chunks[0],
            Wreck::ZitChunk => &footer.zit_chunks[0],
            _ => &pages[pages.len() / 2].addr,
        };
        let parts: Vec<u32> = place.split(':').map(|part| part.parse().unwrap()).collect();
        Addr::new(DeviceId(0), ZoneId(parts[1]), parts[2])
    }

    /// One zone of each set.
    fn members(&self, member: u32) -> impl Iterator<Item = ZoneId> {
        let zones = self.sets.iter().map(|set| &set.zones);
        zones.map(move |zones| ZoneId(zones.start + member % zones.len() as u32))
    }

    fn recovered(&self, below: &Arc<SimDevice>) -> (Tree, Vec<Loss>) {
        let device = striped(below, self.stripes, false);
        let (vfs, _, losses) = recovered_of(&*device, None).unwrap();
        (plain(tree(&vfs)), losses)
    }

    /// What `fsck --repair` makes of it.
    fn mended(&self, below: &Arc<SimDevice>) -> (Tree, Vec<Loss>, Report) {
        let device = striped(below, self.stripes, true);
        let mut losses = Vec::new();
        {
            let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
            let how = (Timestamp::default(), Options::default());
            let on_loss = &mut |loss: &Loss| losses.push(loss.clone());
            mend(&rebuilt, device.clone(), how, on_loss, &mut |_, _, _| {}).unwrap();
        }
        let report = settle(&device);
        (tree(&mount(&device)), losses, report)
    }
}

/// Of a copy the times of what it is made in are those of the copying.
fn plain(tree: Tree) -> Tree {
    tree.into_iter()
        .filter(|(path, _)| !path.starts_with("/lost+found"))
        .collect()
}

fn ruin(below: &SimDevice, set: &Set, row: u32) {
    for (zone, at) in set.zones.clone().zip(100..) {
        below.corrupt(ZoneId(zone), row, at, 0x21);
    }
}

const WRECKS: [Wreck; 4] = [Wreck::Log, Wreck::Page, Wreck::MatChunk, Wreck::ZitChunk];

#[test]
fn what_is_salvaged_does_not_hang_on_one_zone_of_each_set() {
    for stripes in KINDS {
        let used = Used::new(stripes);
        for wreck in WRECKS {
            let (expected, told) = used.recovered(&used.wrecked(wreck));
            let same = used
                .truth
                .iter()
                .filter(|(path, thing)| expected.get(*path) == Some(thing));
            assert!(same.count() > used.truth.len() / 2, "{told:#?}");
            for member in 0..=stripes.columns {
                let lost = used.wrecked(wreck);
                used.members(member).for_each(|zone| {
                    lost.set_offline(zone);
                });
                let wrong = used.wrecked(wreck);
                for zone in used.members(member) {
                    for block in 0..CAPACITY {
                        wrong.corrupt(zone, block, 7, 0x55);
                    }
                }
                for below in [lost, wrong] {
                    let (found, losses) = used.recovered(&below);
                    assert_eq!(losses, told, "{stripes:?} {wreck:?} {member}");
                    assert!(found == expected, "{stripes:?} {wreck:?} {member}");
                }
            }
        }
    }
}

#[test]
fn what_is_mended_does_not_hang_on_one_zone() {
    for stripes in KINDS {
        let used = Used::new(stripes);
        for wreck in WRECKS {
            let (expected, told, report) = used.mended(&used.wrecked(wreck));
            assert!(report.is_clean(), "{:#?}", report.findings);
            for member in 0..2 {
                let of_data = |set: &&Set| set.role == Role::Data;
                let of_pages = |set: &&Set| set.role == Role::Metadata;
                let sets = [
                    used.sets.iter().find(of_data),
                    used.sets.iter().rfind(of_pages),
                ];
                for set in sets.into_iter().flatten() {
                    let below = used.wrecked(wreck);
                    below.set_offline(ZoneId(set.zones.start + member));
                    let (found, losses, report) = used.mended(&below);
                    assert!(report.is_clean(), "{:#?}", report.findings);
                    assert_eq!(losses, told, "{stripes:?} {wreck:?} {member}");
                    assert!(found == expected, "{stripes:?} {wreck:?} {member}");
                }
            }
        }
    }
}
