//! Random changes, then one directory goes back: below it there is what the snapshot has, and
//! outside what there was. The same where it becomes what it is in a fork that went its own way.

use super::directories::kept;
use super::family::{Family, Tree, open, source};
use super::random::{Random, Step, apply, find};
use marram_history::{ChangeSet, DirectoryRollback};
use marram_store::{DatasetName, Store};
use marram_vfs::{Ino, Kind, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Histories with a rollback at their end.
const RUNS: u64 = 300;

/// Every path with what is there; how many names a file has is checked by [`same_files`].
fn content(tree: &Tree) -> BTreeMap<String, String> {
    let without_links = |(path, text): (String, String)| {
        let words = text.split(' ').collect::<Vec<_>>();
        let at = words.iter().position(|word| *word == "links").expect("it has links");
        let mut words = words;
        let is_directory = words[0] == "Directory";
        if !is_directory {
            words.drain(at..at + 2);
        }
        (path, words.join(" "))
    };
    tree.content().into_iter().map(without_links).collect()
}

pub(super) fn is_below(path: &str, directory: &str) -> bool {
    path == directory || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn part(
    content: &BTreeMap<String, String>,
    directory: &str,
    below: bool,
) -> BTreeMap<String, String> {
    let cut = |path: &String| match below {
        true => path[directory.len()..].to_owned(),
        false => path.clone(),
    };
    let wanted = content.iter().filter(|(path, _)| is_below(path, directory) == below);
    wanted.map(|(path, text)| (cut(path), text.clone())).collect()
}

/// The paths below a directory that are names of one file, and when their content was changed.
fn same_files(tree: &Tree, directory: &str) -> BTreeSet<(Vec<String>, String)> {
    let mut by_number: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
    for path in tree.content().into_keys().filter(|path| is_below(path, directory)) {
        let found = find(&*tree.0, &path).expect("it is there");
        by_number.entry(found).or_default().push(path[directory.len()..].to_owned());
    }
    let time = |ino: Ino| {
        let found = marram_vfs::FileSystem::attributes(&*tree.0, ino).expect("it is there");
        format!("{:?} {:?}", found.modified, found.created)
    };
    by_number.into_iter().map(|(ino, paths)| (paths, time(ino))).collect()
}

fn numbers_outside(tree: &Tree, directory: &str) -> Vec<(String, Ino)> {
    let paths = tree.content().into_keys().filter(|path| !is_below(path, directory));
    paths.map(|path| (path.clone(), find(&*tree.0, &path).expect("it is there"))).collect()
}

fn change(random: &mut Random, count: u64, tree: &Tree) -> Vec<Step> {
    let steps: Vec<Step> = (0..count)
        .map(|_| random.step(&*tree.0))
        .filter(|step| apply(&*tree.0, step).is_ok())
        .collect();
    steps
}

/// A directory of now that the past has too, and its path in both.
fn pick(random: &mut Random, now: &Tree, past: &Tree) -> Option<(Ino, String, String)> {
    // A fork and its parent may have made two of one number.
    let directories = |tree: &Tree| -> BTreeMap<(Ino, Timestamp), String> {
        let all =
            tree.content().into_keys().filter_map(|path| tree.find(&path).ok().zip(Some(path)));
        let directories = all.filter(|(found, _)| found.kind == Kind::Directory);
        directories.map(|(found, path)| ((found.ino, found.created), path)).collect()
    };
    let past = directories(past);
    let both = directories(now).into_iter();
    let both: Vec<_> =
        both.filter_map(|(which, path)| Some((which.0, path, past.get(&which)?.clone()))).collect();
    (!both.is_empty()).then(|| random.pick(&both))
}

fn prepared(random: &mut Random) -> Family {
    kept(|tree| {
        for path in ["/d", "/e", "/d/f"] {
            apply(&*tree.0, &Step::Directory(path.to_owned())).expect("it is made");
        }
        change(random, 40, tree);
    })
}

fn roll_back(family: &Family, to: &str, directory: Ino) -> Option<ChangeSet> {
    let (dataset, to) = (DatasetName::root(), source(to));
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
    marram_history::roll_back_directory(&*family.parent.0, &family.store, rollback)
        .expect("it goes back")
}

/// A family in which a fork has gone its own way, of which there is a snapshot `fork@t`; and what
/// was done on both sides.
fn apart(random: &mut Random, seed: u64) -> (Family, Vec<Step>) {
    let mut family = prepared(random);
    // Once it has been opened anew, the parent gives out the same numbers as the fork does.
    family.parent = open(&family.store, "root", Ino::ROOT, &family.clock);
    let count = 1 + random.below(25);
    let mut steps = change(random, count, &family.fork);
    family.store.snapshot(&source("fork").dataset, "t").expect("a snapshot");
    let count = random.below(25);
    steps.extend(change(random, count, &family.parent));
    family.store.commit_some(seed % 4);
    (family, steps)
}

/// Whether something changed.
fn run(seed: u64, to_fork: bool) -> bool {
    let mut random = Random(seed);
    let (family, steps, to) = if to_fork {
        let (family, steps) = apart(&mut random, seed);
        (family, steps, "fork@t")
    } else {
        let family = prepared(&mut random);
        let count = 1 + random.below(25);
        let steps = change(&mut random, count, &family.parent);
        family.store.commit_some(seed % 4);
        (family, steps, "root@s")
    };
    let now = &family.parent;
    let past = open(&family.store, to, Ino::ROOT, &family.clock);
    let Some((ino, directory, was)) = pick(&mut random, now, &past) else { return false };
    let (before, wanted) = (content(now), content(&past));
    let numbers = numbers_outside(now, &directory);
    let change_set = roll_back(&family, to, ino);
    let told = format!("seed {seed}: {directory} to {was}\n{steps:#?}");
    let after = content(now);
    assert_eq!(part(&after, &directory, true), part(&wanted, &was, true), "below, {told}");
    let outside = |content: &BTreeMap<String, String>| part(content, &directory, false);
    assert_eq!(outside(&after), outside(&before), "outside, {told}");
    assert_eq!(same_files(now, &directory), same_files(&past, &was), "links, {told}");
    assert_eq!(numbers_outside(now, &directory), numbers, "numbers, {told}");
    family.check_usage();
    roll_back(&family, to, ino);
    assert_eq!(content(now), after, "once more, {told}");
    change_set.is_some()
}

#[test]
fn a_directory_of_a_random_history_goes_back() {
    let changed = (0..RUNS).filter(|seed| run(*seed, false)).count() as u64;
    assert!(changed > RUNS / 2, "{changed} of {RUNS} changed something");
}

#[test]
fn a_directory_becomes_what_it_is_in_a_fork() {
    let changed = (0..RUNS).filter(|seed| run(*seed, true)).count() as u64;
    assert!(changed > RUNS / 2, "{changed} of {RUNS} changed something");
}

#[test]
fn all_of_a_dataset_becomes_what_its_fork_is() {
    for seed in 0..RUNS {
        let (family, steps) = apart(&mut Random(seed), seed);
        let before = family.parent.content();
        family.store.snapshot(&DatasetName::root(), "before").expect("a snapshot");
        roll_back(&family, "fork@t", Ino::ROOT);
        let past = open(&family.store, "fork@t", Ino::ROOT, &family.clock);
        assert_eq!(family.parent.content(), past.content(), "seed {seed}\n{steps:#?}");
        family.check_usage();
        roll_back(&family, "root@before", Ino::ROOT);
        assert_eq!(family.parent.content(), before, "seed {seed}, the way back\n{steps:#?}");
        family.check_usage();
    }
}

/// Both give their first number to what they make: here one of each kind under one name.
#[test]
fn what_has_the_number_of_another_kind_makes_way() {
    for (in_fork, in_parent) in
        [("file", "directory"), ("directory", "file"), ("directory", "directory")]
    {
        let mut family = prepared(&mut Random(1));
        family.parent = open(&family.store, "root", Ino::ROOT, &family.clock);
        for (tree, kind) in [(&family.fork, in_fork), (&family.parent, in_parent)] {
            for place in ["/new", "/d/new"] {
                let _number = match kind {
                    "file" => tree.file(place, kind.as_bytes()),
                    _ => tree.directory(place),
                };
            }
            if kind == "directory" {
                tree.file("/new/in", kind.as_bytes());
                tree.directory("/d/new/below");
            }
        }
        let number = |tree: &Tree| tree.find("/new").expect("it is there").ino;
        assert_eq!(number(&family.fork), number(&family.parent));
        family.store.snapshot(&source("fork").dataset, "t").expect("a snapshot");
        let wanted = family.fork.content();
        roll_back(&family, "fork@t", Ino::ROOT);
        assert_eq!(family.parent.content(), wanted, "{in_fork} in the place of a {in_parent}");
        family.check_usage();
    }
}
