//! One step of a workload, written down so that it means the same on every file system.

use crate::operation::Operation;
use crate::random::pattern;
use marram_vfs::{
    Allocate, Caller, Error, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result,
    SetAttributes, SyncScope, WriteOptions, XattrMode,
};

/// The caller of every operation.
const NOBODY: Caller = Caller { uid: 0, gid: 0 };

/// A file or directory: a path from the root (`A/f`; the root is empty), or the held one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// By its path.
    At(&'static str),
    /// The inode that [`Change::Hold`] or [`Change::CreateHeld`] keeps open.
    Held,
}

/// A change of a file system: one batch, or a promise that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names and fields are those of the calls that they stand for")]
pub enum Change {
    Create(&'static str),
    CreateHeld(&'static str),
    Hold(&'static str),
    LetGo,
    Write { file: File, offset: u64, len: usize, seed: u64 },
    Append { file: File, len: usize, seed: u64 },
    Resize { file: File, size: u64 },
    Allocate { file: File, how: Allocate, offset: u64, len: u64 },
    Copy { from: &'static str, to: &'static str, len: u64 },
    Link(File, &'static str),
    Symlink(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str, RenameMode),
    MakeDirectory(&'static str),
    RemoveDirectory(&'static str),
    SetPermissions(File, u32),
    SetXattr { file: File, len: usize },
    RemoveXattr(File),
    Sync(File, SyncScope),
    SyncAll,
}

/// A change of what datasets and snapshots there are: part of one commit. Sources are named as
/// users name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Administration {
    /// Keep the present state of a dataset: `root@s`, `root@t`, `c@s`.
    Snapshot(&'static str),
    /// Make the dataset `c` from `root@s`.
    Clone,
    /// Destroy a snapshot, the clone with its snapshots, or the fork with its base.
    Destroy(&'static str),
    /// Make the fork `k` of the root dataset, with its base `root@fork:k`.
    Fork,
    /// Bring what the fork has changed into the root dataset, unless both changed the same.
    Merge,
    /// Let the root dataset go on from `root@s`; `root@before` keeps the state before.
    Rollback,
    /// Let a directory of the root dataset, by its path, go back to what it was in `root@s`.
    DirectoryRollback(&'static str),
}

/// A step of a transaction, of which there is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Begin one on the root dataset: a fork in memory.
    Begin,
    /// Begin one on the root dataset and the clone, if there is one: forks of one moment.
    BeginOnBoth,
    /// Bring what it has changed into its datasets, all at once, unless something of that was
    /// changed there since it began; then it ends.
    Commit,
    /// End it, and nothing of it is left.
    Abort,
}

/// What is under way in a thread of its own; of each kind one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A commit, with or without an administrative operation in it.
    Commit,
    /// A frame of the intent log, for a sync.
    Frame,
}

/// One step of a workload. Each is atomic, and all but [`Action::Begin`] and [`Action::End`] count
/// as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A change of the root dataset.
    Root(Change),
    /// A change of the clone.
    InClone(Change),
    /// A change of the fork.
    InFork(Change),
    /// A change that only the transaction sees, of the root dataset.
    InTransaction(Change),
    /// The same of the clone, if the transaction is on both.
    InTransactionOnClone(Change),
    /// An operation of the generator on the root dataset.
    Drawn(Operation),
    /// What happens in the background: everything is committed.
    Commit,
    /// A change of datasets and snapshots.
    Administer(Administration),
    /// A transaction begins or ends.
    Transact(Transaction),
    /// A commit, an administrative operation or a sync of everything begins. It holds still before
    /// one of its writes or flushes, and what follows is done by other hands.
    Begin {
        /// What begins.
        action: Box<Action>,
        /// How many writes and flushes come before the one that waits.
        at: u64,
    },
    /// What is under way goes on to its end. So it does by itself if what follows had to wait for
    /// it.
    End(Turn),
}

impl Action {
    /// Whether everything before it, and itself, is durable when it has been done.
    pub fn promises(&self) -> bool {
        match self {
            Action::Root(change) | Action::InClone(change) | Action::InFork(change) => {
                matches!(change, Change::Sync(..) | Change::SyncAll)
            }
            Action::Drawn(operation) => {
                matches!(operation, Operation::Sync { .. } | Operation::SyncAll)
            }
            Action::Commit | Action::Administer(_) => true,
            Action::Transact(transaction) => *transaction == Transaction::Commit,
            // What it syncs becomes durable with its commit.
            Action::InTransaction(_)
            | Action::InTransactionOnClone(_)
            | Action::Begin { .. }
            | Action::End(_) => false,
        }
    }

    /// What it would have to wait for if that were under way already.
    pub fn turn(&self) -> Option<Turn> {
        match self {
            Action::Commit | Action::Administer(_) | Action::Transact(Transaction::Commit) => {
                Some(Turn::Commit)
            }
            Action::InTransaction(change) | Action::InTransactionOnClone(change)
                if matches!(change, Change::Sync(..) | Change::SyncAll) =>
            {
                Some(Turn::Frame)
            }
            _ if self.promises() => Some(Turn::Frame),
            _ => None,
        }
    }

    /// Whether it can be [begun](Action::Begin). Others wait for a merge and a rollback, which are
    /// done while nothing else is.
    pub fn can_begin(&self) -> bool {
        match self {
            Action::Administer(administration) => {
                use Administration::{DirectoryRollback, Merge, Rollback};
                !matches!(administration, Merge | Rollback | DirectoryRollback(_))
            }
            _ => matches!(self, Action::Commit | Action::Root(Change::SyncAll)),
        }
    }
}

/// A file system and the inode that is held open in it.
pub(crate) struct Hand<'a> {
    pub(crate) files: &'a dyn FileSystem,
    pub(crate) held: &'a mut Option<Ino>,
}

impl Hand<'_> {
    /// Does a change.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn change(&mut self, change: &Change) -> Result<()> {
        match *change {
            Change::Create(path) => {
                let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
                self.create(path, node)
            }
            Change::MakeDirectory(path) => {
                self.create(path, NewNode::Directory { permissions: 0o755 })
            }
            Change::Symlink(path) => self.create(path, NewNode::Symlink { target: b"A/f" }),
            Change::CreateHeld(directory) => {
                let parent = self.find(directory)?;
                let made = self.files.create_anonymous(NOBODY, parent, 0o600)?;
                self.keep(made.ino);
                Ok(())
            }
            Change::Hold(path) => {
                let ino = self.files.pin(self.find(path)?)?.ino;
                self.keep(ino);
                Ok(())
            }
            Change::LetGo => {
                self.let_go();
                Ok(())
            }
            Change::Link(..)
            | Change::Unlink(..)
            | Change::RemoveDirectory(..)
            | Change::Rename(..) => self.change_names(change),
            _ => self.change_file(change),
        }
    }

    fn change_names(&self, change: &Change) -> Result<()> {
        match *change {
            Change::Link(file, path) => {
                let ino = self.resolve(file)?;
                self.named(path, |parent, name| {
                    self.files.forget(self.files.link(ino, parent, name)?.ino, 1);
                    Ok(())
                })
            }
            Change::Unlink(path) => {
                self.named(path, |parent, name| self.files.unlink(parent, name))
            }
            Change::RemoveDirectory(path) => {
                self.named(path, |parent, name| self.files.remove_directory(parent, name))
            }
            Change::Rename(from, to, mode) => self.named(from, |parent, name| {
                self.named(to, |new_parent, new_name| {
                    self.files.rename(NOBODY, parent, name, new_parent, new_name, mode)
                })
            }),
            _ => unreachable!("{change:?} is not about names"),
        }
    }

    fn change_file(&self, change: &Change) -> Result<()> {
        let files = self.files;
        match *change {
            Change::Write { file, offset, len, seed } => {
                let bytes = pattern(seed, len);
                files.write(self.resolve(file)?, offset, &bytes, WriteOptions::default())
            }
            Change::Append { file, len, seed } => {
                let ino = self.resolve(file)?;
                let end = files.attributes(ino)?.size;
                files.write(ino, end, &pattern(seed, len), WriteOptions::default())
            }
            Change::Resize { file, size } => {
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                self.set(file, &set)
            }
            Change::SetPermissions(file, permissions) => {
                let permissions = Some(permissions);
                self.set(file, &SetAttributes { permissions, ..SetAttributes::default() })
            }
            Change::Allocate { file, how, offset, len } => {
                files.allocate(self.resolve(file)?, how, offset, len)
            }
            Change::Copy { from, to, len } => {
                files.copy_range(self.find(from)?, 0, self.find(to)?, 0, len).map(|_| ())
            }
            Change::SetXattr { file, len } => {
                let value = pattern(len as u64, len);
                files.set_xattr(self.resolve(file)?, b"user.a", &value, XattrMode::Any)
            }
            Change::RemoveXattr(file) => files.remove_xattr(self.resolve(file)?, b"user.a"),
            Change::Sync(file, scope) => files.sync(self.resolve(file)?, scope),
            Change::SyncAll => files.sync_all(),
            _ => unreachable!("{change:?} is not about a file"),
        }
    }

    fn set(&self, file: File, set: &SetAttributes) -> Result<()> {
        self.files.set_attributes(NOBODY, self.resolve(file)?, set).map(|_| ())
    }

    fn create(&self, path: &str, node: NewNode<'_>) -> Result<()> {
        self.named(path, |parent, name| {
            self.files.forget(self.files.create(NOBODY, parent, name, node)?.ino, 1);
            Ok(())
        })
    }

    fn keep(&mut self, ino: Ino) {
        self.let_go();
        *self.held = Some(ino);
    }

    fn let_go(&mut self) {
        if let Some(ino) = self.held.take() {
            self.files.forget(ino, 1);
        }
    }

    fn resolve(&self, file: File) -> Result<Ino> {
        match file {
            File::At(path) => self.find(path),
            File::Held => self.held.ok_or(Error::Stale),
        }
    }

    /// The inode at a path; nothing keeps it but its name.
    pub(crate) fn find(&self, path: &str) -> Result<Ino> {
        let mut ino = Ino::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            ino = self.files.lookup(ino, valid(name))?.ino;
            self.files.forget(ino, 1);
        }
        Ok(ino)
    }

    /// Calls with the directory of a path and the last name of it.
    fn named(&self, path: &str, call: impl FnOnce(Ino, Name<'_>) -> Result<()>) -> Result<()> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        call(self.find(directory)?, valid(name))
    }
}

fn valid(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).expect("the names of workloads are valid")
}
