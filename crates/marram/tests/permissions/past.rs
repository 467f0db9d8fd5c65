//! The past and parts of merges, as ordinary users see and use them.

use super::{ANN, BOB, fork_of, marram, owned, shared, shell};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

#[test]
fn a_part_of_a_fork_is_merged_where_the_rest_is_refused() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/roots", 0, 0o644, Some("root\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("echo two > {fork}/a")).good();
    fs::write(bench.path(&format!("{fork}/roots")), "changed\n").unwrap();
    marram(&bench, ANN, &format!("merge {fork} -- /roots")).refused(12, &["/ann/roots: write"]);
    marram(&bench, ANN, &format!("merge {fork} -- /a")).good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "two\n");
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/roots")).unwrap(), "root\n");
    marram(&bench, ANN, &format!("merge {fork} --exclude roots")).good();
}

#[test]
fn paths_of_a_merge_tell_nothing_of_closed_directories() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/closed", 0, 0o700, None);
    owned(&bench, "mnt/ann/closed/there", 0, 0o644, Some("x"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    let ask = |name: &str| {
        let told = marram(&bench, ANN, &format!("merge {fork} --preview -- /closed/{name}"));
        (told.status, told.err.replace(name, "NAME"))
    };
    assert_eq!(ask("there"), ask("gone"));
}

#[test]
fn a_user_decides_conflicts_path_by_path() {
    let Some(bench) = shared() else { return };
    for name in ["a", "b", "c"] {
        owned(&bench, &format!("mnt/ann/{name}"), ANN, 0o644, Some("one\n"));
    }
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    shell(&bench, ANN, &format!("for at in a b c; do echo fork > {fork}/$at; done")).good();
    shell(&bench, ANN, "for at in a b c; do echo parent > mnt/ann/$at; done").good();
    let told = marram(&bench, ANN, &format!("merge {fork} --theirs /a --ours /b")).refused(4, &[]);
    assert!(told.out.contains("conflict: content /c"), "{told:?}");
    marram(&bench, ANN, &format!("merge {fork} --markers --theirs /a --ours /b")).refused(4, &[]);
    let marked = shell(&bench, ANN, &format!("cat {fork}/c")).good().out;
    assert!(marked.contains("<<<<<<<") && marked.contains("parent"), "{marked}");
    shell(&bench, ANN, &format!("echo both > {fork}/c")).good();
    marram(&bench, ANN, &format!("merge {fork}")).good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/c")).unwrap(), "both\n");
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/b")).unwrap(), "parent\n");
}

#[test]
fn a_decision_changes_no_file_that_the_user_may_not_write() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/roots", 0, 0o600, Some("secret of root\n"));
    marram(&bench, ANN, "fork mnt/ann try").good();
    let fork = fork_of(ANN, "try");
    fs::write(bench.path(&format!("{fork}/roots")), "fork\n").unwrap();
    fs::write(bench.path("mnt/ann/roots"), "secret of today\n").unwrap();
    let conflict = marram(&bench, ANN, &format!("merge {fork} --json"));
    assert_eq!(conflict.status, 4, "{conflict:?}");
    assert!(!format!("{conflict:?}").contains("secret"), "{conflict:?}");
    for how in ["--theirs", "--theirs /roots", "--text --theirs", "--ranges --theirs"] {
        marram(&bench, ANN, &format!("merge {fork} {how}")).refused(12, &["/ann/roots: write"]);
    }
    let marks = marram(&bench, ANN, &format!("merge {fork} --markers"));
    assert!(marks.status != 0, "{marks:?}");
    let told = shell(&bench, ANN, &format!("cat {fork}/roots"));
    assert!(told.status != 0 && !told.out.contains("secret"), "{told:?}");
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/roots")).unwrap(), "secret of today\n");
}

#[test]
fn a_user_has_versions_of_what_is_open_in_each_state() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/dir", ANN, 0o755, None);
    owned(&bench, "mnt/ann/dir/f", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/shut", 0, 0o700, None);
    owned(&bench, "mnt/ann/shut/f", ANN, 0o644, Some("shut one\n"));
    bench.run("snapshot mnt@first").good();
    shell(&bench, ANN, "echo two > mnt/ann/dir/f").good();
    fs::write(bench.path("mnt/ann/shut/f"), "shut two\n").unwrap();
    bench.run("snapshot mnt@second").good();
    let told = marram(&bench, ANN, "versions mnt/ann/dir/f").good().out;
    assert!(told.contains("first") && told.contains("content"), "{told}");
    // Bob looks at it too, since all may; what is closed is for root alone.
    marram(&bench, BOB, "versions mnt/ann/dir/f").good();
    let shut = "versions mnt/ann/shut/f";
    assert!(bench.run(shut).good().out.contains("first"));
    let told = marram(&bench, ANN, shut);
    assert!(told.status != 0 && !told.out.contains("first"), "{told:?}");
    // Open now, and closed in the past.
    fs::set_permissions(bench.path("mnt/ann/shut"), PermissionsExt::from_mode(0o755)).unwrap();
    let told = marram(&bench, ANN, shut).good().out;
    assert!(!told.contains("first") && !told.contains("second"), "{told}");
    for line in ["rollback mnt/ann/shut/f@first", "rollback mnt/ann/shut@first"] {
        marram(&bench, ANN, line).refused(10, &["closed to you"]);
    }
    let told = marram(&bench, ANN, "diff mnt/ann/shut/f@first --patch");
    assert!(!told.out.contains("shut one"), "{told:?}");
    // Counted is what is in directories that can be listed.
    fs::set_permissions(bench.path("mnt/ann/shut"), PermissionsExt::from_mode(0o711)).unwrap();
    bench.run("snapshot mnt@third").good();
    fs::write(bench.path("mnt/ann/shut/f"), "shut three\n").unwrap();
    fs::write(bench.path("mnt/ann/shut/g"), "").unwrap();
    let whole = "versions mnt/ann/shut --json";
    assert!(bench.run(whole).good().out.contains("\"below\""));
    assert!(!marram(&bench, ANN, whole).good().out.contains("\"below\""));
}

#[test]
fn a_single_file_goes_back_within_the_rights_of_the_user() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/own", ANN, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/roots", 0, 0o644, Some("one\n"));
    owned(&bench, "mnt/ann/gone", ANN, 0o644, Some("gone\n"));
    owned(&bench, "mnt/ann/given", 0, 0o600, Some("was root's\n"));
    bench.run("snapshot mnt@first").good();
    shell(&bench, ANN, "echo two > mnt/ann/own && rm mnt/ann/gone").good();
    fs::write(bench.path("mnt/ann/roots"), "two\n").unwrap();
    chown(bench.path("mnt/ann/given"), Some(ANN), Some(ANN)).unwrap();
    fs::write(bench.path("mnt/ann/given"), "is Ann's\n").unwrap();
    for name in ["own", "gone"] {
        marram(&bench, ANN, &format!("rollback mnt/ann/{name}@first")).good();
    }
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/own")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/gone")).unwrap(), "gone\n");
    marram(&bench, ANN, "undo mnt").good();
    assert!(!bench.path("mnt/ann/gone").exists());
    marram(&bench, ANN, "rollback mnt/ann/roots@first").refused(12, &["/ann/roots: write"]);
    marram(&bench, ANN, "rollback mnt/ann/given@first").refused(12, &["give it to user 0"]);
    shell(&bench, ANN, "echo three > mnt/ann/own").good();
    marram(&bench, BOB, "rollback mnt/ann/own@first").refused(12, &["/ann/own"]);
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/given")).unwrap(), "is Ann's\n");
}

#[test]
fn the_status_names_no_dataset_that_is_out_of_sight() {
    let Some(bench) = shared() else { return };
    bench.run("snapshot mnt@first").good();
    bench.run("clone mnt@first hidden").good();
    bench.run("set mnt snapshots=1h:2").good();
    bench.run("set mnt snapshots=1h:2 --dataset hidden").good();
    let line = "status mnt --json";
    assert!(bench.run(line).good().out.contains("\"hidden\""));
    let told = marram(&bench, ANN, line).good().out;
    assert!(told.contains("1h:2") && !told.contains("hidden"), "{told}");
}
