//! An opening for reading left out what was flushed before a process died, and said nothing of it.

use super::*;

fn for_reading(image: &Image) -> Filesystem {
    Filesystem::open(&image.path, &Options::read_only()).unwrap()
}

#[test]
fn an_opening_for_reading_says_what_it_does_not_see() {
    let image = Image::sized(64 << 20);
    let fs = image.open();
    assert_eq!(fs.files_unseen(), 0);
    let (log, other) = (
        fs.open_file("/log", &keeping()).unwrap(),
        fs.open_file("/other", &keeping()).unwrap(),
    );
    let gone = fs.open_file("/gone", &keeping()).unwrap();
    for file in [&log, &other, &gone] {
        // The first one goes to the device.
        add(file, b"first");
    }
    for file in [&log, &gone] {
        add(file, b"second");
    }
    fs.remove_file("/gone").unwrap();
    fs.sync().unwrap();
    add(&log, b"third");
    fs.abandon();
    drop((log, other, gone));

    for _ in 0..2 {
        let fs = for_reading(&image);
        assert_eq!(fs.files_unseen(), 1);
        assert_eq!(fs.read("/log").unwrap(), b"firstsecond");
        fs.close().unwrap();
    }
    let fs = image.open();
    assert_eq!(fs.files_unseen(), 0);
    assert_eq!(fs.read("/log").unwrap(), b"firstsecondthird");
    fs.close().unwrap();
    let fs = for_reading(&image);
    assert_eq!(fs.files_unseen(), 0);
    assert_eq!(fs.read("/log").unwrap(), b"firstsecondthird");
}
