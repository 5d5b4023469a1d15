//! All log zones are gone: journal, footers, and with them the way to everything.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{Fs, Tree, assert_log_alone_lost, assert_told, intact, recovered, tree};
use persimmon_device::ZoneId;
use persimmon_format::table::Role;
use persimmon_inspect::salvage::Source;
use persimmon_salvage::Loss;

fn assert_same(truth: &Tree, copy: &Tree) {
    for (path, thing) in truth {
        assert_eq!(copy.get(path), Some(thing), "{path}");
    }
    assert_eq!(truth.len(), copy.len());
}

#[test]
fn everything_up_to_the_last_checkpoint_comes_back_as_it_was() {
    let mut fs = Fs::new(1);
    fs.fill(4, 30);
    fs.checkpoint();
    let truth = fs.tree();
    let (copy, told, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
    assert_log_alone_lost(&losses);
    assert_eq!(told.source, Source::Pages);
    assert_eq!(told.files, told.files_intact);
    assert_same(&truth, &tree(&copy));
}

/// The bar: 99.9 % of the files.
#[test]
fn thousands_of_files_come_back_after_much_churn_and_cleaning() {
    let mut fs = Fs::new(2);
    let mut files = fs.fill(20, 150);
    fs.churn(&mut files, 6000);
    fs.checkpoint();
    let cleaned = fs.vfs.volume().statistics();
    assert!(
        cleaned.blocks_moved > 100 && cleaned.resets > 20,
        "{cleaned:?}"
    );
    let truth = fs.tree();
    let (copy, _, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
    let (same, files) = intact(&truth, &tree(&copy));
    assert!(
        files >= 3000 && same * 1000 >= files * 999,
        "{same} of {files}: {losses:#?}"
    );
    assert_same(&truth, &tree(&copy));
}

/// What the journal alone knew is lost with it; blocks that had a summary are kept apart.
#[test]
fn what_came_after_the_checkpoint_is_lost_and_nothing_before_it() {
    let mut fs = Fs::new(3);
    let files = fs.fill(4, 40);
    fs.checkpoint();
    let truth = fs.tree();
    let big = fs.bytes(3 << 20);
    let (_, _, old) = files[7];
    fs.write(old, 0, &big);
    for (_, _, ino) in &files[20..60] {
        fs.write(*ino, 0, b"later");
        fs.vfs.fsync(*ino, persimmon_vfs::Handle::NONE).unwrap();
    }
    let late = fs.file(persimmon_vfs::ROOT, "late", 3 << 20);
    fs.vfs.sync().unwrap();
    let now = fs.tree();
    let (copy, told, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
    let mut copy = tree(&copy);
    assert_eq!(
        told.files_intact + 1,
        told.files,
        "all but the one that has no name"
    );
    assert!(losses.iter().any(|loss| loss.ino == old.0), "{losses:#?}");
    let newer = &copy[&format!("/lost+found/#{old}.newer")].content;
    let same = (0..newer.len()).filter(|at| newer[*at] == big[*at]).count();
    assert!(same > 1 << 20, "{same} of {}", big.len());
    let stray = &copy[&format!("/lost+found/#{late}")].content;
    let content = &now["/late"].content;
    let same = (0..stray.len())
        .filter(|at| stray[*at] == content[*at])
        .count();
    assert!(same > 1 << 20, "{same} of {}", content.len());
    copy.retain(|path, _| !path.starts_with("/lost+found"));
    let root = copy.get_mut("/").unwrap();
    root.inode.size -= 1;
    root.inode.nlink -= 1;
    assert_same(&truth, &copy);
}

/// The pages of a checkpoint that was never finished are on the device too.
#[test]
fn a_checkpoint_that_was_broken_off_is_not_half_taken() {
    let mut tried = 0;
    for cut in 0..60 {
        let mut fs = Fs::new(4);
        let mut files = fs.fill(2, 20);
        fs.checkpoint();
        let before = fs.tree();
        fs.churn(&mut files, 30);
        fs.vfs.sync().unwrap();
        let after = fs.tree();
        fs.device.cut_after(cut);
        let done = fs
            .vfs
            .volume()
            .step(persimmon_engine::Task::Checkpoint)
            .is_ok();
        let log = fs.zones(Role::Log);
        let broken = fs.device.persisted(cut);
        for zone in log {
            broken.set_offline(zone);
        }
        let (copy, _, losses) = recovered(&broken);
        let mut copy = tree(&copy);
        let sheltered = copy.keys().any(|path| path == "/lost+found");
        copy.retain(|path, _| !path.starts_with("/lost+found"));
        if sheltered {
            let root = copy.get_mut("/").unwrap();
            root.inode.size -= 1;
            root.inode.nlink -= 1;
        }
        assert!(
            copy == before || copy == after,
            "after {cut} commands: {losses:#?}"
        );
        tried += 1;
        if done {
            assert!(copy == after);
            break;
        }
    }
    assert!(tried > 5, "{tried}");
}

/// A number is given twice if the first checkpoint that had it was broken off.
#[test]
fn of_two_attempts_at_a_checkpoint_the_second_counts() {
    for cut in 1..40 {
        let mut fs = Fs::new(5);
        let mut files = fs.fill(2, 20);
        fs.checkpoint();
        fs.churn(&mut files, 30);
        // Not synced: the second attempt is made from less.
        fs.device.cut_after(cut);
        let _ = fs.vfs.volume().step(persimmon_engine::Task::Checkpoint);
        let device = std::sync::Arc::new(fs.device.persisted(cut));
        let mut fs = Fs::again(device, 6);
        fs.file(persimmon_vfs::ROOT, "more", 30_000);
        fs.checkpoint();
        let truth = fs.tree();
        let (copy, _, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
        assert_log_alone_lost(&losses);
        assert_same(&truth, &tree(&copy));
    }
}

#[test]
fn the_broken_volume_is_not_written_to() {
    let mut fs = Fs::new(7);
    fs.fill(2, 10);
    fs.checkpoint();
    let broken = fs.without(&fs.zones(Role::Log));
    let (hash, changes) = (broken.image_hash(), broken.counters().changes());
    recovered(&broken);
    assert_eq!(
        (broken.image_hash(), broken.counters().changes()),
        (hash, changes)
    );
}

/// Cleaning moves blocks, and a checkpoint of the zones alone lets the zones go that the tree of the
/// checkpoint before still names: what was moved is the same data all the same.
#[test]
fn what_cleaning_moved_since_the_checkpoint_is_found_where_it_is() {
    for reused in [false, true] {
        let mut fs = Fs::new(8);
        fs.compresses = false;
        let mut files = fs.fill(20, 150);
        fs.churn(&mut files, 3000);
        fs.checkpoint();
        let truth = fs.tree();
        fs.clean_without_whole_checkpoints();
        if reused {
            let late = fs.file(persimmon_vfs::ROOT, "late", 4 << 20);
            fs.vfs.fsync(late, persimmon_vfs::Handle::NONE).unwrap();
        }
        let (copy, _, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
        let mut copy = tree(&copy);
        let (same, files) = intact(&truth, &copy);
        assert_eq!(same, files, "{losses:#?}");
        if reused {
            copy.retain(|path, _| !path.starts_with("/lost+found"));
            let root = copy.get_mut("/").unwrap();
            root.inode.size -= 1;
            root.inode.nlink -= 1;
        }
        assert_same(&truth, &copy);
    }
}

/// Cleaning compresses anew what is left of a frame: nothing tells then whether that is the same data. It is in `lost+found`,
/// and of the file it is told as lost.
#[test]
fn what_cleaning_compressed_anew_is_told() {
    let mut fs = Fs::new(8);
    let mut files = fs.fill(20, 150);
    fs.churn(&mut files, 3000);
    fs.checkpoint();
    let truth = fs.tree();
    fs.clean_without_whole_checkpoints();
    let (copy, _, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
    let copy = tree(&copy);
    assert_told(&truth, &copy, &losses);
    let (same, files) = intact(&truth, &copy);
    assert!(same < files && same > files * 9 / 10, "{same} of {files}");
}

/// A volume whose journal has gone on in another zone since the last checkpoint, with files that only that knows; and the zones of the log
/// before.
fn gone_on(seed: u64) -> (Fs, Vec<ZoneId>) {
    let mut fs = Fs::new(seed);
    let files = fs.fill(2, 20);
    fs.checkpoint();
    let before = fs.zones(Role::Log);
    let (_, _, ino) = files[0];
    while fs.zones(Role::Log).len() == before.len() {
        fs.write(ino, 0, b"later");
        fs.vfs.fsync(ino, persimmon_vfs::Handle::NONE).unwrap();
    }
    for n in 0..5 {
        let late = fs.file(persimmon_vfs::ROOT, &format!("late {n}"), 900);
        fs.vfs.fsync(late, persimmon_vfs::Handle::NONE).unwrap();
    }
    (fs, before)
}

/// Zones that the log has taken since.
fn taken_since(fs: &Fs, before: &[ZoneId]) -> Vec<ZoneId> {
    let mut zones = fs.zones(Role::Log);
    zones.retain(|zone| !before.contains(zone));
    zones
}

/// The journal goes on in a zone that is lost: what is left of the log has no gap, and nobody was told that changes may be
/// missing.
#[test]
fn a_lost_end_of_the_journal_is_told() {
    let (fs, before) = gone_on(9);
    let last = taken_since(&fs, &before);
    let truth = fs.tree();
    let (copy, told, losses) = recovered(&fs.without(&last));
    assert_eq!(told.source, Source::Log);
    assert_ne!(tree(&copy), truth);
    let is_told = |loss: &Loss| loss.detail.contains("may have held the end of the journal");
    assert!(losses.len() == 1 && is_told(&losses[0]), "{losses:#?}");
    assert_eq!(recovered(&fs.without(&[])).2, []);
}

/// The same, and the lost zone held a checkpoint: its pages are there, and are newer than all that is left of the log.
#[test]
fn a_checkpoint_whose_footer_was_in_the_lost_end_is_taken() {
    let (fs, before) = gone_on(10);
    fs.checkpoint();
    let truth = fs.tree();
    let last = taken_since(&fs, &before);
    let (copy, _, _) = recovered(&fs.without(&last));
    assert_same(&truth, &tree(&copy));
}
