//! `marram tx run` on a home that two daemons have open: what a command does on one host is there
//! at once on the other, or not at all.

use crate::workbench::{Outcome, outcome};
use crate::{PATIENCE, Pair, Place, names, read};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

on_each_home!(
    what_a_command_does_is_there_at_once_on_the_other_host,
    what_the_other_host_has_changed_refuses_a_commit,
    a_daemon_that_is_killed_leaves_nothing_of_a_transaction,
);

/// The status of a commit that was refused.
const REFUSED: i32 = 123;

/// A line of the shell as a transaction on one of the hosts.
fn transaction(pair: &Pair, host: usize, words: &str, line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_marram"));
    let mut command = match host {
        0 => pair.bench.command(),
        _ => pair.command_there(program),
    };
    let mount = pair.bench.path(["here", "there"][host]);
    command.args(["tx", "run", "--in"]).arg(mount).args(words.split_whitespace());
    command.args(["--", "sh", "-c"]).arg(format!("cd {}; {line}", at(pair, host)));
    command.env("OUT", pair.bench.path("."));
    command
}

fn at(pair: &Pair, host: usize) -> String {
    pair.bench.path(["here", "there"][host]).to_string_lossy().into_owned()
}

fn run(pair: &Pair, host: usize, words: &str, line: &str) -> Outcome {
    outcome(&mut transaction(pair, host, words, line))
}

/// One that says that it has come so far, and waits for leave to go on.
struct Paused<'p> {
    pair: &'p Pair,
    child: Child,
    name: &'static str,
}

impl<'p> Paused<'p> {
    fn start(pair: &'p Pair, host: usize, name: &'static str, lines: [&str; 2]) -> Paused<'p> {
        let [before, after] = lines;
        let line = format!(
            "{before}; : > $OUT/{name}.here
            until [ -e $OUT/{name}.go -o ! -d $OUT ]; do sleep 0.02; done; {after}"
        );
        let mut command = transaction(pair, host, "", &line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let came = pair.bench.path(&format!("{name}.here"));
        wait_for("the command comes so far", || came.exists());
        Paused { pair, child, name }
    }

    fn go_on(self) -> Outcome {
        fs::write(self.pair.bench.path(&format!("{}.go", self.name)), "").unwrap();
        let ended = self.child.wait_with_output().unwrap();
        Outcome {
            status: ended.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&ended.stdout).into_owned(),
            err: String::from_utf8_lossy(&ended.stderr).into_owned(),
        }
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: in vain");
        thread::sleep(Duration::from_millis(20));
    }
}

/// No list has anything of a transaction.
fn await_nothing_left(pair: &Pair) {
    wait_for("the fork goes", || !pair.there("list there --all").good().out.contains("tx:"));
}

fn what_a_command_does_is_there_at_once_on_the_other_host(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::create_dir(here.join("d")).unwrap();
    fs::write(here.join("a"), "before").unwrap();
    fs::write(here.join("beside"), "").unwrap();
    let lines = ["for i in 0 1 2 3 4 5 6 7 8 9; do echo $i > d/$i; done; rm a", "cat d/7"];
    let paused = Paused::start(&pair, 0, "one", lines);
    for mount in [&here, &there] {
        assert_eq!((names(&mount.join("d")), read(&mount.join("a"))), (vec![], "before".into()));
    }
    let listed = pair.run("tx list here --json").result();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let fork = format!("tx:{}", listed[0]["id"].as_str().unwrap());
    for line in ["snapshot there@x --dataset", "promote there"] {
        pair.there(&format!("{line} {fork}")).refused(2, &["fork of a transaction"]);
    }
    assert!(!pair.there("list there").good().out.contains("tx:"));
    assert!(names(&there.join(".marram/forks")).is_empty());
    // A file that has nothing to do with it.
    fs::write(there.join("beside"), "written meanwhile").unwrap();
    let ran = thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let began = Instant::now();
            loop {
                let count = names(&there.join("d")).len();
                assert!(count == 0 || count == 10, "{count} of 10 files are there");
                if count == 10 || began.elapsed() > PATIENCE {
                    break;
                }
            }
        });
        let ran = paused.go_on();
        looks.join().unwrap();
        ran
    });
    assert_eq!((ran.status, ran.out.as_str()), (0, "7\n"), "{ran:?}");
    for mount in [&here, &there] {
        assert_eq!((names(&mount.join("d")).len(), read(&mount.join("d/3"))), (10, "3\n".into()));
        assert!(!mount.join("a").exists());
        assert_eq!(read(&mount.join("beside")), "written meanwhile");
    }
    let log = pair.there("log there --json").result();
    let entries = log.as_array().unwrap();
    let [entry] = &entries[..] else { panic!("{log}") };
    assert_eq!(entry["operation"], "transaction", "{log}");
    let id = entry["names"][1].as_str().unwrap();
    let shown = pair.run(&format!("tx show here {id} --json")).result();
    assert_eq!((&shown["state"], &shown["operation"]), (&"committed".into(), &entry["number"]));
    await_nothing_left(&pair);
    pair.there("undo there --yes").good();
    for mount in [&here, &there] {
        assert_eq!((names(&mount.join("d")), read(&mount.join("a"))), (vec![], "before".into()));
        assert_eq!(read(&mount.join("beside")), "written meanwhile");
    }
    // One that fails.
    let ran = run(&pair, 1, "", "echo x > a; rm -r d; exit 3");
    assert_eq!((ran.status, ran.err.as_str()), (3, ""), "{ran:?}");
    for mount in [&here, &there] {
        assert_eq!((names(&mount.join("d")), read(&mount.join("a"))), (vec![], "before".into()));
    }
    await_nothing_left(&pair);
    pair.finish();
}

fn what_the_other_host_has_changed_refuses_a_commit(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    for name in ["read", "written", "other"] {
        fs::write(here.join(name), "before").unwrap();
    }
    let lines = ["cat read > copy; echo x > written", "true"];
    for (run, changed) in [("one", "read"), ("two", "written")] {
        let paused = Paused::start(&pair, 0, run, lines);
        fs::write(there.join(changed), "by the other").unwrap();
        let ran = paused.go_on();
        assert_eq!(ran.status, REFUSED, "{ran:?}");
        assert!(ran.err.contains(changed), "{ran:?}");
        for mount in [&here, &there] {
            assert!(!mount.join("copy").exists());
            assert_eq!(read(&mount.join(changed)), "by the other");
        }
    }
    // A name that was not there is read, too.
    let paused = Paused::start(&pair, 0, "three", ["[ ! -e new ] && echo none > none", "true"]);
    fs::write(there.join("new"), "by the other").unwrap();
    let ran = paused.go_on();
    assert!(ran.status == REFUSED && ran.err.contains("new"), "{ran:?}");
    // What it has not read.
    let paused = Paused::start(&pair, 0, "four", lines);
    fs::write(there.join("other"), "by the other").unwrap();
    assert_eq!(paused.go_on().status, 0);
    assert_eq!(read(&there.join("copy")), "by the other");
    await_nothing_left(&pair);
    pair.finish();
}

#[test]
fn of_two_hosts_that_read_what_the_other_writes_one_is_refused() {
    let Some(pair) = Pair::mounted(Place::File) else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("x"), "0").unwrap();
    fs::write(here.join("y"), "0").unwrap();
    let first = Paused::start(&pair, 0, "one", ["cat x; echo 1 > y", "true"]);
    let second = Paused::start(&pair, 1, "two", ["cat y; echo 1 > x", "true"]);
    let [first, second] = [first, second].map(Paused::go_on);
    assert_eq!((first.status, second.status), (0, REFUSED), "{first:?} {second:?}");
    for mount in [&here, &there] {
        assert_eq!((read(&mount.join("x")), read(&mount.join("y"))), ("0".into(), "1\n".into()));
    }
    pair.finish();
}

#[test]
fn no_step_of_a_number_that_both_hosts_count_up_is_lost() {
    const STEPS: usize = 5;
    let Some(pair) = Pair::mounted(Place::File) else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("count"), "0\n").unwrap();
    let done: usize = thread::scope(|scope| {
        let hosts = [0, 1].map(|host| {
            let pair = &pair;
            scope.spawn(move || {
                let step =
                    || run(pair, host, "--retry 20", "n=$(cat count); echo $((n+1)) > count");
                (0..STEPS).filter(|_| step().status == 0).count()
            })
        });
        hosts.into_iter().map(|host| host.join().unwrap()).sum()
    });
    assert!(done >= STEPS, "{done} steps");
    for mount in [&here, &there] {
        assert_eq!(read(&mount.join("count")), format!("{done}\n"));
    }
    await_nothing_left(&pair);
    pair.finish();
}

fn a_daemon_that_is_killed_leaves_nothing_of_a_transaction(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "before").unwrap();
    let paused = Paused::start(&pair, 0, "one", ["echo x > a; echo y > b", "echo z > c"]);
    let pid = Pid::from_raw(pair.bench.daemon_pid("here")).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let ran = paused.go_on();
    assert_ne!(ran.status, 0, "{ran:?}");
    pair.await_clients(1);
    assert_eq!((read(&there.join("a")), there.join("b").exists()), ("before".into(), false));
    await_nothing_left(&pair);
    fs::write(there.join("a"), "after").unwrap();
    pair.bench.host(&["umount", "-l", "here"]).good();
    pair.run("mount URL here").good();
    assert_eq!(names(&here), names(&there));
    assert_eq!(read(&here.join("a")), "after");
    pair.finish();
}

#[test]
fn a_daemon_that_was_taken_for_lost_commits_nothing() {
    let Some(pair) = Pair::new(Place::File) else { return };
    pair.run("mount URL here").good();
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "before").unwrap();
    let paused = Paused::start(&pair, 0, "one", ["echo x > a; echo y > b", "true"]);
    let pid = Pid::from_raw(pair.bench.daemon_pid("here")).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    pair.there("mount URL there").good();
    assert!(!pair.there("list there --all").good().out.contains("tx:"), "it goes with the client");
    kill_process(pid, Signal::CONT).unwrap();
    // Until it learns that it was taken for lost, it takes what goes into a fork then.
    let is_back = || fs::write(here.join("c"), "late").is_ok() && there.join("c").exists();
    wait_for("it goes on", is_back);
    let ran = paused.go_on();
    assert_ne!(ran.status, 0, "{ran:?}");
    for mount in [&here, &there] {
        assert_eq!((read(&mount.join("a")), mount.join("b").exists()), ("before".into(), false));
    }
    assert_eq!(run(&pair, 0, "", "echo x > a").status, 0, "another one commits");
    assert_eq!(read(&there.join("a")), "x\n");
    await_nothing_left(&pair);
    pair.finish();
}

#[test]
fn what_cannot_be_one_transaction_is_refused() {
    let Some(pair) = Pair::mounted(Place::File) else { return };
    pair.run("create sqlite:other.db").good();
    pair.bench.make_folder("second");
    pair.run("mount sqlite:other.db second").good();
    let second = format!("--with {}", pair.bench.path("second").display());
    let ran = run(&pair, 0, &second, "echo x > a");
    assert!(ran.status == 125 && ran.err.contains("cluster home"), "{ran:?}");
    pair.run("create here --dataset work").good();
    pair.bench.make_folder("third");
    pair.run("mount -o dataset=work URL third").good();
    let third = format!("--with {}", pair.bench.path("third").display());
    let ran = run(&pair, 0, &third, "echo x > a");
    assert!(ran.status == 125 && ran.err.contains("several datasets"), "{ran:?}");
    assert!(names(&pair.mounts()[1]).is_empty());
    pair.run("unmount second").good();
    pair.run("unmount third").good();
    pair.finish();
}
