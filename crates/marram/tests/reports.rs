//! What commands tell of folders and files whose names are any bytes.

use crate::workbench::{Outcome, Workbench, can_mount, mounted, outcome};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Two names that differ only in a byte that is no UTF-8; both would clear a line of a terminal.
const NAMES: [&[u8]; 2] = [b"a\x1b[2K\n\xfe", b"a\x1b[2K\n\xff"];

/// Runs the program with the words of `line` and one more of any bytes.
fn run_with(bench: &Workbench, line: &str, word: &[u8]) -> Outcome {
    let words = line.split_whitespace().map(OsString::from);
    outcome(bench.command().args(words).arg(OsStr::from_bytes(word)))
}

/// Makes the pool with a file of each name, and damages the content of both.
fn damage_both(bench: &Workbench) {
    bench.run("create work.pool --size 128M -O compression=off -O recordsize=64K").good();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    let content = |seed: u32| -> Vec<u8> {
        (0..1_u32 << 14).flat_map(|word| (word * 77 + seed).to_le_bytes()).collect()
    };
    for (seed, name) in (0..).zip(NAMES) {
        fs::write(bench.path("mnt").join(OsStr::from_bytes(name)), content(seed))
            .expect("it is written");
    }
    bench.run("unmount mnt").good();
    let mut pool = fs::read(bench.path("work.pool")).expect("it is read");
    for seed in 0..2 {
        let sought = &content(seed)[100..164];
        let at = pool.windows(64).position(|bytes| bytes == sought).expect("stored as it is");
        pool[at] ^= 1;
    }
    fs::write(bench.path("work.pool"), &pool).expect("it is written");
}

#[test]
fn damage_is_told_of_each_file_in_a_line_whatever_its_name() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    damage_both(&bench);
    for report in [bench.run("check work.pool --data"), bench.run_as("fsck.marram", "work.pool")] {
        assert!(!report.out.contains('\x1b'), "{report:?}");
    }
    let findings = bench.run("check work.pool --data").out;
    assert!(findings.contains("xfe") && findings.contains("xff"), "{findings}");
    let report = bench.run("check work.pool --data --json").envelope()["result"].clone();
    let rows = report["findings"].as_array().unwrap();
    let bytes: Vec<&str> = rows.iter().filter_map(|row| row["path_bytes"].as_str()).collect();
    assert_eq!(bytes, ["2f611b5b324b0afe", "2f611b5b324b0aff"], "{report}");

    bench.run("mount work.pool mnt").good();
    for name in NAMES {
        assert!(fs::read(bench.path("mnt").join(OsStr::from_bytes(name))).is_err());
    }
    let told = bench.run("status mnt").out;
    for place in [r#"root:"/a\033[2K\n\376""#, r#"root:"/a\033[2K\n\377""#] {
        assert!(told.contains(place), "{told}");
    }
    bench.run("unmount mnt").good();
    let log = bench.log();
    assert!(log.contains(r"\376") && log.contains(r"\377") && !log.contains('\x1b'), "{log}");
}

#[test]
fn quotas_are_told_of_a_directory_of_any_name() {
    let Some(bench) = mounted() else { return };
    fs::create_dir(bench.path("mnt").join(OsStr::from_bytes(b"d\xff"))).unwrap();
    run_with(&bench, "quota", b"mnt/d\xff").good();
    bench.run("unmount work.pool").good();
}

#[test]
fn what_json_cannot_tell_is_refused_before_anything_is_written() {
    let bench = Workbench::new();
    for line in ["manual --json", "install --json --root"] {
        run_with(&bench, line, b"out\xff").refused(2, &["UTF-8", "--json"]);
        assert!(!bench.path(".").join(OsStr::from_bytes(b"out\xff")).exists(), "{line}");
    }
    run_with(&bench, "manual", b"out\xff").good();
}
