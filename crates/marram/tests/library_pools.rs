//! Transactions of programs over two pools.

use crate::workbench::{Workbench, outcome};
use crate::{USER, mounted, nothing_is_left, open, player};
use marram_client::{Error, Transaction, retry_several};
use rustix::fs::{OFlags, renameat};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// The directory in the other pool in which a part is played.
const OTHER_PLACE: &str = "MARRAM_TEST_OTHER_PLACE";

/// A second pool, on `other`; both have a file `next`.
pub(crate) fn second_pool(bench: &Workbench) -> [PathBuf; 2] {
    bench.run("create other.pool --size 64M").good();
    bench.make_folder("other");
    bench.run("mount other.pool other").good();
    let places = ["mnt/src", "other"].map(|name| bench.path(name));
    places.iter().for_each(|place| fs::write(place.join("next"), "next\n").unwrap());
    places
}

#[test]
fn one_is_over_two_pools() {
    let Some((bench, _turn)) = mounted() else { return };
    let places = second_pool(&bench);
    let seen = |name: &str| places.each_ref().map(|it| fs::read_to_string(it.join(name)).ok());
    let rename_in_both = |tx: &Transaction| {
        for directory in tx.directories() {
            renameat(directory, "next", directory, "current").unwrap();
        }
    };
    for order in [[0, 1], [1, 0]] {
        let named = order.map(|at| places[at].clone());
        let tx = Transaction::begin_several(&named).unwrap();
        rename_in_both(&tx);
        let inside = tx.begin_inside().unwrap_err();
        assert!(inside.to_string().contains("two pools"), "{inside}");
        drop(tx);
        assert_eq!(seen("current"), [None, None]);
        // What was read in one alone refuses what was changed in the other.
        let tx = Transaction::begin_several(&named).unwrap();
        open(tx.directory(), "next", OFlags::RDONLY).unwrap();
        let second = tx.directories().nth(1).unwrap();
        open(second, "lost", OFlags::WRONLY | OFlags::CREATE).unwrap();
        fs::write(named[0].join("next"), "next\n").unwrap();
        match tx.commit() {
            Err(Error::Refused(conflicts)) => {
                let path = named[0].canonicalize().unwrap().join("next");
                assert!(conflicts.iter().any(|it| it.path == path), "{conflicts:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(seen("lost"), [None, None]);
        let id = Transaction::begin_several(&named).and_then(|tx| {
            rename_in_both(&tx);
            tx.commit()
        });
        let id = id.unwrap().id;
        assert_eq!(seen("current"), ["next\n", "next\n"].map(|it| Some(it.to_owned())));
        for target in ["mnt", "other"] {
            assert_eq!(
                bench.run(&format!("tx list {target} --json")).result()[0]["id"],
                Value::Null
            );
            let shown = bench.run(&format!("tx show {target} {id} --json")).result();
            assert_eq!(shown["state"], "committed", "{target}");
        }
        for place in &places {
            fs::rename(place.join("current"), place.join("next")).unwrap();
        }
    }
    retry_several(&places, 3, |tx| {
        rename_in_both(tx);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(seen("next"), [None, None]);
    bench.run("unmount other").good();
    nothing_is_left(&bench);
}

/// What a user does in directories of its own in two pools of root.
pub(crate) fn work_as_a_user(place: &Path) {
    let places = [place.to_owned(), std::env::var_os(OTHER_PLACE).unwrap().into()];
    let tx = Transaction::begin_several(&places).unwrap();
    for directory in tx.directories() {
        open(directory, "mine", OFlags::WRONLY | OFlags::CREATE).unwrap();
    }
    tx.commit().unwrap();
    assert!(places.iter().all(|place| place.join("mine").exists()));
}

#[test]
fn a_user_has_one_over_two_pools_of_root() {
    let Some((bench, _turn)) = mounted() else { return };
    second_pool(&bench);
    let places = ["mnt/user", "other/user"].map(|name| bench.make_folder(name));
    places.iter().for_each(|place| chown(place, Some(USER), Some(USER)).unwrap());
    let mut command = player(&bench, "two pools", &places[0]);
    outcome(command.env(OTHER_PLACE, &places[1]).uid(USER).gid(USER)).good();
    bench.run("unmount other").good();
    bench.run("check other.pool --data").good();
    nothing_is_left(&bench);
}
