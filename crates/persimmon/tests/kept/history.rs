//! A tail belongs to one point in the history of a volume. It once said of which file it is and where it begins there, and was brought in
//! wherever that fitted: into an older copy of the image, and after the file had gone on in an opening that did not see it.

use super::*;

/// Puts one image in the place of another: the same file of the host.
fn put_in_place(image: &Image, from: &Path) {
    fs::copy(from, &image.path).unwrap();
}

/// Writes `other` to the log, and `tail` so that it is in a tail alone. Answers that.
fn go_on(fs: &Filesystem) -> (File, PathBuf) {
    let log = fs.open_file("/log", &keeping()).unwrap();
    log.set_len(0).unwrap();
    add(&log, b"other");
    add(&log, b"tail");
    (log, tails(fs).remove(0))
}

fn content(image: &Image) -> Vec<u8> {
    let fs = image.open();
    let content = fs.read("/log").unwrap();
    fs.close().unwrap();
    content
}

/// Its log ends where the tail of the younger one begins.
#[test]
fn an_older_copy_in_its_place_is_not_extended() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    add(&fs.open_file("/log", &keeping()).unwrap(), b"first");
    fs.close().unwrap();
    let (older, younger) = (
        image.dir.path().join("older"),
        image.dir.path().join("younger"),
    );
    fs::copy(&image.path, &older).unwrap();
    let fs = image.open();
    let (log, tail) = go_on(&fs);
    fs.abandon();
    drop(log);
    fs::copy(&image.path, &younger).unwrap();
    put_in_place(&image, &older);
    assert_eq!(content(&image), b"first");
    // Nothing is lost: back in its place, the younger one has the end of its log.
    assert!(tail.exists());
    put_in_place(&image, &younger);
    assert_eq!(content(&image), b"othertail");
    assert!(!tail.exists());
}

/// The same of a copy that has gone on by itself, and has more records than the younger one.
#[test]
fn a_copy_that_went_on_in_another_way_is_not_extended() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    add(&fs.open_file("/log", &keeping()).unwrap(), b"first");
    fs.close().unwrap();
    let other = image.dir.path().join("other");
    fs::copy(&image.path, &other).unwrap();
    let fs = image.open();
    let (log, tail) = go_on(&fs);
    fs.abandon();
    drop(log);
    let fs = open(&other);
    for number in 0..20 {
        fs.create_dir(format!("/{number}")).unwrap();
    }
    fs.close().unwrap();
    put_in_place(&image, &other);
    assert_eq!(content(&image), b"first");
    fs::remove_file(&tail).unwrap();
}

/// The copy was made while the volume was open, by the opening that made the tail later.
#[test]
fn an_older_copy_of_the_same_opening_is_not_extended() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"first");
    assert_eq!(tails(&fs).len(), 1);
    let older = image.dir.path().join("older");
    fs::copy(&image.path, &older).unwrap();
    drop(log);
    let (log, tail) = go_on(&fs);
    fs.abandon();
    drop(log);
    put_in_place(&image, &older);
    assert_eq!(content(&image), b"first");
    fs::remove_file(&tail).unwrap();
}

/// The tail is of a user whose files that opening may not see.
#[test]
fn what_an_opening_did_not_see_is_not_brought_in_later() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    let (log, tail) = go_on(&fs);
    fs.abandon();
    drop(log);
    let hidden = image.dir.path().join("hidden");
    fs::copy(&tail, &hidden).unwrap();
    fs::remove_file(&tail).unwrap();
    let fs = image.open();
    fs.write("/log", b"later").unwrap();
    fs.close().unwrap();
    fs::create_dir_all(tail.parent().unwrap()).unwrap();
    fs::copy(&hidden, &tail).unwrap();
    assert_eq!(content(&image), b"later");
    // It is left for a person to look at, and is in nobody's way.
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b" and");
    add(&log, b" on");
    assert_eq!(tails(&fs).len(), 2);
    fs.abandon();
    drop(log);
    assert_eq!(content(&image), b"later and on");
    assert!(tail.exists());
    fs::remove_file(&tail).unwrap();
}

/// Nothing but the tail says that there was such an opening, if its number is not made known.
#[test]
fn an_opening_that_writes_nothing_else_is_known_by_its_number() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    fs.write("/log", b"there ").unwrap();
    fs.close().unwrap();
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    log.flush_through().unwrap();
    add(&log, b"before");
    add(&log, b" and after");
    assert_eq!(tails(&fs).len(), 1);
    assert_eq!(
        image.after(fs, vec![log], "/log"),
        b"there before and after"
    );
}
