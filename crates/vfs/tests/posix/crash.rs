//! What a power cut leaves: the promises of docs/POSIX.md, tried at every command of the device.

use std::sync::Arc;

use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    Allocate, Handle, OpenFlags, Options, ROOT, RenameMode, Result, SetAttr, WriteFlags,
};

use crate::fixture::{Fixture, READ_WRITE};

/// More commands than any of the scenarios sends.
const COMMANDS_MAX: u64 = 400;

/// A device that loses what it may lose.
fn device(seed: u64) -> SimDevice {
    let config = SimConfig::new(24, 256);
    SimDevice::new(match seed % 3 {
        0 => config,
        1 => config.volatile_cache().reordering(seed),
        _ => config.host_file().reordering(seed),
    })
}

/// Prepares a filesystem, runs `work` until the power is cut after `n` commands, for every `n`,
/// and shows `check` what is there afterwards. `work` answers how far it got.
pub fn at_every_cut<T>(
    prepare: impl Fn(&Fixture),
    work: impl Fn(&Fixture, &mut T) -> Result<()>,
    check: impl Fn(&Fixture, &T),
) where
    T: Default,
{
    for n in 0..COMMANDS_MAX {
        let fs = Fixture::on(Arc::new(device(n)), Options::default());
        prepare(&fs);
        fs.vfs.sync().unwrap();
        fs.device.cut_after(n);
        let mut reached = T::default();
        let finished = work(&fs, &mut reached).is_ok();
        let after = fs.after_power_cut(n);
        check(&after, &reached);
        after.vfs.close().unwrap();
        if finished && n > 20 {
            return;
        }
    }
    panic!("the scenario never ended");
}

/// A file written anew under another name and renamed over the old one, without any fsync.
#[test]
fn rename_over_a_file_shows_the_old_or_the_new_content() {
    for len in [100, 4096, 50_000] {
        let (old, new) = (vec![1; len], vec![2; len + 1]);
        at_every_cut(
            |fs| {
                fs.file("f", &old);
            },
            |fs, _: &mut ()| {
                for _ in 0..3 {
                    let made = fs.vfs.mknod(&fs.root, ROOT, b"new", 0o644, 0)?;
                    fs.vfs
                        .write(made.ino, Handle::NONE, 0, &new, WriteFlags::default())?;
                    fs.vfs
                        .rename(ROOT, b"new", ROOT, b"f", RenameMode::Replace)?;
                    fs.vfs.fsyncdir(ROOT, Handle::NONE)?;
                }
                Ok(())
            },
            |fs, ()| {
                let content = fs.content(fs.ino("f"));
                assert!(content == old || content == new, "{} bytes", content.len());
            },
        );
    }
}

/// Files of all sizes, some of which have nothing to write, are synced by one call for all.
#[test]
fn files_synced_together_are_all_there() {
    const LENS: [usize; 8] = [1, 100, 3000, 4096, 5000, 16_384, 40_000, 300_000];
    const ROUNDS: u8 = 3;
    let name = |file: usize| format!("f{file}");
    // No block compresses: they are sent as they are.
    let block = |file: usize, round: u8| -> Vec<u8> {
        let mut random = 1 + file as u32 * 1000 + u32::from(round);
        let bytes = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        });
        bytes.take(4096).collect()
    };
    let content = |file: usize, round: u8| -> Vec<u8> {
        let blocks = block(file, round).into_iter().cycle();
        blocks.take(LENS[file]).collect()
    };
    // Each round leaves one file out.
    let is_written = |file: usize, round: u8| round == 0 || file % 3 != usize::from(round) - 1;
    at_every_cut(
        |fs| {
            for file in 0..LENS.len() {
                fs.file(&name(file), &content(file, 0));
            }
        },
        |fs, reached: &mut u8| {
            let files: Vec<_> = (0..LENS.len()).map(|file| fs.ino(&name(file))).collect();
            for round in 1..=ROUNDS {
                for (file, ino) in files.iter().enumerate() {
                    if is_written(file, round) {
                        let data = content(file, round);
                        let flags = WriteFlags::default();
                        fs.vfs.write(*ino, Handle::NONE, 0, &data, flags)?;
                    }
                }
                // One of them twice, as two callers do.
                let asked = files.iter().chain(&files[..1]);
                let asked: Vec<_> = asked.map(|ino| (*ino, Handle::NONE)).collect();
                let synced = fs.vfs.fsync_all(&asked);
                assert_eq!(synced.len(), asked.len());
                synced.into_iter().collect::<Result<()>>()?;
                *reached = round;
            }
            Ok(())
        },
        |fs, reached| {
            for (file, len) in LENS.into_iter().enumerate() {
                let found = fs.content(fs.ino(&name(file)));
                assert_eq!(found.len(), len, "file {file}");
                let possible: Vec<_> = (*reached..=(*reached + 1).min(ROUNDS))
                    .map(|round| (0..=round).rfind(|round| is_written(file, *round)))
                    .map(|round| content(file, round.unwrap_or(0)))
                    .collect();
                for (at, block) in found.chunks(4096).enumerate() {
                    let at = at * 4096;
                    let is_it = |content: &Vec<u8>| content[at..at + block.len()] == *block;
                    assert!(possible.iter().any(is_it), "file {file} at {at}, {reached}");
                }
            }
        },
    );
}

/// A file emptied at open, written and closed, without any fsync. Between the two the file may be
/// empty, but once it is closed the new content comes with whatever comes after.
#[test]
fn truncate_write_and_close_is_complete_once_something_later_is_there() {
    let old = vec![1; 30_000];
    let new = vec![2; 20_000];
    at_every_cut(
        |fs| {
            fs.file("f", &old);
        },
        |fs, _: &mut ()| {
            let ino = fs.ino("f");
            let flags = OpenFlags {
                truncate: true,
                ..READ_WRITE
            };
            let handle = fs.vfs.open(ino, flags)?;
            fs.vfs.write(ino, handle, 0, &new, WriteFlags::default())?;
            fs.vfs.release(ino, handle)?;
            fs.vfs.mkdir(&fs.root, ROOT, b"later", 0o755)?;
            fs.vfs.fsyncdir(ROOT, Handle::NONE)
        },
        |fs, ()| {
            if fs.exists("later") {
                assert_eq!(fs.content(fs.ino("f")), new);
            }
        },
    );
}

/// A file emptied by its name, while nobody had it open, then opened, written and closed, as shells
/// and editors do after `truncate -s 0`: nobody remembered that it had been emptied, so its content
/// did not enter the history at the close, and something later could be there without it.
#[test]
fn emptied_by_name_then_written_and_closed_is_complete_once_something_later_is_there() {
    let new = vec![2; 20_000];
    at_every_cut(
        |fs| {
            fs.file("f", &[1; 30_000]);
        },
        |fs, _: &mut ()| {
            let ino = fs.ino("f");
            let empty = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            fs.vfs.setattr(ino, Handle::NONE, &empty)?;
            // A reader changes nothing about that.
            let reader = OpenFlags {
                read: true,
                ..OpenFlags::default()
            };
            let handle = fs.vfs.open(ino, reader)?;
            assert!(!fs.vfs.needs_flush(handle));
            fs.vfs.release(ino, handle)?;
            let handle = fs.vfs.open(ino, READ_WRITE)?;
            assert!(fs.vfs.needs_flush(handle));
            fs.vfs.write(ino, handle, 0, &new, WriteFlags::default())?;
            fs.vfs.release(ino, handle)?;
            fs.vfs.mkdir(&fs.root, ROOT, b"later", 0o755)?;
            fs.vfs.fsyncdir(ROOT, Handle::NONE)?;
            let handle = fs.vfs.open(ino, READ_WRITE)?;
            assert!(!fs.vfs.needs_flush(handle));
            fs.vfs.release(ino, handle)
        },
        |fs, ()| {
            if fs.exists("later") {
                assert_eq!(fs.content(fs.ino("f")), new);
            }
        },
    );
}

/// `fallocate` and punching through a descriptor opened with O_SYNC or O_DSYNC were answered from
/// memory, where a write through it is durable, and ext4 and XFS make these so too.
#[test]
fn allocating_through_a_synchronous_handle_is_durable() {
    let fs = Fixture::default();
    let ino = fs.file("f", &[7; 20_000]);
    fs.vfs.sync().unwrap();
    for (sync, size) in [(false, 30_000), (true, 50_000)] {
        let flags = OpenFlags {
            sync,
            data_sync: !sync,
            ..READ_WRITE
        };
        let handle = fs.vfs.open(ino, flags).unwrap();
        let reserve = Allocate::Reserve { keep_size: false };
        fs.vfs.fallocate(ino, handle, 0, size, reserve).unwrap();
        fs.vfs.release(ino, handle).unwrap();
        let device = Arc::new(fs.device.persisted(1));
        let (volume, _) =
            persimmon_engine::Volume::open(device, persimmon_engine::Options::default()).unwrap();
        assert_eq!(volume.attr(ino).unwrap().unwrap().size, size);
    }
}

/// fsync of a new file makes its name durable, and the names above it.
#[test]
fn a_synced_file_is_there_with_its_name() {
    at_every_cut(
        |_| {},
        |fs, synced: &mut Vec<u8>| {
            for i in 0..6u8 {
                let dir = fs
                    .vfs
                    .mkdir(&fs.root, ROOT, format!("d{i}").as_bytes(), 0o755)?;
                let (file, handle) = fs.vfs.create(&fs.root, dir.ino, b"f", 0o644, READ_WRITE)?;
                let data = vec![i; 3000 * usize::from(i)];
                fs.vfs
                    .write(file.ino, handle, 0, &data, WriteFlags::default())?;
                fs.vfs.fsync(file.ino, handle)?;
                synced.push(i);
            }
            Ok(())
        },
        |fs, synced| {
            for i in synced {
                let content = fs.content(fs.ino(&format!("d{i}/f")));
                assert_eq!(content, vec![*i; 3000 * usize::from(*i)]);
            }
        },
    );
}

/// Names are made and removed in an order; afterwards a prefix of it is there.
#[test]
fn operations_on_names_survive_as_a_prefix() {
    at_every_cut(
        |_| {},
        |fs, durable: &mut usize| {
            for i in 0..40 {
                let name = format!("n{i}");
                fs.vfs.mknod(&fs.root, ROOT, name.as_bytes(), 0o644, 0)?;
                if i % 10 == 9 {
                    fs.vfs.fsyncdir(ROOT, Handle::NONE)?;
                    *durable = i + 1;
                }
            }
            Ok(())
        },
        |fs, durable| {
            let there = fs.names("").len();
            assert!(there >= *durable, "{there} of {durable}");
            for i in 0..there {
                assert!(fs.exists(&format!("n{i}")), "n{i} of {there}");
            }
        },
    );
}

/// A file without a name that was open at the cut is gone, and so is its space.
#[test]
fn open_files_without_a_name_are_freed_at_the_next_mount() {
    at_every_cut(
        |fs| {
            fs.file("f", &[3; 200_000]);
        },
        |fs, _: &mut ()| {
            fs.open(fs.ino("f"));
            fs.vfs.unlink(ROOT, b"f")?;
            fs.vfs.fsyncdir(ROOT, Handle::NONE)?;
            let tmp = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, READ_WRITE)?;
            let data = [4; 100_000];
            fs.vfs
                .write(tmp.0.ino, tmp.1, 0, &data, WriteFlags::default())?;
            fs.vfs.fsync(tmp.0.ino, tmp.1)
        },
        |fs, ()| {
            assert_eq!(fs.vfs.volume().orphans().unwrap(), []);
            let stat = fs.vfs.statfs().unwrap();
            let inodes = stat.files - stat.files_free;
            assert_eq!(inodes, 1 + u64::from(fs.exists("f")));
        },
    );
}
