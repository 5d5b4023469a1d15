//! Repair in place: each damage is found by number, the metadata is written anew, and then the
//! volume is sound, and has everything that was not lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{
    Fs, Tree, addr, assert_log_alone_lost, assert_told, leaves, mount, recovered, settle, tree,
};
use persimmon_engine::{Options, Progress, Task};
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId};
use persimmon_inspect::dump::{Dump, FooterDump, Target, dump};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, Inspector, Report, check};
use persimmon_salvage::{Loss, Lost, mend};
use persimmon_sim::SimDevice;
use persimmon_vfs::{Handle, Ino, ROOT, SetAttr};

fn look(device: &SimDevice) -> Option<Report> {
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    check(device, &options, &mut |_| {}).ok()
}

/// What `fsck --repair` does where metadata is lost.
fn repair(device: &Arc<SimDevice>) -> (Report, Vec<Loss>) {
    repair_within(device, Options::default())
}

fn repair_within(device: &Arc<SimDevice>, options: Options) -> (Report, Vec<Loss>) {
    let mut losses = Vec::new();
    {
        let rebuilt = rebuild(&**device, &mut |_, _, _| {}).unwrap();
        let now = Timestamp::default();
        let how = (now, options);
        let on_loss = &mut |loss: &Loss| losses.push(loss.clone());
        mend(
            &rebuilt,
            Arc::clone(device) as _,
            how,
            on_loss,
            &mut |_, _, _| {},
        )
        .unwrap();
    }
    (settle(device), losses)
}

fn footer(device: &SimDevice) -> FooterDump {
    let inspector = Inspector::open(device).unwrap();
    match dump(&inspector, &Target::Footer).unwrap() {
        Dump::Footer(footer) => *footer,
        other => panic!("{other:?}"),
    }
}

fn journal_since_the_last_footer(device: &SimDevice) -> Vec<Addr> {
    let inspector = Inspector::open(device).unwrap();
    let Dump::Log(log) = dump(&inspector, &Target::Log).unwrap() else {
        panic!("no log")
    };
    let mut last = log.blocks.rsplit(|block| block.kind == "footer");
    let last = last.next().unwrap().iter();
    last.map(|block| addr(&block.addr)).collect()
}

fn live(list: &[String]) -> Addr {
    list.iter()
        .map(|a| addr(a))
        .find(|a| *a != Addr::ZERO)
        .unwrap()
}

fn hurt(device: &SimDevice, at: Addr) {
    assert!(device.corrupt(at.zone(), at.block(), 1000, 0x20));
}

fn used(seed: u64) -> (Fs, Tree) {
    let mut fs = Fs::new(seed);
    let mut files = fs.fill(6, 60);
    fs.churn(&mut files, 800);
    fs.checkpoint();
    for at in 0..20 {
        let (_, _, ino) = files[at * 3];
        fs.write(ino, 0, b"after the checkpoint");
        fs.vfs.fsync(ino, persimmon_vfs::Handle::NONE).unwrap();
    }
    let truth = fs.tree();
    (fs, truth)
}

fn numbers(report: &Option<Report>) -> Vec<u16> {
    let findings = report.iter().flat_map(|report| &report.findings);
    findings.map(|finding| finding.number).collect()
}

/// Everything is as it was, the directory of what was lost apart.
fn assert_all(device: &Arc<SimDevice>, truth: &Tree) {
    let found = tree(&mount(device));
    for (path, thing) in truth {
        assert_eq!(found.get(path), Some(thing), "{path}");
    }
    assert_eq!(found.len(), truth.len());
}

/// And it can be worked with.
fn assert_usable(device: &Arc<SimDevice>) {
    let mut fs = Fs::again(Arc::clone(device), 99);
    let mut files = fs.fill_at("after", 2, 20);
    fs.churn(&mut files, 200);
    fs.vfs.close().unwrap();
    let report = look(device).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn tables_are_made_again_and_nothing_is_lost() {
    for number in [311, 321] {
        let (fs, truth) = used(21);
        let device = Arc::new(fs.without(&[]));
        let footer = footer(&device);
        let chunks = if number == 311 {
            footer.mat_chunks
        } else {
            footer.zit_chunks
        };
        hurt(&device, live(&chunks));
        assert!(numbers(&look(&device)).contains(&number));
        let (report, losses) = repair(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_eq!(losses, []);
        assert_all(&device, &truth);
        assert_usable(&device);
    }
}

/// Without both tables any page may be an older one, and nothing tells which: files were called whole.
#[test]
fn without_tables_no_file_is_called_whole() {
    let mut fs = Fs::new(36);
    fs.file(persimmon_vfs::ROOT, "file", 50_000);
    fs.checkpoint();
    let device = Arc::new(fs.without(&[]));
    let footer = footer(&device);
    hurt(&device, live(&footer.mat_chunks));
    hurt(&device, live(&footer.zit_chunks));
    let (_, told, losses) = recovered(&device);
    assert!(!losses.is_empty());
    assert_eq!((told.files, told.files_intact), (1, 0));
}

#[test]
fn of_a_damaged_page_only_what_it_held_is_lost() {
    let (fs, truth) = used(22);
    for page in 0..8 {
        let device = Arc::new(fs.without(&[]));
        let inspector = Inspector::open(&*device).unwrap();
        let Dump::Mat(rows) = dump(&inspector, &Target::Mat).unwrap() else {
            panic!("no table")
        };
        drop(inspector);
        hurt(&device, addr(&rows[page * rows.len() / 8].addr));
        assert!(numbers(&look(&device)).contains(&401));
        let (report, losses) = repair(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        let found = tree(&mount(&device));
        let same = truth
            .iter()
            .filter(|(path, thing)| found.get(*path) == Some(thing));
        assert!(same.count() > truth.len() / 2, "{losses:#?}");
        assert_usable(&device);
    }
}

/// Files made after the checkpoint are in the journal as a whole: nothing of theirs is called lost.
#[test]
fn of_a_damaged_page_nothing_newer_is_called_lost() {
    let mut fs = Fs::new(29);
    fs.file(persimmon_vfs::ROOT, "first", 50_000);
    fs.checkpoint();
    let later: Vec<_> = (0..5)
        .map(|number| fs.file(persimmon_vfs::ROOT, &format!("later {number}"), 300_000))
        .collect();
    fs.vfs.sync().unwrap();
    let truth = fs.tree();
    let device = Arc::new(fs.without(&[]));
    let inspector = Inspector::open(&*device).unwrap();
    let Dump::Mat(rows) = dump(&inspector, &Target::Mat).unwrap() else {
        panic!("no table")
    };
    drop(inspector);
    for row in &rows {
        hurt(&device, addr(&row.addr));
    }
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!losses.is_empty());
    for loss in &losses {
        assert!(later.iter().all(|ino| ino.0 != loss.ino), "{losses:#?}");
    }
    let found = tree(&mount(&device));
    for number in 0..5 {
        let path = format!("/later {number}");
        assert!(truth.contains_key(&path), "{:?}", truth.keys());
        assert_eq!(found.get(&path), truth.get(&path));
    }
}

/// Where the leaf with an inode is.
fn leaf_of(device: &SimDevice, ino: Ino) -> Vec<Addr> {
    leaves(device, |page| {
        let mut items = page.items.iter();
        items.any(|item| item.ino == ino.0 && item.kind == "inode")
    })
}

/// A file that was overwritten after a checkpoint and before another one: the page that had it is left in its zone.
fn with_older_pages(seed: u64) -> (Fs, Ino, Tree) {
    let mut fs = Fs::new(seed);
    let files = fs.fill(6, 60);
    fs.checkpoint();
    let ino = files[0].2;
    fs.write(ino, 0, &[7; 100_000]);
    fs.checkpoint();
    let truth = fs.tree();
    (fs, ino, truth)
}

/// A part of the page table and a page were lost. An older version of the page in the same zone took its place, and nothing was reported.
#[test]
fn older_pages_that_count_like_lost_ones_are_told() {
    let (fs, ino, truth) = with_older_pages(32);
    let device = Arc::new(fs.without(&[]));
    let leaf = leaf_of(&device, ino);
    hurt(&device, live(&footer(&device).mat_chunks));
    let (copy, recovered_of, losses) = recovered(&device);
    assert_eq!((losses, &tree(&copy)), (vec![], &truth));
    assert!(recovered_of.files_intact > 0);
    for at in leaf {
        hurt(&device, at);
    }
    let (copy, recovered_of, losses) = recovered(&device);
    assert_ne!(tree(&copy), truth);
    assert!(!losses.is_empty());
    assert_eq!(recovered_of.files_intact, 0);
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!losses.is_empty());
}

/// The log and the newest chunk of the page table were lost. An older chunk led to older pages that count like the newer ones, and nothing was reported.
#[test]
fn without_the_log_an_older_chunk_does_not_lead_to_older_pages() {
    let (fs, ino, truth) = with_older_pages(33);
    let device = Arc::new(fs.without(&fs.zones(Role::Log)));
    let (copy, _, losses) = recovered(&device);
    assert_log_alone_lost(&losses);
    assert_eq!(tree(&copy), truth);
    let before = fs.without(&[]);
    hurt(&device, live(&footer(&before).mat_chunks));
    let (copy, recovered_of, losses) = recovered(&device);
    assert_log_alone_lost(&losses);
    assert!(tree(&copy) == truth);
    assert!(recovered_of.files_intact > 0);
    let leaf = leaf_of(&before, ino);
    for at in leaf {
        hurt(&device, at);
    }
    let (copy, recovered_of, losses) = recovered(&device);
    assert!(tree(&copy) != truth);
    assert!(losses.len() > 1, "{losses:#?}");
    assert_eq!(recovered_of.files_intact, 0);
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(losses.len() > 1);
}

/// A page that is older than it should be, and not known to be, names blocks that other files have by now. A repair counted them for both, and
/// ended for want of room.
#[test]
fn of_pages_that_may_be_older_no_block_is_taken_unseen() {
    let config = persimmon_sim::SimConfig::new(40, 256).fast();
    let mut fs = Fs::on(SimDevice::new(config), 34);
    let large = fs.file(ROOT, "large", 4 << 20);
    fs.checkpoint();
    // Of free zones the least reset ones are taken first.
    for round in 0..4 {
        let room = fs.vfs.volume().space().available_bytes;
        let name = format!("for a while {round}");
        fs.file(ROOT, &name, room / 4 * 3);
        fs.vfs.sync().unwrap();
        fs.vfs.unlink(ROOT, name.as_bytes()).unwrap();
        fs.checkpoint();
        while fs.vfs.volume().step(Task::Reset).unwrap() == Progress::Worked {}
    }
    let data = |fs: &Fs| {
        let zones = fs.vfs.volume().zones().into_iter();
        let data = zones.filter(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
        let data = data.map(|zone| (zone.zone, zone.entry.sequence));
        data.collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = data(&fs);
    let bytes = fs.bytes(4 << 20);
    fs.write(large, 0, &bytes);
    fs.checkpoint();
    fs.file(ROOT, "later", 3 << 20);
    fs.vfs.sync().unwrap();
    let now = data(&fs);
    let is_again = |(zone, sequence)| before.get(zone).is_some_and(|old| old != sequence);
    assert!(now.iter().any(is_again), "{before:?} {now:?}");
    let truth = fs.tree();
    let device = Arc::new(fs.without(&[]));
    let leaf = leaves(&device, |page| {
        let mut items = page.items.iter();
        items.any(|item| item.ino == large.0 && item.kind == "inode")
    });
    hurt(&device, live(&footer(&device).mat_chunks));
    for at in leaf {
        hurt(&device, at);
    }
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!losses.is_empty());
    let found = tree(&mount(&device));
    assert!(found["/later"].content == truth["/later"].content);
}

/// What is lost with the log had inode numbers, and nobody is to find another file under one of them.
#[test]
fn inode_numbers_of_what_is_lost_are_not_given_out_again() {
    let mut fs = Fs::new(30);
    fs.file(persimmon_vfs::ROOT, "first", 5000);
    fs.checkpoint();
    let names = (0..20).map(|number| format!("later {number}"));
    let later: Vec<_> = names
        .map(|name| fs.file(persimmon_vfs::ROOT, &name, 100))
        .collect();
    fs.vfs.sync().unwrap();
    for lost in [true, false] {
        let device = Arc::new(fs.without(&[]));
        for at in journal_since_the_last_footer(&device) {
            if lost {
                hurt(&device, at);
            }
        }
        let metadata = footer(&device);
        hurt(&device, live(&metadata.mat_chunks));
        repair(&device);
        let mut again = Fs::again(Arc::clone(&device), 31);
        let new = again.file(persimmon_vfs::ROOT, "new", 100);
        assert!(
            later.iter().all(|ino| *ino < new),
            "{new} is given out again"
        );
    }
}

#[test]
fn a_lost_metadata_zone_leaves_a_sound_volume() {
    let (fs, truth) = used(23);
    for zone in fs.zones(Role::Metadata) {
        let device = Arc::new(fs.without(&[zone]));
        let before = look(&device);
        let (report, losses) = repair(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        if before.is_some_and(|report| report.is_clean()) {
            assert_all(&device, &truth);
        } else {
            assert!(!losses.is_empty());
            assert_told(&truth, &tree(&mount(&device)), &losses);
        }
        assert_usable(&device);
    }
}

#[test]
fn a_lost_log_is_begun_again() {
    let (fs, _) = used(24);
    fs.checkpoint();
    let truth = fs.tree();
    let device = Arc::new(fs.without(&fs.zones(Role::Log)));
    assert!(look(&device).is_none());
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_log_alone_lost(&losses);
    assert_all(&device, &truth);
    assert_usable(&device);
}

#[test]
fn a_lost_log_of_a_volume_with_two_copies_is_begun_again() {
    let mut fs = Fs::mirrored(30);
    let mut files = fs.fill(4, 40);
    fs.churn(&mut files, 300);
    fs.checkpoint();
    let truth = fs.tree();
    let device = Arc::new(fs.without(&fs.zones(Role::Log)));
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_log_alone_lost(&losses);
    assert_all(&device, &truth);
    assert_usable(&device);
}

/// Everything moves out, and the zone's next use gives it a good header.
#[test]
fn a_zone_with_a_damaged_header_is_emptied() {
    let (fs, truth) = used(31);
    for role in [Role::Data, Role::Metadata] {
        let zones = fs.vfs.volume().zones();
        let mut used = zones
            .iter()
            .filter(|z| z.entry.role == role && z.entry.valid > 0);
        let zone = used.next().unwrap().zone;
        let device = Arc::new(fs.without(&[]));
        hurt(&device, Addr::new(DeviceId(0), zone, 0));
        assert!(numbers(&look(&device)).contains(&101));
        let report = settle(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert!(!numbers(&Some(report)).contains(&101));
        assert_all(&device, &truth);
        assert_usable(&device);
    }
}

/// With the table of zones damaged too, nothing told that files had blocks in the zone: a repair left it as nobody's, and the
/// next mount reset it.
#[test]
fn a_zone_that_neither_its_header_nor_the_table_tells_of_keeps_its_blocks() {
    let (fs, truth) = used(31);
    let zones = fs.vfs.volume().zones();
    let mut used = zones
        .iter()
        .filter(|z| z.entry.role == Role::Data && z.entry.valid > 0);
    let zone = used.next().unwrap().zone;
    let device = Arc::new(fs.without(&[]));
    hurt(&device, live(&footer(&device).zit_chunks));
    hurt(&device, Addr::new(DeviceId(0), zone, 0));
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(losses, []);
    assert_all(&device, &truth);
    assert_usable(&device);
}

/// The newest footer is damaged: that is found, and a repair brings back all that there was.
fn assert_nothing_lost_with_the_footer(fs: &Fs) {
    let truth = fs.tree();
    let device = Arc::new(fs.without(&[]));
    hurt(&device, addr(&footer(&device).addr));
    assert!(numbers(&look(&device)).contains(&301));
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(losses, []);
    assert_all(&device, &truth);
    assert_usable(&device);
}

/// The footer before it and the journal lead to the same, if nothing was reset since.
#[test]
fn a_damaged_footer_is_replaced_by_the_one_before_it() {
    let mut fs = Fs::new(26);
    let mut files = fs.fill(4, 40);
    fs.checkpoint();
    fs.churn(&mut files, 40);
    fs.checkpoint();
    for (_, _, ino) in files.iter().take(10) {
        fs.write(*ino, 0, b"after the checkpoint");
        fs.vfs.fsync(*ino, persimmon_vfs::Handle::NONE).unwrap();
    }
    assert_nothing_lost_with_the_footer(&fs);
}

/// A volume that has never written a checkpoint of its own lost all of its journal with the footer.
#[test]
fn a_young_volume_has_a_footer_before_its_newest_too() {
    let mut fs = Fs::new(30);
    for n in 0..10 {
        let ino = fs.file(persimmon_vfs::ROOT, &format!("early {n}"), 900);
        fs.vfs.fsync(ino, persimmon_vfs::Handle::NONE).unwrap();
    }
    assert_nothing_lost_with_the_footer(&fs);
}

/// A checkpoint of the zones alone has let data zones go, and its footer is damaged: the journal from the
/// one before on has everything.
#[test]
fn a_damaged_footer_of_the_zones_alone_costs_nothing() {
    let mut fs = Fs::new(32);
    let mut files = fs.fill(20, 150);
    fs.churn(&mut files, 3000);
    fs.checkpoint();
    let synced = |fs: &mut Fs, text: &[u8]| {
        for (_, _, ino) in files.iter().take(10) {
            fs.write(*ino, 0, text);
            fs.vfs.fsync(*ino, persimmon_vfs::Handle::NONE).unwrap();
        }
    };
    synced(&mut fs, b"after the whole checkpoint");
    fs.clean_without_whole_checkpoints();
    synced(&mut fs, b"after that of the zones alone");
    assert_nothing_lost_with_the_footer(&fs);
}

/// After much churn what the footer before it needs is gone: then it is found by its pages.
#[test]
fn a_damaged_footer_leaves_the_state_of_its_checkpoint() {
    let (fs, _) = used(27);
    fs.checkpoint();
    let truth = fs.tree();
    let device = Arc::new(fs.without(&[]));
    hurt(&device, addr(&footer(&device).addr));
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(losses, []);
    assert_all(&device, &truth);
}

/// Records behind a damaged block cannot be applied: those before it are. That changes were lost which had been
/// acknowledged nobody was told: neither by the repair nor by a copy, which ended with the code for "nothing is
/// lost".
#[test]
fn a_damaged_journal_block_ends_the_history_there() {
    let mut fs = Fs::new(28);
    fs.fill(2, 20);
    fs.checkpoint();
    let mut states = vec![fs.tree()];
    for n in 0..12 {
        let ino = fs.file(persimmon_vfs::ROOT, &format!("late {n}"), 900);
        fs.vfs.fsync(ino, persimmon_vfs::Handle::NONE).unwrap();
        states.push(fs.tree());
    }
    fs.vfs.close().unwrap();
    let last = addr(&footer(&fs.device).addr);
    for at in 2..8 {
        let device = Arc::new(fs.without(&[]));
        hurt(&device, last.offset(at));
        assert!(numbers(&look(&device)).contains(&202));
        let (_, told, of_copy) = recovered(&device);
        let (report, losses) = repair(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        let found = tree(&mount(&device));
        assert!(states.contains(&found), "block {at}");
        assert_eq!(told.losses, 1);
        for loss in [&losses[..], &of_copy].concat() {
            let is_told = loss.detail.contains("were durable and are missing");
            assert!(is_told && loss.lost == Lost::Metadata, "{loss}");
        }
        assert_eq!(losses.len(), 1);
        assert_usable(&device);
    }
}

/// The journal is damaged that says where cleaning moved what, out of zones that a checkpoint of the zones
/// alone let go. With a hundred damaged blocks or more, apart from each other, the gap behind them was not among
/// the findings kept: the log was taken for whole, what was moved was not looked for, and a repair reset the zones
/// with the only copies.
#[test]
fn what_cleaning_moved_is_found_without_the_journal_that_says_so() {
    let mut fs = Fs::new(31);
    fs.compresses = false;
    let mut files = fs.fill(20, 150);
    fs.churn(&mut files, 3000);
    fs.checkpoint();
    let truth = fs.tree();
    let whole = addr(&footer(&fs.device).addr);
    fs.clean_without_whole_checkpoints();
    for (_, _, ino) in files.iter().take(250) {
        let set = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        fs.vfs.setattr(*ino, Handle::NONE, &set).unwrap();
        fs.vfs.fsync(*ino, Handle::NONE).unwrap();
    }
    for apart in [0, 120] {
        let device = Arc::new(fs.without(&[]));
        let journal = journal_since_the_last_footer(&device);
        assert!(journal.len() > 2 * apart);
        hurt(&device, whole.offset(1));
        for at in journal.iter().step_by(2).take(apart) {
            hurt(&device, *at);
        }
        assert!(numbers(&look(&device)).contains(&202));
        let (report, _) = repair(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_all(&device, &truth);
        assert_usable(&device);
    }
}

/// What is left of frames was compressed anew: nothing tells then whether that is the same data. The tree led to zones that were
/// free, and none could be taken for the new metadata.
#[test]
fn what_cleaning_compressed_anew_is_not_looked_for_in_free_zones() {
    let mut fs = Fs::new(31);
    let mut files = fs.fill(20, 150);
    fs.churn(&mut files, 3000);
    fs.checkpoint();
    let truth = fs.tree();
    let whole = addr(&footer(&fs.device).addr);
    fs.clean_without_whole_checkpoints();
    let device = Arc::new(fs.without(&[]));
    hurt(&device, whole.offset(1));
    assert!(numbers(&look(&device)).contains(&202));
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_told(&truth, &tree(&mount(&device)), &losses);
    assert_usable(&device);
}

/// More metadata than may be in memory at once.
#[test]
fn much_metadata_is_written_piece_by_piece() {
    let mut fs = Fs::on(
        SimDevice::new(persimmon_sim::SimConfig::new(64, 1024).fast()),
        29,
    );
    fs.fill(30, 400);
    fs.checkpoint();
    let truth = fs.tree();
    let device = Arc::new(fs.without(&[]));
    hurt(&device, live(&footer(&device).mat_chunks));
    let options = Options {
        dirty_pages_max: 8,
        cache_bytes_max: 1 << 20,
        ..Options::default()
    };
    let (report, losses) = repair_within(&device, options);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(losses, []);
    assert_all(&device, &truth);
}

/// Whenever the power goes, the volume is as broken as before, or mended.
#[test]
fn a_repair_that_is_broken_off_can_be_made_again() {
    let (fs, truth) = used(25);
    let broken = Arc::new(fs.without(&[]));
    hurt(&broken, live(&footer(&broken).mat_chunks));
    for cut in (0..60).step_by(3) {
        let device = Arc::new(broken.snapshot().intact());
        device.cut_after(cut);
        {
            let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
            let now = (Timestamp::default(), Options::default());
            let _ = mend(
                &rebuilt,
                Arc::clone(&device) as _,
                now,
                &mut |_| {},
                &mut |_, _, _| {},
            );
        }
        let device = Arc::new(device.persisted(cut));
        let (report, losses) = repair(&device);
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_eq!(losses, []);
        assert_all(&device, &truth);
    }
}
