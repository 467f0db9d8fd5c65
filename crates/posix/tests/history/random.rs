//! Random changes on both sides, merged here and by the model: the same conflicts, or the same
//! tree.

use super::family::{Family, USER, content_of};
use marram_model::{Clash, Model};
use marram_posix::{ConflictKind, MergeOptions};
use marram_vfs::{
    FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result, SetAttributes, WriteOptions,
    XattrMode,
};
use std::collections::BTreeSet;
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
    let plain = WriteOptions { clear_privileges: false, keep_times: false, accepted: false };
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

/// Draws steps from what the model has, and does them on both.
fn change(random: &mut Random, count: u64, real: &dyn FileSystem, model: &Model) -> Vec<Step> {
    let mut done = Vec::new();
    for _ in 0..count {
        let step = random.step(model);
        let (real, model) = (apply(real, &step), apply(model, &step));
        assert_eq!(real.is_ok(), model.is_ok(), "{step:?}: {real:?}, {model:?}");
        if real.is_ok() {
            done.push(step);
        }
    }
    done
}

/// A path as the first of the names that its file has in the fork: which of several is told is of
/// no meaning.
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
    }
}

/// One fork; returns whether it was merged.
fn run(seed: u64) -> bool {
    let mut random = Random(seed);
    let clock = Arc::new(marram_vfs::SteppedClock::default());
    let model = Model::new(clock);
    let family = Family::new(|tree| {
        for path in ["/d", "/e", "/d/f"] {
            let step = Step::Directory(path.to_owned());
            apply(&*tree.0, &step).unwrap();
            apply(&model, &step).unwrap();
        }
        change(&mut random, 30, &*tree.0, &model);
    });
    let (base, fork) = (model.snapshot(), model.fork());
    let count = 1 + random.below(10);
    let theirs = change(&mut random, count, &*family.fork.0, &fork);
    family.store.commit_some(seed % 4);
    let count = random.below(12);
    let ours = change(&mut random, count, &*family.parent.0, &model);
    let before = family.parent.content();
    let report = family.merge_with(&MergeOptions::default()).unwrap();
    let clashes = model.merge(&base, &fork);
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
    family.check_usage();
    report.applied
}

#[test]
fn random_forks_are_merged_as_the_model_merges_them() {
    let merged = (0..RUNS).filter(|seed| run(*seed)).count() as u64;
    assert!(merged > RUNS / 2 && merged < RUNS * 9 / 10, "{merged} of {RUNS} merged");
}
