//! Snapshots that the daemon takes by itself, as users see them.

use crate::workbench;
use crate::workbench::Workbench;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// How long a snapshot that is due may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The names of the snapshots of the root dataset that the daemon has taken.
fn automatic(bench: &Workbench) -> Vec<String> {
    let lists = bench.run("list mnt --json").result();
    let rows = lists[0]["datasets"].as_array().unwrap().clone();
    let name = |row: Value| row["name"].as_str().unwrap().to_owned();
    let names = rows.into_iter().map(name);
    names
        .filter_map(|name| name.strip_prefix("root@auto:").map(|it| format!("auto:{it}")))
        .collect()
}

/// Waits until there are that many; returns the first.
fn wait_for(bench: &Workbench, count: usize) -> String {
    let began = Instant::now();
    loop {
        let names = automatic(bench);
        if names.len() >= count {
            return names[0].clone();
        }
        assert!(began.elapsed() < PATIENCE, "{names:?}: {}", bench.log());
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_mount_takes_snapshots_by_itself_and_they_are_in_nobodys_way() {
    let Some(bench) = workbench::mounted() else { return };
    bench.run("set mnt snapshots=1d:2,3w:3").good();
    let got = bench.run("get mnt snapshots -H").good().out;
    assert_eq!(got.trim(), "root\tsnapshots\t1d:2,3w:3\tlocal");
    fs::write(bench.path("mnt/a"), "one\n").unwrap();
    let name = wait_for(&bench, 1);
    let shown = format!("mnt/.marram/snapshots/{name}/a");
    assert_eq!(fs::read_to_string(bench.path(&shown)).unwrap(), "one\n");
    let told = bench.run("status mnt").good().out;
    assert!(told.contains("snapshots:    root by 1d:2,3w:3: 1 there"), "{told}");
    let row = bench.run("status mnt --json").result()[0]["snapshots"][0].clone();
    assert_eq!((&row["newest"], &row["count"]), (&name.as_str().into(), &1.into()));
    let log = bench.run("log mnt").good().out;
    assert!(!log.contains("auto:"), "users have not done it: {log}");

    bench.run("snapshot mnt@auto:mine").refused(2, &["auto:mine", "does not begin with auto:"]);
    bench.run("snapshot mnt@mine").good();
    bench.run("rename mnt@mine auto:mine").refused(2, &["auto:mine", "does not begin with auto:"]);
    bench.run(&format!("rename mnt@{name} before")).good();
    bench.run("undo mnt").good();
    assert!(automatic(&bench).contains(&name), "it has its name again");
    bench.run("unmount work.pool").good();
    let told = bench.run("status work.pool").good().out;
    assert!(told.contains("none while the pool is not mounted for writing"), "{told}");
    bench.run("check work.pool --data").good();
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_and_changes_nothing() {
    let bench = Workbench::with_pool();
    bench.run("set work.pool snapshots=1h:3").good();
    for rule in ["hourly", "15m", "15m:0", "5s:9", "1h:3,60m:2", ""] {
        let words = ["snapshots", "15m:8,1h:24,1d:7"];
        bench.run(&format!("set work.pool snapshots={rule}")).refused(2, &words);
    }
    let got = bench.run("get work.pool snapshots -H").good().out;
    assert_eq!(got.trim(), "root\tsnapshots\t1h:3\tlocal");
    bench.run("set work.pool --default snapshots").good();
    let got = bench.run("get work.pool snapshots -H").good().out;
    assert_eq!(got.trim(), "root\tsnapshots\toff\tdefault");
}
