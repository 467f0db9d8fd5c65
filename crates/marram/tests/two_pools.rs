//! One transaction over two pools, each with a daemon of its own: all of what a command does is in
//! both, or in neither, whatever is killed at whatever step.

use crate::tree::wait_for;
use crate::workbench::{Outcome, Workbench, outcome};
use crate::{Bench, end, mounted, read};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The status of a commit that was refused, and of one of which it is not known.
const REFUSED: i32 = 123;
const UNKNOWN: i32 = 122;
/// How often a transaction is to be brought into doubt, each time a little later.
const ATTEMPTS: u64 = 6;
/// What ends a doubt without a command: the mount of the other pool.
const MOUNT: &str = "mount";
/// Rounds in which something is killed.
const KILLS: u64 = 9;

/// A pool on `mnt`, and another one on `other`.
fn both() -> Option<Bench> {
    let bench = mounted()?;
    bench.run("create other.pool --size 64M").good();
    bench.make_folder("other");
    bench.run("mount other.pool other").good();
    fs::write(bench.path("other/c"), "three\n").unwrap();
    Some(bench)
}

/// A line of the shell as a transaction over both.
fn transaction(bench: &Workbench, words: &str, line: &str) -> Command {
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run", "--with", "../other"]);
    command.args(words.split_whitespace()).args(["--", "sh", "-c", line]);
    command.env("OUT", bench.path(".")).env("MARRAM", env!("CARGO_BIN_EXE_marram"));
    command
}

fn run(bench: &Workbench, words: &str, line: &str) -> Outcome {
    outcome(&mut transaction(bench, words, line))
}

fn start(bench: &Workbench, line: &str) -> Child {
    let mut command = transaction(bench, "", line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Outcome {
    let ended = child.wait_with_output().unwrap();
    Outcome {
        status: ended.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&ended.stdout).into_owned(),
        err: String::from_utf8_lossy(&ended.stderr).into_owned(),
    }
}

fn status(bench: &Workbench, target: &str) -> Value {
    let told = bench.run(&format!("status {target} --json"));
    let all: Value = serde_json::from_str(&told.out).unwrap();
    all["result"][0].clone()
}

fn unfinished(bench: &Workbench, target: &str) -> Vec<Value> {
    status(bench, target)["two_pools"].as_array().cloned().unwrap_or_default()
}

/// Pools with their mounts: the one that decides, and the one that prepares.
type Roles = [(&'static str, &'static str); 2];

fn roles(bench: &Workbench) -> Roles {
    let mut both = [("work.pool", "mnt"), ("other.pool", "other")];
    both.sort_by_key(|(pool, _)| status(bench, pool)["pool_id"].as_str().unwrap().to_owned());
    both
}

fn kill(bench: &Workbench, pool: &str, pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let file = fs::File::open(bench.path(pool)).unwrap();
    wait_for("the daemon dies", || file.try_lock().is_ok());
}

/// Reads a directory; to open it asks nobody.
fn listed(bench: &Workbench, path: &str) -> std::io::Result<()> {
    fs::read_dir(bench.path(path))?.try_for_each(|entry| entry.map(|_| ()))
}

fn finish(bench: Bench) {
    for pool in ["work.pool", "other.pool"] {
        wait_for("both have heard of each other", || unfinished(&bench, pool).is_empty());
    }
    bench.run("unmount other").good();
    bench.run("check other.pool").good();
    end(&bench);
}

const CHANGES: &str =
    "set -e; cat src/b $OUT/other/c; echo one > src/b; echo new > $OUT/other/new; rm $OUT/other/c";

#[test]
fn what_a_command_does_in_two_pools_is_in_both_or_in_neither() {
    let Some(bench) = both() else { return };
    let ran = run(&bench, "", &format!("{CHANGES}; exit 3"));
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "other/c")),
        ("two\n".into(), "three\n".into())
    );
    let ran = run(&bench, "--json", CHANGES);
    assert_eq!(ran.status, 0, "{ran:?}");
    let id = ran.result()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "other/new")),
        ("one\n".into(), "new\n".into())
    );
    assert!(!bench.path("other/c").exists());
    for target in ["mnt", "other"] {
        let shown = bench.run(&format!("tx show {target} {id} --json")).result();
        assert_eq!(shown["state"], "committed", "{target}");
        assert!(unfinished(&bench, target).is_empty(), "{target}");
        wait_for("the forks go", || {
            !bench.run(&format!("list {target} --all")).good().out.contains("tx:")
        });
    }
    // Each pool takes its own part back.
    bench.run("undo other --yes").good();
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "other/c")),
        ("one\n".into(), "three\n".into())
    );
    // What was only read in one pool is compared there.
    for (read_in, change) in [("$OUT/other/c", "src/b"), ("src/b", "$OUT/other/c")] {
        let other = if change == "src/b" { "other/c" } else { "mnt/src/b" };
        let line = format!(
            "cat {read_in}; echo x >> {change}; : > $OUT/here; \
             until [ -e $OUT/go -o ! -d $OUT ]; do sleep 0.02; done"
        );
        let before = [read(&bench, "mnt/src/b"), read(&bench, "other/c")];
        let child = start(&bench, &line);
        wait_for("it comes so far", || bench.path("here").exists());
        fs::write(bench.path(other), "theirs\n").unwrap();
        fs::write(bench.path("go"), "").unwrap();
        ended(child).refused(REFUSED, &["content changed by others"]);
        let unchanged = if other == "other/c" { ("mnt/src/b", 0) } else { ("other/c", 1) };
        assert_eq!(read(&bench, unchanged.0), before[unchanged.1], "nothing of it is there");
        ["go", "here"].iter().for_each(|name| fs::remove_file(bench.path(name)).unwrap());
    }
    run(&bench, "", "cat src/b $OUT/other/c").good();
    finish(bench);
}

#[test]
fn what_cannot_be_in_two_pools_is_refused_by_name() {
    let Some(bench) = both() else { return };
    bench.run("create third.pool --size 64M").good();
    bench.make_folder("third");
    bench.run("mount third.pool third").good();
    for (words, told) in
        [("--with ../third", "third.pool"), ("--with /proc", "not inside a mounted Marram")]
    {
        run(&bench, words, ": > $OUT/ran").refused(125, &[told]);
    }
    bench.run("tx begin mnt --with other --with third").refused(2, &["third.pool", "at most"]);
    let inner = "\"$MARRAM\" tx run --with $OUT/other -- true; test $? = 125";
    outcome(
        bench
            .command()
            .current_dir(bench.path("mnt"))
            .args(["tx", "run", "--", "sh", "-c"])
            .arg(inner)
            .env("OUT", bench.path("."))
            .env("MARRAM", env!("CARGO_BIN_EXE_marram")),
    )
    .good();
    assert!(!bench.path("ran").exists());
    bench.run("tx resolve mnt 0123456789abcdef").refused(10, &["unfinished"]);
    bench.run("unmount third").good();
    finish(bench);
}

/// Kills a command, the daemon that decides, or the one that prepares, by turns. Then both pools
/// are mounted, and have heard of each other.
fn killed(
    bench: &Workbench,
    (roles, pids): (Roles, [i32; 2]),
    child: Child,
    round: u64,
) -> Outcome {
    let victim = usize::try_from(round % 3).unwrap();
    match roles.get(victim) {
        Some((pool, _)) => kill(bench, pool, pids[victim]),
        None => kill_process(Pid::from_child(&child), Signal::KILL).unwrap(),
    }
    let ran = ended(child);
    if let Some((pool, mount)) = roles.get(victim) {
        bench.run(&format!("mount {pool} {mount}")).good();
    }
    for (pool, mount) in roles {
        wait_for("both have heard of each other", || unfinished(bench, pool).is_empty());
        listed(bench, mount).expect("a mount that was there during a doubt goes on");
    }
    ran
}

/// The command, the daemon that prepares or that which decides is killed at some moment around the
/// commit. When both pools are there again, both have the round's file or neither.
#[test]
fn a_kill_at_any_step_leaves_both_or_neither() {
    let Some(bench) = both() else { return };
    let roles = roles(&bench);
    let mut counts = [0; 2];
    for round in 0..KILLS {
        let line = format!(
            "for n in $(seq 60); do echo {round} > r{round}-$n; \
             echo {round} > $OUT/other/r{round}-$n; done; : > $OUT/here"
        );
        let pids = roles.map(|(_, mount)| bench.daemon_pid(mount));
        let child = start(&bench, &line);
        wait_for("the command has ended", || bench.path("here").exists());
        fs::remove_file(bench.path("here")).unwrap();
        std::thread::sleep(Duration::from_millis(round * 3));
        let ran = killed(&bench, (roles, pids), child, round);
        let count = |mount: &str| {
            let names = fs::read_dir(bench.path(mount)).unwrap();
            let is_it = |name: &str| name.starts_with(&format!("r{round}-"));
            names.filter(|it| is_it(&it.as_ref().unwrap().file_name().to_string_lossy())).count()
        };
        wait_for("the commit of a killed command is over", || {
            [0, 60].contains(&count("mnt")) && count("mnt") == count("other")
        });
        assert!(ran.status != 0 || count("mnt") == 60, "round {round}: {ran:?}");
        counts[usize::from(count("mnt") == 60)] += 1;
    }
    eprintln!("{KILLS} kills: {} there, {} not", counts[1], counts[0]);
    finish(bench);
}

/// Brings a transaction into doubt: the daemon that decides is killed while it does, so long after
/// the command has ended. Its id; none if that was too early or too late.
fn into_doubt(bench: &Workbench, name: &str, millis: u64) -> Option<String> {
    let [(decides, its_mount), (prepares, mount)] = roles(bench);
    let pid = bench.daemon_pid(its_mount);
    let line = format!(
        "for n in $(seq 1500); do echo {name} > $OUT/{its_mount}/{name}-$n; done; \
         echo {name} > $OUT/{mount}/{name}; echo {name} > $OUT/{its_mount}/{name}; : > $OUT/here"
    );
    let child = start(bench, &line);
    wait_for("the command has ended", || bench.path("here").exists());
    fs::remove_file(bench.path("here")).unwrap();
    std::thread::sleep(Duration::from_millis(millis));
    kill(bench, decides, pid);
    match ended(child).status {
        UNKNOWN => Some(unfinished(bench, prepares)[0]["id"].as_str().unwrap().to_owned()),
        _ => {
            bench.run(&format!("mount {decides} {its_mount}")).good();
            wait_for("both have heard of each other", || unfinished(bench, prepares).is_empty());
            None
        }
    }
}

/// A transaction that was decided by hand is over when the other pool agrees, or is forgotten.
fn conclude(bench: &Workbench, prepares: &str, id: &str, they_agree: bool) {
    if they_agree {
        return wait_for("they agree", || unfinished(bench, prepares).is_empty());
    }
    let resolve = format!("tx resolve {prepares} {id}");
    bench.run(&resolve).refused(1, &["do not agree"]);
    bench.run(&format!("{resolve} --forget")).good();
}

/// Moves the pool that decides, and mounts it: then it is found by its id. A copy has that too, and
/// so only a decision is believed; that there was none takes a word.
fn move_the_decider(bench: &Workbench, (name, id): (&str, &str)) {
    let [(decides, its_mount), (prepares, _)] = roles(bench);
    fs::rename(bench.path(decides), bench.path("moved.pool")).unwrap();
    bench.run(&format!("mount moved.pool {its_mount}")).good();
    if !bench.path(&format!("{its_mount}/{name}")).exists() {
        std::thread::sleep(Duration::from_secs(3));
        assert!(!unfinished(bench, prepares).is_empty());
        bench.run(&format!("tx resolve {prepares} {id}")).good();
    }
    wait_for("both have heard of each other", || unfinished(bench, prepares).is_empty());
}

#[test]
fn what_is_in_doubt_is_named_and_ended_by_hand_or_by_the_other_pool() {
    let Some(bench) = both() else { return };
    let [(decides, its_mount), (prepares, mount)] = roles(&bench);
    let mut words = ["--commit", MOUNT, "--abort", ""].iter().cycle();
    let mut word = *words.next().unwrap();
    for attempt in 0..ATTEMPTS {
        let name = format!("a{attempt}");
        let name = name.as_str();
        fs::write(bench.path(&format!("{mount}/held")), "held").unwrap();
        let held = fs::File::open(bench.path(&format!("{mount}/held"))).unwrap();
        let Some(id) = into_doubt(&bench, name, 25 + attempt * 25) else { continue };
        let told = bench.run(&format!("status {prepares}"));
        told.refused(3, &[]);
        let told = bench.run(&format!("status {prepares}")).out;
        assert!(
            told.contains(&id) && told.contains("in doubt") && told.contains(decides),
            "{told}"
        );
        let shown = bench.run(&format!("tx show {prepares} {id}"));
        assert!(shown.status == UNKNOWN && shown.out.contains("unknown"), "{shown:?}");
        let busy = listed(&bench, mount).unwrap_err().raw_os_error();
        assert_eq!(busy, Some(16), "EBUSY");
        assert!(fs::write(bench.path(&format!("{mount}/x")), "x").is_err());
        bench.run(&format!("snapshot {prepares}@now")).refused(11, &["tx resolve"]);
        bench.run(&format!("create {prepares} --dataset beside-{name}")).good();
        let shown = bench.run(&format!("log {prepares} --json")).result();
        assert!(
            shown.as_array().unwrap().iter().any(|it| it["operation"] == "transaction-prepared")
        );
        if word == MOUNT {
            move_the_decider(&bench, (name, &id));
        }
        let committed = match word {
            MOUNT => bench.path(&format!("{its_mount}/{name}")).exists(),
            word => {
                let ended =
                    bench.run(&format!("tx resolve {prepares} {id} {word} --json")).result();
                assert_eq!(ended["by_hand"], !word.is_empty());
                ended["outcome"] == "committed"
            }
        };
        // The mount has lived through the doubt, with a file open, and goes on as it ended.
        assert_eq!(bench.path(&format!("{mount}/{name}")).exists(), committed);
        assert_eq!(std::io::read_to_string(held).unwrap(), "held");
        fs::write(bench.path(&format!("{mount}/after-{name}")), "after").unwrap();
        bench.run(&format!("snapshot {mount}@after-{name}")).good();
        if word != MOUNT {
            bench.run(&format!("mount {decides} {its_mount}")).good();
        }
        let has_it = bench.path(&format!("{its_mount}/{name}")).exists();
        match word {
            "" | MOUNT => assert_eq!(has_it, committed, "as the other pool has it"),
            _ => conclude(&bench, prepares, &id, has_it == committed),
        }
        if word == MOUNT {
            bench.run(&format!("unmount {its_mount}")).good();
            fs::rename(bench.path("moved.pool"), bench.path(decides)).unwrap();
            bench.run(&format!("mount {decides} {its_mount}")).good();
        }
        let log = bench.run(&format!("log {prepares} --json")).result();
        let entry = log.as_array().unwrap().iter().rev().find(|it| it["names"][1] == id.as_str());
        let expected = if committed { "transaction" } else { "transaction-aborted" };
        assert_eq!(entry.unwrap()["operation"], expected);
        word = *words.next().unwrap();
    }
    finish(bench);
}

/// A line of the shell in a transaction that is open, from `directory`.
fn step(bench: &Workbench, directory: &str, id: &str, line: &str) -> Outcome {
    let mut command = bench.command();
    command.current_dir(bench.path(directory)).args(["tx", "run", "--id", id, "--", "sh", "-c"]);
    outcome(command.arg(line).env("OUT", bench.path(".")))
}

fn begun(bench: &Workbench) -> String {
    bench.run("tx begin mnt --with other").good().out.trim().to_owned()
}

fn open_in(bench: &Workbench, target: &str) -> usize {
    bench.run(&format!("tx list {target} --json")).result().as_array().unwrap().len()
}

#[test]
fn one_that_stays_open_is_committed_in_both_or_in_neither() {
    let Some(bench) = both() else { return };
    let unchanged = || {
        assert_eq!(
            (read(&bench, "mnt/src/b"), read(&bench, "other/c")),
            ("two\n".into(), "three\n".into())
        );
    };
    let id = begun(&bench);
    step(&bench, "mnt", &id, "echo one > src/b; echo more >> $OUT/other/c").good();
    let seen = step(&bench, "other", &id, "cat $OUT/mnt/src/b c; echo new > new").good().out;
    assert_eq!(seen, "one\nthree\nmore\n", "each command sees what those before have done");
    unchanged();
    let row = bench.run("tx list other --json").result()[0].clone();
    assert!(row["other"]["path"].as_str().unwrap().ends_with("work.pool"), "{row}");
    assert!(bench.run("tx list mnt").good().out.contains("other.pool"));
    let told = bench.run(&format!("tx diff other {id}")).good().out;
    for line in ["/mnt/src/b", "/other/c", "/other/new"] {
        assert!(told.contains(line), "{told}");
    }
    bench.run(&format!("tx commit other {id}")).good();
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "other/c")),
        ("one\n".into(), "three\nmore\n".into())
    );
    for target in ["mnt", "other"] {
        assert_eq!(open_in(&bench, target), 0, "{target}");
        let shown = bench.run(&format!("tx show {target} {id} --json")).result();
        assert_eq!(shown["state"], "committed", "{target}");
        bench.run(&format!("undo {target} --yes")).good();
    }
    unchanged();
    // Aborted, refused, or without its other half: nothing of it is there, and none stays open.
    let id = begun(&bench);
    step(&bench, "mnt", &id, "echo lost > src/b; echo lost > $OUT/other/c").good();
    bench.run(&format!("tx abort mnt {id}")).good();
    for (read_in, others) in [("mnt/src/b", "mnt/src/b"), ("other/c", "other/c")] {
        let (id, before) = (begun(&bench), read(&bench, others));
        let line = format!("cat $OUT/{read_in}; echo lost > src/lost; echo lost > $OUT/other/lost");
        step(&bench, "mnt", &id, &line).good();
        fs::write(bench.path(others), &before).unwrap();
        bench.run(&format!("tx commit mnt {id}")).refused(REFUSED, &[others]);
        wait_for("none stays open", || open_in(&bench, "mnt") + open_in(&bench, "other") == 0);
    }
    let id = begun(&bench);
    step(&bench, "mnt", &id, "echo lost > src/lost; echo lost > $OUT/other/lost").good();
    kill(&bench, "other.pool", bench.daemon_pid("other"));
    // Nobody can say that it is not committed there: this half stays open.
    let commit = format!("tx commit mnt {id}");
    bench.run(&commit).refused(11, &["other.pool", "may be being committed"]);
    assert_eq!(open_in(&bench, "mnt"), 1);
    // A pool that was moved is found where its daemon has it.
    fs::rename(bench.path("other.pool"), bench.path("moved.pool")).unwrap();
    bench.run("mount moved.pool other").good();
    bench.run(&commit).refused(10, &["other.pool", "not open any more"]);
    assert_eq!(open_in(&bench, "mnt"), 0);
    for lost in ["mnt/src/lost", "other/lost"] {
        assert!(!bench.path(lost).exists());
    }
    bench.run("unmount other").good();
    fs::rename(bench.path("moved.pool"), bench.path("other.pool")).unwrap();
    bench.run("mount other.pool other").good();
    unchanged();
    finish(bench);
}

/// As [`a_kill_at_any_step_leaves_both_or_neither`], of `tx commit`.
#[test]
fn a_kill_while_one_that_stays_open_is_committed_leaves_both_or_neither() {
    let Some(bench) = both() else { return };
    let roles = roles(&bench);
    for round in 0..KILLS {
        let id = begun(&bench);
        let line = format!("echo x > $OUT/mnt/r{round}; echo x > $OUT/other/r{round}");
        step(&bench, "mnt", &id, &line).good();
        let pids = roles.map(|(_, mount)| bench.daemon_pid(mount));
        let mut command = bench.command();
        let command = command.args(["tx", "commit", "mnt", &id]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(2 + round * 3));
        let ran = killed(&bench, (roles, pids), child, round);
        let is_there = || ["mnt", "other"].map(|it| bench.path(&format!("{it}/r{round}")).exists());
        wait_for("both have it, or neither", || is_there()[0] == is_there()[1]);
        assert!(ran.status != 0 || is_there()[0], "round {round}: {ran:?}");
        // What was killed before it asked is open still.
        bench.run(&format!("tx abort mnt {id}"));
        bench.run(&format!("tx abort other {id}"));
    }
    finish(bench);
}
