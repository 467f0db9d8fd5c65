//! The log of operations: what histories with undos leave is in order, and what is planted in the
//! log is found.

use crate::fixture::{Files, Home, Random, assert_clean, name, new_home, noise};
use crate::tamper::Image;
use marram_check::FindingKind as Kind;
use marram_device::MemoryDevice;
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::record::Limit;
use marram_format::space::{dataset_key, operation_key};
use marram_format::version::feature;
use marram_history::{MergeOptions, MergeSides};
use marram_pool::{Author, Pool, Reversal};
use marram_store::{DatasetName, Holds, Lineage, OperationLog, Source, Store};
use marram_vfs::{FileSystem, Ino};
use std::collections::BTreeSet;

fn acting(home: &Home) -> Pool {
    home.pool.acting_for(Author { user: Some(7), command: "test".to_owned() })
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn names(pool: &Pool) -> BTreeSet<String> {
    pool.list().unwrap().iter().map(|report| report.source.to_string()).collect()
}

/// Merges what has changed from one state to another into the root dataset.
fn merge(pool: &Pool, files: &Files, (base, fork): (&str, &str)) -> bool {
    let dataset = DatasetName::root();
    let (base, fork) = (source(base), source(fork));
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino(1) };
    let options = MergeOptions::default();
    marram_history::merge(&files.posix, pool, sides, &options).unwrap().applied
}

/// Takes a merge back, by merging the other way.
fn undo_merge(pool: &Pool, files: &Files, number: u64) -> bool {
    let (_, reversal) = pool.reversal(Some(number)).unwrap();
    let Reversal::Merge { base, back_to, .. } = reversal else { panic!("{reversal:?}") };
    let (base, back_to) = (base.to_string(), back_to.to_string());
    merge(&pool.taking_back(number), files, (&base, &back_to))
}

fn has(files: &Files, text: &str) -> bool {
    match files.posix.lookup(Ino(1), name(text)) {
        Ok(found) => {
            files.posix.forget(found.ino, 1);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn merges_are_taken_back_one_by_one_with_all_else_left_alone() {
    let home = new_home(64, &[]);
    let (pool, files) = (acting(&home), home.mount("root"));
    let kept = files.file(1, "kept", &noise(1, 20_000));
    for fork in ["a", "b"] {
        pool.fork(&DatasetName::root(), &fork.parse().unwrap(), 1).unwrap();
        let view = home.mount(fork);
        view.file(1, &format!("new of {fork}"), &noise(2, 20_000));
        view.commit();
    }
    home.mount("a").write(kept, 0, &noise(3, 5_000));
    home.pool.commit().unwrap();
    assert!(merge(&pool, &files, ("root@fork:a", "a")));
    let first = pool.operations().unwrap().pop().unwrap().number;
    assert!(merge(&pool, &files, ("root@fork:b", "b")));
    files.file(1, "since", b"since");
    files.commit();
    home.assert_clean();

    assert!(undo_merge(&pool, &files, first));
    files.reclaim();
    let all = ["new of a", "new of b", "since"].map(|text| has(&files, text));
    assert_eq!(all, [false, true, true]);
    let mut content = Vec::new();
    files.posix.read(Ino(kept), 0, 5_000, &mut content).unwrap();
    assert_eq!(content, noise(1, 20_000)[..5_000]);
    assert!(pool.reversal(Some(first)).is_err());
    home.assert_clean();

    let undone = pool.operations().unwrap().pop().unwrap().number;
    assert!(undo_merge(&pool, &files, undone));
    let all = ["new of a", "new of b", "since"].map(|text| has(&files, text));
    assert_eq!(all, [true, true, true]);
    home.assert_clean();

    // What was changed since is in the way of taking back what it was changed from.
    files.write(kept, 0, b"changed");
    let redone = pool.operations().unwrap().pop().unwrap().number;
    assert!(!undo_merge(&pool, &files, redone));
    assert!(has(&files, "new of a"));
    home.pool.commit().unwrap();
    home.assert_clean();
}

/// One random operation; whether it was done.
fn step(pool: &Pool, random: &mut Random, number: u64) -> bool {
    let all: Vec<Source> = pool.list().unwrap().into_iter().map(|report| report.source).collect();
    let one = &all[usize::try_from(random.below(all.len() as u64)).unwrap()];
    let fresh = |prefix: &str| format!("{prefix}{number}");
    let live = Source::live(one.dataset.clone());
    let done = match random.below(9) {
        0 => pool.snapshot(&one.dataset, &fresh("s")),
        1 => pool.clone_snapshot(one, &fresh("c").parse().unwrap()),
        2 => pool.fork(&one.dataset, &fresh("f").parse().unwrap(), 1),
        3 => pool.rollback(one, &fresh("k")),
        4 => pool.promote(&one.dataset),
        5 => pool.hold(one, "tag").and_then(|()| pool.release(one, "tag")),
        6 => match &one.snapshot {
            Some(_) => pool.rename(one, &source(&format!("{}@{}", one.dataset, fresh("r")))),
            None => pool.rename(&live, &source(&fresh("d"))),
        },
        7 => pool.move_to_trash(std::slice::from_ref(one)).map(|_| ()),
        _ => pool.destroy(one, false).map(|_| ()),
    };
    done.is_ok()
}

#[test]
fn random_histories_with_undos_stay_in_order() {
    let mut undone = 0;
    for seed in 0..6 {
        let home = new_home(64, &[]);
        let (pool, mut random) = (acting(&home), Random::new(seed));
        home.mount("root").file(1, "file", &noise(seed, 30_000));
        home.pool.commit().unwrap();
        for number in 0..60 {
            if random.below(3) == 0 {
                home.mount("root").file(1, &format!("{number}"), &noise(number, 9_000));
            }
            let before = names(&pool);
            let last = pool.operations().unwrap().last().map_or(0, |entry| entry.number);
            if !step(&pool, &mut random, number) {
                continue;
            }
            let entry = pool.operations().unwrap().pop().unwrap();
            if entry.number == last + 1 && entry.obstacle.is_none() && random.below(2) == 0 {
                pool.undo(entry.number).unwrap();
                let left: BTreeSet<String> = names(&pool).difference(&before).cloned().collect();
                let is_kept = |name: &String| name.contains("before-undo") || name.contains("@k");
                let is_base = |name: &String| name.contains("@fork:");
                assert!(left.iter().all(|name| is_kept(name) || is_base(name)), "{left:?}");
                assert!(before.is_subset(&names(&pool)), "{entry:?}");
                undone += 1;
            }
            if number % 10 == 0 {
                while pool.reclaim_step().unwrap() {}
                assert_clean(&MemoryDevice::from_bytes(home.bytes()));
            }
        }
        home.pool.commit().unwrap();
        home.assert_clean();
    }
    assert!(undone > 50, "{undone} operations were taken back");
}

/// A pool with three entries: the first keeps the dataset `d`.
fn image() -> Image {
    let home = new_home(32, &[]);
    let pool = acting(&home);
    home.mount("root").file(1, "file", b"content");
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    pool.clone_snapshot(&source("root@s"), &"c".parse().unwrap()).unwrap();
    pool.move_to_trash(&[source("c")]).unwrap();
    home.assert_clean();
    Image::new(home.bytes())
}

#[track_caller]
fn expect(edit: impl FnOnce(&mut OperationRecord)) {
    let mut image = image();
    image.edit_pool(|items, _| {
        let mut entry = OperationRecord::decode(&items[&operation_key(3)].0).unwrap();
        edit(&mut entry);
        items.insert(operation_key(3), (entry.encode(), None));
    });
    image.assert_found(&[Kind::OperationLog]);
}

#[test]
fn entries_that_do_not_agree_with_what_is_kept() {
    image().assert_found(&[]);
    expect(|entry| entry.kept_until_seconds = 0);
    expect(|entry| entry.undoes = 3);
    expect(|entry| entry.group.0 += 1000);
    let mut image = image();
    image.edit_pool(|items, _| drop(items.remove(&operation_key(2))));
    image.assert_found(&[Kind::OperationLog]);
    let mut image = self::image();
    let mut hidden = image.record("undo:3");
    hidden.name = "seen".to_owned();
    image.edit_pool(|items, _| {
        items.insert(dataset_key(hidden.id), (hidden.encode(), None));
    });
    image.assert_found(&[Kind::OperationLog]);
}

#[test]
fn former_bases_that_no_merge_keeps() {
    for number in [3, 9] {
        let mut image = image();
        let mut former = image.record("root@s");
        former.name = format!("root@former:{number}:base:5:6");
        image.edit_pool(|items, _| {
            items.insert(dataset_key(former.id), (former.encode(), None));
        });
        image.assert_found(&[Kind::OperationLog]);
    }
}

/// A pool with two entries of version 1.6: a label and a limit.
fn image_with_a_limit() -> Image {
    let home = new_home(32, &[]);
    let pool = acting(&home);
    home.mount("root").file(1, "file", b"content");
    pool.set_label("labelled").unwrap();
    let limit = Limit { bytes: 7, ..Limit::NONE }.encode();
    let limit = Some(bytes::Bytes::copy_from_slice(&limit));
    pool.set_owner_limit(&DatasetName::root(), 1000, limit).unwrap();
    home.assert_clean();
    Image::new(home.bytes())
}

#[test]
fn limits_that_no_undo_can_make_sense_of() {
    image_with_a_limit().assert_found(&[]);
    let expect = |edit: &dyn Fn(&mut OperationRecord)| {
        let mut image = image_with_a_limit();
        image.edit_pool(|items, _| {
            let mut entry = OperationRecord::decode(&items[&operation_key(2)].0).unwrap();
            assert_eq!(entry.texts, ["root", "none none", "7 none"]);
            edit(&mut entry);
            items.insert(operation_key(2), (entry.encode(), None));
        });
        image.assert_found(&[Kind::OperationLog]);
    };
    expect(&|entry| entry.detail = 3 << 32);
    expect(&|entry| entry.texts[1] = "much".to_owned());
    expect(&|entry| entry.texts.truncate(2));
}

#[test]
fn kinds_that_the_superblock_does_not_tell_of() {
    let mut image = image_with_a_limit();
    image.superblock.features_read_compatible &= !feature::OPERATION_KINDS;
    image.write_superblock();
    let found = image.check();
    let detail = "the superblock does not tell of operation-kinds";
    assert!(found.iter().any(|finding| finding.detail.contains(detail)), "{found:?}");
}

#[test]
fn entries_that_can_be_no_entries() {
    let mut image = image();
    image.edit_pool(|items, _| {
        let entry = items[&operation_key(3)].clone();
        assert_eq!(OperationRecord::decode(&entry.0).unwrap().kind, OperationKind::Destroy);
        items.insert(operation_key(0), entry);
    });
    let found = image.check();
    assert!(found.iter().any(|finding| finding.kind == Kind::ItemMisplaced), "{found:?}");
    let mut image = self::image();
    image.edit_pool(|items, _| {
        items.get_mut(&operation_key(1)).unwrap().0 = bytes::Bytes::from_static(b"nonsense");
    });
    let found = image.check();
    assert!(found.iter().any(|finding| finding.kind == Kind::ItemMalformed), "{found:?}");
}
