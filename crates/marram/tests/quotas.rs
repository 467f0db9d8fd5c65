//! Quotas as their commands tell and set them.

mod workbench;

use serde_json::json;
use workbench::Workbench;

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
