//! Views that are taken away, signals at every moment, and output that is opened again.

use crate::tree::wait_for;
use crate::workbench::Workbench;
use crate::{AtTerminal, end, forks, mounted, read, run, untouched};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A command that says by the file `ready` that it runs, and ends when there is a file `go`.
fn started(bench: &Workbench, words: &[&str], line: &str) -> Child {
    let line = format!("touch ready; while [ ! -e go ]; do sleep 0.02; done; {line}");
    let words = words.iter().copied().chain(["--", "sh", "-c", &line]);
    let child = bench.command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    wait_for("the command runs", || bench.path("ready").exists());
    fs::remove_file(bench.path("ready")).unwrap();
    child.unwrap()
}

/// Lets it end; its exit status, and all that was said.
fn ended(bench: &Workbench, child: Child) -> (Option<i32>, String) {
    fs::write(bench.path("go"), "").unwrap();
    let ended = child.wait_with_output().unwrap();
    fs::remove_file(bench.path("go")).unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_fork_whose_view_was_lost_is_kept_instead_of_merged() {
    let Some(bench) = mounted() else { return };
    let line = "echo early > mnt/src/early; umount mnt/src; echo late > mnt/src/late";
    let words = ["taken away from", "both before you merge", "try is kept"];
    run(&bench, "run --merge --name try mnt/src", line).refused(125, &words);
    assert_eq!(read(&bench, "mnt/src/late"), "late\n");
    assert!(!bench.path("mnt/src/early").exists());
    assert_eq!(read(&bench, "mnt/.marram/forks/try/early"), "early\n");
    fs::remove_file(bench.path("mnt/src/late")).unwrap();
    // What is to go goes, and what was lost is said.
    run(&bench, "run --drop --name other mnt/src", line).refused(125, &["taken away from"]);
    assert_eq!(forks(&bench), ["try"]);
    end(&bench);
}

#[test]
fn a_view_stays_where_its_fork_is_asked_for_as_a_mount_and_is_refused() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("elsewhere");
    let words = ["run", "--merge", "--name", "try", "mnt/src"];
    let running = started(&bench, &words, "echo mine > mnt/src/mine");
    bench.run("mount -o dataset=try work.pool elsewhere").refused(11, &["try", "in use"]);
    let (status, said) = ended(&bench, running);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(read(&bench, "mnt/src/mine"), "mine\n");
    // One that nobody uses is given back, though the kernel remembers names that it has not.
    bench.run("fork mnt/src idle").good();
    assert!(!bench.path("mnt/.marram/forks/idle/lib/none").exists());
    bench.run("mount -o dataset=idle work.pool elsewhere").good();
    bench.run("unmount elsewhere").good();
    end(&bench);
}

#[test]
fn a_signal_at_any_moment_leaves_no_fork_behind() {
    let Some(bench) = mounted() else { return };
    for step in 0..30 {
        let mut command = bench.command();
        command.args(["run", "--drop", "mnt/src", "--", "sleep", "3600"]);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(step * 2));
        send(&child, Signal::TERM);
        let ended = child.wait_with_output().unwrap();
        assert!(!ended.status.success());
        assert!(forks(&bench).is_empty(), "after {step} steps: {:?}", ended.status);
    }
    untouched(&bench);
    end(&bench);
}

#[test]
fn a_second_signal_ends_at_once_what_does_not_heed_the_first() {
    let Some(bench) = mounted() else { return };
    let line = "(trap '' TERM; while :; do sleep 0.1; done) >/dev/null 2>&1 & \
                echo $$ > pid; echo new > mnt/src/new";
    let words = ["run", "--merge", "--kill", "--name", "k", "mnt/src", "--", "sh", "-c", line];
    let child = bench.command().args(words).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the command runs", || {
        fs::read_to_string(bench.path("pid")).is_ok_and(|pid| pid.ends_with('\n'))
    });
    let process = format!("/proc/{}", read(&bench, "pid").trim());
    wait_for("the command has ended", || !fs::exists(&process).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    send(&child, Signal::TERM);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(began.elapsed() < Duration::from_secs(4), "not only after all patience");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    end(&bench);
}

#[test]
fn an_interrupt_that_no_key_has_sent_is_handed_on_at_a_terminal_too() {
    let Some(bench) = mounted() else { return };
    let line = "trap 'exit 7' INT; echo $PPID > starter; echo ready; while :; do sleep 0.05; done";
    let running = AtTerminal::start(&bench, &["run", "--keep", "mnt/src", "--", "sh", "-c", line]);
    running.wait_for("ready");
    let starter: i32 = read(&bench, "starter").trim().parse().unwrap();
    kill_process(Pid::from_raw(starter).unwrap(), Signal::INT).unwrap();
    let (status, said) = running.end();
    assert_eq!(status, Some(7), "{said}");
    end(&bench);
}

#[test]
fn output_into_a_file_that_is_longer_in_the_fork_leaves_nothing_of_that() {
    let Some(bench) = mounted() else { return };
    run(&bench, "run --keep --name try mnt/src", "seq 1000 > mnt/src/log; echo one > mnt/src/add")
        .good();
    let marram = env!("CARGO_BIN_EXE_marram");
    let line = |line: &str| bench.host(&["sh", "-c", &line.replace("marram", marram)]).good();
    line("marram enter --keep try -- echo short > mnt/src/log");
    assert_eq!(read(&bench, "mnt/.marram/forks/try/log"), "short\n");
    line("marram enter --keep try -- echo two >> mnt/src/add");
    assert_eq!(read(&bench, "mnt/.marram/forks/try/add"), "one\ntwo\n");
    // A file that the fork does not have is made there.
    line("marram enter --keep try -- sh -c 'echo out; echo err >&2' > mnt/src/made 2>&1");
    let made = read(&bench, "mnt/.marram/forks/try/made");
    assert!(made.starts_with("out\nerr\n"), "{made}");
    end(&bench);
}

#[test]
fn a_mount_of_another_pool_over_that_of_the_directory_is_refused() {
    let Some(bench) = mounted() else { return };
    bench.run("create other.pool --size 64M").good();
    for folder in ["other", "bound"] {
        bench.make_folder(folder);
    }
    bench.run("mount other.pool other").good();
    bench.host(&["mount", "--bind", "mnt/src", "bound"]).good();
    bench.host(&["mount", "--bind", "other", "mnt"]).good();
    run(&bench, "run bound", "true").refused(125, &["something else is seen at", "mnt"]);
    bench.host(&["umount", "mnt"]).good();
    bench.host(&["umount", "bound"]).good();
    bench.run("unmount other").good();
    assert!(forks(&bench).is_empty());
    end(&bench);
}
