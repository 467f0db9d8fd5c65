//! Streams that are cut and go on, by the command: what has come is kept, shown, gone on from and
//! dropped.

use crate::tree::{assert_same, fill, half_received, shell, wait_for};
use crate::workbench::{Workbench, can_mount};
use std::fs;

/// A bench with a stream of a filled tree in `a.stream`, mounted read-only at `one`.
fn sender() -> Workbench {
    let bench = Workbench::with_pool();
    for folder in ["mnt", "one", "two", "there"] {
        bench.make_folder(folder);
    }
    bench.run("create other.pool --size 128M").good();
    bench.run("mount work.pool mnt").good();
    fill(&bench.path("mnt"));
    bench.run("snapshot mnt@a").good();
    bench.run("send mnt@a --to-file a.stream").good();
    bench
}

fn token(bench: &Workbench, pool: &str) -> String {
    bench.run(&format!("receive {pool} copy --token")).good().out.trim().to_owned()
}

fn cut(bench: &Workbench, name: &str) {
    let whole = fs::read(bench.path(name)).unwrap();
    fs::write(bench.path("cut.stream"), &whole[..whole.len() * 3 / 5]).unwrap();
}

#[test]
fn what_came_of_a_stream_that_was_cut_is_kept_and_the_rest_follows() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    cut(&bench, "a.stream");
    let said = bench.run("receive other.pool copy --resumable --from-file cut.stream");
    let said = said.refused(1, &["it is cut", "kept of copy@a", "--resume", "--abort"]);
    let token = token(&bench, "other.pool");
    assert!(said.err.contains(&token), "the error tells the token too: {said:?}");
    let list = bench.run("list other.pool -H").good().out;
    assert!(list.contains("receive:part:1\tpartial"), "{list}");
    let status = bench.run("status other.pool").good().out;
    assert!(status.contains("copy@a") && status.contains("cut"), "{status}");
    let row = bench.run("status other.pool --json").result()[0]["partials"][0].clone();
    assert_eq!(row["token"], token.as_str());
    assert!(row["content_bytes"].as_u64() > Some(50_000), "{row}");
    bench.run("check other.pool --data").good();

    // Nothing else goes by that name meanwhile, and a wrong token changes nothing.
    bench.run("receive other.pool copy --from-file a.stream").refused(1, &["a part of copy@a"]);
    bench.run("send mnt --resume 0102").refused(2, &["no token"]);
    let altered = format!("{}7", &token[..token.len() - 1]);
    let other = if altered == token { format!("{}8", &token[..token.len() - 1]) } else { altered };
    bench.run(&format!("send mnt --resume {other}")).refused(2, &["no token"]);
    bench.run(&format!("send other.pool --resume {token}")).refused(1, &["not got the snapshot"]);
    bench.run(&format!("send mnt@a --resume {token}")).refused(10, &[]);
    assert_eq!(self::token(&bench, "other.pool"), token);

    // The rest is less than the whole, and can go through a file too.
    bench.run(&format!("send mnt --resume {token} --to-file rest.stream")).good();
    let size = |name: &str| fs::metadata(bench.path(name)).unwrap().len();
    assert!(size("rest.stream") < size("a.stream"), "{}", size("rest.stream"));
    let checked = bench.run("check rest.stream").good().out;
    assert!(checked.contains("the rest of a stream of root@a"), "{checked}");
    let told = bench.run("receive other.pool copy --from-file rest.stream").good().out;
    assert!(told.contains("received copy@a"), "{told}");
    bench.run("receive other.pool copy --token").refused(10, &["nothing of a stream"]);
    bench.run("receive other.pool copy --from-file rest.stream").refused(1, &["received before"]);
    bench.run("mount work.pool@a one").good();
    bench.run("mount other.pool@a two --dataset copy").good();
    assert_same(&bench, "one", "two");
    bench.run("unmount one two mnt").good();
    bench.run("check other.pool --data").good();
}

#[test]
fn a_daemon_that_is_killed_or_ends_keeps_what_has_come() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    let stream = fs::read(bench.path("a.stream")).unwrap();
    bench.run("mount other.pool there").good();
    let partials = || bench.run("status there --json").result()[0]["partials"].clone();
    let has_come = || partials()[0]["items"].as_u64() > Some(0);

    // The client goes away; the daemon keeps what it has.
    let mut child = half_received(&bench, &stream, "there copy -s");
    wait_for("something has come", has_come);
    assert_eq!(partials()[0]["running"], true);
    bench.run("receive there copy --abort").refused(1, &["being received at this moment"]);
    bench.run("receive there copy --from-file a.stream").refused(1, &["at this moment"]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the daemon has let go", || partials()[0]["running"] == false);

    // The daemon ends while the rest of it stands still, and later another one is killed.
    let part = token(&bench, "there");
    bench.run(&format!("send mnt --resume {part} --to-file rest.stream")).good();
    let rest = fs::read(bench.path("rest.stream")).unwrap();
    let child = half_received(&bench, &rest, "there copy");
    wait_for("it goes on", || partials()[0]["running"] == true);
    bench.run("unmount there").good();
    let ended = child.wait_with_output().unwrap();
    assert!(!ended.status.success());
    let later = token(&bench, "other.pool");
    bench.run(&format!("send mnt --resume {later} --to-file last.stream")).good();
    let last = fs::read(bench.path("last.stream")).unwrap();
    assert!(last.len() <= rest.len() && rest.len() < stream.len());

    bench.run("mount other.pool there").good();
    let mut child = half_received(&bench, &last, "there copy");
    wait_for("it goes on", || partials()[0]["running"] == true);
    let pid = rustix::process::Pid::from_raw(bench.daemon_pid("there")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    bench.run("unmount there").good();
    bench.run("mount other.pool there").good();
    let line =
        format!("marram send mnt --resume {} | marram receive there copy", token(&bench, "there"));
    shell(&bench, &line).good();
    assert_eq!(partials().as_array().map(Vec::len), Some(0));
    bench.run("mount work.pool@a one").good();
    bench.run("mount other.pool@a two --dataset copy").good();
    assert_same(&bench, "one", "two");
    bench.run("unmount one two mnt there").good();
    bench.run("check other.pool --data").good();
}

#[test]
fn what_is_kept_of_an_increment_can_be_dropped_and_gives_its_space_back() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    bench.run("receive other.pool copy --from-file a.stream").good();
    let mixed: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
    fs::write(bench.path("mnt/d/e/more"), &mixed).unwrap();
    bench.run("snapshot mnt@b").good();
    bench.run("send mnt@b --from a --to-file b.stream").good();
    cut(&bench, "b.stream");
    bench.run("mount other.pool there --dataset copy").good();
    let allocated = || {
        bench.run("sync there").good();
        bench.run("status there --json").result()[0]["allocated_bytes"].as_u64().unwrap()
    };
    let before = allocated();
    bench.run("receive there copy -s --from-file cut.stream").refused(1, &["kept of copy@b"]);
    assert!(!bench.path("there/d/e/more").exists(), "nobody sees a part");
    assert!(allocated() > before + (1 << 20));
    let line = bench.run("list there -H").good().out;
    let partial = line.lines().find(|line| line.starts_with("receive:part:1")).unwrap();
    assert!(partial.contains("copy@a"), "what it goes on from: {partial}");
    bench.run("destroy snapshot other.pool@a --dataset copy").refused(11, &["receive:part:1"]);
    let told = bench.run("receive there copy --abort").good().out;
    assert!(told.contains("dropped"), "{told}");
    wait_for("its space is back", || allocated() < before + (256 << 10));
    bench.run("receive there copy --abort").refused(1, &["nothing of a stream is kept"]);
    bench.run("receive there copy --from-file b.stream").good();
    assert_eq!(fs::read(bench.path("there/d/e/more")).unwrap(), mixed);
    bench.run("unmount there mnt").good();
    bench.run("check other.pool --data").good();
}

#[test]
fn snapshots_of_the_receiver_while_a_part_is_kept_are_not_in_the_way_and_changes_take_force() {
    if !can_mount() {
        return;
    }
    let bench = sender();
    bench.run("receive other.pool copy --from-file a.stream").good();
    fs::write(bench.path("mnt/more"), vec![7; 2_000_000]).unwrap();
    bench.run("snapshot mnt@b").good();
    bench.run("send mnt@b --from a --to-file b.stream").good();
    cut(&bench, "b.stream");
    bench.run("mount other.pool there --dataset copy").good();
    bench.run("receive there copy -s --from-file cut.stream").refused(1, &["kept of copy@b"]);
    bench.run("snapshot there@mine").good();
    bench.run("hold there@mine why").good();
    bench.run("snapshot there --auto --keep 1").good();
    let rest = |of: &str| {
        let token = token(&bench, "there");
        bench.run(&format!("send mnt --resume {token} --to-file {of}")).good();
    };
    rest("rest.stream");
    bench.run("receive there copy --from-file rest.stream").good();
    // Nothing is read: the time of that would be a change.
    assert_eq!(fs::metadata(bench.path("there/more")).unwrap().len(), 2_000_000);
    let shelf = bench.path("there/.marram/snapshots");
    assert!(shelf.join("mine/big").exists() && !shelf.join("mine/more").exists());

    // What is written meanwhile takes force, and stays.
    fs::write(bench.path("mnt/later"), "later").unwrap();
    fs::write(bench.path("mnt/more"), vec![8; 2_000_000]).unwrap();
    bench.run("snapshot mnt@c").good();
    bench.run("send mnt@c --from b --to-file c.stream").good();
    cut(&bench, "c.stream");
    bench.run("receive there copy -s --from-file cut.stream").refused(1, &["kept of copy@c"]);
    fs::write(bench.path("there/own"), "own").unwrap();
    bench.run("snapshot there@own").good();
    rest("last.stream");
    let told = bench.run("receive there copy --from-file last.stream");
    told.refused(1, &["snapshots with changes", "force it", "kept of copy@c", "--resume"]);
    let told = bench.run("receive there copy --force --from-file last.stream").good().out;
    assert!(told.contains("copy@before-receive-1"), "{told}");
    assert!(!bench.path("there/own").exists() && bench.path("there/later").exists());
    assert_eq!(fs::read_to_string(shelf.join("own/own")).unwrap(), "own");
    assert_eq!(fs::read_to_string(shelf.join("before-receive-1/own")).unwrap(), "own");
    bench.run("destroy snapshot there@mine --yes").refused(11, &["held"]);
    bench.run("unmount there mnt").good();
    bench.run("check other.pool --data").good();
}
