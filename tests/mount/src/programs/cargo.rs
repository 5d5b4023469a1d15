//! Cargo building a crate.

use anyhow::{Result, ensure};

use super::workspace;
use crate::check::Place;
use crate::command::script;

super::programs!("cargo": a_crate_is_built_and_found_fresh);

fn a_crate_is_built_and_found_fresh(place: &Place) -> Result<()> {
    let source = workspace();
    let out = script(
        &place.dir,
        &[("SOURCE", &source)],
        r#"
        # The project's own crate for the format, with its dependencies, out of its workspace.
        unset CARGO_TARGET_DIR CARGO_ENCODED_RUSTFLAGS
        export CARGO_INCREMENTAL=1
        git -c safe.directory='*' -C "$SOURCE" ls-files -z -- Cargo.toml Cargo.lock clippy.toml crates tests xtask benches |
            tar -C "$SOURCE" --null -T - --ignore-failed-read -c | tar -x
        cargo build -q --offline --locked -p persimmon-format
        cargo build --offline --locked -v -p persimmon-format 2>&1 | grep -c Fresh
        cargo build --offline --locked -v -p persimmon-format 2>&1 | grep -c Compiling || true
        touch crates/format/src/lib.rs
        cargo build --offline --locked -v -p persimmon-format 2>&1 | grep -c Compiling
        "#,
    )?;
    let counts: Vec<usize> = out.lines().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(
        counts.len() == 3 && counts[0] > 1 && counts[1..] == [0, 1],
        "fresh, compiled, compiled after a change: {counts:?}"
    );
    Ok(())
}
