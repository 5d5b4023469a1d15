//! git: clone, history, checkout, gc and fsck.

use anyhow::{Result, ensure};

use super::workspace;
use crate::check::Place;
use crate::command::script;

super::programs!("git": clone_work_gc_and_fsck);

fn clone_work_gc_and_fsck(place: &Place) -> Result<()> {
    let source = workspace();
    let out = script(
        &place.dir,
        &[("SOURCE", &source), ("HOME", &place.outside)],
        r#"
        export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
        export GIT_CONFIG_KEY_1=advice.detachedHead GIT_CONFIG_VALUE_1=false
        export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
        git clone -q "$SOURCE" one
        cd one
        git fsck --full --strict
        first=$(git rev-parse HEAD)
        git checkout -q -b work
        # A history of its own: files made, changed, moved and removed.
        for round in $(seq 1 60); do
            mkdir -p area-$((round % 7))
            seq "$round" $((round * 50)) > area-$((round % 7))/file-$round
            echo "round $round" >> log
            [ "$round" -lt 10 ] || git mv -k area-*/file-$((round - 5)) log-$round 2>/dev/null || true
            git add -A
            git commit -q -m "round $round"
        done
        git tag -a -m tag done
        for back in 10 30 50; do git checkout -q work~$back; git checkout -q work; done
        git checkout -q "$first"
        [ -z "$(git status --porcelain)" ]
        git checkout -q work
        git merge-base --is-ancestor "$first" work
        git repack -q -a -d -f
        git gc -q --aggressive --prune=now
        git fsck --full --strict
        [ -z "$(git status --porcelain)" ]
        cd ..
        # Within one filesystem objects are hard-linked.
        git clone -q one two
        git -C two fsck --full --strict
        git clone -q --no-local one three
        git -C three fsck --full --strict
        [ "$(git -C one rev-parse HEAD^{tree})" = "$(git -C three rev-parse HEAD^{tree})" ]
        git -C one worktree add -q ../four done
        diff -r --exclude=.git one four
        git -C one rev-list --count HEAD
        "#,
    )?;
    let commits: usize = out.trim().lines().last().unwrap_or_default().parse()?;
    ensure!(commits > 60, "{commits} commits");
    Ok(())
}
