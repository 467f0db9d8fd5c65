//! Names without case over the model, as programs use them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_casefold::Folding;
use marram_model::Model;
use marram_vfs::{
    Caller, DirectoryEntry, Error, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result,
    SteppedClock, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const ROOT: Ino = Ino::ROOT;
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };

/// The model, and the same without case.
fn both() -> (Arc<Model>, Folding) {
    let model = Arc::new(Model::new(Arc::new(SteppedClock::default())));
    let files = Folding::new(Arc::clone(&model) as Arc<dyn FileSystem>);
    (model, files)
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn make(files: &dyn FileSystem, text: &str) -> Result<Ino> {
    files.create(USER, ROOT, name(text), FILE).map(|made| made.ino)
}

fn find(files: &dyn FileSystem, text: &str) -> Result<Ino> {
    files.lookup(ROOT, name(text)).map(|found| found.ino)
}

fn rename(files: &dyn FileSystem, from: &str, to: &str, mode: RenameMode) -> Result<()> {
    files.rename(USER, ROOT, name(from), ROOT, name(to), mode)
}

fn listed(files: &dyn FileSystem, directory: Ino) -> Vec<String> {
    let mut names = Vec::new();
    let mut visit = |entry: DirectoryEntry<'_>| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    };
    files.read_directory(directory, 0, false, &mut visit).unwrap();
    names.sort();
    names
}

#[test]
fn every_spelling_leads_to_the_name_as_it_was_given() {
    let (_, files) = both();
    let ino = make(&files, "Stra\u{df}e.TXT").unwrap();
    for spelling in ["stra\u{df}e.txt", "STRASSE.TXT", "Strasse.txt", "Stra\u{df}e.TXT"] {
        assert_eq!(find(&files, spelling), Ok(ino), "{spelling}");
        assert_eq!(make(&files, spelling), Err(Error::Exists), "{spelling}");
        assert_eq!(files.create(USER, ROOT, name(spelling), DIRECTORY), Err(Error::Exists));
        assert_eq!(files.link(ino, ROOT, name(spelling)), Err(Error::Exists));
    }
    assert_eq!(find(&files, "strase.txt"), Err(Error::NotFound));
    assert_eq!(listed(&files, ROOT), ["Stra\u{df}e.TXT"]);
    files.unlink(ROOT, name("STRASSE.txt")).unwrap();
    assert_eq!(listed(&files, ROOT), [""; 0]);
    assert_eq!(find(&files, "Stra\u{df}e.TXT"), Err(Error::NotFound));
    make(&files, "strasse.txt").unwrap();
    assert_eq!(listed(&files, ROOT), ["strasse.txt"]);
    assert!(files.capabilities().folds_names);
}

#[test]
fn a_rename_changes_the_spelling_alone_and_brings_its_own() {
    let (_, files) = both();
    let ino = make(&files, "Readme").unwrap();
    rename(&files, "readme", "README", RenameMode::NoReplace).unwrap();
    assert_eq!(listed(&files, ROOT), ["README"]);
    assert_eq!(rename(&files, "README", "README", RenameMode::NoReplace), Err(Error::Exists));
    let moved = make(&files, "new").unwrap();
    assert_eq!(rename(&files, "new", "readMe", RenameMode::NoReplace), Err(Error::Exists));
    rename(&files, "NEW", "ReadMe", RenameMode::Replace).unwrap();
    assert_eq!(listed(&files, ROOT), ["ReadMe"]);
    assert_eq!(find(&files, "README"), Ok(moved));
    files.forget(ino, 9);
    assert_eq!(files.attributes(ino), Err(Error::Stale));
    files.link(moved, ROOT, name("other")).unwrap();
    rename(&files, "OTHER", "README", RenameMode::Replace).unwrap();
    assert_eq!(listed(&files, ROOT), ["ReadMe", "other"], "two names of one file stay");
}

#[test]
fn two_names_change_places_and_keep_their_spelling() {
    let (_, files) = both();
    let [a, b] = ["Aa", "Bb"].map(|text| make(&files, text).unwrap());
    rename(&files, "aA", "bB", RenameMode::Exchange).unwrap();
    assert_eq!((find(&files, "AA"), find(&files, "BB")), (Ok(b), Ok(a)));
    rename(&files, "aA", "AA", RenameMode::Exchange).unwrap();
    assert_eq!(listed(&files, ROOT), ["Aa", "Bb"]);
    let missing = rename(&files, "aA", "cc", RenameMode::Exchange);
    assert_eq!(missing, Err(Error::NotFound));
}

#[test]
fn of_names_that_collide_each_is_found_by_its_spelling() {
    let (model, _) = both();
    let [lower, upper, mixed] = ["readme", "README", "ReadMe"].map(|it| make(&*model, it).unwrap());
    let files = Folding::new(model as Arc<dyn FileSystem>);
    assert_eq!(listed(&files, ROOT), ["README", "ReadMe", "readme"]);
    assert_eq!(find(&files, "readme"), Ok(lower));
    assert_eq!(find(&files, "ReadMe"), Ok(mixed));
    assert_eq!(find(&files, "rEADmE"), Ok(upper), "the first in the order of bytes");
    assert_eq!(make(&files, "REadme"), Err(Error::Exists));
    files.unlink(ROOT, name("rEADmE")).unwrap();
    assert_eq!(listed(&files, ROOT), ["ReadMe", "readme"]);
    assert_eq!(find(&files, "README"), Ok(mixed));
    rename(&files, "readme", "away", RenameMode::Replace).unwrap();
    assert_eq!(find(&files, "readme"), Ok(mixed));
    rename(&files, "readme", "readme", RenameMode::Replace).unwrap();
    assert_eq!(listed(&files, ROOT), ["away", "readme"]);
}

#[test]
fn names_that_are_no_text_differ_by_their_bytes() {
    let (_, files) = both();
    let broken = |bytes| Name::new(bytes).unwrap();
    let upper = files.create(USER, ROOT, broken(b"\xffA"), FILE).unwrap();
    let lower = files.create(USER, ROOT, broken(b"\xffa"), FILE).unwrap();
    assert_eq!(files.create(USER, ROOT, broken(b"\xffA"), FILE), Err(Error::Exists));
    assert_eq!(files.lookup(ROOT, broken(b"\xffA")).unwrap().ino, upper.ino);
    assert_eq!(files.lookup(ROOT, broken(b"\xffa")).unwrap().ino, lower.ino);
}

#[test]
fn a_directory_that_takes_the_number_of_another_has_its_own_names() {
    let (_, files) = both();
    let old = files.create(USER, ROOT, name("D"), DIRECTORY).unwrap();
    files.create(USER, old.ino, name("Inside"), FILE).unwrap();
    assert!(files.lookup(old.ino, name("inside")).is_ok());
    files.unlink(old.ino, name("INSIDE")).unwrap();
    files.remove_directory(ROOT, name("d")).unwrap();
    files.forget_all();
    let new = files.create(USER, ROOT, name("d"), DIRECTORY).unwrap();
    assert_eq!(files.lookup(new.ino, name("inside")), Err(Error::NotFound));
    assert_eq!(listed(&files, new.ino), [""; 0]);
}

#[test]
fn what_belongs_to_a_group_is_folded_too() {
    let (_, files) = both();
    let groups = files.capabilities().patchgroups.unwrap();
    let group = groups.make_group().unwrap();
    let engaged = groups.engaged(&[group]).unwrap();
    let made = engaged.create(USER, ROOT, name("Made"), FILE).unwrap();
    engaged.write(made.ino, 0, b"x", WriteOptions::default()).unwrap();
    assert_eq!(find(&files, "MADE"), Ok(made.ino));
    assert_eq!(make(&files, "mADE"), Err(Error::Exists));
    let later = groups.make_group().unwrap();
    groups.depend(later, group).unwrap();
    assert!(matches!(engaged.unlink(ROOT, name("made")), Err(Error::InvalidArgument(_))));
    assert_eq!(find(&files, "made"), Ok(made.ino), "a refused change is no change");
}

/// A walk of random names against a map by folded names.
#[test]
fn random_names_are_those_of_a_map_by_key() {
    let spellings = ["a", "A", "bb", "Bb", "bB", "BB", "\u{e9}", "E\u{301}", "ss", "\u{df}"];
    let key = |text: &str| match text {
        "\u{e9}" | "E\u{301}" => "e'".to_owned(),
        "\u{df}" => "ss".to_owned(),
        other => other.to_lowercase(),
    };
    let (_, files) = both();
    let mut known: BTreeMap<String, (String, Ino)> = BTreeMap::new();
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..4000 {
        let (one, two) = (spellings[random(10)], spellings[random(10)]);
        let there = known.contains_key(&key(one));
        match random(4) {
            0 => {
                let made = make(&files, one);
                assert_eq!(made.is_err(), there);
                made.into_iter().for_each(|it| drop(known.insert(key(one), (one.into(), it))));
            }
            1 => {
                assert_eq!(files.unlink(ROOT, name(one)).is_ok(), there);
                known.remove(&key(one));
            }
            2 => {
                assert_eq!(rename(&files, one, two, RenameMode::Replace).is_ok(), there);
                if let Some((_, ino)) = known.remove(&key(one)) {
                    known.insert(key(two), (two.to_owned(), ino));
                }
            }
            _ => assert_eq!(find(&files, one).ok(), known.get(&key(one)).map(|it| it.1)),
        }
        let mut expected: Vec<String> = known.values().map(|it| it.0.clone()).collect();
        expected.sort();
        assert_eq!(listed(&files, ROOT), expected);
    }
}
