//! Deduplication as users see it: `marram dedup`, `dedup=on`, and the report of the savings.

use crate::workbench::{Workbench, mounted};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

/// How long the daemon may take to look at what was written, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

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

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The row of a dataset in the report of sharing.
fn sharing_of(report: &Value, name: &str) -> Value {
    let rows = report["datasets"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap().clone()
}

#[test]
fn equal_files_of_all_datasets_share_their_blocks_and_keep_what_users_see() {
    let Some(bench) = mounted() else { return };
    bench.run("create work.pool --dataset other").good();
    bench.make_folder("mnt2");
    bench.run("mount work.pool mnt2 --dataset other").good();
    let content = noise(1, 3_000_000);
    let files = ["mnt/one", "mnt/d/two", "mnt2/three"];
    bench.make_folder("mnt/d");
    files.iter().for_each(|file| fs::write(bench.path(file), &content).unwrap());
    fs::write(bench.path("mnt/odd"), &content[1..]).unwrap();
    let before = files.map(|file| fs::metadata(bench.path(file)).unwrap());

    let told = bench.run("dedup mnt mnt2 --dry-run --json").result();
    assert_eq!((number(&told["equal_bytes"]), number(&told["shared_bytes"])), (6_000_000, 0));
    let told = bench.run("dedup mnt mnt2 --json").result();
    assert_eq!(number(&told["shared_bytes"]), 6_000_000);
    assert_eq!((number(&told["files"]), number(&told["skipped"])), (4, 0));
    let freed = told["freed_bytes"].as_i64().unwrap();
    assert!((5_500_000..6_200_000).contains(&freed), "{told}");

    let after = files.map(|file| fs::metadata(bench.path(file)).unwrap());
    for (before, after) in before.iter().zip(&after) {
        let seen = |meta: &fs::Metadata| (meta.len(), meta.mtime_nsec(), meta.ctime_nsec());
        assert_eq!((seen(before), before.blocks()), (seen(after), after.blocks()));
    }
    let report = bench.run("space mnt --sharing --json").result();
    let root = sharing_of(&report, "root");
    assert_eq!(number(&root["content_bytes"]), 8_999_999);
    let saved = number(&root["unshared_bytes"]) - number(&root["stored_bytes"]);
    assert!((2_990_000..3_100_000).contains(&saved), "{report}");
    assert!((2_990_000..3_100_000).contains(&number(&report["between_bytes"])), "{report}");
    let text = bench.run("space mnt --sharing").good().out;
    assert!(text.contains("1.5") && text.contains("between datasets"), "{text}");

    let again = bench.run("dedup mnt mnt2").good().out;
    assert!(again.contains("stored twice: 0"), "{again}");
    fs::File::options().write(true).open(bench.path("mnt/one")).unwrap().write_at(b"x", 9).unwrap();
    for file in &files[1..] {
        assert!(fs::read(bench.path(file)).unwrap() == content, "{file}");
    }
    bench.run("unmount mnt").good();
    bench.run("unmount mnt2").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn a_pool_that_is_not_mounted_and_forks_can_be_deduplicated_too() {
    let Some(bench) = mounted() else { return };
    let content = noise(2, 1_000_000);
    bench.make_folder("mnt/d");
    fs::write(bench.path("mnt/d/one"), &content).unwrap();
    bench.run("fork mnt/d f").good();
    fs::write(bench.path("mnt/.marram/forks/f/two"), &content).unwrap();
    let told = bench.run("dedup mnt/d mnt/.marram/forks/f --json").result();
    assert_eq!(number(&told["shared_bytes"]), 1_000_000, "{told}");
    assert!(fs::read(bench.path("mnt/.marram/forks/f/two")).unwrap() == content);
    fs::write(bench.path("mnt/d/three"), &content).unwrap();
    bench.run("unmount mnt").good();
    let told = bench.run("dedup work.pool --json").result();
    assert_eq!((number(&told["shared_bytes"]), number(&told["files"])), (1_000_000, 2));
    bench.run("check work.pool --data").good();
}

#[test]
fn what_was_there_before_the_mount_is_shared_with_what_is_written() {
    let Some(bench) = mounted() else { return };
    bench.run("set mnt dedup=on").good();
    let content = noise(4, 2_000_000);
    fs::write(bench.path("mnt/one"), &content).unwrap();
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt").good();
    let wait_for = |what: &str, least: u64| {
        let told = || {
            let status = bench.run("status mnt --json").result();
            status[0]["daemon"]["dedup"][what].as_u64().unwrap_or(0)
        };
        let began = Instant::now();
        while told() < least {
            assert!(began.elapsed() < PATIENCE, "{what}: {} of {least}", told());
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    wait_for("hints", 16);
    fs::write(bench.path("mnt/two"), &content).unwrap();
    wait_for("shared_bytes", 2_000_000);
    assert!(fs::read(bench.path("mnt/one")).unwrap() == content);
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn what_cannot_be_deduplicated_is_refused_with_advice() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    bench.run("snapshot mnt@s").good();
    bench.run("create work.pool --dataset other").good();
    bench.run("dedup mnt/file").refused(2, &["mnt/file", "no directory"]);
    bench.run("dedup mnt/.marram/snapshots/s").refused(2, &["snapshot"]);
    bench.run("dedup mnt/.marram/snapshots/s --dry-run").good();
    bench.run("dedup mnt --dataset other").refused(11, &["other", "unmount"]);
    bench.run("create second.pool --size 64M").good();
    bench.run("dedup mnt second.pool").refused(2, &["another pool"]);
    bench.run("space mnt@s --sharing").refused(2, &["no snapshot"]);
    bench.run("set mnt dedup=maybe").refused(2, &["dedup", "on"]);
    bench.run("unmount mnt").good();
}

#[test]
fn what_is_written_where_it_is_wanted_is_shared_by_itself() {
    let Some(bench) = mounted() else { return };
    bench.run("set mnt dedup=on").good();
    let content = noise(3, 2_000_000);
    fs::write(bench.path("mnt/one"), &content).unwrap();
    fs::write(bench.path("mnt/two"), &content).unwrap();
    let shared = |bench: &Workbench| {
        let status = bench.run("status mnt --json").result();
        status[0]["daemon"]["dedup"]["shared_bytes"].as_u64().unwrap_or(0)
    };
    let began = Instant::now();
    while shared(&bench) < 2_000_000 {
        assert!(began.elapsed() < PATIENCE, "{} bytes are shared", shared(&bench));
        std::thread::sleep(Duration::from_millis(200));
    }
    let text = bench.run("status mnt").good().out;
    assert!(text.contains("dedup:"), "{text}");
    assert_eq!(number(&bench.run("dedup mnt --json").result()["equal_bytes"]), 0);
    for file in ["mnt/one", "mnt/two"] {
        assert!(fs::read(bench.path(file)).unwrap() == content);
    }
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn what_is_too_small_is_said_to_be_left_alone() {
    let Some(bench) = mounted() else { return };
    (0..3).for_each(|at| fs::write(bench.path(&format!("mnt/{at}")), noise(7, 1500)).unwrap());
    let told = bench.run("dedup mnt --json").result();
    assert_eq!((number(&told["short_bytes"]), number(&told["equal_bytes"])), (4500, 0), "{told}");
    let text = bench.run("dedup mnt --dry-run").good().out;
    assert!(text.contains("left alone:   4.39K in files"), "{text}");
    bench.run("unmount mnt").good();
}
