//! The header that C sees is the one that this crate has. After a change of the crate:
//! `PERSIMMON_BLESS=1 cargo test -p persimmon-capi --test header`.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::path::Path;

#[test]
fn the_header_is_that_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config)
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/persimmon.h");
    if std::env::var_os("PERSIMMON_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == committed,
        "include/persimmon.h is not that of the crate; see the top of this test"
    );
}
