//! Mounts and mount namespaces: an unmount takes away what its process sees, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "these tests use a part of the bench")]
mod workbench;

use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One test at a time: a namespace begins with all mounts that are there, and keeps them.
static ALONE: Mutex<()> = Mutex::new(());

/// A pool and folders, where a mount namespace can be had; says so where it cannot.
fn bench(folders: &[&str]) -> Option<(MutexGuard<'static, ()>, Workbench)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() || outcome(Command::new("unshare").args(["--mount", "true"])).status != 0 {
        eprintln!("skipped: unshare is needed");
        return None;
    }
    let bench = Workbench::with_pool();
    folders.iter().for_each(|name| drop(bench.make_folder(name)));
    Some((alone, bench))
}

/// Has a namespace let go of the mounts of other tests, which run beside this one.
const LET_GO: &str = r#"
for at in $(grep 'fuse[a-z]*.marram' /proc/self/mounts | cut -d' ' -f2); do
    case "$at" in "$PWD"/*) ;; *) umount -il "$at" ;; esac
done
"#;

/// A shell in a mount namespace of its own, which gets the mounts of this one as they are and
/// passes nothing on. `$M` is the program, `$U` its link for `umount(8)`.
fn private_shell(bench: &Workbench, script: &str) -> Command {
    let link = bench.path("umount.fuseblk.marram");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_marram"), &link).unwrap();
    }
    let mut command = bench.command_as("unshare".as_ref());
    let script = format!("{LET_GO}\n{script}");
    command.args(["--mount", "--propagation", "private", "sh", "-euxc", &script]);
    command.env("M", env!("CARGO_BIN_EXE_marram")).env("U", link);
    command
}

/// Runs `script` in a private mount namespace; each of its lines has to succeed.
fn privately(bench: &Workbench, script: &str) -> Outcome {
    outcome(&mut private_shell(bench, script))
}

/// A private mount namespace that lasts as long as this does.
struct Held {
    shell: Child,
    said: BufReader<ChildStdout>,
}

impl Held {
    /// One in which `script` has been run.
    fn after(bench: &Workbench, script: &str) -> Held {
        let script = format!("{script}\necho ready\nread -r line\n");
        let mut command = private_shell(bench, &script);
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "the shell has failed");
        }
        Held { shell, said }
    }

    fn pid(&self) -> u32 {
        self.shell.id()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let mut rest = String::new();
        let _until_it_has_ended = self.said.read_line(&mut rest);
        let _its_status_means_nothing = self.shell.wait();
    }
}

#[test]
fn an_unmount_in_a_namespace_of_its_own_leaves_the_mount_of_the_host() {
    let Some((_alone, bench)) = bench(&["mnt"]) else { return };
    let directory = bench.path("mnt");
    for options in ["blkdev=auto", "blkdev=off"] {
        bench.run(&format!("mount work.pool mnt -o {options}")).good();
        let pid = bench.daemon_pid("mnt");
        for unmount in [
            "$M unmount mnt",
            "$M unmount --detach mnt",
            "$M unmount work.pool",
            "$U mnt -l",
            "$U mnt",
        ] {
            let gone = "grep -c \" $PWD/mnt \" /proc/self/mounts";
            let script = format!("cat mnt/x || true\n{unmount}\ntest \"$({gone})\" = 0");
            let told = privately(&bench, &script).good();
            assert!(!told.out.contains("still in use"), "{told:?}");
            fs::write(bench.path("mnt/x"), unmount).unwrap();
            assert_eq!(bench.daemon_pid("mnt"), pid, "after {unmount}");
            assert_eq!(bench.mounts().len(), 1, "after {unmount}");
        }
        bench.run("unmount mnt").good();
        assert!(bench.mounts().is_empty() && !directory.join("x").exists());
        bench.run("check work.pool").good();
    }
}

#[test]
fn the_namespace_that_umount_names_is_the_one_that_loses_the_mount() {
    let Some((_alone, bench)) = bench(&["mnt"]) else { return };
    bench.run("mount work.pool mnt").good();
    let held = Held::after(&bench, "cd /");
    let pid = held.pid();
    let shown = || fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
    let place = format!(" {} ", bench.path("mnt").display());
    assert!(shown().contains(&place));
    let line = format!("{} -N /proc/{pid}/ns/mnt", bench.path("mnt").display());
    bench.run_as("umount.fuseblk.marram", &line).good();
    assert!(!shown().contains(&place));
    assert_eq!(bench.mounts().len(), 1);
    let line = format!("{} -N /proc/{pid}/ns/nothing", bench.path("mnt").display());
    bench.run_as("umount.fuseblk.marram", &line).refused(32, &["ns/nothing"]);
    bench.run("unmount mnt").good();
}

#[test]
fn commands_know_a_mount_in_whatever_namespace_and_place_it_is_bound_to() {
    let Some((_alone, bench)) = bench(&["mnt", "whole", "part"]) else { return };
    bench.run("mount work.pool mnt").good();
    bench.make_folder("mnt/sub");
    fs::write(bench.path("mnt/sub/file"), "before").unwrap();
    let script = "mount --bind mnt whole; mount --bind mnt/sub part; umount -i mnt
        $M snapshot whole@a; echo after > part/file
        $M diff part@a part > diff; grep file diff
        $M fork part f > fork; grep -v 'it is at' fork
        test \"$(cat whole/.marram/forks/f/file)\" = after
        $M sync part; $M status part | grep online
        $M unmount part; $M unmount whole
        ! $M status part";
    privately(&bench, script).good();
    assert_eq!(fs::read_to_string(bench.path("mnt/sub/file")).unwrap(), "after\n");
    bench.run("unmount mnt").good();
}

#[test]
fn what_is_mounted_is_seen_by_who_mounts_or_refused() {
    let Some((_alone, bench)) = bench(&["mnt", "two", "fork"]) else { return };
    // A daemon that began in a namespace of its own outlives the command that began it.
    privately(&bench, "$M mount work.pool mnt; echo inside > mnt/file; $M fork mnt f").good();
    assert!(bench.mounts().is_empty());
    let pid = bench.daemon_pid("work.pool");
    let there = format!("nsenter --target {pid} --mount");
    for line in
        ["mount work.pool mnt", "mount work.pool fork --fork f", "mount work.pool mnt -o ro"]
    {
        let told = bench.run(line).refused(11, &["another mount namespace", &there]);
        assert!(told.err.contains(&format!("kill {pid}")), "{told:?}");
        assert!(bench.mounts().is_empty(), "after {line}");
    }
    bench.run("unmount work.pool").refused(11, &["not mounted here", "mnt", &there]);
    bench.run("unmount mnt").refused(10, &["nothing is mounted"]);
    bench
        .host(&[
            "nsenter",
            "--target",
            &pid.to_string(),
            "--mount",
            env!("CARGO_BIN_EXE_marram"),
            "unmount",
            bench.path("mnt").to_str().unwrap(),
        ])
        .good();
    bench.run("mount work.pool mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "inside\n");

    // What a namespace got with its beginning it can bind; the host sees nothing of that.
    let script = "$M mount work.pool two; test \"$(cat two/file)\" = inside
        ! $M mount work.pool two; ! $M mount work.pool fork --fork f 2> refused
        grep 'not seen here' refused
        ! $M mount mnt fork -o ro 2> refused; grep 'leave the options out' refused
        $M unmount two; ! cat two/file; cat mnt/file";
    privately(&bench, script).good();
    assert_eq!(bench.mounts().len(), 1);
    bench.run("unmount mnt").good();
}

#[test]
fn a_new_pool_under_an_old_path_is_no_matter_of_the_daemon_of_the_old_one() {
    let Some((_alone, bench)) = bench(&["mnt"]) else { return };
    privately(&bench, "$M mount work.pool mnt -o blkdev=off").good();
    let hidden = bench.daemon_pid("work.pool");
    fs::rename(bench.path("work.pool"), bench.path("old.pool")).unwrap();
    bench.run("create work.pool --size 128M").good();
    bench.run("mount work.pool mnt -o blkdev=off").good();
    fs::write(bench.path("mnt/new"), "new").unwrap();
    assert_ne!(bench.daemon_pid("mnt"), hidden);
    bench.run("unmount mnt").good();
    assert!(bench.mounts().is_empty());
    assert_eq!(bench.daemon_pid("old.pool"), hidden);
    bench.run("check work.pool").good();
    let hidden = rustix::process::Pid::from_raw(hidden).unwrap();
    rustix::process::kill_process(hidden, rustix::process::Signal::TERM).unwrap();
    bench.run_as("fsck.marram", "-n old.pool").good();
}

#[test]
fn who_still_has_an_unmounted_mount_is_named_at_once() {
    let Some((_alone, bench)) = bench(&["mnt"]) else { return };
    for options in ["blkdev=auto", "blkdev=off"] {
        bench.run(&format!("mount work.pool mnt -o {options}")).good();
        let held = Held::after(&bench, "cd /");
        let pid = held.pid();
        let place =
            format!("at {} in the mount namespace of process {pid}", bench.path("mnt").display());
        let began = Instant::now();
        bench.run("unmount mnt").refused(3, &["still in use", &place]);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());

        let status = bench.run("status work.pool").good();
        assert!(status.out.contains("not here") && status.out.contains(&place), "{status:?}");
        let mount = bench.run("status work.pool --json").result()[0]["mounts"][0].clone();
        assert_eq!(
            (&mount["in_sight"], &mount["elsewhere"][0]["pid"]),
            (&false.into(), &pid.into())
        );
        let there = format!("nsenter --target {pid} --mount marram unmount");
        bench.run("unmount work.pool").refused(11, &["not mounted here", &place, &there]);
        drop(held);
        bench.run_as("fsck.marram", "-n work.pool").good();
        bench.run("unmount work.pool").refused(10, &["not mounted"]);
    }
}
