//! Copies of a pool have its id. A command about a copy is never done to the original, and what
//! serves the original is found by whatever leads to it.

use crate::workbench::{Attached, Workbench, can_mount};
use std::fs;

/// A pool mounted on `mnt` with the snapshot `x`, and `copy.pool`, which it was before that mount.
fn with_copy() -> Option<Workbench> {
    if !can_mount() {
        return None;
    }
    let bench = Workbench::with_pool();
    bench.run("snapshot work.pool@x").good();
    fs::copy(bench.path("work.pool"), bench.path("copy.pool")).expect("copied");
    bench.make_folder("mnt");
    bench.make_folder("two");
    bench.run("mount work.pool mnt").good();
    Some(bench)
}

fn has_the_snapshot(bench: &Workbench, target: &str) -> bool {
    bench.run(&format!("list {target}")).good().out.contains("root@x")
}

#[test]
fn a_command_about_a_copy_is_not_done_to_the_original() {
    let Some(bench) = with_copy() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    let pid = bench.daemon_pid("mnt");
    let copy_before = fs::read(bench.path("copy.pool")).unwrap();
    for line in [
        "destroy snapshot --yes copy.pool@x",
        "rollback copy.pool@x",
        "snapshot copy.pool@y",
        "set copy.pool compression=off",
        "grow copy.pool --size 256M",
        "mount copy.pool two",
        "mount copy.pool@x two",
        "unmount copy.pool",
        "list copy.pool",
    ] {
        let process = format!("process {pid}");
        let words = ["copy.pool is a copy", "work.pool", &process, "unmount"];
        bench.run(line).refused(11, &words);
    }
    assert!(has_the_snapshot(&bench, "mnt"));
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "content");
    assert_eq!(bench.mounts().len(), 1);
    bench.run("check copy.pool").good();
    assert!(fs::read(bench.path("copy.pool")).unwrap() == copy_before, "not a byte has changed");
    bench.run("unmount mnt").good();
    bench.run("mount copy.pool two").good();
    assert!(!bench.path("two/file").exists(), "it is the copy");
    bench.run("destroy snapshot --yes copy.pool@x").good();
    bench.run("destroy snapshot --yes work.pool@x").refused(11, &["is a copy", "copy.pool"]);
    bench.run("unmount two").good();
    assert!(has_the_snapshot(&bench, "work.pool"));
}

#[test]
fn the_original_is_found_by_its_new_name_and_through_links() {
    let Some(bench) = with_copy() else { return };
    fs::rename(bench.path("work.pool"), bench.path("renamed.pool")).unwrap();
    std::os::unix::fs::symlink("renamed.pool", bench.path("link.pool")).unwrap();
    fs::hard_link(bench.path("renamed.pool"), bench.path("second.pool")).unwrap();
    for (name, at) in [("renamed.pool", "a"), ("link.pool", "b"), ("second.pool", "c")] {
        bench.run(&format!("snapshot {name}@{at}")).good();
    }
    let listed = bench.run("list mnt").good().out;
    assert!(["root@a", "root@b", "root@c"].iter().all(|one| listed.contains(one)), "{listed}");
    // What has come to the old name is not the pool.
    fs::rename(bench.path("copy.pool"), bench.path("work.pool")).unwrap();
    bench.run("destroy snapshot --yes work.pool@x").refused(11, &["work.pool is a copy"]);
    bench.run("snapshot mnt@d").good();
    bench.run("unmount renamed.pool").good();
    assert!(bench.mounts().is_empty());
}

#[test]
fn a_mount_is_not_made_anew_from_a_copy_that_has_the_name_of_its_pool() {
    let Some(bench) = with_copy() else { return };
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt -o ro").good();
    fs::rename(bench.path("work.pool"), bench.path("renamed.pool")).unwrap();
    fs::rename(bench.path("copy.pool"), bench.path("work.pool")).unwrap();
    bench.run("mount work.pool mnt -o remount,rw").refused(11, &["not the pool any more"]);
    assert_eq!(bench.mounts().len(), 1);
    bench.run("unmount mnt").good();
}

#[test]
fn of_two_copies_that_are_mounted_at_once_one_is() {
    let Some(bench) = with_copy() else { return };
    bench.run("unmount mnt").good();
    let mount = |pool: &str, at: &str| bench.run(&format!("mount {pool} {at}")).status;
    let (one, other) = std::thread::scope(|threads| {
        let one = threads.spawn(|| mount("work.pool", "mnt"));
        let other = mount("copy.pool", "two");
        (one.join().unwrap_or(-1), other)
    });
    assert_eq!((one.min(other), one.max(other)), (0, 11));
    assert_eq!(bench.mounts().len(), 1);
    bench.run(if one == 0 { "unmount mnt" } else { "unmount two" }).good();
}

#[test]
fn a_loop_device_is_the_file_behind_it() {
    let Some(bench) = with_copy() else { return };
    let (Some(device), Some(copy)) =
        (Attached::to(&bench, "work.pool", ""), Attached::to(&bench, "copy.pool", ""))
    else {
        return;
    };
    // As long as anybody has the device open, the kernel keeps what was read of it.
    let mut open = fs::File::open(&device.path).unwrap();
    std::io::Read::read_to_end(&mut open, &mut Vec::new()).unwrap();
    bench.run(&format!("snapshot {}@a", device.path)).good();
    bench.run(&format!("snapshot {}@a", copy.path)).refused(11, &["is a copy"]);
    bench.run("unmount mnt").good();
    bench.run(&format!("mount {} mnt", device.path)).good();
    bench.run("snapshot work.pool@b").good();
    bench.run("snapshot copy.pool@b").refused(11, &["is a copy"]);
    let listed = bench.run("list mnt").good().out;
    assert!(listed.contains("root@a") && listed.contains("root@b"), "{listed}");
    bench.run("unmount mnt").good();
}
