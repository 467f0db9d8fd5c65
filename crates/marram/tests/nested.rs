//! Transactions inside of transactions: `marram tx run` in a command that `marram tx run` runs.

use crate::tree::wait_for;
use crate::workbench::{Outcome, Workbench, outcome};
use crate::{end, mounted, read, untouched};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

/// The status of a commit that was refused.
const REFUSED: i32 = 123;

/// A line of the shell, in which `$TX` runs a command as a transaction, run as one.
fn run(bench: &Workbench, words: &str, line: &str) -> Outcome {
    let mut command = bench.command();
    command.current_dir(bench.path("mnt")).args(["tx", "run"]).args(words.split_whitespace());
    command.args(["--", "sh", "-c", line]).env("OUT", bench.path("."));
    command.env("MARRAM", env!("CARGO_BIN_EXE_marram"));
    command.env("TX", concat!(env!("CARGO_BIN_EXE_marram"), " tx run --"));
    outcome(&mut command)
}

/// Neither a list nor the kernel has anything left of a transaction.
#[track_caller]
fn nothing_is_left(bench: &Workbench) {
    wait_for("the forks go", || !bench.run("list mnt --all").good().out.contains("tx:"));
    assert_eq!(bench.run("tx list mnt --json").result().as_array().unwrap().len(), 0);
    let (mounts, pool) = (fs::read_to_string("/proc/mounts").unwrap(), bench.path("work.pool"));
    // Other tests run beside this one.
    let is_view =
        |line: &&str| line.starts_with(&*pool.to_string_lossy()) && line.contains("/marram/tx-");
    assert_eq!(mounts.lines().find(is_view), None);
}

fn entries(bench: &Workbench) -> usize {
    bench.run("log mnt --json").result().as_array().unwrap().len()
}

#[test]
#[ignore = "needs root"]
fn a_directory_that_an_inner_command_closes_is_closed_in_the_outer_one() {
    let Some(bench) = mounted() else { return };
    let line = "mkdir -m 755 d; echo secret > d/f
        stranger() { setpriv --reuid 1234 --regid 1234 --clear-groups cat d/f; }
        stranger || exit 1
        $TX sh -c 'chmod 700 d' || exit 2
        ! stranger || exit 3";
    let ran = run(&bench, "", line);
    assert_eq!((ran.status, &*ran.out), (0, "secret\n"), "{ran:?}");
    end(&bench);
}

#[test]
fn what_an_inner_command_does_is_part_of_the_outer_one() {
    let Some(bench) = mounted() else { return };
    let before = entries(&bench);
    let line = "set -e; echo outer > src/b; \
        $TX sh -c 'cat src/b; echo inner > src/b; echo new > src/new; rm src/lib/a'; \
        cat src/b src/new; test ! -e src/lib/a; \
        ! $TX sh -c 'rm src/new; echo gone > src/b; exit 3'; \
        cat src/b src/new; stat -c %i src/lib; $TX stat -c %i src/lib; \
        $TX sh -c '$TX sh -c \"echo deep > src/deep\"; cat src/deep'; cat src/deep; \
        cat $OUT/mnt/src/b";
    let ran = run(&bench, "", line);
    assert!(ran.status == 0 && ran.err.is_empty(), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    let (numbers, others): (Vec<&str>, Vec<&str>) =
        lines.iter().partition(|line| line.chars().all(|it| it.is_ascii_digit()));
    assert_eq!(others, "outer inner new inner new deep deep inner".split(' ').collect::<Vec<_>>());
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/b"), "inner\n");
    assert_eq!(read(&bench, "mnt/src/deep"), "deep\n");
    assert!(!bench.path("mnt/src/lib/a").exists());
    assert_eq!(entries(&bench), before + 1, "all of it is one operation");
    nothing_is_left(&bench);
    bench.run("undo mnt --yes").good();
    untouched(&bench);
    assert!(!bench.path("mnt/src/deep").exists());
    end(&bench);
}

#[test]
fn nothing_of_a_committed_inner_one_is_there_if_the_outer_one_fails() {
    let Some(bench) = mounted() else { return };
    let before = entries(&bench);
    let line = "$TX sh -c 'echo inner > src/b; echo new > src/new' && sync -f src && exit 7";
    let ran = run(&bench, "", line);
    assert_eq!(ran.status, 7, "{ran:?}");
    untouched(&bench);
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(entries(&bench), before);
    nothing_is_left(&bench);
    end(&bench);
}

/// What an inner command has read counts for the outer one, whether it commits or fails.
#[test]
fn what_an_inner_command_has_read_keeps_the_outer_one_from_committing() {
    for (number, status) in ["0", "5"].iter().enumerate() {
        let Some(bench) = mounted() else { return };
        let line = format!(
            "$TX sh -c 'cat src/b > /dev/null; exit {status}'; : > $OUT/here; \
             until [ -e $OUT/go ]; do sleep 0.02; done; echo made > src/lib/made{number}"
        );
        std::thread::scope(|scope| {
            let ran = scope.spawn(|| run(&bench, "", &line));
            wait_for("the inner one has ended", || bench.path("here").exists());
            fs::write(bench.path("mnt/src/b"), "theirs\n").unwrap();
            fs::write(bench.path("go"), "").unwrap();
            let ran = ran.join().unwrap();
            ran.refused(REFUSED, &["/src/b", "content changed by others"]);
        });
        assert!(!bench.path(&format!("mnt/src/lib/made{number}")).exists());
        nothing_is_left(&bench);
        end(&bench);
    }
}

/// Two at a time in one: what one has changed refuses the other, by its path, and no more than it.
#[test]
fn inner_ones_are_isolated_from_each_other_and_from_the_outer_one() {
    let Some(bench) = mounted() else { return };
    let line = "set -e; \
        $TX sh -c 'cat src/b > /dev/null; : > $OUT/here; \
            until [ -e $OUT/go ]; do sleep 0.02; done; cat src/b > $OUT/saw; : > src/lib/one' & \
        until [ -e $OUT/here ]; do sleep 0.02; done; \
        $TX sh -c 'echo second > src/b'; cat src/b; : > $OUT/go; \
        set +e; wait $!; echo status $?; ls src/lib";
    let ran = run(&bench, "", line);
    assert_eq!((ran.status, ran.out.as_str()), (0, "second\nstatus 123\na\n"), "{ran:?}");
    assert!(ran.err.contains("/src/b"), "{ran:?}");
    assert_eq!(fs::read_to_string(bench.path("saw")).unwrap(), "two\n");
    assert_eq!(read(&bench, "mnt/src/b"), "second\n");
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn an_outer_one_does_not_commit_while_an_inner_one_is_open_and_depth_has_a_limit() {
    let Some(bench) = mounted() else { return };
    let line = "$MARRAM tx begin . > $OUT/id && echo x > src/new";
    run(&bench, "", line).refused(125, &["is open inside of transaction"]);
    untouched(&bench);
    assert!(!bench.path("mnt/src/new").exists());
    // Several commands of the outer one are one inner transaction.
    let line = "set -e; id=$($MARRAM tx begin .); \
        $MARRAM tx run --id $id -- sh -c 'echo more > src/new'; test ! -e src/new; \
        $MARRAM tx run --id $id -- cat src/new; $MARRAM tx commit . $id; cat src/new";
    let ran = run(&bench, "", line);
    assert_eq!((ran.status, ran.out.as_str()), (0, "more\nmore\n"), "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/new"), "more\n");
    fs::write(
        bench.path("deeper"),
        "[ $1 = 0 ] && { echo bottom > src/bottom; exit; }; exec $TX sh $OUT/deeper $(($1 - 1))",
    )
    .unwrap();
    let ran = run(&bench, "", "sh $OUT/deeper 7");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(read(&bench, "mnt/src/bottom"), "bottom\n");
    let ran = run(&bench, "", "sh $OUT/deeper 8");
    assert!(ran.status == 125 && ran.err.contains("8 transactions are inside"), "{ran:?}");
    nothing_is_left(&bench);
    end(&bench);
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_of_any_of_them() {
    let Some(bench) = mounted() else { return };
    bench.run("sync mnt").good();
    let line = "$TX sh -c 'echo inner > src/b'; sync -f src; \
        $TX sh -c 'echo deep > src/deep; sync -f src; : > $OUT/here; \
            until [ -e $OUT/go ]; do sleep 0.02; done; cat src/deep'";
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| run(&bench, "", line));
        wait_for("both are open", || bench.path("here").exists());
        assert_eq!(bench.run("tx list mnt --json").result().as_array().unwrap().len(), 2);
        bench.run("sync mnt").good();
        let daemon = bench.daemon_pid("mnt");
        kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
        fs::write(bench.path("go"), "").unwrap();
        let ran = ran.join().unwrap();
        assert!(ran.status != 0 && ran.status != REFUSED, "{ran:?}");
        let process = Path::new("/proc").join(daemon.to_string());
        wait_for("the process is gone", || !process.exists());
    });
    bench.host(&["umount", "-l", "mnt"]);
    bench.run("mount work.pool mnt").good();
    untouched(&bench);
    assert!(!bench.path("mnt/src/deep").exists());
    nothing_is_left(&bench);
    end(&bench);
}
