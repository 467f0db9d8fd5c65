//! Forks of ordinary users: made, worked in, merged, taken back, and closed to everybody else.

use super::{ANN, BOB, fork_of, marram, owned, shared, shell};
use std::fs;

#[test]
fn a_user_forks_works_merges_and_takes_back() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/roots", 0, 0o644, Some("root\n"));
    let told = marram(&bench, ANN, "fork mnt/ann try").good().out;
    let fork = fork_of(ANN, "try");
    assert!(told.contains(&fork), "{told}");
    shell(&bench, ANN, &format!("echo two > {fork}/a && echo new > {fork}/b")).good();
    let told = marram(&bench, ANN, &format!("diff {fork}")).good().out;
    assert!(told.contains("M /a") && told.contains("A /b"), "{told}");
    marram(&bench, ANN, &format!("merge {fork}")).good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "two\n");
    let made = fs::metadata(bench.path("mnt/ann/b")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), ANN);
    let log = marram(&bench, ANN, "log mnt").good().out;
    assert!(log.contains("merge") && log.contains("4001"), "{log}");
    assert!(!log.contains("create"), "root's operations: {log}");

    marram(&bench, ANN, "undo mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "one\n");
    assert!(!bench.path("mnt/ann/b").exists());
    marram(&bench, ANN, "destroy fork mnt try --yes").good();
    assert!(!bench.path(&fork).exists());
    marram(&bench, ANN, "undo mnt").good();
    assert_eq!(fs::read_to_string(bench.path(&format!("{fork}/b"))).unwrap(), "new\n");
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn a_merge_of_what_the_user_may_not_change_is_refused_by_path() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/roots", 0, 0o644, Some("root\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("echo two > {fork}/a")).good();
    // As a program with more rights would, that works in the fork.
    fs::write(bench.path(&format!("{fork}/roots")), "changed\n").unwrap();
    for preview in ["", " --preview"] {
        let line = format!("merge {fork}{preview}");
        marram(&bench, ANN, &line).refused(12, &["user 4001", "/ann/roots: write"]);
    }
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/roots")).unwrap(), "root\n");
    // Root may.
    bench.run("merge mnt --fork try").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/roots")).unwrap(), "changed\n");
}

#[test]
fn a_fork_goes_into_what_its_user_may_write_and_nowhere_else() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/src", ANN, 0o755, None);
    owned(&bench, "mnt/ann/src/a", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/other", ANN, 0o755, None);
    marram(&bench, ANN, "fork mnt/ann/src try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("echo two > {fork}/a && rm -r mnt/ann/src")).good();
    let line = format!("merge {fork} --into");
    for preview in ["", " --preview"] {
        let line = format!("{line} mnt/bob{preview}");
        marram(&bench, ANN, &line).refused(12, &["user 4001 may not write"]);
    }
    assert_eq!(fs::read_dir(bench.path("mnt/bob")).unwrap().count(), 0);
    marram(&bench, BOB, "merge mnt --fork try --into mnt/bob").refused(10, &["try"]);
    marram(&bench, ANN, &format!("{line} mnt/ann/other")).good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/other/a")).unwrap(), "two\n");
    marram(&bench, ANN, "undo mnt").good();
    assert!(!bench.path("mnt/ann/other/a").exists());
}

#[test]
fn a_fork_is_closed_to_everybody_but_its_user_and_root() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("cat {fork}/a")).good();
    fs::read(bench.path(&format!("{fork}/a"))).unwrap();
    for refused in [
        format!("cat {fork}/a"),
        format!("ls {fork}"),
        "ls mnt/.marram/users/4001".to_owned(),
        "ls mnt/.marram/users".to_owned(),
        "ls mnt/.marram/forks".to_owned(),
    ] {
        let told = shell(&bench, BOB, &refused);
        assert!(told.status != 0 && told.err.contains("ermission denied"), "{refused}: {told:?}");
    }
    // Also by commands, which know names and not only paths.
    for (line, status) in [
        ("merge mnt --fork try", 10),
        ("update mnt --fork ann-runs", 10),
        ("destroy fork mnt try --yes", 10),
        ("rename mnt mine --dataset try", 10),
        ("undo mnt", 10),
        ("undo mnt 1", 10),
        ("snapshot mnt@s", 12),
        ("set mnt quota=1G", 12),
        ("clone mnt@s c", 12),
    ] {
        let told = marram(&bench, BOB, line);
        assert_eq!(told.status, status, "{line}: {told:?}");
        let says = status != 12 || told.err.contains("merge, update, undo");
        assert!(says, "what a user may do: {line}: {told:?}");
    }
    assert!(!marram(&bench, BOB, "forks mnt").good().out.contains("try"));
    assert!(!marram(&bench, BOB, "list mnt").good().out.contains("try"));
    assert!(!marram(&bench, BOB, "log mnt").good().out.contains("fork"));
    assert!(marram(&bench, ANN, "forks mnt").good().out.contains("try"));
    assert!(bench.run("forks mnt").good().out.contains("try"));
    // What is not Bob's to write is not Bob's to fork.
    marram(&bench, BOB, "fork mnt/ann other").refused(12, &["user 4002", "may not write"]);
    marram(&bench, BOB, "fork mnt/bob own").good();
}

#[test]
fn a_user_runs_commands_in_forks_and_goes_back_into_them() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    let run = |line: &str, command: &str| {
        let program = format!("./marram-of-all {line} -- sh -c '{command}'");
        shell(&bench, ANN, &program)
    };
    let ran = run("run --keep --name ann-runs mnt/ann", "echo two > mnt/ann/a; id -u");
    if ran.status == 125 && ran.err.contains("namespace") {
        eprintln!("skipped: needs user namespaces: {ran:?}");
        return;
    }
    let ran = ran.good();
    assert!(ran.out.contains("4001"), "{ran:?}");
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "one\n");
    run("enter ann-runs", "echo three >> a").good();
    run("run --merge mnt/ann", "echo new > mnt/ann/b").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/b")).unwrap(), "new\n");
    marram(&bench, ANN, "update mnt --fork ann-runs").good();
    marram(&bench, ANN, "merge mnt --fork ann-runs --drop").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "two\nthree\n");
}

#[test]
fn news_beside_the_directory_are_nobodys_business_in_an_update() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/project", ANN, 0o755, None);
    owned(&bench, "mnt/ann/project/a", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/moved", ANN, 0o644, Some("old\n"));
    owned(&bench, "mnt/ann/lib", ANN, 0o755, None);
    owned(&bench, "mnt/ann/lib/part", ANN, 0o644, Some("old\n"));
    owned(&bench, "mnt/bob/secret", BOB, 0o600, Some("bob\n"));
    marram(&bench, ANN, "fork mnt/ann/project try").good();
    let fork = fork_of(ANN, "try");
    // Of others, beside the directory: made, changed, removed.
    shell(&bench, BOB, "echo new > mnt/bob/new; echo more >> mnt/bob/secret; mkdir mnt/bob/d")
        .good();
    shell(&bench, ANN, "echo two > mnt/ann/project/a; echo new > mnt/ann/moved").good();
    marram(&bench, ANN, &format!("update {fork}")).good();
    assert_eq!(fs::read_to_string(bench.path(&format!("{fork}/a"))).unwrap(), "two\n");
    // What the user has moved in from beside it comes with what it is by now.
    let moves = "echo newer > mnt/ann/lib/part; mv mnt/ann/moved mnt/ann/lib mnt/ann/project";
    shell(&bench, ANN, moves).good();
    marram(&bench, ANN, &format!("update {fork}")).good();
    let read = |name: &str| fs::read_to_string(bench.path(&format!("{fork}/{name}"))).unwrap();
    assert_eq!((read("moved"), read("lib/part")), ("new\n".to_owned(), "newer\n".to_owned()));
    // What others have put there is still theirs to give.
    bench.host(&["mv", "mnt/bob/secret", "mnt/ann/project/secret"]);
    marram(&bench, ANN, &format!("update {fork}")).refused(12, &["its owner", "another name"]);
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}
