//! Plain operations on a few files of two datasets, and a model of them that is as simple as can
//! be: for histories of transactions, of which each that is committed has to have seen what the
//! model shows that runs them one after the other.

#![allow(clippy::unwrap_used, reason = "what a history may not refuse ends it")]

use crate::random::Random;
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, WriteOptions,
    XattrMode,
};
use std::collections::BTreeMap;

const CALLER: Caller = Caller { uid: 0, gid: 0 };
/// Two directories of each of two datasets.
pub const DIRECTORIES: [[&str; 2]; 2] = [["p", "q"], ["r", "s"]];
/// The names of files in each of them.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const ATTRIBUTE: &[u8] = b"user.x";

/// A file, by its directory and its name.
pub type Path = (&'static str, &'static str);

/// The dataset that a directory is in.
fn dataset_of(directory: &str) -> usize {
    usize::from(DIRECTORIES[1].contains(&directory))
}

/// What is done to files, or asked of them.
#[derive(Clone, Copy, Debug)]
pub enum SerialOperation {
    /// The content of a file.
    Read(Path),
    /// A file with this content is there, made if there was none.
    Write(Path, u8),
    /// A byte goes to the end of a file.
    Append(Path, u8),
    /// A file is removed.
    Remove(Path),
    /// A file gets another name, which may be taken.
    Move(Path, Path),
    /// The names in a directory.
    List(&'static str),
    /// How many those are.
    Count(&'static str),
    /// The mode of a file.
    Mode(Path),
    /// It has another mode from then on.
    SetMode(Path, u32),
    /// An extended attribute of a file.
    Attribute(Path),
    /// It has another value from then on.
    SetAttribute(Path, u8),
}

fn path(random: &mut Random, dataset: usize) -> Path {
    (random.pick(&DIRECTORIES[dataset]), random.pick(&NAMES))
}

impl SerialOperation {
    /// One in one of these datasets.
    pub fn random(random: &mut Random, datasets: &[usize]) -> SerialOperation {
        let dataset = random.pick(datasets);
        let (path_of, value) = (path(random, dataset), b'a' + random.below(26) as u8);
        match random.below(13) {
            0 | 1 => SerialOperation::Read(path_of),
            2 | 3 => SerialOperation::Write(path_of, value),
            4 | 5 => SerialOperation::Append(path_of, value),
            6 => SerialOperation::Remove(path_of),
            7 => SerialOperation::Move(path_of, path(random, dataset)),
            8 => SerialOperation::List(path_of.0),
            9 => SerialOperation::Count(path_of.0),
            10 => SerialOperation::Mode(path_of),
            11 => SerialOperation::SetMode(path_of, random.pick(&[0o600, 0o644])),
            _ if random.once_in(2) => SerialOperation::Attribute(path_of),
            _ => SerialOperation::SetAttribute(path_of, value),
        }
    }

    /// The dataset that it is in.
    pub fn dataset(self) -> usize {
        match self {
            SerialOperation::Read(path)
            | SerialOperation::Write(path, _)
            | SerialOperation::Append(path, _)
            | SerialOperation::Remove(path)
            | SerialOperation::Move(path, _)
            | SerialOperation::Mode(path)
            | SerialOperation::SetMode(path, _)
            | SerialOperation::Attribute(path)
            | SerialOperation::SetAttribute(path, _) => dataset_of(path.0),
            SerialOperation::List(directory) | SerialOperation::Count(directory) => {
                dataset_of(directory)
            }
        }
    }
}

/// A file, as the model has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerialFile {
    content: Vec<u8>,
    mode: u32,
    attribute: Vec<u8>,
}

/// The state of all datasets, as plain as can be.
pub type SerialModel = BTreeMap<Path, SerialFile>;

const NEW_MODE: u32 = 0o644;

fn none() -> String {
    "none".to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Does it on the model; returns what it answers.
pub fn run_on_model(model: &mut SerialModel, operation: SerialOperation) -> String {
    let names = |model: &SerialModel, directory: &str| -> Vec<&str> {
        model.keys().filter(|path| path.0 == directory).map(|path| path.1).collect()
    };
    let change = |file: Option<&mut SerialFile>, change: &dyn Fn(&mut SerialFile)| {
        file.map_or_else(none, |file| {
            change(file);
            "done".to_owned()
        })
    };
    match operation {
        SerialOperation::Read(path) => {
            model.get(&path).map_or_else(none, |file| text(&file.content))
        }
        SerialOperation::Write(path, byte) => {
            let new = || SerialFile { mode: NEW_MODE, ..SerialFile::default() };
            model.entry(path).or_insert_with(new).content = vec![byte; 3];
            "done".to_owned()
        }
        SerialOperation::Append(path, byte) => {
            change(model.get_mut(&path), &|file| file.content.push(byte))
        }
        SerialOperation::Remove(path) => {
            model.remove(&path).map_or_else(none, |_| "done".to_owned())
        }
        SerialOperation::Move(from, to) => match model.get(&from).cloned() {
            None => none(),
            Some(file) => {
                model.remove(&from);
                model.insert(to, file);
                "done".to_owned()
            }
        },
        SerialOperation::List(directory) => names(model, directory).join(" "),
        SerialOperation::Count(directory) => names(model, directory).len().to_string(),
        SerialOperation::Mode(path) => {
            model.get(&path).map_or_else(none, |file| file.mode.to_string())
        }
        SerialOperation::SetMode(path, mode) => {
            change(model.get_mut(&path), &|file| file.mode = mode)
        }
        SerialOperation::Attribute(path) => {
            model.get(&path).map_or_else(none, |file| text(&file.attribute))
        }
        SerialOperation::SetAttribute(path, byte) => {
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

/// Does it on a file system; returns what it answers.
///
/// # Panics
/// If the file system refuses what its state allows.
pub fn run_on_files(files: &dyn FileSystem, operation: SerialOperation) -> String {
    match operation {
        SerialOperation::Read(path) => file(files, path).map_or_else(none, |ino| read(files, ino)),
        SerialOperation::Write(path, byte) => {
            let ino = file(files, path).unwrap_or_else(|| make(files, path));
            set(files, ino, SetAttributes { size: Some(0), ..SetAttributes::default() });
            write(files, ino, 0, &[byte; 3]);
            "done".to_owned()
        }
        SerialOperation::Append(path, byte) => change(files, path, &|ino| {
            let size = files.attributes(ino).unwrap().size;
            write(files, ino, size, &[byte]);
        }),
        SerialOperation::Remove(path) => change(files, path, &|_| {
            files.unlink(directory(files, path.0), name(path.1)).unwrap();
        }),
        SerialOperation::Move(from, to) => change(files, from, &|_| {
            let (old, new) = (directory(files, from.0), directory(files, to.0));
            let (names, mode) = ([name(from.1), name(to.1)], RenameMode::Replace);
            files.rename(CALLER, old, names[0], new, names[1], mode).unwrap();
        }),
        SerialOperation::List(of) => list(files, of).join(" "),
        SerialOperation::Count(of) => {
            files.attributes(directory(files, of)).unwrap().size.to_string()
        }
        SerialOperation::Mode(path) => file(files, path)
            .map_or_else(none, |ino| files.attributes(ino).unwrap().permissions.to_string()),
        SerialOperation::SetMode(path, mode) => change(files, path, &|ino| {
            set(files, ino, SetAttributes { permissions: Some(mode), ..SetAttributes::default() });
        }),
        SerialOperation::Attribute(path) => file(files, path)
            .map_or_else(none, |ino| text(&files.xattr(ino, ATTRIBUTE).unwrap_or_default())),
        SerialOperation::SetAttribute(path, byte) => change(files, path, &|ino| {
            files.set_xattr(ino, ATTRIBUTE, &[byte], XattrMode::Any).unwrap();
        }),
    }
}

/// Makes the directories of a dataset.
///
/// # Panics
/// If the file system refuses that.
pub fn make_directories(dataset: usize, files: &dyn FileSystem) {
    for text in DIRECTORIES[dataset] {
        let node = NewNode::Directory { permissions: 0o755 };
        let made = files.create(CALLER, Ino::ROOT, name(text), node).unwrap();
        files.forget(made.ino, 1);
    }
}

/// Adds the whole state of a dataset to that of others.
///
/// # Panics
/// If the file system cannot be read.
pub fn add_state_of(dataset: usize, files: &dyn FileSystem, state: &mut SerialModel) {
    for directory in DIRECTORIES[dataset] {
        for name in NAMES {
            let Some(ino) = file(files, (directory, name)) else { continue };
            let found = SerialFile {
                content: read(files, ino).into_bytes(),
                mode: files.attributes(ino).unwrap().permissions,
                attribute: files.xattr(ino, ATTRIBUTE).unwrap_or_default(),
            };
            state.insert((directory, name), found);
        }
    }
}
