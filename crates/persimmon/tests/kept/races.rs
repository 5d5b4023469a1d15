//! Handles that have what is flushed kept come and go while others change the file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

/// How long each looks for a moment that goes wrong.
const LONG: Duration = Duration::from_secs(3);
const PIECE: usize = 10;

/// A change that had found no tail was made beside one that began meanwhile, and what was pending there was written over it.
#[test]
fn what_others_append_is_not_written_over_when_a_tail_begins() {
    let image = Image::sized(256 << 20);
    let fs = image.open();
    let options = OpenOptions::new().append(true).create(true);
    let other = fs.open_file("/log", &options).unwrap();
    let begun = Instant::now();
    let (mut kept, ended) = (0, AtomicBool::new(false));
    let others = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut others = 0;
            while !ended.load(Ordering::Relaxed) {
                other.append(&[1; PIECE]).unwrap();
                others += 1;
            }
            others
        });
        while begun.elapsed() < LONG {
            let log = fs.open_file("/log", &keeping()).unwrap();
            log.flush_through().unwrap();
            for _ in 0..5 {
                log.append(&[2; PIECE]).unwrap();
                kept += 1;
            }
        }
        ended.store(true, Ordering::Relaxed);
        others.join().unwrap()
    });
    let content = fs.read("/log").unwrap();
    let count = |piece: u8| {
        let pieces = content.chunks(PIECE);
        pieces.filter(|found| found == &[piece; PIECE]).count()
    };
    println!("{others} beside {kept}");
    assert_eq!((count(1), count(2)), (others, kept));
    assert_eq!(content.len(), (others + kept) * PIECE);
}
