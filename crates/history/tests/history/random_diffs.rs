//! Random changes, and what a diff reports of them: exactly what the model reports, which looks at
//! every name and every byte of both trees.

use super::family::{Family, Tree, open, source};
use super::random::{Both, Random, Step, apply};
use marram_history::{AttributeChange, What};
use marram_model::{Change, Difference, Model};
use marram_store::{DatasetName, Store};
use marram_vfs::{Ino, SteppedClock, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Histories, each of which is compared at several places.
const RUNS: u64 = 150;
/// States of a history.
const STATES: usize = 4;
/// The clocks of both go at their own speed.
const SOME_TIME: Timestamp = Timestamp { seconds: 0, nanoseconds: 0 };

/// What the model reports.
fn wanted(before: &Model, after: &Model) -> BTreeSet<Difference> {
    let timeless = |difference: Difference| match difference.what {
        Change::Modified(..) => {
            Difference { what: Change::Modified(SOME_TIME, SOME_TIME), ..difference }
        }
        _ => difference,
    };
    before.diff(after).into_iter().map(timeless).collect()
}

/// What the diff reports, in the same words. Which of several names a file is named by is of no
/// meaning where no name has changed.
fn told(family: &Family, before: &str, after: &str, model: &Model) -> BTreeSet<Difference> {
    let mut all = BTreeSet::new();
    for told in family.diff_below(before, after, Ino::ROOT) {
        let (name, first) = (told.path.clone(), model.first_name(&told.path));
        let mut tell = |path: &Vec<u8>, what| all.insert(Difference { path: path.clone(), what });
        match told.what {
            What::Created => _ = tell(&name, Change::Created),
            What::Removed => _ = tell(&name, Change::Removed),
            What::Renamed => _ = tell(&name, Change::Renamed(told.old_path.expect("it has one"))),
            What::Linked => _ = tell(&name, Change::Linked),
            What::Unlinked => _ = tell(&name, Change::Unlinked),
            What::Content { ranges, old_size, new_size } => {
                let ranges = ranges.iter().map(|range| (range.start, range.end)).collect();
                tell(&first, Change::Content { ranges, sizes: (old_size, new_size) });
            }
            What::Attributes(changes) => {
                changes.into_iter().for_each(|change| _ = tell(&first, attribute(change)));
            }
            What::Xattrs(changes) => {
                let xattr =
                    |it: marram_history::XattrChange| Change::Xattr(it.name, it.old, it.new);
                changes.into_iter().for_each(|change| _ = tell(&first, xattr(change)));
            }
        }
    }
    all
}

fn attribute(change: AttributeChange) -> Change {
    match change {
        AttributeChange::Permissions(old, new) => Change::Permissions(old, new),
        AttributeChange::User(old, new) => Change::User(old, new),
        AttributeChange::Group(old, new) => Change::Group(old, new),
        AttributeChange::Modified(..) => Change::Modified(SOME_TIME, SOME_TIME),
        AttributeChange::Flags(..) | AttributeChange::Project(..) => {
            panic!("{change:?}, which no step changes")
        }
    }
}

/// A second fork of what there is.
fn second(family: &Family) -> Tree {
    family.store.fork(&DatasetName::root(), &source("second").dataset, Ino::ROOT.0).unwrap();
    open(&family.store, "second", Ino::ROOT, &family.clock)
}

/// Compares each state with each other one, forwards and backwards. Returns how many differences
/// there were.
fn run(seed: u64) -> usize {
    let mut random = Random(seed);
    let model = Model::new(Arc::new(SteppedClock::default()));
    let family = Family::new(|tree| {
        for path in ["/d", "/e", "/d/f"] {
            apply(&*tree.0, &Step::Directory(path.to_owned())).unwrap();
            apply(&model, &Step::Directory(path.to_owned())).unwrap();
        }
        Both(&*tree.0, &model).change(&mut random, 30);
    });
    let other = second(&family);
    let forks = [("fork", &family.fork, model.fork()), ("second", &other, model.fork())];
    let (mut models, mut steps) = (BTreeMap::new(), Vec::new());
    for number in 0..STATES {
        family.store.snapshot(&DatasetName::root(), &format!("s{number}")).unwrap();
        models.insert(format!("root@s{number}"), model.snapshot());
        let count = random.below(15);
        steps.push(Both(&*family.parent.0, &model).change(&mut random, count));
        family.store.commit_some(seed % 4);
    }
    let mut names: Vec<String> = models.keys().cloned().collect();
    for (name, tree, model) in forks {
        let count = 1 + random.below(15);
        steps.push(Both(&*tree.0, &model).change(&mut random, count));
        family.store.snapshot(&source(name).dataset, "own").unwrap();
        models.insert(format!("{name}@own"), model);
    }
    let pairs = |names: &[String]| -> Vec<(String, String)> {
        let each = |a: &String| names.iter().map(|b| (a.clone(), b.clone())).collect::<Vec<_>>();
        names.iter().flat_map(each).collect()
    };
    let mut compared = pairs(&names);
    // Two forks, what they began as, and what that has become: both forks have given the same
    // numbers to different inodes.
    names = ["root@s0", "fork@own", "second@own", "root@s3"].map(str::to_owned).into();
    compared.extend(pairs(&names));
    let mut count = 0;
    for (before, after) in compared {
        let wanted = wanted(&models[&before], &models[&after]);
        let told = told(&family, &before, &after, &models[&after]);
        assert_eq!(told, wanted, "seed {seed}, {before} to {after}\n{steps:#?}");
        count += wanted.len();
    }
    count
}

#[test]
fn a_diff_tells_what_somebody_finds_who_looks_at_everything() {
    let count: usize = (0..RUNS).map(run).sum();
    assert!(count > 30 * RUNS as usize, "{count} differences");
}

/// Two forks of one state give the same numbers to what each of them makes.
#[test]
fn what_two_forks_made_under_one_name_differs() {
    let family = Family::new(|tree| {
        tree.file("/a", b"a");
    });
    let other = second(&family);
    for (tree, content) in [(&family.fork, "of the fork"), (&other, "of the second")] {
        tree.file("/out", content.as_bytes());
        tree.directory("/made");
        tree.file("/made/in", content.as_bytes());
    }
    assert_eq!(family.fork.find("/out").unwrap().ino, other.find("/out").unwrap().ino);
    family.store.snapshot(&source("fork").dataset, "x").unwrap();
    family.store.snapshot(&source("second").dataset, "y").unwrap();
    let mut told = family.diff("fork@x", "second@y");
    told.sort();
    let made = ["created", "removed"];
    let made = made.map(|what| ["/made", "/made/in"].map(|path| format!("{what} {path}")));
    // Of files the content differs, as of one that was saved by a new one.
    let out = "content /out [7..13] 11 13".to_owned();
    assert_eq!(told, [vec![out], made.concat()].concat());
}
