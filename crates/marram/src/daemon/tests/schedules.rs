//! Automatic snapshots by a clock that the test sets.

use super::Bench;
use crate::control::protocol::Operation;
use crate::engine::Home;
use crate::timestamps::now_seconds;
use marram_store::{DatasetName, Holds, Lineage, Properties, Source, Store};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode};
use std::sync::Arc;

const MINUTE: i64 = 60;
/// 2126-11-24T15:00:00Z: after anything that the test's pool has from the clock of the machine.
const NOW: i64 = 4_951_206_000;

/// A pool with a rule for its root dataset, and nothing in it.
fn scheduled(rule: &str) -> Bench {
    let bench = Bench::new();
    set(&bench, "root", rule);
    bench
}

fn set(bench: &Bench, dataset: &str, rule: &str) {
    let pool = bench.home.pool();
    pool.set_property(&dataset.parse().unwrap(), "snapshots", Some(rule)).unwrap();
}

/// Makes a file in a dataset.
fn make(bench: &Bench, dataset: &str, name: &str) {
    let view = bench.home.pool().open(&dataset.parse::<Source>().unwrap()).unwrap();
    let files = marram_posix::Posix::new(view, marram_posix::PosixOptions::default()).unwrap();
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let root = Caller { uid: 0, gid: 0 };
    files.create(root, Ino::ROOT, Name::new(name.as_bytes()).unwrap(), node).unwrap();
}

fn step(bench: &Bench, now: i64) {
    bench.home.take_due_snapshots(&*bench.daemon, now);
}

/// All snapshots that users see, by age.
fn snapshots(bench: &Bench) -> Vec<String> {
    let mut reports = bench.home.pool().list().unwrap();
    reports.retain(|report| !report.source.is_own());
    reports.sort_by_key(|report| report.number);
    let names = reports.iter().map(|report| report.source.to_string());
    names.filter(|name| name.contains('@')).collect()
}

/// The name of one that was taken so many seconds after `NOW`, within that hour.
fn automatic(dataset: &str, seconds: i64) -> String {
    format!("{dataset}@auto:2126-11-24T15:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

#[test]
fn one_is_taken_when_it_is_due_and_only_where_something_has_changed() {
    let bench = scheduled("15m:8");
    let entries = || bench.home.pool().operations().unwrap().len();
    step(&bench, NOW);
    assert_eq!(snapshots(&bench), Vec::<String>::new(), "there is nothing in it");
    make(&bench, "root", "a");
    let before = entries();
    step(&bench, NOW + 2 * MINUTE);
    assert_eq!(snapshots(&bench), [automatic("root", 120)]);
    make(&bench, "root", "b");
    step(&bench, NOW + 14 * MINUTE);
    assert_eq!(snapshots(&bench).len(), 1, "not due");
    // A machine that slept.
    step(&bench, NOW + 200 * MINUTE);
    assert_eq!(snapshots(&bench)[1..], ["root@auto:2126-11-24T18:20:00Z"]);
    step(&bench, NOW + 400 * MINUTE);
    assert_eq!(snapshots(&bench).len(), 2, "nothing has changed");
    assert_eq!(entries(), before, "no user has done it");
    // One by hand has the state: there is no need of another.
    make(&bench, "root", "c");
    bench.home.pool().snapshot(&DatasetName::root(), "mine").unwrap();
    step(&bench, NOW + 600 * MINUTE);
    assert_eq!(snapshots(&bench).len(), 3);
    set(&bench, "root", "off");
    make(&bench, "root", "d");
    step(&bench, NOW + 900 * MINUTE);
    assert_eq!(snapshots(&bench).len(), 3, "and what is there stays");
}

#[test]
fn reading_and_rewriting_are_no_change() {
    let bench = scheduled("1m:8");
    make(&bench, "root", "a");
    step(&bench, NOW);
    let view = bench.home.pool().open(&"root".parse().unwrap()).unwrap();
    let files = marram_posix::Posix::new(view, Default::default()).unwrap();
    let file = files.lookup(Ino::ROOT, Name::new(b"a").unwrap()).unwrap().ino;
    let caller = Caller { uid: 0, gid: 0 };
    let time = |seconds| {
        let at = marram_vfs::Timestamp { seconds, nanoseconds: 0 };
        marram_vfs::SetAttributes {
            accessed: Some(marram_vfs::SetTime::At(at)),
            ..Default::default()
        }
    };
    // As a read does it, without a time of change.
    files.sync_all().unwrap();
    let mut out = Vec::new();
    files.read(file, 0, 10, &mut out).unwrap();
    files.sync_all().unwrap();
    step(&bench, NOW + MINUTE);
    assert_eq!(snapshots(&bench).len(), 1, "it was only read");
    files.set_attributes(caller, file, &time(7)).unwrap();
    step(&bench, NOW + 3 * MINUTE);
    assert_eq!(snapshots(&bench).len(), 2, "what a program sets has a time of change");
}

#[test]
fn what_is_too_many_goes_but_nothing_that_is_held_or_was_made_by_hand() {
    let bench = scheduled("1m:3");
    let pool = Arc::clone(bench.home.pool());
    pool.snapshot(&DatasetName::root(), "mine").unwrap();
    // One of the library, which only begins like one of the daemon.
    pool.snapshot(&DatasetName::root(), "auto:mine").unwrap();
    for minute in 0..8 {
        make(&bench, "root", &minute.to_string());
        step(&bench, NOW + minute * MINUTE);
        let name = automatic("root", minute * 60);
        match minute {
            0 => pool.hold(&name.parse().unwrap(), "audit").unwrap(),
            1 => {
                let clone = "again".parse().unwrap();
                pool.clone_snapshot(&name.parse().unwrap(), &clone).unwrap();
            }
            2 => {
                let kept = "root@kept".parse().unwrap();
                pool.rename(&name.parse().unwrap(), &kept).unwrap();
            }
            _ => {}
        }
    }
    let of_root = snapshots(&bench).into_iter().filter(|name| name.starts_with("root@"));
    assert_eq!(
        of_root.collect::<Vec<_>>(),
        [
            "root@mine".to_owned(),
            "root@auto:mine".to_owned(),
            automatic("root", 0),
            automatic("root", 60),
            "root@kept".to_owned(),
            automatic("root", 5 * 60),
            automatic("root", 6 * 60),
            automatic("root", 7 * 60),
        ]
    );
}

#[test]
fn a_clone_and_a_fork_have_the_rule_and_a_new_dataset_has_none() {
    let bench = scheduled("520w:3");
    let pool = Arc::clone(bench.home.pool());
    let names: [DatasetName; 3] =
        ["c".parse().unwrap(), "f".parse().unwrap(), "n".parse().unwrap()];
    make(&bench, "root", "a");
    step(&bench, NOW);
    pool.clone_snapshot(&automatic("root", 0).parse().unwrap(), &names[0]).unwrap();
    pool.fork(&DatasetName::root(), &names[1], marram_store::ROOT_OBJECT).unwrap();
    pool.create(&names[2], &Properties::default()).unwrap();
    for name in ["c", "f", "n"] {
        make(&bench, name, "own");
    }
    step(&bench, now_seconds());
    assert_eq!(snapshots(&bench).len(), 1, "what they began as is kept, and they are not due");
    step(&bench, NOW + MINUTE);
    let mut taken = snapshots(&bench);
    taken.sort();
    assert_eq!(taken, [automatic("c", 60), automatic("f", 60), automatic("root", 0)]);
    // The snapshot that it takes over has another name than its own.
    pool.promote(&names[0]).unwrap();
}

#[test]
fn no_automatic_snapshot_is_in_the_way_of_an_undo() {
    let bench = scheduled("1m:2");
    let pool = Arc::clone(bench.home.pool());
    let last = Operation::Undo { number: None, force: false };
    let undo = || bench.home.perform(&last, None, Some(&*bench.daemon)).unwrap();
    let name: DatasetName = "d".parse().unwrap();
    let rule = Properties([("snapshots".to_owned(), "1m:2".to_owned())].into());
    pool.create(&name, &rule).unwrap();
    make(&bench, "d", "a");
    step(&bench, NOW);
    undo();
    assert_eq!(snapshots(&bench), Vec::<String>::new(), "they go with their dataset");
    // The second undo brings the dataset back with them.
    undo();
    assert_eq!(snapshots(&bench), [automatic("d", 0)]);
    make(&bench, "root", "x");
    pool.move_to_trash(&[automatic("d", 0).parse().unwrap()]).unwrap();
    make(&bench, "d", "b");
    step(&bench, NOW + 2);
    undo();
    let of_d = snapshots(&bench).into_iter().filter(|name| name.starts_with("d@"));
    assert_eq!(of_d.collect::<Vec<_>>(), [automatic("d", 0), automatic("d", 2)]);
}

#[test]
fn a_clock_that_was_wrong_costs_no_snapshot_of_the_present() {
    let bench = scheduled("1m:3");
    for (number, now) in [NOW, NOW + MINUTE, NOW + 900_000 * MINUTE].into_iter().enumerate() {
        make(&bench, "root", &number.to_string());
        step(&bench, now);
    }
    assert_eq!(snapshots(&bench).len(), 3);
    for (number, now) in [NOW + 2 * MINUTE, NOW + 3 * MINUTE].into_iter().enumerate() {
        make(&bench, "root", &format!("later-{number}"));
        step(&bench, now);
    }
    let left = snapshots(&bench);
    assert_eq!(left[left.len() - 2..], [automatic("root", 120), automatic("root", 180)]);
    assert!(left.iter().all(|name| name.contains("2126")), "{left:?}");
}

#[test]
fn many_datasets_are_taken_by_one_commit_and_others_are_left_alone() {
    let bench = scheduled("1h:2");
    let pool = Arc::clone(bench.home.pool());
    for name in ["a", "b", "quiet"] {
        pool.create(&name.parse().unwrap(), &Default::default()).unwrap();
        make(&bench, name, "f");
    }
    make(&bench, "root", "f");
    set(&bench, "a", "1h:2");
    set(&bench, "b", "1d:2");
    pool.commit().unwrap();
    let group = pool.status().group;
    step(&bench, NOW);
    let mut taken = snapshots(&bench);
    taken.sort();
    assert_eq!(taken, [automatic("a", 0), automatic("b", 0), automatic("root", 0)]);
    assert_eq!(pool.status().group.saturating_sub(group), 1, "one commit for all");
}
