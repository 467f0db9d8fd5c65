//! Random histories of concurrent transactions and plain operations, against a model that runs them
//! one after the other in the order of their commits: what each committed transaction saw, and the
//! state after it, must be the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_history::{Branch, MergeOptions, MergeSides, merge};
use marram_posix::{Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Source, Store};
use marram_tx::{Aspect, ReadSet, Recording};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, WriteOptions,
    XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const DIRECTORIES: [&str; 2] = ["p", "q"];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const ATTRIBUTE: &[u8] = b"user.x";
const OPEN_MAX: usize = 3;

/// A file, by its directory and its name.
type Path = (&'static str, &'static str);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read(Path),
    Write(Path, u8),
    Append(Path, u8),
    Remove(Path),
    Move(Path, Path),
    List(&'static str),
    Count(&'static str),
    Mode(Path),
    SetMode(Path, u32),
    Attribute(Path),
    SetAttribute(Path, u8),
}

/// A small generator (xorshift): the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    fn path(&mut self) -> Path {
        (DIRECTORIES[self.below(2)], NAMES[self.below(4)])
    }

    fn operation(&mut self) -> Operation {
        let (path, value) = (self.path(), u8::try_from(self.below(26)).unwrap() + b'a');
        match self.below(13) {
            0 | 1 => Operation::Read(path),
            2 | 3 => Operation::Write(path, value),
            4 | 5 => Operation::Append(path, value),
            6 => Operation::Remove(path),
            7 => Operation::Move(path, self.path()),
            8 => Operation::List(path.0),
            9 => Operation::Count(path.0),
            10 => Operation::Mode(path),
            11 => Operation::SetMode(path, [0o600, 0o644][self.below(2)]),
            _ if self.below(2) == 0 => Operation::Attribute(path),
            _ => Operation::SetAttribute(path, value),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    content: Vec<u8>,
    mode: u32,
    attribute: Vec<u8>,
}

/// The state, as plain as can be.
type Model = BTreeMap<Path, File>;

const NEW_MODE: u32 = 0o644;

fn none() -> String {
    "none".to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn run_on_model(model: &mut Model, operation: Operation) -> String {
    let names = |model: &Model, directory: &str| -> Vec<&str> {
        model.keys().filter(|path| path.0 == directory).map(|path| path.1).collect()
    };
    let change = |file: Option<&mut File>, change: &dyn Fn(&mut File)| {
        file.map_or_else(none, |file| {
            change(file);
            "done".to_owned()
        })
    };
    match operation {
        Operation::Read(path) => model.get(&path).map_or_else(none, |file| text(&file.content)),
        Operation::Write(path, byte) => {
            let new = || File { mode: NEW_MODE, ..File::default() };
            model.entry(path).or_insert_with(new).content = vec![byte; 3];
            "done".to_owned()
        }
        Operation::Append(path, byte) => {
            change(model.get_mut(&path), &|file| file.content.push(byte))
        }
        Operation::Remove(path) => model.remove(&path).map_or_else(none, |_| "done".to_owned()),
        Operation::Move(from, to) => match model.get(&from).cloned() {
            None => none(),
            Some(file) => {
                model.remove(&from);
                model.insert(to, file);
                "done".to_owned()
            }
        },
        Operation::List(directory) => names(model, directory).join(" "),
        Operation::Count(directory) => names(model, directory).len().to_string(),
        Operation::Mode(path) => model.get(&path).map_or_else(none, |file| file.mode.to_string()),
        Operation::SetMode(path, mode) => change(model.get_mut(&path), &|file| file.mode = mode),
        Operation::Attribute(path) => {
            model.get(&path).map_or_else(none, |file| text(&file.attribute))
        }
        Operation::SetAttribute(path, byte) => {
            change(model.get_mut(&path), &|file| file.attribute = vec![byte])
        }
    }
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn look_up(files: &dyn FileSystem, parent: Ino, text: &str) -> Option<Ino> {
    let found = files.lookup(parent, name(text)).ok()?.ino;
    files.forget(found, 1);
    Some(found)
}

fn directory(files: &dyn FileSystem, text: &str) -> Ino {
    look_up(files, Ino::ROOT, text).unwrap()
}

fn file(files: &dyn FileSystem, path: Path) -> Option<Ino> {
    look_up(files, directory(files, path.0), path.1)
}

fn read(files: &dyn FileSystem, ino: Ino) -> String {
    let mut content = Vec::new();
    files.read(ino, 0, 1000, &mut content).unwrap();
    text(&content)
}

fn list(files: &dyn FileSystem, text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let visit = &mut |entry: marram_vfs::DirectoryEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    };
    files.read_directory(directory(files, text), 0, false, visit).unwrap();
    names.sort();
    names
}

fn make(files: &dyn FileSystem, path: Path) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: NEW_MODE, device: 0 };
    let made = files.create(CALLER, directory(files, path.0), name(path.1), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

fn set(files: &dyn FileSystem, ino: Ino, set: SetAttributes) {
    files.set_attributes(CALLER, ino, &set).unwrap();
}

fn change(files: &dyn FileSystem, path: Path, change: &dyn Fn(Ino)) -> String {
    file(files, path).map_or_else(none, |ino| {
        change(ino);
        "done".to_owned()
    })
}

fn write(files: &dyn FileSystem, ino: Ino, offset: u64, data: &[u8]) {
    files.write(ino, offset, data, WriteOptions::default()).unwrap();
}

fn run(files: &dyn FileSystem, operation: Operation) -> String {
    match operation {
        Operation::Read(path) => file(files, path).map_or_else(none, |ino| read(files, ino)),
        Operation::Write(path, byte) => {
            let ino = file(files, path).unwrap_or_else(|| make(files, path));
            set(files, ino, SetAttributes { size: Some(0), ..SetAttributes::default() });
            write(files, ino, 0, &[byte; 3]);
            "done".to_owned()
        }
        Operation::Append(path, byte) => change(files, path, &|ino| {
            let size = files.attributes(ino).unwrap().size;
            write(files, ino, size, &[byte]);
        }),
        Operation::Remove(path) => change(files, path, &|_| {
            files.unlink(directory(files, path.0), name(path.1)).unwrap();
        }),
        Operation::Move(from, to) => change(files, from, &|_| {
            let (old, new) = (directory(files, from.0), directory(files, to.0));
            let (names, mode) = ([name(from.1), name(to.1)], RenameMode::Replace);
            files.rename(CALLER, old, names[0], new, names[1], mode).unwrap();
        }),
        Operation::List(of) => list(files, of).join(" "),
        Operation::Count(of) => files.attributes(directory(files, of)).unwrap().size.to_string(),
        Operation::Mode(path) => file(files, path)
            .map_or_else(none, |ino| files.attributes(ino).unwrap().permissions.to_string()),
        Operation::SetMode(path, mode) => change(files, path, &|ino| {
            set(files, ino, SetAttributes { permissions: Some(mode), ..SetAttributes::default() });
        }),
        Operation::Attribute(path) => file(files, path)
            .map_or_else(none, |ino| text(&files.xattr(ino, ATTRIBUTE).unwrap_or_default())),
        Operation::SetAttribute(path, byte) => change(files, path, &|ino| {
            files.set_xattr(ino, ATTRIBUTE, &[byte], XattrMode::Any).unwrap();
        }),
    }
}

/// The whole state.
fn state_of(files: &dyn FileSystem) -> Model {
    let mut state = Model::new();
    for directory in DIRECTORIES {
        for name in NAMES {
            let Some(ino) = file(files, (directory, name)) else { continue };
            let found = File {
                content: read(files, ino).into_bytes(),
                mode: files.attributes(ino).unwrap().permissions,
                attribute: files.xattr(ino, ATTRIBUTE).unwrap_or_default(),
            };
            state.insert((directory, name), found);
        }
    }
    state
}

/// A transaction that is open: what it did, and what it was answered.
struct Open {
    fork: DatasetName,
    view: Recording,
    done: Vec<(Operation, String)>,
}

struct History {
    store: MemoryStore,
    parent: Posix,
    model: Model,
    open: Vec<Open>,
    random: Random,
    begun: usize,
    committed: usize,
    refused: usize,
}

fn open_files(store: &MemoryStore, dataset: &DatasetName) -> Posix {
    let view = store.open(&Source::live(dataset.clone())).unwrap();
    Posix::new(view, PosixOptions { root_owner: CALLER, ..PosixOptions::default() }).unwrap()
}

impl History {
    fn new(seed: u64) -> History {
        let store = MemoryStore::new();
        let parent = open_files(&store, &DatasetName::root());
        for text in DIRECTORIES {
            let node = NewNode::Directory { permissions: 0o755 };
            parent.create(CALLER, Ino::ROOT, name(text), node).unwrap();
        }
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (begun, committed, refused) = (0, 0, 0);
        let mut history = History {
            store,
            parent,
            model: Model::new(),
            open: Vec::new(),
            random,
            begun,
            committed,
            refused,
        };
        for path in [("p", "a"), ("p", "b"), ("q", "a")] {
            history.do_plainly(Operation::Write(path, b'0')).unwrap();
        }
        history
    }

    /// A plain operation is a transaction by itself.
    fn do_plainly(&mut self, operation: Operation) -> Result<(), String> {
        let seen = run(&self.parent, operation);
        let expected = run_on_model(&mut self.model, operation);
        equal(&seen, &expected, &format!("plainly: {operation:?}"))
    }

    fn begin(&mut self, reads: ReadSet) {
        self.begun += 1;
        let fork = DatasetName::of_transaction(&self.begun.to_string()).unwrap();
        self.store.fork(&DatasetName::root(), &fork, Ino::ROOT.0).unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(open_files(&self.store, &fork));
        let view = Recording::new(files, Ino::ROOT, reads);
        self.open.push(Open { fork, view, done: Vec::new() });
    }

    fn commit(&mut self, at: usize) -> Result<(), String> {
        let Open { fork, view, done } = self.open.swap_remove(at);
        view.end();
        let reads = view.reads();
        drop(view);
        let branch = Branch::of(&self.store, &fork).unwrap().unwrap();
        let (dataset, base) = (&DatasetName::root(), &branch.base);
        let sides = MergeSides { dataset, base, fork: &branch.fork, root: branch.root };
        let overlaps = |touched: &_| reads.overlaps(touched);
        let options = MergeOptions { strict: Some(&overlaps), ..MergeOptions::default() };
        let report = merge(&self.parent, &self.store, sides, &options).unwrap();
        self.store.destroy(&branch.fork, false).unwrap();
        if !report.applied {
            self.refused += 1;
            return equal(&state_of(&self.parent), &self.model, "after a refusal");
        }
        // One that has only read is where it began, which the model does not keep.
        if report.change_set.inodes.is_empty() {
            return equal(&state_of(&self.parent), &self.model, "after a reader");
        }
        self.committed += 1;
        for (operation, seen) in done {
            let expected = run_on_model(&mut self.model, operation);
            equal(&seen, &expected, &format!("in a transaction: {operation:?}"))?;
        }
        equal(&state_of(&self.parent), &self.model, "after a commit")
    }

    fn step(&mut self, reads: &ReadSet) -> Result<(), String> {
        let at = self.random.below(OPEN_MAX);
        match self.random.below(10) {
            0 | 1 if self.open.len() < OPEN_MAX => self.begin(reads.clone()),
            2 if at < self.open.len() => return self.commit(at),
            3 => {
                let operation = self.random.operation();
                return self.do_plainly(operation);
            }
            _ if at < self.open.len() => {
                let operation = self.random.operation();
                let open = &mut self.open[at];
                let seen = run(&open.view, operation);
                open.done.push((operation, seen));
            }
            _ => (),
        }
        Ok(())
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T, what: &str) -> Result<(), String> {
    match seen == expected {
        true => Ok(()),
        false => Err(format!("{what}: {seen:?} in place of {expected:?}")),
    }
}

/// Runs a history; how many transactions were committed, and how many refused.
fn play(seed: u64, steps: usize, reads: &ReadSet) -> Result<(usize, usize), String> {
    let mut history = History::new(seed);
    for step in 0..steps {
        history.step(reads).map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    while !history.open.is_empty() {
        history.commit(0).map_err(|error| format!("seed {seed}, at the end: {error}"))?;
    }
    Ok((history.committed, history.refused))
}

#[test]
fn histories_are_those_of_transactions_one_after_the_other() {
    let (mut committed, mut refused) = (0, 0);
    for seed in 1..=300 {
        let (done, not) = play(seed, 60, &ReadSet::default()).unwrap();
        committed += done;
        refused += not;
    }
    assert!(committed > 300 && refused > 300, "{committed} committed, {refused} refused");
}

/// What the model does not see of a kind, it cannot miss: rights and lists of attributes are not
/// among the operations.
#[test]
fn reads_that_are_not_noted_are_found_out() {
    for aspect in [Aspect::Name, Aspect::Listing, Aspect::Attributes, Aspect::Content] {
        let reads = ReadSet::omitting(aspect);
        let found = (1..=600).find_map(|seed| play(seed, 60, &reads).err());
        assert!(found.is_some(), "histories without notes of {aspect:?} are as good");
    }
}
