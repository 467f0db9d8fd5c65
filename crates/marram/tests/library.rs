//! Transactions of programs that know of them: the library, on real mounts.
//!
//! Some of these programs have to be processes of their own, of other users or killed. Then the
//! program is this one, with its part in a variable of the environment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile_clients;
mod library_pools;
mod ordinary_user;
#[allow(dead_code, reason = "these tests use a part of the bench")]
mod tree;
#[allow(dead_code, reason = "these tests use a part of the bench")]
mod workbench;

use crate::hostile_clients::Hostile;
use crate::tree::wait_for;
use crate::workbench::{Workbench, outcome};
use marram_client::{Error, Transaction, retry};
use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The part that a process plays.
const PART: &str = "MARRAM_TEST_PART";
/// The directory that it plays it in.
const PLACE: &str = "MARRAM_TEST_PLACE";
/// What is there for other languages.
const BINDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings");
/// A user that is not root.
const USER: u32 = 65534;

/// A mounted pool with `src/lib/a` and `src/b`, for a test that runs alone.
fn mounted() -> Option<(Workbench, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    fs::write(bench.path("mnt/src/lib/a"), "one\n").unwrap();
    fs::write(bench.path("mnt/src/b"), "two\n").unwrap();
    Some((bench, turn))
}

fn open(at: impl AsFd, name: &str, flags: OFlags) -> rustix::io::Result<File> {
    openat(at, name, flags | OFlags::CLOEXEC, Mode::from(0o644)).map(File::from)
}

fn write(tx: &Transaction, name: &str, text: &str) {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    open(tx.directory(), name, flags).unwrap().write_all(text.as_bytes()).unwrap();
}

fn read(tx: &Transaction, name: &str) -> String {
    let mut text = String::new();
    open(tx.directory(), name, OFlags::RDONLY).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn begin(bench: &Workbench, directory: &str) -> Transaction {
    Transaction::begin(bench.path(directory)).unwrap()
}

fn text(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).unwrap()
}

/// Neither the pool nor the kernel has anything left of a transaction.
#[track_caller]
fn nothing_is_left(bench: &Workbench) {
    wait_for("the fork goes", || !bench.run("list mnt --all").good().out.contains("tx:"));
    assert_eq!(bench.run("tx list mnt --json").result().as_array().unwrap().len(), 0);
    let (mounts, pool) = (fs::read_to_string("/proc/mounts").unwrap(), bench.path("work.pool"));
    // Other tests run beside this one.
    let is_view =
        |line: &&str| line.starts_with(&*pool.to_string_lossy()) && line.contains("/marram/tx-");
    assert_eq!(mounts.lines().find(is_view), None);
    bench.run("unmount mnt").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn two_files_change_together_and_nobody_sees_it_before() {
    let Some((bench, _turn)) = mounted() else { return };
    let tx = begin(&bench, "mnt/src");
    write(&tx, "b", "changed\n");
    renameat(tx.directory(), "lib/a", tx.directory(), "moved").unwrap();
    assert_eq!((text(&bench, "mnt/src/b"), text(&bench, "mnt/src/lib/a")), two_and_one());
    assert_eq!(bench.run("tx list mnt --json").result()[0]["id"], tx.id());
    let id = tx.id().to_owned();
    assert_eq!(tx.commit().unwrap().id, id);
    assert_eq!((text(&bench, "mnt/src/b"), text(&bench, "mnt/src/moved")), changed_and_one());
    assert!(!bench.path("mnt/src/lib/a").exists());
    let shown = bench.run(&format!("tx show mnt {id} --json")).result();
    assert_eq!(shown["state"], "committed");
    bench.run("undo mnt --yes").good();
    assert_eq!(text(&bench, "mnt/src/b"), "two\n");
    nothing_is_left(&bench);
}

fn two_and_one() -> (String, String) {
    ("two\n".to_owned(), "one\n".to_owned())
}

fn changed_and_one() -> (String, String) {
    ("changed\n".to_owned(), "one\n".to_owned())
}

#[test]
fn the_descriptor_is_that_of_the_directory_however_it_was_named() {
    let Some((bench, _turn)) = mounted() else { return };
    bench.make_folder("other");
    bench.host(&["mount", "--bind", "mnt/src", "other"]).good();
    for (place, name) in [("mnt", "src/lib/a"), ("mnt/src/lib", "a"), ("other/lib", "a")] {
        let tx = begin(&bench, place);
        assert_eq!(read(&tx, name), "one\n", "{place}");
        let opened = File::open(bench.path(place)).unwrap();
        let tx = Transaction::begin_at(&opened).unwrap();
        assert_eq!(read(&tx, name), "one\n", "{place}");
    }
    bench.host(&["umount", "other"]).good();
    bench.run("snapshot mnt@kept").good();
    bench.run("fork mnt/src try").good();
    let inside = begin(&bench, "mnt/src");
    let nested = Transaction::begin_at(inside.directory()).unwrap_err();
    assert!(nested.to_string().contains("another transaction"), "{nested}");
    drop(inside);
    for place in [".", "mnt/.marram/forks/try", "mnt/.marram/snapshots/kept/src"] {
        let error = Transaction::begin(bench.path(place)).unwrap_err();
        assert!(matches!(error, Error::Unsuitable { .. }), "{place}: {error}");
    }
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt -o ro").good();
    let error = Transaction::begin(bench.path("mnt")).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    nothing_is_left(&bench);
}

#[test]
fn a_view_that_ends_with_the_last_mount_leaves_no_fork() {
    let Some((bench, _turn)) = mounted() else { return };
    for _ in 0..8 {
        let several: Vec<_> = (0..4).map(|_| begin(&bench, "mnt/src")).collect();
        drop(several);
        bench.run("unmount mnt").good();
        let list = bench.run("list work.pool --all").good().out;
        assert!(!list.contains("tx:"), "{list}");
        bench.run("mount work.pool mnt").good();
    }
    nothing_is_left(&bench);
}

#[test]
fn a_commit_is_refused_with_the_paths_that_others_have_changed() {
    let Some((bench, _turn)) = mounted() else { return };
    let tx = begin(&bench, "mnt/src");
    let copied = read(&tx, "b");
    write(&tx, "lib/copy", &copied);
    fs::write(bench.path("mnt/src/b"), "theirs\n").unwrap();
    let Err(Error::Refused(conflicts)) = tx.commit() else { panic!("not refused") };
    let paths: Vec<_> = conflicts.iter().map(|conflict| conflict.path.as_path()).collect();
    assert!(paths.contains(&Path::new("/src/b")), "{conflicts:?}");
    assert!(!bench.path("mnt/src/lib/copy").exists());

    // Two that make different names in one directory do not meet.
    let both = [begin(&bench, "mnt/src"), begin(&bench, "mnt/src")];
    both.iter().zip(["one", "two"]).for_each(|(tx, name)| write(tx, name, name));
    both.into_iter().for_each(|tx| drop(tx.commit().unwrap()));
    assert_eq!((text(&bench, "mnt/src/one"), text(&bench, "mnt/src/two")).0, "one");
    nothing_is_left(&bench);
}

#[test]
fn retry_loses_no_increment_of_two_threads() {
    const EACH: usize = 5;
    let Some((bench, _turn)) = mounted() else { return };
    let place = bench.path("mnt/src");
    fs::write(place.join("n"), "0").unwrap();
    let increase = || {
        for _ in 0..EACH {
            retry(&place, 1000, |tx| {
                let next = read(tx, "n").parse::<usize>().unwrap() + 1;
                write(tx, "n", &next.to_string());
                Ok::<_, Error>(())
            })
            .unwrap();
        }
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(increase), scope.spawn(increase)];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(text(&bench, "mnt/src/n"), (2 * EACH).to_string());
    let failed = retry(&place, 1000, |tx| {
        write(tx, "n", "lost");
        Err::<(), Error>(Errno::IO.into())
    });
    assert!(failed.is_err());
    assert_eq!(text(&bench, "mnt/src/n"), (2 * EACH).to_string());
    nothing_is_left(&bench);
}

#[test]
fn what_is_used_after_the_end_is_stale() {
    let Some((bench, _turn)) = mounted() else { return };
    for commits in [true, false] {
        let tx = begin(&bench, "mnt/src");
        let directory = tx.directory().try_clone_to_owned().unwrap();
        let file = open(&directory, "b", OFlags::RDWR).unwrap();
        file.write_all_at(b"2", 0).unwrap();
        if commits {
            drop(tx.commit().unwrap())
        } else {
            tx.abort()
        }
        let stale =
            |error: std::io::Error| error.raw_os_error() == Some(Errno::STALE.raw_os_error());
        assert_eq!(open(&directory, "lib/a", OFlags::RDONLY).unwrap_err(), Errno::STALE);
        assert_eq!(
            open(&directory, "new", OFlags::CREATE | OFlags::WRONLY).unwrap_err(),
            Errno::STALE
        );
        assert!(stale(file.write_all_at(b"x", 0).unwrap_err()));
        assert!(stale(file.read_exact_at(&mut [0; 4], 0).unwrap_err()));
    }
    assert_eq!(text(&bench, "mnt/src/b"), "2wo\n");
    nothing_is_left(&bench);
}

/// The program itself as another process, which plays `part` in a directory.
fn player(bench: &Workbench, part: &str, place: &Path) -> Command {
    // Where it was built other users need not come.
    let program = bench.path("player");
    if !program.exists() {
        bench.host(&["cp", std::env::current_exe().unwrap().to_str().unwrap(), "player"]).good();
        fs::set_permissions(bench.path("."), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(program);
    command.args(["--exact", "a_part_is_played", "--nocapture"]).env(PART, part).env(PLACE, place);
    command
}

/// What the other process does; nothing in the run of all tests.
#[test]
fn a_part_is_played() {
    let Ok(part) = std::env::var(PART) else { return };
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    match part.as_str() {
        "waits" => wait_in_a_transaction(&place),
        "user" => work_as_a_user(&place),
        "two pools" => library_pools::work_as_a_user(&place),
        "hostile" => {
            let of = |name: &str| std::env::var(name).unwrap();
            let (socket, mount) = (of("MARRAM_TEST_SOCKET"), of("MARRAM_TEST_MOUNT"));
            let seed = of("MARRAM_TEST_SEED").parse().unwrap();
            let client = Hostile::new(socket.into(), mount.into(), place, seed);
            client.converse(of("MARRAM_TEST_COUNT").parse().unwrap());
        }
        other => panic!("{other}"),
    }
}

fn wait_in_a_transaction(place: &Path) {
    let tx = Transaction::begin(place).unwrap();
    write(&tx, "b", "lost\n");
    println!("written");
    std::thread::sleep(std::time::Duration::from_secs(600));
    tx.commit().unwrap();
}

fn work_as_a_user(place: &Path) {
    let tx = Transaction::begin(place).unwrap();
    write(&tx, "mine", "mine\n");
    let root = open(tx.directory(), "../secret", OFlags::RDONLY).unwrap_err();
    assert_eq!(root, Errno::ACCESS);
    let root = open(tx.directory(), "../src/b", OFlags::WRONLY).unwrap_err();
    assert_eq!(root, Errno::ACCESS);
    tx.commit().unwrap();
    assert_eq!(fs::read_to_string(place.join("mine")).unwrap(), "mine\n");
    let tx = Transaction::begin(place).unwrap();
    write(&tx, "mine", "lost\n");
    tx.abort();
    assert_eq!(fs::read_to_string(place.join("mine")).unwrap(), "mine\n");
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_program_that_is_killed_leaves_nothing() {
    let Some((bench, _turn)) = mounted() else { return };
    let mut command = player(&bench, "waits", &bench.path("mnt/src"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("written")));
    assert_eq!(bench.run("tx list mnt --json").result().as_array().unwrap().len(), 1);
    kill(child);
    wait_for("it is aborted", || {
        bench.run("tx list mnt --json").result().as_array().unwrap().is_empty()
    });
    assert_eq!(text(&bench, "mnt/src/b"), "two\n");
    nothing_is_left(&bench);
}

#[test]
fn a_user_has_transactions_in_a_mount_of_root() {
    let Some((bench, _turn)) = mounted() else { return };
    let place = bench.make_folder("mnt/user");
    chown(&place, Some(USER), Some(USER)).unwrap();
    fs::write(bench.path("mnt/secret"), "secret\n").unwrap();
    fs::set_permissions(bench.path("mnt/secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = player(&bench, "user", &place);
    let player = command.uid(USER).gid(USER);
    outcome(player).good();
    let entry = bench.run("log mnt --json").result().as_array().unwrap().last().unwrap().clone();
    assert_eq!((&entry["operation"], &entry["user"]), (&"transaction".into(), &USER.into()));
    a_user_takes_back(&bench, &place, entry["number"].as_u64().unwrap());
    nothing_is_left(&bench);
}

#[test]
fn the_package_in_python_has_them_too() {
    let Some((bench, _turn)) = mounted() else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the package in Python needs python3");
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-B", "-W", "error", "-m", "unittest", "-v", "test_marram"]);
    command.current_dir(Path::new(BINDINGS).join("python/tests"));
    command.env("PYTHONPATH", Path::new(BINDINGS).join("python"));
    command.env("MARRAM_TEST_PLACE", bench.path("mnt/src"));
    command.env("MARRAM_TEST_MOUNT", bench.path("mnt"));
    let played = outcome(&mut command).good();
    assert!(played.err.contains("OK") && !played.err.contains("skipped"), "{played:?}");
    nothing_is_left(&bench);
}

/// The library for C, installed in the folder of a test; none without a compiler.
fn installed(bench: &Workbench) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the library for C needs cc");
        return None;
    }
    let (prefix, built) = (bench.path("usr"), std::env::current_exe().unwrap());
    let mut install = Command::new(Path::new(BINDINGS).join("c/install.sh"));
    outcome(install.arg(&prefix).arg(built.parent().unwrap())).good();
    Some(prefix)
}

/// Compiles an example: with the static library, or with the shared one as pkg-config says.
fn compiled(bench: &Workbench, prefix: &Path, example: &str, is_shared: bool) -> PathBuf {
    let program = bench.path(&format!("{example}-{is_shared}"));
    let lib = prefix.join("lib");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command.arg(Path::new(BINDINGS).join(format!("c/examples/{example}.c")));
    if is_shared {
        let words = flags(&lib.join("pkgconfig"));
        command.args(words.split_whitespace()).arg(format!("-Wl,-rpath,{}", lib.display()));
    } else {
        command.arg("-I").arg(prefix.join("include")).arg(lib.join("libmarram.a"));
        command.args(["-lpthread", "-ldl", "-lm"]);
    }
    outcome(&mut command).good();
    program
}

/// What a compiler is given, by pkg-config, or read from its file where there is none.
fn flags(folder: &Path) -> String {
    let mut command = Command::new("pkg-config");
    command.args(["--cflags", "--libs", "marram"]).env("PKG_CONFIG_PATH", folder);
    if command.output().is_ok() {
        return outcome(&mut command).good().out;
    }
    let text = fs::read_to_string(folder.join("marram.pc")).unwrap();
    let prefix = text.lines().find_map(|line| line.strip_prefix("prefix=")).unwrap();
    let values = text
        .lines()
        .filter_map(|line| line.strip_prefix("Cflags:").or_else(|| line.strip_prefix("Libs:")));
    let words = values.collect::<Vec<_>>().join(" ");
    let words = words.replace("${includedir}", "${prefix}/include");
    words.replace("${libdir}", "${prefix}/lib").replace("${prefix}", prefix)
}

#[test]
fn the_listing_of_the_thesis_runs_in_c() {
    let Some((bench, _turn)) = mounted() else { return };
    let fill = |names: &[&str]| {
        bench.make_folder("mnt/zfs");
        bench.make_folder("mnt/stick");
        names.iter().for_each(|name| fs::write(bench.path("mnt").join(name), name).unwrap());
    };
    let Some(prefix) = installed(&bench) else { return };
    for is_shared in [false, true] {
        fill(&["zfs/bob", "stick/alice"]);
        let mut command = Command::new(compiled(&bench, &prefix, "bob-and-alice", is_shared));
        let said = outcome(command.arg(bench.path("mnt"))).good().out;
        let id = said.trim().strip_prefix("transaction ").unwrap();
        bench.run(&format!("tx show mnt {id}")).good();
        assert_eq!(text(&bench, "mnt/zfs/alice"), "zfs/bob");
        assert_eq!(text(&bench, "mnt/stick/bob"), "stick/alice");
        // If the second rename fails, the first has not happened.
        fs::remove_file(bench.path("mnt/stick/bob")).unwrap();
        fs::rename(bench.path("mnt/zfs/alice"), bench.path("mnt/zfs/bob")).unwrap();
        outcome(&mut command).refused(1, &["stick/alice"]);
        assert_eq!(text(&bench, "mnt/zfs/bob"), "zfs/bob");
        assert!(!bench.path("mnt/zfs/alice").exists());
    }
    outcome(Command::new(bench.path("bob-and-alice-true")).arg("/proc")).refused(1, &["/proc"]);
    nothing_is_left(&bench);
}

/// A second dataset on `two`; both have a file `next`.
fn second(bench: &Workbench) -> [PathBuf; 2] {
    bench.run("create mnt --dataset second").good();
    bench.make_folder("two");
    bench.run("mount -o dataset=second work.pool two").good();
    let places = ["mnt/src", "two"].map(|name| bench.path(name));
    places.iter().for_each(|place| fs::write(place.join("next"), "next\n").unwrap());
    places
}

#[test]
fn one_is_over_two_datasets() {
    let Some((bench, _turn)) = mounted() else { return };
    let places = second(&bench);
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let write_in_both = |tx: &Transaction| {
        for (directory, text) in tx.directories().zip(["one\n", "two\n"]) {
            open(directory, "new", flags).unwrap().write_all(text.as_bytes()).unwrap();
        }
    };
    let seen = |name: &str| places.each_ref().map(|it| fs::read_to_string(it.join(name)).ok());
    // Several directories of one dataset have one view.
    let lib = bench.path("mnt/src/lib");
    let tx = Transaction::begin_several(&[&places[0], &places[1], &lib]).unwrap();
    assert_eq!(tx.directories().len(), 3);
    write_in_both(&tx);
    renameat(tx.directory(), "b", tx.directories().nth(2).unwrap(), "b").unwrap();
    assert_eq!(seen("new"), [None, None]);
    let inner = tx.begin_inside().unwrap();
    let second = inner.directories().nth(1).unwrap();
    renameat(second, "new", second, "newer").unwrap();
    inner.commit().unwrap();
    assert!(open(tx.directories().nth(1).unwrap(), "newer", OFlags::RDONLY).is_ok());
    drop(tx);
    assert_eq!(seen("new"), [None, None]);
    let tx = Transaction::begin_several(&places).unwrap();
    write_in_both(&tx);
    tx.commit().unwrap();
    assert_eq!(seen("new"), [Some("one\n".to_owned()), Some("two\n".to_owned())]);
    // What was read in the one alone refuses what was changed in the other.
    let tx = Transaction::begin_several(&places).unwrap();
    open(tx.directories().nth(1).unwrap(), "next", OFlags::RDONLY).unwrap();
    open(tx.directory(), "lost", flags).unwrap();
    fs::write(places[1].join("next"), "others\n").unwrap();
    match tx.commit() {
        Err(Error::Refused(conflicts)) => {
            let path = places[1].canonicalize().unwrap().join("next");
            assert!(conflicts.iter().any(|it| it.path == path), "{conflicts:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(seen("lost"), [None, None]);
    bench.run("create other.pool --size 64M").good();
    bench.make_folder("other");
    bench.run("mount other.pool other").good();
    bench.run("create third.pool --size 64M").good();
    bench.make_folder("third");
    bench.run("mount third.pool third").good();
    let three = [places[0].clone(), bench.path("other"), bench.path("third")];
    let refused = Transaction::begin_several(&three).unwrap_err();
    assert!(refused.to_string().contains("third pool"), "{refused}");
    ["third", "other", "two"]
        .iter()
        .for_each(|place| drop(bench.run(&format!("unmount {place}")).good()));
    nothing_is_left(&bench);
}

#[test]
fn one_is_over_two_pools_in_c_and_python() {
    over_both_in_c_and_python(library_pools::second_pool, "other");
}

#[test]
fn one_is_over_two_datasets_in_c_and_python() {
    over_both_in_c_and_python(second, "two");
}

fn over_both_in_c_and_python(make: fn(&Workbench) -> [PathBuf; 2], mount: &str) {
    let Some((bench, _turn)) = mounted() else { return };
    let places = make(&bench);
    let Some(prefix) = installed(&bench) else { return };
    let script = "import marram, os, sys\n\
                  with marram.transaction(*sys.argv[1:]) as tx:\n    \
                  for at in tx.filenos():\n        \
                  os.rename('next', 'current', src_dir_fd=at, dst_dir_fd=at)";
    let python = || {
        let mut command = Command::new("python3");
        command.args(["-B", "-W", "error", "-c", script]);
        command.env("PYTHONPATH", Path::new(BINDINGS).join("python"));
        command
    };
    let has_python = python().output().is_ok();
    let programs = [
        Some(Command::new(compiled(&bench, &prefix, "two-datasets", true))),
        has_python.then(python),
    ];
    for mut program in programs.into_iter().flatten() {
        places.iter().for_each(|place| fs::write(place.join("next"), "next\n").unwrap());
        outcome(program.args(&places)).good();
        let is_done =
            |place: &PathBuf| place.join("current").exists() && !place.join("next").exists();
        assert!(places.iter().all(is_done));
        // The second of both fails, and the first has not happened.
        fs::write(places[0].join("next"), "again\n").unwrap();
        assert_ne!(outcome(&mut program).status, 0);
        assert_eq!(fs::read_to_string(places[0].join("next")).unwrap(), "again\n");
    }
    bench.run(&format!("unmount {mount}")).good();
    nothing_is_left(&bench);
}

#[test]
fn one_inside_of_another_in_c_commits_into_it() {
    let Some((bench, _turn)) = mounted() else { return };
    let Some(prefix) = installed(&bench) else { return };
    let program = compiled(&bench, &prefix, "inside", true);
    outcome(Command::new(&program).arg(bench.path("mnt/src"))).good();
    assert!(bench.path("mnt/src/kept").exists() && !bench.path("mnt/src/lost").exists());
    nothing_is_left(&bench);
}

#[test]
fn retry_in_c_loses_no_increment_of_two_programs() {
    const EACH: usize = 5;
    let Some((bench, _turn)) = mounted() else { return };
    let Some(prefix) = installed(&bench) else { return };
    let program = compiled(&bench, &prefix, "increase", false);
    fs::write(bench.path("mnt/src/n"), "0").unwrap();
    let increase = || {
        for _ in 0..EACH {
            outcome(Command::new(&program).arg(bench.path("mnt/src"))).good();
        }
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(increase), scope.spawn(increase)];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(text(&bench, "mnt/src/n"), (2 * EACH).to_string());
    outcome(Command::new(&program).arg(bench.path("mnt/src/lib"))).refused(1, &["gave up"]);
    nothing_is_left(&bench);
}

/// What a user does with a pool of the user's own, whose daemon mounts by `fusermount3`.
const USER_SCRIPT: &str = r#"
set -eu
cd "$HOME"
command -v python3 > /dev/null || { echo "SKIPPED: python3 is needed"; exit 0; }
./marram create my.pool --size 128M
mkdir mnt
./marram mount my.pool mnt
mkdir mnt/d
export MARRAM_TEST_PLACE="$HOME/mnt/d" MARRAM_TEST_MOUNT="$HOME/mnt" PYTHONPATH="$HOME/python"
cd python/tests
python3 -B -m unittest -v test_marram
cd "$HOME"
./marram unmount mnt
./marram check my.pool --data
"#;

#[test]
fn a_user_has_them_in_a_pool_of_the_users_own() {
    let prepare = format!("cp -r {BINDINGS}/python $HOME/python; chmod -R a+rX $HOME/python");
    ordinary_user::play(&prepare, USER_SCRIPT);
}

#[test]
fn transactions_inside_of_one_commit_into_it_or_leave_nothing() {
    let Some((bench, _turn)) = mounted() else { return };
    let outer = begin(&bench, "mnt/src");
    write(&outer, "b", "outer\n");
    let (first, second) = (outer.begin_inside().unwrap(), outer.begin_inside().unwrap());
    let third = outer.begin_inside().unwrap();
    assert_eq!(read(&first, "b"), "outer\n");
    write(&first, "b", "first\n");
    write(&first, "made", "by the first\n");
    assert_eq!(read(&second, "b"), "outer\n", "nobody sees what is not committed");
    write(&second, "lib/other", "by the second\n");
    write(&third, "lib/third", "by the third\n");
    third.abort();
    first.commit().unwrap();
    assert_eq!((read(&outer, "b"), read(&outer, "made")), first_and_made());
    assert_eq!(text(&bench, "mnt/src/b"), "two\n", "the outer one has not committed");
    match second.commit() {
        Err(Error::Refused(conflicts)) => {
            assert!(conflicts.iter().any(|it| it.path.ends_with("src/b")), "{conflicts:?}");
        }
        other => panic!("{other:?}"),
    }
    let again = outer.begin_inside().unwrap();
    assert_eq!(read(&again, "b"), "first\n");
    let deep = again.begin_inside().unwrap();
    write(&deep, "lib/deep", "deep\n");
    deep.commit().unwrap();
    assert!(open(outer.directory(), "lib/deep", OFlags::RDONLY).is_err());
    again.commit().unwrap();
    outer.commit().unwrap();
    assert_eq!((text(&bench, "mnt/src/b"), text(&bench, "mnt/src/made")), first_and_made());
    assert_eq!(text(&bench, "mnt/src/lib/deep"), "deep\n");
    for name in ["other", "third"] {
        assert!(!bench.path(&format!("mnt/src/lib/{name}")).exists());
    }
    bench.run("undo mnt --yes").good();
    assert_eq!(text(&bench, "mnt/src/b"), "two\n");
    assert!(!bench.path("mnt/src/made").exists());
    nothing_is_left(&bench);
}

fn first_and_made() -> (String, String) {
    ("first\n".to_owned(), "by the first\n".to_owned())
}

#[test]
fn one_with_something_open_inside_of_it_is_not_committed_and_takes_that_along() {
    let Some((bench, _turn)) = mounted() else { return };
    let outer = begin(&bench, "mnt/src");
    let inner = outer.begin_inside().unwrap();
    write(&inner, "b", "inner\n");
    let id = inner.id().to_owned();
    match outer.commit() {
        Err(Error::Daemon { message, .. }) => assert!(message.contains(&id), "{message}"),
        other => panic!("{other:?}"),
    }
    wait_for("both are aborted", || {
        bench.run("tx list mnt --json").result().as_array().unwrap().is_empty()
    });
    let stale = open(inner.directory(), "b", OFlags::RDONLY).unwrap_err();
    assert_eq!(stale, Errno::STALE);
    assert!(inner.commit().is_err());
    assert_eq!(text(&bench, "mnt/src/b"), "two\n");
    nothing_is_left(&bench);
}

/// What a user has committed the user can undo, as far as the user's rights go, and nobody else's.
fn a_user_takes_back(bench: &Workbench, place: &Path, number: u64) {
    let tx = begin(bench, "mnt");
    write(&tx, "of-root", "x");
    tx.commit().unwrap();
    let undo = |number: u64| {
        let mut command = bench.command_for_others();
        command.args(["undo", "mnt", &number.to_string(), "--yes"]).uid(USER).gid(USER);
        outcome(&mut command)
    };
    let of_root = bench.run("log mnt --json").result().as_array().unwrap().last().unwrap().clone();
    undo(of_root["number"].as_u64().unwrap()).refused(10, &["no such operation of yours"]);
    assert!(bench.path("mnt/of-root").exists());
    undo(number).good();
    assert!(!place.join("mine").exists());
}

/// How many conversations each hostile client holds: one of root, and one of a user.
const HOSTILE_CONVERSATIONS: u64 = 1_200;

/// What a daemon has open, and how many threads.
fn held(daemon: i32) -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{daemon}/{what}")).unwrap().count();
    (count("fd"), count("task"))
}

#[test]
fn hostile_clients_leave_nothing_and_others_are_served() {
    let Some((bench, _turn)) = mounted() else { return };
    let socket = {
        let status = bench.run("status mnt --json").result();
        format!("/run/marram/{}.sock", status[0]["pool_id"].as_str().unwrap())
    };
    let daemon = bench.daemon_pid("mnt");
    begin(&bench, "mnt").commit().unwrap();
    wait_for("its fork goes", || !bench.run("list mnt --all").good().out.contains("tx:"));
    let before = held(daemon);
    let hostile = |user: u32, seed: u64| {
        let place = bench.make_folder(&format!("mnt/hostile-{user}"));
        chown(&place, Some(user), Some(user)).unwrap();
        let mut command = player(&bench, "hostile", &place);
        command.env("MARRAM_TEST_SOCKET", &socket).env("MARRAM_TEST_MOUNT", bench.path("mnt"));
        command.env("MARRAM_TEST_SEED", seed.to_string());
        command.env("MARRAM_TEST_COUNT", HOSTILE_CONVERSATIONS.to_string());
        command.uid(user).gid(user).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut clients = [hostile(0, 0x5eed_0001), hostile(USER, 0x5eed_0002)];
    let mut commits = 0;
    while clients.iter_mut().any(|client| client.try_wait().unwrap().is_none()) {
        // The hostile client of root may take all that root can have at a time.
        if let Ok(tx) = Transaction::begin(bench.path("mnt/src")) {
            write(&tx, "n", &commits.to_string());
            tx.commit().unwrap();
            commits += 1;
        }
        assert_eq!(text(&bench, "mnt/src/b"), "two\n");
    }
    for client in &mut clients {
        assert!(client.wait().unwrap().success(), "a hostile client fell over itself");
    }
    assert!(commits > 10, "others were served {commits} times");
    wait_for("all transactions end", || {
        bench.run("tx list mnt --json").result().as_array().unwrap().is_empty()
    });
    wait_for("descriptors and threads go", || {
        let now = held(daemon);
        now.0 <= before.0 + 2 && now.1 <= before.1 + 2
    });
    assert_eq!(bench.daemon_pid("mnt"), daemon, "it is the same daemon");
    nothing_is_left(&bench);
}
