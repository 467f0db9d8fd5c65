//! Keeps versions of a folder as snapshots of a home, as one on a server, and counts bytes.
//!
//! `versions FOLDER DATABASE [--in-place]`
//!
//! Each line of the input is the name of a version: the folder is brought into the home as it is
//! then, synced, and a snapshot of that name taken. The answer is a line: `version`, the name, the
//! bytes sent to the database up to now, and those received, with tabs between. At the end of the
//! input the first and the last version are compared with what they were, and `stored` and the
//! bytes of the database are the last line.
//!
//! A file that has changed is written anew and renamed over the old one, as editors do; with
//! `--in-place` pages that differ are overwritten, as databases and virtual machines do.
//!
//! Sent are keys and values of rows, and the keys of questions; received are the rows of answers.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::{Cluster, Database, NewStore, OpenOptions, make};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Result, Store};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, WriteOptions,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROOT: Caller = Caller { uid: 0, gid: 0 };
/// Bytes of one write.
const WRITE_BYTES: usize = 128 << 10;
/// Bytes of one read, which is that of a whole file.
const READ_BYTES: usize = 256 << 20;
/// What is overwritten at least, in place.
const PAGE_BYTES: usize = 4096;

/// A database that counts what goes to it, as if it were behind a network.
struct Counted {
    inner: SqliteDatabase,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counted {
    fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn send_changes(&self, changes: &[Change]) {
        let bytes = |it: &Change| it.key.len() + it.value.as_ref().map_or(0, Vec::len);
        self.send(changes.iter().map(bytes).sum());
    }

    fn send_guard(&self, guard: &Guard) {
        self.send(guard.key.len() + guard.value.as_ref().map_or(0, Vec::len));
    }
}

impl Database for Counted {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.send(key.len() + value.len());
        self.inner.insert(table, key, value)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.send_changes(changes);
        self.inner.write(changes)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        self.send(ranges.iter().map(|range| range.from.len() + range.to.len()).sum());
        let found = self.inner.read(ranges)?;
        let bytes: usize = found.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(found)
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        self.send(keys.iter().map(Vec::len).sum());
        self.received.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.inner.has(table, keys)
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.send_guard(guard);
        self.send(key.len() + value.len());
        self.inner.insert_if(guard, table, key, value)
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        self.send_guard(guard);
        self.send_changes(changes);
        self.inner.write_if(guard, changes)
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn engine(&self) -> &'static str {
        "counted"
    }
}

/// What a version has: the hash of each file, by its path.
type Version = BTreeMap<PathBuf, blake3::Hash>;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let in_place = words.iter().any(|word| word == "--in-place");
    words.retain(|word| word != "--in-place");
    let [folder, file] = &words[..] else { panic!("versions FOLDER DATABASE [--in-place]") };
    let inner = SqliteDatabase::create(Path::new(file)).unwrap();
    let counted = Arc::new(Counted { inner, sent: AtomicU64::new(0), received: AtomicU64::new(0) });
    let cluster = opened(&counted);
    let home = Home { folder: folder.into(), in_place, files: files(&cluster, "root") };
    let mut versions: Vec<(String, Version)> = Vec::new();
    for name in std::io::stdin().lock().lines().map(|line| line.unwrap()) {
        let before = versions.last().map(|(_, version)| version.clone()).unwrap_or_default();
        let version = home.take(&before);
        home.files.sync_all().unwrap();
        cluster.snapshot(&"root".parse().unwrap(), &name).unwrap();
        let [sent, received] =
            [&counted.sent, &counted.received].map(|it| it.load(Ordering::Relaxed));
        println!("version\t{name}\t{sent}\t{received}");
        versions.push((name, version));
    }
    for (name, version) in versions.first().into_iter().chain(versions.last()) {
        let kept = files(&cluster, &format!("root@{name}"));
        let found = all(&kept, Ino::ROOT, Path::new(""));
        assert!(found == *version, "the version {name} is as it was");
    }
    drop(home);
    cluster.close().unwrap();
    println!("stored\t{}", counted.bytes().unwrap());
}

fn opened(counted: &Arc<Counted>) -> Cluster {
    let database: Arc<dyn Database> = Arc::clone(counted) as Arc<dyn Database>;
    let new = NewStore { id: [1; 16], key: [2; 32], now: 1, objects: None };
    make(Arc::clone(&database), &new).unwrap();
    let options = OpenOptions {
        session: [3; 16],
        name: "versions".to_owned(),
        judge: Arc::new(|_| Ok(Vec::new())),
        read_only: false,
        cache_bytes: 256 << 20,
        clock: Arc::new(|| 1),
        space: None,
        bucket: None,
    };
    let cluster = Cluster::open(database, options).unwrap();
    cluster.set_property(&"root".parse().unwrap(), "undo", Some("off")).unwrap();
    cluster
}

fn files(cluster: &Cluster, source: &str) -> Posix {
    let view = cluster.open(&source.parse().unwrap()).unwrap();
    Posix::new(view, PosixOptions::default()).unwrap()
}

/// The home, and the folder that is brought into it.
struct Home {
    folder: PathBuf,
    in_place: bool,
    files: Posix,
}

impl Home {
    /// Brings the folder into the home as it is now, where it differs from the version before.
    fn take(&self, before: &Version) -> Version {
        let mut version = Version::new();
        let mut found = Vec::new();
        paths(&self.folder, Path::new(""), &mut found);
        for path in found {
            let content = fs::read(self.folder.join(&path)).unwrap();
            let hash = blake3::hash(&content);
            if before.get(&path) != Some(&hash) {
                self.write(&path, &content, before.contains_key(&path));
            }
            version.insert(path, hash);
        }
        for path in before.keys().filter(|path| !version.contains_key(*path)) {
            let parent = self.parent(path);
            self.files.unlink(parent, last(path)).unwrap();
        }
        version
    }

    fn write(&self, path: &Path, content: &[u8], is_there: bool) {
        let parent = self.parent(path);
        if self.in_place && is_there {
            let ino = self.files.lookup(parent, last(path)).unwrap().ino;
            self.overwrite(ino, content);
            return self.files.forget(ino, 1);
        }
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let new = Name::new(b".new").unwrap();
        let ino = self.files.create(ROOT, parent, new, node).unwrap().ino;
        for (number, part) in content.chunks(WRITE_BYTES).enumerate() {
            let at = (number * WRITE_BYTES) as u64;
            self.files.write(ino, at, part, WriteOptions::default()).unwrap();
        }
        self.files.rename(ROOT, parent, new, parent, last(path), RenameMode::Replace).unwrap();
        self.files.forget(ino, 1);
    }

    /// Writes the pages that differ.
    fn overwrite(&self, ino: Ino, content: &[u8]) {
        let mut old = Vec::new();
        self.files.read(ino, 0, READ_BYTES, &mut old).unwrap();
        for (number, page) in content.chunks(PAGE_BYTES).enumerate() {
            let at = number * PAGE_BYTES;
            if old.get(at..at + page.len()) != Some(page) {
                self.files.write(ino, at as u64, page, WriteOptions::default()).unwrap();
            }
        }
        if old.len() > content.len() {
            let size = Some(content.len() as u64);
            let set = SetAttributes { size, ..SetAttributes::default() };
            self.files.set_attributes(ROOT, ino, &set).unwrap();
        }
    }

    /// The directory of a file, made if it is not there.
    fn parent(&self, path: &Path) -> Ino {
        let folders = path.parent().into_iter().flat_map(Path::iter);
        folders.fold(Ino::ROOT, |at, name| {
            let name = Name::new(name.as_encoded_bytes()).unwrap();
            self.files.lookup(at, name).map_or_else(
                |_| {
                    let node = NewNode::Directory { permissions: 0o755 };
                    self.files.create(ROOT, at, name, node).unwrap().ino
                },
                |found| found.ino,
            )
        })
    }
}

fn last(path: &Path) -> Name<'_> {
    Name::new(path.file_name().unwrap().as_encoded_bytes()).unwrap()
}

/// The regular files below a folder, in order.
fn paths(folder: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(folder.join(below)).unwrap().map(|it| it.unwrap()).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            paths(folder, &path, found);
        } else if kind.is_file() {
            found.push(path);
        }
    }
}

/// What a snapshot has below a directory.
fn all(files: &Posix, directory: Ino, below: &Path) -> Version {
    let mut names = Vec::new();
    files
        .read_directory(directory, 0, false, &mut |entry| {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino, entry.kind));
            true
        })
        .unwrap();
    let mut version = Version::new();
    for (name, ino, kind) in names {
        let path = below.join(name);
        if kind == Kind::Directory {
            version.extend(all(files, ino, &path));
        } else {
            let mut content = Vec::new();
            files.read(ino, 0, READ_BYTES, &mut content).unwrap();
            version.insert(path, blake3::hash(&content));
        }
    }
    version
}
