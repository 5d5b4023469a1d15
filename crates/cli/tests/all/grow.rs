//! Volumes that get more zones and other names. No mount is needed for any of this.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};

use serde_json::Value;

use crate::common::{Place, zone_headers};

const MIB: u64 = 1 << 20;

impl Place {
    /// A volume of 29 zones with a file.
    fn with_file(&self, image: &str) {
        self.does(&["mkfs", image, "--size", "32M", "--label", "old"]);
        fs::write(self.dir().join("file"), vec![7; 3 << 20]).unwrap();
        self.does(&["fs", "cp", image, "file", ":/file"]);
    }

    /// A volume on two devices, `m.img` that for metadata and `d.img` that for data.
    fn two_devices(&self) {
        let metadata = ["mkfs", "--meta", "m.img", "--meta-size", "32M"];
        self.does(&[&metadata[..], &["d.img", "--size", "64M"]].concat());
    }

    fn is_sound(&self, image: &str) {
        self.does(&["fsck", "--data", image]);
        assert_eq!(self.does(&["fs", "cat", image, "/file"]).len(), 3 << 20);
    }
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn an_image_grows_and_takes_what_did_not_fit() {
    let place = Place::in_memory();
    place.with_file("a.img");
    let large = place.dir().join("large");
    fs::write(&large, noise(40 << 20)).unwrap();
    place.refused(&["fs", "cp", "a.img", "large", ":/large"], 1, &["no space"]);
    place.does(&["fs", "rm", "-f", "a.img", "/large"]);
    // The device did not grow.
    let image = place.dir().join("a.img");
    let before = fs::read(&image).unwrap();
    let said = place.does(&["grow", "a.img"]);
    assert!(
        said.contains("has all 29 zones of it already; nothing was changed"),
        "{said}"
    );
    let told = place.json(&["grow", "a.img", "--size", "32M"]);
    assert_eq!(
        (&told["grown"], &told["zone_count"]),
        (&false.into(), &29.into())
    );
    assert!(fs::read(&image).unwrap() == before);
    let told = place.json(&["grow", "a.img", "--size", "80M"]);
    assert_eq!(told["zones_before"], 29);
    assert_eq!(
        (&told["grown"], &told["zone_count"]),
        (&true.into(), &77.into())
    );
    assert!(
        told["user_bytes"].as_u64() > Some(told["user_bytes_before"].as_u64().unwrap() + 40 * MIB)
    );
    place.is_sound("a.img");
    let info = place.json(&["info", "a.img"]);
    assert_eq!(
        (&info["zone_count"], &info["label"]),
        (&77.into(), &"old".into())
    );
    place.does(&["fs", "cp", "a.img", "large", ":/large"]);
    place.is_sound("a.img");
    let footer = place.json(&["dump", "a.img", "footer"]);
    assert_eq!(footer["properties"]["zone_count"], 77);
    // What is left of it is found by its zones alone.
    let mut bytes = fs::read(&image).unwrap();
    let headers = zone_headers(&bytes);
    assert!(headers.iter().any(|(_, header)| header.zone.0 >= 29));
    let data = headers.first().unwrap();
    let data = data.0 - ((data.1.zone.0 as usize) << 20);
    bytes[..data].fill(0);
    let end = data + (77 << 20);
    bytes[end..].fill(0);
    fs::write(&image, &bytes).unwrap();
    place.does(&["recover", "--scan", "a.img", "saved.img", "--size", "96M"]);
    let saved = place.run(&["fs", "cat", "saved.img", "/large"]);
    assert!(saved.stdout == fs::read(&large).unwrap());
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changed() {
    let place = Place::in_memory();
    place.with_file("a.img");
    let image = place.dir().join("a.img");
    let before = fs::read(&image).unwrap();
    place.refused(
        &["grow", "a.img", "--size", "16M"],
        1,
        &["cannot be made smaller"],
    );
    place.refused(&["grow", "a.img", "--size", "4294967296T"], 2, &["size"]);
    place.refused(
        &["grow", "a.img", "--size", "1000T"],
        1,
        &["an image can have"],
    );
    place.refused(&["grow", "a.img", "--size", "-1"], 2, &["size"]);
    place.refused(&["grow", "nothing.img"], 1, &["nothing.img"]);
    place.refused(&["grow", "file"], 1, &["not a Persimmon image"]);
    place.refused(
        &["label", "a.img", &"x".repeat(65)],
        2,
        &["65 bytes long; 64 fit"],
    );
    place.refused(&["uuid", "a.img", "1234"], 2, &["UUID"]);
    assert!(fs::read(&image).unwrap() == before);
    place.two_devices();
    let pair = "pair:m.img+d.img";
    let parts = ["m.img", "d.img"].map(|name| place.dir().join(name));
    let before = parts.clone().map(|part| fs::read(part).unwrap());
    let smaller = "cannot be made smaller";
    place.refused(&["grow", pair, "--size", "32M"], 1, &["d.img", smaller]);
    place.refused(
        &["grow", pair, "--meta-size", "16M"],
        1,
        &["m.img", smaller],
    );
    place.refused(
        &["grow", "a.img", "--meta-size", "64M"],
        1,
        &["no device for metadata"],
    );
    place.refused(&["grow", "m.img"], 1, &["name both"]);
    place.refused(&["grow", "d.img", "--size", "128M"], 1, &["name both"]);
    place.refused(&["grow", "pair:d.img+m.img"], 1, &["in that order"]);
    place.refused(
        &["grow", "pair:a.img+d.img"],
        1,
        &["not the device for metadata"],
    );
    let said = place.does(&["grow", pair]);
    assert!(said.contains("nothing was changed"), "{said}");
    assert!(parts.map(|part| fs::read(part).unwrap()) == before);
    place.does(&["label", pair, "both"]);
    assert_eq!(place.json(&["info", "LABEL=both"])["label"], "both");
}

/// The number of zones that a volume has, and of those for metadata.
fn zones(place: &Place, spec: &str) -> (u64, u64) {
    let info = place.json(&["info", spec]);
    let number = |name: &str| info[name].as_u64().unwrap();
    (number("zone_count"), number("metadata_zones"))
}

#[test]
fn either_of_two_devices_grows_and_both() {
    let place = Place::in_memory();
    place.two_devices();
    let pair = "pair:m.img+d.img";
    let file = place.dir().join("file");
    fs::write(&file, noise(3 << 20)).unwrap();
    place.does(&["fs", "cp", pair, "file", ":/file"]);
    let is_sound = || {
        place.does(&["fsck", "--data", pair]);
        let read = place.run(&["fs", "cat", pair, "/file"]);
        assert!(read.stdout == fs::read(&file).unwrap());
    };
    let made = zones(&place, pair);
    // A zone more of one of them is enough.
    let told = place.json(&["grow", pair, "--size", "65M"]);
    assert_eq!(told["zone_count"], made.0 + 1);
    is_sound();
    let told = place.json(&["grow", pair, "--size", "128M"]);
    let data = zones(&place, pair);
    assert_eq!(told["zone_count"], data.0);
    assert_eq!(data, (made.0 + 64, made.1));
    is_sound();
    let large = place.dir().join("large");
    fs::write(&large, noise(80 << 20)).unwrap();
    place.does(&["fs", "cp", pair, "large", ":/large"]);
    is_sound();
    // Metadata zones come behind those for data from now on.
    place.json(&["grow", pair, "--meta-size", "48M"]);
    let metadata = zones(&place, pair);
    assert_eq!(metadata, (data.0 + 16, data.1 + 16));
    is_sound();
    for number in 0..40 {
        place.does(&["fs", "mkdir", pair, &format!("/{number}")]);
    }
    is_sound();
    place.json(&["grow", pair, "--meta-size", "80M", "--size", "160M"]);
    assert_eq!(zones(&place, pair), (metadata.0 + 64, metadata.1 + 32));
    is_sound();
    place.does(&["fs", "rm", pair, "/large"]);
    place.does(&["fs", "cp", pair, "large", ":/again"]);
    is_sound();
    let saved = ["recover", pair, "saved.img", "--size", "256M"];
    place.does(&saved);
    let read = place.run(&["fs", "cat", "saved.img", "/again"]);
    assert!(read.stdout == fs::read(&large).unwrap());
    place.does(&["label", pair, "both"]);
    assert_eq!(place.json(&["info", "LABEL=both"])["label"], "both");
    place.refused(&["info", "d.img"], 1, &["name both"]);
    place.does(&["zones", pair]);
    place.does(&["dump", pair, "footer"]);
}

/// Roles of the zones that are in use.
fn roles(place: &Place, spec: &str) -> Vec<(u64, String)> {
    let zones = place.json(&["zones", spec]);
    let of_zone = |zone: &Value| {
        let role = zone["role"].as_str().unwrap().to_owned();
        (zone["zone"].as_u64().unwrap(), role)
    };
    zones.as_array().unwrap().iter().map(of_zone).collect()
}

#[test]
fn a_volume_gets_a_device_for_metadata() {
    let place = Place::in_memory();
    place.does(&["mkfs", "a.img", "--size", "64M", "--label", "one"]);
    let large = place.dir().join("large");
    // The last zones are in use.
    fs::write(&large, noise(40 << 20)).unwrap();
    place.does(&["fs", "cp", "a.img", "large", ":/large"]);
    fs::write(place.dir().join("file"), vec![7; 3 << 20]).unwrap();
    place.does(&["fs", "cp", "a.img", "file", ":/file"]);
    let made = zones(&place, "a.img").0;
    let add = ["grow", "a.img", "--add-meta", "m.img", "--meta-size", "32M"];
    let said = place.json(&add);
    let pair = "pair:m.img+a.img";
    assert!(said["device"].as_str().unwrap().starts_with("pair:"));
    assert_eq!(said["zones_before"], made);
    let both = zones(&place, pair);
    assert_eq!(
        (both.0, &said["zone_count"]),
        (made + both.1, &both.0.into())
    );
    assert!(both.1 > 20, "{both:?}");
    place.refused(&["info", "a.img"], 1, &["name both"]);
    place.refused(&["info", "m.img"], 1, &["name both"]);
    assert_eq!(place.json(&["info", "LABEL=one"])["zone_count"], both.0);
    for (zone, role) in roles(&place, pair) {
        let is_metadata = ["log", "metadata"].contains(&role.as_str());
        assert!(
            is_metadata == (zone >= made) || role == "free" || role == "retired",
            "{zone} {role}"
        );
    }
    let is_sound = |spec: &str| {
        place.does(&["fsck", "--data", spec]);
        let read = place.run(&["fs", "cat", spec, "/large"]);
        assert!(read.stdout == fs::read(&large).unwrap());
    };
    is_sound(pair);
    // The zones that say whose the device is have no header, and need none.
    let checked = place.json(&["fsck", pair]);
    let numbers = checked["report"]["numbers"].as_array().unwrap();
    assert!(!numbers.contains(&105.into()), "{checked}");
    // There is nothing left to be done.
    assert_eq!(place.json(&["grow", pair])["grown"], false);
    assert_eq!(place.json(&add)["grown"], false);
    place.refused(
        &["grow", pair, "--add-meta", "n.img"],
        1,
        &["has a device for metadata already"],
    );
    place.does(&["fs", "rm", pair, "/file"]);
    place.does(&["fs", "cp", pair, "file", ":/again"]);
    is_sound(pair);
    // Both can grow, and more than once.
    place.json(&["grow", pair, "--size", "96M", "--meta-size", "48M"]);
    is_sound(pair);
    place.json(&["grow", pair, "--size", "128M", "--meta-size", "64M"]);
    let grown = zones(&place, pair);
    assert_eq!(grown, (both.0 + 64 + 32, both.1 + 32));
    place.does(&["fs", "cp", pair, "large", ":/more"]);
    is_sound(pair);
    place.does(&["recover", pair, "saved.img", "--size", "192M"]);
    is_sound("saved.img");
}

#[test]
fn what_can_be_no_device_for_metadata_is_refused() {
    let place = Place::in_memory();
    place.with_file("a.img");
    let image = place.dir().join("a.img");
    let before = fs::read(&image).unwrap();
    let add = |meta: &str, why: &[&str]| {
        place.refused(&["grow", "a.img", "--add-meta", meta], 1, why);
        assert!(fs::read(&image).unwrap() == before);
    };
    add("a.img", &["both devices"]);
    place.with_file("other.img");
    add("other.img", &["--force"]);
    fs::write(place.dir().join("notes"), vec![7; 32 << 20]).unwrap();
    add("notes", &["--force"]);
    place.two_devices();
    add("m.img", &["--force"]);
    // Too small, and nothing is made.
    place.refused(
        &["grow", "a.img", "--add-meta", "n.img", "--meta-size", "4M"],
        1,
        &["zones"],
    );
    place.refused(
        &["grow", "a.img", "--add-meta", "n.img", "--meta-size", "8M"],
        1,
        &["this device of a volume on two"],
    );
    assert!(!place.dir().join("n.img").exists());
    place.does(&["mkfs", "s.img", "--size", "200M", "--data-copies", "2"]);
    place.refused(
        &["grow", "s.img", "--add-meta", "n.img"],
        1,
        &["can have no device for metadata"],
    );
    place.refused(
        &["grow", "d.img", "--add-meta", "other.img"],
        1,
        &["not the device for metadata"],
    );
    place.is_sound("a.img");
    place.does(&["grow", "a.img", "--add-meta", "other.img", "--force"]);
    place.does(&["fsck", "--data", "pair:other.img+a.img"]);
}

/// Copies of the devices that were made before one of them grew do not go together with the others.
#[test]
fn a_copy_of_a_device_before_it_grew_is_refused() {
    let place = Place::in_memory();
    place.two_devices();
    for name in ["m", "d"] {
        let path = |ending| place.dir().join(format!("{name}{ending}"));
        fs::copy(path(".img"), path(".old")).unwrap();
    }
    let pair = "pair:m.img+d.img";
    place.does(&["grow", pair, "--size", "96M"]);
    place.refused(&["info", "pair:m.img+d.old"], 1, &["truncated or resized"]);
    place.does(&["grow", pair, "--meta-size", "48M"]);
    place.does(&["grow", pair, "--size", "128M"]);
    place.refused(
        &["info", "pair:m.old+d.img"],
        1,
        &["restore the whole device"],
    );
    place.does(&["fsck", pair]);
}

#[test]
fn stripe_sets_grow() {
    for (option, number) in [("--data-copies", "2"), ("--data-parity", "3")] {
        let place = Place::in_memory();
        place.does(&["mkfs", "a.img", "--size", "200M", option, number]);
        // It was one, and in the next line two.
        let told = place.does(&["info", "a.img"]);
        assert!(
            told.contains("2 of metadata, checkpoints and log"),
            "{told}"
        );
        let file = place.dir().join("file");
        fs::write(&file, noise(30 << 20)).unwrap();
        place.does(&["fs", "cp", "a.img", "file", ":/file"]);
        let is_sound = |image: &str, name: &str| {
            place.does(&["fsck", "--data", image]);
            let read = place.run(&["fs", "cat", image, name]);
            assert!(read.stdout == fs::read(&file).unwrap());
        };
        let before = zones(&place, "a.img");
        // One zone more makes no set.
        let image = place.dir().join("a.img");
        let said = place.json(&["grow", "a.img"]);
        assert_eq!(said["grown"], false);
        let length = fs::metadata(&image).unwrap().len();
        let told = place.json(&["grow", "a.img", "--size", &format!("{}", length + MIB)]);
        let with_one = zones(&place, "a.img");
        assert!(with_one.0 <= before.0 + 1);
        assert_eq!(told["grown"], with_one.0 > before.0);
        let told = place.json(&["grow", "a.img", "--size", "400M"]);
        assert_eq!(told["grown"], true);
        let grown = zones(&place, "a.img");
        assert_eq!(told["zone_count"], grown.0);
        assert!(grown.0 > before.0 + 40 && grown.1 == before.1, "{grown:?}");
        is_sound("a.img", "/file");
        for name in 0..4 {
            place.does(&["fs", "cp", "a.img", "file", &format!(":/{name}")]);
        }
        is_sound("a.img", "/3");
        place.does(&["recover", "a.img", "saved.img", "--size", "400M"]);
        is_sound("saved.img", "/2");
        // Made longer by other means, it goes on as before.
        fs::File::options()
            .write(true)
            .open(&image)
            .unwrap()
            .set_len(600 * MIB)
            .unwrap();
        is_sound("a.img", "/3");
        place.json(&["grow", "a.img"]);
        assert!(zones(&place, "a.img").0 > grown.0);
        is_sound("a.img", "/3");
    }
}

/// The image is enlarged first. What a crash leaves before the volume is told mounts as before, and can grow still.
#[test]
fn an_image_that_is_larger_than_its_volume_is_used_as_before() {
    let place = Place::in_memory();
    place.with_file("a.img");
    let path = place.dir().join("a.img");
    let options = persimmon::device::OpenOptions::default();
    let growth = persimmon::device::ImageDevice::grow(&path, Some(64 * MIB), &options).unwrap();
    assert_eq!((growth.zones_before, growth.zones), (29, 61));
    assert_eq!(place.json(&["info", "a.img"])["zone_count"], 29);
    assert_eq!(
        place.json(&["zones", "a.img"]).as_array().unwrap().len(),
        29
    );
    place.is_sound("a.img");
    place.does(&["fs", "mkdir", "a.img", "/more"]);
    place.does(&["recover", "a.img", "saved.img", "--size", "32M"]);
    place.is_sound("saved.img");
    let told = place.json(&["grow", "a.img"]);
    assert_eq!(
        (&told["zones_before"], &told["zone_count"]),
        (&29.into(), &61.into())
    );
    place.is_sound("a.img");
    // A file that was made longer by other means.
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100 * MIB)
        .unwrap();
    place.is_sound("a.img");
    assert_eq!(place.json(&["grow", "a.img"])["zone_count"], 97);
    place.is_sound("a.img");
}

#[test]
fn a_volume_is_found_by_its_new_names() {
    let place = Place::in_memory();
    place.with_file("a.img");
    let made = place.json(&["info", "a.img"]);
    fs::copy(place.dir().join("a.img"), place.dir().join("copy.img")).unwrap();
    place.refused(&["info", "LABEL=old"], 1, &["means both"]);
    assert_eq!(place.does(&["label", "a.img"]), "old\n");
    assert_eq!(place.does(&["label", "a.img", "new"]), "new\n");
    let uuid = place.does(&["uuid", "a.img", "new"]);
    let uuid = uuid.trim_end();
    assert_ne!(made["uuid"], uuid);
    for spec in ["LABEL=new", &format!("UUID={uuid}"), "a.img"] {
        let info = place.json(&["info", spec]);
        assert_eq!(
            (&info["uuid"], &info["label"]),
            (&uuid.into(), &"new".into()),
            "{spec}"
        );
        assert!(info["device"].as_str().unwrap().ends_with("/a.img"));
    }
    assert_eq!(place.json(&["info", "LABEL=old"])["uuid"], made["uuid"]);
    let probed = place.json(&["probe", "a.img"]);
    assert_eq!(
        (&probed["uuid"], &probed["label"]),
        (&uuid.into(), &"new".into())
    );
    let report = place.json(&["fsck", "a.img"]);
    assert_eq!(report["report"]["volume"]["uuid"], uuid);
    place.is_sound("a.img");
    // The same again, and none at all.
    assert_eq!(place.does(&["uuid", "a.img", uuid]), format!("{uuid}\n"));
    assert_eq!(place.does(&["label", "a.img", ""]), "\n");
    assert_eq!(place.json(&["label", "a.img"])["label"], "");
    place.does(&["recover", "a.img", "saved.img", "--size", "32M"]);
    place.is_sound("saved.img");
    place.does(&["fs", "rm", "a.img", "/file"]);
    place.does(&["fsck", "a.img"]);
}
