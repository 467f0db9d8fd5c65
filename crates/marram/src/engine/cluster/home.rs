//! A cluster home behind the seam.

use super::client::Awaited;
use super::schedule::{HostClock, OfCluster};
use super::usage::Usage;
use super::{open, operations, streams};
use crate::control::protocol::{
    Answer, Author, CompareOrder, DifferenceRow, Operation, ReceiveOrder, SendOrder,
};
use crate::engine::automatic::{self, AutomaticSnapshots};
use crate::engine::home::{ControlDirectory, Home, Member, Snapshots, Streams, Task, Transactions};
use crate::engine::mounted::{Commits, Shown};
use crate::engine::mounts::Mounts;
use crate::engine::posix::open_view;
use crate::engine::source::{Kind, OpenMode, Probe};
use crate::engine::volume::{Opened, VolumeOptions};
use crate::engine::{history, members, rights};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::names::hexadecimal;
use marram_cluster::Cluster;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::Ino;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two publications of what waits.
const PUBLICATION: Duration = Duration::from_secs(1);
/// Publications between two signs of life.
const BEAT_EVERY: u32 = 2;
/// After how long what is under way seems to have no end.
const HUNG_AFTER: Duration = Duration::from_secs(600);
/// Between two looks whether others have come or gone.
const LISTENING: Duration = Duration::from_millis(50);
/// Between two sweeps of what nothing needs.
const SWEEP: Duration = Duration::from_secs(10);

/// Cluster homes, as sources are recognised.
pub(in crate::engine) struct ClusterKind;

impl Kind for ClusterKind {
    fn probe(&self, path: &Path) -> Result<Option<Probe>> {
        open::probe(path)
    }

    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>> {
        let identity = Identity::of(path).map_err(|error| Error::system("look at", path, error))?;
        let store = Arc::new(acting_for(&open::open(path, mode)?, &Author::of_this_process()));
        let (path, read_only) = (path.to_owned(), mode.read_only);
        Ok(Arc::new(ClusterHome {
            path,
            identity,
            store,
            read_only,
            closing: Mutex::new(false),
            began: Mutex::new(None),
            undiscarded: Mutex::default(),
            snapshots: AutomaticSnapshots::default(),
            clock: HostClock::default(),
        }))
    }

    fn takes(&self) -> &'static [&'static str] {
        &["cache"]
    }
}

/// A cluster home that is open.
pub(super) struct ClusterHome {
    path: PathBuf,
    identity: Identity,
    store: Arc<Cluster>,
    read_only: bool,
    /// Whether it is closed; held while it is.
    closing: Mutex<bool>,
    /// When what is under way in it has begun.
    began: Mutex<Option<Instant>>,
    /// Forks of transactions that have ended here, which could not be taken away then. Nothing else
    /// is taken while it is held.
    undiscarded: Mutex<BTreeSet<DatasetName>>,
    snapshots: AutomaticSnapshots,
    clock: HostClock,
}

impl ClusterHome {
    pub(super) fn store(&self) -> &Cluster {
        &self.store
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Publishes what waits each second, and expels those that give no sign of life, until the
    /// daemon ends.
    fn publish(&self, mounts: &dyn Mounts) {
        let (mut failed, mut round) = (None, 0_u32);
        let beats = Awaited::default();
        while !mounts.is_shut() {
            std::thread::sleep(PUBLICATION);
            round = round.wrapping_add(1);
            let done = self.while_open(|| {
                self.store.sync()?;
                if round.is_multiple_of(BEAT_EVERY) { self.expel_lost(&beats) } else { Ok(()) }
            });
            let error = done.err().map(|error| error.to_string());
            if let Some(error) = error.as_ref().filter(|error| Some(*error) != failed.as_ref()) {
                mounts.log(&format!("publication: {error}"));
            }
            failed = error;
        }
    }

    /// Gives signs of life, until the daemon ends. Nothing that takes long keeps them back, as a
    /// publication on a slow link does; what seems to have no end does, and others need not wait
    /// for ever. What fails here fails there too.
    fn give_signs(&self, mounts: &dyn Mounts) {
        while !mounts.is_shut() {
            std::thread::sleep(PUBLICATION * BEAT_EVERY);
            let has_hung = self.began.lock().is_some_and(|began| began.elapsed() >= HUNG_AFTER);
            if !has_hung {
                let _told_there = self.store.beat();
            }
        }
    }

    /// Expels those that give no sign of life.
    fn expel_lost(&self, beats: &Awaited) -> marram_store::Result<()> {
        let there = self.store.clients()?;
        let lost = beats.lost_beside(&there).into_iter();
        let own = self.store.session();
        lost.filter(|lost| lost.session != own).try_for_each(|lost| self.store.expel(lost))
    }

    /// Looks whether others have come or gone, until the daemon ends. Before others see anything,
    /// the kernel forgets what it knows of all that is mounted.
    fn hear(&self, mounts: &dyn Mounts) {
        let mut failed: Option<String> = None;
        let mut forget = || self.forget(mounts);
        let (mut names, mut usage) = (Vec::new(), Usage::since(Instant::now()));
        let mut is_lone = !self.store.has_company();
        while !mounts.is_shut() {
            // A server that refuses this client is not asked all the time.
            std::thread::sleep(if failed.is_some() { PUBLICATION } else { LISTENING });
            self.show_members(mounts, &mut names);
            let heard = self.while_open(|| self.store.listen(&mut forget).map(|_| ()));
            if heard.is_ok() && is_lone == self.store.has_company() {
                is_lone = !is_lone;
                mounts.log(match is_lone {
                    true => "the others have gone: alone from now on",
                    false => "others have the home open: shared from now on",
                });
            }
            let heard = heard.and_then(|_| self.rest_if_unused(&mut usage));
            let error = heard.err().map(|error| error.to_string());
            if let Some(error) = error.as_ref().filter(|error| Some(*error) != failed.as_ref()) {
                mounts.log(&format!("other clients: {error}"));
            }
            failed = error;
            // The locks of its programs are lost. What works under one is refused until it lets go.
            if self.store.is_expelled() && !self.store.holds_locks() {
                self.come_back(mounts);
            }
        }
    }

    /// Goes to rest once nobody has used it for a while.
    fn rest_if_unused(&self, usage: &mut Usage) -> marram_store::Result<()> {
        let now = Instant::now();
        if !usage.is_over(self.store.uses(), now) || !self.store.is_shared() || self.store.rests() {
            return Ok(());
        }
        let rests = self.while_open(|| self.store.rest())?;
        if rests {
            usage.rests(now);
        }
        Ok(())
    }

    /// Goes on after others have taken this client for lost: as one that comes anew. What waited
    /// then is kept as forks.
    fn come_back(&self, mounts: &dyn Mounts) {
        // What the kernel remembers is of before.
        self.forget(mounts);
        let is_back = self.while_open(|| {
            let again = open::beside(&self.path, open::LITTLE_CACHE_BYTES);
            let again = again.map_err(|error| marram_store::Error::Io(error.to_string()))?;
            let rescued = self.rescue(&again, mounts);
            let is_back = rescued.and_then(|()| self.store.go_on_as(&again));
            if is_back.is_err() {
                // The first error is the one to tell.
                let _stays_for_a_while = again.close();
            }
            is_back
        });
        match is_back {
            Ok(()) => {
                mounts.all_members_changed();
                mounts.log("others had taken this daemon for lost: it goes on now");
            }
            Err(error) => {
                mounts.log(&format!("others have taken this daemon for lost: {error}"));
                std::thread::sleep(SWEEP);
            }
        }
    }

    /// Keeps what waited, through another client.
    fn rescue(&self, through: &Cluster, mounts: &dyn Mounts) -> marram_store::Result<()> {
        for fork in self.store.rescue(through)? {
            mounts.log(&format!("what was not published is kept as the fork {fork}: merge it"));
        }
        Ok(())
    }

    /// Has the kernel forget what it knows of all volumes that are open.
    pub(super) fn forget(&self, mounts: &dyn Mounts) {
        for source in self.store.known() {
            if let Some(volume) = mounts.volume_of(&source) {
                mounts.all_changed(&source, &*volume);
            }
        }
        mounts.all_members_changed();
    }

    /// Shows the snapshots and forks that others have made or taken away.
    fn show_members(&self, mounts: &dyn Mounts, shown: &mut Vec<Source>) {
        if !self.store.is_shared() {
            return;
        }
        let names: Vec<Source> =
            self.store.known().into_iter().filter(|source| !source.is_own()).collect();
        if names != *shown {
            *shown = names;
            mounts.all_members_changed();
        }
    }

    /// Takes away what nothing needs any more, from time to time, until the daemon ends.
    fn sweep(&self, mounts: &dyn Mounts) {
        let mut failed = None;
        while !mounts.is_shut() {
            std::thread::sleep(SWEEP);
            // One that is awake does it.
            if self.store.rests() {
                continue;
            }
            let error = self.sweep_once(mounts).err().map(|error| error.to_string());
            if let Some(error) = error.as_ref().filter(|error| Some(*error) != failed.as_ref()) {
                mounts.log(&format!("sweep: {error}"));
            }
            failed = error;
        }
    }

    /// Leaves the fork of a transaction that has ended to the next sweeps.
    pub(super) fn discard_later(&self, fork: &DatasetName) {
        self.undiscarded.lock().insert(fork.clone());
    }

    /// Takes away the forks of transactions that could not be when those ended. What cannot go now
    /// is tried again. The first reason is the one to tell.
    fn discard_again(&self) -> marram_store::Result<()> {
        let forks = self.undiscarded.lock().clone();
        let store: &dyn Store = &self.store.without_author();
        let mut done = Ok(());
        for fork in forks {
            match self.while_open(|| store.end_fork(&fork)) {
                Ok(()) | Err(marram_store::Error::NoDataset(_)) => {
                    self.undiscarded.lock().remove(&fork);
                }
                Err(error) => done = done.and(Err(error)),
            }
        }
        done
    }

    fn sweep_once(&self, mounts: &dyn Mounts) -> marram_store::Result<()> {
        let discarded = self.discard_again();
        for source in self.while_open(|| self.store.end_lost_transactions())? {
            mounts.log(&format!("destroyed {source}, which a client that has gone had left"));
        }
        // A database that is full refuses it, and space is given back all the same.
        let let_go = self.while_open(|| self.store.let_go_of_expired());
        let is_wanted = || !mounts.is_shut();
        while is_wanted() && self.while_open(|| self.store.prune_step().map(|it| it.more))? {}
        let mut after = Vec::new();
        while is_wanted() && !self.is_closed() {
            // It may take long where blocks lie far away: nothing waits for it, not even the end,
            // and a store that is closed refuses it.
            let (swept, next) = match self.store.sweep_step(std::mem::take(&mut after)) {
                Err(_) if self.is_closed() => break,
                done => done?,
            };
            after = next;
            if !swept.more {
                break;
            }
        }
        discarded.and(let_go)
    }

    fn is_closed(&self) -> bool {
        *self.closing.lock()
    }

    /// Takes the automatic snapshots that are due at a moment, in seconds since 1970, and destroys
    /// those that are too many; nothing while the clock of this host is behind, or others have
    /// taken this client for lost.
    fn take_due_snapshots(&self, mounts: &dyn Mounts, now: i64, said: &mut bool) {
        // It is not held: others wait for answers meanwhile, and a store that is closed takes none.
        if self.is_closed() || self.store.is_expelled() || self.store.rests() {
            return;
        }
        let behind = self.clock.behind(now, self.store.clocks(), Instant::now());
        if let Some(by) = behind
            && !*said
        {
            mounts.log(&format!(
                "automatic snapshots: the clock of this host is {by} seconds behind what is known \
                 of the time: none is taken, and none goes"
            ));
        }
        *said = behind.is_some();
        if behind.is_none() {
            let store = &self.store.without_author();
            let shown = Shown { store, commits: store, mounts, user: None };
            self.snapshots.step(&OfCluster(store), &shown, now);
        }
    }

    /// Does something, unless the home is closed.
    fn while_open<T: Default>(
        &self,
        work: impl FnOnce() -> marram_store::Result<T>,
    ) -> marram_store::Result<T> {
        let is_closed = self.closing.lock();
        if *is_closed {
            return Ok(T::default());
        }
        *self.began.lock() = Some(Instant::now());
        let done = work();
        *self.began.lock() = None;
        done
    }
}

/// The same store, which enters operations into its log as those of `author`.
pub(super) fn acting_for(store: &Cluster, author: &Author) -> Cluster {
    let Author { user, command, .. } = author.clone();
    store.acting_for(marram_store::Author { user: Some(user), command })
}

impl Commits for Cluster {
    fn commits(&self) -> u64 {
        self.status().map_or(u64::MAX, |status| status.entries)
    }
}

impl Home for ClusterHome {
    fn kind(&self) -> &'static str {
        "cluster home"
    }

    fn id(&self) -> String {
        hexadecimal(&self.store.id())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn open(&self, source: &Source, options: VolumeOptions) -> Result<Opened> {
        let root = Ino(self.store.report(source)?.root_object);
        open_view(self.store.open(source)?, (source.to_string(), root), options)
    }

    fn perform(
        &self,
        operation: &Operation,
        author: Option<&Author>,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        let acting = author.map(|author| acting_for(&self.store, author));
        let acting = acting.as_ref().unwrap_or(&self.store);
        let Some(mounts) = mounts else { return operations::perform(self, acting, operation) };
        let user = author.and_then(|author| author.bound.as_ref());
        let (store, commits) = (acting, acting);
        let shown = Shown { store, commits, mounts, user };
        operations::perform_shown((self, acting), &shown, operation)
    }

    fn is_shareable(&self) -> bool {
        true
    }

    fn sync(&self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    fn is_halted(&self) -> bool {
        false
    }

    fn held_back_bytes(&self) -> Option<u64> {
        None
    }

    fn clear_left(&self, log: &dyn Fn(&str)) {
        // What others are in the middle of is nothing that a crash has left.
        if self.read_only || self.store.has_company() {
            return;
        }
        if let Err(error) = streams::destroy_leftovers(&self.store.without_author()) {
            log(&format!("what a crash has left of a stream stays: {error}"));
        }
        match marram_history::destroy_leftovers(&self.store.without_author()) {
            Ok(gone) => gone.iter().for_each(|source| {
                log(&format!("destroyed {source}, which a crash had left"));
            }),
            Err(error) => log(&format!("what a crash has left stays: {error}")),
        }
    }

    fn tasks(self: Arc<Self>) -> Vec<Task> {
        if self.read_only {
            return Vec::new();
        }
        let (publishing, listening) = (Arc::clone(&self), Arc::clone(&self));
        let (living, keeping, sweeping) = (Arc::clone(&self), Arc::clone(&self), self);
        let snapshots = move |mounts: &dyn Mounts| {
            let said = Mutex::new(false);
            automatic::run(mounts, &|| false, &|now| {
                keeping.take_due_snapshots(mounts, now, &mut said.lock());
            });
        };
        vec![
            Task { name: "listen", run: Box::new(move |mounts| listening.hear(mounts)) },
            Task { name: "signs", run: Box::new(move |mounts| living.give_signs(mounts)) },
            Task { name: "publish", run: Box::new(move |mounts| publishing.publish(mounts)) },
            Task { name: "snapshots", run: Box::new(snapshots) },
            Task { name: "sweep", run: Box::new(move |mounts| sweeping.sweep(mounts)) },
        ]
    }

    fn close(&self) -> Result<()> {
        let mut is_closed = self.closing.lock();
        if !*is_closed {
            self.store.close()?;
            *is_closed = true;
        }
        Ok(())
    }

    fn close_for_good(&self) -> Result<()> {
        self.close()
    }

    /// The database has no lock: what was closed is open to others.
    fn unlock(&self) {}

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        (!self.read_only).then_some(self)
    }
}

impl Streams for ClusterHome {
    fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
        match self.read_only {
            true => streams::send_beside(&self.path, order, out),
            false => streams::send(&self.store, order, out),
        }
    }

    fn receive(
        &self,
        order: &ReceiveOrder,
        input: &mut dyn Read,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        let Some(mounts) = mounts else { return streams::receive(self, order, input) };
        let (store, commits) = (&*self.store, &*self.store);
        let shown = Shown { store, commits, mounts, user: None };
        streams::receive_shown(self, &shown, order, input)
    }
}

impl Snapshots for ClusterHome {
    fn names(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
    ) -> marram_vfs::Result<Vec<String>> {
        members::names(&*self.store, dataset, directory)
    }

    fn users(&self, dataset: &DatasetName) -> marram_vfs::Result<BTreeSet<u32>> {
        members::users(&*self.store, dataset)
    }

    fn owner_of_fork(&self, source: &Source) -> Result<Option<u32>> {
        rights::owner_of_fork(&*self.store, source)
    }

    fn forks_of_user_max(&self, dataset: &DatasetName) -> Result<usize> {
        rights::forks_of_user_max(&*self.store, dataset)
    }

    fn may_change_names(
        &self,
        dataset: &DatasetName,
        directory: u64,
        user: &dyn marram_vfs::Identity,
    ) -> Result<bool> {
        rights::may_change_names(&*self.store, dataset, directory, user)
    }

    fn find(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
        name: &str,
    ) -> marram_vfs::Result<Member> {
        members::find(&*self.store, dataset, directory, name)
    }

    fn has_directory(
        &self,
        snapshot: &Source,
        ino: Ino,
        created: marram_vfs::Timestamp,
    ) -> marram_vfs::Result<bool> {
        members::has_directory(&*self.store, snapshot, ino, created)
    }

    fn compare(
        &self,
        order: &CompareOrder,
        visit: &mut dyn FnMut(DifferenceRow) -> Result<()>,
    ) -> Result<()> {
        history::diff(&*self.store, order, visit)
    }
}
