//! What `marram diff --patch` and `--stat` tell where files were saved as editors do: by a new file
//! that takes the old one's name; and that patch(1) and `git apply` make one state of the other.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::process::Command;

const OLD: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n";

fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/d");
    fs::write(bench.path("mnt/d/saved"), OLD).expect("written");
    fs::write(bench.path("mnt/d/edited"), OLD).expect("written");
    fs::write(bench.path("mnt/d/gone"), "gone\n").expect("written");
    fs::write(bench.path("mnt/d/binary"), [0, 1, 2]).expect("written");
    bench.run("snapshot mnt@s").good();
    Some(bench)
}

fn save(bench: &Workbench, path: &str, content: &[u8]) {
    fs::write(bench.path("mnt/saving"), content).expect("written");
    fs::rename(bench.path("mnt/saving"), bench.path(path)).expect("renamed");
}

/// Has patch(1) and `git apply`, as far as they are there, apply the patch to copies of one
/// tree: each is the other then.
fn applies(bench: &Workbench, told: &str, from: &str, to: &str) {
    fs::write(bench.path("told"), told).expect("written");
    let programs = [
        ("patch", "patch -s -f -p1 -d copy <told"),
        ("git", "(cd copy && GIT_CEILING_DIRECTORIES=\"${PWD%/*}\" git apply ../told)"),
    ];
    for (program, call) in programs {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {program}");
            continue;
        }
        let line =
            format!("rm -rf copy && cp -r {from} copy && {call} && diff -r -x binary copy {to}");
        let applied = bench.host(&["sh", "-c", &line]);
        assert_eq!(applied.status, 0, "{program}: {applied:?}\n{told}");
    }
}

/// What has changed since a snapshot leads there from it, and the other way round back to it.
#[track_caller]
fn applies_both_ways(bench: &Workbench, snapshot: &str) {
    let past = format!("mnt/.marram/snapshots/{snapshot}/d");
    let told = bench.run(&format!("diff mnt/d@{snapshot} --patch")).good().out;
    applies(bench, &told, &past, "mnt/d");
    let back = bench.run(&format!("diff mnt/d mnt/d@{snapshot} --patch")).good().out;
    applies(bench, &back, "mnt/d", &past);
}

#[test]
fn of_a_saved_file_the_lines_are_told_that_differ() {
    let Some(bench) = mounted() else { return };
    let new = OLD.replace("two", "TWO");
    save(&bench, "mnt/d/saved", new.as_bytes());
    save(&bench, "mnt/d/binary", &[0, 3, 4]);
    fs::write(bench.path("mnt/d/edited"), OLD.replace("seven", "SEVEN")).unwrap();
    fs::remove_file(bench.path("mnt/d/gone")).unwrap();
    fs::write(bench.path("mnt/d/made"), "made\n").unwrap();
    let told = bench.run("diff mnt/d@s --patch").good().out;
    assert!(
        told.contains(
            "M /saved\n\
             diff --git a/saved b/saved\n--- a/saved\n+++ b/saved\n"
        ),
        "{told}"
    );
    assert!(told.contains(" one\n-two\n+TWO\n three\n"), "{told}");
    assert_eq!(told.matches("TWO").count(), 1, "not all of both files: {told}");
    assert!(told.contains("M /binary\nM /edited\n"), "{told}");
    applies(&bench, &told, "mnt/.marram/snapshots/s/d", "mnt/d");
    let stat = bench.run("diff mnt/d@s --stat").good().out;
    assert!(stat.contains("/saved | 3 bytes differ, 40 -> 40\n"), "{stat}");
    assert!(stat.contains("/gone | removed, 5 bytes\n"), "{stat}");
    assert!(stat.ends_with("\n3 files modified, 1 created, 1 removed\n"), "{stat}");
    let json = bench.run("diff mnt/d@s --patch --json").result();
    let rows = json["differences"].as_array().unwrap().iter();
    let saved: Vec<_> = rows.filter(|row| row["path"] == "/saved").collect();
    assert_eq!(saved.len(), 1, "{json}");
    assert_eq!(saved[0]["change"], "content");
    assert_eq!(saved[0]["ranges"], serde_json::json!([[4, 7]]));
    assert!(saved[0]["patch"].is_string(), "{json}");
    assert_eq!(json["totals"]["files_modified"], 3);

    // Backwards it is the older file that comes, whose number is the smaller one.
    let back = bench.run("diff mnt/d mnt/d@s --patch").good().out;
    assert!(back.contains("M /saved\ndiff "), "{back}");
    assert!(back.contains(" one\n-TWO\n+two\n three\n"), "{back}");
    applies(&bench, &back, "mnt/d", "mnt/.marram/snapshots/s/d");
    let lines = bench.run("diff mnt/d mnt/d@s").good().out;
    assert!(lines.contains("M /saved\n"), "{lines}");
    assert!(!lines.contains("A /saved") && !lines.contains("D /saved"), "{lines}");
    bench.run("unmount work.pool").good();
}

/// Renames in the directory of the mount.
fn rename(bench: &Workbench, from: &str, to: &str) {
    let at = |name: &str| bench.path("mnt/d").join(name);
    fs::rename(at(from), at(to)).expect("renamed");
}

#[test]
fn after_a_rename_the_next_file_is_another_one() {
    let Some(bench) = mounted() else { return };
    rename(&bench, "edited", "README");
    bench.make_folder("mnt/d/src");
    fs::write(bench.path("mnt/d/src/main.rs"), "fn main() {}\n").unwrap();
    fs::remove_file(bench.path("mnt/d/gone")).unwrap();
    applies_both_ways(&bench, "s");
    // With nothing behind it a rename has an end, too.
    bench.run("snapshot mnt@t").good();
    rename(&bench, "README", "with a space");
    let told = bench.run("diff mnt/d@t --patch").good().out;
    assert!(told.ends_with("rename to \"with a space\"\n"), "{told}");
    applies(&bench, &told, "mnt/.marram/snapshots/t/d", "mnt/d");
    bench.run("unmount work.pool").good();
}

#[test]
fn a_name_may_be_taken_by_another_file() {
    let Some(bench) = mounted() else { return };
    for name in ["over", "under", "left", "right", "first in line", "second"] {
        fs::write(bench.path("mnt/d").join(name), format!("{name}\n{OLD}")).unwrap();
    }
    bench.run("snapshot mnt@t").good();
    rename(&bench, "saved", "where it is now");
    fs::write(bench.path("mnt/d/saved"), "a new one\n").unwrap();
    rename(&bench, "over", "under");
    rename(&bench, "left", "aside");
    rename(&bench, "right", "left");
    rename(&bench, "aside", "right");
    fs::write(bench.path("mnt/d/right"), format!("right\n{OLD}more\n")).unwrap();
    rename(&bench, "second", "third");
    rename(&bench, "first in line", "second");
    applies_both_ways(&bench, "t");
    bench.run("unmount work.pool").good();
}

#[test]
fn what_has_changed_in_a_directory_that_was_moved_is_moved() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/d/old/inner/deep");
    for name in ["one", "inner/two", "inner/deep/three"] {
        fs::write(bench.path("mnt/d/old").join(name), OLD).unwrap();
    }
    bench.run("snapshot mnt@t").good();
    rename(&bench, "old", "new place");
    rename(&bench, "new place/inner", "new place/within");
    for name in ["one", "within/two", "within/deep/three"] {
        fs::write(bench.path("mnt/d/new place").join(name), OLD.replace("two", name)).unwrap();
    }
    applies_both_ways(&bench, "t");
    bench.run("unmount work.pool").good();
}

#[test]
fn new_files_may_be_empty_and_programs() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/d/empty"), "").unwrap();
    fs::write(bench.path("mnt/d/program"), "#!/bin/sh\n").unwrap();
    bench.host(&["chmod", "755", "mnt/d/program"]).good();
    let told = bench.run("diff mnt/d@s --patch").good().out;
    assert_eq!(told.matches("new file mode 100755\n").count(), 1, "{told}");
    applies(&bench, &told, "mnt/.marram/snapshots/s/d", "mnt/d");
    // An empty file that went has its line, and is not in the patch: patch(1) would fail.
    let back = bench.run("diff mnt/d mnt/d@s --patch").good().out;
    assert!(back.contains("D /empty\n") && !back.contains("a/empty"), "{back}");
    bench.run("unmount work.pool").good();
}

#[test]
fn what_is_no_text_is_not_moved_with_its_old_content() {
    let Some(bench) = mounted() else { return };
    rename(&bench, "binary", "elsewhere");
    let told = bench.run("diff mnt/d@s --patch").good().out;
    assert!(told.contains("rename from binary\n"), "nothing else has changed: {told}");
    fs::write(bench.path("mnt/d/elsewhere"), [0, 5, 6, 7]).unwrap();
    let told = bench.run("diff mnt/d@s --patch").good().out;
    assert_eq!(told, "R /binary -> /elsewhere\nM /elsewhere\n");
    bench.run("unmount work.pool").good();
}
