//! What commands do with a pool that nobody has mounted.

use crate::workbench;
use crate::workbench::Workbench;
use serde_json::Value;

fn names(bench: &Workbench) -> Vec<String> {
    let lists = bench.run("list work.pool --json").result();
    let rows = lists[0]["datasets"].as_array().expect("a list").clone();
    rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn datasets_snapshots_and_clones_come_and_go() {
    let bench = Workbench::with_pool();
    bench.run("snapshot work.pool@before").good();
    bench.run("snapshot work.pool@before").refused(1, &["before"]);
    bench.run("clone work.pool@before again").good();
    bench.run("clone work.pool@nope other").refused(10, &["nope", "marram list"]);
    bench.run("create work.pool --dataset home -O compression=zstd:3").good();
    bench.run("snapshot work.pool@first --dataset home").good();
    assert_eq!(names(&bench), ["again", "home", "home@first", "root", "root@before"]);

    bench.run("destroy dataset work.pool --dataset home").refused(2, &["--yes", "--dry-run"]);
    let would = bench.run("destroy dataset work.pool --dataset home --dry-run --json").result();
    assert_eq!(would["dry_run"], true);
    assert_eq!(would["sources"].as_array().unwrap().len(), 2);
    assert_eq!(names(&bench).len(), 5);

    bench.run("destroy snapshot work.pool@before --yes").refused(11, &["root@before", "again"]);
    bench.run("destroy dataset work.pool -d root --yes").refused(2, &["root"]);
    bench.run("destroy dataset work.pool --dataset home --yes").good();
    bench.run("destroy dataset work.pool --dataset again --yes").good();
    bench.run("destroy snapshot work.pool@before --yes").good();
    bench.run("destroy snapshot work.pool@before --yes").refused(10, &["before"]);
    assert_eq!(names(&bench), ["root"]);
}

#[test]
fn properties_are_kept_and_go_back_to_their_defaults() {
    let bench = Workbench::new();
    bench.run("create work.pool --size 64M -O compression=zstd:3 -O recordsize=1M").good();
    let value = |line: &str| bench.run(line).good().out.trim_end().to_owned();
    assert_eq!(value("get work.pool compression -H"), "root\tcompression\tzstd:3\tlocal");
    assert_eq!(value("get work.pool recordsize -Hp"), "root\trecordsize\t1048576\tlocal");
    bench.run("set work.pool compression=off atime=strict").good();
    assert_eq!(value("get work.pool compression,atime -H").lines().count(), 2);
    bench.run("set work.pool --default compression").good();
    assert_eq!(value("get work.pool compression -H"), "root\tcompression\tlz4\tdefault");
    bench.run("set work.pool compression=zip").refused(2, &["zip"]);
    bench.run("set work.pool --default colour").refused(2, &["colour"]);
    bench.run("get work.pool colour").refused(2, &["colour"]);
    bench.run("get work.pool --dataset nope").refused(10, &["nope"]);
}

#[test]
fn a_pool_grows_with_its_file() {
    let bench = Workbench::with_pool();
    let total = |bench: &Workbench| {
        let status = bench.run("status work.pool --json").result();
        status[0]["total_bytes"].as_u64().unwrap()
    };
    let before = total(&bench);
    let grown = bench.run("grow work.pool --size 512M --json").result();
    assert_eq!(grown["size_bytes"], 512 << 20);
    assert!(total(&bench) > 3 * before);
    assert_eq!(std::fs::metadata(bench.path("work.pool")).unwrap().len(), 512 << 20);
    bench.run("grow work.pool --size x").refused(2, &["512M"]);
}

#[test]
fn status_tells_what_there_is() {
    let bench = Workbench::new();
    bench.run("create work.pool --size 64M --label photos").good();
    let text = bench.run("status work.pool").good().out;
    for word in ["photos", "online", "work.pool", "not mounted", "CHECKSUM ERRORS"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains('\x1b'), "no colours without a terminal");
    let status = bench.run("status work.pool --json").result();
    assert_eq!(status[0]["label"], "photos");
    assert_eq!(status[0]["daemon"], Value::Null);
}

#[test]
fn every_command_answers_in_json() {
    let bench = Workbench::with_pool();
    let lines = [
        "create other.pool --size 64M",
        "status work.pool",
        "list work.pool",
        "snapshot work.pool@a",
        "clone work.pool@a b",
        "destroy dataset work.pool --dataset b --yes",
        "get work.pool",
        "set work.pool atime=off",
        "grow work.pool",
        "sync work.pool",
        "completions bash",
        "manual man",
        "install --root root",
        "version",
        "check work.pool",
    ];
    for line in lines {
        let outcome = bench.run(&format!("{line} --json"));
        let envelope = outcome.envelope();
        assert_eq!(outcome.status, 0, "{line}");
        assert_eq!(envelope["command"], line.split(' ').next().unwrap());
        assert!(envelope.get("result").is_some(), "{line}");
    }
    bench.run("doctor --json").envelope();
}

#[test]
fn completions_manual_and_links_are_made_from_the_same_definitions() {
    let bench = Workbench::new();
    assert!(bench.run("completions bash").good().out.contains("MARRAM_COMPLETE=bash"));
    for (words, whole) in [("quick", "quickstart"), ("create --pre", "--preallocate")] {
        let mut shell = bench.command();
        shell.env("MARRAM_COMPLETE", "bash").args(["--", "marram"]).args(words.split(' '));
        let offered = workbench::outcome(&mut shell).good().out;
        assert_eq!(offered.trim(), whole);
    }
    bench.run("manual man").good();
    let page = std::fs::read_to_string(bench.path("man/marram-mount.1")).unwrap();
    assert!(page.contains("noatime"), "{page}");
    bench.run("install --root root").good();
    let link = std::fs::read_link(bench.path("root/usr/sbin/mount.fuse.marram")).unwrap();
    assert_eq!(link, std::path::Path::new("/usr/local/bin/marram"));
    assert!(bench.path("root/usr/local/bin/marram").exists());
    bench.run("install --root root").good();
}

#[test]
fn mkfs_and_fsck_behave_as_their_callers_expect() {
    let bench = Workbench::new();
    let silent = |outcome: workbench::Outcome| {
        let outcome = outcome.good();
        assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("", ""));
    };
    silent(bench.run_as("mkfs.fuse.marram", "-t fuse.marram work.pool 65536"));
    bench.run_as("mkfs.marram", "work.pool").refused(1, &["Marram pool"]);
    silent(bench.run_as("mkfs.marram", "-f -L x -O compression=off work.pool"));
    bench.run_as("mkfs.marram", "-z work.pool").refused(1, &["-z"]);
    silent(bench.run_as("fsck.fuse.marram", "-n -t fuse.marram work.pool"));
    silent(bench.run_as("mkfs.fuseblk.marram", "-f work.pool"));
    silent(bench.run_as("fsck.fuseblk.marram", "-n work.pool"));
    bench.run_as("fsck.marram", "").refused(16, &["usage"]);
    bench.run_as("fsck.marram", "-n nowhere").refused(8, &["nowhere"]);
}

#[test]
fn check_says_whether_a_pool_is_clean_and_names_what_is_not() {
    let bench = Workbench::with_pool();
    bench.run("snapshot work.pool@a").good();
    let report = bench.run("check work.pool --data --json").result();
    assert_eq!((&report["clean"], &report["snapshots"]), (&true.into(), &1.into()));
    assert!(bench.run("check work.pool").good().out.contains("work.pool: clean"));

    bench.run("check nowhere").refused(1, &["nowhere"]);
    std::fs::write(bench.path("text"), "hello\n".repeat(10_000)).unwrap();
    bench.run("check text").refused(1, &["no Marram pool"]);
    let held = std::fs::File::open(bench.path("work.pool")).unwrap();
    held.lock().unwrap();
    bench.run("check work.pool").refused(11, &["in use", &std::process::id().to_string()]);
}
