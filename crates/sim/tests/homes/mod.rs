//! Homes of the real implementation: `posix` on a store.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses a part of it")]

mod crash_target;
mod interrupted;
mod memory;
mod pool;

pub use crash_target::PoolTarget;
use marram_history::{
    AttributeChange, Choice, Conflict, ConflictKind, Difference, Direction, DirectoryRollback,
    MergeOptions, What, diff,
};
use marram_model::{Change, Clash, Decisions, Side};
use marram_posix::{
    AccessTimes, DedupOptions, Deduplicator, DefragmentOptions, PassPlace, Posix, PosixOptions,
    deduplicate, defragment,
};
use marram_sim::{
    Answer, Clashes, HistoryClock, Home, HomeCapabilities, HomeResult, Moment, Options, Report,
    Theme, run_history,
};
use marram_store::{DatasetName, Error as StoreError, Source, Store, View};
use marram_vfs::{Caller, Clock, Error, FileSystem, Ino};
pub use memory::{busy_memory_home, memory_home, minimal_home};
pub use pool::{
    busy_pool_home, dedup_full_pool_home, dedup_pool_home, defragmenting_full_pool_home,
    defragmenting_pool_home, full_pool_home, new_pool_home, open_pool_home, pool_home,
};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many items of orphans are freed at each commit.
const RECLAIM_ITEMS: usize = 9;

/// A store that can be closed and opened again.
pub trait Backing {
    /// The store as it is open now.
    fn store(&self) -> Arc<dyn Store>;
    /// A dataset or snapshot, opened.
    fn view(&self, source: &Source) -> HomeResult<Arc<dyn View>> {
        self.store().open(source).map_err(text)
    }
    /// Writes what has changed; `count` counts the calls.
    fn commit(&mut self, count: u64) -> HomeResult<()>;
    /// Closes the store and opens it again; `count` counts the calls.
    fn reopen(&mut self, count: u64) -> HomeResult<()>;
    /// Whether there is anything that a crash could take away.
    fn can_crash(&self) -> bool {
        false
    }
    /// Whether it may commit at any time.
    fn commits_by_itself(&self) -> bool {
        false
    }
    /// Stops without a warning and opens what is durable.
    fn crash(&mut self) -> HomeResult<()> {
        Ok(())
    }
    /// Checks all that is stored.
    fn check(&mut self) -> HomeResult<()>;
}

/// A `posix` file system on a store.
pub struct StoreHome<B> {
    backing: B,
    clock: Arc<HistoryClock>,
    live: Option<Arc<Posix>>,
    commits: u64,
    remounts: u64,
    /// Equal content is shared before each commit.
    deduplicator: Option<Deduplicator>,
    /// Defragments after each commit.
    rewrites: bool,
}

/// Bytes that all homes which share equal content have shared by now.
pub static SHARED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes that all homes which rewrite have rewritten by now.
pub static REWRITTEN_BYTES: AtomicU64 = AtomicU64::new(0);

/// Makes a home of a history's seed.
pub type MakeSeeded = fn(u64, Arc<HistoryClock>) -> HomeResult<Box<dyn Home>>;

/// Runs one history of `steps` steps for each seed; a failure is a panic that says how to replay.
pub fn run_seeds(make_home: MakeSeeded, seeds: Range<u64>, steps: usize) -> Report {
    run_theme(Theme::Files, make_home, seeds, steps)
}

/// The same, of histories that are mostly about something.
pub fn run_theme(theme: Theme, make_home: MakeSeeded, seeds: Range<u64>, steps: usize) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        let options = Options { theme, ..Options::new(seed, steps) };
        let report = run_history(&options, &|clock| make_home(seed, clock));
        sum.add(&report.unwrap_or_else(|failure| panic!("{failure}")));
    }
    sum
}

/// An error as text.
pub fn text(error: impl Display) -> String {
    error.to_string()
}

fn source(dataset: &str) -> HomeResult<Source> {
    dataset.parse().map_err(text)
}

fn root() -> Source {
    Source { dataset: DatasetName::root(), snapshot: None }
}

fn kept(name: &str) -> Source {
    Source { snapshot: Some(name.to_owned()), ..root() }
}

fn clash_of(kind: ConflictKind) -> Clash {
    match kind {
        ConflictKind::Content => Clash::Content,
        ConflictKind::Attribute => Clash::Attribute,
        ConflictKind::Name => Clash::Name,
        ConflictKind::Removed => Clash::Removed,
        ConflictKind::Loop => Clash::Loop,
        ConflictKind::Overtaken => panic!("no merge here is strict"),
    }
}

/// The difference of one path, in the words of the model.
fn told(difference: Difference) -> HomeResult<Vec<marram_model::Difference>> {
    let Difference { path, old_path, what, .. } = difference;
    let changes = match what {
        What::Created => vec![Change::Created],
        What::Removed => vec![Change::Removed],
        What::Renamed => vec![Change::Renamed(old_path.ok_or("renamed from nowhere")?)],
        What::Linked => vec![Change::Linked],
        What::Unlinked => vec![Change::Unlinked],
        What::Content { ranges, old_size, new_size } => {
            let ranges = ranges.iter().map(|range| (range.start, range.end)).collect();
            vec![Change::Content { ranges, sizes: (old_size, new_size) }]
        }
        What::Attributes(all) => all.into_iter().map(attribute).collect::<Result<_, _>>()?,
        What::Xattrs(all) => {
            all.into_iter().map(|it| Change::Xattr(it.name, it.old, it.new)).collect()
        }
    };
    let difference = |what| marram_model::Difference { path: path.clone(), what };
    Ok(changes.into_iter().map(difference).collect())
}

fn attribute(change: AttributeChange) -> HomeResult<Change> {
    match change {
        AttributeChange::Permissions(old, new) => Ok(Change::Permissions(old, new)),
        AttributeChange::User(old, new) => Ok(Change::User(old, new)),
        AttributeChange::Group(old, new) => Ok(Change::Group(old, new)),
        AttributeChange::Modified(old, new) => Ok(Change::Modified(old, new)),
        change => Err(format!("{change:?}, which no step changes")),
    }
}

/// The state that is meant.
fn source_of(moment: &Moment) -> HomeResult<Source> {
    match moment {
        Moment::Live => Ok(root()),
        Moment::Kept(name) => Ok(kept(name)),
        Moment::Fork(name) => source(name),
    }
}

/// Opens the file system in a view.
pub fn mount(view: Arc<dyn View>, clock: &Arc<HistoryClock>) -> HomeResult<Arc<Posix>> {
    let options = PosixOptions {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        access_times: AccessTimes::Never,
        on_damage: Arc::new(|range| panic!("damage where none was done: {range:?}")),
        root_owner: Caller { uid: 0, gid: 0 },
        ..PosixOptions::default()
    };
    Posix::new(view, options).map(Arc::new).map_err(text)
}

impl<B: Backing> StoreHome<B> {
    /// Mounts the root dataset of `backing`, and makes its root directory durable.
    pub fn new(backing: B, clock: Arc<HistoryClock>) -> HomeResult<StoreHome<B>> {
        let (commits, remounts, deduplicator) = (0, 0, None);
        let (live, rewrites) = (None, false);
        let mut home =
            StoreHome { backing, clock, live, commits, remounts, deduplicator, rewrites };
        home.live = Some(home.open(&root())?);
        home.backing.commit(0)?;
        Ok(home)
    }

    /// The same, sharing equal content before each commit.
    pub fn deduplicating(mut self) -> StoreHome<B> {
        self.deduplicator = Some(Deduplicator::new(50));
        self
    }

    /// The same, defragmenting after each commit.
    pub fn rewriting(mut self) -> StoreHome<B> {
        self.rewrites = true;
        self
    }

    fn rewrite(&self) -> HomeResult<()> {
        if !self.rewrites {
            return Ok(());
        }
        let place = PassPlace { files: Arc::clone(self.live()), directory: Ino::ROOT };
        let report = defragment(&[place], DefragmentOptions::default(), &mut || Some(()));
        REWRITTEN_BYTES.fetch_add(report.totals.rewritten_bytes, Ordering::Relaxed);
        match report.failure {
            None if report.skipped == 0 && report.totals.unreadable == 0 => Ok(()),
            _ => Err(format!("rewriting: {report:?}")),
        }
    }

    /// Shares equal content: of all, or of what was written since the last time.
    fn deduplicate(&mut self) -> HomeResult<()> {
        let live = Arc::clone(self.live());
        let Some(deduplicator) = &mut self.deduplicator else {
            return Ok(());
        };
        if self.commits.is_multiple_of(2) {
            let before = deduplicator.totals().shared_bytes;
            while deduplicator.step(&live, 7) {}
            let shared = deduplicator.totals().shared_bytes - before;
            SHARED_BYTES.fetch_add(shared, Ordering::Relaxed);
            return Ok(());
        }
        let place = PassPlace { files: live, directory: Ino::ROOT };
        let options = DedupOptions { dry_run: false, places_max: 100 };
        let report = deduplicate(&[place], options, &mut || Some(()));
        SHARED_BYTES.fetch_add(report.shared_bytes, Ordering::Relaxed);
        match report.failure {
            None | Some(marram_vfs::Error::NoSpace) if report.skipped == 0 => Ok(()),
            _ => Err(format!("deduplication: {report:?}")),
        }
    }

    fn bring(
        &self,
        into: &Posix,
        fork: &str,
        direction: Direction,
        decisions: &Decisions,
    ) -> Answer<Clashes> {
        let (fork, store) = (source(fork)?.dataset, self.backing.store());
        let choose = |conflict: &Conflict| match decisions.get(&conflict.path) {
            None => Choice::Refuse,
            Some(Side::Ours) => Choice::Ours,
            Some(Side::Theirs) => Choice::Theirs,
        };
        let options = MergeOptions { choose: &choose, ..MergeOptions::default() };
        let report = marram_history::bring_across(into, &*store, (&fork, direction), &options);
        let clash = |conflict: Conflict| (clash_of(conflict.kind), conflict.path);
        Ok(report.map(|report| report.conflicts.into_iter().map(clash).collect()))
    }

    fn open(&self, source: &Source) -> HomeResult<Arc<Posix>> {
        mount(self.backing.view(source)?, &self.clock)
    }

    fn live(&self) -> &Arc<Posix> {
        self.live.as_ref().expect("the file system is mounted between calls")
    }
}

impl<B: Backing> Home for StoreHome<B> {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(self.live()) as Arc<dyn FileSystem>
    }

    /// An unmount takes back the pins, a crash does not: both must lead to the same.
    fn remount(&mut self) -> HomeResult<()> {
        self.remounts += 1;
        if self.remounts.is_multiple_of(2) {
            self.live().forget_all();
        }
        self.live = None;
        self.backing.reopen(self.remounts)?;
        self.live = Some(self.open(&root())?);
        Ok(())
    }

    fn capabilities(&self) -> HomeCapabilities {
        HomeCapabilities {
            crash: self.backing.can_crash(),
            rollback: self.backing.store().capabilities().lineage.is_some(),
            directory_rollback: true,
            diff: true,
            forks: true,
        }
    }

    fn commits_by_itself(&self) -> bool {
        self.backing.commits_by_itself()
    }

    fn crash(&mut self) -> HomeResult<()> {
        self.live = None;
        self.backing.crash()?;
        self.live = Some(self.open(&root())?);
        Ok(())
    }

    fn commit(&mut self) -> HomeResult<()> {
        self.commits += 1;
        self.live().reclaim_step(RECLAIM_ITEMS).map_err(text)?;
        self.deduplicate()?;
        self.backing.commit(self.commits)?;
        self.rewrite()
    }

    fn snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.backing.store().snapshot(&DatasetName::root(), name).map_err(text)
    }

    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(self.open(&kept(name))? as Arc<dyn FileSystem>)
    }

    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.backing.store().destroy(&kept(name), false).map(|_| ()).map_err(text)
    }

    fn roll_back(&mut self, snapshot: &str, keep: &str) -> Answer<()> {
        let store = self.backing.store();
        let to = kept(snapshot);
        let go_back = || {
            store.rollback(&to, keep).map_err(|error| match error {
                StoreError::Unsupported(_) => Error::NotSupported,
                other => Error::Io(other.to_string()),
            })
        };
        Ok(self.live().roll_back(go_back))
    }

    fn diff(&self, before: &Moment, after: &Moment) -> Answer<Vec<marram_model::Difference>> {
        let (before, after) = (source_of(before)?, source_of(after)?);
        let mut all = Vec::new();
        let found = diff(&*self.backing.store(), &before, &after, Ino::ROOT, &mut |difference| {
            all.push(told(difference));
            true
        });
        let all: Vec<Vec<_>> = all.into_iter().collect::<HomeResult<_>>()?;
        Ok(found.map(|()| all.concat()))
    }

    /// Frees what has no name before: else what comes back may get another number than in the
    /// model, where nothing waits to be freed, and is another inode than there to all that follows.
    fn roll_back_directory(&mut self, snapshot: &str, directory: Ino) -> Answer<()> {
        while self.live().reclaim_step(RECLAIM_ITEMS).map_err(text)? {}
        let (dataset, to) = (DatasetName::root(), kept(snapshot));
        let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
        let store = self.backing.store();
        let went = marram_history::roll_back_directory(&**self.live(), &*store, rollback);
        Ok(went.map(|_change_set| ()))
    }

    fn clone_snapshot(&mut self, snapshot: &str, clone: &str) -> HomeResult<Arc<dyn FileSystem>> {
        let clone = source(clone)?;
        self.backing.store().clone_snapshot(&kept(snapshot), &clone.dataset).map_err(text)?;
        Ok(self.open(&clone)? as Arc<dyn FileSystem>)
    }

    fn fork(&mut self, fork: &str) -> Answer<()> {
        let fork = source(fork)?.dataset;
        self.backing.store().fork(&DatasetName::root(), &fork, Ino::ROOT.0).map_err(text)?;
        Ok(Ok(()))
    }

    fn open_fork(&self, fork: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(self.open(&source(fork)?)? as Arc<dyn FileSystem>)
    }

    fn open_origin(&self, fork: &str) -> HomeResult<Arc<dyn FileSystem>> {
        self.open_snapshot(&format!("fork:{fork}"))
    }

    fn merge(&mut self, fork: &str, decisions: &Decisions) -> Answer<Clashes> {
        self.bring(self.live(), fork, Direction::Merge, decisions)
    }

    fn update(&mut self, fork: &str, decisions: &Decisions) -> Answer<Clashes> {
        let files = self.open(&source(fork)?)?;
        self.bring(&files, fork, Direction::Update, decisions)
    }

    fn destroy_clone(&mut self, clone: &str) -> HomeResult<()> {
        self.backing.store().destroy(&source(clone)?, false).map(|_| ()).map_err(text)
    }

    fn check(&mut self) -> HomeResult<()> {
        while self.live().reclaim_step(RECLAIM_ITEMS).map_err(text)? {}
        self.commit()?;
        self.backing.check()
    }
}
