//! What root hands out beyond the rights to files, and takes back.

use super::{ANN, BOB, STAFF, marram, owned, shared};
use std::fs;

#[test]
fn what_is_allowed_is_done_and_nothing_else() {
    let Some(bench) = shared() else { return };
    owned(&bench, "mnt/ann/a", ANN, 0o644, Some("one\n"));
    marram(&bench, ANN, "snapshot mnt@s").refused(12, &["make snapshots", "marram allow"]);
    let told = bench.run("allow 4001 snapshot,rollback mnt").good().out;
    assert!(told.contains("4001") && told.contains("rollback,snapshot"), "{told}");
    marram(&bench, ANN, "snapshot mnt@s").good();
    marram(&bench, BOB, "snapshot mnt@t").refused(12, &["user 4002"]);
    for (line, says) in [
        ("set mnt compression=zstd", "set properties"),
        ("set mnt quota=1G", "owners may use"),
        ("destroy snapshot mnt s --yes --now", "destroy snapshots"),
        ("send mnt@s", "send snapshots"),
        ("allow 4001 all mnt", "may not"),
        ("disallow 4001 all mnt", "may not"),
        ("clone mnt@s c", "may not"),
        ("hold mnt@s mine", "may not"),
    ] {
        marram(&bench, ANN, line).refused(12, &["user 4001", says]);
    }
    fs::write(bench.path("mnt/roots"), "of root\n").unwrap();
    fs::write(bench.path("mnt/ann/a"), "two\n").unwrap();
    marram(&bench, ANN, "rollback mnt@s").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/ann/a")).unwrap(), "one\n");
    assert!(!bench.path("mnt/roots").exists());
    let log = bench.run("log mnt").good().out;
    assert!(log.lines().any(|line| line.contains("rollback") && line.contains("4001")), "{log}");
    marram(&bench, ANN, "undo mnt").good();
    assert!(bench.path("mnt/roots").exists());
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn what_is_taken_back_counts_no_more_for_an_undo_either() {
    let Some(bench) = shared() else { return };
    bench.run("snapshot mnt@s").good();
    bench.run("allow 4001 rollback,set mnt").good();
    marram(&bench, ANN, "rollback mnt@s").good();
    bench.run("disallow 4001 rollback mnt").good();
    marram(&bench, ANN, "undo mnt").refused(12, &["roll back the whole"]);
    marram(&bench, ANN, "set mnt compression=zstd").good();
    bench.run("disallow 4001 all mnt").good();
    marram(&bench, ANN, "undo mnt").refused(12, &["set properties"]);
    let told = bench.run("allow mnt --json").result();
    assert_eq!(told.as_array().map(Vec::len), Some(0), "{told}");
    // A list is a property, so what root did is undone as any.
    bench.run("undo mnt").good();
    marram(&bench, ANN, "set mnt compression=lz4").good();
}

#[test]
fn a_group_is_allowed_what_its_users_are() {
    let Some(bench) = shared() else { return };
    bench.run(&format!("allow @{STAFF} send,quota,set,snapshot,destroy mnt")).good();
    marram(&bench, ANN, "snapshot mnt@s").good();
    let sent = marram(&bench, BOB, "send mnt@s --to-file mnt/bob/stream").good();
    assert!(bench.path("mnt/bob/stream").exists(), "{sent:?}");
    marram(&bench, BOB, "set mnt quota=1G").good();
    marram(&bench, BOB, "quota mnt --user 4001 --bytes 10M").good();
    assert!(marram(&bench, ANN, "quota mnt --user 4001").good().out.contains("10.0M"));
    for property in ["acl=off", "allow=4002:rollback", "userforks=1000"] {
        let line = format!("set mnt {property}");
        marram(&bench, BOB, &line).refused(12, &["decides on rights"]);
    }
    marram(&bench, BOB, "destroy snapshot mnt s --yes").good();
    assert!(!bench.run("list mnt").good().out.contains("root@s"));
    // The whole dataset is not a snapshot of it.
    assert_eq!(marram(&bench, BOB, "destroy dataset mnt root --yes").status, 12);
}

#[test]
fn bad_orders_change_nothing() {
    let Some(bench) = shared() else { return };
    for (line, status, says) in [
        ("allow 4001 mount mnt", 2, "snapshot"),
        ("allow nobody-of-this-name send mnt", 10, "no user is named"),
        ("allow 0 send mnt", 2, "root may"),
        ("allow 4001 send", 2, "USER VERBS TARGET"),
        ("allow 4001 send mnt --dataset none", 10, "none"),
        ("disallow @no-such-group send mnt", 10, "no group is named"),
    ] {
        bench.run(line).refused(status, &[says]);
    }
    let told = bench.run("allow mnt --json").result();
    assert_eq!(told.as_array().map(Vec::len), Some(0), "{told}");
}

#[test]
fn the_number_of_forks_of_a_user_can_be_set() {
    let Some(bench) = shared() else { return };
    bench.run("set mnt userforks=1").good();
    marram(&bench, ANN, "fork mnt/ann one").good();
    marram(&bench, ANN, "fork mnt/ann two").refused(12, &["at most 1 forks", "userforks"]);
    marram(&bench, BOB, "fork mnt/bob his").good();
    bench.run("fork mnt roots").good();
    bench.run("set mnt userforks=2").good();
    marram(&bench, ANN, "fork mnt/ann two").good();
}
