//! What is appended to a file with a tail goes to the tail alone at first, and to the volume later. Nobody may notice.

use std::sync::atomic::{AtomicBool, Ordering};

use persimmon::{Allocate, SeekTo};

use super::*;

/// A file with a tail, and what only the tail has.
fn pending(fs: &Filesystem) -> File {
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"flushed ");
    add(&log, b"kept ");
    log.append(b"pending").unwrap();
    log
}

const ALL: &[u8] = b"flushed kept pending";
const SIZE: u64 = ALL.len() as u64;

#[test]
fn everybody_who_looks_at_a_file_sees_all_of_it() {
    type Look = fn(&Filesystem, &File) -> Vec<u8>;
    let looks: &[(&str, Look)] = &[
        ("read", |fs, _| fs.read("/log").unwrap()),
        ("read_at", |_, log| {
            let mut buf = [0; 100];
            let len = log.read_at(&mut buf, 0).unwrap();
            buf[..len].to_vec()
        }),
        ("read_up_to", |_, log| log.read_up_to(100, 0).unwrap()),
        ("read_batch", |_, log| {
            let mut buf = [0; SIZE as usize];
            log.read_batch(&mut [(0, &mut buf)])
                .unwrap()
                .remove(0)
                .unwrap();
            buf.to_vec()
        }),
        ("submit_read", |_, log| {
            log.submit_read(100, 0).unwrap().wait().unwrap()
        }),
        ("another handle", |fs, _| {
            let options = OpenOptions::new().read(true);
            let other = fs.open_file("/log", &options).unwrap();
            other.read_up_to(100, 0).unwrap()
        }),
        ("another name", |fs, _| {
            fs.hard_link("/log", "/link").unwrap();
            fs.read("/link").unwrap()
        }),
        ("renamed", |fs, _| {
            fs.rename("/log", "/renamed").unwrap();
            let read = fs.read("/renamed").unwrap();
            // Later flushes take no change of names along.
            fs.rename("/renamed", "/log").unwrap();
            read
        }),
        ("copy", |fs, _| {
            fs.copy("/log", "/copy").unwrap();
            fs.read("/copy").unwrap()
        }),
        ("copy_to", |fs, log| {
            let copy = fs.open_file("/copy", &keeping().append(false)).unwrap();
            log.copy_to(0, &copy, 0, SIZE).unwrap();
            fs.read("/copy").unwrap()
        }),
        ("metadata", |_, log| sized(log.metadata().unwrap().size)),
        ("metadata by path", |fs, _| {
            sized(fs.metadata("/log").unwrap().size)
        }),
        ("symlink_metadata", |fs, _| {
            sized(fs.symlink_metadata("/log").unwrap().size)
        }),
        ("by number", |fs, log| {
            sized(fs.vfs().getattr(log.ino()).unwrap().size)
        }),
        ("directory", |fs, _| {
            let entry = fs.read_dir("/").unwrap().next().unwrap().unwrap();
            sized(entry.metadata().unwrap().size)
        }),
        ("walk", |fs, _| {
            let mut entries = fs.walk("/").unwrap().map(Result::unwrap);
            let entry = entries.find(|entry| entry.path().ends_with("log"));
            sized(entry.unwrap().metadata().unwrap().size)
        }),
        ("seek", |_, log| {
            sized(log.seek_to(0, SeekTo::Hole).unwrap().unwrap())
        }),
        ("position", |_, log| sized(log.append(b"").unwrap())),
        ("allocated", |fs, log| {
            log.allocate(0, 2, Allocate::Reserve { keep_size: true })
                .unwrap();
            fs.read("/log").unwrap()
        }),
    ];
    for (name, look) in looks {
        let image = Image::new();
        let fs = image.open();
        let log = pending(&fs);
        assert_eq!(look(&fs, &log), ALL, "{name}");
        // And what goes on through the tail after it.
        log.append(b" more").unwrap();
        log.flush_through().unwrap();
        let found = image.after(fs, vec![log], "/log");
        assert_eq!(found, [ALL, b" more"].concat(), "{name}, after a crash");
    }
}

fn sized(size: u64) -> Vec<u8> {
    ALL[..usize::try_from(size).unwrap()].to_vec()
}

/// Syncs, commits and closes bring all of it to the device.
#[test]
fn what_makes_durable_or_closes_leaves_nothing_out() {
    type End = fn(Filesystem, File) -> Option<Filesystem>;
    let ends: &[(&str, End)] = &[
        ("sync_all", |fs, log| {
            log.sync_all().unwrap();
            Some(fs)
        }),
        ("sync_data", |fs, log| {
            log.sync_data().unwrap();
            Some(fs)
        }),
        ("sync", |fs, _log| {
            fs.sync().unwrap();
            Some(fs)
        }),
        ("checkpoint", |fs, _log| {
            fs.checkpoint().unwrap();
            Some(fs)
        }),
        ("closed with the file open", |fs, log| {
            fs.close().unwrap();
            assert!(log.append(b"late").is_err());
            None
        }),
        ("closed after the file", |fs, log| {
            drop(log);
            fs.close().unwrap();
            None
        }),
        ("dropped", |fs, log| {
            drop(fs);
            drop(log);
            None
        }),
    ];
    for (name, end) in ends {
        let image = Image::new();
        let fs = image.open();
        let log = pending(&fs);
        let kept = log.metadata().map(|_| tails(&fs));
        log.append(b"").unwrap();
        let left = end(fs, log);
        if let Some(fs) = left {
            fs.abandon();
        }
        // As after the power was lost: no tail helps.
        for tail in kept.unwrap() {
            let _ = fs::remove_file(tail);
        }
        let fs = image.open();
        assert_eq!(fs.read("/log").unwrap(), ALL, "{name}");
    }
}

/// What was answered has its space, whatever else takes all there is.
#[test]
fn what_was_answered_finds_room() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"");
    let piece = [5; 1000];
    for _ in 0..60 {
        log.append(&piece).unwrap();
    }
    let options = OpenOptions::new().append(true).create(true);
    let big = fs.open_file("/big", &options).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while big.append(&vec![3; size]).is_ok() {}
    }
    let mut answered = 60;
    while log.append(&piece).is_ok() {
        answered += 1;
    }
    assert_eq!(log.metadata().unwrap().size, answered * 1000);
    log.sync_all().unwrap();
    let found = image.after(fs, vec![log, big], "/log");
    assert!(found == piece.repeat(answered as usize));
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The same while others take every block that there is for a moment. Given back before it was taken again, what was promised went to
/// them, and readers were told that the volume is full.
#[test]
fn what_was_answered_finds_room_beside_other_writers() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"");
    let options = OpenOptions::new().append(true).create(true);
    let big = fs.open_file("/big", &options).unwrap();
    for size in [64 << 10, 4 << 10] {
        while big.append(&vec![3; size]).is_ok() {}
    }
    let piece = [5; 1000];
    let mut answered = 0;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = big.append(&[3; 4096]);
            }
        });
        // Also where one of these fails.
        let _end = End(&done);
        for _ in 0..200 {
            // Some room for both.
            let size = big.metadata().unwrap().size;
            big.set_len(size.saturating_sub(400_000)).unwrap();
            while answered < 40_000 && log.append(&piece).is_ok() {
                answered += 1;
                if answered % 50 == 0 {
                    assert_eq!(log.metadata().unwrap().size, answered * 1000);
                }
            }
            // Of the one that was refused there may have been room for a part.
            let size = log.metadata().unwrap().size;
            assert!((answered * 1000..(answered + 1) * 1000).contains(&size));
            log.set_len(answered * 1000).unwrap();
            add(&log, b"");
        }
    });
    assert!(answered > 200, "{answered}");
    log.sync_all().unwrap();
    let found = image.after(fs, vec![log, big], "/log");
    assert!(found == piece.repeat(answered as usize));
}

/// A volume that takes nothing any more can be read, and what only the tail has waits for the next opening.
#[test]
fn a_volume_that_has_stopped_can_be_read_and_loses_nothing() {
    let image = Image::new();
    let fs = image.open();
    let log = pending(&fs);
    // "flushed" is on the device, the rest in the tail.
    fs.sync().unwrap();
    let vfs = std::sync::Arc::clone(fs.vfs());
    log.append(b" more").unwrap();
    vfs.volume().make_read_only();
    log.append(b" refused").unwrap_err();
    let mut buf = vec![0; ALL.len()];
    assert_eq!(log.read_at(&mut buf, 0).unwrap(), ALL.len());
    assert_eq!(buf, ALL);
    log.read_at(&mut buf, 1).unwrap_err();
    log.try_lock(true).unwrap();
    log.unlock().unwrap();
    drop(log);
    fs.close().unwrap_err();
    drop(vfs);
    let fs = image.open();
    assert_eq!(fs.read("/log").unwrap(), [ALL, b" more"].concat());
}

/// It could not be given to the volume when it was closed, and is still there for the next handle.
#[test]
fn somebody_else_s_bytes_in_a_tail_are_not_taken_for_the_file_s() {
    let image = Image::new();
    let fs = image.open();
    let log = pending(&fs);
    let tail = tails(&fs).remove(0);
    log.append(b" more").unwrap();
    let mut bytes = fs::read(&tail).unwrap();
    let at = bytes.windows(5).position(|window| window == b" more");
    bytes[at.unwrap()] = b'x';
    // In place: the file stays mapped.
    let mut file = fs::OpenOptions::new().write(true).open(&tail).unwrap();
    file.write_all(&bytes).unwrap();
    let refused = fs.read("/log").unwrap_err().to_string();
    assert!(refused.contains("/log"), "{refused}");
    log.sync_all().unwrap_err();
    log.append(b" refused").unwrap_err();
    drop(log);
    // The next handle is told, too.
    let log = fs.open_file("/log", &keeping()).unwrap();
    log.sync_all().unwrap_err();
    fs.rename("/log", "/renamed").unwrap_err();
    // Deleted, it is in nobody's way.
    drop(log);
    fs.remove_file("/log").unwrap();
    fs.close().unwrap();
}

/// The handle that appended last is gone, and others go on.
#[test]
fn handles_may_come_and_go() {
    let image = Image::new();
    let fs = image.open();
    let first = pending(&fs);
    let second = fs.open_file("/log", &keeping()).unwrap();
    second.append(b" second").unwrap();
    drop(second);
    add(&first, b" first");
    let third = fs.open_file("/log", &keeping()).unwrap();
    third.append(b" third").unwrap();
    drop(first);
    third.flush_through().unwrap();
    let found = image.after(fs, vec![third], "/log");
    assert_eq!(found, [ALL, b" second first third"].concat());
}

/// A generator of its own, so that a failure is found again by its seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// What a file was since what is there after a crash was made sure of.
struct Twin {
    path: String,
    file: File,
    states: Vec<Vec<u8>>,
}

impl Twin {
    fn now(&self) -> Vec<u8> {
        self.states.last().unwrap().clone()
    }

    fn changed(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut now = self.now();
        change(&mut now);
        self.states.push(now);
    }

    fn is_sure(&mut self) {
        self.states = vec![self.now()];
    }
}

fn act(fs: &Filesystem, draw: &mut Draw, twins: &mut [Twin]) {
    let which = draw.below(twins.len() as u64) as usize;
    let number = draw.below(256) as u8;
    let twin = &mut twins[which];
    let size = twin.now().len() as u64;
    match draw.below(40) {
        0..18 => {
            let len = if draw.below(50) == 0 {
                70_000
            } else {
                draw.below(300)
            };
            let data = vec![number; len as usize];
            let end = twin.file.append(&data).unwrap();
            assert_eq!(end, size + data.len() as u64);
            twin.changed(|now| now.extend(data));
        }
        18..28 => {
            twin.file.flush_through().unwrap();
            twin.is_sure();
        }
        28 => {
            twin.file.sync_all().unwrap();
            twin.is_sure();
        }
        29 => {
            fs.sync().unwrap();
            for twin in twins {
                twin.is_sure();
            }
        }
        30 => {
            let to = draw.below(size + 1);
            twin.file.set_len(to).unwrap();
            twin.changed(|now| now.truncate(to as usize));
        }
        31 => {
            let options = OpenOptions::new().write(true);
            let other = fs.open_file(&twin.path, &options).unwrap();
            let at = draw.below(size + 1) as usize;
            other.write_at(&[number; 10], at as u64).unwrap();
            twin.changed(|now| {
                now.resize(now.len().max(at + 10), 0);
                now[at..at + 10].fill(number);
            });
        }
        32 => {
            let options = OpenOptions::new().append(true);
            let other = fs.open_file(&twin.path, &options).unwrap();
            other.append(&[number; 10]).unwrap();
            twin.changed(|now| now.extend([number; 10]));
        }
        33 => twin.file = fs.open_file(&twin.path, &keeping()).unwrap(),
        34 => {
            let path = format!("{}-{number}", twin.path);
            fs.rename(&twin.path, &path).unwrap();
            fs.rename(&path, &twin.path).unwrap();
        }
        37 => {
            let len = if draw.below(5) == 0 {
                70_000
            } else {
                draw.below(300)
            };
            let data = vec![number; len as usize];
            twin.file.write_flushed_at(&data, 0).unwrap();
            twin.changed(|now| now.extend(data));
            twin.is_sure();
        }
        38 => {
            // Through a handle that does not append: it may go on at the end, leave a hole or overwrite.
            let options = keeping().append(false).write(true);
            let other = fs.open_file(&twin.path, &options).unwrap();
            let at = [size, size + 7, size / 2][draw.below(3) as usize] as usize;
            other.write_flushed_at(&[number; 10], at as u64).unwrap();
            twin.changed(|now| {
                now.resize(now.len().max(at + 10), 0);
                now[at..at + 10].fill(number);
            });
            twin.is_sure();
        }
        35 => assert!(fs.read(&twin.path).unwrap() == twin.now()),
        36 => {
            let mut buf = vec![0; 500];
            let at = draw.below(size + 1) as usize;
            let len = twin.file.read_at(&mut buf, at as u64).unwrap();
            assert!(twin.now()[at..].starts_with(&buf[..len]));
            assert_eq!(len, buf.len().min(size as usize - at));
        }
        _ => assert_eq!(fs.metadata(&twin.path).unwrap().size, size),
    }
}

#[test]
fn files_are_as_if_nothing_were_pending() {
    for seed in 1..=60 {
        let mut draw = Draw(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let image = Image::sized(256 << 20);
        let mut left = [vec![], vec![], vec![]];
        for _ in 0..4 {
            let fs = image.open();
            let open = |(number, content)| {
                let path = format!("/log-{number}");
                let file = fs.open_file(&path, &keeping()).unwrap();
                let states = vec![content];
                Twin { path, file, states }
            };
            let mut twins: Vec<_> = left.into_iter().enumerate().map(open).collect();
            for _ in 0..draw.below(400) {
                act(&fs, &mut draw, &mut twins);
            }
            fs.abandon();
            let states = twins.into_iter().map(|twin| (twin.path, twin.states));
            let states: Vec<_> = states.collect();
            let fs = image.open();
            left = [const { vec![] }; 3];
            for (left, (path, states)) in left.iter_mut().zip(states) {
                *left = fs.read(&path).unwrap();
                let sizes: Vec<_> = states.iter().map(Vec::len).collect();
                let right = states.contains(left);
                assert!(right, "seed {seed}: {path}: {} of {sizes:?}", left.len());
            }
            fs.close().unwrap();
        }
    }
}
