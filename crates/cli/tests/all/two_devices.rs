//! A volume on two devices: how it is made and named, and what is told where one of them is missing or wrong.
//! No mount is needed for any of this.

#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::Value;

use crate::common::Place;

impl Place {
    /// A volume on `NAME.fast` and `NAME.bulk`.
    fn pair(&self, name: &str) -> Value {
        let [fast, bulk] = ["fast", "bulk"].map(|part| format!("{name}.{part}"));
        self.json(&[
            "mkfs",
            "--meta",
            &fast,
            "--meta-size",
            "32M",
            &bulk,
            "--size",
            "128M",
            "--label",
            name,
        ])
    }
}

#[test]
fn every_command_takes_the_name_of_both() {
    let place = Place::new();
    let made = place.pair("a");
    assert_eq!(made["metadata"]["zone_count"], 27);
    assert_eq!(made["zone_count"], 121);
    let pair = "pair:a.fast+a.bulk";
    let info = place.json(&["info", pair]);
    assert_eq!(info["uuid"], made["uuid"]);
    let ends_in = |field: &str, name: &str| info[field].as_str().unwrap().ends_with(name);
    assert!(ends_in("metadata_device", "/a.fast") && ends_in("data_device", "/a.bulk"));
    assert_eq!(info["metadata_zones"], 27);
    assert!(
        info["features"]["incompatible"]
            .as_array()
            .unwrap()
            .contains(&"split".into())
    );
    assert!(info["metadata_available_bytes"].as_u64().unwrap() > 8 << 20);
    assert_eq!(place.json(&["zones", pair]).as_array().unwrap().len(), 148);
    assert_eq!(place.json(&["fsck", "--data", pair])["clean"], true);
    assert_eq!(place.json(&["dump", pair])["zone_count"], 148);
    assert_eq!(place.json(&["dump", pair, "header", "0"])["zone"], 0);
    assert_eq!(place.json(&["probe", pair])["uuid"], made["uuid"]);
    assert_eq!(place.json(&["stats", pair])["user_bytes"], 0);
    // By its label, and by its UUID, both are found.
    let uuid = format!("UUID={}", made["uuid"].as_str().unwrap());
    for tag in ["LABEL=a", &uuid] {
        assert_eq!(place.json(&["info", tag])["device"], info["device"]);
    }
    place.run(&["recover", pair, "new"]);
    assert_eq!(place.json(&["fsck", "new"])["clean"], true);
    place.json(&["recover", "new", "pair:b.fast+b.bulk", "--meta-size", "32M"]);
    assert_eq!(place.json(&["fsck", "pair:b.fast+b.bulk"])["clean"], true);
}

/// The copy had the zones of both devices, each as large as the smallest of them, which are those for metadata: here
/// 91 MiB for 512.
#[test]
fn a_copy_on_one_device_has_the_room_of_both() {
    let place = Place::new();
    let sizes = ["--size", "512M", "--zone-size", "8M", "--meta-size", "32M"];
    let mkfs = [&["mkfs", "--meta", "fast", "bulk"][..], &sizes].concat();
    let made = place.json(&mkfs);
    assert_eq!(made["metadata"]["zone_capacity_bytes"], 1 << 20);
    let bytes = |info: &Value, field: &str| info[field].as_u64().unwrap();
    let all = bytes(&made, "size_bytes") + bytes(&made["metadata"], "size_bytes");
    assert!(
        place
            .run(&["recover", "pair:fast+bulk", "new"])
            .status
            .success()
    );
    let copy = place.json(&["info", "new"]);
    assert_eq!(bytes(&copy, "zone_capacity_bytes"), 8 << 20);
    let room = bytes(&copy, "zone_count") * bytes(&copy, "zone_capacity_bytes");
    assert!((all..all + (8 << 20)).contains(&room), "{room} of {all}");
    // On two devices metadata has its own.
    place.json(&[
        "recover",
        "pair:fast+bulk",
        "pair:fast.new+bulk.new",
        "--meta-size",
        "32M",
    ]);
    let copy = place.json(&["info", "pair:fast.new+bulk.new"]);
    let before = place.json(&["info", "pair:fast+bulk"]);
    assert!(bytes(&copy, "total_bytes") <= bytes(&before, "total_bytes"));
    assert!(bytes(&copy, "total_bytes") + (32 << 20) > bytes(&before, "total_bytes"));
}

#[test]
fn a_missing_or_wrong_partner_is_told() {
    let place = Place::new();
    place.pair("a");
    place.pair("b");
    place.json(&["mkfs", "plain", "--size", "128M"]);
    let files = ["a.fast", "a.bulk", "b.fast", "b.bulk", "plain"];
    let before = files.map(|file| fs::read(place.dir().join(file)).unwrap());
    let cases: &[(&str, &[&str])] = &[
        ("a.fast", &["the device for metadata", "name both, pair:"]),
        ("a.bulk", &["the device for data", "name both, pair:"]),
        (
            "pair:a.bulk+a.fast",
            &["a.fast is the device for metadata", "in that order"],
        ),
        (
            "pair:a.fast+b.bulk",
            &["name the two devices of one volume"],
        ),
        ("pair:a.fast+b.fast", &["both devices for metadata"]),
        ("pair:a.fast+plain", &["plain is not the device for data"]),
        (
            "pair:plain+a.bulk",
            &["plain is not the device for metadata"],
        ),
        ("pair:a.fast+a.fast", &["cannot be both"]),
        ("pair:a.fast+absent", &["absent"]),
        ("pair:a.fast", &["pair:METADATA_DEVICE+DATA_DEVICE"]),
    ];
    fs::create_dir(place.dir().join("dir")).unwrap();
    for (name, words) in cases {
        place.refused(&["info", name], 1, words);
        place.refused(&["fsck", "--repair", "--yes", name], 8, words);
        place.refused(&["mount", name, "dir"], 32, words);
    }
    place.refused(
        &["mount", "a.bulk", "dir", "-o", "meta=b.fast"],
        32,
        &["of one volume"],
    );
    place.refused(
        &["mount", "a.bulk", "dir", "-o", "meta=absent"],
        32,
        &["absent"],
    );
    let after = files.map(|file| fs::read(place.dir().join(file)).unwrap());
    assert!(before == after, "a file was changed");
}

#[test]
fn mkfs_of_two_is_refused_whole() {
    let place = Place::new();
    place.pair("a");
    let before = fs::read(place.dir().join("a.bulk")).unwrap();
    fn make<'a>(names: &[&'a str]) -> Vec<&'a str> {
        [&["mkfs"], names, &["--size", "128M", "--meta-size", "32M"]].concat()
    }
    place.refused(
        &make(&["--meta", "new", "a.bulk"]),
        1,
        &["a.bulk", "--force"],
    );
    place.refused(
        &make(&["--meta", "a.fast", "new"]),
        1,
        &["a.fast", "--force"],
    );
    place.refused(
        &make(&["--meta", "x", "pair:x+y"]),
        2,
        &["leave out --meta"],
    );
    place.refused(&make(&["new"]), 2, &["--meta"]);
    place.refused(
        &["mkfs", "--meta", "new", "other", "--size", "128M"],
        2,
        &["--meta-size"],
    );
    let small = [
        "mkfs",
        "--meta",
        "new",
        "other",
        "--size",
        "128M",
        "--meta-size",
        "8M",
    ];
    place.refused(&small, 1, &["zones", "at least"]);
    assert!(!place.dir().join("new").exists() && !place.dir().join("other").exists());
    assert!(fs::read(place.dir().join("a.bulk")).unwrap() == before);
    let dry = make(&["--meta", "new", "other", "--dry-run", "--json"]);
    assert!(place.run(&dry).status.success() && !place.dir().join("new").exists());
    // A part can be used for something else.
    place.json(&["mkfs", "a.bulk", "--force"]);
    assert_eq!(place.json(&["fsck", "a.bulk"])["clean"], true);
    place.refused(
        &["info", "pair:a.fast+a.bulk"],
        1,
        &["not the device for data"],
    );
}
