//! The versions of one file or directory, and its way back, also of what was removed, as users see
//! them.

use crate::workbench;
use crate::workbench::Workbench;
use serde_json::Value;
use std::fs;

/// A mount with two snapshots, `a` and `b`, between which one file changes.
fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    write(&bench, "mnt/src/main.c", "one\n");
    write(&bench, "mnt/src/lib/b", "b\n");
    write(&bench, "mnt/other", "o\n");
    bench.run("snapshot mnt@a").good();
    write(&bench, "mnt/src/main.c", "two, longer\n");
    bench.run("snapshot mnt@b").good();
    Some(bench)
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).unwrap()
}

fn write(bench: &Workbench, path: &str, text: &str) {
    fs::write(bench.path(path), text).unwrap();
}

fn versions(bench: &Workbench, path: &str) -> Vec<Value> {
    let result = bench.run(&format!("versions {path} --json")).result();
    result["versions"].as_array().unwrap().clone()
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn a_file_that_was_removed_is_found_and_comes_back_and_undo_takes_that_back() {
    let Some(bench) = mounted() else { return };
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    write(&bench, "mnt/other", "changed beside\n");
    let told = bench.run("versions mnt/src/main.c").good().out;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[1].starts_with("now") && lines[1].contains("removed"), "{told}");
    assert!(lines[2].starts_with("b ") && lines[2].contains("content"), "{told}");
    assert!(lines[3].starts_with("a "), "{told}");
    assert!(told.contains("marram rollback mnt/src/main.c@b"), "{told}");

    let told = bench.run("diff mnt/src/main.c@b").good().out;
    assert!(told.contains("D /src/main.c"), "{told}");
    bench.run("rollback mnt/src/main.c@b").good();
    assert_eq!(read(&bench, "mnt/src/main.c"), "two, longer\n");
    assert!(!bench.path("mnt/src/lib").exists(), "only the file comes back");
    assert_eq!(read(&bench, "mnt/other"), "changed beside\n");
    bench.run("rollback mnt/src/main.c@a").good();
    assert_eq!(read(&bench, "mnt/src/main.c"), "one\n");
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/main.c"), "two, longer\n");
    bench.run("rollback mnt/src@a").good();
    assert_eq!(read(&bench, "mnt/src/lib/b"), "b\n");
    assert_eq!(read(&bench, "mnt/other"), "changed beside\n");
    end(&bench);
}

#[test]
fn versions_of_a_file_are_told_once_each_for_programs_too() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@c").good();
    write(&bench, "mnt/src/main.c", "three\n");
    let rows = versions(&bench, "mnt/src/main.c");
    let all: Vec<(&Value, &Value)> = rows.iter().map(|row| (&row["now"], &row["size"])).collect();
    let wanted: [(Value, Value); 3] =
        [(true.into(), 6.into()), (false.into(), 12.into()), (false.into(), 4.into())];
    assert_eq!(all, wanted.iter().map(|(now, size)| (now, size)).collect::<Vec<_>>());
    assert_eq!(rows[1]["snapshots"], serde_json::json!(["c", "b"]));
    assert_eq!((&rows[1]["change"], &rows[2]["change"]), (&"changed".into(), &"oldest".into()));
    assert_eq!(versions(&bench, "mnt/other").len(), 1);
    let rows = versions(&bench, "mnt/src");
    assert_eq!(rows[0]["below"], serde_json::json!([0, 0, 1]));
    // A whole dataset, by its mount or by its pool.
    assert_eq!(versions(&bench, "mnt").len(), 3);
    bench.run("unmount work.pool").good();
    assert_eq!(versions(&bench, "work.pool").len(), 3);
}

#[test]
fn a_single_file_is_compared_with_what_it_was() {
    let Some(bench) = mounted() else { return };
    write(&bench, "mnt/src/lib/b", "changed too\n");
    assert_eq!(bench.run("diff mnt/src/main.c@b").good().out, "");
    let told = bench.run("diff mnt/src/main.c@a").good().out;
    assert!(told.starts_with("M /main.c\n") && !told.contains("lib"), "{told}");
    let patch = bench.run("diff mnt/src/main.c@a mnt/src/main.c@b --patch").good().out;
    assert!(patch.contains("-one\n+two, longer\n"), "{patch}");
    end(&bench);
}

#[test]
fn what_never_was_and_what_is_no_place_of_a_dataset_is_refused() {
    let Some(bench) = mounted() else { return };
    for verb in ["versions mnt/never", "versions mnt/src/never/x", "diff mnt/never@a"] {
        bench.run(verb).refused(10, &["never", "nor does a snapshot have it"]);
    }
    bench.run("rollback mnt/never@a").refused(10, &["never", "was not there in root@a"]);
    bench.run("rollback mnt/src/main.c@none").refused(10, &["root@none"]);
    bench.run("versions mnt/.marram/snapshots/a/src").refused(2, &["in the snapshot root@a"]);
    let outside = bench.path("elsewhere");
    bench.run(&format!("versions {}", outside.display())).refused(10, &["not inside a mounted"]);
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    write(&bench, "mnt/src", "a file in its place\n");
    bench.run("rollback mnt/src/main.c@a").refused(1, &["a file is", "move that file away"]);
    assert_eq!(read(&bench, "mnt/src"), "a file in its place\n");
    bench.run("rollback mnt/src@a").good();
    assert_eq!(read(&bench, "mnt/src/main.c"), "one\n");
    end(&bench);
}
