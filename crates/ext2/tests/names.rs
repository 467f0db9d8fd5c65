//! Random histories of names under soft updates: long ones that cross sectors, whiteouts, links,
//! directories that move. Six files have a name in every crash state.

use crate::images::{SMALL, Shape, make, name, open_bytes};
use crate::judge::Judge;
use crate::workload::opened;
use marram_ext2::Ext2;
use marram_sim::Random;
use marram_sim::device::{CrashState, RecordingDevice, Trace};
use marram_vfs::{Caller, FileSystem, Ino, Kind, NewNode, RenameMode, Result, WriteOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
const LINK: NewNode<'_> = NewNode::Symlink { target: &[b't'; 80] };

const SEEDS: std::ops::Range<u64> = 0..6;
const OPERATIONS: u64 = 60;
/// States of one history that are judged.
const STATES_MAX: usize = 120;
/// Lengths of names: within a sector and over its end.
const LENGTHS: [usize; 7] = [1, 2, 9, 120, 188, 248, 255];
/// Lengths of the names of the files that are looked for.
const KEPT_LENGTHS: [usize; 6] = [1, 30, 100, 255, 3, 200];
const DIRECTORIES_MAX: usize = 12;

/// A name in a directory.
type Place = (Ino, String);

struct History<'f> {
    files: &'f Ext2,
    random: Random,
    directories: Vec<Ino>,
    /// Where each file is that is looked for.
    kept: Vec<Place>,
}

fn content(which: usize) -> Vec<u8> {
    format!("kept {which}").into_bytes()
}

impl History<'_> {
    /// Directories and files that are durable.
    fn begin(files: &Ext2, seed: u64) -> History<'_> {
        let mut history = History {
            files,
            random: Random::new(seed),
            directories: vec![Ino::ROOT],
            kept: Vec::new(),
        };
        for text in ["p", "q", "r"] {
            let made = files.create(USER, Ino::ROOT, name(text), DIRECTORY).unwrap();
            history.directories.push(made.ino);
        }
        for (which, length) in KEPT_LENGTHS.into_iter().enumerate() {
            let place = (history.directories[which % 4], which.to_string().repeat(length));
            let made = files.create(USER, place.0, name(&place.1), FILE).unwrap();
            files.write(made.ino, 0, &content(which), WriteOptions::default()).unwrap();
            history.kept.push(place);
        }
        files.sync_all().unwrap();
        history
    }

    fn one_of(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap()
    }

    /// A place where no file is that is looked for.
    fn place(&mut self) -> Place {
        loop {
            let which = self.one_of(self.directories.len());
            let directory = self.directories[which];
            let letter = ["a", "b", "c"][self.one_of(3)];
            let place = (directory, letter.repeat(LENGTHS[self.one_of(LENGTHS.len())]));
            if !self.kept.contains(&place) {
                return place;
            }
        }
    }

    /// Does something, which may be refused.
    fn act(&mut self) -> Result<()> {
        let (from, to, files) = (self.place(), self.place(), self.files);
        match self.random.below(13) {
            0 | 1 => self.make(&from, FILE),
            2 | 3 => self.make(&from, DIRECTORY),
            4 => self.make(&from, LINK),
            5 => files.unlink(from.0, name(&from.1)),
            6 => files.remove_directory(from.0, name(&from.1)),
            7 | 8 => self.rename(&from, &to),
            9 => {
                let found = files.lookup(from.0, name(&from.1))?.ino;
                let linked = files.link(found, to.0, name(&to.1));
                files.forget(found, 1);
                linked.map(|linked| files.forget(linked.ino, 1))
            }
            _ => {
                let which = self.one_of(self.kept.len());
                let (directory, text) = self.kept[which].clone();
                if self.random.once_in(3) {
                    let ino = files.lookup(directory, name(&text))?.ino;
                    let linked = files.link(ino, to.0, name(&to.1));
                    files.forget(ino, 1 + u64::from(linked.is_ok()));
                    linked?;
                    files.unlink(directory, name(&text))?;
                } else {
                    let mode = RenameMode::Replace;
                    files.rename(USER, directory, name(&text), to.0, name(&to.1), mode)?;
                }
                self.kept[which] = to;
                Ok(())
            }
        }
    }

    fn make(&mut self, (directory, text): &Place, node: NewNode<'_>) -> Result<()> {
        let made = self.files.create(USER, *directory, name(text), node)?.ino;
        if node == DIRECTORY && self.directories.len() < DIRECTORIES_MAX {
            self.directories.push(made);
            return Ok(());
        }
        if node == FILE && self.random.once_in(2) {
            let offset = self.random.below(40_000);
            self.files.write(made, offset, &[9; 2_000], WriteOptions::default())?;
        }
        self.files.forget(made, 1);
        Ok(())
    }

    fn rename(&mut self, (from, old): &Place, (to, new): &Place) -> Result<()> {
        let modes = [RenameMode::Replace, RenameMode::Whiteout, RenameMode::NoReplace];
        let mode = modes[self.one_of(3)];
        self.files.rename(USER, *from, name(old), *to, name(new), mode)
    }
}

/// Crash states from an event on, of each kind some.
fn states(trace: &Trace, from: usize, random: &mut Random, seed: u64) -> Vec<CrashState> {
    let all = trace.prefixes().chain(trace.subsets(6)).chain(trace.torn());
    let all = all.chain(trace.seeded(seed, 40));
    let mut states: Vec<_> = all.filter(|state| state.cut >= from).collect();
    while states.len() > STATES_MAX {
        let which = usize::try_from(random.below(states.len() as u64)).unwrap();
        states.swap_remove(which);
    }
    states
}

/// What is in the files that have a name. Directories may have the same name, two names, or a name
/// in each other.
fn contents(files: &Ext2) -> Result<BTreeSet<Vec<u8>>> {
    let (mut found, mut left) = (BTreeSet::new(), vec![Ino::ROOT]);
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    while let Some(directory) = left.pop() {
        if !seen.insert(directory.0) {
            continue;
        }
        for entry in marram_sim::read_directory(files, directory, false, usize::MAX)? {
            match entry.kind {
                Kind::Directory => left.push(entry.ino),
                Kind::Regular => {
                    let mut content = Vec::new();
                    files.read(entry.ino, 0, 1 << 16, &mut content)?;
                    found.insert(content);
                }
                _ => (),
            }
        }
    }
    Ok(found)
}

#[test]
fn files_keep_a_name_whatever_happens_to_names() {
    let judge = Judge::new();
    let mut succeeded = 0;
    for seed in SEEDS {
        let shapes =
            [SMALL, Shape { inode_bytes: 128, ..SMALL }, Shape { block_bytes: 4096, ..SMALL }];
        let shape = shapes[usize::try_from(seed % 3).unwrap()];
        let device = Arc::new(RecordingDevice::in_memory(make(shape)));
        let files = opened(&device);
        let mut history = History::begin(&files, seed);
        let from = device.event_count();
        for _ in 0..OPERATIONS {
            succeeded += u64::from(history.act().is_ok());
            if history.random.once_in(6) {
                files.step().unwrap();
            }
            if history.random.once_in(30) {
                files.sync_all().unwrap();
            }
        }
        files.sync_all().unwrap();
        let trace = device.trace();
        for state in states(&trace, from, &mut history.random, seed) {
            let image = trace.image(state);
            let sound = judge.soft(&image);
            sound.map_err(|said| format!("seed {seed}, state {state}: {said}")).unwrap();
            let found = contents(&open_bytes(image).unwrap()).unwrap();
            for which in 0..KEPT_LENGTHS.len() {
                let is_there = found.contains(&content(which));
                assert!(is_there, "seed {seed}, state {state}: file {which} has lost its name");
            }
        }
    }
    assert!(succeeded > SEEDS.end * OPERATIONS / 4, "{succeeded} operations were not refused");
}
