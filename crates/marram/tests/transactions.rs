//! `marram tx run`: real commands whose effect is there at once, or not at all.

use crate::tree::wait_for;
use crate::workbench::{Outcome, Workbench, outcome};
use crate::{Bench, end, mounted, ordinary_user, read, turn, untouched};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The status of a commit that was refused.
const REFUSED: i32 = 123;

/// A line of the shell as a transaction in the mounted dataset.
fn transaction(bench: &Workbench, words: &str, line: &str) -> Command {
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run"]).args(words.split_whitespace());
    command.args(["--", "sh", "-c", line]).env("OUT", bench.path("."));
    command
}

fn run(bench: &Workbench, words: &str, line: &str) -> Outcome {
    outcome(&mut transaction(bench, words, line))
}

/// One that goes on in the background.
fn start(bench: &Workbench, words: &str, line: &str) -> Child {
    let mut command = transaction(bench, words, line);
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

/// A line that says that it has come so far, and waits for leave to go on.
fn pausing(before: &str, name: &str, after: &str) -> String {
    format!(
        "{before}; : > $OUT/{name}.here; \
         until [ -e $OUT/{name}.go -o ! -d $OUT ]; do sleep 0.02; done; {after}"
    )
}

fn await_pause(bench: &Workbench, name: &str) {
    wait_for("the command comes so far", || bench.path(&format!("{name}.here")).exists());
}

fn go_on(bench: &Workbench, name: &str) {
    fs::write(bench.path(&format!("{name}.go")), "").unwrap();
}

fn open(bench: &Workbench) -> usize {
    bench.run("tx list mnt --json").result().as_array().unwrap().len()
}

fn log(bench: &Workbench) -> Vec<Value> {
    bench.run("log mnt --json").result().as_array().unwrap().clone()
}

/// Neither a list nor the kernel has anything left of a transaction.
#[track_caller]
fn nothing_is_left(bench: &Workbench) {
    wait_for("the fork goes", || !bench.run("list mnt --all").good().out.contains("tx:"));
    assert!(!bench.run("status mnt").good().out.contains("tx:"));
    let (mounts, pool) = (fs::read_to_string("/proc/mounts").unwrap(), bench.path("work.pool"));
    // Other tests run beside this one.
    let is_view =
        |line: &&str| line.starts_with(&*pool.to_string_lossy()) && line.contains("/marram/tx-");
    assert_eq!(mounts.lines().find(is_view), None);
}

#[test]
fn what_a_command_does_is_there_at_once_and_is_one_operation() {
    let Some(bench) = mounted() else { return };
    let before = log(&bench).len();
    let line = "pwd; cat src/b; echo changed > src/b; mkdir src/deep; echo new > src/deep/new; \
                rm src/lib/a; stat -c %i src/lib";
    let child = start(&bench, "", &pausing(line, "one", "true"));
    await_pause(&bench, "one");
    untouched(&bench);
    assert_eq!(open(&bench), 1);
    let row = bench.run("tx list mnt --json").result()[0].clone();
    let fork = format!("tx:{}", row["id"].as_str().unwrap());
    for line in ["snapshot mnt@x --dataset", "promote mnt"] {
        bench.run(&format!("{line} {fork}")).refused(2, &["fork of a transaction"]);
    }
    assert!(!bench.run("list mnt").good().out.contains("tx:"));
    assert!(fs::read_dir(bench.path("mnt/.marram/forks")).unwrap().next().is_none());
    assert!(fs::read_dir(bench.path("mnt/.marram/snapshots")).unwrap().next().is_none());
    go_on(&bench, "one");
    let ran = ended(child);
    assert!(ran.status == 0 && ran.err.is_empty(), "{ran:?}");
    let ino =
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(bench.path("mnt/src/lib")).unwrap());
    let place = bench.path("mnt").canonicalize().unwrap();
    assert_eq!(ran.out, format!("{}\ntwo\n{ino}\n", place.display()));
    assert_eq!(read(&bench, "mnt/src/b"), "changed\n");
    assert_eq!(read(&bench, "mnt/src/deep/new"), "new\n");
    assert!(!bench.path("mnt/src/lib/a").exists());
    let entries = log(&bench);
    assert_eq!(entries.len(), before + 1, "{entries:?}");
    let entry = entries.last().unwrap();
    assert_eq!(entry["operation"], "transaction");
    let id = entry["names"][1].as_str().unwrap();
    let shown = bench.run(&format!("tx show mnt {id} --json")).result();
    assert_eq!((&shown["state"], &shown["operation"]), (&"committed".into(), &entry["number"]));
    bench.run("tx show mnt 0123456789abcdef").refused(10, &["none was committed"]);
    nothing_is_left(&bench);
    bench.run("undo mnt --yes").good();
    untouched(&bench);
    assert_eq!(read(&bench, "mnt/src/lib/a"), "one\n");
    end(&bench);
}

#[test]
fn a_command_that_fails_leaves_no_trace() {
    let Some(bench) = mounted() else { return };
    let before = log(&bench);
    let ran = run(&bench, "", "echo x > src/b; rm -r src/lib; exit 3");
    assert_eq!((ran.status, ran.err.as_str()), (3, ""), "{ran:?}");
    let ran = run(&bench, "", "echo x > src/b; kill -9 $$");
    assert_eq!(ran.status, 137, "{ran:?}");
    let missing = outcome(bench.command().current_dir(bench.path("mnt")).args([
        "tx",
        "run",
        "--",
        "no-such-program",
    ]));
    missing.refused(127, &["no-such-program"]);
    untouched(&bench);
    assert_eq!(log(&bench), before);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn a_commit_is_refused_by_the_path_that_others_have_changed() {
    let Some(bench) = mounted() else { return };
    let line = pausing("cat src/b", "one", "cp src/lib/a src/copy");
    let child = start(&bench, "", &line);
    await_pause(&bench, "one");
    fs::write(bench.path("mnt/src/b"), "theirs\n").unwrap();
    go_on(&bench, "one");
    let ran = ended(child);
    ran.refused(REFUSED, &["/src/b", "content changed by others", "--retry"]);
    assert!(!bench.path("mnt/src/copy").exists());
    assert_eq!(read(&bench, "mnt/src/b"), "theirs\n");

    // The same, which tries again and then sees what others did.
    let child = start(&bench, "--retry 3", &pausing("cat src/b", "two", "cp src/b src/copy"));
    await_pause(&bench, "two");
    fs::write(bench.path("mnt/src/b"), "more\n").unwrap();
    go_on(&bench, "two");
    let ran = ended(child);
    assert_eq!((ran.status, ran.out.as_str()), (0, "theirs\nmore\n"), "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/copy"), "more\n");

    // What only was not there counts too, and what was only looked at.
    for (number, looks) in ["test -e src/late", "ls src", "stat src"].iter().enumerate() {
        let name = format!("look{number}");
        let child = start(&bench, "", &pausing(looks, &name, ": > src/lib/made"));
        await_pause(&bench, &name);
        fs::write(bench.path("mnt/src/late"), "").unwrap();
        go_on(&bench, &name);
        let ran = ended(child);
        assert!(ran.status == REFUSED && ran.err.contains("/src"), "{looks}: {ran:?}");
        fs::remove_file(bench.path("mnt/src/late")).unwrap();
        assert!(!bench.path("mnt/src/lib/made").exists(), "{looks}");
    }
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
#[ignore = "needs root"]
fn a_directory_that_is_closed_in_a_transaction_is_closed_at_once() {
    let Some(bench) = mounted() else { return };
    let line = "mkdir -m 755 d d/deep; mkdir -m 700 c; echo secret > d/deep/f; echo moved > d/g
        stranger() { setpriv --reuid 1234 --regid 1234 --clear-groups cat $1; }
        stranger d/deep/f && stranger d/g && mv d/g c && ! stranger c/g || exit 1
        chmod 700 d; ! stranger d/deep/f || exit 2
        chmod 755 d; stranger d/deep/f || exit 3
        chmod 700 d/deep; ! stranger d/deep/f || exit 4";
    let ran = run(&bench, "", line);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.out, "secret\nmoved\nsecret\n");
    end(&bench);
}

#[test]
fn two_that_make_names_in_one_directory_both_commit() {
    let Some(bench) = mounted() else { return };
    let children = ["one", "two"].map(|name| {
        start(&bench, "", &pausing(&format!("echo {name} > src/{name}"), name, "true"))
    });
    for name in ["one", "two"] {
        await_pause(&bench, name);
    }
    for name in ["one", "two"] {
        go_on(&bench, name);
    }
    for child in children {
        let ran = ended(child);
        assert_eq!(ran.status, 0, "{ran:?}");
    }
    for name in ["one", "two"] {
        assert_eq!(read(&bench, &format!("mnt/src/{name}")), format!("{name}\n"));
    }
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn a_counter_that_two_increase_loses_nothing() {
    const EACH: usize = 6;
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/src/n"), "0\n").unwrap();
    let line = "n=$(cat src/n); echo $((n + 1)) > src/n";
    let increase = || {
        for _ in 0..EACH {
            let ran = run(&bench, "--retry 1000", line);
            assert_eq!(ran.status, 0, "{ran:?}");
        }
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(increase), scope.spawn(increase)];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(read(&bench, "mnt/src/n"), format!("{}\n", 2 * EACH));
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn processes_that_are_left_running_are_named_waited_for_or_ended() {
    let Some(bench) = mounted() else { return };
    let line = "sleep 77 > /dev/null 2>&1 & echo $! > $OUT/pid; echo x > src/b";
    let ran = run(&bench, "", line);
    ran.refused(125, &["left processes running", "sleep 77", "--wait"]);
    untouched(&bench);
    let pid = fs::read_to_string(bench.path("pid")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let ran = run(&bench, "--kill", "sleep 78 > /dev/null 2>&1 & echo x > src/b");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/b"), "x\n");
    let ran = run(&bench, "--wait", "(sleep 1; echo late > src/late) > /dev/null 2>&1 &");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/late"), "late\n");
    nothing_is_left(&bench);
    end(&bench);
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_transaction_whose_starter_is_killed_is_aborted() {
    let Some(bench) = mounted() else { return };
    let line = pausing("echo $$ > $OUT/pid; echo x > src/b", "one", "echo y > src/b");
    let mut child = start(&bench, "", &line);
    await_pause(&bench, "one");
    assert_eq!(open(&bench), 1);
    kill(&mut child);
    wait_for("it is aborted", || open(&bench) == 0);
    untouched(&bench);
    // The command goes on, in nothing.
    go_on(&bench, "one");
    let pid = fs::read_to_string(bench.path("pid")).unwrap();
    wait_for("the command ends", || !Path::new("/proc").join(pid.trim()).exists());
    untouched(&bench);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn a_transaction_whose_daemon_is_killed_was_never_there() {
    let Some(bench) = mounted() else { return };
    bench.run("sync mnt").good();
    let child = start(&bench, "", &pausing("echo x > src/b; sync -f src", "one", "cat src/b"));
    await_pause(&bench, "one");
    let daemon = bench.daemon_pid("mnt");
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
    go_on(&bench, "one");
    let ran = ended(child);
    assert!(ran.status != 0 && ran.status != REFUSED, "{ran:?}");
    assert!(ran.err.contains("not connected") || ran.err.contains("daemon"), "{ran:?}");
    wait_for("the process is gone", || !Path::new("/proc").join(daemon.to_string()).exists());
    bench.host(&["umount", "-l", "mnt"]);
    bench.run("mount work.pool mnt").good();
    untouched(&bench);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn what_is_mapped_is_committed_and_so_is_what_is_seen_by_another_path() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("other");
    bench.host(&["mount", "--bind", "mnt/src", "other"]).good();
    let python = "import mmap; f = open('src/b', 'r+b'); m = mmap.mmap(f.fileno(), 0); \
                  m[0:3] = b'map'; m.close()";
    let line = format!("python3 -c \"{python}\"; echo bound > $OUT/other/new; cat src/new");
    let ran = run(&bench, "", &line);
    assert_eq!((ran.status, ran.out.as_str()), (0, "bound\n"), "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/b"), "map\n");
    assert_eq!(read(&bench, "other/new"), "bound\n");
    bench.host(&["umount", "other"]).good();
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn what_cannot_have_a_transaction_is_refused_before_the_command_runs() {
    let Some(bench) = mounted() else { return };
    let marker = |name: &str| format!(": > $OUT/{name}");
    let refused = |bench: &Bench, words: &str, told: &str| {
        run(bench, words, &marker("ran")).refused(125, &[told]);
        assert!(!bench.path("ran").exists(), "{told}");
    };
    refused(&bench, "--in /", "not inside a mounted Marram file system");
    bench.run("fork mnt/src try").good();
    refused(&bench, "--in .marram/forks/try", "--fork");
    bench.run("snapshot mnt@kept").good();
    refused(&bench, "--in .marram/snapshots/kept", "does not change");
    bench.run("fork mnt/src tx:mine").refused(2, &["tx:"]);
    bench.make_folder("mnt/under");
    bench.host(&["mount", "-t", "tmpfs", "none", "mnt/under"]).good();
    refused(&bench, "", "is mounted in");
    bench.host(&["umount", "mnt/under"]).good();
    let inner = format!("{} fork src x", env!("CARGO_BIN_EXE_marram"));
    run(&bench, "", &inner).refused(2, &["seen by a transaction"]);
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt -o ro").good();
    refused(&bench, "", "read-only");
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt -o writeback").good();
    refused(&bench, "", "writeback");
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn programs_are_told_how_a_transaction_ended() {
    let Some(bench) = mounted() else { return };
    let of = |line: &str| run(&bench, "--json", line).envelope()["result"].clone();
    let report = of("echo out; echo x > src/new");
    assert_eq!((&report["outcome"], &report["attempts"]), (&"committed".into(), &1.into()));
    let report = of("exit 123");
    assert_eq!((&report["outcome"], &report["exit_status"]), (&"failed".into(), &123.into()));
    let report = of("kill -TERM $$");
    assert_eq!((&report["outcome"], &report["signal"]), (&"failed".into(), &15.into()));
    end(&bench);
}

/// What a user does with a pool of the user's own.
const USER_SCRIPT: &str = r#"
set -eu
cd "$HOME"
./marram create work.pool --size 128M
mkdir mnt
./marram mount work.pool mnt
mkdir mnt/d
echo 0 > mnt/d/n
cd mnt
../marram tx run -- sh -c 'echo 1 > d/n; echo new > d/new'
[ "$(cat d/n)" = 1 ] && [ "$(cat d/new)" = new ]
! ../marram tx run -- sh -c 'echo 2 > d/n; rm d/new; exit 1'
[ "$(cat d/n)" = 1 ] && [ "$(cat d/new)" = new ]
../marram tx run -- sh -c 'chmod 0 d; ! ls d 2> /dev/null; ! cat d/n 2> /dev/null; chmod 755 d'
../marram undo . --yes
../marram undo . --yes
[ "$(cat d/n)" = 0 ] && [ ! -e d/new ]
cd ..
./marram unmount work.pool
./marram check work.pool --data
"#;

#[test]
fn an_ordinary_user_has_transactions_too() {
    let _turn = turn();
    ordinary_user::play("", USER_SCRIPT);
}

#[test]
fn several_commands_are_one_transaction() {
    let Some(bench) = mounted() else { return };
    let id = bench.run("tx begin mnt").good().out.trim().to_owned();
    let words = format!("--id {id}");
    run(&bench, &words, "echo one > first; rm src/b").good();
    let told = run(&bench, &words, "cat first; echo more >> first; exit 7");
    assert_eq!((told.status, told.out.as_str()), (7, "one\n"), "a failure ends nothing: {told:?}");
    untouched(&bench);
    let told = bench.run(&format!("tx diff mnt {id}")).good().out;
    assert!(told.contains("A /first") && told.contains("D /src/b"), "{told}");
    let told = bench.run(&format!("tx diff mnt {id} --patch")).good().out;
    assert!(told.contains("+more"), "{told}");
    bench.run(&format!("tx commit mnt {}", &id[..8])).good();
    assert_eq!(read(&bench, "mnt/first"), "one\nmore\n");
    assert!(!bench.path("mnt/src/b").exists());
    bench.run(&format!("tx commit mnt {id}")).refused(10, &["no transaction", "is open"]);
    run(&bench, &words, "true").refused(125, &["no transaction"]);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn an_open_transaction_is_refused_aborted_or_forgotten() {
    let Some(bench) = mounted() else { return };
    let begin =
        |words: &str| bench.run(&format!("tx begin mnt{words}")).good().out.trim().to_owned();
    let id = begin("");
    run(&bench, &format!("--id {id}"), "cat src/b; echo new > new").good();
    fs::write(bench.path("mnt/src/b"), "other\n").unwrap();
    bench.run(&format!("tx commit mnt {id}")).refused(REFUSED, &["/src/b"]);
    assert!(!bench.path("mnt/new").exists());
    let id = begin("");
    run(&bench, &format!("--id {id}"), "echo new > new").good();
    bench.run(&format!("tx abort mnt {id}")).good();
    assert_eq!(open(&bench), 0);
    let id = begin(" --idle 2s");
    let used = |_| run(&bench, &format!("--id {id}"), "sleep 0.7; echo new >> new").good();
    (0..4).for_each(|round| drop(used(round)));
    wait_for("nobody has used it for two seconds", || open(&bench) == 0);
    assert!(!bench.path("mnt/new").exists());
    for idle in ["0s", "8d", "soon"] {
        bench.run(&format!("tx begin mnt --idle {idle}")).refused(2, &["is no time"]);
    }
    nothing_is_left(&bench);
    end(&bench);
}
