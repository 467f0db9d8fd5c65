//! Snapshots sent and received by the command, between pools that are mounted and that are not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod workbench;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use workbench::{Workbench, can_mount};

/// How long something may take that happens at once on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a line of the shell in which `marram` is the program.
fn shell(bench: &Workbench, line: &str) -> workbench::Outcome {
    let marram = env!("CARGO_BIN_EXE_marram");
    bench.host(&["sh", "-c", &format!("marram() {{ {marram} \"$@\"; }}; {line}")])
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

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

fn fill(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    for index in 0..200_usize {
        fs::write(root.join(format!("d/f{index}")), vec![index as u8; index * 97]).unwrap();
    }
    let mixed: Vec<u8> = (0..1_500_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    fs::write(root.join("big"), &mixed).unwrap();
    fs::hard_link(root.join("big"), root.join("d/again")).unwrap();
    std::os::unix::fs::symlink("d/nowhere", root.join("link")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (1 << 30) - 3).unwrap();
    rustix::fs::setxattr(root.join("d"), "user.note", &[7; 5000], rustix::fs::XattrFlags::empty())
        .unwrap();
    std::os::unix::fs::chown(root.join("d/f1"), Some(1000), Some(100)).unwrap();
}

/// What programs can see of a tree, inode numbers too.
fn seen(bench: &Workbench, folder: &str) -> String {
    let format = "%P %i %m %U %G %s %b %n %y %T@ %C@ %l\\n";
    let listing = bench.host(&["find", folder, "-printf", format]).good().out;
    let mut lines: Vec<&str> = listing.lines().collect();
    lines.sort_unstable();
    let note = fs::read(bench.path(folder).join("big")).unwrap();
    format!("{}\n{:?}", lines.join("\n"), note.iter().map(|byte| u64::from(*byte)).sum::<u64>())
}

fn assert_same(bench: &Workbench, one: &str, other: &str) {
    assert_eq!(seen(bench, one), seen(bench, other));
    let left = format!("{one}/d");
    bench.host(&["diff", "-r", "--no-dereference", &left, &format!("{other}/d")]).good();
    bench.host(&["cmp", &format!("{one}/big"), &format!("{other}/big")]).good();
    let mut value = [vec![0; 5000], vec![1; 5000]];
    for (folder, value) in [one, other].iter().zip(&mut value) {
        rustix::fs::getxattr(bench.path(folder).join("d"), "user.note", &mut value[..]).unwrap();
    }
    assert_eq!(value[0], value[1]);
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

/// A receiver that has got a part of a stream and waits for the rest.
fn half_received(bench: &Workbench, stream: &[u8], target: &str) -> Child {
    let mut command = bench.command();
    command.args(["receive", target, "copy"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = child.stdin.as_mut().unwrap();
    input.write_all(&stream[..stream.len() / 2]).unwrap();
    input.flush().unwrap();
    child
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

    let mut child = half_received(&bench, &stream, "other.pool");
    child.kill().unwrap();
    child.wait().unwrap();
    bench.run("mount other.pool there").good();
    let list = || bench.run("list there -a -H").good().out;
    assert!(!list().contains("receive:") && !list().contains("copy"), "{}", list());

    let mut child = half_received(&bench, &stream, "there");
    wait_for("a dataset receives", || list().contains("receive:1"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the daemon has let go", || !list().contains("receive:"));
    assert!(!list().contains("copy"), "{}", list());
    bench.run("create there --dataset receive:7").refused(2, &["pool's own"]);

    // A daemon that ends does not wait for a pipe that stands still.
    let child = half_received(&bench, &stream, "there");
    wait_for("a dataset receives", || list().contains("receive:1"));
    bench.run("unmount there").good();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("being closed"), "{said}");
    bench.run("receive other.pool copy --from-file a.stream").good();
    bench.run("check other.pool --data").good();
}
