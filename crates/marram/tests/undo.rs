//! The log of operations and undo, on real mounts and on pools that nobody has mounted.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::io::Read;

fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src");
    fs::write(bench.path("mnt/src/a"), "one\n").expect("written");
    bench.run("snapshot mnt@s").good();
    Some(bench)
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).expect("a text")
}

fn rows(bench: &Workbench, target: &str) -> Vec<serde_json::Value> {
    bench.run(&format!("log {target} --json")).result().as_array().expect("rows").clone()
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn the_log_tells_who_did_what() {
    let Some(bench) = mounted() else { return };
    bench.run("set mnt compression=zstd:3").good();
    let rows = rows(&bench, "mnt");
    let told: Vec<&str> = rows.iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(told, ["snapshot", "set"]);
    assert_eq!(rows[0]["command"], "marram snapshot mnt@s");
    assert_eq!(rows[0]["user"], rustix::process::getuid().as_raw());
    assert_eq!(rows[1]["names"], serde_json::json!(["root", "compression", "", "zstd:3"]));
    let out = bench.run("log mnt --last 1").good().out;
    assert!(out.contains("set compression of root from default to zstd:3"), "{out}");
    assert!(!out.contains("snapshot root@s"), "{out}");
    bench.run("undo mnt").good();
    let value = bench.run("get mnt compression -H").good().out;
    assert!(value.contains("lz4"), "{value}");
    bench.run("undo mnt 77").refused(1, &["operation 77", "marram log"]);
    end(&bench);
    let out = bench.run("log work.pool").good().out;
    assert!(out.contains("(undoes 2)") && out.contains("undone by 3"), "{out}");
}

#[test]
fn whoever_asks_for_snapshots_of_many_datasets_is_in_the_log() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@all --recursive").good();
    bench.run("snapshot mnt@auto-2020-01-01T12-00-00Z").good();
    bench.run("snapshot mnt --keep 1 --recursive").good();
    let rows = rows(&bench, "mnt");
    let of = |index: usize| [&rows[index]["operation"], &rows[index]["command"]];
    assert_eq!(of(1), ["snapshot", "marram snapshot mnt@all --recursive"]);
    assert_eq!(of(3), ["snapshot", "marram snapshot mnt --keep 1 --recursive"]);
    assert_eq!(of(4), ["destroy", "marram snapshot mnt --keep 1 --recursive"]);
    end(&bench);
}

#[test]
fn snapshots_of_one_command_go_together_and_come_together() {
    let Some(bench) = mounted() else { return };
    for dataset in ["home", "home/a"] {
        bench.run(&format!("create work.pool --dataset {dataset}")).good();
    }
    bench.run("snapshot mnt@all --recursive").good(); // 4 to 6
    let list = || bench.run("list mnt -H").good().out;
    let all = ["root@all", "home@all", "home/a@all"];
    let has_all = |list: &str| all.map(|name| list.contains(name));
    assert_eq!(has_all(&list()), [true; 3]);
    let log = bench.run("log mnt").good().out;
    assert_eq!(log.matches("(one step: 4-6)").count(), 3, "{log}");
    let row = rows(&bench, "mnt").pop().unwrap();
    assert_eq!(row["together"], serde_json::json!([4, 6]));
    assert_eq!(rows(&bench, "mnt")[0]["together"], serde_json::Value::Null);
    assert!(bench.path("mnt/.marram/snapshots/all").exists());

    bench.run("undo mnt").refused(1, &["snapshot home/a@all", "marram undo TARGET 6"]);
    assert_eq!(has_all(&list()), [true; 3], "a snapshot goes by its number alone");
    let undone = bench.run("undo mnt 4").good();
    assert_eq!(undone.err.matches("to be taken back: operation").count(), 3, "{undone:?}");
    let told = undone.out;
    assert_eq!(told.matches("took back operation").count(), 3, "{told}");
    assert!(told.contains("this is operation 9: destroy") && told.contains("undoes 6"), "{told}");
    assert_eq!(has_all(&list()), [false; 3]);
    assert!(!bench.path("mnt/.marram/snapshots/all").exists());
    bench.run("undo mnt").good();
    assert_eq!(has_all(&list()), [true; 3]);
    assert_eq!(read(&bench, "mnt/.marram/snapshots/all/src/a"), "one\n");

    // What was destroyed meanwhile is left alone, and reported; 10 to 12 are the last step.
    bench.run("destroy snapshot mnt@all --dataset home --yes").good();
    let told = bench.run("undo mnt 11 --json").result();
    assert_eq!(told["undone"].as_array().unwrap().len(), 2, "{told}");
    let left = &told["left"][0];
    assert!(left["obstacle"].as_str().unwrap().contains("destroyed by operation 13"), "{told}");
    assert_eq!(has_all(&list()), [false; 3]);
    bench.run("undo mnt 13").good();
    assert_eq!(has_all(&list()), [false, true, false]);
    // One that is in use is in the way of all of them.
    bench.run("snapshot mnt@more --recursive").good();
    bench.make_folder("more");
    bench.run("mount work.pool@more more --dataset home").good();
    let last = rows(&bench, "mnt").pop().unwrap()["number"].clone();
    bench.run(&format!("undo mnt {last}")).refused(11, &["home@more is mounted"]);
    assert!(list().contains("root@more"), "{}", list());
    bench.run("unmount more").good();
    bench.run(&format!("undo mnt {last}")).good();
    assert!(!list().contains("@more"), "{}", list());
    end(&bench);
}

#[test]
fn a_merge_and_the_drop_of_its_fork_are_one_step() {
    let Some(bench) = mounted() else { return };
    let fork = || bench.path("mnt/.marram/forks/work/new").exists();
    bench.run("fork mnt/src work").good();
    fs::write(bench.path("mnt/.marram/forks/work/new"), "new\n").unwrap();
    bench.run("merge mnt/.marram/forks/work --drop").good();
    let row = rows(&bench, "mnt").pop().unwrap();
    assert_eq!(row["together"], serde_json::json!([3, 4]));
    // Any number of it stands for all of it, and so for what takes it back.
    for (number, is_merged) in [("4", false), ("", true), ("", false), ("9", true), ("", false)] {
        let undone = bench.run(&format!("undo mnt {number}")).good();
        assert_eq!(undone.out.matches("took back operation").count(), 2, "{undone:?}");
        assert!(!undone.out.contains("the same command"), "{undone:?}");
        let is_there = (bench.path("mnt/src/new").exists(), fork());
        assert_eq!(is_there, (is_merged, !is_merged), "{undone:?}");
    }
    // A merge and a destruction that were asked for apart are two steps.
    bench.run("merge mnt/.marram/forks/work").good();
    bench.run("destroy fork mnt work --yes").good();
    bench.run("undo mnt").good();
    assert!(fork() && bench.path("mnt/src/new").exists());
    // What is in the way of the fork's name is in the way of all.
    fs::write(bench.path("mnt/.marram/forks/work/other"), "other\n").unwrap();
    bench.run("merge mnt/.marram/forks/work --drop").good();
    bench.run("fork mnt/src work").good();
    let number =
        rows(&bench, "mnt").iter().rfind(|row| row["operation"] == "merge").unwrap()["number"]
            .clone();
    bench.run(&format!("undo mnt {number}")).refused(1, &["there is another work"]);
    assert!(bench.path("mnt/src/other").exists());
    end(&bench);
}

#[test]
fn what_one_command_does_in_several_steps_is_told() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@auto-2020-01-01T12-00-00Z").good();
    bench.run("snapshot mnt --keep 1").good();
    let made =
        rows(&bench, "mnt").iter().rfind(|row| row["operation"] == "snapshot").unwrap()["number"]
            .clone();
    let told = bench.run(&format!("undo mnt {made}")).good().out;
    assert!(told.contains(&format!("took back operation {made}")), "{told}");

    // Properties that are set together are one step.
    let value = |name: &str| bench.run(&format!("get mnt {name} -H")).good().out;
    bench.run("set mnt compression=zstd:3 atime=off").good();
    bench.run("undo mnt").good();
    assert!(value("compression").contains("lz4") && value("atime").contains("relative"));
    bench.run("set mnt compression=zstd:3 reservation=9T").refused(2, &["reservation"]);
    assert!(value("compression").contains("lz4"), "none or all");
    end(&bench);
}

#[test]
fn a_fork_that_a_merge_dropped_comes_back_also_where_nobody_has_mounted_it() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    fs::write(bench.path("mnt/.marram/forks/work/new"), "new\n").unwrap();
    bench.run("unmount work.pool").good();
    bench.run("merge work.pool --fork work --drop").good();
    assert!(!bench.run("forks work.pool").good().out.contains("work"));
    bench.run("undo work.pool").good();
    assert!(bench.run("forks work.pool").good().out.contains("work"));
    bench.run("mount work.pool mnt").good();
    assert_eq!(read(&bench, "mnt/.marram/forks/work/new"), "new\n");
    assert!(!bench.path("mnt/src/new").exists(), "the merge is one step with that");
    end(&bench);
}

#[test]
fn a_merge_is_taken_back_and_what_was_written_since_stays() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(fork.join("a"), "one\ntwo\n").unwrap();
    fs::write(fork.join("new"), "new\n").unwrap();
    let mut open = fs::File::open(bench.path("mnt/src/a")).unwrap();
    bench.run("merge mnt/.marram/forks/work --drop").good();
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    fs::write(bench.path("mnt/src/since"), "since\n").unwrap();
    let merge = rows(&bench, "mnt").iter().position(|row| row["operation"] == "merge").unwrap();
    let number = rows(&bench, "mnt")[merge]["number"].as_u64().unwrap();

    bench.run(&format!("undo mnt {number}")).good();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\n", "who has it open sees it at once");
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(read(&bench, "mnt/src/since"), "since\n");

    // Once more is the merge again; then a change is in the way.
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/a"), "one\ntwo\n");
    fs::write(bench.path("mnt/src/a"), "otherwise\n").unwrap();
    bench.run("undo mnt").refused(1, &["conflicts", "/a"]);
    assert_eq!(read(&bench, "mnt/src/a"), "otherwise\n");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    drop(open);
    end(&bench);
}

#[test]
fn a_merge_of_which_no_file_is_left_is_taken_back_for_later_merges() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    fs::write(bench.path("mnt/.marram/forks/work/new"), "new\n").unwrap();
    bench.run("merge mnt/.marram/forks/work").good();
    let entries = rows(&bench, "mnt");
    let merge = entries.iter().find(|row| row["operation"] == "merge").unwrap();
    let number = merge["number"].as_u64().unwrap();
    fs::remove_file(bench.path("mnt/src/new")).unwrap();
    fs::write(bench.path("mnt/src/since"), "since\n").unwrap();
    bench.run(&format!("undo mnt {number}")).good();
    assert_eq!(rows(&bench, "mnt").len(), entries.len() + 1);
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(read(&bench, "mnt/src/since"), "since\n");
    bench.run(&format!("undo mnt {number}")).refused(1, &["was taken back by operation"]);
    // The fork has it still, and it counts as new again.
    assert!(bench.run("diff mnt/.marram/forks/work").good().out.contains("A /new"));
    bench.run("merge mnt/.marram/forks/work").good();
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    end(&bench);
}

#[test]
fn a_rollback_is_taken_back_while_the_tree_is_open() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/src/a"), "changed\n").unwrap();
    let mut open = fs::File::open(bench.path("mnt/src/a")).unwrap();
    bench.run("rollback mnt@s").good();
    assert_eq!(read(&bench, "mnt/src/a"), "one\n");
    bench.run("undo mnt").good();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "changed\n");
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/a"), "one\n");
    drop(open);
    end(&bench);
}

#[test]
fn what_was_destroyed_comes_back_until_it_is_let_go() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    fs::write(bench.path("mnt/.marram/forks/work/new"), "new\n").unwrap();
    let out = bench.run("destroy fork mnt work --yes").good().out;
    assert!(out.contains("marram undo"), "{out}");
    assert!(!bench.path("mnt/.marram/forks/work").exists());
    assert!(!bench.run("forks mnt").good().out.contains("work"));
    assert!(!bench.run("list mnt").good().out.contains("undo:"));
    assert!(bench.run("list mnt --all").good().out.contains("undo:"));
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/.marram/forks/work/new"), "new\n");

    bench.run("destroy snapshot mnt@s --yes").good();
    assert!(!bench.path("mnt/.marram/snapshots/s").exists());
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/.marram/snapshots/s/src/a"), "one\n");
    bench.run("destroy snapshot mnt@s --yes --now").good();
    bench.run("undo mnt").refused(1, &["gone for good"]);
    bench.run("set mnt undo=off").good();
    bench.run("snapshot mnt@t").good();
    let last = rows(&bench, "mnt").pop().unwrap()["number"].clone();
    bench.run(&format!("undo mnt {last}")).refused(1, &["undo is off"]);
    bench.run("set mnt undo=tomorrow").refused(2, &["undo=tomorrow"]);
    end(&bench);
}

#[test]
fn renames_and_promotions_are_seen_and_taken_back() {
    let Some(bench) = mounted() else { return };
    assert_eq!(read(&bench, "mnt/.marram/snapshots/s/src/a"), "one\n");
    bench.run("rename mnt@s t").good();
    assert!(!bench.path("mnt/.marram/snapshots/s").exists());
    assert_eq!(read(&bench, "mnt/.marram/snapshots/t/src/a"), "one\n");
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/.marram/snapshots/s/src/a"), "one\n");

    bench.run("fork mnt/src work").good();
    assert_eq!(read(&bench, "mnt/.marram/forks/work/a"), "one\n");
    bench.run("rename mnt other --dataset work").good();
    assert!(!bench.path("mnt/.marram/forks/work").exists());
    assert_eq!(read(&bench, "mnt/.marram/forks/other/a"), "one\n");
    bench.run("rename mnt new").refused(2, &["--dataset"]);
    bench.run("rename mnt new --dataset root").refused(11, &["mounted"]);

    bench.run("clone mnt@s copy").good();
    bench.run("promote mnt copy").good();
    assert!(!bench.path("mnt/.marram/snapshots/s").exists());
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/.marram/snapshots/s/src/a"), "one\n");
    bench.run("promote mnt nothing").refused(10, &["nothing"]);
    end(&bench);
}

#[test]
fn a_pool_that_nobody_has_mounted_has_its_log_too() {
    let bench = Workbench::with_pool();
    bench.run("create work.pool --dataset home").good();
    bench.run("snapshot work.pool@s --dataset home").good();
    bench.run("destroy dataset work.pool --dataset home --yes").good();
    bench.run("undo work.pool").good();
    bench.run("rename work.pool house --dataset home").good();
    let list = bench.run("list work.pool -H").good().out;
    assert!(list.contains("house@s"), "{list}");
    bench.run("undo work.pool 3").refused(1, &["taken back by operation 4"]);
    let told = rows(&bench, "work.pool");
    let told: Vec<&str> = told.iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(told, ["create", "snapshot", "destroy", "restore", "rename"]);
    bench.run("check work.pool --data").good();
}

#[test]
fn what_is_done_to_the_pool_and_to_owners_is_in_the_log() {
    let Some(bench) = mounted() else { return };
    bench.run("label mnt first").good();
    bench.run("label mnt second").good();
    bench.run("quota mnt --user 4711 --bytes 10M --inodes 50").good();
    let out = bench.run("log mnt --last 2").good().out;
    assert!(out.contains("label the pool \"second\", before it \"first\""), "{out}");
    assert!(out.contains("limit of user 4711 in root from none to 10.0M and 50 inodes"), "{out}");
    let limit = |words: &str| bench.run(&format!("quota mnt --user 4711 {words} -H -p")).good().out;
    assert!(limit("").contains("\t10485760\t"), "{}", limit(""));
    bench.run("undo mnt").good();
    assert_eq!(limit(""), "user\t4711\t-\t0\tnone\t0\tnone\n");
    bench.run("undo mnt").good();
    assert!(limit("").contains("\t10485760\t"), "{}", limit(""));
    limit("--bytes 20M");
    let last = rows(&bench, "mnt").pop().unwrap();
    let names = serde_json::json!(["root", "user 4711", "10485760 50", "20971520 50"]);
    assert_eq!((&last["operation"], &last["names"]), (&"limit".into(), &names));
    bench.run("undo mnt 5").refused(1, &["taken back by operation 6"]);
    bench.run("undo mnt 6").refused(1, &["the limit in root is 20971520 50", "since"]);

    bench.run("undo mnt 2").refused(1, &["the pool has the label \"second\" since"]);
    bench.run("undo mnt 3").good();
    assert_eq!(bench.run("label mnt").good().out, "first\n");

    bench.run("grow mnt --size 300M").good();
    bench.run("undo mnt").refused(1, &["a pool cannot shrink"]);
    let row = rows(&bench, "mnt").pop().unwrap();
    assert_eq!((&row["operation"], &row["can_undo"]), (&"grow".into(), &false.into()));
    end(&bench);
    let out = bench.run("log work.pool").good().out;
    assert!(out.contains("grow the pool from") && out.contains("to 300M"), "{out}");
}

#[test]
fn a_part_of_a_stream_that_was_dropped_is_in_the_log() {
    let Some(bench) = mounted() else { return };
    bench.run("send mnt@s --to-file whole.stream").good();
    let whole = fs::read(bench.path("whole.stream")).unwrap();
    fs::write(bench.path("cut.stream"), &whole[..whole.len() - 8]).unwrap();
    bench.run("create other.pool --size 64M").good();
    bench.run("receive other.pool copy --resumable --from-file cut.stream").refused(1, &["cut"]);
    assert!(rows(&bench, "other.pool").is_empty(), "nothing is there yet");
    bench.run("receive other.pool copy --abort").good();
    let row = rows(&bench, "other.pool").pop().unwrap();
    assert_eq!(
        (&row["operation"], &row["names"]),
        (&"abort".into(), &serde_json::json!(["copy@s"]))
    );
    bench.run("undo other.pool").refused(1, &["copy@s", "receive it again"]);
    let out = bench.run("log other.pool").good().out;
    assert!(out.contains("drop a part of copy@s that was received"), "{out}");
    bench.run("check other.pool --data").good();
    end(&bench);
}

#[test]
fn an_undo_says_what_it_takes_back_before_and_does_not_with_dry_run() {
    let Some(bench) = mounted() else { return };
    bench.run("set mnt compression=zstd:3").good();
    let value = || bench.run("get mnt compression -H").good().out;
    let would = bench.run("undo mnt --dry-run").good().out;
    assert!(
        would.contains("would take back operation 2, of") && would.contains("zstd:3"),
        "{would}"
    );
    assert!(value().contains("zstd:3") && rows(&bench, "mnt").len() == 2);
    let would = bench.run("undo mnt 2 --dry-run --json").result();
    assert_eq!(would["would_undo"][0]["number"], 2);
    let undone = bench.run("undo mnt").good();
    assert!(undone.err.contains("to be taken back: operation 2, of"), "{undone:?}");
    assert!(value().contains("lz4"));
    let again = bench.run("undo mnt").good().out;
    assert!(again.contains("took back operation 3, and did again what that had: set"), "{again}");
    end(&bench);
}

#[test]
fn what_programs_have_removed_is_found_in_a_snapshot() {
    let Some(bench) = mounted() else { return };
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    // The first that is typed takes the one snapshot that has it all away? It does not.
    let refused = bench.run("undo mnt");
    let copy = "`cp -a ";
    let words = ["mnt/src", "more is gone since the snapshot s", copy, "marram rollback mnt@s"];
    let told = refused.refused(1, &words).err;
    let line = told.lines().find(|line| line.contains(copy)).unwrap();
    let command = line.split('`').nth(1).unwrap();
    bench.host(&["sh", "-c", command]).good();
    assert_eq!(read(&bench, "mnt/src/a"), "one\n");
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    // Below a directory that is gone itself, too.
    let told = bench.run("undo mnt/src").refused(10, &["1 snapshots have it", copy]).err;
    let command = told.split('`').nth(1).unwrap();
    bench.host(&["sh", "-c", command]).good();
    assert_eq!(read(&bench, "mnt/src/a"), "one\n");
    assert!(!bench.run("undo mnt").err.contains("is gone"), "nothing is");
    end(&bench);
}

#[test]
fn where_later_changes_are_in_the_way_force_takes_back_and_can_be_taken_back() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/src/a"), "two\n").unwrap();
    fs::write(bench.path("mnt/src/b"), "b\n").unwrap();
    bench.run("rollback mnt/src@s").good();
    fs::write(bench.path("mnt/src/a"), "three\n").unwrap();
    fs::write(bench.path("mnt/src/since"), "since\n").unwrap();
    bench.run("undo mnt").refused(1, &["conflicts", "/a: changed since", "--force"]);
    let told = bench.run("undo mnt --force").good().out;
    assert!(told.contains("changed since, and as before all the same: /a"), "{told}");
    assert_eq!(
        (read(&bench, "mnt/src/a"), read(&bench, "mnt/src/b")),
        ("two\n".into(), "b\n".into())
    );
    assert_eq!(read(&bench, "mnt/src/since"), "since\n");
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/a"), "three\n", "what was there comes back");

    bench.run("set mnt compression=zstd:3").good();
    let set = rows(&bench, "mnt").pop().unwrap()["number"].clone();
    bench.run("set mnt compression=zstd:9").good();
    bench.run(&format!("undo mnt {set}")).refused(1, &["was set to zstd:9 since"]);
    bench.run(&format!("undo mnt {set} --force")).good();
    assert!(bench.run("get mnt compression -H").good().out.contains("lz4"));
    end(&bench);
}

#[test]
fn snapshots_that_were_made_since_go_only_if_that_is_asked_for() {
    let bench = Workbench::with_pool();
    bench.run("create work.pool --dataset home").good();
    bench.run("snapshot work.pool@by-hand --dataset home").good();
    bench.run("undo work.pool 1").refused(1, &["home@by-hand", "--force"]);
    assert!(bench.run("list work.pool").good().out.contains("home@by-hand"));
    bench.run("undo work.pool 1 --force").good();
    assert!(!bench.run("list work.pool").good().out.contains("home"));
    bench.run("undo work.pool").good();
    assert!(bench.run("list work.pool").good().out.contains("home@by-hand"));
    bench.run("check work.pool").good();
}
