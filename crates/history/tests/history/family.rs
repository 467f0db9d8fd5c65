//! A file system with a fork, and paths to say what is done to them.

use marram_history::{
    Choice, Conflict, ConflictKind, Difference, Direction, MergeOptions, MergeReport, MergeSides,
    What,
};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{
    Attributes, Caller, Clock, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result,
    SetAttributes, SteppedClock, WriteOptions, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const USER: Caller = Caller { uid: 1000, gid: 1000 };
const PLAIN: WriteOptions =
    WriteOptions { clear_privileges: false, keep_times: false, accepted: false, memory: None };

/// A file system with paths.
pub(crate) struct Tree(pub Arc<Posix>);

/// A parent and its fork.
pub(crate) struct Family {
    pub store: MemoryStore,
    pub clock: Arc<dyn Clock>,
    pub parent: Tree,
    pub fork: Tree,
    pub base: Source,
    pub root: Ino,
}

pub(crate) fn source(text: &str) -> Source {
    text.parse().unwrap()
}

pub(crate) fn open(store: &MemoryStore, name: &str, root: Ino, clock: &Arc<dyn Clock>) -> Tree {
    let options = PosixOptions {
        clock: Arc::clone(clock),
        access_times: AccessTimes::Never,
        root,
        ..PosixOptions::default()
    };
    let view = store.open(&source(name)).unwrap();
    Tree(Arc::new(Posix::new(view, options).unwrap()))
}

impl Family {
    /// A fork of the whole of what `prepare` makes.
    pub(crate) fn new(prepare: impl FnOnce(&Tree)) -> Family {
        Family::of(MemoryStore::new(), "/", prepare)
    }

    /// A fork of a directory of what `prepare` makes.
    pub(crate) fn of(store: MemoryStore, directory: &str, prepare: impl FnOnce(&Tree)) -> Family {
        let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
        let parent = open(&store, "root", Ino::ROOT, &clock);
        prepare(&parent);
        store.commit();
        let root = parent.find(directory).unwrap().ino;
        store.fork(&DatasetName::root(), &"fork".parse().unwrap(), root.0).unwrap();
        let fork = open(&store, "fork", root, &clock);
        Family { base: source("root@fork:fork"), store, clock, parent, fork, root }
    }

    pub(crate) fn merge_with(&self, options: &MergeOptions<'_>) -> Result<MergeReport> {
        let (dataset, fork) = (DatasetName::root(), source("fork"));
        let sides =
            MergeSides { dataset: &dataset, base: &self.base, fork: &fork, root: self.root };
        marram_history::merge(&*self.parent.0, &self.store, sides, options)
    }

    /// Merges, and expects that nothing stands in the way.
    pub(crate) fn merge(&self) -> MergeReport {
        let report = self.merge_with(&MergeOptions::default()).unwrap();
        assert_eq!(report.conflicts, [], "conflicts");
        assert!(report.applied);
        report
    }

    /// Brings what is new in the one into the other.
    pub(crate) fn bring(&self, direction: Direction, options: &MergeOptions<'_>) -> MergeReport {
        let into = match direction {
            Direction::Merge => &self.parent,
            Direction::Update => &self.fork,
        };
        let fork = "fork".parse().unwrap();
        marram_history::bring_across(&*into.0, &self.store, (&fork, direction), options).unwrap()
    }

    /// Brings what is new in the one into the other, and expects that nothing stands in the way;
    /// returns what has gone over.
    pub(crate) fn brings(&self, direction: Direction) -> Vec<String> {
        let report = self.bring(direction, &MergeOptions::default());
        assert_eq!(report.conflicts, [], "conflicts of {direction:?}");
        assert!(report.applied);
        report.differences.iter().map(line).collect()
    }

    /// Merges where that is refused; returns kind and path of each conflict.
    pub(crate) fn conflicts(&self) -> Vec<(ConflictKind, String)> {
        let before = self.parent.content();
        let report = self.merge_with(&MergeOptions::default()).unwrap();
        assert!(!report.applied);
        assert_eq!(self.parent.content(), before, "a refused merge changed something");
        let told = |conflict: &Conflict| {
            (conflict.kind, String::from_utf8_lossy(&conflict.path).into_owned())
        };
        report.conflicts.iter().map(told).collect()
    }

    /// Merges with one answer to all conflicts.
    pub(crate) fn merge_choosing(&self, choice: Choice) -> MergeReport {
        let choose = |_: &Conflict| choice;
        self.merge_with(&MergeOptions { choose: &choose, ..MergeOptions::default() }).unwrap()
    }

    /// What differs between two states, one line each.
    pub(crate) fn diff(&self, before: &str, after: &str) -> Vec<String> {
        self.diff_below(before, after, self.root).iter().map(line).collect()
    }

    /// What differs between two states below a directory.
    pub(crate) fn diff_below(&self, before: &str, after: &str, directory: Ino) -> Vec<Difference> {
        let mut all = Vec::new();
        let (before, after) = (source(before), source(after));
        marram_history::diff(&self.store, &before, &after, directory, &mut |difference| {
            all.push(difference);
            true
        })
        .unwrap();
        all
    }
}

/// A difference in words.
pub(crate) fn line(difference: &Difference) -> String {
    let path = String::from_utf8_lossy(&difference.path);
    let old = difference.old_path.as_deref().map(String::from_utf8_lossy);
    match &difference.what {
        What::Renamed => format!("renamed {} {path}", old.unwrap()),
        What::Content { ranges, old_size, new_size } => {
            format!("content {path} {ranges:?} {old_size} {new_size}")
        }
        What::Attributes(changes) => format!("attributes {path} {changes:?}"),
        What::Xattrs(changes) => {
            let name = |change: &marram_history::XattrChange| {
                String::from_utf8_lossy(&change.name).into_owned()
            };
            format!("xattrs {path} {:?}", changes.iter().map(name).collect::<Vec<_>>())
        }
        what => format!("{what:?} {path}").to_lowercase(),
    }
}

impl Tree {
    fn split<'p>(&self, path: &'p str) -> (Ino, Name<'p>) {
        let (directory, name) = path.rsplit_once('/').unwrap();
        (self.find(directory).unwrap().ino, Name::new(name.as_bytes()).unwrap())
    }

    pub(crate) fn find(&self, path: &str) -> Result<Attributes> {
        let mut found = self.0.attributes(self.root())?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            found = self.0.lookup(found.ino, Name::new(part.as_bytes()).unwrap())?;
            self.0.forget(found.ino, 1);
        }
        Ok(found)
    }

    fn root(&self) -> Ino {
        self.0.root_directory()
    }

    pub(crate) fn make(&self, path: &str, node: NewNode<'_>) -> Ino {
        let (directory, name) = self.split(path);
        let made = self.0.create(USER, directory, name, node).unwrap();
        self.0.forget(made.ino, 1);
        made.ino
    }

    pub(crate) fn directory(&self, path: &str) -> Ino {
        self.make(path, NewNode::Directory { permissions: 0o755 })
    }

    /// Makes a file, or writes over one from its beginning; the rest of it goes.
    pub(crate) fn file(&self, path: &str, content: &[u8]) -> Ino {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let ino = self.find(path).map_or_else(|_| self.make(path, node), |found| found.ino);
        self.write(path, 0, content);
        self.truncate(path, content.len() as u64);
        ino
    }

    pub(crate) fn write(&self, path: &str, offset: u64, content: &[u8]) {
        self.0.write(self.find(path).unwrap().ino, offset, content, PLAIN).unwrap();
    }

    pub(crate) fn set(&self, path: &str, set: SetAttributes) {
        self.0.set_attributes(USER, self.find(path).unwrap().ino, &set).unwrap();
    }

    pub(crate) fn truncate(&self, path: &str, size: u64) {
        self.set(path, SetAttributes { size: Some(size), ..SetAttributes::default() });
    }

    pub(crate) fn mode(&self, path: &str, permissions: u32) {
        self.set(path, SetAttributes { permissions: Some(permissions), ..Default::default() });
    }

    pub(crate) fn xattr(&self, path: &str, name: &str, value: &[u8]) {
        let ino = self.find(path).unwrap().ino;
        self.0.set_xattr(ino, name.as_bytes(), value, XattrMode::Any).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let ((a, from), (b, to)) = (self.split(from), self.split(to));
        self.0.rename(USER, a, from, b, to, RenameMode::Replace).unwrap();
    }

    pub(crate) fn link(&self, old: &str, new: &str) {
        let ino = self.find(old).unwrap().ino;
        let (directory, name) = self.split(new);
        self.0.link(ino, directory, name).unwrap();
        self.0.forget(ino, 1);
    }

    pub(crate) fn unlink(&self, path: &str) {
        let (directory, name) = self.split(path);
        self.0.unlink(directory, name).unwrap();
    }

    pub(crate) fn remove_directory(&self, path: &str) {
        let (directory, name) = self.split(path);
        self.0.remove_directory(directory, name).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        let found = self.find(path).unwrap();
        let mut out = Vec::new();
        self.0.read(found.ino, 0, usize::try_from(found.size).unwrap(), &mut out).unwrap();
        out
    }

    /// Saves a file as editors do: a new one takes its name.
    pub(crate) fn save(&self, path: &str, content: &[u8]) {
        let saved = format!("{path}.new");
        self.file(&saved, content);
        self.rename(&saved, path);
    }

    /// Every path with what is there.
    pub(crate) fn content(&self) -> BTreeMap<String, String> {
        content_of(&*self.0, self.root())
    }
}

/// Every path with what is there: attributes but no times, content, extended attributes.
pub(crate) fn content_of(files: &dyn FileSystem, root: Ino) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    list(files, root, "", &mut all);
    all
}

fn list(files: &dyn FileSystem, directory: Ino, path: &str, all: &mut BTreeMap<String, String>) {
    let mut entries = Vec::new();
    files
        .read_directory(directory, 0, false, &mut |entry| {
            entries.push((entry.ino, String::from_utf8_lossy(entry.name).into_owned()));
            true
        })
        .unwrap();
    for (ino, name) in entries {
        let path = format!("{path}/{name}");
        let found = files.attributes(ino).unwrap();
        let mut text = format!(
            "{:?} {:o} {} {} {} links {}",
            found.kind, found.permissions, found.uid, found.gid, found.device, found.links
        );
        match found.kind {
            Kind::Directory => list(files, ino, &path, all),
            Kind::Regular => {
                let mut out = Vec::new();
                let len = usize::try_from(found.size).unwrap();
                files.read(ino, 0, len, &mut out).unwrap();
                text += &format!(" size {len} {:x}", xxhash_rust::xxh3::xxh3_64(&out));
            }
            Kind::Symlink => text += &format!(" {:?}", files.read_link(ino).unwrap()),
            _ => (),
        }
        let mut names = files.list_xattrs(ino).unwrap();
        names.sort();
        for name in names {
            let value = files.xattr(ino, &name).unwrap();
            text += &format!(" {}={value:?}", String::from_utf8_lossy(&name));
        }
        all.insert(path, text);
    }
}
