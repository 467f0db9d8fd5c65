//! What is known in memory, where only a test sees to it.

use super::{Pmem, PmemOptions};
use crate::memory::Memory;
use crate::memory::recorded::Recorded;
use crate::{NewImage, make};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Timestamp};

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };

fn new_files() -> Pmem {
    let medium = Recorded::new(vec![0; 1 << 20]);
    let new = NewImage {
        id: *b"0123456789abcdef",
        label: String::new(),
        now: Timestamp::default(),
        root_owner: USER,
    };
    make(&mut Memory::new(Box::new(medium.clone())), &new).unwrap();
    Pmem::open(Memory::new(Box::new(medium)), PmemOptions::default()).unwrap()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn names(files: &Pmem, directory: Ino) -> Vec<String> {
    let mut names = Vec::new();
    let mut note = |entry: marram_vfs::DirectoryEntry<'_>| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    };
    files.read_directory(directory, 0, false, &mut note).unwrap();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Two indexes that are too large together drop each other while a name is moved. The one of
/// the target is read anew when the name is there already.
#[test]
fn a_rename_between_directories_whose_indexes_are_dropped_leaves_the_neighbours() {
    let files = new_files();
    let make = |parent, text, node| files.create(USER, parent, name(text), node).unwrap().ino;
    let [from, to] = ["from", "to"].map(|text| make(Ino::ROOT, text, DIRECTORY));
    make(from, "moved", FILE);
    for text in ["first", "after", "other", "third"] {
        make(to, text, FILE);
    }
    files.unlink(to, name("first")).unwrap();
    {
        let mut state = files.locked();
        state.dataset.directories.clear();
        state.indexed_max = 1;
    }
    files.rename(USER, from, name("moved"), to, name("moved"), RenameMode::Replace).unwrap();
    make(to, "a-name-that-is-longer", FILE);
    make(to, "another-one-of-them", FILE);
    let all = ["a-name-that-is-longer", "after", "another-one-of-them", "moved", "other", "third"];
    assert_eq!(names(&files, to), all);
    files.audit().unwrap();
}

/// The place of a new inode may have one, if the image does not say how many numbers it has.
#[test]
fn a_number_that_is_in_use_is_not_given_again() {
    let files = new_files();
    let old = files.create(USER, Ino::ROOT, name("old"), FILE).unwrap().ino;
    {
        let mut state = files.locked();
        state.dataset.numbers = old.0..old.0 + 1;
    }
    assert!(files.create(USER, Ino::ROOT, name("new"), FILE).is_err());
    assert_eq!(files.lookup(Ino::ROOT, name("old")).unwrap().ino, old);
}
