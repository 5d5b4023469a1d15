//! Using a volume that may hold anything, as a mount and a check would.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, ZonedDevice};
use persimmon_engine::{Deltas, NewLimits, Options, Quotas, ScrubCursor, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_inspect::dump::{Target, dump};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, Inspector, check};
use persimmon_salvage::{Loss, mend};
use persimmon_sim::SimDevice;
use persimmon_vfs::{
    Allocate, Attr, Caller, Clock, FileKind, Handle, Listing, OnError, Owner, OwnerKind, ROOT,
    RenameMode, SeekTo, SetAttr, Vfs, WriteFlags, XattrMode,
};

use crate::input::Input;
use crate::metered::Metered;
use crate::sample::Still;

/// Directories, and names of one directory, that are looked at.
const LOOKS_MAX: usize = 300;
/// Pieces of one file that are looked for.
const PIECES_MAX: usize = 20;
/// Operations that change something.
const CHANGES_MAX: usize = 12;

/// Opens the volume, reads all of it, changes something, closes it, and checks it.
pub fn use_volume(device: SimDevice, input: &mut Input<'_>) {
    let device: Arc<dyn ZonedDevice> = Metered::new(device);
    let read_only = input.rarely(4);
    let options = Options {
        read_only,
        deltas: *input.pick(&[Deltas::None, Deltas::Always]),
        cache_bytes_max: 64 << 10,
        staging_bytes_max: 256 << 10,
        ..Options::default()
    };
    let opened = Volume::open(Arc::clone(&device), options);
    if let Ok((volume, _)) = opened.inspect_err(|error| drop(error.to_string())) {
        let on_error = if input.flag() {
            OnError::ReadOnly
        } else {
            OnError::Continue
        };
        let options = persimmon_vfs::Options {
            read_only,
            on_error,
            ..persimmon_vfs::Options::default()
        };
        let orphans = volume.orphans().unwrap_or_default();
        let vfs = Vfs::new(Arc::new(volume), Arc::new(Still), options);
        let _ = vfs.reclaim_orphans(&orphans);
        let _ = vfs.statfs();
        let found = walk(&vfs);
        if !read_only {
            for _ in 0..input.below(CHANGES_MAX) {
                change(&vfs, &found, input);
            }
        }
        scrub(vfs.volume());
        let _ = vfs.close();
    }
    inspect(&device);
    let _ = salvage(&device);
}

/// A whole scrub, and the names of what it finds.
pub fn scrub(volume: &Volume) {
    let mut cursor = Some(ScrubCursor::default());
    let mut damaged = BTreeSet::new();
    while let Some(at) = cursor {
        let Ok(step) = volume.scrub_step(at, 256) else {
            break;
        };
        damaged.extend(step.findings.iter().filter_map(|f| Some(f.file?.0)));
        cursor = step.next;
    }
    let _ = volume.paths(&damaged);
}

/// Puts together what is left, and repairs with it, as `fsck --repair` does. Whether that was possible.
pub fn salvage(device: &Arc<dyn ZonedDevice>) -> bool {
    let Ok(rebuilt) = rebuild(&**device, &mut |_, _, _| {}) else {
        return false;
    };
    rebuilt.gaps().for_each(drop);
    let how = (Timestamp::default(), Options::default());
    let mut tell = |loss: &Loss| drop(loss.to_string());
    let mended = mend(
        &rebuilt,
        Arc::clone(device),
        how,
        &mut tell,
        &mut |_, _, _| {},
    );
    let is_mended = mended.is_ok();
    if is_mended {
        inspect(device);
    }
    is_mended
}

/// Reads everything that can be found, and answers what that was.
fn walk(vfs: &Vfs) -> Vec<Ino> {
    let mut found = BTreeSet::from([ROOT]);
    let mut directories = vec![ROOT];
    while let Some(directory) = directories.pop() {
        if found.len() > LOOKS_MAX {
            break;
        }
        let mut names = Vec::new();
        let _ = vfs.readdir(directory, Handle::NONE, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            if names.len() < LOOKS_MAX {
                Listing::More
            } else {
                Listing::Full
            }
        });
        for name in names {
            let Ok(attr) = vfs.lookup(directory, &name) else {
                continue;
            };
            if found.insert(attr.ino) {
                look(vfs, &attr);
                if attr.kind() == FileKind::Directory {
                    directories.push(attr.ino);
                }
            }
        }
    }
    found.into_iter().collect()
}

fn look(vfs: &Vfs, attr: &Attr) {
    let ino = attr.ino;
    let root = Caller::root();
    for name in vfs
        .listxattr(&root, ino)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
    {
        let _ = vfs.getxattr(ino, name);
    }
    let _ = vfs.readlink(ino);
    let mut buffer = vec![0; 8 * BLOCK_SIZE];
    let mut at = 0;
    for _ in 0..PIECES_MAX {
        let Ok(data) = vfs.seek(ino, Handle::NONE, at, SeekTo::Data) else {
            break;
        };
        assert!(data >= at, "data before the place asked for");
        let _ = vfs.read(ino, Handle::NONE, data, &mut buffer);
        let Ok(hole) = vfs.seek(ino, Handle::NONE, data, SeekTo::Hole) else {
            break;
        };
        assert!(hole > data, "a hole where data was found");
        let _ = vfs.read(ino, Handle::NONE, hole.saturating_sub(100), &mut buffer);
        at = hole;
    }
    let _ = vfs.read(
        ino,
        Handle::NONE,
        attr.size.saturating_sub(5000),
        &mut buffer,
    );
}

/// One operation; what it answers does not matter.
pub fn change(vfs: &Vfs, found: &[Ino], input: &mut Input<'_>) {
    let root = Caller::root();
    let one = *input.pick(found);
    let other = *input.pick(found);
    let name = *input.pick(&[&b"new"[..], b"late", b"many", b"deep", b"sized 3"]);
    let other_name = *input.pick(&[&b"other"[..], b"sparse", b"many", b"link"]);
    let offset = offset(input);
    let len = input.below(40_000);
    let flags = WriteFlags::default();
    match input.u8() % 19 {
        0 => drop(vfs.mkdir(&root, one, name, 0o755)),
        1 => drop(vfs.mknod(&root, one, name, 0o100_644, 0)),
        2..=4 => drop(vfs.write(one, Handle::NONE, offset, &vec![7; len], flags)),
        5 => drop(vfs.fsync(one, Handle::NONE)),
        6 => {
            let set = SetAttr {
                size: Some(offset),
                ..SetAttr::default()
            };
            let _ = vfs.setattr(one, Handle::NONE, &set);
        }
        7 => {
            let keep_size = input.flag();
            let what = *input.pick(&[
                Allocate::Reserve { keep_size },
                Allocate::Punch,
                Allocate::Zero { keep_size },
            ]);
            let _ = vfs.fallocate(one, Handle::NONE, offset, input.near(50_000), what);
        }
        8 => drop(vfs.unlink(one, name)),
        9 => drop(vfs.rmdir(one, name)),
        10 => {
            let mode = *input.pick(&[
                RenameMode::Replace,
                RenameMode::NoReplace,
                RenameMode::Exchange,
            ]);
            let _ = vfs.rename(one, name, other, other_name, mode);
        }
        11 => drop(vfs.link(other, one, name)),
        12 => drop(vfs.setxattr(
            &root,
            one,
            b"user.note",
            &vec![1; len % 12_000],
            XattrMode::Either,
        )),
        13 => drop(vfs.copy_file_range(
            (one, Handle::NONE, offset),
            (other, Handle::NONE, input.near(0)),
            len as u64,
        )),
        14 => {
            let task = *input.pick(&[
                Task::WriteBack,
                Task::Commit,
                Task::Checkpoint,
                Task::Clean,
                Task::Settle,
            ]);
            let _ = vfs.volume().step(task);
        }
        15 => {
            let set = SetAttr {
                uid: Some(1000 + len as u32 % 3),
                ..SetAttr::default()
            };
            let _ = vfs.setattr(one, Handle::NONE, &set);
        }
        16 => {
            let owner = Owner {
                kind: *input.pick(&OwnerKind::ALL),
                id: *input.pick(&[0, 7, 1000]),
            };
            let limits = NewLimits {
                bytes_hard: Some(offset),
                inodes_hard: Some(len as u64 % 200),
                ..NewLimits::default()
            };
            let quotas = Quotas::of(vfs.volume());
            let _ = quotas.set(owner, &limits, Still.now());
        }
        17 => {
            let quotas = Quotas::of(vfs.volume());
            let _ = quotas.turn_on(input.flag()).and_then(|()| quotas.count());
            let _ = quotas.list();
        }
        _ => drop(vfs.sync()),
    }
}

/// Mostly where files have something.
fn offset(input: &mut Input<'_>) -> u64 {
    let usual = u64::from(input.u16()) * 4;
    input.near(usual)
}

/// Checks the volume, and shows its structures.
pub fn inspect(device: &Arc<dyn ZonedDevice>) {
    let options = CheckOptions {
        data: true,
        findings_max: 50,
        ..CheckOptions::default()
    };
    if let Ok(report) = check(&**device, &options, &mut |_| {}) {
        report
            .findings
            .iter()
            .for_each(|finding| drop(finding.to_string()));
    }
    let Ok(inspector) = Inspector::open(&**device) else {
        return;
    };
    for words in [
        "log",
        "footer",
        "mat",
        "zit",
        "keys",
        "page 1",
        "inode 1",
        "directory /",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let target = Target::parse(&inspector, &words);
        let _ = target.and_then(|target| dump(&inspector, &target));
    }
}
