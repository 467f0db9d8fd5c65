//! Where a file system under test lives.

use crate::branching::{Branching, Bringing};
use crate::clock::HistoryClock;
use marram_model::{Clash, Decisions, Difference, Model};
use marram_vfs::{Error, FileSystem, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Result of what a home does; an error is a failure of the test, in words.
pub type HomeResult<T> = Result<T, String>;

/// A state of the file system, or of its fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As it is now.
    Live,
    /// As a snapshot of this name has kept it.
    Kept(String),
    /// As the fork of this name is now.
    Fork(String),
}

/// What only some homes can do; nothing by default. A history uses what a home has. It asks for the
/// rest all the same, and expects [`marram_vfs::Error::NotSupported`] with nothing changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeCapabilities {
    /// A stop without a warning can take something away: [`Home::crash`]. A home without that is
    /// not asked for it.
    pub crash: bool,
    /// All can go back to a kept state: [`Home::roll_back`].
    pub rollback: bool,
    /// A directory can: [`Home::roll_back_directory`].
    pub directory_rollback: bool,
    /// States can be compared: [`Home::diff`].
    pub diff: bool,
    /// There are forks, which can be merged: [`Home::fork`].
    pub forks: bool,
}

/// Conflicts, with the paths at which they are.
pub type Clashes = BTreeSet<(Clash, Vec<u8>)>;

/// The answer of a home to what it may refuse.
pub type Answer<T> = HomeResult<marram_vfs::Result<T>>;

/// A place where one writable file system lives with its snapshots. The driver lets go of a file
/// system before it asks for a remount or a destruction of what it shows.
pub trait Home {
    /// The file system as it is mounted now.
    fn file_system(&self) -> Arc<dyn FileSystem>;

    /// What it can do beside the rest. The answer is the same at every call.
    fn capabilities(&self) -> HomeCapabilities;

    /// Unmounts and mounts again: everything stays, pins go.
    fn remount(&mut self) -> HomeResult<()>;

    /// Stops without a warning and mounts what is durable: the state of the last commit, sync,
    /// snapshot, clone or destruction.
    fn crash(&mut self) -> HomeResult<()> {
        Err("nothing that it has can be lost".to_owned())
    }

    /// Whether it may make everything durable at any time, without being asked.
    fn commits_by_itself(&self) -> bool {
        false
    }

    /// Writes everything to where it is durable. No caller sees a difference.
    fn commit(&mut self) -> HomeResult<()>;

    /// Keeps the present state under `name`.
    fn snapshot(&mut self, name: &str) -> HomeResult<()>;

    /// Opens a kept state; it refuses changes.
    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>>;

    /// Destroys a kept state.
    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()>;

    /// Lets all go back to a kept state, and keeps what it was as `keep`. Where the home can do
    /// that, no pin is held.
    fn roll_back(&mut self, _snapshot: &str, _keep: &str) -> Answer<()> {
        Ok(Err(Error::NotSupported))
    }

    /// What differs from one state to another, in any order; of forks that are not open.
    fn diff(&self, _before: &Moment, _after: &Moment) -> Answer<Vec<Difference>> {
        Ok(Err(Error::NotSupported))
    }

    /// Lets a directory of the file system go back to what it was in a kept state.
    fn roll_back_directory(&mut self, _snapshot: &str, _directory: Ino) -> Answer<()> {
        Ok(Err(Error::NotSupported))
    }

    /// Makes a writable file system that begins as the kept state `snapshot`, and opens it.
    fn clone_snapshot(&mut self, snapshot: &str, clone: &str) -> HomeResult<Arc<dyn FileSystem>>;

    /// Makes a writable file system that begins as the present state, and can be merged into it.
    fn fork(&mut self, _fork: &str) -> Answer<()> {
        Ok(Err(Error::NotSupported))
    }

    /// Opens what [`Home::fork`] made.
    fn open_fork(&self, fork: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Err(format!("no fork {fork}"))
    }

    /// Opens what a fork began as, to read it.
    fn open_origin(&self, fork: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Err(format!("no fork {fork}"))
    }

    /// Brings what has changed in a fork, which is not open, into the file system. Answers with the
    /// conflicts that are not decided; without any it is done.
    fn merge(&mut self, fork: &str, _decisions: &Decisions) -> Answer<Clashes> {
        Err(format!("no fork {fork}"))
    }

    /// The other way: brings what has changed in the file system into a fork that nobody has open.
    fn update(&mut self, fork: &str, _decisions: &Decisions) -> Answer<Clashes> {
        Err(format!("no fork {fork}"))
    }

    /// Destroys what [`Home::clone_snapshot`] or [`Home::fork`] made.
    fn destroy_clone(&mut self, clone: &str) -> HomeResult<()>;

    /// Checks whatever the home can check of itself; called when all operations have been
    /// compared.
    fn check(&mut self) -> HomeResult<()> {
        Ok(())
    }
}

/// A model as home: for tests of the driver itself.
pub struct ModelHome {
    live: Arc<Model>,
    kept: BTreeMap<String, KeptModel>,
    forks: BTreeMap<String, ForkedModel>,
    /// Counts what is kept, merged and updated.
    moments: u64,
}

struct KeptModel {
    model: Model,
    at: u64,
}

/// A fork, with what it has in common with the file system.
struct ForkedModel {
    model: Arc<Model>,
    branch: Branching,
}

impl ModelHome {
    /// An empty one.
    pub fn new(clock: Arc<HistoryClock>) -> ModelHome {
        let (kept, forks) = (BTreeMap::new(), BTreeMap::new());
        ModelHome { live: Arc::new(Model::new(clock)), kept, forks, moments: 0 }
    }

    fn kept(&self, name: &str) -> HomeResult<&Model> {
        let kept = self.kept.get(name).map(|kept| &kept.model);
        kept.ok_or_else(|| format!("no snapshot {name}"))
    }

    /// Merges a fork, or updates it.
    fn bring(&mut self, fork: &str, is_merge: bool, decisions: &Decisions) -> Answer<Clashes> {
        let at = self.next_moment();
        let fork = self.forks.get_mut(fork).ok_or_else(|| format!("no fork {fork}"))?;
        let (own, live) = (fork.model.snapshot(), self.live.snapshot());
        let (source, into) = if is_merge { (&own, &self.live) } else { (&live, &fork.model) };
        let bringing = Bringing { source, is_fork: is_merge, at };
        Ok(Ok(fork.branch.bring(bringing, into, decisions)))
    }

    fn next_moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    fn at(&self, moment: &Moment) -> HomeResult<&Model> {
        match moment {
            Moment::Live => Ok(&self.live),
            Moment::Kept(name) => self.kept(name),
            Moment::Fork(name) => Ok(&self.forked(name)?.model),
        }
    }

    fn forked(&self, name: &str) -> HomeResult<&ForkedModel> {
        self.forks.get(name).ok_or_else(|| format!("no fork {name}"))
    }
}

impl Home for ModelHome {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.live) as Arc<dyn FileSystem>
    }

    fn capabilities(&self) -> HomeCapabilities {
        let (rollback, directory_rollback) = (true, true);
        let (crash, diff, forks) = (false, true, true);
        HomeCapabilities { crash, rollback, directory_rollback, diff, forks }
    }

    fn remount(&mut self) -> HomeResult<()> {
        self.live.forget_all();
        Ok(())
    }

    fn commit(&mut self) -> HomeResult<()> {
        Ok(())
    }

    fn snapshot(&mut self, name: &str) -> HomeResult<()> {
        let kept = KeptModel { model: self.live.snapshot(), at: self.next_moment() };
        self.kept.insert(name.to_owned(), kept);
        Ok(())
    }

    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.kept(name)?.snapshot()))
    }

    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.kept(name)?;
        self.kept.remove(name);
        Ok(())
    }

    fn roll_back(&mut self, snapshot: &str, keep: &str) -> Answer<()> {
        let before = self.live.snapshot();
        let answer = self.live.roll_back(self.kept(snapshot)?);
        if answer.is_ok() {
            let at = self.kept[snapshot].at;
            self.forks.values_mut().for_each(|fork| fork.branch.goes_back(at));
            let kept = KeptModel { model: before, at: self.next_moment() };
            self.kept.insert(keep.to_owned(), kept);
        }
        Ok(answer)
    }

    fn diff(&self, before: &Moment, after: &Moment) -> Answer<Vec<Difference>> {
        let differences = self.at(before)?.diff(self.at(after)?);
        Ok(Ok(differences.into_iter().collect()))
    }

    fn roll_back_directory(&mut self, snapshot: &str, directory: Ino) -> Answer<()> {
        Ok(self.live.roll_back_directory(self.kept(snapshot)?, directory))
    }

    fn clone_snapshot(&mut self, snapshot: &str, _clone: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.kept(snapshot)?.fork()))
    }

    fn fork(&mut self, fork: &str) -> Answer<()> {
        let model = Arc::new(self.live.snapshot().fork());
        let at = self.next_moment();
        let branch = Branching::new(&self.live, at);
        self.forks.insert(fork.to_owned(), ForkedModel { model, branch });
        Ok(Ok(()))
    }

    fn open_fork(&self, fork: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::clone(&self.forked(fork)?.model) as Arc<dyn FileSystem>)
    }

    fn open_origin(&self, fork: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.forked(fork)?.branch.origin().snapshot()))
    }

    fn merge(&mut self, fork: &str, decisions: &Decisions) -> Answer<Clashes> {
        self.bring(fork, true, decisions)
    }

    fn update(&mut self, fork: &str, decisions: &Decisions) -> Answer<Clashes> {
        self.bring(fork, false, decisions)
    }

    fn destroy_clone(&mut self, clone: &str) -> HomeResult<()> {
        self.forks.remove(clone);
        Ok(())
    }
}
