//! Rewriting as users see it: `marram defragment`, and what a mounted pool does by itself.

use crate::workbench::{Workbench, can_mount, mounted};
use serde_json::Value;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant, SystemTime};

/// How long the daemon may take to come round, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(180);
const BYTES: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// Bytes that do not compress, and that repeat nowhere.
fn noise(seed: u64, len: u64) -> Vec<u8> {
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

/// Writes a file, and then every other page of it anew; last changed an hour ago.
fn crumble(bench: &Workbench, name: &str) -> Vec<u8> {
    let mut content = noise(1, BYTES);
    let file = File::create(bench.path(name)).unwrap();
    file.write_all_at(&content, 0).unwrap();
    bench.run("sync mnt").good();
    for page in (0..BYTES / PAGE).filter(|page| page % 2 == 1) {
        let data = noise(page, PAGE);
        file.write_all_at(&data, page * PAGE).unwrap();
        content[(page * PAGE) as usize..][..data.len()].copy_from_slice(&data);
    }
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    file.set_times(FileTimes::new().set_modified(hour_ago)).unwrap();
    drop(file);
    bench.run("sync mnt").good();
    content
}

fn sections(bench: &Workbench, name: &str) -> usize {
    let told = bench.run(&format!("extents {name} --json")).result();
    told.as_array().unwrap().len()
}

#[test]
fn crumbs_below_a_directory_are_brought_together() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/d");
    let content = crumble(&bench, "mnt/d/file");
    let before = fs::metadata(bench.path("mnt/d/file")).unwrap();
    assert!(sections(&bench, "mnt/d/file") > 256);

    let told = bench.run("defragment mnt --dry-run --json").result();
    assert_eq!((number(&told["files"]), number(&told["rewritten_bytes"])), (1, BYTES), "{told}");
    assert!(number(&told["extents_before"]) > 256, "{told}");
    assert!(sections(&bench, "mnt/d/file") > 256, "a look changes nothing");

    let told = bench.run("defragment mnt/d --json").result();
    assert_eq!(number(&told["rewritten_bytes"]), BYTES, "{told}");
    assert!(number(&told["extents_after"]) < 16, "{told}");
    assert!(told["freed_bytes"].as_i64().unwrap() > (BYTES / 3) as i64, "{told}");
    assert_eq!(sections(&bench, "mnt/d/file") as u64, BYTES >> 17);
    assert!(fs::read(bench.path("mnt/d/file")).unwrap() == content);
    let after = fs::metadata(bench.path("mnt/d/file")).unwrap();
    let seen =
        |meta: &fs::Metadata| (meta.len(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    assert_eq!((seen(&before), before.blocks()), (seen(&after), after.blocks()));
    let text = bench.run("defragment mnt").good().out;
    assert!(text.contains("written:     0"), "{text}");
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn what_a_snapshot_has_is_left_alone_and_told_and_a_pool_can_be_at_rest() {
    let Some(bench) = mounted() else { return };
    let content = crumble(&bench, "mnt/file");
    bench.run("snapshot mnt@kept").good();
    let unique =
        |bench: &Workbench| bench.run("space work.pool --json").result()["holders"].clone();
    let before = unique(&bench);
    let told = bench.run("defragment mnt --json").result();
    assert_eq!((number(&told["rewritten_bytes"]), number(&told["held_bytes"])), (0, BYTES));
    assert_eq!(unique(&bench), before);
    let text = bench.run("defragment mnt").good().out;
    assert!(text.contains("left alone:  2.00M that snapshots"), "{text}");
    bench.run("defragment mnt/.marram/snapshots/kept").refused(2, &["snapshot"]);
    bench.run("defragment mnt/file").refused(2, &["mnt/file", "no directory"]);
    bench.run("destroy snapshot --yes mnt@kept").good();
    // Nor may an undo of that be made impossible.
    bench.run("undo mnt").good();
    bench.run("destroy snapshot --yes mnt@kept").good();
    assert_eq!(number(&bench.run("defragment mnt --json").result()["rewritten_bytes"]), 0);
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt").good();
    assert!(fs::read(bench.path("mnt/file")).unwrap() == content);
    bench.run("unmount mnt").good();
    assert_eq!(number(&bench.run("defragment work.pool --json").result()["files"]), 1);
    bench.run("check work.pool --data").good();
}

#[test]
fn a_mounted_pool_brings_crumbs_together_by_itself_if_it_may() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt -o defragment=1").good();
    let content = crumble(&bench, "mnt/file");
    let began = Instant::now();
    let report = |bench: &Workbench| {
        bench.run("status mnt --json").result()[0]["daemon"]["rewriting"].clone()
    };
    while sections(&bench, "mnt/file") as u64 > BYTES >> 17 {
        assert!(began.elapsed() < PATIENCE, "{}", report(&bench));
        std::thread::sleep(Duration::from_millis(200));
    }
    while number(&report(&bench)["passes"]) == 0 {
        assert!(began.elapsed() < PATIENCE, "{}", report(&bench));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(number(&report(&bench)["rewritten_bytes"]) >= BYTES / 2);
    assert!(bench.run("status mnt").good().out.contains("rewriting:"));
    assert!(fs::read(bench.path("mnt/file")).unwrap() == content);
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
    bench.run("mount work.pool mnt -o defragment=off").good();
    assert_eq!(report(&bench), Value::Null);
    bench.run("unmount mnt").good();
}
