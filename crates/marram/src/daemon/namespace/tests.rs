//! The namespace on a store in memory.

use super::{Catalogue, Namespace, Opened};
use crate::engine::home::ControlDirectory;
use crate::engine::members;
use marram_posix::{Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{
    Attributes, Caller, Copying, Error, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result,
    Sharing, Timestamp,
};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };

/// All snapshots of the root dataset, and all other datasets as forks.
struct Shown(Arc<MemoryStore>);

impl Catalogue for Shown {
    fn names(&self, directory: ControlDirectory) -> Result<Vec<String>> {
        let sources = self.0.list().unwrap().into_iter().map(|report| report.source);
        let sources = sources.filter(|source| !source.is_own());
        let name = |source: Source| match directory {
            ControlDirectory::Snapshots => source.snapshot,
            _ => source.snapshot.is_none().then(|| source.dataset.to_string()),
        };
        Ok(sources.filter_map(name).collect())
    }

    fn users(&self) -> Result<BTreeSet<u32>> {
        Ok(BTreeSet::from([1000]))
    }

    fn has_directory(&self, name: &str, ino: Ino, created: Timestamp) -> Result<bool> {
        let source = format!("root@{name}").parse().unwrap();
        members::has_directory(&*self.0, &source, ino, created)
    }

    fn open(&self, directory: ControlDirectory, name: &str) -> Result<Opened> {
        let text = match directory {
            ControlDirectory::Snapshots => format!("root@{name}"),
            _ => name.to_owned(),
        };
        let source: Source = text.parse().map_err(|_| Error::NotFound)?;
        let reports = self.0.list().unwrap();
        let report = reports.iter().find(|report| report.source == source);
        let root = Ino(report.ok_or(Error::NotFound)?.root_object);
        let volume = open(&self.0, &source, root);
        Ok(Opened { source, volume, root, mark: 7, _hold: Box::new(()) })
    }
}

fn open(store: &MemoryStore, source: &Source, root: Ino) -> Arc<Posix> {
    let view = store.open(source).unwrap();
    Arc::new(Posix::new(view, PosixOptions { root, ..PosixOptions::default() }).unwrap())
}

/// A namespace over a dataset with the file `d/f`, a snapshot `s` and a fork `copy` of `d`.
pub(super) struct Bench {
    pub(super) store: Arc<MemoryStore>,
    pub(super) files: Namespace,
    pub(super) folder: Ino,
}

pub(super) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

impl Bench {
    pub(super) fn new() -> Bench {
        let store = Arc::new(MemoryStore::default());
        let root = Source::live(DatasetName::root());
        store.set_property(&root.dataset, "acl", Some("posix")).unwrap();
        let base = open(&store, &root, Ino::ROOT);
        let folder = NewNode::Directory { permissions: 0o755 };
        let folder = base.create(ROOT_USER, Ino::ROOT, name("d"), folder).unwrap().ino;
        let control: Box<dyn Catalogue> = Box::new(Shown(Arc::clone(&store)));
        let files = Namespace::new(base, Ino::ROOT, Some((control, ROOT_USER)));
        let bench = Bench { store, files, folder };
        bench.make(folder, "f", b"before");
        bench.store.snapshot(&DatasetName::root(), "s").unwrap();
        bench.store.fork(&DatasetName::root(), &"copy".parse().unwrap(), folder.0).unwrap();
        bench
    }

    pub(super) fn make(&self, parent: Ino, file: &str, content: &[u8]) -> Ino {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let made = self.files.create(ROOT_USER, parent, name(file), node).unwrap();
        self.files.write(made.ino, 0, content, Default::default()).unwrap();
        made.ino
    }

    pub(super) fn find(&self, path: &str) -> Result<Attributes> {
        let mut found = self.files.attributes(Ino::ROOT)?;
        for part in path.split('/') {
            found = self.files.lookup(found.ino, name(part))?;
        }
        Ok(found)
    }

    pub(super) fn read(&self, ino: Ino) -> Vec<u8> {
        let mut out = Vec::new();
        self.files.read(ino, 0, 100, &mut out).unwrap();
        out
    }

    pub(super) fn names(&self, ino: Ino) -> Vec<String> {
        let mut names = Vec::new();
        let mut visit = |entry: marram_vfs::DirectoryEntry<'_>| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        };
        self.files.read_directory(ino, 0, false, &mut visit).unwrap();
        names.sort();
        names
    }
}

#[test]
fn what_belongs_to_a_dataset_is_found_but_not_listed() {
    let bench = Bench::new();
    assert_eq!(bench.names(Ino::ROOT), ["d"]);
    let hidden = bench.find(".marram").unwrap().ino;
    assert_eq!(bench.names(hidden), ["forks", "snapshots", "users"]);
    assert!(bench.names(bench.find(".marram/snapshots").unwrap().ino).contains(&"s".into()));
    let file = bench.find(".marram/snapshots/s/d/f").unwrap();
    let forked = bench.find(".marram/forks/copy/f").unwrap();
    let live = bench.find("d/f").unwrap();
    assert!(file.ino != live.ino && forked.ino != live.ino && file.ino != forked.ino);
    assert_eq!(bench.read(file.ino), b"before");
    assert_eq!(bench.find(".marram/snapshots/t"), Err(Error::NotFound));
    assert_eq!(bench.find(".marram/other"), Err(Error::NotFound));
    let directory = bench.files.parent(bench.find(".marram/forks/copy").unwrap().ino).unwrap();
    assert_eq!(directory.ino, bench.find(".marram/forks").unwrap().ino);
    assert_eq!(bench.files.parent(hidden).unwrap().ino, Ino::ROOT);
}

#[test]
fn each_member_is_changed_for_itself_and_no_name_crosses() {
    let bench = Bench::new();
    let forked = bench.find(".marram/forks/copy/f").unwrap().ino;
    bench.files.write(forked, 0, b"FORK", Default::default()).unwrap();
    assert_eq!(bench.read(forked), b"FORKre");
    let live = bench.find("d/f").unwrap().ino;
    assert_eq!(bench.read(live), b"before");
    let kept = bench.find(".marram/snapshots/s/d/f").unwrap().ino;
    let written = bench.files.write(kept, 0, b"x", Default::default());
    assert_eq!(written, Err(Error::ReadOnly));

    let copy = bench.find(".marram/forks/copy").unwrap().ino;
    let crossed = bench.files.link(live, copy, name("g"));
    assert_eq!(crossed, Err(Error::CrossDevice));
    let (from, to) = (name("f"), name("g"));
    let rename = |parent, new_parent| {
        bench.files.rename(ROOT_USER, parent, from, new_parent, to, RenameMode::Replace)
    };
    assert_eq!(rename(copy, bench.folder), Err(Error::CrossDevice));
    assert_eq!(rename(bench.folder, copy), Err(Error::CrossDevice));
    assert_eq!(bench.files.copy_range(live, 2, kept, 0, 3), Err(Error::ReadOnly));
    assert_eq!(bench.files.copy_range(live, 2, forked, 0, 3), Ok(3));
    assert_eq!(bench.read(forked), b"forKre");
    assert_eq!(bench.files.copy_range(kept, 0, live, 6, 100), Ok(6));
    assert_eq!(bench.read(live), b"beforebefore");
    // What no commit has written is committed first.
    assert_eq!(bench.files.share_range(live, 0, forked, 3, 12), Ok(12));
    assert_eq!(bench.read(forked), b"forbeforebefore");
    assert_eq!(bench.files.share_range(live, 0, kept, 0, 3), Err(Error::ReadOnly));
    let directory = bench.find(".marram/forks").unwrap().ino;
    assert_eq!(bench.files.remove_directory(directory, name("copy")), Err(Error::NotPermitted));
    let folder = NewNode::Directory { permissions: 0o755 };
    let made = bench.files.create(ROOT_USER, directory, name("new"), folder);
    assert_eq!(made, Err(Error::NotPermitted));
    let made = bench.files.create(ROOT_USER, Ino::ROOT, name(".marram"), folder);
    assert_eq!(made, Err(Error::Exists));
}

#[test]
fn a_member_is_closed_when_it_is_forgotten_and_its_slot_serves_another() {
    let bench = Bench::new();
    let root = bench.find(".marram/snapshots/s").unwrap();
    let folder = bench.files.lookup(root.ino, name("d")).unwrap();
    let opened = || bench.files.volumes().len() - 1;
    for _ in 0..20 {
        bench.files.close_unused();
    }
    assert_eq!(opened(), 1, "the kernel knows of it");
    bench.files.forget(root.ino, 1);
    bench.files.forget(folder.ino, 1);
    for _ in 0..20 {
        bench.files.close_unused();
    }
    assert_eq!(opened(), 0);
    assert_eq!(bench.files.attributes(root.ino), Err(Error::Stale));
    let copy = bench.find(".marram/forks/copy").unwrap();
    assert_eq!(copy.ino.0 >> 40, root.ino.0 >> 40, "the slot is used again");
}

#[test]
fn a_member_that_is_destroyed_is_stale_until_it_is_forgotten() {
    let bench = Bench::new();
    let source: Source = "root@s".parse().unwrap();
    let root = bench.find(".marram/snapshots/s").unwrap();
    assert_eq!(bench.files.evict(&source).len(), 1);
    bench.store.destroy(&source, false).unwrap();
    assert_eq!(bench.files.attributes(root.ino), Err(Error::Stale));
    assert_eq!(bench.find(".marram/snapshots/s"), Err(Error::NotFound));
    let copy = bench.find(".marram/forks/copy").unwrap();
    assert_ne!(copy.ino.0 >> 40, root.ino.0 >> 40, "somebody may still hold the number");
    bench.files.forget(root.ino, 1);
    bench.store.snapshot(&DatasetName::root(), "u").unwrap();
    let other = bench.find(".marram/snapshots/u").unwrap();
    assert_eq!(other.ino.0 >> 40, root.ino.0 >> 40);
}

#[test]
fn a_fork_that_is_mounted_alone_has_its_root_under_the_number_one() {
    let bench = Bench::new();
    let source = Source::live("copy".parse().unwrap());
    let base = open(&bench.store, &source, bench.folder);
    let alone = Namespace::new(base, bench.folder, None);
    let file = alone.lookup(Ino::ROOT, name("f")).unwrap();
    assert_eq!(alone.parent(Ino::ROOT).unwrap().ino, Ino::ROOT);
    assert_eq!(alone.attributes(Ino::ROOT).unwrap().kind, Kind::Directory);
    let mut seen = Vec::new();
    let mut visit = |entry: marram_vfs::DirectoryEntry<'_>| {
        seen.push((entry.name.to_vec(), entry.ino));
        true
    };
    alone.read_directory(Ino::ROOT, 0, false, &mut visit).unwrap();
    assert_eq!(seen, [(b"f".to_vec(), file.ino)]);
    assert_eq!(alone.lookup(Ino::ROOT, name(".marram")), Err(Error::NotFound));
    assert_eq!(alone.lookup(Ino::ROOT, name("d")), Err(Error::NotFound));
}
