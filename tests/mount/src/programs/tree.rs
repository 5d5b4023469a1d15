//! tar and rsync: a tree with everything a file can be, copied and compared back.

use anyhow::{Result, ensure};

use crate::check::Place;
use crate::command::script;

super::programs!("tree":
    rsync_copies_a_tree_with_all_its_attributes,
    tar_carries_a_tree_in_and_out,
    a_large_tree_is_copied_and_compared,
);

/// Makes `tree` with hard links, holes, attributes, lists, odd times, modes, names and nodes.
pub const MAKE_TREE: &str = r#"
    mkdir tree; cd tree
    for d in a a/b a/b/c 'with space' "$(printf 'line\nbreak')" .hidden; do
        mkdir -p "$d"
        for f in 1 2 3; do seq $((RANDOM % 5000)) > "$d/$f"; done
    done
    ln a/1 a/b/link; ln a/1 hard; ln -s a/1 soft; ln -s nowhere dangling; ln -s a dirlink; ln soft softhard
    : > empty
    dd status=none if=/dev/urandom of=noise bs=1M count=5
    truncate -s 100M sparse; echo end >> sparse; dd status=none if=noise of=sparse bs=1M seek=50 count=1 conv=notrunc
    mkfifo fifo; mknod null c 1 3; mknod disk b 7 200
    cp /bin/true setuid; chmod 6755 setuid; mkdir shared; chmod 3775 shared
    chown 1234:2345 a/2; chown -h 77:88 soft; chmod 000 a/3; chmod 700 .hidden
    setfattr -n user.comment -v 'a value' a/1; setfattr -n user.binary -v 0x00ff00 a
    setfattr -n trusted.secret -v x empty
    setfacl -m u:4001:rw,g:7000:r a/b/1; setfacl -d -m u:4002:rwx shared
    touch -d '1969-07-20 20:17:40.123456789' a/b/2; touch -d '2040-01-01' a; touch -h -d '2001-02-03' dangling
    name=$(printf 'n%.0s' $(seq 255)); echo long > "$name"
    cd ..
"#;

fn rsync_copies_a_tree_with_all_its_attributes(place: &Place) -> Result<()> {
    let there = format!(
        r#"{MAKE_TREE}
        rsync -aHAXS --numeric-ids tree/ "$MOUNT/copy/"
        # Nothing to do a second time, by checksum, and nothing extra there.
        rsync -aHAXS --numeric-ids --checksum --delete -ni tree/ "$MOUNT/copy/"
        rsync -aHAXS --numeric-ids "$MOUNT/copy/" back/
        rsync -aHAXS --numeric-ids --checksum --delete -ni tree/ back/
        "#
    );
    let differences = script(&place.outside, &[("MOUNT", &place.dir)], &there)?;
    ensure!(differences.is_empty(), "differences:\n{differences}");
    Ok(())
}

fn tar_carries_a_tree_in_and_out(place: &Place) -> Result<()> {
    let there = format!(
        r#"{MAKE_TREE}
        options="--xattrs --xattrs-include=* --acls --numeric-owner --sparse --format=posix"
        tar -c $options -f tree.tar tree
        tar -C "$MOUNT" -x $options -p -f tree.tar
        tar -C "$MOUNT" --compare $options -f tree.tar
        tar -C "$MOUNT" -c $options -f - tree | tar -x $options -p -f - --transform 's/^tree/back/'
        rsync -aHAXS --numeric-ids --checksum --delete -ni tree/ back/
        rsync -aHAXS --numeric-ids --checksum --delete -ni tree/ "$MOUNT/tree/"
        "#
    );
    let differences = script(&place.outside, &[("MOUNT", &place.dir)], &there)?;
    ensure!(differences.is_empty(), "differences:\n{differences}");
    Ok(())
}

fn a_large_tree_is_copied_and_compared(place: &Place) -> Result<()> {
    let differences = script(
        &place.dir,
        &[],
        r#"
        for tree in /usr/share/doc /usr/include; do
            cp -a "$tree" .
            sync .
            diff -r --no-dereference "$tree" "$(basename "$tree")"
        done
        [ "$(find . | wc -l)" -gt 1000 ]
        rm -r doc include
        "#,
    )?;
    ensure!(differences.is_empty(), "differences:\n{differences}");
    Ok(())
}
