//! What `marram diff --patch` and `--stat` tell where files were saved as editors do: by a new file
//! that takes the old one's name.

mod workbench;

use std::fs;
use std::process::Command;
use workbench::Workbench;

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

/// Has patch(1), if it is there, apply what is told to a copy of one tree: it is the other then.
fn applies(bench: &Workbench, told: &str, from: &str, to: &str) {
    if Command::new("patch").arg("--version").output().is_err() {
        eprintln!("skipped: there is no patch(1)");
        return;
    }
    fs::write(bench.path("told"), told).expect("written");
    let line = format!(
        "rm -rf copy && cp -r {from} copy && patch -s -p1 -d copy <told && \
         diff -r -x binary copy {to}"
    );
    bench.host(&["sh", "-c", &line]).good();
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
        told.contains("M /saved (another file has its name)\n--- a/saved\n+++ b/saved\n"),
        "{told}"
    );
    assert!(told.contains(" one\n-two\n+TWO\n three\n"), "{told}");
    assert_eq!(told.matches("TWO").count(), 1, "not all of both files: {told}");
    assert!(told.contains("M /binary (another file has its name)\nM /edited\n"), "{told}");
    applies(&bench, &told, "mnt/.marram/snapshots/s/d", "mnt/d");
    let stat = bench.run("diff mnt/d@s --stat").good().out;
    assert!(stat.contains("/saved | another file has its name\n"), "{stat}");
    assert!(stat.contains("\n5 differences, "), "{stat}");
    let json = bench.run("diff mnt/d@s --patch --json").result();
    let rows = json["differences"].as_array().unwrap().iter();
    let saved: Vec<_> = rows.filter(|row| row["path"] == "/saved").collect();
    assert_eq!((&saved[0]["change"], &saved[1]["change"]), (&"removed".into(), &"created".into()));
    assert!(saved[0]["patch"].is_null() && saved[1]["patch"].is_string(), "{json}");

    // Backwards it is the older file that comes, whose number is the smaller one.
    let back = bench.run("diff mnt/d mnt/d@s --patch").good().out;
    assert!(back.contains("M /saved (another file has its name)\n"), "{back}");
    assert!(back.contains(" one\n-TWO\n+two\n three\n"), "{back}");
    applies(&bench, &back, "mnt/d", "mnt/.marram/snapshots/s/d");
    let lines = bench.run("diff mnt/d mnt/d@s").good().out;
    assert!(lines.contains("M /saved (another file has its name)\n"), "{lines}");
    assert!(!lines.contains("A /saved") && !lines.contains("D /saved"), "{lines}");
    bench.run("unmount work.pool").good();
}
