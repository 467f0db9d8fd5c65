//! A pool as a home.

use super::background::dedup::Deduplication;
use super::background::rewriting::Rewriting;
use super::background::{commit, reclaim};
use super::mounted::{self, Shown};
use super::open::{OpenPool, acting_for};
use super::{dedup, defragment, grants, open, operations, schedule, streams, volume};
use crate::control::protocol::{
    Answer, Author, CompareOrder, DamageRow, DifferenceRow, Operation, PassOrder, ReceiveOrder,
    SendOrder,
};
use crate::engine::automatic::{self, AutomaticSnapshots};
use crate::engine::home::{
    BackgroundReport, Claim, ControlDirectory, Home, Member, Pass, Passes, Snapshots, Streams,
    Task, Transactions, Watched,
};
use crate::engine::members;
use crate::engine::mounts::Mounts;
use crate::engine::source::{Kind, OpenMode, Probe};
use crate::engine::volume::{Opened, VolumeOptions};
use crate::engine::{history, rights};
use crate::error::Result;
use crate::identity::Identity;
use crate::names::hexadecimal;
use marram_pool::Pool;
use marram_store::{DatasetName, Grants, Source, Store};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pools, as sources are recognised.
pub(in crate::engine) struct PoolKind;

impl Kind for PoolKind {
    fn probe(&self, path: &Path) -> Result<Option<Probe>> {
        open::probe(path)
    }

    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(PoolHome::open(path, mode)?))
    }

    fn takes(&self) -> &'static [&'static str] {
        &["cache", "commit", "defragment", "norecovery"]
    }
}

/// A pool that is open, and what it does in the background.
pub(crate) struct PoolHome {
    open: OpenPool,
    dedup: Deduplication,
    rewriting: Rewriting,
    snapshots: AutomaticSnapshots,
}

impl PoolHome {
    /// Opens the pool at `path` and locks it.
    ///
    /// # Errors
    /// There is none, another process has it (named), or it cannot be read.
    pub(crate) fn open(path: &Path, mode: &OpenMode) -> Result<PoolHome> {
        let open = OpenPool::open(path, mode)?;
        Ok(PoolHome {
            open,
            dedup: Deduplication::default(),
            rewriting: Rewriting::default(),
            snapshots: AutomaticSnapshots::default(),
        })
    }

    /// The engine.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.open.pool()
    }

    /// The pool with the mounts that show it, acting through `pool`, a handle of it.
    pub(crate) fn shown<'s>(&'s self, pool: &'s Pool, mounts: &'s dyn Mounts) -> Shown<'s> {
        Shown::new(&self.open, pool, mounts, None)
    }

    /// Takes the automatic snapshots that are due at a moment, in seconds since 1970, and destroys
    /// those that are too many.
    pub(crate) fn take_due_snapshots(&self, mounts: &dyn Mounts, now: i64) {
        let pool = &self.pool().without_author();
        self.snapshots.step(&schedule::OfPool(pool), &self.shown(pool, mounts), now);
    }

    fn task(
        self: &Arc<Self>,
        name: &'static str,
        run: impl FnOnce(&PoolHome, &dyn Mounts) + Send + 'static,
    ) -> Task {
        let home = Arc::clone(self);
        Task { name, run: Box::new(move |mounts| run(&home, mounts)) }
    }
}

impl Home for PoolHome {
    fn kind(&self) -> &'static str {
        "pool"
    }

    fn id(&self) -> String {
        hexadecimal(&self.pool().status().pool_id)
    }

    fn path(&self) -> &Path {
        self.open.path()
    }

    fn identity(&self) -> Identity {
        self.open.identity()
    }

    fn open(&self, source: &Source, options: VolumeOptions) -> Result<Opened> {
        let (known, told) = (Arc::clone(self.open.known_damage()), options.on_damage);
        let on_damage = Arc::new(move |row: DamageRow| {
            known.add(row.clone());
            told(row);
        });
        volume::open(self.pool(), source, VolumeOptions { on_damage, ..options })
    }

    fn perform(
        &self,
        operation: &Operation,
        author: Option<&Author>,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        let acting = author.map(|author| acting_for(self.pool(), author));
        let pool = acting.as_ref().unwrap_or(self.pool());
        match mounts {
            Some(mounts) => {
                let user = author.and_then(|author| author.bound.as_ref());
                mounted::perform(&Shown::new(&self.open, pool, mounts, user), operation)
            }
            None => operations::perform(&self.open, pool, operation),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.pool().sync()?)
    }

    fn known_damage(&self) -> Vec<DamageRow> {
        operations::status(&self.open).map_or_else(|_| Vec::new(), |status| status.damage)
    }

    fn is_halted(&self) -> bool {
        self.pool().is_halted()
    }

    fn held_back_bytes(&self) -> Option<u64> {
        Some(self.pool().status().reserved_bytes)
    }

    fn clear_left(&self, log: &dyn Fn(&str)) {
        if self.open.is_read_only() {
            return;
        }
        match marram_history::destroy_leftovers(&**self.pool()) {
            Ok(gone) => {
                for source in gone {
                    log(&format!("destroyed {source}, which a crash had left"));
                }
            }
            Err(error) => log(&format!("what a crash has left stays: {error}")),
        }
        if let Err(error) = self.pool().drop_empty_partials() {
            log(&format!("beginnings of streams stay: {error}"));
        }
    }

    /// Has what a replay found committed: the first sync need not do it then. A mount does not wait
    /// for it, since its flush may take as long as the host has writes left from before the crash.
    fn settle(&self, log: &dyn Fn(&str)) {
        let frames = self.pool().status().replayed_frames;
        if frames > 0 && !self.open.is_read_only() {
            log(&format!("replayed {frames} syncs of the intent log"));
            self.pool().wake();
        }
    }

    fn tasks(self: Arc<Self>) -> Vec<Task> {
        if self.open.is_read_only() {
            return Vec::new();
        }
        let pace = self.open.pace();
        let interval = Duration::from_secs(pace.commit_seconds);
        vec![
            self.task("commit", move |home, mounts| commit::run(home.pool(), interval, mounts)),
            self.task("reclaim", |home, mounts| reclaim::run(home.pool(), mounts)),
            self.task("dedup", |home, mounts| home.dedup.run(home.pool(), mounts)),
            self.task("snapshots", |home, mounts| {
                let is_halted = || home.pool().is_halted();
                automatic::run(mounts, &is_halted, &|now| home.take_due_snapshots(mounts, now));
            }),
            self.task("rewriting", move |home, mounts| {
                home.rewriting.run(home.pool(), pace.rewriting_seconds, mounts);
            }),
        ]
    }

    fn background(&self) -> BackgroundReport {
        let seconds = self.open.pace().rewriting_seconds;
        let rewrites = seconds > 0 && !self.open.is_read_only();
        let rewriting = rewrites.then(|| self.rewriting.progress(seconds));
        BackgroundReport { dedup: self.dedup.totals(), rewriting }
    }

    fn close(&self) -> Result<()> {
        self.open.close()
    }

    fn close_for_good(&self) -> Result<()> {
        self.open.close_for_good()
    }

    fn unlock(&self) {
        self.open.unlock();
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn passes(&self) -> Option<&dyn Passes> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        (!self.open.is_read_only()).then_some(self)
    }

    fn claim(&self) -> Option<&dyn Claim> {
        self.open.lies_on_block_device().then_some(self)
    }
}

impl Snapshots for PoolHome {
    fn names(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
    ) -> marram_vfs::Result<Vec<String>> {
        members::names(&**self.pool(), dataset, directory)
    }

    fn users(&self, dataset: &DatasetName) -> marram_vfs::Result<BTreeSet<u32>> {
        members::users(&**self.pool(), dataset)
    }

    fn owner_of_fork(&self, source: &Source) -> Result<Option<u32>> {
        rights::owner_of_fork(&**self.pool(), source)
    }

    fn grants(&self, dataset: &DatasetName) -> Result<Grants> {
        grants::of(self.pool(), dataset)
    }

    fn forks_of_user_max(&self, dataset: &DatasetName) -> Result<usize> {
        rights::forks_of_user_max(&**self.pool(), dataset)
    }

    fn may_change_names(
        &self,
        dataset: &DatasetName,
        directory: u64,
        user: &dyn marram_vfs::Identity,
    ) -> Result<bool> {
        rights::may_change_names(&**self.pool(), dataset, directory, user)
    }

    fn find(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
        name: &str,
    ) -> marram_vfs::Result<Member> {
        members::find(&**self.pool(), dataset, directory, name)
    }

    fn has_directory(
        &self,
        snapshot: &Source,
        ino: marram_vfs::Ino,
        created: marram_vfs::Timestamp,
    ) -> marram_vfs::Result<bool> {
        members::has_directory(&**self.pool(), snapshot, ino, created)
    }

    fn compare(
        &self,
        order: &CompareOrder,
        visit: &mut dyn FnMut(DifferenceRow) -> Result<()>,
    ) -> Result<()> {
        history::diff(&**self.pool(), order, visit)
    }
}

impl Streams for PoolHome {
    fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
        streams::send(self.pool(), order, out)
    }

    fn receive(
        &self,
        order: &ReceiveOrder,
        input: &mut dyn Read,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        let Some(mounts) = mounts else { return streams::receive(self.pool(), order, input) };
        let pool = &acting_for(self.pool(), &order.author);
        mounted::receive(&self.shown(pool, mounts), order, input)
    }
}

impl Passes for PoolHome {
    fn pass(&self, pass: Pass, order: &PassOrder, watched: Option<Watched<'_>>) -> Result<Answer> {
        match (watched, pass) {
            (Some(watched), pass) => mounted::passes::run(self.pool(), pass, order, watched),
            (None, Pass::Dedup) => dedup::alone(self.pool(), order),
            (None, Pass::Defragment) => defragment::alone(self.pool(), order),
        }
    }
}

impl Claim for PoolHome {
    fn release(&self) {
        self.open.release_claim();
    }

    fn take_again(&self) -> bool {
        self.open.claim_again()
    }
}
