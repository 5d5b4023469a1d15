//! The model against hand-made histories.

use super::*;
use crate::workload::{Durability, Op, Rename, Step};

struct Story {
    model: Model,
    now: u64,
}

impl Story {
    fn new() -> Story {
        Story {
            model: Model::new(Tree::new(0o755, 0)),
            now: 0,
        }
    }

    fn run(&mut self, op: Op) -> Result<(), Errno> {
        self.now += 1;
        let result = self.model.apply(&op, self.now);
        if result.is_ok() {
            self.model.acknowledge(&op);
        }
        result
    }

    fn ok(&mut self, op: Op) -> &mut Story {
        self.run(op.clone()).unwrap_or_else(|e| panic!("{op}: {e}"));
        self
    }

    fn states(&self) -> usize {
        self.model.admissible().len()
    }

    fn paths(&self) -> Vec<String> {
        self.model.now().walk().into_keys().collect()
    }
}

fn create(path: &str) -> Op {
    Op::Create {
        path: path.into(),
        mode: 0o644,
    }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir {
        path: path.into(),
        mode: 0o755,
    }
}

fn write(path: &str, fill: u64) -> Op {
    Op::Write {
        path: path.into(),
        offset: 0,
        length: 10,
        fill,
        durability: Durability::Buffered,
    }
}

fn rename(from: &str, to: &str, mode: Rename) -> Op {
    Op::Rename {
        from: from.into(),
        to: to.into(),
        mode,
    }
}

fn snapshot(name: &str, of: Option<&str>, is_writable: bool) -> Op {
    Op::Snapshot {
        name: name.into(),
        of: of.map(str::to_owned),
        is_writable,
    }
}

fn roll_back(to: &str, keep: Option<&str>) -> Op {
    Op::RollBack {
        to: to.into(),
        keep: keep.map(str::to_owned),
    }
}

fn seen(tree: &Tree) -> Observed {
    Observed::of(tree)
}

#[test]
fn a_crash_leaves_a_prefix_that_holds_what_was_acknowledged() {
    let mut story = Story::new();
    story.ok(create("/a")).ok(create("/b")).ok(mkdir("/d"));
    assert_eq!(story.states(), 4);
    let after_b = seen(&story.model.admissible()[2]);
    story.ok(Op::FsyncDir { path: "/d".into() });
    assert_eq!(story.states(), 1);
    story.ok(rename("/a", "/d/a", Rename::Replace));
    let states = story.model.admissible();
    assert!(after_b.find_in(&states).is_err());
    assert_eq!(seen(&states[0]).find_in(&states), Ok(0));
    assert_eq!(seen(&states[1]).find_in(&states), Ok(1));
    assert_eq!(story.paths(), ["/", "/b", "/d", "/d/a"]);
}

#[test]
fn a_file_renamed_over_another_is_whole() {
    let mut story = Story::new();
    story.ok(create("/old")).ok(write("/old", 1)).ok(Op::Sync);
    story.ok(create("/new")).ok(write("/new", 2));
    let mut empty = seen(story.model.now());
    story.ok(rename("/new", "/old", Rename::Replace));
    let states = story.model.admissible();
    let whole = seen(&states[2]);
    assert_eq!(whole.find_in(&states), Ok(2));
    // Not even for a moment is it empty under its new name.
    let mut node = empty.nodes.remove("/new").unwrap();
    node.kind = Kind::File {
        size: 0,
        blocks: BTreeMap::new(),
    };
    let mut torn = whole.clone();
    torn.nodes.insert("/old".into(), node.clone());
    assert!(torn.find_in(&states).is_err());
    // Before the rename it may be.
    empty.nodes.insert("/new".into(), node);
    assert_eq!(empty.find_in(&states), Ok(1));
}

#[test]
fn a_write_after_an_operation_is_not_there_without_it() {
    let mut story = Story::new();
    story.ok(create("/f")).ok(Op::Sync);
    story.ok(create("/g")).ok(write("/f", 5));
    let states = story.model.admissible();
    let mut found = seen(story.model.now());
    assert_eq!(found.find_in(&states), Ok(1));
    found.nodes.remove("/g");
    assert!(found.find_in(&states).is_err());
}

#[test]
fn synchronous_writes_and_checkpoints_bind_what_came_before() {
    let mut story = Story::new();
    story.ok(create("/f")).ok(create("/g"));
    story.ok(Op::Write {
        path: "/f".into(),
        offset: 0,
        length: 5000,
        fill: 3,
        durability: Durability::DataSync,
    });
    assert_eq!(story.states(), 1);
    let states = story.model.admissible();
    assert_eq!(seen(&states[0]).find_in(&states), Ok(0));
    let mut lost = seen(&states[0]);
    lost.nodes.get_mut("/f").unwrap().kind = Kind::File {
        size: 0,
        blocks: BTreeMap::new(),
    };
    assert!(lost.find_in(&states).is_err());
    story.ok(create("/h")).ok(Op::Step(Step::Checkpoint));
    assert_eq!(story.states(), 1);
}

#[test]
fn unlinked_files_live_until_they_are_closed() {
    let mut story = Story::new();
    story.ok(create("/f")).ok(Op::Open {
        slot: 0,
        path: "/f".into(),
        truncate: false,
    });
    let id = story.model.open_in(0).unwrap();
    story.ok(Op::Unlink { path: "/f".into() });
    story.ok(Op::WriteOpen {
        slot: 0,
        offset: 0,
        length: 3,
        fill: 1,
    });
    assert_eq!(
        story
            .model
            .now()
            .node(id)
            .unwrap()
            .content()
            .unwrap()
            .size(),
        3
    );
    story.ok(Op::Close { slot: 0 });
    assert!(story.model.now().node(id).is_none());
}

#[test]
fn errors_are_those_of_posix() {
    let mut story = Story::new();
    story.ok(mkdir("/d")).ok(mkdir("/d/e")).ok(create("/f"));
    for (op, errno) in [
        (create("/f"), libc::EEXIST),
        (create("/x/y"), libc::ENOENT),
        (create("/f/y"), libc::ENOTDIR),
        (Op::Unlink { path: "/d".into() }, libc::EISDIR),
        (Op::Rmdir { path: "/d".into() }, libc::ENOTEMPTY),
        (Op::Rmdir { path: "/f".into() }, libc::ENOTDIR),
        (rename("/d", "/d/e/x", Rename::Replace), libc::EINVAL),
        (rename("/d/e", "/d", Rename::Replace), libc::ENOTEMPTY),
        (rename("/d", "/f", Rename::Replace), libc::ENOTDIR),
        (rename("/f", "/d", Rename::Replace), libc::EISDIR),
        (rename("/f", "/d", Rename::NoReplace), libc::EEXIST),
        (rename("/f", "/x", Rename::Exchange), libc::ENOENT),
    ] {
        let before = story.paths();
        assert_eq!(story.run(op.clone()), Err(errno), "{op}");
        assert_eq!(story.paths(), before);
    }
    story.ok(rename("/f", "/d/e", Rename::Exchange));
    assert_eq!(story.paths(), ["/", "/d", "/d/e", "/f"]);
    assert!(
        story
            .model
            .now()
            .is_directory(story.model.now().lookup("/f").unwrap())
    );
    let found = seen(story.model.now());
    assert_eq!(found.find_in(&[Arc::new(found.to_tree())]), Ok(0));
}

#[test]
fn a_writable_snapshot_has_files_of_its_own() {
    let mut story = Story::new();
    story
        .ok(mkdir("/d"))
        .ok(create("/d/a"))
        .ok(write("/d/a", 1));
    story.ok(snapshot("s", None, true));
    let taken = seen(story.model.now());
    story.ok(write("s:/d/a", 2)).ok(create("s:/d/b"));
    story.ok(rename("/d/a", "/a", Rename::Replace));
    assert_eq!(story.paths(), ["/", "/a", "/d"]);
    let both = seen(story.model.now());
    let inside = &both.snapshots["s"].nodes;
    assert!(inside.contains_key("/d/a") && inside.contains_key("/d/b"));
    assert_ne!(inside["/d/a"].kind, both.nodes["/a"].kind);
    assert_eq!(both.nodes["/a"].kind, taken.nodes["/d/a"].kind);
    // What was found is the same once more.
    let again = both.to_tree();
    assert_eq!(both.find_in(&[Arc::new(again)]), Ok(0));
    assert_eq!(
        story.run(rename("/a", "s:/a", Rename::Replace)),
        Err(libc::EXDEV)
    );
    story.ok(Op::DeleteSnapshot { name: "s".into() });
    assert_eq!(
        story.run(Op::Unlink {
            path: "s:/d/a".into()
        }),
        Err(libc::ENOENT)
    );
    assert_eq!(story.paths(), ["/", "/a", "/d"]);
}

#[test]
fn what_is_not_durable_of_a_writable_snapshot_may_be_lost() {
    let mut story = Story::new();
    story.ok(create("/a")).ok(snapshot("s", None, true));
    story.ok(Op::Sync);
    let before = seen(story.model.now());
    story.ok(write("s:/a", 1));
    assert_eq!(before.find_in(&story.model.admissible()), Ok(0));
    // The snapshot of it has it.
    story.ok(snapshot("t", Some("s"), false)).ok(Op::Sync);
    assert!(before.find_in(&story.model.admissible()).is_err());
    let now = seen(story.model.now());
    assert_eq!(now.snapshots["s"].nodes, {
        let mut nodes = now.snapshots["t"].nodes.clone();
        let inos = now.snapshots["s"].nodes.iter();
        inos.for_each(|(path, node)| nodes.get_mut(path).unwrap().ino = node.ino);
        nodes
    });
}

#[test]
fn a_snapshot_gets_another_name_that_none_has() {
    let mut story = Story::new();
    story.ok(snapshot("s", None, true)).ok(create("s:/a"));
    story.ok(snapshot("t", None, false));
    let renamed = |from: &str, to: &str| Op::RenameSnapshot {
        from: from.into(),
        to: to.into(),
    };
    assert_eq!(story.run(renamed("s", "t")), Err(libc::EEXIST));
    let states = story.states();
    story.ok(renamed("s", "s"));
    assert_eq!(story.states(), states);
    story.ok(renamed("s", "u")).ok(write("u:/a", 1));
    let names: Vec<_> = story.model.now().snapshots().keys().collect();
    assert_eq!(names, ["t", "u"]);
}

#[test]
fn a_roll_back_is_one_step_of_the_history() {
    let mut story = Story::new();
    story.ok(create("/a")).ok(snapshot("s", None, false));
    story.ok(create("/b")).ok(Op::Sync);
    story.ok(write("/b", 1));
    let lost = story.model.admissible();
    story.model.apply(&roll_back("s", Some("kept")), 9).unwrap();
    let states = story.model.admissible();
    assert_eq!(states.len(), 2);
    // Before the unmount has made it durable it may be lost.
    assert_eq!(seen(&lost[0]).find_in(&states), Ok(0));
    story.model.acknowledge(&roll_back("s", Some("kept")));
    assert_eq!(story.states(), 1);
    assert_eq!(story.paths(), ["/", "/a"]);
    let now = seen(story.model.now());
    assert!(now.snapshots["kept"].nodes.contains_key("/b"));
    assert!(now.snapshots.contains_key("s"));
    assert_eq!(story.run(roll_back("none", None)), Err(libc::ENOENT));
}
