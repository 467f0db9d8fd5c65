//! Quotas as their commands tell and set them.

use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use serde_json::json;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;

#[test]
fn limits_are_set_told_and_taken_away() {
    let bench = Workbench::with_pool();
    let row = |words: &str| bench.run(&format!("--json quota work.pool {words}")).result();
    let own = row("");
    assert_eq!(own.as_array().unwrap().len(), 2, "user and group of the root directory: {own}");
    assert_eq!(own[0]["inodes"], 1);
    let set = row("--user 4711 --bytes 10G --inodes 1000");
    let expected = json!([{
        "class": "user", "id": 4711, "name": null,
        "bytes": 0, "bytes_limit": 10_u64 << 30, "inodes": 0, "inodes_limit": 1000,
    }]);
    assert_eq!(set, expected);
    assert_eq!(row("--user 4711 --bytes none")[0]["inodes_limit"], 1000, "the other one stays");
    bench.run("snapshot work.pool@kept").good();
    row("--user 4711 --inodes none");
    assert_eq!(row("").as_array().unwrap().len(), 2);
    row("--project 7 --bytes 5M");
    let table = bench.run("quota work.pool -H -p --project 7").good().out;
    assert_eq!(table, "project\t7\t-\t0\t5242880\t0\tnone\n");
}

#[test]
fn what_makes_no_sense_is_refused_with_advice() {
    let bench = Workbench::with_pool();
    bench.run("quota work.pool --bytes 10G").refused(2, &["--user"]);
    bench.run("quota work.pool --user 0 --bytes 10G").refused(2, &["user 0"]);
    bench.run("quota work.pool --user root --group root").refused(2, &["--group"]);
    bench.run("quota work.pool --user no.such.user --bytes 1G").refused(10, &["no.such.user"]);
    bench.run("quota work.pool --user 5 --bytes much").refused(2, &["much"]);
    bench.run("quota work.pool --user 5 --inodes 1K").refused(2, &["1K"]);
    bench.run("quota work.pool -d other").refused(10, &["other"]);
    bench.run("set work.pool quota=much").refused(2, &["quota=much", "10G"]);
    bench.run("set work.pool reservation=100G").refused(2, &["reservation", "free"]);
}

#[test]
fn quota_and_reservation_are_properties() {
    let bench = Workbench::with_pool();
    bench.run("set work.pool quota=64M reservation=16M").good();
    let text = bench.run("get work.pool quota reservation -H").good().out;
    let values: Vec<_> = text.lines().map(|line| line.split('\t').nth(2).unwrap()).collect();
    assert_eq!(values, ["64.0M", "16.0M"]);
    bench.run("set work.pool --default quota --default reservation").good();
    let text = bench.run("get work.pool quota -H").good().out;
    assert!(text.contains("none\tdefault"), "{text}");
}

/// Runs `marram quota mnt` with `words` as an ordinary user.
fn quota_as_user(bench: &Workbench, words: &[&str]) -> Outcome {
    let mut command = bench.command_for_others();
    command.args(["quota", "mnt", "-H", "-p"]).args(words);
    outcome(command.uid(65534).gid(65534))
}

#[test]
fn an_ordinary_user_is_told_of_himself_on_a_mount_of_roots() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    fs::write(bench.path("mnt/own"), [7; 5000]).unwrap();
    chown(bench.path("mnt/own"), Some(65534), Some(65534)).unwrap();
    bench.run("quota mnt --user 65534 --bytes 1M").good();
    let fields = |words: &[&str]| -> Vec<Vec<String>> {
        let out = quota_as_user(&bench, words).good().out;
        let fields = |line: &str| line.split('\t').map(str::to_owned).collect();
        out.lines().map(fields).collect()
    };
    let own = fields(&[]);
    assert_eq!(own.len(), 2, "user and group: {own:?}");
    assert_eq!((own[0][0].as_str(), own[0][1].as_str()), ("user", "65534"));
    assert_eq!(own[0][3..], ["8192", "1048576", "1", "none"]);
    assert_eq!(own[1][3..], ["8192", "none", "1", "none"]);
    assert_eq!(fields(&["--user", "65534"]).len(), 1);
    quota_as_user(&bench, &["--user", "0"]).refused(1, &["themselves"]);
    quota_as_user(&bench, &["--project", "7"]).refused(1, &["themselves"]);
    quota_as_user(&bench, &["--user", "65534", "--bytes", "2M"]).refused(12, &["user 65534"]);
    bench.run("unmount mnt").good();
}

#[test]
fn a_preview_of_a_merge_foresees_a_quota() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    bench.make_folder("mnt/d");
    bench.run("fork mnt/d work").good();
    let file = bench.path("mnt/.marram/forks/work/large");
    fs::write(&file, vec![1; 1_000_000]).unwrap();
    chown(&file, Some(4711), Some(4711)).unwrap();
    bench.run("merge mnt --fork work --preview").good();
    bench.run("quota mnt --user 4711 --bytes 500K").good();
    let told = bench.run("merge mnt --fork work --preview");
    assert!(told.status == 1 && told.out.contains("quota exceeded"), "{told:?}");
    assert!(told.out.contains("large"), "what would go is told all the same: {told:?}");
    let told = bench.run("merge mnt --fork work --preview --json").envelope()["result"].clone();
    assert!(told["obstacle"].as_str().unwrap().contains("quota"), "{told}");
    bench.run("merge mnt --fork work").refused(1, &["quota"]);
    assert!(!bench.path("mnt/d/large").exists());
    bench.run("quota mnt --user 4711 --bytes none").good();
    bench.run("merge mnt --fork work --preview").good();
    bench.run("merge mnt --fork work").good();
    assert_eq!(fs::metadata(bench.path("mnt/d/large")).unwrap().len(), 1_000_000);
    bench.run("unmount mnt").good();
}
