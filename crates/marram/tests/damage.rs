//! Damage stays known until what was damaged can be read again, or is gone; each is named once.

use crate::workbench::{Workbench, can_mount};
use serde_json::Value;
use std::fs;

/// A pool with two files, `a` and `b`, of one damaged block each, mounted on `mnt`.
fn damaged() -> Option<(Workbench, Vec<u8>)> {
    if !can_mount() {
        return None;
    }
    let bench = Workbench::new();
    bench.run("create work.pool --size 128M -O compression=off -O recordsize=64K").good();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    let content = |seed: u32| -> Vec<u8> {
        (0..1_u32 << 14).flat_map(|word| (word * 77 + seed).to_le_bytes()).collect()
    };
    for (seed, name) in (0..).zip(["a", "b"]) {
        fs::write(bench.path("mnt").join(name), content(seed)).unwrap();
    }
    bench.run("unmount mnt").good();
    let whole = fs::read(bench.path("work.pool")).unwrap();
    let mut bytes = whole.clone();
    for seed in 0..2 {
        let sought = &content(seed)[100..164];
        let at = whole.windows(64).position(|bytes| bytes == sought).expect("stored as it is");
        bytes[at] ^= 1;
    }
    fs::write(bench.path("work.pool"), &bytes).unwrap();
    bench.run("mount work.pool mnt").good();
    Some((bench, whole))
}

fn places(bench: &Workbench, target: &str) -> (i32, Vec<String>) {
    let status = bench.run(&format!("status {target} --json"));
    let rows = status.envelope()["result"][0]["damage"].as_array().expect("rows").clone();
    let place = |row: &Value| row["place"].as_str().expect("a place").to_owned();
    (status.status, rows.iter().map(place).collect())
}

#[test]
fn what_is_damaged_is_named_once_and_stays_known() {
    let Some((bench, whole)) = damaged() else { return };
    assert_eq!(places(&bench, "mnt"), (0, Vec::new()), "nobody has read it");
    for name in ["mnt/a", "mnt/b"] {
        assert!(fs::read(bench.path(name)).is_err());
    }
    let both = (3, vec!["root:/a".to_owned(), "root:/b".to_owned()]);
    assert_eq!(places(&bench, "mnt"), both, "each once, by its name");
    bench.run("unmount mnt").good();
    assert_eq!(places(&bench, "work.pool"), both, "nobody has read it again");
    let said = bench.run("mount work.pool mnt").good().err;
    assert!(said.contains("damaged places in files are known: 2"), "{said}");
    assert!(bench.log().contains("damaged places in files are known: 2"));
    assert_eq!(places(&bench, "mnt"), both);
    assert!(fs::read(bench.path("mnt/a")).is_err());
    assert_eq!(places(&bench, "mnt"), both);
    // What is gone is forgotten, and so is what can be read again.
    fs::remove_file(bench.path("mnt/a")).unwrap();
    bench.run("sync mnt").good();
    bench.run("unmount mnt").good();
    assert_eq!(places(&bench, "work.pool"), (3, both.1[1..].to_vec()));
    fs::write(bench.path("work.pool"), whole).unwrap();
    assert_eq!(places(&bench, "work.pool"), (0, Vec::new()));
    let said = bench.run("mount work.pool mnt").good().err;
    assert_eq!(said, "");
    bench.run("unmount mnt").good();
}
