//! `marram space --files`: what each file takes, and what deleting it would give back.

use crate::workbench::{Workbench, mounted};
use serde_json::Value;
use std::fs;

/// Bytes that do not compress, and that repeat nowhere.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Referenced and unique bytes of a row.
fn row(report: &Value, path: &str) -> (u64, u64) {
    let rows = report["files"].as_array().unwrap();
    let row = rows.iter().find(|row| row["path"] == path);
    let row = row.unwrap_or_else(|| panic!("{path} is missing: {report}"));
    (row["referenced_bytes"].as_u64().unwrap(), row["unique_bytes"].as_u64().unwrap())
}

fn is_about(bytes: u64, wanted: u64) -> bool {
    (wanted..=wanted + wanted / 16 + 8192).contains(&bytes)
}

fn bench_with_files() -> Option<Workbench> {
    let bench = mounted()?;
    bench.make_folder("mnt/d/e");
    let write = |name: &str, seed| fs::write(bench.path(name), noise(seed, 2_000_000)).unwrap();
    write("mnt/kept", 1);
    bench.run("snapshot mnt@s").good();
    write("mnt/alone", 2);
    write("mnt/d/copied", 3);
    bench.run("sync mnt").good();
    bench.run("reflink mnt/d/copied mnt/d/e/copy").good();
    fs::write(bench.path("mnt/d/e/own"), noise(4, 500_000)).unwrap();
    fs::hard_link(bench.path("mnt/d/e/own"), bench.path("mnt/d/linked")).unwrap();
    Some(bench)
}

#[test]
fn each_file_is_told_with_what_deleting_it_gives_back() {
    let Some(bench) = bench_with_files() else { return };
    let report = bench.run("space mnt --files --depth 9 --json").result();
    let (referenced, unique) = row(&report, "kept");
    assert!(is_about(referenced, 2_000_000) && unique == 0, "a snapshot has it: {report}");
    let (referenced, unique) = row(&report, "alone");
    assert!(is_about(referenced, 2_000_000) && unique == referenced, "{report}");
    for copy in ["d/copied", "d/e/copy"] {
        let (referenced, unique) = row(&report, copy);
        assert!(is_about(referenced, 2_000_000) && unique == 0, "another one has it: {report}");
    }
    assert_eq!(row(&report, "d/linked").1, 0, "it has another name: {report}");
    let (referenced, unique) = row(&report, "d");
    assert!(is_about(referenced, 2_500_000) && unique == referenced, "{report}");
    assert!(is_about(row(&report, "d/e").0, 2_500_000) && row(&report, "d/e").1 == 0, "{report}");
    let before = used(&bench);
    fs::remove_dir_all(bench.path("mnt/d")).unwrap();
    // Names and records go too, and what is deleted goes in the background.
    let wanted = before - unique + 100_000;
    let began = std::time::Instant::now();
    while used(&bench) > wanted {
        assert!(began.elapsed().as_secs() < 120, "{} after {before}: {report}", used(&bench));
        bench.run("sync mnt").good();
    }
    bench.run("unmount mnt").good();
    let offline = bench.run("space work.pool --files --json").result();
    assert_eq!(row(&offline, "alone"), row(&report, "alone"));
}

fn used(bench: &Workbench) -> u64 {
    bench.run("status work.pool --json").result()[0]["allocated_bytes"].as_u64().unwrap()
}

#[test]
fn a_directory_and_the_greatest_are_told_alone() {
    let Some(bench) = bench_with_files() else { return };
    let text = bench.run("space mnt/d --files --no-header").good().out;
    let paths: Vec<&str> = text.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(paths, ["mnt/d/", "mnt/d/copied", "mnt/d/e/", "mnt/d/linked"]);
    let text = bench.run("space mnt --files --top 3 --no-header").good().out;
    let paths: Vec<&str> = text.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(paths, ["mnt/", "mnt/d/", "mnt/alone"]);
    let past = bench.run("space mnt@s --files --json").result();
    assert_eq!(row(&past, "kept").1, 0, "what is in a snapshot cannot be deleted");
    let again = bench.run("space mnt/.marram/snapshots/s --files --json").result();
    assert_eq!(again["files"], past["files"]);
    bench.run("space mnt/alone --files").refused(2, &["is no directory", "that it is in"]);
    bench.run("space mnt mnt/d --files").refused(2, &["one directory"]);
    bench.run("space mnt --top 3").refused(2, &["--files"]);
}
