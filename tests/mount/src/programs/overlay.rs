//! overlayfs with its upper layer on the mount, as containers have it.

use anyhow::{Result, ensure};

use crate::check::Place;
use crate::command::script;

super::programs!("overlay":
    removes_and_renames_what_lies_below,
);

/// What lies below is removed, replaced and renamed; the layers mounted again show the same.
fn removes_and_renames_what_lies_below(place: &Place) -> Result<()> {
    let there = r#"
        mkdir -p lower/dir lower/sub merged "$MOUNT/upper" "$MOUNT/work"
        for f in removed renamed changed dir/a dir/b sub/c; do echo "$f" > "lower/$f"; done
        layers="lowerdir=$PWD/lower,upperdir=$MOUNT/upper,workdir=$MOUNT/work"
        mount -t overlay overlay -o "$layers" merged
        trap 'umount merged' EXIT
        rm merged/removed merged/dir/a
        mv merged/renamed merged/new-name
        mv merged/sub/c merged/dir/b
        echo more >> merged/changed
        rm -r merged/sub
        mkdir merged/sub; echo new > merged/sub/new
        look() { (cd merged; find . | LC_ALL=C sort; cat changed new-name dir/b sub/new); }
        look > before
        umount merged; mount -t overlay overlay -o "$layers" merged
        look > after
        diff before after
        cat before
    "#;
    let shown = script(&place.outside, &[("MOUNT", &place.dir)], there)?;
    let wanted = ".\n./changed\n./dir\n./dir/b\n./new-name\n./sub\n./sub/new\nchanged\nmore\nrenamed\nsub/c\nnew\n";
    ensure!(shown.trim() == wanted.trim(), "the layers show:\n{shown}");
    Ok(())
}
