//! The live tree, or one directory of it, becomes what a clone or fork of it is.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::io::{Read, Seek, SeekFrom};

fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    for (path, text) in [("src/a", "one\n"), ("src/lib/b", "b\n"), ("other", "o\n")] {
        fs::write(bench.path("mnt").join(path), text).expect("written");
    }
    bench.run("snapshot mnt@s").good();
    Some(bench)
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).expect("a text")
}

fn write(bench: &Workbench, path: &str, text: &str) {
    fs::write(bench.path(path), text).expect("written");
}

fn end(bench: &Workbench) {
    let list = bench.run("list mnt -a -H").good().out;
    assert!(!list.contains("merge:"), "what was kept for it is gone: {list}");
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn the_live_tree_becomes_what_a_clone_is_while_programs_use_both() {
    let Some(bench) = mounted() else { return };
    bench.run("clone mnt@s copy").good();
    bench.make_folder("at");
    bench.run("mount work.pool at --dataset copy").good();
    write(&bench, "at/src/a", "of the clone\n");
    write(&bench, "at/src/new", "new\n");
    fs::remove_file(bench.path("at/other")).unwrap();
    write(&bench, "mnt/src/mine", "mine\n");
    let mut open = fs::File::open(bench.path("mnt/src/a")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), fs::read_dir(bench.path("mnt")).unwrap().count()), ("one\n", 2));

    let done = bench.run("rollback mnt --to copy --json").result();
    assert_eq!((&done["kept"], &done["changed"]), (&"root@before-rollback-1".into(), &true.into()));
    text.clear();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "of the clone\n", "who has it open sees it at once");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    assert!(!bench.path("mnt/src/mine").exists() && !bench.path("mnt/other").exists());
    assert_eq!(bench.run("diff mnt at").good().out, "");
    let out = bench.run("rollback mnt --to copy").good().out;
    assert_eq!(out, "mnt is what it is in copy\n", "nothing was left to do, nor to keep");

    // Each goes its own way from here, and what was before is there for another clone.
    write(&bench, "at/src/a", "further\n");
    assert_eq!(read(&bench, "mnt/src/a"), "of the clone\n");
    assert_eq!(read(&bench, "mnt/.marram/snapshots/before-rollback-1/src/mine"), "mine\n");
    let told = bench.run("log mnt --last 1").good().out;
    assert!(told.contains(" to copy "), "{told}");
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/a"), "one\n");
    assert_eq!(
        (read(&bench, "mnt/src/mine"), read(&bench, "mnt/other")),
        ("mine\n".into(), "o\n".into())
    );
    assert!(!bench.path("mnt/src/new").exists());
    drop(open);
    bench.run("unmount at").good();
    bench.run("destroy dataset mnt --dataset copy --yes --now").good();
    end(&bench);
}

#[test]
fn a_directory_becomes_what_its_fork_is_and_nothing_else_changes() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    write(&bench, "mnt/.marram/forks/work/a", "of the fork\n");
    write(&bench, "mnt/.marram/forks/work/new", "new\n");
    write(&bench, "mnt/src/a", "of the parent\n");
    write(&bench, "mnt/src/mine", "mine\n");
    write(&bench, "mnt/other", "changed\n");
    for directory in ["mnt", "mnt/src/lib"] {
        let line = format!("rollback {directory} --to work");
        bench.run(&line).refused(2, &["a fork of another directory"]);
    }
    assert_eq!(read(&bench, "mnt/src/a"), "of the parent\n");
    bench.run("rollback mnt/src --to work").good();
    assert_eq!(read(&bench, "mnt/src/a"), "of the fork\n");
    assert_eq!(
        (read(&bench, "mnt/src/new"), read(&bench, "mnt/other")),
        ("new\n".into(), "changed\n".into())
    );
    assert!(!bench.path("mnt/src/mine").exists());

    // The other way round, and of a fork of the fork.
    write(&bench, "mnt/src/a", "later\n");
    bench.run("rollback mnt/.marram/forks/work --to root --discard").good();
    assert_eq!(read(&bench, "mnt/.marram/forks/work/a"), "later\n");
    bench.run("fork mnt/.marram/forks/work/lib inner").good();
    write(&bench, "mnt/.marram/forks/inner/b", "inner\n");
    bench.run("rollback mnt/src/lib --to inner --discard").good();
    assert_eq!(read(&bench, "mnt/src/lib/b"), "inner\n");
    assert_eq!(read(&bench, "mnt/.marram/forks/work/lib/b"), "b\n");
    let list = bench.run("list mnt -H").good().out;
    assert_eq!(list.matches("before-rollback").count(), 1, "{list}");
    end(&bench);
}

#[test]
fn what_has_no_common_past_or_is_not_there_is_refused() {
    let Some(bench) = mounted() else { return };
    bench.run("create mnt --dataset strange").good();
    bench.run("rollback mnt --to strange").refused(1, &["no common past"]);
    bench.run("rollback mnt --to none").refused(10, &["none"]);
    bench.run("rollback mnt@s --to strange").refused(2, &["leave one of the two out"]);
    bench.run("rollback mnt/other --to root").refused(2, &["no directory"]);
    bench.run("rollback mnt/.marram/snapshots/s --to root").refused(2, &["in the snapshot"]);
    assert_eq!(read(&bench, "mnt/other"), "o\n");
    assert!(!bench.run("list mnt -H").good().out.contains("before-rollback"));
    end(&bench);
}

#[test]
fn a_dataset_that_nobody_has_mounted_becomes_what_a_clone_is() {
    let Some(bench) = mounted() else { return };
    bench.run("clone mnt@s copy").good();
    write(&bench, "mnt/other", "changed\n");
    bench.run("snapshot mnt@t").good();
    bench.run("unmount work.pool").good();
    bench.run("rollback work.pool --dataset copy --to root@t").good();
    bench.run("rollback work.pool --to copy@before-rollback-1 --discard").good();
    bench.run("mount work.pool mnt --dataset copy").good();
    assert_eq!(read(&bench, "mnt/other"), "changed\n");
    bench.run("unmount work.pool").good();
    bench.run("mount work.pool mnt").good();
    assert_eq!(read(&bench, "mnt/other"), "o\n");
    end(&bench);
}
