//! Snapshots sent and received by the command, between pools that are mounted and that are not.

use crate::tree::{assert_same, fill, half_received, shell, wait_for};
use crate::workbench::{Workbench, can_mount};
use std::fs;

#[test]
fn pools_that_are_not_mounted_send_and_receive_through_a_pipe() {
    let bench = Workbench::with_pool();
    bench.run("create other.pool --size 64M").good();
    bench.run("snapshot work.pool@a").good();
    let line = "marram send work.pool@a | marram receive other.pool copy";
    let received = shell(&bench, line).good();
    assert!(received.out.contains("received copy@a"), "{received:?}");
    shell(&bench, line).refused(1, &["received before", "copy@a"]);
    bench.run("snapshot work.pool@b").good();
    bench.run("send work.pool@b --from a --to-file b.stream").good();
    bench.run("send work.pool@b --to-file b.stream").refused(2, &["exists"]);
    let checked = bench.run("check b.stream").good();
    assert!(checked.out.contains("root@b"), "{checked:?}");
    let whole = fs::read(bench.path("b.stream")).unwrap();
    fs::write(bench.path("cut.stream"), &whole[..whole.len() - 1]).unwrap();
    bench.run("check cut.stream").refused(1, &["cut"]);
    bench.run("receive other.pool copy --from-file cut.stream").refused(1, &["cut"]);
    bench.run("receive other.pool new --from-file b.stream").refused(1, &["the full stream first"]);
    let json = bench.run("receive other.pool copy --from-file b.stream --json").result();
    assert_eq!((&json["snapshot"], &json["base"]), (&"copy@b".into(), &"copy@a".into()));
    let list = bench.run("list other.pool -a -H").good().out;
    assert!(list.contains("copy@a") && list.contains("copy@b"), "{list}");
    assert!(!list.contains("receive:"), "{list}");
    bench.run("check other.pool --data").good();
    bench.run("send work.pool@none").refused(10, &["none"]);
    bench.run("send work.pool@a --from b").refused(1, &["not older"]);
}

#[test]
fn a_mounted_tree_arrives_with_all_that_it_is() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.run("create other.pool --size 128M").good();
    for folder in ["mnt", "there", "one", "two"] {
        bench.make_folder(folder);
    }
    bench.run("mount work.pool mnt").good();
    fill(&bench.path("mnt"));
    bench.run("reflink mnt/big mnt/shared").good();
    bench.run("snapshot mnt@a").good();
    shell(&bench, "marram send mnt@a | marram receive other.pool copy").good();
    bench.run("mount work.pool@a one").good();
    bench.run("mount other.pool@a two --dataset copy").good();
    assert_same(&bench, "one", "two");
    bench.run("unmount one two").good();

    fs::rename(bench.path("mnt/d/f7"), bench.path("mnt/d/e/moved")).unwrap();
    fs::remove_file(bench.path("mnt/d/f9")).unwrap();
    fs::write(bench.path("mnt/d/f8"), "new content\n").unwrap();
    let big = fs::OpenOptions::new().write(true).open(bench.path("mnt/big")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&big, b"in the middle", 700_000).unwrap();
    drop(big);
    bench.run("snapshot mnt@b").good();
    // The receiving dataset is mounted, and shows what comes at once.
    bench.run("mount other.pool there --dataset copy -o noatime").good();
    assert_eq!(fs::read(bench.path("there/d/f8")).unwrap(), vec![8; 8 * 97]);
    assert!(!bench.path("there/d/e/moved").exists());
    let told = shell(&bench, "marram send mnt@b --from a | marram receive there copy").good();
    assert!(told.out.contains("received copy@b"), "{told:?}");
    assert_eq!(fs::read(bench.path("there/d/f8")).unwrap(), b"new content\n");
    assert!(bench.path("there/d/e/moved").exists() && !bench.path("there/d/f9").exists());
    assert!(bench.path("there/.marram/snapshots/b/d/e/moved").exists());
    bench.run("mount work.pool@b one").good();
    bench.run("mount other.pool@b two --dataset copy").good();
    assert_same(&bench, "one", "two");
    bench.run("unmount one two").good();

    // What somebody has changed there is not lost without being asked for.
    fs::write(bench.path("there/mine"), "mine").unwrap();
    fs::write(bench.path("mnt/last"), "last").unwrap();
    bench.run("snapshot mnt@c").good();
    shell(&bench, "marram send mnt@c --from b | marram receive there copy")
        .refused(1, &["has been changed since copy@b"]);
    assert!(bench.path("there/mine").exists() && !bench.path("there/last").exists());
    let told = shell(&bench, "marram send mnt@c --from b | marram receive there copy --force");
    assert!(told.good().out.contains("kept as copy@before-receive-1"));
    assert!(!bench.path("there/mine").exists() && bench.path("there/last").exists());
    assert!(bench.path("there/.marram/snapshots/before-receive-1/mine").exists());
    bench.run("unmount mnt there").good();
    bench.run("check other.pool --data").good();
}

#[test]
fn whoever_only_reads_what_was_received_is_in_nobodys_way() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.run("create other.pool --size 128M").good();
    bench.make_folder("mnt");
    bench.make_folder("there");
    bench.run("mount work.pool mnt -o noatime").good();
    fill(&bench.path("mnt"));
    fs::write(bench.path("mnt/read"), "read").unwrap();
    let past = |days: u64| {
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(days * 86_400)
    };
    let sent = fs::FileTimes::new().set_accessed(past(9000)).set_modified(past(8000));
    fs::File::open(bench.path("mnt/read")).unwrap().set_times(sent).unwrap();
    bench.run("snapshot mnt@s0").good();
    shell(&bench, "marram send mnt@s0 | marram receive other.pool copy").good();
    let accessed = || fs::metadata(bench.path("there/read")).unwrap().accessed().unwrap();
    for (round, options) in ["strictatime", "relatime", "strictatime,lazytime"].iter().enumerate() {
        bench.run(&format!("mount other.pool there --dataset copy -o {options}")).good();
        assert_eq!(accessed(), past(9000), "{options}");
        shell(&bench, "cat there/read there/d/f* >/dev/null && ls -lR there >/dev/null").good();
        assert!(accessed() > past(9000), "{options}: it was read");
        bench.run("snapshot there@mine").good();
        fs::write(bench.path("mnt/new"), format!("{round}")).unwrap();
        let (base, next) = (format!("s{round}"), format!("s{}", round + 1));
        bench.run(&format!("snapshot mnt@{next}")).good();
        fs::read(bench.path("there/read")).unwrap();
        let line = format!("marram send mnt@{next} --from {base} | marram receive there copy");
        let told = shell(&bench, &line).good().out;
        assert!(!told.contains("kept as"), "{told}");
        assert_eq!(fs::read_to_string(bench.path("there/new")).unwrap(), format!("{round}"));
        assert_eq!(accessed(), past(9000), "{options}: as it was sent, and seen at once");
        bench.run("destroy snapshot there@mine --yes --now").good();
        bench.run("unmount there").good();
    }
    // A time that somebody sets is a change.
    bench.run("mount other.pool there --dataset copy").good();
    let set = fs::FileTimes::new().set_accessed(past(9001));
    fs::File::open(bench.path("there/read")).unwrap().set_times(set).unwrap();
    bench.run("snapshot mnt@last").good();
    shell(&bench, "marram send mnt@last --from s3 | marram receive there copy")
        .refused(1, &["has been changed since copy@s3", "force"]);
    assert_eq!(accessed(), past(9001));
    bench.run("unmount mnt there").good();
    bench.run("check other.pool --data").good();
}

#[test]
fn what_had_no_name_in_the_base_is_freed_by_a_mount_and_is_no_change() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.run("create other.pool --size 128M").good();
    bench.make_folder("mnt");
    bench.make_folder("there");
    bench.run("mount work.pool mnt").good();
    let large = vec![7; 8 << 20];
    fs::write(bench.path("mnt/open"), &large).unwrap();
    let held = fs::File::open(bench.path("mnt/open")).unwrap();
    fs::remove_file(bench.path("mnt/open")).unwrap();
    bench.run("snapshot mnt@s0").good();
    shell(&bench, "marram send mnt@s0 | marram receive other.pool copy").good();
    bench.run("mount other.pool there --dataset copy").good();
    let taken = || bench.run("list there --json").result()[0]["datasets"].clone();
    let is_freed = || {
        let rows = taken();
        let live = rows.as_array().unwrap().iter().find(|it| it["name"] == "copy").cloned();
        live.unwrap()["referenced_bytes"].as_u64().unwrap() < 1 << 20
    };
    wait_for("the mount has freed it", is_freed);
    drop(held);
    fs::write(bench.path("mnt/new"), "new").unwrap();
    bench.run("snapshot mnt@s1").good();
    let line = "marram send mnt@s1 --from s0 | marram receive there copy";
    let told = shell(&bench, line).good().out;
    assert!(!told.contains("kept as"), "{told}");
    assert_eq!(fs::read_to_string(bench.path("there/new")).unwrap(), "new");
    bench.run("unmount mnt there").good();
    bench.run("check other.pool --data").good();
}

#[test]
fn what_was_received_is_in_the_log_and_can_be_taken_back() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.run("create other.pool --size 128M").good();
    bench.make_folder("mnt");
    bench.make_folder("there");
    bench.run("mount work.pool mnt").good();
    fs::write(bench.path("mnt/file"), "first").unwrap();
    bench.run("snapshot mnt@a").good();
    fs::write(bench.path("mnt/file"), "second").unwrap();
    bench.run("snapshot mnt@b").good();
    shell(&bench, "marram send mnt@a | marram receive other.pool copy").good();
    bench.run("mount other.pool there --dataset copy").good();
    let seen = || fs::read_to_string(bench.path("there/file")).unwrap();
    shell(&bench, "marram send mnt@b --from a | marram receive there copy").good();
    assert_eq!(seen(), "second");
    let log = bench.run("log there").good().out;
    assert!(log.contains("receive copy@b, before it copy@a"), "{log}");
    assert!(log.contains("receive there copy"), "the command line: {log}");
    bench.run("undo there").good();
    assert_eq!(seen(), "first");
    bench.run("undo there").good();
    assert_eq!(seen(), "second");
    bench.run("unmount there mnt").good();
    // The full one has made the dataset; without it, nothing of it is there.
    let log = bench.run("log other.pool --json").result();
    let first = log.as_array().unwrap().iter().find(|row| row["names"][0] == "copy").unwrap();
    assert_eq!(first["operation"], "receive");
    bench.run(&format!("undo other.pool {}", first["number"])).good();
    let list = bench.run("list other.pool -H").good().out;
    assert!(!list.contains("copy"), "{list}");
    bench.run("undo other.pool").good();
    assert!(bench.run("list other.pool -H").good().out.contains("copy@b"));
    bench.run("check other.pool --data").good();
}

#[test]
fn how_far_a_stream_is_can_be_told() {
    let bench = Workbench::with_pool();
    bench.run("create other.pool --size 64M").good();
    bench.run("snapshot work.pool@a").good();
    let sent = bench.run("send work.pool@a --to-file a.stream --progress --json").good();
    let told = |err: &str| -> serde_json::Value {
        let line = err.lines().last().expect("something was told");
        serde_json::from_str(line).expect("a line of JSON")
    };
    let size = fs::metadata(bench.path("a.stream")).unwrap().len();
    let last = told(&sent.err);
    assert_eq!((&last["bytes"], &last["ended"]), (&size.into(), &true.into()));
    assert_eq!(last["total_is_exact"], false);
    let received =
        bench.run("receive other.pool copy --from-file a.stream --progress --json").good();
    let last = told(&received.err);
    assert_eq!((&last["bytes"], &last["total_bytes"]), (&size.into(), &size.into()));
    let plain = bench.run("receive other.pool other --from-file a.stream --progress").good();
    assert!(plain.err.contains("/s"), "{plain:?}");
    let silent = bench.run("receive other.pool third --from-file a.stream").good();
    assert_eq!(silent.err, "");
}

#[test]
fn a_receiver_that_is_killed_or_cut_off_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    for folder in ["mnt", "there"] {
        bench.make_folder(folder);
    }
    bench.run("create other.pool --size 128M").good();
    bench.run("mount work.pool mnt").good();
    fill(&bench.path("mnt"));
    bench.run("snapshot mnt@a").good();
    bench.run("send mnt@a --to-file a.stream").good();
    bench.run("unmount mnt").good();
    let stream = fs::read(bench.path("a.stream")).unwrap();

    let mut child = half_received(&bench, &stream, "other.pool copy");
    child.kill().unwrap();
    child.wait().unwrap();
    bench.run("mount other.pool there").good();
    let list = || bench.run("list there -a -H").good().out;
    assert!(!list().contains("receive:") && !list().contains("copy"), "{}", list());

    let mut child = half_received(&bench, &stream, "there copy");
    wait_for("a dataset receives", || list().contains("receive:1"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the daemon has let go", || !list().contains("receive:"));
    assert!(!list().contains("copy"), "{}", list());
    bench.run("create there --dataset receive:7").refused(2, &["pool's own"]);

    // A daemon that ends does not wait for a pipe that stands still.
    let child = half_received(&bench, &stream, "there copy");
    wait_for("a dataset receives", || list().contains("receive:1"));
    bench.run("unmount there").good();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("being closed"), "{said}");
    bench.run("receive other.pool copy --from-file a.stream").good();
    bench.run("check other.pool --data").good();
}
