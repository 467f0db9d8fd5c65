//! A fork that is worked on, merged, worked on and merged again, and that takes in what its parent
//! got meanwhile, as users do it.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;

fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src");
    for (path, text) in [("src/a", "a\n"), ("src/b", "b\n"), ("other", "o\n")] {
        fs::write(bench.path("mnt").join(path), text).unwrap();
    }
    bench.run("fork mnt/src work").good();
    Some(bench)
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).unwrap()
}

fn write(bench: &Workbench, path: &str, text: &str) {
    fs::write(bench.path(path), text).unwrap();
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

const FORK: &str = "mnt/.marram/forks/work";

#[test]
fn the_second_merge_of_a_fork_brings_only_what_is_new() {
    let Some(bench) = mounted() else { return };
    write(&bench, &format!("{FORK}/a"), "a of the fork\n");
    write(&bench, &format!("{FORK}/new"), "new\n");
    bench.run(&format!("merge {FORK}")).good();
    assert_eq!(bench.run(&format!("diff {FORK}")).good().out, "");
    write(&bench, "mnt/src/a", "a of the parent, later\n");
    write(&bench, &format!("{FORK}/new"), "newer\n");
    write(&bench, &format!("{FORK}/third"), "third\n");
    let told = bench.run(&format!("diff {FORK}")).good().out;
    assert!(told.starts_with("M /new\nA /third\n1 file modified"), "{told}");
    bench.run(&format!("merge {FORK}")).good();
    assert_eq!(read(&bench, "mnt/src/a"), "a of the parent, later\n");
    assert_eq!(read(&bench, "mnt/src/new"), "newer\n");
    assert_eq!(read(&bench, "mnt/src/third"), "third\n");
    // The undo brings back what there was to merge.
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    assert_eq!(bench.run(&format!("diff {FORK}")).good().out, told);
    bench.run(&format!("merge {FORK} --drop")).good();
    assert_eq!(read(&bench, "mnt/src/new"), "newer\n");
    let list = bench.run("list mnt -a -H").good().out;
    assert!(!list.contains("root@base:"), "the bases went with the fork: {list}");
    end(&bench);
}

#[test]
fn an_update_takes_in_what_the_parent_got_and_is_seen_at_once() {
    let Some(bench) = mounted() else { return };
    let mut open = fs::File::open(bench.path(&format!("{FORK}/b"))).unwrap();
    write(&bench, &format!("{FORK}/mine"), "mine\n");
    write(&bench, "mnt/src/b", "b of the parent\n");
    write(&bench, "mnt/src/theirs", "theirs\n");
    fs::rename(bench.path("mnt/src/a"), bench.path("mnt/src/moved")).unwrap();
    let preview = bench.run(&format!("update {FORK} --preview")).good().out;
    let from = bench.path("mnt/src").display().to_string();
    assert!(preview.contains(&format!("{from} would go into work: ")), "{preview}");
    assert!(!bench.path(&format!("{FORK}/theirs")).exists());
    let told = bench.run(&format!("update {FORK}")).good().out;
    assert!(told.contains("R /a -> /moved\n"), "{told}");
    let last = "work: 1 file modified, 1 created, 1 renamed\n";
    assert!(told.ends_with(&format!("{from} went into {last}")), "{told}");
    let log = bench.run("log mnt --last 1").good().out;
    let fork = bench.path(FORK);
    assert!(log.contains(&format!("merge root into {}", fork.display())), "{log}");
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut open, &mut seen).unwrap();
    assert_eq!(seen, "b of the parent\n");
    assert_eq!(read(&bench, &format!("{FORK}/theirs")), "theirs\n");
    let left = bench.run(&format!("diff {FORK}")).good().out;
    assert_eq!(left, "A /mine\n1 file created\n");
    assert!(!bench.path("mnt/src/mine").exists());
    write(&bench, &format!("{FORK}/theirs"), "changed in the fork\n");
    write(&bench, "mnt/src/b", "b again\n");
    write(&bench, &format!("{FORK}/b"), "b otherwise\n");
    let refused = bench.run(&format!("update {FORK}"));
    assert!(refused.status == 4 && refused.out.contains("conflict: content /b"), "{refused:?}");
    let json = bench.run(&format!("update {FORK} --ours --json")).result();
    assert_eq!((&json["update"], &json["applied"]), (&true.into(), &true.into()));
    assert_eq!(read(&bench, &format!("{FORK}/b")), "b otherwise\n");
    drop(open);
    bench.run(&format!("merge {FORK}")).good();
    assert_eq!(read(&bench, "mnt/src/b"), "b otherwise\n");
    assert_eq!(read(&bench, "mnt/src/theirs"), "changed in the fork\n");
    assert_eq!(read(&bench, "mnt/src/mine"), "mine\n");
    bench.run("unmount work.pool").good();
    let again = bench.run("update work.pool --fork work").good().out;
    assert_eq!(again, "root:/src has nothing that work does not have\n");
    bench.run("check work.pool --data").good();
}

#[test]
fn a_promoted_fork_leaves_no_fork_behind() {
    let Some(bench) = mounted() else { return };
    write(&bench, &format!("{FORK}/new"), "new\n");
    bench.run("promote mnt work").good();
    assert_eq!(bench.run("forks mnt -H").good().out, "");
    bench.run("merge mnt --fork root").refused(2, &["root is no fork"]);
    bench.run("undo mnt").good();
    assert!(bench.run("forks mnt -H").good().out.starts_with("work"));
    bench.run(&format!("merge {FORK}")).good();
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    end(&bench);
}
