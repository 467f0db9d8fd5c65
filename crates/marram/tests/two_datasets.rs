//! One transaction over several datasets: what a command does in them is there at one moment, or
//! not at all.

use crate::tree::wait_for;
use crate::workbench::{Outcome, Workbench, outcome};
use crate::{Bench, end, mounted, read, untouched};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

/// The status of a commit that was refused.
const REFUSED: i32 = 123;

/// A pool with two datasets: the one on `mnt`, with `src/lib/a` and `src/b`, and the one on `two`,
/// with `c`.
fn both() -> Option<Bench> {
    let bench = mounted()?;
    bench.run("create mnt --dataset second").good();
    bench.make_folder("two");
    bench.run("mount -o dataset=second work.pool two").good();
    fs::write(bench.path("two/c"), "three\n").unwrap();
    Some(bench)
}

/// A line of the shell as a transaction over both.
fn transaction(bench: &Workbench, words: &str, line: &str) -> Command {
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run", "--with", "../two"]);
    command.args(words.split_whitespace()).args(["--", "sh", "-c", line]);
    command.env("OUT", bench.path(".")).env("MARRAM", env!("CARGO_BIN_EXE_marram"));
    command
}

fn run(bench: &Workbench, words: &str, line: &str) -> Outcome {
    outcome(&mut transaction(bench, words, line))
}

/// One that does the first line, says so, and does the second when it is let go on.
fn start(bench: &Workbench, before: &str, after: &str) -> Child {
    let line = format!(
        "{before}; : > $OUT/here; until [ -e $OUT/go -o ! -d $OUT ]; do sleep 0.02; done; {after}"
    );
    let mut command = transaction(bench, "", &line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the command comes so far", || bench.path("here").exists());
    child
}

fn go_on(bench: &Workbench, child: Child) -> Outcome {
    fs::write(bench.path("go"), "").unwrap();
    let ended = child.wait_with_output().unwrap();
    for name in ["go", "here"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    Outcome {
        status: ended.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&ended.stdout).into_owned(),
        err: String::from_utf8_lossy(&ended.stderr).into_owned(),
    }
}

/// Nothing has changed in both.
#[track_caller]
fn both_untouched(bench: &Workbench) {
    untouched(bench);
    assert_eq!(read(bench, "two/c"), "three\n");
    assert_eq!(fs::read_dir(bench.path("two")).unwrap().count(), 1);
}

/// Neither a list nor the kernel has anything left of a transaction.
#[track_caller]
fn nothing_is_left(bench: &Workbench) {
    wait_for("the forks go", || !bench.run("list mnt --all").good().out.contains("tx:"));
    assert_eq!(bench.run("tx list mnt --json").result().as_array().unwrap().len(), 0);
    let (mounts, pool) = (fs::read_to_string("/proc/mounts").unwrap(), bench.path("work.pool"));
    let is_view =
        |line: &&str| line.starts_with(&*pool.to_string_lossy()) && line.contains("/marram/tx-");
    assert_eq!(mounts.lines().find(is_view), None);
}

const CHANGES: &str = "set -e; cat src/b $OUT/two/c; echo one > src/b; echo new > $OUT/two/new; \
                       rm $OUT/two/c; stat -c %i src/b $OUT/two/new > /dev/null";

#[test]
fn what_a_command_does_in_both_is_there_at_once_and_is_taken_back_at_once() {
    let Some(bench) = both() else { return };
    let [ino, other] = ["mnt/src/b", "two/c"].map(|it| fs::metadata(bench.path(it)).unwrap().ino());
    let line = format!("stat -c %i src/b $OUT/two/c; {CHANGES}");
    let child = start(&bench, &line, "true");
    both_untouched(&bench);
    let row = bench.run("tx list mnt --json").result()[0].clone();
    let id = row["id"].as_str().unwrap();
    assert_eq!(
        (row["dataset"].as_str(), row["also"][0]["dataset"].as_str()),
        (Some("root"), Some("second"))
    );
    assert!(bench.run("tx list two").good().out.contains("root,second"));
    let told = bench.run(&format!("tx diff mnt {id}")).good().out;
    for line in ["/mnt/src/b", "A ", "/two/new", "D ", "/two/c"] {
        assert!(told.contains(line), "{told}");
    }
    let ran = go_on(&bench, child);
    assert!(ran.status == 0 && ran.err.is_empty(), "{ran:?}");
    assert_eq!(ran.out, format!("{ino}\n{other}\ntwo\nthree\n"));
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "two/new")),
        ("one\n".into(), "new\n".into())
    );
    assert!(!bench.path("two/c").exists());
    let shown = bench.run(&format!("tx show mnt {id} --json")).result();
    assert_eq!(
        (shown["state"].as_str(), shown["also"][0].as_str()),
        (Some("committed"), Some("second"))
    );
    nothing_is_left(&bench);
    bench.run("undo mnt --yes").good();
    both_untouched(&bench);
    bench.run("undo mnt --yes").good();
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "two/new")),
        ("one\n".into(), "new\n".into())
    );
    // What was changed since in one of both keeps all of it as it is.
    fs::write(bench.path("two/new"), "later\n").unwrap();
    bench.run(&format!("undo mnt {}", shown["operation"])).refused(1, &["second/new", "since"]);
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "two/new")),
        ("one\n".into(), "later\n".into())
    );
    end(&bench);
}

#[test]
fn a_failure_or_a_conflict_in_one_leaves_both_as_they_were() {
    let Some(bench) = both() else { return };
    assert_eq!(run(&bench, "", &format!("{CHANGES}; exit 3")).status, 3);
    both_untouched(&bench);
    // Read in the second alone, and changed in the first alone.
    let child = start(&bench, "cat $OUT/two/c > /dev/null; echo one > src/b", "true");
    fs::write(bench.path("two/c"), "others\n").unwrap();
    let place = bench.path("two").canonicalize().unwrap();
    let path = format!("{}/c", place.display());
    go_on(&bench, child).refused(REFUSED, &[path.as_str(), "content changed by others"]);
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "two/c")),
        ("two\n".into(), "others\n".into())
    );
    // One that only reads is where it began.
    let child = start(&bench, "cat $OUT/two/c src/b > /dev/null", "true");
    fs::write(bench.path("two/c"), "three\n").unwrap();
    go_on(&bench, child).good();
    both_untouched(&bench);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn a_quota_of_one_keeps_back_what_was_done_in_both() {
    let Some(bench) = both() else { return };
    bench.run("set mnt --dataset second quota=2M").good();
    let line = "echo one > src/b; head -c 1500000 /dev/urandom > $OUT/two/big";
    let child = start(&bench, line, "true");
    bench.host(&["sh", "-c", "head -c 1500000 /dev/urandom > two/theirs"]).good();
    bench.run("sync mnt").good();
    let ran = go_on(&bench, child);
    assert!(ran.status == 125 && ran.err.contains("nothing was committed"), "{ran:?}");
    untouched(&bench);
    assert!(!bench.path("two/big").exists());
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn a_starter_or_a_daemon_that_is_killed_leaves_nothing_in_either() {
    let Some(bench) = both() else { return };
    let mut child = start(&bench, CHANGES, "true");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("it is aborted", || {
        bench.run("tx list mnt --json").result().as_array().unwrap().is_empty()
    });
    both_untouched(&bench);
    fs::write(bench.path("go"), "").unwrap();
    nothing_is_left(&bench);
    for name in ["go", "here"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    bench.run("sync mnt").good();
    let child = start(&bench, &format!("{CHANGES}; sync -f src"), "cat src/b");
    let daemon = bench.daemon_pid("mnt");
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
    let ran = go_on(&bench, child);
    assert!(ran.status != 0 && ran.status != REFUSED, "{ran:?}");
    wait_for("the process is gone", || !fs::exists(format!("/proc/{daemon}")).unwrap());
    for place in ["mnt", "two"] {
        bench.host(&["umount", "-l", place]);
    }
    bench.run("mount work.pool mnt").good();
    bench.run("mount -o dataset=second work.pool two").good();
    both_untouched(&bench);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn one_that_stays_open_and_one_inside_are_over_both() {
    let Some(bench) = both() else { return };
    let id = bench.run("tx begin mnt --with two").good().out.trim().to_owned();
    let mut command = bench.command();
    command.current_dir(bench.path("two")).args(["tx", "run", "--id", &id, "--", "sh", "-c"]);
    outcome(command.arg("echo more >> c; echo one > ../mnt/src/b; cat ../mnt/src/b c")).good();
    both_untouched(&bench);
    bench.run(&format!("tx commit two {id}")).good();
    assert_eq!(
        (read(&bench, "mnt/src/b"), read(&bench, "two/c")),
        ("one\n".into(), "three\nmore\n".into())
    );
    // An inner one that fails leaves the outer one as it was; one that commits is a part of it.
    let inner = "$MARRAM tx run --with $OUT/two -- sh -c";
    let line = format!(
        "set -e; echo two > src/b; ! {inner} 'echo lost > src/b; echo lost > $OUT/two/c; exit 4'; \
         cat src/b; {inner} 'cat src/b; echo three > $OUT/two/c'; cat $OUT/two/c"
    );
    let ran = run(&bench, "", &line);
    assert_eq!((ran.status, ran.out.as_str()), (0, "two\ntwo\nthree\n"), "{ran:?}");
    both_untouched(&bench);
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn what_is_in_a_third_pool_or_no_dataset_is_refused_before_the_command_runs() {
    let Some(bench) = both() else { return };
    for name in ["other", "third"] {
        bench.run(&format!("create {name}.pool --size 64M")).good();
        bench.make_folder(name);
        bench.run(&format!("mount {name}.pool {name}")).good();
    }
    for (words, told) in [
        ("--with ../other --with ../third", "third.pool"),
        ("--with /proc", "not inside a mounted Marram file system"),
        ("--with ../none", "none"),
    ] {
        run(&bench, words, ": > $OUT/ran").refused(125, &[told]);
        assert!(!bench.path("ran").exists(), "{told}");
    }
    ["other", "third"].iter().for_each(|name| drop(bench.run(&format!("unmount {name}")).good()));
    // Named twice is named once, and one that is mounted in the other is a place of its own.
    run(&bench, "--with . --with ../two", "echo one > src/b; echo two > src/b").good();
    bench.run("unmount two").good();
    bench.make_folder("mnt/in");
    bench.run("mount -o dataset=second work.pool mnt/in").good();
    let mut command = bench.command();
    command.current_dir(bench.path("mnt/in")).args(["tx", "run", "--with", "..", "--", "sh", "-c"]);
    outcome(command.arg("set -e; cat c; cat ../src/b; echo new > new; echo new > ../new")).good();
    assert_eq!(
        (read(&bench, "mnt/in/new"), read(&bench, "mnt/new")),
        ("new\n".into(), "new\n".into())
    );
    bench.run("unmount mnt/in").good();
    end(&bench);
}

#[test]
fn an_open_transaction_goes_on_where_its_dataset_is_mounted_now() {
    let Some(bench) = both() else { return };
    let begun = bench.run("tx begin mnt");
    let id = begun.good().out.trim().to_owned();
    bench.run("unmount mnt").good();
    bench.make_folder("elsewhere");
    bench.run("mount work.pool elsewhere").good();
    bench.run("mount -o dataset=second work.pool mnt").good();
    let mut step = bench.command();
    step.current_dir(bench.path("elsewhere")).args(["tx", "run", "--id", &id]);
    outcome(step.args(["--", "sh", "-c", "echo new > new"])).good();
    assert!(!bench.path("elsewhere/new").exists() && !bench.path("mnt/new").exists());
    bench.run(&format!("tx commit elsewhere {id}")).good();
    assert!(bench.path("elsewhere/new").exists() && !bench.path("mnt/new").exists());
    bench.run("unmount mnt").good();
    bench.run("unmount elsewhere").good();
}
