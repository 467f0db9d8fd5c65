//! A fork of a directory that is gone, and what is brought into another directory than the one that
//! was forked.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::os::unix::fs::MetadataExt;

const FORK: &str = "mnt/.marram/forks/work";

/// A mounted pool with a directory `src`, a copy of it, and a fork `work` in which some of it is
/// changed.
fn forked() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    for (path, text) in [("src/a", "a\n"), ("src/b", "b\n"), ("src/lib/c", "c\n")] {
        write(&bench, &format!("mnt/{path}"), text);
    }
    fs::hard_link(bench.path("mnt/src/b"), bench.path("mnt/src/lib/also b")).unwrap();
    copy(&bench, "mnt/src", "mnt/copy");
    bench.run("fork mnt/src work").good();
    write(&bench, &format!("{FORK}/a"), "a of the fork\n");
    write(&bench, &format!("{FORK}/new/d"), "d\n");
    let fork = bench.path(FORK);
    fs::rename(fork.join("lib/c"), fork.join("moved")).unwrap();
    Some(bench)
}

fn copy(bench: &Workbench, from: &str, to: &str) {
    let mut cp = std::process::Command::new("cp");
    let status = cp.arg("-a").args([bench.path(from), bench.path(to)]).status().unwrap();
    assert!(status.success());
}

fn write(bench: &Workbench, path: &str, text: &str) {
    let path = bench.path(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).unwrap_or_else(|error| format!("{error}"))
}

fn remove(bench: &Workbench, path: &str) {
    fs::remove_dir_all(bench.path(path)).unwrap();
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

/// Neither a merge nor an update knows where to go, and both name the way that there is.
fn assert_gone(bench: &Workbench) {
    for line in
        ["merge mnt --fork work", "merge mnt --fork work --preview", "update mnt --fork work"]
    {
        let words = ["the directory that work is a fork of is gone from root", "--into DIRECTORY"];
        bench.run(line).refused(1, &words);
    }
    assert_eq!(read(bench, &format!("{FORK}/moved")), "c\n", "the fork is as it was");
}

#[test]
fn a_fork_of_a_directory_that_was_removed_goes_into_a_copy_of_it() {
    let Some(bench) = forked() else { return };
    remove(&bench, "mnt/src");
    assert_gone(&bench);
    write(&bench, "mnt/copy/own", "own\n");
    write(&bench, "mnt/copy/b", "b of the copy\n");
    let line = format!("merge {FORK} --into mnt/copy");
    let place = bench.path("mnt/copy").display().to_string();
    let told = bench.run(&format!("{line} --preview")).good().out;
    let sum = "1 file modified, 1 created, 1 renamed";
    assert!(told.contains(&format!("work would go into {place}: ")), "{told}");
    assert_eq!(read(&bench, "mnt/copy/a"), "a\n", "a preview changes nothing");
    let told = bench.run(&line).good().out;
    assert!(told.contains("M /a\n") && told.contains("R /lib/c -> /moved\n"), "{sum}: {told}");
    let merged = |path: &str| read(&bench, &format!("mnt/copy/{path}"));
    assert_eq!((merged("a"), merged("moved")), ("a of the fork\n".into(), "c\n".into()));
    assert_eq!((merged("new/d"), merged("own")), ("d\n".into(), "own\n".into()));
    assert_eq!(merged("b"), "b of the copy\n", "the fork has not changed it");
    assert!(!bench.path("mnt/copy/lib/c").exists());
    let log = bench.run("log mnt --last 1").good().out;
    assert!(log.contains(&format!("merge work into {place}")), "{log}");
    bench.run("undo mnt").good();
    assert_eq!((merged("a"), merged("lib/c")), ("a\n".into(), "c\n".into()));
    assert!(!bench.path("mnt/copy/new").exists() && bench.path("mnt/copy/own").exists());
    bench.run(&line).good();
    // No base has moved: what was moved is not there where it began, and has to be decided.
    let refused = bench.run(&line);
    assert!(refused.status == 4 && refused.out.contains("conflict: removed /moved"), "{refused:?}");
    let line = format!("{line} --ours /moved");
    let told = bench.run(&line).good().out;
    assert!(told.ends_with(&format!("work has nothing that {place} does not have\n")), "{told}");
    // What is changed again is a conflict too.
    write(&bench, &format!("{FORK}/a"), "a of the fork, later\n");
    let refused = bench.run(&line);
    assert!(refused.status == 4 && refused.out.contains("conflict: content /a"), "{refused:?}");
    bench.run(&format!("{line} --theirs mnt/copy/a --drop")).good();
    assert_eq!(merged("a"), "a of the fork, later\n");
    assert_eq!(bench.run("forks mnt -H").good().out, "");
    end(&bench);
}

#[test]
fn an_empty_directory_takes_all_that_a_fork_has() {
    let Some(bench) = forked() else { return };
    remove(&bench, "mnt/src");
    bench.make_folder("mnt/deep/empty");
    let mode = |path: &str| fs::metadata(bench.path(path)).unwrap().mode() & 0o7777;
    let before = mode("mnt/deep/empty");
    std::os::unix::fs::symlink("b", bench.path(&format!("{FORK}/link"))).unwrap();
    bench.run(&format!("merge {FORK} --into mnt/deep/empty")).good();
    let taken = |path: &str| read(&bench, &format!("mnt/deep/empty/{path}"));
    for (path, text) in [("a", "a of the fork\n"), ("b", "b\n"), ("link", "b\n"), ("new/d", "d\n")]
    {
        assert_eq!(taken(path), text, "{path}");
    }
    let ino = |path: &str| fs::metadata(bench.path("mnt/deep/empty").join(path)).unwrap().ino();
    assert_eq!(ino("b"), ino("lib/also b"), "two names of one file");
    assert_eq!(mode("mnt/deep/empty"), before);
    bench.run("undo mnt").good();
    assert_eq!(fs::read_dir(bench.path("mnt/deep/empty")).unwrap().count(), 0);
    end(&bench);
}

#[test]
fn a_directory_that_was_renamed_is_found() {
    let Some(bench) = forked() else { return };
    bench.make_folder("mnt/far");
    fs::rename(bench.path("mnt/src"), bench.path("mnt/far/away")).unwrap();
    bench.run(&format!("merge {FORK}")).good();
    assert_eq!(read(&bench, "mnt/far/away/a"), "a of the fork\n");
    end(&bench);
}

#[test]
fn another_directory_of_its_number_is_not_taken_for_one_that_was_rolled_back() {
    let Some(bench) = workbench::mounted() else { return };
    bench.run("snapshot mnt@before").good();
    write(&bench, "mnt/src/a", "a\n");
    bench.run("fork mnt/src work").good();
    write(&bench, &format!("{FORK}/moved"), "c\n");
    bench.run("rollback mnt@before").good();
    // The numbers of inodes begin again where the snapshot was.
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt").good();
    bench.make_folder("mnt/other");
    assert_gone(&bench);
    bench.run("merge mnt --fork work --into mnt/other").good();
    assert_eq!(
        (read(&bench, "mnt/other/a"), read(&bench, "mnt/other/moved")),
        ("a\n".into(), "c\n".into())
    );
    end(&bench);
}

#[test]
fn a_fork_is_merged_into_another_fork() {
    let Some(bench) = forked() else { return };
    bench.run("fork mnt/src second").good();
    let second = "mnt/.marram/forks/second";
    write(&bench, &format!("{second}/b"), "b of the second\n");
    bench.run(&format!("merge {FORK} --into {second}")).good();
    assert_eq!(read(&bench, &format!("{second}/a")), "a of the fork\n");
    assert_eq!(read(&bench, &format!("{second}/b")), "b of the second\n");
    bench.run(&format!("merge {second}")).good();
    assert_eq!(read(&bench, "mnt/src/moved"), "c\n");
    end(&bench);
}

#[test]
fn what_is_no_place_for_a_merge_is_refused() {
    let Some(bench) = forked() else { return };
    bench.run("snapshot mnt@s").good();
    bench.run("create work.pool --dataset apart").good();
    bench.make_folder("apart");
    bench.run("mount work.pool apart --dataset apart").good();
    for (into, status, words) in [
        ("mnt/src/a", 2, "is no directory"),
        ("mnt/.marram/snapshots/s/src", 2, "snapshot"),
        (FORK, 2, "in the fork itself"),
        ("mnt/none", 10, "none"),
        ("work.pool", 2, "is no directory in a mount"),
        ("apart", 2, "no common past"),
    ] {
        bench.run(&format!("merge mnt --fork work --into {into}")).refused(status, &[words]);
    }
    bench.run("merge mnt --fork work --into mnt/copy --markers").refused(2, &["--markers"]);
    assert_eq!(read(&bench, "mnt/src/a"), "a\n");
    assert_eq!(read(&bench, "mnt/copy/a"), "a\n");
    end(&bench);
}
