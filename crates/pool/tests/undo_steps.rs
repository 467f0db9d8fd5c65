//! What one command did to many in one commit is taken back together, in one commit; two commands
//! are never taken for one.

use crate::support::{
    acting, content, name, names, new_pool, noise, open, put, root, section, source, trash_names,
    view,
};
use marram_device::{Device, MemoryDevice};
use marram_format::operation::{OperationKind as Kind, trash_entry};
use marram_pool::{Operation, Pool};
use marram_store::{DatasetName, Holds, Properties, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number, kind, and what it took back, of each entry from `first` on.
fn entries(pool: &Pool, first: u64) -> Vec<(u64, Kind, u64)> {
    let all = pool.operations().unwrap().into_iter().filter(|entry| entry.number >= first);
    all.map(|entry| (entry.number, entry.record.kind, entry.record.undoes)).collect()
}

/// Takes something back, which is one commit.
fn undo(pool: &Pool, number: u64) {
    let group = pool.status().group;
    pool.undo(number).unwrap();
    assert_eq!(pool.status().group, group + 1, "one commit");
}

fn undo_last(pool: &Pool) {
    undo(pool, pool.reversal(None).unwrap().0);
}

fn refused(pool: &Pool, number: u64, words: &str) {
    let (group, before) = (pool.status().group, names(pool));
    let reason = pool.undo(number).unwrap_err().to_string();
    assert!(reason.contains(words), "{reason:?} does not say {words:?}");
    let told = pool.operations().unwrap().into_iter().find(|entry| entry.number == number);
    assert!(told.unwrap().obstacle.is_some());
    assert_eq!((pool.status().group, names(pool)), (group, before), "a refusal changes nothing");
}

/// A crash leaves what there is, and what is kept is kept by its entry.
fn checked(pool: &Pool, memory: &MemoryDevice) {
    let again: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let again = open(&again);
    assert_eq!((names(&again), trash_names(&again)), (names(pool), trash_names(pool)));
    assert_eq!(entries(&again, 0), entries(pool, 0));
    let log = pool.operations().unwrap();
    for kept in trash_names(pool) {
        let keeps = |number| log.iter().any(|entry| entry.number == number && keeps(entry));
        // The snapshots of a dataset that is kept are kept with it.
        assert!(trash_entry(&kept).is_none_or(keeps), "{kept} is kept by no entry");
    }
}

fn keeps(entry: &Operation) -> bool {
    entry.record.kept_until_seconds != 0
}

/// A pool with the datasets `a` and `b`, each with a file: operations 1 and 2.
fn three() -> (Arc<MemoryDevice>, Pool) {
    let (memory, pool) = new_pool(64, &[]);
    let pool = acting(&pool);
    put(&*root(&pool), section(1, 0), noise(1, 5_000)).unwrap();
    for dataset in ["a", "b"] {
        pool.create(&name(dataset), &Properties::default()).unwrap();
        put(&*view(&pool, dataset), section(1, 0), noise(2, 5_000)).unwrap();
    }
    (memory, pool)
}

fn all() -> [DatasetName; 3] {
    [DatasetName::root(), name("a"), name("b")]
}

const WITHOUT: [&str; 3] = ["a", "b", "root"];
const WITH: [&str; 6] = ["a", "a@all", "b", "b@all", "root", "root@all"];

#[test]
fn snapshots_of_one_command_go_and_come_together() {
    let (memory, pool) = three();
    pool.snapshot_together(&all(), "all").unwrap();
    assert_eq!(names(&pool), WITH);
    let steps: Vec<_> = pool.operations().unwrap().into_iter().map(|entry| entry.step).collect();
    assert_eq!(steps, [1..=1, 2..=2, 3..=5, 3..=5, 3..=5]);

    undo_last(&pool);
    assert_eq!(names(&pool), WITHOUT);
    let gone = [(6, Kind::Destroy, 3), (7, Kind::Destroy, 4), (8, Kind::Destroy, 5)];
    assert_eq!(entries(&pool, 6), gone);
    checked(&pool, &memory);
    undo_last(&pool);
    assert_eq!(names(&pool), WITH);
    assert!(trash_names(&pool).is_empty());
    let back = [(9, Kind::Restore, 6), (10, Kind::Restore, 7), (11, Kind::Restore, 8)];
    assert_eq!(entries(&pool, 9), back);
    assert_eq!(content(&*view(&pool, "b@all"), section(1, 0)), Some(noise(2, 5_000)));
    checked(&pool, &memory);
    undo_last(&pool);
    assert_eq!(names(&pool), WITHOUT);
    checked(&pool, &memory);
}

#[test]
fn any_number_of_a_step_stands_for_all_of_it_and_two_commands_alike_are_two_steps() {
    let (_memory, pool) = three();
    pool.snapshot_together(&all(), "all").unwrap(); // 3 to 5
    pool.snapshot_together(&all(), "more").unwrap(); // 6 to 8
    let steps: Vec<_> = pool.operations().unwrap().into_iter().map(|entry| entry.step).collect();
    assert_eq!(steps[2..], [3..=5, 3..=5, 3..=5, 6..=8, 6..=8, 6..=8]);
    undo(&pool, 4); // 9 to 11
    let left = ["a", "a@more", "b", "b@more", "root", "root@more"];
    assert_eq!(names(&pool), left);
    for number in 3..=5 {
        refused(&pool, number, &format!("it was taken back by operation {}", number + 6));
    }
    undo(&pool, 6);
    assert_eq!(names(&pool), WITHOUT);
    undo(&pool, 10);
    assert_eq!(names(&pool), WITH);
}

#[test]
fn what_is_in_the_way_of_one_is_in_the_way_of_all_but_for_what_is_gone() {
    let (memory, pool) = three();
    pool.snapshot_together(&all(), "all").unwrap(); // 3 to 5
    pool.hold(&source("a@all"), "mine").unwrap(); // 6
    refused(&pool, 5, "a@all is held (mine)");
    pool.release(&source("a@all"), "mine").unwrap(); // 7
    pool.clone_snapshot(&source("b@all"), &name("c")).unwrap(); // 8
    refused(&pool, 3, "began as it");
    undo_last(&pool); // 9
    let open = pool.open(&source("root@all")).unwrap();
    assert!(pool.undo(4).unwrap_err().to_string().contains("it is mounted"));
    drop(open);
    assert_eq!(names(&pool), WITH);

    // What was destroyed meanwhile is not there to be taken back, and does not come back either.
    pool.move_to_trash(&[source("b@all")]).unwrap(); // 10
    let told = pool.operations().unwrap();
    let obstacles: Vec<_> = told[2..5].iter().map(|entry| entry.obstacle.clone()).collect();
    assert!(obstacles[0].is_none() && obstacles[1].is_none(), "{obstacles:?}");
    assert!(obstacles[2].as_ref().unwrap().contains("destroyed by operation 10"), "{obstacles:?}");
    undo(&pool, 5); // 11 and 12
    assert_eq!(names(&pool), WITHOUT);
    assert_eq!(entries(&pool, 11), [(11, Kind::Destroy, 3), (12, Kind::Destroy, 4)]);
    refused(&pool, 5, "destroyed by operation 10");
    checked(&pool, &memory);
    undo_last(&pool);
    assert_eq!(names(&pool), ["a", "a@all", "b", "root", "root@all"]);
    undo(&pool, 10);
    assert_eq!(names(&pool), WITH);
    // All of it is gone for good.
    let sources = ["a@all", "b@all", "root@all"].map(source);
    pool.destroy_together(&sources, false).unwrap();
    refused(&pool, 4, "gone for good");
    checked(&pool, &memory);
}

#[test]
fn datasets_and_their_snapshots_that_went_together_come_back_in_any_order() {
    for turned in [false, true] {
        let (memory, pool) = three();
        pool.snapshot(&name("a"), "s").unwrap();
        pool.snapshot(&name("a"), "t").unwrap();
        pool.clone_snapshot(&source("a@s"), &name("c")).unwrap();
        let before = names(&pool);
        let mut goes = ["a", "a@s", "c", "b"].map(source);
        if turned {
            goes.reverse();
        }
        pool.move_to_trash(&goes).unwrap();
        assert_eq!(names(&pool), ["root"]);
        checked(&pool, &memory);
        undo_last(&pool);
        assert_eq!(names(&pool), before, "turned: {turned}");
        assert_eq!(content(&*view(&pool, "a@t"), section(1, 0)), Some(noise(2, 5_000)));
        checked(&pool, &memory);
        // A name that is taken is in the way of all of them.
        undo_last(&pool);
        pool.create(&name("c"), &Properties::default()).unwrap();
        let last = pool.operations().unwrap().pop().unwrap().number;
        refused(&pool, last - 1, "there is another c now");
        checked(&pool, &memory);
    }
}

#[test]
fn properties_that_were_set_together_go_back_together() {
    let (memory, pool) = three();
    let set = |values: &[(&str, Option<&str>)]| {
        let owned = values.iter().map(|(name, value)| ((*name).into(), value.map(Into::into)));
        pool.set_properties(&name("a"), &owned.collect::<BTreeMap<String, Option<String>>>())
    };
    let now = |property: &str| pool.properties(&name("a")).unwrap()[property].0.clone();
    let group = pool.status().group;
    set(&[("compression", Some("off")), ("atime", Some("off")), ("undo", Some("2h"))]).unwrap();
    assert_eq!(pool.status().group, group + 1, "one commit");
    assert_eq!([now("compression"), now("atime"), now("undo")], ["off", "off", "2h"]);
    undo(&pool, 4);
    assert_eq!([now("compression"), now("atime"), now("undo")], ["lz4", "relative", "1h"]);
    undo_last(&pool);
    assert_eq!([now("compression"), now("atime"), now("undo")], ["off", "off", "2h"]);
    pool.set_property(&name("a"), "atime", Some("strict")).unwrap();
    refused(&pool, 9, "atime of a was set to strict since");
    assert_eq!([now("compression"), now("undo")], ["off", "2h"]);
    // One that is wrong leaves the others as they are.
    set(&[("compression", Some("lz4")), ("recordsize", Some("3"))]).unwrap_err();
    set(&[("compression", None), ("reservation", Some("1T"))]).unwrap_err();
    assert_eq!(now("compression"), "off");
    checked(&pool, &memory);
}

#[test]
fn a_step_that_fills_most_of_the_log_is_taken_back_and_nothing_of_it_is_let_go() {
    let (memory, pool) = new_pool(64, &[]);
    let pool = acting(&pool);
    pool.create(&name("kept"), &Properties::default()).unwrap();
    pool.move_to_trash(&[source("kept")]).unwrap();
    let datasets: Vec<DatasetName> = (0..600).map(|number| name(&format!("d{number}"))).collect();
    for dataset in &datasets {
        pool.create(dataset, &Properties::default()).unwrap();
    }
    pool.snapshot_together(&datasets, "all").unwrap();
    // What the oldest entries kept was let go of before these took their place.
    assert!(trash_names(&pool).is_empty());
    undo_last(&pool);
    assert_eq!((names(&pool).len(), trash_names(&pool).len()), (601, 600));
    checked(&pool, &memory);
    undo_last(&pool);
    assert_eq!((names(&pool).len(), trash_names(&pool).len()), (1201, 0));
    checked(&pool, &memory);
}
