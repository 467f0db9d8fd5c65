//! Snapshots of many datasets, automatic ones and their thinning, and what holds the space.

use crate::workbench::{Workbench, can_mount};
use serde_json::Value;
use std::fs;

fn names(bench: &Workbench, target: &str) -> Vec<String> {
    let lists = bench.run(&format!("list {target} --json")).result();
    let rows = lists[0]["datasets"].as_array().expect("a list").clone();
    rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("text")).collect()
}

#[test]
fn a_snapshot_of_all_below_is_taken_at_once_or_not_at_all() {
    let bench = Workbench::with_pool();
    for dataset in ["home", "home/ann", "home/bob", "homes", "var"] {
        bench.run(&format!("create work.pool --dataset {dataset}")).good();
    }
    bench.run("fork work.pool spare").good();
    let made = bench.run("snapshot work.pool@a --dataset home --recursive --json").result();
    assert_eq!(texts(&made["names"]), ["home@a", "home/ann@a", "home/bob@a"]);
    assert_eq!(made["name"], "home@a");
    bench.run("snapshot work.pool@b --dataset home/bob").good();
    let before = names(&bench, "work.pool");
    bench.run("snapshot work.pool@b -d home -r").refused(1, &["home/bob@b"]);
    bench.run("snapshot work.pool@b -d none -r").refused(10, &["none"]);
    assert_eq!(names(&bench, "work.pool"), before, "one that is refused is none");
    let all = bench.run("snapshot work.pool@all --recursive").good().out;
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 6, "all datasets and no fork: {all}");
    assert!(lines.contains(&"created the snapshot root@all"), "{all}");
}

/// Automatic snapshots of the first days of 2020, at noon and at one.
fn take_old(bench: &Workbench, target: &str, dataset: &str) {
    for day in 1..=5 {
        for hour in [12, 13] {
            let name = format!("auto-2020-01-0{day}T{hour}-00-00Z");
            bench.run(&format!("snapshot {target}@{name} --dataset {dataset}")).good();
        }
    }
}

#[test]
fn automatic_snapshots_that_come_together_have_names_of_their_own() {
    let bench = Workbench::with_pool();
    bench.run("create work.pool --dataset home").good();
    for arguments in ["--auto", "--keep 9", "--auto --dataset home", "--auto --recursive"] {
        bench.run(&format!("snapshot work.pool {arguments}")).good();
    }
    let taken = names(&bench, "work.pool");
    let automatic: Vec<&String> = taken.iter().filter(|name| name.contains("@auto-")).collect();
    assert_eq!(automatic.len(), 5, "{taken:?}");
    let gone = bench.run("snapshot work.pool --keep 1 --json").result();
    let gone = texts(&gone["thinned"]["destroyed"]).len();
    assert_eq!(gone, 3, "retention knows all of them by their names");
}

#[test]
fn automatic_snapshots_are_thinned_and_no_others() {
    let bench = Workbench::with_pool();
    take_old(&bench, "work.pool", "root");
    bench.run("snapshot work.pool@by-hand").good();
    bench.run("snapshot work.pool@auto-made").good();
    bench.run("hold work.pool@auto-2020-01-01T12-00-00Z why").good();
    bench.run("clone work.pool@auto-2020-01-02T12-00-00Z going-on").good();
    let before = names(&bench, "work.pool");

    let would = bench.run("snapshot work.pool --keep 3d --dry-run --json").result();
    assert_eq!(names(&bench, "work.pool"), before, "nothing has been done");
    let goes = [
        "root@auto-2020-01-01T13-00-00Z",
        "root@auto-2020-01-02T13-00-00Z",
        "root@auto-2020-01-03T12-00-00Z",
        "root@auto-2020-01-03T13-00-00Z",
        "root@auto-2020-01-04T12-00-00Z",
        "root@auto-2020-01-05T12-00-00Z",
    ];
    assert_eq!(texts(&would["thinned"]["destroyed"]), goes);
    let stayed = would["thinned"]["stayed"].as_array().unwrap();
    let reasons: Vec<&str> = stayed.iter().map(|row| row["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["held: why", "a clone began as it"]);
    assert_eq!(would["thinned"]["kept"], 3);

    let done = bench.run("snapshot work.pool --keep 3d --json").result();
    assert_eq!(texts(&done["thinned"]["destroyed"]), goes);
    let taken = texts(&done["names"])[0].to_owned();
    assert!(taken.starts_with("root@auto-20") && taken.ends_with('Z'), "{taken}");
    let left = names(&bench, "work.pool");
    assert!(goes.iter().all(|gone| !left.contains(&(*gone).to_owned())), "{left:?}");
    for stays in ["root@by-hand", "root@auto-made", "root@auto-2020-01-05T13-00-00Z", &taken] {
        assert!(left.contains(&stays.to_owned()), "{stays}: {left:?}");
    }
    bench.run("check work.pool --data").good();
}

#[test]
fn each_dataset_is_thinned_on_its_own() {
    let bench = Workbench::with_pool();
    bench.run("create work.pool --dataset home").good();
    bench.run("create work.pool --dataset home/ann").good();
    take_old(&bench, "work.pool", "home");
    bench.run("snapshot work.pool@auto-2020-01-01T12-00-00Z --dataset home/ann").good();
    let done = bench.run("snapshot work.pool -d home --recursive --keep 2 --json").result();
    assert_eq!(texts(&done["names"]).len(), 2);
    assert_eq!(texts(&done["thinned"]["destroyed"]).len(), 9);
    assert!(names(&bench, "work.pool").contains(&"home/ann@auto-2020-01-01T12-00-00Z".to_owned()));
}

#[test]
fn rules_that_make_no_sense_change_nothing() {
    let bench = Workbench::with_pool();
    for rule in ["0h", "x", "7d,7d", "3q"] {
        bench.run(&format!("snapshot work.pool --keep {rule}")).refused(2, &["--keep"]);
    }
    bench.run("snapshot work.pool@name --keep 7d").refused(2, &["leave the name out"]);
    bench.run("snapshot work.pool --dry-run").refused(2, &["--keep"]);
    assert_eq!(names(&bench, "work.pool"), ["root"]);
}

/// Bytes in use as `df` has them.
fn used_bytes(bench: &Workbench) -> u64 {
    let found = rustix::fs::statvfs(bench.path("mnt")).expect("statvfs");
    (found.f_blocks - found.f_bfree) * found.f_frsize
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn space_adds_up_to_what_df_tells_and_comes_back_as_promised() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    for (number, day) in (1..=6).enumerate() {
        fs::write(bench.path("mnt/file"), noise(day, 700_000)).unwrap();
        fs::write(bench.path(&format!("mnt/{number}")), noise(day + 10, 90_000)).unwrap();
        bench.run(&format!("snapshot mnt@auto-2020-01-0{day}T12-00-00Z")).good();
    }
    bench.run("fork mnt spare").good();
    fs::write(bench.path("mnt/.marram/forks/spare/more"), noise(99, 300_000)).unwrap();
    fs::write(bench.path("mnt/file"), noise(7, 700_000)).unwrap();
    bench.run("sync mnt").good();
    let space = || bench.run("space mnt --json").result();
    let number = |value: &Value, name: &str| value[name].as_u64().expect("a number");
    let report = space();
    let rows = report["holders"].as_array().unwrap();
    let added: u64 = rows.iter().map(|row| number(row, "added_bytes")).sum();
    assert_eq!(added, number(&report, "added_bytes"));
    let told = added + number(&report, "own_bytes") + number(&report, "leaving_bytes");
    assert_eq!(told - number(&report, "shared_bytes"), number(&report, "allocated_bytes"));
    assert_eq!(number(&report, "allocated_bytes"), used_bytes(&bench));
    let fork = rows.iter().find(|row| row["name"] == "spare").unwrap();
    assert!((300_000..600_000).contains(&number(fork, "unique_bytes")), "{fork}");

    let range = "space mnt@auto-2020-01-02T12-00-00Z..auto-2020-01-04T12-00-00Z --json";
    let promised = bench.run(range).result();
    assert_eq!(texts(&promised["sources"]).len(), 3);
    let freed = number(&promised, "freed_bytes");
    assert!((2_100_000..2_400_000).contains(&freed), "{freed}");
    let text = bench.run("space mnt").good().out;
    assert!(text.contains("UNIQUE") && text.contains("in use"), "{text}");

    let all = bench.run("space mnt@auto-2020-01-05T12-00-00Z mnt@auto-2020-01-06T12-00-00Z --json");
    let freed = number(&all.result(), "freed_bytes");
    let before = space();
    let thinned = bench.run("snapshot mnt --keep 1 --json").result();
    assert_eq!(texts(&thinned["thinned"]["destroyed"]).len(), 6, "{thinned}");
    let after = space();
    let held = |report: &Value| number(report, "added_bytes") - number(report, "shared_bytes");
    assert_eq!(held(&before) - held(&after), number(&thinned["thinned"], "freed_bytes"));
    assert!(number(&thinned["thinned"], "freed_bytes") >= freed);
    assert_eq!(number(&after, "allocated_bytes"), used_bytes(&bench));
    bench.run("space mnt@none").refused(10, &["none"]);
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}
