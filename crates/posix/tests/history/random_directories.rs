//! Random changes, then one directory goes back: below it there is what the snapshot has, and
//! outside what there was.

use super::directories::{kept, roll_back};
use super::family::{Family, Tree, open};
use super::random::{Random, Step, apply, find};
use marram_vfs::{Ino, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Histories with a rollback at their end.
const RUNS: u64 = 300;

/// Every path with what is there; how many names a file has is told by [`same_files`].
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
    let directories = |tree: &Tree| -> BTreeMap<Ino, String> {
        let all =
            tree.content().into_keys().filter_map(|path| tree.find(&path).ok().zip(Some(path)));
        let directories = all.filter(|(found, _)| found.kind == Kind::Directory);
        directories.map(|(found, path)| (found.ino, path)).collect()
    };
    let past = directories(past);
    let both = directories(now).into_iter();
    let both: Vec<_> =
        both.filter_map(|(ino, path)| Some((ino, path, past.get(&ino)?.clone()))).collect();
    (!both.is_empty()).then(|| random.pick(&both))
}

fn run(seed: u64) -> bool {
    let mut random = Random(seed);
    let family: Family = kept(|tree| {
        for path in ["/d", "/e", "/d/f"] {
            apply(&*tree.0, &Step::Directory(path.to_owned())).expect("it is made");
        }
        change(&mut random, 40, tree);
    });
    let now = &family.parent;
    let count = 1 + random.below(25);
    let steps = change(&mut random, count, now);
    family.store.commit_some(seed % 4);
    let past = open(&family.store, "root@s", Ino::ROOT, &family.clock);
    let Some((ino, directory, was)) = pick(&mut random, now, &past) else { return false };
    let (before, wanted) = (content(now), content(&past));
    let numbers = numbers_outside(now, &directory);
    let touched = roll_back(&family, ino).expect("it goes back");
    let told = format!("seed {seed}: {directory} to {was}\n{steps:#?}");
    let after = content(now);
    assert_eq!(part(&after, &directory, true), part(&wanted, &was, true), "below, {told}");
    let outside = |content: &BTreeMap<String, String>| part(content, &directory, false);
    assert_eq!(outside(&after), outside(&before), "outside, {told}");
    assert_eq!(same_files(now, &directory), same_files(&past, &was), "links, {told}");
    assert_eq!(numbers_outside(now, &directory), numbers, "numbers, {told}");
    family.check_usage();
    roll_back(&family, ino).expect("it goes back");
    assert_eq!(content(now), after, "once more, {told}");
    touched.is_some()
}

#[test]
fn a_directory_of_a_random_history_goes_back() {
    let changed = (0..RUNS).filter(|seed| run(*seed)).count() as u64;
    assert!(changed > RUNS / 2, "{changed} of {RUNS} changed something");
}
