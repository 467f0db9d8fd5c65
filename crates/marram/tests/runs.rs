//! `marram run` and `marram enter`: a command in a fork, at the path that it knows. And
//! transactions, which have views too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod leaks;
mod nested;
mod ordinary_user;
mod transactions;
#[allow(dead_code, reason = "these tests use a part of the bench")]
mod tree;
mod two_datasets;
mod two_pools;
mod views;
#[allow(dead_code, reason = "these tests use a part of the bench")]
mod workbench;

use crate::tree::{shell, wait_for};
use crate::workbench::{Outcome, Workbench, outcome};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use std::fs;
use std::io::{Read, Write};
use std::ops::Deref;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bench whose test runs alone. A view has a copy of the whole table of mounts, and where those
/// are private it holds what other tests unmount.
struct Bench {
    bench: Workbench,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Bench {
    type Target = Workbench;

    fn deref(&self) -> &Workbench {
        &self.bench
    }
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mounted pool with `src/lib/a` and `src/b`.
fn mounted() -> Option<Bench> {
    let turn = turn();
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    fs::write(bench.path("mnt/src/lib/a"), "one\n").unwrap();
    fs::write(bench.path("mnt/src/b"), "two\n").unwrap();
    Some(Bench { bench, _turn: turn })
}

/// Runs a line of the shell in a fork.
fn run(bench: &Workbench, words: &str, line: &str) -> Outcome {
    outcome(bench.command().args(words.split_whitespace()).args(["--", "sh", "-c", line]))
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).unwrap()
}

fn forks(bench: &Workbench) -> Vec<String> {
    let entries = fs::read_dir(bench.path("mnt/.marram/forks")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Nothing has changed in the directory.
#[track_caller]
fn untouched(bench: &Workbench) {
    assert_eq!(read(bench, "mnt/src/b"), "two\n");
    assert_eq!(fs::read_dir(bench.path("mnt/src")).unwrap().count(), 2);
}

/// Unmounts, and has the pool verified.
fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    assert!(bench.mounts().is_empty());
    bench.run("check work.pool --data").good();
}

#[test]
fn a_command_sees_its_fork_at_the_path_that_it_knows_and_nobody_else_does() {
    let Some(bench) = mounted() else { return };
    let place = bench.path("mnt/src").canonicalize().unwrap();
    let line = "pwd; cat b; echo changed > b; echo new > lib/new; cat \"$0/lib/new\"; exit 3";
    let mut command = bench.command();
    command.current_dir(&place).args(["run", "--keep", ".", "--", "sh", "-c", line]).arg(&place);
    let ran = outcome(&mut command);
    assert_eq!(ran.status, 3, "{ran:?}");
    assert_eq!(ran.out, format!("{}\ntwo\nnew\n", place.display()));
    for line in ["M /b\n", "A /lib/new\n", "1 new, 1 changed\n", "run-1 is kept", "marram merge"] {
        assert!(ran.err.contains(line), "{line:?} is missing: {ran:?}");
    }
    untouched(&bench);
    assert_eq!(forks(&bench), ["run-1"]);
    assert_eq!(read(&bench, "mnt/.marram/forks/run-1/b"), "changed\n");
    // It is a fork like any other.
    bench.run("merge mnt --fork run-1 --drop").good();
    assert_eq!(read(&bench, "mnt/src/lib/new"), "new\n");
    end(&bench);
}

#[test]
fn a_fork_is_merged_if_the_command_succeeded_and_dropped_in_any_case() {
    let Some(bench) = mounted() else { return };
    let ran = run(&bench, "run --merge mnt/src", "echo new > mnt/src/new; echo out");
    assert_eq!((ran.status, ran.out.as_str()), (0, "out\n"), "{ran:?}");
    assert!(ran.err.contains("went into"), "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    assert!(forks(&bench).is_empty());
    fs::remove_file(bench.path("mnt/src/new")).unwrap();

    let ran = run(&bench, "run --merge --name bad mnt/src", "echo new > mnt/src/new; exit 7");
    assert!(ran.status == 7 && ran.err.contains("bad is kept"), "{ran:?}");
    untouched(&bench);
    assert_eq!(forks(&bench), ["bad"]);

    for (line, status) in [("echo x > mnt/src/b", 0), ("echo x > mnt/src/b; exit 9", 9)] {
        let ran = run(&bench, "run --drop mnt/src", line);
        assert!(ran.status == status && ran.err.contains("was dropped"), "{ran:?}");
    }
    untouched(&bench);
    assert_eq!(forks(&bench), ["bad"]);
    bench.run("undo mnt").good();
    assert_eq!(forks(&bench), ["bad", "run-1"], "a fork that was dropped comes back");
    end(&bench);
}

#[test]
fn programs_are_told_everything_in_one_document() {
    let Some(bench) = mounted() else { return };
    let line = "echo out; echo new > mnt/src/new; rm mnt/src/b; kill -TERM $$";
    let ran = run(&bench, "run --json --name try mnt/src", line);
    assert_eq!(ran.status, 143, "{ran:?}");
    assert_eq!(ran.err, "out\n", "standard output is for the document");
    let result = &ran.envelope()["result"];
    assert_eq!(result["fork"], "try");
    assert_eq!(result["decision"], "kept");
    assert_eq!(result["command"]["signal"], 15);
    assert!(result["command"]["exit_status"].is_null());
    assert_eq!(result["summary"]["created"], 1);
    assert_eq!(result["summary"]["removed"], 1);
    assert_eq!(result["differences"].as_array().unwrap().len(), 2);
    let place = bench.path("mnt/src").canonicalize().unwrap();
    assert_eq!(result["directory"].as_str().unwrap(), place.to_str().unwrap());

    let ran = run(&bench, "run --json --merge mnt/src", "true").result();
    assert_eq!((&ran["decision"], &ran["command"]["exit_status"]), (&"merged".into(), &0.into()));
    let refused = run(&bench, "run --json mnt/none", "true");
    assert_eq!(refused.status, 125, "{refused:?}");
    assert_eq!(refused.envelope()["error"]["kind"], "not_found");
    end(&bench);
}

#[test]
fn five_commands_at_once_have_forks_of_their_own() {
    let Some(bench) = mounted() else { return };
    std::thread::scope(|scope| {
        for number in 0..5 {
            let bench = &bench;
            scope.spawn(move || {
                let line = format!("echo {number} > mnt/src/n; sleep 0.2; cat mnt/src/n");
                let ran = run(bench, "run --keep mnt/src", &line);
                assert_eq!((ran.status, ran.out), (0, format!("{number}\n")), "{}", ran.err);
            });
        }
    });
    untouched(&bench);
    assert_eq!(forks(&bench), ["run-1", "run-2", "run-3", "run-4", "run-5"]);
    end(&bench);
}

#[test]
fn a_report_stands_behind_what_a_merge_has_brought_into_the_same_log() {
    let Some(bench) = mounted() else { return };
    let line = "marram run --merge mnt/src -- sh -c 'echo one; echo two >&2' > mnt/src/log 2>&1";
    assert_eq!(shell(&bench, line).status, 0);
    let log = read(&bench, "mnt/src/log");
    let report = log.strip_prefix("one\ntwo\n").unwrap_or_else(|| panic!("{log:?}"));
    assert!(report.contains("log"), "the report names the file: {log:?}");
    end(&bench);
}

#[test]
fn what_would_write_past_the_fork_is_opened_again_or_refused() {
    let Some(bench) = mounted() else { return };
    let ran = shell(
        &bench,
        "marram run --keep mnt/src -- sh -c 'echo one; echo two >&2; cat; test -s mnt/src/log' \
         > mnt/src/log 2>&1 < mnt/src/b; marram run --drop mnt/src -- cat < mnt/src/b",
    );
    assert_eq!((ran.status, ran.out.as_str()), (0, "two\n"), "{ran:?}");
    let log = read(&bench, "mnt/.marram/forks/run-1/log");
    assert!(log.starts_with("one\ntwo\ntwo\n"), "{log:?}");
    let outside = read(&bench, "mnt/src/log");
    assert!(!outside.contains("one\n"), "what the command wrote went past the fork: {outside:?}");
    fs::remove_file(bench.path("mnt/src/log")).unwrap();

    for (line, number) in [
        ("exec 7> mnt/src/log; marram run mnt/src -- true", "descriptor 7"),
        ("exec 1> mnt/src/log; rm mnt/src/log; marram run mnt/src -- true", "descriptor 1"),
        ("exec 0< mnt/src; marram run mnt/src -- true", "descriptor 0"),
    ] {
        shell(&bench, line).refused(125, &[number, "past its fork"]);
        let _left = fs::remove_file(bench.path("mnt/src/log"));
    }
    assert_eq!(forks(&bench), ["run-1"], "a refused command makes no fork");
    // What lies elsewhere is handed on.
    let line = "exec 7> out; marram run --drop mnt/src -- sh -c 'echo kept >&7'";
    assert_eq!(shell(&bench, line).status, 0);
    assert_eq!(read(&bench, "out"), "kept\n");
    end(&bench);
}

#[test]
fn a_working_directory_that_leads_past_the_fork_is_refused() {
    let Some(bench) = mounted() else { return };
    let alias = bench.make_folder("alias");
    rustix::mount::mount_bind(bench.path("mnt/src"), &alias).unwrap();
    let mut command = bench.command();
    let words = ["run", "--keep"];
    let ran = outcome(
        command
            .current_dir(alias.join("lib"))
            .args(words)
            .arg(bench.path("mnt/src"))
            .args(["--", "true"]),
    );
    // The alias is a way to another path of the same directory: its own path can be forked.
    ran.refused(125, &["working directory", "another way"]);
    assert!(forks(&bench).is_empty());
    let ran = run(&bench, "run --keep alias", "echo x > alias/b; cat alias/b");
    assert_eq!((ran.status, ran.out.as_str()), (0, "x\n"), "{ran:?}");
    untouched(&bench);
    rustix::mount::unmount(&alias, rustix::mount::UnmountFlags::empty()).unwrap();
    end(&bench);
}

#[test]
fn processes_that_outlive_the_command_are_named_waited_for_or_ended() {
    let Some(bench) = mounted() else { return };
    let line = "(sleep 3600; echo late > mnt/src/late) >/dev/null 2>&1 & echo new > mnt/src/new";
    let ran = run(&bench, "run --merge --name a mnt/src", line);
    ran.refused(125, &["left processes running", "process ", "--kill", "a is kept"]);
    untouched(&bench);
    let ran = run(&bench, "run --keep --json --name b mnt/src", line).result();
    let told = ran["processes"].as_array().unwrap();
    assert!(told.iter().any(|row| row["command"] == "sleep 3600"), "{told:?}");

    let ran = run(&bench, "run --merge --kill --name c mnt/src", line);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    let line = "setsid sh -c 'sleep 2.5; echo late > mnt/src/late' >/dev/null 2>&1 & exit 0";
    let ran = run(&bench, "run --merge --wait --name d mnt/src", line);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/late"), "late\n");
    // What ends by itself in a moment is nothing to speak of.
    let line = "(sleep 0.3; echo soon > mnt/src/soon) >/dev/null 2>&1 &";
    assert_eq!(run(&bench, "run --merge --name e mnt/src", line).status, 0);
    assert_eq!(read(&bench, "mnt/src/soon"), "soon\n");
    end_left(told);
    for process in run_pids("sleep 3600") {
        kill(process);
    }
    end(&bench);
}

/// Ends processes that a document has named.
fn end_left(told: &[serde_json::Value]) {
    for row in told {
        kill(i32::try_from(row["pid"].as_i64().unwrap()).unwrap());
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _it_has_ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// The processes with this command line whose working directory is a bench's.
fn run_pids(line: &str) -> Vec<i32> {
    let wanted = line.replace(' ', "\0") + "\0";
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| {
        let told = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let at = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        told == wanted && at.to_string_lossy().contains("marram-test-")
    };
    pids.filter(is_ours).collect()
}

#[test]
fn a_signal_reaches_the_command_and_the_fork_is_decided_all_the_same() {
    let Some(bench) = mounted() else { return };
    let line = "trap 'echo caught > mnt/src/caught; exit 5' TERM; touch ready; \
                while :; do sleep 0.05; done";
    let child = bench
        .command()
        .args(["run", "--keep", "--name", "c", "mnt/src", "--", "sh", "-c", line])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the command runs", || bench.path("ready").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("c is kept"));
    assert_eq!(read(&bench, "mnt/.marram/forks/c/caught"), "caught\n");
    // What is ignored stays ignored, as under nohup(1).
    let line = format!(
        "trap '' HUP; {} run --drop mnt/src -- sh -c 'kill -HUP $$; echo on'",
        env!("CARGO_BIN_EXE_marram")
    );
    assert_eq!(bench.host(&["sh", "-c", &line]).out, "on\n");
    end(&bench);
}

/// A command at a terminal of its own.
struct AtTerminal {
    child: std::process::Child,
    keys: fs::File,
    said: Arc<Mutex<String>>,
    heard: std::thread::JoinHandle<()>,
}

impl AtTerminal {
    fn start(bench: &Workbench, words: &[&str]) -> AtTerminal {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = || fs::File::from(rustix::fs::open(&name, flags, Mode::empty()).unwrap());
        // What the tests were started with may ignore the keys that interrupt.
        let mut command = bench.command_as(Path::new("env"));
        command.args(["--default-signal", "setsid", "--ctty", "--wait"]);
        command.arg(env!("CARGO_BIN_EXE_marram")).args(words);
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        let keys = fs::File::from(master);
        let (mut screen, said) = (keys.try_clone().unwrap(), Arc::default());
        let to: Arc<Mutex<String>> = Arc::clone(&said);
        let heard = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when nobody has the terminal open any more.
            while let Ok(len) = screen.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        AtTerminal { child, keys, said, heard }
    }

    fn wait_for(&self, words: &str) {
        wait_for(words, || self.said.lock().unwrap().contains(words));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// The exit status, and all that was said.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        self.heard.join().unwrap();
        (status.code(), self.said.lock().unwrap().clone())
    }
}

#[test]
fn at_a_terminal_it_is_asked_what_becomes_of_the_fork() {
    let Some(bench) = mounted() else { return };
    const QUESTION: &str = "[m]erge, [k]eep, [d]rop, [s]how all changes? ";
    let begin = |line: &str| AtTerminal::start(&bench, &["run", "mnt/src", "--", "sh", "-c", line]);
    let mut asked = begin("cd mnt/src; for n in $(seq 30); do echo $n > n$n; done");
    asked.wait_for(QUESTION);
    assert!(asked.said.lock().unwrap().contains("and 10 more"));
    asked.press("what\ns\n");
    asked.wait_for("A /n9\r\n");
    asked.press("m\n");
    let (status, said) = asked.end();
    assert!(status == Some(0) && said.contains("run-1 went into"), "{said}");
    assert_eq!(read(&bench, "mnt/src/n30"), "30\n");

    for (keys, kept) in [("d\n", false), ("\n", true), ("\x03", true), ("\x04", true)] {
        let mut asked = begin("echo x > mnt/src/x; exit 6");
        asked.wait_for(QUESTION);
        asked.press(keys);
        let (status, said) = asked.end();
        assert_eq!(status, Some(6), "{said}");
        assert_eq!(said.contains("is kept"), kept, "{keys:?}: {said}");
        assert_eq!(forks(&bench).len(), usize::from(kept), "{keys:?}");
        if kept {
            bench.run("destroy fork mnt run-1 --yes --now").good();
        }
    }
    // Where nothing has changed there is nothing to ask.
    let (status, said) = begin("true").end();
    assert!(status == Some(0) && said.contains("nothing was changed"), "{said}");
    assert!(forks(&bench).is_empty());
    assert!(!bench.path("mnt/src/x").exists());
    end(&bench);
}

#[test]
fn keys_that_interrupt_reach_the_command_once_and_the_fork_is_decided() {
    let Some(bench) = mounted() else { return };
    let line = "trap 'echo caught >> mnt/src/caught' INT; echo ready; \
                n=0; while [ $n -lt 40 ]; do sleep 0.05; n=$((n + 1)); done; exit 5";
    let words = ["run", "--keep", "--name", "i", "mnt/src", "--", "sh", "-c", line];
    let mut running = AtTerminal::start(&bench, &words);
    running.wait_for("ready");
    running.press("\x03");
    let (status, said) = running.end();
    assert!(status == Some(5) && said.contains("i is kept"), "{said}");
    assert_eq!(read(&bench, "mnt/.marram/forks/i/caught"), "caught\n");
    let mut running = AtTerminal::start(&bench, &["run", "mnt/src", "--", "sleep", "3600"]);
    wait_for("the command runs", || !run_pids("sleep 3600").is_empty());
    running.press("\x03");
    let (status, said) = running.end();
    assert_eq!(status, Some(130), "{said}");
    assert_eq!(forks(&bench), ["i"]);
    end(&bench);
}

#[test]
fn a_conflict_keeps_the_fork_and_changes_nothing() {
    let Some(bench) = mounted() else { return };
    let line = "echo fork > mnt/src/b; touch ready; while [ ! -e go ]; do sleep 0.02; done";
    let child = bench
        .command()
        .args(["run", "--merge", "--name", "try", "mnt/src", "--", "sh", "-c", line])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the command runs", || bench.path("ready").exists());
    fs::write(bench.path("mnt/src/b"), "parent\n").unwrap();
    fs::write(bench.path("go"), "").unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{told}");
    let refused = bench.run("merge mnt --fork try");
    assert_eq!(ended.status.code(), Some(refused.status), "as `marram merge` has it: {told}");
    assert!(told.contains("conflict: content /b") && told.contains("--interactive"), "{told}");
    assert_eq!(read(&bench, "mnt/src/b"), "parent\n");
    assert_eq!(read(&bench, "mnt/.marram/forks/try/b"), "fork\n");
    bench.run("merge mnt --fork try --theirs --drop").good();
    end(&bench);
}

#[test]
fn bad_input_is_refused_and_makes_no_fork() {
    let Some(bench) = mounted() else { return };
    let refused = |line: &str, status: i32, words: &[&str]| {
        bench.run(line).refused(status, words);
        assert!(forks(&bench).is_empty(), "{line}");
    };
    fs::write(bench.path("plain"), "x").unwrap();
    refused("run mnt/none -- true", 125, &["mnt/none", "No such file"]);
    refused("run mnt/src/b -- true", 125, &["mnt/src/b", "no directory"]);
    refused("run . -- true", 125, &["not inside a mounted Marram"]);
    refused("run / -- true", 125, &["not inside a mounted Marram"]);
    refused("run work.pool -- true", 125, &["is a pool", "mount it"]);
    refused("run mnt/.marram -- true", 125, &["no directory of a dataset"]);
    refused("run mnt/.marram/forks -- true", 125, &["no directory of a dataset"]);
    refused("run --name a/b mnt/src -- true", 125, &["a/b"]);
    refused("run mnt/src -- no-such-program", 127, &["no-such-program"]);
    refused("run mnt/src -- ./plain", 126, &["./plain"]);
    refused("run mnt/src -- ./none", 127, &["./none"]);
    refused("run mnt/src -- mnt/src", 126, &["mnt/src"]);
    refused("run mnt/src", 2, &["COMMAND"]);
    refused("run --merge --drop mnt/src -- true", 2, &["--drop"]);
    bench.run("snapshot mnt@s").good();
    refused("run mnt/.marram/snapshots/s/src -- true", 125, &["snapshot", "clone"]);

    bench.make_folder("mnt/src/inner");
    let place = bench.path("mnt/src/inner");
    rustix::mount::mount_bind(bench.path("state"), &place).unwrap();
    refused("run mnt/src -- true", 125, &["mnt/src/inner", "is mounted in"]);
    refused("run mnt/src/inner -- true", 125, &["not inside a mounted Marram"]);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).unwrap();

    bench.run("fork mnt/src taken").good();
    bench.run("run --name taken mnt/src -- true").refused(125, &["taken", "exists"]);
    bench.run("enter none").refused(125, &["no fork none"]);
    bench.run("enter none --of mnt").refused(125, &["no fork none", "marram forks"]);
    bench.run("enter taken --of work.pool").refused(125, &["not mounted"]);
    bench.run("enter taken -- no-such-program").refused(127, &["no-such-program"]);
    end(&bench);
}

#[test]
fn whole_mounts_and_forks_are_forked_too() {
    let Some(bench) = mounted() else { return };
    let ran = run(&bench, "run --keep --name all mnt", "rm -r mnt/src; echo x > mnt/x; ls mnt");
    assert_eq!((ran.status, ran.out.as_str()), (0, "x\n"), "{ran:?}");
    untouched(&bench);
    let fork = "mnt/.marram/forks/all";
    let ran = run(&bench, &format!("run --merge {fork}"), &format!("echo y > {fork}/y"));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(read(&bench, &format!("{fork}/y")), "y\n", "merged into the fork");
    assert!(!bench.path("mnt/y").exists());
    bench.run("merge mnt --fork all --drop").good();
    assert_eq!(read(&bench, "mnt/y"), "y\n");
    end(&bench);
}

#[test]
fn a_command_in_a_view_may_look_and_run_further() {
    let Some(bench) = mounted() else { return };
    let marram = env!("CARGO_BIN_EXE_marram");
    let line = format!(
        "set -e; test \"$MARRAM_FORK\" = outer; echo x > mnt/src/x; {marram} diff mnt/src; \
         {marram} run --merge mnt/src -- sh -c 'test -e mnt/src/x; echo y > mnt/src/y'; \
         cat mnt/src/y"
    );
    let ran = run(&bench, "run --merge --name outer mnt/src", &line);
    assert_eq!((ran.status, ran.out.as_str()), (0, "A /x\n1 file created\ny\n"), "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/y"), "y\n");
    assert!(forks(&bench).is_empty());
    end(&bench);
}

#[test]
fn what_a_command_mounts_and_unmounts_stays_in_its_view() {
    let Some(bench) = mounted() else { return };
    let line = "mount -t tmpfs tmpfs mnt/src/lib; echo t > mnt/src/lib/t; umount mnt/src/lib; \
                umount -l mnt/src; umount -l mnt; ls mnt";
    let ran = run(&bench, "run --keep mnt/src", line);
    let ran = ran.refused(125, &["taken away from", "run-1 is kept"]);
    assert_eq!(ran.out, "");
    untouched(&bench);
    assert_eq!(bench.mounts().len(), 1);
    end(&bench);
}

#[test]
fn a_pool_that_a_command_fills_is_emptied_by_dropping_its_fork() {
    let Some(bench) = mounted() else { return };
    let line = "dd if=/dev/urandom of=mnt/src/full bs=1M 2>/dev/null; rm mnt/src/b";
    let ran = run(&bench, "run --drop mnt/src", line);
    assert!(ran.status == 0 && ran.err.contains("was dropped"), "{ran:?}");
    untouched(&bench);
    fs::write(bench.path("mnt/large"), vec![7; 8 << 20]).unwrap();
    end(&bench);
}

#[test]
fn a_kept_fork_is_entered_at_the_path_that_its_directory_has_now() {
    let Some(bench) = mounted() else { return };
    run(&bench, "run --keep --name try mnt/src", "echo x > mnt/src/x").good();
    let enter = |line: &str, words: &str| run(&bench, words, line);
    let place = bench.path("mnt/src").canonicalize().unwrap();
    let ran = enter("pwd; cat x; echo y > y", "enter try");
    assert_eq!((ran.status, ran.out), (0, format!("{}\nx\n", place.display())), "{}", ran.err);
    fs::rename(&place, place.with_file_name("moved")).unwrap();
    let ran = enter("pwd; cat y", "enter --of mnt try");
    let moved = place.with_file_name("moved");
    assert_eq!((ran.status, ran.out), (0, format!("{}\ny\n", moved.display())), "{}", ran.err);
    // Without a command it is a shell.
    let mut shell = bench.command();
    shell.args(["enter", "try"]).env("SHELL", "/bin/sh").stdin(Stdio::piped());
    let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"cat x; exit 4\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(4), &b"x\n"[..]));

    run(&bench, "run --keep --name inner mnt/.marram/forks/try/lib", "echo z > \"$PWD/z\"; true")
        .good();
    fs::remove_file(bench.path("z")).unwrap();
    let ran = enter("pwd", "enter inner");
    let below = bench.path("mnt").canonicalize().unwrap().join(".marram/forks/try/lib");
    assert_eq!((ran.status, ran.out), (0, format!("{}\n", below.display())), "{}", ran.err);

    fs::remove_dir_all(&moved).unwrap();
    enter("true", "enter try").refused(125, &["is gone", ".marram/forks/try"]);
    let ran = enter("true", "enter --merge inner");
    assert_eq!(ran.status, 0, "{ran:?}");
    end(&bench);
}

#[test]
fn a_directory_that_is_moved_or_removed_meanwhile_harms_nothing() {
    let Some(bench) = mounted() else { return };
    let started = |name: &str| {
        let line = "top=$PWD; cd mnt/src; touch \"$top/ready\"; \
                    while [ ! -e \"$top/go\" ]; do sleep 0.02; done; echo x > x";
        let child = bench
            .command()
            .args(["run", "--merge", "--name", name, "mnt/src", "--", "sh", "-c", line])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the command runs", || bench.path("ready").exists());
        fs::remove_file(bench.path("ready")).unwrap();
        child
    };
    let ended = |child: std::process::Child| {
        fs::write(bench.path("go"), "").unwrap();
        let ended = child.wait_with_output().unwrap();
        fs::remove_file(bench.path("go")).unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let child = started("moved");
    fs::rename(bench.path("mnt/src"), bench.path("mnt/other")).unwrap();
    let (status, told) = ended(child);
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(read(&bench, "mnt/other/x"), "x\n", "merged where the directory is now");
    fs::remove_file(bench.path("mnt/other/x")).unwrap();
    fs::rename(bench.path("mnt/other"), bench.path("mnt/src")).unwrap();

    let child = started("removed");
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    let (status, told) = ended(child);
    assert_ne!(status, Some(0), "{told}");
    assert!(told.contains("removed is kept"), "{told}");
    assert_eq!(read(&bench, "mnt/.marram/forks/removed/x"), "x\n");
    assert!(!bench.path("mnt/src").exists());
    end(&bench);
}

#[test]
fn a_view_holds_while_its_parent_is_merged_into_rolled_back_and_undone() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@s").good();
    bench.run("fork mnt/src big").good();
    for number in 0..600 {
        fs::write(bench.path(&format!("mnt/.marram/forks/big/n{number}")), "new").unwrap();
        // The kernel remembers that there is no such name.
        assert!(!bench.path(&format!("mnt/src/n{number}")).exists());
    }
    let line = "echo mine > mnt/src/lib/mine; for n in 1 2 3 4; do touch ready-$n; \
                while [ ! -e go-$n ]; do sleep 0.02; done; cat mnt/src/lib/mine; done";
    let words = ["run", "--keep", "--name", "try", "mnt/src/lib", "--", "sh", "-c", line];
    let running = bench.command().args(words).stdout(Stdio::piped()).spawn().unwrap();
    let undo = "undo mnt";
    for (number, change) in
        ["merge mnt --fork big", "rollback mnt@s", undo, undo].iter().enumerate()
    {
        let number = number + 1;
        wait_for("the command runs", || bench.path(&format!("ready-{number}")).exists());
        bench.run(change).good();
        assert_eq!(bench.path("mnt/src/n599").exists(), number % 2 == 1, "{change}");
        assert_eq!(fs::read_dir(bench.path("mnt/src/lib")).unwrap().count(), 1);
        fs::write(bench.path(&format!("go-{number}")), "").unwrap();
    }
    let ended = running.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "mine\n".repeat(4));
    assert!(ended.status.success());
    assert_eq!(read(&bench, "mnt/.marram/forks/try/mine"), "mine\n");
    end(&bench);
}

#[test]
fn a_directory_that_is_replaced_meanwhile_is_told_of() {
    let Some(bench) = mounted() else { return };
    let line = "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo x > mnt/src/x";
    let words = ["run", "--merge", "--name", "try", "mnt/src", "--", "sh", "-c", line];
    let running = bench.command().args(words).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the command runs", || bench.path("ready").exists());
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    bench.make_folder("mnt/src");
    fs::write(bench.path("go"), "").unwrap();
    let ended = running.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(125), "{told}");
    assert!(
        told.contains("another directory has come to") && told.contains("try is kept"),
        "{told}"
    );
    assert_eq!(read(&bench, "mnt/.marram/forks/try/b"), "two\n");
    end(&bench);
}

/// What an ordinary user does on an own mount; each line has to succeed.
const USER_SCRIPT: &str = r#"
set -eux
cd "$HOME"
./marram create my.pool --size 64M
mkdir mnt
./marram mount my.pool mnt
mkdir mnt/src
echo two > mnt/src/b
cd mnt/src
line='pwd; id -u; echo x > x; stat -c %u:%g x'
../../marram run --keep --name try . -- sh -c "$line" > "$HOME/out"
test "$(cat "$HOME/out")" = "$HOME/mnt/src
65534
65534:65534"
test ! -e x
cd ../..
./marram enter try -- cat x | grep x
./marram enter --merge try -- sh -c 'mkdir d; chmod 700 d'
test "$(stat -c %u:%g:%a mnt/src/d)" = 65534:65534:700
# Others' files keep their owner, and the kernel refuses what it refuses elsewhere.
line='stat -c %u:%g /etc/passwd; ! chown 0 mnt/src/b'
./marram run --drop mnt/src -- sh -c "$line" | grep '^65534:65534$'
if ./marram run mnt/src -- ./none; then false; else test $? = 127; fi
cd "$HOME"
! grep "$HOME/mnt/src" /proc/mounts
./marram unmount mnt
./marram check my.pool
"#;

#[test]
fn an_ordinary_user_needs_no_root() {
    let _turn = turn();
    ordinary_user::play("", USER_SCRIPT);
}
