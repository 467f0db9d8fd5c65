//! Random changes on both sides, merged here and by the model: the same conflicts, or the same
//! tree.

use super::family::{Family, USER, content_of};
use marram_history::{ConflictKind, MergeOptions};
use marram_model::{Clash, Decisions, Model};
use marram_vfs::{
    FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result, SetAttributes, WriteOptions,
    XattrMode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Forks that are merged.
const RUNS: u64 = 500;

/// A change, by paths.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Directory(String),
    File(String),
    Symlink(String),
    Write(String, u64, u8, usize),
    Size(String, u64),
    Mode(String, u32),
    Owner(String, u32),
    Xattr(String, u8, usize),
    Rename(String, String, RenameMode),
    Link(String, String),
    Remove(String),
    RemoveDirectory(String),
}

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap();
        choices[at].clone()
    }

    fn path(&mut self) -> String {
        let above = self.pick(&["", "", "/d", "/d", "/e", "/d/f", "/e/f", "/d/e"]);
        let name = self.pick(&["a", "b", "c", "d", "e", "f"]);
        format!("{above}/{name}")
    }

    /// A path of one that is likely to be there.
    fn known(&mut self, files: &dyn FileSystem) -> String {
        let all: Vec<String> = content_of(files, Ino::ROOT).into_keys().collect();
        if all.is_empty() || self.below(8) == 0 { self.path() } else { self.pick(&all) }
    }

    pub(crate) fn step(&mut self, files: &dyn FileSystem) -> Step {
        let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::Exchange];
        match self.below(20) {
            0 => Step::Directory(self.path()),
            1 | 2 => Step::File(self.path()),
            3 => Step::Symlink(self.path()),
            4..8 => Step::Write(
                self.known(files),
                self.pick(&[0, 0, 100, 5000, 140_000]),
                self.pick(&[0, 1, 2]),
                self.pick(&[1, 10, 5000, 131_072]),
            ),
            8 => Step::Size(self.known(files), self.pick(&[0, 50, 6000, 200_000])),
            9 => Step::Mode(self.known(files), self.pick(&[0o600, 0o755])),
            10 => Step::Owner(self.known(files), self.pick(&[5, 6])),
            11 | 12 => Step::Xattr(self.known(files), self.pick(&[1, 2]), self.pick(&[1, 4000])),
            13..16 => Step::Rename(self.known(files), self.path(), self.pick(&modes)),
            16 => Step::Link(self.known(files), self.path()),
            17 | 18 => Step::Remove(self.known(files)),
            _ => Step::RemoveDirectory(self.known(files)),
        }
    }
}

pub(crate) fn find(files: &dyn FileSystem, path: &str) -> Result<Ino> {
    let mut at = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = files.lookup(at, Name::new(part.as_bytes()).unwrap())?.ino;
        files.forget(at, 1);
    }
    Ok(at)
}

fn place<'p>(files: &dyn FileSystem, path: &'p str) -> Result<(Ino, Name<'p>)> {
    let (directory, name) = path.rsplit_once('/').unwrap();
    Ok((find(files, directory)?, Name::new(name.as_bytes()).unwrap()))
}

pub(crate) fn apply(files: &dyn FileSystem, step: &Step) -> Result<()> {
    let make = |path: &str, node: NewNode<'_>| {
        let (directory, name) = place(files, path)?;
        let made = files.create(USER, directory, name, node)?;
        files.forget(made.ino, 1);
        Ok(())
    };
    let set = |path: &str, set: SetAttributes| {
        files.set_attributes(USER, find(files, path)?, &set).map(|_| ())
    };
    let plain =
        WriteOptions { clear_privileges: false, keep_times: false, accepted: false, memory: None };
    match step {
        Step::Directory(path) => make(path, NewNode::Directory { permissions: 0o755 }),
        Step::File(path) => {
            let kind = Kind::Regular;
            make(path, NewNode::Node { kind, permissions: 0o644, device: 0 })
        }
        Step::Symlink(path) => make(path, NewNode::Symlink { target: b"to" }),
        Step::Write(path, at, byte, len) => {
            files.write(find(files, path)?, *at, &vec![*byte; *len], plain)
        }
        Step::Size(path, size) => {
            set(path, SetAttributes { size: Some(*size), ..Default::default() })
        }
        Step::Mode(path, mode) => {
            set(path, SetAttributes { permissions: Some(*mode), ..Default::default() })
        }
        Step::Owner(path, uid) => {
            set(path, SetAttributes { uid: Some(*uid), ..Default::default() })
        }
        Step::Xattr(path, byte, len) => {
            let value = vec![*byte; *len];
            files.set_xattr(find(files, path)?, b"user.a", &value, XattrMode::Any)
        }
        Step::Rename(from, to, mode) => {
            let ((a, from), (b, to)) = (place(files, from)?, place(files, to)?);
            files.rename(USER, a, from, b, to, *mode)
        }
        Step::Link(old, new) => {
            let ino = find(files, old)?;
            let (directory, name) = place(files, new)?;
            files.link(ino, directory, name)?;
            files.forget(ino, 1);
            Ok(())
        }
        Step::Remove(path) => {
            let (directory, name) = place(files, path)?;
            files.unlink(directory, name)
        }
        Step::RemoveDirectory(path) => {
            let (directory, name) = place(files, path)?;
            files.remove_directory(directory, name)
        }
    }
}

/// A file system beside its model.
#[derive(Clone, Copy)]
pub(crate) struct Both<'f>(pub &'f dyn FileSystem, pub &'f Model);

impl Both<'_> {
    /// Does a step on both. True if it could be done.
    fn apply(self, step: &Step) -> bool {
        let (real, model) = (apply(self.0, step), apply(self.1, step));
        assert_eq!(real.is_ok(), model.is_ok(), "{step:?}: {real:?}, {model:?}");
        real.is_ok()
    }

    /// Draws steps from what the model has; returns those that could be done.
    pub(crate) fn change(self, random: &mut Random, count: u64) -> Vec<Step> {
        let mut done = Vec::new();
        for _ in 0..count {
            let step = random.step(self.1);
            if self.apply(&step) {
                done.push(step);
            }
        }
        done
    }

    /// Gives more names to files that are there.
    fn link(self, random: &mut Random, count: u64) {
        for _ in 0..count {
            let step = Step::Link(random.known(self.1), random.path());
            self.apply(&step);
        }
    }
}

/// The names of each inode, and what it is but for their number.
fn inodes(files: &dyn FileSystem) -> BTreeMap<Ino, (BTreeSet<String>, String)> {
    let mut inodes: BTreeMap<Ino, (BTreeSet<String>, String)> = BTreeMap::new();
    for (path, text) in content_of(files, Ino::ROOT) {
        let (first, rest) = text.split_once(" links ").expect("it has links");
        let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
        let ino = find(files, &path).expect("it was listed");
        let (names, what) = inodes.entry(ino).or_default();
        names.insert(path);
        *what = format!("{first} {rest}");
    }
    inodes
}

/// Steps of both sides that take the names of one file away, each side others; one side may change
/// the file before.
fn parting(random: &mut Random, files: &dyn FileSystem) -> [Vec<Step>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    let names = inodes(files).into_values().map(|(names, _)| names);
    let several: Vec<_> = names.filter(|names| names.len() > 1).collect();
    if several.is_empty() {
        return sides;
    }
    let names: Vec<String> = random.pick(&several).into_iter().collect();
    let path = names[0].clone();
    let change = random.pick(&[
        Step::Mode(path.clone(), 0o611),
        Step::Write(path.clone(), 7, 9, 100),
        Step::Xattr(path, 9, 10),
    ]);
    if let Some(side) = sides.get_mut(random.pick(&[0_usize, 0, 1, 1, 2])) {
        side.push(change);
    }
    let first = random.below(2) as usize;
    for (at, name) in names.into_iter().enumerate() {
        let side = if at < 2 { (first + at) % 2 } else { random.below(2) as usize };
        sides[side].push(Step::Remove(name));
    }
    sides
}

/// An inode of the base that both sides have.
struct InBoth {
    ino: Ino,
    /// One of them changed more than names and times of it.
    is_changed: bool,
    /// None of the names that it had in the base is left on both sides, and it has no others.
    is_parted: bool,
}

fn in_both(base: &Model, fork: &Model, now: &Model) -> Vec<InBoth> {
    let [before, theirs, ours] = [base, fork, now].map(|files| inodes(files));
    let both = |(ino, (names, what)): (Ino, (BTreeSet<String>, String))| {
        let ((theirs, new), (ours, own)) = (theirs.get(&ino)?, ours.get(&ino)?);
        let is_parted =
            theirs.is_disjoint(ours) && theirs.is_subset(&names) && ours.is_subset(&names);
        Some(InBoth { ino, is_changed: what != *new || what != *own, is_parted })
    };
    before.into_iter().filter_map(both).collect()
}

/// A path as the first of the names that its file has in the fork: which of several is
/// reported is of no meaning.
fn first_name(files: &dyn FileSystem, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path).into_owned();
    let Ok(ino) = find(files, &path) else {
        return path;
    };
    let mut all = content_of(files, Ino::ROOT).into_keys();
    all.find(|other| find(files, other) == Ok(ino)).unwrap_or(path)
}

fn clash_of(kind: ConflictKind) -> Clash {
    match kind {
        ConflictKind::Content => Clash::Content,
        ConflictKind::Attribute => Clash::Attribute,
        ConflictKind::Name => Clash::Name,
        ConflictKind::Removed => Clash::Removed,
        ConflictKind::Loop => Clash::Loop,
        ConflictKind::Overtaken => panic!("no merge here is strict"),
    }
}

/// One fork; returns whether it was merged, and whether there was a file of which both sides have
/// other names: one that was changed, and one that was not.
fn run(seed: u64) -> (bool, [u64; 2]) {
    let mut random = Random(seed);
    let clock = Arc::new(marram_vfs::SteppedClock::default());
    let model = Model::new(clock);
    let family = Family::new(|tree| {
        let both = Both(&*tree.0, &model);
        for path in ["/d", "/e", "/d/f"] {
            assert!(both.apply(&Step::Directory(path.to_owned())));
        }
        both.change(&mut random, 30);
        both.link(&mut random, 4);
    });
    let (base, fork) = (model.snapshot(), model.fork());
    let (there, here) = (Both(&*family.fork.0, &fork), Both(&*family.parent.0, &model));
    let mut steps = [Vec::new(), Vec::new()];
    if random.below(4) == 0 {
        steps = parting(&mut random, &base);
    }
    let [mut theirs, mut ours] = steps;
    theirs.retain(|step| there.apply(step));
    ours.retain(|step| here.apply(step));
    let count = 1 + random.below(10);
    theirs.extend(there.change(&mut random, count));
    family.store.commit_some(seed % 4);
    let count = random.below(12);
    ours.extend(here.change(&mut random, count));
    let both = in_both(&base, &fork, &model);
    let before = family.parent.content();
    let report = family.merge_with(&MergeOptions::default()).unwrap();
    let clashes = model.merge(&base, &fork, &Decisions::new());
    let told = |(clash, path): (Clash, &[u8])| (clash, first_name(&fork, path));
    let found: BTreeSet<_> = report
        .conflicts
        .iter()
        .map(|conflict| told((clash_of(conflict.kind), &conflict.path)))
        .collect();
    let wanted: BTreeSet<_> = clashes.iter().map(|(clash, path)| told((*clash, path))).collect();
    assert_eq!(found, wanted, "seed {seed}\nfork {theirs:#?}\nparent {ours:#?}");
    let content = family.parent.content();
    let wanted = content_of(&model, Ino::ROOT);
    assert_eq!(content, wanted, "seed {seed}\nfork {theirs:#?}\nparent {ours:#?}");
    assert!(report.applied || content == before);
    let left = inodes(&model);
    let is_left = |it: &InBoth| !it.is_changed || left.contains_key(&it.ino);
    assert!(both.iter().all(is_left), "seed {seed}: what was changed is gone");
    family.check_usage();
    let parted = |changed| both.iter().any(|it| it.is_parted && it.is_changed == changed);
    (report.applied, [true, false].map(|changed| u64::from(parted(changed))))
}

#[test]
fn random_forks_are_merged_as_the_model_merges_them() {
    let (mut merged, mut parted) = (0, [0; 2]);
    for (applied, files) in (0..RUNS).map(run) {
        merged += u64::from(applied);
        (0..2).for_each(|at| parted[at] += files[at]);
    }
    assert!(merged > RUNS / 2 && merged < RUNS * 9 / 10, "{merged} of {RUNS} merged");
    assert!(parted[0] > RUNS / 25 && parted[1] > RUNS / 100, "{parted:?} lost names on both sides");
}
