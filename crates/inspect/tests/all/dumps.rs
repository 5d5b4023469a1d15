//! Every structure can be shown, to people and to programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{FILE, add, content, formatted, now, open, populate};
use persimmon_engine::Task;
use persimmon_format::inode::ROOT;
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{Target, dump, text};
use serde_json::Value;

/// A checkpointed volume with two more records.
fn shown(words: &[&str]) -> (String, Value) {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let late = add(&volume, ROOT, "late", FILE);
    volume.write(late, 0, &content(1, 9000), now(7)).unwrap();
    volume.close().unwrap();
    let inspector = Inspector::open(&*device).unwrap();
    let target = Target::parse(&inspector, words).unwrap();
    let found = dump(&inspector, &target).unwrap();
    (text(&found), serde_json::to_value(&found).unwrap())
}

#[test]
fn structures_of_the_checkpoint() {
    let (text, value) = shown(&["footer"]);
    assert!(text.contains("checkpoint:"), "{text}");
    assert_eq!(
        (&value["checkpoint"], &value["next_ino"]),
        (&3.into(), &83.into())
    );
    let (text, value) = shown(&["zit"]);
    assert!(text.starts_with("zone  role"), "{text}");
    assert_eq!(value.as_array().unwrap().len(), 24);
    let (text, value) = shown(&["mat"]);
    assert!(text.starts_with("page  addr"), "{text}");
    let first = &value[0];
    let (page, addr) = (
        first["page"].as_u64().unwrap(),
        first["addr"].as_str().unwrap(),
    );
    let (_, by_id) = shown(&["page", &page.to_string()]);
    let (_, by_addr) = shown(&["block", addr]);
    assert_eq!(by_id, by_addr["page"]);
    assert_eq!(by_addr["envelope"]["kind"], "metadata page");
}

#[test]
fn zone_headers_and_other_blocks() {
    let (text, value) = shown(&["header", "0"]);
    assert!(text.contains("uuid:"), "{text}");
    assert_eq!(value["uuid"], "00010203-0405-0607-0809-0a0b0c0d0e0f");
    let (_, by_addr) = shown(&["block", "0:0"]);
    assert_eq!(by_addr["zone_header"], value);
    let (text, value) = shown(&["log"]);
    assert!(text.contains("put inode of inode 83"), "{text}");
    assert!(
        text.contains("map inode 83, block 0: 3 blocks at 0:"),
        "{text}"
    );
    assert_eq!(value["records"].as_array().unwrap().len(), 2);
    let at = value["newest"].as_str().unwrap().to_owned();
    let (_, value) = shown(&["block", &at]);
    assert_eq!(
        value["log_block"]["used_bytes"], 0,
        "the end of a log closed in order"
    );
    let data = (0..24).find_map(|zone| {
        let (_, value) = shown(&["summaries", &zone.to_string()]);
        value.get(0).cloned()
    });
    let data = data.unwrap();
    let (text, by_addr) = shown(&["block", data["addr"].as_str().unwrap()]);
    assert_eq!(by_addr["summary"], data, "{text}");
}

#[test]
fn content_of_files() {
    let (text, value) = shown(&["inode", "/directory 0/link"]);
    assert!(text.contains("target:      ../somewhere"), "{text}");
    assert_eq!(value["file_type"], "symlink");
    let (_, value) = shown(&["inode", "/directory 0"]);
    assert_eq!(
        value["xattrs"][0]["value"],
        "user.note = \"of a directory\""
    );
    let (text, value) = shown(&["directory", "/"]);
    assert!(text.contains("sparse"), "{text}");
    assert_eq!(value.as_array().unwrap().len(), 4);
    let (_, value) = shown(&["extents", "/sparse"]);
    let kinds: Vec<&str> = value
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["reserved", "frame", "reserved"]);
    let (text, value) = shown(&["extents", "/directory 0/packed"]);
    assert!(text.contains("packed"), "{text}");
    let rows = value.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(
            (&row["kind"], &row["blocks"]),
            (&"packed".into(), &1.into())
        );
        assert!(
            (1024..1100).contains(&row["bytes"].as_u64().unwrap()),
            "{row}"
        );
    }
    let (text, value) = shown(&["keys", "1"]);
    assert!(text.starts_with("ino  kind"), "{text}");
    assert!(
        value
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["ino"] == 1)
    );
}

#[test]
fn requests_that_make_no_sense() {
    let device = formatted();
    let inspector = Inspector::open(&*device).unwrap();
    let error = |words: &[&str]| {
        let target = Target::parse(&inspector, words);
        target
            .and_then(|target| dump(&inspector, &target))
            .unwrap_err()
            .to_string()
    };
    assert!(error(&["nonsense"]).contains("summaries ZONE"));
    assert_eq!(
        error(&["page", "x"]),
        "\"x\" is not a number that fits here"
    );
    assert_eq!(error(&["page", "77"]), "page 77 is not there");
    assert_eq!(error(&["inode", "77"]), "inode 77 is not there");
    assert_eq!(
        error(&["inode", "/no/way"]),
        "\"no\" of /no/way is not there"
    );
    assert!(error(&["block", "23:5"]).contains("not inside the written part"));
    assert!(error(&["header", "99"]).contains("not inside the written part"));
}
