//! `persimmon snapshot` of volumes that are not mounted; of mounts it is asked in tests/mount.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;

use persimmon::{Create, Filesystem, Options, SetAttr, SetTime, Timestamp};
use serde_json::{Value, json};

use crate::common::{Place, told};

const IMAGE: &str = "img";

fn place() -> Place {
    let place = Place::in_memory();
    Filesystem::create(place.dir().join(IMAGE), &Create::sized(64 << 20)).unwrap();
    place
}

fn open(place: &Place) -> Filesystem {
    Filesystem::open(place.dir().join(IMAGE), &Options::default()).unwrap()
}

/// What it says on standard output.
fn said(place: &Place, arguments: &[&str]) -> String {
    let arguments = [&["snapshot"], arguments].concat();
    let output = place.run(&arguments);
    assert!(output.status.success(), "{arguments:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(place: &Place, arguments: &[&str], code: i32, words: &[&str]) {
    place.refused(&[&["snapshot"], arguments].concat(), code, words);
}

fn listed(place: &Place) -> Vec<Value> {
    serde_json::from_str(&said(place, &["list", IMAGE, "--json"])).unwrap()
}

fn names(place: &Place) -> Vec<String> {
    let listed = listed(place);
    let names = listed.iter().map(|row| row["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

fn check(place: &Place) {
    let output = place.run(&["fsck", IMAGE, "--data"]);
    assert!(output.status.success(), "{}", told(&output));
}

#[test]
fn snapshots_are_taken_listed_renamed_and_deleted() {
    let place = place();
    let fs = open(&place);
    let content: Vec<u8> = (0..8 << 20)
        .map(|at: u32| (at.wrapping_mul(at) >> 9) as u8)
        .collect();
    fs.write("/file", content).unwrap();
    fs.close().unwrap();
    assert_eq!(said(&place, &["list", IMAGE, "--json"]), "[]\n");
    said(&place, &["create", IMAGE, "one"]);
    let fs = open(&place);
    fs.write("/file", b"short").unwrap();
    fs.close().unwrap();
    // What is not in the files any more.
    let own = listed(&place)[0]["own_bytes"].as_u64().unwrap();
    assert!((8 << 20..9 << 20).contains(&own), "{own}");
    said(&place, &["create", IMAGE, "two", "--writable"]);
    refused(
        &place,
        &["create", IMAGE, "one"],
        1,
        &["one: there is a snapshot with this name already"],
    );
    refused(
        &place,
        &["create", IMAGE, "a/b"],
        2,
        &["no name for a snapshot"],
    );
    refused(
        &place,
        &["create", IMAGE, ".."],
        2,
        &["no name for a snapshot"],
    );
    let fs = open(&place);
    fs.write("/.snapshots/two/file", b"other").unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"short");
    fs.close().unwrap();

    let rows = listed(&place);
    assert_eq!(
        rows.iter()
            .map(|row| (&row["name"], &row["writable"]))
            .collect::<Vec<_>>(),
        [
            (&json!("one"), &json!(false)),
            (&json!("two"), &json!(true))
        ]
    );
    assert!(rows[1]["own_bytes"].as_u64().unwrap() < 1 << 20);
    assert!(rows[0]["taken"].as_str().unwrap().ends_with('Z'));
    let text = said(&place, &["list", IMAGE]);
    assert!(
        text.starts_with("name  taken (UTC)")
            && text.contains("read-only")
            && text.contains("writable"),
        "{text}"
    );

    said(&place, &["rename", IMAGE, "one", "first"]);
    refused(
        &place,
        &["rename", IMAGE, "one", "x"],
        1,
        &["one: there is no such snapshot"],
    );
    refused(
        &place,
        &["rename", IMAGE, "first", "two"],
        1,
        &["two: there is a snapshot with this name already"],
    );
    assert_eq!(names(&place), ["first", "two"]);
    // The others go all the same.
    refused(
        &place,
        &["delete", IMAGE, "gone", "first"],
        1,
        &["gone: there is no such snapshot"],
    );
    assert_eq!(names(&place), ["two"]);
    said(&place, &["delete", IMAGE, "two"]);
    check(&place);
    refused(&place, &["list", "nothing"], 1, &["nothing"]);
}

#[test]
fn what_differs_is_shown_by_paths() {
    let place = place();
    let fs = open(&place);
    for dir in [
        "/dir",
        "/dir/below",
        "/gone",
        "/gone/below",
        "/moved",
        "/touched",
    ] {
        fs.create_dir(dir).unwrap();
    }
    for file in [
        "/changed",
        "/same",
        "/dir/below/changed",
        "/gone/below/file",
        "/moved/file",
        "/replaced",
    ] {
        fs.write(file, file).unwrap();
    }
    fs.hard_link("/changed", "/dir/linked").unwrap();
    fs.set_xattr("/same", "user.x", b"1").unwrap();
    fs.take_snapshot("one", false).unwrap();
    assert_eq!(fs.read("/dir/linked").unwrap(), b"/changed");
    fs.write("/changed", b"now other").unwrap();
    fs.write("/dir/below/changed", b"now other").unwrap();
    fs.remove_dir_all("/gone").unwrap();
    fs.rename("/moved", "/dir/renamed").unwrap();
    fs.remove_file("/replaced").unwrap();
    fs.create_dir("/replaced").unwrap();
    fs.write("/replaced/inside", b"").unwrap();
    fs.set_permissions("/touched", 0o700).unwrap();
    fs.write("/new", b"").unwrap();
    fs.take_snapshot("two", false).unwrap();
    fs.set_xattr("/same", "user.x", b"2").unwrap();
    fs.remove_file("/new").unwrap();
    fs.close().unwrap();

    let between = "\
M /changed
M /dir/below/changed
M /dir/linked
+ /dir/renamed
+ /dir/renamed/file
- /gone
- /gone/below
- /gone/below/file
- /moved
- /moved/file
+ /new
- /replaced
+ /replaced
+ /replaced/inside
M /touched
";
    assert_eq!(said(&place, &["diff", IMAGE, "one", "two"]), between);
    assert_eq!(said(&place, &["diff", IMAGE, "two"]), "- /new\nM /same\n");
    assert_eq!(said(&place, &["diff", IMAGE, "one", "one"]), "");
    // The other way round.
    let back = said(&place, &["diff", IMAGE, "two", "one"]);
    let swapped = |text: &str| {
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| match line.split_at(1) {
                ("+", rest) => format!("-{rest}"),
                ("-", rest) => format!("+{rest}"),
                _ => line.to_owned(),
            })
            .collect();
        lines.sort();
        lines
    };
    let mut lines: Vec<String> = back.lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, swapped(between));
    let json: Value =
        serde_json::from_str(&said(&place, &["diff", IMAGE, "two", "--json"])).unwrap();
    assert_eq!(
        json,
        json!([{"change": "removed", "path": "/new"}, {"change": "modified", "path": "/same"}])
    );
    refused(
        &place,
        &["diff", IMAGE, "gone"],
        1,
        &["gone: there is no such snapshot"],
    );
    check(&place);
}

#[test]
fn snapshots_are_taken_of_snapshots() {
    let place = place();
    let fs = open(&place);
    fs.write("/file", b"main").unwrap();
    fs.close().unwrap();
    said(&place, &["create", IMAGE, "dev", "--writable"]);
    let fs = open(&place);
    fs.write("/.snapshots/dev/file", b"dev").unwrap();
    fs.close().unwrap();
    said(&place, &["create", IMAGE, "one", "--of", "dev"]);
    said(&place, &["create", IMAGE, "w", "--of", "one", "--writable"]);
    let refuses = |arguments: &[&str], code, word: &str| {
        refused(
            &place,
            &[&["create", IMAGE], arguments].concat(),
            code,
            &[word],
        );
    };
    refuses(&["x", "--of", "none"], 1, "none: there is no such snapshot");
    refuses(&["x", "--of", "a/b"], 2, "no name for a snapshot");
    refuses(
        &["one", "--of", "dev"],
        1,
        "one: there is a snapshot with this name already",
    );
    let of = |place: &Place| -> Vec<(String, Value)> {
        let rows = listed(place).into_iter();
        let mut rows: Vec<_> = rows
            .map(|row| (row["name"].as_str().unwrap().to_owned(), row["of"].clone()))
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows
    };
    let row = |name: &str, of: Value| (name.to_owned(), of);
    assert_eq!(
        of(&place),
        [
            row("dev", Value::Null),
            row("one", json!("dev")),
            row("w", json!("one"))
        ]
    );
    let fs = open(&place);
    assert_eq!(
        fs.read("/.snapshots/dev/.snapshots/one/file").unwrap(),
        b"dev"
    );
    assert_eq!(fs.read("/.snapshots/w/file").unwrap(), b"dev");
    fs.close().unwrap();
    // It goes on as one of what its origin was taken of.
    said(&place, &["delete", IMAGE, "one"]);
    assert_eq!(
        of(&place),
        [row("dev", Value::Null), row("w", json!("dev"))]
    );
    said(&place, &["delete", IMAGE, "dev"]);
    assert_eq!(of(&place), [row("w", Value::Null)]);
    check(&place);
}

#[test]
fn a_volume_goes_back_to_a_snapshot() {
    let place = place();
    let fs = open(&place);
    fs.write("/file", b"good").unwrap();
    fs.take_snapshot("good", false).unwrap();
    fs.write("/file", b"broken").unwrap();
    fs.close().unwrap();
    refused(
        &place,
        &["rollback", IMAGE, "gone"],
        1,
        &["gone: there is no such snapshot"],
    );
    refused(
        &place,
        &["rollback", IMAGE, "good", "--keep", "good"],
        1,
        &["good: there is a snapshot with this name already"],
    );
    refused(
        &place,
        &["rollback", IMAGE, "good", "--keep", "a/b"],
        2,
        &["no name"],
    );
    said(&place, &["rollback", IMAGE, "good", "--keep", "before"]);
    check(&place);
    let fs = open(&place);
    assert_eq!(fs.read("/file").unwrap(), b"good");
    assert_eq!(fs.read("/.snapshots/before/file").unwrap(), b"broken");
    fs.close().unwrap();
    assert_eq!(names(&place), ["good", "before"]);
    said(&place, &["rollback", IMAGE, "before"]);
    let fs = open(&place);
    assert_eq!(fs.read("/file").unwrap(), b"broken");
    fs.close().unwrap();
    check(&place);
}

/// What two snapshots hold was nowhere told, and what would be pruned was told by names alone.
#[test]
fn what_snapshots_hold_is_told_of_each_and_of_all() {
    let place = place();
    let write = |path: &str, of: usize| {
        let fs = open(&place);
        let content: Vec<u8> = (0..of << 20)
            .map(|at: usize| ((at.wrapping_mul(at)) >> 9) as u8)
            .collect();
        fs.write(path, content).unwrap();
        fs.close().unwrap();
    };
    assert_eq!(said(&place, &["list", IMAGE]).lines().count(), 1);
    write("/one", 8);
    said(&place, &["create", IMAGE, "a"]);
    write("/two", 4);
    said(&place, &["create", IMAGE, "b"]);
    said(&place, &["create", IMAGE, "c"]);
    write("/one", 0);
    write("/two", 0);
    let rows = listed(&place);
    let bytes = |row: &Value, field: &str| row[field].as_u64().unwrap();
    let together = bytes(&rows[0], "together_bytes");
    assert!(
        rows.iter().all(|row| bytes(row, "own_bytes") == 0),
        "{rows:?}"
    );
    assert!(
        rows.iter()
            .all(|row| bytes(row, "together_bytes") == together)
    );
    assert!((12 << 20..13 << 20).contains(&together), "{together}");
    let text = said(&place, &["list", IMAGE]);
    assert!(text.ends_with("\nall together hold 12.0 MiB\n"), "{text}");
    let usage = place.run(&["usage", IMAGE, "--json"]);
    let usage: Value = serde_json::from_slice(&usage.stdout).unwrap();
    assert_eq!(bytes(&usage, "snapshot_bytes"), together);
    said(&place, &["delete", IMAGE, "b"]);
    let would = ["prune", IMAGE, "--keep", "yearly:1", "--dry-run"];
    let json: Value =
        serde_json::from_str(&said(&place, &[&would[..], &["--json"]].concat())).unwrap();
    assert_eq!(
        json,
        json!({"kept": ["c"], "deleted": ["a"], "own_bytes": [0], "failed": []})
    );
    said(&place, &["delete", IMAGE, "c"]);
    said(&place, &["create", IMAGE, "d"]);
    let would = said(&place, &would);
    assert_eq!(would, "would delete a, which holds 8.0 MiB alone\n");
    check(&place);
}

/// One that was taken of another subvolume is newer, and no reason to delete those of this one.
#[test]
fn what_is_pruned_is_of_one_subvolume() {
    let place = place();
    let prune = |more: &[&str]| {
        let keep = ["--keep", "yearly:1", "--prefix", "auto-"];
        said(&place, &[&["prune", IMAGE][..], &keep, more].concat())
    };
    said(&place, &["create", IMAGE, "auto-1"]);
    said(&place, &["create", IMAGE, "dev", "--writable"]);
    for name in ["auto-2", "auto-3"] {
        said(&place, &["create", IMAGE, name, "--of", "dev"]);
    }
    assert_eq!(prune(&[]), "");
    assert_eq!(prune(&["--of", "dev"]), "deleted auto-2\n");
    assert_eq!(names(&place), ["auto-1", "dev", "auto-3"]);
    check(&place);
}

#[test]
fn old_snapshots_are_pruned() {
    let place = place();
    for name in ["auto-1", "auto-2", "auto-3", "mine"] {
        said(&place, &["create", IMAGE, name]);
    }
    said(&place, &["create", IMAGE, "auto-w", "--writable"]);
    let keep = ["--keep", "yearly:1", "--prefix", "auto-"];
    let dry = [&["prune", IMAGE, "--dry-run"], keep.as_slice()].concat();
    // All are of one year, but on New Year's Eve.
    let would = said(&place, &dry);
    assert_eq!(names(&place).len(), 5);
    let pruned = said(&place, &[&["prune", IMAGE], keep.as_slice()].concat());
    let would: String = { would.lines() }
        .map(|line| line.split(',').next().unwrap().to_owned() + "\n")
        .collect();
    assert_eq!(would.replace("would delete", "deleted"), pruned);
    assert_eq!(pruned, "deleted auto-1\ndeleted auto-2\n");
    assert_eq!(names(&place), ["auto-3", "mine", "auto-w"]);
    let json = said(&place, &["prune", IMAGE, "--keep", "daily:1", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json,
        json!({"kept": ["mine"], "deleted": ["auto-3"], "failed": []})
    );
    refused(
        &place,
        &["prune", IMAGE, "--keep", "daily"],
        2,
        &["PERIOD:COUNT"],
    );
    refused(
        &place,
        &["prune", IMAGE, "--keep", "fortnightly:2"],
        2,
        &["none of hourly"],
    );
    refused(&place, &["prune", IMAGE], 2, &["--keep"]);
    check(&place);
}

/// Names that a terminal would obey are escaped, and times need no reading.
#[test]
fn reading_changes_nothing() {
    let place = place();
    let fs = open(&place);
    fs.write("/a\n\x1b[2J", b"x").unwrap();
    fs.take_snapshot("s\n", false).unwrap();
    let set = SetAttr {
        mtime: Some(SetTime::At(Timestamp::default())),
        ..SetAttr::default()
    };
    fs.set_attributes("/a\n\x1b[2J", &set).unwrap();
    fs.close().unwrap();
    let image = place.dir().join(IMAGE);
    let before = std::fs::read(&image).unwrap();
    assert_eq!(said(&place, &["diff", IMAGE, "s\n"]), "M /a\\n\\u{1b}[2J\n");
    let text = said(&place, &["list", IMAGE]);
    assert!(text.contains("s\\n") && text.lines().count() == 3, "{text}");
    assert!(std::fs::read(&image).unwrap() == before);
}

/// JSON had arrays of numbers for names that are not UTF-8.
#[test]
fn json_has_text_for_names_that_are_no_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let place = place();
    let fs = open(&place);
    fs.take_snapshot("first", false).unwrap();
    fs.write(OsStr::from_bytes(b"/a\xffb"), b"content").unwrap();
    fs.take_snapshot(OsStr::from_bytes(b"s\xfe"), false)
        .unwrap();
    fs.close().unwrap();
    let rows = listed(&place);
    assert_eq!(rows[0]["name"], "first");
    assert!(rows[0].get("name_bytes").is_none(), "{}", rows[0]);
    assert_eq!(rows[1]["name"], "s\u{fffd}");
    assert_eq!(rows[1]["name_bytes"], "73fe");
    let diff = said(&place, &["diff", IMAGE, "first", "--json"]);
    let diff: Value = serde_json::from_str(&diff).unwrap();
    assert_eq!(
        diff,
        json!([{"change": "added", "path": "/a\u{fffd}b", "path_bytes": "2f61ff62"}])
    );
}
