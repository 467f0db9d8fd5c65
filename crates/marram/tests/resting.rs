//! A daemon that nobody uses rests, and the other one is alone meanwhile.

use crate::pair::{PATIENCE, Pair};
use crate::{Place, names, read};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, File};
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

on_each_home!(
    one_that_is_used_is_alone_while_the_other_rests,
    what_was_closed_beside_one_that_rests_outlives_its_daemon,
    a_file_that_one_has_open_while_it_rests_stays_readable,
    one_that_is_expelled_by_hand_comes_back,
);

/// Two mounts, of which the first is used and the other one rests.
fn one_rests(place: Place) -> Option<Pair> {
    let pair = Pair::mounted(place)?;
    await_rest(&pair);
    Some(pair)
}

/// Uses the first mount until it is alone.
fn await_rest(pair: &Pair) {
    let (here, began) = (&pair.mounts()[0], Instant::now());
    loop {
        names(here);
        let listed = pair.run("clients URL --json").result();
        let clients = listed["clients"].as_array().unwrap();
        let count = |what: &str| clients.iter().filter(|client| client[what] == true).count();
        if (clients.len(), count("is_alone"), count("rests")) == (2, 1, 1) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{listed}\n{}", pair.bench.log());
        thread::sleep(Duration::from_millis(50));
    }
}

fn one_that_is_used_is_alone_while_the_other_rests(place: Place) {
    let Some(pair) = one_rests(place) else { return };
    let [here, there] = pair.mounts();
    for round in 0..2 {
        // All of it is seen by the first look of the other one, also what was not closed.
        let mut open = File::create(here.join("open")).unwrap();
        std::io::Write::write_all(&mut open, format!("round {round}").as_bytes()).unwrap();
        fs::create_dir(here.join(format!("made-{round}"))).unwrap();
        fs::write(here.join("moving"), "here").unwrap();
        fs::rename(here.join("moving"), here.join("moved")).unwrap();
        assert!(!here.join("new").exists(), "the kernel knows that now");
        assert!(there.join(format!("made-{round}")).exists());
        assert_eq!(read(&there.join("open")), format!("round {round}"));
        assert_eq!(read(&there.join("moved")), "here");
        // And what that one does the first sees.
        fs::write(there.join("new"), format!("{round}")).unwrap();
        fs::write(there.join("moved"), "there").unwrap();
        assert_eq!(read(&here.join("new")), format!("{round}"));
        assert_eq!(read(&here.join("moved")), "there");
        fs::remove_file(there.join("new")).unwrap();
        assert!(!here.join("new").exists());
        await_rest(&pair);
    }
    pair.finish();
}

fn what_was_closed_beside_one_that_rests_outlives_its_daemon(place: Place) {
    let Some(pair) = one_rests(place) else { return };
    let [here, there] = pair.mounts();
    for file in 0..20 {
        fs::write(here.join(format!("{file}")), format!("closed {file}")).unwrap();
    }
    let pid = Pid::from_raw(pair.bench.daemon_pid("here")).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let began = Instant::now();
    while test_kill_process(pid).is_ok() {
        assert!(began.elapsed() < PATIENCE, "the daemon does not die");
        thread::sleep(Duration::from_millis(10));
    }
    for file in 0..20 {
        assert_eq!(read(&there.join(format!("{file}"))), format!("closed {file}"));
    }
    pair.await_clients(1);
    pair.bench.host(&["umount", "-l", "here"]);
    pair.run("mount URL here").good();
    fs::write(here.join("after"), "again").unwrap();
    assert_eq!(read(&there.join("after")), "again");
    pair.finish();
}

fn a_file_that_one_has_open_while_it_rests_stays_readable(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    let content: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(here.join("file"), &content).unwrap();
    let mut open = File::open(there.join("file")).unwrap();
    await_rest(&pair);
    fs::remove_file(here.join("file")).unwrap();
    // Long enough for what is given back in the background.
    thread::sleep(Duration::from_millis(2500));
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert!(read == content);
    drop(open);
    pair.finish();
}

fn one_that_is_expelled_by_hand_comes_back(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::write(there.join("file"), "before").unwrap();
    let locked = File::open(there.join("file")).unwrap();
    locked.lock().unwrap();
    let listed = pair.run("clients URL --json").result();
    let clients = listed["clients"].as_array().unwrap();
    let other = clients.iter().find(|client| client["locks"] == 1).unwrap();
    assert!(other["since"].as_i64().unwrap() > 1_700_000_000, "{listed}");
    let session = other["session"].as_str().unwrap();
    pair.run("expel URL nonsense").refused(10, &["no client", "marram clients"]);
    let beginning = session.split_at(8).0;
    let expelled = pair.run(&format!("expel URL {beginning} --json")).result();
    assert_eq!(expelled["expelled"], other["name"]);
    // At once, whatever the other one does.
    File::open(here.join("file")).unwrap().try_lock().unwrap();
    drop(locked);
    let began = Instant::now();
    while fs::write(there.join("file"), "again").is_err() {
        assert!(began.elapsed() < PATIENCE, "it does not come back\n{}", pair.bench.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(read(&here.join("file")), "again");
    let listed = pair.run("clients URL --json").result();
    assert!(!listed.to_string().contains(session), "it is another client now: {listed}");
    pair.finish();
}
