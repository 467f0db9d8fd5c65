//! A directory and its fork, on a pool in memory.

use crate::git::{Blob, Files, Mode};
use crate::{Result, words};
use marram_device::{Device, MemoryDevice};
use marram_history::{Choice, Conflict, Direction, MergeOptions, MergeReport, MergeSides};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{
    Attributes, Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, Timestamp,
    WriteOptions,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Size of the device; only what is written takes memory.
const DEVICE_BYTES: usize = 2 << 30;
const NOBODY: Caller = Caller { uid: 0, gid: 0 };
/// Most entries that one call lists.
const ENTRIES_MAX: usize = 1_000;

/// A change of a tree. Directories on the way to a file are made; they stay when they are empty, as
/// git does not know of any.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A file is there with this, in place of what it held.
    Put(Vec<u8>, Mode, Blob),
    /// The same, by a new file that takes its name.
    Save(Vec<u8>, Mode, Blob),
    /// A name goes.
    Remove(Vec<u8>),
    /// A name is moved, of a directory too.
    Rename(Vec<u8>, Vec<u8>),
}

/// See the module.
pub(crate) struct Family {
    pool: Arc<Pool>,
    pub(crate) parent: Tree,
}

/// A file system with paths.
pub(crate) struct Tree {
    posix: Arc<Posix>,
    /// Contents as they were read last, with size and the time of the last change: a file in which
    /// these are the same is not read again.
    read: Mutex<HashMap<Ino, Known>>,
}

/// See [`Tree::read`].
#[derive(Clone)]
struct Known {
    size: u64,
    changed: Timestamp,
    content: Blob,
}

impl Family {
    /// An empty tree.
    pub(crate) fn new() -> Result<Family> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
        let options = CreateOptions {
            label: "merges".to_owned(),
            properties: Properties::default(),
            pool_id: [5; 16],
            secret: 7,
            now_seconds: 1_700_000_000,
        };
        create(&[Arc::clone(&device)], &options).map_err(words)?;
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).map_err(words)?;
        let parent = Tree::open(&pool, "root")?;
        Ok(Family { pool, parent })
    }

    /// A fork of all that there is now.
    pub(crate) fn fork(&self) -> Result<Tree> {
        let name = "fork".parse().map_err(words)?;
        self.pool.fork(&DatasetName::root(), &name, Ino::ROOT.0).map_err(words)?;
        let fork = Tree::open(&self.pool, "fork")?;
        *fork.read.lock().map_err(words)? = self.parent.read.lock().map_err(words)?.clone();
        Ok(fork)
    }

    /// Destroys the fork, which nobody has open any more, and gives back its space.
    pub(crate) fn drop_fork(&self) -> Result<()> {
        self.pool.destroy(&"fork".parse().map_err(words)?, false).map_err(words)?;
        while self.pool.reclaim_step().map_err(words)? {}
        Ok(())
    }

    /// Merges the fork, lines of texts too; of what is in conflict the parent's side stays.
    pub(crate) fn merge(&self) -> Result<MergeReport> {
        let dataset = DatasetName::root();
        let (base, fork): (Source, Source) =
            ("root@fork:fork".parse().map_err(words)?, "fork".parse().map_err(words)?);
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
        let choose = |_: &Conflict| Choice::Ours;
        let options = MergeOptions { text: true, choose: &choose, ..MergeOptions::default() };
        marram_history::merge(&*self.parent.posix, &*self.pool, sides, &options).map_err(words)
    }

    /// Brings what one side of the branch has changed into the other one, `into`. What is in
    /// conflict is decided by `choice`, or for what is there if that cannot be.
    pub(crate) fn bring(
        &self,
        into: &Tree,
        direction: Direction,
        choice: Choice,
    ) -> Result<MergeReport> {
        let name = "fork".parse().map_err(words)?;
        let bring = |choice| {
            let choose = move |_: &Conflict| choice;
            let options = MergeOptions { text: true, choose: &choose, ..MergeOptions::default() };
            let branch = (&name, direction);
            marram_history::bring_across(&*into.posix, &*self.pool, branch, &options).map_err(words)
        };
        let report = bring(choice)?;
        if report.applied { Ok(report) } else { bring(Choice::Ours) }
    }
}

impl Tree {
    fn open(pool: &Pool, source: &str) -> Result<Tree> {
        let view = pool.open(&source.parse().map_err(words)?).map_err(words)?;
        let posix = Arc::new(Posix::new(view, PosixOptions::default()).map_err(words)?);
        Ok(Tree { posix, read: Mutex::default() })
    }

    /// Does one change.
    pub(crate) fn apply(&self, change: &Change) -> Result<()> {
        let done = match change {
            Change::Put(path, mode, content) => self.put(path, *mode, content),
            Change::Save(path, mode, content) => {
                let saved = [path.as_slice(), b".saved"].concat();
                self.put(&saved, *mode, content).and_then(|()| self.rename(&saved, path))
            }
            Change::Remove(path) => self.remove(path),
            Change::Rename(from, to) => self.rename(from, to),
        };
        done.map_err(|error| format!("{}: {error}", change.path()))
    }

    /// All files. Those that have not changed since the last time are not read again, unless
    /// `again` says so.
    pub(crate) fn files(&self, again: bool) -> Result<Files> {
        let mut files = Files::new();
        let known = std::mem::take(&mut *self.read.lock().map_err(words)?);
        let known = if again { HashMap::new() } else { known };
        let mut read = HashMap::new();
        self.list(Ino::ROOT, b"", (&known, &mut read), &mut files).map_err(words)?;
        *self.read.lock().map_err(words)? = read;
        Ok(files)
    }

    fn find(&self, path: &[u8]) -> marram_vfs::Result<Attributes> {
        let mut found = self.posix.attributes(Ino::ROOT)?;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            found = self.posix.lookup(found.ino, Name::new(part)?)?;
            self.posix.forget(found.ino, 1);
        }
        Ok(found)
    }

    fn split<'p>(&self, path: &'p [u8]) -> marram_vfs::Result<(Ino, Name<'p>)> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = match cut {
            Some(cut) => (&path[..cut], &path[cut + 1..]),
            None => (&b""[..], path),
        };
        let ino = match self.find(directory) {
            Ok(found) if found.kind == Kind::Directory => found.ino,
            _ => {
                let node = NewNode::Directory { permissions: 0o755 };
                self.make(directory, node)?
            }
        };
        Ok((ino, Name::new(name)?))
    }

    fn make(&self, path: &[u8], node: NewNode<'_>) -> marram_vfs::Result<Ino> {
        let (directory, name) = self.split(path)?;
        let made = self.posix.create(NOBODY, directory, name, node)?;
        self.posix.forget(made.ino, 1);
        Ok(made.ino)
    }

    fn put(&self, path: &[u8], mode: Mode, content: &[u8]) -> marram_vfs::Result<()> {
        let mut found = self.find(path).ok().map(|found| (found.ino, found.kind));
        match found {
            Some((_, Kind::Regular)) if mode != Mode::Symlink => (),
            Some((_, Kind::Directory)) => {
                self.remove_empty(path)?;
                found = None;
            }
            Some(_) => {
                self.remove(path)?;
                found = None;
            }
            None => (),
        }
        if mode == Mode::Symlink {
            return self.make(path, NewNode::Symlink { target: content }).map(|_| ());
        }
        let permissions = if mode == Mode::Executable { 0o755 } else { 0o644 };
        let ino = match found {
            Some((ino, _)) => ino,
            None => {
                let node = NewNode::Node { kind: Kind::Regular, permissions, device: 0 };
                self.make(path, node)?
            }
        };
        let set = SetAttributes {
            size: Some(content.len() as u64),
            permissions: Some(permissions),
            ..SetAttributes::default()
        };
        self.posix.set_attributes(NOBODY, ino, &set)?;
        self.posix.write(ino, 0, content, WriteOptions::default())
    }

    fn remove(&self, path: &[u8]) -> marram_vfs::Result<()> {
        let (directory, name) = self.split(path)?;
        self.posix.unlink(directory, name)
    }

    /// Removes a directory with nothing in it but directories.
    fn remove_empty(&self, path: &[u8]) -> marram_vfs::Result<()> {
        for (name, _) in self.names(self.find(path)?.ino)? {
            self.remove_empty(&[path, b"/", &name].concat())?;
        }
        let (directory, name) = self.split(path)?;
        self.posix.remove_directory(directory, name)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> marram_vfs::Result<()> {
        if self.find(to).is_ok_and(|found| found.kind == Kind::Directory) {
            self.remove_empty(to)?;
        }
        let ((old, name), (new, new_name)) = (self.split(from)?, self.split(to)?);
        self.posix.rename(NOBODY, old, name, new, new_name, RenameMode::Replace)
    }

    fn content(&self, file: &Attributes) -> marram_vfs::Result<Blob> {
        let mut content = Vec::new();
        let len = usize::try_from(file.size).unwrap_or(usize::MAX);
        self.posix.read(file.ino, 0, len, &mut content)?;
        Ok(content.into())
    }

    fn names(&self, directory: Ino) -> marram_vfs::Result<Vec<(Vec<u8>, Ino)>> {
        let mut names = Vec::new();
        let mut after = 0;
        loop {
            let before = names.len();
            self.posix.read_directory(directory, after, false, &mut |entry| {
                after = entry.cookie;
                names.push((entry.name.to_vec(), entry.ino));
                names.len() - before < ENTRIES_MAX
            })?;
            if names.len() == before {
                return Ok(names);
            }
        }
    }

    fn list(
        &self,
        directory: Ino,
        path: &[u8],
        (known, read): (&HashMap<Ino, Known>, &mut HashMap<Ino, Known>),
        files: &mut Files,
    ) -> marram_vfs::Result<()> {
        for (name, ino) in self.names(directory)? {
            let path = if path.is_empty() { name } else { [path, b"/", &name].concat() };
            let found = self.posix.attributes(ino)?;
            match found.kind {
                Kind::Directory => self.list(ino, &path, (known, &mut *read), files)?,
                Kind::Symlink => {
                    files.insert(path, (Mode::Symlink, self.posix.read_link(ino)?.into()));
                }
                _ => {
                    let mode = match found.permissions & 0o100 {
                        0 => Mode::Plain,
                        _ => Mode::Executable,
                    };
                    let is_same =
                        |known: &&Known| (known.size, known.changed) == (found.size, found.changed);
                    let content = match known.get(&ino).filter(is_same) {
                        Some(known) => Arc::clone(&known.content),
                        None => self.content(&found)?,
                    };
                    let (size, changed) = (found.size, found.changed);
                    read.insert(ino, Known { size, changed, content: Arc::clone(&content) });
                    files.insert(path, (mode, content));
                }
            }
        }
        Ok(())
    }
}

impl Change {
    fn path(&self) -> String {
        let (Change::Put(path, ..)
        | Change::Save(path, ..)
        | Change::Remove(path)
        | Change::Rename(path, _)) = self;
        String::from_utf8_lossy(path).into_owned()
    }
}
